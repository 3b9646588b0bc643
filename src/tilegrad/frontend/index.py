"""Subscripts and attributes of arrays and tiles, for reading and for writing.

`a[i]` of an array is an element or a row; `t[i]` of a tile is an element or a view. A view is a reference to the
tile that it was taken from, so a write through it, or through a view of a view, reaches that tile.
What is a part of a tile: see tile_index. Does not know how names are bound.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilegrad.composite import Composite, first_leaf, map_parts
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.element_types import StructType
from tilegrad.frontend.composites import is_indexed, rank_of
from tilegrad.frontend.scope import (
    TileRef,
    describe_value,
    is_array,
)
from tilegrad.frontend.tile_index import TileIndexing
from tilegrad.ir.core import Value
from tilegrad.ir.types import ArrayType, is_varying
from tilegrad.op import REGISTRY, describe

ARRAY_MEMBERS = ("shape", "ndim", "dtype", "size")
TILE_MEMBERS = ("T", "shape", "ndim", "dtype", "size", "sum", "min", "max", "astype", "reshape", "copy")
#: methods of a tile, and the op behind each
TILE_METHODS = {
    "sum": "tile_sum", "min": "tile_min", "max": "tile_max", "astype": "tile_astype", "reshape": "tile_reshape",
}  # fmt: skip


#: updates of array elements that are atomic
_ATOMICS: dict[type[ast.operator], str] = {
    ast.Add: "array_atomic_add", ast.Sub: "array_atomic_add", ast.BitAnd: "array_atomic_and",
    ast.BitOr: "array_atomic_or", ast.BitXor: "array_atomic_xor",
}  # fmt: skip


class Row:
    """`a[i]` with an index that differs between lanes: kept until the other indices are known."""

    def __init__(self, base: Value, items: tuple[Any, ...]) -> None:
        self.base = base
        self.items = items


class Indexing(TileIndexing):
    """Element access, views and members."""

    # --- reading ------------------------------------------------------------------------------------------------

    def subscript(self, node: ast.AST, base: Any, index: Any, texts: tuple[str, ...]) -> Any:
        """`base[index]`."""
        self.refuse_stacks(node, base)
        if isinstance(base, Composite):
            return self._composite_subscript(node, base, index, texts)
        base, items = _unrowed(base, index)
        if is_array(base):
            return self._read_array(node, base, items, texts)
        if isinstance(base, TileRef):
            return self.read_tile(node, base, items, texts)
        return self._read_static(node, base, index)

    def _read_array(self, node: ast.AST, base: Value, items: tuple[Any, ...], texts: tuple[str, ...]) -> Any:
        rank = _array_type(base).ndim
        self._check_array_index(node, base, items)
        name = "array_load" if len(items) == rank else "array_row"
        if name == "array_row" and any(isinstance(i, Value) and is_varying(i.type) for i in items):
            return Row(base, items)
        return self.call_op(node, REGISTRY[name], (base, *items), {}, texts, spelled=False)

    def _check_array_index(self, node: ast.AST, base: Value, items: tuple[Any, ...]) -> None:
        rank = _array_type(base).ndim
        if len(items) > rank:
            self.fail(
                node, f"{len(items)} indices for {describe(base.type)}", kind=ShapeMismatch,
                help=f"give at most {rank}",
            )  # fmt: skip
        for item in items:
            if isinstance(item, slice) or item is Ellipsis:
                self.fail(
                    node, "an array is not sliced inside a kernel", kind=TypeMismatch,
                    help="read a tile: tile_load(a, shape=..., offset=...), or a row: a[i]",
                )  # fmt: skip
            if not self._is_index(item):
                self._refuse_index(node, item)

    def _read_static(self, node: ast.AST, base: Any, index: Any) -> Any:
        index = self.known(index)
        if isinstance(index, Value):
            self.unroll_for(index)
            self.fail(
                node, f"{describe_value(base)} is indexed by a run-time value; only a constant can choose from it",
                kind=TypeMismatch, help="loop over it with `for x in ...`, or put the values into an array",
            )  # fmt: skip
        try:
            return base[index]
        except (TypeError, IndexError, KeyError) as error:
            kind = TypeMismatch if isinstance(error, TypeError) else KernelIndexError
            self.fail(node, f"{describe_value(base)} has no [{index!r}]: {error}", kind=kind)

    # --- writing ------------------------------------------------------------------------------------------------

    def store(self, node: ast.AST, base: Any, index: Any, value: Any, texts: tuple[str, ...]) -> None:
        """`base[index] = value`."""
        if isinstance(base, Composite):
            self._store_composite(node, base, index, value, texts)
            return
        base, items = _unrowed(base, index)
        if is_array(base):
            self._check_array_index(node, base, items)
            rank = _array_type(base).ndim
            if len(items) < rank:
                self.fail(
                    node, f"{len(items)} of {rank} indices are given; a row is not assigned as a whole",
                    kind=ShapeMismatch, help="store a tile with tile_store(a[i], t), or give all indices",
                )  # fmt: skip
            value = self._element(node, value, _array_type(base).dtype)
            self.call_op(node, REGISTRY["array_store"], (base, value, *items), {}, texts, spelled=False)
        elif isinstance(base, TileRef):
            self.store_tile(node, base, items, value, texts)
        else:
            self.fail(node, f"{describe_value(base)} cannot be assigned to by index", kind=TypeMismatch)

    def update(
        self,
        node: ast.AST,
        kind: type[ast.operator],
        base: Any,
        index: Any,
        value: Callable[[], Any],
        texts: tuple[str, ...],
    ) -> None:
        """`base[index] op= value()`, with the target evaluated once and read before the value, as Python does."""
        if isinstance(base, Composite):
            self._update_composite(node, kind, base, index, value, texts)
            return
        base, items = _unrowed(base, index)
        if isinstance(base, TileRef):
            self.update_part(node, kind, base, items, value, texts)
            return
        if is_array(base) and kind in _ATOMICS and not self._own_element(base, items):
            self._update_array(node, kind, base, items, value(), texts)
            return
        old = self.subscript(node, base, items, texts)
        self.store(node, base, items, self.binary(node, kind, old, value(), (texts[0], "value")), texts)

    def _own_element(self, base: Value, items: tuple[Any, ...]) -> bool:
        """Whether no other lane or block can mean the same element: the index has every index of the grid."""
        names = [(v.op.name, v.op.attrs.get("axis", 0)) for v in items if isinstance(v, Value) and v.op is not None]
        name = "thread_id" if self.builder.per_lane else "block_id"
        whole = all((name, axis) in names for axis in range(self.grid_ndim))
        return whole and (self.builder.per_lane or not self.builder.divergence or ("lane_id", 0) in names)

    def _update_array(
        self, node: ast.AST, kind: type[ast.operator], base: Value, items: tuple[Any, ...], x: Any, texts: Any
    ) -> None:
        """`a[i] += x` where several lanes or blocks may update one element: each of them counts."""
        self._check_array_index(node, base, items)
        x = self._element(node, x, _array_type(base).dtype)
        if kind is ast.Sub:
            x = self.emit(node, "neg", x)
        self.call_op(node, REGISTRY[_ATOMICS[kind]], (base, x, *items), {}, texts, spelled=False)

    # --- composite elements -------------------------------------------------------------------------------------

    def _composite_subscript(self, node: ast.AST, base: Composite, index: Any, texts: tuple[str, ...]) -> Any:
        """An element, a view or a row of an array or tile of composites; or a part of a single composite."""
        items = index if isinstance(index, tuple) else (index,)
        if not is_indexed(base) and not isinstance(first_leaf(base), Row):
            return self.take(node, base, self.indexed_part(node, base.kind, items))
        rank = rank_of(base) or len(items)
        if len(items) > rank and None not in [i for i in items if not isinstance(i, (Value, TileRef))]:
            element = self._composite_subscript(node, base, items[:rank], texts)
            return self.take(node, element, self.indexed_part(node, base.kind, items[rank:]))
        return map_parts(lambda leaf: self.subscript(node, leaf, items, texts), base)

    def _store_composite(self, node: ast.AST, base: Composite, index: Any, value: Any, texts: tuple[str, ...]) -> None:
        if not is_indexed(base) and not isinstance(first_leaf(base), Row):
            self.fail(node, f"{describe_value(base)} cannot be assigned to by index here", kind=TypeMismatch)
        value = self._of_kind(node, base, value)
        map_parts(lambda leaf, new: self.store(node, leaf, index, new, texts), base, value)

    def _of_kind(self, node: ast.AST, base: Composite, value: Any) -> Composite:
        """A value that is to become an element of an array or tile of composites."""
        value = self.plain(value)
        if not isinstance(value, Composite) or value.kind is not base.kind:
            self.fail(
                node, f"an element of type {base.kind} is assigned {describe_value(value)}", kind=TypeMismatch,
                help=f"make it one: {base.kind}(...)",
            )  # fmt: skip
        return value

    def _update_composite(
        self,
        node: ast.AST,
        kind: type[ast.operator],
        base: Composite,
        index: Any,
        value: Callable[[], Any],
        texts: tuple[str, ...],
    ) -> None:
        if kind in (ast.Add, ast.Sub):
            new = self._of_kind(node, base, value())
            map_parts(lambda leaf, part: self.update(node, kind, leaf, index, lambda: part, texts), base, new)
            return
        old = self.subscript(node, base, index, texts)
        self.store(node, base, index, self.binary(node, kind, old, value(), (texts[0], "value")), texts)

    # --- attributes ---------------------------------------------------------------------------------------------

    def member(self, node: ast.AST, base: Any, name: str) -> Any:
        """`base.name` for an array or a tile; a method is returned as a callable on the tracer's values."""
        if isinstance(base, Composite):
            return self._composite_member(node, base, name)
        if is_array(base):
            return self._array_member(node, base, name)
        if isinstance(base, TileRef):
            return self._tile_member(node, base, name)
        self.fail(node, f"{describe_value(base)} has no attribute `{name}`", kind=TypeMismatch)

    def _composite_member(self, node: ast.AST, base: Composite, name: str) -> Any:
        """A part of a composite; of an array or tile of composites also what arrays and tiles have."""
        own = isinstance(base.kind, StructType) and name in base.kind.members
        if is_indexed(base) and not own and name in (*ARRAY_MEMBERS, *TILE_MEMBERS):
            if name == "dtype":
                return base.kind
            first = first_leaf(base)
            if isinstance(first, TileRef) and (name in TILE_METHODS or name == "copy"):
                return Method(name, base)
            if name != "T":
                return self.member(node, first, name)
            return map_parts(lambda leaf: self.member(node, leaf, name), base)
        return self.take(node, base, self.named_part(node, base.kind, name))

    def _array_member(self, node: ast.AST, base: Value, name: str) -> Any:
        kind = _array_type(base)
        if name == "ndim":
            return kind.ndim
        if name == "dtype":
            return kind.dtype
        if name in ("shape", "size"):
            shape = tuple(self.emit(node, "array_shape", base, axis=i) for i in range(kind.ndim))
            if name == "shape":
                return shape
            size = shape[0]
            for extent in shape[1:]:
                size = self.emit(node, "mul", size, extent)
            return size
        self._no_member(node, "an array", name, ARRAY_MEMBERS)

    def _tile_member(self, node: ast.AST, base: TileRef, name: str) -> Any:
        if name in ("shape", "ndim", "dtype", "size"):
            return getattr(base, name)
        if name == "T":
            return self.emit(node, "tile_transpose", base, axes=tuple(range(base.ndim))[::-1])
        if name in TILE_METHODS or name == "copy":
            return Method(name, base)
        self._no_member(node, "a tile", name, TILE_MEMBERS)

    def _no_member(self, node: ast.AST, what: str, name: str, members: tuple[str, ...]) -> None:
        listed = ", ".join(members)
        self.fail(node, f"{what} has no attribute `{name}` in a kernel", kind=TypeMismatch, help=f"it has: {listed}")


class Method:
    """A method of a tile, waiting for its arguments."""

    def __init__(self, name: str, base: TileRef | Composite) -> None:
        self.name = name
        self.base = base

    def __repr__(self) -> str:
        return f"the method {self.name} of a tile"


def _unrowed(base: Any, index: Any) -> tuple[Any, tuple[Any, ...]]:
    """The array and all indices of a chain such as `a[i][j]`."""
    items = index if isinstance(index, tuple) else (index,)
    return (base.base, (*base.items, *items)) if isinstance(base, Row) else (base, items)


def _array_type(x: Value) -> ArrayType:
    kind = x.type
    assert isinstance(kind, ArrayType)
    return kind
