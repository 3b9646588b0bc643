"""Making tiles: filled with one value, or with a sequence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Index, Reg
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import REGISTRY, Sample, Scalar, Tile, adjoint, constant, infer, lower, op, samples, spelled, unwrap
from tilegrad.ops.shapes import is_int, require_dtype, require_shape, require_storage


@op()
def tile_full(value: Scalar, *, shape: tuple[int, ...]) -> Tile:
    """A tile with every element equal to `value`.

    Args:
        shape: extents, 1 to 8 positive compile-time ints (an int for a 1-D tile).
        value: a number that is the same for the whole block.
        dtype: element type; that of `value` if not given.
        storage: a hint, "register" or "shared"; it never changes a result.

    Gradient: the sum of the cotangent flows to `value`.

    Example:
        >>> import tilegrad as tg
        >>> @tg.kernel
        ... def fill(out: tg.array1d[float]):
        ...     tg.tile_store(out, tg.tile_full(shape=4, value=2.5))
        >>> out = tg.zeros(4)
        >>> tg.launch_tiled(fill, dim=1, inputs=[out])
        >>> out.numpy().tolist()
        [2.5, 2.5, 2.5, 2.5]
    """
    return np.full(shape, value, dtype=np.asarray(value).dtype)


@infer(tile_full)
def _tile_full_infer(value: ScalarType, *, shape: tuple[int, ...]) -> Type:
    if value.varying:
        raise TypeMismatch(
            "tile_full: the value differs between the lanes of the block",
            help="tile(x) makes a tile with one element per lane",
        )
    return TileType(value.dtype, shape)


@adjoint(tile_full)
def _tile_full_adjoint(ct: Any, out: Any, value: Any, *, shape: tuple[int, ...]) -> Any:
    total = REGISTRY["tile_sum"](ct, axes=tuple(range(len(shape))))
    return (REGISTRY["tile_extract"](total, 0),)


@lower(tile_full)
def _tile_full_lower(e: Emitter, at: Index, value: Reg, *, shape: tuple[int, ...]) -> Reg:
    return value


@samples(tile_full)
def _tile_full_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((d(1),), {"shape": (3, 5)})
    yield Sample((dt.float64(0.7),), {"shape": (2, 1, 3, 1, 2, 1, 1, 4)})
    yield Sample((dt.float32(-2.5),), {"shape": (1,)})


@spelled(tile_full)
def _tile_full_call(shape: Any, value: Any, dtype: Any = None, storage: str = "register") -> Any:
    require_storage("tile_full", storage)
    extents = require_shape("tile_full", shape)
    if dtype is None:
        return tile_full(value, shape=extents)
    return tile_full(_as(value, require_dtype("tile_full", dtype)), shape=extents)


def _as(value: Any, dtype: DType) -> Any:
    """A literal, or a cast of a run-time scalar."""
    if isinstance(value, (bool, int, float, np.generic)):
        return constant(value, dtype)
    v = unwrap(value)
    return v if v.type.dtype is dtype else REGISTRY["astype"](v, dtype=dtype)


def zeros(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile of zeros. See `tile_full` for the arguments; the dtype is float32 unless given.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_zeros(shape=2, dtype=float))
        >>> y = np.ones(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [0.0, 0.0, 1.0]
    """
    return _filled("tile_zeros", shape, 0, dtype, storage)


def ones(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile of ones. See `tile_full` for the arguments; the dtype is float32 unless given.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_ones(shape=2, dtype=float))
        >>> y = np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [1.0, 1.0, 0.0]
    """
    return _filled("tile_ones", shape, 1, dtype, storage)


def empty(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile to be overwritten. Its elements are zeros, so that no result depends on what memory held before.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     t = tg.tile_empty(shape=2, dtype=float)
        ...     t[0] = 3.0
        ...     tg.tile_store(y, t)
        >>> y = np.ones(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [3.0, 0.0]
    """
    return _filled("tile_empty", shape, 0, dtype, storage)


def _filled(what: str, shape: Any, value: int, dtype: Any, storage: str) -> Any:
    require_storage(what, storage)
    extents = require_shape(what, shape)
    return tile_full(constant(value, require_dtype(what, dtype)), shape=extents)


@op()
def tile_arange(start: Scalar, step: Scalar, *, size: int) -> Tile:
    """The 1-D tile start, start + step, start + 2*step, ... with `size` elements.

    Called as `tile_arange(stop)`, `tile_arange(start, stop)` or `tile_arange(start, stop, step)` with compile-time
    numbers; `dtype=float` unless given. The number of elements is ceil((stop - start) / step).

    Gradient: the cotangent's sum flows to start, its sum weighted with 0, 1, 2, ... to step.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_arange(1, 10, 3))
        >>> y = np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [1.0, 4.0, 7.0]
    """
    dtype = np.asarray(start).dtype
    steps = np.arange(size).astype(dtype)
    return (np.asarray(start) + steps * np.asarray(step)).astype(dtype)


@infer(tile_arange)
def _tile_arange_infer(start: ScalarType, step: ScalarType, *, size: int) -> Type:
    if start.dtype is not step.dtype or start.dtype.kind == "b":
        raise TypeMismatch(f"tile_arange: start and step must have one numeric type, not {start} and {step}")
    return TileType(start.dtype, (size,))


@adjoint(tile_arange)
def _tile_arange_adjoint(ct: Any, out: Any, start: Any, step: Any, *, size: int) -> Any:
    total, extract = REGISTRY["tile_sum"], REGISTRY["tile_extract"]
    zero, one = REGISTRY["sub"](start, start), REGISTRY["add"](REGISTRY["sub"](start, start), 1)
    weighted = REGISTRY["mul"](ct, tile_arange(zero, one, size=size))
    return extract(total(ct, axes=(0,)), 0), extract(total(weighted, axes=(0,)), 0)


@lower(tile_arange)
def _tile_arange_lower(e: Emitter, at: Index, start: Reg, step: Reg, *, size: int) -> Reg:
    i = e.lanes_of(at[0])
    if not start.dtype.is_half:
        return e.add(start, e.mul(e.cast(i, start.dtype), step))
    wide = [e.cast(r, dt.float32) for r in (start, step)]
    half = e.cast(e.cast(e.cast(i, start.dtype), dt.float32), dt.float32)
    product = e.cast(e.cast(e.mul(half, wide[1]), start.dtype), dt.float32)
    return e.cast(e.add(wide[0], product), start.dtype)


@samples(tile_arange)
def _tile_arange_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample((d(1), d(2)), {"size": 7})
    yield Sample((dt.float64(0.25), dt.float64(-1.5)), {"size": 33})


@spelled(tile_arange)
def _tile_arange_call(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = float, storage: str = "register"
) -> Any:
    require_storage("tile_arange", storage)
    d = require_dtype("tile_arange", dtype if dtype is not None else float)
    if stop is None:
        start, stop = 0, start
    if not all(is_int(a) or isinstance(a, float) for a in (start, stop, step)):
        raise ShapeMismatch("tile_arange: start, stop and step must be compile-time numbers")
    if step == 0:
        raise ShapeMismatch("tile_arange: step is zero")
    size = math.ceil((stop - start) / step)
    if size <= 0:
        raise ShapeMismatch(f"tile_arange({start}, {stop}, {step}) is empty; a tile has at least one element")
    for bound in (start, start + (size - 1) * step):
        if not dt.literal_fits(bound, d):
            raise TypeMismatch(f"tile_arange: {bound} is not a value of {d}")
    return tile_arange(constant(start, d), constant(step, d), size=size)


PUBLIC = {
    "tile_full": tile_full,
    "tile_zeros": zeros,
    "tile_ones": ones,
    "tile_empty": empty,
    "tile_arange": tile_arange,
}
