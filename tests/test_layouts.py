"""Arrays of every layout go into a launch as they are and are written in place, on every device and block size."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg

BASE = np.arange(30 * 40, dtype=np.float32).reshape(30, 40)
SOURCES = {
    "plain": BASE[:10, :20],
    "Fortran": np.asfortranarray(BASE[:10, :20]),
    "transposed": BASE[:20, :10].T,
    "strided": BASE[:20:2, :40:2],
    "reversed": BASE[9::-1, 19::-1],
    "broadcast": np.broadcast_to(BASE[0, :20], (10, 20)),
}
TARGETS = {
    "plain": lambda: np.zeros((10, 20), np.float32),
    "transposed": lambda: np.zeros((20, 10), np.float32).T,
    "reversed": lambda: np.zeros((10, 20), np.float32)[::-1, ::-1],
    "strided": lambda: np.zeros((20, 60), np.float32)[::2, ::3],
}


@tg.kernel
def by_tiles(x: tg.array2d[tg.float32], y: tg.array2d[tg.float32]):
    i, j = tg.tid()
    tg.tile_store(y, tg.tile_load(x, shape=(4, 8), offset=(i * 4, j * 8)) * 2.0, offset=(i * 4, j * 8))


@tg.kernel
def by_elements(x: tg.array2d[tg.float32], y: tg.array2d[tg.float32]):
    i, j = tg.tid()
    y[i, j] = x[i, j] * 2.0


@pytest.mark.parametrize("device", ["interpret", "cpu"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_layouts(source, target, device):
    x = SOURCES[source]
    for lanes in (1, 7, 64):
        y = TARGETS[target]()
        tg.launch_tiled(by_tiles, dim=(3, 3), inputs=[x, y], device=device, block_dim=lanes)
        assert (y == 2 * x).all()
        y = TARGETS[target]()
        tg.launch(by_elements, dim=(10, 20), inputs=[x, y], device=device, block_dim=lanes)
        assert (y == 2 * x).all()


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_nothing_outside_a_part_of_an_array_is_touched(device):
    whole = np.full((16, 30), 7, np.float32)
    part = whole[3:13, 5:25]
    tg.launch_tiled(by_tiles, dim=(3, 3), inputs=[SOURCES["plain"], part], device=device)
    assert (part == 2 * SOURCES["plain"]).all()
    part[...] = 7
    assert (whole == 7).all()


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_arrays_without_elements(device):
    empty = np.zeros((0, 5), np.float32)
    tg.launch_tiled(by_tiles, dim=(1, 1), inputs=[empty, empty.copy()], device=device)
    tg.launch(by_elements, dim=(0, 5), inputs=[empty, empty.copy()], device=device)


@tg.kernel
def shifted(x: tg.array1d[tg.float32], y: tg.array1d[tg.float32]):
    tg.tile_store(y, tg.tile_load(x, shape=30))


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_arrays_that_share_memory(device):
    a = np.arange(31, dtype=np.float32)
    tg.launch_tiled(shifted, dim=1, inputs=[a[:30], a[1:]], device=device)
    assert a.tolist() == [0, *range(30)]


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float64, tg.int8, tg.int32, tg.uint64])
def test_products_of_every_type(dtype):
    @tg.kernel
    def product(a: tg.array2d(dtype=dtype), b: tg.array2d(dtype=dtype), c: tg.array2d(dtype=dtype)):
        t = tg.tile_zeros(shape=(8, 8), dtype=dtype)
        for k in range(4):
            t += tg.tile_load(a, shape=(8, 8), offset=(0, k * 8)) @ tg.tile_load(b, shape=(8, 8), offset=(k * 8, 0))
        tg.tile_store(c, t)

    a, b, c = np.ones((8, 32), dtype.np), np.ones((32, 8), dtype.np), np.zeros((8, 8), dtype.np)
    tg.launch_tiled(product, dim=1, inputs=[a, b, c])
    assert (c == 32).all()


def test_a_tile_of_8_megabytes():
    @tg.kernel
    def gram(x: tg.array2d[tg.float64], y: tg.array2d[tg.float64]):
        t = tg.tile_load(x, shape=(1024, 1024))
        tg.tile_store(y, t.T @ t)

    x = np.random.default_rng(0).random((1024, 1024))
    y = np.zeros_like(x)
    tg.launch_tiled(gram, dim=1, inputs=[x, y])
    np.testing.assert_allclose(y, x.T @ x, rtol=1e-12)
