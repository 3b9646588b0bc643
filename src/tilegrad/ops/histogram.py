"""Histograms: how many elements of a tile, or which sum of weights, fall into each of some equal bins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Emitter, Index, Reg
from tilegrad.ir.types import TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.along import add_along
from tilegrad.ops.indexing import constant_of
from tilegrad.ops.order import require_mask
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of, tile_reshape

Host = np.ndarray[Any, Any]


def _carrier(dtype: DType) -> DType:
    """The dtype in which elements are compared with the edges of the bins."""
    return dt.float32 if dtype.is_half else dtype if dtype.is_float else dt.float64


def edges(bins: int, low: float, high: float, dtype: DType) -> Host:
    """The edges of the bins, as numpy.histogram places them."""
    return np.linspace(low, high, bins + 1).astype(_carrier(dtype).np)


@op(cls="block", cooperative=True, no_gradient="the result is an index")
def histogram_bin(t: Tile, *, bins: int, low: float, high: float) -> Tile:
    """The number of the bin (int32) that each element falls into; -1 if it is outside or NaN."""
    limits = edges(bins, low, high, dt.of_array(t))
    x = t.astype(limits.dtype)
    inside = (x >= limits[0]) & (x <= limits[-1])
    found = np.searchsorted(limits, np.where(inside, x, limits[0]), side="right") - 1
    return np.where(inside, np.minimum(found, bins - 1), -1).astype(np.int32)


@infer(histogram_bin)
def _histogram_bin_infer(t: TileType, *, bins: int, low: float, high: float) -> Type:
    return TileType(dt.int32, t.shape)


@lower(histogram_bin)
def _histogram_bin_lower(e: Emitter, outs: list[Buffer], t: Buffer, *, bins: int, low: float, high: float) -> None:
    """A binary search: the bits of the bin from the highest on. Past the last edge the table holds inf."""
    limits = edges(bins, low, high, t.dtype)
    kind = _carrier(t.dtype)
    bits = bins.bit_length()
    padded = np.full(1 << bits, np.inf, limits.dtype)
    padded[: bins + 1] = limits[: 1 << bits]
    table = e.table(padded, kind)

    def point(at: Index) -> None:
        x = e.cast(e.load(t, at), kind)
        position = e.const(0, dt.int64)
        for bit in reversed(range(bits)):
            candidate = e.add(position, e.const(1 << bit, dt.int64))
            edge = e.load(table, (Coord(candidate, 0, gather=candidate.width > 1),))
            position = e.select(e.compare("ge", x, edge), candidate, position)
        e.store(outs[0], at, _settled(e, x, position, limits, kind))

    e.points(t.shape, point)


def _settled(e: Emitter, x: Reg, position: Reg, limits: Host, kind: DType) -> Reg:
    """The bin as int32: the last edge belongs to the last bin, and what is outside to none."""
    first, last = (e.const(float(v), kind) for v in (limits[0], limits[-1]))
    inside = e.and_(e.compare("ge", x, first), e.compare("le", x, last))
    found = e.minimum(e.cast(position, dt.int32), e.const(len(limits) - 2, dt.int32))
    return e.select(inside, found, e.const(-1, dt.int32))


@samples(histogram_bin)
def _histogram_bin_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        t = rng.integers(0, 2 if d.kind == "b" else 20, (3, 7)).astype(d.np)
        yield Sample((t,), {"bins": 5, "low": 1.0, "high": 15.0})
    for bins in (1, 2, 3, 7, 8, 9, 100):
        x = np.concatenate([rng.uniform(-0.1, 1.1, 30), edges(bins, 0.0, 0.7, dt.float64), [np.nan, np.inf, -np.inf]])
        for dtype in (np.float32, np.float64):
            yield Sample((x.astype(dtype),), {"bins": bins, "low": 0.0, "high": 0.7})


def tile_histogram(t: Any, bins: Any, range: Any = None, weights: Any = None, *, present: Any = None) -> Any:
    """How many elements of a tile fall into each of some equal bins, as `numpy.histogram`.

    Args:
        t: tile of any scalar element type.
        bins: how many bins, a compile-time int.
        range: (low, high), compile-time numbers with low < high. Bin b holds what is at or above edge b and below edge
            b + 1 of `numpy.linspace(low, high, bins + 1)`, the last bin also what equals `high`. What is outside, and
            NaN, is dropped.
        weights: tile of the shape of `t`, what each element counts; without it each counts 1.
        present: bool tile of the shape of `t`: elements for which it is False do not count. Lanes that are absent are
            not present.

    Returns: a tile (bins,): int32, or of the dtype of the weights (small integers widen to 32 bits). Sums of float16
        and bfloat16 weights are carried in float32, of float32 in float64. Edges are compared in the dtype of `t`, for
        float16 and bfloat16 in float32, for integers in float64.
    Raises: TypeMismatch if bins or range are not known at compile time, ShapeMismatch if the weights do not have the
        shape of `t`, or if the bins are so narrow that edges coincide.
    Gradient: of the weights, the cotangent of the bin that the element falls into, 0 if it is dropped. The elements
        have none: the counts do not change with them, but where they jump.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[int]):
        ...     tg.tile_store(y, tg.tile_histogram(tg.tile_load(x, shape=5), bins=2, range=(0.0, 4.0)))
        >>> x, y = np.array([0, 1, 2, 4, 9], np.float32), np.zeros(2, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [2, 2]
    """
    kind = require_tile("tile_histogram", "t", t)
    count = _require_bins(bins)
    low, high = _require_range(range)
    _require_width(edges(count, low, high, kind.dtype), kind.dtype)
    flat = (kind.size,)
    place = histogram_bin(tile_reshape(unwrap(t), shape=flat), bins=count, low=low, high=high)
    if present is not None:
        here = tile_reshape(require_mask("tile_histogram", kind, present), shape=flat)
        place = REGISTRY["where"](here, place, REGISTRY["tile_full"](dt.int32(-1), shape=flat))
    one = REGISTRY["tile_full"](dt.int32(1), shape=flat)
    value = one if weights is None else _weights(kind, weights)
    dtype = dt.int32 if weights is None else dt.sum_dtype(value.type.dtype)
    return _summed(value, place, count, dtype)


def _weights(t: TileType, weights: Any) -> Any:
    found = require_tile("tile_histogram", "weights", weights)
    if found.shape != t.shape:
        raise ShapeMismatch(f"tile_histogram: the tile is {describe(t)}, the weights are {describe(found)}")
    return tile_reshape(unwrap(weights), shape=(found.size,))


def _summed(value: Any, place: Any, bins: int, dtype: DType) -> Any:
    """The sums of the values with equal places; a place of -1 counts for nothing."""
    cast, full = REGISTRY["astype"], REGISTRY["tile_full"]
    wide = dt.float32 if dtype.is_half else dt.float64 if dtype.is_float else dtype
    zeros = full(wide(0), shape=shape_of(place))
    value = value if value.type.dtype is wide else cast(value, dtype=wide)
    value = REGISTRY["where"](REGISTRY["ge"](place, 0), value, zeros)
    total = add_along(full(wide(0), shape=(bins,)), value, REGISTRY["maximum"](place, 0), axis=0)
    return total if wide is dtype else cast(total, dtype=dtype)


def _require_bins(bins: Any) -> int:
    known = None if isinstance(bins, (bool, float)) else constant_of(bins)
    if known is None:
        found = describe(unwrap(bins).type) if hasattr(unwrap(bins), "type") else repr(bins)
        raise TypeMismatch(
            f"tile_histogram: bins must be a compile-time integer, it is {found}",
            help="bins are equally wide: write bins=10, range=(0.0, 1.0)",
        )
    if known < 1:
        raise ShapeMismatch(f"tile_histogram: there must be at least one bin, bins is {known}")
    return known


def _require_range(limits: Any) -> tuple[float, float]:
    help = "write range=(0.0, 1.0); the range of the data is known only when the kernel runs"
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise TypeMismatch(f"tile_histogram: range must be (low, high), it is {limits!r}", help=help)
    known = [_constant(x) for x in limits]
    low, high = known
    if low is None or high is None:
        raise TypeMismatch("tile_histogram: range must be two compile-time numbers", help=help)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ShapeMismatch(f"tile_histogram: range must be finite with low < high, it is ({low}, {high})")
    return low, high


def _require_width(limits: Host, dtype: DType) -> None:
    if (limits[1:] <= limits[:-1]).any():
        raise ShapeMismatch(
            f"tile_histogram: {len(limits) - 1} bins from {limits[0]} to {limits[-1]} are too narrow for "
            f"{_carrier(dtype)}, in which edges are compared",
            help="take fewer bins, or subtract what all elements have in common",
        )


def _constant(x: Any) -> float | None:
    """A number that is known at compile time."""
    known = unwrap(x)
    attrs = getattr(getattr(known, "op", None), "attrs", {})
    value = attrs.get("value", x) if "dtype" in attrs else x
    return float(value) if isinstance(value, (int, float, np.integer, np.floating)) else None


PUBLIC = {"tile_histogram": tile_histogram}
