"""The interpreter: lanes that part, regions, stacks, order of effects, and errors. Kernels are written as text."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import interpreter
from tilegrad.ir.core import Kernel
from tilegrad.ir.parser import parse
from tilegrad.ir.verify import verify
from tilegrad.op import REGISTRY, infer_types

LANES = 5

HEAD = f"""\
kernel k(%a: array<int32,1>, %o: array<int32,1>, %n: int32) block_dim={LANES} grid=1 {{
  %zero = constant() {{dtype=int32, value=0}} : int32
  %one = constant() {{dtype=int32, value=1}} : int32
  %two = constant() {{dtype=int32, value=2}} : int32
  %lane = lane_id() : int32*
  %i = thread_id() {{axis=0}} : int32*
  %x = array_load(%a, %i) : int32*
"""


def read(body: str) -> Kernel:
    text = HEAD + textwrap.dedent(body) + "\n  yield()\n}\n"
    return verify(parse(text, REGISTRY), infer_types)


def run(body: str, a: list[int], n: int = 3, size: int | None = None) -> list[int]:
    """What the kernel leaves in `o` when it runs once for each element of `a`."""
    out = np.full(size or len(a), -1, np.int32)
    interpreter.run(read(body), [np.array(a, np.int32), out, n], (len(a),))
    return list(map(int, out))


VALUES = [3, 0, -2, 7, 1, 5, 2]  # one whole block and two lanes of another


def test_only_live_lanes_run():
    assert run("array_store(%o, %lane, %i)", VALUES) == [0, 1, 2, 3, 4, 0, 1]
    assert (
        run("%c = lane_count() : int32\n%d = spread(%c) : int32*\narray_store(%o, %d, %i)", VALUES) == [5] * 5 + [2] * 2
    )


def test_a_branch_runs_for_its_lanes():
    body = """\
      %c = lt(%x, %two) : bool*
      %r = if(%c) : int32* {
        %p = mul(%x, %n) : int32*
        array_store(%a, %zero, %i)
        yield(%p)
      } {
        %s = spread(%n) : int32*
        yield(%s)
      }
      array_store(%o, %r, %i)"""
    a = np.array(VALUES, np.int32)
    out = np.zeros_like(a)
    interpreter.run(read(body), [a, out, 10], (len(VALUES),))
    assert list(out) == [10 * x if x < 2 else 10 for x in VALUES]
    assert list(a) == [0 if x < 2 else x for x in VALUES]


def test_a_branch_that_no_lane_takes_does_not_run():
    body = """\
      %c = lt(%x, %zero) : bool*
      if(%c) {
        %never = floordiv(%x, %zero) : int32*
        array_store(%o, %never, %i)
        yield()
      } {
        yield()
      }"""
    assert run(body, [1, 2, 3]) == [-1, -1, -1]


def test_loops_of_different_length():
    body = """\
      %r, %last = for(%zero, %x, %one, %x, %x) : int32*, int32* (%k: int32*, %c: int32*, %d: int32*) {
        %p = mul(%k, %n) : int32*
        %q = add(%c, %p) : int32*
        yield(%q, %k)
      }
      %s = add(%r, %last) : int32*
      array_store(%o, %s, %i)"""
    assert run(body, VALUES) == [x + sum(3 * k for k in range(x)) + (x - 1 if x > 0 else x) for x in VALUES]


@pytest.mark.parametrize("step", [-3, -1, 0, 2])
def test_ranges_count_as_in_python(step):
    body = """\
      %u = for(%two, %x, %n, %zero0) : int32* (%k: int32*, %c: int32*) {
        %q = add(%c, %k) : int32*
        yield(%q)
      }
      array_store(%o, %u, %i)""".replace("%u = for", "%zero0 = spread(%zero) : int32*\n      %u = for")
    assert run(body, VALUES, step) == [sum(range(2, x, step)) if step else 0 for x in VALUES]


def test_while_goes_on_until_the_last_lane_is_done():
    body = """\
      %s = spread(%zero) : int32*
      %r, %t = while(%x, %s) : int32*, int32* (%c: int32*, %d: int32*) {
        %b = lt(%c, %n) : bool*
        yield(%b)
      } (%c.1: int32*, %d.1: int32*) {
        %p = add(%c.1, %two) : int32*
        %q = add(%d.1, %one) : int32*
        yield(%p, %q)
      }
      array_store(%o, %t, %i)"""
    assert run(body, VALUES, 6) == [max(0, -(-(6 - x) // 2)) for x in VALUES]


def test_values_from_outside_are_those_of_the_lanes_in_nested_regions():
    body = """\
      %c = gt(%x, %zero) : bool*
      if(%c) {
        for(%zero, %x, %two) (%k: int32*) {
          %odd = gt(%x, %two) : bool*
          if(%odd) {
            %s = add(%x, %k) : int32*
            %old = array_atomic_add(%o, %s, %i) : int32*
            yield()
          } {
            %old.1 = array_atomic_add(%o, %x, %i) : int32*
            yield()
          }
          yield()
        }
        yield()
      } {
        yield()
      }"""
    assert run(body, VALUES) == [-1 + sum(x + k if x > 2 else x for k in range(0, x, 2)) for x in VALUES]


def test_a_map_runs_for_every_element():
    body = """\
      %t = tile_arange(%one, %two) {size=6} : int32[6]
      %m = tile_reshape(%t) {shape=(2, 3)} : int32[2,3]
      %u, %v = map(%m) : int32[2,3], int32[2,3] (%e: int32*) {
        %c = lt(%e, %n) : bool*
        %r = if(%c) : int32* {
          %y = mul(%e, %e) : int32*
          yield(%y)
        } {
          %z = array_load(%a, %one) : int32
          %w = spread(%z) : int32*
          yield(%w)
        }
        yield(%r, %n)
      }
      %f = tile_reshape(%u) {shape=(6,)} : int32[6]
      %g = tile_reshape(%v) {shape=(6,)} : int32[6]
      %h = add(%f, %g) : int32[6]
      tile_store(%o, %h, %zero)"""
    assert run(body, [40, 50], 6, size=6) == [1 + 6, 9 + 6, 25 + 6, 56, 56, 56]


def test_a_stack_of_the_block():
    body = """\
      %s = stack() {items=(:int32, :int32*), varying=False} : stack<int32;int32*>
      for(%zero, %n, %one) (%k: int32) {
        %y = mul(%x, %k) : int32*
        push(%s, %k, %y)
        yield()
      }
      for(%zero, %n, %one) (%k.1: int32) {
        %p, %q = pop(%s) : int32, int32*
        %r = mul(%p, %q) : int32*
        %old = array_atomic_add(%o, %r, %i) : int32*
        yield()
      }"""
    assert run(body, VALUES) == [-1 + sum(k * k * x for k in range(3)) for x in VALUES]


def test_a_stack_of_each_lane():
    body = """\
      %s = stack() {items=(:int32*,), varying=True} : stack<int32*>*
      for(%zero, %x, %one) (%k: int32*) {
        push(%s, %k)
        yield()
      }
      %r = spread(%zero) : int32*
      %u = for(%zero, %x, %one, %r) : int32* (%k.1: int32*, %c: int32*) {
        %p = pop(%s) : int32*
        %d = mul(%c, %two) : int32*
        %e = add(%d, %p) : int32*
        yield(%e)
      }
      array_store(%o, %u, %i)"""

    def expected(x: int) -> int:
        total = 0
        for k in reversed(range(x)):
            total = 2 * total + k
        return total

    assert run(body, VALUES) == list(map(expected, VALUES))


def test_lanes_that_write_one_element():
    assert run("%p = spread(%zero) : int32*\narray_store(%o, %x, %p)", [4, 8, 6])[0] == 6
    assert run("array_store(%o, %x, %zero)", [4, 8, 6])[0] == 6
    put = """\
      %t = tile_full(%zero) {shape=(2,)} : int32[2]
      %u = tile_put(%t, %x, %one) : int32[2]
      %w = tile_add_at(%u, %x, %zero) : int32[2]
      tile_store(%o, %w, %zero)"""
    assert run(put, [4, 8, 6]) == [18, 6, -1]


def test_atomics_happen_in_the_order_of_lanes_and_blocks():
    spread = "%p = spread(%zero) : int32*\n%old = array_atomic_add(%a, %one, %p) : int32*\narray_store(%o, %old, %i)"
    assert run(spread, [0] * 12) == list(range(12))


def test_a_uniform_effect_happens_once_for_each_block():
    a = np.zeros(7, np.int32)
    kernel = read("%old = array_atomic_add(%a, %n, %zero) : int32")
    interpreter.run(kernel, [a, np.zeros(7, np.int32), 1], (7,))
    assert a[0] == 2


def test_numbers_wrap_and_divide_without_warnings():
    body = """\
      %big = constant() {dtype=int32, value=2147483647} : int32
      %y = add(%x, %big) : int32*
      %f = astype(%x) {dtype=float32} : float32*
      %z = div(%f, %f) : float32*
      array_store(%o, %y, %i)"""
    assert run(body, [0, 1]) == [2147483647, -2147483648]


# --- errors -----------------------------------------------------------------------------------------------------------


@tg.kernel
def gather(table: tg.array2d[float], index: tg.array[int], out: tg.array[float]):
    i = tg.tid()
    row = table[1]
    out[i] = row[index[i]]


def test_an_index_error_names_the_array_the_block_and_the_index():  # case E06
    table, index, out = np.zeros((2, 4), np.float32), np.array([0, 3, 2, 9, 1], np.int32), np.zeros(5, np.float32)
    with pytest.raises(tg.KernelIndexError) as error:
        tg.launch(gather, dim=5, inputs=[table, index], outputs=[out], block_dim=2, device="interpret")
    text = str(error.value)
    assert "index 9 is out of range for axis 0 with size 4" in text
    assert "of `table`, shape (4,)" in text and "block 1 of kernel `gather`" in text and "row[index[i]]" in text


def test_an_error_inside_a_region_has_its_own_place():
    body = """\
      %c = gt(%x, %zero) : bool*
      if(%c) {
        %bad = mod(%x, %zero) : int32*
        array_store(%o, %bad, %i)
        yield()
      } {
        yield()
      }"""
    with pytest.raises(tg.KernelZeroDivisionError, match="raised in block 1 of kernel `k`"):
        run(body, [0] * 5 + [1])
