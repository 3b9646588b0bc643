"""Element types made of several scalars: vectors, matrices, quaternions, transforms and structs; and values of them.

A grid type (vector, matrix, quaternion, transform) is a small grid of scalars of one dtype; in memory it is the last
axes of a NumPy array. A struct has named members: scalars, grids, structs and, as a kernel argument, arrays; in memory
it is a structured NumPy dtype. Called, a type makes a value: in a kernel one that the compiler takes apart, outside of
one a `HostValue` or a `StructValue`.
Does not know tiles, kernels or arithmetic.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType

NumPyType = np.dtype[Any]

LETTERS = "xyzw"
#: one letter for the dtype at the end of a type's name, as in vec3d
SUFFIXES: dict[str, DType] = {
    "f": dt.float32, "h": dt.float16, "d": dt.float64, "i": dt.int32, "ui": dt.uint32, "l": dt.int64, "ul": dt.uint64,
    "s": dt.int16, "us": dt.uint16, "b": dt.int8, "ub": dt.uint8,
}  # fmt: skip
_SUFFIX_OF = {d: s for s, d in SUFFIXES.items()}


class CompositeType:
    """The base of all element types that are no scalars. Types are equal when they are the same object."""

    name: str

    def __repr__(self) -> str:
        return self.name

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def np(self) -> NumPyType:
        """The NumPy dtype of one element in memory."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return int(self.np.itemsize)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The types of the direct parts: of each scalar of a grid, of each member of a struct."""
        raise NotImplementedError

    @property
    def scalars(self) -> tuple[DType, ...]:
        """The dtypes of all scalars inside, in order."""
        return tuple(s for p in self.parts for s in ((p,) if isinstance(p, DType) else p.scalars))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A value of the type, outside of kernels."""
        raise NotImplementedError


class GridType(CompositeType):
    """A grid of `shape` scalars of one `dtype`."""

    shape: tuple[int, ...]
    dtype: DType

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype

    @property
    def np(self) -> NumPyType:
        return np.dtype((self.dtype.np, self.shape))

    @property
    def count(self) -> int:
        """How many scalars it has."""
        return int(np.prod(self.shape))

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.dtype,) * self.count

    def with_dtype(self, dtype: DType) -> GridType:
        """The same grid of another dtype."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> HostValue:
        """A value: `vec3(1, 2, 3)`, `vec3(0)` for equal parts, `vec3()` for zeros, `vec3([1, 2, 3])`."""
        if kwargs:
            raise TypeMismatch(f"{self.name} takes its parts one after the other, without keywords")
        if not args:
            return HostValue(self, np.zeros(self.shape, self.dtype.np))
        given = args[0] if len(args) == 1 else args
        flat = np.asarray([np.asarray(a) for a in given] if isinstance(given, tuple) else given)
        if flat.size not in (1, self.count):
            raise TypeMismatch(f"{self.name} has {self.count} parts, {flat.size} are given")
        full = np.broadcast_to(flat, self.shape) if flat.size == 1 else flat.reshape(self.shape)
        return HostValue(self, full.astype(self.dtype.np))


class VectorType(GridType):
    """`length` scalars in a row."""

    def __init__(self, length: int, dtype: DType) -> None:
        suffix = _SUFFIX_OF.get(dtype)
        short = f"vec{length}{suffix}" if 2 <= length <= 4 and suffix else f"vector({length}, {dtype})"
        super().__init__(short, (length,), dtype)

    @property
    def length(self) -> int:
        return self.shape[0]

    def with_dtype(self, dtype: DType) -> GridType:
        return vector(self.length, dtype)


class MatrixType(GridType):
    """Rows and columns of scalars."""

    def __init__(self, rows: int, columns: int, dtype: DType) -> None:
        suffix = _SUFFIX_OF.get(dtype)
        small = rows == columns and 2 <= rows <= 4 and suffix
        name = f"mat{rows}{columns}{suffix}" if small else f"matrix({rows}, {columns}, {dtype})"
        super().__init__(name, (rows, columns), dtype)

    def with_dtype(self, dtype: DType) -> GridType:
        return matrix(self.shape, dtype)


class QuaternionType(GridType):
    """A quaternion x, y, z, w: the imaginary parts, then the real one."""

    def __init__(self, dtype: DType) -> None:
        super().__init__(f"quat{_SUFFIX_OF.get(dtype, dtype)}", (4,), dtype)

    def with_dtype(self, dtype: DType) -> GridType:
        return quaternion(dtype)


class TransformType(GridType):
    """A rigid motion: a translation `p` (3 scalars), then a rotation `q` (a quaternion)."""

    def __init__(self, dtype: DType) -> None:
        super().__init__(f"transform{_SUFFIX_OF.get(dtype, dtype)}", (7,), dtype)

    def with_dtype(self, dtype: DType) -> GridType:
        return transformation(dtype)

    def __call__(self, *args: Any, **kwargs: Any) -> HostValue:
        if len(args) == 2 or kwargs:
            p, q = (*args, *kwargs.values())[:2]
            return super().__call__(np.concatenate([np.ravel(np.asarray(p)), np.ravel(np.asarray(q))]))
        return super().__call__(*args) if args else super().__call__([0, 0, 0, 0, 0, 0, 1])


@cache
def _vector(length: int, dtype: DType) -> VectorType:
    return VectorType(length, dtype)


@cache
def _matrix(rows: int, columns: int, dtype: DType) -> MatrixType:
    return MatrixType(rows, columns, dtype)


def vector(length: int, dtype: Any = float) -> VectorType:
    """The type of vectors of `length` scalars of `dtype`.

    Example:
        >>> import tilegrad as tg
        >>> vec5 = tg.types.vector(length=5, dtype=tg.float64)
        >>> vec5(1.5)
        vector(5, float64)(1.5, 1.5, 1.5, 1.5, 1.5)
    """
    return _vector(_extent("length", length), _scalar(dtype))


def matrix(shape: Sequence[int], dtype: Any = float) -> MatrixType:
    """The type of matrices with `shape` = (rows, columns) and scalars of `dtype`."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if len(sizes) != 2:
        raise TypeMismatch(f"the shape of a matrix type is (rows, columns), it is {shape!r}")
    return _matrix(_extent("rows", sizes[0]), _extent("columns", sizes[1]), _scalar(dtype))


@cache
def _quaternion(dtype: DType) -> QuaternionType:
    return QuaternionType(dtype)


def quaternion(dtype: Any = float) -> QuaternionType:
    """The type of quaternions with scalars of `dtype`, a float type."""
    return _quaternion(_scalar(dtype, floats=True))


@cache
def _transformation(dtype: DType) -> TransformType:
    return TransformType(dtype)


def transformation(dtype: Any = float) -> TransformType:
    """The type of rigid motions with scalars of `dtype`, a float type."""
    return _transformation(_scalar(dtype, floats=True))


def _extent(name: str, n: Any) -> int:
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise TypeMismatch(f"{name} must be a positive int, it is {n!r}")
    return int(n)


def _scalar(spec: Any, floats: bool = False) -> DType:
    found = dt.as_dtype(spec)
    if found is None or (floats and not found.is_float):
        raise TypeMismatch(f"{spec!r} is no {'float' if floats else 'scalar'} type")
    return found


#: vec2 ... mat44, quat, transform and the spatial types, in all their spellings
NAMED: dict[str, GridType] = {}
for _s, _d in SUFFIXES.items():
    NAMED |= {f"vec{_n}{_s}": vector(_n, _d) for _n in (2, 3, 4)}
    if _d.is_float:
        NAMED |= {f"mat{_n}{_n}{_s}": matrix((_n, _n), _d) for _n in (2, 3, 4)}
        NAMED |= {f"quat{_s}": quaternion(_d), f"transform{_s}": transformation(_d)}
        NAMED |= {f"spatial_vector{_s}": vector(6, _d), f"spatial_matrix{_s}": matrix((6, 6), _d)}
NAMED |= {_n.removesuffix("f"): _t for _n, _t in list(NAMED.items()) if _n.endswith("f")}


# --- structs ----------------------------------------------------------------------------------------------------------


class StructType(CompositeType):
    """Named members. Made by `@struct` from a class with annotations."""

    def __init__(self, name: str, members: dict[str, Any], doc: str | None = None) -> None:
        self.name = name
        self.members = members
        self.__doc__ = doc

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(self.members.values())

    @property
    def has_arrays(self) -> bool:
        """Whether it holds arrays, so that it can be an argument but no element of an array or tile."""
        return any(t.has_arrays if isinstance(t, StructType) else not is_element(t) for t in self.parts)

    @property
    def np(self) -> NumPyType:
        if self.has_arrays:
            raise TypeMismatch(
                f"{self.name} has array members, so it cannot be the element of an array or a tile",
                help="pass it as an argument of its own, or pass the arrays beside it",
            )
        return np.dtype([(n, t.np) for n, t in self.members.items()], align=True)

    def numpy_dtype(self) -> NumPyType:
        """The NumPy dtype of an array of these structs."""
        return self.np

    def __call__(self, *args: Any, **kwargs: Any) -> StructValue:
        """A value, zeros but for the members that are given."""
        return StructValue(self, *args, **kwargs)

    def position(self, member: str) -> int:
        """The number of a member; raises TypeMismatch that lists them."""
        names = list(self.members)
        if member not in self.members:
            close = difflib.get_close_matches(member, names, 1)
            raise TypeMismatch(
                f"{self.name} has no member `{member}`",
                help=f"did you mean {close[0]}?" if close else f"it has: {', '.join(names)}",
            )
        return names.index(member)


def is_element(t: Any) -> bool:
    """Whether `t` is a type that memory can hold."""
    return isinstance(t, (DType, CompositeType))


def as_element_type(spec: Any) -> DType | CompositeType | None:
    """The element type that `spec` stands for: a scalar type in any spelling, or a composite type; else None."""
    if isinstance(spec, CompositeType):
        return spec
    return dt.as_dtype(spec)


# --- values outside of kernels ----------------------------------------------------------------------------------------

#: Computes an operator on host values: (symbol, x, y) -> value. Set by the algebra of composite values.
OPERATOR: list[Callable[[str, Any, Any], Any]] = []


class HostValue:
    """A vector, matrix, quaternion or transform outside of kernels; `kind` is its type, `data` the NumPy array."""

    __slots__ = ("data", "kind")
    __array_priority__ = 1000.0

    def __init__(self, kind: GridType, data: np.ndarray[Any, Any]) -> None:
        self.kind = kind
        self.data = data

    def __repr__(self) -> str:
        flat = ", ".join(str(x) for x in self.data.ravel().tolist())
        return f"{self.kind}({flat})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.data, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        found = self.data[key]
        if not isinstance(found, np.ndarray):
            return found
        return HostValue(vector(found.shape[0], self.kind.dtype), found) if found.ndim == 1 else found

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[key] = value

    def __getattr__(self, name: str) -> Any:
        kind = object.__getattribute__(self, "kind")
        place = component(kind, name)
        if place is None:
            raise AttributeError(f"{kind} has no `{name}`")
        part, where = place
        found = self.data.ravel()[where]
        return found if isinstance(part, DType) else HostValue(part, found)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("kind", "data"):
            object.__setattr__(self, name, value)
            return
        place = component(self.kind, name)
        if place is None:
            raise AttributeError(f"{self.kind} has no `{name}`")
        self.data.reshape(-1)[place[1]] = np.asarray(value)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, HostValue) and other.kind is self.kind and bool((self.data == other.data).all())

    def __hash__(self) -> int:
        return hash((self.kind, self.data.tobytes()))

    def __neg__(self) -> HostValue:
        return HostValue(self.kind, -self.data)


def _install(name: str, symbol: str) -> None:
    def forward(self: HostValue, other: Any) -> Any:
        return OPERATOR[0](symbol, self, other)

    def backward(self: HostValue, other: Any) -> Any:
        return OPERATOR[0](symbol, other, self)

    setattr(HostValue, f"__{name}__", forward)
    setattr(HostValue, f"__r{name}__", backward)


for _name, _symbol in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("matmul", "@")):
    _install(_name, _symbol)


def component(kind: GridType, name: str) -> tuple[DType | GridType, Any] | None:
    """What `.name` means on a grid: the type of the part and its place (or places) among the scalars, or None."""
    if isinstance(kind, TransformType):
        return {"p": (vector(3, kind.dtype), slice(0, 3)), "q": (quaternion(kind.dtype), slice(3, 7))}.get(name)
    if not isinstance(kind, (VectorType, QuaternionType)) or not name or set(name) - set(LETTERS[: kind.count]):
        return None
    where = [LETTERS.index(c) for c in name]
    return (kind.dtype, where[0]) if len(where) == 1 else (vector(len(where), kind.dtype), where)


class StructValue:
    """A struct outside of kernels: its members are attributes."""

    def __init__(self, kind: StructType, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "kind", kind)
        given = dict(zip(kind.members, args, strict=False)) | kwargs
        if len(args) > len(kind.members):
            raise TypeMismatch(f"{kind} has {len(kind.members)} members, {len(args)} values are given")
        for name, t in kind.members.items():
            object.__setattr__(self, name, zero(t))
        for name, value in given.items():
            setattr(self, name, value)

    kind: StructType

    def __setattr__(self, name: str, value: Any) -> None:
        t = self.kind.members[list(self.kind.members)[self.kind.position(name)]]
        object.__setattr__(self, name, fitted(t, value, f"{self.kind}.{name}"))

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{n}={getattr(self, n)!r}' for n in self.kind.members)})"

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, StructValue) or other.kind is not self.kind:
            return False
        return all(bool(np.all(getattr(self, n) == getattr(other, n))) for n in self.kind.members)

    __hash__ = None  # type: ignore[assignment]

    def numpy_value(self) -> Any:
        """The struct as one element of a structured NumPy array."""
        made = np.zeros((), self.kind.np)
        for n in self.kind.members:
            value = getattr(self, n)
            made[n] = value.numpy_value() if isinstance(value, StructValue) else np.asarray(value)
        return made[()]


def zero(t: Any) -> Any:
    """The zero of a member's type; None for an array."""
    if isinstance(t, DType):
        return t.np.type(0)
    return t() if isinstance(t, CompositeType) else None


def fitted(t: Any, value: Any, what: str) -> Any:
    """`value` as a value of type `t`. Raises TypeMismatch."""
    if isinstance(t, DType):
        if np.ndim(value) or isinstance(value, (str, HostValue, StructValue)) or value is None:
            raise TypeMismatch(f"{what} must be {t}, it is {value!r}")
        return t.np.type(value)
    if isinstance(t, GridType):
        return value if isinstance(value, HostValue) and value.kind is t else t(value)
    if isinstance(t, StructType):
        if isinstance(value, StructValue) and value.kind is t:
            return value
        raise TypeMismatch(f"{what} must be a {t}, it is {value!r}")
    return value
