"""Which elements of a tile come from lanes that are absent, and what those contribute to reductions and scans.

A tile that is computed from one element for each lane has elements of lanes past the end of a `launch` grid, or of
lanes that have returned. They must not count. Which elements they are is read off the ops that made the tile: its
views, elementwise ops, maps, scans, branches and loops. Does not know Python syntax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.composite import leaves
from tilegrad.dtypes import DType
from tilegrad.frontend.scope import TileRef
from tilegrad.ir.core import Value
from tilegrad.ir.types import TileType, shape_of
from tilegrad.op import REGISTRY
from tilegrad.ops import custom
from tilegrad.ops.control import for_, if_, map_, while_
from tilegrad.ops.indexing import constant_of

Neutral = Callable[[DType], Any]

_SUM: Neutral = lambda d: False if d.kind == "b" else 0.0 if d.is_float else 0  # noqa: E731
_PRODUCT: Neutral = lambda d: True if d.kind == "b" else 1.0 if d.is_float else 1  # noqa: E731
_MIN: Neutral = lambda d: math.nan if d.is_float else d.max  # noqa: E731
_MAX: Neutral = lambda d: math.nan if d.is_float else d.min  # noqa: E731

#: ops over a tile, and what counts as nothing in them
_FOLDS: dict[str, Neutral] = {
    "tile_sum": _SUM, "tile_prod": _PRODUCT, "tile_min": _MIN, "tile_argmin": _MIN, "tile_all": _MIN,
    "tile_max": _MAX, "tile_argmax": _MAX, "tile_any": _MAX,
    "tile_scan_inclusive": _SUM, "tile_scan_exclusive": _SUM,
    "tile_scan_max_inclusive": _MAX, "tile_scan_min_inclusive": _MIN,
}  # fmt: skip

#: the same for ops that take an operator, by the operator
_OPERATORS: dict[str, Neutral] = {"add": _SUM, "mul": _PRODUCT, "minimum": _MIN, "maximum": _MAX}

#: products, whose first two arguments are multiplied and summed
_PRODUCTS = ("tile_dot", "tile_matmul", "matmul")

#: ops whose result is their first operand, changed in places
_CHANGES = ("scan", "scan_fresh", "tile_insert", "tile_put", "tile_put_masked", "tile_add_at", "tile_bits_at")


@dataclass(frozen=True)
class Folded:
    """The tile argument of a reduction or scan: its position or keyword, and what counts as nothing (None: unknown)."""

    key: int | str
    tile: Any
    neutral: Neutral | None

    @property
    def adds(self) -> bool:
        return self.neutral is _SUM


def folded(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Folded | None:
    """What a call folds, if it is one of a reduction or scan."""
    by_operator = name in ("tile_reduce", "tile_scan")
    if name not in _FOLDS and not by_operator:
        return None
    position, keyword = (1 if by_operator else 0), ("t" if name == "tile_scan" else "a")
    key: int | str = position if len(args) > position else keyword
    tile = args[position] if len(args) > position else kwargs.get(keyword)
    if not any(isinstance(leaf, TileRef) for leaf in leaves(tile)):
        return None
    if not by_operator:
        return Folded(key, tile, _opposite(name) if kwargs.get("propagate_nan") else _FOLDS[name])
    operator = args[0] if args else kwargs.get("op")
    return Folded(key, tile, _OPERATORS.get(getattr(operator, "name", "")))


def summed(name: str, args: Sequence[Any]) -> list[Folded]:
    """The factors of a product that sums over elements: absent ones count as 0."""
    factors = enumerate(args[:2]) if name in _PRODUCTS else ()
    return [Folded(k, x, _SUM) for k, x in factors if any(isinstance(leaf, TileRef) for leaf in leaves(x))]


def _opposite(name: str) -> Neutral:
    """What loses against everything where NaN does not count as missing."""
    return (lambda d: d.max) if "min" in name else (lambda d: d.min)


class Presence:
    """Finds the elements of absent lanes in the tiles of one kernel."""

    def __init__(self) -> None:
        #: arguments of loop bodies, and the values that they have in the first turn
        self.origins: dict[Value, Value] = {}
        self._known: dict[Value, bool] = {}

    def of(self, tile: Value, lanes_present: Callable[[], Value], within: bool = False) -> Value | None:
        """A bool tile of the same shape that tells which elements count; None if all do, or if it is not known.

        `within` a branch that is over its index tiles are out of reach; what is sorted there is taken to have its
        absent elements last before, too.
        """
        if not self._holds(tile):
            return None
        if is_lanes(tile):
            return lanes_present()
        result: Value | None = None
        for source in self._sources(tile):
            mask = self.of(source, lanes_present, within or (tile.op is not None and tile.op.definition is if_))
            if mask is not None and within and _is_moved(tile):
                mask = mask if shape_of(mask.type) == shape_of(tile.type) else None
            elif mask is not None and (_is_view(tile) or _is_moved(tile)):
                mask = _seen(tile, mask)
            if mask is not None:
                result = mask if result is None else REGISTRY["bit_and"](result, mask)
        return result

    def _holds(self, v: Value) -> bool:
        """Whether some elements may come from absent lanes."""
        found = self._known.get(v)
        if found is None:
            found = self._known[v] = is_lanes(v) or any(self._holds(s) for s in self._sources(v))
        return found

    def _sources(self, v: Value) -> list[Value]:
        """The tiles whose absent elements are absent in `v` too."""
        op = v.op
        if op is None:
            candidates = [self.origins[v]] if v in self.origins else []
        elif op.definition is if_:
            candidates = [region.yields[v.index] for region in op.regions]
        elif op.definition in (custom.custom, custom.replayed, custom.stopped):
            candidates = [op.operands[v.index]]
        elif op.definition in (for_, while_):
            candidates = [op.operands[v.index + (3 if op.definition is for_ else 0)]]
        elif op.definition.elementwise is not None or op.definition is map_:
            candidates = list(op.operands)
        else:
            candidates = list(op.operands[:1]) if _is_view(v) or _is_moved(v) or op.name in _CHANGES else []
        return [s for s in candidates if isinstance(s.type, TileType)]


def is_lanes(v: Value) -> bool:
    """Whether the tile is made of one element for each lane, so that those of absent lanes are 0."""
    return v.op is not None and v.op.name == "tile_from_lanes"


def _is_view(v: Value) -> bool:
    return v.op is not None and v.op.definition.view


def _is_moved(v: Value) -> bool:
    """Whether the elements were moved by an index tile, as sorting does."""
    return v.op is not None and v.op.name == "take_along"


def _seen(view: Value, mask: Value) -> Value | None:
    """The mask with its elements moved likewise; None if the place of a view is only known when the kernel runs."""
    assert view.op is not None
    if _is_moved(view):
        moved: Value = view.op.definition(mask, view.op.operands[1], **view.op.attrs)
        return moved
    places = [constant_of(x) for x in view.op.operands[1:]]
    if any(place is None for place in places):
        return None
    result: Value = view.op.definition(mask, *places, **view.op.attrs)
    return result
