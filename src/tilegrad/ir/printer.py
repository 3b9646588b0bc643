"""Kernels as text that a person can read and `parser` can read back.

    kernel scale(%a: array<float32,1>, %s: float32) block_dim=64 grid=1 tiled {
      %0 = constant() {value=0, dtype=int32} : int32
      %1 = tile_load(%a, %0) {fill=0, shape=(64,)} : float32[64]
      %2 = tile_full(%s) {shape=(64,)} : float32[64]
      %3 = mul(%1, %2) : float32[64]
      tile_store(%a, %3, %0)
      yield()
    }

Values are named after what they hold, made unique by a number. Attributes are sorted by name and spelled as in Python;
element types by their name, types of values with a colon before them. Floats are exact. Does not check the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tilegrad.diagnostics import UNKNOWN, Loc
from tilegrad.dtypes import DType
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType


def to_text(kernel: Kernel, *, locs: bool = False, mark: Op | None = None) -> str:
    """The text of a kernel.

    Args:
        locs: whether every op is followed by its source location.
        mark: an op whose line gets an arrow.
    """
    return "\n".join(_Printer(locs, mark).kernel(kernel)) + "\n"


def format_attr(x: Any) -> str:
    """The text of an attribute."""
    if isinstance(x, DType):
        return x.name
    if isinstance(x, (ScalarType, TileType, ArrayType, StackType)):
        return f":{x}"
    if isinstance(x, tuple):
        return f"({', '.join(map(format_attr, x))}{',' if len(x) == 1 else ''})"
    if isinstance(x, Loc):
        return f"loc{format_attr(_loc_fields(x))}"
    return repr(x)


def _loc_fields(x: Loc) -> tuple[Any, ...]:
    fields: tuple[Any, ...] = (x.file, x.line, x.column, x.end_column, x.function, x.text)
    return fields if x.called_from is None else (*fields, x.called_from)


class _Printer:
    def __init__(self, locs: bool, mark: Op | None) -> None:
        self.locs = locs
        self.mark = mark
        self.names: dict[Value, str] = {}
        self.taken: dict[str, int] = {}
        self.count = 0

    def kernel(self, k: Kernel) -> Iterator[str]:
        params = ", ".join(map(self.typed, k.params))
        flags = f"{' tiled' if k.tiled else ''}{' descending' if k.descending else ''}"
        facts = f"block_dim={k.block_dim} grid={k.grid_ndim}{flags}"
        overlaps = f" overlaps={format_attr(k.overlaps)}" if k.overlaps else ""
        yield f"kernel {k.name}({params}) {facts}{overlaps}{self.loc(k.loc)} {{"
        yield from self.block(k.body, 1)
        yield "}"

    def block(self, block: Block, depth: int) -> Iterator[str]:
        for op in block.ops:
            yield from self.op(op, depth)

    def op(self, op: Op, depth: int) -> Iterator[str]:
        arrow = "->" if op is self.mark else "  "
        results = ", ".join(map(self.name, op.results))
        operands = ", ".join(self.names.get(v, "%undefined") for v in op.operands)
        attrs = ", ".join(f"{k}={format_attr(x)}" for k, x in sorted(op.attrs.items()))
        line = f"{results} = " if results else ""
        line += f"{op.name}({operands})" + (f" {{{attrs}}}" if attrs else "")
        line += f" : {', '.join(str(v.type) for v in op.results)}" if results else ""
        pad = arrow + "  " * (depth - 1)
        yield pad + line + self.loc(op.loc) + self.opening(op)
        for k, region in enumerate(op.regions):
            if k:
                yield "  " * depth + "}" + self.arguments(region)
            yield from self.block(region, depth + 1)
        if op.regions:
            yield "  " * depth + "}"

    def opening(self, op: Op) -> str:
        return self.arguments(op.regions[0]) if op.regions else ""

    def arguments(self, region: Block) -> str:
        return f" ({', '.join(map(self.typed, region.args))}) {{" if region.args else " {"

    def typed(self, v: Value) -> str:
        return f"{self.name(v)}: {v.type}"

    def loc(self, loc: Loc) -> str:
        return f" {format_attr(loc)}" if self.locs and loc != UNKNOWN else ""

    def name(self, v: Value) -> str:
        """A new name for a value that is being defined."""
        stem = re.sub(r"\W", "_", v.name)
        if not stem or stem[0].isdigit():
            name = str(self.count)
            self.count += 1
        else:
            again = self.taken.get(stem, 0)
            self.taken[stem] = again + 1
            name = f"{stem}.{again}" if again else stem
        self.names[v] = f"%{name}"
        return self.names[v]
