"""Triangular systems: forward and back substitution, for stacks of matrices and many right-hand sides.

Only the triangle that is named is read. A zero on the diagonal gives infinities or NaN, as division does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples
from tilegrad.ops.matrices import (
    Work,
    each,
    each_down,
    each_matrix,
    element_of,
    flip,
    following,
    keep,
    on_system,
    product,
    require_system,
    stack_of,
    triangles,
    used,
    wide,
    working,
)

#: With fewer right-hand sides than this the vectors run along the unknowns.
WIDE = 8


@op(cls="block", cooperative=True)
def tile_triangular_solve(t: Tile, b: Tile, *, lower: bool, transposed: bool = False, unit: bool = False) -> Tile:
    """The solution x of t @ x = b, or of t.T @ x = b, for a triangular t (..., n, n) and b (..., n, k).

    Args:
        lower: whether the lower triangle of `t` is read, or the upper one.
        unit: the diagonal of `t` is taken to be 1 and not read.

    Gradient: for b, the solution g of the transposed system for the cotangent; for t, -g @ x.T (or its transpose) in
    the triangle that is read, 0 elsewhere (Giles 2008, "Collected matrix derivative results", section 2.3.1).
    """
    a = wide(np.swapaxes(t, -1, -2)) if transposed else wide(t)
    x = wide(b)
    n, forward = a.shape[-1], lower != transposed
    for j in range(n) if forward else reversed(range(n)):
        rest = slice(j + 1, n) if forward else slice(0, j)
        if not unit:
            x[..., j, :] /= a[..., j, j, None]
        x[..., rest, :] -= a[..., rest, j, None] * x[..., j, None, :]
    return x.astype(b.dtype)


@infer(tile_triangular_solve)
def _tile_triangular_solve_infer(
    t: TileType, b: TileType, *, lower: bool, transposed: bool = False, unit: bool = False
) -> Type:
    require_system("tile_lower_solve" if lower else "tile_upper_solve", ("L" if lower else "U", "y"), t, b)
    return b


@adjoint(tile_triangular_solve)
def _tile_triangular_solve_adjoint(
    ct: Any, out: Any, t: Any, b: Any, *, lower: bool, transposed: bool = False, unit: bool = False
) -> Any:
    columns = used(ct, 1)
    back = tile_triangular_solve(t, ct, lower=lower, transposed=not transposed, unit=unit)
    g, x = keep(columns, back), keep(columns, out)
    outer = product(x, flip(g)) if transposed else product(g, flip(x))
    below, above = (-1.0, 0.0) if lower else (0.0, -1.0)
    return triangles(outer, below=below, diagonal=0.0 if unit else -1.0, above=above), g


@lower(tile_triangular_solve)
def _tile_triangular_solve_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, b: Buffer, *, lower: bool, transposed: bool = False, unit: bool = False
) -> None:
    ts, bs, xs = stack_of(t), stack_of(b), stack_of(outs[0])
    n, k, dtype = b.shape[-2], b.shape[-1], working(t.dtype)
    forward = lower != transposed
    if k >= WIDE:
        x = Work(e, dtype, n, k)

        def many(index: Reg) -> None:
            x.take(bs, index)
            substitute(e, x, Triangle(e, ts, index, transposed), forward, unit)
            x.give(xs, index)

        each_matrix(e, ts.shape[0], many)
        return
    columns, rows = Work(e, dtype, n, n), Work(e, dtype, k, n)

    def few(index: Reg) -> None:
        columns.fill(lambda j, at: _below(e, ts, index, j, at, not transposed, forward))
        rows.take(bs, index, flipped=True)
        _eliminate(e, columns, rows, forward, unit)
        each(e, 0, k, lambda r: e.points(
            (n,), lambda at: e.store(xs, (Coord(index), at[0], Coord(r)), e.cast(rows.row(r, at[0]), xs.dtype))
        ))  # fmt: skip

    each_matrix(e, ts.shape[0], few)


class Triangle:
    """The elements of one triangular matrix of a stack, or of its transpose."""

    def __init__(self, e: Emitter, stack: Buffer, index: Reg, flipped: bool) -> None:
        self.e, self.stack, self.index, self.flipped = e, stack, index, flipped

    def get(self, i: Reg, j: Reg) -> Reg:
        x = element_of(self.e, self.stack, self.index, i, Coord(j), self.flipped)
        return self.e.cast(x, working(x.dtype))


def substitute(e: Emitter, x: Work, t: Any, forward: bool, unit: bool) -> None:
    """Solve for the rows of `x` one after the other; `t.get(i, j)` is the triangular matrix."""

    def row(i: Reg) -> None:
        def part(at: Coord) -> None:
            def less(acc: Reg, j: Reg) -> Reg:
                return e.sub(acc, e.mul(t.get(i, j), x.row(j, at)))

            acc = _run(e, i, x.rows, forward, x.row(i, at), less)
            x.put(i, at, acc if unit else e.div(acc, t.get(i, i)))

        x.across(None, part)

    if forward:
        each(e, 0, x.rows, row)
    else:
        each_down(e, x.rows, 0, row)


def _run(e: Emitter, i: Reg, n: int, forward: bool, acc: Reg, step: Any) -> Reg:
    """Fold step(acc, j) over the unknowns that are known when row i is solved, in the order in which they became so."""
    if forward:
        return e.loop(0, i, 1, [acc], lambda j, a: [step(a, j)])[0]
    last = e.const(n - 1, dt.int64)
    return e.loop(0, e.sub(last, i), 1, [acc], lambda k, a: [step(a, e.sub(last, k))])[0]


def _below(e: Emitter, stack: Buffer, index: Reg, j: Reg, at: Coord, flipped: bool, forward: bool) -> Reg:
    """Column j of the matrix where it meets unknowns that are solved for later, and on the diagonal; elsewhere 0."""
    x = element_of(e, stack, index, j, at, flipped)
    inside = e.compare("ge" if forward else "le", e.lanes_of(at), j)
    return e.select(inside, x, e.const(0, x.dtype))


def _eliminate(e: Emitter, columns: Work, rows: Work, forward: bool, unit: bool) -> None:
    """Solve for one unknown after the other, and take each out of the later equations, a row of unknowns at once."""

    def unknown(j: Reg) -> None:
        def system(r: Reg) -> None:
            x = rows.get(r, j)
            x = x if unit else e.div(x, columns.get(j, j))
            rows.set(r, j, x)

            def part(at: Coord) -> None:
                old = rows.row(r, at)
                later = e.compare("gt" if forward else "lt", e.lanes_of(at), j)
                rows.put(r, at, e.select(later, e.sub(old, e.mul(columns.row(j, at), x)), old))

            rows.across(j if forward else None, part, None if forward else following(e, j))

        each(e, 0, rows.rows, system)

    if forward:
        each(e, 0, columns.rows, unknown)
    else:
        each_down(e, columns.rows, 0, unknown)


def _well_conditioned(rng: np.random.Generator, *shape: int) -> Any:
    """Random matrices with a heavy diagonal; both triangles are filled."""
    n = shape[-1]
    return rng.standard_normal(shape) / n + np.eye(n) * rng.choice([-1.0, 1.0], (*shape[:-1], 1)) * 1.5


@samples(tile_triangular_solve)
def _tile_triangular_solve_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for n, k in ((5, 1), (3, 9), (17, 2), (18, 17)):
        for is_lower in (True, False):
            for transposed in (False, True):
                attrs = {"lower": is_lower, "transposed": transposed, "unit": (n + is_lower) % 3 == 0}
                yield Sample((_well_conditioned(rng, n, n), rng.standard_normal((n, k))), attrs)
    for d in (dt.float16, dt.bfloat16, dt.float32):
        for k in (2, 10):
            yield Sample(
                (_well_conditioned(rng, 7, 7).astype(d.np), rng.standard_normal((7, k)).astype(d.np)), {"lower": True}
            )
    for lead in ((2,), (2, 1, 3)):
        for k in (1, 8):
            system = _well_conditioned(rng, *lead, 4, 4), rng.standard_normal((*lead, 4, k))
            yield Sample(system, {"lower": k == 1})


def solve_triangular(t: Any, b: Any, *, upper: bool, transposed: bool = False) -> Any:
    """`tile_triangular_solve` of values whose shapes fit."""
    return REGISTRY["tile_triangular_solve"](t, b, lower=not upper, transposed=transposed, unit=False)


def tile_lower_solve(L: Any, y: Any) -> Any:
    """The solution z of L @ z = y for a lower triangular matrix (forward substitution).

    Args:
        L: square matrix, tile (..., n, n) of floats; what is above the diagonal is not read.
        y: right-hand side: a vector (n,), or matrices (..., n, k). Leading axes are broadcast.

    Returns: a tile of the shape of y (with the leading axes of L in front) and its dtype. A zero on the diagonal gives
    infinities or NaN.
    Raises: ShapeMismatch if the shapes do not fit, TypeMismatch if the dtypes differ or are no floats.
    Gradient: g = inv(L).T @ ct for y, and -g @ z.T in the lower triangle for L, 0 above it (Giles 2008, "Collected
    matrix derivative results", section 2.3.1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     L = tg.tile_load(a, shape=(2, 2))
        ...     tg.tile_store(y, tg.tile_lower_solve(L, tg.tile_load(y, shape=2)))
        >>> a, y = np.array([[2, 0], [1, 4]], np.float32), np.array([2, 9], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [1.0, 2.0]
    """
    return on_system("tile_lower_solve", ("L", "y"), lambda t, b: solve_triangular(t, b, upper=False), L, y)


def tile_upper_solve(U: Any, z: Any) -> Any:
    """The solution x of U @ x = z for an upper triangular matrix (back substitution).

    Args:
        U: square matrix, tile (..., n, n) of floats; what is below the diagonal is not read.
        z: right-hand side: a vector (n,), or matrices (..., n, k). Leading axes are broadcast.

    Returns, Raises: as for `tile_lower_solve`.
    Gradient: g = inv(U).T @ ct for z, and -g @ x.T in the upper triangle for U, 0 below it (Giles 2008, section 2.3.1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], z: tg.array1d[float]):
        ...     U = tg.tile_load(a, shape=(2, 2))
        ...     tg.tile_store(z, tg.tile_upper_solve(U, tg.tile_load(z, shape=2)))
        >>> a, z = np.array([[2, 1], [0, 4]], np.float32), np.array([4, 8], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, z])
        >>> z.tolist()
        [1.0, 2.0]
    """
    return on_system("tile_upper_solve", ("U", "z"), lambda t, b: solve_triangular(t, b, upper=True), U, z)


def tile_lower_solve_inplace(L: Any, y: Any) -> None:
    """`tile_lower_solve` that leaves the solution in `y`. The gradient is the same.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(y, shape=2)
        ...     tg.tile_lower_solve_inplace(tg.tile_load(a, shape=(2, 2)), t)
        ...     tg.tile_store(y, t)
        >>> a, y = np.array([[2, 0], [1, 4]], np.float32), np.array([2, 9], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [1.0, 2.0]
    """
    solved = tile_lower_solve(L, y)
    y.assign(solved)


def tile_upper_solve_inplace(U: Any, z: Any) -> None:
    """`tile_upper_solve` that leaves the solution in `z`. The gradient is the same.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], z: tg.array1d[float]):
        ...     t = tg.tile_load(z, shape=2)
        ...     tg.tile_upper_solve_inplace(tg.tile_load(a, shape=(2, 2)), t)
        ...     tg.tile_store(z, t)
        >>> a, z = np.array([[2, 1], [0, 4]], np.float32), np.array([4, 8], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, z])
        >>> z.tolist()
        [1.0, 2.0]
    """
    solved = tile_upper_solve(U, z)
    z.assign(solved)


PUBLIC = {
    "tile_lower_solve": tile_lower_solve,
    "tile_lower_solve_inplace": tile_lower_solve_inplace,
    "tile_upper_solve": tile_upper_solve,
    "tile_upper_solve_inplace": tile_upper_solve_inplace,
}
