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
from collections.abc import Sequence

from tilegrad import dtypes as dt
from tilegrad.ad import activity as act
from tilegrad.ad import lanes
from tilegrad.ad.activity import Activity
from tilegrad.ad.cotangents import Cotangents, total, zero
from tilegrad.ad.replay import Frame, Replay, spread_all
from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.types import ScalarType, TileType, dtype_of, is_varying
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import control


class RegionReversal(ABC):
    """The part of the reversal that deals with regions."""

    replay: Replay
    activity: Activity
    block_dim: int

    @abstractmethod
    def reverse(self, block: Block, frame: Frame, cts: Cotangents) -> None:
        """Reverse the ops of a block that was replayed in `frame`."""

    def region(
        self, block: Block, frame: Frame, yields: Sequence[Value | None], sums: dict[Value, Value] | None = None
    ) -> Cotangents:
        """Rebuild and reverse a region, given the cotangents of what it yields and of what is added to."""
        self.replay.restore(block, frame)
        self.replay.block(block, frame, sweep=True)
        cts = Cotangents(self.activity.values, frame.lane, self.block_dim, sums)
        for v, ct in zip(block.yields, yields, strict=True):
            cts.add(v, ct)
        self.reverse(block, frame, cts)
        return cts

    def reverse_region_op(self, op: Op, frame: Frame, cts: Cotangents) -> None:
        """Reverse an op with regions; takes the cotangents of its results out of `cts`."""
        outs = [cts.take(v) for v in op.results]
        if all(ct is None for ct in outs) and not self.activity.has_stores(op):
            return
        wanted = self.activity.receivers(op.regions)
        if op.name == "map":
            self._map(op, frame, cts, outs, wanted)
            return
        inner = frame.child()
        apart = act.makes_lanes(op) and not frame.lane
        sums = {v: self._start(v, inner, cts, apart) for v in wanted}
        found = self._if(op, inner, outs, sums) if op.name == "if" else self._loop(op, inner, outs, sums, cts)
        for v, ct in found.items():
            if apart and isinstance(v.type, TileType):
                ct = lanes.collect(inner.deferred[v], ct, v.type, self.block_dim)
            cts.add(v, ct)

    def _start(self, v: Value, frame: Frame, cts: Cotangents, apart: bool) -> Value:
        """What a region adds its shares of `v` to: what there is already, or zero where lanes come `apart`."""
        if apart and not is_varying(v.type):
            if isinstance(v.type, TileType):
                frame.deferred[v] = lanes.make_stack(v.type)
                return lanes.no_entries()
            return zero(v.type)
        found = cts.take(v)
        if found is not None:
            return found
        return lanes.no_entries() if isinstance(v.type, TileType) and frame.lane else zero(v.type)

    def _if(self, op: Op, frame: Frame, outs: list[Value | None], sums: dict[Value, Value]) -> dict[Value, Value]:
        def branch(block: Block) -> list[Value]:
            inner = frame.child(act.makes_lanes(op), first=False)
            return _finish(self.region(block, inner, outs, sums), list(sums))

        first, second = op.regions
        shares = control.build_if(frame[op.operands[0]], lambda: branch(first), lambda: branch(second))
        return dict(zip(sums, shares, strict=True))

    def _loop(
        self, op: Op, frame: Frame, outs: list[Value | None], sums: dict[Value, Value], cts: Cotangents
    ) -> dict[Value, Value]:
        args, values = act.carried(op), self.activity.values
        moving = [j for j, (a, r) in enumerate(zip(args, op.results, strict=True)) if a in values or r in values]

        def turn(i: Value, *shares: Value) -> list[Value]:
            inner = frame.child(act.makes_lanes(op), first=False)
            if op.name == "for":
                inner.bind(op.regions[0].args[:1], (i,))
            yields: list[Value | None] = [None] * len(args)
            for j, ct in zip(moving, shares, strict=False):
                yields[j] = ct
            got = self.region(act.body(op), inner, yields, dict(zip(sums, shares[len(moving) :], strict=True)))
            return _finish(got, [*(args[j] for j in moving), *sums])

        start = [out if (out := outs[j]) is not None else zero(op.results[j].type) for j in moving]
        results = control.build_for(*self._bounds(op, frame), [*start, *sums.values()], turn)
        for j, ct in zip(moving, results, strict=False):
            cts.add(act.initial(op)[j], ct)
        return dict(zip(sums, results[len(moving) :], strict=True))

    def _bounds(self, op: Op, frame: Frame) -> tuple[Value, Value, Value]:
        if op.name == "for":
            return reversed_range(*frame.get(op.operands[:3]))
        return constant(0, dt.int32), frame[self.replay.turns[op]], constant(1, dt.int32)

    def _map(self, op: Op, frame: Frame, cts: Cotangents, outs: list[Value | None], wanted: list[Value]) -> None:
        (block,) = op.regions
        extra = self.replay.pinned_results(op)
        moving = [v for v in block.args if v in self.activity.values]
        scalars = [v for v in wanted if isinstance(v.type, ScalarType)]
        tiles = [*frame.get(op.operands), *frame.get(extra), *(ct for ct in outs if ct is not None)]
        reads: list[lanes.Read] = []

        def element(*args: Value) -> list[Value]:
            inner = frame.child(lane=True, first=False)
            inner.deferred.update({v: lanes.Reads(inner, reads) for v in wanted if v not in scalars})
            known = len(block.args) + len(extra)
            inner.bind((*block.args, *extra), args[:known])
            seeds = iter(args[known:])
            got = self.region(block, inner, [None if ct is None else next(seeds) for ct in outs])
            return spread_all([*_finish(got, [*moving, *scalars]), *(x for read in reads for x in read.values)])

        shares = iter(control.build_map(tiles, element))
        for a in moving:
            cts.add(op.operands[a.index], next(shares))
        for v in scalars:
            cts.add(v, total(next(shares)))
        for read in reads:
            cts.add(read.tile, lanes.scatter([next(shares) for _ in read.values], read.tile.type))


def _finish(cts: Cotangents, values: Sequence[Value]) -> list[Value]:
    """The cotangents that a reversed region hands out."""
    return [zero(v.type) if (ct := cts.take(v)) is None else ct for v in values]


def reversed_range(start: Value, stop: Value, step: Value) -> tuple[Value, Value, Value]:
    """The bounds that give the indices of range(start, stop, step) from last to first."""
    add, sub, mul, neg = (REGISTRY[name] for name in ("add", "sub", "mul", "neg"))
    known = step.op.attrs["value"] if step.op is not None and step.op.name == "constant" else None
    if known in (1, -1):
        return sub(stop, step), sub(start, step), constant(-known, dtype_of(step.type))
    sign = REGISTRY["sign"](step)
    turns = REGISTRY["floordiv"](sub(add(sub(stop, start), step), sign), step)
    last = add(start, mul(sub(turns, 1), step))
    return last, sub(start, step), neg(step)
