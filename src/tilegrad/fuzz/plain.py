"""The same program as plain Python: tiles are NumPy arrays, so aliases, views and control flow mean what NumPy says.

Covers programs for whole blocks, without lanes, random numbers and composite types; others are not run (`run` says
so). Shares with tilegrad only the bodies of elementwise operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.fuzz.program import make, real, whole, zeros
from tilegrad.op import REGISTRY
from tilegrad.ops.catalog import PUBLIC
from tilegrad.tape.memory import Host, require_host


class Unknown(Exception):
    """The program uses what has no meaning here."""


class Tile(np.ndarray[Any, Any]):
    """An array whose reductions keep one element, and whose other shapes are views."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        """Results are in row-major order, unlike NumPy's, so that they have views of other shapes."""
        plain = [np.asarray(x) if isinstance(x, Tile) else x for x in inputs]
        if out is not None:
            getattr(ufunc, method)(*plain, out=tuple(map(np.asarray, out)), **more)
            return out[0]
        made = getattr(ufunc, method)(*plain, **({"order": "C"} if method == "__call__" else {}), **more)
        return made.view(Tile) if isinstance(made, np.ndarray) and made.ndim else made

    def reshape(self, *shape: Any, **more: Any) -> Any:
        made = super().reshape(*shape, **more)
        if not np.shares_memory(made, self):
            raise Unknown("another shape of a tile that is not in order")
        return made

    def sum(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:  # type: ignore[override]
        return super().sum(axis, keepdims=keepdims, **more) if more else tile_sum(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:  # type: ignore[override]
        return super().max(axis, keepdims=keepdims, **more) if more else tile_max(self, axis, keepdims)


def tile(x: Any) -> Any:
    """An array as a tile, which has at least one axis."""
    return np.ascontiguousarray(np.atleast_1d(np.asarray(x))).view(Tile)


def same(x: Any) -> Any:
    """A result of an elementwise operation: a tile or a number."""
    a = np.asarray(x)
    return tile(a) if a.ndim else a[()]


# --- memory ----------------------------------------------------------------------------------------------------------


def shape_of(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _window(a: Host, shape: tuple[int, ...], offset: Any) -> tuple[Any, Any]:
    """The parts of an array and of a tile that meet."""
    starts = shape_of(offset if offset is not None else (0,) * a.ndim)
    inside, mine = [], []
    for start, n, extent in zip(starts, shape, a.shape, strict=True):
        low, high = max(int(start), 0), min(int(start) + n, extent)
        inside.append(slice(low, max(low, high)))
        mine.append(slice(low - int(start), max(low, high) - int(start)))
    return tuple(inside), tuple(mine)


def tile_load(a: Host, shape: Any, offset: Any = None, fill: float = 0) -> Any:
    made = np.full(shape_of(shape), fill, a.dtype)
    there, here = _window(a, made.shape, offset)
    made[here] = a[there]
    return tile(made)


def tile_store(a: Host, t: Any, offset: Any = None) -> None:
    there, here = _window(a, t.shape, offset)
    a[there] = t[here]


def tile_atomic_add(a: Host, t: Any, offset: Any = None) -> None:
    there, here = _window(a, t.shape, offset)
    a[there] += t[here]


def tile_load_indexed(a: Host, indices: Any, shape: Any, offset: Any = None, axis: int = 0) -> Any:
    made = np.zeros(shape_of(shape), a.dtype)
    start = list(shape_of(offset if offset is not None else (0,) * a.ndim))
    for place in np.ndindex(*made.shape):
        at = [p + s for p, s in zip(place, start, strict=True)]
        at[axis] = int(indices[place[axis]]) + start[axis]
        if all(0 <= i < n for i, n in zip(at, a.shape, strict=True)):
            made[place] = a[tuple(at)]
    return tile(made)


def tile_atomic_add_indexed(a: Host, indices: Any, t: Any, offset: Any = None, axis: int = 0) -> None:
    for k, i in enumerate(indices):
        if 0 <= int(i) + (offset or 0) < a.shape[0]:
            a[int(i) + (offset or 0)] += t[k]


def tile_store_indexed(a: Host, indices: Any, t: Any, axis: int = 0) -> None:
    for k, i in enumerate(indices):
        if 0 <= int(i) < a.shape[0]:
            there, here = _window(a[int(i)], t[k].shape, None) if a.ndim > 1 else ((), ())
            a[(int(i), *there)] = t[(k, *here)]


def atomic(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def update(a: Host, *rest: Any) -> Any:
        *where, value = rest
        old = a[tuple(where)]
        a[tuple(where)] = change(old, value)
        return old

    return update


def atomic_cas(a: Host, *rest: Any) -> Any:
    *where, compare, value = rest
    old = a[tuple(where)]
    a[tuple(where)] = value if old == compare else old
    return old


# --- making, viewing -------------------------------------------------------------------------------------------------


def tile_full(shape: Any, value: Any, dtype: Any = None) -> Any:
    return tile(np.full(shape_of(shape), value, dtype or (np.int32 if isinstance(value, int) else None)))


def tile_arange(n: int, dtype: Any = np.float32) -> Any:
    return tile(np.arange(n).astype(dtype))


def tile_fromfunction(f: Callable[..., Any], shape: Any) -> Any:
    return tile(np.array([f(*map(np.int32, i)) for i in np.ndindex(*shape_of(shape))]).reshape(shape_of(shape)))


def tile_view(t: Any, offset: Any, shape: Any) -> Any:
    return t[tuple(slice(o, o + n) for o, n in zip(shape_of(offset), shape_of(shape), strict=True))]


def tile_assign(dst: Any, src: Any, offset: Any = None) -> None:
    tile_view(dst, offset if offset is not None else (0,) * dst.ndim, src.shape)[...] = src


def tile_map(f: Callable[..., Any], *args: Any) -> Any:
    parts = np.broadcast_arrays(*args)
    made = [f(*(p[i] for p in parts)) for i in np.ndindex(*parts[0].shape)]
    return tile(np.array(made).reshape(parts[0].shape))


def tile_topk(t: Any, k: int, axis: Any = -1, largest: bool = True) -> tuple[Any, Any]:
    values = t.reshape(-1) if axis is None else t
    at = 0 if axis is None else axis
    order = np.argsort(-values if largest else values, axis=at, kind="stable")
    picked = np.take(order, range(k), at)
    return tile(np.take_along_axis(np.asarray(values), picked, at)), tile(picked.astype(np.int32))


def tile_argsort(t: Any, axis: int = -1, descending: bool = False) -> Any:
    keys = np.asarray(t)
    return tile(np.argsort(-keys if descending else keys, axis=axis, kind="stable").astype(np.int32))


def tile_sort(keys: Any, values: Any = None, axis: int = -1, descending: bool = False) -> None:
    order = tile_argsort(keys, axis, descending)
    for t in (keys, values):
        if t is not None:
            t[...] = np.take_along_axis(np.asarray(t), np.asarray(order), axis)


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(f: Callable[..., Any], wide: bool = False, whole: bool = False) -> Callable[..., Any]:
    def reduce(t: Any, axis: Any = None, keepdims: bool = False) -> Any:
        a = np.asarray(t)
        a = a.astype(np.int32) if wide and a.dtype.kind in "bi" and a.dtype.itemsize < 4 else a
        kind = np.int32 if whole else None if a.dtype.kind == "b" and not wide else a.dtype
        return tile(np.asarray(f(a, axis=axis, keepdims=keepdims)).astype(kind or np.bool_))

    return reduce


tile_sum, tile_prod = _reduction(np.sum, wide=True), _reduction(np.prod, wide=True)
tile_min, tile_max = _reduction(np.min), _reduction(np.max)


def _lines(t: Any, axis: Any) -> Any:
    """A copy with the axis first; all elements in one line for None."""
    a = np.asarray(t)
    return np.moveaxis(a, axis, 0).copy() if axis is not None else a.reshape(-1).copy()


def tile_reduce(f: Callable[..., Any], t: Any, axis: Any = None, keepdims: bool = False) -> Any:
    lines = _lines(t, axis)
    made = lines[0]
    for line in lines[1:]:
        made = f(made, line)
    shape = [1] * t.ndim if axis is None else list(t.shape)
    if axis is not None:
        shape[axis] = 1
    return tile(np.asarray(made).reshape(shape)) if keepdims else tile(made)


def tile_scan(
    f: Callable[..., Any], t: Any, axis: Any = None, reverse: bool = False, exclusive: bool = False, initial: Any = 0
) -> Any:
    lines = _lines(t, axis)
    lines = lines[::-1] if reverse else lines
    made = [lines[0] * 0 + initial if exclusive else lines[0]]
    for k in range(1, len(lines)):
        made.append(f(made[-1], lines[k - 1] if exclusive else lines[k]))
    whole = np.array(made[::-1] if reverse else made).astype(t.dtype)
    return tile(np.moveaxis(whole, 0, axis) if axis is not None else whole.reshape(t.shape))


# --- products --------------------------------------------------------------------------------------------------------


def tile_matmul(a: Any, b: Any, out: Any = None, alpha: Any = 1.0, beta: Any = 1.0) -> Any:
    made = alpha * (np.asarray(a) @ np.asarray(b))
    if out is None:
        return tile(made.astype(a.dtype))
    out[...] = made + (beta * np.asarray(out) if beta else 0)
    return None


def tile_axpy(alpha: Any, src: Any, dest: Any) -> None:
    dest[...] = dest + alpha * src


def tile_diag_add(a: Any, d: Any) -> Any:
    return tile(np.asarray(a) + np.diag(np.asarray(d)))


def tile_cholesky(a: Any, fill_mode: str = "lower") -> Any:
    m = np.asarray(a, np.float64)
    lower = np.tril(m) + np.tril(m, -1).T if fill_mode == "lower" else np.triu(m) + np.triu(m, 1).T
    factor = np.linalg.cholesky(lower)
    return tile((factor if fill_mode == "lower" else factor.T).astype(a.dtype))


def tile_cholesky_solve(factor: Any, y: Any) -> Any:
    m = np.tril(np.asarray(factor))
    return tile(np.linalg.solve(m @ m.T, np.asarray(y)))


def _solve(triangle: Callable[..., Any]) -> Callable[..., Any]:
    return lambda m, y: tile(np.linalg.solve(triangle(np.asarray(m)), np.asarray(y)))


def _in_place(f: Callable[..., Any], at: int) -> Callable[..., Any]:
    """A function that leaves its result in an argument."""

    def run(*args: Any, **more: Any) -> None:
        args[at][...] = f(*args, **more)

    return run


lower_solve, upper_solve = _solve(np.tril), _solve(np.triu)

#: what is not elementwise, by its public name
NAMES: dict[str, Any] = {
    "tile_load": tile_load, "tile_store": tile_store, "tile_atomic_add": tile_atomic_add,
    "tile_load_indexed": tile_load_indexed, "tile_atomic_add_indexed": tile_atomic_add_indexed,
    "tile_store_indexed": tile_store_indexed, "atomic_cas": atomic_cas,
    "atomic_add": atomic(lambda a, b: a + b), "atomic_sub": atomic(lambda a, b: a - b),
    "atomic_min": atomic(min), "atomic_max": atomic(max), "atomic_exch": atomic(lambda a, b: b),
    "atomic_and": atomic(lambda a, b: a & b), "atomic_or": atomic(lambda a, b: a | b),
    "atomic_xor": atomic(lambda a, b: a ^ b),
    "tile_full": tile_full, "tile_arange": tile_arange, "tile_fromfunction": tile_fromfunction,
    "tile_zeros": lambda shape, dtype=np.float32: tile(np.zeros(shape_of(shape), dtype)),
    "tile_ones": lambda shape, dtype=np.float32: tile(np.ones(shape_of(shape), dtype)),
    "tile_empty": lambda shape, dtype=np.float32: tile(np.zeros(shape_of(shape), dtype)),
    "tile_view": tile_view, "tile_assign": tile_assign, "copy": lambda t: tile(np.array(t, order="C")),
    "tile_transpose": lambda t, axes=None: np.transpose(t, axes), "tile_reshape": lambda t, shape: t.reshape(shape),
    "tile_broadcast": lambda t, shape: tile(np.broadcast_to(t, shape)),
    "tile_squeeze": lambda t, axis=None: np.atleast_1d(np.squeeze(t, axis)),
    "tile_extract": lambda t, *i: t[i], "tile_astype": lambda t, dtype: t.astype(dtype), "tile_map": tile_map,
    "tile_sum": tile_sum, "tile_prod": tile_prod, "tile_min": tile_min, "tile_max": tile_max,
    "tile_argmin": _reduction(np.argmin, whole=True), "tile_argmax": _reduction(np.argmax, whole=True),
    "tile_all": _reduction(np.all), "tile_any": _reduction(np.any), "tile_reduce": tile_reduce, "tile_scan": tile_scan,
    "tile_scan_inclusive": lambda t, axis=None: tile_scan(lambda a, b: a + b, t, axis),
    "tile_scan_exclusive": lambda t, axis=None: tile_scan(lambda a, b: a + b, t, axis, exclusive=True),
    "tile_scan_max_inclusive": lambda t, axis=None: tile_scan(np.maximum, t, axis),
    "tile_scan_min_inclusive": lambda t, axis=None: tile_scan(np.minimum, t, axis),
    "tile_sort": tile_sort, "tile_argsort": tile_argsort, "tile_topk": tile_topk,
    "tile_take_along": lambda t, i, axis=-1: tile(np.take_along_axis(np.asarray(t), np.asarray(i), axis)),
    "tile_slice_indexed": lambda t, i, axis=0: tile(np.take(np.asarray(t), np.asarray(i), axis)),
    "tile_unique_count": lambda t: tile(np.int32(len(np.unique(np.asarray(t))))),
    "tile_histogram": lambda t, bins, range, weights: tile(
        np.histogram(np.asarray(t), bins, range, weights=np.asarray(weights))[0].astype(weights.dtype)
    ),
    "tile_matmul": tile_matmul, "tile_axpy": tile_axpy, "tile_diag_add": tile_diag_add,
    "tile_dot": lambda a, b: tile(np.sum(np.asarray(a) * np.asarray(b))),
    "tile_outer": lambda a, b: tile(np.outer(a, b)), "tile_trace": lambda t: tile(np.trace(np.asarray(t))),
    "tile_diag": lambda t, k=0: tile(np.diag(np.asarray(t), k)), "tile_tril": lambda t, k=0: tile(np.tril(t, k)),
    "tile_triu": lambda t, k=0: tile(np.triu(t, k)),
    "tile_cholesky": tile_cholesky, "tile_cholesky_inplace": _in_place(tile_cholesky, 0),
    "tile_cholesky_solve": tile_cholesky_solve, "tile_cholesky_solve_inplace": _in_place(tile_cholesky_solve, 1),
    "tile_lower_solve": lower_solve, "tile_lower_solve_inplace": _in_place(lower_solve, 1),
    "tile_upper_solve": upper_solve, "tile_upper_solve_inplace": _in_place(upper_solve, 1),
    "tile_solve": lambda a, b: tile(np.linalg.solve(np.asarray(a), np.asarray(b))),
    "tile_inv": lambda a: tile(np.linalg.inv(np.asarray(a))), "tile_det": lambda a: tile(np.linalg.det(np.asarray(a))),
    "tile_slogdet": lambda a: tuple(tile(x) for x in np.linalg.slogdet(np.asarray(a))),
    "tile_qr": lambda a: tuple(tile(x) for x in np.linalg.qr(np.asarray(a))),
    "tile_eigh": lambda a, fill_mode="lower": tuple(map(tile, np.linalg.eigh(np.asarray(a), fill_mode[0].upper()))),
    "stop_gradient": lambda x: x, "lerp": lambda a, b, t: a * (1.0 - t) + b * t,
    "func": lambda f: f, "kernel": lambda f: f, "static": lambda x: x,
}  # fmt: skip


class Package:
    """What `tg` is in such a program."""

    def __init__(self) -> None:
        self.block = 0

    def tid(self) -> np.int32:
        return np.int32(self.block)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return NAMES[name]
        if isinstance(dtype := getattr(dt, "bool_" if name == "bool" else name, None), dt.DType):
            if dtype not in (dt.float16, dt.bfloat16):
                return dtype.np.type
        elif name == "max" or name == "maximum":
            return lambda *xs: _folded("maximum", xs)
        elif name == "min" or name == "minimum":
            return lambda *xs: _folded("minimum", xs)
        elif name in REGISTRY and PUBLIC.get(name) is REGISTRY[name] and REGISTRY[name].elementwise is not None:
            return lambda *xs: _elementwise(name, xs)
        raise Unknown(name)


def _folded(name: str, xs: Sequence[Any]) -> Any:
    made = xs[0]
    for x in xs[1:]:
        made = _elementwise(name, (made, x))
    return made


def _elementwise(name: str, xs: Sequence[Any]) -> Any:
    """The body of an operation, with literals in the type of the other operands."""
    typed = [np.asarray(x).dtype for x in xs if isinstance(x, (np.generic, np.ndarray)) and np.asarray(x).dtype != bool]
    cast = [x if isinstance(x, (np.generic, np.ndarray)) or not typed else typed[0].type(x) for x in xs]
    parts = [np.asarray(x) for x in cast]
    with np.errstate(all="ignore"):
        if all(p.ndim == 0 for p in parts):
            return np.asarray(REGISTRY[name].body(*(p[()] for p in parts)))[()]
        return same(REGISTRY[name].body(*np.broadcast_arrays(*parts)))


def run(text: str, seed: int) -> dict[str, Host]:
    """Run a program in Python.

    Returns: what its arrays hold in the end.
    Raises: Unknown if it uses what has no meaning here, and whatever Python and NumPy raise.
    """
    if "Vec3" in text or re.search(r"\blaunch\(|g, i = tg.tid", text):
        raise Unknown("lanes or composite types")
    package = Package()

    def launch_tiled(kernel: Callable[..., Any], dim: int, inputs: Sequence[Any], lanes: int) -> None:
        for package.block in range(dim):
            kernel(*(np.int32(x) if isinstance(x, int) else x for x in inputs))

    def copy(dest: Host, src: Host) -> None:
        dest[...] = src

    def fill(dest: Host, value: float) -> None:
        dest[...] = value

    scope: dict[str, Any] = {
        "__name__": "random_program", "tg": package, "Any": Any, "np": np, "launch_tiled": launch_tiled,
        "copy": copy, "fill": fill, "min": package.min, "max": package.max,
        # kinds are NumPy's here, but arrays are made as for the program itself
        "real": lambda *shape, kind: real(*shape, kind=dt.as_dtype(kind)), "whole": whole,
        "zeros": lambda *shape, kind: zeros(*shape, kind=dt.as_dtype(kind)),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        exec(compile("from __future__ import annotations\n" + text, "<plain program>", "exec"), scope)
        made = {name: np.array(require_host(make(name, spec, seed))) for name, spec in scope["ARRAYS"].items()}
        scope["program"](**made)
    return made
