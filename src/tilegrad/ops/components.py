"""One scalar of the elements of an array: how the components of vectors and matrices in memory are reached.

An array of vec3 with shape (n,) is an array of scalars with shape (n, 3); its components are three arrays of shape (n,)
that lie between one another. Does not know composite types: the front end asks for components by their index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad.diagnostics import ShapeMismatch
from tilegrad.emit import ArrayRef, Emitter
from tilegrad.ir.types import ArrayType, Type
from tilegrad.op import Array, Sample, infer, lower, op, samples


@op(cls="scalar", no_gradient="it names a part of an array; the gradient array is cut in the same way")
def array_component(a: Array, *, index: tuple[int, ...]) -> Array:
    """The part of an array with its last axes fixed: a[..., index]. The index is known to be inside. No copy."""
    return a[(..., *index)]


@infer(array_component)
def _array_component_infer(a: ArrayType, *, index: tuple[int, ...]) -> Type:
    if not 0 < len(index) < a.ndim:
        raise ShapeMismatch(f"{len(index)} indices give no component of a {a.ndim}-D array")
    return ArrayType(a.dtype, a.ndim - len(index))


@lower(array_component)
def _array_component_lower(e: Emitter, a: ArrayRef, *, index: tuple[int, ...]) -> ArrayRef:
    raise NotImplementedError("array_component is lowered by the code generator")


@samples(array_component)
def _array_component_samples(rng: np.random.Generator) -> Iterator[Sample]:
    return iter(())


PUBLIC: dict[str, Any] = {}
