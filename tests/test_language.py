"""The kernel language: what Python constructs mean inside a kernel, on both devices.

A kernel that uses only numbers and array elements is also a Python function, so most tests simply run it both ways.
"""

from __future__ import annotations

import enum
import linecache
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

F32 = np.float32


@pytest.fixture(params=["interpret", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def agrees(python: Callable[..., Any], device: str, *args: Any) -> list[np.ndarray]:
    """Run a function as Python and as a kernel of one block, and compare the arrays that it leaves."""
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    python(*expected)
    found = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    tg.launch_tiled(tg.kernel(python), dim=1, inputs=found, block_dim=1, device=device)
    for e, f in zip(expected, found, strict=True):
        if isinstance(e, np.ndarray):
            np.testing.assert_allclose(f, e, rtol=1e-6)
    return [a for a in found if isinstance(a, np.ndarray)]


def ints(n: int = 8) -> np.ndarray:
    return np.zeros(n, np.int32)


# --- control flow -----------------------------------------------------------------------------------------------------


def reused_loop_variable(o: tg.array[int]) -> None:  # case L01
    acc = 0
    for i in range(2):
        acc += i
    i = 0
    while i < 3:
        acc += 10
        i += 1
    o[0] = acc


def break_and_continue(o: tg.array[int], n: int) -> None:
    total = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        if i > 10:
            break
        total += i
        o[1] = i
    o[0] = total


def break_in_nested_loops(o: tg.array[int], n: int) -> None:
    count = 0
    for i in range(n):
        for j in range(n):
            if j > i:
                break
            if (i + j) % 2:
                continue
            count += 10 * i + j
        else:
            count += 1000
        if count > 500:
            break
    o[0] = count


def value_found_by_break(o: tg.array[int], n: int) -> None:
    i = 0
    while True:
        square = i * i
        if square > n:
            break
        i += 1
    o[0] = square
    o[1] = i


def loop_else(o: tg.array[int], n: int) -> None:
    for i in range(2, n):
        if n % i == 0:
            o[0] = i
            break
    else:
        o[0] = -1
    k = 0
    while k < n:
        k += 2
    else:
        o[1] = k


def ranges_with_steps(o: tg.array[int], n: int) -> None:  # case L14
    k = 0
    for i in range(8, 0, -3):
        o[k] = i
        k += 1
    for i in range(1, 10, 4):
        o[k] = i
        k += 1
    for i in range(n, 0, -n):
        o[k] = i
        k += 1
    for i in range(3, 3):
        o[k] = 99


def run_time_step(o: tg.array[int], n: int) -> None:
    k = 0
    for i in range(0, 3 * n, n):
        if i == 99:
            break
        o[k] = i
        k += 1


def loop_variable_after_loop(o: tg.array[int], n: int) -> None:
    i = 7
    for i in range(n):
        o[1] = i
    o[0] = i
    for j in range(3):
        o[2] += j
    o[3] = j


def branches(o: tg.array[int], n: int) -> None:
    if n < 2:
        x = 1
    elif n < 4:
        x = 2
        o[1] = 5
    else:
        x = n
    o[0] = x


def early_return(o: tg.array[int], n: int) -> None:
    o[0] = 1
    if n > 3:
        o[1] = n
        return
    for i in range(10):
        if i == n:
            return
        o[2] += i
    o[3] = 1


def while_with_and(o: tg.array[int], n: int) -> None:
    i = 0
    while i < 8 and o[i] == 0:
        o[i] = i + 1
        i += 1
        if i > n:
            break


def swapped_tuples(o: tg.array[int], n: int) -> None:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    (c, d), e = (a, b), n
    o[0] = a
    o[1], o[2] = d, c + e


def pair_in_a_loop(o: tg.array[int], n: int) -> None:
    p = (1, 2)
    for i in range(n):
        p = (p[1], p[0] + i)
    o[0], o[1] = p


def temporaries_change_type(o: tg.array[int], x: tg.array[float], n: int) -> None:
    for i in range(n):
        t = i * 2
        o[i] = t
    for i in range(n):
        t = x[i] * 2.0
        x[i] = t


def chained_comparison(o: tg.array[int], n: int) -> None:
    o[0] = 1 if 0 < n < 5 else 2
    o[1] = 1 if 0 < n != 3 > 1 else 2
    o[2] = 3 if n in (1, 2, 3) else 4
    o[3] = 3 if n not in (1, 2, 3) else 4


def walrus(o: tg.array[int], n: int) -> None:
    i = 0
    while (square := i * i) < n:
        o[i] = square
        i += 1
    if (m := n // 2) > 1:
        o[7] = m


def logic(o: tg.array[int], a: bool, b: bool) -> None:
    if a and b:
        o[0] = 1
    if a or b:
        o[1] = 1
    if not a:
        o[2] = 1
    o[3] = int(a) + int(b)
    o[4] = 5 if a and not b else 6


def values_of_and_or(o: tg.array[int], n: int) -> None:
    o[0] = n and 7
    o[1] = n or 7
    o[2] = (n - 3) or 9


def python_division(o: tg.array[int], n: int) -> None:
    o[0] = n // 3
    o[1] = n % 3
    o[2] = -n // 3
    o[3] = -n % 3
    o[4] = n // -3
    o[5] = n % -3


def float_division(x: tg.array[float]) -> None:
    x[0] = x[1] // 0.3
    x[2] = x[1] % -0.3
    x[3] = -x[1] // 0.3


def counters_widen(x: tg.array[tg.float64], n: int) -> None:
    acc = 0
    scale = 1
    for i in range(n):
        acc += x[i] * 0.1
        scale = scale * 2
    x[0] = acc
    x[1] = tg.float64(scale)


def augmented(o: tg.array[int], n: int) -> None:
    x = n
    x += 1
    x *= 3
    x -= 2
    x //= 2
    x %= 7
    x <<= 2
    x |= 1
    x ^= 8
    x &= 13
    x >>= 1
    o[0] = x
    o[0] += 5
    o[0] *= 2
    o[1] -= n


def deep_nesting(o: tg.array[int], n: int) -> None:
    s = 0
    for i in range(n):
        for j in range(i):
            k = j
            while k > 0:
                if (i + j + k) % 4 == 1:
                    s += 1
                elif k % 2:
                    s += k
                k -= 1
    o[0] = s


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "python",
    [
        break_and_continue, break_in_nested_loops, value_found_by_break, loop_else, branches, early_return,
        while_with_and, swapped_tuples, pair_in_a_loop, chained_comparison, values_of_and_or, augmented, deep_nesting,
    ],
)  # fmt: skip
def test_control_flow(python: Callable[..., None], n: int, device: str) -> None:
    agrees(python, device, ints(9), n)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("python", [ranges_with_steps, run_time_step, loop_variable_after_loop, walrus])
def test_loops(python: Callable[..., None], n: int, device: str) -> None:
    agrees(python, device, ints(16), n)


def test_loop_variable_is_reused(device: str) -> None:
    assert agrees(reused_loop_variable, device, ints())[0][0] == 31


def test_temporaries_may_change_type_where_they_are_not_read_again(device: str) -> None:
    agrees(temporaries_change_type, device, ints(4), np.arange(4, dtype=F32), 4)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_logic(a: bool, b: bool, device: str) -> None:
    agrees(logic, device, ints(), a, b)


@pytest.mark.parametrize("n", [-7, -6, 0, 7])
def test_integer_division_is_pythons(n: int, device: str) -> None:
    agrees(python_division, device, ints(), n)


def test_float_division_is_pythons(device: str) -> None:
    x = np.array([0, 1.0, 0, 0], F32)
    expected = x.copy()
    expected[0], expected[2], expected[3] = x[1] // F32(0.3), x[1] % F32(-0.3), -x[1] // F32(0.3)
    tg.launch_tiled(tg.kernel(float_division), dim=1, inputs=[x], block_dim=1, device=device)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


def test_a_literal_start_takes_the_type_of_the_loop(device: str) -> None:
    agrees(counters_widen, device, np.arange(1.0, 5.0), 4)


def test_literals_are_exact_until_they_meet_a_type(device: str) -> None:
    @tg.kernel
    def exact(x: tg.array[tg.float64], o: tg.array[tg.int64]):
        tenth = 0.1
        third = 1 / 3
        x[0] = tg.float64(tenth)
        x[1] = third
        x[2] = x[1] * tenth
        o[0] = 2**53 + 1
        o[1] = tg.int64(2**53 + 1)

    x, o = np.zeros(3), np.zeros(2, np.int64)
    tg.launch_tiled(exact, dim=1, inputs=[x, o], block_dim=1, device=device)
    assert x.tolist() == [0.1, 1 / 3, 1 / 3 * 0.1]
    assert o.tolist() == [2**53 + 1] * 2


def test_nothing_of_an_untaken_side_is_evaluated(device: str) -> None:
    @tg.kernel
    def lazy(x: tg.array[float], o: tg.array[float], n: int):
        o[0] = x[n] if n < 3 else -1.0
        o[1] = 1.0 if n < 3 and x[n] > 0.0 else 0.0
        o[2] = 1.0 if n >= 3 or x[n] > 0.0 else 0.0
        o[3] = 1.0 if 0 <= n < 3 else 2.0

    o = np.zeros(4, F32)
    tg.launch_tiled(lazy, dim=1, inputs=[np.ones(3, F32), o, 100], block_dim=1, device=device)
    assert o.tolist() == [-1, 0, 1, 2]


def test_augmented_assignment_evaluates_its_target_once(device: str) -> None:  # case L03
    @tg.kernel
    def once(a: tg.array[int], count: tg.array[int]):
        a[tg.atomic_add(count, 0, 1)] += 1

    a, count = ints(3), ints(1)
    tg.launch_tiled(once, dim=1, inputs=[a, count], block_dim=1, device=device)
    assert a.tolist() == [1, 0, 0] and count[0] == 1


def test_augmented_assignment_of_a_shared_element_counts_every_lane(device: str) -> None:
    @tg.kernel
    def total(x: tg.array[float], o: tg.array[float]):
        i = tg.tid()
        o[i % 2] += x[i]
        x[i] += 1.0

    x, o = np.arange(10, dtype=F32), np.zeros(2, F32)
    tg.launch(total, dim=10, inputs=[x, o], block_dim=4, device=device)
    assert o.tolist() == [20, 25] and x[9] == 10


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_lanes_follow_their_own_control_flow(device: str) -> None:
    @tg.kernel
    def collatz(o: tg.array[int], n: int):
        i = tg.tid()
        if i >= n:
            return
        x = i + 1
        steps = 0
        while x != 1:
            if x % 2 == 0:
                x = x // 2
            else:
                x = 3 * x + 1
            steps += 1
            if steps > 50:
                break
        o[i] = steps

    def reference(x: int) -> int:
        steps = 0
        while x != 1 and steps <= 50:
            x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
        return steps

    o = np.full(40, -1, np.int32)
    tg.launch(collatz, dim=40, inputs=[o, 35], block_dim=16, device=device)
    assert o.tolist() == [reference(i + 1) for i in range(35)] + [-1] * 5


def test_loop_bounds_may_differ_between_lanes(device: str) -> None:
    @tg.kernel
    def triangle(o: tg.array[int]):
        i = tg.tid()
        s = 0
        for j in range(i + 1):
            for k in range(j):
                s += k
        o[i] = s

    o = ints(9)
    tg.launch(triangle, dim=9, inputs=[o], block_dim=4, device=device)
    assert o.tolist() == [sum(k for j in range(i + 1) for k in range(j)) for i in range(9)]


def test_returned_lanes_are_absent_in_cooperative_calls(device: str) -> None:
    @tg.kernel
    def guarded(x: tg.array[float], o: tg.array[float], n: int):
        i = tg.tid()
        if i >= n:
            return
        t = tg.tile(x[i])
        low, high = tg.tile_min(t), tg.tile_max(-t)
        total = tg.tile_sum(t * 2.0 + 1.0)
        o[i] = low[0] * 1000.0 + total[0] + 0.0 * high[0]

    x, o = np.arange(1, 9, dtype=F32), np.zeros(8, F32)
    tg.launch(guarded, dim=8, inputs=[x, o, 6], block_dim=4, device=device)
    assert o.tolist() == [1024] * 4 + [5024] * 2 + [0, 0]


def test_lanes_past_the_grid_are_absent_in_reductions(device: str) -> None:  # case T01
    @tg.kernel
    def sums(o: tg.array[float], low: tg.array[float]):
        i = tg.tid()
        t = tg.tile(float(i + 1))
        o[i] = tg.tile_sum(t)[0]
        low[i] = tg.tile_min(t + 1.0)[0]

    o, low = np.zeros(100, F32), np.zeros(100, F32)
    tg.launch(sums, dim=100, inputs=[o, low], block_dim=64, device=device)
    assert o.tolist() == [2080] * 64 + [2970] * 36
    assert low.tolist() == [2] * 64 + [66] * 36


def test_tid_and_block_dim(device: str) -> None:  # case T03
    @tg.kernel
    def where(o: tg.array3d[int]):
        i, j, lane = tg.tid()
        o[i, j, lane] = 100 * i + 10 * j + lane + tg.block_dim() * 1000

    for size in (4, 2):
        o = np.zeros((2, 3, size), np.int32)
        tg.launch_tiled(where, dim=(2, 3), inputs=[o], block_dim=size, device=device)
        i, j, lane = np.indices(o.shape)
        np.testing.assert_array_equal(o, 100 * i + 10 * j + lane + size * 1000)


def test_a_uniform_effect_happens_for_each_lane_of_a_launch(device: str) -> None:
    @tg.kernel
    def count(c: tg.array[int]):
        tg.atomic_add(c, 0, 1)
        if tg.tid() > 6:
            tg.atomic_add(c, 1, 1)

    c = ints(2)
    tg.launch(count, dim=10, inputs=[c], block_dim=4, device=device)
    assert c.tolist() == [10, 3]
    tg.launch_tiled(tg.kernel(lambda_count), dim=5, inputs=[c], block_dim=4, device=device)
    assert c.tolist() == [15, 3]


def lambda_count(c: tg.array[int]) -> None:
    tg.atomic_add(c, 0, 1)


# --- functions --------------------------------------------------------------------------------------------------------


@tg.func
def cube(x: float):
    return x * x * x


@tg.func
def power(x: float, n: int = 2, *, scale: float = 1.0):
    """Integer power by a loop."""
    result = 1.0
    for _ in range(n):
        result *= x
    return result * scale


@tg.func
def clipped(x: float, limit: float):
    if x > limit:
        return limit
    if x < -limit:
        return -limit
    return x


@tg.func
def both(x: float):
    return cube(x), power(x, 2)


def test_functions_are_inlined(device: str) -> None:
    @tg.kernel
    def calls(x: tg.array[float], o: tg.array[float]):
        o[0] = cube(x[0])
        o[1] = power(x[0])
        o[2] = power(x[0], n=3, scale=2.0)
        o[3] = clipped(x[0], 1.0) + clipped(-x[0], 2) + clipped(x[0], 9.0)
        a, b = both(x[0])
        o[4] = a - b

    o = np.zeros(5, F32)
    tg.launch_tiled(calls, dim=1, inputs=[np.array([3.0], F32), o], block_dim=1, device=device)
    assert o.tolist() == [27, 9, 54, 1 - 2 + 3, 18]
    assert cube(2.0) == 8.0  # and outside of a kernel it is the Python function


def test_functions_write_the_tiles_that_they_are_given(device: str) -> None:
    @tg.func
    def fill(t: Any, n: int):
        t[0] = 5.0
        if n > 3:
            return
        t[1] = 6.0

    @tg.kernel
    def calls(o: tg.array[float], n: int):
        t = tg.tile_zeros(shape=2)
        fill(t, n)
        tg.tile_store(o, t)

    for n, expected in ((1, [5, 6]), (4, [5, 0])):
        o = np.zeros(2, F32)
        tg.launch_tiled(calls, dim=1, inputs=[o, n], block_dim=1, device=device)
        assert o.tolist() == expected


def test_local_functions_and_lambdas(device: str) -> None:
    @tg.kernel
    def local(x: tg.array[float], o: tg.array[float], n: int):
        shift = float(n)

        def moved(v, by=2.0):
            return v + by + shift

        double = lambda v: v * 2.0
        o[0] = moved(x[0])
        shift = 0.0
        o[1] = double(moved(x[0], by=1.0))

    o = np.zeros(2, F32)
    tg.launch_tiled(local, dim=1, inputs=[np.ones(1, F32), o, 10], block_dim=1, device=device)
    assert o.tolist() == [13, 4]


def make_kernel(f: Any) -> tg.Kernel:
    @tg.kernel
    def generated(o: tg.array[int]):
        o[0] = f()

    return generated


@tg.func
def one():
    return 1


@tg.func
def two():
    return 2


def test_closures_of_one_factory_stay_apart(device: str) -> None:  # case L09
    first, second = make_kernel(one), make_kernel(two)
    third = make_kernel(lambda: 3)
    o = ints(1)
    for chosen, expected in ((second, 2), (first, 1), (second, 2), (third, 3)):
        tg.launch_tiled(chosen, dim=1, inputs=[o], block_dim=1, device=device)
        assert o[0] == expected


G = 5
SIZES = [1, 2, 3]


class Mode(enum.IntEnum):
    FAST = 4


class Holder:
    value = 7


def test_globals_are_read_when_the_kernel_is_launched(device: str, monkeypatch: pytest.MonkeyPatch) -> None:  # L10
    @tg.kernel
    def reads(o: tg.array[int]):
        o[0] = G
        o[1] = len(SIZES)
        o[2] = Mode.FAST
        o[3] = Holder.value
        o[4] = later()

    def run() -> list[int]:
        o = ints(5)
        tg.launch_tiled(reads, dim=1, inputs=[o], block_dim=1, device=device)
        return [int(v) for v in o]

    @tg.func
    def later():
        return 11

    assert run() == [5, 3, 4, 7, 11]
    monkeypatch.setitem(globals(), "G", 10)
    monkeypatch.setattr(Holder, "value", 8)
    SIZES.append(9)
    try:
        assert run() == [10, 4, 4, 8, 11]
    finally:
        SIZES.pop()


i = 7  # a global that the loop variable below must not be mistaken for


def test_static_sees_the_loop_variable(device: str) -> None:
    @tg.kernel
    def unrolled(o: tg.array[int]):
        for i in range(3):
            o[i] = tg.static(i * len(SIZES))
        for j in tg.static(range(2)):
            o[3 + j] = j
        for k, v in enumerate((5, 6.0, True)):
            o[5 + k] = int(v)

    o = ints(8)
    tg.launch_tiled(unrolled, dim=1, inputs=[o], block_dim=1, device=device)
    assert o.tolist() == [0, 3, 6, 0, 1, 5, 6, 1]


def test_postponed_annotations_and_optional_arrays(device: str) -> None:  # case L06 (this file postpones them)
    @tg.kernel
    def optional(x: tg.array[float] | None, o: tg.array(dtype=float, ndim=1), scale: float):
        a: float = scale * 2.0
        if x is not None:
            a += x[0]
        o[0] = a

    o = np.zeros(1, F32)
    tg.launch_tiled(optional, dim=1, inputs=[None, o, 1.5], block_dim=1, device=device)
    assert o[0] == 3
    tg.launch_tiled(optional, dim=1, inputs=[np.ones(1, F32), o, 1.5], block_dim=1, device=device)
    assert o[0] == 4


def test_two_loops_or_no_tid_need_nothing_special(device: str) -> None:  # cases E02, E03
    @tg.kernel
    def loops(o: tg.array[int], n: int):
        for i in range(n):
            o[i] = i
        for j in range(n):
            o[j] += 1

    o = ints(4)
    tg.launch_tiled(loops, dim=1, inputs=[o, 4], device=device)
    assert o.tolist() == [1, 2, 3, 4]


# --- tiles are references ---------------------------------------------------------------------------------------------


def test_names_and_views_share_a_tile(device: str) -> None:
    @tg.kernel
    def shared(o: tg.array2d[float]):
        t = tg.tile_zeros(shape=(3, 4))
        same = t
        row = t[1]
        corner = t.T[2:, 1:][::-1]
        separate = tg.copy(t)
        row += 1.0
        same[0, 0] = 7.0
        corner[0, 0] += 10.0
        t[2, :] = 3.0
        t[:, 0] *= 2.0
        tg.tile_store(o, t)
        tg.tile_store(o, separate[:1, :1], offset=(0, 3))

    o = np.full((3, 4), -1, F32)
    tg.launch_tiled(shared, dim=1, inputs=[o], block_dim=1, device=device)
    t = np.zeros((3, 4))
    t[1] += 1
    t[0, 0] = 7
    t.T[2:, 1:][::-1][0, 0] += 10
    t[2, :] = 3
    t[:, 0] *= 2
    t[0, 3] = 0
    np.testing.assert_array_equal(o, t)


def test_tiles_in_loops_and_branches(device: str) -> None:
    @tg.kernel
    def loops(x: tg.array[float], o: tg.array[float], n: int):
        a = tg.tile_load(x, shape=4)
        b = tg.tile_zeros(shape=4)
        seen = b
        for k in range(n):
            b += a
            a = a * 2.0
            if k == 1:
                b[0] = 100.0
        a, b = b, a
        if n > 2:
            c = a + b
        else:
            c = a - b
        tg.tile_store(o, c)
        tg.tile_store(o, seen, offset=4)

    for n in (0, 1, 2, 5):
        x, o = np.arange(4, dtype=F32), np.zeros(8, F32)
        tg.launch_tiled(loops, dim=1, inputs=[x, o, n], block_dim=1, device=device)
        a, b = x.copy(), np.zeros(4, F32)
        for k in range(n):
            b += a
            a = a * 2
            if k == 1:
                b[0] = 100
        np.testing.assert_array_equal(o[:4], b + a if n > 2 else b - a)
        np.testing.assert_array_equal(o[4:], b)


def test_buffers_may_be_swapped_in_a_loop(device: str) -> None:
    @tg.kernel
    def swap(o: tg.array[float], n: int):
        a = tg.tile_zeros(shape=2)
        b = tg.tile_ones(shape=2)
        for _ in range(n):
            a += b
            a, b = b, a
        tg.tile_store(o, a)
        tg.tile_store(o, b, offset=2)

    o = np.zeros(4, F32)
    tg.launch_tiled(swap, dim=1, inputs=[o, 5], block_dim=1, device=device)
    a, b = 0, 1
    for _ in range(5):
        a += b
        a, b = b, a
    assert o.tolist() == [a, a, b, b]


def test_every_lane_adds_to_an_element(device: str) -> None:
    @tg.kernel
    def adds(o: tg.array[float]):
        i = tg.tid()
        t = tg.tile_zeros(shape=2)
        t[0] += 1.0
        t[1] += float(i)
        tg.tile_atomic_add(o, t)

    o = np.zeros(2, F32)
    tg.launch(adds, dim=6, inputs=[o], block_dim=4, device=device)
    assert o.tolist() == [6, 15]


def test_tile_members(device: str) -> None:
    @tg.kernel
    def members(x: tg.array2d[float], o: tg.array[float]):
        t = tg.tile_load(x, shape=(2, 3))
        o[0] = t.sum()[0]
        o[1] = t.max(axis=0)[1]
        o[2] = float(t.size + t.ndim + t.shape[1] + len(t))
        u = t.reshape(3, 2)
        u[0, 0] = 50.0
        o[3] = t[0, 0]
        v = t.copy()
        v[0, 0] = 1.0
        o[4] = t[0, 0]
        o[5] = (t.T @ t)[2, 2]

    x, o = np.arange(6, dtype=F32).reshape(2, 3), np.zeros(6, F32)
    tg.launch_tiled(members, dim=1, inputs=[x, o], block_dim=1, device=device)
    assert o.tolist() == [15, 4, 6 + 2 + 3 + 2, 50, 50, 4 + 25]


def test_map_over_tiles(device: str) -> None:
    @tg.kernel
    def maps(x: tg.array[float], o: tg.array2d[float], s: float):
        t = tg.tile_load(x, shape=4)
        tg.tile_store(o[0], tg.tile_map(cube, t))
        tg.tile_store(o[1], tg.tile_map(lambda a, b: a if a > b else b * s, t, 1.5))
        tg.tile_store(o[2], tg.tile_map(min, t, 2.0))
        u, v = tg.tile_map(lambda a: (a + 1.0, a - 1.0), t)
        tg.tile_store(o[3], u * v)

    x, o = np.arange(4, dtype=F32), np.zeros((4, 4), F32)
    tg.launch_tiled(maps, dim=1, inputs=[x, o, 2.0], block_dim=1, device=device)
    expected = [x**3, np.where(x > 1.5, x, 3), np.minimum(x, 2), x * x - 1]
    np.testing.assert_allclose(o, expected)


def test_loop_index_is_a_constant_where_one_is_needed(device: str) -> None:
    @tg.kernel
    def slices(o: tg.array[float]):
        t = tg.tile_zeros(shape=6)
        for k in range(3):
            t[2 * k : 2 * k + 2] = float(k)
        tg.tile_store(o, t)

    o = np.zeros(6, F32)
    tg.launch_tiled(slices, dim=1, inputs=[o], block_dim=1, device=device)
    assert o.tolist() == [0, 0, 1, 1, 2, 2]


# --- printing ---------------------------------------------------------------------------------------------------------


def test_print(device: str, capfd: pytest.CaptureFixture[str]) -> None:  # case L15
    @tg.kernel
    def prints(n: int, x: float, flag: bool):
        print()
        print("n is", n, "and {x}", flag)
        print(f"{x:.2f} of {n + 1}", (n, 2), sep="; ")

    tg.launch_tiled(prints, dim=1, inputs=[3, 1.5, True], block_dim=4, device=device)
    assert capfd.readouterr().out == "\nn is 3 and {x} True\n1.50 of 4; (3, 2)\n"


# --- where a kernel may be defined ------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np
import tilegrad as tg

def make(value):
    @tg.kernel
    def k(o: tg.array[int]):
        o[0] = value
    return k

o = np.zeros(1, np.int32)
for value in (3, 4):
    tg.launch_tiled(make(value), dim=1, inputs=[o], block_dim=1, device="interpret")
    print(o[0])
"""


@pytest.mark.parametrize("route", ["-c", "file", "redirected", "runpy"])
def test_kernels_outside_of_modules(route: str, tmp_path: Any) -> None:  # case L12
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = {
        "-c": ["-c", PROGRAM],
        "file": [str(path)],
        "redirected": ["-"],
        "runpy": ["-c", f"import runpy; runpy.run_path({str(path)!r})"],
    }[route]
    with path.open() as stdin:
        done = subprocess.run(
            [sys.executable, *command], stdin=stdin, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])},
        )  # fmt: skip
    assert done.stdout == "3\n4\n", done.stderr


def run_source(source: str, name: str = "<string>") -> Any:
    space: dict[str, Any] = {"tg": tg, "__name__": "made"}
    exec(compile(textwrap.dedent(source), name, "exec"), space)
    return space["k"]


@pytest.mark.parametrize("registered", [False, True])
def test_exec_and_redefinition(registered: bool, device: str) -> None:
    o = ints(1)
    for value in (1, 2):
        source = f"@tg.kernel\ndef k(o: tg.array[int]):\n    o[0] = {value}\n"
        name = f"<cell {value}>" if registered else "<string>"
        if registered:
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        tg.launch_tiled(run_source(source, name), dim=1, inputs=[o], block_dim=1, device=device)
        assert o[0] == value


def test_two_lambdas_on_one_line(device: str) -> None:
    @tg.kernel
    def k(x: tg.array[float], o: tg.array[float], f: Any = None):
        t = tg.tile_load(x, shape=2)
        tg.tile_store(o, tg.tile_map(pair[0], t) + tg.tile_map(pair[1], t))

    pair = (lambda a: a + 1.0, lambda a: a * 10.0)
    o = np.zeros(2, F32)
    tg.launch_tiled(k, dim=1, inputs=[np.array([1, 2], F32), o, 0], block_dim=1, device=device)
    assert o.tolist() == [12, 23]


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
def test_postponed_annotations_name_locals_of_a_factory(dtype, device):
    def make(element: Any, rank: int) -> Any:  # this file postpones annotations, and the kernel uses neither name
        @tg.kernel
        def double(x: tg.array(dtype=element, ndim=rank), y: tg.array1d(dtype=element)):
            y[0] = x[0] * 2.0

        return double

    x = np.ones(3, dtype.np)
    kernel = make(dtype, 1)
    tg.launch_tiled(kernel, dim=1, inputs=[x, x], device=device)
    assert x.tolist() == [2, 1, 1]
    wrong = x.astype(np.float64 if dtype is tg.float32 else np.float32)
    with pytest.raises(tg.LaunchError, match="argument `x` must be array1d"):
        tg.launch_tiled(kernel, dim=1, inputs=[wrong, wrong], device=device)


@tg.kernel
def printing(x: tg.array[int]) -> None:
    i = tg.tid()
    print("first", i)
    for k in range(x[i]):
        print("turn", k, "of", i)
    t = tg.tile(x[i])
    print(tg.untile(t + 1))


@tg.kernel
def printing_elements(x: tg.array[int]) -> None:
    print("before")

    def f(v: int):
        print("element", v)
        for k in range(v):
            print("turn", k)
        return v

    tg.tile_store(x, tg.tile_map(f, tg.tile_load(x, shape=3)))
    print("after")


def test_lines_of_a_lane_stand_together(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    tg.launch(printing, dim=3, inputs=[np.array([2, 0, 1], np.int32)], block_dim=2, device=device)
    assert capfd.readouterr().out.splitlines() == [
        "first 0", "turn 0 of 0", "turn 1 of 0", "3", "first 1", "1", "first 2", "turn 0 of 2", "2",
    ]  # fmt: skip
    tg.launch_tiled(printing_elements, dim=1, inputs=[np.array([2, 0, 1], np.int32)], device=device)
    assert capfd.readouterr().out.splitlines() == [
        "before", "element 2", "turn 0", "turn 1", "element 0", "element 1", "turn 0", "after",
    ]  # fmt: skip
