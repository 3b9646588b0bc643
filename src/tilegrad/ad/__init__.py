"""Reverse-mode differentiation: a forward Tile IR kernel in, its backward kernel out."""

from tilegrad.ad.reverse import Backward, differentiate

__all__ = ["Backward", "differentiate"]
