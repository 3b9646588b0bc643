"""The memory half of the code generator: arrays in main memory, tiles in the block's scratch, checks and edges.

Every access to an array is guarded: outside it a load gives the fill value and a store is dropped (tiles), or the
index wraps once and is then an error (elements). `inside` switches the guards off where the caller has shown that
all accesses lie inside. Does not decide what is accessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilegrad import dtypes as dt
from tilegrad.codegen.registers import RegisterEmitter, Target
from tilegrad.diagnostics import Loc
from tilegrad.dtypes import DType
from tilegrad.emit import ArrayRef, Buffer, Coord, Index, Reg


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the kernel that can raise or print: of what kind, where, and what its values are."""

    kind: str
    loc: Loc
    message: str = ""
    #: dtype and shape (None: a scalar) of printed values
    layout: tuple[tuple[DType, tuple[int, ...] | None], ...] = ()


#: log2 of the bytes of a group's memory that share a flag (see codegen.combine)
FLAG_SHIFT = 12


class MemoryEmitter(RegisterEmitter):
    """Arrays, buffers, masks and error checks on top of the register instructions."""

    #: which elements of the current vector are active; None: all of them
    mask: Reg | None = None
    #: all array accesses are known to lie inside
    inside: bool = False
    loc: Loc = Loc("<unknown>", 0)
    message: str = ""
    error_ptr: str = ""
    block_id: Reg
    #: lanes of the block in hand that are inside the grid
    lane_count: Reg

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        self.sites: list[Site] = []
        #: vectors that are known to be base + step * lane, so that indices made of them give dense accesses
        self.affine: dict[str, tuple[Reg, int]] = {}

    # --- vectors that count up with the lane ------------------------------------------------------------------------
    def note_affine(self, x: Reg, base: Reg, step: int) -> None:
        if x.width > 1:
            self.affine[x.name] = (base, step)

    def add(self, x: Reg, y: Reg) -> Reg:
        return self._shifted(super().add, x, y)

    def sub(self, x: Reg, y: Reg) -> Reg:
        return self._shifted(super().sub, x, y)

    def _shifted(self, instruction: Callable[[Reg, Reg], Reg], x: Reg, y: Reg) -> Reg:
        result = instruction(x, y)
        if x.dtype.is_int and y.width == 1 and x.name in self.affine:
            base, step = self.affine[x.name]
            self.note_affine(result, instruction(base, y), step)
        elif x.dtype.is_int and x.width == 1 and y.name in self.affine and instruction == super().add:
            base, step = self.affine[y.name]
            self.note_affine(result, instruction(x, base), step)
        return result

    def cast(self, x: Reg, dtype: DType) -> Reg:
        result = super().cast(x, dtype)
        if dtype.is_int and x.name in self.affine:
            base, step = self.affine[x.name]
            self.note_affine(result, super().cast(base, dtype), step)
        return result

    def coord(self, x: Reg | int) -> Coord:
        """An index given as a register: uniform, counting up with the lane, or arbitrary."""
        if not isinstance(x, Reg) or x.width == 1:
            return Coord(self.i64(x))
        known = self.affine.get(x.name)
        return Coord(self.i64(x), 0, gather=True) if known is None else Coord(self.i64(known[0]), known[1])

    # --- masks ------------------------------------------------------------------------------------------------------
    @contextmanager
    def masked(self, mask: Reg | None) -> Iterator[None]:
        """Inside the context only elements for which `mask` (and the outer mask) holds are active."""
        outer = self.mask
        self.mask = mask if outer is None else outer if mask is None else self.and_(outer, mask)
        try:
            yield
        finally:
            self.mask = outer

    def _active(self, extra: Reg | None) -> Reg | None:
        if extra is None or self.mask is None:
            return extra if self.mask is None else self.mask
        return self.and_(self.mask, extra)

    # --- 64-bit index arithmetic ------------------------------------------------------------------------------------
    def i64(self, value: int | Reg) -> Reg:
        if isinstance(value, Reg):
            return value if value.dtype is dt.int64 else self.cast(value, dt.int64)
        return self.const(value, dt.int64)

    def lanes_of(self, c: Coord) -> Reg:
        """A coordinate as a vector (or a scalar where it is uniform)."""
        base = self.i64(c.base)
        if not c.step:
            return base
        steps = self.mul(self.iota(dt.int64), self.const(c.step, dt.int64)) if c.step != 1 else self.iota(dt.int64)
        return self.add(base, steps)

    # --- arrays -----------------------------------------------------------------------------------------------------
    def array_get(self, array: ArrayRef, index: Index, fill: Reg | None = None) -> Reg:
        if self.inside:
            return self._read(array, index, None, None)
        if fill is None:
            return self._checked(
                array, index,
                lambda where, ok: self._read(array, where, ok, None),
                self.const(False if array.dtype.kind == "b" else 0, array.dtype),
                uniform=not any(c.step or c.gather for c in index),
            )  # fmt: skip
        ok = self.in_range(array, index)
        return self._read(array, index, ok, fill)

    def array_set(self, array: ArrayRef, index: Index, x: Reg, drop: bool) -> None:
        if self.inside:
            self._write(array, index, x, None)
        elif drop:
            self._write(array, index, x, self.in_range(array, index))
        else:
            self._checked(array, index, lambda where, ok: self._write(array, where, x, ok), None)

    def array_update(
        self, op: str, array: ArrayRef, index: Index, x: Reg, drop: bool, expected: Reg | None = None
    ) -> Reg:
        zero = self.const(False if array.dtype.kind == "b" else 0, array.dtype)
        x = x if x.dtype is array.dtype else self.cast(x, array.dtype)
        if self.inside:
            return self._update(op, array, index, x, expected, None)
        if drop:
            return self._update(op, array, index, x, expected, self.in_range(array, index))
        result = self._checked(array, index, lambda where, ok: self._update(op, array, where, x, expected, ok), zero)
        assert result is not None
        return result

    def in_range(self, array: ArrayRef, index: Index) -> Reg:
        """Whether each element's index lies inside the array, on both sides of every axis."""
        ok: Reg | None = None
        for c, extent in zip(index, array.shape, strict=True):
            i = self.lanes_of(c)
            # one unsigned comparison tests both sides
            one = self.compare("lt", self.bitcast(i, dt.uint64), self.bitcast(extent, dt.uint64))
            ok = one if ok is None else self.and_(ok, one)
        assert ok is not None
        return ok

    def _checked(
        self,
        array: ArrayRef,
        index: Index,
        access: Callable[[Index, Reg | None], Reg | None],
        default: Reg | None,
        uniform: bool = False,
    ) -> Reg:
        """An element access: straight where the whole vector is inside, else wrapped, checked and masked.

        The result is a vector where lanes are in hand, unless it is `uniform`: one element for all of them.
        """
        fast = self._all_inside(array, index)

        def slow() -> Sequence[Reg]:
            wrapped: list[Coord] = []
            ok: Reg | None = None
            for axis, (c, extent) in enumerate(zip(index, array.shape, strict=True)):
                i = self.lanes_of(c)
                j = self.select(self.compare("lt", i, self.const(0, dt.int64)), self.add(i, extent), i)
                good = self.compare("lt", self.bitcast(j, dt.uint64), self.bitcast(extent, dt.uint64))
                self.check_index(good, i, axis, extent)
                ok = good if ok is None else self.and_(ok, good)
                wrapped.append(Coord(j, 0, gather=j.width > 1))
            return self._settled(access(tuple(wrapped), ok), default, uniform)

        if fast is None:
            result = slow()
        else:
            result = self.branch(fast, lambda: self._settled(access(index, None), default, uniform), slow)
        return result[0] if result else self.const(0, dt.int32)

    def _settled(self, result: Reg | None, default: Reg | None, uniform: bool) -> Sequence[Reg]:
        if default is None or result is None:
            return []
        return [self.splat(result) if self.width > 1 and not uniform else result]

    def _all_inside(self, array: ArrayRef, index: Index) -> Reg | None:
        """A uniform condition under which no element of the vector needs a guard; None if there is no cheap one."""
        if any(c.gather for c in index):
            return None
        ok: Reg | None = None
        for c, extent in zip(index, array.shape, strict=True):
            first = self.i64(c.base)
            last = self.add(first, self.const(c.step * (self.width - 1), dt.int64)) if c.step else first
            for end in (first, last) if c.step else (first,):
                one = self.compare("lt", self.bitcast(end, dt.uint64), self.bitcast(extent, dt.uint64))
                ok = one if ok is None else self.and_(ok, one)
        return ok

    # --- addresses --------------------------------------------------------------------------------------------------
    def _address(self, array: ArrayRef, index: Index) -> tuple[str, Reg | None, bool]:
        """Base address of an access, the vector of byte offsets from it (None if uniform), and whether it is dense."""
        offset: Reg | None = None
        spread: Reg | None = None
        dense = False
        for k, (c, stride) in enumerate(zip(index, array.strides, strict=True)):
            base = self.i64(c.base)
            if c.gather:
                part = self.mul(base, stride)
                spread = part if spread is None else self.add(spread, part)
                continue
            term = self.mul(base, stride)
            offset = term if offset is None else self.add(offset, term)
            if c.step == 1 and array.dense_rows and k == array.ndim - 1:
                dense = True
            elif c.step:
                part = self.mul(self.iota(dt.int64), self.mul(stride, self.const(c.step, dt.int64)))
                spread = part if spread is None else self.add(spread, part)
        if dense and spread is not None:
            part = self.mul(self.iota(dt.int64), self.const(array.dtype.size, dt.int64))
            spread, dense = self.add(spread, part), False
        ptr = array.ptr if offset is None else self.byte_offset(array.ptr, offset)
        return ptr, spread, dense

    def _read(self, array: ArrayRef, index: Index, ok: Reg | None, fill: Reg | None) -> Reg:
        ptr, spread, dense = self._address(array, index)
        mask = self._active(ok)
        fill = fill if fill is not None else self.const(False if array.dtype.kind == "b" else 0, array.dtype)
        if dense:
            return self.load_vector(ptr, array.dtype, mask, fill)
        if spread is not None:
            return self.gather_bytes(ptr, spread, array.dtype, mask, fill)
        return self.load_scalar(ptr, array.dtype, mask if mask is None or mask.width == 1 else self.any(mask), fill)

    def _write(self, array: ArrayRef, index: Index, x: Reg, ok: Reg | None) -> None:
        ptr, spread, dense = self._address(array, index)
        mask = self._active(ok)
        if dense:
            self.store_vector(ptr, self.splat(x), mask)
        elif spread is not None:
            self.scatter_bytes(ptr, spread, self.splat(x), mask)
        elif x.width == 1 and (mask is None or mask.width == 1):
            self.store_scalar(ptr, x, mask)
        else:  # one cell, many writers: the highest active lane wins
            zero = self.splat(self.const(0, dt.int64))
            self.scatter_bytes(ptr, zero, self.splat(x), mask)

    def _update(self, op: str, array: ArrayRef, index: Index, x: Reg, expected: Reg | None, ok: Reg | None) -> Reg:
        """Combine into memory. The launch lets one block at a time do this, so a plain read and write is atomic."""
        ptr, spread, dense = self._address(array, index)
        mask = self._active(ok)
        given = [x] if expected is None else [x, expected]
        if dense:
            zero = self.const(False if array.dtype.kind == "b" else 0, array.dtype)
            old = self.load_vector(ptr, array.dtype, mask, zero)
            self.store_vector(ptr, self.combine(op, old, *(self.splat(v) for v in given)), mask)
            self._flag(array, ptr, self.width * array.dtype.size - 1)
            return old
        alone = all(v.width == 1 for v in given) and (mask is None or mask.width == 1)
        if self.width == 1 or (spread is None and alone):
            return self._update_one(op, ptr, array, given, mask)
        offsets = spread if spread is not None else self.splat(self.const(0, dt.int64))
        return self._update_lanes(op, ptr, offsets, array, [self.splat(v) for v in given], mask)

    def _flag(self, array: ArrayRef, ptr: str, last: int = 0) -> None:
        """Note that a group has written to its own memory at an address, and `last` bytes after it."""
        if not array.flags:
            return
        first = self.distance(array.origin, ptr)
        for at in (first, self.add(first, self.const(last, dt.int64))) if last else (first,):
            place = self.byte_offset(array.flags, self.shr(at, self.const(FLAG_SHIFT, dt.int64)))
            self.store_scalar(place, self.const(1, dt.uint8), None)

    def _update_one(self, op: str, ptr: str, array: ArrayRef, given: Sequence[Reg], mask: Reg | None) -> Reg:
        dtype = array.dtype
        zero = self.const(False if dtype.kind == "b" else 0, dtype)

        def update() -> Sequence[Reg]:
            old = self.load_scalar(ptr, dtype, None, zero)
            self.store_scalar(ptr, self.combine(op, old, *given), None)
            self._flag(array, ptr)
            return [old]

        return update()[0] if mask is None else self.branch(mask, update, lambda: [zero])[0]

    def _update_lanes(
        self, op: str, ptr: str, offsets: Reg, array: ArrayRef, given: Sequence[Reg], mask: Reg | None
    ) -> Reg:
        """Lane after lane, since lanes may meet in one cell."""
        dtype = array.dtype
        zero = self.splat(self.const(False if dtype.kind == "b" else 0, dtype))

        def lane(i: Reg, olds: Reg) -> Sequence[Reg]:
            active = None if mask is None else self.extract(mask, i)
            with self.scalar_code():
                cell = self.byte_offset(ptr, self.extract(offsets, i))
                old = self._update_one(op, cell, array, [self.extract(v, i) for v in given], active)
            return [self.insert(olds, old, i)]

        def lane_from_end(i: Reg, olds: Reg) -> Sequence[Reg]:
            return lane(self.sub(self.const(self.width - 1, dt.int64), i), olds)

        return self.loop(0, self.width, 1, [zero], lane_from_end if op in ("take", "add_back") else lane)[0]

    def each_lane(self, values: Sequence[Reg | Buffer], body: Callable[..., None]) -> None:
        if not any(isinstance(v, Buffer) for v in values):
            body(*values)
            return

        def lane(i: Reg) -> Sequence[Reg]:
            body(*(self.load(v, (Coord(i),)) if isinstance(v, Buffer) else v for v in values))
            return []

        self.loop(0, self.lane_count, 1, [], lane)

    @contextmanager
    def scalar_code(self) -> Iterator[None]:
        """Inside the context code works on one element, with no mask."""
        outer = self.width, self.mask
        self.width, self.mask = 1, None
        try:
            yield
        finally:
            self.width, self.mask = outer

    def combine(self, op: str, old: Reg, x: Reg, expected: Reg | None = None) -> Reg:
        """The new value of an atomically updated cell. 16-bit floats add in float32 and round once."""
        if op in ("exch", "take"):
            return x
        dtype = old.dtype
        if op == "claim":
            expected, x = x, self.const(float("nan"), dtype)
        if expected is not None:
            wide = dt.float32 if dtype.is_half else dtype
            return self.select(self.compare("eq", self.cast(old, wide), self.cast(expected, wide)), x, old)
        if dtype.is_half:
            return self.cast(self.combine(op, self.cast(old, dt.float32), self.cast(x, dt.float32)), dtype)
        methods: dict[str, Callable[[Reg, Reg], Reg]] = {
            "add": self.add, "add_back": self.add, "sub": self.sub, "min": self.minimum, "max": self.maximum,
            "and": self.and_, "or": self.or_, "xor": self.xor,
        }  # fmt: skip
        return methods[op](old, x)

    # --- scratch ----------------------------------------------------------------------------------------------------
    def load(self, buffer: Buffer, index: Index) -> Reg:
        ptr, spread, dense = self._slot_address(buffer, index)
        if dense:
            return self.load_vector(ptr, buffer.dtype, None, None)
        if spread is not None:
            zero = self.const(False if buffer.dtype.kind == "b" else 0, buffer.dtype)
            return self.gather_bytes(ptr, spread, buffer.dtype, self.mask, zero)
        return self.load_scalar(ptr, buffer.dtype, None, None)

    def store(self, buffer: Buffer, index: Index, x: Reg) -> None:
        ptr, spread, dense = self._slot_address(buffer, index)
        if dense:
            self.store_vector(ptr, self.splat(x), self.mask)
        elif spread is not None:
            self.scatter_bytes(ptr, spread, self.splat(x), self.mask)
        else:
            self.store_scalar(ptr, x, self.mask)

    def _slot_address(self, buffer: Buffer, index: Index) -> tuple[str, Reg | None, bool]:
        constant, offset, spread, dense = 0, None, None, False
        for c, stride in zip(index, buffer.strides, strict=True):
            if c.gather:
                part = self.mul(c.base, self.const(stride * buffer.dtype.size, dt.int64))
                spread = part if spread is None else self.add(spread, part)
                continue
            if isinstance(c.base, Reg):
                term = self.mul(self.i64(c.base), self.const(stride, dt.int64)) if stride != 1 else self.i64(c.base)
                offset = term if offset is None else self.add(offset, term)
            else:
                constant += c.base * stride
            if c.step * stride == 1:
                dense = True
            elif c.step:
                part = self.mul(self.iota(dt.int64), self.const(c.step * stride * buffer.dtype.size, dt.int64))
                spread = part if spread is None else self.add(spread, part)
        if dense and spread is not None:  # another axis advances with the elements too
            part = self.mul(self.iota(dt.int64), self.const(buffer.dtype.size, dt.int64))
            spread, dense = self.add(spread, part), False
        return self.element_offset(buffer.ptr, buffer.dtype, offset, constant), spread, dense

    # --- checks -----------------------------------------------------------------------------------------------------
    def site(self, kind: str, message: str = "", layout: tuple[tuple[DType, tuple[int, ...] | None], ...] = ()) -> int:
        """Register a place that can raise or print; its number, from 1."""
        self.sites.append(Site(kind, self.loc, message or self.message, layout))
        return len(self.sites)

    def check(self, ok: Reg, kind: str, *values: Reg) -> None:
        self._raise_unless(ok, self.site(kind, layout=tuple((v.dtype, None) for v in values)), values)

    def check_index(self, ok: Reg, i: Reg, axis: int, extent: Reg) -> None:
        """The index check of one axis; the message shows the index, the axis and the extent."""
        self._raise_unless(ok, self.site("index"), (i, self.const(axis, dt.int64), extent))

    def _raise_unless(self, ok: Reg, site: int, values: Sequence[Reg]) -> None:
        """Note the first failure of this thread: site, block, and the values of the first failing element."""
        bad = (
            self._active(self.not_(ok))
            if ok.width > 1 or self.mask is None
            else self._active(self.not_(self.splat(ok)))
        )
        assert bad is not None

        def note() -> Sequence[Reg]:
            first = self.load_scalar(self.error_ptr, dt.int64, None, None)
            with_lane = self.first_lane(bad) if bad.width > 1 else None

            def write() -> Sequence[Reg]:
                shown = [v if v.width == 1 or with_lane is None else self.extract(v, with_lane) for v in values]
                with self.scalar_code():
                    for k, v in enumerate([self.const(site, dt.int64), self.block_id, *(self.bits(v) for v in shown)]):
                        self.store_scalar(self.element_offset(self.error_ptr, dt.int64, None, k), v, None)
                return []

            return self.branch(self.compare("eq", first, self.const(0, dt.int64)), write, list)

        self.branch(self.any(bad) if bad.width > 1 else bad, note, list)

    def bits(self, v: Reg) -> Reg:
        """A scalar's bits in 64, as the error record and the arguments of a launch hold them."""
        if v.dtype.is_float:
            return self.bitcast(self.cast(v, dt.float64), dt.int64)
        return self.cast(v, dt.int64)
