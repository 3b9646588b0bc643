"""What all tests share: an empty cache of compiled code, Hypothesis without deadlines, and the fixture `device`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# Set before tilegrad is imported, and inherited by the workers of pytest-xdist and by child processes of tests.
_MINE = "TILEGRAD_CACHE_DIR" not in os.environ
if _MINE:
    os.environ["TILEGRAD_CACHE_DIR"] = tempfile.mkdtemp(prefix="tilegrad-tests-")

hypothesis.settings.register_profile("tilegrad", deadline=None, print_blob=True)
hypothesis.settings.load_profile("tilegrad")


def pytest_unconfigure() -> None:
    if _MINE:
        shutil.rmtree(os.environ["TILEGRAD_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(params=["interpret", "cpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every device that a kernel runs on."""
    yield str(request.param)
