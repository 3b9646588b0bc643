"""Rounding to whole numbers, and asking what kind of number a float is. Exact, and the sign of a zero is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op
from tilegrad.ops.bodies import in_double
from tilegrad.ops.floats import number

_NO_GRADIENT = "the result is a bool"


@op(elementwise=dt.FLOATS)
def floor(x: Operand) -> Operand:
    """The largest whole number not above x. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.floor(np.float64(-2.5))), 6)
        -3.0
    """
    return in_double(np.floor, x)


@lower(floor)
def _floor_lower(e: Emitter, x: Reg) -> Reg:
    return e.floor(x)


@op(elementwise=dt.FLOATS)
def ceil(x: Operand) -> Operand:
    """The smallest whole number not below x. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.ceil(np.float64(-2.5))), 6)
        -2.0
    """
    return in_double(np.ceil, x)


@lower(ceil)
def _ceil_lower(e: Emitter, x: Reg) -> Reg:
    return e.ceil(x)


@op(elementwise=dt.FLOATS)
def trunc(x: Operand) -> Operand:
    """The whole part of x. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.trunc(np.float64(-2.5))), 6)
        -2.0
    """
    return in_double(np.trunc, x)


@lower(trunc)
def _trunc_lower(e: Emitter, x: Reg) -> Reg:
    return e.trunc(x)


@op(elementwise=dt.FLOATS)
def rint(x: Operand) -> Operand:
    """The nearest whole number, halves to the even one. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.rint(np.float64(2.5))), 6)
        2.0
    """
    return in_double(np.rint, x)


@lower(rint)
def _rint_lower(e: Emitter, x: Reg) -> Reg:
    return e.rint(x)


@op("round", elementwise=dt.FLOATS)
def round_half_away(x: Operand) -> Operand:
    """The nearest whole number, halves away from zero, as C's and Warp's round. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.round(np.float64(2.5))), 6)
        3.0
    """

    def away(a: Any) -> Any:
        whole = np.trunc(a)
        return np.copysign(np.where(np.abs(a - whole) >= 0.5, np.abs(whole) + 1, np.abs(whole)), a)

    return in_double(away, x)


@lower(round_half_away)
def _round_lower(e: Emitter, x: Reg) -> Reg:
    whole = e.trunc(x)
    half = e.compare("ge", e.abs(e.sub(x, whole)), number(e, 0.5, x))
    up = e.add(e.abs(whole), number(e, 1.0, x))
    return e.copysign(e.select(half, up, e.abs(whole)), x)


@adjoint(floor)
@adjoint(ceil)
@adjoint(trunc)
@adjoint(rint)
@adjoint(round_half_away)
def _whole_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (None,)


@op(elementwise=dt.FLOATS)
def frac(x: Operand) -> Operand:
    """x - trunc(x): the part behind the point, with the sign of x; NaN for an infinity.

    Gradient: ct.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.frac(np.float64(2.75))), 6)
        0.75
    """
    return in_double(lambda a: a - np.trunc(a), x)


@adjoint(frac)
def _frac_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (ct,)


@lower(frac)
def _frac_lower(e: Emitter, x: Reg) -> Reg:
    return e.sub(x, e.trunc(x))


@op(elementwise=dt.FLOATS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def isfinite(x: Operand) -> Operand:
    """Whether x is neither infinite nor NaN.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> bool(tg.isfinite(np.float64(1.0)))
        True
    """
    return np.isfinite(x)


@lower(isfinite)
def _isfinite_lower(e: Emitter, x: Reg) -> Reg:
    return e.compare("lt", e.abs(x), number(e, np.inf, x))


@op(elementwise=dt.FLOATS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def isinf(x: Operand) -> Operand:
    """Whether x is an infinity of either sign.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> bool(tg.isinf(np.float64(np.inf)))
        True
    """
    return np.isinf(x)


@lower(isinf)
def _isinf_lower(e: Emitter, x: Reg) -> Reg:
    return e.compare("eq", e.abs(x), number(e, np.inf, x))


@op(elementwise=dt.FLOATS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def isnan(x: Operand) -> Operand:
    """Whether x is NaN.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> bool(tg.isnan(np.float64(np.nan)))
        True
    """
    return np.isnan(x)


@lower(isnan)
def _isnan_lower(e: Emitter, x: Reg) -> Reg:
    return e.compare("ne", x, x)


PUBLIC = {
    "floor": floor, "ceil": ceil, "trunc": trunc, "rint": rint, "round": round_half_away, "frac": frac,
    "isfinite": isfinite, "isinf": isinf, "isnan": isnan,
}  # fmt: skip
