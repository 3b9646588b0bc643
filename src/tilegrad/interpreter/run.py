"""Executes a kernel block after block; every op is one call of its body on NumPy values.

A uniform scalar is a NumPy scalar, a varying one an array over the lanes in hand, a tile an array. Where lanes part
(a branch, a loop of different length, a `map_` over the elements of tiles), the region runs on the subset of lanes
that get there, and its results are put back. Blocks run in order, so atomic updates happen in the launch's order.
Does not optimise anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tilegrad.diagnostics import TilegradError
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, StackType, is_varying
from tilegrad.ops import control
from tilegrad.ops.lanes import LaunchContext, context
from tilegrad.printing import WHOLE_BLOCK, in_order

#: Ops whose value for all lanes comes from the launch, not from operands.
_PLACES = ("lane_id", "thread_id")


class Observer(Protocol):
    """Is told of every op without regions, with its live operands: copy what is to be kept."""

    def before(self, op: Op, operands: Sequence[Any]) -> None: ...

    def after(self, op: Op, operands: Sequence[Any], results: Sequence[Any]) -> None: ...


def run(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], observer: Observer | None = None) -> None:
    """Run all blocks of a launch. Arrays are NumPy arrays (or hold one in `data`) and are written in place."""
    total = int(np.prod(grid, dtype=np.int64))
    blocks = total if kernel.tiled else -(-total // kernel.block_dim)
    values = [_argument(v, a) for v, a in zip(kernel.params, args, strict=True)]
    for block in reversed(range(blocks)) if kernel.descending else range(max(0, blocks)):
        here = LaunchContext(tuple(grid), block, kernel.block_dim, kernel.tiled)
        token = context.set(here)
        try:
            with np.errstate(all="ignore"):
                frame = _Frame(None, np.arange(here.lanes), None, observer)
                frame.env.update(zip(kernel.params, values, strict=True))
                _run_block(kernel.body, frame)
        except TilegradError as error:
            error.help = error.help or f"raised in block {block} of kernel `{kernel.name}`, grid {tuple(grid)}"
            raise
        finally:
            context.reset(token)
            for text in in_order(here.printed):
                print(text)


def _argument(v: Value, a: Any) -> Any:
    if isinstance(v.type, ArrayType):
        return a if isinstance(a, np.ndarray) else a.data
    assert isinstance(v.type, ScalarType)
    return v.type.dtype.np.type(a)


class _Frame:
    """The values of a region that is being run, and the lanes that run it.

    `select` picks this frame's lanes out of those of the outer frame; None: all of them.
    """

    def __init__(self, outer: _Frame | None, lanes: Any, select: Any, observer: Observer | None = None) -> None:
        self.outer = outer
        self.observer: Observer | None = outer.observer if outer is not None else observer
        self.lanes = lanes
        self.select = select
        self.env: dict[Value, Any] = {}

    @property
    def count(self) -> int:
        return len(self.lanes)

    def inner(self, select: Any = None) -> _Frame:
        return _Frame(self, self.lanes if select is None else self.lanes[select], select)

    def get(self, v: Value) -> Any:
        if v in self.env:
            return self.env[v]
        assert self.outer is not None, f"{v!r} is not defined"
        found = self.outer.get(v)
        if self.select is not None and isinstance(v.type, ScalarType) and v.type.varying:
            found = found[self.select]
        return found

    def set(self, v: Value, x: Any) -> None:
        if isinstance(v.type, ScalarType):
            wanted = v.type.dtype.np
            x = np.asarray(x, dtype=wanted)
            x = np.array(np.broadcast_to(x, (self.count,))) if v.type.varying else x[()]
        self.env[v] = x


def _run_block(block: Block, frame: _Frame) -> list[Any]:
    for op in block.ops[:-1]:
        try:
            _run_op(op, frame)
        except TilegradError as error:
            error.label = error.label or _array_of(op, frame)
            error.at(op.loc)
            raise
    return [frame.get(v) for v in block.yields]


def _array_of(op: Op, frame: _Frame) -> str:
    """Which array an op works on, for messages: the parameter that the user named, and its shape."""
    for v in op.operands:
        if isinstance(v.type, ArrayType):
            shape = frame.get(v).shape
            while v.op is not None:
                v = v.op.operands[0]
            return f"{op.name} of `{v.name}`, shape {shape}" if v.name else f"shape {shape}"
    return ""


def _run_op(op: Op, frame: _Frame) -> None:
    observer = frame.observer
    if observer is None or op.regions:
        _execute(op, frame)
        return
    operands = [frame.get(v) for v in op.operands]
    observer.before(op, operands)
    _execute(op, frame)
    observer.after(op, operands, [frame.get(v) for v in op.results])


def _execute(op: Op, frame: _Frame) -> None:
    handler = _HANDLERS.get(op.name)
    if handler is not None:
        results = handler(op, frame)
    elif op.name in _PLACES:
        results = [op.definition.body(**op.attrs)[frame.lanes]]
    else:
        result = op.definition.body(*_operands(op, frame), **op.attrs)
        results = list(result) if len(op.results) > 1 else [result]
    for v, x in zip(op.results, results, strict=False):
        frame.set(v, x)


def _operands(op: Op, frame: _Frame) -> list[Any]:
    """The operands of a plain op; all scalars become one per lane if one of them is."""
    values = [frame.get(v) for v in op.operands]
    if op.definition.elementwise is not None or not any(is_varying(v.type) for v in op.operands):
        return values
    return [
        np.broadcast_to(x, (frame.count,)) if isinstance(v.type, ScalarType) else x
        for v, x in zip(op.operands, values, strict=True)
    ]


# --- branches ---------------------------------------------------------------------------------------------------------


def _if(op: Op, frame: _Frame) -> list[Any]:
    condition = frame.get(op.operands[0])
    if not is_varying(op.operands[0].type):
        return _run_block(op.regions[0 if condition else 1], frame.inner())
    results = [np.zeros(frame.count, _dtype(v)) for v in op.results]
    for region, chosen in zip(op.regions, (condition, ~condition), strict=True):
        lanes = np.nonzero(chosen)[0]
        if lanes.size:
            for result, x in zip(results, _run_block(region, frame.inner(lanes)), strict=True):
                result[lanes] = x
    return results


def _dtype(v: Value) -> Any:
    assert not isinstance(v.type, StackType)
    return v.type.dtype.np


# --- loops ------------------------------------------------------------------------------------------------------------


def _for(op: Op, frame: _Frame) -> list[Any]:
    start, stop, step, *init = (frame.get(v) for v in op.operands)
    block = op.regions[0]
    index = block.args[0]
    if not any(is_varying(v.type) for v in op.operands[:3]):
        for i in range(int(start), int(stop), int(step)) if step else ():
            init = _turn(block, frame.inner(), [i, *init])
        return init
    kind = _dtype(index)
    start, stop, step = (np.broadcast_to(x, (frame.count,)) for x in (start, stop, step))
    counts = np.array([len(range(a, b, c)) if c else 0 for a, b, c in zip(start, stop, step, strict=True)], dtype=int)
    carried = [np.array(x) for x in init]
    for k in range(int(counts.max(initial=0))):
        lanes = np.nonzero(counts > k)[0]
        indices = (start[lanes] + k * step[lanes]).astype(kind)
        _turn_of_lanes(block, frame, lanes, [indices], carried)
    return carried


def _turn(block: Block, frame: _Frame, args: Sequence[Any]) -> list[Any]:
    for v, x in zip(block.args, args, strict=True):
        frame.set(v, x)
    return _run_block(block, frame)


def _turn_of_lanes(block: Block, frame: _Frame, lanes: Any, first: list[Any], carried: list[Any]) -> None:
    """One turn of a loop for some lanes; their carried values are updated in place."""
    results = _turn(block, frame.inner(lanes), [*first, *(c[lanes] for c in carried)])
    for c, x in zip(carried, results, strict=True):
        c[lanes] = x


def _while(op: Op, frame: _Frame) -> list[Any]:
    test, block = op.regions
    carried = [frame.get(v) for v in op.operands]
    if not is_varying(test.yields[0].type):
        while _turn(test, frame.inner(), carried)[0]:
            carried = _turn(block, frame.inner(), carried)
        return carried
    carried = [np.array(c) for c in carried]
    lanes = np.arange(frame.count)
    while True:
        going = _turn(test, frame.inner(lanes), [c[lanes] for c in carried])[0]
        lanes = lanes[going]
        if not lanes.size:
            return carried
        _turn_of_lanes(block, frame, lanes, [], carried)


# --- maps, stacks, printing -------------------------------------------------------------------------------------------


def _map(op: Op, frame: _Frame) -> list[Any]:
    tiles = [frame.get(v) for v in op.operands]
    shape = np.shape(tiles[0])
    inner = _Frame(frame, np.arange(tiles[0].size), None)
    here = context.get()
    outer, here.printed = here.printed, []
    try:
        results = _turn(op.regions[0], inner, [np.ravel(t) for t in tiles])
    finally:  # what elements printed comes together, as if the block had printed it
        here.printed = [*outer, *((here.block, WHOLE_BLOCK, text) for text in in_order(here.printed))]
    return [np.reshape(np.broadcast_to(x, (inner.count,)), shape) for x in results]


def _spread(op: Op, frame: _Frame) -> list[Any]:
    return [frame.get(op.operands[0])]


def _stack(op: Op, frame: _Frame) -> list[Any]:
    varying = is_varying(op.result.type)
    return [{int(lane): [] for lane in frame.lanes} if varying else []]


def _push(op: Op, frame: _Frame) -> list[Any]:
    stack, *values = (frame.get(v) for v in op.operands)
    if isinstance(stack, list):
        stack.append(values)
        return []
    for i, lane in enumerate(frame.lanes):
        stack[int(lane)].append(
            [x[i] if is_varying(v.type) else x for v, x in zip(op.operands[1:], values, strict=True)]
        )
    return []


def _pop(op: Op, frame: _Frame) -> list[Any]:
    stack = frame.get(op.operands[0])
    if isinstance(stack, list):
        return list(stack.pop())
    rows = [stack[int(lane)].pop() for lane in frame.lanes]
    columns = [np.array([row[k] for row in rows], dtype=_dtype(v)) for k, v in enumerate(op.results)]
    return [c if is_varying(v.type) else c[0] for c, v in zip(columns, op.results, strict=True)]


def _print(op: Op, frame: _Frame) -> list[Any]:
    values = [frame.get(v) for v in op.operands]
    by_lane = any(is_varying(v.type) for v in op.operands)
    here = context.get()
    for i, lane in enumerate(frame.lanes if by_lane else (WHOLE_BLOCK,)):
        shown = [x[i] if is_varying(v.type) else x for v, x in zip(op.operands, values, strict=True)]
        here.printed.append((here.block, int(lane), op.attrs["template"].format(*shown)))
    return []


_HANDLERS = {
    control.if_.name: _if,
    control.for_.name: _for,
    control.while_.name: _while,
    control.map_.name: _map,
    control.spread.name: _spread,
    control.stack.name: _stack,
    control.push.name: _push,
    control.pop.name: _pop,
    "print": _print,
}
