"""The nodes of Tile IR: values, operations, blocks, kernels.

Static single assignment with structured control flow: an op may hold regions, each one `Block` that ends in a
`yield`. Nodes are never changed once built; a pass makes a new kernel (see `rewrite`). What an op *means* is in its
`OpDef`, not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilegrad.diagnostics import UNKNOWN, Loc
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import Type


class Value:
    """The result of an op, or an argument of a block (`op` is None)."""

    __slots__ = ("index", "name", "op", "type")

    def __init__(self, type: Type, name: str = "", op: Op | None = None, index: int = 0) -> None:
        self.type = type
        self.name = name
        self.op = op
        self.index = index

    def __repr__(self) -> str:
        return f"<{self.name or 'value'}: {self.type}>"

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("an IR value has no truth value while a kernel is being traced")


class Op:
    """One operation: operands are values, attributes are compile-time constants, regions are nested blocks."""

    __slots__ = ("attrs", "definition", "loc", "operands", "regions", "results")

    def __init__(
        self,
        definition: OpDef,
        operands: tuple[Value, ...],
        attrs: dict[str, Any],
        regions: tuple[Block, ...],
        types: tuple[Type, ...],
        loc: Loc = UNKNOWN,
    ) -> None:
        self.definition = definition
        self.operands = operands
        self.attrs = attrs
        self.regions = regions
        self.loc = loc
        self.results = tuple(Value(t, op=self, index=i) for i, t in enumerate(types))

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def result(self) -> Value:
        """The only result of an op that has one."""
        (value,) = self.results
        return value

    def __repr__(self) -> str:
        return f"<{self.name} {self.attrs or ''}>"


@dataclass(eq=False, slots=True)
class Block:
    """A list of ops with arguments; the last op is `yield`, whose operands are the block's results."""

    args: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=list)

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    @property
    def yields(self) -> tuple[Value, ...]:
        return self.ops[-1].operands

    def walk(self) -> Iterator[Op]:
        """Every op of this block and of the regions inside it, in order, outer before inner."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(eq=False, slots=True)
class Kernel:
    """A program for one block of a launch.

    `grid_ndim` is the rank of the launch's dim; `tiled` tells `launch_tiled` (dim counts blocks) from `launch` (dim
    counts threads, cut into blocks of `block_dim` lanes). `overlaps` has a number for each parameter, and arrays with
    equal numbers may share memory; empty means that no two do. The blocks of a `descending` kernel take their turns
    from the last to the first.
    """

    name: str
    body: Block
    block_dim: int = 1
    grid_ndim: int = 1
    tiled: bool = True
    loc: Loc = UNKNOWN
    overlaps: tuple[int, ...] = ()
    descending: bool = False

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.args

    def memory(self, array: Value) -> int:
        """A number for the memory that an array value is a part of; different numbers never overlap."""
        while array.op is not None:
            array = array.op.operands[0]
        return self.overlaps[array.index] if self.overlaps else array.index


def free_values(block: Block) -> list[Value]:
    """The values that a region uses but does not define, in order of first use."""
    defined: set[Value] = set()
    free: dict[Value, None] = {}

    def visit(b: Block) -> None:
        defined.update(b.args)
        for op in b.ops:
            for v in op.operands:
                if v not in defined:
                    free.setdefault(v)
            for region in op.regions:
                visit(region)
            defined.update(op.results)

    visit(block)
    return list(free)
