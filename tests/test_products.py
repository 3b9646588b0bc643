"""Matrix, dot and outer products, axpy, diagonals and triangles against NumPy and exact arithmetic.

Gradients are held against central differences. The peers' wrong answers that are excluded stand beside the cases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.codegen.targets.cpu_matmul import batch_axes
from tilegrad.diagnostics import ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.ops.matmul import allowed_outputs, product_shape
from tilegrad.testing import gradcheck

F16, F32, F64 = np.float16, np.float32, np.float64
D = tg.float64
NAN, INF = math.nan, math.inf
Host = Any


def run(kernel: Any, *args: Any, device: str, dim: Any = 1, **options: Any) -> None:
    tg.launch_tiled(tg.kernel(kernel), dim=dim, inputs=args, device=device, **options)


def whole(rng: np.random.Generator, d: dt.DType, shape: tuple[int, ...], low: int = -4, high: int = 5) -> Host:
    return rng.integers(max(low, 0) if d.kind == "u" else low, high, shape).astype(d.np)


def array(x: Host) -> Any:
    return tg.array(dtype=dt.of_array(x), ndim=x.ndim)


def apply(f: Any, shape: tuple[int, ...], dtype: Any, *operands: Host, device: str, block_dim: int = 4) -> Host:
    """What a function of one or two tiles gives, each tile a whole array."""
    out = np.zeros(shape, dt.as_dtype(dtype).np)
    kinds = [array(x) for x in operands]
    o = array(out)
    if len(operands) == 1:
        kind, extents = kinds[0], operands[0].shape

        def one(a: kind, r: o) -> None:
            tg.tile_store(r, f(tg.tile_load(a, shape=extents)))

        run(one, *operands, out, device=device, block_dim=block_dim)
        return out
    left, right, sizes = *kinds, [x.shape for x in operands]

    def two(a: left, b: right, r: o) -> None:
        tg.tile_store(r, f(tg.tile_load(a, shape=sizes[0]), tg.tile_load(b, shape=sizes[1])))

    run(two, *operands, out, device=device, block_dim=block_dim)
    return out


@tg.func
def times(x, y):
    return x @ y


# --- shapes and dtypes of products ------------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((7,), (7,)), ((1, 1), (1, 1)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((3, 4), (2, 2, 4, 3)), ((5, 3, 9), (9, 1)),
    ((2, 1, 2, 1, 1, 2, 2, 3), (1, 2, 2, 1, 3, 1, 3, 2)), ((4, 33, 17), (4, 17, 40)), ((1, 3, 4), (2, 4, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_products_of_every_rank_follow_numpy(a: tuple[int, ...], b: tuple[int, ...], device: str) -> None:
    rng = np.random.default_rng(1)
    x, y = whole(rng, dt.float32, a), whole(rng, dt.float32, b)
    expected = np.atleast_1d(x.astype(F64) @ y)
    assert product_shape(a, b) == expected.shape
    np.testing.assert_array_equal(apply(times, expected.shape, tg.float32, x, y, device=device), expected)


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_products_of_every_dtype_and_their_wider_sums(d: dt.DType, device: str) -> None:
    """int8 products are wrong in int8 and right in int32; 16-bit floats are summed in float32 either way."""
    rng = np.random.default_rng(2)
    x, y = whole(rng, d, (3, 6, 7), -9, 12), whole(rng, d, (7, 5), -9, 12)
    for wide in allowed_outputs(d):

        def multiply(a, b, wide=wide):
            return tg.tile_matmul(a, b, dtype=wide)

        exact = x.astype(F64) @ y.astype(F64)
        expected = exact.astype(np.int64).astype(wide.np) if wide.is_int else exact.astype(wide.np)
        np.testing.assert_array_equal(apply(multiply, expected.shape, wide, x, y, device=device), expected)


def test_which_sums_are_allowed() -> None:
    assert allowed_outputs(dt.float16) == (dt.float16, dt.float32, dt.float64)
    assert allowed_outputs(dt.bfloat16) == (dt.bfloat16, dt.float32, dt.float64)
    assert allowed_outputs(dt.float64) == (dt.float64,)
    assert allowed_outputs(dt.int8) == (dt.int8, dt.int16, dt.int32, dt.int64)
    assert allowed_outputs(dt.uint16) == (dt.uint16, dt.int32, dt.int64, dt.uint32, dt.uint64)


@settings(max_examples=25)
@given(data=st.data())
def test_random_products_agree_everywhere(data: Any) -> None:
    """Interpreter, CPU and NumPy, for random ranks, dtypes and block sizes; whole numbers, so exactly."""
    d = data.draw(st.sampled_from(dt.NUMERIC))
    extent = st.integers(1, 9)
    m, k, n = (data.draw(st.one_of(extent, st.sampled_from([16, 17, 33]))) for _ in range(3))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=3))
    dropped = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    first = data.draw(st.integers(0, len(batch)))
    a = (*(1 if drop else size for size, drop in zip(batch, dropped, strict=True)), m, k)
    b = (*batch[first:], k, n)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = whole(rng, d, a), whole(rng, d, b)
    if data.draw(st.booleans()):
        x, y = np.swapaxes(y, -1, -2).copy(), np.swapaxes(x, -1, -2).copy()
    exact = x.astype(F64) @ y.astype(F64)
    expected = exact.astype(np.int64).astype(d.np) if d.is_int else exact.astype(d.np)
    for device in ("interpret", "cpu"):
        block_dim = data.draw(st.sampled_from([1, 3, 64]))
        got = apply(times, expected.shape, d, x, y, device=device, block_dim=block_dim)
        np.testing.assert_array_equal(got, expected)


def test_batches_are_loops_over_joined_axes() -> None:
    assert batch_axes((2, 3, 4, 5), (2, 3, 4, 6), (2, 3, 6, 5)) == [(6, (20, 24, 30))]
    assert batch_axes((2, 3, 4, 5), (2, 1, 4, 6), (3, 6, 5)) == [(2, (60, 24, 0)), (3, (20, 0, 30))]
    assert batch_axes((2, 3, 4, 5), (4, 6), (2, 3, 6, 5)) == [(6, (20, 0, 30))]
    assert batch_axes((1, 1, 4, 5), (4, 6), (1, 6, 5)) == []


# --- rounding ---------------------------------------------------------------------------------------------------------


def test_n05_float32_is_full_float32(device: str) -> None:
    """512 x 512 x 512 normal numbers. A peer quietly rounds to TF32: errors of 1e-2."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((48, 512)).astype(F32), rng.standard_normal((512, 64)).astype(F32)
    exact, size = x.astype(F64) @ y, np.abs(x.astype(F64)) @ np.abs(y)
    for precision in ("default", "tf32"):

        def multiply(a, b, precision=precision):
            return tg.tile_matmul(a, b, precision=precision)

        got = apply(multiply, (48, 64), tg.float32, x, y, device=device)
        assert (np.abs(got - exact) <= 2.0**-24 * (2 * math.sqrt(512) * size / 8 + np.abs(exact))).all()


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16], ids=str)
def test_d12_16_bit_operands_are_summed_in_float32(d: dt.DType, device: str) -> None:
    """4096 ones: a sum in bfloat16 stalls at 256, one in float16 at 2048."""
    x, y = np.ones((2, 1024), d.np), np.ones((1024, 3), d.np)
    wide, narrow = tg.array(dtype=tg.float32, ndim=2), tg.array(dtype=d, ndim=2)

    def blocked(a: narrow, b: narrow, o: wide, p: narrow) -> None:
        left, right = tg.tile_load(a, shape=(2, 1024)), tg.tile_load(b, shape=(1024, 3))
        c = tg.tile_zeros(shape=(2, 3), dtype=tg.float32)
        for _ in range(4):
            c += left @ right
        tg.tile_store(o, c)
        tg.tile_store(p, tg.tile_astype(c, d))

    o, p = np.zeros((2, 3), F32), np.zeros((2, 3), d.np)
    run(blocked, x, y, o, p, device=device)
    assert (o == 4096).all() and (p == 4096).all()
    long = np.ones((1, 4096), d.np)
    assert apply(times, (1, 1), d, long, long.T.copy(), device=device) == 4096


def test_scaling_rounds_once(device: str) -> None:
    """alpha * a @ b + beta * c of float16 is rounded at the end: 2049 * 0.5 + 0.25 is not 1024.25 in two steps."""
    kind = tg.array2d[tg.float16]

    def kernel(a: kind, b: kind, o: kind, alpha: tg.float32) -> None:
        c = tg.tile_full(shape=(1, 1), value=tg.float16(1.0))
        tg.tile_matmul(tg.tile_load(a, shape=(1, 2)), tg.tile_load(b, shape=(2, 1)), c, alpha=alpha, beta=0.5)
        tg.tile_store(o, c)

    o = np.zeros((1, 1), F16)
    run(kernel, np.array([[2048, 1]], F16), np.ones((2, 1), F16), o, 0.5, device=device)
    assert o[0, 0] == F16(2049 * 0.5 + 0.5)


@pytest.mark.parametrize("device", ["cpu"])
def test_the_same_bits_for_every_block_dim(device: str) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((2, 33, 70)).astype(F32), rng.standard_normal((70, 19)).astype(F32)
    first, *others = (apply(times, (2, 33, 19), tg.float32, x, y, device=device, block_dim=n) for n in (1, 7, 64, 256))
    assert all(first.tobytes() == other.tobytes() for other in others)


def test_nan_and_infinity_stay_where_they_belong(device: str) -> None:
    """Whole vectors are read past the end of a row: what lies there must not matter."""
    x, y = np.ones((3, 5), F32), np.ones((5, 3), F32)
    x[1, 2], y[0, 2] = NAN, INF
    got = apply(times, (3, 3), tg.float32, x, y, device=device)
    assert got[0].tolist() == [5, 5, INF] and np.isnan(got[1]).all() and got[2].tolist() == [5, 5, INF]


# --- operands and places ----------------------------------------------------------------------------------------------


def test_m01_views_are_operands(device: str) -> None:
    """Slices, transposes and broadcasts; a peer gives wrong numbers for a[:, :16] @ b on one of its devices."""
    kind = tg.array2d[float]

    def kernel(a: kind, b: kind, o: tg.array3d[float]) -> None:
        x, y = tg.tile_load(a, shape=(16, 32)), tg.tile_load(b, shape=(16, 16))
        tg.tile_store(o[0], x[:, :16] @ y)
        tg.tile_store(o[1], x[::-1, ::2] @ y.T)
        tg.tile_store(o[2], tg.tile_broadcast(x[3, 5:21], shape=(16, 16)) @ y)
        tg.tile_store(o[3], y @ tg.tile_transpose(x)[8:24])
        tg.tile_matmul(x[:, :16], y, x[:, 16:], alpha=2.0, beta=-1.0)
        tg.tile_store(o[4], x[:, 16:])
        tg.tile_store(o[5], x[:, :16])

    rng = np.random.default_rng(5)
    x, y, o = whole(rng, dt.float32, (16, 32)), whole(rng, dt.float32, (16, 16)), np.zeros((6, 16, 16), F32)
    run(kernel, x, y, o, device=device)
    left, right = x[:, :16], x[:, 16:]
    rows = np.broadcast_to(x[3, 5:21], (16, 16))
    expected = [left @ y, x[::-1, ::2] @ y.T, rows @ y, y @ x.T[8:24], 2 * left @ y - right, left]
    np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(16, 24, 8), (16, 24, 104), (16, 24, 24), (10, 7, 5), (6, 6, 6), (17, 19, 1)]
)
def test_m03_and_c64_no_remainder_is_dropped(m: int, k: int, n: int, device: str) -> None:
    """Extents that are no multiples of 4, 8 or 16. A peer drops the tail of k: c[0, 0] would be 12, the total -14."""
    x = ((24 * np.arange(m)[:, None] + np.arange(k)) % 7 - 3).astype(F32)
    y = ((8 * np.arange(k)[:, None] + np.arange(n)) % 5 - 2).astype(F32)
    got = apply(times, (m, n), tg.float32, x, y, device=device, block_dim=384)
    np.testing.assert_array_equal(got, x @ y)
    if (m, k, n) == (16, 24, 8):
        assert got[0, 0] == 4 and got.sum() == -21


def test_i08_matrices_that_are_no_multiple_of_the_tile(device: str) -> None:
    kind = tg.array2d[float]

    def tiled(a: kind, b: kind, o: kind) -> None:
        i, j = tg.tid()
        c = tg.tile_zeros(shape=(8, 4), dtype=float)
        for p in range(tg.cdiv(a.shape[1], 8)):
            c += tg.tile_load(a, shape=(8, 8), offset=(i * 8, p * 8)) @ tg.tile_load(
                b, shape=(8, 4), offset=(p * 8, j * 4)
            )
        tg.tile_store(o, c, offset=(i * 8, j * 4))

    x = ((7 * np.arange(10)[:, None] + np.arange(7)) % 5).astype(F32)
    y = ((5 * np.arange(7)[:, None] + np.arange(5)) % 4).astype(F32)
    o = np.zeros((10, 5), F32)
    run(tiled, x, y, o, device=device, dim=(2, 2))
    assert o[0].tolist() == [16, 15, 14, 21, 16] and o[9].tolist() == [18, 31, 32, 21, 18] and o.sum() == 1020


def test_i08_a_large_case() -> None:
    kind = tg.array2d[float]

    def tiled(a: kind, b: kind, o: kind) -> None:
        i, j = tg.tid()
        c = tg.tile_zeros(shape=(64, 64), dtype=float)
        for p in range(0, 500, 64):
            left = tg.tile_load(a, shape=(64, 64), offset=(i * 64, p))
            c += left @ tg.tile_load(b, shape=(64, 64), offset=(p, j * 64))
        tg.tile_store(o, c, offset=(i * 64, j * 64))

    x = ((7 * np.arange(1000)[:, None] + np.arange(500)) % 5).astype(F32)
    y = ((5 * np.arange(500)[:, None] + np.arange(1500)) % 4).astype(F32)
    o = np.full((1000, 1500), NAN, F32)
    run(tiled, x, y, o, device="cpu", dim=(16, 24))
    np.testing.assert_array_equal(o, x @ y)


@pytest.mark.parametrize(("d", "n"), [(dt.float32, 300), (dt.float64, 137), (dt.int8, 1100)], ids=str)
def test_columns_of_large_matrices_are_packed(d: dt.DType, n: int) -> None:
    rng = np.random.default_rng(25)
    x, y = whole(rng, d, (130, 509)), whole(rng, d, (509, n))
    expected = (x.astype(F64) @ y).astype(np.int64).astype(d.np)
    np.testing.assert_array_equal(apply(times, (130, n), d, x, y, device="cpu"), expected)


def test_c73_at_is_the_matrix_product(device: str) -> None:
    """A peer's `a @ b` is the elementwise product: 1 4 9 16."""
    x = np.array([[1, 2], [3, 4]], F32)
    assert apply(times, (2, 2), tg.float32, x, x, device=device).tolist() == [[7, 10], [15, 22]]


def test_c23_beta_zero_forgets_the_old_output(device: str) -> None:
    """NaN and infinities in `out` vanish, whether beta is a literal or only known when the kernel runs."""
    kind, numbers = tg.array2d[float], np.array([0.0, 1.0], F32)

    def kernel(a: kind, o: tg.array3d[float], s: tg.array1d[float]) -> None:
        x = tg.tile_load(a, shape=(2, 2))
        c = tg.tile_full(shape=(2, 2), value=NAN)
        tg.tile_matmul(x, x, c, beta=0.0)
        tg.tile_store(o[0], c)
        c = tg.tile_full(shape=(2, 2), value=INF)
        tg.tile_matmul(x, x, c, alpha=s[1], beta=s[0])
        tg.tile_store(o[1], c)
        c = tg.tile_full(shape=(2, 2), value=NAN)
        tg.tile_matmul(x, x, c, alpha=2.0, beta=tg.float32(0.0))
        tg.tile_store(o[2], c)

    x, o = np.array([[1, 2], [3, 4]], F32), np.zeros((3, 2, 2), F32)
    run(kernel, x, o, numbers, device=device)
    np.testing.assert_array_equal(o, [x @ x, x @ x, 2 * (x @ x)])


def test_accumulation_into_parts_and_other_ranks(device: str) -> None:
    """`c += a @ b` and `-=` for vectors, batches, parts of tiles and wider types."""

    def kernel(a: tg.array3d[tg.float16], v: tg.array1d[float], o: tg.array3d[float]) -> None:
        x = tg.tile_load(a, shape=(2, 3, 3))
        c = tg.tile_zeros(shape=(2, 3, 3), dtype=float)
        for i in range(2):
            c[i] += x[i] @ x[1 - i]
            c[i, 1:, :2] -= x[i, 1:] @ x[1 - i, :, :2]
        c += x @ x[0]
        tg.tile_store(o, c)
        r = tg.tile_ones(shape=3, dtype=float)
        r += x[0] @ x[1, 0]
        r -= x[0, 0] @ x[1]
        tg.tile_store(v, r)
        d = tg.tile_ones(shape=1, dtype=float)
        d += x[0, 1] @ x[1, 1]
        tg.tile_store(v, d, offset=3)

    rng = np.random.default_rng(6)
    a, v, o = whole(rng, dt.float16, (2, 3, 3)), np.zeros(4, F32), np.zeros((2, 3, 3), F32)
    run(kernel, a, v, o, device=device)
    x = a.astype(F64)
    c = x @ x[::-1]
    c[:, 1:, :2] = 0
    np.testing.assert_array_equal(o, c + x @ x[0])
    np.testing.assert_array_equal(v[:3], 1 + x[0] @ x[1, 0] - x[0, 0] @ x[1])
    assert v[3] == 1 + x[0, 1] @ x[1, 1]


def test_a_tile_may_be_its_own_factor(device: str) -> None:
    """The product is complete before the tile changes, also where factor and sum are views of one tile."""

    def kernel(m: tg.array2d[float], x: tg.array1d[float], o: tg.array2d[float]) -> None:
        s, v = tg.tile_load(m, shape=(4, 4)), tg.tile_load(x, shape=4)
        v += s @ v
        v += v @ s
        t = tg.tile_reshape(v, (2, 2))
        t += t @ t
        t -= t.T @ t
        tg.tile_store(o, t)
        s[:2, :2] += s[2:, 2:] @ s[:2, :2]
        s[:, :] += s.T @ s
        tg.tile_store(m, s)

    rng = np.random.default_rng(24)
    m, x, o = whole(rng, dt.float32, (4, 4)), whole(rng, dt.float32, (4,)), np.zeros((2, 2), F32)
    s, v = m.copy(), x + m @ x
    v = v + v @ m
    t = v.reshape(2, 2)
    t = t + t @ t
    t = t - t.T @ t
    s[:2, :2] += s[2:, 2:] @ s[:2, :2]
    s = s + s.T @ s
    run(kernel, m, x, o, device=device)
    np.testing.assert_array_equal(o, t)
    np.testing.assert_array_equal(m, s)


def test_a_broadcast_view_gets_every_addition(device: str) -> None:
    def kernel(a: tg.array2d[float], o: tg.array2d[float]) -> None:
        x, t = tg.tile_load(a, shape=(3, 3)), tg.tile_ones(shape=(1, 3), dtype=float)
        rows = tg.tile_broadcast(t, shape=(3, 3))
        rows += x @ x
        tg.tile_store(o, t)

    a, o = whole(np.random.default_rng(23), dt.float32, (3, 3)), np.zeros((1, 3), F32)
    run(kernel, a, o, device=device)
    np.testing.assert_array_equal(o[0], 1 + (a @ a).sum(0))


def test_unsigned_differences_wrap(device: str) -> None:
    def kernel(a: tg.array2d[tg.uint8], o: tg.array2d[tg.uint8], p: tg.array2d[tg.int32]) -> None:
        x = tg.tile_load(a, shape=(2, 2))
        c, d = tg.tile_zeros(shape=(2, 2), dtype=tg.uint8), tg.tile_zeros(shape=(2, 2), dtype=tg.int32)
        c -= x @ x
        d -= x @ x
        tg.tile_store(o, c)
        tg.tile_store(p, d)

    a, o, p = np.full((2, 2), 11, np.uint8), np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.int32)
    run(kernel, a, o, p, device=device)
    assert (o == (-242) % 256).all() and (p == -242).all()


def test_absent_lanes_count_as_nothing(device: str) -> None:
    def kernel(x: tg.array1d[float], w: tg.array2d[float], o: tg.array2d[float]) -> None:
        i = tg.tid()
        t = tg.tile(x[i]) + 1.0
        m = tg.tile_load(w, shape=(2, 8))
        s = m @ t
        s += m @ t
        o[i, 0] = tg.tile_dot(t, 1.0 / (t - 1.0))[0]
        o[i, 1] = s[1]
        o[i, 2] = tg.tile_matmul(t, t)[0]

    x, w, o = np.arange(1, 6, dtype=F32), np.ones((2, 8), F32), np.zeros((5, 3), F32)
    tg.launch(tg.kernel(kernel), dim=5, inputs=[x, w, o], block_dim=8, device=device)
    np.testing.assert_allclose(o, [[((x + 1) / x).sum(), 2 * (x + 1).sum(), ((x + 1) ** 2).sum()]] * 5, rtol=1e-6)


# --- gradients of products --------------------------------------------------------------------------------------------


def grads_of(kernel: Any, inputs: list[Host], output: Host, device: str) -> list[Host]:
    arrays = [tg.array(x, requires_grad=True) for x in inputs]
    out = tg.array(output, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(tg.kernel(kernel), dim=1, inputs=[*arrays, out], device=device)
    tape.backward(grads={out: tg.array(np.ones_like(output))})
    return [np.asarray(x.grad.numpy()) for x in arrays]


@pytest.mark.parametrize(("a", "b"), [s for s in SHAPES if len(s[0]) < 5])
def test_gradients_of_every_rank(a: tuple[int, ...], b: tuple[int, ...], device: str) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    out = np.zeros(product_shape(a, b))
    left, right, o = array(x), array(y), array(out)

    def kernel(p: left, q: right, r: o) -> None:
        tg.tile_store(r, tg.tile_load(p, shape=a) @ tg.tile_load(q, shape=b))

    gradcheck(tg.kernel(kernel), 1, [x, y], [out], device=device)


def test_g29_alpha_and_beta_have_gradients(device: str) -> None:
    """2 * (2 * 3) + 0.5 * 5 = 14.5 with slopes 6 for alpha and 5 for beta. A peer gives none."""
    kind = tg.array2d[D]

    def kernel(a: kind, b: kind, c: kind, s: tg.array1d[D], o: kind) -> None:
        total = tg.tile_load(c, shape=(1, 1))
        tg.tile_matmul(tg.tile_load(a, shape=(1, 1)), tg.tile_load(b, shape=(1, 1)), total, alpha=s[0], beta=s[1])
        tg.tile_store(o, total)

    one = [np.array([[v]]) for v in (2.0, 3.0, 5.0)]
    for scales, expected in (([2.0, 0.5], [6, 4, 0.5]), ([2.0, 0.0], [6, 4, 0])):
        o = np.zeros((1, 1))
        run(kernel, *one, np.array(scales), o, device=device)
        assert o == 2 * 6 + scales[1] * 5
        *slopes, of_scales = grads_of(kernel, [*one, np.array(scales)], o, device)
        assert [float(g[0, 0]) for g in slopes] == expected and of_scales.tolist() == [6, 5]


def test_gradients_of_every_part_of_an_update(device: str) -> None:
    kind = tg.array3d[D]

    def kernel(a: kind, b: tg.array2d[D], c: kind, s: tg.array1d[D], o: kind) -> None:
        total = tg.tile_load(c, shape=(2, 3, 3))
        x, y = tg.tile_load(a, shape=(2, 3, 4)), tg.tile_load(b, shape=(4, 3))
        for i in range(3):
            if i % 2 == 0:
                tg.tile_matmul(x, y, total, alpha=s[0] * 0.5, beta=s[1])
            else:
                total += x @ y
                total -= tg.tile_matmul(x, y, alpha=s[1]) @ total
        tg.tile_store(o, total)

    rng = np.random.default_rng(8)
    inputs = [rng.standard_normal(s) for s in ((2, 3, 4), (4, 3), (2, 3, 3), (2,))]
    gradcheck(tg.kernel(kernel), 1, inputs, [np.zeros((2, 3, 3))], device=device)


def test_g31_gradients_of_two_products_add_up(device: str) -> None:
    """loss = sum(A @ B) + sum(A @ D): a peer's second product overwrote the first one's gradient."""
    kind = tg.array3d[D]

    def kernel(a: kind, b: kind, d: kind, o: kind) -> None:
        x = tg.tile_load(a, shape=(2, 2, 2))
        tg.tile_store(o, x @ tg.tile_load(b, shape=(2, 2, 2)) + x @ tg.tile_load(d, shape=(2, 2, 2)))

    rng = np.random.default_rng(9)
    a, b, d = (whole(rng, dt.float64, (2, 2, 2)) for _ in range(3))
    grads = grads_of(kernel, [a, b, d], np.zeros((2, 2, 2)), device)
    ones = np.ones((2, 2, 2))
    np.testing.assert_array_equal(grads[0], ones @ np.swapaxes(b, 1, 2) + ones @ np.swapaxes(d, 1, 2))
    np.testing.assert_array_equal(grads[1], np.swapaxes(a, 1, 2) @ ones)


def test_c24_gradient_of_a_broadcast_operand_sums_its_copies(device: str) -> None:
    """A peer loses updates where several lanes meet in one element."""
    kind = tg.array2d[D]

    def kernel(a: kind, b: kind, o: kind) -> None:
        rows = tg.tile_broadcast(tg.tile_load(a, shape=(1, 4)), shape=(6, 4))
        tg.tile_store(o, rows @ tg.tile_load(b, shape=(4, 5)))

    rng = np.random.default_rng(10)
    a, b = whole(rng, dt.float64, (1, 4)), whole(rng, dt.float64, (4, 5))
    of_a, of_b = grads_of(kernel, [a, b], np.zeros((6, 5)), device)
    np.testing.assert_array_equal(of_a, 6 * b.sum(1)[None])
    np.testing.assert_array_equal(of_b, np.repeat(6 * a.T, 5, axis=1))


def test_c69_gradients_of_16_bit_operands_are_summed_in_float32(device: str) -> None:
    """Each slope is a sum of 4096 ones: in float16 it would stall at 2048. Results are wider (C22: mixed precision)."""
    narrow, wide = tg.array(dtype=tg.float16, ndim=2), tg.array(dtype=tg.float32, ndim=2)

    def returned(a: narrow, b: narrow, o: narrow) -> None:
        tg.tile_store(o, tg.tile_load(a, shape=(1, 1)) @ tg.tile_load(b, shape=(1, 4096)))

    def accumulated(a: narrow, b: narrow, o: wide) -> None:
        c = tg.tile_ones(shape=(1, 4096), dtype=float)
        tg.tile_matmul(tg.tile_load(a, shape=(1, 1)), tg.tile_load(b, shape=(1, 4096)), c, alpha=1.0)
        tg.tile_store(o, c)

    a, b = np.ones((1, 1), F16), np.ones((1, 4096), F16)
    for kernel, dtype in ((returned, F16), (accumulated, F32)):
        of_a, of_b = grads_of(kernel, [a, b], np.zeros((1, 4096), dtype), device)
        assert of_a == 4096 and of_a.dtype == F16 and (of_b == 1).all()


# --- complex numbers --------------------------------------------------------------------------------------------------


def parts(x: Host, d: dt.DType) -> Host:
    return np.stack([x.real, x.imag], -1).astype(d.np)


@pytest.mark.parametrize("d", [dt.float16, dt.float32, dt.float64], ids=str)
def test_tiles_of_vec2_are_complex(d: dt.DType, device: str) -> None:
    number = tg.types.vector(length=2, dtype=d)
    kind, stack = tg.array(dtype=number, ndim=2), tg.array(dtype=number, ndim=3)
    half = number(0.5, -0.25)

    def kernel(a: kind, b: kind, o: stack, s: tg.array(dtype=d, ndim=1)) -> None:
        x, y = tg.tile_load(a, shape=(3, 4)), tg.tile_load(b, shape=(4, 5))
        c = x @ y
        tg.tile_store(o[0], c)
        c += x @ y
        c -= x @ y
        c += x @ y
        tg.tile_store(o[1], c)
        tg.tile_matmul(x, y, c, alpha=s[0], beta=-1.0)
        tg.tile_store(o[2], c)
        tg.tile_matmul(x, y, c, alpha=half, beta=number(0.0, 1.0))
        tg.tile_store(o[3], c)
        c = tg.tile_full(shape=(3, 5), value=number(NAN, NAN))
        tg.tile_matmul(x, y, c, beta=0.0)
        tg.tile_store(o[4], c)
        tg.tile_store(o[5], tg.tile_matmul(x, y, alpha=half))

    rng = np.random.default_rng(11)
    x, y = (rng.integers(-3, 4, s) + 1j * rng.integers(-3, 4, s) for s in ((3, 4), (4, 5)))
    o = np.zeros((6, 3, 5, 2), d.np)
    run(kernel, parts(x, d), parts(y, d), o, np.array([1.5], d.np), device=device)
    p = x @ y
    last = (0.5 - 0.25j) * p - 1j * 0.5 * p
    expected = [p, 2 * p, -0.5 * p, last, p, (0.5 - 0.25j) * p]
    np.testing.assert_array_equal(o, [parts(e, d) for e in expected])


def test_complex_products_are_summed_in_wider_types(device: str) -> None:
    def kernel(a: tg.array1d[tg.vec2h], o: tg.array1d[tg.vec2f]) -> None:
        x = tg.tile_load(a, shape=4)
        c = tg.tile_matmul(x, x, dtype=tg.float32)
        c += x @ x
        tg.tile_store(o, c)

    z = np.array([3, 5j, 60 + 1j, -7 - 70j])
    o = np.zeros((1, 2), F32)
    run(kernel, parts(z, dt.float16), o, device=device)
    assert complex(*o[0]) == 2 * (z * z).sum()


def test_gradient_of_complex_products(device: str) -> None:
    kind = tg.array3d[D]

    def kernel(a: kind, b: kind, s: tg.array1d[D], o: kind) -> None:
        x = tg.tile_map(tg.vec2d, tg.tile_load(a[0], shape=(3, 3)), tg.tile_load(a[1], shape=(3, 3)))
        y = tg.tile_map(tg.vec2d, tg.tile_load(b[0], shape=(3, 3)), tg.tile_load(b[1], shape=(3, 3)))
        c = x @ y
        tg.tile_matmul(c, y, x, alpha=s[0], beta=tg.vec2d(s[1], 0.5))
        x += x @ y
        tg.tile_store(o[0], x.x)
        tg.tile_store(o[1], x.y)

    rng = np.random.default_rng(12)
    inputs = [rng.standard_normal(s) for s in ((2, 3, 3), (2, 3, 3), (2,))]
    gradcheck(tg.kernel(kernel), 1, inputs, [np.zeros((2, 3, 3))], device=device)


# --- dot, axpy, outer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_dots_of_every_dtype(d: dt.DType, device: str) -> None:
    rng = np.random.default_rng(13)
    x, y = whole(rng, d, (3, 1, 2, 5)), whole(rng, d, (3, 1, 2, 5))
    got = apply(tg.tile_dot, (1,), d, x, y, device=device)
    expected = (x.astype(F64) * y.astype(F64)).sum()
    assert got[0] == (np.int64(expected).astype(d.np) if d.is_int else expected)


def test_d11_dots_keep_their_type_and_digits(device: str) -> None:
    """A peer narrows float64 to float32: 1.0 instead of 1 + 2^-30."""
    assert apply(tg.tile_dot, (1,), D, np.array([1, 2.0**-30]), np.ones(2), device=device)[0] == 1.000000000931322615
    rng = np.random.default_rng(14)
    x, y = rng.standard_normal(20000).astype(F32), rng.standard_normal(20000).astype(F32)
    exact = math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))
    assert apply(tg.tile_dot, (1,), tg.float32, x, y, device=device)[0] == F32(exact)
    long = np.ones(4096, F16)
    assert apply(tg.tile_dot, (1,), tg.float16, long, long, device=device)[0] == 4096
    x, y = x.astype(F64), y.astype(F64)
    got = apply(tg.tile_dot, (1,), D, x, y, device=device)[0]
    assert abs(got - math.fsum(a * b for a, b in zip(x, y, strict=True))) <= 20 * 2.0**-53 * np.abs(x * y).sum()


def test_dots_and_axpys_of_vectors_and_matrices(device: str) -> None:
    """All parts count: the dot product of vectors, the Frobenius product of matrices."""

    def kernel(a: tg.array1d[tg.vec3], m: tg.array1d[tg.mat22], o: tg.array1d[float], p: tg.array1d[tg.vec3]) -> None:
        x, y = tg.tile_load(a, shape=4), tg.tile_load(m, shape=4)
        tg.tile_store(o, tg.tile_dot(x, x + x))
        tg.tile_store(o, tg.tile_dot(y, y), offset=1)
        tg.tile_axpy(0.5, x, x)
        tg.tile_store(p, x)
        tg.tile_store(o, tg.tile_trace(tg.tile_reshape(x, shape=(2, 2))).x, offset=2)

    rng = np.random.default_rng(15)
    a, m = whole(rng, dt.float32, (4, 3)), whole(rng, dt.float32, (4, 2, 2))
    o, p = np.zeros(3, F32), np.zeros((4, 3), F32)
    run(kernel, a, m, o, p, device=device)
    assert o.tolist() == [2 * (a * a).sum(), (m * m).sum(), 1.5 * (a[0, 0] + a[3, 0])]
    np.testing.assert_array_equal(p, 1.5 * a)


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_axpy_of_every_dtype(d: dt.DType, device: str) -> None:
    kind = tg.array(dtype=d, ndim=2)

    def kernel(x: kind, y: kind, s: tg.array(dtype=d, ndim=1)) -> None:
        t, u = tg.tile_load(x, shape=(3, 7)), tg.tile_load(y, shape=(3, 7))
        tg.tile_axpy(3, t, u)
        tg.tile_axpy(alpha=s[0], src=u[:, 1:], dest=u[:, :6])
        tg.tile_axpy(1, u, u)
        tg.tile_store(y, u)

    rng = np.random.default_rng(16)
    x, y = whole(rng, d, (3, 7)), whole(rng, d, (3, 7))
    expected = y.astype(F64) + 3 * x
    expected[:, :6] += 2 * expected[:, 1:].copy()
    expected = (2 * expected).astype(np.int64).astype(d.np) if d.is_int else (2 * expected).astype(d.np)
    run(kernel, x, y, np.array([2], d.np), device=device)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_outer_products(d: dt.DType, device: str) -> None:
    rng = np.random.default_rng(17)
    for m, n in (((5,), (19,)), ((2, 3), (1, 1, 4)), ((1,), (1,))):
        x, y = whole(rng, d, m), whole(rng, d, n)
        got = apply(tg.tile_outer, (x.size, y.size), d, x, y, device=device)
        np.testing.assert_array_equal(got, np.outer(x, y))


def test_gradients_of_dot_axpy_and_outer(device: str) -> None:
    def kernel(a: tg.array1d[D], b: tg.array1d[D], s: tg.array1d[D], o: tg.array2d[D]) -> None:
        x, y = tg.tile_load(a, shape=5), tg.tile_load(b, shape=5)
        for i in range(3):
            if i != 1:
                tg.tile_axpy(s[i], x, y)
            else:
                tg.tile_axpy(tg.tile_dot(x, y)[0], y, x)
        tg.tile_store(o, tg.tile_outer(x, y * tg.tile_broadcast(tg.tile_dot(y, y), shape=5)))

    rng = np.random.default_rng(18)
    inputs = [rng.standard_normal(n) for n in (5, 5, 3)]
    gradcheck(tg.kernel(kernel), 1, inputs, [np.zeros((5, 5))], device=device)


def test_gradients_of_vector_dots(device: str) -> None:
    def kernel(a: tg.array2d[D], s: tg.array1d[D], o: tg.array1d[D]) -> None:
        x = tg.tile_map(tg.vec3d, tg.tile_load(a[0], shape=4), tg.tile_load(a[1], shape=4), tg.tile_load(a[2], shape=4))
        y = tg.copy(x)
        tg.tile_axpy(s[0], x, y)
        tg.tile_store(o, tg.tile_dot(x, y))

    rng = np.random.default_rng(19)
    inputs = [rng.standard_normal((3, 4)), rng.standard_normal(1)]
    gradcheck(tg.kernel(kernel), 1, inputs, [np.zeros(1)], device=device)


# --- diagonals and triangles ------------------------------------------------------------------------------------------

MATRICES = [(1, 1), (5, 5), (3, 19), (19, 3), (2, 3, 4, 4), (2, 1, 1, 1, 2, 1, 3, 20)]


@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize("k", [0, 1, -2])
def test_diagonals_traces_and_triangles(shape: tuple[int, ...], k: int, device: str) -> None:
    x = np.random.default_rng(20).standard_normal(shape)
    diagonal = np.diagonal(x, k, -2, -1)
    has_one = diagonal.size > 0
    x[..., -1, 0] = NAN  # below every diagonal but the last, and dropped where it is not asked for
    expected = [np.tril(x, k), np.triu(x, k), diagonal, np.atleast_1d(np.trace(x, axis1=-2, axis2=-1))]
    got = [np.zeros(e.shape if e.size else (1,)) for e in expected]
    kinds = [array(y) for y in (x, *got)]
    m, o, p, q, r = kinds

    def kernel(a: m, lower: o, upper: p, diagonals: q, traces: r) -> None:
        t = tg.tile_load(a, shape=shape)
        tg.tile_store(lower, tg.tile_tril(t, k))
        tg.tile_store(upper, tg.tile_triu(t, k=k))
        tg.tile_store(traces, tg.tile_trace(t))
        if has_one:
            tg.tile_store(diagonals, tg.tile_diag(t, k))

    run(kernel, x, *got, device=device)
    for result, wanted in zip(got, expected, strict=True):
        if wanted.size:
            np.testing.assert_allclose(result, wanted, rtol=1e-14)


@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_diagonals_of_every_dtype(d: dt.DType, device: str) -> None:
    wide = dt.sum_dtype(d)

    def kernel(a: tg.array(dtype=d, ndim=1), o: tg.array(dtype=d, ndim=3), p: tg.array(dtype=wide, ndim=1)) -> None:
        t = tg.tile_load(a, shape=5)
        m = tg.tile_diag(t, k=-1)
        tg.tile_store(o[0], tg.tile_diag(t))
        tg.tile_store(o[1], m)
        tg.tile_store(o[2], tg.tile_triu(tg.tile_broadcast(t, shape=(5, 5)), 1))
        tg.tile_store(p, tg.tile_trace(m[1:]))

    x = (np.arange(5) % 2 if d.kind == "b" else np.arange(5) + 100).astype(d.np)
    o, p = np.zeros((3, 6, 6), d.np), np.zeros(1, wide.np)
    run(kernel, x, o, p, device=device)
    np.testing.assert_array_equal(o[0, :5, :5], np.diag(x))
    np.testing.assert_array_equal(o[1], np.diag(x, -1))
    np.testing.assert_array_equal(o[2, :5, :5].astype(F64), np.triu(np.broadcast_to(x, (5, 5)).astype(F64), 1))
    assert p[0] == x.astype(F64).sum()


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_additions_to_the_diagonal(d: dt.DType, device: str) -> None:
    rng = np.random.default_rng(21)
    for a, b in (((19, 19), (19,)), ((2, 3, 4, 4), (2, 3, 4)), ((2, 3, 4, 4), (4,))):
        x, y = whole(rng, d, a), whole(rng, d, b)
        got = apply(tg.tile_diag_add, a, d, x, y, device=device)
        i, expected = np.arange(a[-1]), x.copy()
        expected[..., i, i] += y
        np.testing.assert_array_equal(got, expected)


def test_signs_of_zeros_off_the_diagonal_stay(device: str) -> None:
    x = np.full((3, 3), -0.0)
    got = apply(tg.tile_diag_add, (3, 3), D, x, np.zeros(3), device=device)
    assert (np.signbit(got) == ~np.eye(3, dtype=bool)).all()


def test_c14_gradient_of_diag_add_reaches_the_diagonal(device: str) -> None:
    """A peer's adjoint is empty: zeros for both."""
    kind = tg.array2d[D]

    def kernel(a: kind, d: tg.array1d[D], o: kind) -> None:
        t = tg.tile_diag_add(tg.tile_load(a, shape=(3, 3)), tg.tile_load(d, shape=3))
        tg.tile_store(o, t * 2.0)

    of_a, of_d = grads_of(kernel, [np.ones((3, 3)), np.ones(3)], np.zeros((3, 3)), device)
    assert (of_a == 2).all() and (of_d == 2).all()


def test_gradients_of_diagonals_and_triangles(device: str) -> None:
    def kernel(a: tg.array3d[D], d: tg.array1d[D], o: tg.array3d[D], p: tg.array2d[D]) -> None:
        x = tg.tile_load(a, shape=(2, 4, 4))
        for i in range(3):
            if i > 0:
                x = tg.tile_tril(x @ x, 1) - tg.tile_triu(x)
            else:
                x = tg.tile_diag_add(x, tg.tile_load(d, shape=4)) + tg.tile_diag(tg.tile_load(d, shape=3), -1)
        tg.tile_store(o, x)
        tg.tile_store(p, tg.tile_diag(x, 1) * tg.tile_broadcast(tg.tile_trace(x[1] @ x[0]), shape=(2, 3)))

    rng = np.random.default_rng(22)
    inputs = [rng.standard_normal(s) / 2 for s in ((2, 4, 4), (4,))]
    gradcheck(tg.kernel(kernel), 1, inputs, [np.zeros((2, 4, 4)), np.zeros((2, 3))], device=device)


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG: list[tuple[Any, type[TilegradError], str]] = [
    (lambda t, h, v: t @ t, ShapeMismatch, r"inner sizes differ.*\(2, 3\)"),
    (lambda t, h, v: v @ t @ v, ShapeMismatch, r"b.shape\[0\] = 2"),
    (lambda t, h, v: t @ tg.tile_astype(t, D).T, TypeMismatch, "different types: float32 and float64"),
    (lambda t, h, v: t @ (t.T > 0.0), TypeMismatch, "different types"),
    (lambda t, h, v: (t > 0.0) @ (t.T > 0.0), TypeMismatch, "not defined for bool"),
    (lambda t, h, v: tg.tile_ones((2, 2, 2)) @ tg.tile_ones((3, 2, 2)), ShapeMismatch, r"batch axes \(2,\) of `a`"),
    (lambda t, h, v: tg.tile_matmul(t, t.T, dtype=tg.float16), TypeMismatch, "cannot be summed up as float16"),
    (lambda t, h, v: tg.tile_matmul(h, h.T, tg.tile_zeros((2, 2), tg.bfloat16)), TypeMismatch, "float16 or float32 or"),
    (lambda t, h, v: tg.tile_matmul(t, t.T, tg.tile_zeros((2, 3))), ShapeMismatch, r"must have the shape \(2, 2\)"),
    (lambda t, h, v: tg.tile_matmul(t, t.T, tg.tile_zeros((2, 2)), dtype=D), TypeMismatch, "has a dtype of its own"),
    (lambda t, h, v: tg.tile_matmul(t, t.T, alpha=t), TypeMismatch, "alpha must be a number, it is a float32 tile"),
    (lambda t, h, v: tg.tile_matmul(t, t.T, alpha=D(2.0)), TypeMismatch, "alpha is float64; it must be float32"),
    (lambda t, h, v: tg.tile_matmul(h, h.T, precision="tf32"), TypeMismatch, "precision must be"),
    (lambda t, h, v: tg.tile_matmul(t, 1.0), TypeMismatch, "`b` must be a tile"),
    (lambda t, h, v: tg.tile_matmul(t, tg.tile_zeros((3, 2), tg.vec2)), TypeMismatch, "meets a real one"),
    (lambda t, h, v: tg.tile_zeros((2, 3), tg.vec3) @ tg.tile_zeros((3, 2), tg.vec3), TypeMismatch, "a tile of vec3f"),
    (lambda t, h, v: tg.tile_dot(t, t.T), ShapeMismatch, r"different shapes: \(2, 3\) and \(3, 2\)"),
    (lambda t, h, v: tg.tile_dot(t, tg.tile_astype(t, D)), TypeMismatch, "float32 and float64"),
    (lambda t, h, v: tg.tile_dot(t > 0.0, t > 0.0), TypeMismatch, "not defined for bool"),
    (lambda t, h, v: tg.tile_dot(t, tg.tile_zeros((2, 3), tg.vec2)), TypeMismatch, "float32 and vec2f"),
    (lambda t, h, v: tg.tile_axpy(t, t, t), TypeMismatch, "alpha must be a number"),
    (lambda t, h, v: tg.tile_axpy(0.5, tg.tile_ones(3, int), tg.tile_ones(3, int)), TypeMismatch, "no value of int32"),
    (lambda t, h, v: tg.tile_axpy(2.0, v, t), ShapeMismatch, "different shapes"),
    (lambda t, h, v: tg.tile_outer(tg.tile_zeros(3, tg.vec3), v), TypeMismatch, "not defined for tiles of vec3f"),
    (lambda t, h, v: tg.tile_outer(t, h), TypeMismatch, "float32 and float16"),
    (lambda t, h, v: tg.tile_diag_add(t, v), ShapeMismatch, "must be square"),
    (lambda t, h, v: tg.tile_diag_add(t @ t.T, v), ShapeMismatch, r"`d` must have the shape \(2,\)"),
    (lambda t, h, v: tg.tile_diag_add(t.T @ t, tg.tile_astype(v, D)), TypeMismatch, "float32 and float64"),
    (lambda t, h, v: tg.tile_trace(v), ShapeMismatch, "2 dimensions or more"),
    (lambda t, h, v: tg.tile_diag(t, 3), ShapeMismatch, r"k lies in \[-1, 2\]"),
    (lambda t, h, v: tg.tile_diag(t, tg.tile_extract(v, 0)), TypeMismatch, "k must be a compile-time integer"),
    (lambda t, h, v: tg.tile_tril(v), ShapeMismatch, "tile_tril: the tile must have 2 dimensions or more"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_wrong_calls_say_what_is_wrong(call: Any, kind: type[TilegradError], text: str) -> None:
    @tg.kernel
    def kernel(a: tg.array2d[float]) -> None:
        t = tg.tile_load(a, shape=(2, 3))
        call(t, tg.tile_astype(t, tg.float16), t[0])

    with pytest.raises(kind, match=text) as caught:
        tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((2, 3), F32)])
    assert "-->" in str(caught.value)


def test_factors_are_the_same_for_all_lanes() -> None:
    @tg.kernel
    def kernel(a: tg.array2d[float]) -> None:
        t = tg.tile_load(a, shape=(2, 2))
        tg.tile_axpy(float(tg.tid()), t, t)

    with pytest.raises(TypeMismatch, match="alpha differs between the lanes"):
        tg.launch(kernel, dim=4, inputs=[np.zeros((2, 2), F32)])


def test_m05_run_time_extents_are_named() -> None:
    """A peer fails with an internal exception."""

    @tg.kernel
    def kernel(a: tg.array2d[float], n: int) -> None:
        t = tg.tile_load(a, shape=(n, 2))
        tg.tile_store(a, t @ t)

    with pytest.raises(ShapeMismatch, match="compile-time constant.*`n`"):
        tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((2, 2), F32), 2])
