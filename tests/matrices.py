"""What the tests of linear algebra share: matrices with known properties, and operations run in kernels on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilegrad as tg
from tilegrad import dtypes as dt

EPS = {np.dtype(np.float32): 2.0**-23, np.dtype(np.float64): 2.0**-52}
FLOATS = (np.float32, np.float64)
K01 = np.array([[4.0, 2.0], [2.0, 3.0]])


def declared(x: np.ndarray) -> Any:
    return tg.array(dtype=dt.as_dtype(x.dtype), ndim=x.ndim)


def unary(f: Any, a: np.ndarray, y: np.ndarray) -> Any:
    A, Y, shape = declared(a), declared(y), a.shape

    @tg.kernel
    def k(a: A, y: Y):
        tg.tile_store(y, f(tg.tile_load(a, shape=shape)))

    return k


def pair(f: Any, a: np.ndarray, y: np.ndarray, z: np.ndarray) -> Any:
    A, Y, Z, shape = declared(a), declared(y), declared(z), a.shape

    @tg.kernel
    def k(a: A, y: Y, z: Z):
        p, q = f(tg.tile_load(a, shape=shape))
        tg.tile_store(y, p)
        tg.tile_store(z, q)

    return k


def binary(f: Any, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Any:
    A, B, Y, sa, sb = declared(a), declared(b), declared(y), a.shape, b.shape

    @tg.kernel
    def k(a: A, b: B, y: Y):
        tg.tile_store(y, f(tg.tile_load(a, shape=sa), tg.tile_load(b, shape=sb)))

    return k


def launch(kernel: Any, *args: np.ndarray, device: str = "cpu", block_dim: int = 4) -> None:
    tg.launch_tiled(kernel, dim=1, inputs=list(args), block_dim=block_dim, device=device)


def apply(f: Any, *args: np.ndarray, shape: Any = None, device: str = "cpu", block_dim: int = 4) -> np.ndarray:
    """f of one or two tiles, in a kernel; the result has the shape of the last unless it is given."""
    y = np.full(args[-1].shape if shape is None else shape, 7, args[-1].dtype)
    launch((unary if len(args) == 1 else binary)(f, *args, y), *args, y, device=device, block_dim=block_dim)
    return y


def apply_pair(f: Any, a: np.ndarray, *outs: Any, device: str = "cpu", block_dim: int = 4) -> Any:
    """f of a tile, which gives two. `outs` are their shapes and dtypes."""
    made = [np.full(shape, 7, dtype) for shape, dtype in outs]
    launch(pair(f, a, *made), a, *made, device=device, block_dim=block_dim)
    return made


def lu(a: np.ndarray, device: str = "cpu", block_dim: int = 4) -> Any:
    return apply_pair(tg.tile_lu, a, (a.shape, a.dtype), (a.shape[:-1], np.int32), device=device, block_dim=block_dim)


def qr(a: np.ndarray, device: str = "cpu", block_dim: int = 4) -> Any:
    *lead, m, n = a.shape
    k = min(m, n)
    outs = ((*lead, m, k), a.dtype), ((*lead, k, n), a.dtype)
    return apply_pair(tg.tile_qr, a, *outs, device=device, block_dim=block_dim)


def eigh(a: np.ndarray, device: str = "cpu", block_dim: int = 4, fill_mode: str = "lower") -> Any:
    outs = (a.shape[:-1], a.dtype), (a.shape, a.dtype)
    return apply_pair(lambda t: tg.tile_eigh(t, fill_mode), a, *outs, device=device, block_dim=block_dim)


def adjoint_of(f: Any, *args: np.ndarray, ct: np.ndarray, device: str = "cpu") -> Any:
    """The gradients of f at some tiles for a cotangent of its result."""
    y = np.zeros_like(ct)
    kernel = (unary if len(args) == 1 else binary)(f, *args, y)
    grads = tg.vjp(kernel, 1, list(args), [y], device=device)(ct)
    return grads[0] if len(args) == 1 else grads


def random(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(n: int, *lead: int, dtype: Any = np.float64, condition: float = 10.0, seed: int = 0) -> np.ndarray:
    """Random positive definite matrices whose eigenvalues go from 1 down to 1 / condition."""
    q = np.linalg.qr(random(*lead, n, n, seed=seed))[0]
    w = np.geomspace(1, 1 / condition, n) if n > 1 else np.ones(1)
    a = (q * w) @ np.swapaxes(q, -1, -2)
    return ((a + np.swapaxes(a, -1, -2)) / 2).astype(dtype)


def off(x: np.ndarray, y: Any, factor: float, scale: float | None = None, dtype: Any = None) -> bool:
    """Whether two arrays differ by more than `factor` rounding errors of the larger one (or of `scale`)."""
    size = scale if scale is not None else max(float(np.abs(y).max()), 1e-30)
    return not np.abs(x.astype(np.float64) - y).max() <= factor * EPS[np.dtype(dtype or x.dtype)] * size
