"""Reductions of tiles over all axes or some: sum, product, min, max, argmin, argmax, and any operator of the user's.

A result keeps at least one axis: reducing everything gives shape (1,). Sums and products of bool and small integers
widen to 32 bits; 16-bit floats are carried in float32 and rounded once; float32 is carried in float64. Sums of 16-bit
floats and float64 go in chunks whose results are added up, so that the error hardly grows with the extent: whatever
the device's order of additions, it stays within the rounding of the result and 2 * sqrt(n) + 64 roundings of the
carrier (relative to the sum of magnitudes). NaN counts as missing in min and max unless `propagate_nan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import kind_of, of_leaves
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
    describe,
    infer,
    lower,
    op,
    samples,
    spelled,
    unwrap,
)  # fmt: skip
from tilegrad.ops.indexing import zeros_like
from tilegrad.ops.operators import (
    Combine,
    Leaves,
    OfPresent,
    as_combine,
    builtin_name,
    of_present,
    part,
    parts,
    require_elements,
    with_part,
)
from tilegrad.ops.running import scan
from tilegrad.ops.shapes import require_axes, require_tile
from tilegrad.ops.views import shape_of, tile_broadcast, tile_reshape, tile_transpose

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


def _rows(t: Any, axes: tuple[int, ...]) -> Any:
    """The elements over `axes` as the last axis, in row-major order; the other axes before it."""
    kept = [k for k in range(np.ndim(t)) if k not in axes]
    return np.transpose(t, (*kept, *axes)).reshape(*(np.shape(t)[k] for k in kept), -1)


def _carrier(dtype: DType) -> DType:
    """The dtype in which sums and products are carried."""
    return dt.float64 if dtype is dt.float32 else dt.accumulator(dtype)


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

    Args:
        a: tile of any element type.
        axis: which axes go, negative ones counted from the end.
        keepdims: leave them with extent 1.

    Returns: a tile without those axes; (1,) when nothing is left. bool, int8 and int16 give int32 (unsigned: uint32);
        float16 and bfloat16 are added in float32 and rounded once. The error of floats does not grow with the extent.
    Raises: TypeMismatch if `a` is no tile, ShapeMismatch if an axis is out of range or named twice.
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
    wide = np.ascontiguousarray(_rows(t, axes).astype(_carrier(dtype).np))  # rows, which NumPy adds pairwise
    return _shaped(np.sum(wide, axis=-1, dtype=wide.dtype).astype(dt.sum_dtype(dtype).np), t, axes, keepdims)


@infer(tile_sum)
def _tile_sum_infer(t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Type:
    return TileType(dt.sum_dtype(t.dtype), reduced_shape(t.shape, axes, keepdims))


@adjoint(tile_sum)
def _tile_sum_adjoint(ct: Any, out: Any, t: Any, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    return (_spread(ct, t, axes),)


@lower(tile_sum)
def _tile_sum_lower(e: Emitter, t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Fold:
    carrier, result = _carrier(t.dtype), dt.sum_dtype(t.dtype)
    return Fold(
        (carrier,), (0,),
        lambda accs, x, position: (e.add(accs[0], e.cast(x, carrier)),),
        lambda a, b: (e.add(a[0], b[0]),),
        lambda accs: e.cast(accs[0], result),
        pairwise=t.dtype.is_float and t.dtype is not dt.float32,  # float64 carries float32 well enough
    )  # fmt: skip


samples(tile_sum)(_samples(dt.SCALARS))
spelled(tile_sum)(_axes_call(tile_sum))


@op(cls="fold", cooperative=True)
def tile_prod(t: Tile, *, axes: tuple[int, ...], keepdims: bool = False) -> Tile:
    """The product of a tile over `axis` (an int, a tuple, or None for all).

    Args:
        a: tile of any element type.
        axis: which axes go, negative ones counted from the end.
        keepdims: leave them with extent 1.

    Returns: a tile without those axes; (1,) when nothing is left. bool, int8 and int16 give int32 (unsigned: uint32);
        float16 and bfloat16 are multiplied in float32, float32 in float64, and rounded once.
    Raises: TypeMismatch if `a` is no tile, ShapeMismatch if an axis is out of range or named twice.
    Gradient: the cotangent times the product of all other elements, from running products of both directions; so it is
        right with zeros among the elements too.

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
    dtype = dt.of_array(t)
    wide = _carrier(dtype).np
    return _shaped(np.prod(_rows(t, axes).astype(wide), axis=-1, dtype=wide).astype(dt.sum_dtype(dtype).np), t, axes,
                   keepdims)  # fmt: skip


@infer(tile_prod)
def _tile_prod_infer(t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Type:
    return TileType(dt.sum_dtype(t.dtype), reduced_shape(t.shape, axes, keepdims))


@adjoint(tile_prod)
def _tile_prod_adjoint(ct: Any, out: Any, t: Any, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    shape = shape_of(t)
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    order = (*kept, *axes)
    turned = tile_transpose(t, axes=order)
    rows = tile_reshape(turned, shape=(*(shape[k] for k in kept), math.prod(shape[k] for k in axes)))
    before, after = (scan(rows, combine="mul", axis=len(kept), reverse=r, exclusive=True) for r in (False, True))
    others = tile_reshape(REGISTRY["mul"](before, after), shape=tuple(shape[k] for k in order))
    others = tile_transpose(others, axes=tuple(order.index(k) for k in range(len(shape))))
    return (REGISTRY["chain"](_spread(ct, t, axes), others),)


@lower(tile_prod)
def _tile_prod_lower(e: Emitter, t: TileType, *, axes: tuple[int, ...], keepdims: bool = False) -> Fold:
    carrier, result = _carrier(t.dtype), dt.sum_dtype(t.dtype)
    return Fold(
        (carrier,), (1.0 if carrier.is_float else 1,),
        lambda accs, x, position: (e.mul(accs[0], e.cast(x, carrier)),),
        lambda a, b: (e.mul(a[0], b[0]),),
        lambda accs: e.cast(accs[0], result),
    )  # fmt: skip


@samples(tile_prod)
def _tile_prod_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for axes, keepdims in (((1,), True), ((0, 1), False), ((0,), False)):
        yield Sample((rng.permutation(15).reshape(5, 3) / 7.0 - 1.0,), {"axes": axes, "keepdims": keepdims})
    yield Sample((rng.uniform(0.5, 1.5, (2, 3, 2, 2, 1, 2, 2, 3)),), {"axes": (1, 3, 7)})
    for d in dt.SCALARS:
        for axes in ((0, 1), (0,), (1,)):
            yield Sample((rng.integers(0, 3, (5, 7)).astype(d.np),), {"axes": axes})
        yield Sample((rng.uniform(1, 2, (3, 37)).astype(d.np) if d.is_float else np.ones(40, d.np),), {"axes": (0,)})


spelled(tile_prod)(_axes_call(tile_prod))


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

    Args:
        a: tile of any element type.
        axis: which axes go, negative ones counted from the end.
        keepdims: leave them with extent 1.
        propagate_nan: any NaN makes the result NaN, as in NumPy; otherwise NaN counts as missing, and the result is
            NaN only if all elements are.

    Returns: a tile of the same dtype without those axes; (1,) when nothing is left.
    Raises: TypeMismatch if `a` is no tile, ShapeMismatch if an axis is out of range or named twice.
    Gradient: to the first of the elements that attain it; the others get 0.

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
    def arg(t: Tile, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False) -> Tile:
        rows = _rows(t, axes)
        missing = np.not_equal(rows, rows)
        values = np.asarray(rows).astype(np.float64) if dt.of_array(t).is_half else np.asarray(rows)
        if propagate_nan and missing.any():
            found = np.where(missing.any(-1), missing.argmax(-1), _nan_arg(values, missing, name))
        else:
            found = _nan_arg(values, missing, name)
        return _shaped(found.astype(np.int32), t, axes, keepdims)

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
    def _infer(t: TileType, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False) -> Type:
        return TileType(dt.int32, reduced_shape(t.shape, axes, keepdims))

    @lower(arg)
    def _lower(
        e: Emitter, t: TileType, *, axes: tuple[int, ...], keepdims: bool = False, propagate_nan: bool = False
    ) -> Fold:
        return _arg_fold(e, t, "lt" if name == "min" else "gt", propagate_nan)

    samples(arg)(_samples(dt.SCALARS))

    @spelled(arg)
    def _call(a: Any, axis: Any = None, keepdims: bool = False, propagate_nan: bool = False) -> Any:
        ndim = require_tile(f"tile_arg{name}", "a", a).ndim
        axes = require_axes(f"tile_arg{name}", axis, ndim)
        return arg(a, axes=axes, keepdims=bool(keepdims), propagate_nan=bool(propagate_nan))

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


#: builtins whose reduction is an op of its own
FOLDS = {"add": tile_sum, "mul": tile_prod, "minimum": tile_min, "maximum": tile_max}


def tile_reduce(op: Any, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Reduce a tile with an associative operator: a builtin such as `tg.mul`, or a function of two elements.

    Args:
        op: called on neighbours, the earlier one first, so it need not be commutative; its result must have the tile's
            element type.
        a: tile of any element type; its elements may be vectors, matrices or structs.
        axis: an int, a tuple, or None for the whole tile in row-major order.
        keepdims: leave the reduced axes with extent 1.

    Returns: a tile of the same element type without those axes; (1,) when nothing is left. Small integers wrap.
    Raises: TypeMismatch if the operator is no function or changes the element type, ShapeMismatch if an axis is out of
        range or named twice.
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
    elements = require_elements("tile_reduce", "a", a)
    present: Leaves = (op.present,) if isinstance(op, OfPresent) else ()
    function = op.operator if isinstance(op, OfPresent) else op
    combine = as_combine("tile_reduce", function, a)
    shape, dtype = shape_of(elements[0]), elements[0].type.dtype
    axes = require_axes("tile_reduce", axis, len(shape))
    fold = None if present else FOLDS.get(builtin_name(function, a))
    if fold is not None and (dtype.kind != "b" or fold in (tile_min, tile_max)):
        folded = tuple(_keeping_dtype(fold, t, axes, bool(keepdims)) for t in elements)
        return of_leaves(kind_of(a), iter(folded))
    made = _paired(of_present(combine) if present else combine, (*elements, *present), axes)
    left = tuple(tile_reshape(t, shape=reduced_shape(shape, axes, bool(keepdims))) for t in made)
    return of_leaves(kind_of(a), iter(left))


def _keeping_dtype(fold: OpDef, t: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    result = unwrap(fold(t, axes=axes, keepdims=keepdims))
    return result if result.type.dtype is t.type.dtype else REGISTRY["astype"](result, dtype=t.type.dtype)


def _paired(combine: Combine, x: Leaves, axes: tuple[int, ...]) -> Leaves:
    """Combine neighbours until one element is left along every axis."""
    shape = shape_of(x[0])
    if len(axes) == len(shape):
        x, axes = tuple(tile_reshape(t, shape=(math.prod(shape),)) for t in x), (0,)
    for axis in reversed(axes):
        while (n := shape_of(x[0])[axis]) > 1:
            made = combine(parts(x, axis, 0, n // 2, step=2), parts(x, axis, 1, n // 2, step=2))
            x = (
                tuple(_joined(m, part(t, axis, n - 1, 1), axis) for m, t in zip(made, x, strict=True))
                if n % 2
                else made
            )
    return x


def _joined(t: Any, last: Any, axis: int) -> Any:
    """Two tiles one behind the other along an axis."""
    shape = shape_of(t)
    longer = tuple(n + 1 if k == axis else n for k, n in enumerate(shape))
    empty = REGISTRY["tile_full"](t.type.dtype(0), shape=longer)
    return with_part(with_part(empty, t, axis, 0), last, axis, shape[axis])


def tile_all(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements hold, over `axis` (an int, a tuple, or None for all).

    Args:
        a: tile of bools.
        axis, keepdims: as for `tile_sum`.

    Returns: a bool tile without those axes; (1,) when nothing is left.
    Raises: TypeMismatch if `a` is no tile of bools.
    No gradient: the result is a bool.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[tg.bool]):
        ...     tg.tile_store(y, tg.tile_all(tg.tile_load(x, shape=4) > 0.0))
        >>> x, y = np.arange(4, dtype=np.float32), np.ones(1, np.bool_)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [False]
    """
    return _of_bools("tile_all", tile_min, a, axis, keepdims)


def tile_any(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether any element holds, over `axis` (an int, a tuple, or None for all).

    Args:
        a: tile of bools.
        axis, keepdims: as for `tile_sum`.

    Returns: a bool tile without those axes; (1,) when nothing is left.
    Raises: TypeMismatch if `a` is no tile of bools.
    No gradient: the result is a bool.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[tg.bool]):
        ...     tg.tile_store(y, tg.tile_any(tg.tile_load(x, shape=4) > 2.5))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(1, np.bool_)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [True]
    """
    return _of_bools("tile_any", tile_max, a, axis, keepdims)


def _of_bools(what: str, fold: OpDef, a: Any, axis: Any, keepdims: Any) -> Any:
    t = require_tile(what, "a", a)
    if t.dtype.kind != "b":
        raise TypeMismatch(f"{what}: the tile must hold bools, it is {describe(t)}", help="compare first: t != 0")
    return fold(unwrap(a), axes=require_axes(what, axis, t.ndim), keepdims=bool(keepdims))


PUBLIC = {
    "tile_sum": tile_sum,
    "tile_prod": tile_prod,
    "tile_min": tile_min,
    "tile_max": tile_max,
    "tile_argmin": tile_argmin,
    "tile_argmax": tile_argmax,
    "tile_reduce": tile_reduce,
    "tile_all": tile_all,
    "tile_any": tile_any,
}
