"""Vectors, matrices, quaternions, transforms and structs in a kernel: construction, parts, places, calls part by part.

A `Composite` is a tuple of parts (see tilegrad.composite). An assignment to a part, `v.x = a`, `m[i, j] = a` or
`s.body.mass += a`, goes through a `Place`: what is assigned to, as far as it can be known before it is read. A part of
an array element is a place of its own, so that no other part is read or written.
Does not know what algebra on parts means (see ops/algebra.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import (
    Composite,
    first_leaf,
    is_struct,
    leaves,
    make_matrix,
    make_vector,
    map_parts,
)
from tilegrad.diagnostics import KernelIndexError, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import (
    CompositeType,
    GridType,
    MatrixType,
    StructType,
    TransformType,
    component,
)
from tilegrad.frontend.flow import Flow
from tilegrad.frontend.scope import TileRef, describe_value, is_array, is_literal, is_scalar
from tilegrad.frontend.signature import ArgumentType, GridArray
from tilegrad.frontend.values import BINARY
from tilegrad.ir.core import Value
from tilegrad.ir.opdef import OpDef
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import algebra

#: ops that do to a composite what they do to each of its parts
PART_BY_PART = frozenset(
    ("tile_load", "tile_store", "tile_atomic_add", "tile_load_indexed", "tile_store_indexed", "tile_atomic_add_indexed",
     "tile_broadcast", "tile_transpose", "tile_reshape", "tile_squeeze", "tile_slice", "tile_view", "tile_extract",
     "tile_slice_indexed", "tile_take_along", "tile_assign", "tile_full", "tile_sum", "neg", "where", "atomic_add",
     "array_load", "array_store", "array_row", "array_atomic_add", "array_atomic_sub", "array_atomic_exch",
     "array_atomic_min", "array_atomic_max",
     "tile_put", "tile_add_at", "tile_insert", "tile_scatter_add", "tile_scatter_masked", "tile_from_thread", "untile",
     "tile_scan_inclusive", "tile_scan_exclusive", "minimum", "maximum", "abs", "sign", "floor", "ceil", "round",
     "trunc", "rint", "clamp")
)  # fmt: skip


@dataclass(frozen=True)
class VariablePlace:
    """A variable."""

    node: ast.Name


@dataclass(frozen=True)
class ValuePlace:
    """A value that is no variable: a tile or an array, say."""

    value: Any


@dataclass(frozen=True)
class ElementPlace:
    """An element of an array or tile of scalars or composites: one index for each axis."""

    base: Any
    items: tuple[Any, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class PartPlace:
    """A part of a composite that stands at another place."""

    whole: VariablePlace | ElementPlace | PartPlace | ValuePlace
    part: Part


Place = VariablePlace | ValuePlace | ElementPlace | PartPlace


@dataclass(frozen=True)
class Part:
    """Which parts of a composite are meant: positions and the type that they make, or indices known at run time."""

    positions: tuple[int, ...] = ()
    kind: Any = None
    #: run-time indices, one for each axis of the grid
    index: tuple[Any, ...] = ()


def rank_of(x: Any) -> int:
    """The number of axes of an array or tile, of composites too; 0 for anything else."""
    t = getattr(first_leaf(x), "type", None)
    return int(getattr(t, "ndim", 0))


def is_indexed(x: Any) -> bool:
    """Whether a value is an array or tile, of composites too; a struct with array members is none."""
    return rank_of(x) > 0 and not (is_struct(x) and x.kind.has_arrays)


class Composites(Flow):
    """Composite values."""

    def expr(self, node: ast.expr) -> Any:
        raise NotImplementedError

    def subscript(self, node: ast.AST, base: Any, index: Any, texts: tuple[str, ...]) -> Any:
        raise NotImplementedError

    def store(self, node: ast.AST, base: Any, index: Any, value: Any, texts: tuple[str, ...]) -> None:
        raise NotImplementedError

    def lookup(self, node: ast.AST, name: str) -> Any:
        raise NotImplementedError

    # --- construction -------------------------------------------------------------------------------------------

    def construct(self, node: ast.AST, kind: CompositeType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`vec3(x, y, z)`, `mat22(...)`, `S(a=1.0)`: a value of a composite type."""
        if isinstance(kind, StructType):
            return self._construct_struct(node, kind, args, kwargs)
        assert isinstance(kind, GridType)
        if isinstance(kind, TransformType) and (len(args) + len(kwargs) == 2):
            args, kwargs = (*args, *kwargs.values()), {}
        if kwargs:
            self.fail(node, f"{kind} takes its parts one after the other, without keywords", kind=TypeMismatch)
        if not args:
            args = (0,) * 6 + (1,) if isinstance(kind, TransformType) else (0,)
        if isinstance(kind, MatrixType) and len(args) > 1 and all(isinstance(a, Composite) for a in args):
            self.fail(
                node, f"{kind} of vectors: rows or columns?", kind=TypeMismatch,
                help="write matrix_from_rows(...) or matrix_from_cols(...)",
            )  # fmt: skip
        flat = [x for a in args for x in (leaves(a) if isinstance(a, tuple) else (a,))]
        flat = [y for x in flat for y in (x if isinstance(x, tuple) else (x,))]
        if len(flat) == 1:
            flat *= kind.count
        if len(flat) != kind.count:
            self.fail(node, f"{kind} has {kind.count} parts, {len(flat)} are given", kind=TypeMismatch)
        converts = len(args) == 1 and isinstance(args[0], Composite)
        parts = [self._part_value(node, kind, kind.dtype, x, converts) for x in flat]
        if any(isinstance(p, TileRef) for p in parts):
            parts = [self.wrap(p) for p in algebra.even(parts)]  # numbers beside tiles
        return Composite(kind, parts)

    def _part_value(self, node: ast.AST, kind: Any, dtype: DType, x: Any, converts: bool) -> Any:
        """A number as a part of a composite: of its dtype, which only literals and conversions may change."""
        x = self.plain(x)
        if converts and isinstance(x, TileRef):
            return x if x.dtype is dtype else self.emit(node, "astype", x, dtype=dtype)
        if isinstance(x, TileRef):
            if x.dtype is dtype and x.size > 1:
                return x
            x = self.only_element(node, x, f"a part of {kind}")
        if converts or is_literal(x):
            return self.cast(node, dtype, x)
        if not is_scalar(x):
            self.fail(node, f"a part of {kind} must be a number, not {describe_value(x)}", kind=TypeMismatch)
        if self.dtype_of(x) != dtype:
            error = TypeMismatch(
                f"a part of {kind} must be {dtype}, it is {self.dtype_of(x)}", loc=self.loc(node),
                help=f"cast it: {dtype}(...)",
            )  # fmt: skip
            self.retype(x, dtype, error)
            raise error
        return x

    def _construct_struct(
        self, node: ast.AST, kind: StructType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Composite:
        if len(args) > len(kind.members):
            self.fail(node, f"{kind} has {len(kind.members)} members, {len(args)} values are given", kind=TypeMismatch)
        given = dict(zip(kind.members, args, strict=False)) | kwargs
        for name in kwargs:
            self.builder.loc = self.loc(node)
            kind.position(name)
        parts = [
            self.as_type(node, given[n], t, f"{kind}.{n}") if n in given else self.zero(node, t)
            for n, t in kind.members.items()
        ]
        return Composite(kind, parts)

    def zero(self, node: ast.AST, kind: Any) -> Any:
        """The zero of a scalar or composite type; None for an array."""
        if isinstance(kind, DType):
            self.builder.loc = self.loc(node)
            return constant(kind.np.type(0), kind)
        if isinstance(kind, TransformType):
            return self.construct(node, kind, (), {})
        if isinstance(kind, CompositeType):
            return Composite(kind, [self.zero(node, part) for part in kind.parts])
        return None

    def as_type(self, node: ast.AST, x: Any, kind: Any, what: str) -> Any:
        """`x` as a value of an element type: literals are converted, the rest must agree."""
        x = self.plain(x)
        if isinstance(kind, DType):
            if is_literal(x) and isinstance(x, bool) == (kind.kind == "b") and dt.literal_fits(x, kind):
                return self.cast(node, kind, x)
            if is_scalar(x) or isinstance(x, TileRef):
                return self._part_value(node, what, kind, x, False)
        elif isinstance(kind, CompositeType):
            if isinstance(x, Composite) and x.kind is kind:
                return x
        elif is_array(x) or isinstance(x, Composite) or x is None:
            return x
        self.fail(node, f"{what} must be {kind}, it is {describe_value(x)}", kind=TypeMismatch)

    def from_host(self, x: Any) -> Any:
        """A composite value captured from outside of the kernel, as constants."""
        taken = algebra.from_host(x)
        return map_parts(lambda part: constant(part), taken) if isinstance(taken, Composite) else x

    # --- parts --------------------------------------------------------------------------------------------------

    def named_part(self, node: ast.AST, kind: CompositeType, name: str) -> Part:
        """Which part `.name` means."""
        if isinstance(kind, StructType):
            self.builder.loc = self.loc(node)
            try:
                at = kind.position(name)
            except TypeMismatch as error:
                raise error.at(self.loc(node)) from None
            return Part((at,), kind.parts[at])
        assert isinstance(kind, GridType)
        found = component(kind, name)
        if found is None:
            self.fail(node, f"a {kind} has no `{name}`", kind=TypeMismatch, help=_members_of(kind))
        part, where = found
        positions = np.arange(kind.count)[where]
        return Part(tuple(np.atleast_1d(positions).tolist()), part)

    def indexed_part(self, node: ast.AST, kind: CompositeType, items: tuple[Any, ...]) -> Part:
        """Which part `[items]` means: a scalar, a row, a slice, or a scalar at a run-time index."""
        if not isinstance(kind, GridType):
            self.fail(node, f"a {kind} is not indexed; its members have names", kind=TypeMismatch)
        if len(items) > len(kind.shape):
            self.fail(node, f"{len(items)} indices for a {kind}", kind=TypeMismatch)
        known = tuple(self._known_index(node, i) for i in items)
        if any(isinstance(i, Value) for i in known):
            if any(isinstance(i, slice) for i in known):
                self.fail(node, "a run-time index does not go with a slice", kind=TypeMismatch)
            return Part((), kind.dtype if len(items) == len(kind.shape) else None, known)
        grid = np.arange(kind.count).reshape(kind.shape)
        try:
            found = np.asarray(grid[known])
        except IndexError:
            self.fail(
                node, f"{describe_value(known if len(known) > 1 else known[0])} is outside of a {kind}",
                kind=KernelIndexError, help=f"its shape is {kind.shape}",
            )  # fmt: skip
        if not found.size:
            self.fail(node, f"this slice of a {kind} is empty", kind=KernelIndexError)
        return Part(tuple(found.ravel().tolist()), _grid_of(found.shape, kind.dtype))

    def _known_index(self, node: ast.AST, item: Any) -> Any:
        if isinstance(item, slice):
            return slice(*(self._known_index(node, b) if b is not None else None for b in _bounds(item)))
        value = self.known(self.plain(item))
        whole = isinstance(value, int) and not isinstance(value, bool)
        dtype = self.dtype_of(value) if is_scalar(value) else None
        if not whole and not (dtype is not None and dtype.is_int):
            self.fail(node, f"an index must be an integer, not {describe_value(item)}", kind=TypeMismatch)
        return value

    def take(self, node: ast.AST, x: Composite, part: Part) -> Any:
        """The part of a value."""
        if part.index:
            return self._take_at(node, x, part.index)
        found = [x[k] for k in part.positions]
        if isinstance(x.kind, StructType) or isinstance(part.kind, DType):
            return found[0]
        return Composite(part.kind, found)

    def _take_at(self, node: ast.AST, x: Composite, index: tuple[Any, ...]) -> Any:
        """A scalar (or row) at run-time indices: the one of all candidates whose number is the index."""
        at = self._checked(node, index[0], x.grid.shape[0])
        rest = x.grid.count // x.grid.shape[0]
        candidates = [list(x[k * rest : (k + 1) * rest]) for k in range(x.grid.shape[0])]
        chosen = candidates[0]
        for k, candidate in enumerate(candidates[1:], 1):
            here = self.emit(node, "eq", at, k)
            chosen = [self.emit(node, "where", here, a, b) for a, b in zip(candidate, chosen, strict=True)]
        if len(x.grid.shape) == 1:
            return chosen[0]
        row = make_vector(chosen, x.grid.dtype)
        if len(index) == 1:
            return row
        return self.take(node, row, self.indexed_part(node, row.kind, index[1:]))

    def _checked(self, node: ast.AST, i: Any, extent: int) -> Any:
        """An index of a grid's axis that lies in range: a negative one is counted from the end, a wrong one raises."""
        if isinstance(i, int):
            return i % extent
        if self.dtype_of(i) is not dt.int32:
            i = self.emit(node, "astype", i, dtype=dt.int64)
        low, high = self.emit(node, "ge", i, -extent), self.emit(node, "lt", i, extent)
        message = f"index {{}} is out of range for an axis with size {extent}"
        self.emit(node, "check", self.emit(node, "bit_and", low, high), i, kind="index", message=message)
        return self.emit(node, "where", self.emit(node, "lt", i, 0), self.emit(node, "add", i, extent), i)

    def put(self, node: ast.AST, x: Composite, part: Part, value: Any) -> Composite:
        """The value with a part replaced."""
        if part.index:
            return self._put_at(node, x, part.index, value)
        kind = part.kind
        value = self.as_type(node, value, kind, f"this part of a {x.kind}") if not _is_tile(x) else value
        if isinstance(x.kind, StructType):
            return x.with_part(part.positions[0], value)
        parts = list(x)
        for k, new in zip(part.positions, [value] if isinstance(kind, DType) else value, strict=True):
            parts[k] = new
        return x.rebuilt(parts)

    def _put_at(self, node: ast.AST, x: Composite, index: tuple[Any, ...], value: Any) -> Composite:
        shape = x.grid.shape
        at = [self._checked(node, self.known(i), n) for i, n in zip(index, shape, strict=False)]
        whole = len(index) == len(shape)
        new = [value] if whole else list(value)
        if whole:
            new = [self.as_type(node, value, x.grid.dtype, f"a part of a {x.kind}")]
        parts = []
        for k, old in enumerate(x):
            place = np.unravel_index(k, shape)
            here: Any = True
            for i, j in zip(at, place, strict=False):
                here = self.either_both(node, here, self._is_here(node, i, int(j)))
            chosen = new[0] if whole else new[int(place[-1])]
            parts.append(chosen if here is True else old if here is False else self._choose(node, here, chosen, old))
        return x.rebuilt(parts)

    def _choose(self, node: ast.AST, here: Any, new: Any, old: Any) -> Any:
        return self.emit(node, "where", here, new, old)

    def _is_here(self, node: ast.AST, i: Any, k: int) -> Any:
        return i == k if isinstance(i, int) else self.emit(node, "eq", i, k)

    def either_both(self, node: ast.AST, a: Any, b: Any) -> Any:
        """`a and b` of two bools that have both been computed."""
        if a is True or b is False:
            return b
        if b is True or a is False:
            return a
        return self.emit(node, "bit_and", a, b)

    # --- places -------------------------------------------------------------------------------------------------

    def place(self, node: ast.expr) -> Place:
        """What an assignment to `node` is to write; its indices are evaluated now, once."""
        if isinstance(node, ast.Name):
            return VariablePlace(node)
        if isinstance(node, ast.Attribute):
            whole = self.place(node.value)
            kind = self._kind_at(whole)
            if kind is None:
                return ValuePlace(self.attribute_of(node, self.read(node.value, whole)))
            return self._part_place(whole, self.named_part(node, kind, node.attr))
        if isinstance(node, ast.Subscript):
            return self._subscript_place(node)
        return ValuePlace(self.expr(node))

    def attribute_of(self, node: ast.Attribute, base: Any) -> Any:
        raise NotImplementedError

    def _subscript_place(self, node: ast.Subscript) -> Place:
        whole = self.place(node.value)
        index = self.expr(node.slice)
        items = index if isinstance(index, tuple) else (index,)
        kind = self._kind_at(whole)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        texts = (self.text(node.value), *map(self.text, parts))
        if kind is not None:
            return self._part_place(whole, self.indexed_part(node, kind, items))
        base = self.read(node.value, whole)
        rank = rank_of(base)
        if rank and all(self._is_position(i) for i in items):
            if len(items) == rank:
                return ElementPlace(base, items, texts)
            if len(items) > rank and isinstance(base, Composite):
                element = ElementPlace(base, items[:rank], texts)
                return self._part_place(element, self.indexed_part(node, base.kind, items[rank:]))
        return ValuePlace(self.subscript(node, base, index, texts))

    def is_single(self, place: Place) -> bool:
        """Whether a single composite value stands at the place."""
        return self._kind_at(place) is not None

    def indexed_place(self, node: ast.AST, whole: Place, items: tuple[Any, ...]) -> Place:
        """The part `[items]` of the composite at a place."""
        kind = self._kind_at(whole)
        assert kind is not None
        return self._part_place(whole, self.indexed_part(node, kind, items))

    def _is_position(self, item: Any) -> bool:
        item = self.plain(item)
        if isinstance(item, Value):
            return is_scalar(item)
        return isinstance(item, int)

    def _kind_at(self, place: Place) -> CompositeType | None:
        """The composite type of what stands at a place; None for anything that is no single composite value."""
        if isinstance(place, ElementPlace):
            return place.base.kind if isinstance(place.base, Composite) else None
        if isinstance(place, PartPlace):
            return place.part.kind if isinstance(place.part.kind, CompositeType) else None
        value = self.plain(self.lookup(place.node, place.node.id)) if isinstance(place, VariablePlace) else place.value
        return value.kind if isinstance(value, Composite) and not is_indexed(value) else None

    def _part_place(self, whole: Place, part: Part) -> Place:
        """A part of an array or tile element is an element of an array or tile of such parts, where it is known."""
        if isinstance(whole, ElementPlace) and not part.index:
            base = whole.base
            found = [base[k] for k in part.positions]
            single = isinstance(base.kind, StructType) or isinstance(part.kind, DType)
            return ElementPlace(found[0] if single else Composite(part.kind, found), whole.items, whole.texts)
        return PartPlace(whole, part)

    def read(self, node: ast.expr, place: Place) -> Any:
        """What stands at a place."""
        if isinstance(place, VariablePlace):
            return self.plain(self.lookup(place.node, place.node.id))
        if isinstance(place, ElementPlace):
            return self.subscript(node, place.base, place.items, place.texts)
        if isinstance(place, PartPlace):
            return self.take(node, self.read(node, place.whole), place.part)
        return place.value

    def write(self, node: ast.expr, place: Place, value: Any) -> None:
        """Assign to a place."""
        if isinstance(place, VariablePlace):
            self.bind(place.node, value)
        elif isinstance(place, ElementPlace):
            self.store(node, place.base, place.items, value, place.texts)
        elif isinstance(place, PartPlace):
            self.write(node, place.whole, self.put(node, self.read(node, place.whole), place.part, value))
        else:
            self.fail(node, f"{describe_value(place.value)} cannot be assigned", kind=TypeMismatch)

    def bind(self, target: ast.Name, value: Any) -> None:
        raise NotImplementedError

    # --- operators and calls ------------------------------------------------------------------------------------

    def composite_binary(self, node: ast.AST, kind: type[ast.operator], x: Any, y: Any, texts: tuple[str, ...]) -> Any:
        """`x op y` where one side is composite."""
        name, symbol, _ = BINARY[kind]
        tiles = [v for v in (x, y) if isinstance(first_leaf(v), TileRef)]
        if kind is ast.MatMult and len(tiles) == 2:
            return self.call_op(node, REGISTRY["tile_matmul"], (x, y), {}, texts, called="`@`")
        if name not in algebra.OPERATORS:
            self.fail(
                node, f"`{symbol}` is not defined for {describe_value(x)} and {describe_value(y)}", kind=TypeMismatch
            )
        return self.call_op(node, algebra.OPERATORS[name], (x, y), {}, texts, called=f"`{symbol}`")

    def composite_call(
        self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], called: str,
        call: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    ) -> Any:  # fmt: skip
        """An op with composite arguments: `call` it part by part, or let the algebra do it."""
        name = function.name if isinstance(function, OpDef) else function.__name__
        if name in algebra.OPERATORS and len(args) == 2 and not kwargs and name != "tile_matmul":
            return self.call_op(node, algebra.OPERATORS[name], args, {}, ())
        if name in algebra.OF_PARTS and len(args) == 1 and not kwargs:
            return self.call_op(node, algebra.OF_PARTS[name], args, {}, ())
        if name not in PART_BY_PART:
            found = next(a for a in (*args, *kwargs.values()) if isinstance(a, Composite))
            self.fail(node, f"{called} is not defined for {describe_value(found)}", kind=TypeMismatch)
        composites = [a for a in (*args, *kwargs.values()) if isinstance(a, Composite)]
        kind = composites[0].kind
        for other in composites[1:]:
            if other.kind is not kind:
                self.fail(
                    node, f"{called}: {describe_value(composites[0])} meets {describe_value(other)}", kind=TypeMismatch
                )
        self._require_one_kind(node, name, args, kwargs, called)
        results = []
        for k in range(len(composites[0])):
            part = tuple(a[k] if isinstance(a, Composite) else a for a in args)
            named = {n: a[k] if isinstance(a, Composite) else a for n, a in kwargs.items()}
            inner = any(isinstance(a, Composite) for a in (*part, *named.values()))
            results.append(
                self.composite_call(node, function, part, named, called, call) if inner else call(part, named)
            )
        return None if results[0] is None else Composite(kind, results)

    def _require_one_kind(
        self, node: ast.AST, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], called: str
    ) -> None:
        """Refuse to write plain numbers where composites are, or the other way round."""
        if name in UPDATES_OF_ELEMENTS:
            written = args[0] if args else kwargs.get("a")
            others = [*args[1:], *(x for n, x in kwargs.items() if n != "a")]
            value = kwargs.get("value", args[-1] if name.startswith("array") else others[-2])
            pair = [written, next((x for x in others if isinstance(x, Composite)), value)]
        else:
            places = WRITTEN_AND_VALUE.get(name, {})
            pair = [args[i] if i < len(args) else kwargs.get(n) for n, i in places.items()]
        if any(isinstance(x, Composite) for x in pair) and not all(isinstance(x, Composite) for x in pair):
            first, second = map(describe_value, pair)
            self.fail(node, f"{called}: {first} meets {second}", kind=TypeMismatch)

    def as_scalar_tile(self, node: ast.AST, x: Composite) -> TileRef:
        """A tile of vectors or matrices as a tile of scalars: the grid becomes the last axes."""
        first: TileRef = first_leaf(x)
        shape = (*first.shape, *x.grid.shape)
        result = self.emit(node, "tile_full", self.zero(node, x.grid.dtype), shape=(*first.shape, x.grid.count))
        for k, part in enumerate(x):
            column = self.emit(node, "tile_reshape", part, shape=(*first.shape, 1))
            steps = (1,) * (first.ndim + 1)
            result = self.emit(node, "tile_insert", result, column, *(0,) * first.ndim, k, steps=steps)
        whole: TileRef = result if result.shape == shape else self.emit(node, "tile_reshape", result, shape=shape)
        return whole

    def argument(self, t: ArgumentType, params: Iterator[Value]) -> Any:
        """A parameter's value, made of the next IR parameters."""
        if t is None:
            return None
        if isinstance(t, Composite):
            return t.rebuilt([self.argument(part, params) for part in t])
        if not isinstance(t, GridArray):
            return next(params)
        array, cut = next(params), REGISTRY["array_component"]
        indices = [tuple(map(int, np.unravel_index(k, t.kind.shape))) for k in range(t.kind.count)]
        return Composite(t.kind, [cut(array, index=index) for index in indices])


UPDATES_OF_ELEMENTS = (
    "tile_scatter_add", "tile_scatter_masked", "array_atomic_add", "array_atomic_sub", "array_atomic_exch",
)  # fmt: skip
#: operations that write: the places of what is written and of the value, which must have one element type
WRITTEN_AND_VALUE: dict[str, dict[str, int]] = {
    "tile_store": {"a": 0, "t": 1},
    "tile_atomic_add": {"a": 0, "t": 1},
    "tile_assign": {"dst": 0, "src": 1},
    "tile_store_indexed": {"a": 0, "t": 2},
    "tile_atomic_add_indexed": {"a": 0, "t": 2},
}


def _bounds(s: slice) -> tuple[Any, Any, Any]:
    return s.start, s.stop, s.step


def _grid_of(shape: Sequence[int], dtype: DType) -> Any:
    """The type of a part of a grid."""
    if not shape:
        return dtype
    if len(shape) == 1:
        return make_vector([None] * shape[0], dtype).kind
    return make_matrix([[None] * shape[1]] * shape[0], dtype).kind


def _members_of(kind: GridType) -> str:
    if isinstance(kind, TransformType):
        return "it has p and q"
    return "its parts are m[i, j]" if isinstance(kind, MatrixType) else f"it has {', '.join('xyzw'[: kind.count])}"


def _is_tile(x: Composite) -> bool:
    return isinstance(first_leaf(x), TileRef)
