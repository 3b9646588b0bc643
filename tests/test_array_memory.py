"""Arrays of any layout and size under every kind of access: packed fields, strides of any sign, more than 2 GiB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import compiler
from tilegrad import dtypes as dt
from tilegrad.ops.lanes import LaunchContext, context
from tilegrad.runtime import launch as native

Host = np.ndarray[Any, Any]
both = pytest.mark.parametrize("device", ["interpret", "cpu"])


@tg.kernel
def every_access(x: Any, i: tg.array1d[int], y: Any, z: Any, w: Any) -> None:
    b = tg.tid()
    t = tg.tile_load(x, shape=(3, 9), offset=(b * 3 - 1, -2))
    index = tg.tile_load(i, shape=3)
    tg.tile_store(y, t, offset=(b * 3 - 1, -2))
    tg.tile_store_indexed(w, index, tg.tile_load_indexed(x, index + 1, shape=(3, 9), axis=0), axis=0)
    tg.tile_atomic_add(z, t, offset=(2, 0))
    tg.tile_atomic_add_indexed(z, index, t)
    w[1, -1] = x[1, -1]
    tg.atomic_add(z, b, 0, x[b, -1])
    tg.tile_store(w[3], tg.tile_load(x[2], shape=5))


def fields(d: tg.DType, shape: tuple[int, int]) -> Host:
    """A field of packed records: its elements are misaligned, and their distance is no multiple of their size."""
    record = np.dtype([("tag", np.int8), ("value", d.np)])
    return np.full(shape, 1, record)["value"]


LAYOUTS: dict[str, Any] = {
    "packed": fields,
    "Fortran": lambda d, shape: np.zeros(shape, d.np, order="F"),
    "reversed": lambda d, shape: np.zeros(shape, d.np)[::-1, ::-1],
    "spread": lambda d, shape: np.zeros((3 * shape[0], 2 * shape[1]), d.np)[::3, ::2],
    "shifted": lambda d, shape: np.zeros(shape[0] * shape[1] + 1, d.np)[1:].reshape(shape),
    "one column": lambda d, shape: np.zeros((shape[0], 9), d.np)[:, 3:4],
}


@both
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [dt.float32, dt.float64, dt.int16, dt.float16, dt.uint8], ids=str)
def test_every_access_of_every_layout(device: str, layout: str, d: tg.DType) -> None:
    """C30 to C34: the wide paths are taken only where they hold."""
    width = 1 if layout == "one column" else 7
    rng = np.random.default_rng(8)
    values = rng.integers(0, 9, (5, width)).astype(d.np)
    i = np.array([2, 0, 2], np.int32)
    results = []
    for make in (LAYOUTS[layout], lambda d, shape: np.zeros(shape, d.np)):
        x, y, z, w = (make(d, (5, width)) for _ in range(4))
        x[...], y[...], z[...], w[...] = values, 0, 0, 0
        tg.launch_tiled(every_access, dim=2, inputs=[x, i, y, z, w], device=device, block_dim=4)
        results.append((y.copy(), z.copy(), w.copy()))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(results[0][0], values)


@both
def test_a_source_of_stride_zero(device: str) -> None:
    x = np.broadcast_to(np.arange(5.0)[:, None], (5, 9))
    y = np.zeros((5, 9))
    i = np.array([2, 0, 2], np.int32)
    tg.launch_tiled(every_access, dim=2, inputs=[x, i, y, np.zeros((5, 9)), np.zeros((5, 9))], device=device)
    np.testing.assert_array_equal(y[:, :7], x[:, :7])


@both
def test_an_offset_past_the_start_of_a_part(device: str) -> None:
    """I01. (Peer: elements before the part were read and overwritten.)"""

    @tg.kernel
    def kernel(a: tg.array1d[float], o: tg.array1d[float], n: int) -> None:
        tg.tile_store(o, tg.tile_load(a, shape=4, offset=n))
        tg.tile_store(a, tg.tile_full(4, 100.0), offset=n)

    for n, expected in ((-2, [0, 0, 4, 5]), (3, [7, 0, 0, 0]), (2**31 - 1, [0] * 4), (-(2**31), [0] * 4)):
        whole, o = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
        tg.launch_tiled(kernel, dim=1, inputs=[whole[4:], o, n], device=device)
        assert o.tolist() == expected
        assert whole[:4].tolist() == [0, 1, 2, 3]
    whole, o = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    for far in (2**63 - 1, -(2**63), 2**62):
        far_away(whole[4:], o, far, device)
        assert o.tolist() == [0] * 4 and whole.tolist() == [*range(8)]


@tg.kernel
def from_afar(a: tg.array1d[float], o: tg.array1d[float], n: tg.int64) -> None:
    t = tg.tile_load(a, shape=4, offset=n)
    tg.tile_store(o, t)
    tg.tile_store(a, t, offset=n)
    tg.tile_atomic_add(a, t + 1.0, offset=n)


def far_away(a: Host, o: Host, n: int, device: str) -> None:
    tg.launch_tiled(from_afar, dim=1, inputs=[a, o, n], device=device)


# --- large arrays ---------------------------------------------------------------------------------------------------


@tg.kernel
def far(x: tg.array1d[tg.uint8], n: tg.int64, y: tg.array1d[tg.uint8]) -> None:
    t = tg.tile_load(x, shape=16, offset=n)
    tg.tile_store(y, t)
    x[n + tg.int64(3)] = t[1]
    x[-1] = t[2]
    tg.atomic_add(x, n, t[5])
    index = tg.tile_full(4, n)
    tg.tile_store_indexed(x, index, tg.tile_full(4, 77, dtype=tg.uint8), offset=8)


@tg.kernel
def far_rows(x: tg.array2d[tg.float32], n: int, y: tg.array2d[tg.float32]) -> None:
    tg.tile_store(y, tg.tile_load(x, shape=(2, 8), offset=(1, n)) * 2.0)
    tg.tile_store(x, tg.tile_load(y, shape=(2, 8)), offset=(1, n + 8))
    x[2, n] = x[1, n] + 0.5


def sparse(path: Path, dtype: Any, shape: tuple[int, ...]) -> Host:
    """A large array that takes memory only where it is touched."""
    return np.memmap(path / "large", dtype, "w+", shape=shape)


@both
def test_elements_past_two_and_four_billion_bytes(device: str, tmp_path: Path) -> None:
    """C36. (Peer: offsets of 32 bits.)"""
    n = 2**32 + 5
    x = sparse(tmp_path, np.uint8, (n + 64,))
    x[n : n + 16] = np.arange(16)
    y = np.zeros(16, np.uint8)
    tg.launch_tiled(far, dim=1, inputs=[x, n, y], device=device)
    assert y.tolist() == [*range(16)]
    assert x[n + 3] == 1 and x[-1] == 2 and x[n] == 5 and x[n + 8] == 77
    assert not x[:64].any() and not x[n % 2**32 : n % 2**32 + 64].any()


@both
def test_rows_past_two_billion_elements(device: str, tmp_path: Path) -> None:
    n = 2**30
    x = sparse(tmp_path, np.float32, (3, n + 32))
    x[1, n : n + 8], x[2, n : n + 8] = np.arange(8), 10 + np.arange(8)
    y = np.zeros((2, 8), np.float32)
    tg.launch_tiled(far_rows, dim=1, inputs=[x, n, y], device=device)
    np.testing.assert_array_equal(y, [2 * np.arange(8), 20 + 2 * np.arange(8)])
    np.testing.assert_array_equal(x[1:, n + 8 : n + 16], y)
    assert x[2, n] == 0.5


@both
def test_an_extent_past_an_int(device: str, tmp_path: Path) -> None:
    @tg.kernel
    def kernel(x: tg.array1d[tg.uint8], y: tg.array1d[int]) -> None:
        y[0] = x.shape[0]

    y = np.zeros(1, np.int32)
    tg.launch_tiled(kernel, dim=1, inputs=[sparse(tmp_path, np.uint8, (2**31 - 1,)), y], device=device)
    assert y[0] == 2**31 - 1
    with pytest.raises(tg.KernelValueError, match="2147483648"):
        tg.launch_tiled(kernel, dim=1, inputs=[sparse(tmp_path, np.uint8, (2**31,)), y], device=device)


# --- large grids ----------------------------------------------------------------------------------------------------


@tg.kernel
def far_threads(y: tg.array2d[int]) -> None:
    i, j, k = tg.tid()
    y[k % 8, 0] = i
    y[k % 8, 1] = j
    y[k % 8, 2] = k


@tg.kernel
def far_blocks(y: tg.array2d[int]) -> None:
    i, j, lane = tg.tid()
    y[lane, 0] = i
    y[lane, 1] = j
    y[lane, 2] = lane


@pytest.mark.parametrize("tiled", [False, True])
def test_ids_past_an_int(tiled: bool) -> None:
    """I12: a few blocks far into a grid of more threads than an int counts."""
    kernel = far_blocks if tiled else far_threads
    grid = (2**20, 2**20) if tiled else (3 * 2**10, 2**20, 64)
    y = np.zeros((8, 3), np.int32)
    ir = kernel.ir(y, dim=grid, tiled=tiled, block_dim=8)
    block = (2**20 - 2) * 2**20 + 7 if tiled else (2**33 + 5 * 64 + 16) // 8
    made = compiler.compiled(ir)
    run_blocks(made, [y], grid, block, block + 1)
    first = [2**20 - 2, 7] if tiled else [*np.unravel_index(block * 8, grid)][:2]
    expected = [[*first, k if tiled else 16 + k] for k in range(8)]
    assert y.tolist() == expected
    place = LaunchContext(grid, block, 8, tiled)
    token = context.set(place)
    try:
        name = "block_id" if tiled else "thread_id"
        ids = [tg.op.REGISTRY[name].body(axis=a) for a in range(len(grid))]
    finally:
        context.reset(token)
    assert [int(np.max(i)) for i in ids[:2]] == [int(i) for i in first]


def run_blocks(made: Any, args: list[Any], grid: tuple[int, ...], first: int, last: int) -> None:
    """The compiled code of some blocks of a launch."""
    own = native._own
    words = native.argument_words(args)
    own.words[: len(words)] = words
    total = int(np.prod(grid, dtype=np.int64))
    own.grid[:5] = (*grid, *(1,) * (4 - len(grid)), total)
    own.context.prepare(made.scratch_bytes, made.stack_count)
    own.context.error[0] = 0
    made.function(first, last, own.words_address, own.grid_address, own.context.address)
    assert not own.context.error[0]


# --- nothing --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("shape", [(0, 7), (5, 0), (0, 0)])
def test_empty_arrays(device: str, shape: tuple[int, int]) -> None:
    """I13: every place is outside."""

    @tg.kernel
    def kernel(x: tg.array2d[float], y: tg.array2d[float]) -> None:
        t = tg.tile_load(x, shape=(2, 9), offset=(-1, 0), fill=3.0)
        index = tg.tile_zeros(2, dtype=int)
        u = tg.tile_load_indexed(x, index, shape=(2, 9), fill=4.0)
        tg.tile_store(x, t)
        tg.tile_store_indexed(x, index, t)
        tg.tile_store(y, t + u + tg.tile_atomic_add(x, t) + tg.tile_atomic_add_indexed(x, index, t))

    x, y = np.zeros(shape, np.float32), np.zeros((2, 9), np.float32)
    tg.launch_tiled(kernel, dim=3, inputs=[x, y], device=device)
    assert (y == 7).all()


@both
def test_an_element_of_an_empty_array_raises(device: str) -> None:
    @tg.kernel
    def kernel(x: tg.array1d[float]) -> None:
        x[0] = 1.0

    with pytest.raises(tg.KernelIndexError, match="index 0 is out of range for axis 0 with size 0"):
        tg.launch_tiled(kernel, dim=1, inputs=[np.zeros(0, np.float32)], device=device)


@tg.kernel
def sums(x: tg.array1d[float], y: tg.array1d[float]) -> None:
    i = tg.tid()
    tg.atomic_add(y, i % 3, x[i])


def test_sums_of_many_blocks_leave_neighbours_alone() -> None:
    """Fields of packed records are added to, and nothing between them."""
    record = np.dtype([("a", np.int8), ("value", np.float32), ("b", np.int16)])
    whole = np.zeros(3, record)
    whole["a"], whole["b"] = 7, 9
    x = np.arange(5000, dtype=np.float32)
    dense = np.zeros(3, np.float32)
    tg.launch(sums, dim=5000, inputs=[x, whole["value"]], block_dim=32)
    tg.launch(sums, dim=5000, inputs=[x, dense], block_dim=32)
    np.testing.assert_array_equal(whole["value"], dense)
    assert (whole["a"] == 7).all() and (whole["b"] == 9).all()
    np.testing.assert_allclose(dense, [x[k::3].sum() for k in range(3)], rtol=1e-5)
