"""Operators, comparisons, casts and powers: compiled code, bodies and plain Python agree, at the ends of every type."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tilegrad as tg
from elementwise import compiled
from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelValueError, KernelZeroDivisionError, TypeMismatch
from tilegrad.op import REGISTRY
from tilegrad.ops import catalog
from tilegrad.ops.comparison import choose
from tilegrad.ops.power import pow_

assert catalog.FAMILIES

DEVICES = ["interpret", "cpu"]


def ends(d):
    """Numbers at the ends of a type, around zero, and ordinary ones."""
    if d.kind == "b":
        return np.array([False, True])
    if d.is_int:
        x = [d.min, d.min + 1, d.max, d.max - 1, 0, 1, 2, 3, 7, 100, d.max // 2]
        return np.array(x if d.kind == "u" else [*x, -1, -2, -3, -7, -100], d.np)
    info = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 3, -3, 0.1, 100, np.inf, -np.inf, np.nan])
    return info.astype(d.np)


def pairs(d):
    a = ends(d)
    return tuple(x.ravel() for x in np.meshgrid(a, a))


def same(got, want):
    assert got.dtype == want.dtype
    wide = [x.astype(np.float64) if dt.as_dtype(x.dtype).is_half else x for x in (got, want)]
    np.testing.assert_array_equal(*wide)


@pytest.mark.parametrize("width", [16, 1])
@pytest.mark.parametrize("name", sorted(n for n in REGISTRY if n in (
    "add", "sub", "mul", "neg", "abs", "sign", "floordiv", "mod", "minimum", "maximum", "step", "nonzero", "div",
    "chain", "eq", "ne", "lt", "le", "gt", "ge", "bit_and", "bit_or", "bit_xor", "invert", "lshift", "rshift",
    "floor", "ceil", "trunc", "rint", "round", "frac", "isfinite", "isinf", "isnan", "copysign", "fmod",
)))  # fmt: skip
def test_compiled_equals_body_at_the_ends_of_every_type(name, width):
    op = REGISTRY[name]
    for d in op.elementwise:
        operands = pairs(d) if len(op.kinds) == 2 else (ends(d),)
        if name in ("floordiv", "mod") and d.is_int:
            keep = operands[1] != 0
            operands = tuple(x[keep] for x in operands)
        with np.errstate(all="ignore"):
            want = np.asarray(op.body(*operands))
        got = compiled(op, (d,) * len(operands), width)(*operands)
        same(got, want)


def test_clamp_is_min_of_max():
    for d in dt.NUMERIC:
        x, low, high = (a.ravel() for a in np.meshgrid(*[ends(d)[:7]] * 3))
        want = REGISTRY["minimum"].body(REGISTRY["maximum"].body(x, low), high)
        same(compiled(REGISTRY["clamp"], (d,) * 3)(x, low, high), want)


@pytest.mark.parametrize("d", [dt.int8, dt.int32, dt.int64, dt.uint8, dt.uint64], ids=str)
def test_floor_division_is_pythons(d):
    x, y = pairs(d)
    x, y = x[y != 0], y[y != 0]
    q, r = (compiled(REGISTRY[n], (d, d))(x, y) for n in ("floordiv", "mod"))
    for a, b, got, rest in zip(x.tolist(), y.tolist(), q.tolist(), r.tolist()):
        if d.min <= a // b <= d.max:
            assert (got, rest) == divmod(a, b)


@pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
def test_float_remainder_is_exact_at_any_distance(d):
    rng = np.random.default_rng(0)
    n = 3000
    bits = rng.integers(0, 2**d.bits, (2, n), dtype=np.uint64).astype(f"u{d.size}").view(d.np)
    near = rng.uniform(-9, 9, (2, n)).astype(d.np)
    whole = rng.integers(-9, 10, (2, n)).astype(d.np)
    x, y = np.concatenate([bits, near, whole], axis=1)
    with np.errstate(all="ignore"):
        same(compiled(REGISTRY["fmod"], (d, d))(x, y), np.fmod(x, y))
        same(compiled(REGISTRY["mod"], (d, d))(x, y), np.remainder(x, y))
        same(compiled(REGISTRY["floordiv"], (d, d))(x, y), np.floor_divide(x, y))


def test_integer_division_by_zero_is_noticed():
    x = np.arange(20, dtype=np.int32)
    for name in ("floordiv", "mod"):
        with pytest.raises(ZeroDivisionError):
            compiled(REGISTRY[name], (dt.int32, dt.int32))(x, x - 7)
        with pytest.raises(KernelZeroDivisionError):
            REGISTRY[name](x, x - 7)


@pytest.mark.parametrize("d", dt.INTEGERS, ids=str)
def test_shifts_out_of_range(d):
    for x, n in itertools.product(ends(d).tolist(), [0, 1, d.bits - 1, d.bits, min(d.bits + 1, d.max), d.max]):
        a, b = np.full(16, x, d.np), np.full(16, n, d.np)
        left = np.array(x).astype(object) << n if n < d.bits else 0
        assert compiled(REGISTRY["lshift"], (d, d))(a, b)[0] == np.array(int(left) & (2**d.bits - 1), np.uint64).astype(
            d.np
        )
        assert compiled(REGISTRY["rshift"], (d, d))(a, b)[0] == int(x) >> n


@pytest.mark.parametrize("d", dt.INTEGERS, ids=str)
def test_integer_power_wraps(d):
    x, n = (a.ravel() for a in np.meshgrid(ends(d), np.arange(8, dtype=d.np)))
    want = [np.array(pow(int(a), int(b)) & (2**d.bits - 1), np.uint64).astype(d.np) for a, b in zip(x, n)]
    same(compiled(REGISTRY["pow"], (d, d))(x, n), np.array(want))
    if d.kind == "i":
        with pytest.raises(KernelValueError):
            REGISTRY["pow"](x, n - 1)


@pytest.mark.parametrize("target", dt.SCALARS, ids=str)
@pytest.mark.parametrize("source", dt.SCALARS, ids=str)
def test_casts(source, target):
    x = ends(source)
    if source.is_float:
        extra = [
            3e9,
            -3e9,
            1e20,
            -1e20,
            127.9,
            -128.9,
            255.9,
            65519.9,
            65520,
            1 + 2.0**-9,
            1 + 2.0**-9 + 2.0**-30,
            2.0**63,
        ]
        with np.errstate(all="ignore"):
            x = np.concatenate([x, np.array(extra).astype(source.np)])
    same(compiled(REGISTRY["astype"], (source,), dtype=target)(x), REGISTRY["astype"].body(x, dtype=target))


def test_casts_saturate_and_round_once():
    astype = REGISTRY["astype"]
    assert astype(np.array([3e9, -3e9, np.nan, -1.5, 1e300]), dtype=dt.int32).tolist() == [
        2**31 - 1,
        -(2**31),
        0,
        -1,
        2**31 - 1,
    ]
    assert astype(np.array([-1.0, 300.0]), dtype=dt.uint8).tolist() == [0, 255]
    assert astype(np.array([300, -1]), dtype=dt.uint8).tolist() == [44, 255]
    assert astype(np.array([np.nan, 0.0, 1e-300]), dtype=dt.bool_).tolist() == [True, False, True]
    tie_and_a_bit = np.array([1 + 2.0**-8 + 2.0**-40])  # through float32 it would become the tie, and then 1
    assert float(astype(tie_and_a_bit, dtype=dt.bfloat16)[0]) == 1 + 2.0**-7


def test_where_body_keeps_the_dtype():
    for d in dt.SCALARS:
        x, y = pairs(d)
        mask = np.arange(len(x)) % 3 == 0
        same(compiled(REGISTRY["where"], (dt.bool_, d, d))(mask, x, y), np.where(mask, x, y))
    assert choose(np.array([True, False]), np.float32([1, 2]), 0.0).dtype == np.float32


# --- gradients --------------------------------------------------------------------------------------------------------


def cotangents(op, *operands, ct=None):
    out = op(*operands)
    return op.adjoint(np.ones_like(out) if ct is None else ct, out, *operands)


def test_gradient_of_pow_at_zero_and_below():
    x, y = np.array([0.0, 0.0, 0.0, -2.0, 0.0]), np.array([0.0, 1.0, 2.0, 3.0, 0.5])
    dx, dy = cotangents(pow_, x, y)
    np.testing.assert_array_equal(dx, [0.0, 1.0, 0.0, 12.0, np.inf])
    np.testing.assert_array_equal(dy, [-np.inf, 0.0, 0.0, np.nan, 0.0])


def test_ties_and_missing_numbers_in_gradients_of_min_and_max():
    x, y = np.array([1.0, 1.0, np.nan, 2.0]), np.array([1.0, 2.0, 3.0, np.nan])
    for name, first in (("minimum", [1, 1, 0, 1]), ("maximum", [1, 0, 0, 1])):
        dx, dy = cotangents(REGISTRY[name], x, y)
        assert dx.tolist() == first
        assert dy.tolist() == [1 - a for a in first]


@pytest.mark.parametrize("name", sorted(n for n, d in REGISTRY.items() if d.elementwise and d.adjoint))
def test_a_zero_cotangent_stays_zero(name):
    """Whatever the operands are: infinities, NaN, zeros."""
    op = REGISTRY[name]
    if dt.float64 not in op.elementwise or name == "astype":
        return
    edges = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan])
    operands = [a.ravel() for a in np.meshgrid(*[edges] * len(op.kinds))]
    if name == "where":
        operands[0] = operands[0] > 0
    with np.errstate(all="ignore"):
        for ct in cotangents(op, *operands, ct=np.zeros(len(operands[0]))):
            assert ct is None or not np.any(ct)


# --- spelling ---------------------------------------------------------------------------------------------------------


@tg.kernel
def floats(a: tg.array1d[tg.float32], out: tg.array1d[tg.float32]):
    i = tg.tid()
    x = a[i]
    y = tg.max(x, 0.5, 1) + tg.min(x, 3) + tg.clamp(x, -1, 1.0) + tg.where(x > 0, 1, x) + abs(x)
    out[i] = y + x**1 + x**2 + x**3 + x**4 + x**-1 + 2.0**x + x // 0.75 + x % -0.75 + tg.sqrt(2)


@tg.kernel
def integers(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32], ratio: tg.array1d[tg.float32]):
    i = tg.tid()
    x = a[i]
    ratio[i] = x / 2
    y = x // 3 + x % 3 + x // -3 + x % -3 + x**0 + x**5 + x ** abs(x) + (x << 2) + (x >> 1)
    out[i] = y + tg.max(x, 2) + tg.where(x > 0, 1, 2) + tg.where(x, 10, 20) + (x & 6) + (x | 9) + (x ^ 3) + ~x


@pytest.mark.parametrize("device", DEVICES)
def test_spelled_operators_on_floats(device):
    x = np.linspace(-2.1, 2, 23).astype(np.float32)
    out = np.zeros_like(x)
    tg.launch(floats, dim=23, inputs=[x], outputs=[out], device=device)
    want = np.maximum(x, 1) + np.minimum(x, 3) + np.clip(x, -1, 1) + np.where(x > 0, 1, x) + abs(x)
    want = want + x + x**2 + x**3 + x**4 + 1 / x + np.exp2(x) + x // 0.75 + x % -0.75 + math.sqrt(2)
    np.testing.assert_allclose(out, want, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_spelled_operators_on_integers(device):
    x = np.arange(-7, 8).astype(np.int32)
    out, ratio = np.zeros_like(x), np.zeros(15, np.float32)
    tg.launch(integers, dim=15, inputs=[x], outputs=[out, ratio], device=device)
    want = x // 3 + x % 3 + x // -3 + x % -3 + 1 + x**5 + x ** abs(x) + (x << 2) + (x >> 1)
    want = want + np.maximum(x, 2) + np.where(x > 0, 1, 2) + np.where(x, 10, 20) + (x & 6) + (x | 9) + (x ^ 3) + ~x
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(ratio, x / np.float32(2))


@tg.kernel
def raised(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32]):
    i = tg.tid()
    out[i] = 2 ** a[i]


@tg.kernel
def counted(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32]):
    i = tg.tid()
    out[i] = (a[i] > 0) + (a[i] > 1)


@tg.kernel
def inverted(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32]):
    i = tg.tid()
    out[i] = a[i] ** -2


@tg.kernel
def halved(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32]):
    i = tg.tid()
    out[i] = tg.int32(a[i] / 2.0)


@tg.kernel
def mixed(a: tg.array1d[tg.int32], out: tg.array1d[tg.int32]):
    i = tg.tid()
    out[i] = tg.where(a[i] > 0, 1.5, a[i])


@pytest.mark.parametrize("device", DEVICES)
def test_a_negative_power_of_an_integer_is_raised_by_the_launch(device):
    with pytest.raises(KernelValueError, match="an integer to a negative power"):
        tg.launch(
            raised, dim=3, inputs=[np.array([1, 2, -1], np.int32)], outputs=[np.zeros(3, np.int32)], device=device
        )


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (counted, r"to compute with a bool write int32\(x\); for logic write & \| \^ ~"),
        (inverted, r"int32 to the negative power -2"),
        (halved, r"the literal 2.0 meets int32"),
        (mixed, r"where: the literal 1.5 meets int32"),
    ],
)
def test_mistakes_are_explained(kernel, message):
    with pytest.raises(TypeMismatch, match=message):
        tg.launch(kernel, dim=3, inputs=[np.zeros(3, np.int32)], outputs=[np.zeros(3, np.int32)])
