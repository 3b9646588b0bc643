"""The README's example runs as it stands, and so does the tutorial."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(path: Path, folder: Path) -> str:
    """The output of a script that is run as a user would."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, path], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_example(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(code)
    run(script, tmp_path)


def test_digits_are_learned(tmp_path: Path) -> None:
    *_, accuracy, picture = run(ROOT / "examples" / "digits.py", tmp_path).splitlines()
    assert float(accuracy.removeprefix("test accuracy ")) >= 0.97
    assert (tmp_path / picture.removeprefix("picture saved to ")).stat().st_size > 10_000
