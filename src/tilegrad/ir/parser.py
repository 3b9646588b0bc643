"""Reads the text that `printer` writes; the tests of passes and of the schedule are written in it.

Grammar (`[x]` may be missing, `x*` is a list with commas):

    kernel   = "kernel" name "(" param* ")" "block_dim=" int "grid=" int ["tiled"] ["overlaps=" attr] [loc] region
    op       = [value* "="] name "(" value* ")" ["{" (name "=" attr)* "}"] [":" type*] [loc] [region (region)*]
    region   = ["(" param* ")"] "{" op... "}"
    param    = value ":" type

Names of values keep their stem (`%acc.2` is called `acc`). `#` starts a comment. Does not check more than the form:
see `verify`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilegrad.diagnostics import UNKNOWN, Loc, TilegradError
from tilegrad.dtypes import BY_NAME, DType
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<skip>(?:\s|\#[^\n]*)+)
      | (?P<value>%[\w.]+)
      | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf\b|nan\b))
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
      | (?P<name>[A-Za-z_]\w*)
      | (?P<mark>->|[(){}\[\]<>:;,=*])""",
    re.VERBOSE,
)
_WORDS = {"True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def parse(text: str, ops: Mapping[str, OpDef]) -> Kernel:
    """The kernel that a text describes.

    Args:
        text: one kernel.
        ops: the operations by name, usually `op.REGISTRY`.

    Raises: TilegradError that shows the line that is not understood.
    """
    return _Parser(text, ops).kernel()


class _Parser:
    def __init__(self, text: str, ops: Mapping[str, OpDef]) -> None:
        self.text = text
        self.ops = ops
        self.values: dict[str, Value] = {}
        self.tokens = self._tokens()
        self.at = 0

    # --- tokens

    def _tokens(self) -> list[tuple[str, str, int]]:
        found, place = [], 0
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if match is None:
                raise self.error("this is not understood", place)
            kind = match.lastgroup or ""
            if kind != "skip" and match.group() != "->":
                found.append((kind, match.group(), place))
            place = match.end()
        return [*found, ("end", "", place)]

    def error(self, message: str, place: int | None = None) -> TilegradError:
        start = self.tokens[self.at][2] if place is None else place
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1)
        text = (self.text.splitlines() or [""])[min(line, len(self.text.splitlines())) - 1]
        return TilegradError(f"Tile IR text: {message}", loc=Loc("<text>", line, column, column + 1, text=text))

    def peek(self, *wanted: str) -> bool:
        kind, token, _ = self.tokens[self.at]
        return kind != "string" and token in wanted

    def take(self, wanted: str) -> bool:
        """Step over a token if it is there."""
        if not self.peek(wanted):
            return False
        self.at += 1
        return True

    def need(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.error(f"expected `{wanted}`, found `{self.tokens[self.at][1] or 'the end'}`")

    def kind(self, wanted: str) -> str:
        kind, token, _ = self.tokens[self.at]
        if kind != wanted:
            raise self.error(f"expected a {wanted}, found `{token or 'the end'}`")
        self.at += 1
        return token

    def listed(self, item: Callable[[], T], end: str) -> list[T]:
        """Items with commas between them (and perhaps after), up to `end`."""
        items: list[T] = []
        while not self.take(end):
            items.append(item())
            if not self.take(","):
                self.need(end)
                break
        return items

    # --- structure

    def kernel(self) -> Kernel:
        self.need("kernel")
        name = self.kind("name")
        self.need("(")
        body = Block(tuple(self.numbered(self.listed(self.param, ")"))))
        block_dim, grid = self.fact("block_dim"), self.fact("grid")
        tiled, descending = self.take("tiled"), self.take("descending")
        overlaps = self.fact("overlaps") if self.peek("overlaps") else ()
        loc = self.loc()
        self.need("{")
        self.fill(body)
        return Kernel(name, body, block_dim, grid, tiled, loc, overlaps, descending)

    def fact(self, name: str) -> Any:
        self.need(name)
        self.need("=")
        return self.attr()

    def numbered(self, values: list[Value]) -> list[Value]:
        for i, v in enumerate(values):
            v.index = i
        return values

    def param(self) -> Value:
        name = self.kind("value")
        self.need(":")
        return self.bind(name, Value(self.type()))

    def bind(self, name: str, v: Value) -> Value:
        if name in self.values:
            raise self.error(f"{name} is defined twice")
        stem = name[1:].split(".")[0]
        v.name = "" if stem[0].isdigit() else stem
        self.values[name] = v
        return v

    def fill(self, block: Block) -> None:
        while not self.take("}"):
            block.ops.append(self.op())

    def region(self) -> Block:
        args = self.listed(self.param, ")") if self.take("(") else []
        block = Block(tuple(self.numbered(args)))
        self.need("{")
        self.fill(block)
        return block

    def op(self) -> Op:
        names = []
        while self.tokens[self.at][0] == "value":
            names.append(self.kind("value"))
            if not self.take(","):
                self.need("=")
                break
        name = self.kind("name")
        if name not in self.ops:
            raise self.error(f"there is no op `{name}`", self.tokens[self.at - 1][2])
        self.need("(")
        operands = tuple(self.listed(self.value, ")"))
        attrs = dict(self.listed(self.named_attr, "}")) if self.opens_attrs() and self.take("{") else {}
        types = self.result_types(len(names))
        loc = self.loc()
        regions = []
        while self.peek("(", "{"):
            regions.append(self.region())
        op = Op(self.ops[name], operands, attrs, tuple(regions), types, loc)
        for result_name, v in zip(names, op.results, strict=True):
            self.bind(result_name, v)
        return op

    def result_types(self, count: int) -> tuple[Type, ...]:
        types = [self.type()] if self.take(":") else []
        while types and self.take(","):
            types.append(self.type())
        if len(types) != count:
            raise self.error(f"{count} results, but {len(types)} types")
        return tuple(types)

    def opens_attrs(self) -> bool:
        """Whether a brace that opens attributes comes next: after it stands `name =`, in a region `name (`."""
        brace, name, equals = (self.tokens[min(self.at + k, len(self.tokens) - 1)] for k in range(3))
        return brace[1] == "{" and name[0] == "name" and equals[1] == "="

    def value(self) -> Value:
        name = self.kind("value")
        if name not in self.values:
            raise self.error(f"{name} is not defined", self.tokens[self.at - 1][2])
        return self.values[name]

    def loc(self) -> Loc:
        return self.attr() if self.peek("loc") else UNKNOWN

    # --- attributes and types

    def named_attr(self) -> tuple[str, Any]:
        name = self.kind("name")
        self.need("=")
        return name, self.attr()

    def attr(self) -> Any:
        kind, token, _ = self.tokens[self.at]
        if self.take(":"):
            return self.type()
        if self.take("("):
            return tuple(self.listed(self.attr, ")"))
        self.at += 1
        if kind == "number":
            return int(token) if token.lstrip("-").isdigit() else float(token)
        if kind == "string":
            return _ESCAPE.sub(_unescape, token[1:-1])
        if token == "loc":
            return Loc(*self.attr())
        if token in _WORDS:
            return _WORDS[token]
        if token in BY_NAME:
            return BY_NAME[token]
        raise self.error(f"`{token}` is not an attribute", self.tokens[self.at - 1][2])

    def type(self) -> Type:
        name = self.kind("name")
        if name == "array":
            return self.array_type()
        if name == "stack":
            return self.stack_type()
        dtype = self.dtype(name)
        if self.take("["):
            return TileType(dtype, tuple(self.listed(self.extent, "]")))
        return ScalarType(dtype, self.take("*"))

    def array_type(self) -> Type:
        self.need("<")
        dtype = self.dtype(self.kind("name"))
        self.need(",")
        ndim = self.extent()
        dense = self.take(",")
        if dense:
            self.need("dense")
        self.need(">")
        return ArrayType(dtype, ndim, dense)

    def stack_type(self) -> Type:
        self.need("<")
        items: list[Any] = []
        while not self.take(">"):
            items.append(self.type())
            self.take(";")
        return StackType(tuple(items), self.take("*"))

    def dtype(self, name: str) -> DType:
        if name not in BY_NAME:
            raise self.error(f"`{name}` is not an element type", self.tokens[self.at - 1][2])
        return BY_NAME[name]

    def extent(self) -> int:
        return int(self.kind("number"))


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)
