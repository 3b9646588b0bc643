"""The register-blocked matrix product of CPUs.

A panel of rows times a panel of columns is accumulated in registers over the whole of k: vectors of b are loaded, the
elements of a are broadcast from memory. The panel sizes follow from the number and length of the vector registers;
rows are dealt out evenly, so that no panel is much smaller than the others. With a single column the vectors run along
k instead, and are summed at the end. Operands are dense row-major tiles in
scratch memory with a vector of slack behind them, so whole vectors may be read past the end of the last row.
Does not convert dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilegrad import dtypes as dt
from tilegrad.codegen.memory import MemoryEmitter
from tilegrad.emit import Buffer, Reg

#: A single column shorter than this is not worth vectors along k.
SHORTEST_DOT = 8

#: Rows that a product with a single column works on at once.
DOT_ROWS = 8

#: From this many bytes on, the columns of b in hand are copied side by side: far apart they evict each other.
PACKED_BYTES = 1 << 19

#: Multiplications that the inner loop holds at most, over its unrolled steps of k.
UNROLLED = 64


@dataclass(frozen=True)
class Blocking:
    """How many rows and how many vectors of columns a panel has."""

    rows: int
    vectors: int


def choose_blocking(m: int, vectors: int, registers: int) -> Blocking:
    """The panel that takes the fewest cycles for the whole product, with little code on equal terms.

    Three quarters of the registers may hold sums; with more of them LLVM begins to spill.
    """
    panels = [
        Blocking(rows, v)
        for v in range(1, min(4, vectors) + 1)
        for rows in range(1, min(m, min(registers * 3 // 4, registers - v - 1) // v) + 1)
    ]
    return min(panels, key=lambda p: _cost(p, m, vectors))


def _cost(panel: Blocking, m: int, vectors: int) -> float:
    """Cycles for one step of k over the whole product; each further copy of the panel's code costs 2 %."""
    rows, short = _deal(m, panel.rows)
    groups, rest = divmod(vectors, panel.vectors)
    cycles, copies = 0.0, 0
    for v, repeats in ((panel.vectors, groups), (rest, 1 if rest else 0)):
        for r, count in rows, short:
            cycles += repeats * count * _panel_cycles(r, v)
            copies += 1 if repeats and count else 0
    return cycles * (1 + 0.02 * (copies - 1) + 0.0002 * panel.rows * panel.vectors)


def _panel_cycles(rows: int, vectors: int) -> float:
    """One step of k: bound by multiplications, by loads, or by the latency of the sums."""
    return max(rows * vectors, 1.2 * (rows + vectors), 10)


def _deal(m: int, rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """m rows in panels of at most `rows`: (rows, how many panels), and the same for panels one row shorter."""
    panels = -(-m // rows)
    rows = -(-m // panels)
    short = panels * rows - m
    return (rows, panels - short), (rows - 1, short)


def choose_unroll(k: int, panel: int) -> int:
    """Steps of k in one turn of the inner loop: few for large panels, and none left over if possible."""
    most = max(1, min(8, UNROLLED // panel))
    return min(range((most + 1) // 2, most + 1), key=lambda u: (k % u, -u))


def emit_matmul(e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
    """out = a @ b (+ c) for 2-D operands of one dtype."""
    if b.swapped:
        b = transposed(e, b)
    if a.swapped and b.shape[1] == 1:
        a = transposed(e, a)
    if b.shape[1] == 1 and a.shape[1] >= SHORTEST_DOT:
        _Dots(e, out, a, b, c).emit()
    else:
        _Product(e, out, a, b, c).emit()


Multiply = Callable[[Buffer, Buffer, Buffer, "Buffer | None"], None]


def each_product(e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None, multiply: Multiply) -> None:
    """Call `multiply` on the matrices of a batch: the leading axes, along which a and b are broadcast."""
    if math.prod(b.shape[:-2]) == 1:
        if b.swapped and math.prod(a.shape[:-2]) > 1:
            b = transposed(e, replace(b, shape=b.shape[-2:]))
        if not a.swapped or math.prod(a.shape[:-2]) == 1:  # the rows of all matrices are the rows of one
            c = None if c is None else _matrix(c)
            multiply(_matrix(out), _matrix(a), replace(b, shape=b.shape[-2:]), c)
            return
    _loops(e, batch_axes(out.shape, a.shape, b.shape), out, a, b, c, multiply)


def _matrix(x: Buffer) -> Buffer:
    """A batch of matrices as one, one below the other."""
    return replace(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))


#: extent of an axis of the batch, and the distance in elements from one matrix to the next in out, a and b
Axis = tuple[int, tuple[int, int, int]]


def batch_axes(out: Sequence[int], a: Sequence[int], b: Sequence[int]) -> list[Axis]:
    """The axes of a batch, neighbours joined where all three advance alike."""
    steps = [_steps_of(shape, len(out) - 2) for shape in (out, a, b)]
    axes: list[Axis] = []
    for n, *step in zip(out[:-2], *steps, strict=True):
        if n == 1:
            continue
        if axes and all(outer == inner * n for outer, inner in zip(axes[-1][1], step, strict=True)):
            n *= axes.pop()[0]
        axes.append((n, (step[0], step[1], step[2])))
    return axes


def _steps_of(shape: Sequence[int], batch: int) -> list[int]:
    """For each axis of the batch the distance between neighbours, 0 where the operand is broadcast."""
    own = [math.prod(shape[k + 1 :]) if n > 1 else 0 for k, n in enumerate(shape[:-2])]
    return [0] * (batch - len(own)) + own


def _loops(
    e: MemoryEmitter, axes: Sequence[Axis], out: Buffer, a: Buffer, b: Buffer, c: Buffer | None, multiply: Multiply
) -> None:
    if not axes:
        o, x, y = (replace(t, shape=t.shape[-2:]) for t in (out, a, b))
        multiply(o, x, y, None if c is None else replace(c, shape=c.shape[-2:]))
        return
    (n, steps), *inner = axes

    def turn(i: Reg) -> Sequence[Reg]:
        o, x, y = (_moved(e, t, i, step) for t, step in zip((out, a, b), steps, strict=True))
        _loops(e, inner, o, x, y, None if c is None else _moved(e, c, i, steps[0]), multiply)
        return []

    e.loop(0, n, 1, [], turn)


def _moved(e: MemoryEmitter, x: Buffer, i: Reg, step: int) -> Buffer:
    if step == 0:
        return x
    offset = e.mul(i, e.const(step, dt.int64))
    return replace(x, ptr=e.element_offset(x.ptr, x.dtype, offset, 0))


# --- transposing ------------------------------------------------------------------------------------------------------


def transposed(e: MemoryEmitter, x: Buffer) -> Buffer:
    """A copy of a matrix with swapped axes in row-major order, made in squares of vectors that stay in registers."""
    rows, columns = x.shape  # in memory: `columns` lines of `rows` elements
    result = e.scratch(x.dtype, x.shape)
    width = min(e.target.vector_bytes // x.dtype.size, 1 << (max(rows, columns) - 1).bit_length())
    outer, e.width = e.width, width

    def strip(j: Reg, lines: int) -> Sequence[Reg]:
        def square(i: Reg, kept: int) -> Sequence[Reg]:
            vectors = []
            for r in range(width):
                place = e.add(e.mul(e.add(j, e.const(r, dt.int64)), e.const(rows, dt.int64)), i)
                ptr = e.element_offset(x.ptr, x.dtype, place, 0)
                vectors.append(e.load_vector(ptr, x.dtype, None, None) if r < lines else e.splat(e.zero(x.dtype)))
            mask = e.first_lanes(lines) if lines < width else None
            for q, v in enumerate(e.transpose_square(vectors)[:kept]):
                place = e.add(e.mul(e.add(i, e.const(q, dt.int64)), e.const(columns, dt.int64)), j)
                e.store_vector(e.element_offset(result.ptr, x.dtype, place, 0), v, mask)
            return []

        return _strips(e, rows, width, square)

    _strips(e, columns, width, strip)
    e.width = outer
    return result


def _strips(e: MemoryEmitter, n: int, width: int, body: Callable[[Reg, int], Sequence[Reg]]) -> Sequence[Reg]:
    """body(first, how many) for every `width` of n, and for the rest."""
    whole = n // width * width
    if whole:
        e.loop(0, whole, width, [], lambda i: body(i, width))
    if whole < n:
        body(e.const(whole, dt.int64), n - whole)
    return []


class _Product:
    def __init__(self, e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
        self.e, self.out, self.a, self.b, self.c = e, out, a, b, c
        self.m, self.k = a.shape
        self.n = b.shape[1]
        self.dtype = out.dtype
        self.lanes = max(1, min(e.target.vector_bytes // self.dtype.size, 1 << (self.n - 1).bit_length()))
        self.vectors = -(-self.n // self.lanes)
        self.blocking = choose_blocking(self.m, self.vectors, e.target.registers)
        #: distances in elements from one row of a to the next, and from one column to the next
        self.a_steps = (1, self.m) if a.swapped else (self.k, 1)
        #: the columns in hand, packed, and the distance from one row of b to the next
        self.packed: Buffer | None = None
        self.b_step = self.n

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
        self._pack(j, count)
        (rows, panels), (fewer, short) = _deal(self.m, self.blocking.rows)
        self._panels(0, rows, panels, j, count, first)
        self._panels(panels * rows, fewer, short, j, count, first)

    def _pack(self, j: Reg, count: int) -> None:
        """Copy the columns in hand, if b is large and they are read by many panels."""
        e, dtype = self.e, self.dtype
        if self.k * self.n * dtype.size < PACKED_BYTES or self.m < 4 * self.blocking.rows:
            return
        packed = self.packed = e.scratch(dtype, (self.k, count * self.lanes))
        self.b_step = count * self.lanes

        def row(p: Reg) -> Sequence[Reg]:
            source = e.element_offset(self.b.ptr, dtype, e.add(e.mul(p, e.const(self.n, dt.int64)), j), 0)
            target = e.element_offset(packed.ptr, dtype, e.mul(p, e.const(self.b_step, dt.int64)), 0)
            for v in range(count):
                x = e.load_vector(e.element_offset(source, dtype, None, v * self.lanes), dtype, None, None)
                e.store_vector(e.element_offset(target, dtype, None, v * self.lanes), x, None)
            return []

        e.loop(0, self.k, 1, [], row)

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
        a = e.element_offset(self.a.ptr, size, e.mul(i, e.const(self.a_steps[0], dt.int64)), 0)
        b = self.packed.ptr if self.packed else e.element_offset(self.b.ptr, size, j, 0)
        accs = self._start(i, j, rows, count)

        def turn(p: Reg, *regs: Reg) -> Sequence[Reg]:
            return self._steps(a, b, p, rows, count, list(regs), unroll)

        unroll = choose_unroll(self.k, rows * count)
        whole = self.k // unroll * unroll
        if whole > unroll:
            accs = e.loop(0, whole, unroll, accs, turn)
        else:
            whole = 0
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
        down, along = self.a_steps
        ap = e.element_offset(a, self.dtype, e.mul(p, e.const(along, dt.int64)), 0)
        bp = e.element_offset(b, self.dtype, e.mul(p, e.const(self.b_step, dt.int64)), 0)
        for u in range(steps):
            row = u * self.b_step
            bs = [self._load(e.element_offset(bp, self.dtype, None, row + v * self.lanes)) for v in range(count)]
            for r in range(rows):
                x = e.load_scalar(e.element_offset(ap, self.dtype, None, r * down + u * along), self.dtype, None, None)
                for v in range(count):
                    accs[r * count + v] = _multiply_add(e, e.splat(x), bs[v], accs[r * count + v])
        return accs

    def _load(self, ptr: str) -> Reg:
        if self.lanes == 1:
            return self.e.load_scalar(ptr, self.dtype, None, None)
        return self.e.load_vector(ptr, self.dtype, None, None)

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


class _Dots:
    """A product with a single column: dot products of some rows at a time, each a vector of partial sums."""

    def __init__(self, e: MemoryEmitter, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None) -> None:
        self.e, self.out, self.a, self.b, self.c = e, out, a, b, c
        self.m, self.k = a.shape
        self.dtype = out.dtype
        self.lanes = min(e.target.vector_bytes // self.dtype.size, 1 << (self.k.bit_length() - 1))

    def emit(self) -> None:
        outer, self.e.width = self.e.width, self.lanes
        (rows, panels), (fewer, short) = _deal(self.m, DOT_ROWS)
        self._panels(0, rows, panels)
        self._panels(panels * rows, fewer, short)
        self.e.width = outer

    def _panels(self, top: int, rows: int, panels: int) -> None:
        if panels and rows:
            self.e.loop(top, top + panels * rows, rows, [], lambda i: self._panel(i, rows))

    def _panel(self, i: Reg, rows: int) -> Sequence[Reg]:
        e, dtype = self.e, self.dtype
        a = e.element_offset(self.a.ptr, dtype, e.mul(i, e.const(self.k, dt.int64)), 0)
        whole = self.k // self.lanes * self.lanes
        sums = [e.splat(e.zero(dtype))] * rows
        sums = e.loop(0, whole, self.lanes, sums, lambda p, *accs: self._step(a, p, accs, None))
        if whole < self.k:
            sums = self._step(a, e.const(whole, dt.int64), sums, e.first_lanes(self.k - whole))
        for r, x in enumerate(sums):
            total = e.sum_lanes(x)
            if self.c is not None:
                here = e.element_offset(self.c.ptr, dtype, i, r)
                total = e.add(e.load_scalar(here, dtype, None, None), total)
            e.store_scalar(e.element_offset(self.out.ptr, dtype, i, r), total, None)
        return []

    def _step(self, a: str, p: Reg, sums: Sequence[Reg], mask: Reg | None) -> list[Reg]:
        e, dtype = self.e, self.dtype
        y = e.load_vector(e.element_offset(self.b.ptr, dtype, p, 0), dtype, mask, None)
        row = e.element_offset(a, dtype, p, 0)
        xs = [
            e.load_vector(e.element_offset(row, dtype, None, r * self.k), dtype, mask, None) for r in range(len(sums))
        ]
        return [_multiply_add(e, x, y, acc) for x, acc in zip(xs, sums, strict=True)]


def _multiply_add(e: MemoryEmitter, x: Reg, y: Reg, acc: Reg) -> Reg:
    return e.fma(x, y, acc) if acc.dtype.is_float else e.add(e.mul(x, y), acc)
