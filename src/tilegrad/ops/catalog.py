"""All families of operations in one list, and the names under which users find them.

Importing this module registers every op and checks that each has all its rules. Does not define any op.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tilegrad.op import freeze
from tilegrad.ops import (
    along,
    arithmetic,
    bits,
    cast,
    cholesky,
    comparison,
    components,
    construction,
    control,
    custom,
    debug,
    determinant,
    eigen,
    elements,
    error_functions,
    exponential,
    fft,
    gather,
    held,
    histogram,
    hyperbolic,
    indexed,
    indexing,
    lanes,
    lu,
    matmul,
    matrices,
    memory,
    order,
    power,
    products,
    qr,
    quaternions,
    random,
    reduce,
    rounding,
    scan,
    small_factors,
    small_matrices,
    sort,
    stack,
    transforms,
    triangular,
    trigonometry,
    vectors,
    views,
)

FAMILIES: tuple[ModuleType, ...] = (
    control, arithmetic, comparison, bits, cast, rounding, exponential, power, trigonometry,
    hyperbolic, error_functions,
    construction, random, memory, elements, components, views, indexing, indexed, gather, reduce, scan, matmul,
    along, order, sort, histogram, products, lanes, stack, debug, custom,
    matrices, triangular, cholesky, lu, determinant, qr, eigen, fft,
    held, vectors, small_matrices, small_factors, quaternions, transforms,
)  # fmt: skip

PUBLIC: dict[str, Any] = {
    name: operation for family in FAMILIES for name, operation in getattr(family, "PUBLIC", {}).items()
}

freeze()
