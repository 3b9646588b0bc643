"""Makers of composite element types, spelled as in Warp: `types.vector(length=5, dtype=float)` and its kin."""

from __future__ import annotations

from tilegrad.element_types import (
    CompositeType,
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

__all__ = [
    "CompositeType", "MatrixType", "QuaternionType", "StructType", "TransformType", "VectorType", "matrix",
    "quaternion", "transformation", "vector",
]  # fmt: skip
