"""The lanes of a block: which they are, and going from one value per lane to a tile and back.

The last axis of a tile made of lanes is `block_dim` long on every device. Lanes past the end of a `launch` grid are
absent: lane code does not run for them, and in a tile their elements are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, map_parts
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import GridType, matrix, vector
from tilegrad.emit import Emitter, Index, Reg, Source
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import REGISTRY, Sample, Scalar, Tile, adjoint, infer, lower, op, samples, spelled, unwrap
from tilegrad.ops.declared import Declared, declare_tile
from tilegrad.ops.indexing import tile_insert, tile_slice
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import tile_reshape
from tilegrad.printing import Line


@dataclass
class LaunchContext:
    """Where the interpreter is: the launch's grid and the block in hand."""

    grid: tuple[int, ...]
    block: int
    block_dim: int
    tiled: bool
    #: what the block has printed so far
    printed: list[Line] = field(default_factory=list)

    @property
    def total(self) -> int:
        return int(np.prod(self.grid, dtype=np.int64))

    @property
    def lanes(self) -> int:
        """Lanes of this block that are inside the grid."""
        return self.block_dim if self.tiled else min(self.block_dim, self.total - self.block * self.block_dim)


#: where the interpreter is; ops that ask for it run only inside of the interpreter
context: ContextVar[LaunchContext] = ContextVar("context")

_INDEX = "the result is an index"


@op(cls="scalar", no_gradient=_INDEX)
def lane_id() -> Scalar:
    """The number of the lane in its block, int32."""
    return np.arange(context.get().lanes, dtype=np.int32)


@infer(lane_id)
def _lane_id_infer() -> Type:
    return ScalarType(dt.int32, varying=True)


@op(cls="scalar", no_gradient=_INDEX)
def lane_count() -> Scalar:
    """How many lanes of the block are inside the grid, int32."""
    return np.int32(context.get().lanes)


@infer(lane_count)
def _lane_count_infer() -> Type:
    return ScalarType(dt.int32)


@op(cls="scalar", no_gradient=_INDEX)
def block_id(*, axis: int = 0, wide: bool = False) -> Scalar:
    """The block's coordinate in the grid of `launch_tiled`; in a `launch`, the number of the block.

    int32, or int64 if `wide`: where an extent of the grid does not fit into int32.
    """
    here = context.get()
    number = np.unravel_index(here.block, here.grid)[axis] if here.tiled else here.block
    return place_dtype(wide).np.type(number)


def place_dtype(wide: bool) -> DType:
    """The dtype of a coordinate in the grid."""
    return dt.int64 if wide else dt.int32


@infer(block_id)
def _block_id_infer(*, axis: int = 0, wide: bool = False) -> Type:
    return ScalarType(place_dtype(wide))


@op(cls="scalar", no_gradient=_INDEX)
def thread_id(*, axis: int = 0, wide: bool = False) -> Scalar:
    """The lane's coordinate in the grid of `launch`, int32 (int64 if `wide`, see block_id)."""
    here = context.get()
    linear = here.block * here.block_dim + np.arange(here.lanes)
    return np.asarray(np.unravel_index(linear, here.grid)[axis], dtype=place_dtype(wide).np)


@infer(thread_id)
def _thread_id_infer(*, axis: int = 0, wide: bool = False) -> Type:
    return ScalarType(place_dtype(wide), varying=True)


@lower(lane_id)
@lower(lane_count)
@lower(block_id)
@lower(thread_id)
def _by_code_generator(e: Emitter, **attrs: Any) -> Reg:
    raise NotImplementedError("the code generator knows where the block and its lanes are")


@samples(lane_id)
@samples(lane_count)
@samples(block_id)
@samples(thread_id)
def _no_samples(rng: np.random.Generator) -> Iterator[Sample]:
    return iter(())


@op(cls="block", cooperative=True)
def tile_from_lanes(x: Scalar, *, block_dim: int) -> Tile:
    """The tile (block_dim,) with one element per lane, written `tile(x)`.

    Gradient: each lane gets the cotangent of its element.
    """
    result = np.zeros(block_dim, np.asarray(x).dtype)
    lanes = context.get().lanes
    result[:lanes] = x
    return result


@infer(tile_from_lanes)
def _tile_from_lanes_infer(x: ScalarType, *, block_dim: int) -> Type:
    return TileType(x.dtype, (block_dim,))


@adjoint(tile_from_lanes)
def _tile_from_lanes_adjoint(ct: Any, out: Any, x: Any, *, block_dim: int) -> Any:
    return (untile(ct),)


@lower(tile_from_lanes)
def _tile_from_lanes_lower(e: Emitter, *args: Any, **attrs: Any) -> None:
    raise NotImplementedError("a lane loop stores the values (see codegen.nests)")


samples(tile_from_lanes)(_no_samples)


@op(cls="point", no_gradient="the result is a bool")
def lanes_present(count: Scalar, *, block_dim: int) -> Tile:
    """The bool tile (block_dim,) that tells which lanes are inside the grid."""
    return np.arange(block_dim) < count


@infer(lanes_present)
def _lanes_present_infer(count: ScalarType, *, block_dim: int) -> Type:
    return TileType(dt.bool_, (block_dim,))


@lower(lanes_present)
def _lanes_present_lower(e: Emitter, at: Index, count: Reg, *, block_dim: int) -> Reg:
    return e.compare("lt", e.lanes_of(at[0]), e.i64(count))


@samples(lanes_present)
def _lanes_present_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((np.int32(5),), {"block_dim": 9})


@spelled(lanes_present)
def _lanes_present_call(*, block_dim: int) -> Any:
    return lanes_present(lane_count(), block_dim=block_dim)


@op(cls="point", cooperative=True)
def untile(t: Tile) -> Scalar:
    """The value of each lane of a tile whose last axis is the lanes: the inverse of `tile(x)`.

    A tile (block_dim,) gives each lane its element, a tile (n, block_dim) a vector of length n, a tile
    (rows, columns, block_dim) a matrix; a tile (block_dim,) of vectors, structs and the like its element.

    Gradient: the tile of the lanes' cotangents.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[i] = tg.untile(tg.tile(x[i]) * 2.0)
        >>> x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
        >>> tg.launch(example, dim=3, inputs=[x, y])
        >>> y.tolist()
        [0.0, 2.0, 4.0]
    """
    return np.asarray(t)[: context.get().lanes]


@infer(untile)
def _untile_infer(t: TileType) -> Type:
    if t.ndim != 1:
        raise ShapeMismatch(f"untile: the tile must have 1 dimension, it is {t.shape}")
    return ScalarType(t.dtype, varying=True)


@adjoint(untile)
def _untile_adjoint(ct: Any, out: Any, t: Any) -> Any:
    (size,) = t.type.shape if hasattr(t, "type") else np.shape(t)
    return (tile_from_lanes(ct, block_dim=size),)


@lower(untile)
def _untile_lower(e: Emitter, at: Index, t: Source) -> Reg:
    return t.at(at)


samples(untile)(_no_samples)


def tile(x: Any, preserve_type: bool = False, *, block_dim: int) -> Any:
    """One element per lane, as a tile whose last axis is the lanes, `block_dim` long.

    Args:
        x: the value of each lane. A scalar gives a tile (block_dim,); a vector of length n (or a quaternion) gives
            (n, block_dim), a matrix (rows, columns, block_dim), of their scalars.
        preserve_type: a vector, matrix, quaternion, transform or struct gives a tile (block_dim,) of its own type.

    Gradient: each lane gets the cotangent of its own elements; lanes outside of the grid have zeros and get nothing.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     total = tg.tile_sum(tg.tile(x[i]))
        ...     y[i] = total[0]
        >>> x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
        >>> tg.launch(example, dim=3, inputs=[x, y])
        >>> y.tolist()
        [3.0, 3.0, 3.0]
    """
    if isinstance(getattr(x, "type", None), TileType):
        raise TypeMismatch("tile(x) takes a value of each lane; this is a tile already")
    if not isinstance(x, Composite):
        return tile_from_lanes(x, block_dim=block_dim)
    parts = map_parts(lambda part: tile(part, block_dim=block_dim), x)
    if preserve_type:
        return parts
    if not isinstance(x.kind, GridType):
        raise TypeMismatch(f"tile(x) cannot spread the members of a {x.kind}", help="write preserve_type=True")
    rows = zeros_like_parts(parts, (len(parts), block_dim))
    for k, part in enumerate(parts):
        row = tile_reshape(part, shape=(1, block_dim))
        rows = tile_insert(rows, row, k, 0, steps=(1, 1))
    return tile_reshape(rows, shape=(*x.kind.shape, block_dim))


def zeros_like_parts(parts: Composite, shape: tuple[int, ...]) -> Any:
    """A tile of zeros of the parts' dtype."""
    return REGISTRY["tile_full"](parts.grid.dtype(0), shape=shape)


@spelled(untile)
def _untile_call(a: Any, *, block_dim: int) -> Any:
    if isinstance(a, Composite):
        return map_parts(lambda part: _untile_call(part, block_dim=block_dim), a)
    t = require_tile("untile", "a", a)
    shape = t.shape
    if shape[-1] != block_dim:
        raise ShapeMismatch(
            f"untile: the tile has {shape[-1]} elements{' along its last axis' * (len(shape) > 1)}, "
            f"the block {block_dim} lanes",
            help="a tile with one element for each lane is block_dim() long; launch with that block_dim, or read t[i]",
        )
    if len(shape) == 1:
        return untile(a)
    if len(shape) > 3:
        raise ShapeMismatch(
            f"untile: the tile has {len(shape)} dimensions {shape}",
            help="1 give a scalar to each lane, 2 a vector, 3 a matrix",
        )
    kind = vector(shape[0], t.dtype) if len(shape) == 2 else matrix(shape[:2], t.dtype)
    rows = tile_reshape(unwrap(a), shape=(kind.count, block_dim))
    parts = [tile_slice(rows, k, 0, sizes=(1, block_dim), steps=(1, 1)) for k in range(kind.count)]
    return Composite(kind, [untile(tile_reshape(part, shape=(block_dim,))) for part in parts])


PUBLIC = {"tile": Declared(tile, declare_tile), "untile": untile}
