"""Every setting in one place, with the environment variable that sets it at start.

Does not act on any of them: the module that a setting concerns reads it from here when it needs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


def _flag(name: str, default: bool) -> bool:
    return os.environ.get(name, str(int(default))).lower() not in ("0", "false", "no", "off", "")


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Config:
    """The settings; assign to `tilegrad.config.<name>` to change one for the process."""

    #: folder of compiled objects (TILEGRAD_CACHE_DIR)
    cache_dir: Path
    #: whether compiled objects are kept on disk (TILEGRAD_CACHE)
    cache: bool
    #: worker threads of a CPU launch (TILEGRAD_NUM_THREADS)
    num_threads: int
    #: device of a launch that names none: "cpu" or "interpret" (TILEGRAD_DEVICE)
    device: str
    #: lanes of a block when a launch names none (TILEGRAD_BLOCK_DIM)
    block_dim: int
    #: verify the IR between passes (TILEGRAD_VERIFY)
    verify: bool
    #: turns of a loop that a backward pass may save; longer loops save checkpoints (TILEGRAD_SAVED_TURNS)
    saved_turns: int = 256
    #: whether tapes record launches of kernels that do not say so themselves (TILEGRAD_ENABLE_BACKWARD)
    enable_backward: bool = True
    #: whether backward passes look for the first cotangent that is not finite (TILEGRAD_CHECK_FINITE)
    check_finite: bool = False
    #: fill what a kernel has not written yet with NaN, so that it shows (TILEGRAD_DEBUG)
    debug: bool = False


config = Config(
    cache_dir=Path(os.environ.get("TILEGRAD_CACHE_DIR") or platformdirs.user_cache_path("tilegrad")),
    cache=_flag("TILEGRAD_CACHE", True),
    num_threads=int(os.environ.get("TILEGRAD_NUM_THREADS") or _usable_cpus()),
    device=os.environ.get("TILEGRAD_DEVICE", "cpu"),
    block_dim=int(os.environ.get("TILEGRAD_BLOCK_DIM", "256")),
    verify=_flag("TILEGRAD_VERIFY", False),
    saved_turns=int(os.environ.get("TILEGRAD_SAVED_TURNS") or 256),
    enable_backward=_flag("TILEGRAD_ENABLE_BACKWARD", True),
    check_finite=_flag("TILEGRAD_CHECK_FINITE", False),
    debug=_flag("TILEGRAD_DEBUG", False),
)
