"""Fourier transforms of tiles: complex to complex, real to complex and back, along any axes and of any length.

A complex tile is a tile of vec2: real and imaginary part. Without `norm` transforms are unscaled in both directions;
with it they are scaled as in NumPy. Lengths with small prime factors take Stockham's passes, others Bluestein's
detour; the error grows with the logarithm of the length. The ops themselves are in `fft_ops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, is_vector, make_vector
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir.types import TileType
from tilegrad.op import REGISTRY, describe, unwrap
from tilegrad.ops.fft_ops import bins, fft, irfft, rfft, with_extent
from tilegrad.ops.indexing import tile_insert, tile_slice
from tilegrad.ops.shapes import is_int, require_axis, require_tile
from tilegrad.ops.views import shape_of


def tile_fft(inout: Any, axis: Any = -1, norm: Any = None) -> None:
    """The discrete Fourier transform of a complex tile, in place: the sum over j of x[j] * exp(-2 pi i j k / n).

    Args:
        inout: tile of vec2 (real and imaginary part) of floats, of any rank, with any extents; may be a view.
        axis: an int, or a tuple for a transform along several axes.
        norm: None: unscaled. As in NumPy, "backward": unscaled, "ortho": divided by sqrt(n), "forward": divided by n,
            where n is the number of elements of one transform.

    The error of float32 and float64 is about one rounding, and grows with log(n) (Cooley and Tukey 1965, in the form
    of Stockham; Bluestein 1970 for lengths with a prime factor above 31). float16 is transformed in float32.
    Raises: TypeMismatch if the tile is not complex, ShapeMismatch if it has no such axis.
    Gradient: with norm=None, `tile_ifft` of the cotangent, whose parts are the cotangents of the parts: the transform
    has a symmetric matrix F, and its adjoint is conj(F).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[tg.vec2], y: tg.array1d[tg.vec2]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_fft(t)
        ...     tg.tile_store(y, t)
        >>> x, y = tg.array([[1, 0], [2, 0], [3, 0], [4, 0]], dtype=tg.vec2), tg.zeros(4, dtype=tg.vec2)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.numpy().tolist()
        [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0], [-2.0, -2.0]]
    """
    _transform_in_place("tile_fft", inout, axis, norm, inverse=False)


def tile_ifft(inout: Any, axis: Any = -1, norm: Any = None) -> None:
    """The inverse Fourier transform of a complex tile, in place: the sum over j of x[j] * exp(2 pi i j k / n).

    Without `norm` it is unscaled, so `tile_ifft` after `tile_fft` multiplies by n; with norm="backward" in both calls
    it is the inverse.

    Args:
        inout: tile of vec2 (real and imaginary part) of floats, of any rank, with any extents; may be a view.
        axis: an int, or a tuple for a transform along several axes.
        norm: None: unscaled. As in NumPy, "backward": divided by n, "ortho": divided by sqrt(n), "forward": unscaled.

    Raises: TypeMismatch if the tile is not complex, ShapeMismatch if it has no such axis.
    Gradient: with norm=None, `tile_fft` of the cotangent. See `tile_fft`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[tg.vec2], y: tg.array1d[tg.vec2]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_ifft(t, norm="backward")
        ...     tg.tile_store(y, t)
        >>> x, y = tg.array([[10, 0], [-2, 2], [-2, 0], [-2, -2]], dtype=tg.vec2), tg.zeros(4, dtype=tg.vec2)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.numpy().tolist()
        [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]
    """
    _transform_in_place("tile_ifft", inout, axis, norm, inverse=True)


def tile_rfft(a: Any, axis: Any = -1, norm: Any = None) -> Any:
    """The Fourier transform of a real tile: the bins 0 to n//2, of which the others are the conjugates.

    Args:
        a: tile of floats.
        axis: an int, or a tuple: real to complex along the last axis that is named, complex along the others.
        norm: None: unscaled. As in NumPy, "backward": unscaled, "ortho": divided by sqrt(n), "forward": divided by n.

    Returns: a tile of vec2 of the same float, with n//2 + 1 bins along the (last) axis. Bin 0 and, for even n, the
    last bin of a line have an imaginary part of exactly 0.
    Raises: TypeMismatch if the tile is complex or holds no floats, ShapeMismatch if it has no such axis.
    Gradient: the real part of the inverse transform of the cotangent, with 0 for the bins that are not kept.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[tg.vec2]):
        ...     tg.tile_store(y, tg.tile_rfft(tg.tile_load(x, shape=4)))
        >>> x, y = np.arange(1, 5, dtype=np.float32), tg.zeros(3, dtype=tg.vec2)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.numpy().tolist()
        [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
    """
    if is_vector(a):
        raise TypeMismatch("tile_rfft: the tile is complex already", help="write tile_fft(t)")
    kind = require_tile("tile_rfft", "a", a)
    if not kind.dtype.is_float:
        raise TypeMismatch(
            f"tile_rfft: the tile must hold floats, it is {describe(kind)}", help="write tile_astype(t, float32)"
        )
    *others, last = _axes("tile_rfft", axis, kind.ndim)
    size = math.prod(kind.shape[k] for k in (*others, last))
    parts = _along(rfft(_widened(unwrap(a)), axis=last), others, inverse=False)
    return _vector(_normalised("tile_rfft", parts, norm, size, "forward"), kind.dtype)


def tile_irfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    """The inverse of `tile_rfft`: real numbers from the bins 0 to n//2 of their spectrum.

    Args:
        a: tile of vec2 (real and imaginary part) of floats. The imaginary parts of bin 0 and, for even n, of bin n/2
            do not count.
        n: how many real numbers, a compile-time int: 2*(m - 1) for m bins unless given. Bins that are missing are 0,
            further ones do not count.
        axis: an int, or a tuple: complex along the others, then complex to real along the last axis that is named.
        norm: None: unscaled. As in NumPy, "backward": divided by n, "ortho": divided by sqrt(n), "forward": unscaled.

    Returns: a tile of floats with n elements along the (last) axis.
    Raises: TypeMismatch if the tile is not complex, ShapeMismatch if it has no such axis or n is not positive.
    Gradient: `tile_rfft` of the cotangent, with the bins that stand for two doubled; 0 for parts that do not count.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[tg.vec2], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_irfft(tg.tile_load(x, shape=3), norm="backward"))
        >>> x, y = tg.array([[10, 0], [-2, 2], [-2, 0]], dtype=tg.vec2), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    parts, kind = _require_complex("tile_irfft", a)
    *others, last = _axes("tile_irfft", axis, kind.ndim)
    length = _length(n, kind.shape[last])
    size = math.prod(kind.shape[k] for k in others) * length
    inner = _along(tuple(_resized(_widened(t), last, bins(length)) for t in parts), others, inverse=True)
    result = irfft(*inner, n=length, axis=last)
    (scaled_result,) = _normalised("tile_irfft", (result,), norm, size, "backward")
    return _rounded(scaled_result, kind.dtype)


def _transform_in_place(what: str, inout: Any, axis: Any, norm: Any, inverse: bool) -> None:
    parts, kind = _require_complex(what, inout)
    axes = _axes(what, axis, kind.ndim)
    made = _along(tuple(_widened(t) for t in parts), axes, inverse)
    size = math.prod(kind.shape[k] for k in axes)
    made = _normalised(what, made, norm, size, "backward" if inverse else "forward")
    for part, new in zip(inout, made, strict=True):
        part.assign(_rounded(new, kind.dtype))


def _require_complex(what: str, x: Any) -> tuple[tuple[Any, ...], TileType]:
    """The parts of a complex tile and their type."""
    if is_vector(x) and len(x) == 2:
        parts = tuple(unwrap(part) for part in x)
        kind = parts[0].type
        if isinstance(kind, TileType) and kind.dtype.is_float:
            return parts, kind
    t = getattr(unwrap(x), "type", None)
    found = f"a tile of {x.kind}" if isinstance(x, Composite) else describe(t) if t is not None else repr(x)
    hint = "load it from an array of vec2f or vec2d: real and imaginary part"
    if isinstance(t, TileType) and t.dtype.is_float:
        hint += f"; or write {what.replace('_fft', '_rfft')}(t) for the spectrum of real numbers"
    raise TypeMismatch(f"{what}: the tile must be complex, a tile of vec2, it is {found}", help=hint)


def _axes(what: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that are named, in that order."""
    listed = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(require_axis(what, a, ndim) for a in listed)
    if not axes or len(set(axes)) != len(axes):
        raise ShapeMismatch(f"{what}: axis must name one axis or several different ones, it is {axis!r}")
    return axes


def _along(parts: tuple[Any, ...], axes: Sequence[int], inverse: bool) -> tuple[Any, ...]:
    for axis in axes:
        parts = fft(*parts, axis=axis, inverse=inverse)
    return parts


def _normalised(what: str, parts: tuple[Any, ...], norm: Any, size: int, scaled_by: str) -> tuple[Any, ...]:
    """Divide by the number of elements if `norm` is the way that scales this direction, or by its square root."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise TypeMismatch(f'{what}: norm must be None, "backward", "ortho" or "forward", it is {norm!r}')
    factor = 1 / size if norm == scaled_by else 1 / math.sqrt(size) if norm == "ortho" else 1.0
    if factor == 1:
        return parts
    return tuple(REGISTRY["mul"](t, np.dtype(t.type.dtype.np).type(factor)) for t in parts)


def _length(n: Any, found: int) -> int:
    """How many real numbers a spectrum stands for."""
    if n is None:
        if found == 1:
            raise ShapeMismatch(
                "tile_irfft: one bin stands for one number, or for two", help="write n=1 or n=2"
            )  # fmt: skip
        return 2 * (found - 1)
    if not is_int(n):
        raise TypeMismatch(f"tile_irfft: n must be a compile-time integer, it is {n!r}")
    if n < 1:
        raise ShapeMismatch(f"tile_irfft: n must be positive, it is {n}")
    return int(n)


def _resized(t: Any, axis: int, size: int) -> Any:
    """The first elements along an axis, with zeros for those that are missing."""
    shape = shape_of(t)
    if shape[axis] == size:
        return t
    starts, steps = (0,) * len(shape), (1,) * len(shape)
    if shape[axis] > size:
        return tile_slice(t, *starts, sizes=with_extent(shape, axis, size), steps=steps)
    zeros = REGISTRY["tile_full"](t.type.dtype(0), shape=with_extent(shape, axis, size))
    return tile_insert(zeros, t, *starts, steps=steps)


def _widened(t: Any) -> Any:
    return REGISTRY["astype"](t, dtype=dt.float32) if t.type.dtype.is_half else t


def _rounded(t: Any, dtype: DType) -> Any:
    return t if t.type.dtype is dtype else REGISTRY["astype"](t, dtype=dtype)


def _vector(parts: Sequence[Any], dtype: DType) -> Composite:
    return make_vector([_rounded(t, dtype) for t in parts], dtype)


PUBLIC = {"tile_fft": tile_fft, "tile_ifft": tile_ifft, "tile_rfft": tile_rfft, "tile_irfft": tile_irfft}
