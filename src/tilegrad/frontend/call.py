"""Calls inside a kernel: ops, casts, builtins, tid() and its kin, and functions that are inlined.

What a call means is decided by the Python object that the name stands for, never by its spelling.
Does not know statements; a function's body is run by the visitor (`run_body`).
"""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, first_leaf, is_matrix, kind_of, leaves, map_parts, of_leaves, rebuilt
from tilegrad.diagnostics import (
    KernelNameError,
    KernelSyntaxError,
    Loc,
    ShapeMismatch,
    TilegradError,
    TypeMismatch,
)
from tilegrad.dtypes import DType
from tilegrad.element_types import CompositeType, HostValue, StructType, StructValue
from tilegrad.frontend import signature
from tilegrad.frontend.absent import Folded, folded, is_lanes, summed
from tilegrad.frontend.composites import PART_BY_PART, is_indexed
from tilegrad.frontend.function import Capture, Function, Missing, snapshot
from tilegrad.frontend.index import TILE_METHODS, Indexing, Method
from tilegrad.frontend.lanes import Divergence
from tilegrad.frontend.liveness import Liveness, stores
from tilegrad.frontend.scope import (
    RESULT,
    RETURNED,
    Binding,
    Frame,
    Partial,
    TileRef,
    describe_value,
    is_array,
    is_literal,
    is_scalar,
)
from tilegrad.frontend.signature import ArrayAnnotation, NumberAnnotation
from tilegrad.frontend.source import Source
from tilegrad.ir.core import Value, free_values
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, is_varying
from tilegrad.op import REGISTRY, broadcast_shapes, describe, unwrap
from tilegrad.ops.control import build_map
from tilegrad.ops.declared import Declared, StackAnnotation, TileAnnotation, TileStack
from tilegrad.ops.operators import OfPresent
from tilegrad.ops.random import ADVANCING


class Intrinsic:
    """A function that the front end itself knows, such as `tid`."""

    def __init__(self, name: str, doc: str, host: Callable[..., Any] | None = None) -> None:
        self.__name__ = name
        self.__doc__ = doc
        #: what a call outside of a kernel does; None if it has no meaning there
        self.host = host

    def __repr__(self) -> str:
        return f"<kernel function {self.__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.host is None:
            raise KernelSyntaxError(f"{self.__name__}() has a meaning only inside a kernel")
        return self.host(*args, **kwargs)


tid = Intrinsic(
    "tid",
    "The index of this thread, one int for each dimension of the launch: `i, j = tg.tid()`.\n\n"
    "Under `launch_tiled` it is the index of the block; one more result gives the lane inside the block.",
)
block_dim = Intrinsic("block_dim", "The number of lanes of a block, a compile-time constant.")
static = Intrinsic(
    "static",
    "Evaluate an expression while the kernel is compiled: `tg.static(len(SIZES))`.\n\n"
    "`for i in tg.static(range(4))` unrolls the loop, so that `i` is a constant in each turn.",
    host=lambda value: value,
)
constant = Intrinsic(
    "constant", "Mark a number as a compile-time constant; kept for Warp's spelling.", host=lambda value: value
)
cdiv = Intrinsic("cdiv", "Ceiling division: the number of blocks of size b that cover a.", host=lambda a, b: -(-a // b))
tile_map = Intrinsic(
    "tile_map",
    "Apply a function to every element: `tile_map(f, a, b, ...)`.\n\n"
    "`f` is a builtin, a @func or a lambda of up to 8 numbers; tiles are broadcast as in NumPy, numbers are used for\n"
    "every element. A function that returns several values gives several tiles.",
)
copy = Intrinsic("copy", "In a kernel, a new tile with the same elements; outside, `copy(dest, src)` copies an array.")
printf = Intrinsic("printf", 'Print with C\'s formats: `printf("%d: %.2f\\n", i, x)`; see also `print`.')

#: Python builtins that are one op of two operands, folded over more
_FOLDED: dict[Any, str] = {builtins.min: "minimum", builtins.max: "maximum"}
_AS_OPS: dict[Any, str] = {**_FOLDED, builtins.abs: "abs", builtins.pow: "pow"}

#: parameters that are compile-time constants wherever they appear
_STATIC_NAMES = frozenset(
    ("shape", "axis", "axes", "dtype", "storage", "keepdims", "propagate_nan", "bounds_check", "aligned", "norm",
     "fill_mode", "capacity", "sizes", "steps", "precision", "reverse", "exclusive")
)  # fmt: skip

#: arguments that older versions of Warp had, and what to write now
_OLD_FORMS = {
    ("tile_load", "m"): "tile_load(a, shape=(m, n), offset=(i*m, j*n))",
    ("tile_load", "n"): "tile_load(a, shape=n, offset=i*n)",
    ("tile_load", "i"): "tile_load(a, shape=(m, n), offset=(i*m, j*n))",
    ("tile_load", "x"): "tile_load(a, shape=(m, n), offset=(x*m, y*n))",
    ("tile_store", "i"): "tile_store(a, t, offset=(i*m, j*n))",
    ("tile_store", "x"): "tile_store(a, t, offset=(x*m, y*n))",
    ("tile_zeros", "m"): "tile_zeros(shape=(m, n), dtype=tg.float32)",
    ("tile_ones", "m"): "tile_ones(shape=(m, n), dtype=tg.float32)",
    ("tile_broadcast", "m"): "tile_broadcast(t, shape=(m, n))",
}


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A lambda or a `def` inside of a kernel, with the frame whose variables it reads when it is called."""

    name: str
    args: ast.arguments
    body: list[ast.stmt]
    frame: Frame
    defaults: dict[str, Any]

    def __repr__(self) -> str:
        return f"the function {self.name}"


@dataclass(frozen=True)
class Text:
    """The value of an f-string: a template for `str.format` and the values that go into it."""

    template: str
    values: tuple[Any, ...]


Callee = Function | LocalFunction


class Calls(Indexing):
    """Evaluates calls."""

    captures: list[Capture]
    block_dim: int
    tiled: bool
    #: an extent of the grid does not fit into int32
    wide: bool
    #: the call whose result is being unpacked, and into how many names
    unpacked: tuple[ast.AST | None, int] = (None, 1)

    def expr(self, node: ast.expr) -> Any:
        raise NotImplementedError

    def run_body(self, node: ast.AST, body: Sequence[ast.stmt]) -> None:
        raise NotImplementedError

    # --- dispatch -----------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        function = self.expr(node.func)
        if function is static:
            return self._static(node)
        if function is builtins.print:
            return self._print(node)
        args, texts = self._positional(node)
        kwargs = self._keywords(node)
        handler = self._handlers.get(function) if isinstance(function, (Intrinsic, type, *_BUILTIN_TYPES)) else None
        if handler is not None:
            return self._checked_builtin(node, function, lambda: handler(self, node, *args, **kwargs))
        if is_advancing(function) and node.args and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            args = (self.expr(node.args[0]), *args[1:])  # the other arguments may have changed it
        result = self.apply(node, function, args, kwargs, texts)
        return self._advanced(node, result) if is_advancing(function) else result

    def _advanced(self, node: ast.Call, result: tuple[Any, Any]) -> Any:
        """The value of a call that changes its first argument: the variable that stands there gets its next value."""
        value, after = result
        target = next((k.value for k in node.keywords if k.arg == "state"), node.args[0] if node.args else None)
        root = target
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or target is None:
            return value  # a temporary value, which nobody will see again
        if root.id not in self.frame.names:
            self.fail(
                node, f"{self.text(node.func)} changes `{root.id}`, which is no variable of {self.frame.name}",
                help=f"draw outside and pass the number, or begin with a state of its own: rng = {root.id}",
            )  # fmt: skip
        self.write(target, self.place(target), after)
        return value

    def _checked_builtin(self, node: ast.Call, function: Any, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except TypeError as error:
            if isinstance(error, TilegradError) or "_on_" not in str(error):
                raise
            self.fail(node, f"`{self.text(node)}` has the wrong arguments for {function.__name__}", kind=TypeMismatch)

    def _positional(self, node: ast.Call) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        args: list[Any] = []
        texts: list[str] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                items = self.expr(arg.value)
                if not isinstance(items, tuple):
                    self.fail(arg, f"only a tuple can be spread with *, not {describe_value(items)}")
                args += items
                texts += [self.text(arg)] * len(items)
            else:
                args.append(self.expr(arg))
                texts.append(self.text(arg))
        return tuple(args), tuple(texts)

    def _keywords(self, node: ast.Call) -> dict[str, Any]:
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(node, "** is not supported in a kernel", help="write the keywords out")
            kwargs[keyword.arg] = self.expr(keyword.value)
        return kwargs

    def apply(
        self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], texts: tuple[str, ...] = ()
    ) -> Any:
        """Call whatever `function` is with values of the tracer."""
        if isinstance(function, Declared):
            function = function.surface
        if isinstance(function, Method):
            return self._method(node, function, args, kwargs, texts)
        if isinstance(function, OpDef) or _is_surface(function):
            return self._surface(node, function, args, kwargs, texts)
        if isinstance(function, (Function, LocalFunction)):
            return self.inline(node, function, args, kwargs)
        if isinstance(function, CompositeType):
            return self.construct(node, function, args, kwargs)
        if isinstance(function, DType):
            return self._cast_call(node, function, args, kwargs)
        if isinstance(function, type) and dt.as_dtype(function) is not None and function is not object:
            return self._cast_call(node, dt.as_dtype(function), args, kwargs)
        if isinstance(function, types.FunctionType):
            return self._plain_function(node, function, args, kwargs)
        return self._foreign(node, function, args, kwargs)

    def _cast_call(self, node: ast.AST, dtype: DType | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > 1 or kwargs or dtype is None:
            self.fail(node, f"{dtype}(...) takes one number", kind=TypeMismatch)
        return self.cast(node, dtype, args[0] if args else 0)

    def _method(self, node: ast.AST, method: Method, args: tuple[Any, ...], kwargs: Any, texts: Any) -> Any:
        if method.name == "copy":
            return self._on_copy(node, method.base)
        if method.name == "reshape" and len(args) > 1:
            args = (args,)
        op = REGISTRY.get(TILE_METHODS[method.name]) or REGISTRY[TILE_METHODS[method.name].removeprefix("tile_")]
        return self._surface(node, op, (method.base, *args), kwargs, ("", *texts))

    def _plain_function(self, node: ast.AST, function: types.FunctionType, args: Any, kwargs: Any) -> Any:
        """An undecorated Python function: inlined if it is the user's own."""
        mine = self.frames[0].function
        own = isinstance(mine, Function) and function.__globals__ is mine.python.__globals__
        if own or function.__name__ == "<lambda>":
            return self.inline(node, as_function(function), args, kwargs)
        if (function.__module__ or "").split(".")[0] in ("math", "numpy"):
            return self._foreign(node, function, args, kwargs)
        self.fail(
            node, f"`{function.__qualname__}` is a plain Python function of the module {function.__module__}",
            help="decorate it with @tg.func, so that kernels can call it",
        )  # fmt: skip

    def _foreign(self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of something that no kernel knows: computed now if it is mathematics on constants, else refused."""
        name = getattr(function, "__name__", None) or repr(function)
        module = getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "")
        values = [self.known(a) for a in args]
        constants = all(is_literal(v) or isinstance(v, (tuple, str)) for v in values) and not kwargs
        if module.split(".")[0] in ("math", "numpy", "builtins", "_operator") and constants:
            try:
                return snapshot(function(*values))
            except Exception as error:
                self.fail(node, f"{name}: {error}", kind=TypeMismatch)
        if isinstance(function, Kernel):
            self.fail(
                node,
                f"`{name}` is a kernel: it is launched, not called",
                help="make what both need a function with @tg.func",
            )
        if not callable(function):
            self.fail(node, f"{describe_value(function)} cannot be called", kind=TypeMismatch)
        help = (
            f"write tg.{name}(...)"
            if name in REGISTRY
            else "a kernel calls ops of tilegrad and functions made with @tg.func"
        )
        self.fail(
            node,
            f"{module + '.' if module else ''}{name} cannot be called in a kernel",
            help=help,
            kind=KernelNameError,
        )

    # --- ops ----------------------------------------------------------------------------------------------------

    def _surface(self, node: ast.AST, function: Any, args: Any, kwargs: dict[str, Any], texts: tuple[str, ...]) -> Any:
        """Call an op, or a function over ops, the way its users spell it."""
        target = (function.spelled or function.body) if isinstance(function, OpDef) else function
        name = function.name if isinstance(function, OpDef) else function.__name__
        called = _called(node, name)
        args = tuple(self._argument(node, a) for a in args)
        kwargs = {k: self._argument(node, v) for k, v in kwargs.items()}
        names = _parameters(target)
        if "block_dim" in names and "block_dim" not in kwargs:
            kwargs["block_dim"] = self.block_dim
        self._require_known_keywords(node, called, target, kwargs)
        try:
            bound = _signature(target).bind(*args, **kwargs)
        except TypeError as error:
            self._bad_call(node, called, target, str(error), kwargs)
        static = [k for k, v in bound.arguments.items() if k in _STATIC_NAMES and not isinstance(v, Composite)]
        fixed = {k: self._constant(node, called, k, bound.arguments[k]) for k in static}
        placed = [n for n in names if _is_operand(target, n)]
        args = tuple(fixed.pop(placed[i], a) if i < len(placed) else a for i, a in enumerate(args))
        kwargs |= fixed
        if isinstance(function, OpDef) and function.spelled is None:
            operands = [n for n in names if n in kwargs and _is_operand(target, n)]
            args += tuple(kwargs.pop(n) for n in operands)
        by_parts = isinstance(function, OpDef) or name in PART_BY_PART
        if by_parts and any(isinstance(a, Composite) for a in (*args, *kwargs.values())):
            return self.composite_call(
                node, function, args, kwargs, called,
                lambda part, named: self._call_surface(node, function, name, part, named, (), called),
            )  # fmt: skip
        return self._call_surface(node, function, name, args, kwargs, texts, called)

    def _call_surface(
        self,
        node: ast.AST,
        function: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        texts: tuple[str, ...],
        called: str,
    ) -> Any:
        args = self._without_absent_lanes(node, name, args, kwargs)
        self._tell_presence(node, function, args, kwargs)
        return self.call_op(node, function, args, kwargs, texts, called=called)

    def _argument(self, node: ast.AST, x: Any) -> Any:
        """An argument as an op takes it: a function as a callable on values, a captured number as a constant."""
        if isinstance(x, tuple):
            return rebuilt(x, [self._argument(node, item) for item in x])
        if isinstance(x, types.FunctionType) and not _is_surface(x):
            x = as_function(x)
        if isinstance(x, (Function, LocalFunction)):
            return functools.partial(self._called_back, node, x)
        if isinstance(x, types.BuiltinFunctionType) and x in _AS_OPS:
            return REGISTRY[_AS_OPS[x]]
        if isinstance(x, Text) and not x.values:
            return x.template.replace("{{", "{").replace("}}", "}")
        return self.plain(x)

    def _called_back(self, node: ast.AST, function: Callee, *args: Any) -> Any:
        """A user's function called by an op that takes a function, such as tile_reduce."""
        operands = tuple(self.wrap(a) for a in args)
        tiles = [leaf.value for x in operands for leaf in leaves(x) if isinstance(leaf, TileRef)]
        if tiles:
            return self._map(node, function, operands, tiles)
        result = self.inline(node, function, tuple(self.wrap(a) for a in args), {})
        return result.value if isinstance(result, TileRef) else self.scalar(result)

    def _constant(self, node: ast.AST, name: str, parameter: str, value: Any) -> Any:
        """The value of a compile-time parameter."""
        value = self.known(value)
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if isinstance(item, Value):
                self.unroll_for(value)
                at = f"{parameter}[{items.index(item)}]" if isinstance(value, tuple) else parameter
                self._run_time(node, name, parameter, at, item)
        return value

    def _run_time(self, node: ast.AST, name: str, parameter: str, at: str, item: Value) -> NoReturn:
        what = f"the parameter `{item.name}`" if item.name else f"a run-time {describe(item.type)}"
        self.fail(
            node, f"{name}: {at} must be a compile-time constant, it is {what}", kind=signature_error(parameter),
            help="use a global or closure constant, or tg.static(...); a kernel is compiled again when it changes",
        )  # fmt: skip

    def _bad_call(self, node: ast.AST, name: str, target: Any, problem: str, kwargs: dict[str, Any]) -> NoReturn:
        written = f"{name}{_readable(target)}"
        old = next((form for (op, key), form in _OLD_FORMS.items() if op == name and key in kwargs), None)
        if old is None and "too many positional" in problem:
            old = next((form for (op, key), form in _OLD_FORMS.items() if op == name), None)
        self.fail(
            node, f"{name}: {problem}", help=f"write {old}" if old else f"the call is {written}", kind=TypeMismatch
        )

    def _require_known_keywords(self, node: ast.AST, name: str, target: Any, kwargs: dict[str, Any]) -> None:
        for key in kwargs:
            if key in _parameters(target) or (name, key) in _OLD_FORMS:
                continue
            close = difflib.get_close_matches(key, _parameters(target), 1)
            help = f"did you mean {close[0]}=?" if close else f"the call is {name}{_readable(target)}"
            self.fail(node, f"{name}: there is no parameter `{key}`", help=help, kind=TypeMismatch)

    def _without_absent_lanes(self, node: ast.AST, name: str, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, ...]:
        """In a reduction or scan, elements of absent lanes count as the neutral element."""
        if not self.builder.per_lane and not self.decisions.guard:
            return args
        for factor in summed(name, args):
            args = tuple(self._neutralised(node, factor, x) if k == factor.key else x for k, x in enumerate(args))
        fold = folded(name, args, kwargs)
        if fold is None:
            return args
        named = dict(enumerate(args)) | kwargs
        if fold.neutral is not None:
            named[fold.key] = self._neutralised(node, fold, fold.tile)
        else:
            masks = (self._presence_of(node, leaf) for leaf in leaves(fold.tile))
            present = next((m for m in masks if m is not None), None)
            operator: int | str = 0 if args else "op"
            if present is not None:
                named[operator] = OfPresent(named[operator], present)
        kwargs.update((k, named[k]) for k in kwargs)
        return tuple(named[i] for i in range(len(args)))

    def factors(self, node: ast.AST, x: Any, y: Any) -> tuple[Any, Any]:
        """The operands of `@`: elements of absent lanes count as 0."""
        x, y = self._without_absent_lanes(node, "tile_matmul", (x, y), {})
        return x, y

    def _tell_presence(self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What has a parameter `present` (sorting and its kin) is told which elements of its first argument count."""
        names = _parameters((function.spelled or function.body) if isinstance(function, OpDef) else function)
        if "present" not in names or "present" in kwargs or not (self.builder.per_lane or self.decisions.guard):
            return
        tile = args[0] if args else kwargs.get(names[0])
        present = self._presence_of(node, tile) if isinstance(tile, TileRef) else None
        if present is not None:
            kwargs["present"] = present

    def _neutralised(self, node: ast.AST, fold: Folded, x: Any) -> Any:
        """The tile with elements of absent lanes replaced."""
        if isinstance(x, Composite):
            return map_parts(lambda part: self._neutralised(node, fold, part), x)
        present = None if fold.adds and is_lanes(x.value) else self._presence_of(node, x)
        if present is None or fold.neutral is None:
            return x
        return self.emit(node, "where", present, x, self.typed(fold.neutral(x.dtype), x.dtype))

    def _presence_of(self, node: ast.AST, tile: TileRef) -> Value | None:
        """The bool tile of elements that come from lanes that are there, if that is not all of them."""
        present = self.presence.of(tile.value, lambda: unwrap(self._lane_op(node, "lanes_present")))
        self.builder.loc = self.loc(node)
        return present

    def _lane_op(self, node: ast.AST, name: str, **attrs: Any) -> Any:
        op = REGISTRY[name]
        if "block_dim" in _parameters(op.spelled or op.body):
            attrs["block_dim"] = self.block_dim
        return self.call_op(node, op, (), attrs, ())

    # --- intrinsics ---------------------------------------------------------------------------------------------

    def _on_tid(self, node: ast.Call) -> Any:
        count = self.unpacked[1] if self.unpacked[0] is node else 1
        rank = self.grid_ndim
        allowed = (rank, rank + 1) if self.tiled else (rank,)
        if count not in allowed:
            call = "launch_tiled" if self.tiled else "launch"
            lane = ", or one more for the lane" if self.tiled else ""
            self.fail(
                node, f"{count} {'index is' if count == 1 else 'indices are'} taken from tid(), but dim of {call} has "
                f"{rank} dimension{'s' * (rank != 1)}",
                label=f"expected {rank}{lane}",
                help=f"write {', '.join('ijklmn'[:rank])} = tg.tid(), or change dim of the launch",
                kind=TypeMismatch,
            )  # fmt: skip
        name = "block_id" if self.tiled else "thread_id"
        wide = {"wide": True} if self.wide else {}
        indices = tuple(self._lane_op(node, name, axis=axis, **wide) for axis in range(rank))
        if count > rank:
            indices += (self._lane_op(node, "lane_id"),)
        return indices if count > 1 else indices[0]

    def _on_block_dim(self, node: ast.Call) -> Any:
        return self.block_dim

    def _on_constant(self, node: ast.Call, value: Any) -> Any:
        return value

    def _on_cdiv(self, node: ast.Call, a: Any, b: Any) -> Any:
        top = self.binary(node, ast.Add, a, self.binary(node, ast.Sub, b, 1))
        return self.binary(node, ast.FloorDiv, top, b)

    def _on_copy(self, node: ast.AST, tile: Any) -> Any:
        if isinstance(tile, Composite):
            return map_parts(lambda part: self._on_copy(node, part), tile)
        if isinstance(tile, TileStack):
            return tile.rebuilt([self.new_tile(part.value) for part in tile])
        return self.new_tile(tile.value) if isinstance(tile, TileRef) else tile

    def _on_tile_map(self, node: ast.Call, function: Any, *operands: Any) -> Any:
        if not operands:
            self.fail(node, "tile_map needs at least one tile", help="tile_map(f, a, b, ...)", kind=TypeMismatch)
        if isinstance(function, types.BuiltinFunctionType) and function in _AS_OPS:
            function = REGISTRY[_AS_OPS[function]]
        tiles = [leaf for x in operands for leaf in leaves(x) if isinstance(leaf, TileRef)]
        if not tiles:
            self.fail(node, "tile_map needs at least one tile", kind=TypeMismatch)
        composite = any(isinstance(x, Composite) for x in operands)
        if isinstance(function, OpDef) and function.elementwise is not None and not composite:
            return self._surface(node, function, operands, {}, tuple(self.text(a) for a in node.args[1:]))
        self.builder.loc = self.loc(node)
        shape = broadcast_shapes("tile_map", [t.shape for t in tiles])
        full = [t if t.shape == shape else self.emit(node, "tile_broadcast", t, shape=shape) for t in tiles]
        return self._map(node, function, operands, [t.value for t in full])

    def _map(self, node: ast.AST, function: Any, operands: tuple[Any, ...], tiles: list[Value]) -> Any:
        """Inline the function at every element."""
        several = False
        kinds: list[CompositeType | None] = []

        def body(*elements: Value) -> Sequence[Value]:
            nonlocal several
            rest = iter(elements)
            args = tuple(_element_of(x, rest) for x in operands)
            with self.builder.diverged(Divergence(self.loc(node), "the element of tile_map")):
                result = self.apply(node, function, args, {})
            several = isinstance(result, tuple) and not isinstance(result, Composite)
            parts = result if several else (result,)
            kinds[:] = [r.kind if isinstance(r, Composite) else None for r in parts]
            results = [leaf for r in parts for leaf in leaves(r)]
            for r in results:
                if not is_literal(self.plain(r)) and not is_scalar(self.plain(r)):
                    self.fail(
                        node, f"the function of tile_map returns {describe_value(r)}, not a number", kind=TypeMismatch
                    )
            return [self.scalar(self.plain(r)) for r in results]

        mask, self.builder.mask = self.builder.mask, lambda: None
        try:
            results = build_map(tiles, body)
        finally:
            self.builder.mask = mask
        op = results[0].op
        assert op is not None
        if any(is_varying(v.type) for v in free_values(op.regions[0])):
            self.fail(
                node, "the function of tile_map uses a value that differs between lanes", kind=TypeMismatch,
                help="make it a tile with tg.tile(x)",
            )  # fmt: skip
        whole = iter([self.new_tile(r) for r in results])
        made = tuple(of_leaves(kind, whole) for kind in kinds)
        return made if several else made[0]

    def _static(self, node: ast.Call) -> Any:
        if len(node.args) != 1 or node.keywords:
            self.fail(node, "static takes one expression")
        space: dict[str, Any] = {"__builtins__": builtins}
        for name in sorted({n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}):
            try:
                value = self.known(self.lookup(node.args[0], name))
            except KernelNameError:
                if name in stores([node.args[0]]):
                    continue  # a variable of a comprehension
                raise
            if isinstance(value, Value):
                self.unroll_for(value)
                self.fail(
                    node, f"static: `{name}` is known only when the kernel runs", kind=TypeMismatch,
                    help="static(...) may use globals, closure values, shapes of tiles and indices of constant loops",
                )  # fmt: skip
            space[name] = value
        try:
            code = compile(ast.Expression(node.args[0]), self.frame.source.file, "eval")
            return snapshot(_as_tuple(eval(code, space)))
        except Exception as error:
            self.fail(node, f"static: {type(error).__name__}: {error}")

    # --- builtins -----------------------------------------------------------------------------------------------

    def _on_range(self, node: ast.Call, *args: Any) -> Any:
        if not 1 <= len(args) <= 3:
            self.fail(node, f"range takes 1 to 3 arguments, {len(args)} are given", kind=TypeMismatch)
        values = tuple(self.plain(a) for a in args)
        for text, value in zip(node.args, values, strict=False):
            if not self._is_index(value):
                self.fail(
                    text, f"range takes integers; `{self.text(text)}` is {describe_value(value)}", kind=TypeMismatch,
                    help="convert it with int(...)",
                )  # fmt: skip
        if all(isinstance(v, int) for v in values):
            if len(values) == 3 and values[2] == 0:
                self.fail(node, "range() with a step of 0", kind=TypeMismatch)
            return range(*values)
        start, stop, step = (0, values[0], 1) if len(values) == 1 else (*values, 1) if len(values) == 2 else values
        return RunTimeRange(start, stop, step)

    def _on_len(self, node: ast.Call, x: Any) -> Any:
        if is_array(x):
            return self.emit(node, "array_shape", x, axis=0)
        if isinstance(x, Composite):
            return self._on_len(node, first_leaf(x)) if is_indexed(x) else x.grid.shape[0]
        self.refuse_stacks(node, x)
        if isinstance(x, (TileRef, tuple, str, range)):
            return len(x)
        self.fail(node, f"{describe_value(x)} has no length", kind=TypeMismatch)

    def _on_extreme(self, node: ast.Call, *args: Any) -> Any:
        function = self.expr(node.func)
        items = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if len(items) < 1 or (len(args) == 1 and not isinstance(args[0], tuple)):
            self.fail(
                node, f"{function.__name__} takes two or more numbers", kind=TypeMismatch,
                help=f"the {function.__name__}imum of a tile is tg.tile_{function.__name__}(t)",
            )  # fmt: skip
        result = self.plain(items[0])
        for item in items[1:]:
            item = self.plain(item)
            if is_literal(result) and is_literal(item):
                result = function(result, item)
            else:
                texts = tuple(self.text(a) for a in node.args)
                result = self.call_op(node, REGISTRY[_FOLDED[function]], (result, item), {}, texts)
        return result

    def _on_sum(self, node: ast.Call, items: Any, start: Any = 0) -> Any:
        if not isinstance(items, (tuple, range)):
            self.fail(node, "sum adds up a tuple; a tile is summed by tg.tile_sum", kind=TypeMismatch)
        for item in items:
            start = self.binary(node, ast.Add, start, item)
        return start

    def _on_abs(self, node: ast.Call, x: Any) -> Any:
        x = self.plain(x)
        return abs(x) if is_literal(x) else self._surface(node, REGISTRY["abs"], (x,), {}, (self.text(node.args[0]),))

    def _on_pow(self, node: ast.Call, x: Any, y: Any) -> Any:
        return self.binary(node, ast.Pow, x, y, tuple(self.text(a) for a in node.args))

    def _on_round(self, node: ast.Call, x: Any) -> Any:
        x = self.plain(x)
        if is_literal(x):
            return round(x)
        dtype = self.dtype_of(x)
        if dtype is not None and not dtype.is_float:
            return x
        whole = self.emit(node, "rint", x)
        return whole if isinstance(whole, TileRef) else self.cast(node, dt.int32, whole)

    def _on_divmod(self, node: ast.Call, x: Any, y: Any) -> Any:
        return self.binary(node, ast.FloorDiv, x, y), self.binary(node, ast.Mod, x, y)

    def _on_int(self, node: ast.Call, x: Any = 0) -> Any:
        x = self.plain(x)
        return self._fold(node, int, "int", x) if is_literal(x) else self.cast(node, dt.int32, x)

    def _on_float(self, node: ast.Call, x: Any = 0.0) -> Any:
        x = self.plain(x)
        if is_literal(x) or isinstance(x, str):
            return self._fold(node, float, "float", x)
        return self.cast(node, dt.float32, x)

    def _on_bool(self, node: ast.Call, x: Any = False) -> Any:
        return self.truth(node, x)

    def _on_tuple(self, node: ast.Call, x: Any = ()) -> Any:
        if not isinstance(x, (tuple, range)):
            self.fail(node, f"{describe_value(x)} cannot become a tuple", kind=TypeMismatch)
        return tuple(x)

    def _on_enumerate(self, node: ast.Call, x: Any, start: int = 0) -> Any:
        return tuple((i + start, v) for i, v in enumerate(self._on_tuple(node, x)))

    def _on_zip(self, node: ast.Call, *xs: Any) -> Any:
        return tuple(zip(*(self._on_tuple(node, x) for x in xs), strict=False))

    def _on_reversed(self, node: ast.Call, x: Any) -> Any:
        return x[::-1] if isinstance(x, range) else self._on_tuple(node, x)[::-1]

    def _on_slice(self, node: ast.Call, *args: Any) -> Any:
        return slice(*args)

    # --- print and texts ----------------------------------------------------------------------------------------

    def _print(self, node: ast.Call) -> None:
        texts: dict[str, Any] = {"sep": " ", "end": "\n"}
        for keyword in node.keywords:
            value = self.expr(keyword.value)
            if keyword.arg not in texts or not isinstance(value, str):
                self.fail(node, f"print in a kernel takes sep= and end= with constant texts, not {keyword.arg}=")
            texts[keyword.arg] = value
        args, _ = self._positional(node)
        parts, values = [], list[Any]()
        for arg in args:
            text = self.formatted(node, arg, "")
            parts.append(text.template)
            values += text.values
        if texts["end"] != "\n":
            self.fail(node, "print in a kernel always ends the line", help="put all values into one print")
        template = _braced(texts["sep"]).join(parts)
        self.emit(node, "print", *values, template=template)

    def _on_printf(self, node: ast.Call, template: Any = "", *args: Any) -> None:
        text = template.template if isinstance(template, Text) else template
        if not isinstance(text, str) or (isinstance(template, Text) and template.values):
            self.fail(node, "the format of printf must be a constant text", kind=TypeMismatch)
        pieces = re.split(r"(%[-+ 0#]*\d*(?:\.\d+)?[a-zA-Z%])", text.removesuffix("\n"))
        wanted = sum(1 for p in pieces[1::2] if p != "%%")
        if wanted != len(args):
            self.fail(node, f"printf: the format has {wanted} values, {len(args)} are given", kind=TypeMismatch)
        rest, parts, values = iter(args), list[str](), list[Any]()
        for k, piece in enumerate(pieces):
            made = Text(_braced(piece) if k % 2 == 0 else "%", ())
            if k % 2 and piece != "%%":
                made = self.formatted(node, next(rest), _python_format(piece))
            parts.append(made.template)
            values += made.values
        self.emit(node, "print", *values, template="".join(parts))

    def formatted(self, node: ast.AST, x: Any, spec: str) -> Text:
        """A value as a piece of a template."""
        x = self.plain(x)
        self.refuse_stacks(node, x)
        if isinstance(x, Text):
            return x
        if isinstance(x, Composite):
            return self._formatted_composite(node, x, spec)
        if isinstance(x, (Value, TileRef)) and not is_array(x):
            return Text("{:" + spec + "}" if spec else "{}", (x,))
        if isinstance(x, tuple):
            parts = [self.formatted(node, item, spec) for item in x]
            inner = ", ".join(p.template for p in parts) + ("," if len(x) == 1 else "")
            return Text(f"({inner})", tuple(v for p in parts for v in p.values))
        if is_array(x):
            self.fail(node, "an array is not printed from a kernel; print its elements or a tile of it")
        return Text(_braced(format(x, spec)), ())

    def _formatted_composite(self, node: ast.AST, x: Composite, spec: str) -> Text:
        """A vector as NumPy shows it, a struct with the names of its members."""
        if isinstance(x.kind, StructType):
            parts = [self.formatted(node, part, spec) for part in x]
            shown = [f"{n}={p.template}" for n, p in zip(x.kind.members, parts, strict=True)]
            return Text(f"{x.kind}({', '.join(shown)})", tuple(v for p in parts for v in p.values))
        if isinstance(first_leaf(x), TileRef):
            return self.formatted(node, self.as_scalar_tile(node, x), spec)
        if is_matrix(x):
            rows = [self._formatted_composite(node, row, spec) for row in x.rows]
            return Text(f"[{', '.join(r.template for r in rows)}]", tuple(v for r in rows for v in r.values))
        text = self.formatted(node, tuple(x), spec)
        return Text("[" + text.template[1:-1].removesuffix(",") + "]", text.values)

    _handlers: ClassVar[dict[Any, Callable[..., Any]]] = {
        tid: _on_tid, block_dim: _on_block_dim, constant: _on_constant, cdiv: _on_cdiv, tile_map: _on_tile_map,
        copy: _on_copy, printf: _on_printf,
        range: _on_range, len: _on_len, min: _on_extreme, max: _on_extreme, sum: _on_sum, abs: _on_abs, pow: _on_pow,
        round: _on_round, divmod: _on_divmod, int: _on_int, float: _on_float, bool: _on_bool, tuple: _on_tuple,
        list: _on_tuple, enumerate: _on_enumerate, zip: _on_zip, reversed: _on_reversed, slice: _on_slice,
    }  # fmt: skip

    # --- names --------------------------------------------------------------------------------------------------

    def lookup(self, node: ast.AST, name: str) -> Any:
        """The value of a name."""
        frame = self.frame
        entry = frame.names.get(name)
        if entry is not None:
            binding = frame.resolve(entry)
            if binding is not None:
                return binding.value
            assert not isinstance(entry, Binding)
            self.fail(
                node, f"`{name}` may have no value here: it has none when {entry.reason}", kind=KernelNameError,
                help=f"give `{name}` a value before",
            )  # fmt: skip
        if name in frame.local:
            self.fail(node, f"`{name}` is used before it has a value", kind=KernelNameError)
        try:
            value = frame.lookup(name)
        except Missing as missing:
            self._unknown_name(node, name, missing.reason)
        return self._captured(node, name, value)

    def _unknown_name(self, node: ast.AST, name: str, reason: str) -> NoReturn:
        if reason:
            self.fail(node, f"`{name}` cannot be used yet: {reason}", kind=KernelNameError)
        function = self.frame.function
        names = [n for n in self.frame.names if n[0] != "%"]
        names += function.known_names() if isinstance(function, Function) else []
        close = difflib.get_close_matches(name, names, 1)
        help = f"did you mean {close[0]}?" if close else f"tg.{name} exists" if name in REGISTRY else ""
        self.fail(node, f"the name `{name}` is not known", kind=KernelNameError, help=help)

    def _captured(self, node: ast.AST, name: str, value: Any) -> Any:
        """A value from outside of the kernel; arrays are refused."""
        if isinstance(value, np.ndarray) or (
            hasattr(value, "strides") and hasattr(value, "dtype") and hasattr(value, "ptr")
        ):
            self.fail(
                node, f"`{name}` is an array outside of the kernel; a kernel never captures arrays",
                help=f"pass it: add a parameter `{name}: tg.array{value.ndim}d[...]`",
            )  # fmt: skip
        return value

    def attribute(self, node: ast.Attribute) -> Any:
        return self.attribute_of(node, self.expr(node.value))

    def attribute_of(self, node: ast.Attribute, base: Any) -> Any:
        """`base.name`."""
        base = self.plain(base) if isinstance(base, (HostValue, StructValue)) else base
        if isinstance(base, Composite) or (isinstance(base, (Value, TileRef)) and not is_scalar(base)):
            return self.member(node, base, node.attr)
        if isinstance(base, Value):
            self.fail(node, f"a number ({describe(base.type)}) has no attribute `{node.attr}`", kind=TypeMismatch)
        try:
            value = snapshot(getattr(base, node.attr))
        except AttributeError:
            self._no_attribute(node, base)
        ours = isinstance(base, types.ModuleType) and base.__name__.split(".")[0] == "tilegrad"
        if not ours:
            self.captures.append(Capture(base, node.attr, value))
        return self._captured(node, self.text(node), value)

    def _no_attribute(self, node: ast.Attribute, base: Any) -> NoReturn:
        names = [n for n in dir(base) if not n.startswith("_")]
        close = difflib.get_close_matches(node.attr, names, 1)
        what = base.__name__ if isinstance(base, types.ModuleType) else describe_value(base)
        help = f"did you mean {self.text(node.value)}.{close[0]}?" if close else ""
        self.fail(node, f"{what} has no `{node.attr}`", kind=KernelNameError, help=help)

    # --- inlining -----------------------------------------------------------------------------------------------

    def inline(self, node: ast.AST, function: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace the body of a function in place of its call."""
        key = function.body if isinstance(function, LocalFunction) else function
        active = [f.name for f in self.frames if f.function is key]
        if active:
            chain = " -> ".join([f.name for f in self.frames] + [function.name])
            self.fail(
                node, f"`{function.name}` calls itself ({chain}); recursion is not supported", help="write a loop"
            )
        names = self._bound(node, function, args, kwargs)
        frame = self._frame_of(function, self.loc(node))
        frame.names = names
        frame.function = key
        outer, self.path = self.path, (*self.path, id(node))
        self.frames.append(frame)
        try:
            self.run_body(node, function.body)
        finally:
            self.frames.pop()
            self.path = outer
            self.builder.loc = self.loc(node)
        return self._returned(node, frame)

    def _frame_of(self, function: Callee, called_from: Loc) -> Frame:
        if isinstance(function, Function):
            captures = self.captures
            return Frame(
                function.source, function.name, function.local, lambda name: function.lookup(name, captures),
                function.liveness, called_from,
            )  # fmt: skip
        outer = function.frame
        local = stores(function.body) | {a.arg for a in _all_args(function.args)}
        source = Source(outer.source.file, outer.source.node, outer.source.lines)

        def look(name: str) -> Any:
            binding = outer.resolve(outer.names.get(name))
            if binding is not None:
                return binding.value
            if name in outer.local:
                raise Missing("it has no value where the function is called")
            return outer.lookup(name)

        return Frame(source, function.name, local, look, Liveness(function.body), called_from)

    def _returned(self, node: ast.AST, frame: Frame) -> Any:
        entry, flag = frame.names.get(RESULT), frame.flag(RETURNED)
        if entry is None or flag is False:
            return None
        binding = frame.resolve(entry)
        if binding is not None and (flag is True or binding.value is None):
            return binding.value
        if isinstance(entry, Partial) and entry.binding.value is None:
            return None
        self.fail(
            node, f"`{frame.name}` returns a value on some paths only", help="end the function with a return",
        )  # fmt: skip

    def _bound(self, node: ast.AST, function: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The parameters of an inlined function with the arguments of the call."""
        if isinstance(function, Function):
            names = [p.name for p in function.parameters]
            defaults = {p.name: snapshot(p.default) for p in function.parameters if not p.required}
        else:
            names = [a.arg for a in _all_args(function.args)]
            defaults = function.defaults
        values = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            self.fail(
                node, f"`{function.name}` takes {len(names)} argument{'s' * (len(names) != 1)}, {len(args)} are given",
                kind=TypeMismatch, help=f"it is {function.name}({', '.join(names)})",
            )  # fmt: skip
        for key, value in kwargs.items():
            if key not in names or key in values:
                problem = "has no parameter" if key not in names else "gets two values for"
                self.fail(node, f"`{function.name}` {problem} `{key}`", kind=TypeMismatch)
            values[key] = value
        missing = [n for n in names if n not in values and n not in defaults]
        if missing:
            listed = ", ".join(f"`{n}`" for n in missing)
            self.fail(node, f"`{function.name}` needs a value for {listed}", kind=TypeMismatch)
        values = {n: self.plain(values.get(n, defaults.get(n))) for n in names}
        if isinstance(function, Function):
            values = {p.name: self._fitting(node, function, p, values[p.name]) for p in function.parameters}
        return {n: Binding(v, self.loc(node)) for n, v in values.items()}

    def _fitting(self, node: ast.AST, function: Function, p: Any, x: Any) -> Any:
        """An argument checked against the annotation of its parameter; a literal takes the declared type."""
        annotation = signature.parse(function, p) if _is_checked(p.annotation) else None
        if isinstance(annotation, (TileAnnotation, StackAnnotation)):
            if annotation.accepts(x):
                return x
            raise self._misfit(node, function, p, annotation, x)
        if isinstance(annotation, CompositeType):
            if isinstance(x, Composite) and x.kind is annotation:
                return x
            raise self._misfit(node, function, p, annotation, x)
        if isinstance(annotation, NumberAnnotation) and annotation.dtype is not None:
            wanted = annotation.dtype
            if is_literal(x) and isinstance(x, bool) == (wanted.kind == "b") and dt.literal_fits(x, wanted):
                return float(x) if wanted.is_float else x
            if is_scalar(x) and self.dtype_of(x) == wanted:
                return x
            error = self._misfit(node, function, p, annotation, x)
            self.retype(x, wanted, error)
            raise error
        if isinstance(annotation, ArrayAnnotation) and not (annotation.optional and x is None):
            kind = first_leaf(x).type if is_array(first_leaf(x)) else None
            if (
                not isinstance(kind, ArrayType)
                or annotation.dtype not in (None, kind_of(x))
                or (annotation.ndim not in (None, kind.ndim))
            ):
                raise self._misfit(node, function, p, annotation, x)
        return x

    def _misfit(self, node: ast.AST, function: Function, p: Any, annotation: Any, x: Any) -> TilegradError:
        declared = ", ".join(f"{q.name}: {signature.parse(function, q) or 'Any'}" for q in function.parameters)
        return TypeMismatch(
            f"`{function.name}`: argument `{p.name}` is {describe_value(x)}, the function declares {annotation}",
            loc=self.loc(node), help=f"it is {function.name}({declared}); cast the argument, or drop the annotation",
        )  # fmt: skip


class Kernel:
    """The base of kernel objects, by which a call of one inside another is recognised."""


@dataclass(frozen=True)
class RunTimeRange:
    """`range` with bounds that are known only when the kernel runs."""

    start: Any
    stop: Any
    step: Any


_BUILTIN_TYPES = (types.BuiltinFunctionType,)


def signature_error(parameter: str) -> type[TilegradError]:
    """The class of error for a compile-time parameter that is not constant."""
    return ShapeMismatch if parameter in ("shape", "sizes", "steps") else TypeMismatch


def _called(node: ast.AST, name: str) -> str:
    """What the user wrote for the function of a call."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", None) or getattr(function, "id", None) or name


def is_advancing(function: Any) -> bool:
    """Whether a function of ours returns a value and what its first argument becomes."""
    return isinstance(function, types.FunctionType) and function in ADVANCING


def _is_surface(x: Any) -> bool:
    return isinstance(x, types.FunctionType) and (x.__module__ or "").startswith("tilegrad.ops.")


def _element_of(x: Any, elements: Iterator[Value]) -> Any:
    """An operand of tile_map as its function sees it: the next elements in the place of tiles."""
    if isinstance(x, Composite):
        return x.rebuilt([_element_of(part, elements) for part in x])
    return next(elements) if isinstance(x, TileRef) else x


@functools.lru_cache(maxsize=256)
def as_function(python: types.FunctionType) -> Function:
    """An undecorated function, as if it had been decorated."""
    return Function(python)


@functools.lru_cache(maxsize=512)
def _signature(target: Any) -> inspect.Signature:
    return inspect.signature(target)


@functools.lru_cache(maxsize=512)
def _parameters(target: Any) -> tuple[str, ...]:
    found = _signature(target).parameters.values()
    return tuple(p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def _is_operand(target: Any, name: str) -> bool:
    return _signature(target).parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def _readable(target: Any) -> str:
    """The signature without annotations, for messages."""
    parts = []
    for p in _signature(target).parameters.values():
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(f"{star}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}"))
    return f"({', '.join(parts)})"


def _is_checked(annotation: Any) -> bool:
    """Whether the annotation of a @func parameter is one that tilegrad knows; others are the user's own notes."""
    return signature.is_known(annotation)


def _all_args(a: ast.arguments) -> list[ast.arg]:
    return [*a.posonlyargs, *a.args, *a.kwonlyargs]


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _python_format(piece: str) -> str:
    """A conversion of C's printf as a format specification of Python."""
    kind = piece[-1]
    flags = piece[1:-1].replace("-", "<")
    return flags + ("" if kind in "diuslh" else kind)


def _as_tuple(x: Any) -> Any:
    return tuple(x) if isinstance(x, (range, list)) else x
