"""The road from a traced kernel to a launch, as one visible list of steps.

    Tile IR -> passes -> schedule -> LLVM IR -> object code -> CompiledKernel

Compiled kernels are kept per kernel object; object code is also kept on disk (see `runtime.cache`). Does not trace
Python (see `frontend`) and does not differentiate (see `ad`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilegrad import ad, interpreter
from tilegrad.codegen.combine import combine_code
from tilegrad.codegen.kernel import Code, generate
from tilegrad.codegen.registers import Target
from tilegrad.codegen.targets.cpu import describe_cpu
from tilegrad.diagnostics import LaunchError
from tilegrad.dtypes import DType
from tilegrad.ir.core import Kernel
from tilegrad.ir.types import dtype_of
from tilegrad.passes import cse, dce, licm, operands, simplify
from tilegrad.runtime import engine
from tilegrad.runtime.launch import CompiledKernel, Sum, launch
from tilegrad.schedule.storage import schedule

#: The optimisations of Tile IR, in order.
PASSES: tuple[Callable[[Kernel], Kernel], ...] = (
    simplify.run, cse.run, licm.run, cse.run, operands.run, dce.run,
)  # fmt: skip


@dataclass
class Trace:
    """Seconds that each step of a compilation took, in order."""

    steps: list[tuple[str, float]] = field(default_factory=list)

    def timed(self, name: str, step: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        result = step(*args)
        self.steps.append((name, time.perf_counter() - start))
        return result


@cache
def host_target() -> Target:
    """The machine that this process runs on."""
    return describe_cpu(engine.host_features())


def optimise(kernel: Kernel, trace: Trace | None = None) -> Kernel:
    """The kernel after all passes."""
    trace = trace or Trace()
    kernel = trace.timed("expand", ad.expand, kernel)
    for run in PASSES:
        kernel = trace.timed(run.__module__.rsplit(".", 1)[-1], run, kernel)
    return kernel


def lower(kernel: Kernel, trace: Trace | None = None) -> Code:
    """LLVM IR of an optimised kernel for the host."""
    trace = trace or Trace()
    plan = trace.timed("schedule", schedule, kernel)
    code: Code = trace.timed("generate", generate, kernel, plan, host_target())
    return code


def compile_kernel(kernel: Kernel, trace: Trace | None = None) -> CompiledKernel:
    """Machine code for a kernel, ready to launch on the CPU."""
    trace = trace or Trace()
    code = lower(optimise(kernel, trace), trace)
    address = trace.timed("native", engine.compile_ir, code.text, code.entry)
    return CompiledKernel(
        name=kernel.name, address=address, scratch_bytes=code.scratch_bytes, stack_count=code.stack_count,
        ordered=code.ordered, prints=code.prints, sites=code.sites, tiled=kernel.tiled, block_dim=kernel.block_dim,
        sums=tuple(
            Sum(p, dtype.size // dtype_of(kernel.params[p].type).size, _combine(dtype_of(kernel.params[p].type)))
            for p, dtype in code.sums
        ),
    )  # fmt: skip


@cache
def _combine(dtype: DType) -> CompiledKernel:
    """The function that adds up the sums of groups of blocks (see `codegen.combine`)."""
    address = engine.compile_ir(combine_code(dtype, host_target()), "combine")
    return CompiledKernel("combine", address, 0, 0, ordered=False, prints=False, sites=(), tiled=True, block_dim=1)


@cache
def expanded(kernel: Kernel) -> Kernel:
    """The kernel without derivatives that users decide, which only `ad` knows."""
    return ad.expand(kernel)


_compiled: dict[Kernel, CompiledKernel] = {}


def compiled(kernel: Kernel) -> CompiledKernel:
    """`compile_kernel`, once per kernel object."""
    found = _compiled.get(kernel)
    if found is None:
        found = _compiled[kernel] = compile_kernel(kernel)
    return found


def execute(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str = "cpu") -> None:
    """Run a kernel's IR on NumPy arrays and scalars: on the CPU, or in the interpreter (device="interpret")."""
    if device == "interpret":
        interpreter.run(expanded(kernel), list(args), grid)
    elif device == "cpu":
        launch(compiled(kernel), args, grid)
    else:
        raise LaunchError(f"unknown device {device!r}", help='devices are "cpu" and "interpret"')


def compile_and_run(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str) -> None:
    """`execute` after a fresh compilation."""
    if device == "cpu":
        launch(compile_kernel(kernel), args, grid)
    else:
        execute(kernel, args, grid, device)
