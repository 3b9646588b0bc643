"""Tiles from nothing: filled, counted, by a function of the indices, or with one lane's value; large ones."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build
from tilegrad import compiler
from tilegrad import dtypes as dt
from tilegrad.config import config
from tilegrad.ops.catalog import PUBLIC

F32 = np.float32
SHAPES = (
    1,
    7,
    (1,),
    (3, 5),
    (2, 3, 4),
    (2, 1, 3, 2),
    (1, 2, 1, 2, 3),
    (2, 1, 2, 1, 2, 3),
    (1,) * 7,
    (2, 1, 1, 2, 1, 1, 3, 2),
)


def run(function: Any, device: str, *args: Any, block_dim: int = 4) -> None:
    tg.launch_tiled(tg.kernel(function), dim=1, inputs=args, block_dim=block_dim, device=device)


def message(function: Any, *args: Any) -> str:
    with pytest.raises(tg.TilegradError) as caught:
        run(function, "cpu", *args)
    return str(caught.value)


def extents(shape: Any) -> tuple[int, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


# --- zeros, ones, full, empty ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dt.SCALARS, ids=str)
def test_every_dtype(dtype: tg.DType, device: str) -> None:
    def kernel(a: Any, b: Any, c: Any, d: Any, x: Any):
        tg.tile_store(a, tg.tile_zeros(5, dtype=dtype))
        tg.tile_store(b, tg.tile_ones(shape=(5,), dtype=dtype, storage="shared"))
        tg.tile_store(c, tg.tile_full(5, 1, dtype=dtype))
        tg.tile_store(d, tg.tile_full(shape=5, value=x[0]))

    a, b, c, d = (np.full(5, 7).astype(dtype.np) for _ in range(4))
    run(kernel, device, a, b, c, d, np.full(1, 1, dtype.np))
    assert (a == 0).all() and (b == 1).all() and (c == 1).all() and (d == 1).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_rank(shape: Any, device: str) -> None:
    """A tile of rank r goes through its first element, its shape and the sum of all."""

    def kernel(o: tg.array1d[float]):
        t = tg.tile_full(shape, 3.0) + tg.tile_ones(shape) + tg.tile_zeros(shape) + tg.tile_empty(shape)
        o[0] = tg.tile_sum(t)[0]
        o[1] = float(t.size)
        o[2] = float(len(t))

    o = np.zeros(3, F32)
    run(kernel, device, o)
    size = math.prod(extents(shape))
    assert o.tolist() == [4 * size, size, extents(shape)[0]]


def test_the_dtype_of_full_is_that_of_its_value(device: str) -> None:
    def kernel(a: tg.array1d[int], b: tg.array1d[float], c: tg.array1d[tg.float64], d: tg.array1d[tg.bool]):
        tg.tile_store(a, tg.tile_full(2, 3))
        tg.tile_store(b, tg.tile_full(2, 3.5))
        tg.tile_store(c, tg.tile_full(2, tg.float64(0.1)))
        tg.tile_store(d, tg.tile_full(2, True))

    a, b, c, d = np.zeros(2, np.int32), np.zeros(2, F32), np.zeros(2), np.zeros(2, bool)
    run(kernel, device, a, b, c, d)
    assert a[0] == 3 and b[1] == 3.5 and c[1] == 0.1 and d.all()


def test_gradient_of_a_run_time_fill(device: str) -> None:
    """C16: Warp's tile_full has no adjoint and gives 0 in place of 12."""

    def kernel(x: tg.array1d[float], y: tg.array2d[float]):
        t = tg.tile_full((3, 4), x[0])
        tg.tile_store(y, t)

    y = np.zeros((3, 4), F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [np.array([2.0], F32)], [y], device=device)
    assert (y == 2).all() and pullback(np.ones((3, 4), F32))[0].tolist() == [12.0]


def test_gradient_of_a_fill_in_a_loop_and_a_branch(device: str) -> None:
    def kernel(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
        total = tg.tile_zeros(4, dtype=tg.float64)
        for i in range(3):
            if i != 1:
                total += tg.tile_full(4, x[i] * x[i])
            else:
                total = total * tg.tile_full(4, x[i])
        tg.tile_store(y, total)

    x, y = np.array([2.0, 3.0, 5.0]), np.zeros(4)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], device=device)
    assert (y == 4 * 3 + 25).all()
    assert pullback(np.ones(4))[0].tolist() == [4 * 2 * 2 * 3, 4 * 4, 4 * 10]


def test_composite_element_types(device: str) -> None:
    vec, mat, quat = tg.vec3, tg.mat22, tg.quat

    def kernel(a: tg.array1d[vec], b: tg.array1d[mat], c: tg.array1d[quat], x: tg.array1d[float]):
        tg.tile_store(a, tg.tile_full(2, vec(1.0, 2.0, x[0])) + tg.tile_ones(2, dtype=vec))
        tg.tile_store(b, tg.tile_ones(2, dtype=mat) + tg.tile_full(2, x[0], dtype=mat) + tg.tile_empty(2, dtype=mat))
        tg.tile_store(c, tg.tile_ones(2, dtype=quat))
        tg.tile_store(c, tg.tile_zeros(1, dtype=quat), offset=1)

    a, b, c = np.zeros((2, 3), F32), np.zeros((2, 2, 2), F32), np.full((2, 4), 7, F32)
    run(kernel, device, a, b, c, np.array([5.0], F32))
    assert a.tolist() == [[2, 3, 6]] * 2 and (b == 6).all() and c.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]


@tg.struct
class Body:
    mass: float
    at: tg.vec2


def test_structs(device: str) -> None:
    def kernel(o: tg.array1d[float]):
        t = tg.tile_full(3, Body(mass=2.0, at=tg.vec2(3.0, 4.0)))
        o[0] = t[1].mass
        o[1] = t[2].at[1]
        z = tg.tile_zeros(3, dtype=Body)
        o[2] = z[0].at[0]

    o = np.ones(3, F32)
    run(kernel, device, o)
    assert o.tolist() == [2, 4, 0]

    def ones(o: tg.array1d[float]):
        tg.tile_ones(3, dtype=Body)

    assert "tile_ones: it is not clear what a Body of ones is" in message(ones, o)


# --- what is not written yet -----------------------------------------------------------------------------------------


def test_debug_mode_shows_what_is_not_written(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @tg.kernel
    def kernel(a: tg.array1d[float], b: tg.array1d[int], c: tg.array1d[tg.uint8], d: tg.array1d[tg.float16]):
        t = tg.tile_empty(3)
        t[1] = 5.0
        tg.tile_store(a, t)
        tg.tile_store(b, tg.tile_empty(3, dtype=int))
        tg.tile_store(c, tg.tile_empty(3, dtype=tg.uint8))
        tg.tile_store(d, tg.tile_empty(3, dtype=tg.float16))

    def now() -> list[Any]:
        out = [np.ones(3, d) for d in (F32, np.int32, np.uint8, np.float16)]
        tg.launch_tiled(kernel, dim=1, inputs=out, device=device)
        return [x.tolist() for x in out]

    plain = [[0, 5, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert now() == plain
    monkeypatch.setattr(config, "debug", True)
    a, b, c, d = now()
    assert math.isnan(a[0]) and a[1] == 5 and math.isnan(a[2]) and np.isnan(d).all()
    assert np.array(b, np.int32).view(np.uint32).tolist() == [0xCCCCCCCC] * 3 and c == [0xCC] * 3
    monkeypatch.setattr(config, "debug", False)
    assert now() == plain


def test_what_debug_mode_fills_in_has_no_influence_on_gradients(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "debug", True)

    def kernel(x: tg.array1d[float], y: tg.array1d[float]):
        t = tg.tile_empty(4)
        for i in range(4):
            t[i] = x[i] * 2.0
        tg.tile_store(y, t)

    y = np.zeros(4, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [np.arange(4, dtype=F32)], [y], device=device)
    assert y.tolist() == [0, 2, 4, 6] and pullback(np.ones(4, F32))[0].tolist() == [2] * 4


# --- arange ----------------------------------------------------------------------------------------------------------


ARANGES = [(5,), (2, 6), (0, 10, 3), (1.0, 2.0, 0.25), (5, 0, -1), (5, -2, -3), (0.0, 1.0, 0.1), (-3, 3), (1, 2, 7)]


@pytest.mark.parametrize("args", ARANGES, ids=str)
def test_arange_is_that_of_numpy(args: tuple[Any, ...], device: str) -> None:
    """C65: in Warp 1.10 (0, 10, 3) had 3 elements."""
    expected = np.arange(*args, dtype=F32)
    size = len(expected)

    def kernel(y: tg.array1d[float], n: tg.array1d[int]):
        t = tg.tile_arange(*args)
        n[0] = len(t)
        tg.tile_store(y, t)

    y, n = np.zeros(size, F32), np.zeros(1, np.int32)
    run(kernel, device, y, n)
    assert n[0] == size
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@settings(max_examples=25)
@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool), st.sampled_from(dt.NUMERIC))
def test_arange_of_integers(start: int, stop: int, step: int, dtype: tg.DType) -> None:
    expected = np.arange(start, stop, step)
    if not len(expected) or (dtype.kind == "u" and min(expected) < 0):
        return
    kernel = build(
        "def kernel(y):\n    tg.tile_store(y, tg.tile_arange(start, stop, step, dtype=dtype))",
        start=start, stop=stop, step=step, dtype=dtype,
    )  # fmt: skip
    for device in ("interpret", "cpu"):
        y = np.zeros(len(expected), dtype.np)
        tg.launch_tiled(kernel, dim=1, inputs=[y], device=device)
        assert y.astype(np.int64).tolist() == expected.tolist()


def test_arange_by_keyword_and_dtypes(device: str) -> None:
    def kernel(a: tg.array1d[int], b: tg.array1d[tg.float64], c: tg.array1d[tg.float16], d: tg.array1d[tg.uint64]):
        tg.tile_store(a, tg.tile_arange(start=2, stop=5, dtype=int))
        tg.tile_store(b, tg.tile_arange(0.1, 0.35, step=0.1, dtype=tg.float64, storage="shared"))
        tg.tile_store(c, tg.tile_arange(stop=3, dtype=tg.float16))
        tg.tile_store(d, tg.tile_arange(2**63, 2**63 + 3, dtype=tg.uint64))

    a, b, c, d = np.zeros(3, np.int32), np.zeros(3), np.zeros(3, np.float16), np.zeros(3, np.uint64)
    run(kernel, device, a, b, c, d)
    assert a.tolist() == [2, 3, 4] and b.tolist() == [0.1, 0.1 + 0.1, 0.1 + 2 * 0.1] and c.tolist() == [0, 1, 2]
    assert d.tolist() == [2**63, 2**63 + 1, 2**63 + 2]


def test_gradient_of_start_and_step(device: str) -> None:
    """C15: the start and the step have gradients. Warp's adjoint of tile_arange is empty."""

    def kernel(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
        tg.tile_store(y, tg.tile_arange(5, dtype=tg.float64) * x[1] + x[0])

    y = np.zeros(5)
    pullback = tg.vjp(tg.kernel(kernel), 1, [np.array([3.0, 0.5])], [y], device=device)
    assert y.tolist() == [3, 3.5, 4, 4.5, 5]
    assert pullback(np.array([1.0, 2, 3, 4, 5]))[0].tolist() == [15, 40]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("tg.tile_arange(0)", "is empty; a tile has at least one element"),
        ("tg.tile_arange(5, 5)", "is empty"),
        ("tg.tile_arange(0, 5, -1)", "is empty"),
        ("tg.tile_arange(0, 5, 0)", "step is zero"),
        ("tg.tile_arange(1, 2, 3, 4)", "takes stop, or start and stop, or start, stop and step"),
        ("tg.tile_arange(5, end=6)", "there is no parameter `end`"),
        ("tg.tile_arange(0.0, 1.0, 0.5, dtype=int)", "0.5 is not a value of int32"),
        ("tg.tile_arange(300, dtype=tg.uint8)", "299 is not a value of uint8"),
        ("tg.tile_arange(-1, 3, dtype=tg.uint32)", "-1 is not a value of uint32"),
        ("tg.tile_arange(2, dtype=tg.bool)", "is not a value of bool"),
        ("tg.tile_arange(n)", "must be compile-time numbers, one is int32"),
        ("tg.tile_arange(x[0], 5.0)", "write tile_arange(n) * step + start"),
        ("tg.tile_zeros(0)", "every dimension of a tile must be positive"),
        ("tg.tile_zeros((3, -1))", "dimension 1 is -1"),
        ("tg.tile_ones(())", "a tile has 1 to 8 dimensions"),
        ("tg.tile_ones((1,) * 9)", "this shape has 9"),
        ("tg.tile_zeros(n)", "shape must be a compile-time constant, it is the parameter `n`"),
        ("tg.tile_full((2, n), 1.0)", "shape[1] must be a compile-time constant"),
        ("tg.tile_empty(2.5)", "tile shape must be a compile-time constant, but dimension 0 is 2.5"),
        ("tg.tile_zeros(2, dtype=str)", "is not an element type"),
        ("tg.tile_zeros(2, storage='global')", 'storage must be "register" or "shared"'),
        ("tg.tile_full(2, 1.5, dtype=int)", "1.5 is not a value of int32"),
        ("tg.tile_full(2, tg.tile_zeros(3))", "the value must be a number, it is a float32 tile (3,)"),
        ("tg.tile_full(2, lane)", "the value differs between the lanes"),
        ("tg.tile_full(2, tg.vec3(1.0), dtype=tg.vec2)", "the value is vec3f, dtype is vec2f"),
        ("tg.tile_from_thread(2, 1.0, 4)", "thread_idx 4 is not a lane of the block, which has 4"),
        ("tg.tile_from_thread(2, 1.0, -1)", "thread_idx -1 is not a lane of the block"),
        ("tg.tile_from_thread(2, 1.0, lane)", "thread_idx differs between the lanes"),
        ("tg.tile_from_thread(2, 1.0, 0.5)", "thread_idx must be an integer"),
        ("tg.tile_from_thread(n, 1.0, 0)", "must be a compile-time constant"),
        ("tg.tile_fromfunction(lambda i: 1.0, (2, 3))", "takes 1 argument, 2 are given"),
        ("tg.tile_fromfunction(lambda i: float(lane), 2)", "uses a value that differs between lanes"),
        ("tg.tile_fromfunction(3, 2)", "`f` must be a function of 1 indices"),
        ("tg.tile_fromfunction(lambda i: i, n)", "must be a compile-time constant"),
    ],
)  # fmt: skip
def test_errors(call: str, text: str) -> None:
    kernel = build(f"def kernel(n: int, x: tg.array1d[float]):\n    block, lane = tg.tid()\n    t = {call}")
    with pytest.raises(tg.TilegradError) as caught:
        tg.launch_tiled(kernel, dim=1, inputs=[4, np.zeros(1, F32)], block_dim=4)
    assert text in str(caught.value), str(caught.value)


# --- by a function of the indices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(1, 9))
def test_fromfunction_of_every_rank(rank: int, device: str) -> None:
    shape = (3, 2, 2, 1, 2, 3, 1, 2)[:rank]
    names = "ijklmnop"[:rank]
    body = " + ".join(f"{k + 2} * {name} * {name}" for k, name in enumerate(names))
    text = f"def kernel(y):\n    t = tg.tile_fromfunction(lambda {', '.join(names)}: {body}, shape)\n"
    kernel = build(text + "    tg.tile_store(y, tg.tile_reshape(t, size))", shape=shape, size=math.prod(shape))
    y = np.zeros(math.prod(shape), np.int32)
    tg.launch_tiled(kernel, dim=1, inputs=[y], block_dim=3, device=device)
    grid = np.indices(shape)
    assert y.tolist() == sum((k + 2) * grid[k] ** 2 for k in range(rank)).ravel().tolist()


@tg.func
def hilbert(i: int, j: int):
    return 1.0 / float(i + j + 1)


def test_fromfunction_with_functions_ops_and_dtypes(device: str) -> None:
    def kernel(a: tg.array2d[float], b: tg.array2d[int], c: tg.array1d[tg.float64], d: tg.array2d[tg.bool]):
        tg.tile_store(a, tg.tile_fromfunction(hilbert, shape=(4, 3)))
        tg.tile_store(b, tg.tile_fromfunction(tg.add, (4, 3)))
        tg.tile_store(c, tg.tile_fromfunction(lambda i: 0.5, shape=4, dtype=tg.float64, storage="shared"))
        tg.tile_store(d, tg.tile_fromfunction(lambda i, j: i == j, (3, 3)))

    a, b, c, d = np.zeros((4, 3), F32), np.zeros((4, 3), np.int32), np.zeros(4), np.zeros((3, 3), bool)
    run(kernel, device, a, b, c, d)
    i, j = np.indices((4, 3))
    assert (a == (F32(1) / (i + j + 1).astype(F32))).all() and (b == i + j).all() and (c == 0.5).all()
    assert (d == np.eye(3, dtype=bool)).all()


def test_fromfunction_of_vectors(device: str) -> None:
    def kernel(y: tg.array1d[tg.vec2]):
        tg.tile_store(y, tg.tile_fromfunction(lambda i: tg.vec2(float(i), 2.0), 3))

    y = np.zeros((3, 2), F32)
    run(kernel, device, y)
    assert y.tolist() == [[0, 2], [1, 2], [2, 2]]


def test_gradient_of_what_the_function_captures(device: str) -> None:
    def kernel(x: tg.array1d[tg.float64], y: tg.array2d[tg.float64]):
        a, b = x[0], x[1]

        def entry(i: int, j: int):
            base = tg.float64(i + 1) * a
            if i == j:
                base = base * b
            return base + b ** tg.float64(j)

        tg.tile_store(y, tg.tile_fromfunction(entry, (3, 4)))

    x, y = np.array([1.5, 0.75]), np.zeros((3, 4))
    ct = np.arange(12.0).reshape(3, 4) - 4
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], device=device)
    i, j = np.indices((3, 4))

    def value(a: float, b: float) -> Any:
        return (i + 1) * a * np.where(i == j, b, 1) + b**j

    np.testing.assert_allclose(y, value(*x))
    h = 1e-6
    slopes = [(ct * (value(*(x + e)) - value(*(x - e)))).sum() / (2 * h) for e in h * np.eye(2)]
    np.testing.assert_allclose(pullback(ct)[0], slopes, rtol=1e-7)


# --- from one lane ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_dim", [1, 5, 64])
def test_from_thread(block_dim: int, device: str) -> None:
    def kernel(x: tg.array1d[float], which: int, y: tg.array2d[float], z: tg.array2d[float]):
        block, lane = tg.tid()
        tg.tile_store(y, tg.tile_from_thread(shape=(2, 3), value=x[lane] * 2.0, thread_idx=which))
        tg.tile_store(z, tg.tile_from_thread((2, 3), x[0], 0, storage="shared"))

    x = np.arange(1, block_dim + 1, dtype=F32)
    for which in {0, block_dim // 2, block_dim - 1}:
        y, z = np.zeros((2, 3), F32), np.zeros((2, 3), F32)
        run(kernel, device, x, which, y, z, block_dim=block_dim)
        assert (y == 2 * x[which]).all() and (z == x[0]).all()
    for which in (-1, block_dim, 2**31 - 1):
        with pytest.raises(tg.KernelIndexError, match=f"thread_idx {which} is not a lane of the block"):
            run(kernel, device, x, which, y, z, block_dim=block_dim)


def test_gradient_goes_to_the_lane(device: str) -> None:
    """C16: Warp's tile_from_thread has no adjoint."""

    def kernel(x: tg.array1d[float], y: tg.array1d[float]):
        block, lane = tg.tid()
        for k in range(3):
            tg.tile_store(y, tg.tile_from_thread(2, x[lane] * x[lane], k + 1) * float(k + 1), offset=2 * k)

    x, y = np.array([1, 2, 3, 4, 5], F32), np.zeros(6, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], block_dim=5, device=device)
    assert y.tolist() == [4, 4, 18, 18, 48, 48]
    assert pullback(np.ones(6, F32))[0].tolist() == [0, 2 * 4, 4 * 6, 6 * 8, 0]


@settings(max_examples=12)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 40), st.data())
def test_devices_agree_on_every_shape_and_block(sizes: list[int], block_dim: int, data: st.DataObject) -> None:
    shape, size, lane = tuple(sizes), math.prod(sizes), data.draw(st.integers(0, block_dim - 1))
    dtype = data.draw(st.sampled_from([tg.float32, tg.float64, tg.float16, tg.int8, tg.uint64]))
    names = "ijklm"[: len(shape)]
    kernel = build(
        "def kernel(x, y: tg.array1d[tg.float64]):\n    block, lane = tg.tid()\n"
        f"    t = tg.tile_fromfunction(lambda {', '.join(names)}: {' + 10 * '.join(names)}, shape, dtype=tg.float64)\n"
        f"    u = tg.tile_from_thread(shape, x[lane], {lane}) + tg.tile_full(shape, x[0])\n"
        "    tg.tile_store(y, tg.tile_reshape(t + tg.tile_astype(u, tg.float64), size))",
        shape=shape, size=size,
    )  # fmt: skip
    x = np.arange(1, block_dim + 1).astype(dtype.np)
    grid = sum(np.indices(shape)[k] * (10 if k else 1) for k in range(len(shape)))
    for device in ("interpret", "cpu"):
        y = np.zeros(size)
        tg.launch_tiled(kernel, dim=1, inputs=[x, y], block_dim=block_dim, device=device)
        assert y.tolist() == (grid + float(x[lane]) + float(x[0])).ravel().tolist()


def test_an_absent_lane_has_nothing(device: str) -> None:
    def kernel(x: tg.array1d[float], o: tg.array1d[float]):
        i = tg.tid()
        t = tg.tile_from_thread(2, x[i], 3)
        o[i] = t[1]

    o = np.ones(6, F32)
    tg.launch(tg.kernel(kernel), dim=6, inputs=[np.arange(1, 7, dtype=F32), o], block_dim=4, device=device)
    assert o.tolist() == [4, 4, 4, 4, 0, 0]


def test_a_vector_of_one_lane(device: str) -> None:
    def kernel(y: tg.array1d[tg.vec2]):
        block, lane = tg.tid()
        tg.tile_store(y, tg.tile_from_thread(2, tg.vec2(float(lane), 7.0), 2))

    y = np.zeros((2, 2), F32)
    run(kernel, device, y)
    assert y.tolist() == [[2, 7]] * 2


def test_a_cooperative_call_where_lanes_part() -> None:
    """T06: refused when it is compiled."""

    def kernel(o: tg.array1d[float]):
        block, lane = tg.tid()
        if lane % 2 == 0:
            t = tg.tile_from_thread(2, 1.0, 0)
            o[0] = t[0]

    text = message(kernel, np.zeros(1, F32))
    assert "tile_from_thread is a cooperative call" in text and "`lane % 2 == 0`" in text


# --- large tiles -----------------------------------------------------------------------------------------------------


def forty(x: tg.array2d[float], y: tg.array1d[float]):
    total = 0.0
    for k in range(40):
        t = tg.tile_load(x, shape=(64, 64)) + float(k)
        u = tg.tile_transpose(t) @ t
        total += u[1, 2]
    y[0] = total


def forty_names() -> Any:
    """40 tiles of 64x64, one after another, each with a name of its own and written in place."""
    lines = ["def kernel(x: tg.array2d[float], y: tg.array1d[float]):"]
    for k in range(40):
        lines += [f"    t{k} = tg.tile_load(x, shape=(64, 64)) * {k + 1}.0", f"    t{k}[{k}, 2] = 1.0"]
        lines += [f"    y[{k}] = tg.tile_sum(t{k})[0] + t{k}[{k}, 3]"]
    return build("\n".join(lines))


def test_forty_tiles_one_after_another(device: str) -> None:
    """Y03: tiles that are not alive together share memory."""
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(F32)
    y = np.zeros(1, F32)
    run(forty, device, x, y)
    wide = [x.astype(np.float64) + k for k in range(40)]
    np.testing.assert_allclose(y[0], sum(t[:, 1] @ t[:, 2] for t in wide), rtol=1e-4)

    many, kernel = np.zeros(40, F32), forty_names()
    tg.launch_tiled(kernel, dim=1, inputs=[x, many], device=device)
    expected = [(k + 1) * (x.sum() - x[k, 2] + x[k, 3]) + 1 for k in range(40)]
    np.testing.assert_allclose(many, expected, rtol=1e-3, atol=1e-2)
    assert compiler.compiled(kernel.ir(x, many)).scratch_bytes <= 5 * x.nbytes


def test_a_large_tile_on_a_thread_with_a_small_stack() -> None:
    """Y03: 8 MB in one tile; Warp's CPU code keeps tiles on the stack."""

    @tg.kernel
    def kernel(y: tg.array1d[tg.float64]):
        t = tg.tile_fromfunction(lambda i, j: tg.float64(i) * 1024.0 + tg.float64(j), (1024, 1024))
        u = tg.tile_transpose(t)
        u[3, 5] = 0.0
        y[0] = u[1, 2]
        y[1] = tg.tile_sum(u)[0]

    y = np.zeros(2)
    old = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: tg.launch_tiled(kernel, dim=1, inputs=[y], device="cpu"))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    n = 1024 * 1024
    assert y.tolist() == [2 * 1024 + 1, n * (n - 1) / 2 - (5 * 1024 + 3)]


# --- numbers and launches that constructors meet ---------------------------------------------------------------------


def test_constants_of_64_bits(device: str) -> None:
    """D09. Warp: rounded through float32, a lost sign, and a float64 of unsigned and signed."""
    c = tg.float64(2.5)

    def kernel(x: tg.array1d[tg.float64], n: tg.array1d[tg.int64], u: tg.array1d[tg.uint64]):
        tg.tile_store(x, tg.tile_full(1, tg.float64(0.1)))
        x[1] = -c * 4.0
        tg.tile_store(n, tg.tile_full(1, tg.int64(2**53 + 1)))
        tg.tile_store(u, tg.tile_full(1, tg.uint64(2**61 - 1)) + tg.tile_full(1, tg.uint64(2**61 - 5)))

    x, n, u = np.zeros(2), np.zeros(1, np.int64), np.zeros(1, np.uint64)
    run(kernel, device, x, n, u)
    assert x.tolist() == [0.1, -10.0] and n[0] == 9007199254740993 and u[0] == 4611686018427387898


def test_the_block_is_as_long_as_was_asked_for(device: str) -> None:
    """T03: the same kernel with two block sizes; a loop in steps of it visits every item once."""

    @tg.kernel
    def kernel(n: tg.array1d[int], seen: tg.array1d[int], sums: tg.array1d[int]):
        block, lane = tg.tid()
        n[0] = tg.block_dim()
        for i in range(lane, 100, tg.block_dim()):
            seen[i] += 1
        t = tg.tile_full(tg.block_dim(), 1)
        sums[0] = tg.tile_sum(t)[0] + tg.tile_sum(tg.tile(lane))[0]

    for block_dim in (8, 32, 8):
        n, seen, sums = np.zeros(1, np.int32), np.zeros(100, np.int32), np.zeros(1, np.int32)
        tg.launch_tiled(kernel, dim=1, inputs=[n, seen, sums], block_dim=block_dim, device=device)
        assert n[0] == block_dim and (seen == 1).all()
        assert sums[0] == block_dim + block_dim * (block_dim - 1) // 2


@pytest.mark.parametrize("dim", [(2, 2, 2), 4, (0, 3, 2), 0])
def test_indices_and_dimensions_of_the_launch(dim: Any) -> None:
    """T08: two indices need two dimensions, whether or not a dimension is 0."""

    @tg.kernel
    def kernel(o: tg.array1d[int]):
        i, j = tg.tid()
        o[0] = i + j

    with pytest.raises(tg.TypeMismatch, match="2 indices are taken from tid"):
        tg.launch(kernel, dim=dim, inputs=[np.zeros(1, np.int32)])


def test_constructors_are_public() -> None:
    names = {
        "tile_zeros",
        "tile_ones",
        "tile_empty",
        "tile_full",
        "tile_arange",
        "tile_fromfunction",
        "tile_from_thread",
    }
    assert names <= set(PUBLIC) and all(getattr(tg, n) is PUBLIC[n] for n in names)
