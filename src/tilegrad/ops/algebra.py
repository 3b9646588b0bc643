"""Operators on composite values: what + - * / @ == mean for vectors, matrices, quaternions and transforms.

Everything here is composed of ops on the parts, so it has no rules of its own, works on scalars and on tiles alike, and
its gradients are those of the parts. Named functions are in the families beside this one (vectors, matrices, ...).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tilegrad import dtypes as dt
from tilegrad import element_types
from tilegrad.composite import (
    Composite,
    is_matrix,
    is_quaternion,
    is_struct,
    is_transform,
    is_vector,
    kind_of,
    leaves,
    make_matrix,
    make_quaternion,
    make_transform,
    make_vector,
    map_parts,
)
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import GridType, HostValue, StructType, StructValue
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.types import TileType
from tilegrad.op import REGISTRY, broadcast_shapes, constant, unwrap
from tilegrad.ops.cast import dtype_of

Function = TypeVar("Function", bound=Callable[..., Any])


def add(x: Any, y: Any) -> Any:
    return REGISTRY["add"](x, y)


def sub(x: Any, y: Any) -> Any:
    return REGISTRY["sub"](x, y)


def mul(x: Any, y: Any) -> Any:
    return REGISTRY["mul"](x, y)


def div(x: Any, y: Any) -> Any:
    return REGISTRY["div"](x, y)


def neg(x: Any) -> Any:
    return REGISTRY["neg"](x)


def total(terms: Sequence[Any]) -> Any:
    """The sum of one or more scalars or tiles."""
    result = terms[0]
    for term in terms[1:]:
        result = add(result, term)
    return result


def inner(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """The sum of products of corresponding parts."""
    return total([mul(x, y) for x, y in zip(xs, ys, strict=True)])


def constant_like(value: float | int, dtype: DType, like: Any) -> Any:
    """A number of `dtype` that may stand where the part `like` stands: a tile where that is a tile."""
    t = getattr(like, "type", None)
    if t is None:
        return np.full(np.shape(like), value, dtype.np)[()]
    shape = getattr(t, "shape", None)
    number = dtype(value)
    return number if shape is None else REGISTRY["tile_full"](number, shape=shape)


def mismatch(symbol: str, x: Any, y: Any, help: str = "") -> TypeMismatch:
    """The error for operands that do not go together."""
    names = [str(kind_of(v) or type(v).__name__) for v in (x, y)]
    return TypeMismatch(f"`{symbol}` is not defined for {names[0]} and {names[1]}", help=help)


def require_grid(what: str, x: Any, *tests: Callable[[Any], bool]) -> Composite:
    """`x` as a composite that passes one of the tests. Raises TypeMismatch."""
    if not any(test(x) for test in tests):
        wanted = " or ".join("a " + test.__name__.removeprefix("is_") for test in tests)
        raise TypeMismatch(f"{what} takes {wanted}, not {kind_of(x) or type(x).__name__}")
    found: Composite = x
    return found


# --- products ---------------------------------------------------------------------------------------------------------


def scaled(x: Composite, factor: Any) -> Composite:
    """Every part times a scalar."""
    return map_parts(lambda part: mul(part, factor), x)


def matrix_product(x: Composite, y: Composite) -> Composite:
    _require_inner(x, y, x.grid.shape[1], y.grid.shape[0])
    return make_matrix([[inner(r, c) for c in y.columns] for r in x.rows], x.grid.dtype)


def matrix_vector(x: Composite, y: Composite) -> Composite:
    _require_inner(x, y, x.grid.shape[1], len(y))
    return make_vector([inner(r, y) for r in x.rows], x.grid.dtype)


def vector_matrix(x: Composite, y: Composite) -> Composite:
    _require_inner(x, y, len(x), y.grid.shape[0])
    return make_vector([inner(x, c) for c in y.columns], x.grid.dtype)


def _require_inner(x: Composite, y: Composite, m: int, n: int) -> None:
    if x.grid.dtype is not y.grid.dtype or m != n:
        reason = "the element types differ" if m == n else "the inner extents differ"
        raise mismatch("*", x, y, f"{reason}: {m} and {n}" if m != n else reason)


def quaternion_product(a: Composite, b: Composite) -> Composite:
    """Hamilton's product."""
    _require_inner(a, b, 4, 4)
    (x, y, z, w), (p, q, r, s) = a, b
    parts = [
        sub(total([mul(w, p), mul(x, s), mul(y, r)]), mul(z, q)),
        sub(total([mul(w, q), mul(y, s), mul(z, p)]), mul(x, r)),
        sub(total([mul(w, r), mul(z, s), mul(x, q)]), mul(y, p)),
        sub(mul(w, s), total([mul(x, p), mul(y, q), mul(z, r)])),
    ]
    return make_quaternion(parts, a.grid.dtype)


def cross_parts(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The parts of a cross product of three parts each."""
    (x, y, z), (p, q, r) = a, b
    return [sub(mul(y, r), mul(z, q)), sub(mul(z, p), mul(x, r)), sub(mul(x, q), mul(y, p))]


def rotated_parts(q: Composite, v: Sequence[Any]) -> list[Any]:
    """The parts of a vector rotated by a unit quaternion: (2 w**2 - 1) v + 2 w (u x v) + 2 (u . v) u."""
    u, w = q[:3], q[3]
    c, d, e = sub(mul(mul(w, w), 2), 1), mul(inner(u, v), 2), mul(w, 2)
    turned = cross_parts(u, v)
    return [add(add(mul(x, c), mul(p, d)), mul(t, e)) for x, p, t in zip(v, u, turned, strict=True)]


def transform_product(a: Composite, b: Composite) -> Composite:
    """The motion b followed by a."""
    _require_inner(a, b, 7, 7)
    p, q = split(a)
    o, r = split(b)
    moved = [add(x, y) for x, y in zip(p, rotated_parts(q, o), strict=True)]
    return make_transform(moved, quaternion_product(q, r), a.grid.dtype)


def split(t: Composite) -> tuple[Composite, Composite]:
    """Translation and rotation of a transform."""
    d = t.grid.dtype
    return make_vector(t[:3], d), make_quaternion(t[3:], d)


def product(x: Any, y: Any) -> Any:
    """`x * y`: matrix products, products of quaternions and transforms, and scaling by a scalar."""
    if is_struct(x) or is_struct(y):
        raise mismatch("*", x, y)
    if not isinstance(x, Composite):
        return scaled(y, x)
    if not isinstance(y, Composite):
        return scaled(x, y)
    if is_vector(x) and is_vector(y):
        raise mismatch("*", x, y, "write dot(a, b), cross(a, b), outer(a, b), or cw_mul(a, b) part by part")
    for left, right, rule in _PRODUCTS:
        if left(x) and right(y):
            return rounded_once(rule)(x, y)
    raise mismatch("*", x, y)


_PRODUCTS: tuple[tuple[Any, Any, Callable[[Any, Any], Composite]], ...] = (
    (is_matrix, is_matrix, matrix_product), (is_matrix, is_vector, matrix_vector),
    (is_vector, is_matrix, vector_matrix), (is_quaternion, is_quaternion, quaternion_product),
    (is_transform, is_transform, transform_product),
)  # fmt: skip


def matmul(x: Any, y: Any) -> Any:
    """`x @ y` of vectors and matrices."""
    if is_vector(x) and is_vector(y):
        _require_inner(x, y, len(x), len(y))
        return rounded_once(inner)(x, y)
    if (is_matrix(x) or is_vector(x)) and (is_matrix(y) or is_vector(y)):
        return product(x, y)
    raise mismatch("@", x, y)


def quotient(x: Any, y: Any) -> Any:
    """`x / y`: every part divided by a scalar, or a scalar by every part; whole numbers give floats, as Python's do."""
    if isinstance(x, Composite) and not isinstance(y, Composite) and not is_struct(x):
        return map_parts(lambda part: div(part, _divisible(y)), _divisible(x))
    if isinstance(y, Composite) and not isinstance(x, Composite) and not is_struct(y):
        return map_parts(lambda part: div(_divisible(x), part), _divisible(y))
    raise mismatch("/", x, y, "divide by a scalar, or part by part with cw_div(a, b)")


def _divisible(x: Any) -> Any:
    """Whole numbers as the floats that a division makes of them."""
    dtype = x.grid.dtype if isinstance(x, Composite) else dtype_of(x)
    return _cast(x, dtype, dt.quotient_dtype(dtype)) if dtype is not None and dtype.is_int else x


def same_types(symbol: str, op: str) -> Callable[[Any, Any], Composite]:
    """An operator that works part by part on two values of one type."""

    def rule(x: Any, y: Any) -> Composite:
        if not isinstance(x, Composite) or not isinstance(y, Composite) or x.kind is not y.kind:
            raise mismatch(symbol, x, y, "both sides must be of one type")
        return map_parts(lambda a, b: REGISTRY[op](a, b), x, y)

    return rule


def equal(x: Any, y: Any) -> Any:
    """`x == y`: whether all parts are equal."""
    if not isinstance(x, Composite) or not isinstance(y, Composite) or x.kind is not y.kind:
        raise mismatch("==", x, y, "both sides must be of one type")
    return _all([equal(a, b) if isinstance(a, Composite) else REGISTRY["eq"](a, b) for a, b in zip(x, y, strict=True)])


def _all(bools: Sequence[Any]) -> Any:
    result = bools[0]
    for b in bools[1:]:
        result = REGISTRY["bit_and"](result, b)
    return result


#: what an op of the IR, or an operator, means when an operand is composite
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": same_types("+", "add"), "sub": same_types("-", "sub"), "mul": product, "div": quotient,
    "tile_matmul": matmul, "eq": equal, "ne": lambda x, y: REGISTRY["invert"](equal(x, y)),
    "bit_and": same_types("&", "bit_and"), "bit_or": same_types("|", "bit_or"), "bit_xor": same_types("^", "bit_xor"),
    "mod": same_types("%", "mod"),
}  # fmt: skip


def over_parts(op: str) -> Callable[[Any], Any]:
    """An operator folded over the parts of a vector, matrix or quaternion."""

    def rule(x: Any) -> Any:
        parts = require_grid(op.removesuffix("imum"), x, is_vector, is_matrix, is_quaternion)
        return functools.reduce(REGISTRY[op], parts)

    return rule


#: what an op of two operands means when its only operand is composite: min(v), max(v)
OF_PARTS: dict[str, Callable[[Any], Any]] = {"minimum": over_parts("minimum"), "maximum": over_parts("maximum")}


# --- values outside of kernels ----------------------------------------------------------------------------------------


def from_host(x: Any) -> Any:
    """A value from outside of kernels taken apart; anything else unchanged."""
    if isinstance(x, HostValue):
        return Composite(x.kind, x.data.ravel())
    if isinstance(x, StructValue):
        return Composite(x.kind, [from_host(getattr(x, name)) for name in x.kind.members])
    return x


def to_host(x: Any) -> Any:
    """A composite of NumPy numbers put together again; anything else unchanged."""
    if not isinstance(x, Composite):
        return x
    if isinstance(x.kind, GridType):
        return HostValue(x.kind, np.array(x, x.kind.dtype.np).reshape(x.kind.shape))
    assert isinstance(x.kind, StructType)
    return StructValue(x.kind, *map(to_host, x))


_SYMBOLS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "tile_matmul"}


def _host_operator(symbol: str, x: Any, y: Any) -> Any:
    a, b = from_host(x), from_host(y)
    if not isinstance(a, Composite):
        a = b.grid.dtype(a)
    elif not isinstance(b, Composite):
        b = a.grid.dtype(b)
    return to_host(OPERATORS[_SYMBOLS[symbol]](a, b))


element_types.OPERATOR.append(_host_operator)


# --- what named functions share ---------------------------------------------------------------------------------------


def everywhere(function: Function) -> Function:
    """Make a function of composite values one that may be called outside of kernels too, with `vec3(...)` and so on."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if ir_builder.current() is not None:
            return function(*args, **kwargs)
        with np.errstate(all="ignore"):
            result = function(*map(from_host, args), **{k: from_host(v) for k, v in kwargs.items()})
        several = isinstance(result, tuple) and not isinstance(result, Composite)
        return tuple(map(to_host, result)) if several else to_host(result)

    return call  # type: ignore[return-value]


def rounded_once(function: Function) -> Function:
    """Compute a function of 16-bit floats in float32, and round its results once."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = {dtype_of(leaf) for x in (*args, *kwargs.values()) for leaf in leaves(x)}
        floats = [d for d in found if d is not None and d.is_float]
        if len(floats) != 1 or not floats[0].is_half:
            return function(*args, **kwargs)
        narrow = floats[0]
        wide = [_cast(x, narrow, dt.float32) for x in args]
        result = function(*wide, **{k: _cast(v, narrow, dt.float32) for k, v in kwargs.items()})
        if isinstance(result, tuple) and not isinstance(result, Composite):
            return tuple(_cast(x, dt.float32, narrow) for x in result)
        return _cast(result, dt.float32, narrow)

    return call  # type: ignore[return-value]


def _cast(x: Any, source: DType, target: DType) -> Any:
    """A value of dtype `source` as one of `target`; anything else unchanged."""
    if isinstance(x, Composite):
        same = isinstance(x.kind, GridType) and x.kind.dtype is source
        return Composite(x.grid.with_dtype(target), [_cast(p, source, target) for p in x]) if same else x
    return REGISTRY["astype"](x, dtype=target) if dtype_of(x) is source else x


def even(parts: Sequence[Any]) -> list[Any]:
    """Parts of one composite: if one is a tile all become tiles, of the shape to which they broadcast."""
    if ir_builder.current() is None:
        return list(parts)
    values = [constant(p) if isinstance(p, np.generic) else unwrap(p) for p in parts]
    shapes = [v.type.shape for v in values if isinstance(v.type, TileType)]
    if not shapes:
        return values
    shape = broadcast_shapes("the parts", shapes)
    return [_spread(v, shape) for v in values]


def _spread(v: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(v.type, TileType):
        return v if v.type.shape == shape else REGISTRY["tile_broadcast"](v, shape=shape)
    return REGISTRY["tile_full"](v, shape=shape)


def even_vector(parts: Sequence[Any], dtype: DType) -> Composite:
    """A vector of parts that may be scalars beside tiles."""
    return make_vector(even(parts), dtype)


def even_matrix(rows: Sequence[Sequence[Any]], dtype: DType) -> Composite:
    """A matrix, by its rows, of parts that may be scalars beside tiles."""
    flat = even([x for row in rows for x in row])
    n = len(rows[0])
    return make_matrix([flat[n * i : n * (i + 1)] for i in range(len(rows))], dtype)


def even_quaternion(parts: Sequence[Any], dtype: DType) -> Composite:
    """A quaternion of parts that may be scalars beside tiles."""
    return make_quaternion(even(parts), dtype)


def number(what: str, name: str, x: Any, dtype: DType) -> Any:
    """The argument `name` as a number (or tile of numbers) of `dtype`, which a literal becomes."""
    if isinstance(x, bool) or (isinstance(x, tuple) and not isinstance(x, Composite)):
        raise TypeMismatch(f"{what}: `{name}` must be a number")
    if isinstance(x, (int, float)) or (ir_builder.current() is None and np.ndim(x) == 0):
        return dtype(x)
    own = dtype_of(x)
    if own is not dtype:
        raise TypeMismatch(
            f"{what}: `{name}` must be {dtype}, it is {kind_of(x) or own or type(x).__name__}",
            help=f"cast it: {dtype}({name})" if own is not None else "",
        )
    return x


def alike(what: str, x: Any, y: Any, *tests: Callable[[Any], bool]) -> tuple[Composite, Composite]:
    """Two composites of one type that passes one of the tests. Raises TypeMismatch."""
    a, b = require_grid(what, x, *tests), require_grid(what, y, *tests)
    if a.kind is not b.kind:
        raise TypeMismatch(
            f"{what}: {a.kind} meets {b.kind}", help="both must be of one type; convert one, for example vec3d(v)"
        )
    return a, b


def require_floats(what: str, x: Composite) -> DType:
    """The dtype of the parts, a float type. Raises TypeMismatch."""
    dtype = x.grid.dtype
    if not dtype.is_float:
        raise TypeMismatch(f"{what} is defined for floats, not for {x.kind}", help="convert it, for example vec3(v)")
    return dtype


def where(condition: Any, x: Any, y: Any) -> Any:
    """The one or the other, also of two composites of one type."""
    if isinstance(x, Composite):
        return map_parts(lambda a, b: where(condition, a, b), x, y)
    return REGISTRY["where"].spelled(condition, x, y)  # type: ignore[misc]


def call(name: str, *args: Any) -> Any:
    """An op by name."""
    return REGISTRY[name](*args)
