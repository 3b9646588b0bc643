"""The register-blocked product against NumPy: every remainder, dtype and vector length, nothing written beyond."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from elementwise import ElementwiseEmitter
from tilegrad import dtypes as dt
from tilegrad.codegen.memory import MemoryEmitter
from tilegrad.codegen.registers import Target
from tilegrad.codegen.targets.cpu_matmul import Blocking, choose_blocking, choose_unroll, emit_matmul
from tilegrad.emit import Buffer
from tilegrad.runtime import engine

TARGETS = {
    "512 bits": Target(),
    "256 bits": Target(8, 16, 32, True, "nounwind"),
    "128 bits": Target(4, 16, 16, True, "nounwind"),
}
SLACK = 64


class ProductEmitter(MemoryEmitter):
    """Enough of an emitter for a product."""


for name in ProductEmitter.__abstractmethods__:
    setattr(ProductEmitter, name, getattr(ElementwiseEmitter, name))
ProductEmitter.__abstractmethods__ = frozenset()


def memory(x, beyond):
    """A copy of an array in 64-byte aligned memory with `beyond` in a vector of slack behind it."""
    room = np.zeros(x.nbytes + 2 * SLACK, np.uint8)
    start = -room.ctypes.data % 64
    cells = room[start : start + x.nbytes + SLACK].view(x.dtype)
    cells[:] = beyond
    cells[: x.size] = x.ravel()
    return cells


def product(a, b, c, target):
    """a @ b (+ c) compiled; memory behind the operands has no effect, behind the result it is kept."""
    d = dt.of_array(a)
    m, n = a.shape[0], b.shape[1]
    e = ProductEmitter(target)
    buffers = [Buffer(d, f"%{p}", s) for p, s in (("o", (m, n)), ("a", a.shape), ("b", b.shape), ("c", (m, n)))]
    emit_matmul(e, *buffers[:3], buffers[3] if c is not None else None)
    text = e.f.module("f", [f"ptr {x.ptr}" for x in buffers], target.attributes)
    beyond = np.nan if d.is_float else d.max
    held = [memory(x, beyond) for x in (np.zeros((m, n), d.np), a, b, c if c is not None else np.zeros(1, d.np))]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(engine.compile_ir(text, "f"))(*(x.ctypes.data for x in held))
    out = held[0]
    np.testing.assert_array_equal(out[m * n :], np.full(SLACK // d.size, beyond, d.np))
    return out[: m * n].reshape(m, n)


def operands(d, m, k, n, rng):
    """Small whole numbers, so that floats are exact too."""
    low, high = (0, 9) if d.kind == "u" else (-8, 9)
    return [rng.integers(low, high, s).astype(d.np) for s in ((m, k), (k, n), (m, n))]


def check(d, m, k, n, target, add=False):
    a, b, c = operands(d, m, k, n, np.random.default_rng(m + 100 * k + 10000 * n))
    got = product(a, b, c if add else None, target)
    np.testing.assert_array_equal(got, a @ b + c if add else a @ b, err_msg=f"{m} x {k} x {n}")


@pytest.mark.parametrize("add", [False, True], ids=["", "plus c"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("d", [dt.float32, dt.float64, *dt.INTEGERS], ids=str)
def test_products_of_every_dtype(d, target, add):
    for shape in [(5, 9, 19), (16, 8, 16)]:
        check(d, *shape, target, add)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 59, 64, 65, 80, 129])
def test_products_with_every_remainder(n, target):
    for m, k in [(1, 1), (2, 5), (7, 4), (13, 17), (25, 3), (64, 31)]:
        check(dt.float32, m, k, n, target, add=m == 13)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("d", [dt.float32, dt.float64, dt.int8, dt.uint64], ids=str)
def test_a_single_column(d, target):
    for m, k in [(1, 8), (3, 7), (8, 16), (9, 61), (17, 64), (20, 130)]:
        check(d, m, k, 1, target, add=k % 2 == 0)


def test_sums_fit_in_the_registers_and_large_panels_are_found():
    assert choose_blocking(64, 4, 32) == Blocking(8, 2)
    for registers in (16, 32):
        for m in range(1, 70):
            for vectors in range(1, 10):
                p = choose_blocking(m, vectors, registers)
                assert p.rows <= m and p.vectors <= vectors
                assert p.rows * p.vectors + p.vectors + 1 <= registers
                if m >= 16 and vectors >= 4:
                    assert p.rows * p.vectors >= 10, (m, vectors, registers)


def test_steps_of_k_divide_it_where_possible():
    assert choose_unroll(64, 16) == 4
    assert choose_unroll(9, 16) == 3
    assert all(1 <= choose_unroll(k, panel) <= 8 for k in range(1, 50) for panel in range(1, 25))


def test_the_panel_stays_in_registers():
    """One fused multiply-add for each, none through memory, when nothing but the inner loop multiplies."""
    if not engine.host_features().get("avx512f"):
        pytest.skip("looks for AVX-512 instructions")
    e = ProductEmitter(Target())
    buffers = [Buffer(dt.float32, f"%{p}", (64, 64)) for p in "oab"]
    emit_matmul(e, *buffers, None)
    code = engine.assembly(e.f.module("f", [f"ptr {x.ptr}" for x in buffers], e.target.attributes))
    assert sum("vfmadd" in line and "zmm" in line for line in code.splitlines()) == 8 * 2 * choose_unroll(64, 16)
    assert "rsp" not in "".join(line for line in code.splitlines() if "zmm" in line)
