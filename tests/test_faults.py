"""Faults of other tile systems that are not here.

The names begin with a number: C1 to C27 concern gradients, C29 memory, C54 and C55 degenerate matrices, C59 and C60
printing, C71 and C73 the language. A comment says what NVIDIA Warp 1.19 gives on a CPU, or what its headers do.
"""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg

F, F1, F2, F3 = tg.float64, tg.array1d[tg.float64], tg.array2d[tg.float64], tg.array3d[tg.float64]


def gradient(
    kernel: Any, inputs: list[Any], out: Any, device: str, dim: Any = 1, block_dim: int = 4, *, tiled: bool = True,
    seed: Any = None,
) -> Any:  # fmt: skip
    """The gradients of the sum of `out`, or of its product with a seed."""
    pullback = tg.vjp(kernel, dim, inputs, [out], device=device, block_dim=block_dim, tiled=tiled)
    return pullback(np.ones_like(out) if seed is None else seed)


def run(kernel: Any, *args: Any, device: str, dim: Any = 1, block_dim: int = 4) -> None:
    tg.launch_tiled(kernel, dim=dim, inputs=list(args), device=device, block_dim=block_dim)


# --- gradients --------------------------------------------------------------------------------------------------------


@tg.kernel
def sine_and_transpose(x: F2, y: F2):
    t = tg.tile_load(x, shape=(2, 2))
    s = tg.sin(t)
    tg.tile_store(y, s + tg.tile_transpose(t))


def test_c01_a_transpose_leaves_the_tile_alone(device: str) -> None:
    x = np.full((2, 2), 0.5)
    (g,) = gradient(sine_and_transpose, [x], np.zeros((2, 2)), device)
    np.testing.assert_allclose(g, np.cos(0.5) + 1)  # 1.8776; Warp: 1.5403 = cos(2 * 0.5) + 1


@tg.kernel
def tile_then_transpose(x: F1, y: F2):
    v = x[tg.tid()]
    t = tg.tile_reshape(tg.tile(v), (1, 3))
    tg.tile_store(y, tg.tile_transpose(t) * 2.0)


def test_c02_gradient_of_tile_after_a_view(device: str) -> None:
    (g,) = gradient(tile_then_transpose, [np.array([0.1, 0.2, 0.3])], np.zeros((3, 1)), device, 3, 3, tiled=False)
    assert g.tolist() == [2, 2, 2]  # Warp: 0.2, 0.4, 0.6, which are the outputs


@tg.kernel
def view_then_untile(x: F1, y: F1):
    i = tg.tid()
    t = tg.tile_reshape(tg.tile_transpose(tg.tile_reshape(tg.tile(x[i]), (3, 1))), (3,))
    y[i] = tg.untile(t) * 3.0


def test_c03_gradient_of_untile_after_a_view(device: str) -> None:
    y = np.zeros(3)
    (g,) = gradient(view_then_untile, [np.array([1.0, 2, 3])], y, device, 3, 3, tiled=False)
    assert y.tolist() == [3, 6, 9]
    assert g.tolist() == [3, 3, 3]  # Warp: 0


@tg.kernel
def scaled_logarithm(x: F1, s: F1, y: F1):
    tg.tile_store(y, s[0] * tg.log(tg.tile_load(x, shape=6)))


@tg.kernel
def plus_value(x: F1, v: F1, y: F1):
    tg.tile_store(y, tg.tile_map(tg.add, tg.tile_load(x, shape=6), v[0]))


@pytest.mark.parametrize("block_dim", [1, 4, 6, 7])
def test_c04_no_padding_in_maps(device: str, block_dim: int) -> None:
    x, y = np.full(6, 2.0), np.zeros(6)
    g = gradient(scaled_logarithm, [x, np.ones(1)], y, device, block_dim=block_dim)
    np.testing.assert_allclose(g[1], 6 * np.log(2))  # 4.1589; Warp with a block of 4: NaN
    g = gradient(plus_value, [x, np.ones(1)], y, device, block_dim=block_dim)
    assert g[1].tolist() == [6]  # Warp with a block of 4: 8


@tg.kernel
def one_element(x: F1, y: F1):
    t = tg.tile_load(x, shape=11)
    y[0] = t[9] * t[9] + 2.0 * t[3]


@tg.kernel
def element_for_each_lane(x: F1, y: F1):
    block, lane = tg.tid()
    y[lane] = tg.tile_load(x, shape=11)[5] * tg.float64(lane)


def test_c05_c06_elements_of_tiles_larger_than_the_block(device: str) -> None:
    x, y = np.arange(11.0), np.zeros(1)
    (g,) = gradient(one_element, [x], y, device)
    assert y[0] == 87  # Warp 1.5: another element
    assert g.tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0, 18, 0]
    (g,) = gradient(element_for_each_lane, [x], np.zeros(4), device)
    assert g.tolist() == [0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0]  # of all lanes; register tiles: of the owner only


@tg.kernel
def element_overwritten(x: F1, v: F1, y: F1):
    t = tg.tile_load(x, shape=3)
    t[1] = v[0]
    tg.tile_store(y, t)


def test_c07_an_overwritten_element_has_no_gradient(device: str) -> None:
    for block_dim in (1, 8):
        gx, gv = gradient(element_overwritten, [np.ones(3), np.ones(1)], np.zeros(3), device, block_dim=block_dim)
        assert gx.tolist() == [1, 0, 1]  # headers: 1, 1, 1
        assert gv.tolist() == [1]  # headers: block_dim


@tg.kernel
def row_overwritten(x: F2, v: F1, y: F2):
    t = tg.tile_load(x, shape=(2, 3))
    row = tg.tile_broadcast(tg.tile_load(v, shape=1), (2, 3))
    tg.tile_assign(t, row[:, :2], offset=(0, 1))
    tg.tile_store(y, t)


def test_c08_assignment_of_a_broadcast_tile(device: str) -> None:
    gx, gv = gradient(row_overwritten, [np.ones((2, 3)), np.ones(1)], np.zeros((2, 3)), device)
    assert gx.tolist() == [[1, 0, 0], [1, 0, 0]]  # headers: not cleared
    assert gv.tolist() == [4]


@tg.kernel
def two_stores(x: F1, y: F1):
    t = tg.tile_load(x, shape=3)
    tg.tile_store(y, t * 5.0)
    tg.tile_store(y, t * 2.0)


@tg.kernel
def in_place(x: F1):
    tg.tile_store(x, tg.tile_load(x, shape=3) * 2.0)


def test_c09_the_last_store_has_the_gradient(device: str) -> None:
    (g,) = gradient(two_stores, [np.ones(3)], np.zeros(3), device)
    assert g.tolist() == [2, 2, 2]  # headers: 7
    start, x = (tg.array(np.ones(3), requires_grad=True) for _ in range(2))
    with tg.Tape() as tape:
        tg.copy(x, start)
        run(in_place, x, device=device)
    tape.backward(grads={x: np.ones(3)})
    assert start.grad.numpy().tolist() == [2, 2, 2]  # headers: 3


@tg.kernel
def old_values(a: F1, x: F1, y: F1):
    tg.tile_store(y, tg.tile_atomic_add(a, tg.tile_load(x, shape=3)) * 3.0)


def test_c10_gradient_of_old_values(device: str) -> None:
    ga, gx = gradient(old_values, [np.ones(3), np.ones(3)], np.zeros(3), device)
    assert ga.tolist() == [3, 3, 3]  # Warp: 0
    assert gx.tolist() == [0, 0, 0]


@tg.kernel
def gathers(x: F1, i: tg.array1d[int], y: F1):
    tg.tile_store(y, tg.tile_load_indexed(x, tg.tile_load(i, shape=3), shape=3) * 2.0)


def test_c11_c12_arrays_without_a_gradient(device: str) -> None:
    x, y = tg.array(np.ones(3)), tg.array(np.zeros(3), requires_grad=True)
    with tg.Tape() as tape:
        run(gathers, x, np.array([0, 2, 2], np.int32), y, device=device)
    tape.backward(grads={y: np.ones(3)})
    assert x.grad is None  # headers: a null pointer is read
    x = tg.array(np.ones(3), requires_grad=True)
    with tg.Tape() as tape:
        run(gathers, x, np.array([0, 2, 2], np.int32), y, device=device)
    tape.backward(grads={y: np.ones(3)})
    assert x.grad.numpy().tolist() == [2, 0, 4]


@tg.kernel
def transforms(x: tg.array1d[tg.vec2d], y: tg.array1d[tg.vec2d]):
    t = tg.tile_load(x, shape=5)
    tg.tile_fft(t)
    tg.tile_store(y, t)


def test_c13_the_adjoint_of_a_transform_is_the_opposite_one(device: str) -> None:
    x = np.random.default_rng(1).standard_normal((5, 2))
    seed = np.zeros((5, 2))
    seed[1, 0] = 1
    y = tg.zeros(5, dtype=tg.vec2d)
    (g,) = tg.vjp(transforms, 1, [tg.array(x, dtype=tg.vec2d)], [y], device=device)(seed)
    angles = 2 * np.pi * np.arange(5) / 5
    np.testing.assert_allclose(g, np.stack([np.cos(angles), np.sin(angles)], 1), atol=1e-12)  # headers: -sin


@tg.kernel
def diagonal_added(a: F2, d: F1, y: F2):
    tg.tile_store(y, tg.tile_diag_add(tg.tile_load(a, shape=(2, 2)), tg.tile_load(d, shape=2)))


def test_c14_gradient_of_diag_add(device: str) -> None:
    seed = np.array([[1.0, 2], [3, 4]])
    ga, gd = gradient(diagonal_added, [np.eye(2), np.ones(2)], np.zeros((2, 2)), device, seed=seed)
    assert ga.tolist() == seed.tolist()  # Warp: zeros
    assert gd.tolist() == [1, 4]  # Warp: zeros


@tg.kernel
def sequence(s: F1, y: F1):
    tg.tile_store(y, tg.tile_arange(4, dtype=tg.float64) * s[1] + s[0])


def test_c15_gradient_of_start_and_step(device: str) -> None:
    (g,) = gradient(sequence, [np.array([5.0, 2])], np.zeros(4), device)
    assert g.tolist() == [4, 6]


@tg.kernel
def filled(x: F1, y: F2):
    tg.tile_store(y, tg.tile_full((3, 4), x[0]))


@tg.kernel
def from_a_lane(x: F1, y: F2):
    block, lane = tg.tid()
    tg.tile_store(y, tg.tile_from_thread((3, 4), x[lane], 1))


def test_c16_gradient_of_a_fill(device: str) -> None:
    (g,) = gradient(filled, [np.ones(1)], np.zeros((3, 4)), device)
    assert g.tolist() == [12]  # Warp: 0
    (g,) = gradient(from_a_lane, [np.ones(4)], np.zeros((3, 4)), device)
    assert g.tolist() == [0, 12, 0, 0]  # Warp: 0


@tg.kernel
def cholesky_and_solve(a: F2, b: F1, y: F1):
    L = tg.tile_cholesky(tg.tile_load(a, shape=(2, 2)))
    t = tg.tile_load(b, shape=2)
    tg.tile_cholesky_solve_inplace(L, t)
    tg.tile_store(y, t)


@tg.kernel
def solves(a: F2, b: F1, y: F1):
    m = tg.tile_load(a, shape=(2, 2))
    tg.tile_store(y, tg.tile_upper_solve(m, tg.tile_lower_solve(m, tg.tile_load(b, shape=2))))


def test_c17_gradients_of_factorisations_and_solves(device: str) -> None:
    a, b = np.array([[4.0, 2], [2, 5]]), np.array([8.0, 12])
    gb = gradient(cholesky_and_solve, [a, b], np.zeros(2), device)[1]
    np.testing.assert_allclose(gb, np.linalg.solve(a.T, np.ones(2)))  # headers: silent zeros
    gb = gradient(solves, [a, b], np.zeros(2), device)[1]
    np.testing.assert_allclose(gb, np.linalg.inv(np.triu(a) @ np.eye(2)).T @ np.ones(2) @ np.linalg.inv(np.tril(a)))


@tg.kernel
def copy_of_a_view(x: F2, y: F1):
    t = tg.tile_load(x, shape=(2, 3))
    v = t[1]
    w = v
    u = v.copy()
    v[0] = 9.0
    tg.tile_store(y, w + u)


def test_c18_copy_of_a_view(device: str) -> None:
    y = np.zeros(3)
    (g,) = gradient(copy_of_a_view, [np.ones((2, 3))], y, device)  # Warp: does not compile
    assert y.tolist() == [10, 2, 2]
    assert g.tolist() == [[0, 0, 0], [1, 2, 2]]


@tg.kernel
def view_added_to_a_view(x: F2, y: F2):
    t = tg.tile_load(x, shape=(2, 3))
    t[0, 1:] += t[1, ::-2]
    tg.tile_store(y, t)


def test_c19_views_are_added_to_views(device: str) -> None:
    y = np.zeros((2, 3))
    (g,) = gradient(view_added_to_a_view, [np.arange(6.0).reshape(2, 3)], y, device)  # headers: does not compile
    assert y.tolist() == [[0, 6, 5], [3, 4, 5]]
    assert g.tolist() == [[1, 1, 1], [2, 1, 2]]


@tg.kernel
def one_or_the_other(x: F2, which: int, y: F2):
    t = tg.tile_load(x, shape=(2, 2))
    tg.tile_store(y, tg.where(which > 0, t, tg.tile_transpose(t)))


@pytest.mark.parametrize("which", [0, 1])
def test_c20_choice_between_a_tile_and_its_transpose(device: str, which: int) -> None:
    x, y = np.array([[1.0, 2], [3, 4]]), np.zeros((2, 2))
    seed = np.array([[1.0, 10], [100, 1000]])
    g = gradient(one_or_the_other, [x, which], y, device, seed=seed)[0]  # Warp: does not compile
    assert y.tolist() == (x if which else x.T).tolist()
    assert g.tolist() == (seed if which else seed.T).tolist()


@tg.kernel
def converted(x: tg.array1d[tg.vec2], n: tg.array1d[int], y: F1):
    v = tg.tile_load(x, shape=3)
    counts = tg.tile_astype(tg.tile_load(n, shape=3), tg.float64)
    tg.tile_store(y, tg.tile_astype(v.x, tg.float64) * counts + tg.tile_astype(v.y, tg.float64))


def test_c21_gradient_of_conversions(device: str) -> None:
    y, n = tg.zeros(3, dtype=tg.float64), np.array([1, 2, 3], np.int32)
    x = tg.array(np.ones((3, 2), np.float32), dtype=tg.vec2)
    g, none = tg.vjp(converted, 1, [x, n], [y], device=device)(np.ones(3))
    assert g.tolist() == [[1, 1], [2, 1], [3, 1]]
    assert none is None


@tg.kernel
def half_factors(a: tg.array2d[tg.float16], b: tg.array2d[tg.float16], y: tg.array2d[tg.float32]):
    s, t = tg.tile_load(a, shape=(2, 64)), tg.tile_load(b, shape=(64, 2))
    tg.tile_store(y, tg.tile_matmul(s, t, alpha=0.5, dtype=tg.float32))


def test_c22_mixed_precision(device: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 64)).astype(np.float16), rng.standard_normal((64, 2)).astype(np.float16)
    y = np.zeros((2, 2), np.float32)
    ga, gb = gradient(half_factors, [a, b], y, device)
    np.testing.assert_allclose(y, 0.5 * a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ga.astype(float), 0.5 * np.ones((2, 2)) @ b.T.astype(float), rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(gb.astype(float), 0.5 * a.T.astype(float) @ np.ones((2, 2)), rtol=2e-3, atol=1e-3)


@tg.kernel
def onto_rubbish(a: F2, c: F2, y: F2):
    out = tg.tile_load(c, shape=(2, 2))
    t = tg.tile_load(a, shape=(2, 2))
    tg.tile_matmul(t, t, out, beta=0.0)
    tg.tile_store(y, out)


def test_c23_beta_zero_reads_nothing(device: str) -> None:
    y = np.zeros((2, 2))
    ga, gc = gradient(onto_rubbish, [np.eye(2), np.full((2, 2), np.nan)], y, device)
    assert y.tolist() == [[1, 0], [0, 1]]  # headers: NaN
    assert gc.tolist() == [[0, 0], [0, 0]]
    assert ga.tolist() == [[2, 2], [2, 2]]


@tg.kernel
def broadcast_factor(v: F1, b: F2, y: F2):
    row = tg.tile_broadcast(tg.tile_load(v, shape=2), (3, 2))
    tg.tile_store(y, row @ tg.tile_load(b, shape=(2, 2)))


def test_c24_a_broadcast_factor(device: str) -> None:
    b = np.array([[1.0, 2], [3, 4]])
    gv, gb = gradient(broadcast_factor, [np.array([5.0, 6]), b], np.zeros((3, 2)), device)
    assert gv.tolist() == [9, 21]  # three rows; headers on a GPU: updates are lost
    assert gb.tolist() == [[15, 15], [18, 18]]


@tg.kernel
def onto_a_broadcast(x: F2, y: F1):
    row = tg.tile_zeros(shape=3, dtype=tg.float64)
    both = tg.tile_broadcast(row, (2, 3))
    both += tg.tile_load(x, shape=(2, 3))
    tg.tile_store(y, row)


def test_c25_adding_to_a_broadcast_view(device: str) -> None:
    y = np.zeros(3)
    x = np.array([[1.0], [10]]) * np.ones((2, 3))
    (g,) = gradient(onto_a_broadcast, [x], y, device)
    assert y.tolist() == [11, 11, 11]  # Warp: 10
    assert g.tolist() == np.ones((2, 3)).tolist()


@tg.kernel
def sine_then_changed(x: F1, y: F1):
    t = tg.tile_load(x, shape=1)
    s = tg.sin(t)
    t += 1.0
    tg.tile_store(y, s)


@tg.kernel
def sines(x: F1, n: int, y: F1):
    t = tg.tile_load(x, shape=1)
    for _ in range(n):
        t = tg.sin(t)
    tg.tile_store(y, t)


def test_c26_values_that_are_overwritten(device: str) -> None:
    x, y = np.array([0.5]), np.zeros(1)
    (g,) = gradient(sine_then_changed, [x], y, device)
    np.testing.assert_allclose(g, np.cos(0.5))  # 0.8776; Warp: 0.0707 = cos(1.5)
    g = gradient(sines, [x, 3], y, device)[0]
    s = np.sin(x)
    np.testing.assert_allclose(g, np.cos(np.sin(s)) * np.cos(s) * np.cos(x))  # 0.6973; Warp: 0.7171


@tg.kernel
def mapped(x: F1, y: F1):
    t = tg.tile_load(x, shape=3)
    roots = tg.tile_map(tg.sqrt, tg.tile_map(tg.exp, t))
    tg.tile_store(y, tg.tile_map(tg.div, roots, tg.tile_map(tg.pow, t, t)))


def test_c27_maps_of_builtins_whose_gradient_needs_the_result(device: str) -> None:
    x = np.array([0.5, 1.0, 2.0])
    (g,) = gradient(mapped, [x], np.zeros(3), device)  # headers: does not compile
    out = np.exp(x / 2) / x**x
    np.testing.assert_allclose(g, out * (0.5 - np.log(x) - 1), rtol=1e-12)


# --- memory, degenerate matrices, printing, the language --------------------------------------------------------------


@tg.kernel
def below_the_array(x: F1, y: F1):
    tg.tile_store(y, tg.tile_load(x, shape=4, offset=-2))
    tg.tile_store(x, tg.tile_full(4, tg.float64(100.0)), offset=-2)


def test_c29_negative_offsets(device: str) -> None:
    base, y = np.arange(8.0), np.zeros(4)
    run(below_the_array, base[4:], y, device=device)
    assert y.tolist() == [0, 0, 4, 5]  # Warp: 2, 3, 4, 5
    assert base.tolist() == [0, 1, 2, 3, 100, 100, 6, 7]  # Warp: base[2:6] is overwritten


@tg.kernel
def lower_solve(a: F2, b: F1, y: F1):
    tg.tile_store(y, tg.tile_lower_solve(tg.tile_load(a, shape=(2, 2)), tg.tile_load(b, shape=2)))


def test_c54_a_singular_system_does_not_look_solved(device: str) -> None:
    y = np.zeros(2)
    run(lower_solve, np.array([[0.0, 0], [1, 1]]), np.array([3.0, 5]), y, device=device)
    assert y.tolist() == [np.inf, -np.inf]  # Warp: 3, 2


@tg.kernel
def cholesky(a: F2, y: F2, z: F1):
    tg.tile_store(y, tg.tile_cholesky(tg.tile_load(a, shape=(2, 2))))
    tg.tile_store(z, tg.tile_ones(shape=2, dtype=tg.float64))


def test_c55_a_matrix_that_is_not_positive_definite(device: str) -> None:
    y, z = np.zeros((2, 2)), np.zeros(2)
    run(cholesky, np.array([[1.0, 2], [2, 1]]), y, z, device=device)
    assert np.isnan(y[np.tril_indices(2)]).any()  # Warp: 1, 0, 2, NaN
    assert np.isnan(y[1, 1])
    assert z.tolist() == [1, 1]


@tg.kernel
def prints_a_cube(x: tg.array3d[int]):
    print(tg.tile_load(x, shape=(2, 3, 4)))


def test_c59_slices_of_printed_tiles(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    run(prints_a_cube, np.arange(24, dtype=np.int32).reshape(2, 3, 4), device=device)
    printed = capfd.readouterr().out
    numbers = [int(n) for n in printed.replace("[", " ").replace("]", " ").replace(",", " ").split() if n.isdigit()]
    assert numbers[:24] == list(range(24))  # Warp: the second slice starts at 2, not 12


@tg.kernel
def prints_integers(x: tg.array1d[tg.int64], y: tg.array1d[tg.uint8], b: tg.array1d[bool]):
    print(tg.tile_load(x, shape=2), tg.tile_load(y, shape=2), tg.tile_load(b, shape=2))


def test_c60_printed_integers(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    x, y, b = np.array([2**40, -1]), np.array([255, 0], np.uint8), np.array([True, False])
    run(prints_integers, x, y, b, device=device)
    printed = capfd.readouterr().out
    assert str(2**40) in printed  # Warp: 6.9e-310
    assert "-1" in printed
    assert "255" in printed
    assert "True" in printed


@tg.kernel
def tile_of_an_element(x: F1, y: F1):
    i = tg.tid()
    tg.tile_store(y, tg.tile(x[i]) * 2.0)


def test_c71_an_element_of_an_array_goes_into_tile(device: str) -> None:
    y = np.zeros(3)
    tg.launch(tile_of_an_element, dim=3, inputs=[np.array([1.0, 2, 3]), y], block_dim=3, device=device)
    assert y.tolist() == [2, 4, 6]  # Warp: AttributeError


@tg.kernel
def squared(a: F2, y: F2):
    t = tg.tile_load(a, shape=(2, 2))
    tg.tile_store(y, t @ t)


def test_c73_at_is_the_matrix_product(device: str) -> None:
    y = np.zeros((2, 2))
    run(squared, np.array([[1.0, 2], [3, 4]]), y, device=device)
    assert y.tolist() == [[7, 10], [15, 22]]  # Warp: 1, 4, 9, 16
