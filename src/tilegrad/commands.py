"""Other ways to launch than at once: the adjoint of a launch by itself, and a launch kept as a command.

Does not check arguments or compile: see `kernel` and `tape`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilegrad import ad, compiler
from tilegrad.config import config
from tilegrad.diagnostics import LaunchError
from tilegrad.ir import core
from tilegrad.tape.memory import Mirror, is_float
from tilegrad.tape.records import Launch, differentiate


def run_adjoint(ir: core.Kernel, args: Sequence[Any], grads: Sequence[Any], grid: tuple[int, ...], device: str) -> None:
    """Run the backward kernel of a launch: take the cotangents of what it writes, and add to those of what it reads.

    Args:
        args: NumPy arrays and numbers, one for each parameter of the IR; arrays hold what they held before the launch.
        grads: for each argument an array of cotangents of its shape, which is read and changed, or None.
    Raises:
        GradientUndefined: the derivative cannot be given exactly.
    """
    pairs = [(a, np.asarray(g)) for a, g in zip(args, grads, strict=True) if g is not None and is_float(a)]
    for a, g in pairs:
        if g.shape != a.shape or g.dtype != a.dtype:
            raise LaunchError(f"an array of {a.dtype} {a.shape} has an adjoint of {g.dtype} {g.shape}")
    wanted = tuple(
        g is not None and isinstance(a, np.ndarray) and is_float(a) for a, g in zip(args, grads, strict=True)
    )
    backward = differentiate(ir, wanted, config.saved_turns)
    mirror = Mirror([a for a, _ in pairs])
    for a, g in pairs:
        mirror.view(a)[...] = g
    launch = Launch(ir, tuple(args), grid, device, [], backward)
    kernel, values = launch.prepare(mirror)
    assert isinstance(backward, ad.Backward)
    compiler.execute(kernel, values, grid, device)
    for a, g in pairs:
        g[...] = mirror.view(a)


class Command:
    """A launch with its arguments, to be run as often as wanted; made by `launch(..., record_cmd=True)`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def add(x: tg.array1d[float], amount: float):
        ...     i = tg.tid()
        ...     x[i] += amount
        >>> x = np.zeros(2, np.float32)
        >>> command = tg.launch(add, dim=2, inputs=[x, 1.0], record_cmd=True)
        >>> command.launch()
        >>> command.set_param_by_name("amount", 10.0)
        >>> command.launch()
        >>> x.tolist()
        [11.0, 11.0]
    """

    def __init__(
        self, names: Sequence[str], dim: Any, args: Sequence[Any], run: Callable[[Any, list[Any]], Any]
    ) -> None:
        self.names = list(names)
        self.dim = dim
        self.args = list(args)
        self._run = run

    def launch(self) -> None:
        """Run it with its present arguments."""
        self._run(self.dim, self.args)

    def set_dim(self, dim: int | Sequence[int]) -> None:
        """Change the grid."""
        self.dim = dim

    def set_param_at_index(self, index: int, value: Any) -> None:
        """Change an argument, by the number of its parameter."""
        if not -len(self.args) <= index < len(self.args):
            raise LaunchError(f"the kernel has {len(self.args)} parameters, there is no number {index}")
        self.args[index] = value

    def set_param_by_name(self, name: str, value: Any) -> None:
        """Change an argument, by the name of its parameter."""
        if name not in self.names:
            raise LaunchError(f"the kernel has no parameter `{name}`", help=f"it has: {', '.join(self.names)}")
        self.args[self.names.index(name)] = value

    def set_params(self, values: Sequence[Any]) -> None:
        """Change all arguments."""
        if len(values) != len(self.args):
            raise LaunchError(f"the kernel has {len(self.args)} parameters, {len(values)} values are given")
        self.args = list(values)
