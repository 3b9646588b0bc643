"""Arithmetic, comparison, bitwise and boolean operators, on scalars and on tiles.

`//` and `%` are Python's: the quotient is floored and the remainder has the sign of the divisor. Integers wrap;
dividing one by zero raises. Comparisons with NaN are false, except `!=`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, adjoint, lower, op

BITS = (dt.bool_, *dt.INTEGERS)


@op(elementwise=dt.NUMERIC)
def add(x: Operand, y: Operand) -> Operand:
    """x + y."""
    return np.add(x, y)


@adjoint(add)
def _add_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, ct


@lower(add)
def _add_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.add(x, y)


@op(elementwise=dt.NUMERIC)
def sub(x: Operand, y: Operand) -> Operand:
    """x - y."""
    return np.subtract(x, y)


@adjoint(sub)
def _sub_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, neg(ct)


@lower(sub)
def _sub_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.sub(x, y)


@op(elementwise=dt.NUMERIC)
def neg(x: Operand) -> Operand:
    """-x."""
    return np.negative(x)


@adjoint(neg)
def _neg_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (neg(ct),)


@lower(neg)
def _neg_lower(e: Emitter, x: Reg) -> Reg:
    return e.neg(x)


@op(elementwise=dt.NUMERIC)
def mul(x: Operand, y: Operand) -> Operand:
    """x * y."""
    return np.multiply(x, y)


@adjoint(mul)
def _mul_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return chain(ct, y), chain(ct, x)


@lower(mul)
def _mul_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.mul(x, y)


@op(elementwise=dt.FLOATS)
def chain(ct: Operand, d: Operand) -> Operand:
    """ct * d, but 0 wherever ct is 0: the chain rule, in which a zero cotangent never becomes NaN."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(ct, 0), np.zeros_like(ct), np.multiply(ct, d))


@adjoint(chain)
def _chain_adjoint(ct: Any, out: Any, x: Any, d: Any) -> Any:
    return chain(ct, d), chain(ct, x)


@lower(chain)
def _chain_lower(e: Emitter, x: Reg, d: Reg) -> Reg:
    zero = e.const(0.0, x.dtype)
    return e.select(e.compare("eq", x, zero), zero, e.mul(x, d))
