"""Eigenvalues and eigenvectors of symmetric matrices by the cyclic Jacobi method.

In a round the axes are paired off, and one rotation for each pair makes the element that it shares zero; after n - 1
rounds (a sweep) every axis has met every other, in the order of a round-robin tournament (Brent and Luk 1985, "The
solution of singular-value and symmetric eigenvalue problems on multiprocessor arrays"). Between rounds rows and columns
move so that axis i always meets axis i + half. Sweeps end when one has found nothing to rotate.
Small eigenvalues of a positive definite matrix come out as accurately as its scaling allows (Demmel and Veselic 1992).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples, spelled
from tilegrad.ops.arithmetic import add, div, sub
from tilegrad.ops.matrices import (
    Work,
    each,
    each_matrix,
    element_of,
    flip,
    full_like,
    keep,
    product,
    require_fill_mode,
    require_square,
    scaled,
    spread,
    stack_of,
    triangles,
    wide,
    widened,
    working,
)
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of, tile_reshape

#: More sweeps than any matrix needs (about 6 to 10 are usual).
MAX_SWEEPS = 40


def _eps(dtype: DType) -> float:
    return 2.0**-23 if dtype is dt.float32 else 2.0**-52


@op(cls="block", cooperative=True)
def tile_eigh(a: Tile, *, upper: bool = False) -> tuple[Tile, Tile]:
    """Eigenvalues w, in ascending order, and orthonormal eigenvectors V of symmetric matrices: A @ V = V * w.

    Args:
        A: tile (..., n, n) of floats; leading axes count matrices.
        fill_mode: "lower" or "upper": which triangle of A is read. The other may hold anything.

    Returns: (w, V), tiles (..., n) and (..., n, n) of the dtype of A; column k of V belongs to w[k]. The sign of a
    column is not specified. A matrix with an element that is not finite gives NaN.
    Raises: ShapeMismatch if A is not square, TypeMismatch if it holds no floats.
    Gradient: V @ (diag(ctw) + F * skew(V.T @ ctV)) @ V.T with F[i, j] = 1 / (w[j] - w[i]) (Giles 2008, "Collected
    matrix derivative results", section 3.1), for the triangle that is read and 0 in the other: an element off the
    diagonal stands for both of its places. Eigenvectors of equal eigenvalues are only determined up to a rotation. A
    function of the space that they span, or of the eigenvalues alone, has the right gradient there (for single
    eigenvalues, one of the generalised gradients); any other gives NaN or very large numbers, never a wrong value that
    looks right.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array1d[float]):
        ...     w, V = tg.tile_eigh(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(y, w)
        >>> a, y = np.array([[0, 2], [2, 0]], np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> [round(x, 6) for x in y.tolist()]
        [-2.0, 2.0]
    """
    full = wide(a)
    n = full.shape[-1]
    if upper:
        full = np.swapaxes(full, -1, -2)
    full = np.where(np.tri(n, dtype=bool), full, np.swapaxes(full, -1, -2)).reshape(-1, n, n)
    values, vectors = zip(*(_jacobi(m) for m in full), strict=True)
    return np.reshape(values, a.shape[:-1]).astype(a.dtype), np.reshape(vectors, a.shape).astype(a.dtype)


def _jacobi(a: Any) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of one symmetric matrix."""
    n, zero = len(a), a.dtype.type(0)
    taint = zero * np.sum(a - a)
    half = (n + 1) // 2
    work = np.zeros((2 * half, 2 * half), a.dtype)
    work[:n, :n] = a
    vectors = np.eye(2 * half, n, dtype=a.dtype)
    order = _round_robin(half)
    small = _smallest(np.fmax.reduce(np.abs(a), axis=None), dt.of_array(a))
    for _ in range(MAX_SWEEPS):
        turned = 0
        for _ in range(2 * half - 1):
            s, tau, active = _rotations(work, half, small)
            turned += active
            work = _rotate(work, s, tau, half)
            work = _rotate(work.T, s, tau, half).T
            vectors = _rotate(vectors, s, tau, half)
            _clear_pairs(work, half)
            work, vectors = work[np.ix_(order, order)], vectors[order]
        if not turned:
            break
    values = np.diagonal(work)[:n]
    ranks = _ranks(values)
    w, v = np.empty(n, a.dtype), np.empty((n, n), a.dtype)
    w[ranks], v[:, ranks] = values + taint, vectors[:n].T + taint
    return w, v


def _round_robin(half: int) -> list[int]:
    """From where each axis comes after a round: all move on by one, around the table, but the first."""
    if half == 1:
        return [0, 1]
    top = [0, half, *range(1, half - 1)]
    return [*top, *range(half + 1, 2 * half), half - 1]


def _smallest(largest: Any, dtype: DType) -> Any:
    """Elements up to this are zero, given the largest one."""
    return largest * dtype(_eps(dtype) ** 2)


def _rotations(work: Any, half: int, small: Any) -> tuple[Any, Any, int]:
    """Sines, and tangents of half the angles, that make the elements of all pairs zero; how many are not yet."""
    d = np.diagonal(work)
    p, q, x = d[:half], d[half:], np.diagonal(work[:half, half:])
    eps = work.dtype.type(_eps(dt.of_array(work)))
    size = np.abs(x)
    active = (size > small) & (size > eps * np.sqrt(np.abs(p)) * np.sqrt(np.abs(q)))
    theta = (q / 2 - p / 2) / np.where(active, x, 1)
    t = np.copysign(1 / (np.abs(theta) + np.sqrt(theta * theta + 1)), theta)
    t = np.where(active, t, 0)
    c = 1 / np.sqrt(t * t + 1)
    s = t * c
    return s, s / (c + 1), int(active.sum())


def _rotate(rows: Any, s: Any, tau: Any, half: int) -> Any:
    """Rotate pairs of rows. In this form small angles leave small rounding errors (Rutishauser 1966)."""
    s, tau, x, y = s[:, None], tau[:, None], rows[:half], rows[half:]
    return np.concatenate([x - s * (y + tau * x), y + s * (x - tau * y)])


def _clear_pairs(work: Any, half: int) -> None:
    i = np.arange(half)
    work[i, i + half] = work[i + half, i] = 0


def _ranks(values: Any) -> Any:
    """The place of every value in ascending order, NaN last; of equal ones the first comes first."""
    i, nan = np.arange(len(values)), np.isnan(values)
    less = (values < values[:, None]) | (nan[:, None] & ~nan)
    more = (values > values[:, None]) | (~nan[:, None] & nan)
    return (less | (~more & (i < i[:, None]))).sum(-1)


@infer(tile_eigh)
def _tile_eigh_infer(a: TileType, *, upper: bool = False) -> tuple[Type, ...]:
    require_square("tile_eigh", "A", a)
    return TileType(a.dtype, a.shape[:-1]), a


@adjoint(tile_eigh)
def _tile_eigh_adjoint(ct: Any, out: Any, a: Any, *, upper: bool = False) -> Any:
    w, v = out
    inner = add(_in_pairs(product(flip(v), ct[1]), _rows(w, a), _rows(ct[0], a)), _diagonal(ct[0], a))
    full = product(product(v, inner), flip(v))
    below, above = (0.0, 2.0) if upper else (2.0, 0.0)
    return (keep(_any_used(ct, a), triangles(full, below=below, diagonal=1.0, above=above)),)


def _any_used(ct: Any, a: Any) -> Any:
    """For each matrix whether any of its cotangents is not zero."""
    lead = shape_of(a)[:-2]
    parts = []
    for x in ct:
        nonzero = REGISTRY["ne"](x, full_like(x, 0.0))
        axes = tuple(range(len(lead), len(shape_of(x))))
        parts.append(tile_reshape(REGISTRY["tile_max"](nonzero, axes=axes), shape=(*lead, 1, 1)))
    return REGISTRY["bit_or"](*parts)


def _rows(x: Any, like: Any) -> Any:
    """Matrices whose rows are all the vector of a tile."""
    shape = shape_of(x)
    return spread(tile_reshape(x, shape=(*shape[:-1], 1, shape[-1])), like)


def _diagonal(x: Any, like: Any) -> Any:
    """Matrices with the vectors of a tile on their diagonals."""
    return triangles(_rows(x, like), below=0.0, diagonal=1.0, above=0.0)


def _in_pairs(x: Any, w: Any, ct: Any) -> Any:
    """The skew part of x divided by the differences of eigenvalues; 0 on the diagonal and for pairs that do not matter.

    `w` and `ct` hold the eigenvalues and their cotangents, the same in every row. What a pair of equal eigenvalues
    needs is not in x: it is 0 for a function of the space of the two, and NaN stands for what is not known.
    """
    where, either = REGISTRY["where"], REGISTRY["bit_or"]
    skew, gap = scaled(sub(x, flip(x)), 0.5), sub(w, flip(w))
    equal = REGISTRY["bit_and"](_within_rounding(gap, w), _within_rounding(skew, x))
    size = REGISTRY["abs"](x)
    unused = REGISTRY["eq"](add(size, flip(size)), full_like(x, 0.0))
    alike = either(unused, _within_rounding(sub(ct, flip(ct)), ct))
    one, zero, unknown = (full_like(x, value) for value in (1.0, 0.0, math.nan))
    return where(equal, where(alike, zero, unknown), div(where(equal, zero, skew), where(equal, one, gap)))


def _within_rounding(difference: Any, of: Any) -> Any:
    """Where a difference is no larger than the rounding errors of what it is taken of, matrix by matrix."""
    shape = shape_of(of)
    axes = (len(shape) - 2, len(shape) - 1)
    dtype = of.type.dtype if hasattr(of, "type") else dt.of_array(of)
    factor = 4.0 * shape[-1] * {dt.float16: 2.0**-10, dt.bfloat16: 2.0**-7}.get(dtype, _eps(dtype))
    largest = REGISTRY["tile_max"](REGISTRY["abs"](of), axes=axes, keepdims=True)
    return REGISTRY["le"](REGISTRY["abs"](difference), spread(scaled(largest, factor), of))


# --- lowering -------------------------------------------------------------------------------------------------------


class _Solver:
    """The state of the Jacobi method in working memory; the steps are those of the body."""

    def __init__(self, e: Emitter, dtype: DType, n: int) -> None:
        self.e, self.dtype, self.n = e, dtype, n
        self.half = (n + 1) // 2
        size = 2 * self.half
        self.a, self.moved = Work(e, dtype, size, size), Work(e, dtype, size, size)
        self.v, self.turned = Work(e, dtype, size, n), Work(e, dtype, size, n)
        #: sines, tangents of half the angle, and whether a pair is rotated
        self.angles = Work(e, dtype, 3, self.half)
        #: the second half of a row
        self.lower = Work(e, dtype, 1, self.half)
        self.zero, self.one = e.const(0, dtype), e.const(1, dtype)

    def start(self, source: Buffer, index: Reg, upper: bool) -> None:
        """Take one symmetric matrix of a stack, of which one triangle is read."""
        e = self.e
        self.a.fill(lambda i, at: self.zero)
        self.v.fill(lambda i, at: e.select(e.compare("eq", e.lanes_of(at), i), self.one, self.zero))

        def row(i: Reg) -> None:
            def point(at: Index) -> None:
                x, y = (element_of(e, source, index, i, at[0], flipped) for flipped in (upper, not upper))
                x = e.select(e.compare("le", e.lanes_of(at[0]), i), x, y)
                self.a.put(i, at[0], e.cast(x, self.dtype))

            e.points((self.n,), point)

        each(e, 0, self.n, row)

    def run(self) -> Reg:
        """Sweep until there is nothing to rotate. Returns 0, or NaN if an element is not finite."""
        e = self.e
        largest, taint = self._survey()
        small = e.mul(largest, e.const(_eps(self.dtype) ** 2, self.dtype))

        def sweep(i: Reg, running: Reg) -> list[Reg]:
            return e.branch(running, lambda: [self._sweep(small)], lambda: [running])

        e.loop(0, MAX_SWEEPS, 1, [e.const(True, dt.bool_)], sweep)
        return taint

    def _survey(self) -> tuple[Reg, Reg]:
        """The largest magnitude, and 0 or NaN."""
        e = self.e

        def element(i: Reg, j: Reg, largest: Reg, total: Reg) -> list[Reg]:
            x = self.a.get(i, j)
            return [e.maximum(largest, e.abs(x)), e.add(total, e.sub(x, x))]

        def row(i: Reg, *found: Reg) -> list[Reg]:
            return e.loop(0, self.n, 1, found, lambda j, *f: element(i, j, *f))

        largest, total = e.loop(0, self.n, 1, [self.zero, self.zero], row)
        return largest, total

    def _sweep(self, small: Reg) -> Reg:
        """All rounds of a sweep; whether anything was rotated."""
        e = self.e

        def turn(i: Reg, turned: Reg) -> list[Reg]:
            e.points((self.half,), lambda at: self._find_angles(at[0], small))
            self._rotate_rows(self.a, self.moved)
            each(e, 0, 2 * self.half, self._rotate_columns)
            each(e, 0, self.half, self._clear_pair)
            self._rotate_rows(self.v, self.turned)
            e.copy(self.v.buffer, self.turned.buffer)
            return [e.or_(turned, self._any_active())]

        return e.loop(0, 2 * self.half - 1, 1, [e.const(False, dt.bool_)], turn)[0]

    def _find_angles(self, at: Coord, small: Reg) -> None:
        """The rotations of some pairs."""
        e, one, size = self.e, self.one, self.a.width
        p, q, x = (self._diagonal(at, offset) for offset in (0, self.half * (size + 1), self.half))
        eps = e.const(_eps(self.dtype), self.dtype)
        bound = e.mul(e.mul(eps, e.sqrt(e.abs(p))), e.sqrt(e.abs(q)))
        active = e.and_(e.compare("gt", e.abs(x), small), e.compare("gt", e.abs(x), bound))
        half = e.const(0.5, self.dtype)
        theta = e.div(e.sub(e.mul(q, half), e.mul(p, half)), e.select(active, x, one))
        root = e.sqrt(e.add(e.mul(theta, theta), one))
        t = e.copysign(e.div(one, e.add(e.abs(theta), root)), theta)
        t = e.select(active, t, self.zero)
        c = e.div(one, e.sqrt(e.add(e.mul(t, t), one)))
        s = e.mul(t, c)
        for k, value in enumerate((s, e.div(s, e.add(c, one)), e.select(active, one, self.zero))):
            self.angles.put(k, at, value)

    def _diagonal(self, at: Coord, offset: int) -> Reg:
        """Elements on the diagonal of the matrix, or beside it."""
        e, size = self.e, self.a.width
        flat = Buffer(self.dtype, self.a.buffer.ptr, (self.a.rows * size,))
        base = e.add(e.mul(e.i64(at.base), e.const(size + 1, dt.int64)), e.const(offset, dt.int64))
        return e.load(flat, (Coord(base, at.step * (size + 1)),))

    def _any_active(self) -> Reg:
        e = self.e
        (total,) = e.loop(0, self.half, 1, [self.zero], lambda i, x: [e.add(x, self.angles.get(2, i))])
        return e.compare("gt", total, self.zero)

    def _rotate_rows(self, source: Work, target: Work) -> None:
        """Rotate the rows of all pairs, and write each where it is next."""
        e = self.e

        def pair(i: Reg) -> None:
            s, tau, j = self.angles.get(0, i), self.angles.get(1, i), e.add(i, e.const(self.half, dt.int64))

            def part(at: Coord) -> None:
                x, y = self._rotated(s, tau, source.row(i, at), source.row(j, at))
                target.put(self._next_top(i), at, x)
                target.put(self._next_bottom(i), at, y)

            source.across(None, part)

        each(e, 0, self.half, pair)

    def _rotate_columns(self, r: Reg) -> None:
        """Rotate all pairs of columns in row r, and write each where it is next: one place on, but at the four ends."""
        e, half, end = self.e, self.half, 2 * self.half - 1
        shift = 0 if half == 1 else 1

        def part(at: Index) -> None:
            x, y = self.moved.row(r, at[0]), self.moved.row(r, self._after(at[0], half))
            x, y = self._rotated(self.angles.row(0, at[0]), self.angles.row(1, at[0]), x, y)
            self.a.put(r, self._after(at[0], shift), x)
            self.lower.put(0, at[0], y)

        e.points((half,), part)
        ends = [self.a.get(r, k) for k in (shift, half - 1, half)]
        e.points((half,), lambda at: self.a.put(r, self._after(at[0], half - shift), self.lower.row(0, at[0])))
        if half > 1:
            for k, x in ((half - 1, ends[1]), (0, ends[0]), (1, self.lower.get(0, 0)), (end, ends[2])):
                self.a.set(r, k, x)

    def _after(self, at: Coord, offset: int) -> Coord:
        return Coord(self.e.add(self.e.i64(at.base), self.e.i64(offset)), at.step)

    def _rotated(self, s: Reg, tau: Reg, x: Reg, y: Reg) -> tuple[Reg, Reg]:
        e = self.e
        first = e.sub(x, e.mul(s, e.add(y, e.mul(tau, x))))
        return first, e.add(y, e.mul(s, e.sub(x, e.mul(tau, y))))

    def _clear_pair(self, i: Reg) -> None:
        top, bottom = self._next_top(i), self._next_bottom(i)
        self.a.set(top, bottom, self.zero)
        self.a.set(bottom, top, self.zero)

    def _next_top(self, i: Reg) -> Reg:
        """Where axis i of the first half is in the next round."""
        e, half = self.e, self.half
        if half == 1:
            return i
        moved = e.select(e.compare("eq", i, e.i64(half - 1)), e.i64(2 * half - 1), e.add(i, e.i64(1)))
        return e.select(e.compare("eq", i, e.i64(0)), e.i64(0), moved)

    def _next_bottom(self, i: Reg) -> Reg:
        """Where axis i of the second half is in the next round."""
        e, half = self.e, self.half
        if half == 1:
            return e.add(i, e.i64(1))
        return e.select(e.compare("eq", i, e.i64(0)), e.i64(1), e.add(i, e.i64(half - 1)))

    def finish(self, values: Buffer, vectors: Buffer, index: Reg, taint: Reg) -> None:
        """Write the results in ascending order."""
        e = self.e

        def one(i: Reg) -> None:
            rank = self._rank(i)
            e.store(values, (Coord(index), Coord(rank)), e.cast(e.add(self.a.get(i, i), taint), values.dtype))
            e.points((self.n,), lambda at: e.store(
                vectors, (Coord(index), at[0], Coord(rank)), e.cast(e.add(self.v.row(i, at[0]), taint), vectors.dtype)
            ))  # fmt: skip

        each(e, 0, self.n, one)

    def _rank(self, i: Reg) -> Reg:
        """How many eigenvalues come before number i; NaN comes last."""
        e, value = self.e, self.a.get(i, i)
        value_is_nan = e.compare("ne", value, value)

        def count(j: Reg, rank: Reg) -> list[Reg]:
            other = self.a.get(j, j)
            other_is_nan = e.compare("ne", other, other)
            less = e.or_(e.compare("lt", other, value), e.and_(value_is_nan, e.not_(other_is_nan)))
            more = e.or_(e.compare("gt", other, value), e.and_(e.not_(value_is_nan), other_is_nan))
            before = e.or_(less, e.and_(e.not_(more), e.compare("lt", j, i)))
            return [e.add(rank, e.cast(before, dt.int64))]

        return e.loop(0, self.n, 1, [e.i64(0)], count)[0]


@lower(tile_eigh)
def _tile_eigh_lower(e: Emitter, outs: list[Buffer], a: Buffer, *, upper: bool = False) -> None:
    source, values, vectors = stack_of(a), stack_of(outs[0], 1), stack_of(outs[1])
    solver = _Solver(e, working(a.dtype), a.shape[-1])

    def matrix(index: Reg) -> None:
        solver.start(source, index, upper)
        solver.finish(values, vectors, index, solver.run())

    each_matrix(e, source.shape[0], matrix)


def _spaced(rng: np.random.Generator, *shape: int) -> Any:
    """Random symmetric matrices whose eigenvalues are well apart."""
    n = shape[-1]
    m = rng.standard_normal(shape) / (2 * n)
    return m + np.swapaxes(m, -1, -2) + np.diag(rng.permutation(n) - n / 2)


@samples(tile_eigh)
def _tile_eigh_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for n in (4, 1, 2, 5, 18):
        yield Sample((_spaced(rng, n, n),), {"upper": n == 5})
    yield Sample((_spaced(rng, 2, 3, 4, 4),), {"upper": True})
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample((_spaced(rng, 6, 6).astype(d.np),))
    rough = [[[2, 1], [1, 2]], [[0, 0], [0, 0]], [[1, np.nan], [np.nan, 2]], [[np.inf, 1], [1, 0]], [[3, 9], [0, 1]]]
    yield Sample((np.array(rough, np.float32),))


@spelled(tile_eigh)
def _tile_eigh_call(A: Any, fill_mode: str = "lower") -> Any:
    require_square("tile_eigh", "A", require_tile("tile_eigh", "A", A))
    upper = require_fill_mode("tile_eigh", fill_mode)
    return widened(lambda a: tile_eigh(a, upper=upper), A)


PUBLIC = {"tile_eigh": tile_eigh}
