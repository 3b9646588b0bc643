"""Operators that users hand to reductions and scans: a builtin, or a function of two elements.

Elements may be composite (vectors, structs, ...): here an element is the tuple of its leaves, each a tile of scalars,
and an operator takes and returns such tuples. Nothing is assumed but that the operator is associative. Does not
reduce or scan (see `reduce` and `scan`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.composite import Composite, kind_of, leaves, map_parts, of_leaves
from tilegrad.diagnostics import TypeMismatch
from tilegrad.ir.opdef import OpDef
from tilegrad.op import REGISTRY, unwrap
from tilegrad.ops import algebra
from tilegrad.ops.comparison import choose
from tilegrad.ops.indexing import tile_insert, tile_slice
from tilegrad.ops.shapes import require_tile
from tilegrad.ops.views import shape_of

Leaves = tuple[Any, ...]
Combine = Callable[[Leaves, Leaves], Leaves]


@dataclass(frozen=True)
class OfPresent:
    """An operator, and the bool tile that tells which elements count: the front end makes it for tiles of lanes."""

    operator: Any
    present: Any


def require_elements(what: str, name: str, x: Any) -> Leaves:
    """The tiles of an argument that may be composite."""
    parts = tuple(leaves(x))
    for part in parts:
        require_tile(what, name, part if len(parts) > 1 else x)
    return tuple(unwrap(part) for part in parts)


#: builtins that combine composite elements part by part
_PART_BY_PART = ("add", "minimum", "maximum")


def builtin_name(operator: Any, like: Any) -> str:
    """The name of a builtin that combines elements leaf by leaf, else ""."""
    name = operator.name if isinstance(operator, OpDef) else ""
    return name if name in _PART_BY_PART or not isinstance(like, Composite) else ""


_EXAMPLE = "for example tg.mul, or lambda x, y: x * y"


def as_combine(what: str, operator: Any, like: Any) -> Combine:
    """An operator as a function of leaves; its result must have the element type of `like`."""
    _require_operator(what, operator)
    kind = kind_of(like)
    function = _on_parts(operator) if isinstance(operator, OpDef) and isinstance(like, Composite) else operator

    def combine(a: Leaves, b: Leaves) -> Leaves:
        made = function(of_leaves(kind, iter(a)), of_leaves(kind, iter(b)))
        result = tuple(unwrap(part) for part in leaves(made))
        if kind_of(unwrap(made)) is not kind:
            raise TypeMismatch(f"{what}: the operator turns {kind} into {_described(made)}")
        if any(shape_of(r) != shape_of(x) for r, x in zip(result, a, strict=True)):
            raise TypeMismatch(f"{what}: the operator does not combine tiles element by element", help=_EXAMPLE)
        return result

    return combine


def _require_operator(what: str, operator: Any) -> None:
    if not callable(operator):
        raise TypeMismatch(
            f"{what}: the operator must be a builtin or a function of two elements, it is {operator!r}", help=_EXAMPLE
        )
    if isinstance(operator, OpDef) and (operator.elementwise is None or len(operator.kinds) != 2):
        raise TypeMismatch(f"{what}: {operator.name} is not an operator on two elements", help=_EXAMPLE)
    if not isinstance(operator, (OpDef, functools.partial, types.FunctionType)):
        name = getattr(operator, "__name__", repr(operator))
        raise TypeMismatch(f"{what}: {name} is not a function that a kernel can call", help=_EXAMPLE)


def _described(made: Any) -> str:
    """What an operator has returned, for messages."""
    kind = kind_of(unwrap(made))
    return str(kind) if kind is not None else f"a tuple of {len(made)}" if isinstance(made, tuple) else repr(made)


def _on_parts(operator: OpDef) -> Callable[[Any, Any], Any]:
    """What a builtin means for vectors, matrices, ...: what their algebra says, else the same for every part."""
    return algebra.OPERATORS.get(operator.name) or (lambda x, y: map_parts(operator, x, y))


def of_present(combine: Combine) -> Combine:
    """The operator on elements with one leaf more, which tells whether the element counts."""

    def both(a: Leaves, b: Leaves) -> Leaves:
        (*x, here), (*y, there) = a, b
        all_here = REGISTRY["bit_and"](here, there)
        made = combine(tuple(x), tuple(y))
        alone = (choose(here, p, q) for p, q in zip(x, y, strict=True))
        return (
            *(choose(all_here, m, p) for m, p in zip(made, alone, strict=True)),
            REGISTRY["bit_or"](here, there),
        )

    return both


def part(t: Any, axis: int, first: int, size: int, step: int = 1) -> Any:
    """Elements first, first + step, ... along an axis."""
    shape = shape_of(t)
    starts = tuple(first if k == axis else 0 for k in range(len(shape)))
    sizes = tuple(size if k == axis else n for k, n in enumerate(shape))
    return tile_slice(t, *starts, sizes=sizes, steps=tuple(step if k == axis else 1 for k in range(len(shape))))


def parts(x: Leaves, axis: int, first: int, size: int, step: int = 1) -> Leaves:
    return tuple(part(t, axis, first, size, step) for t in x)


def with_part(t: Any, new: Any, axis: int, first: int) -> Any:
    """The tile with elements from `first` on replaced along an axis."""
    starts = tuple(first if k == axis else 0 for k in range(len(shape_of(t))))
    return tile_insert(t, new, *starts, steps=(1,) * len(starts))


def with_parts(x: Leaves, new: Sequence[Any], axis: int, first: int) -> Leaves:
    return tuple(with_part(t, n, axis, first) for t, n in zip(x, new, strict=True))
