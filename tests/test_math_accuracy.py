"""Every scalar function against mpmath: at most 2 ULP in float32 and 4 in float64, at any argument."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from elementwise import compiled
from tilegrad import dtypes as dt
from tilegrad.op import REGISTRY
from tilegrad.ops import catalog

assert catalog.FAMILIES

LIMIT = {dt.float32: 2.0, dt.float64: 4.0}
UNSIGNED = {dt.float32: np.uint32, dt.float64: np.uint64}
COUNT = 150

#: what mpmath calls the functions; None: of another argument's inverse, see `inverse_error`
FUNCTIONS = {
    "exp": mp.exp, "exp2": lambda x: mp.mpf(2) ** x, "expm1": mp.expm1,
    "log": mp.log, "log2": lambda x: mp.log(x, 2), "log10": mp.log10, "log1p": mp.log1p,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "sqrt": mp.sqrt, "rsqrt": lambda x: 1 / mp.sqrt(x), "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "erf": mp.erf, "erfc": mp.erfc, "erfinv": None, "erfcinv": None,
    "degrees": mp.degrees, "radians": mp.radians,
}  # fmt: skip
TWO = {"pow": mp.power, "hypot": mp.hypot, "atan2": lambda y, x: mp.atan2(y, x)}

#: where a function is real and finite
DOMAIN = {
    "log": (0, math.inf), "log2": (0, math.inf), "log10": (0, math.inf), "log1p": (-1, math.inf),
    "sqrt": (0, math.inf), "rsqrt": (0, math.inf), "acosh": (1, math.inf), "atanh": (-1, 1), "asin": (-1, 1),
    "acos": (-1, 1), "erfinv": (-1, 1), "erfcinv": (0, 2),
}  # fmt: skip

#: where something happens: zeros, poles, thresholds of the algorithms, the hardest angles known
NEAR = [
    0.0, 0.25, 0.345, 0.35, 0.4142, 0.5, 0.625, 0.6667, 0.7071, 0.7854, 1.0, 1.3333, 1.4142, 1.5708, 2.0, 2.4142,
    3.1416, 4.0, 4.7124, 6.2832, 9.0, 10.0, 20.0, 26.5, 28.0, 87.3, 88.7, 103.9, 105.0, 1e3, 65536.0, 2.0**29,
    2.0**30, 1e10, 1e22, 1e38, 708.4, 709.78, 710.47, 745.1, 6381956970095103 * 2.0**797, 1e300, 1.7e308, 5e-324,
    2.2e-308, 1e-45, 1.2e-38, 1e-8, 1e-16, 1e-30, 16367173.0 * 2.0**72, 5.4e12,
]  # fmt: skip


def arguments(dtype, rng, low=-math.inf, high=math.inf):
    """Finite numbers of every exponent, of moderate size, beside whole numbers, and next to the special places."""
    bits = rng.integers(0, 2**dtype.bits, COUNT, dtype=UNSIGNED[dtype]).view(dtype.np)
    x = [bits, rng.uniform(-2, 2, COUNT), rng.normal(0, 30, COUNT), rng.integers(-60, 60, 30)]
    x.append(math.pi / 2 * np.round(10.0 ** rng.uniform(0, 15, 60)))
    if np.isfinite(high):
        x += [
            rng.uniform(low, high, COUNT),
            high - 10.0 ** -rng.uniform(0, 16, 60),
            low + 10.0 ** -rng.uniform(0, 40, 60),
        ]
    near = np.array(NEAR)
    x.append(np.concatenate([s * near * (1 + k * 2.0**-22) for s in (1, -1) for k in (-1, 0, 1)]))
    with np.errstate(all="ignore"):
        x = np.concatenate([a.astype(dtype.np) for a in x])
    with np.errstate(invalid="ignore"):
        return x[np.isfinite(x) & (x > low) & (x < high) & (x != 0)]


def ulp(exact, dtype):
    """The distance of neighbouring numbers at `exact`, an mpf."""
    info = np.finfo(dtype.np)
    smallest = int(math.log2(float(info.smallest_subnormal)))
    return (
        mp.mpf(2) ** max(int(mp.floor(mp.log(abs(exact), 2))) - info.nmant, smallest)
        if exact
        else mp.mpf(2) ** smallest
    )


def error(y, exact, dtype):
    """The distance from the exact value in ULP; 0 if `y` is that value rounded, an overflow included."""
    y = float(y)
    if math.isinf(y) and mp.sign(exact) == np.sign(y):
        largest = mp.mpf(float(np.finfo(dtype.np).max))
        return 0.0 if abs(exact) > largest else math.inf
    return math.inf if not math.isfinite(y) else float(abs(mp.mpf(y) - exact) / ulp(exact, dtype))


def inverse_error(name, x, y, dtype):
    """The error of erfinv or erfcinv, from the residual of the equation."""
    y = mp.mpf(float(y))
    x = mp.mpf(float(x))
    residual = mp.erf(y) - x if name == "erfinv" else x - mp.erfc(y)
    return float(abs(residual / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))) / ulp(y, dtype))


def worst(errors, *arguments):
    i = int(np.argmax(errors))
    return errors[i], "at " + ", ".join(repr(a[i]) for a in arguments)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name, dtype):
    rng = np.random.default_rng(len(name))
    x = arguments(dtype, rng, *DOMAIN.get(name, (-math.inf, math.inf)))
    if FUNCTIONS[name] is None:
        x = x[:: len(x) // 120]
    if name in ("sinh", "cosh", "exp", "exp2", "expm1"):
        x = x[abs(x) < 2000]
    if name == "erfc":
        x = x[x < 30]
    y = compiled(REGISTRY[name], (dtype,))(x)
    with mp.workprec(160):
        if FUNCTIONS[name] is None:
            errors = [inverse_error(name, a, b, dtype) for a, b in zip(x, y)]
        else:
            errors = [error(b, FUNCTIONS[name](mp.mpf(float(a))), dtype) for a, b in zip(x, y)]
    size, where = worst(errors, x)
    assert size <= LIMIT[dtype], where


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("name", TWO)
def test_accuracy_of_two_operands(name, dtype):
    rng = np.random.default_rng(len(name))
    x, y = arguments(dtype, rng), rng.permutation(arguments(dtype, rng))
    n = min(len(x), len(y))
    x, y = x[:n], y[:n]
    if name == "pow":
        near_one = (1 + rng.normal(0, 0.05, 300)).astype(dtype.np)
        large = rng.uniform(-700, 700, 300).astype(dtype.np)
        x, y = np.concatenate([abs(x), near_one]), np.concatenate([y, large])
        with mp.workprec(160):
            keep = [abs(mp.log(mp.mpf(float(a))) * mp.mpf(float(b))) < 2000 for a, b in zip(x, y)]
        x, y = x[keep], y[keep]
    z = compiled(REGISTRY[name], (dtype, dtype))(x, y)
    with mp.workprec(160):
        errors = [error(c, TWO[name](mp.mpf(float(a)), mp.mpf(float(b))), dtype) for a, b, c in zip(x, y, z)]
    size, where = worst(errors, x, y)
    assert size <= LIMIT[dtype], where


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("name", [*FUNCTIONS, *TWO, "mod", "floordiv", "fmod", "round", "frac", "sign", "copysign"])
def test_edges_and_bodies(name, dtype):
    """Infinities, NaN, zeros of both signs and subnormals, together: as NumPy in the body, but for the last bits."""
    op = REGISTRY[name]
    tiny = float(np.finfo(dtype.np).smallest_subnormal)
    edges = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, tiny, -tiny], dtype.np)
    operands = [a.ravel() for a in np.meshgrid(*[edges] * len(op.kinds))]
    with np.errstate(all="ignore"):
        want = np.asarray(op.body(*operands))
    got = compiled(op, (dtype,) * len(operands))(*operands)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(dtype.np).eps, atol=0)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("degrees", "radians")])
def test_vectors_and_scalars_give_the_same_bits(name, dtype):
    """Also where one element of a vector takes the slow path and the others do not."""
    rng = np.random.default_rng(3)
    x = arguments(dtype, rng)
    wide, narrow = (compiled(REGISTRY[name], (dtype,), width)(x) for width in (16, 1))
    np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_exact_results(dtype):
    low, high = (-149, 127) if dtype is dt.float32 else (-1074, 1023)
    powers = np.ldexp(1.0, np.arange(low, high + 1)).astype(dtype.np)
    exponents = np.arange(low, high + 1).astype(dtype.np)
    np.testing.assert_array_equal(compiled(REGISTRY["exp2"], (dtype,))(exponents), powers)
    np.testing.assert_array_equal(compiled(REGISTRY["log2"], (dtype,))(powers), exponents)
    tens = 10.0 ** np.arange(0, 11 if dtype is dt.float32 else 23)
    np.testing.assert_array_equal(compiled(REGISTRY["log10"], (dtype,))(tens.astype(dtype.np)), np.arange(len(tens)))
    cubes = np.arange(-50.0, 51.0)
    np.testing.assert_array_equal(compiled(REGISTRY["cbrt"], (dtype,))((cubes**3).astype(dtype.np)), cubes)
    whole = compiled(REGISTRY["pow"], (dtype, dtype))(np.repeat(cubes, 5).astype(dtype.np), np.tile(np.arange(5), 101))
    exact = np.repeat(cubes, 5) ** np.tile(np.arange(5), 101)
    np.testing.assert_allclose(whole, exact, rtol=2.0**-22 if dtype is dt.float32 else 2.0**-51)


def test_bodies_round_once():
    """A body computes in float64, so in 16 and 32 bits it is the exact value rounded."""
    x = np.linspace(0.1, 0.9, 50)
    for name in ("exp", "log", "sin", "erf", "erfinv", "tanh"):
        for d in (dt.float16, dt.bfloat16, dt.float32):
            a = x.astype(d.np)
            exact = np.asarray(REGISTRY[name].body(a.astype(np.float64)))
            np.testing.assert_array_equal(REGISTRY[name].body(a), exact.astype(d.np))
