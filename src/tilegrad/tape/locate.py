"""Finds where a cotangent is first NaN or infinite in a backward pass, for `Tape.backward(check_finite=True)`.

After every record that is run backward the cotangents that it has changed are looked at. If one is not finite, the
record's backward kernel is run once more, in the interpreter and from what it was given, and the first op is reported
that makes such a cotangent out of finite ones. Says nothing about values of the forward pass, except that they were
not finite where that is the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegrad import compiler, interpreter
from tilegrad.ad import activity as act
from tilegrad.diagnostics import GradientNotFinite, TilegradError
from tilegrad.ir.core import Kernel, Op, Value
from tilegrad.ir.types import ArrayType
from tilegrad.ops.lanes import context
from tilegrad.tape.memory import Host, Mirror, host, is_float
from tilegrad.tape.records import Launch, Record, unseen


def require_finite_seeds(seeds: Iterable[tuple[Host, Host]]) -> None:
    """Raise unless every cotangent that a backward pass starts from is finite."""
    for a, seed in seeds:
        if (place := first_place(seed)) is not None:
            raise GradientNotFinite(
                f"backward: the cotangent given for an array of shape {a.shape} is {seed[place]} at {list(place)}"
            )


def pull(records: Sequence[Record], k: int, cts: Mirror) -> None:
    """Run record k backward; raise if a cotangent is not finite afterwards."""
    record = records[k]
    before = _copy(cts, record.arrays)
    record.pull(cts)
    for i, a in _arrays(record):
        if is_float(a) and cts.has(a) and (place := first_place(cts.view(a))) is not None:
            raise _error(records, k, before, i, place, cts.view(a)[place])


def first_place(a: Host) -> tuple[int, ...] | None:
    """The index of the first element that is not finite."""
    bad = ~np.isfinite(a)
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else None


def _arrays(record: Record) -> list[tuple[int, Host]]:
    if isinstance(record, Launch):
        return [(i, a) for i, x in enumerate(record.args) if (a := host(x)) is not None]
    return list(enumerate(record.arrays))


def _copy(cts: Mirror, arrays: Iterable[Host]) -> Mirror:
    """The cotangents of some arrays."""
    floats = [a for a in arrays if is_float(a) and a.size]
    made = cts.part(floats)
    for a in floats:
        if cts.has(a):
            made.view(a)[...] = cts.view(a)
    return made


def _error(
    records: Sequence[Record], k: int, before: Mirror, i: int, place: tuple[int, ...], value: Any
) -> GradientNotFinite:
    record = records[k]
    if not isinstance(record, Launch):
        return GradientNotFinite(f"backward: the cotangents of an array, added up, are {value} at {list(place)}")
    launches = [r for r in records if isinstance(r, Launch)]
    p = record.kernel.params[i]
    error = GradientNotFinite(
        f"backward: the cotangent of `{p.name}` is {value} at {list(place)}, in the backward pass of launch "
        f"{launches.index(record) + 1} of {len(launches)} (kernel `{record.kernel.name}`)"
    )
    origin = _origin(record, before)
    if origin is None:
        error.help = "the interpreter does not find it: its rounding differs from the compiled code's"
        return error
    error.label = str(origin)
    error.help = origin.reason
    return error.at(origin.op.loc)


@dataclass(frozen=True)
class Origin:
    """The op of a backward kernel that made the first cotangent that is not finite."""

    op: Op
    value: Any
    block: int
    place: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        at = f", element {list(self.place)}" if self.place else ""
        return f"going back through this, the cotangent becomes {self.value} (block {self.block}{at})"


class _Stop(Exception):
    def __init__(self, origin: Origin) -> None:
        self.origin = origin


def _origin(record: Launch, before: Mirror) -> Origin | None:
    with unseen():
        kernel, args = record.prepare(before)
        kernel = compiler.expanded(kernel)
        try:
            interpreter.run(kernel, args, record.grid, _Watch(kernel, record.kernel))
        except _Stop as stop:
            return stop.origin
        except TilegradError:
            return None
    return None


class _Watch:
    """Stops the interpreter at the first cotangent that is not finite though all that it is made of are."""

    def __init__(self, kernel: Kernel, forward: Kernel) -> None:
        self.roots = act.memory_use(kernel).roots
        self.forward_params = len(forward.params)
        self.cotangents = cotangents_of(kernel, self.forward_params)
        self.repeated = {(op.name, op.loc) for op in forward.body.walk()}

    def before(self, op: Op, operands: Sequence[Any]) -> None: ...

    def after(self, op: Op, operands: Sequence[Any], results: Sequence[Any]) -> None:
        made = [(v, x) for v, x in zip(op.results, results, strict=True) if v in self.cotangents]
        if op.definition.effect in ("write", "atomic") and self.roots.get(op.operands[0], 0) >= self.forward_params:
            made.append((op.operands[0], operands[0]))
        for _, x in made:
            place = first_place(np.asarray(x))
            if place is not None and all(self._is_fine(v, y) for v, y in zip(op.operands, operands, strict=True)):
                reason = self._reason(op, operands)
                raise _Stop(Origin(op, np.asarray(x)[place], context.get().block, place, reason))

    def _reason(self, op: Op, operands: Sequence[Any]) -> str:
        """What is known about why finite cotangents gave one that is not."""
        for v, x in zip(op.operands, operands, strict=True):
            if act.is_float(v.type) and (place := first_place(np.asarray(x))) is not None:
                if v.op is None or (v.op.name, v.op.loc) in self.repeated:
                    return f"the forward pass has {np.asarray(x)[place]} here: look there first"
                return f"the derivative is {np.asarray(x)[place]} at this value"
        return "the numbers are too large for the type"

    def _is_fine(self, v: Value, x: Any) -> bool:
        return v not in self.cotangents or _is_finite(x)


def _is_finite(x: Any) -> bool:
    return bool(np.isfinite(np.asarray(x)).all())


def cotangents_of(kernel: Kernel, forward_params: int) -> set[Value]:
    """The values of a backward kernel that depend on gradient arrays; all others are of the forward pass."""
    roots = act.memory_use(kernel).roots
    links: dict[Value, list[Value]] = {}
    starts: list[Value] = []
    pops: dict[Value, list[Op]] = {}
    for op in kernel.body.walk():
        if op.name == "pop":
            pops.setdefault(op.operands[0], []).append(op)
    for op in kernel.body.walk():
        if op.name == "push":
            for j, v in enumerate(op.operands[1:]):
                links.setdefault(v, []).extend(pop.results[j] for pop in pops.get(op.operands[0], ()))
            continue
        if op.name in ("yield", "pop"):
            continue
        if op.operands and isinstance(op.operands[0].type, ArrayType) and roots[op.operands[0]] >= forward_params:
            starts += [v for v in op.results if act.is_float(v.type)]
        for a, b in act.edges(op):
            if act.is_float(a.type) and act.is_float(b.type):
                links.setdefault(a, []).append(b)
    return act.reach(starts, links)
