"""Checks of one op on one sample: its rules against its body, on every device, and its gradients.

Each raises AssertionError with what was off. Does not need pytest. Whole launches are checked by `gradcheck`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import compiler
from tilegrad import dtypes as dt
from tilegrad.ad import Backward, differentiate
from tilegrad.ad.claims import CLAIMED
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.parser import parse
from tilegrad.ir.printer import to_text
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type, dtype_of
from tilegrad.ir.verify import verify
from tilegrad.op import REGISTRY, Sample, infer_types
from tilegrad.ops.control import finish
from tilegrad.passes import effects
from tilegrad.tape.records import final_contents

Host = np.ndarray[Any, Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class OneOp:
    """A kernel that loads operands from arrays, runs one op, and stores the results in arrays."""

    kernel: Kernel
    #: which parameters are arrays that the op itself writes
    inputs: int
    outputs: tuple[Type, ...]


def operand_kind(definition: OpDef, k: int) -> str:
    """How operand k is declared; "value" is a tile or a scalar by what the sample holds."""
    return definition.kinds[k] if k < len(definition.kinds) else definition.variadic or "value"


def _as_array(x: Any) -> Host:
    """An operand as the array that a kernel gets for it."""
    value = np.asarray(x)
    if value.dtype == np.int64 and isinstance(x, int):
        value = value.astype(np.int32)
    return value.reshape(1) if value.ndim == 0 else value


def one_op_kernel(definition: OpDef, sample: Sample, keep_results: bool = True) -> OneOp:
    """The kernel that runs `definition` once on arrays shaped like the sample's operands."""
    arrays = [_as_array(x) for x in sample.args]
    kinds = [_kind(definition, k, x) for k, x in enumerate(sample.args)]
    types = [ArrayType(_dtype(a), a.ndim, True) for a in arrays]
    operand_types = tuple(_operand_type(kind, a) for kind, a in zip(kinds, arrays, strict=True))
    results = infer_types(definition, operand_types, {**definition.defaults, **sample.attrs}) if keep_results else ()
    outs = [ArrayType(dtype_of(t), t.ndim if isinstance(t, TileType) else 1, True) for t in results]
    params = tuple(Value(t, f"p{i}", index=i) for i, t in enumerate([*types, *outs]))
    builder = Builder(Block(params))
    with builder.active():
        operands = [_load(kind, p, a) for kind, p, a in zip(kinds, params, arrays, strict=False)]
        made = definition(*operands, **sample.attrs)
        for value, out in zip(_tuple(made) if keep_results else (), params[len(arrays) :], strict=True):
            _store(out, value)
        finish(builder, [])
    return OneOp(Kernel(definition.name, builder.block), len(arrays), results)


def _tuple(made: Any) -> tuple[Any, ...]:
    return () if made is None else made if isinstance(made, tuple) else (made,)


def _kind(definition: OpDef, k: int, x: Any) -> str:
    kind = operand_kind(definition, k)
    return kind if kind != "value" else "tile" if np.ndim(x) else "scalar"


def _dtype(a: Host) -> dt.DType:
    found = dt.as_dtype(a.dtype)
    assert found is not None, a.dtype
    return found


def _operand_type(kind: str, a: Host) -> Type:
    if kind == "array":
        return ArrayType(_dtype(a), a.ndim, True)
    return TileType(_dtype(a), a.shape) if kind == "tile" else ScalarType(_dtype(a))


def _load(kind: str, p: Value, a: Host) -> Value:
    if kind == "array":
        return p
    zeros = (0,) * a.ndim
    name, attrs = ("tile_load", {"shape": a.shape, "fill": 0}) if kind == "tile" else ("array_load", {})
    result: Value = REGISTRY[name](p, *zeros, **attrs)
    return result


def _store(out: Value, value: Value) -> None:
    if isinstance(value.type, TileType):
        REGISTRY["tile_store"](out, value, *(0,) * value.type.ndim)
    else:
        REGISTRY["array_store"](out, value, 0)


def run_one(definition: OpDef, sample: Sample, device: str) -> tuple[list[Any], list[Any]]:
    """The results of an op on a device, and its array operands as the op left them."""
    case = one_op_kernel(definition, sample)
    arrays = [np.array(_as_array(x)) for x in sample.args]
    outs = [np.zeros(t.shape if isinstance(t, TileType) else (1,), dtype_of(t).np) for t in case.outputs]
    compiler.execute(case.kernel, [*arrays, *outs], (1,), device)
    return outs, [a for k, a in enumerate(arrays) if operand_kind(definition, k) == "array"]


def run_body(definition: OpDef, sample: Sample) -> tuple[list[Any], list[Any]]:
    """The results of an op's body, and its array operands as the body left them."""
    args = [np.array(x) if operand_kind(definition, k) == "array" else x for k, x in enumerate(sample.args)]
    with np.errstate(all="ignore"):
        made = definition.body(*args, **{**definition.defaults, **sample.attrs})
    arrays = [a for k, a in enumerate(args) if operand_kind(definition, k) == "array"]
    return [np.atleast_1d(np.asarray(x)) for x in _tuple(made)], arrays


#: relative error allowed between a compiled op and its body, by dtype: a few roundings of different order
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-13}


def check_op(definition: OpDef, sample: Sample, devices: Sequence[str] = ("interpret", "cpu")) -> None:
    """Hold the rules of an op against each other on one sample: types, text, meaning, and every device."""
    results, arrays = run_body(definition, sample)
    case = one_op_kernel(definition, sample)
    check_text(case.kernel)
    for t, x in zip(case.outputs, results, strict=True):
        assert x.dtype == dtype_of(t).np, f"{definition.name}: {t} but {x.dtype}"
        assert not isinstance(t, TileType) or x.shape == t.shape, f"{definition.name}: {t} but shape {x.shape}"
    for device in devices:
        got, got_arrays = run_one(definition, sample, device)
        for a, b in zip([*results, *arrays], [*got, *got_arrays], strict=True):
            assert_close(a, b, f"{definition.name} on {device} with {sample.attrs}")


def check_text(kernel: Kernel) -> None:
    """The kernel is valid, and so is what its text is read back as, which has the same text."""
    text = to_text(verify(kernel, infer_types))
    assert to_text(verify(parse(text, REGISTRY), infer_types)) == text, text


def assert_close(expected: Any, got: Any, what: str) -> None:
    """Equal for integers and bools, within the rounding of the dtype for floats."""
    name = expected.dtype.name
    if name not in TOLERANCE:
        assert np.array_equal(expected, got), f"{what}: expected {expected}, got {got}"
        return
    a, b = expected.astype(np.float64), got.astype(np.float64)
    scale = np.maximum(1.0, np.abs(a))
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= TOLERANCE[name] * scale)
    assert same.all(), f"{what}: expected {a[~same][:4]}, got {b[~same][:4]}"


def is_differentiable(definition: OpDef, sample: Sample) -> bool:
    """Whether the sample can be used to check the op's gradient: float64 operands and results."""
    if definition.adjoint is None or definition.no_gradient:
        return False
    floats = [np.asarray(x).dtype for x in sample.args if np.asarray(x).dtype.kind == "f"]
    return bool(floats) and all(d == np.float64 for d in floats)


def check_gradient(definition: OpDef, sample: Sample, device: str = "interpret", rng: Rng | None = None) -> None:
    """The compiled adjoint of an op against central differences."""
    kernel, values = gradient_case(definition, sample)
    check_kernel_gradient(kernel, values, device=device, fixed=sample.fixed, rng=rng, what=_title(definition, sample))


def check_second_derivative(
    definition: OpDef, sample: Sample, device: str = "interpret", rng: Rng | None = None
) -> None:
    """The adjoint of the adjoint of an op against central differences of the adjoint.

    Raises: GradientUndefined if the adjoint cannot be differentiated.
    """
    rng = rng or np.random.default_rng(1)
    kernel, values = gradient_case(definition, sample)
    wrt = [_has_gradient(v) for v in kernel.params]
    backward = differentiate(kernel, wrt)
    if backward.prelude is not None:
        return  # it depends on final contents, which only a tape has; a second gradient is refused
    first = backward.kernel
    grads = [rng.standard_normal(x.shape) for x, w in zip(values, wrt, strict=True) if w]
    what = f"second derivative of {_title(definition, sample)}"
    check_kernel_gradient(first, [*values, *grads], device=device, fixed=sample.fixed, rng=rng, what=what)


#: distance from 1 to the next number
PRECISION = {dt.float16: 2.0**-10, dt.bfloat16: 2.0**-7, dt.float32: 2.0**-23, dt.float64: 2.0**-52}
#: rounding errors allowed in a gradient of a smaller float, in units of its precision
ROUNDINGS = 40


def check_low_precision_gradient(
    definition: OpDef, sample: Sample, dtype: dt.DType, devices: Sequence[str] = ("interpret", "cpu")
) -> None:
    """The adjoint of an op in a smaller float against its adjoint in float64 at the same (rounded) point.

    Args:
        sample: operands in float64, which are rounded to `dtype`.
    """
    low = Sample(tuple(_rounded(x, dtype) for x in sample.args), sample.attrs, sample.fixed)
    exact = Sample(tuple(_rounded(x, dt.float64) for x in low.args), sample.attrs, sample.fixed)
    expected = _adjoint_arrays(definition, exact, "interpret")
    for device in devices:
        for k, (a, b) in enumerate(zip(expected, _adjoint_arrays(definition, low, device), strict=True)):
            error = np.abs(a - b.astype(np.float64)) / max(1.0, float(np.abs(a).max(initial=0)))
            bound = ROUNDINGS * PRECISION[dtype]
            what = f"{_title(definition, sample)}, operand {k}, {dtype} on {device}"
            assert b.dtype == dtype.np and (error <= bound).all(), f"{what}: {a.ravel()[:4]} but {b.ravel()[:4]}"


def _rounded(x: Any, dtype: dt.DType) -> Any:
    is_real = isinstance(x, np.ndarray | np.generic) and (x.dtype.kind == "f" or x.dtype == dt.bfloat16.np)
    with np.errstate(over="ignore"):
        return x.astype(dtype.np) if is_real else x


def _adjoint_arrays(definition: OpDef, sample: Sample, device: str) -> list[Host]:
    """The gradients of all float arrays of an op's kernel for fixed cotangents, which every dtype holds exactly."""
    kernel, values = gradient_case(definition, sample)
    wrt = [isinstance(v.type, ArrayType) and v.type.dtype.is_float for v in kernel.params]
    written = effects.written(kernel, kernel.body)
    grads = []
    for k, (x, w) in enumerate(zip(values, wrt, strict=True)):
        if w:
            seed = (np.arange(x.size).reshape(x.shape) % 5 - 2).astype(x.dtype)
            grads.append(seed if kernel.memory(kernel.params[k]) in written else np.zeros_like(x))
    _run_backward(differentiate(kernel, wrt), values, grads, (1,), device)
    return grads


def _run_backward(
    backward: Backward, values: Sequence[Any], grads: Sequence[Host], grid: tuple[int, ...], device: str
) -> None:
    """Run a backward kernel on copies of `values`; adds to `grads`."""
    finals = []
    if backward.prelude is not None:
        after = _copies(values)
        compiler.execute(backward.prelude, after, grid, device)
        finals = [final_contents(values[i], after[i]) for i in backward.finals]
    compiler.execute(backward.kernel, [*_copies(values), *grads, *finals], grid, device)


def _title(definition: OpDef, sample: Sample) -> str:
    return f"{definition.name} {sample.attrs or ''}".rstrip()


def gradient_case(definition: OpDef, sample: Sample) -> tuple[Kernel, list[Host]]:
    """A kernel of one op, and arrays for its parameters."""
    # the old value of an atomic minimum or maximum has no gradient: AD refuses it
    case = one_op_kernel(definition, sample, keep_results=definition.name not in CLAIMED)
    outs = [np.zeros(t.shape if isinstance(t, TileType) else (1,), dtype_of(t).np) for t in case.outputs]
    return case.kernel, [*(np.array(_as_array(x)) for x in sample.args), *outs]


def _has_gradient(v: Value) -> bool:
    return isinstance(v.type, ArrayType) and v.type.dtype is dt.float64


def check_kernel_gradient(
    kernel: Kernel,
    values: Sequence[Any],
    *,
    grid: tuple[int, ...] = (1,),
    device: str = "interpret",
    fixed: Sequence[int] = (),
    rng: Rng | None = None,
    what: str = "",
) -> None:
    """The backward kernel of a kernel against central differences, along a random direction for each array.

    Args:
        kernel: Tile IR; its float64 arrays are differentiated.
        values: NumPy arrays and numbers for its parameters; they are not changed.
        grid: the launch dimensions.
        device: where the backward kernel runs; the differences are taken in the interpreter.
        fixed: parameters that are not moved.
        what: a name for messages.
    """
    rng = rng or np.random.default_rng(0)
    which = [k for k, v in enumerate(kernel.params) if _has_gradient(v)]
    written = effects.written(kernel, kernel.body)
    seeds = {k: rng.standard_normal(values[k].shape) for k in which if kernel.memory(kernel.params[k]) in written}
    backward = differentiate(kernel, [k in which for k in range(len(values))])
    grads = [np.array(seeds[k]) if k in seeds else np.zeros_like(values[k]) for k in which]
    _run_backward(backward, values, grads, grid, device)

    def loss(inputs: Sequence[Any]) -> float:
        fresh = _copies(inputs)
        compiler.execute(kernel, fresh, grid, "interpret")
        return float(sum(np.sum(fresh[k] * s) for k, s in seeds.items()))

    for k, grad in zip(which, grads, strict=True):
        if k not in fixed:
            direction = rng.standard_normal(values[k].shape)
            expected = _slope(loss, values, k, direction, 1e-6)
            _require_slope(expected, float(np.sum(grad * direction)), 1e-5, f"{what}, operand {k} on {device}")


def _copies(values: Sequence[Any]) -> list[Any]:
    return [np.array(x) if isinstance(x, np.ndarray) else x for x in values]


def _slope(f: Callable[[list[Any]], float], values: Sequence[Any], k: int, direction: Host, step: float) -> float:
    """The derivative of `f` when value `k` moves along a direction, by central differences."""
    x = values[k]
    plus, minus = ([*values[:k], (x + h * direction).astype(x.dtype), *values[k + 1 :]] for h in (step, -step))
    return (f(plus) - f(minus)) / (2 * step)


def _require_slope(expected: float, got: float, tolerance: float, what: str) -> None:
    close = abs(expected - got) <= tolerance * max(1.0, abs(expected))
    assert close, f"{what}: finite differences {expected}, adjoint {got}"
