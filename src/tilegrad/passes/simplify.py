"""Local simplifications: constants, views that cancel, products that accumulate, branches and loops that are known.

Every rule but S4 is exact: it changes no bit of a result (a folded function is the correctly rounded one).
    S1 an elementwise op on constants is computed                 add(2, 3)                  -> 5
    S2 a neutral operand: x * 1, x - 0, integer x + 0, b & True, where(True, x, y), ...      -> x
       (a cotangent of -0 may stay -0 where `chain` makes it 0)
    S3 views: transpose of transpose, reshape of reshape, broadcast or reshape of a fill or to the same shape
    S4 add(c, tile_matmul(a, b)), the product used once           -> tile_matmul_add(a, b, c), rounded once
    S5 if of a constant                                           -> the region taken
       a loop of no turn or one                                   -> its initial values, its region
    S6 a carried value that never changes in a loop               -> its initial value
       a result that both regions of an if take from outside      -> that value
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilegrad.diagnostics import TilegradError
from tilegrad.ir import regions
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import ScalarType, TileType, shape_of
from tilegrad.op import REGISTRY
from tilegrad.op import constant as make_constant
from tilegrad.ops.control import for_, if_
from tilegrad.passes.effects import constant_value, is_zero, may_raise, splat_value


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
        #: values of the old kernel that are known to be equal to earlier ones
        self.twin: dict[Value, Value] = {}

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        with self.builder.at(op.loc):
            if op.regions:
                return self._region_op(op, operands)
            new = self._simpler(op, operands)
        return self.copy(op, operands) if new is None else (new,)

    def value(self, v: Value) -> Value:
        while v in self.twin:
            v = self.twin[v]
        return super().value(v)

    # --- regions

    def _region_op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        self._find_twins(op)
        if op.definition is if_ and (known := constant_value(operands[0])) is not None:
            return self._inline(op.regions[0 if known else 1])
        if op.definition is for_:
            bounds = [constant_value(v) for v in operands[:3]]
            if None not in bounds and bounds[2] != 0 and (turns := len(range(*bounds))) < 2:
                return self._inline(op.regions[0], (operands[0], *operands[3:])) if turns else operands[3:]
        return self.copy(op, operands)

    def _inline(self, block: Block, args: Sequence[Value] = ()) -> Sequence[Value]:
        self.values.update(zip(block.args, args, strict=True))
        for op in block.ops[:-1]:
            for v, new in zip(op.results, self.op(op, tuple(map(self.value, op.operands))), strict=True):
                self.values[v] = new
        return [self.value(v) for v in block.yields]

    def _find_twins(self, op: Op) -> None:
        """S6: what cannot change is its initial value, inside and after the op (dce drops the rest)."""
        for k, result in enumerate(op.results):
            last = op.regions[-1]
            if regions.is_loop(op):
                if last.yields[k] is regions.carried(op, last)[k]:
                    arguments = (regions.carried(op, r)[k] for r in op.regions)
                    self.twin.update(dict.fromkeys((result, *arguments), regions.initial(op)[k]))
            elif op.definition is if_ and op.regions[0].yields[k] is last.yields[k]:
                self.twin[result] = last.yields[k]

    # --- plain ops

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
        if not isinstance(t, ScalarType) or t.varying or may_raise(op):
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


Rule = Callable[[_Simplify, Op, tuple[Value, ...]], Value | None]


def _same_type(op: Op, v: Value) -> Value | None:
    return v if v.type == op.result.type else None


def _is_int(v: Value) -> bool:
    return isinstance(v.type, (ScalarType, TileType)) and v.type.dtype.is_int


# --- S2 and S4


def _add(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    x, y = operands
    if _is_int(x):
        if splat_value(y) == 0:
            return _same_type(op, x)
        return _same_type(op, y) if splat_value(x) == 0 else None
    return _accumulate(self, op, operands)


def _accumulate(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """S4; the product must be made in the same turn of every loop, or it would be made more often."""
    for old, product, other in zip(op.operands, operands, reversed(operands), strict=True):
        made = product.op
        if (
            made is not None
            and made.name == "tile_matmul"
            and self.uses.get(old) == 1
            and made in self.builder.block.ops
        ):
            result: Value = REGISTRY["tile_matmul_add"](*made.operands, other)
            return result
    return None


def _minus(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    return _same_type(op, operands[0]) if is_zero(splat_value(operands[1])) else None


def _times(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    x, y = operands
    if splat_value(y) == 1:
        return _same_type(op, x)
    return _same_type(op, y) if op.name == "mul" and splat_value(x) == 1 else None


def _logic(neutral: bool) -> Rule:
    """`and` (neutral: true) or `or` (neutral: false) of bools, one of them known."""

    def rule(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
        for known, other in (operands, reversed(operands)):
            value = splat_value(known)
            if isinstance(value, bool):
                return _same_type(op, other if value is neutral else known)
        return None

    return rule


def _twice(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """Two negations cancel."""
    inner = operands[0].op
    return inner.operands[0] if inner is not None and inner.name == op.name else None


def _where(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    condition, x, y = operands
    if x is y:
        return _same_type(op, x)
    known = splat_value(condition)
    return None if known is None else _same_type(op, x if known else y)


# --- S3


def _transpose(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    axes, inner = op.attrs["axes"], operands[0].op
    if axes == tuple(range(len(axes))):
        return operands[0]
    if inner is None:
        return None
    if inner.name == "tile_full":
        return _fill(inner, op)
    if inner.name == "tile_transpose":
        both = tuple(inner.attrs["axes"][a] for a in axes)
        if both == tuple(range(len(both))):
            return inner.operands[0]
        result: Value = REGISTRY["tile_transpose"](inner.operands[0], axes=both)
        return result
    return None


def _fill(inner: Op, op: Op) -> Value:
    """A view of a fill is a fill."""
    result: Value = REGISTRY["tile_full"](inner.operands[0], shape=shape_of(op.result.type))
    return result


def _same_view(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    return _same_type(op, operands[0])


def _reshape(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    inner = operands[0].op
    if operands[0].type == op.result.type or inner is None:
        return _same_type(op, operands[0])
    if inner.name == "tile_full":
        return _fill(inner, op)
    if inner.name == "tile_reshape":
        if inner.operands[0].type == op.result.type:
            return inner.operands[0]
        result: Value = REGISTRY["tile_reshape"](inner.operands[0], shape=op.attrs["shape"])
        return result
    return None


def _broadcast(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    inner = operands[0].op
    if inner is not None and inner.name == "tile_full":
        return _fill(inner, op)
    return _same_type(op, operands[0])


def _slice(self: _Simplify, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """A whole slice is the tile: its starts can only be zero. A slice of a fill is a fill, if it cannot raise."""
    inner = operands[0].op
    if may_raise(op):
        return None
    if inner is not None and inner.name == "tile_full":
        return _fill(inner, op)
    return _same_type(op, operands[0]) if all(s == 1 for s in op.attrs["steps"]) else None


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _minus,
    "mul": _times,
    "div": _times,
    "chain": _times,
    "bit_and": _logic(True),
    "bit_or": _logic(False),
    "invert": _twice,
    "neg": _twice,
    "where": _where,
    "astype": _same_view,
    "tile_transpose": _transpose,
    "tile_reshape": _reshape,
    "tile_broadcast": _broadcast,
    "tile_slice": _slice,
}
