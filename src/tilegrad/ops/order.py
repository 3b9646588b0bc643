"""The order in which tiles are sorted, and the op that finds it.

Keys become unsigned integers that sort alike: -inf, numbers with -0.0 equal to 0.0, +inf, and every NaN last, also in
descending order. Beside its code a key has its position, so that no two are equal and any method of sorting is stable.
What users call is in `sort`.

The CPU sorts with Batcher's merge exchange (Knuth, TAOCP volume 3, algorithm 5.2.2M): its comparisons do not depend on
the data, so vectors make many at a time. If the tile has several lines to sort, every element of a vector works on one
of its own; a single line lies in rows as wide as a vector, and comparisons within a row use a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import Sample, Tile, describe, infer, lower, op, samples, spelled, unwrap
from tilegrad.ops.along import take_along
from tilegrad.ops.shapes import require_axis, require_tile
from tilegrad.ops.views import shape_of, tile_reshape

Host = np.ndarray[Any, Any]
Regs = Sequence[Reg]

#: bytes of the codes that are compared at once
VECTOR_BYTES = 64
#: from so many lines on every element of a vector works on its own line
FEW_LINES = 4


# --- keys as unsigned integers ----------------------------------------------------------------------------------------


def _unsigned(dtype: DType) -> DType:
    return dt.BY_NAME[f"uint{dtype.bits}"]


def _infinity(dtype: DType) -> int:
    """The bits of +inf; larger magnitudes are NaN."""
    return int(np.asarray(np.inf, dtype.np).view(_unsigned(dtype).np))


def codes(t: Host, descending: bool) -> Host:
    """Unsigned integers that sort in ascending order as the keys are to be sorted."""
    dtype = dt.of_array(t)
    kind = _unsigned(dtype)
    one = kind.np.type
    if not dtype.is_float:
        bits = t.astype(kind.np)
        result = bits ^ one(1 << (dtype.bits - 1)) if dtype.kind == "i" else bits
        return ~result if descending else result
    bits = np.ascontiguousarray(t).view(kind.np)
    sign = one(1 << (dtype.bits - 1))
    magnitude = bits & ~sign
    bits = np.where(magnitude == 0, one(0), bits)
    result = np.where(bits >= sign, ~bits, bits | sign)
    result = ~result if descending else result
    return np.where(magnitude > one(_infinity(dtype)), one(kind.max), result)


def _code(e: Emitter, x: Reg, descending: bool) -> Reg:
    """`codes` in registers."""
    dtype, kind = x.dtype, _unsigned(x.dtype)
    if not dtype.is_float:
        u = e.cast(x, kind) if dtype.kind == "b" else e.bitcast(x, kind)
        u = e.xor(u, e.const(1 << (dtype.bits - 1), kind)) if dtype.kind == "i" else u
        return e.not_(u) if descending else u
    sign = e.const(1 << (dtype.bits - 1), kind)
    bits = e.bitcast(x, kind)
    magnitude = e.and_(bits, e.const((1 << (dtype.bits - 1)) - 1, kind))
    bits = e.select(e.compare("eq", magnitude, e.const(0, kind)), e.const(0, kind), bits)
    u = e.select(e.compare("ge", bits, sign), e.not_(bits), e.or_(bits, sign))
    u = e.not_(u) if descending else u
    return e.select(e.compare("gt", magnitude, e.const(_infinity(dtype), kind)), e.const(kind.max, kind), u)


# --- the op -----------------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True, no_gradient="the result is a permutation")
def tile_argsort(t: Tile, *, axis: int, descending: bool = False) -> Tile:
    """The positions that sort a tile along an axis: element k is where the k-th smallest element stands.

    Args:
        t: tile of any element type.
        axis: an int, or None to sort all elements in row-major order, which gives a 1-D result.
        descending: the largest first.
        present: bool tile of the shape of `t`: elements for which it is False come after all others. Lanes that are
            absent are not present.

    Returns: an int32 tile of the same shape. The order is -inf, numbers (-0.0 equals 0.0), +inf, and every NaN last,
        also when descending. Equal elements keep their order.
    Raises: TypeMismatch if `t` is no tile, ShapeMismatch if the axis is out of range.
    No gradient: the result is a permutation; `tile_take_along(t, order, axis)` has one.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[int]):
        ...     tg.tile_store(y, tg.tile_argsort(tg.tile_load(x, shape=4)))
        >>> x, y = np.array([2, np.nan, 1, 2], np.float32), np.zeros(4, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [2, 0, 3, 1]
    """
    return np.argsort(codes(t, descending), axis, kind="stable").astype(np.int32)


@infer(tile_argsort)
def _tile_argsort_infer(t: TileType, *, axis: int, descending: bool = False) -> Type:
    return TileType(dt.int32, t.shape)


@lower(tile_argsort)
def _tile_argsort_lower(e: Emitter, outs: list[Buffer], t: Buffer, *, axis: int, descending: bool = False) -> None:
    lines = _Lines(t.shape, axis)
    source, target = (Buffer(b.dtype, b.ptr, (math.prod(b.shape),)) for b in (t, outs[0]))
    if lines.extent == 1:
        e.points(target.shape, lambda at: e.store(target, at, e.const(0, dt.int32)))
    elif lines.count < FEW_LINES:
        _sort_each(e, lines, source, target, descending)
    else:
        _sort_together(e, lines, source, target, descending)


class _Lines:
    """The lines of a tile along an axis: where element k of line i lies in the flat tile."""

    def __init__(self, shape: Sequence[int], axis: int) -> None:
        self.extent = shape[axis]
        self.inner = math.prod(shape[axis + 1 :])
        self.count = math.prod(shape) // self.extent

    def start(self, e: Emitter, line: Reg) -> Reg:
        """The place of the first element of a line (int64)."""
        if self.inner == 1:
            return e.mul(line, e.const(self.extent, dt.int64))
        if self.inner == self.count:
            return line
        whole, inner = e.cast(line, dt.uint32), e.const(self.inner, dt.uint32)
        outer = e.div(whole, inner)
        rest = e.sub(whole, e.mul(outer, inner))
        first = e.mul(e.cast(outer, dt.int64), e.const(self.extent * self.inner, dt.int64))
        return e.add(first, e.cast(rest, dt.int64))

    def place(self, e: Emitter, start: Reg, k: Reg) -> Coord:
        step = k if self.inner == 1 else e.mul(k, e.const(self.inner, dt.int64))
        place = e.add(start, step)
        return Coord(place, 0, gather=place.width > 1)


# --- codes and positions in working memory ----------------------------------------------------------------------------


class _Entries:
    """Codes with their positions in working memory: in one integer if there is room, else in two."""

    def __init__(self, e: Emitter, dtype: DType, extent: int, size: Callable[[int], int]) -> None:
        """`size` tells how many entries there must be, by how many make a vector."""
        self.e = e
        small = dtype.bits <= 16 and extent < 1 << 16
        self.packed = dtype.bits <= 32
        self.carrier = dt.uint32 if small else dt.uint64
        self.shift = self.carrier.bits // 2
        self.width = VECTOR_BYTES // self.carrier.size
        shape = (size(self.width),)
        self.memory = [e.scratch(self.carrier, shape)]
        if not self.packed:
            self.memory.append(e.scratch(dt.int32, shape))

    def made(self, code: Reg, position: Reg) -> Regs:
        """The entry of a key."""
        e = self.e
        if not self.packed:
            return [code, e.cast(position, dt.int32)]
        upper = e.shl(e.cast(code, self.carrier), e.const(self.shift, self.carrier))
        return [e.or_(upper, e.cast(position, self.carrier))]

    def last(self) -> Regs:
        """An entry that comes after all others."""
        return [self.e.const(m.dtype.max, m.dtype) for m in self.memory]

    def position(self, entry: Regs) -> Reg:
        e = self.e
        if not self.packed:
            return entry[1]
        return e.cast(e.and_(entry[0], e.const((1 << self.shift) - 1, self.carrier)), dt.int32)

    def load(self, at: Coord) -> Regs:
        return [self.e.load(m, (at,)) for m in self.memory]

    def store(self, at: Coord, entry: Regs) -> None:
        for m, x in zip(self.memory, entry, strict=True):
            self.e.store(m, (at,), x)

    def ordered(self, a: Regs, b: Regs) -> tuple[Regs, Regs]:
        """The smaller and the larger of two entries."""
        e = self.e
        if self.packed:
            return [e.minimum(a[0], b[0])], [e.maximum(a[0], b[0])]
        later = e.and_(e.compare("eq", a[0], b[0]), e.compare("gt", a[1], b[1]))
        swap = e.or_(e.compare("gt", a[0], b[0]), later)
        return self.chosen(swap, b, a), self.chosen(swap, a, b)

    def chosen(self, condition: Reg, a: Regs, b: Regs) -> Regs:
        return [self.e.select(condition, x, y) for x, y in zip(a, b, strict=True)]


# --- merge exchange ---------------------------------------------------------------------------------------------------

#: run(d, r): compare elements i and i + d wherever bit p of i is that of r
Pass = Callable[[Reg, Reg], None]


def _each(e: Emitter, start: Any, stop: Any, step: Any, body: Callable[[Reg], None]) -> None:
    def turn(i: Reg) -> Regs:
        body(i)
        return []

    e.loop(start, stop, step, [], turn)


def _passes(e: Emitter, top: int, turns: Reg, p: Reg, run: Pass) -> None:
    """The passes of algorithm M for one p = top / 2**turns."""
    zero, one = e.const(0, dt.int64), e.const(1, dt.int64)

    def one_pass(u: Reg) -> None:
        first = e.compare("eq", u, zero)
        q = e.shr(e.const(top, dt.int64), e.sub(u, one))
        run(e.select(first, p, e.sub(q, p)), e.select(first, zero, p))

    _each(e, 0, e.add(turns, one), 1, one_pass)


def _exchange_rows(e: Emitter, top: int, rows: int, lowest: int, exchange: Callable[[Reg, Reg], None]) -> None:
    """Algorithm M down to p = lowest, for whole rows: exchange(i, i + d) puts two of them in order."""

    def level(s: Reg) -> None:
        p = e.shr(e.const(top, dt.int64), s)

        def run(d: Reg, r: Reg) -> None:
            end = e.sub(e.const(rows, dt.int64), d)

            def group(first: Reg) -> None:
                _each(e, first, e.minimum(e.add(first, p), end), 1, lambda i: exchange(i, e.add(i, d)))

            _each(e, r, end, e.add(p, p), group)

        _passes(e, top, s, p, run)

    _each(e, 0, (top // lowest).bit_length(), 1, level)


def _top(n: int) -> int:
    """The largest power of two below n."""
    return 1 << (n - 1).bit_length() - 1


def _sort_together(e: Emitter, lines: _Lines, source: Buffer, target: Buffer, descending: bool) -> None:
    """Every element of a vector sorts a line; those that are left over do what the last line does once more."""
    n = lines.extent
    entries = _Entries(e, source.dtype, n, lambda width: n * width)
    width = entries.width

    def row(lane: Coord, k: Reg) -> Coord:
        return Coord(e.mul(k, e.const(width, dt.int64)), lane.step)

    def vector(lane: Coord, base: Reg) -> None:
        line = e.minimum(e.add(e.lanes_of(lane), base), e.const(lines.count - 1, dt.int64))
        start = lines.start(e, line)

        def take(k: Reg) -> None:
            code = _code(e, e.load(source, (lines.place(e, start, k),)), descending)
            entries.store(row(lane, k), entries.made(code, k))

        def exchange(i: Reg, j: Reg) -> None:
            low, high = entries.ordered(entries.load(row(lane, i)), entries.load(row(lane, j)))
            entries.store(row(lane, i), low)
            entries.store(row(lane, j), high)

        def give(k: Reg) -> None:
            e.store(target, (lines.place(e, start, k),), entries.position(entries.load(row(lane, k))))

        _each(e, 0, n, 1, take)
        _exchange_rows(e, _top(n), n, 1, exchange)
        _each(e, 0, n, 1, give)

    _each(e, 0, lines.count, width, lambda base: e.points((width,), lambda at: vector(at[0], base), width))


def _sort_each(e: Emitter, lines: _Lines, source: Buffer, target: Buffer, descending: bool) -> None:
    """One line after the other, in rows of a vector: first whole rows are compared, then elements within them.

    What is left of the last row, and one row behind it, holds entries that come after all others and never move.
    """
    n = lines.extent
    entries = _Entries(e, source.dtype, n, lambda width: (-(-n // width) + 1) * width)
    width = entries.width
    rows, full = -(-n // width), n // width * width

    def sort(line: Reg) -> None:
        start = lines.start(e, line)

        def place(at: Coord) -> Coord:
            if lines.inner == 1:
                return Coord(e.add(start, e.i64(at.base)), at.step)
            return lines.place(e, start, e.lanes_of(at))

        def take(at: Coord) -> None:
            code = _code(e, e.load(source, (place(at),)), descending)
            entries.store(at, entries.made(code, e.lanes_of(at)))

        def fill(at: Coord) -> None:
            entries.store(Coord(e.add(e.i64(at.base), e.const(full, dt.int64)), at.step), entries.last())

        e.points(((rows + 1) * width - full,), lambda at: fill(at[0]), width)
        e.points((n,), lambda at: take(at[0]), width)
        e.points((width,), lambda at: _exchange_line(e, entries, n, at[0]), width)
        e.points((n,), lambda at: e.store(target, (place(at[0]),), entries.position(entries.load(at[0]))), width)

    _each(e, 0, lines.count, 1, sort)


def _exchange_line(e: Emitter, entries: _Entries, n: int, lane: Coord) -> None:
    width, top = entries.width, _top(n)

    def exchange_rows(i: Reg, j: Reg) -> None:
        a, b = (Coord(e.mul(k, e.const(width, dt.int64)), lane.step) for k in (i, j))
        low, high = entries.ordered(entries.load(a), entries.load(b))
        entries.store(a, low)
        entries.store(b, high)

    if top >= width:
        _exchange_rows(e, top // width, -(-n // width), 1, exchange_rows)
    highest = min(top, width // 2)

    def level(s: Reg) -> None:
        p = e.shr(e.const(top, dt.int64), s)
        _passes(e, top, s, p, lambda d, r: _exchange_within(e, entries, n, lane, p, d, r))

    _each(e, (top // highest).bit_length() - 1, top.bit_length(), 1, level)


def _exchange_within(e: Emitter, entries: _Entries, n: int, lane: Coord, p: Reg, d: Reg, r: Reg) -> None:
    """Compare elements i and i + d of the rows, wherever bit p of i is that of r; two such rows may overlap."""
    chosen = e.compare("eq", e.and_(e.lanes_of(lane), p), r)

    def turn(base: Reg) -> None:
        here, there = (Coord(x, lane.step) for x in (base, e.add(base, d)))
        a = entries.load(here)
        low, high = entries.ordered(a, entries.load(there))
        entries.store(here, entries.chosen(chosen, low, a))
        entries.store(there, entries.chosen(chosen, high, entries.load(there)))

    _each(e, 0, e.sub(e.const(n, dt.int64), d), entries.width, turn)


# --- samples and the call ---------------------------------------------------------------------------------------------

#: shapes and axes: one line and several, short and long, powers of two and not
_CASES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1,), 0),
    ((2,), 0),
    ((21,), 0),
    ((64,), 0),
    ((131,), 0),
    ((3, 37), 1),
    ((5, 9), 0),
    ((19, 16), 1),
    ((17, 1), 1),
    ((3, 6, 4), 1),
    ((2, 3, 2, 2, 1, 2, 2, 3), 5),
)


@samples(tile_argsort)
def _tile_argsort_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        t = rng.integers(0, 2 if d.kind == "b" else 50, (21,)).astype(d.np)
        for shape in ((21,), (7, 3)):
            yield Sample((t.reshape(shape),), {"axis": 0, "descending": len(shape) == 2})
    for larger, axis in _CASES:
        yield Sample((rng.standard_normal(larger).astype(np.float32),), {"axis": axis})
        yield Sample((rng.integers(-4, 4, larger),), {"axis": axis, "descending": True})


@spelled(tile_argsort)
def _tile_argsort_call(t: Any, axis: Any = -1, descending: Any = False, *, present: Any = None) -> Any:
    return ordered("tile_argsort", t, axis, require_flag("tile_argsort", "descending", descending), present)[2]


def ordered(what: str, t: Any, axis: Any, descending: bool, present: Any) -> tuple[Any, int, Any]:
    """The tile that is sorted (1-D if the axis is None), the axis of it, and the order; see `tile_argsort`."""
    kind = require_tile(what, "t", t)
    shape = (kind.size,) if axis is None else kind.shape
    along = 0 if axis is None else require_axis(what, axis, kind.ndim)
    whole = shaped(unwrap(t), shape)
    order = tile_argsort(whole, axis=along, descending=descending)
    if present is not None:
        here = take_along(shaped(require_mask(what, kind, present), shape), order, axis=along, distinct=True)
        first = tile_argsort(here, axis=along, descending=True)
        order = take_along(order, first, axis=along, distinct=True)
    return whole, along, order


def require_mask(what: str, kind: TileType, present: Any) -> Any:
    found = require_tile(what, "present", present)
    if found != TileType(dt.bool_, kind.shape):
        raise ShapeMismatch(f"{what}: `present` must be a bool tile {kind.shape}, it is {describe(found)}")
    return unwrap(present)


def require_flag(what: str, name: str, x: Any) -> bool:
    """A choice that must be known at compile time."""
    if not isinstance(x, (bool, np.bool_)):
        raise TypeMismatch(f"{what}: {name} must be True or False at compile time, it is {x!r}")
    return bool(x)


def shaped(t: Any, shape: tuple[int, ...]) -> Any:
    """The elements under another shape."""
    return t if shape_of(t) == shape else tile_reshape(t, shape=shape)


PUBLIC = {"tile_argsort": tile_argsort}
