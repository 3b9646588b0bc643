"""Every instruction of the register emitter against NumPy or exact arithmetic, for all dtypes, vectors and scalars."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest

from elementwise import ElementwiseEmitter
from tilegrad import dtypes as dt
from tilegrad.codegen.registers import Target
from tilegrad.emit import Reg
from tilegrad.runtime import engine

WIDTHS = [1, 2, 16]
WIDE_FLOATS = [dt.float32, dt.float64]
COMPUTED = [*dt.INTEGERS, *WIDE_FLOATS]


def build(body, dtypes, width, uniform=(), target=None):
    """LLVM IR of `body` (e, *regs) -> {name: Reg} in a loop over arrays, and the dtypes of its results by name.

    Operands whose number is in `uniform` are the first element of their array, in a scalar register.
    """
    e = ElementwiseEmitter(target)
    e.width = width
    results = {}

    def load(k, d, i):
        at = e.element_offset(f"%x{k}", d, None if k in uniform else i, 0)
        return e.load_scalar(at, d, None, None) if width == 1 or k in uniform else e.load_vector(at, d, None, None)

    def turn(i):
        for n, (name, y) in enumerate(body(e, *(load(k, d, i) for k, d in enumerate(dtypes))).items()):
            results[name] = y.dtype
            at = e.element_offset(f"%y{n}", y.dtype, i, 0)
            (e.store_vector if width > 1 else e.store_scalar)(at, e.splat(y), None)
        return []

    e.loop(0, Reg("%n", dt.int64), width, [], turn)
    params = ["i64 %n", *(f"ptr %x{k}" for k in range(len(dtypes))), *(f"ptr %y{k}" for k in range(len(results)))]
    return e.f.module("f", params, e.target.attributes), results


def run(body, *arrays, width=16, uniform=(), target=None):
    """The results of `body` by name, as NumPy arrays."""
    dtypes = [dt.of_array(a) for a in arrays]
    text, results = build(body, dtypes, width, uniform, target)
    n = len(arrays[0])
    full = -(-n // width) * width
    xs = [np.ascontiguousarray(np.concatenate([a, np.repeat(a[-1:], full - n)])) for a in arrays]
    ys = [np.zeros(full, d.np) for d in results.values()]
    address = engine.compile_ir(text, "f")
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(xs + ys))(address)
    function(full, *(a.ctypes.data for a in xs + ys))
    return {name: y[:n] for name, y in zip(results, ys, strict=True)}


def bits(x):
    """Equal exactly when the numbers are the same, sign of zero included; all NaNs are one."""
    if x.dtype == bool or x.dtype.kind in "iu":
        return x
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = x.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide).view(np.int64) if wide.size else wide


def agree(got, want):
    """Compare dictionaries of arrays by bits, naming the instruction that differs."""
    assert got.keys() == want.keys()
    for name, y in want.items():
        assert got[name].dtype == y.dtype, name
        np.testing.assert_array_equal(bits(got[name]), bits(y), err_msg=name)


def numbers(d):
    """The ends of a type, special values, and ordinary numbers; an odd count, so that there is a tail."""
    if d.kind == "b":
        return np.array([True, False, True])
    if d.is_int:
        values = [0, 1, 2, 3, 7, 100, d.max, d.max - 1, d.max // 2, d.max // 3, d.min, d.min + 1]
        values += [] if d.kind == "u" else [-1, -2, -3, -7, -100]
        return np.array(values, d.np)
    values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.7, -3.2, 1e-3, 1e4, np.inf, -np.inf, np.nan]
    tiny = float(np.ldexp(1.0, {16: -24, 32: -149, 64: -1074}[d.bits])) if d is not dt.bfloat16 else 2.0**-133
    return np.array([*values, tiny, -tiny, 1 / 3], np.float64).astype(d.np)


def pairs(d):
    x, y = np.meshgrid(numbers(d), numbers(d))
    return x.ravel(), y.ravel()


# --- constants, conversions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_constants_are_exact(d, width):
    values = numbers(d).tolist()
    got = run(lambda e, x: {str(k): e.const(v, d) for k, v in enumerate(values)}, np.zeros(5, d.np), width=width)
    agree(got, {str(k): np.full(5, v, d.np) for k, v in enumerate(numbers(d))})


def test_constants_of_operators_fold():
    """A constant may stand wherever a register may."""

    def body(e, x):
        one, two, half = e.const(1, dt.int32), e.const(2, dt.int32), e.const(0.5, dt.float32)
        iota = e.cast(e.iota(dt.int32), dt.int32)
        return {
            "add": e.add(one, two), "shl": e.shl(one, two), "shl iota": e.shl(one, iota), "cast": e.cast(two, dt.int64),
            "compare": e.compare("lt", one, two), "bits": e.bitcast(half, dt.int32), "float": e.cast(two, dt.float32),
            "select": e.select(e.const(True, dt.bool_), one, two), "neg": e.neg(half), "splat": e.shr(x, e.splat(two)),
            "lookup": e.lookup((5, 6, 7), two, dt.int32), "half": e.cast(half, dt.float16),
            "brain": e.cast(half, dt.bfloat16), "any": e.any(e.const(True, dt.bool_)), "sqrt": e.sqrt(half),
            "not": e.not_(e.const(False, dt.bool_)), "mulhi": e.mulhi(e.const(2**31, dt.uint32), e.const(6, dt.uint32)),
            "int": e.cast(e.const(2.5, dt.float64), dt.int16),
        }  # fmt: skip

    for width in WIDTHS:
        got = run(body, np.full(width, 9, np.int32), width=width)
        want = {
            "add": 3, "shl": 4, "cast": 2, "compare": True, "bits": 0x3F000000, "float": 2.0, "select": 1, "neg": -0.5,
            "splat": 2, "lookup": 7, "half": 0.5, "brain": 0.5, "any": True, "sqrt": np.sqrt(np.float32(0.5)),
            "not": True, "mulhi": 3, "int": 2,
        }  # fmt: skip
        for name, value in want.items():
            assert (got[name] == value).all(), name
        assert got["shl iota"].tolist() == [1 << i for i in range(width)]


def rounded(value, d):
    """The number of a float type nearest to a fraction, ties to even, by exact arithmetic."""
    digits = {dt.float16: 11, dt.bfloat16: 8, dt.float32: 24, dt.float64: 53}[d]
    lowest = {dt.float16: -24, dt.bfloat16: -133, dt.float32: -149, dt.float64: -1074}[d]
    top = {dt.float16: 16, dt.bfloat16: 128, dt.float32: 128, dt.float64: 1024}[d]
    size = abs(value)
    if size == 0:
        return d.np.type(0.0)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** max(exponent - digits + 1, lowest)
    result = round(size / step) * step
    sign = -1.0 if value < 0 else 1.0
    return d.np.type(sign * (math.inf if result >= Fraction(2) ** top else float(result)))


def converted(x, d):
    """What `cast` promises for one number."""
    source = dt.of_array(x)
    if d.kind == "b":
        return np.bool_(x != 0)
    value = float(x) if source.is_float else int(x)
    if isinstance(value, float) and not math.isfinite(value):
        if d.is_float:
            return d.np.type(value)
        return d.np.type(0 if math.isnan(value) else d.max if value > 0 else d.min)
    if d is dt.bfloat16 and source.is_int and source.bits == 64:
        value = int(float(value))  # by way of float64, as in the body of `astype`
    if d.is_float:
        return d.np.type(-0.0) if value == 0 and math.copysign(1, value) < 0 else rounded(Fraction(value), d)
    if source.is_float:
        return d.np.type(min(max(math.trunc(value), d.min), d.max))
    return np.array(value & (2**d.bits - 1), np.uint64).astype(d.np)[()]


def between(d):
    """Numbers near the borders of other types: ends of their ranges, and halfway between their neighbours."""
    if d.kind == "b":
        return np.array([False, True])
    if d.is_int:
        step = [(1 << k) + a * (1 << s) + b for k in (30, 31, 62, 63) for s in (k - 8, k - 11, k - 24, k - 53)
                for a in (1, 3) if s >= 0 for b in (-1, 0, 1)]  # fmt: skip
        values = [
            v for v in [*step, *(-v for v in step), 2047, 2049, 4097, 65519, 65520, 257, 259] if d.min <= v <= d.max
        ]
        return np.array(values or [0], np.uint64 if d.kind == "u" else np.int64).astype(d.np)
    ends = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
    values = [s * (v + a) for v in ends for a in (-1, -0.5, -1 / 64, 0, 0.5) for s in (1, -1)]
    values += [(1 + 2.0**-k * a + t) * 2.0**q * s for k in (8, 9, 11, 12, 24, 25) for a in (1, 3)
               for t in (0, 2.0**-40, -(2.0**-40)) for q in (0, -16, -20, -24, -127, -133)
               for s in (1, -1)]  # fmt: skip
    values += [65504.0, 65519.999, 65520.0, 65535.0, 3.38953139e38, 3.3961775e38, 3.4e38, 3.5e38, 1e300, -1e300, 1e-300]
    with np.errstate(all="ignore"):
        return np.array(values).astype(d.np)


@pytest.mark.parametrize("has_f16c", [True, False], ids=["f16c", "no f16c"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_casts_round_once_saturate_and_wrap(d, width, has_f16c):
    x = np.concatenate([numbers(d), between(d)])
    target = Target(has_f16c=has_f16c)
    got = run(lambda e, r: {t.name: e.cast(r, t) for t in dt.SCALARS}, x, width=width, target=target)
    agree(got, {t.name: np.array([converted(v, t) for v in x], t.np) for t in dt.SCALARS})


@pytest.mark.parametrize("has_f16c", [True, False])
def test_every_half_number_survives(has_f16c):
    for d in (dt.float16, dt.bfloat16):
        x = np.arange(2**16, dtype=np.uint16).view(d.np)
        body = lambda e, r: {"wide": e.cast(r, dt.float32), "back": e.cast(e.cast(r, dt.float32), r.dtype)}
        with np.errstate(invalid="ignore"):
            wide = x.astype(np.float32)
        agree(run(body, x, target=Target(has_f16c=has_f16c)), {"wide": wide, "back": x})


@pytest.mark.parametrize("width", WIDTHS)
def test_bitcasts(width):
    for group in ("int32 uint32 float32", "int64 uint64 float64", "int16 uint16 float16 bfloat16", "int8 uint8"):
        types = [dt.BY_NAME[n] for n in group.split()]
        for d in types:
            x = numbers(d)
            got = run(lambda e, r: {t.name: e.bitcast(r, t) for t in types}, x, width=width)
            for t in types:
                assert got[t.name].tobytes() == x.tobytes()


# --- arithmetic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uniform", [(), (0,), (1,)], ids=["both", "x uniform", "y uniform"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", COMPUTED, ids=str)
def test_arithmetic(d, width, uniform):
    x, y = pairs(d)
    x, y = (np.full_like(a, numbers(d)[4]) if k in uniform else a for k, a in enumerate((x, y)))
    body = lambda e, a, b: {
        "add": e.add(a, b), "sub": e.sub(a, b), "mul": e.mul(a, b), "neg": e.neg(a), "abs": e.abs(a),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        want = {"add": x + y, "sub": x - y, "mul": x * y, "neg": -x, "abs": np.abs(x)}
    got = run(body, x, y, width=width, uniform=uniform)
    agree(got, want)


def quotient(x, y, d):
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return [np.array(v & (2**d.bits - 1), np.uint64).astype(d.np) for v in (q, x - q * y)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.INTEGERS, ids=str)
def test_integer_division_truncates(d, width):
    x, y = pairs(d)
    x, y = x[y != 0], y[y != 0]
    q, r = zip(*(quotient(int(a), int(b), d) for a, b in zip(x, y)))
    got = run(lambda e, a, b: {"div": e.div(a, b), "rem": e.rem(a, b)}, x, y, width=width)
    agree(got, {"div": np.array(q, d.np), "rem": np.array(r, d.np)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", WIDE_FLOATS, ids=str)
def test_float_division(d, width):
    x, y = pairs(d)
    with np.errstate(all="ignore"):
        want = {"div": x / y, "rem": np.fmod(x, y)}
    agree(run(lambda e, a, b: {"div": e.div(a, b), "rem": e.rem(a, b)}, x, y, width=width), want)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", WIDE_FLOATS, ids=str)
def test_fma_rounds_once(d, width):
    x, y = np.random.default_rng(0).uniform(1, 2, (2, 99)).astype(d.np)
    body = lambda e, a, b: {"error": e.fma(a, b, e.neg(e.mul(a, b))), "uniform": e.fma(a, b, e.const(1, d))}
    got = run(body, x, y, width=width)
    exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y)]
    error = [float(p - Fraction(float(a * b))) for p, a, b in zip(exact, x, y)]
    agree(got, {"error": np.array(error, d.np), "uniform": np.array([rounded(p + 1, d) for p in exact], d.np)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", [dt.bool_, *COMPUTED], ids=str)
def test_minimum_and_maximum_skip_nan_and_keep_the_first(d, width):
    x, y = pairs(d)
    missing = np.isnan(x) if d.is_float else np.zeros(len(x), bool)
    got = run(lambda e, a, b: {"min": e.minimum(a, b), "max": e.maximum(a, b)}, x, y, width=width)
    agree(got, {"min": np.where(missing | (y < x), y, x), "max": np.where(missing | (y > x), y, x)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", WIDE_FLOATS, ids=str)
def test_float_instructions(d, width):
    x, y = pairs(d)
    big = np.array([2.0**k + f for k in (22, 23, 24, 51, 52, 53) for f in (0, 0.5, 1.5)] + [0.49999997, 0.5, 8388607.5])
    x, y = (np.concatenate([a, big.astype(d.np), -big.astype(d.np)]) for a in (x, y))
    names = ("sqrt", "floor", "ceil", "trunc", "rint")

    def body(e, a, b):
        return {**{n: getattr(e, n)(a) for n in names}, "copysign": e.copysign(a, b), "abs": e.abs(a), "neg": e.neg(a)}

    with np.errstate(all="ignore"):
        want = {n: getattr(np, n)(x) for n in names} | {"copysign": np.copysign(x, y), "abs": np.abs(x), "neg": -x}
    agree(run(body, x, y, width=width), want)


# --- bits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", [dt.bool_, *dt.INTEGERS], ids=str)
def test_bits(d, width):
    x, y = pairs(d)
    body = lambda e, a, b: {"and": e.and_(a, b), "or": e.or_(a, b), "xor": e.xor(a, b), "not": e.not_(a)}
    agree(run(body, x, y, width=width), {"and": x & y, "or": x | y, "xor": x ^ y, "not": ~x})


@pytest.mark.parametrize("uniform", [(), (1,)], ids=["each", "uniform count"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.INTEGERS, ids=str)
def test_shifts_by_any_count(d, width, uniform):
    counts = [0, 1, d.bits - 1, d.bits, d.bits + 1, d.max] + ([-1, d.min] if d.kind == "i" else [])
    for some in [counts] if not uniform else [[c] for c in counts]:
        x, n = (a.ravel() for a in np.meshgrid(numbers(d), np.array(some, d.np)))
        out = [not 0 <= int(c) < d.bits for c in n]
        wrap = lambda v: np.array(v & (2**d.bits - 1), np.uint64).astype(d.np)
        left = [wrap(0 if o else int(a) << int(c)) for a, c, o in zip(x, n, out)]
        right = [wrap(int(a) >> (d.bits if o else int(c))) for a, c, o in zip(x, n, out)]
        fixed = [wrap(int(a) >> 3) for a in x]
        body = lambda e, a, c: {"shl": e.shl(a, c), "shr": e.shr(a, c), "by 3": e.shr(a, e.const(3, d))}
        got = run(body, x, n, width=width, uniform=uniform)
        agree(got, {"shl": np.array(left), "shr": np.array(right), "by 3": np.array(fixed)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", [d for d in dt.INTEGERS if d.kind == "u"], ids=str)
def test_mulhi(d, width):
    x, y = pairs(d)
    want = np.array([int(a) * int(b) >> d.bits for a, b in zip(x, y)], d.np)
    agree(run(lambda e, a, b: {"mulhi": e.mulhi(a, b)}, x, y, width=width), {"mulhi": want})


# --- choice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", [dt.bool_, *COMPUTED], ids=str)
def test_compare_and_select(d, width):
    x, y = pairs(d)
    symbols = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    order = {n: (lambda e, a, b, n=n: e.compare(n, a, b)) for n in symbols}

    def body(e, a, b):
        less = e.compare("lt", a, b)
        zero = e.zero(d)
        return {n: f(e, a, b) for n, f in order.items()} | {
            "select": e.select(less, a, b),
            "constant": e.select(less, a, zero),
            "fixed": e.select(e.const(False, dt.bool_), a, b),
        }

    want = {n: f(x, y) for n, f in symbols.items()}
    want |= {"select": np.where(x < y, x, y), "constant": np.where(x < y, x, d.np.type(0)), "fixed": y}
    agree(run(body, x, y, width=width), want)


@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_select_moves_any_dtype(d):
    x, y = pairs(d)
    c = np.arange(len(x)) % 3 == 0
    for width in WIDTHS:
        agree(run(lambda e, m, a, b: {"y": e.select(m, a, b)}, c, x, y, width=width), {"y": np.where(c, x, y)})
        first = run(lambda e, m, a, b: {"y": e.select(m, a, b)}, c, x, y, width=width, uniform=(0,))
        agree(first, {"y": x})


@pytest.mark.parametrize("width", [1, 2, 4, 16])
def test_any_all_and_first_lane(width):
    rng = np.random.default_rng(1)
    masks = [np.zeros(width, bool), np.ones(width, bool), *(rng.random((9, width)) < 0.3)]
    m = np.concatenate(masks)
    got = run(lambda e, r: {"any": e.any(r), "all": e.all(r)}, m, width=width)
    by_vector = m.reshape(-1, width)
    agree(got, {"any": np.repeat(by_vector.any(1), width), "all": np.repeat(by_vector.all(1), width)})
    if width > 1:
        some = by_vector[by_vector.any(1)]
        got = run(lambda e, r: {"first": e.first_lane(r)}, some.ravel(), width=width)
        agree(got, {"first": np.repeat(some.argmax(1), width)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_lookup(d, width):
    table = numbers(d)
    index = np.random.default_rng(2).integers(0, len(table), 40).astype(np.int32)
    got = run(lambda e, i: {"y": e.lookup(table.tolist(), i, d)}, index, width=width)
    agree(got, {"y": table[index]})


# --- vectors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 4, 16])
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_lanes_of_a_vector(d, width):
    x = np.resize(numbers(d), width)

    def body(e, r):
        low, high = e.halves(r)
        one = e.extract(r, e.const(1, dt.int64))
        last = [e.extract(h, e.const(max(0, width // 2 - 1), dt.int64)) for h in (low, high)]
        two = e.const(width - 1, dt.int64)
        return {"one": one, "low": last[0], "high": last[1], "insert": e.insert(r, one, two), "same": e.splat(r)}

    want = {"one": np.full_like(x, x[1]), "low": np.full_like(x, x[width // 2 - 1]), "high": np.full_like(x, x[-1])}
    want |= {"insert": np.concatenate([x[:-1], x[1:2]]), "same": x}
    agree(run(body, x, width=width), want)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", COMPUTED, ids=str)
def test_sum_of_lanes(d, width):
    x = np.arange(3 * width).astype(d.np)
    want = np.repeat(x.reshape(-1, width).sum(1, dtype=d.np), width)
    agree(run(lambda e, r: {"sum": e.sum_lanes(r)}, x, width=width), {"sum": want})


def test_counting_vectors():
    for width in WIDTHS:
        body = lambda e, x: {"iota": e.iota(dt.int32), "wide": e.iota(dt.int64), "three": e.first_lanes(3)}
        n = np.arange(width)
        got = run(body, np.zeros(width, np.int8), width=width)
        agree(got, {"iota": n.astype(np.int32), "wide": n, "three": n < 3})


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_masked_memory_touches_nothing_else(d, width):
    """Under a mask that is false everywhere even a null pointer is not read or written."""
    n = 3 * width
    x, m = np.resize(numbers(d), n), np.resize([True, False, True, True, False], n)

    def body(e, r, mask):
        fill = e.const(d.max if d.kind != "f" else 1.0, d)
        none = e.splat(e.const(False, dt.bool_))
        load = e.load_vector if width > 1 else e.load_scalar
        store = e.store_vector if width > 1 else e.store_scalar
        cell = e.alloca(width * 8)
        store(cell, e.splat(fill), None)
        store(cell, r, mask)
        store("null", r, none)
        return {
            "stored": load(cell, d, None, None),
            "loaded": load(cell, d, mask, fill),
            "none": load("null", d, none, fill),
        }

    fill = d.np.type(d.max if d.kind != "f" else 1.0)
    kept = np.where(m, x, fill)
    agree(run(body, x, m, width=width), {"stored": kept, "loaded": kept, "none": np.full(n, fill)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_gather_and_scatter(d, width):
    table = numbers(d)
    rng = np.random.default_rng(3)
    at, m = rng.integers(0, len(table), 48), rng.random(48) < 0.6

    def body(e, i, mask):
        cells = e.alloca(len(table) * 8)
        for k, v in enumerate(table.tolist()):
            e.store_scalar(e.element_offset(cells, d, None, k), e.const(v, d), None)
        offsets = e.mul(i, e.const(d.size, dt.int64))
        got = {
            "all": e.gather_bytes(cells, offsets, d, None, e.zero(d)),
            "some": e.gather_bytes(cells, offsets, d, mask, e.zero(d)),
        }
        e.scatter_bytes(cells, offsets, e.splat(e.zero(d)), mask)
        return got | {"after": e.gather_bytes(cells, offsets, d, None, e.zero(d))}

    zero = d.np.type(0)
    after = []
    for i, on in zip(at.reshape(-1, width), m.reshape(-1, width)):
        cells = table.copy()
        cells[i[on]] = zero
        after.append(cells[i])
    want = {"all": table[at], "some": np.where(m, table[at], zero), "after": np.concatenate(after)}
    agree(run(body, at, m, width=width), want)


def test_scatter_lets_the_highest_lane_win():
    def body(e, x):
        cell = e.alloca(8)
        e.scatter_bytes(cell, e.splat(e.zero(dt.int64)), x, None)
        return {"y": e.load_scalar(cell, dt.int64, None, None)}

    x = np.arange(32)
    agree(run(body, x), {"y": np.repeat([15, 31], 16)})


# --- structure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_loops_and_branches_carry_registers(width):
    """Collatz steps of each first element, sums over a nested loop, and a branch that picks registers of any width."""

    def body(e, x):
        def turn(i, total):
            inner = lambda j, t: [e.add(t, e.mul(e.cast(i, dt.int32), e.cast(j, dt.int32)))]
            return [e.add(e.loop(0, i, 2, [total], inner)[0], x)]

        total = e.loop(1, 6, 1, [e.splat(e.zero(dt.int32))], lambda i, t: [e.splat(r) for r in turn(i, t)])[0]
        big = e.any(e.compare("gt", x, e.const(20, dt.int32)))
        picked = e.branch(big, lambda: [e.neg(x), e.const(1.0, dt.float64)], lambda: [x, e.const(2.0, dt.float64)])
        first = e.extract(x, e.const(0, dt.int64))
        steps = e.while_loop(
            [first, e.zero(dt.int32)],
            lambda n, c: e.compare("gt", n, e.const(1, dt.int32)),
            lambda n, c: [
                e.branch(
                    e.compare("eq", e.and_(n, e.const(1, dt.int32)), e.zero(dt.int32)),
                    lambda: [e.shr(n, e.const(1, dt.int32))],
                    lambda: [e.add(e.mul(n, e.const(3, dt.int32)), e.const(1, dt.int32))],
                )[0],
                e.add(c, e.const(1, dt.int32)),
            ],
        )[1]
        return {"total": total, "picked": picked[0], "float": picked[1], "steps": steps}

    x = np.arange(1, 33, dtype=np.int32)
    blocks = x.reshape(-1, width)
    nested = sum(i * j for i in range(1, 6) for j in range(0, i, 2))
    big = np.repeat((blocks > 20).any(1), width)
    steps = np.repeat([collatz(int(b[0])) for b in blocks], width).astype(np.int32)
    want = {
        "total": (nested + 5 * x).astype(np.int32),
        "picked": np.where(big, -x, x),
        "float": np.where(big, 1.0, 2.0),
    }
    agree(run(body, x, width=width), want | {"steps": steps})


def collatz(n):
    return 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)


# --- what comes out of it -------------------------------------------------------------------------------------------


def test_a_polynomial_is_one_fma_for_each_term():
    if not engine.host_features().get("avx512f"):
        pytest.skip("looks for AVX-512 instructions")

    def body(e, x):
        y = e.const(1 / 7, dt.float32)
        for k in range(1, 7):
            y = e.fma(y, x, e.const(1.0 / k, dt.float32))
        return {"y": y}

    text, _ = build(body, [dt.float32], 16)
    code = engine.assembly(text)
    assert sum("vfmadd" in line and "zmm" in line for line in code.splitlines()) == 6
    assert "call" not in code


@pytest.mark.parametrize("d", dt.SCALARS, ids=str)
def test_conversions_never_call(d):
    text, _ = build(lambda e, r: {t.name: e.cast(r, t) for t in dt.SCALARS}, [d], 16)
    assert "call" not in engine.assembly(text)


def test_without_f16c_half_floats_are_made_of_integers():
    body = lambda e, r: {t.name: e.cast(e.cast(r, dt.float16), t) for t in (dt.float16, dt.float32, dt.float64)}
    for width in WIDTHS:
        text, _ = build(body, [dt.float64], width, target=Target(has_f16c=False))
        assert not any("half" in line and ("fptrunc" in line or "fpext" in line) for line in text.splitlines())
