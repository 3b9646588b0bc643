"""Vectors: products, lengths, the parts of extreme value, interpolation, and construction by `vector(...)`.

A vector has parts that are scalars or tiles; every function is composed of ops on them, so a tile of vectors is worked
on element by element and gradients are those of the parts. 16-bit floats are computed in float32 and rounded once.
Does not define what + - * / mean (see algebra).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, is_matrix, is_quaternion, is_vector, leaves, map_parts
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ops.algebra import (
    add,
    alike,
    call,
    cross_parts,
    div,
    even,
    even_matrix,
    even_quaternion,
    even_vector,
    everywhere,
    inner,
    mul,
    neg,
    number,
    require_floats,
    require_grid,
    rounded_once,
    sub,
    where,
)
from tilegrad.ops.cast import astype, dtype_of

# --- products ---------------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def dot(a: Any, b: Any) -> Any:
    """The sum of the products of corresponding parts, of two vectors or two quaternions of one type.

    Raises: TypeMismatch if they are not.
    Gradient: ct b and ct a.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.dot(tg.vec3(1, 2, 3), tg.vec3(4, 5, 6)))
        32.0
    """
    return inner(*alike("dot", a, b, is_vector, is_quaternion))


@everywhere
@rounded_once
def cross(a: Any, b: Any) -> Any:
    """The cross product of two vectors of three parts.

    Raises: TypeMismatch if they are no such vectors, or of different types.
    Gradient: cross(b, ct) and cross(ct, a).

    Example:
        >>> import tilegrad as tg
        >>> tg.cross(tg.vec3(1, 0, 0), tg.vec3(0, 1, 0))
        vec3f(0.0, 0.0, 1.0)
    """
    x, y = alike("cross", a, b, is_vector)
    _require_three("cross", x)
    return even_vector(cross_parts(x, y), x.grid.dtype)


def _require_three(what: str, v: Composite) -> None:
    if len(v) != 3:
        raise TypeMismatch(f"{what} takes vectors of 3 parts, not {v.kind}")


@everywhere
@rounded_once
def outer(a: Any, b: Any) -> Any:
    """The matrix with a[i] * b[j] in row i and column j, of two vectors of one dtype.

    Raises: TypeMismatch if an argument is no vector or their dtypes differ.
    Gradient: ct b and transpose(ct) a.

    Example:
        >>> import tilegrad as tg
        >>> tg.outer(tg.vec2(1, 2), tg.vec2(3, 4))
        mat22f(3.0, 4.0, 6.0, 8.0)
    """
    x, y = require_grid("outer", a, is_vector), require_grid("outer", b, is_vector)
    if x.grid.dtype is not y.grid.dtype:
        raise TypeMismatch(f"outer: {x.kind} meets {y.kind}", help=f"convert one to {x.grid.dtype}")
    return even_matrix([[mul(p, q) for q in y] for p in x], x.grid.dtype)


@everywhere
def skew(v: Any) -> Any:
    """The matrix S with S * x = cross(v, x), of a vector of three parts.

    Raises: TypeMismatch if `v` is no such vector.
    Gradient: (ct[2, 1] - ct[1, 2], ct[0, 2] - ct[2, 0], ct[1, 0] - ct[0, 1]).

    Example:
        >>> import tilegrad as tg
        >>> tg.skew(tg.vec3(1, 2, 3))
        mat33f(0.0, -3.0, 2.0, 3.0, 0.0, -1.0, -2.0, 1.0, 0.0)
    """
    found = require_grid("skew", v, is_vector)
    _require_three("skew", found)
    dtype = require_floats("skew", found)
    x, y, z = found
    o = dtype(0)
    return even_matrix([[o, neg(z), y], [z, o, neg(x)], [neg(y), x, o]], dtype)


@everywhere
def cw_mul(a: Any, b: Any) -> Any:
    """The products of corresponding parts, of two vectors or matrices of one type.

    Raises: TypeMismatch if they are not.
    Gradient: cw_mul(ct, b) and cw_mul(ct, a).

    Example:
        >>> import tilegrad as tg
        >>> tg.cw_mul(tg.vec2(1, 2), tg.vec2(3, 4))
        vec2f(3.0, 8.0)
    """
    return map_parts(mul, *alike("cw_mul", a, b, is_vector, is_matrix))


@everywhere
def cw_div(a: Any, b: Any) -> Any:
    """The quotients of corresponding parts, of two vectors or matrices of one type; whole numbers as `//` divides them.

    Raises: TypeMismatch if they are not.
    Gradient: cw_div(ct, b) and -cw_div(cw_mul(ct, out), b).

    Example:
        >>> import tilegrad as tg
        >>> tg.cw_div(tg.vec2(3, 8), tg.vec2(3, 4))
        vec2f(1.0, 2.0)
    """
    x, y = alike("cw_div", a, b, is_vector, is_matrix)
    whole = not x.grid.dtype.is_float
    return map_parts(lambda p, q: call("floordiv", p, q) if whole else div(p, q), x, y)


# --- length -----------------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def length_sq(a: Any) -> Any:
    """The sum of the squares of the parts of a vector or quaternion.

    Raises: TypeMismatch for anything else.
    Gradient: 2 ct a.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.length_sq(tg.vec2(3, 4)))
        25.0
    """
    x = require_grid("length_sq", a, is_vector, is_quaternion)
    return inner(x, x)


@everywhere
@rounded_once
def length(a: Any) -> Any:
    """The square root of the sum of the squares of the parts of a vector or quaternion of floats.

    Raises: TypeMismatch for anything else.
    Gradient: ct a / length(a); 0 for a zero vector.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.length(tg.vec2(3, 4)))
        5.0
    """
    x = require_grid("length", a, is_vector, is_quaternion)
    require_floats("length", x)
    return root(inner(x, x))


def root(square: Any) -> Any:
    """The square root of a sum of squares. At 0 its derivative is taken to be 0 for each term, as that of |x| is."""
    zero = call("eq", square, 0)
    return where(zero, square, call("sqrt", where(zero, 1, square)))


@everywhere
@rounded_once
def normalize(a: Any) -> Any:
    """A vector or quaternion of floats divided by its length. A zero vector stays zero, a zero quaternion becomes 1.

    Raises: TypeMismatch for anything else.
    Gradient: (ct - out dot(out, ct)) / length(a); 0 for a zero vector or quaternion.

    Example:
        >>> import tilegrad as tg
        >>> tg.normalize(tg.vec2(3, 4))
        vec2f(0.6000000238418579, 0.800000011920929)
    """
    x = require_grid("normalize", a, is_vector, is_quaternion)
    require_floats("normalize", x)
    return unit(x)


def unit(x: Composite) -> Composite:
    """A vector or quaternion divided by its length."""
    dtype = x.grid.dtype
    square = inner(x, x)
    zero = call("eq", square, 0)
    size = call("sqrt", where(zero, 1, square))
    otherwise = [0, 0, 0, 1] if is_quaternion(x) else [0] * len(x)
    return x.rebuilt(even([where(zero, dtype(o), div(p, size)) for p, o in zip(x, otherwise, strict=True)]))


# --- extremes of the parts --------------------------------------------------------------------------------------------


@everywhere
def argmin(v: Any) -> Any:
    """The index (int32) of the smallest part of a vector; the first one of equals. NaN counts as missing.

    Raises: TypeMismatch if `v` is no vector.
    Gradient: none, the result is an index.

    Example:
        >>> import tilegrad as tg
        >>> int(tg.argmin(tg.vec3(4, 2, 3)))
        1
    """
    return _position("argmin", "lt", v)


@everywhere
def argmax(v: Any) -> Any:
    """The index (int32) of the largest part of a vector; the first one of equals. NaN counts as missing.

    Raises: TypeMismatch if `v` is no vector.
    Gradient: none, the result is an index.

    Example:
        >>> import tilegrad as tg
        >>> int(tg.argmax(tg.vec3(4, 2, 3)))
        0
    """
    return _position("argmax", "gt", v)


def _position(what: str, comparison: str, v: Any) -> Any:
    parts = require_grid(what, v, is_vector)
    best, at = parts[0], even([np.int32(0), parts[0]])[0]
    for k, part in enumerate(parts[1:], 1):
        better = call(comparison, part, best)
        if parts.grid.dtype.is_float:
            better = call("bit_or", better, call("bit_and", call("isnan", best), call("eq", part, part)))
        best, at = where(better, part, best), where(better, np.int32(k), at)
    return at


# --- interpolation ----------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def lerp(a: Any, b: Any, t: Any) -> Any:
    """a (1 - t) + b t: from `a` at t = 0 to `b` at t = 1, of numbers or part by part.

    Args:
        a, b: two numbers, tiles, vectors, matrices, quaternions or transforms of one float type.
        t: a number of their dtype.
    Raises: TypeMismatch if the types differ.
    Gradient: ct (1 - t), ct t, and the sum of ct (b - a).

    Example:
        >>> import tilegrad as tg
        >>> tg.lerp(tg.vec2(0, 10), tg.vec2(1, 20), 0.5)
        vec2f(0.5, 15.0)
    """
    if isinstance(a, Composite) or isinstance(b, Composite):
        x, y = alike("lerp", a, b, is_vector, is_matrix, is_quaternion, _is_transform)
        at = number("lerp", "t", t, require_floats("lerp", x))
        return x.rebuilt(even([_between(p, q, at) for p, q in zip(x, y, strict=True)]))
    return _between(a, b, t)


def _is_transform(x: Any) -> bool:
    return isinstance(x, Composite) and len(x) == 7


def _between(a: Any, b: Any, t: Any) -> Any:
    left = 1.0 - t if isinstance(t, (int, float)) else sub(1.0, t)  # a literal takes the type of `a`
    return add(mul(a, left), mul(b, t))


# --- construction -----------------------------------------------------------------------------------------------------


@everywhere
def vector(*args: Any, length: int | None = None, dtype: Any = None) -> Any:
    """A vector of the given parts, or of `length` parts: all equal to the one given, or zeros.

    Args:
        args: numbers or vectors, whose parts follow one another; or one number with `length`.
        length: how many parts; a compile-time constant.
        dtype: the dtype of the parts, to which they are converted. Without it, that of the parts; float32 for literals.
    Raises: TypeMismatch if the number of parts is not `length`, or the parts are of different types.
    Gradient: the parts of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.vector(1.0, 2.0, 3.0)
        vec3f(1.0, 2.0, 3.0)
        >>> tg.vector(length=2, dtype=tg.float64)
        vec2d(0.0, 0.0)
    """
    made = dtype_for("vector", args, dtype)
    parts = [converted("vector", x, made, dtype is not None) for x in flat(args)]
    if length is not None and len(parts) <= 1:
        parts = (parts or [made(0)]) * _known("vector", "length", length)
    if not parts:
        raise TypeMismatch("vector needs its parts", help="write vector(x, y, z), or vector(length=3, dtype=float)")
    if length is not None and len(parts) != length:
        raise TypeMismatch(f"vector: length is {length}, but {len(parts)} parts are given")
    return even_vector(parts, made)


def flat(args: Sequence[Any]) -> list[Any]:
    """The scalars and tiles of the arguments, those of composites in their order."""
    return [leaf for x in args for y in (x if type(x) is tuple else (x,)) for leaf in leaves(y)]


def dtype_for(what: str, args: Sequence[Any], dtype: Any) -> DType:
    """The dtype of a composite: the one asked for, or that of its parts, or float32."""
    if dtype is not None:
        wanted = dt.as_dtype(dtype)
        if wanted is None:
            raise TypeMismatch(f"{what}: {dtype!r} is no scalar type")
        return wanted
    return next((d for x in flat(args) if (d := dtype_of(x)) is not None), dt.float32)


def converted(what: str, x: Any, dtype: DType, convert: bool) -> Any:
    """A part as one of `dtype`; only literals change unless it is to be converted."""
    own = dtype_of(x)
    return astype(x, dtype=dtype) if convert and own not in (None, dtype) else number(what, "a part", x, dtype)


def _known(what: str, name: str, x: Any) -> int:
    if not isinstance(x, int) or x < 1:
        raise TypeMismatch(f"{what}: {name} must be a positive compile-time constant")
    return x


@everywhere
def quaternion(*args: Any, dtype: Any = None) -> Any:
    """A quaternion of x, y, z, w, or of a vector (x, y, z) and w; the zero quaternion without arguments.

    Args:
        args: four numbers, or a vector of three parts and a number.
        dtype: a float type, to which the parts are converted. Without it, that of the parts; float32 for literals.
    Raises: TypeMismatch if the number of parts is not 4 or the dtype is no float type.
    Gradient: the parts of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.quaternion(tg.vec3(0, 0, 0), 1.0)
        quatf(0.0, 0.0, 0.0, 1.0)
    """
    made = dtype_for("quaternion", args, dtype)
    if not made.is_float:
        raise TypeMismatch(f"quaternion: the parts must be floats, not {made}", help="write dtype=float")
    parts = [converted("quaternion", x, made, dtype is not None) for x in flat(args) or [made(0)] * 4]
    if len(parts) != 4:
        raise TypeMismatch(f"a quaternion has 4 parts, {len(parts)} are given")
    return even_quaternion(parts, made)


PUBLIC: dict[str, Any] = {
    "dot": dot, "cross": cross, "outer": outer, "skew": skew, "cw_mul": cw_mul, "cw_div": cw_div,
    "length": length, "length_sq": length_sq, "normalize": normalize, "argmin": argmin, "argmax": argmax,
    "lerp": lerp, "vector": vector, "quaternion": quaternion,
}  # fmt: skip
