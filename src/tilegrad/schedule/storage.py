"""Gives stored tiles their slots: liveness, in-place updates, and offsets in the block's scratch memory.

Time runs along the stages; each stage reads at an even tick and writes at the odd tick after it. The values that may
share memory (a loop's carried value from turn to turn, an updated tile and the tile before the update, a reshaped
tile and its source) are merged into one class where their lives do not overlap; classes get offsets first-fit.
A yielded value that could not be merged with its result is copied when the region ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.types import TileType
from tilegrad.ops.control import for_, while_
from tilegrad.schedule.facts import alias_source, is_alias
from tilegrad.schedule.groups import Planner
from tilegrad.schedule.stages import Control, Group, Lanes, Scalar, Schedule, Slot, Stage, Whole, stored_type

ALIGN = 64


def schedule(kernel: Kernel) -> Schedule:
    """The stages of a kernel and the slots of its values."""
    planner = Planner(kernel)
    stages = planner.plan()
    lives = _Lives(planner)
    lives.walk(stages)
    return lives.assign(Schedule(stages))


@dataclass(eq=False)
class _Class:
    """Values that share one slot, and the half-open spans of time in which they (or copies, None) are in it."""

    bytes: int
    spans: list[tuple[Value | None, int, int]] = field(default_factory=list)

    def overlaps(self, other: _Class, allowed: Callable[[Value | None, Value | None, int], bool] | None = None) -> bool:
        """Whether both are in use at one time, for longer than `allowed` says of two values."""
        for v, a, b in self.spans:
            for w, c, d in other.spans:
                common = min(b, d) - max(a, c)
                if common > 0 and not (allowed and allowed(v, w, common)):
                    return True
        return False


class _Lives:
    """Liveness of stored values over the tree of stages, and the merging of their memory."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.stored = planner.stored
        self.block_dim = planner.kernel.block_dim
        self.time = 0
        self.start: dict[Value, int] = {}
        self.end: dict[Value, int] = {}
        self.classes: dict[Value, _Class] = {}
        #: pairs to merge if their lives allow it, the most valuable first: each element of the first is written when
        #: that of the second has been read, so that they may meet in the tick of the writing
        self.wishes: list[tuple[Value, Value]] = []
        self.in_place: set[tuple[Value | None, Value | None]] = set()
        self.forced: list[tuple[Value, Value]] = []
        #: result of a control op, the value that a region yields for it, and when it is copied if it must be
        self.yielded: list[tuple[Value, Value, int]] = []

    # --- time of definitions and uses -------------------------------------------------------------------------------
    def walk(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            self.time += 2
            if isinstance(stage, Control):
                self._control(stage)
            elif isinstance(stage, Group):
                self._group(stage)
            elif isinstance(stage, Lanes):
                self._lanes(stage)
            elif isinstance(stage, Whole):
                self._whole(stage.op)
            else:
                assert isinstance(stage, Scalar)
                self._read(self.planner.needs(stage.op).leaves)
                for v in stage.op.results:
                    self._define(v, self.time + 1)

    def _define(self, v: Value, time: int) -> None:
        if v in self.stored:
            self.start.setdefault(v, time)
            self.end[v] = max(self.end.get(v, 0), time + 1)

    def _read(self, values: Iterable[Value]) -> None:
        """Values are read now, so what is written now must not go to the same memory (but see `wishes`)."""
        for v in values:
            source = alias_source(v)
            if source in self.stored:
                self.end[source] = max(self.end.get(source, 0), self.time + 2)

    def _wish(self, v: Value, x: Value) -> None:
        self.wishes.append((v, x))
        self.in_place.add((v, x))

    def _group(self, group: Group) -> None:
        for root in group.roots:
            needs = self.planner.needs(root)
            others = {alias_source(v) for v in needs.leaves if v in needs.elsewhere}
            only_here = [v for v in needs.leaves if alias_source(v) not in others]
            self._read(needs.leaves)
            for v in (root,) if isinstance(root, Value) else root.results:
                self._define(v, self.time + 1)
                if isinstance(root, Value) and len(group.roots) == 1 and not group.folds:
                    for x in only_here:
                        if isinstance(x.type, TileType) and x.type == v.type:
                            self._wish(v, alias_source(x))

    def _lanes(self, stage: Lanes) -> None:
        for root in stage.roots:
            self._read(self.planner.needs(root).leaves)
            if isinstance(root, Value):
                self._define(root, self.time + 1)
            else:
                for v in _all_results(root):
                    self._define(v, self.time + 1)

    def _whole(self, op: Op) -> None:
        read = [leaf for v in op.operands for leaf in self._sources(v, op)]
        self._read(read)
        in_place = in_place_operand(op)
        for v in op.results:
            self._define(v, self.time + 1)
            if in_place is not None and read.count(alias_source(in_place)) == 1:
                self._wish(v, alias_source(in_place))

    def _sources(self, v: Value, op: Op) -> set[Value]:
        """The stored values that an operand of a block op is read from."""
        source = alias_source(v)
        return {source} if source in self.stored else {alias_source(x) for x in self.planner.needs(op).leaves}

    def _control(self, stage: Control) -> None:
        op = stage.op
        begin = self.time
        self._read(self.planner.needs(op).leaves)
        self._read(op.operands)
        loop = op.definition in (for_, while_)
        for region, stages in zip(op.regions, stage.regions, strict=True):
            for arg in region.args:
                self._define(arg, begin + 2)
            self.walk(stages)
            self.time += 2
            self._read(v for y in region.yields for v in self._leaves(y))
            if op.definition is not while_ or region is not op.regions[0]:
                for y, result in zip(region.yields, op.results, strict=True):
                    self.yielded.append((result, alias_source(y), self.time + 1))
        if loop:
            self._close_loop(op, begin)
        for v in op.results:
            self._define(v, self.time + 2)

    def _leaves(self, y: Value) -> set[Value]:
        if y.op is None or alias_source(y) in self.stored or not self.planner.is_inline(y):
            return {alias_source(y)}
        return self.planner.needs(y).leaves

    def _close_loop(self, op: Op, begin: int) -> None:
        """What was made before a loop and read inside it lives until the loop ends; carried values share a slot."""
        for v, end in self.end.items():
            if self.start.get(v, 0) <= begin < end:
                self.end[v] = max(end, self.time + 2) if not self._is_arg(v, op) else end
        carried = op.operands[3:] if op.definition is for_ else op.operands
        for region in op.regions:
            args = region.args[1:] if op.definition is for_ else region.args
            for arg, result, init in zip(args, op.results, carried, strict=True):
                if arg in self.stored:
                    self.stored.add(result)
                    self.forced.append((result, arg))
                    self.yielded.append((arg, alias_source(init), begin + 1))

    def _is_arg(self, v: Value, op: Op) -> bool:
        return any(v in region.args for region in op.regions)

    # --- merging and offsets ----------------------------------------------------------------------------------------
    def assign(self, plan: Schedule) -> Schedule:
        for v in self.stored:
            if v in self.start and not is_alias(v):
                span = (v, self.start[v], max(self.end[v], self.start[v] + 1))
                self.classes[v] = _Class(_bytes(v, self.block_dim), [span])
        for a, b in self.forced:
            self._merge(a, b)
        for result, value, time in self.yielded:
            self._try_merge(result, value)
            if result in self.classes and self.classes[result] is not self.classes.get(value):
                self.classes[result].spans.append((None, time, time + 1))
        for a, b in self.wishes:
            self._try_merge(a, b)
        slots = _place(list(dict.fromkeys(self.classes.values())))
        plan.slots = {v: slots[c] for v, c in self.classes.items()}
        plan.scratch_bytes = max((s.offset + s.bytes for s in slots.values()), default=0)
        return plan

    def _try_merge(self, a: Value, b: Value) -> None:
        if a in self.classes and b in self.classes and not self.classes[a].overlaps(self.classes[b], self._meets):
            self._merge(a, b)

    def _meets(self, v: Value | None, w: Value | None, common: int) -> bool:
        """Whether one value is written over the other, which is read for the last time."""
        return common == 1 and ((v, w) in self.in_place or (w, v) in self.in_place)

    def _merge(self, a: Value, b: Value) -> None:
        one, other = self.classes.get(a), self.classes.get(b)
        if one is None or other is None or one is other:
            return
        one.spans += other.spans
        one.bytes = max(one.bytes, other.bytes)
        for v, c in self.classes.items():
            if c is other:
                self.classes[v] = one


def _place(classes: list[_Class]) -> dict[_Class, Slot]:
    """First-fit: each class gets the lowest offset that no class alive at the same time occupies."""
    slots: dict[_Class, Slot] = {}
    for c in sorted(classes, key=lambda c: -c.bytes):
        taken = sorted((s.offset, s.offset + s.bytes) for other, s in slots.items() if other.overlaps(c))
        offset = 0
        for begin, end in taken:
            if offset + c.bytes <= begin:
                break
            offset = max(offset, end)
        slots[c] = Slot(c.bytes, offset)
    return slots


def _bytes(v: Value, block_dim: int) -> int:
    t = stored_type(v, block_dim)
    # one vector of slack, so that whole vectors may be loaded at the end of a tile
    return -(-(t.size * t.dtype.size + ALIGN) // ALIGN) * ALIGN


#: block ops that change a part of their first operand
IN_PLACE = (
    "tile_insert", "tile_put", "tile_put_masked", "tile_add_at", "tile_bits_at", "tile_scatter", "tile_scatter_sum",
)  # fmt: skip


def in_place_operand(op: Op) -> Value | None:
    """The operand whose memory a block op may overwrite with its result, if the operand is not needed afterwards."""
    if op.definition.name in IN_PLACE:
        return op.operands[0]
    return op.operands[2] if op.definition.name == "tile_matmul_add" else None


def _all_results(op: Op) -> list[Value]:
    inner = [v for region in op.regions for o in region.ops for v in _all_results(o)]
    return [*op.results, *inner]
