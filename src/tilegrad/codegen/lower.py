"""Walks a scheduled kernel and emits its code: block by block, stage by stage, op by op through each op's lowering.

Values are found in scopes: one per loop body or branch, since a register is only known where it was computed. A pure
op is computed where its result is first asked for. Does not know how an instruction is written (see `registers`)
nor how memory is reached (see `memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

from tilegrad import dtypes as dt
from tilegrad.codegen.memory import MemoryEmitter
from tilegrad.codegen.registers import apply_elementwise
from tilegrad.diagnostics import CompilerBug
from tilegrad.emit import ArrayRef, Buffer, Coord, Index, Reg
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, TileType, dtype_of, is_varying, shape_of
from tilegrad.ops.control import constant, for_, if_, map_, pop, push, spread, stack, while_
from tilegrad.ops.elements import TOO_LONG
from tilegrad.schedule.facts import TILE_ACCESS, alias_source, is_pure
from tilegrad.schedule.stages import Control, Group, Lanes, Scalar, Schedule, Stage, Whole, in_register, stored_type
from tilegrad.schedule.sums import find_sums


class TileSource:
    """A tile operand of a point op: reads its slot, or computes the element."""

    __slots__ = ("lowering", "value")

    def __init__(self, lowering: Lowering, value: Value) -> None:
        self.lowering = lowering
        self.value = value

    @property
    def dtype(self) -> dt.DType:
        return dtype_of(self.value.type)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value.type)

    def at(self, index: Index) -> Reg:
        return self.lowering.element(self.value, index)


class Lowering:
    """Emits the code of one block of the grid."""

    #: the group in hand takes its unguarded path
    fast = False

    def __init__(self, kernel: Kernel, plan: Schedule, e: MemoryEmitter, scratch: str) -> None:
        self.kernel = kernel
        self.sums = find_sums(kernel)
        self.plan = plan
        self.e = e
        self.scratch = scratch
        self.scopes: list[dict[Any, Any]] = [{}]
        #: the first lane of the vector in hand, while lane code is emitted
        self.lane_base: Reg | int = 0
        self.lane_index: Index | None = None
        #: coordinates of that lane in the grid, while a vector of lanes lies in one row of it
        self.thread_base: list[Reg] = []
        #: temporary memory behind the slots: bytes in use, and the most that ever are
        self.used_bytes = 0
        self.extra_bytes = 0
        self.grid: list[Reg] = []
        self.ordered = False
        self.prints = False
        self.stacks: dict[Value, tuple[str, int]] = {}

    # --- scopes -----------------------------------------------------------------------------------------------------
    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def bind(self, v: Any, what: Any) -> None:
        self.scopes[-1][v] = what

    def known(self, v: Any) -> Any:
        for scope in reversed(self.scopes):
            found = scope.get(v)
            if found is not None:
                return found
        return None

    # --- values -----------------------------------------------------------------------------------------------------
    def array(self, v: Value) -> ArrayRef:
        found = self.known(v)
        if found is None:
            assert v.op is not None
            found = self._run(v.op)
            self.bind(v, found)
        assert isinstance(found, ArrayRef)
        return found

    def reg(self, v: Value) -> Reg:
        """The register of a scalar, or of a tile of one element."""
        found = self.known(v)
        if found is not None:
            assert isinstance(found, Reg)
            return found
        if v in self.plan.slots and not (isinstance(v.type, ScalarType) and v.op is not None and is_pure(v.op)):
            result = self._from_slot(v)
        elif isinstance(v.type, TileType):
            result = self.element(v, (Coord(0),) * v.type.ndim)
        else:
            if v.op is None:
                raise CompilerBug(f"the value {v!r} has no register")
            if not is_pure(v.op):
                raise CompilerBug(f"the result of {v.op!r} is read before it is computed", loc=v.op.loc)
            result = self._run(v.op)
        self.bind(v, result)
        return result

    def _from_slot(self, v: Value) -> Reg:
        if isinstance(v.type, TileType):
            return self.e.load(self.buffer(v), (Coord(0),) * v.type.ndim)
        if self.lane_index is None:
            raise CompilerBug(f"a lane value is read outside of lane code: {v!r}")
        return self.e.load(self.buffer(v), self.lane_index)

    def buffer(self, v: Value) -> Buffer:
        """The scratch memory of a stored tile or lane value."""
        slot = self.plan.slots[alias_source(v)]
        t = stored_type(v, self.kernel.block_dim)
        return Buffer(t.dtype, self.e.element_offset(self.scratch, dt.uint8, None, slot.offset), t.shape)

    def is_stored(self, v: Value) -> bool:
        return alias_source(v) in self.plan.slots

    def element(self, v: Value, index: Index) -> Reg:
        """One element (or a vector of them) of a tile, from its slot, its register, or computed on the spot."""
        if self.is_stored(v):
            key = (v, _key(index))
            found = self.known(key)
            if found is None:
                found = self.e.load(self.buffer(v), index)
                self.bind(key, found)
            return cast(Reg, found)
        if in_register(v):
            found = self.known(v)
            if found is not None:
                return cast(Reg, found)
        key = (v, _key(index))
        found = self.known(key)
        if found is None:
            assert v.op is not None
            found = self._point(v.op, v, index)
            self.bind(key, found)
        return cast(Reg, found)

    def _point(self, op: Op, v: Value, index: Index) -> Reg:
        if op.definition is map_:
            return self.map_point(op, index)[v.index]
        if op.definition.cls != "point":
            raise CompilerBug(f"the tile of {op!r} is read before it is computed", loc=op.loc)
        with self._located(op):
            if op.definition.elementwise is not None:
                regs = [self.element(x, index) if isinstance(x.type, TileType) else self.reg(x) for x in op.operands]
                return apply_elementwise(self.e, op.definition, regs, op.attrs)
            with self.guarded(op) if op.definition.effect != "none" else nullcontext():
                return cast(Reg, op.definition.lowered(self.e, index, *self._operands(op), **op.attrs))

    @contextmanager
    def guarded(self, op: Op) -> Iterator[None]:
        """Inside the context the op's array accesses go unguarded if the group has shown that they lie inside."""
        outer, self.e.inside = self.e.inside, self.fast and op.definition.name in TILE_ACCESS
        try:
            yield
        finally:
            self.e.inside = outer

    def bind_element(self, v: Value, index: Index, reg: Reg) -> None:
        """Remember an element of a tile at an index, for the other readers in the same loop body."""
        self.bind((v, _key(index)), reg)

    def known_element(self, v: Value, index: Index) -> Reg | None:
        """An element that was computed before in the same loop body."""
        return cast("Reg | None", self.known((v, _key(index))))

    def map_point(self, op: Op, index: Index) -> list[Reg]:
        """Run the region of a map at one index (or a vector of them)."""
        outer, self.lane_index = (self.lane_index, self.e.inside), ()  # the elements are the lanes here
        self.e.inside = False  # what the group has shown concerns its tiles, not the elements that the region reads
        with self.scope():
            for arg, tile in zip(op.regions[0].args, op.operands, strict=True):
                self.bind(arg, self.e.splat(self.element(tile, index)))
            results = self.region(op.regions[0])
        self.lane_index, self.e.inside = outer
        for result, reg in zip(op.results, results, strict=True):
            self.bind((result, _key(index)), reg)
        return results

    @contextmanager
    def _located(self, op: Op) -> Iterator[None]:
        outer = self.e.loc, self.e.message
        self.e.loc, self.e.message = op.loc, str(op.attrs.get("message", ""))
        try:
            yield
        finally:
            self.e.loc, self.e.message = outer

    def _operands(self, op: Op) -> list[Any]:
        return [self.operand(x) for x in op.operands]

    def operand(self, x: Value) -> Any:
        if isinstance(x.type, ArrayType):
            return self.array(x)
        if isinstance(x.type, TileType):
            return TileSource(self, x)
        return self.reg(x)

    def _run(self, op: Op) -> Any:
        """The result of an op on scalars and arrays."""
        definition = op.definition
        if definition is constant:
            return self.e.const(op.attrs["value"], op.attrs["dtype"])
        if definition is spread:
            return self.reg(op.operands[0])
        special = getattr(self, f"_run_{definition.name}", None)
        with self._located(op):
            if special is not None:
                return special(op)
            if definition.elementwise is not None:
                return apply_elementwise(self.e, definition, [self.reg(x) for x in op.operands], op.attrs)
            if definition.cls == "block":
                outs: list[Any] = []
                definition.lowered(self.e, outs, *self._whole_operands(op), **op.attrs)
                return outs[0]
            if definition.cls == "point":
                return definition.lowered(self.e, self.lane_index, *self._operands(op), **op.attrs)
            operands = self._operands(op)
            if definition.effect == "atomic":  # an update of every lane stays one, also where their values are equal
                operands = [
                    self.e.splat(r) if is_varying(x.type) else r for r, x in zip(operands, op.operands, strict=True)
                ]
            return definition.lowered(self.e, *operands, **op.attrs)

    # --- ops that only the code generator can lower -----------------------------------------------------------------
    def _run_lane_id(self, op: Op) -> Reg:
        return self._lane_vector(dt.int32, self.e.cast(self.e.i64(self.lane_base), dt.int32))

    def _lane_vector(self, dtype: dt.DType, base: Reg) -> Reg:
        result = self.e.add(base, self.e.iota(dtype)) if self.e.width > 1 else base
        self.e.note_affine(result, base, 1 if self.e.width > 1 else 0)
        return result

    def _run_block_id(self, op: Op) -> Reg:
        if not self.kernel.tiled:
            return self.e.cast(self.e.block_id, dtype_of(op.result.type))
        return self.e.cast(self._coordinate(self.e.block_id, op.attrs["axis"]), dtype_of(op.result.type))

    def _run_thread_id(self, op: Op) -> Reg:
        e, axis, dtype = self.e, op.attrs["axis"], dtype_of(op.result.type)
        if self.thread_base:
            base = e.cast(self.thread_base[axis], dtype)
            return self._lane_vector(dtype, base) if axis == self.kernel.grid_ndim - 1 else base
        first = e.mul(e.block_id, e.const(self.kernel.block_dim, dt.int64))
        linear = e.add(first, e.i64(self.lane_base))
        if self.kernel.grid_ndim == 1:
            return self._lane_vector(dtype, e.cast(linear, dtype))
        return e.cast(self._coordinate(linear, axis), dtype)

    def _coordinate(self, linear: Reg, axis: int) -> Reg:
        """One coordinate of a row-major linear index into the launch's grid."""
        e = self.e
        inner: Reg | None = None
        for extent in self.grid[axis + 1 : self.kernel.grid_ndim]:
            inner = extent if inner is None else e.mul(inner, extent)
        q = linear if inner is None else e.div(linear, inner)
        return q if axis == 0 else e.rem(q, self.grid[axis])

    def _run_lane_count(self, op: Op) -> Reg:
        return self.e.cast(self.e.lane_count, dt.int32)

    def _run_array_shape(self, op: Op) -> Reg:
        e, extent = self.e, self.array(op.operands[0]).shape[op.attrs["axis"]]
        e.message = TOO_LONG
        e.check(e.compare("le", extent, e.const(dt.int32.max, dt.int64)), "value", extent)
        return e.cast(extent, dt.int32)

    def _run_array_row(self, op: Op) -> ArrayRef:
        """A part of an array; a wrong index is reported, and then the part has no elements."""
        e = self.e
        source, index = self.array(op.operands[0]), [e.i64(self.reg(x)) for x in op.operands[1:]]
        ptr, shape = source.ptr, list(source.shape[len(index) :])
        for axis, i in enumerate(index):
            extent = source.shape[axis]
            j = e.select(e.compare("lt", i, e.const(0, dt.int64)), e.add(i, extent), i)
            ok = e.compare("lt", e.bitcast(j, dt.uint64), e.bitcast(extent, dt.uint64))
            e.check_index(ok, i, axis, extent)
            shape = [e.select(ok, n, e.const(0, dt.int64)) for n in shape]
            ptr = e.byte_offset(ptr, e.mul(e.select(ok, j, e.const(0, dt.int64)), source.strides[axis]))
        return replace(source, ptr=ptr, shape=shape, strides=list(source.strides[len(index) :]))

    def _run_array_component(self, op: Op) -> ArrayRef:
        """The elements whose last indices are constant."""
        e, source, index = self.e, self.array(op.operands[0]), op.attrs["index"]
        ptr, kept = source.ptr, source.ndim - len(index)
        for i, stride in zip(index, source.strides[kept:], strict=True):
            ptr = e.byte_offset(ptr, e.mul(e.const(i, dt.int64), stride)) if i else ptr
        shape, strides = list(source.shape[:kept]), list(source.strides[:kept])
        return replace(source, ptr=ptr, shape=shape, strides=strides, dense_rows=False)

    # --- stages -----------------------------------------------------------------------------------------------------
    def stages(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if isinstance(stage, Scalar):
                self._effect(stage.op)
            elif isinstance(stage, Group):
                self.group(stage)
            elif isinstance(stage, Lanes):
                self.lanes(stage)
            elif isinstance(stage, Whole):
                self._whole(stage.op)
            else:
                self._control(stage)

    def group(self, stage: Group) -> None:
        raise NotImplementedError

    def lanes(self, stage: Lanes) -> None:
        raise NotImplementedError

    def _whole_operands(self, op: Op) -> list[Any]:
        return [self._whole_operand(x) for x in op.operands]

    def _whole_operand(self, x: Value) -> Any:
        if isinstance(x.type, ArrayType):
            return self.array(x)
        if isinstance(x.type, TileType) or (is_varying(x.type) and self.lane_index is None):
            return self.buffer(x)
        return self.reg(x)

    def _whole(self, op: Op) -> None:
        with self.scope(), self._located(op):
            outs: list[Any] = [self.buffer(v) for v in op.results if isinstance(v.type, TileType)]
            used = self.used_bytes
            op.definition.lowered(self.e, outs, *self._whole_operands(op), **op.attrs)
            self.used_bytes = used
        self._forget_memory()
        if op.results and not isinstance(op.results[0].type, TileType):
            self.bind(op.result, outs[-1])

    def _forget_memory(self) -> None:
        """Drop remembered elements of slots after memory was written."""
        for scope in self.scopes:
            for key in [k for k in scope if isinstance(k, tuple)]:
                del scope[key]

    def _effect(self, op: Op) -> None:
        if self.takes_turns(op):
            self.acquire()
        result = self._run(op)
        if op.results and result is not None:
            self.bind(op.result, result)

    def takes_turns(self, op: Op) -> bool:
        """Whether the op, or one inside it, updates an array in the order of the blocks."""
        return self.sums.takes_turns(op) or any(self.takes_turns(o) for region in op.regions for o in region.ops)

    def acquire(self) -> None:
        """Wait until all earlier blocks have finished their atomic updates."""
        raise NotImplementedError

    # --- uniform control flow ---------------------------------------------------------------------------------------
    def _control(self, stage: Control) -> None:
        op = stage.op
        handler = {if_: self._if, for_: self._for, while_: self._while}[op.definition]
        regs = handler(op, stage.regions)
        self._forget_memory()
        for v, r in zip(self._in_regs(op.results), regs, strict=True):
            self.bind(v, r)

    def _in_regs(self, values: Sequence[Value]) -> list[Value]:
        return [v for v in values if not self.is_stored(v)]

    def _region_stages(self, block: Block, stages: list[Stage], results: Sequence[Value]) -> list[Reg]:
        """Emit a region, move stored results to their slots, and return the others."""
        with self.scope():
            self.stages(stages)
            self._move([(y, r) for y, r in zip(block.yields, results, strict=True) if self.is_stored(r)])
            return [self.reg(y) for y, r in zip(block.yields, results, strict=True) if not self.is_stored(r)]

    def _move(self, pairs: list[tuple[Value, Value]]) -> None:
        """Copy values to the slots of others, as if all at once."""
        slots = self.plan.slots
        single = [(self.reg(a), b) for a, b in pairs if not self.is_stored(a)]  # tiles of one element in registers
        todo = [(a, b) for a, b in pairs if self.is_stored(a) and slots[alias_source(a)] is not slots[b]]
        targets = {slots[b] for _, b in todo}
        staged = []
        for a, b in todo:
            source = self.buffer(a)
            if slots[alias_source(a)] in targets:
                copy = self.temporary(source.dtype, source.shape)
                self.e.copy(copy, source)
                source = copy
            staged.append((source, self.buffer(b)))
        for source, target in staged:
            self.e.copy(target, source)
        for r, b in single:
            target = self.buffer(b)
            self.e.store(target, (Coord(0),) * len(target.shape), r)

    def temporary(self, dtype: dt.DType, shape: tuple[int, ...]) -> Buffer:
        """Scratch memory that lasts until the end of the block op in hand."""
        t = TileType(dtype, shape)
        offset = self.plan.scratch_bytes + self.used_bytes
        self.used_bytes += -(-(t.size * dtype.size + 64) // 64) * 64
        self.extra_bytes = max(self.extra_bytes, self.used_bytes)
        return Buffer(dtype, self.e.element_offset(self.scratch, dt.uint8, None, offset), shape)

    def _if(self, op: Op, regions: list[list[Stage]]) -> list[Reg]:
        then, otherwise = (
            (lambda block=block, stages=stages: self._region_stages(block, stages, op.results))
            for block, stages in zip(op.regions, regions, strict=True)
        )
        return self.e.branch(self.reg(op.operands[0]), then, otherwise)

    def _for(self, op: Op, regions: list[list[Stage]]) -> list[Reg]:
        start, stop, step, *init = op.operands
        block = op.regions[0]
        carried = block.args[1:]
        self._move([(v, a) for v, a in zip(init, carried, strict=True) if self.is_stored(a)])
        inits = [self.reg(v) for v, a in zip(init, carried, strict=True) if not self.is_stored(a)]

        def body(i: Reg, *regs: Reg) -> Sequence[Reg]:
            with self.scope():
                self.bind(block.args[0], i)
                for v, r in zip(self._in_regs(carried), regs, strict=True):
                    self.bind(v, r)
                return self._region_stages(block, regions[0], carried)

        return self.counted(self.reg(start), self.reg(stop), self.reg(step), inits, body)

    def counted(
        self, start: Reg, stop: Reg, step: Reg, inits: list[Reg], body: Callable[..., Sequence[Reg]]
    ) -> list[Reg]:
        """range(start, stop, step) of any sign; the index has the dtype of `start`."""
        e, dtype = self.e, start.dtype
        a, b, s = e.i64(start), e.i64(stop), e.i64(step)
        zero, one = e.const(0, dt.int64), e.const(1, dt.int64)
        up = e.compare("gt", s, zero)
        size = e.select(up, s, e.neg(s))
        size = e.select(e.compare("eq", size, zero), one, size)
        span = e.select(up, e.sub(b, a), e.sub(a, b))
        count = e.div(e.add(span, e.sub(size, one)), size)
        count = e.select(e.compare("gt", span, zero), count, zero)
        count = e.select(e.compare("eq", s, zero), zero, count)
        return e.loop(0, count, 1, inits, lambda k, *regs: body(e.cast(e.add(a, e.mul(k, s)), dtype), *regs))

    def _while(self, op: Op, regions: list[list[Stage]]) -> list[Reg]:
        test, block = op.regions
        self._move([(v, a) for v, a in zip(op.operands, block.args, strict=True) if self.is_stored(a)])
        inits = [self.reg(v) for v, a in zip(op.operands, block.args, strict=True) if not self.is_stored(a)]

        def condition(*regs: Reg) -> Reg:
            with self.scope():
                for v, r in zip(self._in_regs(test.args), regs, strict=True):
                    self.bind(v, r)
                self.stages(regions[0])
                return self.reg(test.yields[0])

        def body(*regs: Reg) -> Sequence[Reg]:
            with self.scope():
                for v, r in zip(self._in_regs(block.args), regs, strict=True):
                    self.bind(v, r)
                return self._region_stages(block, regions[1], block.args)

        return self.e.while_loop(inits, condition, body)

    # --- lane code: regions run for a vector of lanes, or of elements of a map --------------------------------------
    def region(self, block: Block) -> list[Reg]:
        """Run a region of lane code and return what it yields."""
        for op in block.ops[:-1]:
            if not is_pure(op):
                self.lane_op(op)
        return [self.e.splat(self.reg(y)) if is_varying(y.type) else self.reg(y) for y in block.yields]

    def lane_op(self, op: Op) -> None:
        handlers = {
            if_: self._lane_if,
            for_: self._lane_for,
            while_: self._lane_while,
            stack: self._stack,
            push: self._push,
            pop: self._pop,
        }
        handler = handlers.get(op.definition)
        if handler is None:
            self._effect(op)
            return
        for v, r in zip(op.results, handler(op), strict=True):
            self.bind(v, r)

    def _scoped(self, block: Block) -> list[Reg]:
        with self.scope():
            return self.region(block)

    def _lane_if(self, op: Op) -> list[Reg]:
        e, condition = self.e, self.reg(op.operands[0])
        then, otherwise = op.regions
        if condition.width == 1:
            return e.branch(condition, lambda: self._wide(op, then), lambda: self._wide(op, otherwise))
        results = []
        for block, mask in ((then, condition), (otherwise, e.not_(condition))):
            results.append(self._masked_region(op, block, mask))
        return [e.select(condition, a, b) for a, b in zip(*results, strict=True)]

    def _wide(self, op: Op, block: Block) -> list[Reg]:
        regs = self._scoped(block)
        return [self.e.splat(r) if is_varying(v.type) else r for v, r in zip(op.results, regs, strict=True)]

    def _masked_region(self, op: Op, block: Block, mask: Reg) -> list[Reg]:
        """Run a branch for the lanes of `mask`, skipping it when there are none."""
        e = self.e
        with e.masked(mask):
            active = e.mask
            assert active is not None
            zeros = [e.splat(e.zero(dtype_of(v.type))) for v in op.results]
            return e.branch(e.any(active), lambda: [e.splat(r) for r in self._scoped(block)], lambda: zeros)

    def _lane_for(self, op: Op) -> list[Reg]:
        start, stop, step, *init = op.operands
        block = op.regions[0]
        inits = self._lane_inits(init, block.args[1:])

        def body(i: Reg, *regs: Reg) -> Sequence[Reg]:
            with self.scope():
                self._bind_all(block.args, (i, *regs))
                return self._lane_inits(self._after(block), block.args[1:])

        return self.counted(self.reg(start), self.reg(stop), self.reg(step), inits, body)

    def _lane_while(self, op: Op) -> list[Reg]:
        test, block = op.regions

        def condition(*regs: Reg) -> Reg:
            with self.scope():
                self._bind_all(test.args, regs)
                return self.region(test)[0]

        def body(*regs: Reg) -> Sequence[Reg]:
            with self.scope():
                self._bind_all(block.args, regs)
                return self._lane_inits(self._after(block), block.args)

        return self.e.while_loop(self._lane_inits(op.operands, block.args), condition, body)

    def _after(self, block: Block) -> Sequence[Value]:
        for op in block.ops[:-1]:
            if not is_pure(op):
                self.lane_op(op)
        return block.yields

    def _lane_inits(self, values: Sequence[Value], args: Sequence[Value]) -> list[Reg]:
        return [
            self.e.splat(self.reg(v)) if is_varying(a.type) else self.reg(v) for v, a in zip(values, args, strict=True)
        ]

    def _bind_all(self, values: Sequence[Value], regs: Sequence[Reg]) -> None:
        for v, r in zip(values, regs, strict=True):
            self.bind(v, r)

    # --- stacks -----------------------------------------------------------------------------------------------------
    def _stack(self, op: Op) -> list[Any]:
        raise NotImplementedError

    def _push(self, op: Op) -> list[Any]:
        raise NotImplementedError

    def _pop(self, op: Op) -> list[Any]:
        raise NotImplementedError


def _key(index: Index) -> tuple[Any, ...]:
    return tuple((c.base.name if isinstance(c.base, Reg) else c.base, c.step) for c in index)


def needs_scalar_code(op: Op) -> bool:
    """Whether lane code must run one lane at a time: loops of different length, stacks, or printing."""
    if op.definition in (stack, push, pop) or op.definition.effect == "print":
        return True
    if op.definition is for_ and any(is_varying(v.type) for v in op.operands[:3]):
        return True
    if op.definition is while_ and is_varying(op.regions[0].yields[0].type):
        return True
    return any(needs_scalar_code(inner) for region in op.regions for inner in region.ops)
