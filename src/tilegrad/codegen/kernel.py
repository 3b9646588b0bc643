"""The native function of a kernel: its entry, its loop over blocks, the order of atomic updates, and its stacks.

    void kernel(i64 first_block, i64 last_block, ptr args, ptr grid, ptr ctx)

`args` holds 8-byte slots: for an array its pointer, extents and byte strides, for a scalar its bits. `grid` is
i64[8]: the extents of the launch's dim, padded with 1 to four, then the number of threads (launch) or blocks. `ctx`
is the calling thread's context: scratch pointer, scratch bytes, error record, ticket, print buffer, stack area (see
`runtime.launch`). Blocks of a kernel with atomic updates take turns: block b may update once the ticket says b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.codegen.combine import private_dtype
from tilegrad.codegen.memory import Site
from tilegrad.codegen.nests import Nests
from tilegrad.codegen.registers import Target
from tilegrad.codegen.targets.cpu import CpuEmitter
from tilegrad.emit import ArrayRef, Buffer, Reg
from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, dtype_of, is_varying
from tilegrad.printing import WHOLE_BLOCK
from tilegrad.schedule.stages import Schedule

#: Byte offsets in the thread's context.
CTX_SCRATCH, CTX_ERROR, CTX_TICKET, CTX_PRINT, CTX_STACKS = 0, 16, 24, 32, 40
#: A stack is {ptr data, i64 used bytes, i64 capacity}.
STACK_BYTES = 24
#: Bytes before the values of a printed line: site, block and lane.
PRINT_HEADER = 24


@dataclass(frozen=True)
class Code:
    """LLVM IR of a kernel and what the runtime must know to run it."""

    text: str
    entry: str
    scratch_bytes: int
    stack_count: int
    ordered: bool
    prints: bool
    sites: tuple[Site, ...]
    #: parameters that groups of blocks add to apart, in memory of this dtype (see schedule.sums)
    sums: tuple[tuple[int, dt.DType], ...] = ()


def generate(kernel: Kernel, plan: Schedule, target: Target) -> Code:
    """The code of a scheduled kernel for a target."""
    e = CpuEmitter(target)
    e.begin_function(
        "kernel", ["i64 %first", "i64 %last", "ptr noalias %args", "ptr noalias %grid", "ptr noalias %ctx"]
    )
    lowering = KernelLowering(kernel, plan, e)
    lowering.emit()
    text = e.finish_function()
    scratch = plan.scratch_bytes + lowering.extra_bytes
    return Code(
        text, "kernel", scratch, lowering.stack_count, lowering.ordered, lowering.prints, tuple(e.sites),
        lowering.grouped,
    )  # fmt: skip


class KernelLowering(Nests):
    """Lowering of a whole kernel."""

    def __init__(self, kernel: Kernel, plan: Schedule, e: CpuEmitter) -> None:
        self.cpu = e
        super().__init__(kernel, plan, e, e.load_ptr("%ctx", CTX_SCRATCH))
        e.make_temporary = self.temporary
        e.error_ptr = e.load_ptr("%ctx", CTX_ERROR)
        self.stack_count = 0
        self.held = ""
        self.stack_places: dict[Op, int] = {}
        self.slots = 0
        self.grouped = tuple((p, private_dtype(dtype_of(kernel.params[p].type))) for p in self.sums.grouped)
        self._read_arguments()

    def _read_arguments(self) -> None:
        e, slot = self.e, 0
        self.grid = [e.load_i64("%grid", 8 * k) for k in range(4)]
        self.total = e.load_i64("%grid", 32)
        for v in self.kernel.params:
            if isinstance(v.type, ArrayType):
                n = v.type.ndim
                words = [e.load_i64("%args", 8 * (slot + 1 + k)) for k in range(2 * n)]
                strides = words[n:]
                if v.type.dense_rows and n:
                    strides[-1] = e.const(v.type.dtype.size, dt.int64)
                ptr = e.load_ptr("%args", 8 * slot)
                self.bind(v, ArrayRef(v.type.dtype, ptr, words[:n], strides, v.type.dense_rows))
                slot += 1 + 2 * n
            else:
                assert isinstance(v.type, ScalarType)
                self.bind(v, e.load_scalar(e.element_offset("%args", dt.int64, None, slot), v.type.dtype, None, None))
                slot += 1

        self.slots = slot

    def emit(self) -> None:
        e = self.e
        self.ordered = any(self.sums.takes_turns(op) for op in self.kernel.body.walk())
        self.prints = any(op.definition.effect == "print" for op in self.kernel.body.walk())
        if self.ordered:
            self.ticket = e.load_ptr("%ctx", CTX_TICKET)
            self.held = e.alloca(8)
        first, last = e.argument("%first"), e.argument("%last")

        def block(b: Reg) -> Sequence[Reg]:
            with self.scope():
                self._block(b)
            return []

        if not self.grouped:
            e.loop(first, last, 1, [], block)
            return
        size, blocks = e.load_i64("%args", 8 * self.slots), e.load_i64("%args", 8 * (self.slots + 1))

        def group(g: Reg) -> Sequence[Reg]:
            begin = e.mul(g, size)
            with self.scope():
                self._own_memory(g)
                e.loop(begin, e.minimum(e.add(begin, size), blocks), 1, [], block)
            return []

        e.loop(first, last, 1, [], group)

    def _own_memory(self, g: Reg) -> None:
        """Let the sums of this group be added up in its own memory, laid out as the arrays are."""
        e = self.e
        for k, (p, dtype) in enumerate(self.grouped):
            v = self.kernel.params[p]
            array = self.array(v)
            memory, shift, size, flags, flag_size = (8 * (self.slots + 2 + 5 * k + i) for i in range(5))
            origin = e.byte_offset(e.load_ptr("%args", memory), e.mul(g, e.load_i64("%args", size)))
            scale = e.const(dtype.size // array.dtype.size, dt.int64)
            self.bind(
                v,
                replace(
                    array,
                    dtype=dtype,
                    ptr=e.byte_offset(origin, e.load_i64("%args", shift)),
                    strides=[e.mul(s, scale) for s in array.strides],
                    origin=origin,
                    flags=e.byte_offset(e.load_ptr("%args", flags), e.mul(g, e.load_i64("%args", flag_size))),
                ),
            )

    def _block(self, turn: Reg) -> None:
        e = self.e
        size = e.const(self.kernel.block_dim, dt.int64)
        self.turn = e.block_id = b = turn
        if self.kernel.descending:
            last = (
                self.total if self.kernel.tiled else e.div(e.add(self.total, e.sub(size, e.const(1, dt.int64))), size)
            )
            e.block_id = b = e.sub(e.sub(last, e.const(1, dt.int64)), turn)
        self.e.lane_count = size
        if not self.kernel.tiled:
            rest = e.sub(self.total, e.mul(b, size))
            self.e.lane_count = e.minimum(rest, size)
        if self.ordered:
            e.store_scalar(self.held, e.const(0, dt.int64), None)
        self.stages(self.plan.stages)
        if self.ordered:
            self.acquire()
            self.cpu.store_release(self.ticket, e.add(turn, e.const(1, dt.int64)))

    def acquire(self) -> None:
        """Wait until all earlier blocks have finished their atomic updates."""
        e = self.e
        held = e.compare("ne", e.load_scalar(self.held, dt.int64, None, None), e.const(0, dt.int64))

        def wait() -> Sequence[Reg]:
            self.cpu.wait_for(self.ticket, self.turn)
            e.store_scalar(self.held, e.const(1, dt.int64), None)
            return []

        e.branch(held, list, wait)

    # --- stacks -----------------------------------------------------------------------------------------------------
    def _run_stack(self, op: Op) -> Any:
        """Empty the stack's record (or one per lane); its memory is kept from block to block."""
        t = op.result.type
        assert isinstance(t, StackType)
        if op not in self.stack_places:
            self.stack_places[op] = self.stack_count
            self.stack_count += self.kernel.block_dim if t.varying else 1
        record = self._record(self.stack_places[op], t.varying)
        self.e.store_scalar(self.e.element_offset(record, dt.int64, None, 1), self.e.const(0, dt.int64), None)
        return record

    def _record(self, place: int, varying: bool) -> str:
        e = self.e
        area = e.element_offset(e.load_ptr("%ctx", CTX_STACKS), dt.uint8, None, place * STACK_BYTES)
        if not varying:
            return area
        return e.byte_offset(area, e.mul(e.i64(self.lane_base), e.const(STACK_BYTES, dt.int64)))

    def _stack(self, op: Op) -> list[Any]:
        return [self._run_stack(op)]

    def stack_record(self, v: Value) -> str:
        """The record of a stack, wherever it is asked for (another lane loop, say)."""
        assert v.op is not None and isinstance(v.type, StackType)
        return self._record(self.stack_places[v.op], v.type.varying)

    def _push(self, op: Op) -> list[Any]:
        e = self.e
        record = self.stack_record(op.operands[0])
        size = sum(_item_bytes(v) for v in op.operands[1:])
        used = e.load_i64(record, 8)
        data = self.cpu.grow_stack(record, used, size)
        offset = 0
        for v in op.operands[1:]:
            self._put(e.element_offset(e.byte_offset(data, used), dt.uint8, None, offset), v)
            offset += _item_bytes(v)
        e.store_scalar(e.element_offset(record, dt.int64, None, 1), e.add(used, e.const(size, dt.int64)), None)
        return []

    def _pop(self, op: Op) -> list[Any]:
        e = self.e
        record = self.stack_record(op.operands[0])
        size = sum(_item_bytes(v) for v in op.results)
        used = e.sub(e.load_i64(record, 8), e.const(size, dt.int64))
        e.store_scalar(e.element_offset(record, dt.int64, None, 1), used, None)
        data = e.byte_offset(e.load_ptr(record, 0), used)
        results: list[Any] = []
        offset = 0
        for v in op.results:
            here = e.element_offset(data, dt.uint8, None, offset)
            if isinstance(v.type, TileType) and self.is_stored(v):
                e.copy(self.buffer(v), Buffer(v.type.dtype, here, v.type.shape))
                results.append(None)
            else:
                results.append(e.load_scalar(here, dtype_of(v.type), None, None))
            offset += _item_bytes(v)
        return results

    def _run_push(self, op: Op) -> None:
        self._push(op)

    def _effect(self, op: Op) -> None:
        if op.definition.name != "pop":
            super()._effect(op)
            return
        for v, r in zip(op.results, self._pop(op), strict=True):
            if r is not None:
                self.bind(v, r)

    # --- printing ---------------------------------------------------------------------------------------------------
    def _run_print(self, op: Op) -> None:
        """Append site, block, lane and the raw values to the print buffer, which is laid out like a stack."""
        e = self.e
        record = e.load_ptr("%ctx", CTX_PRINT)
        size = PRINT_HEADER + sum(_item_bytes(v) for v in op.operands)
        used = e.load_i64(record, 8)
        data = e.byte_offset(self.cpu.grow_stack(record, used, size), used)
        site = e.site("print", str(op.attrs["template"]), tuple(_layout(v) for v in op.operands))
        by_lane = any(is_varying(v.type) for v in op.operands) and self.lane_index
        lane = e.i64(self.lane_base if by_lane else WHOLE_BLOCK)
        for k, word in enumerate((e.const(site, dt.int64), e.block_id, lane)):
            e.store_scalar(e.element_offset(data, dt.int64, None, k), word, None)
        offset = PRINT_HEADER
        for v in op.operands:
            self._put(e.element_offset(data, dt.uint8, None, offset), v)
            offset += _item_bytes(v)
        e.store_scalar(e.element_offset(record, dt.int64, None, 1), e.add(used, e.const(size, dt.int64)), None)

    def _put(self, here: str, v: Value) -> None:
        """Write a value to memory outside of the slots."""
        if isinstance(v.type, TileType) and self.is_stored(v):
            self.e.copy(Buffer(v.type.dtype, here, v.type.shape), self.buffer(v))
        else:
            self.e.store_scalar(here, self.reg(v), None)


def _layout(v: Value) -> tuple[dt.DType, tuple[int, ...] | None]:
    assert isinstance(v.type, (ScalarType, TileType))
    return v.type.dtype, v.type.shape if isinstance(v.type, TileType) else None


def _item_bytes(v: Value) -> int:
    """Bytes of a value on a stack or in the print buffer, a multiple of 8."""
    t = v.type
    return -(-t.size * t.dtype.size // 8) * 8 if isinstance(t, TileType) else 8
