"""The Cholesky factorisation of symmetric positive definite matrices, and the systems that it solves.

One triangle of a matrix is read, and the gradient is that of the elements that are read. A matrix that is not positive
definite gives NaN from the row on where that shows, and never touches another matrix of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import Sample, Tile, adjoint, infer, lower, op, samples, spelled
from tilegrad.ops.arithmetic import add
from tilegrad.ops.matrices import (
    Work,
    each,
    each_matrix,
    element_of,
    flip,
    keep,
    lower_part,
    on_system,
    product,
    require_fill_mode,
    require_square,
    stack_of,
    used,
    wide,
    widened,
    working,
)
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.triangular import solve_triangular


@op(cls="block", cooperative=True)
def tile_cholesky(a: Tile, *, upper: bool = False) -> Tile:
    """The Cholesky factor of a symmetric positive definite matrix: lower with L @ L.T = A, or upper with U.T @ U = A.

    Args:
        A: square matrix, tile (..., n, n) of floats; leading axes count matrices.
        fill_mode: "lower" or "upper": which triangle of A is read and which factor is returned. The other triangle
            may hold anything.

    Returns: a tile of the same shape and dtype, zero in the other triangle. If A is not positive definite the result is
    NaN from the first row on where that shows; other matrices of the tile are not affected.
    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: for the triangle that is read, 0 in the other: an element off the diagonal stands for both of its places.
    With P = inv(L).T @ phi(L.T @ ct) @ inv(L) it is phi(P + P.T), where phi takes the lower triangle and halves the
    diagonal (Murray 2016, "Differentiation of the Cholesky decomposition", equation 10).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_cholesky(tg.tile_load(a, shape=(2, 2))))
        >>> a, y = np.array([[4, 2], [2, 5]], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    u = wide(a) if upper else wide(np.swapaxes(a, -1, -2))
    n = u.shape[-1]
    for k in range(n):
        pivot = u[..., k, k]
        root = np.where(pivot > 0, np.sqrt(pivot), np.nan)
        u[..., k, k:] /= root[..., None]
        u[..., k, k] = root
        u[..., k + 1 :, k + 1 :] -= u[..., k, k + 1 :, None] * u[..., k, None, k + 1 :]
    u = np.where(np.tri(n, n, -1, dtype=bool), u.dtype.type(0), u)
    return (u if upper else np.swapaxes(u, -1, -2)).astype(a.dtype)


@infer(tile_cholesky)
def _tile_cholesky_infer(a: TileType, *, upper: bool = False) -> Type:
    require_square("tile_cholesky", "A", a)
    return a


@adjoint(tile_cholesky)
def _tile_cholesky_adjoint(ct: Any, out: Any, a: Any, *, upper: bool = False) -> Any:
    factor, g = (flip(out), flip(ct)) if upper else (out, ct)
    inner = lower_part(product(flip(factor), lower_part(g)), 0.5)
    half = solve_triangular(factor, inner, upper=False, transposed=True)
    p = flip(solve_triangular(factor, flip(half), upper=False, transposed=True))
    result = keep(used(lower_part(g), 2), lower_part(add(p, flip(p)), 0.5))
    return (flip(result) if upper else result,)


@lower(tile_cholesky)
def _tile_cholesky_lower(e: Emitter, outs: list[Buffer], a: Buffer, *, upper: bool = False) -> None:
    source, target = stack_of(a), stack_of(outs[0])
    n = a.shape[-1]
    u = Work(e, working(a.dtype), n, n)

    def matrix(index: Reg) -> None:
        u.fill(lambda i, at: _right_of_diagonal(e, i, at, element_of(e, source, index, i, at, not upper)))
        each(e, 0, n, lambda i: _factor_row(e, u, i))
        if upper:
            u.give(target, index)
        else:
            each(e, 0, n, lambda i: e.points((n,), lambda at: e.store(
                target, (Coord(index), at[0], Coord(i)), e.cast(u.row(i, at[0]), target.dtype)
            )))  # fmt: skip

    each_matrix(e, source.shape[0], matrix)


def _right_of_diagonal(e: Emitter, i: Reg, at: Coord, x: Reg) -> Reg:
    return e.select(e.compare("ge", e.lanes_of(at), i), x, e.const(0, x.dtype))


def _factor_row(e: Emitter, u: Work, i: Reg) -> None:
    """Row i of the upper factor: subtract what the rows above contribute, then divide by the root of the pivot."""

    def subtract(at: Coord) -> None:
        def less(k: Reg, acc: Reg) -> list[Reg]:
            return [e.sub(acc, e.mul(u.get(k, i), u.row(k, at)))]

        u.put(i, at, e.loop(0, i, 1, [u.row(i, at)], less)[0])

    u.across(i, subtract)
    pivot = u.get(i, i)
    positive = e.compare("gt", pivot, e.const(0, u.dtype))
    root = e.select(positive, e.sqrt(pivot), e.const(np.nan, u.dtype))

    def divide(at: Coord) -> None:
        u.put(i, at, _right_of_diagonal(e, i, at, e.div(u.row(i, at), root)))

    u.across(i, divide)
    u.set(i, i, root)


def positive_definite(rng: np.random.Generator, *shape: int) -> Any:
    """Random symmetric positive definite matrices of condition below 10."""
    m = rng.standard_normal(shape) / np.sqrt(shape[-1])
    return m @ np.swapaxes(m, -1, -2) + np.eye(shape[-1])


@samples(tile_cholesky)
def _tile_cholesky_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for n in (5, 1, 18, 33):
        yield Sample((positive_definite(rng, n, n),), {"upper": n == 18})
    yield Sample((positive_definite(rng, 3, 4, 4),), {"upper": True})
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((positive_definite(rng, 9, 9).astype(d.np),))
    yield Sample((positive_definite(rng, 2, 1, 3, 7, 7),))
    yield Sample((np.array([[[1.0, 2.0], [2.0, 1.0]], [[4.0, np.inf], [2.0, 3.0]]], np.float32),))


@spelled(tile_cholesky)
def _tile_cholesky_call(A: Any, fill_mode: str = "lower") -> Any:
    require_square("tile_cholesky", "A", require_tile("tile_cholesky", "A", A))
    upper = require_fill_mode("tile_cholesky", fill_mode)
    return widened(lambda a: tile_cholesky(a, upper=upper), A)


def tile_cholesky_inplace(A: Any, fill_mode: str = "lower") -> None:
    """`tile_cholesky` that leaves the factor in `A`. The gradient is the same.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(a, shape=(2, 2))
        ...     tg.tile_cholesky_inplace(t, fill_mode="upper")
        ...     tg.tile_store(y, t)
        >>> a, y = np.array([[4, 2], [2, 5]], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [[2.0, 1.0], [0.0, 2.0]]
    """
    factor = _tile_cholesky_call(A, fill_mode)
    A.assign(factor)


def tile_cholesky_solve(L: Any, y: Any, fill_mode: str = "lower") -> Any:
    """The solution x of A @ x = y, where L is the Cholesky factor of A.

    Args:
        L: what `tile_cholesky` returned, tile (..., n, n); only the triangle of `fill_mode` is read.
        y: right-hand side: a vector (n,), or matrices (..., n, k). Leading axes are broadcast.
        fill_mode: "lower" or "upper", as it was given to `tile_cholesky`.

    Returns: a tile of the shape of y (with the leading axes of L in front) and its dtype.
    Raises: ShapeMismatch if the shapes do not fit, TypeMismatch if the dtypes differ or are no floats.
    Gradient: that of the two triangular solves, see `tile_lower_solve`; for L in the triangle that is read.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     L = tg.tile_cholesky(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(y, tg.tile_cholesky_solve(L, tg.tile_load(y, shape=2)))
        >>> a, y = np.array([[4, 2], [2, 5]], np.float32), np.array([8, 12], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [1.0, 2.0]
    """
    return _cholesky_solve("tile_cholesky_solve", L, y, fill_mode)


def _cholesky_solve(what: str, L: Any, y: Any, fill_mode: str) -> Any:
    upper = require_fill_mode(what, fill_mode)

    def solve(factor: Any, b: Any) -> Any:
        z = solve_triangular(factor, b, upper=upper, transposed=upper)
        return solve_triangular(factor, z, upper=upper, transposed=not upper)

    return on_system(what, ("L", "y"), solve, L, y)


def tile_cholesky_solve_inplace(L: Any, y: Any, fill_mode: str = "lower") -> None:
    """`tile_cholesky_solve` that leaves the solution in `y`. The gradient is the same.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     L = tg.tile_cholesky(tg.tile_load(a, shape=(2, 2)))
        ...     t = tg.tile_load(y, shape=2)
        ...     tg.tile_cholesky_solve_inplace(L, t)
        ...     tg.tile_store(y, t)
        >>> a, y = np.array([[4, 2], [2, 5]], np.float32), np.array([8, 12], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [1.0, 2.0]
    """
    solved = _cholesky_solve("tile_cholesky_solve_inplace", L, y, fill_mode)
    y.assign(solved)


PUBLIC = {
    "tile_cholesky": tile_cholesky,
    "tile_cholesky_inplace": tile_cholesky_inplace,
    "tile_cholesky_solve": tile_cholesky_solve,
    "tile_cholesky_solve_inplace": tile_cholesky_solve_inplace,
}
