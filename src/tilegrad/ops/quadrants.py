"""Reduction of an angle to |r| <= pi/4 and a quadrant, for every finite float.

Up to 2**16 (float32) or 2**29 (float64): Cody and Waite's subtraction of n pi/2 in three parts, each step exact or
rounded relative to its own result by fma. Beyond that: M. Payne and R. Hanek, Radian reduction for trigonometric
functions (1983): x = m 2**e is multiplied, as an integer, by the window of the binary digits of 2/pi that decides the
quadrant and the fraction; taken only in vectors that hold such an angle.

Does not evaluate any function.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.ops.coefficients import TWO_OVER_PI_32, TWO_OVER_PI_64
from tilegrad.ops.floats import fast_two_sum, format_of, nearest, number

#: -pi/2 as a sum of three floats
_PARTS = {
    dt.float32: (-1.5707963705062866, 4.371138828673793e-08, 1.7151245100058819e-15),
    dt.float64: (-1.5707963267948966, -6.123233995736766e-17, 1.4973849048591833e-33),
}
_LIMIT = {dt.float32: 2.0**16, dt.float64: 2.0**29}
_PI_OVER_2_LOW = 6.123233995736766e-17


def reduce_angle(e: Emitter, a: Reg) -> tuple[Reg, Reg]:
    """(r, q) with a = r + q pi/2 modulo 2 pi for a >= 0; `q` counts modulo 4. r is NaN for inf."""
    f = format_of(a)
    n, q = nearest(e, a, 2 / math.pi)
    r = a
    for part in _PARTS[f.dtype]:
        r = e.fma(n, number(e, part, a), r)
    huge = e.not_(e.compare("le", a, number(e, _LIMIT[f.dtype], a)))

    def slow() -> list[Reg]:
        far, quadrant = (_far32 if f.dtype is dt.float32 else _far64)(e, a)
        far = e.select(e.compare("lt", a, number(e, math.inf, a)), far, number(e, math.nan, a))
        return [e.select(huge, far, r), e.select(huge, quadrant, q)]

    result = e.branch(e.any(huge), slow, lambda: [r, q])
    return result[0], result[1]


def _digits(e: Emitter, a: Reg, table: tuple[int, ...], bits: int, words: int) -> tuple[Reg, list[Reg]]:
    """The integer m of a = m 2**x, and `words` words of the digits of 2/pi from the weight 2**(1 - x) down."""
    f = format_of(a)
    raw = e.bitcast(a, f.unsigned)
    fraction = e.and_(raw, e.const((1 << f.fraction_bits) - 1, f.unsigned))
    m = e.or_(fraction, e.const(1 << f.fraction_bits, f.unsigned))
    exponent = e.cast(e.shr(raw, e.const(f.fraction_bits, f.unsigned)), dt.int32)
    start = e.add(exponent, e.const(bits - 2 - f.bias - f.fraction_bits, dt.int32))
    start = e.maximum(start, e.const(0, dt.int32))  # small angles beside huge ones
    last = (len(table) - words - 1) * bits + bits - 1
    start = e.minimum(start, e.const(last, dt.int32))
    index = e.shr(start, e.const(bits.bit_length() - 1, dt.int32))
    shift = e.cast(e.and_(start, e.const(bits - 1, dt.int32)), dt.uint64)
    found = [e.lookup(table, e.add(index, e.const(i, dt.int32)), dt.uint64) for i in range(words + 1)]
    back = e.sub(e.const(bits, dt.uint64), shift)
    window = [e.or_(e.shl(x, shift), e.shr(y, back)) for x, y in pairwise(found)]
    return e.cast(m, dt.uint64), window


def _split_quadrant(e: Emitter, high: Reg) -> tuple[Reg, Reg]:
    """The nearest quadrant of a fixed-point angle with two bits before the point, and the signed rest."""
    q = e.shr(e.add(high, e.const(1 << 61, dt.uint64)), e.const(62, dt.uint64))
    return q, e.bitcast(e.sub(high, e.shl(q, e.const(62, dt.uint64))), dt.int64)


def _far32(e: Emitter, a: Reg) -> tuple[Reg, Reg]:
    """64 bits of m * (2/pi) 2**x modulo 4 suffice: no float32 is closer than 2**-30 to a multiple of pi/2."""
    m, window = _digits(e, a, TWO_OVER_PI_32, 32, 3)
    mask = e.const(0xFFFFFFFF, dt.uint64)
    w0, w1, w2 = (e.and_(w, mask) for w in window)
    shift = e.const(32, dt.uint64)
    product = e.add(e.shl(e.mul(m, w0), shift), e.add(e.mul(m, w1), e.shr(e.mul(m, w2), shift)))
    q, rest = _split_quadrant(e, product)
    angle = e.mul(e.cast(rest, dt.float64), e.const(math.pi / 2 * 2.0**-62, dt.float64))
    return e.cast(angle, dt.float32), e.cast(q, dt.int32)


def _far64(e: Emitter, a: Reg) -> tuple[Reg, Reg]:
    """128 bits of the product: no float64 is closer than 2**-62 to a multiple of pi/2."""
    m, (w0, w1, w2) = _digits(e, a, TWO_OVER_PI_64, 64, 3)
    upper, lower = wide_product(e, m, w1)
    more, _ = wide_product(e, m, w2)
    low = e.add(lower, more)
    carry = e.cast(e.compare("lt", low, lower), dt.uint64)
    q, rest = _split_quadrant(e, e.add(e.add(e.mul(m, w0), upper), carry))
    high = e.cast(rest, dt.float64)
    lost = e.cast(e.sub(rest, e.cast(high, dt.int64)), dt.float64)
    tail = e.fma(e.cast(low, dt.float64), e.const(2.0**-126, dt.float64), e.mul(lost, e.const(2.0**-62, dt.float64)))
    high, tail = fast_two_sum(e, e.mul(high, e.const(2.0**-62, dt.float64)), tail)
    half_pi = e.const(math.pi / 2, dt.float64)
    small = e.fma(high, e.const(_PI_OVER_2_LOW, dt.float64), e.mul(tail, half_pi))
    return e.fma(high, half_pi, small), e.bitcast(q, dt.int64)


def wide_product(e: Emitter, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """The upper and lower half of the product of two uint64, from products of 32-bit halves, which vectorise."""
    shift, mask = e.const(32, dt.uint64), e.const(0xFFFFFFFF, dt.uint64)
    x0, x1, y0, y1 = e.and_(x, mask), e.shr(x, shift), e.and_(y, mask), e.shr(y, shift)
    low, cross, other, high = e.mul(x0, y0), e.mul(x1, y0), e.mul(x0, y1), e.mul(x1, y1)
    middle = e.add(e.add(e.shr(low, shift), e.and_(cross, mask)), e.and_(other, mask))
    upper = e.add(e.add(high, e.shr(cross, shift)), e.add(e.shr(other, shift), e.shr(middle, shift)))
    return upper, e.or_(e.shl(middle, shift), e.and_(low, mask))
