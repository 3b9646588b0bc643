"""What the errors say, to the letter: the docstring of each kernel below is the text that its launch raises.

Places are shortened: `here` stands for this file, `L` for a line number.
"""

# ruff: noqa: E501, F821

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

CASES: list[tuple[Callable[..., None], tuple[Any, ...], bool]] = []

F = np.zeros(8, np.float32)
F2 = np.zeros((64, 64), np.float32)
D = np.zeros(8, np.float64)
I = np.zeros(8, np.int32)
READONLY = np.zeros(8, np.float32)
READONLY.flags.writeable = False
TABLE = np.zeros(3)


def case(*args: Any, tiled: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(function: Callable[..., None]) -> Callable[..., None]:
        CASES.append((function, args, tiled))
        return function

    return add


def shortened(error: tg.TilegradError) -> str:
    """The text of an error without the parts that depend on the layout of this file."""
    lines: list[str] = []
    for line in f"{type(error).__name__}: {error}".splitlines():
        number = re.match(r"    (\d+) \| ", line)
        previous = re.match(r"    L \| ", lines[-1]) if lines else None
        if number:
            width = len(number[1])
            line = "    L | " + line[number.end() :]
        elif previous and line.strip().startswith("^"):
            line = line[width - 1 :]
        line = re.sub(r"\S*test_errors\.py:\d+(:\d+)?", "here", line)
        lines.append(re.sub(r"\blines? \d+( and \d+)?", "line L", line))
    return "\n".join(lines)


@tg.func
def endless(x: float):
    return endless(x)


@tg.func
def sometimes(x: float):
    if x > 0.0:
        return x


@tg.func
def scaled(x: float, factor: float):
    return x * factor


@tg.func
def mixing(x, n):
    y = x + 1.0
    return y * n


@case(F, 3)
def run_time_tile_shape(o: tg.array[float], n: int):
    """
    ShapeMismatch: tile_zeros: shape[1] must be a compile-time constant, it is the parameter `n`
      --> here in run_time_tile_shape
        L |     t = tg.tile_zeros(shape=(4, n))
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: use a global or closure constant, or tg.static(...); a kernel is compiled again when it changes
    """
    t = tg.tile_zeros(shape=(4, n))


@case(F, tiled=False)
def wrong_tid_count(o: tg.array[float]):
    """
    TypeMismatch: 2 indices are taken from tid(), but dim of launch has 1 dimension
      --> here in wrong_tid_count
        L |     i, j = tg.tid()
                       ^^^^^^^^ expected 1
      help: write i = tg.tid(), or change dim of the launch
    """
    i, j = tg.tid()


@case(F)
def wrong_tid_count_tiled(o: tg.array[float]):
    """
    TypeMismatch: 3 indices are taken from tid(), but dim of launch_tiled has 1 dimension
      --> here in wrong_tid_count_tiled
        L |     i, j, k = tg.tid()
                          ^^^^^^^^ expected 1, or one more for the lane
      help: write i = tg.tid(), or change dim of the launch
    """
    i, j, k = tg.tid()


@case(F, 3)
def mixed_types(o: tg.array[float], n: int):
    """
    TypeMismatch: `+`: the operands have different types: float32 and int32
      --> here in mixed_types
        L |     x = o[0] + n
                    ^^^^^^^^ `o[0]` is float32, `n` is int32
      help: types never mix by themselves; cast one operand, for example float32(x)
    """
    x = o[0] + n


@case(F, D)
def mixed_tiles(o: tg.array[float], p: tg.array[tg.float64]):
    """
    TypeMismatch: `*`: the operands have different types: a float32 tile (4,) and a float64 tile (4,)
      --> here in mixed_tiles
        L |     t = tg.tile_load(o, shape=4) * tg.tile_load(p, shape=4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: types never mix by themselves; cast one operand, for example tile_astype(x, float32)
    """
    t = tg.tile_load(o, shape=4) * tg.tile_load(p, shape=4)


@case(F, 3)
def unbound_after_branch(o: tg.array[float], n: int):
    """
    KernelNameError: `y` may have no value here: it has none when `n > 3` is false (line L)
      --> here in unbound_after_branch
        L |     o[0] = y
                       ^
      help: give `y` a value before
    """
    if n > 3:
        y = 1.0
    o[0] = y


@case(F, 3)
def unbound_after_loop(o: tg.array[float], n: int):
    """
    KernelNameError: `y` may have no value here: it has none when the loop at line L does not run at all
      --> here in unbound_after_loop
        L |     o[0] = y
                       ^
      help: give `y` a value before
    """
    for i in range(n):
        y = 1.0
    o[0] = y


@case(F, 3)
def unbound_in_first_turn(o: tg.array[float], n: int):
    """
    KernelNameError: `y` may have no value here: it has none when the loop is in its first turn (line L)
      --> here in unbound_in_first_turn
        L |             o[i] = y
                               ^
      help: give `y` a value before
    """
    for i in range(n):
        if i > 0:
            o[i] = y
        y = 1.0


@case(I, 3)
def unbound_unless_broken(o: tg.array[int], n: int):
    """
    KernelNameError: `found` may have no value here: it has none when the loop at line L is not left by break
      --> here in unbound_unless_broken
        L |     o[0] = found
                       ^^^^^
      help: give `found` a value before
    """
    for i in range(n):
        if o[i] > 2:
            found = i
            break
    o[0] = found


@case(F)
def used_before_assignment(o: tg.array[float]):
    """
    KernelNameError: `y` is used before it has a value
      --> here in used_before_assignment
        L |     o[0] = y
                       ^
    """
    o[0] = y
    y = 1.0


@case(F, 3)
def type_changes_in_loop(o: tg.array[float], n: int):
    """
    TypeMismatch: `total` changes its type in a loop: before the loop it is int32 (line L), after a turn it is float32 (line L)
      --> here in type_changes_in_loop
        L |         total = o[i]
                    ^^^^^ `total` becomes float32
      help: a variable keeps one type; cast the other value, for example float32(...)
    """
    total = n
    for i in range(n):
        total = o[i]
    o[0] = float(total)


@case(F, 3)
def type_changes_in_branch(o: tg.array[float], n: int):
    """
    TypeMismatch: `y` has different types after the two branches
      --> here in type_changes_in_branch
        L |     if n > 2:
                   ^^^^^ float32 (line L), int32 (line L)
      help: a variable keeps one type; cast the other value, for example int32(...)
    """
    y = n
    if n > 2:
        y = o[0]
    o[0] = float(y)


@case(F, 3)
def shape_changes_in_loop(o: tg.array[float], n: int):
    """
    TypeMismatch: `t` changes its type in a loop: before the loop it is a float32 tile (4,) (line L), after a turn it is a float32 tile (8,) (line L)
      --> here in shape_changes_in_loop
        L |         t = tg.tile_zeros(shape=8)
                    ^ `t` becomes a float32 tile (8,)
      help: a variable keeps one type; use two names
    """
    t = tg.tile_zeros(shape=4)
    for i in range(n):
        t = tg.tile_zeros(shape=8)
    tg.tile_store(o, t)


@case(F, 3)
def integer_counter_in_float_expression(o: tg.array[float], n: int):
    """
    TypeMismatch: `*`: the operands have different types: float32 and int32
      --> here in integer_counter_in_float_expression
        L |         o[i] = o[i] * i
                           ^^^^^^^^ `o[i]` is float32, `i` is int32
      help: types never mix by themselves; cast one operand, for example float32(x)
    """
    i = 0
    while i < n:
        o[i] = o[i] * i
        i += 1


@case(F, 1)
def unknown_name(o: tg.array[float], offset: int):
    """
    KernelNameError: the name `ofset` is not known
      --> here in unknown_name
        L |     o[ofset] = 1.0
                  ^^^^^
      help: did you mean offset?
    """
    o[ofset] = 1.0


@case(F)
def unknown_op(o: tg.array[float]):
    """
    KernelNameError: tilegrad has no `tile_laod`
      --> here in unknown_op
        L |     t = tg.tile_laod(o, shape=4)
                    ^^^^^^^^^^^^
      help: did you mean tg.tile_load?
    """
    t = tg.tile_laod(o, shape=4)


@case(F)
def made_up_path(o: tg.array[float]):
    """
    KernelNameError: tilegrad has no `foo`
      --> here in made_up_path
        L |     i = tg.foo.bar.tid()
                    ^^^^^^
      help: did you mean tg.floor?
    """
    i = tg.foo.bar.tid()


@case(F)
def foreign_function(o: tg.array[float]):
    """
    KernelNameError: numpy.sqrt cannot be called in a kernel
      --> here in foreign_function
        L |     o[0] = np.sqrt(o[0])
                       ^^^^^^^^^^^^^
      help: write tg.sqrt(...)
    """
    o[0] = np.sqrt(o[0])


@case(F)
def captured_array(o: tg.array[float]):
    """
    KernelSyntaxError: `TABLE` is an array outside of the kernel; a kernel never captures arrays
      --> here in captured_array
        L |     o[0] = TABLE[0]
                       ^^^^^
      help: pass it: add a parameter `TABLE: tg.array1d[...]`
    """
    o[0] = TABLE[0]


@case(F)
def unsupported_syntax(o: tg.array[float]):
    """
    KernelSyntaxError: try is not supported in a kernel
      --> here in unsupported_syntax
        L |     try:
                ^^^^
      help: use assert for what must hold, and check results after the launch
    """
    try:
        o[0] = 1.0
    finally:
        pass


@case(F)
def list_comprehension(o: tg.array[float]):
    """
    KernelSyntaxError: a list comprehension is not supported in a kernel
      --> here in list_comprehension
        L |     values = [o[i] for i in range(3)]
                         ^^^^^^^^^^^^^^^^^^^^^^^^
      help: use a loop, a tuple, or tg.static([...])
    """
    values = [o[i] for i in range(3)]


@case(F2)
def old_spelling(o: tg.array2d[float]):
    """
    TypeMismatch: tile_load: got an unexpected keyword argument 'm'
      --> here in old_spelling
        L |     t = tg.tile_load(o, 0, 0, m=4, n=4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: write tile_load(a, shape=(m, n), offset=(i*m, j*n))
    """
    t = tg.tile_load(o, 0, 0, m=4, n=4)


@case(F)
def missing_argument_of_op(o: tg.array[float]):
    """
    TypeMismatch: tile_load: missing a required argument: 'shape'
      --> here in missing_argument_of_op
        L |     t = tg.tile_load(o)
                    ^^^^^^^^^^^^^^^
      help: the call is tile_load(a, shape, offset=None, storage='register', bounds_check=True, aligned=False, fill=0)
    """
    t = tg.tile_load(o)


@case(F)
def misspelled_keyword(o: tg.array[float]):
    """
    TypeMismatch: tile_load: there is no parameter `shpae`
      --> here in misspelled_keyword
        L |     t = tg.tile_load(o, shpae=4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^
      help: did you mean shape=?
    """
    t = tg.tile_load(o, shpae=4)


@case(F2, F2)
def inner_sizes(a: tg.array2d[float], b: tg.array2d[float]):
    """
    ShapeMismatch: tile_matmul: inner sizes differ: `a` is float32 tile (16, 32), `b` is float32 tile (64, 16)
      --> here in inner_sizes
        L |     h = tg.tile_matmul(w, x)
                    ^^^^^^^^^^^^^^^^^^^^ a.shape[1] = 32, b.shape[0] = 64
      help: transpose one operand, or check the shapes given to tile_load
    """
    w = tg.tile_load(a, shape=(16, 32))
    x = tg.tile_load(b, shape=(64, 16))
    h = tg.tile_matmul(w, x)


@case(F)
def shapes_do_not_broadcast(o: tg.array[float]):
    """
    ShapeMismatch: `+`: tiles of shapes (4,) and (3,) do not broadcast
      --> here in shapes_do_not_broadcast
        L |     t = tg.tile_load(o, shape=4) + tg.tile_zeros(shape=3)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: extents must be equal or 1, counted from the last axis; see tile_reshape and tile_broadcast
    """
    t = tg.tile_load(o, shape=4) + tg.tile_zeros(shape=3)


@case(F)
def index_outside_tile(o: tg.array[float]):
    """
    KernelIndexError: index 4 is outside axis 0 of a float32 tile (4,)
      --> here in index_outside_tile
        L |     o[0] = t[4]
                       ^^^^
      help: the axis has 4 elements
    """
    t = tg.tile_load(o, shape=4)
    o[0] = t[4]


@case(F, 1.0)
def float_index(o: tg.array[float], x: float):
    """
    TypeMismatch: an index must be an integer, not float32
      --> here in float_index
        L |     o[x] = 1.0
                ^^^^
      help: convert it with int(...)
    """
    o[x] = 1.0


@case(F)
def too_many_indices(o: tg.array[float]):
    """
    ShapeMismatch: 2 indices for a 1-D array of float32
      --> here in too_many_indices
        L |     o[0, 1] = 1.0
                ^^^^^^^
      help: give at most 1
    """
    o[0, 1] = 1.0


@case(F)
def sliced_array(o: tg.array[float]):
    """
    TypeMismatch: an array is not sliced inside a kernel
      --> here in sliced_array
        L |     t = o[1:3]
                    ^^^^^^
      help: read a tile: tile_load(a, shape=..., offset=...), or a row: a[i]
    """
    t = o[1:3]


@case(F, 1)
def run_time_slice(o: tg.array[float], n: int):
    """
    ShapeMismatch: the bounds of a tile slice must be compile-time constants
      --> here in run_time_slice
        L |     tg.tile_store(o, t[n : n + 2])
                                 ^^^^^^^^^^^^
      help: a run-time start with a constant size is tile_view(t, offset=..., shape=...)
    """
    t = tg.tile_load(o, shape=4)
    tg.tile_store(o, t[n : n + 2])


@case(F)
def truth_of_a_tile(o: tg.array[float]):
    """
    TypeMismatch: the truth value of a tile of several elements is ambiguous: it has shape (4,)
      --> here in truth_of_a_tile
        L |     if t > 0.0:
                   ^^^^^^^
      help: take one element, t[i], or reduce the tile, for example with tile_max
    """
    t = tg.tile_load(o, shape=4)
    if t > 0.0:
        o[0] = 1.0


@case(F)
def bitwise_on_floats(o: tg.array[float]):
    """
    TypeMismatch: `&` is not defined for float32
      --> here in bitwise_on_floats
        L |     o[0] = o[1] & o[2]
                       ^^^^^^^^^^^ this is float32
      help: it takes: bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64
    """
    o[0] = o[1] & o[2]


@case(F, tiled=False)
def cooperative_under_lane_condition(o: tg.array[float]):
    """
    KernelSyntaxError: tile_zeros is a cooperative call: all lanes of a block must make it together, but `i % 2 == 0` differs between lanes (line L)
      --> here in cooperative_under_lane_condition
        L |         tg.tile_store(o, tg.tile_zeros(shape=4))
                                     ^^^^^^^^^^^^^^^^^^^^^^ `if i % 2 == 0:` may send some lanes elsewhere
      help: move the call out of the branch, or choose between values with tg.where
    """
    i = tg.tid()
    if i % 2 == 0:
        tg.tile_store(o, tg.tile_zeros(shape=4))


@case(F, tiled=False)
def tile_chosen_by_lanes(o: tg.array[float]):
    """
    KernelSyntaxError: a tile cannot depend on a condition that differs between lanes
      --> here in tile_chosen_by_lanes
        L |     if i > 2:
                   ^^^^^
      help: choose element by element with tg.where, or store it before the branch
    """
    i = tg.tid()
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    if i > 2:
        a = b
    tg.tile_store(o, a)


@case(F)
def recursion(o: tg.array[float]):
    """
    KernelSyntaxError: `endless` calls itself (recursion -> endless -> endless); recursion is not supported
      --> here in endless
        L |     return endless(x)
                       ^^^^^^^^^^
      called from here in recursion
        L |     o[0] = endless(o[1])
      help: write a loop
    """
    o[0] = endless(o[1])


@case(F)
def value_on_some_paths(o: tg.array[float]):
    """
    KernelSyntaxError: `sometimes` returns a value on some paths only
      --> here in value_on_some_paths
        L |     o[0] = sometimes(o[1])
                       ^^^^^^^^^^^^^^^
      help: end the function with a return
    """
    o[0] = sometimes(o[1])


@case(F, 1)
def wrong_argument_type(o: tg.array[float], n: int):
    """
    TypeMismatch: `scaled`: argument `factor` is int32, the function declares float32
      --> here in wrong_argument_type
        L |     o[0] = scaled(o[1], n)
                       ^^^^^^^^^^^^^^^
      help: it is scaled(x: float32, factor: float32); cast the argument, or drop the annotation
    """
    o[0] = scaled(o[1], n)


@case(F)
def missing_function_argument(o: tg.array[float]):
    """
    TypeMismatch: `scaled` needs a value for `factor`
      --> here in missing_function_argument
        L |     o[0] = scaled(o[1])
                       ^^^^^^^^^^^^
    """
    o[0] = scaled(o[1])


@case(F, 1)
def error_inside_a_function(o: tg.array[float], n: int):
    """
    TypeMismatch: `*`: the operands have different types: float32 and int32
      --> here in mixing
        L |     return y * n
                       ^^^^^ `y` is float32, `n` is int32
      called from here in error_inside_a_function
        L |     o[0] = mixing(o[1], n)
      help: types never mix by themselves; cast one operand, for example float32(x)
    """
    o[0] = mixing(o[1], n)


@case(F, 1)
def ambiguous_alias(o: tg.array[float], n: int):
    """
    KernelSyntaxError: this tile cannot be written in place: `b` may or may not be the tile `a`, see line L
      --> here in ambiguous_alias
        L |     b += 1.0
                ^^^^^^^^
      help: write to a copy(...) of the tile instead
    """
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    if n > 2:
        b = a
    b += 1.0
    tg.tile_store(o, a)


@case(F, 1)
def alias_in_a_loop(o: tg.array[float], n: int):
    """
    KernelSyntaxError: `b` becomes another name of an existing tile in the loop, and is written in place
      --> here in alias_in_a_loop
        L |     for i in range(n):
                ^^^^^^^^^^^^^^^^^^
      help: write b = tg.copy(...) where it gets the other tile
    """
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    for i in range(n):
        b += 1.0
        b = a
    tg.tile_store(o, b)


@case(F)
def written_through_a_broadcast(o: tg.array[float]):
    """
    TypeMismatch: a tile broadcast from (4,) to (2, 4) cannot be written through: several of its elements are one
      --> here in written_through_a_broadcast
        L |     b *= 2.0
                ^^^^^^^^
      help: write to the tile itself, or broadcast a copy: tile_broadcast(t, shape).copy()
    """
    t = tg.tile_zeros(shape=4)
    b = tg.tile_broadcast(t, shape=(2, 4))
    b *= 2.0
    tg.tile_store(o, t)


@case(F)
def in_place_changes_shape(o: tg.array[float]):
    """
    ShapeMismatch: `+=` cannot change a tile of shape (4,) into one of shape (2, 4)
      --> here in in_place_changes_shape
        L |     t += tg.tile_zeros(shape=(2, 4))
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: write x = x + y for a new tile
    """
    t = tg.tile_zeros(shape=4)
    t += tg.tile_zeros(shape=(2, 4))


@case(F, 1)
def static_of_a_run_time_value(o: tg.array[float], n: int):
    """
    TypeMismatch: static: `n` is known only when the kernel runs
      --> here in static_of_a_run_time_value
        L |     o[0] = tg.static(n + 1)
                       ^^^^^^^^^^^^^^^^
      help: static(...) may use globals, closure values, shapes of tiles and indices of constant loops
    """
    o[0] = tg.static(n + 1)


@case(F)
def endless_loop(o: tg.array[float]):
    """
    KernelSyntaxError: this loop never ends
      --> here in endless_loop
        L |     while True:
                      ^^^^
      help: add a break, or a condition
    """
    while True:
        o[0] = 1.0


@case(F)
def kernel_returns_a_value(o: tg.array[float]):
    """
    KernelSyntaxError: a kernel returns nothing
      --> here in kernel_returns_a_value
        L |     return o[0]
                ^^^^^^^^^^^
      help: store results in an array parameter
    """
    return o[0]


@case(F)
def unpacking(o: tg.array[float]):
    """
    TypeMismatch: 1 value is unpacked into 2 names
      --> here in unpacking
        L |     a, b = o.shape
                ^^^^ expected 1
    """
    a, b = o.shape


@case(F)
def zero_step(o: tg.array[float]):
    """
    TypeMismatch: range() with a step of 0
      --> here in zero_step
        L |     for i in range(0, 4, 0):
                         ^^^^^^^^^^^^^^
    """
    for i in range(0, 4, 0):
        o[i] = 1.0


@case(F)
def loop_over_a_tile(o: tg.array[float]):
    """
    TypeMismatch: a loop does not run over a float32 tile (4,)
      --> here in loop_over_a_tile
        L |     for x in tg.tile_load(o, shape=4):
                         ^^^^^^^^^^^^^^^^^^^^^^^^
      help: loop over range(...), a tuple, or tg.static(...)
    """
    for x in tg.tile_load(o, shape=4):
        o[0] = x


@case(F)
def division_by_zero_literal(o: tg.array[float]):
    """
    KernelZeroDivisionError: division by zero
      --> here in division_by_zero_literal
        L |     o[0] = 1 / 0
                       ^^^^^
    """
    o[0] = 1 / 0


@case(F, 1)
def element_of_wrong_type(o: tg.array[float], n: int):
    """
    TypeMismatch: an element of type float32 is assigned a value of type int32
      --> here in element_of_wrong_type
        L |     o[0] = n
                ^^^^
      help: cast the value: float32(...)
    """
    o[0] = n


@case(F)
def wrong_annotation(o: list[float]):
    """
    TypeMismatch: parameter `o` of `wrong_annotation` has the annotation list[float], which is not a kernel type
      --> here in wrong_annotation
        L | def wrong_annotation(o: list[float]):
                                 ^^^^^^^^^^^^^^
      help: write tg.array[float], tg.array2d[tg.float32], tg.array(dtype=float, ndim=2), or a number: float, int, bool, tg.float64
    """
    o[0] = 1.0


@case(F)
def wrong_element_type_name(o: tg.array[complex]):
    """
    KernelSyntaxError: the annotation of `o` cannot be evaluated: array: `complex` is not an element type
      help: element types: bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64
      --> here in wrong_element_type_name
        L | def wrong_element_type_name(o: tg.array[complex]):
                                        ^^^^^^^^^^^^^^^^^^^^
    """
    o[0] = 1.0


@case(F)
def variadic(*arrays):
    """
    KernelSyntaxError: `variadic` collects arguments in `arrays`
      --> here in variadic
        L | def variadic(*arrays):
                          ^^^^^^
      help: give every parameter a name
    """
    pass


@case(D)
def wrong_dtype(o: tg.array[float]):
    """
    LaunchError: wrong_dtype: argument `o` must be array1d[float32], it is a 1-D array of float64
      --> here in wrong_dtype
        L | def wrong_dtype(o: tg.array[float]):
                            ^^^^^^^^^^^^^^^^^^
      help: convert the argument, for example with .astype(np.float32), or declare `o: tg.array1d[tg.float64]`
    """
    o[0] = 1.0


@case(F)
def wrong_rank(o: tg.array2d[float]):
    """
    LaunchError: wrong_rank: argument `o` must have 2 dimensions (array2d[float32]), it is a 1-D array of float32
      --> here in wrong_rank
        L | def wrong_rank(o: tg.array2d[float]):
                           ^^^^^^^^^^^^^^^^^^^^
      help: reshape the argument, or declare `o: tg.array1d[...]`
    """
    o[0, 0] = 1.0


@case(F)
def missing_launch_argument(o: tg.array[float], n: int):
    """
    LaunchError: missing_launch_argument takes 2 arguments, 1 was given: `n` is missing
      --> here
        L | def missing_launch_argument(o: tg.array[float], n: int):
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: give inputs and outputs in the order of the parameters: o, n
    """
    o[n] = 1.0


@case(F, 1, 2)
def too_many_launch_arguments(o: tg.array[float]):
    """
    LaunchError: too_many_launch_arguments takes 1 argument, 3 were given: 2 too many
      --> here
        L | def too_many_launch_arguments(o: tg.array[float]):
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      help: give inputs and outputs in the order of the parameters: o
    """
    o[0] = 1.0


@case([1.0, 2.0])
def list_argument(o: tg.array[float]):
    """
    LaunchError: list_argument: argument `o` must be an array (array1d[float32]), it is a list
      --> here in list_argument
        L | def list_argument(o: tg.array[float]):
                              ^^^^^^^^^^^^^^^^^^
      help: wrap it with np.asarray or tg.array
    """
    o[0] = 1.0


@case(None)
def none_argument(o: tg.array[float]):
    """
    LaunchError: none_argument: argument `o` must be an array (array1d[float32]), it is None
      --> here in none_argument
        L | def none_argument(o: tg.array[float]):
                              ^^^^^^^^^^^^^^^^^^
      help: declare `o: array1d[float32] | None` if the argument may be left out
    """
    o[0] = 1.0


@case(F, 2.5)
def float_for_int(o: tg.array[float], n: int):
    """
    LaunchError: float_for_int: argument `n` must be int32, it is 2.5
      --> here in float_for_int
        L | def float_for_int(o: tg.array[float], n: int):
                                                  ^^^^^^
      help: pass tg.int32(value), or declare another type
    """
    o[n] = 1.0


@case(F, 2**40)
def int_too_large(o: tg.array[float], n: int):
    """
    LaunchError: int_too_large: argument `n` must be int32, it is 1099511627776
      --> here in int_too_large
        L | def int_too_large(o: tg.array[float], n: int):
                                                  ^^^^^^
      help: declare `n: tg.int64`
    """
    o[n] = 1.0


@case(3)
def number_for_array(o: tg.array[float]):
    """
    LaunchError: number_for_array: argument `o` must be an array (array1d[float32]), it is the number 3
      --> here in number_for_array
        L | def number_for_array(o: tg.array[float]):
                                 ^^^^^^^^^^^^^^^^^^
      help: wrap it: np.full(1, value)
    """
    o[0] = 1.0


@case(F, F)
def array_for_number(o: tg.array[float], n: int):
    """
    LaunchError: array_for_number: argument `n` must be a number (int32), it is a 1-D array of float32
      --> here in array_for_number
        L | def array_for_number(o: tg.array[float], n: int):
                                                     ^^^^^^
      help: pass one element, or declare an array
    """
    o[n] = 1.0


@case(READONLY)
def read_only_output(o: tg.array[float]):
    """
    LaunchError: read_only_output: argument `o` is a read-only array, and the kernel writes to it
      --> here in read_only_output
        L | def read_only_output(o: tg.array[float]):
                                 ^^^^^^^^^^^^^^^^^^
      help: pass a writable array, for example a copy()
    """
    o[0] = 1.0


@case(np.zeros(3, "c8"))
def strange_array(o: tg.array[float]):
    """
    LaunchError: strange_array: argument `o` must be an array (array1d[float32]), it is a NumPy array of complex64
      --> here in strange_array
        L | def strange_array(o: tg.array[float]):
                              ^^^^^^^^^^^^^^^^^^
      help: convert it with .astype(...), or reshape(1) an array without dimensions
    """
    o[0] = 1.0


@pytest.mark.parametrize("function, args, tiled", CASES, ids=[c[0].__name__ for c in CASES])
def test_text(function: Callable[..., None], args: tuple[Any, ...], tiled: bool) -> None:
    with pytest.raises(tg.TilegradError) as caught:
        kernel = tg.kernel(function)
        launch = tg.launch_tiled if tiled else tg.launch
        launch(kernel, dim=4, inputs=list(args), device="interpret")
    assert shortened(caught.value) == inspect.cleandoc(function.__doc__ or "")


def test_errors_are_checked_when_nothing_runs() -> None:  # case T08
    @tg.kernel
    def pair(o: tg.array[float]):
        i, j = tg.tid()

    for dim in (4, 0, (2, 2, 2), (2, 0, 2)):
        with pytest.raises(tg.TypeMismatch, match="2 indices are taken from tid"):
            tg.launch(pair, dim=dim, inputs=[F])
    tg.launch(pair, dim=(0, 3), inputs=[F], device="interpret")


@pytest.mark.parametrize("dim", [-1, 2.5, "4", (1, 2, 3, 4, 5), (), (2, -1), True])
def test_wrong_launch_dimensions(dim: Any) -> None:
    @tg.kernel
    def nothing(o: tg.array[float]):
        pass

    with pytest.raises(tg.LaunchError, match="dim"):
        tg.launch(nothing, dim=dim, inputs=[F])


def test_a_kernel_is_launched_and_never_called() -> None:
    @tg.kernel
    def k(o: tg.array[float]):
        o[0] = 1.0

    with pytest.raises(tg.LaunchError, match=r"write tg.launch\(k, dim=..., inputs=\[...\]\)"):
        k(F)
    with pytest.raises(tg.LaunchError, match="only a kernel can be launched"):
        tg.launch(scaled, dim=1, inputs=[F])
    with pytest.raises(tg.KernelSyntaxError, match="only inside a kernel"):
        tg.tid()


@pytest.mark.parametrize("kind", [tg.KernelNameError, tg.KernelSyntaxError, tg.LaunchError, tg.ShapeMismatch])
def test_errors_are_also_pythons_own(kind: type[Exception]) -> None:
    own = {tg.KernelNameError: NameError, tg.KernelSyntaxError: SyntaxError}.get(kind, ValueError)
    assert issubclass(kind, own) and issubclass(kind, tg.TilegradError)


def test_run_time_errors_carry_their_line() -> None:
    @tg.kernel
    def checks(o: tg.array[int], n: int):
        assert n < 5, f"n is {n}"
        for i in range(0, 4, n - 2):
            o[i] = 6 // (n - 1)

    def run(n: int) -> None:
        tg.launch_tiled(checks, dim=1, inputs=[I, n], block_dim=1, device="interpret")

    run(3)
    with pytest.raises(tg.KernelAssertionError, match="n is"):
        run(7)
    with pytest.raises(tg.KernelValueError, match="the step of range must not be zero"):
        run(2)


def without_source() -> Any:
    space: dict[str, Any] = {"tg": tg}
    exec(compile("def k(o):\n    o[0] = 1.0\n", "<nowhere>", "exec"), space)
    return space["k"]


def test_source_that_cannot_be_found() -> None:
    with pytest.raises(tg.KernelSyntaxError, match=r"source of `k` is not available \(<nowhere>:1\)"):
        tg.kernel(without_source())
    with pytest.raises(tg.KernelSyntaxError, match="must be a Python function"):
        tg.kernel(print)
