"""Rebuilding a kernel: the frame of every pass.

A pass subclasses `Rewriter` and overrides `op`, which sees each op with its operands already mapped and says what
takes its place. The old kernel is never changed. Does not check the result (see `verify`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Op, Value


class Rewriter:
    """Copies a kernel op by op through a Builder, with a map from old values to new ones."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.values: dict[Value, Value] = {}
        self.builder = Builder()

    def run(self) -> Kernel:
        """The new kernel."""
        with self.builder.active():
            body = self.block(self.kernel.body)
        return dataclasses.replace(self.kernel, body=body)

    def value(self, v: Value) -> Value:
        """The new value for an old one (itself if it was not rewritten)."""
        return self.values.get(v, v)

    def block(self, old: Block) -> Block:
        """A copy of a block, its ops rewritten."""
        with self.builder.region(*(a.type for a in old.args)) as new:
            for a, b in zip(old.args, new.args, strict=True):
                b.name = a.name
                self.values[a] = b
            self.ops(old)
        return new

    def ops(self, old: Block) -> None:
        """Rewrite the ops of a block into the block that is being built."""
        for op in old.ops:
            results = self.op(op, tuple(self.value(v) for v in op.operands))
            for v, new in zip(op.results, results, strict=True):
                self.values[v] = new

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        """What takes the place of the results of `op`; by default a copy of it."""
        return self.copy(op, operands)

    def copy(self, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        """The same op on other operands."""
        regions = tuple(self.block(r) for r in op.regions)
        types = tuple(v.type for v in op.results)
        new = self.builder.insert(op.definition, operands, op.attrs, regions, types, op.loc)
        for a, b in zip(op.results, new.results, strict=True):
            b.name = a.name
        return new.results
