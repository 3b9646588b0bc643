"""What the errors say, to the letter: the docstring of each kernel below is the text that its launch raises.

Places are shortened: `here` stands for this file, `L` for a line number.
"""

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
    """?
    """
    t = tg.tile_zeros(shape=(4, n))


@case(F, tiled=False)
def wrong_tid_count(o: tg.array[float]):
    """?
    """
    i, j = tg.tid()


@case(F)
def wrong_tid_count_tiled(o: tg.array[float]):
    """?
    """
    i, j, k = tg.tid()


@case(F, 3)
def mixed_types(o: tg.array[float], n: int):
    """?
    """
    x = o[0] + n


@case(F, D)
def mixed_tiles(o: tg.array[float], p: tg.array[tg.float64]):
    """?
    """
    t = tg.tile_load(o, shape=4) * tg.tile_load(p, shape=4)


@case(F, 3)
def unbound_after_branch(o: tg.array[float], n: int):
    """?
    """
    if n > 3:
        y = 1.0
    o[0] = y


@case(F, 3)
def unbound_after_loop(o: tg.array[float], n: int):
    """?
    """
    for i in range(n):
        y = 1.0
    o[0] = y


@case(F, 3)
def unbound_in_first_turn(o: tg.array[float], n: int):
    """?
    """
    for i in range(n):
        if i > 0:
            o[i] = y
        y = 1.0


@case(I, 3)
def unbound_unless_broken(o: tg.array[int], n: int):
    """?
    """
    for i in range(n):
        if o[i] > 2:
            found = i
            break
    o[0] = found


@case(F)
def used_before_assignment(o: tg.array[float]):
    """?
    """
    o[0] = y
    y = 1.0


@case(F, 3)
def type_changes_in_loop(o: tg.array[float], n: int):
    """?
    """
    total = n
    for i in range(n):
        total = o[i]
    o[0] = float(total)


@case(F, 3)
def type_changes_in_branch(o: tg.array[float], n: int):
    """?
    """
    y = n
    if n > 2:
        y = o[0]
    o[0] = float(y)


@case(F, 3)
def shape_changes_in_loop(o: tg.array[float], n: int):
    """?
    """
    t = tg.tile_zeros(shape=4)
    for i in range(n):
        t = tg.tile_zeros(shape=8)
    tg.tile_store(o, t)


@case(F, 3)
def integer_counter_in_float_expression(o: tg.array[float], n: int):
    """?
    """
    i = 0
    while i < n:
        o[i] = o[i] * i
        i += 1


@case(F, 1)
def unknown_name(o: tg.array[float], offset: int):
    """?
    """
    o[ofset] = 1.0


@case(F)
def unknown_op(o: tg.array[float]):
    """?
    """
    t = tg.tile_laod(o, shape=4)


@case(F)
def made_up_path(o: tg.array[float]):
    """?
    """
    i = tg.foo.bar.tid()


@case(F)
def foreign_function(o: tg.array[float]):
    """?
    """
    o[0] = np.sqrt(o[0])


@case(F)
def captured_array(o: tg.array[float]):
    """?
    """
    o[0] = TABLE[0]


@case(F)
def unsupported_syntax(o: tg.array[float]):
    """?
    """
    try:
        o[0] = 1.0
    finally:
        pass


@case(F)
def list_comprehension(o: tg.array[float]):
    """?
    """
    values = [o[i] for i in range(3)]


@case(F2)
def old_spelling(o: tg.array2d[float]):
    """?
    """
    t = tg.tile_load(o, 0, 0, m=4, n=4)


@case(F)
def missing_argument_of_op(o: tg.array[float]):
    """?
    """
    t = tg.tile_load(o)


@case(F)
def misspelled_keyword(o: tg.array[float]):
    """?
    """
    t = tg.tile_load(o, shpae=4)


@case(F2, F2)
def inner_sizes(a: tg.array2d[float], b: tg.array2d[float]):
    """?
    """
    w = tg.tile_load(a, shape=(16, 32))
    x = tg.tile_load(b, shape=(64, 16))
    h = tg.tile_matmul(w, x)


@case(F)
def shapes_do_not_broadcast(o: tg.array[float]):
    """?
    """
    t = tg.tile_load(o, shape=4) + tg.tile_zeros(shape=3)


@case(F)
def index_outside_tile(o: tg.array[float]):
    """?
    """
    t = tg.tile_load(o, shape=4)
    o[0] = t[4]


@case(F, 1.0)
def float_index(o: tg.array[float], x: float):
    """?
    """
    o[x] = 1.0


@case(F)
def too_many_indices(o: tg.array[float]):
    """?
    """
    o[0, 1] = 1.0


@case(F)
def sliced_array(o: tg.array[float]):
    """?
    """
    t = o[1:3]


@case(F, 1)
def run_time_slice(o: tg.array[float], n: int):
    """?
    """
    t = tg.tile_load(o, shape=4)
    tg.tile_store(o, t[n:n + 2])


@case(F)
def truth_of_a_tile(o: tg.array[float]):
    """?
    """
    t = tg.tile_load(o, shape=4)
    if t > 0.0:
        o[0] = 1.0


@case(F)
def bitwise_on_floats(o: tg.array[float]):
    """?
    """
    o[0] = o[1] & o[2]


@case(F, tiled=False)
def cooperative_under_lane_condition(o: tg.array[float]):
    """?
    """
    i = tg.tid()
    if i % 2 == 0:
        tg.tile_store(o, tg.tile_zeros(shape=4))


@case(F, tiled=False)
def tile_chosen_by_lanes(o: tg.array[float]):
    """?
    """
    i = tg.tid()
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    if i > 2:
        a = b
    tg.tile_store(o, a)


@case(F)
def recursion(o: tg.array[float]):
    """?
    """
    o[0] = endless(o[1])


@case(F)
def value_on_some_paths(o: tg.array[float]):
    """?
    """
    o[0] = sometimes(o[1])


@case(F, 1)
def wrong_argument_type(o: tg.array[float], n: int):
    """?
    """
    o[0] = scaled(o[1], n)


@case(F)
def missing_function_argument(o: tg.array[float]):
    """?
    """
    o[0] = scaled(o[1])


@case(F, 1)
def error_inside_a_function(o: tg.array[float], n: int):
    """?
    """
    o[0] = mixing(o[1], n)


@case(F, 1)
def ambiguous_alias(o: tg.array[float], n: int):
    """?
    """
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    if n > 2:
        b = a
    b += 1.0
    tg.tile_store(o, a)


@case(F, 1)
def alias_in_a_loop(o: tg.array[float], n: int):
    """?
    """
    a = tg.tile_zeros(shape=4)
    b = tg.tile_ones(shape=4)
    for i in range(n):
        b += 1.0
        b = a
    tg.tile_store(o, b)


@case(F)
def written_through_a_broadcast(o: tg.array[float]):
    """?
    """
    t = tg.tile_zeros(shape=4)
    b = tg.tile_broadcast(t, shape=(2, 4))
    b += 1.0
    tg.tile_store(o, t)


@case(F)
def in_place_changes_shape(o: tg.array[float]):
    """?
    """
    t = tg.tile_zeros(shape=4)
    t += tg.tile_zeros(shape=(2, 4))


@case(F, 1)
def static_of_a_run_time_value(o: tg.array[float], n: int):
    """?
    """
    o[0] = tg.static(n + 1)


@case(F)
def endless_loop(o: tg.array[float]):
    """?
    """
    while True:
        o[0] = 1.0


@case(F)
def kernel_returns_a_value(o: tg.array[float]):
    """?
    """
    return o[0]


@case(F)
def unpacking(o: tg.array[float]):
    """?
    """
    a, b = o.shape


@case(F)
def zero_step(o: tg.array[float]):
    """?
    """
    for i in range(0, 4, 0):
        o[i] = 1.0


@case(F)
def loop_over_a_tile(o: tg.array[float]):
    """?
    """
    for x in tg.tile_load(o, shape=4):
        o[0] = x


@case(F)
def division_by_zero_literal(o: tg.array[float]):
    """?
    """
    o[0] = 1 / 0


@case(F, 1)
def element_of_wrong_type(o: tg.array[float], n: int):
    """?
    """
    o[0] = n


@case(F)
def wrong_annotation(o: list[float]):
    """?
    """
    o[0] = 1.0


@case(F)
def wrong_element_type_name(o: "tg.array[flot32]"):
    """?
    """
    o[0] = 1.0


@case(F)
def variadic(*arrays):
    """?
    """
    pass


@case(D)
def wrong_dtype(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case(F)
def wrong_rank(o: tg.array2d[float]):
    """?
    """
    o[0, 0] = 1.0


@case(F)
def missing_launch_argument(o: tg.array[float], n: int):
    """?
    """
    o[n] = 1.0


@case(F, 1, 2)
def too_many_launch_arguments(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case([1.0, 2.0])
def list_argument(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case(None)
def none_argument(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case(F, 2.5)
def float_for_int(o: tg.array[float], n: int):
    """?
    """
    o[n] = 1.0


@case(F, 2**40)
def int_too_large(o: tg.array[float], n: int):
    """?
    """
    o[n] = 1.0


@case(3)
def number_for_array(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case(F, F)
def array_for_number(o: tg.array[float], n: int):
    """?
    """
    o[n] = 1.0


@case(READONLY)
def read_only_output(o: tg.array[float]):
    """?
    """
    o[0] = 1.0


@case(np.zeros(3, "c8"))
def strange_array(o: tg.array[float]):
    """?
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
    with pytest.raises(tg.KernelAssertionError, match="n is 7"):
        run(7)
    with pytest.raises(tg.KernelValueError, match="the step of range must not be zero"):
        run(2)


def test_source_that_cannot_be_found() -> None:
    space: dict[str, Any] = {"tg": tg}
    code = compile("def k(o):\n    o[0] = 1.0\n", "<nowhere>", "exec")
    exec(code, space)
    with pytest.raises(tg.KernelSyntaxError, match=r"source of `k` is not available \(<nowhere>:1\)"):
        tg.kernel(space["k"])
    with pytest.raises(tg.KernelSyntaxError, match="must be a Python function"):
        tg.kernel(print)
