"""Checks functions of vectors, matrices, quaternions and transforms against NumPy and against finite differences.

A `Case` says what types a function takes and gives, by a letter and extents ("s" scalar, "v3", "m23", "q", "t"), and
what the answer is for one element, in NumPy. Everything else is the same for all functions: kernels over arrays of
these types, over tiles of them, with `tile_map`, and calls outside of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tilegrad as tg
from programs import build
from tilegrad import element_types as et

N = 6
#: devices and dtypes; they differ in the ops only, which have their own tests
RUNS = [("interpret", tg.bfloat16), ("cpu", tg.float16), ("cpu", tg.float64)]
TOLERANCE = {tg.float64: 1e-11, tg.float32: 2e-5, tg.float16: 1.2e-3, tg.bfloat16: 9e-3}


@dataclass(frozen=True)
class Case:
    """A function, the types of its arguments and results, and the answer for one element."""

    name: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    answer: Callable[..., Any]
    function: Any = None
    #: makes arguments fit for the function: (rng, drawn) -> arrays
    prepare: Callable[[list[Any]], Sequence[Any]] | None = None
    #: how much more than the usual error is right, for functions with divisions
    slack: float = 1.0

    @property
    def f(self) -> Any:
        return self.function or getattr(tg, self.name)


def case(name: str, takes: str, gives: str, answer: Any, **more: Any) -> Case:
    return Case(name, tuple(takes.split()), tuple(gives.split()), answer, **more)


def kind_of(code: str, dtype: Any) -> Any:
    """The element type that a code names."""
    if code[0] == "i":
        return tg.int32
    grids = {
        "s": lambda: dtype,
        "v": lambda: et.vector(int(code[1:]), dtype),
        "m": lambda: et.matrix((int(code[1]), int(code[2])), dtype),
        "q": lambda: et.quaternion(dtype),
        "t": lambda: et.transformation(dtype),
    }
    return grids[code[0]]()


def shape_of(code: str) -> tuple[int, ...]:
    kind = kind_of(code, tg.float64)
    return kind.shape if isinstance(kind, et.GridType) else ()


def draw(case: Case, seed: int = 1) -> list[Any]:
    """N float64 values for each argument; quaternions and the rotations of transforms are of length 1."""
    rng = np.random.default_rng(seed)
    drawn = []
    for code in case.takes:
        x = rng.normal(size=(N, *shape_of(code)))
        if code in ("q", "t"):
            x[:, -4:] /= np.linalg.norm(x[:, -4:], axis=1)[:, None]
        drawn.append(x)
    return [np.asarray(x) for x in case.prepare(drawn)] if case.prepare else drawn


def answers(case: Case, arguments: Sequence[Any]) -> list[Any]:
    """The results for all elements, in float64."""
    each = [case.answer(*(np.asarray(x[i], np.float64) for x in arguments)) for i in range(len(arguments[0]))]
    if len(case.gives) == 1:
        return [np.array(each)]
    return [np.array([e[k] for e in each]) for k in range(len(case.gives))]


_FORMS = {
    "lanes": ("    i = tg.tid()\n", "x{0}[i]", "    y{0}[i] = r{0}\n", "f({})"),
    "tiles": ("", "tg.tile_load(x{0}, shape=N)", "    tg.tile_store(y{0}, r{0})\n", "f({})"),
    "map": ("", "tg.tile_load(x{0}, shape=N)", "    tg.tile_store(y{0}, r{0})\n", "tg.tile_map(f, {})"),
}


@cache
def kernel_of(case: Case, form: str, dtype: Any) -> Any:
    """The kernel that applies the function to every element of arrays."""
    start, load, store, call = _FORMS[form]
    ins = [f"x{k}: tg.array1d[T{k}]" for k in range(len(case.takes))]
    outs = [f"y{k}: tg.array1d[U{k}]" for k in range(len(case.gives))]
    results = ", ".join(f"r{k}" for k in range(len(case.gives)))
    arguments = ", ".join(load.format(k) for k in range(len(case.takes)))
    stores = "".join(store.format(k) for k in range(len(case.gives)))
    text = f"def kernel({', '.join(ins + outs)}):\n{start}    {results} = {call.format(arguments)}\n{stores}"
    names: dict[str, Any] = {f"T{k}": kind_of(c, dtype) for k, c in enumerate(case.takes)}
    names |= {f"U{k}": kind_of(c, dtype) for k, c in enumerate(case.gives)}
    return build(text, f=case.f, N=N, **names)


def memory(case: Case, arguments: Sequence[Any], dtype: Any) -> tuple[list[Any], list[Any]]:
    """The arguments in `dtype`, and zeros for the results."""
    ins = [np.ascontiguousarray(x, kind_of(c, dtype).np.base) for x, c in zip(arguments, case.takes)]
    outs = [np.zeros((len(ins[0]), *shape_of(c)), kind_of(c, dtype).np.base) for c in case.gives]
    return ins, outs


def run(case: Case, form: str, ins: list[Any], outs: list[Any], dtype: Any, device: str) -> None:
    kernel = kernel_of(case, form, dtype)
    if form == "lanes":
        tg.launch(kernel, len(ins[0]), ins, outs, device=device, block_dim=4)
    else:
        tg.launch_tiled(kernel, 1, ins, outs, device=device, block_dim=4)


def check_values(case: Case, form: str, dtype: Any, device: str) -> None:
    """What a kernel computes is the answer, up to the error of the dtype."""
    ins, outs = memory(case, draw(case), dtype)
    run(case, form, ins, outs, dtype, device)
    for out, right in zip(outs, answers(case, ins)):
        scale = TOLERANCE[dtype] * case.slack
        np.testing.assert_allclose(out.astype(np.float64), right, rtol=scale, atol=scale, err_msg=case.name)


def check_host(case: Case) -> None:
    """Outside of kernels the function works on `vec3(...)` and so on."""
    ins, _ = memory(case, draw(case), tg.float64)
    given = []
    for x, code in zip(ins, case.takes):
        kind = kind_of(code, tg.float64)
        given.append(kind(x[0]) if isinstance(kind, et.GridType) else x[0])
    made = case.f(*given)
    results = made if isinstance(made, tuple) else (made,)
    for found, right, code in zip(results, answers(case, [x[:1] for x in ins]), case.gives):
        np.testing.assert_allclose(np.asarray(found), right[0], rtol=1e-11, atol=1e-11, err_msg=case.name)
        assert not shape_of(code) or found.kind is kind_of(code, tg.float64)


def check_gradient(case: Case, form: str, device: str) -> None:
    """The gradient of a random weighting of the results agrees with central differences."""
    rng = np.random.default_rng(3)
    ins, outs = memory(case, draw(case), tg.float64)
    pullback = tg.vjp(
        kernel_of(case, form, tg.float64), N if form == "lanes" else 1, ins, outs,
        tiled=form != "lanes", device=device, block_dim=4,
    )  # fmt: skip
    cts = [rng.normal(size=y.shape) for y in outs]
    grads = pullback(*cts)

    def weighted(arguments: list[Any]) -> Any:
        results = [np.zeros_like(y) for y in outs]
        run(case, "lanes", arguments, results, tg.float64, "cpu")
        return sum((ct * y).reshape(N, -1).sum(1) for ct, y in zip(cts, results))

    for k, x in enumerate(ins):
        numeric = np.zeros_like(x)
        for part in np.ndindex(x.shape[1:]):
            steps = []
            for h in (1e-6, -1e-6):
                moved = [np.array(a) for a in ins]
                moved[k][:, *part] += h
                steps.append(weighted(moved))
            numeric[:, *part] = (steps[0] - steps[1]) / 2e-6
        scale = 1e-7 * case.slack * max(1.0, float(np.abs(numeric).max()))
        np.testing.assert_allclose(grads[k], numeric, rtol=1e-6, atol=scale, err_msg=f"{case.name}, argument {k}")
