"""Scans against plain loops over exact numbers, their gradients, lanes, and what users are told.

The peers' wrong answers that are excluded here stand in comments beside the cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.op import REGISTRY
from tilegrad.testing import gradcheck

F32, F64 = np.float32, np.float64
D = tg.float64
NAN, INF = math.nan, math.inf
OPS: dict[str, Any] = {"add": tg.add, "mul": tg.mul, "min": tg.min, "max": tg.max}


def run(kernel: Any, *args: Any, device: str, dim: Any = 1, **options: Any) -> None:
    tg.launch_tiled(tg.kernel(kernel), dim=dim, inputs=args, device=device, **options)


def scanned(
    x: np.ndarray, how: str, device: str, axis: int | None = 0, reverse: bool = False, exclusive: bool = False,
    block_dim: int = 4,
) -> np.ndarray:  # fmt: skip
    """tile_scan of one tile that is a whole array."""
    operator, array, shape = OPS[how], tg.array(dtype=dt.of_array(x), ndim=x.ndim), x.shape

    def kernel(a: array, o: array) -> None:
        t = tg.tile_load(a, shape=shape)
        tg.tile_store(o, tg.tile_scan(operator, t, axis=axis, reverse=reverse, exclusive=exclusive))

    out = np.zeros_like(x)
    run(kernel, x, out, device=device, block_dim=block_dim)
    return out


# --- against exact numbers --------------------------------------------------------------------------------------------


def exact_line(line: list[Any], how: str, d: dt.DType, exclusive: bool) -> Iterator[tuple[Any, float]]:
    """The exact result at every element of a line, and how large its parts are."""
    for k in range(len(line)):
        seen = line[: k if exclusive else k + 1]
        if how == "add":
            yield (math.fsum(seen) if d.is_float else sum(seen)), math.fsum(abs(float(v)) for v in seen)
        elif how == "mul":
            yield math.prod(seen), abs(float(math.prod(map(float, seen))))
        else:
            numbers = [v for v in seen if v == v]
            start: Any = d.max if how == "min" else d.min
            best = (min if how == "min" else max)(numbers) if numbers else NAN if seen else start
            yield best, 0.0


def check_scan(x: np.ndarray, got: np.ndarray, how: str, axis: int | None, reverse: bool, exclusive: bool) -> None:
    """Every line of a scan: equal for integers and extremes, within the rounding of the dtype for floats."""
    d = dt.of_array(x)
    lines, results = (np.moveaxis(v.reshape(-1) if axis is None else v, 0 if axis is None else axis, -1)
                      for v in (x, got))  # fmt: skip
    lines, results = (v.reshape(-1, v.shape[-1]) for v in (lines, results))
    for line, result in zip(lines, results, strict=True):
        if reverse:
            line, result = line[::-1], result[::-1]
        values = [float(v) if d.is_float else int(v) for v in line]
        for (expected, size), found in zip(exact_line(values, how, d, exclusive), result, strict=True):
            if not d.is_float:
                wrapped = int(expected) & ((1 << d.bits) - 1)
                assert int(found) & ((1 << d.bits) - 1) == wrapped or (d.kind == "b" and bool(found) == bool(expected))
            elif how in ("min", "max"):
                assert float(found) == expected or (found != found and expected != expected)
            else:
                last = 2.0 ** -{"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[d.name]
                carried = 2.0**-23 if d.is_half else 2.0**-52
                grows = len(values) if how == "mul" else 1  # roundings of the carrier
                assert abs(float(found) - expected) <= 1.001 * last * abs(expected) + grows * carried * size + 1e-300


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    rank = draw(st.integers(1, 8))
    shape = tuple(draw(st.lists(st.integers(1, 4 if rank > 2 else 21), min_size=rank, max_size=rank)))
    while math.prod(shape) > 600:
        shape = tuple(max(1, n // 2) for n in shape)
    d = draw(st.sampled_from(dt.SCALARS))
    return {
        "shape": shape,
        "dtype": d,
        "how": draw(st.sampled_from(["min", "max"] if d.kind == "b" else sorted(OPS))),
        "axis": draw(st.none() | st.integers(-rank, rank - 1)),
        "reverse": draw(st.booleans()),
        "exclusive": draw(st.booleans()),
        "block_dim": draw(st.sampled_from([1, 7, 64])),
        "seed": draw(st.integers(0, 99)),
    }


@settings(max_examples=60)
@given(cases())
def test_any_scan_of_any_tile(case: dict[str, Any]) -> None:
    rng, d, how = np.random.default_rng(case["seed"]), case["dtype"], case["how"]
    x = rng.integers(0, 2 if d.kind == "b" else 4, case["shape"]).astype(d.np)
    if d.is_float:
        spread = rng.uniform(0.5, 1.5, x.shape) if how == "mul" else 10.0 ** rng.integers(-3, 4, x.shape)
        x = (spread * rng.choice([-1, 1], x.shape)).astype(d.np)
        if how in ("min", "max"):
            x = np.where(rng.random(x.shape) < 0.3, d.np.type(NAN), x)
    options = {k: case[k] for k in ("axis", "reverse", "exclusive", "block_dim")}
    got = scanned(x, how, "interpret", **options)
    assert scanned(x, how, "cpu", **options).tobytes() == got.tobytes()  # the same bits, floats too
    check_scan(x, got, how, case["axis"], case["reverse"], case["exclusive"])


@pytest.mark.parametrize(("dtype", "large"), [(tg.float16, 2.0**11), (F32, 2.0**24), (F64, 2.0**53)])
def test_long_running_sums_lose_nothing(dtype: Any, large: float, device: str) -> None:  # case N04
    x = np.ones(1025, dtype.np if isinstance(dtype, dt.DType) else dtype)
    x[0] = large  # a naive loop stays at this number
    got = scanned(x, "add", device)
    expected = (large + np.arange(1025.0)).astype(x.dtype)
    assert np.array_equal(got[::2], expected[::2])
    assert got[-1] == large + 1024


def test_many_halves_are_added_without_loss(device: str) -> None:
    x = np.full(6000, 0.1, np.float16)
    got = scanned(x, "add", device).astype(F64)
    expected = (float(x[0]) * np.arange(1, 6001)).astype(np.float16)
    np.testing.assert_array_equal(got, expected.astype(F64))


def test_infinities_in_running_sums(device: str) -> None:
    x = np.array([1, INF, 2, -INF, 3, NAN, 1e308, 1e308])
    got = scanned(x, "add", device)
    assert got.tolist()[:3] == [1, INF, INF] and np.isnan(got[3:]).all()
    got = scanned(np.array([1e308, 1e308, -1e308, 1]), "add", device)
    assert got.tolist() == [1e308, INF, INF, INF]


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_d03_missing_numbers(d: dt.DType, device: str) -> None:
    array = tg.array1d[d]

    def scans(a: array, o: tg.array2d[d]) -> None:
        t = tg.tile_load(a, shape=5)
        tg.tile_store(o[0], tg.tile_scan_max_inclusive(t))
        tg.tile_store(o[1], tg.tile_scan_min_inclusive(t))
        tg.tile_store(o[2], tg.tile_scan_max_inclusive(t, propagate_nan=True))
        tg.tile_store(o[3], tg.tile_scan(max, t, reverse=True))
        tg.tile_store(o[4], tg.tile_scan(tg.min, t, exclusive=True))

    o = np.zeros((5, 5), d.np)
    run(scans, np.array([NAN, 1, NAN, 3, -2]).astype(d.np), o, device=device)
    expected = [[NAN, 1, 1, 3, 3], [NAN, 1, 1, 1, -2], [NAN] * 5, [3, 3, 3, 3, -2], [INF, NAN, 1, 1, 1]]
    np.testing.assert_array_equal(o.astype(F64), expected)


def test_of_equal_zeros_the_one_with_the_lowest_index_is_meant(device: str) -> None:
    x = np.array([0.0, -0.0, 0.0])
    for how, reverse in itertools.product(("min", "max"), (False, True)):
        got = scanned(x, how, device, reverse=reverse)
        assert np.signbit(got).tolist() == ([False, True, False] if reverse else [False] * 3)


def test_exclusive_scans_start_with_the_neutral_element(device: str) -> None:
    for d in dt.NUMERIC:
        x = np.array([3, 1, 2]).astype(d.np)
        for how, start in (("add", 0), ("mul", 1), ("min", d.max), ("max", d.min)):
            assert scanned(x, how, device, exclusive=True)[0] == d.np.type(start)
            assert scanned(x, how, device, reverse=True, exclusive=True)[-1] == d.np.type(start)


def test_s03_along_axis_0_and_over_a_part(device: str) -> None:
    def scans(a: tg.array2d[int], b: tg.array2d[int], o: tg.array2d[int]) -> None:
        tg.tile_store(o, tg.tile_scan_inclusive(tg.tile_load(a, shape=(3, 5)), axis=0))
        t = tg.tile_load(b, shape=(4, 6))
        t[0:3, 0:4] = tg.tile_scan_inclusive(t[0:3, 0:4], axis=1)
        tg.tile_store(b, t)

    a, b, o = np.arange(15).reshape(3, 5), np.arange(24).reshape(4, 6), np.zeros((3, 5))
    a, b, o = (x.astype(np.int32) for x in (a, b, o))
    run(scans, a, b, o, device=device)
    assert o.tolist() == [[0, 1, 2, 3, 4], [5, 7, 9, 11, 13], [15, 18, 21, 24, 27]]
    expected = np.arange(24).reshape(4, 6)
    expected[:3, :4] = [[0, 1, 3, 6], [6, 13, 21, 30], [12, 25, 39, 54]]  # a peer ignored the pitch of the parent
    assert np.array_equal(b, expected)


def test_s03_a_large_rectangle(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(F32)
    for axis in (0, 1):
        got = scanned(x, "add", device, axis=axis)
        np.testing.assert_allclose(got, np.cumsum(x.astype(F64), axis), rtol=1e-6, atol=1e-6)


def test_every_block_dim_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).standard_normal((3, 37, 5)).astype(F32)
    for how, axis in itertools.product(OPS, (0, 1, 2)):
        seen = {scanned(x, how, "cpu", block_dim=b, axis=axis).tobytes()
                for b in (1, 8, 256)}  # fmt: skip
        assert len(seen) == 1


# --- operators of the user's ------------------------------------------------------------------------------------------


@tg.func
def probably(a: Any, b: Any) -> Any:
    return a + b - a * b


@pytest.mark.parametrize("n", [1, 2, 3, 8, 21])
def test_an_operator_of_the_users(n: int, device: str) -> None:
    def scans(a: tg.array2d[D], o: tg.array3d[D]) -> None:
        t = tg.tile_load(a, shape=(n, 3))
        tg.tile_store(o[0], tg.tile_scan(probably, t, axis=0))
        tg.tile_store(o[1], tg.tile_scan(probably, t, 0, True))
        tg.tile_store(o[2], tg.tile_scan(probably, t, axis=-2, exclusive=True, initial=0.25))
        tg.tile_store(o[3], tg.tile_scan(probably, t))
        tg.tile_store(o[4], tg.tile_scan(lambda x, y: probably(x, y), t, exclusive=True, initial=a[0, 0], reverse=True))

    a, o = np.random.default_rng(n).uniform(-1, 1, (n, 3)), np.zeros((5, n, 3))
    run(scans, a, o, device=device)
    first = np.full((1, 3), 0.25)
    np.testing.assert_allclose(o[0], 1 - np.cumprod(1 - a, 0))
    np.testing.assert_allclose(o[1], (1 - np.cumprod(1 - a[::-1], 0))[::-1])
    np.testing.assert_allclose(o[2], 1 - np.cumprod(1 - np.concatenate([first, a[:-1]]), 0))
    np.testing.assert_allclose(o[3].ravel(), 1 - np.cumprod(1 - a.ravel()))
    turned = np.concatenate([[a[0, 0]], a.ravel()[::-1][:-1]])
    np.testing.assert_allclose(o[4].ravel()[::-1], 1 - np.cumprod(1 - turned))


def test_an_operator_need_not_commute(device: str) -> None:
    def scans(a: tg.array1d[int], o: tg.array2d[int]) -> None:
        t = tg.tile_load(a, shape=7)
        tg.tile_store(o[0], tg.tile_scan(lambda first, later: first, t))
        tg.tile_store(o[1], tg.tile_scan(lambda first, later: later, t))
        tg.tile_store(o[2], tg.tile_scan(lambda first, later: first, t, reverse=True))

    o = np.zeros((3, 7), np.int32)
    run(scans, np.arange(1, 8, dtype=np.int32), o, device=device)
    assert o.tolist() == [[1] * 7, [1, 2, 3, 4, 5, 6, 7], [7] * 7]


@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_operators_on_every_dtype(d: dt.DType, device: str) -> None:
    array = tg.array1d[d]
    operator = tg.bit_xor if not d.is_float else lambda a, b: tg.where(b > a, b, a)

    def scans(a: array, o: array) -> None:
        tg.tile_store(o, tg.tile_scan(operator, tg.tile_load(a, shape=6)))

    a = np.array([1, 0, 1, 1, 0, 1]).astype(d.np) * d.np.type(1)
    o = np.zeros(6, d.np)
    run(scans, a, o, device=device)
    expected = [1, 1, 1, 1, 1, 1] if d.is_float else [1, 1, 0, 1, 1, 0]
    assert o.astype(F64).tolist() == expected


@tg.func
def follow(f: tg.vec2d, g: tg.vec2d) -> Any:
    """The affine map g after f, each x -> p[0] * x + p[1]."""
    return tg.vec2d(f[0] * g[0], f[1] * g[0] + g[1])


def recurrences(a: tg.array1d[tg.vec2d], o: tg.array1d[tg.vec2d]) -> None:
    tg.tile_store(o, tg.tile_scan(follow, tg.tile_load(a, shape=6)))


def test_a_scan_of_affine_maps_is_a_recurrence(device: str) -> None:
    a, o = np.random.default_rng(3).standard_normal((6, 2)), np.zeros((6, 2))
    run(recurrences, a, o, device=device)
    x, values = 0.0, []
    for p, q in a:
        x = p * x + q
        values.append(x)
    np.testing.assert_allclose(o[:, 1], values)
    np.testing.assert_allclose(o[:, 0], np.cumprod(a[:, 0]))


def test_scans_of_composite_elements(device: str) -> None:
    def scans(a: tg.array1d[tg.mat22], o: tg.array2d[tg.mat22]) -> None:
        t = tg.tile_load(a, shape=5)
        tg.tile_store(o[0], tg.tile_scan(tg.mul, t))
        tg.tile_store(o[1], tg.tile_scan(tg.add, t))
        tg.tile_store(o[2], tg.tile_scan_inclusive(t))
        tg.tile_store(o[3], tg.tile_scan_exclusive(t))
        tg.tile_store(o[4], tg.tile_scan(tg.max, t))

    a = np.random.default_rng(0).standard_normal((5, 2, 2)).astype(F32)
    o = np.zeros((5, 5, 2, 2), F32)
    run(scans, a, o, device=device)
    products = list(itertools.accumulate(a, np.matmul))
    sums = np.cumsum(a, 0)
    for got, expected in zip(o, (products, sums, sums, sums - a, np.maximum.accumulate(a)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


# --- gradients --------------------------------------------------------------------------------------------------------


def jacobian(f: Callable[..., None], x: np.ndarray, device: str) -> np.ndarray:
    """d out[i] / d x[j] of a kernel on arrays of one shape."""
    out = np.zeros(x.size)
    pullback = tg.vjp(tg.kernel(f), 1, [x], [out], device=device)
    return np.array([pullback(row)[0] for row in np.eye(x.size)])


@pytest.mark.parametrize("x", [[2.0, 3, 5, 7], [2.0, 0, 5, 7], [0.0, 3, 0, 7], [0.0, 0, 0, 0]])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_the_gradient_of_a_running_product_holds_with_zeros(
    x: list[float], reverse: bool, exclusive: bool, device: str
) -> None:
    def products(a: tg.array1d[D], o: tg.array1d[D]) -> None:
        t = tg.tile_load(a, shape=4)
        tg.tile_store(o, tg.tile_scan(tg.mul, t, reverse=reverse, exclusive=exclusive))

    got = jacobian(products, np.array(x), device)
    for i, j in itertools.product(range(4), repeat=2):
        seen = [k for k in range(4) if (k > i if reverse else k < i) or (k == i and not exclusive)]
        assert got[i, j] == (math.prod(x[k] for k in seen if k != j) if j in seen else 0.0)


@pytest.mark.parametrize("how", ["min", "max"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_the_gradient_of_an_extreme_goes_to_the_first_that_attains_it(
    how: str, reverse: bool, exclusive: bool, device: str
) -> None:
    operator = OPS[how]

    def extremes(a: tg.array1d[D], o: tg.array1d[D]) -> None:
        t = tg.tile_load(a, shape=7)
        tg.tile_store(o, tg.tile_scan(operator, t, reverse=reverse, exclusive=exclusive))

    x = np.array([NAN, 2, 3, 3, 1, 1, NAN])
    got = jacobian(extremes, x, device)
    for i in range(7):
        seen = [k for k in range(7) if (k > i if reverse else k < i) or (k == i and not exclusive)]
        numbers = [k for k in seen if x[k] == x[k]]
        best = [x[k] for k in numbers]
        expected = np.zeros(7)
        if numbers:
            expected[numbers[best.index(min(best) if how == "min" else max(best))]] = 1
        elif seen:
            expected[seen[0]] = 1
        np.testing.assert_array_equal(got[i], expected)


def test_nan_that_propagates_takes_the_gradient(device: str) -> None:
    def extremes(a: tg.array1d[D], o: tg.array1d[D]) -> None:
        tg.tile_store(o, tg.tile_scan_max_inclusive(tg.tile_load(a, shape=4), propagate_nan=True))

    got = jacobian(extremes, np.array([1, NAN, 5, NAN]), device)
    np.testing.assert_array_equal(got, np.eye(4)[[0, 1, 1, 1]])


def test_a_zero_cotangent_stays_zero(device: str) -> None:
    def products(a: tg.array1d[D], o: tg.array1d[D]) -> None:
        tg.tile_store(o, tg.tile_scan(tg.mul, tg.tile_load(a, shape=5)))

    out = np.zeros(5)
    pullback = tg.vjp(tg.kernel(products), 1, [np.array([2.0, 3, INF, 0, NAN])], [out], device=device)
    assert pullback(np.array([1.0, 1, 0, 0, 0]))[0].tolist() == [4, 2, 0, 0, 0]


def scans_in_a_loop(a: tg.array2d[D], n: int, o: tg.array2d[D], s: tg.array1d[D]) -> None:
    t = tg.tile_load(a, shape=(3, 5))
    for k in range(n):
        if k % 2 == 0:
            t = tg.sin(tg.tile_scan_inclusive(t, axis=1))
        else:
            t = tg.tile_scan(tg.mul, t + 0.5, axis=0, reverse=True) + tg.tile_scan_exclusive(t)
        s[k] = tg.tile_sum(tg.tile_scan_max_inclusive(t) * t)[0]
    tg.tile_store(o, tg.tile_scan(probably, t, axis=1, exclusive=True, initial=a[0, 1]))


def test_gradients_in_loops_and_branches(device: str) -> None:
    a = np.random.default_rng(0).uniform(0.1, 1, (3, 5))
    gradcheck(tg.kernel(scans_in_a_loop), 1, [a, 3], [np.zeros((3, 5)), np.zeros(3)], device=device)


def test_the_gradient_of_an_operator_on_vectors(device: str) -> None:
    x, ct, move = np.random.default_rng(4).uniform(-1, 1, (3, 6, 2))
    kernel = tg.kernel(recurrences)

    def loss(values: np.ndarray) -> float:
        o = np.zeros((6, 2))
        tg.launch_tiled(kernel, dim=1, inputs=[values, o], device=device)
        return float(np.sum(o * ct))

    a = tg.array(x, dtype=tg.vec2d, requires_grad=True)
    o = tg.zeros(6, dtype=tg.vec2d, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(kernel, dim=1, inputs=[a, o], device=device)
    tape.backward(grads={o: tg.array(ct, dtype=tg.vec2d)})
    slope = (loss(x + 1e-6 * move) - loss(x - 1e-6 * move)) / 2e-6
    np.testing.assert_allclose(np.sum(np.asarray(a.grad) * move), slope, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 3, 7, None])
@pytest.mark.parametrize("how", ["add", "mul", "max"])
def test_gradients_of_eight_axes(how: str, axis: int | None, device: str) -> None:
    operator, shape = OPS[how], (2, 1, 2, 3, 1, 2, 1, 4)

    def scans(a: tg.array(dtype=D, ndim=8), o: tg.array(dtype=D, ndim=8)) -> None:
        tg.tile_store(o, tg.tile_scan(operator, tg.tile_load(a, shape=shape), axis=axis, reverse=True))

    x = np.random.default_rng(0).permutation(96).reshape(shape) / 48.0 - 1
    gradcheck(tg.kernel(scans), 1, [x], [np.zeros(shape)], device=device)


@settings(max_examples=15)
@given(cases())
def test_gradients_of_any_scan(case: dict[str, Any]) -> None:
    operator, shape = OPS[case["how"]], case["shape"]
    array, axis, reverse = tg.array(dtype=D, ndim=len(shape)), case["axis"], case["reverse"]
    exclusive = case["exclusive"] and case["how"] in ("add", "mul")  # finite differences fail at infinities

    def kernel(a: array, o: array) -> None:
        t = tg.tile_load(a, shape=shape)
        tg.tile_store(o, tg.tile_scan(operator, t, axis=axis, reverse=reverse, exclusive=exclusive))

    size = math.prod(shape)
    x = (np.random.default_rng(case["seed"]).permutation(size).reshape(shape) + 1) / size - 0.5
    device = "cpu" if case["seed"] % 3 else "interpret"
    gradcheck(tg.kernel(kernel), 1, [x], [np.zeros(shape)], device=device, block_dim=case["block_dim"])


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_t01_scans_over_lanes(device: str) -> None:
    @tg.kernel
    def scans(o: tg.array2d[int]) -> None:
        i = tg.tid()
        t = tg.tile(i + 1)
        o[0, i] = tg.untile(tg.tile_scan_inclusive(t))
        o[1, i] = tg.untile(tg.tile_scan(tg.add, t + 1, reverse=True))  # absent lanes would add 1
        o[2, i] = tg.untile(tg.tile_scan(max, -t, reverse=True))  # ... and win with 0
        o[3, i] = tg.untile(tg.tile_scan(lambda a, b: a + b, t * 2 + 1, reverse=True))
        o[4, i] = tg.untile(tg.tile_scan(lambda a, b: a + b, t, exclusive=True, initial=7, reverse=True))
        o[5, i] = tg.tile_max(tg.tile_scan(tg.add, t - 1000))[0]

    o = np.zeros((6, 100), np.int32)
    tg.launch(scans, dim=100, inputs=[o], block_dim=64, device=device)
    for part in (slice(0, 64), slice(64, 100)):
        x = np.arange(1, 101)[part]
        assert o[0, part].tolist() == np.cumsum(x).tolist()
        assert o[1, part].tolist() == np.cumsum(x[::-1] + 1)[::-1].tolist()
        assert o[2, part].tolist() == (-x).tolist()
        assert o[3, part].tolist() == np.cumsum(x[::-1] * 2 + 1)[::-1].tolist()
        assert o[5, part].tolist() == [np.cumsum(x - 1000).max()] * len(x)
    x = np.arange(1, 65)
    assert o[4, :64].tolist() == (7 + np.cumsum([0, *x[:0:-1]])[::-1]).tolist()


def test_lanes_that_have_returned_are_skipped(device: str) -> None:
    @tg.kernel
    def scans(x: tg.array1d[float], o: tg.array2d[float]) -> None:
        i = tg.tid()
        if i % 3 == 1:
            return
        t = tg.tile(x[i]) + 1.0
        o[0, i] = tg.untile(tg.tile_scan_inclusive(t))
        o[1, i] = tg.untile(tg.tile_scan(lambda a, b: a * b, t))
        o[2, i] = tg.untile(tg.tile_scan_min_inclusive(t))

    x, o = np.arange(8, dtype=F32)[::-1].copy(), np.zeros((3, 8), F32)
    tg.launch(scans, dim=8, inputs=[x, o], block_dim=8, device=device)
    here = [i for i in range(8) if i % 3 != 1]
    t = x[here] + 1
    assert o[0, here].tolist() == np.cumsum(t).tolist()
    assert o[1, here].tolist() == np.cumprod(t).tolist()
    assert o[2, here].tolist() == np.minimum.accumulate(t).tolist()
    assert not o[:, 1::3].any()


# --- what users are told ----------------------------------------------------------------------------------------------

MISTAKES: list[tuple[Callable[[Any], Any], type[TilegradError], str]] = [
    (lambda t: tg.tile_scan_inclusive(3.0), TypeMismatch, "tile_scan_inclusive: `a` must be a tile"),
    (lambda t: tg.tile_scan_inclusive(t, axis=2), ShapeMismatch, "tile_scan_inclusive: axis 2 is out of range"),
    (lambda t: tg.tile_scan_inclusive(t > 0.0), TypeMismatch, "a running sum of bools would be a bool"),
    (lambda t: tg.tile_scan_inclusive(t, axes=0), TypeMismatch, "there is no parameter `axes`"),
    (lambda t: tg.tile_scan(tg.mul, t > 0.0), TypeMismatch, "a running product of bools"),
    (lambda t: tg.tile_scan(2, t), TypeMismatch, "must be a builtin or a function of two elements, it is 2"),
    (lambda t: tg.tile_scan(t, tg.add), TypeMismatch, "tile_scan: `t` must be a tile"),
    (lambda t: tg.tile_scan(lambda a, b: a < b, t), TypeMismatch, "tile_scan: the operator turns float32 into bool"),
    (lambda t: tg.tile_scan(lambda a, b: a * b, t, exclusive=True), TypeMismatch, "needs `initial`"),
    (lambda t: tg.tile_scan(tg.add, t, initial=1.0), TypeMismatch, "what an exclusive scan starts with"),
    (lambda t: tg.tile_scan(tg.add, t, exclusive=True, initial=True), TypeMismatch, "`initial` True is not a value"),
    (lambda t: tg.tile_scan(tg.add, t, exclusive=True, initial=tg.int32(1)), TypeMismatch, "must be float32, it is"),
    (lambda t: tg.tile_scan(tg.add, t, exclusive=True, initial=t), TypeMismatch, "`initial` must be float32"),
]


@pytest.mark.parametrize("k", range(len(MISTAKES)))
def test_mistakes_are_explained(k: int) -> None:
    call, kind, text = MISTAKES[k]

    def kernel(x: tg.array2d[float]) -> None:
        call(tg.tile_load(x, shape=(2, 3)))

    with pytest.raises(kind) as error:
        run(kernel, np.zeros((2, 3), F32), device="cpu")
    assert text in str(error.value)


def test_the_recurrence_is_what_it_says() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 5))
    r = 0.0
    for k, got in enumerate(REGISTRY["linear_scan"].body(a, b, axis=0)):
        r = b[k] + a[k] * r
        assert got == r
    lagged = REGISTRY["linear_scan"].body(a, b, axis=0, lagged=True, reverse=True)
    r = 0.0
    for k in reversed(range(5)):
        r = b[k] + (a[k + 1] * r if k < 4 else 0.0)
        assert lagged[k] == r
