"""`tilegrad inspect`: what a kernel of a file becomes on its way to machine code.

Arguments that are not given follow from the annotations: arrays of 64 elements along each axis, and the number 1.
Nothing is launched; the file itself is run, though, as an import would.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.console import Console
from rich.syntax import Syntax

from tilegrad import compiler
from tilegrad.ad import differentiate
from tilegrad.diagnostics import LaunchError
from tilegrad.dtypes import as_dtype
from tilegrad.frontend.signature import ArrayAnnotation, NumberAnnotation
from tilegrad.ir import core
from tilegrad.ir.printer import to_text
from tilegrad.ir.types import ArrayType
from tilegrad.kernel import Kernel
from tilegrad.runtime import engine

#: stage -> the text of a kernel there, and the name of its language
STAGES: dict[str, tuple[Callable[[core.Kernel], str], str]] = {
    "traced": (to_text, "text"),
    "optimised": (lambda ir: to_text(compiler.optimise(ir)), "text"),
    "backward": (lambda ir: to_text(compiler.optimise(_backward(ir))), "text"),
    "llvm": (lambda ir: compiler.lower(compiler.optimise(ir)).text, "llvm"),
    "assembly": (lambda ir: engine.assembly(compiler.lower(compiler.optimise(ir)).text), "gas"),
    "times": (lambda ir: _times(ir), "text"),
}


def run(options: argparse.Namespace) -> int:
    """Print a stage of a kernel, or the kernels that the file has."""
    kernels = {name: k for name, k in vars(load(options.file)).items() if isinstance(k, Kernel)}
    if options.kernel not in kernels:
        if options.kernel:
            print(f"{options.file} has no kernel `{options.kernel}`")
        print(f"kernels of {Path(options.file).name}: {', '.join(kernels) or 'none at its top level'}")
        return int(bool(options.kernel))
    kernel = kernels[options.kernel]
    args = arguments(kernel, options.arguments)
    grid = (1,) * options.dims
    text, language = STAGES[options.stage]
    shown = text(kernel.ir(*args, dim=grid, tiled=not options.launch, block_dim=options.block_dim))
    if sys.stdout.isatty():
        Console().print(Syntax(shown, language, background_color="default"))
    else:
        print(shown)
    return 0


def load(path: Path) -> ModuleType:
    """The module in a file, which may import its neighbours."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise LaunchError(f"{path} is not a Python file")
    sys.path.insert(0, str(path.parent))
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(kernel: Kernel, given: list[str]) -> list[Any]:
    """One argument for each parameter: as given on the command line, else by its annotation."""
    parameters, annotations = kernel.function.parameters, kernel.annotations
    if len(given) > len(parameters):
        raise LaunchError(f"{kernel.name} takes {len(parameters)} arguments, {len(given)} were given")
    made: list[Any] = [parse(text) for text in given]
    for p, annotation in list(zip(parameters, annotations, strict=True))[len(given) :]:
        made.append(_default(p.name, annotation))
    return made


def parse(text: str) -> Any:
    """An argument from its text: `float32[64,64]` is an array, anything else a number."""
    array = re.fullmatch(r"(\w+)\[([\d,\s]+)\]", text)
    if array:
        dtype = as_dtype(array[1])
        if dtype is None:
            raise LaunchError(f"`{array[1]}` is no element type")
        return np.zeros([int(n) for n in array[2].split(",")], dtype.np)
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise LaunchError(f"`{text}` is neither an array like float32[64,64] nor a number") from None


def _default(name: str, annotation: Any) -> Any:
    if isinstance(annotation, ArrayAnnotation) and annotation.dtype is not None and annotation.ndim is not None:
        return np.zeros((64,) * annotation.ndim, annotation.dtype.np)
    if isinstance(annotation, NumberAnnotation) and annotation.dtype is not None:
        return annotation.dtype.np.type(1)
    raise LaunchError(f"the type of `{name}` does not follow from its annotation", help="give it: float32[64,64]")


def _backward(ir: core.Kernel) -> core.Kernel:
    """The backward kernel, for the gradients of all float arrays."""
    types = [v.type for v in ir.params]
    return differentiate(ir, tuple(isinstance(t, ArrayType) and t.dtype.is_float for t in types)).kernel


def _times(ir: core.Kernel) -> str:
    """The seconds of each step of a compilation; a warm disk cache makes the last one short."""
    trace = compiler.Trace()
    compiler.compile_kernel(ir, trace)
    return "\n".join(f"{seconds * 1e3:8.2f} ms  {name}" for name, seconds in trace.steps)
