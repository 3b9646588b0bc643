"""Conversion between element types: `float32(x)`, `tile_astype(t, dtype)`, `t.astype(dtype)`.

Does not convert by itself anywhere: types never mix unless a conversion is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Reg
from tilegrad.ir.core import Value
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import (
    Operand,
    Sample,
    adjoint,
    describe,
    infer,
    like,
    lower,
    op,
    samples,
    spelled,
    unwrap,
)


def dtype_of(x: Any) -> DType | None:
    """The dtype of an IR value, a front-end reference or a NumPy value; None for a Python number."""
    inner = unwrap(x)
    if isinstance(inner, Value):
        return inner.type.dtype if isinstance(inner.type, (ScalarType, TileType)) else None
    return dt.as_dtype(inner.dtype) if isinstance(inner, (np.ndarray, np.generic)) else None


@op(elementwise=dt.SCALARS)
def astype(x: Operand, *, dtype: DType) -> Operand:
    """The value as another dtype.

    Float to float rounds once, to nearest. Float to integer drops the fraction and saturates at the ends of the range;
    NaN gives 0. Integer to integer wraps. Anything to bool asks whether it differs from zero, so NaN is true.

    Gradient: the cotangent in the operand's dtype between floats; none if either side is an integer or a bool.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[int]):
        ...     tg.tile_store(y, tg.tile_astype(tg.tile_load(x, shape=3), int))
        >>> x, y = np.array([1.5, -1.5, 2.9], np.float32), np.zeros(3, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1, -1, 2]
    """
    source = np.asarray(x)
    known = dt.as_dtype(source.dtype)
    with np.errstate(all="ignore"):
        if known is not None and known.is_float and dtype.is_int:
            return _saturated(source, dtype)[()]
        if dtype is dt.bfloat16 and known in (dt.float64, dt.int32, dt.uint32, dt.int64, dt.uint64):
            return _rounded_to_odd(source.astype(np.float64)).astype(dtype.np)[()]
        if dtype is dt.float16 and known is not None and known.is_int:
            return source.astype(np.float64).astype(np.float16)[()]
        if dtype.kind == "b":
            return (source != source.dtype.type(0))[()]
        return source.astype(dtype.np)[()]


def _saturated(x: Any, dtype: DType) -> Any:
    wide = x.astype(np.float64)
    low, high = float(dtype.min), float(dtype.max + 1)
    inside = (wide >= low) & (wide < high)
    result = np.where(inside, wide, 0.0).astype(dtype.np)
    ends = np.where(wide >= high, dtype.np.type(dtype.max), np.where(wide < low, dtype.np.type(dtype.min), 0))
    return np.where(inside, result, ends.astype(dtype.np))


def _rounded_to_odd(x: Any) -> Any:
    """float64 as float32 such that a second rounding to 16 bits is as good as a single one."""
    single = x.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.int32)
    toward_zero = np.where(np.abs(back) > np.abs(x), bits - 1, bits) | 1
    return np.where((back == x) | np.isnan(x), bits, toward_zero).astype(np.int32).view(np.float32)


@infer(astype)
def _astype_infer(x: Type, *, dtype: DType) -> Type:
    if not isinstance(x, (ScalarType, TileType)):
        raise TypeMismatch(f"a cast works on scalars and tiles, not on {describe(x)}")
    return like((x,), dtype)


@adjoint(astype)
def _astype_adjoint(ct: Any, out: Any, x: Any, *, dtype: DType) -> Any:
    source = dtype_of(x)
    return (astype(ct, dtype=source) if source is not None and source.is_float and dtype.is_float else None,)


@lower(astype)
def _astype_lower(e: Emitter, x: Reg, *, dtype: DType) -> Reg:
    return e.cast(x, dtype)


@spelled(astype)
def tile_astype(t: Any, dtype: Any) -> Any:
    """A tile (or number) as another dtype; see `astype`."""
    known = dt.as_dtype(dtype)
    if known is None:
        raise TypeMismatch(
            f"tile_astype: {dtype!r} is not a dtype", help="write for example tile_astype(t, tg.float64)"
        )
    return astype(t, dtype=known)


@samples(astype)
def _astype_samples(rng: np.random.Generator) -> list[Sample]:
    numbers = np.array(
        [0.0, 1.0, -1.0, 2.75, -2.75, 1e3, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan, 1 + 2.0**-9 + 2.0**-30]
    )
    with np.errstate(all="ignore"):
        sources = [numbers.astype(d.np) for d in dt.FLOATS]
        whole = np.array([0, 1, 2, 100, 127, 2**31 - 1, 2**53 + 1], np.int64)
        sources += [np.concatenate([whole, -whole]).astype(d.np) for d in dt.INTEGERS]
    sources.append(np.array([True, False, True]))
    result = [Sample((x,), {"dtype": d}) for x in sources for d in dt.SCALARS]
    smooth = rng.uniform(-3, 3, 5)
    return result + [Sample((smooth.astype(a.np),), {"dtype": b}) for a in dt.FLOATS for b in dt.FLOATS]


PUBLIC = {"tile_astype": astype}
