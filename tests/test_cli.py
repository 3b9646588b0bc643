"""The command line, as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tilegrad import cli

KERNELS = """
import tilegrad as tg

@tg.kernel
def square(x: tg.array2d[tg.float64], factor: float, y: tg.array2d[tg.float64]):
    i, j = tg.tid()
    t = tg.tile_load(x, shape=(8, 8), offset=(i * 8, j * 8))
    tg.tile_store(y, t * t, offset=(i * 8, j * 8))

@tg.kernel
def open(x):
    x[0] = 1.0
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "some_kernels.py"
    path.write_text(KERNELS)
    return str(path)


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.count("works") == 2 and "LLVM" in text


def test_kernels_are_listed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", file]) == 0
    assert "square, open" in capsys.readouterr().out
    assert cli.main(["inspect", file, "sqare"]) == 1


@pytest.mark.parametrize(
    ("stage", "part"),
    [("traced", "tile_load"), ("optimised", "kernel square("), ("backward", "tile_atomic_add"),
     ("llvm", "define void @kernel"), ("assembly", "ret"), ("times", "schedule")],
)  # fmt: skip
def test_every_stage_is_shown(file: str, stage: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", file, "square", "--dims", "2", "--stage", stage]) == 0
    assert part in capsys.readouterr().out


def test_arguments(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", file, "open", "float32[8]", "--launch"]) == 0
    assert "array<float32,1,dense>" in capsys.readouterr().out
    for arguments, message in (
        ([], "the type of `x` does not follow"),
        (["nonsense"], "neither an array like float32[64,64] nor a number"),
        (["complex64[3]"], "no element type"),
        (["float32[8]", "1"], "takes 1 arguments, 2 were given"),
    ):
        assert cli.main(["inspect", file, "open", *arguments]) == 1
        assert message in capsys.readouterr().out


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tilegrad", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "inspect" in done.stdout


def test_bench_measures_and_checks() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, root / "bench" / "bench.py", "launch", "--rounds", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "peer / tilegrad" in done.stdout and "launches/s" in done.stdout
