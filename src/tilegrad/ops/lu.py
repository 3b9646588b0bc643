"""LU factorisation with partial pivoting, general linear systems, and inverses.

A singular matrix gives infinities or NaN, as the division by its zero pivot does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, infer, lower, op, samples, spelled
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.matrices import (
    Work,
    each,
    each_down,
    each_matrix,
    flip,
    following,
    full_like,
    keep,
    on_system,
    product,
    require_matrix,
    require_square,
    require_system,
    stack_of,
    triangles,
    upper_part,
    used,
    wide,
    widened,
    working,
)
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.triangular import substitute

# --- elimination ----------------------------------------------------------------------------------------------------


def eliminate(a: Any, b: Any = None) -> Any:
    """Turn `a` into its packed factors and treat `b` in the same way, in place; the pivots. All on stacks of arrays."""
    n = a.shape[-1]
    pivots = np.zeros(a.shape[:-1], np.int32)
    for k in range(n):
        p = _pivot(a[..., k:, k]) + k
        pivots[..., k] = p
        for x in (a,) if b is None else (a, b):
            swap_rows(x, k, p)
        pivot, column = a[..., k, k, None], a[..., k + 1 :, k]
        factors = np.where(pivot == 0, column, column / pivot)
        a[..., k + 1 :, k] = factors
        a[..., k + 1 :, k + 1 :] -= factors[..., None] * a[..., k, None, k + 1 :]
        if b is not None:
            b[..., k + 1 :, :] -= factors[..., None] * b[..., k, None, :]
    return pivots


def _pivot(column: Any) -> Any:
    """Where the first element of largest magnitude is; a NaN counts only if it is at the top."""
    size = np.abs(column)
    best = np.argmax(np.where(np.isnan(size), -1, size), axis=-1)
    return np.where(np.isnan(size[..., 0]), 0, best)


def swap_rows(x: Any, k: int, p: Any) -> None:
    """Exchange row k with row p (one for each matrix of a stack), in place."""
    at = np.expand_dims(p, (-1, -2))
    other = np.take_along_axis(x, at, -2)
    np.put_along_axis(x, at, x[..., k, None, :].copy(), -2)
    x[..., k, :] = other[..., 0, :]


def emit_elimination(e: Emitter, a: Work, b: Work | None, note: Callable[[Reg, Reg], None]) -> None:
    """The same on working memory; note(k, p) is told the pivots."""
    works = [a] if b is None else [a, b]

    def step(k: Reg) -> None:
        p = _find_pivot(e, a, k)
        note(k, p)
        for x in works:
            exchange(e, x, k, p)
        divide_column(e, a, k)
        for x in works:
            subtract_row(e, a, x, k)

    each(e, 0, a.rows, step)


def _find_pivot(e: Emitter, a: Work, k: Reg) -> Reg:
    def better(i: Reg, best: Reg, at: Reg) -> list[Reg]:
        size = e.abs(a.get(i, k))
        take = e.compare("gt", size, best)
        return [e.select(take, size, best), e.select(take, i, at)]

    return e.loop(following(e, k), a.rows, 1, [e.abs(a.get(k, k)), k], better)[1]


def exchange(e: Emitter, x: Work, k: Reg, p: Reg) -> None:
    """Exchange two rows."""

    def part(at: Coord) -> None:
        upper, other = x.row(k, at), x.row(p, at)
        x.put(k, at, other)
        x.put(p, at, upper)

    x.across(None, part)


def divide_column(e: Emitter, a: Work, k: Reg) -> None:
    pivot = a.get(k, k)
    singular = e.compare("eq", pivot, e.const(0, a.dtype))

    def divide(i: Reg) -> None:
        x = a.get(i, k)
        a.set(i, k, e.select(singular, x, e.div(x, pivot)))

    each(e, following(e, k), a.rows, divide)


def subtract_row(e: Emitter, a: Work, x: Work, k: Reg) -> None:
    """Take row k out of the rows below it; in `a` itself only to the right of column k."""

    def part(at: Coord) -> None:
        row = x.row(k, at)
        right = e.compare("gt", e.lanes_of(at), k) if x is a else None

        def below(i: Reg) -> None:
            old = x.row(i, at)
            new = e.sub(old, e.mul(a.get(i, k), row))
            x.put(i, at, new if right is None else e.select(right, new, old))

        each(e, following(e, k), a.rows, below)

    x.across(k if x is a else None, part)


# --- factorisation --------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def tile_lu(a: Tile) -> tuple[Tile, Tile]:
    """The factorisation P @ A = L @ U with partial pivoting.

    Args:
        A: square matrix, tile (..., n, n) of floats; leading axes count matrices.

    Returns: (LU, pivots). LU has the shape and dtype of A and holds U on and above the diagonal, and below it L, whose
    diagonal is 1. pivots, int32 (..., n), says that row k was exchanged with row pivots[k], for k = 0, 1, ... in turn.
    A column without a pivot leaves 0 on the diagonal of U.
    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: with the pivots held constant, P.T @ inv(L).T @ (tril(L.T @ ctL, -1) + triu(ctU @ U.T)) @ inv(U).T, where
    ctL and ctU are the parts of the cotangent of LU below, and on and above the diagonal (de Hoog, Anderssen and Lukas
    2011, "Differentiation of matrix functionals using triangular factorization").

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array2d[float], p: tg.array1d[int]):
        ...     lu, pivots = tg.tile_lu(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(y, lu)
        ...     tg.tile_store(p, pivots)
        >>> a, y, p = np.array([[1, 5], [2, 4]], np.float32), np.zeros((2, 2), np.float32), np.zeros(2, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y, p])
        >>> y.tolist(), p.tolist()
        ([[2.0, 4.0], [0.5, 3.0]], [1, 1])
    """
    lu = wide(a)
    pivots = eliminate(lu)
    return lu.astype(a.dtype), pivots


@infer(tile_lu)
def _tile_lu_infer(a: TileType) -> tuple[Type, ...]:
    require_square("tile_lu", "A", a)
    return a, TileType(dt.int32, a.shape[:-1])


@adjoint(tile_lu)
def _tile_lu_adjoint(ct: Any, out: Any, a: Any) -> Any:
    lu, pivots = out
    solve = REGISTRY["tile_triangular_solve"]
    unit = _unit_lower(lu)
    below = triangles(product(flip(unit), triangles(ct[0], below=1, diagonal=0, above=0)), below=1, diagonal=0, above=0)
    inner = add(below, upper_part(product(upper_part(ct[0]), flip(upper_part(lu)))))
    left = solve(lu, inner, lower=True, transposed=True, unit=True)
    both = flip(solve(lu, flip(left), lower=False, transposed=False, unit=False))
    return (tile_permute_rows(keep(used(ct[0], 2), both), pivots, inverse=True),)


def _unit_lower(lu: Any) -> Any:
    return add(triangles(lu, below=1, diagonal=0, above=0), identity_like(lu))


def identity_like(t: Any) -> Any:
    """The identity for every matrix of a tile."""
    return triangles(full_like(t, 1.0), below=0, diagonal=1, above=0)


@lower(tile_lu)
def _tile_lu_lower(e: Emitter, outs: list[Buffer], a: Buffer) -> None:
    source, target, pivots = stack_of(a), stack_of(outs[0]), stack_of(outs[1], 1)
    n = a.shape[-1]
    work = Work(e, working(a.dtype), n, n)

    def matrix(index: Reg) -> None:
        work.take(source, index)
        emit_elimination(e, work, None, lambda k, p: e.store(pivots, (Coord(index), Coord(k)), e.cast(p, dt.int32)))
        work.give(target, index)

    each_matrix(e, source.shape[0], matrix)


def general(rng: np.random.Generator, *shape: int) -> Any:
    """Random well-conditioned matrices whose rows are in disorder."""
    n = shape[-1]
    order = rng.permuted(np.broadcast_to(np.arange(n), shape[:-1]), axis=-1)
    return rng.standard_normal(shape) / n + 2 * np.take_along_axis(
        np.broadcast_to(np.eye(n), shape), order[..., None], -2
    )


@samples(tile_lu)
def _tile_lu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((5, 5), (1, 1), (18, 18), (2, 4, 4), (33, 33)):
        yield Sample((general(rng, *shape),))
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((general(rng, 9, 9).astype(d.np),))
    yield Sample((general(rng, 2, 1, 3, 5, 5),))
    yield Sample((np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, np.nan], [0.0, 3.0]]], np.float32),))


@spelled(tile_lu)
def _tile_lu_call(A: Any) -> Any:
    require_square("tile_lu", "A", require_tile("tile_lu", "A", A))
    return widened(tile_lu, A)


@op(cls="block", cooperative=True)
def tile_permute_rows(t: Tile, pivots: Tile, *, inverse: bool) -> Tile:
    """The matrices (..., n, k) of a tile with row i exchanged with row pivots[i] for i = 0, 1, ..., or back from that.

    Pivots are moved into the range of the rows first. Gradient: the cotangent, permuted the other way.
    """
    result = np.array(t)
    n = t.shape[-2]
    at = np.clip(pivots, 0, n - 1)
    for k in reversed(range(n)) if inverse else range(n):
        swap_rows(result, k, at[..., k])
    return result


@infer(tile_permute_rows)
def _tile_permute_rows_infer(t: TileType, pivots: TileType, *, inverse: bool) -> Type:
    require_matrix("tile_permute_rows", "t", t)
    if pivots.dtype is not dt.int32 or pivots.shape != t.shape[:-1]:
        raise ShapeMismatch(
            f"tile_lu_solve: `piv` must be an int32 tile {t.shape[:-1]}, it is {describe(pivots)}",
            help="it is the second result of tile_lu",
        )
    return t


@adjoint(tile_permute_rows)
def _tile_permute_rows_adjoint(ct: Any, out: Any, t: Any, pivots: Any, *, inverse: bool) -> Any:
    return tile_permute_rows(ct, pivots, inverse=not inverse), None


@lower(tile_permute_rows)
def _tile_permute_rows_lower(e: Emitter, outs: list[Buffer], t: Buffer, pivots: Buffer, *, inverse: bool) -> None:
    e.copy(outs[0], t)
    stack, at = stack_of(outs[0]), stack_of(pivots, 1)
    n = t.shape[-2]

    def matrix(index: Reg) -> None:
        def turn(k: Reg) -> None:
            p = e.i64(e.load(at, (Coord(index), Coord(k))))
            p = e.minimum(e.maximum(p, e.const(0, dt.int64)), e.const(n - 1, dt.int64))
            e.points((t.shape[-1],), lambda c: _exchange_parts(e, stack, index, k, p, c[0]))

        (each_down(e, n, 0, turn) if inverse else each(e, 0, n, turn))

    each_matrix(e, stack.shape[0], matrix)


def _exchange_parts(e: Emitter, stack: Buffer, index: Reg, k: Reg, p: Reg, at: Coord) -> None:
    places = [(Coord(index), Coord(i), at) for i in (k, p)]
    first, second = (e.load(stack, place) for place in places)
    e.store(stack, places[0], second)
    e.store(stack, places[1], first)


@samples(tile_permute_rows)
def _tile_permute_rows_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.FLOATS:
        t = rng.integers(-9, 9, (5, 3)).astype(d.np)
        yield Sample((t, np.array([3, 1, 4, 4, 4], np.int32)), {"inverse": False})
    for inverse in (False, True):
        pivots = rng.integers(0, 4, (2, 3, 4)).astype(np.int32)
        yield Sample((rng.standard_normal((2, 3, 4, 19)), pivots), {"inverse": inverse})
    yield Sample((rng.standard_normal((3, 1)), np.array([9, -1, 2], np.int32)), {"inverse": False})


def tile_lu_solve(LU: Any, piv: Any, b: Any) -> Any:
    """The solution x of A @ x = b from the factors of A.

    Args:
        LU, piv: what `tile_lu` returned.
        b: right-hand side: a vector (n,), or matrices (..., n, k). Leading axes are broadcast.

    Returns: a tile of the shape of b (with the leading axes of LU in front) and its dtype. If A is singular it holds
    infinities or NaN.
    Raises: ShapeMismatch if the shapes do not fit, TypeMismatch if the dtypes differ or are no floats.
    Gradient: that of the two triangular solves, see `tile_lower_solve`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], b: tg.array1d[float]):
        ...     lu, pivots = tg.tile_lu(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(b, tg.tile_lu_solve(lu, pivots, tg.tile_load(b, shape=2)))
        >>> a, b = np.array([[1, 5], [2, 4]], np.float32), np.array([11, 10], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, b])
        >>> b.tolist()
        [1.0, 2.0]
    """
    kind, pivots = require_tile("tile_lu_solve", "LU", LU), require_tile("tile_lu_solve", "piv", piv)
    if pivots.dtype is not dt.int32 or pivots.shape != kind.shape[:-1]:
        raise TypeMismatch(
            f"tile_lu_solve: `piv` must be an int32 tile {kind.shape[:-1]}, it is {describe(pivots)}",
            help="it is the second result of tile_lu",
        )
    return on_system("tile_lu_solve", ("LU", "b"), _lu_solve, LU, b, piv)


def _lu_solve(lu: Any, b: Any, pivots: Any) -> Any:
    solve = REGISTRY["tile_triangular_solve"]
    z = solve(lu, tile_permute_rows(b, pivots, inverse=False), lower=True, transposed=False, unit=True)
    return solve(lu, z, lower=False, transposed=False, unit=False)


# --- linear systems -------------------------------------------------------------------------------------------------


@op("tile_solve", cls="block", cooperative=True)
def tile_solve(a: Tile, b: Tile) -> Tile:
    """The solution x of A @ x = b for a general square matrix (LU factorisation with partial pivoting).

    Args:
        A: square matrix, tile (..., n, n) of floats.
        b: right-hand side: a vector (n,), or matrices (..., n, k). Leading axes are broadcast.

    Returns: a tile of the shape of b (with the leading axes of A in front) and its dtype. If A is singular it holds
    infinities or NaN.
    Raises: ShapeMismatch if the shapes do not fit, TypeMismatch if the dtypes differ or are no floats.
    Gradient: g = solve(A.T, ct) for b, and -g @ x.T for A (Giles 2008, "Collected matrix derivative results",
    section 2.3.1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], b: tg.array1d[float]):
        ...     tg.tile_store(b, tg.tile_solve(tg.tile_load(a, shape=(2, 2)), tg.tile_load(b, shape=2)))
        >>> a, b = np.array([[1, 5], [2, 4]], np.float32), np.array([11, 10], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, b])
        >>> b.tolist()
        [1.0, 2.0]
    """
    u, x = wide(a), wide(b)
    eliminate(u, x)
    for j in reversed(range(u.shape[-1])):
        x[..., j, :] /= u[..., j, j, None]
        x[..., :j, :] -= u[..., :j, j, None] * x[..., j, None, :]
    return x.astype(b.dtype)


@infer(tile_solve)
def _tile_solve_infer(a: TileType, b: TileType) -> Type:
    require_system("tile_solve", ("A", "b"), a, b)
    return b


@adjoint(tile_solve)
def _tile_solve_adjoint(ct: Any, out: Any, a: Any, b: Any) -> Any:
    columns = used(ct, 1)
    g = keep(columns, tile_solve(flip(a), ct))
    minus = mul(g, full_like(g, -1.0))
    return product(minus, flip(keep(columns, out))), g


@lower(tile_solve)
def _tile_solve_lower(e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer) -> None:
    matrices, sides, results = stack_of(a), stack_of(b), stack_of(outs[0])
    n, k, dtype = b.shape[-2], b.shape[-1], working(a.dtype)
    u, x = Work(e, dtype, n, n), Work(e, dtype, n, k)

    def system(index: Reg) -> None:
        u.take(matrices, index)
        x.take(sides, index)
        emit_elimination(e, u, x, lambda k, p: None)
        substitute(e, x, u, False, False)
        x.give(results, index)

    each_matrix(e, matrices.shape[0], system)


@samples(tile_solve)
def _tile_solve_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for n, k in ((5, 1), (3, 9), (17, 2), (1, 1)):
        yield Sample((general(rng, n, n), rng.standard_normal((n, k))))
    yield Sample((general(rng, 2, 3, 4, 4), rng.standard_normal((2, 3, 4, 2))))
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((general(rng, 7, 7).astype(d.np), rng.standard_normal((7, 3)).astype(d.np)))
    yield Sample((np.array([[1.0, 2.0], [2.0, 4.0]], np.float32), np.ones((2, 1), np.float32)))


@spelled(tile_solve)
def _tile_solve_call(A: Any, b: Any) -> Any:
    return on_system("tile_solve", ("A", "b"), tile_solve, A, b)


def tile_inv(A: Any) -> Any:
    """The inverse of a square matrix, tile (..., n, n) of floats. A singular matrix gives infinities or NaN.

    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: -inv(A).T @ ct @ inv(A).T (Giles 2008, "Collected matrix derivative results", section 2.2.3).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_inv(tg.tile_load(a, shape=(2, 2))))
        >>> a, y = np.array([[1, 2], [2, 2]], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [[-1.0, 1.0], [1.0, -0.5]]
    """
    require_square("tile_inv", "A", require_tile("tile_inv", "A", A))
    return widened(lambda a: tile_solve(a, identity_like(a)), A)


PUBLIC = {"tile_lu": tile_lu, "tile_lu_solve": tile_lu_solve, "tile_solve": tile_solve, "tile_inv": tile_inv}
