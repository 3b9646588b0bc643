"""What passes must know of effects: which ops may be repeated or dropped, and which memory a region writes."""

from __future__ import annotations

from collections.abc import Iterator

from tilegrad.ir.core import Block, Kernel, Op
from tilegrad.ir.types import ArrayType


def is_pure(op: Op) -> bool:
    """Whether the op has no effect and no region, so that its result depends on its operands alone."""
    return op.definition.effect == "none" and not op.regions and op.name != "yield"


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


def written(kernel: Kernel, block: Block) -> set[int]:
    """The memory that a region writes."""
    result: set[int] = set()
    for op in block.walk():
        if is_write(op):
            result |= memories(kernel, op)
    return result
