"""Values without their derivative: what is computed from them is computed once, and no cotangent goes through it.

A float goes by way of its bits, an integer, through which nothing is differentiated. So iterations that converge to an
answer whose derivative is known otherwise cost nothing in a backward pass. Does not define what a user can call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.types import Type, dtype_of
from tilegrad.op import Operand, adjoint, constant, infer, like, lower, op
from tilegrad.ops.control import build_for

_WHOLE = {dt.float32: dt.int32, dt.float64: dt.int64}
_FLOAT = {whole: real for real, whole in _WHOLE.items()}


@op(elementwise=tuple(_WHOLE), no_gradient="the result is an integer")
def float_bits(x: Operand) -> Operand:
    """The integer with the bits of a float."""
    value = np.asarray(x)
    return value.view(np.dtype(f"i{value.itemsize}"))[()]


@infer(float_bits)
def _float_bits_infer(x: Type) -> Type:
    return like((x,), _WHOLE[dtype_of(x)])


@lower(float_bits)
def _float_bits_lower(e: Emitter, x: Reg) -> Reg:
    return e.bitcast(x, _WHOLE[x.dtype])


@op(elementwise=tuple(_FLOAT), no_gradient="the operand is an integer")
def float_of_bits(x: Operand) -> Operand:
    """The float with the bits of an integer."""
    value = np.asarray(x)
    return value.view(np.dtype(f"f{value.itemsize}"))[()]


@infer(float_of_bits)
def _float_of_bits_infer(x: Type) -> Type:
    return like((x,), _FLOAT[dtype_of(x)])


@lower(float_of_bits)
def _float_of_bits_lower(e: Emitter, x: Reg) -> Reg:
    return e.bitcast(x, _FLOAT[x.dtype])


@op(elementwise=dt.FLOATS)
def once(x: Operand) -> Operand:
    """The value itself, of which only a first derivative is taken: a second one is refused.

    For what is right to first order only, as formulas are that take an iteration's answer for a constant.

    Gradient: the cotangent.
    """
    return np.asarray(x)[()]


@adjoint(once)
def _once_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (first_derivative(ct),)


@lower(once)
def _once_lower(e: Emitter, x: Reg) -> Reg:
    return x


@op(
    elementwise=dt.FLOATS,
    no_gradient="second derivatives of eig3, svd2 and svd3 are not known; tile_eigh has them",
)
def first_derivative(ct: Operand) -> Operand:
    """A cotangent that went through `once`."""
    return np.asarray(ct)[()]


@lower(first_derivative)
def _first_derivative_lower(e: Emitter, ct: Reg) -> Reg:
    return ct


def held(x: Any) -> Any:
    """The float32 or float64 scalar or tile without its derivative."""
    return float_of_bits(float_bits(x))


def repeated(count: int, body: Callable[..., list[Any]], state: list[Any]) -> list[Any]:
    """`state = body(*state)`, `count` times: a loop in a kernel."""
    if ir_builder.current() is not None:
        start, stop, step = (constant(n, dt.int32) for n in (0, count, 1))
        return list(build_for(start, stop, step, state, lambda i, *carried: body(*carried)))
    for _ in range(count):
        state = body(*state)
    return state


PUBLIC: dict[str, Any] = {}
