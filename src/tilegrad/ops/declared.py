"""Names that are functions in a kernel and declare parameters of a @func outside: `tile` and `tile_stack`.

    t = tg.tile(x)                              in a kernel: one element for each lane
    def f(t: tg.tile[float, 4, 8]): ...         a float32 tile (4, 8); without extents, or with Any, of any shape
    def f(t: tg.tile(dtype=float, shape=4)):    the same in Warp's older spelling
    def f(s: tg.tile_stack(64, float)): ...     a stack of 64 float32

Does not check arguments against what is declared: the front end does when it inlines a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilegrad.composite import first_leaf, kind_of
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import CompositeType, as_element_type
from tilegrad.ir.types import TileType
from tilegrad.ops.shapes import is_int, require_shape, require_storage


@dataclass(frozen=True, slots=True)
class TileAnnotation:
    """The declared type of a tile parameter; None leaves the element type, the shape or one extent open."""

    dtype: DType | CompositeType | None = None
    shape: tuple[int | None, ...] | None = None

    def __repr__(self) -> str:
        extents = "" if self.shape is None else "".join(f", {'Any' if n is None else n}" for n in self.shape)
        return f"tile[{self.dtype or 'Any'}{extents}]"

    def accepts(self, x: Any) -> bool:
        """Whether a value of a kernel is such a tile."""
        t = getattr(first_leaf(x), "type", None)
        if not isinstance(t, TileType) or self.dtype not in (None, kind_of(x)):
            return False
        return self.shape is None or (
            len(t.shape) == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, t.shape, strict=True))
        )


@dataclass(frozen=True, slots=True)
class StackAnnotation:
    """The declared type of a stack parameter; None leaves the element type or the capacity open."""

    dtype: DType | CompositeType | None = None
    capacity: int | None = None

    def __repr__(self) -> str:
        return f"tile_stack(capacity={self.capacity or 'Any'}, dtype={self.dtype or 'Any'})"

    def accepts(self, x: Any) -> bool:
        """Whether a value of a kernel is such a stack."""
        if not isinstance(x, TileStack):
            return False
        return self.dtype in (None, x.kind) and self.capacity in (None, x.capacity)


class TileStack(tuple[Any, ...]):
    """A stack in a kernel: its count as a tile (1,), then a tile (capacity,) for each leaf of `kind`."""

    kind: DType | CompositeType

    def __new__(cls, kind: DType | CompositeType, parts: Any) -> TileStack:
        made = super().__new__(cls, parts)
        made.kind = kind
        return made

    def rebuilt(self, parts: Any) -> TileStack:
        """A stack of the same element type with other parts."""
        return TileStack(self.kind, parts)

    def __repr__(self) -> str:
        return f"a stack of {self.capacity} {self.kind}"

    @property
    def count(self) -> Any:
        return self[0]

    @property
    def capacity(self) -> int:
        return int(self[1].type.shape[0])


class Declared:
    """A kernel function whose name, subscripted or called by Python, declares a parameter of a @func.

    The front end never calls it: in a kernel the name stands for `surface`.
    """

    def __init__(self, surface: Callable[..., Any], declare: Callable[..., Any]) -> None:
        functools.update_wrapper(self, surface)
        self.surface = surface
        self.declare = declare
        self.__tilegrad_annotation__ = declare()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.declare(*args, **named)

    def __getitem__(self, item: Any) -> Any:
        return self.declare(*item) if isinstance(item, tuple) else self.declare(item)

    def __repr__(self) -> str:
        return f"<kernel function {self.surface.__name__}>"


def declare_tile(
    dtype: Any = Any,
    *extents: Any,
    shape: Any = None,
    storage: str = "register",
    layout: str = "rowmajor",
    strides: Any = None,
    owner: bool = True,
) -> TileAnnotation:
    """The annotation of a tile parameter. `storage`, `layout`, `strides` and `owner` have no meaning here."""
    require_storage("tile", storage)
    if len(extents) == 1 and isinstance(extents[0], (tuple, list)):
        extents = tuple(extents[0])
    if shape is not None:
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    kind = _element("tile", dtype)
    if not extents:
        return TileAnnotation(kind)
    require_shape("tile", tuple(1 if n is Any else n for n in extents))
    return TileAnnotation(kind, tuple(None if n is Any else int(n) for n in extents))


def declare_stack(capacity: Any = Any, dtype: Any = Any) -> StackAnnotation:
    """The annotation of a stack parameter."""
    if capacity is not Any and not (is_int(capacity) and capacity > 0):
        raise TypeMismatch(f"tile_stack: capacity must be a positive int, it is {capacity!r}")
    return StackAnnotation(_element("tile_stack", dtype), None if capacity is Any else int(capacity))


def _element(what: str, dtype: Any) -> DType | CompositeType | None:
    if dtype is Any or dtype is None:
        return None
    found = as_element_type(dtype)
    if found is None:
        raise TypeMismatch(
            f"{what}: {dtype!r} is not an element type",
            help=f"outside of a kernel `{what}` declares a parameter of a @func: {what}[float, 4] or "
            f"{what}(dtype=float, shape=4)" if what == "tile" else "write tile_stack(capacity=64, dtype=float)",
        )  # fmt: skip
    return found
