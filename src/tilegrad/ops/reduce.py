"""Reductions of tiles over all axes or some: sum, product, min, max, argmin, argmax, and any operator of the user's.

A result keeps at least one axis: reducing everything gives shape (1,). Sums of bool and small integers widen to 32
bits; 16-bit floats are summed in float32 and rounded once; float32 is summed in float64 and float64 pairwise, so that
the error does not grow with the extent. NaN counts as missing in min and max unless `propagate_nan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Fold, Reg
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import TileType, Type
from tilegrad.op import (
    REGISTRY,
    Sample,
    Tile,
    adjoint,
    infer,
    lower,
    op,
    samples,
    spelled,
    unwrap,
)  # fmt: skip
from tilegrad.ops.indexing import tile_slice, zeros_like
from tilegrad.ops.shapes import require_axes, require_tile
from tilegrad.ops.views import shape_of, tile_broadcast, tile_reshape

Accs = tuple[Any, ...]


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape that is left; at least one axis stays."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes) or (1,)


def _shaped(result: Any, t: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return np.reshape(result, reduced_shape(np.shape(t), axes, keepdims))


def _spread(x: Any, t: Any, axes: tuple[int, ...]) -> Any:
    """A reduced tile (or its cotangent) back at the shape of the operand."""
    shape = shape_of(t)
    return tile_broadcast(tile_reshape(x, shape=reduced_shape(shape, axes, True)), shape=shape)


_LARGER: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 3, 37), (2,)),
    ((4, 3, 37), (0, 2)),
    ((2, 3, 2, 2, 1, 2, 2, 3), (1, 3, 7)),
    ((300,), (0,)),
)


def _samples(dtypes: tuple[DType, ...]) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def rule(rng: np.random.Generator) -> Iterator[Sample]:
        for d in dtypes:
            t = rng.permutation(np.arange(35) % (2 if d.kind == "b" else 35)).reshape(5, 7).astype(d.np)
            for axes in ((0, 1), (0,), (1,)):
                yield Sample((t,), {"axes": axes, "keepdims": False})
        for shape, some in _LARGER:
            larger = rng.permutation(math.prod(shape)).reshape(shape) / 7.0 - 3.0
            yield Sample((larger,), {"axes": some, "keepdims": len(some) > 1})

    return rule


def _axes_call(definition: OpDef) -> Callable[..., Any]:
    def call(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        ndim = require_tile(definition.name, "a", a).ndim
        return definition(a, axes=require_axes(definition.name, axis, ndim), keepdims=bool(keepdims))

    return call


# --- sum and product ------------------------------------------------------------------------------------------------


@op(cls="fold", cooperative=True)
def tile_sum(t: Tile, *, axes: tuple[int, ...], keepdims: bool = False) -> Tile:
    """The sum of a tile over `axis` (an int, a tuple, or None for all).

    Returns: a tile without those axes (with extent 1 there if `keepdims`); (1,) when nothing is left. bool, int8 and
    int16 give int32 (unsigned: uint32).
    Gradient: the cotangent, repeated along the summed axes.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_sum(tg.tile_load(x, shape=(2, 3)), axis=1))
        >>> x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [3.0, 12.0]
    """
    dtype = dt.of_array(t)
    carrier = np.float64 if dtype.is_float and not dtype.is_half else dt.accumulator(dtype).np
    total = np.sum(np.asarray(t).astype(carrier), axis=axes, dtype=carrier)
    return _shaped(np.asarray(total).astype(dt.sum_dtype(dtype).np), t, axes, keepdims)


@infer(tile_sum)
def _tile_sum_infer(t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Type:
    return TileType(dt.sum_dtype(t.dtype), reduced_shape(t.shape, axes, keepdims))


@adjoint(tile_sum)
def _tile_sum_adjoint(ct: Any, out: Any, t: Any, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    return (_spread(ct, t, axes),)


@lower(tile_sum)
def _tile_sum_lower(e: Emitter, t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Fold:
    carrier = dt.float64 if t.dtype is dt.float32 else dt.accumulator(t.dtype)
    result = dt.sum_dtype(t.dtype)
    return Fold(
        (carrier,), (0,),
        lambda accs, x, position: (e.add(accs[0], e.cast(x, carrier)),),
        lambda a, b: (e.add(a[0], b[0]),),
        lambda accs: e.cast(accs[0], result),
        pairwise=carrier.is_float,
    )  # fmt: skip


samples(tile_sum)(_samples(dt.SCALARS))
spelled(tile_sum)(_axes_call(tile_sum))


def tile_prod(a: Any, axis: Any = None) -> Any:
    """The product of a tile over all elements, or along one axis.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_prod(tg.tile_load(x, shape=4) + 1.0))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [24.0]
    """
    return tile_reduce(REGISTRY["mul"], a, axis)


# --- min, max, argmin, argmax ---------------------------------------------------------------------------------------


def _extremum(name: str, better: str) -> OpDef:
    """Define tile_min or tile_max. `better` is the comparison by which a new element beats the old one."""

    @op(f"tile_{name}", cls="fold", cooperative=True)
    def extremum(t: Tile, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False) -> Tile:
        f = {"min": np.fmin, "max": np.fmax, "minimum": np.minimum, "maximum": np.maximum}
        reduce = f[f"{name}imum" if propagate_nan else name].reduce
        with np.errstate(invalid="ignore"):
            return _shaped(np.asarray(reduce(t, axis=axes), dtype=t.dtype), t, axes, keepdims)

    extremum.__doc__ = f"""The {name}imum of a tile over `axis` (an int, a tuple, or None for all).

    NaN counts as missing, so the result is NaN only if all elements are; `propagate_nan=True` gives NumPy's rule.
    Returns: a tile of the same dtype without those axes (extent 1 there if `keepdims`); (1,) when nothing is left.
    Gradient: to the first of the elements that attain it.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_{name}(tg.tile_load(x, shape=3)))
        >>> x, y = np.array([2, np.nan, 5], np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [{"2.0" if name == "min" else "5.0"}]
    """

    @infer(extremum)
    def _infer(t: TileType, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False) -> Type:
        return TileType(t.dtype, reduced_shape(t.shape, axes, keepdims))

    @adjoint(extremum)
    def _adjoint(
        ct: Any, out: Any, t: Any, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False
    ) -> Any:
        winner = REGISTRY[f"tile_arg{name}"](t, axes=axes, propagate_nan=propagate_nan)
        chosen = REGISTRY["eq"](_positions(t, axes), _spread(winner, t, axes))
        return (REGISTRY["where"](chosen, _spread(ct, t, axes), zeros_like(t)),)

    @lower(extremum)
    def _lower(
        e: Emitter, t: TileType, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False
    ) -> Fold:
        start: Any = math.nan if t.dtype.is_float else t.dtype.max if name == "min" else t.dtype.min
        if propagate_nan and t.dtype.is_float:
            start = math.inf if name == "min" else -math.inf
        choose = e.minimum if name == "min" else e.maximum

        def both(x: Reg, y: Reg) -> Reg:
            r = choose(x, y)
            if propagate_nan and t.dtype.is_float:
                r = e.select(e.compare("ne", x, x), x, e.select(e.compare("ne", y, y), y, r))
            return r

        wide = dt.float32 if t.dtype.is_half else t.dtype
        return Fold(
            (wide,), (start,),
            lambda accs, x, position: (both(accs[0], e.cast(x, wide)),),
            lambda a, b: (both(a[0], b[0]),),
            lambda accs: e.cast(accs[0], t.dtype),
        )  # fmt: skip

    samples(extremum)(_samples(dt.SCALARS))

    @spelled(extremum)
    def _call(a: Any, axis: Any = None, keepdims: bool = False, propagate_nan: bool = False) -> Any:
        ndim = require_tile(f"tile_{name}", "a", a).ndim
        axes = require_axes(f"tile_{name}", axis, ndim)
        return extremum(a, axes=axes, keepdims=bool(keepdims), propagate_nan=bool(propagate_nan))

    return extremum


def _positions(t: Any, axes: tuple[int, ...]) -> Any:
    """At every element of `t` its int32 row-major index over `axes`."""
    shape = shape_of(t)
    count = math.prod(shape[k] for k in axes)
    flat = REGISTRY["tile_arange"](dt.int32(0), dt.int32(1), size=count)
    return tile_broadcast(
        tile_reshape(flat, shape=tuple(n if k in axes else 1 for k, n in enumerate(shape))), shape=shape
    )


def _arg(name: str) -> OpDef:
    """Define tile_argmin or tile_argmax."""

    @op(f"tile_arg{name}", cls="fold", cooperative=True, no_gradient="the result is an index")
    def arg(t: Tile, *, axes: tuple[int, ...], propagate_nan: bool = False) -> Tile:
        kept = [k for k in range(np.ndim(t)) if k not in axes]
        rows = np.transpose(t, (*kept, *axes)).reshape(*(t.shape[k] for k in kept), -1)
        missing = np.not_equal(rows, rows)
        values = np.asarray(rows).astype(np.float64) if dt.of_array(t).is_half else np.asarray(rows)
        if propagate_nan and missing.any():
            found = np.where(missing.any(-1), missing.argmax(-1), _nan_arg(values, missing, name))
        else:
            found = _nan_arg(values, missing, name)
        return _shaped(found.astype(np.int32), t, axes, False)

    arg.__doc__ = f"""The index of the {name}imum: int32, row-major over the reduced axes; the lowest one on ties.

    `axis` is an int, or None for the whole tile. NaN counts as missing (index 0 if all are) unless `propagate_nan`.
    No gradient: the result is an index.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[int]):
        ...     tg.tile_store(y, tg.tile_arg{name}(tg.tile_load(x, shape=3)))
        >>> x, y = np.array([2, np.nan, 5], np.float32), np.zeros(1, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [{"0" if name == "min" else "2"}]
    """

    @infer(arg)
    def _infer(t: TileType, *, axes: tuple[int, ...], propagate_nan: bool = False) -> Type:
        return TileType(dt.int32, reduced_shape(t.shape, axes, False))

    @lower(arg)
    def _lower(e: Emitter, t: TileType, *, axes: tuple[int, ...], propagate_nan: bool = False) -> Fold:
        return _arg_fold(e, t, "lt" if name == "min" else "gt", propagate_nan)

    samples(arg)(lambda rng: (Sample(s.args, {"axes": s.attrs["axes"]}) for s in _samples(dt.SCALARS)(rng)))

    @spelled(arg)
    def _call(a: Any, axis: Any = None, propagate_nan: bool = False) -> Any:
        ndim = require_tile(f"tile_arg{name}", "a", a).ndim
        return arg(a, axes=require_axes(f"tile_arg{name}", axis, ndim), propagate_nan=bool(propagate_nan))

    return arg


def _nan_arg(rows: Any, missing: Any, name: str) -> Any:
    """Index of the extremum along the last axis among the elements that are not missing."""
    if rows.dtype.kind == "f":
        filled = np.where(missing, np.inf if name == "min" else -np.inf, rows)
        best = filled.min(-1, keepdims=True) if name == "min" else filled.max(-1, keepdims=True)
        return np.where(missing.all(-1), 0, ((filled == best) & ~missing).argmax(-1))
    return rows.argmin(-1) if name == "min" else rows.argmax(-1)


def _arg_fold(e: Emitter, t: TileType, op_name: Any, propagate_nan: bool) -> Fold:
    """Accumulators: the best value so far, and its position (-1: none yet)."""
    wide = dt.float32 if t.dtype.is_half else dt.uint8 if t.dtype.kind == "b" else t.dtype

    def pick(take: Reg, x: Accs, y: Accs) -> Accs:
        return tuple(e.select(take, a, b) for a, b in zip(x, y, strict=True))

    def merge(a: Accs, b: Accs) -> Accs:
        """b if it is better, or as good and earlier, or if a has none."""
        better = e.compare(op_name, b[0], a[0])
        earlier = e.compare("lt", b[1], a[1])
        take = e.or_(better, e.and_(e.compare("eq", b[0], a[0]), earlier))
        if wide.is_float and propagate_nan:
            a_nan, b_nan = e.compare("ne", a[0], a[0]), e.compare("ne", b[0], b[0])
            take = e.select(b_nan, e.or_(e.not_(a_nan), earlier), e.and_(take, e.not_(a_nan)))
        none = e.compare("lt", a[1], e.const(0, dt.int32))
        some = e.compare("ge", b[1], e.const(0, dt.int32))
        return pick(e.and_(some, e.or_(none, take)), b, a)

    def step(accs: Accs, x: Reg, position: Reg) -> Accs:
        value = e.cast(x, wide)
        at = position
        if wide.is_float and not propagate_nan:
            at = e.select(e.compare("eq", value, value), position, e.const(-1, dt.int32))
        return merge(accs, (value, at))

    def finish(accs: Accs) -> Reg:
        return e.maximum(accs[1], e.const(0, dt.int32))

    return Fold((wide, dt.int32), (0, -1), step, merge, finish, positional=True)


tile_min = _extremum("min", "lt")
tile_max = _extremum("max", "gt")
tile_argmin = _arg("min")
tile_argmax = _arg("max")


# --- any operator ---------------------------------------------------------------------------------------------------


def tile_reduce(op: Any, a: Any, axis: Any = None) -> Any:
    """Reduce a tile with an associative and commutative operator: a builtin such as `tg.mul`, or a function of two.

    Args:
        op: called on pairs of elements; its result must have the tile's dtype.
        a: tile.
        axis: an int, or None for the whole tile.

    Returns: a tile without that axis; (1,) when nothing is left.
    Gradient: that of the operator, through a tree of pairs.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_reduce(lambda a, b: a * b, tg.tile_load(x, shape=4) + 1.0))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [24.0]
    """
    kind = require_tile("tile_reduce", "a", a)
    if not callable(op):
        raise TypeMismatch(
            f"tile_reduce: the operator must be a builtin or a function of two elements, it is {op!r}",
            help="for example tile_reduce(tg.mul, t) or tile_reduce(lambda x, y: x * y, t)",
        )
    axes = require_axes("tile_reduce", axis, kind.ndim)
    folds = {"add": tile_sum, "minimum": tile_min, "maximum": tile_max}
    known = folds.get(getattr(op, "name", ""))
    if known is not None and (known is not tile_sum or dt.sum_dtype(kind.dtype) is kind.dtype):
        return known(unwrap(a), axes=axes, keepdims=False)
    t = unwrap(a)
    if len(axes) == kind.ndim:
        t, axes = tile_reshape(t, shape=(kind.size,)), (0,)
    for k in reversed(axes):
        t = _halve(op, t, k)
    return tile_reshape(t, shape=reduced_shape(shape_of(t), axes, False))


def _halve(op: Any, t: Any, axis: int) -> Any:
    """Combine the first half with the second until one is left along `axis`."""
    while (n := shape_of(t)[axis]) > 1:
        half = n // 2
        combined = unwrap(op(_part(t, axis, 0, half), _part(t, axis, half, half)))
        if combined.type.dtype is not t.type.dtype:
            raise TypeMismatch(f"tile_reduce: the operator turns {t.type.dtype} into {combined.type.dtype}")
        if n % 2:
            rest = _part(t, axis, n - 1, 1)
            first = unwrap(op(_part(combined, axis, 0, 1), rest))
            starts = (0,) * len(shape_of(t))
            combined = REGISTRY["tile_insert"](combined, first, *starts, steps=(1,) * len(starts))
        t = combined
    return t


def _part(t: Any, axis: int, first: int, size: int) -> Any:
    shape = shape_of(t)
    starts = tuple(first if k == axis else 0 for k in range(len(shape)))
    sizes = tuple(size if k == axis else n for k, n in enumerate(shape))
    return tile_slice(t, *starts, sizes=sizes, steps=(1,) * len(shape))


PUBLIC = {
    "tile_sum": tile_sum,
    "tile_prod": tile_prod,
    "tile_min": tile_min,
    "tile_max": tile_max,
    "tile_argmin": tile_argmin,
    "tile_argmax": tile_argmax,
    "tile_reduce": tile_reduce,
}
