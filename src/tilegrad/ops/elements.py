"""Single elements and rows of arrays: a[i, j], a[i, j] = v, atomic updates, a[i] as a smaller array, a.shape.

A negative index counts from the end, once. What is still outside is an error that the launch raises; no memory
outside the array is ever touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, KernelValueError, ShapeMismatch, TypeMismatch
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
    constant,
    describe,
    infer,
    lower,
    op,
    samples,
    spelled,
)  # fmt: skip
from tilegrad.ops.control import build_if
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


#: how the interpreter combines an old element with a value
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "min": lambda x, y: np.fmin(x, y),
    "max": lambda x, y: np.fmax(x, y),
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "exch": lambda x, y: y,
}
#: what a user reads about each update, and what the example of `_example` leaves
_TEXTS = {
    "add": ("add a value to an element", 3.0, 4.0),
    "sub": ("subtract a value from an element", 3.0, -2.0),
    "min": ("replace an element by a value that is smaller; NaN counts as missing", 3.0, 1.0),
    "max": ("replace an element by a value that is larger; NaN counts as missing", 3.0, 3.0),
    "and": ("combine the bits of an element with `&`", 6, 2),
    "or": ("combine the bits of an element with `|`", 6, 7),
    "xor": ("combine the bits of an element with `^`", 6, 5),
    "exch": ("replace an element", 3.0, 3.0),
}


def _update(name: str, accepted: Sequence[DType], gradient: str, reason: str = "") -> OpDef:
    """Define an atomic update of an array element that returns the old value."""

    @op(f"array_atomic_{name}", cls="scalar", effect="atomic", no_gradient=reason)
    def update(a: Array, value: Scalar, *index: Scalar) -> Scalar:
        return _in_turn(a, wrap_index(index, a.shape), _COMBINE[name], value)

    update.__doc__ = _text(name, gradient)

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
        if dt.float64 in accepted:
            yield Sample((rng.standard_normal((2,) * 5), dt.float64(0.5), 0, 1, -1, -2, 1))

    @spelled(update)
    def _call(a: Any, *where: Any, value: Any = None) -> Any:
        t = require_array(f"atomic_{name}", a)
        index, (x,) = _arguments(f"atomic_{name}", t, where, {"value": value})
        return update(a, x, *index)

    return update


def _in_turn(a: Any, where: Sequence[Any], combine: Callable[..., Any], *values: Any, backwards: bool = False) -> Any:
    """Update elements one after another in the order of the lanes, or in the opposite one; the old values."""
    if not any(np.ndim(x) for x in (*values, *where)):
        old = a[tuple(where)]
        a[tuple(where)] = combine(old, *values)
        return old
    spread = np.broadcast_arrays(*values, *where)
    values, parts = spread[: len(values)], spread[len(values) :]
    olds = np.empty(spread[0].shape, a.dtype)
    for lane in reversed(range(olds.size)) if backwards else range(olds.size):
        cell = tuple(p[lane] for p in parts)
        olds[lane] = a[cell]
        a[cell] = combine(olds[lane], *(v[lane] for v in values))
    return olds


def _text(name: str, gradient: str) -> str:
    """The docstring of an atomic update."""
    what, argument, after = _TEXTS[name]
    kind, dtype = ("int", "int32") if isinstance(argument, int) else ("float", "float32")
    start, lanes = (3, 1) if name in ("and", "or", "xor") else (1, 1 if name in ("min", "max", "exch") else 2)
    return f"""`atomic_{name}(a, i, j, ..., value)`: {what}; returns the old one.

    Lanes follow one another in their order, and blocks in theirs, so the result has the same bits on every run. A
    negative index counts from the end, once; what is still outside is an error that the launch raises.

    Args:
        a: array.
        i, j, ...: the element, one index for each dimension.
        value: of the array's dtype; a literal takes it.

    Returns: the element as this update found it.
    Raises: TypeMismatch if the dtypes differ or the array's has no such update.
    {gradient}

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[{kind}], y: tg.array1d[{kind}]):
        ...     tg.atomic_{name}(y, 0, x[tg.tid()])
        >>> x, y = np.array([{argument:g}, 0], np.{dtype}), np.array([{start}], np.{dtype})
        >>> tg.launch(example, dim={lanes}, inputs=[x, y])
        >>> y.tolist()
        [{after}]
    """


def _arguments(
    what: str, a: ArrayType, where: Sequence[Any], named: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Indices and values of a call `f(a, i, j, ..., value)`; a literal value takes the array's dtype."""
    values = [v for v in named.values() if v is not None]
    missing = len(named) - len(values)
    index, given = (where[:-missing], where[-missing:]) if missing else (where, ())
    if len(index) != a.ndim or len(given) != missing:
        form = ", ".join([*(f"{'ijkl'[k]}" if k < 4 else f"i{k}" for k in range(a.ndim)), *named])
        raise ShapeMismatch(
            f"{what}: a {a.ndim}-D array takes {a.ndim} ind{'ices' if a.ndim > 1 else 'ex'} and {' and '.join(named)}",
            help=f"write {what}(a, {form})",
        )
    return tuple(index), tuple(_as_element(what, a, x) for x in (*given, *values))


def _as_element(what: str, a: ArrayType, x: Any) -> Any:
    """A value for an element; a literal takes the array's dtype."""
    if not isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, bool) != (a.dtype.kind == "b") or not dt.literal_fits(x, a.dtype):
        raise TypeMismatch(f"{what}: the literal {x!r} cannot be an element of {describe(a)}")
    return constant(x, a.dtype)


_OLD_VALUE = "a cotangent of the old value is added to the gradient of the element"
_WINNER = (
    "Gradient: that of the element goes to the first value that it was last replaced by. Ties stay with the earlier\n"
    "    one. Of the old value there is none, nor of an element that the same launch also updates in another way."
)
array_atomic_add = _update(
    "add", dt.NUMERIC, f"Gradient: that of the element goes to the value and stays; {_OLD_VALUE}."
)
array_atomic_sub = _update(
    "sub", dt.NUMERIC, f"Gradient: that of the element, negated, goes to the value and stays; {_OLD_VALUE}."
)
array_atomic_min = _update("min", dt.NUMERIC, _WINNER)
array_atomic_max = _update("max", dt.NUMERIC, _WINNER)
array_atomic_and = _update("and", (dt.bool_, *dt.INTEGERS), "No gradient: it works on bits.", "it works on bits")
array_atomic_or = _update("or", (dt.bool_, *dt.INTEGERS), "No gradient: it works on bits.", "it works on bits")
array_atomic_xor = _update("xor", (dt.bool_, *dt.INTEGERS), "No gradient: it works on bits.", "it works on bits")
array_atomic_exch = _update(
    "exch",
    dt.SCALARS,
    "Gradient: that of the element goes to the value that came last, and becomes that of its old value.",
)


@op(cls="scalar", effect="atomic", no_gradient="whether an element was replaced depends on all writers before")
def array_atomic_cas(a: Array, compare: Scalar, value: Scalar, *index: Scalar) -> Scalar:
    """`atomic_cas(a, i, j, ..., compare, value)`: replace an element that equals `compare`; returns the old one.

    Lanes follow one another in their order, and blocks in theirs. NaN equals nothing. Arguments and errors: see
    `atomic_add`.
    No gradient: whether an element was replaced depends on all writers before.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(owner: tg.array1d[int], old: tg.array1d[int]):
        ...     i = tg.tid()
        ...     old[i] = tg.atomic_cas(owner, 0, -1, i)
        >>> owner, old = np.array([-1], np.int32), np.zeros(3, np.int32)
        >>> tg.launch(example, dim=3, inputs=[owner, old])
        >>> owner.tolist(), old.tolist()
        ([0], [-1, 0, 0])
    """
    where = wrap_index(index, a.shape)
    return _in_turn(a, where, lambda old, expected, new: new if old == expected else old, compare, value)


@infer(array_atomic_cas)
def _array_atomic_cas_infer(a: ArrayType, compare: ScalarType, value: ScalarType, *index: Type) -> Type:
    t = _element_type("atomic_cas", a, index, compare, value)
    _require_value("atomic_cas", a, compare)
    _require_value("atomic_cas", a, value)
    return t


@lower(array_atomic_cas)
def _array_atomic_cas_lower(e: Emitter, a: ArrayRef, compare: Reg, value: Reg, *index: Reg) -> Reg:
    return e.array_update("cas", a, _index_of(e, index), value, False, compare)


@samples(array_atomic_cas)
def _array_atomic_cas_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        a = rng.integers(0, 2 if d.kind == "b" else 9, (3, 4)).astype(d.np)
        yield Sample((a, a[2, 0], d(3), 2, -4))
        yield Sample((a, d(1), d(3), -1, 3))


@spelled(array_atomic_cas)
def _array_atomic_cas_call(a: Any, *where: Any, compare: Any = None, value: Any = None) -> Any:
    t = require_array("atomic_cas", a)
    index, (expected, new) = _arguments("atomic_cas", t, where, {"compare": compare, "value": value})
    return array_atomic_cas(a, expected, new, *index)


# --- adjoints of updates: what came last is undone first -----------------------------------------------------------


def _back(name: str, kernel_op: str, what: str) -> OpDef:
    """Define an update that goes from the highest lane to the lowest."""

    @op(f"array_{name}_back", cls="scalar", effect="atomic")
    def back(a: Array, value: Scalar, *index: Scalar) -> Scalar:
        return _in_turn(a, wrap_index(index, a.shape), _COMBINE[name], value, backwards=True)

    back.__doc__ = f"""{what}, from the highest lane to the lowest; returns the old element.

    In a backward kernel whose blocks are descending it undoes the updates of a launch in the opposite order.
    """

    @infer(back)
    def _infer(a: ArrayType, value: ScalarType, *index: Type) -> Type:
        _require_value(f"array_{name}_back", a, value)
        return _element_type(f"array_{name}_back", a, index, value)

    @lower(back)
    def _lower(e: Emitter, a: ArrayRef, value: Reg, *index: Reg) -> Reg:
        return e.array_update(kernel_op, a, _index_of(e, index), value, False)

    @samples(back)
    def _samples(rng: np.random.Generator) -> Iterator[Sample]:
        for d in dt.FLOATS:
            yield Sample((rng.integers(0, 9, (3, 4)).astype(d.np), d(3), 2, -4))

    return back


array_add_back = _back("add", "add_back", "Add to an element")
array_exch_back = _back("exch", "take", "Replace an element")


@adjoint(array_atomic_add)
def _array_atomic_add_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    return _accumulated(ct, grads[0], index, array_add_back)


@adjoint(array_add_back)
def _array_add_back_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    return _accumulated(ct, grads[0], index, array_atomic_add)


@adjoint(array_atomic_sub)
def _array_atomic_sub_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    none, result, *rest = _accumulated(ct, grads[0], index, array_add_back)
    return (none, REGISTRY["neg"](result), *rest)


def _accumulated(ct: Any, grad: Any, index: Sequence[Any], add: OpDef) -> tuple[Any, ...]:
    """The gradient of an accumulated cell goes to the value and stays; that of the old value goes to the cell."""
    result = array_load(grad, *index) if ct is None else add(grad, ct, *index)
    return (None, result, *(None,) * len(index))


@adjoint(array_atomic_exch)
def _array_atomic_exch_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    return (None, array_exch_back(grads[0], ct, *index), *(None,) * len(index))


@adjoint(array_exch_back)
def _array_exch_back_adjoint(ct: Any, out: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]) -> Any:
    return (None, array_atomic_exch(grads[0], ct, *index), *(None,) * len(index))


@op(cls="scalar", effect="atomic", no_gradient="who gave the value of an element does not change with small changes")
def array_claim(a: Array, value: Scalar, *index: Scalar) -> Scalar:
    """Whether an element equals `value` and nobody has claimed it before; then it becomes NaN.

    In a backward kernel `a` holds what atomic minima or maxima have left, with NaN where no update took effect. The
    first update that finds its value there is the one that gave it.
    """
    old = _in_turn(a, wrap_index(index, a.shape), lambda old, x: np.nan if old == x else old, value)
    return np.equal(old, value)


@infer(array_claim)
def _array_claim_infer(a: ArrayType, value: ScalarType, *index: Type) -> Type:
    _require_value("array_claim", a, value)
    return ScalarType(dt.bool_, _element_type("array_claim", a, index, value).varying)


@lower(array_claim)
def _array_claim_lower(e: Emitter, a: ArrayRef, value: Reg, *index: Reg) -> Reg:
    old = e.array_update("claim", a, _index_of(e, index), value, False)
    wide = dt.float32 if a.dtype.is_half else a.dtype
    return e.compare("eq", e.cast(old, wide), e.cast(value, wide))


@samples(array_claim)
def _array_claim_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.FLOATS:
        a = rng.integers(0, 9, (3, 4)).astype(d.np)
        yield Sample((a, a[1, 2], 1, 2))
        yield Sample((a, d(0.5), 1, 2))


@adjoint(array_atomic_min)
@adjoint(array_atomic_max)
def _array_atomic_extremum_adjoint(
    ct: Any, claimed: Any, a: Any, value: Any, *index: Any, grads: tuple[Any, ...]
) -> Any:
    """Instead of its result the rule is given whether this update has given the element its value."""

    def take() -> list[Any]:
        return [array_take(grads[0], *index)]

    def nothing() -> list[Any]:
        return [constant(0.0, grads[0].type.dtype)]

    (share,) = build_if(claimed, take, nothing)
    return (None, share, *(None,) * len(index))


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


#: message about an extent that int32 cannot hold
TOO_LONG = "an array has the extent {}, which does not fit into int32"


@op(cls="scalar", no_gradient="an extent is an integer")
def array_shape(a: Array, *, axis: int) -> Scalar:
    """The extent of an array along an axis, as int32; one that is too large for that is an error."""
    if a.shape[axis] > dt.int32.max:
        raise KernelValueError(TOO_LONG.format(a.shape[axis]))
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
    "atomic_and": array_atomic_and,
    "atomic_or": array_atomic_or,
    "atomic_xor": array_atomic_xor,
    "atomic_exch": array_atomic_exch,
    "atomic_cas": array_atomic_cas,
}
