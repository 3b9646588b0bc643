"""Runs Tile IR with NumPy, through the bodies of the ops: the oracle of the tests and the user's debugger."""

from tilegrad.interpreter.run import run

__all__ = ["run"]
