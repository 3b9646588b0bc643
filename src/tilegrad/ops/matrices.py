"""What the linear algebra of tiles shares: checks of matrices, pieces of adjoints, and matrices in working memory.

A tile of shape (..., n, m) holds one matrix for each index of its leading axes. Factorisations work row by row, with
the elements of a row side by side in vector registers. 16-bit floats are factored in float32 and rounded once.
Does not define what a user can call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.indexing import zeros_like
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of, tile_broadcast, tile_reshape, tile_transpose

Host = Any
Batch = tuple[int, ...]

# --- checks ---------------------------------------------------------------------------------------------------------


def require_matrix(what: str, name: str, t: TileType) -> tuple[int, int]:
    """The extents of the matrices in a tile of floats with at least two axes."""
    if not t.dtype.is_float:
        raise TypeMismatch(
            f"{what}: `{name}` must hold floats, it is {describe(t)}", help=f"write tile_astype({name}, float32)"
        )
    if t.ndim < 2:
        raise ShapeMismatch(
            f"{what}: `{name}` must be a matrix, or a stack of them along leading axes; it is {describe(t)}",
            help=f"write tile_reshape({name}, (n, m))",
        )
    return t.shape[-2], t.shape[-1]


def require_square(what: str, name: str, t: TileType) -> int:
    """The extent of the square matrices in a tile."""
    rows, columns = require_matrix(what, name, t)
    if rows != columns:
        raise ShapeMismatch(f"{what}: `{name}` must be square in its last two axes, it is {describe(t)}")
    return rows


def require_system(what: str, names: tuple[str, str], a: TileType, b: TileType) -> None:
    """Matrices (..., n, n) and right-hand sides (..., n, k) of one dtype with equal leading axes."""
    n = require_square(what, names[0], a)
    if a.dtype is not b.dtype:
        raise TypeMismatch(
            f"{what}: `{names[0]}` is {describe(a)} and `{names[1]}` is {describe(b)}",
            help=f"convert one, for example tile_astype({names[1]}, {a.dtype})",
        )
    if b.ndim < 2 or b.shape[-2] != n or b.shape[:-2] != a.shape[:-2]:
        raise ShapeMismatch(
            f"{what}: `{names[0]}` is {describe(a)}, which does not fit `{names[1]}`, {describe(b)}",
            help=f"a right-hand side is a vector ({n},), or matrices (..., {n}, k); a stack of vectors t becomes one "
            f"of matrices by tile_reshape(t, (..., {n}, 1))",
        )


def require_fill_mode(what: str, fill_mode: Any) -> bool:
    """Whether the upper triangle is meant."""
    if fill_mode not in ("lower", "upper"):
        raise TypeMismatch(f'{what}: fill_mode must be "lower" or "upper", it is {fill_mode!r}')
    return bool(fill_mode == "upper")


# --- calls ----------------------------------------------------------------------------------------------------------


def widened(f: Callable[..., Any], *tiles: Any) -> Any:
    """f(*tiles); if the tiles hold 16-bit floats, it and its gradient are computed in float32 and rounded once."""
    values = [unwrap(t) for t in tiles]
    dtype = values[0].type.dtype
    if not dtype.is_half:
        return f(*values)
    made = f(*(_cast(v, dtype, dt.float32) for v in values))
    return (
        tuple(_cast(v, dt.float32, dtype) for v in made) if isinstance(made, tuple) else _cast(made, dt.float32, dtype)
    )


def _cast(t: Any, source: DType, target: DType) -> Any:
    """A tile of dtype `source` as one of `target`; others stay."""
    return REGISTRY["astype"](t, dtype=target) if t.type.dtype is source else t


def on_system(what: str, names: tuple[str, str], f: Callable[..., Any], a: Any, b: Any, *more: Any) -> Any:
    """f(a, b, *more) with `b` as matrices; a vector becomes one column, and leading axes are broadcast, as in NumPy."""
    ta, tb = require_tile(what, names[0], a), require_tile(what, names[1], b)
    require_square(what, names[0], ta)
    vector = tb.ndim == 1
    column = tile_reshape(unwrap(b), shape=(*tb.shape, 1)) if vector else unwrap(b)
    extras = [unwrap(x) for x in more]
    lead = _shared_lead(what, names, ta, column.type)
    operands = [_with_lead(unwrap(a), lead, 2), _with_lead(column, lead, 2)]
    require_system(what, names, operands[0].type, operands[1].type)
    made = widened(f, *operands, *(_with_lead(x, lead, 1) for x in extras))
    return tile_reshape(made, shape=(*lead, tb.shape[0])) if vector else made


def _shared_lead(what: str, names: tuple[str, str], a: TileType, b: TileType) -> Batch:
    try:
        return tuple(int(n) for n in np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except ValueError:
        raise ShapeMismatch(
            f"{what}: the leading axes of `{names[0]}`, {describe(a)}, and `{names[1]}`, {describe(b)}, do not fit"
        ) from None


def _with_lead(t: Any, lead: Batch, own: int) -> Any:
    shape = (*lead, *shape_of(t)[len(shape_of(t)) - own :])
    return t if shape_of(t) == shape else tile_broadcast(t, shape=shape)


# --- pieces of adjoints ---------------------------------------------------------------------------------------------


def flip(t: Any) -> Any:
    """Every matrix of a tile transposed."""
    ndim = len(shape_of(t))
    return tile_transpose(t, axes=(*range(ndim - 2), ndim - 1, ndim - 2))


def product(a: Any, b: Any) -> Any:
    """The matrix products of two tiles with equal leading axes."""
    return REGISTRY["tile_matmul"](a, b)


def used(ct: Any, axes: int) -> Any:
    """Where any element along the last `axes` axes of a cotangent but the last is not zero, as bools to broadcast.

    With 1: for each column of each matrix; with 2: for each matrix.
    """
    ndim = len(shape_of(ct))
    over = (ndim - 2,) if axes == 1 else (ndim - 2, ndim - 1)
    return REGISTRY["tile_max"](REGISTRY["ne"](ct, zeros_like(ct)), axes=over, keepdims=True)


def keep(where: Any, t: Any) -> Any:
    """`t` where a mask holds, else 0: what belongs to a zero cotangent is dropped, whatever it is."""
    return REGISTRY["where"](spread(where, t), t, zeros_like(t))


def spread(x: Any, t: Any) -> Any:
    """`x` broadcast to the shape of `t`."""
    return x if shape_of(x) == shape_of(t) else tile_broadcast(x, shape=shape_of(t))


def scaled(t: Any, factor: float) -> Any:
    return REGISTRY["mul"](t, full_like(t, factor))


def full_like(t: Any, value: float) -> Any:
    """A tile like `t`, filled with one value."""
    if not hasattr(t, "type"):
        return np.full_like(t, value)
    return REGISTRY["tile_full"](t.type.dtype(value), shape=shape_of(t))


# --- triangles ------------------------------------------------------------------------------------------------------


@op("tile_triangles")
def triangles(t: Tile, *, below: float, diagonal: float, above: float) -> Tile:
    """Every matrix of a tile with its parts below, on and above the diagonal multiplied by a weight; 0 drops a part.

    Gradient: the cotangent, treated in the same way.
    """
    i, j = np.ogrid[: t.shape[-2], : t.shape[-1]]
    weight = np.where(i > j, below, np.where(i == j, diagonal, above)).astype(t.dtype)
    return np.where(weight == 0, np.zeros_like(t), t * weight)


@infer(triangles)
def _triangles_infer(t: TileType, *, below: float, diagonal: float, above: float) -> Type:
    require_matrix("tile_triangles", "t", t)
    return t


@adjoint(triangles)
def _triangles_adjoint(ct: Any, out: Any, t: Any, *, below: float, diagonal: float, above: float) -> Any:
    return (triangles(ct, below=below, diagonal=diagonal, above=above),)


@lower(triangles)
def _triangles_lower(e: Emitter, at: Index, t: Any, *, below: float, diagonal: float, above: float) -> Reg:
    wide = working(t.dtype)
    i, j, x = e.lanes_of(at[-2]), e.lanes_of(at[-1]), e.cast(t.at(at), wide)

    def part(weight: float) -> Reg:
        return e.const(0, wide) if weight == 0 else x if weight == 1 else e.mul(x, e.const(weight, wide))

    low = e.select(e.compare("gt", i, j), part(below), part(diagonal))
    return e.cast(e.select(e.compare("lt", i, j), part(above), low), t.dtype)


@samples(triangles)
def _triangles_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.FLOATS:
        t = rng.integers(-9, 9, (5, 5)).astype(d.np)
        yield Sample((t,), {"below": 1.0, "diagonal": 0.5, "above": 0.0})
    yield Sample((rng.standard_normal((2, 3, 19)),), {"below": 0.0, "diagonal": 1.0, "above": 2.0})
    yield Sample((rng.standard_normal((7, 2)),), {"below": 1.0, "diagonal": 0.0, "above": 0.0})


def lower_part(t: Any, diagonal: float = 1.0) -> Any:
    """The lower triangle, with a weight for the diagonal."""
    return triangles(t, below=1.0, diagonal=diagonal, above=0.0)


def upper_part(t: Any, diagonal: float = 1.0) -> Any:
    """The upper triangle, with a weight for the diagonal."""
    return triangles(t, below=0.0, diagonal=diagonal, above=1.0)


# --- bodies ---------------------------------------------------------------------------------------------------------


def wide(x: Host) -> Host:
    """A fresh copy of an array, in float32 if it holds 16-bit floats."""
    return np.array(x, working(dt.of_array(x)).np)


# --- working memory -------------------------------------------------------------------------------------------------

#: elements of a row that are worked on at once: several registers, so that sums need not wait for each other
LANES = 32


def working(dtype: DType) -> DType:
    """The dtype in which a matrix is factored."""
    return dt.float32 if dtype.is_half else dtype


def stack_of(buffer: Buffer, axes: int = 2) -> Buffer:
    """The buffer with its leading axes as one: a stack of matrices, or with `axes=1` of vectors."""
    lead = buffer.shape[: len(buffer.shape) - axes]
    return Buffer(buffer.dtype, buffer.ptr, (math.prod(lead), *buffer.shape[len(lead) :]))


def each(e: Emitter, start: Any, stop: Any, body: Callable[[Reg], None]) -> None:
    """body(i) for i from start up to stop, in order."""

    def turn(i: Reg) -> Sequence[Reg]:
        body(i)
        return []

    e.loop(start, stop, 1, [], turn)


def each_down(e: Emitter, start: Any, stop: Any, body: Callable[[Reg], None]) -> None:
    """body(i) for i from start - 1 down to stop."""
    last = e.sub(e.i64(start), e.const(1, dt.int64))
    each(e, 0, e.sub(e.i64(start), e.i64(stop)), lambda k: body(e.sub(last, k)))


def each_matrix(e: Emitter, count: int, body: Callable[[Reg], None]) -> None:
    """body(index) for every matrix of a stack."""
    if count == 1:
        body(e.const(0, dt.int64))
    else:
        each(e, 0, count, body)


def following(e: Emitter, i: Reg) -> Reg:
    """i + 1."""
    return e.add(i, e.const(1, dt.int64))


class Work:
    """A matrix in working memory. Its rows are padded with zeros to whole vectors, which are worked on at once."""

    def __init__(self, e: Emitter, dtype: DType, rows: int, columns: int) -> None:
        self.e = e
        self.rows, self.columns = rows, columns
        self.lanes = min(LANES, 1 << (columns - 1).bit_length())
        self.width = -(-columns // self.lanes) * self.lanes
        self.buffer = e.scratch(dtype, (rows, self.width))
        self.dtype = dtype

    def get(self, i: Any, j: Any) -> Reg:
        return self.e.load(self.buffer, (Coord(i), Coord(j)))

    def set(self, i: Any, j: Any, x: Reg) -> None:
        self.e.store(self.buffer, (Coord(i), Coord(j)), x)

    def row(self, i: Any, at: Coord) -> Reg:
        """Part of a row."""
        return self.e.load(self.buffer, (Coord(i), at))

    def put(self, i: Any, at: Coord, x: Reg) -> None:
        """Write part of a row."""
        self.e.store(self.buffer, (Coord(i), at), x)

    def across(self, first: Reg | None, body: Callable[[Coord], None], stop: Reg | None = None) -> None:
        """body(at) for the vectors of columns from that of `first` on, up to `stop` (None: all)."""
        e = self.e

        def vector(j: Reg) -> None:
            def point(at: Index) -> None:
                body(Coord(e.add(j, e.i64(at[0].base)), at[0].step))

            e.points((self.lanes,), point, width=self.lanes)

        if self.width == self.lanes:
            vector(e.const(0, dt.int64))
            return
        start = e.const(0, dt.int64) if first is None else e.and_(first, e.const(-self.lanes, dt.int64))

        def turn(j: Reg) -> Sequence[Reg]:
            vector(j)
            return []

        e.loop(start, self.width if stop is None else stop, self.lanes, [], turn)

    def fill(self, element: Callable[[Reg, Coord], Reg]) -> None:
        """Set every element to element(i, at), cast; `at` are the columns of a vector of them."""
        e = self.e
        each(e, 0, self.rows, lambda i: self._fill_row(i, element))

    def _fill_row(self, i: Reg, element: Callable[[Reg, Coord], Reg]) -> None:
        e = self.e
        if self.width != self.columns:
            last, zero = e.i64(self.width - self.lanes), e.const(0, self.dtype)
            e.points((self.lanes,), lambda at: self.put(i, Coord(e.add(last, e.i64(at[0].base)), at[0].step), zero))
        e.points((self.columns,), lambda at: self.put(i, at[0], e.cast(element(i, at[0]), self.dtype)))

    def take(self, stack: Buffer, index: Reg, flipped: bool = False) -> None:
        """Copy one matrix of a stack, or its transpose."""
        self.fill(lambda i, at: element_of(self.e, stack, index, i, at, flipped))

    def give(self, stack: Buffer, index: Reg, finish: Callable[[Reg, Coord, Reg], Reg] | None = None) -> None:
        """Copy the matrix into a stack, through finish(i, at, x)."""
        e, rows, columns = self.e, stack.shape[-2], stack.shape[-1]

        def row(i: Reg) -> None:
            def point(at: Index) -> None:
                x = self.row(i, at[0])
                x = x if finish is None else finish(i, at[0], x)
                e.store(stack, (Coord(index), Coord(i), at[0]), e.cast(x, stack.dtype))

            e.points((columns,), point)

        each(e, 0, rows, row)


def element_of(e: Emitter, stack: Buffer, index: Reg, i: Reg, at: Coord, flipped: bool) -> Reg:
    """Elements (i, at) of one matrix of a stack, or of its transpose."""
    place = (at, Coord(i)) if flipped else (Coord(i), at)
    return e.load(stack, (Coord(index), *place))
