"""Factors of matrices with two or three rows: QR by Givens rotations, eigenvalues and singular values by Jacobi's.

The iterations run a fixed number of sweeps, enough for full accuracy, on values without derivatives. The derivatives
come from what is known of the factors: to first order a change P of the diagonalised matrix turns the vectors by
P[i, j] / (d[j] - d[i]) and changes the values by its diagonal (Giles 2008, "Collected matrix derivative results for
forward and reverse mode algorithmic differentiation"). Where values are equal their vectors are any of a plane, and
that part of the derivative is taken as 0. Second derivatives of eigenvectors and singular vectors are not given.
16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad import dtypes as dt
from tilegrad.composite import Composite
from tilegrad.diagnostics import TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.ops.algebra import (
    add,
    call,
    cross_parts,
    div,
    even_matrix,
    even_vector,
    everywhere,
    inner,
    mul,
    neg,
    require_floats,
    rounded_once,
    sub,
    where,
)
from tilegrad.ops.held import held, once, repeated
from tilegrad.ops.small_matrices import Rows, require_square
from tilegrad.ops.vectors import root

SWEEPS = {dt.float32: 6, dt.float64: 8}


def _rows(what: str, a: Any, n: int) -> tuple[Rows, DType]:
    x = require_square(what, a)
    if len(x.rows) != n:
        raise TypeMismatch(f"{what} takes a {n} x {n} matrix, not {x.kind}")
    return [list(r) for r in x.rows], require_floats(what, x)


def _flipped(rows: Sequence[Sequence[Any]]) -> Rows:
    return [list(column) for column in zip(*rows, strict=True)]


def _times(a: Rows, b: Rows) -> Rows:
    columns = _flipped(b)
    return [[inner(row, column) for column in columns] for row in a]


def _mixed(x: Sequence[Any], y: Sequence[Any], c: Any, s: Any) -> tuple[list[Any], list[Any]]:
    """c x - s y and s x + c y."""
    pairs = list(zip(x, y, strict=True))
    return [sub(mul(c, p), mul(s, q)) for p, q in pairs], [add(mul(s, p), mul(c, q)) for p, q in pairs]


def _angle(difference: Any, twice: Any) -> tuple[Any, Any]:
    """Cosine and sine of Jacobi's rotation, of a difference on the diagonal and twice the element beside it."""
    still = call("eq", twice, 0)
    ratio = div(difference, where(still, 1, twice))
    size = add(call("abs", ratio), call("sqrt", add(mul(ratio, ratio), 1)))
    t = where(still, 0, div(call("copysign", 1, ratio), size))
    c = call("rsqrt", add(mul(t, t), 1))
    return c, mul(t, c)


def _exchanged(wrong: Any, x: Sequence[Any], y: Sequence[Any], turn: bool) -> tuple[list[Any], list[Any]]:
    """x and y, or y and (if `turn`, the negative of) x."""
    first = [where(wrong, q, p) for p, q in zip(x, y, strict=True)]
    return first, [where(wrong, neg(p) if turn else p, q) for p, q in zip(x, y, strict=True)]


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


# --- QR ---------------------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def qr3(a: Any) -> Any:
    """A rotation Q and an upper triangle R with a = Q * R, of a 3 x 3 matrix.

    The first two elements on the diagonal of R are not negative; det Q is 1.

    Returns: two values, Q and R.
    Raises: TypeMismatch if `a` is no 3 x 3 matrix of floats.
    Gradient: the derivative of the rotations; needs two independent first columns.

    Example:
        >>> import tilegrad as tg
        >>> q, r = tg.qr3(tg.mat33(0, 2, 0, 1, 0, 0, 0, 0, -3))
        >>> r[0]
        vec3f(1.0, 0.0, 0.0)
    """
    rows, dtype = _rows("qr3", a, 3)
    turned: Rows = [[dtype(i == j) for j in range(3)] for i in range(3)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        size = root(add(mul(rows[i][i], rows[i][i]), mul(rows[j][i], rows[j][i])))
        still = call("eq", size, 0)
        divisor = where(still, 1, size)
        c, s = where(still, 1, div(rows[i][i], divisor)), neg(div(rows[j][i], divisor))
        rows[i], rows[j] = _mixed(rows[i], rows[j], c, s)
        turned[i], turned[j] = _mixed(turned[i], turned[j], c, s)
    upper = [[x if i <= j else dtype(0) for j, x in enumerate(row)] for i, row in enumerate(rows)]
    return even_matrix(_flipped(turned), dtype), even_matrix(upper, dtype)


# --- eigenvalues ------------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def eig3(a: Any) -> Any:
    """Eigenvectors and eigenvalues, in ascending order, of a symmetric 3 x 3 matrix: a = Q * diag(d) * transpose(Q).

    What is decomposed is the symmetric part of `a`.

    Returns: two values, the matrix Q with the eigenvectors as its columns, and the vector d.
    Raises: TypeMismatch if `a` is no 3 x 3 matrix of floats.
    Gradient: Q (diag(ct_d) + F o (transpose(Q) ct_Q)) transpose(Q), symmetrised, with F[i, j] = 1 / (d[j] - d[i]) and 0
        where that is not finite.

    Example:
        >>> import tilegrad as tg
        >>> tg.eig3(tg.mat33(3, 0, 0, 0, 1, 0, 0, 0, 2))[1]
        vec3f(1.0, 2.0, 3.0)
    """
    rows, dtype = _rows("eig3", a, 3)
    half = dtype(0.5)
    whole = [[mul(add(rows[i][j], rows[j][i]), half) for j in range(3)] for i in range(3)]
    vectors, values = _eigen([[held(x) for x in row] for row in whole], dtype)
    change = _change(vectors, whole, vectors)
    result = [list(column) for column in vectors]
    for i, j in ((i, j) for i in range(3) for j in range(3) if i != j):
        factor = mul(change[i][j], _reciprocal(sub(values[j], values[i])))
        result[j] = [add(q, mul(p, factor)) for q, p in zip(result[j], vectors[i], strict=True)]
    moved = [add(d, change[i][i]) for i, d in enumerate(values)]
    return even_matrix(_flipped(result), dtype), even_vector(moved, dtype)


def _change(left: Rows, a: Rows, right: Rows) -> Rows:
    """The derivative of transpose(left) a right, both given by their columns: zeros that change as it does."""
    turned = _times(left, _times([[once(x) for x in row] for row in a], _flipped(right)))
    return [[sub(x, held(x)) for x in row] for row in turned]


def _reciprocal(x: Any) -> Any:
    zero = call("eq", x, 0)
    return where(zero, 0, div(1, where(zero, 1, x)))


def _eigen(a: Rows, dtype: DType) -> tuple[Rows, list[Any]]:
    """Eigenvectors, as rows, and eigenvalues in ascending order of a symmetric matrix."""
    n = len(a)

    def sweep(*state: Any) -> list[Any]:
        a = [list(state[n * i : n * (i + 1)]) for i in range(n)]
        v = [list(state[n * i : n * (i + 1)]) for i in range(n, 2 * n)]
        for p, q in _pairs(n):
            c, s = _angle(sub(a[q][q], a[p][p]), mul(a[p][q], 2))
            a[p], a[q] = _mixed(a[p], a[q], c, s)
            columns = _flipped(a)
            columns[p], columns[q] = _mixed(columns[p], columns[q], c, s)
            a = _flipped(columns)
            v[p], v[q] = _mixed(v[p], v[q], c, s)
        return [x for row in (*a, *v) for x in row]

    made = repeated(SWEEPS[dtype], sweep, [*(x for row in a for x in row), *_unit_like(a, dtype)])
    rows = [made[n * i : n * (i + 1)] for i in range(n, 2 * n)]
    values = [made[n * i + i] for i in range(n)]
    for i, j in ((0, 1), (1, 2), (0, 1))[: 3 if n == 3 else 1]:
        wrong = call("gt", values[i], values[j])
        rows[i], rows[j] = _exchanged(wrong, rows[i], rows[j], turn=False)
        (values[i],), (values[j],) = _exchanged(wrong, [values[i]], [values[j]], turn=False)
    return rows, values


def _unit_like(a: Rows, dtype: DType) -> list[Any]:
    """The parts of a unit matrix, tiles where the parts of `a` are."""
    n = len(a)
    flat = [x for row in a for x in row]
    full = even_vector([*flat, *(dtype(i == j) for i in range(n) for j in range(n))], dtype)
    return list(full[n * n :])


# --- singular values --------------------------------------------------------------------------------------------------


@everywhere
@rounded_once
def svd3(a: Any) -> Any:
    """Rotations U and V and values s with a = U * diag(s) * transpose(V), of a 3 x 3 matrix.

    The values descend by magnitude; only the last one is negative, if det(a) is.

    Returns: three values, U, s and V.
    Raises: TypeMismatch if `a` is no 3 x 3 matrix of floats.
    Gradient: with P = transpose(U) da V: ds = diag(P), dU = U (F o (P S + S transpose(P))) and
        dV = V (F o (S P + transpose(P) S)), F[i, j] = 1 / (s[j]**2 - s[i]**2) and 0 where that is not finite.

    Example:
        >>> import tilegrad as tg
        >>> tg.svd3(tg.mat33(1, 0, 0, 0, -3, 0, 0, 0, 2))[1]
        vec3f(3.0, 2.0, -1.0)
    """
    return _singular("svd3", a, 3)


@everywhere
@rounded_once
def svd2(a: Any) -> Any:
    """Rotations U and V and values s with a = U * diag(s) * transpose(V), of a 2 x 2 matrix; see `svd3`.

    Returns: three values, U, s and V.
    Raises: TypeMismatch if `a` is no 2 x 2 matrix of floats.
    Gradient: as that of `svd3`.

    Example:
        >>> import tilegrad as tg
        >>> tg.svd2(tg.mat22(1, 0, 0, -3))[1]
        vec2f(3.0, -1.0)
    """
    return _singular("svd2", a, 2)


def _singular(what: str, a: Any, n: int) -> tuple[Composite, Composite, Composite]:
    rows, dtype = _rows(what, a, n)
    u, s, v = _decomposed([[held(x) for x in row] for row in rows], dtype)
    p = _change(u, rows, v)
    left, right = [list(x) for x in u], [list(x) for x in v]
    for i, j in ((i, j) for i in range(n) for j in range(n) if i != j):
        factor = _reciprocal(mul(sub(s[j], s[i]), add(s[j], s[i])))
        x = mul(factor, add(mul(p[i][j], s[j]), mul(s[i], p[j][i])))
        y = mul(factor, add(mul(s[i], p[i][j]), mul(p[j][i], s[j])))
        left[j] = [add(q, mul(r, x)) for q, r in zip(left[j], u[i], strict=True)]
        right[j] = [add(q, mul(r, y)) for q, r in zip(right[j], v[i], strict=True)]
    values = [add(x, p[i][i]) for i, x in enumerate(s)]
    return even_matrix(_flipped(left), dtype), even_vector(values, dtype), even_matrix(_flipped(right), dtype)


def _decomposed(a: Rows, dtype: DType) -> tuple[Rows, list[Any], Rows]:
    """Columns of U, values, columns of V, by turning pairs of columns until they are orthogonal (Hestenes 1958)."""
    n = len(a)

    def sweep(*state: Any) -> list[Any]:
        w = [list(state[n * i : n * (i + 1)]) for i in range(n)]
        v = [list(state[n * i : n * (i + 1)]) for i in range(n, 2 * n)]
        for p, q in _pairs(n):
            c, s = _angle(sub(inner(w[q], w[q]), inner(w[p], w[p])), mul(inner(w[p], w[q]), 2))
            w[p], w[q] = _mixed(w[p], w[q], c, s)
            v[p], v[q] = _mixed(v[p], v[q], c, s)
        return [x for row in (*w, *v) for x in row]

    columns = _flipped(a)
    made = repeated(SWEEPS[dtype], sweep, [*(x for c in columns for x in c), *_unit_like(a, dtype)])
    both = [[*made[n * i : n * (i + 1)], *made[n * (n + i) : n * (n + i + 1)]] for i in range(n)]
    for i, j in ((0, 1), (1, 2), (0, 1))[: 3 if n == 3 else 1]:
        wrong = call("lt", inner(both[i][:n], both[i][:n]), inner(both[j][:n], both[j][:n]))
        both[i], both[j] = _exchanged(wrong, both[i], both[j], turn=True)
    w, v = [x[:n] for x in both], [x[n:] for x in both]
    u = _frame(w, dtype)
    return u, [inner(x, y) for x, y in zip(u, w, strict=True)], v


def _frame(w: Rows, dtype: DType) -> Rows:
    """Axes of a rotation along orthogonal vectors that get shorter; the last one may be against its vector."""
    first = _direction(w[0], dtype(0), [dtype(1), *[dtype(0)] * (len(w) - 1)])
    if len(w) == 2:
        return [first, [neg(first[1]), first[0]]]
    noise = mul(inner(w[0], w[0]), dtype((4 * _epsilon(dtype)) ** 2))
    second = _direction(_without(first, w[1]), noise, _across(first, dtype))
    second = _direction(_without(first, second), dtype(0), second)
    return [first, second, cross_parts(first, second)]


def _epsilon(dtype: DType) -> float:
    return 2.0**-23 if dtype is dt.float32 else 2.0**-52


def _without(axis: Sequence[Any], x: Sequence[Any]) -> list[Any]:
    """The part of x at right angles to a unit vector."""
    along = inner(axis, x)
    return [sub(p, mul(along, q)) for p, q in zip(x, axis, strict=True)]


def _direction(x: Sequence[Any], noise: Any, otherwise: Sequence[Any]) -> list[Any]:
    """x / |x|, but `otherwise` if its squared length is not above `noise`."""
    square = inner(x, x)
    none = call("le", square, noise)
    size = call("sqrt", where(none, 1, square))
    return [where(none, o, div(p, size)) for p, o in zip(x, otherwise, strict=True)]


def _across(x: Sequence[Any], dtype: DType) -> list[Any]:
    """A unit vector at right angles to a unit vector of three parts."""
    flat = call("lt", call("abs", x[0]), 0.7)
    y_axis, x_axis = [dtype(0), dtype(1), dtype(0)], [dtype(1), dtype(0), dtype(0)]
    other = [where(flat, p, q) for p, q in zip(x_axis, y_axis, strict=True)]
    found = cross_parts(x, other)
    return _direction(found, dtype(0), other)


PUBLIC: dict[str, Any] = {"qr3": qr3, "eig3": eig3, "svd3": svd3, "svd2": svd2}
