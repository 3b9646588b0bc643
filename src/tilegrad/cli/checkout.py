"""Subcommands that run a script of the source checkout, which an installed package does not contain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import tilegrad


def run(script: str, arguments: Sequence[str]) -> int:
    """Run a script of the checkout that this package was installed from with `pip install -e`; its exit status."""
    path = Path(tilegrad.__file__).parents[2] / script
    if not path.exists():
        print(f"{script} is part of tilegrad's source: clone the repository, and run this there")
        return 1
    return subprocess.run([sys.executable, path, *arguments], check=False).returncode
