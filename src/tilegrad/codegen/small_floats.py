"""Conversions to and from the 16-bit floats in integer code: no library calls, and one rounding.

They work on float32; a wider number is first rounded to odd, after which a second rounding to nearest is harmless
(S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008).
Subnormal numbers are exact as long as nothing is flushed to zero. Does not know about LLVM.
"""

from __future__ import annotations

from tilegrad import dtypes as dt
from tilegrad.emit import Emitter, Reg


def _u32(e: Emitter, value: int) -> Reg:
    return e.const(value, dt.uint32)


def round_to_odd(e: Emitter, x: Reg) -> Reg:
    """float64 to float32 such that rounding once more to 16 bits gives the correctly rounded result."""
    single = e.cast(x, dt.float32)
    back = e.cast(single, dt.float64)
    bits = e.bitcast(single, dt.int32)
    exact = e.or_(e.compare("eq", back, x), e.compare("ne", x, x))
    bigger = e.compare("gt", e.abs(back), e.abs(x))
    toward = e.select(bigger, e.sub(bits, e.const(1, dt.int32)), bits)
    odd = e.or_(toward, e.const(1, dt.int32))
    return e.bitcast(e.select(exact, bits, odd), dt.float32)


def bfloat16_to_float32(e: Emitter, x: Reg) -> Reg:
    """The number with sixteen zero bits after it."""
    return e.bitcast(e.shl(e.cast(e.bitcast(x, dt.uint16), dt.uint32), _u32(e, 16)), dt.float32)


def float32_to_bfloat16(e: Emitter, x: Reg) -> Reg:
    """Round to nearest even; a NaN stays one."""
    bits = e.bitcast(x, dt.uint32)
    last = e.and_(e.shr(bits, _u32(e, 16)), _u32(e, 1))
    rounded = e.add(bits, e.add(last, _u32(e, 0x7FFF)))
    quiet = e.or_(bits, _u32(e, 0x400000))
    chosen = e.select(e.compare("ne", x, x), quiet, rounded)
    return e.bitcast(e.cast(e.shr(chosen, _u32(e, 16)), dt.uint16), dt.bfloat16)


def float16_to_float32(e: Emitter, x: Reg) -> Reg:
    """Shift the bits into place and let a multiplication mend the exponent, of subnormal numbers too."""
    bits = e.cast(e.bitcast(x, dt.uint16), dt.uint32)
    size = e.and_(bits, _u32(e, 0x7FFF))
    small = e.bitcast(e.shl(size, _u32(e, 13)), dt.float32)
    number = e.bitcast(e.mul(small, e.const(2.0**112, dt.float32)), dt.uint32)
    special = e.or_(number, _u32(e, 0x7F800000))
    number = e.select(e.compare("ge", size, _u32(e, 0x7C00)), special, number)
    sign = e.shl(e.and_(bits, _u32(e, 0x8000)), _u32(e, 16))
    return e.bitcast(e.or_(number, sign), dt.float32)


def float32_to_float16(e: Emitter, x: Reg) -> Reg:
    """Round to nearest even; adding 0.5 does it for subnormal results, whose step is the last place of 0.5."""
    bits = e.bitcast(x, dt.uint32)
    size = e.and_(bits, _u32(e, 0x7FFFFFFF))
    last = e.and_(e.shr(size, _u32(e, 13)), _u32(e, 1))
    normal = e.shr(e.add(size, e.sub(last, _u32(e, (112 << 23) - 0xFFF))), _u32(e, 13))
    half = e.const(0.5, dt.float32)
    subnormal = e.sub(e.bitcast(e.add(e.bitcast(size, dt.float32), half), dt.uint32), e.bitcast(half, dt.uint32))
    result = e.select(e.compare("lt", size, _u32(e, 113 << 23)), subnormal, normal)
    result = e.select(e.compare("ge", size, _u32(e, 0x477FF000)), _u32(e, 0x7C00), result)
    result = e.select(e.compare("ne", x, x), _u32(e, 0x7E00), result)
    sign = e.and_(e.shr(bits, _u32(e, 16)), _u32(e, 0x8000))
    return e.bitcast(e.cast(e.or_(result, sign), dt.uint16), dt.float16)
