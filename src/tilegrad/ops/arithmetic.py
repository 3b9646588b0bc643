"""Arithmetic on scalars and on tiles: + - * / // % and what stands close to them.

`//` and `%` are Python's: the quotient is floored and the remainder has the sign of the divisor. Integers wrap;
dividing one by zero raises. `/` of integers is Python's true division. Does not compare (see `comparison`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelZeroDivisionError, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Reg
from tilegrad.ir.core import Value
from tilegrad.op import Operand, adjoint, lower, op, require_same_dtype, spelled, unwrap
from tilegrad.ops.bodies import is_float
from tilegrad.ops.cast import astype, dtype_of
from tilegrad.ops.floats import format_of, number, scale


@op(elementwise=dt.NUMERIC)
def add(x: Operand, y: Operand) -> Operand:
    """x + y.

    Gradient: ct for both.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.add(np.float64(2), np.float64(3))), 6)
        5.0
    """
    return np.add(x, y)


@adjoint(add)
def _add_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, ct


@lower(add)
def _add_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.add(x, y)


@op(elementwise=dt.NUMERIC)
def sub(x: Operand, y: Operand) -> Operand:
    """x - y.

    Gradient: ct and -ct.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.sub(np.float64(2), np.float64(3))), 6)
        -1.0
    """
    return np.subtract(x, y)


@adjoint(sub)
def _sub_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, neg(ct)


@lower(sub)
def _sub_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.sub(x, y)


@op(elementwise=dt.NUMERIC)
def neg(x: Operand) -> Operand:
    """-x; an unsigned integer wraps.

    Gradient: -ct.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.neg(np.float64(2.0))), 6)
        -2.0
    """
    return np.negative(x)


@adjoint(neg)
def _neg_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (neg(ct),)


@lower(neg)
def _neg_lower(e: Emitter, x: Reg) -> Reg:
    return e.neg(x)


@op(elementwise=dt.NUMERIC)
def mul(x: Operand, y: Operand) -> Operand:
    """x * y.

    Gradient: ct * y and ct * x.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.mul(np.float64(2), np.float64(3))), 6)
        6.0
    """
    return np.multiply(x, y)


@adjoint(mul)
def _mul_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return chain(ct, y), chain(ct, x)


@lower(mul)
def _mul_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.mul(x, y)


@op(elementwise=dt.FLOATS)
def chain(ct: Operand, d: Operand) -> Operand:
    """ct * d, but 0 wherever ct is 0: the chain rule, in which a zero cotangent never becomes NaN.

    Gradient: as of a product.
    """
    with np.errstate(all="ignore"):
        return np.where(np.equal(ct, 0), np.zeros_like(ct), np.multiply(ct, d))[()]


@adjoint(chain)
def _chain_adjoint(ct: Any, out: Any, x: Any, d: Any) -> Any:
    return chain(ct, d), chain(ct, x)


@lower(chain)
def _chain_lower(e: Emitter, x: Reg, d: Reg) -> Reg:
    zero = e.const(0.0, x.dtype)
    return e.select(e.compare("eq", x, zero), zero, e.mul(x, d))


@op(elementwise=dt.FLOATS)
def div(x: Operand, y: Operand) -> Operand:
    """x / y of floats. Dividing by zero gives an infinity or NaN.

    Gradient: ct / y and -ct * out / y.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.div(np.float64(1), np.float64(4))), 6)
        0.25
    """
    return np.true_divide(x, y)


@adjoint(div)
def _div_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return chain(ct, div(1.0, y)), chain(ct, neg(div(out, y)))


@lower(div)
def _div_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.div(x, y)


@spelled(div)
def divide(x: Any, y: Any) -> Any:
    """x / y; integers are converted first, to float32, or to float64 if they have 64 bits."""
    kinds = [dtype_of(v) for v in (x, y)]
    dtype = kinds[0] or kinds[1]
    if dtype is None or not dtype.is_int:
        return div(x, y)
    values = [unwrap(v) for v in (x, y)]
    require_same_dtype("div", [v.type for v in values if isinstance(v, Value)])
    return div(*(_as_quotient(v, dtype) for v in values))


def _as_quotient(x: Any, dtype: DType) -> Any:
    if dtype_of(x) is not None:
        return astype(x, dtype=dt.quotient_dtype(dtype))
    if isinstance(x, float):
        raise TypeMismatch(
            f"div: the literal {x!r} meets {dtype}",
            help="cast the other operand, for example float32(...), or write an integer literal",
        )
    return x


# --- floor division and remainder -----------------------------------------------------------------------------------


@op(elementwise=dt.NUMERIC)
def floordiv(x: Operand, y: Operand) -> Operand:
    """x // y, rounded towards minus infinity.

    An integer divided by zero raises KernelZeroDivisionError at the launch; a float gives an infinity or NaN.
    The smallest signed integer divided by -1 wraps. Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.floordiv(np.float64(-7), np.float64(2))), 6)
        -4.0
    """
    if is_float(x):
        return _python_divmod(x, y)[0]
    _refuse_zero(y)
    return np.floor_divide(x, y)


@adjoint(floordiv)
def _floordiv_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return None, None


@lower(floordiv)
def _floordiv_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return _float_divmod(e, x, y)[0] if x.dtype.is_float else _integer_divmod(e, x, y)[0]


@op(elementwise=dt.NUMERIC)
def mod(x: Operand, y: Operand) -> Operand:
    """x % y with the sign of the divisor: x - y * (x // y).

    The float remainder is exact but for one rounding where the signs differ. By zero: an integer raises
    KernelZeroDivisionError at the launch, a float gives NaN. Gradient: ct and -ct * (x // y).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.mod(np.float64(-7), np.float64(2))), 6)
        1.0
    """
    if is_float(x):
        return _python_divmod(x, y)[1]
    _refuse_zero(y)
    return np.remainder(x, y)


@adjoint(mod)
def _mod_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, chain(ct, neg(floordiv(x, y)))


@lower(mod)
def _mod_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return _float_divmod(e, x, y)[1] if x.dtype.is_float else _integer_divmod(e, x, y)[1]


@op(elementwise=dt.FLOATS)
def fmod(x: Operand, y: Operand) -> Operand:
    """The remainder of division truncated towards zero, C's fmod: it has the sign of `x` and is exact.

    NaN if `y` is zero or `x` infinite. Gradient: ct and -ct * trunc(x / y).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.fmod(np.float64(-7), np.float64(2))), 6)
        -1.0
    """
    dtype = np.asarray(x).dtype
    return np.fmod(np.asarray(x, np.float64), np.asarray(y, np.float64)).astype(dtype)[()]


@adjoint(fmod)
def _fmod_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct, chain(ct, div(sub(out, x), y))


@lower(fmod)
def _fmod_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return truncated_remainder(e, x, y)


def _refuse_zero(y: Any) -> None:
    if np.any(np.equal(y, 0)):
        raise KernelZeroDivisionError("integer division or modulo by zero")


def _python_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder of floats; 16-bit ones are computed in float32 and rounded once."""
    dtype = np.asarray(x).dtype
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        q, r = np.divmod(np.asarray(x, wide), np.asarray(y, wide))
    return q.astype(dtype)[()], r.astype(dtype)[()]


def _integer_divmod(e: Emitter, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    ok = e.compare("ne", y, zero)
    e.check(ok, "zero_division")
    safe = e.select(ok, y, one)
    q = e.div(x, safe)
    r = e.sub(x, e.mul(q, safe))
    if x.dtype.kind == "i":
        opposite = e.compare("lt", e.xor(r, safe), zero)
        off = e.and_(opposite, e.compare("ne", r, zero))
        q, r = e.select(off, e.sub(q, one), q), e.select(off, e.add(r, safe), r)
    return e.select(ok, q, zero), e.select(ok, r, zero)


def truncated_remainder(e: Emitter, x: Reg, y: Reg) -> Reg:
    """fmod of floats, exact: one division and one fma while all quotients are small, else long division."""
    f = format_of(x)
    a, b = e.abs(x), e.abs(y)
    q = e.trunc(e.div(a, b))
    small = e.compare("lt", q, number(e, 2.0 ** (f.fraction_bits - 2), x))
    infinite = e.compare("eq", b, number(e, math.inf, x))

    def near() -> list[Reg]:
        return [e.select(infinite, a, _remainder_step(e, a, b, q))]

    def far() -> list[Reg]:
        r = _long_division(e, e.add(a, e.sub(b, b)), b)
        good = e.and_(e.compare("gt", b, number(e, 0.0, x)), e.compare("lt", a, number(e, math.inf, x)))
        r = e.select(good, e.select(infinite, a, r), number(e, math.nan, x))
        return [r]

    return e.copysign(e.branch(e.all(small), near, far)[0], x)


def _remainder_step(e: Emitter, a: Reg, b: Reg, q: Reg) -> Reg:
    """a - q b for the truncated quotient q of positive numbers, or one more if it was rounded up. Exact."""
    r = e.fma(e.neg(q), b, a)
    return e.select(e.compare("lt", r, number(e, 0.0, a)), e.add(r, b), r)


def _long_division(e: Emitter, a: Reg, b: Reg) -> Reg:
    """The remainder of positive finite numbers: as many bits of the quotient as fit a float, turn by turn."""
    f = format_of(a)
    digits = f.fraction_bits - 3
    turns = 1 + -(-2 * (f.bias + f.fraction_bits) // digits)
    bottom = _exponent(e, b)
    zero = e.const(0, f.signed)

    def turn(_: Reg, r: Reg) -> list[Reg]:
        gap = e.sub(e.sub(_exponent(e, r), bottom), e.const(digits, f.signed))
        gap = e.maximum(gap, zero)
        half = e.shr(gap, e.const(1, f.signed))  # `scale` reaches twice the bias; a subnormal b may be farther away
        scaled = scale(e, scale(e, b, half), e.sub(gap, half))
        return [_remainder_step(e, r, scaled, e.trunc(e.div(r, scaled)))]

    return e.loop(0, turns, 1, [a], turn)[0]


def _exponent(e: Emitter, x: Reg) -> Reg:
    """The exponent of a positive float as a signed integer, of a subnormal too."""
    f = format_of(x)
    lift = f.fraction_bits + 1
    tiny = e.compare("lt", x, number(e, f.smallest_normal, x))
    normal = e.select(tiny, e.mul(x, number(e, 2.0**lift, x)), x)
    stored = e.shr(e.bitcast(normal, f.signed), e.const(f.fraction_bits, f.signed))
    return e.sub(stored, e.select(tiny, e.const(lift, f.signed), e.const(0, f.signed)))


def _float_divmod(e: Emitter, x: Reg, y: Reg) -> tuple[Reg, Reg]:
    """Python's divmod: the remainder is exact, the quotient is the integer nearest to (x - r) / y."""
    zero, one = number(e, 0.0, x), number(e, 1.0, x)
    r = truncated_remainder(e, x, y)
    q = e.div(e.sub(x, r), y)
    opposite = e.compare("ne", e.compare("lt", r, zero), e.compare("lt", y, zero))
    off = e.and_(opposite, e.compare("ne", r, zero))
    q = e.select(off, e.sub(q, one), q)
    r = e.select(off, e.add(r, y), r)
    low = e.floor(q)
    whole = e.select(e.compare("gt", e.sub(q, low), number(e, 0.5, x)), e.add(low, one), low)
    direct = e.div(x, y)
    whole = e.select(e.compare("eq", q, zero), e.copysign(zero, direct), whole)
    whole = e.select(e.compare("eq", y, zero), direct, whole)
    return whole, e.select(e.compare("eq", r, zero), e.copysign(zero, y), r)


# --- magnitude and sign -----------------------------------------------------------------------------------------------


@op("abs", elementwise=dt.NUMERIC)
def absolute(x: Operand) -> Operand:
    """The magnitude; the smallest signed integer wraps to itself.

    Gradient: ct * sign(x), which is 0 at 0.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.abs(np.float64(-2.0))), 6)
        2.0
    """
    return x if np.asarray(x).dtype.kind == "u" else np.absolute(x)


@adjoint(absolute)
def _abs_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (chain(ct, sign(x)),)


@lower(absolute)
def _abs_lower(e: Emitter, x: Reg) -> Reg:
    return e.abs(x)


@op(elementwise=dt.NUMERIC)
def sign(x: Operand) -> Operand:
    """-1, 0 or 1; NaN for NaN.

    Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.sign(np.float64(-2.0))), 6)
        -1.0
    """
    a = np.asarray(x)
    one, zero = a.dtype.type(1), a.dtype.type(0)
    if a.dtype.kind == "u":
        return np.where(a > zero, one, zero)[()]
    return np.where(a > zero, one, np.where(a < zero, -one, np.where(a == zero, zero, a)))[()]


@adjoint(sign)
def _sign_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (None,)


@lower(sign)
def _sign_lower(e: Emitter, x: Reg) -> Reg:
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    rest = e.select(e.compare("eq", x, zero), zero, x)
    if x.dtype.kind != "u":
        rest = e.select(e.compare("lt", x, zero), e.const(-1, x.dtype), rest)
    return e.select(e.compare("gt", x, zero), one, rest)


@op(elementwise=dt.FLOATS)
def copysign(x: Operand, y: Operand) -> Operand:
    """The magnitude of `x` with the sign of `y`, that of a zero or NaN included.

    Gradient: ct with the product of both signs, and zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.copysign(np.float64(2), np.float64(-0.5))), 6)
        -2.0
    """
    return np.copysign(x, y)


@adjoint(copysign)
def _copysign_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return chain(ct, copysign(sign(x), mul(copysign(1.0, x), copysign(1.0, y)))), None


@lower(copysign)
def _copysign_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.copysign(x, y)


PUBLIC = {
    "add": add, "sub": sub, "mul": mul, "div": div, "neg": neg, "floordiv": floordiv, "mod": mod, "fmod": fmod,
    "abs": absolute, "sign": sign, "copysign": copysign,
}  # fmt: skip
