"""Comparisons, and choosing by them: == != < <= > >=, min, max, clamp, where.

A comparison with NaN is false, except `!=`. In min, max and clamp NaN counts as missing. Equal operands: the first
one is taken, and it alone gets the gradient. Does not reduce tiles (see `reduce`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Emitter, Reg
from tilegrad.ir import builder as ir_builder
from tilegrad.ir import types as ir_types
from tilegrad.ir.core import Value
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import (
    Operand,
    Sample,
    adjoint,
    constant,
    describe,
    infer,
    like,
    lower,
    op,
    require_same_dtype,
    samples,
    spelled,
    unwrap,
)
from tilegrad.ops.bits import bit_or
from tilegrad.ops.bodies import pick
from tilegrad.ops.cast import dtype_of

_NO_GRADIENT = "the result is a bool"


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def eq(x: Operand, y: Operand) -> Operand:
    """x == y; false if either is NaN."""
    return np.equal(x, y)


@lower(eq)
def _eq_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("eq", x, y)


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def ne(x: Operand, y: Operand) -> Operand:
    """x != y; true if either is NaN."""
    return np.not_equal(x, y)


@lower(ne)
def _ne_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("ne", x, y)


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def lt(x: Operand, y: Operand) -> Operand:
    """x < y; false if either is NaN."""
    return np.less(x, y)


@lower(lt)
def _lt_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("lt", x, y)


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def le(x: Operand, y: Operand) -> Operand:
    """x <= y; false if either is NaN."""
    return np.less_equal(x, y)


@lower(le)
def _le_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("le", x, y)


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def gt(x: Operand, y: Operand) -> Operand:
    """x > y; false if either is NaN."""
    return np.greater(x, y)


@lower(gt)
def _gt_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("gt", x, y)


@op(elementwise=dt.SCALARS, result=dt.bool_, no_gradient=_NO_GRADIENT)
def ge(x: Operand, y: Operand) -> Operand:
    """x >= y; false if either is NaN."""
    return np.greater_equal(x, y)


@lower(ge)
def _ge_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.compare("ge", x, y)


# --- min, max, clamp --------------------------------------------------------------------------------------------------


@op(elementwise=dt.SCALARS)
def minimum(x: Operand, y: Operand) -> Operand:
    """The smaller of two; NaN only if both are. Spelled `min(x, y, ...)` with two or more arguments.

    Gradient: ct for the operand that is taken, `x` if they are equal; 0 for the other.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.min(np.float64(2), np.float64(3))), 6)
        2.0

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.minimum(np.float64(2), np.float64(3))), 6)
        2.0
    """
    return pick(np.less(y, x) | np.not_equal(x, x), y, x)


@adjoint(minimum)
def _minimum_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    second = bit_or(lt(y, x), ne(x, x))
    return choose(second, 0.0, ct), choose(second, ct, 0.0)


@lower(minimum)
def _minimum_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.minimum(x, y)


@spelled(minimum)
def smallest(x: Any, y: Any = None, *more: Any) -> Any:
    """min(x, y, ...); of a single vector or matrix, which the front end takes apart, min(v)."""
    if y is None:
        raise TypeMismatch(
            "minimum takes two or more numbers, or one vector or matrix", help="for a tile write tile_min(t)"
        )
    result = minimum(x, y)
    for item in more:
        result = minimum(result, item)
    return result


@op(elementwise=dt.SCALARS)
def maximum(x: Operand, y: Operand) -> Operand:
    """The larger of two; NaN only if both are. Spelled `max(x, y, ...)` with two or more arguments.

    Gradient: ct for the operand that is taken, `x` if they are equal; 0 for the other.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.max(np.float64(2), np.float64(3))), 6)
        3.0

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.maximum(np.float64(2), np.float64(3))), 6)
        3.0
    """
    return pick(np.greater(y, x) | np.not_equal(x, x), y, x)


@adjoint(maximum)
def _maximum_adjoint(ct: Any, out: Any, x: Any, y: Any) -> Any:
    second = bit_or(gt(y, x), ne(x, x))
    return choose(second, 0.0, ct), choose(second, ct, 0.0)


@lower(maximum)
def _maximum_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.maximum(x, y)


@spelled(maximum)
def largest(x: Any, y: Any = None, *more: Any) -> Any:
    """max(x, y, ...); of a single vector or matrix, which the front end takes apart, max(v)."""
    if y is None:
        raise TypeMismatch(
            "maximum takes two or more numbers, or one vector or matrix", help="for a tile write tile_max(t)"
        )
    result = maximum(x, y)
    for item in more:
        result = maximum(result, item)
    return result


@op(elementwise=dt.NUMERIC)
def clamp(x: Operand, low: Operand, high: Operand) -> Operand:
    """min(max(x, low), high): `x` moved into the interval; NaN gives `low`, and `high` wins over a larger `low`.

    Gradient: ct for the operand that is taken, `x` at the ends of the interval; 0 for the others.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.clamp(np.float64(7), np.float64(0), np.float64(5))), 6)
        5.0
    """
    return minimum.body(maximum.body(x, low), high)


@adjoint(clamp)
def _clamp_adjoint(ct: Any, out: Any, x: Any, low: Any, high: Any) -> Any:
    raised = maximum(x, low)
    ct_raised, ct_high = _minimum_adjoint(ct, out, raised, high)
    return (*_maximum_adjoint(ct_raised, raised, x, low), ct_high)


@lower(clamp)
def _clamp_lower(e: Emitter, x: Reg, low: Reg, high: Reg) -> Reg:
    return e.minimum(e.maximum(x, low), high)


# --- where ------------------------------------------------------------------------------------------------------------


@op(elementwise=dt.SCALARS)
def where(condition: Operand, x: Operand, y: Operand) -> Operand:
    """`x` where the condition (a bool, or an integer that is not zero) holds, else `y`. Both sides are evaluated.

    Gradient: ct for the side that is taken, 0 for the other, whatever that other side is.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_store(y, tg.where(t > 1.0, t, -1.0))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [-1.0, -1.0, 2.0, 3.0]
    """
    return pick(condition, x, y)


@infer(where)
def _where_infer(condition: Type, x: Type, y: Type) -> Type:
    for t in (condition, x, y):
        if not isinstance(t, (ScalarType, TileType)):
            raise TypeMismatch(f"where works on scalars and tiles, not on {describe(t)}")
    if ir_types.dtype_of(condition) is not dt.bool_:
        raise TypeMismatch(
            f"where: the condition must be a bool, it is {describe(condition)}",
            help="write a comparison, such as x != 0",
        )
    require_same_dtype("where", (x, y))
    shapes = {t.shape for t in (condition, x, y) if isinstance(t, TileType)}
    if len(shapes) > 1:
        raise ShapeMismatch(f"where: tiles of shapes {' and '.join(map(str, shapes))} meet")
    dtype = ir_types.dtype_of(x)
    return TileType(dtype, shapes.pop()) if shapes else like((x, y, condition), dtype)


@adjoint(where)
def _where_adjoint(ct: Any, out: Any, condition: Any, x: Any, y: Any) -> Any:
    return None, choose(condition, ct, 0.0), choose(condition, 0.0, ct)


@lower(where)
def _where_lower(e: Emitter, condition: Reg, x: Reg, y: Reg) -> Reg:
    return e.select(condition, x, y)


@spelled(where)
def choose(condition: Any, x: Any, y: Any) -> Any:
    """where(condition, x, y); a literal takes the other side's type."""
    if ir_builder.current() is None:
        dtype = dtype_of(x) or dtype_of(y)
        x, y = (v if dtype is None or dtype_of(v) else dtype(v) for v in (x, y))
        return where(condition, x, y)
    values = [unwrap(v) for v in (condition, x, y)]
    shared = dtype_of(values[1]) or dtype_of(values[2])
    if shared is None:
        shared = dt.float32 if any(isinstance(v, float) for v in values[1:]) else None
    return where(_condition(values[0]), *(_side(v, shared) for v in values[1:]))


def _condition(x: Any) -> Any:
    """The condition as a bool; an integer asks whether it differs from zero, as in Warp."""
    value = x if isinstance(x, Value) else constant(x)
    dtype = dtype_of(value)
    return ne(value, 0) if dtype is not None and dtype.is_int else value


def _side(x: Any, dtype: Any) -> Value:
    if isinstance(x, Value):
        return x
    if (dtype is not None and not dt.literal_fits(x, dtype)) or (isinstance(x, bool) and dtype not in (None, dt.bool_)):
        raise TypeMismatch(
            f"where: the literal {x!r} meets {dtype}", help=f"write {dtype}({x!r}), or cast the other side"
        )
    return constant(x, dtype)


@samples(where)
def _where_samples(rng: np.random.Generator) -> list[Sample]:
    mask = np.array([True, False, True, False])
    result = [Sample((mask, np.arange(4).astype(d.np), np.arange(4, 8).astype(d.np)), fixed=(0,)) for d in dt.SCALARS]
    x, y = rng.standard_normal((2, 3, 4))
    return [*result, Sample((x > 0, x, y), fixed=(0,)), Sample((np.True_, np.float32(1), np.float32(2)), fixed=(0,))]


# --- indicators -------------------------------------------------------------------------------------------------------


@op(elementwise=dt.NUMERIC)
def step(x: Operand) -> Operand:
    """1 if x < 0, else 0, as Warp has it.

    Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.step(np.float64(-1.0))), 6)
        1.0
    """
    return np.less(x, 0).astype(np.asarray(x).dtype)


@adjoint(step)
def _step_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (None,)


@lower(step)
def _step_lower(e: Emitter, x: Reg) -> Reg:
    return e.cast(e.compare("lt", x, e.const(0, x.dtype)), x.dtype)


@op(elementwise=dt.NUMERIC)
def nonzero(x: Operand) -> Operand:
    """1 if x differs from zero (NaN does), else 0.

    Gradient: zero.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> round(float(tg.nonzero(np.float64(3.0))), 6)
        1.0
    """
    return np.not_equal(x, 0).astype(np.asarray(x).dtype)


@adjoint(nonzero)
def _nonzero_adjoint(ct: Any, out: Any, x: Any) -> Any:
    return (None,)


@lower(nonzero)
def _nonzero_lower(e: Emitter, x: Reg) -> Reg:
    return e.cast(e.compare("ne", x, e.const(0, x.dtype)), x.dtype)


PUBLIC = {
    "min": minimum, "max": maximum, "minimum": minimum, "maximum": maximum, "clamp": clamp, "where": where,
    "step": step, "nonzero": nonzero,
}  # fmt: skip
