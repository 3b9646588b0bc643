"""Appends ops to the block that is being built, and keeps the source location that they get.

One builder is active per thread while a kernel is traced or rewritten; op functions find it with `current()`.
Does not check types: `tilegrad.op` infers them before it inserts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilegrad.diagnostics import UNKNOWN, Loc
from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import Type


class Builder:
    """An insertion point (the end of `block`) and the location for new ops."""

    def __init__(self, block: Block | None = None, loc: Loc = UNKNOWN) -> None:
        self.block = block or Block()
        self.loc = loc

    def insert(
        self,
        definition: OpDef,
        operands: tuple[Value, ...] = (),
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
        types: tuple[Type, ...] = (),
        loc: Loc | None = None,
    ) -> Op:
        op = Op(definition, operands, attrs or {}, regions, types, loc or self.loc)
        self.block.ops.append(op)
        return op

    @contextmanager
    def region(self, *types: Type) -> Iterator[Block]:
        """Build a nested block with arguments of the given types; ops go there until the context ends."""
        outer, self.block = self.block, Block(tuple(Value(t, index=i) for i, t in enumerate(types)))
        try:
            yield self.block
        finally:
            self.block = outer

    @contextmanager
    def ashore(self, *values: Value) -> Iterator[None]:
        """Emit ops on these values where all lanes are together. A builder that knows no lanes is there already."""
        yield

    @contextmanager
    def at(self, loc: Loc) -> Iterator[None]:
        """Give ops built inside the context this location."""
        outer, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = outer

    @contextmanager
    def active(self) -> Iterator[Builder]:
        """Make this the builder that op functions emit into, for the current thread."""
        stack = _stack()
        stack.append(self)
        try:
            yield self
        finally:
            stack.pop()


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[Builder] = []


_active = _Active()


def _stack() -> list[Builder]:
    return _active.stack


def current() -> Builder | None:
    """The builder that is active in this thread, or None outside of tracing."""
    stack = _active.stack
    return stack[-1] if stack else None
