"""Scans of tiles: running sums, products, minima and maxima, and any associative operator of the user's.

A scan keeps shape and dtype, so integers wrap. An inclusive scan takes in the element itself; an exclusive one is the
same moved on by one place, with the neutral element first. `reverse` goes from the end to the start. Does not know
lanes that are absent: the front end replaces them, or hands over an `OfPresent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.composite import Composite, kind_of, leaves, map_parts, of_leaves
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ir.types import ScalarType
from tilegrad.op import REGISTRY, constant, describe, unwrap
from tilegrad.ops.operators import (
    Combine,
    Leaves,
    OfPresent,
    as_combine,
    builtin_name,
    of_present,
    part,
    parts,
    require_elements,
    with_part,
    with_parts,
)
from tilegrad.ops.running import scan
from tilegrad.ops.shapes import require_axis, require_tile
from tilegrad.ops.views import shape_of, tile_reshape

#: builtins that have a running form
COMBINES = {"add": "add", "mul": "mul", "minimum": "min", "maximum": "max"}


def tile_scan(
    op: Any, t: Any, axis: Any = None, reverse: bool = False, exclusive: bool = False, initial: Any = None
) -> Any:
    """Running results of an associative operator along an axis: element k combines elements 0 to k.

    Args:
        op: a builtin such as `tg.add`, `tg.mul`, `tg.min` or `tg.max`, or a function of two elements that is
            associative; the first argument is what has been combined so far.
        t: tile, of any element type that the operator takes and returns.
        axis: an int, or None for all elements in row-major order.
        reverse: from the end to the start: as if the axis were flipped before and after.
        exclusive: element k combines elements 0 to k-1 only.
        initial: what an exclusive scan starts with; the operator's neutral element unless given. An operator of the
            user's own has no known neutral element, so its exclusive scan needs `initial`.

    Returns: a tile of the same shape and dtype: small integers wrap. A scan of float16 or bfloat16 is carried in
        float32, one of float32 in float64, and sums of the others with their rounding errors, so that the error does
        not grow with the extent. tg.min and tg.max count NaN as missing, so the result is NaN as long as nothing else
        was met.
    Raises: TypeMismatch if the operator changes the dtype, if sums or products of bools are asked for, or if the
        exclusive scan of a user's operator has no `initial`.
    Gradient: of a sum, the scan of the cotangent in the other direction; of a product,
        P[j] * R[j] with P the exclusive scan and R[j] = ct[j] + t[j+1] * R[j+1], exact with zeros among the elements;
        of min and max, the cotangents of each run of equal results go to the element that was picked, the one with the
        lowest index on ties; of a user's operator, its derivative along the log2(n) steps by which it is computed
        (Hillis and Steele 1986, Data parallel algorithms).

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array2d[float]):
        ...     t = tg.tile_load(x, shape=4)
        ...     tg.tile_store(y[0], tg.tile_scan(tg.mul, t + 1.0))
        ...     tg.tile_store(y[1], tg.tile_scan(lambda a, b: a + b + a * b, t, reverse=True))
        ...     tg.tile_store(y[2], tg.tile_scan(tg.add, t, exclusive=True))
        >>> x, y = np.arange(4, dtype=np.float32), np.zeros((3, 4), np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [[1.0, 2.0, 6.0, 24.0], [23.0, 23.0, 11.0, 3.0], [0.0, 0.0, 1.0, 3.0]]
    """
    elements = require_elements("tile_scan", "t", t)
    present: Leaves = (op.present,) if isinstance(op, OfPresent) else ()
    function = op.operator if isinstance(op, OfPresent) else op
    known = COMBINES.get(builtin_name(function, t), "") if not present else ""
    _require_numbers("tile_scan", elements[0].type.dtype, known)
    combine = as_combine("tile_scan", function, t)
    starts = _starts(initial, t, elements, bool(exclusive), bool(known))

    def run(x: Leaves, k: int) -> Leaves:
        if starts:
            x = _after((*starts, *(constant(True) for _ in present)), x, k, bool(reverse))
        if known:
            left = bool(exclusive) and not starts
            return tuple(scan(e, combine=known, axis=k, reverse=bool(reverse), exclusive=left) for e in x)
        return _by_steps(of_present(combine) if present else combine, x, k, bool(reverse))

    made = _along("tile_scan", (*elements, *present), axis, run)
    return of_leaves(kind_of(t), iter(made))


def _along(what: str, elements: Leaves, axis: Any, run: Callable[[Leaves, int], Leaves]) -> Leaves:
    """Scan along an axis, or all elements in row-major order."""
    shape = shape_of(elements[0])
    if axis is not None:
        return run(elements, require_axis(what, axis, len(shape)))
    flat = run(tuple(tile_reshape(x, shape=(math.prod(shape),)) for x in elements), 0)
    return tuple(tile_reshape(x, shape=shape) for x in flat)


def _starts(initial: Any, t: Any, elements: Leaves, exclusive: bool, known: bool) -> Leaves:
    """The leaves of `initial` as scalars; none if the scan starts by itself."""
    if initial is None:
        if exclusive and not known:
            raise TypeMismatch(
                "tile_scan: the exclusive scan of a user's operator needs `initial`, what the first element becomes",
                help="give the operator's neutral element, for example initial=1.0 for a product",
            )
        return ()
    if not exclusive:
        raise TypeMismatch("tile_scan: `initial` is what an exclusive scan starts with", help="write exclusive=True")
    given = tuple(leaves(initial))
    if len(given) != len(elements) or (len(given) > 1 and kind_of(initial) is not kind_of(t)):
        raise TypeMismatch(f"tile_scan: `initial` must be a {kind_of(t)}, it is {initial!r}")
    return tuple(_start(x, e.type.dtype) for x, e in zip(given, elements, strict=True))


def _start(x: Any, dtype: DType) -> Any:
    if isinstance(x, (bool, int, float)):
        if isinstance(x, bool) != (dtype.kind == "b") or not dt.literal_fits(x, dtype):
            raise TypeMismatch(f"tile_scan: `initial` {x!r} is not a value of {dtype}")
        return constant(x, dtype)
    value = unwrap(x)
    kind = getattr(value, "type", None)
    if not isinstance(kind, ScalarType) or kind.dtype is not dtype:
        found = describe(kind) if kind is not None else repr(x)
        raise TypeMismatch(f"tile_scan: `initial` must be {dtype}, it is {found}", help=f"write {dtype}(...)")
    if kind.varying:
        raise TypeMismatch("tile_scan: `initial` differs between the lanes of the block; the tile has one start")
    return value


def _after(starts: Leaves, x: Leaves, axis: int, reverse: bool) -> Leaves:
    """The elements moved on by one place, after a first one."""
    shape = shape_of(x[0])
    moved = []
    for start, t in zip(starts, x, strict=True):
        full = REGISTRY["tile_full"](start, shape=shape)
        if shape[axis] > 1:
            rest = part(t, axis, 1 if reverse else 0, shape[axis] - 1)
            full = with_part(full, rest, axis, 0 if reverse else 1)
        moved.append(full)
    return tuple(moved)


def _by_steps(combine: Combine, x: Leaves, axis: int, reverse: bool) -> Leaves:
    """An inclusive scan in log2(n) steps, of which step s combines what is 2**s places apart (Hillis, Steele 1986)."""
    n, distance = shape_of(x[0])[axis], 1
    while distance < n:
        low, high = parts(x, axis, 0, n - distance), parts(x, axis, distance, n - distance)
        made = combine(high, low) if reverse else combine(low, high)
        x = with_parts(x, made, axis, 0 if reverse else distance)
        distance *= 2
    return x


def _running_scan(what: str, a: Any, axis: Any, combine: str, **attrs: bool) -> Any:
    _require_numbers(what, require_tile(what, "a", a).dtype, combine)
    return _along(what, (unwrap(a),), axis, lambda x, k: (scan(x[0], combine=combine, axis=k, **attrs),))[0]


def _require_numbers(what: str, dtype: DType, combine: str) -> None:
    if dtype.kind == "b" and combine in ("add", "mul"):
        raise TypeMismatch(
            f"{what}: a running {'sum' if combine == 'add' else 'product'} of bools would be a bool",
            help="count with tile_astype(t, int32); for logic scan with tg.max (any) or tg.min (all)",
        )


def tile_scan_inclusive(a: Any, axis: Any = None) -> Any:
    """Running sums: element k is a[0] + ... + a[k].

    Args:
        a: tile, or a tile of vectors or matrices, of any numeric type.
        axis: an int, or None for all elements in row-major order.

    Returns: a tile of the same shape and dtype; integers wrap. The error of floats does not grow with the extent.
    Gradient: the running sums of the cotangent from the end to the start.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 3.0, 6.0, 10.0]
    """
    return _part_by_part("tile_scan_inclusive", a, axis, exclusive=False)


def tile_scan_exclusive(a: Any, axis: Any = None) -> Any:
    """Running sums without the element itself: element k is a[0] + ... + a[k-1], the first is 0.

    Args:
        a: tile, or a tile of vectors or matrices, of any numeric type.
        axis: an int, or None for all elements in row-major order.

    Returns: a tile of the same shape and dtype; integers wrap. The error of floats does not grow with the extent.
    Gradient: the exclusive running sums of the cotangent from the end to the start.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_exclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [0.0, 1.0, 3.0, 6.0]
    """
    return _part_by_part("tile_scan_exclusive", a, axis, exclusive=True)


def _part_by_part(what: str, a: Any, axis: Any, exclusive: bool) -> Any:
    if isinstance(a, Composite):
        return map_parts(lambda t: _running_scan(what, t, axis, "add", exclusive=exclusive), a)
    return _running_scan(what, a, axis, "add", exclusive=exclusive)


def tile_scan_max_inclusive(a: Any, axis: Any = None, propagate_nan: bool = False) -> Any:
    """Running maxima: element k is the largest of a[0] to a[k].

    Args:
        a: tile of numbers or bools.
        axis: an int, or None for all elements in row-major order.
        propagate_nan: a NaN stays, as in NumPy; otherwise NaN counts as missing.

    Returns: a tile of the same shape and dtype.
    Gradient: to the element that was picked, the first one on ties.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_max_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.array([1, np.nan, 3, 2], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [1.0, 1.0, 3.0, 3.0]
    """
    return _running_scan("tile_scan_max_inclusive", a, axis, "max", propagate_nan=bool(propagate_nan))


def tile_scan_min_inclusive(a: Any, axis: Any = None, propagate_nan: bool = False) -> Any:
    """Running minima: element k is the smallest of a[0] to a[k].

    Args:
        a: tile of numbers or bools.
        axis: an int, or None for all elements in row-major order.
        propagate_nan: a NaN stays, as in NumPy; otherwise NaN counts as missing.

    Returns: a tile of the same shape and dtype.
    Gradient: to the element that was picked, the first one on ties.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(x: tg.array1d[float], y: tg.array1d[float]):
        ...     tg.tile_store(y, tg.tile_scan_min_inclusive(tg.tile_load(x, shape=4)))
        >>> x, y = np.array([3, np.nan, 1, 2], np.float32), np.zeros(4, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[x, y])
        >>> y.tolist()
        [3.0, 3.0, 1.0, 1.0]
    """
    return _running_scan("tile_scan_min_inclusive", a, axis, "min", propagate_nan=bool(propagate_nan))


PUBLIC = {
    "tile_scan": tile_scan,
    "tile_scan_inclusive": tile_scan_inclusive,
    "tile_scan_exclusive": tile_scan_exclusive,
    "tile_scan_max_inclusive": tile_scan_max_inclusive,
    "tile_scan_min_inclusive": tile_scan_min_inclusive,
}
