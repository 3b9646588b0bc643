"""What tapes tell about themselves: what a backward pass costs, and where a gradient stops being finite."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.diagnostics import GradientNotFinite

A1 = tg.array1d
F32 = np.float32


def leaf(*values: float, dtype: Any = F32) -> Any:
    return tg.array(np.array(values, dtype), requires_grad=True)


def text_of(x: Any) -> str:
    """The text without the numbers of lines, and with the name of the file alone."""
    text = re.sub(r"^    \d+ \|", "    N |", re.sub(r"--> .*?(\w+\.py):\d+:\d+", r"--> \1", str(x)), flags=re.M)
    text = re.sub(r"^ +\^", "    ^", text, flags=re.M)
    text = re.sub(r"(test_\w+\.py):\d+", r"\1", text)
    return re.sub(r"line(s?) [\d, -]+\d", r"line\1 N", text)


@tg.kernel
def square(x: A1[float], y: A1[float]):
    i = tg.tid()
    v = x[i] * x[i]
    y[i] = tg.sin(v)


@tg.kernel
def linear(x: A1[float], y: A1[float]):
    i = tg.tid()
    y[i] = 2.0 * x[i]


@tg.kernel
def in_place(a: A1[float]):
    i = tg.tid()
    a[i] = a[i] * a[i]


@tg.kernel
def power(x: A1[float], n: int, y: A1[float]):
    t = tg.tile_load(x, shape=4)
    p = t
    for _ in range(n):
        p = tg.sin(p) * t
    tg.tile_store(y, p)


# --- explain ----------------------------------------------------------------------------------------------------------


def test_text_of_a_sequence():
    x, y = leaf(1, 2, 3, 4), tg.zeros(4)
    with tg.Tape() as tape:
        tg.launch(square, dim=4, inputs=[x, y], device="interpret")
        tg.launch(linear, dim=4, inputs=[x, y], device="interpret")
        tg.launch(in_place, dim=4, inputs=[y], device="interpret")
        tg.copy(x, y)
    assert text_of(tape.explain()) == (
        "launch 1 of 3: `square` (test_explain.py), dim=4\n"
        "  saved: x, 16 bytes (copied when it was overwritten)\n"
        "  computed again: 4 operations on lines N\n"
        "  cotangents: 32 bytes\n"
        "launch 2 of 3: `linear` (test_explain.py), dim=4\n"
        "  computed again: 1 operation on line N\n"
        "  cotangents: 32 bytes\n"
        "launch 3 of 3: `in_place` (test_explain.py), dim=4\n"
        "  saved: a, 16 bytes (copied when it was overwritten)\n"
        "  computed again: 3 operations on lines N\n"
        "  cotangents: 16 bytes\n"
        "a copy of an array of shape (4,)\n"
        "total: 32 bytes saved, 0 bytes kept by reference"
    )


def test_large_arrays_are_kept_by_reference_until_they_are_overwritten():
    x, y = tg.zeros(50_000, requires_grad=True), tg.zeros(50_000)
    with tg.Tape() as tape:
        tg.launch(square, dim=50_000, inputs=[x, y])
        tg.launch(square, dim=50_000, inputs=[x, y])
    found = tape.explain()
    assert [[c.why for c in launch.saved] for launch in found.launches] == [
        ["by reference: copied if it is overwritten"],
        ["the same as for launch 1"],
    ]
    assert (found.saved_bytes, found.referenced_bytes) == (0, 200_000)
    x.zero_()
    found = tape.explain()
    assert (found.saved_bytes, found.referenced_bytes) == (200_000, 0)


def test_loops_and_their_checkpoints():
    @tg.kernel
    def short(x: A1[float], y: A1[float]):
        t = tg.tile_load(x, shape=4)
        p = t
        for _ in range(5):
            p = tg.sin(p) * t
        tg.tile_store(y, p)

    x, y = leaf(1, 2, 3, 4), tg.zeros(4)
    with tg.Tape() as tape:
        tg.launch_tiled(power, dim=1, inputs=[x, 3, y])
        tg.launch_tiled(short, dim=1, inputs=[x, y])
    long, few = (launch.loops for launch in tape.explain().launches)
    assert [(loop.bytes_per_turn, loop.checkpoints) for loop in (*long, *few)] == [(16, True), (16, False)]
    assert re.sub(r"line \d+", "line N", str(few[0])) == "loop on line N: saves 16 bytes a turn"
    assert re.sub(r"line \d+", "line N", str(long[0])) == (
        "loop on line N: saves 16 bytes a turn, after 256 turns checkpoints only, about 2 sqrt(n) of n"
    )


def test_lanes_save_for_each_lane():
    @tg.kernel
    def f(x: A1[float], y: A1[float]):
        i = tg.tid()
        v = x[i]
        for _ in range(3):
            v = tg.sin(v)
        y[i] = v

    with tg.Tape() as tape:
        tg.launch(f, dim=4, inputs=[leaf(1, 2, 3, 4), tg.zeros(4)], block_dim=8)
    assert [loop.bytes_per_turn for loop in tape.explain().launches[0].loops] == [32]


def test_private_copies_and_working_memory():
    @tg.kernel
    def through(x: A1[float], s: A1[float], y: A1[float]):
        t = tg.tile_load(x, shape=4)
        tg.tile_store(s, t * t)
        u = tg.tile_load(s, shape=4)
        tg.tile_store(y, tg.exp(u))

    with tg.Tape() as tape:
        tg.launch_tiled(through, dim=1, inputs=[leaf(1, 2, 3, 4), tg.zeros(4), tg.zeros(4)])
    cost = tape.explain()
    assert [(c.name, c.bytes) for c in cost.launches[0].shadows] == [("s", 16)]
    assert cost.shadow_bytes == 16
    assert cost.scratch_bytes == cost.launches[0].scratch_bytes
    assert "  copied: s, 16 bytes (for the backward kernel, which writes it again)" in str(cost).splitlines()


def test_a_launch_without_a_gradient():
    @tg.kernel(enable_backward=False)
    def off(x: A1[float], y: A1[float]):
        y[tg.tid()] = x[tg.tid()]

    with tg.Tape() as tape:
        tg.launch(off, dim=1, inputs=[leaf(1), tg.zeros(1)])
    assert "  no gradient: the kernel `off` was made with enable_backward=False" in str(tape.explain()).splitlines()


# --- check_finite -----------------------------------------------------------------------------------------------------


def test_the_line_where_a_cotangent_becomes_infinite(device):
    @tg.kernel
    def roots(x: A1[float], y: A1[float]):
        i = tg.tid()
        y[i] = tg.sqrt(x[i]) * 3.0

    x, z, y = leaf(1, 0.5, 0, 4), tg.zeros(4), tg.zeros(4)
    with tg.Tape() as tape:
        tg.launch(linear, dim=4, inputs=[x, z], device=device)
        tg.launch(roots, dim=4, inputs=[z, y], device=device)
        tg.launch(linear, dim=4, inputs=[y, y], device=device)
    with pytest.raises(GradientNotFinite) as caught:
        tape.backward(grads={y: np.ones(4, F32)}, check_finite=True)
    assert text_of(caught.value) == (
        "backward: the cotangent of `x` is inf at [2], in the backward pass of launch 2 of 3 (kernel `roots`)\n"
        "  --> test_explain.py in roots\n"
        "    N |         y[i] = tg.sqrt(x[i]) * 3.0\n"
        "    ^^^^^^^^^^^^^ going back through this, the cotangent becomes inf (block 0, element [2])\n"
        "  help: the derivative is inf at this value"
    )
    assert isinstance(caught.value, FloatingPointError)
    assert not x.grad.numpy().any()
    tape.backward(grads={y: np.array([1, 1, 0, 1], F32)}, check_finite=True)  # a zero cotangent stays zero
    assert np.isfinite(x.grad.numpy()).all()


def test_the_setting(monkeypatch):
    @tg.kernel
    def logarithm(x: A1[float], y: A1[float]):
        t = tg.tile_load(x, shape=3)
        tg.tile_store(y, tg.log(t) * tg.log(t))

    x, y = leaf(1, 2, 0), tg.zeros(3)
    with tg.Tape() as tape:
        tg.launch_tiled(logarithm, dim=1, inputs=[x, y])
    tape.backward(grads={y: np.ones(3, F32)})
    monkeypatch.setattr(tg.config, "check_finite", True)
    with pytest.raises(GradientNotFinite, match=r"the cotangent of `x` is -inf at \[2\]") as caught:
        tape.backward(grads={y: np.ones(3, F32)})
    assert caught.value.help == "the forward pass has -inf here: look there first"


def test_in_loops_and_branches(device):
    @tg.kernel
    def f(x: A1[float], n: int, y: A1[float]):
        t = tg.tile_load(x, shape=3)
        for k in range(n):
            if k == 1:
                t = tg.pow(t, 0.5)
            else:
                t = t * 1.5
        tg.tile_store(y, t)

    x, y = leaf(1, 0, 2), tg.zeros(3)
    with tg.Tape() as tape:
        tg.launch_tiled(f, dim=1, inputs=[x, 4, y], device=device)
    with pytest.raises(GradientNotFinite, match=r"tg.pow\(t, 0.5\)"):
        tape.backward(grads={y: np.ones(3, F32)}, check_finite=True)


def test_numbers_that_grow_too_large():
    @tg.kernel
    def huge(x: A1[float], y: A1[float]):
        i = tg.tid()
        y[i] = x[i] * 1e30

    x, y, z = leaf(1e-30, 1e-30), tg.zeros(2), tg.zeros(2)
    with tg.Tape() as tape:
        tg.launch(huge, dim=2, inputs=[x, y])
        tg.launch(huge, dim=2, inputs=[y, z])
    with pytest.raises(GradientNotFinite, match=r"inf at \[0\], in the backward pass of launch 1 of 2") as caught:
        tape.backward(grads={z: np.ones(2, F32)}, check_finite=True)
    assert caught.value.help == "the numbers are too large for the type"


def test_cotangents_that_are_not_finite_from_the_start():
    x, y = leaf(1, 2), tg.zeros(2)
    with tg.Tape() as tape:
        tg.launch(linear, dim=2, inputs=[x, y])
    with pytest.raises(GradientNotFinite, match=r"the cotangent given for an array of shape \(2,\) is nan at \[1\]"):
        tape.backward(grads={y: np.array([1, np.nan], F32)}, check_finite=True)


def test_what_is_finite_passes(device):
    x, y = leaf(1, 2, 3, 4), tg.zeros(4)
    with tg.Tape() as tape:
        tg.launch(square, dim=4, inputs=[x, y], device=device)
        tg.launch(in_place, dim=4, inputs=[y], device=device)
        z = tg.clone(y)
    tape.backward(grads={z: np.ones(4, F32)})
    expected = x.grad.numpy().copy()
    tape.zero()
    tape.backward(grads={z: np.ones(4, F32)}, check_finite=True)
    assert np.array_equal(x.grad.numpy(), expected)
