"""Products of matrices held in tiles.

float32 products are full float32; 16-bit floats are multiplied and summed in float32 and rounded once; integers wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.emit import Buffer, Emitter
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, infer, lower, op, samples, spelled, unwrap
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import tile_reshape, tile_transpose


def _product_type(a: TileType, b: TileType) -> TileType:
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeMismatch(f"tile_matmul: both operands must have 2 dimensions, they are {a.shape} and {b.shape}")
    if a.dtype is not b.dtype:
        raise TypeMismatch(
            f"tile_matmul: the operands have different types: {a.dtype} and {b.dtype}",
            help=f"convert one, for example tile_astype(b, {a.dtype})",
        )
    if a.dtype.kind == "b":
        raise TypeMismatch("tile_matmul is not defined for bool", help="convert with tile_astype(t, tilegrad.int32)")
    if a.shape[1] != b.shape[0]:
        raise ShapeMismatch(
            f"tile_matmul: inner sizes differ: `a` is {a.dtype} tile {a.shape}, `b` is {b.dtype} tile {b.shape}",
            label=f"a.shape[1] = {a.shape[1]}, b.shape[0] = {b.shape[0]}",
            help="transpose one operand, or check the shapes given to tile_load",
        )
    return TileType(a.dtype, (a.shape[0], b.shape[1]))


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if dt.of_array(x).is_half else x


@op(cls="block", cooperative=True)
def tile_matmul(a: Tile, b: Tile) -> Tile:
    """The matrix product a @ b.

    Written `a @ b`, `tile_matmul(a, b, alpha=1.0)`, or `tile_matmul(a, b, out, alpha=1.0, beta=1.0)`, which sets
    out = alpha * a @ b + beta * out in place and never reads `out` when beta is 0.

    Args:
        a: tile (m, k), or (k,) for a row.
        b: tile (k, n), or (k,) for a column; same dtype as a.

    Returns: a tile (m, n) of the same dtype (without the axis that a 1-D operand lacks).
    Raises: ShapeMismatch if the inner sizes differ, TypeMismatch if the dtypes do.
    Gradient: ct @ b.T for a and a.T @ ct for b (any text on matrix calculus, for example Giles 2008, section 2.1).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array2d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=(2, 2))
        ...     tg.tile_store(y, t @ t)
        >>> x, y = np.arange(4, dtype=np.float32).reshape(2, 2), np.zeros((2, 2), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[2.0, 3.0], [6.0, 11.0]]
    """
    return np.matmul(_wide(a), _wide(b)).astype(a.dtype)


@infer(tile_matmul)
def _tile_matmul_infer(a: TileType, b: TileType) -> Type:
    return _product_type(a, b)


@adjoint(tile_matmul)
def _tile_matmul_adjoint(ct: Any, out: Any, a: Any, b: Any) -> Any:
    return tile_matmul(ct, tile_transpose(b, axes=(1, 0))), tile_matmul(tile_transpose(a, axes=(1, 0)), ct)


@lower(tile_matmul)
def _tile_matmul_lower(e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer) -> None:
    e.matmul(outs[0], a, b, None, options={})


@samples(tile_matmul)
def _tile_matmul_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample(tuple(rng.integers(0, 5, s).astype(d.np) for s in ((5, 7), (7, 3))))
    for m, k, n in ((1, 1, 1), (16, 24, 8), (17, 33, 35), (2, 3, 64)):
        yield Sample((rng.standard_normal((m, k)), rng.standard_normal((k, n))))


@op(cls="block", cooperative=True)
def tile_matmul_add(a: Tile, b: Tile, c: Tile) -> Tile:
    """a @ b + c: what `c += a @ b` leaves in c, in one step.

    Gradient: that of the product for a and b, the cotangent itself for c.
    """
    return (np.matmul(_wide(a), _wide(b)) + _wide(c)).astype(c.dtype)


@infer(tile_matmul_add)
def _tile_matmul_add_infer(a: TileType, b: TileType, c: TileType) -> Type:
    t = _product_type(a, b)
    if c != t:
        raise ShapeMismatch(f"tile_matmul: the product is a {t.dtype} tile {t.shape}, `out` a {c.dtype} tile {c.shape}")
    return t


@adjoint(tile_matmul_add)
def _tile_matmul_add_adjoint(ct: Any, out: Any, a: Any, b: Any, c: Any) -> Any:
    return (*_tile_matmul_adjoint(ct, out, a, b), ct)


@lower(tile_matmul_add)
def _tile_matmul_add_lower(e: Emitter, outs: list[Buffer], a: Buffer, b: Buffer, c: Buffer) -> None:
    e.matmul(outs[0], a, b, c, options={})


@samples(tile_matmul_add)
def _tile_matmul_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample(tuple(rng.integers(0, 5, s).astype(d.np) for s in ((5, 7), (7, 3), (5, 3))))
    yield Sample(tuple(rng.standard_normal(s) for s in ((17, 33), (33, 35), (17, 35))))


@spelled(tile_matmul)
def _tile_matmul_call(
    a: Any, b: Any, out: Any = None, alpha: Any = 1.0, beta: Any = 1.0, precision: str = "default"
) -> Any:
    ta, tb = require_tile("tile_matmul", "a", a), require_tile("tile_matmul", "b", b)
    if isinstance(out, (int, float)) or isinstance(getattr(out, "type", None), ScalarType):
        out, alpha, precision = None, out, alpha if isinstance(alpha, str) else precision
    if precision not in ("default", "tf32") or (precision == "tf32" and ta.dtype is not dt.float32):
        raise TypeMismatch(f'tile_matmul: precision must be "default", or "tf32" for float32; it is {precision!r}')
    if out is None:
        product = _scaled(_any_rank(unwrap(a), unwrap(b), ta, tb), alpha)
        return product
    require_tile("tile_matmul", "out", out)
    product = _scaled(tile_matmul(unwrap(a), unwrap(b)), alpha)
    _check_out(unwrap(product).type, unwrap(out).type)
    if not _is_literal(beta, 0):
        product = REGISTRY["add"](_scaled(unwrap(out), beta), product)
    out.assign(product)
    return None


def _check_out(product: TileType, out: TileType) -> None:
    if product != out:
        raise ShapeMismatch(
            f"tile_matmul: the product is a {product.dtype} tile {product.shape}, "
            f"`out` is a {out.dtype} tile {out.shape}"
        )


def _is_literal(x: Any, value: float) -> bool:
    return isinstance(x, (int, float)) and x == value


def _scaled(t: Any, factor: Any) -> Any:
    return t if _is_literal(factor, 1) else REGISTRY["mul"](t, _integral(factor, t))


def _integral(factor: Any, t: Any) -> Any:
    """1.0 written for an integer tile means 1."""
    if isinstance(factor, float) and unwrap(t).type.dtype.is_int and factor.is_integer():
        return int(factor)
    return factor


def _any_rank(a: Any, b: Any, ta: TileType, tb: TileType) -> Any:
    """NumPy's rule for 1-D operands: a row in front, a column behind."""
    rows = a if ta.ndim > 1 else tile_reshape(a, shape=(1, *ta.shape))
    columns = b if tb.ndim > 1 else tile_reshape(b, shape=(*tb.shape, 1))
    product = tile_matmul(rows, columns)
    if ta.ndim > 1 and tb.ndim > 1:
        return product
    shape = (*(ta.shape[:-1]), *(tb.shape[1:])) or (1,)
    return tile_reshape(product, shape=shape)


PUBLIC = {"tile_matmul": tile_matmul}
