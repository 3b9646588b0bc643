"""The libraries that tilegrad is compared with: each module, or None where it is not installed.

All get every core that this process may use. Does not know the workloads.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

NAMES = ("numpy", "torch", "jax", "numba", "warp")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


numpy, torch, jax, numba, warp = (_load(name) for name in NAMES)

if torch:
    torch.set_num_threads(CORES)
if warp:
    warp.config.quiet = True
    warp.init()


def found() -> dict[str, str]:
    """The peers that are here, with their versions."""
    modules = dict(zip(NAMES, (numpy, torch, jax, numba, warp), strict=True))
    return {name: m.__version__ for name, m in modules.items() if m}
