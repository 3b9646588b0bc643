"""Forward mode: tangents against reverse mode and closed forms, for every op and through control flow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilegrad as tg
from test_contract import NAMES, samples_of
from tilegrad import compiler
from tilegrad.ad import differentiate, push_forward
from tilegrad.ad.forward import LINEAR
from tilegrad.op import REGISTRY
from tilegrad.testing import gradient_case, is_differentiable

F1 = tg.array1d[tg.float64]


@pytest.fixture(params=["interpret", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tg.kernel
def looped(x: F1, n: int, y: F1):
    t = tg.tile_load(x, shape=4)
    total = tg.tile_sum(t)[0]
    for i in range(n):
        if i % 2 == 0:
            t = tg.sin(t) * total
        else:
            t = t * t
        k = 0
        while k < i:
            t = t * 0.5 + t[k] * 0.1
            k += 1
    tg.tile_store(y, tg.tile_map(lambda a: tg.exp(a) if a > 0.1 else a * a, t))


@tg.kernel
def lanes(x: F1, n: int, y: F1):
    i = tg.tid()
    t = x[i] * x[0]
    for _ in range(i):
        t = tg.cos(t) + t * t
    tg.atomic_add(y, i % 2, t)


def both_modes(kernel, inputs, shape, dim, tiled, device):
    """J v by forward mode, and u . J v by reverse mode, for random u and v."""
    rng = np.random.default_rng(0)
    x = inputs[0]
    v, u = rng.standard_normal(x.shape), rng.standard_normal(shape)
    out, again = np.zeros(shape), np.zeros(shape)
    options = {"tiled": tiled, "device": device, "block_dim": 4}
    (rate,) = tg.jvp(kernel, dim, inputs, [out], [v, *[None] * (len(inputs) - 1)], **options)
    pullback = tg.vjp(kernel, dim, inputs, [again], **options)
    np.testing.assert_allclose(out, again, rtol=1e-14)
    assert np.dot(u, rate) == pytest.approx(np.dot(pullback(u)[0], v), rel=1e-10)
    h = 1e-6
    ends = []
    for sign in (1, -1):
        end = np.zeros(shape)
        run = tg.launch_tiled if tiled else tg.launch
        run(kernel, dim, inputs=[x + sign * h * v, *inputs[1:], end], device=device, block_dim=4)
        ends.append(end)
    np.testing.assert_allclose(rate, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_control_flow(device, n):
    both_modes(looped, [np.array([0.3, 0.7, -0.2, 0.5]), n], 4, 1, True, device)


def test_lanes_and_atomics(device):
    both_modes(lanes, [np.linspace(0.1, 0.9, 6), 0], 2, 6, False, device)


def test_hessian_vector_product(device):
    """The tangent of a gradient, through the stacks of its loops: forward over reverse."""
    x = np.array([0.3, 0.7, -0.2, 0.5])
    ir = looped.ir(x, 3, np.zeros(4))
    backward = differentiate(ir, (True, False, True)).kernel
    forward = push_forward(backward)
    v, u = np.array([1.0, -0.5, 0.2, 0.3]), np.array([0.7, 0.1, -0.4, 1.0])

    def gradient(at):
        args = [at, np.int32(3), np.zeros(4), np.zeros(4), u.copy()]
        compiler.execute(backward, args, (1,), device)
        return args[3]

    args = [x, np.int32(3), np.zeros(4), np.zeros(4), u.copy()]
    rates = {0: v, 2: np.zeros(4), 3: np.zeros(4), 4: np.zeros(4)}
    twins = [rates[i] for i, t in enumerate(forward.tangent_params) if t is not None]
    compiler.execute(forward.kernel, [*args, *twins], (1,), device)
    np.testing.assert_allclose(args[3], gradient(x), rtol=1e-14)
    h = 1e-5
    numeric = (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)
    np.testing.assert_allclose(rates[3], numeric, rtol=1e-6, atol=1e-7)


DIFFERENTIABLE = [n for n in NAMES if any(is_differentiable(REGISTRY[n], s) for s in samples_of(n))]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_op_in_forward_mode(name):
    """u . J v by forward mode is u . J v by reverse mode."""
    rng = np.random.default_rng(3)
    definition = REGISTRY[name]
    for sample in itertools.islice((s for s in samples_of(name) if is_differentiable(definition, s)), 2):
        check_forward(definition, sample, rng)


def test_atomic_minimum_is_refused():
    sample = next(s for s in samples_of("array_atomic_min") if is_differentiable(REGISTRY["array_atomic_min"], s))
    with pytest.raises(tg.GradientUndefined, match="which update takes effect depends on the values"):
        push_forward(gradient_case(REGISTRY["array_atomic_min"], sample)[0])


def check_forward(definition, sample, rng):
    kernel, values = gradient_case(definition, sample)
    floats = [k for k, v in enumerate(values) if isinstance(v, np.ndarray) and v.dtype == np.float64]
    backward = differentiate(kernel, [k in floats for k in range(len(values))])
    if definition.effect == "atomic" and definition.name not in LINEAR:
        return  # which update takes effect depends on the values: refused, see below
    forward = push_forward(kernel)
    rates = {k: np.where(k in sample.fixed, 0, rng.standard_normal(values[k].shape)) for k in floats}
    outs = {k: rng.standard_normal(values[k].shape) for k in floats}
    places = [k for k, t in enumerate(forward.tangent_params) if t is not None]
    twins = [rates[k].copy() if k in floats else np.zeros_like(values[k]) for k in places]
    compiler.execute(forward.kernel, [*copies(values), *twins], (1,), "cpu")
    grads = [outs[k].copy() for k, g in enumerate(backward.grad_params) if g is not None]
    compiler.execute(backward.kernel, [*copies(values), *grads], (1,), "cpu")
    after = dict(zip(places, twins, strict=True))
    before = dict(zip([k for k, g in enumerate(backward.grad_params) if g is not None], grads, strict=True))
    left = sum(float(np.sum(outs[k] * after[k])) for k in floats)
    right = sum(float(np.sum(before[k] * rates[k])) for k in before)
    assert left == pytest.approx(right, rel=1e-8, abs=1e-9)


def copies(values):
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]
