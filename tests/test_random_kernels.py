"""Random kernels: interpreter and CPU agree, and their gradients agree with finite differences in float64.

A program is a list of statements over tiles of one shape: arithmetic, reductions with broadcasting, products, slices,
in-place updates, element writes, branches and nested loops with run-time bounds. Functions are smooth and bounded, so
that differences are accurate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build

EXPRESSIONS = (
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b} * 0.5",
    "-{a} + 0.25",
    "tg.sin({a})",
    "tg.cos({a}) * {b}",
    "tg.tanh({a} - {b})",
    "tg.exp(tg.sin({a}))",
    "{a} / (2.0 + tg.sin({b}))",
    "tg.sqrt(1.5 + tg.cos({a}))",
    "tg.max({a}, {b} + 0.125)",
    "tg.where({a} > 0.05, {a} * {b}, tg.sin({b}))",
    "tg.tile_map(helper, {a}, {b})",
    "tg.tile_map(branchy, {a})",
    "{a} - tg.tile_sum({b}, axis=1, keepdims=True) * 0.1",
    "{a} + tg.tile_sum({b}, axis=0) * 0.1",
    "{a} * tg.tanh(tg.tile_max({b}))",
    "tg.tanh({a} @ {b}.T @ {a})",
    "tg.tanh(tg.tile_reshape({a}.T, shape=(R, C)) + {b})",
    "{a} * {b}[1, 2]",
    "tg.tile_broadcast({a}[1:2], shape=(R, C)) * {b}",
    "tg.tile_load(x, shape=(R, C), offset=(-1, 1)) + {a}",
)
UPDATES = (
    "{v} += {a} * 0.5",
    "{v} *= tg.cos({a})",
    "{v}[0] = {a}[1] * 0.5",
    "{v}[1:, ::2] = tg.sin({a}[:-1, ::2])",
    "{v}[1, 2] = tg.tile_sum({a})[0] * 0.1",
    "{v}[0, 1] += {a}[1, 0]",
)
NAMES = ("p", "q", "r")


@st.composite
def block(draw: Any, depth: int, indent: str) -> list[str]:
    """A few statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(("assign", "assign", "update", "if", "for", "while") if depth else ("assign", "update"))
        )
        name, a, b = (draw(st.sampled_from(NAMES)) for _ in range(3))
        if kind == "assign":
            lines.append(f"{indent}{name} = {draw(st.sampled_from(EXPRESSIONS)).format(a=a, b=b)}")
        elif kind == "update":
            lines.append(f"{indent}{draw(st.sampled_from(UPDATES)).format(v=name, a=a)}")
        elif kind == "if":
            lines.append(f"{indent}if n > {draw(st.integers(0, 3))}:")
            lines += draw(block(depth - 1, indent + "    "))
            lines.append(f"{indent}else:")
            lines += draw(block(depth - 1, indent + "    "))
        elif kind == "for":
            step = draw(st.sampled_from(("n", "0, n", "n, 0, -1", "0, 2 * n, 2")))
            lines.append(f"{indent}for i{depth} in range({step}):")
            lines += draw(block(depth - 1, indent + "    "))
        else:
            lines.append(f"{indent}k{depth} = n")
            lines.append(f"{indent}while k{depth} > 0:")
            lines += draw(block(depth - 1, indent + "    "))
            lines.append(f"{indent}    k{depth} -= 1")
    return lines


@st.composite
def program(draw: Any) -> str:
    lines = [
        "def kernel(x: tg.array2d[tg.float64], y: tg.array2d[tg.float64], n: int):",
        "    p = tg.tile_load(x, shape=(R, C))",
        "    q = tg.tile_load(x, shape=(R, C), offset=(1, 1))",
        "    r = tg.sin(p) + q",
        *draw(block(2, "    ")),
        "    tg.tile_store(y, p + q * 2.0 + r * 3.0)",
    ]
    return "\n".join(lines) + "\n"


@tg.func
def helper(a: tg.float64, b: tg.float64):
    return tg.sin(a) * tg.cos(b)


@tg.func
def branchy(a: tg.float64):
    if a > 0.03:
        return tg.sin(a) * 2.0
    total = a
    for _ in range(2):
        total = total * a + 0.5
    return total


#: what the programs may use besides `tg`
SCOPE = {"R": 3, "C": 5, "helper": helper, "branchy": branchy}


def run(kernel: Any, x: np.ndarray, n: int, device: str) -> np.ndarray:
    y = np.zeros((3, 5))
    tg.launch_tiled(kernel, dim=1, inputs=[x, y, n], block_dim=4, device=device)
    return y


def gradient(kernel: Any, x: np.ndarray, n: int, seed: np.ndarray, device: str) -> np.ndarray:
    a, y = tg.array(x, requires_grad=True), tg.zeros((3, 5), dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(kernel, dim=1, inputs=[a, y, n], block_dim=4, device=device)
    tape.backward(grads={y: tg.array(seed)})
    return np.array(a.grad.numpy())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program(), st.integers(0, 3), st.integers(0, 2**31))
def test_devices_and_gradients_agree(text: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weights, direction = rng.uniform(-1, 1, (4, 6)), rng.standard_normal((3, 5)), rng.standard_normal((4, 6))
    kernel = build(text, **SCOPE)
    expected = run(kernel, x, n, "interpret")
    np.testing.assert_allclose(run(kernel, x, n, "cpu"), expected, rtol=1e-9, atol=1e-9)
    h = 1e-6
    difference = np.sum(
        (run(kernel, x + h * direction, n, "cpu") - run(kernel, x - h * direction, n, "cpu")) * weights
    ) / (2 * h)
    closer = np.sum(
        (run(kernel, x + h / 4 * direction, n, "cpu") - run(kernel, x - h / 4 * direction, n, "cpu")) * weights
    ) / (h / 2)
    for device in ("interpret", "cpu"):
        found = np.sum(gradient(kernel, x, n, weights, device) * direction)
        if abs(difference - closer) < 1e-4 * max(1, abs(difference)):  # no kink between the points
            assert found == pytest.approx(difference, rel=1e-4, abs=1e-4)
