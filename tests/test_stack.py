"""Stacks of lanes: against a Python list, in loops, branches and functions, with gradients, for every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build
from tilegrad import dtypes as dt

F32 = np.float32


def run(function: Any, device: str, *args: Any, block_dim: int = 4) -> None:
    tg.launch_tiled(tg.kernel(function), dim=1, inputs=args, block_dim=block_dim, device=device)


class Model:
    """A stack as a list: lanes push and pop in their order."""

    def __init__(self, capacity: int) -> None:
        self.items: list[Any] = []
        self.capacity = capacity

    def push(self, values: Any, wanted: Any) -> list[int]:
        slots = []
        for value, has in zip(values, wanted, strict=True):
            fits = bool(has) and len(self.items) < self.capacity
            slots.append(len(self.items) if fits else -1)
            self.items += [value] if fits else []
        return slots

    def pop(self, wanted: Any) -> tuple[list[Any], list[int]]:
        values, slots = [], []
        for has in wanted:
            some = bool(has) and bool(self.items)
            values.append(self.items.pop() if some else 0)
            slots.append(len(self.items) if some else -1)
        return values, slots


def test_push_pop_count_and_clear(device: str) -> None:
    def kernel(x: tg.array1d[float], slots: tg.array2d[int], y: tg.array2d[float], n: tg.array1d[int]):
        block, lane = tg.tid()
        s = tg.tile_stack(capacity=6, dtype=float)
        n[0] = tg.tile_stack_count(s)
        slots[0, lane] = tg.tile_stack_push(s, x[lane], lane != 1)
        n[1] = tg.tile_stack_count(s)
        slots[1, lane] = tg.tile_stack_push(s, x[lane] * 10.0, has_value=True)
        n[2] = tg.tile_stack_count(s)
        y[0, lane], slots[2, lane] = tg.tile_stack_pop(s)
        n[3] = tg.tile_stack_count(s)
        y[1, lane], slots[3, lane] = tg.tile_stack_pop(s)
        n[4] = tg.tile_stack_count(s)
        tg.tile_stack_push(s, 1.5)
        tg.tile_stack_clear(s)
        n[5] = tg.tile_stack_count(s)

    x, slots, y, n = (
        np.arange(1, 5, dtype=F32),
        np.zeros((4, 4), np.int32),
        np.zeros((2, 4), F32),
        np.zeros(6, np.int32),
    )
    run(kernel, device, x, slots, y, n)
    assert n.tolist() == [0, 3, 6, 2, 0, 0]
    assert slots.tolist() == [[0, -1, 1, 2], [3, 4, 5, -1], [5, 4, 3, 2], [1, 0, -1, -1]]
    assert y.tolist() == [[30, 20, 10, 4], [3, 1, 0, 0]]


@pytest.mark.parametrize("dtype", dt.SCALARS, ids=str)
def test_every_dtype(dtype: tg.DType, device: str) -> None:
    def kernel(x: Any, y: Any):
        block, lane = tg.tid()
        s = tg.tile_stack(8, dtype)
        tg.tile_stack_push(s, x[lane])
        y[lane], slot = tg.tile_stack_pop(s)

    x = np.array([1, 0, 1, 1]).astype(dtype.np)
    y = np.zeros(4, dtype.np)
    run(kernel, device, x, y)
    assert y.tobytes() == x[::-1].tobytes()


@tg.struct
class Ray:
    origin: tg.vec3
    depth: int


def test_composite_elements(device: str) -> None:
    def kernel(y: tg.array2d[float], z: tg.array1d[int]):
        block, lane = tg.tid()
        v = tg.tile_stack(capacity=8, dtype=tg.vec3)
        tg.tile_stack_push(v, tg.vec3(float(lane), 5.0, -1.0))
        w, slot = tg.tile_stack_pop(v)
        y[lane, 0], y[lane, 1], y[lane, 2] = w[0], w[1], w[2]
        rays = tg.tile_stack(capacity=8, dtype=Ray)
        tg.tile_stack_push(rays, Ray(origin=w, depth=lane), lane > 1)
        ray, slot = tg.tile_stack_pop(rays)
        z[lane] = ray.depth * 10 + int(ray.origin[0])

    y, z = np.zeros((4, 3), F32), np.zeros(4, np.int32)
    run(kernel, device, y, z)
    assert y.tolist() == [[3, 5, -1], [2, 5, -1], [1, 5, -1], [0, 5, -1]]
    assert z.tolist() == [30, 21, 0, 0]


# --- random programs -------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["push", "pop", "pop_some", "clear"]), st.integers(1, 7)), min_size=1, max_size=7
)


@settings(max_examples=20)
@given(STEPS, st.integers(1, 40), st.integers(1, 33), st.sampled_from(["float", "tg.int64", "tg.float64", "tg.uint8"]))
def test_against_a_list(steps: Any, capacity: int, block_dim: int, dtype: str) -> None:
    """Values are counted up; which lanes take part depends on their number."""
    lines = [f"    s = tg.tile_stack({capacity}, {dtype})"]
    cast = "float" if dtype == "float" else dtype
    model, expected = Model(capacity), []
    lanes = np.arange(block_dim)
    for k, (step, n) in enumerate(steps):
        if step == "push":
            lines += [f"    o[{k}, lane] = tg.float64(tg.tile_stack_push(s, {cast}(lane + {k}), lane % {n} == 0))"]
            expected.append((model.push(lanes + k, lanes % n == 0), None))
        elif step == "clear":
            lines += ["    tg.tile_stack_clear(s)"]
            model.items.clear()
            expected.append((None, None))
        else:
            wanted = f", lane % {n} != 1" if step == "pop_some" else ""
            lines += [f"    v, slot = tg.tile_stack_pop(s{wanted})", f"    o[{k}, lane] = tg.float64(slot)"]
            lines += [f"    p[{k}, lane] = tg.float64(v)"]
            values, slots = model.pop(lanes % n != 1 if wanted else lanes >= 0)
            expected.append((slots, values))
    head = "def kernel(o: tg.array2d[tg.float64], p: tg.array2d[tg.float64], c: tg.array1d[int]):"
    lines.insert(0, "    block, lane = tg.tid()")
    kernel = build("\n".join([head, *lines, "    c[0] = tg.tile_stack_count(s)"]))
    for device in ("interpret", "cpu"):
        o, p, c = (
            np.full((len(steps), block_dim), np.nan),
            np.full((len(steps), block_dim), np.nan),
            np.zeros(1, np.int32),
        )
        tg.launch_tiled(kernel, dim=1, inputs=[o, p, c], block_dim=block_dim, device=device)
        assert c[0] == len(model.items)
        for k, (slots, values) in enumerate(expected):
            assert slots is None or o[k].tolist() == slots
            assert values is None or p[k].tolist() == values


# --- loops, branches, functions, launches ----------------------------------------------------------------------------


@tg.func
def spread(work: tg.tile_stack(capacity=64, dtype=int), done: tg.tile_stack(64, int)):
    """Every lane takes an interval of length n off the stack, and puts its halves back or notes that it is done."""
    n, slot = tg.tile_stack_pop(work)
    tg.tile_stack_push(work, n // 2, slot >= 0 and n > 1)
    tg.tile_stack_push(work, n - n // 2, slot >= 0 and n > 1)
    tg.tile_stack_push(done, n, slot >= 0 and n == 1)


def test_a_stack_as_work_list(device: str) -> None:
    def kernel(size: int, o: tg.array1d[int]):
        block, lane = tg.tid()
        work = tg.tile_stack(capacity=64, dtype=int)
        done = tg.tile_stack(capacity=64, dtype=int)
        tg.tile_stack_push(work, size, lane == 0)
        turns = 0
        while tg.tile_stack_count(work) > 0:
            spread(work, done)
            turns += 1
        o[0] = tg.tile_stack_count(done)
        o[1] = turns

    for size in (1, 7, 32):
        o = np.zeros(2, np.int32)
        run(kernel, device, size, o)
        assert o[0] == size and (size == 1) == (o[1] == 1)


def test_branches_of_the_block_and_other_names(device: str) -> None:
    def kernel(flag: int, n: tg.array1d[int], y: tg.array1d[int]):
        block, lane = tg.tid()
        a = tg.tile_stack(capacity=8, dtype=int)
        b = a  # the same stack
        if flag > 0:
            tg.tile_stack_push(a, lane + flag)
        else:
            tg.tile_stack_push(b, lane * 100, lane < 2)
        n[0] = tg.tile_stack_count(b)
        y[lane], slot = tg.tile_stack_pop(b)
        n[1] = tg.tile_stack_count(a)
        c = tg.copy(a)  # another one
        tg.tile_stack_push(c, 1)
        n[2] = tg.tile_stack_count(a)

    for flag, count, values in ((5, 4, [8, 7, 6, 5]), (-1, 2, [100, 0, 0, 0])):
        n, y = np.zeros(3, np.int32), np.zeros(4, np.int32)
        run(kernel, device, flag, n, y)
        assert n.tolist() == [count, 0, 0] and y.tolist() == values


def test_a_name_that_becomes_one_of_two_stacks(device: str) -> None:
    def kernel(flag: int, n: tg.array1d[int]):
        if flag > 0:
            s = tg.tile_stack(capacity=8, dtype=int)
            tg.tile_stack_push(s, 1)
        else:
            s = tg.tile_stack(capacity=8, dtype=int)
        tg.tile_stack_push(s, 2)
        n[0] = tg.tile_stack_count(s)

    for flag, count in ((1, 8), (0, 4)):
        n = np.zeros(1, np.int32)
        run(kernel, device, flag, n)
        assert n[0] == count


def test_absent_lanes_neither_push_nor_pop(device: str) -> None:
    """`launch`: lanes past the grid, and lanes that have returned."""

    def kernel(n: tg.array1d[int], y: tg.array1d[int]):
        i = tg.tid()
        if i % 3 == 1:
            return
        s = tg.tile_stack(capacity=16, dtype=int)
        tg.tile_stack_push(s, i)
        v, slot = tg.tile_stack_pop(s, i % 2 == 0)
        y[i] = v * 100 + slot
        n[i] = tg.tile_stack_count(s)

    n, y = np.full(6, -5, np.int32), np.full(6, -5, np.int32)
    tg.launch(tg.kernel(kernel), dim=6, inputs=[n, y], block_dim=4, device=device)
    assert n.tolist() == [1, -5, 1, 1, -5, 1]
    assert y[0] == 3 * 100 + 2 and y[2] == 2 * 100 + 1 and y[3] == -1


def test_one_block_after_another(device: str) -> None:
    """Every block has a stack of its own."""

    def kernel(n: tg.array1d[int]):
        block, lane = tg.tid()
        s = tg.tile_stack(capacity=4, dtype=int)
        n[block] = n[block] + tg.tile_stack_count(s)
        tg.tile_stack_push(s, lane)

    n = np.zeros(50, np.int32)
    tg.launch_tiled(tg.kernel(kernel), dim=50, inputs=[n], block_dim=4, device=device)
    assert not n.any()


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradient_from_pop_to_push(device: str) -> None:
    def kernel(x: tg.array1d[float], y: tg.array1d[float]):
        block, lane = tg.tid()
        s = tg.tile_stack(capacity=5, dtype=float)
        tg.tile_stack_push(s, x[lane] * x[lane], lane != 2)
        tg.tile_stack_push(s, 3.0 * x[lane])  # only two of these fit
        v, slot = tg.tile_stack_pop(s)
        w, slot = tg.tile_stack_pop(s)
        y[lane] = v * 2.0 + w * 5.0

    x, y = np.array([1, 2, 3, 4], F32), np.zeros(4, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], block_dim=4, device=device)
    # on the stack: x0^2, x1^2, x3^2, 3 x0, 3 x1
    assert y.tolist() == [2 * 6 + 5 * 1, 2 * 3, 2 * 16, 2 * 4]
    ct = np.array([1, 10, 100, 1000], F32)
    assert pullback(ct)[0].tolist() == [2 * 3 * 10 + 5 * 2 * 1, 2 * 3 * 1 + 2 * 4 * 1000, 0, 2 * 8 * 100]


def test_gradient_in_loops_and_overwritten_slots(device: str) -> None:
    def kernel(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
        block, lane = tg.tid()
        s = tg.tile_stack(capacity=16, dtype=tg.float64)
        tg.tile_stack_push(s, x[lane])
        for k in range(n):
            v, slot = tg.tile_stack_pop(s)
            tg.tile_stack_push(s, tg.sin(v) * x[lane], slot >= 0)
            if k == 1:
                tg.tile_stack_push(s, v * v, lane == 0)
        total = tg.float64(0.0)
        while tg.tile_stack_count(s) > 0:
            v, slot = tg.tile_stack_pop(s)
            total += v * tg.float64(slot + 1)
        y[lane] = total

    def model(x: Any) -> Any:
        s = list(x)
        for k in range(3):
            popped = [s.pop() if s else None for _ in range(4)]
            s += [np.sin(v) * x[lane] for lane, v in enumerate(popped) if v is not None]
            s += [popped[0] ** 2] if k == 1 else []
        total = np.zeros(4)
        while s:
            for lane in range(4):
                if s:
                    v = s.pop()
                    total[lane] += v * (len(s) + 1)
        return total

    x, y, ct = np.array([0.5, 1.2, -0.7, 2.0]), np.zeros(4), np.array([1.0, -2.0, 0.5, 3.0])
    pullback = tg.vjp(tg.kernel(kernel), 1, [x, 3], [y], block_dim=4, device=device)
    np.testing.assert_allclose(y, model(x), rtol=1e-12)
    h = 1e-6
    slopes = [(ct * (model(x + e) - model(x - e))).sum() / (2 * h) for e in h * np.eye(4)]
    np.testing.assert_allclose(pullback(ct)[0], slopes, rtol=1e-7)


def test_gradient_of_vectors(device: str) -> None:
    def kernel(x: tg.array1d[float], y: tg.array1d[float]):
        block, lane = tg.tid()
        s = tg.tile_stack(capacity=8, dtype=tg.vec2)
        tg.tile_stack_push(s, tg.vec2(x[lane], x[lane] * x[lane]))
        v, slot = tg.tile_stack_pop(s)
        y[lane] = v[0] + 3.0 * v[1]

    x, y = np.array([1, 2, 3, 4], F32), np.zeros(4, F32)
    pullback = tg.vjp(tg.kernel(kernel), 1, [x], [y], block_dim=4, device=device)
    assert y.tolist() == (x + 3 * x * x)[::-1].tolist()
    ct = np.array([1, 10, 100, 1000], F32)
    assert pullback(ct)[0].tolist() == (ct[::-1] * (1 + 6 * x)).tolist()


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("s = tg.tile_stack(0, float)", "capacity must be a positive compile-time int, it is 0"),
        ("s = tg.tile_stack(n, float)", "capacity must be a compile-time constant, it is the parameter `n`"),
        ("s = tg.tile_stack(8, 'x')", "'x' is not an element type"),
        ("s = tg.tile_stack(8)", "missing a required argument: 'dtype'"),
        ("s = tg.tile_stack(8, float)\n    tg.tile_stack_push(s, lane)", "the stack holds float32, the value is int32"),
        ("s = tg.tile_stack(8, int)\n    tg.tile_stack_push(s, 1.5)", "the stack holds int32, the value is 1.5"),
        ("s = tg.tile_stack(8, tg.vec2)\n    tg.tile_stack_push(s, 1.0)", "the stack holds vec2f, the value is 1.0"),
        ("s = tg.tile_stack(8, int)\n    tg.tile_stack_push(s, 1, x[0])", "must be a bool, it is float32"),
        ("t = tg.tile_zeros(8)\n    tg.tile_stack_push(t, 1.0)", "must be a stack, it is a float32 tile"),
        ("tg.tile_stack_pop(n)", "the first argument must be a stack, it is int32"),
        ("s = tg.tile_stack(8, int)\n    m = len(s)", "a stack of 8 int32 is used otherwise"),
        ("s = tg.tile_stack(8, int)\n    m = s[0]", "tile_stack_count"),
        ("s = tg.tile_stack(8, int)\n    a, b = s", "a stack of 8 int32 is used otherwise"),
        ("s = tg.tile_stack(8, int)\n    for a in s:\n        n += 1", "a stack of 8 int32 is used otherwise"),
        ("s = tg.tile_stack(8, int)\n    if s:\n        n += 1", "a stack of 8 int32 is used otherwise"),
        ("s = tg.tile_stack(8, int)\n    if lane > 1:\n        tg.tile_stack_push(s, 1)", "is a cooperative call"),
        ("s = tg.tile_stack(8, int)\n    if n > 0:\n        s = tg.tile_stack(9, int)\n    tg.tile_stack_clear(s)",
         "`s` has different types after the two branches"),
        ("s = tg.tile_stack(8, int)\n    s = s + 1", "a stack of 8 int32 is used otherwise"),
    ],
)  # fmt: skip
def test_errors(body: str, text: str) -> None:
    kernel = build(f"def kernel(n: int, x: tg.array1d[float]):\n    block, lane = tg.tid()\n    {body}")
    with pytest.raises(tg.TilegradError) as caught:
        tg.launch_tiled(kernel, dim=1, inputs=[4, np.zeros(1, F32)], block_dim=4)
    assert text in str(caught.value), str(caught.value)
