"""The decorators that define an operation, the registry of all operations, and the emitting of one.

    @op(cls="block")                    the body IS the meaning: NumPy arrays in, NumPy arrays out
    def tile_trace(a: Tile) -> Tile:    positional parameters are operands (Tile, Scalar, Array, Value; `*x` for any
        "..."                           number), keyword-only parameters are attributes, known at compile time
        return np.trace(a).reshape(1)

    @infer(tile_trace)                  types of the operands -> type(s) of the result(s); raises TypeMismatch
    @adjoint(tile_trace)                (ct, out, *operands, **attrs) -> cotangent of each operand, or None
    @lower(tile_trace)                  (e, ...) code on the abstract Emitter; its form depends on `cls` (see emit.py)
    @samples(tile_trace)                (rng) -> iterable of Sample, on which all rules are checked
    @spelled(tile_trace)                how users write the call, if that differs from the operands and attributes
    @writeback(tile_view_op)            for views: (base, new, *operands, **attrs) -> the base with the view replaced

An adjoint is written with ops: it emits IR while a kernel is built and runs on arrays otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import CompilerBug, ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir import builder as ir_builder
from tilegrad.ir import opdef
from tilegrad.ir.core import Value
from tilegrad.ir.opdef import Effect, OpClass, OpDef, OperandKind
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type, is_varying

#: Annotations of operands. In bodies a Tile and an Array are NumPy arrays and a Scalar is a NumPy scalar.
Tile = Any
Scalar = Any
Array = Any
Operand = Any

REGISTRY: dict[str, OpDef] = {}

_KINDS: dict[str, OperandKind] = {"Tile": "tile", "Scalar": "scalar", "Array": "array", "Operand": "value"}


@dataclass(frozen=True)
class Sample:
    """Arguments for one op: NumPy arrays or scalars as operands, and attributes."""

    args: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    #: operands that stay constant when the gradient is checked
    fixed: tuple[int, ...] = ()


def op(
    name: str = "",
    *,
    cls: OpClass = "point",
    effect: Effect = "none",
    elementwise: Iterable[DType] | None = None,
    result: DType | None = None,
    domain: tuple[float, float] = (-3.0, 3.0),
    no_gradient: str = "",
    cooperative: bool = False,
    view: bool = False,
    cheap: bool = True,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Register a function as the body of a new operation. See the module docstring for the rules to add."""

    def register(body: Callable[..., Any]) -> OpDef:
        key = name or body.__name__.rstrip("_")
        if key in REGISTRY:
            raise CompilerBug(f"op `{key}` is defined twice")
        kinds, variadic, defaults = _operands(body)
        definition = OpDef(
            key, body, cls, effect, tuple(elementwise) if elementwise is not None else None, result, domain,
            no_gradient, cooperative, view, cheap, kinds, variadic, defaults,
        )  # fmt: skip
        definition.__doc__ = body.__doc__
        REGISTRY[key] = definition
        return definition

    return register


def _operands(body: Callable[..., Any]) -> tuple[tuple[OperandKind, ...], OperandKind | None, dict[str, Any]]:
    kinds: list[OperandKind] = []
    variadic: OperandKind | None = None
    defaults: dict[str, Any] = {}
    for p in inspect.signature(body).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            if p.default is not p.empty:
                defaults[p.name] = p.default
            continue
        kind = _KINDS.get(p.annotation, "value")
        if p.kind is p.VAR_POSITIONAL:
            variadic = kind
        else:
            kinds.append(kind)
    return tuple(kinds), variadic, defaults


def _rule(slot: str) -> Callable[[OpDef], Callable[[Callable[..., Any]], Callable[..., Any]]]:
    def attach_to(definition: OpDef) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def attach(rule: Callable[..., Any]) -> Callable[..., Any]:
            if getattr(definition, slot) is not None:
                raise CompilerBug(f"op `{definition.name}` has two `{slot}` rules")
            setattr(definition, slot, rule)
            return rule

        return attach

    return attach_to


infer = _rule("infer")
adjoint = _rule("adjoint")
lower = _rule("lower")
samples = _rule("samples")
spelled = _rule("spelled")
writeback = _rule("writeback")


def freeze() -> None:
    """Check that every registered op has all its rules; a missing one is a bug that must not be found by a user."""
    for definition in REGISTRY.values():
        missing = [] if definition.elementwise is not None or definition.infer else ["infer"]
        if definition.cls != "control":
            missing += [slot for slot in ("lower",) if getattr(definition, slot) is None]
            if definition.samples is None and definition.elementwise is None:
                missing.append("samples")
        if definition.adjoint is None and not definition.no_gradient and definition.cls != "control":
            missing.append("adjoint (or no_gradient=<reason>)")
        if missing:
            raise CompilerBug(f"op `{definition.name}` lacks: {', '.join(missing)}")


# --- emitting -------------------------------------------------------------------------------------------------------


def unwrap(x: Any) -> Any:
    """The IR value behind a front-end reference (anything with a `value` that is a Value), or `x` itself."""
    inner = getattr(x, "value", None)
    return inner if isinstance(inner, Value) else x


def emit(definition: OpDef, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Emit an op into the active builder, or run its body on plain arrays when no kernel is being built.

    Python numbers among the operands become constants: of the other operands' dtype in an elementwise op, else of
    their own. Returns the result value, a tuple of them, or None.
    """
    builder = ir_builder.current()
    if builder is None:
        with np.errstate(all="ignore"):
            return definition.body(*operands, **attrs)
    values = as_values(definition, tuple(unwrap(x) for x in operands))
    full = {**definition.defaults, **attrs}
    try:
        types = infer_types(definition, tuple(v.type for v in values), full)
    except TilegradError as error:
        raise error.at(builder.loc) from None
    results = builder.insert(definition, values, full, types=types).results
    return None if not results else results[0] if len(results) == 1 else results


opdef.CALL = emit


def as_values(definition: OpDef, operands: tuple[Any, ...]) -> tuple[Value, ...]:
    """Operands with every Python or NumPy number made a constant, and shapes of an elementwise op made equal."""
    if definition.elementwise is None:
        return tuple(x if isinstance(x, Value) else constant(x) for x in operands)
    typed = [x.type.dtype for x in operands if isinstance(x, Value) and not isinstance(x.type, StackType)]
    typed += [known for x in operands if isinstance(x, np.generic) and (known := dt.as_dtype(x.dtype))]
    shared = typed[0] if typed else None
    values = [x if isinstance(x, Value) else _literal(definition, x, shared) for x in operands]
    shapes = [v.type.shape for v in values if isinstance(v.type, TileType)]
    if not shapes:
        return tuple(values)
    shape = broadcast_shapes(definition.name, shapes)
    return tuple(_spread(v, shape) for v in values)


def _literal(definition: OpDef, x: Any, dtype: DType | None) -> Value:
    accepted = definition.elementwise or ()
    if dtype is None and type(x) is int and accepted and all(d.is_float for d in accepted):
        return constant(x, dt.float32)
    if dtype is None or isinstance(x, np.generic):
        return constant(x)
    if isinstance(x, bool) and dtype.kind != "b":
        raise TypeMismatch(f"{definition.name}: a bool meets {dtype}", help=f"write {dtype}({x})")
    if not isinstance(x, bool) and (dtype.kind == "b" or not dt.literal_fits(x, dtype)) and dtype in accepted:
        raise TypeMismatch(
            f"{definition.name}: the literal {x!r} cannot be {dtype} without changing its value",
            help=f"cast the other operand, for example float32(...), or write {dtype}({x!r})",
        )
    return constant(x, dtype)


def _spread(v: Value, shape: tuple[int, ...]) -> Value:
    if isinstance(v.type, TileType):
        return v if v.type.shape == shape else REGISTRY["tile_broadcast"](v, shape=shape)
    full: Value = REGISTRY["tile_full"](v, shape=shape)
    return full


def constant(value: Any, dtype: DType | None = None) -> Value:
    """A uniform scalar constant in the active builder."""
    known = dtype or dt.as_dtype(getattr(value, "dtype", None)) or dt.of_literal(value)
    builder = ir_builder.current()
    assert builder is not None
    plain = value.item() if isinstance(value, np.generic) else value
    return builder.insert(
        REGISTRY["constant"], (), {"value": exact(plain, known), "dtype": known}, types=(ScalarType(known),)
    ).result


def exact(value: Any, dtype: DType) -> bool | int | float:
    """`value` as the Python number that `dtype` holds: rounded for floats, wrapped for integers."""
    if dtype.is_int:
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        return wrapped - (1 << dtype.bits) if dtype.kind == "i" and wrapped >> (dtype.bits - 1) else wrapped
    with np.errstate(over="ignore"):
        return bool(value) if dtype.kind == "b" else float(dtype(value))


def broadcast_shapes(what: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcast of the shapes, or a ShapeMismatch that names them."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(str(s) for s in dict.fromkeys(shapes))
        raise ShapeMismatch(
            f"{what}: tiles of shapes {listed} do not broadcast",
            help="extents must be equal or 1, counted from the last axis; see tile_reshape and tile_broadcast",
        ) from None


def infer_types(definition: OpDef, types: tuple[Type, ...], attrs: dict[str, Any]) -> tuple[Type, ...]:
    """The result types of an op; checks the number and kinds of the operands first."""
    _check_kinds(definition, types)
    if definition.infer is not None:
        result = definition.infer(*types, **attrs)
    else:
        result = _infer_elementwise(definition, types)
    return result if isinstance(result, tuple) else () if result is None else (result,)


def _check_kinds(definition: OpDef, types: tuple[Type, ...]) -> None:
    fixed = len(definition.kinds)
    if len(types) < fixed or (len(types) > fixed and definition.variadic is None):
        raise TypeMismatch(f"{definition.name} takes {fixed} operands, {len(types)} were given")
    wanted = definition.kinds + (definition.variadic or "value",) * (len(types) - fixed)
    for i, (t, kind) in enumerate(zip(types, wanted, strict=True)):
        if not _KIND_TESTS[kind](t):
            raise TypeMismatch(f"{definition.name}: argument {i + 1} must be {_KIND_NAMES[kind]}, it is {describe(t)}")


_KIND_TESTS: dict[str, Callable[[Type], bool]] = {
    "tile": lambda t: isinstance(t, TileType),
    "scalar": lambda t: isinstance(t, ScalarType),
    "array": lambda t: isinstance(t, ArrayType),
    "value": lambda t: True,
}
_KIND_NAMES = {"tile": "a tile", "scalar": "a scalar", "array": "an array", "value": "a value"}


def describe(t: Type) -> str:
    """A type in the user's terms, for messages."""
    if isinstance(t, TileType):
        return f"a {t.dtype} tile {t.shape}"
    if isinstance(t, ArrayType):
        return f"a {t.ndim}-D array of {t.dtype}"
    if isinstance(t, ScalarType):
        return f"{t.dtype} (one per lane)" if t.varying else f"{t.dtype}"
    return str(t)


def _infer_elementwise(definition: OpDef, types: tuple[Type, ...]) -> Type:
    assert definition.elementwise is not None
    dtypes = [t.dtype for t in types if isinstance(t, (ScalarType, TileType))]
    if len(dtypes) != len(types):
        bad = next(t for t in types if not isinstance(t, (ScalarType, TileType)))
        raise TypeMismatch(f"{definition.name} works on scalars and tiles, not on {describe(bad)}")
    require_same_dtype(definition.name, types)
    if dtypes[0] not in definition.elementwise:
        raise TypeMismatch(
            f"{definition.name} is not defined for {dtypes[0]}", label=f"this is {describe(types[0])}",
            help=_way_out(dtypes[0], definition.elementwise, isinstance(types[0], TileType)),
        )  # fmt: skip
    return like(types, definition.result_dtype or dtypes[0])


def _way_out(dtype: DType, accepted: tuple[DType, ...], tile: bool) -> str:
    """What to write when an elementwise op does not take a dtype."""
    wanted = dt.int32 if dt.int32 in accepted else dt.float32
    if wanted not in accepted or dtype.is_float:
        return f"it takes: {', '.join(map(str, accepted))}"
    cast = f"tile_astype(t, {wanted})" if tile else f"{wanted}(x)"
    if dtype.kind == "b":
        return f"to compute with a bool write {cast}; for logic write & | ^ ~"
    return f"write {cast}; it takes: {', '.join(map(str, accepted))}"


def require_same_dtype(what: str, types: Iterable[Type]) -> None:
    """Raise TypeMismatch, naming both types and the cast to write, unless all dtypes are equal."""
    seen = [t for t in types if isinstance(t, (ScalarType, TileType, ArrayType))]
    for other in seen[1:]:
        if other.dtype != seen[0].dtype:
            first, second = describe(seen[0]), describe(other)
            cast = f"tile_astype(x, {seen[0].dtype})" if isinstance(other, TileType) else f"{seen[0].dtype}(x)"
            raise TypeMismatch(
                f"{what}: the operands have different types: {first} and {second}",
                help=f"types never mix by themselves; cast one operand, for example {cast}",
            )


def like(types: Iterable[Type], dtype: DType) -> Type:
    """The type of an elementwise result: a tile if the operands are tiles, else a scalar, varying if any is."""
    listed = tuple(types)
    for t in listed:
        if isinstance(t, TileType):
            return TileType(dtype, t.shape)
    return ScalarType(dtype, any(is_varying(t) for t in listed))
