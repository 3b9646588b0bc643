"""The ops behind scans: running sums, products, minima and maxima along an axis, and the linear recurrence.

float16 and bfloat16 are carried in float32, float32 in float64, and sums of 16 and 64 bits with their rounding errors,
so that no error of a sum grows with the extent. Bodies and lowerings take the same steps and agree in every bit. Of
equal elements the one with the lowest index is meant; NaN counts as missing in minima and maxima unless
`propagate_nan`.

The gradients are scans again. With `linear_scan`, the recurrence r[k] = b[k] + a[k] * r[k-1], every adjoint here is
exact for any data, zeros in a running product included. Does not know how users call scans (see `scan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import (
    Sample,
    Tile,
    adjoint,
    infer,
    lower,
    op,
    require_same_dtype,
    samples,
)  # fmt: skip
from tilegrad.ops.arithmetic import chain
from tilegrad.ops.comparison import choose
from tilegrad.ops.indexing import tile_insert, tile_slice, zeros_like
from tilegrad.ops.views import shape_of

Host = np.ndarray[Any, Any]
Regs = Sequence[Reg]


def neutral(combine: str, dtype: DType) -> bool | int | float:
    """What a scan of no element gives."""
    if combine in ("add", "mul"):
        one = combine == "mul"
        return float(one) if dtype.is_float else int(one)
    value: bool | int | float = dtype.max if combine == "min" else dtype.min
    return value


def _carrier(dtype: DType) -> DType:
    """The dtype in which running sums and products are carried."""
    return dt.float32 if dtype.is_half else dt.float64 if dtype.is_float else dtype


def _loses(dtype: DType) -> bool:
    """Whether running sums lose digits that show, unless the errors are carried along."""
    return dtype.is_half or dtype is dt.float64


def shifted(t: Any, axis: int, by: int) -> Any:
    """Element k is t[k + by] along an axis (`by` is 1 or -1), 0 past the end."""
    shape = shape_of(t)
    if shape[axis] == 1:
        return zeros_like(t)
    first = tuple(max(by, 0) if k == axis else 0 for k in range(len(shape)))
    target = tuple(max(-by, 0) if k == axis else 0 for k in range(len(shape)))
    sizes = tuple(n - 1 if k == axis else n for k, n in enumerate(shape))
    steps = (1,) * len(shape)
    return tile_insert(zeros_like(t), tile_slice(t, *first, sizes=sizes, steps=steps), *target, steps=steps)


# --- bodies ---------------------------------------------------------------------------------------------------------


def _turned(t: Any, axis: int, reverse: bool) -> Host:
    """The scanned axis in front, in the direction of the scan."""
    front = np.moveaxis(np.asarray(t), axis, 0)
    return front[::-1] if reverse else front


def _back(front: Any, axis: int, reverse: bool) -> Host:
    return np.ascontiguousarray(np.moveaxis(front[::-1] if reverse else front, 0, axis))


def _summed(x: Host) -> Host:
    """Running sums that carry the error of every addition along (TwoSum, Knuth 1969)."""
    result = np.array(x)
    s, lost = x[0], x[0] - x[0]
    for k in range(1, len(x)):
        total = s + x[k]
        other = total - s
        lost = lost + ((s - (total - other)) + (x[k] - other))
        s = total
        result[k] = np.where(lost == lost, s + lost, s)
    return result


def _accumulated(x: Host, combine: str) -> Host:
    """Running sums or products of elements that lie in scan order along the first axis."""
    wide = x.astype(_carrier(dt.of_array(x)).np)
    if combine == "add" and _loses(dt.of_array(x)):
        return _summed(wide).astype(x.dtype)
    return np.asarray((np.add if combine == "add" else np.multiply).accumulate(wide, dtype=wide.dtype)).astype(x.dtype)


def _beats(x: Host, best: Host, combine: str, later_wins: bool, propagate_nan: bool) -> Host:
    """Whether the next element takes the place of the best one so far. See `_takes`."""
    if later_wins:
        better = x <= best if combine == "min" else x >= best
    else:
        better = x < best if combine == "min" else x > best
    if propagate_nan:
        result = (x != x) | better if later_wins else (best == best) & ((x != x) | better)
    else:
        result = (best != best) | better if later_wins else ((best != best) & (x == x)) | better
    return np.asarray(result)


def _fresh(x: Host, combine: str, later_wins: bool, propagate_nan: bool) -> Host:
    wide = x.astype(np.float32) if dt.of_array(x).is_half else x
    result, best = np.ones(x.shape, bool), wide[0]
    for k in range(1, len(x)):
        result[k] = _beats(wide[k], best, combine, later_wins, propagate_nan)
        best = np.where(result[k], wide[k], best)
    return result


def _picked(x: Host, combine: str, later_wins: bool, propagate_nan: bool) -> Host:
    fresh = _fresh(x, combine, later_wins, propagate_nan)
    place = np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1))
    return np.take_along_axis(x, np.maximum.accumulate(np.where(fresh, place, 0)), 0)


# --- lowerings ------------------------------------------------------------------------------------------------------


def sweep(
    e: Emitter, shape: Sequence[int], axis: int, reverse: bool, first: Callable[[Index], Regs],
    turn: Callable[[Index, Index, Regs], Regs],
) -> None:  # fmt: skip
    """Go along an axis of a tile that is seen as (outer, extent, inner), for all rows or columns.

    first(at) makes the carried registers at the first element; turn(at, previous, carried) gives the next ones.
    Vectors run over the columns, or over the rows if the axis is the last one.
    """
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    step = e.const(-1 if reverse else 1, dt.int64)

    def line(at: Index) -> None:
        row, column = (at[0], at[1]) if inner > 1 else (at[0], Coord(0))

        def place(k: Reg) -> Index:
            i = e.sub(e.const(n - 1, dt.int64), k) if reverse else k
            return (row, Coord(i), column)

        def body(k: Reg, *carried: Reg) -> Regs:
            here = place(k)
            before = Coord(e.sub(e.i64(here[1].base), step))
            return turn(here, (row, before, column), carried)

        e.loop(1, n, 1, first((row, Coord(n - 1 if reverse else 0), column)), body)

    e.points((outer, inner) if inner > 1 else (outer,), line)


def _lines(buffer: Buffer, axis: int) -> Buffer:
    """A tile as `sweep` sees it."""
    s = buffer.shape
    return Buffer(buffer.dtype, buffer.ptr, (math.prod(s[:axis]), s[axis], math.prod(s[axis + 1 :])))


Running = tuple[Callable[[Reg], Regs], Callable[[Regs, Reg], Regs], Callable[[Regs], Reg]]


def _running(e: Emitter, dtype: DType, combine: str, later_wins: bool, propagate_nan: bool) -> Running:
    """How carried registers begin with an element, take in the next one, and show their result."""
    if combine in ("min", "max"):
        wide = _comparable(dtype)
        return (
            lambda x: [e.cast(x, wide)],
            lambda acc, x: [_best(e, e.cast(x, wide), acc[0], combine, later_wins, propagate_nan)[1]],
            lambda acc: e.cast(acc[0], dtype),
        )
    wide = _carrier(dtype)
    if combine == "add" and _loses(dtype):

        def begin(x: Reg) -> Regs:
            first = e.cast(x, wide)
            return [first, e.sub(first, first)]

        def show(acc: Regs) -> Reg:
            return e.cast(e.select(e.compare("eq", acc[1], acc[1]), e.add(acc[0], acc[1]), acc[0]), dtype)

        return begin, lambda acc, x: _two_sum(e, acc, e.cast(x, wide)), show
    both = e.add if combine == "add" else e.mul
    return (
        lambda x: [e.cast(x, wide)],
        lambda acc, x: [both(acc[0], e.cast(x, wide))],
        lambda acc: e.cast(acc[0], dtype),
    )


def _comparable(dtype: DType) -> DType:
    return dt.float32 if dtype.is_half else dt.uint8 if dtype.kind == "b" else dtype


def _two_sum(e: Emitter, acc: Regs, x: Reg) -> Regs:
    """A sum and what its roundings have lost; see `_summed`."""
    s, lost = acc
    total = e.add(s, x)
    other = e.sub(total, s)
    error = e.add(e.sub(s, e.sub(total, other)), e.sub(x, other))
    return [total, e.add(lost, error)]


def _best(
    e: Emitter, x: Reg, best: Reg, combine: str, later_wins: bool, propagate_nan: bool
) -> tuple[Reg, Reg]:  # fmt: skip
    """Whether the next element takes the place of the best one so far, and the new best one; see `_beats`."""
    take = e.compare(
        ("le" if combine == "min" else "ge") if later_wins else "lt" if combine == "min" else "gt", x, best
    )
    if x.dtype.is_float:
        unordered, missing = e.compare("ne", x, x), e.compare("ne", best, best)
        if propagate_nan:
            take = e.or_(take, unordered)
            take = take if later_wins else e.and_(take, e.not_(missing))
        else:
            take = e.or_(take, missing if later_wins else e.and_(missing, e.not_(unordered)))
    return take, e.select(take, x, best)


# --- the ops --------------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def scan(
    t: Tile, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False, propagate_nan: bool = False
) -> Tile:  # fmt: skip
    """Running sums ("add"), products ("mul"), minima ("min") or maxima ("max") along an axis. See `tile_scan`."""
    x = _turned(t, axis, reverse)
    if combine in ("min", "max"):
        result = _picked(x, combine, reverse, propagate_nan)
    else:
        result = _accumulated(x, combine)
    if exclusive:
        start = np.full_like(x[:1], neutral(combine, dt.of_array(x)))
        result = np.concatenate([start, result[:-1]])
    return _back(result, axis, reverse)


@infer(scan)
def _scan_infer(
    t: TileType, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False, propagate_nan: bool = False
) -> Type:  # fmt: skip
    return t


@adjoint(scan)
def _scan_adjoint(
    ct: Any, out: Any, t: Any, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False,
    propagate_nan: bool = False,
) -> Any:  # fmt: skip
    if combine == "add":
        return (scan(ct, combine="add", axis=axis, reverse=not reverse, exclusive=exclusive),)
    inner = shifted(ct, axis, -1 if reverse else 1) if exclusive else ct
    if combine == "mul":
        before = scan(t, combine="mul", axis=axis, reverse=reverse, exclusive=True)
        return (chain(linear_scan(t, inner, axis=axis, reverse=not reverse, lagged=True), before),)
    fresh = scan_fresh(t, combine=combine, axis=axis, reverse=reverse, propagate_nan=propagate_nan)
    zeros = zeros_like(ct)
    runs = linear_scan(choose(fresh, zeros, 1.0), inner, axis=axis, reverse=not reverse, lagged=True)
    return (choose(fresh, runs, zeros),)


@lower(scan)
def _scan_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, *, combine: str, axis: int, reverse: bool = False,
    exclusive: bool = False, propagate_nan: bool = False,
) -> None:  # fmt: skip
    source, out = _lines(t, axis), _lines(outs[0], axis)
    begin, step, show = _running(e, t.dtype, combine, reverse, propagate_nan)

    def first(at: Index) -> Regs:
        carried = begin(e.load(source, at))
        e.store(out, at, e.const(neutral(combine, t.dtype), t.dtype) if exclusive else show(carried))
        return carried

    def turn(at: Index, previous: Index, carried: Regs) -> Regs:
        following = step(carried, e.load(source, at))
        e.store(out, at, show(carried if exclusive else following))
        return following

    sweep(e, t.shape, axis, reverse, first, turn)


def _values(d: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Host:
    """Random elements with ties; for floats with a NaN."""
    x = rng.integers(0, 2 if d.kind == "b" else 5, shape).astype(d.np)
    if d.is_float:
        x.flat[int(rng.integers(x.size))] = np.nan
    return x


_SHAPES = (((1,), 0), ((40,), 0), ((5, 7), 0), ((5, 7), 1), ((3, 4, 18), 1), ((2, 3, 2, 1, 2, 2, 3, 2), 3))


@samples(scan)
def _scan_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for combine in ("mul", "add", "max", "min"):
        for reverse in (False, True):
            # an exclusive scan of min and max holds an infinity, at which finite differences fail
            exclusive = reverse and combine in ("mul", "add")
            distinct = rng.permutation(15).reshape(5, 3) / 7.0 - 1.0  # holds a zero
            yield Sample((distinct,), {"combine": combine, "axis": 0, "reverse": reverse, "exclusive": exclusive})
    for d in dt.SCALARS:
        for combine in ("min", "max") if d.kind == "b" else ("add", "mul", "min", "max"):
            reverse, exclusive = (bool(b) for b in rng.integers(0, 2, 2))
            shape, axis = _SHAPES[int(rng.integers(len(_SHAPES)))]
            x = _values(d, shape, rng)
            yield Sample((x,), {"combine": combine, "axis": axis, "reverse": reverse, "exclusive": exclusive})
    for shape, axis in _SHAPES:
        yield Sample((rng.standard_normal(shape),), {"combine": "add", "axis": axis})
        for propagate_nan in (False, True):
            yield Sample((_values(dt.float32, shape, rng),), {
                "combine": "max", "axis": axis, "reverse": propagate_nan, "propagate_nan": propagate_nan,
            })  # fmt: skip


@op(cls="block", cooperative=True, no_gradient="the result is a bool")
def scan_fresh(t: Tile, *, combine: str, axis: int, reverse: bool = False, propagate_nan: bool = False) -> Tile:
    """Whether each element, when the running minimum or maximum comes to it, becomes the one that is picked."""
    return _back(_fresh(_turned(t, axis, reverse), combine, reverse, propagate_nan), axis, reverse)


@infer(scan_fresh)
def _scan_fresh_infer(
    t: TileType, *, combine: str, axis: int, reverse: bool = False, propagate_nan: bool = False
) -> Type:
    return TileType(dt.bool_, t.shape)


@lower(scan_fresh)
def _scan_fresh_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, *, combine: str, axis: int, reverse: bool = False,
    propagate_nan: bool = False,
) -> None:  # fmt: skip
    source, out = _lines(t, axis), _lines(outs[0], axis)
    wide = _comparable(t.dtype)

    def first(at: Index) -> Regs:
        e.store(out, at, e.const(True, dt.bool_))
        return [e.cast(e.load(source, at), wide)]

    def turn(at: Index, previous: Index, carried: Regs) -> Regs:
        take, best = _best(e, e.cast(e.load(source, at), wide), carried[0], combine, reverse, propagate_nan)
        e.store(out, at, take)
        return [best]

    sweep(e, t.shape, axis, reverse, first, turn)


@samples(scan_fresh)
def _scan_fresh_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        for combine, reverse in (("min", False), ("max", True)):
            for propagate_nan in (False, True):
                shape, axis = _SHAPES[int(rng.integers(len(_SHAPES)))]
                yield Sample((_values(d, shape, rng),), {
                    "combine": combine, "axis": axis, "reverse": reverse, "propagate_nan": propagate_nan,
                })  # fmt: skip


@op(cls="block", cooperative=True)
def linear_scan(a: Tile, b: Tile, *, axis: int, reverse: bool = False, lagged: bool = False) -> Tile:
    """The recurrence r[k] = b[k] + a[k] * r[k-1] along an axis, from r[-1] = 0; `lagged` takes a[k-1] for a[k].

    Where r[k-1] is 0 nothing is added, whatever a[k] is: in an adjoint r is a cotangent, and zero stays zero.
    Gradient: l[k] = ct[k] + a[k+1] * l[k+1] for b (the same recurrence, backwards), and l[k] * r[k-1] for a[k].
    """
    dtype = b.dtype
    wide = _carrier(dt.of_array(b)).np
    factors, terms = (_turned(x, axis, reverse).astype(wide) for x in (a, b))
    result = np.array(terms)
    for k in range(1, len(result)):
        before = result[k - 1]
        with np.errstate(all="ignore"):
            product = factors[k - 1 if lagged else k] * before
        result[k] = terms[k] + np.where(before == 0, np.zeros_like(before), product)
    return _back(result.astype(dtype), axis, reverse)


@infer(linear_scan)
def _linear_scan_infer(a: TileType, b: TileType, *, axis: int, reverse: bool = False, lagged: bool = False) -> Type:
    require_same_dtype("linear_scan", (a, b))
    if a.shape != b.shape or not a.dtype.is_float:
        raise TypeMismatch(f"linear_scan takes two float tiles of one shape, not {a} and {b}")
    return b


@adjoint(linear_scan)
def _linear_scan_adjoint(
    ct: Any, out: Any, a: Any, b: Any, *, axis: int, reverse: bool = False, lagged: bool = False
) -> Any:
    back = 1 if reverse else -1
    cts = linear_scan(a, ct, axis=axis, reverse=not reverse, lagged=not lagged)
    if lagged:
        return chain(shifted(cts, axis, -back), out), cts
    return chain(cts, shifted(out, axis, back)), cts


@lower(linear_scan)
def _linear_scan_lower(
    e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer, *, axis: int, reverse: bool = False, lagged: bool = False
) -> None:
    factors, terms, out = _lines(a, axis), _lines(b, axis), _lines(outs[0], axis)
    wide = _carrier(b.dtype)
    zero = e.const(0.0, wide)

    def first(at: Index) -> Regs:
        term = e.load(terms, at)
        e.store(out, at, term)
        return [e.cast(term, wide)]

    def turn(at: Index, previous: Index, carried: Regs) -> Regs:
        factor = e.cast(e.load(factors, previous if lagged else at), wide)
        product = e.select(e.compare("eq", carried[0], zero), zero, e.mul(factor, carried[0]))
        result = e.add(e.cast(e.load(terms, at), wide), product)
        e.store(out, at, e.cast(result, b.dtype))
        return [result]

    sweep(e, b.shape, axis, reverse, first, turn)


@samples(linear_scan)
def _linear_scan_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for lagged in (False, True):
        for reverse in (False, True):
            tiles = tuple(rng.standard_normal((4, 3)) for _ in range(2))
            yield Sample(tiles, {"axis": 0, "reverse": reverse, "lagged": lagged})
    for d in dt.FLOATS:
        shape, axis = _SHAPES[int(rng.integers(len(_SHAPES)))]
        pair = tuple(rng.uniform(-1, 1, shape).astype(d.np) for _ in range(2))
        yield Sample(pair, {"axis": axis, "lagged": True})
