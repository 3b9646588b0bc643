"""The types of Tile IR values.

A scalar is *uniform* (one value for a block) or *varying* (one value for each lane). A tile is always uniform: the
block owns it. Shapes are compile-time constants; an array's extents are run-time values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.dtypes import DType


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One number, for the block or (`varying`) for each of its lanes."""

    dtype: DType
    varying: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}*" if self.varying else f"{self.dtype}"


@dataclass(frozen=True, slots=True)
class TileType:
    """A small array of constant shape that the block owns together."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        result = 1
        for extent in self.shape:
            result *= extent
        return result


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array in memory. `dense_rows`: the elements of the last axis are known to be adjacent."""

    dtype: DType
    ndim: int
    dense_rows: bool = False

    def __str__(self) -> str:
        return f"array<{self.dtype},{self.ndim}{',dense' if self.dense_rows else ''}>"


@dataclass(frozen=True, slots=True)
class StackType:
    """A last-in first-out store of values saved for the backward pass; varying: one for each lane."""

    items: tuple[ScalarType | TileType, ...]
    varying: bool = False

    def __str__(self) -> str:
        return f"stack<{';'.join(map(str, self.items))}>{'*' if self.varying else ''}"


Type = ScalarType | TileType | ArrayType | StackType


def dtype_of(t: Type) -> DType:
    """The element type of a scalar, tile or array."""
    assert not isinstance(t, StackType)
    return t.dtype


def shape_of(t: Type) -> tuple[int, ...]:
    """The shape of a tile."""
    assert isinstance(t, TileType)
    return t.shape


def items_of(t: Type) -> tuple[ScalarType | TileType, ...]:
    """The types of what a stack holds."""
    assert isinstance(t, StackType)
    return t.items


def is_varying(t: Type) -> bool:
    """Whether the value may differ between the lanes of a block."""
    return isinstance(t, (ScalarType, StackType)) and t.varying
