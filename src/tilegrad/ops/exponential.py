"""Exponentials and logarithms: exp exp2 expm1, log log2 log10 log1p. At most 2 ULP in float32 and 4 in float64.

exp: x = n log(2) + r with |r| <= log(2)/2, a minimax polynomial in r, and 2**n multiplied in two steps so that
subnormal results are rounded once. log: x = 2**k m with m near 1, f = m - 1, and log(1 + f) = f - f**2/2 + ..., by a
polynomial in float32 and by 2 atanh(f / (2 + f)) in float64, as in fdlibm (Sun Microsystems, 1993).

Pure code of the operands' own type without calls; infinities, NaN and subnormals need no branch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op
from tilegrad.ops.arithmetic import add, chain, div, mul
from tilegrad.ops.bodies import in_double
from tilegrad.ops.coefficients import ATANH, EXP, EXP2, LOG
from tilegrad.ops.floats import (
    clamp_above,
    clamp_below,
    fast_two_sum,
    format_of,
    nearest,
    number,
    polynomial,
    power_of_two,
    scale,
    split_exponent,
)

# --- exponentials -----------------------------------------------------------------------------------------------------


def exp_reduced(e: Emitter, x: Reg, low: Reg | None = None) -> tuple[Reg, Reg, Reg]:
    """(n, n as integer, r) with x + low = n log(2) + r, |r| <= log(2)/2; `x` must be of moderate size."""
    f = format_of(x)
    n, bits = nearest(e, x, 1 / math.log(2))
    r = e.fma(n, number(e, -f.log2_hi, x), x)  # exact: log2_hi has trailing zeros
    if low is not None:
        return n, bits, e.add(r, e.fma(n, number(e, -f.log2_lo, x), low))
    return n, bits, e.fma(n, number(e, -f.log2_lo, x), r)


def expm1_polynomial(e: Emitter, r: Reg) -> Reg:
    """exp(r) - 1 for |r| <= log(2)/2."""
    return e.fma(e.mul(r, r), polynomial(e, r, EXP[r.dtype]), r)


def exp_scaled(e: Emitter, x: Reg, low: Reg | None = None, halvings: int = 0) -> Reg:
    """exp(x + low) / 2**halvings, |low| at most a few ULP of x; no overflow before the result's."""
    f = format_of(x)
    bounded = clamp_below(e, clamp_above(e, x, f.exp_high), f.exp_low)
    _, bits, r = exp_reduced(e, bounded, low)
    if halvings:
        bits = e.sub(bits, e.const(halvings, bits.dtype))
    return scale(e, e.add(number(e, 1.0, x), expm1_polynomial(e, r)), bits)


@op(elementwise=dt.FLOATS, cheap=False)
def exp(x: Operand) -> Operand:
    """e ** x: 0 for -inf, inf for +inf and above the overflow threshold; subnormal results are correct.

    Gradient: ct * out.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.exp(np.float64(0.5))), 6)
        1.648721
    """
    return in_double(np.exp, x)


@adjoint(exp)
def _exp_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, out),)


@lower(exp)
def _exp_lower(e: Emitter, x: Reg) -> Reg:
    return exp_scaled(e, x)


@op(elementwise=dt.FLOATS, cheap=False)
def exp2(x: Operand) -> Operand:
    """2 ** x, exact for whole x.

    Gradient: ct * out * log(2).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.exp2(np.float64(0.5))), 6)
        1.414214
    """
    return in_double(np.exp2, x)


@adjoint(exp2)
def _exp2_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, mul(out, math.log(2))),)


@lower(exp2)
def _exp2_lower(e: Emitter, x: Reg) -> Reg:
    f = format_of(x)
    limit = f.bias + f.fraction_bits + 3.0
    bounded = clamp_below(e, clamp_above(e, x, limit), -limit)
    n, bits = nearest(e, bounded, 1.0)
    r = e.sub(bounded, n)
    return scale(e, e.fma(r, polynomial(e, r, EXP2[x.dtype]), number(e, 1.0, x)), bits)


def expm1_kernel(e: Emitter, x: Reg, halvings: int = 0) -> Reg:
    """(exp(x) - 1) / 2**halvings, for x below (bias + halvings + 1/2) log(2)."""
    f = format_of(x)
    _, bits, r = exp_reduced(e, x)
    factor = power_of_two(e, e.sub(bits, e.const(halvings, bits.dtype)) if halvings else bits, f)
    return e.fma(factor, expm1_polynomial(e, r), e.sub(factor, number(e, 2.0**-halvings, x)))


@op(elementwise=dt.FLOATS, cheap=False)
def expm1(x: Operand) -> Operand:
    """exp(x) - 1, accurate near 0.

    Gradient: ct * (out + 1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.expm1(np.float64(0.5))), 6)
        0.648721
    """
    return in_double(np.expm1, x)


@adjoint(expm1)
def _expm1_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, add(out, 1.0)),)


@lower(expm1)
def _expm1_lower(e: Emitter, x: Reg) -> Reg:
    f = format_of(x)
    bounded = clamp_below(e, clamp_above(e, x, f.exp_high - 1.0), -f.fraction_bits - 2.0)
    y = e.mul(expm1_kernel(e, bounded, 2), number(e, 4.0, x))
    return e.select(is_tiny(e, x), x, y)


def is_tiny(e: Emitter, x: Reg) -> Reg:
    """Whether |x| is so small that x + x**2 rounds to x."""
    return e.compare("lt", e.abs(x), number(e, 2.0 ** -(format_of(x).fraction_bits + 2), x))


# --- logarithms -------------------------------------------------------------------------------------------------------


def log_terms(e: Emitter, f: Reg) -> tuple[Reg, Reg]:
    """(h, t) with log(1 + f) = f - h + t and h = f**2 / 2, for 1 + f within the range of `log_split`."""
    square = e.mul(e.mul(f, number(e, 0.5, f)), f)
    if f.dtype is dt.float32:
        return square, e.mul(e.mul(e.mul(f, f), f), polynomial(e, f, LOG[f.dtype]))
    s = e.div(f, e.add(number(e, 2.0, f), f))
    z = e.mul(s, s)
    return square, e.mul(s, e.fma(z, polynomial(e, z, ATANH[f.dtype]), square))


def log_split(e: Emitter, x: Reg) -> tuple[Reg, Reg]:
    """(k, f) with x = 2**k (1 + f); 1 + f is in [2/3, 4/3) in float32, in [sqrt(1/2), sqrt(2)) in float64."""
    lowest = 2 / 3 if x.dtype is dt.float32 else math.sqrt(0.5)
    k, m = split_exponent(e, x, lowest)
    return k, e.sub(m, number(e, 1.0, x))


def log_edges(e: Emitter, x: Reg, y: Reg) -> Reg:
    """`y` for positive finite x; -inf for 0, inf for inf, NaN for negatives and NaN."""
    zero, inf, nan = number(e, 0.0, x), number(e, math.inf, x), number(e, math.nan, x)
    high = e.select(e.compare("lt", x, inf), y, x)
    low = e.select(e.compare("eq", x, zero), number(e, -math.inf, x), nan)
    return e.select(e.compare("gt", x, zero), high, low)


def _log_sum(e: Emitter, k: Reg, f: Reg, extra: Reg | None = None) -> Reg:
    """k log(2) + log(1 + f) + extra."""
    form = format_of(f)
    square, tail = log_terms(e, f)
    small = e.fma(k, number(e, form.log2_lo, f), tail)
    if extra is not None:
        small = e.add(small, extra)
    return e.fma(k, number(e, form.log2_hi, f), e.sub(f, e.sub(square, small)))


@op(elementwise=dt.FLOATS, domain=(0.1, 5.0), cheap=False)
def log(x: Operand) -> Operand:
    """The natural logarithm; -inf at 0, NaN below.

    Gradient: ct / x.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.log(np.float64(2.0))), 6)
        0.693147
    """
    return in_double(np.log, x)


@adjoint(log)
def _log_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(1.0, x)),)


@lower(log)
def _log_lower(e: Emitter, x: Reg) -> Reg:
    return log_edges(e, x, log_finite(e, x))


def log_finite(e: Emitter, x: Reg) -> Reg:
    """log of positive finite x."""
    return _log_sum(e, *log_split(e, x))


def _log_in_base(e: Emitter, x: Reg, factor: float, unit_hi: float, unit_lo: float) -> Reg:
    """log(x) * factor, where k log(2) * factor = k * (unit_hi + unit_lo), the first part exactly."""
    k, f = log_split(e, x)
    square, tail = log_terms(e, f)
    high, low = fast_two_sum(e, f, e.neg(square))
    low = e.add(low, tail)
    rounded = float(np.float32(factor)) if x.dtype is dt.float32 else factor
    rest = factor - rounded if x.dtype is dt.float32 else _LOW_PART[factor]
    small = e.fma(high, number(e, rest, x), e.mul(low, number(e, rounded, x)))
    small = e.fma(k, number(e, unit_lo, x), small)
    exact = e.mul(k, number(e, unit_hi, x))
    product = e.mul(high, number(e, rounded, x))
    small = e.add(small, e.fma(high, number(e, rounded, x), e.neg(product)))
    total, carry = fast_two_sum(e, exact, product)
    return log_edges(e, x, e.add(total, e.add(carry, small)))


LOG2_E = 1 / math.log(2)
LOG10_E = math.log10(math.e)
#: what float64 leaves of log2(e) and log10(e)
_LOW_PART = {LOG2_E: float.fromhex("0x1.777d0ffda0d24p-56"), LOG10_E: float.fromhex("0x1.95355baaafad3p-57")}


@op(elementwise=dt.FLOATS, domain=(0.1, 5.0), cheap=False)
def log2(x: Operand) -> Operand:
    """The logarithm to base 2, exact for powers of two; -inf at 0, NaN below.

    Gradient: ct / (x log(2)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.log2(np.float64(8.0))), 6)
        3.0
    """
    return in_double(np.log2, x)


@adjoint(log2)
def _log2_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(LOG2_E, x)),)


@lower(log2)
def _log2_lower(e: Emitter, x: Reg) -> Reg:
    return _log_in_base(e, x, LOG2_E, 1.0, 0.0)


@op(elementwise=dt.FLOATS, domain=(0.1, 5.0), cheap=False)
def log10(x: Operand) -> Operand:
    """The logarithm to base 10; -inf at 0, NaN below.

    Gradient: ct / (x log(10)).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.log10(np.float64(1000.0))), 6)
        3.0
    """
    return in_double(np.log10, x)


@adjoint(log10)
def _log10_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(LOG10_E, x)),)


@lower(log10)
def _log10_lower(e: Emitter, x: Reg) -> Reg:
    f = format_of(x)
    return _log_in_base(e, x, LOG10_E, f.log10_2_hi, f.log10_2_lo)


@op(elementwise=dt.FLOATS, domain=(-0.9, 3.0), cheap=False)
def log1p(x: Operand) -> Operand:
    """log(1 + x), accurate near 0; -inf at -1, NaN below.

    Gradient: ct / (1 + x).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.log1p(np.float64(0.5))), 6)
        0.405465
    """
    return in_double(np.log1p, x)


@adjoint(log1p)
def _log1p_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, div(1.0, add(x, 1.0))),)


@lower(log1p)
def _log1p_lower(e: Emitter, x: Reg) -> Reg:
    sum_ = e.add(number(e, 1.0, x), x)
    y = log_edges(e, sum_, log1p_finite(e, x))
    return e.select(is_tiny(e, x), x, y)


def log1p_finite(e: Emitter, x: Reg) -> Reg:
    """log(1 + x) for finite x > -1: log of the rounded sum, and what the rounding lost, relative to the sum."""
    one = number(e, 1.0, x)
    total = e.add(one, x)
    larger = e.compare("gt", e.abs(x), one)
    lost = e.select(larger, e.sub(one, e.sub(total, x)), e.sub(x, e.sub(total, one)))
    return _log_sum(e, *log_split(e, total), e.div(lost, total))


PUBLIC = {"exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p}
