"""What random programs have used so far: public names, IR operations by dtype and rank, and control flow.

Templates that were written less often weigh more, so the grammar comes to them. Does not write programs.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilegrad.ir import core
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type
from tilegrad.ops.catalog import PUBLIC

CONSTRUCTS = (
    "if", "elif", "else", "for", "for with step", "for downwards", "static for", "while", "while true", "break",
    "continue", "early return", "ternary", "and", "or", "not", "chained comparison", "augmented assignment",
    "function", "function of tiles", "lambda", "tuple carried by a loop", "tile carried by a loop",
    "scalar carried by a loop", "vector carried by a loop", "struct carried by a loop", "alias", "view",
    "slice written", "element written", "member written", "for else",
)  # fmt: skip


@dataclass
class Coverage:
    """Counts; adding two adds them."""

    templates: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    #: (operation, dtype, rank) -> number of programs
    operations: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def weight(self, template: str) -> float:
        return float(1 / (1 + self.templates[template]))

    def wrote(self, template: str) -> None:
        self.templates[template] += 1

    def add(self, other: Coverage) -> None:
        for mine, theirs in zip(self._all(), other._all(), strict=True):
            mine.update(theirs)

    def _all(self) -> tuple[Counter[Any], ...]:
        return self.templates, self.names, self.constructs, self.operations

    def note_text(self, text: str) -> None:
        """Public names that a program calls."""
        self.names.update(set(re.findall(r"\btg\.(\w+)", text)))
        self.constructs.update(set(found_constructs(ast.parse(text))))

    def note_kernels(self, kernels: list[core.Kernel]) -> None:
        self.operations.update({key for k in kernels for key in _operations(k)})

    def missing(self) -> tuple[list[str], list[str]]:
        """Public names and constructs that no program has used."""
        return sorted(set(PUBLIC) - set(self.names)), [c for c in CONSTRUCTS if not self.constructs[c]]


def _operations(kernel: core.Kernel) -> Iterator[tuple[str, str, int]]:
    for op in _walk(kernel.body):
        types = [v.type for v in (*op.results, *op.operands)]
        dtype, rank = _kind(types[0]) if types else ("", 0)
        yield op.definition.name, dtype, rank


def _walk(block: core.Block) -> Iterator[core.Op]:
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from _walk(region)


def _kind(t: Type) -> tuple[str, int]:
    if isinstance(t, (TileType, ArrayType)):
        return str(t.dtype), len(t.shape) if isinstance(t, TileType) else 0
    if isinstance(t, (ScalarType, StackType)):
        return str(getattr(t, "dtype", "")), 0
    return "", 0


def found_constructs(tree: ast.Module) -> Iterator[str]:
    """The control flow of the kernels and functions of a program."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name != "program":
            tiles = any(isinstance(p.annotation, ast.Name) and p.annotation.id == "Any" for p in node.args.args)
            yield "function of tiles" if tiles else "function"
            for inner in ast.walk(node):
                yield from _of_node(inner, node)


def _of_node(node: ast.AST, function: ast.FunctionDef) -> Iterator[str]:
    simple = {
        ast.Break: "break", ast.Continue: "continue", ast.IfExp: "ternary", ast.Lambda: "lambda",
        ast.AugAssign: "augmented assignment", ast.And: "and", ast.Or: "or", ast.Not: "not",
    }  # fmt: skip
    if type(node) in simple:
        yield simple[type(node)]
    if isinstance(node, ast.Return) and node is not function.body[-1]:
        yield "early return"
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        yield "chained comparison"
    if isinstance(node, ast.If):
        yield "if"
        if node.orelse:
            yield "elif" if isinstance(node.orelse[0], ast.If) else "else"
    if isinstance(node, ast.While):
        yield "while true" if isinstance(node.test, ast.Constant) else "while"
    if isinstance(node, ast.For):
        yield from _of_for(node)
    if isinstance(node, (ast.For, ast.While)):
        yield from _carried(node)
    if isinstance(node, ast.Assign):
        yield from _of_assign(node)


def _of_for(node: ast.For) -> Iterator[str]:
    text = ast.unparse(node.iter)
    yield "static for" if "static" in text else "for"
    if node.orelse:
        yield "for else"
    if isinstance(node.iter, ast.Call) and len(node.iter.args) == 3:
        yield "for downwards" if "-" in ast.unparse(node.iter.args[2]) else "for with step"


def _carried(node: ast.For | ast.While) -> Iterator[str]:
    """By the first letter of a name, programs say what kind of value it has."""
    letters = {"t": "tile", "s": "scalar", "v": "vector", "b": "struct", "u": "tuple"}
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Assign, ast.AugAssign)):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            for target in targets:
                if isinstance(target, ast.Name) and re.fullmatch(r"[tsvbu]\d+", target.id):
                    yield f"{letters[target.id[0]]} carried by a loop"


def _of_assign(node: ast.Assign) -> Iterator[str]:
    target = node.targets[0]
    if isinstance(target, ast.Attribute):
        yield "member written"
    if isinstance(target, ast.Subscript):
        yield "slice written" if any(isinstance(n, ast.Slice) for n in ast.walk(target)) else "element written"
    if isinstance(target, ast.Name) and re.fullmatch(r"t\d+", target.id):
        if isinstance(node.value, ast.Name):
            yield "alias"
        if isinstance(node.value, (ast.Subscript, ast.Attribute)):
            yield "view"
