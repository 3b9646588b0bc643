"""Functions of vectors: against NumPy in every float type, as lanes, tiles and maps, with gradients; errors."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from composites import RUNS, Case, case, check_gradient, check_host, check_values


def skewed(v: Any) -> Any:
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def unit(v: Any) -> Any:
    return v / np.linalg.norm(v)


def away_from_zero(drawn: list[Any]) -> list[Any]:
    return [drawn[0], np.sign(drawn[1]) * (0.5 + abs(drawn[1]))]


CASES = [
    case("dot", "v3 v3", "s", np.dot),
    case("dot", "v5 v5", "s", np.dot),
    case("dot", "q q", "s", np.dot),
    case("cross", "v3 v3", "v3", np.cross),
    case("outer", "v3 v2", "m32", np.outer),
    case("skew", "v3", "m33", skewed),
    case("cw_mul", "v4 v4", "v4", np.multiply),
    case("cw_mul", "m23 m23", "m23", np.multiply),
    case("cw_div", "v3 v3", "v3", np.divide, prepare=away_from_zero),
    case("length", "v3", "s", np.linalg.norm),
    case("length", "q", "s", np.linalg.norm),
    case("length_sq", "v4", "s", lambda v: v @ v),
    case("normalize", "v3", "v3", unit),
    case("normalize", "v2", "v2", unit),
    case("normalize", "q", "q", unit),
    case("lerp", "v3 v3 s", "v3", lambda a, b, t: a * (1 - t) + b * t),
    case("lerp", "s s s", "s", lambda a, b, t: a * (1 - t) + b * t),
    case("lerp", "m22 m22 s", "m22", lambda a, b, t: a * (1 - t) + b * t),
    case("min", "v4", "s", np.min, function=lambda v: tg.min(v)),
    case("max", "m23", "s", np.max, function=lambda m: max(m)),
    case("vector", "s s s", "v3", lambda *x: np.array(x)),
    case("quaternion", "v3 s", "q", lambda v, w: np.array([*v, w])),
]


def label(c: Case) -> str:
    return f"{c.name}-{'-'.join(c.takes)}"


@pytest.mark.parametrize(("device", "dtype"), RUNS, ids=str)
@pytest.mark.parametrize("c", CASES, ids=label)
def test_lanes(c: Case, device: str, dtype: Any) -> None:
    check_values(c, "lanes", dtype, device)


@pytest.mark.parametrize("form", ["tiles", "map"])
@pytest.mark.parametrize("c", CASES, ids=label)
def test_tiles(c: Case, form: str) -> None:
    check_values(c, form, tg.float32, "cpu")


@pytest.mark.parametrize("c", CASES, ids=label)
def test_gradient(c: Case, device: str) -> None:
    check_gradient(c, "lanes", device)


@pytest.mark.parametrize("c", CASES[::3], ids=label)
def test_gradient_of_tiles(c: Case) -> None:
    check_gradient(c, "tiles", "cpu")


@pytest.mark.parametrize("c", [c for c in CASES if c.function is None], ids=label)
def test_outside_of_kernels(c: Case) -> None:
    check_host(c)


MODULES = ("vectors", "small_matrices", "small_factors", "quaternions", "transforms")
PUBLIC = {n: f for m in MODULES for n, f in importlib.import_module(f"tilegrad.ops.{m}").PUBLIC.items()}


@pytest.mark.parametrize("name", PUBLIC)
def test_examples(name: str) -> None:
    report: list[str] = []
    example = doctest.DocTestParser().get_doctest(PUBLIC[name].__doc__, {}, name, None, None)
    assert example.examples
    assert not doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append).failed, report
