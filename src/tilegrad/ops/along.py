"""Elements picked along one axis: `tile_take_along`, and the op that gives them back, its adjoint.

Every line along the axis has its own list of positions, unlike `t[idx, :]` (see `gather`), where all share one. Inside
the ops a position counts from the end if it is negative and is moved into the tile if it is still outside; that it is
inside is checked once, by the call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, first_leaf, map_parts
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.indexing import zeros_like
from tilegrad.ops.memory import signed
from tilegrad.ops.shapes import require_axis, require_tile
from tilegrad.ops.views import shape_of, tile_broadcast, tile_reshape

Host = np.ndarray[Any, Any]


def _inside(index: Any, extent: int) -> Host:
    """Positions in a body: negative ones count from the end, and all end up inside."""
    i = np.asarray(index)
    if i.dtype == np.uint64:
        i = np.minimum(i, np.uint64(dt.int64.max))
    wide = i.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)


def _line_type(what: str, t: TileType, index: TileType, axis: int) -> TileType:
    """The type of what is picked: all extents but that of the axis are the tile's own."""
    if not index.dtype.is_int:
        raise TypeMismatch(f"{what}: indices must be integers, they are {describe(index)}")
    others = [s[:axis] + s[axis + 1 :] for s in (t.shape, index.shape)]
    if t.ndim != index.ndim or others[0] != others[1]:
        raise ShapeMismatch(f"{what}: a tile {t.shape} and indices {index.shape} must agree but for axis {axis}")
    return TileType(t.dtype, index.shape)


@op(cls="block", cooperative=True)
def take_along(t: Tile, index: Tile, *, axis: int, distinct: bool = False) -> Tile:
    """Element [.., k, ..] is t[.., index[.., k, ..], ..]. `distinct`: no line names a position twice.

    Gradient: the cotangent is added at the positions that were read.
    """
    return np.take_along_axis(t, _inside(index, t.shape[axis]), axis)


@infer(take_along)
def _take_along_infer(t: TileType, index: TileType, *, axis: int, distinct: bool = False) -> Type:
    return _line_type("take_along", t, index, axis)


@adjoint(take_along)
def _take_along_adjoint(ct: Any, out: Any, t: Any, index: Any, *, axis: int, distinct: bool = False) -> Any:
    narrow = _dtype_of(ct)
    if distinct or not narrow.is_half:
        return (add_along(zeros_like(t), ct, index, axis=axis, distinct=distinct), None)
    # many contributions to one element are added in float32 and rounded once
    cast = REGISTRY["astype"]
    total = add_along(cast(zeros_like(t), dtype=dt.float32), cast(ct, dtype=dt.float32), index, axis=axis)
    return (cast(total, dtype=narrow), None)


def _dtype_of(t: Any) -> dt.DType:
    found: dt.DType = t.type.dtype if hasattr(t, "type") else dt.of_array(t)
    return found


@lower(take_along)
def _take_along_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, index: Buffer, *, axis: int, distinct: bool = False
) -> None:
    source, target = _flat(t), outs[0]

    def point(at: Index) -> None:
        e.store(target, at, e.load(source, (_place(e, t, at, axis, e.load(index, at)),)))

    e.points(target.shape, point)


def _flat(buffer: Buffer) -> Buffer:
    return Buffer(buffer.dtype, buffer.ptr, (math.prod(buffer.shape),))


def _place(e: Emitter, t: Buffer, at: Index, axis: int, index: Reg) -> Coord:
    """Where in the flat tile the element lies that has position `index` on the axis and `at` on the others."""
    extent = e.const(t.shape[axis], dt.int64)
    i = e.i64(signed(e, index))
    i = e.select(e.compare("lt", i, e.const(0, dt.int64)), e.add(i, extent), i)
    i = e.minimum(e.maximum(i, e.const(0, dt.int64)), e.const(t.shape[axis] - 1, dt.int64))
    flat = e.mul(i, e.const(t.strides[axis], dt.int64))
    for k, (c, stride) in enumerate(zip(at, t.strides, strict=True)):
        if k != axis:
            flat = e.add(flat, e.mul(e.lanes_of(c), e.const(stride, dt.int64)))
    return Coord(flat, 0, gather=flat.width > 1)


#: (shape, extent of the indices, axis)
_CASES: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((7,), 19, 0),
    ((4, 5), 3, 0),
    ((3, 5, 2), 6, 1),
    ((3, 18), 7, 1),
    ((2, 3, 2, 2, 1, 2, 2, 3), 4, 5),
)


def _cases(rng: np.random.Generator, dtypes: Sequence[dt.DType]) -> Iterator[tuple[Any, Any, Any, dict[str, Any]]]:
    for case in _CASES:
        yield _case(rng, case, dt.float64, dt.int32)
    for d in dtypes:
        yield _case(rng, _CASES[3], d, dt.int64)
    for d in dt.INTEGERS:
        yield _case(rng, _CASES[1], dt.float32, d)


def _case(rng: np.random.Generator, case: tuple[tuple[int, ...], int, int], d: dt.DType, kind: dt.DType) -> Any:
    shape, count, axis = case
    picked = (*shape[:axis], count, *shape[axis + 1 :])
    t, new = (
        rng.standard_normal(s) if d is dt.float64 else rng.integers(0, 2, s).astype(d.np) for s in (shape, picked)
    )
    low = 0 if kind.kind == "u" else -shape[axis]
    return t, new, rng.integers(low, shape[axis], picked).astype(kind.np), {"axis": axis}


def _permuted(rng: np.random.Generator) -> tuple[Any, Any, Any, dict[str, Any]]:
    order = np.argsort(rng.random((3, 21)), axis=1).astype(np.int32)
    return rng.standard_normal((3, 21)), rng.standard_normal((3, 21)), order, {"axis": 1, "distinct": True}


@samples(take_along)
def _take_along_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for t, _, index, attrs in (_permuted(rng), *_cases(rng, dt.SCALARS)):
        yield Sample((t, index), attrs)


@op(cls="block", cooperative=True)
def add_along(t: Tile, new: Tile, index: Tile, *, axis: int, distinct: bool = False) -> Tile:
    """The tile with new[.., k, ..] added to element [.., index[.., k, ..], ..], for one k after the other.

    Gradient: the cotangent passes to `t`, and from each position to what was added there.
    """
    result = np.array(t)
    front, values = np.moveaxis(result, axis, 0), np.moveaxis(new, axis, 0)
    index_front = np.moveaxis(_inside(index, t.shape[axis]), axis, 0)
    for i, value in zip(index_front, values, strict=True):
        old = np.take_along_axis(front, i[None], 0)
        np.put_along_axis(front, i[None], old + value, 0)
    return result


@infer(add_along)
def _add_along_infer(t: TileType, new: TileType, index: TileType, *, axis: int, distinct: bool = False) -> Type:
    if t.dtype.kind == "b":
        raise TypeMismatch("add_along is not defined for bool")
    if _line_type("add_along", t, index, axis) != new:
        raise ShapeMismatch(f"add_along: {describe(new)} is added to {describe(t)} at indices {index.shape}")
    return t


@adjoint(add_along)
def _add_along_adjoint(ct: Any, out: Any, t: Any, new: Any, index: Any, *, axis: int, distinct: bool = False) -> Any:
    return (ct, take_along(ct, index, axis=axis, distinct=distinct), None)


@lower(add_along)
def _add_along_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, new: Buffer, index: Buffer, *, axis: int, distinct: bool = False
) -> None:
    """Vectors run along the last axis, unless that is the axis of the positions and some of them may meet."""
    e.copy(outs[0], t)
    target, shape = _flat(outs[0]), new.shape

    def add(at: Index) -> None:
        place = (_place(e, t, at, axis, e.load(index, at)),)
        e.store(target, place, _plus(e, e.load(target, place), e.load(new, at)))

    if distinct:
        e.points(shape, add)
    elif axis == len(shape) - 1:
        e.points(shape, add, 1)
    else:
        _in_order(e, shape, add)


def _in_order(e: Emitter, shape: Sequence[int], body: Any) -> None:
    """The rows of a tile one after the other."""

    def row(r: Reg) -> Sequence[Reg]:
        lead: list[Coord] = []
        for n in reversed(shape[:-1]):
            lead.insert(0, Coord(e.rem(r, e.const(n, dt.int64))))
            r = e.div(r, e.const(n, dt.int64))
        e.points(tuple(shape[-1:]), lambda at: body((*lead, at[0])))
        return []

    e.loop(0, math.prod(shape[:-1]), 1, [], row)


def _plus(e: Emitter, x: Reg, y: Reg) -> Reg:
    if not x.dtype.is_half:
        return e.add(x, y)
    return e.cast(e.add(e.cast(x, dt.float32), e.cast(y, dt.float32)), x.dtype)


@samples(add_along)
def _add_along_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for t, new, index, attrs in (_permuted(rng), *_cases(rng, dt.NUMERIC)):
        yield Sample((t, new, index), attrs)


# --- the call ---------------------------------------------------------------------------------------------------------


def tile_take_along(t: Any, indices: Any, axis: Any = -1) -> Any:
    """Elements picked along an axis, for every line by its own indices, as `numpy.take_along_axis`.

    Args:
        t: tile of any element type, composite ones included.
        indices: tile of integers with as many axes; on the other axes the extents must be equal or 1. Negative indices
            count from the end.
        axis: an int; None picks from all elements in row-major order and takes 1-D indices.

    Returns: a tile of the dtype of `t`, with the extent of `indices` on the axis.
    Raises: TypeMismatch if the indices are no integers, ShapeMismatch if the shapes do not fit; KernelIndexError at the
        launch if an index is outside of the axis.
    Gradient: the cotangent is added at the elements that were read; one that was read twice gets both.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], i: tg.array2d[int], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=(2, 3))
        ...     tg.tile_store(y, tg.tile_take_along(t, tg.tile_load(i, shape=(2, 2)), axis=1))
        >>> x, i = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[2, 0], [1, -1]], np.int32)
        >>> y = np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, i, y])
        >>> y.tolist()
        [[2.0, 0.0], [4.0, 5.0]]
    """
    kind = require_tile("tile_take_along", "t", first_leaf(t) if isinstance(t, Composite) else t)
    picks = require_tile("tile_take_along", "indices", indices)
    if not picks.dtype.is_int:
        raise TypeMismatch(
            f"tile_take_along: indices must be integers, they are {describe(picks)}",
            help="convert them with tile_astype(indices, int)",
        )
    flat = axis is None
    shape = (kind.size,) if flat else kind.shape
    along = 0 if flat else require_axis("tile_take_along", axis, kind.ndim)
    source, picked = _common_shapes(shape, picks.shape, along)
    _check_inside(unwrap(indices), shape[along], along)
    index = _spread(unwrap(indices), picked)

    def take(part: Any) -> Any:
        whole = unwrap(part)
        whole = tile_reshape(whole, shape=shape) if flat and kind.ndim > 1 else whole
        return take_along(_spread(whole, source), index, axis=along)

    return map_parts(take, t) if isinstance(t, Composite) else take(t)


def _common_shapes(shape: Sequence[int], picks: Sequence[int], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the tile and of the indices with the extents of the other axes made equal."""
    fits = len(shape) == len(picks) and all(
        n == m or 1 in (n, m) or k == axis for k, (n, m) in enumerate(zip(shape, picks, strict=True))
    )
    if not fits:
        raise ShapeMismatch(
            f"tile_take_along: a tile {tuple(shape)} and indices {tuple(picks)} do not fit",
            help=f"both need {len(shape)} axes, with equal extents (or 1) but for axis {axis}",
        )
    both = [max(n, m) for n, m in zip(shape, picks, strict=True)]
    first, second = ([*both[:axis], s[axis], *both[axis + 1 :]] for s in (shape, picks))
    return tuple(first), tuple(second)


def _spread(t: Any, shape: tuple[int, ...]) -> Any:
    return t if shape_of(t) == shape else tile_broadcast(t, shape=shape)


def _check_inside(index: Any, extent: int, axis: int) -> None:
    """Raise at the launch if an index lies outside of the axis."""
    axes = tuple(range(index.type.ndim))
    cast = REGISTRY["astype"]

    def extreme(name: str) -> Any:
        return REGISTRY["tile_extract"](REGISTRY[f"tile_{name}"](index, axes=axes), 0)

    last = extreme("max")
    if index.type.dtype is dt.uint64:
        last = REGISTRY["minimum"](last, dt.int64.max)
    last = cast(last, dtype=dt.int64)
    ok, shown = REGISTRY["lt"](last, extent), last
    if index.type.dtype.kind == "i":
        first = cast(extreme("min"), dtype=dt.int64)
        low = REGISTRY["ge"](first, -extent)
        ok, shown = REGISTRY["bit_and"](low, ok), REGISTRY["where"](low, last, first)
    message = "index {} is out of range for axis {} with size {}"
    REGISTRY["check"](ok, shown, axis, extent, kind="index", message=message)


PUBLIC = {"tile_take_along": tile_take_along}
