"""Makes the backward kernel of a forward kernel: replay, then the adjoint of every op in opposite order.

The cotangent of a value is the sum of the shares that its uses hand back; an op is reversed when all its uses are, and
then takes the cotangents of its results. Elements in memory have their cotangents in gradient arrays: a read adds to
them, a write takes and clears them. Invariants: a cotangent has the dtype and shape of its value; that of a varying
value is varying; that of a uniform one may be varying and is summed over the lanes before its op is reversed, except
in lane code.
Does not decide what is saved (`replay`, `residuals`) nor how a region is reversed (`regions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.ad import activity as act
from tilegrad.ad import checkpoints, claims, lanes, residuals
from tilegrad.ad.activity import Activity
from tilegrad.ad.cotangents import Cotangents, zero
from tilegrad.ad.forward import push_code
from tilegrad.ad.regions import RegionReversal
from tilegrad.ad.replay import Frame, Replay, results_of
from tilegrad.diagnostics import GradientUndefined, TilegradError
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.fragment import Fragment
from tilegrad.ir.types import ArrayType, ScalarType, Type, dtype_of, items_of
from tilegrad.ops import control, custom

#: Ops that hold code of the user's.
_USER_DEFINED = (custom.custom, custom.replayed, custom.pullback)


@dataclass(frozen=True)
class Backward:
    """A backward kernel and what a launch of it needs.

    Its parameters are the forward ones followed by the gradient arrays: `grad_params[i]` is the position of the
    gradient of parameter i, or None. For parameter i, `needs_values[i]` tells that its contents before the forward
    launch are read, and `shadow_params[i]` that the kernel also writes there: pass a private copy. The last arrays are
    for the parameters `finals`: their contents after `prelude`, with NaN where it has changed nothing (see `claims`).
    """

    kernel: Kernel
    grad_params: tuple[int | None, ...]
    shadow_params: tuple[bool, ...]
    needs_values: tuple[bool, ...]
    prelude: Kernel | None = None
    finals: tuple[int, ...] = ()
    #: parameters whose contents after `prelude` are passed at the very end, as they are
    afters: tuple[int, ...] = ()


def differentiate(kernel: Kernel, wrt: Sequence[bool], saved_turns: int = 256) -> Backward:
    """The backward kernel of `kernel`.

    Args:
        kernel: any kernel whose active path consists of ops with adjoints.
        wrt: for each parameter, whether it has a gradient array. Only arrays of floats can have one.
        saved_turns: how many turns a loop may have before it saves checkpoints instead of every turn.

    Raises:
        GradientUndefined: the gradient cannot be given exactly; names the line that prevents it.
    """
    wrt = tuple(w and isinstance(p.type, ArrayType) and p.type.dtype.is_float
                for w, p in zip(wrt, kernel.params, strict=True))  # fmt: skip
    draft, saving = _draft(kernel, wrt)
    pruned, kept = residuals.prune(draft, len(kernel.params))
    long = {loop for stack, loop in saving.items() if stack in kept and checkpoints.is_long(loop, saved_turns)}
    if long:
        draft, _ = _draft(checkpoints.split(kernel, long, saved_turns), wrt)
        pruned, _ = residuals.prune(draft, len(kernel.params))
    return _finish(pruned, kernel, wrt)


def _draft(kernel: Kernel, wrt: Sequence[bool]) -> tuple[Kernel, dict[Op, Op]]:
    """The backward kernel with all that might be needed; and its stacks of carried values, with their loops."""
    memory = act.memory_use(kernel)
    activity = act.analyse(kernel, memory, wrt)
    claiming, undone = claims.claiming(kernel, memory, activity), claims.undone(kernel, memory, activity)
    if claiming and undone:
        raise GradientUndefined(
            "no gradient: the kernel takes atomic minima or maxima, and also needs the order of other updates",
            loc=claiming[0].loc, help="use two launches",
        )  # fmt: skip
    finals, afters = claims.finals(memory, claiming), claims.afters(kernel, memory)
    body = Block(tuple(Value(t, f"{n}", index=i) for i, (t, n) in enumerate(_params(kernel, wrt, finals, afters))))
    builder = Builder(body, kernel.loc)
    repeated = claims.repeated(kernel, memory, activity, undone)
    replay = Replay(kernel, memory, activity, builder, claiming, repeated, pull=_puller(kernel.block_dim))
    with builder.active():
        _Reversal(kernel, replay, activity, builder, undone).run(wrt, finals, afters)
        control.finish(builder, ())
    name = f"{kernel.name}_backward"
    overlaps = _overlaps(kernel.overlaps, wrt, len(finals) + len(afters))
    descending = bool(undone) and not kernel.descending
    draft = Kernel(name, body, kernel.block_dim, kernel.grid_ndim, kernel.tiled, kernel.loc, overlaps, descending)
    return draft, replay.saving


def _overlaps(forward: tuple[int, ...], wrt: Sequence[bool], finals: int) -> tuple[int, ...]:
    """Gradient arrays share memory where their arrays do, and never with those; final contents with nothing."""
    if not forward:
        return ()
    apart = max(forward) + 1
    grads = tuple(apart + g for g, w in zip(forward, wrt, strict=True) if w)
    return (*forward, *grads, *(2 * apart + k for k in range(finals)))


def _params(kernel: Kernel, wrt: Sequence[bool], finals: Sequence[int], afters: Sequence[int]) -> list[tuple[Any, str]]:
    forward = [(p.type, p.name) for p in kernel.params]
    grads = [(p.type, f"{p.name}_grad" if p.name else "") for p, w in zip(kernel.params, wrt, strict=True) if w]
    last = [kernel.params[i] for i in (*finals, *afters)]
    return forward + grads + [(p.type, f"{p.name}_final" if p.name else "") for p in last]


def _finish(kernel: Kernel, forward: Kernel, wrt: Sequence[bool]) -> Backward:
    positions = iter(range(len(wrt), len(kernel.params)))
    uses = act.memory_use(kernel)
    groups = [g if isinstance(p.type, ArrayType) else None
              for p, g in zip(kernel.params, uses.groups, strict=True)][: len(wrt)]  # fmt: skip
    reads = set(uses.reads)
    memory = act.memory_use(forward)
    claiming = claims.claiming(forward, memory, act.analyse(forward, memory, wrt))
    afters = claims.afters(forward, memory)
    prelude = claims.whole_prelude(forward, memory) if afters else None
    if claiming and not afters:
        prelude = claims.prelude(forward, memory, claiming)
    if prelude is not None:
        first = act.memory_use(prelude)
        reads |= {g for p, g in enumerate(uses.groups[: len(wrt)])
                  if any(first.groups[p] in table for table in (first.reads, first.writes, first.atomics))}  # fmt: skip
    return Backward(
        kernel,
        tuple(next(positions) if w else None for w in wrt),
        tuple(g in uses.writes or g in uses.atomics for g in groups),
        tuple(g in reads or g in uses.atomics for g in groups),
        prelude,
        claims.finals(memory, claiming),
        afters,
    )


class _Reversal(RegionReversal):
    def __init__(
        self, kernel: Kernel, replay: Replay, activity: Activity, builder: Builder, undone: frozenset[int]
    ) -> None:
        self.kernel = kernel
        self.block_dim = kernel.block_dim
        self.replay = replay
        self.activity = activity
        self.builder = builder
        #: memory whose updates are undone one after another, in the opposite order
        self.undone = undone

    def run(self, wrt: Sequence[bool], finals: Sequence[int], afters: Sequence[int]) -> None:
        frame = Frame(first=True)
        params, made = self.kernel.params, self.builder.block.args
        frame.bind(params, made[: len(params)])
        wanted = [p for p, w in zip(params, wrt, strict=True) if w]
        frame.grads.update(zip(wanted, made[len(params) :], strict=False))
        rest = made[len(params) + len(wanted) :]
        frame.finals.update(zip([params[i] for i in finals], rest, strict=False))
        frame.afters.update(zip([params[i] for i in afters], rest[len(finals) :], strict=True))
        self.replay.block(self.kernel.body, frame, sweep=True)
        self.reverse(self.kernel.body, frame, Cotangents(self.activity.values, False, self.block_dim))

    def reverse(self, block: Block, frame: Frame, cts: Cotangents) -> None:
        for op in block.ops:
            if op.name == "stack" and self.activity.items.get(op.result):
                kept = tuple(op.attrs["items"][k] for k in self.activity.items[op.result])
                frame.stacks[op.result] = control.stack(items=kept, varying=op.attrs["varying"])
        for op in reversed(block.ops[:-1]):
            with self.builder.at(op.loc):
                if op.regions:
                    self.reverse_region_op(op, frame, cts)
                elif op.name in ("push", "pop"):
                    self._stack(op, frame, cts)
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
        shares = self._user_defined if op.definition in _USER_DEFINED else self._shares
        for v, share in zip(op.operands, shares(op, frame, given), strict=True):
            cts.add(v, share)

    def _user_defined(self, op: Op, frame: Frame, given: list[Value | None]) -> Sequence[Value | None]:
        """The cotangents of the operands of an op that holds code."""
        if op.definition is custom.replayed:
            return [*given, *[None] * (len(op.operands) - len(given))]
        full = [zero(v.type) if ct is None else ct for v, ct in zip(op.results, given, strict=True)]
        grads = [frame.grads.get(v) for v in op.operands]
        if op.definition is custom.pullback:
            return pull_twice(op, frame.get(op.operands), full, grads, self.activity, frame.lane, self.block_dim)
        raws, _, arrays, others = custom.split(op, op.operands)
        arrays = custom.split(op, grads)[2]
        made = custom.inline(op.attrs["code"], [*full, *arrays, *frame.afterwards(others)])
        return [*[None] * len(raws), *made, *[None] * (len(arrays) + len(others))]

    def _stack(self, op: Op, frame: Frame, cts: Cotangents) -> None:
        """What was pushed last is popped first, also of the cotangents: the adjoint of a pop is a push."""
        moving = self.activity.items.get(op.operands[0])
        if not moving:
            return
        stack = frame.stacks[op.operands[0]]
        if op.name == "push":
            for k, ct in zip(moving, results_of(control.pop(stack)), strict=True):
                cts.add(op.operands[1 + k], ct)
            return
        found = [(op.results[k], cts.take(op.results[k])) for k in moving]
        values = [zero(v.type) if ct is None else ct for v, ct in found]
        types = items_of(stack.type)
        control.push(stack, *(control.as_type(v, t) for v, t in zip(values, types, strict=True)))

    def _shares(self, op: Op, frame: Frame, given: list[Value | None]) -> Sequence[Value | None]:
        """Call the adjoint rule of `op`: a cotangent, or None, for each operand."""
        rule = op.definition.adjoint
        assert rule is not None
        whole = len(given) > 1 or op.definition.effect == "write" or self._is_undone(op)
        full = [zero(v.type) if ct is None and whole and act.is_float(v.type) else ct
                for v, ct in zip(op.results, given, strict=True)]  # fmt: skip
        keywords = dict(op.attrs)
        if any(isinstance(v.type, ArrayType) for v in op.operands):
            keywords["grads"] = tuple(frame.grads.get(v) for v in op.operands)
        operands = frame.get(op.operands)
        if frame.lane and op.definition.effect == "write":
            operands = lanes.for_each(operands)
        results = [self.replay.claims[op]] if op in self.replay.claims else op.results
        try:
            shares = rule(_single(full), _single(frame.get(results)), *operands, **keywords)
        except TilegradError as error:
            raise error.at(op.loc) from None
        listed = shares if isinstance(shares, tuple) else (shares,)
        return [s if isinstance(s, Value) else None for s in listed]

    def _require_adjoint(self, op: Op) -> None:
        if op.definition in (custom.custom, custom.replayed):
            return
        if self.activity.touches(op) and act.reads_elements(op):
            self._require_quiet(op)
        if op.definition.adjoint is None and op.definition is not custom.pullback:
            reason = op.definition.no_gradient or "it has no adjoint"
            raise GradientUndefined(f"no gradient through `{op.name}`: {reason}", loc=op.loc)

    def _is_undone(self, op: Op) -> bool:
        touched = {self.replay.memory.groups[p] for p in self.replay.memory.params(op)}
        return op.definition.effect == "atomic" and bool(touched & self.undone)

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


# --- derivatives of code --------------------------------------------------------------------------------------------


def _puller(block_dim: int) -> Callable[[Op, Sequence[Value], bool], Sequence[Value]]:
    return lambda op, operands, lane: pull_op(op, operands, lane, block_dim)


def pull_op(op: Op, operands: Sequence[Value], lane: bool, block_dim: int) -> Sequence[Value]:
    """Emit what the results of a `pullback` op are."""
    code, wrt, into = op.attrs["code"], op.attrs["wrt"], op.attrs["into"]
    n = len(code.params)
    cts = operands[n : len(operands) - len(into)]
    return pull(code, operands[:n], cts, wrt, dict(zip(into, operands[n + len(cts) :], strict=True)), lane, block_dim)


def pull(
    code: Fragment,
    args: Sequence[Value],
    cts: Sequence[Value],
    wrt: Sequence[int],
    into: Mapping[int, Value],
    lane: bool,
    block_dim: int,
) -> list[Value]:
    """Emit the cotangents of the parameters `wrt` of some code.

    Args:
        args: what the parameters are.
        cts: the cotangents of its results that are floats.
        into: for some of the parameters that are arrays, their gradient arrays.
        lane: whether this happens in lane code.
    """
    args = list(args)
    if custom.parts_lanes([v.type for v in args], code):
        for k in wrt:
            if isinstance(args[k].type, ScalarType):
                args[k] = control.as_type(args[k], ScalarType(dtype_of(args[k].type), True))
    code = custom.retyped(code, [v.type for v in args])
    cts = [control.as_type(ct, y.type) for ct, y in zip(cts, filter(_has_derivative, code.yields), strict=True)]
    given = [*args, *cts, *into.values()]
    made = _pulled(code, [v.type for v in given], wrt, tuple(into), lane, block_dim)
    return custom.inline(made, given)


def _has_derivative(v: Value) -> bool:
    return act.is_float(v.type)


def _pulled(
    code: Fragment, types: Sequence[Type], wrt: Sequence[int], into: Sequence[int], lane: bool, block_dim: int
) -> Fragment:
    """Code with the parameters, the cotangents and the gradient arrays as parameters, that yields cotangents."""
    params = code.params
    kernel = Kernel(code.name, code.block, block_dim)
    memory = act.memory_use(kernel)
    floats = [v for v in code.yields if _has_derivative(v)]
    selected = [k in into for k in range(len(params))]
    activity = act.analyse(kernel, memory, selected, [params[k] for k in wrt], floats)
    made = Block(tuple(Value(t, index=k) for k, t in enumerate(types)))
    builder = Builder(made)
    replay = Replay(kernel, memory, activity, builder, pull=_puller(block_dim))
    frame = Frame(lane, first=True)
    frame.bind(params, made.args[: len(params)])
    grads = made.args[len(params) + len(floats) :]
    frame.grads.update(zip([params[k] for k in into], grads, strict=True))
    cotangents = Cotangents(activity.values, lane, block_dim)
    with builder.active():
        replay.block(code.block, frame, sweep=True)
        for v, ct in zip(floats, made.args[len(params) :], strict=False):
            cotangents.add(v, ct)
        _Reversal(kernel, replay, activity, builder, frozenset()).reverse(code.block, frame, cotangents)
        found = [(params[k], cotangents.take(params[k])) for k in wrt]
        control.finish(builder, [zero(p.type) if ct is None else control.as_type(ct, p.type) for p, ct in found])
    whole = Kernel(code.name, made, block_dim)
    uses = act.memory_use(whole)
    effects = [op for op in made.walk() if op.definition.effect in residuals.EFFECTS]
    roots = [op for op in effects if all(p >= len(params) for p in uses.params(op))]
    return Fragment(code.name, residuals.keep(whole, uses, roots)[0].body)


def pull_twice(
    op: Op,
    operands: Sequence[Value],
    given: Sequence[Value],
    grads: Sequence[Value | None],
    activity: Activity,
    lane: bool,
    block_dim: int,
) -> Sequence[Value | None]:
    """The cotangents of the operands of a `pullback`, given those of its results.

    With u the cotangents of J(x)^T c, the sum that is differentiated is u J(x)^T c, which is c times the tangent of
    the code along u. So that tangent is the cotangent of c, and its own pullback gives the one of x.
    """
    code, wrt = op.attrs["code"], op.attrs["wrt"]
    if op.attrs["into"]:
        raise GradientUndefined(f"no gradient through the forward derivative of `{code.name}`", loc=op.loc)
    n = len(code.params)
    args, cts = list(operands[:n]), operands[n:]
    along = push_code(code, wrt)
    both = [*args, *given]
    made: list[Value | None] = [None] * len(operands)
    rates = custom.inline(along, [control.as_type(v, p.type) for v, p in zip(both, along.params, strict=True)])
    made[n:] = [control.as_type(r, ct.type) for r, ct in zip(rates, cts, strict=True)]
    wanted = [k for k, v in enumerate(op.operands[:n]) if v in activity.values]
    arrays = {k: g for k, g in enumerate(grads[:n]) if g is not None and op.operands[k] in activity.arrays}
    for k, ct in zip(wanted, pull(along, both, cts, wanted, arrays, lane, block_dim), strict=True):
        made[k] = ct
    return made
