"""Moving whole tiles between the block and arrays: load, store, atomic add.

A tile may hang over the edge of its array on any side: outside, a load gives `fill` and a store or atomic add is
dropped. Offsets count elements. Atomic adds of different blocks to one cell happen in the order of the blocks, so
their rounding does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import ArrayRef, Coord, Emitter, Index, Reg, Source
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type
from tilegrad.op import (
    REGISTRY,
    Array,
    Sample,
    Scalar,
    Tile,
    adjoint,
    constant,
    describe,
    exact,
    infer,
    lower,
    op,
    samples,
    spelled,
    unwrap,
)  # fmt: skip
from tilegrad.ops.shapes import as_offsets, require_indices, require_shape, require_storage, require_tile

Range = tuple[slice, ...]


def overlap(offset: Sequence[Any], tile: Sequence[int], array: Sequence[int]) -> tuple[Range, Range]:
    """The part of a tile that lies inside an array: its slices in the array and in the tile."""
    inside, part = [], []
    for first, size, extent in zip(offset, tile, array, strict=True):
        start = min(max(0, int(first)), extent)
        stop = max(start, min(int(first) + size, extent))
        inside.append(slice(start, stop))
        part.append(slice(start - int(first), stop - int(first)) if stop > start else slice(0, 0))
    return tuple(inside), tuple(part)


def signed(e: Emitter, i: Reg) -> Reg:
    """An index as a signed integer: one that is too large for int64 stays too large, and never turns negative."""
    if i.dtype is not dt.uint64:
        return i
    return e.cast(e.minimum(i, e.const(dt.int64.max, dt.uint64)), dt.int64)


def shifted(e: Emitter, at: Index, offset: Sequence[Reg]) -> Index:
    """A tile index moved by run-time offsets."""
    firsts = [e.i64(signed(e, o)) for o in offset]
    return tuple(Coord(e.add(o, e.i64(c.base)), c.step, c.gather) for c, o in zip(at, firsts, strict=True))


def check_ranks(what: str, a: ArrayType, ndim: int, offset: Sequence[Type]) -> None:
    """An array and a tile must have equal rank, and as many uniform integer offsets."""
    if a.ndim != ndim:
        raise ShapeMismatch(
            f"{what}: the array has {a.ndim} dimensions, the tile {ndim}",
            help="take a part of the array with a[i], or give the tile an extent of 1",
        )
    if len(offset) != a.ndim:
        raise ShapeMismatch(f"{what}: {a.ndim} offsets are needed, {len(offset)} were given")
    require_indices(what, offset)
    if any(isinstance(t, ScalarType) and t.varying for t in offset):
        raise TypeMismatch(f"{what}: the offset differs between the lanes of the block; a tile has one place")


@op(effect="read", cooperative=True)
def tile_load(a: Array, *offset: Scalar, shape: tuple[int, ...], fill: bool | int | float = 0) -> Tile:
    """Read a tile from an array: element i of the tile is a[offset + i].

    Args:
        a: array with as many dimensions as the tile.
        shape: extents of the tile, compile-time ints (an int for 1-D).
        offset: where the tile starts, one int per dimension in elements; may be a run-time value, may be negative.
        storage, bounds_check, aligned: hints of Warp; they never change a result.
        fill: value of elements outside the array.

    Returns: a tile of the array's dtype.
    Raises: ShapeMismatch if the ranks differ.
    Gradient: the cotangent is added to the array's gradient at the same place; outside it is dropped.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_load(x, shape=4, offset=2, fill=-1))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [2.0, 3.0, -1.0, -1.0]
    """
    result = np.full(shape, fill, a.dtype)
    inside, part = overlap(offset, shape, a.shape)
    result[part] = a[inside]
    return result


@infer(tile_load)
def _tile_load_infer(a: ArrayType, *offset: Type, shape: tuple[int, ...], fill: Any = 0) -> Type:
    check_ranks("tile_load", a, len(shape), offset)
    return TileType(a.dtype, shape)


@adjoint(tile_load)
def _tile_load_adjoint(
    ct: Any, out: Any, a: Any, *offset: Any, grads: tuple[Any, ...], shape: tuple[int, ...], fill: Any = 0
) -> Any:
    tile_atomic_add(grads[0], ct, *offset)
    return (None,) * (1 + len(offset))


@lower(tile_load)
def _tile_load_lower(
    e: Emitter, at: Index, a: ArrayRef, *offset: Reg, shape: tuple[int, ...], fill: bool | int | float = 0
) -> Reg:
    return e.array_get(a, shifted(e, at, offset), e.const(fill, a.dtype))


@samples(tile_load)
def _tile_load_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        a = rng.integers(0, 2 if d.kind == "b" else 50, (5, 7)).astype(d.np)
        yield Sample((a, 1, 2), {"shape": (3, 4)})
        yield Sample((a, -2, 5), {"shape": (4, 5), "fill": 1})
    for ndim in range(1, 9):
        a = rng.standard_normal((3,) * ndim)
        yield Sample((a, *range(-1, ndim - 1)), {"shape": (2,) * ndim})


@spelled(tile_load)
def _tile_load_call(
    a: Any, shape: Any, offset: Any = None, storage: str = "register", bounds_check: bool = True,
    aligned: bool = False, fill: Any = 0,
) -> Any:  # fmt: skip
    require_storage("tile_load", storage)
    t = require_array("tile_load", a)
    extents = require_shape("tile_load", shape)
    if len(extents) != t.ndim:
        check_ranks("tile_load", t, len(extents), ())
    return tile_load(a, *as_offsets("tile_load", offset, t.ndim), shape=extents, fill=fill_value("tile_load", fill, t))


def require_array(what: str, a: Any) -> ArrayType:
    """The type of an array argument."""
    t = getattr(unwrap(a), "type", None)
    if not isinstance(t, ArrayType):
        found = describe(t) if t is not None else repr(a)
        raise TypeMismatch(f"{what}: the first argument must be an array, it is {found}")
    return t


def fill_value(what: str, fill: Any, t: ArrayType) -> bool | int | float:
    """The compile-time number that stands for what is outside an array."""
    known = unwrap(fill)
    attrs = getattr(getattr(known, "op", None), "attrs", None)
    value = attrs["value"] if attrs and "value" in attrs and "dtype" in attrs else fill
    if not isinstance(value, (bool, int, float, np.generic)):
        raise TypeMismatch(
            f"{what}: fill must be a compile-time number",
            help="load with two fills and choose, or write where(inside, t, x) for a run-time x",
        )
    plain: bool | int | float = value.item() if isinstance(value, np.generic) else value
    if not dt.literal_fits(plain, t.dtype) and t.dtype.kind != "b":
        raise TypeMismatch(
            f"{what}: fill {plain!r} is not a value of {t.dtype}", help="the fill is an element of the array's type"
        )
    return exact(plain, t.dtype)


def require_value(what: str, a: ArrayType, t: TileType) -> None:
    """An array and a tile must have equal dtypes."""
    if a.dtype is not t.dtype:
        raise TypeMismatch(
            f"{what}: the array holds {a.dtype}, the tile {t.dtype}",
            help=f"convert the tile: tile_astype(t, {a.dtype})",
        )


@op(cls="sink", effect="write", cooperative=True)
def tile_store(a: Array, t: Tile, *offset: Scalar) -> None:
    """Write a tile to an array: a[offset + i] becomes element i of the tile. What lies outside is dropped.

    Args:
        a: array of the tile's dtype and rank.
        t: the tile.
        offset: where the tile goes, one int per dimension in elements.

    Raises: ShapeMismatch if the ranks differ, TypeMismatch if the dtypes do.
    Gradient: the array's gradient at that place is the tile's cotangent, and is cleared, as the old contents are gone.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_load(x, shape=3), offset=-1)
        >>> x, y = np.arange(3, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 2.0, 0.0, 0.0]
    """
    inside, part = overlap(offset, t.shape, a.shape)
    a[inside] = t[part]


@infer(tile_store)
def _tile_store_infer(a: ArrayType, t: TileType, *offset: Type) -> None:
    check_ranks("tile_store", a, t.ndim, offset)
    require_value("tile_store", a, t)


@adjoint(tile_store)
def _tile_store_adjoint(ct: Any, out: Any, a: Any, t: Any, *offset: Any, grads: tuple[Any, ...]) -> Any:
    grad, shape = grads[0], _shape(t)
    result = tile_load(grad, *offset, shape=shape)
    tile_store(grad, _zeros_like(t), *offset)
    return (None, result, *(None,) * len(offset))


def _shape(t: Any) -> tuple[int, ...]:
    return tuple(t.type.shape) if hasattr(t, "type") else tuple(t.shape)


def _zeros_like(t: Any) -> Any:
    dtype = t.type.dtype if hasattr(t, "type") else dt.as_dtype(t.dtype)
    assert dtype is not None
    zero = constant(0, dtype) if hasattr(t, "type") else dtype(0)
    return REGISTRY["tile_full"](zero, shape=_shape(t))


@lower(tile_store)
def _tile_store_lower(e: Emitter, at: Index, a: ArrayRef, t: Source, *offset: Reg) -> None:
    e.array_set(a, shifted(e, at, offset), t.at(at), True)


@samples(tile_store)
def _tile_store_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        t = rng.integers(0, 2 if d.kind == "b" else 50, (3, 4)).astype(d.np)
        yield Sample((np.zeros((5, 7), d.np), t, 1, 2))
        yield Sample((np.zeros((5, 7), d.np), t, -1, 5))
    for ndim in range(1, 9):
        yield Sample((rng.standard_normal((3,) * ndim), rng.standard_normal((2,) * ndim), *range(-1, ndim - 1)))


@spelled(tile_store)
def _tile_store_call(a: Any, t: Any, offset: Any = None, bounds_check: bool = True, aligned: bool = False) -> Any:
    ndim = require_array("tile_store", a).ndim
    require_tile("tile_store", "t", t)
    return tile_store(a, t, *as_offsets("tile_store", offset, ndim))


@op(cls="sink", effect="atomic", cooperative=True)
def tile_atomic_add(a: Array, t: Tile, *offset: Scalar) -> Tile:
    """Add a tile to an array and return what was there before (0 outside the array).

    Args and errors: as for `tile_store`.
    Gradient: the array's gradient at that place is added to the tile's cotangent and stays; a cotangent of the old
    values is added to the array's gradient.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_atomic_add(y, tg.tile_load(x, shape=3))
        >>> x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        >>> tg.launch_tiled(example, dim=2, inputs=[x, y])
        >>> y.tolist()
        [1.0, 3.0, 5.0]
    """
    old = np.zeros_like(t)
    inside, part = overlap(offset, t.shape, a.shape)
    old[part] = a[inside]
    a[inside] += t[part]
    return old


@infer(tile_atomic_add)
def _tile_atomic_add_infer(a: ArrayType, t: TileType, *offset: Type) -> Type:
    check_ranks("tile_atomic_add", a, t.ndim, offset)
    require_value("tile_atomic_add", a, t)
    if t.dtype.kind == "b":
        raise TypeMismatch("tile_atomic_add is not defined for bool", help="use an integer array")
    return t


@adjoint(tile_atomic_add)
def _tile_atomic_add_adjoint(ct: Any, out: Any, a: Any, t: Any, *offset: Any, grads: tuple[Any, ...]) -> Any:
    grad = grads[0]
    result = tile_load(grad, *offset, shape=_shape(t)) if ct is None else tile_atomic_add(grad, ct, *offset)
    return (None, result, *(None,) * len(offset))


@lower(tile_atomic_add)
def _tile_atomic_add_lower(e: Emitter, at: Index, a: ArrayRef, t: Source, *offset: Reg) -> Reg:
    return e.array_update("add", a, shifted(e, at, offset), t.at(at), True)


@samples(tile_atomic_add)
def _tile_atomic_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        a, t = (rng.integers(0, 50, s).astype(d.np) for s in ((5, 7), (3, 4)))
        yield Sample((a, t, 3, -2))
    yield Sample((rng.standard_normal((4, 4, 4)), rng.standard_normal((3, 3, 3)), 2, -1, 0))


@spelled(tile_atomic_add)
def _tile_atomic_add_call(a: Any, t: Any, offset: Any = None, bounds_check: bool = True) -> Any:
    ndim = require_array("tile_atomic_add", a).ndim
    require_tile("tile_atomic_add", "t", t)
    return tile_atomic_add(a, t, *as_offsets("tile_atomic_add", offset, ndim))


PUBLIC = {"tile_load": tile_load, "tile_store": tile_store, "tile_atomic_add": tile_atomic_add}
