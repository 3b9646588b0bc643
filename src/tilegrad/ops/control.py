"""Structured control flow, constants, and the stacks that a backward pass saves values on.

These ops hold regions or move values between blocks; the interpreter, `ad` and `codegen` handle each of them by name.
A region is a block that ends in `yield_`. Their forms:

    constant() {value, dtype}                       a uniform scalar
    if_(cond) {then}{otherwise} -> results          both regions yield the results; a varying cond makes a region of
                                                    lane code, and its results varying
    for_(start, stop, step, *init) {(i, *carried)}  range(start, stop, step) in `i`'s integer dtype; yields the next
                                                    carried values; results are the last ones
    while_(*init) {(*carried) -> cond} {(*carried) -> next}
    map_(*tiles) {(*elements) -> element...}        the region runs at every element of equally shaped tiles, as lane
                                                    code; it may read outer uniform scalars and arrays
    spread(x) -> x*                                 a uniform scalar as a varying one
    stack() {items, varying}; push(stack, *values); pop(stack) -> values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.diagnostics import CompilerBug
from tilegrad.dtypes import DType
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.types import ScalarType, StackType, TileType, Type, dtype_of, is_varying, shape_of
from tilegrad.op import Operand, Scalar, Tile, infer, op


@op(cls="control", no_gradient="a constant has no operands")
def constant(*, value: bool | int | float, dtype: DType) -> Scalar:
    """A number known at compile time."""
    return dtype.np.type(value)


@infer(constant)
def _constant_infer(*, value: Any, dtype: DType) -> Type:
    return ScalarType(dtype)


@op(cls="control")
def yield_(*values: Operand) -> None:
    """Ends a region and gives its results."""


@op(cls="control")
def if_(condition: Scalar) -> Any:
    """Runs one of two regions."""


@op(cls="control")
def for_(start: Scalar, stop: Scalar, step: Scalar, *init: Operand) -> Any:
    """Runs a region for every index of a range, handing values on from one turn to the next."""


@op(cls="control")
def while_(*init: Operand) -> Any:
    """Runs the second region as long as the first one yields true."""


@op(cls="control")
def map_(*tiles: Tile) -> Any:
    """Runs a region at every element of equally shaped tiles."""


@op(cls="control")
def spread(x: Scalar) -> Scalar:
    """A uniform scalar as a value of every lane."""
    return x


@infer(spread)
def _spread_infer(x: ScalarType) -> Type:
    return ScalarType(x.dtype, varying=True)


@op(cls="control", effect="stack", no_gradient="stacks exist only in backward kernels; see GradientUndefined")
def stack(*, items: tuple[Type, ...], varying: bool = False) -> Operand:
    """A new empty stack."""


@infer(stack)
def _stack_infer(*, items: tuple[Any, ...], varying: bool = False) -> Type:
    return StackType(items, varying)


@op(cls="control", effect="stack", no_gradient="stacks exist only in backward kernels")
def push(stack: Operand, *values: Operand) -> None:
    """Put values on a stack."""


@op(cls="control", effect="stack", no_gradient="stacks exist only in backward kernels")
def pop(stack: Operand) -> Any:
    """Take the last pushed values off a stack."""


@infer(push)
def _push_infer(stack: StackType, *values: Type) -> Type | None:
    return None


@infer(pop)
def _pop_infer(stack: StackType) -> tuple[Type, ...]:
    return stack.items


# The region ops are built by these helpers, never by a plain call: their types come from the regions.


@infer(yield_)
@infer(if_)
@infer(for_)
@infer(while_)
@infer(map_)
def _needs_region(*types: Type) -> Any:
    raise CompilerBug("region ops are built with build_if, build_for, build_while and build_map")


def finish(builder: Builder, values: Sequence[Value]) -> None:
    """End the block that is being built with a yield of `values`."""
    builder.insert(yield_, tuple(values))


def join(a: Type, b: Type) -> Type:
    """The type of a value that comes from either of two paths: varying if one of them is."""
    if isinstance(a, ScalarType) and isinstance(b, ScalarType) and a.dtype == b.dtype:
        return ScalarType(a.dtype, a.varying or b.varying)
    if a != b:
        raise CompilerBug(f"paths with different types meet: {a} and {b}")
    return a


def as_type(value: Value, wanted: Type) -> Value:
    """`value`, spread over the lanes if `wanted` is varying and the value is not."""
    if is_varying(wanted) and not is_varying(value.type):
        result: Value = spread(value)
        return result
    return value


def build_if(
    condition: Value, then: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
) -> tuple[Value, ...]:
    """`if_` whose regions are built by the two callables, each returning the region's results."""
    builder = _builder()
    with builder.region() as first:
        a = tuple(then())
    with builder.region() as second:
        b = tuple(otherwise())
    varying = is_varying(condition.type)
    types = tuple(_merged(x.type, y.type, varying) for x, y in zip(a, b, strict=True))
    for block, values in ((first, a), (second, b)):
        _finish_block(builder, block, values, types)
    return builder.insert(if_, (condition,), {}, (first, second), types).results


def _merged(a: Type, b: Type, varying: bool) -> Type:
    t = join(a, b)
    if varying and isinstance(t, TileType):
        raise CompilerBug("a tile cannot depend on a condition that differs between lanes")
    return ScalarType(t.dtype, t.varying or varying) if isinstance(t, ScalarType) else t


def _finish_block(builder: Builder, block: Block, values: Sequence[Value], types: Sequence[Type]) -> None:
    outer, builder.block = builder.block, block
    finish(builder, [as_type(v, t) for v, t in zip(values, types, strict=True)])
    builder.block = outer


def build_for(
    start: Value, stop: Value, step: Value, init: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> tuple[Value, ...]:
    """`for_` whose region is built by body(i, *carried); a carried value that becomes varying is spread at entry.

    The body may be built twice, if the first turn shows that a carried value must be varying.
    """
    builder = _builder()
    varying = any(is_varying(v.type) for v in (start, stop, step))

    def build(types: tuple[Type, ...]) -> tuple[Block, tuple[Value, ...]]:
        with builder.region(ScalarType(dtype_of(start.type), varying), *types) as block:
            return block, tuple(body(*block.args))

    init, (block,), types = _settle(builder, init, lambda types: _one(build(types)), varying)
    return builder.insert(for_, (start, stop, step, *init), {}, (block,), types).results


def build_while(
    init: Sequence[Value], condition: Callable[..., Value], body: Callable[..., Sequence[Value]]
) -> tuple[Value, ...]:
    """`while_` with its two regions built by condition(*carried) and body(*carried); see `build_for`."""
    builder = _builder()

    def build(types: tuple[Type, ...]) -> tuple[tuple[Block, ...], tuple[Value, ...], bool]:
        with builder.region(*types) as test:
            verdict = condition(*test.args)
            finish(builder, [verdict])
        with builder.region(*types) as block:
            return (test, block), tuple(body(*block.args)), is_varying(verdict.type)

    init, blocks, types = _settle(builder, init, build, False)
    return builder.insert(while_, tuple(init), {}, blocks, types).results


def _one(built: tuple[Block, tuple[Value, ...]]) -> tuple[tuple[Block, ...], tuple[Value, ...], bool]:
    return (built[0],), built[1], False


def _settle(
    builder: Builder,
    init: Sequence[Value],
    build: Callable[[tuple[Type, ...]], tuple[tuple[Block, ...], tuple[Value, ...], bool]],
    varying: bool,
) -> tuple[tuple[Value, ...], tuple[Block, ...], tuple[Type, ...]]:
    """Build a loop body until the types of the carried values hold from one turn to the next."""
    types = tuple(_merged(v.type, v.type, varying) for v in init)
    while True:
        blocks, values, varies = build(types)
        wanted = tuple(_merged(t, v.type, varying or varies) for t, v in zip(types, values, strict=True))
        if wanted == types:
            _finish_block(builder, blocks[-1], values, types)
            return tuple(as_type(v, t) for v, t in zip(init, types, strict=True)), blocks, types
        types = wanted


def build_map(tiles: Sequence[Value], body: Callable[..., Sequence[Value]]) -> tuple[Value, ...]:
    """`map_` whose region is built by body(*elements); elements are varying scalars, one per tile."""
    builder = _builder()
    shape = shape_of(tiles[0].type)
    with builder.region(*(ScalarType(dtype_of(t.type), varying=True) for t in tiles)) as block:
        values = tuple(body(*block.args))
        finish(builder, values)
    types = tuple(TileType(dtype_of(v.type), shape) for v in values)
    return builder.insert(map_, tuple(tiles), {}, (block,), types).results


def _builder() -> Builder:
    builder = ir_builder.current()
    if builder is None:
        raise CompilerBug("control flow can only be built while a kernel is being built")
    return builder


def is_control(node: Op, *definitions: Any) -> bool:
    """Whether the op is one of the given control ops."""
    return node.definition in definitions
