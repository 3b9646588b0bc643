"""Derivatives of a single launch as a function: `vjp`, `grad` and `jvp`, without a tape in the user's hands.

Does not differentiate: a `Tape` records the launch and runs its adjoints, and `ad` makes tangent kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, overload

import numpy as np

from tilegrad import ad
from tilegrad.config import config
from tilegrad.diagnostics import LaunchError
from tilegrad.frontend.rules import GradientOf, differentiates, gradient_of
from tilegrad.ir import core
from tilegrad.kernel import Kernel, launch, launch_grid, launch_tiled
from tilegrad.runtime.arrays import Array, foreign
from tilegrad.tape import Tape
from tilegrad.tape.memory import Mirror, fields, is_float, require_host
from tilegrad.tape.records import copy_recorded, launch_recorded, note

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
        run(kernel, dim, inputs, outputs, block_dim=block_dim, device=device)

    def pullback(*cotangents: Any) -> tuple[np.ndarray[Any, Any] | None, ...]:
        if len(cotangents) != len(results):
            raise LaunchError(f"the launch has {len(results)} outputs, {len(cotangents)} cotangents were given")
        seeds = [(y, ct) for y, ct in zip(results, cotangents, strict=True) if ct is not None]
        found = iter(tape.vjp(seeds, [x for x in wanted if x is not None]))
        return tuple(None if x is None else next(found) for x in wanted)

    return pullback


@overload
def grad(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    output: Any,
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
) -> tuple[np.ndarray[Any, Any] | None, ...]: ...
@overload
def grad(kernel: Callable[..., Any], /, *, argnums: int | Sequence[int] | None = None) -> GradientOf: ...
@differentiates(with_value=False)
def grad(
    kernel: Any,
    dim: int | Sequence[int] = 1,
    inputs: Sequence[Any] = (),
    output: Any = None,
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
    argnums: int | Sequence[int] | None = None,
) -> Any:
    """The gradient of a launch on the host, or of a function inside a kernel.

    `grad(kernel, dim, inputs, output)` runs a launch whose `output` has one element, and returns the gradient of it
    with respect to every input. See `vjp` for the arguments, the results and the errors.

    `grad(f)` can be called in a kernel, with the arguments of `f`: a @func, a lambda or a builtin that takes numbers,
    vectors and tiles and returns a number. It gives the derivative with respect to each argument of floats, a tuple
    unless there is only one; `argnums=` (a position, or several) chooses others. Arrays are constants for it, and `f`
    must not change any. `grad(grad(f))` works, and so does differentiating a kernel that calls it, exactly.

    Raises: TypeMismatch while the kernel is compiled, if `f` returns no number or no argument is one of floats.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def norm(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=2)
        ...     tg.tile_store(y, tg.sqrt(tg.tile_sum(t * t)))
        >>> (g,) = tg.grad(norm, 1, [np.array([3, 4], np.float32)], np.zeros(1, np.float32))
        >>> g.astype(np.float64).round(3).tolist()
        [0.6, 0.8]
        >>> @tg.func
        ... def energy(r: float):
        ...     return r ** -12.0 - r ** -6.0
        >>> @tg.kernel
        ... def force(r: tg.array1d[float], f: tg.array1d[float]):
        ...     i = tg.tid()
        ...     f[i] = -tg.grad(energy)(r[i])
        >>> f = np.zeros(1, np.float32)
        >>> tg.launch(force, 1, inputs=[np.array([1], np.float32)], outputs=[f])
        >>> f.tolist()
        [6.0]
    """
    if not isinstance(kernel, Kernel):
        return gradient_of(kernel, argnums, with_value=False)
    if output is None:
        raise LaunchError("grad of a kernel needs its launch: grad(kernel, dim, inputs, output)")
    host = np.asarray(output.data if isinstance(output, Array) else output)
    if host.size != 1:
        raise LaunchError(
            f"grad: the output must have one element, it has {host.size}", help="use vjp and give it cotangents"
        )
    pullback = vjp(kernel, dim, inputs, [output], tiled=tiled, block_dim=block_dim, device=device)
    return pullback(np.ones_like(host))


@differentiates(with_value=True)
def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] | None = None) -> GradientOf:
    """The value and the gradient of a function, inside a kernel: `value, slope = value_and_grad(f)(x)`.

    See `grad` for the arguments and the gradient.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.func
        ... def f(x: float):
        ...     return x * x - 2.0
        >>> @tg.kernel
        ... def newton(y: tg.array1d[float]):
        ...     x = 1.0
        ...     for _ in range(5):
        ...         value, slope = tg.value_and_grad(f)(x)
        ...         x -= value / slope
        ...     y[0] = x
        >>> y = np.zeros(1, np.float32)
        >>> tg.launch(newton, 1, outputs=[y])
        >>> round(float(y[0]), 5)
        1.41421
    """
    return gradient_of(function, argnums, with_value=True)


def jvp(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    tangents: Sequence[Any],
    *,
    tiled: bool = True,
    block_dim: int | None = None,
    device: str | None = None,
) -> tuple[np.ndarray[Any, Any], ...]:
    """Run a launch and, in the same pass, its derivative along a direction (forward mode).

    Args:
        kernel, dim, inputs, outputs, tiled, block_dim, device: as for `vjp`.
        tangents: the direction: for each input an array of its shape, or None for zeros (and for numbers).

    Returns: one array per output: the Jacobian times the direction. Outputs that the kernel also reads start from a
        tangent of zero.
    Raises: GradientUndefined if an operation has no derivative, and whatever a launch raises.
    Gradient: recorded by active tapes like any launch, so that it can be differentiated in reverse.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def square(x: tg.array1d[float], y: tg.array1d[float]):
        ...     t = tg.tile_load(x, shape=3)
        ...     tg.tile_store(y, t * t)
        >>> x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
        >>> (rate,) = tg.jvp(square, 1, [x], [y], [np.array([1, 0, 1], np.float32)])
        >>> y.tolist(), rate.tolist()
        ([1.0, 4.0, 9.0], [2.0, 0.0, 6.0])
    """
    if len(tangents) != len(inputs):
        raise LaunchError(f"jvp: {len(inputs)} inputs need as many tangents, {len(tangents)} were given")
    args, grid = [*inputs, *outputs], launch_grid(kernel, dim)
    lanes = block_dim or config.block_dim
    found, natives, _ = kernel.specialise(args, grid, lanes, tiled)
    directions = [a if t is None else t for a, t in zip(args, [*tangents, *[None] * len(outputs)], strict=True)]
    _, rates, _ = kernel.specialise(directions, grid, lanes, tiled)
    given = [k < len(inputs) and tangents[k] is not None for k in found.owners]
    forward = _tangent_kernel(found.ir_for(natives))
    arrays = [a for a in natives if isinstance(a, np.ndarray) and is_float(a)]
    mirror = Mirror(arrays)
    for a, rate, known in zip(natives, rates, given, strict=True):
        if known and isinstance(a, np.ndarray) and is_float(a):
            if np.shape(rate) != a.shape:
                raise LaunchError(f"jvp: an array of shape {a.shape} has a tangent of shape {np.shape(rate)}")
            copy_recorded(mirror.view(a), rate)
    passed = [natives[i] for i in found.passed]
    note(args)
    twins = [mirror.view(a) for a, t in zip(passed, forward.tangent_params, strict=True) if t is not None]
    launch_recorded(forward.kernel, [*passed, *twins], grid, device or config.device)
    return tuple(_rate_of(mirror, y) for y in outputs)


def _rate_of(mirror: Mirror, y: Any) -> np.ndarray[Any, Any]:
    """A copy of the tangent of an output."""
    host = require_host(y)
    found = np.zeros(host.shape, host.dtype)
    for mine, part in zip(fields(host), fields(found), strict=True):
        if is_float(mine):
            copy_recorded(part, mirror.view(mine))
    return found


@cache
def _tangent_kernel(ir: core.Kernel) -> ad.Tangent:
    return ad.push_forward(ir)


def _viewed(x: Any) -> Array | None:
    """An array of floats as an Array on the same memory; None for everything else."""
    if isinstance(x, Array):
        return x if any(is_float(part) for part in fields(x.data)) else None
    data = x if isinstance(x, np.ndarray) else foreign(x)
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "fV":
        return None
    viewed = Array(data)
    return viewed if viewed.dtype.is_float else None
