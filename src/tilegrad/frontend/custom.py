"""Calls of functions that have a gradient or a replay of their own, and of gradients inside kernels.

A function with a gradient of its own is inlined as any other, on arguments without derivatives; its results go through
a `custom` op that holds the traced gradient function. A gradient inside a kernel is a `pullback` op that holds the
traced function. See `ops.custom` for both; `ad` knows what they mean.
Does not differentiate.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, rebuilt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.frontend.call import Callee, Calls, LocalFunction, as_function
from tilegrad.frontend.function import Capture, Function
from tilegrad.frontend.rules import MAKERS, GradientOf, Rule, adjoint, hidden
from tilegrad.frontend.scope import Binding, TileRef, describe_value, is_array, is_literal, is_scalar
from tilegrad.ir.core import Block, Value
from tilegrad.ir.types import ArrayType, ScalarType, is_varying
from tilegrad.op import constant
from tilegrad.ops import custom
from tilegrad.ops.control import as_type, finish
from tilegrad.ops.declared import TileStack


class CustomCalls(Calls):
    """Calls of functions that have a gradient or a replay of their own, and of gradients."""

    #: the hidden variables of the gradient function that is about to be traced
    _hidden: dict[str, Any]
    #: arrays of gradients, to which several lanes may add
    _gradients: frozenset[Value] = frozenset()

    def apply(
        self, node: ast.AST, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], texts: tuple[str, ...] = ()
    ) -> Any:
        if isinstance(function, types.FunctionType) and function in MAKERS:
            return self._gradient_of(node, MAKERS[function], *args, **kwargs)
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
        self.builder.called = function.name
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
        return _root(base) not in self._gradients and super()._own_element(base, items)

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
                self._require_own_writes(node, rule, block)
            finally:
                self.builder.per_lane, self._gradients = outer_lanes, outer_arrays
        return block

    def _require_own_writes(self, node: ast.AST, rule: Rule, block: Block) -> None:
        for op in block.walk():
            if op.definition.effect in ("write", "atomic") and _root(op.operands[0]) not in self._gradients:
                self.fail(
                    node, f"`{rule.name}` changes an array, at {op.loc}",
                    help="a gradient function changes nothing but tg.adjoint[...]",
                )  # fmt: skip

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
                return next(grads) if _has_derivative(x) else _NoGradient(x)
            if isinstance(x, float):
                return 0.0
            value = self._ir_value(x)
            return self.wrap(custom.nothing(_uniform(value))) if isinstance(value, Value) else _NoGradient(x)

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


class _NoGradient:
    """The value of `adjoint[x]` for something that has no gradient."""

    def __init__(self, x: Any) -> None:
        self.what = describe_value(x)

    def __repr__(self) -> str:
        return f"the gradient of {self.what} (there is none)"


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


def _root(array: Value) -> Value:
    """The parameter that an array is a part of."""
    while array.op is not None:
        array = array.op.operands[0]
    return array
