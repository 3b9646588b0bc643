"""Stacks that the lanes of a block share: push, pop, count and clear.

A stack is a tile (capacity,) with the number of its elements (see `TileStack`). All lanes push or pop together, in the
order of the lanes, so slots and values are the same on every device. Popped values carry their gradient to what was
pushed. Does not grow: what does not fit is dropped, and its lane is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, kind_of, leaves, of_leaves
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import CompositeType, as_element_type
from tilegrad.emit import Buffer, Emitter, Index, Reg
from tilegrad.ir.types import ScalarType, TileType, Type
from tilegrad.op import REGISTRY, Sample, Tile, adjoint, constant, describe, infer, lower, op, samples, unwrap
from tilegrad.ops.construction import tile_full
from tilegrad.ops.declared import Declared, TileStack, declare_stack
from tilegrad.ops.indexing import tile_extract, zeros_like
from tilegrad.ops.lanes import tile_from_lanes, untile
from tilegrad.ops.shapes import is_int


@op(cls="block", cooperative=True, no_gradient="the results are indices")
def tile_stack_slots(wanted: Tile, count: Tile, *, capacity: int, push: bool) -> tuple[Tile, Tile]:
    """The slot that each lane pushes to or pops from, -1 for none, and the number of elements afterwards.

    The first lane that wants one gets the first free slot, or the top element, the next one the next.
    """
    lanes, size = np.asarray(wanted, bool), int(count[0])
    rank = np.cumsum(lanes) - lanes
    slots = size + rank if push else size - 1 - rank
    granted = lanes & (slots >= 0) & (slots < capacity)
    change = int(granted.sum())
    return np.where(granted, slots, -1).astype(np.int32), np.array([size + change if push else size - change], np.int32)


@infer(tile_stack_slots)
def _tile_stack_slots_infer(wanted: TileType, count: TileType, *, capacity: int, push: bool) -> tuple[Type, ...]:
    if wanted.dtype is not dt.bool_ or wanted.ndim != 1 or count != TileType(dt.int32, (1,)):
        raise TypeMismatch(f"a stack of lanes needs a bool tile and a count, not {wanted} and {count}")
    return TileType(dt.int32, wanted.shape), count


@lower(tile_stack_slots)
def _tile_stack_slots_lower(
    e: Emitter, outs: list[Buffer], wanted: Buffer, count: Buffer, *, capacity: int, push: bool
) -> None:
    slots, after = outs
    one, none = e.const(1, dt.int32), e.const(-1, dt.int32)

    def lane(i: Reg, size: Reg) -> list[Reg]:
        at = (e.coord(i),)
        free = (
            e.compare("lt", size, e.const(capacity, dt.int32)) if push else e.compare("gt", size, e.const(0, dt.int32))
        )
        granted = e.and_(e.load(wanted, at), free)
        moved = e.add(size, one) if push else e.sub(size, one)
        e.store(slots, at, e.select(granted, size if push else moved, none))
        return [e.select(granted, moved, size)]

    first = (e.coord(0),)
    (size,) = e.loop(0, wanted.shape[0], 1, [e.load(count, first)], lane)
    e.store(after, first, size)


@samples(tile_stack_slots)
def _tile_stack_slots_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for lanes, capacity, size in ((1, 1, 0), (37, 20, 3), (37, 100, 0), (64, 10, 10), (8, 8, 5)):
        wanted = rng.integers(0, 2, lanes).astype(bool)
        for push in (True, False):
            yield Sample((wanted, np.array([size], np.int32)), {"capacity": capacity, "push": push})


def _require_slots(t: TileType, slots: TileType) -> None:
    if t.ndim != 1 or slots.ndim != 1 or slots.dtype is not dt.int32:
        raise TypeMismatch(f"a stack is a 1-D tile with slots of int32, not {t} and {slots}")


@op(cls="block", cooperative=True)
def tile_stack_place(t: Tile, values: Tile, slots: Tile) -> Tile:
    """The tile with t[slots[i]] = values[i] for every i whose slot is in the tile. The slots must be distinct.

    Gradient: the cotangent of a slot that is written goes to its value, of the others to `t`.
    """
    result = np.array(t)
    inside = (slots >= 0) & (slots < len(result))
    result[slots[inside]] = values[inside]
    return result


@infer(tile_stack_place)
def _tile_stack_place_infer(t: TileType, values: TileType, slots: TileType) -> Type:
    _require_slots(t, slots)
    if values != TileType(t.dtype, slots.shape):
        raise TypeMismatch(f"values {values} do not fit slots {slots} of a {t} stack")
    return t


@adjoint(tile_stack_place)
def _tile_stack_place_adjoint(ct: Any, out: Any, t: Any, values: Any, slots: Any) -> Any:
    return tile_stack_place(ct, zeros_like(values), slots), tile_stack_pick(ct, slots), None


@lower(tile_stack_place)
def _tile_stack_place_lower(e: Emitter, outs: list[Buffer], t: Buffer, values: Buffer, slots: Buffer) -> None:
    (out,) = outs
    e.copy(out, t)

    def lane(i: Reg) -> list[Reg]:
        at = (e.coord(i),)
        slot, inside = _slot(e, slots, at, out.shape[0])

        def write() -> list[Reg]:
            e.store(out, (e.coord(slot),), e.load(values, at))
            return []

        e.branch(inside, write, list)
        return []

    e.loop(0, slots.shape[0], 1, [], lane)


def _slot(e: Emitter, slots: Buffer, at: Index, capacity: int) -> tuple[Reg, Reg]:
    """A slot as int64, and whether it is in the stack."""
    slot = e.i64(e.load(slots, at))
    low, high = e.compare("ge", slot, e.const(0, dt.int64)), e.compare("lt", slot, e.const(capacity, dt.int64))
    return slot, e.and_(low, high)


@samples(tile_stack_place)
def _tile_stack_place_samples(rng: np.random.Generator) -> Iterator[Sample]:
    slots = np.array([3, -1, 0, 9, 4, -1, 6], np.int32)
    for d in (*dt.SCALARS, dt.float64):
        t, values = (rng.integers(0, 2, n).astype(d.np) for n in (7, 7))
        yield Sample((t, values, slots))
    yield Sample((rng.standard_normal(40), rng.standard_normal(7), slots))


@op(cls="block", cooperative=True)
def tile_stack_pick(t: Tile, slots: Tile) -> Tile:
    """t[slots[i]], and 0 where the slot is not in the tile. The slots must be distinct.

    Gradient: the cotangents at their slots in a tile of zeros.
    """
    inside = (slots >= 0) & (slots < len(t))
    return np.where(inside, t[np.where(inside, slots, 0)], np.zeros(1, np.asarray(t).dtype))


@infer(tile_stack_pick)
def _tile_stack_pick_infer(t: TileType, slots: TileType) -> Type:
    _require_slots(t, slots)
    return TileType(t.dtype, slots.shape)


@adjoint(tile_stack_pick)
def _tile_stack_pick_adjoint(ct: Any, out: Any, t: Any, slots: Any) -> Any:
    return tile_stack_place(zeros_like(t), ct, slots), None


@lower(tile_stack_pick)
def _tile_stack_pick_lower(e: Emitter, outs: list[Buffer], t: Buffer, slots: Buffer) -> None:
    (out,) = outs
    nothing = e.const(0, t.dtype)

    def lane(i: Reg) -> list[Reg]:
        at = (e.coord(i),)
        slot, inside = _slot(e, slots, at, t.shape[0])
        found = e.load(t, (e.coord(e.select(inside, slot, e.const(0, dt.int64))),))
        e.store(out, at, e.select(inside, found, nothing))
        return []

    e.loop(0, slots.shape[0], 1, [], lane)


@samples(tile_stack_pick)
def _tile_stack_pick_samples(rng: np.random.Generator) -> Iterator[Sample]:
    slots = np.array([3, -1, 0, 9, 4, -1, 6], np.int32)
    for d in dt.SCALARS:
        yield Sample((rng.integers(0, 2, 7).astype(d.np), slots))
    yield Sample((rng.standard_normal(40), slots))


# --- how users write them ---------------------------------------------------------------------------------------------


def tile_stack(capacity: Any, dtype: Any) -> Any:
    """An empty stack that the lanes of a block share.

    Like a tile it is passed to functions and given other names by reference, and may be used in loops and branches that
    all lanes take. Outside of a kernel the call declares a parameter: `def f(s: tg.tile_stack(64, float))`.

    Args:
        capacity: how many elements it can hold, a positive compile-time int.
        dtype: element type, composite ones too.

    Gradient: none, there are no operands; what is pushed has one.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def keep_positive(x: tg.array1d[float], y: tg.array1d[float], n: tg.array1d[int]):
        ...     block, lane = tg.tid()
        ...     found = tg.tile_stack(capacity=8, dtype=float)
        ...     slot = tg.tile_stack_push(found, x[lane], x[lane] > 0.0)
        ...     if slot >= 0:
        ...         y[slot] = x[lane]
        ...     n[0] = tg.tile_stack_count(found)
        >>> x = np.array([1.0, -1.0, 2.0, 3.0], np.float32)
        >>> y, n = np.zeros(4, np.float32), np.zeros(1, np.int32)
        >>> tg.launch_tiled(keep_positive, dim=1, inputs=[x, y, n], block_dim=4)
        >>> y.tolist(), n.tolist()
        ([1.0, 2.0, 3.0, 0.0], [3])
    """
    if not is_int(capacity) or capacity <= 0:
        found = describe(unwrap(capacity).type) if hasattr(unwrap(capacity), "type") else repr(capacity)
        raise ShapeMismatch(f"tile_stack: capacity must be a positive compile-time int, it is {found}")
    kind = as_element_type(dtype)
    if kind is None:
        raise TypeMismatch(f"tile_stack: {dtype!r} is not an element type", help="for example float or tilegrad.vec3")
    scalars = kind.scalars if isinstance(kind, CompositeType) else (kind,)
    if not all(isinstance(d, DType) for d in scalars):
        raise TypeMismatch(f"tile_stack: a {kind} has array members, so there are no tiles of it")
    tiles = [tile_full(constant(0, d), shape=(int(capacity),)) for d in scalars]
    return TileStack(kind, (tile_full(constant(0, dt.int32), shape=(1,)), *tiles))


def tile_stack_push(s: Any, value: Any, has_value: Any = True, *, block_dim: int) -> Any:
    """Each lane puts its value on the stack, if it has one; all lanes of the block make the call together.

    Args:
        s: what `tile_stack` returned; it is changed in place.
        value: the lane's value, of the stack's element type.
        has_value: whether the lane has one.

    Returns: the slot of the lane's value, int32; -1 if it had none or the stack was full. Lanes push in their order.
    Raises: TypeMismatch for a value of another type.
    Gradient: to the value, from where it is popped.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(slots: tg.array1d[int]):
        ...     block, lane = tg.tid()
        ...     s = tg.tile_stack(capacity=2, dtype=int)
        ...     slots[lane] = tg.tile_stack_push(s, lane, lane != 1)
        >>> slots = np.zeros(4, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[slots], block_dim=4)
        >>> slots.tolist()
        [0, -1, 1, -1]
    """
    stack = _require_stack("tile_stack_push", s)
    values = _values(stack, value)
    slots, count = _slots("tile_stack_push", stack, has_value, True, block_dim)
    for tile, x in zip(stack[1:], values, strict=True):
        tile.assign(tile_stack_place(tile, tile_from_lanes(x, block_dim=block_dim), slots))
    stack.count.assign(count)
    return untile(slots)


def tile_stack_pop(s: Any, wanted: Any = True, *, block_dim: int) -> Any:
    """Each lane takes a value off the stack; all lanes of the block make the call together.

    Lane 0 gets the top, lane 1 the value below it, and so on.

    Args:
        s: what `tile_stack` returned; it is changed in place.
        wanted: whether the lane takes one.

    Returns: the value and the slot where it was, int32. A lane that takes none, or finds the stack empty, gets zeros
        and -1.
    Gradient: to the lane that pushed the value.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     block, lane = tg.tid()
        ...     s = tg.tile_stack(capacity=8, dtype=float)
        ...     tg.tile_stack_push(s, x[lane], lane < 3)
        ...     value, slot = tg.tile_stack_pop(s)
        ...     y[lane] = value
        >>> x, y = np.array([1.0, 2.0, 3.0, 4.0], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y], block_dim=4)
        >>> y.tolist()
        [3.0, 2.0, 1.0, 0.0]
    """
    stack = _require_stack("tile_stack_pop", s)
    slots, count = _slots("tile_stack_pop", stack, wanted, False, block_dim)
    values = [untile(tile_stack_pick(tile, slots)) for tile in stack[1:]]
    stack.count.assign(count)
    return of_leaves(stack.kind, iter(values)), untile(slots)


def tile_stack_clear(s: Any) -> None:
    """Take everything off the stack.

    Gradient: zero for what was on it.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(n: tg.array1d[int]):
        ...     s = tg.tile_stack(capacity=8, dtype=float)
        ...     tg.tile_stack_push(s, 1.0)
        ...     tg.tile_stack_clear(s)
        ...     n[0] = tg.tile_stack_count(s)
        >>> n = np.ones(1, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[n], block_dim=4)
        >>> n.tolist()
        [0]
    """
    _require_stack("tile_stack_clear", s).count.assign(tile_full(constant(0, dt.int32), shape=(1,)))


def tile_stack_count(s: Any) -> Any:
    """The number of elements on the stack, int32, the same for the whole block.

    No gradient: the result is a count.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(n: tg.array1d[int]):
        ...     s = tg.tile_stack(capacity=8, dtype=float)
        ...     tg.tile_stack_push(s, 1.0)
        ...     n[0] = tg.tile_stack_count(s)
        >>> n = np.ones(1, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[n], block_dim=4)
        >>> n.tolist()
        [4]
    """
    return tile_extract(_require_stack("tile_stack_count", s).count, 0)


def _require_stack(what: str, s: Any) -> TileStack:
    if not isinstance(s, TileStack):
        t = getattr(unwrap(s), "type", None)
        found = describe(t) if t is not None else repr(s)
        raise TypeMismatch(
            f"{what}: the first argument must be a stack, it is {found}",
            help="write s = tile_stack(capacity=64, dtype=float) before",
        )
    return s


def _slots(what: str, stack: TileStack, wanted: Any, push: bool, block_dim: int) -> Any:
    """The slots of the lanes, and the new count."""
    x = unwrap(wanted)
    t = getattr(x, "type", None)
    if t is None and isinstance(x, (bool, int)):
        x = constant(bool(x))
    elif not isinstance(t, ScalarType) or t.dtype.is_float:
        found = describe(t) if t is not None else repr(x)
        raise TypeMismatch(f"{what}: whether a lane takes part must be a bool, it is {found}")
    elif t.dtype.is_int:
        x = REGISTRY["ne"](x, 0)
    lanes = tile_from_lanes(x, block_dim=block_dim)
    return tile_stack_slots(lanes, stack.count, capacity=stack.capacity, push=push)


def _values(stack: TileStack, value: Any) -> list[Any]:
    """The leaves of a value that is pushed, of the stack's element type."""
    kind = stack.kind
    if isinstance(kind, DType):
        if isinstance(value, (bool, int, float)) and isinstance(value, bool) == (kind.kind == "b"):
            if dt.literal_fits(value, kind):
                return [constant(value, kind)]
        elif isinstance(getattr(unwrap(value), "type", None), ScalarType) and unwrap(value).type.dtype is kind:
            return [value]
    elif isinstance(value, Composite) and value.kind is kind:
        return list(leaves(value))
    t = getattr(unwrap(value), "type", None)
    found = describe(t) if t is not None else str(kind_of(value) or repr(value))
    raise TypeMismatch(f"tile_stack_push: the stack holds {kind}, the value is {found}", help=f"write {kind}(...)")


PUBLIC = {
    "tile_stack": Declared(tile_stack, declare_stack),
    "tile_stack_push": tile_stack_push,
    "tile_stack_pop": tile_stack_pop,
    "tile_stack_clear": tile_stack_clear,
    "tile_stack_count": tile_stack_count,
}
