"""Differentiation: a Tile IR kernel in, its backward kernel (reverse mode) or its tangent kernel (forward mode) out."""

from tilegrad.ad.expand import expand
from tilegrad.ad.forward import Tangent, push_forward
from tilegrad.ad.reverse import Backward, differentiate

__all__ = ["Backward", "Tangent", "differentiate", "expand", "push_forward"]
