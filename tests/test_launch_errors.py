"""What must stop a launch stops it on every device, whether or not the result is used."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg

I1 = tg.array1d[tg.int32]


@tg.kernel
def row(x: I1, a: tg.array2d[float]):
    r = a[x[0]]


@tg.kernel
def element(x: I1, a: tg.array2d[float]):
    q = a[x[0], 0]


@tg.kernel
def quotient(x: I1, a: tg.array2d[float]):
    q = x[0] // x[1]


@tg.kernel
def quotient_of_tiles(x: I1, a: tg.array2d[float]):
    t = tg.tile_load(x, shape=4)
    q = t % t


@tg.kernel
def quotient_of_one_element(x: I1, a: tg.array2d[float]):
    t = tg.tile_load(x, shape=1, offset=1)
    q = t // t


@tg.kernel
def quotient_in_a_branch(x: I1, a: tg.array2d[float]):
    if x[0] > 3:
        q = 7 // x[1]


@tg.kernel
def part(x: I1, a: tg.array2d[float]):
    s = tg.tile_view(tg.tile_load(x, shape=4), offset=x[0], shape=2)


@tg.kernel
def quotient_of_lanes(x: I1, a: tg.array2d[float]):
    q = 7 // x[tg.tid()]


@tg.kernel
def quotient_in_a_map(x: I1, a: tg.array2d[float]):
    q = tg.tile_map(lambda v: 7 // v if v < 2 else v, tg.tile_load(x, shape=4))


DIVIDES = (quotient, quotient_of_tiles, quotient_of_one_element, quotient_in_a_branch, quotient_in_a_map)


@pytest.mark.parametrize("device", ["interpret", "cpu"])
@pytest.mark.parametrize("kernel", [row, element, part, *DIVIDES, quotient_of_lanes], ids=lambda k: k.name)
def test_what_is_not_used_is_checked_all_the_same(kernel, device):
    kind = tg.KernelIndexError if kernel in (row, element, part) else tg.KernelZeroDivisionError
    launch, dim = (tg.launch, 4) if kernel is quotient_of_lanes else (tg.launch_tiled, 1)
    good, bad = np.array([1, 1, 1, 1], np.int32), np.array([9, 0, 1, 1], np.int32)
    launch(kernel, dim=dim, inputs=[good, np.zeros((3, 3), np.float32)], device=device)
    with pytest.raises(kind):
        launch(kernel, dim=dim, inputs=[bad, np.zeros((3, 3), np.float32)], device=device)


@tg.kernel
def written_index(i: I1, x: I1, a: tg.array2d[float], y: tg.array1d[float], z: tg.array1d[float]):
    tg.tile_store(i, tg.tile_load(x, shape=4))
    tg.tile_store(y, tg.tile_load(a[0], shape=4))
    tg.tile_store(z, tg.tile_load(a[i[1]], shape=4))


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_a_row_whose_index_was_just_written(device):
    """The load of the row may not fuse with what stands before the index is known."""
    i, a = np.zeros(4, np.int32), np.arange(16, dtype=np.float32).reshape(4, 4)
    y, z = np.zeros((2, 4), np.float32)
    tg.launch_tiled(written_index, dim=1, inputs=[i, np.array([3, 2, 1, 0], np.int32), a, y, z], device=device)
    assert (y == a[0]).all() and (z == a[2]).all()
