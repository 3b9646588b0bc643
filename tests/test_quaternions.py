"""Functions of quaternions, rigid motions and spatial vectors: against SciPy and NumPy, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

import tilegrad as tg
from composites import RUNS, Case, case, check_gradient, check_host, check_values

ONE = np.array([0.0, 0, 0, 1])


def rotation(q: Any) -> Any:
    return Rotation.from_quat(q).as_matrix()


def as_drawn(q: Any) -> Any:
    """The formula of the rotation matrix, which says what is meant for quaternions that are not quite of length 1."""
    x, y, z, w = q
    u = np.array([x, y, z])
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return (2 * w * w - 1) * np.eye(3) + 2 * w * cross + 2 * np.outer(u, u)


def times(a: Any, b: Any) -> Any:
    u, w, v, r = a[:3], a[3], b[:3], b[3]
    return np.array([*(w * v + r * u + np.cross(u, v)), w * r - u @ v])


def conjugated(q: Any) -> Any:
    return q * np.array([-1, -1, -1, 1])


def motion(p: Any, q: Any) -> Any:
    return np.array([*p, *q])


def about(axis: Any, angle: Any) -> Any:
    return np.array([*(axis * np.sin(angle / 2)), np.cos(angle / 2)])


def axis_angle(q: Any) -> Any:
    q = q if q[3] >= 0 else -q
    size = np.linalg.norm(q[:3])
    return q[:3] / size, 2 * np.arctan2(size, q[3])


def between(a: Any, b: Any, t: Any) -> Any:
    b = b if a @ b >= 0 else -b
    found = Slerp([0, 1], Rotation.from_quat([a, b]))([t]).as_quat()[0]
    return found if found @ a >= 0 else -found


def signed(m: Any) -> Any:
    """SciPy's quaternion with the sign that ours has: w positive if the trace is, else the largest part."""
    q = Rotation.from_matrix(m[:3, :3]).as_quat()
    k = 3 if np.trace(m[:3, :3]) >= 0 else int(np.argmax(np.diag(m[:3, :3])))
    return q * np.sign(q[k])


def rotations(drawn: list[Any]) -> list[Any]:
    m = np.array(drawn[0])
    m[:, :3, :3] = Rotation.from_rotvec(
        [[0.3, 0.2, 1], [3, 0.1, 0.2], [0, 3, 0.3], [0.1, 0, 3], [1, 1, 1], [2, -1.5, 0.5]]
    ).as_matrix()
    return [m]


def fractions(drawn: list[Any]) -> list[Any]:
    return [drawn[0], drawn[1], np.linspace(0.1, 0.9, len(drawn[2]))]


def scales(drawn: list[Any]) -> list[Any]:
    return [drawn[0], drawn[1], 0.5 + abs(drawn[2])]


def affine(m: Any, x: Any) -> Any:
    return np.array([*m, [0, 0, 0, 1]]) if x is None else np.block([[m, x[:, None]], [np.zeros(3), 1]])


def decomposed(m: Any) -> Any:
    s = np.linalg.norm(m[:3, :3], axis=0)
    s[0] *= np.sign(np.linalg.det(m[:3, :3]))
    return m[:3, 3], signed(m[:3, :3] / s), s


def composed(drawn: list[Any]) -> list[Any]:
    m = rotations(drawn)[0]
    m[:, :3, :3] = m[:, :3, :3] * np.array([2.0, 0.5, 1.5])
    m[-1, :3, 0] *= -1
    m[:, 3] = [0, 0, 0, 1]
    return [m]


CASES = [
    case("quat_inverse", "q", "q", conjugated),
    case("quat_rotate", "q v3", "v3", lambda q, v: as_drawn(q) @ v),
    case("quat_rotate_inv", "q v3", "v3", lambda q, v: as_drawn(conjugated(q)) @ v),
    case("quat_from_axis_angle", "v3 s", "q", about),
    case("quat_to_axis_angle", "q", "v3 s", axis_angle),
    case("quat_slerp", "q q s", "q", between, prepare=fractions, slack=2.0),
    case("quat_rpy", "s s s", "q", lambda *a: _euler(a)),
    case("quat_to_matrix", "q", "m33", as_drawn),
    case("quat_from_matrix", "m33", "q", signed, prepare=rotations, slack=2.0),
    case("quat_from_matrix", "m44", "q", signed, prepare=rotations, slack=2.0),
    case("product", "q q", "q", times, function=lambda a, b: a * b),
    case("transform_get_translation", "t", "v3", lambda t: t[:3]),
    case("transform_get_rotation", "t", "q", lambda t: t[3:]),
    case("transform_multiply", "t t", "t", lambda a, b: motion(as_drawn(a[3:]) @ b[:3] + a[:3], times(a[3:], b[3:]))),
    case("product", "t t", "t", lambda a, b: motion(as_drawn(a[3:]) @ b[:3] + a[:3], times(a[3:], b[3:])),
         function=lambda a, b: a * b),
    case("transform_inverse", "t", "t", lambda t: motion(-as_drawn(conjugated(t[3:])) @ t[:3], conjugated(t[3:]))),
    case("transform_point", "t v3", "v3", lambda t, x: as_drawn(t[3:]) @ x + t[:3]),
    case("transform_vector", "t v3", "v3", lambda t, x: as_drawn(t[3:]) @ x),
    case("transform_point", "m44 v3", "v3", lambda m, x: m[:3, :3] @ x + m[:3, 3]),
    case("transform_vector", "m44 v3", "v3", lambda m, x: m[:3, :3] @ x),
    case("transform_to_matrix", "t", "m44", lambda t: affine(as_drawn(t[3:]), t[:3])),
    case("transform_from_matrix", "m44", "t", lambda m: motion(m[:3, 3], signed(m)), prepare=rotations, slack=2.0),
    case("transform_compose", "v3 q v3", "m44", lambda p, q, s: affine(as_drawn(q) * s, p)),
    case("transform_decompose", "m44", "v3 q v3", decomposed, prepare=composed, slack=2.0),
    case("spatial_top", "v6", "v3", lambda v: v[:3]),
    case("spatial_bottom", "v6", "v3", lambda v: v[3:]),
    case("spatial_dot", "v6 v6", "s", np.dot),
    case("spatial_cross", "v6 v6", "v6", lambda a, b: np.array(
        [*np.cross(a[:3], b[:3]), *(np.cross(a[3:], b[:3]) + np.cross(a[:3], b[3:]))])),
    case("spatial_cross_dual", "v6 v6", "v6", lambda a, b: np.array(
        [*(np.cross(a[:3], b[:3]) + np.cross(a[3:], b[3:])), *np.cross(a[:3], b[3:])])),
]  # fmt: skip


def _euler(angles: Any) -> Any:
    """Roll about x, then pitch about y, then yaw about z."""
    x, y, z = (about(axis, angle) for axis, angle in zip(np.eye(3), angles))
    return times(z, times(y, x))


def label(c: Case) -> str:
    return f"{c.name}-{'-'.join(c.takes)}"


@pytest.mark.parametrize(("device", "dtype"), RUNS, ids=str)
@pytest.mark.parametrize("c", CASES, ids=label)
def test_lanes(c: Case, device: str, dtype: Any) -> None:
    check_values(c, "lanes", dtype, device)


@pytest.mark.parametrize("form", ["tiles", "map"])
@pytest.mark.parametrize("c", CASES, ids=label)
def test_tiles(c: Case, form: str) -> None:
    check_values(c, form, tg.float32, "cpu")


@pytest.mark.parametrize("c", CASES, ids=label)
def test_gradient(c: Case, device: str) -> None:
    check_gradient(c, "lanes", device)


@pytest.mark.parametrize("c", CASES[::3], ids=label)
def test_gradient_of_tiles(c: Case) -> None:
    check_gradient(c, "tiles", "cpu")


@pytest.mark.parametrize("c", [c for c in CASES if c.function is None], ids=label)
def test_outside_of_kernels(c: Case) -> None:
    check_host(c)


def test_rotations_agree_with_scipy() -> None:
    q = np.random.default_rng(0).normal(size=4)
    q /= np.linalg.norm(q)
    np.testing.assert_allclose(np.asarray(tg.quat_to_matrix(tg.quatd(*q))), rotation(q), atol=1e-14)
    found = np.asarray(tg.quat_rpy(np.float64(0.1), np.float64(0.2), np.float64(0.3)))
    np.testing.assert_allclose(found, Rotation.from_euler("xyz", [0.1, 0.2, 0.3]).as_quat(), atol=1e-14)
