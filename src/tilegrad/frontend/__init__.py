"""From a Python function to Tile IR: source, variables, control flow, calls."""

from tilegrad.frontend.visit import Traced, trace

__all__ = ["Traced", "trace"]
