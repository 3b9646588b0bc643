"""Arguments of a launch that are composite, or arrays of composites, taken apart into arrays and numbers.

A kernel's IR has arrays of scalars and scalars only. A struct becomes its members, a vector its numbers, an array of
vectors an array of scalars with more axes, and an array of structs one array for each member: all of them views of the
memory that the user gave, so that gradients and writes reach it.
Does not trace and does not launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite
from tilegrad.dtypes import DType
from tilegrad.element_types import CompositeType, GridType, HostValue, StructType, StructValue
from tilegrad.frontend import signature
from tilegrad.frontend.function import Function, Parameter
from tilegrad.frontend.signature import ArgumentType, ArrayAnnotation, GridArray
from tilegrad.ir.types import ScalarType
from tilegrad.runtime.arrays import Array, foreign


def is_composite(annotation: Any) -> bool:
    """Whether a parameter with this annotation takes something that has to be taken apart."""
    if isinstance(annotation, ArrayAnnotation):
        return isinstance(annotation.dtype, CompositeType)
    return isinstance(annotation, CompositeType)


def is_apart(a: Any) -> bool:
    """Whether an argument is an array or number as it is."""
    if isinstance(a, Array):
        return a.kind is None
    return not isinstance(a, (HostValue, StructValue))


class Taking:
    """Takes the arguments of one launch apart. `flat` are the arrays and numbers that the IR gets, in order."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.flat: list[Any] = []
        #: the parameter that each of `flat` comes from
        self.owners: list[int] = []

    def take(self, k: int, annotation: Any, a: Any, plain: Any) -> ArgumentType:
        """The type of argument `k`; `plain` gives that of one that is no composite."""
        count = len(self.flat)
        p = self.function.parameters[k]
        if is_composite(annotation) or not is_apart(a):
            found = self._composite(p, annotation, a)
        else:
            native = foreign(a.data if isinstance(a, Array) else a)
            found = plain(p, annotation, native)
            if found is not None:
                self.flat.append(a if isinstance(a, Array) else native)
        self.owners += [k] * (len(self.flat) - count)
        return found

    def _composite(self, p: Parameter, annotation: Any, a: Any) -> ArgumentType:
        if isinstance(annotation, ArrayAnnotation) or isinstance(a, Array):
            return self._array(p, annotation, a)
        kind = annotation if isinstance(annotation, CompositeType) else a.kind
        return self._value(p, kind, a, p.name)

    # --- values -------------------------------------------------------------------------------------------------

    def _value(self, p: Parameter, kind: Any, a: Any, what: str) -> ArgumentType:
        """A composite value: its scalars become numbers, its arrays become arrays."""
        if isinstance(kind, DType):
            self.flat.append(kind.np.type(a))
            return ScalarType(kind)
        if isinstance(kind, GridType):
            return self._grid_value(p, kind, a, what)
        if isinstance(kind, StructType):
            if isinstance(a, (np.void, np.ndarray)) and a.dtype.names == tuple(kind.members) and np.ndim(a) == 0:
                a = StructValue(kind, **{n: a[n] for n in kind.members})
            if not isinstance(a, StructValue) or a.kind is not kind:
                signature.refuse(self.function, p, f"a {kind}", _described(a), f"pass {kind}(...)", what)
            parts = [self._value(p, t, getattr(a, n), f"{what}.{n}") for n, t in kind.members.items()]
            return Composite(kind, parts)
        if a is None:
            return None
        return self._array(p, kind, a, what)

    def _grid_value(self, p: Parameter, kind: GridType, a: Any, what: str) -> ArgumentType:
        if isinstance(a, HostValue) and a.kind is not kind:
            signature.refuse(self.function, p, f"a {kind}", f"a {a.kind}", f"convert it: {kind}(value)", what)
        try:
            data = np.asarray(a.data if isinstance(a, (HostValue, Array)) else a)
        except ValueError:
            data = np.zeros(0)
        if (data.shape != kind.shape and data.shape != (kind.count,)) or data.dtype.kind not in "biufV":
            signature.refuse(self.function, p, f"a {kind}", _described(a), f"pass {kind}(...) or its parts", what)
        self.flat += list(data.astype(kind.dtype.np).ravel())
        return Composite(kind, [ScalarType(kind.dtype)] * kind.count)

    # --- arrays -------------------------------------------------------------------------------------------------

    def _array(self, p: Parameter, annotation: Any, a: Any, what: str = "") -> ArgumentType:
        declared = annotation if isinstance(annotation, ArrayAnnotation) else ArrayAnnotation()
        if a is None and declared.optional:
            return None
        kind = declared.dtype if declared.dtype is not None else getattr(a, "kind", None)
        native = a if isinstance(a, Array) else foreign(a)
        if isinstance(native, np.ndarray) and isinstance(kind, CompositeType):
            native = self._wrapped(p, declared, kind, native, what)
        if not isinstance(native, (Array, np.ndarray)):
            signature.refuse(self.function, p, f"an array ({declared})", _described(a), "", what)
        own = native.dtype if isinstance(native, Array) else dt.as_dtype(native.dtype)
        if own is None or (kind is not None and own is not kind):
            given = f"an array of {own or native.dtype}"
            signature.refuse(self.function, p, f"an array ({declared})", given, f"make it an array of {kind}", what)
        if isinstance(annotation, CompositeType):
            signature.refuse(self.function, p, f"a {annotation}", f"an array of {own}", "pass one element", what)
        if declared.ndim is not None and native.ndim != declared.ndim:
            given = f"an array with {native.ndim} axes"
            signature.refuse(self.function, p, f"{declared.ndim} dimensions ({declared})", given, "reshape it", what)
        return self._members(native, own)

    def _wrapped(self, p: Parameter, declared: Any, kind: CompositeType, native: Any, what: str) -> Array:
        """A NumPy array as an array of composites, on the same memory."""
        fits = native.dtype == kind.np
        if isinstance(kind, GridType):
            rank = native.ndim - len(kind.shape)
            fits = native.dtype == kind.dtype.np and rank > 0 and native.shape[rank:] == kind.shape
        if not fits:
            grid = isinstance(kind, GridType)
            axes = f" whose last axes are {kind.np.shape}" if grid else f" of dtype {kind}.numpy_dtype()"
            given = f"a NumPy array of {native.dtype} with shape {native.shape}"
            signature.refuse(self.function, p, f"an array ({declared})", given, f"pass one{axes}", what)
        return Array(native, kind=kind)

    def _members(self, a: Any, kind: Any) -> ArgumentType:
        """An array, or one for each member of its structs."""
        if isinstance(kind, StructType):
            return Composite(kind, [self._members(a.member(n), t) for n, t in kind.members.items()])
        whole = a.scalars if isinstance(a, Array) else a
        data = whole.data if isinstance(whole, Array) else whole
        t = signature.array_type(dt.of_array(data), data.ndim, data.itemsize, data.shape, data.strides)
        self.flat.append(whole)
        return GridArray(kind, t) if isinstance(kind, GridType) else t


def _described(a: Any) -> str:
    if isinstance(a, (HostValue, StructValue)):
        return f"a {a.kind}"
    return "None" if a is None else f"a {type(a).__name__}" + (f" of shape {np.shape(a)}" if np.ndim(a) else "")


def shape_of(t: ArgumentType) -> Any:
    """A hashable description of an argument's type."""
    return (t.kind, *map(shape_of, t)) if isinstance(t, Composite) else t


def flat_types(types: Sequence[ArgumentType]) -> list[Any]:
    """The IR types of all arguments that are given."""
    return [t for one in types for _, t in signature.flat_types("", one)]
