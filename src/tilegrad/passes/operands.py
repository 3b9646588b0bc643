"""Products read transposed operands as they lie: tile_matmul(a, tile_transpose(b)) -> tile_matmul(a, b) {swap}.

Only the last two axes may be swapped. What is transposed for nothing else is removed by `dce`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter

PRODUCTS = ("tile_matmul", "tile_matmul_add")


def run(kernel: Kernel) -> Kernel:
    """The kernel with transposed factors read in place."""
    return _Operands(kernel).run()


class _Operands(Rewriter):
    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op.name not in PRODUCTS:
            return self.copy(op, operands)
        swap, factors = list(op.attrs["swap"]), list(operands)
        for k in range(2):
            source = _untransposed(factors[k])
            if source is not None:
                factors[k], swap[k] = source, not swap[k]
        attrs = {**op.attrs, "swap": tuple(swap)}
        types = tuple(v.type for v in op.results)
        return self.builder.insert(op.definition, tuple(factors), attrs, types=types, loc=op.loc).results


def _untransposed(v: Value) -> Value | None:
    """The tile of which `v` is a view with the last two axes swapped."""
    if v.op is None or v.op.name != "tile_transpose":
        return None
    axes = v.op.attrs["axes"]
    n = len(axes)
    return v.op.operands[0] if axes == (*range(n - 2), n - 1, n - 2) else None
