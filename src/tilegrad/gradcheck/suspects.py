"""Which op makes a gradient wrong: each op of a kernel is held against differences on the operands that it had.

The kernel is run in the interpreter, and the operands of the first run of every op are kept. Then a kernel of that one
op is checked as whole kernels are. Reversing control flow and memory is not checked this way, nor are gradients that
users have given to functions; those are named if everything else is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import compiler, interpreter
from tilegrad.diagnostics import Loc, TilegradError
from tilegrad.gradcheck.differences import Comparison, Element, Tolerance
from tilegrad.gradcheck.functions import Launched, Rng
from tilegrad.gradcheck.widen import copies
from tilegrad.ir.core import Kernel, Op
from tilegrad.ir.types import ArrayType, StackType, is_varying
from tilegrad.op import Sample
from tilegrad.op_checks import one_op_kernel
from tilegrad.tape.records import unseen

#: ops that are looked at
MOST = 400


@dataclass(frozen=True)
class Suspect:
    """An op whose adjoint disagrees with its differences on these operands, and where."""

    op: Op
    element: Element

    @property
    def loc(self) -> Loc:
        return self.op.loc


class _Operands:
    """Keeps the operands of each op when it first runs."""

    def __init__(self) -> None:
        self.seen: dict[Op, list[Any]] = {}

    def before(self, op: Op, operands: Sequence[Any]) -> None:
        wanted = op not in self.seen and len(self.seen) < MOST and is_checked(op)
        if wanted and all(np.size(x) for x in operands):
            self.seen[op] = [np.array(x)[()] for x in operands]

    def after(self, op: Op, operands: Sequence[Any], results: Sequence[Any]) -> None: ...


def is_checked(op: Op) -> bool:
    """Whether an op has an adjoint of its own that can be checked."""
    if op.regions or op.definition.cls == "control" or op.definition.adjoint is None or op.definition.no_gradient:
        return False
    types = [v.type for v in op.operands]
    return any(not isinstance(t, StackType) and t.dtype.is_float for t in types)


def find(
    kernel: Kernel, values: Sequence[Any], grid: tuple[int, ...], tolerance: Tolerance, rng: Rng
) -> Suspect | None:
    """The first op, in the order in which they ran, whose adjoint is wrong by itself."""
    kept = _Operands()
    with unseen():
        interpreter.run(compiler.expanded(kernel), copies(values), grid, kept)
    for op, operands in kept.seen.items():
        wrong = _wrong(op, operands, tolerance, rng)
        if wrong is not None:
            return Suspect(op, wrong)
    return None


def _wrong(op: Op, operands: list[Any], tolerance: Tolerance, rng: Rng) -> Element | None:
    names = [f"operand {k + 1}" for k in range(len(operands))]
    try:
        sample = Sample(tuple(_alone(op, operands)), op.attrs)
        case = one_op_kernel(op.definition, sample)
        outs = [np.zeros(getattr(t, "shape", (1,)), t.dtype.np) for t in case.outputs if not isinstance(t, StackType)]
        point = [*(np.array(np.atleast_1d(x)) for x in sample.args), *outs]
        function = Launched(case.kernel, point, (1,), "interpret", [*names, *(f"result {k}" for k in range(len(outs)))])
        function.choose_cotangents(rng)
        verdicts = Comparison(function, tolerance, 2, rng).verdicts()
    except (TilegradError, AssertionError):
        return None  # an op that cannot stand alone, as its lanes or its place in the launch are missing
    return next((v.wrong for v in verdicts if v.wrong is not None), None)


def _alone(op: Op, operands: list[Any]) -> Iterator[Any]:
    """The operands of an op for a kernel without lanes: an elementwise op gets tiles, any other those of one lane."""
    lanes = any(is_varying(v.type) for v in op.operands)
    shape = np.broadcast_shapes(*map(np.shape, operands)) if lanes and op.definition.elementwise is not None else None
    for v, x in zip(op.operands, operands, strict=True):
        if shape is not None:
            yield np.array(np.broadcast_to(x, shape))
        elif is_varying(v.type):
            yield np.ravel(x)[0]
        else:
            yield x if isinstance(v.type, ArrayType) or np.ndim(x) else x[()]
