"""The types of a kernel's parameters: annotations, and whether an argument fits one.

An array annotation is written as Warp writes it: `array[float]`, `array2d[float32]`, `array(dtype=float, ndim=2)`.
An argument is described to the tracer by an IR type; None stands for an optional array that was not given.
Does not launch.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite
from tilegrad.diagnostics import LaunchError, Loc, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import NAMED, CompositeType, GridType, StructType, as_element_type
from tilegrad.frontend.function import Function, Parameter, evaluated_annotations
from tilegrad.ir.types import ArrayType, ScalarType, Type
from tilegrad.op import describe
from tilegrad.ops.declared import StackAnnotation, TileAnnotation

FORMS = (
    "tg.array[float], tg.array2d[tg.float32], tg.array(dtype=float, ndim=2), or a number: float, int, bool, tg.float64"
)


@dataclass(frozen=True, slots=True)
class ArrayAnnotation:
    """The declared type of an array parameter; None leaves the dtype or the rank to the argument."""

    dtype: DType | CompositeType | None = None
    ndim: int | None = None
    optional: bool = False

    def __or__(self, other: Any) -> ArrayAnnotation:
        if other is not None and other is not type(None):
            return NotImplemented
        return ArrayAnnotation(self.dtype, self.ndim, optional=True)

    __ror__ = __or__

    def __repr__(self) -> str:
        name = f"array{self.ndim}d" if self.ndim else "array"
        return f"{name}[{self.dtype or 'Any'}]" + (" | None" if self.optional else "")


@dataclass(frozen=True, slots=True)
class NumberAnnotation:
    """The declared type of a number parameter; without a dtype the argument decides."""

    dtype: DType | None = None

    def __repr__(self) -> str:
        return str(self.dtype or "Any")


@dataclass(frozen=True, slots=True)
class GridArray:
    """The type of an array argument whose elements are vectors, matrices, ...: their grid is its last axes."""

    kind: GridType
    array: ArrayType


#: What an argument is to the tracer: an IR type, an array of grids, or a composite of such; None if not given.
ArgumentType = Type | GridArray | Composite | None


def flat_types(name: str, t: ArgumentType) -> Iterator[tuple[str, Type]]:
    """The IR parameters that an argument becomes, with their names."""
    if isinstance(t, Composite):
        for k, part in enumerate(t):
            at = list(t.kind.members)[k] if isinstance(t.kind, StructType) else "xyzw"[k] if len(t) <= 4 else str(k)
            yield from flat_types(f"{name}.{at}", part)
    elif isinstance(t, GridArray):
        yield name, t.array
    elif t is not None:
        yield name, t


Annotation = ArrayAnnotation | NumberAnnotation | CompositeType | TileAnnotation | StackAnnotation | None


def array_annotation(dtype: Any, ndim: int | None, *, where: str = "array") -> ArrayAnnotation:
    """The annotation for arrays of `dtype` (anything that names one; Any leaves it open) and rank `ndim`."""
    if dtype is Any or dtype is None:
        return ArrayAnnotation(None, ndim)
    known = as_element_type(dtype)
    if known is None:
        name = getattr(dtype, "__name__", repr(dtype))
        close = difflib.get_close_matches(str(name), [*dt.BY_NAME, *NAMED], 1)
        raise TypeMismatch(
            f"{where}: `{name}` is not an element type",
            help=f"did you mean {close[0]}?" if close else f"element types: {', '.join(dt.BY_NAME)}",
        )
    if isinstance(known, StructType):
        known.numpy_dtype()  # refuses a struct with array members
    return ArrayAnnotation(known, ndim)


def parse(function: Function, parameter: Parameter) -> Annotation:
    """What the annotation of a parameter declares; None if there is no annotation. Raises TypeMismatch."""
    found = _parse(parameter.annotation)
    if found is _UNKNOWN:
        name = getattr(parameter.annotation, "__name__", None)
        text = str(parameter.annotation) if isinstance(parameter.annotation, types.GenericAlias) or not name else name
        raise TypeMismatch(
            f"parameter `{parameter.name}` of `{function.name}` has the annotation {text}, which is not a kernel type",
            loc=parameter_loc(function, parameter), help=f"write {FORMS}",
        )  # fmt: skip
    return typing.cast(Annotation, found)


def parse_of_kernel(function: Function, parameter: Parameter) -> Annotation:
    """`parse` for a parameter of a kernel, which cannot be a tile. Raises TypeMismatch."""
    found = parse(function, parameter)
    if isinstance(found, (TileAnnotation, StackAnnotation)):
        raise TypeMismatch(
            f"parameter `{parameter.name}` of the kernel `{function.name}` is declared as {found}",
            loc=parameter_loc(function, parameter),
            help="only a @func takes tiles; pass an array and load the tile with tile_load(a, shape=...)",
        )  # fmt: skip
    return found


_UNKNOWN = object()


def _parse(found: Any) -> Any:
    if found is None or found is Any:
        return None
    if hasattr(found, "__tilegrad_annotation__"):
        return found.__tilegrad_annotation__
    if isinstance(found, (ArrayAnnotation, NumberAnnotation, CompositeType, TileAnnotation, StackAnnotation)):
        return found
    if isinstance(found, types.UnionType) or typing.get_origin(found) is typing.Union:
        inner = [a for a in typing.get_args(found) if a is not type(None)]
        base = _parse(inner[0]) if len(inner) == 1 else _UNKNOWN
        return base | None if isinstance(base, ArrayAnnotation) else _UNKNOWN
    if isinstance(found, DType) or found in (int, float, bool):
        return NumberAnnotation(dt.as_dtype(found))
    if isinstance(found, type) and issubclass(found, np.generic) and dt.as_dtype(found):
        return NumberAnnotation(dt.as_dtype(found))
    return _UNKNOWN


def members(cls: type) -> dict[str, Any]:
    """The members of a struct with their types, from the annotations of its class. Raises TypeMismatch."""
    found: dict[str, Any] = {}
    for name, annotation in evaluated_annotations(cls).items():
        t = _parse(annotation)
        if isinstance(t, NumberAnnotation):
            t = t.dtype
        if t is None or t is _UNKNOWN:
            raise TypeMismatch(
                f"the member `{name}` of {cls.__name__} has the annotation {annotation!r}, which is no member's type",
                help=f"write {FORMS}, a vector such as tg.vec3, or a struct",
            )
        found[name] = t
    if not found:
        raise TypeMismatch(f"the struct {cls.__name__} has no members", help="annotate them: `mass: float`")
    return found


def parameter_loc(function: Function, parameter: Parameter) -> Loc:
    """Where a parameter is declared."""
    a = function.source.node.args
    node = next(p for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg == parameter.name)
    return function.source.loc(node, function.name, None)


def array_type(dtype: DType, ndim: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayType:
    """The IR type of an array; rows are dense if neighbours of the last axis are adjacent in memory."""
    return ArrayType(dtype, ndim, ndim > 0 and (shape[-1] <= 1 or strides[-1] == itemsize))


def check_array(function: Function, parameter: Parameter, annotation: Annotation, given: ArrayType) -> None:
    """Raise LaunchError unless an array argument fits what is declared."""
    if isinstance(annotation, NumberAnnotation):
        refuse(
            function, parameter, f"a number ({annotation})", describe(given), "pass one element, or declare an array"
        )
    if not isinstance(annotation, ArrayAnnotation):
        return
    if annotation.dtype is not None and given.dtype != annotation.dtype:
        rank = f"{annotation.ndim}d" if annotation.ndim else ""
        refuse(
            function, parameter, f"{annotation}", describe(given),
            f"convert the argument, for example with .astype(np.{annotation.dtype.np.name}), "
            f"or declare `{parameter.name}: tg.array{rank}[tg.{given.dtype}]`",
        )  # fmt: skip
    if annotation.ndim is not None and given.ndim != annotation.ndim:
        refuse(
            function, parameter, f"{annotation.ndim} dimension{'s' * (annotation.ndim != 1)} ({annotation})",
            describe(given), f"reshape the argument, or declare `{parameter.name}: tg.array{given.ndim}d[...]`",
        )  # fmt: skip


def number_type(function: Function, parameter: Parameter, annotation: Annotation, given: Any) -> Type:
    """The IR type of a number argument. Raises LaunchError unless it fits what is declared."""
    if isinstance(annotation, ArrayAnnotation):
        refuse(function, parameter, f"an array ({annotation})", f"the number {given!r}", "wrap it: np.full(1, value)")
    declared = annotation.dtype if isinstance(annotation, NumberAnnotation) else None
    own = dt.as_dtype(given.dtype) if isinstance(given, np.generic) else dt.of_literal(given)
    if declared is None:
        if own is None:
            refuse(function, parameter, "a number", repr(given), "pass an int, a float or a bool")
        return ScalarType(own)
    plain = given.item() if isinstance(given, np.generic) else given
    fits = (
        declared.kind == "b" if isinstance(plain, bool) else declared.kind != "b" and dt.literal_fits(plain, declared)
    )
    if isinstance(plain, float) and declared.is_int:
        fits = False
    if not fits:
        kind = f"{own} {plain!r}" if isinstance(given, np.generic) else repr(plain)
        wide = declared.is_int and isinstance(plain, int) and not isinstance(plain, bool)
        help = (
            f"declare `{parameter.name}: tg.int64`" if wide else f"pass tg.{declared}(value), or declare another type"
        )
        refuse(function, parameter, str(declared), kind, help)
    return ScalarType(declared)


def wrong_array(function: Function, parameter: Parameter, annotation: Annotation, given: Any) -> typing.NoReturn:
    """Refuse an array whose element type no kernel has, or that has no axis."""
    wanted = f"an array ({annotation})" if isinstance(annotation, ArrayAnnotation) else "an array of numbers"
    what = f"a NumPy array of {given.dtype}" if dt.as_dtype(given.dtype) is None else "an array without dimensions"
    refuse(function, parameter, wanted, what, "convert it with .astype(...), or reshape(1) an array without dimensions")


def wrong_argument(function: Function, parameter: Parameter, annotation: Annotation, given: Any) -> typing.NoReturn:
    """Refuse an argument that is neither an array nor a number."""
    wanted = f"an array ({annotation})" if isinstance(annotation, ArrayAnnotation) else "a number or an array"
    if isinstance(annotation, NumberAnnotation):
        wanted = f"a number ({annotation})"
    help = "wrap it with np.asarray or tg.array" if isinstance(given, (list, tuple)) else ""
    name = "None" if given is None else f"a {type(given).__name__}"
    if given is None:
        help = f"declare `{parameter.name}: {annotation} | None` if the argument may be left out"
    refuse(function, parameter, wanted, name, help)


def refuse(
    function: Function, parameter: Parameter, wanted: str, given: str, help: str, what: str = ""
) -> typing.NoReturn:
    """Refuse an argument, or the part `what` of one."""
    verb = "have" if wanted[0].isdigit() else "be"
    raise LaunchError(
        f"{function.name}: argument `{what or parameter.name}` must {verb} {wanted}, it is {given}",
        loc=parameter_loc(function, parameter), help=help,
    )  # fmt: skip


def is_known(annotation: Any) -> bool:
    """Whether `parse` understands the annotation."""
    return _parse(annotation) is not _UNKNOWN
