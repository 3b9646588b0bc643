"""Random kernels that read and write the same arrays: devices agree, and gradients agree with finite differences.

The programs store tiles and elements of an array that they load again, at places that overlap, in rows whose index
comes from an array that is itself written, in loops and branches; they add to a second array atomically.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build

LOADS = (
    "tg.tile_load(x, shape=(2, 3), offset=({i}, {j}))",
    "tg.tile_reshape(tg.tile_load(x[m[{k}]], shape=6), (2, 3))",
    "tg.tile_load(x, shape=(3, 2), offset=({j}, {i})).T",
    "tg.sin({a}) + {b}",
    "{a} * {b} * 0.5",
    "{a} * x[{k}, m[{j}]]",
    "{a} - tg.tile_sum({b}) * 0.1",
    "{a} * {b}[1, {j}]",
    "tg.tanh({a} @ {b}.T @ {a})",
)
WRITES = (
    "tg.tile_store(x, {a}, offset=({i}, {j}))",
    "tg.tile_store(x[m[{k}]], tg.tile_reshape({a}, 6), offset={j})",
    "x[{k}, {j}] = x[{j}, {k}] * {a}[0, 1]",
    "x[{k}, {j}] = tg.sin({a}[1, 2])",
    "tg.tile_store(x, {a}.T * 0.5, offset=({j}, {i}))",
    "tg.tile_atomic_add(y, {a}, offset=({i}, {j}))",
    "y[{k}, {j}] += {a}[0, 0] * 2.0",
    "m[{k}] = (m[{j}] + 1) % 4",
)
NAMES = ("p", "q")


@st.composite
def block(draw: Any, depth: int, indent: str) -> list[str]:
    """A few statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(2, 4))):
        plain = ("load", "write", "write")
        kind = draw(st.sampled_from((*plain, "if", "for") if depth else plain))
        name, a, b = (draw(st.sampled_from(NAMES)) for _ in range(3))
        i, j, k = draw(st.integers(-1, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 3))
        words = {"a": a, "b": b, "i": i, "j": j, "k": k}
        if kind == "load":
            lines.append(f"{indent}{name} = {draw(st.sampled_from(LOADS)).format(**words)}")
        elif kind == "write":
            lines.append(f"{indent}{draw(st.sampled_from(WRITES)).format(**words)}")
        elif kind == "if":
            test = draw(st.sampled_from(("n > 1", "m[1] > 1", "m[0] == m[2]")))
            lines += [f"{indent}if {test}:", *draw(block(depth - 1, indent + "    "))]
            lines += [f"{indent}else:", *draw(block(depth - 1, indent + "    "))]
        else:
            bound = draw(st.sampled_from(("n", "m[3]", "2")))
            lines += [f"{indent}for i{depth} in range({bound}):", *draw(block(depth - 1, indent + "    "))]
    return lines


@st.composite
def program(draw: Any) -> str:
    lines = [
        "def kernel(x: tg.array2d[tg.float64], m: tg.array1d[int], n: int, y: tg.array2d[tg.float64]):",
        "    p = tg.tile_load(x, shape=(2, 3))",
        "    q = tg.sin(tg.tile_load(x, shape=(2, 3), offset=(1, 2)))",
        *draw(block(2, "    ")),
        "    tg.tile_atomic_add(y, p * 2.0 + q)",
    ]
    return "\n".join(lines) + "\n"


def run(kernel: Any, x: np.ndarray, m: np.ndarray, n: int, device: str) -> tuple[np.ndarray, ...]:
    """What the kernel leaves in its arrays."""
    x, m, y = x.copy(), m.copy(), np.full((4, 6), 0.25)
    tg.launch_tiled(kernel, dim=1, inputs=[x, m, n, y], block_dim=4, device=device)
    return x, m, y


def gradient(
    kernel: Any, x: np.ndarray, m: np.ndarray, n: int, seeds: tuple[np.ndarray, ...], device: str
) -> np.ndarray:
    source = tg.array(x, requires_grad=True)
    a, y = tg.zeros((4, 6), dtype=tg.float64, requires_grad=True), tg.array(np.full((4, 6), 0.25), requires_grad=True)
    with tg.Tape() as tape:
        tg.copy(a, source)
        tg.launch_tiled(kernel, dim=1, inputs=[a, m.copy(), n, y], block_dim=4, device=device)
    tape.backward(grads={a: tg.array(seeds[0]), y: tg.array(seeds[1])})
    return np.array(source.grad.numpy())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program(), st.integers(0, 3), st.integers(0, 2**31))
def test_devices_and_gradients_agree(text: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, direction = rng.uniform(-1, 1, (4, 6)), rng.standard_normal((4, 6))
    seeds = tuple(rng.standard_normal((2, 4, 6)))
    m = rng.integers(0, 4, 4).astype(np.int32)
    kernel = build(text)
    for expected, found in zip(run(kernel, x, m, n, "interpret"), run(kernel, x, m, n, "cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)

    def loss(at: np.ndarray) -> float:
        end, _, y = run(kernel, at, m, n, "cpu")
        return float(np.sum(end * seeds[0]) + np.sum(y * seeds[1]))

    def slope(h: float) -> float:
        return (loss(x + h * direction) - loss(x - h * direction)) / (2 * h)

    difference, closer = slope(1e-6), slope(2.5e-7)
    for device in ("interpret", "cpu"):
        found = np.sum(gradient(kernel, x, m, n, seeds, device) * direction)
        if abs(difference - closer) < 1e-4 * max(1, abs(difference)):  # no kink between the points
            assert found == pytest.approx(difference, rel=1e-4, abs=1e-4)
