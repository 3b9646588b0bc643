"""Every public operation gives the same bits in the interpreter and on the CPU with one thread and with two, and for
every block_dim, wherever nothing is rounded; elsewhere the devices agree within a few roundings, and the CPU's bits do
not depend on threads and blocks."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.config import config
from tilegrad.diagnostics import TilegradError
from tilegrad.ops.catalog import PUBLIC

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from operation_calls import program

#: operations that are not rounded on small whole numbers: all but those that say otherwise
ROUNDED = {
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "hypot", "pow", "sin", "cos",
    "tan", "asin", "acos", "atan", "atan2", "degrees", "radians", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf", "erfc", "erfinv", "erfcinv", "randn", "poisson", "tile_randn", "tile_randf", "randf", "cw_div", "length",
    "normalize", "lerp", "determinant", "inverse", "div", "eig3", "qr3", "svd2", "svd3",
}  # fmt: skip
ROUNDED |= {name for name in PUBLIC if name.startswith(("sample_", "quat_", "transform_", "spatial_"))}
ROUNDED |= {
    name for name in PUBLIC
    if any(part in name for part in ("solve", "cholesky", "lu", "_inv", "det", "qr", "eigh", "fft"))
}  # fmt: skip
#: relative error allowed between the devices
BOUND = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-6, "float64": 1e-13}


def calls(name: str) -> list[Any]:
    """Programs for two element types: float32 if it can be, and another."""
    found = []
    for group in ((dt.float32,), (dt.int16, dt.float16, dt.float64, dt.int32, dt.bool_)):
        found += list(itertools.islice((p for d in group for r in (2, 1) if (p := compiled(name, d, r))), 1))
    return found


def compiled(name: str, dtype: dt.DType, rank: int) -> Any:
    try:
        made = program(name, dtype, rank)
        made.kernel.ir(*made.arguments(np.random.default_rng(0)), *made.outputs(), block_dim=32)
    except TilegradError:
        return None
    return made


def results(made: Any, args: list[Any], device: str, block_dim: int, threads: int) -> list[Any]:
    """What a launch leaves in its arrays."""
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    outs = made.outputs()
    before = config.num_threads
    config.num_threads = threads
    try:
        tg.launch_tiled(made.kernel, dim=3, inputs=[*given, *outs], block_dim=block_dim, device=device)
    finally:
        config.num_threads = before
    return [a for a in (*given, *outs) if isinstance(a, np.ndarray)]


def same_bits(x: Any, y: Any) -> bool:
    nan = np.isnan(x.astype(np.float64)) if x.dtype.kind not in "biu" else np.zeros(x.shape, bool)
    return bool(np.all((x.view(f"V{x.itemsize}") == y.view(f"V{y.itemsize}")) | nan))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_devices_threads_and_blocks_agree(name: str) -> None:
    tried = calls(name)
    assert tried, f"{name} compiles for no type"
    for k, made in enumerate(tried):
        args = made.arguments(np.random.default_rng(5))
        first = results(made, args, "cpu", 32, 1)
        for block_dim, threads in ((1, 2), (7, 1), (32, 2), (100, 1), (256, 2)) if k == 0 else ():
            again = results(made, args, "cpu", block_dim, threads)
            assert all(map(same_bits, first, again)), (name, made.dtype, block_dim, threads)
        agree(name, made.dtype, first, results(made, args, "interpret", 32, 1))


def agree(name: str, dtype: dt.DType, first: list[Any], other: list[Any]) -> None:
    """Hold the devices against each other."""
    for x, y in zip(first, other, strict=True):
        if name not in ROUNDED or x.dtype.kind in "biu":
            assert same_bits(x, y), (name, dtype, x, y)
        else:
            bound = BOUND[dt.of_array(x).name]
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=bound, atol=bound)
