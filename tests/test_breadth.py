"""Operations met in unusual ranks, with every element type, and with composite elements, forward and backward."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from programs import build
from tilegrad import dtypes as dt

V3 = tg.vec3d


@tg.struct
class Point:
    mass: tg.float64
    place: tg.vec3d


@tg.struct
class Body:
    point: Point
    alive: bool
    count: tg.int8


def run(kernel: Any, *args: Any, device: str, dim: Any = 1, block_dim: int = 4) -> None:
    tg.launch_tiled(kernel, dim=dim, inputs=list(args), device=device, block_dim=block_dim)


def held(host: Any) -> Any:
    """A tilegrad array of points in the same memory."""
    return tg.array(host, dtype=Point, copy=False)


def points(n: int) -> Any:
    """An array of n points with small whole numbers."""
    host = np.zeros(n, Point.numpy_dtype())
    host["mass"] = np.arange(1, n + 1)
    host["place"] = np.arange(3 * n).reshape(n, 3)
    return host


# --- ranks and element types ------------------------------------------------------------------------------------------


def moves(dtype: Any, rank: int) -> Any:
    shape = (2, 3, 1, 2, 1, 2, 1, 2)[:rank]
    offset = (1,) + (0,) * (rank - 1)

    @tg.kernel
    def kernel(x: tg.array(dtype=dtype, ndim=rank), y: tg.array(dtype=dtype, ndim=rank), n: tg.array1d[int]):
        t = tg.tile_load(x, shape=shape)
        u = t.copy()
        u[0] = t[-1]
        tg.tile_store(y, u.T.T)
        tg.tile_store(y, t, offset=offset)
        n[0] = len(t)
        n[1] = t.size

    return kernel, shape


@pytest.mark.parametrize("rank", range(1, 9))
@pytest.mark.parametrize("dtype", dt.SCALARS, ids=str)
def test_every_rank_and_type_is_moved(dtype: dt.DType, rank: int) -> None:
    kernel, shape = moves(dtype, rank)
    x = np.random.default_rng(rank).integers(0, 2, shape).astype(dtype.np)
    for device in ("interpret", "cpu"):
        y, n = np.zeros((shape[0] + 2, *shape[1:]), dtype.np), np.zeros(2, np.int32)
        run(kernel, x, y, n, device=device)
        assert (y[1 : shape[0] + 1] == x).all()
        assert (y[0] == x[-1]).all()
        assert n.tolist() == [shape[0], x.size]


@pytest.mark.parametrize("rank", [3, 5, 8])
def test_gradient_in_many_ranks(device: str, rank: int) -> None:
    shape = (2, 3, 1, 2, 1, 2, 1, 2)[:rank]

    @tg.kernel
    def kernel(x: tg.array(dtype=tg.float64, ndim=rank), y: tg.array(dtype=tg.float64, ndim=rank)):
        t = tg.tile_load(x, shape=shape)
        s = tg.tile_sum(t * t, axis=(0, -1), keepdims=True)
        tg.tile_store(y, tg.sin(t) * s + tg.tile_max(t))

    rng = np.random.default_rng(3)
    x, ct = rng.standard_normal(shape), rng.standard_normal(shape)
    (g,) = tg.vjp(kernel, 1, [x], [np.zeros(shape)], device=device)(ct)
    s = (x * x).sum(axis=(0, -1), keepdims=True)
    expected = ct * np.cos(x) * s + 2 * x * (ct * np.sin(x)).sum(axis=(0, -1), keepdims=True)
    expected.flat[x.argmax()] += ct.sum()
    np.testing.assert_allclose(g, expected, rtol=1e-10, atol=1e-12)


# --- composite elements -----------------------------------------------------------------------------------------------


@tg.kernel
def struct_tiles(x: tg.array1d[Point], y: tg.array1d[Point], total: tg.array1d[Point]):
    t = tg.tile_load(x, shape=3)
    u = tg.tile_map(heavier, t, t)
    tg.tile_store(y, u)
    tg.tile_atomic_add(total, tg.tile_load(x, shape=1))


@tg.func
def heavier(a: Point, b: Point):
    r = Point()
    r.mass = a.mass + b.mass
    r.place = a.place * 2.0
    return r


@tg.func
def lighter(a: Point, b: Point):
    r = a
    if b.mass < a.mass:
        r = b
    return r


def test_t10_tiles_of_structs(device: str) -> None:
    x = points(3)
    y, total = np.zeros_like(x), points(1)
    run(struct_tiles, held(x), held(y), held(total), device=device)
    assert y["mass"].tolist() == [2, 4, 6]
    assert (y["place"] == 2 * x["place"]).all()
    assert total["mass"].tolist() == [2]


@tg.kernel
def sum_of_matrices(o: tg.array1d[tg.mat33]):
    i = tg.tid()
    m = tg.identity(n=3, dtype=float) * float(i)
    s = tg.tile_sum(tg.tile(m, preserve_type=True))
    o[0] = s[0]


def test_t10_matrices_are_summed_by_parts(device: str) -> None:
    o = tg.zeros(1, dtype=tg.mat33)
    tg.launch(sum_of_matrices, dim=32, inputs=[o], block_dim=32, device=device)
    assert (o.numpy()[0] == 496 * np.eye(3)).all()


@tg.kernel
def sorts_structs(k: tg.array1d[int], x: tg.array1d[Point], y: tg.array1d[Point]):
    keys = tg.tile_load(k, shape=5)
    payload = tg.tile_load(x, shape=5)
    tg.tile_sort(keys, payload)
    tg.tile_store(y, payload)


def test_t10_structs_move_with_the_keys(device: str) -> None:
    x, y = points(5), points(5)
    run(sorts_structs, np.array([3, 1, 2, 5, 4], np.int32), held(x), held(y), device=device)
    assert y["mass"].tolist() == [2, 3, 1, 5, 4]
    assert y["place"].tolist() == x["place"][[1, 2, 0, 4, 3]].tolist()


@tg.kernel
def lightest(x: tg.array1d[Point], y: tg.array1d[Point]):
    tg.tile_store(y, tg.tile_reduce(lighter, tg.tile_load(x, shape=7)))


def test_structs_are_reduced_by_an_operator(device: str) -> None:
    x, y = points(7), np.zeros(1, Point.numpy_dtype())
    x["mass"] = [5, 4, 2, 9, 2, 7, 8]
    run(lightest, held(x), held(y), device=device)
    assert y["mass"].tolist() == [2]
    assert y["place"].tolist() == [[6, 7, 8]]


@tg.kernel
def gathers_vectors(x: tg.array2d[V3], i: tg.array1d[int], y: tg.array2d[V3]):
    t = tg.tile_load_indexed(x, tg.tile_load(i, shape=3), shape=(2, 3), axis=1)
    tg.tile_store(y, t * 2.0)


def test_indexed_loads_of_vectors(device: str) -> None:
    x = np.arange(24.0).reshape(2, 4, 3)
    y = tg.zeros((2, 3), dtype=V3)
    i = np.array([3, -1, 3], np.int32)
    pullback = tg.vjp(gathers_vectors, 1, [tg.array(x, dtype=V3), i], [y], device=device)
    assert (y.numpy()[:, [0, 2]] == 2 * x[:, [3, 3]]).all()
    assert (y.numpy()[:, 1] == 0).all()
    g = pullback(np.ones((2, 3, 3)))[0]
    assert g[:, 3].tolist() == [[4, 4, 4]] * 2
    assert (g[:, :3] == 0).all()


@tg.kernel
def gathers_structs(x: tg.array1d[Body], i: tg.array1d[int], y: tg.array1d[Body]):
    places = tg.tile_load(i, shape=3)
    tg.tile_store(y, tg.tile_load_indexed(x, places, shape=3))


def test_indexed_loads_of_structs(device: str) -> None:
    x = np.zeros(4, Body.numpy_dtype())
    x["count"] = [1, 2, 3, 4]
    x["alive"] = [True, False, True, True]
    x["point"]["mass"] = [5, 6, 7, 8]
    y = np.zeros(3, Body.numpy_dtype())
    i = np.array([3, 1, 0], np.int32)
    run(gathers_structs, tg.array(x, dtype=Body), i, tg.array(y, dtype=Body, copy=False), device=device)
    assert (y == x[i]).all()


@tg.kernel
def scatters_vectors(x: tg.array1d[V3], y: tg.array1d[V3]):
    block, lane = tg.tid()
    t = tg.tile_zeros(shape=3, dtype=V3)
    tg.tile_scatter_add(t, lane % 2, x[lane], lane != 3)
    tg.tile_scatter_masked(t, 2, x[lane], lane == 1)
    tg.tile_store(y, t)


def test_scatters_of_vectors(device: str) -> None:
    x, y = np.arange(12.0).reshape(4, 3), tg.zeros(3, dtype=V3)
    (g,) = tg.vjp(scatters_vectors, 1, [tg.array(x, dtype=V3)], [y], device=device, block_dim=4)(
        np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    )
    assert y.numpy().tolist() == [(x[0] + x[2]).tolist(), x[1].tolist(), x[1].tolist()]
    assert g.tolist() == [[1, 2, 3], [11, 13, 15], [1, 2, 3], [0, 0, 0]]


@tg.kernel
def stack_of_vectors(x: tg.array1d[V3], y: tg.array1d[V3], n: tg.array1d[int]):
    block, lane = tg.tid()
    s = tg.tile_stack(capacity=8, dtype=V3)
    tg.tile_stack_push(s, x[lane] * 2.0, lane > 0)
    n[0] = tg.tile_stack_count(s)
    v, slot = tg.tile_stack_pop(s)
    if slot >= 0:
        y[slot] = v


def test_stacks_of_vectors(device: str) -> None:
    x, y, n = np.arange(12.0).reshape(4, 3), tg.zeros(4, dtype=V3), np.zeros(1, np.int32)
    run(stack_of_vectors, tg.array(x, dtype=V3), y, n, device=device)
    assert n[0] == 3
    assert y.numpy().tolist() == [*(2 * x[1:]).tolist(), [0, 0, 0]]


@tg.kernel
def vector_from_a_lane(x: tg.array1d[V3], y: tg.array2d[V3]):
    block, lane = tg.tid()
    tg.tile_store(y, tg.tile_from_thread((2, 2), x[lane], 2))


def test_composites_from_a_thread(device: str) -> None:
    x, y = np.arange(12.0).reshape(4, 3), tg.zeros((2, 2), dtype=V3)
    (g,) = tg.vjp(vector_from_a_lane, 1, [tg.array(x, dtype=V3)], [y], device=device, block_dim=4)(np.ones((2, 2, 3)))
    assert (y.numpy() == x[2]).all()
    assert g.tolist() == [[0, 0, 0], [0, 0, 0], [4, 4, 4], [0, 0, 0]]


@tg.kernel
def complex_products(a: tg.array3d[tg.vec2d], b: tg.array2d[tg.vec2d], y: tg.array3d[tg.vec2d]):
    s, t = tg.tile_load(a, shape=(2, 3, 4)), tg.tile_load(b, shape=(3, 4))
    tg.tile_store(y, s[:, ::-1] @ t.T)


def test_products_of_complex_views(device: str) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 3, 4, 2)), rng.standard_normal((3, 4, 2))
    y = tg.zeros((2, 3, 3), dtype=tg.vec2d)
    run(complex_products, tg.array(a, dtype=tg.vec2d), tg.array(b, dtype=tg.vec2d), y, device=device)
    z = (a[..., 0] + 1j * a[..., 1])[:, ::-1] @ (b[..., 0] + 1j * b[..., 1]).T
    np.testing.assert_allclose(y.numpy(), np.stack([z.real, z.imag], -1), rtol=1e-12)


WRONG = {
    "tg.tile_store(x, t.x)": "tile_store: a 1-D array of vec3d meets a float64 tile (4,)",
    "tg.tile_assign(t, t.x)": "tile_assign: a vec3d tile (4,) meets",
    "tg.atomic_add(x, 0, s[0])": "atomic_add: a 1-D array of vec3d meets float64",
    "tg.atomic_add(s, 0, x[0])": "atomic_add: a 1-D array of float64 meets a vec3d",
    "tg.tile_scatter_add(t, 0, s[0], True)": "tile_scatter_add: a vec3d tile (4,) meets float64",
    "tg.tile_sort(t)": "tile_sort: `keys` must be a tile of numbers, it is a tile of vec3d",
}


@pytest.mark.parametrize("call", WRONG)
def test_numbers_are_not_vectors(call: str) -> None:
    text = f"def kernel(x: X, s: S):\n    t = tg.tile_load(x, shape=4)\n    {call}\n"
    kernel = build(text, X=tg.array1d[V3], S=tg.array1d[tg.float64])
    with pytest.raises(tg.TypeMismatch) as error:
        kernel.ir(tg.zeros(4, dtype=V3), np.zeros(4))
    assert WRONG[call] in str(error.value)


# --- maps and functions -----------------------------------------------------------------------------------------------


@tg.func
def of_eight(a: V3, b: tg.float64, c: tg.float64, d: V3, e: int, f: bool, g: tg.float64, h: Point):
    r = Point()
    r.mass = tg.dot(a, d) + b * c + h.mass
    r.place = a if f else d * g + h.place * tg.float64(e)
    return r


@tg.kernel
def maps_eight(v: tg.array1d[V3], x: tg.array1d[tg.float64], s: tg.array1d[Point], y: tg.array1d[Point]):
    a, b, h = tg.tile_load(v, shape=3), tg.tile_load(x, shape=3), tg.tile_load(s, shape=3)
    tg.tile_store(y, tg.tile_map(of_eight, a, b, 2.0, a, 3, b > 1.0, b, h))


def test_maps_of_eight_inputs_of_all_kinds(device: str) -> None:
    v, x, s = np.arange(9.0).reshape(3, 3), np.array([0.5, 2.0, 1.0]), points(3)
    y = np.zeros(3, Point.numpy_dtype())
    run(
        maps_eight,
        tg.array(v, dtype=V3),
        x,
        held(s),
        held(y),
        device=device,
    )
    np.testing.assert_allclose(y["mass"], (v * v).sum(1) + 2 * x + s["mass"])
    np.testing.assert_allclose(y["place"], np.where(x[:, None] > 1, v, v * x[:, None] + 3 * s["place"]))


@tg.kernel
def maps_to_vectors(x: tg.array2d[tg.float64], y: tg.array2d[V3], z: tg.array2d[tg.float64]):
    t = tg.tile_load(x, shape=(2, 2))
    v = tg.tile_map(lambda a: tg.vec3d(a, a * a, 1.0), t)
    tg.tile_store(y, v)
    tg.tile_store(z, tg.tile_map(tg.length, v) + tg.tile_map(tg.dot, v, v))


def test_maps_with_vectors_as_results(device: str) -> None:
    x = np.array([[1.0, 2], [3, 4]])
    y, z = tg.zeros((2, 2), dtype=V3), tg.zeros((2, 2), dtype=tg.float64)
    g = tg.vjp(maps_to_vectors, 1, [x], [y, z], device=device)(np.ones((2, 2, 3)), np.ones((2, 2)))[0]
    square = x**2 + x**4 + 1
    np.testing.assert_allclose(z.numpy(), np.sqrt(square) + square)
    slope = 2 * x + 4 * x**3
    np.testing.assert_allclose(g, 1 + 2 * x + slope * (0.5 / np.sqrt(square) + 1))


@tg.func
def fills(t: tg.tile[tg.float64, 2, 3], v: tg.float64):
    t[0] = tg.tile_full(3, v)
    return t[1] * v


@tg.kernel
def calls_by_reference(x: tg.array2d[tg.float64], v: tg.array1d[tg.float64], y: tg.array2d[tg.float64]):
    t = tg.tile_load(x, shape=(2, 3))
    row = fills(t, v[0])
    t[1] += row
    tg.tile_store(y, t)


def test_tile_parameters_are_references(device: str) -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
    gx, gv = tg.vjp(calls_by_reference, 1, [x, np.array([3.0])], [y], device=device)(np.ones((2, 3)))
    assert y.tolist() == [[3, 3, 3], [12, 16, 20]]
    assert gx.tolist() == [[0, 0, 0], [4, 4, 4]]
    assert gv.tolist() == [15]


# --- printing, launches -----------------------------------------------------------------------------------------------


@tg.kernel
def prints_everything(v: tg.array1d[V3], s: tg.array1d[Point], h: tg.array1d[tg.bfloat16]):
    t = tg.tile_load(v, shape=2)
    p = tg.tile_load(s, shape=1)
    print(t)
    print(p)
    print(tg.tile_load(h, shape=3), v[0], s[0].mass, len(t), t.shape)


def test_print_of_composites(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    h = np.array([1, 2, 3], ml_dtypes.bfloat16)
    run(
        prints_everything,
        tg.array(np.arange(6.0).reshape(2, 3), dtype=V3),
        tg.array(points(1), dtype=Point),
        h,
        device=device,
    )
    printed = capfd.readouterr().out
    assert "5" in printed
    assert len(printed.splitlines()) >= 3


@tg.kernel
def far(o: tg.array1d[tg.int64], n: tg.array1d[int]):
    i, j, k, m = tg.tid()
    tg.atomic_max(o, 0, tg.int64(i) * tg.int64(10) + tg.int64(m))
    tg.atomic_add(n, 0, 1)


def test_four_axes_and_partial_blocks(device: str) -> None:
    o, n = np.zeros(1, np.int64), np.zeros(1, np.int32)
    tg.launch(far, dim=(3, 2, 5, 7), inputs=[o, n], block_dim=32, device=device)
    assert (o[0], n[0]) == (26, 210)


def test_launches_of_nothing_check_their_arguments(device: str) -> None:
    o = np.zeros(1, np.int64)
    with pytest.raises(tg.TilegradError):
        tg.launch(far, dim=(3, 0, 5, 7), inputs=[o, np.zeros(1, np.float32)], device=device)
    with pytest.raises(tg.TilegradError):
        tg.launch(far, dim=(0, 2), inputs=[o, np.zeros(1, np.int32)], device=device)
    tg.launch(far, dim=(3, 0, 5, 7), inputs=[o, np.zeros(1, np.int32)], device=device)
    assert o[0] == 0


@tg.kernel
def bools(x: tg.array1d[bool], y: tg.array1d[bool]):
    t = tg.tile_load(x, shape=3)
    t[1] = not t[1]
    tg.tile_store(y, ~t)


def test_d14_arrays_of_bools(device: str) -> None:
    x = np.array([True, False, True])
    y = tg.zeros(3, dtype=tg.bool)
    run(bools, x, y, device=device)
    assert np.from_dlpack(y).tolist() == [False, False, False]
    assert np.from_dlpack(y).dtype == np.bool_


# --- lane code in loops of the block ----------------------------------------------------------------------------------


@tg.kernel
def halves_in_turn(x: tg.array1d[tg.float64], n: int, y: tg.array1d[tg.float64]):
    i = tg.tid()
    v = x[i]
    w = x[i]
    j = 0
    while j < n:
        v = v * x[i] + w
        if j % 2 == 0:
            w *= 0.5
            for k in range(j):
                if k % 3 != 1:
                    v = tg.sin(v) * w
        j += 1
    y[i] = v


@pytest.mark.parametrize("n", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("block_dim", [1, 4, 32])
def test_conditions_of_the_block_in_loops_of_lanes(device: str, n: int, block_dim: int) -> None:
    """What was decided once for the block is taken back once, not by each of its lanes."""
    rng = np.random.default_rng(1)
    x, ct = rng.random(7), rng.standard_normal(7)
    run = tg.vjp(halves_in_turn, 7, [x, n], [np.zeros(7)], tiled=False, device=device, block_dim=block_dim)
    above, below = (value_of(x + step, n) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(run(ct)[0], ct * (above - below) / 2e-6, rtol=1e-6, atol=1e-8)


def value_of(x: Any, n: int) -> Any:
    v = w = x
    for j in range(n):
        v = v * x + w
        if j % 2 == 0:
            w = w * 0.5
            for k in range(j):
                v = np.sin(v) * w if k % 3 != 1 else v
    return v
