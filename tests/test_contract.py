"""The contract of every registered op: its rules agree with its body, for every sample, on every device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilegrad import dtypes as dt
from tilegrad.op import REGISTRY, Sample
from tilegrad.ops import catalog
from tilegrad.testing import check_gradient, check_op, is_differentiable

assert catalog.FAMILIES


def elementwise_samples(definition, rng):
    """Random tiles (with a size that is no multiple of a vector) and scalars in the op's domain, for every dtype."""
    count = len(definition.kinds)
    for d in definition.elementwise:
        for shape in ((3, 19), ()):
            args = [draw(definition, d, shape, rng) for _ in range(count)]
            if definition.name in ("floordiv", "mod") and d.is_int:
                args[1] = np.where(np.equal(args[1], 0), 1, args[1]).astype(d.np)[
                    ()
                ]  # zero raises; see test_arithmetic
            yield Sample(tuple(args))


def draw(definition, d, shape, rng):
    low, high = definition.domain
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(bool) if shape else np.bool_(rng.integers(0, 2))
    if d.is_int:
        low, high = max(int(np.ceil(low)), 0 if d.kind == "u" else -100), min(int(high), 100)
        return rng.integers(low, high + 1, shape).astype(d.np) if shape else d(int(rng.integers(low, high + 1)))
    x = rng.uniform(low, high, shape)
    return x.astype(d.np) if shape else d(float(x))


def samples_of(name):
    definition = REGISTRY[name]
    rng = np.random.default_rng(7)
    if definition.samples is not None:
        return list(definition.samples(rng))
    if definition.elementwise is not None:
        return list(elementwise_samples(definition, rng))
    return []


NAMES = sorted(n for n, d in REGISTRY.items() if d.cls != "control" and samples_of(n))


@pytest.mark.parametrize("name", NAMES)
def test_body_types_and_devices_agree(name):
    for sample in samples_of(name):
        check_op(REGISTRY[name], sample)


@pytest.mark.parametrize("device", ["interpret", "cpu"])
@pytest.mark.parametrize("name", [n for n in NAMES if REGISTRY[n].adjoint is not None])
def test_adjoint_is_the_transposed_derivative(name, device):
    checked = 0
    for sample in itertools.islice((s for s in samples_of(name) if is_differentiable(REGISTRY[name], s)), 6):
        check_gradient(REGISTRY[name], sample, device)
        checked += 1
    assert checked or not any(d is dt.float64 for d in REGISTRY[name].elementwise or (dt.float64,))
