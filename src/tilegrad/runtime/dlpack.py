"""Arrays of other libraries as NumPy arrays on the same memory, and back, through the DLPack protocol.

NumPy's own import refuses bfloat16 and makes everything from before DLPack 1.0 read-only, so the descriptor is read
here: an imported array holds the producer's capsule, whose destructor gives the memory back. JAX arrays are immutable
and therefore read-only. Does not copy, and does not import any other library.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from tilegrad.diagnostics import LaunchError, TypeMismatch

_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_DEVICE_NAMES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda (managed)", 14: "oneapi"}
_READ_ONLY = 1
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = {
    (code, size * 8): np.dtype(f"{kind}{size}")
    for kind, code in _KINDS.items()
    for size in ((1,) if kind == "b" else (2, 4, 8) if kind == "f" else (1, 2, 4, 8))
} | {(_BFLOAT, 16): _BFLOAT16}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class _Memory:
    """Memory at an address, as NumPy takes it; keeps `owner` alive as long as arrays on it live."""

    def __init__(self, address: int, size: int, owner: Any, read_only: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, read_only), "shape": (size,), "typestr": "|u1"}


def array_at(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None = None,
    owner: Any = None,
    read_only: bool = False,
) -> np.ndarray[Any, Any]:
    """The NumPy array whose first element lies at `address`; `strides` are in bytes, row-major if None."""
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        return (
            np.asarray(_Memory(address, _volume(shape) * dtype.itemsize, owner, read_only)).view(dtype).reshape(shape)
        )
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    size = sum(r for r in reach if r > 0) - low + dtype.itemsize
    memory = np.asarray(_Memory(address + low, size, owner, read_only))
    return np.ndarray(shape, dtype, buffer=memory, offset=-low, strides=strides)


def _volume(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def import_array(x: Any) -> np.ndarray[Any, Any]:
    """The memory of an object with `__dlpack__` as a NumPy array.

    Raises:
        LaunchError: the memory is not the CPU's.
        TypeMismatch: the element type has no NumPy twin.
    """
    if getattr(x, "requires_grad", False) and hasattr(x, "detach"):
        x = x.detach()  # PyTorch refuses to export what its own tape watches
    device = x.__dlpack_device__()
    if int(device[0]) not in _CPU_DEVICES:
        where = _DEVICE_NAMES.get(int(device[0]), f"DLPack device {int(device[0])}")
        raise LaunchError(
            f"an array on {where} cannot be used on the CPU", help="move it first, for example with x.cpu()"
        )
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = x.__dlpack__()
    tensor, read_only = _opened(capsule)
    return _viewed(tensor, capsule, read_only or type(x).__module__.partition(".")[0] in ("jax", "jaxlib"))


def _opened(capsule: Any) -> tuple[_Tensor, bool]:
    """The descriptor in a capsule, and whether its memory is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    return _Tensor.from_address(_pointer_of(capsule, b"dltensor")), False


def _viewed(tensor: _Tensor, capsule: Any, read_only: bool) -> np.ndarray[Any, Any]:
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeMismatch(f"a DLPack element type (code {tensor.code}, {tensor.bits} bits) has no twin in tilegrad")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(dtype.itemsize * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return array_at((tensor.data or 0) + tensor.byte_offset, shape, dtype, strides, capsule, read_only)


def export_array(a: np.ndarray[Any, Any], **options: Any) -> Any:
    """The DLPack capsule of a NumPy array; `options` are those of `__dlpack__`."""
    if a.dtype != _BFLOAT16:
        return a.__dlpack__(**options)
    capsule = a.view(np.uint16).__dlpack__(**options)
    _opened(capsule)[0].code = _BFLOAT
    return capsule
