"""Reductions against exact numbers, their gradients, lanes that are absent, and what users are told.

The peers' wrong answers that are excluded here stand in comments beside the cases.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.testing import gradcheck

F32, F64, I32 = np.float32, np.float64, np.int32
D = tg.float64
NAN, INF = math.nan, math.inf
FOLDS: dict[str, Any] = {
    "sum": tg.tile_sum, "prod": tg.tile_prod, "min": tg.tile_min, "max": tg.tile_max,
    "argmin": tg.tile_argmin, "argmax": tg.tile_argmax,
}  # fmt: skip


def run(kernel: Any, *args: Any, device: str, dim: Any = 1, **options: Any) -> None:
    tg.launch_tiled(tg.kernel(kernel), dim=dim, inputs=args, device=device, **options)


def reduced_shape(shape: tuple[int, ...], axis: Any, keepdims: bool) -> tuple[int, ...]:
    left = np.sum(np.zeros(shape), axis=axis, keepdims=keepdims).shape
    return left or (1,)


def reduced(
    x: np.ndarray, name: str, device: str, axis: Any = None, keepdims: bool = False, block_dim: int = 4
) -> np.ndarray:
    """A reduction of one tile that is a whole array."""
    function, shape, d = FOLDS[name], x.shape, dt.of_array(x)
    result = dt.int32 if name.startswith("arg") else dt.sum_dtype(d) if name in ("sum", "prod") else d
    out = np.zeros(reduced_shape(shape, axis, keepdims), result.np)
    source, target = tg.array(dtype=d, ndim=x.ndim), tg.array(dtype=result, ndim=out.ndim)

    def kernel(a: source, o: target) -> None:
        tg.tile_store(o, function(tg.tile_load(a, shape=shape), axis=axis, keepdims=keepdims))

    run(kernel, x, out, device=device, block_dim=block_dim)
    return out


# --- against exact numbers --------------------------------------------------------------------------------------------


def rows_of(x: np.ndarray, axis: Any) -> np.ndarray:
    """The elements that go into each result, in row-major order."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(sorted(a % x.ndim for a in axes))
    kept = [k for k in range(x.ndim) if k not in axes]
    return np.transpose(x, (*kept, *axes)).reshape(math.prod(x.shape[k] for k in kept), -1)


def check_row(row: list[Any], found: Any, name: str, d: dt.DType) -> None:
    numbers = [k for k, v in enumerate(row) if v == v]
    if name in ("sum", "prod"):
        wide = dt.sum_dtype(d)
        if not d.is_float:
            expected = sum(row) if name == "sum" else math.prod(row)
            assert (int(found) - expected) % 2**wide.bits == 0
            return
        expected = math.fsum(row) if name == "sum" else math.prod(row)
        size = math.fsum(map(abs, row)) if name == "sum" else abs(expected)
        last = 2.0 ** -{"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[d.name]
        carried = 2.0**-24 if d.is_half else 2.0**-53
        assert abs(float(found) - expected) <= 1.001 * last * abs(expected) + len(row) * carried * size
        return
    best = (min if "min" in name else max)(row[k] for k in numbers) if numbers else NAN
    if name.startswith("arg"):
        assert int(found) == next((k for k in numbers if row[k] == best), 0)
    else:
        assert found == best or (found != found and best != best)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    rank = draw(st.integers(1, 8))
    shape = tuple(draw(st.lists(st.integers(1, 4 if rank > 2 else 40), min_size=rank, max_size=rank)))
    while math.prod(shape) > 1500:
        shape = tuple(max(1, n // 2) for n in shape)
    one = st.integers(-rank, rank - 1)
    several = st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True).map(
        lambda axes: tuple(a - rank if a % 2 else a for a in axes)
    )
    return {
        "shape": shape,
        "dtype": draw(st.sampled_from(dt.SCALARS)),
        "name": draw(st.sampled_from(sorted(FOLDS))),
        "axis": draw(st.none() | one | several),
        "keepdims": draw(st.booleans()),
        "block_dim": draw(st.sampled_from([1, 7, 64])),
        "seed": draw(st.integers(0, 99)),
    }


@settings(max_examples=80)
@given(cases())
def test_any_reduction_of_any_tile(case: dict[str, Any]) -> None:
    rng, d, name = np.random.default_rng(case["seed"]), case["dtype"], case["name"]
    x = rng.integers(0, 2 if d.kind == "b" else 4, case["shape"]).astype(d.np)
    if d.is_float:
        few = rng.choice([-2.0, 0.5, 3.0, NAN], x.shape)
        plain = 10.0 ** rng.integers(-2, 2, x.shape) if name == "sum" else rng.uniform(0.9, 1.1, x.shape)
        x = (few if "m" in name.removeprefix("su") else plain).astype(d.np)
        x = np.where(x == x, x, d.np.type(1)) if name in ("sum", "prod") else x
    options = {k: case[k] for k in ("axis", "keepdims", "block_dim")}
    results = [reduced(x, name, device, **options) for device in ("interpret", "cpu")]
    for got in results:
        for row, found in zip(rows_of(x, case["axis"]), got.ravel(), strict=True):
            check_row([float(v) if d.is_float else int(v) for v in row], found, name, d)
    if name not in ("sum", "prod"):
        np.testing.assert_array_equal(*(r.astype(F64) for r in results))


@pytest.mark.parametrize(("shape", "axis"), [((20000, 3), 0), ((6000, 5), None), ((3, 9000), 1), ((40, 400), (0, 1))])
@pytest.mark.parametrize("d", [tg.float16, tg.bfloat16, tg.float32, tg.float64], ids=str)
def test_n04_the_error_of_a_sum_does_not_grow(d: dt.DType, shape: tuple[int, ...], axis: Any, device: str) -> None:
    x = np.full(shape, 0.1).astype(d.np)
    got = reduced(x, "sum", device, axis)
    for row, found in zip(rows_of(x, axis), got.ravel(), strict=True):
        expected = math.fsum(map(float, row))
        # one rounding of the result, and for 16 bits a small part of one in float32
        assert abs(float(found) - expected) / expected <= 0.6 * 2.0 ** -{
            "float16": 10,
            "bfloat16": 7,
            "float32": 23,
        }.get(d.name, 46)


def test_d01_sums_and_products_widen(device: str) -> None:
    assert reduced(np.ones((32, 32), bool), "sum", device).tolist() == [1024]  # a peer's 1-bit sum was an xor
    assert reduced(np.full(200, 100, np.int8), "sum", device).tolist() == [20000]
    assert reduced(np.full(3, 200, np.uint8), "prod", device).tolist() == [8_000_000]


@pytest.mark.parametrize("block_dim", [1, 9, 16, 64, 1024])
def test_d05_t04_more_lanes_than_elements(block_dim: int, device: str) -> None:
    x = np.array([[2, 2, 3], [4, 1, 6], [7, 3, 9]], F32)
    ones = np.ones((3, 3), F32)
    assert reduced(x, "argmin", device, block_dim=block_dim).tolist() == [4]
    assert reduced(x, "sum", device, block_dim=block_dim).tolist() == [37]
    assert reduced(ones, "min", device, block_dim=block_dim).tolist() == [1]  # a peer: 0, from idle lanes
    assert reduced(-ones, "max", device, block_dim=block_dim).tolist() == [-1]
    assert reduced(ones, "argmin", device, block_dim=block_dim).tolist() == [0]


def test_every_block_dim_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).standard_normal((37, 1000)).astype(F32)
    for name, axis in itertools.product(("sum", "prod"), (0, 1, None)):
        assert len({reduced(x, name, "cpu", axis, block_dim=b).tobytes() for b in (1, 8, 256)}) == 1


def test_n02_the_same_bits_for_every_number_of_threads() -> None:
    @tg.kernel
    def total(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        i = tg.tid()
        tg.tile_atomic_add(o, tg.tile_sum(tg.tile_load(x, shape=100, offset=i * 100)))

    x, seen = np.random.default_rng(0).standard_normal(20_000).astype(F32), set()
    for _ in range(5):
        o = np.zeros(1, F32)
        pullback = tg.vjp(total, 200, [x], [o])
        seen.add((o.tobytes(), pullback(np.ones(1, F32))[0].tobytes()))
    assert len(seen) == 1


def test_propagated_nan(device: str) -> None:
    def extremes(a: tg.array2d[float], o: tg.array2d[float], at: tg.array2d[int]) -> None:
        t = tg.tile_load(a, shape=(3, 4))
        tg.tile_store(o[0], tg.tile_min(t, axis=1, propagate_nan=True))
        tg.tile_store(o[1], tg.tile_max(t, axis=1, propagate_nan=True))
        tg.tile_store(at[0], tg.tile_argmin(t, axis=1, propagate_nan=True))
        tg.tile_store(at[1], tg.tile_argmax(t, axis=1, propagate_nan=True))

    a = np.array([[1, NAN, 3, NAN], [INF, 2, 2, 5], [NAN] * 4], F32)
    o, at = np.zeros((2, 3), F32), np.zeros((2, 3), I32)
    run(extremes, a, o, at, device=device)
    np.testing.assert_array_equal(o, [[NAN, 2, NAN], [NAN, INF, NAN]])
    assert at.tolist() == [[1, 1, 0], [1, 0, 0]]


def test_all_and_any(device: str) -> None:
    def kernel(a: tg.array2d[int], o: tg.array2d[tg.bool]) -> None:
        t = tg.tile_load(a, shape=(3, 4)) > 0
        tg.tile_store(o[0], tg.tile_all(t, axis=1))
        tg.tile_store(o[1], tg.tile_any(t, axis=1))
        o[2, 0], o[2, 1] = tg.tile_all(t)[0], tg.tile_any(t)[0]
        o[2, 2] = tg.tile_reduce(tg.max, t)[0]

    o = np.zeros((3, 3), bool)
    run(kernel, np.array([[1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], I32), o, device=device)
    assert o.tolist() == [[True, False, False], [True, True, False], [False, True, True]]


# --- any operator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (3, 5), (2, 3, 1, 2, 2, 1, 3, 2)])
def test_operators_go_in_row_major_order(shape: tuple[int, ...], device: str) -> None:
    array = tg.array(dtype=tg.int32, ndim=len(shape))
    last, ends = len(shape) - 1, (0, -1) if len(shape) > 1 else 0

    def kernel(a: array, o: tg.array1d[int], p: tg.array1d[int]) -> None:
        t = tg.tile_load(a, shape=shape)
        o[0] = tg.tile_reduce(lambda first, later: first, t)[0]
        o[1] = tg.tile_reduce(lambda first, later: later, t)[0]
        o[2] = tg.tile_reduce(lambda x, y: x + y, t)[0]
        tg.tile_store(p, tg.tile_reduce(lambda first, later: later, t, axis=ends).reshape(-1))
        tg.tile_store(p, tg.tile_reduce(lambda x, y: x * y, t, axis=last, keepdims=True).reshape(-1), offset=100)

    a = np.arange(1, math.prod(shape) + 1).reshape(shape).astype(I32)
    o, p = np.zeros(3, I32), np.zeros(300, I32)
    run(kernel, a, o, p, device=device)
    assert o.tolist() == [1, a.size, a.sum()]
    rows = rows_of(a, ends)
    assert p[: len(rows)].tolist() == rows[:, -1].tolist()
    assert p[100 : 100 + a.size // shape[-1]].tolist() == np.prod(a, axis=-1, dtype=I32).ravel().tolist()


@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_operators_keep_the_dtype(d: dt.DType, device: str) -> None:
    array = tg.array1d[d]
    if d.kind == "b":
        operators: tuple[Any, ...] = (tg.bit_xor, tg.bit_and, tg.max, tg.min)
    else:
        operators = (tg.add, tg.mul, tg.max, tg.min)
    one, two, three, four = operators

    def kernel(a: array, o: array) -> None:
        t = tg.tile_load(a, shape=5)
        o[0], o[1] = tg.tile_reduce(one, t)[0], tg.tile_reduce(two, t)[0]
        o[2], o[3] = tg.tile_reduce(three, t)[0], tg.tile_reduce(four, t)[0]

    a = np.array([3, 60, 5, 7, 60]).astype(d.np)
    o = np.zeros(4, d.np)
    run(kernel, a, o, device=device)
    if d.kind == "b":
        assert o.tolist() == [True, True, True, True]
        return
    expected = np.array([a.astype(F64).sum(), a.astype(F64).prod(), 60, 3])
    if d.is_float:
        with np.errstate(over="ignore"):
            expected = expected.astype(d.np).astype(F64)
        np.testing.assert_array_equal(o.astype(F64), expected)
    else:
        assert [(int(x) - int(e)) % 2**d.bits for x, e in zip(o, expected, strict=True)] == [0] * 4


def test_products_of_matrices(device: str) -> None:
    def kernel(a: tg.array1d[tg.mat33], o: tg.array1d[tg.mat33]) -> None:
        t = tg.tile_load(a, shape=11)
        tg.tile_store(o, tg.tile_reduce(tg.mul, t))
        tg.tile_store(o, tg.tile_reduce(lambda x, y: y * x, t), offset=1)
        tg.tile_store(o, tg.tile_reduce(tg.add, t), offset=2)
        tg.tile_store(o, tg.tile_sum(t), offset=3)

    a, o = np.random.default_rng(0).standard_normal((11, 3, 3)).astype(F32) * 0.7, np.zeros((4, 3, 3), F32)
    run(kernel, a, o, device=device)
    np.testing.assert_allclose(o[0], functools.reduce(np.matmul, a), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(o[1], functools.reduce(np.matmul, a[::-1]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(o[2], a.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(o[3], o[2], rtol=1e-6, atol=1e-6)


@tg.struct
class Place:
    value: float
    index: int


@tg.func
def better(a: Place, b: Place) -> Any:
    if b.value > a.value:
        return b
    else:
        return a


def test_structs_carry_their_payload_along(device: str) -> None:
    @tg.kernel
    def kernel(x: tg.array1d[float], o: tg.array1d[int], v: tg.array1d[float]) -> None:
        i = tg.tid()
        here = Place()
        here.value = x[i]
        here.index = i
        t = tg.tile(here, preserve_type=True)
        o[i] = tg.tile_reduce(better, t)[0].index  # absent lanes would win with 0
        v[i] = tg.untile(tg.tile_scan(better, t)).value

    x, o, v = -np.random.default_rng(0).random(11).astype(F32), np.zeros(11, I32), np.zeros(11, F32)
    tg.launch(kernel, dim=11, inputs=[x, o, v], block_dim=8, device=device)
    assert o.tolist() == [np.argmax(x[:8])] * 8 + [8 + np.argmax(x[8:])] * 3
    assert v.tolist() == [*np.maximum.accumulate(x[:8]), *np.maximum.accumulate(x[8:])]


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("axis", [None, 0, 2, (0, 2), (1, 2), -2])
def test_the_gradient_of_a_product_holds_with_zeros(zeros: int, axis: Any, device: str) -> None:
    x = np.random.default_rng(0).permutation(24).reshape(2, 3, 4) / 8.0 + 0.5
    x.ravel()[[5, 6][:zeros]] = 0
    out = np.zeros(reduced_shape(x.shape, axis, False))
    target = tg.array(dtype=D, ndim=out.ndim)

    def kernel(a: tg.array3d[D], o: target) -> None:
        tg.tile_store(o, tg.tile_prod(tg.tile_load(a, shape=(2, 3, 4)), axis=axis))

    ct = np.random.default_rng(1).standard_normal(out.shape)
    (got,) = tg.vjp(tg.kernel(kernel), 1, [x], [out], device=device)(ct)
    axes = tuple(range(3)) if axis is None else axis
    for place in np.ndindex(x.shape):
        others = np.array(x)
        others[place] = 1
        kept = tuple(place[k] for k in range(3) if k not in np.atleast_1d(np.asarray(axes)) % 3) or (0,)
        expected = np.prod(others, axis=axes).reshape(out.shape)[kept] * ct[kept]
        np.testing.assert_allclose(got[place], expected, rtol=1e-12, atol=0)


def test_g34_all_maxima_agree_about_ties(device: str) -> None:
    def by_tile(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        tg.tile_store(o, tg.tile_max(tg.tile_load(x, shape=4)))

    def by_operator(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        tg.tile_store(o, tg.tile_reduce(max, tg.tile_load(x, shape=4)))

    def by_function(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        tg.tile_store(o, tg.tile_reduce(lambda a, b: tg.max(a, b), tg.tile_load(x, shape=4)))

    def by_loop(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        best = x[0]
        for i in range(1, 4):
            best = max(best, x[i])
        o[0] = best

    def by_scan(x: tg.array1d[float], o: tg.array1d[float]) -> None:
        o[0] = tg.tile_scan_max_inclusive(tg.tile_load(x, shape=4))[3]

    for kernel in (by_tile, by_operator, by_function, by_loop, by_scan):
        o = np.zeros(1, F32)
        pullback = tg.vjp(tg.kernel(kernel), 1, [np.array([1, 3, 3, 2], F32)], [o], device=device)
        assert o[0] == 3
        assert pullback(np.ones(1, F32))[0].tolist() == [0, 1, 0, 0]  # a peer: the full gradient to both


def test_c72_two_sums_of_one_kind_in_a_row(device: str) -> None:
    def kernel(x: tg.array2d[D], o: tg.array1d[D]) -> None:
        o[0] = tg.tile_sum(tg.tile_load(x[0], shape=70) * 2.0)[0] * tg.tile_sum(tg.tile_load(x[1], shape=70) * 3.0)[0]

    x, o = np.random.default_rng(0).standard_normal((2, 70)), np.zeros(1)
    (got,) = tg.vjp(tg.kernel(kernel), 1, [x], [o], device=device, block_dim=32)(np.ones(1))
    np.testing.assert_allclose(got, np.repeat([[6 * x[1].sum()], [6 * x[0].sum()]], 70, 1))


@tg.func
def softly(a: Any, b: Any) -> Any:
    return tg.log(tg.exp(a) + tg.exp(b))


def in_a_loop(x: tg.array2d[D], n: int, o: tg.array1d[D], p: tg.array1d[D]) -> None:
    t = tg.tile_load(x, shape=(3, 5))
    for k in range(n):
        if k % 2 == 0:
            t = t - tg.tile_reduce(softly, t, axis=1, keepdims=True) * 0.3
        else:
            t = t * tg.tile_prod(tg.sin(t), axis=0, keepdims=True) + tg.tile_max(t, axis=-1, keepdims=True)
        o[k] = tg.tile_reduce(lambda a, b: a + b + 0.5 * a * b, t)[0]
    tg.tile_store(p, tg.tile_min(t, axis=0) + tg.tile_sum(t, axis=0) * tg.tile_prod(t)[0])


def test_gradients_in_loops_and_branches(device: str) -> None:
    x = np.random.default_rng(0).uniform(0.2, 1, (3, 5))
    gradcheck(tg.kernel(in_a_loop), 1, [x, 3], [np.zeros(3), np.zeros(5)], device=device)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("axis", [None, 7, (0, 3, 6), (1, 2, 4, 5, 7)])
def test_gradients_of_eight_axes(name: str, axis: Any, device: str) -> None:
    function, shape = FOLDS[name], (2, 1, 2, 3, 1, 2, 1, 3)
    out = np.zeros(reduced_shape(shape, axis, False))
    target = tg.array(dtype=D, ndim=out.ndim)

    def kernel(a: tg.array(dtype=D, ndim=8), o: target) -> None:
        tg.tile_store(o, function(tg.tile_load(a, shape=shape), axis=axis))

    x = np.random.default_rng(0).permutation(72).reshape(shape) / 72.0 + 0.5
    gradcheck(tg.kernel(kernel), 1, [x], [out], device=device)


@settings(max_examples=15)
@given(cases())
def test_gradients_of_any_reduction(case: dict[str, Any]) -> None:
    function, shape = FOLDS[case["name"].removeprefix("arg")], case["shape"]
    axis, keepdims = case["axis"], case["keepdims"]
    out = np.zeros(reduced_shape(shape, axis, keepdims))
    source, target = tg.array(dtype=D, ndim=len(shape)), tg.array(dtype=D, ndim=out.ndim)

    def kernel(a: source, o: target) -> None:
        tg.tile_store(o, function(tg.tile_load(a, shape=shape), axis=axis, keepdims=keepdims))

    size = math.prod(shape)
    x = (np.random.default_rng(case["seed"]).permutation(size).reshape(shape) + 1) / size + 0.5
    x = x ** (4 / math.sqrt(size)) if case["name"] == "prod" else x
    device = "cpu" if case["seed"] % 3 else "interpret"
    gradcheck(tg.kernel(kernel), 1, [x], [out], device=device, block_dim=case["block_dim"])


# --- absent lanes -----------------------------------------------------------------------------------------------------


def minus_hundred(x: Any) -> Any:
    return x - 100


def test_t01_c4_absent_lanes_count_as_nothing(device: str) -> None:
    @tg.kernel
    def kernel(o: tg.array2d[int]) -> None:
        i = tg.tid()
        t = tg.tile(i + 1)
        o[0, i] = tg.tile_sum(t)[0]
        o[1, i] = tg.tile_sum(tg.tile_map(minus_hundred, t))[0]
        o[2, i] = tg.tile_min(t)[0] + tg.tile_argmin(a=-t)[0] * 1000
        o[3, i] = tg.tile_max(tg.tile_reshape(-t, (2, tg.block_dim() // 2)), axis=1)[0]
        for _ in range(2):
            t = t * 2
            if tg.block_dim() > 1:
                o[4, i] = tg.tile_min(t)[0]
        o[5, i] = tg.tile_min(t)[0]
        o[6, i] = tg.tile_reduce(lambda a, b: a + b + 1, t)[0]
        o[7, i] = tg.tile_prod(tg.where(t > 0, 1, 5))[0]
        o[8, i] = tg.tile_sum(tg.tile_broadcast(t + 1, shape=(3, tg.block_dim())), axis=1)[2]
        u = t + 0
        for _ in range(2):
            u += 1
            o[10, i] = tg.tile_min(u)[0]
        o[9, i] = int(tg.tile_all(t > 0)[0]) + 2 * int(tg.tile_any(t <= 0)[0])

    o = np.zeros((11, 100), I32)
    tg.launch(kernel, dim=100, inputs=[o], block_dim=64, device=device)
    for part in (slice(0, 64), slice(64, 100)):
        x = np.arange(1, 101)[part]
        n = len(x)
        expected = [
            x.sum(), (x - 100).sum(), x.min() + 1000 * (n - 1), (-x[:32]).max(), 4 * x.min(), 4 * x.min(),
            4 * x.sum() + n - 1, 1, (4 * x + 1).sum(), 1, 4 * x.min() + 2,
        ]  # fmt: skip
        assert o[:, part].tolist() == [[e] * n for e in expected]


def test_lanes_that_have_returned_count_as_nothing(device: str) -> None:
    @tg.kernel
    def kernel(x: tg.array1d[D], o: tg.array2d[D]) -> None:
        i = tg.tid()
        if i % 2 == 0:
            return
        t = tg.tile(x[i]) + 1.0
        o[0, i] = tg.tile_sum(t)[0]
        o[1, i] = tg.tile_reduce(lambda a, b: a * b, t)[0]
        o[2, i] = tg.tile_min(t, propagate_nan=True)[0]

    x, o = np.arange(2.0, 13.0), np.zeros((3, 11))
    tg.launch(kernel, dim=11, inputs=[x, o], block_dim=16, device=device)
    t = x[1::2] + 1
    assert o[:, 1].tolist() == [t.sum(), t.prod(), t.min()]
    gradcheck(kernel, 11, [x], [o], tiled=False, block_dim=16, device=device)


@pytest.mark.parametrize("block_dim", [1, 4, 8])
def test_c4_gradients_without_padding(block_dim: int, device: str) -> None:
    def kernel(x: tg.array1d[D], s: tg.array1d[D], o: tg.array1d[D]) -> None:
        t = tg.tile_load(x, shape=6)
        o[0] = tg.tile_sum(tg.log(t) * s[0])[0]
        o[1] = tg.tile_sum(t + s[1])[0]

    x, s, o = np.array([1.0, 1, 2, 2, 4, 4]), np.ones(2), np.zeros(2)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x, s], [o], device=device, block_dim=block_dim)
    np.testing.assert_allclose(pullback(np.ones(2))[1], [np.log(x).sum(), 6])  # a peer with blocks of 4: NaN, 8


# --- what users are told ----------------------------------------------------------------------------------------------

MISTAKES: list[tuple[Callable[[Any], Any], type[TilegradError], str]] = [
    (lambda t: tg.tile_prod(2.0), TypeMismatch, "tile_prod: `a` must be a tile"),
    (lambda t: tg.tile_prod(t, axis=2), ShapeMismatch, "axis 2 is out of range"),
    (lambda t: tg.tile_argmin(t, axis=(0, -2)), ShapeMismatch, "an axis is named twice"),
    (lambda t: tg.tile_min(t, axis=0.5), TypeMismatch, "axis must be a compile-time integer"),
    (lambda t: tg.tile_max(t, keepdim=True), TypeMismatch, "there is no parameter `keepdim`"),
    (lambda t: tg.tile_reduce(tg.add, 1.0), TypeMismatch, "tile_reduce: `a` must be a tile"),
    (lambda t: tg.tile_reduce("add", t), TypeMismatch, "must be a builtin or a function of two elements, it is 'add'"),
    (lambda t: tg.tile_reduce(lambda a, b: a < b, t), TypeMismatch, "the operator turns float32 into bool"),
    (lambda t: tg.tile_reduce(lambda a: a, t), TypeMismatch, "takes 1 argument"),
    (lambda t: tg.tile_reduce(tg.add, t > 0.0), TypeMismatch, "add is not defined for bool"),
    (lambda t: tg.tile_reduce(operator.add, t), TypeMismatch, "add is not a function that a kernel can call"),
    (lambda t: tg.tile_reduce(np.add, t), TypeMismatch, "add is not a function that a kernel can call"),
    (lambda t: tg.tile_reduce(tg.sin, t), TypeMismatch, "sin is not an operator on two elements"),
    (lambda t: tg.tile_reduce(tg.tile_sum, t), TypeMismatch, "tile_sum is not an operator on two elements"),
    (lambda t: tg.tile_reduce(lambda a, b: (a, b), t), TypeMismatch, "turns float32 into a tuple of 2"),
    (lambda t: tg.tile_all(t), TypeMismatch, "tile_all: the tile must hold bools"),
]


@pytest.mark.parametrize("k", range(len(MISTAKES)))
def test_mistakes_are_explained(k: int) -> None:
    call, kind, text = MISTAKES[k]

    def kernel(x: tg.array2d[float]) -> None:
        call(tg.tile_load(x, shape=(2, 3)))

    with pytest.raises(kind) as error:
        run(kernel, np.zeros((2, 3), F32), device="cpu")
    assert text in str(error.value)
