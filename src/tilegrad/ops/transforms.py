"""Rigid motions: a translation p and a rotation q (a quaternion of length 1); and the spatial vectors of dynamics.

The motion moves a point x to q x + p. Everything is composed of ops on the parts, scalars or tiles. 16-bit floats are
computed in float32 and rounded once. `a * b` (b first) is in `algebra`; `t.p` and `t.q` are the parts of a motion.
"""

from __future__ import annotations

from typing import Any

from tilegrad.composite import Composite, is_matrix, is_quaternion, is_transform, is_vector, make_transform
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
    even_vector,
    everywhere,
    inner,
    mul,
    neg,
    require_floats,
    require_grid,
    rotated_parts,
    rounded_once,
    split,
    transform_product,
    where,
)
from tilegrad.ops.quaternions import conjugate, matrix_rows, require_three, rotation_of
from tilegrad.ops.small_matrices import determinant_of, require_square
from tilegrad.ops.vectors import dtype_for, root

# --- motions ----------------------------------------------------------------------------------------------------------


def _made(p: Any, q: Any, dtype: DType) -> Composite:
    parts = even([*p, *q])
    return make_transform(parts[:3], parts[3:], dtype)


@everywhere
def transform_identity(dtype: Any = float) -> Any:
    """The motion that moves nothing.

    Args:
        dtype: a float type.
    Raises: TypeMismatch if dtype is no float type.
    Gradient: none, there are no operands.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_identity()
        transformf(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    """
    made = dtype_for("transform_identity", (), dtype)
    if not made.is_float:
        raise TypeMismatch(f"transform_identity: dtype must be a float type, it is {made}")
    return _made([made(0)] * 3, [made(0), made(0), made(0), made(1)], made)


@everywhere
def transform_get_translation(xform: Any) -> Any:
    """The translation of a motion, a vector of three parts; also written `t.p`.

    Raises: TypeMismatch if `xform` is no transform.
    Gradient: ct for the translation.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_get_translation(tg.transform(tg.vec3(1, 2, 3), tg.quat_identity()))
        vec3f(1.0, 2.0, 3.0)
    """
    return split(require_grid("transform_get_translation", xform, is_transform))[0]


@everywhere
def transform_get_rotation(xform: Any) -> Any:
    """The rotation of a motion, a quaternion; also written `t.q`.

    Raises: TypeMismatch if `xform` is no transform.
    Gradient: ct for the rotation.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_get_rotation(tg.transform_identity())
        quatf(0.0, 0.0, 0.0, 1.0)
    """
    return split(require_grid("transform_get_rotation", xform, is_transform))[1]


@everywhere
@rounded_once
def transform_multiply(a: Any, b: Any) -> Any:
    """The motion `b` followed by `a`; also written `a * b`.

    Raises: TypeMismatch if the arguments are no transforms of one dtype.
    Gradient: the derivative of q_a p_b + p_a and of the quaternion product q_a q_b.

    Example:
        >>> import tilegrad as tg
        >>> move = tg.transform(tg.vec3(1, 2, 3), tg.quat_identity())
        >>> tg.transform_multiply(move, move)
        transformf(2.0, 4.0, 6.0, 0.0, 0.0, 0.0, 1.0)
    """
    product = transform_product(*alike("transform_multiply", a, b, is_transform))
    return product.rebuilt(even(product))


@everywhere
@rounded_once
def transform_inverse(xform: Any) -> Any:
    """The inverse motion: translation -(q' p), rotation q', the conjugate of q.

    Raises: TypeMismatch if `xform` is no transform.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_inverse(tg.transform(tg.vec3(1, 2, 3), tg.quat(0, 0, 1, 0)))
        transformf(1.0, 2.0, -3.0, -0.0, -0.0, -1.0, 0.0)
    """
    p, q = split(require_grid("transform_inverse", xform, is_transform))
    back = conjugate(q)
    return _made(map(neg, rotated_parts(back, p)), back, q.grid.dtype)


@everywhere
@rounded_once
def transform_point(xform: Any, point: Any) -> Any:
    """The point moved by a transform, q x + p, or by a 4 x 4 matrix, the first three parts of M (x, 1).

    Raises: TypeMismatch if `xform` is neither, or `point` is no vector of three parts of its dtype.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_point(tg.transform(tg.vec3(1, 2, 3), tg.quat(0, 0, 1, 0)), tg.vec3(1, 1, 1))
        vec3f(0.0, 1.0, 4.0)
    """
    motion, x = _moved("transform_point", xform, point)
    if is_matrix(motion):
        parts = [add(inner(row[:3], x), row[3]) for row in motion.rows[:3]]
    else:
        p, q = split(motion)
        parts = [add(a, b) for a, b in zip(rotated_parts(q, x), p, strict=True)]
    return even_vector(parts, x.grid.dtype)


@everywhere
@rounded_once
def transform_vector(xform: Any, vec: Any) -> Any:
    """The direction turned by a transform, q x, or by the 3 x 3 part of a 4 x 4 matrix; it is not translated.

    Raises: TypeMismatch if `xform` is neither, or `vec` is no vector of three parts of its dtype.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_vector(tg.transform(tg.vec3(1, 2, 3), tg.quat(0, 0, 1, 0)), tg.vec3(1, 1, 1))
        vec3f(-1.0, -1.0, 1.0)
    """
    motion, x = _moved("transform_vector", xform, vec)
    rows = motion.rows[:3] if is_matrix(motion) else []
    parts = [inner(row[:3], x) for row in rows] or rotated_parts(split(motion)[1], x)
    return even_vector(parts, x.grid.dtype)


def _moved(what: str, xform: Any, v: Any) -> tuple[Composite, Composite]:
    motion, x = require_grid(what, xform, is_transform, is_matrix), require_three(what, v)
    if is_matrix(motion) and motion.grid.shape != (4, 4):
        raise TypeMismatch(f"{what} takes a transform or a 4 x 4 matrix, not {motion.kind}")
    if motion.grid.dtype is not x.grid.dtype:
        raise TypeMismatch(f"{what}: {motion.kind} meets {x.kind}", help=f"convert one to {motion.grid.dtype}")
    return motion, x


# --- motions as matrices ----------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def transform_to_matrix(xform: Any) -> Any:
    """The 4 x 4 matrix M with M (x, 1) = (q x + p, 1).

    Raises: TypeMismatch if `xform` is no transform.
    Gradient: the derivative of quat_to_matrix, and ct for the translation.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_to_matrix(tg.transform_identity())[0]
        vec4f(1.0, 0.0, 0.0, 0.0)
    """
    p, q = split(require_grid("transform_to_matrix", xform, is_transform))
    return _affine([[*row, x] for row, x in zip(matrix_rows(q), p, strict=True)], q.grid.dtype)


def _affine(rows: list[list[Any]], dtype: DType) -> Composite:
    return even_matrix([*rows, [dtype(0), dtype(0), dtype(0), dtype(1)]], dtype)


@everywhere
@rounded_once
def transform_from_matrix(mat: Any) -> Any:
    """The motion of a 4 x 4 matrix whose 3 x 3 part is a rotation; its last row is not read.

    Raises: TypeMismatch if `mat` is no 4 x 4 matrix of floats.
    Gradient: as quat_from_matrix, and ct for the translation.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_from_matrix(tg.identity(n=4))
        transformf(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    """
    rows, dtype = _four("transform_from_matrix", mat)
    return _made([r[3] for r in rows], rotation_of([r[:3] for r in rows], dtype), dtype)


def _four(what: str, mat: Any) -> tuple[list[list[Any]], DType]:
    x = require_square(what, mat)
    if len(x.rows) != 4:
        raise TypeMismatch(f"{what} takes a 4 x 4 matrix, not {x.kind}")
    return [list(r) for r in x.rows[:3]], require_floats(what, x)


@everywhere
@rounded_once
def transform_compose(position: Any, rotation: Any, scale: Any) -> Any:
    """The 4 x 4 matrix that scales along the axes, then rotates, then translates.

    Args:
        position, scale: vectors of three parts.
        rotation: a quaternion of their dtype.
    Raises: TypeMismatch if they are not.
    Gradient: the derivative of the products.

    Example:
        >>> import tilegrad as tg
        >>> tg.transform_compose(tg.vec3(1, 2, 3), tg.quat_identity(), tg.vec3(4, 5, 6))[0]
        vec4f(4.0, 0.0, 0.0, 1.0)
    """
    p, s = alike("transform_compose", require_three("transform_compose", position), scale, is_vector)
    q = require_grid("transform_compose", rotation, is_quaternion)
    if q.grid.dtype is not p.grid.dtype:
        raise TypeMismatch(f"transform_compose: {p.kind} meets {q.kind}", help=f"convert one to {p.grid.dtype}")
    rows = [[mul(x, f) for x, f in zip(row, s, strict=True)] for row in matrix_rows(q)]
    return _affine([[*row, x] for row, x in zip(rows, p, strict=True)], p.grid.dtype)


@everywhere
@rounded_once
def transform_decompose(m: Any) -> Any:
    """Position, rotation and scale of a 4 x 4 matrix, the inverse of `transform_compose`.

    The scale is the length of the columns; that of the first one is negative if the determinant is.

    Returns: three values: a vector of three parts, a quaternion, a vector of three parts.
    Raises: TypeMismatch if `m` is no 4 x 4 matrix of floats.
    Gradient: the derivative of the lengths and as quat_from_matrix; needs scales that are not 0.

    Example:
        >>> import tilegrad as tg
        >>> m = tg.transform_compose(tg.vec3(1, 2, 3), tg.quat_identity(), tg.vec3(4, 5, 6))
        >>> tg.transform_decompose(m)[2]
        vec3f(4.0, 5.0, 6.0)
    """
    rows, dtype = _four("transform_decompose", m)
    turn = [r[:3] for r in rows]
    columns = list(zip(*turn, strict=True))
    scale = [root(inner(c, c)) for c in columns]
    mirrored = call("lt", determinant_of(turn, dtype), 0)
    scale[0] = where(mirrored, neg(scale[0]), scale[0])
    rotation = rotation_of([[div(x, s) for x, s in zip(row, scale, strict=True)] for row in turn], dtype)
    return even_vector([r[3] for r in rows], dtype), rotation, even_vector(scale, dtype)


# --- spatial vectors --------------------------------------------------------------------------------------------------


@everywhere
def spatial_top(svec: Any) -> Any:
    """The first three parts of a spatial vector.

    Raises: TypeMismatch if `svec` is no vector of six parts.
    Gradient: ct for these parts.

    Example:
        >>> import tilegrad as tg
        >>> tg.spatial_top(tg.spatial_vector(1, 2, 3, 4, 5, 6))
        vec3f(1.0, 2.0, 3.0)
    """
    return _halves("spatial_top", svec)[0]


@everywhere
def spatial_bottom(svec: Any) -> Any:
    """The last three parts of a spatial vector.

    Raises: TypeMismatch if `svec` is no vector of six parts.
    Gradient: ct for these parts.

    Example:
        >>> import tilegrad as tg
        >>> tg.spatial_bottom(tg.spatial_vector(1, 2, 3, 4, 5, 6))
        vec3f(4.0, 5.0, 6.0)
    """
    return _halves("spatial_bottom", svec)[1]


def _halves(what: str, v: Any) -> tuple[Composite, Composite]:
    x = require_grid(what, v, is_vector)
    if len(x) != 6:
        raise TypeMismatch(f"{what} takes a spatial vector, of 6 parts, not {x.kind}")
    return even_vector(x[:3], x.grid.dtype), even_vector(x[3:], x.grid.dtype)


@everywhere
@rounded_once
def spatial_dot(a: Any, b: Any) -> Any:
    """The sum of the products of corresponding parts of two spatial vectors.

    Raises: TypeMismatch if they are no vectors of six parts and one dtype.
    Gradient: ct b and ct a.

    Example:
        >>> import tilegrad as tg
        >>> v = tg.spatial_vector(1, 2, 3, 4, 5, 6)
        >>> float(tg.spatial_dot(v, v))
        91.0
    """
    x, y = alike("spatial_dot", a, b, is_vector)
    _halves("spatial_dot", x)
    return inner(x, y)


@everywhere
@rounded_once
def spatial_cross(a: Any, b: Any) -> Any:
    """The cross product of motions (w, v): (w_a x w_b, v_a x w_b + w_a x v_b).

    Raises: TypeMismatch if they are no vectors of six parts and one dtype.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.spatial_cross(tg.spatial_vector(1, 0, 0, 0, 0, 0), tg.spatial_vector(0, 1, 0, 0, 0, 0))
        vector(6, float32)(0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    """
    (wa, va), (wb, vb) = _pairs("spatial_cross", a, b)
    bottom = [add(p, q) for p, q in zip(cross_parts(va, wb), cross_parts(wa, vb), strict=True)]
    return even_vector([*cross_parts(wa, wb), *bottom], wa.grid.dtype)


@everywhere
@rounded_once
def spatial_cross_dual(a: Any, b: Any) -> Any:
    """The cross product of a motion and a force: (w_a x w_b + v_a x v_b, w_a x v_b).

    Raises: TypeMismatch if they are no vectors of six parts and one dtype.
    Gradient: the derivative of the formula.

    Example:
        >>> import tilegrad as tg
        >>> tg.spatial_cross_dual(tg.spatial_vector(1, 0, 0, 0, 0, 0), tg.spatial_vector(0, 1, 0, 0, 0, 0))
        vector(6, float32)(0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    """
    (wa, va), (wb, vb) = _pairs("spatial_cross_dual", a, b)
    top = [add(p, q) for p, q in zip(cross_parts(wa, wb), cross_parts(va, vb), strict=True)]
    return even_vector([*top, *cross_parts(wa, vb)], wa.grid.dtype)


def _pairs(what: str, a: Any, b: Any) -> tuple[tuple[Composite, Composite], tuple[Composite, Composite]]:
    x, y = alike(what, a, b, is_vector)
    return _halves(what, x), _halves(what, y)


PUBLIC: dict[str, Any] = {
    "transform_identity": transform_identity, "transform_get_translation": transform_get_translation,
    "transform_get_rotation": transform_get_rotation, "transform_multiply": transform_multiply,
    "transform_inverse": transform_inverse, "transform_point": transform_point, "transform_vector": transform_vector,
    "transform_to_matrix": transform_to_matrix, "transform_from_matrix": transform_from_matrix,
    "transform_compose": transform_compose, "transform_decompose": transform_decompose,
    "spatial_top": spatial_top, "spatial_bottom": spatial_bottom, "spatial_dot": spatial_dot,
    "spatial_cross": spatial_cross, "spatial_cross_dual": spatial_cross_dual,
}  # fmt: skip
