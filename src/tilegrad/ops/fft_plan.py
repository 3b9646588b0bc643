"""What a Fourier transform of one length needs to know: its passes, roots of unity, and the detour for large primes.

Numbers only, worked out in NumPy while a kernel is compiled. Does not emit code (see `fft_lines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Host = np.ndarray[Any, Any]

#: Elements that a pass would like to have side by side.
LANES = 16
#: The radices whose butterflies are written out.
WRITTEN = (8, 4, 2, 3, 5, 7, 11, 13)
#: Primes up to this one are summed directly; a length with a larger one takes the detour of Bluestein.
LARGEST_PRIME = 31
_PI = np.longdouble("3.14159265358979323846264338327950288")


@dataclass(frozen=True)
class Pass:
    """One pass of Stockham's transform: `groups` x `stride` butterflies of `radix` elements each.

    Element j of a butterfly (p, l) is read at (j*groups + p)*stride + l and written at (p*radix + j)*stride + l, and
    multiplied by exp(-2 pi i * p*j / (groups*radix)) in between.
    """

    radix: int
    groups: int
    stride: int


def prime_factors(n: int) -> list[int]:
    """The prime factors of n, smallest first."""
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1 if p == 2 else 2
        if p * p > n > 1:
            return [*found, n]
    return found


def radices(n: int) -> list[int]:
    """The radices of the passes for a length without large primes: their product is n."""
    primes = prime_factors(n)
    twos, odd = primes.count(2), [p for p in primes if p > 2]
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    return sorted([8] * ((twos - 2 * fours) // 3) + [4] * fours + [2] * (twos == 1) + odd, reverse=True)


def is_direct(n: int) -> bool:
    """Whether passes alone transform this length."""
    return max(prime_factors(n), default=1) <= LARGEST_PRIME


@lru_cache(maxsize=256)
def passes(n: int) -> tuple[Pass, ...]:
    """The passes for a length that `is_direct`; one of radix 1 for n = 1.

    The first pass works on neighbours along the transformed axis, so it is the largest that leaves enough of them.
    """
    order = radices(n) or [1]
    first = next((r for r in order if n // r >= LANES), order[0])
    order.remove(first)
    made, stride = [], 1
    for r in (first, *order):
        made.append(Pass(r, n // (stride * r), stride))
        stride *= r
    return tuple(made)


def roots(exponents: Any, n: int) -> tuple[Host, Host]:
    """cos and -sin of 2 pi k / n for every k, rounded once: exp(-2 pi i k / n)."""
    k = np.asarray(exponents, np.int64) % n
    quarter, rest = np.divmod(4 * k, n)
    mirrored = 2 * rest > n
    x = np.where(mirrored, n - rest, rest).astype(np.longdouble) * (_PI / (2 * n))
    near, far = np.cos(x), np.sin(x)
    c, s = np.where(mirrored, far, near), np.where(mirrored, near, far)
    cos = np.choose(quarter, [c, -s, -c, s]).astype(np.float64)
    sin = np.choose(quarter, [s, c, -s, -c]).astype(np.float64)
    return cos + 0.0, 0.0 - sin


def roots_minus_one(exponents: Any, n: int) -> tuple[Host, Host]:
    """exp(-2 pi i k / n) - 1, with the real part as accurate as the imaginary one."""
    x = np.asarray(exponents, np.int64).astype(np.longdouble) * (_PI / n)
    half = np.sin(x)
    return (-2 * half * half).astype(np.float64), (0 - np.sin(2 * x)).astype(np.float64)


@lru_cache(maxsize=256)
def detour_length(n: int) -> int:
    """The shortest convenient length for the convolution of Bluestein's transform of n elements."""
    least = 2 * n - 1
    power = 1 << (least - 1).bit_length()
    return min(m for f in (16, 9, 10, 12, 14, 15) if (m := _doubled(f, power)) >= least)


def _doubled(factor: int, power: int) -> int:
    """factor/16 of a power of two, rounded up."""
    return -(-factor * power // 16) if power < 16 else factor * (power // 16)


def squares(n: int) -> Host:
    """The exponents of the chirp exp(-pi i j^2 / n) (Bluestein 1970), as multiples of half a root."""
    return np.arange(n, dtype=np.int64) ** 2 % (2 * n)


def chirp_filter(n: int, m: int) -> tuple[Host, Host]:
    """The transform, of length m, of the conjugate chirp on both sides of 0, divided by m."""
    cos, sin = roots(squares(n), 2 * n)
    around = np.zeros(m, np.clongdouble)
    around[:n] = cos - 1j * sin
    around[m - n + 1 :] = around[n - 1 : 0 : -1]
    spectrum = np.fft.fft(around) / m
    return spectrum.real.astype(np.float64), spectrum.imag.astype(np.float64)
