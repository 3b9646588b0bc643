"""Products of matrices held in tiles, of real or complex numbers, one or a batch of them.

The last two axes are the matrices, the axes before them a batch that broadcasts as in NumPy. 16-bit floats are
multiplied and summed in float32 and rounded once, float32 products are full float32, integers wrap. A tile of vec2
holds complex numbers. Products of elements that are small matrices themselves are not here (see `algebra`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, first_leaf
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import GridType, VectorType
from tilegrad.emit import Buffer, Emitter
from tilegrad.ir.core import Value
from tilegrad.ir.types import ScalarType, TileType, Type, is_varying
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, describe, exact, infer, lower, op, samples, spelled, unwrap
from tilegrad.ops.cast import dtype_of
from tilegrad.ops.shapes import require_dtype, require_tile
from tilegrad.ops.views import shape_of, tile_reshape, tile_transpose

Shape = tuple[int, ...]
Swap = tuple[bool, bool]


# --- types and shapes -------------------------------------------------------------------------------------------------


def allowed_outputs(dtype: DType) -> tuple[DType, ...]:
    """The dtypes in which products of `dtype` may be summed: its own, and wider ones that hold all its values."""

    def holds(wide: DType) -> bool:
        if dtype.is_float or dtype.kind == wide.kind:
            return wide.kind == dtype.kind and wide.bits > dtype.bits
        return dtype.kind == "u" and wide.kind == "i" and wide.bits > dtype.bits

    return (dtype, *(d for d in dt.NUMERIC if holds(d)))


def product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a @ b by NumPy's rules; (1,) for two vectors."""
    batch = batch_shape(a[:-2], b[:-2])
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ())) or (1,)


def batch_shape(a: Shape, b: Shape) -> Shape:
    """The batch axes of two operands, broadcast."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(a, b))
    except ValueError:
        raise ShapeMismatch(
            f"tile_matmul: the batch axes {a} of `a` and {b} of `b` do not broadcast",
            help="all axes but the last two are a batch; their extents must be equal or 1, counted from the end",
        ) from None


def _check_operands(a: TileType, b: TileType) -> None:
    if a.dtype is not b.dtype:
        raise TypeMismatch(
            f"tile_matmul: the operands have different types: {a.dtype} and {b.dtype}",
            help=f"convert one, for example tile_astype(b, {a.dtype})",
        )
    if a.dtype.kind == "b":
        raise TypeMismatch("tile_matmul is not defined for bool", help="convert with tile_astype(t, tilegrad.int32)")
    row = b.ndim - 2 if b.ndim > 1 else 0
    if a.shape[-1] != b.shape[row]:
        raise ShapeMismatch(
            f"tile_matmul: inner sizes differ: `a` is {a.dtype} tile {a.shape}, `b` is {b.dtype} tile {b.shape}",
            label=f"a.shape[{a.ndim - 1}] = {a.shape[-1]}, b.shape[{row}] = {b.shape[row]}",
            help="transpose one operand, or check the shapes given to tile_load",
        )


def _check_output(inputs: DType, dtype: DType) -> None:
    allowed = allowed_outputs(inputs)
    if dtype not in allowed:
        raise TypeMismatch(
            f"tile_matmul: products of {inputs} cannot be summed up as {dtype}",
            help=f"the result may be {' or '.join(map(str, allowed))}; convert it afterwards with tile_astype",
        )


def _product_type(a: TileType, b: TileType, dtype: DType | None) -> TileType:
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeMismatch(
            f"tile_matmul: both operands must have 2 dimensions or more, they are {a.shape} and {b.shape}"
        )
    _check_operands(a, b)
    _check_output(a.dtype, dtype or a.dtype)
    return TileType(dtype or a.dtype, product_shape(a.shape, b.shape))


def carrier(dtype: DType) -> DType:
    """The dtype in which products are summed that are rounded to `dtype` at the end."""
    return dt.float32 if dtype.is_half else dtype


def can_accumulate(a: Any, b: Any, c: Any) -> bool:
    """Whether `c += a @ b` can be done in one step: `c` has the product's shape, and its type or a wider one."""
    if isinstance(c, Composite):
        return all(_is_complex(x) for x in (a, b, c)) and can_accumulate(*map(first_leaf, (a, b, c)))
    kinds = [t for x in (a, b, c) if isinstance(t := getattr(x, "type", None), TileType)]
    if len(kinds) < 3:
        return False
    left, right, total = kinds
    if left.dtype is not right.dtype or total.dtype not in allowed_outputs(left.dtype) or left.dtype.kind == "b":
        return False
    try:
        same = product_shape(left.shape, right.shape) == total.shape
        return same and left.shape[-1] == right.shape[-2 if right.ndim > 1 else 0]
    except ShapeMismatch:  # of the batch: the product itself says so
        return False


# --- the ops ----------------------------------------------------------------------------------------------------------


@op(cls="block", cooperative=True)
def tile_matmul(a: Tile, b: Tile, *, dtype: DType | None = None, swap: Swap = (False, False)) -> Tile:
    """The matrix products of two tiles of rank 2 or more; see `matmul` for what users call.

    Args:
        dtype: the element type of the result, and of the sums unless it has 16 bits; that of `a` if None.
        swap: whether a, and b, are given with their last two axes swapped.

    Gradient: ct @ b.T for a and a.T @ ct for b, summed over the batch axes along which the operand was broadcast.
    """
    out = dtype or dt.of_array(a)
    wide = carrier(out).np
    a, b = _unswapped(a, swap[0]), _unswapped(b, swap[1])
    return np.matmul(a.astype(wide), b.astype(wide)).astype(out.np)


def _unswapped(t: Any, swap: bool) -> Any:
    """An operand with its last two axes in order."""
    if not swap:
        return t
    if isinstance(t, TileType):
        return TileType(t.dtype, (*t.shape[:-2], t.shape[-1], t.shape[-2]))
    return np.swapaxes(t, -1, -2) if isinstance(t, np.ndarray) else swapped(t)


@infer(tile_matmul)
def _tile_matmul_infer(a: TileType, b: TileType, *, dtype: DType | None = None, swap: Swap = (False, False)) -> Type:
    return _product_type(_unswapped(a, swap[0]), _unswapped(b, swap[1]), dtype)


@adjoint(tile_matmul)
def _tile_matmul_adjoint(
    ct: Any, out: Any, a: Any, b: Any, *, dtype: DType | None = None, swap: Swap = (False, False)
) -> Any:
    x, y = _unswapped(a, swap[0]), _unswapped(b, swap[1])
    return _unswapped(_cotangent_of_a(ct, x, y), swap[0]), _unswapped(_cotangent_of_b(ct, x, y), swap[1])


def _cotangent_of_a(ct: Any, a: Any, b: Any) -> Any:
    """ct @ b.T, summed over the batch if `a` has none: then the batch lies along the inner axis of one product."""
    b = _as(b, dtype_of(ct))
    m, k, n = shape_of(ct)[-2], shape_of(b)[-2], shape_of(ct)[-1]
    batch = math.prod(shape_of(ct)[:-2])
    if batch > 1 and math.prod(shape_of(a)[:-2]) == 1:
        rows = tile_reshape(_front(tile_reshape(ct, shape=(batch, m, n))), shape=(m, batch * n))
        columns = tile_reshape(swapped(b), shape=(batch * n, k))
        return _as(tile_reshape(tile_matmul(rows, columns), shape=shape_of(a)), dtype_of(a))
    return _summed(ct, swapped(b), a)


def _cotangent_of_b(ct: Any, a: Any, b: Any) -> Any:
    """a.T @ ct, summed over the batch if `b` has none: then the batch lies along the inner axis of one product."""
    a = _as(a, dtype_of(ct))
    m, k, n = shape_of(ct)[-2], shape_of(a)[-1], shape_of(ct)[-1]
    batch = math.prod(shape_of(ct)[:-2])
    if batch > 1 and math.prod(shape_of(b)[:-2]) == 1:
        rows = swapped(tile_reshape(a, shape=(batch * m, k)))
        product = tile_matmul(rows, tile_reshape(ct, shape=(batch * m, n)))
        return _as(tile_reshape(product, shape=shape_of(b)), dtype_of(b))
    return _summed(swapped(a), ct, b)


def _summed(x: Any, y: Any, like: Any) -> Any:
    """x @ y summed over the batch axes that `like` lacks, in the dtype of `like`; rounded once."""
    wanted, dtype = shape_of(like), dtype_of(x)
    assert dtype is not None
    shape = product_shape(shape_of(x), shape_of(y))
    lead = len(shape) - len(wanted)
    axes = tuple(k for k, n in enumerate(shape) if k < lead or wanted[k - lead] != n)
    if not axes:
        return _as(tile_matmul(x, y), dtype_of(like))
    total = REGISTRY["tile_sum"](tile_matmul(x, y, dtype=carrier(dtype)), axes=axes)
    return _as(tile_reshape(total, shape=wanted), dtype_of(like))


def swapped(t: Any) -> Any:
    """A view with the last two axes swapped."""
    ndim = len(shape_of(t))
    return tile_transpose(t, axes=(*range(ndim - 2), ndim - 1, ndim - 2))


def _front(t: Any) -> Any:
    """(batch, m, n) as (m, batch, n)."""
    return tile_transpose(t, axes=(1, 0, 2))


def _as(t: Any, dtype: DType | None) -> Any:
    """A tile or scalar as another dtype; itself if it has that dtype, or is a number."""
    return t if dtype is None or dtype_of(t) in (dtype, None) else REGISTRY["astype"](t, dtype=dtype)


@lower(tile_matmul)
def _tile_matmul_lower(
    e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer, *, dtype: DType | None = None, swap: Swap = (False, False)
) -> None:
    e.matmul(outs[0], a, b, None, options={"swap": swap})


#: shapes of a and b: one matrix, batches that agree, that broadcast on either side or on both, and small ranks
_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((1, 1), (1, 1)), ((16, 24), (24, 8)), ((2, 3, 4), (2, 4, 5)), ((17, 33), (33, 35)), ((3, 2, 4), (4, 3)),
    ((2, 3), (4, 3, 5)), ((2, 1, 3, 2), (3, 2, 4)), ((2, 3), (3, 64)), ((5, 1, 9), (1, 9, 1)), ((4, 2, 16), (16, 1)),
    ((2, 1, 2, 1, 1, 2, 3, 2), (1, 2, 2, 1, 2, 1, 2, 3)),
)  # fmt: skip


def _whole(rng: np.random.Generator, d: DType, *shapes: Shape) -> list[Any]:
    return [rng.integers(0, 5, s).astype(d.np) for s in shapes]


@samples(tile_matmul)
def _tile_matmul_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        for wide in allowed_outputs(d):
            yield Sample(tuple(_whole(rng, d, (5, 7), (7, 3))), {} if wide is d else {"dtype": wide})
        yield Sample(tuple(_whole(rng, d, (3, 5, 7), (1, 7, 3))))
    for a, b in _SHAPES:
        yield Sample((rng.standard_normal(a), rng.standard_normal(b)))
    yield from _swapped_samples(rng)


def _swapped_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in (dt.float64, dt.float32, dt.float16, dt.int8):
        for swap in ((True, False), (False, True), (True, True)):
            for m, k, n in ((5, 7, 3), (17, 33, 20), (3, 16, 1), (32, 16, 64)):
                a, b = ((m, k)[::-1] if swap[0] else (m, k)), ((k, n)[::-1] if swap[1] else (k, n))
                yield Sample(tuple(_whole(rng, d, (2, *a), b)), {"swap": swap})


@op(cls="block", cooperative=True)
def tile_matmul_add(a: Tile, b: Tile, c: Tile, *, swap: Swap = (False, False)) -> Tile:
    """a @ b + c: what `c += a @ b` leaves in c, in one step, in the dtype of c. `swap`: see tile_matmul.

    Gradient: that of the product for a and b, the cotangent itself for c.
    """
    wide = carrier(dt.of_array(c)).np
    a, b = _unswapped(a, swap[0]), _unswapped(b, swap[1])
    return (np.matmul(a.astype(wide), b.astype(wide)) + c.astype(wide)).astype(c.dtype)


@infer(tile_matmul_add)
def _tile_matmul_add_infer(a: TileType, b: TileType, c: TileType, *, swap: Swap = (False, False)) -> Type:
    t = _product_type(_unswapped(a, swap[0]), _unswapped(b, swap[1]), None)
    _check_sum(t, c)
    return c


def _check_sum(product: TileType, out: TileType) -> None:
    if product.shape != out.shape:
        raise ShapeMismatch(
            f"tile_matmul: the product is {describe(product)}, `out` is {describe(out)}",
            help=f"`out` must have the shape {product.shape}",
        )
    _check_output(product.dtype, out.dtype)


@adjoint(tile_matmul_add)
def _tile_matmul_add_adjoint(ct: Any, out: Any, a: Any, b: Any, c: Any, *, swap: Swap = (False, False)) -> Any:
    return (*_tile_matmul_adjoint(ct, out, a, b, swap=swap), ct)


@lower(tile_matmul_add)
def _tile_matmul_add_lower(
    e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer, c: Buffer, *, swap: Swap = (False, False)
) -> None:
    e.matmul(outs[0], a, b, c, options={"swap": swap})


@samples(tile_matmul_add)
def _tile_matmul_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        for wide in allowed_outputs(d):
            a, b = _whole(rng, d, (5, 7), (7, 3))
            yield Sample((a, b, *_whole(rng, wide, (5, 3))))
    for a, b in _SHAPES[2:7]:
        yield Sample(tuple(rng.standard_normal(s) for s in (a, b, product_shape(a, b))))


# --- what users call --------------------------------------------------------------------------------------------------

#: a real tile is one leaf, a complex one two
Leaves = tuple[Any, ...]


@dataclass(frozen=True)
class Factor:
    """alpha or beta: a number known at compile time, a scalar, or the two parts of a complex scalar."""

    parts: Leaves

    def is_known(self, value: int) -> bool:
        """Whether it is a compile-time constant of this value."""
        return len(self.parts) == 1 and isinstance(self.parts[0], (int, float)) and self.parts[0] == value


def matmul(
    a: Any, b: Any, out: Any = None, alpha: Any = 1.0, beta: Any = 1.0, precision: str = "default", dtype: Any = None
) -> Any:
    """The matrix product alpha * a @ b, also written `a @ b`.

    `tile_matmul(a, b, alpha=1.0)` returns it. `tile_matmul(a, b, out, alpha=1.0, beta=1.0)` sets
    out = alpha * a @ b + beta * out in place, and `c += a @ b` is short for `tile_matmul(a, b, c)`. Where beta is 0 the
    old contents of `out` have no effect, whatever they are.

    Args:
        a: tile (..., m, k), or (k,) for a row.
        b: tile (..., k, n), or (k,) for a column; same dtype as a. The leading axes of a and b are a batch and
            broadcast. A tile of vec2 holds complex numbers.
        out: tile of the product's shape. Its dtype is that of a and b or a wider one of the same kind, in which the
            products are then summed.
        alpha, beta: numbers, or scalars of the tiles' dtype or float32; for complex tiles vec2 scalars too.
        precision: "default", or "tf32" for float32, which a CPU takes as "default".
        dtype: the element type of the returned product, as for `out`; that of a unless given.

    Returns: a tile (..., m, n) (without the axis that a 1-D operand lacks; (1,) for two of them), or None with `out`.
    16-bit floats are summed in float32 and rounded once, integers wrap.
    Raises: ShapeMismatch if the inner sizes differ or the batch axes do not broadcast, TypeMismatch if the dtypes do
    not fit.
    Gradient: alpha * ct @ b.T for a and alpha * a.T @ ct for b, summed where an operand was broadcast; beta * ct for
    the old `out`, sum(ct * (a @ b)) for alpha and sum(ct * out) for beta (Giles, "Collected matrix derivative results
    for forward and reverse mode", 2008, section 2.1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=(2, 2))
        ...     c = t @ t
        ...     tg.tile_matmul(t, t, c, alpha=2.0, beta=-1.0)
        ...     tg.tile_store(y, c)
        >>> x, y = np.arange(4, dtype=np.float32).reshape(2, 2), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[2.0, 3.0], [6.0, 11.0]]
    """
    if _is_number(out):
        out, alpha, precision = None, out, alpha if isinstance(alpha, str) else precision
    ta, tb = _operand("a", a), _operand("b", b)
    _same_sort(a, b)
    _check_precision(precision, ta.dtype)
    _check_operands(ta, tb)
    product = TileType(ta.dtype, product_shape(ta.shape, tb.shape))
    x, y = _leaves(a), _leaves(b)
    if out is None:
        target = ta.dtype if dtype is None else require_dtype("tile_matmul", dtype)
        _check_output(ta.dtype, target)
        return _returned(
            a, _scaled_product(x, y, factor_of("tile_matmul", "alpha", alpha, ta.dtype, target), target), target
        )
    tc = _operand("out", out)
    _same_sort(a, out)
    if dtype is not None and dt.as_dtype(dtype) is not tc.dtype:
        raise TypeMismatch("tile_matmul: dtype= goes with the returned product; `out` has a dtype of its own")
    _check_sum(product, tc)
    factors = (
        factor_of("tile_matmul", "alpha", alpha, ta.dtype, tc.dtype),
        factor_of("tile_matmul", "beta", beta, ta.dtype, tc.dtype),
    )
    _assign(out, _accumulated(x, y, _leaves(out), *factors, tc.dtype))
    return None


spelled(tile_matmul)(matmul)


def _operand(name: str, x: Any) -> TileType:
    """The type of an operand, or of each part of a complex one."""
    if not isinstance(x, Composite):
        return require_tile("tile_matmul", name, x)
    if not _is_complex(x):
        raise TypeMismatch(
            f"tile_matmul: `{name}` is a tile of {x.kind}; its elements must be numbers, or vec2 for complex ones",
            help="element by element, `a * b` multiplies small matrices, vectors and quaternions",
        )
    return require_tile("tile_matmul", name, first_leaf(x))


def _is_complex(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, VectorType) and len(x) == 2 and x.kind.dtype.is_float


def _same_sort(a: Any, b: Any) -> None:
    if isinstance(a, Composite) != isinstance(b, Composite):
        raise TypeMismatch(
            "tile_matmul: a complex tile (of vec2) meets a real one",
            help="multiply the parts one by one, or make a complex tile of the real one",
        )


def _leaves(x: Any) -> Leaves:
    return tuple(unwrap(part) for part in x) if isinstance(x, Composite) else (unwrap(x),)


def _returned(like: Any, parts: Leaves, dtype: DType) -> Any:
    if not isinstance(like, Composite):
        return parts[0]
    assert isinstance(like.kind, GridType)
    return Composite(like.kind.with_dtype(dtype), parts)


def _assign(out: Any, parts: Leaves) -> None:
    for ref, value in zip(out if isinstance(out, Composite) else (out,), parts, strict=True):
        ref.assign(value)


def _check_precision(precision: Any, dtype: DType) -> None:
    if precision not in ("default", "tf32") or (precision == "tf32" and dtype is not dt.float32):
        raise TypeMismatch(f'tile_matmul: precision must be "default", or "tf32" for float32; it is {precision!r}')


# --- alpha and beta ---------------------------------------------------------------------------------------------------


def _is_number(x: Any) -> bool:
    """Whether an argument is a number (a complex one too), not a tile."""
    leaf = unwrap(first_leaf(x))
    return isinstance(leaf, (int, float, np.generic)) or isinstance(getattr(leaf, "type", None), ScalarType)


def factor_of(what: str, name: str, x: Any, inputs: DType, target: DType) -> Factor:
    """A factor of tiles, in the dtype in which a result of dtype `target` is computed."""
    if not _is_number(x):
        found = describe(t) if (t := getattr(unwrap(first_leaf(x)), "type", None)) else repr(x)
        raise TypeMismatch(f"{what}: {name} must be a number, it is {found}")
    allowed = {inputs, target, *((dt.float32,) if target.is_float else ())}
    parts = x if isinstance(x, tuple) else (x,)
    return Factor(tuple(_number(f"{what}: {name}", p, allowed, carrier(target)) for p in parts))


def _number(what: str, x: Any, allowed: set[DType], wide: DType) -> Any:
    known = _known(unwrap(x))
    found = None if isinstance(x, (int, float)) else dtype_of(x)
    if found is not None and found not in allowed:
        raise TypeMismatch(
            f"{what} is {found}; it must be {' or '.join(sorted(d.name for d in allowed))}",
            help=f"convert it: {wide}(...)",
        )
    if known is None:
        if is_varying(unwrap(x).type):
            raise TypeMismatch(
                f"{what} differs between the lanes of the block", help="a factor of a tile is the same for all lanes"
            )
        return _as(unwrap(x), wide)
    if wide.is_float:
        return float(known)
    if not float(known).is_integer() or not (known == -1 or dt.literal_fits(int(known), wide)):
        raise TypeMismatch(f"{what} is {known!r}, which is no value of {wide}, the type of the tiles")
    return int(exact(int(known), wide))


def _known(x: Any) -> int | float | None:
    """The value of a number that is known at compile time."""
    if isinstance(x, Value) and x.op is not None and x.op.name == "constant":
        x = x.op.attrs["value"]
    return x.item() if isinstance(x, np.generic) else x if isinstance(x, (int, float)) else None


# --- arithmetic of leaves ---------------------------------------------------------------------------------------------


def _scaled_product(a: Leaves, b: Leaves, alpha: Factor, target: DType) -> Leaves:
    """alpha * a @ b, rounded once."""
    if alpha.is_known(1) and len(a) == 1:
        return (_product(a[0], b[0], None, target),)
    return _rounded(_scaled(_products(a, b, None, carrier(target)), alpha, "mul"), target)


def _accumulated(a: Leaves, b: Leaves, c: Leaves, alpha: Factor, beta: Factor, target: DType) -> Leaves:
    """alpha * a @ b + beta * c, rounded once."""
    if beta.is_known(0):
        return _scaled_product(a, b, alpha, target)
    if alpha.is_known(-1) and (target.is_float or target is dtype_of(a[0])):  # else -a may not fit its type
        a, alpha = tuple(REGISTRY["neg"](x) for x in a), Factor((1.0,))
    if alpha.is_known(1) and beta.is_known(1) and len(a) == 1:
        return (_product(a[0], b[0], c[0], target),)
    wide = carrier(target)
    old = _scaled(_rounded(c, wide), beta, "chain" if wide.is_float else "mul")
    if alpha.is_known(1):
        return _rounded(_products(a, b, old, wide), target)
    new = _scaled(_products(a, b, None, wide), alpha, "mul")
    return _rounded(tuple(REGISTRY["add"](x, y) for x, y in zip(old, new, strict=True)), target)


def _rounded(parts: Leaves, dtype: DType) -> Leaves:
    return tuple(_as(p, dtype) for p in parts)


def _scaled(parts: Leaves, factor: Factor, rule: str) -> Leaves:
    """factor * parts. With the rule "chain", a factor of 0 gives 0 whatever it meets."""
    if factor.is_known(1):
        return parts
    times = REGISTRY[rule]
    if len(factor.parts) == 1:
        f = _spread(factor.parts[0], parts[0])
        return tuple(times(f, p) for p in parts)
    re, im = (_spread(f, parts[0]) for f in factor.parts)
    x, y = parts
    return REGISTRY["sub"](times(re, x), times(im, y)), REGISTRY["add"](times(re, y), times(im, x))


def _spread(factor: Any, like: Any) -> Any:
    number = like.type.dtype(factor) if isinstance(factor, (int, float)) else factor
    return REGISTRY["tile_full"](number, shape=shape_of(like))


def _products(a: Leaves, b: Leaves, c: Leaves | None, dtype: DType) -> Leaves:
    """a @ b (+ c) of real or complex tiles, in `dtype`."""
    if len(a) == 1:
        return (_product(a[0], b[0], None if c is None else c[0], dtype),)
    (ar, ai), (br, bi) = a, b
    re, im = (None, None) if c is None else c
    re = _product(ar, br, re, dtype)
    im = _product(ar, bi, im, dtype)
    return _product(REGISTRY["neg"](ai), bi, re, dtype), _product(ai, br, im, dtype)


def _product(a: Any, b: Any, c: Any, dtype: DType) -> Any:
    """a @ b (+ c) of real tiles of every rank: a 1-D operand is a row in front, a column behind."""
    sa, sb = shape_of(a), shape_of(b)
    rows = a if len(sa) > 1 else tile_reshape(a, shape=(1, *sa))
    columns = b if len(sb) > 1 else tile_reshape(b, shape=(*sb, 1))
    full = product_shape(shape_of(rows), shape_of(columns))
    if c is None:
        made = tile_matmul(rows, columns, dtype=None if dtype is dtype_of(a) else dtype)
    else:
        made = tile_matmul_add(rows, columns, _shaped(c, full))
    return _shaped(made, product_shape(sa, sb))


def _shaped(t: Any, shape: Sequence[int]) -> Any:
    return t if shape_of(t) == shape else tile_reshape(t, shape=tuple(shape))


PUBLIC = {"tile_matmul": matmul}
