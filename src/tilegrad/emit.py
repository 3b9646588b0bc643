"""The abstract Emitter: what the lowering of an op may ask of a target. Knows nothing of LLVM, CPUs or GPUs.

A `Reg` is a value in registers: a scalar (`width` 1) or a short vector (`width` W) of one dtype. W belongs to the
loop that is being emitted, and a lowering never asks for it: it writes scalar code, and the same code runs on W
elements, or W lanes, at once. Operands of different width are splatted. Floats of 16 bits are computed in float32:
the code generator widens the operands of an elementwise op before its lowering and rounds the result once.

The form of a lowering depends on the class of its op:

    elementwise   lower(e, *regs, **attrs) -> Reg
    scalar        lower(e, *operands, **attrs) -> Reg                operands: Reg or ArrayRef
    point         lower(e, at, *operands, **attrs) -> Reg            operands: Reg, ArrayRef or Source
    sink          lower(e, at, *operands, **attrs) -> None           the effect at one index
    fold          lower(e, *types, **attrs) -> Fold                  how to combine; the schedule makes the loops
    block         lower(e, outs, *operands, **attrs) -> None         operands: Reg, ArrayRef or Buffer; outs: Buffers,
                                                                     or for a scalar result a list to append the Reg to
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tilegrad.dtypes import DType

Compare = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True, slots=True)
class Reg:
    """A value in registers. To a lowering it is opaque but for its dtype; `name` is the code generator's."""

    name: str
    dtype: DType
    width: int = 1


@dataclass(frozen=True, slots=True)
class Coord:
    """One axis of an index: `base + step * lane`, where `lane` counts the elements of a vector register.

    `base` is a uniform int64 Reg or a Python int; `step` is a Python int, 0 on every axis but the vectorised one.
    A `gather` coordinate is an arbitrary int64 vector Reg; then `step` is 0 and `base` holds the vector.
    """

    base: Any
    step: int = 0
    gather: bool = False


Index = tuple[Coord, ...]


class Source(Protocol):
    """A tile operand of a point op, readable at any index, whether it is stored or computed on the spot."""

    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def at(self, index: Index) -> Reg: ...


@dataclass(slots=True)
class ArrayRef:
    """An array operand: base pointer, extents and byte strides, all uniform int64."""

    dtype: DType
    ptr: str
    shape: list[Reg]
    strides: list[Reg]
    dense_rows: bool
    #: where the memory of a group begins, and its flags (see codegen.combine); empty for the array itself
    origin: str = ""
    flags: str = ""

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(slots=True)
class Buffer:
    """A tile in the block's scratch memory, row-major and dense."""

    dtype: DType
    ptr: str
    shape: tuple[int, ...]
    #: the last two axes lie the other way round in memory: columns are dense, not rows
    swapped: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        if self.swapped:
            *outer, m, n = Buffer(self.dtype, self.ptr, (*self.shape[:-2], self.shape[-1], self.shape[-2])).strides
            return (*outer, n, m)
        result = [1] * len(self.shape)
        for k in range(len(self.shape) - 2, -1, -1):
            result[k] = result[k + 1] * self.shape[k + 1]
        return tuple(result)


@dataclass(frozen=True)
class Fold:
    """How a reduction combines elements: accumulators of the given dtypes, starting at `init`.

    step(accs, x, position) takes in one element (`position` is its int32 row-major index over the folded axes);
    merge(accs, accs) joins two partial results, the first from smaller positions; finish(accs) gives the result.
    `pairwise` asks for partial sums of bounded length, so that the error does not grow with the extent.
    """

    dtypes: tuple[DType, ...]
    init: tuple[bool | int | float, ...]
    step: Callable[[tuple[Any, ...], Any, Any], tuple[Any, ...]]
    merge: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    finish: Callable[[tuple[Any, ...]], Any]
    pairwise: bool = False
    #: whether `step` reads `position`
    positional: bool = False


class Emitter(ABC):
    """Instructions that every target offers. Arithmetic wraps for integers and is IEEE 754 for floats."""

    # constants and conversions
    @abstractmethod
    def const(self, value: bool | int | float, dtype: DType) -> Reg:
        """A constant; float64 values are exact, float32 values rounded to nearest."""

    @abstractmethod
    def cast(self, x: Reg, dtype: DType) -> Reg:
        """C-like conversion: floats truncate to integers (saturating, NaN gives 0), integers wrap, bool is x != 0."""

    @abstractmethod
    def bitcast(self, x: Reg, dtype: DType) -> Reg:
        """The same bits as another dtype of equal size."""

    # arithmetic on two Regs of one dtype (integers or floats)
    @abstractmethod
    def add(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def sub(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def mul(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def div(self, x: Reg, y: Reg) -> Reg:
        """Float quotient, or integer quotient truncated towards zero (the divisor must not be 0)."""

    @abstractmethod
    def rem(self, x: Reg, y: Reg) -> Reg:
        """Remainder of `div`: fmod for floats (exact), C's % for integers (the divisor must not be 0)."""

    @abstractmethod
    def neg(self, x: Reg) -> Reg: ...
    @abstractmethod
    def fma(self, x: Reg, y: Reg, z: Reg) -> Reg:
        """x*y + z rounded once (floats)."""

    @abstractmethod
    def minimum(self, x: Reg, y: Reg) -> Reg:
        """The smaller; a NaN counts as missing; x on ties."""

    @abstractmethod
    def maximum(self, x: Reg, y: Reg) -> Reg:
        """The larger; a NaN counts as missing; x on ties."""

    # float instructions
    @abstractmethod
    def sqrt(self, x: Reg) -> Reg: ...
    @abstractmethod
    def abs(self, x: Reg) -> Reg:
        """Magnitude; integers wrap at the minimum."""

    @abstractmethod
    def floor(self, x: Reg) -> Reg: ...
    @abstractmethod
    def ceil(self, x: Reg) -> Reg: ...
    @abstractmethod
    def trunc(self, x: Reg) -> Reg: ...
    @abstractmethod
    def rint(self, x: Reg) -> Reg:
        """Nearest integer, ties to even."""

    @abstractmethod
    def copysign(self, x: Reg, sign: Reg) -> Reg: ...

    # bits; bools are one-bit integers here
    @abstractmethod
    def and_(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def or_(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def xor(self, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def not_(self, x: Reg) -> Reg: ...
    @abstractmethod
    def shl(self, x: Reg, n: Reg) -> Reg:
        """x << n; a count outside [0, bits) gives 0."""

    @abstractmethod
    def shr(self, x: Reg, n: Reg) -> Reg:
        """x >> n, arithmetic for signed; a count outside [0, bits) gives 0 or the sign."""

    @abstractmethod
    def mulhi(self, x: Reg, y: Reg) -> Reg:
        """The upper half of the double-width product of unsigned integers."""

    # choice
    @abstractmethod
    def compare(self, op: Compare, x: Reg, y: Reg) -> Reg:
        """A bool; with a NaN every comparison but `ne` is false."""

    @abstractmethod
    def select(self, condition: Reg, x: Reg, y: Reg) -> Reg: ...
    @abstractmethod
    def any(self, mask: Reg) -> Reg:
        """Whether the mask holds for any element of the vector in hand: a uniform bool."""

    @abstractmethod
    def all(self, mask: Reg) -> Reg:
        """Whether the mask holds for every element of the vector in hand: a uniform bool."""

    @abstractmethod
    def lookup(self, table: Sequence[float | int], index: Reg, dtype: DType) -> Reg:
        """An entry of a constant table; `index` is an int32 Reg that must be in range."""

    @abstractmethod
    def table(self, values: Any, dtype: DType) -> Buffer:
        """Constants in memory, given as a NumPy array: a Buffer of its shape that is only read."""

    # indices
    @abstractmethod
    def i64(self, value: int | Reg) -> Reg:
        """An int or an integer Reg as int64."""

    @abstractmethod
    def coord(self, x: Reg | int) -> Coord:
        """An index given as a register: uniform, counting up with the lane, or arbitrary."""

    @abstractmethod
    def lanes_of(self, c: Coord) -> Reg:
        """A coordinate as an int64 Reg, a vector where it differs between elements."""

    # errors
    @abstractmethod
    def check(self, ok: Reg, kind: str, *values: Reg) -> None:
        """Unless `ok` holds for every active element, the launch raises the `kind` of error at the op's location.

        Execution goes on. `values` are shown in the message.
        """

    # memory of arrays, element by element
    @abstractmethod
    def array_get(self, array: ArrayRef, index: Index, fill: Reg | None = None) -> Reg:
        """The element; outside the array `fill`, or if that is None an index error (negatives count from the end)."""

    @abstractmethod
    def array_set(self, array: ArrayRef, index: Index, x: Reg, drop: bool) -> None:
        """Write the element; outside the array drop it silently, or if not `drop` raise an index error."""

    @abstractmethod
    def array_update(
        self, op: str, array: ArrayRef, index: Index, x: Reg, drop: bool, expected: Reg | None = None
    ) -> Reg:
        """Atomically combine (`op`: add, min, max, ...) into the element, in the launch's order; the old value.

        "take" (which replaces the element) and "add_back" go from the highest lane to the lowest. "cas" replaces an
        `expected` element, "claim" makes one that equals x NaN.
        """

    # scratch memory of the block
    @abstractmethod
    def load(self, buffer: Buffer, index: Index) -> Reg: ...
    @abstractmethod
    def store(self, buffer: Buffer, index: Index, x: Reg) -> None: ...
    @abstractmethod
    def scratch(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """Working memory that a block op may use until it ends; its contents are undefined."""

    @abstractmethod
    def copy(self, target: Buffer, source: Buffer) -> None:
        """Copy a whole tile; nothing happens when both are the same memory."""

    # structure
    @abstractmethod
    def points(self, shape: tuple[int, ...], body: Callable[[Index], None], width: int | None = None) -> None:
        """Run `body` at every index of `shape`, in any order, up to `width` elements at once; lanes share the work."""

    @abstractmethod
    def loop(
        self, start: Any, stop: Any, step: Any, carried: Sequence[Reg], body: Callable[..., Sequence[Reg]]
    ) -> list[Reg]:
        """A counted loop in order: body(i, *carried) -> next carried. `i` is a uniform int64 Reg."""

    @abstractmethod
    def each_lane(self, values: Sequence[Reg | Buffer], body: Callable[..., None]) -> None:
        """Run body(*values) for one live lane after the other; a Buffer among the values holds one element per lane.

        If no value differs between lanes the body runs once.
        """

    @abstractmethod
    def branch(
        self, condition: Reg, then: Callable[[], Sequence[Reg]], otherwise: Callable[[], Sequence[Reg]]
    ) -> list[Reg]:
        """A branch on a uniform condition."""

    @abstractmethod
    def matmul(self, out: Buffer, a: Buffer, b: Buffer, c: Buffer | None, *, options: dict[str, Any]) -> None:
        """out = a @ b (+ c), computed in the dtype of `out` (float32 for 16 bits) and rounded once.

        Leading axes are a batch, along which a and b are broadcast. `c` may be the memory of `out`.
        `options["swap"]` tells which of a and b are given with their last two axes swapped.
        """
