"""Gradients that people got wrong elsewhere: small cases with answers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg


@pytest.fixture(params=["interpret", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def leaf(*values: Any) -> Any:
    return tg.array(np.array(values, dtype=np.float64), requires_grad=True)


def zeros(*shape: int) -> Any:
    return tg.zeros(shape, dtype=tg.float64, requires_grad=True)


def backward(device: str, kernel: Any, dim: Any, inputs: list[Any], out: Any, tiled: bool = False) -> None:
    """Launch under a tape and differentiate the sum of `out`."""
    launch = tg.launch_tiled if tiled else tg.launch
    with tg.Tape() as tape:
        launch(kernel, dim=dim, inputs=[*inputs, out], device=device)
    tape.backward(grads={out: tg.ones(out.shape, dtype=tg.float64)})


@tg.kernel
def nested(x: tg.array1d[tg.float64], c: tg.array1d[tg.float64], n: int, m: int, y: tg.array1d[tg.float64]):
    p = x[0]
    for _ in range(n):
        for j in range(m):
            p = p * c[j] + x[0]
    y[0] = p


def test_g01_nested_loops(device):
    x, y = leaf(1.5), zeros(1)
    backward(device, nested, 1, [x, leaf(2.0, 3.0), 2, 2], y)
    assert y.numpy()[0] == 96 and x.grad.numpy()[0] == 64


@tg.kernel
def nested_sine(x: tg.array1d[tg.float64], c: tg.array1d[tg.float64], n: int, m: int, y: tg.array1d[tg.float64]):
    q = x[0]
    for _ in range(n):
        for j in range(m):
            q = tg.sin(q) * c[j] + x[0]
    y[0] = q


def test_g01_nested_loops_that_are_not_linear(device):
    x, y = leaf(0.5), zeros(1)
    backward(device, nested_sine, 1, [x, leaf(2.0, 3.0), 2, 2], y)
    assert y.numpy()[0] == pytest.approx(0.0034694883, abs=1e-9)
    assert x.grad.numpy()[0] == pytest.approx(-6.7722247734, abs=1e-9)


@tg.kernel
def squared_sum(x: tg.array1d[tg.float64], init: tg.float64, n: int, y: tg.array1d[tg.float64]):
    acc = init
    for _ in range(n):
        acc += x[0]
    y[0] = acc * acc


@pytest.mark.parametrize(("init", "n", "out", "grad"), [(0.0, 3, 20.25, 27), (5.0, 3, 90.25, 57), (5.0, 0, 25, 0)])
def test_g02_sum_used_after_the_loop(device, init, n, out, grad):
    x, y = leaf(1.5), zeros(1)
    backward(device, squared_sum, 1, [x, init, n], y)
    assert (y.numpy()[0], x.grad.numpy()[0]) == (out, grad)


@tg.kernel
def power_while(x: tg.array1d[tg.float64], k: int, y: tg.array1d[tg.float64]):
    v = x[0]
    while k > 0:
        v = v * v
        k -= 1
    y[0] = v


@tg.kernel
def power_break(x: tg.array1d[tg.float64], k: int, y: tg.array1d[tg.float64]):
    v = x[0]
    while True:
        if k == 0:
            break
        v = v * v
        k -= 1
    y[0] = v


@tg.func
def until_one(v: tg.float64, k: int):
    while True:
        if k == 1:
            return v
        v = v * v
        k -= 1
    return v


@tg.kernel
def power_return(x: tg.array1d[tg.float64], k: int, y: tg.array1d[tg.float64]):
    y[0] = until_one(x[0], k)


@pytest.mark.parametrize(
    ("kernel", "out", "grad"),
    [(power_while, 2.1435888, 15.5897368), (power_break, 2.1435888, 15.5897368), (power_return, 1.4641, 5.324)],
)
def test_g05_while_break_and_return(device, kernel, out, grad):
    x, y = leaf(1.1), zeros(1)
    backward(device, kernel, 1, [x, 3], y)
    assert y.numpy()[0] == pytest.approx(out, abs=1e-7) and x.grad.numpy()[0] == pytest.approx(grad, abs=1e-6)


@tg.kernel
def repeated(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    w = y[0]
    for i in range(10):
        for _ in range(n):
            w += x[i]
    y[0] = w


@pytest.mark.parametrize("n", [500, 5000])
def test_g07_long_inner_loop(device, n):
    if device == "interpret" and n > 500:
        pytest.skip("the interpreter takes too long")
    x, y = leaf(*np.ones(10)), zeros(1)
    backward(device, repeated, 1, [x, n], y)
    assert (x.grad.numpy() == n).all()


@tg.kernel
def invariant(a: tg.array1d[tg.float64], f: tg.array1d[tg.float64]):
    i = tg.tid()
    p = a[i]
    q = tg.float64(0.0)
    for _ in range(5):
        q += p
    f[i] = q


def test_g08_loop_invariant_value(device):
    a, f = leaf(*np.arange(15.0)), zeros(15)
    backward(device, invariant, 15, [a], f)
    assert (a.grad.numpy() == 5).all()


@tg.kernel
def branches(a: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    b = a[i]
    if b > 0.0:
        b = a[i] * a[i]
    else:
        b = a[i] * a[i] * a[i]
    y[i] = b


def test_g11_reassigned_in_branches(device):
    a, y = leaf(-1.0, 2.0, 3.0), zeros(3)
    backward(device, branches, 3, [a], y)
    assert a.grad.numpy().tolist() == [3, 4, 6]


@tg.func
def safe_root(x: tg.float64):
    if x > 0.0:
        return tg.sqrt(x)
    return tg.float64(0.0)


@tg.kernel
def roots_by_branch(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = safe_root(x[i])


@tg.kernel
def roots_by_map(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    tg.tile_store(y, tg.tile_map(safe_root, tg.tile_load(x, shape=3)))


@tg.kernel
def roots_by_where(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    t = tg.tile_load(x, shape=3)
    tg.tile_store(y, tg.where(t > 0.0, tg.sqrt(t), 0.0))


@pytest.mark.parametrize("form", ["branch", "map", "where"])
def test_g13_no_nan_from_the_side_not_taken(device, form):
    x, y = leaf(0.0, 4.0, -1.0), zeros(3)
    if form == "branch":
        backward(device, roots_by_branch, 3, [x], y)
    else:
        backward(device, roots_by_map if form == "map" else roots_by_where, 1, [x], y, tiled=True)
    assert x.grad.numpy().tolist() == [0, 0.25, 0]


@tg.kernel
def copy_all(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = x[i]


@tg.kernel
def add_one(y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = y[i] + 1.0


@tg.kernel
def square(y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = y[i] * y[i]


@pytest.mark.parametrize(("kernel", "grad"), [(add_one, [1, 1, 1]), (square, [2, 4, 6])])
def test_g15_reads_and_writes_one_array(device, kernel, grad):
    x, y = leaf(1.0, 2.0, 3.0), zeros(3)
    with tg.Tape() as tape:
        tg.launch(copy_all, dim=3, inputs=[x, y], device=device)
        tg.launch(kernel, dim=3, inputs=[y], device=device)
    tape.backward(grads={y: tg.ones(3, dtype=tg.float64)})
    assert x.grad.numpy().tolist() == grad


@tg.kernel
def scaled(x: tg.array1d[tg.float64], factor: tg.float64, y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = factor * x[i]


@tg.kernel
def scaled_tile(x: tg.array1d[tg.float64], factor: tg.float64, y: tg.array1d[tg.float64]):
    tg.tile_store(y, tg.tile_load(x, shape=4) * factor)


@pytest.mark.parametrize("tiled", [False, True])
def test_g16_the_last_write_wins(device, tiled):
    a, b, y = leaf(*np.ones(4)), leaf(*np.ones(4)), zeros(4)
    launch, kernel, dim = (tg.launch_tiled, scaled_tile, 1) if tiled else (tg.launch, scaled, 4)
    with tg.Tape() as tape:
        launch(kernel, dim=dim, inputs=[a, 2.0, y], device=device)
        launch(kernel, dim=dim, inputs=[b, 3.0, y], device=device)
    tape.backward(grads={y: tg.ones(4, dtype=tg.float64)})
    assert (b.grad.numpy() == 3).all() and (a.grad is None or not a.grad.numpy().any())


@tg.kernel
def squares(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    i = tg.tid()
    y[i] = x[i] * x[i]


def test_g18_overwritten_after_it_was_recorded(device):
    x, y, other = leaf(3.0), zeros(1), leaf(5.0)
    with tg.Tape() as tape:
        tg.launch(squares, dim=1, inputs=[x, y], device=device)
        tg.launch(copy_all, dim=1, inputs=[other, x], device=device, record_tape=False)
    tape.backward(grads={y: tg.ones(1, dtype=tg.float64)})
    assert x.grad.numpy()[0] == 6


@tg.kernel
def rows(a: tg.array2d[tg.float64], b: tg.array2d[tg.float64], c: tg.array2d[tg.float64]):
    i = tg.tid()
    c[i][0] = a[i][0] + b[i][0]


def test_g23_chained_indices(device):
    a, b, c = (tg.zeros((3, 1), dtype=tg.float64, requires_grad=True) for _ in range(3))
    backward(device, rows, 3, [a, b], c)
    assert (a.grad.numpy() == 1).all() and (b.grad.numpy() == 1).all()


@tg.kernel
def written_elements(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    j = tg.tid()
    a = tg.tile_zeros(shape=8, dtype=tg.float64)
    a[j] = x[j]
    tg.tile_atomic_add(y, a)


def test_g25_tile_elements_written_by_lanes(device):
    x, y = leaf(*np.full(8, 2.0)), zeros(8)
    with tg.Tape() as tape:
        tg.launch(written_elements, dim=8, inputs=[x, y], block_dim=8, device=device)
    tape.backward(grads={y: tg.ones(8, dtype=tg.float64)})
    assert (y.numpy() == 2).all() and (x.grad.numpy() == 1).all()


F64 = tg.array2d[tg.float64]


@tg.kernel
def two_products(a: F64, b: F64, d: F64, y: F64):
    s = (2, 2)
    t = tg.tile_load(a, shape=s)
    tg.tile_store(y, t @ tg.tile_load(b, shape=s) + t @ tg.tile_load(d, shape=s))


def test_g31_gradients_add_up(device):
    rng = np.random.default_rng(1)
    a, b, d = (tg.array(rng.random((2, 2)), requires_grad=True) for _ in range(3))
    y = tg.zeros((2, 2), dtype=tg.float64, requires_grad=True)
    backward(device, two_products, 1, [a, b, d], y, tiled=True)
    ones = np.ones((2, 2))
    np.testing.assert_allclose(a.grad.numpy(), ones @ b.numpy().T + ones @ d.numpy().T)


@tg.kernel
def largest(x: tg.array1d[tg.float64], y: tg.array1d[tg.float64]):
    tg.tile_store(y, tg.tile_max(tg.tile_load(x, shape=4)))


def test_g34_ties_credit_the_first(device):
    x, y = leaf(1.0, 3.0, 3.0, 2.0), zeros(1)
    backward(device, largest, 1, [x], y, tiled=True)
    assert x.grad.numpy().tolist() == [0, 1, 0, 0]


def test_g35_backward_twice_and_zero(device):
    x, y = leaf(3.0), zeros(1)
    seed = tg.ones(1, dtype=tg.float64)
    with tg.Tape() as tape:
        tg.launch(squares, dim=1, inputs=[x, y], device=device)
    tape.backward(grads={y: seed})
    assert x.grad.numpy()[0] == 6
    tape.zero()
    tape.backward(grads={y: seed})
    assert x.grad.numpy()[0] == 6
    tape.backward(grads={y: seed})
    assert x.grad.numpy()[0] == 12 and seed.numpy()[0] == 1


@tg.kernel
def atomic_sum(x: tg.array1d[tg.float32], y: tg.array1d[tg.float32]):
    i = tg.tid()
    tg.tile_atomic_add(y, tg.tile_sum(tg.tile_load(x, shape=1000, offset=i * 1000)))


def test_n02_the_same_bits_for_every_thread_count():
    x = np.random.default_rng(0).random(10**6, dtype=np.float32)
    found, threads = set(), tg.config.num_threads
    try:
        for count in (1, 2, 3, 2, 2):
            tg.config.num_threads = count
            y = np.zeros(1, np.float32)
            tg.launch_tiled(atomic_sum, dim=1000, inputs=[x, y])
            found.add(y.tobytes())
    finally:
        tg.config.num_threads = threads
    assert len(found) == 1


# --- long loops save checkpoints ----------------------------------------------------------------------------------


@tg.kernel
def long_for(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    t = tg.tile_load(x, shape=4)
    for _ in range(2 * n, 0, -2):
        t = tg.sin(t) * 1.01 + t * 0.1
    tg.tile_store(y, t)


@tg.kernel
def long_while(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    t = tg.tile_load(x, shape=4)
    while n > 0:
        t = tg.sin(t) * 1.01 + t * 0.1
        n -= 1
    tg.tile_store(y, t)


@tg.kernel
def long_lanes(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    i = tg.tid()
    t = x[i]
    for _ in range(n + i):
        t = tg.sin(t) * 1.01 + t * 0.1
    y[i] = t


def iterated(x, turns):
    """The loops above in NumPy: values and derivatives."""
    t, slope = x.copy(), np.ones(4)
    for k in range(int(np.max(turns))):
        on = k < turns
        slope = np.where(on, slope * (np.cos(t) * 1.01 + 0.1), slope)
        t = np.where(on, np.sin(t) * 1.01 + t * 0.1, t)
    return t, slope


@pytest.mark.parametrize("saved", [3, 256])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 50])
@pytest.mark.parametrize("kernel", [long_for, long_while, long_lanes], ids=lambda k: k.name)
def test_loops_with_checkpoints(device, monkeypatch, kernel, n, saved):
    monkeypatch.setattr(tg.config, "saved_turns", saved)
    x, y = np.array([0.1, 0.2, 0.3, 0.4]), np.zeros(4)
    lanes = kernel is long_lanes
    pullback = tg.vjp(kernel, 4 if lanes else 1, [x, n], [y], tiled=not lanes, block_dim=4, device=device)
    out, slope = iterated(x, n + np.arange(4) * lanes)
    np.testing.assert_allclose(y, out, rtol=1e-12)
    np.testing.assert_allclose(pullback(np.ones(4))[0], slope, rtol=1e-10)


@pytest.mark.parametrize("kernel", [long_for, long_while], ids=lambda k: k.name)
def test_a_hundred_thousand_turns(kernel):
    x, y = np.array([0.1, 0.2, 0.3, 0.4]), np.zeros(4)
    pullback = tg.vjp(kernel, 1, [x, 100_000], [y])
    out, slope = iterated(x, np.full(4, 100_000))
    np.testing.assert_allclose(y, out, rtol=1e-9)
    np.testing.assert_allclose(pullback(np.ones(4))[0], slope, rtol=1e-6, atol=1e-300)


@tg.kernel
def nested_lanes(x: tg.array1d[tg.float64], s: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    i = tg.tid()
    w = s[0]
    total = x[i]
    for c in range(n):
        for k in range(c):
            w = w * s[k]
            total += x[i] * w
            if x[i] > 0.7:
                total = total * w
    y[i] = total * w


def test_a_number_of_the_block_in_nested_loops_of_lanes(device):
    x, s, y = np.linspace(0, 1, 6), np.linspace(0.5, 1.5, 6), np.zeros(6)
    tg.launch(nested_lanes, dim=6, inputs=[x, s, 4, y], device=device)
    w, total = s[0], x.copy()
    for c in range(4):
        for k in range(c):
            w = w * s[k]
            total = total + x * w
            total = np.where(x > 0.7, total * w, total)
    np.testing.assert_allclose(y, total * w)


# --- gradients of gradients, through the stacks that backward passes save values on ----------------------------------


def hessian_product(kernel, x, n, v, dim, tiled, device):
    """d/dx of (gradient of the weighted sum of outputs) . v, by a tape around a tape."""
    a, y = leaf(*x), zeros(len(x))
    run = tg.launch_tiled if tiled else tg.launch
    with tg.Tape() as outer:
        with tg.Tape() as inner:
            run(kernel, dim=dim, inputs=[a, n, y], device=device, block_dim=4)
        inner.backward(grads={y: np.cos(np.arange(len(x)))})
    outer.backward(grads={a.grad: v})
    return outer.gradient(a)


@pytest.mark.parametrize("saved", [3, 256])
@pytest.mark.parametrize("kernel", [long_for, long_while, long_lanes], ids=lambda k: k.name)
def test_second_derivative_of_a_loop(device, monkeypatch, kernel, saved):
    monkeypatch.setattr(tg.config, "saved_turns", saved)
    x, v = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, -2.0, 0.5, 0.3])
    tiled = kernel is not long_lanes
    dim = 1 if tiled else 4

    def gradient(at):
        pullback = tg.vjp(kernel, dim, [at, 7], [np.zeros(4)], tiled=tiled, block_dim=4, device=device)
        return pullback(np.cos(np.arange(4)))[0]

    h = 1e-5
    numeric = (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)
    got = hessian_product(kernel, x, 7, v, dim, tiled, device)
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)
