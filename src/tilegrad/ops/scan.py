"""Scans of tiles along one axis: running sums, products, minima and maxima, and any associative operator of the user's.

A scan keeps shape and dtype: integers wrap, float16 and bfloat16 are carried in float32, float32 in float64, and
float64 sums with their rounding errors, so that no error grows with the extent. An inclusive scan takes in the element
itself; an exclusive one is the same moved on by one place, with the neutral element first. `reverse` goes from the end
to the start. NaN counts as missing in running minima and maxima unless `propagate_nan`, and of equal elements the one
with the lowest index is meant.

The gradients are scans again. With `linear_scan`, the recurrence r[k] = b[k] + a[k] * r[k-1], every adjoint here is
exact for any data, zeros in a running product included. Does not know lanes that are absent (see frontend/call.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, kind_of, leaves, map_parts, of_leaves
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import (
    REGISTRY,
    Sample,
    Tile,
    adjoint,
    constant,
    describe,
    infer,
    lower,
    op,
    require_same_dtype,
    samples,
    spelled,
    unwrap,
)  # fmt: skip
from tilegrad.ops.arithmetic import chain
from tilegrad.ops.comparison import choose
from tilegrad.ops.indexing import tile_insert, tile_slice, zeros_like
from tilegrad.ops.operators import (
    Combine,
    Leaves,
    OfPresent,
    as_combine,
    builtin_name,
    of_present,
    part,
    parts,
    require_elements,
    with_part,
    with_parts,
)
from tilegrad.ops.shapes import require_axis, require_tile
from tilegrad.ops.views import shape_of, tile_reshape

Host = np.ndarray[Any, Any]
Regs = Sequence[Reg]

#: how a scan combines elements, and the ops by which users name it
COMBINES = {"add": "add", "mul": "mul", "minimum": "min", "maximum": "max"}


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
    """Running sums of float64 that carry the error of every addition along (TwoSum, Knuth 1969)."""
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
    if combine == "add" and x.dtype == np.float64:
        return _summed(x)
    wide = x.astype(_carrier(dt.of_array(x)).np)
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
    if combine == "add" and dtype is dt.float64:
        return (
            lambda x: [x, e.sub(x, x)],
            lambda acc, x: _two_sum(e, acc, x),
            lambda acc: e.select(e.compare("eq", acc[1], acc[1]), e.add(acc[0], acc[1]), acc[0]),
        )
    wide = _carrier(dtype)
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
def tile_scan(
    t: Tile, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False, propagate_nan: bool = False
) -> Tile:  # fmt: skip
    """Running results of an associative operator along an axis: element k combines elements 0 to k.

    Args:
        op: a builtin such as `tg.add`, `tg.mul`, `tg.min` or `tg.max`, or a function of two elements that is
            associative; the first argument is what has been combined so far.
        t: tile, of any element type that the operator takes and returns.
        axis: an int, or None for all elements in row-major order.
        reverse: from the end to the start: as if the axis were flipped before and after.
        exclusive: element k combines elements 0 to k-1 only.
        initial: what an exclusive scan starts with; the operator's neutral element unless given. An operator of the
            user's own has no known neutral element, so its exclusive scan needs `initial`.

    Returns: a tile of the same shape and dtype: small integers wrap. A scan of float16 or bfloat16 is carried in
        float32, one of float32 in float64, and a sum of float64 with its rounding errors. tg.min and tg.max count NaN
        as missing, so the result is NaN as long as nothing else was met.
    Raises: TypeMismatch if the operator changes the dtype, if sums or products of bools are asked for, or if the
        exclusive scan of a user's operator has no `initial`.
    Gradient: of a sum, the scan of the cotangent in the other direction; of a product,
        P[j] * R[j] with P the exclusive scan and R[j] = ct[j] + t[j+1] * R[j+1], exact with zeros among the elements;
        of min and max, the cotangents of each run of equal results go to the element that was picked, the one with the
        lowest index on ties; of a user's operator, its derivative along the log2(n) steps by which it is computed
        (Hillis and Steele 1986, Data parallel algorithms).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_store(y[0], tg.tile_scan(tg.mul, t + 1.0))
        ...     tg.tile_store(y[1], tg.tile_scan(lambda a, b: a + b + a * b, t, reverse=True))
        ...     tg.tile_store(y[2], tg.tile_scan(tg.add, t, exclusive=True))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros((3, 4), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[1.0, 2.0, 6.0, 24.0], [23.0, 23.0, 11.0, 3.0], [0.0, 0.0, 1.0, 3.0]]
    """
    x = _turned(t, axis, reverse)
    if combine in ("min", "max"):
        result = _picked(x, combine, reverse, propagate_nan)
    else:
        result = _accumulated(x, combine)
    if exclusive:
        start = np.full_like(x[:1], neutral(combine, dt.of_array(x)))
        result = np.concatenate([start, result[:-1]])
    return _back(result, axis, reverse)


@infer(tile_scan)
def _tile_scan_infer(
    t: TileType, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False, propagate_nan: bool = False
) -> Type:  # fmt: skip
    if t.dtype.kind == "b" and combine in ("add", "mul"):
        raise TypeMismatch(
            f"tile_scan: a running {'sum' if combine == 'add' else 'product'} of bools would be a bool",
            help="count with tile_astype(t, int32); for logic scan with tg.max (any) or tg.min (all)",
        )
    return t


@adjoint(tile_scan)
def _tile_scan_adjoint(
    ct: Any, out: Any, t: Any, *, combine: str, axis: int, reverse: bool = False, exclusive: bool = False,
    propagate_nan: bool = False,
) -> Any:  # fmt: skip
    if combine == "add":
        return (tile_scan(ct, combine="add", axis=axis, reverse=not reverse, exclusive=exclusive),)
    inner = shifted(ct, axis, -1 if reverse else 1) if exclusive else ct
    if combine == "mul":
        before = tile_scan(t, combine="mul", axis=axis, reverse=reverse, exclusive=True)
        return (chain(linear_scan(t, inner, axis=axis, reverse=not reverse, lagged=True), before),)
    fresh = scan_fresh(t, combine=combine, axis=axis, reverse=reverse, propagate_nan=propagate_nan)
    zeros = zeros_like(ct)
    runs = linear_scan(choose(fresh, zeros, 1.0), inner, axis=axis, reverse=not reverse, lagged=True)
    return (choose(fresh, runs, zeros),)


@lower(tile_scan)
def _tile_scan_lower(
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


@samples(tile_scan)
def _tile_scan_samples(rng: np.random.Generator) -> Iterator[Sample]:
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


# --- how users call scans -------------------------------------------------------------------------------------------


@spelled(tile_scan)
def _tile_scan_call(
    op: Any, t: Any, axis: Any = None, reverse: bool = False, exclusive: bool = False, initial: Any = None
) -> Any:
    elements = require_elements("tile_scan", "t", t)
    present: Leaves = (op.present,) if isinstance(op, OfPresent) else ()
    function = op.operator if isinstance(op, OfPresent) else op
    known = COMBINES.get(builtin_name(function, t), "") if not present else ""
    combine = as_combine("tile_scan", function, t)
    starts = _starts(initial, t, elements, bool(exclusive), bool(known))

    def scan(x: Leaves, k: int) -> Leaves:
        if starts:
            x = _after((*starts, *(constant(True) for _ in present)), x, k, bool(reverse))
        if known:
            left = bool(exclusive) and not starts
            return (tile_scan(x[0], combine=known, axis=k, reverse=bool(reverse), exclusive=left),)
        return _by_steps(of_present(combine) if present else combine, x, k, bool(reverse))

    made = _along((*elements, *present), axis, scan)
    return of_leaves(kind_of(t), iter(made))


def _along(elements: Leaves, axis: Any, scan: Callable[[Leaves, int], Leaves]) -> Leaves:
    """Scan along an axis, or all elements in row-major order."""
    shape = shape_of(elements[0])
    if axis is not None:
        return scan(elements, require_axis("tile_scan", axis, len(shape)))
    flat = scan(tuple(tile_reshape(x, shape=(math.prod(shape),)) for x in elements), 0)
    return tuple(tile_reshape(x, shape=shape) for x in flat)


def _starts(initial: Any, t: Any, elements: Leaves, exclusive: bool, known: bool) -> Leaves:
    """The leaves of `initial` as scalars; none if the scan starts by itself."""
    if initial is None:
        if exclusive and not known:
            raise TypeMismatch(
                "tile_scan: the exclusive scan of a user's operator needs `initial`, what the first element becomes",
                help="give the operator's neutral element, for example initial=1.0 for a product",
            )
        return ()
    if not exclusive:
        raise TypeMismatch("tile_scan: `initial` is what an exclusive scan starts with", help="write exclusive=True")
    given = tuple(leaves(initial))
    if len(given) != len(elements) or (len(given) > 1 and kind_of(initial) is not kind_of(t)):
        raise TypeMismatch(f"tile_scan: `initial` must be a {kind_of(t)}, it is {initial!r}")
    return tuple(_start(x, e.type.dtype) for x, e in zip(given, elements, strict=True))


def _start(x: Any, dtype: DType) -> Any:
    if isinstance(x, (bool, int, float)):
        if isinstance(x, bool) != (dtype.kind == "b") or not dt.literal_fits(x, dtype):
            raise TypeMismatch(f"tile_scan: `initial` {x!r} is not a value of {dtype}")
        return constant(x, dtype)
    value = unwrap(x)
    kind = getattr(value, "type", None)
    if not isinstance(kind, ScalarType) or kind.dtype is not dtype:
        found = describe(kind) if kind is not None else repr(x)
        raise TypeMismatch(f"tile_scan: `initial` must be {dtype}, it is {found}", help=f"write {dtype}(...)")
    if kind.varying:
        raise TypeMismatch("tile_scan: `initial` differs between the lanes of the block; the tile has one start")
    return value


def _after(starts: Leaves, x: Leaves, axis: int, reverse: bool) -> Leaves:
    """The elements moved on by one place, after a first one."""
    shape = shape_of(x[0])
    moved = []
    for start, t in zip(starts, x, strict=True):
        full = REGISTRY["tile_full"](start, shape=shape)
        if shape[axis] > 1:
            rest = part(t, axis, 1 if reverse else 0, shape[axis] - 1)
            full = with_part(full, rest, axis, 0 if reverse else 1)
        moved.append(full)
    return tuple(moved)


def _by_steps(combine: Combine, x: Leaves, axis: int, reverse: bool) -> Leaves:
    """An inclusive scan in log2(n) steps, of which step s combines what is 2**s places apart (Hillis, Steele 1986)."""
    n, distance = shape_of(x[0])[axis], 1
    while distance < n:
        low, high = parts(x, axis, 0, n - distance), parts(x, axis, distance, n - distance)
        made = combine(high, low) if reverse else combine(low, high)
        x = with_parts(x, made, axis, 0 if reverse else distance)
        distance *= 2
    return x


def _running_scan(what: str, a: Any, axis: Any, combine: str, **attrs: bool) -> Any:
    t = unwrap(a)
    require_tile(what, "a", a)
    return _along((t,), axis, lambda x, k: (tile_scan(x[0], combine=combine, axis=k, **attrs),))[0]


def tile_scan_inclusive(a: Any, axis: Any = None) -> Any:
    """Running sums: element k is a[0] + ... + a[k].

    Args:
        a: tile, or a tile of vectors or matrices, of any numeric type.
        axis: an int, or None for all elements in row-major order.

    Returns: a tile of the same shape and dtype; integers wrap. The error of floats does not grow with the extent.
    Gradient: the running sums of the cotangent from the end to the start.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 3.0, 6.0, 10.0]
    """
    return _part_by_part("tile_scan_inclusive", a, axis, exclusive=False)


def tile_scan_exclusive(a: Any, axis: Any = None) -> Any:
    """Running sums without the element itself: element k is a[0] + ... + a[k-1], the first is 0.

    Args:
        a: tile, or a tile of vectors or matrices, of any numeric type.
        axis: an int, or None for all elements in row-major order.

    Returns: a tile of the same shape and dtype; integers wrap. The error of floats does not grow with the extent.
    Gradient: the exclusive running sums of the cotangent from the end to the start.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_exclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [0.0, 1.0, 3.0, 6.0]
    """
    return _part_by_part("tile_scan_exclusive", a, axis, exclusive=True)


def _part_by_part(what: str, a: Any, axis: Any, exclusive: bool) -> Any:
    if isinstance(a, Composite):
        return map_parts(lambda t: _running_scan(what, t, axis, "add", exclusive=exclusive), a)
    return _running_scan(what, a, axis, "add", exclusive=exclusive)


def tile_scan_max_inclusive(a: Any, axis: Any = None, propagate_nan: bool = False) -> Any:
    """Running maxima: element k is the largest of a[0] to a[k].

    Args:
        a: tile of numbers or bools.
        axis: an int, or None for all elements in row-major order.
        propagate_nan: a NaN stays, as in NumPy; otherwise NaN counts as missing.

    Returns: a tile of the same shape and dtype.
    Gradient: to the element that was picked, the first one on ties.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_max_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.array([1, np.nan, 3, 2], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 1.0, 3.0, 3.0]
    """
    return _running_scan("tile_scan_max_inclusive", a, axis, "max", propagate_nan=bool(propagate_nan))


def tile_scan_min_inclusive(a: Any, axis: Any = None, propagate_nan: bool = False) -> Any:
    """Running minima: element k is the smallest of a[0] to a[k].

    Args:
        a: tile of numbers or bools.
        axis: an int, or None for all elements in row-major order.
        propagate_nan: a NaN stays, as in NumPy; otherwise NaN counts as missing.

    Returns: a tile of the same shape and dtype.
    Gradient: to the element that was picked, the first one on ties.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_min_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.array([3, np.nan, 1, 2], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [3.0, 3.0, 1.0, 1.0]
    """
    return _running_scan("tile_scan_min_inclusive", a, axis, "min", propagate_nan=bool(propagate_nan))


PUBLIC = {
    "tile_scan": tile_scan,
    "tile_scan_inclusive": tile_scan_inclusive,
    "tile_scan_exclusive": tile_scan_exclusive,
    "tile_scan_max_inclusive": tile_scan_max_inclusive,
    "tile_scan_min_inclusive": tile_scan_min_inclusive,
}
