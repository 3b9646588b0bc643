"""Parts and elements of tiles: slices as views, single elements read, replaced and added to.

A write makes a new tile: users see the tile change, the compiler sees values (see docs/internals.md). Indices count
from the end when negative, once; a run-time index that is still outside is an error that the launch raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg, Source
from tilegrad.ir.core import Value
from tilegrad.ir.types import ScalarType, TileType, Type, dtype_of, is_varying
from tilegrad.op import (
    REGISTRY,
    Sample,
    Scalar,
    Tile,
    adjoint,
    constant,
    describe,
    infer,
    lower,
    op,
    samples,
    spelled,
    unwrap,
    writeback,
)
from tilegrad.ops.elements import wrap_index
from tilegrad.ops.memory import signed
from tilegrad.ops.shapes import as_offsets, is_int, require_indices, require_shape, require_tile
from tilegrad.ops.views import shape_of, tile_reshape


def constant_of(x: Any) -> int | None:
    """The value of an index that is known at compile time."""
    if is_int(x):
        return int(x)
    inner = unwrap(x)
    if isinstance(inner, Value) and inner.op is not None and inner.op.name == "constant":
        return int(inner.op.attrs["value"])
    return None


def _span(size: int, step: int) -> int:
    return (size - 1) * abs(step) + 1


@op(view=True)
def tile_slice(t: Tile, *starts: Scalar, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Tile:
    """A view of part of a tile: element i is t[starts + i * steps].

    Written `t[a:b:c, ...]`; the part must lie inside the tile. Starts may be run-time values: a negative one counts
    from the end, once, and a part that is not inside is an index error that the launch raises.

    Gradient: the cotangent at its place in a tile of zeros.
    """
    return t[_ranges(starts, sizes, steps, t.shape)]


def _ranges(
    starts: Sequence[Any], sizes: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> tuple[np.ndarray[Any, Any], ...]:
    lists = []
    for axis, (first, size, step, extent) in enumerate(zip(starts, sizes, steps, shape, strict=True)):
        begin = int(first) + extent if first < 0 else int(first)
        last = begin + (size - 1) * step
        if not (0 <= begin < extent and 0 <= last < extent):
            raise KernelIndexError(f"index {int(first)} is out of range for axis {axis} with size {extent}")
        lists.append(begin + step * np.arange(size))
    return np.ix_(*lists)


@infer(tile_slice)
def _tile_slice_infer(t: TileType, *starts: Type, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Type:
    if not len(starts) == len(sizes) == len(steps) == t.ndim:
        raise ShapeMismatch(f"a slice of a tile {t.shape} needs {t.ndim} starts, sizes and steps")
    require_indices("a slice", starts)
    if any(is_varying(s) for s in starts):
        raise TypeMismatch("a slice must be the same for all lanes of the block; its start differs between them")
    for k, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if size < 1 or _span(size, step) > t.shape[k]:
            raise ShapeMismatch(
                f"a slice of {size} elements with step {step} does not fit axis {k} of a tile {t.shape}"
            )
    return TileType(t.dtype, sizes)


@adjoint(tile_slice)
def _tile_slice_adjoint(ct: Any, out: Any, t: Any, *starts: Any, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    return (tile_insert(zeros_like(t), ct, *starts, steps=steps), *(None,) * len(starts))


def zeros_like(t: Any) -> Any:
    """A tile of zeros of the same dtype and shape."""
    if not hasattr(t, "type"):
        return np.zeros_like(t)
    return REGISTRY["tile_full"](t.type.dtype(0), shape=shape_of(t))


@lower(tile_slice)
def _tile_slice_lower(
    e: Emitter, at: Index, t: Source, *starts: Reg, sizes: tuple[int, ...], steps: tuple[int, ...]
) -> Reg:
    firsts = _starts(e, starts, sizes, steps, t.shape)
    return t.at(tuple(_moved(e, first, c, step) for first, c, step in zip(firsts, at, steps, strict=True)))


def _starts(
    e: Emitter, starts: Sequence[Reg], sizes: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> list[Reg]:
    """Run-time starts, wrapped once and moved inside the tile: a wrong one was reported where the slice was written."""
    firsts = []
    for first, size, step, extent in zip(starts, sizes, steps, shape, strict=True):
        x = e.i64(signed(e, first))
        i = e.select(e.compare("lt", x, e.const(0, dt.int64)), e.add(x, e.const(extent, dt.int64)), x)
        low, high = _bounds(size, step, extent)
        firsts.append(e.minimum(e.maximum(i, e.const(low, dt.int64)), e.const(high, dt.int64)))
    return firsts


def _bounds(size: int, step: int, extent: int) -> tuple[int, int]:
    """The first and the last start of a part that lies inside an axis."""
    span = _span(size, step)
    return (span - 1, extent - 1) if step < 0 else (0, extent - span)


@spelled(tile_slice)
def _tile_slice_call(t: Any, *starts: Any, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """A slice whose run-time starts are checked where it stands, whether or not it is read."""
    _check_starts(shape_of(unwrap(t)), starts, sizes, steps)
    return tile_slice(t, *starts, sizes=sizes, steps=steps)


def _check_starts(shape: Sequence[int], starts: Sequence[Any], sizes: Sequence[int], steps: Sequence[int]) -> None:
    for axis, (start, size, step, extent) in enumerate(zip(starts, sizes, steps, shape, strict=True)):
        if constant_of(start) is None:
            _check_start(unwrap(start), axis, extent, _bounds(size, step, extent))


def _check_start(start: Value, axis: int, extent: int, bounds: tuple[int, int]) -> None:
    """Raise at the launch unless a start, which may count from the end, lies within the bounds."""
    require_indices("a slice", [start.type])
    kind = dt.uint64 if dtype_of(start.type) is dt.uint64 else dt.int64
    x = REGISTRY["astype"](start, dtype=kind)

    def between(low: int, high: int) -> Any:
        return REGISTRY["bit_and"](REGISTRY["ge"](x, low), REGISTRY["le"](x, high))

    ok = between(*bounds)
    if kind is dt.int64:
        ok = REGISTRY["bit_or"](ok, between(bounds[0] - extent, bounds[1] - extent))
    message = "index {} is out of range for axis {} with size {}"
    REGISTRY["check"](ok, x, axis, extent, kind="index", message=message)


def _moved(e: Emitter, first: Reg, c: Coord, step: int) -> Coord:
    base = e.i64(c.base)
    scaled = base if step == 1 else e.mul(base, e.const(step, dt.int64))
    return Coord(e.add(first, scaled), c.step * step, c.gather)


@writeback(tile_slice)
def _tile_slice_writeback(base: Any, new: Any, *starts: Any, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    return tile_insert(base, new, *starts, steps=steps)


@samples(tile_slice)
def _tile_slice_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (6, 9)).astype(d.np), 1, 2), {"sizes": (3, 4), "steps": (1, 1)})
    yield Sample((rng.standard_normal((6, 20)), 5, 19), {"sizes": (3, 7), "steps": (-2, -2)})
    yield Sample((rng.standard_normal((4, 3, 5)), -2, 0, 1), {"sizes": (2, 1, 2), "steps": (1, 1, 3)})


@op(cls="block", cooperative=True)
def tile_insert(t: Tile, new: Tile, *starts: Scalar, steps: tuple[int, ...]) -> Tile:
    """The tile with a part replaced: what `t[a:b:c] = new` leaves in t.

    Gradient: the replaced part of the cotangent goes to `new`, the rest to `t`.
    """
    result = np.array(t)
    result[_ranges(starts, new.shape, steps, t.shape)] = new
    return result


@infer(tile_insert)
def _tile_insert_infer(t: TileType, new: TileType, *starts: Type, steps: tuple[int, ...]) -> Type:
    _tile_slice_infer(t, *starts, sizes=new.shape, steps=steps)
    if new.dtype is not t.dtype:
        raise TypeMismatch(
            f"a {new.dtype} tile is assigned to part of a {t.dtype} tile", help=f"write tile_astype(x, {t.dtype})"
        )
    return t


@adjoint(tile_insert)
def _tile_insert_adjoint(ct: Any, out: Any, t: Any, new: Any, *starts: Any, steps: tuple[int, ...]) -> Any:
    part = tile_slice(ct, *starts, sizes=shape_of(new), steps=steps)
    rest = tile_insert(ct, zeros_like(new), *starts, steps=steps)
    return (rest, part, *(None,) * len(starts))


@lower(tile_insert)
def _tile_insert_lower(
    e: Emitter, outs: list[Buffer], t: Buffer, new: Buffer, *starts: Reg, steps: tuple[int, ...]
) -> None:
    (out,) = outs
    e.copy(out, t)
    firsts = _starts(e, starts, new.shape, steps, t.shape)

    def point(at: Index) -> None:
        place = tuple(_moved(e, first, c, step) for first, c, step in zip(firsts, at, steps, strict=True))
        e.store(out, place, e.load(new, at))

    e.points(new.shape, point)


@samples(tile_insert)
def _tile_insert_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        t, new = (rng.integers(0, 2, s).astype(d.np) for s in ((6, 9), (3, 4)))
        yield Sample((t, new, 1, 2), {"steps": (1, 1)})
    yield Sample((rng.standard_normal((6, 20)), rng.standard_normal((3, 7)), 5, 19), {"steps": (-2, -2)})


@op(cls="block")
def tile_extract(t: Tile, *index: Scalar) -> Scalar:
    """One element of a tile, t[i, j]: the same for the block, or one for each lane if an index differs between lanes.

    Gradient: the cotangent is added to the tile's cotangent at that element.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     y[0] = tg.tile_extract(t, 1) + t[-1]
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [4.0]
    """
    return t[wrap_index(index, t.shape)]


@infer(tile_extract)
def _tile_extract_infer(t: TileType, *index: Type) -> Type:
    return _element_type("t[...]", t, index)


def _element_type(what: str, t: TileType, index: Sequence[Type], *others: Type) -> ScalarType:
    if len(index) != t.ndim:
        raise ShapeMismatch(f"{what}: a tile {t.shape} has {t.ndim} indices, {len(index)} were given")
    require_indices(what, index)
    return ScalarType(t.dtype, any(is_varying(x) for x in (*index, *others)))


@adjoint(tile_extract)
def _tile_extract_adjoint(ct: Any, out: Any, t: Any, *index: Any) -> Any:
    return (tile_add_at(zeros_like(t), ct, *index), *(None,) * len(index))


@lower(tile_extract)
def _tile_extract_lower(e: Emitter, outs: list[Reg], t: Buffer, *index: Reg) -> None:
    outs.append(e.load(t, element_index(e, t.shape, index)))


def element_index(e: Emitter, shape: Sequence[int], index: Sequence[Reg]) -> Index:
    """Element indices wrapped once and checked; a wrong one is reported and then read as 0."""
    result: list[Coord] = []
    for i, extent in zip(index, shape, strict=True):
        x = e.i64(signed(e, i))
        zero, n = e.const(0, dt.int64), e.const(extent, dt.int64)
        j = e.select(e.compare("lt", x, zero), e.add(x, n), x)
        ok = e.and_(e.compare("ge", j, zero), e.compare("lt", j, n))
        e.check(ok, "index", x, e.const(len(result), dt.int64), n)
        result.append(e.coord(e.select(ok, j, zero)))
    return tuple(result)


@samples(tile_extract)
def _tile_extract_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (4, 5)).astype(d.np), 2, -1))
    yield Sample((rng.standard_normal((2, 3, 4)), 1, -3, 2))


@spelled(tile_extract)
def _tile_extract_call(a: Any, *index: Any) -> Any:
    t = require_tile("tile_extract", "a", a)
    if len(index) != t.ndim:
        raise ShapeMismatch(f"tile_extract: a tile {t.shape} is indexed by {t.ndim} numbers, {len(index)} given")
    _check_constants(t.shape, index)
    return tile_extract(a, *index)


def _check_constants(shape: Sequence[int], index: Sequence[Any]) -> None:
    for axis, (i, extent) in enumerate(zip(index, shape, strict=True)):
        known = constant_of(i)
        if known is not None and not -extent <= known < extent:
            raise KernelIndexError(f"index {known} is out of range for axis {axis} with size {extent}")


@op(cls="block", cooperative=True)
def tile_put(t: Tile, value: Scalar, *index: Scalar) -> Tile:
    """The tile with one element replaced: what `t[i] = value` leaves in t. Of several lanes the highest wins.

    Gradient: the replaced element's cotangent goes to the value, the rest to the tile.
    """
    result = np.array(t)
    result[wrap_index(index, t.shape)] = value
    return result


@infer(tile_put)
def _tile_put_infer(t: TileType, value: ScalarType, *index: Type) -> Type:
    _element_type("t[...] = ...", t, index)
    _require_value("t[...] = ...", t, value)
    return t


def _require_value(what: str, t: TileType, value: ScalarType) -> None:
    if value.dtype is not t.dtype:
        raise TypeMismatch(
            f"{what}: the tile holds {t.dtype}, the value is {value.dtype}", help=f"write {t.dtype}(...)"
        )


@adjoint(tile_put)
def _tile_put_adjoint(ct: Any, out: Any, t: Any, value: Any, *index: Any) -> Any:
    rest = tile_put(ct, _zero_like(value), *index)
    part = tile_extract(ct, *index)
    if any(is_varying(x.type) for x in (value, *index) if hasattr(x, "type")):
        part = REGISTRY["where"](_is_winner(t, index), part, part.type.dtype(0))
    return (rest, part, *(None,) * len(index))


def _is_winner(t: Any, index: Sequence[Any]) -> Any:
    """Whether this lane is the highest of those that set the element."""
    lane = REGISTRY["lane_id"]()
    nobody = REGISTRY["tile_full"](dt.int32(-1), shape=shape_of(t))
    return REGISTRY["eq"](tile_extract(tile_put(nobody, lane, *index), *index), lane)


def _zero_like(value: Any) -> Any:
    if not hasattr(value, "type"):
        return np.zeros_like(value)
    return REGISTRY["sub"](value, value) if value.type.varying else value.type.dtype(0)


@lower(tile_put)
def _tile_put_lower(e: Emitter, outs: list[Buffer], t: Buffer, value: Any, *index: Any) -> None:
    (out,) = outs
    e.copy(out, t)

    def write(x: Reg, at: Sequence[Reg]) -> None:
        e.store(out, element_index(e, t.shape, at), x)

    e.each_lane((value, *index), lambda x, *at: write(x, at))


@samples(tile_put)
def _tile_put_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (4, 5)).astype(d.np), d(1), 2, -1))


@op(cls="block", cooperative=True)
def tile_add_at(t: Tile, value: Scalar, *index: Scalar) -> Tile:
    """The tile with a value added to one element: what `t[i] += value` leaves in t. All lanes add, in lane order.

    Gradient: the element's cotangent goes to every value that was added; the tile's cotangent passes through.
    """
    result = np.array(t)
    where = wrap_index(index, t.shape)
    if np.ndim(value) or any(np.ndim(i) for i in where):
        np.add.at(result, tuple(np.broadcast_arrays(value, *where)[1:]), value)
    else:
        result[where] += value
    return result


@infer(tile_add_at)
def _tile_add_at_infer(t: TileType, value: ScalarType, *index: Type) -> Type:
    if t.dtype is dt.bool_:
        raise TypeMismatch("bools cannot be added up", help="write `t[i] |= v` or `t[i] ^= v`")
    result: Type = _tile_put_infer(t, value, *index)
    return result


@adjoint(tile_add_at)
def _tile_add_at_adjoint(ct: Any, out: Any, t: Any, value: Any, *index: Any) -> Any:
    part = tile_extract(ct, *index)
    if is_varying(getattr(value, "type", ScalarType(dt.bool_))) and not is_varying(part.type):
        part = REGISTRY["spread"](part)
    return (ct, part, *(None,) * len(index))


@lower(tile_add_at)
def _tile_add_at_lower(e: Emitter, outs: list[Buffer], t: Buffer, value: Any, *index: Any) -> None:
    (out,) = outs
    e.copy(out, t)

    def add(x: Reg, at: Sequence[Reg]) -> None:
        place = element_index(e, t.shape, at)
        old = e.load(out, place)
        if x.dtype.is_half:
            wide = e.add(e.cast(old, dt.float32), e.cast(x, dt.float32))
            e.store(out, place, e.cast(wide, x.dtype))
        else:
            e.store(out, place, e.add(old, x))

    e.each_lane((value, *index), lambda x, *at: add(x, at))


@samples(tile_add_at)
def _tile_add_at_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample((rng.integers(0, 9, (4, 5)).astype(d.np), d(3), 2, -1))


@op(cls="block", cooperative=True)
def tile_put_masked(t: Tile, value: Scalar, mask: Scalar, *index: Scalar) -> Tile:
    """`tile_put` by the lanes for which `mask` holds; the index of the others is not looked at.

    Gradient: the replaced element's cotangent goes to the value that won, the rest to the tile.
    """
    result = np.array(t)
    if any(np.ndim(x) for x in (value, mask, *index)):
        value, mask, *parts = np.broadcast_arrays(value, mask, *index)
        result[wrap_index([p[mask] for p in parts], t.shape)] = value[mask]
    elif mask:
        result[wrap_index(index, t.shape)] = value
    return result


@infer(tile_put_masked)
def _tile_put_masked_infer(t: TileType, value: ScalarType, mask: ScalarType, *index: Type) -> Type:
    if mask.dtype is not dt.bool_:
        raise TypeMismatch(f"t[...] = ...: the mask must be a bool, it is {describe(mask)}")
    result: Type = _tile_put_infer(t, value, *index)
    return result


@adjoint(tile_put_masked)
def _tile_put_masked_adjoint(ct: Any, out: Any, t: Any, value: Any, mask: Any, *index: Any) -> Any:
    where = REGISTRY["where"]
    rest = tile_put_masked(ct, _zero_like(value), mask, *index)
    safe = safe_index(mask, index)
    won = mask
    if any(is_varying(x.type) for x in (value, mask, *index) if hasattr(x, "type")):
        lane = REGISTRY["lane_id"]()
        last = tile_put_masked(REGISTRY["tile_full"](dt.int32(-1), shape=shape_of(t)), lane, mask, *index)
        won = REGISTRY["bit_and"](mask, REGISTRY["eq"](tile_extract(last, *safe), lane))
    part = tile_extract(ct, *safe)
    return (rest, where(won, part, part.dtype.type(0) if not hasattr(part, "type") else part.type.dtype(0)), None,
            *(None,) * len(index))  # fmt: skip


def safe_index(mask: Any, index: Sequence[Any]) -> tuple[Any, ...]:
    """The indices of lanes for which `mask` holds, and 0 for the others."""
    return tuple(REGISTRY["where"](mask, i, _zero_like(i)) for i in index)


@lower(tile_put_masked)
def _tile_put_masked_lower(e: Emitter, outs: list[Buffer], t: Buffer, value: Any, mask: Any, *index: Any) -> None:
    (out,) = outs
    e.copy(out, t)

    def write(x: Reg, here: Reg, at: Sequence[Reg]) -> None:
        def store() -> list[Reg]:
            e.store(out, element_index(e, t.shape, at), x)
            return []

        e.branch(here, store, list)

    e.each_lane((value, mask, *index), lambda x, here, *at: write(x, here, at))


@samples(tile_put_masked)
def _tile_put_masked_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, (4, 5)).astype(d.np), d(1), np.bool_(True), 2, -1))
    yield Sample((rng.standard_normal((4, 5)), dt.float64(1), np.bool_(False), 9, 9))


_BITS: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@op(cls="block", cooperative=True, no_gradient="it works on integers")
def tile_bits_at(t: Tile, value: Scalar, *index: Scalar, bits: str) -> Tile:
    """The tile with one element combined with a value: what `t[i] &= value` (and `|=`, `^=`) leaves in t.

    All lanes take part, in lane order.
    """
    result = np.array(t)
    where = wrap_index(index, t.shape)
    if np.ndim(value) or any(np.ndim(i) for i in where):
        value, *parts = np.broadcast_arrays(value, *where)
        _BITS[bits].at(result, tuple(parts), value)
    else:
        result[where] = _BITS[bits](result[where], value)
    return result


@infer(tile_bits_at)
def _tile_bits_at_infer(t: TileType, value: ScalarType, *index: Type, bits: str) -> Type:
    if t.dtype.is_float:
        raise TypeMismatch(f"t[...] {_SIGNS[bits]}= ...: not defined for {t.dtype}", help="it takes integers and bools")
    result: Type = _tile_put_infer(t, value, *index)
    return result


_SIGNS = {"and": "&", "or": "|", "xor": "^"}


@lower(tile_bits_at)
def _tile_bits_at_lower(e: Emitter, outs: list[Buffer], t: Buffer, value: Any, *index: Any, bits: str) -> None:
    (out,) = outs
    e.copy(out, t)
    combine = {"and": e.and_, "or": e.or_, "xor": e.xor}[bits]

    def update(x: Reg, at: Sequence[Reg]) -> None:
        place = element_index(e, t.shape, at)
        e.store(out, place, combine(e.load(out, place), x))

    e.each_lane((value, *index), lambda x, *at: update(x, at))


@samples(tile_bits_at)
def _tile_bits_at_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in (dt.bool_, *dt.INTEGERS):
        for bits in _BITS:
            yield Sample((rng.integers(0, 2, (4, 5)).astype(d.np), d(1), 2, -1), {"bits": bits})


# --- contributions of lanes -----------------------------------------------------------------------------------------


def _contribution(
    what: str, a: Any, place: Sequence[Any], named: Sequence[Any], value: Any, has_value: Any
) -> tuple[tuple[Any, ...], Any, Any]:
    """Indices, value and mask of a call `f(a, i, j, ..., value, has_value)`, by position or by keyword."""
    t = require_tile(what, "a", a)
    given = [x for x in named if x is not None]
    items = [*given, *place] if given else list(place)
    index, rest = items[: t.ndim], items[t.ndim :]
    if value is None and rest:
        value, rest = rest[0], rest[1:]
    if has_value is None and rest:
        has_value, rest = rest[0], rest[1:]
    rest = rest[1:] if what == "tile_scatter_add" else rest  # atomic=
    if len(index) < t.ndim or value is None or rest:
        form = ", ".join("ijkl"[k] if k < 4 else f"i{k}" for k in range(t.ndim))
        raise ShapeMismatch(
            f"{what}: a tile {t.shape} takes {t.ndim} ind{'ices' if t.ndim > 1 else 'ex'}, a value and has_value",
            help=f"write {what}(a, {form}, value, has_value)",
        )
    _check_constants(t.shape, index)
    return tuple(index), as_element(what, value, t), _as_mask(what, has_value)


def as_element(what: str, value: Any, t: TileType) -> Any:
    """A value that becomes an element of a tile; a literal takes the tile's dtype."""
    if not isinstance(value, (bool, int, float)):
        return unwrap(value)
    if isinstance(value, bool) != (t.dtype.kind == "b") or not dt.literal_fits(value, t.dtype):
        raise TypeMismatch(f"{what}: the literal {value!r} cannot be an element of {describe(t)}")
    return constant(value, t.dtype)


def _as_mask(what: str, has_value: Any) -> Any:
    known = True if has_value is None else unwrap(has_value)
    if isinstance(known, (bool, int)):
        return bool(known)
    if not isinstance(getattr(known, "type", None), ScalarType):
        raise TypeMismatch(f"{what}: has_value must be a bool, it is {known!r}")
    return known if known.type.dtype is dt.bool_ else REGISTRY["ne"](known, 0)


def tile_scatter_add(
    a: Any, *place: Any, i: Any = None, j: Any = None, k: Any = None, l: Any = None, value: Any = None,  # noqa: E741
    has_value: Any = None, atomic: bool = True,
) -> None:  # fmt: skip
    """Every lane that has a value adds it to an element of a tile: `tile_scatter_add(a, i, j, value, has_value)`.

    Args:
        a: tile, changed in place.
        i, j, ...: the element, one index per axis, which may differ between lanes; negative ones count from the end.
        value: of the tile's dtype.
        has_value: whether the lane adds anything; the index of a lane that does not is not looked at.
        atomic: a hint of Warp; lanes that meet in one element always all count, in lane order.

    Raises: KernelIndexError at the launch for an index that is outside.
    Gradient: the element's cotangent goes to each value that was added; the tile's cotangent passes through.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i, lane = tg.tid()
        ...     t = tg.tile_zeros(shape=2, dtype=float)
        ...     tg.tile_scatter_add(t, lane % 2, x[lane], lane < 3)
        ...     tg.tile_store(y, t)
        >>> x, y = np.array([1, 2, 3, 4], np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y], block_dim=4)
        >>> y.tolist()
        [4.0, 2.0]
    """
    index, x, mask = _contribution("tile_scatter_add", a, place, (i, j, k, l), value, has_value)
    if mask is False:
        return
    if mask is not True:
        x, index = REGISTRY["where"](mask, x, nothing_to_add(x.type)), safe_index(mask, _as_values(index))
    a.assign(tile_add_at(unwrap(a), x, *index))


def _as_values(index: Sequence[Any]) -> list[Any]:
    return [constant(i) if is_int(i) else unwrap(i) for i in index]


def nothing_to_add(t: Any) -> Any:
    """The number that changes nothing when it is added, not even the sign of a zero."""
    return constant(-0.0 if t.dtype.is_float else 0, t.dtype)


def tile_scatter_masked(
    a: Any, *place: Any, i: Any = None, j: Any = None, k: Any = None, l: Any = None, value: Any = None,  # noqa: E741
    has_value: Any = None,
) -> None:  # fmt: skip
    """Every lane that has a value writes it to an element of a tile: `tile_scatter_masked(a, i, j, value, has_value)`.

    Of several lanes that write one element the highest wins. Arguments and errors: see `tile_scatter_add`.
    Gradient: the element's cotangent goes to the value that won; elements that were written lose theirs.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i, lane = tg.tid()
        ...     t = tg.tile_zeros(shape=2, dtype=float)
        ...     tg.tile_scatter_masked(t, lane % 2, x[lane], lane < 3)
        ...     tg.tile_store(y, t)
        >>> x, y = np.array([1, 2, 3, 4], np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y], block_dim=4)
        >>> y.tolist()
        [3.0, 2.0]
    """
    index, x, mask = _contribution("tile_scatter_masked", a, place, (i, j, k, l), value, has_value)
    if mask is False:
        return
    t = unwrap(a)
    a.assign(tile_put(t, x, *index) if mask is True else tile_put_masked(t, x, mask, *index))


# --- parts ----------------------------------------------------------------------------------------------------------


def tile_view(t: Any, offset: Any = None, shape: Any = None) -> Any:
    """A view of part of a tile.

    Args:
        t: tile.
        offset: where the part starts, one int per axis; may be a run-time value. Without a shape the offset picks: an
            int takes one index and drops the axis, a slice takes a range, and axes that are not named are whole.
        shape: extents of the part, one per axis.

    Returns: a view; a write through it writes the tile.
    Raises: KernelIndexError if the part is not inside the tile, ShapeMismatch if the ranks do not fit.
    Gradient: the cotangent is added to the tile's cotangent at that part.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_store(y, tg.tile_view(t, offset=1, shape=2))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 2.0]
    """
    kind = require_tile("tile_view", "t", t)
    if shape is None:
        return _picked(t, kind, offset if isinstance(offset, (tuple, list)) else () if offset is None else (offset,))
    sizes = require_shape("tile_view", shape)
    offsets = as_offsets("tile_view", offset, kind.ndim, "tile")
    if any(isinstance(o, slice) for o in offsets):
        raise TypeMismatch("tile_view: an offset with slices leaves no place for a shape", help="leave out shape=")
    if len(sizes) != kind.ndim:
        raise ShapeMismatch(f"tile_view: the shape {sizes} has {len(sizes)} dimensions, the tile {kind.ndim}")
    _require_inside("tile_view", kind.shape, offsets, sizes)
    return _tile_slice_call(t, *offsets, sizes=sizes, steps=(1,) * kind.ndim)


def _require_inside(what: str, shape: Sequence[int], offsets: Sequence[Any], sizes: Sequence[int]) -> None:
    """Check what is known of a part at compile time; run-time offsets are checked by `tile_slice`."""
    for axis, (o, size, extent) in enumerate(zip(offsets, sizes, shape, strict=True)):
        first = constant_of(o)
        if size > extent or (first is not None and not (-extent <= first < extent and first % extent + size <= extent)):
            start = "" if first is None else f" from {first} on"
            raise KernelIndexError(f"{what}: {size} elements{start} do not fit axis {axis} with size {extent}")


def _picked(t: Any, kind: TileType, items: Sequence[Any]) -> Any:
    """The view that ints and slices pick, one for each of the first axes."""
    if len(items) > kind.ndim:
        raise ShapeMismatch(f"tile_view: {len(items)} offsets for a tile {kind.shape}")
    parts = [_axis_part(x, axis, kind.shape[axis]) for axis, x in enumerate(items)]
    parts += [(0, n, 1) for n in kind.shape[len(items) :]]
    starts, sizes, steps = zip(*parts, strict=True)
    view = _tile_slice_call(t, *starts, sizes=sizes, steps=steps)
    kept = tuple(n for axis, n in enumerate(sizes) if axis >= len(items) or isinstance(items[axis], slice))
    return view if kept == sizes else tile_reshape(view, shape=kept or (1,))


def _axis_part(item: Any, axis: int, extent: int) -> tuple[Any, int, int]:
    """Start, size and step of what one int or slice picks of an axis."""
    if not isinstance(item, slice):
        _require_inside("tile_view", (extent,), (item,), (1,))
        return item, 1, 1
    bounds = [None if b is None else constant_of(b) for b in (item.start, item.stop, item.step)]
    if any(k is None and b is not None for k, b in zip(bounds, (item.start, item.stop, item.step), strict=True)):
        raise ShapeMismatch(
            "tile_view: the bounds of a slice must be compile-time constants",
            help="a run-time start with a constant size is tile_view(t, offset=..., shape=...)",
        )
    start, stop, step = slice(*bounds).indices(extent)
    size = len(range(start, stop, step))
    if not size:
        raise ShapeMismatch(
            f"tile_view: the slice of axis {axis} is empty; a tile has at least one element on every axis"
        )
    return start, size, step


def tile_assign(dst: Any, src: Any, offset: Any = None) -> None:
    """Write tile `src` into `dst`, starting at `offset` (default: at 0).

    Args:
        dst: tile of the same rank, changed in place; a view writes the tile that it was taken from.
        src: tile; it may be a view of `dst`, as it is read before anything is written. Its elements are converted to
            the type of `dst`.
        offset: where `src` goes, one int per axis; may be a run-time value, and negative to count from the end.

    Raises: KernelIndexError if `src` does not fit there: at compile time if that is known, else at the launch.
    Gradient: the part of the cotangent that was written goes to `src`, the rest to what `dst` was before.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_assign(t, tg.tile_ones(shape=2, dtype=float), offset=1)
        ...     tg.tile_store(y, t)
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [0.0, 1.0, 1.0, 3.0]
    """
    target, source = require_tile("tile_assign", "dst", dst), require_tile("tile_assign", "src", src)
    if source.ndim != target.ndim:
        raise ShapeMismatch(f"tile_assign: tiles {target.shape} and {source.shape} differ in rank")
    offsets = as_offsets("tile_assign", offset, target.ndim, "tile")
    _require_inside("tile_assign", target.shape, offsets, source.shape)
    steps = (1,) * target.ndim
    _check_starts(target.shape, offsets, source.shape, steps)
    value = unwrap(src) if source.dtype is target.dtype else REGISTRY["astype"](unwrap(src), dtype=target.dtype)
    dst.assign(tile_insert(unwrap(dst), value, *offsets, steps=steps))


PUBLIC = {
    "tile_extract": tile_extract,
    "tile_view": tile_view,
    "tile_assign": tile_assign,
    "tile_scatter_add": tile_scatter_add,
    "tile_scatter_masked": tile_scatter_masked,
}
