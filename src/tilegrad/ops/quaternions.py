"""Quaternions x, y, z, w: rotations by axis and angle, as matrices and as Euler angles; inverse, interpolation.

A unit quaternion stands for a rotation; the functions do not normalise what they are given. Everything is composed of
ops on the parts, scalars or tiles. 16-bit floats are computed in float32 and rounded once.
Products, `dot`, `length` and `normalize` are in `algebra` and `vectors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.composite import Composite, is_matrix, is_quaternion, is_vector
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ops.algebra import (
    add,
    alike,
    call,
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
    quaternion_product,
    require_floats,
    require_grid,
    rotated_parts,
    rounded_once,
    sub,
    total,
    where,
)
from tilegrad.ops.vectors import dtype_for, root, unit


@everywhere
def quat_identity(dtype: Any = float) -> Any:
    """The quaternion 0, 0, 0, 1, the rotation that moves nothing.

    Args:
        dtype: a float type.
    Raises: TypeMismatch if dtype is no float type.
    Gradient: none, there are no operands.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_identity()
        quatf(0.0, 0.0, 0.0, 1.0)
    """
    made = dtype_for("quat_identity", (), dtype)
    if not made.is_float:
        raise TypeMismatch(f"quat_identity: dtype must be a float type, it is {made}")
    return even_quaternion([made(0), made(0), made(0), made(1)], made)


@everywhere
def quat_inverse(q: Any) -> Any:
    """The conjugate -x, -y, -z, w: the inverse rotation, if `q` is of length 1.

    Raises: TypeMismatch if `q` is no quaternion.
    Gradient: the conjugate of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_inverse(tg.quat(1, 2, 3, 4))
        quatf(-1.0, -2.0, -3.0, 4.0)
    """
    return conjugate(require_grid("quat_inverse", q, is_quaternion))


def conjugate(q: Composite) -> Composite:
    """The quaternion with its imaginary parts negated."""
    return q.rebuilt([*map(neg, q[:3]), q[3]])


# --- rotation of vectors ----------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def quat_rotate(q: Any, v: Any) -> Any:
    """The vector (of three parts) rotated by a quaternion of length 1: (2 w**2 - 1) v + 2 w u x v + 2 (u . v) u.

    Raises: TypeMismatch if the arguments are no quaternion and vector of one dtype.
    Gradient: quat_rotate_inv(q, ct) for v; for q, the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_rotate(tg.quat(0, 0, 1, 0), tg.vec3(1, 2, 3))
        vec3f(-1.0, -2.0, 3.0)
    """
    turn, x = _rotation("quat_rotate", q, v)
    return even_vector(rotated_parts(turn, x), x.grid.dtype)


@everywhere
@rounded_once
def quat_rotate_inv(q: Any, v: Any) -> Any:
    """The vector rotated by the inverse of a quaternion of length 1.

    Raises: TypeMismatch if the arguments are no quaternion and vector of one dtype.
    Gradient: quat_rotate(q, ct) for v; for q, the derivative of the formula of quat_rotate at the conjugate.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_rotate_inv(tg.quat(0, 0, 1, 0), tg.vec3(1, 2, 3))
        vec3f(-1.0, -2.0, 3.0)
    """
    turn, x = _rotation("quat_rotate_inv", q, v)
    return even_vector(rotated_parts(conjugate(turn), x), x.grid.dtype)


def _rotation(what: str, q: Any, v: Any) -> tuple[Composite, Composite]:
    turn, x = require_grid(what, q, is_quaternion), require_three(what, v)
    if turn.grid.dtype is not x.grid.dtype:
        raise TypeMismatch(f"{what}: {turn.kind} meets {x.kind}", help=f"convert the vector to {turn.grid.dtype}")
    return turn, x


def require_three(what: str, v: Any) -> Composite:
    """A vector of three parts. Raises TypeMismatch."""
    x = require_grid(what, v, is_vector)
    if len(x) != 3:
        raise TypeMismatch(f"{what} takes a vector of 3 parts, not {x.kind}")
    return x


# --- axis and angle ---------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def quat_from_axis_angle(axis: Any, angle: Any) -> Any:
    """The rotation by `angle` radians about `axis`, a vector of length 1: axis * sin(angle / 2), cos(angle / 2).

    Raises: TypeMismatch if `axis` is no vector of three floats or `angle` no number of its dtype.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_from_axis_angle(tg.vec3(0, 0, 1), 0.0)
        quatf(0.0, 0.0, 0.0, 1.0)
    """
    x = require_three("quat_from_axis_angle", axis)
    dtype = require_floats("quat_from_axis_angle", x)
    half = mul(number("quat_from_axis_angle", "angle", angle, dtype), 0.5)
    sine = call("sin", half)
    return even_quaternion([*(mul(p, sine) for p in x), call("cos", half)], dtype)


@everywhere
@rounded_once
def quat_to_axis_angle(q: Any) -> Any:
    """The axis (of length 1) and the angle, 0 to pi, of a rotation; the axis is zero if the angle is.

    Returns: two values, a vector of three parts and a number.
    Raises: TypeMismatch if `q` is no quaternion.
    Gradient: the derivative of normalize(u) and 2 atan2(length(u), w), u the imaginary parts; 0 where u is zero.

    Example:
        >>> import tilegrad as tg
        >>> axis, angle = tg.quat_to_axis_angle(tg.quat(0, 0, 1, 0))
        >>> axis, round(float(angle), 5)
        (vec3f(0.0, 0.0, 1.0), 3.14159)
    """
    x = require_grid("quat_to_axis_angle", q, is_quaternion)
    dtype = x.grid.dtype
    u, w = _near_half(x)
    axis = unit(even_vector(u, dtype))
    return axis, mul(call("atan2", root(inner(u, u)), w), 2)


def _near_half(q: Composite) -> tuple[list[Any], Any]:
    """Imaginary and real parts of that one of q and -q whose real part is not negative."""
    negative = call("lt", q[3], 0)
    u = [where(negative, neg(p), p) for p in q[:3]]
    return u, where(negative, neg(q[3]), q[3])


@everywhere
@rounded_once
def quat_slerp(a: Any, b: Any, t: Any) -> Any:
    """The rotation on the shortest way from `a` (t = 0) to `b` (t = 1), at a constant rate: a (a' b)**t.

    Args:
        a, b: quaternions of one dtype and of length 1.
        t: a number of their dtype.
    Raises: TypeMismatch if the types differ.
    Gradient: the derivative of the formula; exact for a = b too.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_slerp(tg.quat_identity(), tg.quat(0, 0, 1, 0), 1.0)
        quatf(0.0, 0.0, 1.0, ...)
    """
    x, y = alike("quat_slerp", a, b, is_quaternion)
    dtype = x.grid.dtype
    at = number("quat_slerp", "t", t, dtype)
    u, w = _near_half(quaternion_product(conjugate(x), y))
    size = root(inner(u, u))
    angle = mul(call("atan2", size, w), at)
    still = call("eq", size, 0)
    factor = where(still, at, div(call("sin", angle), where(still, 1, size)))
    return quaternion_product(x, even_quaternion([*(mul(p, factor) for p in u), call("cos", angle)], dtype))


# --- Euler angles -----------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def quat_rpy(roll: Any, pitch: Any, yaw: Any) -> Any:
    """The rotation by `roll` about x, then by `pitch` about y, then by `yaw` about z, angles in radians.

    Raises: TypeMismatch if the angles are no floats of one dtype.
    Gradient: the derivative of the products of sines and cosines.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_rpy(0.0, 0.0, 0.0)
        quatf(0.0, 0.0, 0.0, 1.0)
    """
    dtype = dtype_for("quat_rpy", (roll, pitch, yaw), None)
    if not dtype.is_float:
        raise TypeMismatch(f"quat_rpy: the angles must be floats, not {dtype}")
    named = {"roll": roll, "pitch": pitch, "yaw": yaw}
    halves = [mul(number("quat_rpy", n, x, dtype), 0.5) for n, x in named.items()]
    (sr, cr), (sp, cp), (sy, cy) = [(call("sin", h), call("cos", h)) for h in halves]
    parts = [
        sub(_product(cy, sr, cp), _product(sy, cr, sp)),
        add(_product(cy, cr, sp), _product(sy, sr, cp)),
        sub(_product(sy, cr, cp), _product(cy, sr, sp)),
        add(_product(cy, cr, cp), _product(sy, sr, sp)),
    ]
    return even_quaternion(parts, dtype)


def _product(a: Any, b: Any, c: Any) -> Any:
    return mul(mul(a, b), c)


# --- matrices ---------------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def quat_to_matrix(q: Any) -> Any:
    """The 3 x 3 matrix R with R * v = quat_rotate(q, v).

    Raises: TypeMismatch if `q` is no quaternion.
    Gradient: the derivative of the formula of quat_rotate.

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_to_matrix(tg.quat(0, 0, 1, 0))
        mat33f(-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0)
    """
    found = require_grid("quat_to_matrix", q, is_quaternion)
    return even_matrix(matrix_rows(found), found.grid.dtype)


def matrix_rows(q: Composite) -> list[list[Any]]:
    """The rows of the matrix of a rotation."""
    x, y, z, w = q
    a, b, c = mul(x, 2), mul(y, 2), mul(z, 2)
    s = sub(mul(mul(w, w), 2), 1)
    xy, xz, yz = mul(a, y), mul(a, z), mul(b, z)
    wx, wy, wz = mul(a, w), mul(b, w), mul(c, w)
    return [
        [add(s, mul(a, x)), sub(xy, wz), add(xz, wy)],
        [add(xy, wz), add(s, mul(b, y)), sub(yz, wx)],
        [sub(xz, wy), add(yz, wx), add(s, mul(c, z))],
    ]


@everywhere
@rounded_once
def quat_from_matrix(m: Any) -> Any:
    """The rotation of a rotation matrix, or of the upper left 3 x 3 part of a 4 x 4 matrix, as a unit quaternion.

    Raises: TypeMismatch if `m` is no such matrix.
    Gradient: the derivative of the formula that is used, normalised (Shepperd 1978: the one with the largest divisor).

    Example:
        >>> import tilegrad as tg
        >>> tg.quat_from_matrix(tg.mat33(-1, 0, 0, 0, -1, 0, 0, 0, 1))
        quatf(0.0, 0.0, 1.0, 0.0)
    """
    x = require_grid("quat_from_matrix", m, is_matrix)
    if x.grid.shape not in ((3, 3), (4, 4)):
        raise TypeMismatch(f"quat_from_matrix takes a 3 x 3 or a 4 x 4 matrix, not {x.kind}")
    return rotation_of([list(r[:3]) for r in x.rows[:3]], require_floats("quat_from_matrix", x))


def rotation_of(rows: Sequence[Sequence[Any]], dtype: DType) -> Composite:
    """The unit quaternion of the rows of a rotation matrix."""
    (a, d, e), (f, b, g), (h, i, c) = rows
    x, y, z = sub(i, g), sub(e, h), sub(f, d)  # 4 w times the imaginary parts
    xy, xz, yz = add(d, f), add(e, h), add(g, i)
    trace = total([a, b, c])
    by_w = [x, y, z, add(trace, 1)]
    by_x = [add(sub(sub(a, b), c), 1), xy, xz, x]
    by_y = [xy, add(sub(sub(b, a), c), 1), yz, y]
    by_z = [xz, yz, add(sub(sub(c, a), b), 1), z]
    largest_x = call("bit_and", call("ge", a, b), call("ge", a, c))
    chosen = _either(largest_x, by_x, _either(call("ge", b, c), by_y, by_z))
    parts = _either(call("ge", trace, 0), by_w, chosen)
    return unit(even_quaternion(parts, dtype))


def _either(condition: Any, xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    return [where(condition, x, y) for x, y in zip(even(xs), even(ys), strict=True)]


PUBLIC: dict[str, Any] = {
    "quat_identity": quat_identity, "quat_inverse": quat_inverse, "quat_rotate": quat_rotate,
    "quat_rotate_inv": quat_rotate_inv, "quat_from_axis_angle": quat_from_axis_angle,
    "quat_to_axis_angle": quat_to_axis_angle, "quat_slerp": quat_slerp, "quat_rpy": quat_rpy,
    "quat_to_matrix": quat_to_matrix, "quat_from_matrix": quat_from_matrix,
}  # fmt: skip
