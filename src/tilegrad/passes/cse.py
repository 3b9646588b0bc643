"""Common subexpression elimination: an op with the operands and attributes of an earlier one becomes that one.

Reads count too, as long as no write to memory that may be the same lies between. Looks into regions: what is known
before a region is known inside it, not the other way round. Contract: effects stay, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.passes.effects import inside, is_pure, is_write, memories


def run(kernel: Kernel) -> Kernel:
    """The kernel with each expression computed once per region."""
    return _Cse(kernel).run()


class _Cse(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.scopes: list[dict[Any, tuple[Value, ...]]] = [{}]
        #: how often each memory has been written so far; part of the key of a read
        self.writes: dict[int, int] = {}

    def block(self, old: Block) -> Block:
        self.scopes.append({})
        try:
            return super().block(old)
        finally:
            self.scopes.pop()

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op.regions:
            self._note_writes(op)
            results = self.copy(op, operands)
            self._note_writes(op)
            return results
        if is_write(op):
            self._note_writes(op)
        if not is_pure(op) and op.definition.effect != "read":
            return self.copy(op, operands)
        key = self._key(op, operands)
        for scope in reversed(self.scopes):
            if key in scope:
                found: Sequence[Value] = scope[key]
                return found
        results = self.scopes[-1][key] = self.copy(op, operands)
        return results

    def _note_writes(self, op: Op) -> None:
        for inner in inside(op):
            if is_write(inner):
                for m in memories(self.kernel, inner):
                    self.writes[m] = self.writes.get(m, 0) + 1

    def _key(self, op: Op, operands: tuple[Value, ...]) -> Any:
        attrs = tuple(sorted((k, repr(v)) for k, v in op.attrs.items()))
        versions: tuple[Any, ...] = ()
        if op.definition.effect == "read":
            versions = tuple(sorted((m, self.writes.get(m, 0)) for m in memories(self.kernel, op)))
        return op.definition, operands, attrs, versions
