"""Code as a compile-time value: an attribute of an op, such as the gradient that a user has written for a function.

A fragment reads nothing but its parameters. Passes and `ad` see an op that has one as an ordinary op.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.ir.core import Block, Value


@dataclass(frozen=True, eq=False, slots=True)
class Fragment:
    """A block with parameters (`block.args`) and results (`block.yields`)."""

    name: str
    block: Block

    @property
    def params(self) -> tuple[Value, ...]:
        return self.block.args

    @property
    def yields(self) -> tuple[Value, ...]:
        return self.block.yields

    def __repr__(self) -> str:
        return f"<{self.name}>"
