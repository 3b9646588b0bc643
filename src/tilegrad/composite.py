"""Values of composite element types while a kernel is traced: tuples of their parts.

A vector, matrix, quaternion, transform or struct never reaches the IR. Its value is a `Composite`: a tuple of parts,
each of which is a scalar, a tile or an array (or, in a struct, a `Composite` again). A tile of vec3 is so three tiles,
an array of vec3 three arrays that lie between one another in memory. What works on scalars, tiles or arrays part by
part is applied with `map_parts`; everything else is algebra on the parts (see ops/vectors.py and its neighbours).
Like numbers, composite values are never changed: to set a part makes a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.element_types import (
    CompositeType,
    GridType,
    MatrixType,
    QuaternionType,
    StructType,
    TransformType,
    VectorType,
    matrix,
    quaternion,
    transformation,
    vector,
)
from tilegrad.ir.types import ArrayType, ScalarType, TileType


class Composite(tuple[Any, ...]):
    """The parts of a value of the composite type `kind`, in the order of `kind.parts`."""

    kind: CompositeType

    def __new__(cls, kind: CompositeType, parts: Iterable[Any]) -> Composite:
        made = super().__new__(cls, parts)
        made.kind = kind
        return made

    def rebuilt(self, parts: Iterable[Any]) -> Composite:
        """A value of the same type with other parts."""
        return Composite(self.kind, parts)

    def __repr__(self) -> str:
        return f"{self.kind}{tuple(self)!r}"

    @property
    def grid(self) -> GridType:
        """The type, which is known to be a grid."""
        assert isinstance(self.kind, GridType)
        return self.kind

    def with_part(self, position: int, part: Any) -> Composite:
        """The value with one part replaced."""
        return Composite(self.kind, (*self[:position], part, *self[position + 1 :]))

    @property
    def rows(self) -> list[Composite]:
        """The rows of a matrix, as vectors."""
        m, n = self.grid.shape
        row = vector(n, self.grid.dtype)
        return [Composite(row, self[n * i : n * (i + 1)]) for i in range(m)]

    @property
    def columns(self) -> list[Composite]:
        """The columns of a matrix, as vectors."""
        m, n = self.grid.shape
        column = vector(m, self.grid.dtype)
        return [Composite(column, self[j::n]) for j in range(n)]


def rebuilt(like: tuple[Any, ...], parts: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of the same sort (a `Composite` of the same type, say) with other parts."""
    make: Callable[[Iterable[Any]], tuple[Any, ...]] = getattr(like, "rebuilt", tuple)
    return make(parts)


def same_sort(a: tuple[Any, ...], b: Any) -> bool:
    """Whether two tuples are equally long and, if composite, of one type."""
    return isinstance(b, tuple) and len(a) == len(b) and getattr(a, "kind", None) is getattr(b, "kind", None)


def leaves(x: Any) -> Iterator[Any]:
    """The scalars, tiles or arrays inside a value, in order; the value itself if it is no composite."""
    if isinstance(x, Composite):
        for part in x:
            yield from leaves(part)
    else:
        yield x


def first_leaf(x: Any) -> Any:
    """The first of the leaves."""
    return next(leaves(x))


def map_parts(f: Callable[..., Any], first: Composite, *others: Any) -> Composite:
    """Apply `f` to corresponding leaves of composites of one type; anything else among `others` goes to every call."""
    for other in others:
        if isinstance(other, Composite) and other.kind is not first.kind:
            raise TypeMismatch(
                f"{first.kind} meets {other.kind}", help="both must be of one type; convert one, for example vec3d(v)"
            )
    parts = []
    for k, part in enumerate(first):
        rest = [o[k] if isinstance(o, Composite) else o for o in others]
        parts.append(map_parts(f, part, *rest) if isinstance(part, Composite) else f(part, *rest))
    return first.rebuilt(parts)


def of_leaves(kind: Any, items: Iterator[Any]) -> Any:
    """A value of type `kind` that takes its leaves from an iterator."""
    if isinstance(kind, CompositeType):
        return Composite(kind, [of_leaves(part, items) for part in kind.parts])
    return next(items)


def kind_of(x: Any) -> DType | CompositeType | None:
    """The element type of a composite, scalar, tile or array value; None for anything else."""
    if isinstance(x, Composite):
        return x.kind
    kind = getattr(x, "type", None)
    return kind.dtype if isinstance(kind, (ScalarType, TileType, ArrayType)) else None


def is_vector(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, VectorType)


def is_matrix(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, MatrixType)


def is_quaternion(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, QuaternionType)


def is_transform(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, TransformType)


def is_struct(x: Any) -> bool:
    return isinstance(x, Composite) and isinstance(x.kind, StructType)


def make_vector(parts: Iterable[Any], dtype: DType) -> Composite:
    """A vector of scalars or tiles of `dtype`."""
    items = list(parts)
    return Composite(vector(len(items), dtype), items)


def make_matrix(rows: Iterable[Iterable[Any]], dtype: DType) -> Composite:
    """A matrix of scalars or tiles of `dtype`, given by its rows."""
    grid = [list(row) for row in rows]
    return Composite(matrix((len(grid), len(grid[0])), dtype), [x for row in grid for x in row])


def make_quaternion(parts: Iterable[Any], dtype: DType) -> Composite:
    return Composite(quaternion(dtype), parts)


def make_transform(p: Iterable[Any], q: Iterable[Any], dtype: DType) -> Composite:
    return Composite(transformation(dtype), (*p, *q))
