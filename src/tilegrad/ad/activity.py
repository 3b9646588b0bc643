"""Which values of a kernel carry a derivative, and how its memory is used.

A value is *differentiated* if it is a float on a path from an element read of an array with a gradient to an element
written to one. Values flow along edges: from the operands of an op to its results, and between a region and its op.
So both questions ("depends on an input", "reaches an output") are reachability in one graph.

Does not emit anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir.core import Block, Kernel, Op, Value, free_values
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type, is_varying, items_of
from tilegrad.ops import custom


def region_kind(op: Op) -> str:
    """ "if", "for", "while" or "map" for an op with regions, else ""."""
    return op.name if op.regions else ""


def is_float(t: Type) -> bool:
    """Whether values of this type have derivatives."""
    return isinstance(t, (ScalarType, TileType)) and t.dtype.is_float


def makes_lanes(op: Op) -> bool:
    """Whether the regions of this op are lane code."""
    kind = region_kind(op)
    if kind == "map":
        return True
    if kind == "while":
        return is_varying(op.regions[0].yields[0].type)
    return any(is_varying(v.type) for v in op.operands[: {"if": 1, "for": 3}.get(kind, 0)])


def carried(op: Op) -> tuple[Value, ...]:
    """The arguments of a loop's body that are handed from turn to turn."""
    return op.regions[0].args[1:] if region_kind(op) == "for" else op.regions[1].args


def reads_elements(op: Op) -> bool:
    """Whether the results of `op` are elements of an array; a `take` reads and writes."""
    return op.definition.effect == "read" or (op.definition.effect == "write" and bool(op.results))


def initial(op: Op) -> tuple[Value, ...]:
    """The operands that a loop's carried values start from."""
    return op.operands[3:] if region_kind(op) == "for" else op.operands


def body(op: Op) -> Block:
    """The region of a loop that computes the next carried values."""
    return op.regions[-1]


def edges(op: Op) -> Iterator[tuple[Value, Value]]:
    """Pairs (from, to) of values between which `op` moves or combines data."""
    kind = region_kind(op)
    if kind == "if":
        for block in op.regions:
            yield from zip(block.yields, op.results, strict=True)
    elif kind in ("for", "while"):
        for source in (initial(op), body(op).yields):
            yield from zip(source, carried(op), strict=True)
            yield from zip(source, op.results, strict=True)
    elif kind == "map":
        yield from zip(op.operands, op.regions[0].args, strict=True)
        yield from zip(op.regions[0].yields, op.results, strict=True)
    elif op.definition is custom.replayed:
        yield from zip(op.operands, op.results, strict=False)
    elif op.definition is not custom.stopped:
        inputs = custom.split(op, op.operands)[1] if op.definition is custom.custom else op.operands
        yield from ((x, y) for x in inputs for y in op.results)


def reach(starts: Iterable[Value], links: dict[Value, list[Value]]) -> set[Value]:
    """Everything that can be reached from `starts`."""
    seen = set(starts)
    work = list(seen)
    while work:
        for v in links.get(work.pop(), ()):
            if v not in seen:
                seen.add(v)
                work.append(v)
    return seen


@dataclass
class Memory:
    """How a kernel uses its array parameters; parameters of one `group` may share memory."""

    roots: dict[Value, int] = field(default_factory=dict)  # array value -> index of its parameter
    groups: Sequence[int] = ()
    reads: dict[int, Op] = field(default_factory=dict)  # group -> the first op that does this to it
    writes: dict[int, Op] = field(default_factory=dict)
    atomics: dict[int, Op] = field(default_factory=dict)
    #: array values whose elements are read without derivatives
    stopped: set[Value] = field(default_factory=set)

    def arrays(self, op: Op) -> list[Value]:
        return [v for v in op.operands if isinstance(v.type, ArrayType)]

    def params(self, op: Op) -> list[int]:
        """The array parameters whose elements `op` touches."""
        return [self.roots[v] for v in self.arrays(op)] if op.definition.effect in ("read", "write", "atomic") else []

    def touches(self, op: Op, table: dict[int, Op]) -> Op | None:
        """The op in `table` (reads, writes or atomics) that concerns an array that `op` touches."""
        return next((table[g] for p in self.params(op) if (g := self.groups[p]) in table), None)


def memory_use(kernel: Kernel) -> Memory:
    """Find the parameter behind every array value, and what is done to each."""
    memory = Memory({p: i for i, p in enumerate(kernel.params)}, kernel.overlaps or range(len(kernel.params)))
    for op in kernel.body.walk():
        if op.regions:
            _require_no_arrays(op)
            continue
        for v in op.results:
            if isinstance(v.type, ArrayType):
                base = memory.arrays(op)[0]
                memory.roots[v] = memory.roots[base]
                if op.definition is custom.stopped or base in memory.stopped:
                    memory.stopped.add(v)
        tables = [{"write": memory.writes, "atomic": memory.atomics}.get(op.definition.effect)]
        tables += [memory.reads] if reads_elements(op) else []
        for p in memory.params(op):
            for table in tables:
                if table is not None:
                    table.setdefault(memory.groups[p], op)
    return memory


def _require_no_arrays(op: Op) -> None:
    if any(isinstance(v.type, ArrayType) for v in (*op.results, *(a for r in op.regions for a in r.args))):
        raise GradientUndefined(
            "no gradient: which array is used here is chosen while the kernel runs",
            loc=op.loc,
            help="load from both arrays and choose between the values",
        )


@dataclass
class Activity:
    """The differentiated values, and the array values that have a gradient."""

    values: set[Value]
    arrays: set[Value]
    #: for each stack the positions of the items that are differentiated
    items: dict[Value, list[int]] = field(default_factory=dict)

    def touches(self, op: Op) -> bool:
        """Whether `op` reads or writes elements that have a gradient."""
        if op.definition is custom.custom:
            return any(v in self.arrays for v in custom.split(op, op.operands)[2])
        effect = op.definition.effect in ("read", "write", "atomic")
        return effect and any(v in self.arrays for v in op.operands)

    def stores(self, op: Op) -> bool:
        """Whether `op` changes elements that have a gradient, or a stack with differentiated items.

        A custom gradient of a function of arrays may do so.
        """
        if op.name in ("push", "pop"):
            return bool(self.items.get(op.operands[0]))
        changes = op.definition.effect in ("write", "atomic") or op.definition is custom.custom
        return changes and self.touches(op)

    def has_stores(self, op: Op) -> bool:
        """Whether `op`, or an op in its regions, changes elements that have a gradient."""
        return self.stores(op) or any(self.stores(inner) for region in op.regions for inner in region.walk())

    def flows(self, op: Op) -> bool:
        """Whether the adjoint of `op` hands cotangents on to its operands."""
        return op.name == "yield" or self.stores(op) or any(v in self.values for v in op.results)

    def receivers(self, blocks: Iterable[Block]) -> list[Value]:
        """The differentiated values from outside that the reversed regions give cotangents to."""
        found: dict[Value, None] = {}
        for block in blocks:
            used = {v for op in block.walk() if self.flows(op) for v in op.operands if v in self.values}
            found.update(dict.fromkeys(v for v in free_values(block) if v in used))
        return list(found)


def analyse(
    kernel: Kernel, memory: Memory, wrt: Sequence[bool], starts: Iterable[Value] = (), ends: Iterable[Value] = ()
) -> Activity:
    """Find the differentiated values of `kernel` for the gradient arrays that `wrt` selects.

    Besides, derivatives begin at the values `starts` and end at `ends`.
    """
    arrays = {v for v, p in memory.roots.items()
              if wrt[p] and isinstance(v.type, ArrayType) and v not in memory.stopped}  # fmt: skip
    activity = Activity(set(), arrays)
    forward: dict[Value, list[Value]] = {}
    backward: dict[Value, list[Value]] = {}
    sources: list[Value] = list(starts)
    sinks: list[Value] = list(ends)
    for op in kernel.body.walk():
        if op.name == "yield":
            continue
        for a, b in edges(op):
            if is_float(a.type) and is_float(b.type):
                forward.setdefault(a, []).append(b)
                backward.setdefault(b, []).append(a)
        if activity.touches(op):
            sources += [v for v in op.results if is_float(v.type)]
            if activity.stores(op):
                sinks += [v for v in op.operands if is_float(v.type)]
    for stack, k, pushed, popped in _passed_on(kernel):
        for a in pushed:
            forward.setdefault(a, []).extend(popped)
        for b in popped:
            backward.setdefault(b, []).extend(pushed)
        activity.items.setdefault(stack, []).append(k)
    activity.values = reach(sources, forward) & reach(sinks, backward)
    for stack, k, _, popped in _passed_on(kernel):
        if not any(v in activity.values for v in popped):
            activity.items[stack].remove(k)
    return activity


def _passed_on(kernel: Kernel) -> Iterator[tuple[Value, int, list[Value], list[Value]]]:
    """For each item of floats on a stack: the stack, its position, the values pushed there and the values popped."""
    uses: dict[Value, tuple[list[Op], list[Op]]] = {}
    for op in kernel.body.walk():
        if op.name in ("push", "pop"):
            uses.setdefault(op.operands[0], ([], []))[op.name == "pop"].append(op)
    for stack, (pushes, pops) in uses.items():
        for k, t in enumerate(items_of(stack.type)):
            if is_float(t):
                yield stack, k, [op.operands[1 + k] for op in pushes], [op.results[k] for op in pops]
