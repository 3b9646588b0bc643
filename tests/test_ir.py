"""Tile IR as text and its verifier."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.ad import differentiate
from tilegrad.diagnostics import CompilerBug, Loc, TilegradError
from tilegrad.ir.core import Block, Kernel, Op, Value, free_values
from tilegrad.ir.parser import parse
from tilegrad.ir.printer import to_text
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType
from tilegrad.ir.verify import verify
from tilegrad.op import REGISTRY, infer_types

F32 = np.float32

SCALE = """\
kernel scale(%a: array<float32,1>, %s: float32) block_dim=64 grid=1 tiled {
  %0 = constant() {dtype=int32, value=0} : int32
  %1 = tile_load(%a, %0) {fill=0, shape=(64,)} : float32[64]
  %2 = tile_full(%s) {shape=(64,)} : float32[64]
  %3 = mul(%1, %2) : float32[64]
  tile_store(%a, %3, %0)
  yield()
}
"""

REGIONS = """\
kernel walk(%a: array<float64,2,dense>, %n: int32) block_dim=8 grid=2 overlaps=(0, 1) {
  %0 = constant() {dtype=int32, value=0} : int32
  %1 = constant() {dtype=int32, value=1} : int32
  %2 = constant() {dtype=float64, value=-0.0} : float64
  %saved = stack() {items=(:float64, :int32), varying=False} : stack<float64;int32>
  %3, %4 = for(%0, %n, %1, %2, %0) : float64, int32 (%i: int32, %x: float64, %k: int32) {
    %5 = lt(%k, %n) : bool
    %6 = if(%5) : float64 {
      push(%saved, %x, %k)
      yield(%2)
    } {
      yield(%x)
    }
    yield(%6, %i)
  }
  %7 = while(%4) : int32 (%k.1: int32) {
    %8 = lt(%k.1, %n) : bool
    yield(%8)
  } (%k.2: int32) {
    %9 = add(%k.2, %1) : int32
    yield(%9)
  }
  %10 = lane_id() : int32*
  %11 = lt(%10, %7) : bool*
  %12 = spread(%3) : float64*
  %13 = if(%11) : float64* {
    %14 = astype(%10) {dtype=float64} : float64*
    yield(%14)
  } {
    yield(%12)
  }
  array_store(%a, %13, %10, %0)
  yield()
}
"""


def read(text: str) -> Kernel:
    return parse(text, REGISTRY)


@pytest.mark.parametrize("text", [SCALE, REGIONS])
def test_text_is_read_back_as_it_was(text):
    kernel = verify(read(text), infer_types)
    assert to_text(kernel) == to_text(read(to_text(kernel)))


def test_the_canonical_text_is_a_fixed_point():
    assert to_text(read(SCALE)) == SCALE


def test_facts_of_the_kernel_are_kept():
    kernel = read(REGIONS)
    assert (kernel.name, kernel.block_dim, kernel.grid_ndim, kernel.tiled, kernel.overlaps) == (
        "walk",
        8,
        2,
        False,
        (0, 1),
    )
    assert [p.name for p in kernel.params] == ["a", "n"] and [p.index for p in kernel.params] == [0, 1]


def attribute(x):
    """An attribute after a round trip through text."""
    block = Block()
    block.ops += [
        Op(REGISTRY["constant"], (), {"value": x}, (), (ScalarType(dt.int32),)),
        Op(REGISTRY["yield"], (), {}, (), ()),
    ]
    return read(to_text(Kernel("k", block))).body.ops[0].attrs["value"]


@pytest.mark.parametrize(
    "x",
    [
        0, -7, 2**64 - 1, True, False, None, 0.1, -0.0, 1e-45, 5e-324, 1.7976931348623157e308, math.inf, -math.inf,
        "text", "it's \"so\"\n\t\\ \x00 é ∑ {%a}", "", (), (1,), ((1, 2.5), ("a", True)), dt.bfloat16, dt.bool_,
        ScalarType(dt.float32), ScalarType(dt.int8, True), TileType(dt.float16, (3, 4)), TileType(dt.uint64, (1,) * 8),
        ArrayType(dt.int64, 3), ArrayType(dt.float64, 1, True), StackType((), True),
        StackType((ScalarType(dt.bool_, True), TileType(dt.float32, (2,)))),
        Loc("a file.py", 3, 4, 9, "f", "    x = 'y'", Loc("b.py", 1)),
    ],
)  # fmt: skip
def test_attributes_are_exact(x):
    found = attribute(x)
    assert type(found) is type(x) and found == x
    if isinstance(x, float):
        assert math.copysign(1, found) == math.copysign(1, x)


def test_a_nan_stays_one():
    assert math.isnan(attribute(math.nan))


@tg.func
def halve(x: float):
    return x * 0.5


@tg.kernel
def everything(a: tg.array2d[float], o: tg.array2d[float], n: int):
    i, j = tg.tid()
    t = tg.tile_load(a, shape=(4, 6), offset=(i * 4, j * 6))
    total = tg.tile_zeros(shape=(4, 6), dtype=float)
    for k in range(n):
        if k % 2 == 0:
            total += tg.tile_map(halve, t)
        else:
            total[0] = t[k % 4] @ t.T @ t
    while n > 0:
        n -= 1
        total = total + tg.sin(t)
    tg.tile_store(o, total, offset=(i * 4, j * 6))


@tg.kernel
def lanes(a: tg.array[float], o: tg.array[float], n: int):
    i = tg.tid()
    x = a[i]
    k = int(0)
    while x < 10.0:
        x = x * 2.0 + 1.0
        k += 1
        if k > n:
            break
    o[i] = x + tg.tile_sum(tg.tile(x))[0]


def traced():
    a, b = np.zeros((9, 9), F32), np.zeros(9, F32)
    yield everything.ir(a, a.copy(), 3, dim=(2, 2))
    yield lanes.ir(b, b.copy(), 3, dim=9, tiled=False, block_dim=4)


@pytest.mark.parametrize("kernel", list(traced()), ids=lambda k: k.name)
def test_traced_kernels_and_their_gradients_are_valid_and_round_trip(kernel):
    backward = differentiate(kernel, (True, True, False)).kernel
    for k in (kernel, backward, Rewriter(kernel).run()):
        text = to_text(verify(k, infer_types), locs=True)
        assert to_text(verify(read(text), infer_types), locs=True) == text


def test_locations_are_kept_with_their_calls():
    kernel = next(traced())
    found = read(to_text(kernel, locs=True))
    for a, b in zip(kernel.body.walk(), found.body.walk(), strict=True):
        assert a.loc == b.loc
    assert any(op.loc.called_from is not None for op in found.body.walk())


def test_free_values_of_a_region():
    kernel = read(REGIONS)
    (loop,) = (op for op in kernel.body.ops if op.name == "for")
    assert [v.name for v in free_values(loop.regions[0])] == ["n", "saved", ""]


# --- errors of the text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul(", "mull(", "there is no op `mull`"),
        ("%2)", "%7)", "%7 is not defined"),
        ("%1 = tile_load", "%0 = tile_load", "%0 is defined twice"),
        (": float32[64]", ": float33[64]", "`float33` is not an element type"),
        ("fill=0", "fill=zero", "`zero` is not an attribute"),
        (" : float32[64]\n  tile_store", "\n  tile_store", "1 results, but 0 types"),
        ("yield()", "yield(", "expected a value, found `}`"),
        ("block_dim=64", "block_dim", "expected `=`"),
        ("64", "6?", "this is not understood"),
        ("  yield()\n}\n", "", "expected a name, found `the end`"),
    ],
)
def test_a_mistake_in_the_text_is_shown(old, new, message):
    with pytest.raises(TilegradError, match="Tile IR text") as error:
        read(SCALE.replace(old, new, 1))
    assert message in str(error.value) and "^" in str(error.value)


# --- the verifier -----------------------------------------------------------------------------------------------------

LANES = """\
kernel k(%a: array<float32,1>, %n: int32) block_dim=8 grid=1 {
  %t = tile_full(%n) {shape=(8,)} : int32[8]
  %lane = lane_id() : int32*
  %c = lt(%lane, %n) : bool*
  %r = if(%c) : int32* {
    BODY
    yield(%lane)
  } {
    yield(%lane)
  }
  yield()
}
"""
MAP = """\
kernel k(%a: array<float32,1>, %n: int32) block_dim=8 grid=1 {
  %t = tile_full(%n) {shape=(8,)} : int32[8]
  %lane = lane_id() : int32*
  %r = map(%t) : int32[8] (%x: int32*) {
    %y = BODY : int32*
    yield(%y)
  }
  yield()
}
"""


@pytest.mark.parametrize(
    ("text", "old", "new", "rule"),
    [
        (REGIONS, "%7 = while(%4)", "%7 = while(%4)", ""),
        (SCALE, "float32[64]\n  tile_store", "float64[64]\n  tile_store", "V3"),
        (SCALE, "mul(%1, %2)", "mul(%1, %s)", "V3"),
        (SCALE, "tile_store(%a, %3, %0)", "tile_store(%a, %3)", "V3"),
        (SCALE, "%s: float32", "%s: float32*", "V3"),
        (SCALE, "fill=0, ", "filling=0, ", "V3"),
        (SCALE, "  yield()\n", "", "V2"),
        (SCALE, "tile_store(%a, %3, %0)", "yield()", "V2"),
        (SCALE, "yield()", "yield(%0)", "V4"),
        (REGIONS, "if(%5)", "if(%n)", "V4"),
        (REGIONS, "yield(%6, %i)", "yield(%6)", "V4"),
        (REGIONS, "yield(%6, %i)", "yield(%6, %6)", "V4"),
        (REGIONS, "(%i: int32, %x", "(%i: int64, %x", "V4"),
        (REGIONS, "for(%0, %n, %1, ", "for(%0, %2, %1, ", "V4"),
        (REGIONS, ": int32 (%k.1: int32)", ": int64 (%k.1: int32)", "V4"),
        (REGIONS, "yield(%8)", "yield(%k.1)", "V4"),
        (REGIONS, "yield(%12)", "yield(%3)", "V4"),
        (LANES, "BODY", "", ""),
        (LANES, "BODY", "%s = tile_sum(%t) {axes=(0,), keepdims=False} : int32[1]", "V5"),
        (LANES, "BODY", "%s = tile_full(%n) {shape=(2,)} : int32[2]", "V5"),
        (LANES, "BODY", "%s = tile_from_lanes(%lane) {block_dim=8} : int32[8]", "V5"),
        (LANES, "BODY", "%e = tile_extract(%t, %lane) : int32*", ""),
        (MAP, "BODY", "add(%x, %n)", ""),
        (MAP, "BODY", "add(%x, %lane)", "V1"),
        (MAP, "BODY", "lane_id()", "V6"),
    ],
)
def test_broken_rules_are_found(text, old, new, rule):
    assert old in text
    kernel = read(text.replace(old, new, 1))
    if not rule:
        verify(kernel, infer_types)
        return
    with pytest.raises(CompilerBug, match=f"breaks rule {rule}") as error:
        verify(kernel, infer_types)
    assert "kernel " in str(error.value) and "report" in str(error.value)


def test_a_value_from_inside_a_region_is_not_known_outside():
    kernel = read(REGIONS)
    loop = next(op for op in kernel.body.ops if op.name == "for")
    inner = loop.regions[0].ops[0].result
    kernel.body.ops.insert(-1, Op(REGISTRY["invert"], (inner,), {}, (), (inner.type,)))
    with pytest.raises(CompilerBug, match="V1.*operand 0 is not defined here"):
        verify(kernel, infer_types)
    assert "->" in to_text(kernel, mark=loop) and "%undefined" not in to_text(kernel, mark=loop)


def test_a_result_that_belongs_to_another_op_is_found():
    kernel = read(SCALE)
    op = kernel.body.ops[0]
    op.results = (Value(op.result.type),)
    with pytest.raises(CompilerBug, match="V1"):
        verify(kernel, infer_types)
