"""Index tiles into a tile: `t[idx, :]`, `t[idx] = v`, `t[idx] += v`, as NumPy means them.

One or several axes are indexed by tiles of integers of one shape. A negative index counts from the end, once; what is
still outside is an error that the launch raises. In an assignment the last of equal positions wins; in `+=` all of
them count, in row-major order of the index tiles (NumPy's `add.at`).
Does not broadcast the index tiles nor mix them with slices: the callers do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, broadcast_shapes, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.elements import wrap_index
from tilegrad.ops.indexing import zeros_like
from tilegrad.ops.memory import signed
from tilegrad.ops.shapes import require_axis, require_rank, require_tile
from tilegrad.ops.views import shape_of


def _split(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The extents of the axes that are not indexed."""
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def gathered_shape(shape: Sequence[int], index: tuple[int, ...], axes: Sequence[int], at: int) -> tuple[int, ...]:
    """The shape of `t[...]` with index tiles of shape `index` on `axes`, whose axes stand at `at` in the result."""
    rest = _split(shape, axes)
    return (*rest[:at], *index, *rest[at:])


def _check(what: str, t: TileType, index: Sequence[Type], axes: tuple[int, ...], at: int) -> tuple[int, ...]:
    if len(index) != len(axes) or not axes or not 0 <= at <= t.ndim - len(axes):
        raise ShapeMismatch(f"{what}: {len(index)} index tiles for axes {axes} of a tile {t.shape}")
    for x in index:
        if not isinstance(x, TileType) or not x.dtype.is_int:
            raise TypeMismatch(
                f"{what}: an index tile holds integers, this is {describe(x)}",
                help="convert it with tile_astype(idx, int); a bool mask of the tile's shape is for where(mask, a, b)",
            )
        if isinstance(index[0], TileType) and x.shape != index[0].shape:
            raise ShapeMismatch(f"{what}: index tiles of shapes {index[0].shape} and {x.shape}")
    assert isinstance(index[0], TileType)
    shape = gathered_shape(t.shape, index[0].shape, axes, at)
    require_rank(what, shape)
    return shape


def _selection(t: Any, index: Sequence[Any], axes: Sequence[int]) -> tuple[Any, tuple[Any, ...]]:
    """The tile with the indexed axes in front, as a view, and the checked indices."""
    extents = [t.shape[k] for k in axes]
    wrapped = _checked(index, extents, axes)
    return np.moveaxis(t, axes, range(len(axes))), wrapped


def _checked(index: Sequence[Any], extents: Sequence[int], axes: Sequence[int]) -> tuple[Any, ...]:
    spread: list[int] = [0] * (max(axes) + 1)
    places: list[Any] = [0] * (max(axes) + 1)
    for k, i, extent in zip(axes, index, extents, strict=True):
        spread[k], places[k] = extent, i
    full = wrap_index(places, [n or 1 for n in spread])
    return tuple(full[k] for k in axes)


def _moved(x: Any, index_ndim: int, at: int) -> Any:
    """A gathered tile with the axes of the index tiles in front."""
    return np.moveaxis(x, range(at, at + index_ndim), range(index_ndim))


@op(cls="block", cooperative=True)
def tile_gather(t: Tile, *index: Tile, axes: tuple[int, ...], at: int) -> Tile:
    """`t[idx, :]`: the elements of a tile at the places that index tiles name.

    Gradient: the cotangent is added at the same places of a tile of zeros; equal places add up.
    """
    front, wrapped = _selection(t, index, axes)
    picked = front[wrapped]
    ndim = np.ndim(index[0])
    return np.moveaxis(picked, range(ndim), range(at, at + ndim))


@infer(tile_gather)
def _tile_gather_infer(t: TileType, *index: Type, axes: tuple[int, ...], at: int) -> Type:
    return TileType(t.dtype, _check("t[...]", t, index, axes, at))


@adjoint(tile_gather)
def _tile_gather_adjoint(ct: Any, out: Any, t: Any, *index: Any, axes: tuple[int, ...], at: int) -> Any:
    return (tile_scatter_sum(zeros_like(t), ct, *index, axes=axes, at=at), *(None,) * len(index))


@lower(tile_gather)
def _tile_gather_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, *index: Buffer, axes: tuple[int, ...], at: int
) -> None:
    def row(b: Reg, places: Sequence[Coord], rows: Rows) -> None:
        rows.each(b, places, lambda own, place: e.store(rows.new, own, e.load(t, place)))

    rows = Rows(e, t, outs[0], index, axes, at)
    if rows.rest[at:]:
        rows.run(lambda b, places: row(b, places, rows))
    else:
        _gather_last(e, rows)


def _gather_last(e: Emitter, rows: Rows) -> None:
    """Index tiles on the last axes: vectors of indices."""

    def point(where: Index) -> None:
        lead, b = where[:-1], where[-1]
        places = [e.coord(_inside(e, e.load(flat, (b,)), n, k)) for flat, n, k in rows.indices()]
        e.store(rows.new, where, e.load(rows.t, rows.place(lead, places)))

    e.points((*rows.rest, rows.count), point)


class Rows:
    """The rows of a tile that index tiles name, for a lowering.

    `new` is the gathered tile with the axes of the index tiles made one; row b of it belongs to the places of b.
    """

    def __init__(
        self, e: Emitter, t: Buffer, new: Buffer, index: Sequence[Buffer], axes: tuple[int, ...], at: int
    ) -> None:
        self.e, self.t, self.axes, self.at = e, t, axes, at
        self.count = math.prod(index[0].shape)
        self.rest = _split(t.shape, axes)
        self.flat = [Buffer(i.dtype, i.ptr, (self.count,)) for i in index]
        self.new = Buffer(new.dtype, new.ptr, (*self.rest[:at], self.count, *self.rest[at:]))

    def indices(self) -> Iterator[tuple[Buffer, int, int]]:
        """Each index tile, and the extent and number of its axis."""
        for flat, k in zip(self.flat, self.axes, strict=True):
            yield flat, self.t.shape[k], k

    def run(self, row: Callable[[Reg, Sequence[Coord]], None]) -> None:
        """row(b, places) for every row, in order; a wrong index is reported, and taken as 0."""
        e = self.e

        def turn(b: Reg) -> Sequence[Reg]:
            places = [e.coord(_inside(e, e.load(flat, (Coord(b),)), n, k)) for flat, n, k in self.indices()]
            row(b, places)
            return []

        e.loop(0, self.count, 1, [], turn)

    def each(self, b: Reg, places: Sequence[Coord], body: Callable[[Index, Index], None]) -> None:
        """body(index in `new`, index in the tile) for the elements of row b."""

        def point(rest: Index) -> None:
            rest = rest[: len(self.rest)]
            body((*rest[: self.at], Coord(b), *rest[self.at :]), self.place(rest, places))

        self.e.points(self.rest or (1,), point)

    def place(self, rest: Index, places: Sequence[Coord]) -> Index:
        """The index in the tile that has `places` on the indexed axes."""
        others = iter(rest)
        return tuple(places[self.axes.index(k)] if k in self.axes else next(others) for k in range(len(self.t.shape)))


def _inside(e: Emitter, i: Reg, extent: int, axis: int) -> Reg:
    x = e.i64(signed(e, i))
    zero, n = e.const(0, dt.int64), e.const(extent, dt.int64)
    j = e.select(e.compare("lt", x, zero), e.add(x, n), x)
    ok = e.and_(e.compare("ge", j, zero), e.compare("lt", j, n))
    e.check(ok, "index", x, e.const(axis, dt.int64), n)
    return e.select(ok, j, zero)


#: (shape, shape of the index tiles, axes, at)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int], ...] = (
    ((5, 7), (3,), (0,), 0),
    ((5, 19), (11,), (1,), 1),
    ((6,), (21,), (0,), 0),
    ((4, 3, 5), (2, 3), (1,), 1),
    ((4, 3, 5), (6,), (0, 2), 0),
    ((4, 3, 5), (6,), (2, 1), 1),
    ((2, 3, 2, 2, 1, 2, 2, 3), (2,), (1, 7), 2),
)


def _cases(rng: np.random.Generator) -> Iterator[tuple[Any, Any, list[Any], dict[str, Any]]]:
    for d in dt.SCALARS:
        yield _case(rng, _CASES[0], d, dt.int32)
    for d in dt.INTEGERS:
        yield _case(rng, _CASES[1], dt.float64, d)
    for case in _CASES[2:]:
        yield _case(rng, case, dt.float64, dt.int64)


def _case(rng: np.random.Generator, case: Any, d: dt.DType, kind: dt.DType) -> tuple[Any, Any, list[Any], Any]:
    shape, index_shape, axes, at = case
    t, new = (
        rng.standard_normal(s) if d is dt.float64 else rng.integers(0, 2 if d.kind == "b" else 9, s).astype(d.np)
        for s in (shape, gathered_shape(shape, index_shape, axes, at))
    )
    low = [0 if kind.kind == "u" else -shape[k] for k in axes]
    index = [rng.integers(a, shape[k], index_shape).astype(kind.np) for a, k in zip(low, axes, strict=True)]
    return t, new, index, {"axes": axes, "at": at}


@samples(tile_gather)
def _tile_gather_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for t, _, index, attrs in _cases(rng):
        yield Sample((t, *index), attrs)


# --- assignment -----------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def tile_scatter(t: Tile, new: Tile, *index: Tile, axes: tuple[int, ...], at: int) -> Tile:
    """The tile with elements replaced at the places that index tiles name: what `t[idx, :] = new` leaves in t.

    Of equal places the last one wins.
    Gradient: the cotangent at a place goes to the element that was written there last, the rest to `t`.
    """
    result = np.array(t)
    front, wrapped = _selection(result, index, axes)
    values = _moved(new, np.ndim(index[0]), at)
    for b in np.ndindex(np.shape(index[0])):
        front[tuple(w[b] for w in wrapped)] = values[b]
    return result


@infer(tile_scatter)
def _tile_scatter_infer(t: TileType, new: TileType, *index: Type, axes: tuple[int, ...], at: int) -> Type:
    return _require_new("t[...] = ...", t, new, index, axes, at)


def _require_new(
    what: str, t: TileType, new: TileType, index: Sequence[Type], axes: tuple[int, ...], at: int
) -> TileType:
    shape = _check(what, t, index, axes, at)
    if new.shape != shape:
        raise ShapeMismatch(f"{what}: the index tiles name {shape} elements, the new ones are {new.shape}")
    if new.dtype is not t.dtype:
        raise TypeMismatch(
            f"{what}: the tile holds {t.dtype}, the new elements are {new.dtype}",
            help=f"write tile_astype(x, {t.dtype})",
        )
    return t


@adjoint(tile_scatter)
def _tile_scatter_adjoint(ct: Any, out: Any, t: Any, new: Any, *index: Any, axes: tuple[int, ...], at: int) -> Any:
    zeros = zeros_like(new)
    rest = tile_scatter(ct, zeros, *index, axes=axes, at=at)
    part = tile_gather(ct, *index, axes=axes, at=at)
    won = REGISTRY["where"](_winners(t, new, index, axes, at), part, zeros)
    return (rest, won, *(None,) * len(index))


def _winners(t: Any, new: Any, index: Sequence[Any], axes: tuple[int, ...], at: int) -> Any:
    """Which elements of `new` are the last at their place."""
    shape = shape_of(new)
    numbers = REGISTRY["tile_arange"](np.int32(0), np.int32(1), size=math.prod(shape))
    numbers = REGISTRY["tile_reshape"](numbers, shape=shape)
    nobody = REGISTRY["tile_full"](np.int32(-1), shape=shape_of(t))
    last = tile_scatter(nobody, numbers, *index, axes=axes, at=at)
    return REGISTRY["eq"](tile_gather(last, *index, axes=axes, at=at), numbers)


@lower(tile_scatter)
def _tile_scatter_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, new: Buffer, *index: Buffer, axes: tuple[int, ...], at: int
) -> None:
    (out,) = outs
    e.copy(out, t)
    rows = Rows(e, out, new, index, axes, at)
    rows.run(lambda b, places: rows.each(b, places, lambda own, place: e.store(out, place, e.load(rows.new, own))))


@samples(tile_scatter)
def _tile_scatter_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for t, new, index, attrs in _cases(rng):
        yield Sample((t, new, *index), attrs)


# --- accumulation ---------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def tile_scatter_sum(t: Tile, new: Tile, *index: Tile, axes: tuple[int, ...], at: int) -> Tile:
    """The tile with `new` added at the places that index tiles name: what `t[idx, :] += new` leaves in t.

    Equal places all count, one after another in row-major order of the index tiles.
    Gradient: the cotangent passes to `t`, and from each place to what was added there.
    """
    result = np.array(t)
    front, wrapped = _selection(result, index, axes)
    values = _moved(new, np.ndim(index[0]), at)
    for b in np.ndindex(np.shape(index[0])):
        front[tuple(w[b] for w in wrapped)] += values[b]
    return result


@infer(tile_scatter_sum)
def _tile_scatter_sum_infer(t: TileType, new: TileType, *index: Type, axes: tuple[int, ...], at: int) -> Type:
    if t.dtype.kind == "b":
        raise TypeMismatch("t[...] += ...: not defined for bool", help="use |= or an integer tile")
    return _require_new("t[...] += ...", t, new, index, axes, at)


@adjoint(tile_scatter_sum)
def _tile_scatter_sum_adjoint(ct: Any, out: Any, t: Any, new: Any, *index: Any, axes: tuple[int, ...], at: int) -> Any:
    return (ct, tile_gather(ct, *index, axes=axes, at=at), *(None,) * len(index))


@lower(tile_scatter_sum)
def _tile_scatter_sum_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, new: Buffer, *index: Buffer, axes: tuple[int, ...], at: int
) -> None:
    (out,) = outs
    e.copy(out, t)
    rows = Rows(e, out, new, index, axes, at)

    def add(own: Index, place: Index) -> None:
        e.store(out, place, plus(e, e.load(out, place), e.load(rows.new, own)))

    rows.run(lambda b, places: rows.each(b, places, add))


def plus(e: Emitter, x: Reg, y: Reg) -> Reg:
    """x + y; 16-bit floats add in float32 and round once."""
    if not x.dtype.is_half:
        return e.add(x, y)
    return e.cast(e.add(e.cast(x, dt.float32), e.cast(y, dt.float32)), x.dtype)


@samples(tile_scatter_sum)
def _tile_scatter_sum_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for t, new, index, attrs in _cases(rng):
        if t.dtype != bool:
            yield Sample((t, new, *index), attrs)


# --- the call -------------------------------------------------------------------------------------------------------


def broadcast_indices(what: str, index: Sequence[Any]) -> list[Any]:
    """Index tiles broadcast to one shape; an int or a uniform integer becomes a tile of it."""
    tiles = [require_tile(what, "indices", i) for i in index if isinstance(getattr(unwrap(i), "type", None), TileType)]
    shape = broadcast_shapes(what, [t.shape for t in tiles])
    result = []
    for i in index:
        if not isinstance(getattr(unwrap(i), "type", None), TileType):
            result.append(REGISTRY["tile_full"](i, shape=shape))
        else:
            result.append(i if shape_of(unwrap(i)) == shape else REGISTRY["tile_broadcast"](i, shape=shape))
    return result


def tile_slice_indexed(t: Any, indices: Any, axis: Any = 0) -> Any:
    """The parts of a tile that an index tile names along one axis: `t[indices, :]` for axis 0.

    Args:
        t: tile.
        indices: tile of integers; negative ones count from the end. What is outside is an error that the launch raises.
        axis: the axis that is indexed.

    Returns: a new tile, with the axes of `indices` in place of that axis.
    Raises: TypeMismatch for indices that are no integers.
    Gradient: the cotangent is added at the same places; equal indices add up.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], i: tg.array1d[int], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=(3, 2))
        ...     tg.tile_store(y, tg.tile_slice_indexed(t, tg.tile_load(i, shape=2)))
        >>> x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, np.array([2, -3], np.int32), y])
        >>> y.tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """
    kind = require_tile("tile_slice_indexed", "t", t)
    require_tile("tile_slice_indexed", "indices", indices)
    axis = require_axis("tile_slice_indexed", axis, kind.ndim)
    return tile_gather(t, indices, axes=(axis,), at=axis)


PUBLIC = {"tile_slice_indexed": tile_slice_indexed}
