"""How variables go through branches and loops: what is merged, what is carried, and what is then still bound.

A branch is traced on both sides from the same state; every live name and every tile that one side changed becomes a
result of the `if_`. A loop carries the live names that its body assigns and the tiles that it writes; which tiles
those are is found by tracing (`_Grow` tells that one more has to be carried).

`break`, `continue` and `return` set hidden flags. After a statement that may have set one, the rest of its statement
list is traced under the condition that the flag is not set (`sequence`), and loops test the flags that leave them.
Does not know Python syntax.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilegrad.composite import rebuilt, same_sort
from tilegrad.diagnostics import KernelSyntaxError, Loc, TilegradError, TypeMismatch
from tilegrad.frontend.lanes import Divergence
from tilegrad.frontend.scope import (
    RETURNED,
    Binding,
    Cell,
    Entry,
    Partial,
    TileRef,
    Unbound,
    describe_value,
    is_literal,
    is_scalar,
    make_rivals,
)
from tilegrad.frontend.values import Key, Values, Weak
from tilegrad.ir.core import Block, Value
from tilegrad.ir.types import ScalarType, TileType, Type, is_varying
from tilegrad.op import REGISTRY, constant
from tilegrad.ops.control import as_type, finish, if_

Names = dict[str, Entry]
Action = Callable[[], None]


class _Absent:
    """Stands for the value of a name on the side of a branch that never uses it."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class _Pending:
    """The place of the `index`-th result of a control op that is not built yet."""

    index: int


@dataclass(slots=True)
class Side:
    """One traced side of a branch: its block and the state at its end."""

    block: Block
    names: Names
    cells: dict[Cell, Value]

    def leaves_by(self, before: Names) -> str | None:
        """The flag that this side is certain to have set, if there is one."""
        for name, entry in self.names.items():
            if is_flag(name) and isinstance(entry, Binding) and entry.value is True:
                old = before.get(name)
                if not (isinstance(old, Binding) and old.value is True):
                    return name
        return None


def is_flag(name: str) -> bool:
    return name.startswith(("%returned", "%broken", "%continued"))


class Flow(Values):
    """Branches, loops and early exits over the variables of the current frame."""

    _flag_count = 0

    # --- statement lists ----------------------------------------------------------------------------------------

    def masked(self, flag: str, value: Any) -> bool:
        """Whether a return of some lanes only masks them, because the rest of the kernel is traced flat."""
        kernel_level = len(self.frames) == 1 and flag == RETURNED
        return self.decisions.guard and kernel_level and isinstance(value, Value) and is_varying(value.type)

    def sequence(self, node: ast.AST, actions: Sequence[Action], live: frozenset[str]) -> None:
        """Run the actions in order; after one that may leave the list, the rest runs only where it was not left."""
        for i, action in enumerate(actions):
            action()
            values = {f: v for f in self.frame.flags() if (v := self.frame.flag(f)) is not False}
            if any(v is True for v in values.values()):
                return
            open_flags = [f for f, v in values.items() if not self.masked(f, v)]
            if open_flags:
                if rest := actions[i + 1 :]:
                    self._unless(node, open_flags, lambda: self.sequence(node, rest, live), live)
                return

    def _unless(self, node: ast.AST, flags: Sequence[str], action: Action, live: frozenset[str]) -> None:
        """Run the action where none of the flags is set."""
        if not flags:
            action()
            return
        flag, frame = flags[0], self.frame
        value = frame.flag(flag)

        def stay() -> None:
            frame.set_flag(flag, False)
            self._unless(node, flags[1:], action, live)

        def left() -> None:
            frame.set_flag(flag, True)

        returned = flag == RETURNED and len(self.frames) == 1
        self.branch(node, self.negate(node, value), stay, left, live, "an early exit", returned=returned)

    def new_flags(self) -> tuple[str, str]:
        """Fresh names for the flags of a loop: left by break, turn ended by continue."""
        self._flag_count += 1
        return f"%broken{self._flag_count}", f"%continued{self._flag_count}"

    # --- branches -----------------------------------------------------------------------------------------------

    def branch(
        self,
        node: ast.AST,
        condition: Value,
        then: Action,
        otherwise: Action,
        live: frozenset[str],
        what: str,
        *,
        returned: bool = False,
    ) -> None:
        """Trace both sides and merge their variables; `what` describes the condition in messages."""
        frame, before = self.frame, self.frame.names
        mark, serial = self.journal.mark(), self.journal.serial
        varying = is_varying(condition.type)
        reason = Divergence(self.loc(node), what, returned) if varying else None
        sides: list[Side] = []
        for action in (then, otherwise):
            frame.names = dict(before)
            try:
                with self.builder.region() as block, self.builder.diverged(reason):
                    action()
                sides.append(Side(block, frame.names, {cell: cell.value for cell, _ in self.journal.entries[mark:]}))
            finally:
                frame.names = before
                self.journal.rollback(mark)
        if self.frame.loops:
            live |= self.frame.loop_live[-1]
        merge = _Merge(self, node, condition, before, sides[0], sides[1], what)
        frame.names = merge.run(live, [c for c in self._touched(sides) if c.serial < serial])

    @staticmethod
    def _touched(sides: Sequence[Side]) -> list[Cell]:
        return list(dict.fromkeys(cell for side in sides for cell in side.cells))

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Append to a block that was left already."""
        outer, self.builder.block = self.builder.block, block
        try:
            yield
        finally:
            self.builder.block = outer

    def select(self, node: ast.AST, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """The value of one of two expressions, of which only one is evaluated."""
        known = self.truth(node, condition)
        if isinstance(known, bool):
            return then() if known else otherwise()
        name = "%value"

        def keep(action: Callable[[], Any]) -> Action:
            def run() -> None:
                value = action()  # may replace `names`
                self.frame.names[name] = Binding(value, self.loc(node))

            return run

        outer = self.frame.names.get(name)
        self.branch(node, known, keep(then), keep(otherwise), self.all_names(), "the condition of the expression")
        binding = self.frame.names.pop(name)
        if outer is not None:
            self.frame.names[name] = outer
        assert isinstance(binding, Binding)
        return self._flattened(node, known, binding.value)

    def _flattened(self, node: ast.AST, condition: Value, result: Any) -> Any:
        """`where` in place of an `if_` that was just built, if evaluating both sides is harmless and cheap."""
        op = result.op if is_scalar(result) else None
        if op is None or op.definition is not if_ or len(op.results) != 1 or self.builder.block.ops[-1] is not op:
            return result
        ops = [inner for region in op.regions for inner in region.ops[:-1]]
        if len(ops) > 8 or any(o.regions or o.definition.effect != "none" for o in ops):
            return result
        self.builder.block.ops.pop()
        self.builder.block.ops.extend(ops)
        a, b = (region.yields[0] for region in op.regions)
        x, y = (self.known(spread_from(v)) for v in (a, b))
        if y is False or x is True:
            return self.emit(node, "bit_and" if y is False else "bit_or", condition, a if y is False else b)
        value = self.emit(node, "where", condition, a, b)
        if result in self.weak:
            self.weak[value] = self.weak[result]
        return value

    def all_names(self) -> frozenset[str]:
        return frozenset(self.frame.names)

    def reachable(self, cell: Cell, but: str) -> str | None:
        """Another name than `but` that leads to the cell, if there is one."""
        for frame in self.frames:
            for name, entry in frame.names.items():
                if (frame is self.frame and name == but) or isinstance(entry, Unbound):
                    continue
                binding = entry.binding if isinstance(entry, Partial) else entry
                if any(isinstance(x, TileRef) and x.cell is cell for x in _flat(binding.value)):
                    return name
        return None

    # --- loops --------------------------------------------------------------------------------------------------

    def loop(
        self,
        node: ast.AST,
        names: frozenset[str],
        live: frozenset[str],
        cells: Sequence[Cell],
        sure: bool,
        build: Callable[[Carry], tuple[Value, ...]],
    ) -> None:
        """Build a loop that carries `names` and `cells`, and whatever else turns out to change in its body."""
        entry, mark, serial = self.frame.names, self.journal.mark(), self.journal.serial
        carried, grown = list(dict.fromkeys(cells)), dict[str, Any]()
        while True:
            carry = Carry(self, node, dict(entry), mark, serial, names, live, carried, grown, sure)
            try:
                results = build(carry)
            except _Grow as more:
                carried += more.cells
                grown |= more.names
                names |= more.changed
                continue
            finally:
                self.frame.names = dict(entry)
                self.journal.rollback(mark)
            carry.finish(results)
            return


class _Grow(Exception):
    """A loop has to carry more than was known: tiles that its body writes, names that it binds for good.

    `changed` are names that calls in the body change, such as the state in `randf(rng)`.
    """

    def __init__(self, cells: list[Cell], names: dict[str, Any], changed: frozenset[str]) -> None:
        super().__init__()
        self.cells = cells
        self.names = names
        self.changed = changed


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, tuple):
        for item in x:
            yield from _flat(item)
    else:
        yield x


def _fill(x: Any, results: Sequence[Any]) -> Any:
    if isinstance(x, tuple) and (type(x) is tuple or hasattr(x, "rebuilt")):
        return rebuilt(x, (_fill(item, results) for item in x))
    return results[x.index] if isinstance(x, _Pending) else x


def _resolve(names: Names, entry: Entry | None) -> Binding | None:
    if isinstance(entry, Partial):
        flag = names.get(entry.flag)
        known = flag.value if isinstance(flag, Binding) else False
        return entry.binding if known is entry.when else None
    return entry if isinstance(entry, Binding) else None


def same_static(x: Any, y: Any) -> bool:
    """Whether two compile-time values are the same one."""
    if x is y:
        return True
    if type(x) is not type(y) or isinstance(x, (Value, TileRef)):
        return False
    try:
        return bool(x == y) and repr(x) == repr(y)
    except Exception:
        return False


def zero_of(t: Type) -> Value:
    """A zero of a scalar or tile type, where a value is never looked at."""
    assert isinstance(t, (ScalarType, TileType))
    value = constant(False if t.dtype.kind == "b" else 0.0 if t.dtype.is_float else 0, t.dtype)
    if isinstance(t, TileType):
        full: Value = REGISTRY["tile_full"](value, shape=t.shape)
        return full
    return as_type(value, t)


def spread_from(v: Value) -> Value:
    """The uniform value behind a varying one, if it was just spread."""
    return v.op.operands[0] if v.op is not None and v.op.name == "spread" else v


class _Merge:
    """The merging of the two sides of one branch."""

    def __init__(self, flow: Flow, node: ast.AST, condition: Value, before: Names, a: Side, b: Side, what: str) -> None:
        self.flow = flow
        self.node = node
        self.condition = condition
        self.before = before
        self.sides = (a, b)
        self.what = what
        self.pairs: list[tuple[Value, Value, Type]] = []
        self.weak: dict[int, tuple[Any, Key, Weak | None]] = {}
        self.rivals: list[tuple[int, str, Cell]] = []

    def run(self, live: frozenset[str], cells: Sequence[Cell]) -> Names:
        merged = self._names(live)
        first = len(self.pairs)
        for cell in cells:
            self._pair(*(side.cells.get(cell, cell.value) for side in self.sides))
        results = self._build()
        for cell, value in zip(cells, results[first:], strict=True):
            cell.set(value)
        return self._finish(merged, results)

    def _names(self, live: frozenset[str]) -> Names:
        a, b = self.sides
        merged: Names = {}
        for name in sorted({*a.names, *b.names}):
            x, y = a.names.get(name), b.names.get(name)
            if x is y and x is not None:
                merged[name] = x
            elif name.startswith("%") or name in live:
                merged[name] = self._entry(name, x, y)
        return merged

    def _entry(self, name: str, x: Entry | None, y: Entry | None) -> Entry:
        a, b = self.sides
        if is_flag(name):
            x, y = x or Binding(False), y or Binding(False)
        p, q = _resolve(a.names, x), _resolve(b.names, y)
        if p is not None and q is not None:
            return Binding(self._join(name, p, q, p.value, q.value, 0), q.loc if q.loc.line else p.loc)
        if isinstance(x, Partial) or isinstance(y, Partial):
            kept = self._partial(name, x, y, p, q)
            if kept is not None:
                return kept
        for mine, theirs, side, other in ((p, y, a, b), (q, x, b, a)):
            if mine is not None:
                return self._one_sided(name, mine, theirs, side, other)
        reason = next((e.reason for e in (x, y) if isinstance(e, (Partial, Unbound))), "")
        return Unbound(reason or self._path(a))

    def _partial(
        self, name: str, x: Entry | None, y: Entry | None, p: Binding | None, q: Binding | None
    ) -> Partial | None:
        """A name that holds under a flag on one side: it still does, if it is bound or out of question on the other."""
        for entry in (x, y):
            if not isinstance(entry, Partial):
                continue
            halves = [
                self._half(entry, e, found, side) for e, found, side in zip((x, y), (p, q), self.sides, strict=True)
            ]
            if None in halves:
                continue
            i, j = (h.value if isinstance(h, Binding) else h for h in halves)
            value = self._join(name, p or entry.binding, q or entry.binding, i, j, 0)
            return Partial(Binding(value, entry.binding.loc), entry.flag, entry.when, entry.reason)
        return None

    @staticmethod
    def _half(wanted: Partial, entry: Entry | None, found: Binding | None, side: Side) -> Any:
        """What a side gives to a name that only matters while `wanted.flag` is `wanted.when`; None if nothing."""
        if found is not None:
            return found
        if isinstance(entry, Partial) and (entry.flag, entry.when) == (wanted.flag, wanted.when):
            return entry.binding
        flag = side.names.get(wanted.flag)
        known = flag.value if isinstance(flag, Binding) else False
        return ABSENT if isinstance(known, bool) and known is not wanted.when else None

    def _one_sided(self, name: str, mine: Binding, theirs: Entry | None, side: Side, other: Side) -> Entry:
        """A name that only `side` binds: it holds where the flag tells that `side` was taken."""
        reason = theirs.reason if isinstance(theirs, (Unbound, Partial)) and theirs.reason else self._path(other)
        gone, left = other.leaves_by(self.before), side.leaves_by(self.before)
        if gone is None and left is None:
            return Unbound(reason)
        i, j = (mine.value, ABSENT) if side is self.sides[0] else (ABSENT, mine.value)
        value = Binding(self._join(name, mine, mine, i, j, 0), mine.loc)
        return Partial(value, gone, False, reason) if gone else Partial(value, left or "", True, reason)

    def _path(self, side: Side) -> str:
        line = self.flow.loc(self.node).line
        return f"{self.what} is {'true' if side is self.sides[0] else 'false'} (line {line})"

    def _join(self, name: str, p: Binding, q: Binding, x: Any, y: Any, index: int) -> Any:
        """The merged value: what both sides agree on, or the place of a result of the `if_`."""
        some = y if x is ABSENT else x
        if isinstance(some, tuple) and (x is ABSENT or y is ABSENT or same_sort(x, y)):
            xs, ys = (v if v is not ABSENT else (ABSENT,) * len(some) for v in (x, y))
            pairs = enumerate(zip(xs, ys, strict=True))
            return rebuilt(some, [self._join(name, p, q, i, j, index * 16 + k + 1) for k, (i, j) in pairs])
        if isinstance(some, TileRef) and (x is ABSENT or y is ABSENT or isinstance(y, TileRef)):
            return self._join_tiles(name, p, q, x, y)
        if x is ABSENT or y is ABSENT:
            if not is_scalar(some):
                return some
            halves = [
                self._zero_in(s, some.type) if v is ABSENT else v for s, v in zip(self.sides, (x, y), strict=True)
            ]
            return self._pair(*halves)
        if same_static(x, y):
            return x
        if all(is_literal(v) or is_scalar(v) for v in (x, y)):
            return self._join_scalars(name, p, q, x, y, index)
        raise self._clash(name, p, q)

    def _join_scalars(self, name: str, p: Binding, q: Binding, x: Any, y: Any, index: int) -> Any:
        flow, key = self.flow, (self.flow.path, id(self.node), name, index)
        if x is True and y is False:
            return self.condition
        dtype = flow.meet(x, y, self._clash(name, p, q))
        if is_literal(x) and is_literal(y):
            dtype = flow.decisions.dtypes.get(key, dtype)
        pair = []
        for side, v in zip(self.sides, (x, y), strict=True):
            with flow.inside(side.block):
                pair.append(flow.typed(v, dtype))
        place = self._pair(*pair)
        marks = [flow.weak.get(v) for v in (x, y) if isinstance(v, Value)]
        if all(marks):
            literal = x if isinstance(x, float) else y if is_literal(y) else x
            self.weak[place.index] = (literal, key, marks[0] if marks else None)
        return place

    def _join_tiles(self, name: str, p: Binding, q: Binding, x: Any, y: Any) -> Any:
        if isinstance(x, TileRef) and isinstance(y, TileRef) and x.cell is y.cell and x.path == y.path:
            return x
        some = y if x is ABSENT else x
        values = [
            self._zero_in(side, some.type) if ref is ABSENT else self._tile_in(side, ref)
            for side, ref in zip(self.sides, (x, y), strict=True)
        ]
        if values[0].type != values[1].type:
            raise self._clash(name, p, q)
        place = self._pair(*values)
        self.rivals += [(place.index, name, ref.cell) for ref in (x, y) if isinstance(ref, TileRef)]
        return place

    def _zero_in(self, side: Side, t: Type) -> Value:
        with self.flow.inside(side.block):
            return zero_of(t)

    def _tile_in(self, side: Side, ref: TileRef) -> Value:
        """The tile that a reference means at the end of a side."""
        with self.flow.inside(side.block):
            return ref.read(side.cells.get(ref.cell, ref.cell.value))

    def _pair(self, x: Value, y: Value) -> _Pending:
        kind: Type = x.type
        if isinstance(kind, ScalarType):
            kind = ScalarType(kind.dtype, any(is_varying(t) for t in (x.type, y.type, self.condition.type)))
        elif is_varying(self.condition.type):
            raise KernelSyntaxError(
                "a tile cannot depend on a condition that differs between lanes", loc=self.flow.loc(self.node),
                help="choose element by element with tg.where, or store it before the branch",
            )  # fmt: skip
        self.pairs.append((x, y, kind))
        return _Pending(len(self.pairs) - 1)

    def _build(self) -> tuple[Value, ...]:
        if not self.pairs and not any(side.block.ops for side in self.sides):
            return ()
        builder = self.flow.builder
        types = tuple(t for _, _, t in self.pairs)
        for i, side in enumerate(self.sides):
            with self.flow.inside(side.block):
                finish(builder, [as_type((x, y)[i], t) for x, y, t in self.pairs])
        regions = (self.sides[0].block, self.sides[1].block)
        return builder.insert(if_, (self.condition,), {}, regions, types, self.flow.loc(self.node)).results

    def _finish(self, merged: Names, results: tuple[Value, ...]) -> Names:
        flow = self.flow
        for index, (literal, key, mark) in self.weak.items():
            if mark is not None:
                flow.weak[results[index]] = mark
            else:
                flow.mark_weak(results[index], literal, key)
        values = [flow.new_tile(v) if isinstance(v.type, TileType) else v for v in results]
        names: Names = {}
        for name, entry in merged.items():
            if isinstance(entry, Binding):
                entry = Binding(_fill(entry.value, values), entry.loc)
            elif isinstance(entry, Partial):
                binding = Binding(_fill(entry.binding.value, values), entry.binding.loc)
                entry = Partial(binding, entry.flag, entry.when, entry.reason)
            names[name] = entry
        outer, flow.frame.names = flow.frame.names, names
        for index, name, cell in self.rivals:
            if other := flow.reachable(cell, name):
                line = flow.loc(self.node).line
                made = values[index]
                assert isinstance(made, TileRef)
                mine = "it" if name.startswith("%") else f"`{name}`"
                make_rivals(made.cell, cell, f"{mine} may or may not be the tile `{other}`, see line {line}")
        flow.frame.names = outer
        return names

    def _clash(self, name: str, p: Binding, q: Binding) -> TilegradError:
        if name == "%value":
            message, where = "the two sides of the expression have different types", ""
        elif name == "%result":
            message, where = "the function returns values of different types", f" (lines {p.loc.line} and {q.loc.line})"
        else:
            message, where = f"`{name}` has different types after the two branches", ""
        x, y = describe_value(p.value), describe_value(q.value)
        label = f"{x} (line {p.loc.line}), {y} (line {q.loc.line})" if not where else f"{x} and {y}{where}"
        return TypeMismatch(message, loc=self.flow.loc(self.node), label=label, help=_one_type(p.value, q.value))


def _one_type(x: Any, y: Any) -> str:
    """A way out for a variable that has two types."""
    for value in (y, x):
        if is_scalar(value):
            return f"a variable keeps one type; cast the other value, for example {value.type.dtype}(...)"
    if isinstance(x, TileRef) and isinstance(y, TileRef) and x.dtype != y.dtype:
        return f"a variable keeps one type; cast with tile_astype(..., dtype={x.dtype})"
    return "a variable keeps one type; use two names"


# --- loops ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slot:
    """One scalar or tile that a loop carries for a name."""

    name: str
    init: Any  # what the name held: a literal, a scalar, a TileRef; a Type for a name that the body binds first
    start: Value
    key: Key


class Carry:
    """The variables of one loop: `inits` go in, `enter` binds the arguments of a turn, `leave` gives the next ones."""

    def __init__(
        self,
        flow: Flow,
        node: ast.AST,
        entry: Names,
        mark: int,
        serial: int,
        names: frozenset[str],
        live: frozenset[str],
        cells: Sequence[Cell],
        grown: dict[str, Any],
        sure: bool,
    ) -> None:
        self.flow = flow
        self.node = node
        self.entry = entry
        self.mark = mark
        self.serial = serial
        self.sure = sure
        self.cells = list(cells)
        self.grown = grown
        self.live = live
        self.slots: list[_Slot] = []
        self.trees: dict[str, Any] = {}
        self.partial: dict[str, Partial] = {}
        #: slots that end a turn as a tile that exists outside of the loop
        self.outside: dict[int, Cell] = {}
        #: the cells that the tiles of slots have in the present turn, and the ones that they end it with
        self.begun: dict[int, Cell] = {}
        self.ended: dict[int, tuple[str, Cell]] = {}
        #: why a name that the body assigns has no value at the end of a turn
        self.missing: dict[str, str] = {}
        self.assigned = sorted(n for n in names if n.startswith("%") or n in live)
        for name in self.assigned:
            binding = flow.frame.resolve(entry.get(name))
            if binding is not None:
                self.trees[name] = self._tree(name, binding.value, 0)
            elif name in grown:
                self.trees[name] = self._tree(name, grown[name], 0)

    def _tree(self, name: str, x: Any, index: int) -> Any:
        if isinstance(x, tuple):
            return rebuilt(x, [self._tree(name, item, index * 16 + i + 1) for i, item in enumerate(x)])
        key = (self.flow.path, id(self.node), name, index)
        if is_literal(x):
            start = self.flow.from_literal(x, key)
        elif isinstance(x, (ScalarType, TileType)):
            start = zero_of(x)
        elif is_scalar(x):
            start = x
        elif isinstance(x, TileRef):
            start = x.value
        else:
            return x
        self.slots.append(_Slot(name, x, start, key))
        return _Pending(len(self.slots) - 1)

    @property
    def inits(self) -> list[Value]:
        return [slot.start for slot in self.slots] + [cell.value for cell in self.cells]

    def enter(self, args: Sequence[Value]) -> None:
        """The state at the start of a turn whose carried values are `args`."""
        flow = self.flow
        flow.journal.rollback(self.mark)
        flow.frame.names = dict(self.entry)
        line = flow.loc(self.node).line
        for name in self.assigned:
            if name not in self.trees or name in self.grown:
                flow.frame.names[name] = Unbound(f"the loop is in its first turn (line {line})")
        self._bind(args)

    def _bind(self, args: Sequence[Value]) -> None:
        flow = self.flow
        values: list[Any] = []
        for slot, arg in zip(self.slots, args, strict=False):
            if slot.start in flow.weak:
                flow.weak[arg] = flow.weak[slot.start]
            if isinstance(arg.type, TileType):
                flow.presence.origins[arg] = slot.start
                ref = self._new_tile(slot, arg)
                self.begun[len(values)] = ref.cell
                values.append(ref)
            else:
                values.append(arg)
        for name, tree in self.trees.items():
            if name not in self.grown:
                old = self.entry.get(name)
                flow.frame.names[name] = Binding(
                    _fill(tree, values), old.loc if isinstance(old, Binding) else Loc("", 0)
                )
        for cell, arg in zip(self.cells, args[len(self.slots) :], strict=True):
            flow.presence.origins[arg] = cell.value
            cell.set(arg)

    def _new_tile(self, slot: _Slot, arg: Value) -> TileRef:
        ref = self.flow.new_tile(arg)
        other = self.flow.reachable(slot.init.cell, slot.name) if isinstance(slot.init, TileRef) else None
        if other is not None:
            line = self.flow.loc(self.node).line
            reason = f"in the first turn of the loop (line {line}) `{slot.name}` is `{other}`, later it is not"
            make_rivals(ref.cell, slot.init.cell, reason)
        return ref

    def leave(self) -> list[Value]:
        """The carried values at the end of a turn; raises _Grow if more has to be carried."""
        flow = self.flow
        changed = flow.journal.changed(self.mark, self.serial)
        more = [c for c in changed if c not in self.cells]
        names, by_calls = self._newly_bound(), self.changed_by_calls()
        if more or names or by_calls:
            raise _Grow(more, names, by_calls)
        values: list[Any] = [None] * len(self.slots)
        for name, tree in self.trees.items():
            entry = flow.frame.names.get(name)
            binding = flow.frame.resolve(entry)
            if binding is None and isinstance(entry, Partial):
                self.partial[name] = entry
                binding = entry.binding
            if binding is None:
                if is_flag(name):
                    binding = Binding(False)
                else:
                    reason = entry.reason if isinstance(entry, Unbound) else "the turn ends"
                    flow.fail(self.node, f"`{name}` has no value at the end of a turn of the loop when {reason}")
            self._end(name, tree, binding, binding.value, changed, values)
        self._require_distinct()
        return values + [cell.value for cell in self.cells]

    def changed_by_calls(self) -> frozenset[str]:
        """Live names that are not assigned in the body, and yet are no longer what they were before the loop."""
        found, names = set(), self.flow.frame.names
        for name in self.live - set(self.assigned):
            before, now = self.entry.get(name), names.get(name)
            if isinstance(before, Binding) and isinstance(now, Binding):
                pairs = zip(_flat(before.value), _flat(now.value), strict=False)
                found |= {name} if any(x is not y for x, y in pairs) else set()
        return frozenset(found)

    def _require_distinct(self) -> None:
        """A tile that a turn writes in place must not have become another name of a tile in the turn before."""
        written = {cell for cell, _ in self.flow.journal.entries[self.mark :]}
        owners: dict[Cell, int] = {}
        for index, (name, cell) in self.ended.items():
            twin = owners.setdefault(cell, index)
            mine = {self.begun.get(index), self.begun.get(twin)}
            shared = index in self.outside or twin != index
            if cell is not self.begun.get(index) and shared and written & mine:
                self.flow.fail(
                    self.node,
                    f"`{name}` becomes another name of an existing tile in the loop, and is written in place",
                    help=f"write {name} = tg.copy(...) where it gets the other tile",
                )  # fmt: skip

    def _newly_bound(self) -> dict[str, Any]:
        """Names that have no value before the loop and are sure to have one after it, with types in their place."""
        found = {}
        for name in self.assigned:
            entry = self.flow.frame.names.get(name)
            if isinstance(entry, (Partial, Unbound)):
                self.missing[name] = entry.reason
            if name in self.trees or not isinstance(entry, (Binding, Partial)):
                continue
            whole = self.flow.frame.resolve(entry)
            if whole is not None and self.sure:
                found[name] = _types(whole.value)
            elif isinstance(entry, Partial) and entry.when and entry.flag in self.trees:
                found[name] = _types(entry.binding.value)
        return found

    def _end(self, name: str, tree: Any, binding: Binding, x: Any, changed: list[Cell], values: list[Any]) -> None:
        if isinstance(tree, tuple):
            if not same_sort(tree, x):
                raise self._clash(name, binding)
            for part, item in zip(tree, x, strict=True):
                self._end(name, part, binding, item, changed, values)
        elif not isinstance(tree, _Pending):
            if not same_static(tree, x):
                raise self._clash(name, binding)
        elif isinstance(self.slots[tree.index].start.type, TileType):
            values[tree.index] = self._end_tile(name, self.slots[tree.index], binding, x, changed)
            self.ended[tree.index] = (name, x.cell)
            if x.cell.serial < self.serial:
                self.outside[tree.index] = x.cell
        else:
            values[tree.index] = self._end_scalar(name, self.slots[tree.index], binding, x)

    def _end_scalar(self, name: str, slot: _Slot, binding: Binding, x: Any) -> Value:
        if not is_literal(x) and not is_scalar(x):
            raise self._clash(name, binding)
        dtype = self.flow.meet(slot.start, x, self._clash(name, binding))
        return self.flow.typed(x, dtype)

    def _end_tile(self, name: str, slot: _Slot, binding: Binding, x: Any, changed: list[Cell]) -> Value:
        if not isinstance(x, TileRef) or x.type != slot.start.type:
            raise self._clash(name, binding)
        if x.cell in changed and x.cell is not getattr(slot.init, "cell", None):
            other = self.flow.reachable(x.cell, name)
            if other is not None:
                self.flow.fail(
                    self.node, f"`{name}` becomes another name of `{other}`, which the loop writes in place",
                    label=f"see line {binding.loc.line}", help=f"write {name} = tg.copy({other})",
                )  # fmt: skip
        return x.value

    def finish(self, results: Sequence[Value]) -> None:
        """The state after the loop."""
        flow, grown = self.flow, self.grown
        line = flow.loc(self.node).line
        values: list[Any] = []
        for slot, value in zip(self.slots, results, strict=False):
            if slot.start in flow.weak:
                flow.weak[value] = flow.weak[slot.start]
            values.append(flow.new_tile(value) if isinstance(value.type, TileType) else value)
        for cell, value in zip(self.cells, results[len(self.slots) :], strict=True):
            cell.set(value)
        for name in self.assigned:
            if name not in self.trees:
                idle = f"the loop at line {line} does not run at all"
                flow.frame.names[name] = Unbound(self.missing.get(name, idle) if self.sure else idle)
                continue
            made = Binding(_fill(self.trees[name], values), flow.loc(self.node))
            half = self.partial.get(name)
            if half is not None and name in grown:
                left = "broken" in half.flag
                reason = f"the loop at line {line} is not left by break" if left else half.reason
                flow.frame.names[name] = Partial(made, half.flag, half.when, reason)
            else:
                flow.frame.names[name] = made
        self._note_rivals(values, line)

    def _note_rivals(self, values: Sequence[Any], line: int) -> None:
        """After the loop a tile may still be one that other names mean, if the loop ran or if it did not."""
        for i, (slot, made) in enumerate(zip(self.slots, values, strict=True)):
            sources = [getattr(slot.init, "cell", None), self.outside.get(i)]
            for cell in sources:
                other = self.flow.reachable(cell, slot.name) if cell is not None else None
                if cell is not None and other is not None and isinstance(made, TileRef):
                    reason = f"`{slot.name}` may or may not be the tile `{other}` after the loop at line {line}"
                    make_rivals(made.cell, cell, reason)

    def _clash(self, name: str, binding: Binding) -> TilegradError:
        old = self.entry.get(name)
        before = old.value if isinstance(old, Binding) else None
        line = old.loc.line if isinstance(old, Binding) and old.loc.line else self.flow.loc(self.node).line
        x, y = describe_value(before), describe_value(binding.value)
        loc = binding.loc if binding.loc.line else self.flow.loc(self.node)
        return TypeMismatch(
            f"`{name}` changes its type in a loop: before the loop it is {x} (line {line}), "
            f"after a turn it is {y} (line {loc.line})",
            loc=loc, label=f"`{name}` becomes {y}", help=_one_type(before, binding.value),
        )  # fmt: skip


def _types(x: Any) -> Any:
    """A tree of values with scalars and tiles replaced by their types."""
    if isinstance(x, tuple):
        return rebuilt(x, [_types(item) for item in x])
    if isinstance(x, (TileRef, Value)):
        return x.type
    return x
