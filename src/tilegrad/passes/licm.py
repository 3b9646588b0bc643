"""Loop-invariant code motion: tile work that is the same in every turn moves in front of the loop.

What moves is what would be stored in every turn anyway: block ops, folds, costly elementwise work, operands of block
ops, and loads of arrays that the loop does not write. Cheap ops that these need are repeated in front of the loop and
also stay, as they are computed where they are read. Scalars stay: the code generator moves them.
Contract: only ops that cannot raise move, so a loop of no turns is safe; what stands in a branch stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilegrad.ir.core import Block, Kernel, Op, Value, free_values
from tilegrad.ir.regions import is_lane_code, is_loop
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import TileType
from tilegrad.passes.effects import is_pure, may_raise, memories, written


def run(kernel: Kernel) -> Kernel:
    """The kernel with invariant tile work moved out of its loops."""
    return _Licm(kernel).run()


class _Licm(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.users: dict[Value, list[Op]] = {}
        for op in kernel.body.walk():
            for v in op.operands:
                self.users.setdefault(v, []).append(op)
        self.moved: set[Op] = set()

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op in self.moved:
            return [self.values[v] for v in op.results]
        if is_loop(op) and not is_lane_code(op):
            self._empty(op)
        return self.copy(op, operands)

    def _empty(self, loop: Op) -> None:
        """Emit what can leave the loop, in front of it."""
        invariant = self._invariant(loop)
        emitted: set[Op] = set()
        for op in invariant:
            if self._is_worth(op):
                self._emit(op, invariant, emitted)
                self.moved.add(op)

    def _invariant(self, loop: Op) -> dict[Op, None]:
        """The ops of a loop, and of loops in it, that compute the same in every turn."""
        writes = written(self.kernel, *loop.regions)
        inside: set[Value] = set()
        found: dict[Op, None] = {}
        for op in _ops_of(loop, inside):
            if op in self.moved:
                continue
            if self._is_movable(op, writes) and not any(v in inside for v in _needs(op)):
                found[op] = None
            else:
                inside.update(op.results)
        return found

    def _is_movable(self, op: Op, writes: set[int]) -> bool:
        if may_raise(op) or op.name == "yield":
            return False
        if op.definition.effect == "read":
            return not memories(self.kernel, op) & writes
        if op.name == "map":
            return all(is_pure(inner) or inner.name == "yield" for inner in op.regions[0].walk())
        return is_pure(op)

    def _is_worth(self, op: Op) -> bool:
        if not all(isinstance(v.type, TileType) for v in op.results):
            return False
        d = op.definition
        if d.cls in ("block", "fold", "control") or not d.cheap or d.effect == "read":
            return True
        of_tiles = any(isinstance(v.type, TileType) for v in op.operands)
        return of_tiles and any(u.definition.cls == "block" for v in op.results for u in self.users.get(v, ()))

    def _emit(self, op: Op, invariant: dict[Op, None], emitted: set[Op]) -> None:
        """Copy an op, and first the invariant ops that it needs, to where the loop will stand."""
        emitted.add(op)
        for v in _needs(op):
            if v.op in invariant and v.op not in emitted and v.op not in self.moved:
                assert v.op is not None
                self._emit(v.op, invariant, emitted)
        self.values.update(zip(op.results, self.copy(op, tuple(self.value(v) for v in op.operands)), strict=True))


def _ops_of(loop: Op, inside: set[Value]) -> Iterator[Op]:
    """The ops that a loop runs in every turn, nested loops included; `inside` gets what all others define."""
    for region in loop.regions:
        inside.update(region.args)
        for op in region.ops:
            if is_loop(op):
                yield from _ops_of(op, inside)
            elif op.name != "map":
                _note(op.regions, inside)
            yield op


def _note(blocks: Sequence[Block], inside: set[Value]) -> None:
    for block in blocks:
        inside.update(block.args)
        for op in block.walk():
            inside.update(op.results)


def _needs(op: Op) -> list[Value]:
    """Everything from outside of the op that it reads."""
    return [*op.operands, *(v for region in op.regions for v in free_values(region))]
