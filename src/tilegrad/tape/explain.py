"""What a backward pass over a tape costs, in the user's terms: `Tape.explain()`.

For each launch: the contents of arrays that are saved, the lines that are computed again, the loops whose turns are
saved and how much for each, the arrays of which the backward kernel needs a private copy, and its working memory.
Does not run anything; it may compile backward kernels, which a backward pass needs anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from tilegrad import ad, compiler
from tilegrad.ad import checkpoints
from tilegrad.config import config
from tilegrad.diagnostics import GradientUndefined, Loc
from tilegrad.ir.core import Block, Kernel, Op
from tilegrad.ir.types import TileType, items_of
from tilegrad.tape.locate import cotangents_of
from tilegrad.tape.memory import SMALL, host, is_float, require_host
from tilegrad.tape.records import Add, Copy, Held, Launch, Record


@dataclass(frozen=True)
class Contents:
    """An array whose contents the backward pass needs as they were; `copied` if there is a copy by now."""

    name: str
    bytes: int
    copied: bool
    why: str


@dataclass(frozen=True)
class Loop:
    """A loop or branch that saves values on a stack; `checkpoints` if of about 2 sqrt(n) of its n turns only."""

    kind: str
    line: int
    bytes_per_turn: int
    checkpoints: bool

    def __str__(self) -> str:
        where = f"{self.kind} on line {self.line}: saves"
        if self.checkpoints:
            rest = f"after {config.saved_turns} turns checkpoints only, about 2 sqrt(n) of n"
            return f"{where} {_size(self.bytes_per_turn)} a turn, {rest}"
        return f"{where} {_size(self.bytes_per_turn)} {'a turn' if self.kind == 'loop' else 'each time'}"


@dataclass(frozen=True)
class Cost:
    """What one launch costs. `scratch_bytes` is for each thread; None where nothing is compiled."""

    title: str
    loc: Loc | None = None
    refused: str = ""
    saved: tuple[Contents, ...] = ()
    recomputed: int = 0
    lines: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()
    shadows: tuple[Contents, ...] = ()
    cotangent_bytes: int = 0
    scratch_bytes: int | None = None

    def __str__(self) -> str:
        return "\n  ".join([self.title, *self._details()])

    def _details(self) -> Iterator[str]:
        if self.refused:
            yield self.refused
            return
        for c in self.saved:
            yield f"saved: {c.name}, {_size(c.bytes)} ({c.why})"
        if self.recomputed:
            yield f"computed again: {_count(self.recomputed, 'operation')} on {_ranges(self.lines)}"
        yield from map(str, self.loops)
        for c in self.shadows:
            yield f"copied: {c.name}, {_size(c.bytes)} ({c.why})"
        if self.cotangent_bytes:
            yield f"cotangents: {_size(self.cotangent_bytes)}"
        if self.scratch_bytes:
            yield f"working memory: {_size(self.scratch_bytes)} for each thread"


@dataclass(frozen=True)
class Explanation:
    """The costs of all records, in order, and their totals. `str` shows them."""

    costs: tuple[Cost, ...]
    #: memory that copies of saved contents take, and that of contents which are still in their arrays
    saved_bytes: int = 0
    referenced_bytes: int = 0
    #: memory of private copies, of which one launch's at a time are alive
    shadow_bytes: int = 0
    scratch_bytes: int = 0
    launches: tuple[Cost, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.costs), self._totals()])

    def _totals(self) -> str:
        parts = [f"{_size(self.saved_bytes)} saved", f"{_size(self.referenced_bytes)} kept by reference"]
        if self.shadow_bytes:
            parts.append(f"{_size(self.shadow_bytes)} copied at most at a time")
        if self.scratch_bytes:
            parts.append(f"{_size(self.scratch_bytes)} of working memory for each thread")
        return f"total: {', '.join(parts)}"


def explain(records: Sequence[Record]) -> Explanation:
    """The costs of running the records backward."""
    launches = [r for r in records if isinstance(r, Launch)]
    numbers = {id(r): k + 1 for k, r in enumerate(launches)}
    seen: dict[int, int] = {}
    costs, of_launches = [], []
    for r in records:
        if isinstance(r, Launch):
            cost = _launch(r, numbers[id(r)], len(launches), seen)
            of_launches.append(cost)
        else:
            cost = _copy(r)
        costs.append(cost)
    held = {id(h): h for r in launches for h in r.held.values()}.values()
    return Explanation(
        tuple(costs),
        sum(h.array.nbytes for h in held if h.saved is not None),
        sum(h.array.nbytes for h in held if h.saved is None),
        max((sum(s.bytes for s in c.shadows) for c in of_launches), default=0),
        max((c.scratch_bytes or 0 for c in of_launches), default=0),
        tuple(of_launches),
    )


def _copy(r: Record) -> Cost:
    if isinstance(r, Add):
        return Cost(f"an addition to an array of shape {r.dest.shape}")
    assert isinstance(r, Copy)
    what = "a fill" if r.source is None else "a copy"
    return Cost(f"{what} of an array of shape {r.dest.shape}")


def _launch(r: Launch, number: int, count: int, seen: dict[int, int]) -> Cost:
    loc = r.kernel.loc
    dims = r.grid[0] if len(r.grid) == 1 else r.grid
    where = f"{PurePath(loc.file).name}:{loc.line}"
    title = f"launch {number} of {count}: `{r.kernel.name}` ({where}), dim={dims}"
    if not isinstance(r.backward, ad.Backward):
        refused = r.backward.message if isinstance(r.backward, GradientUndefined) else "not differentiated"
        return Cost(title, loc, refused=refused)
    again = list(_recomputed(r.backward.kernel, r.kernel))
    shadows = [i for i, s in enumerate(r.backward.shadow_params) if s]
    wanted = [require_host(x) for x, g in zip(r.args, r.backward.grad_params, strict=True) if g is not None]
    return Cost(
        title,
        loc,
        saved=tuple(_contents(r, i, h, number, seen) for i, h in r.held.items()),
        recomputed=len(again),
        lines=tuple(sorted({op.loc.line for op in again})),
        loops=tuple(_loops(r.backward.kernel, r.kernel)),
        shadows=tuple(_shadow(r, i) for i in shadows),
        cotangent_bytes=sum(a.nbytes for a in wanted if is_float(a)),
        scratch_bytes=compiler.compiled(r.backward.kernel).scratch_bytes if r.device == "cpu" else None,
    )


def _contents(r: Launch, i: int, held: Held, number: int, seen: dict[int, int]) -> Contents:
    first = seen.setdefault(id(held), number)
    if first != number:
        why = f"the same as for launch {first}"
    elif held.saved is None:
        why = "by reference: copied if it is overwritten"
    elif held.current and held.array.nbytes <= SMALL:
        why = "copied at once, as it is small"
    else:
        why = "copied when it was overwritten" if not held.current else "copied"
    return Contents(r.kernel.params[i].name, held.array.nbytes, held.saved is not None, why)


def _shadow(r: Launch, i: int) -> Contents:
    a = host(r.args[i])
    why = "for the backward kernel, which writes it again"
    return Contents(r.kernel.params[i].name, 0 if a is None else a.nbytes, True, why)


def _recomputed(backward: Kernel, forward: Kernel) -> Iterator[Op]:
    """The ops of the forward kernel that the backward kernel runs again."""
    cotangents = cotangents_of(backward, len(forward.params))
    known = {(op.name, op.loc) for op in forward.body.walk()}
    for op in backward.body.walk():
        plain = not op.regions and op.definition.cls != "control" and op.results
        if plain and (op.name, op.loc) in known and not any(v in cotangents for v in op.results):
            yield op


def _loops(backward: Kernel, forward: Kernel) -> Iterator[Loop]:
    """The stacks of a backward kernel by the loops and branches that fill them."""
    long = {op.loc for op in forward.body.walk()
            if op.name in ("for", "while") and checkpoints.is_long(op, config.saved_turns)}  # fmt: skip
    found: dict[tuple[str, Loc], int] = {}
    for op, owner in _with_owners(backward.body, None):
        if op.name == "push" and owner is not None:
            kind = "loop" if owner.name in ("for", "while") else "branch"
            key = (kind, owner.loc)
            found[key] = max(found.get(key, 0), _bytes_of(op, backward.block_dim))
    for (kind, loc), size in found.items():
        yield Loop(kind, loc.line, size, kind == "loop" and loc in long)


def _with_owners(block: Block, owner: Op | None) -> Iterator[tuple[Op, Op | None]]:
    for op in block.ops:
        yield op, owner
        for region in op.regions:
            yield from _with_owners(region, op)


def _bytes_of(push: Op, lanes: int) -> int:
    stack = push.operands[0].type
    each = sum(t.dtype.size * (t.size if isinstance(t, TileType) else 1) for t in items_of(stack))
    return each * (lanes if getattr(stack, "varying", False) else 1)


def _size(n: int) -> str:
    return f"{n:,} byte{'s' * (n != 1)}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _ranges(lines: Iterable[int]) -> str:
    """Line numbers with runs drawn together: "lines 3-5, 8"."""
    runs: list[list[int]] = []
    for n in lines:
        if runs and n == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    text = ", ".join("-".join(map(str, run)) for run in runs)
    return f"line{'s' * (len(runs) > 1 or len(runs[0]) > 1)} {text}"
