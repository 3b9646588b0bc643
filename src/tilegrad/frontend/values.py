"""What operators and casts mean for the values of a kernel, and how a literal takes the type that it meets.

A Python number is folded exactly as long as it meets only numbers. When control flow makes it a run-time value (a
loop-carried counter, the result of a branch) it gets the type that a number has by itself, but stays *weak*: if it
then meets a value of another type that the literal could have had, that type is decided for it and the kernel is
traced again (`Restart`).
Does not know Python syntax.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, rebuilt
from tilegrad.diagnostics import (
    KernelSyntaxError,
    KernelZeroDivisionError,
    Loc,
    TilegradError,
    TypeMismatch,
)
from tilegrad.dtypes import DType
from tilegrad.element_types import HostValue, StructValue
from tilegrad.frontend.absent import Presence
from tilegrad.frontend.lanes import LaneBuilder
from tilegrad.frontend.scope import (
    Cell,
    Frame,
    Journal,
    Step,
    TileRef,
    describe_value,
    is_array,
    is_literal,
    is_scalar,
)
from tilegrad.ir.core import Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, TileType
from tilegrad.op import REGISTRY, constant, describe
from tilegrad.ops import algebra
from tilegrad.ops.declared import TileStack

#: Identifies one variable of one control flow statement through every trace of a kernel.
Key = tuple[Any, ...]


class Restart(Exception):
    """Trace the kernel again: something that was assumed turned out otherwise, and is now written in `Decisions`."""


@dataclass
class Decisions:
    """What earlier traces of the same kernel found out."""

    dtypes: dict[Key, DType] = field(default_factory=dict)
    doubts: dict[Key, TilegradError] = field(default_factory=dict)
    unroll: set[Key] = field(default_factory=set)
    guard: bool = False


@dataclass(frozen=True)
class Weak:
    """Why a run-time value may still change its type: the literals that it came from, and their kind."""

    kind: str
    keys: tuple[Key, ...]
    #: the error to report if the type that was chosen for it does not fit either
    doubt: TilegradError | None = None


BINARY: dict[type[ast.operator], tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", "+", operator.add),
    ast.Sub: ("sub", "-", operator.sub),
    ast.Mult: ("mul", "*", operator.mul),
    ast.Div: ("div", "/", operator.truediv),
    ast.FloorDiv: ("floordiv", "//", operator.floordiv),
    ast.Mod: ("mod", "%", operator.mod),
    ast.Pow: ("pow", "**", operator.pow),
    ast.BitAnd: ("bit_and", "&", operator.and_),
    ast.BitOr: ("bit_or", "|", operator.or_),
    ast.BitXor: ("bit_xor", "^", operator.xor),
    ast.LShift: ("lshift", "<<", operator.lshift),
    ast.RShift: ("rshift", ">>", operator.rshift),
    ast.MatMult: ("tile_matmul", "@", operator.matmul),
}

COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
}

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

#: functions over view ops whose result shows the same memory as their argument (with or without the prefix tile_)
VIEWS = frozenset({"view", "squeeze", "transpose", "reshape", "broadcast", "slice"})


class Values:
    """The base of the tracer: builder, journal, frames, decisions, and everything about values."""

    def __init__(self, builder: LaneBuilder, decisions: Decisions) -> None:
        self.builder = builder
        self.decisions = decisions
        self.journal = Journal()
        self.frames: list[Frame] = []
        self.path: Key = ()
        self.weak: dict[Value, Weak] = {}
        #: indices of loops with constant bounds, which may be unrolled if a constant is needed
        self.indices: dict[Value, Key] = {}
        #: which elements of tiles come from lanes that are absent
        self.presence = Presence()

    # --- places and errors --------------------------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def loc(self, node: ast.AST) -> Loc:
        return self.frame.source.loc(node, self.frame.name, self.frame.called_from)

    def text(self, node: ast.AST) -> str:
        return self.frame.source.text(node)

    def fail(
        self,
        node: ast.AST,
        message: str,
        *,
        label: str = "",
        help: str = "",
        kind: type[TilegradError] = KernelSyntaxError,
    ) -> NoReturn:
        raise kind(message, loc=self.loc(node), label=label, help=help)

    # --- tiles --------------------------------------------------------------------------------------------------

    def new_tile(self, value: Value) -> TileRef:
        return TileRef(Cell(self.journal, value))

    def wrap(self, result: Any) -> Any:
        """Results of an op as the values of variables: a tile gets a cell of its own."""
        if isinstance(result, Value) and isinstance(result.type, TileType):
            return self.new_tile(result)
        if isinstance(result, tuple):
            return rebuilt(result, [self.wrap(r) for r in result])
        return result

    def alias(self, result: Any, args: Iterable[Any]) -> TileRef | None:
        """The result of view ops on a tile variable, as a reference to the same cell; None if it is not one."""
        bases = {ref.value: ref for ref in args if isinstance(ref, TileRef)}
        steps: list[Step] = []
        value = result
        while value not in bases:
            op = value.op
            if op is None or not op.definition.view or not op.operands:
                return None
            steps.append(Step(op.definition, op.operands[1:], op.attrs))
            value = op.operands[0]
        base = bases[value]
        ref = TileRef(base.cell, base.path + tuple(reversed(steps)))
        ref.remember(base.cell.value, result)
        return ref

    # --- calling ops --------------------------------------------------------------------------------------------

    def emit(self, node: ast.AST, name: str, *args: Any, **attrs: Any) -> Any:
        """Emit the op of that name, with errors placed at `node`."""
        return self.call_op(node, REGISTRY[name], args, attrs, (), spelled=False)

    def call_op(
        self,
        node: ast.AST,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        texts: tuple[str, ...],
        *,
        spelled: bool = True,
        called: str = "",
    ) -> Any:
        """Call an op or a function over ops; `called` and `texts` are what the user wrote for it and its arguments."""
        self.builder.loc = self.loc(node)
        target = (function.spelled or function) if isinstance(function, OpDef) and spelled else function
        self.builder.called = called
        try:
            result = target(*args, **kwargs)
        except TilegradError as error:
            name = function.name if isinstance(function, OpDef) else ""
            if called and name and error.message.startswith(name):
                error.message = called + error.message.removeprefix(name)
            self._explain(error, node, args, texts)
            if isinstance(error, TypeMismatch):
                self.widen((*args, *kwargs.values()), error)
            raise error from None
        return self._received(function, result, (*args, *kwargs.values()))

    def _received(self, function: Any, result: Any, args: tuple[Any, ...]) -> Any:
        name = function.name if isinstance(function, OpDef) else getattr(function, "__name__", "")
        view = function.view if isinstance(function, OpDef) else name.removeprefix("tile_") in VIEWS
        if view and isinstance(result, Value):
            ref = self.alias(result, args)
            if ref is not None:
                return ref
        if isinstance(result, Value):
            self._mark(function, result, args)
        return self.wrap(result)

    def _mark(self, function: Any, result: Value, args: tuple[Any, ...]) -> None:
        """Hand on that the operands have weak types."""
        operands = [a for a in args if isinstance(a, (Value, TileRef))]
        elementwise = isinstance(function, OpDef) and function.elementwise is not None
        if elementwise and operands and not isinstance(result.type, TileType):
            self._hand_on_weakness(result, operands)

    def _hand_on_weakness(self, result: Value, operands: list[Any]) -> None:
        """The result of weak operands alone, of their type, is weak too."""
        marks = [self.weak.get(a) for a in operands if isinstance(a, Value)]
        known = [m for m in marks if m is not None]
        if len(known) == len(operands) and result.type == operands[0].type:
            keys = tuple(dict.fromkeys(k for m in known for k in m.keys))
            doubt = next((m.doubt for m in known if m.doubt), None)
            self.weak[result] = Weak(known[0].kind, keys, doubt)

    def _explain(self, error: TilegradError, node: ast.AST, args: tuple[Any, ...], texts: tuple[str, ...]) -> None:
        """Place the error, with the user's own words for the operands under the caret."""
        error.at(self.loc(node))
        if not error.label and max(map(len, texts), default=99) <= 20:
            typed = [
                f"`{text}` is {describe_value(x)}" for text, x in zip(texts, args, strict=False)
                if isinstance(x, (Value, TileRef)) and text and not text.isdigit()
            ]  # fmt: skip
            error.label = ", ".join(dict.fromkeys(typed))

    # --- literals that take a type ------------------------------------------------------------------------------

    def widen(self, args: Iterable[Any], error: TilegradError) -> None:
        """After a clash of types: if a weak value could have had the other's type, decide that and restart."""
        operands = list(_leaves(args))
        doubts = []
        for x in operands:
            mark = self.weak.get(x) if isinstance(x, Value) else None
            if mark is None:
                continue
            others = [d for other in operands if other is not x and (d := self.dtype_of(other)) is not None]
            if mark.doubt is not None and not any(d.is_float for d in others):
                doubts.append(mark.doubt)
            for wanted in others:
                self.retype(x, wanted, error)
        if doubts:
            raise doubts[0]

    def dtype_of(self, x: Any) -> DType | None:
        """The element type of a number, tile or array, or None."""
        if isinstance(x, (Value, TileRef)):
            kind = x.type
            return kind.dtype if isinstance(kind, (ScalarType, TileType, ArrayType)) else None
        return dt.of_literal(x) if isinstance(x, float) else None

    def retype(self, x: Any, dtype: DType, error: TilegradError) -> None:
        """Decide `dtype` for the literals behind a weak value and trace again, if it may have it."""
        mark = self.weak.get(x) if isinstance(x, Value) else None
        if mark is None or mark.doubt is not None:
            return
        mine = self.dtype_of(x)
        if dtype == mine or not (dtype.is_float or (mark.kind == "int" and dtype.is_int)):
            return
        if mine is not None and mine.is_float and not (dtype.is_float and dtype.bits != mine.bits):
            return
        for key in mark.keys:
            self.decisions.dtypes[key] = dtype
            if mark.kind == "int":
                self.decisions.doubts[key] = error
        raise Restart

    def from_literal(self, value: Any, key: Key) -> Value:
        """A run-time value that starts as a literal: of the type decided for it, else of its own and weak."""
        decided = self.decisions.dtypes.get(key)
        result = constant(value, decided or dt.of_literal(value))
        self.mark_weak(result, value, key)
        return result

    def mark_weak(self, result: Value, literal: Any, key: Key) -> None:
        if isinstance(literal, bool):
            return
        kind = "float" if isinstance(literal, float) else "int"
        if key not in self.decisions.dtypes:
            self.weak[result] = Weak(kind, (key,))
        elif key in self.decisions.doubts:
            self.weak[result] = Weak(kind, (key,), self.decisions.doubts[key])

    def meet(self, a: Any, b: Any, error: TilegradError) -> DType:
        """The common type of two numbers that one variable may hold; raises `error` if there is none."""
        if is_literal(a) and is_literal(b):
            return _meet_literals(a, b, error)
        if is_literal(a):
            return self.meet(b, a, error)
        mine = self.dtype_of(a)
        assert mine is not None
        if is_literal(b):
            if isinstance(b, bool) == (mine.kind == "b") and dt.literal_fits(b, mine):
                return mine
            if not isinstance(b, bool):
                self.retype(a, dt.of_literal(b), error)
            raise error
        other = self.dtype_of(b)
        assert other is not None
        if mine != other:
            self.retype(a, other, error)
            self.retype(b, mine, error)
            raise error
        return mine

    def typed(self, x: Any, dtype: DType) -> Value:
        """A number as an IR scalar of `dtype`, which it is known to be able to have."""
        return x if isinstance(x, Value) else constant(x, dtype)

    def scalar(self, x: Any) -> Value:
        """A number as an IR scalar."""
        return x if isinstance(x, Value) else constant(x)

    # --- operators ----------------------------------------------------------------------------------------------

    def binary(self, node: ast.AST, kind: type[ast.operator], x: Any, y: Any, texts: tuple[str, ...] = ()) -> Any:
        name, symbol, fold = BINARY[kind]
        x, y = self.plain(x), self.plain(y)
        if kind is ast.MatMult:
            x, y = self.factors(node, x, y)
        if isinstance(x, Composite) or isinstance(y, Composite):
            return self.composite_binary(node, kind, x, y, texts)
        self.refuse_stacks(node, x, y)
        if not isinstance(x, (Value, TileRef)) and not isinstance(y, (Value, TileRef)):
            return self._fold(node, fold, symbol, x, y)
        for side in (x, y):
            if is_array(side):
                self.fail(
                    node, f"`{symbol}` does not work on a whole array; it is {describe(side.type)}", kind=TypeMismatch,
                    help="read an element with a[i], or a tile with tile_load(a, shape=..., offset=...)",
                )  # fmt: skip
            if not is_literal(side) and not isinstance(side, (Value, TileRef)):
                self.fail(node, f"`{symbol}` does not work with {describe_value(side)}", kind=TypeMismatch)
        if kind is ast.Pow and isinstance(y, int) and not isinstance(y, bool) and y == 2:
            return self.call_op(node, REGISTRY["mul"], (x, x), {}, texts, called="`**`")
        return self.call_op(node, REGISTRY[name], (x, y), {}, texts, called=f"`{symbol}`")

    def refuse_stacks(self, node: ast.AST, *values: Any) -> None:
        """Fail where a stack is taken for the tuple of tiles that it is made of."""
        for x in values:
            if isinstance(x, TileStack):
                self.fail(
                    node, f"{x!r} is used otherwise than by the functions of stacks", kind=TypeMismatch,
                    help="they are tile_stack_push, tile_stack_pop, tile_stack_count and tile_stack_clear",
                )  # fmt: skip

    def composite_binary(self, node: ast.AST, kind: type[ast.operator], x: Any, y: Any, texts: tuple[str, ...]) -> Any:
        raise NotImplementedError

    def factors(self, node: ast.AST, x: Any, y: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def from_host(self, x: Any) -> Any:
        raise NotImplementedError

    def _fold(self, node: ast.AST, fold: Callable[..., Any], symbol: str, *operands: Any) -> Any:
        """An operator on compile-time values: Python computes it."""
        try:
            return fold(*operands)
        except ZeroDivisionError as error:
            self.fail(node, str(error), kind=KernelZeroDivisionError)
        except (TypeError, ValueError, OverflowError) as error:
            self.fail(node, f"`{symbol}`: {error}", kind=TypeMismatch)

    def compare(self, node: ast.AST, kind: type[ast.cmpop], x: Any, y: Any, texts: tuple[str, ...] = ()) -> Any:
        x, y = self.plain(x), self.plain(y)
        if kind in (ast.Is, ast.IsNot):
            return (x is y) is (kind is ast.Is)
        if kind in (ast.In, ast.NotIn):
            return self._contains(node, x, y, kind is ast.In)
        name, fold = COMPARE[kind]
        if isinstance(x, Composite) and isinstance(y, Composite):
            if name not in algebra.OPERATORS:
                symbol = _SYMBOLS[name]
                self.fail(node, f"`{symbol}` is not defined for {describe_value(x)}", kind=TypeMismatch)
            return self.call_op(node, algebra.OPERATORS[name], (x, y), {}, texts, called=f"`{_SYMBOLS[name]}`")
        numeric = all(is_literal(v) or isinstance(v, (Value, TileRef)) for v in (x, y))
        if numeric and not (is_literal(x) and is_literal(y)):
            return self.call_op(node, REGISTRY[name], (x, y), {}, texts, called=f"`{_SYMBOLS[name]}`")
        if kind in (ast.Eq, ast.NotEq) and any(isinstance(v, (Value, TileRef)) for v in (x, y)):
            return kind is ast.NotEq  # a run-time value never equals None, a string, a type
        return self._fold(node, fold, name, x, y)

    def _contains(self, node: ast.AST, x: Any, y: Any, wanted: bool) -> Any:
        if not isinstance(y, tuple) or isinstance(x, TileRef):
            self.fail(node, f"`in` needs a tuple on its right side, not {describe_value(y)}", kind=TypeMismatch)
        result: Any = False
        for item in y:
            result = self.either(node, result, self.compare(node, ast.Eq, x, item))
        return result if wanted else self.negate(node, result)

    def either(self, node: ast.AST, x: Any, y: Any) -> Any:
        """`x or y` of two bools that have both been computed."""
        if isinstance(x, bool):
            return True if x else y
        if isinstance(y, bool):
            return True if y else x
        return self.emit(node, "bit_or", x, y)

    def negate(self, node: ast.AST, x: Any) -> Any:
        """`not x`."""
        known = self.truth(node, x)
        return (not known) if isinstance(known, bool) else self.emit(node, "invert", known)

    def truth(self, node: ast.AST, x: Any) -> Any:
        """The truth of a value: a Python bool if it is known, else an IR bool."""
        x = self.plain(x)
        self.refuse_stacks(node, x)
        if isinstance(x, TileRef):
            x = self.only_element(node, x, "the truth value of a tile of several elements is ambiguous")
        if is_array(x):
            self.fail(node, "an array has no truth value in a kernel", kind=TypeMismatch)
        if not isinstance(x, Value):
            return bool(x)
        if self.dtype_of(x) == dt.bool_:
            return x
        return self.emit(node, "ne", x, 0)

    def only_element(self, node: ast.AST, ref: TileRef, problem: str) -> Value:
        """The element of a tile that has one."""
        if ref.size != 1:
            self.fail(
                node, f"{problem}: it has shape {ref.shape}", kind=TypeMismatch,
                help="take one element, t[i], or reduce the tile, for example with tile_max",
            )  # fmt: skip
        value: Value = self.emit(node, "tile_extract", ref, *(0,) * ref.ndim)
        return value

    def cast(self, node: ast.AST, dtype: DType, x: Any) -> Any:
        """`dtype(x)`."""
        x = self.plain(x)
        if isinstance(x, TileRef):
            x = self.only_element(node, x, f"{dtype}(...) of a tile (use tile_astype)")
        if isinstance(x, Value) and is_scalar(x):
            return x if self.dtype_of(x) == dtype else self.emit(node, "astype", x, dtype=dtype)
        if not is_literal(x):
            self.fail(node, f"{dtype}(...) takes a number, not {describe_value(x)}", kind=TypeMismatch)
        self.builder.loc = self.loc(node)
        if dtype.is_int and isinstance(x, float):
            if not np.isfinite(x):
                self.fail(node, f"{x} has no value as {dtype}", kind=TypeMismatch)
            x = min(max(int(x), int(dtype.min)), int(dtype.max))
        return constant(bool(x) if dtype.kind == "b" else x, dtype)

    # --- compile-time constants ---------------------------------------------------------------------------------

    def plain(self, x: Any) -> Any:
        """A captured NumPy number as a typed constant, an enum as its number; everything else unchanged."""
        if isinstance(x, np.generic):
            return constant(x) if dt.as_dtype(x.dtype) else x
        if isinstance(x, (HostValue, StructValue)):
            return self.from_host(x)
        if isinstance(x, int) and type(x) not in (int, bool):
            return int(x)
        if isinstance(x, float) and type(x) is not float:
            return float(x)
        return x

    def known(self, x: Any) -> Any:
        """A compile-time constant for `x` (tuples inside too), or `x` itself where there is none."""
        if isinstance(x, tuple):
            return rebuilt(x, [self.known(item) for item in x]) if not isinstance(x, Composite) else x
        if isinstance(x, Value) and x.op is not None and x.op.name == "constant":
            return x.op.attrs["value"]
        if isinstance(x, np.generic):
            return x.item()
        return x

    def unroll_for(self, x: Any) -> None:
        """If `x` is computed from indices of loops with constant bounds, unroll them and trace again."""
        pending, keys = [v for v in _leaves((x,)) if isinstance(v, Value)], set()
        while pending:
            value = pending.pop()
            if value in self.indices:
                keys.add(self.indices[value])
            elif value.op is None or (value.op.name != "constant" and not value.op.operands):
                return
            else:
                pending += value.op.operands
        if keys:
            self.decisions.unroll |= keys
            raise Restart


def _meet_literals(a: Any, b: Any, error: TilegradError) -> DType:
    if isinstance(a, bool) != isinstance(b, bool):
        raise error
    if isinstance(a, float) or isinstance(b, float):
        return dt.float32
    return dt.of_literal(max(a, b, key=abs))


def _leaves(args: Iterable[Any]) -> Iterator[Any]:
    for x in args:
        if isinstance(x, (tuple, list)):
            yield from _leaves(x)
        else:
            yield x
