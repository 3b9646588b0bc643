"""The command `tilegrad`: looks at the installation and at kernels' code."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import llvmlite
import numpy as np
from rich.console import Console
from rich.table import Table

import tilegrad as tg
from tilegrad import compiler
from tilegrad.config import config
from tilegrad.runtime import engine


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status."""
    parser = argparse.ArgumentParser(prog="tilegrad", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="versions, processor, threads, cache, and whether a kernel runs")
    parser_args = parser.parse_args(argv)
    return {"doctor": doctor}[parser_args.command]()


@tg.kernel(enable_backward=False)
def _probe(out: Any) -> None:
    tg.tile_store(out, tg.tile_arange(8, dtype=tg.float32))


def doctor() -> int:
    """Print what tilegrad finds on this machine, and run one kernel on every device."""
    table = Table(show_header=False, title=f"tilegrad {tg.__version__}")
    rows = {
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "llvmlite": llvmlite.__version__,
        "processor": engine.host_cpu(),
        "vector": f"{compiler.host_target().vector_bytes * 8} bits",
        "threads": str(config.num_threads),
        "cache": f"{config.cache_dir} ({'can be written' if _writable() else 'CANNOT be written'})",
    }
    healthy = True
    for device in ("interpret", "cpu"):
        rows[f"device {device}"], good = _try(device)
        healthy = healthy and good
    for name, value in rows.items():
        table.add_row(name, value)
    Console(file=sys.stdout).print(table)
    return 0 if healthy else 1


def _try(device: str) -> tuple[str, bool]:
    out = np.zeros(8, np.float32)
    try:
        tg.launch_tiled(_probe, dim=1, inputs=[out], device=device)
    except tg.TilegradError as error:
        return str(error), False
    good = bool(np.array_equal(out, np.arange(8)))
    return ("works" if good else f"WRONG: {out}"), good


def _writable() -> bool:
    folder = config.cache_dir
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)
