"""Matrices of few rows and columns: transpose, determinant, inverse, trace, diagonals, construction by rows or columns.

A matrix has parts that are scalars or tiles; every function is composed of ops on them, so a tile of matrices is worked
on element by element and gradients are those of the parts. 16-bit floats are computed in float32 and rounded once.
Factorisations are in `small_factors`; matrices that are tiles (two axes of a tile) have families of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilegrad.composite import Composite, is_matrix, is_vector, make_matrix, make_vector
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ops.algebra import (
    alike,
    call,
    div,
    even_matrix,
    everywhere,
    inner,
    mul,
    neg,
    require_floats,
    require_grid,
    rounded_once,
    sub,
    total,
    where,
)
from tilegrad.ops.vectors import converted, dtype_for, flat

Rows = list[list[Any]]

#: beyond this size determinants and inverses are computed by elimination
EXPANDED = 4


# --- rearranged parts -------------------------------------------------------------------------------------------------


@everywhere
def transpose(a: Any) -> Any:
    """The matrix with rows and columns exchanged.

    Raises: TypeMismatch if `a` is no matrix.
    Gradient: transpose(ct).

    Example:
        >>> import tilegrad as tg
        >>> tg.transpose(tg.mat22(1, 2, 3, 4))
        mat22f(1.0, 3.0, 2.0, 4.0)
    """
    x = require_grid("transpose", a, is_matrix)
    return make_matrix(x.columns, x.grid.dtype)


@everywhere
def get_diag(a: Any) -> Any:
    """The diagonal of a square matrix, as a vector.

    Raises: TypeMismatch if `a` is no square matrix.
    Gradient: diag(ct).

    Example:
        >>> import tilegrad as tg
        >>> tg.get_diag(tg.mat22(1, 2, 3, 4))
        vec2f(1.0, 4.0)
    """
    x = require_square("get_diag", a)
    return make_vector(x[:: len(x.rows) + 1], x.grid.dtype)


@everywhere
def diag(v: Any) -> Any:
    """The square matrix with a vector on its diagonal and zeros elsewhere.

    Raises: TypeMismatch if `v` is no vector.
    Gradient: get_diag(ct).

    Example:
        >>> import tilegrad as tg
        >>> tg.diag(tg.vec2(1, 2))
        mat22f(1.0, 0.0, 0.0, 2.0)
    """
    x = require_grid("diag", v, is_vector)
    zero = x.grid.dtype(0)
    return even_matrix([[p if i == j else zero for j in range(len(x))] for i, p in enumerate(x)], x.grid.dtype)


@everywhere
@rounded_once
def trace(a: Any) -> Any:
    """The sum of the diagonal of a square matrix.

    Raises: TypeMismatch if `a` is no square matrix.
    Gradient: ct on the diagonal.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.trace(tg.mat22(1, 2, 3, 4)))
        5.0
    """
    x = require_square("trace", a)
    return total(x[:: len(x.rows) + 1])


@everywhere
@rounded_once
def ddot(a: Any, b: Any) -> Any:
    """The sum of the products of corresponding parts of two matrices of one type (Frobenius).

    Raises: TypeMismatch if they are not.
    Gradient: ct b and ct a.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.ddot(tg.mat22(1, 2, 3, 4), tg.mat22(1, 1, 1, 1)))
        10.0
    """
    return inner(*alike("ddot", a, b, is_matrix))


def require_square(what: str, a: Any) -> Composite:
    """A square matrix. Raises TypeMismatch."""
    x = require_grid(what, a, is_matrix)
    if x.grid.shape[0] != x.grid.shape[1]:
        raise TypeMismatch(f"{what} takes a square matrix, not {x.kind}")
    return x


# --- construction -----------------------------------------------------------------------------------------------------


@everywhere
def identity(n: int = 3, dtype: Any = float) -> Any:
    """The matrix with n rows, ones on its diagonal and zeros elsewhere.

    Args:
        n: the number of rows; a compile-time constant.
        dtype: the dtype of the parts.
    Raises: TypeMismatch if n is no positive constant or dtype is no scalar type.
    Gradient: none, there are no operands.

    Example:
        >>> import tilegrad as tg
        >>> tg.identity(n=2, dtype=float)
        mat22f(1.0, 0.0, 0.0, 1.0)
    """
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise TypeMismatch("identity: n must be a positive compile-time constant")
    made = dtype_for("identity", (), dtype)
    return even_matrix([[made(i == j) for j in range(n)] for i in range(n)], made)


@everywhere
def matrix_from_rows(*rows: Any) -> Any:
    """The matrix with the given vectors, all of one type, as its rows.

    Raises: TypeMismatch if an argument is no vector or the types differ.
    Gradient: the rows of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.matrix_from_rows(tg.vec2(1, 2), tg.vec2(3, 4))
        mat22f(1.0, 2.0, 3.0, 4.0)
    """
    return _stacked("matrix_from_rows", rows)


@everywhere
def matrix_from_cols(*cols: Any) -> Any:
    """The matrix with the given vectors, all of one type, as its columns.

    Raises: TypeMismatch if an argument is no vector or the types differ.
    Gradient: the columns of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.matrix_from_cols(tg.vec2(1, 2), tg.vec2(3, 4))
        mat22f(1.0, 3.0, 2.0, 4.0)
    """
    return transpose(_stacked("matrix_from_cols", cols))


def _stacked(what: str, vectors: Sequence[Any]) -> Composite:
    if not vectors:
        raise TypeMismatch(f"{what} needs at least one vector")
    found = [alike(what, vectors[0], v, is_vector)[1] for v in vectors]
    return even_matrix(found, found[0].grid.dtype)


@everywhere
def matrix(*args: Any, shape: Any = None, dtype: Any = None) -> Any:
    """A matrix of the given parts, row by row, or with all parts equal to the one given, or zeros.

    Args:
        args: numbers in row order, one number for every part, or none.
        shape: (rows, columns), compile-time constants. Without it, that of a square matrix of so many parts.
        dtype: the dtype of the parts, to which they are converted. Without it, that of the parts; float32 for literals.
    Raises: TypeMismatch if the number of parts does not fit the shape, the parts are of different types, or vectors are
        given.
    Gradient: the parts of ct.

    Example:
        >>> import tilegrad as tg
        >>> tg.matrix(1, 2, 3, 4, 5, 6, shape=(2, 3))
        matrix(2, 3, float32)(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    """
    if any(is_vector(a) for a in args):
        raise TypeMismatch("matrix of vectors: rows or columns?", help="write matrix_from_rows or matrix_from_cols")
    made = dtype_for("matrix", args, dtype)
    parts = [converted("matrix", x, made, dtype is not None) for x in flat(args)]
    rows, columns = _shape(shape, len(parts))
    if len(parts) <= 1:
        parts = (parts or [made(0)]) * (rows * columns)
    if len(parts) != rows * columns:
        raise TypeMismatch(f"matrix: shape ({rows}, {columns}) has {rows * columns} parts, {len(parts)} are given")
    return even_matrix([parts[columns * i : columns * (i + 1)] for i in range(rows)], made)


def _shape(shape: Any, count: int) -> tuple[int, int]:
    side = math.isqrt(count)
    found = shape if shape is not None else (side, side)
    if not isinstance(found, tuple) or len(found) != 2 or not all(isinstance(n, int) and n > 0 for n in found):
        raise TypeMismatch(f"matrix: shape must be (rows, columns), it is {shape!r}")
    if shape is None and side * side != count:
        raise TypeMismatch(f"matrix: {count} parts do not make a square", help="write shape=(rows, columns)")
    return found


# --- determinant and inverse ------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def determinant(a: Any) -> Any:
    """The determinant of a square matrix of floats.

    Up to 4 rows it is a polynomial of the parts, so that gradients are exact for singular matrices too; larger ones
    are eliminated with partial pivoting.

    Raises: TypeMismatch if `a` is no square matrix of floats.
    Gradient: ct times the transposed adjugate.

    Example:
        >>> import tilegrad as tg
        >>> float(tg.determinant(tg.mat22(1, 2, 3, 4)))
        -2.0
    """
    x = require_square("determinant", a)
    require_floats("determinant", x)
    return determinant_of([list(r) for r in x.rows], x.grid.dtype)


@everywhere
@rounded_once
def inverse(a: Any) -> Any:
    """The inverse of a square matrix of floats; zeros if its determinant is 0.

    Up to 4 rows it is the adjugate divided by the determinant; larger matrices are eliminated with partial pivoting.

    Raises: TypeMismatch if `a` is no square matrix of floats.
    Gradient: -transpose(out) ct transpose(out).

    Example:
        >>> import tilegrad as tg
        >>> tg.inverse(tg.mat22(2, 1, 1, 1))
        mat22f(1.0, -1.0, -1.0, 2.0)
    """
    x = require_square("inverse", a)
    dtype = require_floats("inverse", x)
    rows = [list(r) for r in x.rows]
    return even_matrix(_adjugate_inverse(rows) if len(rows) <= EXPANDED else _eliminated(rows, dtype), dtype)


def determinant_of(rows: Rows, dtype: DType) -> Any:
    """The determinant of a square matrix given by its rows."""
    n = len(rows)
    if n <= EXPANDED:
        return _minors(rows)(tuple(range(n)), tuple(range(n)))
    result, upper = _triangular(rows, dtype)
    for k in range(n):
        result = mul(result, upper[k][k])
    return result


def _minors(rows: Rows) -> Callable[[tuple[int, ...], tuple[int, ...]], Any]:
    """Determinants of square selections of rows and columns, expanded along the last row; each is computed once."""
    known: dict[Any, Any] = {}

    def minor(r: tuple[int, ...], c: tuple[int, ...]) -> Any:
        if len(r) == 1:
            return rows[r[0]][c[0]]
        if (r, c) not in known:
            terms = [mul(rows[r[-1]][j], minor(r[:-1], (*c[:k], *c[k + 1 :]))) for k, j in enumerate(c)]
            known[r, c] = _alternating(terms[::-1])
        return known[r, c]

    return minor


def _alternating(terms: Sequence[Any]) -> Any:
    """a - b + c - ..."""
    result = terms[0]
    for k, term in enumerate(terms[1:]):
        result = call("add" if k % 2 else "sub", result, term)
    return result


def _adjugate_inverse(rows: Rows) -> Rows:
    n = len(rows)
    whole = tuple(range(n))
    if n == 1:
        adjugate, determinant = [[1.0]], rows[0][0]
    else:
        minor = _minors(rows)
        adjugate = [
            [_signed(i + j, minor((*whole[:i], *whole[i + 1 :]), (*whole[:j], *whole[j + 1 :]))) for i in whole]
            for j in whole
        ]
        determinant = total([mul(rows[0][j], adjugate[j][0]) for j in whole])
    singular = call("eq", determinant, 0)
    divisor = where(singular, 1, determinant)
    return [[where(singular, 0, div(x, divisor)) for x in row] for row in adjugate]


def _signed(exponent: int, x: Any) -> Any:
    return neg(x) if exponent % 2 else x


# --- elimination ------------------------------------------------------------------------------------------------------


def _pivoted(rows: Rows, k: int) -> tuple[list[Any], Rows]:
    """What tells each exchange, and the rows with one of those from k on, whose part k is largest, at place k."""
    result = [list(row) for row in rows]
    exchanged = []
    for i in range(k + 1, len(rows)):
        larger = call("gt", call("abs", result[i][k]), call("abs", result[k][k]))
        exchanged.append(larger)
        pairs = [(where(larger, y, x), where(larger, x, y)) for x, y in zip(result[k], result[i], strict=True)]
        result[k], result[i] = [p for p, _ in pairs], [q for _, q in pairs]
    return exchanged, result


def _triangular(rows: Rows, dtype: DType) -> tuple[Any, Rows]:
    """The sign of the exchanges and the upper triangle of Gaussian elimination."""
    sign: Any = dtype(1)
    for k in range(len(rows)):
        exchanged, rows = _pivoted(rows, k)
        for e in exchanged:
            sign = where(e, neg(sign), sign)
        for i in range(k + 1, len(rows)):
            rows[i] = _reduced(rows[i], rows[k], k, k + 1)
    return sign, rows


def _reduced(row: list[Any], pivot: list[Any], k: int, start: int) -> list[Any]:
    """A row less the multiple of the pivot row that makes its part k zero; parts before `start` are left alone."""
    empty = call("eq", pivot[k], 0)
    factor = where(empty, 0, div(row[k], where(empty, 1, pivot[k])))
    return row[:start] + [sub(x, mul(factor, p)) for x, p in zip(row[start:], pivot[start:], strict=True)]


def _eliminated(rows: Rows, dtype: DType) -> Rows:
    """The inverse by Gauss and Jordan, with partial pivoting; zeros if a pivot is 0."""
    n = len(rows)
    work = [row + [dtype(i == j) for j in range(n)] for i, row in enumerate(rows)]
    singular: Any = None
    for k in range(n):
        _, work = _pivoted(work, k)
        empty = call("eq", work[k][k], 0)
        singular = empty if singular is None else call("bit_or", singular, empty)
        work = [row if i == k else _reduced(row, work[k], k, k + 1) for i, row in enumerate(work)]
    return [[where(singular, 0, div(x, where(singular, 1, row[i]))) for x in row[n:]] for i, row in enumerate(work)]


PUBLIC: dict[str, Any] = {
    "transpose": transpose, "get_diag": get_diag, "diag": diag, "trace": trace, "ddot": ddot, "identity": identity,
    "matrix_from_rows": matrix_from_rows, "matrix_from_cols": matrix_from_cols, "matrix": matrix,
    "determinant": determinant, "inverse": inverse,
}  # fmt: skip
