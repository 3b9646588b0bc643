"""Runs the syntax tree of a kernel over abstract values and leaves Tile IR behind.

Python constructs are traced in the order in which Python evaluates them. Whatever depends only on compile-time values
is decided here and leaves nothing; the rest becomes ops and structured control flow. If an assumption of a trace turns
out wrong (`Restart`, `Divergent`), what was learned is kept in `Decisions` and the kernel is traced again.
Does not check launches and does not compile.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, first_leaf, map_parts
from tilegrad.diagnostics import CompilerBug, TypeMismatch
from tilegrad.frontend import signature
from tilegrad.frontend.call import LocalFunction, RunTimeRange, Text
from tilegrad.frontend.composites import ElementPlace, Place
from tilegrad.frontend.custom import CustomCalls
from tilegrad.frontend.flow import Carry
from tilegrad.frontend.function import Capture, Function
from tilegrad.frontend.lanes import Divergence, Divergent, LaneBuilder
from tilegrad.frontend.liveness import rebinds, stores
from tilegrad.frontend.scope import (
    RESULT,
    RETURNED,
    Binding,
    Cell,
    Frame,
    TileRef,
    describe_value,
    is_literal,
    is_scalar,
)
from tilegrad.frontend.signature import ArgumentType
from tilegrad.frontend.values import Decisions, Key, Restart
from tilegrad.ir.core import Block, Kernel, Value
from tilegrad.ir.types import is_varying
from tilegrad.op import REGISTRY
from tilegrad.ops import catalog as catalog  # registers every op
from tilegrad.ops.control import build_for, build_while, finish
from tilegrad.ops.matmul import can_accumulate

#: what cannot be written in a kernel, and what to write instead
_UNSUPPORTED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "use assert for what must hold, and check results after the launch"),
    ast.With: ("with", "open contexts around the launch"),
    ast.Raise: ("raise", 'use assert condition, "message"'),
    ast.Import: ("import", "import at the top of the module"),
    ast.ImportFrom: ("import", "import at the top of the module"),
    ast.ClassDef: ("class", "define types outside of the kernel"),
    ast.Global: ("global", "pass an array and write to it"),
    ast.Nonlocal: ("nonlocal", "pass an array and write to it"),
    ast.Delete: ("del", "simply stop using the name"),
    ast.Match: ("match", "use if and elif"),
    ast.ListComp: ("a list comprehension", "use a loop, a tuple, or tg.static([...])"),
    ast.SetComp: ("a set comprehension", "use a loop or a tuple"),
    ast.DictComp: ("a dict comprehension", "use a loop or a tuple"),
    ast.GeneratorExp: ("a generator expression", "use a loop, or tg.static(...) for constants"),
    ast.Dict: ("a dict", "use a tuple, or separate variables"),
    ast.Set: ("a set", "use a tuple"),
    ast.Await: ("await", "a kernel runs to its end"),
    ast.Yield: ("yield", "a kernel runs to its end; store results in arrays"),
    ast.YieldFrom: ("yield from", "a kernel runs to its end; store results in arrays"),
    ast.AsyncFor: ("async for", "use for"),
    ast.AsyncWith: ("async with", "open contexts around the launch"),
    ast.AsyncFunctionDef: ("async def", "use def with @tg.func"),
}


#: stands for the value of `t += a @ b` where the product went into the tile at once
_ACCUMULATED = object()

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip


class Tracer(CustomCalls):
    """Visits statements and expressions. One instance makes one trace."""

    def __init__(
        self, builder: LaneBuilder, decisions: Decisions, grid_ndim: int, tiled: bool, block_dim: int, wide: bool
    ) -> None:
        super().__init__(builder, decisions)
        self.captures: list[Capture] = []
        self.grid_ndim = grid_ndim
        self.wide = wide
        self.tiled = tiled
        self.block_dim = block_dim
        builder.mask = self._mask

    def _mask(self) -> Value | None:
        """The lanes that have not returned, where the rest of the kernel is traced flat."""
        if not self.frames or not self.decisions.guard:
            return None
        entry = self.frames[0].names.get(RETURNED)
        value = entry.value if isinstance(entry, Binding) else False
        if isinstance(value, Value) and is_varying(value.type):
            result: Value = REGISTRY["invert"](value)
            return result
        return None

    # --- expressions --------------------------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> Any:
        """The value of an expression."""
        visit: Callable[[ast.AST], Any] = getattr(self, f"_x_{type(node).__name__}", self._unsupported)
        return visit(node)

    def _unsupported(self, node: ast.AST) -> NoReturn:
        what, help = _UNSUPPORTED.get(type(node), (type(node).__name__, ""))
        self.fail(node, f"{what} is not supported in a kernel", help=help)

    def _x_Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, (complex, bytes)):
            self.fail(node, f"the constant {node.value!r} has no type in a kernel", kind=TypeMismatch)
        return node.value

    def _x_Name(self, node: ast.Name) -> Any:
        return self.lookup(node, node.id)

    def _x_Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute(node)

    def _x_Call(self, node: ast.Call) -> Any:
        return self.call(node)

    def _x_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        items: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                spread = self.expr(element.value)
                if not isinstance(spread, (tuple, range)):
                    self.fail(element, f"only a tuple can be spread with *, not {describe_value(spread)}")
                items += spread
            else:
                items.append(self.expr(element))
        return tuple(items)

    _x_List = _x_Tuple

    def _x_Slice(self, node: ast.Slice) -> slice:
        return slice(*(self.expr(p) if p is not None else None for p in (node.lower, node.upper, node.step)))

    def _x_Subscript(self, node: ast.Subscript) -> Any:
        base, index = self.expr(node.value), self.expr(node.slice)
        return self.subscript(node, base, index, self._texts(node))

    def _texts(self, node: ast.Subscript) -> tuple[str, ...]:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return (self.text(node.value), *(self.text(i) for i in items))

    def _x_BinOp(self, node: ast.BinOp) -> Any:
        x, y = self.expr(node.left), self.expr(node.right)
        return self.binary(node, type(node.op), x, y, (self.text(node.left), self.text(node.right)))

    def _x_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self.negate(node, self.test(node.operand))
        x = self.plain(self.expr(node.operand))
        if isinstance(x, Composite):
            return self._unary_composite(node, x)
        if is_literal(x):
            return self._fold(node, _UNARY[type(node.op)], "this operator", x)
        if not isinstance(x, TileRef) and not is_scalar(x):
            self.fail(node, f"this operator does not work with {describe_value(x)}", kind=TypeMismatch)
        if isinstance(node.op, ast.UAdd):
            return x
        name = "neg" if isinstance(node.op, ast.USub) else "invert"
        return self.call_op(node, REGISTRY[name], (x,), {}, (self.text(node.operand),))

    def _unary_composite(self, node: ast.UnaryOp, x: Composite) -> Any:
        if isinstance(node.op, ast.UAdd):
            return x
        name = "neg" if isinstance(node.op, ast.USub) else "invert"
        return map_parts(lambda part: self.emit(node, name, part), x)

    def _x_Compare(self, node: ast.Compare) -> Any:
        return self._chain(node, self.expr(node.left), node.left, list(zip(node.ops, node.comparators, strict=True)))

    def _chain(self, node: ast.Compare, left: Any, text: ast.expr, rest: list[tuple[ast.cmpop, ast.expr]]) -> Any:
        """`left < a < b`: the comparisons are evaluated until one is false."""
        (kind, right_node), later = rest[0], rest[1:]
        right = self.expr(right_node)
        verdict = self.compare(node, type(kind), left, right, (self.text(text), self.text(right_node)))
        if not later:
            return verdict
        if isinstance(verdict, TileRef):
            self.fail(node, "comparisons of tiles are not chained", help="write (a < b) & (b < c)")
        return self.both(node, verdict, lambda: self.truth(node, self._chain(node, right, right_node, later)))

    def both(self, node: ast.AST, left: Any, right: Callable[[], Any]) -> Any:
        """`left and right()` as a bool."""
        return self.select(node, left, right, lambda: False)

    def _x_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._bool_op(node, node.values)

    def _bool_op(self, node: ast.BoolOp, values: Sequence[ast.expr]) -> Any:
        first = self.expr(values[0])
        if len(values) == 1:
            return first
        known = self.truth(values[0], first)
        rest = functools.partial(self._bool_op, node, values[1:])
        stop = known if is_scalar(first) and self.dtype_of(first) == dt.bool_ else first
        if isinstance(node.op, ast.And):
            return self.select(node, known, rest, lambda: False if stop is known and is_scalar(known) else stop)
        return self.select(node, known, lambda: True if stop is known and is_scalar(known) else stop, rest)

    def test(self, node: ast.expr) -> Any:
        """The truth of an expression: a Python bool or an IR bool."""
        if isinstance(node, ast.BoolOp):
            return self._test_all(node, node.values)
        return self.truth(node, self.expr(node))

    def _test_all(self, node: ast.BoolOp, values: Sequence[ast.expr]) -> Any:
        first = self.test(values[0])
        if len(values) == 1:
            return first
        rest = functools.partial(self._test_all, node, values[1:])
        if isinstance(node.op, ast.And):
            return self.select(node, first, rest, lambda: False)
        return self.select(node, first, lambda: True, rest)

    def _x_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.test(node.test)
        return self.select(
            node, condition, lambda: self.plain(self.expr(node.body)), lambda: self.plain(self.expr(node.orelse))
        )

    def _x_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.plain(self.expr(node.value))
        self._bind(node.target, value)
        return value

    def _x_Lambda(self, node: ast.Lambda) -> LocalFunction:
        body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
        return LocalFunction("lambda", node.args, body, self.frame, self._defaults(node.args))

    def _defaults(self, a: ast.arguments) -> dict[str, Any]:
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        found = {n: self.expr(d) for n, d in zip(reversed(names), reversed(a.defaults), strict=False)}
        found |= {p.arg: self.expr(d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
        return found

    def _x_JoinedStr(self, node: ast.JoinedStr) -> Text:
        parts = [self._piece(v) for v in node.values]
        return Text("".join(p.template for p in parts), tuple(v for p in parts for v in p.values))

    def _piece(self, node: ast.expr) -> Text:
        if isinstance(node, ast.Constant):
            return self.formatted(node, node.value, "")
        assert isinstance(node, ast.FormattedValue)
        spec = ""
        if isinstance(node.format_spec, ast.JoinedStr):
            made = self._x_JoinedStr(node.format_spec)
            if made.values:
                self.fail(node, "the format of a value must be constant")
            spec = made.template
        return self.formatted(node, self.expr(node.value), spec)

    # --- statements ---------------------------------------------------------------------------------------------

    def run_body(self, node: ast.AST, body: Sequence[ast.stmt]) -> None:
        """Run a statement list."""
        if not body:
            return
        actions = [self._action(s) for s in body]
        self.sequence(body[0], actions, self.frame.liveness.after.get(body[-1], frozenset()))

    def _action(self, statement: ast.stmt) -> Callable[[], None]:
        return lambda: self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        visit: Callable[[ast.AST], Any] = getattr(self, f"_s_{type(node).__name__}", self._unsupported)
        self.builder.loc = self.loc(node)
        visit(node)

    def _s_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expr(node.value)

    def _s_Pass(self, node: ast.Pass) -> None:
        pass

    def _s_Assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        count = len(first.elts) if isinstance(first, (ast.Tuple, ast.List)) else 1
        outer, self.unpacked = self.unpacked, (node.value, count)
        value = self.plain(self.expr(node.value))
        self.unpacked = outer
        for target in node.targets:
            self._assign(target, value)

    def _s_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.plain(self.expr(node.value)))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._bind(target, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            whole = self.place(target.value)
            index = self.expr(target.slice)
            if self.is_single(whole):
                items = index if isinstance(index, tuple) else (index,)
                self.write(target, self.indexed_place(target, whole, items), value)
            else:
                self.store(target, self.read(target.value, whole), index, value, self._texts(target))
        elif isinstance(target, ast.Attribute):
            self.write(target, self.place(target), value)
        else:
            self._unsupported(target)

    def bind(self, target: ast.Name, value: Any) -> None:
        self._bind(target, value)

    def _bind(self, target: ast.Name, value: Any) -> None:
        if value is None and isinstance(self.frame.names.get(target.id), Binding):
            pass  # None is an ordinary compile-time value
        self.frame.names[target.id] = Binding(value, self.loc(target))

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        self.refuse_stacks(target, value)
        if isinstance(value, range):
            value = tuple(value)
        if not isinstance(value, tuple):
            self.fail(
                target, f"{describe_value(value)} cannot be unpacked into {len(target.elts)} names", kind=TypeMismatch,
                help="unpack a tuple; elements of a tile are read with t[i]" if isinstance(value, TileRef) else "",
            )  # fmt: skip
        starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
        targets = list(target.elts)
        if starred:
            at, tail = starred[0], len(targets) - starred[0] - 1
            value = (*value[:at], value[at : len(value) - tail], *value[len(value) - tail :])
            inner = targets[at]
            assert isinstance(inner, ast.Starred)
            targets[at] = inner.value
        if len(value) != len(targets):
            self.fail(
                target,
                f"{len(value)} value{'s are' if len(value) != 1 else ' is'} unpacked into {len(targets)} names",
                kind=TypeMismatch,
                label=f"expected {len(value)}",
            )  # fmt: skip
        for t, v in zip(targets, value, strict=True):
            self._assign(t, v)

    def _s_AugAssign(self, node: ast.AugAssign) -> None:
        target, kind = node.target, type(node.op)
        if isinstance(target, ast.Subscript):
            self._update_element(node, target, kind)
            return
        if isinstance(target, ast.Attribute):
            self._update_place(node, self.place(target), kind, self.text(target))
            return
        old = self.lookup(target, target.id)
        if isinstance(old, TileRef):
            self._update_tile(node, kind, old)
            return
        if isinstance(old, Composite) and isinstance(first_leaf(old), TileRef):
            self._update_composite_tile(node, kind, old)
            return
        texts = (self.text(target), self.text(node.value))
        self._bind(target, self.binary(node, kind, old, self.expr(node.value), texts))

    def _update_element(self, node: ast.AugAssign, target: ast.Subscript, kind: type[ast.operator]) -> None:
        """`base[index] op= value`."""
        whole = self.place(target.value)
        index = self.expr(target.slice)
        if self.is_single(whole):
            items = index if isinstance(index, tuple) else (index,)
            self._update_place(node, self.indexed_place(target, whole, items), kind, self.text(target))
            return
        base = self.read(target.value, whole)
        items = index if isinstance(index, tuple) else (index,)
        if isinstance(base, TileRef) and _is_product(node.value) and not any(isinstance(i, TileRef) for i in items):
            view = self.subscript(target, base, index, self._texts(target))
            if isinstance(view, TileRef):
                self._update_tile(node, kind, view)
                return
        self.update(node, kind, base, index, lambda: self.expr(node.value), self._texts(target))

    def _update_place(self, node: ast.AugAssign, place: Place, kind: type[ast.operator], text: str) -> None:
        """`place op= value`, where the place is a part of something."""
        target = node.target
        if isinstance(place, ElementPlace):
            self.update(node, kind, place.base, place.items, lambda: self.expr(node.value), place.texts)
            return
        old = self.read(target, place)
        if isinstance(old, TileRef):
            self._update_tile(node, kind, old)
            return
        self.write(target, place, self.binary(node, kind, old, self.expr(node.value), (text, self.text(node.value))))

    def _update_composite_tile(self, node: ast.AugAssign, kind: type[ast.operator], target: Composite) -> None:
        """`t op= value` for a tile of composites."""
        value = self._value_or_accumulated(node, kind, target)
        if value is _ACCUMULATED:
            return
        result = self.binary(node, kind, target, value)
        if not isinstance(result, Composite) or result.kind is not target.kind:
            self.fail(node, f"the result is {describe_value(result)}, not {describe_value(target)}", kind=TypeMismatch)
        map_parts(lambda old, new: self.assign_tile(node, old, new), target, result)

    def _update_tile(self, node: ast.AugAssign, kind: type[ast.operator], target: TileRef) -> None:
        """`t op= value` in place."""
        value = self._value_or_accumulated(node, kind, target)
        if value is not _ACCUMULATED:
            self.update_tile(node, kind, target, value)

    def _value_or_accumulated(self, node: ast.AugAssign, kind: type[ast.operator], target: TileRef | Composite) -> Any:
        """The value of an update; `_ACCUMULATED` if it was a product that `target` has accumulated already."""
        value = node.value
        if kind not in (ast.Add, ast.Sub) or not _is_product(value):
            return self.plain(self.expr(value))
        a, b = self.factors(node, self.expr(value.left), self.expr(value.right))
        repeated = any(step.definition.name == "tile_broadcast" for step in first_leaf(target).path)
        if repeated or not can_accumulate(a, b, target):
            return self.binary(value, ast.MatMult, a, b)
        texts = (self.text(value.left), self.text(value.right), self.text(node.target))
        self.call_op(node, REGISTRY["tile_matmul"], (a, b, target, 1.0 if kind is ast.Add else -1.0), {}, texts)
        return _ACCUMULATED

    def _s_Assert(self, node: ast.Assert) -> None:
        condition = self.test(node.test)
        text = self.formatted(node, self.expr(node.msg), "") if node.msg is not None else None
        message = text.template if text else f"assert {self.text(node.test)}"
        if text is not None and not text.values:
            message = message.replace("{{", "{").replace("}}", "}")
        if condition is True:
            return
        ok = self.scalar(condition)
        values = text.values if text else ()
        self.emit(node, "check", ok, *values, kind="assertion", message=message)

    def _s_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        made = LocalFunction(node.name, node.args, node.body, self.frame, self._defaults(node.args))
        self.frame.names[node.name] = Binding(made, self.loc(node))

    def _s_Return(self, node: ast.Return) -> None:
        value = self.plain(self.expr(node.value)) if node.value is not None else None
        if len(self.frames) == 1 and value is not None:
            self.fail(node, "a kernel returns nothing", help="store results in an array parameter")
        self.frame.names[RESULT] = Binding(value, self.loc(node))
        self.frame.set_flag(RETURNED, True)

    def _s_Break(self, node: ast.Break) -> None:
        self.frame.set_flag(self.frame.loops[-1][0], True)

    def _s_Continue(self, node: ast.Continue) -> None:
        self.frame.set_flag(self.frame.loops[-1][1], True)

    def _s_If(self, node: ast.If) -> None:
        condition = self.test(node.test)
        if isinstance(condition, bool):
            self.run_body(node, node.body if condition else node.orelse)
            return
        live = self.frame.liveness.after[node]
        self.branch(
            node.test, condition, lambda: self.run_body(node, node.body), lambda: self.run_body(node, node.orelse),
            live, f"`{self.text(node.test)}`",
        )  # fmt: skip

    # --- loops --------------------------------------------------------------------------------------------------

    def _s_For(self, node: ast.For) -> None:
        items = self.expr(node.iter)
        self.refuse_stacks(node.iter, items)
        key = (self.path, id(node))
        if isinstance(items, tuple) or (isinstance(items, range) and (len(items) <= 1 or key in self.decisions.unroll)):
            self._unrolled(node, tuple(items))
        elif isinstance(items, (range, RunTimeRange)):
            self._range_loop(node, items, key)
        else:
            self.fail(
                node.iter, f"a loop does not run over {describe_value(items)}", kind=TypeMismatch,
                help="loop over range(...), a tuple, or tg.static(...)",
            )  # fmt: skip

    def _unrolled(self, node: ast.For, items: tuple[Any, ...]) -> None:
        """One copy of the body for each item."""
        broken, continued = self.new_flags()
        frame, outer = self.frame, self.path

        def turn(i: int) -> Callable[[], None]:
            def run() -> None:
                self.path = (*outer, id(node), i)
                frame.set_flag(continued, False)
                frame.loops.append((broken, continued))
                try:
                    self._assign(node.target, self.plain(items[i]))
                    self.run_body(node, node.body)
                finally:
                    frame.loops.pop()
                    self.path = outer
                    frame.close_flag(continued)

            return run

        live = frame.liveness.after[node] | frame.liveness.head[node]
        frame.set_flag(broken, False)
        frame.loop_live.append(live)
        try:
            self._turns(node, [turn(i) for i in range(len(items))], broken, live)
        finally:
            frame.loop_live.pop()
        self._else(node, broken)

    def _turns(self, node: ast.For, turns: Sequence[Callable[[], None]], broken: str, live: frozenset[str]) -> None:
        """The turns of an unrolled loop: each runs unless an earlier one has left the loop."""
        frame = self.frame
        for i, turn in enumerate(turns):
            turn()
            values = {f: v for f in (broken, RETURNED) if (v := frame.flag(f)) is not False}
            if any(v is True for v in values.values()):
                return
            flags = [f for f, v in values.items() if not self.masked(f, v)]
            if flags:
                if rest := turns[i + 1 :]:
                    self._unless(node, flags, lambda: self._turns(node, rest, broken, live), live)
                return

    def _else(self, node: ast.For | ast.While, broken: str) -> None:
        """The `else` of a loop runs unless the loop was left by break."""
        if not node.orelse or (value := self.frame.flag(broken)) is True:
            return
        if value is False:
            self.run_body(node, node.orelse)
            return
        live = self.frame.liveness.after[node]
        self._unless(node, [broken], lambda: self.run_body(node, node.orelse), live)

    def _carried(self, node: ast.For | ast.While, extra: tuple[str, ...]) -> tuple[frozenset[str], list[Cell]]:
        """The names that a loop may have to carry, and the tiles that it is seen to write."""
        targets: list[ast.AST] = [node.target] if isinstance(node, ast.For) else [node.test]
        inside = [*targets, *node.body]
        names, again = stores(inside), rebinds(inside)
        cells = [
            x.cell for n in sorted((names - again) | _written(node.body)) if isinstance(x := self._tile(n), TileRef)
        ]
        tiles = {n for n in names - again if isinstance(self._tile(n), TileRef)}
        return (names - tiles) | frozenset(extra), cells

    def _tile(self, name: str) -> Any:
        binding = self.frame.resolve(self.frame.names.get(name))
        return binding.value if binding else None

    def _range_loop(self, node: ast.For, items: range | RunTimeRange, key: Key) -> None:
        start, stop, step = self._bounds(node.iter, items)
        sure = isinstance(items, range)
        constant_bounds = isinstance(items, range)
        if _leaves_early(node.body):
            self._range_as_while(node, start, stop, step, sure, key if constant_bounds else None)
            return
        frame = self.frame
        _, continued = flags = self.new_flags()
        names, cells = self._carried(node, ())
        live = frame.liveness.after[node] | frame.liveness.head[node]
        varying = any(is_varying(v.type) for v in (start, stop, step))
        reason = Divergence(self.loc(node.iter), f"the range `{self.text(node.iter)}`") if varying else None

        def build(carry: Carry) -> tuple[Value, ...]:
            def body(i: Value, *args: Value) -> Sequence[Value]:
                carry.enter(args)
                with self.builder.diverged(reason):
                    if constant_bounds:
                        self.indices[i] = key
                    self._turn(node, flags, live, lambda: self._assign(node.target, i))
                frame.close_flag(continued)
                return carry.leave()

            return build_for(start, stop, step, carry.inits, body)

        self.builder.loc = self.loc(node)
        self.loop(node, names, live, cells, sure, build)
        if constant_bounds and isinstance(node.target, ast.Name) and node.target.id in live:
            assert isinstance(items, range)
            if node.target.id not in stores(node.body):
                self._bind(node.target, items[-1])
        self.run_body(node, node.orelse)

    def _turn(
        self, node: ast.For | ast.While, flags: tuple[str, str], live: frozenset[str], first: Callable[[], None]
    ) -> None:
        """One turn of a loop."""
        frame = self.frame
        frame.set_flag(flags[1], False)
        frame.loops.append(flags)
        frame.loop_live.append(live)
        try:
            first()
            self.run_body(node, node.body)
        finally:
            frame.loops.pop()
            frame.loop_live.pop()

    def _bounds(self, node: ast.AST, items: range | RunTimeRange) -> tuple[Value, Value, Value]:
        """Start, stop and step as scalars of one integer type."""
        bounds = [self.plain(b) for b in (items.start, items.stop, items.step)]
        typed = [b for b in bounds if isinstance(b, Value)]
        dtypes = {self.dtype_of(b) for b in typed if b not in self.weak} or {self.dtype_of(b) for b in typed}
        if len(dtypes) > 1:
            listed = " and ".join(sorted(str(d) for d in dtypes))
            self.fail(
                node, f"the bounds of range have different types: {listed}", kind=TypeMismatch,
                help="cast one of them, for example int32(n)",
            )  # fmt: skip
        self.builder.loc = self.loc(node)
        dtype = next(iter(dtypes), None) or max((dt.of_literal(b) for b in bounds), key=lambda d: d.bits)
        for b in typed:
            if self.dtype_of(b) != dtype:
                self.retype(b, dtype, TypeMismatch("the bounds of range have different types", loc=self.loc(node)))
        if isinstance(bounds[2], Value):
            ok = self.emit(node, "ne", bounds[2], 0)
            message = "the step of range must not be zero"
            self.emit(node, "check", ok, kind="value", message=message)
        start, stop, step = (self.typed(b, dtype) for b in bounds)
        return start, stop, step

    def _range_as_while(
        self, node: ast.For, start: Value, stop: Value, step: Value, sure: bool, key: Key | None
    ) -> None:
        """A `for` that may be left early, as a `while` with its own index."""
        frame = self.frame
        index = f"%index{self._flag_count}"
        frame.names[index] = Binding(start)
        step_value = self.known(step)

        def more() -> Any:
            i = frame.flag(index)
            if is_literal(step_value):
                return self.emit(node, "lt" if step_value > 0 else "gt", i, stop)
            up, down = self.emit(node, "lt", i, stop), self.emit(node, "gt", i, stop)
            return self.emit(node, "where", self.emit(node, "gt", step, 0), up, down)

        def first() -> None:
            i = frame.flag(index)
            if key is not None:
                self.indices[i] = key
            self._assign(node.target, i)
            frame.names[index] = Binding(self.emit(node, "add", i, step))

        self._while(node, more, first, (index,), sure, forever=False)
        frame.names.pop(index, None)

    def _s_While(self, node: ast.While) -> None:
        if isinstance(node.test, ast.Constant) and not node.test.value:
            self.run_body(node, node.orelse)
            return
        forever = isinstance(node.test, ast.Constant)
        if forever and not _leaves_early(node.body):
            self.fail(node.test, "this loop never ends", help="add a break, or a condition")
        self._while(node, lambda: self.test(node.test), lambda: None, (), forever, forever=forever)

    def _while(
        self,
        node: ast.For | ast.While,
        more: Callable[[], Any],
        first: Callable[[], None],
        extra: tuple[str, ...],
        sure: bool,
        forever: bool,
    ) -> None:
        frame = self.frame
        broken, continued = flags = self.new_flags()
        exits = [broken] if _has(node.body, ast.Break) else []
        exits += [RETURNED] if any(isinstance(n, ast.Return) for s in node.body for n in ast.walk(s)) else []
        for flag in exits:
            frame.set_flag(flag, frame.flag(flag))
        results = (RESULT,) if RETURNED in exits else ()
        names, cells = self._carried(node, (*extra, *exits, *results))
        live = frame.liveness.after[node] | frame.liveness.head[node]
        varying = [False]

        def condition(carry: Carry, args: Sequence[Value]) -> Value:
            carry.enter(args)
            verdict: Any = True
            for flag in exits:
                if not self.masked(flag, value := frame.flag(flag)):
                    verdict = self.both(node, verdict, functools.partial(self.negate, node, value))
            whole = self.scalar(self.both(node, verdict, lambda: self.truth(node, more())))
            if changed := carry.changed_by_calls():
                self.fail(
                    node.test if isinstance(node, ast.While) else node.iter,
                    f"the condition of the loop changes `{min(changed)}`",
                    help="write `while True:` and leave the loop with `if not ...: break`",
                )  # fmt: skip
            mask = self._mask()
            if mask is not None and is_varying(whole.type):
                whole = self.emit(node, "bit_and", mask, whole)
            varying[0] = is_varying(whole.type)
            return whole

        def body(carry: Carry, args: Sequence[Value]) -> Sequence[Value]:
            carry.enter(args)
            for flag in exits:
                if not self.masked(flag, frame.flag(flag)):
                    frame.set_flag(flag, False)
            reason = Divergence(self.loc(node), "the condition of the loop") if varying[0] else None
            with self.builder.diverged(reason):
                self._turn(node, flags, live, first)
            frame.close_flag(continued)
            return carry.leave()

        def build(carry: Carry) -> tuple[Value, ...]:
            return build_while(carry.inits, lambda *args: condition(carry, args), lambda *args: body(carry, args))

        self.builder.loc = self.loc(node)
        self.loop(node, names, live, cells, sure, build)
        if forever and len(exits) == 1 and not self.masked(exits[0], frame.flag(exits[0])):
            frame.set_flag(exits[0], True)
        if exits[:1] == [broken]:
            self._else(node, broken)
        elif not forever:
            self.run_body(node, node.orelse)


def _has(body: Sequence[ast.stmt], kind: type[ast.stmt]) -> bool:
    """Whether a break or continue of this very loop stands in its body."""
    for s in body:
        if isinstance(s, kind):
            return True
        inner: list[ast.stmt] = []
        if isinstance(s, ast.If):
            inner = [*s.body, *s.orelse]
        elif isinstance(s, (ast.For, ast.While)):
            inner = s.orelse
        if _has(inner, kind):
            return True
    return False


def _leaves_early(body: Sequence[ast.stmt]) -> bool:
    """Whether the loop with this body may be left by break or return."""
    nested = (ast.FunctionDef, ast.Lambda)
    returns = any(isinstance(n, ast.Return) for s in body if not isinstance(s, nested) for n in ast.walk(s))
    return returns or _has(body, ast.Break)


def _is_product(node: ast.expr) -> TypeGuard[ast.BinOp]:
    """Whether the expression is `a @ b`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _written(body: Sequence[ast.stmt]) -> set[str]:
    """Names whose elements are assigned in the body: t[i] = v, t[i] += v, tile_matmul(a, b, t)."""
    found = set()
    for n in (n for s in body for n in ast.walk(s)):
        if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name):
            found.add(n.value.id)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "tile_matmul":
            found |= {a.id for a in n.args[2:3] if isinstance(a, ast.Name)}
    return found


# --- the entry ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """A traced kernel with everything from outside that it depends on."""

    kernel: Kernel
    captures: tuple[Capture, ...]


def trace(
    function: Function,
    arg_types: Sequence[ArgumentType],
    *,
    block_dim: int,
    grid_ndim: int,
    tiled: bool,
    wide: bool = False,
) -> Traced:
    """Trace a kernel for arguments of the given types (None for an optional array that was not given).

    `wide` tells that an extent of the grid does not fit into int32, so that tid() gives int64.
    """
    decisions = Decisions()
    for _ in range(200):
        try:
            return _trace_once(function, arg_types, decisions, block_dim, grid_ndim, tiled, wide)
        except Restart:
            continue
        except Divergent:
            decisions.guard = True
    raise CompilerBug(f"the types of `{function.name}` do not settle")


def _trace_once(
    function: Function,
    arg_types: Sequence[ArgumentType],
    decisions: Decisions,
    block_dim: int,
    grid_ndim: int,
    tiled: bool,
    wide: bool,
) -> Traced:
    names = [p.name for p in function.parameters]
    given = [leaf for n, t in zip(names, arg_types, strict=True) for leaf in signature.flat_types(n, t)]
    params = tuple(Value(t, name=n, index=i) for i, (n, t) in enumerate(given))
    block = Block(params)
    builder = LaneBuilder(block, per_lane=not tiled)
    tracer = Tracer(builder, decisions, grid_ndim, tiled, block_dim, wide)
    captures = tracer.captures
    frame = Frame(
        function.source, function.name, function.local, lambda name: function.lookup(name, captures),
        function.liveness, function=function,
    )  # fmt: skip
    tracer.frames.append(frame)
    with builder.active():
        rest = iter(params)
        values = [tracer.argument(t, rest) for t in arg_types]
        frame.names = {n: Binding(v, function.loc) for n, v in zip(names, values, strict=True)}
        tracer.run_body(function.source.node, function.body)
        finish(builder, ())
    kernel = Kernel(function.name, block, block_dim, grid_ndim, tiled, function.loc)
    return Traced(kernel, _once(captures))


def _once(captures: Sequence[Capture]) -> tuple[Capture, ...]:
    return tuple({(id(c.holder), c.name): c for c in captures}.values())
