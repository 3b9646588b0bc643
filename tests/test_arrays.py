"""Arrays on the host: what they hold, what shares memory, what is refused, and how other libraries see them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from tilegrad.dtypes import SCALARS, DType
from tilegrad.runtime import arrays, dlpack


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        ([1.0, 2.0], None, tg.float32),
        ([1, 2], None, tg.int32),
        ([1, 2**40], None, tg.int64),
        ([True], None, tg.bool),
        (np.arange(3.0), None, tg.float64),
        (np.arange(3), None, tg.int64),
        ([np.float64(1)], None, tg.float64),
        (np.arange(3.0), float, tg.float32),
        ([1, 2], float, tg.float32),
        ([1.0], int, tg.int32),
        ([1], np.uint8, tg.uint8),
        ([1.5], tg.bfloat16, tg.bfloat16),
        (3.0, None, tg.float32),
    ],
)
def test_element_types(data: Any, dtype: Any, expected: DType) -> None:
    a = arrays.array(data, dtype)
    assert a.dtype is expected
    assert a.ndim == 1
    assert a.numpy().dtype == expected.np


def test_a_copy_is_made_unless_refused() -> None:
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    copied, shared = arrays.array(source), arrays.array(source, copy=False)
    source[0, 0] = 9
    assert copied.numpy()[0, 0] == 0
    assert shared.numpy()[0, 0] == 9
    assert shared.ptr == source.ctypes.data
    assert arrays.array(source.T, copy=False).strides == source.T.strides
    assert arrays.array(source, dtype=tg.float64, copy=None).dtype is tg.float64


def test_facts() -> None:
    a = arrays.zeros((2, 3), dtype=tg.float64)
    assert (a.shape, a.ndim, a.size, a.strides, a.device, len(a)) == ((2, 3), 2, 6, (24, 8), "cpu", 2)
    assert a.ptr % 64 == 0
    assert a.is_contiguous
    assert not a.T.is_contiguous
    assert repr(arrays.array([1, 2])) == "array([1, 2], shape=(2,), dtype=int32)"
    assert arrays.array([[1, 2], [3, 4]]).list() == [1, 2, 3, 4]
    assert arrays.array([1.5], dtype=tg.bfloat16).item() == 1.5
    assert type(arrays.array([1.5], dtype=tg.float16).list()[0]) is float


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_constructors(dtype: DType) -> None:
    assert arrays.zeros(3, dtype).list() == [0, 0, 0]
    assert arrays.ones((2, 1), dtype).list() == [1, 1]
    assert arrays.full(2, 1, dtype).list() == [1, 1]
    assert arrays.empty((0, 4), dtype).shape == (0, 4)
    a = arrays.full((2, 2), 1, dtype, requires_grad=dtype.is_float)
    for made, value in ((arrays.zeros_like(a), 0), (arrays.ones_like(a), 1), (arrays.full_like(a, 1), 1)):
        assert made.dtype is dtype
        assert made.list() == [value] * 4
        assert made.requires_grad is a.requires_grad
    assert arrays.empty_like(a, requires_grad=False).requires_grad is False
    assert arrays.clone(a).list() == a.list()


def test_full_takes_the_type_of_its_value() -> None:
    assert arrays.full(1, 2).dtype is tg.int32
    assert arrays.full(1, 2.0).dtype is tg.float32
    assert arrays.full(1, np.float64(2)).dtype is tg.float64


def test_views_share_memory() -> None:
    a = arrays.array(np.arange(12, dtype=np.int32).reshape(3, 4), copy=False)
    a[::2].fill_(7)
    a[1, 1:3] = [8, 9]
    a.T[0].zero_()
    a[1][3] = 5
    assert a.numpy().tolist() == [[0, 7, 7, 7], [0, 8, 9, 5], [0, 7, 7, 7]]
    assert a[1, 3] == 5
    assert a[-1].base is a
    assert a[1:][0].base is a
    assert a.reshape(2, -1).shape == (2, 6)
    assert a.flatten()[5] == 8
    assert [row.shape for row in a] == [(4,)] * 3
    assert a.transpose((1, 0)).shape == (4, 3)
    assert arrays.zeros(2, tg.int32).view(tg.float32).dtype is tg.float32


def test_views_share_gradients() -> None:
    a = arrays.zeros((2, 3), requires_grad=True)
    a[1].grad.fill_(2)
    a.reshape(3, 2)[0].grad.numpy()[1] = 5
    assert a.grad is not None
    assert a.grad.list() == [0, 5, 0, 2, 2, 2]
    assert a[::-1].requires_grad
    a.requires_grad = False
    assert a.grad is None
    assert a[0].grad is None


def test_gradients_are_made_when_they_are_asked_for() -> None:
    a = arrays.array([1.0, 2.0], requires_grad=True)
    assert a.grad is not None
    assert a.grad is a.grad
    assert a.grad.list() == [0, 0]
    given = np.ones(2, np.float32)
    b = arrays.array([1.0, 2.0], grad=given)
    assert b.requires_grad
    assert b.grad is not None
    given[0] = 3
    assert b.grad.list() == [3, 1]
    assert arrays.array([1.0]).grad is None
    with pytest.raises(
        tg.ShapeMismatch, match=r"the gradient of a float32 array \(2,\) cannot be a float32 array \(3,\)"
    ):
        b.grad = np.ones(3, np.float32)


def test_copy_and_assign() -> None:
    a, b = arrays.zeros((2, 3)), arrays.array(np.arange(6, dtype=np.float32).reshape(3, 2))
    arrays.copy(a, b)
    assert a.list() == [0, 1, 2, 3, 4, 5]
    arrays.copy(a, b, dest_offset=4, src_offset=1, count=2)
    assert a.list() == [0, 1, 2, 3, 1, 2]
    host = np.zeros(6, np.float32)
    arrays.copy(host, b)
    assert host.tolist() == [0, 1, 2, 3, 4, 5]
    assert a.assign([[1, 2, 3], [4, 5, 6]]) is a
    assert a.list() == [1, 2, 3, 4, 5, 6]
    a[1:] = a[:1]
    assert a.list() == [1, 2, 3, 1, 2, 3]


def test_overlapping_copies() -> None:
    a = arrays.array(list(range(6)))
    arrays.copy(a, a, dest_offset=1, src_offset=0, count=5)
    assert a.list() == [0, 0, 1, 2, 3, 4]


def test_writes_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(arrays, "before_write", [lambda dest, source: seen.append((dest.list(), source))])
    a, b = arrays.zeros(2), arrays.ones(2)
    a.fill_(1)
    a.assign(b)
    a[0] = 3
    arrays.copy(a, b)
    arrays.clone(a)
    assert [before for before, _ in seen[:4]] == [[0, 0], [1, 1], [1], [3, 1]]
    assert [source for _, source in seen[:4]] == [None, b, None, b]
    assert seen[4][1] is a


def test_memory_at_an_address() -> None:
    host = np.arange(8, dtype=np.float32)
    a = arrays.array(ptr=host.ctypes.data, shape=4, strides=(8,), dtype=float)
    a.fill_(0)
    assert host.tolist() == [0, 1, 0, 3, 0, 5, 0, 7]
    back = arrays.array(ptr=host.ctypes.data + 28, shape=8, strides=(-4,), dtype=float)
    assert back.list() == host[::-1].tolist()
    assert arrays.array(ptr=host.ctypes.data, shape=(2, 4), dtype=float).shape == (2, 4)
    assert arrays.array(ptr=0, shape=(0, 4), dtype=float).size == 0


def test_numpy_sees_an_array() -> None:
    a = arrays.array([1.0, 2.0])
    assert np.asarray(a).ctypes.data == a.ptr
    assert np.asarray(a, copy=False).ctypes.data == a.ptr
    assert np.array(a).ctypes.data != a.ptr
    assert np.asarray(a, np.float64).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"a float32 array cannot be seen as float64 without a copy"):
        np.asarray(a, np.float64, copy=False)


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_dlpack_round_trip(dtype: DType) -> None:
    a = arrays.ones((3, 4), dtype)[::2, ::-1]
    b = arrays.from_dlpack(a)
    assert (b.ptr, b.shape, b.strides, b.dtype) == (a.ptr, a.shape, a.strides, dtype)
    b[0, 0] = 0
    assert a[0, 0] == 0
    if dtype is not tg.bfloat16:  # which NumPy's own import refuses
        assert np.array_equal(np.from_dlpack(b), a.numpy())


def test_imported_memory_stays_alive() -> None:
    owner = np.arange(1000.0)
    kept = dlpack.import_array(owner)
    expected = owner.copy()
    del owner
    np.empty(1000)
    assert np.array_equal(kept, expected)


class _Foreign:
    """An array of another library, with what DLPack says about it."""

    def __init__(self, data: np.ndarray[Any, Any], device: int = 1) -> None:
        self.data, self.device = data, device

    def __dlpack__(self) -> Any:  # without max_version, as before DLPack 1.0
        return self.data.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


def test_arrays_of_other_libraries() -> None:
    host = np.zeros((2, 3), np.float32)
    seen = arrays.foreign(_Foreign(host))
    seen[1, 2] = 4
    assert host[1, 2] == 4
    with pytest.raises(tg.LaunchError, match=r"an array on cuda cannot be used on the CPU\n  help: move it first"):
        arrays.foreign(_Foreign(host, device=2))
    with pytest.raises(tg.TypeMismatch, match="has no twin"):
        dlpack.import_array(np.zeros(2, np.complex64))


def test_immutable_arrays_are_read_only() -> None:
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    assert not dlpack.import_array(frozen).flags.writeable
    jax_like = type("ArrayImpl", (_Foreign,), {"__module__": "jaxlib.xla_extension"})
    assert not dlpack.import_array(jax_like(np.zeros(2))).flags.writeable
    with pytest.raises(tg.LaunchError, match="read-only"):
        arrays.Array(frozen).zero_()


def _refused(make: Any, error: type[Exception], text: str) -> Any:
    return pytest.param(make, error, text, id=text[:40])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        _refused(
            lambda: arrays.zeros(2, np.complex64), tg.TypeMismatch,
            "complex64 is no element type of tilegrad\n  help: use one of bool, int8, int16",
        ),
        _refused(lambda: arrays.array(["x"]), tg.TypeMismatch, "<U1 is no element type of tilegrad"),
        _refused(lambda: arrays.array([[1], [2, 3]]), tg.TypeMismatch, "an array cannot be made of list data: "),
        _refused(lambda: arrays.array([300], tg.int8), tg.TypeMismatch, "out of bounds for int8"),
        _refused(lambda: arrays.array([1.5], int), tg.TypeMismatch, "fractions do not fit into int32"),
        _refused(lambda: arrays.array(object()), tg.TypeMismatch, "object is no element type"),
        _refused(
            lambda: arrays.array(np.ones(2), float, copy=False), tg.TypeMismatch,
            "float64 data cannot be seen as float32 without a copy\n  help: leave out copy=False",
        ),
        _refused(lambda: arrays.array([1], copy=False), tg.TypeMismatch, "a list has no memory to share"),
        _refused(lambda: arrays.array(), tg.LaunchError, "an array needs data, or a shape"),
        _refused(lambda: arrays.array([1], ndim=2), tg.ShapeMismatch, "the data has 1 axes (shape (1,)), ndim=2"),
        _refused(lambda: arrays.array([1], shape=(2,)), tg.ShapeMismatch, "does not fill shape (2,)"),
        _refused(lambda: arrays.array([1], strides=(4,)), tg.LaunchError, "strides= goes with ptr="),
        _refused(lambda: arrays.array(ptr=64), tg.LaunchError, "ptr= needs dtype= and shape= as well"),
        _refused(lambda: arrays.zeros(-1), tg.ShapeMismatch, "made of ints that are not negative, it is -1"),
        _refused(lambda: arrays.zeros(2.0), tg.ShapeMismatch, "made of ints that are not negative, it is 2.0"),
        _refused(lambda: arrays.zeros(2, device="cuda:0"), tg.LaunchError, "there is no device 'cuda:0'"),
        _refused(lambda: arrays.zeros(2**60), tg.LaunchError, "there is no memory for a float32 array"),
        _refused(lambda: arrays.zeros(6).reshape(4), tg.ShapeMismatch, "to (4,): it has 6 elements"),
        _refused(
            lambda: arrays.zeros((2, 3)).T.reshape(6), tg.ShapeMismatch,
            "its elements are not in one piece\n  help: use a.contiguous().reshape(...)",
        ),
        _refused(lambda: arrays.zeros((2, 3)).transpose((0, 0)), tg.ShapeMismatch, "are not a permutation"),
        _refused(lambda: arrays.zeros(2)[::0], tg.ShapeMismatch, "the step of a slice must not be 0"),
        _refused(lambda: arrays.zeros(2)[[0, 1]], tg.TypeMismatch, "ints, slices and `...`, not with list"),
        _refused(lambda: arrays.zeros(2)[5], tg.KernelIndexError, "index 5 is out of range for axis 0 with size 2"),
        _refused(lambda: arrays.zeros(2)[0, 0], tg.KernelIndexError, "2 indices for an array of 1 axes"),
        _refused(lambda: arrays.zeros(2).assign([1, 2, 3]), tg.ShapeMismatch, "values of shape (3,) do not fit"),
        _refused(
            lambda: arrays.zeros(2, int).assign(np.ones(2)), tg.TypeMismatch,
            "float64 values cannot be written to a int32 array",
        ),
        _refused(lambda: arrays.zeros(2).item(), tg.ShapeMismatch, "item() needs an array of one element"),
        _refused(lambda: bool(arrays.zeros(2)), tg.LaunchError, "neither true nor false"),
        _refused(lambda: arrays.zeros(2).fill_([1, 2]), tg.ShapeMismatch, "one number is needed"),
        _refused(lambda: arrays.copy(arrays.zeros(2), arrays.zeros(2, int)), tg.TypeMismatch, "dest holds float32"),
        _refused(
            lambda: arrays.copy(arrays.zeros(2), arrays.zeros(3)), tg.ShapeMismatch,
            "elements 0 to 3 of dest were asked for, it has 2",
        ),
        _refused(lambda: arrays.zeros_like(3), tg.TypeMismatch, "an array is needed, not int"),
        _refused(lambda: arrays.zeros(2).view(tg.float64), tg.TypeMismatch, "the element sizes differ"),
    ],
)  # fmt: skip
def test_refusals(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)


def test_empty_arrays() -> None:
    a = arrays.array(np.zeros((0, 3)))
    assert a[:0].shape == (0, 3)
    assert a.reshape(3, 0).shape == (3, 0)
    assert arrays.zeros((1, 0)).numpy().shape == (1, 0)
    assert a.list() == []
    assert arrays.array([]).dtype is tg.float32


def test_bfloat16_is_ml_dtypes() -> None:
    assert arrays.ones(2, tg.bfloat16).numpy().dtype == np.dtype(ml_dtypes.bfloat16)
    assert np.asarray(arrays.ones(2, tg.bfloat16), np.float32).tolist() == [1, 1]


def test_writing_through_an_ellipsis():
    a = tg.zeros((2, 3))
    a[...] = np.ones((2, 3), np.float32)
    a[0, 1] = 5
    a[..., 2] = 7
    a[1, ...] = 3
    assert a.numpy().tolist() == [[1, 5, 7], [3, 3, 3]]
