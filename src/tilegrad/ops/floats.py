"""Building blocks of lowerings on floats: formats, polynomials, exponents, and sums and products without error.

A pair `(high, low)` is an unevaluated sum, |low| at most about one ULP of `high`. All code is branch-free, works for
float32 and float64 alike, and relies on IEEE arithmetic: nothing may be reassociated or flushed to zero.

References: T. J. Dekker, A floating-point technique for extending the available precision (1971); W. J. Cody and
W. Waite, Software Manual for the Elementary Functions (1980).

Does not know any particular function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Reg

Pair = tuple[Reg, Reg]


@dataclass(frozen=True)
class Format:
    """What the algorithms must know of a float type. `hi + lo` are constants in two parts, `hi` with trailing zeros."""

    dtype: DType
    signed: DType
    unsigned: DType
    #: bits after the leading one, and the exponent of 1.0 as it is stored
    fraction_bits: int
    bias: int
    #: adding it rounds to an integer, which is then in the low bits
    shifter: float
    smallest_normal: float
    log2_hi: float
    log2_lo: float
    log10_2_hi: float
    log10_2_lo: float
    #: exp(x) is 0 below the first and infinite above the second
    exp_low: float
    exp_high: float


F32 = Format(
    dt.float32, dt.int32, dt.uint32, 23, 127, 1.5 * 2.0**23, 2.0**-126,
    float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20"),
    float.fromhex("0x1.344p-2"), float.fromhex("0x1.3509f8p-18"), -105.0, 90.0,
)  # fmt: skip
F64 = Format(
    dt.float64, dt.int64, dt.uint64, 52, 1023, 1.5 * 2.0**52, 2.0**-1022,
    float.fromhex("0x1.62e42fefa3p-1"), float.fromhex("0x1.3de6af278ece6p-42"),
    float.fromhex("0x1.34413509f7p-2"), float.fromhex("0x1.3fde623e2566bp-43"), -747.0, 711.0,
)  # fmt: skip


def format_of(x: Reg) -> Format:
    """The format of a float register."""
    return F32 if x.dtype is dt.float32 else F64


def number(e: Emitter, value: float, like: Reg) -> Reg:
    """A constant of the dtype of `like`."""
    return e.const(value, like.dtype)


def everywhere(e: Emitter, value: Any, like: Reg) -> Reg:
    """A constant of the dtype and the width of `like`, for values carried through loops and branches."""
    constant = number(e, value, like)
    return e.select(e.compare("eq", like, like), constant, constant)


def polynomial(e: Emitter, x: Reg, coefficients: Sequence[float]) -> Reg:
    """Horner's rule; coefficients from the lowest power up."""
    result = number(e, coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = e.fma(result, x, number(e, c, x))
    return result


# --- sums and products without error --------------------------------------------------------------------------------


def fast_two_sum(e: Emitter, a: Reg, b: Reg) -> Pair:
    """a + b exactly, for |a| >= |b| or a = 0."""
    high = e.add(a, b)
    return high, e.sub(b, e.sub(high, a))


def two_sum(e: Emitter, a: Reg, b: Reg) -> Pair:
    """a + b exactly."""
    high = e.add(a, b)
    part = e.sub(high, a)
    return high, e.add(e.sub(a, e.sub(high, part)), e.sub(b, part))


def two_product(e: Emitter, a: Reg, b: Reg) -> Pair:
    """a * b exactly, unless it overflows or underflows."""
    high = e.mul(a, b)
    return high, e.fma(a, b, e.neg(high))


def pair_product(e: Emitter, x: Pair, y: Pair) -> Pair:
    """The product of two pairs, low parts multiplied once."""
    high, low = two_product(e, x[0], y[0])
    return high, e.fma(x[0], y[1], e.fma(x[1], y[0], low))


# --- exponents --------------------------------------------------------------------------------------------------------


def nearest(e: Emitter, x: Reg, factor: float) -> Pair:
    """round(x * factor) as a float and as a signed integer, for products well below 2**fraction_bits."""
    f = format_of(x)
    shifter = number(e, f.shifter, x)
    shifted = e.fma(x, number(e, factor, x), shifter)
    bits = e.sub(e.bitcast(shifted, f.signed), e.bitcast(e.const(f.shifter, f.dtype), f.signed))
    return e.sub(shifted, shifter), bits


def power_of_two(e: Emitter, n: Reg, f: Format) -> Reg:
    """2**n for a signed integer `n` within the normal exponents."""
    shift = e.const(f.fraction_bits, f.signed)
    return e.bitcast(e.shl(e.add(n, e.const(f.bias, f.signed)), shift), f.dtype)


def scale(e: Emitter, x: Reg, n: Reg) -> Reg:
    """x * 2**n rounded once, for |n| up to twice the bias: overflow and subnormal results are right."""
    f = format_of(x)
    half = e.shr(n, e.const(1, f.signed))
    return e.mul(e.mul(x, power_of_two(e, half, f)), power_of_two(e, e.sub(n, half), f))


def split_exponent(e: Emitter, x: Reg, lowest: float) -> tuple[Reg, Reg]:
    """(k, m) with x = 2**k * m, `k` a float and m in [lowest, 2 * lowest), for positive finite `x`, subnormals too."""
    f = format_of(x)
    tiny = e.compare("lt", x, number(e, f.smallest_normal, x))
    lift = f.fraction_bits + 1
    normal = e.select(tiny, e.mul(x, number(e, 2.0**lift, x)), x)
    bits = e.bitcast(normal, f.signed)
    start = e.bitcast(e.const(lowest, f.dtype), f.signed)
    shift = e.const(f.fraction_bits, f.signed)
    k = e.shr(e.sub(bits, start), shift)
    m = e.bitcast(e.sub(bits, e.shl(k, shift)), f.dtype)
    drop = e.select(tiny, number(e, float(-lift), x), number(e, 0.0, x))
    return e.add(e.cast(k, f.dtype), drop), m


# --- choices ----------------------------------------------------------------------------------------------------------


def clamp_above(e: Emitter, x: Reg, limit: float) -> Reg:
    """min(x, limit), NaN stays NaN."""
    bound = number(e, limit, x)
    return e.select(e.compare("gt", x, bound), bound, x)


def clamp_below(e: Emitter, x: Reg, limit: float) -> Reg:
    """max(x, limit), NaN stays NaN."""
    bound = number(e, limit, x)
    return e.select(e.compare("lt", x, bound), bound, x)


def finite_or(e: Emitter, x: Reg, result: Reg, otherwise: Reg) -> Reg:
    """`result` where `x` is finite, else `otherwise`."""
    return e.select(e.compare("lt", e.abs(x), number(e, math.inf, x)), result, otherwise)


def in_double(e: Emitter, lowering: Any, *operands: Reg) -> Reg:
    """A float64 lowering applied to operands of any float type, rounded once to their type."""
    dtype = operands[0].dtype
    result: Reg = lowering(e, *(e.cast(x, dt.float64) for x in operands))
    return e.cast(result, dtype)
