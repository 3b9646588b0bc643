"""Makes a failing program small: statements, expressions, constants and parameters go as long as the failure stays.

Works on the syntax tree of the text and knows nothing of types: what no longer compiles is simply not taken.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator

#: takes a tree apart in one of many ways: yields functions that change it
Edits = Callable[[ast.Module], Iterator[Callable[[], None]]]


def shrink(text: str, fails: Callable[[str], bool], seconds: float = 120) -> str:
    """The smallest text found for which `fails` still holds."""
    end = time.monotonic() + seconds
    text = ast.unparse(ast.parse(text))
    size = -1
    while size != len(text) and time.monotonic() < end:
        size = len(text)
        for edits in (_parameters, _statements, _blocks, _parameters, _expressions, _numbers):
            text = _pass(text, edits, fails, end)
    return text


def _pass(text: str, edits: Edits, fails: Callable[[str], bool], end: float) -> str:
    at = 0
    while time.monotonic() < end:
        tree = ast.parse(text)
        edit = next((e for k, e in enumerate(edits(tree)) if k == at), None)
        if edit is None:
            return text
        edit()
        tried = ast.unparse(ast.fix_missing_locations(tree))
        if tried != text and fails(tried):
            text = tried
        else:
            at += 1
    return text


def _bodies(tree: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                yield node, found


def _statements(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Without the second half of a function, or without one statement; the last ones first: nothing depends on them."""
    for f in tree.body:
        if isinstance(f, ast.FunctionDef) and len(f.body) > 3:
            yield lambda f=f: f.body.__delitem__(slice(len(f.body) // 2, None))  # type: ignore[misc]
    for node, body in _bodies(tree):
        for k in reversed(range(len(body))):
            if not isinstance(body[k], ast.Pass):

                def edit(node: ast.AST = node, body: list[ast.stmt] = body, k: int = k) -> None:
                    del body[k]
                    if not body and body is getattr(node, "body", None):
                        body.append(ast.Pass())

                yield edit


def _blocks(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """A branch or loop replaced by what is inside."""
    for _, body in _bodies(tree):
        for k, statement in enumerate(body):
            if isinstance(statement, (ast.If, ast.For, ast.While)):
                for inner in (statement.body, statement.orelse):

                    def edit(body: list[ast.stmt] = body, k: int = k, inner: list[ast.stmt] = inner) -> None:
                        body[k : k + 1] = inner

                    yield edit


def _places(tree: ast.AST) -> Iterator[tuple[ast.expr, Callable[[ast.expr], None]]]:
    """Expressions, each with a way to put another in its place."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                yield value, lambda new, node=node, name=name: setattr(node, name, new)  # type: ignore[misc]
            elif isinstance(value, list):
                for k, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield item, lambda new, value=value, k=k: value.__setitem__(k, new)  # type: ignore[misc]


def _expressions(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """An expression replaced by a part of it, or a number."""
    for node, put in _places(tree):
        if isinstance(node, (ast.Name, ast.Constant, ast.Attribute, ast.Slice, ast.Dict)) or _is_target(node):
            continue
        parts = [
            c for c in ast.walk(node) if isinstance(c, ast.expr) and c is not node and not isinstance(c, ast.Slice)
        ]
        parts = [p for p in parts if not isinstance(p, ast.Attribute) or not _is_module(p)]
        for part in sorted(parts, key=_size):
            if not isinstance(part, ast.Constant) or isinstance(node, ast.Compare):
                yield lambda put=put, part=part: put(part)  # type: ignore[misc]
        yield lambda put=put: put(ast.parse("Real(0.5)", mode="eval").body)  # type: ignore[misc]
        yield lambda put=put: put(ast.Constant(1))  # type: ignore[misc]


def _size(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


def _is_target(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _is_module(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "tg"


def _numbers(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Whole numbers made smaller."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0:
            for smaller in sorted({0, 1, node.value // 2, node.value - 1} - {node.value}):
                yield lambda node=node, smaller=smaller: setattr(node, "value", smaller)  # type: ignore[misc]


def _parameters(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """A kernel without a parameter that it does not use, and the program without arrays that it does not use."""
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    program = functions[-1]
    yield lambda: _drop_unused(tree, functions)
    for f in functions:
        used = {n.id for s in f.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        for k, parameter in enumerate(f.args.args):
            if parameter.arg not in used:

                def edit(f: ast.FunctionDef = f, k: int = k, name: str = parameter.arg) -> None:
                    del f.args.args[k]
                    if f is program:
                        _drop_array(tree, name)
                    else:
                        _drop_argument(program, f.name, k)

                yield edit


def _drop_unused(tree: ast.Module, functions: list[ast.FunctionDef]) -> None:
    """All parameters that are not used, in one go."""
    program = functions[-1]
    for f in functions:
        used = {n.id for s in f.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        for k in reversed(range(len(f.args.args))):
            name = f.args.args[k].arg
            if name not in used:
                del f.args.args[k]
                if f is program:
                    _drop_array(tree, name)
                else:
                    _drop_argument(program, f.name, k)


def _drop_array(tree: ast.Module, name: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for k, key in enumerate(node.keys):
                if isinstance(key, ast.Constant) and key.value == name:
                    del node.keys[k], node.values[k]
                    return


def _drop_argument(program: ast.FunctionDef, kernel: str, k: int) -> None:
    for node in ast.walk(program):
        if (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id == kernel
        ):
            given = node.args[2]
            assert isinstance(given, ast.List)
            del given.elts[k]
