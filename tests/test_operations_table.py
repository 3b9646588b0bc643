"""docs/table.md is what its tool writes, and nothing of Warp's tile system is missing in it: neither a name of its C++
headers, nor an item of its list of things to do, nor a call form of its Python surface."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.ir.opdef import OpDef
from tilegrad.ops.catalog import PUBLIC

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

operations_table = importlib.import_module("operations_table")

PAGE = (ROOT / "docs" / "table.md").read_text()

#: what Warp's headers define, by section
HEADERS = re.findall(
    r"\S+",
    """
    WP_TILE_BLOCK_DIM WP_TILE_SHARED WP_TILE_SYNC WP_PRAGMA_UNROLL WP_PRAGMA_NO_UNROLL WP_USE_ASYNC_PIPELINE
    WP_USE_REGISTER_GEMM WP_TILE_THREAD_IDX float4 WP_ENABLE_MATHDX WP_ENABLE_TILES_IN_STACK_MEMORY WP_MAX_CPU_SHARED
    FP_CHECK _DEBUG

    is_same always_false tile_size tile_regcount coord_t tile_coord_t tile_coord tile_tuple_t tile_shape_t tile_stride_t
    compute_strides tile_shape_remove_dim tile_coord_insert_axis

    tile_global_t index_from_coord load_grad atomic_add_grad

    tile_layout_register_t tile_register_t extract adj_extract apply assign zero copy_to_register grad_to_register
    grad_zero grad_add copy_to_global copy_from_global tile_register_like tile_register

    tile_align tile_alloc_shared tile_shared_storage_t tile_layout_strided_t Unique tile_shared_t Storage initialized
    Owner add_inplace sub_inplace bit_and_inplace bit_or_inplace bit_xor_inplace cp_async_global_to_shared_128
    cp_async_commit_and_wait_all_128 print_value print_values tile_alloc_empty tile_alloc_zeros

    print(t) len where copy

    tile untile tile_zeros tile_ones tile_full tile_arange

    tile_load tile_store tile_atomic_add compute_index tile_load_indexed tile_store_indexed tile_atomic_add_indexed

    tile_map tile_unary_map tile_binary_map tile_neg tile_add tile_sub tile_mul tile_bit_and tile_bit_or tile_bit_xor
    tile_add_inplace tile_sub_inplace tile_bit_and_inplace tile_bit_or_inplace tile_bit_xor_inplace

    tile_extract tile_assign tile_view tile_transpose tile_broadcast tile_squeeze tile_reshape tile_astype tile_diag_add

    partitioned_gemm partition_t scalar_matmul tile_matmul tile_fft tile_ifft scalar_cholesky
    scalar_cholesky_forward_substitution scalar_cholesky_back_substitution scalar_cholesky_solve tile_cholesky
    tile_cholesky_solve tile_lower_solve tile_upper_solve
""",
)

TO_DO = (
    "register, shared and global tiles", "simple layouts", "nested layouts", "no allocation type", "launch_tiled",
    "zeros, ones, arange", "tile and untile", "fromfunction", "explicit storage", "1-D load and store",
    "loads that hang over the edge", "indexed load", "atomic add of tiles", "user functions", "builtins", "lambdas",
    "output from the operator's type", "sum forward and reverse", "min, max, custom",
    "matrix product forward and reverse",
    "operators + - * / @", "`+=` for matmul", "`c += a @ b`", "`c = a @ b`", "broadcasting", "transpose", "slice",
    "compile-time block dimensions", "switch between threads and tiles", "functions given to `tile_map`",
    "arguments of tile operations", "loads and stores out of bounds",
)  # fmt: skip

#: the signatures of Warp 1.19, with their defaults
SIGNATURES = re.findall(
    r"\w+\(.*\)",
    """
    tile_zeros(shape, dtype=float, storage="register")
    tile_ones(shape, dtype=float, storage="register")
    tile_empty(shape, dtype=float, storage="register")
    tile_full(shape, value, dtype=None, storage="register")
    tile_from_thread(shape, value, thread_idx, storage="register")
    tile_randi(shape, rng, min=None, max=None, storage="register")
    tile_randf(shape, rng, min=None, max=None, storage="register")
    tile(x, preserve_type=False)
    untile(a)
    tile_load(a, shape, offset=None, storage="register", bounds_check=True, aligned=False)
    tile_load_indexed(a, indices, shape, offset=None, axis=0, storage="register")
    tile_store(a, t, offset=None, bounds_check=True, aligned=False)
    tile_store_indexed(a, indices, t, offset=None, axis=0)
    tile_atomic_add(a, t, offset=None, bounds_check=True)
    tile_atomic_add_indexed(a, indices, t, offset=None, axis=0)
    tile_assign(dst, src, offset=None)
    tile_view(t, offset, shape=None)
    tile_slice_indexed(t, indices)
    tile_squeeze(t, axis=None)
    tile_reshape(t, shape)
    tile_broadcast(a, shape)
    tile_transpose(t)
    tile_astype(t, dtype)
    tile_sum(a)
    tile_sum(a, axis=None)
    tile_reduce(op, a)
    tile_reduce(op, a, axis=None)
    tile_min(a)
    tile_max(a)
    tile_argmin(a)
    tile_argmax(a)
    tile_scan_inclusive(a)
    tile_scan_exclusive(a)
    tile_scan_max_inclusive(a)
    tile_scan_min_inclusive(a)
    tile_sort(keys, values)
    tile_dot(a, b)
    tile_axpy(alpha, src, dest)
    tile_matmul(a, b, out, alpha=1.0, beta=1.0, precision="default")
    tile_diag_add(a, d)
    tile_cholesky(A, fill_mode="lower")
    tile_cholesky_inplace(A, fill_mode="lower")
    tile_cholesky_solve(L, y, fill_mode="lower")
    tile_cholesky_solve_inplace(L, y, fill_mode="lower")
    tile_lower_solve(L, y)
    tile_lower_solve_inplace(L, y)
    tile_upper_solve(U, z)
    tile_upper_solve_inplace(U, z)
    tile_fft(inout)
    tile_ifft(inout)
    tile_stack(capacity, dtype)
    tile_stack_push(s, value, has_value)
    tile_stack_pop(s)
    tile_stack_clear(s)
    tile_stack_count(s)
""",
)

#: calls whose places are not fixed: positional arguments, and names
FREE_FORMS: list[tuple[str, int, dict[str, Any]]] = [
    ("tile_arange", 1, {}), ("tile_arange", 2, {}), ("tile_arange", 3, {"dtype": 0, "storage": 0}),
    *(("tile_extract", 1 + n, {}) for n in range(1, 9)),
    *(("tile_scatter_add", 3 + n, {"atomic": True}) for n in range(1, 5)),
    *(("tile_scatter_masked", 3 + n, {}) for n in range(1, 5)),
    ("tile_scatter_add", 1, {"i": 0, "value": 0, "has_value": 0}),
    ("tile_scatter_masked", 1, {"i": 0, "j": 0, "k": 0, "l": 0, "value": 0, "has_value": 0}),
    ("tile_matmul", 2, {"alpha": 1, "precision": "default"}), ("tile_matmul", 2, {}),
    ("tile_randi", 2, {}), ("tile_randi", 4, {"storage": 0}), ("tile_randf", 4, {"storage": 0}),
]  # fmt: skip

#: 4.7: how operators and subscripts are written
SYNTAX = ("-x", "x + y", "x - y", "x * y", "x / y", "x & y", "x \\| y", "x ^ y", "x @ y", "t[i, j]", "t[a:b:c, k]",
          "t[idx, :]", "t[i, j] = v", "t[a:b] = u", "t[i, j] += v", "a += b", "len(t)", "print(t)")  # fmt: skip

HOST = {
    tg.launch_tiled: "kernel dim inputs outputs device block_dim record_tape",
    tg.launch: "kernel dim inputs outputs device block_dim record_tape",
    tg.Tape.backward: "loss grads",
    tg.kernel: "enable_backward",
}


def called(name: str) -> inspect.Signature:
    """The signature by which users call an operation."""
    thing = PUBLIC[name]
    return inspect.signature((thing.spelled or thing.body) if isinstance(thing, OpDef) else thing)


def test_the_page_is_up_to_date() -> None:
    assert operations_table.page() == PAGE, "run: python tools/operations_table.py"


def test_every_public_operation_has_a_row() -> None:
    assert not [name for name in PUBLIC if f"| `{name}(" not in PAGE]


@pytest.mark.parametrize("name", HEADERS)
def test_names_of_the_headers(name: str) -> None:
    assert f"`{name}`" in PAGE or f"| `{name}(" in PAGE


@pytest.mark.parametrize("item", TO_DO)
def test_items_of_the_list_of_things_to_do(item: str) -> None:
    assert item in PAGE


@pytest.mark.parametrize("syntax", SYNTAX)
def test_operators_and_syntax(syntax: str) -> None:
    assert f"`{syntax}" in PAGE


@pytest.mark.parametrize("text", SIGNATURES)
def test_signatures(text: str) -> None:
    """Every argument has the name, the place and the default that it has in Warp, and may be given either way."""
    name = text.strip().split("(")[0]
    wanted = inspect.signature(eval(f"lambda {text.strip().partition('(')[2][:-1]}: 0")).parameters
    found = called(name)
    given = {} if "block_dim" not in found.parameters else {"block_dim": 4}
    found.bind(*wanted, **given)
    found.bind(**dict.fromkeys(wanted), **given)
    required = [n for n, p in wanted.items() if p.default is p.empty]
    found.bind(*required, **given)
    for n, p in wanted.items():
        assert p.default is p.empty or found.parameters[n].default == p.default, n


@pytest.mark.parametrize(("name", "count", "named"), FREE_FORMS)
def test_calls_with_free_places(name: str, count: int, named: dict[str, Any]) -> None:
    called(name).bind(*range(count), **named)


@pytest.mark.parametrize("function", HOST, ids=lambda f: f.__qualname__)
def test_host_functions(function: Any) -> None:
    assert not set(HOST[function].split()) - set(inspect.signature(function).parameters)


def test_annotations_of_tiles() -> None:
    assert str(tg.tile[float, 4, 8]) == str(tg.tile(dtype=float, shape=(4, 8))) == str(tg.tile[float, (4, 8)])
    assert "tile_stack" in str(tg.tile_stack(capacity=4, dtype=float))


def test_tile_map_takes_eight_inputs() -> None:
    inspect.signature(tg.tile_map).bind(max, *range(8))


@pytest.mark.parametrize("name", ["tid", "block_dim", "static", "constant", "func", "struct", "func_grad", "adjoint"])
def test_names_of_the_kernel_language(name: str) -> None:
    assert hasattr(tg, name)
