"""Functions of small matrices: against NumPy in every float type, as lanes, tiles and maps, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from composites import RUNS, Case, case, check_gradient, check_host, check_values


def regular(drawn: list[Any]) -> list[Any]:
    """Square matrices that are far from singular."""
    return [0.4 * x + 1.5 * np.eye(x.shape[-1]) for x in drawn]


@tg.func
def stretched(m: Any) -> Any:
    """The rotation of the polar decomposition, and what does not depend on the signs of singular vectors."""
    u, s, v = tg.svd3(m)
    return u * tg.transpose(v), s, u * tg.diag(tg.cw_mul(s, s)) * tg.transpose(u)


def stretched_answer(m: Any) -> Any:
    u, s, v = np.linalg.svd(m)
    sign = np.array([1, 1, np.sign(np.linalg.det(m))])
    return u @ np.diag(sign) @ v, s * sign, m @ m.T


@tg.func
def flattened(m: Any) -> Any:
    u, s, v = tg.svd2(m)
    return u * tg.transpose(v), s


def flattened_answer(m: Any) -> Any:
    u, s, v = np.linalg.svd(m)
    sign = np.array([1, np.sign(np.linalg.det(m))])
    return u @ np.diag(sign) @ v, s * sign


@tg.func
def squared(m: Any) -> Any:
    """Eigenvalues, a function of the matrix, and the projector to the first eigenvector."""
    q, d = tg.eig3(m)
    zero = d.x - d.x
    first = tg.diag(tg.vector(zero + 1.0, zero, zero))
    return d, q * tg.diag(tg.cw_mul(d, d)) * tg.transpose(q), q * first * tg.transpose(q)


def squared_answer(m: Any) -> Any:
    a = (m + m.T) / 2
    d, q = np.linalg.eigh(a)
    return d, a @ a, np.outer(q[:, 0], q[:, 0])


@tg.func
def factored(m: Any) -> Any:
    q, r = tg.qr3(m)
    return q, r


def factored_answer(m: Any) -> Any:
    q, r = np.linalg.qr(m)
    sign = np.array([*np.sign(np.diag(r))[:2], 1])
    sign[2] = np.linalg.det(q) * sign[0] * sign[1]
    return q * sign, r * sign[:, None]


CASES = [
    case("transpose", "m23", "m32", np.transpose),
    case("get_diag", "m33", "v3", np.diag),
    case("diag", "v3", "m33", np.diag),
    case("trace", "m44", "s", np.trace),
    case("ddot", "m23 m23", "s", lambda a, b: (a * b).sum()),
    case("matrix_from_rows", "v3 v3", "m23", lambda a, b: np.array([a, b])),
    case("matrix_from_cols", "v3 v3", "m32", lambda a, b: np.array([a, b]).T),
    *(case("determinant", f"m{n}{n}", "s", np.linalg.det, slack=4.0, prepare=regular) for n in (1, 2, 3, 4, 6)),
    *(case("inverse", f"m{n}{n}", f"m{n}{n}", np.linalg.inv, slack=4.0, prepare=regular) for n in (1, 2, 3, 4, 5)),
    case("product", "m23 m34", "m24", np.matmul, function=lambda a, b: a * b),
    case("matmul", "m23 m34", "m24", np.matmul, function=lambda a, b: a @ b),
    case("times vector", "m23 v3", "v2", np.matmul, function=lambda a, b: a * b),
    case("vector times", "v2 m23", "v3", np.matmul, function=lambda a, b: a * b),
    case("times number", "m23 s", "m23", np.multiply, function=lambda a, b: b * a),
    case("divided", "m22 s", "m22", np.divide, prepare=lambda d: [d[0], 1 + d[1] ** 2], function=lambda a, b: a / b),
    case("svd3", "m33", "m33 v3 m33", stretched_answer, function=stretched, slack=8.0),
    case("svd2", "m22", "m22 v2", flattened_answer, function=flattened, slack=8.0),
    case("eig3", "m33", "v3 m33 m33", squared_answer, function=squared, slack=8.0),
    case("qr3", "m33", "m33 m33", factored_answer, function=factored, slack=8.0),
    case("of transposed", "m23 m23", "m33", lambda a, b: a.T @ b, function=lambda a, b: tg.transpose(a) * b),
]


def label(c: Case) -> str:
    return f"{c.name}-{'-'.join(c.takes)}"


@pytest.mark.parametrize(("device", "dtype"), RUNS, ids=str)
@pytest.mark.parametrize("c", CASES, ids=label)
def test_lanes(c: Case, device: str, dtype: Any) -> None:
    check_values(c, "lanes", dtype, device)


#: functions that take long to compile; they are composed as the others are
LONG = ("m55", "m66")
#: those that mean the same for a tile of matrices; `@` there multiplies the tiles
TILED = [c for c in CASES if c.name != "matmul" and c.takes[0] not in LONG]


@pytest.mark.parametrize("form", ["tiles", "map"])
@pytest.mark.parametrize("c", TILED, ids=label)
def test_tiles(c: Case, form: str) -> None:
    check_values(c, form, tg.float32, "cpu")


@pytest.mark.parametrize("c", CASES, ids=label)
def test_gradient(c: Case, device: str) -> None:
    check_gradient(c, "lanes", device)


@pytest.mark.parametrize("c", [c for c in TILED if c.takes[0] in ("m22", "m23", "m33", "v3")], ids=label)
def test_gradient_of_tiles(c: Case) -> None:
    check_gradient(c, "tiles", "cpu")


@pytest.mark.parametrize("c", [c for c in CASES if c.function is None], ids=label)
def test_outside_of_kernels(c: Case) -> None:
    check_host(c)


@tg.kernel
def eigenvalue(a: tg.array[tg.mat33d], o: tg.array[tg.float64]):
    i = tg.tid()
    q, d = tg.eig3(a[i])
    o[i] = d[0] * d[1] + q[0, 0]


def test_second_derivatives_of_eigenvectors_are_refused():
    a = tg.array(np.array([[[2.0, 0.1, 0.0], [0.1, 3.0, 0.2], [0.0, 0.2, 5.0]]]), dtype=tg.mat33d, requires_grad=True)
    o = tg.zeros(1, dtype=tg.float64)
    with tg.Tape() as outer:
        with tg.Tape() as inner:
            tg.launch(eigenvalue, dim=1, inputs=[a, o])
        inner.backward(grads={o: np.ones(1)})
    with pytest.raises(tg.GradientUndefined, match="second derivatives of eig3"):
        outer.backward(grads={a.grad: np.ones((1, 3, 3))})
