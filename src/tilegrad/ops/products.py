"""Products of tiles other than matrix products, and what belongs to the diagonal of a matrix.

Dot and outer products, `dest += alpha * src`, diagonals, traces and triangles. Where a tile holds matrices they are its
last two axes, and the axes before them are a batch. Tiles of vectors, matrices or quaternions count part by part.
Does not solve or factor anything, and does not multiply matrices (see `matmul`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, leaves, map_parts
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import StructType
from tilegrad.emit import Coord, Emitter, Index, Reg, Source
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.indexing import constant_of
from tilegrad.ops.matmul import carrier, factor_of
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of, tile_reshape

Shape = tuple[int, ...]


# --- checks -----------------------------------------------------------------------------------------------------------


def _require_tiles(what: str, name: str, x: Any) -> TileType:
    """The type of a tile, or of each part of a tile of composites, none of which is a struct."""
    if isinstance(x, Composite) and isinstance(x.kind, StructType):
        raise TypeMismatch(f"{what} is not defined for tiles of the struct {x.kind}", help="name a member of it")
    return require_tile(what, name, next(leaves(x)))


def _require_equal(what: str, names: tuple[str, str], x: Any, y: Any) -> TileType:
    """Two tiles must be of one element type and shape."""
    a, b = _require_tiles(what, names[0], x), _require_tiles(what, names[1], y)
    kinds = tuple(t.kind if isinstance(t, Composite) else k.dtype for t, k in ((x, a), (y, b)))
    if kinds[0] is not kinds[1]:
        raise TypeMismatch(
            f"{what}: the tiles have different types: {kinds[0]} and {kinds[1]}",
            help=f"convert one, for example tile_astype({names[1]}, {kinds[0]})",
        )
    _require_numbers(what, a)
    if a.shape != b.shape:
        raise ShapeMismatch(
            f"{what}: the tiles have different shapes: {a.shape} and {b.shape}",
            help="make them equal with tile_reshape or tile_broadcast",
        )
    return a


def _require_numbers(what: str, t: TileType) -> None:
    if t.dtype.kind == "b":
        raise TypeMismatch(f"{what} is not defined for bool", help="convert with tile_astype(t, tilegrad.int32)")


def _require_matrices(what: str, t: TileType) -> Shape:
    """The extents of the matrices in a tile."""
    if t.ndim < 2:
        raise ShapeMismatch(f"{what}: the tile must have 2 dimensions or more, it is {describe(t)}")
    return t.shape[-2:]


def _constant(what: str, k: Any) -> int:
    known = constant_of(k)
    if known is None:
        raise TypeMismatch(f"{what}: k must be a compile-time integer", help="use a literal or a global constant")
    return known


def _part_by_part(f: Callable[..., Any], x: Any, *others: Any) -> Any:
    """f on a tile, or on each part of a tile of composites."""
    if isinstance(x, Composite):
        return map_parts(lambda *parts: f(*map(unwrap, parts)), x, *others)
    return f(*map(unwrap, (x, *others)))


def _as(t: Any, dtype: DType) -> Any:
    return t if t.type.dtype is dtype else REGISTRY["astype"](t, dtype=dtype)


# --- products ---------------------------------------------------------------------------------------------------------


def tile_dot(a: Any, b: Any) -> Any:
    """The sum of the products of corresponding elements of two tiles.

    Args:
        a, b: tiles of one shape and element type, of any rank. Of vectors, matrices and quaternions all parts count:
            the dot product of vectors, the Frobenius product of matrices.

    Returns: a tile (1,) of the scalar type. float32 is multiplied and summed in float64, 16-bit floats in float32,
    and rounded once; float64 is summed pairwise; integers wrap.
    Raises: ShapeMismatch or TypeMismatch if shapes or types differ.
    Gradient: ct * b for a and ct * a for b.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_store(y, tg.tile_dot(t, t))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [14.0]
    """
    t = _require_equal("tile_dot", ("a", "b"), a, b)
    wide = dt.float64 if t.dtype is dt.float32 else carrier(t.dtype)
    total: Any = None
    for x, y in zip(leaves(a), leaves(b), strict=True):
        product = REGISTRY["mul"](_as(unwrap(x), wide), _as(unwrap(y), wide))
        total = product if total is None else REGISTRY["add"](total, product)
    return _as(REGISTRY["tile_sum"](total, axes=tuple(range(t.ndim))), t.dtype)


def tile_axpy(alpha: Any, src: Any, dest: Any) -> None:
    """dest += alpha * src, in place.

    Args:
        alpha: a number, or a scalar of the tiles' scalar type or float32, the same for the whole block.
        src: tile.
        dest: tile of the same shape and element type; it may be `src`, or a view.

    Raises: ShapeMismatch or TypeMismatch if shapes or types differ.
    Gradient: sum(ct * src) for alpha, alpha * ct for src, ct for the old `dest`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float], alpha: float):
        ...     t = tg.tile_ones(shape=4, dtype=float)
        ...     tg.tile_axpy(alpha, tg.tile_load(x, shape=4), t)
        ...     tg.tile_store(y, t)
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y, 2.0])
        >>> y.tolist()
        [1.0, 3.0, 5.0, 7.0]
    """
    dtype = _require_equal("tile_axpy", ("src", "dest"), src, dest).dtype
    if isinstance(alpha, Composite):
        raise TypeMismatch(f"tile_axpy: alpha must be a number, it is a {alpha.kind}")
    factor = factor_of("tile_axpy", "alpha", alpha, dtype, dtype)
    wide = carrier(dtype)
    sums = []
    for x, y in zip(leaves(src), leaves(dest), strict=True):
        term = _as(unwrap(x), wide)
        term = term if factor.is_known(1) else REGISTRY["mul"](factor.parts[0], term)
        sums.append(_as(REGISTRY["add"](_as(unwrap(y), wide), term), dtype))
    for target, value in zip(leaves(dest), sums, strict=True):
        target.assign(value)


def tile_outer(a: Any, b: Any) -> Any:
    """The outer product: element [i, j] is a[i] * b[j].

    Args:
        a, b: tiles of numbers of one dtype; tiles of more than one dimension are taken row by row, as NumPy does.

    Returns: a tile (a.size, b.size).
    Gradient: ct @ b for a and a @ ct for b.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=2)
        ...     tg.tile_store(y, tg.tile_outer(t, t + 1.0))
        >>> x, y = np.array([2, 3], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[6.0, 8.0], [9.0, 12.0]]
    """
    for x in (a, b):
        if isinstance(x, Composite):
            raise TypeMismatch(f"tile_outer is not defined for tiles of {x.kind}", help="multiply the parts one by one")
    ta, tb = require_tile("tile_outer", "a", a), require_tile("tile_outer", "b", b)
    if ta.dtype is not tb.dtype:
        raise TypeMismatch(
            f"tile_outer: the tiles have different types: {ta.dtype} and {tb.dtype}",
            help=f"convert one, for example tile_astype(b, {ta.dtype})",
        )
    _require_numbers("tile_outer", ta)
    return REGISTRY["mul"](
        tile_reshape(unwrap(a), shape=(ta.size, 1)), tile_reshape(unwrap(b), shape=(1, tb.size))
    )  # fmt: skip


# --- diagonals --------------------------------------------------------------------------------------------------------


def _diagonal_length(m: int, n: int, k: int) -> int:
    """Elements [i, i + k] of an m by n matrix."""
    return max(0, min(m + min(k, 0), n - max(k, 0)))


@op()
def tile_diagonal(t: Tile, *, k: int = 0) -> Tile:
    """The diagonals of matrices: element i is t[..., i, i + k], or t[..., i - k, i] for a negative k.

    Gradient: the cotangent on that diagonal, zeros elsewhere.
    """
    return np.diagonal(t, k, -2, -1)


@infer(tile_diagonal)
def _tile_diagonal_infer(t: TileType, *, k: int = 0) -> Type:
    m, n = _require_matrices("tile_diag", t)
    length = _diagonal_length(m, n, k)
    if not length:
        raise ShapeMismatch(
            f"tile_diag: the diagonal {k} of a matrix {(m, n)} has no elements", help=f"k lies in [{1 - m}, {n - 1}]"
        )
    return TileType(t.dtype, (*t.shape[:-2], length))


@adjoint(tile_diagonal)
def _tile_diagonal_adjoint(ct: Any, out: Any, t: Any, *, k: int = 0) -> Any:
    m, n = shape_of(t)[-2:]
    return (tile_on_diagonal(ct, shape=(m, n), k=k),)


@lower(tile_diagonal)
def _tile_diagonal_lower(e: Emitter, at: Index, t: Source, *, k: int = 0) -> Reg:
    return t.at((*at[:-1], _later(e, at[-1], max(-k, 0)), _later(e, at[-1], max(k, 0))))


def _later(e: Emitter, c: Coord, distance: int) -> Coord:
    return Coord(e.add(e.i64(c.base), e.i64(distance)), c.step, c.gather) if distance else c


def _numbers(rng: np.random.Generator, d: DType, shape: Shape) -> Any:
    return rng.integers(0, 2 if d.kind == "b" else 50, shape).astype(d.np)


@samples(tile_diagonal)
def _tile_diagonal_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((_numbers(rng, d, (5, 5)),), {"k": 0})
    for shape, k in (((4, 7), 2), ((7, 4), -3), ((2, 3, 35, 40), 4), ((1, 1), 0), ((2, 1, 1, 2, 1, 1, 3, 2), -1)):
        yield Sample((rng.standard_normal(shape),), {"k": k})


@op()
def tile_on_diagonal(d: Tile, *, shape: tuple[int, int], k: int = 0) -> Tile:
    """Matrices of `shape` with `d` on the diagonal k and zeros elsewhere: the counterpart of `tile_diagonal`.

    Gradient: that diagonal of the cotangent.
    """
    result = np.zeros((*d.shape[:-1], *shape), d.dtype)
    i = np.arange(d.shape[-1])
    result[..., i + max(-k, 0), i + max(k, 0)] = d
    return result


@infer(tile_on_diagonal)
def _tile_on_diagonal_infer(d: TileType, *, shape: tuple[int, int], k: int = 0) -> Type:
    if _diagonal_length(*shape, k) != d.shape[-1]:
        raise ShapeMismatch(f"tile_diag: {d.shape[-1]} elements are not the diagonal {k} of a matrix {shape}")
    return TileType(d.dtype, (*d.shape[:-1], *shape))


@adjoint(tile_on_diagonal)
def _tile_on_diagonal_adjoint(ct: Any, out: Any, d: Any, *, shape: tuple[int, int], k: int = 0) -> Any:
    return (tile_diagonal(ct, k=k),)


@lower(tile_on_diagonal)
def _tile_on_diagonal_lower(e: Emitter, at: Index, d: Source, *, shape: tuple[int, int], k: int = 0) -> Reg:
    i, j = e.lanes_of(at[-2]), e.lanes_of(at[-1])
    position = e.minimum(e.maximum(_plus(e, i, min(k, 0)), e.i64(0)), e.i64(d.shape[-1] - 1))
    value = d.at((*at[:-2], e.coord(position)))
    zero = e.const(False if d.dtype.kind == "b" else 0, d.dtype)
    return e.select(e.compare("eq", _plus(e, i, k), j), value, zero)


def _plus(e: Emitter, i: Reg, distance: int) -> Reg:
    return e.add(i, e.i64(distance)) if distance else i


@samples(tile_on_diagonal)
def _tile_on_diagonal_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((_numbers(rng, d, (5,)),), {"shape": (5, 5), "k": 0})
    for lead, shape, k in (((), (4, 7), 2), ((2,), (7, 4), -3), ((2, 3), (35, 40), 4), ((), (1, 1), 0)):
        elements = rng.standard_normal((*lead, _diagonal_length(*shape, k)))
        yield Sample((elements,), {"shape": shape, "k": k})


def tile_diag(t: Any, k: Any = 0) -> Any:
    """A matrix with a tile on its diagonal, or the diagonals of matrices.

    Args:
        t: tile (n,), which becomes the diagonal of a matrix; or tile (..., m, n), whose diagonals are taken.
        k: which diagonal: [i, i + k]; a compile-time int.

    Returns: a tile (n + |k|, n + |k|) with zeros elsewhere; or a tile (..., l) with the l elements of each diagonal.
    Gradient: the cotangent's diagonal, or the cotangent on the diagonal.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array2d[float], z: tg.array1d[float]):
        ...     m = tg.tile_diag(tg.tile_load(x, shape=2))
        ...     tg.tile_store(y, m)
        ...     tg.tile_store(z, tg.tile_diag(m + 1.0))
        >>> x, y, z = np.array([2, 3], np.float32), np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y, z])
        >>> y.tolist(), z.tolist()
        ([[2.0, 0.0], [0.0, 3.0]], [3.0, 4.0])
    """
    kind = _require_tiles("tile_diag", "t", t)
    offset = _constant("tile_diag", k)
    if kind.ndim > 1:
        return _part_by_part(lambda part: tile_diagonal(part, k=offset), t)
    n = kind.size + abs(offset)
    return _part_by_part(lambda part: tile_on_diagonal(part, shape=(n, n), k=offset), t)


def tile_trace(t: Any) -> Any:
    """The sum of the diagonal of a matrix.

    Args:
        t: tile (..., m, n).

    Returns: a tile of the leading axes; (1,) for one matrix. bool, int8 and int16 give int32 (unsigned: uint32), as
    in `tile_sum`.
    Gradient: the cotangent on the diagonal.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_trace(tg.tile_load(x, shape=(2, 2))))
        >>> x, y = np.array([[1, 2], [3, 4]], np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [5.0]
    """
    kind = _require_tiles("tile_trace", "t", t)
    _require_matrices("tile_trace", kind)
    return _part_by_part(lambda part: REGISTRY["tile_sum"](tile_diagonal(part, k=0), axes=(kind.ndim - 2,)), t)


@op("tile_diag_add")
def add_to_diagonal(a: Tile, d: Tile) -> Tile:
    """Square matrices with the tile `d` added to their diagonals; see `tile_diag_add`.

    Gradient: the cotangent for a, its diagonal for d.
    """
    result = np.array(a)
    i = np.arange(a.shape[-1])
    result[..., i, i] += d
    return result


@infer(add_to_diagonal)
def _add_to_diagonal_infer(a: TileType, d: TileType) -> Type:
    m, n = _require_matrices("tile_diag_add", a)
    if m != n:
        raise ShapeMismatch(f"tile_diag_add: the matrix must be square, it is {describe(a)}")
    if d.shape != a.shape[:-1]:
        raise ShapeMismatch(
            f"tile_diag_add: `a` is {describe(a)}, so `d` must have the shape {a.shape[:-1]}; it is {describe(d)}"
        )
    if a.dtype is not d.dtype:
        raise TypeMismatch(
            f"tile_diag_add: the tiles have different types: {a.dtype} and {d.dtype}",
            help=f"convert one, for example tile_astype(d, {a.dtype})",
        )
    _require_numbers("tile_diag_add", a)
    return a


@adjoint(add_to_diagonal)
def _add_to_diagonal_adjoint(ct: Any, out: Any, a: Any, d: Any) -> Any:
    return ct, tile_diagonal(ct, k=0)


@lower(add_to_diagonal)
def _add_to_diagonal_lower(e: Emitter, at: Index, a: Source, d: Source) -> Reg:
    wide = carrier(a.dtype)
    old = a.at(at)
    total = e.cast(e.add(e.cast(old, wide), e.cast(d.at(at[:-1]), wide)), a.dtype)
    return e.select(e.compare("eq", e.lanes_of(at[-2]), e.lanes_of(at[-1])), total, old)


@samples(add_to_diagonal)
def _add_to_diagonal_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample((_numbers(rng, d, (5, 5)), _numbers(rng, d, (5,))))
    for shape in ((1, 1), (3, 19, 19), (2, 1, 2, 1, 1, 1, 3, 3)):
        yield Sample((rng.standard_normal(shape), rng.standard_normal(shape[:-1])))


def tile_diag_add(a: Any, d: Any) -> Any:
    """A new tile a + diag(d): the square matrices of `a` with `d` added to their diagonals.

    Args:
        a: tile (..., n, n).
        d: tile (..., n) of the same dtype, or (n,) for all matrices of a batch.

    Returns: a tile of the shape of a.
    Raises: ShapeMismatch if the matrices are not square or d does not fit, TypeMismatch if the dtypes differ.
    Gradient: the cotangent for a, its diagonal for d.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=(2, 2))
        ...     tg.tile_store(y, tg.tile_diag_add(t, tg.tile_ones(shape=2, dtype=float)))
        >>> x, y = np.array([[1, 2], [3, 4]], np.float32), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[2.0, 2.0], [3.0, 5.0]]
    """
    ta, td = _require_tiles("tile_diag_add", "a", a), _require_tiles("tile_diag_add", "d", d)
    if isinstance(a, Composite) != isinstance(d, Composite):
        raise TypeMismatch("tile_diag_add: the elements of the tiles have different types")
    lead = ta.shape[:-1]
    if td.ndim == 1 and len(lead) > 1 and td.shape == lead[-1:]:
        d = _part_by_part(lambda part: REGISTRY["tile_broadcast"](part, shape=lead), d)
    return _part_by_part(add_to_diagonal, a, d)


# --- triangles --------------------------------------------------------------------------------------------------------


@op()
def tile_triangle(t: Tile, *, k: int = 0, upper: bool = False) -> Tile:
    """Matrices with zeros above the diagonal k, or below it if `upper`; see `tile_tril` and `tile_triu`.

    Gradient: the same triangle of the cotangent.
    """
    return np.triu(t, k) if upper else np.tril(t, k)


@infer(tile_triangle)
def _tile_triangle_infer(t: TileType, *, k: int = 0, upper: bool = False) -> Type:
    _require_matrices("tile_triu" if upper else "tile_tril", t)
    return t


@adjoint(tile_triangle)
def _tile_triangle_adjoint(ct: Any, out: Any, t: Any, *, k: int = 0, upper: bool = False) -> Any:
    return (tile_triangle(ct, k=k, upper=upper),)


@lower(tile_triangle)
def _tile_triangle_lower(e: Emitter, at: Index, t: Source, *, k: int = 0, upper: bool = False) -> Reg:
    i, j = _plus(e, e.lanes_of(at[-2]), k), e.lanes_of(at[-1])
    zero = e.const(False if t.dtype.kind == "b" else 0, t.dtype)
    return e.select(e.compare("ge" if upper else "le", j, i), t.at(at), zero)


@samples(tile_triangle)
def _tile_triangle_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((_numbers(rng, d, (5, 7)),), {"k": 1, "upper": bool(d.bits > 16)})
    for shape, k in (((4, 4), 0), ((2, 3, 19), -1), ((1, 2, 1, 2, 1, 2, 5, 3), 9), ((3, 3), -5)):
        for upper in (False, True):
            yield Sample((rng.standard_normal(shape),), {"k": k, "upper": upper})


def _triangle(what: str, t: Any, k: Any, upper: bool) -> Any:
    _require_matrices(what, _require_tiles(what, "t", t))
    offset = _constant(what, k)
    return _part_by_part(lambda part: tile_triangle(part, k=offset, upper=upper), t)


def tile_tril(t: Any, k: Any = 0) -> Any:
    """The lower triangles of matrices: a tile with zeros above the diagonal k.

    Args:
        t: tile (..., m, n).
        k: the last diagonal that is kept, [i, i + k]; a compile-time int.

    Gradient: the lower triangle of the cotangent.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float]):
        ...     tg.tile_store(x, tg.tile_tril(tg.tile_load(x, shape=(2, 2))))
        >>> x = np.array([[1, 2], [3, 4]], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x])
        >>> x.tolist()
        [[1.0, 0.0], [3.0, 4.0]]
    """
    return _triangle("tile_tril", t, k, upper=False)


def tile_triu(t: Any, k: Any = 0) -> Any:
    """The upper triangles of matrices: a tile with zeros below the diagonal k.

    Args:
        t: tile (..., m, n).
        k: the first diagonal that is kept, [i, i + k]; a compile-time int.

    Gradient: the upper triangle of the cotangent.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float]):
        ...     tg.tile_store(x, tg.tile_triu(tg.tile_load(x, shape=(2, 2)), k=1))
        >>> x = np.array([[1, 2], [3, 4]], np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x])
        >>> x.tolist()
        [[0.0, 2.0], [0.0, 0.0]]
    """
    return _triangle("tile_triu", t, k, upper=True)


PUBLIC = {
    "tile_dot": tile_dot,
    "tile_axpy": tile_axpy,
    "tile_outer": tile_outer,
    "tile_diag": tile_diag,
    "tile_diag_add": tile_diag_add,
    "tile_trace": tile_trace,
    "tile_tril": tile_tril,
    "tile_triu": tile_triu,
}
