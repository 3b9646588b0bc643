"""A Python function as the front end sees it: syntax tree, parameters, liveness, and what its free names mean.

Free names are looked up when a kernel is traced, not when it is defined, and every look-up is noted as a `Capture`:
a compiled kernel is used again only while all its captures hold.
Does not trace.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilegrad.diagnostics import KernelSyntaxError, Loc
from tilegrad.element_types import HostValue, StructValue
from tilegrad.frontend import source as sources
from tilegrad.frontend.liveness import Liveness, stores
from tilegrad.frontend.source import Source
from tilegrad.ops.random import ADVANCING

_ADVANCING = frozenset(f.__name__ for f in ADVANCING)


class Missing(Exception):
    """A free name has no value; `reason` says why if there is more to say."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Capture:
    """A value read from outside a kernel while it was traced: from a dict of globals, a closure cell or an object."""

    holder: Any = field(repr=False)
    name: str
    value: Any

    def holds(self) -> bool:
        """Whether reading it again gives the same value."""
        try:
            now = snapshot(_read(self.holder, self.name))
        except (Missing, AttributeError):
            return False
        return now is self.value or _same(now, self.value)


def _read(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        if name in holder:
            return holder[name]
        raise Missing
    if isinstance(holder, types.CellType):
        try:
            return holder.cell_contents
        except ValueError:
            raise Missing("it has no value yet") from None
    return getattr(holder, name)


def snapshot(value: Any) -> Any:
    """A captured value as the kernel sees it: a list becomes a tuple, so that a later change of it is noticed."""
    if isinstance(value, (HostValue, StructValue)):
        return copy.deepcopy(value)
    return tuple(snapshot(v) for v in value) if isinstance(value, (list, tuple)) else value


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(x is y or _same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (HostValue, StructValue)):
        return bool(a == b)
    if isinstance(a, (int, float, str, np.generic)):
        return bool(a == b) and str(a) == str(b)
    return False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function: its name, evaluated annotation (None if it has none) and default."""

    name: str
    annotation: Any
    default: Any
    required: bool


def _locals_around(python: types.FunctionType) -> dict[str, Any]:
    """What postponed annotations name among the locals of the function that is just defining `python`.

    Python makes no closure for such names, so they must be read while the definition runs.
    """
    texts = [t for t in python.__annotations__.values() if isinstance(t, str)]
    frame: types.FrameType | None = sys._getframe(1) if texts and "<locals>" in python.__qualname__ else None
    while frame is not None and python.__code__ not in frame.f_code.co_consts:
        frame = frame.f_back
    if frame is None:
        return {}
    words = {w for t in texts for w in re.findall(r"[^\W\d]\w*", t)}
    return {w: frame.f_locals[w] for w in words if w in frame.f_locals}


def evaluated_annotations(cls: type) -> dict[str, Any]:
    """The annotations of a class; text (postponed annotations) is evaluated where the class is being defined."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    around = {**frame.f_globals, **frame.f_locals} if frame else vars(sys.modules[cls.__module__])
    found = {}
    for name, annotation in inspect.get_annotations(cls).items():
        while isinstance(annotation, str):
            annotation = eval(annotation, around)
        found[name] = annotation
    return found


#: the folder of tilegrad's own code
_PACKAGE = str(Path(__file__).parent.parent)


class _TestInside(ast.NodeTransformer):
    """Turns `while test` whose test assigns a name, or draws a random number, into `while True` that breaks."""

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        if not any(isinstance(n, ast.NamedExpr) or _draws(n) for n in ast.walk(node.test)):
            return node
        stop = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
        always = ast.copy_location(ast.Constant(True), node.test)
        for made in ast.walk(stop):
            if isinstance(made, (ast.If, ast.UnaryOp, ast.Break)) and not hasattr(made, "lineno"):
                ast.copy_location(made, node.test)
        return ast.copy_location(ast.While(always, [stop, *node.body], node.orelse), node)


def _draws(node: ast.AST) -> bool:
    """Whether a call looks like one that changes its first argument."""
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in _ADVANCING


class Function:
    """A function that kernels may call; its body is traced in the place of each call.

    Called outside of a kernel it runs as the Python function that it is, on numbers and NumPy arrays.
    """

    def __init__(self, python: Callable[..., Any], name: str = "") -> None:
        if not isinstance(python, types.FunctionType):
            raise KernelSyntaxError(f"a kernel or func must be a Python function, not {type(python).__name__}")
        functools.update_wrapper(self, python)
        self.python = python
        self.name = name or (python.__name__ if python.__name__ != "<lambda>" else "lambda")
        self.source: Source = sources.find(python)
        self._around = _locals_around(python)
        #: what else the user has defined: the function's "gradient" and its "replay"
        self.custom: dict[str, Any] = {"gradient": None, "replay": None}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.python(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<func {self.name}>"

    @property
    def loc(self) -> Loc:
        """The line that defines the function."""
        return self.source.loc(self.source.node, "", None)

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        node = self.source.node
        if isinstance(node, ast.Lambda):
            return [ast.copy_location(ast.Return(node.body), node.body)]
        return [_TestInside().visit(statement) for statement in node.body]

    @functools.cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.body)

    @functools.cached_property
    def local(self) -> frozenset[str]:
        return stores(self.body) | {p.name for p in self.parameters}

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        a = self.source.node.args
        if a.vararg or a.kwarg:
            star = a.vararg or a.kwarg
            assert star is not None
            raise KernelSyntaxError(
                f"`{self.name}` collects arguments in `{star.arg}`", loc=self.source.loc(star, self.name, None),
                help="give every parameter a name",
            )  # fmt: skip
        defaults = dict(zip([p.arg for p in reversed(a.args)], reversed(self.python.__defaults__ or ()), strict=False))
        defaults |= self.python.__kwdefaults__ or {}
        return tuple(
            Parameter(p.arg, self._annotation(p), defaults.get(p.arg), p.arg not in defaults)
            for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)
        )

    def _annotation(self, p: ast.arg) -> Any:
        """The annotation of a parameter; text (postponed annotations) is evaluated where the function was defined."""
        found = self.python.__annotations__.get(p.arg)
        if not isinstance(found, str):
            return found
        try:
            while isinstance(found, str):
                found = eval(found, self.python.__globals__, self._around | self._cells())
            return found
        except Exception as error:
            raise KernelSyntaxError(
                f"the annotation of `{p.arg}` cannot be evaluated: {error}", loc=self.source.loc(p, self.name, None)
            ) from None

    def _cells(self) -> dict[str, Any]:
        pairs = zip(self.python.__code__.co_freevars, self.python.__closure__ or (), strict=True)
        found = {}
        for name, cell in pairs:
            try:
                found[name] = cell.cell_contents
            except ValueError:
                continue
        return found

    def lookup(self, name: str, captures: list[Capture]) -> Any:
        """The value of a free name of the function, noted in `captures`; raises Missing."""
        holder = self._holder(name)
        if holder is None:
            if hasattr(builtins, name):
                return getattr(builtins, name)
            raise Missing
        value = snapshot(_read(holder, name))
        captures.append(Capture(holder, name, value))
        return value

    def _holder(self, name: str) -> Any:
        free = self.python.__code__.co_freevars
        if name in free:
            return (self.python.__closure__ or ())[free.index(name)]
        return self.python.__globals__ if name in self.python.__globals__ else None

    def known_names(self) -> list[str]:
        """Names that a misspelled one may have meant."""
        return [*self.local, *self.python.__code__.co_freevars, *self.python.__globals__, *dir(builtins)]
