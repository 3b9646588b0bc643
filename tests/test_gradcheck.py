"""The checker of gradients: passes what is right, names what is wrong, leaves everything alone (cases G38)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad.gradcheck.widen import copies, wide_arguments, widen
from tilegrad.ir.types import StackType
from tilegrad.ir.verify import verify
from tilegrad.op import REGISTRY, infer_types
from tilegrad.testing import GradcheckError, gradcheck

F32, F64 = np.float32, np.float64
A1, A2 = tg.array1d, tg.array2d


@tg.kernel
def mixed(x: A1[float], y: A1[tg.float64]):
    i = tg.tid()
    y[i] = tg.float64(x[i]) * tg.float64(tg.exp(x[i]))


@tg.kernel
def in_place(a: A1[float], s: A1[float]):
    i = tg.tid()
    a[i] = a[i] * a[i] + 1.0
    tg.atomic_add(s, 0, a[i])


@tg.kernel
def layers(x: A2[float], w: A2[float], n: int, y: A2[float]):
    t = tg.tile_load(x, shape=(3, 4))
    for k in range(n):
        t = tg.tanh(t @ tg.tile_load(w, shape=(4, 4))) * (1.0 + float(k))
    tg.tile_store(y, t)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


# --- G38 --------------------------------------------------------------------------------------------------------------


def test_float32_in_and_float64_out(device):
    # G38 a; the peer's did not compile
    report = gradcheck(mixed, 4, [normal(4)], [np.zeros(4)], tiled=False, device=device, order=2)
    assert report.max_error < 1e-9
    assert list(report.max_errors) == ["x", "y", "the cotangent of y"]


def test_a_kernel_that_changes_its_input(device):
    # G38 b; the peer's verdict was wrong, as the second evaluation started from the changed input
    a, s = tg.array(normal(5), requires_grad=True), tg.zeros(1, requires_grad=True)
    a.grad.fill_(7.0)
    before = a.numpy().copy()
    with tg.Tape() as tape:
        gradcheck(in_place, 5, [], [a, s], tiled=False, device=device)
    assert np.array_equal(a.numpy(), before)
    assert not s.numpy().any()
    assert a.grad.numpy().tolist() == [7.0] * 5
    assert tape.records == []


def test_a_kernel_without_a_backward_pass():
    # G38 c; the peer's verdict was wrong
    @tg.kernel(enable_backward=False)
    def off(x: A1[float], y: A1[float]):
        y[tg.tid()] = x[tg.tid()]

    with pytest.raises(tg.GradientUndefined, match="made with enable_backward=False") as caught:
        gradcheck(off, 2, [normal(2)], [np.zeros(2, F32)], tiled=False)
    assert caught.value.help == "leave enable_backward out"


# --- what is right passes, in any precision ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float32, tg.float64])
def test_any_float(dtype, device):
    @tg.kernel
    def f(x: tg.array(dtype=dtype, ndim=2), y: tg.array(dtype=dtype, ndim=1)):
        t = tg.tile_load(x, shape=(3, 4))
        u = tg.sin(t) * t + dtype(0.1) * tg.tile_astype(tg.tile_astype(t, dtype), dtype)
        tg.tile_store(y, tg.tile_sum(u, axis=0) * tg.tile_max(t, axis=0))

    x, y = normal(3, 4).astype(dtype.np), np.zeros(4, dtype.np)
    assert gradcheck(f, 1, [x], [y], device=device, order=2).max_error < 1e-7


def test_loops_layers_and_numbers(device):
    args = [normal(3, 4), normal(4, 4, seed=1), 3]
    assert gradcheck(layers, 1, args, [np.zeros((3, 4), F32)], device=device, order=2).max_error < 1e-7


def test_long_loops_with_checkpoints(monkeypatch):
    monkeypatch.setattr(tg.config, "saved_turns", 4)
    args = [normal(3, 4), normal(4, 4, seed=1), 30]
    gradcheck(layers, 1, args, [np.zeros((3, 4), F32)])


def test_vectors_and_structs(device):
    @tg.struct
    class Body:
        mass: float
        velocity: tg.vec3

    @tg.kernel
    def energy(bodies: tg.array[Body], push: A1[tg.vec3], strength: float, out: A1[float]):
        i = tg.tid()
        b = bodies[i]
        v = b.velocity + push[i] * strength
        out[i] = 0.5 * b.mass * tg.dot(v, v)

    bodies = tg.array([Body(mass=2.0, velocity=tg.vec3(1, 2, 2)), Body(mass=0.5, velocity=tg.vec3(-1, 0, 3))])
    push, out = normal(2, 3), np.zeros(2, F32)
    report = gradcheck(energy, 2, [bodies, push, 0.3], [out], tiled=False, device=device)
    assert len(report.max_errors) == 4
    assert bodies.numpy()["mass"].tolist() == [2.0, 0.5]


def test_arrays_that_share_memory(device):
    @tg.kernel
    def shift(a: A1[float], b: A1[float]):
        t = tg.tile_load(a, shape=4)
        tg.tile_store(b, t * t)

    a = normal(6)
    gradcheck(shift, 1, [a[:4]], [a[2:]], device=device)
    gradcheck(shift, 1, [a[:4]], [a[:4]], device=device)
    assert np.array_equal(a, normal(6))


def test_broadcast_arrays(device):
    x = np.broadcast_to(normal(1), (4,))
    gradcheck(mixed, 4, [x], [np.zeros(4)], tiled=False, device=device)


def test_large_steps_leave_the_domain_and_smaller_ones_do_not():
    @tg.kernel
    def root(x: A1[tg.float64], y: A1[tg.float64]):
        y[tg.tid()] = tg.sqrt(x[tg.tid()])

    assert not gradcheck(root, 2, [np.array([5e-5, 1.0])], [np.zeros(2)], tiled=False).kinks


@given(st.integers(0, 10**6), st.sampled_from(["interpret", "cpu"]), st.integers(1, 9), st.integers(1, 8))
@settings(max_examples=15)
def test_random_shapes(seed: int, device: str, n: int, lanes: int) -> None:
    @tg.kernel
    def f(x: A1[float], y: A1[float], s: A1[float]):
        i = tg.tid()
        v = x[i]
        for _ in range(i % 3):
            v = v * tg.cos(v) + 0.5
        y[i] = v
        tg.atomic_add(s, 0, v * x[i])

    x = normal(n, seed=seed)
    gradcheck(f, n, [x], [np.zeros(n, F32), np.zeros(1, F32)], tiled=False, block_dim=lanes, device=device, seed=seed)


# --- kinks ------------------------------------------------------------------------------------------------------------


@tg.kernel
def rectified(x: A1[float], y: A1[float]):
    i = tg.tid()
    y[i] = tg.max(x[i], 0.0) + tg.sqrt(abs(x[i] - 2.0))


def test_kinks_are_no_errors(device):
    x = np.array([1.0, 0.0, -1.0, 2.0], F32)
    report = gradcheck(rectified, 4, [x], [np.zeros(4, F32)], tiled=False, device=device)
    assert sorted(str(e) for e in report.kinks) == ["x[1]", "x[3]"]
    assert str(report).splitlines()[0] == "gradcheck of `rectified`: the gradient agrees with differences"
    assert "  not differentiable here: x[1] (the slopes to the left and to the right differ)" in str(report)


def test_the_edge_of_a_domain(device):
    @tg.kernel
    def logarithm(x: A1[float], y: A1[float]):
        y[tg.tid()] = tg.sqrt(x[tg.tid()])

    report = gradcheck(logarithm, 2, [np.array([0.0, 1.0], F32)], [np.zeros(2, F32)], tiled=False, device=device)
    assert [(str(e), e.judgement.kink) for e in report.kinks] == [
        ("x[0]", "the result is not finite beside this point")
    ]


def test_many_elements_near_a_kink_are_told_apart_by_smaller_steps():
    x = np.linspace(-1e-3, 1e-3, 400).astype(F32)
    report = gradcheck(rectified, 400, [x], [np.zeros(400, F32)], tiled=False)
    assert not report.kinks


# --- what is wrong is named -------------------------------------------------------------------------------------------


def text_of(error: BaseException) -> str:
    return re.sub(r"--> .*?(\w+\.py):\d+:\d+", r"--> \1", re.sub(r"^    \d+ \|", "    N |", str(error), flags=re.M))


def test_the_op_and_its_line_are_named(device, monkeypatch):
    monkeypatch.setattr(REGISTRY["sin"], "adjoint", lambda ct, out, x: (REGISTRY["mul"](ct, 2.0),))

    @tg.kernel
    def wrong(x: A1[float], w: A1[float], y: A1[float]):
        t = tg.tile_load(x, shape=3) + tg.tile_load(w, shape=3)
        for _ in range(2):
            t = tg.exp(tg.sin(t)) * 0.5
        tg.tile_store(y, t)

    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, 1, [normal(3), normal(3, seed=1)], [np.zeros(3, F32)], device=device)
    assert isinstance(caught.value, AssertionError)
    lines = text_of(caught.value).splitlines()
    assert re.fullmatch(
        r"gradcheck: the gradient of `wrong` is wrong at x\[\d\]: differences give -?[\d.e-]+, the gradient is .*",
        lines[0],
    )
    assert lines[1] == "  --> test_gradcheck.py in wrong"
    assert lines[2] == "    N |             t = tg.exp(tg.sin(t)) * 0.5"
    assert lines[3].split("^^^^^^^^^")[1].startswith(" the gradient of this `sin` is wrong by itself, at operand 1[")


def test_the_worst_element_of_a_large_array_is_found(monkeypatch):
    rule = REGISTRY["tanh"].adjoint

    @tg.kernel
    def f(x: A1[tg.float64], y: A1[tg.float64]):
        t = tg.tile_load(x, shape=1000)
        tg.tile_store(y, tg.tanh(t))

    def off(ct: Any, out: Any, x: Any) -> Any:
        (share,) = rule(ct, out, x)
        return (REGISTRY["where"](REGISTRY["gt"](x, 5.0), REGISTRY["add"](share, 1.0), share),)

    monkeypatch.setattr(REGISTRY["tanh"], "adjoint", off)
    x = np.random.default_rng(0).uniform(-1, 1, 1000)
    x[617] = 6.0
    with pytest.raises(GradcheckError, match=r"wrong at x\[617\]"):
        gradcheck(f, 1, [x], [np.zeros(1000)])


def test_lanes_and_arrays_among_the_suspects(monkeypatch):
    monkeypatch.setattr(REGISTRY["mul"], "adjoint", lambda ct, out, x, y: (REGISTRY["mul"](ct, y), ct))

    @tg.kernel
    def f(x: A1[float], y: A1[float]):
        i = tg.tid()
        y[i] = x[i] * tg.sin(x[i])

    with pytest.raises(GradcheckError, match="the gradient of this `mul` is wrong by itself, at operand 2"):
        gradcheck(f, 3, [normal(3)], [np.zeros(3, F32)], tiled=False)


def test_a_wrong_second_derivative(monkeypatch):
    monkeypatch.setattr(REGISTRY["chain"], "adjoint", lambda ct, out, x, y: (REGISTRY["mul"](ct, y), None))

    @tg.kernel
    def f(x: A1[float], y: A1[float]):
        y[tg.tid()] = tg.tanh(x[tg.tid()])

    gradcheck(f, 3, [normal(3)], [np.zeros(3, F32)], tiled=False)
    with pytest.raises(GradcheckError, match="the second derivative of `f` is wrong at x"):
        gradcheck(f, 3, [normal(3)], [np.zeros(3, F32)], tiled=False, order=2)


@tg.func
def cube(x: float):
    return x * x * x


@tg.func_grad(cube)
def cube_gradient(x: float, ct: float):
    tg.adjoint[x] += 2.0 * x * x * ct


def test_gradients_that_users_decide_are_named(device):
    @tg.kernel
    def f(x: A1[float], y: A1[float]):
        y[tg.tid()] = cube(x[tg.tid()]) + tg.sin(x[tg.tid()])

    @tg.kernel
    def g(x: A1[float], y: A1[float]):
        y[tg.tid()] = x[tg.tid()] * tg.stop_gradient(x[tg.tid()])

    with pytest.raises(GradcheckError, match=r"this function has a gradient of its own \(func_grad\)") as caught:
        gradcheck(f, 3, [normal(3)], [np.zeros(3, F32)], tiled=False, device=device)
    assert caught.value.help == "every operation is right by itself: check the gradient that it was given"
    with pytest.raises(GradcheckError, match="the gradient is stopped here"):
        gradcheck(g, 3, [normal(3)], [np.zeros(3, F32)], tiled=False, device=device)


def test_what_cannot_be_checked():
    @tg.kernel
    def counts(x: A1[float], y: A1[int]):
        y[tg.tid()] = int(x[tg.tid()])

    with pytest.raises(tg.LaunchError, match="`counts` writes no array of floats"):
        gradcheck(counts, 2, [normal(2)], [np.zeros(2, np.int32)], tiled=False)
    with pytest.raises(tg.LaunchError, match="order must be 1 or 2, it is 3"):
        gradcheck(mixed, 2, [normal(2)], [np.zeros(2)], tiled=False, order=3)


# --- widening ---------------------------------------------------------------------------------------------------------


def test_a_widened_kernel_is_valid_and_has_no_smaller_float():
    ir = layers.ir(normal(3, 4), normal(4, 4), 3, np.zeros((3, 4), F32))
    wide = verify(widen(ir), infer_types)
    types = [v.type for op in wide.body.walk() for v in (*op.operands, *op.results)]
    assert not [t for t in types if not isinstance(t, StackType) and t.dtype.is_float and t.dtype is not tg.float64]
    assert widen(wide).body is not None
    assert [p.name for p in wide.params] == ["x", "w", "n", "y"]


def test_copies_share_memory_as_the_originals_do():
    a = np.arange(8.0)
    x, y, z = copies([a[:6], a[2:], np.ones(2)])
    x[2] = 100
    assert y[0] == 100
    assert a[2] == 2
    assert z.tolist() == [1, 1]


def test_arguments_of_different_types_in_one_memory():
    a = np.zeros(4, F32)
    ir = widen(mixed.ir(normal(4), np.zeros(4), tiled=False))
    with pytest.raises(tg.LaunchError, match="arguments that share memory have different types"):
        wide_arguments([a, a.view(F64)], ir)
