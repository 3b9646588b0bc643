"""Tile operations: what their bodies mean, their adjoints on plain arrays, their errors, and how users call them.

`test_contract` holds the rules of every op against each other; here each is held against something outside of it:
a plain formula, central differences, or the text that a user sees.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TilegradError, TypeMismatch
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, TileType
from tilegrad.op import REGISTRY, Sample, infer_types
from tilegrad.ops.memory import overlap
from tilegrad.testing import operand_kind

F32 = np.float32
D = tg.float64
NAN, INF = math.nan, math.inf


@pytest.fixture(params=["interpret", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(function: Callable[..., None], device: str, *args: Any, dim: Any = 1, block_dim: int = 4) -> list[np.ndarray]:
    """Run a kernel once per block of `dim` on copies of the arrays, and return them."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    tg.launch_tiled(tg.kernel(function), dim=dim, inputs=copies, block_dim=block_dim, device=device)
    return [a for a in copies if isinstance(a, np.ndarray)]


def zeros(*shape: int, dtype: Any = F32) -> np.ndarray:
    return np.zeros(shape, dtype)


def counting(*shape: int, dtype: Any = F32) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


# --- adjoints on plain arrays -----------------------------------------------------------------------------------------

FAMILIES = (
    "tile_full", "tile_arange", "tile_load", "tile_store", "tile_atomic_add", "array_load", "array_store",
    "array_take", "array_atomic_add", "array_atomic_sub", "tile_transpose", "tile_reshape", "tile_broadcast",
    "tile_slice", "tile_insert", "tile_extract", "tile_put", "tile_add_at", "tile_sum", "tile_min", "tile_max",
    "tile_prod", "tile_matmul", "tile_matmul_add",
)  # fmt: skip

#: what the samples of an op do not have: a float64 sample, or repeated and negative elements
MORE: dict[str, list[Sample]] = {
    "array_store": [Sample((counting(3, 4, dtype=float), np.float64(1.5), 2, -4))],
    "array_atomic_add": [Sample((counting(3, 4, dtype=float), np.float64(1.5), -1, 3))],
    "array_atomic_sub": [Sample((counting(3, 4, dtype=float), np.float64(1.5), 0, 0))],
    "tile_put": [Sample((counting(4, 5, dtype=float), np.float64(-2.0), 2, -1))],
    "tile_add_at": [Sample((counting(4, 5, dtype=float), np.float64(-2.0), -4, 0))],
    "tile_matmul": [Sample((np.ones((1, 7)), counting(7, 1, dtype=float)))],
}


def samples_in_float64(name: str) -> Iterator[Sample]:
    """The samples of an op whose floats are float64."""
    definition = REGISTRY[name]
    assert definition.samples is not None
    for sample in [*definition.samples(np.random.default_rng(5)), *MORE.get(name, [])]:
        dtypes = [np.asarray(x).dtype for x in sample.args if not isinstance(x, int)]
        if dtypes and all(d == np.float64 or d.kind in "iu" for d in dtypes) and np.float64 in dtypes:
            yield sample


class Loss:
    """A random linear function of what an op returns and of what it leaves in its arrays."""

    def __init__(self, definition: OpDef, sample: Sample) -> None:
        self.definition, self.sample = definition, sample
        self.attrs = {**definition.defaults, **sample.attrs}
        self.arrays = [k for k in range(len(sample.args)) if operand_kind(definition, k) == "array"]
        rng = np.random.default_rng(11)
        out = self.outcome(sample.args)[0]
        self.ct = None if out is None else np.asarray(rng.standard_normal(np.shape(out)))[()]
        self.seeds = {k: rng.standard_normal(np.shape(sample.args[k])) for k in self.arrays}

    def outcome(self, args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        fresh = [np.array(x) if k in self.arrays else x for k, x in enumerate(args)]
        out = self.definition.body(*fresh, **self.attrs)
        return out, fresh

    def __call__(self, args: tuple[Any, ...]) -> float:
        out, left = self.outcome(args)
        direct = 0.0 if self.ct is None else float(np.sum(out * self.ct))
        return direct + sum(float(np.sum(left[k] * seed)) for k, seed in self.seeds.items())

    def gradient(self) -> list[Any]:
        """The gradient of every operand by the op's adjoint rule."""
        grads = tuple(np.array(self.seeds[k]) if k in self.seeds else None for k in range(len(self.sample.args)))
        out, _ = self.outcome(self.sample.args)
        assert self.definition.adjoint is not None
        extra = {"grads": grads} if self.arrays else {}
        cts = self.definition.adjoint(self.ct, out, *self.sample.args, **extra, **self.attrs)
        assert len(cts) == len(self.sample.args)
        return [grads[k] if k in self.arrays else ct for k, ct in enumerate(cts)]


@pytest.mark.parametrize("name", FAMILIES)
def test_adjoint_is_the_transposed_derivative(name: str) -> None:
    checked = 0
    for sample in samples_in_float64(name):
        loss = Loss(REGISTRY[name], sample)
        for k, gradient in enumerate(loss.gradient()):
            x = np.asarray(sample.args[k])
            if x.dtype != np.float64:
                assert gradient is None
                continue
            assert np.shape(gradient) == x.shape
            direction = np.random.default_rng(k).standard_normal(x.shape)
            step = 1e-6
            ends = [(*sample.args[:k], (x + s * direction)[()], *sample.args[k + 1 :]) for s in (step, -step)]
            expected = (loss(ends[0]) - loss(ends[1])) / (2 * step)
            np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-6, atol=1e-6)
            checked += 1
    assert checked


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ndim", range(1, 9))
def test_a_load_is_a_cut_from_the_padded_array(ndim: int) -> None:
    rng = np.random.default_rng(ndim)
    a = rng.standard_normal((2, 3, 2, 3, 2, 1, 2, 2)[:ndim])
    for _ in range(20):
        shape = tuple(int(n) for n in rng.integers(1, 4, ndim))
        offset = tuple(int(n) for n in rng.integers(-4, 5, ndim))
        padded = np.pad(a, 8, constant_values=7.0) if ndim < 5 else None
        inside, part = overlap(offset, shape, a.shape)
        assert a[inside].shape == np.empty(shape)[part].shape
        got = REGISTRY["tile_load"].body(a, *offset, shape=shape, fill=7.0)
        if padded is not None:
            expected = padded[tuple(slice(o + 8, o + 8 + n) for o, n in zip(offset, shape, strict=True))]
            np.testing.assert_array_equal(got, expected)
        b = np.zeros_like(a)
        REGISTRY["tile_store"].body(b, got, *offset)
        np.testing.assert_array_equal(b[inside], a[inside])
        assert np.count_nonzero(b) <= a[inside].size


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_sums_widen_and_are_rounded_once(d: dt.DType) -> None:
    x = np.full(300, 3).astype(d.np)
    total = REGISTRY["tile_sum"].body(x, axes=(0,))
    assert total.dtype == dt.sum_dtype(d).np and total.shape == (1,)
    assert float(total[0]) == (float(d(900)) if d.is_float else 900)


def test_float32_sums_do_not_lose_small_elements(device: str) -> None:
    def total(a: tg.array1d[float], o: tg.array1d[float]) -> None:
        tg.tile_store(o, tg.tile_sum(tg.tile_load(a, shape=8193)))

    a = np.full(8193, 2.0**-13, F32)
    a[0] = 2.0**12
    assert run(total, device, a, zeros(1))[1][0] == F32(4097)


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize(
    "values",
    [[NAN, 2, 1, 1], [NAN] * 4, [INF, NAN, INF, INF], [-INF, -INF, NAN, -INF], [3, 3, 0, 0], [NAN, INF, INF, 1]],
)
def test_missing_numbers_and_ties(values: list[float], d: dt.DType, propagate: bool) -> None:
    x = np.array(values).astype(d.np)
    present = [k for k, v in enumerate(values) if v == v]
    lost = propagate and len(present) < len(values)
    first_nan = next((k for k, v in enumerate(values) if v != v), 0)
    for name, best in (("min", min), ("max", max)):
        where = best(present, key=lambda k: values[k]) if present and not lost else first_nan if lost else 0
        got = REGISTRY[f"tile_{name}"].body(x, axes=(0,), propagate_nan=propagate)
        arg = REGISTRY[f"tile_arg{name}"].body(x, axes=(0,), propagate_nan=propagate)
        np.testing.assert_array_equal(got.astype(float), x[[where]].astype(float))
        assert arg.dtype == np.int32 and arg.tolist() == [where]


@pytest.mark.parametrize("name", ["tile_min", "tile_max"])
def test_the_first_of_equals_gets_the_gradient(name: str) -> None:  # case G34
    t = np.array([[1.0, 3.0, 3.0, 1.0]] * 2)
    rule = REGISTRY[name].adjoint
    assert rule is not None
    (ct,) = rule(np.array([2.0, 5.0]), None, t, axes=(1,))
    first = 0 if name == "tile_min" else 1
    np.testing.assert_array_equal(ct, np.outer([2.0, 5.0], np.arange(4) == first))


@pytest.mark.parametrize("index", [np.int8(-1), np.uint8(4), np.int64(-5), np.uint64(0), 4])
def test_indices_of_every_type(index: Any) -> None:
    t = counting(5)
    assert REGISTRY["tile_extract"].body(t, index) == t[int(index)]
    assert REGISTRY["array_load"].body(t, index) == t[int(index)]


@pytest.mark.parametrize("index", [5, -6, np.uint64(2**64 - 1), np.array([0, 7, 9])])
@pytest.mark.parametrize("name", ["tile_extract", "array_load"])
def test_a_wrong_index_is_named(name: str, index: Any) -> None:
    shown = {5: "5", -6: "-6"}.get(index, "9223372036854775807") if np.ndim(index) == 0 else "7"
    with pytest.raises(KernelIndexError, match=f"index {shown} is out of range for axis 0 with size 5"):
        REGISTRY[name].body(counting(5), index)


def test_lanes_write_in_order() -> None:
    t, lanes, index = zeros(4), np.arange(6).astype(F32), np.array([0, 1, 0, 1, 0, 3])
    assert REGISTRY["tile_put"].body(t, lanes, index).tolist() == [4, 3, 0, 5]
    assert REGISTRY["tile_add_at"].body(t, lanes, index).tolist() == [6, 4, 0, 5]
    a = zeros(4)
    assert REGISTRY["array_atomic_add"].body(a, lanes, index).tolist() == [0, 0, 0, 1, 2, 0]
    assert a.tolist() == [6, 4, 0, 5]
    assert t.tolist() == [0, 0, 0, 0], "a value is never changed"


@pytest.mark.parametrize("d", dt.NUMERIC, ids=str)
def test_products_of_every_type(d: dt.DType) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(0, 4, s).astype(d.np) for s in ((3, 5), (5, 2), (3, 2)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(REGISTRY["tile_matmul"].body(a, b), exact.astype(d.np))
    np.testing.assert_array_equal(REGISTRY["tile_matmul_add"].body(a, b, c), (exact + c.astype(np.int64)).astype(d.np))


def test_sums_of_half_products_are_not_half() -> None:
    a = np.full((1, 4096), 1.0, np.float16)
    assert REGISTRY["tile_matmul"].body(a, a.T)[0, 0] == 4096


# --- types of results -------------------------------------------------------------------------------------------------

TILE = TileType(dt.float32, (4, 6))
LANE = ScalarType(dt.int32, varying=True)
INT = ScalarType(dt.int32)
ARRAY = ArrayType(dt.float32, 2)

WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[TilegradError], str]] = [
    ("tile_full", (LANE,), {"shape": (4,)}, TypeMismatch, "differs between the lanes"),
    ("tile_arange", (INT, ScalarType(dt.int64)), {"size": 3}, TypeMismatch, "one numeric type"),
    ("tile_load", (ARRAY, INT, INT), {"shape": (4,)}, ShapeMismatch, "the array has 2 dimensions, the tile 1"),
    ("tile_load", (ARRAY, INT), {"shape": (4, 4)}, ShapeMismatch, "2 offsets are needed, 1 were given"),
    ("tile_load", (ARRAY, INT, LANE), {"shape": (4, 4)}, TypeMismatch, "differs between the lanes"),
    ("tile_load", (ARRAY, INT, ScalarType(dt.float32)), {"shape": (4, 4)}, TypeMismatch, "must be an integer"),
    ("tile_store", (ArrayType(dt.int32, 2), TILE, INT, INT), {}, TypeMismatch, "int32, the tile float32"),
    ("tile_atomic_add", (ArrayType(dt.bool_, 1), TileType(dt.bool_, (4,)), INT), {}, TypeMismatch, "bool"),
    ("array_load", (ARRAY, INT), {}, ShapeMismatch, "2 indices are needed, 1 were given"),
    ("array_store", (ARRAY, INT, INT, INT), {}, TypeMismatch, "the array holds float32, the value is int32"),
    ("array_row", (ARRAY, LANE), {}, TypeMismatch, "must be the same for all lanes"),
    ("array_row", (ARRAY, INT, INT), {}, ShapeMismatch, "1 to 1 indices"),
    ("tile_reshape", (TILE,), {"shape": (5, 5)}, ShapeMismatch, "has 24 elements, the shape (5, 5) has 25"),
    ("tile_reshape", (TILE,), {"shape": (24,) + (1,) * 8}, ShapeMismatch, "1 to 8 dimensions, this shape has 9"),
    ("tile_broadcast", (TILE,), {"shape": (3, 6)}, ShapeMismatch, "does not broadcast to (3, 6)"),
    ("tile_broadcast", (TILE,), {"shape": (6,)}, ShapeMismatch, "does not broadcast to (6,)"),
    ("tile_slice", (TILE, INT, INT), {"sizes": (5, 6), "steps": (1, 1)}, ShapeMismatch, "does not fit axis 0"),
    ("tile_slice", (TILE, INT, INT), {"sizes": (2, 4), "steps": (1, -2)}, ShapeMismatch, "does not fit axis 1"),
    ("tile_slice", (TILE, LANE, INT), {"sizes": (2, 2), "steps": (1, 1)}, TypeMismatch, "same for all lanes"),
    ("tile_insert", (TILE, TileType(dt.int32, (1, 1)), INT, INT), {"steps": (1, 1)}, TypeMismatch, "int32 tile"),
    ("tile_extract", (TILE, INT), {}, ShapeMismatch, "has 2 indices, 1 were given"),
    ("tile_put", (TILE, INT, INT, INT), {}, TypeMismatch, "the tile holds float32, the value is int32"),
    ("tile_matmul", (TILE, TILE), {}, ShapeMismatch, "inner sizes differ"),
    ("tile_matmul", (TILE, TileType(dt.float64, (6, 2))), {}, TypeMismatch, "float32 and float64"),
    ("tile_matmul", (TileType(dt.bool_, (2, 2)),) * 2, {}, TypeMismatch, "not defined for bool"),
    ("tile_matmul", (TILE, TileType(dt.float32, (6,))), {}, ShapeMismatch, "must have 2 dimensions"),
    ("tile_matmul_add", (TILE, TileType(dt.float32, (6, 2)), TILE), {}, ShapeMismatch, "`out` is a float32 tile"),
    ("untile", (TILE,), {}, ShapeMismatch, "must have 1 dimension"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "attrs", "kind", "text"), WRONG)
def test_what_the_types_refuse(name: str, types: Any, attrs: Any, kind: type[TilegradError], text: str) -> None:
    definition = REGISTRY[name]
    with pytest.raises(kind, match=re.escape(text)):
        infer_types(definition, types, {**definition.defaults, **attrs})


# --- construction -----------------------------------------------------------------------------------------------------


def test_construction(device: str) -> None:
    def make(o: tg.array2d[float], p: tg.array1d[D], q: tg.array1d[int], v: float) -> None:
        tg.tile_store(o, tg.tile_ones((1, 3), storage="shared"))
        tg.tile_store(o, tg.tile_empty(shape=(1, 3)), offset=(1, 0))
        tg.tile_store(o, tg.tile_full((1, 3), v), offset=(2, 0))
        tg.tile_store(p, tg.tile_full(3, v, dtype=D))
        tg.tile_store(q, tg.tile_arange(7, -2, -3, dtype=int))

    o, p, q = run(make, device, np.full((3, 3), 9, F32), zeros(3, dtype=float), zeros(3, dtype=np.int32), 2.5)
    assert o.tolist() == [[1] * 3, [0] * 3, [2.5] * 3]
    assert p.tolist() == [2.5] * 3 and q.tolist() == [7, 4, 1]


@pytest.mark.parametrize("ndim", range(1, 9))
def test_every_rank(ndim: int, device: str) -> None:
    shape = (2, 3, 1, 2, 2, 1, 3, 2)[:ndim]
    array = getattr(tg, f"array{ndim}d", None)
    annotation = array[D] if array is not None else tg.array(dtype=D, ndim=ndim)
    axes = tuple(reversed(range(ndim)))

    def kernel(a: annotation, o: annotation, s: tg.array1d[D]) -> None:  # type: ignore[valid-type]
        t = tg.tile_load(a, shape=shape)
        tg.tile_store(o, tg.tile_transpose(t, axes) * 2.0)
        tg.tile_store(s, tg.tile_sum(t))
        tg.tile_store(s, tg.tile_max(t.reshape(-1)), offset=1)

    kernel.__annotations__ = {"a": annotation, "o": annotation, "s": tg.array1d[D], "return": None}
    a = np.random.default_rng(0).standard_normal(shape)
    _, o, s = run(kernel, device, a, np.zeros(shape[::-1]), np.zeros(2))
    np.testing.assert_allclose(o, a.T * 2)
    np.testing.assert_allclose(s, [a.sum(), a.max()])


# --- views ------------------------------------------------------------------------------------------------------------


def test_views_pick_by_ints_slices_and_shapes(device: str) -> None:
    def pick(a: tg.array2d[float], o: tg.array2d[float], n: int) -> None:
        t = tg.tile_load(a, (4, 6))
        tg.tile_store(o[0], tg.tile_view(t, offset=(n,)))
        tg.tile_store(o[1], tg.tile_view(t, offset=(1, slice(0, 6, 2))))
        tg.tile_store(o[2], tg.tile_view(t, offset=(slice(None), n)))
        tg.tile_store(o[3], tg.tile_view(t, offset=(2, -1)))
        tg.tile_store(o, tg.tile_view(t, offset=(n, 1), shape=(2, 3)), offset=(4, 0))
        tg.tile_store(o[6], tg.tile_view(t, -1))

    a = counting(4, 6)
    _, o = run(pick, device, a, zeros(7, 6), 2)
    assert o[0].tolist() == a[2].tolist() and o[6].tolist() == a[3].tolist()
    assert o[1, :3].tolist() == a[1, ::2].tolist() and o[2, :4].tolist() == a[:, 2].tolist()
    assert o[3, 0] == a[2, -1] and o[4:6, :3].tolist() == a[2:4, 1:4].tolist()


def test_a_write_through_any_view_reaches_the_tile(device: str) -> None:
    def write(a: tg.array2d[float], o: tg.array2d[float], n: int) -> None:
        t = tg.tile_load(a, (4, 6))
        tg.tile_view(t, offset=(n,))[0] = -1.0
        v = tg.tile_view(t, offset=(slice(1, 3), slice(4, None)))
        v += 100.0
        t.T[5, 0] = -2.0
        t[::-2, ::-3].reshape(4)[3] = -3.0
        tg.tile_squeeze(t[:1])[1] = -4.0
        tg.tile_store(o, t)

    expected = counting(4, 6)
    expected[2, 0] = -1
    expected[1:3, 4:] += 100
    expected.T[5, 0] = -2
    expected[::-2, ::-3][1, 1] = -3
    expected[0, 1] = -4
    np.testing.assert_array_equal(run(write, device, counting(4, 6), zeros(4, 6), 2)[1], expected)


@pytest.mark.parametrize("i", [0, 5, -1, -8])
def test_run_time_parts_count_from_the_end_once(i: int, device: str) -> None:
    def part(a: tg.array1d[float], o: tg.array1d[float], i: int) -> None:
        t = tg.tile_load(a, 8)
        tg.tile_store(o, tg.tile_view(t, offset=i, shape=1))
        tg.tile_assign(t, tg.tile_full(1, 50.0), offset=i)
        tg.tile_store(o, t, offset=1)

    expected = counting(8)
    expected[i] = 50
    got = run(part, device, counting(8), zeros(9), i)[1]
    assert got.tolist() == [i % 8, *expected]


def read_part(a: tg.array2d[float], o: tg.array2d[float], i: int) -> None:
    tg.tile_store(o, tg.tile_view(tg.tile_load(a, (4, 3)), (i, 0), (2, 3)))


def read_row(a: tg.array2d[float], o: tg.array2d[float], i: int) -> None:
    tg.tile_store(o[0], tg.tile_load(a, (4, 3))[i])


def write_row(a: tg.array2d[float], o: tg.array2d[float], i: int) -> None:
    t = tg.tile_load(a, (4, 3))
    t[i] = tg.tile_ones(3)
    tg.tile_store(o, t)


def assign_part(a: tg.array2d[float], o: tg.array2d[float], i: int) -> None:
    t = tg.tile_load(a, (4, 3))
    tg.tile_assign(t, tg.tile_ones((2, 3)), offset=(i, 0))
    tg.tile_store(o, t)


def read_element(a: tg.array2d[float], o: tg.array2d[float], i: int) -> None:
    o[0, 0] = tg.tile_extract(tg.tile_load(a, (4, 3)), i, 0)


@pytest.mark.parametrize("i", [4, -5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("kernel", [read_part, read_row, write_row, assign_part, read_element])
def test_a_part_outside_the_tile_is_an_error(kernel: Callable[..., None], i: int, device: str) -> None:
    with pytest.raises(KernelIndexError, match=f"index {i} is out of range for axis 0 with size 4"):
        run(kernel, device, counting(4, 3), zeros(4, 3), i)


@pytest.mark.parametrize("kernel", [read_part, assign_part])
def test_a_part_that_ends_outside_the_tile_is_an_error(kernel: Callable[..., None], device: str) -> None:
    with pytest.raises(KernelIndexError, match="index 3 is out of range for axis 0 with size 4"):
        run(kernel, device, counting(4, 3), zeros(4, 3), 3)


def test_a_broadcast_is_not_written_through() -> None:
    def write(o: tg.array2d[float]) -> None:
        b = tg.tile_broadcast(tg.tile_zeros(3), (2, 3))
        b[0, 0] = 1.0
        tg.tile_store(o, b)

    with pytest.raises(TypeMismatch, match=r"broadcast from \(3,\) to \(2, 3\) cannot be written through"):
        run(write, "interpret", zeros(2, 3))


def test_assign_reads_before_it_writes(device: str) -> None:
    def shift(a: tg.array1d[float], o: tg.array1d[float]) -> None:
        t = tg.tile_load(a, 8)
        tg.tile_assign(t, t[:6], offset=2)
        tg.tile_store(o, t)

    assert run(shift, device, counting(8), zeros(8))[1].tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


# --- unsigned indices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("i", [2**64 - 1, 2**63])
def test_an_unsigned_index_never_counts_from_the_end(i: int, device: str) -> None:
    def array(a: tg.array1d[float], o: tg.array1d[float], i: tg.uint64) -> None:
        o[0] = a[i]

    def tile(a: tg.array1d[float], o: tg.array1d[float], i: tg.uint64) -> None:
        o[0] = tg.tile_load(a, 4)[i]

    def part(a: tg.array1d[float], o: tg.array1d[float], i: tg.uint64) -> None:
        tg.tile_store(o, tg.tile_view(tg.tile_load(a, 4), i, 1))

    def store(a: tg.array1d[float], o: tg.array1d[float], i: tg.uint64) -> None:
        tg.tile_store(o, tg.tile_load(a, 4, offset=i, fill=7.0))
        tg.tile_store(a, tg.tile_ones(4), offset=i)

    for kernel in (array, tile, part):
        with pytest.raises(KernelIndexError):
            run(kernel, device, counting(4), zeros(4), i)
    a, o = run(store, device, counting(4), zeros(4), i)
    assert a.tolist() == [0, 1, 2, 3] and o.tolist() == [7] * 4


@pytest.mark.parametrize("i", [2**63 - 1, -(2**63), 2**62, -5, 5])
def test_edges_far_away(i: int, device: str) -> None:
    def move(a: tg.array1d[float], o: tg.array1d[float], i: tg.int64) -> None:
        tg.tile_store(o, tg.tile_load(a, 4, offset=i, fill=7.0))
        old = tg.tile_atomic_add(a, tg.tile_ones(4), offset=i)
        tg.tile_store(o, old, offset=4)

    a, o = run(move, device, counting(5), zeros(8), i)
    assert a.tolist() == [0, 1, 2, 3, 4] and o.tolist() == [7] * 4 + [0] * 4


def test_edges_on_both_sides(device: str) -> None:  # case I01
    def move(a: tg.array1d[float], o: tg.array1d[float]) -> None:
        tg.tile_store(o, tg.tile_load(a, shape=4, offset=-2))
        tg.tile_store(a, tg.tile_full(4, 100.0), offset=-2)

    whole = counting(8)
    o = zeros(4)
    tg.launch_tiled(tg.kernel(move), dim=1, inputs=[whole[4:], o], device=device)
    assert o.tolist() == [0, 0, 4, 5] and whole.tolist() == [0, 1, 2, 3, 100, 100, 6, 7]


# --- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, -2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_along_axes(axis: Any, keepdims: bool, device: str) -> None:
    a = np.random.default_rng(1).standard_normal((3, 4, 5))
    shape = np.sum(a, axis=axis, keepdims=keepdims).shape or (1,)
    size = math.prod(shape)

    def reduce(a: tg.array3d[D], o: tg.array2d[D]) -> None:
        t = tg.tile_load(a, (3, 4, 5))
        tg.tile_store(o[0], t.sum(axis=axis, keepdims=keepdims).reshape(size))
        tg.tile_store(o[1], tg.tile_min(t, axis=axis, keepdims=keepdims).reshape(size))
        tg.tile_store(o[2], t.max(axis=axis, keepdims=keepdims).reshape(size))

    _, o = run(reduce, device, a, np.zeros((3, size)))
    for row, f in zip(o, (np.sum, np.min, np.max), strict=True):
        np.testing.assert_allclose(row, np.ravel(f(a, axis=axis, keepdims=keepdims)))


def test_any_operator_reduces(device: str) -> None:
    def reduce(a: tg.array2d[D], o: tg.array1d[D], p: tg.array1d[D]) -> None:
        t = tg.tile_load(a, (3, 5))
        tg.tile_store(o, tg.tile_reduce(tg.mul, t))
        tg.tile_store(o, tg.tile_reduce(lambda x, y: x + y + x * y, t), offset=1)
        tg.tile_store(o, tg.tile_reduce(tg.add, t), offset=2)
        tg.tile_store(o, tg.tile_reduce(tg.max, t), offset=3)
        tg.tile_store(o, tg.tile_prod(t), offset=4)
        tg.tile_store(p, tg.tile_reduce(tg.mul, t, axis=0))
        tg.tile_store(p, tg.tile_reduce(tg.min, t, axis=-1), offset=5)

    a = np.random.default_rng(4).uniform(0.5, 1.5, (3, 5))
    _, o, p = run(reduce, device, a, np.zeros(5), np.zeros(8))
    np.testing.assert_allclose(o, [a.prod(), np.prod(1 + a) - 1, a.sum(), a.max(), a.prod()])
    np.testing.assert_allclose(p, [*a.prod(axis=0), *a.min(axis=1)])


# --- products ---------------------------------------------------------------------------------------------------------


def test_products_in_all_forms(device: str) -> None:
    def multiply(a: tg.array2d[D], b: tg.array2d[D], o: tg.array3d[D], v: tg.array1d[D], s: D) -> None:
        x, y = tg.tile_load(a, (3, 4)), tg.tile_load(b, (4, 3))
        tg.tile_store(o[0], x @ y)
        tg.tile_store(o[1], tg.tile_matmul(x, y, alpha=s, precision="default"))
        tg.tile_store(o[2], tg.tile_matmul(x, y, s))
        c = tg.tile_ones((3, 3), dtype=D)
        tg.tile_matmul(x, y, c, s, 0.5)
        tg.tile_store(o[3], c)
        c = tg.tile_full((3, 3), float("nan"), dtype=D)
        tg.tile_matmul(x, y, out=c, beta=0.0)
        tg.tile_store(o[4], c)
        c = x[:, :3] * 1.0
        tg.tile_matmul(c, c, c)
        tg.tile_store(o[5], c)
        tg.tile_store(v, x @ y[:, 0])
        tg.tile_store(v, y[0] @ x, offset=3)
        tg.tile_store(v, x[0] @ y[:, 1], offset=7)

    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 3))
    _, _, o, v = run(multiply, device, a, b, np.zeros((6, 3, 3)), np.zeros(8), 1.5)
    c = a[:, :3]
    expected = [a @ b, 1.5 * (a @ b), 1.5 * (a @ b), 1.5 * (a @ b) + 0.5, a @ b, c + c @ c]
    np.testing.assert_allclose(o, expected, atol=1e-12)
    np.testing.assert_allclose(v, [*(a @ b[:, 0]), *(b[0] @ a), a[0] @ b[:, 1]], atol=1e-12)


def test_a_product_goes_into_a_view(device: str) -> None:
    def multiply(a: tg.array2d[int], o: tg.array2d[int]) -> None:
        x, c = tg.tile_load(a, (2, 2)), tg.tile_ones((4, 4), dtype=int)
        tg.tile_matmul(x, x, c[1:3, ::2], 2.0, 3.0)
        tg.tile_store(o, c)

    a = np.array([[1, 2], [3, 4]], np.int32)
    expected = np.ones((4, 4), int)
    expected[1:3, ::2] = 2 * (a @ a) + 3
    np.testing.assert_array_equal(run(multiply, device, a, zeros(4, 4, dtype=np.int32))[1], expected)


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_lanes_become_tiles_and_back(device: str) -> None:
    def turn(a: tg.array1d[float], o: tg.array1d[float], s: tg.array1d[float]) -> None:
        i = tg.tid()
        t = tg.tile(a[i] * 2.0)
        o[i] = tg.untile(t + 1.0)
        tg.tile_store(s, t.sum())

    a = counting(11)
    copies = [a, zeros(11), zeros(1)]
    tg.launch(tg.kernel(turn), dim=11, inputs=copies, block_dim=16, device=device)
    assert copies[1].tolist() == (2 * a + 1).tolist() and copies[2][0] == 2 * a.sum()


@pytest.mark.parametrize("block_dim", [4, 16])
def test_untile_takes_one_element_for_each_lane(block_dim: int, device: str) -> None:
    def spread(a: tg.array1d[float], o: tg.array1d[float]) -> None:
        _, lane = tg.tid()
        o[lane] = tg.untile(tg.tile_load(a, 8))

    with pytest.raises(ShapeMismatch, match=f"untile: the tile has 8 elements, the block {block_dim} lanes"):
        run(spread, device, counting(8), zeros(16), block_dim=block_dim)
    assert run(spread, device, counting(8), zeros(8), block_dim=8)[1].tolist() == counting(8).tolist()


def test_gradients_through_lanes(device: str) -> None:
    def turn(a: tg.array2d[D], o: tg.array2d[D]) -> None:
        _, lane = tg.tid()
        t = tg.tile_load(a, (4, 5))
        v = tg.untile(t[0, :4]) * t[1, lane]
        r = tg.tile_zeros((4, 4), dtype=D)
        r[0] = tg.tile(v * v)
        r[lane % 2 + 1, 1] = v
        r[lane % 3 + 1, 2] += v * t[lane, 4]
        tg.tile_store(o, r)

    kernel = tg.kernel(turn)
    rng = np.random.default_rng(8)
    x, seed, direction = rng.standard_normal((4, 5)), rng.standard_normal((4, 4)), rng.standard_normal((4, 5))

    def loss(x: np.ndarray) -> float:
        o = np.zeros((4, 4))
        tg.launch_tiled(kernel, dim=1, inputs=[x, o], block_dim=4, device=device)
        return float(np.sum(o * seed))

    a, o = tg.array(x, requires_grad=True), tg.zeros((4, 4), dtype=D, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(kernel, dim=1, inputs=[a, o], block_dim=4, device=device)
    tape.backward(grads={o: tg.array(seed)})
    expected = (loss(x + 1e-6 * direction) - loss(x - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(a.grad.numpy() * direction), expected, rtol=1e-6)


# --- errors of calls --------------------------------------------------------------------------------------------------


def calls() -> Iterator[tuple[Callable[..., Any], type[TilegradError], str]]:
    """Wrong calls on a (2, 3) tile `t` and a 2-D array `a`."""
    yield lambda a, t: tg.tile_zeros(0), ShapeMismatch, "must be positive, but dimension 0 is 0"
    yield lambda a, t: tg.tile_ones((2, -3)), ShapeMismatch, "must be positive, but dimension 1 is -3"
    yield lambda a, t: tg.tile_zeros((1,) * 9), ShapeMismatch, "1 to 8 dimensions, this shape has 9"
    yield lambda a, t: tg.tile_zeros((2, a.shape[0])), ShapeMismatch, r"shape\[1\] must be a compile-time constant"
    yield lambda a, t: tg.tile_load(a, (a.shape[0], 2)), ShapeMismatch, r"shape\[0\] must be a compile-time constant"
    yield lambda a, t: tg.tile_zeros(4, storage="global"), TypeMismatch, 'storage must be "register" or "shared"'
    yield lambda a, t: tg.tile_arange(5, 2, dtype=int), ShapeMismatch, "is empty"
    yield lambda a, t: tg.tile_arange(0, 2, 0), ShapeMismatch, "step is zero"
    yield lambda a, t: tg.tile_arange(300, dtype=tg.int8), TypeMismatch, "299 is not a value of int8"
    yield lambda a, t: tg.tile_load(t, (2, 3)), TypeMismatch, "first argument must be an array"
    yield lambda a, t: tg.tile_load(a, 4), ShapeMismatch, "the array has 2 dimensions, the tile 1"
    yield lambda a, t: tg.tile_load(a, (2, 2), offset=1), ShapeMismatch, "2 offsets are needed"
    yield lambda a, t: tg.tile_store(a, 1.0), TypeMismatch, "`t` must be a tile, it is 1.0"
    yield lambda a, t: tg.tile_sum(a), TypeMismatch, "`a` must be a tile, it is a 2-D array"
    yield lambda a, t: tg.tile_sum(t, axis=2), ShapeMismatch, "axis 2 is out of range"
    yield lambda a, t: tg.tile_sum(t, axis=(0, -2)), ShapeMismatch, "an axis is named twice"
    yield lambda a, t: tg.tile_transpose(t, axes=(0, 0)), ShapeMismatch, "is not a permutation"
    yield lambda a, t: tg.tile_transpose(t, axes=1), ShapeMismatch, r"axes \(1,\) is not a permutation"
    yield lambda a, t: tg.tile_reshape(t, (4, -1)), ShapeMismatch, "do not divide into rows of 4"
    yield lambda a, t: tg.tile_reshape(t, (-1, -1)), ShapeMismatch, "only one extent may be -1"
    yield lambda a, t: tg.tile_squeeze(t, axis=0), ShapeMismatch, "axis 0 has extent 2, not 1"
    yield lambda a, t: tg.tile_broadcast(t, (3, 3)), ShapeMismatch, "does not broadcast"
    yield lambda a, t: tg.tile_view(t, (0, 2), (2, 2)), KernelIndexError, "2 elements from 2 on do not fit axis 1"
    yield lambda a, t: tg.tile_view(t, (2,)), KernelIndexError, "1 elements from 2 on do not fit axis 0"
    yield lambda a, t: tg.tile_view(t, (0, 0, 0)), ShapeMismatch, "3 offsets for a tile"
    yield lambda a, t: tg.tile_view(t, (0,), (2, 2)), ShapeMismatch, "one per dimension of the tile; 1 given"
    yield lambda a, t: tg.tile_view(t, (slice(0, 0),)), ShapeMismatch, "slice of axis 0 is empty"
    yield lambda a, t: tg.tile_view(t, (slice(0, 1), 0), (1, 1)), TypeMismatch, "leaves no place for a shape"
    yield lambda a, t: tg.tile_assign(t, tg.tile_ones((3, 3))), KernelIndexError, "tile_assign: 3 elements"
    yield lambda a, t: tg.tile_assign(t, tg.tile_ones(3)), ShapeMismatch, "differ in rank"
    yield lambda a, t: tg.tile_extract(t, 1), ShapeMismatch, "indexed by 2 numbers, 1 given"
    yield lambda a, t: tg.tile_extract(t, 1, 3), KernelIndexError, "index 3 is out of range for axis 1 with size 3"
    yield lambda a, t: tg.tile_reduce(3, t), TypeMismatch, "must be a builtin or a function of two elements"
    yield lambda a, t: tg.tile_reduce(lambda x, y: x < y, t), TypeMismatch, "turns float32 into bool"
    yield lambda a, t: tg.tile_matmul(t, t), ShapeMismatch, "inner sizes differ"
    yield lambda a, t: tg.tile_matmul(t, t, precision="tf64"), TypeMismatch, "precision must be"
    yield lambda a, t: tg.tile_matmul(t, t.T, t), ShapeMismatch, r"the product is a float32 tile \(2, 2\), `out` is"


@pytest.mark.parametrize(("call", "kind", "text"), list(calls()))
def test_wrong_calls_say_what_is_wrong(call: Any, kind: type[TilegradError], text: str) -> None:
    @tg.kernel
    def kernel(a: tg.array2d[float]) -> None:
        t = tg.tile_load(a, (2, 3))
        call(a, t)

    with pytest.raises(kind, match=text):
        tg.launch_tiled(kernel, dim=1, inputs=[zeros(4, 4)], device="interpret")
