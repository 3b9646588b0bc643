"""Functions that take tiles: declared, passed by reference, returned; tiles that are printed, measured and copied."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from programs import build

F32 = np.float32


def run(function: Any, device: str, *args: Any, block_dim: int = 4) -> None:
    tg.launch_tiled(tg.kernel(function), dim=1, inputs=args, block_dim=block_dim, device=device)


# --- annotations -----------------------------------------------------------------------------------------------------


def declared(annotation: Any) -> str:
    return repr(getattr(annotation, "__tilegrad_annotation__", annotation))


def test_spellings_of_a_tile_type() -> None:
    assert declared(tg.tile) == "tile[Any]"
    assert declared(tg.tile[float]) == declared(tg.tile(dtype=tg.float32)) == "tile[float32]"
    same = {
        declared(a)
        for a in (
            tg.tile[float, 4, 8],
            tg.tile[tg.float32, (4, 8)],
            tg.tile(float, (4, 8)),
            tg.tile(dtype=float, shape=(4, 8), storage="shared", layout="rowmajor", strides=None, owner=True),
        )
    }
    assert same == {"tile[float32, 4, 8]"}
    assert declared(tg.tile(dtype=int, shape=7)) == "tile[int32, 7]"
    assert declared(tg.tile[Any, 4, Any]) == "tile[Any, 4, Any]"
    assert declared(tg.tile[tg.vec3, 5]) == "tile[vec3f, 5]"
    assert declared(tg.tile_stack(capacity=8, dtype=int)) == declared(tg.tile_stack[8, int])
    assert tg.tile[float, 4] == tg.tile[float, 4] != tg.tile[float, 5]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: tg.tile[float, 0], "must be positive"),
        (lambda: tg.tile[float, 2.5], "tile shape must be a compile-time constant"),
        (lambda: tg.tile[(float, *(1,) * 9)], "1 to 8 dimensions"),
        (lambda: tg.tile["x"], "'x' is not an element type"),
        (lambda: tg.tile(3.0), "is not an element type"),
        (lambda: tg.tile(dtype=float, shape=4, storage="global"), "storage must be"),
        (lambda: tg.tile_stack(capacity=0, dtype=float), "capacity must be a positive int"),
        (lambda: tg.tile_stack(capacity=4, dtype=str), "is not an element type"),
    ],
)
def test_wrong_annotations(wrong: Any, text: str) -> None:
    with pytest.raises(tg.TilegradError) as caught:
        wrong()
    assert text in str(caught.value)


# --- calls -----------------------------------------------------------------------------------------------------------


@tg.func
def scale(t: tg.tile[float], k: float):
    """Changes its tile in place."""
    t *= k
    t[0] += 1.0


@tg.func
def twice(t: tg.tile[float, 4]) -> tg.tile[float, 4]:
    return t + t


@tg.func
def outer(a: tg.tile(dtype=float, shape=3), b: tg.tile(dtype=float, shape=(4,), storage="shared")):
    return tg.tile_broadcast(tg.tile_reshape(a, (3, 1)), (3, 4)) * b


@tg.func
def anything(t: Any):
    return tg.tile_sum(t)[0]


@tg.func
def split(t: tg.tile[Any, Any, 2]):
    return t[:, 0], t[:, 1]


def test_by_reference_and_results(device: str) -> None:
    def kernel(x: tg.array1d[float], y: tg.array2d[float], z: tg.array2d[float]):
        t = tg.tile_load(x, shape=4)
        u = t
        scale(t, 2.0)
        tg.tile_store(y[0], t)
        tg.tile_store(y[1], u)  # the same tile
        scale(t[2:], 10.0)  # a view of it
        tg.tile_store(y[2], t)
        v = twice(t)
        scale(v, 0.0)
        tg.tile_store(y[3], t)
        tg.tile_store(z, outer(t[:3], t))
        a, b = split(tg.tile_reshape(t, (2, 2)))
        a += b
        y[4, 0], y[4, 1], y[4, 2], y[4, 3] = t[0], t[1], t[2], t[3]
        y[5, 0] = anything(t) + anything(tg.tile_ones((2, 3)))

    x, y, z = np.array([1, 2, 3, 4], F32), np.zeros((6, 4), F32), np.zeros((3, 4), F32)
    run(kernel, device, x, y, z)
    assert y[0].tolist() == y[1].tolist() == [3, 4, 6, 8]
    assert y[2].tolist() == y[3].tolist() == [3, 4, 61, 80]
    assert (z == np.outer(y[3, :3], y[3])).all()
    assert y[4].tolist() == [7, 4, 141, 80] and y[5, 0] == 7 + 4 + 141 + 80 + 6


def test_gradient_through_in_place_changes(device: str) -> None:
    @tg.func
    def step(t: tg.tile[tg.float64, 4], w: tg.tile[tg.float64, 4, 4]):
        t += tg.sin(w @ tg.tile_reshape(t, (4, 1)))[:, 0]
        return tg.tile_sum(t * t)

    def kernel(w: tg.array2d[tg.float64], x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
        t, m = tg.tile_load(x, shape=4), tg.tile_load(w, shape=(4, 4))
        total = tg.tile_zeros(1, dtype=tg.float64)
        for i in range(n):
            part = step(t, m)
            if i > 0:
                total += part
        tg.tile_store(y, total)

    def model(w: Any, x: Any) -> float:
        t, total = x.copy(), 0.0
        for i in range(4):
            t = t + np.sin(w @ t)
            total += (t @ t) if i > 0 else 0.0
        return total

    rng = np.random.default_rng(3)
    w, x, y = rng.standard_normal((4, 4)) / 2, rng.standard_normal(4), np.zeros(1)
    pullback = tg.vjp(tg.kernel(kernel), 1, [w, x, 4], [y], block_dim=4, device=device)
    np.testing.assert_allclose(y[0], model(w, x), rtol=1e-12)
    of_w, of_x = pullback(np.ones(1))[:2]
    h = 1e-6
    for k in range(4):
        e = h * np.eye(4)[k]
        np.testing.assert_allclose(of_x[k], (model(w, x + e) - model(w, x - e)) / (2 * h), rtol=1e-6)
        e = h * np.outer(np.eye(4)[k], np.eye(4)[1])
        np.testing.assert_allclose(of_w[k, 1], (model(w + e, x) - model(w - e, x)) / (2 * h), rtol=1e-6)


def test_composite_tiles(device: str) -> None:
    @tg.func
    def norms(t: tg.tile[tg.vec2, 3]):
        return tg.tile_map(lambda v: v[0] * v[0] + v[1] * v[1], t)

    def kernel(x: tg.array1d[tg.vec2], y: tg.array1d[float]):
        tg.tile_store(y, norms(tg.tile_load(x, shape=3)))

    x, y = np.arange(6, dtype=F32).reshape(3, 2), np.zeros(3, F32)
    run(kernel, device, x, y)
    assert y.tolist() == [1, 13, 41]

    def wrong(x: tg.array1d[tg.vec2]):
        norms(tg.tile_load(x, shape=2))

    with pytest.raises(tg.TypeMismatch, match=r"`t` is a vec2f tile \(2,\), the function declares tile\[vec2f, 3\]"):
        run(wrong, "cpu", x)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("twice(tg.tile_ones(5))", "argument `t` is a float32 tile (5,), the function declares tile[float32, 4]"),
        ("twice(tg.tile_ones(4, dtype=int))", "is a int32 tile (4,), the function declares tile[float32, 4]"),
        ("twice(tg.tile_ones((4, 1)))", "is a float32 tile (4, 1), the function declares tile[float32, 4]"),
        ("twice(1.0)", "is the literal 1.0, the function declares tile[float32, 4]"),
        ("twice(x)", "is a 1-D array of float32, the function declares tile[float32, 4]"),
        ("split(tg.tile_ones((2, 3)))", "is a float32 tile (2, 3), the function declares tile[Any, Any, 2]"),
        ("fill(tg.tile_ones(4))", "the function declares tile_stack(capacity=8, dtype=float32)"),
        ("fill(tg.tile_stack(4, float))", "is a stack of 4 float32, the function declares"),
        ("fill(tg.tile_stack(8, int))", "is a stack of 8 int32, the function declares"),
        ("print(tg.tile_stack(8, int))", "is used otherwise than by the functions of stacks"),
        ("twice(t=tg.tile_ones(4), u=1)", "has no parameter `u`"),
        ("tg.tile(dtype=float, shape=4)", "there is no parameter `dtype`"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: str, text: str) -> None:
    kernel = build(f"def kernel(x: tg.array1d[float]):\n    y = {call}", twice=twice, split=split, fill=fill)
    with pytest.raises(tg.TypeMismatch) as caught:
        tg.launch_tiled(kernel, dim=1, inputs=[np.zeros(4, F32)], block_dim=4)
    assert text in str(caught.value), str(caught.value)


@tg.func
def fill(s: tg.tile_stack(capacity=8, dtype=float)):
    tg.tile_stack_push(s, 2.5)


def test_stacks_go_by_reference(device: str) -> None:
    def kernel(n: tg.array1d[int]):
        s = tg.tile_stack(capacity=8, dtype=float)
        fill(s)
        n[0] = tg.tile_stack_count(s)

    n = np.zeros(1, np.int32)
    run(kernel, device, n)
    assert n[0] == 4


def test_a_kernel_takes_no_tiles() -> None:
    def kernel(t: tg.tile[float, 4]):
        pass

    with pytest.raises(tg.TypeMismatch) as caught:
        run(kernel, "cpu", np.zeros(4, F32))
    text = str(caught.value)
    assert "`t` of the kernel `kernel` is declared as tile[float32, 4]" in text and "tile_load(a, shape=...)" in text


def test_tile_is_still_a_function(device: str) -> None:
    """C71: Warp fails on tile(x[i])."""

    def kernel(x: tg.array1d[float], y: tg.array1d[float]):
        block, lane = tg.tid()
        y[0] = tg.tile_sum(tg.tile(x[lane]))[0]
        v = x[lane]
        y[lane + 1] = tg.untile(tg.tile(v) * 2.0)

    x, y = np.array([1, 2, 3, 4], F32), np.zeros(5, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], block_dim=4, device=device)
    assert y.tolist() == [10, 2, 4, 6, 8]
    assert pullback(np.array([1, 1, 10, 100, 1000], F32))[0].tolist() == [3, 21, 201, 2001]


# --- print, len, copy ------------------------------------------------------------------------------------------------


@tg.func
def show(t: tg.tile):
    print("shown", t)
    return len(t)


def test_printed_tiles(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    """C59: in Warp the second slice of a 3-D tile starts at 2, not 12. C60: int64 and uint8 print 6.9e-310."""

    def kernel(n: tg.array1d[int]):
        print(tg.tile_reshape(tg.tile_arange(24), (2, 3, 4)))
        n[0] = show(tg.tile_reshape(tg.tile_arange(16, dtype=int), (2, 2, 2, 2)))
        print(tg.tile_arange(2**40, 2**40 + 3, dtype=tg.int64))
        print(tg.tile_arange(-2, 1, dtype=tg.int8), tg.tile_arange(250, 256, dtype=tg.uint8), sep="; ")
        print(tg.tile_arange(3) > 1.0, tg.tile_full(2, 0.1, dtype=tg.float16), tg.tile_full(2, 0.1, dtype=tg.float64))
        print(f"n = {n[0]:03d}, t = {tg.tile_full((1, 2), 1.5)}")
        print(tg.tile_full(2, tg.vec3(1.0, 2.0, 3.0)))

    n = np.zeros(1, np.int32)
    run(kernel, device, n)
    assert n[0] == 2
    expected = [
        np.arange(24, dtype=F32).reshape(2, 3, 4),
        f"shown {np.arange(16, dtype=np.int32).reshape(2, 2, 2, 2)}",
        np.arange(2**40, 2**40 + 3),
        "[-2 -1  0]; [250 251 252 253 254 255]",
        f"[False False  True] {np.full(2, 0.1, np.float16)} [0.1 0.1]",
        "n = 002, t = [[1.5 1.5]]",
        "[[1. 2. 3.]\n [1. 2. 3.]]",
    ]
    assert capfd.readouterr().out == "".join(f"{x}\n" for x in expected)


def test_printing_from_lanes_and_blocks(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    """L15: a tile is printed once for each block, a lane's value once for each lane; bools and bytes as values."""

    def kernel(x: tg.array1d[float]):
        block, lane = tg.tid()
        print("block", block, tg.tile_load(x, shape=2, offset=2 * block))
        print(lane, lane > 1, tg.int8(65 + lane), tg.vec2(x[lane], 0.5))
        tg.printf("done\n")

    x = np.arange(4, dtype=F32)
    tg.launch_tiled(tg.kernel(kernel), dim=2, inputs=[x], block_dim=3, device=device)
    lanes = [f"{k} {k > 1} {65 + k} [{float(k)} 0.5]" for k in range(3)]
    expected = ["block 0 [0. 1.]", *lanes, "done", "block 1 [2. 3.]", *lanes, "done"]
    out = capfd.readouterr().out.replace(",", "")
    assert out == "\n".join(expected) + "\n"


def test_len_and_copy(device: str) -> None:
    def kernel(x: tg.array1d[float], y: tg.array2d[float], n: tg.array1d[int]):
        t = tg.tile_load(x, shape=4)
        same, other = t, tg.copy(t)
        view, fresh = t[1:3], tg.copy(t[1:3])
        t[1] = 100.0
        tg.tile_store(y[0], same)
        tg.tile_store(y[1], other)
        tg.tile_store(y[2], view)
        tg.tile_store(y[3], fresh)
        n[0], n[1], n[2] = len(t), len(view), len(tg.tile_zeros((5, 2)))
        u = tg.tile_zeros(tg.static(len(t)))
        n[3] = u.size

    x, y, n = np.arange(4, dtype=F32), np.zeros((4, 4), F32), np.zeros(4, np.int32)
    run(kernel, device, x, y, n)
    assert y.tolist() == [[0, 100, 2, 3], [0, 1, 2, 3], [100, 2, 0, 0], [1, 2, 0, 0]]
    assert n.tolist() == [4, 2, 5, 4]


def test_gradient_of_a_copy(device: str) -> None:
    """C18: in Warp the copy of a view does not compile with gradients."""

    def kernel(x: tg.array2d[float], y: tg.array1d[float]):
        t = tg.tile_load(x, shape=(2, 3))
        v = t[1]
        w = tg.copy(v)
        v *= 2.0
        tg.tile_store(y, v * w)

    x, y = np.arange(6, dtype=F32).reshape(2, 3), np.zeros(3, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], device=device)
    assert y.tolist() == [18, 32, 50]
    assert pullback(np.ones(3, F32))[0].tolist() == [[0, 0, 0], [12, 16, 20]]


# --- constants of enumerations ---------------------------------------------------------------------------------------


class Mode(enum.IntEnum):
    SLOW = 3
    FAST = 7


class Bits(enum.IntFlag):
    A = 1
    B = 2


def test_enumerations_are_integers(device: str) -> None:
    """D15: an IntEnum is its number, and ~ of a flag is that of integers: -2 (Python's IntFlag would say B)."""

    @tg.func
    def is_fast(mode: int):
        return mode == Mode.FAST

    def kernel(o: tg.array1d[int]):
        o[0] = Mode.SLOW
        o[1] = ~Bits.A
        o[2] = Bits.A | Bits.B
        o[3] = 1 if is_fast(Mode.FAST) else 0
        t = tg.tile_full(Mode.SLOW, int(Mode.FAST))
        o[4] = tg.tile_sum(t)[0]

    o = np.zeros(5, np.int32)
    run(kernel, device, o)
    assert o.tolist() == [3, -2, 3, 1, 21]


# --- tiles of one element in loops -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["for", "while"])
def test_a_tile_of_one_element_is_carried(form: str, device: str) -> None:
    """It lives in a register unless an op wants it in memory, inside of the loop, in its condition, or after it."""
    loop = {
        "for": ["    for i in range(n):"],
        "while": ["    i = -1", "    while i < n - 1 and t[0] < 50.0:", "        i += 1"],
    }
    body = ["        t[0] = t[0] + x[i]", "        if i == 1:", "            t[0] = t[0] * 3.0", "        u = u + t"]
    lines = [
        "def kernel(x: tg.array1d[float], n: int, y: tg.array1d[float]):",
        "    t, u = tg.tile_zeros(1), tg.tile_ones(1)",
    ]
    kernel = build("\n".join([*lines, *loop[form], *body, "    y[0] = t[0]", "    tg.tile_store(y, u, offset=1)"]))
    x, y = np.array([1, 2, 3, 4], F32), np.zeros(2, F32)
    pullback = tg.vjp(kernel, 1, [x, 4], [y], block_dim=2, device=device)
    assert y.tolist() == [16, 1 + 1 + 9 + 12 + 16]
    assert pullback(np.array([1, 10], F32))[0].tolist() == [3 + 10 * (1 + 9), 3 + 10 * 9, 1 + 10 * 2, 1 + 10]
