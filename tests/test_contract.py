"""The contract of every registered op: its rules agree with its body, for every sample, on every device."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.ad import differentiate
from tilegrad.op import REGISTRY, Sample
from tilegrad.ops import catalog
from tilegrad.testing import (
    check_gradient,
    check_low_precision_gradient,
    check_op,
    check_second_derivative,
    is_differentiable,
)

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
    if name == "once":
        with pytest.raises(tg.GradientUndefined, match="second derivatives of eig3, svd2 and svd3 are not known"):
            check_second_derivative(
                REGISTRY[name], next(s for s in samples_of(name) if is_differentiable(REGISTRY[name], s))
            )
        return
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


# --- ops that need a launch around them: lanes, blocks, control flow, printing ----------------------------------------

F1, I1 = tg.array1d[tg.float64], tg.array1d[tg.int32]


@tg.kernel
def places(x: F1, o: I1):  # thread_id, lane_count, tile_from_lanes, untile, spread
    i = tg.tid()
    t = tg.tile(i)
    tg.atomic_add(o, 0, 1)
    o[i + 1] = tg.untile(t) * 10 + tg.tile_sum(tg.tile(1))[0] + 100 * tg.tile_min(t)[0]


@tg.kernel
def lanes(x: F1, o: I1):  # lane_id
    b, lane = tg.tid()
    o[b * tg.block_dim() + lane] = lane


@tg.kernel
def blocks(x: tg.array2d[tg.float64], o: tg.array2d[tg.float64]):  # block_id, array_row, constant
    i, j = tg.tid()
    tg.tile_store(o[i], tg.tile_load(x[i], shape=2, offset=2 * j) * 3.0, offset=2 * j)


@tg.kernel
def loops(x: F1, o: F1):  # for, while, if, yield; stack, push and pop in its gradient
    t = tg.tile_load(x, shape=4)
    for i in range(o.shape[0] - 1):
        if i % 2 == 0:
            t = tg.sin(t)
        else:
            t = t * t
    k = 2
    while k > 0:
        t = t * 1.5
        k -= 1
    tg.tile_store(o, t)


@tg.kernel
def parts(x: tg.array[tg.vec2d], o: F1):  # array_component
    i = tg.tid()
    o[i] = x[i].x - x[i].y


@tg.func
def collatz(x: tg.float64):
    n = x * 0.0
    while x > 1.0:
        x = x * 0.5
        n += x
    return n


@tg.kernel
def maps(x: F1, o: F1):  # map
    tg.tile_store(o, tg.tile_map(collatz, tg.tile_load(x, shape=4)))


@tg.func
def clipped(x: tg.float64):
    return x * x


@tg.func_grad(clipped)
def adj_clipped(x: tg.float64, adj_ret: tg.float64):
    tg.adjoint[x] += tg.clamp(adj_ret, -1.0, 1.0)


@tg.func
def counted(o: F1):
    tg.atomic_add(o, 0, 1.0)
    return o[0]


@tg.func_replay(counted)
def replay_counted(o: F1):
    return o[0]


@tg.kernel
def rules(x: F1, o: F1):  # custom, replayed, stop_gradient, pullback
    o[1] = clipped(x[0]) + counted(o) * tg.stop_gradient(x[1]) + tg.grad(tg.sin)(x[2])


@tg.kernel
def prints(x: F1, o: F1):  # print
    print("sum", tg.tile_sum(tg.tile_load(x, shape=4))[0])


def ops_of(kernel, *args, **launch):
    return {op.name for op in kernel.ir(*args, **launch).body.walk()}


X = np.array([0.3, 5.0, 0.7, 9.0])


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_places_of_lanes(device):
    o = np.zeros(9, np.int32)
    tg.launch(places, dim=7, inputs=[X, o], block_dim=4, device=device)
    assert o.tolist() == [7, 4, 14, 24, 34, 443, 453, 463, 0]
    tg.launch_tiled(lanes, dim=2, inputs=[X, o], block_dim=4, device=device)
    assert o.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_blocks_and_rows(device):
    x = np.arange(12.0).reshape(3, 4)
    o = np.zeros((3, 4))
    tg.launch_tiled(blocks, dim=(3, 2), inputs=[x, o], device=device)
    assert (o == 3 * x).all()


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_control_flow_and_its_gradient(device):
    o = np.zeros(4)
    pullback = tg.vjp(loops, 1, [X], [o], device=device)
    np.testing.assert_allclose(o, 2.25 * np.sin(np.sin(X) ** 2))
    slope = 2.25 * np.cos(np.sin(X) ** 2) * 2 * np.sin(X) * np.cos(X)
    np.testing.assert_allclose(pullback(np.ones(4))[0], slope)


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_maps_and_their_gradient(device):
    o = np.zeros(4)
    pullback = tg.vjp(maps, 1, [X], [o], device=device)
    np.testing.assert_allclose(o, [0, 5 * 0.875, 0, 9 * 0.9375])
    np.testing.assert_allclose(pullback(np.ones(4))[0], [0, 0.875, 0, 0.9375])


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_printing(device, capfd):
    tg.launch_tiled(prints, dim=1, inputs=[X, X], device=device)
    assert capfd.readouterr().out == "sum 15.0\n"


def test_every_op_is_covered():
    args = (X, np.zeros(9, np.int32))
    covered = ops_of(places, *args, dim=7, tiled=False, block_dim=4) | ops_of(maps, X, X) | ops_of(prints, X, X)
    covered |= ops_of(blocks, np.zeros((3, 4)), np.zeros((3, 4)), dim=(3, 2)) | ops_of(loops, X, X)
    covered |= ops_of(lanes, *args, dim=2, block_dim=4) | ops_of(parts, np.zeros((4, 2)), X)
    covered |= ops_of(rules, X, X)
    backward = differentiate(loops.ir(X, X), (True, True)).kernel
    covered |= {op.name for op in backward.body.walk()}
    assert set(REGISTRY) <= covered | set(NAMES)


LOW = tuple(d for d in dt.FLOATS if d is not dt.float64)


@pytest.mark.parametrize("name", [n for n in NAMES if REGISTRY[n].adjoint is not None])
def test_adjoints_in_low_precision(name):
    """For the smaller floats the gradient is that of float64, up to rounding, and the devices agree."""
    for sample in itertools.islice((s for s in samples_of(name) if is_differentiable(REGISTRY[name], s)), 2):
        for d in LOW:
            check_low_precision_gradient(REGISTRY[name], sample, d)
