"""Loop-invariant code motion: tile work that is the same in every turn moves in front of the loop.

Moves block ops, folds, and loads of tiles that the loop does not write; cheap scalar and elementwise ops stay, as
they are computed where they are read. Contract: only ops that cannot raise move, so a loop of no turns is safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import TileType
from tilegrad.ops.control import for_, while_
from tilegrad.passes.effects import is_pure, memories, written


def run(kernel: Kernel) -> Kernel:
    """The kernel with invariant tile work moved out of its loops."""
    return _Licm(kernel).run()


class _Licm(Rewriter):
    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op.definition not in (for_, while_):
            return self.values_of(op) or self.copy(op, operands)
        block = op.regions[-1]
        writes = written(self.kernel, block)
        inner: set[Value] = set(block.args)
        for o in block.ops[:-1]:
            if self._movable(o, writes) and not any(v in inner for v in o.operands):
                new = self.copy(o, tuple(self.value(v) for v in o.operands))
                self.values.update(zip(o.results, new, strict=True))
            else:
                inner.update(o.results)
        return self.copy(op, operands)

    def values_of(self, op: Op) -> tuple[Value, ...] | None:
        """The results of an op that was moved already."""
        if op.results and all(v in self.values for v in op.results):
            return tuple(self.values[v] for v in op.results)
        return None

    def _movable(self, op: Op, writes: set[int]) -> bool:
        if op.regions or op.definition.cls == "control" and op.name != "constant":
            return False
        if op.name == "tile_load":
            return not memories(self.kernel, op) & writes
        if not is_pure(op) or op.name == "tile_extract":
            return False
        return op.name == "constant" or all(isinstance(v.type, TileType) for v in op.results)
