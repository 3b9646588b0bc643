"""Checks of ops and of gradients, for our tests and for authors of ops.

`check_op` holds an op's rules against each other on one sample; `gradcheck` holds a launch's gradient against finite
differences. Both raise AssertionError with what was off. Does not need pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import compiler
from tilegrad import dtypes as dt
from tilegrad.ad import differentiate
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type, dtype_of
from tilegrad.op import REGISTRY, Sample, infer_types
from tilegrad.ops.control import finish


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


def _as_array(x: Any) -> np.ndarray[Any, Any]:
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


def _dtype(a: np.ndarray[Any, Any]) -> dt.DType:
    found = dt.as_dtype(a.dtype)
    assert found is not None, a.dtype
    return found


def _operand_type(kind: str, a: np.ndarray[Any, Any]) -> Type:
    if kind == "array":
        return ArrayType(_dtype(a), a.ndim, True)
    return TileType(_dtype(a), a.shape) if kind == "tile" else ScalarType(_dtype(a))


def _load(kind: str, p: Value, a: np.ndarray[Any, Any]) -> Value:
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
    """Hold the rules of an op against each other on one sample: types, meaning, and every device."""
    results, arrays = run_body(definition, sample)
    case = one_op_kernel(definition, sample)
    for t, x in zip(case.outputs, results, strict=True):
        assert x.dtype == dtype_of(t).np, f"{definition.name}: {t} but {x.dtype}"
        assert not isinstance(t, TileType) or x.shape == t.shape, f"{definition.name}: {t} but shape {x.shape}"
    for device in devices:
        got, got_arrays = run_one(definition, sample, device)
        for a, b in zip([*results, *arrays], [*got, *got_arrays], strict=True):
            assert_close(a, b, f"{definition.name} on {device} with {sample.attrs}")


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


def check_gradient(definition: OpDef, sample: Sample, device: str = "interpret", rng: Any = None) -> None:
    """The compiled adjoint against central differences, along random directions."""
    rng = rng or np.random.default_rng(0)
    # the old value of an atomic update that other blocks share has no gradient: AD refuses it
    case = one_op_kernel(definition, sample, keep_results=definition.effect != "atomic")
    arrays = [np.array(_as_array(x)) for x in sample.args]
    outs = [np.zeros(t.shape if isinstance(t, TileType) else (1,), dtype_of(t).np) for t in case.outputs]
    values = [*arrays, *outs]
    wrt = [a.dtype == np.float64 for a in values]
    written = [k for k in range(len(values)) if k >= len(arrays) or _is_written(definition, k)]
    backward = differentiate(case.kernel, tuple(wrt))
    seeds = {k: rng.standard_normal(values[k].shape) for k in written if wrt[k]}

    def loss(inputs: Sequence[Any]) -> float:
        fresh = [np.array(x) for x in inputs] + [np.zeros_like(o) for o in outs]
        compiler.execute(case.kernel, fresh, (1,), "interpret")
        return float(sum(np.sum(fresh[k] * s) for k, s in seeds.items()))

    grads = [np.array(seeds[k]) if k in seeds else np.zeros_like(values[k]) for k in range(len(values)) if wrt[k]]
    copies = [np.array(v) for v in values]
    compiler.execute(backward.kernel, [*copies, *grads], (1,), device)
    step = 1e-6
    which = [k for k in range(len(values)) if wrt[k]]
    for k, grad in zip(which, grads, strict=True):
        if k >= len(arrays) or k in sample.fixed:
            continue
        direction = rng.standard_normal(arrays[k].shape)
        plus, minus = ([np.array(a) for a in arrays] for _ in range(2))
        plus[k] = plus[k] + step * direction
        minus[k] = minus[k] - step * direction
        expected = (loss(plus) - loss(minus)) / (2 * step)
        got = float(np.sum(grad * direction))
        close = abs(expected - got) <= 1e-5 * max(1.0, abs(expected))
        assert close, f"{definition.name}, operand {k}, {sample.attrs}: finite differences {expected}, adjoint {got}"


def _is_written(definition: OpDef, k: int) -> bool:
    return operand_kind(definition, k) == "array" and definition.effect in ("write", "atomic")
