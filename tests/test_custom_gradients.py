"""Functions with gradients and replays of their own, stop_gradient, and gradients inside kernels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import compiler
from tilegrad.ad import differentiate
from tilegrad.tape import Tape

DEVICES = ("interpret", "cpu")
F32 = np.float32
both = pytest.mark.parametrize("device", DEVICES)


def pulled(kernel, inputs, shape=None, *, dim=None, tiled=False, device="cpu", ct=None, block_dim=None):
    """Run a kernel with one output; the output, and the gradients of the inputs for cotangents of ones."""
    first = next(x for x in inputs if isinstance(x, np.ndarray))
    y = np.zeros(first.shape if shape is None else shape, first.dtype)
    size = (1 if tiled else len(first)) if dim is None else dim
    pullback = tg.vjp(kernel, size, inputs, [y], tiled=tiled, device=device, block_dim=block_dim)
    return y, pullback(np.ones_like(y) if ct is None else ct)


def pushed(kernel, inputs, tangents, shape=None, *, dim=None, tiled=False, device="cpu"):
    first = next(x for x in inputs if isinstance(x, np.ndarray))
    y = np.zeros(first.shape if shape is None else shape, first.dtype)
    size = (1 if tiled else len(first)) if dim is None else dim
    return tg.jvp(kernel, size, inputs, [y], tangents, tiled=tiled, device=device)[0]


# --- a gradient of one's own at every depth (G32) ------------------------------------------------------------------


@tg.func
def odd(x: float):
    return x * x


@tg.func_grad(odd)
def odd_gradient(x: float, ct: float):
    tg.adjoint[x] += 100.0 * ct


@tg.func
def deeper(x: float):
    return odd(x)


@tg.func
def deepest(x: float):
    return deeper(x) + 1.0


@tg.kernel
def by_call(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()
    y[i] = odd(x[i])


@tg.kernel
def by_calls(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()
    y[i] = deepest(x[i])


@tg.kernel
def in_loop(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()
    total = 0.0
    for k in range(i % 2 + 1):
        total += deeper(x[i])
    y[i] = total / float(i % 2 + 1)


@tg.kernel
def in_branch(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()
    v = x[i]
    if v > 1.0:
        v = deeper(v)
    else:
        v = odd(v)
    y[i] = v


@tg.kernel
def by_lambda(x: tg.array1d[float], y: tg.array1d[float]):
    t = tg.tile_load(x, shape=7)
    tg.tile_store(y, tg.tile_map(lambda v: deeper(v) + 0.0, t))


@tg.kernel
def by_map(x: tg.array1d[float], y: tg.array1d[float]):
    tg.tile_store(y, tg.tile_map(deepest, tg.tile_load(x, shape=7)))


@tg.kernel
def by_inner_function(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()

    def inner(v):
        return deeper(v)

    y[i] = inner(x[i])


@both
@pytest.mark.parametrize("kernel", [by_call, by_calls, in_loop, in_branch, by_lambda, by_map, by_inner_function])
def test_the_gradient_is_used_at_every_depth(kernel, device):
    x = np.linspace(0, 3, 7, dtype=F32)
    tiled = kernel in (by_lambda, by_map)
    y, (g,) = pulled(kernel, [x], tiled=tiled, device=device)
    assert np.array_equal(g, np.full(7, 100, F32))  # the peer did not compile a second level of calls
    assert np.allclose(y - (kernel in (by_calls, by_map)), x * x, rtol=1e-6)
    rate = pushed(kernel, [x], [np.full(7, 0.5, F32)], tiled=tiled, device=device)
    assert np.array_equal(rate, np.full(7, 50, F32))


@tg.func
def squares(t: tg.tile(float, shape=(2, 3))):
    return t * t


@tg.func_grad(squares)
def squares_gradient(t, ct):
    tg.adjoint[t] += 3.0 * ct
    tg.adjoint[t][0, 1] += 1.0


@both
def test_a_tile_as_argument(device):
    @tg.kernel
    def k(x: tg.array2d[float], y: tg.array2d[float]):
        tg.tile_store(y, 2.0 * squares(tg.tile_load(x, shape=(2, 3))))

    x = np.arange(6, dtype=F32).reshape(2, 3)
    y, (g,) = pulled(k, [x], tiled=True, dim=1, device=device)
    assert np.array_equal(y, 2 * x * x) and np.array_equal(g, [[6, 7, 6], [6, 6, 6]])
    twice = pushed(k, [x], [np.ones_like(x)], tiled=True, dim=1, device=device)
    assert np.array_equal(twice, np.full((2, 3), 6))


@tg.func
def product(a: tg.array2d[float], b: tg.array2d[float], i: int):
    s = tg.tile_load(a, shape=(4, 4), offset=(4 * i, 0))
    t = tg.tile_load(b, shape=(4, 4))
    return tg.tile_matmul(s, t)


@tg.func_grad(product)
def product_gradient(a: tg.array2d[float], b: tg.array2d[float], i: int, ct: Any):
    t = tg.tile_load(b, shape=(4, 4))
    tg.tile_atomic_add(tg.adjoint[a], 10.0 * (ct @ t.T), offset=(4 * i, 0))
    tg.tile_atomic_add(tg.adjoint[b], ct * 0.0 + 1.0)


@both
def test_a_function_that_loads_tiles_and_multiplies_them(device):
    @tg.func
    def outer(a: tg.array2d[float], b: tg.array2d[float], i: int):
        return product(a, b, i)

    @tg.kernel
    def k(a: tg.array2d[float], b: tg.array2d[float], y: tg.array2d[float]):
        i = tg.tid()
        tg.tile_store(y, outer(a, b, i), offset=(4 * i, 0))

    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((8, 4)).astype(F32), rng.standard_normal((4, 4)).astype(F32)
    y, (ga, gb) = pulled(k, [a, b], (8, 4), dim=2, tiled=True, device=device)
    assert np.allclose(y, a @ b, atol=1e-5)
    assert np.allclose(ga, 10 * np.ones((8, 4)) @ b.T, atol=1e-4)  # the peer raised KeyError at the definition
    assert np.array_equal(gb, np.full((4, 4), 2))


def test_the_gradient_may_come_after_the_kernel_and_after_a_launch():
    @tg.func
    def f(x: float):
        return x * x

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        y[tg.tid()] = f(x[tg.tid()])

    x = np.array([3], F32)
    assert pulled(k, [x])[1][0] == 6

    @tg.func_grad(f)
    def first(x: float, ct: float):
        tg.adjoint[x] += 7.0 * ct

    assert pulled(k, [x])[1][0] == 7

    @tg.func_grad(f)
    def second(x: float, ct: float):
        tg.adjoint[x] += 8.0 * ct

    assert pulled(k, [x])[1][0] == 8
    assert f(3.0) == 9.0 and callable(first)


@both
def test_a_safe_square_root(device):
    @tg.func
    def safe_sqrt(x: float):
        return tg.sqrt(x)

    @tg.func_grad(safe_sqrt)
    def adj_safe_sqrt(x: float, adj_ret: float):
        if x > 0.0:
            tg.adjoint[x] += 1.0 / (2.0 * tg.sqrt(x)) * adj_ret

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = safe_sqrt(x[i])

    x = np.array([4, 0, 1], F32)
    _, (g,) = pulled(k, [x], device=device)
    assert np.array_equal(g, np.array([0.25, 0, 0.5], F32))
    assert np.array_equal(pushed(k, [x], [np.ones(3, F32)], device=device), g)


@both
def test_early_returns_loops_and_locals_in_a_gradient(device):
    @tg.func
    def f(x: float, n: int):
        return x * float(n)

    @tg.func_grad(f)
    def gradient(x: float, n: int, ct: float):
        if x < 0.0:
            return
        total = 0.0
        for k in range(n):
            if k == 3:
                break
            total += ct
        tg.adjoint[x] += total

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(x[i], i)

    x = np.array([1, 1, -1, 1, 1, 1], F32)
    _, (g,) = pulled(k, [x], device=device)
    assert np.array_equal(g, np.array([0, 1, 0, 3, 3, 3], F32))


# --- several results, composite values, arrays ----------------------------------------------------------------------


@both
def test_several_results(device):
    @tg.func
    def f(x: float, y: float):
        return x * y, x + y, 7

    @tg.func_grad(f)
    def gradient(x: float, y: float, adj_0: float, adj_1: float, adj_2: int):
        tg.adjoint[x] += x * adj_0 * 42.0 + y * adj_1 * 10.0
        tg.adjoint[y] += y * adj_0 * 3.0

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float], out: tg.array1d[float]):
        i = tg.tid()
        p, s, n = f(x[i], y[i])
        out[i] = p + 2.0 * s + float(n)

    x, y = np.array([1, 2], F32), np.array([3, 5], F32)
    out, (gx, gy) = pulled(k, [x, y], device=device)
    assert np.array_equal(out, x * y + 2 * (x + y) + 7)
    assert np.array_equal(gx, 42 * x + 20 * y) and np.array_equal(gy, 3 * y)


@tg.struct
class Body:
    scalar: float
    vec: tg.vec3


@both
def test_structs_and_vectors(device):
    @tg.func
    def f(x: Body):
        return x.vec * x.scalar, x.scalar

    @tg.func_grad(f)
    def gradient(x: Body, adj_0: tg.vec3, adj_1: float):
        tg.adjoint[x.scalar] += x.scalar * adj_1 * 10.0
        tg.adjoint[x].vec += 2.0 * adj_0
        tg.adjoint[x.vec][0] += 20.0 * x.vec[1] * x.vec[2]
        tg.adjoint[x.vec[1]] += 5.0

    @tg.kernel
    def k(s: tg.array1d[float], v: tg.array1d[tg.vec3], out: tg.array1d[float]):
        i = tg.tid()
        scaled, same = f(Body(scalar=s[i], vec=v[i]))
        out[i] = scaled[0] + scaled[1] + scaled[2] + same

    s, v = tg.array(np.array([2], F32)), tg.array(np.array([[3, 4, 5]], F32), dtype=tg.vec3)
    s.requires_grad = v.requires_grad = True
    out = tg.zeros(1, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch(k, 1, inputs=[s, v], outputs=[out], device=device)
    tape.backward(out)
    assert out.numpy()[0] == 26
    assert s.grad.numpy()[0] == 20
    assert np.array_equal(v.grad.numpy()[0], [2 + 400, 2 + 5, 2])


@both
@pytest.mark.parametrize("block_dim", [1, 3, 64])
def test_the_gradient_of_an_array(device, block_dim):
    @tg.func
    def pick(a: tg.array1d[float], i: int):
        return a[i] * a[i + 1]

    @tg.func_grad(pick)
    def gradient(a: tg.array1d[float], i: int, ct: float):
        tg.adjoint[a][i] += 10.0 * ct
        tg.atomic_add(tg.adjoint[a], i + 1, a[i] * ct)

    @tg.kernel
    def k(a: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = pick(a, i) + a[i]

    a = np.array([1, 2, 3, 4, 5], F32)
    y, (g,) = pulled(k, [a], (4,), dim=4, device=device, block_dim=block_dim)
    assert np.array_equal(y, a[:-1] * a[1:] + a[:-1])
    assert np.array_equal(g, [11, 12, 13, 14, 4])
    rate = pushed(k, [a], [np.ones(5, F32)], (4,), dim=4, device=device)
    assert np.array_equal(rate, 11 + a[:-1])


@both
def test_an_array_without_a_gradient(device):
    @tg.func
    def f(x: float, a: tg.array1d[float], i: int):
        return x * a[i]

    @tg.func_grad(f)
    def gradient(x: float, a: tg.array1d[float], i: int, ct: float):
        tg.adjoint[x] += 2.0 * a[i] * ct + tg.adjoint[a][i]
        tg.adjoint[a][i] += x * ct

    @tg.kernel
    def k(x: tg.array1d[float], a: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(x[i], a, i)

    x, a = tg.array(np.ones(3, F32), requires_grad=True), tg.array(np.array([1, 2, 3], F32))
    y = tg.zeros(3, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch(k, 3, inputs=[x, a], outputs=[y], device=device)
    tape.backward(grads={y: tg.ones_like(y)})
    assert np.array_equal(x.grad.numpy(), [2, 4, 6]) and a.grad is None


@tg.struct
class Weighted:
    w: float
    a: tg.array1d[float]


@both
def test_arrays_of_vectors_and_inside_structs(device):
    @tg.func
    def f(s: Weighted, v: tg.array1d[tg.vec2], i: int):
        return s.w * s.a[i] + v[i][0] * v[i][1]

    @tg.func_grad(f)
    def gradient(s: Weighted, v: tg.array1d[tg.vec2], i: int, ct: float):
        tg.adjoint[s.w] += ct
        tg.adjoint[s.a][i] += 3.0 * ct
        tg.adjoint[s].a[i] += 4.0 * ct
        tg.adjoint[v][i] += v[i] * ct

    @tg.kernel
    def k(s: Weighted, v: tg.array1d[tg.vec2], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(s, v, i)

    a = tg.array(np.array([1, 2], F32), requires_grad=True)
    v = tg.array(np.array([[1, 2], [3, 4]], F32), dtype=tg.vec2, requires_grad=True)
    y = tg.zeros(2, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch(k, 2, inputs=[Weighted(w=2.0, a=a), v], outputs=[y], device=device)
    tape.backward(grads={y: tg.ones_like(y)})
    assert np.array_equal(y.numpy(), [4, 16])
    assert np.array_equal(a.grad.numpy(), [7, 7]) and np.array_equal(v.grad.numpy(), [[1, 2], [3, 4]])


@both
def test_long_loops_with_checkpoints(device):
    @tg.func
    def step(v: float):
        return v * 1.001

    @tg.func_grad(step)
    def gradient(v: float, ct: float):
        tg.adjoint[v] += 1.002 * ct

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        v = x[i]
        for _ in range(600):
            v = step(v) + tg.grad(lambda u: 0.0005 * u * u)(v)
        y[i] = v

    x = np.array([0.5, 1], F32)
    y, (g,) = pulled(k, [x], device=device)
    assert np.allclose(y, x * 1.002**600, rtol=1e-4) and np.allclose(g, 1.003**600, rtol=1e-4)


@both
def test_iterations_to_convergence_and_products_of_tiles(device):
    @tg.func
    def root(a: float):
        x = a
        n = 0
        while n < 20 and abs(x * x - a) > 1e-6:
            x = x - (x * x - a) / (2.0 * x)
            n += 1
        return x

    @tg.func
    def quadratic(t: Any, a: Any):
        return tg.tile_sum(t * (a @ t))[0]

    @tg.kernel
    def k(x: tg.array2d[float], a: tg.array2d[float], y: tg.array2d[float]):
        dt, da = tg.grad(quadratic)(tg.tile_load(x, shape=(3, 1)), tg.tile_load(a, shape=(3, 3)))
        tg.tile_store(y, tg.tile_map(tg.grad(root), dt) + 0.0 * tg.tile_sum(da))

    x, a = np.array([[1], [2], [3]], F32), np.arange(9, dtype=F32).reshape(3, 3)
    y, (gx, ga) = pulled(k, [x, a], (3, 1), dim=1, tiled=True, device=device)
    z = (a + a.T) @ x
    slope = -0.25 * z**-1.5
    assert np.allclose(y, 0.5 * z**-0.5, rtol=1e-3)
    assert np.allclose(gx, (a + a.T) @ slope, rtol=1e-2)
    assert np.allclose(ga, slope @ x.T + x @ slope.T, rtol=1e-2)


@both
def test_reductions_by_a_function_with_a_gradient_of_its_own(device):
    @tg.func
    def plus(a: float, b: float):
        return a + b

    @tg.func_grad(plus)
    def gradient(a: float, b: float, ct: float):
        tg.adjoint[a] += 2.0 * ct
        tg.adjoint[b] += 2.0 * ct

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        tg.tile_store(y, tg.tile_reduce(plus, tg.tile_load(x, shape=4)))

    y, (g,) = pulled(k, [np.arange(4, dtype=F32)], (1,), dim=1, tiled=True, device=device)
    assert y[0] == 6 and np.array_equal(g, [4, 4, 4, 4])  # two levels of a tree


@both
def test_the_forward_derivative_of_a_gradient_with_loops_is_differentiated(device):
    @tg.func
    def root(x: float):
        return tg.sqrt(x)

    @tg.func_grad(root)
    def gradient(x: float, ct: float):
        s = 0.0
        for _ in range(3):
            if x > 0.5:
                s += ct / (2.0 * tg.sqrt(x))
        tg.adjoint[x] += s

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = root(x[i])

    x, y = tg.array(np.array([0, 1, 4], F32), requires_grad=True), tg.zeros(3, dtype=float)
    with Tape() as tape:
        (rate,) = tg.jvp(k, 3, [x], [y], [np.ones(3, F32)], tiled=False, device=device)
    (h,) = tape.vjp([(rate, np.ones(3, F32))], [x])
    assert np.array_equal(rate, [0, 1.5, 0.75]) and np.allclose(h, [0, -0.75, -0.75 / 8])


@both
def test_a_function_that_writes_an_array(device):
    @tg.func
    def put(a: tg.array1d[float], i: int, x: float):
        a[i] = x * x

    @tg.func_grad(put)
    def gradient(a: tg.array1d[float], i: int, x: float):
        tg.adjoint[x] += 5.0 * tg.adjoint[a][i]
        tg.adjoint[a][i] = 0.0

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        put(y, i, x[i])

    x = np.array([1, 2, 3], F32)
    y, (g,) = pulled(k, [x], device=device)
    assert np.array_equal(y, x * x) and np.array_equal(g, [5, 5, 5])
    with pytest.raises(tg.GradientUndefined, match="reads the gradient of an array"):
        pushed(k, [x], [x], device=device)


@both
def test_what_a_function_has_stored_is_read_after_the_launch(device):
    @tg.func
    def root(x: float, kept: tg.array1d[float], i: int):
        r = tg.sqrt(x)
        kept[i] = r
        return r

    @tg.func_grad(root)
    def gradient(x: float, kept: tg.array1d[float], i: int, ct: float):
        tg.adjoint[x] += ct / kept[i]

    @tg.kernel
    def k(x: tg.array1d[float], kept: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = root(x[i], kept, i)

    x = np.array([4, 16], F32)
    _, (g, _) = pulled(k, [x, np.zeros(2, F32)], device=device)
    assert np.array_equal(g, [0.5, 0.25])


@both
def test_a_uniform_call_counts_once_for_the_block(device):
    @tg.func
    def first(a: tg.array1d[float]):
        return a[0]

    @tg.func_grad(first)
    def gradient(a: tg.array1d[float], ct: float):
        tg.adjoint[a][0] += ct

    @tg.kernel
    def k(a: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = first(a)

    a = np.array([3, 0, 0, 0, 0], F32)
    for block_dim in (1, 4, 256):
        _, (g,) = pulled(k, [a], dim=5, device=device, block_dim=block_dim)
        assert np.array_equal(g, [5, 0, 0, 0, 0]), block_dim


@both
def test_lanes_that_have_returned_do_not_count(device):
    @tg.func
    def pick(a: tg.array1d[float], i: int):
        return a[i]

    @tg.func_grad(pick)
    def gradient(a: tg.array1d[float], i: int, ct: float):
        tg.adjoint[a][i] += 2.0 * ct
        tg.adjoint[a][0] += 0.0 * ct + 1.0

    @tg.kernel
    def k(a: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        if i >= 3:
            return
        s = tg.tile_sum(tg.tile(pick(a, i)))
        y[i] = s[0]

    a = np.arange(4, dtype=F32)
    y, (g,) = pulled(k, [a], dim=6, device=device, block_dim=6)
    assert np.array_equal(y, [3, 3, 3, 0])
    assert np.array_equal(g, [6 + 3, 6, 6, 0])


@both
def test_second_derivatives_of_a_gradient_of_ones_own(device):
    @tg.func
    def f(x: float):
        return x * x

    @tg.func_grad(f)
    def gradient(x: float, ct: float):
        tg.adjoint[x] += x * x * x * ct

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(x[i])

    x = tg.array(np.array([1, 2], F32), requires_grad=True)
    y = tg.zeros(2, dtype=float)
    with Tape() as outer:
        with Tape() as inner:
            inner.watch(x)
            tg.launch(k, 2, inputs=[x], outputs=[y], device=device)
        (g,) = inner.vjp([(y, np.ones(2, F32))], [x])
    (h,) = outer.vjp([(g, np.ones(2, F32))], [x])
    assert np.array_equal(g, [1, 8]) and np.array_equal(h, [3, 12])


@both
def test_the_gradient_may_use_the_derivative_of_the_function_itself(device):
    @tg.func
    def f(x: float):
        return x * x * x

    @tg.func_grad(f)
    def clipped(x: float, ct: float):
        tg.adjoint[x] += tg.clamp(tg.grad(f)(x), -5.0, 5.0) * ct

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(x[i])

    _, (g,) = pulled(k, [np.array([1, 2], F32)], device=device)
    assert np.array_equal(g, [3, 5])


@both
@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float32, tg.float64])
def test_every_float(device, dtype):
    @tg.func
    def f(x: Any):
        return x * x

    @tg.func_grad(f)
    def gradient(x: Any, ct: Any):
        tg.adjoint[x] += 3.0 * ct

    @tg.kernel
    def k(x: tg.array(dtype=Any, ndim=1), y: tg.array(dtype=Any, ndim=1)):
        t = tg.tile_load(x, shape=5)
        tg.tile_store(y, f(t) + tg.tile_map(f, t))

    _, (g,) = pulled(k, [np.arange(5).astype(dtype.np)], tiled=True, device=device)
    assert g.dtype == dtype.np and np.array_equal(g.astype(float), np.full(5, 6))


# --- replay ---------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("block_dim", [2, 256])
def test_a_replay_reads_what_was_stored(device, block_dim):
    @tg.func
    def reversible_increment(counter: tg.array1d[int], at: int, by: int, kept: tg.array1d[int], tid: int):
        value = tg.atomic_add(counter, at, by)
        kept[tid] = value
        return value

    @tg.func_replay(reversible_increment)
    def replay(counter: tg.array1d[int], at: int, by: int, kept: tg.array1d[int], tid: int):
        return kept[tid]

    @tg.kernel
    def k(x: tg.array1d[float], counter: tg.array1d[int], kept: tg.array1d[int], y: tg.array1d[float]):
        tid = tg.tid()
        i = reversible_increment(counter, 0, 1, kept, tid)
        y[i] = x[i] ** 2.0

    x = np.arange(6, dtype=F32)
    y, (g, *_) = pulled(k, [x, np.zeros(1, np.int32), np.zeros(6, np.int32)], device=device, block_dim=block_dim)
    assert np.array_equal(y, x * x) and np.array_equal(g, 2 * x)


@both
def test_a_replay_does_not_change_the_derivative(device):
    @tg.func
    def slow(x: float, kept: tg.array1d[float], i: int):
        r = tg.exp(x)
        kept[i] = r
        return r

    @tg.func_replay(slow)
    def fast(x: float, kept: tg.array1d[float], i: int):
        return kept[i]

    @tg.kernel
    def k(x: tg.array1d[float], kept: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        v = slow(x[i], kept, i)
        y[i] = v * v

    x = np.array([0, 1], F32)
    _, (g, _) = pulled(k, [x, np.zeros(2, F32)], device=device)
    assert np.allclose(g, 2 * np.exp(2 * x), rtol=1e-5)
    rate = pushed(k, [x, np.zeros(2, F32)], [np.ones(2, F32), None], device=device)
    assert np.allclose(rate, g, rtol=1e-5)


# --- stop_gradient --------------------------------------------------------------------------------------------------


@both
def test_stop_gradient(device):
    @tg.kernel
    def k(x: tg.array1d[float], v: tg.array1d[tg.vec2], y: tg.array1d[float]):
        t = tg.tile_load(x, shape=3)
        i = tg.stop_gradient(2)
        w = tg.stop_gradient(v[0])
        s = tg.stop_gradient(x[0]) * x[1] + w[0] * v[0][1]
        for k in range(2):
            if s > 0.0:
                s = s + tg.stop_gradient(s) * x[i]
        tg.tile_store(y, tg.stop_gradient(t) * t + s)

    x, v = np.array([1, 2, 3], F32), tg.array(np.array([[5, 7]], F32), dtype=tg.vec2)
    v.requires_grad = True
    ax, y = tg.array(x, requires_grad=True), tg.zeros(3, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch_tiled(k, 1, inputs=[ax, v], outputs=[y], device=device)
    tape.backward(grads={y: tg.ones_like(y)})
    # s = 2 + 35 = 37; then 37 + 37 * 3 = 148 and 148 + 148 * 3
    assert np.array_equal(y.numpy(), x * x + 592)
    assert np.array_equal(ax.grad.numpy(), x + [0, 3, 3 * (37 + 148)])
    assert np.array_equal(v.grad.numpy()[0], [0, 3 * 5])
    rates = tg.jvp(k, 1, [x, v.numpy()], [np.zeros(3, F32)], [np.ones(3, F32), None], device=device)
    assert np.array_equal(rates[0], x / x * x + 1 + 185)


def test_stop_gradient_outside_of_kernels_and_of_arrays():
    assert tg.stop_gradient(2.0) == 2.0

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        y[0] = tg.stop_gradient(x)[0]

    with pytest.raises(tg.TypeMismatch, match="whole array") as caught:
        tg.launch(k, 1, inputs=[np.ones(1, F32)], outputs=[np.ones(1, F32)])
    assert "read it first" in caught.value.help


# --- gradients inside kernels ---------------------------------------------------------------------------------------


@tg.func
def cube(x: float):
    return x * x * x


@both
def test_the_gradient_of_a_function(device):
    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = tg.grad(cube)(x[i])

    x = np.array([1, 2, -3], F32)
    y, (g,) = pulled(k, [x], device=device)
    assert np.array_equal(y, 3 * x * x) and np.array_equal(g, 6 * x)
    assert np.array_equal(pushed(k, [x], [np.ones(3, F32)], device=device), 6 * x)


@both
def test_gradients_of_gradients(device):
    second, third = tg.grad(tg.grad(cube)), tg.grad(tg.grad(tg.grad(cube)))

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array2d[float]):
        i = tg.tid()
        y[0, i] = second(x[i])
        y[1, i] = third(x[i])

    x = np.array([1, 2, -3], F32)
    y, (g,) = pulled(k, [x], (2, 3), dim=3, device=device)
    assert np.array_equal(y, [6 * x, [6, 6, 6]]) and np.array_equal(g, [6, 6, 6])


@both
def test_builtins_lambdas_and_several_arguments(device):
    @tg.kernel
    def k(b: tg.array1d[float], a: tg.array1d[float], y: tg.array2d[float]):
        i = tg.tid()
        db, da = tg.grad(tg.atan2)(b[i], a[i])
        y[0, i], y[1, i] = db, da
        y[2, i] = tg.grad(lambda u, v: u * v * v, argnums=1)(b[i], a[i])
        (only,) = tg.grad(lambda u, v: u * v, argnums=(0,))(b[i], a[i])
        y[3, i] = only
        y[4, i] = tg.grad(lambda u: u * b[i] + 3.0 * u)(2.0)

    a, b = np.array([1, 2], F32), np.array([3, -1], F32)
    y, (gb, ga) = pulled(k, [b, a], (5, 2), dim=2, device=device)
    r = a * a + b * b
    assert np.allclose(y, [a / r, -b / r, 2 * a * b, a, b + 3], rtol=1e-6)
    d = (a * a - b * b) / r**2
    assert np.allclose(gb, -2 * a * b / r**2 - d + 2 * a + 1, rtol=1e-5)
    assert np.allclose(ga, (b * b - a * a) / r**2 + 2 * a * b / r**2 + 2 * b + 1, rtol=1e-5)


@tg.func
def spring(p: tg.vec3, q: tg.vec3, n: int):
    d = p - q
    return 0.5 * float(n) * (tg.length(d) - 1.0) ** 2.0


@both
def test_vectors(device):
    @tg.kernel
    def k(p: tg.array1d[tg.vec3], q: tg.array1d[tg.vec3], f: tg.array1d[tg.vec3]):
        i = tg.tid()
        dp, dq = tg.grad(spring)(p[i], q[i], 2)
        f[i] = -(dp - dq)

    rng = np.random.default_rng(4)
    p, q = (rng.standard_normal((3, 3)).astype(F32) for _ in range(2))
    f = tg.zeros(3, dtype=tg.vec3)
    tg.launch(k, 3, inputs=[tg.array(p, dtype=tg.vec3), tg.array(q, dtype=tg.vec3)], outputs=[f], device=device)
    d = p - q
    r = np.linalg.norm(d, axis=1, keepdims=True)
    assert np.allclose(f.numpy(), -4 * (r - 1) * d / r, atol=1e-5)


@both
def test_tiles_loops_and_branches(device):
    @tg.func
    def energy(t: Any, w: float, n: int):
        s = tg.tile_sum(t * t)[0]
        for k in range(n):
            if k % 2 == 0:
                s = s * w
            else:
                s = s + tg.sin(w)
        return s

    @tg.kernel
    def k(x: tg.array1d[float], w: tg.array1d[float], n: int, y: tg.array1d[float]):
        t = tg.tile_load(x, shape=4)
        value, (dt, dw) = tg.value_and_grad(energy)(t, w[0], n)
        tg.tile_store(y, dt)
        y[4] = dw
        y[5] = value

    x, w = np.array([1, 2, 3, 4], F32), np.array([1.5], F32)
    y, _ = pulled(k, [x, w, 3], (6,), dim=1, tiled=True, device=device)
    s = (x * x).sum()  # (s w + sin w) w
    assert np.allclose(y[:4], 2 * x * w**2, rtol=1e-5)
    assert np.allclose(y[4:], [2 * s * w[0] + np.sin(w[0]) + w[0] * np.cos(w[0]), s * w[0] ** 2 + np.sin(w[0]) * w[0]])
    ct = np.array([0, 0, 0, 0, 1, 0], F32)
    _, (gx, gw, _) = pulled(k, [x, w, 3], (6,), dim=1, tiled=True, device=device, ct=ct)
    assert np.allclose(gx, 4 * x * w[0], rtol=1e-5)
    assert np.allclose(gw, 2 * s + 2 * np.cos(w) - w * np.sin(w), rtol=1e-5)


@both
def test_a_gradient_in_lane_code(device):
    @tg.func
    def f(x: float, n: int):
        y = x
        for _ in range(n):
            y = y * x
        return y

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        v = x[i]
        out = 0.0
        if v > 0.0:
            for m in range(i):
                out += tg.grad(f)(v, m)
        y[i] = out

    x = np.array([1, 2, -3, 2, 0.5], F32)
    y, (g,) = pulled(k, [x], device=device)
    right = [sum((m + 1) * v**m for m in range(i)) if v > 0 else 0 for i, v in enumerate(x.tolist())]
    slope = [sum((m + 1) * m * v ** (m - 1) for m in range(1, i)) if v > 0 else 0 for i, v in enumerate(x.tolist())]
    assert np.allclose(y, right, rtol=1e-5) and np.allclose(g, slope, rtol=1e-5)


@both
def test_a_gradient_in_a_map(device):
    @tg.kernel
    def k(x: tg.array2d[float], c: tg.array1d[float], y: tg.array2d[float]):
        w = c[0]
        t = tg.tile_load(x, shape=(2, 3))
        tg.tile_store(y, tg.tile_map(lambda v: tg.grad(lambda u: tg.sin(u * w))(v), t))

    x, c = np.arange(6, dtype=F32).reshape(2, 3), np.array([0.5], F32)
    y, (gx, gc) = pulled(k, [x, c], (2, 3), dim=1, tiled=True, device=device)
    assert np.allclose(y, c * np.cos(x * c), atol=1e-6)
    assert np.allclose(gx, -(c**2) * np.sin(x * c), atol=1e-6)
    assert np.allclose(gc, (np.cos(x * c) - x * c * np.sin(x * c)).sum(), atol=1e-5)


@both
def test_arrays_are_constants_of_a_gradient_but_not_of_the_kernel(device):
    @tg.func
    def f(x: float, a: tg.array1d[float], i: int):
        return x * x * a[i]

    @tg.kernel
    def k(x: tg.array1d[float], a: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = tg.grad(f)(x[i], a, i)

    x, a = np.array([1, 2], F32), np.array([3, 4], F32)
    y, (gx, ga) = pulled(k, [x, a], device=device)
    assert np.array_equal(y, 2 * x * a) and np.array_equal(gx, 2 * a) and np.array_equal(ga, 2 * x)
    rate = pushed(k, [x, a], [None, np.ones(2, F32)], device=device)
    assert np.array_equal(rate, 2 * x)


@both
@pytest.mark.parametrize("block_dim", [1, 2, 8])
def test_each_lane_has_a_derivative_of_its_own(device, block_dim):
    @tg.kernel
    def k(w: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = tg.grad(lambda u: u * u * float(i))(w[0])

    w = np.array([3, 0, 0, 0, 0], F32)
    y, (g,) = pulled(k, [w], device=device, block_dim=block_dim)
    assert np.array_equal(y, [0, 6, 12, 18, 24]) and g[0] == 20


@both
def test_a_gradient_over_the_lanes(device):
    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        v = x[i]
        y[i] = tg.grad(lambda u: tg.tile_sum(tg.tile(u * u * u))[0])(v)

    x = np.array([1, 2, 3], F32)
    y, (g,) = pulled(k, [x], device=device, block_dim=4)
    assert np.array_equal(y, 3 * x * x) and np.array_equal(g, 6 * x)


@both
def test_a_gradient_of_ones_own_inside_a_gradient(device):
    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = tg.grad(lambda u: deeper(u) * u)(x[i])

    x = np.array([1, 2], F32)
    y, (g,) = pulled(k, [x], device=device)
    assert np.array_equal(y, 100 * x + x * x)
    assert np.array_equal(g, [200, 200])  # of 100 x the 100, and of x * odd(x) the rule once more


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_polynomials(data):
    count = data.draw(st.integers(1, 4))
    powers = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    dtype = data.draw(st.sampled_from([tg.float32, tg.float64]))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    block_dim = data.draw(st.sampled_from([1, 3, 16]))
    powers = tuple(powers)

    @tg.func
    def f(x: Any):
        s = x * dtype(0)
        for p in tg.static(powers):
            term = x * dtype(0) + dtype(1)
            for _ in range(p):
                term = term * x
            s += term
        return s

    @tg.func
    def g(x: Any):
        return f(x)

    @tg.func_grad(g)
    def gradient(x: Any, ct: Any):
        tg.adjoint[x] += ct * tg.grad(f)(x)

    @tg.kernel
    def k(x: tg.array(dtype=Any, ndim=len(shape)), y: tg.array(dtype=Any, ndim=len(shape))):
        t = tg.tile_load(x, shape=shape)
        tg.tile_store(y, tg.tile_map(lambda v: g(v) + tg.grad(g)(v), t))

    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, shape).astype(dtype.np)
    found = [pulled(k, [x], shape, dim=1, tiled=True, device=d, block_dim=block_dim) for d in DEVICES]
    p = np.polynomial.Polynomial(np.bincount(powers).astype(float))
    eps = 1e-5 if dtype is tg.float32 else 1e-12
    for y, (slope,) in found:
        assert np.allclose(y, p(x) + p.deriv()(x), rtol=eps)
        assert np.allclose(slope, p.deriv()(x) + p.deriv(2)(x), rtol=eps, atol=eps)
    assert np.allclose(found[0][0], found[1][0], rtol=eps)


# --- a gradient of one's own that is the derivative changes nothing -------------------------------------------------


def equal_kernels(own: bool):
    """Kernels that call functions in many ways; the functions have gradients of their own or not."""

    @tg.func
    def f(x: Any, w: Any):
        return tg.sin(x * w) + x * x

    @tg.func
    def loop(x: float, w: float, n: int):
        s = x
        for _ in range(n):
            if s > 0.2:
                s = s * w
            else:
                s = s + tg.cos(s)
        return s

    @tg.func
    def g(x: float, w: float, n: int):
        return loop(x, w, n)

    @tg.func
    def h(a: tg.array1d[float], i: int, w: float):
        return a[i] * w + a[i] * a[(i + 1) % 5]

    def f_gradient(x: Any, w: Any, ct: Any):
        c = tg.cos(x * w)
        tg.adjoint[x] += (c * w + x * 2.0) * ct
        tg.adjoint[w] += c * x * ct

    def g_gradient(x: float, w: float, n: int, ct: float):
        gx, gw = tg.grad(loop)(x, w, n)
        tg.adjoint[x] += gx * ct
        tg.adjoint[w] += gw * ct

    def h_gradient(a: tg.array1d[float], i: int, w: float, ct: float):
        j = (i + 1) % 5
        tg.adjoint[a][i] += (w + a[j]) * ct
        tg.adjoint[a][j] += a[i] * ct
        tg.adjoint[w] += a[i] * ct

    if own:
        for function, gradient in ((f, f_gradient), (g, g_gradient), (h, h_gradient)):
            tg.func_grad(function)(gradient)

    @tg.kernel
    def uniform_and_not(x: tg.array1d[float], w: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = f(x[i], w[0]) * f(w[0], x[i]) + f(w[0], w[0])

    @tg.kernel
    def loops_of_lanes(x: tg.array1d[float], w: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        s = 0.0
        for m in range(i):
            if x[m] > 0.0:
                s += f(x[m], s)
            else:
                s -= h(x, m, w[0])
        y[i] = s

    @tg.kernel
    def sums_over_lanes(x: tg.array1d[float], w: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        if x[i] < -0.5:
            return
        s = tg.tile_sum(tg.tile(f(x[i], w[0]) + h(x, i, w[1])))[0]
        y[i] = f(s, x[i]) + f(s, s)

    @tg.kernel
    def maps_of_tiles(x: tg.array1d[float], w: tg.array1d[float], y: tg.array1d[float]):
        t = tg.tile_load(x, shape=5)
        v = w[1]
        u = tg.tile_map(lambda e: f(e, v) + h(w, 2, e), t)
        for _ in range(3):
            u = f(u, t) * 0.1
        tg.tile_store(y, u * f(v, v))

    @tg.kernel
    def inner_gradients(x: tg.array1d[float], w: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = tg.grad(g)(x[i], w[0], 2)[0] + tg.grad(lambda u: f(u, w[i]) * f(u, u))(x[i])

    return uniform_and_not, loops_of_lanes, sums_over_lanes, maps_of_tiles, inner_gradients


PLAIN, OWN = equal_kernels(False), equal_kernels(True)


def all_derivatives(kernel, device, block_dim):
    """The output, the gradients, the derivative along a direction, and second derivatives."""
    rng = np.random.default_rng(7)
    x, w = rng.uniform(-1, 1, 5).astype(F32), rng.uniform(0.3, 1, 5).astype(F32)
    ct, u = (rng.uniform(-1, 1, 5).astype(F32) for _ in range(2))
    ax, aw, y = tg.array(x, requires_grad=True), tg.array(w, requires_grad=True), tg.zeros(5, dtype=float)
    tiled = kernel.name.startswith("maps")
    how = {"device": device, "block_dim": block_dim}
    with Tape() as outer:
        with Tape() as inner:
            (tg.launch_tiled if tiled else tg.launch)(kernel, 1 if tiled else 5, inputs=[ax, aw], outputs=[y], **how)
        first = inner.vjp([(y, ct)], [ax, aw])
    second = outer.vjp([(first[0], u)], [ax, aw])
    rates = tg.jvp(kernel, 1 if tiled else 5, [x, w], [np.zeros(5, F32)], [u, ct], tiled=tiled, **how)
    return [y.numpy(), *first, *second, *rates]


@both
@pytest.mark.parametrize("case", range(5), ids=[k.name for k in PLAIN])
def test_the_right_gradient_changes_nothing(case, device):
    block_dim = 2 if device == "interpret" else 8
    without, own = (all_derivatives(k[case], device, block_dim) for k in (PLAIN, OWN))
    for a, b in zip(without, own, strict=True):
        assert np.allclose(a, b, rtol=2e-5, atol=2e-6)


# --- errors ---------------------------------------------------------------------------------------------------------


def refused(function, kind=tg.TypeMismatch, args=1):
    """The error of a kernel that calls a function of a number (and an array)."""

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        y[0] = function(x[0]) if args == 1 else function(x[0], x)

    with pytest.raises(kind) as caught:
        tg.launch(k, 1, inputs=[np.ones(1, F32)], outputs=[np.ones(1, F32)])
    return caught.value


def test_errors_of_registration():
    with pytest.raises(tg.KernelSyntaxError, match="made with @tg.func"):
        tg.func_grad(len)
    with pytest.raises(tg.KernelSyntaxError, match="made with @tg.func"):
        tg.func_replay(lambda x: x)

    @tg.func
    def f(x: float, y: float):
        return x

    def short(x: float):
        pass

    with pytest.raises(tg.KernelSyntaxError, match="has 1 parameters") as caught:
        tg.func_grad(f)(short)
    assert "the 2 of `f`" in caught.value.help
    with pytest.raises(tg.KernelSyntaxError, match="has 1 parameters"):
        tg.func_replay(f)(short)
    with pytest.raises(tg.KernelSyntaxError, match="inside a function made with @tg.func_grad"):
        tg.adjoint[1]


def test_errors_of_gradient_functions():
    @tg.func
    def f(x: float):
        return x

    def rule_of(rule):
        tg.func_grad(f)(rule)
        return refused(f, tg.TilegradError)

    def too_few(x: float):
        pass

    error = rule_of(too_few)
    assert "takes the gradients of 0 results, `f` returns 1" in error.message

    def wrong_type(x: float, ct: int):
        pass

    assert "argument `ct` is float32" in rule_of(wrong_type).message

    def unknown(x: float, ct: float):
        tg.adjoint[z] += ct  # noqa: F821

    error = rule_of(unknown)
    assert "`z`" in error.message and "adjoint[...] is known for x" in error.help and "z" in error.loc.text

    def of_gradient(x: float, ct: float):
        tg.adjoint[ct] += ct

    assert "`ct`" in rule_of(of_gradient).message

    def returning(x: float, ct: float):
        return ct

    error = rule_of(returning)
    assert "returns a value" in error.message and "adjoint" in error.help

    def other_type(x: float, ct: float):
        tg.adjoint[x] = tg.float64(ct)

    assert "adjoint[x] must be float32" in rule_of(other_type).message


def test_arrays_that_a_gradient_function_must_leave_alone():
    @tg.func
    def f(x: float, a: tg.array1d[float]):
        return x

    @tg.func_grad(f)
    def writing(x: float, a: tg.array1d[float], ct: float):
        a[0] = ct

    error = refused(f, tg.KernelSyntaxError, args=2)
    assert "`writing` changes an array" in error.message and "nothing but tg.adjoint" in error.help

    @tg.func
    def g(x: float, n: tg.array1d[int]):
        return x

    @tg.func_grad(g)
    def counting(x: float, n: tg.array1d[int], ct: float):
        tg.adjoint[n][0] += 1

    @tg.kernel
    def k(x: tg.array1d[float], n: tg.array1d[int], y: tg.array1d[float]):
        y[0] = g(x[0], n)

    with pytest.raises(tg.TypeMismatch, match="the gradient of a 1-D array of int32"):
        tg.launch(k, 1, inputs=[np.ones(1, F32), np.ones(1, np.int32)], outputs=[np.ones(1, F32)])


def test_tiles_where_lanes_are_apart():
    @tg.func
    def pick(t: Any, i: int):
        return t[i]

    @tg.func_grad(pick)
    def gradient(t: Any, i: int, ct: float):
        tg.adjoint[t][i] += 5.0 * ct

    @tg.kernel
    def together(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        y[i] = pick(tg.tile_load(x, shape=4), i)

    @tg.kernel
    def apart(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        t = tg.tile_load(x, shape=4)
        if i > 1:
            y[i] = pick(t, i)

    x = np.arange(4, dtype=F32)
    for device in DEVICES:
        assert np.array_equal(pulled(together, [x], device=device, block_dim=4)[1][0], [5, 5, 5, 5])
    with pytest.raises(tg.KernelSyntaxError, match="pick is a cooperative call"):
        pulled(apart, [x], block_dim=4)


def test_adjoint_outside_of_a_gradient_function():
    def f(x: float):
        tg.adjoint[x] += 1.0
        return x

    error = refused(tg.func(f), tg.KernelSyntaxError)
    assert "only inside a function made with @tg.func_grad" in error.message


def test_a_tile_that_is_changed_in_place_is_refused():
    @tg.func
    def f(t: Any):
        t += 1.0
        return t

    @tg.func_grad(f)
    def gradient(t: Any, ct: Any):
        tg.adjoint[t] += ct

    @tg.kernel
    def k(x: tg.array1d[float], y: tg.array1d[float]):
        tg.tile_store(y, f(tg.tile_load(x, shape=2)))

    with pytest.raises(tg.KernelSyntaxError, match="changes a tile that it is given"):
        tg.launch_tiled(k, 1, inputs=[np.ones(2, F32)], outputs=[np.ones(2, F32)])


def test_errors_of_replays():
    @tg.func
    def f(x: float, a: tg.array1d[float]):
        return x

    @tg.func_replay(f)
    def other_type(x: float, a: tg.array1d[float]):
        return 3

    assert "`f` returns float32" in refused(f, args=2).message

    @tg.func_replay(f)
    def writing(x: float, a: tg.array1d[float]):
        a[0] = x
        return x

    assert "changes an array" in refused(f, tg.KernelSyntaxError, args=2).message


def test_errors_of_gradients_in_kernels():
    @tg.func
    def not_a_number(x: float):
        return x, x

    assert "the function returns a tuple" in refused(tg.grad(not_a_number)).message

    @tg.func
    def of_int(n: int):
        return 1.0

    @tg.func
    def calls(x: float):
        return tg.grad(of_int)(3)

    assert "needs arguments of floats: there is none" in refused(calls).message

    @tg.func
    def chooses(x: float):
        return tg.grad(cube, argnums=1)(x)

    assert "needs arguments of floats" in refused(chooses).message

    @tg.func
    def writes(x: float, a: tg.array1d[float]):
        a[0] = x
        return x

    assert "changes an array" in refused(tg.grad(writes), tg.KernelSyntaxError, args=2).message
    with pytest.raises(tg.KernelSyntaxError, match=r"grad\(cube\).*only inside a kernel"):
        tg.grad(cube)(1.0)
    with pytest.raises(tg.TypeMismatch, match="a kernel or a function"):
        tg.grad(3)


# --- kernels without a backward pass --------------------------------------------------------------------------------


def plain(x: tg.array1d[float], y: tg.array1d[float]):
    i = tg.tid()
    y[i] = 2.0 * x[i]


def gradient_through(kernel):
    x, y = tg.array(np.ones(2, F32), requires_grad=True), tg.zeros(2, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch(kernel, 2, inputs=[x], outputs=[y])
    (launch,) = tape.records
    tape.backward(grads={y: tg.ones_like(y)})
    return launch


@pytest.mark.parametrize("options", [{"enable_backward": False}, {"module_options": {"enable_backward": False}}])
def test_a_kernel_without_a_backward_pass(options):
    kernel = tg.kernel(module="unique", **options)(plain)
    assert not kernel.enable_backward
    x, y = tg.array(np.ones(2, F32), requires_grad=True), tg.zeros(2, dtype=float, requires_grad=True)
    with Tape() as tape:
        tg.launch(kernel, 2, inputs=[x], outputs=[y])
    (launch,) = tape.records
    assert not launch.held and isinstance(launch.backward, tg.GradientUndefined)
    with pytest.raises(tg.GradientUndefined, match="made with enable_backward=False"):
        tape.backward(grads={y: tg.ones_like(y)})


def test_the_configuration_and_the_options_of_a_module(monkeypatch):
    kernel = tg.kernel(plain)
    assert gradient_through(kernel).held is not None
    monkeypatch.setattr(tg.config, "enable_backward", False)
    with pytest.raises(tg.GradientUndefined, match=r"while config\.enable_backward was False"):
        gradient_through(kernel)
    gradient_through(tg.kernel(enable_backward=True)(plain))
    tg.set_module_options({"enable_backward": True, "fast_math": False})
    assert tg.get_module_options()["enable_backward"] is True
    try:
        gradient_through(kernel)
        tg.set_module_options({"enable_backward": False}, plain.__module__)
        monkeypatch.setattr(tg.config, "enable_backward", True)
        with pytest.raises(tg.GradientUndefined, match="made with enable_backward=False"):
            gradient_through(kernel)
    finally:
        tg.set_module_options({"enable_backward": None})


# --- nothing of this is seen by the compiler ------------------------------------------------------------------------


def test_the_ops_are_gone_before_a_kernel_runs():
    x, y = np.ones(2, F32), np.zeros(2, F32)
    names = {"custom", "replayed", "pullback", "stop_gradient"}
    ir = by_calls.ir(x, y, dim=2, tiled=False)
    assert names & {op.name for op in ir.body.walk()}
    assert not names & {op.name for op in compiler.optimise(ir).body.walk()}
    backward = differentiate(ir, (True, True))
    assert not names & {op.name for op in backward.kernel.body.walk()}
