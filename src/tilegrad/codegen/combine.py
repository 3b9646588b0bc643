"""The native function that adds up what the groups of a launch have added to memory of their own.

    void combine(i64 first, i64 last, ptr args, ptr grid, ptr ctx)      chunks of CHUNK bytes of a group's memory

`args`: address of the array's first byte, its elements, then the groups' memory: address, bytes of a group, flags,
flags of a group, groups. A flag tells that a group has written a chunk. What was added is cleared again, so that the
next launch finds zeros. Elements to which nothing was added are not written. 16-bit floats are added in float32 and
rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad import dtypes as dt
from tilegrad.codegen.memory import FLAG_SHIFT
from tilegrad.codegen.registers import Target
from tilegrad.codegen.targets.cpu import CpuEmitter
from tilegrad.dtypes import DType
from tilegrad.emit import Reg

#: bytes of a group's memory that have one flag
CHUNK = 1 << FLAG_SHIFT


def private_dtype(dtype: DType) -> DType:
    """The dtype in which a group adds to an array of `dtype`."""
    return dt.float32 if dtype.is_half else dtype


def combine_code(dtype: DType, target: Target) -> str:
    """LLVM IR of the function for arrays of `dtype`; its entry is `combine`."""
    e = CpuEmitter(target)
    e.begin_function(
        "combine", ["i64 %first", "i64 %last", "ptr noalias %args", "ptr noalias %grid", "ptr noalias %ctx"]
    )
    wide = private_dtype(dtype)
    out, count = e.load_ptr("%args", 0), e.load_i64("%args", 8)
    memory, size = e.load_ptr("%args", 16), e.load_i64("%args", 24)
    flags, flag_size, groups = e.load_ptr("%args", 32), e.load_i64("%args", 40), e.load_i64("%args", 48)
    per_chunk = CHUNK // wide.size
    width = min(e.vector_width, per_chunk)

    def flag(g: Reg, c: Reg) -> str:
        return e.byte_offset(flags, e.add(e.mul(g, flag_size), c))

    def is_set(g: Reg, c: Reg) -> Reg:
        return e.compare("ne", e.load_scalar(flag(g, c), dt.uint8, None, None), e.const(0, dt.uint8))

    def chunk(c: Reg) -> Sequence[Reg]:
        begin = e.mul(c, e.const(per_chunk, dt.int64))

        def vector(i: Reg) -> Sequence[Reg]:
            at = e.add(begin, i)
            e.width = width

            def group(g: Reg, total: Reg) -> Sequence[Reg]:
                place = e.byte_offset(memory, e.add(e.mul(g, size), e.mul(at, e.const(wide.size, dt.int64))))

                def taken() -> Sequence[Reg]:
                    part = e.load_vector(place, wide, None, e.zero(wide))
                    e.store_vector(place, e.splat(e.zero(wide)), None)
                    return [e.add(total, part)]

                return e.branch(is_set(g, c), taken, lambda: [total])

            (total,) = e.loop(0, groups, 1, [e.splat(e.zero(wide))], group)
            inside = e.compare("lt", e.add(e.splat(at), e.iota(dt.int64)), e.splat(count))
            mask = e.and_(inside, e.compare("ne", total, e.splat(e.zero(wide))))
            target = e.byte_offset(out, e.mul(at, e.const(dtype.size, dt.int64)))
            old = e.load_vector(target, dtype, mask, e.zero(dtype))
            e.store_vector(target, e.cast(e.add(e.cast(old, wide), total), dtype), mask)
            e.width = 1
            return []

        def clear(g: Reg) -> Sequence[Reg]:
            e.store_scalar(flag(g, c), e.const(0, dt.uint8), None)
            return []

        def touched(g: Reg, seen: Reg) -> Sequence[Reg]:
            return [e.or_(seen, is_set(g, c))]

        (some,) = e.loop(0, groups, 1, [e.const(False, dt.bool_)], touched)

        def add_up() -> Sequence[Reg]:
            e.loop(0, per_chunk, width, [], vector)
            e.loop(0, groups, 1, [], clear)
            return []

        e.branch(some, add_up, list)
        return []

    e.loop(e.argument("%first"), e.argument("%last"), 1, [], chunk)
    return e.finish_function()
