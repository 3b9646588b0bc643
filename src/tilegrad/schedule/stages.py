"""The scheduled kernel: a tree of stages over the ops of the Tile IR, and the storage of tiles.

A stage is what happens at one place in the program of a block. Ops that no stage names are computed where they are
read: constants, views, loads and elementwise ops that were fused into their readers.
Does not decide anything: `groups` makes the stages, `storage` the slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilegrad.ir.core import Op, Value
from tilegrad.ir.types import StackType, TileType


@dataclass(eq=False)
class Scalar:
    """A uniform op on scalars and arrays, run once per block."""

    op: Op


@dataclass(eq=False)
class Group:
    """A loop nest over `shape` that computes all its roots point by point.

    Roots are sinks (ops), folds (ops) over `axes`, and tiles (values) to be written to their slots.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    roots: list[Op | Value] = field(default_factory=list)

    @property
    def folds(self) -> list[Op]:
        return [r for r in self.roots if isinstance(r, Op) and r.definition.cls == "fold"]


@dataclass(eq=False)
class Whole:
    """A block op, which reads and writes whole tiles in their slots."""

    op: Op


@dataclass(eq=False)
class Lanes:
    """A loop over the live lanes of the block that runs its roots, in order, for each (for a vector of them at once).

    Roots are ops with an effect or regions, and varying values to be written to their slots.
    """

    roots: list[Op | Value] = field(default_factory=list)


@dataclass(eq=False)
class Control:
    """A uniform `if_`, `for_` or `while_` with the stages of its regions."""

    op: Op
    regions: list[list[Stage]]


Stage = Scalar | Group | Whole | Lanes | Control


@dataclass(eq=False)
class Slot:
    """A place in the block's scratch memory."""

    bytes: int
    offset: int = -1


@dataclass(eq=False)
class Schedule:
    """The stages of a kernel and the slots of its stored tiles and lane values."""

    stages: list[Stage]
    slots: dict[Value, Slot] = field(default_factory=dict)
    scratch_bytes: int = 0


def in_register(value: Value) -> bool:
    """Whether a tile is a single element, which lives in a register like a scalar."""
    return isinstance(value.type, TileType) and value.type.size == 1


def stored_type(value: Value, block_dim: int) -> TileType:
    """Dtype and shape of the memory behind a value: a tile's own, or one element per lane of a varying scalar."""
    if isinstance(value.type, TileType):
        return value.type
    assert not isinstance(value.type, StackType)
    return TileType(value.type.dtype, (block_dim,))
