"""The cotangent of a tile of which lanes read elements under conditions and loops of their own.

Lane code cannot make a tile, so a lane that reads t[i] cannot give t a cotangent there. It puts (ct, i) on a stack of
its own instead. In lane code the cotangent of a tile is therefore the *number of entries* a lane has put there, which
adds up along branches and loops as any cotangent does; `collect` makes the tile when the lanes are together again.
In a map the reads are handed out as more results of the map.
Does not know regions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad import dtypes as dt
from tilegrad.ad.cotangents import fold, zero
from tilegrad.ad.replay import Frame, results_of
from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir.core import Op, Value
from tilegrad.ir.types import ScalarType, TileType, Type, dtype_of, is_varying, items_of, shape_of
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import control


@dataclass(frozen=True)
class Read:
    """An element read in a map: the tile, and the element's cotangent and index."""

    tile: Value
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Reads:
    """Where the region of a map, reversed in `frame`, puts its reads of outer tiles."""

    frame: Frame
    found: list[Read]


def make_stack(t: TileType) -> Value:
    """A stack for each lane's entries (ct, *index)."""
    items = (ScalarType(t.dtype, True), *(ScalarType(dt.int32, True) for _ in t.shape))
    made: Value = control.stack(items=items, varying=True)
    return made


def no_entries() -> Value:
    """The cotangent in lane code of a tile of which nothing was read."""
    return constant(0, dt.int32)


def read_adjoint(op: Op, frame: Frame, ct: Value) -> Value | None:
    """Reverse a read of a tile's element in lane code: note (ct, index); the tile's cotangent in lane code."""
    if op.name != "tile_extract":
        raise GradientUndefined(f"no gradient of `{op.name}` where lanes are apart", loc=op.loc)
    sink = frame.deferred[op.operands[0]]
    given = frame.get(op.operands[1:])
    index = [i if dtype_of(i.type) is dt.int32 else REGISTRY["astype"](i, dtype=dt.int32) for i in given]
    if not isinstance(sink, Reads):
        items = sink.type.items
        control.push(sink, *(control.as_type(v, t) for v, t in zip((ct, *index), items, strict=True)))
        return constant(1, dt.int32)
    if sink.frame is not frame:
        raise GradientUndefined(
            "no gradient: a condition or loop inside a map reads an element of a tile", loc=op.loc,
            help="read the element before the condition or loop",
        )  # fmt: skip
    sink.found.append(Read(op.operands[0], (ct, *index)))
    return None


def collect(stack: Value, count: Value, t: Type, block_dim: int) -> Value:
    """Add the entries of all lanes up, `count` of each lane."""
    count = control.as_type(count, ScalarType(dt.int32, True))
    longest = fold("tile_max", REGISTRY["tile_from_lanes"](count, block_dim=block_dim))
    items = items_of(stack.type)

    def turn(i: Value, acc: Value) -> list[Value]:
        def entry() -> tuple[Value, ...]:
            return results_of(control.pop(stack))

        def nothing() -> list[Value]:
            return [control.as_type(constant(0, s.dtype), s) for s in items]

        ct, *index = control.build_if(REGISTRY["lt"](i, count), entry, nothing)
        return [REGISTRY["tile_add_at"](acc, ct, *index)]

    (made,) = control.build_for(no_entries(), longest, constant(1, dt.int32), [zero(t)], turn)
    return made


def scatter(parts: Sequence[Value], t: Type) -> Value:
    """Add (ct, *index) up, given as tiles with one element for each read."""
    size = math.prod(shape_of(parts[0].type))
    flat = [REGISTRY["tile_reshape"](p, shape=(size,)) for p in parts]

    def turn(i: Value, acc: Value) -> list[Value]:
        ct, *index = (REGISTRY["tile_extract"](p, i) for p in flat)
        return [REGISTRY["tile_add_at"](acc, ct, *index)]

    (made,) = control.build_for(no_entries(), constant(size, dt.int32), constant(1, dt.int32), [zero(t)], turn)
    return made


def for_each(operands: Sequence[Value]) -> list[Value]:
    """Operands of a write, of which at least one differs between lanes: only the last lane has written."""
    given = list(operands)
    if not any(is_varying(v.type) for v in given[2:]):
        given[-1] = REGISTRY["spread"](given[-1])
    return given


def needs_deferring(op: Op, frame: Frame, values: set[Value]) -> bool:
    """Whether `op` reads a differentiated tile where no tile can be made."""
    return frame.lane and any(isinstance(v.type, TileType) and v in values for v in op.operands)
