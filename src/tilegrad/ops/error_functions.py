"""The error function, its complement, and their inverses. At most 2 ULP in float32 and 4 in float64, tails included.

erf: a polynomial up to 1, then 1 - erfc. erfc of float32 is the fourth power of a polynomial where only erf needs it;
otherwise exp(-x**2) P((x - 4)/(x + 4)) / (1 + 2x), with x**2 and its rounding error, after M. M. Shepherd and
J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc(x) in 0 <= x < inf (1981).

Inverses: a polynomial as a first guess, then one step of Halley's method; in the tail on the logarithm of the
equation, so that the smallest arguments lose nothing.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op
from tilegrad.ops import bodies
from tilegrad.ops.arithmetic import chain, mul, neg
from tilegrad.ops.coefficients import ERF, ERFC_ROOT, ERFCX, ERFINV, ERFINV_TAIL
from tilegrad.ops.exponential import exp, exp_scaled, log_finite
from tilegrad.ops.floats import clamp_above, in_double, number, polynomial, two_product

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)

_erf_of = bodies.by_math(math.erf)
_erfc_of = bodies.by_math(math.erfc)


@op(elementwise=dt.FLOATS, cheap=False)
def erf(x: Operand) -> Operand:
    """2/sqrt(pi) times the integral of exp(-t**2) from 0 to x.

    Gradient: ct 2/sqrt(pi) exp(-x**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.erf(np.float64(0.5))), 6)
        0.5205
    """
    return bodies.in_double(_erf_of, x)


@adjoint(erf)
def _erf_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(exp(neg(mul(x, x))), _TWO_OVER_ROOT_PI)),)


@lower(erf)
def _erf_lower(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one = number(e, 1.0, x)
    near = _erf_near(e, x)
    if x.dtype is dt.float32:
        root = polynomial(e, clamp_above(e, a, 4.0), ERFC_ROOT[x.dtype])
        square = e.mul(root, root)
        far = e.fma(e.neg(square), square, one)
    else:
        far = e.sub(one, _erfc_far(e, clamp_above(e, a, 6.0)))
    return e.select(e.compare("lt", a, one), near, e.copysign(far, x))


def _erf_near(e: Emitter, x: Reg) -> Reg:
    """erf(x) for |x| <= 1."""
    return e.fma(x, polynomial(e, e.mul(x, x), ERF[x.dtype]), x)


def _erfcx(e: Emitter, a: Reg) -> Reg:
    """exp(a**2) erfc(a) for float64 a in [0.45, 28]."""
    four, one = number(e, 4.0, a), number(e, 1.0, a)
    bottom = e.add(a, four)
    t = e.div(e.sub(a, four), bottom)
    return e.div(polynomial(e, t, ERFCX[a.dtype]), e.fma(number(e, 2.0, a), a, one))


def _erfc_far(e: Emitter, a: Reg) -> Reg:
    """erfc(a) for float64 a in [0.45, 28]."""
    square, lost = two_product(e, a, a)
    return e.mul(exp_scaled(e, e.neg(square), e.neg(lost)), _erfcx(e, a))


@op(elementwise=dt.FLOATS, cheap=False)
def erfc(x: Operand) -> Operand:
    """1 - erf(x), accurate in the tail.

    Gradient: -ct 2/sqrt(pi) exp(-x**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.erfc(np.float64(0.5))), 6)
        0.4795
    """
    return bodies.in_double(_erfc_of, x)


@adjoint(erfc)
def _erfc_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(exp(neg(mul(x, x))), -_TWO_OVER_ROOT_PI)),)


@lower(erfc)
def _erfc_lower(e: Emitter, x: Reg) -> Reg:
    return in_double(e, _erfc, x)


def _erfc(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one, two, zero = number(e, 1.0, x), number(e, 2.0, x), number(e, 0.0, x)
    tail = _erfc_far(e, clamp_above(e, a, 28.0))
    far = e.select(e.compare("lt", x, zero), e.sub(two, tail), tail)
    return e.select(e.compare("lt", a, number(e, 0.5, x)), e.sub(one, _erf_near(e, x)), far)


# --- inverses ---------------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS, domain=(-0.9, 0.9), cheap=False)
def erfinv(x: Operand) -> Operand:
    """The y with erf(y) = x; infinite at -1 and 1, NaN beyond.

    Gradient: ct sqrt(pi)/2 exp(out**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.erfinv(np.float64(0.5))), 6)
        0.476936
    """
    return bodies.in_double(bodies.by_math(lambda a: _inverse(a, 1 - abs(a))), x)


@adjoint(erfinv)
def _erfinv_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(exp(mul(out, out)), 1 / _TWO_OVER_ROOT_PI)),)


@lower(erfinv)
def _erfinv_lower(e: Emitter, x: Reg) -> Reg:
    return in_double(e, _erfinv, x)


def _erfinv(e: Emitter, x: Reg) -> Reg:
    return _inverse_code(e, x, e.sub(number(e, 1.0, x), e.abs(x)))


@op(elementwise=dt.FLOATS, domain=(0.1, 1.9), cheap=False)
def erfcinv(x: Operand) -> Operand:
    """The y with erfc(y) = x; inf at 0, -inf at 2, NaN outside of [0, 2].

    Gradient: -ct sqrt(pi)/2 exp(out**2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.erfcinv(np.float64(0.5))), 6)
        0.476936
    """
    return bodies.in_double(bodies.by_math(lambda a: _inverse(1 - a, min(a, 2 - a))), x)


@adjoint(erfcinv)
def _erfcinv_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(exp(mul(out, out)), -1 / _TWO_OVER_ROOT_PI)),)


@lower(erfcinv)
def _erfcinv_lower(e: Emitter, x: Reg) -> Reg:
    return in_double(e, _erfcinv, x)


def _erfcinv(e: Emitter, x: Reg) -> Reg:
    one, two = number(e, 1.0, x), number(e, 2.0, x)
    return _inverse_code(e, e.sub(one, x), e.select(e.compare("gt", x, one), e.sub(two, x), x))


def _inverse_code(e: Emitter, x: Reg, c: Reg) -> Reg:
    """erfinv(x) where c = 1 - |x|, whichever of the two is exact."""
    zero = number(e, 0.0, x)
    y = e.select(e.compare("lt", c, number(e, 0.5, x)), _inverse_tail(e, c), _inverse_near(e, e.abs(x)))
    y = e.select(e.compare("gt", c, zero), y, number(e, math.nan, x))
    y = e.select(e.compare("eq", c, zero), number(e, math.inf, x), y)
    return e.copysign(y, x)


def _inverse_near(e: Emitter, a: Reg) -> Reg:
    """Halley's step on erf(y) = a, from a polynomial."""
    bounded = clamp_above(e, a, 0.5)
    y = e.mul(bounded, polynomial(e, e.mul(bounded, bounded), ERFINV[a.dtype]))
    slope = e.mul(exp_scaled(e, e.neg(e.mul(y, y))), number(e, _TWO_OVER_ROOT_PI, a))
    step = e.div(e.sub(_erf_near(e, y), bounded), slope)
    return e.sub(y, e.div(step, e.fma(y, step, number(e, 1.0, a))))


def _inverse_tail(e: Emitter, c: Reg) -> Reg:
    """Halley's step on y**2 - log(erfcx(y)) = -log(c), from a polynomial; the slope is 2/(sqrt(pi) erfcx(y))."""
    three, half = number(e, 3.0, c), number(e, 0.5, c)
    level = e.neg(log_finite(e, clamp_above(e, c, 0.5)))
    v = e.sqrt(level)
    y = e.mul(v, polynomial(e, e.div(e.sub(v, three), e.add(v, three)), ERFINV_TAIL[c.dtype]))
    ratio = _erfcx(e, y)
    slope = e.div(number(e, _TWO_OVER_ROOT_PI, c), ratio)
    residual = e.sub(e.sub(e.mul(y, y), level), log_finite(e, ratio))
    step = e.div(residual, slope)
    bend = e.mul(e.sub(slope, e.add(y, y)), half)  # half of second over first derivative
    return e.sub(y, e.div(step, e.fma(e.neg(bend), step, number(e, 1.0, c))))


def _inverse(x: float, c: float) -> float:
    """erfinv(x) where c = 1 - |x|, by Newton's method; the meaning that the lowering is checked against."""
    if not c > 0:
        return math.copysign(math.inf, x) if c == 0 else math.nan
    y = 0.0
    if c >= 0.5:
        for _ in range(8):
            y -= (math.erf(y) - abs(x)) / (_TWO_OVER_ROOT_PI * math.exp(-y * y))
        return math.copysign(y, x)
    y, level = math.sqrt(-math.log(c)), -math.log(c)
    for _ in range(12):
        ratio = _erfcx_of(y)
        y -= (y * y - math.log(ratio) - level) * ratio / _TWO_OVER_ROOT_PI
    return math.copysign(y, x)


def _erfcx_of(y: float) -> float:
    """exp(y**2) erfc(y), by a continued fraction where erfc becomes small."""
    if y < 5:
        return math.exp(y * y) * math.erfc(y)
    tail = 0.0
    for k in range(60, 0, -1):
        tail = k / 2 / (y + tail)
    return 1 / (math.sqrt(math.pi) * (y + tail))


PUBLIC = {"erf": erf, "erfc": erfc, "erfinv": erfinv, "erfcinv": erfcinv}
