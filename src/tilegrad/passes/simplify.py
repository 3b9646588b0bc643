"""Local simplifications: constants, views that cancel, products that accumulate, branches that are known.

Every rule is exact: it changes no bit of a result.
    S1 an elementwise op on constants is computed                 add(2, 3)                  -> 5
    S2 x * 1, x - 0, x / 1 are x; astype to the same type is x
    S3 views: transpose of transpose, reshape of reshape, broadcast or reshape or slice to the same shape
    S4 add(c, tile_matmul(a, b)), the product used once           -> tile_matmul_add(a, b, c)
    S5 if of a constant                                           -> the region taken
    S6 a carried value that never changes in a loop               -> its initial value
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad.diagnostics import TilegradError
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import ScalarType
from tilegrad.op import REGISTRY
from tilegrad.op import constant as make_constant
from tilegrad.ops.control import constant, for_, if_, spread, while_


def run(kernel: Kernel) -> Kernel:
    """The kernel after one sweep of all rules."""
    return _Simplify(kernel).run()


class _Simplify(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.uses: dict[Value, int] = {}
        for op in kernel.body.walk():
            for v in op.operands:
                self.uses[v] = self.uses.get(v, 0) + 1
        self.twin: dict[Value, Value] = {}

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        with self.builder.at(op.loc):
            if op.definition in (for_, while_):
                self._drop_invariants(op)
            if op.definition is if_ and (known := constant_value(operands[0])) is not None:
                return self._inline(op.regions[0 if known else 1])
            new = self._simpler(op, operands)
        return self.copy(op, operands) if new is None else (new,)

    def _inline(self, block: Block) -> Sequence[Value]:
        for op in block.ops[:-1]:
            for v, new in zip(op.results, self.op(op, tuple(map(self.value, op.operands))), strict=True):
                self.values[v] = new
        return [self.value(v) for v in block.yields]

    def _drop_invariants(self, op: Op) -> None:
        """S6: inside and after the loop, an unchanged carried value is its initial value (dce drops the rest)."""
        shift, lead = (1, 3) if op.definition is for_ else (0, 0)
        for k, result in enumerate(op.results):
            if op.regions[-1].yields[k] is op.regions[-1].args[shift + k]:
                self.twin[result] = op.operands[lead + k]
                for region in op.regions:
                    self.twin[region.args[shift + k]] = op.operands[lead + k]

    def value(self, v: Value) -> Value:
        while v in self.twin:
            v = self.twin[v]
        return super().value(v)

    def _simpler(self, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if op.definition.elementwise is not None and op.definition.effect == "none" and len(op.results) == 1:
            folded = self._fold(op, operands)
            if folded is not None:
                return folded
        rule = _RULES.get(op.name)
        return None if rule is None else rule(self, op, operands)

    def _fold(self, op: Op, operands: tuple[Value, ...]) -> Value | None:
        """S1."""
        t = op.result.type
        if not isinstance(t, ScalarType) or t.varying:
            return None
        known = [constant_value(v) for v in operands]
        if any(k is None for k in known):
            return None
        dtypes = [v.type.dtype for v in operands if isinstance(v.type, ScalarType)]
        try:
            with np.errstate(all="ignore"):
                result = op.definition.body(*(d.np.type(k) for d, k in zip(dtypes, known, strict=True)), **op.attrs)
        except (TilegradError, ArithmeticError, ValueError):
            return None
        return make_constant(np.asarray(result).astype(t.dtype.np)[()], t.dtype)


def constant_value(v: Value) -> Any:
    """The number that a constant is, or None."""
    if v.op is None:
        return None
    if v.op.definition is spread:
        return constant_value(v.op.operands[0])
    return v.op.attrs["value"] if v.op.definition is constant else None


def splat_value(v: Value) -> Any:
    """The number that a constant or a tile full of it holds, or None."""
    if v.op is not None and v.op.name == "tile_full":
        return constant_value(v.op.operands[0])
    return constant_value(v)


def _same_type(op: Op, v: Value) -> Value | None:
    return v if v.type == op.result.type else None


def _times(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    x, y = operands
    if splat_value(y) == 1:
        return _same_type(op, x)
    return _same_type(op, y) if op.name == "mul" and splat_value(x) == 1 else None


def _minus(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    x, y = operands
    zero = splat_value(y)
    return _same_type(op, x) if zero == 0 and not (isinstance(zero, float) and np.signbit(zero)) else None


def _add(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """S4."""
    for old, product, other in zip(op.operands, operands, reversed(operands), strict=True):
        if product.op is not None and product.op.name == "tile_matmul" and self.uses.get(old) == 1:
            result: Value = REGISTRY["tile_matmul_add"](*product.op.operands, other)
            return result
    return None


def _transpose(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    axes, inner = op.attrs["axes"], operands[0].op
    if axes == tuple(range(len(axes))):
        return operands[0]
    if inner is not None and inner.name == "tile_transpose":
        both = tuple(inner.attrs["axes"][a] for a in axes)
        result: Value = REGISTRY["tile_transpose"](inner.operands[0], axes=both)
        return inner.operands[0] if both == tuple(range(len(both))) else result
    return None


def _same_view(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    return _same_type(op, operands[0])


def _reshape(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    inner = operands[0].op
    if operands[0].type == op.result.type:
        return operands[0]
    if inner is not None and inner.name == "tile_full":
        full: Value = REGISTRY["tile_full"](inner.operands[0], shape=op.attrs["shape"])
        return full
    if inner is not None and inner.name == "tile_reshape":
        result: Value = REGISTRY["tile_reshape"](inner.operands[0], shape=op.attrs["shape"])
        return result
    return None


def _broadcast(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    inner = operands[0].op
    if inner is not None and inner.name == "tile_full":
        full: Value = REGISTRY["tile_full"](inner.operands[0], shape=op.attrs["shape"])
        return full
    return _same_type(op, operands[0])


_RULES = {
    "mul": _times,
    "sub": _minus,
    "add": _add,
    "astype": _same_view,
    "tile_transpose": _transpose,
    "tile_reshape": _reshape,
    "tile_broadcast": _broadcast,
}
