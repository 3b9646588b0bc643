"""Times tile kernels beside the peers that are installed, in one process, and prints ratios.

    python bench/bench.py [WORKLOAD ...]

A ratio is peer seconds / tilegrad seconds: above 1 tilegrad is faster. Every contender runs once per round, and the
minimum over the rounds counts, since the machine may be noisy. Results are checked against NumPy first.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tilegrad as tg

ROUNDS = 7
rng = np.random.default_rng(0)


@dataclass
class Workload:
    """One job: how to run it with tilegrad, what the answer is, and how the peers run it."""

    name: str
    work: float
    unit: str
    run: Callable[[], object]
    result: Callable[[], np.ndarray]
    expected: np.ndarray
    peers: dict[str, Callable[[], object]] = field(default_factory=dict)


def peer(name: str) -> Any:
    """A peer module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = peer("torch")
if torch:
    torch.set_num_threads(os.cpu_count() or 1)


def product(dtype: Any, n: int = 1024, tile: int = 64) -> Workload:
    @tg.kernel(enable_backward=False)
    def kernel(a: tg.array2d(dtype=dtype), b: tg.array2d(dtype=dtype), c: tg.array2d(dtype=dtype)):
        i, j = tg.tid()
        total = tg.tile_zeros(shape=(tile, tile), dtype=dtype)
        for k in range(a.shape[1] // tile):
            x = tg.tile_load(a, shape=(tile, tile), offset=(i * tile, k * tile))
            total += x @ tg.tile_load(b, shape=(tile, tile), offset=(k * tile, j * tile))
        tg.tile_store(c, total, offset=(i * tile, j * tile))

    a, b = (rng.random((n, n)).astype(dtype.np) for _ in range(2))
    c = np.zeros_like(a)
    out = np.empty_like(a)
    peers: dict[str, Callable[[], object]] = {"numpy": lambda: np.matmul(a, b, out=out)}
    if torch:
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        peers["torch"] = lambda: ta @ tb
    blocks = -(-n // tile)
    return Workload(
        f"product {dtype}", 2 * n**3, "GF/s", lambda: tg.launch_tiled(kernel, dim=(blocks, blocks), inputs=[a, b, c]),
        lambda: c, a @ b, peers,
    )  # fmt: skip


def softmax(m: int = 8192, n: int = 1024) -> Workload:
    @tg.kernel(enable_backward=False)
    def kernel(x: tg.array2d[float], y: tg.array2d[float]):
        i = tg.tid()
        row = tg.tile_load(x[i], shape=n)
        e = tg.exp(row - tg.tile_max(row))
        tg.tile_store(y[i], e / tg.tile_sum(e))

    x = rng.standard_normal((m, n), dtype=np.float32)
    y = np.zeros_like(x)
    e = np.exp(x - x.max(1, keepdims=True))
    peers: dict[str, Callable[[], object]] = {}
    if torch:
        tx = torch.from_numpy(x)
        peers["torch"] = lambda: torch.softmax(tx, 1)
    run = lambda: tg.launch_tiled(kernel, dim=m, inputs=[x, y])  # noqa: E731
    return Workload("softmax", 2 * x.nbytes, "GB/s", run, lambda: y, e / e.sum(1, keepdims=True), peers)


def row_sums(m: int = 8192, n: int = 4096) -> Workload:
    @tg.kernel(enable_backward=False)
    def kernel(x: tg.array2d[float], y: tg.array1d[float]):
        i = tg.tid()
        tg.tile_store(y, tg.tile_sum(tg.tile_load(x[i], shape=n)), offset=i)

    x = rng.random((m, n), dtype=np.float32)
    y = np.zeros(m, np.float32)
    peers: dict[str, Callable[[], object]] = {"numpy": lambda: x.sum(1)}
    if torch:
        tx = torch.from_numpy(x)
        peers["torch"] = lambda: tx.sum(1)
    run = lambda: tg.launch_tiled(kernel, dim=m, inputs=[x, y])  # noqa: E731
    return Workload("row sums", x.nbytes, "GB/s", run, lambda: y, x.sum(1, dtype=np.float64), peers)


def launches(count: int = 1000) -> Workload:
    @tg.kernel(enable_backward=False)
    def kernel(x: tg.array1d[float]):
        tg.tile_store(x, tg.tile_ones(shape=4, dtype=float))

    x = np.zeros(4, np.float32)

    def run() -> None:
        for _ in range(count):
            tg.launch_tiled(kernel, dim=1, inputs=[x])

    return Workload("launch", count * 1e9, "launches/s", run, lambda: x, np.ones(4))


WORKLOADS = {
    "gemm32": lambda: product(tg.float32),
    "gemm64": lambda: product(tg.float64),
    "softmax": softmax,
    "rowsum": row_sums,
    "launch": launches,
}


def measure(w: Workload) -> dict[str, float]:
    """The best seconds of every contender."""
    w.run()
    np.testing.assert_allclose(w.result(), w.expected, rtol=1e-4, atol=1e-4 * float(np.abs(w.expected).max()))
    contenders = {"tilegrad": w.run, **w.peers}
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    table = Table("workload", "tilegrad", "rate", "peer / tilegrad")
    for name in sys.argv[1:] or WORKLOADS:
        w = WORKLOADS[name]()
        best = measure(w)
        ours = best.pop("tilegrad")
        ratios = ", ".join(f"{peer_name} {seconds / ours:.2f}" for peer_name, seconds in best.items())
        table.add_row(w.name, f"{ours * 1e3:.3f} ms", f"{w.work / ours / 1e9:.1f} {w.unit}", ratios)
    console = Console()
    console.print(table)
    if not torch:
        console.print("torch is not installed, so it does not compete")


if __name__ == "__main__":
    main()
