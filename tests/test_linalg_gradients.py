"""Gradients of linear algebra in kernels: against central differences, closed forms, and where they are not defined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from matrices import K01, adjoint_of, apply, binary, off, pair, positive, random, unary
from tilegrad.op import REGISTRY
from tilegrad.testing import gradcheck

NAN, INF = math.nan, math.inf
D = tg.float64


def test_the_gradient_of_cholesky_is_that_of_the_triangle_that_is_read(device: str) -> None:
    """K01, C70: 0.2133883, 0.1464466 (twice what a symmetric perturbation gives each place), 0.3535534."""
    g = adjoint_of(tg.tile_cholesky, K01, ct=np.ones((2, 2)), device=device)
    np.testing.assert_allclose(g, [[0.2133883, 0], [0.1464466, 0.3535534]], atol=1e-7)
    g = adjoint_of(lambda t: tg.tile_cholesky(t, fill_mode="upper"), K01, ct=np.ones((2, 2)), device=device)
    np.testing.assert_allclose(g, [[0.2133883, 0.1464466], [0, 0.3535534]], atol=1e-7)
    w, v = np.linalg.eigh(K01)
    for mode, part in (("lower", np.tril), ("upper", np.triu)):
        made = adjoint_of(lambda t: tg.tile_eigh(t, fill_mode=mode)[0], K01, ct=np.array([1.0, 3.0]), device=device)
        full = (v * [1, 3]) @ v.T
        np.testing.assert_allclose(made, part(2 * full - np.diag(np.diag(full))))


SQUARE = {
    "cholesky": tg.tile_cholesky,
    "cholesky upper": lambda t: tg.tile_cholesky(t, fill_mode="upper"),
    "inv": tg.tile_inv,
    "lu": lambda t: tg.tile_lu(t)[0],
    "q": lambda t: tg.tile_qr(t)[0],
    "r": lambda t: tg.tile_qr(t)[1],
    "v": lambda t: tg.tile_eigh(t)[1],
}
SYSTEMS = {
    "lower": tg.tile_lower_solve,
    "upper": tg.tile_upper_solve,
    "cholesky solve": tg.tile_cholesky_solve,
    "cholesky solve upper": lambda t, b: tg.tile_cholesky_solve(t, b, fill_mode="upper"),
    "solve": tg.tile_solve,
    "lu solve": lambda t, b: tg.tile_lu_solve(*tg.tile_lu(t), b),
}


@pytest.mark.parametrize("name", SQUARE)
def test_gradients_of_factorisations(name: str) -> None:
    a = positive(4, seed=3) + np.diag([0, 1.0, 2, 3])
    gradcheck(unary(SQUARE[name], a, a), 1, [a], [np.zeros_like(a)])


@pytest.mark.parametrize("name", SYSTEMS)
def test_gradients_of_systems(name: str) -> None:
    a = positive(4, seed=3) + np.diag([0, 1.0, 2, 3])
    for b in (random(4), random(4, 2)):
        gradcheck(binary(SYSTEMS[name], a, b, b), 1, [a, b], [np.zeros_like(b)])


def test_gradients_of_stacks() -> None:
    a = positive(3, 2, seed=3)
    for name in ("cholesky", "inv", "q", "v"):
        gradcheck(unary(SQUARE[name], a, a), 1, [a], [np.zeros_like(a)])
    b = random(3)
    gradcheck(binary(tg.tile_solve, a, b, np.zeros((2, 3))), 1, [a, b], [np.zeros((2, 3))])


@settings(max_examples=12)
@given(
    st.sampled_from([*SQUARE, *SYSTEMS]), st.integers(1, 7), st.integers(0, 2), st.integers(1, 10),
    st.integers(1, 50), st.integers(0, 2**20),
)  # fmt: skip
def test_gradients_of_random_shapes(what: str, n: int, batch: int, k: int, block_dim: int, seed: int) -> None:
    lead = (batch,) if batch else ()
    a = positive(n, *lead, seed=seed) + np.diag(2.0 * np.arange(n))  # eigenvalues at least 1 apart
    args, f = ([a], SQUARE[what]) if what in SQUARE else ([a, random(*lead, n, k, seed=seed)], SYSTEMS[what])
    kernel = (unary if len(args) == 1 else binary)(f, *args, args[-1])
    gradcheck(kernel, 1, args, [np.zeros_like(args[-1])], block_dim=block_dim)
    ct = random(*args[-1].shape, seed=seed + 1)
    first, second = (adjoint_of(f, *args, ct=ct, device=d) for d in ("interpret", "cpu"))
    np.testing.assert_allclose(np.ravel(first[0]), np.ravel(second[0]), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_gradient_of_qr(shape: tuple[int, int]) -> None:
    a = random(*shape)
    outs = [np.zeros((shape[0], 3)), np.zeros((3, shape[1]))]
    gradcheck(pair(tg.tile_qr, a, *outs), 1, [a], outs)


def test_gradient_of_the_logarithm_of_a_determinant(device: str) -> None:
    a = random(5, 5)
    g = adjoint_of(lambda t: tg.tile_slogdet(t)[1], a, ct=np.ones(1), device=device)
    np.testing.assert_allclose(g, np.linalg.inv(a).T)


@pytest.mark.parametrize(
    "a",
    [
        [[1, 2], [2, 4]], [[0, 1], [0, 0]], [[0, 0], [0, 0]], [[1, 2, 3], [4, 5, 6], [5, 7, 9]], np.ones((3, 3)),
        np.diag([0, 2, 3, 4]), np.diag([2, 0, 0, 4]), [[7]],
    ],
)  # fmt: skip
def test_gradient_of_the_determinant_of_a_singular_matrix(a: Any, device: str) -> None:
    a = np.array(a, float)
    n = len(a)
    g = adjoint_of(tg.tile_det, a, ct=np.ones(1), device=device)
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(n)] for i in range(n)]
    cofactors = [
        [(-1) ** (i + j) * np.linalg.det(m) if n > 1 else 1 for j, m in enumerate(row)] for i, row in enumerate(minors)
    ]
    np.testing.assert_allclose(g, cofactors, atol=1e-12)


def test_gradients_in_place() -> None:
    """K03, C26: the forms in place have the same gradients, and earlier adjoints see what was there before.

    Peer: a gradient of zero.
    """

    @tg.kernel
    def k(a: tg.array2d[D], b: tg.array1d[D], y: tg.array1d[D]):
        t = tg.tile_load(a, shape=(3, 3))
        x = tg.tile_load(b, shape=3)
        before = t * t
        tg.tile_cholesky_inplace(t)
        tg.tile_lower_solve_inplace(t, x)
        x *= 2.0
        tg.tile_upper_solve_inplace(t.T, x)
        tg.tile_cholesky_solve_inplace(t, x)
        tg.tile_store(y, x + tg.tile_sum(before, axis=0))

    a, b = positive(3), random(3)
    for device in ("interpret", "cpu"):
        gradcheck(k, 1, [a, b], [np.zeros(3)], device=device)


def test_gradients_in_loops_and_branches() -> None:
    @tg.kernel
    def k(a: tg.array2d[D], b: tg.array1d[D], n: int, y: tg.array1d[D]):
        t = tg.tile_load(a, shape=(3, 3))
        x = tg.tile_load(b, shape=3)
        for i in range(n):
            if i % 2 == 0:
                tg.tile_cholesky_inplace(t)
                x = tg.tile_lower_solve(t, x)
                t = t @ t.T + t
            else:
                x = tg.tile_solve(t, x) + x
                q, r = tg.tile_qr(t)
                t = r.T @ r
        w, v = tg.tile_eigh(t)
        tg.tile_store(y, x + w)

    gradcheck(k, 1, [positive(3), random(3), 4], [np.zeros(3)])


def test_a_zero_cotangent_stays_zero(device: str) -> None:
    """The side that is not taken has no influence, though its matrices are singular, indefinite or not finite."""
    bad = np.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]], [[NAN, 1.0], [1.0, INF]]])
    zero = np.zeros((3, 2, 2))
    for name, f in SQUARE.items():
        assert not adjoint_of(f, bad, ct=zero, device=device).any(), name
    for name, f in SYSTEMS.items():
        for g in adjoint_of(f, bad, np.ones((3, 2, 2)), ct=zero, device=device):
            assert not g.any(), name
    for f in (tg.tile_det, lambda t: tg.tile_slogdet(t)[1]):
        assert not adjoint_of(f, bad, ct=np.zeros(3), device=device).any()


def test_a_column_without_a_cotangent_has_no_influence(device: str) -> None:
    a = np.array([[1e-320, 0.0], [0.0, 1.0]])
    b = np.array([[0.0, 1.0], [1.0, 1.0]])  # the second column of the solution overflows
    ct = np.array([[0.0, 0.0], [1.0, 0.0]])
    for f in (tg.tile_lower_solve, tg.tile_solve):
        ga, gb = adjoint_of(f, a, b, ct=ct, device=device)
        assert np.array_equal(gb, ct) and np.isfinite(ga).all()


def test_bad_matrices_leave_the_gradients_of_others_alone(device: str) -> None:
    stack = np.stack([K01, [[1.0, 2.0], [2.0, 1.0]], K01])
    g = adjoint_of(tg.tile_cholesky, stack, ct=np.ones((3, 2, 2)), device=device)
    for k in (0, 2):
        np.testing.assert_allclose(g[k], [[0.2133883, 0], [0.1464466, 0.3535534]], atol=1e-7)


def test_degenerate_eigenvalues(device: str) -> None:
    """A function of the whole space that equal eigenvalues share has a gradient; one of a single vector has none."""
    turn = np.linalg.qr(random(4, 4))[0]
    a = (turn * [1.0, 1.0, 1.0, 2.0]) @ turn.T
    a = (a + a.T) / 2

    for matrix, f in ((a, projector), (np.diag([1.0, 1, 1, 2]), projector)):
        ct = random(4, 4, seed=5)
        ct = ct + ct.T
        g = adjoint_of(f, matrix, ct=ct, device=device)
        direction = random(4, 4, seed=6)
        direction = direction + direction.T
        slope = slope_of(f, matrix, direction, ct)
        np.testing.assert_allclose(np.sum(g * np.tril(direction)), slope, rtol=1e-6)
        # the square needs more than the cotangents of w and v tell
        assert not np.isfinite(adjoint_of(square, matrix, ct=ct, device=device)).all()
    total = adjoint_of(lambda t: tg.tile_eigh(t)[0], a, ct=np.ones(4), device=device)
    np.testing.assert_allclose(total, np.eye(4), atol=1e-14)


@tg.func
def projector(t: Any):
    w, v = tg.tile_eigh(t)
    low = v[:, 0:3]
    return low @ low.T


@tg.func
def square(t: Any):
    w, v = tg.tile_eigh(t)
    return (v * (w * w)) @ v.T


def slope_of(f: Any, a: np.ndarray, direction: np.ndarray, ct: np.ndarray) -> float:
    step = 1e-5
    ends = [np.sum(apply(f, a + s * direction) * ct) for s in (step, -step)]
    return float(ends[0] - ends[1]) / (2 * step)


def test_gradients_in_float32() -> None:
    a = positive(6, dtype=np.float32, seed=4)
    ct = random(6, 6, dtype=np.float32)
    for name, f in SQUARE.items():
        exact = adjoint_of(f, a.astype(float), ct=ct.astype(float))
        assert not off(adjoint_of(f, a, ct=ct), exact, 400), name


def test_a_kalman_update_on_a_tape() -> None:
    """A filter step that many users write: gain by Cholesky, over a few steps, against central differences."""

    @tg.kernel
    def k(p: tg.array2d[D], h: tg.array2d[D], y: tg.array2d[D]):
        P = tg.tile_load(p, shape=(4, 4))
        H = tg.tile_load(h, shape=(2, 4))
        for i in range(3):
            S = H @ P @ H.T + tg.tile_load(p, shape=(2, 2))
            K = tg.tile_cholesky_solve(tg.tile_cholesky(S), H @ P)
            P = P - (H @ P).T @ K
        tg.tile_store(y, P)

    gradcheck(k, 1, [positive(4), random(2, 4)], [np.zeros((4, 4))])


def test_every_op_has_an_adjoint() -> None:
    """C17: none of them is silently without a gradient."""
    names = ("tile_cholesky", "tile_triangular_solve", "tile_lu", "tile_solve", "tile_qr", "tile_eigh", "tile_det")
    assert all(REGISTRY[n].adjoint is not None for n in names)
