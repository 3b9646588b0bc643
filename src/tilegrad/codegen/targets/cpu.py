"""The CPU target: its facts, loops over points, whole-tile copies, products, and what a kernel asks of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.codegen.memory import MemoryEmitter
from tilegrad.codegen.registers import Target
from tilegrad.codegen.targets.cpu_matmul import each_product, emit_matmul
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Coord, Index, Reg


def _logical(x: Buffer, swap: bool) -> Buffer:
    """An operand with its axes in the order of the product."""
    if not swap:
        return x
    *batch, n, m = x.shape
    return Buffer(x.dtype, x.ptr, (*batch, m, n), swapped=1 not in (m, n))


def describe_cpu(features: dict[str, bool]) -> Target:
    """The facts of a CPU from the names of its features."""
    if features.get("avx512f"):
        return Target(16, 32, 64, True, '"prefer-vector-width"="512" "min-legal-vector-width"="512" nounwind')
    if features.get("avx2"):
        return Target(8, 16, 32, bool(features.get("f16c")), "nounwind")
    wide = bool(features.get("neon"))
    return Target(4, 32 if wide else 16, 16, wide, "nounwind")


class CpuEmitter(MemoryEmitter):
    """The Emitter of CPUs: one thread runs a block, so lanes take turns and never wait."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.params: list[str] = []
        self.name = ""
        self.make_temporary: Callable[[DType, tuple[int, ...]], Buffer]

    def begin_function(self, name: str, params: list[str]) -> None:
        self.name, self.params = name, params

    def finish_function(self) -> str:
        return self.f.module(self.name, self.params, self.target.attributes)

    # --- loops -----------------------------------------------------------------------------------------------------

    def points(self, shape: tuple[int, ...], body: Callable[[Index], None], width: int | None = None) -> None:
        """Run `body` over `shape`, vectors along the last axis; what is left over runs under a mask."""
        width = min(width or self.vector_width, 1 << max(0, shape[-1] - 1).bit_length())
        self._outer(shape, (), body, width)

    def _outer(self, shape: tuple[int, ...], at: Index, body: Callable[[Index], None], width: int) -> None:
        if len(at) == len(shape) - 1:
            self._along(shape[-1], at, body, width)
        elif shape[len(at)] == 1:
            self._outer(shape, (*at, Coord(0)), body, width)
        else:

            def turn(i: Reg) -> Sequence[Reg]:
                self._outer(shape, (*at, Coord(i)), body, width)
                return []

            self.loop(0, shape[len(at)], 1, [], turn)

    def _along(self, n: int, at: Index, body: Callable[[Index], None], width: int) -> None:
        outer, self.width = self.width, width
        step = 1 if width > 1 else 0

        def turn(i: Reg) -> Sequence[Reg]:
            body((*at, Coord(i, step)))
            return []

        whole = n // width
        if whole == 1:
            body((*at, Coord(0, step)))
        elif whole:
            self.loop(0, whole * width, width, [], turn)
        if whole * width < n:
            with self.masked(self.first_lanes(n - whole * width)):
                body((*at, Coord(whole * width, step)))
        self.width = outer

    # --- whole tiles -----------------------------------------------------------------------------------------------

    def scratch(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return self.make_temporary(dtype, shape)

    def copy(self, target: Buffer, source: Buffer) -> None:
        if target.ptr == source.ptr:
            return
        size = target.dtype.size
        for n in target.shape:
            size *= n
        self.f.declare("llvm.memmove.p0.p0.i64", "void", "ptr, ptr, i64, i1")
        self.f.do(f"call void @llvm.memmove.p0.p0.i64(ptr {target.ptr}, ptr {source.ptr}, i64 {size}, i1 false)")

    def matmul(self, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None, *, options: dict[str, Any]) -> None:
        a, b = (_logical(x, swap) for x, swap in zip((a, b), options.get("swap", (False, False)), strict=True))
        wide = dt.float32 if out.dtype.is_half else out.dtype
        shared = [math.prod(x.shape[:-2]) == 1 for x in (a, b)]  # what all products of the batch read is converted once
        a, b = (self._converted(x, wide) if once else x for x, once in zip((a, b), shared, strict=True))
        each_product(self, out, a, b, c, lambda *operands: self._multiply(wide, *operands))

    def _multiply(self, wide: DType, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
        """One product, computed in the dtype `wide`."""
        a, b = self._converted(a, wide), self._converted(b, wide)
        c = None if c is None else self._converted(c, wide)
        target = out if wide is out.dtype else self.make_temporary(wide, out.shape)
        emit_matmul(self, target, a, b, c)
        if target is not out:
            self._convert_tile(out, target)

    def _converted(self, x: Buffer, dtype: DType) -> Buffer:
        if x.dtype is dtype:
            return x
        result = replace(self.make_temporary(dtype, x.shape), swapped=x.swapped)
        self._convert_tile(result, x)
        return result

    def _convert_tile(self, target: Buffer, source: Buffer) -> None:
        size = math.prod(source.shape)
        flat, result = (Buffer(x.dtype, x.ptr, (size,)) for x in (source, target))

        def point(index: Index) -> None:
            self.store(result, index, self.cast(self.load(flat, index), target.dtype))

        self.points((size,), point)

    # --- threads and memory ------------------------------------------------------------------------------------------

    def wait_for(self, ticket: str, block: Reg) -> None:
        """Yield the processor until the ticket has reached this block."""
        self.f.declare("sched_yield", "i32", "")

        def waiting() -> Reg:
            now = Reg(self.f.let(f"load atomic i64, ptr {ticket} acquire, align 8"), dt.int64)
            return self.compare("ne", now, block)

        def give_way() -> Sequence[Reg]:
            self.f.let("call i32 @sched_yield()")
            return []

        self.while_loop([], waiting, give_way)

    def store_release(self, ptr: str, x: Reg) -> None:
        self.f.do(f"store atomic i64 {x.name}, ptr {ptr} release, align 8")

    def grow_stack(self, record: str, used: Reg, more: int) -> str:
        """The data of a stack with room for `more` bytes."""
        self.f.declare("realloc", "ptr", "ptr, i64")
        capacity_at = self.element_offset(record, dt.int64, None, 2)
        capacity = self.load_scalar(capacity_at, dt.int64, None, None)
        needed = self.add(used, self.const(more, dt.int64))

        def grow() -> Sequence[Reg]:
            doubled = self.add(self.mul(needed, self.const(2, dt.int64)), self.const(256, dt.int64))
            old = self.load_ptr(record, 0)
            new = self.f.let(f"call ptr @realloc(ptr {old}, i64 {doubled.name})")
            self.f.do(f"store ptr {new}, ptr {record}, align 8")
            self.store_scalar(capacity_at, doubled, None)
            return []

        self.branch(self.compare("gt", needed, capacity), grow, list)
        return self.load_ptr(record, 0)
