"""What a user of tilegrad touches: @kernel, @func, launch and launch_tiled, and the array annotations.

A `Kernel` keeps one `Specialisation` for each combination of argument types, launch form and captured values. A
launch checks its arguments, finds or makes the specialisation, tells the active tapes, and runs it. The path of a
repeated launch does no more than compare.
Does not trace, compile or differentiate.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from tilegrad import arguments, commands, compiler, tape
from tilegrad import dtypes as dt
from tilegrad.commands import Command
from tilegrad.config import config
from tilegrad.diagnostics import LaunchError, TilegradError, TypeMismatch
from tilegrad.element_types import StructType
from tilegrad.frontend import call, signature
from tilegrad.frontend.call import (
    block_dim,
    cdiv,
    constant,
    copy,
    printf,
    static,
    tid,
    tile_map,
)
from tilegrad.frontend.function import Capture, Function
from tilegrad.frontend.signature import ArgumentType, ArrayAnnotation
from tilegrad.frontend.visit import trace
from tilegrad.ir import core
from tilegrad.ir.types import ArrayType, ScalarType, Type
from tilegrad.runtime import arrays
from tilegrad.tape.memory import shares_memory

__all__ = [
    "Kernel", "Specialisation", "array", "array1d", "array2d", "array3d", "array4d", "block_dim", "cdiv",
    "constant", "copy", "func", "get_module_options", "kernel", "set_module_options", "struct", "launch",
    "launch_tiled", "printf", "static", "synchronize", "tid", "tile_map",
]  # fmt: skip


copy.host = arrays.copy


#: the largest extent of a grid whose indices are int32; of a larger one tid() gives int64
_INT_MAX = 2**31 - 1


class Specialisation:
    """A kernel for one combination of argument types, launch form and captured values."""

    def __init__(
        self,
        owner: Kernel,
        ir: core.Kernel,
        types: Sequence[Type | None],
        captures: Sequence[Capture],
        owners: Sequence[int] | None = None,
    ) -> None:
        self.kernel = owner
        self.ir = ir
        self.types = tuple(types)
        #: the parameter of the kernel that each type comes from, if arguments were taken apart
        self.owners = tuple(owners) if owners is not None else tuple(range(len(self.types)))
        self.captures = tuple(captures)
        #: positions among the arguments: of the arrays that are written, of numbers with their type, of what is passed
        self.passed = tuple(i for i, t in enumerate(types) if t is not None)
        self.written = tuple(self.passed[v.index] for v in _written(ir))
        self.numbers = tuple((i, t.dtype) for i, t in enumerate(types) if isinstance(t, ScalarType))
        whole = [i for i, t in enumerate(types) if isinstance(t, ArrayType)]
        self.pairs = tuple((i, j) for i in self.written for j in whole if i != j and not (j in self.written and j < i))
        self._overlapping: dict[tuple[int, ...], core.Kernel] = {}
        plain = [c for c in captures if isinstance(c.holder, dict) and not isinstance(c.value, tuple)]
        self._fast = tuple((c.holder.get, c.name, c.value) for c in plain)
        self._slow = tuple(c for c in captures if c not in plain)

    def holds(self) -> bool:
        """Whether everything that was read from outside of the kernel is still the same."""
        for get, name, value in self._fast:
            if get(name) is not value:
                return all(c.holds() for c in self.captures)
        return not self._slow or all(c.holds() for c in self._slow)

    def ir_for(self, args: Sequence[Any]) -> core.Kernel:
        """The IR for these arguments: a variant of its own where arrays share memory."""
        for i, j in self.pairs:
            if np.may_share_memory(args[i], args[j]) and shares_memory(args[i], args[j]):
                return self._with_overlaps(args)
        return self.ir

    def _with_overlaps(self, args: Sequence[Any]) -> core.Kernel:
        classes = list(range(len(args)))
        for i, j in self.pairs:
            if shares_memory(args[i], args[j]):
                old, new = classes[j], classes[i]
                classes = [new if c == old else c for c in classes]
        key = tuple(classes[i] for i in self.passed)
        if key not in self._overlapping:
            self._overlapping[key] = dataclasses.replace(self.ir, overlaps=key)
        return self._overlapping[key]


def _written(ir: core.Kernel) -> list[core.Value]:
    """The array parameters that a kernel writes."""
    found: dict[core.Value, None] = {}
    for op in ir.body.walk():
        if op.definition.effect in ("write", "atomic") and op.operands:
            value = op.operands[0]
            while value.op is not None:
                value = value.op.operands[0]
            found.setdefault(value)
    return list(found)


class Kernel(call.Kernel):
    """A function that is launched over a grid; made by @kernel."""

    def __init__(self, python: Callable[..., Any], *, name: str = "", enable_backward: bool | None = None) -> None:
        self.function = Function(python, name)
        self._enable_backward = enable_backward
        functools.update_wrapper(self, python)
        self._specialisations: dict[Any, list[Specialisation]] = {}

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def enable_backward(self) -> bool:
        """Whether launches have gradients: what the kernel says, else its module's options, else the configuration."""
        if self._enable_backward is not None:
            return self._enable_backward
        chosen = _module_options.get(self.function.python.__module__, {}).get("enable_backward")
        return config.enable_backward if chosen is None else bool(chosen)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise LaunchError(
            f"the kernel `{self.name}` is called like a function", loc=self.function.loc,
            help=f"write tg.launch({self.name}, dim=..., inputs=[...]) or tg.launch_tiled(...)",
        )  # fmt: skip

    def ir(
        self, *args: Any, dim: int | Sequence[int] = 1, tiled: bool = True, block_dim: int | None = None
    ) -> core.Kernel:
        """The Tile IR for these arguments, as `launch_tiled` (or `launch`, with tiled=False) would run it."""
        grid = launch_grid(self, dim)
        found, natives, _ = self.specialise(args, grid, block_dim or config.block_dim, tiled)
        return found.ir_for(natives)

    @functools.cached_property
    def annotations(self) -> tuple[signature.Annotation, ...]:
        return tuple(signature.parse_of_kernel(self.function, p) for p in self.function.parameters)

    @functools.cached_property
    def _takes_composites(self) -> bool:
        return any(map(arguments.is_composite, self.annotations))

    def specialise(
        self, args: Sequence[Any], grid: tuple[int, ...], block_dim: int, tiled: bool
    ) -> tuple[Specialisation, list[Any], Sequence[Any]]:
        """The specialisation; the arguments as NumPy arrays and numbers; the arguments taken apart."""
        if self._takes_composites:
            return self._specialise_apart(args, grid, block_dim, tiled)
        natives: list[Any] = []
        key: list[Any] = [len(grid), max(grid) > _INT_MAX, block_dim, tiled, config.debug]
        for a in args:
            if isinstance(a, np.ndarray):
                native: Any = a
            elif arguments.is_apart(a):
                native = _native(a)
            else:
                return self._specialise_apart(args, grid, block_dim, tiled)
            natives.append(native)
            if isinstance(native, np.ndarray):
                rank = native.ndim
                dense = rank > 0 and (native.strides[-1] == native.itemsize or native.shape[-1] <= 1)
                key.append((native.dtype, rank, dense))
            elif isinstance(native, int):
                key.append((type(native), -(2**31) <= native < 2**31))
            else:
                key.append(type(native))
        whole = tuple(key)
        for found in self._specialisations.get(whole, ()):
            if found.holds():
                break
        else:
            found = self._new_specialisation(whole, self.argument_types(natives), grid, block_dim, tiled)
        for i, dtype in found.numbers:
            natives[i] = self._number(i, dtype, natives[i])
        return found, natives, args

    def _specialise_apart(
        self, args: Sequence[Any], grid: tuple[int, ...], block_dim: int, tiled: bool
    ) -> tuple[Specialisation, list[Any], Sequence[Any]]:
        """`specialise` for arguments of which some are composite, or arrays of composites."""
        if len(args) != len(self.function.parameters):
            self._wrong_count(len(args))
        taking = arguments.Taking(self.function)
        triples = zip(range(len(args)), self.annotations, args, strict=True)
        types = [taking.take(k, annotation, a, self._argument_type) for k, annotation, a in triples]
        natives = [a.data if isinstance(a, arrays.Array) else a for a in taking.flat]
        key = (len(grid), max(grid) > _INT_MAX, block_dim, tiled, config.debug, *map(arguments.shape_of, types))
        for found in self._specialisations.get(key, ()):
            if found.holds():
                break
        else:
            found = self._new_specialisation(key, types, grid, block_dim, tiled, taking.owners)
        for i, dtype in found.numbers:
            natives[i] = self._number(found.owners[i], dtype, natives[i])
        return found, natives, taking.flat

    def _new_specialisation(
        self,
        key: Any,
        types: Sequence[ArgumentType],
        grid: tuple[int, ...],
        block_dim: int,
        tiled: bool,
        owners: Sequence[int] | None = None,
    ) -> Specialisation:
        try:
            wide = max(grid) > _INT_MAX
            traced = trace(self.function, types, block_dim=block_dim, grid_ndim=len(grid), tiled=tiled, wide=wide)
        except TilegradError as error:
            raise error.with_traceback(None) from None  # the frames of the tracer tell a user nothing
        flat: Sequence[Any] = types if owners is None else arguments.flat_types(types)
        found = Specialisation(self, traced.kernel, flat, traced.captures, owners)
        kept = [s for s in self._specialisations.get(key, ()) if s.holds()]
        self._specialisations[key] = [*kept, found]
        return found

    def argument_types(self, natives: Sequence[Any]) -> list[Type | None]:
        """The IR types of the arguments, each checked against its declaration."""
        parameters = self.function.parameters
        if len(natives) != len(parameters):
            self._wrong_count(len(natives))
        found = zip(parameters, self.annotations, natives, strict=True)
        return [self._argument_type(p, annotation, a) for p, annotation, a in found]

    def _argument_type(self, p: Any, annotation: signature.Annotation, a: Any) -> Type | None:
        if isinstance(a, np.ndarray):
            dtype = dt.as_dtype(a.dtype)
            if dtype is None or a.ndim == 0:
                signature.wrong_array(self.function, p, annotation, a)
            kind = signature.array_type(dtype, a.ndim, a.itemsize, a.shape, a.strides)
            signature.check_array(self.function, p, annotation, kind)
            return kind
        if a is None and (annotation is None or (isinstance(annotation, ArrayAnnotation) and annotation.optional)):
            return None
        if isinstance(a, (bool, int, float, np.generic)):
            return signature.number_type(self.function, p, annotation, a)
        signature.wrong_argument(self.function, p, annotation, a)

    def _number(self, i: int, dtype: dt.DType, value: Any) -> Any:
        try:
            return dtype.np.type(value)
        except OverflowError:
            p = self.function.parameters[i]
            raise LaunchError(
                f"{self.name}: argument `{p.name}` must be {dtype}, {value} does not fit into it",
                loc=signature.parameter_loc(self.function, p), help=f"declare `{p.name}: tg.int64`",
            ) from None  # fmt: skip

    def _wrong_count(self, given: int) -> None:
        names = [p.name for p in self.function.parameters]
        if given < len(names):
            missing = ", ".join(f"`{n}`" for n in names[given:])
            problem = f"{missing} {'is' if given == len(names) - 1 else 'are'} missing"
        else:
            problem = f"{given - len(names)} too many"
        raise LaunchError(
            f"{self.name} takes {len(names)} argument{'s' * (len(names) != 1)}, {given} "
            f"{'was' if given == 1 else 'were'} given: {problem}",
            loc=self.function.loc, help=f"give inputs and outputs in the order of the parameters: {', '.join(names)}",
        )  # fmt: skip


def _native(a: Any) -> Any:
    """An argument as a NumPy array (without a copy) or a number; anything else unchanged."""
    if isinstance(a, (int, float, np.generic)) or a is None:
        return a
    if isinstance(a, arrays.Array):
        return a.data
    return arrays.foreign(a)


# --- decorators -----------------------------------------------------------------------------------------------------


@overload
def kernel(python: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *,
    name: str = "",
    enable_backward: bool | None = None,
    module: Any = None,
    module_options: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    python: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    enable_backward: bool | None = None,
    module: Any = None,
    module_options: Mapping[str, Any] | None = None,
) -> Any:
    """Make a function a kernel: `@kernel` or `@kernel(enable_backward=False)`.

    Args:
        name: Name in messages and of the compiled code; the function's own by default.
        enable_backward: Whether launches have gradients. Without, a tape saves nothing for them, and asking for a
            gradient through them is an error. By default what `set_module_options` has said, or the configuration.
        module: Accepted for Warp's spelling; has no meaning here.
        module_options: Options for this kernel alone; see `set_module_options`.
    """
    if enable_backward is None and module_options is not None:
        enable_backward = module_options.get("enable_backward")
    if python is None:
        return lambda f: Kernel(f, name=name, enable_backward=enable_backward)
    return Kernel(python, name=name, enable_backward=enable_backward)


#: the options of Python modules, by their names
_module_options: dict[str, dict[str, Any]] = {}


def set_module_options(options: Mapping[str, Any], module: Any = None) -> None:
    """Set options for the kernels of a Python module, by default the one that calls.

    Args:
        options: `enable_backward` (a bool) says whether launches have gradients, for kernels that do not say so
            themselves. Warp's other options are accepted; they have no meaning here.
        module: a module, or its name.
    """
    _module_options.setdefault(_module_name(module), {}).update(options)


def get_module_options(module: Any = None) -> dict[str, Any]:
    """The options of a Python module, by default the one that calls; see `set_module_options`."""
    return {"enable_backward": config.enable_backward} | _module_options.get(_module_name(module), {})


def _module_name(module: Any) -> str:
    if module is None:
        return str(sys._getframe(2).f_globals.get("__name__", ""))
    return module if isinstance(module, str) else str(module.__name__)


@overload
def func(python: Callable[..., Any], /) -> Function: ...
@overload
def func(*, name: str = "", module: Any = None) -> Callable[[Callable[..., Any]], Function]: ...
def func(python: Callable[..., Any] | None = None, /, *, name: str = "", module: Any = None) -> Any:
    """Make a function callable from kernels; it is inlined where it is called. Outside, it runs as plain Python.

    Example:
        >>> import tilegrad as tg
        >>> @tg.func
        ... def cube(x: float):
        ...     return x * x * x
        >>> cube(3.0)
        27.0
    """
    return Function(python, name) if python is not None else lambda f: Function(f, name)


def struct(cls: type) -> StructType:
    """Make a class with annotations a struct: `@struct`.

    A member is a scalar, a vector or the like, another struct, or (if values of the struct are only passed to kernels,
    not put into arrays or tiles) an array. In kernels a struct is a value, as a number is: `a = b` copies it.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.struct
        ... class Particle:
        ...     mass: float
        ...     velocity: tg.vec3
        >>> @tg.kernel
        ... def energy(particles: tg.array[Particle], out: tg.array[float]):
        ...     i = tg.tid()
        ...     p = particles[i]
        ...     out[i] = 0.5 * p.mass * (p.velocity @ p.velocity)
        >>> particles = tg.array([Particle(mass=2.0, velocity=tg.vec3(1, 2, 2))])
        >>> out = np.zeros(1, np.float32)
        >>> tg.launch(energy, dim=1, inputs=[particles], outputs=[out])
        >>> out.tolist()
        [9.0]
    """
    return StructType(cls.__name__, signature.members(cls), cls.__doc__)


# --- launching ------------------------------------------------------------------------------------------------------


def launch(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    *,
    adj_inputs: Sequence[Any] = (),
    adj_outputs: Sequence[Any] = (),
    device: str | None = None,
    stream: Any = None,
    adjoint: bool = False,
    record_tape: bool = True,
    record_cmd: bool = False,
    max_blocks: int = 0,
    block_dim: int | None = None,
) -> Any:
    """Run a kernel once for each point of a grid of threads.

    Args:
        dim: Number of threads along each of 1 to 4 axes. If one does not fit into int32, tid() gives int64.
        inputs, outputs: The arguments, in the order of the parameters; outputs are simply the last ones.
        device: "cpu" or "interpret"; `config.device` by default.
        block_dim: Threads of a block; `config.block_dim` by default.
        record_tape: Whether active tapes record the launch.
        adjoint: Run the adjoint of the launch instead: cotangents of what the kernel writes are taken, and those of
            what it reads are added to. They are `adj_inputs` and `adj_outputs`, one for each argument; where one is
            None or missing, the `.grad` of the argument.
        record_cmd: Do not run it, but return a `Command` that does.
        stream, max_blocks: Accepted for Warp's spelling; they have no meaning on the CPU.
    Raises:
        LaunchError: an argument or the grid does not fit the kernel.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def double(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[i] = 2.0 * x[i]
        >>> x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
        >>> tg.launch(double, dim=3, inputs=[x], outputs=[y])
        >>> y.tolist()
        [0.0, 2.0, 4.0]
    """
    if adjoint or record_cmd:
        adjoints = (adj_inputs, adj_outputs) if adjoint else None
        return _otherwise(kernel, dim, inputs, outputs, device, block_dim, record_tape, False, adjoints, record_cmd)
    _run(kernel, dim, inputs, outputs, device, block_dim, record_tape, False)
    return None


def launch_tiled(
    kernel: Kernel,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    *,
    block_dim: int | None = None,
    adj_inputs: Sequence[Any] = (),
    adj_outputs: Sequence[Any] = (),
    device: str | None = None,
    stream: Any = None,
    adjoint: bool = False,
    record_tape: bool = True,
    record_cmd: bool = False,
    max_blocks: int = 0,
) -> Any:
    """Run a kernel once for each point of a grid of blocks; see `launch` for the arguments.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def double(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()  # the block
        ...     tg.tile_store(y, tg.tile_load(x, shape=2, offset=2 * i) * 2.0, offset=2 * i)
        >>> x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
        >>> tg.launch_tiled(double, dim=2, inputs=[x], outputs=[y])
        >>> y.tolist()
        [0.0, 2.0, 4.0]
    """
    if dim is None:
        raise LaunchError("launch_tiled needs dim=, the number of blocks along each axis")
    if adjoint or record_cmd:
        adjoints = (adj_inputs, adj_outputs) if adjoint else None
        return _otherwise(kernel, dim, inputs, outputs, device, block_dim, record_tape, True, adjoints, record_cmd)
    _run(kernel, dim, inputs, outputs, device, block_dim, record_tape, True)
    return None


def _otherwise(
    kernel: Kernel,
    dim: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    device: str | None,
    block_dim: int | None,
    record_tape: bool,
    tiled: bool,
    adjoints: tuple[Sequence[Any], Sequence[Any]] | None,
    command: bool,
) -> Command | None:
    """The adjoint of a launch, or a command for it."""

    def run(dim: Any, args: Sequence[Any]) -> None:
        if adjoints is None:
            _run(kernel, dim, args, (), device, block_dim, record_tape, tiled)
        else:
            _run_adjoint(kernel, dim, args, _padded(adjoints, inputs, outputs), device, block_dim, tiled)

    args = [*inputs, *outputs]
    if command:
        launch_grid(kernel, dim)
        return Command([p.name for p in kernel.function.parameters], dim, args, run)
    run(dim, args)
    return None


def _padded(adjoints: tuple[Sequence[Any], Sequence[Any]], inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """One adjoint, or None, for each argument."""
    found: list[Any] = []
    for what, given, args in zip(("adj_inputs", "adj_outputs"), adjoints, (inputs, outputs), strict=True):
        if len(given) > len(args):
            raise LaunchError(f"{what} has {len(given)} entries for {len(args)} arguments")
        found += [*given, *[None] * (len(args) - len(given))]
    return found


def _run_adjoint(
    kernel: Kernel,
    dim: Any,
    args: Sequence[Any],
    adjoints: Sequence[Any],
    device: str | None,
    block_dim: int | None,
    tiled: bool,
) -> None:
    grid = launch_grid(kernel, dim)
    lanes = block_dim or config.block_dim
    grads = [getattr(a, "grad", None) if g is None else g for a, g in zip(args, adjoints, strict=True)]
    found, natives, _ = kernel.specialise(args, grid, lanes, tiled)
    twins = [a if g is None else g for a, g in zip(args, grads, strict=True)]
    _, parts, _ = kernel.specialise(twins, grid, lanes, tiled)
    known = [grads[k] is not None for k in found.owners]
    passed = [(natives[i], parts[i] if known[i] else None) for i in found.passed]
    commands.run_adjoint(
        found.ir_for(natives), [a for a, _ in passed], [g for _, g in passed], grid, device or config.device
    )


def _run(
    kernel: Kernel,
    dim: int | Sequence[int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    device: str | None,
    block_dim: int | None,
    record_tape: bool,
    tiled: bool,
) -> None:
    grid = (dim,) if type(dim) is int and 0 <= dim < 2**31 and isinstance(kernel, Kernel) else launch_grid(kernel, dim)
    lanes = block_dim or config.block_dim
    if lanes < 1 or block_dim == 0:
        raise LaunchError(f"block_dim must be at least 1, it is {block_dim}")
    args = (*inputs, *outputs)
    found, natives, apart = kernel.specialise(args, grid, lanes, tiled)
    for i in found.written:
        if not natives[i].flags.writeable:
            _refuse_read_only(kernel, found.owners[i])
    chosen = device or config.device
    ir = found.ir_for(natives)
    for active in tape.active(record_tape):
        active.record_launch(kernel, ir, apart, grid, chosen, args)
    passed = natives if len(found.passed) == len(natives) else [natives[i] for i in found.passed]
    compiler.execute(ir, passed, grid, chosen)


def launch_grid(kernel: Any, dim: Any) -> tuple[int, ...]:
    """The launch dimensions as a tuple of 1 to 4 ints."""
    if not isinstance(kernel, Kernel):
        raise LaunchError(
            f"only a kernel can be launched, not {kernel!r}", help="decorate the function with @tg.kernel"
        )
    items = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    whole = [isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in items]
    if not all(whole) or not 1 <= len(items) <= 4:
        raise LaunchError(f"dim must be an int or 1 to 4 ints, it is {dim!r}", help="write dim=n, dim=(m, n), ...")
    if any(n < 0 for n in items):
        raise LaunchError(f"a launch dimension is negative: dim={dim!r}")
    if math.prod(int(n) for n in items) >= 2**62:
        raise LaunchError(f"a launch of 2**62 threads or more cannot be counted: dim={dim!r}", help="use a loop")
    return tuple(int(n) for n in items)


def _refuse_read_only(kernel: Kernel, i: int) -> None:
    p = kernel.function.parameters[i]
    raise LaunchError(
        f"{kernel.name}: argument `{p.name}` is a read-only array, and the kernel writes to it",
        loc=signature.parameter_loc(kernel.function, p), help="pass a writable array, for example a copy()",
    )  # fmt: skip


def synchronize() -> None:
    """Wait for all launches; every launch has ended when it returns, so there is nothing to wait for."""


# --- array annotations ----------------------------------------------------------------------------------------------

_NOTHING: Any = object()


class _ArrayNames(type):
    """Makes `isinstance(x, tg.array)` ask for the run-time array class."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, arrays.Array) and (cls._rank is None or x.ndim == cls._rank)

    _rank: int | None = None


class array(metaclass=_ArrayNames):
    """An array: `tg.array(data, dtype=...)` makes one; `tg.array[float]` and `tg.array(dtype=float, ndim=2)` declare
    a kernel parameter. `array1d` to `array4d` fix the rank."""

    _rank: int | None = None
    __tilegrad_annotation__ = ArrayAnnotation()

    def __new__(cls, data: Any = _NOTHING, dtype: Any = None, ndim: int | None = None, **options: Any) -> Any:
        if data is _NOTHING and not options:
            return signature.array_annotation(dtype, ndim or cls._rank or 1, where=cls.__name__)
        if data is not _NOTHING:
            options["data"] = data
        made = arrays.array(dtype=dtype, **options)
        if cls._rank is not None and made.ndim != cls._rank:
            raise TypeMismatch(f"{cls.__name__}: the data has {made.ndim} dimensions")
        return made

    def __class_getitem__(cls, item: Any) -> ArrayAnnotation:
        dtype, rank = item if isinstance(item, tuple) and len(item) == 2 else (item, cls._rank or 1)
        rank = getattr(rank, "__args__", (rank,))[0]
        return signature.array_annotation(dtype, int(rank), where=cls.__name__)


class array1d(array):
    """A one-dimensional array; see `array`."""

    _rank = 1
    __tilegrad_annotation__ = ArrayAnnotation(None, 1)


class array2d(array):
    """A two-dimensional array; see `array`."""

    _rank = 2
    __tilegrad_annotation__ = ArrayAnnotation(None, 2)


class array3d(array):
    """A three-dimensional array; see `array`."""

    _rank = 3
    __tilegrad_annotation__ = ArrayAnnotation(None, 3)


class array4d(array):
    """A four-dimensional array; see `array`."""

    _rank = 4
    __tilegrad_annotation__ = ArrayAnnotation(None, 4)
