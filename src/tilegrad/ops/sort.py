"""Sorting as users call it: tiles with or without payload, the largest elements, the number of distinct ones.

Everything here is made of two ops: `tile_argsort` finds the order (see `order`), and `take_along` follows it (see
`along`), which is also where the gradients come from: sorting is a permutation, so cotangents go back the way that the
elements came. Does not compare keys of composite types; a payload may have any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.composite import leaves
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir.types import TileType
from tilegrad.op import REGISTRY, describe, unwrap
from tilegrad.ops.along import take_along
from tilegrad.ops.indexing import constant_of
from tilegrad.ops.operators import part
from tilegrad.ops.order import ordered, require_flag, shaped
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of


def tile_sort(keys: Any, values: Any = None, axis: Any = -1, descending: Any = False, *, present: Any = None) -> None:
    """Sort a tile in place, and payload with it.

    Args:
        keys: tile of any scalar element type, changed in place; a view sorts the part of the tile that it shows.
        values: payload that moves with the keys, changed in place: a tile of the shape of `keys` and of any element
            type, composite ones included, or a tuple of such tiles.
        axis: an int, by default the last axis; None sorts all elements in row-major order.
        descending: the largest first.
        present: bool tile of the shape of `keys`: elements for which it is False come after all others. Lanes that
            are absent are not present.

    Returns: nothing. The order is -inf, numbers (-0.0 equals 0.0), +inf, and every NaN last, also when descending.
        Equal keys keep their order, so the payload of equal keys does too.
    Raises: TypeMismatch if the keys are no scalars, ShapeMismatch if keys and payload differ in shape or the axis is
        out of range.
    Gradient: the permutation backwards: the cotangent of the sorted keys and of the payload goes to where each element
        was before. At equal keys this is the gradient of the stable order.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float], i: tg.array1d[int]):
        ...     keys = tg.tile_load(x, shape=4)
        ...     places = tg.tile_astype(tg.tile_arange(4), int)
        ...     tg.tile_sort(keys, places)
        ...     tg.tile_store(y, keys)
        ...     tg.tile_store(i, places)
        >>> x, y, i = np.array([2, 1, 2, 1], np.float32), np.zeros(4, np.float32), np.zeros(4, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y, i])
        >>> y.tolist(), i.tolist()
        ([1.0, 1.0, 2.0, 2.0], [1, 3, 0, 2])
    """
    kind = require_tile("tile_sort", "keys", keys)
    tiles = [keys, *_payload(values)]
    for position, tile in enumerate(tiles):
        _require_variable("keys" if position == 0 else "values", tile, kind)
    down = require_flag("tile_sort", "descending", descending)
    whole, along, order = ordered("tile_sort", keys, axis, down, present)
    parts = [shaped(unwrap(tile), shape_of(whole)) for tile in tiles]
    moved = [take_along(p, order, axis=along, distinct=True) for p in parts]
    for tile, new in zip(tiles, moved, strict=True):
        tile.assign(shaped(new, kind.shape))


def _payload(values: Any) -> Iterator[Any]:
    """The tiles of scalars that make up a payload."""
    if values is None:
        return
    for item in values if type(values) is tuple else (values,):
        yield from leaves(item)


def _require_variable(name: str, tile: Any, keys: TileType) -> None:
    found = require_tile("tile_sort", name, tile)
    if found.shape != keys.shape:
        raise ShapeMismatch(
            f"tile_sort: the keys are {describe(keys)}, the payload is {describe(found)}",
            help="one element of payload for each key; for rows of payload use tile_argsort and t[order, :]",
        )
    if not hasattr(tile, "assign"):
        raise TypeMismatch(
            f"tile_sort: `{name}` is sorted in place, so it must be a variable", help="assign it to a name first"
        )


def tile_topk(t: Any, k: Any, axis: Any = -1, largest: Any = True, *, present: Any = None) -> tuple[Any, Any]:
    """The k largest (or smallest) elements along an axis, in order, and their positions.

    Args:
        t: tile of any scalar element type.
        k: how many, a compile-time int from 1 to the extent of the axis.
        axis: an int, by default the last axis; None takes them from all elements in row-major order.
        largest: False for the smallest, in ascending order.
        present: bool tile of the shape of `t`: elements for which it is False are taken last. Lanes that are absent
            are not present.

    Returns: (values, indices): tiles with the extent k on the axis, of the dtype of `t` and of int32. Of equal elements
        the one with the lowest index comes first. NaN counts as missing: it comes after every number either way.
    Raises: ShapeMismatch if k or the axis is out of range, TypeMismatch if k is not known at compile time.
    Gradient: of the values, to the elements that were picked.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float], i: tg.array1d[int]):
        ...     values, indices = tg.tile_topk(tg.tile_load(x, shape=5), 2)
        ...     tg.tile_store(y, values)
        ...     tg.tile_store(i, indices)
        >>> x = np.array([3, 1, np.nan, 5, 2], np.float32)
        >>> y, i = np.zeros(2, np.float32), np.zeros(2, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y, i])
        >>> y.tolist(), i.tolist()
        ([5.0, 3.0], [3, 0])
    """
    whole, along, order = ordered("tile_topk", t, axis, require_flag("tile_topk", "largest", largest), present)
    best = part(order, along, 0, _require_count("tile_topk", "k", k, shape_of(whole)[along]))
    return take_along(whole, best, axis=along, distinct=True), best


def _require_count(what: str, name: str, x: Any, most: int) -> int:
    known = None if isinstance(x, (bool, float)) else constant_of(x)
    if known is None:
        found = describe(unwrap(x).type) if hasattr(unwrap(x), "type") else repr(x)
        raise TypeMismatch(
            f"{what}: {name} must be a compile-time integer, it is {found}",
            help="use a literal, a global or captured Python int, or tilegrad.constant",
        )
    if not 1 <= known <= most:
        raise ShapeMismatch(f"{what}: {name} must be from 1 to {most}, it is {known}")
    return known


def tile_unique_count(t: Any, *, present: Any = None) -> Any:
    """How many distinct elements a tile has.

    Args:
        t: tile of any scalar element type.
        present: bool tile of the shape of `t`: elements for which it is False do not count. Lanes that are absent are
            not present.

    Returns: an int32 tile (1,). -0.0 equals 0.0, and all NaN count as one (NumPy's `equal_nan=True`).
    Raises: TypeMismatch if `t` is no tile.
    No gradient: the result is a count.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[int]):
        ...     tg.tile_store(y, tg.tile_unique_count(tg.tile_load(x, shape=5)))
        >>> x, y = np.array([2, np.nan, 1, 2, np.nan], np.float32), np.zeros(1, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [3]
    """
    kind = require_tile("tile_unique_count", "t", t)
    n = kind.size
    flat, along, order = ordered("tile_unique_count", t, None, False, present)
    if present is None:
        here = REGISTRY["tile_full"](dt.bool_(True), shape=(n,))
    else:
        here = take_along(shaped(unwrap(present), (n,)), order, axis=along, distinct=True)
    count = REGISTRY["astype"](part(here, 0, 0, 1), dtype=dt.int32)
    if n == 1:
        return count
    line = take_along(flat, order, axis=along, distinct=True)
    changes = _differ(part(line, 0, 0, n - 1), part(line, 0, 1, n - 1), kind.dtype)
    counted = REGISTRY["bit_and"](changes, part(here, 0, 1, n - 1))
    return REGISTRY["add"](count, REGISTRY["tile_sum"](counted, axes=(0,)))


def _differ(before: Any, after: Any, dtype: DType) -> Any:
    """Where neighbours in order are not the same element; two NaN are."""
    differ = REGISTRY["ne"](before, after)
    # numbers come before NaN, so where the first is NaN both are
    return REGISTRY["bit_and"](differ, REGISTRY["eq"](before, before)) if dtype.is_float else differ


PUBLIC = {
    "tile_sort": tile_sort,
    "tile_topk": tile_topk,
    "tile_unique_count": tile_unique_count,
}
