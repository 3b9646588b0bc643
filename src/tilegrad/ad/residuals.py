"""Keeps of a drafted backward kernel only what its gradient writes need: ops, loop-carried values, saved values.

Mark and sweep. A root is a write to a gradient array. What a live value needs is live: of a region op only the
results, carried values and yields of that position; of a stack only the items whose popped value is live, in all of
its pushes. A read of a forward array that the draft also writes needs the writes that may come before it. A live
`unavailable` value is an error.
Does not fold constants or merge equal ops: `passes` do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tilegrad.ad import activity as act
from tilegrad.ad.activity import Memory
from tilegrad.diagnostics import GradientUndefined, Loc
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import StackType, Type

T = TypeVar("T")
EFFECTS = ("write", "atomic")


def prune(kernel: Kernel, forward_params: int) -> tuple[Kernel, set[Op]]:
    """The same kernel without what only its forward part would need, and the ops that it kept. Parameters stay."""
    memory = act.memory_use(kernel)
    roots = [op for op in kernel.body.walk()
             if op.definition.effect in EFFECTS and all(p >= forward_params for p in memory.params(op))]  # fmt: skip
    return keep(kernel, memory, roots)


def keep(kernel: Kernel, memory: Memory, roots: Iterable[Op]) -> tuple[Kernel, set[Op]]:
    """The same kernel without what its `roots` (and yields) do not need, and the ops that it kept. Parameters stay."""
    live = _Live(kernel, memory)
    for op in roots:
        live.keep(op)
    for v in kernel.body.yields:
        live.need(v)
    live.finish()
    args = tuple(Value(p.type, p.name, index=i) for i, p in enumerate(kernel.params))
    body = _Rebuild(live, dict(zip(kernel.params, args, strict=True))).block(kernel.body, args, kernel.body.yields)
    return dataclasses.replace(kernel, body=body), live.kept


class _Live:
    """What is needed: `kept` ops, live `values`, and `slots` (op or stack, position) of results or items."""

    def __init__(self, kernel: Kernel, memory: Memory) -> None:
        self.memory = memory
        self.kept: set[Op] = set()
        self.values: set[Value] = set()
        self.slots: set[tuple[Op, int]] = set()
        self.work: list[Value] = []
        self.owner: dict[Op, Op | None] = {}
        self.args: dict[Value, tuple[Op, int]] = {}
        self.order: dict[Op, int] = {}
        self.stack_uses: dict[Value, list[Op]] = {}
        self.writes: dict[int, list[Op]] = {}
        self.atomics: dict[int, list[Op]] = {}
        self._index(kernel.body, None)

    def _index(self, block: Block, owner: Op | None) -> None:
        for op in block.ops:
            self.owner[op] = owner
            self.order[op] = len(self.order)
            if op.name in ("push", "pop"):
                self.stack_uses.setdefault(op.operands[0], []).append(op)
            if op.definition.effect == "atomic":
                for p in self.memory.params(op):
                    self.atomics.setdefault(self.memory.groups[p], []).append(op)
            if op.definition.effect == "write":
                for p in self.memory.params(op):
                    self.writes.setdefault(self.memory.groups[p], []).append(op)
            for region in op.regions:
                self.args.update({a: (op, i) for i, a in enumerate(region.args)})
                self._index(region, op)

    def finish(self) -> None:
        """Follow what has been marked to the end."""
        while True:
            while self.work:
                self._follow(self.work.pop())
            maps = [op for op in self.kept if op.name == "map"]
            bare = [op for op in maps if not any(a in self.values for a in op.regions[0].args)]
            if not bare:
                return
            for op in bare:  # the shape of a map is that of its operands
                self.need(op.operands[0])
                self.need(op.regions[0].args[0])

    def need(self, v: Value) -> None:
        if v not in self.values:
            self.values.add(v)
            self.work.append(v)

    def _follow(self, v: Value) -> None:
        if v in self.args:
            op, index = self.args[v]
            self._container(op)
            if op.name == "map":
                self.need(op.operands[index])
            elif op.name == "while":
                self._slot(op, index)
            elif index > 0:
                self._slot(op, index - 1)
        elif v.op is not None and v.op.regions:
            self._container(v.op)
            self._slot(v.op, v.index)
        elif v.op is not None and v.op.name == "pop":
            self._item(v.op.operands[0], v.index)
        elif v.op is not None:
            self.keep(v.op)

    def keep(self, op: Op) -> None:
        """Mark a plain op, all its operands, and the ops around it."""
        if op in self.kept:
            return
        if op.name == "unavailable":
            raise _unavailable(op)
        self._mark(op)
        for v in op.operands:
            self.need(v)
        if op.definition.effect == "atomic":  # its result depends on all updates of the memory, also of other blocks
            for p in self.memory.params(op):
                for other in self.atomics[self.memory.groups[p]]:
                    self.keep(other)
        if act.reads_elements(op):
            for p in self.memory.params(op):
                for write in self.writes.get(self.memory.groups[p], ()):
                    if self._may_precede(write, op):
                        self.keep(write)

    def _mark(self, op: Op) -> None:
        self.kept.add(op)
        if (owner := self.owner[op]) is not None:
            self._container(owner)

    def _container(self, op: Op) -> None:
        if op in self.kept:
            return
        self._mark(op)
        fixed = {"if": op.operands[:1], "for": op.operands[:3]}.get(op.name, ())
        for v in (*fixed, *(op.regions[0].yields if op.name == "while" else ())):
            self.need(v)

    def _slot(self, op: Op, index: int) -> None:
        if (op, index) in self.slots:
            return
        self.slots.add((op, index))
        if op.name in ("for", "while"):
            self.need(act.initial(op)[index])
            self.need(act.carried(op)[index])
            if op.name == "while":
                self.need(op.regions[0].args[index])
            self.need(act.body(op).yields[index])
        else:
            for region in op.regions:
                self.need(region.yields[index])

    def _item(self, stack: Value, index: int) -> None:
        assert stack.op is not None
        if (stack.op, index) in self.slots:
            return
        self.slots.add((stack.op, index))
        self._mark(stack.op)
        for op in self.stack_uses[stack]:
            self._mark(op)
            if op.name == "push":
                self.need(op.operands[1 + index])

    def _may_precede(self, first: Op, second: Op) -> bool:
        return self.order[first] < self.order[second] or bool(self._loops(first) & self._loops(second))

    def _loops(self, op: Op) -> set[Op]:
        found = set()
        owner = self.owner[op]
        while owner is not None:
            if owner.name in ("for", "while"):
                found.add(owner)
            owner = self.owner[owner]
        return found


def _unavailable(op: Op) -> GradientUndefined:
    other: Loc = op.attrs["other"]
    return GradientUndefined(
        f"no gradient: it depends on {op.attrs['what']} (at {other}), which cannot be had again afterwards",
        loc=op.loc,
        help="add to one array and read from another, or use two launches",
    )


class _Rebuild:
    """Copies the live part of a block."""

    def __init__(self, live: _Live, values: dict[Value, Value]) -> None:
        self.live = live
        self.values = values
        self.builder = Builder()

    def block(self, block: Block, args: tuple[Value, ...], yields: Iterable[Value]) -> Block:
        outer, self.builder.block = self.builder.block, Block(args)
        for op in block.ops[:-1]:
            if op in self.live.kept:
                self._op(op)
        self.builder.insert(block.terminator.definition, self._get(yields), loc=block.terminator.loc)
        made, self.builder.block = self.builder.block, outer
        return made

    def _get(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.values[v] for v in values)

    def _op(self, op: Op) -> None:
        operands, results, attrs = self._live_parts(op)
        types: tuple[Type, ...] = tuple(v.type for v in results)
        if op.name == "stack":
            types = (StackType(attrs["items"], attrs["varying"]),)
        regions = tuple(self._region(op, index) for index in range(len(op.regions)))
        made = self.builder.insert(op.definition, self._get(operands), attrs, regions, types, op.loc)
        self.values.update(zip(results, made.results, strict=True))

    def _live_parts(self, op: Op) -> tuple[Sequence[Value], Sequence[Value], dict[str, Any]]:
        """The operands, results and attributes of `op` that stay."""
        if op.name == "stack":
            return (), op.results, {**op.attrs, "items": self._live_slots(op, op.attrs["items"])}
        if op.name in ("push", "pop"):
            stack = op.operands[0].op
            assert stack is not None
            items = self._live_slots(stack, op.operands[1:])
            return (op.operands[0], *items), self._live_slots(stack, op.results), op.attrs
        if op.name in ("for", "while"):
            fixed = op.operands[:3] if op.name == "for" else ()
            return (*fixed, *self._live_slots(op, act.initial(op))), self._live_slots(op, op.results), op.attrs
        if op.name == "map":
            operands = [v for v, a in zip(op.operands, op.regions[0].args, strict=True) if a in self.live.values]
            return operands, self._live_slots(op, op.results), op.attrs
        return op.operands, self._live_slots(op, op.results) if op.regions else op.results, op.attrs

    def _region(self, op: Op, index: int) -> Block:
        region = op.regions[index]
        args, yields = region.args, self._live_slots(op, region.yields)
        if op.name == "for":
            args = (args[0], *self._live_slots(op, args[1:]))
        elif op.name == "while":
            args = self._live_slots(op, args)
            yields = region.yields if index == 0 else yields
        elif op.name == "map":
            args = tuple(a for a in args if a in self.live.values)
        made = tuple(Value(a.type, a.name, index=i) for i, a in enumerate(args))
        self.values.update(zip(args, made, strict=True))
        return self.block(region, made, yields)

    def _live_slots(self, op: Op, things: Sequence[T]) -> tuple[T, ...]:
        return tuple(t for j, t in enumerate(things) if (op, j) in self.live.slots)
