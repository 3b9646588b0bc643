"""The jobs of the benchmark: how tilegrad does each, how the peers do it, and what the answer is.

The kernels are written once, for tilegrad and for Warp, whose call forms they share: `m` is the module that runs
them. Does not measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peers import jax, numba, torch, warp

import tilegrad

Run = Callable[[], Any]
rng = np.random.default_rng(0)


@dataclass
class Workload:
    """One job, made ready to run."""

    #: amount of work, and the unit of work / 1e9 per second
    work: float
    unit: str
    expected: np.ndarray
    #: relative to the largest expected value
    tolerance: float
    #: name -> what runs the job and returns the array with the answer (for tilegrad and Warp: a function that does)
    contenders: dict[str, Run] = field(default_factory=dict)

    def tiles(self, make: Callable[[Any], Run]) -> None:
        """Add tilegrad, and Warp if it is installed."""
        self.contenders["tilegrad"] = make(tilegrad)
        if warp:
            self.contenders["warp"] = make(warp)


def forward_only(m: Any) -> Any:
    return m.kernel(module="unique", enable_backward=False)


def tiled(m: Any, kernel: Any, dim: Any, inputs: list[Any], block_dim: int = 1) -> Run:
    """A launch on the CPU; Warp's arrays are made once, outside of it."""
    given = [m.array(x, device="cpu", copy=False) if m is warp else x for x in inputs]

    def run() -> Any:
        m.launch_tiled(kernel, dim=dim, inputs=given, block_dim=block_dim, device="cpu")
        return given[-1]

    return run


def jitted(function: Any, *args: np.ndarray) -> Run:
    """A function compiled by JAX, on arrays that JAX holds."""
    held = [jax.numpy.asarray(x) for x in args]
    compiled = jax.jit(function)
    return lambda: compiled(*held).block_until_ready()


# --- products ---------------------------------------------------------------------------------------------------------


def product_kernel(m: Any, dtype: Any, tile: int = 64) -> Any:
    @forward_only(m)
    def product(a: m.array2d(dtype=dtype), b: m.array2d(dtype=dtype), c: m.array2d(dtype=dtype)):
        i, j = m.tid()
        total = m.tile_zeros(shape=(tile, tile), dtype=dtype)
        for k in range(a.shape[1] // tile):
            x = m.tile_load(a, shape=(tile, tile), offset=(i * tile, k * tile))
            y = m.tile_load(b, shape=(tile, tile), offset=(k * tile, j * tile))
            m.tile_matmul(x, y, total)
        m.tile_store(c, total, offset=(i * tile, j * tile))

    return product


def product(dtype: str, n: int = 1024) -> Workload:
    a, b = (rng.random((n, n)).astype(dtype) for _ in range(2))
    w = Workload(2 * n**3, "GF/s", a @ b, 1e-4)
    w.tiles(lambda m: tiled(m, product_kernel(m, getattr(m, dtype)), (n // 64, n // 64), [a, b, np.zeros_like(a)]))
    out = np.empty_like(a)
    w.contenders["numpy"] = lambda: np.matmul(a, b, out=out)
    if torch:
        ta, tb, to = torch.from_numpy(a), torch.from_numpy(b), torch.empty(n, n, dtype=getattr(torch, dtype))
        w.contenders["torch"] = lambda: torch.mm(ta, tb, out=to)
    if jax and dtype == "float32":  # JAX has no float64 unless told so for the whole process
        w.contenders["jax"] = jitted(lambda x, y: x @ y, a, b)
    return w


# --- rows -------------------------------------------------------------------------------------------------------------


def softmax(rows: int = 8192, n: int = 1024) -> Workload:
    x = rng.standard_normal((rows, n), dtype=np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    w = Workload(2 * x.nbytes, "GB/s", e / e.sum(1, keepdims=True), 1e-5)

    def make(m: Any) -> Run:
        @forward_only(m)
        def softmax(x: m.array2d(dtype=float), y: m.array2d(dtype=float)):
            i = m.tid()
            t = m.tile_load(x[i], shape=n)
            e = m.tile_map(m.exp, t - m.tile_broadcast(m.tile_max(t), shape=(n,)))
            m.tile_store(y[i], e / m.tile_broadcast(m.tile_sum(e), shape=(n,)))

        return tiled(m, softmax, [rows], [x, np.zeros_like(x)])

    w.tiles(make)
    if torch:
        tx, to = torch.from_numpy(x), torch.empty(rows, n)
        w.contenders["torch"] = lambda: torch.softmax(tx, 1, out=to)
    if jax:
        w.contenders["jax"] = jitted(lambda x: jax.nn.softmax(x, axis=1), x)
    if numba:
        w.contenders["numba"] = numba_softmax(x)
    return w


def numba_softmax(x: np.ndarray) -> Run:
    @numba.njit(parallel=True, fastmath=True)
    def softmax(x, y):
        for i in numba.prange(x.shape[0]):
            largest = x[i, 0]
            for j in range(x.shape[1]):
                largest = max(largest, x[i, j])
            total = np.float32(0)
            for j in range(x.shape[1]):
                y[i, j] = np.exp(x[i, j] - largest)
                total += y[i, j]
            for j in range(x.shape[1]):
                y[i, j] /= total

    y = np.empty_like(x)

    def run() -> np.ndarray:
        softmax(x, y)
        return y

    return run


def rowsum(rows: int = 8192, n: int = 4096) -> Workload:
    x = rng.random((rows, n), dtype=np.float32)
    w = Workload(x.nbytes, "GB/s", x.sum(1, dtype=np.float64), 1e-5)

    def make(m: Any) -> Run:
        @forward_only(m)
        def rowsum(x: m.array2d(dtype=float), y: m.array(dtype=float)):
            i = m.tid()
            m.tile_store(y, m.tile_sum(m.tile_load(x[i], shape=n)), offset=i)

        return tiled(m, rowsum, [rows], [x, np.zeros(rows, np.float32)])

    w.tiles(make)
    out = np.empty(rows, np.float32)
    w.contenders["numpy"] = lambda: x.sum(1, out=out)
    if torch:
        tx = torch.from_numpy(x)
        w.contenders["torch"] = lambda: tx.sum(1)
    if jax:
        w.contenders["jax"] = jitted(lambda x: x.sum(1), x)
    return w


# --- elements ---------------------------------------------------------------------------------------------------------


def blackscholes(n: int = 1 << 22) -> Workload:
    s, k = (rng.random(n, dtype=np.float32) * 90 + 10 for _ in range(2))
    t = rng.random(n, dtype=np.float32) + np.float32(0.1)
    w = Workload(n * 1e3, "Moptions/s", black_scholes_reference(s, k, t), 1e-4)

    def make(m: Any) -> Run:
        @m.func
        def normal(d: float):
            return 0.5 * (1.0 + m.erf(d * 0.70710678))

        @forward_only(m)
        def blackscholes(
            s: m.array(dtype=float), k: m.array(dtype=float), t: m.array(dtype=float), o: m.array(dtype=float)
        ):
            i = m.tid()
            v = 0.3 * m.sqrt(t[i])
            d = (m.log(s[i] / k[i]) + 0.065 * t[i]) / v
            o[i] = s[i] * normal(d) - k[i] * m.exp(-0.02 * t[i]) * normal(d - v)

        given = [m.array(x, device="cpu", copy=False) if m is warp else x for x in (s, k, t, np.zeros_like(s))]

        def run() -> Any:
            m.launch(blackscholes, dim=n, inputs=given, device="cpu")
            return given[-1]

        return run

    w.tiles(make)
    if torch:
        w.contenders["torch"] = torch_blackscholes(s, k, t)
    if jax:
        w.contenders["jax"] = jitted(jax_blackscholes, s, k, t)
    if numba:
        w.contenders["numba"] = numba_blackscholes(s, k, t)
    return w


def black_scholes_reference(*args: np.ndarray) -> np.ndarray:
    s, k, t = (x.astype(np.float64) for x in args)
    v = 0.3 * np.sqrt(t)
    d = (np.log(s / k) + 0.065 * t) / v
    normal = np.vectorize(lambda x: 0.5 * (1 + math.erf(x * 0.70710678)))
    return s * normal(d) - k * np.exp(-0.02 * t) * normal(d - v)


def torch_blackscholes(*args: np.ndarray) -> Run:
    s, k, t = map(torch.from_numpy, args)

    def run() -> Any:
        v = 0.3 * torch.sqrt(t)
        d = (torch.log(s / k) + 0.065 * t) / v
        low, high = (0.5 * (1 + torch.erf(x * 0.70710678)) for x in (d - v, d))
        return s * high - k * torch.exp(-0.02 * t) * low

    return run


def jax_blackscholes(s: Any, k: Any, t: Any) -> Any:
    v = 0.3 * jax.numpy.sqrt(t)
    d = (jax.numpy.log(s / k) + 0.065 * t) / v
    low, high = (0.5 * (1 + jax.scipy.special.erf(x * 0.70710678)) for x in (d - v, d))
    return s * high - k * jax.numpy.exp(-0.02 * t) * low


def numba_blackscholes(s: np.ndarray, k: np.ndarray, t: np.ndarray) -> Run:
    @numba.njit(parallel=True, fastmath=True)
    def blackscholes(s, k, t, o):
        half, one, root = np.float32(0.5), np.float32(1), np.float32(0.70710678)
        for i in numba.prange(s.size):
            v = np.float32(0.3) * np.sqrt(t[i])
            d = (np.log(s[i] / k[i]) + np.float32(0.065) * t[i]) / v
            discount = np.exp(np.float32(-0.02) * t[i])
            high, low = half * (one + math.erf(d * root)), half * (one + math.erf((d - v) * root))
            o[i] = s[i] * high - k[i] * discount * low

    o = np.empty_like(s)

    def run() -> np.ndarray:
        blackscholes(s, k, t, o)
        return o

    return run


# --- overhead ---------------------------------------------------------------------------------------------------------


def launch(count: int = 1000) -> Workload:
    w = Workload(count * 1e9, "launches/s", np.ones(4), 0)

    def make(m: Any) -> Run:
        @forward_only(m)
        def tiny(x: m.array(dtype=float)):
            i = m.tid()
            m.tile_store(x, m.tile_ones(shape=4, dtype=float), offset=i * 4)

        return repeated(tiled(m, tiny, [1], [np.zeros(4, np.float32)]), count)

    w.tiles(make)
    return w


def repeated(run: Run, count: int) -> Run:
    def many() -> Any:
        for _ in range(count - 1):
            run()
        return run()

    return many


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "gemm32": lambda: product("float32"),
    "gemm64": lambda: product("float64"),
    "softmax": softmax,
    "rowsum": rowsum,
    "blackscholes": blackscholes,
    "launch": launch,
}
