"""Derivatives that users decide: `stop_gradient`, and the ops behind functions with a gradient of their own.

    stop_gradient(x) -> x                                the value (or array) without its derivative
    custom(*raws, *inputs, *arrays, *others) {code, raws, inputs, arrays} -> raws
                                                         `raws` are what a function has computed from values without
                                                         derivatives; `code` gets the cotangents of the results, the
                                                         gradients of `arrays`, and `others`; it yields the cotangents
                                                         of the inputs
    replayed(*raws, *others) {code, raws} -> raws        in a backward pass the results are what `code(*others)` yields
    pullback(*params, *cotangents, *grads) {code, wrt, into}
                                                         the cotangents of the parameters `wrt` of `code(*params)`, in
                                                         which the gradients of the arrays `into` are only read

No launch runs these ops: the compiler takes them out (see `ad.derivatives`), and `ad` gives them their derivatives.
Does not trace functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilegrad.composite import rebuilt
from tilegrad.diagnostics import CompilerBug, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Op, Value, free_values
from tilegrad.ir.fragment import Fragment
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type, is_varying
from tilegrad.op import REGISTRY, Operand, constant, infer, infer_types, op, unwrap
from tilegrad.ops import control


@op("stop_gradient", cls="control")
def stopped(x: Operand) -> Operand:
    """The value of x without its derivative."""
    return x


@infer(stopped)
def _stopped_infer(x: Type) -> Type:
    return x


@op(cls="control")
def custom(*operands: Operand, code: Fragment, raws: int, inputs: int, arrays: int) -> Any:
    """The results of a function that has a gradient of its own."""
    raise CompilerBug("a custom gradient cannot be run")


@infer(custom)
def _custom_infer(*operands: Type, code: Fragment, raws: int, inputs: int, arrays: int) -> tuple[Type, ...]:
    return operands[:raws]


@op(cls="control")
def replayed(*operands: Operand, code: Fragment, raws: int) -> Any:
    """The results of a function that a backward pass has from elsewhere."""
    raise CompilerBug("a replayed function cannot be run")


@infer(replayed)
def _replayed_infer(*operands: Type, code: Fragment, raws: int) -> tuple[Type, ...]:
    return operands[:raws]


@op(cls="control", effect="read")
def pullback(*operands: Operand, code: Fragment, wrt: tuple[int, ...], into: tuple[int, ...]) -> Any:
    """The vector-Jacobian product of a fragment."""
    raise CompilerBug("a derivative of a function cannot be run")


@infer(pullback)
def _pullback_infer(*operands: Type, code: Fragment, wrt: tuple[int, ...], into: tuple[int, ...]) -> tuple[Type, ...]:
    apart = parts_lanes(operands, code)
    return tuple(ScalarType(t.dtype, t.varying or apart) if isinstance(t, ScalarType) else t
                 for t in (operands[k] for k in wrt))  # fmt: skip


def parts_lanes(operands: Sequence[Type], code: Fragment) -> bool:
    """Whether a parameter that was one for the block now differs between lanes, so that every result does."""
    return any(is_varying(t) and not is_varying(p.type) for t, p in zip(operands, code.params, strict=False))


def split(node: Op, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Values that belong to the operands of a `custom` op, as those of raws, inputs, arrays and others."""
    a = int(node.attrs["raws"])
    b = a + int(node.attrs["inputs"])
    c = b + int(node.attrs["arrays"])
    return values[:a], values[a:b], values[b:c], values[c:]


# --- what users call ------------------------------------------------------------------------------------------------


def stop_gradient(x: Any) -> Any:
    """The value of x as a constant: no derivative goes through it.

    Args:
        x: a number, a tile, a vector or another composite value, or a tuple of these. Anything without a derivative
            (an int, a bool) is returned as it is.

    Raises: TypeMismatch for a whole array: read it first.
    Gradient: zero, in reverse and in forward mode.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=2)
        ...     tg.tile_store(y, t * tg.stop_gradient(t))
        >>> pullback = tg.vjp(example, 1, [np.array([2, 3], np.float32)], [np.zeros(2, np.float32)])
        >>> pullback(np.ones(2, np.float32))[0].tolist()
        [2.0, 3.0]
    """
    if isinstance(x, tuple):
        return rebuilt(x, [stop_gradient(part) for part in x])
    value = unwrap(x)
    if isinstance(value, Value) and isinstance(value.type, ArrayType):
        raise TypeMismatch(
            "stop_gradient takes values, not a whole array",
            help="read it first: stop_gradient(a[i]), stop_gradient(tile_load(a, ...))",
        )
    return stopped(x) if isinstance(value, Value) and has_derivative(value.type) else x


def has_derivative(t: Type) -> bool:
    """Whether values of this type have derivatives."""
    return isinstance(t, (ScalarType, TileType)) and t.dtype.is_float


# --- fragments ------------------------------------------------------------------------------------------------------


def closed(name: str, block: Block) -> tuple[Fragment, list[Value]]:
    """A fragment that gets what the block reads from outside as further parameters; and those values."""
    free = free_values(block)
    made = retyped(Fragment(name, Block((*block.args, *free), block.ops)), [v.type for v in (*block.args, *free)])
    return made, free


def retyped(code: Fragment, types: Iterable[Type]) -> Fragment:
    """A copy of the code for parameters of other types: they may differ between lanes where they did not."""
    builder = Builder(Block(tuple(Value(t, p.name, index=k)
                                  for k, (t, p) in enumerate(zip(types, code.params, strict=True)))))  # fmt: skip
    with builder.active():
        control.finish(builder, inline(code, builder.block.args))
    return Fragment(code.name, builder.block)


def inline(code: Fragment, args: Sequence[Value | None]) -> list[Value]:
    """Emit the code for these arguments; returns what it yields.

    An argument may be None for an array that is not there: reading it gives zeros, writing it does nothing.
    """
    return _Inliner().block(code.block, args)


class _Inliner:
    """Copies ops into the active builder, with types inferred anew."""

    def __init__(self) -> None:
        builder = ir_builder.current()
        assert builder is not None
        self.builder = builder
        self.values: dict[Value, Value | None] = {}

    def block(self, block: Block, args: Sequence[Value | None]) -> list[Value]:
        self.values.update(zip(block.args, args, strict=True))
        for node in block.ops[:-1]:
            with self.builder.at(node.loc):
                self.values.update(zip(node.results, self._op(node), strict=True))
        return self._get(block.yields)

    def _get(self, values: Iterable[Value]) -> list[Value]:
        found = [self.values[v] for v in values]
        known = [v for v in found if v is not None]
        assert len(known) == len(found)
        return known

    def _op(self, node: Op) -> Sequence[Value | None]:
        if node.regions:
            return self._region_op(node)
        found = [self.values[v] for v in node.operands]
        operands = [v for v in found if v is not None]
        if len(operands) < len(found):
            return [None if isinstance(v.type, ArrayType) else nothing(v.type) for v in node.results]
        types = infer_types(node.definition, tuple(v.type for v in operands), node.attrs)
        return self.builder.insert(node.definition, tuple(operands), node.attrs, types=types).results

    def _region_op(self, node: Op) -> Sequence[Value]:
        operands = self._get(node.operands)
        first, last = node.regions[0], node.regions[-1]
        if node.definition is control.if_:
            return control.build_if(operands[0], lambda: self.block(first, ()), lambda: self.block(last, ()))
        if node.definition is control.for_:
            start, stop, step, *init = operands
            return control.build_for(start, stop, step, init, lambda *args: self.block(first, args))
        if node.definition is control.while_:
            return control.build_while(
                operands, lambda *args: self.block(first, args)[0], lambda *args: self.block(last, args)
            )
        return control.build_map(operands, lambda *args: self.block(first, args))


def nothing(t: Type) -> Value:
    """A zero of a type."""
    assert not isinstance(t, (ArrayType, StackType))
    number = constant(_zero(t.dtype), t.dtype)
    if isinstance(t, TileType):
        full: Value = REGISTRY["tile_full"](number, shape=t.shape)
        return full
    return control.as_type(number, t)


def _zero(dtype: DType) -> Any:
    return np.zeros((), dtype.np).item() if dtype.kind != "b" else False


PUBLIC: dict[str, Any] = {"stop_gradient": stop_gradient}
