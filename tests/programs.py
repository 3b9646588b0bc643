"""Kernels made of source text, for the tests of random programs."""

from __future__ import annotations

import itertools
import linecache
from typing import Any

import tilegrad as tg

_numbers = itertools.count()


def build(text: str, **names: Any) -> Any:
    """The kernel that a text defines as `kernel`; it may use `tg` and the given names."""
    file = f"<random program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"tg": tg, **names}
    exec(compile(text, file, "exec"), scope)
    return tg.kernel(scope["kernel"])
