"""What the documentation says is run: the README, the pages, the docstrings, and the tutorial."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilegrad
from tilegrad.config import config
from tilegrad.op import REGISTRY
from tilegrad.ops.catalog import PUBLIC

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_of(page: Path) -> str:
    """The Python blocks of a page as one program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=lambda p: p.name)
def test_pages(page: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / f"{page.stem}.py"  # a file, so that errors can show its lines
    script.write_text(python_of(page))
    monkeypatch.setattr(config, "device", device)
    exec(compile(script.read_text(), script, "exec"), {"__name__": "page"})


def run(test: doctest.DocTest) -> None:
    report: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append).failed
    assert not failed, "".join(report)


MODULES = [m.name for m in pkgutil.walk_packages(tilegrad.__path__, "tilegrad.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_of_modules(name: str) -> None:
    for found in doctest.DocTestFinder().find(importlib.import_module(name)):
        run(found)


@pytest.mark.parametrize("name", [n for n, d in REGISTRY.items() if ">>>" in (d.__doc__ or "")])
def test_docstrings_of_operations(name: str) -> None:
    run(doctest.DocTestParser().get_doctest(str(REGISTRY[name].__doc__), {}, name, None, None))


def test_operations_are_documented() -> None:
    silent = [n for n, d in REGISTRY.items() if not (d.__doc__ or "").strip()]
    assert not silent
    without_example = [n for n, operation in PUBLIC.items() if ">>>" not in (operation.__doc__ or "")]
    assert not without_example


def test_digits_are_learned(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "digits.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *_, accuracy, picture = done.stdout.splitlines()
    assert float(accuracy.removeprefix("test accuracy ")) >= 0.97
    assert (tmp_path / picture.removeprefix("picture saved to ")).stat().st_size > 10_000
