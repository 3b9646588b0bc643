"""Arrays on the host: a NumPy array together with its tilegrad element type and, if asked for, its gradient.

An `Array` never copies behind the user's back: slices, `reshape` and `transpose` are views of the same memory, and a
view's gradient is the same view of the gradient. Whoever must know of writes (the tape) adds a function to
`before_write`; it is called with the array and the array whose elements it will get (or None) before each write.
Does not know how to compute: kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from tilegrad.diagnostics import KernelIndexError, LaunchError, ShapeMismatch, TypeMismatch
from tilegrad.dtypes import SCALARS, DType, as_dtype, of_literal
from tilegrad.element_types import CompositeType, GridType, HostValue, StructType, StructValue, as_element_type
from tilegrad.runtime import dlpack

Host = np.ndarray[Any, Any]

#: Called as f(dest, source or None) before an Array is written from Python.
before_write: list[Callable[[Array, Array | None], None]] = []

_ALIGNMENT = 64
_DEVICES = (None, "cpu", "interpret")


class Array:
    """Elements of one type in memory, as kernels see them; `data` is the NumPy array.

    Args:
        data: The NumPy array to wrap; it is not copied.
        requires_grad: Whether tapes compute a gradient for it.
        kind: The composite type of the elements, if they are no scalars. The grid of vectors, matrices and the like is
            the last axes of `data`; structs lie in a structured `data`.
    """

    __array_priority__ = 100.0

    def __init__(self, data: Host, requires_grad: bool = False, kind: CompositeType | None = None) -> None:
        self.data = data
        self.kind = kind
        self._inner: tuple[int, ...] = kind.shape if isinstance(kind, GridType) else ()
        self.dtype: Any = require_dtype(data.dtype) if kind is None else kind
        self.base: Array | None = None  #: the array that this one is a view of
        self.whole: Array | None = None  #: the array of composites of which this one is the scalars or a member
        self._requires_grad: bool | None = bool(requires_grad)
        self._grad: Array | None = None
        self._parent: Array | None = None
        self._select: Callable[[Array], Any] = _itself

    # facts

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.data.shape
        return shape[: len(shape) - len(self._inner)] if self._inner else shape

    @property
    def ndim(self) -> int:
        return self.data.ndim - len(self._inner)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self.data.strides[: self.ndim]

    @property
    def ptr(self) -> int:
        """Address of the first element."""
        return int(self.data.__array_interface__["data"][0])

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def is_contiguous(self) -> bool:
        return bool(self.data.flags.c_contiguous)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        values = np.array2string(self.data, separator=", ", threshold=100, prefix="array(")
        return f"array({values}, shape={self.shape}, dtype={self.dtype})"

    def __str__(self) -> str:
        return str(self.data)

    def __bool__(self) -> bool:
        if self.data.size != 1:
            raise LaunchError(
                f"an array of {self.size} elements is neither true nor false", help="use a.numpy().any() or .all()"
            )
        return bool(self.data.item())

    # gradients

    @property
    def requires_grad(self) -> bool:
        """Whether tapes compute a gradient for it; a view follows the array that it is a view of."""
        if self._requires_grad is None:
            return self._parent is not None and self._parent.requires_grad
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._requires_grad = bool(value)
        if not value:
            self._grad = None

    @property
    def grad(self) -> Array | None:
        """The gradient, zeros until something is added; None unless `requires_grad` or assigned."""
        if self._grad is None:
            if self._parent is not None and self._requires_grad is not False:
                whole = self._parent.grad
                return None if whole is None else self._select(whole)
            if self.requires_grad:
                self._grad = zeros(self.shape, self.dtype)
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            self._grad = None
            return
        grad = value if isinstance(value, Array) else _from_data(value, self.dtype, None, None, False)
        if grad.shape != self.shape or grad.dtype is not self.dtype:
            raise ShapeMismatch(
                f"the gradient of a {self.dtype} array {self.shape} cannot be a {grad.dtype} array {grad.shape}",
                help="give one of the same shape and type, for example tg.ones_like(a)",
            )
        self._grad = grad

    # NumPy and others

    def numpy(self) -> Host:
        """The elements as a NumPy array on the same memory (no copy)."""
        return self.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Host:
        if copy is False and dtype is not None and np.dtype(dtype) != self.data.dtype:
            raise ValueError(
                f"a {self.dtype} array cannot be seen as {np.dtype(dtype)} without a copy: leave out copy=False"
            )
        return np.array(self.data, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return dlpack.export_array(self.data, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.size != 1:
            raise ShapeMismatch(
                f"item() needs an array of one element, this one has shape {self.shape}",
                help="take one element with a[i], or all of them with a.numpy() or a.list()",
            )
        return self.list()[0]

    def list(self) -> list[Any]:
        """All elements in row-major order as Python numbers."""
        flat = self.data.reshape(-1, *self._inner)
        if self.kind is not None:
            return [self._element(x) for x in flat]
        return list(flat.astype(np.float32).tolist() if self.dtype.is_half else flat.tolist())

    def _element(self, found: Any) -> Any:
        """One element as a value of its own."""
        if isinstance(self.kind, GridType):
            return HostValue(self.kind, np.array(found))
        return found if self.kind is None else struct_value(self.kind, found)

    # parts of composite elements

    @property
    def scalars(self) -> Array:
        """An array of vectors, matrices, ... as an array of scalars, with their grid as its last axes: a view."""
        if not isinstance(self.kind, GridType):
            return self
        found = Array(self.data)
        found.whole = self if self.whole is None else self.whole
        return self._as_view(found, lambda a: a.scalars)

    def member(self, name: str) -> Array:
        """A member of all structs of an array, as a view."""
        if not isinstance(self.kind, StructType):
            raise TypeMismatch(f"an array of {self.dtype} has no members")
        part = self.kind.parts[self.kind.position(name)]
        found = Array(self.data[name], kind=part if isinstance(part, CompositeType) else None)
        found.whole = self if self.whole is None else self.whole
        return self._as_view(found, lambda a: a.member(name))

    # views

    def _view(self, data: Host, select: Callable[[Array], Any]) -> Array:
        return self._as_view(Array(data, kind=self.kind), select)

    def _as_view(self, found: Array, select: Callable[[Array], Any]) -> Array:
        found.base = self if self.base is None else self.base
        found._requires_grad, found._parent, found._select = None, self, select
        return found

    def __getitem__(self, key: Any) -> Any:
        """`a[i]`, `a[1:8:2, ::-1]`, `a[..., 0]`: a view; a single element is a NumPy number, or a composite value."""
        checked = self._checked_key(key)
        found = self.data[checked]
        single = len(checked) == self.ndim and not any(isinstance(k, slice) for k in checked)
        if single or not isinstance(found, np.ndarray):
            return self._element(found)
        return self._view(found, lambda a: a[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements, rows or slices: `a[i] = 2`, `a[:, 0] = other`."""
        checked = self._checked_key(key)
        whole = (*checked, ...)  # so that an element is a view too
        self._view(self.data[whole], _itself)._write(value, broadcast=True)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def _checked_key(self, key: Any) -> tuple[Any, ...]:
        items = key if isinstance(key, tuple) else (key,)
        for item in items:
            if not isinstance(item, (int, np.integer, slice, type(Ellipsis))) or isinstance(item, bool):
                raise TypeMismatch(
                    f"an array is indexed with ints, slices and `...`, not with {type(item).__name__}",
                    help="a.numpy()[...] takes everything that NumPy takes, and may copy",
                )
            if isinstance(item, slice) and item.step == 0:
                raise ShapeMismatch("the step of a slice must not be 0")
        self._require_inside(items)
        if Ellipsis in items:
            at = items.index(Ellipsis)
            free = self.ndim - len(items) + 1
            items = (*items[:at], *(slice(None),) * free, *items[at + 1 :])
        return items

    def _require_inside(self, items: Sequence[Any]) -> None:
        counted = [i for i in items if i is not Ellipsis]
        if len(counted) > self.ndim:
            raise KernelIndexError(f"{len(counted)} indices for an array of {self.ndim} axes")
        axis = 0
        for item in items:
            if item is Ellipsis:
                axis += self.ndim - len(counted)
                continue
            if not isinstance(item, slice) and not -self.shape[axis] <= item < self.shape[axis]:
                raise KernelIndexError(f"index {item} is out of range for axis {axis} with size {self.shape[axis]}")
            axis += 1

    def reshape(self, *shape: Any) -> Array:
        """The same elements in another shape (one extent may be -1), as a view.

        Raises:
            ShapeMismatch: the sizes differ, or the elements are not laid out so that a view can do it.
        """
        wanted = _shape(shape[0] if len(shape) == 1 else shape, inferred=True)
        try:
            data = np.reshape(self.data, (*wanted, *self._inner), copy=False)
        except ValueError:
            fits = -1 in wanted or int(np.prod(wanted)) == self.size
            reason = "its elements are not in one piece" if fits else f"it has {self.size} elements"
            raise ShapeMismatch(
                f"an array of shape {self.shape} cannot be reshaped to {wanted}: {reason}",
                help="use a.contiguous().reshape(...), which copies" if fits else "keep the number of elements",
            ) from None
        return self._view(data, lambda a: a.reshape(wanted))

    def flatten(self) -> Array:
        """All elements along one axis, as a view."""
        return self.reshape(-1)

    def transpose(self, axes: Sequence[int] | None = None) -> Array:
        """A view with its axes permuted; all reversed without `axes`."""
        if axes is not None and sorted(a % self.ndim for a in axes) != list(range(self.ndim)):
            raise ShapeMismatch(f"axes {tuple(axes)} are not a permutation of the {self.ndim} axes of the array")
        order = [a % self.ndim for a in axes] if axes is not None else list(range(self.ndim))[::-1]
        return self._view(self.data.transpose(*order, *range(self.ndim, self.data.ndim)), lambda a: a.transpose(axes))

    @property
    def T(self) -> Array:
        return self.transpose()

    def view(self, dtype: Any) -> Array:
        """The same memory as elements of another type of the same size."""
        kind = require_dtype(dtype)
        if self.kind is not None:
            raise TypeMismatch(
                f"an array of {self.dtype} cannot be viewed as {kind}", help="a.scalars views it as an array of scalars"
            )
        if kind.size != self.dtype.size:
            raise TypeMismatch(f"a {self.dtype} array cannot be viewed as {kind}: the element sizes differ")
        return self._view(self.data.view(kind.np), lambda a: a.view(kind))

    def contiguous(self) -> Array:
        """This array if its elements lie in row-major order without gaps, else a copy that does."""
        return self if self.is_contiguous else clone(self)

    # writing

    def zero_(self) -> Self:
        """Set all elements to zero, in structs every member."""
        return self.fill_(np.zeros((), self.dtype.np) if isinstance(self.kind, StructType) else 0)

    def fill_(self, value: Any) -> Self:
        """Set all elements to a value."""
        number = _number(value, self.dtype)
        self._announce(None)
        self.data[...] = number
        return self

    def assign(self, source: Any) -> Self:
        """Copy the elements of an array, a NumPy array or nested lists of the same shape."""
        self._write(source, broadcast=False)
        return self

    def _write(self, source: Any, broadcast: bool) -> None:
        host = source.data if isinstance(source, Array) else _composite_host(source, self.dtype)
        wanted = self.data.shape
        fits = host.shape == wanted or (broadcast and _broadcasts(host.shape, wanted))
        if not fits:
            raise ShapeMismatch(f"values of shape {host.shape} do not fit into an array of shape {wanted}")
        if not np.can_cast(host.dtype, self.data.dtype, "same_kind") and host.dtype != self.data.dtype:
            raise TypeMismatch(
                f"{host.dtype} values cannot be written to a {self.dtype} array",
                help="convert them first: values.astype(...)",
            )
        if isinstance(source, Array) and source.data.shape != wanted:
            source = source._view(np.broadcast_to(host, wanted), _itself)
        self._announce(source if isinstance(source, Array) else None)
        self.data[...] = host

    def _announce(self, source: Array | None) -> None:
        if not self.data.flags.writeable:
            raise LaunchError("the array is read-only", help="work on a copy: tg.clone(a)")
        for tell in before_write:
            tell(self, source)


def _itself(a: Array) -> Array:
    return a


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    padded = (1,) * (len(target) - len(shape)) + shape
    return len(padded) == len(target) and all(n in (1, m) for n, m in zip(padded, target, strict=True))


# --- types, shapes and values -----------------------------------------------------------------------------------------


def require_dtype(spec: Any) -> DType:
    """The DType that `spec` names, or a TypeMismatch that lists those there are."""
    found = as_dtype(spec)
    if found is None:
        raise TypeMismatch(
            f"{_name(spec)} is no element type of tilegrad", help=f"use one of {', '.join(d.name for d in SCALARS)}"
        )
    return found


def require_element_type(spec: Any) -> DType | CompositeType:
    """The element type that `spec` names, composite ones too."""
    found = as_element_type(spec)
    return require_dtype(spec) if found is None else found


def _composite(t: Any) -> CompositeType | None:
    return t if isinstance(t, CompositeType) else None


def _scalar_of(t: Any) -> DType:
    """The dtype of an element type's scalars."""
    found: DType = t.dtype if isinstance(t, GridType) else t
    return found


def struct_value(kind: StructType | CompositeType, found: Any) -> StructValue:
    """One element of a structured NumPy array as a struct."""
    assert isinstance(kind, StructType)
    made = {n: struct_value(t, found[n]) if isinstance(t, StructType) else found[n] for n, t in kind.members.items()}
    return StructValue(kind, **made)


def _composite_host(data: Any, t: Any) -> Host:
    """Values of an element type as a NumPy array: the grid of vectors and the like is its last axes."""
    if isinstance(t, StructType):
        return _struct_host(data, t)
    host = _host(_plain(data), _scalar_of(t))
    if not isinstance(t, GridType) or host.shape[host.ndim - len(t.shape) :] == t.shape or host.ndim == 0:
        return host
    if host.ndim == 1 and host.size % t.count == 0:
        return host.reshape(-1, *t.shape)
    raise ShapeMismatch(
        f"data of shape {host.shape} holds no {t}", help=f"the last axes must be {t.shape}, the grid of one element"
    )


def _plain(data: Any) -> Any:
    """Nested lists of host values as nested lists of NumPy arrays."""
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data]
    return data.data if isinstance(data, HostValue) else data


def _struct_host(data: Any, t: StructType) -> Host:
    if isinstance(data, StructValue):
        return np.asarray(data.numpy_value(), t.np)
    if isinstance(data, (list, tuple)):
        return np.array([_struct_host(x, t) for x in data], t.np)
    host = data.data if isinstance(data, Array) else data
    if isinstance(host, np.generic):
        host = np.asarray(host)
    if not isinstance(host, np.ndarray) or host.dtype.names != t.np.names:
        raise TypeMismatch(f"{t} structs cannot be made of {type(data).__name__} data", help=f"members: {t.np.names}")
    return host if host.dtype == t.np else host.astype(t.np)


def _name(spec: Any) -> str:
    return str(getattr(spec, "__name__", spec))


def _shape(shape: Any, inferred: bool = False) -> tuple[int, ...]:
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for n in items:
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < (-1 if inferred else 0):
            raise ShapeMismatch(f"the shape of an array is made of ints that are not negative, it is {shape!r}")
    return tuple(int(n) for n in items)


def _require_device(device: Any) -> None:
    if device not in _DEVICES:
        raise LaunchError(f"there is no device {str(device)!r}", help='arrays live on "cpu"')


def _number(value: Any, dtype: DType | CompositeType) -> Any:
    """`value` as one element of `dtype`."""
    if isinstance(dtype, StructType):
        found = _struct_host(value, dtype)
        if found.ndim:
            raise ShapeMismatch(f"one {dtype} is needed, not {found.size}")
        return found[()]
    if isinstance(dtype, GridType):
        return dtype(value).data if np.ndim(value) else dtype.dtype.np.type(value)
    assert isinstance(dtype, DType)
    found = _host(value, dtype)
    if found.size != 1:
        raise ShapeMismatch(f"one number is needed, not values of shape {found.shape}")
    return found.reshape(())[()]


def _host(data: Any, dtype: DType | None) -> Host:
    """Anything that holds numbers, as a NumPy array: without a copy and with its own type where it has memory."""
    found = foreign(data)
    if isinstance(found, (np.ndarray, np.generic)):
        return np.asarray(found)
    try:
        plain = np.asarray(data)
        if dtype is None:
            dtype = _literal_dtype(data, plain)
        if plain.dtype.kind == "f" and dtype.kind in "iub" and not np.array_equal(plain, np.trunc(plain)):
            raise TypeMismatch(f"fractions do not fit into {dtype}", help="use a float type, or round first")
        return np.asarray(data, dtype.np)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, TypeMismatch):
            raise
        raise TypeMismatch(
            f"an array cannot be made of {type(data).__name__} data: {error}",
            help="give an array, a number, or lists of numbers that are equally long",
        ) from None


def _literal_dtype(data: Any, plain: Host) -> DType:
    """Python numbers are what they are in kernels: float32, int32 if they fit, bool. Others keep NumPy's type."""
    leaf = data
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = leaf[0]
    if isinstance(leaf, (np.ndarray, np.generic)) or plain.dtype.kind not in "bif":
        return require_dtype(plain.dtype)
    if plain.dtype.kind == "i" and plain.size:
        low, high = of_literal(int(plain.min())), of_literal(int(plain.max()))
        return low if low.bits > high.bits else high
    return of_literal({"b": False, "i": 0, "f": 0.0}[plain.dtype.kind])


def foreign(x: Any) -> Any:
    """An array of another library as a NumPy array on the same memory; anything else unchanged."""
    if isinstance(x, (np.ndarray, np.generic, int, float, list, tuple)):
        return x
    if isinstance(x, Array):
        return x.data
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return dlpack.import_array(x)
    if hasattr(x, "__cuda_array_interface__"):
        raise LaunchError("an array on a GPU cannot be used on the CPU", help="move it to the host first")
    if hasattr(x, "__array_interface__"):
        return np.asarray(x)
    return x


def _allocate(shape: tuple[int, ...], dtype: DType | CompositeType, clear: bool = False) -> Host:
    """New memory, aligned for vector registers."""
    if isinstance(dtype, GridType):
        return _allocate((*shape, *dtype.shape), dtype.dtype, clear)
    size = dtype.size
    for n in shape:
        size *= n
    make = np.zeros if clear else np.empty
    try:
        raw = make(size + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise LaunchError(f"there is no memory for a {dtype} array of shape {shape} ({size:,} bytes)") from None
    start = -raw.__array_interface__["data"][0] % _ALIGNMENT
    host: Host = raw[start : start + size].view(dtype.np).reshape(shape)
    return host


# --- constructors -----------------------------------------------------------------------------------------------------


def array(
    data: Any = None,
    dtype: Any = None,
    shape: Any = None,
    strides: Sequence[int] | None = None,
    *,
    ptr: int | None = None,
    ndim: int | None = None,
    copy: bool | None = True,
    device: Any = None,
    requires_grad: bool = False,
    grad: Any = None,
) -> Array:
    """Make an array from numbers, from another array, or on memory at an address.

    Args:
        data: A NumPy array, any array with DLPack, nested lists, or a number.
        dtype: Element type (`tg.float32`, `float`, `np.int8`, ...). By default that of `data`; Python numbers count as
            float32, int32 or bool, as in kernels.
        shape: Shape of the result; by default that of `data`, with at least one axis.
        strides: Bytes between elements along each axis; only with `ptr`.
        ptr: Address of the first element, instead of `data`. Keeping the memory alive is up to the caller.
        ndim: Number of axes that the result must have.
        copy: False shares the memory of `data` and refuses where that is not possible; None copies if it must.
        requires_grad: Whether tapes compute a gradient for it.
        grad: An array for the gradient; implies `requires_grad`.
    Raises:
        TypeMismatch, ShapeMismatch: the data does not fit the type or shape.
    """
    _require_device(device)
    if ptr is not None:
        made = Array(_at_address(data, dtype, shape, strides, ptr), requires_grad)
    else:
        if strides is not None:
            raise LaunchError("strides= goes with ptr=", help="slice or transpose the data instead")
        made = _from_data(data, None if dtype is None else require_element_type(dtype), shape, copy, requires_grad)
    if ndim is not None and made.ndim != ndim:
        raise ShapeMismatch(f"the data has {made.ndim} axes (shape {made.shape}), ndim={ndim} was asked for")
    if grad is not None:
        made.grad = grad
        made.requires_grad = True
    return made


def _at_address(data: Any, dtype: Any, shape: Any, strides: Sequence[int] | None, ptr: int) -> Host:
    if data is not None:
        raise LaunchError("give data or ptr=, not both")
    if dtype is None or shape is None:
        raise LaunchError("ptr= needs dtype= and shape= as well")
    sizes = _shape(shape)
    if strides is not None and len(strides) != len(sizes):
        raise ShapeMismatch(f"{len(strides)} strides were given for a shape of {len(sizes)} axes")
    steps = None if strides is None else tuple(int(s) for s in strides)
    return dlpack.array_at(int(ptr), sizes, require_dtype(dtype).np, steps)


def _from_data(
    data: Any, dtype: DType | CompositeType | None, shape: Any, copy: bool | None, requires_grad: bool
) -> Array:
    if data is None:
        if shape is None:
            raise LaunchError("an array needs data, or a shape", help="tg.array([1.0, 2.0]), tg.zeros(8), ...")
        return empty(shape, float if dtype is None else dtype, requires_grad=requires_grad)
    if dtype is None and isinstance(data, Array):
        dtype = data.dtype
    if dtype is None:
        dtype = _composite_of(data)
    host = _host(data, None) if dtype is None else _composite_host(data, dtype)
    kind: Any = dtype or require_dtype(host.dtype)
    inner = kind.shape if isinstance(kind, GridType) else ()
    memory = _scalar_of(kind).np
    if copy is False:
        _require_shared(data, host, kind, memory)
    if host.ndim == len(inner):
        host = host[None]
    fitted = _reshaped(host, shape, inner)
    if not copy and fitted.dtype == memory:
        return Array(fitted, requires_grad, _composite(kind))
    made = Array(_allocate(fitted.shape[: fitted.ndim - len(inner)], kind), requires_grad, _composite(kind))
    for tell in before_write if isinstance(data, Array) else ():
        tell(made, data if made.shape == data.shape else data.reshape(made.shape))
    made.data[...] = fitted
    return made


def _composite_of(data: Any) -> CompositeType | None:
    """The type of the host values in nested lists, if they are composite."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data.kind if isinstance(data, (HostValue, StructValue)) else None


def _require_shared(data: Any, host: Host, kind: Any, memory: Any) -> None:
    if host.dtype != memory:
        raise TypeMismatch(f"{host.dtype} data cannot be seen as {kind} without a copy", help="leave out copy=False")
    if isinstance(data, (int, float, list, tuple)):
        raise TypeMismatch(
            f"a {type(data).__name__} has no memory to share, so copy=False is not possible",
            help="leave out copy=False",
        )


def _reshaped(host: Host, shape: Any, inner: tuple[int, ...] = ()) -> Host:
    if shape is None:
        return host
    wanted = (*_shape(shape, inferred=True), *inner)
    try:
        return host.reshape(wanted)
    except ValueError:
        raise ShapeMismatch(f"data of shape {host.shape} does not fill shape {wanted}") from None


def empty(
    shape: Any = None, dtype: Any = float, device: Any = None, requires_grad: bool = False, pinned: bool = False
) -> Array:
    """A new array whose elements are whatever lay in memory. `pinned` is accepted and has no meaning on the CPU."""
    _require_device(device)
    t = require_element_type(dtype)
    return Array(_allocate(_shape(shape), t), requires_grad, _composite(t))


def zeros(
    shape: Any = None, dtype: Any = float, device: Any = None, requires_grad: bool = False, pinned: bool = False
) -> Array:
    """A new array of zeros."""
    _require_device(device)
    t = require_element_type(dtype)
    return Array(_allocate(_shape(shape), t, clear=True), requires_grad, _composite(t))


def ones(
    shape: Any = None, dtype: Any = float, device: Any = None, requires_grad: bool = False, pinned: bool = False
) -> Array:
    """A new array of ones; every component of vectors and matrices is one."""
    if isinstance(dtype, StructType):
        raise TypeMismatch(f"there is no {dtype} that is one", help="use full(shape, value)")
    return full(shape, 1, dtype, device, requires_grad)


def full(
    shape: Any = None,
    value: Any = 0,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pinned: bool = False,
) -> Array:
    """A new array of one value; its type is that of the value unless `dtype` says it."""
    own = _composite_of(value) if dtype is None else None
    kind = own or require_element_type(_host(value, None).dtype if dtype is None else dtype)
    made = empty(shape, kind, device, requires_grad)
    made.data[...] = _number(value, kind)
    return made


def _like(src: Any, requires_grad: bool | None) -> tuple[tuple[int, ...], Any, bool]:
    if isinstance(src, Array):
        return src.shape, src.dtype, src.requires_grad if requires_grad is None else requires_grad
    host = foreign(src)
    if not isinstance(host, np.ndarray):
        raise TypeMismatch(f"an array is needed, not {type(src).__name__}")
    return host.shape, require_dtype(host.dtype), bool(requires_grad)


def empty_like(src: Any, device: Any = None, requires_grad: bool | None = None, pinned: bool = False) -> Array:
    """A new array with the shape, type and (unless said) `requires_grad` of another."""
    shape, dtype, wanted = _like(src, requires_grad)
    return empty(shape, dtype, device, wanted)


def zeros_like(src: Any, device: Any = None, requires_grad: bool | None = None, pinned: bool = False) -> Array:
    """Zeros with the shape, type and (unless said) `requires_grad` of another array."""
    shape, dtype, wanted = _like(src, requires_grad)
    return zeros(shape, dtype, device, wanted)


def ones_like(src: Any, device: Any = None, requires_grad: bool | None = None, pinned: bool = False) -> Array:
    """Ones with the shape, type and (unless said) `requires_grad` of another array."""
    shape, dtype, wanted = _like(src, requires_grad)
    return ones(shape, dtype, device, wanted)


def full_like(
    src: Any, value: Any, device: Any = None, requires_grad: bool | None = None, pinned: bool = False
) -> Array:
    """One value everywhere, with the shape, type and (unless said) `requires_grad` of another array."""
    shape, dtype, wanted = _like(src, requires_grad)
    return full(shape, value, dtype, device, wanted)


def clone(src: Any, device: Any = None, requires_grad: bool | None = None, pinned: bool = False) -> Array:
    """A copy in memory of its own; tapes record it like `copy`."""
    made = empty_like(src, device, requires_grad)
    return made.assign(src)


def copy(dest: Any, src: Any, dest_offset: int = 0, src_offset: int = 0, count: int = 0) -> None:
    """Copy elements from one array to another; tapes record it.

    Args:
        dest, src: Arrays of one type. They have the same shape, unless offsets or `count` are given.
        dest_offset, src_offset: First element, counted in row-major order.
        count: Number of elements; 0 means all of `src` from its offset on.
    """
    target = dest if isinstance(dest, Array) else Array(_require_array("dest", dest))
    source = src if isinstance(src, Array) else Array(_require_array("src", src))
    if target.dtype is not source.dtype:
        raise TypeMismatch(f"copy: dest holds {target.dtype}, src holds {source.dtype}", help="copy to a like type")
    if dest_offset or src_offset or count or target.shape != source.shape:
        count = count or source.size - src_offset
        target = _part("dest", target, dest_offset, count)
        source = _part("src", source, src_offset, count)
    target.assign(source)


def _require_array(which: str, x: Any) -> Host:
    found = foreign(x)
    if not isinstance(found, np.ndarray):
        raise TypeMismatch(f"copy: {which} must be an array, it is {type(x).__name__}")
    return found


def _part(which: str, a: Array, offset: int, count: int) -> Array:
    if offset < 0 or count < 0 or offset + count > a.size:
        raise ShapeMismatch(f"copy: elements {offset} to {offset + count} of {which} were asked for, it has {a.size}")
    if not a.is_contiguous:
        raise ShapeMismatch(f"copy: {which} is not contiguous, so parts of it cannot be counted", help="copy a slice")
    part: Array = a.flatten()[offset : offset + count]
    return part


def from_numpy(
    arr: Host, dtype: Any = None, shape: Any = None, device: Any = None, requires_grad: bool = False
) -> Array:
    """A copy of a NumPy array. To share its memory use `array(a, copy=False)`, or pass it to a launch as it is."""
    return array(arr, dtype, shape, device=device, requires_grad=requires_grad)


def from_dlpack(x: Any) -> Array:
    """An array on the memory of another library's array."""
    return Array(dlpack.import_array(x))
