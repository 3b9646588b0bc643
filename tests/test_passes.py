"""Every pass by numbers: a kernel is interpreted before and after it, and has become what the pass promises."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import interpreter
from tilegrad.ad import differentiate
from tilegrad.compiler import PASSES
from tilegrad.fuzz import grammar
from tilegrad.fuzz import program as fuzz
from tilegrad.fuzz.coverage import Coverage
from tilegrad.ir.core import Kernel
from tilegrad.ir.parser import parse
from tilegrad.ir.printer import to_text
from tilegrad.ir.verify import verify
from tilegrad.kernel import launch_grid
from tilegrad.op import REGISTRY, infer_types
from tilegrad.passes import cse, dce, effects, licm, simplify

F32 = np.float32
HEAD = "kernel k(%a: array<float32,2>, %o: array<float32,2>, %n: int32, %x: float32) block_dim=4 grid=1 tiled {\n"
CONSTANTS = """\
  %zero = constant() {dtype=int32, value=0} : int32
  %one = constant() {dtype=int32, value=1} : int32
  %three = constant() {dtype=int32, value=3} : int32
"""


def read(body: str) -> Kernel:
    return verify(parse(HEAD + CONSTANTS + body + "\n  yield()\n}\n", REGISTRY), infer_types)


def results(kernel: Kernel, n: int) -> np.ndarray:
    """What the kernel leaves in `o`, or the error that it raises."""
    rng = np.random.default_rng(3)
    a, o = rng.standard_normal((4, 4)).astype(F32), rng.standard_normal((4, 4)).astype(F32)
    try:
        interpreter.run(kernel, [a, o, n, F32(0.7)], (2,))
    except tg.TilegradError as error:
        return np.array([type(error).__name__])
    return np.concatenate([a, o])


def after(run, kernel: Kernel) -> Kernel:
    """The kernel after a pass, valid and with the same results, bit by bit."""
    before = to_text(kernel)
    new = verify(run(kernel), infer_types)
    assert to_text(kernel) == before, "a pass changed its input"
    for n in (-1, 0, 1, 3):
        np.testing.assert_array_equal(results(kernel, n), results(new, n))
    return new


def counts(kernel: Kernel) -> Counter[str]:
    return Counter(op.name for op in kernel.body.walk())


def top(kernel: Kernel) -> list[str]:
    """Names of the ops outside of all regions."""
    return [op.name for op in kernel.body.ops]


def clean(kernel: Kernel) -> Kernel:
    return after(dce.run, kernel)


# --- simplify ---------------------------------------------------------------------------------------------------------


def simplified(body: str) -> Kernel:
    return clean(after(simplify.run, read(body)))


LOAD = "  %t = tile_load(%a, %zero, %zero) {fill=0, shape=(4, 4)} : float32[4,4]\n"
STORE = "  tile_store(%o, %r, %zero, %zero)"


def test_constants_are_folded():
    k = simplified("""\
  %2 = add(%one, %three) : int32
  %3 = mul(%2, %2) : int32
  %4 = lt(%3, %one) : bool
  %5 = where(%4, %one, %three) : int32
  %6 = floordiv(%5, %three) : int32
  array_store(%o, %x, %6, %zero)""")
    assert counts(k) == {"constant": 2, "array_store": 1, "yield": 1}


def test_a_division_by_a_constant_zero_is_left_to_raise():
    k = simplified("  %2 = floordiv(%one, %zero) : int32\n  array_store(%o, %x, %2, %zero)")
    assert counts(k)["floordiv"] == 1


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("mul(%t, %ones)", False), ("mul(%ones, %t)", False), ("div(%t, %ones)", False), ("sub(%t, %zeros)", False),
        ("chain(%t, %ones)", False), ("chain(%ones, %t)", True), ("neg(%minus)", False), ("add(%t, %zeros)", True),
        ("div(%ones, %t)", True), ("sub(%t, %negative)", True), ("sub(%zeros, %t)", True),
        ("mul(%t, %zeros)", True), ("where(%yes, %t, %ones)", False), ("where(%no, %ones, %t)", False),
        ("where(%unknown, %t, %t)", False), ("where(%unknown, %t, %ones)", True),
    ],
)  # fmt: skip
def test_neutral_operands(line, kept):
    k = simplified(
        LOAD
        + """\
  %1 = constant() {dtype=float32, value=1.0} : float32
  %0 = constant() {dtype=float32, value=0.0} : float32
  %n0 = constant() {dtype=float32, value=-0.0} : float32
  %true = constant() {dtype=bool, value=True} : bool
  %false = constant() {dtype=bool, value=False} : bool
  %ones = tile_full(%1) {shape=(4, 4)} : float32[4,4]
  %zeros = tile_full(%0) {shape=(4, 4)} : float32[4,4]
  %negative = tile_full(%n0) {shape=(4, 4)} : float32[4,4]
  %yes = tile_full(%true) {shape=(4, 4)} : bool[4,4]
  %no = tile_full(%false) {shape=(4, 4)} : bool[4,4]
  %unknown = lt(%t, %zeros) : bool[4,4]
  %minus = neg(%t) : float32[4,4]
"""
        + f"  %r = {line} : float32[4,4]\n"
        + STORE
    )
    assert (line.split("(")[0] in counts(k)) == kept


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("bit_and(%b, %true)", False), ("bit_and(%true, %b)", False), ("bit_and(%b, %false)", False),
        ("bit_or(%b, %false)", False), ("bit_or(%true, %b)", False), ("bit_or(%b, %b)", True), ("invert(%not)", False),
        ("invert(%b)", True),
    ],
)  # fmt: skip
def test_logic_of_flags(line, kept):
    k = simplified(f"""\
  %true = constant() {{dtype=bool, value=True}} : bool
  %false = constant() {{dtype=bool, value=False}} : bool
  %b = lt(%one, %n) : bool
  %not = invert(%b) : bool
  %c = {line} : bool
  %5 = astype(%c) {{dtype=float32}} : float32
  array_store(%o, %5, %zero, %zero)""")
    assert (line.split("(")[0] in counts(k)) == kept


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["tile_transpose(%t) {axes=(1, 0)}", "tile_transpose(%r) {axes=(1, 0)}"], 0),
        (["tile_transpose(%t) {axes=(0, 1)}"], 0),
        (["tile_reshape(%t) {shape=(4, 4)}"], 0),
        (["tile_broadcast(%t) {shape=(4, 4)}"], 0),
        (["tile_transpose(%fill) {axes=(1, 0)}"], 0),
        (["tile_slice(%t, %zero, %zero) {sizes=(4, 4), steps=(1, 1)}"], 0),
        (["tile_slice(%t, %three, %zero) {sizes=(4, 4), steps=(-1, 1)}"], 1),
        (["astype(%t) {dtype=float32}"], 0),
    ],
)
def test_views_that_change_nothing(lines, kept):
    body = LOAD + "  %fill = tile_full(%x) {shape=(4, 4)} : float32[4,4]\n"
    for i, line in enumerate(lines):
        name = "r" if i == len(lines) - 1 else f"r{i}"
        body += f"  %{name} = {line.replace('%r', f'%r{i - 1}')} : float32[4,4]\n"
    k = simplified(body + STORE)
    assert sum(counts(k)[line.split("(")[0]] for line in set(lines)) == kept


def test_transposes_of_three_axes_merge():
    k = simplified(
        LOAD
        + """\
  %1 = tile_reshape(%t) {shape=(2, 1, 8)} : float32[2,1,8]
  %2 = tile_transpose(%1) {axes=(1, 2, 0)} : float32[1,8,2]
  %3 = tile_transpose(%2) {axes=(0, 2, 1)} : float32[1,2,8]
  %r = tile_reshape(%3) {shape=(4, 4)} : float32[4,4]
  %4 = tile_transpose(%2) {axes=(2, 0, 1)} : float32[2,1,8]
  %5 = tile_reshape(%4) {shape=(4, 4)} : float32[4,4]
  tile_store(%a, %5, %one, %zero)
"""
        + STORE
    )
    assert [op.attrs["axes"] for op in k.body.ops if op.name == "tile_transpose"] == [(1, 0, 2)]


def test_views_of_different_shape_merge():
    k = simplified(
        LOAD
        + """\
  %1 = tile_reshape(%t) {shape=(2, 8)} : float32[2,8]
  %2 = tile_reshape(%1) {shape=(16,)} : float32[16]
  %3 = tile_reshape(%2) {shape=(4, 4)} : float32[4,4]
  %4 = tile_full(%x) {shape=(2,)} : float32[2]
  %5 = tile_reshape(%4) {shape=(2, 1)} : float32[2,1]
  %6 = tile_broadcast(%5) {shape=(2, 8)} : float32[2,8]
  tile_store(%o, %6, %three, %zero)
  tile_store(%o, %3, %zero, %zero)"""
    )
    assert counts(k)["tile_reshape"] == counts(k)["tile_broadcast"] == 0


PRODUCT = """\
  %p = tile_matmul(%t, %t) : float32[4,4]
"""


def close(run, kernel: Kernel) -> Kernel:
    new = verify(run(kernel), infer_types)
    np.testing.assert_allclose(results(kernel, 3), results(new, 3), rtol=1e-6)
    return new


def test_a_product_that_is_added_accumulates():
    k = close(simplify.run, read(LOAD + PRODUCT + "  %r = add(%t, %p) : float32[4,4]\n" + STORE))
    assert counts(clean(k))["tile_matmul_add"] == 1 and not counts(clean(k))["tile_matmul"]


def test_a_product_that_is_used_twice_stays():
    k = close(simplify.run, read(LOAD + PRODUCT + "  %r = add(%p, %p) : float32[4,4]\n" + STORE))
    assert counts(clean(k))["tile_matmul"] == 1 and not counts(k)["tile_matmul_add"]


def test_a_product_from_outside_of_a_loop_is_not_repeated_in_it():
    k = simplified(
        LOAD
        + PRODUCT
        + """\
  %r = for(%zero, %n, %one, %t) : float32[4,4] (%i: int32, %c: float32[4,4]) {
    %d = add(%c, %p) : float32[4,4]
    yield(%d)
  }
"""
        + STORE
    )
    assert counts(k)["tile_matmul"] == 1


def test_branches_and_loops_that_are_known():
    k = simplified("""\
  %yes = lt(%zero, %one) : bool
  %1 = if(%yes) : float32 {
    %2 = array_load(%a, %one, %one) : float32
    yield(%2)
  } {
    %3 = array_load(%a, %zero, %zero) : float32
    yield(%3)
  }
  %4 = for(%one, %one, %one, %1) : float32 (%i: int32, %c: float32) {
    %5 = add(%c, %c) : float32
    yield(%5)
  }
  %6 = for(%one, %three, %three, %4) : float32 (%j: int32, %d: float32) {
    array_store(%o, %d, %j, %j)
    %7 = mul(%d, %d) : float32
    yield(%7)
  }
  array_store(%o, %6, %zero, %zero)""")
    assert counts(k) == {"constant": 2, "array_load": 1, "array_store": 2, "mul": 1, "yield": 1}


def test_carried_values_that_never_change():
    k = simplified("""\
  %u, %v = for(%zero, %n, %one, %x, %x) : float32, float32 (%i: int32, %c: float32, %d: float32) {
    %5 = add(%c, %d) : float32
    yield(%5, %d)
  }
  %w, %m = while(%v, %zero) : float32, int32 (%e: float32, %k: int32) {
    %6 = lt(%k, %n) : bool
    yield(%6)
  } (%e.1: float32, %k.1: int32) {
    array_store(%o, %e.1, %k.1, %k.1)
    %7 = add(%k.1, %one) : int32
    yield(%e.1, %7)
  }
  array_store(%o, %u, %zero, %one)
  array_store(%o, %w, %one, %zero)""")
    loops = [op for op in k.body.ops if op.regions]
    assert [len(op.results) for op in loops] == [1, 1]


def test_a_result_that_both_branches_take_from_outside():
    k = simplified("""\
  %b = lt(%one, %n) : bool
  %1, %2 = if(%b) : float32, int32 {
    yield(%x, %one)
  } {
    yield(%x, %three)
  }
  array_store(%o, %1, %2, %zero)""")
    assert [len(op.results) for op in k.body.ops if op.name == "if"] == [1]


# --- common subexpressions --------------------------------------------------------------------------------------------


def merged(body: str) -> Counter[str]:
    return counts(after(cse.run, read(body)))


def test_equal_ops_are_one():
    found = merged("""\
  %1 = mul(%x, %x) : float32
  %2 = mul(%x, %x) : float32
  %3 = constant() {dtype=int32, value=1} : int32
  %4 = constant() {dtype=int64, value=1} : int64
  %5 = constant() {dtype=float32, value=0.0} : float32
  %6 = constant() {dtype=float32, value=-0.0} : float32
  %7 = add(%1, %2) : float32
  array_store(%o, %7, %3, %4)
  array_store(%o, %5, %one, %zero)
  array_store(%o, %6, %zero, %zero)""")
    assert found["mul"] == 1 and found["constant"] == 6


READS = """\
  %1 = array_load(%a, %zero, %zero) : float32
  BETWEEN
  %2 = array_load(%a, %zero, %zero) : float32
  %3 = add(%1, %2) : float32
  array_store(%o, %3, %one, %one)"""


@pytest.mark.parametrize(
    ("between", "loads"),
    [
        ("", 1),
        ("array_store(%o, %x, %zero, %zero)", 1),
        ("array_store(%a, %x, %zero, %zero)", 2),
        ("%w = array_row(%a, %zero) : array<float32,1>\n  array_store(%w, %x, %zero)", 2),
        ("%old = array_atomic_add(%a, %x, %zero, %zero) : float32", 2),
        ("%b = lt(%one, %n) : bool\n  if(%b) {\n array_store(%a, %x, %zero, %zero)\n yield()\n } {\n yield()\n }", 2),
        ("for(%zero, %n, %one) (%i: int32) {\n array_store(%a, %x, %zero, %zero)\n yield()\n }", 2),
    ],
)
def test_a_read_is_repeated_after_a_write_to_the_same_memory(between, loads):
    assert merged(READS.replace("BETWEEN", between))["array_load"] == loads


def test_arrays_that_share_memory_are_the_same_memory():
    kernel = parse(to_text(read(READS.replace("BETWEEN", "array_store(%o, %x, %zero, %zero)")))
                   .replace("grid=1 tiled", "grid=1 tiled overlaps=(0, 0, 1, 2)"), REGISTRY)  # fmt: skip
    assert counts(cse.run(kernel))["array_load"] == 2


def test_a_read_in_a_loop_that_writes_later_in_its_turn():
    found = merged("""\
  %1 = array_load(%a, %zero, %zero) : float32
  for(%zero, %n, %one) (%i: int32) {
    %2 = array_load(%a, %zero, %zero) : float32
    %3 = add(%2, %1) : float32
    array_store(%a, %3, %zero, %zero)
    yield()
  }""")
    assert found["array_load"] == 2


def test_what_a_branch_computes_is_not_known_after_it():
    found = merged("""\
  %b = lt(%one, %n) : bool
  %1 = if(%b) : float32 {
    %2 = mul(%x, %x) : float32
    yield(%2)
  } {
    yield(%x)
  }
  %3 = mul(%x, %x) : float32
  %4 = add(%3, %1) : float32
  array_store(%o, %4, %zero, %zero)""")
    assert found["mul"] == 2


def test_cheap_tiles_are_not_kept_for_a_loop():
    loop = """\
  %u = tile_transpose(%t) {axes=(1, 0)} : float32[4,4]
  %s = tile_sum(%t) {axes=(0,), keepdims=False} : float32[4]
  tile_store(%o, %u, %zero, %zero)
  for(%zero, %n, %one) (%i: int32) {
    %v = tile_transpose(%t) {axes=(1, 0)} : float32[4,4]
    %w = tile_sum(%t) {axes=(0,), keepdims=False} : float32[4]
    %w2 = tile_reshape(%w) {shape=(1, 4)} : float32[1,4]
    tile_store(%o, %v, %one, %i)
    tile_store(%o, %w2, %i, %zero)
    yield()
  }"""
    found = merged(LOAD + loop)
    assert found["tile_transpose"] == 2 and found["tile_sum"] == 1


# --- loop-invariant code ----------------------------------------------------------------------------------------------


def hoisted(body: str) -> Kernel:
    return clean(after(licm.run, read(body)))


def test_loads_and_products_leave_nested_loops_with_what_they_need():
    k = hoisted("""\
  for(%zero, %n, %one) (%i: int32) {
    for(%zero, %n, %one) (%j: int32) {
      %two = add(%one, %one) : int32
      %t = tile_load(%a, %zero, %two) {fill=0, shape=(4, 4)} : float32[4,4]
      %u = tile_transpose(%t) {axes=(1, 0)} : float32[4,4]
      %p = tile_matmul(%t, %u) : float32[4,4]
      %q = add(%p, %u) : float32[4,4]
      tile_store(%o, %q, %i, %j)
      yield()
    }
    yield()
  }""")
    assert set(top(k)) == {"constant", "add", "tile_load", "tile_transpose", "tile_matmul", "for", "yield"}
    inner = next(op for op in k.body.ops if op.name == "for").regions[0].ops[0].regions[0]
    assert [op.name for op in inner.ops] == ["add", "tile_store", "yield"]


@pytest.mark.parametrize(
    "line",
    [
        "tile_store(%a, %s, %zero, %zero)",
        "%old = tile_atomic_add(%a, %s, %zero, %zero) : float32[4,4]",
        "%w = array_row(%a, %zero) : array<float32,1>\n    array_store(%w, %x, %zero)",
    ],
)
def test_a_load_stays_if_the_loop_writes_its_array(line):
    k = hoisted(f"""\
  for(%zero, %n, %one) (%i: int32) {{
  {LOAD}
    %s = add(%t, %t) : float32[4,4]
    tile_store(%o, %s, %i, %zero)
    {line}
    yield()
  }}""")
    assert "tile_load" not in top(k)


def test_what_depends_on_the_turn_or_may_raise_or_stands_in_a_branch_stays():
    k = hoisted("""\
  %b = lt(%one, %n) : bool
  for(%zero, %n, %one) (%i: int32) {
    %t = tile_load(%a, %zero, %i) {fill=0, shape=(4, 4)} : float32[4,4]
    %u = tile_load(%a, %zero, %zero) {fill=0, shape=(4, 4)} : float32[4,4]
    %w = tile_put(%u, %x, %n, %zero) : float32[4,4]
    if(%b) {
      %p = tile_matmul(%u, %u) : float32[4,4]
      tile_store(%o, %p, %zero, %zero)
      yield()
    } {
      yield()
    }
    %r = add(%t, %w) : float32[4,4]
    tile_store(%o, %r, %i, %zero)
    yield()
  }""")
    assert top(k).count("tile_load") == 1 and "tile_put" not in top(k) and "tile_matmul" not in top(k)


def test_maps_move_unless_they_read_arrays_or_the_turn():
    k = hoisted(
        LOAD
        + """\
  for(%zero, %n, %one) (%i: int32) {
    %u = map(%t) : float32[4,4] (%e: float32*) {
      %f = mul(%e, %x) : float32*
      yield(%f)
    }
    %v = map(%t) : float32[4,4] (%e.1: float32*) {
      %g = array_load(%a, %i, %zero) : float32
      %h = add(%e.1, %g) : float32*
      yield(%h)
    }
    %s = tile_sum(%u) {axes=(0,), keepdims=True} : float32[1,4]
    tile_store(%o, %s, %i, %zero)
    tile_store(%o, %v, %i, %i)
    yield()
  }"""
    )
    assert top(k).count("map") == 1 and "tile_sum" in top(k)


# --- dead code --------------------------------------------------------------------------------------------------------


def test_unused_carried_values_results_and_regions_are_dropped():
    k = clean(
        read("""\
  %b = lt(%one, %n) : bool
  %u, %v, %w = for(%zero, %n, %one, %x, %x, %one) : float32, float32, int32
  (%i: int32, %c: float32, %d: float32, %k: int32) {
    %5 = add(%c, %d) : float32
    %6 = mul(%d, %d) : float32
    yield(%5, %6, %i)
  }
  %y, %z = if(%b) : float32, float32 {
    %7 = mul(%v, %x) : float32
    %8 = sin(%7) : float32
    yield(%7, %8)
  } {
    yield(%x, %v)
  }
  %unused = for(%zero, %n, %one, %x) : float32 (%j: int32, %e: float32) {
    %9 = mul(%e, %y) : float32
    yield(%9)
  }
  array_store(%o, %y, %zero, %zero)""")
    )
    assert [len(op.results) for op in k.body.ops if op.regions] == [1, 1]
    assert not {"add", "sin"} & set(counts(k))


def test_values_that_only_feed_each_other_are_dropped():
    k = clean(
        read("""\
  %u, %v = for(%zero, %n, %one, %x, %x) : float32, float32 (%i: int32, %c: float32, %d: float32) {
    %5 = mul(%c, %x) : float32
    yield(%d, %5)
  }
  array_store(%o, %x, %zero, %zero)""")
    )
    assert "for" not in counts(k)


def test_a_loop_keeps_what_its_condition_needs():
    k = clean(
        read("""\
  %u, %v = while(%zero, %x) : int32, float32 (%c: int32, %d: float32) {
    %4 = lt(%c, %n) : bool
    yield(%4)
  } (%c.1: int32, %d.1: float32) {
    array_store(%o, %x, %c.1, %zero)
    %5 = add(%c.1, %one) : int32
    %6 = mul(%d.1, %x) : float32
    yield(%5, %6)
  }""")
    )
    assert [len(op.results) for op in k.body.ops if op.name == "while"] == [1]


def test_effects_in_nested_regions_stay():
    k = clean(
        read("""\
  %b = lt(%zero, %n) : bool
  for(%zero, %n, %one) (%i: int32) {
    if(%b) {
      for(%zero, %i, %one) (%j: int32) {
        array_store(%o, %x, %i, %j)
        yield()
      }
      yield()
    } {
      yield()
    }
    yield()
  }""")
    )
    assert counts(k)["array_store"] == 1


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("%1 = array_load(%a, %n, %zero) : float32", True),
        ("%1 = tile_extract(%t, %n, %three) : float32", True),
        ("%1 = tile_extract(%t, %one, %three) : float32", False),
        ("%1 = tile_put(%t, %x, %n, %n) : float32[4,4]", True),
        ("%1 = floordiv(%one, %n) : int32", True),
        ("%1 = floordiv(%n, %three) : int32", False),
        ("%1 = div(%x, %x) : float32", False),
        ("%1 = tile_load(%a, %n, %n) {fill=0, shape=(2, 2)} : float32[2,2]", False),
        ("%old = array_atomic_add(%o, %x, %one, %one) : float32", True),
    ],
)
def test_unused_ops_stay_only_if_they_may_raise_or_have_an_effect(line, kept):
    name = line.split(" = ")[1].split("(")[0]
    assert (name in counts(clean(read(LOAD + "  " + line)))) == kept


def test_a_map_needs_one_tile():
    k = clean(
        read(
            LOAD
            + """\
  %u = tile_transpose(%t) {axes=(1, 0)} : float32[4,4]
  %r, %q = map(%t, %u) : float32[4,4], float32[4,4] (%e: float32*, %f: float32*) {
    %g = spread(%x) : float32*
    yield(%g, %f)
  }
"""
            + STORE
        )
    )
    assert "tile_transpose" not in counts(k) and counts(k)["map"] == 1


def test_effects_of_ops_are_known():
    k = read(
        """\
  %r = array_row(%a, %zero) : array<float32,1>
  array_store(%r, %x, %zero)
  for(%zero, %n, %one) (%i: int32) {
    tile_store(%o, %T, %i, %i)
    yield()
  }""".replace("%T", "%t").replace("  %r =", LOAD + "  %r =", 1)
    )
    store, loop = k.body.ops[-3:-1]
    assert effects.memories(k, store) == {0} and effects.written(k, *loop.regions) == {1}
    assert effects.written(k, k.body) == {0, 1}


# --- all passes on traced kernels -------------------------------------------------------------------------------------


@tg.kernel
def model(x: tg.array2d[float], w: tg.array2d[float], o: tg.array2d[float], n: int):
    i = tg.tid()
    h = tg.tile_load(x, shape=(4, 4), offset=(i * 4, 0))
    for k in range(n):
        u = tg.tile_load(w, shape=(4, 4))
        h = tg.tanh(h @ u.T + h * 1.0)
        if k % 2 == 1:
            h[k % 4] = h[0] * float(k)
            continue
        m = tg.tile_max(h, axis=1, keepdims=True)
        h = tg.exp(h - m)
    tg.tile_store(o, h, offset=(i * 4, 0))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_the_whole_pipeline_keeps_results(n, backward):
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((8, 4)).astype(F32), rng.standard_normal((4, 4)).astype(F32), np.zeros((8, 4), F32)]
    kernel = model.ir(*args, n, dim=2)
    grads = []
    if backward:
        kernel = differentiate(kernel, (True, True, True, False)).kernel
        grads = [np.zeros((8, 4), F32), np.zeros((4, 4), F32), np.ones((8, 4), F32)]
    found = []
    for k in (kernel, *stages(kernel)):
        copies = [np.array(a) for a in args], [np.array(g) for g in grads]
        interpreter.run(k, [*copies[0], n, *copies[1]], (2,))
        found.append(copies[1] if backward else copies[0])
    for later in found[1:]:
        for a, b in zip(found[0], later, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)


def stages(kernel: Kernel):
    for run in PASSES:
        kernel = verify(run(kernel), infer_types)
        yield kernel


def outcomes(kernel: Kernel, args: list, grid: tuple[int, ...]) -> list[list[np.ndarray]]:
    """What the kernel leaves in its arrays, as it is and after each pass."""
    found = []
    for k in (kernel, *stages(kernel)):
        copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
        with np.errstate(all="ignore"):
            interpreter.run(k, copies, grid)
        found.append([a for a in copies if isinstance(a, np.ndarray)])
    return found


@pytest.mark.parametrize("number", range(40))
def test_random_kernels_keep_results(number, monkeypatch):
    rng = np.random.default_rng([20, number])
    program = fuzz.read(grammar.program(rng, Coverage()))
    seen = 0

    def check(kernel, dim, inputs, block_dim, tiled):
        nonlocal seen
        grid = launch_grid(kernel, dim)
        spec, natives, _ = kernel.specialise(inputs, grid, block_dim, tiled)
        forward, args = spec.ir_for(natives), [natives[i] for i in spec.passed]
        wanted = tuple(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in args)
        todo = [(forward, args)]
        with contextlib.suppress(tg.GradientUndefined):
            grads = [rng.uniform(-1, 1, a.shape).astype(a.dtype) for a, w in zip(args, wanted, strict=True) if w]
            todo.append((differentiate(forward, wanted).kernel, args + grads))
        for ir, values in todo:
            first, *others = outcomes(ir, values, grid)
            seen += 1
            for later in others:
                for a, b in zip(first, later, strict=True):
                    tolerance = 1e-9 if a.dtype == np.float64 else 1e-3
                    np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
        launch = tg.launch_tiled if tiled else tg.launch
        launch(kernel, dim, inputs, block_dim=block_dim, device="interpret")

    monkeypatch.setattr(program.bench, "_launch", check)
    program.run(program.arrays(number), "interpret")
    fuzz.forget(program)
    assert seen


def test_the_weights_are_loaded_once():
    a = np.zeros((4, 4), F32)
    *_, last = stages(model.ir(a, a.copy(), a.copy(), 3))
    assert top(last).count("tile_load") == 2 and counts(last)["tile_load"] == 2
