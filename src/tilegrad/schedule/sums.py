"""Which arrays a kernel only adds to, so that its blocks need not wait for one another.

An array that nothing in the kernel reads, and whose updates are all additions with results that nobody looks at, is a
*sum*. Blocks that provably add to different elements (the index has the number of the block, times at least what one
block covers) add *apart*, straight to memory. Other sums are made in *groups*: the launch cuts its blocks into a number
of groups that does not depend on the threads; each group adds, block after block, to memory of its own, and the groups
are added up in order. So the same bits come out for every number of threads. Everything else takes turns.
Does not emit anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, TileType, dtype_of
from tilegrad.schedule.facts import Facts

ADDITIONS = ("array_atomic_add", "array_atomic_sub", "tile_atomic_add", "tile_atomic_add_indexed")

#: What an index adds up: coefficients of ("block", axis), ("thread", axis) and ("lane", 0).
Key = tuple[str, int]


@dataclass(frozen=True)
class Sums:
    """The parameters that are sums: those added to in groups, and those to which blocks add apart."""

    grouped: tuple[int, ...] = ()
    apart: frozenset[int] = frozenset()

    def takes_turns(self, op: Op) -> bool:
        """Whether an op with an atomic update must wait for the blocks before."""
        return op.definition.effect == "atomic" and root_of(op).index not in {*self.grouped, *self.apart}


def find_sums(kernel: Kernel) -> Sums:
    """The sums of a kernel. If any update has to take turns, no sum is made in groups."""
    facts = Facts(kernel)
    touching: dict[int, list[Op]] = {}
    for op in kernel.body.walk():
        if op.definition.effect in ("read", "write", "atomic"):
            for v in op.operands:
                if isinstance(v.type, ArrayType):
                    touching.setdefault(kernel.memory(v), []).append(op)
    apart, grouped, others = set[int](), set[int](), False
    for ops in touching.values():
        roots = {root_of(op) for op in ops}
        if not any(op.definition.effect == "atomic" for op in ops):
            continue
        if not all(op.name in ADDITIONS and not any(facts.uses(v) for v in op.results) for op in ops):
            others = True
        elif len(roots) == 1 and _are_apart(kernel, ops):
            apart |= {v.index for v in roots}
        else:
            grouped |= {v.index for v in roots}
    return Sums(() if others else tuple(sorted(grouped)), frozenset(apart))


def root_of(op: Op) -> Value:
    """The parameter behind the array that an op touches."""
    v = next(v for v in op.operands if isinstance(v.type, ArrayType))
    while v.op is not None:
        v = v.op.operands[0]
    return v


# --- blocks that add apart --------------------------------------------------------------------------------------------


@dataclass
class Affine:
    """constant + sum of coefficient * index"""

    constant: int = 0
    terms: dict[Key, int] = field(default_factory=dict)

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        terms = dict(self.terms)
        for key, c in other.terms.items():
            terms[key] = terms.get(key, 0) + sign * c
        return Affine(self.constant + sign * other.constant, {k: c for k, c in terms.items() if c})

    def times(self, factor: int) -> Affine:
        return Affine(self.constant * factor, {k: c * factor for k, c in self.terms.items() if factor})


def affine(v: Value) -> Affine | None:
    """An integer as a sum of multiples of indices, if it is one."""
    op = v.op
    if op is None or not isinstance(v.type, ScalarType) or not dtype_of(v.type).is_int:
        return None
    if op.name == "constant":
        return Affine(int(op.attrs["value"]))
    if op.name in ("block_id", "thread_id", "lane_id"):
        return Affine(0, {(op.name.removesuffix("_id"), int(op.attrs.get("axis", 0))): 1})
    if op.name in ("spread", "astype"):
        return affine(op.operands[0])
    if op.name in ("add", "sub", "mul"):
        a, b = affine(op.operands[0]), affine(op.operands[1])
        if a is None or b is None:
            return None
        if op.name != "mul":
            return a.plus(b, 1 if op.name == "add" else -1)
        if a.terms and b.terms:
            return None
        return b.times(a.constant) if b.terms else a.times(b.constant)
    return None


@dataclass(frozen=True)
class Span:
    """Along coordinate `place`, block b of a grid axis covers [step * b + first, step * b + last)."""

    place: int
    step: int
    first: int
    last: int


def _are_apart(kernel: Kernel, ops: Iterable[Op]) -> bool:
    """Whether different blocks add to different elements, whatever the launch."""
    kind = "block" if kernel.tiled else "thread"
    for axis in range(kernel.grid_ndim):
        spans = [_span(kernel, op, (kind, axis)) for op in ops]
        known = [s for s in spans if s is not None]
        if len(known) < len(spans) or len({(s.place, s.step) for s in known}) > 1:
            return False
        if max(s.last for s in known) - min(s.first for s in known) > known[0].step:
            return False
    return True


def _span(kernel: Kernel, op: Op, key: Key) -> Span | None:
    """A coordinate that only this index of the grid moves, by at least what a block covers."""
    wraps = op.name in ("array_atomic_add", "array_atomic_sub")  # a negative index counts from the end
    for place, (index, extent) in enumerate(_coordinates(op)):
        if index is None or set(index.terms) - {key, ("lane", 0)} or index.terms.get(key, 0) < 1:
            continue
        lanes = index.terms.get(("lane", 0), 0)
        first = index.constant + min(0, lanes * (kernel.block_dim - 1))
        last = index.constant + max(0, lanes * (kernel.block_dim - 1)) + extent
        if last - first <= index.terms[key] and not (wraps and first < 0):
            return Span(place, index.terms[key], first, last)
    return None


def _coordinates(op: Op) -> list[tuple[Affine | None, int]]:
    """Where an addition starts along each axis of the parameter, and how many elements it covers there."""
    array = next(v for v in op.operands if isinstance(v.type, ArrayType))
    rows: list[tuple[Affine | None, int]] = []
    while array.op is not None:
        if array.op.name == "array_row":
            rows = [(_nonnegative(affine(v)), 1) for v in array.op.operands[1:]] + rows
        array = array.op.operands[0]
    if op.name in ("array_atomic_add", "array_atomic_sub"):
        return rows + [(affine(v), 1) for v in op.operands[2:]]
    rank = _rank(op)
    shape = next(v.type.shape for v in op.operands if isinstance(v.type, TileType) and v.type.ndim == rank)
    inner = [(affine(v), n) for v, n in zip(op.operands[-rank:], shape, strict=True)]
    if op.name == "tile_atomic_add_indexed":
        inner[op.attrs["axis"]] = (None, 1)
    return rows + inner


def _nonnegative(index: Affine | None) -> Affine | None:
    """A row's index that cannot count from the end."""
    good = index is not None and index.constant >= 0 and all(c >= 0 for c in index.terms.values())
    return index if good else None


def _rank(op: Op) -> int:
    array = next(v for v in op.operands if isinstance(v.type, ArrayType))
    assert isinstance(array.type, ArrayType)
    return array.type.ndim
