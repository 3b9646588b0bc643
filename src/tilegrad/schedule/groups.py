"""Forms the stages of each block: fuses tile ops into groups and lane code into lane loops.

Reading down the ops of a block, each *root* (a sink, a fold, or a tile that must be stored) joins the last group with
the same iteration space if nothing that it needs, and no memory access that must stay ordered, lies in between;
otherwise it starts a group of its own. Everything else is computed where it is read.
Does not place tiles in memory (see `storage`) and does not know any target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, TileType, is_varying, shape_of
from tilegrad.ops.control import for_, if_, map_, push, while_, yield_
from tilegrad.passes.effects import may_raise
from tilegrad.schedule.facts import Access, Facts, Update, alias_source, is_alias, is_lane_code, is_pure, needs_block
from tilegrad.schedule.stages import Control, Group, Lanes, Scalar, Stage, Whole, in_register

#: Work of an elementwise op that is worth repeating rather than storing its result.
CHEAP_WORK = 3


@dataclass
class Needs:
    """What evaluating a value in place reads: stored values, register values, memory."""

    leaves: set[Value] = field(default_factory=set)
    #: stored tiles that are read at the very index at which the value is asked for
    identity: set[Value] = field(default_factory=set)
    elsewhere: set[Value] = field(default_factory=set)
    accesses: list[tuple[Access, bool]] = field(default_factory=list)


class Planner:
    """Makes the stages of a kernel; `stored` are the values that need memory."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.facts = Facts(kernel)
        self.stored: set[Value] = set()
        self.work: dict[Value, int] = {}
        self._choose_stored(kernel.body)

    def plan(self) -> list[Stage]:
        return _BlockPlanner(self, self.kernel.body).run()

    # --- which tiles need memory ------------------------------------------------------------------------------------
    def _choose_stored(self, block: Block) -> None:
        for op in block.ops:
            for region in op.regions:
                if op.definition is not map_:
                    for arg in region.args:
                        self._consider(arg, op, is_result=False)
                    self._choose_stored(region)
            for v in op.results:
                self._consider(v, op, is_result=True)
            if op.definition in (for_, while_) and op.results:
                self._store_carried_alike(op)

    def _store_carried_alike(self, op: Op) -> None:
        """A tile of one element that a loop carries is in memory inside of the loop and as its result, or nowhere."""
        for places in zip(op.results, *(r.args[-len(op.results) :] for r in op.regions), strict=True):
            if isinstance(places[0].type, TileType) and not self.stored.isdisjoint(places):
                self.stored.update(places)

    def _consider(self, v: Value, op: Op, is_result: bool) -> None:
        if isinstance(v.type, TileType):
            self.work[v] = self._work_of(op) if is_result else 0
            if self._must_store(v, op, is_result):
                self.stored.add(v)

    def _must_store(self, v: Value, op: Op, is_result: bool) -> bool:
        users = self.facts.uses(v)
        if any(self._wants_memory(v, user) for user in users) or (op.regions and is_result and self._acts(op)):
            return True
        cls = op.definition.cls
        if is_result and (cls == "block" or may_raise(op)):
            return True  # an error must be raised whether or not the elements are read
        if in_register(v):
            return is_result and self._crosses_write(v, op)
        if cls == "sink" and not users:
            return False
        if not is_result or cls in ("fold", "sink", "control"):
            return op.definition is not map_ or self._fused_badly(v, op, users)
        return self._fused_badly(v, op, users)

    def _acts(self, op: Op) -> bool:
        """Whether a `map_` writes memory or may raise or print, so that it must run just once."""
        return op.definition is map_ and any(o.definition.effect not in ("none", "read") for o in op.regions[0].walk())

    def _wants_memory(self, v: Value, user: Op) -> bool:
        if user.definition.cls == "block" or user.definition.name == "tile_reshape":
            return True
        kept = user.definition in (if_, for_, while_, yield_, push) or user.definition.effect == "print"
        return not in_register(v) and kept and not self._in_map(user)

    def _in_map(self, op: Op) -> bool:
        owner = self.facts.owner.get(self.facts.home[op])
        return owner is not None and owner.definition is map_

    def _work_of(self, op: Op) -> int:
        """Elementwise operations needed for one element of a point op, its unstored operands included."""
        inner = sum(self.work.get(x, 0) for x in op.operands if x not in self.stored)
        if op.definition.elementwise is None and op.definition is not map_:
            return inner
        return inner + (20 if op.regions else 1 if op.definition.cheap else 8)

    def _fused_badly(self, v: Value, op: Op, users: list[Op]) -> bool:
        """Whether computing `v` inside each of its readers would be wrong or wasteful."""
        if not users:
            return False
        home = self.facts.home[op]
        if any(self.facts.inside_loop(user, home) for user in users) and op.operands and not _is_fill(op):
            return True
        if self._crosses_write(v, op):
            return True
        readers = self._readers(v)
        if self.work[v] > CHEAP_WORK and (len(readers) > 1 or self._read_out_of_order(v)):
            return True
        return bool(self.work[v]) and any(self._is_widening(u) for u in users)

    def _is_widening(self, user: Op) -> bool:
        if user.definition.name != "tile_broadcast":
            return False
        return math.prod(shape_of(user.result.type)) > math.prod(shape_of(user.operands[0].type))

    def _read_out_of_order(self, v: Value) -> bool:
        return any(u.definition.view for u in self.facts.uses(v))

    def _readers(self, v: Value, through_maps: bool = False) -> set[Op]:
        """The ops that will hold the computation of `v`: its readers, through fused point ops (and `map_`)."""
        found: set[Op] = set()
        work, seen = [v], {v}
        while work:
            for user in self.facts.uses(work.pop()):
                fused = user.definition.cls == "point" or (through_maps and user.definition is map_)
                inner = [r for r in user.results if r not in self.stored] if fused else []
                if not inner:
                    found.add(user)
                work += [r for r in inner if r not in seen]
                seen.update(inner)
        return found

    def _crosses_write(self, v: Value, op: Op) -> bool:
        """Whether a load would move past a write to its array on the way to its readers."""
        mine = self.facts.accesses(op)
        if not mine or (op.definition.cls != "point" and op.definition is not map_):
            return False
        home = self.facts.home[op]
        last = max((self._end(r, home) for r in self._readers(v, through_maps=True)), default=-1)
        for later in home.ops[self.facts.position[op] + 1 : last + 1]:
            here = self.facts.position[later] == last and self._same_point(later, v)
            for access in self.facts.accesses(later):
                if any(access.conflicts(m) and not (here and access.key == m.key) for m in mine):
                    return True
        return False

    def _end(self, reader: Op, home: Block) -> int:
        outer = self.facts.ancestor(reader, home)
        return self.facts.position[outer] if outer is not None else len(home.ops)

    def _same_point(self, writer: Op, v: Value) -> bool:
        """Whether `writer` is a sink that reads `v` only at the index that it writes, and is its last reader."""
        return writer.definition.cls == "sink" and v not in self.needs(writer).elsewhere

    # --- what a root reads ------------------------------------------------------------------------------------------
    def needs(self, root: Op | Value) -> Needs:
        needs = Needs()
        if isinstance(root, Value):
            assert root.op is not None
            self._collect_op(root.op, True, needs)
        else:
            self._collect_op(root, True, needs)
        return needs

    def _collect_op(self, op: Op, identity: bool, needs: Needs) -> None:
        if op.definition.effect in ("read", "write", "atomic") or op.definition is map_:
            needs.accesses += [(a, identity and not op.regions) for a in self.facts.accesses(op)]
        here = identity and not op.definition.view
        for x in op.operands:
            self._collect(x, here, needs)
        for region in op.regions:
            for x in _captured(region):
                self._collect(x, False, needs)

    def _collect(self, x: Value, identity: bool, needs: Needs) -> None:
        if isinstance(x.type, ArrayType):
            if x.op is not None:  # a row: it must be known, and so must its index
                needs.leaves.add(x)
                self._collect_op(x.op, False, needs)
            return
        if is_alias(x):  # its source is what must be there, and it is read in another order
            x, identity = alias_source(x), False
        known = needs.identity if identity else needs.elsewhere
        if x in known:
            return  # what it is made of has been collected
        known.add(x)
        op = x.op
        if op is None or not self.is_inline(x):
            needs.leaves.add(x)
        else:
            self._collect_op(op, identity, needs)

    def is_inline(self, x: Value) -> bool:
        """Whether `x` is computed where it is read."""
        op = x.op
        if op is None:
            return False
        if isinstance(x.type, TileType):
            return x not in self.stored and (op.definition.cls == "point" or op.definition is map_)
        return is_pure(op)


def _is_fill(op: Op) -> bool:
    return op.definition.name in ("tile_full", "tile_arange")


def _captured(region: Block) -> Iterator[Value]:
    defined = set(region.args)
    for op in region.ops:
        yield from (v for v in op.operands if v not in defined)
        for inner in op.regions:
            yield from (v for v in _captured(inner) if v not in defined)
        defined.update(op.results)


class _BlockPlanner:
    """Plans the ops of one block."""

    def __init__(self, planner: Planner, block: Block, in_memory: Iterable[Value] = ()) -> None:
        self.planner = planner
        self.facts = planner.facts
        #: pure lane values that a lane loop on the way here has put into their slots
        self.in_memory = set(in_memory)
        self.block = block
        self.stages: list[Stage] = []
        self.maker: dict[Value, Stage] = {}
        self.touched: dict[Stage, list[Access]] = {}
        #: the atomic updates of lane loops
        self.updates: dict[Stage, list[Update]] = {}
        #: in which order lane loops must run their lanes
        self.directions: dict[Stage, set[str]] = {}

    def run(self) -> list[Stage]:
        for op in self.block.ops:
            self._place(op)
        return self.stages

    def _place(self, op: Op) -> None:
        definition = op.definition
        if definition is yield_:
            self._store_lane_values(op.operands)
        elif definition.cls in ("fold", "sink"):
            self._add_root(op)
        elif definition is map_ or (definition.cls == "point" and isinstance(op.result.type, TileType)):
            roots = [v for v in op.results if v in self.planner.stored and not is_alias(v)]
            if definition is map_ and not op.results:
                self._add_root(op)  # it is there for its effects
            for k, v in enumerate(roots):
                self._add_root(v, beside=roots[0] if k else None)
        elif definition.name == "tile_from_lanes" or self._is_for_lanes(op):
            if not is_pure(op):
                self._add_lane_root(op)
        elif definition in (if_, for_, while_):
            self._add_control(op)
        elif definition.cls == "block":
            self._store_lane_values(op.operands)
            self._append(Whole(op), op.results, self.facts.accesses(op))
        elif not is_pure(op):
            self._add_scalar(op)

    def _is_for_lanes(self, op: Op) -> bool:
        """Whether the op runs in a lane loop. A loop there is run by every vector of lanes, so that what it computes
        for the whole block is not known outside, and what it does once for the block would be done by each of them."""
        if not is_lane_code(op) or needs_block(op):
            return False
        together = op.regions and not makes_lanes(op)
        if together and (self.facts.takes_turns(op) or self.facts.shares_stack(op) or acts_once(op)):
            return False
        shared = [v for v in op.results if op.regions and not is_varying(v.type)]
        return not any(self.facts.uses(v) for v in shared)

    def _append(self, stage: Stage, results: Iterable[Value], accesses: Iterable[Access]) -> None:
        self._insert(len(self.stages), stage, results, accesses)

    def _insert(self, i: int, stage: Stage, results: Iterable[Value], accesses: Iterable[Access]) -> None:
        self.stages.insert(i, stage)
        self.touched[stage] = list(accesses)
        for v in results:
            self.maker[v] = stage

    def _add_control(self, op: Op) -> None:
        self._store_lane_values(op.operands)
        self.planner.stored.update(v for v in op.results if is_varying(v.type) and isinstance(v.type, ScalarType))
        regions = []
        for region in op.regions:
            self.planner.stored.update(v for v in region.args if is_varying(v.type))
            regions.append(_BlockPlanner(self.planner, region, self.in_memory).run())
        self._append(Control(op, regions), op.results, self.facts.accesses(op))

    def _add_scalar(self, op: Op) -> None:
        """Place a uniform scalar op; it goes before loops that it does not depend on, so that they can fuse."""
        accesses = self.facts.accesses(op)
        needed = self._leaves(op)
        i = len(self.stages)
        while op.definition.effect in ("none", "read") and i > 0 and isinstance(self.stages[i - 1], (Lanes, Group)):
            if self._ordered(self.stages[i - 1], needed, accesses):
                break
            i -= 1
        self._insert(i, Scalar(op), op.results, accesses)

    def _leaves(self, root: Op | Value) -> set[Value]:
        return self.planner.needs(root).leaves

    def _ordered(self, stage: Stage, needed: set[Value], accesses: Iterable[Access]) -> bool:
        """Whether something with these needs and accesses must stay behind `stage`."""
        if any(self.maker.get(x) is stage for x in needed):
            return True
        return any(a.conflicts(b) for a in accesses for b in self.touched[stage])

    # --- groups -----------------------------------------------------------------------------------------------------
    def _add_root(self, root: Op | Value, beside: Value | None = None) -> None:
        """Place a root; another result of the same op goes `beside` the first, as the op runs once."""
        if beside is not None:
            group = self.maker[beside]
            assert isinstance(group, Group) and isinstance(root, Value)
            group.roots.append(root)
            self.maker[root] = group
            return
        needs = self.planner.needs(root)
        accesses = [a for a, _ in needs.accesses]
        shape, axes = _space(root)
        made = (root,) if isinstance(root, Value) else root.results
        for stage in reversed(self.stages):
            if isinstance(stage, Group) and _compatible(stage, shape, axes) and self._may_join(stage, needs):
                stage.roots.append(root)
                stage.axes = stage.axes if axes is None else axes
                self.touched[stage] += accesses
                self.maker.update((v, stage) for v in made)
                return
            if self._ordered(stage, needs.leaves, accesses):
                break
        self._append(Group(shape, axes, [root]), made, accesses)

    def _may_join(self, group: Group, needs: Needs) -> bool:
        """Whether a root may run in the loop nest of `group`, point by point with the roots that are there."""
        for x in needs.leaves:
            if self.maker.get(x) is group and (x not in group.roots or x in needs.elsewhere):
                return False
        return all(
            not a.conflicts(b) or (identity and a.key == b.key)
            for a, identity in needs.accesses
            for b in self.touched[group]
        )

    # --- lane code --------------------------------------------------------------------------------------------------
    def _add_lane_root(self, root: Op | Value) -> None:
        accesses = () if isinstance(root, Value) else self.facts.accesses(root)
        leaves = self._leaves(root)
        target = self._lane_stage_for(root, leaves, accesses)
        updates = self.facts.updates(root) if isinstance(root, Op) else []
        directions = self.facts.directions(root) if isinstance(root, Op) else set()
        if target is None or self._apart(target, updates, directions):
            target = Lanes()
            self._append(target, (), ())
        target.roots.append(root)
        self.touched[target] += accesses
        self.updates.setdefault(target, []).extend(updates)
        self.directions.setdefault(target, set()).update(directions)
        if isinstance(root, Op):
            self.maker.update((v, target) for v in root.results)
        self._keep(x for x in leaves if self.maker.get(x) is not target)

    def _apart(self, stage: Stage, updates: list[Update], directions: set[str]) -> bool:
        """Whether updates must not share a lane loop with those that are there."""
        if any(u.conflicts(v) for u in updates for v in self.updates.get(stage, ())):
            return True
        return len(directions | self.directions.get(stage, set())) > max(1, len(directions))

    def _lane_stage_for(self, root: Op | Value, leaves: set[Value], accesses: Iterable[Access]) -> Lanes | None:
        for stage in reversed(self.stages):
            if isinstance(stage, Lanes):
                return stage
            fixed = isinstance(root, Op) and (root.regions or root.definition.effect in ("print", "raise", "stack"))
            if fixed or self._ordered(stage, leaves, accesses):
                return None
        return None

    def _keep(self, values: Iterable[Value]) -> None:
        """Give varying values that cross from one lane loop to another a place in memory."""
        self.planner.stored.update(v for v in values if isinstance(v.type, ScalarType) and v.type.varying)

    def _store_lane_values(self, values: Iterable[Value]) -> None:
        """Have varying values in memory, because something that is not lane code reads them.

        Lane code itself computes a pure value where it reads it, so only these readers need the slot.
        """
        for v in values:
            if isinstance(v.type, ScalarType) and v.type.varying:
                self.planner.stored.add(v)
                if self.planner.is_inline(v) and v not in self.in_memory:
                    self._add_lane_root(v)
                    self.in_memory.add(v)


def makes_lanes(op: Op) -> bool:
    """Whether lanes come apart in the op: its condition or bounds differ between them."""
    if op.definition is while_:
        return is_varying(op.regions[0].yields[0].type)
    return any(is_varying(v.type) for v in op.operands[: 1 if op.definition is if_ else 3])


def acts_once(op: Op) -> bool:
    """Whether the op, in which lanes stay together, holds an effect that happens once for the block."""
    for inner in (inner for region in op.regions for inner in region.ops):
        if inner.regions:
            if not makes_lanes(inner) and acts_once(inner):
                return True
        elif inner.definition.effect in ("write", "atomic", "print") and not is_lane_code(inner):
            return True
    return False


def _space(root: Op | Value) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The iteration space of a root, and the axes over which it folds."""
    if isinstance(root, Value):
        assert isinstance(root.type, TileType)
        return root.type.shape, None
    tile = next(v.type for v in root.operands if isinstance(v.type, TileType))
    return tile.shape, tuple(root.attrs["axes"]) if root.definition.cls == "fold" else None


def _compatible(group: Group, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> bool:
    if group.shape != shape:
        return False
    if axes is None or group.axes is None:
        folded = axes if axes is not None else group.axes
        return folded is None or folded == tuple(range(len(shape) - len(folded), len(shape)))
    return axes == group.axes
