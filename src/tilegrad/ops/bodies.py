"""How bodies of elementwise ops compute: in more precision than their operands have, rounded once at the end.

A body is the meaning of an op, so it should be nearly exact: a 16-bit or 32-bit operand is computed in float64, and
what NumPy lacks is evaluated by Python's `math`. Does not know any particular op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilegrad import dtypes as dt


def is_float(x: Any) -> bool:
    """Whether a NumPy value is a float; NumPy itself calls bfloat16 something else."""
    known = dt.as_dtype(np.asarray(x).dtype)
    return known is not None and known.is_float


def in_double(function: Callable[..., Any], *operands: Any) -> Any:
    """`function` of float operands, computed in float64 and rounded to their dtype."""
    arrays = [np.asarray(x) for x in operands]
    dtype = next(
        (a.dtype for a, x in zip(arrays, operands, strict=True) if not isinstance(x, (int, float))), np.float64
    )
    with np.errstate(all="ignore"):
        return np.asarray(function(*(a.astype(np.float64) for a in arrays))).astype(dtype)[()]


def pick(condition: Any, x: Any, y: Any) -> Any:
    """np.where; a scalar where all are scalars."""
    chosen: Any = np.where(condition, x, y)
    return chosen[()]


def by_math(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A scalar function of `math` for float64 arrays; outside of its domain the result is NaN."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return np.nan

    return np.vectorize(guarded, otypes=[np.float64])
