"""Trigonometric functions and their inverses, in radians. At most 2 ULP in float32 and 4 in float64, for any angle.

sin and cos: the angle is reduced to |r| <= pi/4 (see `quadrants`), then one of two minimax polynomials. Inverses:
minimax polynomials after atan(t) = pi/4 + atan((t - 1)/(t + 1)) or asin(x) = pi/2 - 2 asin(sqrt((1 - x)/2)).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op
from tilegrad.ops.arithmetic import add, chain, div, mul, neg, sub
from tilegrad.ops.bodies import in_double
from tilegrad.ops.coefficients import ASIN, ATAN, COS, SIN
from tilegrad.ops.floats import fast_two_sum, format_of, number, polynomial
from tilegrad.ops.floats import in_double as in_double_code
from tilegrad.ops.power import hypot, rsqrt
from tilegrad.ops.quadrants import reduce_angle

_PI_LOW = 1.2246467991473532e-16

# --- sin, cos, tan ----------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS, cheap=False)
def sin(x: Operand) -> Operand:
    """The sine of an angle of any size; NaN for an infinity.

    Gradient: ct cos(x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.sin(np.float64(0.5))), 6)
        0.479426
    """
    return in_double(np.sin, x)


@adjoint(sin)
def _sin_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, cos(x)),)


@lower(sin)
def _sin_lower(e: Emitter, x: Reg) -> Reg:
    r, q = reduce_angle(e, e.abs(x))
    return _flip(e, _quarter_wave(e, r, q), e.xor(_quadrant_sign(e, q), _sign_bit(e, x)))


@op(elementwise=dt.FLOATS, cheap=False)
def cos(x: Operand) -> Operand:
    """The cosine of an angle of any size; NaN for an infinity.

    Gradient: -ct sin(x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.cos(np.float64(0.5))), 6)
        0.877583
    """
    return in_double(np.cos, x)


@adjoint(cos)
def _cos_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, neg(sin(x))),)


@lower(cos)
def _cos_lower(e: Emitter, x: Reg) -> Reg:
    r, q = reduce_angle(e, e.abs(x))
    q = e.add(q, e.const(1, q.dtype))
    return _flip(e, _quarter_wave(e, r, q), _quadrant_sign(e, q))


@op(elementwise=dt.FLOATS, domain=(-1.2, 1.2), cheap=False)
def tan(x: Operand) -> Operand:
    """The tangent of an angle of any size; NaN for an infinity.

    Gradient: ct (1 + out**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.tan(np.float64(0.5))), 6)
        0.546302
    """
    return in_double(np.tan, x)


@adjoint(tan)
def _tan_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, add(mul(out, out), 1.0)),)


@lower(tan)
def _tan_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _tan, x)


def _tan(e: Emitter, x: Reg) -> Reg:
    r, q = reduce_angle(e, e.abs(x))
    s, c = _sine(e, r), _cosine(e, r)
    odd = e.compare("ne", e.and_(q, e.const(1, q.dtype)), e.const(0, q.dtype))
    y = e.div(e.select(odd, e.neg(c), s), e.select(odd, s, c))
    return _flip(e, y, _sign_bit(e, x))


def _sine(e: Emitter, r: Reg) -> Reg:
    z = e.mul(r, r)
    return e.fma(e.mul(z, r), polynomial(e, z, SIN[r.dtype]), r)


def _cosine(e: Emitter, r: Reg) -> Reg:
    z = e.mul(r, r)
    one, half = number(e, 1.0, r), e.mul(z, number(e, 0.5, r))
    start = e.sub(one, half)
    rest = e.mul(e.mul(z, z), polynomial(e, z, COS[r.dtype]))
    return e.add(start, e.add(e.sub(e.sub(one, start), half), rest))


def _quarter_wave(e: Emitter, r: Reg, q: Reg) -> Reg:
    """sin(r + q pi/2) but for the sign."""
    odd = e.compare("ne", e.and_(q, e.const(1, q.dtype)), e.const(0, q.dtype))
    return e.select(odd, _cosine(e, r), _sine(e, r))


def _quadrant_sign(e: Emitter, q: Reg) -> Reg:
    """The sign bit of sin(r + q pi/2) relative to that of `_quarter_wave`."""
    return e.shl(e.and_(q, e.const(2, q.dtype)), e.const(q.dtype.bits - 2, q.dtype))


def _sign_bit(e: Emitter, x: Reg) -> Reg:
    signed = format_of(x).signed
    return e.and_(e.bitcast(x, signed), e.const(signed.min, signed))


def _flip(e: Emitter, y: Reg, sign: Reg) -> Reg:
    return e.bitcast(e.xor(e.bitcast(y, sign.dtype), sign), y.dtype)


# --- inverses ---------------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS, domain=(-0.9, 0.9), cheap=False)
def asin(x: Operand) -> Operand:
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside of [-1, 1].

    Gradient: ct / sqrt((1 - x)(1 + x)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.asin(np.float64(0.5))), 6)
        0.523599
    """
    return in_double(np.arcsin, x)


@adjoint(asin)
def _asin_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, rsqrt(mul(sub(1.0, x), add(x, 1.0)))),)


@lower(asin)
def _asin_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _asin, x)


def _asin(e: Emitter, x: Reg) -> Reg:
    half, y, _ = _asin_core(e, e.abs(x))
    pi_half, low = number(e, math.pi / 2, x), number(e, _PI_LOW / 2, x)
    return e.copysign(e.select(half, e.sub(pi_half, e.sub(e.add(y, y), low)), y), x)


def _asin_core(e: Emitter, a: Reg) -> tuple[Reg, Reg, Reg]:
    """(whether a > 1/2, asin(a) or asin(sqrt((1 - a)/2)), the argument of that asin); NaN above 1."""
    half = e.compare("gt", a, number(e, 0.5, a))
    other = e.mul(e.sub(number(e, 1.0, a), a), number(e, 0.5, a))
    z = e.select(half, other, e.mul(a, a))
    s = e.select(half, e.sqrt(other), a)
    return half, e.fma(e.mul(s, z), polynomial(e, z, ASIN[a.dtype]), s), s


@op(elementwise=dt.FLOATS, domain=(-0.9, 0.9), cheap=False)
def acos(x: Operand) -> Operand:
    """The angle in [0, pi] whose cosine is x; NaN outside of [-1, 1].

    Gradient: -ct / sqrt((1 - x)(1 + x)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.acos(np.float64(0.5))), 6)
        1.047198
    """
    return in_double(np.arccos, x)


@adjoint(acos)
def _acos_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, neg(rsqrt(mul(sub(1.0, x), add(x, 1.0))))),)


@lower(acos)
def _acos_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _acos, x)


def _acos(e: Emitter, x: Reg) -> Reg:
    half, y, _ = _asin_core(e, e.abs(x))
    negative = e.compare("lt", x, number(e, 0.0, x))
    twice = e.add(y, y)
    pi, pi_low = number(e, math.pi, x), number(e, _PI_LOW, x)
    outer = e.select(negative, e.sub(pi, e.sub(twice, pi_low)), twice)
    signed = e.copysign(y, x)
    inner = e.sub(number(e, math.pi / 2, x), e.sub(signed, number(e, _PI_LOW / 2, x)))
    return e.select(half, outer, inner)


@op(elementwise=dt.FLOATS, cheap=False)
def atan(x: Operand) -> Operand:
    """The angle in [-pi/2, pi/2] whose tangent is x.

    Gradient: ct / (1 + x**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.atan(np.float64(0.5))), 6)
        0.463648
    """
    return in_double(np.arctan, x)


@adjoint(atan)
def _atan_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(1.0, add(mul(x, x), 1.0))),)


@lower(atan)
def _atan_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _atan, x)


def _atan(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one = number(e, 1.0, x)
    outer = e.compare("gt", a, number(e, 1 + math.sqrt(2), x))
    middle = e.compare("gt", a, number(e, math.sqrt(2) - 1, x))
    top = e.select(outer, number(e, -1.0, x), e.select(middle, e.sub(a, one), a))
    bottom = e.select(outer, a, e.select(middle, e.add(a, one), one))
    high = _choose_angle(e, outer, middle, math.pi / 4)
    low = _choose_angle(e, outer, middle, _PI_LOW / 4)
    return e.copysign(e.add(high, e.add(low, _atan_small(e, e.div(top, bottom)))), x)


def _choose_angle(e: Emitter, outer: Reg, middle: Reg, quarter: float) -> Reg:
    two, one, zero = (e.const(n * quarter, dt.float64) for n in (2, 1, 0))
    return e.select(outer, two, e.select(middle, one, zero))


def _atan_small(e: Emitter, t: Reg) -> Reg:
    """atan(t) for |t| <= tan(pi/8)."""
    z = e.mul(t, t)
    return e.fma(e.mul(t, z), polynomial(e, z, ATAN[t.dtype]), t)


@op(elementwise=dt.FLOATS, cheap=False)
def atan2(y: Operand, x: Operand) -> Operand:
    """The angle in [-pi, pi] of the point (x, y), by C's rules for zeros and infinities.

    Gradient: ct x / (x**2 + y**2) and -ct y / (x**2 + y**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.atan2(np.float64(1), np.float64(1))), 6)
        0.785398
    """
    return in_double(np.arctan2, y, x)


@adjoint(atan2)
def _atan2_adjoint(ct: Any, out: Any, y: Any, x: Any) -> Any:
    r = hypot(x, y)
    return chain(ct, div(div(x, r), r)), chain(ct, neg(div(div(y, r), r)))


@lower(atan2)
def _atan2_lower(e: Emitter, y: Reg, x: Reg) -> Reg:
    return in_double_code(e, _atan2, y, x)


def _atan2(e: Emitter, y: Reg, x: Reg) -> Reg:
    zero, one, inf = number(e, 0.0, x), number(e, 1.0, x), number(e, math.inf, x)
    a, b = e.abs(x), e.abs(y)
    steep = e.compare("gt", b, a)
    large, small = e.select(steep, b, a), e.select(steep, a, b)
    ratio = e.div(small, large)
    ratio = e.select(e.compare("eq", large, zero), zero, ratio)
    ratio = e.select(e.compare("eq", small, inf), one, ratio)
    middle = e.compare("gt", ratio, number(e, math.sqrt(2) - 1, x))
    shrink = number(e, 0.25, x)
    small, large = e.mul(small, shrink), e.mul(large, shrink)
    shifted = e.div(e.sub(small, large), e.add(small, large))
    shifted = e.select(e.compare("eq", ratio, one), zero, shifted)
    angle = _atan_small(e, e.select(middle, shifted, ratio))
    behind = e.compare("lt", e.copysign(one, x), zero)
    # small / large is measured from the nearer axis: add or subtract it there
    back = e.xor(steep, behind)
    angle = e.select(back, e.neg(angle), angle)
    quarters = e.select(middle, e.select(back, number(e, -1.0, x), one), zero)
    quarters = e.add(quarters, e.select(steep, number(e, 2.0, x), e.select(behind, number(e, 4.0, x), zero)))
    high, low = e.mul(quarters, number(e, math.pi / 4, x)), e.mul(quarters, number(e, _PI_LOW / 4, x))
    total, lost = fast_two_sum(e, high, angle)
    total = e.add(total, e.add(lost, low))
    nan = e.or_(e.compare("ne", x, x), e.compare("ne", y, y))
    return e.select(nan, e.add(x, y), e.copysign(total, y))


# --- degrees ----------------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS)
def degrees(x: Operand) -> Operand:
    """An angle in radians as degrees: x 180/pi.

    Gradient: ct 180/pi.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.degrees(np.float64(1.0))), 6)
        57.29578
    """
    return in_double(np.degrees, x)


@adjoint(degrees)
def _degrees_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (mul(ct, 180 / math.pi),)


@lower(degrees)
def _degrees_lower(e: Emitter, x: Reg) -> Reg:
    return e.mul(x, number(e, 180 / math.pi, x))


@op(elementwise=dt.FLOATS)
def radians(x: Operand) -> Operand:
    """An angle in degrees as radians: x pi/180.

    Gradient: ct pi/180.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.radians(np.float64(180.0))), 6)
        3.141593
    """
    return in_double(np.radians, x)


@adjoint(radians)
def _radians_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (mul(ct, math.pi / 180),)


@lower(radians)
def _radians_lower(e: Emitter, x: Reg) -> Reg:
    return e.mul(x, number(e, math.pi / 180, x))


PUBLIC = {
    "sin": sin, "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2,
    "degrees": degrees, "radians": radians,
}  # fmt: skip
