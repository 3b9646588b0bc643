"""Bitwise and boolean operators: & | ^ ~ << >>, on integers and, but for the shifts, on bools.

On bools `&`, `|`, `^` and `~` are and, or, exclusive or and not. Does not evaluate lazily: `and` and `or` of Python
are control flow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.op import Operand, lower, op

BITS = (dt.bool_, *dt.INTEGERS)
_NO_GRADIENT = "the result is an integer or a bool"


@op(elementwise=BITS, no_gradient=_NO_GRADIENT)
def bit_and(x: Operand, y: Operand) -> Operand:
    """x & y.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.bit_and(np.int32(6), np.int32(3)))
        2
    """
    return np.bitwise_and(x, y)


@lower(bit_and)
def _bit_and_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.and_(x, y)


@op(elementwise=BITS, no_gradient=_NO_GRADIENT)
def bit_or(x: Operand, y: Operand) -> Operand:
    """x | y.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.bit_or(np.int32(6), np.int32(3)))
        7
    """
    return np.bitwise_or(x, y)


@lower(bit_or)
def _bit_or_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.or_(x, y)


@op(elementwise=BITS, no_gradient=_NO_GRADIENT)
def bit_xor(x: Operand, y: Operand) -> Operand:
    """x ^ y.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.bit_xor(np.int32(6), np.int32(3)))
        5
    """
    return np.bitwise_xor(x, y)


@lower(bit_xor)
def _bit_xor_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.xor(x, y)


@op(elementwise=BITS, no_gradient=_NO_GRADIENT)
def invert(x: Operand) -> Operand:
    """~x: all bits flipped; of a bool, its negation.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.invert(np.int32(5)))
        -6
    """
    return np.invert(x)


@lower(invert)
def _invert_lower(e: Emitter, x: Reg) -> Reg:
    return e.not_(x)


@op(elementwise=dt.INTEGERS, no_gradient=_NO_GRADIENT)
def lshift(x: Operand, n: Operand) -> Operand:
    """x << n, bits that leave the type are lost; a count that is negative or not below the bits of the type gives 0.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.lshift(np.int32(1), np.int32(4)))
        16
    """
    return np.where(_in_range(x, n), np.left_shift(x, np.where(_in_range(x, n), n, 0)), 0).astype(np.asarray(x).dtype)[
        ()
    ]


@lower(lshift)
def _lshift_lower(e: Emitter, x: Reg, n: Reg) -> Reg:
    return e.shl(x, n)


@op(elementwise=dt.INTEGERS, no_gradient=_NO_GRADIENT)
def rshift(x: Operand, n: Operand) -> Operand:
    """x >> n, keeping the sign; a count that is negative or not below the bits of the type gives 0, or -1 if x < 0.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> int(tg.rshift(np.int32(-8), np.int32(1)))
        -4
    """
    a = np.asarray(x)
    counts = np.where(_in_range(x, n), n, a.dtype.itemsize * 8 - 1).astype(a.dtype)
    shifted = np.right_shift(a, counts)
    gone = np.zeros_like(shifted) if a.dtype.kind == "u" else shifted
    return np.where(_in_range(x, n), shifted, gone)[()]


@lower(rshift)
def _rshift_lower(e: Emitter, x: Reg, n: Reg) -> Reg:
    return e.shr(x, n)


def _in_range(x: Any, n: Any) -> Any:
    return np.greater_equal(n, 0) & np.less(n, np.asarray(x).dtype.itemsize * 8)


PUBLIC = {
    "bit_and": bit_and, "bit_or": bit_or, "bit_xor": bit_xor, "invert": invert, "lshift": lshift, "rshift": rshift,
}  # fmt: skip
