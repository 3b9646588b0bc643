"""Parts and elements of tiles by subscript: `t[i, j]`, `t[a:b]`, `t[idx, :]`, `t[mask]`, for reading and for writing.

A view is a reference to the tile that it was taken from, so a write through it, or through a view of a view, reaches
that tile. Slices have compile-time bounds. Tiles of integers index as NumPy's arrays do; what they read is a new tile.
A bool tile of the tile's shape chooses what an assignment replaces.
Does not know arrays, nor how names are bound.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.frontend.composites import Composites
from tilegrad.frontend.scope import TileRef, describe_value, is_literal, is_scalar
from tilegrad.frontend.values import BINARY
from tilegrad.ir.core import Value
from tilegrad.ir.types import is_varying
from tilegrad.op import REGISTRY, describe
from tilegrad.ops.gather import broadcast_indices, gathered_shape

_BITS: dict[type[ast.operator], str] = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}


@dataclass(frozen=True)
class Picked:
    """What `t[idx, :]` means: a view with the slices applied, the index tiles, their axes, and the result's shape."""

    view: TileRef
    index: list[Any]
    places: dict[str, Any]
    shape: tuple[int, ...]


class TileIndexing(Composites):
    """Subscripts of tiles."""

    #: rank of the launch's grid
    grid_ndim = 1

    # --- reading ------------------------------------------------------------------------------------------------

    def read_tile(self, node: ast.AST, base: TileRef, items: tuple[Any, ...], texts: tuple[str, ...]) -> Any:
        """`base[items]`: an element, a view, or a new tile where index tiles pick."""
        if self._mask_of(node, base, items) is not None:
            self.fail(
                node, "how many elements a mask chooses is not known when the kernel is compiled", kind=TypeMismatch,
                help="choose between values with where(mask, a, b); t[mask] can be assigned to",
            )  # fmt: skip
        items = self._expanded(node, base, items)
        if any(isinstance(i, TileRef) for i in items):
            picked = self._picked(node, base, items)
            return self.emit(node, "tile_gather", picked.view, *picked.index, **picked.places)
        if self._is_element(base, items):
            items = self._wrapped(node, base, items)
            return self.call_op(node, REGISTRY["tile_extract"], (base, *items), {}, texts, spelled=False)
        return self._view(node, base, items)

    def _is_element(self, base: TileRef, items: tuple[Any, ...]) -> bool:
        return all(self._is_index(i) for i in items) and len(items) == base.ndim

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

    # --- views -----------------------------------------------------------------------------------------

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

    # --- index tiles and masks ----------------------------------------------------------------------------------

    def _mask_of(self, node: ast.AST, base: TileRef, items: tuple[Any, ...]) -> TileRef | None:
        """The mask of `base[mask]`, a bool tile."""
        masks = [i for i in items if isinstance(i, TileRef) and i.dtype.kind == "b"]
        if not masks:
            return None
        if len(items) > 1 or masks[0].shape != base.shape:
            self.fail(
                node, f"a mask must have the shape of the tile, {base.shape}, and stand alone; "
                f"this is {describe(masks[0].type)}",
                kind=ShapeMismatch, help="broadcast it: tile_broadcast(mask, shape)",
            )  # fmt: skip
        return masks[0]

    def _picked(self, node: ast.AST, base: TileRef, items: tuple[Any, ...]) -> Picked:
        """Index tiles, and ints beside them, mean what they mean in NumPy."""
        if None in [i for i in items if not isinstance(i, (Value, TileRef))]:
            self.fail(
                node, "None does not stand beside an index tile", kind=ShapeMismatch,
                help="insert the axis with tile_reshape",
            )  # fmt: skip
        items = self._wrapped(node, base, items)
        axes = tuple(k for k, i in enumerate(items) if not isinstance(i, slice))
        for k in axes:
            if not isinstance(items[k], TileRef) and not self._is_index(items[k]):
                self._refuse_index(node, items[k])
        view = self._view(node, base, tuple(i if isinstance(i, slice) else slice(None) for i in items))
        index = self.call_op(node, broadcast_indices, ("t[...]", [items[k] for k in axes]), {}, ())
        at = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else 0
        shape = gathered_shape(view.shape, index[0].type.shape, axes, at)
        return Picked(view, index, {"axes": axes, "at": at}, shape)

    # --- writing ------------------------------------------------------------------------------------------------

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

    def store_tile(self, node: ast.AST, base: TileRef, items: tuple[Any, ...], value: Any, texts: Any) -> None:
        """`base[items] = value`."""
        mask = self._mask_of(node, base, items)
        if mask is not None:
            new = self._spread_to(node, value, base.shape, base.dtype)
            self.assign_tile(node, base, self.emit(node, "where", mask, new, base))
            return
        items = self._expanded(node, base, items)
        if any(isinstance(i, TileRef) for i in items):
            self._scatter(node, self._picked(node, base, items), value)
        elif self._is_element(base, items):
            items = self._wrapped(node, base, items)
            value = self._element(node, value, base.dtype)
            self.assign_tile(
                node, base, self.call_op(node, REGISTRY["tile_put"], (base, value, *items), {}, texts, spelled=False)
            )
        else:
            view = self._view(node, base, items)
            self.assign_tile(node, view, self._spread_to(node, value, view.shape, view.dtype))

    def _scatter(self, node: ast.AST, picked: Picked, value: Any) -> None:
        """`t[idx] = value`: of equal places the last one wins."""
        view = picked.view
        new = self._spread_to(node, value, picked.shape, view.dtype)
        self.assign_tile(node, view, self.emit(node, "tile_scatter", view, new, *picked.index, **picked.places))

    def _spread_to(self, node: ast.AST, value: Any, shape: tuple[int, ...], dtype: dt.DType) -> Any:
        """The right side of an assignment to a part of a tile, broadcast to the shape of the left."""
        if not isinstance(value, TileRef):
            value = self._element(node, value, dtype)
            return self.emit(node, "tile_full", value, shape=shape)
        if value.shape == shape:
            return value
        pairs = zip(reversed(value.shape), reversed(shape), strict=False)
        if value.ndim > len(shape) or any(m not in (1, n) for m, n in pairs):
            self.fail(node, f"{describe(value.type)} does not fit into a slice of shape {shape}", kind=ShapeMismatch)
        return self.emit(node, "tile_broadcast", value, shape=shape)

    def assign_tile(self, node: ast.AST, target: TileRef, value: Any) -> None:
        """Write a tile through a reference, with errors placed at `node`."""
        self.call_op(node, target.assign, (value,), {}, ())

    # --- updates ------------------------------------------------------------------------------------------------

    def update_part(
        self, node: ast.AST, kind: type[ast.operator], base: TileRef, items: tuple[Any, ...],
        value: Callable[[], Any], texts: tuple[str, ...],
    ) -> None:  # fmt: skip
        """`base[items] op= value()`."""
        mask = self._mask_of(node, base, items)
        if mask is not None:
            result = self._updated(node, kind, base, value())
            self.assign_tile(node, base, self.emit(node, "where", mask, result, base))
            return
        items = self._expanded(node, base, items)
        if any(isinstance(i, TileRef) for i in items):
            self._update_picked(node, kind, self._picked(node, base, items), value)
        elif self._is_element(base, items):
            self._update_element_of(node, kind, base, self._wrapped(node, base, items), value, texts)
        else:
            self.update_tile(node, kind, self._view(node, base, items), value())

    def _update_picked(self, node: ast.AST, kind: type[ast.operator], picked: Picked, value: Callable[[], Any]) -> None:
        """`t[idx] += v` counts equal places each; other operators read, compute and assign, as in NumPy."""
        view = picked.view
        if kind not in (ast.Add, ast.Sub):
            old = self.emit(node, "tile_gather", view, *picked.index, **picked.places)
            self._scatter(node, picked, self._updated(node, kind, old, value()))
            return
        new = self._negated(node, kind, self._spread_to(node, value(), picked.shape, view.dtype))
        if _broadcast_at(view) is not None:
            zero = self._spread_to(node, False if view.dtype.kind == "b" else 0, view.shape, view.dtype)
            self._add_through(
                node, view, self.emit(node, "tile_scatter_sum", zero, new, *picked.index, **picked.places)
            )
            return
        self.assign_tile(node, view, self.emit(node, "tile_scatter_sum", view, new, *picked.index, **picked.places))

    def _update_element_of(
        self, node: ast.AST, kind: type[ast.operator], base: TileRef, items: tuple[Any, ...],
        value: Callable[[], Any], texts: tuple[str, ...],
    ) -> None:  # fmt: skip
        if kind in (ast.Add, ast.Sub):
            x = self._negated(node, kind, self._element(node, value(), base.dtype))
            if _broadcast_at(base) is not None:
                zero = self._spread_to(node, False if base.dtype.kind == "b" else 0, base.shape, base.dtype)
                self._add_through(node, base, self.emit(node, "tile_add_at", zero, x, *items))
            else:
                self.assign_tile(node, base, self.emit(node, "tile_add_at", base, x, *items))
        elif kind in _BITS:
            x = self._element(node, value(), base.dtype)
            self.assign_tile(node, base, self.emit(node, "tile_bits_at", base, x, *items, bits=_BITS[kind]))
        else:
            old = self.read_tile(node, base, items, texts)
            x = value()
            self._require_own(node, kind, (*items, x))
            self.store_tile(node, base, items, self.binary(node, kind, old, x, (texts[0], "value")), texts)

    def _require_own(self, node: ast.AST, kind: type[ast.operator], values: Sequence[Any]) -> None:
        """Several lanes may add to one element, or combine its bits; any other update needs an element of its own."""
        varying = any(isinstance(v, Value) and is_varying(v.type) for v in values)
        if not (varying or self.builder.per_lane):
            return
        names = {(v.op.name, v.op.attrs.get("axis", 0)) for v in values[:-1] if isinstance(v, Value) and v.op}
        if ("lane_id", 0) in names or all(("thread_id", axis) in names for axis in range(self.grid_ndim)):
            return
        symbol = BINARY[kind][1]
        self.fail(
            node, f"`{symbol}=` on one tile element by all lanes of the block: they would have to take turns",
            kind=TypeMismatch,
            help=f"+= -= &= |= ^= combine the values of lanes; write t[i] = t[i] {symbol} x to set the element once",
        )  # fmt: skip

    def _negated(self, node: ast.AST, kind: type[ast.operator], x: Any) -> Any:
        return self.emit(node, "neg", x) if kind is ast.Sub else x

    def _updated(self, node: ast.AST, kind: type[ast.operator], target: TileRef, value: Any) -> TileRef:
        """`target op value`, which must keep the shape and dtype of the target."""
        symbol = BINARY[kind][1]
        result = self.binary(node, kind, target, value, ("target", "value"))
        assert isinstance(result, TileRef)
        if result.shape != target.shape:
            self.fail(
                node, f"`{symbol}=` cannot change a tile of shape {target.shape} into one of shape {result.shape}",
                kind=ShapeMismatch, help=f"write x = x {symbol} y for a new tile",
            )  # fmt: skip
        if result.dtype != target.dtype:
            self.fail(
                node, f"`{symbol}=` cannot change a {target.dtype} tile into a {result.dtype} tile",
                kind=TypeMismatch, help=f"write x = x {symbol} y for a new tile",
            )  # fmt: skip
        return result

    def update_tile(self, node: ast.AST, kind: type[ast.operator], target: TileRef, value: Any) -> None:
        """`target op= value` in place: the tile keeps its shape and dtype."""
        result = self._updated(node, kind, target, value)
        if kind in (ast.Add, ast.Sub) and _broadcast_at(target) is not None:
            new = self._negated(node, kind, self._spread_to(node, value, target.shape, target.dtype))
            self._add_through(node, target, new)
        else:
            self.assign_tile(node, target, result)

    def _add_through(self, node: ast.AST, target: TileRef, new: TileRef) -> None:
        """Add to a broadcast view: an element that it shows several times gets each of the additions."""
        last = _broadcast_at(target)
        assert last is not None
        self.builder.loc = self.loc(node)
        base = TileRef(target.cell, target.path[:last])
        values = [base.value]
        for step in target.path[last:-1]:
            values.append(step.apply(values[-1]))
        delta = new.value
        for step, value in zip(reversed(target.path[last:]), reversed(values), strict=True):
            assert step.definition.adjoint is not None
            delta = step.definition.adjoint(delta, None, value, *step.operands, **step.attrs)[0]
        if delta.type != base.type:  # sums of small integers are wider
            delta = REGISTRY["astype"](delta, dtype=base.dtype)
        self.assign_tile(node, base, self.emit(node, "add", base, delta))


def _broadcast_at(target: TileRef) -> int | None:
    """The number of the first broadcast on the way to a view."""
    return next((k for k, step in enumerate(target.path) if step.definition.name == "tile_broadcast"), None)
