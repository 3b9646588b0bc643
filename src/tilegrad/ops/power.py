"""Powers and roots: sqrt rsqrt cbrt hypot pow. At most 2 ULP in float32 and 4 in float64; sqrt is correctly rounded.

pow: |x|**y = exp(y log|x|) with the logarithm, and its product with y, as pairs of floats, so that the large exponent
does not magnify an error; the logarithm is 2 atanh(s), s = (m - 1) / (m + 1), whose first two terms are pairs.
Small whole exponents written as literals are products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelValueError, TypeMismatch
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op, spelled
from tilegrad.ops.arithmetic import chain, div, mul, sub
from tilegrad.ops.bits import bit_and
from tilegrad.ops.bodies import in_double, is_float
from tilegrad.ops.cast import dtype_of
from tilegrad.ops.coefficients import ATANH_TAIL, CBRT
from tilegrad.ops.comparison import choose, eq, gt
from tilegrad.ops.exponential import exp_scaled, log
from tilegrad.ops.floats import (
    Pair,
    everywhere,
    fast_two_sum,
    finite_or,
    format_of,
    number,
    pair_product,
    polynomial,
    split_exponent,
    two_product,
)
from tilegrad.ops.floats import in_double as in_double_code

# --- roots ------------------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS, domain=(0.1, 4.0), cheap=False)
def sqrt(x: Operand) -> Operand:
    """The square root, correctly rounded; NaN below 0, -0 for -0.

    Gradient: ct / (2 out).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.sqrt(np.float64(2.0))), 6)
        1.414214
    """
    return in_double(np.sqrt, x)


@adjoint(sqrt)
def _sqrt_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(0.5, out)),)


@lower(sqrt)
def _sqrt_lower(e: Emitter, x: Reg) -> Reg:
    return e.sqrt(x)


@op(elementwise=dt.FLOATS, domain=(0.1, 4.0), cheap=False)
def rsqrt(x: Operand) -> Operand:
    """1 / sqrt(x); inf at 0 (-inf at -0), NaN below.

    Gradient: -ct out / (2 x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.rsqrt(np.float64(4.0))), 6)
        0.5
    """
    return in_double(lambda a: 1 / np.sqrt(a), x)


@adjoint(rsqrt)
def _rsqrt_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(div(out, x), -0.5)),)


@lower(rsqrt)
def _rsqrt_lower(e: Emitter, x: Reg) -> Reg:
    return e.div(number(e, 1.0, x), e.sqrt(x))


@op(elementwise=dt.FLOATS, domain=(0.1, 4.0), cheap=False)
def cbrt(x: Operand) -> Operand:
    """The real cube root, of negative numbers too.

    Gradient: ct / (3 out**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.cbrt(np.float64(27.0))), 6)
        3.0
    """
    return in_double(np.cbrt, x)


@adjoint(cbrt)
def _cbrt_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(div(1 / 3, out), out)),)


@lower(cbrt)
def _cbrt_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _cbrt, x)


def _cbrt(e: Emitter, x: Reg) -> Reg:
    """x = 2**(3 q + j) m: a polynomial for cbrt(m) and one step of Halley's method."""
    f = format_of(x)
    a = e.abs(x)
    k, m = split_exponent(e, a, 1.0)
    q = e.floor(e.mul(e.add(k, number(e, 0.5, x)), number(e, 1 / 3, x)))
    j = e.cast(e.sub(k, e.mul(q, number(e, 3.0, x))), dt.int32)
    j = e.and_(j, e.const(3, dt.int32))  # stays inside the tables when x is not finite
    scaled = e.mul(m, e.lookup((1.0, 2.0, 4.0, 1.0), j, f.dtype))
    y = e.mul(polynomial(e, m, CBRT[f.dtype]), e.lookup((1.0, 2 ** (1 / 3), 2 ** (2 / 3), 1.0), j, f.dtype))
    square, square_low = two_product(e, y, y)
    cube = e.fma(square, y, e.neg(scaled))
    residual = e.fma(square_low, y, cube)
    step = e.div(e.mul(y, residual), e.fma(number(e, 3.0, x), scaled, e.mul(number(e, 2.0, x), residual)))
    root = e.sub(y, step)
    bits = e.shl(e.cast(e.add(q, number(e, float(f.bias), x)), f.signed), e.const(f.fraction_bits, f.signed))
    result = finite_or(e, x, e.mul(root, e.bitcast(bits, f.dtype)), a)
    return e.copysign(e.select(e.compare("eq", x, number(e, 0.0, x)), x, result), x)


@op(elementwise=dt.FLOATS, cheap=False)
def hypot(x: Operand, y: Operand) -> Operand:
    """sqrt(x**2 + y**2) without overflow or underflow on the way; inf if either is, even beside NaN.

    Gradient: ct x / out and ct y / out.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.hypot(np.float64(3), np.float64(4))), 6)
        5.0
    """
    return in_double(np.hypot, x, y)


@adjoint(hypot)
def _hypot_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return chain(ct, div(x, out)), chain(ct, div(y, out))


@lower(hypot)
def _hypot_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return in_double_code(e, _hypot, x, y)


def _hypot(e: Emitter, x: Reg, y: Reg) -> Reg:
    a, b = e.abs(x), e.abs(y)
    top = e.maximum(a, b)
    one = number(e, 1.0, top)
    large = e.compare("gt", top, number(e, 2.0**500, top))
    small = e.compare("lt", top, number(e, 2.0**-450, top))
    shrink = e.select(large, number(e, 2.0**-600, top), e.select(small, number(e, 2.0**600, top), one))
    grow = e.select(large, number(e, 2.0**600, top), e.select(small, number(e, 2.0**-600, top), one))
    a, b = e.mul(a, shrink), e.mul(b, shrink)
    result = e.mul(e.sqrt(e.fma(a, a, e.mul(b, b))), grow)
    inf = number(e, math.inf, top)
    return e.select(e.compare("eq", top, inf), inf, result)


# --- pow --------------------------------------------------------------------------------------------------------------


@op("pow", elementwise=dt.NUMERIC, domain=(0.3, 3.0), cheap=False)
def pow_(x: Operand, y: Operand) -> Operand:
    """x ** y, as C's pow for floats: NaN for a negative x and a y that is not whole; 1 for y = 0 or x = 1.

    Integers wrap; an integer to a negative power raises KernelValueError at the launch (the result is then 0).
    A literal y in -1, 1, 2, 3, 4, or any literal that is not negative beside an integer x, gives products, and
    0.5 the square root, as NumPy's operator does.

    Gradient: ct y x**(y - 1), which is 0 for y = 0; and ct out log(x), which is 0 for x = 0 and positive y, and NaN
    for negative x.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.pow(np.float64(2), np.float64(10))), 6)
        1024.0
    """
    if is_float(x):
        return in_double(np.power, x, y)
    if np.any(np.less(y, 0)):
        raise KernelValueError("an integer to a negative power", help="cast the base to a float first")
    return np.power(x, y)


@adjoint(pow_)
def _pow_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    slope = choose(eq(y, 0.0), 0.0, mul(y, pow_(x, sub(y, 1.0))))
    flat = bit_and(eq(x, 0.0), gt(y, 0.0))
    return chain(ct, slope), chain(ct, choose(flat, 0.0, mul(out, log(x))))


@lower(pow_)
def _pow_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return _float_power(e, x, y) if x.dtype.is_float else _integer_power(e, x, y)


@spelled(pow_)
def power(x: Any, y: Any) -> Any:
    """x ** y; small whole literals become products."""
    literal = isinstance(y, (int, float)) and not isinstance(y, bool)
    dtype = dtype_of(x)
    if not literal or dtype is None:
        return pow_(x, y)
    if dtype.is_float and y == 0.5:
        return sqrt(x)
    if isinstance(y, float) and not y.is_integer():
        return pow_(x, y)
    if dtype.is_int and y < 0:
        raise TypeMismatch(
            f"pow: {dtype} to the negative power {y!r}", help="cast the base to a float first, for example float32(x)"
        )
    if dtype.is_int and isinstance(y, int) and y > 0:
        return _product(x, y)
    if dtype.is_float and y in (1, 2, 3, 4):
        return _product(x, int(y))
    return div(1.0, x) if dtype.is_float and y == -1 else pow_(x, y)


def _product(x: Any, n: int) -> Any:
    """x ** n for a positive n, by squaring."""
    result = None
    while True:
        if n & 1:
            result = x if result is None else mul(result, x)
        n >>= 1
        if not n:
            return mul(x, 1) if result is x else result
        x = mul(x, x)


def _integer_power(e: Emitter, x: Reg, y: Reg) -> Reg:
    """By squaring, over all bits that an exponent can have."""
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    ok = e.const(True, dt.bool_)
    if x.dtype.kind == "i":
        ok = e.compare("ge", y, zero)
        e.check(ok, "negative_power")
    both = e.add(x, y)

    def turn(_: Reg, result: Reg, base: Reg, rest: Reg) -> list[Reg]:
        odd = e.compare("ne", e.and_(rest, one), zero)
        return [e.select(odd, e.mul(result, base), result), e.mul(base, base), e.shr(rest, one)]

    start = [
        everywhere(e, 1, both),
        e.select(e.compare("eq", both, both), x, x),
        e.select(e.compare("eq", both, both), y, y),
    ]
    result = e.loop(0, x.dtype.bits, 1, start, turn)[0]
    return e.select(ok, result, zero)


def _float_power(e: Emitter, x: Reg, y: Reg) -> Reg:
    """The power of positive finite numbers, and where a vector holds another number, C's rules for it."""
    zero, inf = number(e, 0.0, x), number(e, math.inf, x)
    result = _positive_power(e, e.abs(x), y)
    usual = e.and_(e.and_(e.compare("gt", x, zero), e.compare("lt", x, inf)), e.compare("lt", e.abs(y), inf))
    return e.branch(e.all(usual), lambda: [result], lambda: [_power_edges(e, x, y, result)])[0]


def _power_edges(e: Emitter, x: Reg, y: Reg, result: Reg) -> Reg:
    """x ** y for all x and y, given |x| ** y for the usual ones. Later rules win."""
    zero, one, inf = number(e, 0.0, x), number(e, 1.0, x), number(e, math.inf, x)
    a = e.abs(x)
    extreme = e.or_(e.or_(e.compare("eq", a, zero), e.compare("eq", a, inf)), e.compare("eq", e.abs(y), inf))
    grows = e.compare("eq", e.compare("gt", a, one), e.compare("gt", y, zero))
    result = e.select(extreme, e.select(grows, inf, zero), result)
    whole = e.compare("eq", e.trunc(y), y)
    half = e.mul(y, number(e, 0.5, x))
    odd = e.and_(whole, e.compare("ne", e.trunc(half), half))
    negative = e.compare("lt", e.copysign(one, x), zero)
    result = e.select(e.and_(negative, odd), e.neg(result), result)
    bad = e.and_(e.compare("lt", x, zero), e.and_(e.not_(whole), e.compare("ne", a, inf)))
    result = e.select(bad, number(e, math.nan, x), result)
    result = e.select(e.or_(e.compare("ne", x, x), e.compare("ne", y, y)), e.add(x, y), result)
    level = e.and_(e.compare("eq", a, one), e.compare("eq", e.abs(y), inf))
    return e.select(e.or_(e.or_(e.compare("eq", y, zero), e.compare("eq", x, one)), level), one, result)


def _positive_power(e: Emitter, a: Reg, y: Reg) -> Reg:
    """a ** y for positive finite a and finite y."""
    f = format_of(a)
    log_high, log_low = _log_pair(e, a)
    high = e.mul(y, log_high)
    low = e.fma(y, log_low, e.fma(y, log_high, e.neg(high)))
    moderate = e.compare("lt", e.abs(high), number(e, 2 * f.exp_high, a))
    return exp_scaled(e, high, e.select(moderate, low, number(e, 0.0, a)))


def _log_pair(e: Emitter, a: Reg) -> Pair:
    """log(a) of positive finite `a`, to about 2**-12 ULP."""
    f = format_of(a)
    k, m = split_exponent(e, a, math.sqrt(0.5))
    one, two = number(e, 1.0, a), number(e, 2.0, a)
    top = e.sub(m, one)
    bottom = e.add(m, one)
    bottom_low = e.sub(top, e.sub(bottom, two))
    inverse = e.div(one, bottom)
    s = e.mul(top, inverse)
    s_low = e.mul(e.sub(e.fma(e.neg(s), bottom, top), e.mul(s, bottom_low)), inverse)
    z = pair_product(e, (s, s_low), (s, s_low))
    cube = pair_product(e, (s, s_low), z)
    third = 2 / 3 if f.dtype is dt.float64 else float(np.float32(2 / 3))
    third_low = float.fromhex("0x1.5555555555555p-55") if f.dtype is dt.float64 else 2 / 3 - third
    rest = e.mul(z[0], polynomial(e, z[0], ATANH_TAIL[f.dtype]))
    factor, factor_low = fast_two_sum(e, number(e, third, a), rest)
    tail = pair_product(e, cube, (factor, e.add(factor_low, number(e, third_low, a))))
    high, low = fast_two_sum(e, e.mul(two, s), tail[0])
    low = e.add(low, e.fma(two, s_low, tail[1]))
    whole = e.mul(k, number(e, f.log2_hi, a))  # exact
    total, lost = fast_two_sum(e, whole, high)
    return fast_two_sum(e, total, e.add(lost, e.fma(k, number(e, f.log2_lo, a), low)))


PUBLIC = {"sqrt": sqrt, "rsqrt": rsqrt, "cbrt": cbrt, "hypot": hypot, "pow": pow_}
