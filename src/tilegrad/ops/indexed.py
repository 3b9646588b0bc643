"""Places in an array that come from an index tile: gather from an array, scatter to it, add to it.

Along one axis the places in an *array* come from a 1-D tile of integers: element k of the tile along that axis is at
`offset[axis] + indices[k]`. What lies outside the array, on either side, is treated as everywhere: a load gives
`fill`, a store or atomic add is dropped. Of equal indices in a store the highest position wins; atomic adds all count.
Does not index tiles (see `gather`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import ArrayRef, Buffer, Coord, Emitter, Index, Reg, Source
from tilegrad.ir.types import ArrayType, TileType, Type
from tilegrad.op import Array, Sample, Scalar, Tile, adjoint, describe, infer, lower, op, samples, spelled
from tilegrad.ops.indexing import tile_slice
from tilegrad.ops.memory import check_ranks, fill_value, require_array, require_value, shifted, signed
from tilegrad.ops.shapes import as_offsets, require_axis, require_shape, require_storage, require_tile
from tilegrad.ops.views import shape_of

Places = tuple[np.ndarray[Any, Any], ...]


# --- places -----------------------------------------------------------------------------------------------------------


def _places(
    indices: Any, offset: Sequence[Any], axis: int, shape: Sequence[int], extents: Sequence[int]
) -> tuple[Places, Places]:
    """For each axis the places in the array of those elements of the tile that are inside, and their numbers."""
    where, which = [], []
    for k, (first, size, extent) in enumerate(zip(offset, shape, extents, strict=True)):
        numbers = _as_int64(indices) if k == axis else np.arange(size, dtype=np.int64)
        with np.errstate(over="ignore"):
            place = numbers + _as_int64(first)
        inside = np.nonzero((place >= 0) & (place < extent))[0]
        where.append(place[inside])
        which.append(inside)
    return tuple(where), tuple(which)


def _as_int64(x: Any) -> Any:
    """Integers as int64; those of uint64 that are too large stay too large."""
    known = np.asarray(x)
    return np.minimum(known, np.uint64(dt.int64.max)).astype(np.int64) if known.dtype == np.uint64 else known.astype(
        np.int64
    )  # fmt: skip


def _in_order(where: Places, which: Places, axis: int, backwards: bool = False) -> Iterator[tuple[Any, Any]]:
    """The rows along `axis` one after another: where each is in the array, and in the tile."""
    turns = range(len(where[axis]))
    for k in reversed(turns) if backwards else turns:
        row = tuple(w[k : k + 1] if a == axis else w for a, w in enumerate(where))
        own = tuple(w[k : k + 1] if a == axis else w for a, w in enumerate(which))
        yield np.ix_(*row), np.ix_(*own)


def _index(e: Emitter, at: Index, i: Reg, offset: Sequence[Reg], axis: int) -> Index:
    """The place in the array of the element `at` of the tile, whose index along `axis` is i."""
    moved = list(shifted(e, at, offset))
    first = e.i64(signed(e, offset[axis]))
    moved[axis] = e.coord(e.add(e.i64(signed(e, i)), first))
    return tuple(moved)


def _check(what: str, a: ArrayType, indices: TileType, shape: Sequence[int], offset: Sequence[Type], axis: int) -> None:
    check_ranks(what, a, len(shape), offset)
    if not indices.dtype.is_int:
        raise TypeMismatch(
            f"{what}: the indices must be integers, they are {describe(indices)}",
            help="convert them: tile_astype(indices, int)",
        )
    if indices.shape != (shape[axis],):
        raise ShapeMismatch(
            f"{what}: axis {axis} of the tile {tuple(shape)} needs {shape[axis]} indices in a 1-D tile, "
            f"they are {describe(indices)}",
            help=f"reshape them: tile_reshape(indices, {shape[axis]})" if indices.size == shape[axis] else "",
        )


# --- load -------------------------------------------------------------------------------------------------------------


@op(effect="read", cooperative=True)
def tile_load_indexed(
    a: Array, indices: Tile, *offset: Scalar, shape: tuple[int, ...], axis: int, fill: bool | int | float = 0
) -> Tile:
    """Gather from an array: along `axis` element k of the tile comes from a[offset + indices[k]].

    Args:
        a: array with as many dimensions as the tile.
        indices: 1-D tile of integers (any type, also computed), as many as `shape[axis]`.
        shape: extents of the tile, compile-time ints.
        offset: added to every place, one int per dimension; 0 unless given.
        axis: the axis that is indexed, counted from the end if negative.
        storage: a hint of Warp; it never changes a result.
        fill: value of elements outside the array: a place that is negative or too large.

    Returns: a tile of the array's dtype.
    Raises: ShapeMismatch if ranks or the number of indices do not fit, TypeMismatch for indices that are no integers.
    Gradient: the cotangent is added to the array's gradient at the same places; equal indices add up.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], i: tg.array1d[int], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_load_indexed(x, tg.tile_load(i, shape=4), shape=4))
        >>> x, y = np.array([1, 2, 3], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, np.array([2, -1, 0, 3], np.int32), y])
        >>> y.tolist()
        [3.0, 0.0, 1.0, 0.0]
    """
    result = np.full(shape, fill, a.dtype)
    where, which = _places(indices, offset, axis, shape, a.shape)
    result[np.ix_(*which)] = a[np.ix_(*where)]
    return result


@infer(tile_load_indexed)
def _tile_load_indexed_infer(
    a: ArrayType, indices: TileType, *offset: Type, shape: tuple[int, ...], axis: int, fill: Any = 0
) -> Type:
    _check("tile_load_indexed", a, indices, shape, offset, axis)
    return TileType(a.dtype, shape)


@adjoint(tile_load_indexed)
def _tile_load_indexed_adjoint(
    ct: Any, out: Any, a: Any, indices: Any, *offset: Any, grads: tuple[Any, ...], shape: tuple[int, ...], axis: int,
    fill: Any = 0,
) -> Any:  # fmt: skip
    tile_atomic_add_indexed(grads[0], ct, indices, *offset, axis=axis)
    return (None,) * (2 + len(offset))


@lower(tile_load_indexed)
def _tile_load_indexed_lower(
    e: Emitter, at: Index, a: ArrayRef, indices: Source, *offset: Reg, shape: tuple[int, ...], axis: int,
    fill: bool | int | float = 0,
) -> Reg:  # fmt: skip
    place = _index(e, at, indices.at((at[axis],)), offset, axis)
    return e.array_get(a, place, e.const(fill, a.dtype))


#: (shape of the array, shape of the tile, offset, axis)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int], ...] = (
    ((5, 7), (4, 3), (0, 2), 0),
    ((5, 7), (3, 4), (-1, 0), 1),
    ((6,), (4,), (0,), 0),
    ((3, 4, 5), (2, 4, 3), (1, 0, -1), 1),
    ((2, 3, 2, 2, 2, 2, 2, 4), (2, 2, 1, 2, 1, 2, 1, 3), (0, 1, 0, 0, 1, 0, 0, 0), 7),
)


def _cases(rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any, tuple[int, ...], int]]:
    """Arrays, tiles, indices (some equal, some outside), offsets and axes, for every dtype of either."""
    for d in dt.SCALARS:
        for extents, shape, offset, axis in _CASES[:2]:
            a, t = (rng.integers(0, 2 if d.kind == "b" else 50, s).astype(d.np) for s in (extents, shape))
            yield a, t, rng.integers(-1, extents[axis] + 2, shape[axis]).astype(np.int32), offset, axis
    for d in dt.INTEGERS:
        extents, shape, offset, axis = _CASES[2]
        low = -1 if d.kind == "i" else 0
        indices = np.array([low, 2, d.max, 2], d.np)
        yield rng.standard_normal(extents), rng.standard_normal(shape), indices, offset, axis
    for extents, shape, offset, axis in _CASES[2:]:
        indices = rng.integers(-1, extents[axis] + 1, shape[axis]).astype(np.int64)
        yield rng.standard_normal(extents), rng.standard_normal(shape), indices, offset, axis


@samples(tile_load_indexed)
def _tile_load_indexed_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, t, indices, offset, axis in _cases(rng):
        yield Sample((a, indices, *offset), {"shape": t.shape, "axis": axis, "fill": 1})


@spelled(tile_load_indexed)
def _tile_load_indexed_call(
    a: Any, indices: Any, shape: Any, offset: Any = None, axis: Any = 0, storage: str = "register", fill: Any = 0
) -> Any:
    what = "tile_load_indexed"
    require_storage(what, storage)
    kind = require_array(what, a)
    extents = require_shape(what, shape)
    require_tile(what, "indices", indices)
    if len(extents) != kind.ndim:
        check_ranks(what, kind, len(extents), ())
    places = as_offsets(what, offset, kind.ndim)
    axis = require_axis(what, axis, kind.ndim)
    return tile_load_indexed(a, indices, *places, shape=extents, axis=axis, fill=fill_value(what, fill, kind))


# --- store ------------------------------------------------------------------------------------------------------------


@op(cls="sink", effect="write", cooperative=True)
def tile_store_indexed(a: Array, t: Tile, indices: Tile, *offset: Scalar, axis: int) -> None:
    """Scatter to an array: along `axis` element k of the tile goes to a[offset + indices[k]].

    Called `tile_store_indexed(a, indices, t, offset=None, axis=0)`. Of equal indices the highest position wins. What
    lies outside the array, on either side, is dropped.

    Args:
        a: array of the tile's dtype and rank.
        indices: 1-D tile of integers, one for each element of `t` along `axis`.
        t: the tile.
        offset: added to every place, one int per dimension; 0 unless given.
        axis: the axis that is indexed.

    Raises: ShapeMismatch if ranks or the number of indices do not fit, TypeMismatch if dtypes do not.
    Gradient: each element that was written last gets the array's gradient at its place, which is then cleared;
        elements that were overwritten or dropped get 0.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], i: tg.array1d[int], y: tg.array1d[float]):
        ...     tg.tile_store_indexed(y, tg.tile_load(i, shape=3), tg.tile_load(x, shape=3))
        >>> x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, np.array([1, 1, -1], np.int32), y])
        >>> y.tolist()
        [0.0, 2.0, 0.0]
    """
    where, which = _places(indices, offset, axis, t.shape, a.shape)
    for place, own in _in_order(where, which, axis):
        a[place] = t[own]


@infer(tile_store_indexed)
def _tile_store_indexed_infer(a: ArrayType, t: TileType, indices: TileType, *offset: Type, axis: int) -> None:
    _check("tile_store_indexed", a, indices, t.shape, offset, axis)
    require_value("tile_store_indexed", a, t)


@adjoint(tile_store_indexed)
def _tile_store_indexed_adjoint(
    ct: Any, out: Any, a: Any, t: Any, indices: Any, *offset: Any, grads: tuple[Any, ...], axis: int
) -> Any:
    result = tile_take_indexed(grads[0], indices, *offset, shape=shape_of(t), axis=axis)
    return (None, result, None, *(None,) * len(offset))


@lower(tile_store_indexed)
def _tile_store_indexed_lower(
    e: Emitter, at: Index, a: ArrayRef, t: Source, indices: Source, *offset: Reg, axis: int
) -> None:
    e.array_set(a, _index(e, at, indices.at((at[axis],)), offset, axis), t.at(at), True)


@samples(tile_store_indexed)
def _tile_store_indexed_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, t, indices, offset, axis in _cases(rng):
        yield Sample((a, t, indices, *offset), {"axis": axis})


@spelled(tile_store_indexed)
def _tile_store_indexed_call(a: Any, indices: Any, t: Any, offset: Any = None, axis: Any = 0) -> Any:
    places, axis = _scatter_arguments("tile_store_indexed", a, indices, t, offset, axis)
    return tile_store_indexed(a, t, indices, *places, axis=axis)


def _scatter_arguments(what: str, a: Any, indices: Any, t: Any, offset: Any, axis: Any) -> tuple[tuple[Any, ...], int]:
    kind = require_array(what, a)
    require_tile(what, "indices", indices)
    tile = require_tile(what, "t", t)
    if tile.ndim != kind.ndim:
        check_ranks(what, kind, tile.ndim, ())
    return as_offsets(what, offset, kind.ndim), require_axis(what, axis, kind.ndim)


@op(cls="block", effect="write", cooperative=True)
def tile_take_indexed(a: Array, indices: Tile, *offset: Scalar, shape: tuple[int, ...], axis: int) -> Tile:
    """Gather from an array and clear it, from the highest position to the lowest: the adjoint of an indexed store.

    Of equal indices the highest position won, and it is the one that gets the cotangent. 0 outside the array.
    """
    result = np.zeros(shape, a.dtype)
    where, which = _places(indices, offset, axis, shape, a.shape)
    for place, own in _in_order(where, which, axis, backwards=True):
        result[own] = a[place]
        a[place] = 0
    return result


@infer(tile_take_indexed)
def _tile_take_indexed_infer(a: ArrayType, indices: TileType, *offset: Type, shape: tuple[int, ...], axis: int) -> Type:
    _check("tile_take_indexed", a, indices, shape, offset, axis)
    return TileType(a.dtype, shape)


@adjoint(tile_take_indexed)
def _tile_take_indexed_adjoint(
    ct: Any, out: Any, a: Any, indices: Any, *offset: Any, grads: tuple[Any, ...], shape: tuple[int, ...], axis: int
) -> Any:
    tile_store_indexed(grads[0], ct, indices, *offset, axis=axis)
    return (None,) * (2 + len(offset))


@lower(tile_take_indexed)
def _tile_take_indexed_lower(
    e: Emitter, outs: list[Buffer], a: ArrayRef, indices: Buffer, *offset: Reg, shape: tuple[int, ...], axis: int
) -> None:
    zero = e.const(False if a.dtype.kind == "b" else 0, a.dtype)
    rest = shape[:axis] + shape[axis + 1 :]

    def turn(j: Reg) -> Sequence[Reg]:
        k = e.sub(e.const(shape[axis] - 1, dt.int64), j)
        i = e.load(indices, (Coord(k),))

        def point(at: Index) -> None:
            own = (*at[:axis], Coord(k), *at[axis : len(rest)])
            e.store(outs[0], own, e.array_update("take", a, _index(e, own, i, offset, axis), zero, True))

        e.points(rest or (1,), point)
        return []

    e.loop(0, shape[axis], 1, [], turn)


@samples(tile_take_indexed)
def _tile_take_indexed_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, t, indices, offset, axis in _cases(rng):
        yield Sample((a, indices, *offset), {"shape": t.shape, "axis": axis})


# --- atomic add -------------------------------------------------------------------------------------------------------


@op(cls="sink", effect="atomic", cooperative=True)
def tile_atomic_add_indexed(a: Array, t: Tile, indices: Tile, *offset: Scalar, axis: int) -> Tile:
    """Add to an array at indexed places; returns what was there before each addition (0 outside the array).

    Called `tile_atomic_add_indexed(a, indices, t, offset=None, axis=0)`; arguments and errors as for
    `tile_store_indexed`. Equal indices all count, one after another in their order.

    Gradient: each element gets the array's gradient at its place, which stays; a cotangent of the old values is added
        to the array's gradient.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], i: tg.array1d[int], y: tg.array1d[float], old: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=3)
        ...     tg.tile_store(old, tg.tile_atomic_add_indexed(y, tg.tile_load(i, shape=3), t))
        >>> x, y, old = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, np.array([1, 1, 3], np.int32), y, old])
        >>> y.tolist(), old.tolist()
        ([0.0, 3.0, 0.0], [0.0, 1.0, 0.0])
    """
    old = np.zeros_like(t)
    where, which = _places(indices, offset, axis, t.shape, a.shape)
    for place, own in _in_order(where, which, axis):
        old[own] = a[place]
        a[place] += t[own]
    return old


@infer(tile_atomic_add_indexed)
def _tile_atomic_add_indexed_infer(a: ArrayType, t: TileType, indices: TileType, *offset: Type, axis: int) -> Type:
    _check("tile_atomic_add_indexed", a, indices, t.shape, offset, axis)
    require_value("tile_atomic_add_indexed", a, t)
    if t.dtype.kind == "b":
        raise TypeMismatch("tile_atomic_add_indexed is not defined for bool", help="use an integer array")
    return t


@adjoint(tile_atomic_add_indexed)
def _tile_atomic_add_indexed_adjoint(
    ct: Any, out: Any, a: Any, t: Any, indices: Any, *offset: Any, grads: tuple[Any, ...], axis: int
) -> Any:
    none = (None,) * (1 + len(offset))
    if ct is None:
        return (None, tile_load_indexed(grads[0], indices, *offset, shape=shape_of(t), axis=axis), *none)
    # the last update of a cell is the first to be undone
    back = tile_atomic_add_indexed(grads[0], _flipped(ct, axis), _flipped(indices, 0), *offset, axis=axis)
    return (None, _flipped(back, axis), *none)


def _flipped(t: Any, axis: int) -> Any:
    """A tile with the order along one axis reversed."""
    shape = shape_of(t)
    starts = tuple(n - 1 if k == axis else 0 for k, n in enumerate(shape))
    return tile_slice(t, *starts, sizes=shape, steps=tuple(-1 if k == axis else 1 for k in range(len(shape))))


@lower(tile_atomic_add_indexed)
def _tile_atomic_add_indexed_lower(
    e: Emitter, at: Index, a: ArrayRef, t: Source, indices: Source, *offset: Reg, axis: int
) -> Reg:
    return e.array_update("add", a, _index(e, at, indices.at((at[axis],)), offset, axis), t.at(at), True)


@samples(tile_atomic_add_indexed)
def _tile_atomic_add_indexed_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, t, indices, offset, axis in _cases(rng):
        if a.dtype != bool:
            yield Sample((a, t, indices, *offset), {"axis": axis})


@spelled(tile_atomic_add_indexed)
def _tile_atomic_add_indexed_call(a: Any, indices: Any, t: Any, offset: Any = None, axis: Any = 0) -> Any:
    places, axis = _scatter_arguments("tile_atomic_add_indexed", a, indices, t, offset, axis)
    return tile_atomic_add_indexed(a, t, indices, *places, axis=axis)


PUBLIC = {
    "tile_load_indexed": tile_load_indexed,
    "tile_store_indexed": tile_store_indexed,
    "tile_atomic_add_indexed": tile_atomic_add_indexed,
}
