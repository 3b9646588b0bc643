"""Variables of a kernel while it is traced: names, tiles as cells, and the journal that undoes writes.

A number is a Python literal or an IR scalar and is copied when it is assigned. A tile lives in a `Cell`; a name holds
a `TileRef`, that is the cell and the view operations that lead from the cell's tile to what the name means. A write
through any reference gives the cell a new value, so that every other reference sees it; nothing in the IR changes.
Does not know Python syntax or how control flow merges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tilegrad.composite import Composite, first_leaf, is_struct
from tilegrad.diagnostics import (
    UNKNOWN,
    KernelSyntaxError,
    Loc,
    ShapeMismatch,
    TypeMismatch,
)
from tilegrad.dtypes import DType
from tilegrad.frontend.liveness import Liveness
from tilegrad.frontend.source import Source
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.core import Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type
from tilegrad.op import describe
from tilegrad.ops.declared import TileStack


class Journal:
    """Every change of a cell since the trace began, so that a branch can be left as if it had never been entered."""

    def __init__(self) -> None:
        self.entries: list[tuple[Cell, Value]] = []
        self.serial = 0

    def mark(self) -> int:
        return len(self.entries)

    def rollback(self, mark: int) -> None:
        while len(self.entries) > mark:
            cell, old = self.entries.pop()
            cell.value = old

    def changed(self, mark: int, serial: int) -> list[Cell]:
        """The cells older than `serial` that were written since `mark`, in order of their first write."""
        return list(dict.fromkeys(cell for cell, _ in self.entries[mark:] if cell.serial < serial))


class Cell:
    """A tile that may be written: its current value, and the cells that may or may not be the same tile."""

    __slots__ = ("journal", "rivals", "serial", "value")

    def __init__(self, journal: Journal, value: Value) -> None:
        self.journal = journal
        self.value = value
        self.serial = journal.serial
        self.rivals: list[tuple[Cell, str]] = []
        journal.serial += 1

    def set(self, value: Value) -> None:
        self.journal.entries.append((self, self.value))
        self.value = value


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One view operation on the way from a cell to a reference."""

    definition: OpDef
    operands: tuple[Value, ...]
    attrs: dict[str, Any]

    def apply(self, base: Value) -> Value:
        value: Value = self.definition(base, *self.operands, **self.attrs)
        return value

    def write(self, base: Value, new: Value) -> Value:
        if self.definition.writeback is None:
            raise TypeMismatch(f"a tile cannot be written through {self.definition.name}")
        value: Value = self.definition.writeback(base, new, *self.operands, **self.attrs)
        return value


class TileRef:
    """What a tile variable holds: a cell and the views on it. Ops take it wherever they take a tile."""

    __slots__ = ("_cached", "cell", "path")

    def __init__(self, cell: Cell, path: tuple[Step, ...] = ()) -> None:
        self.cell = cell
        self.path = path
        self._cached: tuple[Any, Any, Value] | None = None

    @property
    def value(self) -> Value:
        """The tile's current value."""
        return self.read(self.cell.value)

    @property
    def type(self) -> TileType:
        kind = self.value.type
        assert isinstance(kind, TileType)
        return kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def size(self) -> int:
        return self.type.size

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, base: Value) -> Value:
        """The value of this reference if the cell held `base`; the views are emitted where they are needed."""
        if not self.path:
            return base
        builder = ir_builder.current()
        if builder is None:
            return self._apply(base, None)
        with builder.ashore(base, *(v for step in self.path for v in step.operands)):
            return self._apply(base, builder.block)

    def _apply(self, base: Value, block: Any) -> Value:
        if self._cached and self._cached[0] is base and self._cached[1] is block:
            return self._cached[2]
        value = base
        for step in self.path:
            value = step.apply(value)
        self._cached = (base, block, value)
        return value

    def remember(self, base: Value, value: Value) -> None:
        """Note that the views on `base` are already there, as `value`, in the block that is being built."""
        builder = ir_builder.current()
        self._cached = (base, builder.block if builder else None, value)

    def assign(self, new: Any) -> None:
        """Give the tile a new value of the same type; through views, the parts of the base that they show."""
        value: Value = getattr(new, "value", new) if not isinstance(new, Value) else new
        self._require_same_type(value)
        self._require_single()
        bases = [self.cell.value]
        for step in self.path[:-1]:
            bases.append(step.apply(bases[-1]))
        for step, base in zip(reversed(self.path), reversed(bases), strict=False):
            value = step.write(base, value)
        self.cell.set(value)

    def _require_same_type(self, value: Value) -> None:
        mine, new = self.type, value.type
        if not isinstance(new, TileType) or new.dtype != mine.dtype:
            raise TypeMismatch(
                f"a tile keeps its type when it is written: it is {describe(mine)}, the new value is {describe(new)}",
                help=f"cast the new value with tile_astype(..., dtype={mine.dtype})",
            )
        if new.shape != mine.shape:
            raise ShapeMismatch(
                f"a tile keeps its shape when it is written: it is {mine.shape}, the new value is {new.shape}"
            )

    def _require_single(self) -> None:
        for _, reason in self.cell.rivals:
            raise KernelSyntaxError(
                f"this tile cannot be written in place: {reason}", help="write to a copy(...) of the tile instead"
            )


def make_rivals(a: Cell, b: Cell, reason: str) -> None:
    """Note that two cells may be the same tile at run time, so that neither may be written in place."""
    if a is not b:
        a.rivals.append((b, reason))
        b.rivals.append((a, reason))


# --- names ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Binding:
    """What a name means, and the line that said so."""

    value: Any
    loc: Loc = UNKNOWN


@dataclass(frozen=True, slots=True)
class Partial:
    """A binding that holds only where the hidden flag `flag` is `when`: elsewhere the path was left before."""

    binding: Binding
    flag: str
    when: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Unbound:
    """A name that has no value here, and the path on which it lacks one."""

    reason: str


Entry = Binding | Partial | Unbound

RETURNED = "%returned"
RESULT = "%result"


@dataclass(eq=False)
class Frame:
    """One activation of a kernel or of an inlined function."""

    source: Source
    name: str
    #: names assigned anywhere in the function, which are therefore local
    local: frozenset[str]
    #: the value of a name that is not local; raises function.Missing
    lookup: Callable[[str], Any]
    liveness: Liveness
    called_from: Loc | None = None
    names: dict[str, Entry] = field(default_factory=dict)
    #: flags of the loops around the current statement, innermost last: (broken, continued)
    loops: list[tuple[str, str]] = field(default_factory=list)
    #: names that are live wherever those loops may go next
    loop_live: list[frozenset[str]] = field(default_factory=list)
    function: Any = None

    def flag(self, name: str) -> Any:
        """The value of a hidden flag: False, True, or an IR bool."""
        entry = self.names.get(name)
        return entry.value if isinstance(entry, Binding) else False

    def set_flag(self, name: str, value: Any) -> None:
        self.names[name] = Binding(value)

    def close_flag(self, name: str) -> None:
        """Forget a flag; names that hold only on one side of it are bound or unbound from now on."""
        for key, entry in self.names.items():
            if isinstance(entry, Partial) and entry.flag == name:
                self.names[key] = self.resolve(entry) or Unbound(entry.reason)
        self.names.pop(name, None)

    def flags(self) -> Iterable[str]:
        """The flags that, when set, end the current statement list."""
        yield RETURNED
        for pair in self.loops[-1:]:
            yield from pair

    def resolve(self, entry: Entry | None) -> Binding | None:
        """The binding if it holds here, given what is known of the flags."""
        if isinstance(entry, Partial):
            known = self.flag(entry.flag)
            return entry.binding if known is entry.when else None
        return entry if isinstance(entry, Binding) else None


def describe_value(x: Any) -> str:
    """A value of a variable in the user's terms."""
    if isinstance(x, TileRef):
        return describe(x.type)
    if isinstance(x, Value):
        return describe(x.type)
    if isinstance(x, Composite):
        return describe_composite(x)
    if isinstance(x, TileStack):
        return repr(x)
    if isinstance(x, tuple):
        return f"a tuple of {len(x)}"
    if isinstance(x, (bool, int, float)):
        return f"the literal {x!r}"
    return repr(x)


def describe_composite(x: Composite) -> str:
    """A composite value in the user's terms: a vec3f, or a tile or an array of them."""
    t = getattr(first_leaf(x), "type", None)
    if isinstance(t, TileType):
        return f"a {x.kind} tile {t.shape}"
    if isinstance(t, ArrayType) and not is_struct(x):
        return f"a {t.ndim}-D array of {x.kind}"
    return f"a {x.kind}"


def is_literal(x: Any) -> bool:
    return isinstance(x, (bool, int, float))


def is_scalar(x: Any) -> bool:
    return isinstance(x, Value) and isinstance(x.type, ScalarType)


def is_array(x: Any) -> bool:
    return isinstance(x, Value) and isinstance(x.type, ArrayType)


def scalar_type(x: Value) -> ScalarType:
    kind: Type = x.type
    assert isinstance(kind, ScalarType)
    return kind
