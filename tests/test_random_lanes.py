"""Random per-thread programs: interpreter and CPU agree for every block size, and gradients with finite differences.

Statements over scalars of a thread, bounded so that differences mean something: arithmetic, element reads (some out
of step with the thread), branches and loops whose length differs between lanes, tiles of the block that lanes read and
write, sums over the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegrad as tg
from programs import build

N = 11
EXPRESSIONS = (
    "{a} + {b}",
    "tg.tanh({a} * {b}) - 0.25",
    "tg.sin({a})",
    "tg.cos({a}) * {b}",
    "tg.tanh({a} - {b})",
    "{a} / (2.0 + tg.sin({b}))",
    "x[(i + 3) % 11] * {a}",
    "x[m[i]] + {b}",
    "tg.max({a}, {b} + 0.125)",
    "helper({a}, {b})",
    "{a} if i % 3 == 0 else tg.sin({b})",
    "float64(m[i]) * 0.1 + {a}",
)
#: statements on a tile of the block, and on an array that lanes write
TILES = (
    "t[m[i]] += p * 0.5",
    "t[(i * 3) % 5] = q",
    "t[2] += r",
    "t[1] = p",
    "p = p + t[m[i]] * t[2]",
    "r = tg.sin(t[3]) * q",
    "q = q * tg.tanh(tg.tile_sum(t)[0])",
    "t = tg.sin(t) + 0.1",
    "z[i] = p * q",
    "p = z[i] * 0.5",
    "r = r + tg.untile(tg.tile(q) * 0.5)",
)
UPDATES = ("{v} += {a} * 0.5", "{v} *= tg.cos({a})", "{v} -= x[i]")
NAMES = ("p", "q", "r")


@st.composite
def block(draw: Any, depth: int, indent: str) -> list[str]:
    """A few statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        plain = ("assign", "assign", "update")
        kind = draw(st.sampled_from((*plain, "if", "for", "while", "break") if depth else plain))
        name, a, b = (draw(st.sampled_from(NAMES)) for _ in range(3))
        inner = indent + "    "
        if kind == "assign":
            lines.append(f"{indent}{name} = {draw(st.sampled_from(EXPRESSIONS)).format(a=a, b=b)}")
        elif kind == "update":
            lines.append(f"{indent}{draw(st.sampled_from(UPDATES)).format(v=name, a=a)}")
        elif kind == "if":
            test = draw(st.sampled_from(("n > 1", "i % 2 == 0", "m[i] > 1", "i < 5 and n > 0")))
            lines += [f"{indent}if {test}:", *draw(block(depth - 1, inner))]
            lines += [f"{indent}else:", *draw(block(depth - 1, inner))]
        elif kind == "for":
            bounds = draw(st.sampled_from(("n", "m[i]", "m[i], 0, -1", "0, 2 * n, 2")))
            lines += [f"{indent}for i{depth} in range({bounds}):", *draw(block(depth - 1, inner))]
        elif kind == "while":
            lines += [f"{indent}k{depth} = m[i]", f"{indent}while k{depth} > 0:"]
            lines += [*draw(block(depth - 1, inner)), f"{inner}k{depth} -= 1"]
        else:
            lines += [f"{indent}for i{depth} in range(3):", f"{inner}if i{depth} == m[i]:", f"{inner}    break"]
            lines += draw(block(depth - 1, inner))
    return lines


@st.composite
def program(draw: Any) -> str:
    shared = draw(st.sampled_from(("", "lanes", "block")))
    lines = [
        "def kernel(x: F, m: tg.array1d[int], n: int, z: F, y: F):",
        "    i = tg.tid()",
        "    p = x[i]",
        "    q = x[10 - i] * 0.5",
        "    r = tg.sin(p) + q",
        *draw(block(2, "    ")),
    ]
    if shared == "block":
        lines += ["    t = tg.tile_zeros(shape=5, dtype=tg.float64)"]
        lines += [f"    {draw(st.sampled_from(TILES))}" for _ in range(draw(st.integers(2, 5)))]
        lines += draw(block(1, "    "))
    elif shared:
        lines += ["    t = tg.tile(p)", "    r = r + tg.untile(tg.sin(t)) * tg.tile_sum(tg.tile_load(x, shape=11))[0]"]
        lines += draw(block(1, "    "))
    lines.append("    y[i] = p + q * 2.0 + r * 3.0")
    return "\n".join(lines) + "\n"


@tg.func
def helper(a: tg.float64, b: tg.float64):
    if a > 0.03:
        return tg.sin(a) * b
    return b - tg.sin(a * a)


def run(kernel: Any, x: np.ndarray, m: np.ndarray, n: int, device: str, lanes: int) -> np.ndarray:
    y = np.zeros(N)
    tg.launch(kernel, dim=N, inputs=[x, m, n, np.full(N, 0.5), y], block_dim=lanes, device=device)
    return y


def gradient(
    kernel: Any, x: np.ndarray, m: np.ndarray, n: int, seed: np.ndarray, device: str, lanes: int
) -> np.ndarray:
    a, y = tg.array(x, requires_grad=True), tg.zeros(N, dtype=tg.float64, requires_grad=True)
    z = tg.full(N, 0.5, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(kernel, dim=N, inputs=[a, m, n, z, y], block_dim=lanes, device=device)
    tape.backward(grads={y: tg.array(seed)})
    return np.array(a.grad.numpy())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program(), st.integers(0, 3), st.sampled_from((1, 4, 7, 32)), st.integers(0, 2**31))
def test_devices_and_gradients_agree(text: str, n: int, lanes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weights, direction = rng.uniform(-1, 1, N), rng.standard_normal(N), rng.standard_normal(N)
    m = rng.integers(0, 4, N).astype(np.int32)
    kernel = build(text, helper=helper, float64=tg.float64, F=tg.array1d[tg.float64])
    expected = run(kernel, x, m, n, "interpret", lanes)
    np.testing.assert_allclose(run(kernel, x, m, n, "cpu", lanes), expected, rtol=1e-9, atol=1e-9)
    if "tile_zeros" not in text:  # the block's own tile differs with the block
        np.testing.assert_allclose(run(kernel, x, m, n, "cpu", 16), expected, rtol=1e-9, atol=1e-9)

    def slope(h: float) -> float:
        ends = [run(kernel, x + s * h * direction, m, n, "cpu", lanes) for s in (1, -1)]
        return float(np.sum((ends[0] - ends[1]) * weights)) / (2 * h)

    difference, closer = slope(1e-6), slope(2.5e-7)
    for device in ("interpret", "cpu"):
        found = np.sum(gradient(kernel, x, m, n, weights, device, lanes) * direction)
        if abs(difference - closer) < 1e-4 * max(1, abs(difference)):  # no kink between the points
            assert found == pytest.approx(difference, rel=1e-4, abs=1e-4)
