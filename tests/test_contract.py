"""The contract of every registered op: its rules agree with its body, for every sample, on every device."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tilegrad import dtypes as dt
from tilegrad.op import REGISTRY, Sample
from tilegrad.ops import catalog
from tilegrad.testing import check_gradient, check_op, check_second_derivative, is_differentiable

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


@pytest.mark.parametrize("device", ["interpret", "cpu"])
@pytest.mark.parametrize("name", [n for n in NAMES if REGISTRY[n].adjoint is not None])
def test_the_adjoint_can_be_differentiated(name, device):
    for sample in itertools.islice((s for s in samples_of(name) if is_differentiable(REGISTRY[name], s)), 2):
        check_second_derivative(REGISTRY[name], sample, device)


SPECIAL = [n for n, d in sorted(REGISTRY.items()) if d.elementwise is not None and n not in ("astype", "where")]


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    for sample in special_samples(REGISTRY[name]):
        check_op(REGISTRY[name], sample)


def special_samples(definition):
    """Every pair of special values, for every dtype; further operands are equal to the first."""
    for d in definition.elementwise:
        grid = np.meshgrid(*(specials(d),) * min(len(definition.kinds), 2))
        x, *rest = (np.ravel(g) for g in grid)
        if d.is_int and rest:  # what raises has its own tests
            allowed = rest[0] >= 0 if definition.name == "pow" else rest[0] != 0 if "div" in definition.name else x == x
            allowed = rest[0] != 0 if definition.name == "mod" else allowed
            x, rest = x[allowed], [rest[0][allowed]]
        yield Sample((x, *rest, *[x] * (len(definition.kinds) - 1 - len(rest))))


def specials(d):
    if d.kind == "b":
        return np.array([False, True])
    if d.is_int:
        return np.array(sorted({d.min, d.min + 1, max(d.min, -1), 0, 1, 2, 3, 7, d.max - 1, d.max}), d.np)
    facts = ml_dtypes.finfo(d.np)
    values = [
        0.0,
        float(facts.smallest_subnormal),
        float(facts.tiny),
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        1e3,
        float(facts.max),
        np.inf,
    ]
    return np.array([*values, *(-x for x in values), np.nan], d.np)
