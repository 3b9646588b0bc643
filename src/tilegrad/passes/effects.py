"""What passes must know of effects: which ops may be repeated, moved or dropped, and which memory a region writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, TileType, shape_of
from tilegrad.ops.control import constant, spread

#: Ops of integers that refuse some values of their second operand.
_DIVISIONS = {"floordiv": 0, "mod": 0}
#: Ops that check element indices; the indices are their last operands.
_INDEXED = ("tile_extract", "tile_put", "tile_put_masked", "tile_add_at", "tile_bits_at")
_ALWAYS = ("array_load", "array_row", "array_take", "tile_gather", "tile_scatter", "tile_scatter_sum")


def is_pure(op: Op) -> bool:
    """Whether the op has no effect and no region, so that its result depends on its operands alone."""
    return op.definition.effect == "none" and not op.regions and op.name != "yield"


def constant_value(v: Value) -> Any:
    """The number that a constant is, or None."""
    if v.op is None:
        return None
    if v.op.definition is spread:
        return constant_value(v.op.operands[0])
    return v.op.attrs["value"] if v.op.definition is constant else None


def splat_value(v: Value) -> Any:
    """The number that a constant or a tile full of it holds, or None."""
    while v.op is not None and v.op.name in ("tile_full", "tile_broadcast", "tile_reshape"):
        v = v.op.operands[0]
    return constant_value(v)


def is_zero(x: Any) -> bool:
    """Whether a known number is zero, and not the negative one."""
    return x is not None and x == 0 and not (isinstance(x, float) and bool(np.signbit(x)))


def may_raise(op: Op) -> bool:
    """Whether the op may stop the launch with an error, or must be taken to."""
    if op.definition.effect == "raise" or op.name in _ALWAYS:
        return True
    if op.name in _INDEXED:
        return not _is_inside(op)
    kind = op.results[0].type if op.results else None
    if isinstance(kind, (ScalarType, TileType)) and kind.dtype.is_int:
        if op.name in _DIVISIONS:
            return splat_value(op.operands[1]) in (None, 0)
        if op.name == "pow":
            exponent = splat_value(op.operands[1])
            return exponent is None or exponent < 0
    return any(may_raise(inner) for region in op.regions for inner in region.ops)


def _is_inside(op: Op) -> bool:
    """Whether the indices of a tile op are known to be right."""
    shape = shape_of(op.operands[0].type)
    known = [constant_value(v) for v in op.operands[-len(shape) :]]
    return all(k is not None and -n <= k < n for k, n in zip(known, shape, strict=True))


def memories(kernel: Kernel, op: Op) -> set[int]:
    """The memory that an op itself touches."""
    return {kernel.memory(v) for v in op.operands if isinstance(v.type, ArrayType)}


def is_write(op: Op) -> bool:
    return op.definition.effect in ("write", "atomic")


def inside(op: Op) -> Iterator[Op]:
    """The op and every op in its regions."""
    yield op
    for region in op.regions:
        yield from region.walk()


def written(kernel: Kernel, *blocks: Block) -> set[int]:
    """The memory that regions write."""
    result: set[int] = set()
    for block in blocks:
        for op in block.walk():
            if is_write(op):
                result |= memories(kernel, op)
    return result
