"""Holds the gradient of a launch, as tapes give it, against finite differences in float64.

`gradcheck` is what users call (`tilegrad.testing.gradcheck`). Its rooms: `widen` makes a kernel and its arguments
float64, `functions` is the launch as a function of its arrays, `differences` compares, `suspects` looks for the op that
is to blame. Does not need pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad.config import config
from tilegrad.diagnostics import LaunchError, Loc, TilegradError
from tilegrad.gradcheck import suspects
from tilegrad.gradcheck.differences import Comparison, Element, Tolerance, Verdict
from tilegrad.gradcheck.functions import Differentiated, Function, Launched
from tilegrad.gradcheck.suspects import Suspect
from tilegrad.gradcheck.widen import wide_arguments, widen
from tilegrad.kernel import Kernel, launch_grid
from tilegrad.tape.records import refuse

__all__ = ["GradcheckError", "Report", "gradcheck"]


class GradcheckError(TilegradError, AssertionError):
    """A gradient differs from finite differences."""


@dataclass(frozen=True)
class Report:
    """What `gradcheck` has found: nothing wrong. `str` shows it."""

    kernel: str
    order: int
    verdicts: tuple[Verdict, ...]

    @property
    def max_errors(self) -> dict[str, float]:
        """For each argument the largest error found, relative to its gradient or to 1."""
        names = dict.fromkeys(v.name for v in self.verdicts)
        return {name: max(v.max_error for v in self.verdicts if v.name == name) for name in names}

    @property
    def max_error(self) -> float:
        return max(self.max_errors.values(), default=0.0)

    @property
    def kinks(self) -> tuple[Element, ...]:
        """The elements at which the launch is not differentiable, so that there is nothing to compare."""
        return tuple(e for v in self.verdicts for e in v.kinks)

    def __str__(self) -> str:
        which = "first and second derivatives" if self.order == 2 else "gradient"
        lines = [f"gradcheck of `{self.kernel}`: the {which} agree{'s' * (self.order == 1)} with differences"]
        lines += [f"  {name}: largest relative error {error:.1e}" for name, error in self.max_errors.items()]
        lines += [f"  not differentiable here: {e} ({e.judgement.kink})" for e in self.kinks]
        return "\n".join(lines)


def gradcheck(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
    order: int = 1,
    directions: int = 3,
    eps: float = 1e-4,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    seed: int = 0,
) -> Report:
    """Hold the gradient that a tape gives for a launch against finite differences, along random directions.

    The kernel is run in float64, whatever floats it computes in, so that the differences are sharp. It works on copies:
    the arguments, their `.grad`, and active tapes are left alone. Where the function has a kink (the launch is not
    differentiable), the report says so and no verdict is given there.

    Args:
        kernel, dim, inputs, outputs, tiled, block_dim, device: as for a launch. Arrays of floats are differentiated,
            vectors and structs included; outputs may also be read.
        order: 2 also checks the derivative of the gradient (a tape in a tape).
        directions: how many random directions are tried for each array.
        eps: the largest step, relative to the largest element or 1; smaller ones are tried where it does not do.
        rtol, atol: what is allowed, relative to the derivative and absolutely.
        seed: of the random numbers.

    Returns: a report with the largest error of every argument, and the places of kinks; `print` it.
    Raises: GradcheckError (an AssertionError) if a gradient is wrong: it names the argument, the worst element, and the
        first operation whose own adjoint is wrong; GradientUndefined if there is no gradient.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def square(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=3)
        ...     tg.tile_store(y, t * t)
        >>> x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
        >>> report = tg.testing.gradcheck(square, 1, [x], [y], order=2)
        >>> report.max_error < 1e-8
        True
    """
    if order not in (1, 2):
        raise LaunchError(f"gradcheck: order must be 1 or 2, it is {order!r}")
    rng, tolerance = np.random.default_rng(seed), Tolerance(eps, rtol, atol)
    launched = _launched(kernel, dim, [*inputs, *outputs], tiled, block_dim, device or config.device)
    launched.choose_cotangents(rng)
    if not launched.cotangents:
        raise LaunchError(f"gradcheck: `{kernel.name}` writes no array of floats, so there is no gradient")
    functions: list[tuple[str, Function]] = [("gradient", launched)]
    if order == 2:
        functions.append(("second derivative", Differentiated(launched, rng)))
    found: list[Verdict] = []
    for what, function in functions:
        verdicts = Comparison(function, tolerance, directions, rng).verdicts()
        wrong = verdicts[-1].wrong if verdicts else None
        if wrong is not None:
            raise _Blame(kernel, what, launched, function, tolerance, directions).error(wrong)
        found += verdicts
    return Report(kernel.name, order, tuple(found))


def _launched(
    kernel: Kernel, dim: Any, args: Sequence[Any], tiled: bool, block_dim: int | None, device: str
) -> Launched:
    """The launch in float64, on private copies."""
    grid = launch_grid(kernel, dim)
    found, natives, _ = kernel.specialise(args, grid, block_dim or config.block_dim, tiled)
    ir = found.ir_for(natives)
    if not kernel.enable_backward:
        raise refuse(ir)
    wide = widen(ir)
    point = wide_arguments([natives[i] for i in found.passed], wide)
    owners = [kernel.function.parameters[found.owners[i]].name for i in found.passed]
    names = [p.name or owner for p, owner in zip(wide.params, owners, strict=True)]
    return Launched(wide, point, grid, device, names)


#: derivatives that users decide: where they stand, and what to do
_DECIDED = {
    "custom": ("this function has a gradient of its own (func_grad)", "check the gradient that it was given"),
    "replayed": ("this function has a replay of its own (func_replay)", "check that it gives the same results"),
    "stop_gradient": ("the gradient is stopped here", "differences do not know stop_gradient"),
}


@dataclass
class _Blame:
    """Finds out what to say about a wrong gradient."""

    kernel: Kernel
    what: str
    launched: Launched
    function: Function
    tolerance: Tolerance
    directions: int

    def error(self, wrong: Element) -> GradcheckError:
        j = wrong.judgement
        message = (
            f"gradcheck: the {self.what} of `{self.kernel.name}` is wrong at {wrong}: "
            f"differences give {j.expected:.9g}, the {self.what} is {j.got:.9g}"
        )
        suspect = self._suspect()
        if suspect is not None:
            return _blame_op(message, suspect)
        loc, label, help = self._excuse()
        return GradcheckError(message, loc=loc or self.kernel.function.loc, label=label, help=help)

    def _suspect(self) -> Suspect | None:
        run = self.launched
        return suspects.find(run.kernel, run.point, run.grid, self.tolerance, np.random.default_rng(1))

    def _excuse(self) -> tuple[Loc | None, str, str]:
        """What to say when every op is right by itself."""
        if self.launched.device != "interpret" and self._is_right_in_the_interpreter():
            return None, "", "the interpreter gets it right, the compiled code does not: please report this"
        ops = {op.name: op for op in reversed(list(self.launched.kernel.body.walk()))}
        for name, (label, help) in _DECIDED.items():
            if name in ops:
                return ops[name].loc, label, f"every operation is right by itself: {help}"
        return None, "", "every operation's gradient is right by itself, but not together: please report this"

    def _is_right_in_the_interpreter(self) -> bool:
        run = self.launched
        other = Launched(run.kernel, run.point, run.grid, "interpret", run.names, run.cotangents)
        function: Function = other
        rng = np.random.default_rng(2)
        if isinstance(self.function, Differentiated):
            function = Differentiated(other, rng)
        verdicts = Comparison(function, self.tolerance, self.directions, rng).verdicts()
        return all(v.wrong is None for v in verdicts)


def _blame_op(message: str, suspect: Suspect) -> GradcheckError:
    j = suspect.element.judgement
    label = (
        f"the gradient of this `{suspect.op.name}` is wrong by itself, at {suspect.element}: "
        f"differences give {j.expected:.9g}, its adjoint {j.got:.9g}"
    )
    return GradcheckError(message, loc=suspect.loc, label=label)
