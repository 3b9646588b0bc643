"""Single elements and rows of arrays: a[i, j], a[i, j] = v, atomic updates, a[i] as a smaller array, a.shape.

A negative index counts from the end, once. What is still outside is an error that the launch raises; no memory
outside the array is ever touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import ArrayRef, Emitter, Index, Reg
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, Type, is_varying
from tilegrad.op import (
    REGISTRY,
    Array,
    Sample,
    Scalar,
    adjoint,
    infer,
    lower,
    op,
    samples,
    spelled,
)  # fmt: skip
from tilegrad.ops.memory import require_array, signed
from tilegrad.ops.shapes import require_indices


def wrap_index(index: Sequence[Any], shape: Sequence[int]) -> tuple[Any, ...]:
    """Indices (ints, or arrays of them over the lanes) with negative ones counted from the end; checked."""
    wrapped = []
    for axis, (i, extent) in enumerate(zip(index, shape, strict=False)):
        if np.asarray(i).dtype == np.uint64:
            i = np.minimum(i, np.uint64(dt.int64.max)).astype(np.int64)
        j = np.where(np.less(i, 0), np.add(i, extent, dtype=np.int64), i)
        bad = np.less(j, 0) | np.greater_equal(j, extent)
        if np.any(bad):
            first = int(np.asarray(i).ravel()[int(np.argmax(np.asarray(bad).ravel()))])
            raise KernelIndexError(f"index {first} is out of range for axis {axis} with size {extent}")
        wrapped.append(j)
    return tuple(wrapped)


def _index_of(e: Emitter, index: Sequence[Reg]) -> Index:
    return tuple(e.coord(signed(e, i)) for i in index)


def _element_type(what: str, a: ArrayType, index: Sequence[Type], *others: Type) -> ScalarType:
    if len(index) != a.ndim:
        raise ShapeMismatch(f"{what}: {a.ndim} indices are needed, {len(index)} were given")
    require_indices(what, index)
    return ScalarType(a.dtype, any(is_varying(t) for t in (*index, *others)))


def _require_value(what: str, a: ArrayType, value: ScalarType) -> None:
    if value.dtype is not a.dtype:
        raise TypeMismatch(
            f"{what}: the array holds {a.dtype}, the value is {value.dtype}", help=f"write {a.dtype}(...)"
        )


@op(cls="scalar", effect="read")
def array_load(a: Array, *index: Scalar) -> Scalar:
    """The element a[index].

    Gradient: the cotangent is added to the array's gradient at that element.
    """
    return a[wrap_index(index, a.shape)]


@infer(array_load)
def _array_load_infer(a: ArrayType, *index: Type) -> Type:
    return _element_type("a[...]", a, index)


@adjoint(array_load)
def _array_load_adjoint(ct: Any, out: Any, a: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    array_atomic_add(grads[0], ct, *index)
    return (None,) * (1 + len(index))


@lower(array_load)
def _array_load_lower(e: Emitter, a: ArrayRef, *index: Reg) -> Reg:
    return e.array_get(a, _index_of(e, index))


@samples(array_load)
def _array_load_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (3, 4)).astype(d.np), 1, -1))
    yield Sample((rng.standard_normal((2,) * 5), 0, 1, -1, -2, 1))


@op(cls="scalar", effect="write")
def array_store(a: Array, value: Scalar, *index: Scalar) -> None:
    """Write a[index] = value. Of several lanes that write one element the highest wins.

    Gradient: the value's cotangent is the array's gradient at that element, which is then cleared.
    """
    a[wrap_index(index, a.shape)] = value


@infer(array_store)
def _array_store_infer(a: ArrayType, value: ScalarType, *index: Type) -> None:
    _element_type("a[...] = ...", a, index)
    _require_value("a[...] = ...", a, value)


@adjoint(array_store)
def _array_store_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    result = array_take(grads[0], *index)
    if _varies(value) and not _varies(result):
        result = REGISTRY["where"](_is_last_lane(), result, result.type.dtype(0))
    return (None, result, *(None,) * len(index))


def _varies(x: Any) -> bool:
    return hasattr(x, "type") and is_varying(x.type)


def _is_last_lane() -> Any:
    """Whether this is the highest lane of the block that is inside the grid."""
    return REGISTRY["eq"](REGISTRY["lane_id"](), REGISTRY["sub"](REGISTRY["lane_count"](), 1))


@lower(array_store)
def _array_store_lower(e: Emitter, a: ArrayRef, value: Reg, *index: Reg) -> None:
    e.array_set(a, _index_of(e, index), value, False)


@samples(array_store)
def _array_store_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((np.zeros((3, 4), d.np), d(1), 2, -4))


@op(cls="scalar", effect="write")
def array_take(a: Array, *index: Scalar) -> Scalar:
    """Read a[index] and clear it, from the highest lane to the lowest: the adjoint of a store.

    Of several lanes that stored to one element the highest won, and it is the one that gets the cotangent.
    """
    where = wrap_index(index, a.shape)
    if not any(np.ndim(x) for x in where):
        value = a[where]
        a[where] = 0
        return value
    parts = np.broadcast_arrays(*where)
    values = np.zeros(parts[0].shape, a.dtype)
    for lane in reversed(range(values.size)):
        cell = tuple(p[lane] for p in parts)
        values[lane] = a[cell]
        a[cell] = 0
    return values


@infer(array_take)
def _array_take_infer(a: ArrayType, *index: Type) -> Type:
    return _element_type("a[...]", a, index)


@adjoint(array_take)
def _array_take_adjoint(ct: Any, out: Any, a: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    array_store(grads[0], ct, *index)
    return (None,) * (1 + len(index))


@lower(array_take)
def _array_take_lower(e: Emitter, a: ArrayRef, *index: Reg) -> Reg:
    zero = e.const(False if a.dtype.kind == "b" else 0, a.dtype)
    return e.array_update("take", a, _index_of(e, index), zero, False)


@samples(array_take)
def _array_take_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.FLOATS:
        yield Sample((rng.integers(0, 9, (3, 4)).astype(d.np), 2, -4))


def _update(name: str, combine: Callable[[Any, Any], Any], accepted: Sequence[DType], reason: str) -> OpDef:
    """Define an atomic update of an array element that returns the old value."""

    @op(f"array_atomic_{name}", cls="scalar", effect="atomic", no_gradient=reason)
    def update(a: Array, value: Scalar, *index: Scalar) -> Scalar:
        where = wrap_index(index, a.shape)
        if not any(np.ndim(x) for x in (value, *where)):
            old = a[where]
            a[where] = combine(old, value)
            return old
        value, *parts = np.broadcast_arrays(value, *where)
        olds = np.empty(value.shape, a.dtype)
        for lane in np.ndindex(value.shape):
            cell = tuple(p[lane] for p in parts)
            olds[lane] = a[cell]
            a[cell] = combine(a[cell], value[lane])
        return olds

    after = {"add": 4.0, "sub": -2.0, "min": 1.0, "max": 3.0}[name]
    update.__doc__ = f"""`atomic_{name}(a, i, j, ..., value)`: {name} a value into an element; returns the old one.

    Lanes follow one another in their order, and blocks in theirs, so the result has the same bits on every run.
    {reason and "No gradient: " + reason + "."}

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.atomic_{name}(y, 0, x[tg.tid()])
        >>> x, y = np.array([3, 0], np.float32), np.array([1], np.float32)
        >>> tg.launch(example, dim={1 if name in ("min", "max") else 2}, inputs=[x, y])
        >>> y.tolist()
        [{after}]
    """

    @infer(update)
    def _infer(a: ArrayType, value: ScalarType, *index: Type) -> Type:
        t = _element_type(f"atomic_{name}", a, index, value)
        _require_value(f"atomic_{name}", a, value)
        if a.dtype not in accepted:
            listed = ", ".join(map(str, accepted))
            raise TypeMismatch(f"atomic_{name} is not defined for {a.dtype}", help=f"it takes: {listed}")
        return t

    @lower(update)
    def _lower(e: Emitter, a: ArrayRef, value: Reg, *index: Reg) -> Reg:
        return e.array_update(name, a, _index_of(e, index), value, False)

    @samples(update)
    def _samples(rng: np.random.Generator) -> Iterator[Sample]:
        for d in accepted:
            yield Sample((rng.integers(0, 2 if d.kind == "b" else 9, (3, 4)).astype(d.np), d(3), 2, -4))

    @spelled(update)
    def _call(a: Any, *where: Any) -> Any:
        require_array(f"atomic_{name}", a)
        *index, value = where
        return update(a, value, *index)

    return update


_CHOICE = "which of several writers wins is not known to the backward pass yet"
array_atomic_add = _update("add", lambda x, y: x + y, dt.NUMERIC, "")
array_atomic_sub = _update("sub", lambda x, y: x - y, dt.NUMERIC, "")
array_atomic_min = _update("min", lambda x, y: np.fmin(x, y), dt.NUMERIC, _CHOICE)
array_atomic_max = _update("max", lambda x, y: np.fmax(x, y), dt.NUMERIC, _CHOICE)


@adjoint(array_atomic_add)
def _array_atomic_add_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    return _accumulated(ct, grads[0], index)


@adjoint(array_atomic_sub)
def _array_atomic_sub_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    none, result, *rest = _accumulated(ct, grads[0], index)
    return (none, REGISTRY["neg"](result), *rest)


def _accumulated(ct: Any, grad: Any, index: Sequence[Any]) -> tuple[Any, ...]:
    """The gradient of an accumulated cell goes to the value and stays; that of the old value goes to the cell."""
    result = array_load(grad, *index)
    if ct is not None:
        array_atomic_add(grad, ct, *index)
    return (None, result, *(None,) * len(index))


@op(cls="scalar", no_gradient="it names a part of an array; the gradient array is cut in the same way")
def array_row(a: Array, *index: Scalar) -> Array:
    """The part of an array with its first axes fixed: a[i] of a 2-D array is a row. No data is copied."""
    return a[tuple(int(i) for i in wrap_index(index, a.shape[: len(index)]))]


@infer(array_row)
def _array_row_infer(a: ArrayType, *index: Type) -> Type:
    if not 0 < len(index) < a.ndim:
        raise ShapeMismatch(f"a[...]: 1 to {a.ndim - 1} indices give a part of a {a.ndim}-D array, not {len(index)}")
    require_indices("a[...]", index)
    if any(is_varying(t) for t in index):
        raise TypeMismatch(
            "a[...]: a part of an array must be the same for all lanes of the block, this index differs between them",
            help="give all indices at once: a[i, j]",
        )
    return ArrayType(a.dtype, a.ndim - len(index), a.dense_rows)


@lower(array_row)
def _array_row_lower(e: Emitter, a: ArrayRef, *index: Reg) -> ArrayRef:
    raise NotImplementedError("array_row is lowered by the code generator")


@samples(array_row)
def _array_row_samples(rng: np.random.Generator) -> Iterator[Sample]:
    return iter(())


@op(cls="scalar", no_gradient="an extent is an integer")
def array_shape(a: Array, *, axis: int) -> Scalar:
    """The extent of an array along an axis, as int32."""
    return np.int32(a.shape[axis])


@infer(array_shape)
def _array_shape_infer(a: ArrayType, *, axis: int) -> Type:
    return ScalarType(dt.int32)


@lower(array_shape)
def _array_shape_lower(e: Emitter, a: ArrayRef, *, axis: int) -> Reg:
    return e.cast(a.shape[axis], dt.int32)


@samples(array_shape)
def _array_shape_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((np.zeros((3, 4), np.float32),), {"axis": 1})


PUBLIC = {
    "atomic_add": array_atomic_add,
    "atomic_sub": array_atomic_sub,
    "atomic_min": array_atomic_min,
    "atomic_max": array_atomic_max,
}
