"""Small cases that people hit with other tile languages, each with an answer worked out by hand or with NumPy.

The names begin with the number of the case. Cases about errors are in test_errors.py, those about syntax in
test_language.py, and most of those about gradients in test_gradients.py.
"""

import enum
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg

F32, F64, I32 = np.float32, np.float64, np.int32
FLOATS = {"float16": (tg.float16, np.float16), "bfloat16": (tg.bfloat16, ml_dtypes.bfloat16),
          "float32": (tg.float32, F32), "float64": (tg.float64, F64)}  # fmt: skip


def run(kernel: Any, *args: Any, dim: Any = 1, device: str, block_dim: int = 4) -> None:
    tg.launch_tiled(kernel, dim=dim, inputs=list(args), block_dim=block_dim, device=device)


def leaf(values: Any) -> tg.Array:
    return tg.array(np.array(values, F64), requires_grad=True)


# --- gradients --------------------------------------------------------------------------------------------------------


@tg.kernel
def adds_in_place(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64], n: int):
    i = tg.tid()
    for j in range(n):
        x[i] += y[j]


@tg.kernel
def adds_locally(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64], n: int):
    i = tg.tid()
    total = x[i]
    for j in range(n):
        total += y[j]
    x[i] = total


@pytest.mark.parametrize("kernel", [adds_in_place, adds_locally])
def test_g10_in_place_or_local_sum(kernel: Any, device: str) -> None:
    start, y, x = leaf(np.zeros(5)), leaf([1, 2, 3]), tg.zeros(5, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.copy(x, start)
        tg.launch(kernel, dim=5, inputs=[x, y, 3], device=device)
    tape.backward(grads={x: tg.ones(5, dtype=tg.float64)})
    assert x.numpy().tolist() == [6] * 5
    assert y.grad.numpy().tolist() == [5] * 3
    assert start.grad.numpy().tolist() == [1] * 5


@tg.kernel
def squares(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = x[i] * x[i]


def by_fill(x: tg.Array) -> None:
    x.fill_(5)


def by_assign(x: tg.Array) -> None:
    x.assign(np.full(1, 5.0))


def by_item(x: tg.Array) -> None:
    x[0] = 5.0


def by_launch(x: tg.Array) -> None:
    tg.launch(squares, dim=1, inputs=[tg.full(1, np.sqrt(5.0), dtype=tg.float64), x])


def by_numpy(x: tg.Array) -> None:
    x.numpy()[:] = 5


@pytest.mark.parametrize("overwrite", [by_fill, by_assign, by_item, by_launch, by_numpy])
def test_g18_overwritten_between_recording_and_backward(overwrite: Any, device: str) -> None:
    x, y = leaf([3.0]), tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(squares, dim=1, inputs=[x, y], device=device)
    overwrite(x)
    try:
        tape.backward(y)
    except tg.GradientUndefined as refused:  # a write that nobody could see: refused, never wrong
        assert overwrite is by_numpy
        assert "modified" in str(refused) or "changed" in str(refused)
    else:
        assert x.grad.numpy()[0] == 6


def test_g18_a_buffer_may_be_used_again_after_backward(device: str) -> None:
    x, y = leaf([3.0]), tg.zeros(1, dtype=tg.float64, requires_grad=True)
    for value in (3.0, 4.0, 5.0):
        x.fill_(value)
        with tg.Tape() as tape:
            tg.launch(squares, dim=1, inputs=[x, y], device=device)
        tape.backward(y)
        assert x.grad.numpy()[0] == 2 * value
        tape.zero()


@tg.kernel
def doubles(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = 2.0 * x[i]


@tg.kernel
def adds_up(x: tg.array1d[tg.float64], total: tg.array1d[tg.float64]):
    i = tg.tid()
    tg.atomic_add(total, 0, x[i])


def test_g19_the_source_of_a_copy_is_read_again(device: str) -> None:
    x = leaf([1, 2, 3, 4])
    copied, z = (tg.zeros(4, dtype=tg.float64, requires_grad=True) for _ in range(2))
    loss = tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.copy(copied, x)
        tg.launch(doubles, dim=4, inputs=[x, z], device=device)
        for part in (copied, z):
            tg.launch(adds_up, dim=4, inputs=[part, loss], device=device)
    tape.backward(loss)
    assert loss.numpy()[0] == 30
    assert x.grad.numpy().tolist() == [3] * 4


def test_g19_a_copy_overwrites_what_a_kernel_wrote(device: str) -> None:
    u, w = leaf([1, 2]), leaf([3, 4])
    y = tg.zeros(2, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(doubles, dim=2, inputs=[u, y], device=device)
        tg.copy(y, w)
    tape.backward(grads={y: tg.ones(2, dtype=tg.float64)})
    assert u.grad.numpy().tolist() == [0, 0]
    assert w.grad.numpy().tolist() == [1, 1]


@tg.kernel
def replaced_twice(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    t = tg.tile_zeros(shape=2, dtype=tg.float64)
    t[0] = x[0]
    t[0] = x[1]
    t[1] = x[0]
    tg.tile_store(y, t)


def test_g25_an_overwritten_element_gets_no_gradient(device: str) -> None:
    x, y = leaf([2, 3]), tg.zeros(2, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        run(replaced_twice, x, y, device=device)
    tape.backward(grads={y: tg.array(np.array([10.0, 100.0]))})
    assert y.numpy().tolist() == [3, 2]
    assert x.grad.numpy().tolist() == [100, 10]


def make_assignment(mapped: bool) -> tg.Kernel:
    @tg.kernel
    def assigns(x: tg.array1d[tg.float64], z: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
        t = tg.tile_load(x, shape=8)
        s = tg.tile_load(z, shape=4)
        if tg.static(mapped):
            s = tg.tile_map(lambda v: v + 1.0, s)
        tg.tile_assign(t, s, offset=2)
        tg.tile_store(y, t)

    return assigns


@pytest.mark.parametrize("mapped", [False, True])
def test_g26_part_of_a_tile_is_assigned(mapped: bool, device: str) -> None:
    x, z = leaf(np.arange(8)), leaf([10, 20, 30, 40])
    y = tg.zeros(8, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        run(make_assignment(mapped), x, z, y, device=device)
    tape.backward(grads={y: tg.array(np.arange(1.0, 9))})
    assert y.numpy().tolist() == [0, 1, *(np.array([10, 20, 30, 40]) + mapped).tolist(), 6, 7]
    assert x.grad.numpy().tolist() == [1, 2, 0, 0, 0, 0, 7, 8]
    assert z.grad.numpy().tolist() == [3, 4, 5, 6]


@tg.kernel
def scaled_product(
    a: tg.array2d[tg.float64], b: tg.array2d[tg.float64], c: tg.array2d[tg.float64], s: tg.array1d[tg.float64],
    y: tg.array2d[tg.float64],
):  # fmt: skip
    total = tg.tile_load(c, shape=(1, 1))
    tg.tile_matmul(tg.tile_load(a, shape=(1, 1)), tg.tile_load(b, shape=(1, 1)), total, alpha=s[0], beta=s[1])
    tg.tile_store(y, total)


def test_g29_alpha_and_beta_are_differentiable(device: str) -> None:
    a, b, c, s = leaf([[2]]), leaf([[3]]), leaf([[5]]), leaf([2, 0.5])
    y = tg.zeros((1, 1), dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        run(scaled_product, a, b, c, s, y, device=device)
    tape.backward(y)
    assert y.numpy()[0, 0] == 14.5
    assert s.grad.numpy().tolist() == [6, 5]
    assert (a.grad.item(), b.grad.item(), c.grad.item()) == (6, 4, 0.5)


@tg.kernel
def two_uses(a: tg.array2d[tg.float64], b: tg.array2d[tg.float64], d: tg.array2d[tg.float64],
             total: tg.array1d[tg.float64]):  # fmt: skip
    t = tg.tile_load(a, shape=(2, 2))
    s = tg.tile_sum(t @ tg.tile_load(b, shape=(2, 2))) + tg.tile_sum(t @ tg.tile_load(d, shape=(2, 2)))
    tg.tile_atomic_add(total, s)


def test_g31_gradients_of_two_products_add_up(device: str) -> None:
    a, b, d = leaf([[1, 2], [3, 4]]), leaf([[5, 6], [7, 8]]), leaf([[9, 1], [2, 3]])
    total = tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        run(two_uses, a, b, d, total, device=device)
    tape.backward(total)
    one = np.ones((2, 2))
    assert np.array_equal(a.grad.numpy(), one @ b.numpy().T + one @ d.numpy().T)


@tg.kernel
def largest_by_loop(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    best = x[0]
    for i in range(1, x.shape[0]):
        best = tg.max(best, x[i])
    y[0] = best


@tg.kernel
def largest_by_tile(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    tg.tile_store(y, tg.tile_max(tg.tile_load(x, shape=4)))


@pytest.mark.parametrize("kernel", [largest_by_loop, largest_by_tile])
def test_g34_the_first_of_equals_gets_the_gradient(kernel: Any, device: str) -> None:
    x, y = leaf([1, 3, 3, 2]), tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        run(kernel, x, y, device=device)
    tape.backward(y)
    assert y.item() == 3
    assert x.grad.numpy().tolist() == [0, 1, 0, 0]


def test_g35_seeds_stay_and_gradients_accumulate(device: str) -> None:
    x, y = leaf([3.0]), tg.zeros(1, dtype=tg.float64, requires_grad=True)
    seed = tg.ones(1, dtype=tg.float64)
    with tg.Tape() as tape:
        tg.launch(squares, dim=1, inputs=[x, y], device=device)
    tape.backward(grads={y: seed})
    tape.backward(grads={y: seed})
    assert x.grad.numpy()[0] == 12 and seed.numpy()[0] == 1
    tape.zero()
    tape.backward(grads={y: seed})
    assert x.grad.numpy()[0] == 6


@tg.kernel
def product_of_some(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64], start: int, stop: int, step: int):
    v = y[0]
    for i in range(start, stop, step):
        v = v * x[i]
    y[0] = v


@pytest.mark.parametrize(("steps", "visited"), [((8, 0, -3), [8, 5, 2]), ((1, 10, 4), [1, 5, 9])])
def test_l14_range_with_a_step_and_its_reverse(steps: Any, visited: list[int], device: str) -> None:
    x, y = leaf(np.arange(2, 12)), leaf([1.0])
    with tg.Tape() as tape:
        run(product_of_some, x, y, *steps, device=device)
    tape.backward(grads={y: tg.ones(1, dtype=tg.float64)})
    expected = np.zeros(10)
    for i in visited:
        expected[i] = np.prod([x.numpy()[j] for j in visited if j != i])
    assert y.item() == np.prod(x.numpy()[visited])
    assert x.grad.numpy().tolist() == expected.tolist()


# --- edges, views, empty things ---------------------------------------------------------------------------------------


@tg.kernel
def before_the_start(x: tg.array1d[float], loaded: tg.array1d[float]):
    tg.tile_store(loaded, tg.tile_load(x, shape=4, offset=-2))
    tg.tile_store(x, tg.tile_full(shape=4, value=100.0), offset=-2)


def test_i01_negative_tile_offset(device: str) -> None:
    memory, loaded = np.arange(8, dtype=F32), np.zeros(4, F32)
    run(before_the_start, memory[4:], loaded, device=device)
    assert loaded.tolist() == [0, 0, 4, 5]
    assert memory.tolist() == [0, 1, 2, 3, 100, 100, 6, 7]


@tg.kernel
def broadcasts_down(x: tg.array2d[float], y: tg.array1d[float]):
    tg.tile_store(y, tg.tile_broadcast(tg.tile_load(x, shape=(2, 3)), shape=(3,)))


def test_i04_broadcast_to_fewer_axes(device: str) -> None:
    with pytest.raises(tg.ShapeMismatch, match="broadcast"):
        run(broadcasts_down, np.zeros((2, 3), F32), np.zeros(3, F32), device=device)


@pytest.mark.parametrize("shape", [0, -1, (0, 4), (4, -2)])
def test_i06_tile_extents_are_positive(shape: Any, device: str) -> None:
    @tg.kernel
    def makes(o: tg.array1d[float]):
        o[0] = tg.tile_zeros(shape=shape)[0]

    with pytest.raises(tg.ShapeMismatch, match=r"tile_zeros.*(shape|extent)"):
        run(makes, np.zeros(1, F32), device=device)


def make_product(m: int, n: int, k: int, dtype: Any = float) -> tg.Kernel:
    @tg.kernel
    def product(a: tg.array2d(dtype=dtype), b: tg.array2d(dtype=dtype), c: tg.array2d(dtype=dtype)):
        i, j = tg.tid()
        total = tg.tile_zeros(shape=(m, n), dtype=dtype)
        for p in range(tg.cdiv(a.shape[1], k)):
            left = tg.tile_load(a, shape=(m, k), offset=(i * m, p * k))
            right = tg.tile_load(b, shape=(k, n), offset=(p * k, j * n))
            tg.tile_matmul(left, right, total)
        tg.tile_store(c, total, offset=(i * m, j * n))

    return product


def test_i08_sides_that_are_no_multiple_of_the_tile(device: str) -> None:
    a = np.fromfunction(lambda i, j: (7 * i + j) % 5, (10, 7)).astype(F32)
    b = np.fromfunction(lambda i, j: (5 * i + j) % 4, (7, 5)).astype(F32)
    c = np.full((10, 5), -1, F32)
    run(make_product(8, 4, 8), a, b, c, dim=(2, 2), device=device)
    assert c[0].tolist() == [16, 15, 14, 21, 16]
    assert c[9].tolist() == [18, 31, 32, 21, 18]
    assert c.sum() == 1020


def test_i08_large() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (1000, 500)).astype(F32), rng.integers(0, 9, (500, 1500)).astype(F32)
    c = np.zeros((1000, 1500), F32)
    tg.launch_tiled(make_product(48, 80, 56), dim=(21, 19), inputs=[a, b, c])
    assert np.array_equal(c, a @ b)


def test_m03_the_tail_of_the_sum_counts(device: str) -> None:
    a = np.fromfunction(lambda i, j: (24 * i + j) % 7 - 3, (16, 24)).astype(F32)
    b = np.fromfunction(lambda i, j: (8 * i + j) % 5 - 2, (24, 8)).astype(F32)
    c = np.full((16, 8), np.nan, F32)
    run(make_product(16, 8, 24), a, b, c, dim=(1, 1), device=device)
    assert c[0, 0] == 4 and c.sum() == -21
    wide = np.full((16, 104), np.nan, F32)
    other = np.tile(b, 13)
    run(make_product(16, 104, 24), a, other, wide, dim=(1, 1), device=device, block_dim=384)
    assert np.array_equal(wide, a @ other)


@tg.kernel
def small_tile(a: tg.array2d[float], o: tg.array2d[float], i: int, j: int):
    tg.tile_store(o, tg.tile_load(a, shape=(3, 3), offset=(i, j)))


def test_i10_small_unaligned_and_strided_loads(device: str) -> None:
    a, o = np.arange(81, dtype=F32).reshape(9, 9), np.zeros((3, 3), F32)
    wide = np.broadcast_to(np.arange(9, dtype=F32), (9, 9))
    for source in (a, a.T, a[:, ::2], a[::-1, ::-1], wide, np.asfortranarray(a)):
        run(small_tile, source, o, 1, 2, device=device)
        assert np.array_equal(o, source[1:4, 2:5])
    run(small_tile, a.T, o, 1, 2, device=device)
    assert o.tolist() == [[19, 28, 37], [20, 29, 38], [21, 30, 39]]
    run(small_tile, a, a.T[:3, :3], 4, 4, device=device)  # a strided output, in the memory of the input
    assert a.T[:3, :3].tolist() == [[40, 41, 42], [49, 50, 51], [58, 59, 60]]


@tg.kernel
def counts(o: tg.array1d[int]):
    i = tg.tid()
    tg.atomic_add(o, 0, 1)


@tg.kernel
def last_threads(o: tg.array1d[tg.int64]):
    i = tg.tid()
    if i >= tg.int64(2**31 - 1):
        o[i - tg.int64(2**31 - 1)] = i


def test_i12_more_threads_than_an_int_counts() -> None:
    o = np.zeros(3, np.int64)
    tg.launch(last_threads, dim=2**31 + 2, inputs=[o], block_dim=4096)
    assert o.tolist() == [2**31 - 1, 2**31, 2**31 + 1]
    with pytest.raises(ValueError, match="cannot be counted"):
        tg.launch(counts, dim=(2**31, 2**31), inputs=[np.zeros(1, I32)])


def test_i13_nothing_to_do_is_still_checked(device: str) -> None:
    x, y = np.zeros(0, F32), np.zeros(0, F32)
    run(before_the_start, x, y, device=device)  # an empty array: every load is outside
    for dim in (0, (4, 0)):
        one = np.zeros(1, I32)
        tg.launch(make_counter(dim), dim=dim, inputs=[one], device=device)
        assert one[0] == 0
        with pytest.raises(tg.LaunchError):
            tg.launch(make_counter(dim), dim=dim, inputs=[np.zeros(1, F32)], device=device)
    a = tg.array(np.arange(6, dtype=F32))
    assert a[0:0].shape == (0,)
    assert tg.zeros((1, 0)).numpy().shape == (1, 0)
    with pytest.raises(tg.ShapeMismatch, match="step"):
        a[::0]


def make_counter(dim: Any) -> tg.Kernel:
    if isinstance(dim, int):
        return counts

    @tg.kernel
    def counts2(o: tg.array1d[int]):
        i, j = tg.tid()
        tg.atomic_add(o, 0, 1)

    return counts2


@tg.kernel
def every_second_column(a: tg.array2d[float], o: tg.array2d[float]):
    tg.tile_store(o, tg.tile_load(a, shape=(4, 3))[:, ::2])


def test_i15_a_stride_that_does_not_divide_the_size(device: str) -> None:
    a, o = np.arange(12, dtype=F32).reshape(4, 3), np.zeros((4, 2), F32)
    run(every_second_column, a, o, device=device)
    assert np.array_equal(o, a[:, ::2])


@tg.kernel
def copies_blocks(a: tg.array2d[float], o: tg.array2d[float]):
    i, j = tg.tid()
    tg.tile_store(o, tg.tile_load(a, shape=(8, 128), offset=(i * 8, j * 128)), offset=(i * 8, j * 128))


@pytest.mark.parametrize(("shape", "dim"), [((1, 512), (1, 4)), ((24, 128), (3, 1))])
def test_i16_every_block_is_written(shape: Any, dim: Any, device: str) -> None:
    a, o = np.random.default_rng(0).random(shape, F32), np.full(shape, np.nan, F32)
    run(copies_blocks, a, o, dim=dim, device=device)
    assert np.array_equal(a, o)


# --- types ------------------------------------------------------------------------------------------------------------


@tg.kernel
def sums_of_small_types(o: tg.array1d[int], flag: tg.array1d[tg.bool]):
    o[0] = tg.tile_sum(tg.tile_full(shape=(32, 32), value=True))[0]
    rows = tg.tile_sum(tg.tile_full(shape=(128, 2), value=True), axis=1)
    both = tg.tile_sum(rows, axis=0)
    o[1] = both[0]
    flag[0] = both[0] != 0
    o[2] = tg.tile_sum(tg.tile_full(shape=200, value=tg.int8(100)))[0]


def test_d01_sums_of_bools_and_small_integers_widen(device: str) -> None:
    o, flag = np.zeros(3, I32), np.zeros(1, bool)
    run(sums_of_small_types, o, flag, device=device)
    assert o.tolist() == [1024, 256, 20000] and flag[0]


@pytest.mark.parametrize("name", FLOATS)
def test_d03_nan_counts_as_missing(name: str, device: str) -> None:
    dtype, np_type = FLOATS[name]

    @tg.kernel
    def extremes(x: tg.array1d(dtype=dtype), o: tg.array1d(dtype=dtype), index: tg.array1d[int]):
        t = tg.tile_load(x, shape=3)
        o[0], o[1] = tg.tile_max(t)[0], tg.tile_min(t)[0]
        o[2], o[3] = tg.max(tg.max(x[0], x[1]), x[2]), tg.min(tg.min(x[0], x[1]), x[2])
        o[4] = tg.tile_max(t, propagate_nan=True)[0]
        o[5] = tg.tile_reduce(tg.max, t)[0]
        index[0], index[1] = tg.tile_argmax(t)[0], tg.tile_argmin(t)[0]

    o, index = np.zeros(6, np_type), np.zeros(2, I32)
    run(extremes, np.array([1, np.nan, 3], np_type), o, index, device=device)
    np.testing.assert_array_equal(o.astype(F64), [3, 1, 3, 1, np.nan, 3])
    assert index.tolist() == [2, 0]
    run(extremes, np.full(3, np.nan, np_type), o, index, device=device)
    assert np.isnan(o.astype(F64)).all()


@pytest.mark.parametrize("block_dim", [9, 16, 64, 1024])
def test_d05_t04_fewer_values_than_lanes(block_dim: int, device: str) -> None:
    @tg.kernel
    def extremes(x: tg.array2d[float], o: tg.array1d[float], index: tg.array1d[int]):
        t = tg.tile_load(x, shape=(3, 3))
        o[0], o[1], o[2] = tg.tile_min(t)[0], tg.tile_max(-t)[0], tg.tile_sum(t)[0]
        index[0] = tg.tile_argmin(t)[0]

    o, index = np.zeros(3, F32), np.zeros(1, I32)
    run(extremes, np.ones((3, 3), F32), o, index, device=device, block_dim=block_dim)
    assert o.tolist() == [1, -1, 9] and index[0] == 0
    x = np.array([[2, 2, 3], [4, 1, 6], [7, 3, 9]], F32)
    run(extremes, x, o, index, device=device, block_dim=block_dim)
    assert o.tolist() == [1, -1, 37] and index[0] == 4


@pytest.mark.parametrize("np_type", [np.int64, np.uint64, np.uint8, np.int8, np.uint16, np.int16, np.float16])
def test_d07_atomics_of_every_width(np_type: Any, device: str) -> None:
    dtype = {np.dtype(getattr(tg, n).np): getattr(tg, n) for n in (
        "int64", "uint64", "uint8", "int8", "uint16", "int16", "float16")}[np.dtype(np_type)]  # fmt: skip
    step = 2**40 if np.dtype(np_type).itemsize == 8 else 1

    @tg.kernel
    def adds(o: tg.array1d(dtype=dtype)):
        i = tg.tid()
        tg.atomic_add(o, 1, dtype(step))

    o = np.zeros(3, np_type)
    tg.launch(adds, dim=1000, inputs=[o], device=device)
    expected = (np.zeros(1, np_type) + np_type(0), np.array([1000 * step]).astype(np_type))[1]
    assert o.tolist() == [0, expected[0], 0]


MINUS = tg.constant(tg.float64(2.5))


@tg.kernel
def literals(x: tg.array1d[tg.float64], n: tg.array1d[tg.int64], u: tg.array1d[tg.uint64]):
    x[0] = tg.float64(0.1)
    x[1] = -MINUS * tg.float64(4)
    n[0] = tg.int64(2**53 + 1)
    u[0] = tg.uint64(2**61 - 1) + tg.uint64(2**61 - 5)


def test_d09_literals_of_64_bits_are_exact(device: str) -> None:
    x, n, u = np.zeros(2), np.zeros(1, np.int64), np.zeros(1, np.uint64)
    run(literals, x, n, u, device=device)
    assert x.tolist() == [0.1, -10]
    assert n[0] == 9007199254740993 and u[0] == 4611686018427387898


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_d12_half_products_add_in_float32(name: str, device: str) -> None:
    dtype, np_type = FLOATS[name]
    a, b, c = np.ones((16, 4096), np_type), np.ones((4096, 16), np_type), np.zeros((16, 16), np_type)

    @tg.kernel
    def product(a: tg.array2d(dtype=dtype), b: tg.array2d(dtype=dtype), c: tg.array2d(dtype=dtype)):
        tg.tile_store(c, tg.tile_load(a, shape=(16, 4096)) @ tg.tile_load(b, shape=(4096, 16)))

    run(product, a, b, c, device=device)
    assert (c.astype(F64) == 4096).all()


class Colour(enum.IntEnum):
    RED = 3


class Flag(enum.IntFlag):
    A = 1
    B = 2


@tg.kernel
def enums(o: tg.array1d[int]):
    o[0] = Colour.RED
    o[1] = int(Flag.A) | Flag.B
    if o[0] == Colour.RED:
        o[2] = 1


def test_d15_enums_are_their_integers(device: str) -> None:
    o = np.zeros(3, I32)
    run(enums, o, device=device)
    assert o.tolist() == [3, 3, 1]


# --- numbers ----------------------------------------------------------------------------------------------------------


@tg.kernel
def total_of_blocks(x: tg.array1d[float], o: tg.array1d[float]):
    i = tg.tid()
    tg.tile_atomic_add(o, tg.tile_sum(tg.tile_load(x, shape=1000, offset=i * 1000)))


def test_n02_the_same_bits_in_every_run() -> None:
    x = tg.array(np.random.default_rng(0).random(200_000, F32), requires_grad=True)
    seen = set()
    for _ in range(20):
        total = tg.zeros(1, requires_grad=True)
        tg.launch_tiled(total_of_blocks, dim=200, inputs=[x, total])
        seen.add(total.numpy().tobytes())
    assert len(seen) == 1


@tg.kernel
def whole_sum(x: tg.array1d[float], o: tg.array1d[float]):
    tg.tile_store(o, tg.tile_sum(tg.tile_load(x, shape=1025)))


def test_n04_long_float32_sums(device: str) -> None:
    x, o = np.ones(1025, F32), np.zeros(1, F32)
    x[0] = 2**24
    run(whole_sum, x, o, device=device)
    assert o[0] == 16778240


def test_n05_float32_products_keep_float32() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(F32) for _ in range(2))
    c = np.zeros((512, 512), F32)
    tg.launch_tiled(make_product(64, 64, 64), dim=(8, 8), inputs=[a, b, c])
    assert np.abs(c - a.astype(F64) @ b.astype(F64)).max() < 1e-6 * 512


@tg.kernel
def half_of_a_tile(a: tg.array2d[float], b: tg.array2d[float], c: tg.array2d[float]):
    wide = tg.tile_load(a, shape=(16, 32))
    tg.tile_store(c, wide[:, :16] @ tg.tile_load(b, shape=(16, 16)))


def test_m01_a_strided_view_is_multiplied(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.random((16, 32), F32), rng.random((16, 16), F32), np.zeros((16, 16), F32)
    run(half_of_a_tile, a, b, c, device=device)
    np.testing.assert_allclose(c, a[:, :16] @ b, rtol=1e-6)


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_t01_lanes_to_a_tile_and_back(device: str) -> None:
    @tg.kernel
    def sums(o: tg.array1d[int]):
        i = tg.tid()
        total = tg.tile_sum(tg.tile(i + 1))
        o[i] = total[0]

    o = np.zeros(8, I32)
    tg.launch(sums, dim=8, inputs=[o], block_dim=8, device=device)
    assert o.tolist() == [36] * 8
    o = np.zeros(100, I32)
    tg.launch(sums, dim=100, inputs=[o], block_dim=64, device=device)
    assert o.tolist() == [2080] * 64 + [2970] * 36


@tg.kernel
def strided_by_block(o: tg.array1d[int], size: tg.array1d[int]):
    i, lane = tg.tid()
    size[0] = tg.block_dim()
    for k in range(lane, 100, tg.block_dim()):
        o[k] += 1


def test_t03_block_dim_is_what_was_asked_for(device: str) -> None:
    for block_dim in (8, 32, 8, 1, 100, 128):
        o, size = np.zeros(100, I32), np.zeros(1, I32)
        run(strided_by_block, o, size, device=device, block_dim=block_dim)
        assert size[0] == block_dim and (o == 1).all()


# --- the language -----------------------------------------------------------------------------------------------------


def test_l10_a_name_bound_after_the_decorator(device: str) -> None:
    def make() -> tg.Kernel:
        @tg.kernel
        def late(o: tg.array1d[int]):
            o[0] = value

        value = 3
        return late

    o = np.zeros(1, I32)
    run(make(), o, device=device)
    assert o[0] == 3


def test_l12_a_doctest_defines_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        textwrap.dedent('''
        """
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def k(o: tg.array1d[float]):
        ...     o[0] = 2.5
        >>> o = np.zeros(1, np.float32)
        >>> tg.launch_tiled(k, dim=1, inputs=[o])
        >>> o
        array([2.5], dtype=float32)
        """
        ''')
    )
    done = subprocess.run([sys.executable, "-m", "doctest", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_l15_values_of_every_kind_are_printed(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    @tg.kernel
    def prints(x: tg.array1d[float]):
        tg.printf("plain\n")
        print(tg.bool(True), tg.int8(65), tg.uint8(200), tg.int64(2**40), tg.float64(0.5))
        print(tg.tile_load(x, shape=3))

    run(prints, np.array([1, 2, 3], F32), device=device, block_dim=8)
    plain, scalars, tile = capfd.readouterr().out.splitlines()
    assert plain == "plain"
    assert scalars == "True 65 200 1099511627776 0.5"
    assert [float(v) for v in tile.strip("[]").replace(",", " ").split()] == [1, 2, 3]
