"""A call of every public operation on small tiles, as kernel source, for the table of operations and for tests.

    a, b, d     tiles of D, shape S; `d` is positive
    i, j, p     int32 places (2,); int32 numbers of shape S; a bool tile of shape S
    c           complex tile (vec2 of D)
    u, v        tiles of vec3
    m, n, h, f  tiles of mat33, mat33, mat44 and mat22
    q, g        tiles of quaternions
    x, y        tiles of transforms
    w, z        tiles of vectors of 6
    SPD         stack of positive definite matrices
    arr, vec    arrays of D, to be read and to be written
    s           a number of type D
    block, lane from `tg.tid()`

S has R extents of 2. Z stands for R zeros. Does not say what the answers are.
"""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.ir.opdef import OpDef
from tilegrad.ops.catalog import PUBLIC

#: what a variable is: element type by name, positive
INPUTS: dict[str, str] = {
    "a": "D", "b": "D", "d": "D", "j": "i", "p": "b", "c": "v2", "u": "v3", "v": "v3", "m": "m33", "n": "m33",
    "q": "q", "g": "q", "x": "t", "y": "t", "w": "v6", "z": "v6", "h": "m44", "f": "m22",
}  # fmt: skip

ATOMICS = ("add", "sub", "min", "max", "and", "or", "xor", "exch")
SOLVES = ("tile_lower_solve", "tile_upper_solve", "tile_cholesky_solve")

#: name -> "statements | results"; without a bar the text is an expression of the type D
CALLS: dict[str, str] = {
    "div": "r = tg.div(a, d) | r:quotient",
    "tile_astype": "r = tg.tile_astype(a, tg.float64) | r:float64",
    "where": "tg.where(p, a, b)",
    "lshift": "tg.lshift(a, b & 3)",
    "rshift": "tg.rshift(a, b & 3)",
    "pow": "tg.pow(d, d)",
    "floordiv": "tg.floordiv(a, d)",
    "mod": "tg.mod(a, d)",
    "fmod": "tg.fmod(a, d)",
    "isfinite": "r = tg.isfinite(a) | r:b",
    "isinf": "r = tg.isinf(a) | r:b",
    "isnan": "r = tg.isnan(a) | r:b",
    # construction
    "tile_full": "tg.tile_full(S, s)",
    "tile_zeros": "tg.tile_zeros(S, D)",
    "tile_ones": "tg.tile_ones(S, D)",
    "tile_empty": "r = tg.tile_empty(S, D); r = tg.tile_zeros(S, D)",
    "tile_arange": "tg.tile_arange(1, 9, 2, dtype=D)",
    "tile_fromfunction": "tg.tile_fromfunction(INDEX, S)",
    "tile_from_thread": "tg.tile_from_thread(S, s, 0)",
    # random numbers
    "rand_init": "r = tg.rand_init(3, 4) | r:uint32",
    "randi": "k = tg.rand_init(3); r = tg.randi(k) | r:i",
    "randu": "k = tg.rand_init(3); r = tg.randu(k) | r:uint32",
    "randf": "k = tg.rand_init(3); r = tg.randf(k) | r:float32",
    "randn": "k = tg.rand_init(3); r = tg.randn(k) | r:float32",
    "poisson": "k = tg.rand_init(3); r = tg.poisson(k, 4.0) | r:uint32",
    **{
        f"sample_{name}": f"k = tg.rand_init(3); r = tg.sample_{name}(k) | r:{kind}"
        for name, kind in {
            "unit_ring": "vec2", "unit_disk": "vec2", "unit_sphere_surface": "vec3", "unit_sphere": "vec3",
            "unit_hemisphere_surface": "vec3", "unit_hemisphere": "vec3", "unit_square": "vec2", "unit_cube": "vec3",
            "triangle": "vec2",
        }.items()
    },
    "tile_randi": "r = tg.tile_randi(S, tg.rand_init(3), -5, 5) | r:i",
    "tile_randf": "r = tg.tile_randf(S, tg.rand_init(3), dtype=D)",
    "tile_randn": "r = tg.tile_randn(S, tg.rand_init(3), dtype=D)",
    # memory
    "tile_load": "tg.tile_load(arr, S)",
    "tile_store": "r = a + ZERO; tg.tile_store(vec, a)",
    "tile_atomic_add": "r = tg.tile_atomic_add(vec, a)",
    "tile_load_indexed": "tg.tile_load_indexed(arr, i, S)",
    "tile_store_indexed": "tg.tile_store_indexed(vec, i, a); r = tg.tile_load(vec, S)",
    "tile_atomic_add_indexed": "r = tg.tile_atomic_add_indexed(vec, i, a)",
    **{f"atomic_{f}": f"r = tg.atomic_{f}(vec, Z, s)" for f in ATOMICS},
    "atomic_cas": "r = tg.atomic_cas(vec, Z, s, s)",
    # views and elements
    "tile_reshape": "tg.tile_reshape(a, (-1,))",
    "tile_broadcast": "tg.tile_broadcast(a, S)",
    "tile_squeeze": "tg.tile_squeeze(a[:1], 0) if R > 1 else a",
    "tile_extract": "tg.tile_extract(a, Z)",
    "tile_view": "tg.tile_view(a, Z, S)",
    "tile_assign": "r = a.copy(); tg.tile_assign(r, b)",
    "tile_scatter_add": "r = a.copy(); tg.tile_scatter_add(r, Z, s, True)",
    "tile_scatter_masked": "r = a.copy(); tg.tile_scatter_masked(r, Z, s, lane == 0)",
    "tile_slice_indexed": "tg.tile_slice_indexed(a, i)",
    "tile_take_along": "tg.tile_take_along(a, j * 0 + 1)",
    # reductions, scans, order
    "tile_sum": "r = tg.tile_sum(a, axis=-1) | r:sum",
    "tile_prod": "r = tg.tile_prod(a, axis=-1) | r:sum",
    "tile_min": "tg.tile_min(a, axis=-1)",
    "tile_max": "tg.tile_max(a, axis=-1)",
    "tile_argmin": "r = tg.tile_argmin(a) | r:i",
    "tile_argmax": "r = tg.tile_argmax(a) | r:i",
    "tile_reduce": "tg.tile_reduce(FIRST, a, axis=-1)",
    "tile_all": "r = tg.tile_all(a) | r:b",
    "tile_any": "r = tg.tile_any(a) | r:b",
    "tile_scan": "tg.tile_scan(FIRST, a)",
    "tile_sort": "r = a.copy(); k = b.copy(); tg.tile_sort(r, k) | r, k",
    "tile_argsort": "r = tg.tile_argsort(a) | r:i",
    "tile_topk": "r, k = tg.tile_topk(a, 1) | r, k:i",
    "tile_unique_count": "r = tg.tile_unique_count(a) | r:i",
    "tile_histogram": "r = tg.tile_histogram(a, 4, range=(0.0, 3.0)) | r:i",
    # products
    "tile_axpy": "r = b.copy(); tg.tile_axpy(s, a, r)",
    "tile_matmul": "tg.tile_matmul(a, b)",
    "tile_dot": "tg.tile_dot(a, b)",
    "tile_outer": "tg.tile_outer(a, b)",
    "tile_diag_add": "tg.tile_diag_add(a, a[EACH0])",
    # lanes and stacks
    "tile": "r = tg.tile_sum(tg.tile(s)) - tg.tile_sum(tg.tile(s)) | r:sum",
    "untile": "r = tg.untile(tg.tile(s))",
    "tile_stack": "k = tg.tile_stack(2, D); r = tg.tile_stack_count(k) | r:i",
    "tile_stack_push": "k = tg.tile_stack(2, D); l = tg.tile_stack_push(k, s, lane == 0)"
    "; r = tg.tile_max(tg.tile(l))[0] | r:i",
    "tile_stack_pop": "k = tg.tile_stack(2, D); tg.tile_stack_push(k, s, lane == 0); "
    "e, l = tg.tile_stack_pop(k, lane == 0); r = tg.tile_max(tg.tile(e))[0]; o = tg.tile_max(tg.tile(l))[0] | r, o:i",
    "tile_stack_clear": "k = tg.tile_stack(2, D); tg.tile_stack_clear(k); r = tg.tile_stack_count(k) | r:i",
    "tile_stack_count": "k = tg.tile_stack(2, D); r = tg.tile_stack_count(k) | r:i",
    # linear algebra and transforms
    **{f"{f}_inplace": f"r = b.copy(); tg.{f}_inplace(SPD, r)" for f in SOLVES},
    **{f: f"tg.{f}(SPD, b)" for f in (*SOLVES, "tile_solve")},
    "tile_cholesky": "tg.tile_cholesky(SPD)",
    "tile_cholesky_inplace": "r = SPD + ZERO; tg.tile_cholesky_inplace(r)",
    "tile_lu": "r, k = tg.tile_lu(SPD) | r, k:i",
    "tile_lu_solve": "k, l = tg.tile_lu(SPD); r = tg.tile_lu_solve(k, l, b)",
    "tile_inv": "tg.tile_inv(SPD)",
    "tile_det": "tg.tile_det(SPD)",
    "tile_slogdet": "r, k = tg.tile_slogdet(SPD) | r, k",
    "tile_qr": "r, k = tg.tile_qr(SPD) | r, k",
    "tile_eigh": "r, k = tg.tile_eigh(SPD) | r, k",
    "tile_fft": "tg.tile_fft(c) | c:v2",
    "tile_ifft": "tg.tile_ifft(c) | c:v2",
    "tile_rfft": "r = tg.tile_rfft(a) | r:v2",
    "tile_irfft": "tg.tile_irfft(c)",
    # vectors, matrices, quaternions
    "dot": "tg.dot(u, v)",
    "cross": "r = tg.cross(u, v) | r:v3",
    "outer": "r = tg.outer(u, v) | r:m33",
    "skew": "r = tg.skew(u) | r:m33",
    "cw_mul": "r = tg.cw_mul(u, v) | r:v3",
    "cw_div": "r = tg.cw_div(u, v) | r:v3",
    "length": "tg.length(u)",
    "length_sq": "tg.length_sq(u)",
    "normalize": "r = tg.normalize(u) | r:v3",
    "argmin": "r = tg.argmin(u) | r:i",
    "argmax": "r = tg.argmax(u) | r:i",
    "lerp": "r = tg.lerp(u, v, a) | r:v3",
    "vector": "r = tg.vector(a, b, a) | r:v3",
    "quaternion": "r = tg.quaternion(a, b, a, b) | r:q",
    "transpose": "r = tg.transpose(m) | r:m33",
    "get_diag": "r = tg.get_diag(m) | r:v3",
    "diag": "r = tg.diag(u) | r:m33",
    "trace": "tg.trace(m)",
    "ddot": "tg.ddot(m, n)",
    "identity": "r = m + tg.identity(n=3, dtype=D) | r:m33",
    "matrix_from_rows": "r = tg.matrix_from_rows(u, v, u) | r:m33",
    "matrix_from_cols": "r = tg.matrix_from_cols(u, v, u) | r:m33",
    "matrix": "r = tg.matrix(a, b, a, b, a, b, a, b, a, shape=(3, 3)) | r:m33",
    "determinant": "tg.determinant(m)",
    "inverse": "r = tg.inverse(m) | r:m33",
    "eig3": "r, k = tg.eig3(m + tg.transpose(m)) | r:m33, k:v3",
    "qr3": "r, k = tg.qr3(m) | r:m33, k:m33",
    "svd3": "r, k, l = tg.svd3(m) | r:m33, k:v3, l:m33",
    "svd2": "r, k, l = tg.svd2(f) | r:m22, k:v2, l:m22",
    "quat_identity": "r = q * tg.quat_identity(dtype=D) | r:q",
    "quat_inverse": "r = tg.quat_inverse(q) | r:q",
    "quat_rotate": "r = tg.quat_rotate(q, u) | r:v3",
    "quat_rotate_inv": "r = tg.quat_rotate_inv(q, u) | r:v3",
    "quat_from_axis_angle": "r = tg.quat_from_axis_angle(u, a) | r:q",
    "quat_to_axis_angle": "r, k = tg.quat_to_axis_angle(q) | r:v3, k",
    "quat_slerp": "r = tg.quat_slerp(q, g, a) | r:q",
    "quat_rpy": "r = tg.quat_rpy(a, b, a) | r:q",
    "quat_to_matrix": "r = tg.quat_to_matrix(q) | r:m33",
    "quat_from_matrix": "r = tg.quat_from_matrix(m) | r:q",
    "transform_identity": "r = x * tg.transform_identity(dtype=D) | r:t",
    "transform_get_translation": "r = tg.transform_get_translation(x) | r:v3",
    "transform_get_rotation": "r = tg.transform_get_rotation(x) | r:q",
    "transform_multiply": "r = tg.transform_multiply(x, y) | r:t",
    "transform_inverse": "r = tg.transform_inverse(x) | r:t",
    "transform_point": "r = tg.transform_point(x, u) | r:v3",
    "transform_vector": "r = tg.transform_vector(x, u) | r:v3",
    "transform_to_matrix": "r = tg.transform_to_matrix(x) | r:m44",
    "transform_from_matrix": "r = tg.transform_from_matrix(h) | r:t",
    "transform_compose": "r = tg.transform_compose(u, q, v) | r:m44",
    "transform_decompose": "r, k, l = tg.transform_decompose(h) | r:v3, k:q, l:v3",
    "spatial_top": "r = tg.spatial_top(w) | r:v3",
    "spatial_bottom": "r = tg.spatial_bottom(w) | r:v3",
    "spatial_dot": "tg.spatial_dot(w, z)",
    "spatial_cross": "r = tg.spatial_cross(w, z) | r:v6",
    "spatial_cross_dual": "r = tg.spatial_cross_dual(w, z) | r:v6",
}  # fmt: skip

WORD = re.compile(r"(?<![\w.])([A-Za-z]\w*)")
_numbers = itertools.count()


@dataclass(frozen=True)
class Call:
    """A call as source lines, and its results with their element types."""

    lines: tuple[str, ...]
    results: tuple[tuple[str, str], ...]

    @property
    def words(self) -> set[str]:
        return set(WORD.findall("\n".join(self.lines)))


def call_of(name: str) -> Call:
    """The recipe of an operation."""
    text = CALLS.get(name) or f"tg.{name}({', '.join('abab'[: _operands(name)])})"
    code, bar, results = text.partition("|")
    if not bar and not re.match(r"\w+(, \w+)* = ", code) and not code.startswith("tg.tile_store("):
        code = f"r = {code}"
    pairs = [item.strip().partition(":") for item in (results if bar else "r").split(",") if item.strip()]
    return Call(tuple(part.strip() for part in code.split(";")), tuple((n, kind or "D") for n, _, kind in pairs))


def _operands(name: str) -> int:
    operation = PUBLIC[name]
    return len(operation.kinds) if isinstance(operation, OpDef) and operation.elementwise is not None else 1


def scalar_type(kind: str, dtype: dt.DType) -> dt.DType:
    """The scalar type of an element, or of its parts."""
    whole = {"i": dt.int32, "b": dt.bool_, "sum": dt.sum_dtype(dtype), "vec2": dt.float32, "vec3": dt.float32}
    if kind == "quotient":
        return dt.float32 if dtype.kind == "b" else dt.quotient_dtype(dtype)
    return dt.BY_NAME.get(kind) or whole.get(kind, dtype)


def element_type(kind: str, dtype: dt.DType) -> Any:
    """The element type that a code stands for."""
    scalar, parts = scalar_type(kind, dtype), extents(kind)
    if kind in ("q", "t"):
        return tg.types.quaternion(scalar) if kind == "q" else tg.types.transformation(scalar)
    return (
        scalar
        if not parts
        else tg.types.vector(parts[0], scalar)
        if len(parts) == 1
        else tg.types.matrix(parts, scalar)
    )


def extents(kind: str) -> tuple[int, ...]:
    """The parts of an element as trailing extents of a NumPy array."""
    if kind[0] == "v":
        return (int(kind[-1]),)
    return (int(kind[1]), int(kind[2])) if kind[0] == "m" else {"q": (4,), "t": (7,)}.get(kind, ())


@dataclass(frozen=True)
class Program:
    """A kernel for one call, with the arguments that it takes before its results."""

    kernel: Any
    kinds: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]
    dtype: dt.DType
    rank: int

    def arguments(self, rng: np.random.Generator) -> list[Any]:
        """Arguments drawn for the call: small integers, so that sums are exact."""
        return [draw(name, kind, self.dtype, self.rank, rng) for name, kind in self.kinds]

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Empty arrays for the results, longer than any of them."""
        kinds = [kind for _, kind in self.results]
        return [np.zeros((2 ** (self.rank + 3), *extents(k)), scalar_type(k, self.dtype).np) for k in kinds]


def draw(name: str, kind: str, dtype: dt.DType, rank: int, rng: np.random.Generator) -> Any:
    """An argument by its variable: small whole numbers."""
    if name == "s":
        return dtype(3 if dtype.kind != "b" else True)
    if name == "i":
        return np.array([1, 0], np.int32)
    scalar = scalar_type(kind, dtype)
    shape = (2,) * rank + extents(kind)
    values = rng.integers(
        0 if kind in ("D", "b", "i", "v2") and name != "d" else 1, 2 if scalar.kind == "b" else 5, shape
    )
    if name == "spd" and rank > 1:
        values = np.broadcast_to(np.array([[4, 2], [2, 5]]), shape)
    if kind[0] == "m":
        values = values + 4 * np.eye(extents(kind)[0], dtype=int)
    return np.ascontiguousarray(values.astype(scalar.np))


def program(name: str, dtype: dt.DType, rank: int, store: bool = True) -> Program:
    """A kernel that makes the call for a dtype and a rank, and stores the results."""
    call = call_of(name)
    words = call.words
    kinds = [(n, kind) for n, kind in INPUTS.items() if n in words]
    kinds += [("s", "D")] * ("s" in words) + [("i", "i")] * ("i" in words)
    kinds += [("spd", "D")] * ("SPD" in words) + [(n, "D") for n in ("arr", "vec") if n in words]
    scope = {"tg": tg, "D": dtype, "R": rank, "S": (2,) * rank, "FIRST": tg.max}
    parameters, lines = [], []
    for n, kind in kinds:
        scope[f"T_{n}"] = dtype if n == "s" else tg.array(
            dtype=element_type(kind, dtype), ndim=1 if n == "i" else rank)  # fmt: skip
        parameters.append(f"{n if n in ('s', 'arr', 'vec') else 'in_' + n}: T_{n}")
        if n not in ("s", "arr", "vec"):
            lines.append(f"{'SPD' if n == 'spd' else n} = tg.tile_load(in_{n}, shape={'2' if n == 'i' else 'S'})")
    grid = "block, lane = tg.tid()" if "lane" in words else "block = tg.tid()"
    lines = [grid, *lines, *(_spelled(line, rank, dtype) for line in call.lines)]
    if store:
        for k, (n, kind) in enumerate(call.results):
            scope[f"T_out{k}"] = tg.array(dtype=element_type(kind, dtype), ndim=1)
            parameters.append(f"out{k}: T_out{k}")
            lines.append(f"OUT({k}, {n})")
    text = _source(parameters, lines, _is_scalar(name))
    return Program(_kernel(text, scope), tuple(kinds), call.results if store else (), dtype, rank)


SCALAR_RESULTS = {
    "tile_extract", "untile", "rand_init", "randi", "randu", "randf", "randn", "poisson", "tile_stack",
    "tile_stack_push", "tile_stack_pop", "tile_stack_clear", "tile_stack_count",
}  # fmt: skip


def _is_scalar(name: str) -> bool:
    return name in SCALAR_RESULTS or name.startswith(("atomic_", "sample_"))


def _spelled(line: str, rank: int, dtype: dt.DType) -> str:
    zeros = ", ".join("0" * rank)
    line = (
        line.replace("tile_view(a, Z", f"tile_view(a, ({zeros},)").replace("Z)", f"{zeros})").replace("Z,", f"{zeros},")
    )
    index = "ijklmnop"[:rank]
    line = line.replace("INDEX", f"lambda {', '.join(index)}: D({' + '.join(index)})")
    line = line.replace("EACH0", ", ".join([":"] * (rank - 1) + ["0"]))
    return line.replace(" + ZERO", ".copy()")


def _source(parameters: Sequence[str], lines: Sequence[str], scalar: bool) -> str:
    body = []
    for line in lines:
        found = re.match(r"OUT\((\d+), (\w+)\)", line)
        if found:
            k, n = found.groups()
            line = f"out{k}[0] = {n}" if scalar else f"tg.tile_store(out{k}, tg.tile_reshape({n}, (-1,)))"
        body.append(f"    {line}\n")
    return f"def kernel({', '.join(parameters)}):\n{''.join(body)}"


def _kernel(text: str, scope: dict[str, Any]) -> Any:
    file = f"<operation {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    return tg.kernel(scope["kernel"])
