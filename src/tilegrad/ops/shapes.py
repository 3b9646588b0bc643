"""Checks and normal forms of shapes, axes and offsets, shared by the tile operations.

Everything here works at compile time on Python numbers; what is a run-time value is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, first_leaf
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import describe, unwrap

MAX_RANK = 8


def is_int(x: Any) -> bool:
    """Whether `x` is an integer known at compile time."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, (bool, np.bool_))


def require_shape(what: str, shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence, as a tuple of positive ints of rank 1 to 8."""
    extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not 1 <= len(extents) <= MAX_RANK:
        raise ShapeMismatch(f"{what}: a tile has 1 to {MAX_RANK} dimensions, this shape has {len(extents)}: {shape!r}")
    for k, n in enumerate(extents):
        if not is_int(n):
            found = describe(unwrap(n).type) if hasattr(unwrap(n), "type") else repr(n)
            raise ShapeMismatch(
                f"{what}: tile shape must be a compile-time constant, but dimension {k} is {found}",
                help="use a literal, a global or captured Python int, or tilegrad.constant",
            )
        if n <= 0:
            raise ShapeMismatch(
                f"{what}: every dimension of a tile must be positive, but dimension {k} is {n}",
                label=f"shape is {tuple(extents)}",
            )
    return tuple(int(n) for n in extents)


def require_axis(what: str, axis: Any, ndim: int) -> int:
    """One axis in [0, ndim), negative ones counted from the end."""
    if not is_int(axis):
        raise TypeMismatch(f"{what}: axis must be a compile-time integer, it is {axis!r}")
    if not -ndim <= axis < ndim:
        raise ShapeMismatch(f"{what}: axis {axis} is out of range for a tile with {ndim} dimensions")
    return int(axis) % ndim


def require_axes(what: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that `axis` names (None: all), sorted and distinct."""
    if axis is None:
        return tuple(range(ndim))
    listed = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(require_axis(what, a, ndim) for a in listed))
    if len(set(axes)) != len(axes):
        raise ShapeMismatch(f"{what}: an axis is named twice in {axis!r}")
    return axes


def as_offsets(what: str, offset: Any, ndim: int, of: str = "array") -> tuple[Any, ...]:
    """Offsets, one per axis of an array (or what `of` says): None means all zero, a single one will do for one axis."""
    if offset is None:
        return (0,) * ndim
    listed = tuple(offset) if isinstance(offset, (tuple, list)) else (offset,)
    if len(listed) != ndim:
        raise ShapeMismatch(
            f"{what}: {ndim} offset{'s are' if ndim != 1 else ' is'} needed, one per dimension of the {of}; "
            f"{len(listed)} given",
        )
    return listed


def require_rank(what: str, shape: Sequence[int]) -> None:
    """A tile has at most 8 axes."""
    if len(shape) > MAX_RANK:
        raise ShapeMismatch(f"{what}: a tile has 1 to {MAX_RANK} dimensions, this shape has {len(shape)}: {shape!r}")


def require_indices(what: str, types: Sequence[Type]) -> None:
    """Offsets and indices must be integer scalars."""
    for t in types:
        if not isinstance(t, ScalarType) or not t.dtype.is_int:
            raise TypeMismatch(
                f"{what}: an index must be an integer, this one is {describe(t)}", help="convert it with int(...)"
            )


def require_tile(what: str, name: str, x: Any) -> TileType:
    """The type of a tile argument, or an error that names it."""
    t = getattr(unwrap(x), "type", None)
    if not isinstance(t, TileType):
        raise TypeMismatch(
            f"{what}: `{name}` must be a tile{' of numbers' * isinstance(x, Composite)}, it is {_found(x, t)}"
        )
    return t


def _found(x: Any, t: Any) -> str:
    """What an argument is, in the user's terms."""
    if isinstance(x, Composite):
        tile = isinstance(getattr(unwrap(first_leaf(x)), "type", None), TileType)
        return f"a tile of {x.kind}" if tile else f"a {x.kind}"
    return describe(t) if t is not None else repr(x)


def require_dtype(what: str, dtype: Any) -> DType:
    """The DType that an argument stands for."""
    found = dt.as_dtype(dtype)
    if found is None:
        raise TypeMismatch(f"{what}: {dtype!r} is not an element type", help="for example tilegrad.float32 or float")
    return found


def require_storage(what: str, storage: Any) -> None:
    """`storage=` is a hint with two spellings; it never changes a result."""
    if storage not in ("register", "shared"):
        raise TypeMismatch(f'{what}: storage must be "register" or "shared", it is {storage!r}')
