"""Finds the syntax tree of a function, wherever it was defined, and the text of its lines.

A function from a file, a notebook, a doctest, `python -c`, an interactive session or `exec` is found by the position
that its code object remembers; text that may not belong to it is compiled and compared before it is believed. The
text is read when the function is decorated, so that a later edit of the file cannot mislead.
Does not know what the syntax means.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import os
import stat
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilegrad.diagnostics import KernelSyntaxError, Loc

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Source:
    """The syntax tree of one function, with the lines of its file (line n is `lines[n - 1]`)."""

    file: str
    node: FunctionNode
    lines: Sequence[str]

    def loc(self, node: ast.AST, function: str, called_from: Loc | None) -> Loc:
        """The span of `node`; a node of several lines is shown by its first."""
        line = getattr(node, "lineno", self.node.lineno)
        text = self.lines[line - 1].rstrip("\n") if 0 < line <= len(self.lines) else ""
        start = _characters(text, getattr(node, "col_offset", 0))
        one_line = getattr(node, "end_lineno", line) == line
        end = _characters(text, getattr(node, "end_col_offset", 0)) if one_line else len(text)
        return Loc(_short(self.file), line, start, end, function, text, called_from)

    def text(self, node: ast.AST) -> str:
        """What the user wrote for `node`, on one line."""
        return " ".join(ast.unparse(node).split())


def _characters(text: str, offset: int) -> int:
    """The column in characters of a column in UTF-8 bytes."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _short(file: str) -> str:
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def find(function: types.FunctionType) -> Source:
    """The source of a Python function, or a KernelSyntaxError that says how to make it available."""
    code = function.__code__
    for lines, certain in _texts(code, function):
        node = _node(code, lines)
        if node is not None and (certain or _compiles_to(code, lines)):
            return Source(code.co_filename, node, lines)
    raise KernelSyntaxError(
        f"the source of `{function.__qualname__}` is not available ({code.co_filename}:{code.co_firstlineno})",
        help="put the function into a file, or register its text in linecache.cache before it is decorated",
    )


def _texts(code: types.CodeType, function: types.FunctionType) -> Iterator[tuple[Sequence[str], bool]]:
    """Texts that may hold the function, and whether they are certain to be its own."""
    file = code.co_filename
    if lines := linecache.getlines(file, function.__globals__):
        yield lines, not file.startswith("<") or file.startswith(("<doctest", "<ipython"))
    if not file.startswith("<"):
        return
    guesses = (_command_line(), _standard_input(), *_typed_lines(code), *_strings_of_callers(code))
    for text in guesses:
        if text:
            yield text.splitlines(keepends=True), False


def _command_line() -> str:
    """The program given with `python -c`."""
    arguments = sys.orig_argv
    for option, value in itertools.pairwise(arguments):
        if option.startswith("-") and not option.startswith("--") and option.endswith("c"):
            return value
    return ""


def _standard_input() -> str:
    """A program that was redirected into `python -` from a file."""
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            return os.pread(0, os.fstat(0).st_size, 0).decode()
    except (OSError, ValueError, AttributeError):
        pass
    return ""


def _typed_lines(code: types.CodeType) -> Iterator[str]:
    """What was typed into an interactive session, read back from its history; newest first."""
    readline = sys.modules.get("readline")
    if readline is None or code.co_filename not in ("<stdin>", "<python-input-0>"):
        return
    count = readline.get_current_history_length()
    history = [readline.get_history_item(i + 1) or "" for i in range(count)]
    for first in range(count - 1, -1, -1):
        entry = history[first]
        if entry.lstrip().startswith(("@", "def ")) or "lambda" in entry:
            yield "\n".join(history[first:]) + "\n"


def _strings_of_callers(code: types.CodeType) -> Iterator[str]:
    """Texts held by the frames that are running: the argument of an `exec` is nearly always among them."""
    frame: types.FrameType | None = sys._getframe(1)
    mark = "lambda" if code.co_name == "<lambda>" else f"def {code.co_name}"
    while frame is not None:
        for value in [*frame.f_locals.values(), *frame.f_code.co_consts]:
            if isinstance(value, str) and mark in value:
                yield value
        frame = frame.f_back


def _node(code: types.CodeType, lines: Sequence[str]) -> FunctionNode | None:
    try:
        if code.co_name == "<lambda>":
            return _lambda(code, ast.parse("".join(lines)))
        return _definition(code, lines)
    except SyntaxError:
        return None


def _definition(code: types.CodeType, lines: Sequence[str]) -> FunctionNode | None:
    """The `def` whose first line (decorators included) is the one that the code remembers."""
    first = code.co_firstlineno
    block = inspect.getblock(list(lines[first - 1 :]))
    indented = bool(block) and block[0][:1].isspace()
    tree = ast.parse("if 1:\n" + "".join(block) if indented else "".join(block))
    ast.increment_lineno(tree, first - 1 - indented)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
            continue
        if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == first:
            return node
    return None


def _lambda(code: types.CodeType, tree: ast.AST) -> FunctionNode | None:
    """The lambda on the code's line whose body has exactly the span of the code's instructions."""
    spans = set(code.co_positions())
    here = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]
    for node in here:
        body = (node.body.lineno, node.body.end_lineno, node.body.col_offset, node.body.end_col_offset)
        if body in spans and len(node.args.args) == code.co_argcount:
            return node
    return here[0] if len(here) == 1 else None


def _compiles_to(code: types.CodeType, lines: Sequence[str]) -> bool:
    """Whether compiling the text gives this very code."""
    pending = [compile("".join(lines), code.co_filename, "exec", dont_inherit=True)]
    while pending:
        candidate = pending.pop()
        same_text = candidate.co_code == code.co_code and candidate.co_names == code.co_names
        if same_text and candidate.co_name == code.co_name and candidate.co_firstlineno == code.co_firstlineno:
            return True
        pending += [c for c in candidate.co_consts if isinstance(c, types.CodeType)]
    return False
