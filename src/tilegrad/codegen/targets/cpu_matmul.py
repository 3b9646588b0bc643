"""The register-blocked matrix product of CPUs.

A panel of rows times a panel of columns is accumulated in registers over the whole of k: vectors of b are loaded, the
elements of a are broadcast from memory. The panel sizes follow from the number and length of the vector registers;
rows are dealt out evenly, so that no panel is much smaller than the others. Operands are dense row-major tiles in
scratch memory with a vector of slack behind them, so whole vectors may be read past the end of the last row.
Does not convert dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad import dtypes as dt
from tilegrad.codegen.memory import MemoryEmitter
from tilegrad.emit import Buffer, Reg

#: Steps of k in one turn of the inner loop.
UNROLL = 4


@dataclass(frozen=True)
class Blocking:
    """How many rows and how many vectors of columns a panel has."""

    rows: int
    vectors: int


def choose_blocking(m: int, vectors: int, registers: int) -> Blocking:
    """The panel with the most multiplications per load among those whose accumulators fit in the registers."""
    best, best_cost = Blocking(1, 1), float("inf")
    for nv in range(1, min(4, vectors) + 1):
        mr = min(m, (registers - nv) // nv, 14)
        if mr < 1:
            continue
        rows = -(-m // -(-m // mr))
        groups = -(-vectors // nv)
        # loads per step of k over the whole product, and a charge for panels too small to hide the latency
        cost = groups * -(-m // rows) * (nv + rows) * (1 + 4 / (rows * nv))
        if cost < best_cost:
            best, best_cost = Blocking(rows, nv), cost
    return best


def emit_matmul(e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
    """out = a @ b (+ c) for 2-D operands of one dtype."""
    _Product(e, out, a, b, c).emit()


class _Product:
    def __init__(self, e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
        self.e, self.out, self.a, self.b, self.c = e, out, a, b, c
        self.m, self.k = a.shape
        self.n = b.shape[1]
        self.dtype = out.dtype
        self.lanes = max(1, min(e.target.vector_bytes // self.dtype.size, 1 << (self.n - 1).bit_length()))
        self.vectors = -(-self.n // self.lanes)
        self.blocking = choose_blocking(self.m, self.vectors, e.target.registers)

    def emit(self) -> None:
        outer, self.e.width = self.e.width, self.lanes
        first = 0
        while first < self.vectors:
            count = min(self.blocking.vectors, self.vectors - first)
            repeats = max(1, (self.n // self.lanes - first) // count)
            self._column_groups(first, count, repeats)
            first += count * repeats
        self.e.width = outer

    def _column_groups(self, first: int, count: int, repeats: int) -> None:
        if repeats == 1:
            self._rows(self.e.const(first * self.lanes, dt.int64), count, first)
            return

        def group(j: Reg) -> Sequence[Reg]:
            self._rows(j, count, None)
            return []

        step = count * self.lanes
        self.e.loop(first * self.lanes, (first + count * repeats) * self.lanes, step, [], group)

    def _rows(self, j: Reg, count: int, first: int | None) -> None:
        """All rows of one group of columns: panels of `rows`, then panels one row shorter, so that all are used up."""
        panels = -(-self.m // self.blocking.rows)
        rows = -(-self.m // panels)
        short = panels * rows - self.m
        self._panels(0, rows, panels - short, j, count, first)
        self._panels((panels - short) * rows, rows - 1, short, j, count, first)

    def _panels(self, top: int, rows: int, panels: int, j: Reg, count: int, first: int | None) -> None:
        if panels == 0 or rows == 0:
            return

        def panel(i: Reg) -> Sequence[Reg]:
            self._panel(i, rows, j, count, first)
            return []

        if panels == 1:
            panel(self.e.const(top, dt.int64))
        else:
            self.e.loop(top, top + panels * rows, rows, [], panel)

    def _panel(self, i: Reg, rows: int, j: Reg, count: int, first: int | None) -> None:
        e, size = self.e, self.dtype
        out = e.element_offset(self.out.ptr, size, e.add(e.mul(i, e.const(self.n, dt.int64)), j), 0)
        a = e.element_offset(self.a.ptr, size, e.mul(i, e.const(self.k, dt.int64)), 0)
        b = e.element_offset(self.b.ptr, size, j, 0)
        accs = self._start(i, j, rows, count)

        def turn(p: Reg, *regs: Reg) -> Sequence[Reg]:
            return self._steps(a, b, p, rows, count, list(regs), UNROLL)

        whole = self.k // UNROLL * UNROLL
        if whole:
            accs = e.loop(0, whole, UNROLL, accs, turn)
        if whole < self.k:
            accs = self._steps(a, b, e.const(whole, dt.int64), rows, count, accs, self.k - whole)
        self._finish(out, rows, count, accs, first)

    def _start(self, i: Reg, j: Reg, rows: int, count: int) -> list[Reg]:
        e = self.e
        if self.c is None:
            return [e.splat(e.zero(self.dtype))] * (rows * count)
        c = e.element_offset(self.c.ptr, self.dtype, e.add(e.mul(i, e.const(self.n, dt.int64)), j), 0)
        return [
            e.load_vector(e.element_offset(c, self.dtype, None, r * self.n + v * self.lanes), self.dtype, None, None)
            if self.lanes > 1
            else e.load_scalar(e.element_offset(c, self.dtype, None, r * self.n + v), self.dtype, None, None)
            for r in range(rows)
            for v in range(count)
        ]

    def _steps(self, a: str, b: str, p: Reg, rows: int, count: int, accs: list[Reg], steps: int) -> list[Reg]:
        e = self.e
        ap = e.element_offset(a, self.dtype, p, 0)
        bp = e.element_offset(b, self.dtype, e.mul(p, e.const(self.n, dt.int64)), 0)
        for u in range(steps):
            bs = [self._load(e.element_offset(bp, self.dtype, None, u * self.n + v * self.lanes)) for v in range(count)]
            for r in range(rows):
                x = e.load_scalar(e.element_offset(ap, self.dtype, None, r * self.k + u), self.dtype, None, None)
                for v in range(count):
                    accs[r * count + v] = self._fma(e.splat(x), bs[v], accs[r * count + v])
        return accs

    def _load(self, ptr: str) -> Reg:
        if self.lanes == 1:
            return self.e.load_scalar(ptr, self.dtype, None, None)
        return self.e.load_vector(ptr, self.dtype, None, None)

    def _fma(self, x: Reg, y: Reg, acc: Reg) -> Reg:
        return self.e.fma(x, y, acc) if self.dtype.is_float else self.e.add(self.e.mul(x, y), acc)

    def _finish(self, out: str, rows: int, count: int, accs: list[Reg], first: int | None) -> None:
        e = self.e
        for r in range(rows):
            for v in range(count):
                ptr = e.element_offset(out, self.dtype, None, r * self.n + v * self.lanes)
                if self.lanes == 1:
                    e.store_scalar(ptr, accs[r * count + v], None)
                    continue
                left = self.lanes if first is None else self.n - (first + v) * self.lanes
                e.store_vector(ptr, accs[r * count + v], e.first_lanes(left) if left < self.lanes else None)
