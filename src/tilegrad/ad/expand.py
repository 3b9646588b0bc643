"""Takes the ops that hold code of the user's out of a kernel, so that it can run: see `ops.custom`.

Forward execution runs a function itself whatever its gradient; a derivative inside a kernel becomes the ops that
compute it. Nothing else knows these ops. Does not differentiate kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ad.reverse import pull_op
from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.regions import is_lane_code
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ops import custom

_HELD = (custom.stopped, custom.custom, custom.replayed, custom.pullback)


def expand(kernel: Kernel) -> Kernel:
    """The kernel as it runs; the same object if there is nothing to take out."""
    while any(op.definition in _HELD for op in kernel.body.walk()):
        kernel = _Expand(kernel).run()  # the code that is put in place may hold such ops itself
    return kernel


class _Expand(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.lane = False

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op.definition is custom.pullback:
            with self.builder.at(op.loc):
                return pull_op(op, operands, self.lane, self.kernel.block_dim)
        if op.definition in _HELD:
            return operands[: len(op.results)]
        outer = self.lane
        self.lane = outer or bool(op.regions and is_lane_code(op))
        made = self.copy(op, operands)
        self.lane = outer
        return made
