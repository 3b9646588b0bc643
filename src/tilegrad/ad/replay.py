"""The forward sweep of a backward kernel: runs a block again without its effects, saving what cannot be rebuilt.

A `Frame` maps forward values to the values that stand for them at the place where code is being built. Names:

*sweep*    replaying a block whose reversal follows in the same frame. The loops that stand directly in it save their
           carried values, turn by turn, on a stack. Loops nested deeper save nothing: they are replayed, as a sweep,
           inside each reversed turn of the outer loop.
*pinned*   an op whose result depends on when it runs: it reads an array that the kernel also writes, uses a stack (in a
           backward kernel that is differentiated again), or holds such an op. It runs only in the first sweep, where
           the writes are repeated on a private copy of the array (a *shadow*); its results, and the saved values of
           loops inside it, are kept from then on.
*site*     the stack on which a region saves values: at its entry the carried values, at its exit the pinned results.

Everything that might be needed is saved here; `residuals` removes what turns out not to be.
Does not reverse anything.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.ad import activity as act
from tilegrad.ad.activity import Activity, Memory
from tilegrad.diagnostics import GradientUndefined, Loc
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type, dtype_of, is_varying, items_of, shape_of
from tilegrad.op import REGISTRY, constant, infer_types
from tilegrad.ops import control, custom


def _nothing(*values: Any, **attrs: Any) -> Any:
    raise AssertionError("a value that a backward kernel cannot know")


#: Ops whose results are taken from elsewhere in a backward kernel.
_WITHOUT_CODE = (custom.stopped, custom.custom, custom.replayed, custom.pullback)

#: Stands for a value that cannot be had a second time. One that survives in the backward kernel is an error.
UNAVAILABLE = OpDef("unavailable", _nothing, cls="control")


@dataclass(frozen=True)
class Site:
    """A stack and the forward values that one turn (or one branch) puts on it."""

    stack: Value
    items: tuple[Value, ...]


class Frame:
    """Forward value -> value here; `first` is the forward sweep itself, `lane` that the code is lane code."""

    def __init__(self, lane: bool = False, first: bool = False) -> None:
        self.values: ChainMap[Value, Value] = ChainMap()
        self.grads: ChainMap[Value, Value] = ChainMap()
        self.finals: ChainMap[Value, Value] = ChainMap()  # what is left in arrays of atomic minima and maxima
        self.afters: ChainMap[Value, Value] = ChainMap()  # arrays as they are after the launch
        self.sites: ChainMap[tuple[Block, str], list[Site]] = ChainMap()
        self.deferred: ChainMap[Value, Any] = ChainMap()  # see `lanes`
        self.stacks: ChainMap[Value, Value] = ChainMap()  # stacks of the cotangents of what stacks hold
        self.lane = lane
        self.first = first

    def child(self, lane: bool = False, first: bool | None = None) -> Frame:
        """A frame for a region: sees this one, does not change it."""
        frame = Frame(self.lane or lane, self.first if first is None else first)
        frame.values = self.values.new_child()
        frame.grads = self.grads.new_child()
        frame.finals = self.finals.new_child()
        frame.afters = self.afters.new_child()
        frame.sites = self.sites.new_child()
        frame.deferred = self.deferred.new_child()
        frame.stacks = self.stacks.new_child()
        return frame

    @property
    def mirrors(self) -> tuple[ChainMap[Value, Value], ...]:
        """The arrays that stand beside those of the kernel."""
        return self.grads, self.finals, self.afters

    def afterwards(self, values: Iterable[Value]) -> list[Value]:
        """What code of the user's for the backward pass gets for values: arrays as they are after the launch."""
        return [self.afters[v] if v in self.afters else self.values[v] for v in values]

    def __getitem__(self, v: Value) -> Value:
        return self.values[v]

    def bind(self, olds: Iterable[Value], news: Iterable[Value]) -> None:
        self.values.update(zip(olds, news, strict=True))

    def get(self, values: Iterable[Value]) -> list[Value]:
        return [self.values[v] for v in values]


class Replay:
    """Emits forward code into `builder`; see the module docstring."""

    def __init__(
        self, kernel: Kernel, memory: Memory, activity: Activity, builder: Builder, claiming: Sequence[Op] = (),
        repeated: frozenset[Op] = frozenset(), *, pull: Callable[[Op, Sequence[Value], bool], Sequence[Value]],
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.memory = memory
        #: for each atomic minimum or maximum a forward value for whether it has given the element its final value
        self.claims = {op: Value(ScalarType(dt.bool_, is_varying(op.result.type))) for op in claiming}
        #: atomic updates whose old values are found again on private copies, in the launch's order
        self.repeated = repeated
        self.activity = activity
        self.builder = builder
        #: emits the results of a `pullback` op, given its operands and whether it stands in lane code
        self.pull = pull
        self.pinned: set[Op] = set()
        self.turns: dict[Op, Value] = {}  # a forward value for the number of turns of each `while`
        self.saving: dict[Op, Op] = {}  # the stacks that save the carried values of loops, and the loops
        self._find_pinned(kernel.body)

    def _find_pinned(self, block: Block) -> bool:
        before = len(self.pinned)
        for op in block.ops:
            inside = [self._find_pinned(region) for region in op.regions]
            written = act.reads_elements(op) and self.memory.touches(op, self.memory.writes)
            once = op in self.claims or op in self.repeated or op.definition.effect == "stack"
            if any(inside) or once or (written and not self.memory.touches(op, self.memory.atomics)):
                self.pinned.add(op)
            if op.name == "while":
                self.turns[op] = Value(ScalarType(dt.int32, act.makes_lanes(op)))
        return len(self.pinned) > before

    # --- one op ---

    def block(self, block: Block, frame: Frame, sweep: bool) -> None:
        """Run the ops of `block` again, all but its yield."""
        for op in block.ops:
            if op.name != "yield" and (frame.first or op not in self.pinned):
                with self.builder.at(op.loc):
                    self._op(op, frame, sweep)

    def _op(self, op: Op, frame: Frame, sweep: bool) -> None:
        if op.regions:
            if sweep:
                self._open_sites(op, frame, frame.lane)
            {"if": self._if, "for": self._for, "while": self._while, "map": self._map}[op.name](op, frame)
        elif op.definition.effect == "stack" or op in self.repeated:
            self.clone(op, frame)
        elif op.definition.effect == "atomic":
            if op in self.claims:
                array, *rest = op.operands
                flag = REGISTRY["array_claim"](frame.finals[array], *frame.get(rest))
                frame.bind([self.claims[op]], [control.as_type(flag, self.claims[op].type)])
            self._refuse(op, frame, f"the value that `{op.name}` returned", op.loc)
        elif act.reads_elements(op) and (other := self.memory.touches(op, self.memory.atomics)):
            self._refuse(op, frame, "an element of an array that other blocks add to", other.loc)
        elif op.definition.effect == "write":
            if frame.first and self.memory.touches(op, self.memory.reads):
                self.clone(op, frame)
        elif op.definition in _WITHOUT_CODE:
            self._user_defined(op, frame)
        elif op.definition.effect in ("none", "read"):
            self.clone(op, frame)

    def _user_defined(self, op: Op, frame: Frame) -> None:
        """What a user decides: the ops are gone in a backward kernel."""
        if op.definition is custom.replayed:
            others = op.operands[op.attrs["raws"] :]
            made = custom.inline(op.attrs["code"], frame.afterwards(others))
            frame.bind(op.results, [control.as_type(v, r.type) for v, r in zip(made, op.results, strict=True)])
        elif op.definition is custom.pullback:
            frame.bind(op.results, self.pull(op, frame.get(op.operands), frame.lane))
        else:
            for a, b in zip(op.operands, op.results, strict=False):
                frame.bind([b], [frame[a]])
                for mirror in frame.mirrors:
                    if a in mirror:
                        mirror[b] = mirror[a]

    def clone(self, op: Op, frame: Frame) -> None:
        """Emit the op again on the frame's values, and on the gradient arrays too if it selects part of an array."""
        operands = tuple(frame.get(op.operands))
        types = infer_types(op.definition, tuple(v.type for v in operands), op.attrs)
        frame.bind(op.results, self.builder.insert(op.definition, operands, op.attrs, types=types).results)
        if any(isinstance(v.type, ArrayType) for v in op.results):
            for mirror in frame.mirrors:
                if op.operands[0] in mirror:
                    mirrored = (mirror[op.operands[0]], *operands[1:])
                    mirror[op.result] = self.builder.insert(op.definition, mirrored, op.attrs, types=types).result

    def _refuse(self, op: Op, frame: Frame, what: str, other: Loc) -> None:
        attrs = {"what": what, "other": other}
        types = tuple(v.type for v in op.results)
        frame.bind(op.results, self.builder.insert(UNAVAILABLE, (), attrs, types=types).results)

    # --- regions ---

    def _if(self, op: Op, frame: Frame) -> None:
        def branch(block: Block) -> list[Value]:
            inner = frame.child(act.makes_lanes(op))
            return self._region(block, inner)

        first, second = op.regions
        results = control.build_if(frame[op.operands[0]], lambda: branch(first), lambda: branch(second))
        frame.bind(op.results, results)

    def _for(self, op: Op, frame: Frame) -> None:
        def turn(*args: Value) -> list[Value]:
            inner = frame.child(act.makes_lanes(op))
            inner.bind(op.regions[0].args, args)
            return self._region(op.regions[0], inner)

        start, stop, step = frame.get(op.operands[:3])
        frame.bind(op.results, control.build_for(start, stop, step, frame.get(op.operands[3:]), turn))

    def _while(self, op: Op, frame: Frame) -> None:
        def test(*args: Value) -> Value:
            inner = frame.child(act.makes_lanes(op))
            inner.bind(op.regions[0].args, args[:-1])
            self.block(op.regions[0], inner, sweep=False)
            return inner[op.regions[0].yields[0]]

        def turn(*args: Value) -> list[Value]:
            inner = frame.child(act.makes_lanes(op))
            inner.bind(op.regions[1].args, args[:-1])
            return [*self._region(op.regions[1], inner), REGISTRY["add"](args[-1], 1)]

        init = [*frame.get(op.operands), constant(0, dt.int32)]
        frame.bind((*op.results, self.turns[op]), control.build_while(init, test, turn))

    def _map(self, op: Op, frame: Frame) -> None:
        (block,) = op.regions
        extra = self.pinned_results(op) if frame.first else ()

        def element(*args: Value) -> list[Value]:
            inner = frame.child(lane=True)
            inner.bind(block.args, args)
            return spread_all([*self._region(block, inner), *inner.get(extra)])

        frame.bind((*op.results, *extra), control.build_map(frame.get(op.operands), element))

    def _region(self, block: Block, inner: Frame) -> list[Value]:
        """The body of a region that is only run again: saves what its sites ask for; returns what it yields."""
        self._save(block, "entry", inner)
        self.block(block, inner, sweep=False)
        self._save(block, "exit", inner)
        return inner.get(block.yields)

    def pinned_results(self, op: Op) -> tuple[Value, ...]:
        """What the region of a map must hand out because it cannot be computed again."""
        inside = [o for o in op.regions[0].ops if o in self.pinned]
        for inner in inside:
            if inner.regions:
                raise GradientUndefined(
                    "no gradient: a condition or loop inside a map reads an array that the kernel also writes",
                    loc=inner.loc,
                    help="load the values as a tile first, and pass it to the map",
                )
        return tuple(v for o in inside for v in self._results(o))

    def _results(self, op: Op) -> tuple[Value, ...]:
        """What is known once the op has run."""
        return (*op.results, self.claims[op]) if op in self.claims else op.results

    # --- saving ---

    def _open_sites(self, op: Op, frame: Frame, lane: bool) -> None:
        """Make the stacks for the values that the regions of `op` will save; `lane`: the op stands in lane code."""
        lane = lane or act.makes_lanes(op)
        if op.name in ("for", "while"):
            self._open(act.body(op), "entry", [(v, v.type) for v in act.carried(op)], frame, lane)
            stacks = [site.stack.op for site in frame.sites[act.body(op), "entry"]]
            self.saving.update({stack: op for stack in stacks if stack is not None})
        if op in self.pinned and op.name != "map":
            for block in op.regions[1:] if op.name == "while" else op.regions:
                self._open_pinned(block, frame, lane)

    def _open_pinned(self, block: Block, frame: Frame, lane: bool) -> None:
        inside = [o for o in block.ops if o in self.pinned]
        self._open(block, "exit", [item for o in inside for item in self._saved_results(o)], frame, lane)
        for op in inside:
            if op.regions:
                self._open_sites(op, frame, lane)

    def _saved_results(self, op: Op) -> list[tuple[Value, Type]]:
        """What a pinned op inside a region leaves behind: its results and whatever its own reversal asks for."""
        values = (*op.results, self.turns[op]) if op.name == "while" else self._results(op)
        items: list[tuple[Value, Type]] = [(v, v.type) for v in values if not isinstance(v.type, StackType)]
        if op.name == "map":
            shape = shape_of(op.operands[0].type)
            items += [(v, TileType(dtype_of(v.type), shape)) for v in self.pinned_results(op)]
        return items

    def _open(self, block: Block, when: str, items: Sequence[tuple[Value, Type]], frame: Frame, lane: bool) -> None:
        typed = [(v, _saved_type(t, lane)) for v, t in items]
        frame.sites[block, when] = []
        for varying in (False, True):  # what differs between lanes goes to stacks of the lanes' own
            mine = [(v, t) for v, t in typed if is_varying(t) == varying]
            if mine:
                stack = control.stack(items=tuple(t for _, t in mine), varying=varying)
                frame.sites[block, when].append(Site(stack, tuple(v for v, _ in mine)))

    def _save(self, block: Block, when: str, frame: Frame) -> None:
        for site in frame.sites.get((block, when), ()):
            values = frame.get(site.items)
            types = items_of(site.stack.type)
            control.push(site.stack, *(control.as_type(v, t) for v, t in zip(values, types, strict=True)))

    def restore(self, block: Block, frame: Frame) -> None:
        """Take the values that a turn or branch has saved off their stacks."""
        for when in ("entry", "exit"):
            for site in frame.sites.get((block, when), ()):
                frame.bind(site.items, results_of(control.pop(site.stack)))


def results_of(result: Any) -> tuple[Value, ...]:
    """The results of an emitted op as a tuple."""
    return result if isinstance(result, tuple) else () if result is None else (result,)


def spread_all(values: Iterable[Value]) -> list[Value]:
    """The values as lane values."""
    return [control.as_type(v, ScalarType(dtype_of(v.type), varying=True)) for v in values]


def _saved_type(t: Type, lane: bool) -> Any:
    return ScalarType(t.dtype, t.varying or lane) if isinstance(t, ScalarType) else t
