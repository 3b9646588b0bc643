"""Gradients of a single launch as a function: `vjp` and `grad`, without a tape in the user's hands.

Does not differentiate: a `Tape` records the launch and runs its adjoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilegrad.diagnostics import LaunchError
from tilegrad.kernel import Kernel, launch, launch_tiled
from tilegrad.runtime.arrays import Array, foreign
from tilegrad.tape import Tape
from tilegrad.tape.memory import fields, is_float

Pullback = Callable[..., tuple[np.ndarray[Any, Any] | None, ...]]


def vjp(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
) -> Pullback:
    """Run a launch, and return its vector-Jacobian product.

    Args:
        kernel: the kernel to run.
        dim: the grid: blocks if `tiled`, as in `launch_tiled`, else threads, as in `launch`.
        inputs: the first arguments: arrays (NumPy's or tilegrad's) and numbers.
        outputs: the arrays that the kernel writes, in the order of the remaining parameters.
        tiled, block_dim, device: as for the launches.

    Returns: `pullback(*cotangents)`, which takes one array per output, of its shape (or None for zeros), and returns
        one per input: the gradient of what it held before the launch, as a NumPy array, or None for what is not an
        array of floats. It may be called many times, and leaves every `.grad` alone.
    Raises: GradientUndefined if the derivative cannot be given exactly, and whatever a launch raises.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def square(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=3)
        ...     tg.tile_store(y, t * t)
        >>> x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
        >>> pullback = tg.vjp(square, 1, [x], [y])
        >>> pullback(np.ones(3, np.float32))[0].tolist()
        [2.0, 4.0, 6.0]
    """
    wanted = [_viewed(x) for x in inputs]
    results = [_viewed(y) for y in outputs]
    if any(y is None for y in results):
        raise LaunchError("vjp: every output must be an array of floats")
    run = launch_tiled if tiled else launch
    with Tape() as tape:
        for x in wanted:
            if x is not None:
                tape.watch(x)
        given = [x if w is None else w for x, w in zip(inputs, wanted, strict=True)]
        run(kernel, dim, given, results, block_dim=block_dim, device=device)

    def pullback(*cotangents: Any) -> tuple[np.ndarray[Any, Any] | None, ...]:
        if len(cotangents) != len(results):
            raise LaunchError(f"the launch has {len(results)} outputs, {len(cotangents)} cotangents were given")
        seeds = [(y, ct) for y, ct in zip(results, cotangents, strict=True) if ct is not None]
        found = iter(tape.vjp(seeds, [x for x in wanted if x is not None]))
        return tuple(None if x is None else next(found) for x in wanted)

    return pullback


def grad(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    output: Any,
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
) -> tuple[np.ndarray[Any, Any] | None, ...]:
    """Run a launch whose `output` has one element, and return the gradient of it with respect to every input.

    See `vjp` for the arguments, the results and the errors.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def norm(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=2)
        ...     tg.tile_store(y, tg.sqrt(tg.tile_sum(t * t)))
        >>> (g,) = tg.grad(norm, 1, [np.array([3, 4], np.float32)], np.zeros(1, np.float32))
        >>> g.astype(np.float64).round(3).tolist()
        [0.6, 0.8]
    """
    host = np.asarray(output.data if isinstance(output, Array) else output)
    if host.size != 1:
        raise LaunchError(
            f"grad: the output must have one element, it has {host.size}", help="use vjp and give it cotangents"
        )
    pullback = vjp(kernel, dim, inputs, [output], tiled=tiled, block_dim=block_dim, device=device)
    return pullback(np.ones_like(host))


def _viewed(x: Any) -> Array | None:
    """An array of floats as an Array on the same memory; None for everything else."""
    if isinstance(x, Array):
        return x if any(is_float(part) for part in fields(x.data)) else None
    data = x if isinstance(x, np.ndarray) else foreign(x)
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "fV":
        return None
    viewed = Array(data)
    return viewed if viewed.dtype.is_float else None
