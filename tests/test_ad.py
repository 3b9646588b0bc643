"""Backward kernels against central differences in float64, in the interpreter and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import ad, compiler, interpreter
from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir import core

F1, F2, I1 = tg.array1d[tg.float64], tg.array2d[tg.float64], tg.array1d[tg.int32]
rng = np.random.default_rng(7)


def is_float(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def copies(args: Any) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def typed(ir: core.Kernel, args: Any) -> list[Any]:
    return [a if isinstance(a, np.ndarray) else p.type.dtype.np.type(a) for a, p in zip(args, ir.params, strict=True)]


def run_backward(ir: core.Kernel, args: Any, grid: tuple[int, ...], cts: Any, device: str) -> tuple[Any, ad.Backward]:
    """Gradients of all float arrays; what the backward kernel says it does not read is filled with NaN."""
    backward = ad.differentiate(ir, [is_float(a) for a in args])
    given = copies(args)
    for a, needed, shadow in zip(given, backward.needs_values, backward.shadow_params, strict=True):
        if is_float(a) and not needed and not shadow:
            a[...] = np.nan
        if isinstance(a, np.ndarray) and not shadow:
            a.flags.writeable = False
    grads = [c.copy() for c in cts if c is not None]
    compiler.execute(backward.kernel, [*given, *grads], grid, device)
    return grads, backward


def check(
    kernel: Any, dim: Any, *args: Any, block_dim: int = 4, tiled: bool = False, device: str = "both", tol: float = 1e-6
) -> ad.Backward:
    """Compare the gradient of sum(ct * array), over all float arrays after the launch, with central differences."""
    grid = dim if isinstance(dim, tuple) else (dim,)
    ir = kernel.ir(*args, dim=dim, tiled=tiled, block_dim=block_dim)
    args = typed(ir, args)
    cts = [rng.standard_normal(a.shape) if is_float(a) else None for a in args]

    def objective(i: int, place: Any, h: float) -> float:
        given = copies(args)
        given[i][place] += h
        interpreter.run(ir, given, grid)
        return sum(float((c * a).sum()) for c, a in zip(cts, given, strict=True) if c is not None)

    h = 1e-5
    expected = [
        np.array([(objective(i, p, h) - objective(i, p, -h)) / (2 * h) for p in np.ndindex(a.shape)]).reshape(a.shape)
        for i, a in enumerate(args)
        if is_float(a)
    ]
    for name in ("interpret", "cpu") if device == "both" else (device,):
        grads, backward = run_backward(ir, args, grid, cts, name)
        for k, (got, want) in enumerate(zip(grads, expected, strict=True)):
            np.testing.assert_allclose(got, want, rtol=tol, atol=tol, err_msg=f"gradient {k} on {name}")
    return backward


def values(*shape: int) -> np.ndarray[Any, Any]:
    return rng.uniform(0.3, 1.2, shape)


def names(block: core.Block) -> list[str]:
    return [op.name for op in block.walk()]


# --- loops ------------------------------------------------------------------------------------------------------------


@tg.kernel
def nested(x: F1, c: F1, n: int, m: int, y: F1):
    q = x[0]
    for _i in range(n):
        for j in range(m):
            q = tg.sin(q) * c[j] + x[0]
        q = q * q
    y[0] = q * q


@pytest.mark.parametrize(("n", "m"), [(2, 2), (0, 3), (3, 0), (1, 1)])
def test_nested_loops(n, m):
    check(nested, 1, values(1), values(3), n, m, values(1))


@tg.kernel
def ranges(x: F1, start: int, stop: int, step: int, y: F1):
    s = x[0]
    for i in range(start, stop, step):
        s = s * tg.cos(s + x[i])
    y[0] = s


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 7, 2), (0, 6, 2), (7, 0, -3), (6, -1, -2), (5, 2, 1), (2, 5, -1), (3, 4, 9)]
)
def test_ranges_are_reversed(start, stop, step):
    check(ranges, 1, values(8), start, stop, step, values(1))


@tg.kernel
def fixed_ranges(x: F1, y: F1):
    s = x[0]
    for i in range(6, 0, -1):
        s = s * tg.cos(s + x[i])
    for i in range(1, 7, 4):
        s = s * x[i]
    y[0] = s


def test_ranges_with_constant_steps():
    check(fixed_ranges, 1, values(8), values(1))


@tg.kernel
def tiles_in_loop(a: F2, b: F2, n: int, y: F2):
    acc = tg.tile_zeros(shape=(4, 4), dtype=tg.float64)
    t = tg.tile_load(b, shape=(4, 4), offset=(0, 0))
    for k in range(n):
        s = tg.tile_load(a, shape=(4, 4), offset=(0, 4 * k))
        acc += s @ t
        t = t * 0.5 + tg.sin(acc)
    tg.tile_store(y, acc * t, offset=(0, 0))


def test_tiles_carried_by_a_loop():
    check(tiles_in_loop, 1, values(4, 12), values(4, 4), 3, values(4, 4), tiled=True)


@tg.kernel
def matmul(a: F2, b: F2, n: int, y: F2):
    acc = tg.tile_zeros(shape=(4, 4), dtype=tg.float64)
    for k in range(n):
        acc += tg.tile_load(a, shape=(4, 4), offset=(0, 4 * k)) @ tg.tile_load(b, shape=(4, 4), offset=(4 * k, 0))
    tg.tile_store(y, acc, offset=(0, 0))


def test_linear_loop_saves_nothing_and_runs_once():
    backward = check(matmul, 1, values(4, 8), values(8, 4), 2, values(4, 4), tiled=True)
    found = names(backward.kernel.body)
    assert "stack" not in found and found.count("for") == 1
    assert backward.needs_values == (True, True, False, False)


@tg.kernel
def loop_invariant(x: F1, t: F1, n: int, y: F1):
    w = tg.tile_load(t, shape=4)
    s = x[0]
    acc = tg.tile_zeros(shape=4, dtype=tg.float64)
    for i in range(n):
        acc += w * s * w[i]
        if i > 0:
            acc = acc * acc
    tg.tile_store(y, acc)


def test_values_from_outside_of_a_loop():
    check(loop_invariant, 1, values(1), values(4), 3, values(4), tiled=True)


@tg.kernel
def until(x: F1, limit: tg.float64, y: F1):
    v = x[0]
    k = 0
    while v < limit:
        v = v * v + x[1]
        k += 1
        if k > 4:
            break
    y[0] = v * v


@pytest.mark.parametrize("limit", [0.0, 3.0, 1e9])
def test_while_and_break(limit):
    check(until, 1, values(2), limit, values(1))


@tg.kernel
def while_in_for(x: F1, n: int, y: F1):
    v = x[0]
    for i in range(n):
        k = i
        while k > 0:
            v = tg.sin(v) * x[1]
            k -= 1
        v = v + x[2]
    y[0] = v


def test_while_inside_for():
    check(while_in_for, 1, values(3), 4, values(1))


# --- branches ---------------------------------------------------------------------------------------------------------


@tg.kernel
def branches(x: F1, flag: int, y: F1):
    b = x[0]
    if flag > 0:
        if b > 0.5:
            b = b * b * x[1]
        else:
            b = tg.sin(b)
    elif flag == 0:
        b = x[2]
    y[0] = b * x[0]


@pytest.mark.parametrize("flag", [-1, 0, 1])
@pytest.mark.parametrize("first", [0.4, 0.9])
def test_branches(flag, first):
    check(branches, 1, np.array([first, 0.7, 1.1]), flag, values(1))


@tg.kernel
def loop_in_branch(x: F1, n: int, y: F1):
    v = x[0]
    if n > 1:
        for i in range(n):
            v = v * tg.sin(v + x[i])
    else:
        v = v * v
    y[0] = v * v


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loop_inside_branch(n):
    check(loop_in_branch, 1, values(4), n, values(1))


@tg.kernel
def root_where_positive(x: F1, y: F1):
    i = tg.tid()
    if x[i] > 0.0:
        y[i] = tg.sqrt(x[i])
    else:
        y[i] = 0.0


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_no_nan_from_the_branch_not_taken(device):
    x, y = np.array([0.0, 4.0, -1.0]), np.zeros(3)
    ir = root_where_positive.ir(x, y, dim=3, tiled=False, block_dim=4)
    grads, _ = run_backward(ir, [x, y], (3,), [np.zeros(3), np.ones(3)], device)
    assert grads[0].tolist() == [0, 0.25, 0] and grads[1].tolist() == [0, 0, 0]


# --- lanes ------------------------------------------------------------------------------------------------------------


@tg.kernel
def lanes_share(x: F1, s: F1, y: F1):
    i = tg.tid()
    w = s[0]
    v = x[i] * w
    y[i] = v * v + w * w


@pytest.mark.parametrize("threads", [3, 4, 6])
def test_uniform_value_used_by_lanes(threads):
    check(lanes_share, threads, values(threads), values(1), values(threads))


@tg.kernel
def lane_loops(x: F1, n: I1, s: F1, y: F1):
    i = tg.tid()
    v = x[i]
    w = s[0] * s[0]
    for k in range(n[i]):
        v = v * tg.sin(v + s[k]) + w
        if v > 0.6:
            v = v * w
    y[i] = v * v + w


def test_loops_of_different_length_per_lane():
    check(lane_loops, 6, values(6), np.array([0, 3, 1, 2, 0, 4], np.int32), values(4), values(6))


@tg.kernel
def lane_whiles(x: F1, y: F1):
    i = tg.tid()
    v = x[i]
    k = 0
    while v < 2.0 and k < 6:
        v = v * v + x[0]
        k += 1
    y[i] = v * v


def test_whiles_of_different_length_per_lane():
    check(lane_whiles, 6, np.array([0.5, 3.0, 1.1, 0.2, 2.5, 1.3]), values(6))


@tg.kernel
def lane_nested(x: F1, n: I1, y: F1):
    i = tg.tid()
    v = x[i]
    for k in range(n[i]):
        for j in range(k):
            v = tg.sin(v) * x[j]
        if k > 1:
            v = v + x[0] * v
    y[i] = v


def test_nested_loops_of_lanes():
    check(lane_nested, 6, values(6), np.array([0, 3, 1, 2, 0, 4], np.int32), values(6))


@tg.kernel
def early_return(x: F1, y: F1):
    i = tg.tid()
    v = x[i] * x[0]
    if v < 0.5:
        y[i] = v
        return
    y[i] = v * v * x[1]


def test_early_return():
    check(early_return, 6, values(6), values(6))


@tg.kernel
def uniform_and_lanes(x: F1, s: F1, n: int, y: F1):
    i = tg.tid()
    w = s[0]
    total = w * 2.0
    for k in range(n):
        w = w * s[k]
        total += x[i] * w
        if x[i] > 0.7:
            total = total * w
    y[i] = total * w


def test_uniform_loop_with_lanes_in_it():
    check(uniform_and_lanes, 6, values(6), values(3), 3, values(6))


@tg.kernel
def tile_of_lanes(x: F1, s: F1, y: F1):
    i = tg.tid()
    v = x[i] * s[0]
    t = tg.tile(v)
    total = tg.tile_sum(t * t)
    w = tg.untile(t * total[0])
    y[i] = w * v


@pytest.mark.parametrize("threads", [4, 6])
def test_tile_and_untile(threads):
    check(tile_of_lanes, threads, values(threads), values(1), values(threads))


@tg.kernel
def element_under_condition(x: F1, t: F1, y: F1):
    i = tg.tid()
    w = tg.tile_load(t, shape=4) * 2.0
    v = x[i]
    if v > 0.7:
        v = v * w[i % 4] * w[0]
    y[i] = v * w[1]


def test_lanes_read_tile_elements_under_a_condition():
    check(element_under_condition, 6, values(6), values(4), values(6))


@tg.kernel
def elements_in_lane_loop(x: F1, n: I1, t: F2, y: F1):
    i = tg.tid()
    w = tg.sin(tg.tile_load(t, shape=(2, 3)))
    v = x[i]
    for k in range(n[i]):
        v = v * w[k % 2, k % 3]
        if v > 0.4:
            v = v + w[0, k % 3]
    y[i] = v


def test_lanes_read_tile_elements_in_their_own_loops():
    check(elements_in_lane_loop, 6, values(6), np.array([0, 3, 1, 2, 0, 4], np.int32), values(2, 3), values(6))


# --- maps -------------------------------------------------------------------------------------------------------------


@tg.kernel
def mapped(x: F1, s: F1, n: int, y: F1):
    a = s[0]
    t = tg.tile_load(x, shape=5)

    def f(e: tg.float64):
        r = e
        for k in range(n):
            r = r * tg.sin(r + a) * s[k]
        if r > 0.2:
            r = r * a
        return r

    u = tg.tile_map(f, t)
    tg.tile_store(y, u * t)


def test_map_with_loops_branches_and_outer_values():
    check(mapped, 1, values(6), values(3), 3, values(5), tiled=True)


@tg.func
def product(p: tg.float64, q: tg.float64):
    return p * p * q


@tg.kernel
def mapped_two(x: F1, y: F1):
    t = tg.tile_load(x, shape=4)
    u = tg.tile_map(product, t, tg.sin(t))
    tg.tile_store(y, u)


def test_map_of_two_tiles():
    check(mapped_two, 1, values(4), values(4), tiled=True)


@tg.kernel
def gathered(x: F1, at: I1, y: F1):
    t = tg.tile_load(at, shape=4)

    def f(i: tg.int32):
        return x[i] * x[0]

    tg.tile_store(y, tg.tile_map(f, t))


def test_map_that_gathers_from_an_array():
    check(gathered, 1, values(5), np.array([3, 0, 3, 1], np.int32), values(4), tiled=True)


@tg.kernel
def gathered_from_tile(x: F1, at: I1, y: F1):
    t = tg.tile_load(at, shape=4)
    u = tg.sin(tg.tile_load(x, shape=5))

    def f(i: tg.int32):
        return u[i] * u[0]

    tg.tile_store(y, tg.tile_map(f, t))


def test_map_that_gathers_from_a_tile():
    check(gathered_from_tile, 1, values(5), np.array([3, 0, 3, 1], np.int32), values(4), tiled=True)


# --- memory -----------------------------------------------------------------------------------------------------------


@tg.kernel
def squared_in_place(a: F1):
    i = tg.tid()
    a[i] = a[i] * a[i]


def test_in_place_needs_no_second_copy():
    backward = check(squared_in_place, 5, values(5))
    assert backward.needs_values == (True,) and backward.shadow_params == (False,)


@tg.kernel
def recurrence(a: F1, x: F1, n: int):
    s = x[0]
    for i in range(n):
        t = a[i]
        a[i + 1] = t * t * x[0]
        s = s * tg.sin(t)
    x[0] = s


def test_array_that_is_read_after_it_was_written():
    backward = check(recurrence, 1, values(5), values(1), 4)
    assert backward.shadow_params == (True, False, False)


@tg.kernel
def tangled(a: F1, x: F1, n: int):
    s = x[0]
    for j in range(3):
        for i in range(n):
            t = a[i]
            if t > 0.5:
                r = t * a[j]
            else:
                r = tg.sin(t) * x[0]
            a[i + 1] = r
            s = s * tg.sin(r)
        k = n
        while k > 0:
            a[k + 1] = tg.sin(s * a[k])
            s = tg.cos(s * a[k])
            k -= 1
        s = tg.sin(s) + x[0]
    x[0] = s


def test_reads_and_writes_in_all_kinds_of_regions():
    check(tangled, 1, values(6), values(1), 3, tol=1e-5)


@tg.kernel
def tangled_lanes(a: F2, x: F1, n: I1):
    i = tg.tid()
    s = x[i]
    for k in range(n[i]):
        t = a[i, k]
        if t > 0.6:
            a[i, k + 1] = t * s
        s = s + a[i, k + 1] * t
    x[i] = s * a[i, 0]


def test_lanes_read_what_they_wrote():
    check(tangled_lanes, 6, values(6, 5), values(6), np.array([0, 3, 1, 2, 0, 4], np.int32), tol=1e-5)


@tg.kernel
def mapped_in_place(x: F1, s: F1):
    t = tg.tile_load(x, shape=4)

    def f(e: tg.float64):
        return e * s[0] * s[1]

    tg.tile_store(x, tg.tile_map(f, t))
    s[0] = s[1] * 2.0
    tg.tile_store(x, tg.tile_map(f, tg.tile_load(x, shape=4)))


def test_map_reads_what_the_kernel_writes():
    backward = check(mapped_in_place, 1, values(4), values(2), tiled=True)
    assert backward.shadow_params == (True, True)  # both are read after they were written


@tg.kernel
def overwritten(x: F1, y: F1):
    i = tg.tid()
    y[i] = x[i] * x[i]
    y[i] = x[i] * 3.0


def test_a_write_that_is_overwritten_gets_no_gradient():
    check(overwritten, 3, values(3), values(3))


@tg.kernel
def rows(a: F2, b: F2, c: F2):
    i = tg.tid()
    r = b[1]
    c[i][0] = a[i][0] * r[i]


def test_rows_of_arrays():
    check(rows, 3, values(3, 3), values(3, 3), values(3, 2))


@tg.kernel
def scattered(x: F1, at: I1, y: F1):
    i = tg.tid()
    tg.atomic_add(y, at[i], x[i] * x[i])


def test_atomic_add():
    check(scattered, 6, values(6), np.array([0, 2, 0, 1, 1, 0], np.int32), values(3))


@tg.kernel
def hanging_over(x: F1, y: F1):
    t = tg.tile_load(x, shape=4, offset=-1)
    tg.tile_store(y, t * t, offset=2)
    tg.tile_atomic_add(y, t, offset=-2)


def test_tiles_over_the_edge():
    check(hanging_over, 1, values(2), values(5), tiled=True)


@tg.kernel
def integers_in_memory(at: I1, x: F1, n: int, y: F1):
    for i in range(n):
        at[i + 1] = at[i] + 2
        y[at[i + 1]] = x[at[i]] * x[0]


def test_integers_that_are_written_and_read_back():
    backward = check(integers_in_memory, 1, np.zeros(4, np.int32), values(8), 3, values(8))
    assert backward.shadow_params[0]


def test_arrays_that_share_memory():
    a = values(5)
    ir = recurrence_apart.ir(a, a, 3, dim=1, tiled=True)
    assert ir.overlaps
    backward = ad.differentiate(ir, [True, True, False])
    assert backward.shadow_params[:2] == (True, True)


@tg.kernel
def recurrence_apart(a: F1, b: F1, n: int):
    for i in range(n):
        b[i + 1] = a[i] * a[i]


# --- what is refused --------------------------------------------------------------------------------------------------


@tg.kernel
def reads_back(x: F1, c: F1, y: F1):
    i = tg.tid()
    tg.atomic_add(c, 0, x[i])
    y[i] = c[0] * x[i]


@tg.kernel
def uses_old_value(x: F1, n: F1, y: F1):
    i = tg.tid()
    old = tg.atomic_add(n, 0, x[i])
    y[i] = old * old


@tg.kernel
def maximum(x: F1, y: F1, z: F1):
    i = tg.tid()
    z[i] = tg.atomic_max(y, 0, x[i])


@pytest.mark.parametrize(
    ("kernel", "args", "lines"),
    [
        (reads_back, (values(3), values(1), values(3)), ["tg.atomic_add(c, 0, x[i])", "y[i] = c[0]"]),
        (uses_old_value, (values(3), values(1), values(3)), ["old = tg.atomic_add"]),
        (maximum, (values(3), values(1), values(3)), ["tg.atomic_max"]),
    ],
)
def test_refused_with_the_line(kernel, args, lines):
    ir = kernel.ir(*args, dim=3, tiled=False)
    with pytest.raises(GradientUndefined) as caught:
        ad.differentiate(ir, [is_float(a) for a in args])
    assert any(line in str(caught.value) for line in lines)


def test_refused_read_names_both_lines():
    args = (values(3), values(1), values(3))
    with pytest.raises(GradientUndefined) as caught:
        ad.differentiate(reads_back.ir(*args, dim=3, tiled=False), [True] * 3)
    first = reads_back.function.loc.line
    assert f":{first + 2}:" in str(caught.value) and f":{first + 3}:" in str(caught.value)


def test_no_gradient_no_refusal():
    args = (values(3), values(1), values(3))
    backward = ad.differentiate(maximum.ir(*args, dim=3, tiled=False), [True, False, False])
    assert names(backward.kernel.body) == ["yield"]


# --- twice ------------------------------------------------------------------------------------------------------------


@tg.kernel
def smooth(x: F1, y: F1):
    i = tg.tid()
    v = x[i]
    if v > 0.7:
        v = v * v * tg.sin(v)
    y[i] = v * v * x[0]


@tg.kernel
def smooth_tiles(x: F2, y: F2):
    t = tg.tile_load(x, shape=(3, 3))
    u = t @ tg.sin(t)
    tg.tile_store(y, u * u)


@pytest.mark.parametrize(
    ("kernel", "dim", "tiled", "shape"), [(smooth, 5, False, (5,)), (smooth_tiles, 1, True, (3, 3))]
)
def test_second_derivative(kernel, dim, tiled, shape):
    x, y = values(*shape), values(*shape)
    first = ad.differentiate(kernel.ir(x, y, dim=dim, tiled=tiled, block_dim=4), [True, True]).kernel
    args = [x, y, values(*shape), values(*shape)]
    fake = type("Fake", (), {"ir": staticmethod(lambda *a, **k: first)})
    check(fake, dim, *args)
