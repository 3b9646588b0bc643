"""`tilegrad doctor`: what tilegrad finds on this machine, and whether a kernel runs on every device.

The exit status is 0 only if all works, so that scripts can ask.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import llvmlite
import numpy as np
from rich.console import Console
from rich.table import Table

import tilegrad as tg
from tilegrad import compiler
from tilegrad.config import config
from tilegrad.runtime import engine


@tg.kernel
def _probe(x: Any, out: Any) -> None:
    t = tg.tile_load(x, shape=8)
    tg.tile_store(out, t * t)


def run() -> int:
    """Print the findings; 0 if every device works and the cache can be written."""
    table = Table(show_header=False, title=f"tilegrad {tg.__version__}")
    rows = {
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "llvmlite": f"{llvmlite.__version__} (LLVM {'.'.join(map(str, llvmlite.binding.llvm_version_info))})",
        "processor": engine.host_cpu(),
        "vector": f"{compiler.host_target().vector_bytes * 8} bits",
        "threads": str(config.num_threads),
        "cache": _cache(),
    }
    healthy = "CANNOT" not in rows["cache"]
    for device in ("interpret", "cpu"):
        rows[f"device {device}"], works = _try(device)
        healthy = healthy and works
    for name, value in rows.items():
        table.add_row(name, value)
    Console(file=sys.stdout).print(table)
    return 0 if healthy else 1


def _try(device: str) -> tuple[str, bool]:
    """Run a kernel and its gradient."""
    x, out = tg.array(np.arange(8, dtype=np.float32), requires_grad=True), tg.zeros(8, requires_grad=True)
    try:
        with tg.Tape() as tape:
            tg.launch_tiled(_probe, dim=1, inputs=[x, out], device=device)
        tape.backward(grads={out: tg.ones(8)})
    except Exception as error:  # whatever is wrong with the machine belongs in the report
        return f"{type(error).__name__}: {error}", False
    numbers = np.arange(8, dtype=np.float32)
    good = np.array_equal(out.numpy(), numbers**2) and np.array_equal(x.grad, 2 * numbers)
    return ("works" if good else f"WRONG: {out} with gradient {x.grad}"), good


def _cache() -> str:
    if not config.cache:
        return "off (TILEGRAD_CACHE)"
    folder = config.cache_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return f"{config.cache_dir}{'' if os.access(folder, os.W_OK) else ' CANNOT be written'}"
