"""Views: the same elements under another order or shape. Writing through a view writes the tile it was taken from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Coord, Emitter, Index, Reg, Source
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples, spelled, writeback
from tilegrad.ops.shapes import is_int, require_axes, require_axis, require_rank, require_shape, require_tile


def shape_of(t: Any) -> tuple[int, ...]:
    """The shape of an IR value, a tile reference or an array."""
    return tuple(t.type.shape) if hasattr(t, "type") else tuple(np.shape(t))


@op(view=True)
def tile_transpose(t: Tile, *, axes: tuple[int, ...]) -> Tile:
    """A view with the axes in another order; without `axes` all are reversed.

    Args:
        t: tile of any rank.
        axes: a permutation of the axes, negative ones counted from the end.

    Gradient: the cotangent with its axes put back.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_transpose(tg.tile_load(x, shape=(2, 3))))
        >>> x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((3, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    """
    return np.transpose(t, axes)


@infer(tile_transpose)
def _tile_transpose_infer(t: TileType, *, axes: tuple[int, ...]) -> Type:
    return TileType(t.dtype, tuple(t.shape[a] for a in axes))


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(k) for k in range(len(axes)))


@adjoint(tile_transpose)
def _tile_transpose_adjoint(ct: Any, out: Any, t: Any, *, axes: tuple[int, ...]) -> Any:
    return (tile_transpose(ct, axes=_inverse(axes)),)


@lower(tile_transpose)
def _tile_transpose_lower(e: Emitter, at: Index, t: Source, *, axes: tuple[int, ...]) -> Reg:
    return t.at(tuple(at[k] for k in _inverse(axes)))


@writeback(tile_transpose)
def _tile_transpose_writeback(base: Any, new: Any, *, axes: tuple[int, ...]) -> Any:
    return tile_transpose(new, axes=_inverse(axes))


@samples(tile_transpose)
def _tile_transpose_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (3, 5)).astype(d.np),), {"axes": (1, 0)})
    yield Sample((rng.standard_normal((2, 3, 4)),), {"axes": (2, 0, 1)})
    yield Sample((rng.standard_normal((2, 1, 3, 2, 1, 2, 2, 3)),), {"axes": (7, 0, 3, 1, 2, 6, 5, 4)})


@spelled(tile_transpose)
def _tile_transpose_call(t: Any, axes: Any = None) -> Any:
    ndim = require_tile("tile_transpose", "t", t).ndim
    if axes is None:
        return tile_transpose(t, axes=tuple(reversed(range(ndim))))
    listed = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    order = tuple(require_axis("tile_transpose", a, ndim) for a in listed)
    if sorted(order) != list(range(ndim)):
        raise ShapeMismatch(f"tile_transpose: axes {listed} is not a permutation of {ndim} axes")
    return tile_transpose(t, axes=order)


@op(view=True)
def tile_reshape(t: Tile, *, shape: tuple[int, ...]) -> Tile:
    """A view with another shape and the same elements in row-major order; one extent may be -1.

    Raises: ShapeMismatch if the number of elements differs.
    Gradient: the cotangent in the old shape.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_reshape(tg.tile_load(x, shape=(2, 3)), (3, -1)))
        >>> x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((3, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    return np.reshape(t, shape)


@infer(tile_reshape)
def _tile_reshape_infer(t: TileType, *, shape: tuple[int, ...]) -> Type:
    require_rank("tile_reshape", shape)
    if math.prod(shape) != t.size:
        raise ShapeMismatch(
            f"tile_reshape: a tile {t.shape} has {t.size} elements, the shape {shape} has {math.prod(shape)}"
        )
    return TileType(t.dtype, shape)


@adjoint(tile_reshape)
def _tile_reshape_adjoint(ct: Any, out: Any, t: Any, *, shape: tuple[int, ...]) -> Any:
    return (tile_reshape(ct, shape=shape_of(t)),)


@lower(tile_reshape)
def _tile_reshape_lower(e: Emitter, at: Index, t: Source, *, shape: tuple[int, ...]) -> Reg:
    linear: Reg | None = None
    for c, n in zip(at, shape, strict=True):
        i = e.lanes_of(c)
        linear = i if linear is None else e.add(e.mul(linear, e.const(n, dt.int64)), i)
    index: list[Coord] = []
    for n in reversed(t.shape):
        assert linear is not None
        index.append(e.coord(e.rem(linear, e.const(n, dt.int64))))
        linear = e.div(linear, e.const(n, dt.int64))
    return t.at(tuple(reversed(index)))


@writeback(tile_reshape)
def _tile_reshape_writeback(base: Any, new: Any, *, shape: tuple[int, ...]) -> Any:
    return tile_reshape(new, shape=shape_of(base))


@samples(tile_reshape)
def _tile_reshape_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (3, 8)).astype(d.np),), {"shape": (4, 6)})
    yield Sample((rng.standard_normal((2, 3, 4)),), {"shape": (24,)})
    yield Sample((rng.standard_normal(24),), {"shape": (1, 2, 1, 3, 1, 2, 2, 1)})


@spelled(tile_reshape)
def _tile_reshape_call(t: Any, shape: Any, *more: Any) -> Any:
    kind = require_tile("tile_reshape", "t", t)
    extents = (shape, *more) if more else tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    unknown = [k for k, n in enumerate(extents) if is_int(n) and n == -1]
    if len(unknown) > 1:
        raise ShapeMismatch("tile_reshape: only one extent may be -1")
    if unknown:
        rest = math.prod(n for n in require_shape("tile_reshape", [1 if n == -1 else n for n in extents]))
        if kind.size % rest:
            raise ShapeMismatch(f"tile_reshape: {kind.size} elements do not divide into rows of {rest}")
        extents = tuple(kind.size // rest if n == -1 else n for n in extents)
    return tile_reshape(t, shape=require_shape("tile_reshape", extents))


@op(view=True)
def tile_broadcast(t: Tile, *, shape: tuple[int, ...]) -> Tile:
    """A view that repeats a tile along axes where its extent is 1, or that it lacks in front (NumPy's rules).

    Raises: ShapeMismatch if the shapes do not fit.
    Gradient: the cotangent summed over the repeated axes.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_broadcast(tg.tile_load(x, shape=(2, 1)), shape=(2, 3)))
        >>> x, y = np.arange(2, dtype=np.float32).reshape(2, 1), np.zeros((2, 3), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    return np.broadcast_to(t, shape)


@infer(tile_broadcast)
def _tile_broadcast_infer(t: TileType, *, shape: tuple[int, ...]) -> Type:
    require_rank("tile_broadcast", shape)
    tail = shape[len(shape) - t.ndim :]
    if len(shape) < t.ndim or any(n not in (1, m) for n, m in zip(t.shape, tail, strict=True)):
        raise ShapeMismatch(
            f"tile_broadcast: a tile {t.shape} does not broadcast to {shape}",
            help="counted from the last axis, extents must be equal or 1, and no axis may be dropped",
        )
    return TileType(t.dtype, shape)


@adjoint(tile_broadcast)
def _tile_broadcast_adjoint(ct: Any, out: Any, t: Any, *, shape: tuple[int, ...]) -> Any:
    small = shape_of(t)
    lead = len(shape) - len(small)
    axes = tuple(k for k, n in enumerate(shape) if k < lead or small[k - lead] != n)
    if not axes:
        return (ct,)
    return (tile_reshape(REGISTRY["tile_sum"](ct, axes=axes), shape=small),)


@lower(tile_broadcast)
def _tile_broadcast_lower(e: Emitter, at: Index, t: Source, *, shape: tuple[int, ...]) -> Reg:
    own = at[len(shape) - len(t.shape) :]
    return t.at(tuple(Coord(0) if n == 1 else c for c, n in zip(own, t.shape, strict=True)))


@writeback(tile_broadcast)
def _tile_broadcast_writeback(base: Any, new: Any, *, shape: tuple[int, ...]) -> Any:
    raise TypeMismatch(
        f"a tile broadcast from {shape_of(base)} to {shape} cannot be written through: several of its elements are one",
        help="write to the tile itself, or broadcast a copy: tile_broadcast(t, shape).copy()",
    )


@samples(tile_broadcast)
def _tile_broadcast_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (3, 1)).astype(d.np),), {"shape": (3, 5)})
    yield Sample((rng.standard_normal(4),), {"shape": (2, 3, 4)})
    yield Sample((rng.standard_normal((1, 3, 1)),), {"shape": (2, 2, 3, 2)})
    yield Sample((rng.standard_normal(1),), {"shape": (17,)})


@spelled(tile_broadcast)
def _tile_broadcast_call(a: Any, shape: Any) -> Any:
    require_tile("tile_broadcast", "a", a)
    return tile_broadcast(a, shape=require_shape("tile_broadcast", shape))


def tile_squeeze(t: Any, axis: Any = None) -> Any:
    """A view without axes of extent 1: all of them, or those in `axis`. A tile keeps at least one axis.

    Gradient: the cotangent in the old shape.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_squeeze(tg.tile_load(x, shape=(1, 3))))
        >>> x, y = np.array([[1, 2, 3]], np.float32), np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 2.0, 3.0]
    """
    kind = require_tile("tile_squeeze", "t", t)
    if axis is None:
        axes = tuple(k for k, n in enumerate(kind.shape) if n == 1)
    else:
        axes = require_axes("tile_squeeze", axis, kind.ndim)
        for k in axes:
            if kind.shape[k] != 1:
                raise ShapeMismatch(f"tile_squeeze: axis {k} has extent {kind.shape[k]}, not 1")
    shape = tuple(n for k, n in enumerate(kind.shape) if k not in axes) or (1,)
    return tile_reshape(t, shape=shape)


PUBLIC = {
    "tile_transpose": tile_transpose,
    "tile_reshape": tile_reshape,
    "tile_broadcast": tile_broadcast,
    "tile_squeeze": tile_squeeze,
}
