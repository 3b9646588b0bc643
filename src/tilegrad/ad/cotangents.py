"""The cotangents of the values of one block of code, while the block is reversed.

A cotangent has the dtype and shape of its value. That of a varying value is varying. That of a uniform scalar is

* uniform: the sum is complete; or
* varying: lanes have shares of their own, still to be summed. The two kinds are never added to each other.

In lane code everything is the share of the lane that runs it, so nothing is summed there. (A lane's cotangent of an
outer *tile* is a number of entries, see `lanes`.)
Does not emit anything but additions and sums.
"""

from __future__ import annotations

from typing import Any, cast

from tilegrad.ir.core import Value
from tilegrad.ir.types import TileType, Type, dtype_of, is_varying, shape_of
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import control


class Cotangents:
    """Value -> cotangent, for the differentiated values; `lane` tells that the block is lane code."""

    def __init__(
        self, differentiated: set[Value], lane: bool, block_dim: int, start: dict[Value, Value] | None = None
    ) -> None:
        self.differentiated = differentiated
        self.lane = lane
        self.block_dim = block_dim
        self.values = dict(start or {})

    def __contains__(self, v: Value) -> bool:
        return v in self.values

    def add(self, v: Value, ct: Value | None) -> None:
        """Add a share to the cotangent of `v`; ignored unless `v` is differentiated."""
        if ct is None or v not in self.differentiated:
            return
        ct = control.as_type(ct, v.type)
        old = self.values.get(v)
        if old is not None and not self.lane and is_varying(old.type) != is_varying(ct.type):
            old, ct = self._summed(v, old), self._summed(v, ct)
        self.values[v] = ct if old is None else _add(old, ct)

    def take(self, v: Value) -> Value | None:
        """Remove and return the complete cotangent of `v`; None for zero."""
        ct = self.values.pop(v, None)
        return None if ct is None else self._summed(v, ct)

    def _summed(self, v: Value, ct: Value) -> Value:
        if self.lane or is_varying(v.type) or not is_varying(ct.type):
            return ct
        return total(REGISTRY["tile_from_lanes"](ct, block_dim=self.block_dim))


def _add(a: Value, b: Value) -> Value:
    """a + b; what was added to one element of zeros is added to that element of `a` instead."""
    if b.op is not None and b.op.name == "tile_add_at" and _is_filled(b.op.operands[0]):
        return cast(Value, b.op.definition(a, *b.op.operands[1:]))
    return cast(Value, REGISTRY["add"](a, b))


def _is_filled(v: Value) -> bool:
    return v.op is not None and v.op.name == "tile_full" and v.op.operands[0].op is not None and (
        v.op.operands[0].op.attrs.get("value") == 0
    )  # fmt: skip


def zero(t: Type) -> Value:
    """The cotangent of a value that nothing depends on."""
    number = constant(0.0, dtype_of(t))
    if isinstance(t, TileType):
        return cast(Value, REGISTRY["tile_full"](number, shape=t.shape))
    return control.as_type(number, t)


def total(tile: Value) -> Value:
    """The sum of all elements as a scalar."""
    return fold("tile_sum", tile)


def fold(name: str, tile: Value, **attrs: Any) -> Value:
    """A fold over all elements of a tile as a scalar."""
    folded = REGISTRY[name](tile, axes=tuple(range(len(shape_of(tile.type)))), keepdims=False, **attrs)
    return cast(Value, REGISTRY["tile_extract"](folded, 0))
