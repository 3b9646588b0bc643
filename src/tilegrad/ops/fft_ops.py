"""The ops of Fourier transforms: complex to complex, real to complex and back, along one axis and unscaled.

A complex tile is two tiles here, its real and its imaginary parts. 16-bit floats are transformed in float32 and rounded
once. Does not define what a user can call (see `fft`), nor how lines are transformed (see `fft_lines`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import Sample, Tile, adjoint, infer, lower, op, samples
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


def with_extent(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
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
    result = TileType(x.dtype, with_extent(x.shape, axis, bins(x.shape[axis])))
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
    return TileType(re.dtype, with_extent(re.shape, axis, n))


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
        pair = tuple(rng.standard_normal(with_extent(shape, axis, bins(shape[axis]))) for _ in range(2))
        attrs = {"n": shape[axis], "axis": axis}
        yield Sample(pair, {**attrs, "paired": k % 3 != 1})
        yield Sample(_single(pair, shape[axis]), {**attrs, "paired": k % 3 != 0})
    for d in (dt.float16, dt.bfloat16):
        yield Sample(_halves(rng, d, (3, 7), 2), {"n": 12, "axis": 1, "paired": d is dt.float16})
