"""Code for Fourier transforms of lines: Stockham's passes, Bluestein's detour, and the walk over the lines of a tile.

A line is what lies along the transformed axis. A block of `count` lines is transformed at once, side by side in
working memory: neighbours of other axes if there are any, else several rows if they are short, else one row, with
vectors along the row itself. What a transform reads and writes is given by functions of a position along the line and
a column of the block. All transforms here are forward, exp(-2 pi i j k / n), and unscaled; exchanging the real and the
imaginary parts of what goes in and comes out gives the other direction. Does not define ops (see `fft`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ops.fft_plan import (
    LANES,
    WRITTEN,
    Pass,
    chirp_filter,
    detour_length,
    is_direct,
    passes,
    roots,
    roots_minus_one,
    squares,
)  # fmt: skip

#: Real and imaginary part.
Complex = tuple[Reg, Reg]
Get = Callable[[Coord, Coord], Complex]
Put = Callable[[Coord, Coord, Complex], None]
Place = Callable[[Coord, Coord], Index]

#: Entries of a table of constants; longer tables are worked out when the kernel runs.
LONGEST_TABLE = 1 << 14
#: Rows shorter than this are transformed several at a time, if there are at least `FEWEST_ROWS`.
SHORT_ROW, FEWEST_ROWS = 64, 4
ZERO = Coord(0)


# --- complex numbers ------------------------------------------------------------------------------------------------


def plus(e: Emitter, x: Complex, y: Complex) -> Complex:
    return e.add(x[0], y[0]), e.add(x[1], y[1])


def minus(e: Emitter, x: Complex, y: Complex) -> Complex:
    return e.sub(x[0], y[0]), e.sub(x[1], y[1])


def times(e: Emitter, x: Complex, w: Complex) -> Complex:
    re = e.fma(x[0], w[0], e.neg(e.mul(x[1], w[1])))
    return re, e.fma(x[0], w[1], e.mul(x[1], w[0]))


def times_minus_i(e: Emitter, x: Complex) -> Complex:
    return x[1], e.neg(x[0])


def conjugate(e: Emitter, x: Complex) -> Complex:
    return x[0], e.neg(x[1])


def scaled(e: Emitter, x: Complex, factor: float) -> Complex:
    if factor == 1:
        return x
    f = e.const(factor, x[0].dtype)
    return e.mul(x[0], f), e.mul(x[1], f)


def swapped(x: Complex) -> Complex:
    return x[1], x[0]


# --- butterflies ----------------------------------------------------------------------------------------------------


def butterfly(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    """The transform of a few elements in registers."""
    n = len(x)
    if n == 1:
        return list(x)
    r = next(f for f in (4, 2, 3, 5, 7, 11, 13) if n % f == 0)
    if r == n:
        return {2: _two, 4: _four}.get(n, _odd)(e, x)
    m = n // r
    parts = [butterfly(e, x[j::r]) for j in range(r)]
    result: list[Complex] = [x[0]] * n
    for k in range(m):
        column = butterfly(e, [_turned(e, parts[j][k], j * k, n) for j in range(r)])
        result[k::m] = column
    return result


def _two(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    return [plus(e, x[0], x[1]), minus(e, x[0], x[1])]


def _four(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    a, b = plus(e, x[0], x[2]), minus(e, x[0], x[2])
    c, d = plus(e, x[1], x[3]), times_minus_i(e, minus(e, x[1], x[3]))
    return [plus(e, a, c), plus(e, b, d), minus(e, a, c), minus(e, b, d)]


def _odd(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    """An odd number of elements: those at j and n - j share their cosines and sines."""
    n = len(x)
    pairs = [(plus(e, x[j], x[n - j]), minus(e, x[j], x[n - j])) for j in range(1, (n + 1) // 2)]
    result = [x[0]] * n
    for a, _ in pairs:
        result[0] = plus(e, result[0], a)
    for k in range(1, (n + 1) // 2):
        even, odd = x[0], None
        for j, (a, b) in enumerate(pairs, 1):
            cos, sin = (e.const(float(v), x[0][0].dtype) for v in roots(j * k, n))
            even = _accumulated(e, even, a, cos)
            odd = (e.mul(b[0], sin), e.mul(b[1], sin)) if odd is None else _accumulated(e, odd, b, sin)
        assert odd is not None
        result[k], result[n - k] = _from_halves(e, even, odd)
    return result


def _accumulated(e: Emitter, acc: Complex, x: Complex, factor: Reg) -> Complex:
    return e.fma(x[0], factor, acc[0]), e.fma(x[1], factor, acc[1])


def _from_halves(e: Emitter, even: Complex, odd: Complex) -> tuple[Complex, Complex]:
    """even + i*odd and even - i*odd."""
    turned = times_minus_i(e, odd)
    return minus(e, even, turned), plus(e, even, turned)


def _turned(e: Emitter, x: Complex, k: int, n: int) -> Complex:
    """x * exp(-2 pi i k / n)."""
    for _ in range(4 * k % (4 * n) // n):
        x = times_minus_i(e, x)
    rest = 4 * k % n
    if rest == 0:
        return x
    half = e.const(math.sqrt(0.5), x[0].dtype)
    if 2 * rest == n:
        return e.mul(e.add(x[0], x[1]), half), e.mul(e.sub(x[1], x[0]), half)
    cos, sin = roots(rest, 4 * n)
    return times(e, x, (e.const(float(cos), x[0].dtype), e.const(float(sin), x[0].dtype)))


# --- tables ---------------------------------------------------------------------------------------------------------


class Table:
    """Complex numbers in memory."""

    def __init__(self, re: Buffer, im: Buffer) -> None:
        self.re, self.im = re, im

    def at(self, e: Emitter, *index: Coord) -> Complex:
        return e.load(self.re, index), e.load(self.im, index)

    def put(self, e: Emitter, index: Index, x: Complex) -> None:
        e.store(self.re, index, x[0])
        e.store(self.im, index, x[1])


def constants(e: Emitter, dtype: DType, values: tuple[Any, Any]) -> Table:
    return Table(e.table(values[0], dtype), e.table(values[1], dtype))


def table_of_products(e: Emitter, dtype: DType, rows: range, columns: range, n: int) -> Table:
    """exp(-2 pi i a*b / n) for every a of the rows and b of the columns; 0 <= a*b < n."""
    if len(rows) * len(columns) <= LONGEST_TABLE:
        return constants(e, dtype, roots(np.outer(rows, columns), n))

    def exponent(at: Index) -> Reg:
        row, column = (e.lanes_of(moved(e, c, 1, r.start)) for c, r in zip(at, (rows, columns), strict=True))
        return e.mul(row, column)

    return _computed(e, dtype, (len(rows), len(columns)), n, exponent)


def table_of_squares(e: Emitter, dtype: DType, n: int) -> Table:
    """exp(-pi i j^2 / n) for j < n, in one row."""
    if n <= LONGEST_TABLE:
        return constants(e, dtype, roots(squares(n).reshape(1, n), 2 * n))

    def exponent(at: Index) -> Reg:
        j = e.lanes_of(at[1])
        return e.rem(e.mul(j, j), e.const(2 * n, dt.int64))

    return _computed(e, dtype, (1, n), 2 * n, exponent)


def _computed(e: Emitter, dtype: DType, shape: tuple[int, int], n: int, exponent: Callable[[Index], Reg]) -> Table:
    """Roots that the kernel works out. With the exponent k = high + low and w = exp(-2 pi i / n) the root is
    w^high + w^high * (w^low - 1), where the second term is small and its rounding error does not matter.
    """
    bits = (n.bit_length() + 1) // 2
    coarse = constants(e, dtype, roots(np.arange(0, n, 1 << bits), n))
    fine = constants(e, dtype, roots_minus_one(np.arange(1 << bits), n))
    table = Table(*(e.scratch(dtype, shape) for _ in range(2)))

    def point(at: Index) -> None:
        k = exponent(at)
        high, low = e.shr(k, e.const(bits, dt.int64)), e.and_(k, e.const((1 << bits) - 1, dt.int64))
        near = coarse.at(e, e.coord(high))
        table.put(e, at, plus(e, near, times(e, near, fine.at(e, e.coord(low)))))

    e.points(shape, point)
    return table


# --- lines in working memory ----------------------------------------------------------------------------------------


class Lines:
    """Complex working memory for `count` lines of n elements; neighbours along a line are `count` apart."""

    def __init__(self, e: Emitter, dtype: DType, n: int, count: int) -> None:
        self.e, self.count = e, count
        self.re, self.im = (e.scratch(dtype, (n * count + LANES,)) for _ in range(2))

    def get(self, position: Coord, column: Coord) -> Complex:
        at = self._at(position, column)
        return self.e.load(self.re, at), self.e.load(self.im, at)

    def put(self, position: Coord, column: Coord, x: Complex) -> None:
        at = self._at(position, column)
        self.e.store(self.re, at, x[0])
        self.e.store(self.im, at, x[1])

    def _at(self, position: Coord, column: Coord) -> Index:
        first = moved(self.e, position, self.count, column.base)
        return (Coord(first.base, first.step + column.step),)


def moved(e: Emitter, c: Coord, factor: int, offset: int | Reg = 0) -> Coord:
    """The coordinate factor*c + offset."""
    if isinstance(c.base, int) and isinstance(offset, int):
        return Coord(c.base * factor + offset, c.step * factor)
    return Coord(e.add(e.mul(e.i64(c.base), e.i64(factor)), e.i64(offset)), c.step * factor)


def each(e: Emitter, first: int, last: int, count: int, body: Callable[[Coord, Coord], None]) -> None:
    """Run body(position, column) for the positions from `first` up to `last` of `count` lines."""
    if first >= last:
        return
    if count == 1:
        e.points((last - first,), lambda at: body(moved(e, at[0], 1, first), ZERO))
    else:
        e.points((last - first, count), lambda at: body(moved(e, at[0], 1, first), at[1]))


# --- transforms -----------------------------------------------------------------------------------------------------


class Transform(Protocol):
    """A transform whose tables and working memory are there."""

    def run(self, get: Get, put: Put) -> None:
        """Transform a block of lines. No element is written before all have been read, unless n is a small prime."""


class Direct:
    """The transform by passes (Stockham 1966), for a length without large prime factors."""

    def __init__(self, e: Emitter, dtype: DType, n: int, count: int) -> None:
        self.e, self.dtype, self.count = e, dtype, count
        self.passes = passes(n)
        self.twiddles = [self._factors(p) if p.groups > 1 else None for p in self.passes]
        looped = {p.radix for p in self.passes if p.radix > max(WRITTEN)}
        self.circles = {r: constants(e, dtype, roots(np.arange(r), r)) for r in sorted(looped)}
        self.work = [Lines(e, dtype, n, count) for _ in range(min(2, len(self.passes) - 1))]

    def _is_along(self, step: Pass) -> bool:
        return self.count == 1 and step.stride == 1

    def _factors(self, step: Pass) -> Table:
        """The factors of a pass; side by side is what the elements of a vector, or one butterfly, read."""
        groups, outputs = range(step.groups), range(1, step.radix)
        rows, columns = (outputs, groups) if self._is_along(step) else (groups, outputs)
        return table_of_products(self.e, self.dtype, rows, columns, step.groups * step.radix)

    def run(self, get: Get, put: Put) -> None:
        last = len(self.passes) - 1
        for k in range(last + 1):
            source = self.work[(k - 1) % 2].get if k else get
            target = self.work[k % 2].put if k < last else put
            if self._is_along(self.passes[k]):
                self._along(k, source, target)
            else:
                self._across(k, source, target, k in (0, last))

    def _along(self, k: int, get: Get, put: Put) -> None:
        """A pass over a single line whose vectors run over its groups."""
        step, table = self.passes[k], self.twiddles[k]

        def point(at: Index) -> None:
            (p,) = at
            _Butterfly(
                self.e, step.radix, self.circles.get(step.radix),
                lambda j: get(moved(self.e, p, 1, _times(self.e, j, step.groups)), ZERO),
                lambda j, x: put(moved(self.e, p, step.radix, j), ZERO, x),
                None if table is None else lambda j: table.at(self.e, Coord(_less_one(self.e, j)), p),
            ).emit()  # fmt: skip

        self.e.points((step.groups,), point)

    def _across(self, k: int, get: Get, put: Put, exact: bool) -> None:
        """A pass whose vectors run over columns, or over what earlier passes have made side by side.

        Unless `exact`, a column may stand for an element of a later position: the memory is that of `Lines`.
        """
        e, step, table = self.e, self.passes[k], self.twiddles[k]
        written = step.radix <= max(WRITTEN)

        def group(p: Reg) -> list[Reg]:
            factors = [table.at(e, Coord(p), Coord(j)) for j in range(step.radix - 1)] if table and written else []

            def factor(j: int | Reg) -> Complex:
                assert table is not None
                return (
                    factors[j - 1] if isinstance(j, int) and factors else table.at(e, Coord(p), Coord(_less_one(e, j)))
                )

            def point(position: Coord, column: Coord) -> None:
                first = moved(e, position, 1, _times(e, p, step.stride))
                far = moved(e, position, 1, _times(e, p, step.stride * step.radix))
                _Butterfly(
                    e, step.radix, self.circles.get(step.radix),
                    lambda j: get(moved(e, first, 1, _times(e, j, step.groups * step.stride)), column),
                    lambda j, x: put(moved(e, far, 1, _times(e, j, step.stride)), column, x),
                    None if table is None else factor,
                ).emit()  # fmt: skip

            if self.count == 1 or exact:
                each(e, 0, step.stride, self.count, point)
            else:
                e.points((step.stride * self.count,), lambda at: point(ZERO, at[0]))
            return []

        if step.groups == 1:
            group(e.i64(0))
        else:
            e.loop(0, step.groups, 1, [], group)


def _times(e: Emitter, j: int | Reg, factor: int) -> int | Reg:
    return j * factor if isinstance(j, int) else e.mul(j, e.i64(factor))


def _less_one(e: Emitter, j: int | Reg) -> int | Reg:
    return j - 1 if isinstance(j, int) else e.sub(j, e.i64(1))


class _Butterfly:
    """One butterfly of a pass: elements are loaded, transformed, multiplied by their factors, and saved."""

    def __init__(
        self, e: Emitter, radix: int, circle: Table | None, load: Callable[[int | Reg], Complex],
        save: Callable[[int | Reg, Complex], None], factor: Callable[[int | Reg], Complex] | None,
    ) -> None:  # fmt: skip
        self.e, self.radix, self.circle = e, radix, circle
        self.load, self._save, self.factor = load, save, factor

    def emit(self) -> None:
        if self.circle is not None:
            self._looped(self.circle)
            return
        for j, x in enumerate(butterfly(self.e, [self.load(j) for j in range(self.radix)])):
            self.save(j, x)

    def save(self, j: int | Reg, x: Complex) -> None:
        first = isinstance(j, int) and j == 0
        self._save(j, x if self.factor is None or first else times(self.e, x, self.factor(j)))

    def _looped(self, circle: Table) -> None:
        """`_odd` with loops instead of written out code."""
        e, r, half = self.e, self.radix, (self.radix + 1) // 2
        x0 = self.load(0)

        def pair(j: int | Reg) -> tuple[Complex, Complex]:
            a = self.load(j)
            b = self.load(r - j if isinstance(j, int) else e.sub(e.i64(r), j))
            return plus(e, a, b), minus(e, a, b)

        def total(j: Reg, *acc: Reg) -> Sequence[Reg]:
            return plus(e, (acc[0], acc[1]), pair(j)[0])

        a1, b1 = pair(1)
        sums = e.loop(2, half, 1, plus(e, x0, a1), total)
        self.save(0, (sums[0], sums[1]))

        def output(k: Reg) -> Sequence[Reg]:
            cos, sin = circle.at(e, Coord(k))
            start = (*_accumulated(e, x0, a1, cos), e.mul(b1[0], sin), e.mul(b1[1], sin), k)

            def turn(j: Reg, *acc: Reg) -> Sequence[Reg]:
                angle = e.add(acc[4], k)
                angle = e.select(e.compare("ge", angle, e.i64(r)), e.sub(angle, e.i64(r)), angle)
                cos, sin = circle.at(e, Coord(angle))
                a, b = pair(j)
                even = _accumulated(e, (acc[0], acc[1]), a, cos)
                return (*even, *_accumulated(e, (acc[2], acc[3]), b, sin), angle)

            done = e.loop(2, half, 1, start, turn)
            one, other = _from_halves(e, (done[0], done[1]), (done[2], done[3]))
            self.save(k, one)
            self.save(e.sub(e.i64(r), k), other)
            return []

        e.loop(1, half, 1, [], output)


class Detour:
    """The transform by way of a convolution (Bluestein 1970), for a length with a large prime factor.

    With the chirp c[j] = exp(-pi i j^2 / n), y[k] = c[k] * sum over j of (x[j] c[j]) * conj(c[k - j]). The convolution
    takes two transforms of length m, the second one backward. Since swapped(z * w) = swapped(z) * conj(w), both are the
    same code: transform, multiply by a row of `factors`, exchange the parts.
    """

    def __init__(self, e: Emitter, dtype: DType, n: int, count: int) -> None:
        self.e, self.dtype, self.n, self.count = e, dtype, n, count
        self.m = detour_length(n)
        self.inner = Direct(e, dtype, self.m, count)
        self.chirp = table_of_squares(e, dtype, n)
        self.factors = self._constants() if self.m <= LONGEST_TABLE else self._computed()
        self.lines = Lines(e, dtype, self.m, count)
        self.zero = e.const(0, dtype)

    def _constants(self) -> Table:
        """The transform of the conjugate chirp, and the conjugate chirp itself."""
        re, im = np.zeros((2, self.m)), np.zeros((2, self.m))
        re[0], im[0] = chirp_filter(self.n, self.m)
        re[1, : self.n], im[1, : self.n] = roots(-squares(self.n), 2 * self.n)
        return constants(self.e, self.dtype, (re, im))

    def _computed(self) -> Table:
        """The same, worked out when the kernel runs."""
        e, n, m = self.e, self.n, self.m
        around, table = Lines(e, self.dtype, m, 1), Table(*(e.scratch(self.dtype, (2, m)) for _ in range(2)))
        zero = e.const(0, self.dtype)

        def mirror(position: Coord, column: Coord) -> None:
            x = conjugate(e, self.chirp.at(e, ZERO, position))
            table.put(e, (Coord(1), position), x)
            around.put(position, column, x)
            around.put(moved(e, position, -1, m), column, x)

        def first(position: Coord, column: Coord) -> None:
            table.put(e, (Coord(1), position), (e.const(1, self.dtype), zero))
            around.put(position, column, (e.const(1, self.dtype), zero))

        each(e, 0, m, 1, lambda position, column: around.put(position, column, (zero, zero)))
        each(e, 0, 1, 1, first)
        each(e, 1, n, 1, mirror)
        inner = self.inner if self.count == 1 else Direct(e, self.dtype, m, 1)
        inner.run(around.get, lambda position, column, x: table.put(e, (ZERO, position), scaled(e, x, 1 / m)))
        return table

    def run(self, get: Get, put: Put) -> None:
        e, lines = self.e, self.lines

        def begin(position: Coord, column: Coord) -> None:
            lines.put(position, column, times(e, get(position, column), self.chirp.at(e, ZERO, position)))

        def turn(row: Reg) -> list[Reg]:
            def product(position: Coord, column: Coord, x: Complex) -> None:
                lines.put(position, column, swapped(times(e, x, self.factors.at(e, Coord(row), position))))

            self.inner.run(lines.get, product)  # the lines are read in the first pass and written in the last
            return []

        each(e, 0, self.n, self.count, begin)
        each(e, self.n, self.m, self.count, lambda at, column: lines.put(at, column, (self.zero, self.zero)))
        e.loop(0, 2, 1, [], turn)
        each(e, 0, self.n, self.count, lambda at, column: put(at, column, lines.get(at, column)))


def transform(e: Emitter, dtype: DType, n: int, count: int) -> Transform:
    """The transform of blocks of `count` lines of n elements."""
    return Direct(e, dtype, n, count) if is_direct(n) else Detour(e, dtype, n, count)


# --- the lines of a tile --------------------------------------------------------------------------------------------


def line_count(outer: int, n: int, inner: int) -> int:
    """How many lines of a tile, seen as (outer, n, inner), are transformed at once."""
    if inner > 1:
        return min(inner, 2 * LANES if n <= 512 else LANES)
    return min(outer, LANES) if n < SHORT_ROW and outer >= FEWEST_ROWS else 1


def each_block(e: Emitter, outer: int, inner: int, count: int, body: Callable[[Place], None]) -> None:
    """Run body(place) for every block of `count` lines; place(position, column) is the index in (outer, n, inner).

    The last block begins early enough to be full, so lines may be transformed twice.
    """
    several_rows = inner == 1 and count > 1
    extent = outer if several_rows else inner
    blocks = -(-extent // count)

    def block(first: Reg | int, row: Reg | int) -> None:
        if several_rows:
            body(lambda position, column: (moved(e, column, 1, first), position, ZERO))
        else:
            body(lambda position, column: (Coord(row), position, moved(e, column, 1, first)))

    def along(row: Reg | int) -> None:
        def turn(b: Reg) -> list[Reg]:
            first = e.mul(b, e.i64(count))
            block(e.minimum(first, e.i64(extent - count)), row)
            return []

        if blocks == 1:
            block(0, row)
        else:
            e.loop(0, blocks, 1, [], turn)

    def each_row(row: Reg) -> list[Reg]:
        along(row)
        return []

    if several_rows or outer == 1:
        along(0)
    else:
        e.loop(0, outer, 1, [], each_row)


def as_lines(buffer: Buffer, axis: int) -> Buffer:
    """A tile seen as (outer, n, inner) around the transformed axis."""
    s = buffer.shape
    return Buffer(buffer.dtype, buffer.ptr, (math.prod(s[:axis]), s[axis], math.prod(s[axis + 1 :])))
