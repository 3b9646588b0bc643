"""tilegrad: tile kernels in Python, compiled for CPUs and GPUs, with exact gradients.

Write a function over tiles, decorate it with `@kernel`, run it with `launch_tiled` or `launch`, and differentiate it
with a `Tape`. See README.md for an example and docs/language.md for what a kernel means.
"""

from __future__ import annotations

import builtins
from typing import Any

from tilegrad import testing, types
from tilegrad.config import config
from tilegrad.diagnostics import (
    CompilerBug,
    GradientNotFinite,
    GradientUndefined,
    KernelAssertionError,
    KernelIndexError,
    KernelNameError,
    KernelSyntaxError,
    KernelValueError,
    KernelZeroDivisionError,
    LaunchError,
    ShapeMismatch,
    TilegradError,
    TypeMismatch,
)
from tilegrad.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilegrad.dtypes import bool_ as bool
from tilegrad.element_types import NAMED as _NAMED_TYPES
from tilegrad.frontend.rules import adjoint, func_grad, func_replay
from tilegrad.functional import grad, jvp, value_and_grad, vjp
from tilegrad.kernel import (
    Kernel,
    array,
    array1d,
    array2d,
    array3d,
    array4d,
    block_dim,
    cdiv,
    constant,
    copy,
    func,
    get_module_options,
    kernel,
    launch,
    launch_tiled,
    printf,
    set_module_options,
    static,
    struct,
    synchronize,
    tid,
    tile_map,
)
from tilegrad.ops.catalog import PUBLIC as _OPERATIONS
from tilegrad.runtime.arrays import (
    Array,
    clone,
    empty,
    empty_like,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from tilegrad.tape import Tape

__version__ = "0.1.0"

#: the mathematical constants that kernels use
pi, e, inf, nan = 3.141592653589793, 2.718281828459045, float("inf"), float("nan")

print = builtins.print

globals().update(_OPERATIONS)
globals().update(_NAMED_TYPES)

__all__ = [
    "Array", "CompilerBug", "DType", "GradientNotFinite", "GradientUndefined", "Kernel",
    "KernelAssertionError", "KernelIndexError",
    "KernelNameError", "KernelSyntaxError", "KernelValueError", "KernelZeroDivisionError", "LaunchError",
    "ShapeMismatch", "Tape", "TilegradError", "TypeMismatch", "adjoint", "array", "array1d", "array2d", "array3d",
    "array4d", "bfloat16", "block_dim", "bool", "cdiv", "clone", "config", "constant", "copy", "empty",
    "empty_like", "float16", "float32", "float64", "from_numpy", "full", "full_like", "func", "func_grad",
    "func_replay", "get_module_options", "grad", "int16", "int32", "int64", "int8", "jvp", "kernel", "launch",
    "launch_tiled", "ones", "ones_like", "printf", "set_module_options", "static", "struct", "synchronize",
    "testing", "tid", "tile_map", "types", "uint16", "uint32", "uint64", "uint8", "value_and_grad", "vjp", "zeros",
    "zeros_like",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tilegrad has no `{name}`")


def __dir__() -> list[str]:
    return sorted(n for n in globals() if not n.startswith("_"))
