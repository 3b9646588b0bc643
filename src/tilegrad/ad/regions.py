"""Reversal of `if_`, `for_`, `while_` and `map_`: each becomes an op of the same kind that rebuilds and reverses.

A reversed region first restores what its forward run has saved, runs its block again, then reverses it. It hands out
the cotangents of the block's inputs: of the carried values, and of the differentiated values from outside. A loop runs
its turns in opposite order; a `while_` has counted them.

In lane code the cotangent of a uniform value may differ between lanes: each lane's is its share, and the sum is taken
when the value's own op is reversed outside of lane code.
Does not know the adjoint of any plain op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from tilegrad import dtypes as dt
from tilegrad.ad import activity as act
from tilegrad.ad.activity import Activity
from tilegrad.ad.replay import Frame, Replay, spread_all
from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import control

Cotangents = dict[Value, Value]


def zero(t: Type) -> Value:
    """The cotangent of a value that nothing depends on."""
    number = constant(0.0, t.dtype)  # type: ignore[union-attr]
    if isinstance(t, TileType):
        return REGISTRY["tile_full"](number, shape=t.shape)  # type: ignore[no-any-return]
    return control.as_type(number, t)


class RegionReversal(ABC):
    """The part of the reversal that deals with regions."""

    replay: Replay
    activity: Activity

    @abstractmethod
    def reverse(self, block: Block, frame: Frame, cts: Cotangents) -> None:
        """Reverse the ops of a block that was replayed in `frame`."""

    def add(self, cts: Cotangents, v: Value, ct: Value | None) -> None:
        """Add a share to the cotangent of `v`, if it is differentiated."""
        if ct is not None and v in self.activity.values:
            cts[v] = REGISTRY["add"](cts[v], ct) if v in cts else control.as_type(ct, v.type)

    def region(self, block: Block, frame: Frame, yields: Sequence[Value | None]) -> Cotangents:
        """Rebuild and reverse a region, given the cotangents of what it yields."""
        self.replay.restore(block, frame)
        self.replay.block(block, frame, sweep=True)
        cts: Cotangents = {}
        for v, ct in zip(block.yields, yields, strict=True):
            self.add(cts, v, ct)
        self.reverse(block, frame, cts)
        return cts

    def reverse_region_op(self, op: Op, frame: Frame, cts: Cotangents) -> None:
        """Reverse an op with regions; takes the cotangents of its results out of `cts`."""
        outs = [cts.pop(v, None) for v in op.results]
        wanted = self.activity.receivers(op.regions)
        if all(ct is None for ct in outs) and not self.activity.has_stores(op):
            return
        if frame.lane or act.makes_lanes(op):
            _require_scalars(op, wanted)
        {"if": self._if, "for": self._for, "while": self._while, "map": self._map}[op.name](
            op, frame, cts, outs, wanted
        )

    def _if(self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value]) -> None:
        def branch(block: Block) -> list[Value]:
            inner = frame.child(act.makes_lanes(op), first=False)
            return _take(self.region(block, inner, outs), wanted)

        first, second = op.regions
        shares = control.build_if(frame[op.operands[0]], lambda: branch(first), lambda: branch(second))
        self._add_all(cts, wanted, shares)

    def _for(self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value]) -> None:
        bounds = reversed_range(*frame.get(op.operands[:3]))

        def enter(inner: Frame, i: Value) -> None:
            inner.bind(op.regions[0].args[:1], (i,))

        self._loop(op, frame, cts, outs, wanted, bounds, enter)

    def _while(self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value]) -> None:
        bounds = constant(0, dt.int32), frame[self.replay.turns[op]], constant(1, dt.int32)
        self._loop(op, frame, cts, outs, wanted, bounds, lambda inner, i: None)

    def _loop(
        self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value],
        bounds: tuple[Value, Value, Value], enter: Callable[[Frame, Value], None],
    ) -> None:  # fmt: skip
        block, args = act.body(op), act.carried(op)
        values = self.activity.values
        moving = [j for j, (a, r) in enumerate(zip(args, op.results, strict=True)) if a in values or r in values]

        def turn(i: Value, *shares: Value) -> list[Value]:
            inner = frame.child(act.makes_lanes(op), first=False)
            enter(inner, i)
            yields: list[Value | None] = [None] * len(args)
            for j, ct in zip(moving, shares, strict=False):
                yields[j] = ct
            got = self.region(block, inner, yields)
            mine = _take(got, [args[j] for j in moving])
            sums = [REGISTRY["add"](s, got[v]) if v in got else s
                    for v, s in zip(wanted, shares[len(moving) :], strict=True)]  # fmt: skip
            return [*mine, *sums]

        start = [out if (out := outs[j]) is not None else zero(op.results[j].type) for j in moving]
        results = control.build_for(*bounds, [*start, *(zero(v.type) for v in wanted)], turn)
        sources = [act.initial(op)[j] for j in moving]
        self._add_all(cts, [*sources, *wanted], results)

    def _map(self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value]) -> None:
        (block,) = op.regions
        extra = self.replay.pinned_results(op)
        moving = [v for v in block.args if v in self.activity.values]
        tiles = [*frame.get(op.operands), *frame.get(extra), *(ct for ct in outs if ct is not None)]

        def element(*args: Value) -> list[Value]:
            inner = frame.child(lane=True, first=False)
            known = len(block.args) + len(extra)
            inner.bind((*block.args, *extra), args[:known])
            seeds = iter(args[known:])
            got = self.region(block, inner, [None if ct is None else next(seeds) for ct in outs])
            return spread_all(_take(got, [*moving, *wanted]))

        shares = control.build_map(tiles, element)
        self._add_all(cts, [op.operands[v.index] for v in moving], shares)
        for v, share in zip(wanted, shares[len(moving) :], strict=True):
            self.add(cts, v, total(share))

    def _add_all(self, cts: Cotangents, values: Iterable[Value], shares: Iterable[Value]) -> None:
        for v, ct in zip(values, shares, strict=False):
            self.add(cts, v, ct)


def total(tile: Value) -> Value:
    """The sum of all elements as a scalar."""
    shape: tuple[int, ...] = tile.type.shape  # type: ignore[union-attr]
    summed = REGISTRY["tile_sum"](tile, axes=tuple(range(len(shape))), keepdims=False)
    return REGISTRY["tile_extract"](summed, 0)  # type: ignore[no-any-return]


def _take(cts: Cotangents, values: Iterable[Value]) -> list[Value]:
    return [cts[v] if v in cts else zero(v.type) for v in values]


def _require_scalars(op: Op, wanted: Iterable[Value]) -> None:
    if any(isinstance(v.type, TileType) for v in wanted):
        raise GradientUndefined(
            "no gradient: lanes read elements of a tile under a condition or loop of their own",
            loc=op.loc,
            help="read the elements first, outside of the condition or loop",
        )


def reversed_range(start: Value, stop: Value, step: Value) -> tuple[Value, Value, Value]:
    """The bounds that give the indices of range(start, stop, step) from last to first."""
    add, sub, mul, neg = (REGISTRY[name] for name in ("add", "sub", "mul", "neg"))
    known = step.op.attrs["value"] if step.op is not None and step.op.name == "constant" else None
    if known in (1, -1):
        return sub(stop, step), sub(start, step), constant(-known, step.type.dtype)  # type: ignore[union-attr]
    sign = REGISTRY["sign"](step)
    turns = REGISTRY["floordiv"](sub(add(sub(stop, start), step), sign), step)
    last = add(start, mul(sub(turns, 1), step))
    return last, sub(start, step), neg(step)
