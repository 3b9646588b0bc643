"""What users write for derivatives of their own: `func_grad`, `func_replay`, `adjoint[x]`, and `grad(f)` in kernels.

A gradient function is a `Rule`: the variables `adjoint[x]` in it are made ordinary ones. Does not trace (see `custom`).
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilegrad.diagnostics import KernelNameError, KernelSyntaxError, TypeMismatch
from tilegrad.frontend.function import Function, Missing
from tilegrad.frontend.scope import describe_value

F = TypeVar("F", bound=Callable[..., Any])

# --- what users write -----------------------------------------------------------------------------------------------


class Adjoint:
    """The gradients of the parameters of a gradient function: `tg.adjoint[x]`.

    Inside a function made with `@func_grad`, `adjoint[x]` is a variable that begins as zero and has the type of the
    parameter x; `adjoint[s.v]` is a part of it. For an array it is the gradient array: `adjoint[a][i] += ...` adds
    atomically.
    """

    def __getitem__(self, x: Any) -> Any:
        raise KernelSyntaxError("tg.adjoint[...] has a meaning only inside a function made with @tg.func_grad")

    def __repr__(self) -> str:
        return "tg.adjoint"


adjoint = Adjoint()


def func_grad(forward: Function) -> Callable[[F], F]:
    """Give a function a gradient of your own: `@func_grad(f)`.

    The decorated function has the parameters of `f`, followed by one for the gradient of each result of `f`. It adds
    to `adjoint[name]` for its parameters, and returns nothing. It takes the place of the derivative of everything that
    `f` does, wherever `f` is called from, in reverse and in forward mode. An array is read as it is after the launch.
    It may be given before or after the kernels that use `f`.

    Args:
        forward: a function made with @func. It must not change tiles that it is given in place.
    Raises:
        KernelSyntaxError: `forward` is no such function, or the parameters do not fit.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.func
        ... def root(x: float):
        ...     return tg.sqrt(x)
        >>> @tg.func_grad(root)
        ... def root_gradient(x: float, ct: float):
        ...     if x > 0.0:
        ...         tg.adjoint[x] += ct / (2.0 * tg.sqrt(x))
        >>> @tg.kernel
        ... def roots(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[i] = root(x[i])
        >>> x, y = np.array([4, 0], np.float32), np.zeros(2, np.float32)
        >>> pullback = tg.vjp(roots, 2, [x], [y], tiled=False)
        >>> pullback(np.ones(2, np.float32))[0].tolist()
        [0.25, 0.0]
    """
    _require_func(forward, "func_grad")

    def register(python: F) -> F:
        wanted, given = _count(forward.python), _count(python)
        if given < wanted:
            raise KernelSyntaxError(
                f"the gradient `{python.__name__}` of `{forward.name}` has {given} parameters",
                loc=Function(python).loc,
                help=f"it takes the {wanted} of `{forward.name}`, and then the gradient of each of its results",
            )
        forward.custom["gradient"] = Rule(python, wanted)
        return python

    return register


def func_replay(forward: Function) -> Callable[[F], F]:
    """Say what the backward pass runs in place of a function: `@func_replay(f)`.

    A backward pass runs the forward code again to have the values that derivatives need, without its effects. Where
    that is impossible or too slow, the decorated function gives the results of `f` from what `f` has stored: it has
    the parameters of `f`, returns the same, and reads arrays as they are after the launch. It must not write any.
    Derivatives still go through `f` itself, unless it has a gradient of its own.

    Raises: KernelSyntaxError if `forward` is no function made with @func, or the parameters do not fit.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.func
        ... def place(count: tg.array1d[int], places: tg.array1d[int], i: int):
        ...     k = tg.atomic_add(count, 0, 1)
        ...     places[i] = k
        ...     return k
        >>> @tg.func_replay(place)
        ... def same_place(count: tg.array1d[int], places: tg.array1d[int], i: int):
        ...     return places[i]
        >>> @tg.kernel
        ... def squares(n: tg.array1d[int], p: tg.array1d[int], x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[place(n, p, i)] = x[i] * x[i]
        >>> x, y = np.array([1, 2], np.float32), np.zeros(2, np.float32)
        >>> pullback = tg.vjp(squares, 2, [np.zeros(1, np.int32), np.zeros(2, np.int32), x], [y], tiled=False)
        >>> pullback(np.ones(2, np.float32))[2].tolist()
        [2.0, 4.0]
    """
    _require_func(forward, "func_replay")

    def register(python: F) -> F:
        wanted, given = _count(forward.python), _count(python)
        if given != wanted:
            raise KernelSyntaxError(
                f"the replay `{python.__name__}` of `{forward.name}` has {given} parameters", loc=Function(python).loc,
                help=f"it takes the {wanted} of `{forward.name}`",
            )  # fmt: skip
        forward.custom["replay"] = Function(python)
        return python

    return register


def _require_func(forward: Any, name: str) -> None:
    if not isinstance(forward, Function):
        shown = getattr(forward, "__name__", repr(forward))
        raise KernelSyntaxError(f"{name} takes a function made with @tg.func, not {shown}")


def _count(python: Callable[..., Any]) -> int:
    return len(inspect.signature(python).parameters)


@dataclass(frozen=True)
class GradientOf:
    """`grad(f)` or `value_and_grad(f)`: callable inside kernels."""

    function: Any
    argnums: int | tuple[int, ...] | None = None
    with_value: bool = False

    @property
    def name(self) -> str:
        inner = getattr(self.function, "name", None) or getattr(self.function, "__name__", repr(self.function))
        return f"{'value_and_grad' if self.with_value else 'grad'}({inner})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise KernelSyntaxError(
            f"{self.name} of a function has a meaning only inside a kernel",
            help="the gradient of a launch is tg.grad(kernel, dim, inputs, output)",
        )


def gradient_of(function: Any, argnums: int | Sequence[int] | None, *, with_value: bool) -> GradientOf:
    """The gradient of a function, to be called inside kernels."""
    if not callable(function):
        raise TypeMismatch(f"grad takes a kernel or a function, not {describe_value(function)}")
    return GradientOf(function, argnums if isinstance(argnums, int | None) else tuple(argnums), with_value)


#: functions that make a `GradientOf`, and whether of the value too
MAKERS: dict[Any, bool] = {}


def differentiates(with_value: bool) -> Callable[[F], F]:
    """Marks a function of the library that takes a function and gives its gradient inside kernels."""

    def mark(python: F) -> F:
        MAKERS[python] = with_value
        return python

    return mark


# --- gradient functions ---------------------------------------------------------------------------------------------


class Rule(Function):
    """A gradient function. `adjoint[x]` is a variable of that name; the function returns those of its parameters."""

    def __init__(self, python: Callable[..., Any], count: int) -> None:
        super().__init__(python)
        self.count = count

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        end = ast.copy_location(ast.Return(None), self.source.node)
        plain = super().body
        return [_Adjoints(self).visit(copy.deepcopy(statement)) for statement in [*plain, end]]

    @functools.cached_property
    def own(self) -> tuple[str, ...]:
        """The names of the parameters that have a gradient: those of the forward function."""
        a = self.source.node.args
        return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))[: self.count]

    def is_adjoint(self, node: ast.AST) -> bool:
        """Whether an expression names `tilegrad.adjoint`."""
        try:
            return self._static(node) is adjoint
        except (Missing, AttributeError):
            return False

    def _static(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Attribute):
            return getattr(self._static(node.value), node.attr)
        if isinstance(node, ast.Name):
            return self.lookup(node.id, [])
        raise Missing


def hidden(name: str) -> str:
    """The variable that holds the gradient of a parameter."""
    return f"adjoint[{name}]"


class _Adjoints(ast.NodeTransformer):
    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not self.rule.is_adjoint(node.value):
            self.generic_visit(node)
            return node
        return self._renamed(node, node.slice, node.ctx)

    def _renamed(self, whole: ast.expr, node: ast.expr, ctx: ast.expr_context) -> ast.expr:
        """`x.a` as the same part of the gradient of `x`."""
        made: ast.expr
        if isinstance(node, ast.Attribute):
            made = ast.Attribute(self._renamed(whole, node.value, ast.Load()), node.attr, ctx)
        elif isinstance(node, ast.Subscript):
            made = ast.Subscript(self._renamed(whole, node.value, ast.Load()), self.visit(node.slice), ctx)
        elif isinstance(node, ast.Name) and node.id in self.rule.own:
            made = ast.Name(hidden(node.id), ctx)
        else:
            shown = self.rule.source.text(node)
            raise KernelNameError(
                f"`{self.rule.name}` has no parameter `{shown}` with a gradient",
                loc=self.rule.source.loc(whole, self.rule.name, None),
                help=f"adjoint[...] is known for {', '.join(self.rule.own)}",
            )
        return ast.copy_location(made, whole)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise KernelSyntaxError(
                f"the gradient function `{self.rule.name}` returns a value",
                loc=self.rule.source.loc(node, self.rule.name, None), help="add to tg.adjoint[x] instead",
            )  # fmt: skip
        names: list[ast.expr] = [ast.copy_location(ast.Name(hidden(n), ast.Load()), node) for n in self.rule.own]
        return ast.copy_location(ast.Return(ast.copy_location(ast.Tuple(names, ast.Load()), node)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node
