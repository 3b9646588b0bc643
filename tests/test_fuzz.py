"""Random programs: a few new ones, the parts of the fuzzer itself, and small programs that were wrong once."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad.fuzz import grammar, plain
from tilegrad.fuzz.check import judge, require
from tilegrad.fuzz.coverage import Coverage
from tilegrad.fuzz.hunt import hunt
from tilegrad.fuzz.shrink import shrink
from tilegrad.op import REGISTRY

# --- new programs ----------------------------------------------------------------------------------------------------


def test_random_programs() -> None:
    """`make fuzz N=20000` runs many more."""
    report = hunt(12, seed=20, jobs=0)
    assert report.programs == 12
    assert not report.wrong, "\n".join(f.test for f in report.failures)


def test_programs_depend_on_the_seed_only() -> None:
    one, two = (grammar.program(np.random.default_rng([3, 5]), Coverage()) for _ in range(2))
    assert one == two != grammar.program(np.random.default_rng([3, 6]), Coverage())


def test_processes_find_what_one_finds() -> None:
    here, there = hunt(2, seed=1, jobs=0), hunt(2, seed=1, jobs=2)
    assert here.verdicts == there.verdicts and here.coverage.templates == there.coverage.templates


def test_what_has_been_used_is_counted() -> None:
    seen = Coverage()
    texts = [grammar.program(np.random.default_rng([9, k]), seen) for k in range(150)]
    for text in texts:
        seen.note_text(text)
    missing, constructs = seen.missing()
    assert len(missing) < 20 and len(constructs) < 3


# --- faults are seen, and made small ---------------------------------------------------------------------------------

PROGRAM = """
Real = tg.float64

@tg.kernel
def k0(x: tg.array1d[Real], w: tg.array1d[Real], y: tg.array1d[Real], n: int):
    t = tg.tile_load(x, shape=5)
    for k in range(n):
        if k % 2 == 0:
            t = tg.sin(t) * w[0]
        else:
            t[1:] += tg.cos(t[:-1])
    tg.tile_store(y, t)

ARRAYS = {'x': real(5, kind=Real), 'w': real(3, kind=Real), 'y': zeros(5, kind=Real)}

def program(x, w, y):
    launch_tiled(k0, 1, [x, w, y, 3], 4)
    copy(x, y)
    launch_tiled(k0, 1, [x, w, y[::-1], 2], 4)
"""


def test_a_program_without_faults() -> None:
    assert judge(PROGRAM, 1)[0].key == ("agreed", "")


def test_a_wrong_derivative_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    mul, cos = REGISTRY["mul"], REGISTRY["cos"]
    monkeypatch.setattr(REGISTRY["sin"], "adjoint", lambda ct, out, x: mul(mul(ct, 1.25), cos(x)))
    assert judge(PROGRAM, 1)[0].key == ("wrong", "gradient: differences")


def test_a_device_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY["sin"], "body", lambda x: np.sin(x) + 1e-6)
    assert judge(PROGRAM, 1)[0].key == ("wrong", "forward: floats")


def test_plain_python_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judge(PROGRAM, 1)[0]
    assert verdict.plain
    monkeypatch.setitem(plain.NAMES, "tile_load", lambda a, shape: plain.tile_load(a, shape, 1))
    assert judge(PROGRAM, 1)[0].key == ("wrong", "plain Python: floats")


def test_a_refused_and_an_invalid_program() -> None:
    refused = PROGRAM.replace("tg.tile_store(y, t)", "y[0] = tg.atomic_cas(w, 1, 2.0, 3.0)")
    assert judge(refused, 1)[0].kind == "refused"
    assert judge(PROGRAM.replace("tg.cos", "tg.cosine"), 1)[0].kind == "invalid"
    assert judge(PROGRAM.replace("w[0]", "w[n]"), 1)[0].key == ("agreed", "raised")


def test_the_smallest_program() -> None:
    small = shrink(PROGRAM, lambda text: "tg.cos" in text and judge(text, 1)[0].kind == "agreed", 20)
    assert "tg.sin" not in small and "copy" not in small and len(small) < len(PROGRAM) // 2


# --- programs that were wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["t[1] = tg.tile_load(w, shape=2)", "t[1, 1] = w[0]", "t[n] += w[1]"])
def test_a_tile_is_not_written_over_smaller_elements_that_are_still_read(write: str) -> None:
    """The float32 form of a float16 tile had the memory of that tile."""
    for seed in range(4):
        require(
            f"""
Real = tg.float16

@tg.kernel
def k0(x: tg.array2d[Real], w: tg.array1d[Real], o: tg.array2d[Real], n: int):
    t = tg.tile_load(x, shape=(4, 2))
    {write}
    tg.tile_matmul(tg.tile_full((4, 1), Real(0.5)), tg.tile_full((1, 2), Real(0.5)), t, beta=0.5)
    tg.tile_store(o, t)

ARRAYS = {{'x': real(4, 2, kind=Real), 'w': real(2, kind=Real), 'o': real(4, 2, kind=Real)}}

def program(x, w, o):
    launch_tiled(k0, 1, [x, w, o, 1], 1)
""",
            seed,
        )


def test_a_loop_of_a_map_that_lanes_take_elements_of() -> None:
    """The code ran vectors of lanes through a loop whose length differs between them."""
    require("""
Real = tg.float64

@tg.func
def early(a: Real, n: int):
    for k in range(n):
        if k > 1:
            return a
    return a * 2.0

@tg.kernel
def k0(o: tg.array1d[Real], m: tg.array1d[int]):
    i = tg.tid()
    o[i] = tg.untile(tg.tile_map(early, Real(0.5), tg.tile_load(m, shape=8)))

ARRAYS = {'o': real(8, kind=Real), 'm': whole(8)}

def program(o, m):
    launch(k0, 8, [o, m], 8)
""")


@pytest.mark.parametrize("view", ["t[1:, 0, ::-1]", "t[1:, 0]", "tg.tile_reshape(t, (3, 3))"])
@pytest.mark.parametrize("element", ["w[1, (i + 2) % 3]", "w[1, n]", "f(w[1, 0])"])
def test_elements_of_views_in_branches_that_differ_between_lanes(view: str, element: str) -> None:
    """The view was made inside of the branch, where no tile can be made."""
    require(f"""
Real = tg.float64

@tg.func
def f(a: Real):
    if a > 0.1:
        return tg.sin(a)
    return a

@tg.kernel
def k0(x: tg.array2d[Real], o: tg.array1d[Real], n: int):
    i = tg.tid()
    t = tg.sin(tg.tile_reshape(tg.tile_load(x, shape=(1, 9)), (3, 1, 3)))
    w = {view}
    s = x[0, i]
    if i > 1:
        s = s * {element}
    for _ in range(i):
        s = s + w[0, 1]
    o[i] = s

ARRAYS = {{'x': real(4, 9, kind=Real), 'o': real(8, kind=Real)}}

def program(x, o):
    launch(k0, 8, [x, o, 1], 4)
""")


def test_a_literal_in_lerp() -> None:
    """0.25 became float32, and did not go with float64."""
    require("""
Real = tg.float64

@tg.kernel
def k0(x: tg.array1d[Real], o: tg.array1d[Real]):
    t = tg.tile_load(x, shape=4)
    tg.tile_store(o, tg.lerp(t, t[::-1], 0.25) * tg.lerp(x[0], x[1], 1))

ARRAYS = {'x': real(4, kind=Real), 'o': real(4, kind=Real)}

def program(x, o):
    launch_tiled(k0, 1, [x, o], 4)
""")


@pytest.mark.parametrize("value", ["s", "s * Real(i)"])
@pytest.mark.parametrize("leaves", ["i == 0", "i == 2", "i > 0"])
def test_one_element_written_by_the_lanes_that_are_left(leaves: str, value: str) -> None:
    """Lanes that had not written the element took its cotangent."""
    require(f"""
Real = tg.float64

@tg.kernel
def k0(x: tg.array1d[Real], o: tg.array1d[Real]):
    g, i = tg.tid()
    s = x[g]
    if {leaves}:
        return
    o[g] = {value}

ARRAYS = {{'x': real(2, kind=Real), 'o': real(2, kind=Real)}}

def program(x, o):
    launch_tiled(k0, 2, [x, o], 3)
""")


@pytest.mark.parametrize("effect", ["tg.atomic_add(a, 0, 0.5)", "a[1] = a[1] * 0.5 + 1.0", "a[2] += 1.0"])
def test_what_a_block_does_once_in_a_loop_beside_lane_code(effect: str) -> None:
    """Every vector of lanes ran the whole loop, and so did what happens once for the block."""
    require(f"""
Real = tg.float64

@tg.kernel
def k0(a: tg.array1d[Real], own: tg.array2d[Real], n: int):
    g, i = tg.tid()
    for _ in range(n):
        {effect}
        own[g, i] = tg.sin(own[g, i]) + Real(i)

ARRAYS = {{'a': real(3, kind=Real), 'own': real(1, 40, kind=Real)}}

def program(a, own):
    launch_tiled(k0, 1, [a, own, 3], 40)
""")
