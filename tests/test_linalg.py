"""Factorisations and systems of equations in kernels, held against NumPy, SciPy, closed forms and the equations that
define them: every size, stacks of matrices, ill-conditioned and singular ones, and what a user may get wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from matrices import FLOATS, K01, apply, apply_pair, eigh, launch, lu, off, positive, qr, random
from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch

SIZES = (1, 2, 3, 4, 7, 9, 15, 16, 17, 33, 64, 100)
NAN, INF = math.nan, math.inf
D = tg.float64


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky_and_its_systems(n: int, dtype: Any) -> None:
    a, b = positive(n, dtype=dtype), random(n, dtype=dtype)
    L = apply(tg.tile_cholesky, a)
    assert not off(L, scipy.linalg.cholesky(a.astype(float), lower=True), 20)
    assert not np.triu(L, 1).any()
    assert not off(L @ L.T, a, 4 + n / 2)
    for k in (None, 3) if n % 2 else (11,):
        y = b if k is None else random(n, k, dtype=dtype)
        z = apply(tg.tile_lower_solve, L, y)
        assert not off(z, scipy.linalg.solve_triangular(L.astype(float), y, lower=True), 20 + n)
        x = apply(tg.tile_upper_solve, L.T.copy(), z)
        assert not off(x, scipy.linalg.solve_triangular(L.T.astype(float), z), 20 + n)
        direct = apply(tg.tile_cholesky_solve, L, y)
        assert np.array_equal(direct, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES[::2])
def test_lu_solve_and_inverse(n: int, dtype: Any) -> None:
    a, b = random(n, n, dtype=dtype, seed=n), random(n, 2, dtype=dtype)
    factors, pivots = lu(a)
    expected, where = scipy.linalg.lu_factor(a.astype(float))
    assert pivots.tolist() == where.tolist()
    condition = np.linalg.cond(a.astype(float))
    assert not off(factors, expected, 10 * max(n, condition))
    permuted = a.copy()
    for i, p in enumerate(pivots):
        permuted[[i, p]] = permuted[[p, i]]
    assert not off((np.tril(factors, -1) + np.eye(n, dtype=dtype)) @ np.triu(factors), permuted, 10 + n)
    x = apply(tg.tile_solve, a, b)
    assert not off(a.astype(float) @ x, b, 10 + n, np.abs(a).sum(1).max() * np.abs(x).max(), dtype)
    assert not off(apply(tg.tile_inv, a), np.linalg.inv(a.astype(float)), 10 * condition)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (16, 16), (33, 20), (7, 18), (1, 5), (40, 1), (64, 64)])
def test_qr(shape: tuple[int, int], dtype: Any) -> None:
    a = random(*shape, dtype=dtype)
    q, r = qr(a)
    assert not off(q @ r, a, 10 + max(shape))
    assert not off(q.T @ q, np.eye(q.shape[1]), 10 + max(shape))
    assert not np.tril(r, -1).any()
    expected = np.linalg.qr(a.astype(float))
    assert not off(q, expected[0], 300 * max(shape)) and not off(r, expected[1], 300 * max(shape))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_and_vectors(n: int, dtype: Any) -> None:
    m = random(n, n, dtype=dtype, seed=n)
    a = m + m.T
    w, v = eigh(a)
    expected = np.linalg.eigvalsh(a.astype(float))
    size = float(np.abs(expected).max())
    assert (np.diff(w) >= 0).all()
    assert not off(w, expected, 8 + n / 8, size)
    assert not off(v.T @ v, np.eye(n), 10 + n)
    assert not off(a @ v, v * w, 10 + n, size)


def test_a_large_matrix() -> None:  # K06
    a = positive(570, dtype=np.float32)
    L = apply(tg.tile_cholesky, a)
    assert not off(L @ L.T, a, 20)
    assert not off(L, np.linalg.cholesky(a.astype(float)), 100)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_ill_conditioned_systems_have_a_small_residual(condition: float) -> None:
    n = 24
    a, b = positive(n, dtype=np.float32, condition=condition), random(n, dtype=np.float32)
    q, r = qr(a)
    x_qr = apply(tg.tile_upper_solve, r, q.T @ b)
    L = apply(tg.tile_cholesky, a)
    for x in (apply(tg.tile_solve, a, b), x_qr, apply(tg.tile_cholesky_solve, L, b)):
        assert not off(a.astype(float) @ x, b, 10, np.abs(x).max() * np.sqrt(n), np.float32)
    w, v = eigh(a)
    assert not off((v.astype(float) * w) @ v.T, a, 20, None, np.float32)


def test_small_eigenvalues_are_accurate() -> None:
    """A graded matrix: d @ h @ d with a well-conditioned h; tridiagonal methods lose its small eigenvalues."""
    d = 10.0 ** -np.arange(6)
    a = d[:, None] * (np.eye(6) + 0.1) * d
    w, _ = eigh(a)
    exact = 1 / eigh_of_inverse(a)
    np.testing.assert_allclose(w, exact, rtol=1e-13)


def eigh_of_inverse(a: np.ndarray) -> np.ndarray:
    from mpmath import matrix, mp

    with mp.workdps(60):
        values = mp.eigsy(matrix(a.tolist()), eigvals_only=True)
        return np.array([float(1 / v) for v in values])


# --- which triangle, in place, stacks, blocks -------------------------------------------------------------------------


def test_the_other_triangle_is_never_read(device: str) -> None:  # K05
    a, root = K01.astype(np.float32), np.float32(np.sqrt(2))
    above, below = a.copy(), a.copy()
    above[0, 1], below[1, 0] = NAN, NAN
    L = apply(tg.tile_cholesky, above, device=device)
    U = apply(lambda t: tg.tile_cholesky(t, fill_mode="upper"), below, device=device)
    assert L.tolist() == [[2, 0], [1, root]] and U.tolist() == [[2, 1], [0, root]]
    y = np.array([8, 7], np.float32)
    L[0, 1] = U[1, 0] = NAN
    for factor, mode in ((L, "lower"), (U, "upper")):
        x = apply(lambda t, b: tg.tile_cholesky_solve(t, b, fill_mode=mode), factor, y, device=device)
        np.testing.assert_allclose(x, np.linalg.solve(a, y), rtol=1e-6)
    assert np.isfinite(apply(tg.tile_lower_solve, L, y, device=device)).all()
    assert np.isfinite(apply(tg.tile_upper_solve, U, y, device=device)).all()
    for matrix, mode in ((above, "lower"), (below, "upper")):
        w, _ = eigh(matrix, device=device, fill_mode=mode)
        np.testing.assert_allclose(w, np.linalg.eigvalsh(a), rtol=1e-6)


def test_forms_in_place(device: str) -> None:
    @tg.kernel
    def k(a: tg.array2d[float], b: tg.array1d[float], y: tg.array2d[float]):
        t = tg.tile_load(a, shape=(3, 3))
        again = t  # the same tile under another name
        x = tg.tile_load(b, shape=3)
        tg.tile_cholesky_inplace(t)
        tg.tile_cholesky_solve_inplace(again, x)
        tg.tile_store(y[0], x)
        tg.tile_lower_solve_inplace(t, x)
        tg.tile_store(y[1], x)
        tg.tile_upper_solve_inplace(t.T, x)
        tg.tile_store(y[2], x)

    a, b, y = positive(3, dtype=np.float32), random(3, dtype=np.float32), np.zeros((3, 3), np.float32)
    launch(k, a, b, y, device=device)
    x = np.linalg.solve(a, b)
    L = np.linalg.cholesky(a)
    z = np.linalg.solve(L, x)
    np.testing.assert_allclose(y, [x, z, np.linalg.solve(L.T, z)], rtol=3e-4)


def test_in_place_through_a_view(device: str) -> None:
    @tg.kernel
    def k(a: tg.array2d[float], y: tg.array2d[float]):
        t = tg.tile_load(a, shape=(4, 4))
        tg.tile_cholesky_inplace(t[1:3, 1:3])
        tg.tile_store(y, t)

    a = np.full((4, 4), NAN, np.float32)
    a[1:3, 1:3] = K01
    y = np.zeros_like(a)
    launch(k, a, y, device=device)
    np.testing.assert_allclose(y[1:3, 1:3], [[2, 0], [1, np.sqrt(2)]])
    y[1:3, 1:3] = NAN
    assert np.isnan(y).all()


def test_stacks_of_matrices(device: str) -> None:
    lead = (2, 1, 3)
    a, b = positive(3, *lead), random(*lead, 3, 2)
    np.testing.assert_allclose(apply(tg.tile_cholesky, a, device=device), np.linalg.cholesky(a))
    np.testing.assert_allclose(apply(tg.tile_solve, a, b, device=device), np.linalg.solve(a, b))
    np.testing.assert_allclose(apply(tg.tile_det, a, shape=lead, device=device), np.linalg.det(a))
    np.testing.assert_allclose(eigh(a, device=device)[0], np.linalg.eigvalsh(a))
    q, r = qr(a, device=device)
    np.testing.assert_allclose(r, np.linalg.qr(a)[1], atol=1e-14)
    factors, pivots = lu(a, device=device)
    for i in np.ndindex(lead):
        assert np.array_equal(pivots[i], scipy.linalg.lu_factor(a[i])[1])


def test_rank_eight() -> None:
    a = positive(2, 1, 2, 1, 1, 3, 1)
    np.testing.assert_allclose(apply(tg.tile_inv, a), np.linalg.inv(a))


def test_right_hand_sides_broadcast(device: str) -> None:
    a = positive(3, 4)
    vector, matrix, stack = random(3), random(3, 2), random(5, 1, 3, 2)
    for b, shape in ((vector, (4, 3)), (matrix, (4, 3, 2)), (stack, (5, 4, 3, 2))):
        x = apply(tg.tile_solve, a, b, shape=shape, device=device)
        expected = np.linalg.solve(a, np.broadcast_to(b, (4, 3))[..., None])[..., 0] if b.ndim == 1 else None
        np.testing.assert_allclose(x, np.linalg.solve(a, b) if expected is None else expected)
    L = np.linalg.cholesky(a)
    np.testing.assert_allclose(
        apply(tg.tile_cholesky_solve, L, vector, shape=(4, 3)),
        np.linalg.solve(a, np.broadcast_to(vector, (4, 3))[..., None])[..., 0],
    )
    one = random(3, 3) + 3 * np.eye(3)
    np.testing.assert_allclose(apply(tg.tile_solve, one, stack, device=device), np.linalg.solve(one, stack))


def test_lu_solve_uses_the_factors_again(device: str) -> None:
    @tg.kernel
    def k(a: tg.array2d[D], b: tg.array2d[D], c: tg.array1d[D]):
        factors, pivots = tg.tile_lu(tg.tile_load(a, shape=(5, 5)))
        tg.tile_store(b, tg.tile_lu_solve(factors, pivots, tg.tile_load(b, shape=(5, 9))))
        tg.tile_store(c, tg.tile_lu_solve(LU=factors, piv=pivots, b=tg.tile_load(c, shape=5)))

    a, b, c = random(5, 5), random(5, 9), random(5, seed=1)
    x, y = np.linalg.solve(a, b), np.linalg.solve(a, c)
    launch(k, a, b, c, device=device)
    np.testing.assert_allclose(b, x)
    np.testing.assert_allclose(c, y)


@pytest.mark.parametrize("block_dim", [1, 32, 37, 256])  # C47: lanes spoiled each other's back substitution
def test_block_size_never_matters(block_dim: int) -> None:
    a, b = positive(21, dtype=np.float32), random(21, dtype=np.float32)

    def all_of(size: int) -> list[np.ndarray]:
        L = apply(tg.tile_cholesky, a, block_dim=size)
        x = apply(tg.tile_cholesky_solve, L, b, block_dim=size)
        return [L, x, *lu(a, block_dim=size), *qr(a, block_dim=size), *eigh(a, block_dim=size)]

    for one, other in zip(all_of(4), all_of(block_dim), strict=True):
        assert np.array_equal(one, other)


@settings(max_examples=25)
@given(
    st.sampled_from(["cholesky", "lower", "upper", "lu", "solve", "qr", "eigh", "det", "inv"]),
    st.integers(1, 20), st.integers(0, 3), st.integers(1, 12), st.sampled_from(FLOATS), st.integers(1, 70),
    st.integers(0, 2**20),
)  # fmt: skip
def test_interpreter_and_cpu_agree_to_the_last_bit(
    what: str, n: int, batch: int, k: int, dtype: Any, block_dim: int, seed: int
) -> None:
    lead = (batch,) if batch else ()
    a, b = random(*lead, n, n, dtype=dtype, seed=seed), random(*lead, n, k, dtype=dtype, seed=seed)
    spd = (a @ np.swapaxes(a, -1, -2) + np.eye(n)).astype(dtype)
    calls = {
        "cholesky": lambda **o: apply(tg.tile_cholesky, spd, **o),
        "lower": lambda **o: apply(tg.tile_lower_solve, spd, b, **o),
        "upper": lambda **o: apply(tg.tile_upper_solve, spd, b, **o),
        "lu": lambda **o: lu(a, **o),
        "solve": lambda **o: apply(tg.tile_solve, a, b, **o),
        "qr": lambda **o: qr(random(*lead, n, k, dtype=dtype, seed=seed), **o),
        "eigh": lambda **o: eigh(spd, **o),
        "det": lambda **o: apply(tg.tile_det, a, shape=lead or (1,), **o),
        "inv": lambda **o: apply(tg.tile_inv, a, **o),
    }
    first = calls[what](device="interpret")
    second = calls[what](device="cpu", block_dim=block_dim)
    for x, y in zip(*((r if isinstance(r, list) else [r]) for r in (first, second)), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
def test_small_floats_are_computed_in_float32_and_rounded_once(dtype: Any, device: str) -> None:
    a, b = positive(9).astype(dtype.np), random(9).astype(dtype.np)
    single, side = a.astype(np.float32), b.astype(np.float32)
    for f in (tg.tile_cholesky, tg.tile_inv):
        assert np.array_equal(apply(f, a, device=device), apply(f, single, device=device).astype(dtype.np))
    for f in (tg.tile_solve, tg.tile_cholesky_solve, tg.tile_lower_solve):
        assert np.array_equal(apply(f, a, b, device=device), apply(f, single, side, device=device).astype(dtype.np))
    for f in (lu, qr, eigh):
        for x, y in zip(f(a, device=device), f(single, device=device), strict=True):
            assert np.array_equal(x, y.astype(x.dtype))


# --- matrices that have no answer -------------------------------------------------------------------------------------


def test_a_matrix_that_is_not_positive_definite(device: str) -> None:
    """C55: NaN in that result, and nothing else is touched."""
    bad = np.array([[1.0, 2.0], [2.0, 1.0]])  # peer: (1, 0, 2, NaN) too, but silently for the GPU
    stack = np.stack([K01, bad, np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([[-1.0, 0.0], [0.0, 4.0]]), K01])
    L = apply(tg.tile_cholesky, stack, device=device)
    good = [[2, 0], [1, np.sqrt(2)]]
    np.testing.assert_allclose(L[0], good)
    np.testing.assert_allclose(L[4], good)
    np.testing.assert_array_equal(L[1], [[1, 0], [2, NAN]])
    np.testing.assert_array_equal(L[2], [[1, 0], [1, NAN]])  # singular: not definite either
    np.testing.assert_array_equal(L[3], [[NAN, 0], [NAN, NAN]])


def test_a_zero_on_the_diagonal(device: str) -> None:
    """C54. Peer: (3, 2), the undivided residual, as if the system had been solved."""
    t, b = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([3.0, 5.0])
    assert apply(tg.tile_lower_solve, t, b, device=device).tolist() == [INF, -INF]
    x = apply(tg.tile_upper_solve, t.T.copy(), np.array([0.0, 5.0]), device=device)
    assert x[0] == -INF and x[1] == 5
    assert np.isnan(apply(tg.tile_lower_solve, t, np.zeros(2), device=device)).all()
    wide = apply(tg.tile_lower_solve, t, np.tile(b[:, None], 9), device=device)
    np.testing.assert_array_equal(wide, np.tile([[INF], [-INF]], 9))


def test_singular_systems(device: str) -> None:
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert not np.isfinite(apply(tg.tile_solve, singular, np.ones(2), device=device)).any()
    assert not np.isfinite(apply(tg.tile_inv, singular, device=device)).any()
    assert apply(tg.tile_det, singular, shape=(1,), device=device).tolist() == [0]
    factors, pivots = lu(np.zeros((3, 3)), device=device)
    assert not factors.any() and pivots.tolist() == [0, 1, 2]


def test_determinants(device: str) -> None:
    for n in (1, 2, 5, 9):
        a = random(n, n, seed=n)
        np.testing.assert_allclose(apply(tg.tile_det, a, shape=(1,), device=device), [np.linalg.det(a)])
        sign, log = apply_pair(tg.tile_slogdet, a, ((1,), a.dtype), ((1,), a.dtype), device=device)
        expected = np.linalg.slogdet(a)
        assert sign == [expected[0]]
        np.testing.assert_allclose(log, [expected[1]], atol=1e-14)
    huge = 1e30 * np.stack([np.eye(40), -np.eye(40), np.zeros((40, 40))])
    sign, log = apply_pair(tg.tile_slogdet, huge, ((3,), float), ((3,), float), device=device)
    assert sign.tolist() == [1, 1, 0]
    np.testing.assert_allclose(log, [40 * np.log(1e30)] * 2 + [-INF])


def test_eigenvalues_of_special_matrices(device: str) -> None:
    for a in (np.zeros((3, 3)), np.eye(4), np.ones((5, 5)), np.diag([3.0, -1.0, 2.0]), 1e300 * K01, 1e-300 * K01):
        w, v = eigh(a, device=device)
        size = np.abs(a).max()
        np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-14 * size)
        np.testing.assert_allclose(v.T @ v, np.eye(len(a)), atol=1e-14)
        np.testing.assert_allclose(a @ v, v * w, atol=1e-14 * size)
    large = np.array([[2e38, 1e38], [1e38, -1e38]], np.float32)
    np.testing.assert_allclose(eigh(large, device=device)[0], np.linalg.eigvalsh(large.astype(float)), rtol=1e-6)
    bad = np.stack([K01, np.array([[NAN, 1], [1, 2]]), np.array([[1, INF], [INF, 2]]), K01])
    w, v = eigh(bad, device=device)
    assert np.isnan(w[1:3]).all() and np.isnan(v[1:3]).all()
    assert np.array_equal(w[0], w[3]) and np.isfinite(v[[0, 3]]).all()


def test_qr_of_special_matrices(device: str) -> None:
    huge, tiny = 1e300 * random(4, 3), 1e-300 * random(4, 3)
    for a in (huge, tiny, np.zeros((3, 2)), np.ones((3, 3)), np.eye(3)):
        q, r = qr(a, device=device)
        np.testing.assert_allclose(q @ r, a, atol=1e-15 * np.abs(a).max())
        np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-15)
    assert np.isnan(qr(np.array([[1.0, 2.0], [NAN, 1.0]]), device=device)[1]).any()


# --- what users get wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f, shapes, error, parts",
    [
        (tg.tile_cholesky, [(3, 4)], ShapeMismatch, ["`A` must be square", "(3, 4)"]),
        (tg.tile_cholesky, [(3,)], ShapeMismatch, ["must be a matrix", "tile_reshape"]),
        (lambda t: tg.tile_cholesky(t, "left"), [(3, 3)], TypeMismatch, ['"lower" or "upper"', "'left'"]),
        (lambda t: tg.tile_cholesky(2.0), [(3, 3)], TypeMismatch, ["`A` must be a tile"]),
        (lambda t: tg.tile_cholesky(tg.tile_astype(t, int)), [(3, 3)], TypeMismatch, ["floats", "tile_astype(A"]),
        (tg.tile_eigh, [(2, 3, 4)], ShapeMismatch, ["`A`", "square"]),
        (lambda t: tg.tile_inv(t), [(2, 3)], ShapeMismatch, ["tile_inv", "square"]),
        (lambda t: tg.tile_det(t), [(2, 3)], ShapeMismatch, ["tile_det", "square"]),
        (lambda t: tg.tile_qr(t)[0], [(3,)], ShapeMismatch, ["tile_qr", "matrix"]),
        (tg.tile_lower_solve, [(3, 3), (4,)], ShapeMismatch, ["`L`", "`y`", "(3, 3)", "(4, 1)", "vector (3,)"]),
        (tg.tile_upper_solve, [(3, 3), (4, 3)], ShapeMismatch, ["`U`", "`z`"]),
        (tg.tile_solve, [(2, 3, 3), (2, 3)], ShapeMismatch, ["`A`", "`b`", "tile_reshape(t, (..., 3, 1))"]),
        (tg.tile_solve, [(2, 3, 3), (4, 3, 1)], ShapeMismatch, ["leading axes", "(2, 3, 3)", "(4, 3, 1)"]),
        (tg.tile_cholesky_solve, [(3, 4), (3,)], ShapeMismatch, ["`L` must be square"]),
        (lambda t, b: tg.tile_solve(t, tg.tile_astype(b, D)), [(3, 3), (3,)], TypeMismatch, ["float64", "astype(b"]),
        (lambda t: tg.tile_lower_solve_inplace(t, 3.0), [(3, 3)], TypeMismatch, ["`y` must be a tile"]),
        (lambda t: tg.tile_cholesky_solve_inplace(t, 3.0), [(3, 3)], TypeMismatch, ["`y` must be a tile"]),
        (lambda t, b: tg.tile_lu_solve(t, t, b), [(3, 3), (3,)], TypeMismatch, ["`piv`", "second result of tile_lu"]),
    ],
)  # fmt: skip
def test_errors(f: Any, shapes: Any, error: Any, parts: list[str]) -> None:
    args = [np.zeros(s, np.float32) for s in shapes]
    with pytest.raises(error) as found:
        apply(f, *args)
    for part in parts:
        assert part in str(found.value), str(found.value)


def test_arguments_by_name(device: str) -> None:
    a, b = K01, np.array([8.0, 7.0])
    x = np.linalg.solve(a, b)
    L = np.linalg.cholesky(a)
    np.testing.assert_allclose(apply(lambda t: tg.tile_cholesky(A=t, fill_mode="lower"), a, device=device), L)
    np.testing.assert_allclose(apply(lambda t, y: tg.tile_cholesky_solve(L=t, y=y), L, b, device=device), x)
    np.testing.assert_allclose(apply(lambda t, y: tg.tile_solve(A=t, b=y), a, b, device=device), x)
    np.testing.assert_allclose(apply(lambda t, y: tg.tile_lower_solve(L=t, y=y), L, b, device=device)[0], 4)
    np.testing.assert_allclose(
        apply(lambda t, y: tg.tile_upper_solve(U=t, z=y), L.T.copy(), b, device=device)[0], 1.525, rtol=1e-3
    )
