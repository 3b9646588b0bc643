"""Makes the backward kernel of a forward kernel: replay, then the adjoint of every op in opposite order.

The cotangent of a value is the sum of the shares that its uses hand back; an op is reversed when all its uses are, and
then takes the cotangents of its results. Elements in memory have their cotangents in gradient arrays: a read adds to
them, a write takes and clears them. Invariants: a cotangent has the dtype and shape of its value; that of a varying
value is varying; that of a uniform one may be varying and is summed over the lanes before its op is reversed, except
in lane code.
Does not decide what is saved (`replay`, `residuals`) nor how a region is reversed (`regions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.ad import activity as act
from tilegrad.ad import lanes, residuals
from tilegrad.ad.activity import Activity
from tilegrad.ad.cotangents import Cotangents, zero
from tilegrad.ad.regions import RegionReversal
from tilegrad.ad.replay import Frame, Replay
from tilegrad.diagnostics import GradientUndefined, TilegradError
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType
from tilegrad.ops import control


@dataclass(frozen=True)
class Backward:
    """A backward kernel and what a launch of it needs.

    Its parameters are the forward ones followed by the gradient arrays: `grad_params[i]` is the position of the
    gradient of parameter i, or None. For parameter i, `needs_values[i]` tells that its contents before the forward
    launch are read, and `shadow_params[i]` that the kernel also writes there: pass a private copy.
    """

    kernel: Kernel
    grad_params: tuple[int | None, ...]
    shadow_params: tuple[bool, ...]
    needs_values: tuple[bool, ...]


def differentiate(kernel: Kernel, wrt: Sequence[bool]) -> Backward:
    """The backward kernel of `kernel`.

    Args:
        kernel: any kernel whose active path consists of ops with adjoints.
        wrt: for each parameter, whether it has a gradient array. Only arrays of floats can have one.

    Raises:
        GradientUndefined: the gradient cannot be given exactly; names the line that prevents it.
    """
    wrt = tuple(w and isinstance(p.type, ArrayType) and p.type.dtype.is_float
                for w, p in zip(wrt, kernel.params, strict=True))  # fmt: skip
    memory = act.memory_use(kernel)
    activity = act.analyse(kernel, memory, wrt)
    grad_types = [p.type for p, w in zip(kernel.params, wrt, strict=True) if w]
    body = Block(tuple(Value(t, f"{n}", index=i) for i, (t, n) in enumerate(_params(kernel, wrt, grad_types))))
    builder = Builder(body, kernel.loc)
    with builder.active():
        _Reversal(kernel, Replay(kernel, memory, activity, builder), activity, builder).run(wrt)
        control.finish(builder, ())
    name = f"{kernel.name}_backward"
    overlaps = _overlaps(kernel.overlaps, wrt)
    draft = Kernel(name, body, kernel.block_dim, kernel.grid_ndim, kernel.tiled, kernel.loc, overlaps)
    return _finish(residuals.prune(draft, len(kernel.params)), wrt)


def _overlaps(forward: tuple[int, ...], wrt: Sequence[bool]) -> tuple[int, ...]:
    """Gradient arrays share memory where their arrays do, and never with those."""
    apart = max(forward, default=0) + 1
    return forward and (*forward, *(apart + g for g, w in zip(forward, wrt, strict=True) if w))


def _params(kernel: Kernel, wrt: Sequence[bool], grad_types: Sequence[Any]) -> list[tuple[Any, str]]:
    forward = [(p.type, p.name) for p in kernel.params]
    grads = [(p.type, f"{p.name}_grad" if p.name else "") for p, w in zip(kernel.params, wrt, strict=True) if w]
    return forward + grads


def _finish(kernel: Kernel, wrt: Sequence[bool]) -> Backward:
    positions = iter(range(len(wrt), len(kernel.params)))
    uses = act.memory_use(kernel)
    groups = [g if isinstance(p.type, ArrayType) else None
              for p, g in zip(kernel.params, uses.groups, strict=True)][: len(wrt)]  # fmt: skip
    return Backward(
        kernel,
        tuple(next(positions) if w else None for w in wrt),
        tuple(g in uses.writes for g in groups),
        tuple(g in uses.reads for g in groups),
    )


class _Reversal(RegionReversal):
    def __init__(self, kernel: Kernel, replay: Replay, activity: Activity, builder: Builder) -> None:
        self.kernel = kernel
        self.block_dim = kernel.block_dim
        self.replay = replay
        self.activity = activity
        self.builder = builder

    def run(self, wrt: Sequence[bool]) -> None:
        frame = Frame(first=True)
        params, made = self.kernel.params, self.builder.block.args
        frame.bind(params, made[: len(params)])
        wanted = [p for p, w in zip(params, wrt, strict=True) if w]
        frame.grads.update(zip(wanted, made[len(params) :], strict=True))
        self.replay.block(self.kernel.body, frame, sweep=True)
        self.reverse(self.kernel.body, frame, Cotangents(self.activity.values, False, self.block_dim))

    def reverse(self, block: Block, frame: Frame, cts: Cotangents) -> None:
        for op in reversed(block.ops[:-1]):
            with self.builder.at(op.loc):
                if op.regions:
                    self.reverse_region_op(op, frame, cts)
                elif self.activity.stores(op) or any(v in cts for v in op.results):
                    self._adjoint(op, frame, cts)

    def _adjoint(self, op: Op, frame: Frame, cts: Cotangents) -> None:
        if op.name == "spread":
            cts.add(op.operands[0], cts.take(op.result))
            return
        self._require_adjoint(op)
        if lanes.needs_deferring(op, frame, self.activity.values):
            cts.add(op.operands[0], lanes.read_adjoint(op, frame, cts.values.pop(op.result)))
            return
        given = [cts.take(v) for v in op.results]
        for v, share in zip(op.operands, self._shares(op, frame, given), strict=True):
            cts.add(v, share)

    def _shares(self, op: Op, frame: Frame, given: list[Value | None]) -> Sequence[Value | None]:
        """Call the adjoint rule of `op`: a cotangent, or None, for each operand."""
        rule = op.definition.adjoint
        assert rule is not None
        whole = len(given) > 1 or op.definition.effect == "write"
        full = [zero(v.type) if ct is None and whole and act.is_float(v.type) else ct
                for v, ct in zip(op.results, given, strict=True)]  # fmt: skip
        keywords = dict(op.attrs)
        if any(isinstance(v.type, ArrayType) for v in op.operands):
            keywords["grads"] = tuple(frame.grads.get(v) for v in op.operands)
        operands = frame.get(op.operands)
        try:
            shares = rule(_single(full), _single(frame.get(op.results)), *operands, **keywords)
        except TilegradError as error:
            raise error.at(op.loc) from None
        listed = shares if isinstance(shares, tuple) else (shares,)
        return [s if isinstance(s, Value) else None for s in listed]

    def _require_adjoint(self, op: Op) -> None:
        if (
            self.activity.touches(op)
            and op.definition.effect == "atomic"
            and any(v in self.activity.values for v in op.results)
        ):
            raise GradientUndefined(
                f"no gradient: a result depends on the value that `{op.name}` found in the array, to which other "
                "blocks add too",
                loc=op.loc, help="add to one array and read from another",
            )  # fmt: skip
        if self.activity.touches(op) and act.reads_elements(op):
            self._require_quiet(op)
        if op.definition.adjoint is None:
            reason = op.definition.no_gradient or "it has no adjoint"
            raise GradientUndefined(f"no gradient through `{op.name}`: {reason}", loc=op.loc)

    def _require_quiet(self, op: Op) -> None:
        other = self.replay.memory.touches(op, self.replay.memory.atomics)
        if other is not None:
            raise GradientUndefined(
                f"no gradient: this reads an array to which the kernel adds atomically, at {other.loc}",
                loc=op.loc, help="add to one array and read from another, or use two launches",
            )  # fmt: skip


def _single(values: Sequence[Any]) -> Any:
    """What a rule is given for results: the value of the only one, a tuple of several, None for none."""
    return None if not values else values[0] if len(values) == 1 else tuple(values)
