"""Hyperbolic functions and their inverses, from exp(x) - 1 and log(1 + x). At most 2 ULP in float32, 4 in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op
from tilegrad.ops.arithmetic import add, chain, div, mul, sub
from tilegrad.ops.bodies import in_double
from tilegrad.ops.coefficients import TANH
from tilegrad.ops.exponential import exp_scaled, expm1_kernel, is_tiny, log1p_finite, log_finite
from tilegrad.ops.floats import clamp_above, finite_or, number, polynomial
from tilegrad.ops.floats import in_double as in_double_code
from tilegrad.ops.power import rsqrt


@op(elementwise=dt.FLOATS, cheap=False)
def tanh(x: Operand) -> Operand:
    """The hyperbolic tangent: t / (t + 2) or 1 - 2 / (t + 2) with t = exp(2x) - 1, a polynomial near 0 in float32.

    Gradient: ct (1 - out)(1 + out).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.tanh(np.float64(0.5))), 6)
        0.462117
    """
    return in_double(np.tanh, x)


@adjoint(tanh)
def _tanh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(sub(1.0, out), add(out, 1.0))),)


@lower(tanh)
def _tanh_lower(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one, two = number(e, 1.0, x), number(e, 2.0, x)
    if x.dtype is dt.float64:
        t = expm1_kernel(e, clamp_above(e, e.add(a, a), 40.0))
        return e.copysign(e.div(t, e.add(t, two)), x)
    z = e.mul(a, a)
    near = e.fma(e.mul(a, z), polynomial(e, z, TANH[x.dtype]), a)
    t = expm1_kernel(e, clamp_above(e, e.add(a, a), 20.0))
    far = e.sub(one, e.div(two, e.add(t, two)))
    return e.copysign(e.select(e.compare("lt", a, number(e, 0.625, x)), near, far), x)


@op(elementwise=dt.FLOATS, cheap=False)
def sinh(x: Operand) -> Operand:
    """The hyperbolic sine (exp(x) - exp(-x)) / 2, accurate near 0.

    Gradient: ct cosh(x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.sinh(np.float64(0.5))), 6)
        0.521095
    """
    return in_double(np.sinh, x)


@adjoint(sinh)
def _sinh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, cosh(x)),)


@lower(sinh)
def _sinh_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _sinh, x)


def _sinh(e: Emitter, x: Reg) -> Reg:
    a = clamp_above(e, e.abs(x), 710.6)  # beyond the largest result
    t = expm1_kernel(e, a, 2)
    y = e.add(t, e.div(t, e.fma(number(e, 4.0, x), t, number(e, 1.0, x))))
    return e.select(is_tiny(e, x), x, e.copysign(e.add(y, y), x))


@op(elementwise=dt.FLOATS, cheap=False)
def cosh(x: Operand) -> Operand:
    """The hyperbolic cosine (exp(x) + exp(-x)) / 2.

    Gradient: ct sinh(x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.cosh(np.float64(0.5))), 6)
        1.127626
    """
    return in_double(np.cosh, x)


@adjoint(cosh)
def _cosh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, sinh(x)),)


@lower(cosh)
def _cosh_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _cosh, x)


def _cosh(e: Emitter, x: Reg) -> Reg:
    t = exp_scaled(e, e.abs(x), halvings=1)
    return e.add(t, e.div(number(e, 0.25, x), t))


# --- inverses ---------------------------------------------------------------------------------------------------------


@op(elementwise=dt.FLOATS, cheap=False)
def asinh(x: Operand) -> Operand:
    """The inverse hyperbolic sine: log(|x| + sqrt(x**2 + 1)) with the sign of x.

    Gradient: ct / sqrt(x**2 + 1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.asinh(np.float64(0.5))), 6)
        0.481212
    """
    return in_double(np.arcsinh, x)


@adjoint(asinh)
def _asinh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, rsqrt(add(mul(x, x), 1.0))),)


@lower(asinh)
def _asinh_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _asinh, x)


def _asinh(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one = number(e, 1.0, x)
    square = e.mul(a, a)
    root = e.sqrt(e.add(square, one))
    near = log1p_finite(e, e.add(a, e.div(square, e.add(one, root))))
    y = e.select(e.compare("gt", a, number(e, 2.0**30, x)), _log_of_twice(e, a), near)
    return e.copysign(e.select(is_tiny(e, x), a, finite_or(e, x, y, a)), x)


def _log_of_twice(e: Emitter, x: Reg) -> Reg:
    return e.add(log_finite(e, x), number(e, math.log(2), x))


@op(elementwise=dt.FLOATS, domain=(1.1, 5.0), cheap=False)
def acosh(x: Operand) -> Operand:
    """The inverse hyperbolic cosine, not negative; NaN below 1.

    Gradient: ct / sqrt((x - 1)(x + 1)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.acosh(np.float64(1.5))), 6)
        0.962424
    """
    return in_double(np.arccosh, x)


@adjoint(acosh)
def _acosh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, rsqrt(mul(sub(x, 1.0), add(x, 1.0)))),)


@lower(acosh)
def _acosh_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _acosh, x)


def _acosh(e: Emitter, x: Reg) -> Reg:
    t = e.sub(x, number(e, 1.0, x))
    near = log1p_finite(e, e.add(t, e.sqrt(e.fma(t, t, e.add(t, t)))))
    y = e.select(e.compare("gt", x, number(e, 2.0**30, x)), _log_of_twice(e, x), near)
    y = finite_or(e, x, y, x)
    return e.select(e.compare("ge", x, number(e, 1.0, x)), y, number(e, math.nan, x))


@op(elementwise=dt.FLOATS, domain=(-0.9, 0.9), cheap=False)
def atanh(x: Operand) -> Operand:
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    Gradient: ct / ((1 - x)(1 + x)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.atanh(np.float64(0.5))), 6)
        0.549306
    """
    return in_double(np.arctanh, x)


@adjoint(atanh)
def _atanh_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(1.0, mul(sub(1.0, x), add(x, 1.0)))),)


@lower(atanh)
def _atanh_lower(e: Emitter, x: Reg) -> Reg:
    return in_double_code(e, _atanh, x)


def _atanh(e: Emitter, x: Reg) -> Reg:
    a = e.abs(x)
    one, half = number(e, 1.0, x), number(e, 0.5, x)
    twice = e.add(a, a)
    rest = e.sub(one, a)
    argument = e.select(e.compare("lt", a, half), e.add(twice, e.div(e.mul(twice, a), rest)), e.div(twice, rest))
    y = e.mul(log1p_finite(e, argument), half)
    y = e.select(e.compare("lt", a, one), y, number(e, math.nan, x))
    y = e.select(e.compare("eq", a, one), number(e, math.inf, x), y)
    return e.copysign(e.select(is_tiny(e, x), a, y), x)


PUBLIC = {"sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh, "acosh": acosh, "atanh": atanh}
