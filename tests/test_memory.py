"""Memory: indexed access, atomics, element and in-place forms, index tiles; forward and gradient, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.testing import gradcheck

Host = np.ndarray[Any, Any]
DEVICES = ("interpret", "cpu")
both = pytest.mark.parametrize("device", DEVICES)
F1, F2, F3 = tg.array1d[tg.float64], tg.array2d[tg.float64], tg.array3d[tg.float64]
I1, I2 = tg.array1d[tg.int32], tg.array2d[tg.int32]


def ints(*values: int) -> Host:
    return np.array(values, np.int32)


def run(kernel: Any, *args: Any, device: str = "cpu", dim: Any = 1, block_dim: int | None = None) -> Any:
    """Launch over blocks; the last argument as a list."""
    tg.launch_tiled(kernel, dim=dim, inputs=list(args), device=device, block_dim=block_dim)
    return args[-1].tolist()


# --- gather and scatter of arrays -------------------------------------------------------------------------------------


@tg.kernel
def gather_rows(a: F2, i: I1, y: F2) -> None:
    index = tg.tile_load(i, shape=4)
    tg.tile_store(y, tg.tile_load_indexed(a, index, shape=(4, 3)))


@tg.kernel
def gather_columns(a: F2, i: I1, y: F2) -> None:
    index = tg.tile_load(i, shape=(4,))
    tg.tile_store(y, tg.tile_load_indexed(a, indices=index, shape=(3, 4), offset=(1, 0), axis=-1, fill=9.0))


@tg.kernel
def scatter_rows(a: F2, i: I1, y: F2) -> None:
    t = tg.tile_load(a, shape=(4, 3))
    tg.tile_store_indexed(y, tg.tile_load(i, shape=4), t, axis=0)


@tg.kernel
def add_rows(a: F2, i: I1, old: F2, y: F2) -> None:
    t = tg.tile_load(a, shape=(4, 3))
    tg.tile_store(old, tg.tile_atomic_add_indexed(y, tg.tile_load(i, shape=4), t))


@both
def test_gathered_rows(device: str) -> None:
    """I02: -1 marks padding. (Peer: the row before the array, 999, leaked in.)"""
    buffer = np.arange(18.0).reshape(6, 3)
    buffer[0] = 999
    src = buffer[1:]
    y = np.full((4, 3), np.nan)
    run(gather_rows, src, ints(-1, 0, 5, 1), y, device=device)
    np.testing.assert_array_equal(y, [[0, 0, 0], src[0], [0, 0, 0], src[1]])


@both
def test_gathered_columns_with_an_offset_and_a_fill(device: str) -> None:
    a = np.arange(15.0).reshape(3, 5)
    y = np.zeros((3, 4))
    run(gather_columns, a, ints(4, -1, 0, 5), y, device=device)
    expected = [[a[r, c] if r < 3 and 0 <= c < 5 else 9.0 for c in (4, -1, 0, 5)] for r in (1, 2, 3)]
    np.testing.assert_array_equal(y, expected)


@both
def test_scattered_rows(device: str) -> None:
    """C62, G16: the highest position wins, and only it has a gradient. (Peer: every duplicate was credited.)"""
    a, index = np.arange(12.0).reshape(4, 3), ints(2, -1, 2, 9)
    y = np.full((5, 3), -1.0)
    pullback = tg.vjp(scatter_rows, 1, [a, index], [y], device=device)
    np.testing.assert_array_equal(y, [[-1] * 3, [-1] * 3, a[2], [-1] * 3, [-1] * 3])
    grad = pullback(np.arange(15.0).reshape(5, 3))[0]
    np.testing.assert_array_equal(grad, [[0] * 3, [0] * 3, [6, 7, 8], [0] * 3])


@both
def test_rows_added_one_after_another(device: str) -> None:
    a, index = np.arange(12.0).reshape(4, 3), ints(2, -1, 2, 0)
    y, old = np.ones((3, 3)), np.zeros((4, 3))
    run(add_rows, a, index, old, y, device=device)
    np.testing.assert_array_equal(y, [1 + a[3], [1] * 3, 1 + a[0] + a[2]])
    np.testing.assert_array_equal(old, [[1] * 3, [0] * 3, 1 + a[0], [1] * 3])
