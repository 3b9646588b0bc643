"""Common subexpression elimination: an op with the operands and attributes of an earlier one becomes that one.

Reads count too, as long as no write to memory that may be the same lies between. Looks into regions: what is known
before a region is known inside it, not the other way round. A cheap tile op is not shared between a loop and what
stands before it: it costs less to compute it in place than to keep it in memory.
Contract: effects stay, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.regions import is_loop
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import TileType, is_varying
from tilegrad.passes.effects import inside, is_pure, is_write, memories

#: Ops that are not the same however equal they look: a new empty stack.
_UNIQUE = ("stack",)


def run(kernel: Kernel) -> Kernel:
    """The kernel with each expression computed once per region."""
    return _Cse(kernel).run()


class _Cse(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        #: what is known in each open block, outermost first
        self.scopes: list[dict[Any, tuple[Value, ...]]] = [{}]
        #: the number of scopes outside the innermost loop
        self.before_loop = 0
        #: the number of scopes outside the map that is open: an element of a map sees no value of a lane
        self.before_map = 0
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
            return self._region_op(op, operands)
        if is_write(op):
            self._note_writes(op)
        if op.name in _UNIQUE or not (is_pure(op) or op.definition.effect == "read"):
            return self.copy(op, operands)
        key = self._key(op, operands)
        for scope in reversed(self.scopes[self._first_scope(op) :]):
            if key in scope:
                found: Sequence[Value] = scope[key]
                return found
        results = self.scopes[-1][key] = self.copy(op, operands)
        return results

    def _first_scope(self, op: Op) -> int:
        """The number of the outermost scope whose values may stand for those of an op."""
        if _is_cheap_tile(op):
            return self.before_loop
        return self.before_map if any(is_varying(v.type) for v in op.results) else 0

    def _region_op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        self._note_writes(op)
        outer = self.before_loop, self.before_map
        if is_loop(op):
            self.before_loop = len(self.scopes)
        if op.name == "map":
            self.before_map = len(self.scopes)
        results = self.copy(op, operands)
        self.before_loop, self.before_map = outer
        self._note_writes(op)
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


def _is_cheap_tile(op: Op) -> bool:
    return is_pure(op) and op.definition.cls == "point" and op.definition.cheap \
        and isinstance(op.results[0].type, TileType)  # fmt: skip
