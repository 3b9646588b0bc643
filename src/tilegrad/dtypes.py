"""The element types: their names, sizes, NumPy twins, and the rules by which types meet.

A `DType` may be called like a constructor (`float64(0.1)`); outside a kernel that gives a NumPy scalar, inside one the
front end makes it a cast. Does not know about tiles or arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

Kind = Literal["b", "i", "u", "f"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar element type: `kind` is b(ool), i(nt), u(nsigned) or f(loat)."""

    name: str
    kind: Kind
    bits: int
    np: Any  # the NumPy dtype object

    def __call__(self, value: Any = 0) -> Any:
        """The value as a NumPy scalar of this type: `float64(0.1)` is exact, `int32(2.7)` truncates."""
        return self.np.type(value)

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return int(self.np.itemsize)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in "iu"

    @property
    def is_half(self) -> bool:
        """True for the 16-bit floats, which compute in float32 and round once."""
        return self.kind == "f" and self.bits == 16

    @property
    def min(self) -> Any:
        """Smallest value (-inf for floats)."""
        return -np.inf if self.is_float else (False if self.kind == "b" else int(np.iinfo(self.np).min))

    @property
    def max(self) -> Any:
        """Largest value (inf for floats)."""
        return np.inf if self.is_float else (True if self.kind == "b" else int(np.iinfo(self.np).max))


bool_ = DType("bool", "b", 8, np.dtype(np.bool_))
int8 = DType("int8", "i", 8, np.dtype(np.int8))
int16 = DType("int16", "i", 16, np.dtype(np.int16))
int32 = DType("int32", "i", 32, np.dtype(np.int32))
int64 = DType("int64", "i", 64, np.dtype(np.int64))
uint8 = DType("uint8", "u", 8, np.dtype(np.uint8))
uint16 = DType("uint16", "u", 16, np.dtype(np.uint16))
uint32 = DType("uint32", "u", 32, np.dtype(np.uint32))
uint64 = DType("uint64", "u", 64, np.dtype(np.uint64))
float16 = DType("float16", "f", 16, np.dtype(np.float16))
bfloat16 = DType("bfloat16", "f", 16, np.dtype(ml_dtypes.bfloat16))
float32 = DType("float32", "f", 32, np.dtype(np.float32))
float64 = DType("float64", "f", 64, np.dtype(np.float64))

SCALARS: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
)  # fmt: skip
FLOATS = tuple(d for d in SCALARS if d.is_float)
INTEGERS = tuple(d for d in SCALARS if d.is_int)
NUMERIC = INTEGERS + FLOATS
BY_NAME = {d.name: d for d in SCALARS}
_BY_NUMPY = {d.np: d for d in SCALARS}
_BY_PYTHON: dict[Any, DType] = {bool: bool_, int: int32, float: float32}


def as_dtype(spec: Any) -> DType | None:
    """The DType that `spec` stands for (a DType, `float`, `np.float32`, a NumPy dtype), or None if it is none."""
    if spec is None:  # np.dtype(None) would be float64
        return None
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, type) and spec in _BY_PYTHON:
        return _BY_PYTHON[spec]
    try:
        return _BY_NUMPY.get(np.dtype(spec))
    except TypeError:
        return None


def of_array(x: Any) -> DType:
    """The DType of a NumPy array or scalar that tilegrad made or has checked."""
    return _BY_NUMPY[x.dtype]


def of_literal(value: bool | int | float) -> DType:
    """The type a Python number has when nothing else decides: bool, int32 (int64 if it must), float32."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, float):
        return float32
    if int32.min <= value <= int32.max:
        return int32
    return int64 if value <= int64.max else uint64


def literal_fits(value: bool | int | float, dtype: DType) -> bool:
    """Whether a literal may take `dtype` without changing its value (floats may round)."""
    if isinstance(value, bool):
        return True
    if isinstance(value, float):
        return dtype.is_float
    return dtype.is_float or (dtype.is_int and dtype.min <= value <= dtype.max)


def sum_dtype(dtype: DType) -> DType:
    """The type of a sum: bool and small integers widen to int32/uint32, everything else stays."""
    if dtype.kind == "b" or (dtype.kind == "i" and dtype.bits < 32):
        return int32
    return uint32 if dtype.kind == "u" and dtype.bits < 32 else dtype


def accumulator(dtype: DType) -> DType:
    """The type in which a sum of `dtype` is carried before it is rounded once at the end."""
    return float32 if dtype.is_half else sum_dtype(dtype)


def quotient_dtype(dtype: DType) -> DType:
    """The type of `/`: floats stay; integers give float32, 64-bit integers float64 (Python's true division)."""
    return dtype if dtype.is_float else (float64 if dtype.bits == 64 else float32)
