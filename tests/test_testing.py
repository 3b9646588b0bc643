"""The checks themselves: they pass what is right, and can fail."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.op import REGISTRY, Sample
from tilegrad.testing import check_gradient, check_kernel_gradient, check_op, check_second_derivative, gradcheck

F32 = np.float32


@tg.kernel
def threads(x: tg.array[tg.float64], o: tg.array[tg.float64]):
    i = tg.tid()
    y = x[i]
    while abs(y) < 3.0:
        y = y * 1.5 + tg.sin(y) * 0.1
    o[i] = y * y


@tg.kernel
def smooth(x: tg.array2d, w: tg.array2d, rows: tg.array[int], o: tg.array2d):
    i = tg.tid()
    h = tg.tile_load(x, shape=(3, 4), offset=(i * 3, 0))
    t = tg.tanh(h @ tg.tile_load(w, shape=(4, 2)))
    if rows[i] > 0:
        t = t + t
    tg.tile_store(o, t, offset=(i * 3, 0))


def arguments(dtype):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 4)).astype(dtype), rng.standard_normal((4, 2)).astype(dtype)
    return [x, w, np.array([1, 0], np.int32)], [np.zeros((6, 2), dtype)]


def test_gradcheck_of_tiles_threads_and_float32(device):
    inputs, outputs = arguments(np.float64)
    gradcheck(smooth, 2, inputs, outputs, device=device)
    inputs, outputs = arguments(F32)
    gradcheck(smooth, 2, inputs, outputs, device=device)
    x = np.array([0.3, -0.7, 1.9, 0.05, 2.5])
    gradcheck(threads, 5, [x], [np.zeros(5)], tiled=False, block_dim=2, device=device)


@pytest.fixture
def wrong_tanh(monkeypatch):
    monkeypatch.setattr(REGISTRY["tanh"], "adjoint", lambda ct, out, x: (REGISTRY["neg"](ct),))


def test_gradcheck_finds_a_wrong_adjoint(wrong_tanh):
    @tg.kernel
    def wrong(x: tg.array[tg.float64], o: tg.array[tg.float64]):
        tg.tile_store(o, tg.tanh(tg.tile_load(x, shape=(4,))))

    with pytest.raises(AssertionError, match="of `wrong` is wrong at x.*differences give"):
        gradcheck(wrong, 1, [np.ones(4)], [np.zeros(4)], device="interpret")


def test_check_gradient_finds_a_wrong_adjoint(wrong_tanh):
    with pytest.raises(AssertionError, match="tanh, operand 0 on interpret: finite differences"):
        check_gradient(REGISTRY["tanh"], Sample((np.array([0.5, 1.0]),)))


def test_check_second_derivative_finds_a_wrong_adjoint_of_what_the_adjoint_uses(monkeypatch):
    sample = Sample((np.array([0.5, -1.5]),))
    check_second_derivative(REGISTRY["tanh"], sample)
    monkeypatch.setattr(REGISTRY["chain"], "adjoint", lambda ct, out, x, y: (REGISTRY["mul"](ct, y), None))
    check_gradient(REGISTRY["tanh"], sample)
    with pytest.raises(AssertionError, match="second derivative of tanh"):
        check_second_derivative(REGISTRY["tanh"], sample)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"body": lambda x: np.tanh(x) * 1.001}, "tanh on cpu"),
        ({"body": lambda x: np.tanh(x).astype(np.float64)}, "float64"),
        ({"body": lambda x: np.tanh(x)[:1]}, "shape"),
    ],
)
def test_check_op_finds_a_body_that_differs(changes, message):
    definition = dataclasses.replace(REGISTRY["tanh"], **changes)
    with pytest.raises(AssertionError, match=message):
        check_op(definition, Sample((np.array([0.5, 1.0], F32),)))


def test_kernels_of_several_blocks_that_add_to_one_array(device):
    @tg.kernel
    def total(x: tg.array2d[tg.float64], o: tg.array[tg.float64]):
        i = tg.tid()
        t = tg.tile_load(x, shape=(2, 3), offset=(i * 2, 0))
        tg.tile_atomic_add(o, tg.tile_sum(t * t, axis=0))

    x, o = np.random.default_rng(0).standard_normal((5, 3)), np.zeros(3)
    check_kernel_gradient(total.ir(x, o, dim=3), [x, o], grid=(3,), device=device, what="total")
