"""Determinants of square matrices, and their gradient, which is right for singular matrices too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples, spelled
from tilegrad.ops.arithmetic import chain, mul, sub
from tilegrad.ops.lu import (
    divide_column,
    eliminate,
    emit_elimination,
    exchange,
    general,
    identity_like,
    subtract_row,
    swap_rows,
    tile_lu,
    tile_solve,
)
from tilegrad.ops.matrices import (
    Work,
    each,
    each_down,
    each_matrix,
    flip,
    full_like,
    keep,
    product,
    require_square,
    spread,
    stack_of,
    triangles,
    used,
    wide,
    widened,
    working,
)
from tilegrad.ops.reduce import tile_reduce, tile_sum
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.triangular import substitute
from tilegrad.ops.views import shape_of, tile_reshape


@op(cls="block", cooperative=True)
def tile_det(a: Tile) -> Tile:
    """The determinant of a square matrix.

    Args:
        A: tile (..., n, n) of floats; leading axes count matrices.

    Returns: a tile of the leading axes, (1,) if there are none, of the same dtype.
    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: ct times the matrix of cofactors (Jacobi's formula), which is also right where A is singular. The second
    derivative needs an inverse, and is not finite where there is none.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_det(tg.tile_load(a, shape=(2, 2))))
        >>> a, y = np.array([[2, 1], [4, 6]], np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [8.0]
    """
    lu = wide(a)
    pivots = eliminate(lu)
    n = lu.shape[-1]
    result = np.where((pivots != np.arange(n)).sum(-1) % 2, -1, 1).astype(lu.dtype)
    for k in range(n):
        result = result * lu[..., k, k]
    return np.atleast_1d(result).astype(a.dtype)


@infer(tile_det)
def _tile_det_infer(a: TileType) -> Type:
    require_square("tile_det", "A", a)
    return TileType(a.dtype, a.shape[:-2] or (1,))


@adjoint(tile_det)
def _tile_det_adjoint(ct: Any, out: Any, a: Any) -> Any:
    factor = spread(tile_reshape(ct, shape=(*shape_of(a)[:-2], 1, 1)), a)
    return (chain(factor, tile_cofactors(a)),)


@lower(tile_det)
def _tile_det_lower(e: Emitter, outs: list[Buffer], a: Buffer) -> None:
    source = stack_of(a)
    n, dtype = a.shape[-1], working(a.dtype)
    work, sign = Work(e, dtype, n, n), Work(e, dtype, 1, 1)
    result = Buffer(outs[0].dtype, outs[0].ptr, (source.shape[0],))

    def matrix(index: Reg) -> None:
        work.take(source, index)
        sign.set(0, 0, e.const(1, dtype))
        emit_elimination(e, work, None, lambda k, p: _flip_sign(e, sign, k, p))
        (total,) = e.loop(0, n, 1, [sign.get(0, 0)], lambda k, x: [e.mul(x, work.get(k, k))])
        e.store(result, (Coord(index),), e.cast(total, result.dtype))

    each_matrix(e, source.shape[0], matrix)


def _flip_sign(e: Emitter, sign: Work, k: Reg, p: Reg) -> None:
    """Note an exchange of row k with row p."""
    old = sign.get(0, 0)
    sign.set(0, 0, e.select(e.compare("eq", k, p), old, e.neg(old)))


@samples(tile_det)
def _tile_det_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (1, 1), (2, 4, 4), (7, 7)):
        yield Sample((general(rng, *shape),))
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((general(rng, 4, 4).astype(d.np),))
    yield Sample((np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, np.nan], [0.0, 3.0]]], np.float32),))


@spelled(tile_det)
def _tile_det_call(A: Any) -> Any:
    require_square("tile_det", "A", require_tile("tile_det", "A", A))
    return widened(tile_det, A)


@op(cls="block", cooperative=True)
def tile_cofactors(a: Tile) -> Tile:
    """The matrix of cofactors: element (i, j) is (-1)**(i + j) times the minor without row i and column j.

    With P @ A @ Q = L @ U by complete pivoting, and d the last pivot, its transpose is the product of the other pivots,
    the signs of P and Q, and Q @ inv(U1) @ D @ inv(L) @ P, where U1 has 1 in place of d and D is diag(d, ..., d, 1): no
    division by d is needed, so A may be singular (G. W. Stewart 1998, "On the adjugate matrix").

    Gradient: with B = inv(A).T, sum(ct * B) * out - out @ ct.T @ B; not finite where A is singular.
    """
    result = np.empty_like(wide(a)).reshape(-1, *a.shape[-2:])
    for k, m in enumerate(wide(a).reshape(result.shape)):
        result[k] = _cofactors(m)
    return result.reshape(a.shape).astype(a.dtype)


def _cofactors(u: Any) -> Any:
    n = len(u)
    x, columns, total = np.eye(n, dtype=u.dtype), [], u.dtype.type(1)
    for k in range(n - 1):
        i, j = _largest(u, k)
        for y, p in ((u, i), (x, i), (u.T, j)):
            swap_rows(y, k, np.int64(p))
        total = total if i == k else -total
        total = (total if j == k else -total) * u[k, k]
        columns.append(j)
        factors = u[k + 1 :, k] if u[k, k] == 0 else u[k + 1 :, k] / u[k, k]
        u[k + 1 :, k + 1 :] -= factors[:, None] * u[k, k + 1 :]
        x[k + 1 :] -= factors[:, None] * x[k]
    if total == 0:
        return np.zeros_like(u)
    x[: n - 1] *= u[n - 1, n - 1]
    u[n - 1, n - 1] = 1
    for j in reversed(range(n)):
        x[j] /= u[j, j]
        x[:j] -= u[:j, j, None] * x[j]
    for k in reversed(range(n - 1)):
        swap_rows(x, k, np.int64(columns[k]))
    return (x * total).T


def _largest(u: Any, k: int) -> tuple[int, int]:
    """Where the first element of largest magnitude is, row by row, from (k, k) on; a NaN counts only there."""
    size = np.abs(u[k:, k:])
    if np.isnan(size[0, 0]):
        return k, k
    i, j = np.unravel_index(np.argmax(np.where(np.isnan(size), -1, size)), size.shape)
    return int(i) + k, int(j) + k


@infer(tile_cofactors)
def _tile_cofactors_infer(a: TileType) -> Type:
    require_square("tile_cofactors", "A", a)
    return a


@adjoint(tile_cofactors)
def _tile_cofactors_adjoint(ct: Any, out: Any, a: Any) -> Any:
    inverse = flip(tile_solve(a, identity_like(a)))
    ndim = len(shape_of(a))
    total = tile_sum(mul(ct, inverse), axes=(ndim - 2, ndim - 1), keepdims=True)
    result = sub(mul(spread(total, a), out), product(product(out, flip(ct)), inverse))
    return (keep(used(ct, 2), result),)


@lower(tile_cofactors)
def _tile_cofactors_lower(e: Emitter, outs: list[Buffer], a: Buffer) -> None:
    source, target = stack_of(a), stack_of(outs[0])
    n, dtype = a.shape[-1], working(a.dtype)
    u, x, total = Work(e, dtype, n, n), Work(e, dtype, n, n), Work(e, dtype, 1, 1)
    columns = e.scratch(dt.int64, (n,))

    def matrix(index: Reg) -> None:
        u.take(source, index)
        x.fill(lambda i, at: e.select(e.compare("eq", e.lanes_of(at), i), e.const(1, dtype), e.const(0, dtype)))
        total.set(0, 0, e.const(1, dtype))
        each(e, 0, n - 1, lambda k: _complete_step(e, u, x, total, columns, k))
        _solve_scaled(e, u, x)
        each_down(e, n - 1, 0, lambda k: exchange(e, x, k, e.load(columns, (Coord(k),))))
        factor = total.get(0, 0)
        none = e.compare("eq", factor, e.const(0, dtype))
        each(e, 0, n, lambda i: e.points((n,), lambda at: e.store(
            target, (Coord(index), at[0], Coord(i)),
            e.cast(e.select(none, e.const(0, dtype), e.mul(x.row(i, at[0]), factor)), target.dtype),
        )))  # fmt: skip

    each_matrix(e, source.shape[0], matrix)


def _complete_step(e: Emitter, u: Work, x: Work, total: Work, columns: Buffer, k: Reg) -> None:
    """One step of elimination with complete pivoting; `total` gathers the pivots and signs."""
    i, j = _find_largest(e, u, k)
    exchange(e, u, k, i)
    exchange(e, x, k, i)
    _exchange_columns(e, u, k, j)
    _flip_sign(e, total, k, i)
    _flip_sign(e, total, k, j)
    total.set(0, 0, e.mul(total.get(0, 0), u.get(k, k)))
    e.store(columns, (Coord(k),), j)
    divide_column(e, u, k)
    subtract_row(e, u, u, k)
    subtract_row(e, u, x, k)


def _find_largest(e: Emitter, u: Work, k: Reg) -> tuple[Reg, Reg]:
    def row(i: Reg, *best: Reg) -> Sequence[Reg]:
        def better(j: Reg, size: Reg, top: Reg, left: Reg) -> list[Reg]:
            new = e.abs(u.get(i, j))
            take = e.compare("gt", new, size)
            return [e.select(take, a, b) for a, b in ((new, size), (i, top), (j, left))]

        return e.loop(k, u.columns, 1, best, better)

    _, i, j = e.loop(k, u.rows, 1, [e.abs(u.get(k, k)), k, k], row)
    return i, j


def _exchange_columns(e: Emitter, u: Work, k: Reg, p: Reg) -> None:
    def row(i: Reg) -> None:
        left, other = u.get(i, k), u.get(i, p)
        u.set(i, k, other)
        u.set(i, p, left)

    each(e, 0, u.rows, row)


def _solve_scaled(e: Emitter, u: Work, x: Work) -> None:
    """Scale all rows of x but the last by the last pivot, which becomes 1, and solve with the upper triangle."""
    last = u.rows - 1
    pivot = u.get(last, last)
    each(e, 0, last, lambda i: x.across(None, lambda at: x.put(i, at, e.mul(x.row(i, at), pivot))))
    u.set(last, last, e.const(1, u.dtype))
    substitute(e, x, u, False, False)


@samples(tile_cofactors)
def _tile_cofactors_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (1, 1), (2, 4, 4), (7, 7)):
        yield Sample((general(rng, *shape),))
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((general(rng, 4, 4).astype(d.np),))
    for singular in ([[1, 2], [2, 4]], [[0, 1], [0, 0]], [[1, 2, 3], [2, 4, 6], [3, 6, 9]], np.zeros((3, 3))):
        yield Sample((np.array(singular, np.float32),))


def tile_slogdet(A: Any) -> Any:
    """The sign of the determinant, and the logarithm of its magnitude, which does not overflow.

    Args:
        A: square matrix, tile (..., n, n) of floats; leading axes count matrices.

    Returns: (sign, logabsdet), tiles of the leading axes, (1,) if there are none. For a singular matrix 0 and -inf.
    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: inv(A).T times the cotangent of logabsdet (through the LU factorisation); the sign has none.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     sign, log = tg.tile_slogdet(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(y, sign)
        ...     tg.tile_store(y, log, offset=1)
        >>> a, y = np.array([[0, 1], [1, 0]], np.float32), np.ones(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [-1.0, 0.0]
    """
    require_square("tile_slogdet", "A", require_tile("tile_slogdet", "A", A))
    return widened(_slogdet, A)


def _slogdet(a: Any) -> Any:
    lu, pivots = tile_lu(a)
    axis = len(shape_of(pivots)) - 1
    pivot = tile_sum(triangles(lu, below=0.0, diagonal=1.0, above=0.0), axes=(axis + 1,))
    log = tile_sum(REGISTRY["log"](REGISTRY["abs"](pivot)), axes=(axis,))
    sign = tile_reduce(mul, mul(REGISTRY["sign"](pivot), _exchange_signs(pivot, pivots)), axis)
    return sign, log


def _exchange_signs(like: Any, pivots: Any) -> Any:
    """-1 for every exchange of two rows, else 1."""
    rows = spread(REGISTRY["tile_arange"](dt.int32(0), dt.int32(1), size=shape_of(pivots)[-1]), pivots)
    return REGISTRY["where"](REGISTRY["ne"](pivots, rows), full_like(like, -1.0), full_like(like, 1.0))


PUBLIC = {"tile_det": tile_det, "tile_slogdet": tile_slogdet}
