"""Writes src/tilegrad/ops/coefficients.py: minimax polynomials for the scalar maths, by Remez exchange in mpmath.

    python tools/minimax.py            print the table and the size of every error
    python tools/minimax.py --write    write the module

Each polynomial is fitted in its own weight, then its coefficients are rounded to the dtype. The lowest ones of float32
are rounded one by one, and the rest fitted again, so that rounding them costs next to nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 50

#: how many of the lowest float32 coefficients are rounded one by one
REFITTED = 3

Function = Callable[[mp.mpf], mp.mpf]
#: an abscissa, the value wanted there, and its weight
Sample = tuple[mp.mpf, mp.mpf, mp.mpf]


@dataclass(frozen=True)
class Fit:
    """Approximate `function` on [low, high] by a polynomial; `weight` turns its error into the error that counts."""

    name: str
    meaning: str
    function: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degree32: int | None
    degree64: int | None


def remez(fit: Fit, fixed: list[mp.mpf], degree: int) -> list[mp.mpf]:
    """Coefficients len(fixed)..degree of the best polynomial whose lower ones are `fixed`.

    That is a polynomial q of lower degree: (function - fixed) / x**k ~ q in the weight weight * |x|**k.
    """
    k = len(fixed)
    terms = degree + 1 - k

    def sample(x: mp.mpf) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
        return x, (fit.function(x) - mp.polyval(fixed[::-1] or [0], x)) / x**k, fit.weight(x) * abs(x) ** k

    centre, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [
        sample(centre - half * mp.cos(mp.pi * (2 * i + mp.mpf("1.03")) / (2 * terms + 2))) for i in range(terms + 1)
    ]
    grid = [sample(centre - half * mp.cos(mp.pi * (i + mp.mpf("0.01")) / (24 * terms))) for i in range(24 * terms)]
    best: tuple[mp.mpf, list[mp.mpf]] | None = None
    for _ in range(12):
        rows = [[x**p * w for p in range(terms)] + [mp.mpf((-1) ** i)] for i, (x, _, w) in enumerate(points)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([g * w for _, g, w in points]))
        found = [solution[i] for i in range(terms)]
        errors = [(mp.mpf((g - mp.polyval(found[::-1], x)) * w), (x, g, w)) for x, g, w in grid]
        size = max(abs(v) for v, _ in errors)
        if best is None or size < best[0]:
            best = size, found
        exchanged = _extrema(errors, terms + 1)
        if exchanged is None or size < abs(solution[terms]) * mp.mpf("1.02"):
            break
        points = exchanged
    assert best is not None
    return best[1]


def _extrema(errors: list[tuple[mp.mpf, Sample]], count: int) -> list[Sample] | None:
    """The largest error in each run of one sign, cut to `count` runs around the largest; None if there are too few."""
    runs: list[tuple[mp.mpf, Sample]] = []
    for v, sample in errors:
        if runs and (runs[-1][0] > 0) == (v > 0):
            if abs(v) > abs(runs[-1][0]):
                runs[-1] = v, sample
        else:
            runs.append((v, sample))
    while len(runs) > count:
        runs.pop(0 if abs(runs[0][0]) < abs(runs[-1][0]) else -1)
    return [sample for _, sample in runs] if len(runs) == count else None


def rounded(fit: Fit, degree: int, bits: int) -> tuple[list[float], float]:
    """Coefficients as numbers of the dtype, and the weighted error they leave."""
    fixed: list[mp.mpf] = []
    found = remez(fit, fixed, degree)
    while len(fixed) < min(REFITTED, degree) and bits == 32:
        fixed.append(mp.mpf(float(np.float32(float(found[0])))))
        found = remez(fit, fixed, degree)
    fixed += [mp.mpf(float(np.float32(float(c))) if bits == 32 else float(c)) for c in found]
    xs = [fit.low + (fit.high - fit.low) * i / 2001 for i in range(2002)]
    error = max(abs((fit.function(x) - mp.polyval(fixed[::-1], x)) * fit.weight(x)) for x in xs)
    return [float(c) for c in fixed], float(error)


def series(function: Function, at_zero: list[mp.mpf], small: str = "1e-6") -> Function:
    """`function`, with the first terms of its series where the quotient in it would cancel."""

    def evaluate(x: mp.mpf) -> mp.mpf:
        if abs(x) < mp.mpf(small):
            return mp.polyval(at_zero[::-1], x)
        with mp.workdps(90):
            return function(x)

    return evaluate


def _odd_root(f: Function, z: mp.mpf) -> mp.mpf:
    x = mp.sqrt(z)
    return (f(x) - x) / (x * z)


def erfcx(x: mp.mpf) -> mp.mpf:
    with mp.workdps(60):
        return mp.erfc(x) * mp.exp(x * x)


def _tail_of_inverse(t: mp.mpf) -> mp.mpf:
    """erfcinv(c) / v where v = sqrt(-log c) = 2 * (1 + t) / (1 - t)."""
    v = INVERSE_MIDDLE * (1 + t) / (1 - t)
    target = -v * v
    y = v
    for _ in range(60):
        h = -y * y + mp.log(erfcx(y)) - target
        y += h * erfcx(y) * mp.sqrt(mp.pi) / 2
        if abs(h) < mp.mpf(10) ** -35:
            break
    return y / v


ERFC_MIDDLE = mp.mpf(4)
INVERSE_MIDDLE = mp.mpf(3)
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
QUARTER_PI = mp.pi / 4 * mp.mpf("1.0001")
LOG_LOW, LOG_HIGH = mp.sqrt(mp.mpf("0.5")) - 1, mp.sqrt(2) - 1
S2 = mp.mpf("0.02945")

FITS = (
    Fit("EXP", "(exp(r) - 1 - r) / r**2, |r| <= log(2)/2",
        series(lambda r: (mp.exp(r) - 1 - r) / r**2, [mp.mpf(1) / 2, mp.mpf(1) / 6, mp.mpf(1) / 24]),
        lambda r: abs(r), -HALF_LN2, HALF_LN2, 5, 9),
    Fit("EXP2", "(2**r - 1) / r, |r| <= 1/2",
        series(lambda r: (mp.mpf(2)**r - 1) / r, [mp.log(2), mp.log(2)**2 / 2, mp.log(2)**3 / 6]),
        lambda r: abs(r), mp.mpf("-0.5001"), mp.mpf("0.5001"), 5, 11),
    Fit("LOG", "(log(1 + f) - f + f**2/2) / f**3, f in [-1/3, 1/3]",
        series(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, [mp.mpf(1) / 3, mp.mpf(-1) / 4, mp.mpf(1) / 5]),
        lambda f: f * f, -mp.mpf(1) / 3, mp.mpf(1) / 3, 7, None),
    Fit("ATANH", "(atanh(s) - s) / s**3 * 2 as a function of s**2, |s| <= 0.1716",
        series(lambda z: 2 * _odd_root(mp.atanh, z), [mp.mpf(2) / 3, mp.mpf(2) / 5, mp.mpf(2) / 7]),
        lambda z: z, mp.mpf(0), S2, None, 6),
    Fit("ATANH_TAIL", "((atanh(s) - s) / s**3 * 2 - 2/3) / s**2 as a function of s**2",
        series(lambda z: (2 * _odd_root(mp.atanh, z) - mp.mpf(2) / 3) / z,
               [mp.mpf(2) / 5, mp.mpf(2) / 7, mp.mpf(2) / 9]),
        lambda z: z * z, mp.mpf(0), S2, 2, 6),
    Fit("SIN", "(sin(r) - r) / r**3 as a function of r**2, |r| <= pi/4",
        series(lambda z: _odd_root(mp.sin, z), [-mp.mpf(1) / 6, mp.mpf(1) / 120, -mp.mpf(1) / 5040]),
        lambda z: z, mp.mpf(0), QUARTER_PI**2, 3, 6),
    Fit("COS", "(cos(r) - 1 + r**2/2) / r**4 as a function of r**2, |r| <= pi/4",
        series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
               [mp.mpf(1) / 24, -mp.mpf(1) / 720, mp.mpf(1) / 40320]),
        lambda z: z * z, mp.mpf(0), QUARTER_PI**2, 2, 5),
    Fit("ATAN", "(atan(t) - t) / t**3 as a function of t**2, |t| <= tan(pi/8)",
        series(lambda z: _odd_root(mp.atan, z), [-mp.mpf(1) / 3, mp.mpf(1) / 5, -mp.mpf(1) / 7]),
        lambda z: z, mp.mpf(0), mp.mpf("0.1717"), 4, 10),
    Fit("ASIN", "(asin(x) - x) / x**3 as a function of x**2, |x| <= 1/2",
        series(lambda z: _odd_root(mp.asin, z), [mp.mpf(1) / 6, mp.mpf(3) / 40, mp.mpf(15) / 336]),
        lambda z: z, mp.mpf(0), mp.mpf("0.25"), 4, 11),
    Fit("TANH", "(tanh(x) - x) / x**3 as a function of x**2, |x| <= 0.625",
        series(lambda z: _odd_root(mp.tanh, z), [-mp.mpf(1) / 3, mp.mpf(2) / 15, -mp.mpf(17) / 315]),
        lambda z: z, mp.mpf(0), mp.mpf("0.625") ** 2, 4, None),
    Fit("ERF", "erf(x) / x - 1 as a function of x**2, |x| <= 1",
        series(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
               [2 / mp.sqrt(mp.pi) - 1, -2 / mp.sqrt(mp.pi) / 3, 1 / mp.sqrt(mp.pi) / 5]),
        lambda z: mp.mpf(1), mp.mpf(0), mp.mpf(1), 6, 15),
    Fit("ERFC_ROOT", "erfc(x) ** 0.25, x in [1, 4]",
        lambda x: mp.erfc(x) ** mp.mpf("0.25"), lambda x: 4 * mp.erfc(x) ** mp.mpf("0.75"),
        mp.mpf(1), mp.mpf(4), 8, None),
    Fit("ERFCX", "(1 + 2*x) * exp(x**2) * erfc(x) as a function of t = (x - 4) / (x + 4), x in [0.45, 28]",
        lambda t: (lambda x: (1 + 2 * x) * erfcx(x))(ERFC_MIDDLE * (1 + t) / (1 - t)), lambda t: mp.mpf(1),
        (mp.mpf("0.45") - ERFC_MIDDLE) / (mp.mpf("0.45") + ERFC_MIDDLE),
        (28 - ERFC_MIDDLE) / (28 + ERFC_MIDDLE), None, 21),
    Fit("ERFINV", "erfinv(x) / x as a function of x**2, |x| <= 1/2; a first guess",
        lambda z: mp.sqrt(mp.pi) / 2 if z == 0 else mp.erfinv(mp.sqrt(z)) / mp.sqrt(z), lambda z: mp.mpf(1),
        mp.mpf(0), mp.mpf("0.26"), None, 5),
    Fit("ERFINV_TAIL", "erfcinv(c) / v as a function of t = (v - 3) / (v + 3), v = sqrt(-log(c)) in [0.82, 28]",
        _tail_of_inverse, lambda t: mp.mpf(1), (mp.mpf("0.82") - INVERSE_MIDDLE) / (mp.mpf("0.82") + INVERSE_MIDDLE),
        (28 - INVERSE_MIDDLE) / (28 + INVERSE_MIDDLE), None, 11),
    Fit("CBRT", "cbrt(m), m in [1, 2]; a first guess",
        mp.cbrt, lambda m: mp.mpf(1), mp.mpf(1), mp.mpf(2), None, 6),
)  # fmt: skip


def two_over_pi(bits: int, pad: int, word: int) -> list[int]:
    """The first `bits` binary digits of 2/pi after `pad` zeros, as words."""
    with mp.workprec(bits + 100):
        digits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** bits))
    total = pad + bits
    return [(digits >> (total - word * (i + 1))) & ((1 << word) - 1) for i in range(total // word)]


HEADER = '''"""Numbers behind the scalar maths: minimax polynomials, lowest power first, and the digits of 2/pi.

Written by tools/minimax.py; change the fits there. The comment above each polynomial says what it approximates, and
the error that its use leaves, as a power of two.
"""

from __future__ import annotations

from tilegrad import dtypes as dt
from tilegrad.dtypes import DType

Table = dict[DType, tuple[float, ...]]
'''


def main() -> None:
    only = [a for a in sys.argv[1:] if not a.startswith("-")]
    lines = [HEADER]
    for fit in FITS:
        if only and fit.name not in only:
            continue
        entries, errors = [], []
        for bits, degree in ((32, fit.degree32), (64, fit.degree64)):
            if degree is None:
                continue
            coefficients, error = rounded(fit, degree, bits)
            errors.append(f"float{bits} 2**{mp.nstr(mp.log(error, 2), 3)}")
            rows = "".join(f"        {c!r},\n" for c in coefficients)
            entries.append(f"    dt.float{bits}: (\n{rows}    ),\n")
        print(fit.name, *errors, flush=True)
        lines.append(f"\n#: {fit.meaning}: {', '.join(errors)}\n{fit.name}: Table = {{\n{''.join(entries)}}}\n")
    for name, digits, pad, word in (("TWO_OVER_PI_32", 256, 32, 32), ("TWO_OVER_PI_64", 1280, 64, 64)):
        rows = "".join(f"    0x{w:0{word // 4}X},\n" for w in two_over_pi(digits, pad, word))
        lines.append(f"\n#: {pad} zeros and the binary digits of 2/pi, in words of {word} bits\n")
        lines.append(f"{name}: tuple[int, ...] = (\n{rows})\n")
    if "--write" in sys.argv:
        Path(__file__).parent.parent.joinpath("src/tilegrad/ops/coefficients.py").write_text("".join(lines))


if __name__ == "__main__":
    main()
