"""Memory: indexed access, atomics, element and in-place forms, index tiles; forward and gradient, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build
from tilegrad import dtypes as dt
from tilegrad.testing import check_kernel_gradient, gradcheck

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


# --- gather and scatter of arrays -----------------------------------------------------------------------------------


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


@both
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_axis_type_and_rank(device: str, data: Any) -> None:
    """Gather, scatter and add along any axis with indices of any integer type, some outside and some equal."""
    rank = data.draw(st.integers(1, 4))
    axis = data.draw(st.integers(-rank, rank - 1))
    extents = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    offset = tuple(data.draw(st.integers(-1, 2)) for _ in range(rank))
    d = data.draw(st.sampled_from(dt.INTEGERS))
    element = data.draw(st.sampled_from((dt.float32, dt.int64, dt.uint8, dt.bfloat16)))
    n = shape[axis]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    index = rng.integers(0 if d.kind == "u" else -2, 7, n).astype(d.np)
    block = data.draw(st.sampled_from((1, 3, 16)))
    shown = tuple(s + 4 for s in extents)

    @tg.kernel
    def kernel(a: Any, i: Any, g: Any, s: Any, r: Any) -> None:
        index = tg.tile_load(i, shape=n)
        t = tg.tile_load_indexed(a, index, shape=shape, offset=offset, axis=axis)
        tg.tile_store(g, t)
        tg.tile_store_indexed(s, index, t, offset=offset, axis=axis)
        tg.tile_atomic_add_indexed(r, index, t, offset=offset, axis=axis)

    a = rng.integers(1, 9, extents).astype(element.np)
    g, s, r = (np.zeros(x, element.np) for x in (shape, shown, shown))
    tg.launch_tiled(kernel, dim=2, inputs=[a, index, g, s, r], block_dim=block, device=device)
    expected = [np.zeros(x, element.np) for x in (shape, shown, shown)]
    for e in np.ndindex(shape):
        place = tuple(int(index[x]) + o if k == axis % rank else x + o for k, (x, o) in enumerate(zip(e, offset)))
        if all(0 <= p < m for p, m in zip(place, extents)):
            expected[0][e] = a[place]
        if all(0 <= p < m for p, m in zip(place, shown)):
            expected[1][place] = expected[0][e]
            expected[2][place] += 2 * expected[0][e]
    for got, want in zip((g, s, r), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@tg.kernel
def computed_index(a: F1, i: I2, y: F1) -> None:
    both_rows = tg.tile_load(i, shape=(2, 4))
    index = tg.tile_reshape(both_rows[1:, ::2], 2) * 2 + both_rows[0, 1:3]
    tg.tile_store(y, tg.tile_load_indexed(a, index, shape=2))


@both
def test_a_computed_index_tile(device: str) -> None:
    """C61. (Peer: a sliced or reshaped index tile did not compile.)"""
    i = np.array([[0, 1, -1, 0], [2, 0, 3, 0]], np.int32)
    assert run(computed_index, np.arange(10.0), i, np.zeros(2), device=device) == [5.0, 5.0]


@tg.kernel
def gather_of_gathered(a: F1, i: I1, y: F1) -> None:
    index = tg.tile_load(i, shape=4)
    total = tg.tile_zeros(shape=4, dtype=tg.float64)
    for k in range(3):
        t = tg.tile_load_indexed(a, (index + k) % 5, shape=4)
        if k != 1:
            total += tg.sin(t) * t
        else:
            total += t * 2.0
    tg.tile_store_indexed(y, index, total)
    tg.tile_atomic_add_indexed(y, index + 1, total * total)


@both
def test_gradients_in_loops_and_branches(device: str) -> None:
    rng = np.random.default_rng(3)
    gradcheck(gather_of_gathered, 1, [rng.standard_normal(6), ints(2, 0, 2, 4)], [np.zeros(6)], device=device)


def test_wrong_indexed_calls() -> None:
    def refuse(call: Any, text: str) -> None:
        @tg.kernel
        def kernel(a: F2, i: I1) -> None:
            call(a, tg.tile_load(i, shape=4))

        with pytest.raises(tg.TilegradError, match=text):
            tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((3, 3)), ints(0, 1, 2, 0)])

    refuse(lambda a, i: tg.tile_load_indexed(a, i, shape=(3, 3)), r"needs 3 indices in a 1-D tile")
    refuse(lambda a, i: tg.tile_load_indexed(a, i, shape=4), "2 dimensions, the tile 1")
    refuse(lambda a, i: tg.tile_load_indexed(a, i, shape=(4, 3), axis=2), "axis 2 is out of range")
    refuse(lambda a, i: tg.tile_load_indexed(a, tg.tile_astype(i, float), shape=(4, 3)), "must be integers")
    refuse(lambda a, i: tg.tile_load_indexed(a, tg.tile_reshape(i, (2, 2)), (4, 3)), r"tile_reshape\(indices, 4\)")
    refuse(lambda a, i: tg.tile_load_indexed(a, i, shape=(4, 3), offset=1), "2 offsets are needed")
    refuse(lambda a, i: tg.tile_load_indexed(a, i, shape=(4, 3), fill="x"), "fill must be a compile-time number")
    refuse(lambda a, i: tg.tile_store_indexed(a, i, tg.tile_zeros((4, 3), int)), "array holds float64, the tile int32")
    refuse(lambda a, i: tg.tile_store_indexed(a, a, i), "`indices` must be a tile")


# --- index tiles of tiles -------------------------------------------------------------------------------------------


@tg.kernel
def picks(x: F3, i: I1, j: I2, a: F3, b: F3, c: F2, d: F2, e: Any) -> None:
    t = tg.tile_load(x, shape=(3, 4, 5))
    row, two = tg.tile_load(i, shape=3), tg.tile_load(j, shape=(2, 3))
    tg.tile_store(a, t[row])
    tg.tile_store(b, t[:, row, ::2])
    tg.tile_store(c, t[row, :, 1])
    tg.tile_store(d, t[1, two, row])
    tg.tile_store(e, t[1:, two, ::-1])


@both
def test_index_tiles_read_as_in_numpy(device: str) -> None:
    rng = np.random.default_rng(1)
    x, i = rng.standard_normal((3, 4, 5)), ints(2, -1, 0)
    j = np.array([[0, -4, 3], [2, 2, 1]], np.int32)
    want = [x[i], x[:, i, ::2], x[i, :, 1], x[1, j, i], x[1:, j, ::-1]]
    outs = [np.zeros(w.shape) for w in want]
    pullback = tg.vjp(picks, 1, [x, i, j], outs, device=device)
    for got, w in zip(outs, want, strict=True):
        np.testing.assert_array_equal(got, w)
    cts = [rng.standard_normal(w.shape) for w in want]
    expected = np.zeros_like(x)
    for key, ct in zip([(i,), (slice(None), i, slice(None, None, 2)), (i, slice(None), 1), (1, j, i),
                        (slice(1, None), j, slice(None, None, -1))], cts, strict=True):  # fmt: skip
        np.add.at(expected, key, ct)
    np.testing.assert_allclose(pullback(*cts)[0], expected)


@tg.kernel
def writes(x: F2, v: F2, i: I1, y: F2) -> None:
    t = tg.tile_load(x, shape=(4, 3))
    new = tg.tile_load(v, shape=(3, 3))
    row = tg.tile_load(i, shape=3)
    t[row] = new
    t[row, 1] += new[0]
    t[:, row] -= 0.5
    t[1:][row[:2] * 0 + 1, ::2] *= 2.0
    t[t > 3.0] = 3.0
    t[t < -2.0] += new[0, 0]
    tg.tile_store(y, t)


@both
def test_index_tiles_and_masks_written_as_in_numpy(device: str) -> None:
    rng = np.random.default_rng(2)
    x, v, i = rng.standard_normal((4, 3)) * 2, rng.standard_normal((3, 3)) * 2, ints(1, -3, 2)

    def reference(x: Host, v: Host) -> Host:
        t = x.copy()
        t[i] = v
        np.add.at(t, (i, 1), v[0])
        np.subtract.at(t, (slice(None), i), 0.5)
        t[1:][np.array([1, 1]), ::2] *= 2.0
        t[t > 3.0] = 3.0
        t[t < -2.0] += v[0, 0]
        return t

    y = np.zeros((4, 3))
    tg.launch_tiled(writes, dim=1, inputs=[x, v, i, y], device=device)
    np.testing.assert_allclose(y, reference(x, v))
    gradcheck(writes, 1, [x, v, i], [y], device=device)


@both
def test_an_index_outside_the_tile_raises(device: str) -> None:
    for bad in (3, -4, 2**31 - 1, -(2**31)):
        with pytest.raises(tg.KernelIndexError, match=f"{bad} is out of range for axis 0 with size 3"):
            tg.launch_tiled(sliced_by, dim=1, inputs=[np.zeros((3, 2)), ints(0, bad), np.zeros((2, 2))], device=device)


@tg.kernel
def sliced_by(x: F2, i: I1, y: F2) -> None:
    tg.tile_store(y, tg.tile_slice_indexed(tg.tile_load(x, shape=(3, 2)), tg.tile_load(i, shape=2)))


@tg.kernel
def sliced_along(x: F2, i: I1, y: F2) -> None:
    tg.tile_store(y, tg.tile_slice_indexed(tg.tile_load(x, shape=(3, 2)), indices=tg.tile_load(i, shape=4), axis=-1))


@both
def test_slice_indexed(device: str) -> None:
    x = np.arange(6.0).reshape(3, 2)
    assert run(sliced_along, x, ints(1, 0, -1, -2), np.zeros((3, 4)), device=device) == x[:, [1, 0, -1, -2]].tolist()


def test_subscripts_that_make_no_sense() -> None:
    def refuse(call: Any, text: str) -> None:
        @tg.kernel
        def kernel(a: F2, i: I1) -> None:
            call(tg.tile_load(a, shape=(3, 4)), tg.tile_load(i, shape=3))

        with pytest.raises(tg.TilegradError, match=text):
            tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((3, 4)), ints(0, 1, 2)])

    refuse(lambda t, i: t[t > 0.0], "how many elements a mask chooses")
    refuse(lambda t, i: t[i > 0], "a mask must have the shape of the tile")
    refuse(lambda t, i: t[t], "an index tile holds integers")
    refuse(lambda t, i: t[i, None], "None does not stand beside an index tile")
    refuse(lambda t, i: t[i, 4], "index 4 is outside axis 1")
    refuse(lambda t, i: t[i, i[:2]], "do not broadcast")
    refuse(lambda t, i: t[i, i, i], "3 indices")


# --- elements of tiles ----------------------------------------------------------------------------------------------


@tg.kernel
def element_forms(x: F1, y: F2) -> None:
    t = tg.tile_load(x, shape=8)
    g = tg.tile_reshape(t, (2, 4))
    t[0] = 5.0
    g[0, 1] += x[0]
    t[-6] -= 2.0
    g[0][3] *= 3.0
    t[4:][0] /= 4.0
    t[5] //= 2.0
    g[-1, -2] %= 1.5
    t[7] **= 2.0
    tg.tile_store(y, g)


@both
def test_every_element_form(device: str) -> None:
    x = np.array([1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 7.0, 1.25])
    y = np.zeros((2, 4))
    tg.launch_tiled(element_forms, dim=1, inputs=[x, y], device=device)
    np.testing.assert_allclose(y.ravel(), [5, 3.5, 1, 12, 1.25, 3, 1.0, 1.5625])
    gradcheck(element_forms, 1, [x], [y], device=device)


@tg.kernel
def bit_forms(x: I1, y: I1) -> None:
    t = tg.tile_load(x, shape=6)
    t[0] &= 6
    t[1] |= 8
    t[2] ^= 3
    t[3] <<= 2
    t[4] >>= 1
    t[2:4] |= 16
    t[-1] //= -2
    tg.tile_store(y, t)


@both
def test_bit_forms(device: str) -> None:
    x = ints(7, 1, 5, 3, 9, 7)
    assert run(bit_forms, x, ints(*[0] * 6), device=device) == [6, 9, 22, 28, 4, -4]


@tg.kernel
def by_lanes(x: F1, bits: I1, y: F1, z: I1) -> None:
    _, lane = tg.tid()
    t = tg.tile_zeros(shape=4, dtype=tg.float64)
    u = tg.tile_full(shape=4, value=255, dtype=int)
    t[lane % 3] += x[lane]
    t[0] -= 0.5 * x[lane]
    t[lane % 2 - 1] += 1.0
    u[lane % 2] &= bits[lane]
    u[2] ^= bits[lane]
    u[-1] |= 256 << lane
    t[lane // 4] = t[lane // 4] + x[lane]
    tg.tile_store(y, t)
    tg.tile_store(z, u)


@both
def test_lanes_take_turns(device: str) -> None:
    rng = np.random.default_rng(5)
    x, bits = rng.standard_normal(6), rng.integers(0, 256, 6).astype(np.int32)
    t, u = np.zeros(4), np.full(4, 255, np.int32)
    for k in range(6):
        t[k % 3] += x[k]
    for k in range(6):
        t[0] -= 0.5 * x[k]
    for k in range(6):
        t[k % 2 - 1] += 1
        u[k % 2] &= bits[k]
        u[2] ^= bits[k]
        u[3] |= 256 << k
    t[0], t[1] = t[0] + x[3], t[1] + x[5]
    y, z = np.zeros(4), np.zeros(4, np.int32)
    tg.launch_tiled(by_lanes, dim=1, inputs=[x, bits, y, z], block_dim=6, device=device)
    np.testing.assert_array_equal(y, t)
    np.testing.assert_array_equal(z, u)
    gradcheck(by_lanes, 1, [x, bits], [y, z], block_dim=6, device=device)


@tg.kernel
def own_element(x: F1, y: F1) -> None:
    _, lane = tg.tid()
    t = tg.tile_load(x, shape=4)
    t[lane] *= x[lane]
    t[3 - lane] = tg.sin(t[3 - lane])
    tg.tile_store(y, t)


@both
def test_every_lane_its_own_element(device: str) -> None:
    x = np.array([0.5, 1.5, 2.5, 3.5])
    y = np.zeros(4)
    tg.launch_tiled(own_element, dim=1, inputs=[x, y], block_dim=4, device=device)
    np.testing.assert_allclose(y, np.sin(x * x))
    gradcheck(own_element, 1, [x], [y], block_dim=4, device=device)


def test_lanes_do_not_multiply_one_element() -> None:
    @tg.kernel
    def kernel(x: F1) -> None:
        t = tg.tile_zeros(shape=4, dtype=tg.float64)
        t[0] *= x[tg.tid()]

    with pytest.raises(tg.TypeMismatch, match=r"(?s)`\*=` on one tile element by all lanes.*\+= -= &= \|= \^="):
        tg.launch(kernel, dim=4, inputs=[np.ones(4)])


@tg.kernel
def lane_sums(x: F1, y: F1) -> None:
    """G25."""
    j = tg.tid()
    a = tg.tile_zeros(shape=8, dtype=tg.float64)
    a[j] = x[j]
    tg.tile_atomic_add(y, a)


@tg.kernel
def replaced_twice(x: F1, y: F1) -> None:
    a = tg.tile_zeros(shape=2, dtype=tg.float64)
    a[0] = x[0]
    a[0] = x[1]
    a[1] = x[2]
    tg.tile_store(y, a)


@both
def test_written_elements_have_gradients(device: str) -> None:
    """G25, C7. (Peer: the chain was cut, or an overwritten value was credited.)"""
    x, y = np.full(8, 2.0), np.zeros(8)
    with tg.Tape() as tape:
        a, b = tg.array(x, requires_grad=True), tg.array(y, requires_grad=True)
        tg.launch(lane_sums, dim=8, inputs=[a, b], block_dim=8, device=device)
    tape.backward(grads={b: tg.array(np.ones(8))})
    assert b.numpy().tolist() == [2.0] * 8 and np.asarray(a.grad).tolist() == [1.0] * 8
    y = np.zeros(2)
    pullback = tg.vjp(replaced_twice, 1, [np.ones(3)], [y], device=device)
    assert pullback(np.array([3.0, 4.0]))[0].tolist() == [0.0, 3.0, 4.0]


# --- contributions of lanes -----------------------------------------------------------------------------------------


@tg.kernel
def scatters(x: F1, i: I1, y: F2, z: F1) -> None:
    _, lane = tg.tid()
    t = tg.tile_zeros(shape=(2, 3), dtype=tg.float64)
    tg.tile_scatter_add(t, lane % 2, i[lane], x[lane], i[lane] < 3)
    tg.tile_scatter_add(t, 0, 1, value=x[lane] * x[lane], has_value=lane > 2)
    tg.tile_scatter_add(a=t, i=1, j=-1, value=1.5, atomic=False)
    u = tg.tile_full(shape=3, value=7.0, dtype=tg.float64)
    tg.tile_scatter_masked(u, i[lane], x[lane], i[lane] < 3)
    tg.tile_store(y, t)
    tg.tile_store(z, u)


@both
@pytest.mark.parametrize("block_dim", [1, 5, 16])
def test_scattered_contributions(device: str, block_dim: int) -> None:
    rng = np.random.default_rng(6)
    x, i = rng.standard_normal(block_dim), rng.integers(-3, 3, block_dim).astype(np.int32)
    i[2::3] = 1000  # without a value the index is not looked at
    t, u = np.zeros((2, 3)), np.full(3, 7.0)
    for k in range(block_dim):
        if i[k] < 3:
            t[k % 2, i[k]] += x[k]
            u[i[k]] = x[k]
    for k in range(3, block_dim):
        t[0, 1] += x[k] * x[k]
    t[1, 2] += 1.5
    y, z = np.zeros((2, 3)), np.zeros(3)
    tg.launch_tiled(scatters, dim=1, inputs=[x, i, y, z], block_dim=block_dim, device=device)
    np.testing.assert_allclose(y, t, rtol=1e-15)
    np.testing.assert_array_equal(z, u)
    gradcheck(scatters, 1, [x, i], [y, z], block_dim=block_dim, device=device)


@both
def test_a_contribution_outside_raises(device: str) -> None:
    x, i = np.zeros(4), ints(0, 1, -4, 0)
    with pytest.raises(tg.KernelIndexError, match="-4 is out of range for axis 1 with size 3"):
        tg.launch_tiled(scatters, dim=1, inputs=[x, i, np.zeros((2, 3)), x], block_dim=4, device=device)


def test_wrong_contributions() -> None:
    def refuse(call: Any, text: str) -> None:
        @tg.kernel
        def kernel(a: F2) -> None:
            call(tg.tile_load(a, shape=(3, 4)))

        with pytest.raises(tg.TilegradError, match=text):
            tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((3, 4))])

    refuse(lambda t: tg.tile_scatter_add(t, 1, 2.0), "takes 2 indices, a value and has_value")
    refuse(lambda t: tg.tile_scatter_masked(t, 1, 1, 2.0, True, False), "takes 2 indices")
    refuse(lambda t: tg.tile_scatter_add(t, 3, 1, 2.0), "index 3 is out of range for axis 0")
    refuse(lambda t: tg.tile_scatter_add(t, 1, 1, True), "literal True")
    refuse(lambda t: tg.tile_scatter_add(t, 1, 1, tg.float32(2.0)), "holds float64, the value is float32")


# --- lanes that have left -------------------------------------------------------------------------------------------


@tg.kernel
def left_early(x: F1, y: F1, n: int) -> None:
    i = tg.tid()
    if i >= n:
        return
    t = tg.tile_zeros(shape=3, dtype=tg.float64)
    t[i] = x[i]
    t[i] += 1.0
    y[i] = t[i] * 2.0


@both
def test_lanes_that_have_left_touch_no_element(device: str) -> None:
    y = np.zeros(8)
    tg.launch(left_early, dim=8, inputs=[np.arange(8.0), y, 3], block_dim=8, device=device)
    assert y.tolist() == [2.0, 4.0, 6.0, 0, 0, 0, 0, 0]


# --- assignments of parts -------------------------------------------------------------------------------------------


@tg.kernel
def assigned(x: F1, z: F1, y: F1) -> None:
    """G26, with the source made by a map."""
    t = tg.tile_load(x, shape=8)
    tg.tile_assign(t, tg.tile_map(lambda v: v * 1.0, tg.tile_load(z, shape=4)), offset=2)
    tg.tile_store(y, t)


@both
def test_tile_assign_over_a_part(device: str) -> None:
    """G26, C8. (Peer: the destination was counted twice.)"""
    y = np.zeros(8)
    pullback = tg.vjp(assigned, 1, [np.arange(8.0), -np.arange(4.0)], [y], device=device)
    assert y.tolist() == [0, 1, 0, -1, -2, -3, 6, 7]
    dx, dz = pullback(np.arange(1.0, 9.0))
    assert dx.tolist() == [1, 2, 0, 0, 0, 0, 7, 8] and dz.tolist() == [3, 4, 5, 6]


@tg.kernel
def overlapping(x: F2, n: int, y: F2) -> None:
    t = tg.tile_load(x, shape=(4, 4))
    tg.tile_assign(t, t.T)
    tg.tile_assign(t, t[:2, 1:], offset=(n, n - 1))
    t[1:] = t[:-1]
    t[:, ::2] = t[:, 1::2]
    tg.tile_assign(t[0], tg.tile_full(shape=4, value=3, dtype=int))
    tg.tile_store(y, t)


@both
def test_assignment_reads_before_it_writes(device: str) -> None:
    """C50. (Peer: a tile assigned its own transpose was scrambled.)"""
    x = np.random.default_rng(4).standard_normal((4, 4))
    y = np.zeros((4, 4))
    t = x.T.copy()
    t[2:, 1:] = t[:2, 1:].copy()
    t[1:] = t[:-1].copy()
    t[:, ::2] = t[:, 1::2].copy()
    t[0] = 3
    tg.launch_tiled(overlapping, dim=1, inputs=[x, 2, y], device=device)
    np.testing.assert_array_equal(y, t)
    gradcheck(overlapping, 1, [x, 2], [y], device=device)
    for n in (-1, 3):
        with pytest.raises(tg.KernelIndexError, match="out of range"):
            tg.launch_tiled(overlapping, dim=1, inputs=[x, n, y], device=device)


@tg.kernel
def parts(x: F2, y: F2) -> None:
    t = tg.tile_load(x, shape=(4, 6))
    t[0] = 1.0
    t[1:3, ::-2] = t[0, :3]
    t[3][::2] *= 2.0
    t[-1, -4:][1] += 5.0
    v = tg.tile_view(t, (slice(1, 3), slice(0, 2)))
    v += x[0, 0]
    v[0] -= t[3, :2]
    w = t[::-1][::2]
    w[1, 5] = 9.0
    tg.tile_store(y, t)


@both
def test_parts_are_views(device: str) -> None:
    x = np.random.default_rng(7).standard_normal((4, 6))
    t = x.copy()
    t[0] = 1
    t[1:3, ::-2] = t[0, :3]
    t[3, ::2] *= 2
    t[-1, -4:][1] += 5
    t[1:3, 0:2] += x[0, 0]
    t[1, :2] -= t[3, :2]
    t[::-1][::2][1, 5] = 9
    y = np.zeros((4, 6))
    tg.launch_tiled(parts, dim=1, inputs=[x, y], device=device)
    np.testing.assert_allclose(y, t)
    gradcheck(parts, 1, [x], [y], device=device)


@tg.kernel
def repeated(x: F2, i: I1, y: F1) -> None:
    row = tg.tile_zeros(shape=3, dtype=tg.float64)
    wide = tg.tile_broadcast(row, shape=(2, 3))
    wide += tg.tile_load(x, shape=(2, 3))
    wide[1, 2] += 100.0
    wide[:, 1] -= 0.25
    wide[tg.tile_load(i, shape=3)] += 1.0
    wide.T[::2] += 1000.0
    tg.tile_store(y, row)


@both
def test_additions_through_a_broadcast_view_all_count(device: str) -> None:
    """C25. (Peer: only one of the rows survived.)"""
    x, y = np.array([[1.0, 1, 1], [10, 10, 10]]), np.zeros(3)
    tg.launch_tiled(repeated, dim=1, inputs=[x, ints(0, 1, 1), y], device=device)
    assert y.tolist() == [2014.0, 13.5, 2114.0]
    gradcheck(repeated, 1, [x, ints(0, 1, 1)], [y], device=device)


def test_no_other_write_goes_through_a_broadcast_view() -> None:
    def refuse(write: Any) -> None:
        @tg.kernel
        def kernel(a: F1) -> None:
            write(tg.tile_broadcast(tg.tile_load(a, shape=3), shape=(2, 3)))

        with pytest.raises(tg.TypeMismatch, match=r"broadcast from \(3,\) to \(2, 3\) cannot be written through"):
            tg.launch_tiled(kernel, dim=1, inputs=[np.zeros(3)])

    @tg.func
    def set_element(t: Any) -> None:
        t[0, 1] = 1.0

    @tg.func
    def set_row(t: Any) -> None:
        t[1] = 1.0

    @tg.func
    def scale(t: Any) -> None:
        t *= 2.0

    for write in (set_element, set_row, scale, lambda t: tg.tile_assign(t, tg.tile_zeros((2, 3), tg.float64))):
        refuse(write)


# --- atomic updates of array elements -------------------------------------------------------------------------------

UPDATES: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "min": np.fmin, "max": np.fmax, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, x: x,
}  # fmt: skip


def element_types(name: str) -> list[tg.DType]:
    if name in ("and", "or", "xor"):
        return [dt.bool_, *dt.INTEGERS]
    return list(dt.SCALARS if name == "exch" else dt.NUMERIC)


@both
@pytest.mark.parametrize("name", UPDATES)
def test_updates_follow_the_order_of_the_launch(device: str, name: str) -> None:
    """D07: every type, 8 to 64 bits; the old values are those of lane after lane, block after block."""
    update = getattr(tg, f"atomic_{name}")

    @tg.kernel
    def kernel(x: Any, i: I1, a: Any, old: Any) -> None:
        t = tg.tid()
        old[t] = update(a, i[t], x[t])

    rng = np.random.default_rng(9)
    for d in element_types(name):
        x, a = (rng.integers(0, 2 if d.kind == "b" else 60, n).astype(d.np) for n in (23, 4))
        if d.is_float and name in ("min", "max"):
            x[::5], a[1] = np.nan, np.nan
        i = rng.integers(-4, 4, 23).astype(np.int32)
        got, old = a.copy(), np.zeros(23, d.np)
        tg.launch(kernel, dim=23, inputs=[x, i, got, old], block_dim=8, device=device)
        want, olds = a.copy(), np.zeros(23, d.np)
        with np.errstate(all="ignore"):
            for k in range(23):
                olds[k] = want[i[k]]
                want[i[k]] = UPDATES[name](want[i[k]], x[k])
        np.testing.assert_array_equal(plain(got), plain(want))
        np.testing.assert_array_equal(plain(old), plain(olds))


def plain(a: Host) -> Host:
    """The same numbers in a type that NumPy compares NaN in."""
    return a.astype(np.float64) if a.dtype.name == "bfloat16" else a


@both
def test_large_sums_of_every_thread(device: str) -> None:
    """D07. (Peer: no accumulation of 64 bits, template errors for 16.)"""

    @tg.kernel
    def kernel(a: tg.array1d[tg.int64], b: tg.array1d[tg.uint8], c: tg.array1d[tg.uint16]) -> None:
        tg.atomic_add(a, 0, 2**40)
        tg.atomic_add(b, 0, value=1)
        tg.atomic_add(c, 0, 70)

    a, b, c = np.zeros(1, np.int64), np.zeros(1, np.uint8), np.zeros(1, np.uint16)
    tg.launch(kernel, dim=1000, inputs=[a, b, c], device=device)
    assert (a[0], b[0], c[0]) == (1000 * 2**40, 1000 % 256, 70000 % 65536)


@both
def test_compare_and_swap(device: str) -> None:
    @tg.kernel
    def kernel(x: Any, a: Any, old: Any) -> None:
        i = tg.tid()
        old[i] = tg.atomic_cas(a, i % 2, x[i], x[i + 1])

    for d in (dt.int8, dt.uint64, dt.float32, dt.bfloat16, dt.float64, dt.bool_):
        x = np.array([1, 0, 3, 1, 0, 0, 1, 1, 0, 1]).astype(d.np)
        a, old = np.array([1, 0]).astype(d.np), np.zeros(9, d.np)
        want, olds = a.copy(), old.copy()
        for k in range(9):
            olds[k] = want[k % 2]
            want[k % 2] = x[k + 1] if want[k % 2] == x[k] else want[k % 2]
        tg.launch(kernel, dim=9, inputs=[x, a, old], block_dim=4, device=device)
        np.testing.assert_array_equal(a, want)
        np.testing.assert_array_equal(old, olds)


@tg.kernel
def bits_in_place(x: I1, a: I1, b: tg.array1d[tg.bool]) -> None:
    i = tg.tid()
    a[i % 2] &= x[i]
    a[2] |= 1 << i
    a[3] ^= x[i]
    a[i + 4] |= x[i]
    b[0] |= x[i] > 5
    b[1] &= x[i] > 5


@both
def test_bits_of_elements_in_place(device: str) -> None:
    x = np.random.default_rng(10).integers(0, 256, 20).astype(np.int32)
    a = np.full(24, 255, np.int32)
    b = np.array([False, True])
    tg.launch(bits_in_place, dim=20, inputs=[x, a, b], block_dim=8, device=device)
    assert a[0] == np.bitwise_and.reduce(x[::2]) & 255 and a[1] == np.bitwise_and.reduce(x[1::2]) & 255
    assert a[2] == 2**20 - 1 and a[3] == 255 ^ np.bitwise_xor.reduce(x)
    assert (a[4:] == x | 255).all() and b.tolist() == [bool((x > 5).any()), bool((x > 5).all())]


def test_wrong_updates() -> None:
    def refuse(call: Any, text: str) -> None:
        @tg.kernel
        def kernel(a: F1, i: I1) -> None:
            call(a, i)

        with pytest.raises(tg.TilegradError, match=text):
            tg.launch(kernel, dim=1, inputs=[np.zeros(3), ints(0)])

    refuse(lambda a, i: tg.atomic_and(a, 0, 1.0), "atomic_and is not defined for float64")
    refuse(lambda a, i: tg.atomic_xor(i, 0, 1.5), "the literal 1.5 cannot be an element")
    refuse(lambda a, i: tg.atomic_add(a, 1.0), "takes 1 index and value")
    refuse(lambda a, i: tg.atomic_cas(a, 0, 1.0), "takes 1 index and compare and value")
    refuse(lambda a, i: tg.atomic_exch(a, 0, i[0]), "the array holds float64, the value is int32")
    refuse(lambda a, i: tg.atomic_max(a, 3, 0.0), "index 3 is out of range")


# --- gradients of updates -------------------------------------------------------------------------------------------


@tg.kernel
def olds_by_tiles(x: F2, i: I1, s: F1, y: F1) -> None:
    b = tg.tid()
    t = tg.tile_load(x[b], shape=4)
    old = tg.tile_atomic_add(s, t, offset=1)
    older = tg.tile_atomic_add_indexed(s, tg.tile_load(i, shape=4), t * t)
    tg.tile_store(y, old * 2.0 + older, offset=4 * b)


@tg.kernel
def olds_by_lanes(x: F1, i: I1, s: F1, y: F1) -> None:
    k = tg.tid()
    old = tg.atomic_add(s, i[k], tg.sin(x[k]))
    older = tg.atomic_sub(s, i[k], x[k])
    y[k] = old * 3.0 - older


@both
def test_old_values_of_sums_have_a_gradient(device: str) -> None:
    """C10. (Peer: 0.)"""
    rng = np.random.default_rng(11)
    check(olds_by_tiles, 3, rng.standard_normal((3, 4)), ints(2, 0, 2, -1), rng.standard_normal(6), np.zeros(12),
          device=device)  # fmt: skip
    i = rng.integers(0, 3, 19).astype(np.int32)
    args = (rng.standard_normal(19), i, rng.standard_normal(3), np.zeros(19))
    for block_dim in (1, 4, 32):
        check(olds_by_lanes, 19, *args, tiled=False, block_dim=block_dim, device=device)


def check(kernel: Any, n: int, *args: Any, tiled: bool = True, block_dim: int = 1, device: str) -> None:
    """The gradients of all arrays, also of what they held before the launch, against finite differences."""
    ir = kernel.ir(*args, dim=n, tiled=tiled, block_dim=block_dim)
    check_kernel_gradient(ir, [np.int32(a) if isinstance(a, int) else a for a in args], grid=(n,), device=device)


@tg.kernel
def exchanges(x: F1, i: I1, s: F1, y: F1) -> None:
    k = tg.tid()
    for j in range(2):
        y[2 * k + j] = tg.atomic_exch(s, (i[k] + j) % 3, tg.sin(x[k]) * float64_of(j)) * 2.0


@tg.func
def float64_of(j: int) -> tg.float64:
    return tg.float64(j) + 1.0


@both
@pytest.mark.parametrize("block_dim", [1, 4, 32])
def test_exchanges_have_a_gradient(device: str, block_dim: int) -> None:
    rng = np.random.default_rng(12)
    i = rng.integers(0, 3, 11).astype(np.int32)
    args = (rng.standard_normal(11), i, rng.standard_normal(3), np.zeros(22))
    check(exchanges, 11, *args, tiled=False, block_dim=block_dim, device=device)
    s = rng.standard_normal(3)
    pullback = tg.vjp(only_exchanges, 11, [rng.standard_normal(11), i], [s], tiled=False, device=device)
    expected = np.zeros(11)
    for row in range(3):
        if (i == row).any():
            expected[np.nonzero(i == row)[0][-1]] = row + 1.0
    np.testing.assert_array_equal(pullback(np.array([1.0, 2, 3]))[0], expected)


@tg.kernel
def only_exchanges(x: F1, i: I1, s: F1) -> None:
    k = tg.tid()
    tg.atomic_exch(s, i[k], x[k])


@tg.kernel
def by_atomic_max(x: F1, y: F1) -> None:
    tg.atomic_max(y, 0, x[tg.tid()])


@tg.kernel
def by_a_loop(x: F1, y: F1) -> None:
    for k in range(x.shape[0]):
        tg.atomic_max(y, 0, x[k])


@tg.kernel
def by_tile_max(x: F1, y: F1) -> None:
    tg.tile_store(y, tg.tile_max(tg.tile_load(x, shape=4)))


@both
def test_ties_give_the_gradient_to_the_first(device: str) -> None:
    """G34. (Peer: every tied thread got all of it.)"""
    for values in ([1.0, 3, 3, 2], [3.0, 3, 3, 3], [np.nan, 2, np.nan, 2]):
        x = np.array(values)
        for kernel, dim, tiled in ((by_atomic_max, 4, False), (by_a_loop, 1, True), (by_tile_max, 1, True)):
            for block_dim in (1, 4):
                y = np.full(1, -9.0)
                pullback = tg.vjp(kernel, dim, [x], [y], tiled=tiled, block_dim=block_dim, device=device)
                grad = pullback(np.array([2.0]))[0]
                assert y[0] == np.nanmax(x) and grad.tolist() == [2.0 * (k == np.nanargmax(x)) for k in range(4)]


@tg.kernel
def extremes(x: F2, i: I1, n: int, low: F2, high: F1) -> None:
    k = tg.tid()
    for j in range(n):
        v = tg.sin(x[k, j]) * x[k, 0]
        if v > -0.5:
            tg.atomic_min(low[i[0]], i[k], v)
        tg.atomic_max(high, (i[k] + j) % 3, x[k, j])


@both
@pytest.mark.parametrize("block_dim", [1, 4, 32])
def test_extremes_have_a_gradient(device: str, block_dim: int) -> None:
    rng = np.random.default_rng(13)
    x, i = rng.standard_normal((11, 4)), rng.integers(0, 3, 11).astype(np.int32)
    low, high = rng.standard_normal((3, 3)), rng.standard_normal(3) - 3
    low[i[0], 1] = -9.0  # stays
    check(extremes, 11, x, i, 4, low, high, tiled=False, block_dim=block_dim, device=device)
    gradcheck(extremes, 11, [x, i, 4], [low, high], tiled=False, block_dim=block_dim, device=device)
    with tg.Tape() as tape:  # the start has a gradient too where it stays
        arrays = [tg.array(a, requires_grad=True) for a in (x, low, high)]
        doubled = tg.zeros((3, 3), dtype=tg.float64, requires_grad=True)
        tg.launch_tiled(double, dim=1, inputs=[arrays[1], doubled], device=device)
        tg.launch(extremes, dim=11, inputs=[arrays[0], i, 4, doubled, arrays[2]], block_dim=block_dim, device=device)
    tape.backward(grads={doubled: tg.array(np.ones((3, 3)))})
    stays = np.asarray(doubled.numpy() == 2 * low)
    assert stays[i[0], 1] and not stays.all()
    np.testing.assert_array_equal(np.asarray(arrays[1].grad), 2.0 * stays)


@tg.kernel
def double(x: F2, y: F2) -> None:
    tg.tile_store(y, tg.tile_load(x, shape=(3, 3)) * 2.0)


def test_gradients_of_updates_that_are_refused() -> None:
    @tg.kernel
    def of_the_old_value(x: F1, s: F1, y: F1) -> None:
        k = tg.tid()
        y[k] = tg.atomic_max(s, 0, x[k])

    @tg.kernel
    def squared(x: F1, s: F1, y: F1) -> None:
        k = tg.tid()
        old = tg.atomic_add(s, 0, x[k])
        y[k] = old * old

    @tg.kernel
    def compared(x: F1, s: F1, y: F1) -> None:
        k = tg.tid()
        y[k] = tg.atomic_cas(s, 0, 1.0, x[k])

    @tg.kernel
    def mixed(x: F1, s: F1, y: F1) -> None:
        k = tg.tid()
        tg.atomic_max(s, 0, x[k])
        tg.atomic_add(s, 0, x[k])

    @tg.kernel
    def uneven(x: F1, s: F1, y: F1) -> None:
        k = tg.tid()
        for _ in range(k):
            y[k] = tg.atomic_add(s, 0, x[k])

    for kernel in (of_the_old_value, squared, compared, mixed, uneven):
        with pytest.raises(tg.GradientUndefined, match="no gradient"):
            tg.vjp(kernel, 3, [np.ones(3)], [np.zeros(1), np.zeros(3)], tiled=False)(np.ones(1), np.ones(3))


# --- composite elements ---------------------------------------------------------------------------------------------

V1 = tg.array1d[tg.vec3d]


@tg.kernel
def vectors(a: V1, i: I1, y: V1, z: V1) -> None:
    _, lane = tg.tid()
    index = tg.tile_load(i, shape=4)
    t = tg.tile_load_indexed(a, index, shape=4)
    t[index - 1] += t * 2.0
    t[index > 2] = a[0]
    tg.tile_assign(t, t[::2], offset=1)
    tg.tile_scatter_add(t, lane % 3, a[lane], lane != 2)
    tg.tile_scatter_masked(t, 3, a[lane], lane < 2)
    tg.tile_store_indexed(y, index, t)
    tg.tile_atomic_add_indexed(z, index, tg.tile_slice_indexed(t, index))


@both
def test_vectors_are_gathered_and_scattered(device: str) -> None:
    rng = np.random.default_rng(14)
    a, i = rng.standard_normal((5, 3)), ints(2, 0, 3, 2)
    y, z = (tg.array(np.zeros((5, 3)), dtype=tg.vec3d) for _ in range(2))
    tg.launch_tiled(vectors, dim=1, inputs=[tg.array(a, dtype=tg.vec3d), i, y, z], device=device, block_dim=4)
    t = a[i]
    np.add.at(t, i - 1, t * 2.0)
    t[i > 2] = a[0]
    t[1:3] = t[::2].copy()
    for lane in (0, 1, 3):
        t[lane % 3] += a[lane]
    t[3] = a[1]
    want, total = np.zeros((5, 3)), np.zeros((5, 3))
    want[i] = t
    np.add.at(total, i, t[i])
    np.testing.assert_allclose(y.numpy(), want)
    np.testing.assert_allclose(z.numpy(), total)


# --- random programs ------------------------------------------------------------------------------------------------


@st.composite
def subscripts(draw: Any) -> tuple[tuple[int, ...], str, Any, Host]:
    """A shape, a subscript as text and as NumPy takes it, and its index tile."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    d = draw(st.sampled_from(dt.INTEGERS))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    picked = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=2))
    low = min(shape[k] for k in picked)
    index = rng.integers(0 if d.kind == "u" else -low, low, draw(st.sampled_from([(4,), (9,), (2, 3)]))).astype(d.np)
    texts, items = [], []
    for k, n in enumerate(shape):
        if k in picked:
            texts, items = [*texts, "i"], [*items, index]
            continue
        first, step = draw(st.integers(0, n - 1)), draw(st.sampled_from((1, 2, -1)))
        choice = draw(st.sampled_from(("whole", "slice", "int")))
        texts.append({"whole": ":", "slice": f"{first}::{step}", "int": f"{first - n}"}[choice])
        items.append({"whole": slice(None), "slice": slice(first, None, step), "int": first - n}[choice])
    return shape, ", ".join(texts), tuple(items), index


PROGRAM = """
def kernel(x, ix, v, o, p, q):
    t = tg.tile_load(x, shape=SHAPE)
    i = tg.tile_load(ix, shape=INDEX)
    w = tg.tile_load(v, shape=PART)
    tg.tile_store(o, t[{0}])
    t[{0}] = w
    tg.tile_store(p, t)
    t[{0}] += w
    t[{0}] -= t[{0}]
    tg.tile_store(q, t)
"""


@both
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    subscripts(),
    st.sampled_from((dt.int8, dt.uint32, dt.int64, dt.float16, dt.bfloat16, dt.float32, dt.float64)),
    st.sampled_from((1, 7)),
)
def test_random_subscripts(device: str, subscript: Any, d: tg.DType, block_dim: int) -> None:
    shape, text, items, index = subscript
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, shape).astype(d.np)
    part = x[items]
    if part.ndim > 8:
        return
    v = rng.integers(0, 20, part.shape).astype(d.np)
    kernel = build(PROGRAM.format(text), SHAPE=shape, INDEX=index.shape, PART=part.shape)
    outs = [np.zeros_like(part), np.zeros_like(x), np.zeros_like(x)]
    tg.launch_tiled(kernel, dim=1, inputs=[x, index, v, *outs], device=device, block_dim=block_dim)
    t = x.copy()
    t[items] = v
    assigned = t.copy()
    with np.errstate(all="ignore"):
        accumulate(t, items, v)
        accumulate(t, items, -t[items])
    for got, want in zip(outs, (part, assigned, t), strict=True):
        np.testing.assert_array_equal(plain(got), plain(want))


def accumulate(t: Host, items: Any, v: Host) -> None:
    """`np.add.at`, also for bfloat16."""
    places = np.arange(t.size).reshape(t.shape)[items]
    flat = t.reshape(-1)
    for place, x in zip(places.ravel(), v.ravel(), strict=True):
        flat[place] += x


@tg.kernel
def doubled_rows(x: F2, i: I1, y: F2) -> None:
    tg.tile_store_indexed(y, tg.tile_load(i, shape=4), tg.tile_load(x, shape=(4, 3)) * 2.0)


@tg.kernel
def tripled(x: F2, i: I1, y: F2) -> None:
    tg.tile_store(y, tg.tile_load(x, shape=(4, 3)) * 3.0)


@both
def test_the_last_of_two_launches_has_the_gradient(device: str) -> None:
    """G16, C9. (Peer: the first writer was credited too.)"""
    i = ints(3, 1, 0, 2)
    for first, second, scale in ((doubled_rows, tripled, 3.0), (tripled, doubled_rows, 2.0)):
        a, b, y = (tg.array(np.ones((4, 3)), requires_grad=True) for _ in range(3))
        with tg.Tape() as tape:
            tg.launch_tiled(first, dim=1, inputs=[a, i, y], device=device)
            tg.launch_tiled(second, dim=1, inputs=[b, i, y], device=device)
        tape.backward(grads={y: tg.array(np.ones((4, 3)))})
        assert not np.asarray(a.grad).any() and (np.asarray(b.grad) == scale).all()


FILLS = [
    (dt.bool_, True), (dt.int8, -1), (dt.uint64, 2**64 - 1), (dt.float16, float("nan")), (dt.float32, -float("inf")),
    (dt.float32, 1e300), (dt.bfloat16, 3), (dt.int32, True), (dt.float64, 0.1),
]  # fmt: skip


@both
@pytest.mark.parametrize(("d", "fill"), FILLS, ids=str)
def test_fills(device: str, d: tg.DType, fill: Any) -> None:
    @tg.kernel
    def kernel(a: Any, i: I1, y: Any, z: Any) -> None:
        tg.tile_store(y, tg.tile_load(a, shape=4, offset=-1, fill=fill))
        tg.tile_store(z, tg.tile_load_indexed(a, tg.tile_load(i, shape=4), shape=4, fill=fill))

    a, y, z = np.ones(2, d.np), np.zeros(4, d.np), np.zeros(4, d.np)
    tg.launch_tiled(kernel, dim=1, inputs=[a, ints(-1, 0, 1, 2), y, z], device=device)
    with np.errstate(over="ignore"):
        want = np.array([fill, 1, 1, fill]).astype(d.np) if d.is_float else np.array([fill, 1, 1, fill], d.np)
    np.testing.assert_array_equal(plain(y), plain(want))
    np.testing.assert_array_equal(plain(z), plain(want))


@pytest.mark.parametrize(("d", "fill"), [(dt.int8, 300), (dt.uint8, -1), (dt.int32, 1.5)], ids=str)
def test_a_fill_that_is_no_element(d: tg.DType, fill: Any) -> None:
    @tg.kernel
    def kernel(a: Any) -> None:
        tg.tile_load(a, shape=4, fill=fill)

    with pytest.raises(tg.TypeMismatch, match=f"fill {fill} is not a value of {d}"):
        tg.launch_tiled(kernel, dim=1, inputs=[np.ones(2, d.np)])


@tg.kernel
def mixed_updates(x: I2, i: I1, n: int, s: I1, y: I2) -> None:
    k = tg.tid()
    y[k, 0] = tg.atomic_add(s, i[k], x[k, 0])
    y[k, 1] = tg.atomic_max(s, i[k], x[k, 1])
    for j in range(n):
        y[k, 2] += tg.atomic_exch(s, (i[k] + j) % 3, x[k, 2])
        if n > 1:
            y[k, 3] ^= tg.atomic_sub(s, i[k], x[k, 3])
            tg.atomic_min(s, i[k], x[k, 0])
    total = tg.tile_sum(tg.tile(x[k, 0]))
    y[k, 4] = tg.atomic_cas(s, 0, x[k, 1], total[0] + k)


@pytest.mark.parametrize("block_dim", [1, 4, 24, 64])
def test_lanes_finish_an_update_before_the_next(block_dim: int) -> None:
    """The devices agree on what every update has found, in whatever order the updates are written."""
    rng = np.random.default_rng(15)
    x, i = rng.integers(-9, 9, (50, 4)).astype(np.int32), rng.integers(0, 3, 50).astype(np.int32)
    found = []
    for device in DEVICES:
        s, y = np.zeros(3, np.int32), np.zeros((50, 5), np.int32)
        tg.launch(mixed_updates, dim=50, inputs=[x, i, 3, s, y], block_dim=block_dim, device=device)
        found.append((s, y))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@tg.kernel
def compacted(x: F1, n: I1, y: F1) -> None:
    k = tg.tid()
    if x[k] > 0.0:
        place = tg.atomic_add(n, 0, 1)
        y[place] = tg.sin(x[k]) * float64_of(place)


@tg.kernel
def appended(x: F2, n: I1, m: I1, y: F1) -> None:
    k = tg.tid()
    for j in range(3):
        if x[k, j] > 0.0:
            y[tg.atomic_add(n, 0, 1) % 40] = x[k, j] * x[k, 0]
        tg.atomic_add(m, 0, 1)


@both
@pytest.mark.parametrize("block_dim", [1, 4, 64])
def test_places_from_a_counter(device: str, block_dim: int) -> None:
    """The backward pass counts again, in the same order."""
    rng = np.random.default_rng(16)
    x, n = rng.standard_normal(30), ints(2)
    gradcheck(compacted, 30, [x, n], [np.zeros(40)], tiled=False, block_dim=block_dim, device=device)
    x = rng.standard_normal((11, 3))
    check(appended, 11, x, n, ints(0), np.zeros(40), tiled=False, block_dim=block_dim, device=device)
