"""Making tiles: filled with one value, with a sequence, by a function of the indices, or from one lane's value.

What has a composite element type is made leaf by leaf. Does not read arrays and does not draw random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, map_parts, of_leaves
from tilegrad.config import config
from tilegrad.diagnostics import KernelIndexError, ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import CompositeType, GridType, QuaternionType, TransformType, as_element_type
from tilegrad.emit import Emitter, Index, Reg
from tilegrad.ir.types import ScalarType, TileType, Type, is_varying
from tilegrad.op import (
    REGISTRY,
    Sample,
    Scalar,
    Tile,
    adjoint,
    constant,
    describe,
    infer,
    lower,
    op,
    samples,
    spelled,
    unwrap,
)
from tilegrad.ops.debug import check
from tilegrad.ops.lanes import tile_from_lanes
from tilegrad.ops.shapes import is_int, require_dtype, require_indices, require_shape, require_storage


@op()
def tile_full(value: Scalar, *, shape: tuple[int, ...]) -> Tile:
    """A tile with every element equal to `value`; see `full` for how it is called.

    Gradient: the sum of the cotangent flows to `value`.
    """
    return np.full(shape, value, dtype=np.asarray(value).dtype)


@infer(tile_full)
def _tile_full_infer(value: ScalarType, *, shape: tuple[int, ...]) -> Type:
    if value.varying:
        raise TypeMismatch(
            "tile_full: the value differs between the lanes of the block",
            help="tile(x) makes a tile with one element per lane",
        )
    return TileType(value.dtype, shape)


@adjoint(tile_full)
def _tile_full_adjoint(ct: Any, out: Any, value: Any, *, shape: tuple[int, ...]) -> Any:
    total = REGISTRY["tile_sum"](ct, axes=tuple(range(len(shape))))
    return (REGISTRY["tile_extract"](total, 0),)


@lower(tile_full)
def _tile_full_lower(e: Emitter, at: Index, value: Reg, *, shape: tuple[int, ...]) -> Reg:
    return value


@samples(tile_full)
def _tile_full_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.SCALARS:
        yield Sample((d(1),), {"shape": (3, 5)})
    yield Sample((dt.float64(0.7),), {"shape": (2, 1, 3, 1, 2, 1, 1, 4)})
    yield Sample((dt.float32(-2.5),), {"shape": (1,)})


def full(shape: Any, value: Any, dtype: Any = None, storage: str = "register") -> Any:
    """A tile with every element equal to `value`.

    Args:
        shape: extents, 1 to 8 positive compile-time ints (an int for a 1-D tile).
        value: a number, vector, matrix, ... that is the same for the whole block; it may be known only at run time.
        dtype: element type; that of `value` if not given. A number is converted; a number for a vector or matrix type
            fills all its parts.
        storage: a hint, "register" or "shared"; it never changes a result.

    Raises: ShapeMismatch for an extent that is not a positive compile-time int; TypeMismatch if the value differs
        between lanes, or is of another composite type than `dtype`.
    Gradient: the sum of the cotangent flows to `value`.

    Example:
        >>> import tilegrad as tg
        >>> @tg.kernel
        ... def fill(out: tg.array1d[float]):
        ...     tg.tile_store(out, tg.tile_full(shape=4, value=2.5))
        >>> out = tg.zeros(4)
        >>> tg.launch_tiled(fill, dim=1, inputs=[out])
        >>> out.numpy().tolist()
        [2.5, 2.5, 2.5, 2.5]
    """
    require_storage("tile_full", storage)
    extents = require_shape("tile_full", shape)
    kind = None if dtype is None else _element("tile_full", dtype)
    if isinstance(value, Composite):
        if kind not in (None, value.kind):
            raise TypeMismatch(f"tile_full: the value is {value.kind}, dtype is {kind}", help=f"write {kind}(...)")
        return map_parts(lambda leaf: tile_full(leaf, shape=extents), value)
    if kind is None:
        return tile_full(_number("tile_full", value), shape=extents)
    return _each_leaf("tile_full", kind, lambda d: tile_full(_as(value, d), shape=extents))


def _number(what: str, value: Any) -> Any:
    """A literal or a run-time scalar."""
    t = getattr(unwrap(value), "type", None)
    if not isinstance(t, ScalarType) and not isinstance(value, (bool, int, float, np.generic)):
        found = describe(t) if t is not None else repr(value)
        raise TypeMismatch(f"{what}: the value must be a number, it is {found}")
    return value


def _as(value: Any, dtype: DType) -> Any:
    """A literal, or a cast of a run-time scalar."""
    v = unwrap(_number("tile_full", value))
    if not isinstance(getattr(v, "type", None), ScalarType):
        if isinstance(v, float) and dtype.is_int and not v.is_integer():
            raise TypeMismatch(f"tile_full: {v!r} is not a value of {dtype}", help=f"write {dtype}({v!r})")
        return constant(v, dtype)
    return v if v.type.dtype is dtype else REGISTRY["astype"](v, dtype=dtype)


def _element(what: str, dtype: Any) -> DType | CompositeType:
    """The element type that an argument stands for."""
    found = as_element_type(dtype)
    return found if isinstance(found, CompositeType) else require_dtype(what, dtype)


def _each_leaf(what: str, kind: DType | CompositeType, make: Callable[[DType], Any]) -> Any:
    """A tile of `kind` from a tile of each of its scalars."""
    if isinstance(kind, DType):
        return make(kind)
    if not all(isinstance(d, DType) for d in kind.scalars):
        raise TypeMismatch(f"{what}: a {kind} has array members, so there are no tiles of it")
    return of_leaves(kind, iter([make(d) for d in kind.scalars]))


def zeros(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile of zeros, of any element type. See `tile_full` for the arguments; the dtype is float32 unless given.

    Gradient: none, there are no operands.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_zeros(shape=2, dtype=float))
        >>> y = np.ones(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [0.0, 0.0, 1.0]
    """
    return _filled("tile_zeros", shape, lambda d: 0, dtype, storage)


def ones(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile of ones. See `tile_full` for the arguments; the dtype is float32 unless given.

    In a vector or matrix every part is 1; a quaternion is (1, 0, 0, 0), as in Warp. A struct or a transform has no one.

    Gradient: none, there are no operands.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_ones(shape=2, dtype=float))
        >>> y = np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [1.0, 1.0, 0.0]
    """
    kind = _element("tile_ones", dtype)
    if isinstance(kind, CompositeType) and (not isinstance(kind, GridType) or isinstance(kind, TransformType)):
        raise TypeMismatch(
            f"tile_ones: it is not clear what a {kind} of ones is", help="write tile_full(shape, value=...)"
        )
    result = _filled("tile_ones", shape, lambda d: 1, kind, storage)
    if isinstance(kind, QuaternionType):
        nothing = tile_full(constant(0, kind.dtype), shape=require_shape("tile_ones", shape))
        return result.rebuilt((result[0], nothing, nothing, nothing))
    return result


def empty(shape: Any, dtype: Any = float, storage: str = "register") -> Any:
    """A tile to be overwritten. Its elements are zeros, so that no result depends on what memory held before.

    With `tilegrad.config.debug` (TILEGRAD_DEBUG=1) they are NaN, and in integers the byte 0xCC repeated, so that an
    element that is read before it is written shows.

    Gradient: none, there are no operands.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     t = tg.tile_empty(shape=2, dtype=float)
        ...     t[0] = 3.0
        ...     tg.tile_store(y, t)
        >>> y = np.ones(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [3.0, 0.0]
    """
    return _filled("tile_empty", shape, _poison if config.debug else lambda d: 0, dtype, storage)


def _poison(dtype: DType) -> Any:
    """A value that nobody means: NaN, or the byte 0xCC repeated."""
    return math.nan if dtype.is_float else True if dtype.kind == "b" else int.from_bytes(b"\xcc" * dtype.size)


def _filled(what: str, shape: Any, value: Callable[[DType], Any], dtype: Any, storage: str) -> Any:
    require_storage(what, storage)
    extents = require_shape(what, shape)
    return _each_leaf(what, _element(what, dtype), lambda d: tile_full(constant(value(d), d), shape=extents))


@op()
def tile_arange(start: Scalar, step: Scalar, *, size: int) -> Tile:
    """The 1-D tile start, start + step, start + 2*step, ... with `size` elements.

    Called as `tile_arange(stop)`, `tile_arange(start, stop)` or `tile_arange(start, stop, step)` with compile-time
    numbers; `dtype=float` unless given. The number of elements is ceil((stop - start) / step). For a first element or
    a step that is known only at run time write `tile_arange(n) * step + start`.

    Raises: ShapeMismatch for an empty range, a step of 0 or a run-time number; TypeMismatch if an element is no value
        of the dtype.
    Gradient: the cotangent's sum flows to start, its sum weighted with 0, 1, 2, ... to step.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_arange(1, 10, 3))
        >>> y = np.zeros(3, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> y.tolist()
        [1.0, 4.0, 7.0]
    """
    dtype = np.asarray(start).dtype
    steps = np.arange(size).astype(dtype)
    return (np.asarray(start) + steps * np.asarray(step)).astype(dtype)


@infer(tile_arange)
def _tile_arange_infer(start: ScalarType, step: ScalarType, *, size: int) -> Type:
    if start.dtype is not step.dtype or start.dtype.kind == "b":
        raise TypeMismatch(f"tile_arange: start and step must have one numeric type, not {start} and {step}")
    return TileType(start.dtype, (size,))


@adjoint(tile_arange)
def _tile_arange_adjoint(ct: Any, out: Any, start: Any, step: Any, *, size: int) -> Any:
    total, extract = REGISTRY["tile_sum"], REGISTRY["tile_extract"]
    zero, one = REGISTRY["sub"](start, start), REGISTRY["add"](REGISTRY["sub"](start, start), 1)
    weighted = REGISTRY["mul"](ct, tile_arange(zero, one, size=size))
    return extract(total(ct, axes=(0,)), 0), extract(total(weighted, axes=(0,)), 0)


@lower(tile_arange)
def _tile_arange_lower(e: Emitter, at: Index, start: Reg, step: Reg, *, size: int) -> Reg:
    i = e.lanes_of(at[0])
    if not start.dtype.is_half:
        return e.add(start, e.mul(e.cast(i, start.dtype), step))
    wide = [e.cast(r, dt.float32) for r in (start, step)]
    half = e.cast(e.cast(e.cast(i, start.dtype), dt.float32), dt.float32)
    product = e.cast(e.cast(e.mul(half, wide[1]), start.dtype), dt.float32)
    return e.cast(e.add(wide[0], product), start.dtype)


@samples(tile_arange)
def _tile_arange_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for d in dt.NUMERIC:
        yield Sample((d(1), d(2)), {"size": 7})
    yield Sample((dt.float64(0.25), dt.float64(-1.5)), {"size": 33})


@spelled(tile_arange)
def _tile_arange_call(
    *args: Any,
    start: Any = None,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    storage: str = "register",
) -> Any:
    require_storage("tile_arange", storage)
    start, stop, step = map(_compile_time, _range_of(args, {"start": start, "stop": stop, "step": step}))
    d = require_dtype("tile_arange", float if dtype is None else dtype)
    if step == 0:
        raise ShapeMismatch("tile_arange: step is zero")
    size = math.ceil((stop - start) / step)
    if size <= 0:
        raise ShapeMismatch(f"tile_arange({start}, {stop}, {step}) is empty; a tile has at least one element")
    for element in (start, start + (size - 1) * step, *((step,) if size > 1 else ())):
        whole = int(element) if isinstance(element, float) and element.is_integer() else element
        if d.kind == "b" or not (dt.literal_fits(whole, d) or (d.kind == "u" and element is step)):
            raise TypeMismatch(f"tile_arange: {element} is not a value of {d}", help="give another dtype=")
    return tile_arange(constant(start, d), constant(step if size > 1 else 0, d), size=size)


def _range_of(args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, Any, Any]:
    """start, stop and step as Python's range takes them; by keyword too."""
    names = ("stop",) if len(args) == 1 and named["stop"] is None else ("start", "stop", "step")
    given = dict(zip(names, args, strict=False))
    named = {name: x for name, x in named.items() if x is not None}
    if len(args) > 3 or given.keys() & named.keys() or "stop" not in given | named:
        raise TypeMismatch(
            "tile_arange takes stop, or start and stop, or start, stop and step",
            help="write tile_arange(stop), tile_arange(start, stop) or tile_arange(start, stop, step), with dtype=",
        )
    full = {"start": 0, "step": 1} | given | named
    return full["start"], full["stop"], full["step"]


def _compile_time(x: Any) -> int | float:
    if isinstance(x, np.generic) and not isinstance(x, np.bool_):
        x = x.item()
    if is_int(x):
        return int(x)
    if isinstance(x, float):
        return float(x)
    found = describe(unwrap(x).type) if hasattr(unwrap(x), "type") else repr(x)
    raise ShapeMismatch(
        f"tile_arange: start, stop and step must be compile-time numbers, one is {found}",
        help="for a run-time start or step write tile_arange(n) * step + start",
    )


# --- indices, and functions of them -----------------------------------------------------------------------------------


@op(no_gradient="the result is an index")
def tile_iota(*, shape: tuple[int, ...], weights: tuple[int, ...]) -> Tile:
    """The int32 tile of weighted sums of indices: element (i, j, ...) is weights[0] * i + weights[1] * j + ..."""
    grids = np.indices(shape, dtype=np.int32, sparse=True)
    total = np.zeros(shape, np.int32)
    for grid, weight in zip(grids, weights, strict=True):
        total += grid * np.int32(weight)
    return total


@infer(tile_iota)
def _tile_iota_infer(*, shape: tuple[int, ...], weights: tuple[int, ...]) -> Type:
    if sum((n - 1) * abs(w) for n, w in zip(shape, weights, strict=True)) >= 2**31:
        raise ShapeMismatch(f"a tile {shape} has more elements than an int32 can count")
    return TileType(dt.int32, shape)


@lower(tile_iota)
def _tile_iota_lower(e: Emitter, at: Index, *, shape: tuple[int, ...], weights: tuple[int, ...]) -> Reg:
    total = e.const(0, dt.int32)
    for c, weight in zip(at, weights, strict=True):
        if weight:
            i = e.cast(e.lanes_of(c), dt.int32)
            total = e.add(total, i if weight == 1 else e.mul(i, e.const(weight, dt.int32)))
    return total


@samples(tile_iota)
def _tile_iota_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((), {"shape": (37,), "weights": (1,)})
    yield Sample((), {"shape": (3, 19), "weights": (0, 1)})
    yield Sample((), {"shape": (3, 19), "weights": (1, 0)})
    yield Sample((), {"shape": (2, 1, 3, 1, 2, 1, 2, 5), "weights": (60, 60, 20, 20, 10, 10, 5, 1)})


def positions(shape: tuple[int, ...]) -> Any:
    """The row-major position of every element, int32."""
    return tile_iota(shape=shape, weights=tuple(math.prod(shape[k + 1 :]) for k in range(len(shape))))


def fromfunction(f: Any, shape: Any, dtype: Any = None, storage: str = "register") -> Any:
    """A tile whose elements are a function of their indices, as NumPy's `fromfunction`.

    Args:
        f: a @func or lambda of one int32 index for each axis; it is computed element by element, and may use captured
            values of the kernel that are the same for the whole block.
        shape: extents, 1 to 8 positive compile-time ints (an int for a 1-D tile).
        dtype: element type; that of what `f` returns if not given.
        storage: a hint, "register" or "shared"; it never changes a result.

    Raises: ShapeMismatch for an extent that is not a positive compile-time int; TypeMismatch if `f` takes another
        number of indices, or uses a value that differs between lanes.
    Gradient: each element's cotangent flows through `f` to the values that it captures.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(scale: float, y: tg.array2d[float]):
        ...     tg.tile_store(y, tg.tile_fromfunction(lambda i, j: scale * float(10 * i + j), shape=(2, 3)))
        >>> y = np.zeros((2, 3), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[0.5, y])
        >>> y.tolist()
        [[0.0, 0.5, 1.0], [5.0, 5.5, 6.0]]
    """
    require_storage("tile_fromfunction", storage)
    extents = require_shape("tile_fromfunction", shape)
    if not callable(f):
        raise TypeMismatch(
            f"tile_fromfunction: `f` must be a function of {len(extents)} indices, it is {f!r}",
            help="write tile_fromfunction(lambda i, j: ..., shape=(m, n))",
        )
    axes = [tuple(int(k == axis) for k in range(len(extents))) for axis in range(len(extents))]
    made = f(*(tile_iota(shape=extents, weights=w) for w in axes))
    return made if dtype is None else _converted(made, _element("tile_fromfunction", dtype))


def _converted(x: Any, kind: DType | CompositeType) -> Any:
    """A tile as one of another element type."""
    mine = x.kind if isinstance(x, Composite) else unwrap(x).type.dtype
    if mine is kind:
        return x
    if isinstance(kind, DType) and isinstance(mine, DType):
        return REGISTRY["astype"](x, dtype=kind)
    raise TypeMismatch(f"tile_fromfunction: the function returns {mine}, dtype is {kind}")


def from_thread(shape: Any, value: Any, thread_idx: Any, storage: str = "register", *, block_dim: int) -> Any:
    """A tile filled with the value that one lane of the block has.

    Args:
        shape: extents, 1 to 8 positive compile-time ints (an int for a 1-D tile).
        value: a number, vector, ... of each lane.
        thread_idx: the lane, from 0 to block_dim() - 1; the same for the whole block, known at compile time or not.
            A lane that is absent (outside of the launch's grid) has 0.
        storage: a hint, "register" or "shared"; it never changes a result.

    Raises: an index error, at the launch if need be, for a lane that the block does not have; TypeMismatch if
        `thread_idx` differs between lanes.
    Gradient: the sum of the cotangent flows to the value of that lane, 0 to the others.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     block, lane = tg.tid()
        ...     tg.tile_store(y, tg.tile_from_thread(shape=2, value=x[lane], thread_idx=3))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros(2, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y], block_dim=4)
        >>> y.tolist()
        [3.0, 3.0]
    """
    require_storage("tile_from_thread", storage)
    extents = require_shape("tile_from_thread", shape)
    lane = _lane("tile_from_thread", thread_idx, block_dim)

    def one(leaf: Any) -> Any:
        everyone = tile_from_lanes(_number("tile_from_thread", leaf), block_dim=block_dim)
        return tile_full(REGISTRY["tile_extract"](everyone, lane), shape=extents)

    return map_parts(one, value) if isinstance(value, Composite) else one(value)


def _lane(what: str, lane: Any, block_dim: int) -> Any:
    """The number of a lane, checked against the block."""
    message = what + ": thread_idx {} is not a lane of the block, which has {}"
    lane = unwrap(lane)
    if is_int(lane):
        if not 0 <= lane < block_dim:
            raise KernelIndexError(message.format(lane, block_dim))
        return int(lane)
    if not isinstance(getattr(lane, "type", None), ScalarType):
        raise TypeMismatch(f"{what}: thread_idx must be an integer, it is {lane!r}")
    require_indices(what, [lane.type])
    if is_varying(lane.type):
        raise TypeMismatch(f"{what}: thread_idx differs between the lanes; it must be the same for the whole block")
    ge, lt, both = REGISTRY["ge"], REGISTRY["lt"], REGISTRY["bit_and"]
    wide = REGISTRY["astype"](lane, dtype=dt.uint64 if lane.type.dtype is dt.uint64 else dt.int64)
    inside = both(ge(wide, 0), lt(wide, block_dim))
    check(inside, wide, block_dim, kind="index", message=message)
    return REGISTRY["where"](inside, wide, wide.type.dtype(0))


PUBLIC = {
    "tile_full": full,
    "tile_zeros": zeros,
    "tile_ones": ones,
    "tile_empty": empty,
    "tile_arange": tile_arange,
    "tile_fromfunction": fromfunction,
    "tile_from_thread": from_thread,
}
