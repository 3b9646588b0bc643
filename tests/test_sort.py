"""Sorting, largest elements, distinct counts, histograms and take_along against Python's sort and NumPy.

What Warp gives where it is wrong stands in comments beside the cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.ops.histogram import edges
from tilegrad.testing import gradcheck

F32, F64, I32 = np.float32, np.float64, np.int32
D = tg.float64
NAN, INF = math.nan, math.inf
DEVICES = ("interpret", "cpu")


def run(kernel: Callable[..., None], *args: Any, device: str, dim: Any = 1, **options: Any) -> None:
    tg.launch_tiled(tg.kernel(kernel), dim=dim, inputs=args, device=device, **options)


def array_of(x: np.ndarray) -> Any:
    return tg.array(dtype=dt.of_array(x), ndim=x.ndim)


def order_of(line: list[Any], descending: bool = False) -> list[int]:
    """The stable order by Python's own sort."""
    sign = -1 if descending else 1
    keys = [(1, 0) if v != v else (0, sign * (float(v) if isinstance(v, (bool, float)) else int(v))) for v in line]
    return sorted(range(len(line)), key=keys.__getitem__)


def expected_order(x: np.ndarray, axis: int, descending: bool = False) -> np.ndarray:
    is_float = dt.of_array(x).is_float
    front = np.moveaxis(x.astype(F64) if is_float else x, axis, -1)
    lines = [order_of(line.tolist(), descending) for line in front.reshape(-1, front.shape[-1])]
    return np.moveaxis(np.array(lines, I32).reshape(front.shape), -1, axis)


def found_order(x: np.ndarray, device: str, axis: int = -1, descending: bool = False, block_dim: int = 4) -> np.ndarray:
    source, shape = array_of(x), x.shape
    target = tg.array(dtype=tg.int32, ndim=x.ndim)

    def kernel(a: source, o: target) -> None:
        tg.tile_store(o, tg.tile_argsort(tg.tile_load(a, shape=shape), axis=axis, descending=descending))

    out = np.full(shape, -7, I32)
    run(kernel, x, out, device=device, block_dim=block_dim)
    return out


def specials(d: dt.DType) -> list[Any]:
    if d.kind == "b":
        return [False, True]
    if d.is_int:
        return sorted({d.min, d.min + 1, max(-1, d.min), 0, 1, 2, d.max - 1, d.max})
    return [-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, 1e-7, -1e-7, INF, NAN, -NAN]


# --- order ------------------------------------------------------------------------------------------------------------


@st.composite
def tiles(draw: Any, dtypes: tuple[dt.DType, ...] = dt.SCALARS, most: int = 150) -> np.ndarray:
    d = draw(st.sampled_from(dtypes))
    rank = draw(st.integers(1, 4))
    shape = [draw(st.sampled_from((1, 2, 3, 4, 5))) for _ in range(rank)]
    shape[draw(st.integers(0, rank - 1))] = draw(st.integers(1, most // math.prod(shape) + 1))
    with np.errstate(all="ignore"):  # ml_dtypes warns of NaN
        pool = np.array(specials(d)).astype(d.np)
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    x = pool[rng.integers(0, len(pool), shape)]
    if d.is_float:
        some = (rng.standard_normal(shape) * 5).astype(d.np)
        x = np.where(rng.random(shape) < 0.5, x, some)
    return x.astype(d.np)


@settings(max_examples=60)
@given(tiles(), st.data())
def test_any_tile(x: np.ndarray, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    descending = data.draw(st.booleans())
    expected = expected_order(x, axis, descending)
    block_dim = data.draw(st.sampled_from((1, 3, 8, 100)))
    for device in DEVICES:
        got = found_order(x, device, axis, descending, block_dim)
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("d", [dt.float32, dt.float64, dt.int16])
def test_every_extent(d: dt.DType) -> None:
    rng = np.random.default_rng(3)
    for n in (*range(1, 10), 15, 16, 17, 31, 32, 33, 64, 65, 127, 256, 257, 1000):
        x = rng.integers(-n // 3 - 1, n // 3 + 1, n).astype(d.np)
        assert np.array_equal(found_order(x, "cpu"), np.argsort(x, kind="stable")), n


@pytest.mark.parametrize("d", dt.SCALARS)
def test_largest_keys_stay_before_what_fills_rows(d: dt.DType) -> None:
    """Keys whose code is the largest integer, in lines that do not fill whole vectors."""
    for descending in (False, True):
        for n in (2, 13, 37):
            value = NAN if d.is_float else d.min if descending else d.max
            x = np.full(n, value).astype(d.np)
            x[n // 2] = d.np.type(0)
            expected = expected_order(x, 0, descending)
            assert np.array_equal(found_order(x, "cpu", 0, descending), expected)


@pytest.mark.parametrize("d", [dt.bool_, dt.int8, dt.float16, dt.float32, dt.uint64, dt.float64])
def test_long_lines(d: dt.DType) -> None:
    rng = np.random.default_rng(4)
    for n in (65535, 65536, 70001):
        x = rng.integers(0, 2 if d.kind == "b" else 100, n).astype(d.np)
        assert np.array_equal(found_order(x, "cpu"), np.argsort(x, kind="stable"))


def test_many_lines(device: str) -> None:
    rng = np.random.default_rng(5)
    for shape, axis in (((40, 33), 1), ((33, 40), 0), ((5, 7, 3), 1), ((2, 3, 2, 2, 1, 2, 2, 3), 3), ((17, 2), 1)):
        for d in (F32, F64, np.int8):
            x = rng.integers(-9, 9, shape).astype(d)
            assert np.array_equal(found_order(x, device, axis), np.argsort(x, axis, kind="stable"))


def test_all_axes_at_once(device: str) -> None:
    x = np.random.default_rng(6).integers(0, 5, (3, 4)).astype(F32)

    def kernel(a: tg.array2d[float], o: tg.array1d[int], s: tg.array2d[float]) -> None:
        t = tg.tile_load(a, shape=(3, 4))
        tg.tile_store(o, tg.tile_argsort(t, axis=None))
        tg.tile_sort(t, axis=None, descending=True)
        tg.tile_store(s, t)

    order, s = np.zeros(12, I32), np.zeros((3, 4), F32)
    run(kernel, x, order, s, device=device)
    assert np.array_equal(order, np.argsort(x, axis=None, kind="stable"))
    assert np.array_equal(s.ravel(), np.sort(x, axis=None)[::-1])


# --- tile_sort --------------------------------------------------------------------------------------------------------


def sorted_pairs(
    keys: np.ndarray, values: np.ndarray, device: str, block_dim: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    kinds, n = (array_of(keys), array_of(values)), len(keys)

    def kernel(k: kinds[0], v: kinds[1]) -> None:
        keys, values = tg.tile_load(k, shape=n), tg.tile_load(v, shape=n)
        tg.tile_sort(keys, values)
        tg.tile_store(k, keys)
        tg.tile_store(v, values)

    out = keys.copy(), values.copy()
    run(kernel, *out, device=device, block_dim=block_dim)
    return out


@pytest.mark.parametrize("block_dim", [1, 7, 32, 96, 100, 128, 1024])
def test_any_block_size(device: str, block_dim: int) -> None:
    i = np.arange(37, dtype=I32)  # case S01: Warp's order was wrong without a message for some of these sizes
    keys, values = sorted_pairs((11 * i % 37).astype(F32), i, device, block_dim)
    assert keys.tolist() == list(range(37))
    assert (11 * values % 37).tolist() == keys.tolist()


@pytest.mark.parametrize("d", dt.SCALARS)
def test_equal_keys_keep_their_order(device: str, d: dt.DType) -> None:
    # case S01: Warp's sort promises no order of equal keys, and takes 5 types of keys; these are all
    keys = np.array([1, 0, 1, 0] if d.kind == "b" else [2, 1, 2, 1]).astype(d.np)
    got, values = sorted_pairs(keys, np.arange(4, dtype=I32), device)
    assert got.tolist() == sorted(keys.tolist())
    assert values.tolist() == [1, 3, 0, 2]


def test_zeros_and_missing_numbers(device: str) -> None:
    keys = np.array([NAN, 1, 0.0, -INF, -0.0, INF, -NAN, 0.0], F32)
    got, values = sorted_pairs(keys, np.arange(8, dtype=I32), device)
    assert values.tolist() == [3, 2, 4, 7, 1, 5, 0, 6]
    assert np.signbit(got[:5]).tolist() == [True, False, True, False, False]
    assert np.isnan(got[6:]).all() and got[5] == INF


@pytest.mark.parametrize("d", dt.SCALARS)
def test_payload_of_any_type(device: str, d: dt.DType) -> None:
    keys = np.array([3, 1, 2, 0, 4], np.uint8)
    values = np.array([1, 0, 1, 1, 0] if d.kind == "b" else [30, 10, 20, 0, 40]).astype(d.np)
    assert np.array_equal(sorted_pairs(keys, values, device)[1], values[np.argsort(keys)])


def test_several_payloads_and_rows(device: str) -> None:
    rng = np.random.default_rng(7)
    keys, v, w = rng.integers(0, 4, (6, 5)), rng.standard_normal((6, 5)).astype(F32), rng.integers(0, 99, (6, 5))

    def kernel(k: tg.array2d[tg.int64], v: tg.array2d[float], w: tg.array2d[tg.int64]) -> None:
        keys = tg.tile_load(k, shape=(6, 5))
        values = (tg.tile_load(v, shape=(6, 5)), tg.tile_load(w, shape=(6, 5)))
        tg.tile_sort(keys, values=values, axis=0, descending=True)
        tg.tile_store(k, keys)
        tg.tile_store(v, values[0])
        tg.tile_store(w, values[1])

    got = [x.copy() for x in (keys, v, w)]
    run(kernel, *got, device=device)
    order = expected_order(keys, 0, descending=True)
    for x, y in zip((keys, v, w), got, strict=True):
        assert np.array_equal(y, np.take_along_axis(x, order, 0))


def test_composite_payload(device: str) -> None:
    @tg.struct
    class Mass:
        m: tg.float64
        at: tg.vec3

    def kernel(k: tg.array1d[float], v: tg.array1d[tg.vec3], m: tg.array1d[tg.mat33d], s: tg.array1d[Mass]) -> None:
        keys = tg.tile_load(k, shape=5)
        vectors, matrices, masses = tg.tile_load(v, shape=5), tg.tile_load(m, shape=5), tg.tile_load(s, shape=5)
        tg.tile_sort(keys, (vectors, matrices))
        tg.tile_sort(tg.tile_load(k, shape=5), masses)
        tg.tile_store(v, vectors)
        tg.tile_store(m, matrices)
        tg.tile_store(s, masses)

    keys = np.array([2, 0, 1, 4, 3], F32)
    order = np.argsort(keys)
    v, m = np.arange(15, dtype=F32).reshape(5, 3), np.arange(45.0).reshape(5, 3, 3)
    s = np.zeros(5, Mass.numpy_dtype())
    s["m"], s["at"] = np.arange(5), v
    given = tg.array(keys), tg.array(v, dtype=tg.vec3), tg.array(m, dtype=tg.mat33d), tg.array(s, dtype=Mass)
    run(kernel, *given, device=device)
    assert np.array_equal(given[1].numpy(), v[order])
    assert np.array_equal(given[2].numpy(), m[order])
    assert np.array_equal(given[3].numpy()["m"], s["m"][order])
    assert np.array_equal(given[3].numpy()["at"], s["at"][order])


def test_names_and_views_see_the_sort(device: str) -> None:
    def kernel(a: tg.array1d[float], o: tg.array2d[float]) -> None:
        t = tg.tile_load(a, shape=6)
        other = t
        tg.tile_sort(t[1:5])
        tg.tile_store(o[0], other)
        tg.tile_sort(t, descending=True)
        tg.tile_store(o[1], other)
        tg.tile_sort(t, t)
        tg.tile_store(o[2], other)

    o = np.zeros((3, 6), F32)
    run(kernel, np.array([3, 5, 4, 2, 1, 0], F32), o, device=device)
    assert o.tolist() == [[3, 1, 2, 4, 5, 0], [5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]]


def test_a_sort_inside_branches_loops_and_functions(device: str) -> None:
    @tg.func
    def ordered(t: Any, down: bool) -> None:
        if down:
            tg.tile_sort(t, descending=True)
        else:
            tg.tile_sort(t)

    def kernel(a: tg.array1d[D], o: tg.array1d[D], n: int) -> None:
        t = tg.tile_load(a, shape=7)
        for i in range(n):
            ordered(t, i % 2 == 0)
            t[0] += 10.0
        tg.tile_store(o, t)

    x = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0])
    for n in range(4):
        expected = x.copy()
        for i in range(n):
            expected = np.sort(expected)[::-1].copy() if i % 2 == 0 else np.sort(expected)
            expected[0] += 10
        o = np.zeros(7)
        run(kernel, x, o, n, device=device)
        assert np.array_equal(o, expected)


# --- gradients --------------------------------------------------------------------------------------------------------


@tg.kernel
def sort_pairs(k: tg.array1d[D], v: tg.array1d[D], ko: tg.array1d[D], vo: tg.array1d[D]) -> None:
    keys, values = tg.tile_load(k, shape=9), tg.tile_load(v, shape=9)
    tg.tile_sort(keys, values)
    tg.tile_store(ko, keys)
    tg.tile_store(vo, values)


def test_the_gradient_is_the_permutation_backwards(device: str) -> None:
    rng = np.random.default_rng(8)
    k, v = rng.permutation(9) / 1.0, rng.standard_normal(9)
    pullback = tg.vjp(sort_pairs, 1, [k, v], [np.zeros(9), np.zeros(9)], device=device)
    ck, cv = rng.standard_normal((2, 9))
    order = np.argsort(k)
    gk, gv = pullback(ck, cv)
    for got, seed in ((gk, ck), (gv, cv)):
        expected = np.zeros(9)
        expected[order] = seed
        assert np.array_equal(got, expected)


def test_the_gradient_at_equal_keys_is_that_of_the_stable_order(device: str) -> None:
    k = np.array([2.0, 1.0, 2.0, 1.0, 2.0, 1.0, NAN, 1.0, NAN])
    pullback = tg.vjp(sort_pairs, 1, [k, np.arange(9.0)], [np.zeros(9), np.zeros(9)], device=device)
    gk, gv = pullback(np.arange(9.0), np.arange(9.0) * 10)
    assert gk.tolist() == [4, 0, 5, 1, 6, 2, 7, 3, 8]
    assert gv.tolist() == [40, 0, 50, 10, 60, 20, 70, 30, 80]


@tg.kernel
def through_loops(a: tg.array1d[D], w: tg.array1d[D], n: tg.array1d[int], o: tg.array1d[D]) -> None:
    t, weights = tg.tile_load(a, shape=11), tg.tile_load(w, shape=11)
    for i in range(n[0]):
        if i % 2 == 0:
            tg.tile_sort(t, weights)
        else:
            tg.tile_sort(weights, t, descending=True)
        t = t * weights + tg.sin(t)
    best, places = tg.tile_topk(t, 3)
    tg.tile_store(o, best + tg.tile_take_along(weights, places, axis=0))


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_gradients_in_loops_and_branches(device: str, turns: int) -> None:
    rng = np.random.default_rng(9)
    a, w = rng.standard_normal(11), rng.uniform(0.5, 1.0, 11)
    gradcheck(through_loops, 1, [a, w, np.array([turns], I32)], [np.zeros(3)], device=device)


def test_gradients_in_eight_dimensions(device: str) -> None:
    @tg.kernel
    def kernel(a: tg.array(dtype=D, ndim=8), o: tg.array(dtype=D, ndim=8)) -> None:
        t = tg.tile_load(a, shape=(2, 3, 2, 2, 1, 2, 2, 3))
        tg.tile_sort(t, axis=1)
        tg.tile_sort(t, descending=True)
        tg.tile_store(o, t * t)

    x = np.random.default_rng(11).standard_normal((2, 3, 2, 2, 1, 2, 2, 3))
    gradcheck(kernel, 1, [x], [np.zeros_like(x)], device=device)


def test_the_same_bits_for_every_block_and_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    @tg.kernel
    def kernel(a: tg.array1d[float], o: tg.array1d[float]) -> None:
        i = tg.tid()
        t = tg.tile_load(a, shape=100, offset=i * 100)
        v = tg.tile_arange(100) * t
        tg.tile_sort(t, v)
        tg.tile_store(o, t + v, offset=i * 100)

    x = np.random.default_rng(12).standard_normal(800).astype(F32)
    results = []
    for block_dim in (1, 16, 256):
        for threads in (1, 2):
            monkeypatch.setattr(tg.config, "num_threads", threads)
            o = np.zeros_like(x)
            tg.launch_tiled(kernel, dim=8, inputs=[x, o], block_dim=block_dim)
            results.append(o.tobytes())
    assert len(set(results)) == 1


def test_gradients_by_a_tape_for_many_blocks(device: str) -> None:
    @tg.kernel
    def kernel(a: tg.array2d[float], o: tg.array2d[float]) -> None:
        b = tg.tid()
        t = tg.tile_load(a[b], shape=5)
        tg.tile_sort(t)
        tg.tile_store(o[b], t * tg.tile_arange(5))

    x = tg.array(np.random.default_rng(10).permutation(20).reshape(4, 5).astype(F32), requires_grad=True)
    y = tg.zeros((4, 5), dtype=float, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(kernel, dim=4, inputs=[x, y], device=device)
    tape.backward(grads={y: tg.ones((4, 5), dtype=float)})
    assert np.array_equal(x.grad.numpy(), np.argsort(np.argsort(x.numpy(), 1), 1))


# --- tile_topk --------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(tiles(), st.data())
def test_topk(x: np.ndarray, data: Any) -> None:
    axis, largest = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
    k = data.draw(st.integers(1, x.shape[axis]))
    source, shape = array_of(x), x.shape
    indexed = tg.array(dtype=tg.int32, ndim=x.ndim)

    def kernel(a: source, v: source, i: indexed) -> None:
        values, indices = tg.tile_topk(tg.tile_load(a, shape=shape), k, axis=axis, largest=largest)
        tg.tile_store(v, values)
        tg.tile_store(i, indices)

    order = np.take(expected_order(x, axis, largest), range(k), axis)
    for device in DEVICES:
        v, i = np.zeros(order.shape, x.dtype), np.zeros(order.shape, I32)
        run(kernel, x, v, i, device=device)
        assert np.array_equal(i, order)
        assert np.array_equal(v.view(np.uint8), np.take_along_axis(x, order, axis).view(np.uint8))


def test_topk_of_all_elements_and_its_gradient(device: str) -> None:
    @tg.kernel
    def kernel(a: tg.array2d[D], v: tg.array1d[D]) -> None:
        values, indices = tg.tile_topk(tg.tile_load(a, shape=(2, 3)), k=2, axis=None, largest=False)
        tg.tile_store(v, values)

    v = np.zeros(2)
    pullback = tg.vjp(kernel, 1, [np.array([[4.0, NAN, 1.0], [1.0, 7.0, 2.0]])], [v], device=device)
    assert v.tolist() == [1, 1]
    assert pullback(np.array([5.0, 6.0]))[0].tolist() == [[0, 0, 5], [6, 0, 0]]


# --- tile_unique_count ------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(tiles())
def test_unique_count(x: np.ndarray) -> None:
    source, shape = array_of(x), x.shape

    def kernel(a: source, o: tg.array1d[int]) -> None:
        tg.tile_store(o, tg.tile_unique_count(tg.tile_load(a, shape=shape)))

    wide = x.astype(F64) if dt.of_array(x).is_float else x
    for device in DEVICES:
        o = np.zeros(1, I32)
        run(kernel, x, o, device=device)
        assert o[0] == len(np.unique(wide, equal_nan=True))


# --- tile_histogram ---------------------------------------------------------------------------------------------------


def histogram(x: np.ndarray, bins: int, limits: tuple[float, float], device: str, w: np.ndarray | None = None) -> Any:
    kinds = array_of(x), None if w is None else array_of(w)
    shape = x.shape
    kind = dt.int32 if w is None else dt.sum_dtype(dt.of_array(w))
    out = tg.array(dtype=kind, ndim=1)

    def counted(a: kinds[0], o: out) -> None:
        tg.tile_store(o, tg.tile_histogram(tg.tile_load(a, shape=shape), bins, limits))

    def weighted(a: kinds[0], w: kinds[1], o: out) -> None:
        t, weights = tg.tile_load(a, shape=shape), tg.tile_load(w, shape=shape)
        tg.tile_store(o, tg.tile_histogram(t, bins=bins, range=limits, weights=weights))

    o = np.zeros(bins, kind.np)
    run(counted if w is None else weighted, *([x, o] if w is None else [x, w, o]), device=device)
    return o


@settings(max_examples=25)
@given(tiles(dt.FLOATS), st.integers(1, 40), st.sampled_from([(-1.0, 1.0), (0.0, 0.3), (-3.5, 7.25), (1e6, 1e6 + 77)]))
def test_histogram(x: np.ndarray, bins: int, limits: tuple[float, float]) -> None:
    d = dt.of_array(x)
    places = edges(bins, *limits, d)
    with np.errstate(over="ignore"):
        x = np.concatenate([x.ravel(), places.astype(x.dtype)])
    wide = x.astype(places.dtype)
    expected = np.histogram(wide[np.isfinite(wide)], bins, limits)[0]
    for device in DEVICES:
        assert np.array_equal(histogram(x, bins, limits, device), expected)


@pytest.mark.parametrize("d", dt.SCALARS)
def test_histogram_of_every_type(device: str, d: dt.DType) -> None:
    x = np.array([[0, 1, 1], [0, 1, 0]] if d.kind == "b" else [[0, 1, 2], [3, 4, 9]]).astype(d.np)
    w = np.array([[1, 0, 1], [1, 1, 1]] if d.kind == "b" else [[1, 2, 3], [4, 5, 6]]).astype(d.np)
    limits = (0.0, 1.0) if d.kind == "b" else (1.0, 4.0)
    plain = x.astype(F64)
    assert np.array_equal(histogram(x, 3, limits, device), np.histogram(plain, 3, limits)[0])
    expected = np.histogram(plain, 3, limits, weights=w.astype(F64))[0]
    assert np.array_equal(histogram(x, 3, limits, device, w).astype(F64), expected)


def test_weights_do_not_lose_what_is_small(device: str) -> None:
    x = np.full(4097, 0.5, F32)
    ones = np.ones(4097, np.float16)  # a sum carried in float16 would stop at 2048
    assert histogram(x, 2, (0.0, 1.0), device, ones).tolist() == [0, 4096]
    small = np.full(4097, 1e-8, F32)
    small[0] = 1
    assert histogram(x, 1, (0.0, 1.0), device, small)[0] == F32(1 + 4096e-8)


def test_dropped_elements_do_not_count_whatever_their_weight(device: str) -> None:
    @tg.kernel
    def kernel(a: tg.array1d[D], w: tg.array1d[D], o: tg.array1d[D]) -> None:
        t, weights = tg.tile_load(a, shape=6), tg.tile_load(w, shape=6)
        tg.tile_store(o, tg.tile_histogram(t, bins=2, range=(-1, 1), weights=weights * weights))

    x, w = np.array([-1.0, 1.0, 0.0, 2.0, NAN, -INF]), np.array([1.0, 2.0, 3.0, INF, NAN, 4.0])
    o = np.zeros(2)
    pullback = tg.vjp(kernel, 1, [x, w], [o], device=device)
    assert o.tolist() == [1, 13]
    gx, gw = pullback(np.array([10.0, 100.0]))
    assert gx.tolist() == [0] * 6
    assert gw[:3].tolist() == [20, 400, 600] and gw[5] == 0


# --- tile_take_along --------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(tiles(), st.sampled_from(dt.INTEGERS), st.data())
def test_take_along(x: np.ndarray, kind: dt.DType, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    count = data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = [1 if rng.random() < 0.2 else n for n in x.shape]
    shape[axis] = count
    n = min(x.shape[axis], int(kind.max))
    index = rng.integers(0 if kind.kind == "u" else -n, n, shape).astype(kind.np)
    expected = np.take_along_axis(x, index.astype(np.int64), axis)
    kinds, shapes = (array_of(x), array_of(index)), (x.shape, index.shape)

    def kernel(a: kinds[0], i: kinds[1], o: kinds[0]) -> None:
        t, index = tg.tile_load(a, shape=shapes[0]), tg.tile_load(i, shape=shapes[1])
        tg.tile_store(o, tg.tile_take_along(t, index, axis=axis))

    for device in DEVICES:
        o = np.zeros(expected.shape, x.dtype)
        run(kernel, x, index, o, device=device)
        assert np.array_equal(o.view(np.uint8), expected.view(np.uint8))


@tg.kernel
def pick(a: tg.array2d[D], i: tg.array2d[int], o: tg.array2d[D]) -> None:
    t, index = tg.tile_load(a, shape=(3, 5)), tg.tile_load(i, shape=(1, 4))
    tg.tile_store(o, tg.tile_take_along(t, index, axis=1))


@pytest.mark.parametrize("wrong", [5, -6, 2**31 - 1, -(2**31)])
def test_an_index_outside_is_an_error(device: str, wrong: int) -> None:
    index = np.array([[0, -5, wrong, 4]], I32)
    with pytest.raises(KernelIndexError, match=f"index {wrong} is out of range for axis 1 with size 5"):
        tg.launch_tiled(pick, dim=1, inputs=[np.ones((3, 5)), index, np.zeros((3, 4))], device=device)


def test_an_unsigned_index_outside_is_an_error(device: str) -> None:
    def kernel(i: tg.array1d[tg.uint64], o: tg.array1d[int]) -> None:
        tg.tile_store(o, tg.tile_take_along(tg.tile_arange(4).astype(int), tg.tile_load(i, shape=2)))

    with pytest.raises(KernelIndexError, match="is out of range for axis 0 with size 4"):
        run(kernel, np.array([1, 2**64 - 1], np.uint64), np.zeros(2, I32), device=device)


def test_the_gradient_of_picking_adds_up(device: str) -> None:
    pullback = tg.vjp(pick, 1, [np.ones((3, 5)), np.array([[1, 1, -1, 4]], I32)], [np.zeros((3, 4))], device=device)
    seed = np.arange(12.0).reshape(3, 4)
    expected = np.zeros((3, 5))
    expected[:, 1], expected[:, 4] = seed[:, 0] + seed[:, 1], seed[:, 2] + seed[:, 3]
    assert np.array_equal(pullback(seed)[0], expected)


def test_many_small_cotangents_add_up_in_float16(device: str) -> None:
    @tg.kernel
    def kernel(a: tg.array1d[tg.float16], o: tg.array1d[tg.float16]) -> None:
        index = tg.tile_zeros(shape=3000, dtype=int)
        tg.tile_store(o, tg.tile_take_along(tg.tile_load(a, shape=2), index, axis=None))

    pullback = tg.vjp(kernel, 1, [np.ones(2, np.float16)], [np.zeros(3000, np.float16)], device=device)
    assert pullback(np.ones(3000, np.float16))[0].tolist() == [3000, 0]


def test_take_along_of_vectors(device: str) -> None:
    def kernel(a: tg.array1d[tg.vec2], o: tg.array1d[tg.vec2]) -> None:
        t = tg.tile_load(a, shape=4)
        tg.tile_store(o, tg.tile_take_along(t, tg.tile_argsort(tg.tile_map(lambda v: v[1], t)), axis=0))

    x = np.array([[0, 3], [1, 1], [2, 2], [3, 0]], F32)
    given, out = tg.array(x, dtype=tg.vec2), tg.zeros(4, dtype=tg.vec2)
    run(kernel, given, out, device=device)
    assert np.array_equal(out.numpy(), x[[3, 1, 2, 0]])


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_absent_lanes_come_last(device: str) -> None:
    """The last block of a launch has lanes that are not there; 0 would come before all of these keys."""

    def kernel(a: tg.array1d[float], o: tg.array1d[float], p: tg.array1d[int], s: tg.array1d[float]) -> None:
        i = tg.tid()
        keys, places = tg.tile(a[i]), tg.tile(i)
        tg.tile_sort(keys, places, descending=descending)
        o[i] = tg.untile(keys)
        p[i] = tg.untile(places)
        s[i] = tg.tile_max(keys)[0]

    x = np.array([5, 3, 4, 2, 9, 8, -7, NAN, -6, -1, -4], F32)
    for descending in (False, True):
        for block_dim in (1, 4, 8, 16):
            o, p, s = np.zeros(11, F32), np.zeros(11, I32), np.zeros(11, F32)
            tg.launch(tg.kernel(kernel), dim=11, inputs=[x, o, p, s], block_dim=block_dim, device=device)
            for first in range(0, 11, block_dim):
                block = slice(first, first + block_dim)
                assert np.array_equal(p[block], first + expected_order(x[block], 0, descending))
                assert np.array_equal(o[block], x[p[block]], equal_nan=True)
                assert np.array_equal(s[block], np.full(len(x[block]), np.fmax.reduce(x[block])), equal_nan=True)


def test_absent_lanes_after_a_sort_in_a_branch(device: str) -> None:
    def kernel(a: tg.array1d[float], o: tg.array1d[float], n: int) -> None:
        i = tg.tid()
        t = tg.tile(a[i])
        if n > 0:
            tg.tile_sort(t)
        for j in range(n):
            tg.tile_sort(t, descending=True)
        o[i] = tg.untile(t) + 100.0 * tg.tile_max(t)[0]

    for n in (0, 1, 2):
        o = np.zeros(5, F32)
        x = np.array([-2, -4, -3, -1, -5], F32)
        tg.launch(tg.kernel(kernel), dim=5, inputs=[x, o, n], block_dim=4, device=device)
        assert o.tolist() == ([-102, -104, -103, -101, -505] if n == 0 else [-101, -102, -103, -104, -505])


def test_absent_lanes_are_not_picked_nor_counted(device: str) -> None:
    def kernel(a: tg.array1d[int], o: tg.array2d[int]) -> None:
        i = tg.tid()
        if a[i] < 0:
            return
        t = tg.tile(a[i])
        best, places = tg.tile_topk(t, 2, largest=False)
        o[0, i], o[1, i] = best[0], best[1]
        o[2, i], o[3, i] = places[0], tg.tile_argsort(t)[1]
        o[4, i] = tg.tile_unique_count(t)[0]
        counts = tg.tile_histogram(t, bins=2, range=(-3, 9))
        o[5, i], o[6, i] = counts[0], counts[1]

    a, o = np.array([7, -1, 5, 7, 6, -1], I32), np.zeros((7, 6), I32)
    tg.launch(tg.kernel(kernel), dim=6, inputs=[a, o], block_dim=8, device=device)
    assert o[:, 0].tolist() == [5, 6, 2, 4, 3, 0, 4]
    assert (o[:, a > 0] == o[:, :1]).all() and (o[:, a < 0] == 0).all()


def test_elements_that_are_not_present(device: str) -> None:
    def kernel(a: tg.array2d[float], m: tg.array2d[tg.bool], o: tg.array2d[float], c: tg.array1d[int]) -> None:
        t, mask = tg.tile_load(a, shape=(2, 4)), tg.tile_load(m, shape=(2, 4))
        tg.tile_store(c, tg.tile_unique_count(t, present=mask))
        tg.tile_sort(t, descending=True, present=mask)
        tg.tile_store(o, t)

    x = np.array([[1, 2, 3, 4], [NAN, 2, 0, 1]], F32)
    mask = np.array([[True, False, True, False], [True, True, True, False]])
    o, c = np.zeros((2, 4), F32), np.zeros(1, I32)
    run(kernel, x, mask, o, c, device=device)
    assert np.array_equal(o, [[3, 1, 4, 2], [2, 0, NAN, 1]], equal_nan=True)
    assert c[0] == 5


# --- errors -----------------------------------------------------------------------------------------------------------


def mistakes() -> Iterator[tuple[Callable[..., Any], type[TilegradError], str]]:
    yield lambda t, i, n: tg.tile_sort(n), TypeMismatch, "`keys` must be a tile"
    yield lambda t, i, n: tg.tile_sort(t, n), TypeMismatch, "`values` must be a tile"
    yield lambda t, i, n: tg.tile_sort(t, tg.tile_zeros(shape=3, dtype=int)), ShapeMismatch, "for rows of payload"
    yield lambda t, i, n: tg.tile_sort(t, axis=2), ShapeMismatch, "axis 2 is out of range"
    yield lambda t, i, n: tg.tile_sort(t, axis=n), TypeMismatch, "axis must be a compile-time constant"
    yield lambda t, i, n: tg.tile_sort(t, descending=n == 0), TypeMismatch, "descending must be True or False"
    yield lambda t, i, n: tg.tile_argsort(n), TypeMismatch, "`t` must be a tile"
    yield lambda t, i, n: tg.tile_topk(t, 4), ShapeMismatch, "k must be from 1 to 3, it is 4"
    yield lambda t, i, n: tg.tile_topk(t, 0), ShapeMismatch, "k must be from 1 to 3, it is 0"
    yield lambda t, i, n: tg.tile_topk(t, n), TypeMismatch, "k must be a compile-time integer, it is int32"
    yield lambda t, i, n: tg.tile_topk(t, 1.5), TypeMismatch, "k must be a compile-time integer"
    yield lambda t, i, n: tg.tile_unique_count(n), TypeMismatch, "`t` must be a tile"
    yield lambda t, i, n: tg.tile_histogram(t, 0, (0.0, 1.0)), ShapeMismatch, "at least one bin"
    yield lambda t, i, n: tg.tile_histogram(t, n, (0.0, 1.0)), TypeMismatch, "bins must be a compile-time integer"
    yield lambda t, i, n: tg.tile_histogram(t, 3), TypeMismatch, r"range must be \(low, high\)"
    yield lambda t, i, n: tg.tile_histogram(t, 3, (0, n)), TypeMismatch, "range must be two compile-time numbers"
    yield lambda t, i, n: tg.tile_histogram(t, 3, (1.0, 1.0)), ShapeMismatch, "finite with low < high"
    yield lambda t, i, n: tg.tile_histogram(t, 99, (1e6, 1e6 + 1)), ShapeMismatch, "too narrow for float32"
    yield lambda t, i, n: tg.tile_histogram(t, 3, (0, 1), weights=i), ShapeMismatch, "the weights are a int32 tile"
    yield lambda t, i, n: tg.tile_take_along(t, t), TypeMismatch, "indices must be integers"
    yield lambda t, i, n: tg.tile_take_along(t, i), ShapeMismatch, "do not fit"
    yield lambda t, i, n: tg.tile_take_along(t, n), TypeMismatch, "`indices` must be a tile"


@pytest.mark.parametrize(("call", "kind", "message"), list(mistakes()))
def test_mistakes_are_explained(call: Callable[..., Any], kind: type[TilegradError], message: str) -> None:
    @tg.kernel
    def kernel(a: tg.array2d[float], n: int) -> None:
        call(tg.tile_load(a, shape=(2, 3)), tg.tile_zeros(shape=4, dtype=int), n)

    with pytest.raises(kind, match=message):
        tg.launch_tiled(kernel, dim=1, inputs=[np.zeros((2, 3), F32), 1])


def test_composite_keys_are_refused() -> None:
    @tg.kernel
    def kernel(a: tg.array1d[tg.vec3]) -> None:
        t = tg.tile_load(a, shape=4)
        tg.tile_sort(t)

    with pytest.raises(TypeMismatch, match="`keys` must be a tile"):
        tg.launch_tiled(kernel, dim=1, inputs=[tg.zeros(4, dtype=tg.vec3)])
