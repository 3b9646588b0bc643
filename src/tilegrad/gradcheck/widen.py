"""A kernel and its arguments in float64: what finite differences need to be sharp.

Every float16, bfloat16 and float32 of a kernel becomes float64: values, constants, casts, and the arrays of a launch.
An op that exists only in its own precision is run in it, between casts. Integers and bools stay as they are, so a
kernel may take another branch than it took in its own precision; the derivative of that one is checked then.
Does not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import LaunchError, TilegradError
from tilegrad.dtypes import DType
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type
from tilegrad.op import REGISTRY, infer_types
from tilegrad.ops import control
from tilegrad.tape.memory import Host, Mirror, is_float, shares_memory, span


@cache
def widen(kernel: Kernel) -> Kernel:
    """The kernel with every float as float64.

    Raises: LaunchError for an op on arrays that has no form in float64.
    """
    return _Widen(kernel).run()


def wide_type(t: Type) -> Type:
    """The type with float64 in place of any smaller float."""
    if isinstance(t, StackType):
        items: Any = tuple(map(wide_type, t.items))
        return StackType(items, t.varying)
    if isinstance(t, TileType):
        return TileType(_wide_dtype(t.dtype), t.shape)
    if isinstance(t, ArrayType):
        return ArrayType(_wide_dtype(t.dtype), t.ndim, t.dense_rows)
    return ScalarType(_wide_dtype(t.dtype), t.varying)


def _wide_dtype(d: DType) -> DType:
    return dt.float64 if d.is_float else d


class _Widen(Rewriter):
    def block(self, old: Block) -> Block:
        with self.builder.region(*(wide_type(a.type) for a in old.args)) as new:
            for a, b in zip(old.args, new.args, strict=True):
                b.name = a.name
                self.values[a] = b
            self.ops(old)
        return new

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if not op.regions and all(_is_wide(v.type) for v in (*op.operands, *op.results)):
            return self.copy(op, operands)
        attrs = {name: self._attr(x) for name, x in op.attrs.items()}
        types = tuple(wide_type(v.type) for v in op.results)
        if not op.regions and not self._fits(op, operands, attrs, types):
            return self._narrow(op, operands)
        regions = tuple(self.block(r) for r in op.regions)
        new = self.builder.insert(op.definition, operands, attrs, regions, types, op.loc)
        for a, b in zip(op.results, new.results, strict=True):
            b.name = a.name
        return new.results

    def _attr(self, x: Any) -> Any:
        if isinstance(x, DType):
            return _wide_dtype(x)
        if isinstance(x, (ScalarType, TileType, ArrayType, StackType)):
            return wide_type(x)
        if isinstance(code := getattr(x, "block", None), Block):  # the gradient that a user has given a function
            return type(x)(x.name, _Widen(self.kernel)._code(code))
        return tuple(map(self._attr, x)) if type(x) is tuple else x

    def _code(self, block: Block) -> Block:
        with self.builder.active():
            return self.block(block)

    def _fits(self, op: Op, operands: Sequence[Value], attrs: dict[str, Any], types: tuple[Type, ...]) -> bool:
        """Whether the op has a form in float64 whose results are those that are wanted."""
        if op.name == "yield":
            return True
        try:
            return infer_types(op.definition, tuple(v.type for v in operands), attrs) == types
        except TilegradError:
            return False

    def _narrow(self, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
        """The op in its own precision, its floats cast before and after."""
        if any(
            isinstance(v.type, (ArrayType, StackType)) and not _is_wide(v.type) for v in (*op.operands, *op.results)
        ):
            raise LaunchError(f"gradcheck: `{op.name}` cannot be computed in float64", loc=op.loc)
        with self.builder.at(op.loc):
            given = tuple(_cast(v, old.type) for v, old in zip(operands, op.operands, strict=True))
            types = tuple(v.type for v in op.results)
            made = self.builder.insert(op.definition, given, op.attrs, (), types)
            return [_cast(v, wide_type(v.type)) for v in made.results]


def _is_wide(t: Type) -> bool:
    return wide_type(t) == t


def _cast(v: Value, t: Type) -> Value:
    if v.type == t or isinstance(t, (ArrayType, StackType)) or isinstance(v.type, (ArrayType, StackType)):
        return v
    if v.type.dtype is t.dtype:
        return control.as_type(v, t)
    result: Value = REGISTRY["astype"](v, dtype=t.dtype)
    return result


# --- arguments ------------------------------------------------------------------------------------------------------


def wide_arguments(args: Sequence[Any], kernel: Kernel) -> list[Any]:
    """Private copies of the arguments of a launch for the widened kernel; arrays that share memory share it there.

    Args:
        kernel: the widened kernel.
    """
    found: list[Any] = [None] * len(args)
    arrays = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]
    for group in _sharing(args, arrays):
        if len(group) == 1:
            a = args[group[0]]
            found[group[0]] = np.array(a, np.float64 if is_float(a) else a.dtype, order="C")
        else:
            for k, a in zip(group, _scaled([args[k] for k in group]), strict=True):
                found[k] = a
    for k, p in enumerate(kernel.params):
        if isinstance(p.type, ScalarType):
            found[k] = p.type.dtype.np.type(args[k])
    return found


def _sharing(args: Sequence[Any], arrays: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for k in arrays:
        mine = [g for g in groups if any(shares_memory(args[k], args[j]) for j in g)]
        groups = [g for g in groups if g not in mine]
        groups.append([*(j for g in mine for j in g), k])
    return groups


def _scaled(arrays: Sequence[Host]) -> list[Host]:
    """Copies in float64 of arrays that share memory, laid out as these are."""
    size = arrays[0].itemsize
    low, high = min(span(a)[0] for a in arrays), max(span(a)[1] for a in arrays)
    starts = [a.__array_interface__["data"][0] - low for a in arrays]
    steps = [s for a in arrays for s in (*a.strides, *starts)]
    if any(a.dtype != arrays[0].dtype for a in arrays) or any(s % size for s in steps):
        raise LaunchError("gradcheck: arguments that share memory have different types")
    kind = np.dtype(np.float64) if is_float(arrays[0]) else arrays[0].dtype
    factor = kind.itemsize // size
    memory = np.zeros((high - low) // size, kind)
    made = [np.ndarray(a.shape, kind, memory, first * factor, tuple(s * factor for s in a.strides))
            for a, first in zip(arrays, starts, strict=True)]  # fmt: skip
    for a, b in zip(arrays, made, strict=True):
        b[...] = a
    return made


def copies(values: Sequence[Any]) -> list[Any]:
    """Fresh copies of arrays, which share memory where the originals do; anything else itself."""
    arrays = [x for x in values if isinstance(x, np.ndarray)]
    memory = Mirror(arrays)
    found = []
    for x in values:
        if isinstance(x, np.ndarray):
            view = memory.view(x)
            view[...] = x
            found.append(view)
        else:
            found.append(x)
    return found


def cells(a: Host) -> Host:
    """A view with each element of a broadcast array once."""
    return a[tuple(slice(0, 1) if n > 1 and s == 0 else slice(None) for n, s in zip(a.shape, a.strides, strict=True))]
