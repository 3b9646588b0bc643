"""`vjp` and `grad` of a launch."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import functional


@tg.kernel
def weighted(x: tg.array1d[tg.float64], w: tg.array1d[tg.float64], k: int, y: tg.array1d[tg.float64]):
    t = tg.tile_load(x, shape=5) * tg.tile_load(w, shape=5)
    for _ in range(k):
        t = tg.sin(t)
    tg.tile_store(y, t)


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_vjp_is_the_transposed_derivative(device):
    rng = np.random.default_rng(0)
    x, w, y, v, d = (rng.standard_normal(5) for _ in range(5))
    pullback = tg.vjp(weighted, 1, [x, w, 2], [y], device=device)
    np.testing.assert_allclose(y, np.sin(np.sin(x * w)))
    slope = np.cos(np.sin(x * w)) * np.cos(x * w)
    for seed in (v, d):
        dx, dw, dk = pullback(seed)
        np.testing.assert_allclose(dx, seed * slope * w)
        np.testing.assert_allclose(dw, seed * slope * x)
        assert dk is None


def test_grad_wants_one_element():
    with pytest.raises(tg.LaunchError, match="the output must have one element, it has 5"):
        tg.grad(weighted, 1, [np.ones(5), np.ones(5), 1], np.zeros(5))


def test_pullback_wants_every_cotangent():
    pullback = tg.vjp(weighted, 1, [np.ones(5), np.ones(5), 1], [np.zeros(5)])
    with pytest.raises(tg.LaunchError, match="1 outputs, 0 cotangents"):
        pullback()


def test_examples():
    assert doctest.testmod(functional).failed == 0
