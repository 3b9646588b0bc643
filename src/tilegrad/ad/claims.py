"""Atomic minima and maxima, and updates whose old values or order matter: what their gradient needs to know.

The update that gave an element its final value gets the element's gradient. Blocks of a backward kernel cannot know
which one that is, so a *prelude* is run first: the forward kernel without all but these updates, on private copies of
arrays. What it leaves is given to the backward kernel as one more array for each, with NaN where nothing has changed.
The backward kernel runs its blocks and its forward sweep in the launch's order, and the first update that finds its
own value there *claims* it.

Updates of arrays without a gradient (counters, say) whose old values are used are simply repeated, on a private copy.

Sums whose old values have a cotangent, and exchanges, are undone in the order opposite to the launch's instead: the
blocks of their backward kernel are descending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilegrad.ad import activity as act
from tilegrad.ad import residuals
from tilegrad.ad.activity import Activity, Memory
from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir.core import Block, Kernel, Op
from tilegrad.ir.types import ArrayType
from tilegrad.ops import custom

CLAIMED = ("array_atomic_min", "array_atomic_max")
_ORDERED = ("array_atomic_exch", "array_exch_back")


def claiming(kernel: Kernel, memory: Memory, activity: Activity) -> tuple[Op, ...]:
    """The atomic minima and maxima of elements that have a gradient."""
    found = tuple(op for op in kernel.body.walk() if op.name in CLAIMED and activity.touches(op))
    for op in found:
        _require_alone(op, kernel, memory)
        if any(v in activity.values for v in op.results):
            raise GradientUndefined(
                f"no gradient: a result depends on the value that `{op.name}` found in the array", loc=op.loc,
                help="read the minimum or maximum in another launch",
            )  # fmt: skip
    return found


def _require_alone(op: Op, kernel: Kernel, memory: Memory) -> None:
    """Nothing else may happen to the array in the launch, as the final value would not be that of these updates."""
    mine = {memory.groups[p] for p in memory.params(op)}
    for other in kernel.body.walk():
        if other.name == op.name or not mine & {memory.groups[p] for p in memory.params(other)}:
            continue
        raise GradientUndefined(
            f"no gradient: the array of this `{op.name}` is also used by `{other.name}`, at {other.loc}", loc=op.loc,
            help="use two launches",
        )  # fmt: skip
    if kernel.overlaps and any(kernel.overlaps.count(g) > 1 for g in mine):
        raise GradientUndefined(f"no gradient: the array of this `{op.name}` shares memory with another", loc=op.loc)


def finals(memory: Memory, ops: Iterable[Op]) -> tuple[int, ...]:
    """The parameters whose final contents the claims are about."""
    return tuple(sorted({p for op in ops for p in memory.params(op)}))


def afters(kernel: Kernel, memory: Memory) -> tuple[int, ...]:
    """The parameters that a gradient of the user's reads as they are after the launch, which changes them."""
    found: set[int] = set()
    for op in kernel.body.walk():
        given = op.operands if op.definition in (custom.custom, custom.replayed) else ()
        others = custom.split(op, given)[3] if op.definition is custom.custom else given
        places = [memory.roots[v] for v in others if isinstance(v.type, ArrayType)]
        found.update(p for p in places if memory.groups[p] in {*memory.writes, *memory.atomics})
    return tuple(sorted(found))


def whole_prelude(kernel: Kernel, memory: Memory) -> Kernel:
    """The kernel without what no array needs."""
    roots = [op for op in kernel.body.walk() if op.definition.effect in residuals.EFFECTS]
    return residuals.keep(kernel, memory, roots)[0]


def prelude(kernel: Kernel, memory: Memory, ops: Iterable[Op]) -> Kernel:
    """The kernel without what these updates do not need."""
    kept, _ = residuals.keep(kernel, memory, ops)
    for op in kept.body.walk():
        if act.reads_elements(op) and (other := act.memory_use(kept).touches(op, memory.atomics)):
            raise GradientUndefined(
                f"no gradient: this reads an array to which the kernel adds atomically, at {other.loc}", loc=op.loc,
                help="add to one array and read from another, or use two launches",
            )  # fmt: skip
    return kept


def undone(kernel: Kernel, memory: Memory, activity: Activity) -> frozenset[int]:
    """The memory whose updates must be undone in the opposite order."""
    found = set()
    for op, apart in _with_loops(kernel.body, False):
        ordered = op.name in _ORDERED or any(v in activity.values for v in op.results)
        if op.definition.effect == "atomic" and activity.touches(op) and ordered:
            found |= {memory.groups[p] for p in memory.params(op)}
            if apart:
                raise GradientUndefined(
                    f"no gradient: the order of this `{op.name}` depends on how often each lane runs a loop",
                    loc=op.loc,
                    help="give the loop the same number of turns in all lanes, with an `if` inside",
                )  # fmt: skip
    return frozenset(found)


def repeated(kernel: Kernel, memory: Memory, activity: Activity, undone: frozenset[int]) -> frozenset[Op]:
    """The updates of counters and the like, whose old values the backward kernel finds again on a private copy."""
    if undone or kernel.descending:
        return frozenset()
    used = {v for op in kernel.body.walk() for v in op.operands}
    updates = [op for op in kernel.body.walk() if op.definition.effect == "atomic"]
    groups = {op: {memory.groups[p] for p in memory.params(op)} for op in updates}
    wanted = {g for op in updates if any(v in used for v in op.results) for g in groups[op]}
    other = {g for op in updates if activity.touches(op) for g in groups[op]} | {*memory.reads, *memory.writes}
    return frozenset(op for op in updates if groups[op] <= wanted - other)


def _with_loops(block: Block, apart: bool) -> Iterator[tuple[Op, bool]]:
    """Every op, and whether it stands in a loop whose number of turns differs between lanes."""
    for op in block.ops:
        yield op, apart
        inside = apart or (op.name in ("for", "while") and act.makes_lanes(op))
        for region in op.regions:
            yield from _with_loops(region, inside)
