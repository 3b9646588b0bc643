"""tilegrad: tile kernels in Python, compiled for CPUs and GPUs, with exact gradients.

Write a function over tiles, decorate it with `@kernel`, run it with `launch_tiled` or `launch`, and differentiate it
with a `Tape`. See README.md for an example and docs/language.md for what a kernel means.
"""

from __future__ import annotations

from typing import Any

from tilegrad.config import config
from tilegrad.diagnostics import (
    CompilerBug,
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
from tilegrad.dtypes import bool_ as bool  # noqa: A004  (Warp's name)
from tilegrad.kernel import (
    array,
    array1d,
    array2d,
    array3d,
    array4d,
    block_dim,
    cdiv,
    constant,
    func,
    kernel,
    launch,
    launch_tiled,
    static,
    tid,
    tile_map,
)
from tilegrad.ops.catalog import PUBLIC as _OPERATIONS
from tilegrad.runtime.arrays import (
    Array,
    clone,
    copy,
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

globals().update(_OPERATIONS)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tilegrad has no `{name}`")


def __dir__() -> list[str]:
    return sorted(n for n in globals() if not n.startswith("_"))
