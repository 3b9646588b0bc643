"""The register half of the code generator: every instruction of the abstract Emitter as LLVM IR text.

A `Reg` is an LLVM value name with its dtype and width. Bools are i1, unsigned and signed integers iN, float16 is
half and bfloat16 the 16 bits of one in an i16; arithmetic on 16-bit floats is done in float32 by the callers.
Does not know about kernels, tiles or arrays.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.codegen import small_floats
from tilegrad.codegen.text import FunctionText
from tilegrad.diagnostics import CompilerBug
from tilegrad.dtypes import DType
from tilegrad.emit import Buffer, Compare, Emitter, Reg
from tilegrad.ir.opdef import OpDef


@dataclass(frozen=True)
class Target:
    """What the code generator must know of a machine."""

    #: elements of float32 that a vector loop works on at once
    vector_width: int = 16
    #: vector registers
    registers: int = 32
    #: bytes of one vector register
    vector_bytes: int = 64
    has_f16c: bool = True
    attributes: str = '"prefer-vector-width"="512" nounwind'


#: Vectors look up tables of so many entries by selecting, which beats a gather.
SMALL_TABLE = 8

#: Bytes behind a table in memory: one vector of the largest elements.
TABLE_SLACK = 128

_SCALAR = {"bool": "i1", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}
_SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
_FCMP = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def scalar_name(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    return _SCALAR.get(dtype.name) or f"i{dtype.bits}"


def type_name(dtype: DType, width: int) -> str:
    """The LLVM type of a register."""
    return scalar_name(dtype) if width == 1 else f"<{width} x {scalar_name(dtype)}>"


def literal(value: Any, dtype: DType) -> str:
    """A number as LLVM text; floats exactly, as the bits of a double."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.is_int:
        return str(int(value))
    if dtype is dt.bfloat16:
        return str(int(np.asarray(value, dtype.np).view(np.int16)))
    if dtype is dt.float16:
        return f"0xH{int(np.asarray(value, dtype.np).view(np.uint16)):04X}"
    exact = float(np.float32(value)) if dtype is dt.float32 else float(value)
    if math.isnan(exact):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


class RegisterEmitter(Emitter):
    """Instructions on registers; `width` is the number of elements of the vectors in the loop in hand."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.vector_width = self.target.vector_width
        self.f = FunctionText()
        self.width = 1

    # --- helpers ----------------------------------------------------------------------------------------------------
    def _type(self, x: Reg) -> str:
        return type_name(x.dtype, x.width)

    def _same(self, *regs: Reg) -> tuple[Reg, ...]:
        """The registers with the uniform ones splatted to the width of the widest."""
        width = max(r.width for r in regs)
        return tuple(r if r.width == width else self._splat(r, width) for r in regs)

    def _splat(self, x: Reg, width: int) -> Reg:
        if not x.name.startswith("%"):
            return Reg(f"splat ({scalar_name(x.dtype)} {x.name})", x.dtype, width)
        vector, scalar = type_name(x.dtype, width), scalar_name(x.dtype)
        one = self.f.let(f"insertelement {vector} poison, {scalar} {x.name}, i64 0")
        name = self.f.let(f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer")
        return Reg(name, x.dtype, width)

    def splat(self, x: Reg) -> Reg:
        """The register at the width of the loop in hand."""
        return x if x.width == self.width else self._splat(x, self.width)

    def _binary(self, instruction: str, x: Reg, y: Reg) -> Reg:
        x, y = self._same(x, y)
        return Reg(self.f.let(f"{instruction} {self._type(x)} {x.name}, {y.name}"), x.dtype, x.width)

    def _call(self, name: str, result: DType, *args: Reg, tail: str = "") -> Reg:
        """Call an LLVM intrinsic that is overloaded on the type of its first argument."""
        args = self._same(*args)
        width = args[0].width
        full = f"llvm.{name}.{_overload(args[0].dtype, width)}"
        return self._call_full(full, result, args, tail)

    def _call_full(self, full: str, result: DType, args: Sequence[Reg], tail: str = "") -> Reg:
        width = args[0].width
        out = type_name(result, width)
        types = [self._type(a) for a in args]
        self.f.declare(full, out, ", ".join(types) + (", i1" if tail else ""))
        listed = ", ".join(f"{t} {a.name}" for t, a in zip(types, args, strict=True))
        return Reg(self.f.let(f"call {out} @{full}({listed}{tail})"), result, width)

    # --- constants and conversions ----------------------------------------------------------------------------------
    def const(self, value: bool | int | float, dtype: DType) -> Reg:
        return Reg(literal(value, dtype), dtype)

    def zero(self, dtype: DType) -> Reg:
        """The zero (or false) of a dtype."""
        return self.const(False if dtype.kind == "b" else 0, dtype)

    def bitcast(self, x: Reg, dtype: DType) -> Reg:
        if scalar_name(x.dtype) == scalar_name(dtype):
            return Reg(x.name, dtype, x.width)
        return self._convert("bitcast", x, dtype)

    def _convert(self, instruction: str, x: Reg, dtype: DType) -> Reg:
        return Reg(self.f.let(f"{instruction} {self._type(x)} {x.name} to {type_name(dtype, x.width)}"), dtype, x.width)

    def cast(self, x: Reg, dtype: DType) -> Reg:
        source = x.dtype
        if source is dtype:
            return x
        if source.is_half or dtype.is_half:
            return self._cast_half(x, dtype)
        if dtype.kind == "b":
            return self.compare("ne", x, self.zero(source))
        if source.kind == "b":
            return self._convert("uitofp" if dtype.is_float else "zext", x, dtype)
        if source.is_float:
            return self._float_to(x, dtype)
        if dtype.is_float:
            return self._convert("sitofp" if source.kind == "i" else "uitofp", x, dtype)
        return self._int_to_int(x, dtype)

    def _float_to(self, x: Reg, dtype: DType) -> Reg:
        if dtype.is_float:
            return self._convert("fpext" if dtype.bits > x.dtype.bits else "fptrunc", x, dtype)
        low, high = float(dtype.min), float(int(dtype.max) + 1)  # powers of two (or 0), so exact in every float type
        above = self.compare("ge", x, self.const(high, x.dtype))
        below = self.compare("lt", x, self.const(low, x.dtype))
        number = self.compare("eq", x, x)
        inside = self.and_(number, self.not_(self.or_(above, below)))
        safe = self.select(inside, x, self.zero(x.dtype))
        result = self._convert("fptosi" if dtype.kind == "i" else "fptoui", safe, dtype)
        result = self.select(above, self.const(dtype.max, dtype), result)
        return self.select(below, self.const(dtype.min, dtype), result)

    def _int_to_int(self, x: Reg, dtype: DType) -> Reg:
        if dtype.bits == x.dtype.bits:
            return Reg(x.name, dtype, x.width)
        if dtype.bits < x.dtype.bits:
            return self._convert("trunc", x, dtype)
        return self._convert("sext" if x.dtype.kind == "i" else "zext", x, dtype)

    def _cast_half(self, x: Reg, dtype: DType) -> Reg:
        """Conversions from and to 16-bit floats, through float32 and with one rounding."""
        if x.dtype.is_half:
            return self.cast(self._widened(x), dtype)
        if x.dtype is dt.float64 or (x.dtype.is_int and x.dtype.bits >= 32):
            single = small_floats.round_to_odd(self, self.cast(x, dt.float64))
        else:
            single = self.cast(x, dt.float32)
        if dtype is dt.bfloat16:
            return small_floats.float32_to_bfloat16(self, single)
        if not self.target.has_f16c:
            return small_floats.float32_to_float16(self, single)
        return self._convert("fptrunc", self._call("arithmetic.fence", dt.float32, single), dt.float16)

    def _widened(self, x: Reg) -> Reg:
        """A 16-bit float as float32."""
        if x.dtype is dt.bfloat16:
            return small_floats.bfloat16_to_float32(self, x)
        if not self.target.has_f16c:
            return small_floats.float16_to_float32(self, x)
        # the fence keeps LLVM from making one step of half -> float -> double, which would be a call
        return self._call("arithmetic.fence", dt.float32, self._convert("fpext", x, dt.float32))

    # --- arithmetic -------------------------------------------------------------------------------------------------
    def add(self, x: Reg, y: Reg) -> Reg:
        return self._binary("fadd" if x.dtype.is_float else "add", x, y)

    def sub(self, x: Reg, y: Reg) -> Reg:
        return self._binary("fsub" if x.dtype.is_float else "sub", x, y)

    def mul(self, x: Reg, y: Reg) -> Reg:
        return self._binary("fmul" if x.dtype.is_float else "mul", x, y)

    def div(self, x: Reg, y: Reg) -> Reg:
        if x.dtype.kind == "i":
            return self._signed_division("sdiv", x, y)
        return self._binary("fdiv" if x.dtype.is_float else "udiv", x, y)

    def rem(self, x: Reg, y: Reg) -> Reg:
        if x.dtype.kind == "i":
            return self._signed_division("srem", x, y)
        return self._binary("frem" if x.dtype.is_float else "urem", x, y)

    def _signed_division(self, instruction: str, x: Reg, y: Reg) -> Reg:
        """Guarded against the one quotient that overflows, which would trap: min / -1 wraps."""
        minus = self.compare("eq", y, self.const(-1, x.dtype))
        safe = self.select(minus, self.const(1, x.dtype), y)
        result = self._binary(instruction, x, safe)
        negated = self.neg(x) if instruction == "sdiv" else self.zero(x.dtype)
        return self.select(minus, negated, result)

    def neg(self, x: Reg) -> Reg:
        if x.dtype.is_float:
            return Reg(self.f.let(f"fneg {self._type(x)} {x.name}"), x.dtype, x.width)
        return self.sub(self.zero(x.dtype), x)

    def fma(self, x: Reg, y: Reg, z: Reg) -> Reg:
        return self._call("fma", x.dtype, x, y, z)

    def minimum(self, x: Reg, y: Reg) -> Reg:
        return self._choose("lt", x, y)

    def maximum(self, x: Reg, y: Reg) -> Reg:
        return self._choose("gt", x, y)

    def _choose(self, op: Compare, x: Reg, y: Reg) -> Reg:
        """y where it is better than x, or where x is NaN; else x."""
        if x.dtype.kind == "b":
            return self.and_(x, y) if op == "lt" else self.or_(x, y)
        take = self.compare(op, y, x)
        if x.dtype.is_float:
            take = self.or_(take, self.compare("ne", x, x))
        return self.select(take, y, x)

    # --- float instructions -----------------------------------------------------------------------------------------
    def sqrt(self, x: Reg) -> Reg:
        return self._call("sqrt", x.dtype, x)

    def abs(self, x: Reg) -> Reg:
        if x.dtype.is_float:
            return self._call("fabs", x.dtype, x)
        return self._call("abs", x.dtype, x, tail=", i1 false") if x.dtype.kind == "i" else x

    def floor(self, x: Reg) -> Reg:
        return self._call("floor", x.dtype, x)

    def ceil(self, x: Reg) -> Reg:
        return self._call("ceil", x.dtype, x)

    def trunc(self, x: Reg) -> Reg:
        return self._call("trunc", x.dtype, x)

    def rint(self, x: Reg) -> Reg:
        return self._call("roundeven", x.dtype, x)

    def copysign(self, x: Reg, sign: Reg) -> Reg:
        return self._call("copysign", x.dtype, x, sign)

    # --- bits -------------------------------------------------------------------------------------------------------
    def and_(self, x: Reg, y: Reg) -> Reg:
        return self._binary("and", x, y)

    def or_(self, x: Reg, y: Reg) -> Reg:
        return self._binary("or", x, y)

    def xor(self, x: Reg, y: Reg) -> Reg:
        return self._binary("xor", x, y)

    def not_(self, x: Reg) -> Reg:
        return self.xor(x, self.const(True if x.dtype.kind == "b" else -1, x.dtype))

    def shl(self, x: Reg, n: Reg) -> Reg:
        return self._shift("shl", x, n)

    def shr(self, x: Reg, n: Reg) -> Reg:
        return self._shift("ashr" if x.dtype.kind == "i" else "lshr", x, n)

    def _shift(self, instruction: str, x: Reg, n: Reg) -> Reg:
        count = Reg(n.name, x.dtype, n.width)
        if n.name.isdigit() and int(n.name) < x.dtype.bits:
            return self._binary(instruction, x, count)
        good = self.compare("lt", self.bitcast(n, _unsigned(n.dtype)), self.const(n.dtype.bits, _unsigned(n.dtype)))
        last = self.const(x.dtype.bits - 1, x.dtype)
        shifted = self._binary(instruction, x, self.select(good, count, last))
        return shifted if instruction == "ashr" else self.select(good, shifted, self.zero(x.dtype))

    def mulhi(self, x: Reg, y: Reg) -> Reg:
        x, y = self._same(x, y)
        wide = f"i{2 * x.dtype.bits}" if x.width == 1 else f"<{x.width} x i{2 * x.dtype.bits}>"
        a, b = (self.f.let(f"zext {self._type(r)} {r.name} to {wide}") for r in (x, y))
        product = self.f.let(f"mul {wide} {a}, {b}")
        bits = f"splat (i{2 * x.dtype.bits} {x.dtype.bits})" if x.width > 1 else str(x.dtype.bits)
        upper = self.f.let(f"lshr {wide} {product}, {bits}")
        return Reg(self.f.let(f"trunc {wide} {upper} to {self._type(x)}"), x.dtype, x.width)

    # --- choice -----------------------------------------------------------------------------------------------------
    def compare(self, op: Compare, x: Reg, y: Reg) -> Reg:
        x, y = self._same(x, y)
        if x.dtype.is_float:
            text = f"fcmp {_FCMP[op]}"
        elif op in ("eq", "ne"):
            text = f"icmp {op}"
        else:
            text = f"icmp {'s' if x.dtype.kind == 'i' else 'u'}{op}"
        return Reg(self.f.let(f"{text} {self._type(x)} {x.name}, {y.name}"), dt.bool_, x.width)

    def select(self, condition: Reg, x: Reg, y: Reg) -> Reg:
        if condition.width == 1:
            x, y = self._same(x, y)
        else:
            condition, x, y = self._same(condition, x, y)
        text = f"select {self._type(condition)} {condition.name}, {self._type(x)} {x.name}, {self._type(y)} {y.name}"
        return Reg(self.f.let(text), x.dtype, x.width)

    def lookup(self, table: Sequence[float | int], index: Reg, dtype: DType) -> Reg:
        if index.width > 1 and len(table) <= SMALL_TABLE:
            return self._pick([self.const(v, dtype) for v in table], index, 0)
        scalar = scalar_name(dtype)
        items = ", ".join(f"{scalar} {literal(v, dtype)}" for v in table)
        name = self.f.table(f"[{len(table)} x {scalar}] [{items}]")
        wide = self.cast(index, dt.int64)
        if index.width == 1:
            ptr = self.f.let(f"getelementptr inbounds {scalar}, ptr {name}, i64 {wide.name}")
            return Reg(self.f.let(f"load {scalar}, ptr {ptr}"), dtype)
        ptrs = self.f.let(f"getelementptr inbounds {scalar}, ptr {name}, <{index.width} x i64> {wide.name}")
        return self._gather(ptrs, dtype, index.width, None, None)

    def table(self, values: Any, dtype: DType) -> Buffer:
        # as a string of bytes, which LLVM reads ten times as fast as numbers; the last vector may be read whole
        data = np.ascontiguousarray(values, dtype.np).tobytes() + bytes(TABLE_SLACK)
        listed = data.hex("\\")
        return Buffer(dtype, self.f.table(f'[{len(data)} x i8] c"\\{listed}"'), tuple(np.shape(values)))

    def _pick(self, items: list[Reg], index: Reg, bit: int) -> Reg:
        """The entry of a small table: the bits of the index choose one of each two neighbours, and so on."""
        if len(items) == 1:
            return items[0] if items[0].width > 1 else self._splat(items[0], index.width)
        one = self.const(1 << bit, index.dtype)
        odd = self.compare("ne", self.and_(index, one), self.zero(index.dtype))
        pairs = [self.select(odd, *reversed(items[i : i + 2])) for i in range(0, len(items) - 1, 2)]
        return self._pick(pairs + items[len(pairs) * 2 :], index, bit + 1)

    # --- vectors ----------------------------------------------------------------------------------------------------
    def iota(self, dtype: DType) -> Reg:
        """0, 1, 2, ... at the width of the loop in hand."""
        if self.width == 1:
            return self.zero(dtype)
        items = ", ".join(f"{scalar_name(dtype)} {i}" for i in range(self.width))
        return Reg(f"<{items}>", dtype, self.width)

    def first_lanes(self, n: int) -> Reg:
        """The mask of the first n elements."""
        if self.width == 1:
            return self.const(n > 0, dt.bool_)
        items = ", ".join(f"i1 {'true' if i < n else 'false'}" for i in range(self.width))
        return Reg(f"<{items}>", dt.bool_, self.width)

    def any(self, mask: Reg) -> Reg:
        """Whether the mask holds anywhere."""
        return self._reduce_mask("or", mask)

    def all(self, mask: Reg) -> Reg:
        """Whether the mask holds everywhere."""
        return self._reduce_mask("and", mask)

    def _reduce_mask(self, op: str, mask: Reg) -> Reg:
        if mask.width == 1:
            return mask
        full = f"llvm.vector.reduce.{op}.v{mask.width}i1"
        self.f.declare(full, "i1", self._type(mask))
        return Reg(self.f.let(f"call i1 @{full}({self._type(mask)} {mask.name})"), dt.bool_)

    def extract(self, x: Reg, i: Reg) -> Reg:
        """One element of a vector."""
        if x.width == 1:
            return x
        return Reg(self.f.let(f"extractelement {self._type(x)} {x.name}, i64 {i.name}"), x.dtype)

    def insert(self, x: Reg, one: Reg, i: Reg) -> Reg:
        """The vector with one element replaced."""
        text = f"insertelement {self._type(x)} {x.name}, {scalar_name(x.dtype)} {one.name}, i64 {i.name}"
        return Reg(self.f.let(text), x.dtype, x.width)

    def halves(self, x: Reg) -> tuple[Reg, Reg]:
        """The lower and the upper half of a vector."""
        half = x.width // 2
        if half == 1:
            return self.extract(x, self.const(0, dt.int64)), self.extract(x, self.const(1, dt.int64))
        parts = []
        for first in (0, half):
            order = ", ".join(f"i32 {first + i}" for i in range(half))
            text = f"shufflevector {self._type(x)} {x.name}, {self._type(x)} poison, <{half} x i32> <{order}>"
            parts.append(Reg(self.f.let(text), x.dtype, half))
        return parts[0], parts[1]

    def sum_lanes(self, x: Reg) -> Reg:
        """The sum of a vector's elements, halves first, in a fixed order."""
        if x.width == 1:
            return x
        t, scalar = self._type(x), scalar_name(x.dtype)
        name = f"llvm.vector.reduce.{'fadd' if x.dtype.is_float else 'add'}.{_overload(x.dtype, x.width)}"
        if not x.dtype.is_float:
            self.f.declare(name, scalar, t)
            return Reg(self.f.let(f"call {scalar} @{name}({t} {x.name})"), x.dtype)
        self.f.declare(name, scalar, f"{scalar}, {t}")
        return Reg(self.f.let(f"call reassoc {scalar} @{name}({scalar} -0.0, {t} {x.name})"), x.dtype)

    def first_lane(self, mask: Reg) -> Reg:
        """The number of the first element for which the mask holds (some element must)."""
        bits = self.f.let(f"bitcast {self._type(mask)} {mask.name} to i{mask.width}")
        name = f"llvm.cttz.i{mask.width}"
        self.f.declare(name, f"i{mask.width}", f"i{mask.width}, i1")
        count = self.f.let(f"call i{mask.width} @{name}(i{mask.width} {bits}, i1 false)")
        return Reg(self.f.let(f"zext i{mask.width} {count} to i64") if mask.width < 64 else count, dt.int64)

    # --- memory, by address -----------------------------------------------------------------------------------------
    def byte_offset(self, ptr: str, offset: Reg) -> str:
        """The address `offset` bytes on."""
        return self.f.let(f"getelementptr i8, ptr {ptr}, i64 {offset.name}")

    def element_offset(self, ptr: str, dtype: DType, offset: Reg | None, constant: int) -> str:
        """The address of an element in memory, `offset + constant` elements on."""
        size = dtype.size
        if offset is not None:
            ptr = self.f.let(f"getelementptr i{8 * size}, ptr {ptr}, i64 {offset.name}")
        return self.f.let(f"getelementptr i8, ptr {ptr}, i64 {constant * size}") if constant else ptr

    def _memory_type(self, dtype: DType, width: int) -> str:
        return type_name(dt.uint8 if dtype.kind == "b" else dtype, width)

    def _from_memory(self, name: str, dtype: DType, width: int) -> Reg:
        if dtype.kind == "b":
            return self.compare("ne", Reg(name, dt.uint8, width), self.const(0, dt.uint8))
        return Reg(name, dtype, width)

    def _to_memory(self, x: Reg) -> Reg:
        return self.cast(x, dt.uint8) if x.dtype.kind == "b" else x

    def load_scalar(self, ptr: str, dtype: DType, mask: Reg | None, fill: Reg | None) -> Reg:
        """One element; under a mask that fails nothing is read and the result is `fill`."""
        t = self._memory_type(dtype, 1)
        if mask is None:
            return self._from_memory(self.f.let(f"load {t}, ptr {ptr}, align 1"), dtype, 1)
        assert fill is not None

        def read() -> Sequence[Reg]:
            return [self._from_memory(self.f.let(f"load {t}, ptr {ptr}, align 1"), dtype, 1)]

        return self.branch(mask, read, lambda: [fill])[0]

    def store_scalar(self, ptr: str, x: Reg, mask: Reg | None) -> None:
        def write() -> Sequence[Reg]:
            m = self._to_memory(x)
            self.f.do(f"store {self._type(m)} {m.name}, ptr {ptr}, align 1")
            return []

        if mask is None:
            write()
        else:
            self.branch(mask, write, list)

    def load_vector(self, ptr: str, dtype: DType, mask: Reg | None, fill: Reg | None) -> Reg:
        """A vector of adjacent elements."""
        width = self.width
        t = self._memory_type(dtype, width)
        if mask is None:
            return self._from_memory(self.f.let(f"load {t}, ptr {ptr}, align 1"), dtype, width)
        mask, fill = self.splat(mask), self.splat(self._to_memory(fill if fill is not None else self.zero(dtype)))
        full = f"llvm.masked.load.{_overload_memory(dtype, width)}.p0"
        self.f.declare(full, t, f"ptr, i32 immarg, <{width} x i1>, {t}")
        text = f"call {t} @{full}(ptr {ptr}, i32 1, <{width} x i1> {mask.name}, {t} {fill.name})"
        return self._from_memory(self.f.let(text), dtype, width)

    def store_vector(self, ptr: str, x: Reg, mask: Reg | None) -> None:
        m = self._to_memory(x)
        t = self._type(m)
        if mask is None:
            self.f.do(f"store {t} {m.name}, ptr {ptr}, align 1")
            return
        mask = self.splat(mask)
        full = f"llvm.masked.store.{_overload_memory(x.dtype, x.width)}.p0"
        self.f.declare(full, "void", f"{t}, ptr, i32 immarg, <{x.width} x i1>")
        self.f.do(f"call void @{full}({t} {m.name}, ptr {ptr}, i32 1, <{x.width} x i1> {mask.name})")

    def _pointers(self, ptr: str, offsets: Reg) -> str:
        return self.f.let(f"getelementptr i8, ptr {ptr}, {self._type(offsets)} {offsets.name}")

    def _gather(self, ptrs: str, dtype: DType, width: int, mask: Reg | None, fill: Reg | None) -> Reg:
        t = self._memory_type(dtype, width)
        full = f"llvm.masked.gather.{_overload_memory(dtype, width)}.v{width}p0"
        self.f.declare(full, t, f"<{width} x ptr>, i32 immarg, <{width} x i1>, {t}")
        m = "splat (i1 true)" if mask is None else self._same(mask, Reg("", dtype, width))[0].name
        rest = (
            "poison"
            if fill is None
            else self._splat(self._to_memory(fill), width).name
            if fill.width == 1
            else self._to_memory(fill).name
        )
        text = f"call {t} @{full}(<{width} x ptr> {ptrs}, i32 {dtype.size}, <{width} x i1> {m}, {t} {rest})"
        return self._from_memory(self.f.let(text), dtype, width)

    def gather_bytes(self, ptr: str, offsets: Reg, dtype: DType, mask: Reg | None, fill: Reg) -> Reg:
        """Elements at byte offsets from an address."""
        if offsets.width == 1:
            return self.load_scalar(self.byte_offset(ptr, offsets), dtype, mask, fill)
        return self._gather(self._pointers(ptr, offsets), dtype, offsets.width, mask, fill)

    def scatter_bytes(self, ptr: str, offsets: Reg, x: Reg, mask: Reg | None) -> None:
        """Write elements at byte offsets from an address; where two meet the higher lane wins."""
        if offsets.width == 1 and x.width == 1:
            self.store_scalar(self.byte_offset(ptr, offsets), x, mask)
            return
        offsets, x = self._same(offsets, x)
        m = self._to_memory(x)
        t, width = self._type(m), x.width
        full = f"llvm.masked.scatter.{_overload_memory(x.dtype, width)}.v{width}p0"
        self.f.declare(full, "void", f"{t}, <{width} x ptr>, i32 immarg, <{width} x i1>")
        on = "splat (i1 true)" if mask is None else self._same(mask, x)[0].name
        ptrs = self._pointers(ptr, offsets)
        text = f"call void @{full}({t} {m.name}, <{width} x ptr> {ptrs}, i32 {x.dtype.size}, <{width} x i1> {on})"
        self.f.do(text)

    def transpose_square(self, rows: Sequence[Reg]) -> list[Reg]:
        """The columns of as many vectors as each has elements: halves are interleaved until all are in place."""
        n = len(rows)
        vectors, t = list(rows), self._type(rows[0])
        low = ", ".join(f"i32 {k // 2 + n * (k % 2)}" for k in range(n))
        high = ", ".join(f"i32 {n // 2 + k // 2 + n * (k % 2)}" for k in range(n))
        for _ in range(n.bit_length() - 1):
            mixed = []
            for a, b in zip(vectors[: n // 2], vectors[n // 2 :], strict=True):
                for order in (low, high):
                    text = f"shufflevector {t} {a.name}, {t} {b.name}, <{n} x i32> <{order}>"
                    mixed.append(Reg(self.f.let(text), a.dtype, n))
            vectors = mixed
        return vectors

    def distance(self, start: str, end: str) -> Reg:
        """Bytes from one address to another."""
        a, b = (self.f.let(f"ptrtoint ptr {p} to i64") for p in (start, end))
        return Reg(self.f.let(f"sub i64 {b}, {a}"), dt.int64)

    def load_ptr(self, ptr: str, offset: int) -> str:
        return self.f.let(f"load ptr, ptr {self.element_offset(ptr, dt.uint8, None, offset)}, align 8")

    def load_i64(self, ptr: str, offset: int) -> Reg:
        return self.load_scalar(self.element_offset(ptr, dt.uint8, None, offset), dt.int64, None, None)

    # --- structure --------------------------------------------------------------------------------------------------
    def loop(
        self, start: Any, stop: Any, step: Any, carried: Sequence[Reg], body: Callable[..., Sequence[Reg]]
    ) -> list[Reg]:
        first, limit = self._index(start), self._index(stop)
        f = self.f
        head, inside, done = f.new_label("loop"), f.new_label("body"), f.new_label("done")
        before = f.label
        f.do(f"br label %{head}")
        f.start(head)
        i = Reg(f.fresh(), dt.int64)
        args = [Reg(f.fresh(), c.dtype, c.width) for c in carried]
        holes = [f.placeholder() for _ in range(1 + len(args))]
        test = f.let(f"icmp slt i64 {i.name}, {limit.name}")
        f.do(f"br i1 {test}, label %{inside}, label %{done}")
        f.start(inside)
        next_ = list(body(i, *args))
        following = self.add(i, self._index(step))
        after = f.label
        f.do(f"br label %{head}")
        for hole, r, a, b in zip(holes, [i, *args], [first, *carried], [following, *next_], strict=True):
            f.lines[hole] = self._phi(r, (a, before), (self._fit(b, r), after))
        f.start(done)
        return args

    def _index(self, value: Any) -> Reg:
        if isinstance(value, Reg):
            return value if value.dtype is dt.int64 else self.cast(value, dt.int64)
        return self.const(value, dt.int64)

    def _fit(self, x: Reg, like: Reg) -> Reg:
        if (x.dtype, x.width) != (like.dtype, like.width):
            raise CompilerBug(f"a carried register changes from {like} to {x}")
        return x

    def _phi(self, r: Reg, *incoming: tuple[Reg, str]) -> str:
        listed = ", ".join(f"[ {x.name}, %{label} ]" for x, label in incoming)
        return f"  {r.name} = phi {self._type(r)} {listed}"

    def branch(
        self, condition: Reg, then: Callable[[], Sequence[Reg]], otherwise: Callable[[], Sequence[Reg]]
    ) -> list[Reg]:
        f = self.f
        yes, no, end = f.new_label("then"), f.new_label("else"), f.new_label("end")
        f.do(f"br i1 {condition.name}, label %{yes}, label %{no}")
        results, ends = [], []
        for label, build in ((yes, then), (no, otherwise)):
            f.start(label)
            results.append(list(build()))
            ends.append(f.label)
            f.do(f"br label %{end}")
        f.start(end)
        merged = []
        for a, b in zip(*results, strict=True):
            r = Reg(f.fresh(), a.dtype, a.width)
            f.lines.append(self._phi(r, (a, ends[0]), (self._fit(b, a), ends[1])))
            merged.append(r)
        return merged

    def while_loop(
        self, carried: Sequence[Reg], condition: Callable[..., Reg], body: Callable[..., Sequence[Reg]]
    ) -> list[Reg]:
        """Run body(*carried) -> next carried as long as condition(*carried) holds."""
        f = self.f
        head, inside, done = f.new_label("while"), f.new_label("body"), f.new_label("done")
        before = f.label
        f.do(f"br label %{head}")
        f.start(head)
        args = [Reg(f.fresh(), c.dtype, c.width) for c in carried]
        holes = [f.placeholder() for _ in args]
        test = condition(*args)
        f.do(f"br i1 {test.name}, label %{inside}, label %{done}")
        f.start(inside)
        next_ = list(body(*args))
        after = f.label
        f.do(f"br label %{head}")
        for hole, r, a, b in zip(holes, args, carried, next_, strict=True):
            f.lines[hole] = self._phi(r, (a, before), (self._fit(b, r), after))
        f.start(done)
        return args

    def note_affine(self, x: Reg, base: Reg, step: int) -> None:
        """Remember that the vector `x` is base + step * lane. Overridden where indices are used."""

    # --- function ---------------------------------------------------------------------------------------------------
    def argument(self, name: str) -> Reg:
        return Reg(name, dt.int64)

    def alloca(self, bytes_: int) -> str:
        return self.f.alloca(bytes_)


def _unsigned(dtype: DType) -> DType:
    return dt.BY_NAME[f"uint{dtype.bits}"]


def _overload(dtype: DType, width: int) -> str:
    scalar = _SUFFIX.get(dtype.name) or scalar_name(dtype)
    return scalar if width == 1 else f"v{width}{scalar}"


def _overload_memory(dtype: DType, width: int) -> str:
    return _overload(dt.uint8 if dtype.kind == "b" else dtype, width)


def apply_elementwise(e: RegisterEmitter, definition: OpDef, regs: Sequence[Reg], attrs: dict[str, Any]) -> Reg:
    """Lower an elementwise op; 16-bit floats are widened first and the result is rounded once."""
    half = next((r.dtype for r in regs if r.dtype.is_half), None)
    if half is None or definition.name == "astype":
        return cast(Reg, definition.lowered(e, *regs, **attrs))
    wide = [e.cast(r, dt.float32) if r.dtype.is_half else r for r in regs]
    result: Reg = definition.lowered(e, *wide, **attrs)
    return e.cast(result, half) if result.dtype is dt.float32 else result
