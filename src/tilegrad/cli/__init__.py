"""The command `tilegrad`: doctor, inspect, demo and bench.

Does not hold what the subcommands do: one module each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilegrad.cli import checkout, doctor, inspect
from tilegrad.diagnostics import TilegradError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except TilegradError as error:
        print(f"{type(error).__name__}: {error}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tilegrad", description="tile kernels in Python, with exact gradients")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add = commands.add_parser("doctor", help="versions, processor, threads, cache, and whether kernels run")
    add.set_defaults(run=lambda options: doctor.run())

    add = commands.add_parser("inspect", help="show what a kernel becomes: Tile IR, LLVM IR, machine code")
    add.add_argument("file", type=Path, help="a Python file that defines kernels")
    add.add_argument("kernel", nargs="?", help="name of the kernel; without it, the kernels of the file are listed")
    add.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="float32[64,64] for an array, 3 for a number")
    add.add_argument("--stage", choices=inspect.STAGES, default="optimised", help="what to show (optimised)")
    add.add_argument("--launch", action="store_true", help="as launch() runs it, rather than launch_tiled()")
    add.add_argument("--dims", type=int, default=1, help="number of launch dimensions (1)")
    add.add_argument("--block-dim", type=int, help="lanes of a block")
    add.set_defaults(run=inspect.run)

    for name, script, text in (
        ("demo", "examples/digits.py", "train a digit classifier with tile kernels"),
        ("bench", "bench/bench.py", "compare speed with the peers that are installed"),
    ):
        add = commands.add_parser(name, help=text)
        add.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        add.set_defaults(run=lambda options, script=script: checkout.run(script, options.arguments))
    return parser
