"""A launch as a function of its arrays, with its gradient as a tape gives it: what is held against differences.

`Launched` is the sum of what the launch leaves in its arrays, each element times a fixed cotangent; `Differentiated` is
the sum of the gradients of a `Launched`, each times a fixed weight, so that its gradient is the second derivative.
Everything happens on private copies of the arguments, and no tape of the user's is told.
Does not compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilegrad import compiler
from tilegrad.gradcheck.widen import cells, copies
from tilegrad.ir.core import Kernel
from tilegrad.tape import Tape
from tilegrad.tape.memory import Host, is_float
from tilegrad.tape.records import launch_recorded, unseen, written_params

Rng = np.random.Generator


class Function(Protocol):
    """A number that depends on arrays."""

    #: what it is a function of: arrays, and numbers that stay as they are
    point: list[Any]
    #: what users call each of these
    names: list[str]

    def value(self, point: Sequence[Any]) -> tuple[float, float]:
        """The number at a point, and the sum of the magnitudes of what it is a sum of."""

    def gradients(self) -> list[Host | None]:
        """The gradient with respect to every array of floats, at `point`."""


@dataclass
class Launched:
    """A launch of a kernel in float64."""

    kernel: Kernel
    point: list[Any]
    grid: tuple[int, ...]
    device: str
    names: list[str]
    cotangents: dict[int, Host] = field(default_factory=dict)

    def choose_cotangents(self, rng: Rng) -> None:
        """Random cotangents for what the launch writes; none where the result is not finite."""
        after = self.run(self.point)
        written = [k for k in written_params(self.kernel) if is_float(after[k])]
        self.cotangents = {k: rng.standard_normal(after[k].shape) * np.isfinite(after[k]) for k in written}

    def run(self, point: Sequence[Any]) -> list[Any]:
        """The arguments after a launch on copies of them."""
        after = copies(point)
        compiler.execute(self.kernel, after, self.grid, self.device)
        return after

    def value(self, point: Sequence[Any]) -> tuple[float, float]:
        after = self.run(point)
        terms = [np.where(ct == 0, 0, after[k]) * ct for k, ct in self.cotangents.items()]
        return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))

    def gradients(self) -> list[Host | None]:
        with unseen():
            return self.pull(copies(self.point), self.cotangents)

    def pull(self, args: Sequence[Any], cotangents: dict[int, Host]) -> list[Host | None]:
        """The gradients for these cotangents; tapes that are active see how they are computed."""
        floats = [k for k, a in enumerate(args) if isinstance(a, np.ndarray) and is_float(a)]
        with Tape() as tape:
            for k in floats:
                tape.watch(args[k])
            launch_recorded(self.kernel, args, self.grid, self.device)
        found = iter(tape.vjp([(args[k], ct) for k, ct in cotangents.items()], [args[k] for k in floats]))
        return [next(found) if k in floats else None for k in range(len(args))]


class Differentiated:
    """The gradients of a launch, as a function of its arrays and of the cotangents of its results."""

    def __init__(self, launched: Launched, rng: Rng) -> None:
        self.launched = launched
        self.count = len(launched.point)
        self.point = [*launched.point, *launched.cotangents.values()]
        self.names = [*launched.names, *(f"the cotangent of {launched.names[k]}" for k in launched.cotangents)]
        grads = launched.gradients()
        self.weights = [None if g is None else rng.standard_normal(g.shape) * np.isfinite(g) for g in grads]

    def _pull(self, point: Sequence[Any]) -> list[Host | None]:
        cts = dict(zip(self.launched.cotangents, point[self.count :], strict=True))
        return self.launched.pull(point[: self.count], cts)

    def value(self, point: Sequence[Any]) -> tuple[float, float]:
        with unseen():
            found = self._pull(copies(point))
        terms = [np.where(w == 0, 0, cells(g)) * cells(w)
                 for g, w in zip(found, self.weights, strict=True) if g is not None and w is not None]  # fmt: skip
        return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))

    def gradients(self) -> list[Host | None]:
        point = copies(self.point)
        floats = [k for k, a in enumerate(point) if isinstance(a, np.ndarray) and is_float(a)]
        with unseen():
            with Tape() as tape:
                for k in floats:
                    tape.watch(point[k])
                inner = self._pull(point)
            seeds = [(g, w) for g, w in zip(inner, self.weights, strict=True) if g is not None]
            found = iter(tape.vjp(seeds, [point[k] for k in floats]))
        return [next(found) if k in floats else None for k in range(len(point))]
