"""Fourier transforms of tiles: complex to complex, real to complex and back, along any axes and of any length.

A complex tile is a tile of vec2: real and imaginary part. Without `norm` transforms are unscaled in both directions;
with it they are scaled as in NumPy. Lengths with small prime factors take Stockham's passes, others Bluestein's
detour; the error grows with the logarithm of the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, is_vector, make_vector
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.fft_lines import (
    ZERO,
    Complex,
    Get,
    Lines,
    Place,
    Put,
    as_lines,
    conjugate,
    each,
    each_block,
    line_count,
    minus,
    moved,
    plus,
    scaled,
    swapped,
    table_of_products,
    times,
    times_minus_i,
    transform,
)
from tilegrad.ops.indexing import tile_insert, tile_slice
from tilegrad.ops.shapes import is_int, require_axis, require_tile
from tilegrad.ops.views import shape_of

Read = Callable[[Coord, Coord], Reg]
Write = Callable[[Coord, Coord, Reg], None]


def _working(dtype: DType) -> DType:
    """The dtype in which a transform computes."""
    return dt.float32 if dtype.is_half else dtype


def _require_parts(what: str, re: TileType, im: TileType) -> None:
    if not re.dtype.is_float or re != im:
        raise TypeMismatch(f"{what}: both parts must be tiles of floats of one shape, they are {re} and {im}")


def _complex(re: Any, im: Any) -> Any:
    return np.asarray(re, np.float64) + 1j * np.asarray(im, np.float64)


def _parts(x: Any, dtype: Any) -> tuple[Any, Any]:
    return x.real.astype(dtype), x.imag.astype(dtype)


class _Access:
    """Reads and writes complex elements of two tiles, one for each part, seen as lines."""

    def __init__(self, e: Emitter, parts: Sequence[Buffer], axis: int) -> None:
        self.e = e
        self.re, self.im = (as_lines(t, axis) for t in parts)
        self.working = _working(self.re.dtype)

    def get(self, place: Place, position: Coord, column: Coord) -> Complex:
        at = place(position, column)
        re, im = (self.e.cast(self.e.load(t, at), self.working) for t in (self.re, self.im))
        return re, im

    def put(self, place: Place, position: Coord, column: Coord, x: Complex) -> None:
        at = place(position, column)
        self.e.store(self.re, at, self.e.cast(x[0], self.re.dtype))
        self.e.store(self.im, at, self.e.cast(x[1], self.im.dtype))


# --- complex to complex ---------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def fft(re: Tile, im: Tile, *, axis: int, inverse: bool = False) -> tuple[Tile, Tile]:
    """The discrete Fourier transform along one axis, unscaled: sum over j of x[j] * exp(-2 pi i j k / n).

    `inverse` turns the sign in the exponent. Gradient: the transform of the cotangent in the opposite direction, since
    the matrix F of the transform is symmetric and its adjoint is conj(F).
    """
    x = _complex(re, im)
    y = np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)
    return _parts(y, re.dtype)


@infer(fft)
def _fft_infer(re: TileType, im: TileType, *, axis: int, inverse: bool = False) -> tuple[Type, Type]:
    _require_parts("fft", re, im)
    return re, im


@adjoint(fft)
def _fft_adjoint(ct: Any, out: Any, re: Any, im: Any, *, axis: int, inverse: bool = False) -> Any:
    return fft(*ct, axis=axis, inverse=not inverse)


@lower(fft)
def _fft_lower(
    e: Emitter, outs: list[Buffer], re: Buffer, im: Buffer, *, axis: int, inverse: bool = False
) -> None:  # fmt: skip
    # the other direction is the same transform with the parts exchanged, on both sides
    source, target = (
        _Access(e, (im, re) if inverse else (re, im), axis),
        _Access(e, outs[:: -1 if inverse else 1], axis),
    )
    outer, n, inner = source.re.shape
    count = line_count(outer, n, inner)
    work = transform(e, _working(re.dtype), n, count)
    each_block(
        e, outer, inner, count, lambda place: work.run(partial(source.get, place), partial(target.put, place))
    )  # fmt: skip


#: shapes and axes that take every path: several rows, one row, columns, blocks of columns, loops over a prime, detours
_SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((4,), 0), ((3, 6), 1), ((5, 7), 0), ((2, 37), 1), ((19, 17), 1), ((3, 128), 1), ((12, 2), 0), ((1,), 0),
    ((2, 1, 2, 3, 1, 2, 2, 4), 3), ((40, 35), 0), ((60,), 0), ((9, 41, 3), 1), ((2, 2, 31), 2), ((1000,), 0),
)  # fmt: skip


def _single(tiles: Sequence[Any], n: int) -> tuple[Any, ...]:
    """float32 tiles, scaled so that their transforms have elements of size 1."""
    return tuple((x / math.sqrt(n)).astype(np.float32) for x in tiles)


def _halves(rng: np.random.Generator, d: DType, shape: tuple[int, ...], count: int) -> tuple[Any, ...]:
    return tuple((rng.standard_normal(shape) / 4).astype(d.np) for _ in range(count))


@samples(fft)
def _fft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, (shape, axis) in enumerate(_SHAPES):
        pair = tuple(rng.standard_normal(shape) for _ in range(2))
        yield Sample(pair, {"axis": axis, "inverse": k % 2 == 1})
        yield Sample(_single(pair, shape[axis]), {"axis": axis, "inverse": k % 2 == 0})
    for d in (dt.float16, dt.bfloat16):
        yield Sample(_halves(rng, d, (3, 12), 2), {"axis": 1, "inverse": d is dt.float16})


# --- real to complex and back ---------------------------------------------------------------------------------------


def bins(n: int) -> int:
    """How many bins of the spectrum of n real numbers are kept; the others are the conjugates of these."""
    return n // 2 + 1


def _with_extent(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


def _weights(n: int, ndim: int, axis: int) -> Any:
    """For how many bins of the whole spectrum each kept bin stands: 1 at 0 and, if n is even, at the end; else 2."""
    w = np.full(bins(n), 2.0)
    w[0] = 1
    if n % 2 == 0:
        w[-1] = 1
    return w.reshape([-1 if k == axis else 1 for k in range(ndim)])


@op(cls="block", cooperative=True)
def rfft(x: Tile, *, axis: int, paired: bool = False) -> tuple[Tile, Tile]:
    """The first n//2 + 1 bins of the unscaled transform of real numbers; `paired` doubles bins that stand for two.

    Gradient: `irfft` with the same `paired`, which is the transposed map.
    """
    y = np.fft.rfft(np.asarray(x, np.float64), axis=axis)
    return _parts(y * _weights(x.shape[axis], x.ndim, axis) if paired else y, x.dtype)


@infer(rfft)
def _rfft_infer(x: TileType, *, axis: int, paired: bool = False) -> tuple[Type, Type]:
    _require_parts("rfft", x, x)
    result = TileType(x.dtype, _with_extent(x.shape, axis, bins(x.shape[axis])))
    return result, result


@adjoint(rfft)
def _rfft_adjoint(ct: Any, out: Any, x: Any, *, axis: int, paired: bool = False) -> Any:
    return (irfft(*ct, n=shape_of(x)[axis], axis=axis, paired=paired),)


@lower(rfft)
def _rfft_lower(e: Emitter, outs: list[Buffer], x: Buffer, *, axis: int, paired: bool = False) -> None:
    source = as_lines(x, axis)
    outer, n, inner = source.shape
    make = _EvenSpectrum if n % 2 == 0 else _OddSpectrum
    work = make(e, _working(x.dtype), n, line_count(outer, n, inner), 2.0 if paired else 1.0)
    target = _Access(e, outs, axis)

    def block(place: Place) -> None:
        work.forward(
            lambda position, column: e.cast(e.load(source, place(position, column)), work.dtype),
            partial(target.put, place),
        )  # fmt: skip

    each_block(e, outer, inner, work.count, block)


@op(cls="block", cooperative=True)
def irfft(re: Tile, im: Tile, *, n: int, axis: int, paired: bool = True) -> Tile:
    """The real part of the unscaled inverse transform of a spectrum of n bins, of which the first n//2 + 1 are given.

    If `paired` the missing bins are the conjugates of the given ones, else they are 0. The imaginary parts at 0 and,
    for even n, at the end do not count. Gradient: `rfft` with the same `paired`, which is the transposed map.
    """
    x = _complex(re, im)
    if not paired:
        x = x / _weights(n, x.ndim, axis)
    return np.fft.irfft(x, n, axis=axis, norm="forward").astype(re.dtype)


@infer(irfft)
def _irfft_infer(re: TileType, im: TileType, *, n: int, axis: int, paired: bool = True) -> Type:
    _require_parts("irfft", re, im)
    if re.shape[axis] != bins(n):
        raise ShapeMismatch(f"irfft: {n} elements have {bins(n)} bins, the tile has {re.shape[axis]}")
    return TileType(re.dtype, _with_extent(re.shape, axis, n))


@adjoint(irfft)
def _irfft_adjoint(ct: Any, out: Any, re: Any, im: Any, *, n: int, axis: int, paired: bool = True) -> Any:
    return rfft(ct, axis=axis, paired=paired)


@lower(irfft)
def _irfft_lower(
    e: Emitter, outs: list[Buffer], re: Buffer, im: Buffer, *, n: int, axis: int, paired: bool = True
) -> None:  # fmt: skip
    source, target = _Access(e, (re, im), axis), as_lines(outs[0], axis)
    outer, _, inner = target.shape
    make = _EvenSpectrum if n % 2 == 0 else _OddSpectrum
    work = make(e, _working(re.dtype), n, line_count(outer, n, inner), 1.0 if paired else 0.5)

    def block(place: Place) -> None:
        work.backward(
            partial(source.get, place),
            lambda position, column, x: e.store(target, place(position, column), e.cast(x, target.dtype)),
        )  # fmt: skip

    each_block(e, outer, inner, work.count, block)


class _EvenSpectrum:
    """Transforms of an even number of reals, by the complex transform of half the length.

    Of z[j] = x[2j] + i x[2j+1] with the transform Z, (Z[k] + conj Z[h-k]) / 2 is the transform of the even elements
    and (Z[k] - conj Z[h-k]) / 2i that of the odd ones (Cooley, Lewis and Welch 1970). `weight` is a factor of all
    bins but the first and the last.
    """

    def __init__(self, e: Emitter, dtype: DType, n: int, count: int, weight: float) -> None:
        self.e, self.dtype, self.half, self.count, self.weight = e, dtype, n // 2, count, weight
        self.work = transform(e, dtype, self.half, count)
        self.lines = Lines(e, dtype, self.half, count)
        self.roots = table_of_products(e, dtype, range(1, 2), range(self.half), n)
        self.zero = e.const(0, dtype)

    def forward(self, get: Read, put: Put) -> None:
        e, h, z = self.e, self.half, self.lines

        def pair(position: Coord, column: Coord) -> Complex:
            even = moved(e, position, 2)
            return get(even, column), get(moved(e, even, 1, 1), column)

        def ends(position: Coord, column: Coord) -> None:
            re, im = z.get(position, column)
            put(position, column, (e.add(re, im), self.zero))
            put(moved(e, position, 1, h), column, (e.sub(re, im), self.zero))

        def middle(position: Coord, column: Coord) -> None:
            a, b = z.get(position, column), conjugate(e, z.get(moved(e, position, -1, h), column))
            odd = times(e, times_minus_i(e, minus(e, a, b)), self.roots.at(e, ZERO, position))
            put(position, column, scaled(e, plus(e, plus(e, a, b), odd), 0.5 * self.weight))

        self.work.run(pair, z.put)
        each(e, 0, 1, self.count, ends)
        each(e, 1, h, self.count, middle)

    def backward(self, get: Get, put: Write) -> None:
        e, h, z = self.e, self.half, self.lines

        def ends(position: Coord, column: Coord) -> None:
            first, last = get(position, column)[0], get(moved(e, position, 1, h), column)[0]
            z.put(position, column, (e.add(first, last), e.sub(first, last)))

        def middle(position: Coord, column: Coord) -> None:
            a = scaled(e, get(position, column), self.weight)
            b = scaled(e, conjugate(e, get(moved(e, position, -1, h), column)), self.weight)
            odd = times(e, minus(e, a, b), conjugate(e, self.roots.at(e, ZERO, position)))
            z.put(position, column, minus(e, plus(e, a, b), times_minus_i(e, odd)))

        def pair(position: Coord, column: Coord, x: Complex) -> None:
            even = moved(e, position, 2)
            put(even, column, x[1])
            put(moved(e, even, 1, 1), column, x[0])

        each(e, 0, 1, self.count, ends)
        each(e, 1, h, self.count, middle)
        self.work.run(lambda position, column: swapped(z.get(position, column)), pair)


class _OddSpectrum:
    """Transforms of an odd number of reals, by the complex one. `weight` is a factor of all bins but the first."""

    def __init__(self, e: Emitter, dtype: DType, n: int, count: int, weight: float) -> None:
        self.e, self.dtype, self.n, self.count, self.weight = e, dtype, n, count, weight
        self.work = transform(e, dtype, n, count)
        self.lines = Lines(e, dtype, n, count)
        self.zero = e.const(0, dtype)

    def forward(self, get: Read, put: Put) -> None:
        e, lines = self.e, self.lines
        self.work.run(lambda position, column: (get(position, column), self.zero), lines.put)
        each(e, 0, 1, self.count, lambda at, column: put(at, column, (lines.get(at, column)[0], self.zero)))
        each(
            e, 1, bins(self.n), self.count,
            lambda at, column: put(at, column, scaled(e, lines.get(at, column), self.weight)),
        )  # fmt: skip

    def backward(self, get: Get, put: Write) -> None:
        e, lines = self.e, self.lines

        def middle(position: Coord, column: Coord) -> None:
            x = scaled(e, get(position, column), self.weight)
            lines.put(position, column, x)
            lines.put(moved(e, position, -1, self.n), column, conjugate(e, x))

        each(e, 0, 1, self.count, lambda at, column: lines.put(at, column, (get(at, column)[0], self.zero)))
        each(e, 1, bins(self.n), self.count, middle)
        self.work.run(
            lambda position, column: swapped(lines.get(position, column)),
            lambda position, column, x: put(position, column, x[1]),
        )


@samples(rfft)
def _rfft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, (shape, axis) in enumerate(_SHAPES):
        x = rng.standard_normal(shape)
        yield Sample((x,), {"axis": axis, "paired": k % 3 == 1})
        yield Sample(_single((x,), shape[axis]), {"axis": axis, "paired": k % 3 == 0})
    for d in (dt.float16, dt.bfloat16):
        yield Sample(_halves(rng, d, (3, 12), 1), {"axis": 1, "paired": d is dt.float16})


@samples(irfft)
def _irfft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, (shape, axis) in enumerate(_SHAPES):
        pair = tuple(rng.standard_normal(_with_extent(shape, axis, bins(shape[axis]))) for _ in range(2))
        attrs = {"n": shape[axis], "axis": axis}
        yield Sample(pair, {**attrs, "paired": k % 3 != 1})
        yield Sample(_single(pair, shape[axis]), {**attrs, "paired": k % 3 != 0})
    for d in (dt.float16, dt.bfloat16):
        yield Sample(_halves(rng, d, (3, 7), 2), {"n": 12, "axis": 1, "paired": d is dt.float16})


# --- how users call transforms --------------------------------------------------------------------------------------


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
        return tile_slice(t, *starts, sizes=_with_extent(shape, axis, size), steps=steps)
    zeros = REGISTRY["tile_full"](t.type.dtype(0), shape=_with_extent(shape, axis, size))
    return tile_insert(zeros, t, *starts, steps=steps)


def _widened(t: Any) -> Any:
    return REGISTRY["astype"](t, dtype=dt.float32) if t.type.dtype.is_half else t


def _rounded(t: Any, dtype: DType) -> Any:
    return t if t.type.dtype is dtype else REGISTRY["astype"](t, dtype=dtype)


def _vector(parts: Sequence[Any], dtype: DType) -> Composite:
    return make_vector([_rounded(t, dtype) for t in parts], dtype)


PUBLIC = {"tile_fft": tile_fft, "tile_ifft": tile_ifft, "tile_rfft": tile_rfft, "tile_irfft": tile_irfft}
