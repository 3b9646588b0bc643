"""Derivatives of the user's own: `func_grad`, `func_replay`, `adjoint[x]`, and `grad(f)` inside kernels.

A function with a gradient of its own is inlined as any other, on arguments without derivatives; its results go through
a `custom` op that holds the traced gradient function. A gradient inside a kernel is a `pullback` op that holds the
traced function. See `ops.custom` for both; `ad` knows what they mean.
Does not differentiate.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, rebuilt
from tilegrad.diagnostics import KernelNameError, KernelSyntaxError, TypeMismatch
from tilegrad.frontend.call import Callee, Calls, LocalFunction, as_function
from tilegrad.frontend.function import Capture, Function, Missing
from tilegrad.frontend.scope import Binding, TileRef, describe_value, is_array, is_literal, is_scalar
from tilegrad.ir.core import Block, Value
from tilegrad.ir.types import ArrayType, ScalarType, is_varying
from tilegrad.op import constant
from tilegrad.ops import custom
from tilegrad.ops.control import as_type, finish
from tilegrad.ops.declared import TileStack

F = TypeVar("F", bound=Callable[..., Any])

# --- what users write -----------------------------------------------------------------------------------------------


class Adjoint:
    """The gradients of the parameters of a gradient function: `tg.adjoint[x]`.

    Inside a function made with `@func_grad`, `adjoint[x]` is a variable that begins as zero and has the type of the
    parameter x; `adjoint[s.v]` is a part of it. For an array it is the gradient array: `adjoint[a][i] += ...` adds
    atomically.
    """

    def __getitem__(self, x: Any) -> Any:
        raise KernelSyntaxError("tg.adjoint[...] has a meaning only inside a function made with @tg.func_grad")

    def __repr__(self) -> str:
        return "tg.adjoint"


adjoint = Adjoint()


def func_grad(forward: Function) -> Callable[[F], F]:
    """Give a function a gradient of your own: `@func_grad(f)`.

    The decorated function has the parameters of `f`, followed by one for the gradient of each result of `f`. It adds
    to `adjoint[name]` for its parameters, and returns nothing. It takes the place of the derivative of everything that
    `f` does, wherever `f` is called from, in reverse and in forward mode. An array is read as it is after the launch.
    It may be given before or after the kernels that use `f`.

    Args:
        forward: a function made with @func. It must not change tiles that it is given in place.
    Raises:
        KernelSyntaxError: `forward` is no such function, or the parameters do not fit.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.func
        ... def root(x: float):
        ...     return tg.sqrt(x)
        >>> @tg.func_grad(root)
        ... def root_gradient(x: float, ct: float):
        ...     if x > 0.0:
        ...         tg.adjoint[x] += ct / (2.0 * tg.sqrt(x))
        >>> @tg.kernel
        ... def roots(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[i] = root(x[i])
        >>> x, y = np.array([4, 0], np.float32), np.zeros(2, np.float32)
        >>> pullback = tg.vjp(roots, 2, [x], [y], tiled=False)
        >>> pullback(np.ones(2, np.float32))[0].tolist()
        [0.25, 0.0]
    """
    _require_func(forward, "func_grad")

    def register(python: F) -> F:
        wanted, given = _count(forward.python), _count(python)
        if given < wanted:
            raise KernelSyntaxError(
                f"the gradient `{python.__name__}` of `{forward.name}` has {given} parameters",
                loc=Function(python).loc,
                help=f"it takes the {wanted} of `{forward.name}`, and then the gradient of each of its results",
            )
        forward.custom["gradient"] = Rule(python, wanted)
        return python

    return register


def func_replay(forward: Function) -> Callable[[F], F]:
    """Say what the backward pass runs in place of a function: `@func_replay(f)`.

    A backward pass runs the forward code again to have the values that derivatives need, without its effects. Where
    that is impossible or too slow, the decorated function gives the results of `f` from what `f` has stored: it has
    the parameters of `f`, returns the same, and reads arrays as they are after the launch. It must not write any.
    Derivatives still go through `f` itself, unless it has a gradient of its own.

    Raises: KernelSyntaxError if `forward` is no function made with @func, or the parameters do not fit.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.func
        ... def place(count: tg.array1d[int], places: tg.array1d[int], i: int):
        ...     k = tg.atomic_add(count, 0, 1)
        ...     places[i] = k
        ...     return k
        >>> @tg.func_replay(place)
        ... def same_place(count: tg.array1d[int], places: tg.array1d[int], i: int):
        ...     return places[i]
        >>> @tg.kernel
        ... def squares(n: tg.array1d[int], p: tg.array1d[int], x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[place(n, p, i)] = x[i] * x[i]
        >>> x, y = np.array([1, 2], np.float32), np.zeros(2, np.float32)
        >>> pullback = tg.vjp(squares, 2, [np.zeros(1, np.int32), np.zeros(2, np.int32), x], [y], tiled=False)
        >>> pullback(np.ones(2, np.float32))[2].tolist()
        [2.0, 4.0]
    """
    _require_func(forward, "func_replay")

    def register(python: F) -> F:
        wanted, given = _count(forward.python), _count(python)
        if given != wanted:
            raise KernelSyntaxError(
                f"the replay `{python.__name__}` of `{forward.name}` has {given} parameters", loc=Function(python).loc,
                help=f"it takes the {wanted} of `{forward.name}`",
            )  # fmt: skip
        forward.custom["replay"] = Function(python)
        return python

    return register


def _require_func(forward: Any, name: str) -> None:
    if not isinstance(forward, Function):
        shown = getattr(forward, "__name__", repr(forward))
        raise KernelSyntaxError(f"{name} takes a function made with @tg.func, not {shown}")


def _count(python: Callable[..., Any]) -> int:
    return len(inspect.signature(python).parameters)


@dataclass(frozen=True)
class GradientOf:
    """`grad(f)` or `value_and_grad(f)`: callable inside kernels."""

    function: Any
    argnums: int | tuple[int, ...] | None = None
    with_value: bool = False

    @property
    def name(self) -> str:
        inner = getattr(self.function, "name", None) or getattr(self.function, "__name__", repr(self.function))
        return f"{'value_and_grad' if self.with_value else 'grad'}({inner})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise KernelSyntaxError(
            f"{self.name} of a function has a meaning only inside a kernel",
            help="the gradient of a launch is tg.grad(kernel, dim, inputs, output)",
        )


def gradient_of(function: Any, argnums: int | Sequence[int] | None, *, with_value: bool) -> GradientOf:
    """The gradient of a function, to be called inside kernels."""
    if not callable(function):
        raise TypeMismatch(f"grad takes a kernel or a function, not {describe_value(function)}")
    return GradientOf(function, argnums if isinstance(argnums, int | None) else tuple(argnums), with_value)


#: functions that make a `GradientOf`, and whether of the value too
_MAKERS: dict[Any, bool] = {}


def differentiates(with_value: bool) -> Callable[[F], F]:
    """Marks a function of the library that takes a function and gives its gradient inside kernels."""

    def mark(python: F) -> F:
        _MAKERS[python] = with_value
        return python

    return mark


# --- gradient functions ---------------------------------------------------------------------------------------------


class Rule(Function):
    """A gradient function. `adjoint[x]` is a variable of that name; the function returns those of its parameters."""

    def __init__(self, python: Callable[..., Any], count: int) -> None:
        super().__init__(python)
        self.count = count

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        end = ast.copy_location(ast.Return(None), self.source.node)
        plain = super().body
        return [_Adjoints(self).visit(copy.deepcopy(statement)) for statement in [*plain, end]]

    @functools.cached_property
    def own(self) -> tuple[str, ...]:
        """The names of the parameters that have a gradient: those of the forward function."""
        a = self.source.node.args
        return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))[: self.count]

    def is_adjoint(self, node: ast.AST) -> bool:
        """Whether an expression names `tilegrad.adjoint`."""
        try:
            return self._static(node) is adjoint
        except (Missing, AttributeError):
            return False

    def _static(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Attribute):
            return getattr(self._static(node.value), node.attr)
        if isinstance(node, ast.Name):
            return self.lookup(node.id, [])
        raise Missing


def hidden(name: str) -> str:
    """The variable that holds the gradient of a parameter."""
    return f"adjoint[{name}]"


class _Adjoints(ast.NodeTransformer):
    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not self.rule.is_adjoint(node.value):
            self.generic_visit(node)
            return node
        return self._renamed(node, node.slice, node.ctx)

    def _renamed(self, whole: ast.expr, node: ast.expr, ctx: ast.expr_context) -> ast.expr:
        """`x.a` as the same part of the gradient of `x`."""
        made: ast.expr
        if isinstance(node, ast.Attribute):
            made = ast.Attribute(self._renamed(whole, node.value, ast.Load()), node.attr, ctx)
        elif isinstance(node, ast.Subscript):
            made = ast.Subscript(self._renamed(whole, node.value, ast.Load()), self.visit(node.slice), ctx)
        elif isinstance(node, ast.Name) and node.id in self.rule.own:
            made = ast.Name(hidden(node.id), ctx)
        else:
            shown = self.rule.source.text(node)
            raise KernelNameError(
                f"`{self.rule.name}` has no parameter `{shown}` with a gradient",
                loc=self.rule.source.loc(whole, self.rule.name, None),
                help=f"adjoint[...] is known for {', '.join(self.rule.own)}",
            )
        return ast.copy_location(made, whole)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise KernelSyntaxError(
                f"the gradient function `{self.rule.name}` returns a value",
                loc=self.rule.source.loc(node, self.rule.name, None), help="add to tg.adjoint[x] instead",
            )  # fmt: skip
        names: list[ast.expr] = [ast.copy_location(ast.Name(hidden(n), ast.Load()), node) for n in self.rule.own]
        return ast.copy_location(ast.Return(ast.copy_location(ast.Tuple(names, ast.Load()), node)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node


# --- calls ----------------------------------------------------------------------------------------------------------


class CustomCalls(Calls):
    """Calls of functions that have a gradient or a replay of their own, and of gradients."""

    #: the hidden variables of the gradient function that is about to be traced
    _hidden: dict[str, Any]
    #: arrays of gradients, to which several lanes may add
    _gradients: frozenset[Value] = frozenset()

    def apply(
        self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], texts: tuple[str, ...] = ()
    ) -> Any:
        if isinstance(function, types.FunctionType) and function in _MAKERS:
            return self._gradient_of(node, _MAKERS[function], *args, **kwargs)
        if isinstance(function, GradientOf):
            return self._gradient(node, function, args, kwargs)
        return super().apply(node, function, args, kwargs, texts)

    def inline(self, node: ast.AST, function: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(function, Function) or isinstance(function, Rule):
            return super().inline(node, function, args, kwargs)
        self.captures += [Capture(function.custom, key, value) for key, value in function.custom.items()]
        rule, replay = function.custom["gradient"], function.custom["replay"]
        active = [f.function for f in self.frames]
        if (rule is None and replay is None) or rule in active or replay in active:
            return super().inline(node, function, args, kwargs)
        bound = self._bound(node, function, args, kwargs)
        values = tuple(b.value for b in bound.values() if isinstance(b, Binding))
        given = tuple(self._shielded(node, v) for v in values) if rule is not None else values
        before = [(ref, ref.cell.value) for ref in _flat(given) if isinstance(ref, TileRef)]
        result = super().inline(node, function, given, {})
        if rule is not None:
            self._require_unchanged(node, function, before)
        if replay is not None:
            result = self._replayed(node, function, replay, values, result)
        return result if rule is None else self._with_gradient(node, function, rule, values, result)

    def _bound(self, node: ast.AST, function: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = super()._bound(node, function, args, kwargs)
        if isinstance(function, Rule):
            names |= {n: Binding(v, self.loc(node)) for n, v in self._hidden.items()}
        return names

    def _captured(self, node: ast.AST, name: str, value: Any) -> Any:
        if value is adjoint:
            self.fail(
                node, "tg.adjoint has a meaning only inside a function made with @tg.func_grad",
                help="there, adjoint[x] is the gradient of the parameter x",
            )  # fmt: skip
        return super()._captured(node, name, value)

    def _own_element(self, base: Value, items: tuple[Any, ...]) -> bool:
        root = base
        while root.op is not None and root not in self._gradients:
            root = root.op.operands[0]
        return root not in self._gradients and super()._own_element(base, items)

    # --- the forward side ---------------------------------------------------------------------------------------

    def _shielded(self, node: ast.AST, x: Any) -> Any:
        """An argument without its derivative: a tile is a copy, an array is one whose elements have none."""
        if isinstance(x, tuple) and not isinstance(x, TileStack):
            return rebuilt(x, [self._shielded(node, part) for part in x])
        if not _has_derivative(x):
            return self.new_tile(x.value) if isinstance(x, TileRef) else x
        self.builder.loc = self.loc(node)
        made = self.wrap(custom.stopped(x))
        if isinstance(x, Value) and x in self.weak:
            self.weak[made] = self.weak[x]
        return made

    def _require_unchanged(self, node: ast.AST, function: Function, before: Iterable[tuple[TileRef, Value]]) -> None:
        if any(ref.cell.value is not value for ref, value in before):
            self.fail(
                node, f"`{function.name}` changes a tile that it is given, and has a gradient of its own",
                help="return a new tile instead: a gradient of one's own is about arguments and results",
            )  # fmt: skip

    def _private(self, x: Any) -> Any:
        """An argument with tiles copied, so that nothing is changed for the caller."""
        if isinstance(x, tuple) and not isinstance(x, TileStack):
            return rebuilt(x, [self._private(part) for part in x])
        return self.new_tile(x.value) if isinstance(x, TileRef) else x

    def _ir_value(self, x: Any) -> Any:
        """A number or tile as a value of the IR; anything else unchanged."""
        x = self.plain(x)
        return x.value if isinstance(x, TileRef) else self.scalar(x) if is_literal(x) else x

    def _replaced(self, x: Any, chosen: Callable[[Any], bool], values: Iterator[Value]) -> Any:
        """`x` with the chosen leaves taken from an iterator."""
        if isinstance(x, tuple) and not isinstance(x, TileStack):
            return rebuilt(x, [self._replaced(part, chosen, values) for part in x])
        return self.wrap(next(values)) if chosen(x) else x

    # --- the backward side --------------------------------------------------------------------------------------

    def _with_gradient(self, node: ast.AST, function: Function, rule: Rule, values: Sequence[Any], result: Any) -> Any:
        """The results, with the traced gradient function behind them."""
        results = rebuilt((), [result]) if _is_single(result) else () if result is None else tuple(result)
        results = tuple(self._literals_typed(r) for r in results)
        raws = [self._ir_value(x) for x in _flat(results) if _has_derivative(x)]
        sources = [x for x in _flat(values) if _has_derivative(x)]
        arrays = [x for x in sources if is_array(x)]
        self._require_gradients(node, function, rule, len(results))
        block = self._traced_gradient(node, rule, values, results, raws, arrays)
        used = {v for op in block.walk() for v in op.operands}
        kept = [k for k, a in enumerate(block.args[len(raws) :]) if a in used]
        slots = (*block.args[: len(raws)], *(block.args[len(raws) + k] for k in kept))
        code, free = custom.closed(rule.name, Block(slots, block.ops))
        inputs = [self._ir_value(x) for x in sources if not is_array(x)]
        self.builder.loc = self.loc(node)
        if not raws and not kept:
            return result
        made = custom.custom(
            *raws, *inputs, *(arrays[k] for k in kept), *free,
            code=code, raws=len(raws), inputs=len(inputs), arrays=len(kept),
        )  # fmt: skip
        whole = self._replaced(results, _has_derivative, iter(_listed(made)))
        return whole[0] if _is_single(result) else rebuilt(result, whole)

    def _literals_typed(self, x: Any) -> Any:
        x = self.plain(x)
        return self.scalar(x) if isinstance(x, float) else x

    def _require_gradients(self, node: ast.AST, function: Function, rule: Rule, results: int) -> None:
        given = len(rule.parameters) - rule.count
        if given != results:
            ends = f"{results} gradient{'s' * (results != 1)}"
            self.fail(
                node, f"the gradient `{rule.name}` of `{function.name}` takes the gradients of {given} results, "
                f"`{function.name}` returns {results}",
                help=f"its parameters are the {rule.count} of `{function.name}`, and then {ends}", kind=TypeMismatch,
            )  # fmt: skip

    def _traced_gradient(
        self,
        node: ast.AST,
        rule: Rule,
        values: Sequence[Any],
        results: tuple[Any, ...],
        raws: Sequence[Value],
        arrays: Sequence[Value],
    ) -> Block:
        """Trace the gradient function, once for the block: what lanes add to a gradient has been added up before."""
        outer_lanes, outer_arrays = self.builder.per_lane, self._gradients
        self.builder.loc = self.loc(node)
        with self.builder.region(*(v.type for v in (*raws, *arrays))) as block:
            self.builder.per_lane = False
            try:
                cts = self._replaced(results, _has_derivative, iter(block.args[: len(raws)]))
                grads = block.args[len(raws) :]
                self._gradients |= frozenset(grads)
                self._hidden = self._hidden_variables(node, rule, values, iter(grads))
                args = (*(self._private(v) for v in values), *(self._without_numbers(ct) for ct in cts))
                found = super().inline(node, rule, args, {})
                finish(self.builder, self._cotangents(node, rule, values, found))
            finally:
                self.builder.per_lane, self._gradients = outer_lanes, outer_arrays
        return block

    def _without_numbers(self, ct: Any) -> Any:
        """The gradient of a result that has none, such as an int, is zero."""
        return 0 if is_scalar(ct) and not _has_derivative(ct) else ct

    def _hidden_variables(
        self, node: ast.AST, rule: Rule, values: Sequence[Any], grads: Iterator[Value]
    ) -> dict[str, Any]:
        def begin(x: Any) -> Any:
            if isinstance(x, tuple) and not isinstance(x, TileStack):
                return rebuilt(x, [begin(part) for part in x])
            if is_array(x):
                return next(grads) if _has_derivative(x) else None
            if isinstance(x, float):
                return 0.0
            value = self._ir_value(x)
            return self.wrap(custom.nothing(_uniform(value))) if isinstance(value, Value) else None

        return {hidden(n): begin(v) for n, v in zip(rule.own, values, strict=True)}

    def _cotangents(self, node: ast.AST, rule: Rule, values: Sequence[Any], found: Any) -> list[Value]:
        """What the gradient function has left in `adjoint`, for every argument that has a derivative."""
        cotangents = []
        for name, x, ct in zip(rule.own, values, found, strict=True):
            wanted, given = list(_flat(x)), list(_flat(ct))
            for a, b in zip(wanted, given, strict=True) if len(wanted) == len(given) else [(x, None)]:
                if is_array(a) or not _has_derivative(a):
                    continue
                made, kind = self._ir_value(b), self._ir_value(a).type
                t = made.type if isinstance(made, Value) else None
                if is_literal(b):
                    made = constant(b, kind.dtype)
                elif type(t) is not type(kind) or _uniform_type(t) != _uniform_type(kind):
                    self.fail(
                        node, f"`{rule.name}`: adjoint[{name}] must be {describe_value(a)}, it is {describe_value(b)}",
                        kind=TypeMismatch,
                    )  # fmt: skip
                cotangents.append(as_type(made, kind))
        return cotangents

    def _replayed(self, node: ast.AST, function: Function, replay: Function, values: Sequence[Any], result: Any) -> Any:
        """The results, with what the backward pass runs behind them."""
        results = tuple(self._ir_value(x) for x in _flat(result))
        places = [k for k, v in enumerate(results) if isinstance(v, Value) and not is_array(v)]
        raws = [results[k] for k in places]
        if not raws:
            return result
        with self.builder.region() as block:
            found = super().inline(node, replay, tuple(self._private(v) for v in values), {})
            again = [self._ir_value(x) for x in _flat(found)]
            same = len(again) == len(results)
            if not same or any(_uniform_type(again[k].type) != _uniform_type(results[k].type) for k in places):
                self.fail(
                    node, f"the replay `{replay.name}` returns {describe_value(found)}, "
                    f"`{function.name}` returns {describe_value(result)}", kind=TypeMismatch,
                )  # fmt: skip
            finish(self.builder, [as_type(again[k], results[k].type) for k in places])
        self._require_pure(node, replay.name, block, "a replay reads what the function has stored")
        code, free = custom.closed(replay.name, block)
        made = custom.replayed(*raws, *free, code=code, raws=len(raws))
        chosen = iter(_listed(made))
        rest = iter([next(chosen) if k in places else x for k, x in enumerate(_flat(result))])
        return self._replaced(result, lambda x: True, rest)

    def _require_pure(self, node: ast.AST, name: str, block: Block, why: str) -> None:
        for op in block.walk():
            if op.definition.effect in ("write", "atomic"):
                self.fail(node, f"`{name}` changes an array, at {op.loc}", help=why)

    # --- gradients inside kernels -------------------------------------------------------------------------------

    def _gradient_of(self, node: ast.AST, with_value: bool, function: Any = None, argnums: Any = None) -> GradientOf:
        callables = (Function, LocalFunction, types.FunctionType, GradientOf)
        if not isinstance(function, callables) and not callable(function):
            self.fail(node, f"grad takes a function, not {describe_value(function)}", kind=TypeMismatch)
        return GradientOf(function, self.known(argnums), with_value)

    def _gradient(self, node: ast.AST, gradient: GradientOf, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The derivatives of a function of numbers and tiles that returns a number."""
        function = gradient.function
        if isinstance(function, types.FunctionType) and not (function.__module__ or "").startswith("tilegrad."):
            function = as_function(function)
        if isinstance(function, (Function, LocalFunction)):
            bound = self._bound(node, function, args, kwargs)
            args, kwargs = tuple(b.value for b in bound.values()), {}
        args = tuple(self._differentiable(function, k, self.plain(x)) for k, x in enumerate(args))
        chosen = self._chosen(node, gradient, args)
        inputs = [self._ir_value(leaf) for k in chosen for leaf in _flat(args[k]) if _has_derivative(leaf)]
        block, result = self._traced(node, gradient, function, args, kwargs, chosen, inputs)
        if is_varying(result.type) and not all(is_varying(v.type) for v in inputs):
            inputs = [self._for_lanes(node, gradient, v) for v in inputs]
            block, result = self._traced(node, gradient, function, args, kwargs, chosen, inputs)
        code, free = custom.closed(gradient.name, block)
        self.builder.loc, self.builder.called = self.loc(node), gradient.name
        one = as_type(constant(1.0, self.dtype_of(result)), result.type)
        made = custom.pullback(*inputs, *free, one, code=code, wrt=tuple(range(len(inputs))), into=())
        rest = iter(_listed(made))
        found = tuple(self._replaced(self._zeros(args[k]), _has_derivative, rest) for k in chosen)
        single = isinstance(gradient.argnums, int) or (gradient.argnums is None and len(found) == 1)
        shown = found[0] if single else found
        return (self.apply(node, function, args, kwargs), shown) if gradient.with_value else shown

    def _differentiable(self, function: Any, k: int, x: Any) -> Any:
        """A literal float becomes a number of the type that the function declares."""
        if not isinstance(x, float):
            return x
        declared = function.parameters[k].annotation if isinstance(function, Function) else None
        return constant(x, dt.as_dtype(declared) or dt.float32)

    def _chosen(self, node: ast.AST, gradient: GradientOf, args: tuple[Any, ...]) -> tuple[int, ...]:
        """The positions of the arguments whose derivative is wanted."""
        floats = [k for k, x in enumerate(args) if any(map(_has_derivative, _flat(x)))]
        known = [k for k in floats if not any(map(is_array, _flat(args[k])))]
        wanted = gradient.argnums
        chosen = tuple(known) if wanted is None else (wanted,) if isinstance(wanted, int) else tuple(wanted)
        wrong = next((k for k in chosen if k not in known), None)
        if wrong is not None or not chosen:
            named = isinstance(wrong, int) and 0 <= wrong < len(args)
            what = f"argument {wrong} is {describe_value(args[int(wrong or 0)])}" if named else "there is none"
            self.fail(
                node, f"{gradient.name} needs arguments of floats: {what}", kind=TypeMismatch,
                help="derivatives are with respect to numbers, vectors and tiles of floats, not arrays",
            )  # fmt: skip
        return chosen

    def _traced(
        self,
        node: ast.AST,
        gradient: GradientOf,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        chosen: tuple[int, ...],
        inputs: Sequence[Value],
    ) -> tuple[Block, Value]:
        with self.builder.region(*(v.type for v in inputs)) as block:
            rest = iter(block.args)
            given = tuple(
                self._replaced(x, _has_derivative, rest) if k in chosen else self._private(x)
                for k, x in enumerate(args)
            )
            result = self.plain(self.apply(node, function, given, kwargs))
            result = constant(result) if isinstance(result, float) else result
            if not is_scalar(result) or not _has_derivative(result):
                self.fail(
                    node, f"{gradient.name}: the function returns {describe_value(result)}, not a number",
                    help="reduce it to a float, for example with tile_sum(t)[0]", kind=TypeMismatch,
                )  # fmt: skip
            finish(self.builder, [result])
        self._require_pure(node, gradient.name, block, "a gradient is taken of a function of its arguments alone")
        return block, result

    def _for_lanes(self, node: ast.AST, gradient: GradientOf, v: Value) -> Value:
        if not isinstance(v.type, ScalarType):
            self.fail(
                node, f"{gradient.name}: the result differs between lanes, so the gradient of a tile would, too",
                help="reduce over the lanes in the function, or pass the elements as numbers", kind=TypeMismatch,
            )  # fmt: skip
        return as_type(v, ScalarType(v.type.dtype, varying=True))

    def _zeros(self, x: Any) -> Any:
        """An argument whose parts without derivatives are zero."""
        if isinstance(x, tuple):
            return rebuilt(x, [self._zeros(part) for part in x])
        value = self._ir_value(x)
        return x if _has_derivative(x) or not isinstance(value, Value) else self.wrap(custom.nothing(value.type))


def _flat(x: Any) -> Iterator[Any]:
    """The leaves of tuples and composites."""
    if isinstance(x, tuple) and not isinstance(x, TileStack):
        for part in x:
            yield from _flat(part)
    else:
        yield x


def _has_derivative(x: Any) -> bool:
    """Whether a leaf has a derivative: a number or tile of floats, or an array of floats."""
    t = x.type if isinstance(x, (Value, TileRef)) else None
    if isinstance(t, ArrayType):
        return t.dtype.is_float
    return t is not None and custom.has_derivative(t)


def _is_single(result: Any) -> bool:
    """Whether a function returns one value, which may be composite."""
    return result is not None and (isinstance(result, (Composite, TileStack)) or not isinstance(result, tuple))


def _listed(made: Any) -> tuple[Value, ...]:
    return made if isinstance(made, tuple) else () if made is None else (made,)


def _uniform_type(t: Any) -> Any:
    return ScalarType(t.dtype) if isinstance(t, ScalarType) else t


def _uniform(v: Value) -> Any:
    return _uniform_type(v.type)
