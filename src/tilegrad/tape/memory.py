"""Where arrays lie in memory, and mirrors of it: the ground that the tape stands on.

Arrays overlap if their ranges of addresses do; that is exact for whole arrays and contiguous views, and on the safe
side for others. Does not know tapes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tilegrad.diagnostics import GradientUndefined, TypeMismatch
from tilegrad.runtime.arrays import foreign

SMALL = 64 * 1024
SAMPLE = 1024

Host = np.ndarray[Any, Any]
Span = tuple[int, int]


def host(x: Any) -> Host | None:
    """The NumPy array behind an argument of a launch, or None for a scalar."""
    found = foreign(x)
    return found if isinstance(found, np.ndarray) else None


def require_host(x: Any) -> Host:
    """The NumPy array behind `x`, which must be an array."""
    found = host(x)
    if found is None:
        raise TypeMismatch(f"expected an array, found {type(x).__name__}")
    return found


def span(a: Host) -> Span:
    """The addresses [first, last) that an array's elements lie in."""
    low, high = byte_bounds(a)
    return (low, high) if a.size else (low, low)


def overlap(a: Span, b: Span) -> bool:
    """Whether two ranges of addresses have a byte in common."""
    return a[0] < b[1] and b[0] < a[1]


def is_float(a: Host) -> bool:
    return bool(a.dtype.kind == "f" or a.dtype.name == "bfloat16")


def fields(a: Host) -> list[Host]:
    """The arrays of scalars that an array of structs consists of; any other array itself."""
    if not a.dtype.names:
        return [a]
    return [leaf for name in a.dtype.names for leaf in fields(a[name])]


def fingerprint(a: Host) -> bytes:
    """All bytes of a small array, those of a sample of a large one: enough to notice nearly every change."""
    if a.nbytes <= SMALL:
        return a.tobytes()
    picks = np.linspace(0, a.size - 1, SAMPLE).astype(np.int64)
    return bytes(a.flat[picks].tobytes())


def shares_memory(a: Host, b: Host) -> bool:
    """Whether two arrays have a byte in common; on the safe side where that is hard to say."""
    try:
        return bool(np.shares_memory(a, b, max_work=cast(Any, 1000)))
    except np.exceptions.TooHardError:
        return True


class Mirror:
    """Zeroed memory laid out like the memory of given arrays, made piece by piece when it is asked for."""

    def __init__(self, arrays: Iterable[Host]) -> None:
        self.pieces: list[Span] = []
        for low, high in sorted(span(a) for a in arrays):
            if self.pieces and low < self.pieces[-1][1]:
                self.pieces[-1] = self.pieces[-1][0], max(high, self.pieces[-1][1])
            elif high > low:
                self.pieces.append((low, high))
        #: the memory of a piece, and an array of each dtype that was asked for there
        self.buffers: dict[Span, tuple[Host, list[Host]]] = {}

    def _piece(self, a: Host) -> Span | None:
        mine = span(a)
        k = bisect_right(self.pieces, mine[0], key=lambda p: p[0]) - 1
        found = [p for p in self.pieces[max(k, 0) : k + 2] if overlap(p, mine)]
        return found[0] if found else None

    def covers(self, a: Host) -> bool:
        """Whether the array shares memory with those that the mirror was made for."""
        return self._piece(a) is not None

    def part(self, arrays: Iterable[Host]) -> Mirror:
        """A new mirror of the pieces that the arrays lie in."""
        made = Mirror(())
        made.pieces = sorted({p for a in arrays if (p := self._piece(a)) is not None})
        return made

    def has(self, a: Host) -> bool:
        """Whether any of the array's piece has been asked for, so that it may differ from zero."""
        piece = self._piece(a)
        return piece is not None and piece in self.buffers

    def view(self, a: Host) -> Host:
        """The array that lies in the mirror where `a` lies in memory."""
        piece = self._piece(a)
        if piece is None:
            return np.zeros(a.shape, a.dtype)
        if piece not in self.buffers:
            self.buffers[piece] = _aligned_zeros(piece[1] - piece[0]), [a]
        buffer, users = self.buffers[piece]
        if all(user.dtype != a.dtype for user in users):
            users.append(a)
        for user in users:
            if user.dtype != a.dtype and len(users) > 1 and shares_memory(user, a):
                raise GradientUndefined(f"no gradient: the same memory is used as {user.dtype} and as {a.dtype}")
        offset = a.__array_interface__["data"][0] - piece[0]
        return np.ndarray(a.shape, a.dtype, buffer=buffer, offset=offset, strides=a.strides)


def _aligned_zeros(size: int) -> Host:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size]
