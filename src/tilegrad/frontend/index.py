"""Subscripts and attributes of arrays and tiles, for reading and for writing.

`a[i]` of an array is an element or a row; `t[i]` of a tile is an element or a view. A view is a reference to the
tile that it was taken from, so a write through it, or through a view of a view, reaches that tile.
Slices of tiles have compile-time bounds. Does not know how names are bound.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.frontend.flow import Flow
from tilegrad.frontend.scope import (
    TileRef,
    describe_value,
    is_array,
    is_literal,
    is_scalar,
)
from tilegrad.frontend.values import BINARY
from tilegrad.ir.core import Value
from tilegrad.ir.types import ArrayType, is_varying
from tilegrad.op import REGISTRY, describe

ARRAY_MEMBERS = ("shape", "ndim", "dtype", "size")
TILE_MEMBERS = ("T", "shape", "ndim", "dtype", "size", "sum", "min", "max", "astype", "reshape", "copy")
#: methods of a tile, and the op behind each
TILE_METHODS = {
    "sum": "tile_sum", "min": "tile_min", "max": "tile_max", "astype": "tile_astype", "reshape": "tile_reshape",
}  # fmt: skip


class Row:
    """`a[i]` with an index that differs between lanes: kept until the other indices are known."""

    def __init__(self, base: Value, items: tuple[Any, ...]) -> None:
        self.base = base
        self.items = items


class Indexing(Flow):
    """Element access, views and members."""

    #: rank of the launch's grid
    grid_ndim = 1

    # --- reading ------------------------------------------------------------------------------------------------

    def subscript(self, node: ast.AST, base: Any, index: Any, texts: tuple[str, ...]) -> Any:
        """`base[index]`."""
        base, items = _unrowed(base, index)
        if is_array(base):
            return self._read_array(node, base, items, texts)
        if isinstance(base, TileRef):
            items = self._expanded(node, base, items)
            if all(self._is_index(i) for i in items) and len(items) == base.ndim:
                items = self._wrapped(node, base, items)
                return self.call_op(node, REGISTRY["tile_extract"], (base, *items), {}, texts, spelled=False)
            return self._view(node, base, items)
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

    def _is_index(self, item: Any) -> bool:
        if isinstance(item, bool):
            return False
        if is_scalar(item):
            dtype = self.dtype_of(item)
            if dtype is not None and not dtype.is_int:
                self.widen((item,), TypeMismatch("an index must be an integer"))
            return dtype is not None and dtype.is_int
        return isinstance(item, int)

    def _refuse_index(self, node: ast.AST, item: Any) -> None:
        kind = "None" if item is None else describe_value(item)
        self.fail(node, f"an index must be an integer, not {kind}", kind=TypeMismatch, help="convert it with int(...)")

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

    # --- views of tiles -----------------------------------------------------------------------------------------

    def _expanded(self, node: ast.AST, base: TileRef, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """The index with `...` and missing axes written out as full slices; None entries stay."""
        given = sum(1 for i in items if i is not None and i is not Ellipsis)
        if given > base.ndim:
            self.fail(node, f"{given} indices for {describe(base.type)}", kind=ShapeMismatch)
        fill = (slice(None),) * (base.ndim - given)
        if Ellipsis in [i for i in items if not isinstance(i, (Value, TileRef))]:
            at = next(k for k, i in enumerate(items) if i is Ellipsis)
            return items[:at] + fill + items[at + 1 :]
        return items + fill

    def _wrapped(self, node: ast.AST, base: TileRef, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Constant indices checked, and counted from the end if negative."""
        shape, axis, result = base.shape, 0, []
        for item in items:
            if isinstance(item, int):
                if not -shape[axis] <= item < shape[axis]:
                    self.fail(
                        node, f"index {item} is outside axis {axis} of {describe(base.type)}", kind=KernelIndexError,
                        help=f"the axis has {shape[axis]} elements",
                    )  # fmt: skip
                item = item % shape[axis]
            result.append(item)
            axis += item is not None
        return tuple(result)

    def _view(self, node: ast.AST, base: TileRef, items: tuple[Any, ...]) -> Any:
        starts: list[Any] = []
        sizes, steps, shape = [], [], []
        for item in self._wrapped(node, base, items):
            if item is None:
                shape.append(1)
                continue
            start, size, step = self._axis(node, base, len(starts), item)
            starts.append(start)
            sizes.append(size)
            steps.append(step)
            if isinstance(item, slice):
                shape.append(size)
        if not shape:
            shape = [1]
        view = base
        whole = all(isinstance(s, int) and s == 0 for s in starts) and set(steps) <= {1}
        if not whole or tuple(sizes) != base.shape:
            part = {"sizes": tuple(sizes), "steps": tuple(steps)}
            view = self.call_op(node, REGISTRY["tile_slice"], (base, *starts), part, ())
        if tuple(shape) != tuple(sizes):
            view = self.emit(node, "tile_reshape", view, shape=tuple(shape))
        return view

    def _axis(self, node: ast.AST, base: TileRef, axis: int, item: Any) -> tuple[Any, int, int]:
        """Start, size and step of one axis of a view."""
        if self._is_index(item):
            return item, 1, 1
        if not isinstance(item, slice):
            self._refuse_index(node, item)
        bounds = [self.known(b) for b in (item.start, item.stop, item.step)]
        for bound in bounds:
            if isinstance(bound, Value):
                self.unroll_for(bound)
                self.fail(
                    node, "the bounds of a tile slice must be compile-time constants", kind=ShapeMismatch,
                    help="a run-time start with a constant size is tile_view(t, offset=..., shape=...)",
                )  # fmt: skip
            if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool)):
                self._refuse_index(node, bound)
        start, stop, step = slice(*bounds).indices(base.shape[axis])
        size = len(range(start, stop, step))
        if size == 0:
            self.fail(
                node, f"this slice of axis {axis} of {describe(base.type)} is empty", kind=ShapeMismatch,
                help="a tile has at least one element on every axis",
            )  # fmt: skip
        return start, size, step

    # --- writing ------------------------------------------------------------------------------------------------

    def store(self, node: ast.AST, base: Any, index: Any, value: Any, texts: tuple[str, ...]) -> None:
        """`base[index] = value`."""
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
            self._store_tile(node, base, items, value, texts)
        else:
            self.fail(node, f"{describe_value(base)} cannot be assigned to by index", kind=TypeMismatch)

    def _element(self, node: ast.AST, value: Any, dtype: dt.DType) -> Any:
        """A value that is to become one element of `dtype`: literals are converted, the rest must agree."""
        value = self.plain(value)
        if isinstance(value, TileRef):
            value = self.only_element(node, value, "a single element is assigned from a tile")
        if is_literal(value):
            if isinstance(value, bool) == (dtype.kind == "b") and dt.literal_fits(value, dtype):
                self.builder.loc = self.loc(node)
                return self.typed(value, dtype)
            self.fail(node, f"the literal {value!r} cannot be an element of type {dtype}", kind=TypeMismatch)
        if not is_scalar(value):
            self.fail(node, f"an element of type {dtype} cannot be {describe_value(value)}", kind=TypeMismatch)
        if self.dtype_of(value) != dtype:
            error = TypeMismatch(
                f"an element of type {dtype} is assigned a value of type {self.dtype_of(value)}", loc=self.loc(node),
                help=f"cast the value: {dtype}(...)",
            )  # fmt: skip
            self.retype(value, dtype, error)
            raise error
        return value

    def _store_tile(self, node: ast.AST, base: TileRef, items: tuple[Any, ...], value: Any, texts: Any) -> None:
        items = self._expanded(node, base, items)
        if all(self._is_index(i) for i in items) and len(items) == base.ndim:
            items = self._wrapped(node, base, items)
            value = self._element(node, value, base.dtype)
            self.assign_tile(
                node, base, self.call_op(node, REGISTRY["tile_put"], (base, value, *items), {}, texts, spelled=False)
            )
            return
        view = self._view(node, base, items)
        self.assign_tile(node, view, self._spread_to(node, value, view))

    def _spread_to(self, node: ast.AST, value: Any, view: TileRef) -> Any:
        """The right side of a slice assignment, broadcast to the shape of the left."""
        if not isinstance(value, TileRef):
            value = self._element(node, value, view.dtype)
            return self.emit(node, "tile_full", value, shape=view.shape)
        if value.shape == view.shape:
            return value
        pairs = zip(reversed(value.shape), reversed(view.shape), strict=False)
        if value.ndim > view.ndim or any(m not in (1, n) for m, n in pairs):
            self.fail(
                node, f"{describe(value.type)} does not fit into a slice of shape {view.shape}", kind=ShapeMismatch
            )
        return self.emit(node, "tile_broadcast", value, shape=view.shape)

    def assign_tile(self, node: ast.AST, target: TileRef, value: Any) -> None:
        """Write a tile through a reference, with errors placed at `node`."""
        self.call_op(node, target.assign, (value,), {}, ())

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
        base, items = _unrowed(base, index)
        if isinstance(base, TileRef):
            items = self._expanded(node, base, items)
            if len(items) != base.ndim or not all(self._is_index(i) for i in items):
                self.update_tile(node, kind, self._view(node, base, items), value())
                return
            items = self._wrapped(node, base, items)
            if kind in (ast.Add, ast.Sub):
                self._add_at(node, kind, base, items, value())
                return
        elif is_array(base) and kind in (ast.Add, ast.Sub) and not self._own_element(base, items):
            self._add_to_array(node, kind, base, items, value(), texts)
            return
        old = self.subscript(node, base, items, texts)
        self.store(node, base, items, self.binary(node, kind, old, value(), (texts[0], "value")), texts)

    def _own_element(self, base: Value, items: tuple[Any, ...]) -> bool:
        """Whether no other lane or block can mean the same element: the index has every index of the grid."""
        names = [(v.op.name, v.op.attrs.get("axis", 0)) for v in items if isinstance(v, Value) and v.op is not None]
        name = "thread_id" if self.builder.per_lane else "block_id"
        whole = all((name, axis) in names for axis in range(self.grid_ndim))
        return whole and (self.builder.per_lane or not self.builder.divergence or ("lane_id", 0) in names)

    def _add_to_array(
        self, node: ast.AST, kind: type[ast.operator], base: Value, items: tuple[Any, ...], x: Any, texts: Any
    ) -> None:
        """`a[i] += x` where several lanes or blocks may add to one element: each of them counts."""
        self._check_array_index(node, base, items)
        x = self._element(node, x, _array_type(base).dtype)
        if kind is ast.Sub:
            x = self.emit(node, "neg", x)
        self.call_op(node, REGISTRY["array_atomic_add"], (base, x, *items), {}, texts, spelled=False)

    def _add_at(self, node: ast.AST, kind: type[ast.operator], base: TileRef, items: tuple[Any, ...], x: Any) -> None:
        """Every lane adds to a tile element."""
        x = self._element(node, x, base.dtype)
        if kind is ast.Sub:
            x = self.emit(node, "neg", x)
        self.assign_tile(node, base, self.emit(node, "tile_add_at", base, x, *items))

    def update_tile(self, node: ast.AST, kind: type[ast.operator], target: TileRef, value: Any) -> None:
        """`target op= value` in place: the tile keeps its shape and dtype."""
        symbol = BINARY[kind][1]
        result = self.binary(node, kind, target, value, ("target", "value"))
        if isinstance(result, TileRef) and result.shape != target.shape:
            self.fail(
                node, f"`{symbol}=` cannot change a tile of shape {target.shape} into one of shape {result.shape}",
                kind=ShapeMismatch, help=f"write x = x {symbol} y for a new tile",
            )  # fmt: skip
        if isinstance(result, TileRef) and result.dtype != target.dtype:
            self.fail(
                node, f"`{symbol}=` cannot change a {target.dtype} tile into a {result.dtype} tile",
                kind=TypeMismatch, help=f"write x = x {symbol} y for a new tile",
            )  # fmt: skip
        self.assign_tile(node, target, result)

    # --- attributes ---------------------------------------------------------------------------------------------

    def member(self, node: ast.AST, base: Any, name: str) -> Any:
        """`base.name` for an array or a tile; a method is returned as a callable on the tracer's values."""
        if is_array(base):
            return self._array_member(node, base, name)
        if isinstance(base, TileRef):
            return self._tile_member(node, base, name)
        self.fail(node, f"{describe_value(base)} has no attribute `{name}`", kind=TypeMismatch)

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

    def __init__(self, name: str, base: TileRef) -> None:
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
