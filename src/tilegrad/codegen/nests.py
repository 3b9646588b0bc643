"""Emits the loop nests of groups and lane loops: vectors along the last axis, folds with several accumulators.

A group whose loads and stores all lie inside their arrays takes the unguarded path; only edge tiles pay for guards.
Does not choose what is fused (see `schedule.groups`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tilegrad import dtypes as dt
from tilegrad.codegen.lower import Lowering, needs_scalar_code
from tilegrad.emit import Buffer, Coord, Fold, Index, Reg
from tilegrad.ir.core import Op, Value
from tilegrad.ir.types import ScalarType, TileType, is_varying
from tilegrad.ops.control import map_
from tilegrad.schedule.facts import FROM_THE_END, TILE_ACCESS
from tilegrad.schedule.stages import Group, Lanes

#: Sets of accumulators that a long fold keeps, so that one addition need not wait for the last.
UNROLL = 4
#: Turns after which a pairwise fold puts its partial result aside.
CHUNK = 32

Accs = list[tuple[Reg, ...]]


class Nests(Lowering):
    """Lowering of groups and of lane code."""

    # --- groups -----------------------------------------------------------------------------------------------------
    def group(self, stage: Group) -> None:
        if any(self.takes_turns(op) for root in stage.roots for op in self._inlined(root)):
            self.acquire()
        guards = self._guards(stage)
        folds = [op for op in stage.folds if not self.is_stored(op.result)]
        if guards is None:
            regs = self._nest(stage)
        else:
            regs = self.e.branch(guards, lambda: self._version(stage, True), lambda: self._version(stage, False))
        self._forget_memory()
        for op, reg in zip(folds, regs, strict=True):
            self.bind(op.result, reg)

    def _version(self, stage: Group, fast: bool) -> Sequence[Reg]:
        self.fast = fast
        try:
            with self.scope():
                return self._nest(stage)
        finally:
            self.fast = False

    def _guards(self, stage: Group) -> Reg | None:
        """Whether all loads and stores of the group lie inside their arrays; None if it has none."""
        ok: Reg | None = None
        for op in dict.fromkeys(op for root in stage.roots for op in self._inlined(root)):
            if op.definition.name not in TILE_ACCESS:
                continue
            one = self._is_inside(op)
            ok = one if ok is None else self.e.and_(ok, one)
        return ok

    def _is_inside(self, op: Op) -> Reg:
        e = self.e
        array = self.array(op.operands[0])
        tile = next(v.type for v in (*op.operands, *op.results) if isinstance(v.type, TileType))
        ok: Reg | None = None
        for offset, extent, size in zip(op.operands[-array.ndim :], array.shape, tile.shape, strict=True):
            first = e.i64(self.reg(offset))
            room = e.sub(extent, e.const(size, dt.int64))
            one = e.and_(e.compare("ge", first, e.const(0, dt.int64)), e.compare("le", first, room))
            ok = one if ok is None else e.and_(ok, one)
        assert ok is not None
        return ok

    def _inlined(self, root: Op | Value) -> Iterable[Op]:
        """The ops that are computed inside the loop nest for a root."""
        first = root.op if isinstance(root, Value) else root
        assert first is not None
        found: dict[Op, None] = {}
        work = [first]
        while work:
            op = work.pop()
            if op not in found:
                found[op] = None
                work += [x.op for x in reversed(op.operands) if x.op is not None and self._is_inlined(x, x.op)]
        return found

    def _is_inlined(self, x: Value, op: Op) -> bool:
        point = op.definition.cls == "point" or op.definition is map_
        return isinstance(x.type, TileType) and point and not self.is_stored(x)

    def _of_lanes(self, stage: Lanes) -> Iterable[Op]:
        """The ops that lane code runs, maps whose elements it takes included."""
        found: dict[Op, None] = {}
        work = [op for r in stage.roots if (op := r if isinstance(r, Op) else r.op) is not None]
        while work:
            op = work.pop()
            if op not in found:
                found[op] = None
                work += [inner for region in op.regions for inner in region.ops]
                work += [x.op for x in op.operands if x.op is not None and self._is_of_lanes(x, x.op)]
        return found

    def _is_of_lanes(self, x: Value, op: Op) -> bool:
        return self._is_inlined(x, op) or (is_varying(x.type) and not self.is_stored(x))

    def _nest(self, stage: Group) -> list[Reg]:
        scalar = any(op.definition is map_ and needs_scalar_code(op) for r in stage.roots for op in self._inlined(r))
        width = 1 if scalar else self.e.vector_width
        if stage.axes is None:
            self.e.points(stage.shape, lambda index: self._points(stage, index), width)
            return []
        return _FoldNest(self, stage, width).emit()

    def _points(self, stage: Group, index: Index) -> None:
        with self.scope():
            for root in stage.roots:
                if isinstance(root, Value) or root.definition.cls != "fold":
                    self.point_root(root, index)

    def point_root(self, root: Op | Value, index: Index) -> None:
        """One element of a sink, or of a tile that goes to its slot."""
        if isinstance(root, Value):
            assert root.op is not None
            reg = self.known_element(root, index)
            if reg is None:
                reg = self._point(root.op, root, index)
            self.e.store(self.buffer(root), index, reg)
            self.bind_element(root, index, reg)
            return
        if root.definition is map_:
            self.map_point(root, index)
            return
        with self._located(root), self.guarded(root):
            old = root.definition.lowered(self.e, index, *self._operands(root), **root.attrs)
        if root.results and isinstance(old, Reg):
            if self.is_stored(root.result):
                self.e.store(self.buffer(root.result), index, old)
            self.bind_element(root.result, index, old)

    # --- lane code --------------------------------------------------------------------------------------------------
    def lanes(self, stage: Lanes) -> None:
        e = self.e
        ops = [r for r in stage.roots if isinstance(r, Op)]
        if any(self.takes_turns(op) for op in ops):
            self.acquire()
        for op in ops:
            if op.definition.name == "tile_from_lanes":
                self._clear_absent(self.buffer(op.result))
        width = 1 if any(needs_scalar_code(op) for op in self._of_lanes(stage)) else e.vector_width
        if width > 1 and not self.kernel.tiled and self.kernel.grid_ndim > 1 and not any(_takes(op) for op in ops):
            self._lane_rows(stage, width)
        elif any(_takes(op) for op in ops):
            self._lanes_from_end(stage, width)
        else:
            e.loop(0, e.lane_count, width, [], lambda i: self._lane_vector_code(stage, i, width))
        self._forget_memory()

    def _lanes_from_end(self, stage: Lanes, width: int) -> None:
        """The highest lanes first, so that the last writer of a cell is the first to take its cotangent."""
        e = self.e
        vectors = e.div(e.add(e.lane_count, e.const(width - 1, dt.int64)), e.const(width, dt.int64))

        def turn(k: Reg) -> Sequence[Reg]:
            last = e.sub(e.sub(vectors, e.const(1, dt.int64)), k)
            return self._lane_vector_code(stage, e.mul(last, e.const(width, dt.int64)), width)

        e.loop(0, vectors, 1, [], turn)

    def _lane_vector_code(self, stage: Lanes, i: Reg, width: int) -> Sequence[Reg]:
        whole = self.kernel.tiled and self.kernel.block_dim % width == 0
        limit = None if width == 1 or whole else self.e.lane_count
        self._lane_code(stage, i, width, limit)
        return []

    def _lane_rows(self, stage: Lanes, width: int) -> None:
        """Lanes of a grid with several axes: a vector never goes past the end of a row.

        So all coordinates but the last are the same in the whole vector, and no element needs a division.
        """
        e = self.e
        last = self.kernel.grid_ndim - 1

        def turn(i: Reg) -> Sequence[Reg]:
            first = e.add(e.mul(e.block_id, e.const(self.kernel.block_dim, dt.int64)), i)
            self.thread_base = [self._coordinate(first, k) for k in range(last + 1)]
            room = e.sub(self.grid[last], self.thread_base[last])
            end = e.add(i, e.minimum(room, e.const(width, dt.int64)))
            end = e.minimum(end, self.e.lane_count)
            self._lane_code(stage, i, width, end)
            self.thread_base = []
            return [end]

        e.while_loop([e.const(0, dt.int64)], lambda i: e.compare("lt", i, self.e.lane_count), turn)

    def _lane_code(self, stage: Lanes, i: Reg, width: int, limit: Reg | None) -> None:
        """The roots of a lane loop for the lanes from `i` on, up to `limit` if there may be fewer than a vector."""
        e = self.e
        e.width = width
        self.lane_base = i
        self.lane_index = (Coord(i, 1 if width > 1 else 0),)
        mask = None
        if limit is not None:
            mask = e.compare("lt", e.lanes_of(self.lane_index[0]), e.splat(limit))
        with self.scope(), e.masked(mask):
            for root in stage.roots:
                self._lane_root(root)
        e.width, self.lane_base, self.lane_index = 1, 0, None

    def _lane_root(self, root: Op | Value) -> None:
        assert self.lane_index is not None
        if isinstance(root, Value):
            self.e.store(self.buffer(root), self.lane_index, self.reg(root))
        elif root.definition.name == "tile_from_lanes":
            self.e.store(self.buffer(root.result), self.lane_index, self.reg(root.operands[0]))
        else:
            self.lane_op(root)
            for v in root.results:
                if v in self.plan.slots and isinstance(v.type, ScalarType):
                    self.e.store(self.buffer(v), self.lane_index, self.reg(v))

    def _clear_absent(self, buffer: Buffer) -> None:
        """Zero a tile of lane values when lanes of this block are absent."""
        e = self.e
        full = e.compare("eq", self.e.lane_count, e.const(self.kernel.block_dim, dt.int64))
        zero = e.zero(buffer.dtype)

        def clear() -> Sequence[Reg]:
            e.points(buffer.shape, lambda index: e.store(buffer, index, zero), e.vector_width)
            return []

        e.branch(full, list, clear)


def _takes(op: Op) -> bool:
    """Whether the op goes from the highest lane to the lowest, or holds one that does."""
    return op.definition.name in FROM_THE_END or any(_takes(o) for region in op.regions for o in region.ops)


class _FoldNest:
    """The loop nest of a group that folds: kept axes outside, folded axes inside with carried accumulators."""

    def __init__(self, lowering: Nests, stage: Group, width: int) -> None:
        assert stage.axes is not None
        self.lowering = lowering
        self.e = lowering.e
        self.stage = stage
        self.shape = stage.shape
        self.axes = stage.axes
        self.kept = [k for k in range(len(self.shape)) if k not in self.axes]
        self.last_folded = len(self.shape) - 1 in self.axes
        self.width = min(width, 1 << max(0, self.shape[-1] - 1).bit_length())
        self.folds: list[Fold] = []
        for op in stage.folds:
            types = [v.type for v in op.operands]
            self.folds.append(op.definition.lowered(self.e, *types, **op.attrs))
        self.results: list[Reg] = []

    def emit(self) -> list[Reg]:
        outer = self.kept if self.last_folded else self.kept[:-1]
        self._loops(outer, {}, [], self._kept_point if self.last_folded else self._kept_row)
        return self.results

    def _loops(
        self, axes: Sequence[int], at: dict[int, Coord], accs: list[Reg], body: Callable[..., Sequence[Reg]]
    ) -> Sequence[Reg]:
        """Nested scalar loops over `axes`, carrying accumulators through all of them."""
        if not axes:
            return body(at, accs)
        axis, rest = axes[0], axes[1:]
        if self.shape[axis] == 1:
            return self._loops(rest, {**at, axis: Coord(0)}, accs, body)

        def turn(i: Reg, *regs: Reg) -> Sequence[Reg]:
            with self.lowering.scope():
                return self._loops(rest, {**at, axis: Coord(i)}, list(regs), body)

        n = self.shape[axis]
        chunk = self._chunk(n, math.prod(self.shape[k] for k in rest)) if accs else n
        return self.e.loop(0, n, 1, accs, turn) if chunk >= n else self._in_chunks(n, chunk, accs, turn)

    def _chunk(self, n: int, inner: int) -> int:
        """How many of `n` turns, of `inner` additions each, to add up before the sum is put aside.

        About as many additions are made in a chunk as there are chunks, so that the error hardly grows with the extent.
        """
        if not any(f.pairwise for f in self.folds):
            return n
        return max(1, max(CHUNK, math.isqrt(n * inner)) // inner)

    def _in_chunks(self, n: int, chunk: int, accs: list[Reg], turn: Callable[..., Sequence[Reg]]) -> Sequence[Reg]:
        """A loop of `n` turns whose accumulators start afresh with every chunk."""
        e, sets = self.e, len(self._unflat(accs))

        def one(i: Reg, *regs: Reg) -> Sequence[Reg]:
            fresh = self._flat([self._start() for _ in range(sets)])
            end = e.minimum(e.add(i, e.const(chunk, dt.int64)), e.const(n, dt.int64))
            part = e.loop(i, end, 1, fresh, turn)
            merged = [self._merge(a, b) for a, b in zip(self._unflat(list(regs)), self._unflat(part), strict=True)]
            return self._flat(merged)

        return e.loop(0, n, chunk, accs, one)

    def _index(self, at: dict[int, Coord]) -> Index:
        return tuple(at[k] for k in range(len(self.shape)))

    # --- the last axis is kept: one vector of results at a time -----------------------------------------------------
    def _kept_row(self, at: dict[int, Coord], accs: list[Reg]) -> Sequence[Reg]:
        last = len(self.shape) - 1

        def column(index: Index) -> None:
            def step(inner: dict[int, Coord], regs: list[Reg]) -> Sequence[Reg]:
                return self._flat([self._step(self._index(inner), self._unflat(regs)[0])])

            start = self._flat([self._start()])
            here = {**at, last: index[0]}
            done = self._unflat(list(self._loops(self.axes, here, start, step)))[0]
            self._finish(here, done)

        self.e.points((self.shape[last],), column, self.width)
        return []

    # --- the last axis is folded: vectors of partial results, merged at the end -------------------------------------
    def _kept_point(self, at: dict[int, Coord], accs: list[Reg]) -> Sequence[Reg]:
        e = self.e
        n = self.shape[-1]
        vectors = n // self.width
        sets = UNROLL if vectors >= 2 * UNROLL else 1
        e.width = self.width
        start = self._flat([self._start() for _ in range(sets)])
        regs = list(self._loops(self.axes[:-1], at, start, lambda here, accs: self._row(here, accs, sets, vectors)))
        parts = self._unflat(regs)
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self._merge(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        accs_now = parts[0]
        while e.width > 1:
            pairs = [[e.halves(r) for r in acc] for acc in accs_now]
            e.width //= 2
            accs_now = self._merge(
                [tuple(lo for lo, _ in acc) for acc in pairs], [tuple(hi for _, hi in acc) for acc in pairs]
            )
        self._finish(at, accs_now)
        return []

    def _row(self, at: dict[int, Coord], accs: list[Reg], sets: int, vectors: int) -> Sequence[Reg]:
        e, last = self.e, len(self.shape) - 1
        turns = vectors // sets

        def turn(i: Reg, *regs: Reg) -> Sequence[Reg]:
            with self.lowering.scope():
                now = self._unflat(list(regs))
                for u in range(sets):
                    base = e.add(i, e.const(u * self.width, dt.int64)) if u else i
                    now[u] = self._step(self._index({**at, last: Coord(base, self._lane_step)}), now[u])
                return self._flat(now)

        stride = sets * self.width
        if turns == 1:
            accs = list(turn(e.const(0, dt.int64), *accs))
        elif turns > CHUNK and any(f.pairwise for f in self.folds):
            accs = self._chunked(turn, accs, turns, stride, sets)
        elif turns:
            accs = e.loop(0, turns * stride, stride, accs, turn)
        now = self._unflat(accs)
        for k in range(turns * sets, vectors):
            now[0] = self._step(self._index({**at, last: Coord(k * self.width, self._lane_step)}), now[0])
        if vectors * self.width < self.shape[-1]:
            now[0] = self._tail(at, now[0], vectors * self.width)
        return self._flat(now)

    @property
    def _lane_step(self) -> int:
        return 1 if self.width > 1 else 0

    def _chunked(
        self, turn: Callable[..., Sequence[Reg]], accs: list[Reg], turns: int, stride: int, sets: int
    ) -> list[Reg]:
        """Sum chunks of bounded length and add up their results, so that the error does not grow with the extent."""
        e = self.e
        chunk = CHUNK * stride
        whole = turns // CHUNK

        def one(i: Reg, *regs: Reg) -> Sequence[Reg]:
            fresh = self._flat([self._start() for _ in range(sets)])
            part = e.loop(i, e.add(i, e.const(chunk, dt.int64)), stride, fresh, turn)
            merged = [self._merge(a, b) for a, b in zip(self._unflat(list(regs)), self._unflat(part), strict=True)]
            return self._flat(merged)

        accs = e.loop(0, whole * chunk, chunk, accs, one)
        return e.loop(whole * chunk, turns * stride, stride, accs, turn) if whole * CHUNK < turns else accs

    def _tail(self, at: dict[int, Coord], accs: Accs, first: int) -> Accs:
        """The last elements, fewer than a vector: the others keep their accumulators."""
        e = self.e
        mask = e.first_lanes(self.shape[-1] - first)
        with e.masked(mask), self.lowering.scope():
            new = self._step(self._index({**at, len(self.shape) - 1: Coord(first, self._lane_step)}), accs)
        return [tuple(e.select(mask, n, o) for n, o in zip(a, b, strict=True)) for a, b in zip(new, accs, strict=True)]

    # --- accumulators -----------------------------------------------------------------------------------------------
    def _start(self) -> Accs:
        return [
            tuple(self.e.splat(self.e.const(x, d)) for x, d in zip(f.init, f.dtypes, strict=True)) for f in self.folds
        ]

    def _flat(self, sets: Sequence[Accs]) -> list[Reg]:
        return [self.e.splat(r) for accs in sets for acc in accs for r in acc]

    def _unflat(self, regs: list[Reg]) -> list[Accs]:
        sizes = [len(f.dtypes) for f in self.folds]
        result: list[Accs] = []
        it = iter(regs)
        for _ in range(len(regs) // sum(sizes)):
            result.append([tuple(next(it) for _ in range(n)) for n in sizes])
        return result

    def _step(self, index: Index, accs: Accs) -> Accs:
        """Take one point of the space into all accumulators; sinks and stored tiles of the group come along."""
        lowering = self.lowering
        with lowering.scope():
            result: list[tuple[Reg, ...] | None] = [None] * len(self.folds)
            k = 0
            for root in self.stage.roots:
                if isinstance(root, Op) and root.definition.cls == "fold":
                    fold = self.folds[k]
                    xs = [lowering.element(v, index) for v in root.operands]
                    position = self._position(index) if fold.positional else None
                    result[k] = fold.step(accs[k], xs[0] if len(xs) == 1 else xs, position)
                    k += 1
                else:
                    lowering.point_root(root, index)
            return [r for r in result if r is not None]

    def _position(self, index: Index) -> Reg:
        e = self.e
        linear: Reg | None = None
        for axis in self.axes:
            i = e.lanes_of(index[axis])
            n = e.const(self.shape[axis], dt.int64)
            linear = i if linear is None else e.add(e.mul(linear, n), i)
        assert linear is not None
        return e.cast(linear, dt.int32)

    def _merge(self, a: Accs, b: Accs) -> Accs:
        return [f.merge(x, y) for f, x, y in zip(self.folds, a, b, strict=True)]

    def _finish(self, at: dict[int, Coord], accs: Accs) -> None:
        for op, fold, acc in zip(self.stage.folds, self.folds, accs, strict=True):
            reg = fold.finish(acc)
            if self.lowering.is_stored(op.result):
                self.e.store(self.lowering.buffer(op.result), self._result_index(op, at), reg)
            else:
                self.results.append(reg)

    def _result_index(self, op: Op, at: dict[int, Coord]) -> Index:
        if op.attrs.get("keepdims"):
            return tuple(Coord(0) if k in self.axes else at[k] for k in range(len(self.shape)))
        return tuple(at[k] for k in self.kept) or (Coord(0),)
