"""Finite differences that know their own error, and the verdict on a gradient.

Along a direction d the derivative of f at x is taken from f(x + h d) and f(x - h d) for h and h / 2, extrapolated to
h = 0 (Richardson 1911). Three things tell a kink from a wrong gradient: the two step sizes disagree; the slopes to the
left and to the right do not come together as h shrinks; the function is not finite beside the point. Then the verdict
is "not differentiable here" and no more.
Does not know what f is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilegrad.gradcheck.functions import Function, Rng
from tilegrad.gradcheck.widen import cells, copies
from tilegrad.tape.memory import Host

PRECISION = 2.0**-52
#: element-wise differences are taken of so many elements at once
FEW = 64
#: how often a direction is tried again without the elements at which the function has a kink
ROUNDS = 3

KINK = "the slopes to the left and to the right differ"
ROUGH = "the differences do not settle as the step shrinks"
EDGE = "the result is not finite beside this point"


@dataclass(frozen=True)
class Tolerance:
    """What is allowed: step sizes start at `eps` times the largest element (or 1)."""

    eps: float
    rtol: float
    atol: float


@dataclass(frozen=True)
class Slope:
    """The derivative along a direction: its value, how sure it is, and the gap between the one-sided ones."""

    value: float
    doubt: float
    noise: float
    gap: float
    half_gap: float


@dataclass(frozen=True)
class Judgement:
    """The derivative along a direction by differences and by the gradient; `kink` tells why they cannot be compared."""

    expected: float
    got: float
    error: float
    right: bool
    kink: str = ""


@dataclass(frozen=True)
class Element:
    """One element of an array (or with no index the whole of it), and what was found there."""

    argument: str
    index: tuple[int, ...] | None
    judgement: Judgement

    def __str__(self) -> str:
        return self.argument if self.index is None else f"{self.argument}[{', '.join(map(str, self.index))}]"


@dataclass
class Verdict:
    """What was found for one array: the largest relative error, elements at kinks, and the worst wrong element."""

    name: str
    max_error: float = 0.0
    kinks: list[Element] = field(default_factory=list)
    wrong: Element | None = None


class Comparison:
    """Holds the gradient of a function against its differences, argument by argument."""

    def __init__(self, function: Function, tolerance: Tolerance, directions: int, rng: Rng) -> None:
        self.function = function
        self.tolerance = tolerance
        self.directions = directions
        self.rng = rng
        self.gradients = function.gradients()
        self.start = function.value(function.point)

    def verdicts(self) -> list[Verdict]:
        """One for every array of floats, up to the first that is wrong."""
        found: list[Verdict] = []
        for k, g in enumerate(self.gradients):
            if g is not None and g.size and not self._is_repeated(k):
                found.append(self._argument(k))
                if found[-1].wrong is not None:
                    break
        return found

    def _is_repeated(self, k: int) -> bool:
        """Whether an earlier argument is the very same memory."""
        places = [(y.__array_interface__["data"][0], y.shape, y.strides) if isinstance(y, np.ndarray) else None
                  for y in self.function.point[: k + 1]]  # fmt: skip
        return places[k] in places[:k]

    def _argument(self, k: int) -> Verdict:
        verdict = Verdict(self.function.names[k])
        free = np.ones(cells(self.function.point[k]).shape, bool)
        passed = 0
        for _ in range(self.directions + ROUNDS):
            found = self._judge(k, self.rng.standard_normal(free.shape) * free)
            if found.right:
                verdict.max_error = max(verdict.max_error, found.error)
                passed += 1
                if passed == self.directions:
                    break
                continue
            elements = self._elements(k, free)
            wrong = [e for e in elements if not e.judgement.kink]
            if wrong or not (elements or found.kink):
                verdict.wrong = max(wrong, key=_amount, default=Element(verdict.name, None, found))
                break
            verdict.kinks += elements or [Element(verdict.name, None, found)]
            for e in elements:
                free[e.index] = False
            if not free.any():
                break
        return verdict

    def _elements(self, k: int, free: np.ndarray[Any, Any]) -> list[Element]:
        """Elements at which the gradient is not right: of all if there are few, else of those found by halving."""
        places = np.flatnonzero(free)
        while len(places) > FEW:
            halves = np.array_split(places, 2)
            amounts = [_miss(self._judge(k, self._direction(free, half))) for half in halves]
            places = halves[int(amounts[1] > amounts[0])]
        found = []
        for place in places:
            judgement = self._judge(k, self._direction(free, [place], 1.0))
            if not judgement.right:
                index = tuple(int(i) for i in np.unravel_index(place, free.shape))
                found.append(Element(self.function.names[k], index, judgement))
        return found

    def _direction(self, free: Host, places: Any, amount: float = 0.0) -> Host:
        """Zero but at some places, where it is random unless an amount is given."""
        direction = np.zeros(free.shape)
        direction.flat[places] = amount or self.rng.standard_normal(len(places))
        return direction

    def _judge(self, k: int, direction: Host) -> Judgement:
        """Compare along a direction, with smaller steps where larger ones do not agree."""
        gradient = self.gradients[k]
        assert gradient is not None
        with np.errstate(invalid="ignore"):
            terms = np.where(direction == 0, 0, cells(gradient) * direction)
        got, size = float(terms.sum()), float(np.abs(terms).sum())
        best: Slope | None = None
        step = self._largest_step(k, direction)
        for h in (step, step / 8, step / 64, step / 512):
            slope = self._slope(k, direction, h)
            if not math.isfinite(slope.value):
                continue
            miss = abs(slope.value - got)
            scale = max(size, abs(slope.value))
            if miss <= self.tolerance.atol + self.tolerance.rtol * scale + slope.noise:
                return Judgement(slope.value, got, miss / max(scale, 1.0), True)
            if best is None or slope.doubt + slope.noise < best.doubt + best.noise:
                best = slope
        if best is None:
            return Judgement(math.nan, got, math.nan, False, EDGE)
        miss = abs(best.value - got)
        return Judgement(best.value, got, miss / max(size, abs(best.value), 1.0), False, _kink(best, miss))

    def _largest_step(self, k: int, direction: Host) -> float:
        moved = np.abs(cells(self.function.point[k])[direction != 0])
        moved = moved[np.isfinite(moved)]
        return self.tolerance.eps * max(1.0, float(moved.max(initial=0.0)))

    def _slope(self, k: int, direction: Host, h: float) -> Slope:
        (p1, m1), (p2, m2) = ((self._at(k, direction, s), self._at(k, direction, -s)) for s in (h, h / 2))
        first, second = (p1 - m1) / (2 * h), (p2 - m2) / h
        here, magnitude = self.start
        gap, half_gap = abs(p1 + m1 - 2 * here) / h, abs(p2 + m2 - 2 * here) / (h / 2)
        noise = 16 * PRECISION * magnitude / h
        return Slope((4 * second - first) / 3, abs(second - first), noise, gap, half_gap)

    def _at(self, k: int, direction: Host, step: float) -> float:
        point = copies(self.function.point)
        cells(point[k])[...] += step * direction
        return self.function.value(point)[0]


def _miss(judgement: Judgement) -> float:
    amount = abs(judgement.expected - judgement.got)
    return 0.0 if judgement.right else amount if math.isfinite(amount) else math.inf


def _amount(element: Element) -> float:
    return _miss(element.judgement)


def _kink(slope: Slope, miss: float) -> str:
    """Why the differences are no derivative, or nothing if they are one."""
    if miss <= 4 * slope.doubt:
        return ROUGH
    apart = slope.half_gap > 0.75 * slope.gap and slope.gap > slope.noise
    if apart and (slope.gap > 0.5 * miss or not math.isfinite(miss)):
        return KINK
    return ""
