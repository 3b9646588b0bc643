"""The QR factorisation of matrices of any shape by Householder reflections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.emit import Buffer, Coord, Emitter, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples, spelled
from tilegrad.ops.arithmetic import add, sub
from tilegrad.ops.indexing import tile_slice, zeros_like
from tilegrad.ops.matrices import (
    Work,
    each,
    each_down,
    each_matrix,
    flip,
    following,
    keep,
    lower_part,
    product,
    require_matrix,
    stack_of,
    triangles,
    upper_part,
    used,
    wide,
    widened,
    working,
)
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.triangular import solve_triangular
from tilegrad.ops.views import shape_of


@op(cls="block", cooperative=True)
def tile_qr(a: Tile) -> tuple[Tile, Tile]:
    """The reduced factorisation A = Q @ R: Q has orthonormal columns, R is upper triangular (trapezoidal if wide).

    Args:
        A: tile (..., m, n) of floats; leading axes count matrices.

    Returns: (Q, R), tiles (..., m, k) and (..., k, n) with k = min(m, n), of the dtype of A. The signs are LAPACK's: a
    column that is already zero below the diagonal keeps its diagonal element, else that has the opposite sign.
    Raises: ShapeMismatch if A has fewer than two axes, TypeMismatch if it holds no floats.
    Gradient: for m >= n, with M = R @ ctR.T - ctQ.T @ Q, (ctQ + Q @ sym(M)) @ inv(R).T, where sym mirrors the lower
    triangle (Walter and Lehmann 2018, "Algorithmic differentiation of linear algebra functions with application in
    optimum experimental design"); for m < n that of the first m columns, from which the others follow (Roberts and
    Roberts 2020, "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep matrices"). Not
    finite if the first k columns are linearly dependent.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(a: tg.array2d[float], y: tg.array2d[float]):
        ...     q, r = tg.tile_qr(tg.tile_load(a, shape=(2, 2)))
        ...     tg.tile_store(y, r)
        >>> a, y = np.array([[0, 3], [2, 1]], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[a, y])
        >>> y.tolist()
        [[-2.0, -1.0], [0.0, -3.0]]
    """
    r = wide(a)
    m, n = r.shape[-2:]
    count = min(m, n)
    scales = [_reflect_column(r, k) for k in range(count)]
    q = np.broadcast_to(np.eye(m, count, dtype=r.dtype), (*r.shape[:-1], count)).copy()
    for k in reversed(range(count)):
        _reflect(r[..., k + 1 :, k], scales[k], q[..., k:, k:])
    upper = np.where(np.tri(count, n, -1, dtype=bool), r.dtype.type(0), r[..., :count, :])
    return q.astype(a.dtype), upper.astype(a.dtype)


def _reflect_column(r: Any, k: int) -> Any:
    """Make column k zero below the diagonal; its place holds the vector of the reflection, whose scale is returned."""
    alpha, x = r[..., k, k].copy(), r[..., k + 1 :, k]
    size = np.fmax.reduce(np.abs(x), axis=-1, initial=0)
    size = np.where(size > 0, size, 1).astype(r.dtype)
    total = np.zeros_like(alpha)
    for i in range(x.shape[-1]):
        part = x[..., i] / size
        total = total + part * part
    norm = size * np.sqrt(total)
    top = np.fmax(np.abs(alpha), norm)
    a, b = alpha / top, norm / top
    length = top * np.sqrt(a * a + b * b)
    beta = np.where(norm == 0, alpha, -np.copysign(length, alpha))
    scale = np.where(norm == 0, r.dtype.type(0), (beta - alpha) / beta)
    x /= np.where(norm == 0, r.dtype.type(1), alpha - beta)[..., None]
    r[..., k, k] = beta
    _reflect(x, scale, r[..., k:, k + 1 :])
    return scale


def _reflect(v: Any, scale: Any, x: Any) -> None:
    """Apply I - scale * w @ w.T with w = (1, v) to the rows of x, in place."""
    total = x[..., 0, :].copy()
    for i in range(v.shape[-1]):
        total += v[..., i, None] * x[..., i + 1, :]
    total *= scale[..., None]
    x[..., 0, :] -= total
    x[..., 1:, :] -= v[..., None] * total[..., None, :]


@infer(tile_qr)
def _tile_qr_infer(a: TileType) -> tuple[Type, ...]:
    m, n = require_matrix("tile_qr", "A", a)
    lead, k = a.shape[:-2], min(m, n)
    return TileType(a.dtype, (*lead, m, k)), TileType(a.dtype, (*lead, k, n))


@adjoint(tile_qr)
def _tile_qr_adjoint(ct: Any, out: Any, a: Any) -> Any:
    q, r = out
    m, n = shape_of(a)[-2:]
    if m >= n:
        result = _deep_adjoint(ct[0], ct[1], q, r)
    else:
        left, right = _columns(ct[1], 0, m), _columns(ct[1], m, n - m)
        inner = add(ct[0], product(_columns(a, m, n - m), flip(right)))
        result = _beside(_deep_adjoint(inner, left, q, _columns(r, 0, m)), product(q, right), a)
    needed = REGISTRY["bit_or"](used(ct[0], 2), used(upper_part(ct[1]), 2))
    return (keep(needed, result),)


def _deep_adjoint(ct_q: Any, ct_r: Any, q: Any, r: Any) -> Any:
    """The rule for matrices that have at least as many rows as columns."""
    inner = sub(product(r, flip(upper_part(ct_r))), product(flip(ct_q), q))
    mirrored = add(lower_part(inner), flip(triangles(inner, below=1.0, diagonal=0.0, above=0.0)))
    total = add(ct_q, product(q, mirrored))
    return flip(solve_triangular(r, flip(total), upper=True))


def _columns(t: Any, first: int, count: int) -> Any:
    shape = shape_of(t)
    starts = (*(0,) * (len(shape) - 1), first)
    return tile_slice(t, *starts, sizes=(*shape[:-1], count), steps=(1,) * len(shape))


def _beside(left: Any, right: Any, like: Any) -> Any:
    """Two tiles next to each other in a tile of the shape of `like`."""
    insert, ndim = REGISTRY["tile_insert"], len(shape_of(like))
    starts = (0,) * (ndim - 1)
    made = insert(zeros_like(like), left, *starts, 0, steps=(1,) * ndim)
    return insert(made, right, *starts, shape_of(left)[-1], steps=(1,) * ndim)


@lower(tile_qr)
def _tile_qr_lower(e: Emitter, outs: list[Buffer], a: Buffer) -> None:
    source, qs, rs = stack_of(a), stack_of(outs[0]), stack_of(outs[1])
    m, n, dtype = a.shape[-2], a.shape[-1], working(a.dtype)
    count = min(m, n)
    r, q, scales = Work(e, dtype, m, n), Work(e, dtype, m, count), Work(e, dtype, 1, count)
    zero = e.const(0, dtype)

    def matrix(index: Reg) -> None:
        r.take(source, index)
        each(e, 0, count, lambda k: _emit_reflect_column(e, r, scales, k))
        q.fill(lambda i, at: e.select(e.compare("eq", e.lanes_of(at), i), e.const(1, dtype), zero))
        each_down(e, count, 0, lambda k: _emit_reflect(e, r, scales.get(0, k), k, q, k))
        q.give(qs, index)
        r.give(rs, index, lambda i, at, x: e.select(e.compare("ge", e.lanes_of(at), i), x, zero))

    each_matrix(e, source.shape[0], matrix)


def _emit_reflect_column(e: Emitter, r: Work, scales: Work, k: Reg) -> None:
    beta, scale, divisor = _reflection(e, r, k)
    each(e, following(e, k), r.rows, lambda i: r.set(i, k, e.div(r.get(i, k), divisor)))
    r.set(k, k, beta)
    scales.set(0, k, scale)
    _emit_reflect(e, r, scale, k, r, following(e, k))


def _reflection(e: Emitter, r: Work, k: Reg) -> tuple[Reg, Reg, Reg]:
    """The new diagonal element of column k, the scale of the reflection, and what its vector must be divided by."""
    zero, one, first = e.const(0, r.dtype), e.const(1, r.dtype), following(e, k)
    (size,) = e.loop(first, r.rows, 1, [zero], lambda i, x: [e.maximum(x, e.abs(r.get(i, k)))])
    size = e.select(e.compare("gt", size, zero), size, one)

    def square(i: Reg, total: Reg) -> list[Reg]:
        part = e.div(r.get(i, k), size)
        return [e.add(total, e.mul(part, part))]

    norm = e.mul(size, e.sqrt(e.loop(first, r.rows, 1, [zero], square)[0]))
    alpha = r.get(k, k)
    top = e.maximum(e.abs(alpha), norm)
    a, b = e.div(alpha, top), e.div(norm, top)
    length = e.mul(top, e.sqrt(e.add(e.mul(a, a), e.mul(b, b))))
    none = e.compare("eq", norm, zero)
    beta = e.select(none, alpha, e.neg(e.copysign(length, alpha)))
    scale = e.select(none, zero, e.div(e.sub(beta, alpha), beta))
    return beta, scale, e.select(none, one, e.sub(alpha, beta))


def _emit_reflect(e: Emitter, r: Work, scale: Reg, k: Reg, x: Work, first: Reg) -> None:
    """Apply the reflection whose vector is in column k of r below the diagonal to the columns of x from `first` on."""
    below = following(e, k)

    def part(at: Coord) -> None:
        inside = e.compare("ge", e.lanes_of(at), first)
        top = x.row(k, at)
        (total,) = e.loop(below, r.rows, 1, [top], lambda i, t: [e.add(t, e.mul(r.get(i, k), x.row(i, at)))])
        total = e.mul(total, scale)

        def subtract(i: Any, share: Reg) -> None:
            old = x.row(i, at)
            x.put(i, at, e.select(inside, e.sub(old, share), old))

        subtract(k, total)
        each(e, below, r.rows, lambda i: subtract(i, e.mul(r.get(i, k), total)))

    x.across(first, part)


@samples(tile_qr)
def _tile_qr_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for m, n in ((5, 3), (3, 5), (1, 1), (4, 4), (1, 3), (3, 1), (20, 18)):
        yield Sample((np.eye(m, n) + rng.standard_normal((m, n)) / 4,))
    yield Sample((np.eye(4, 3) + rng.standard_normal((2, 3, 4, 3)) / 4,))
    for d in (dt.float16, dt.bfloat16, dt.float32):
        yield Sample(((np.eye(6, 4) + rng.standard_normal((6, 4)) / 4).astype(d.np),))
    yield Sample(
        (np.array([[[1, 2], [0, 3]], [[0, 0], [0, 0]], [[1, 2], [2, np.nan]], [[-3, 1], [4, 1]]], np.float32),)
    )


@spelled(tile_qr)
def _tile_qr_call(A: Any) -> Any:
    require_matrix("tile_qr", "A", require_tile("tile_qr", "A", A))
    return widened(tile_qr, A)


PUBLIC = {"tile_qr": tile_qr}
