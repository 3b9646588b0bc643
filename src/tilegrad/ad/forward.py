"""Makes the tangent kernel of a kernel: it computes what the kernel computes, and the derivative along a direction.

Beside every float value that may depend on an array stands its *tangent*, of the same dtype and shape; beside every
array of floats an array of tangents, which the launch gets as a further argument. An op that is linear in its floats
is applied to the tangents. An elementwise op takes its adjoint rule, which for one element is the derivative times
what is put in. Of any other op the tangent is the transpose of its adjoint: the rule is linear in the cotangent, so
the ops that it emits are reversed once more, with the operands' tangents as cotangents. So no op needs a third rule,
and every kernel, backward kernels with their stacks too, can be differentiated forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tilegrad.ad import activity as act
from tilegrad.ad.cotangents import zero
from tilegrad.diagnostics import GradientUndefined, TilegradError
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.fragment import Fragment
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import ArrayType, StackType, TileType, Type, dtype_of
from tilegrad.op import REGISTRY, constant
from tilegrad.ops import control, custom

#: Ops whose results are linear in all their float operands together.
LINEAR = frozenset(
    ("add", "sub", "neg", "astype", "spread", "tile_broadcast", "tile_transpose", "tile_reshape", "tile_slice",
     "tile_insert", "tile_put", "tile_put_masked", "tile_add_at", "tile_extract", "tile_full", "tile_sum",
     "tile_arange", "tile_from_lanes", "untile", "tile_load", "tile_load_indexed", "tile_store", "tile_store_indexed",
     "tile_take_indexed", "tile_atomic_add", "tile_atomic_add_indexed", "tile_gather", "tile_scatter",
     "tile_scatter_sum", "take_along", "add_along", "fft", "rfft", "irfft", "tile_diagonal", "tile_on_diagonal",
     "tile_diag_add", "tile_triangle", "tile_permute_rows", "tile_stack_pick", "tile_stack_place", "array_load",
     "array_store", "array_take", "array_atomic_add", "array_atomic_sub", "array_atomic_exch", "array_add_back",
     "array_exch_back",
     "array_row", "array_component")
)  # fmt: skip


@dataclass(frozen=True)
class Tangent:
    """A tangent kernel. Its parameters are those of the kernel followed by the arrays of tangents;
    `tangent_params[i]` is the position of that of parameter i, or None."""

    kernel: Kernel
    tangent_params: tuple[int | None, ...]


def push_forward(kernel: Kernel) -> Tangent:
    """The tangent kernel of `kernel`.

    Raises:
        GradientUndefined: an op on the way has no derivative; names its line.
    """
    return _Forward(kernel).make()


@dataclass
class Active:
    """The values that may have a tangent that is not zero, and the items of stacks."""

    values: set[Value] = field(default_factory=set)
    items: set[tuple[Value, int]] = field(default_factory=set)


def push_code(code: Fragment, moving: Sequence[int]) -> Fragment:
    """Code with the tangents of the parameters `moving` as further parameters, that yields those of its results."""
    params = [code.params[k] for k in moving]
    forward = _Forward(Kernel(code.name, code.block), params)
    args = [Value(p.type, p.name, index=k) for k, p in enumerate((*code.params, *params))]
    forward.values.update(zip(code.params, args, strict=False))
    forward.tangents.update(zip(params, args[len(code.params) :], strict=True))
    forward.builder.block = made = Block(tuple(args))
    with forward.builder.active():
        for op in code.block.ops[:-1]:
            results = forward.op(op, tuple(forward.value(v) for v in op.operands))
            forward.values.update(zip(op.results, results, strict=True))
        control.finish(forward.builder, [forward._rate(v) for v in code.yields if act.is_float(v.type)])
    return Fragment(code.name, made)


def find_active(kernel: Kernel, starts: Iterable[Value]) -> Active:
    """Follow floats from where they start through the kernel until nothing is new."""
    found = Active(set(starts))
    ops = list(kernel.body.walk())
    size = -1
    while size != len(found.values) + len(found.items):
        size = len(found.values) + len(found.items)
        for op in ops:
            found.values.update(_reached(op, found))
            if op.name == "push":
                found.items.update(
                    (op.operands[0], k) for k, v in enumerate(op.operands[1:]) if v in found.values
                )  # fmt: skip
    return found


def _reached(op: Op, found: Active) -> Iterator[Value]:
    if op.name == "pop":
        yield from (v for k, v in enumerate(op.results) if (op.operands[0], k) in found.items)
    elif op.regions or op.definition in (custom.stopped, custom.custom, custom.replayed):
        if op.definition is custom.custom and any(v in found.values for v in custom.split(op, op.operands)[2]):
            yield from op.results
        yield from (b for a, b in act.edges(op) if a in found.values and act.is_float(b.type))
    elif any(v in found.values for v in op.operands):
        yield from (v for v in op.results if act.is_float(v.type) or _is_floats(v.type))


def _is_floats(t: Type) -> bool:
    return isinstance(t, ArrayType) and t.dtype.is_float


class _Forward(Rewriter):
    def __init__(self, kernel: Kernel, starts: Iterable[Value] | None = None) -> None:
        super().__init__(kernel)
        arrays = [p for p in kernel.params if _is_floats(p.type)]
        self.active = find_active(kernel, arrays if starts is None else starts)
        self.tangents: dict[Value, Value] = {}

    def make(self) -> Tangent:
        params = self.kernel.params
        floats = [p for p in params if _is_floats(p.type)]
        args = [Value(p.type, p.name, index=i) for i, p in enumerate(params)]
        rates = [Value(p.type, f"{p.name}_rate", index=len(params) + i) for i, p in enumerate(floats)]
        self.values.update(zip(params, args, strict=True))
        self.tangents.update(zip(floats, rates, strict=True))
        self.builder.block = body = Block((*args, *rates))
        with self.builder.active():
            self.ops(self.kernel.body)
        k = self.kernel
        apart = max(k.overlaps, default=0) + 1
        overlaps = k.overlaps and (*k.overlaps, *(apart + k.overlaps[p.index] for p in floats))
        made = Kernel(f"{k.name}_tangent", body, k.block_dim, k.grid_ndim, k.tiled, k.loc, overlaps)
        places = {p: len(params) + i for i, p in enumerate(floats)}
        return Tangent(made, tuple(places.get(p) for p in params))

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        with self.builder.at(op.loc):
            if op.regions:
                return self._region_op(op, operands)
            if op.definition.effect == "stack":
                return self._stack_op(op, operands)
            if op.name == "yield":
                return self.copy(op, operands)
            given = [self.tangents.get(v) for v in op.operands]
            results = self.copy(op, operands)
            if op.definition is custom.stopped:
                return results
            if any(t is not None for t in given):
                self.tangents.update(self._rates(op, operands, results, given))
            return results

    # --- plain ops ----------------------------------------------------------------------------------------------

    def _rates(
        self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], given: list[Value | None]
    ) -> dict[Value, Value]:
        """The tangents of the results of an op, given those of its operands."""
        floats = [k for k, v in enumerate(results) if act.is_float(v.type) or _is_floats(v.type)]
        writes = op.definition.effect in ("write", "atomic")
        if op.definition is custom.replayed:
            rates: Sequence[Value | None] = given[: len(results)]
        elif op.definition is custom.custom:
            rates = self._custom(op, operands, results, given)
        elif op.definition is custom.pullback:
            rates = self._pullback(op, operands, results, given)
        elif op.name in LINEAR:
            rates = self._linear(op, operands, results, given)
        elif not floats and not writes:
            return {}
        elif op.definition.adjoint is None or writes:
            reason = op.definition.no_gradient or "which update takes effect depends on the values"
            raise GradientUndefined(f"no derivative through `{op.name}`: {reason}", loc=op.loc)
        elif op.definition.elementwise is not None:
            rates = [self._elementwise(op, operands, results[0], given)]
        else:
            rates = self._transposed(op, operands, results, given)
        return {op.results[k]: r for k, r in enumerate(rates) if r is not None and k in floats}

    def _custom(
        self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], given: list[Value | None]
    ) -> Sequence[Value | None]:
        """The transpose of the user's rule, which is linear in the cotangents."""
        code: Fragment = op.attrs["code"]
        raws, inputs, arrays, others = custom.split(op, operands)
        _, rates, tangents, _ = custom.split(op, given)
        first = len(raws)
        places = [k for k in range(first, first + len(arrays)) if tangents[k - first] is not None]
        reads = [o.operands for o in code.block.walk() if o.definition.effect == "read"]
        if any(code.params[k] in operands for operands in reads for k in places):
            raise GradientUndefined(f"no forward derivative: `{code.name}` reads the gradient of an array", loc=op.loc)
        args = [*(zero(v.type) for v in raws), *arrays, *others]
        cts = [zero(v.type) if t is None else control.as_type(t, v.type) for v, t in zip(inputs, rates, strict=True)]
        into = [t for t in tangents if t is not None]
        return _results(custom.pullback(*args, *cts, *into, code=code, wrt=tuple(range(first)), into=tuple(places)))

    def _pullback(
        self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], given: list[Value | None]
    ) -> Sequence[Value | None]:
        """d(J(x)^T c) = J(x)^T dc + the pullback, with c, of the tangent of the code along dx."""
        code, wrt = op.attrs["code"], op.attrs["wrt"]
        if op.attrs["into"]:
            raise GradientUndefined(f"no second forward derivative through `{code.name}`", loc=op.loc)
        n = len(code.params)
        totals: list[Value | None] = [None] * len(results)

        def add(found: Sequence[Value]) -> None:
            for k, v in enumerate(found):
                old = totals[k]
                totals[k] = v if old is None else cast(Value, REGISTRY["add"](old, v))

        if any(t is not None for t in given[n:]):
            pairs = zip(operands[n:], given[n:], strict=True)
            cts = [zero(v.type) if t is None else control.as_type(t, v.type) for v, t in pairs]
            add(_results(custom.pullback(*operands[:n], *cts, code=code, wrt=wrt, into=())))
        moving = [k for k, t in enumerate(given[:n]) if t is not None]
        if moving:
            rates = [self._typed(given[k], operands[k].type) for k in moving]
            along = push_code(code, moving)
            add(_results(custom.pullback(*operands[:n], *rates, *operands[n:], code=along, wrt=wrt, into=())))
        return totals

    @staticmethod
    def _typed(t: Value | None, wanted: Type) -> Value:
        assert t is not None
        return control.as_type(t, wanted)

    def _linear(
        self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], given: list[Value | None]
    ) -> Sequence[Value | None]:
        """The op once more, on tangents in the place of floats."""
        replaced = [
            t if t is not None else zero(v.type) if act.is_float(v.type) else v
            for v, t in zip(operands, given, strict=True)
        ]
        attrs = {**op.attrs, "fill": 0} if "fill" in op.attrs else op.attrs
        types = tuple(v.type for v in results)
        return self.builder.insert(op.definition, tuple(replaced), attrs, types=types, loc=op.loc).results

    def _elementwise(
        self, op: Op, operands: tuple[Value, ...], result: Value, given: list[Value | None]
    ) -> Value | None:
        """The sum over the operands of derivative times tangent."""
        total: Value | None = None
        for k, t in enumerate(given):
            if t is None or not act.is_float(t.type) or not act.is_float(result.type):
                continue
            share = _shares(op, control.as_type(t, result.type), result, operands)[k]
            if share is not None:
                total = share if total is None else cast(Value, REGISTRY["add"](total, share))
        return total

    def _transposed(
        self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], given: list[Value | None]
    ) -> Sequence[Value | None]:
        """The adjoint rule of the op, which is linear in the cotangents of its results, reversed.

        The cotangents are ones: rules leave out what is multiplied by zero.
        """
        seeds = [_ones(v.type) if act.is_float(v.type) else None for v in results]
        first = len(self.builder.block.ops)
        single = len(results) == 1
        shares = _shares(op, seeds[0] if single else tuple(seeds), results[0] if single else results, operands)
        emitted = self.builder.block.ops[first:]
        cts = _Linear({s for s in seeds if s is not None}, emitted)
        for share, t in zip(shares, given, strict=True):
            if share is not None and t is not None:
                cts.add(share, t)
        cts.reverse()
        return [None if s is None else cts.found.get(s) for s in seeds]

    # --- regions and stacks -------------------------------------------------------------------------------------

    def _moving(self, values: Sequence[Value]) -> list[int]:
        return [k for k, v in enumerate(values) if v in self.active.values and act.is_float(v.type)]

    def _rate(self, v: Value) -> Value:
        """The tangent of an old value, zero if it has none."""
        found = self.tangents.get(v)
        return control.as_type(found, self.value(v).type) if found is not None else zero(self.value(v).type)

    def _region_op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        kind = op.name
        moving = self._moving(op.results)
        extra: list[Value] = []
        if kind == "map":
            mapped = [k for k, v in enumerate(op.operands) if v in self.active.values]
            extra = [self._rate(op.operands[k]) for k in mapped]
        elif kind != "if":
            moving = sorted({*moving, *self._moving(act.carried(op))})
            extra = [self._rate(act.initial(op)[k]) for k in moving]
        regions = []
        for block in op.regions:
            tested = kind == "while" and block is op.regions[0]
            lead = 1 if kind == "for" else 0
            twins = [] if kind == "if" else mapped if kind == "map" else [lead + k for k in moving]
            regions.append(self._region(block, twins, [] if tested else moving))
        types = (*(v.type for v in op.results), *(op.results[k].type for k in moving))
        made = self.builder.insert(op.definition, (*operands, *extra), op.attrs, tuple(regions), types, op.loc).results
        count = len(op.results)
        self.tangents.update({op.results[k]: t for k, t in zip(moving, made[count:], strict=True)})
        return made[:count]

    def _region(self, block: Block, twins: Sequence[int], moving: Sequence[int]) -> Block:
        """A region whose arguments at `twins` come with tangents, and whose yields at `moving` do."""
        types = [a.type for a in block.args]
        with self.builder.region(*types, *(types[k] for k in twins)) as made:
            self.values.update(zip(block.args, made.args, strict=False))
            rates = made.args[len(types) :]
            self.tangents.update({block.args[k]: t for k, t in zip(twins, rates, strict=True)})
            for inner in block.ops[:-1]:
                results = self.op(inner, tuple(self.value(v) for v in inner.operands))
                self.values.update(zip(inner.results, results, strict=True))
            yields = [self.value(v) for v in block.yields]
            yields += [control.as_type(self._rate(block.yields[k]), yields[k].type) for k in moving]
            control.finish(self.builder, yields)
        return made

    def _stack_op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        """A stack of values gets the tangents as further items."""
        stack = op.result if op.name == "stack" else op.operands[0]
        assert isinstance(stack.type, StackType)
        moving = [k for k in range(len(stack.type.items)) if (stack, k) in self.active.items]
        if op.name == "stack":
            items = (*stack.type.items, *(stack.type.items[k] for k in moving))
            attrs = {**op.attrs, "items": items}
            t = StackType(items, stack.type.varying)
            return self.builder.insert(op.definition, (), attrs, types=(t,), loc=op.loc).results
        if op.name == "push":
            rates = [control.as_type(self._rate(op.operands[1 + k]), operands[1 + k].type) for k in moving]
            self.builder.insert(op.definition, (*operands, *rates), op.attrs, loc=op.loc)
            return ()
        types = (*(v.type for v in op.results), *(op.results[k].type for k in moving))
        made = self.builder.insert(op.definition, operands, op.attrs, types=types, loc=op.loc).results
        count = len(op.results)
        self.tangents.update({op.results[k]: t for k, t in zip(moving, made[count:], strict=True)})
        return made[:count]


def _results(made: Any) -> Sequence[Value]:
    return made if isinstance(made, tuple) else (made,) if made is not None else ()


def _ones(t: Type) -> Value:
    """A value of ones."""
    number = constant(1.0, dtype_of(t))
    if isinstance(t, TileType):
        return cast(Value, REGISTRY["tile_full"](number, shape=t.shape))
    return control.as_type(number, t)


def _shares(op: Op, ct: Any, out: Any, operands: Sequence[Value]) -> list[Value | None]:
    """What the adjoint rule of an op hands to each operand."""
    assert op.definition.adjoint is not None
    try:
        found = op.definition.adjoint(ct, out, *operands, **op.attrs)
    except TilegradError as error:
        raise error.at(op.loc) from None
    listed = found if isinstance(found, tuple) else (found,)
    return [s if isinstance(s, Value) else None for s in listed]


class _Linear:
    """Reverses ops that were emitted in a row, for the values that depend on the `seeds`."""

    def __init__(self, seeds: set[Value], ops: Sequence[Op]) -> None:
        self.ops = ops
        self.found: dict[Value, Value] = {}
        self.depends = set(seeds)
        for op in ops:
            if any(v in self.depends for v in _used(op)):
                if op.regions:
                    raise GradientUndefined("no forward derivative: the adjoint has control flow", loc=op.loc)
                self.depends.update(op.results)

    def add(self, v: Value, ct: Value) -> None:
        if v in self.depends:
            old = self.found.get(v)
            self.found[v] = ct if old is None else cast(Value, REGISTRY["add"](old, ct))

    def reverse(self) -> None:
        for op in reversed(self.ops):
            cts = [self.found.get(v) for v in op.results]
            if op.regions or all(ct is None for ct in cts) or not any(v in self.depends for v in op.operands):
                continue
            pairs = zip(op.results, cts, strict=True)
            full = [zero(v.type) if ct is None and act.is_float(v.type) else ct for v, ct in pairs]
            single = len(full) == 1
            outs = op.results[0] if single else op.results
            shares = _shares(op, full[0] if single else tuple(full), outs, op.operands)
            for v, share in zip(op.operands, shares, strict=True):
                if share is not None:
                    self.add(v, share)


def _used(op: Op) -> Iterable[Value]:
    yield from op.operands
    for region in op.regions:
        for inner in region.ops:
            yield from _used(inner)
