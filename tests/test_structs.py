"""Structs, and parts of composite values: in arrays, tiles, variables, functions, branches and loops, with gradients.

The names of some tests begin with the number of the case that they are.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from programs import build


@tg.struct
class Particle:
    a: float
    v: tg.vec3


@tg.struct
class Body:
    p: Particle
    m: tg.mat22
    k: int


@tg.struct
class Weights:
    x: tg.array1d[float]
    scale: float


@tg.struct
class Single:
    f: float


def particles(n: int = 4) -> Any:
    made = np.zeros(n, Particle.numpy_dtype())
    made["a"], made["v"] = np.arange(n), np.arange(3 * n).reshape(n, 3)
    return made


def as_leaf(x: Any, dtype: Any) -> Any:
    return tg.array(x, dtype=dtype, requires_grad=True)


def backward(kernel: Any, dim: int, inputs: list[Any], out: Any, device: str, tiled: bool = False) -> None:
    """Launch under a tape; the upstream of every scalar of `out` is 1."""
    launch = tg.launch_tiled if tiled else tg.launch
    with tg.Tape() as tape:
        launch(kernel, dim, [*inputs, out], device=device, block_dim=4)
    ones = np.zeros_like(out.numpy())
    for part in [ones[n] for n in ones.dtype.names] if ones.dtype.names else [ones]:
        part[...] = 1
    tape.backward(grads={out: tg.array(ones, dtype=out.dtype)})


# --- structs in arrays ------------------------------------------------------------------------------------------------


@tg.kernel
def moved(p: tg.array1d[Particle], o: tg.array1d[Particle]):
    i = tg.tid()
    q = p[i]
    q.a = q.a * 2.0
    q.v = q.v + tg.vec3(1.0)
    q.v.x += 5.0
    o[i] = q
    o[i].v.y = -1.0


def test_structured_numpy_arrays_are_read_and_written_in_place(device: str) -> None:
    p, o = particles(), np.zeros(4, Particle.numpy_dtype())
    tg.launch(moved, 4, [p, o], device=device)
    assert o["a"].tolist() == [0, 2, 4, 6]
    np.testing.assert_array_equal(o["v"], np.stack([p["v"][:, 0] + 6, np.full(4, -1), p["v"][:, 2] + 1], 1))
    tg.launch(moved, 4, [p, p], device=device)
    np.testing.assert_array_equal(p, o)


def test_gradient_of_struct_arrays(device: str) -> None:
    p = as_leaf(particles(), Particle)
    o = as_leaf(particles(), Particle)
    backward(moved, 4, [p], o, device)
    assert p.grad.dtype is Particle
    np.testing.assert_array_equal(p.grad.numpy()["a"], 2)
    np.testing.assert_array_equal(p.grad.numpy()["v"], np.tile([1, 0, 1], (4, 1)))
    p.grad.zero_()
    assert not p.grad.numpy()["v"].any() and not p.grad.numpy()["a"].any()


@tg.kernel
def components(x: tg.array1d[float], y: tg.array1d[tg.vec3], z: tg.array1d[Single]):
    i = tg.tid()
    y[i].x = 2.0 * x[i]
    y[i].y = 3.0 * x[i]
    y[i].z = 4.0 * x[i]
    z[i].f = x[i]


def test_g21_components_written_to_arrays_of_vectors_and_structs(device: str) -> None:
    x, y, z = as_leaf(np.arange(3.0), float), tg.zeros(3, tg.vec3), tg.zeros(3, Single)
    with tg.Tape() as tape:
        tape.watch(x)
        tg.launch(components, 3, [x, y, z], device=device)
    assert tape.vjp([(y, np.ones((3, 3), np.float32))], [x])[0].tolist() == [9, 9, 9]  # elsewhere: zeros
    seed = np.ones(3, np.float32).view(Single.numpy_dtype())
    tape.backward(grads={z: tg.array(seed, dtype=Single)})
    assert x.grad.list() == [1, 1, 1]


@tg.kernel
def members(w: Weights, b: Body, o: tg.array1d[float], n: int):
    i = tg.tid()
    c = b
    for j in range(n):
        c.p.a += w.x[j] * w.x[j] * w.scale
        if j > 1:
            c.p.v = c.p.v * 2.0
        else:
            c.m[0, 1] += 1.0
    o[i] = c.p.a + c.p.v.x + c.m[0, 1] + float(c.k)


def test_nested_structs_in_loops_and_branches_with_array_members(device: str) -> None:
    body = Body(p=Particle(a=1.0, v=tg.vec3(1, 2, 3)), m=tg.mat22(1, 2, 3, 4), k=7)
    x, o = as_leaf(np.arange(4.0), float), tg.zeros(2, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(members, 2, [Weights(x=x, scale=2.0), body, o, 4], device=device)
    assert o.list() == [1 + 2 * 14 + 4 + 4 + 7] * 2
    tape.backward(grads={o: tg.ones_like(o)})
    assert x.grad.list() == [0, 8, 16, 24]


@tg.struct
class WithArray:
    v: tg.vec3
    unused: tg.array1d[float]


@tg.func
def by_assignment(x: tg.vec3):
    s = Particle()
    s.v = 2.0 * x
    return s


@tg.func
def with_unused_array(x: tg.vec3):
    s = WithArray()
    s.v = 2.0 * x
    return s


@tg.func
def by_name(x: tg.vec3):
    return Particle(v=2.0 * x)


@pytest.mark.parametrize("build", [by_assignment, with_unused_array, by_name], ids=lambda f: f.name)
def test_g22_a_struct_returned_from_a_function(build: Any, device: str) -> None:
    @tg.kernel
    def squared(x: tg.array1d[tg.vec3], o: tg.array1d[float]):
        s = build(x[0])
        o[0] = tg.dot(s.v, s.v)

    x, o = as_leaf([[1, 2, 3]], tg.vec3), tg.zeros(1, requires_grad=True)
    backward(squared, 1, [x], o, device)
    assert x.grad.numpy().tolist() == [[8, 16, 24]]  # elsewhere: zeros


@tg.kernel
def chained(a: tg.array2d[float], b: tg.array2d[float], c: tg.array2d[float]):
    i = tg.tid()
    c[i][0] = a[i][0] + b[i][0]
    c[i, 1] = a[i, 1] + b[i, 1]


def test_g23_chained_indices(device: str) -> None:
    a, b, c = (as_leaf(np.ones((2, 2)), float) for _ in range(3))
    backward(chained, 2, [a, b], c, device)
    assert c.numpy().tolist() == [[2, 2], [2, 2]]
    assert a.grad.numpy().tolist() == b.grad.numpy().tolist() == [[1, 1], [1, 1]]


# --- structs in tiles -------------------------------------------------------------------------------------------------


@tg.kernel
def t10_sum(p: tg.array1d[Particle], total: tg.array1d[Particle], o: tg.array1d[Particle]):
    t = tg.tile_load(p, shape=4)
    tg.tile_store(total, tg.tile_sum(t))
    tg.tile_store(o, t)
    tg.tile_atomic_add(o, t)


@tg.func
def stretched(x: Particle):
    r = Particle()
    r.a = x.a * 2.0
    r.v = x.v * x.a
    return r


@tg.kernel
def t10_map(p: tg.array1d[Particle], o: tg.array1d[Particle]):
    t = tg.tile_load(p, shape=4)
    tg.tile_store(o, tg.tile_map(stretched, t))


@tg.kernel
def t10_sort(k: tg.array1d[int], p: tg.array1d[Particle], o: tg.array1d[Particle]):
    keys = tg.tile_load(k, shape=4)
    t = tg.tile_load(p, shape=4)
    tg.tile_sort(keys, t)
    tg.tile_store(o, t)


def test_t10_sum_store_and_atomic_add(device: str) -> None:
    p, total, o = particles(), np.zeros(1, Particle.numpy_dtype()), np.zeros(4, Particle.numpy_dtype())
    tg.launch_tiled(t10_sum, 1, [p, total, o], device=device, block_dim=4)
    assert total["a"].tolist() == [6] and total["v"].tolist() == [[18, 22, 26]]
    np.testing.assert_array_equal(o["a"], 2 * p["a"])
    np.testing.assert_array_equal(o["v"], 2 * p["v"])


def test_t10_map_with_gradient(device: str) -> None:
    p, o = as_leaf(particles(), Particle), as_leaf(np.zeros(4, Particle.numpy_dtype()), Particle)
    backward(t10_map, 1, [p], o, device, tiled=True)
    host = p.numpy()
    np.testing.assert_array_equal(o.numpy()["v"], host["v"] * host["a"][:, None])
    np.testing.assert_array_equal(p.grad.numpy()["a"], 2 + host["v"].sum(1))
    np.testing.assert_array_equal(p.grad.numpy()["v"], np.repeat(host["a"][:, None], 3, 1))


def test_t10_sort_as_payload(device: str) -> None:
    p, o = particles(), np.zeros(4, Particle.numpy_dtype())
    tg.launch_tiled(t10_sort, 1, [np.array([3, 1, 2, 0], np.int32), p, o], device=device)
    np.testing.assert_array_equal(o, p[[3, 1, 2, 0]])


@tg.kernel
def t10_identities(o: tg.array1d[tg.mat33]):
    i, lane = tg.tid()
    t = tg.tile(tg.identity(n=3, dtype=float) * float(lane), preserve_type=True)
    tg.tile_store(o, tg.tile_sum(t))


def test_t10_matrices_of_lanes_are_summed(device: str) -> None:
    o = tg.zeros(1, tg.mat33)
    tg.launch_tiled(t10_identities, 1, [o], device=device, block_dim=32)
    np.testing.assert_array_equal(o.numpy()[0], 496 * np.eye(3))


@tg.kernel
def transposed_in_place(x: tg.array1d[tg.mat33]):
    tg.tile_store(x, tg.tile_map(tg.transpose, tg.tile_load(x, shape=5)))


@tg.kernel
def turned(x: tg.array1d[tg.mat33], v: tg.array1d[tg.vec3], o: tg.array1d[tg.vec3]):
    tg.tile_store(o, tg.tile_load(x, shape=5) * tg.tile_load(v, shape=5))


@tg.kernel
def tile_transposed(x: tg.array2d[tg.mat33], o: tg.array2d[tg.mat33]):
    tg.tile_store(o, tg.tile_transpose(tg.tile_load(x, shape=(2, 3))))


def test_tiles_of_matrices(device: str) -> None:
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=(5, 3, 3)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    o = np.zeros((5, 3), np.float32)
    tg.launch_tiled(turned, 1, [m, v, o], device=device)
    np.testing.assert_allclose(o, np.einsum("nij,nj->ni", m, v), rtol=1e-5, atol=1e-6)
    back = np.array(m)
    tg.launch_tiled(transposed_in_place, 1, [back], device=device)
    np.testing.assert_array_equal(back, m.transpose(0, 2, 1))
    x, y = rng.normal(size=(2, 3, 3, 3)), np.zeros((3, 2, 3, 3), np.float32)
    x = x.astype(np.float32)
    tg.launch_tiled(tile_transposed, 1, [x, y], device=device)
    np.testing.assert_array_equal(y, x.transpose(1, 0, 2, 3))


@tg.kernel
def c1_transposed(x: tg.array2d[tg.mat22d], o: tg.array2d[tg.mat22d]):
    t = tg.tile_load(x, shape=(2, 3))
    y = tg.tile_map(tg.transpose, t)
    z = tg.tile_transpose(t)
    tg.tile_store(o, y * t + tg.tile_transpose(z))


def test_c1_a_transposed_tile_of_matrices_leaves_the_forward_values_alone(device: str) -> None:
    host = np.random.default_rng(1).normal(size=(2, 3, 2, 2))
    x, o = as_leaf(host, tg.mat22d), tg.zeros((2, 3), tg.mat22d, requires_grad=True)
    backward(c1_transposed, 1, [x], o, device, tiled=True)
    np.testing.assert_allclose(o.numpy(), host.swapaxes(2, 3) @ host + host)
    right = host @ np.full((2, 2), 2.0) + 1  # elsewhere: the values are doubled before their derivatives are taken
    np.testing.assert_allclose(x.grad.numpy(), right)


@tg.kernel
def of_tiles_and_numbers(x: tg.array1d[float], o: tg.array1d[tg.vec3], p: tg.array1d[tg.vec3]):
    t = tg.tile_load(x, shape=4)
    v = tg.vec3(t, 2.0, x[0])
    tg.tile_store(o, v)
    tg.tile_store(p, tg.vector(1.0, t, t * t))


def test_vectors_of_tiles_and_numbers(device: str) -> None:
    x, o, p = np.arange(1, 5, dtype=np.float32), np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    tg.launch_tiled(of_tiles_and_numbers, 1, [x, o, p], device=device)
    np.testing.assert_array_equal(o, np.stack([x, np.full(4, 2), np.ones(4)], 1))
    np.testing.assert_array_equal(p, np.stack([np.ones(4), x, x * x], 1))


@tg.kernel
def c21_converted(x: tg.array1d[tg.vec3], o: tg.array1d[tg.vec3d]):
    t = tg.tile_load(x, shape=4)
    d = tg.vec3d(t)
    tg.tile_store(o, d + d)


def test_c21_conversion_of_vector_tiles_has_a_gradient(device: str) -> None:
    x, o = as_leaf(np.ones((4, 3)), tg.vec3), tg.zeros(4, tg.vec3d, requires_grad=True)
    backward(c21_converted, 1, [x], o, device, tiled=True)
    assert (o.numpy() == 2).all() and (x.grad.numpy() == 2).all()  # elsewhere: refused


@tg.kernel
def half_products(
    m: tg.array1d[tg.mat33h], v: tg.array1d[tg.vec3h], o: tg.array1d[tg.vec3h], s: tg.array1d[tg.float16]
):
    o[0] = m[0] * v[0]
    s[0] = v[0] @ v[0]


def test_products_of_half_precision_are_rounded_once(device: str) -> None:
    rng = np.random.default_rng(5)
    m, v = rng.normal(size=(1, 3, 3)).astype(np.float16), rng.normal(size=(1, 3)).astype(np.float16)
    o, s = np.zeros((1, 3), np.float16), np.zeros(1, np.float16)
    tg.launch(half_products, 1, [m, v, o, s], device=device)
    wide_m, wide_v = m[0].astype(np.float64), v[0].astype(np.float64)
    assert o[0].tolist() == (wide_m @ wide_v).astype(np.float16).tolist()
    assert s[0] == np.float16(wide_v @ wide_v)


# --- parts ------------------------------------------------------------------------------------------------------------


@tg.kernel
def indexed(m: tg.array1d[tg.mat33], v: tg.array1d[tg.vec3], k: tg.array1d[int], o: tg.array1d[float]):
    a = m[0]
    row = a[k[0]]
    a[k[1]] = tg.vec3(1.0, 2.0, 3.0)
    a[k[0], k[1]] += 10.0
    a[1, 0:2] = tg.vec2(5.0, 6.0)
    w = v[0]
    w[k[2]] = 9.0
    w.xy = tg.vec2(3.0, 4.0)
    w.x *= 2.0
    o[0] = row[1]
    o[1] = w[k[3]] + w.zyx[2]
    o[2] = w[0:2][1]
    m[0] = a
    m[0][2, 2] = 77.0


def test_parts_by_run_time_index_slices_and_letters(device: str) -> None:
    m, o = np.arange(9, dtype=np.float32).reshape(1, 3, 3), np.zeros(3, np.float32)
    k = np.array([0, 1, -1, 2], np.int32)
    tg.launch(indexed, 1, [m, np.zeros((1, 3), np.float32), k, o], device=device)
    assert m[0].tolist() == [[0, 11, 2], [5, 6, 3], [6, 7, 77]]
    assert o.tolist() == [1, 9 + 6, 4]


@tg.kernel
def compared(v: tg.array1d[tg.vec3i], o: tg.array1d[bool], d: tg.array1d[tg.vec3d], h: tg.array1d[tg.vec3]):
    o[0] = v[0] == v[1]
    o[1] = v[0] != v[1]
    d[0] = tg.vec3d(tg.vec3(v[0]))
    h[0] = v[1] / 2
    v[0] = tg.cw_mul(v[0], v[1]) - v[0]
    v[1] = tg.cw_div(v[1], tg.vec3i(2))


def test_whole_numbers_comparison_and_conversion(device: str) -> None:
    v, o = np.array([[1, 2, 3], [1, 2, 4]], np.int32), np.zeros(2, bool)
    d, h = np.zeros((1, 3)), np.zeros((1, 3), np.float32)
    tg.launch(compared, 1, [v, o, d, h], device=device)
    assert o.tolist() == [False, True] and d.tolist() == [[1, 2, 3]] and h.tolist() == [[0.5, 1, 2]]
    assert v.tolist() == [[0, 2, 9], [0, 1, 2]]


Flags = tg.types.vector(3, tg.bool)


@tg.kernel
def flagged(o: tg.array1d[Flags], x: tg.array1d[bool]):
    i = tg.tid()
    v = Flags(True, False, True)
    v[1] = x[i]
    v[0] = False
    o[i] = v
    o[i][2] = False
    print(v)


def test_d14_vectors_of_bools(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    o = tg.zeros(2, Flags)
    tg.launch(flagged, 2, [o, np.array([True, False])], device=device)
    assert o.numpy().tolist() == [[False, True, False], [False, False, False]] and o.numpy().dtype == bool
    assert capfd.readouterr().out == "[False, True, True]\n[False, False, True]\n"


# --- zero vectors, NaN, extremes --------------------------------------------------------------------------------------


@tg.kernel
def at_zero(v: tg.array1d[tg.vec3], q: tg.array1d[tg.quat], o: tg.array1d[tg.vec3], s: tg.array1d[float]):
    i = tg.tid()
    o[i] = tg.normalize(v[i])
    axis, angle = tg.quat_to_axis_angle(tg.normalize(q[i]))
    s[i] = tg.length(v[i]) + angle + axis.x


def test_zero_vectors_have_zero_gradients(device: str) -> None:
    v, q = as_leaf(np.zeros((2, 3)), tg.vec3), as_leaf(np.zeros((2, 4)), tg.quat)
    o, s = tg.zeros(2, tg.vec3, requires_grad=True), tg.zeros(2, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(at_zero, 2, [v, q, o, s], device=device)
    assert not o.numpy().any() and not s.numpy().any()
    tape.backward(grads={o: tg.ones_like(o), s: tg.ones_like(s)})
    assert not v.grad.numpy().any() and not q.grad.numpy().any()


@tg.kernel
def singular(m: tg.array1d[tg.mat33d], o: tg.array1d[tg.mat33d], d: tg.array1d[tg.float64]):
    i = tg.tid()
    o[i] = tg.inverse(m[i])
    d[i] = tg.determinant(m[i])


def test_singular_matrices(device: str) -> None:
    m = np.outer([1.0, 2, 3], [1.0, 1, 2])[None] + 0.0
    x, o = as_leaf(m, tg.mat33d), tg.zeros(1, tg.mat33d, requires_grad=True)
    d = tg.zeros(1, tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch(singular, 1, [x, o, d], device=device)
    assert not o.numpy().any() and d.list() == [0]
    tape.backward(grads={d: tg.ones_like(d), o: tg.ones_like(o)})
    assert not x.grad.numpy().any()  # the adjugate of a matrix of rank one


@tg.kernel
def extremes(v: tg.array1d[tg.vec4], o: tg.array1d[float], k: tg.array1d[int]):
    i = tg.tid()
    o[2 * i] = tg.min(v[i])
    o[2 * i + 1] = max(v[i])
    k[2 * i] = tg.argmin(v[i])
    k[2 * i + 1] = tg.argmax(v[i])


def test_extremes_of_parts(device: str) -> None:
    nan = np.nan
    v = np.array([[2, 1, 1, 3], [nan, 5, nan, 4], [nan] * 4, [np.inf, -np.inf, nan, 0]], np.float32)
    o, k = np.zeros(8, np.float32), np.zeros(8, np.int32)
    tg.launch(extremes, 4, [v, o, k], device=device)
    np.testing.assert_array_equal(o, [1, 3, 4, 5, nan, nan, -np.inf, np.inf])
    assert k.tolist() == [1, 3, 3, 1, 0, 0, 1, 0]


# --- lifetime and errors ----------------------------------------------------------------------------------------------


@tg.kernel
def copied(w: Weights, o: tg.array1d[float]):
    i = tg.tid()
    o[i] = w.x[i] * w.scale


def test_y05_a_struct_keeps_its_arrays_alive(device: str) -> None:
    w = Weights(x=tg.array(np.arange(1000, dtype=np.float32)), scale=1.0)
    gc.collect()
    o = np.zeros(1000, np.float32)
    tg.launch(copied, 1000, [w, o], device=device)
    np.testing.assert_array_equal(o, np.arange(1000))
    old = weakref.ref(w.x)
    w.x = tg.zeros(1000)
    gc.collect()
    assert old() is None
    tg.launch(copied, 1000, [w, o], device=device)
    assert not o.any()


def failing(body: str, **names: Any) -> str:
    """The message for a kernel with a mistake."""
    start = "def kernel(v: tg.array1d[tg.vec3], m: tg.array1d[tg.mat33], p: tg.array1d[P], o: tg.array1d[float]):"
    text = f"{start}\n    {body}\n"
    kernel = build(text, P=Particle, **names)
    with pytest.raises(tg.TilegradError) as caught:
        tg.launch(kernel, 1, [tg.zeros(1, tg.vec3), tg.zeros(1, tg.mat33), tg.zeros(1, Particle), tg.zeros(1)])
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("o[0] = p[0].speed", ["Particle has no member `speed`", "it has: a, v"]),
        ("o[0] = p[0].vv.x", ["did you mean v?"]),
        ("o[0] = v[0].w", ["a vec3f has no `w`", "it has x, y, z"]),
        ("v[0] = tg.vec3(1.0, 2.0)", ["vec3f has 3 parts, 2 are given"]),
        ("v[0] = v[0] * v[0]", ["`*` is not defined for vec3f and vec3f", "dot(a, b), cross(a, b)"]),
        ("v[0] = v[0] + tg.vec2(1.0, 2.0)", ["vec3f and vec2f", "both sides must be of one type"]),
        ("o[0] = v[0][3]", ["3 is outside of a vec3f"]),
        ("o[0] = tg.dot(v[0], tg.vec3d(v[0]))", ["dot: vec3f meets vec3d", "convert one"]),
        ("o[0] = tg.dot(v[0], 1.0)", ["dot takes a vector or a quaternion, not float"]),
        ("v[0] = tg.cross(tg.vec2(1.0), tg.vec2(1.0))", ["cross takes vectors of 3 parts, not vec2f"]),
        ("o[0] = tg.trace(tg.matrix(shape=(2, 3), dtype=float))", ["trace takes a square matrix"]),
        ("m[0] = tg.mat33(v[0], v[0], v[0])", ["rows or columns?", "matrix_from_rows"]),
        ("o[0] = tg.length(tg.vec3i(1, 2, 3))", ["length is defined for floats, not for vec3i"]),
        ("v[0] = tg.quat_rotate(v[0], v[0])", ["quat_rotate takes a quaternion, not vec3f"]),
        ("v[0] = tg.vec3(tg.vector(1.0, 2.0, length=3))", ["vector: length is 3, but 2 parts are given"]),
        (
            "v[0] = m[0] * tg.vec2(1.0, 2.0)",
            ["`*` is not defined for mat33f and vec2f", "inner extents differ: 3 and 2"],
        ),
        ("v[0] = tg.lerp(v[0], v[0], tg.float64(0.5))", ["`t` must be float32, it is float64", "cast it"]),
        ("o[0] = tg.svd3(tg.mat22(1.0))[1].x", ["svd3 takes a 3 x 3 matrix, not mat22f"]),
    ],
)
def test_errors(body: str, words: list[str]) -> None:
    message = failing(body)
    for word in words:
        assert word in message, message


def test_run_time_index_outside_of_a_vector(device: str) -> None:
    @tg.kernel
    def outside(v: tg.array1d[tg.vec3], k: tg.array1d[int], o: tg.array1d[float]):
        o[0] = v[0][k[0]]

    v, k, o = np.zeros((1, 3), np.float32), np.array([3], np.int32), np.zeros(1, np.float32)
    with pytest.raises(tg.KernelIndexError, match="index 3 is out of range for an axis with size 3"):
        tg.launch(outside, 1, [v, k, o], device=device)


def test_outside_of_kernels() -> None:
    v = tg.vec3(1, 2, 3)
    assert v == tg.vec3(1, 2, 3) and v != tg.vec3(1, 2, 4)
    assert (tg.mat33(1, 0, 0, 0, 1, 0, 0, 0, 1) * v) == v
    assert tg.quat_rotate(tg.quat_identity(), v) == v
    assert tg.normalize(tg.vec3()) == tg.vec3()
    with pytest.raises(tg.TypeMismatch, match="vec3f meets vec3d"):
        tg.dot(v, tg.vec3d(1, 2, 3))
    body = Body(p=Particle(a=1.0, v=v))
    assert body.p.v.y == 2 and Body.numpy_dtype().names == ("p", "m", "k")
