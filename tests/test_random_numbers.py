"""Random numbers: the same everywhere, uniform, independent; and what a draw does to the variable of its state."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tilegrad as tg

MASK = 0xFFFFFFFF


def hashed(x: int) -> int:
    """The permutation of words, in Python's integers."""
    x ^= x >> 17
    x = x * 0xED5AD4BB & MASK
    x ^= x >> 11
    x = x * 0xAC4C1B51 & MASK
    x ^= x >> 15
    x = x * 0x31848BAB & MASK
    return x ^ x >> 14


class Stream:
    """The generator, written anew."""

    def __init__(self, seed: int, offset: int | None = None) -> None:
        self.state = hashed(seed + 0x243F6A88 & MASK)
        if offset is not None:
            self.state = hashed(self.state ^ hashed(offset + 0x85A308D3 & MASK))

    def word(self) -> int:
        self.state = self.state + 0x9E3779B9 & MASK
        return hashed(self.state)

    def uniform(self) -> float:
        return (self.word() >> 8) / 2**24

    def integer(self, low: int, high: int) -> int:
        return low + (self.word() * (high - low) >> 32)


# --- the numbers -----------------------------------------------------------------------------------------------------


@tg.kernel
def draws(seed: int, o: tg.array2d[tg.uint32], f: tg.array2d[float], n: tg.array1d[tg.uint32]):
    i = tg.tid()
    rng = tg.rand_init(seed, i)
    o[i, 0] = tg.randu(rng)
    o[i, 1] = tg.uint32(tg.randi(rng, -5, 1000))
    o[i, 2] = tg.randu(rng, tg.uint32(3), tg.uint32(4000000000))
    f[i, 0] = tg.randf(rng)
    f[i, 1] = tg.randf(rng, -1.0, 3.0)
    n[i] = rng


def test_numbers_are_those_of_the_generator(device: str) -> None:
    for block_dim in (1, 8, 50):
        o, f, n = np.zeros((20, 3), np.uint32), np.zeros((20, 2), np.float32), np.zeros(20, np.uint32)
        tg.launch(draws, dim=20, inputs=[-7, o, f, n], block_dim=block_dim, device=device)
        for i in range(20):
            s = Stream(-7, i)
            assert o[i].tolist() == [s.word(), s.integer(-5, 1000) & MASK, s.integer(3, 4000000000)]
            assert f[i].tolist() == [s.uniform(), np.float32(s.uniform() * 4 - 1)]
            assert n[i] == s.state


def test_outside_of_kernels_a_state_is_changed_in_place() -> None:
    rng, s = tg.rand_init(12), Stream(12)
    assert [int(tg.randu(rng)) for _ in range(3)] == [s.word() for _ in range(3)]
    many = tg.rand_init(12, np.arange(5))
    assert tg.randf(many).tolist() == [Stream(12, i).uniform() for i in range(5)]
    assert not np.array_equal(tg.randf(many), [Stream(12, i).uniform() for i in range(5)])
    with pytest.raises(tg.TypeMismatch, match="rand_init"):
        tg.randf(5)


@pytest.mark.parametrize("seed", [0, 5, -1, 2**31, 2**40 + 1, -(2**40)])
def test_a_seed_means_the_same_in_every_integer_type(seed: int) -> None:
    known = int(tg.rand_init(seed))
    if -(2**31) <= seed < 2**31:
        assert int(tg.rand_init(np.int32(seed))) == known
    if seed >= 0 or seed < -(2**32):
        assert int(tg.rand_init(np.int64(seed))) == known
    if seed >= 0:
        assert int(tg.rand_init(np.uint64(seed))) == known
    assert len({int(tg.rand_init(seed, k)) for k in range(1000)} | {known}) == 1001


def test_seed_of_a_type_that_is_no_integer() -> None:
    with pytest.raises(tg.TypeMismatch, match="the seed must be an integer"):
        tg.rand_init(1.5)
    with pytest.raises(tg.TypeMismatch, match="the offset must be an integer"):
        tg.rand_init(1, np.float32(2))


# --- tiles -----------------------------------------------------------------------------------------------------------


@tg.kernel
def tiles(seed: int, a: tg.array3d[int], b: tg.array1d[int], c: tg.array1d[float], d: tg.array1d[float]):
    rng = tg.rand_init(seed, tg.tid())
    tg.tile_store(a, tg.tile_randi((3, 5, 7), rng))
    tg.tile_store(b, tg.tile_randi(shape=105, rng=rng, min=-3, max=9, storage="shared"))
    tg.tile_store(c, tg.tile_randf(105, rng))
    tg.tile_store(d, tg.tile_randn(105, rng))


def element(state: int, k: int, salt: int = 0x13198A2E) -> int:
    return hashed(hashed(k + salt & MASK) ^ state)


def test_elements_depend_on_state_and_place_only(device: str) -> None:
    state = Stream(42, 0).state
    words = [element(state, k) for k in range(105)]
    for block_dim in (1, 32, 100):
        a, b = np.zeros((3, 5, 7), np.int32), np.zeros(105, np.int32)
        c, d = np.zeros(105, np.float32), np.zeros(105, np.float32)
        tg.launch_tiled(tiles, dim=1, inputs=[42, a, b, c, d], block_dim=block_dim, device=device)
        assert a.ravel().view(np.uint32).tolist() == words
        assert b.tolist() == [(w * 12 >> 32) - 3 for w in words]
        assert c.tolist() == [(w >> 8) / 2**24 for w in words]
        radius = np.sqrt(-2 * np.log((np.array(words) + 0.5) / 2**32))
        turns = np.array([element(state, k, 0x03707344) for k in range(105)]) / 2**32
        np.testing.assert_allclose(d, radius * np.cos(2 * np.pi * turns), rtol=2e-6, atol=2e-6)


@tg.kernel
def many_floats(
    h: tg.array1d[tg.float16], b: tg.array1d[tg.bfloat16], d: tg.array1d[tg.float64], n: tg.array1d[tg.float64]
):
    rng = tg.rand_init(1)
    tg.tile_store(h, tg.tile_randf(4000, rng, dtype=tg.float16))
    tg.tile_store(b, tg.tile_randf(4000, rng, dtype=tg.bfloat16))
    tg.tile_store(d, tg.tile_randf(4000, rng, min=-1.0, max=1.0, dtype=tg.float64))
    tg.tile_store(n, tg.tile_randn(4000, rng, dtype=tg.float64))


def test_floats_of_every_size() -> None:
    def run(device: str) -> list[Any]:
        out = [np.zeros(4000, t.np) for t in (tg.float16, tg.bfloat16, tg.float64, tg.float64)]
        tg.launch_tiled(many_floats, dim=1, inputs=out, device=device)
        return out

    h, b, d, n = run("cpu")
    for x, y in zip((h, b, d), run("interpret"), strict=False):
        assert x.tobytes() == y.tobytes()
    np.testing.assert_allclose(n, run("interpret")[3], rtol=1e-14, atol=1e-14)
    for x in (h, b, (d + 1) / 2):
        x = x.astype(np.float64)
        assert x.min() >= 0 and x.max() < 1
        assert abs(x.mean() - 0.5) < 0.02 and abs(x.std() - 12**-0.5) < 0.01
    assert len(set(d.tolist())) == 4000 and np.any(d * 2**30 != np.rint(d * 2**30))  # more bits than a float32 has
    assert stats.kstest(n, "norm").pvalue > 1e-3


def test_the_call_of_a_tile_leaves_the_state(device: str) -> None:
    @tg.kernel
    def twice(o: tg.array2d[int], n: tg.array1d[tg.uint32]):
        rng = tg.rand_init(5)
        n[0] = rng
        tg.tile_store(o[0], tg.tile_randi(8, rng))
        tg.tile_store(o[1], tg.tile_randi(8, rng))
        n[1] = rng
        tg.randi(rng)
        tg.tile_store(o[2], tg.tile_randi(8, rng))

    o, n = np.zeros((3, 8), np.int32), np.zeros(2, np.uint32)
    tg.launch_tiled(twice, dim=1, inputs=[o, n], device=device)
    assert n[0] == n[1] and (o[0] == o[1]).all() and (o[1] != o[2]).all()


@settings(max_examples=15)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 200), st.integers(1, 64), st.data())
def test_devices_agree(seed: int, size: int, block_dim: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(-(2**31), 2**31 - 2))
    high = data.draw(st.integers(low + 1, 2**31 - 1))
    a, b = data.draw(st.floats(-100, 0, width=32)), data.draw(st.floats(0.5, 100, width=32))

    @tg.kernel
    def both(seed: int, low: int, high: int, a: float, b: float, o: tg.array1d[int], f: tg.array1d[float]):
        rng = tg.rand_init(seed, tg.tid())
        tg.tile_store(o, tg.tile_randi(size, rng, low, high))
        tg.tile_store(f, tg.tile_randf(size, rng, a, b))

    found = []
    for device in ("interpret", "cpu"):
        o, f = np.zeros(size, np.int32), np.zeros(size, np.float32)
        tg.launch_tiled(both, dim=1, inputs=[seed, low, high, a, b, o, f], block_dim=block_dim, device=device)
        assert (low <= o).all() and (o < high).all() and (a <= f).all() and (f < b).all()
        found.append((o.tobytes(), f.tobytes()))
    assert found[0] == found[1]


def test_the_upper_bound_is_never_reached() -> None:
    """1 + (1 - 2**-24) rounds to 2, which is not below 2."""
    states = tg.rand_init(3, np.arange(1 << 22))
    x = tg.randf(states, 1.0, 2.0)
    assert x.min() >= 1 and x.max() < 2
    tight = tg.randf(states, 1.0, float(np.nextafter(np.float32(1), np.float32(2))))
    assert set(tight.tolist()) == {1.0}


# --- statistics ------------------------------------------------------------------------------------------------------

COUNT = 1 << 18


def evenly(cells: Any, size: int) -> float:
    """The chance that numbers this uneven are uniform (chi-square)."""
    found = np.bincount(cells, minlength=size)
    expected = len(cells) / size
    return float(stats.chi2.sf(((found - expected) ** 2 / expected).sum(), size - 1))


def bits(words: Any, at: int, count: int) -> Any:
    return (words >> np.uint32(at)).astype(np.int64) & (1 << count) - 1


def long_stream(count: int) -> Any:
    rng = tg.rand_init(2024)
    return np.array([tg.randu(rng) for _ in range(count)])


STREAMS = {
    "one state": lambda: long_stream(1 << 15),
    "seeds": lambda: tg.randu(tg.rand_init(np.arange(COUNT))),
    "offsets": lambda: tg.randu(tg.rand_init(1, np.arange(COUNT))),
    "seeds and offsets": lambda: tg.randu(
        tg.rand_init(np.repeat(np.arange(512), 512), np.tile(np.arange(512), 512))
    ),
    "a tile": lambda: tg.tile_randi(COUNT, tg.rand_init(9)).view(np.uint32),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_words_are_uniform_and_neighbours_independent(name: str) -> None:
    words = STREAMS[name]()
    for at in (0, 8, 16, 24):
        assert evenly(bits(words, at, 8), 256) > 1e-4
    for at in (0, 13, 27):
        pairs = bits(words[::2], at, 5) * 32 + bits(words[1::2], at, 5)
        assert evenly(pairs, 1024) > 1e-4
    ones = np.unpackbits(np.ascontiguousarray(words).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 4 * 0.5 / np.sqrt(32 * len(words))


def test_tiles_of_neighbouring_states_are_independent() -> None:
    a, b = (tg.tile_randi(COUNT, tg.rand_init(7, k)).view(np.uint32) for k in (0, 1))
    for at in (0, 13, 27):
        assert evenly(bits(a, at, 5) * 32 + bits(b, at, 5), 1024) > 1e-4
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(COUNT)


def test_successive_draws_are_independent() -> None:
    states = tg.rand_init(3, np.arange(COUNT))
    x, y = tg.randf(states), tg.randf(states)
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / np.sqrt(COUNT)
    assert stats.kstest(x[:20000], "uniform").pvalue > 1e-4


def test_there_is_no_short_cycle() -> None:
    rng = tg.rand_init(0)
    states = np.uint32(rng) + np.uint32(0x9E3779B9) * np.arange(1 << 20, dtype=np.uint32)
    for _ in range(3):
        tg.randi(rng)
    assert int(rng) == states[3]
    assert len(np.unique(states)) == 1 << 20
    assert 0x9E3779B9 % 2 == 1  # an odd step visits all 2**32 states


def test_normal_numbers() -> None:
    x = tg.randn(tg.rand_init(4, np.arange(COUNT)))
    assert stats.kstest(x[:50000], "norm").pvalue > 1e-4
    assert abs(x.mean()) < 4 / np.sqrt(COUNT) and abs(x.std() - 1) < 0.01
    assert abs(stats.kurtosis(x)) < 0.06 and np.isfinite(x).all() and np.abs(x).max() < 6.8


def test_every_number_of_a_small_range_comes_up_equally_often() -> None:
    x = tg.randi(tg.rand_init(4, np.arange(COUNT)), -3, 4)
    assert evenly(x + 3, 7) > 1e-4


# --- what a draw does to its variable --------------------------------------------------------------------------------


def test_loops_branches_and_conditions(device: str) -> None:
    @tg.kernel
    def walk(n: int, o: tg.array1d[float], state: tg.array1d[tg.uint32]):
        i = tg.tid()
        rng = tg.rand_init(9, i)
        total = 0.0
        for _ in range(n):
            if tg.randf(rng) < 0.5:
                total += tg.randf(rng)
            for _ in range(2):
                tg.randi(rng)
        while tg.randf(rng) < 0.7:
            total += 1.0
        if tg.randf(rng) < 0.5 and tg.randf(rng) < 0.5:
            total += 10.0
        total += tg.randf(rng) if i % 2 == 0 else 0.0
        o[i], state[i] = total, rng

    def expected(i: int) -> tuple[float, int]:
        s, total = Stream(9, i), np.float32(0)
        for _ in range(6):
            if s.uniform() < 0.5:
                total += np.float32(s.uniform())
            s.word(), s.word()
        while s.uniform() < np.float32(0.7):
            total += np.float32(1)
        if s.uniform() < 0.5 and s.uniform() < 0.5:
            total += np.float32(10)
        if i % 2 == 0:
            total += np.float32(s.uniform())
        return float(total), s.state

    for block_dim in (1, 16):
        o, state = np.zeros(40, np.float32), np.zeros(40, np.uint32)
        tg.launch(walk, dim=40, inputs=[6, o, state], block_dim=block_dim, device=device)
        assert list(zip(o.tolist(), state.tolist(), strict=True)) == [expected(i) for i in range(40)]


@tg.func
def two(rng: tg.uint32):
    return tg.randf(rng) + tg.randf(rng), rng


def test_functions_get_a_copy_and_may_return_it(device: str) -> None:
    @tg.kernel
    def calls(o: tg.array1d[float], state: tg.array1d[tg.uint32]):
        rng = tg.rand_init(1)
        state[0] = rng
        x, _ = two(rng)
        state[1] = rng
        y, rng = two(rng)
        state[2] = rng
        o[0] = x
        o[1] = y
        o[2] = tg.randf(tg.rand_init(1))
        other = rng
        tg.randf(other)
        state[3] = rng

    o, state = np.zeros(3, np.float32), np.zeros(4, np.uint32)
    tg.launch_tiled(calls, dim=1, inputs=[o, state], device=device)
    s = Stream(1)
    start, first = s.state, s.uniform()
    assert o.tolist() == [np.float32(first + s.uniform())] * 2 + [first]
    assert state.tolist() == [start, start, s.state, s.state]


@tg.struct
class Particle:
    x: float
    rng: tg.uint32


def test_a_state_in_a_struct_and_by_keyword(device: str) -> None:
    @tg.kernel
    def member(o: tg.array1d[float]):
        p = Particle(x=0.0, rng=tg.rand_init(3))
        for _ in range(3):
            p.x += tg.randf(p.rng)
        rng = tg.rand_init(3)
        o[0] = p.x
        o[1] = tg.randf(state=rng, min=0.0, max=1.0) + tg.randf(max=1.0, min=0.0, state=rng) + tg.randf(state=rng)
        o[2] = tg.randf(rng, 0.0, tg.randf(rng))

    o, s = np.zeros(3, np.float32), Stream(3)
    tg.launch_tiled(member, dim=1, inputs=[o], device=device)
    total = np.float32(s.uniform()) + np.float32(s.uniform()) + np.float32(s.uniform())
    top, u = np.float32(s.uniform()), np.float32(s.uniform())
    assert o.tolist() == [total, total, u * top]


def test_gradient_of_the_bounds(device: str) -> None:
    @tg.kernel
    def between(low: tg.array1d[float], high: tg.array1d[float], y: tg.array1d[float], u: tg.array1d[float]):
        rng = tg.rand_init(8)
        tg.tile_store(y, tg.tile_randf(50, rng, low[0], high[0]))
        tg.tile_store(u, tg.tile_randf(50, rng))

    low, high = np.array([-2.0], np.float32), np.array([5.0], np.float32)
    y, u = np.zeros(50, np.float32), np.zeros(50, np.float32)
    pullback = tg.vjp(between, 1, [low, high], [y, u], device=device)
    np.testing.assert_allclose(y, -2 + 7 * u, rtol=1e-5, atol=1e-6)
    at_low, at_high = pullback(np.ones(50, np.float32), np.zeros(50, np.float32))
    np.testing.assert_allclose([at_low[0], at_high[0]], [50 - u.sum(), u.sum()], rtol=1e-5)


def test_gradient_through_numbers_drawn_in_a_loop(device: str) -> None:
    @tg.kernel
    def noisy(x: tg.array1d[float], y: tg.array1d[float]):
        i = tg.tid()
        rng = tg.rand_init(8, i)
        z = x[i]
        for _ in range(4):
            z = z * (1.0 + tg.randf(rng))
        y[i] = z

    x, y = np.array([1.0, 2.0, 3.0], np.float32), np.zeros(3, np.float32)
    pullback = tg.vjp(noisy, 3, [x], [y], device=device, tiled=False)
    (slope,) = pullback(np.ones(3, np.float32))
    np.testing.assert_allclose(slope, y / x, rtol=1e-6)


def poisson_of(s: Stream, lam: float) -> int:
    count, at = 0, -math.log((s.word() + 0.5) / 2**32)
    while at < lam:
        count, at = count + 1, at - math.log((s.word() + 0.5) / 2**32)
    return count


def test_poisson(device: str) -> None:
    @tg.kernel
    def count(lam: float, o: tg.array1d[tg.uint32], state: tg.array1d[tg.uint32]):
        i = tg.tid()
        rng = tg.rand_init(11, i)
        o[i] = tg.poisson(rng, lam * float(i % 3)) + tg.poisson(rng, 0.5)
        state[i] = rng

    o, state = np.zeros(30, np.uint32), np.zeros(30, np.uint32)
    tg.launch(count, dim=30, inputs=[4.0, o, state], block_dim=8, device=device)
    for i in range(30):
        s = Stream(11, i)
        assert o[i] == poisson_of(s, 4.0 * (i % 3)) + poisson_of(s, 0.5)
        assert state[i] == s.state
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(tg.KernelValueError, match="lam must be from 0 to 1e6"):
            tg.launch(count, dim=3, inputs=[wrong, o, state], device=device)


@pytest.mark.parametrize("lam", [0.0, 0.3, 4.0, 60.0])
def test_poisson_has_its_distribution(lam: float) -> None:
    x = tg.poisson(tg.rand_init(5, np.arange(30000)), lam)
    assert abs(x.mean() - lam) <= 4 * np.sqrt(lam / 30000)
    assert abs(x.var() - lam) <= 0.05 * lam
    found = np.bincount(x, minlength=10)[:10] / 30000
    np.testing.assert_allclose(found, stats.poisson.pmf(np.arange(10), lam), atol=0.015)


# --- points ----------------------------------------------------------------------------------------------------------

POINTS = {
    "sample_unit_ring": lambda v: np.abs(np.hypot(*v) - 1) < 1e-6,
    "sample_unit_disk": lambda v: np.hypot(*v) <= 1 + 1e-6,
    "sample_unit_sphere_surface": lambda v: np.abs((v**2).sum(0) - 1) < 1e-5,
    "sample_unit_sphere": lambda v: (v**2).sum(0) <= 1 + 1e-5,
    "sample_unit_hemisphere_surface": lambda v: (np.abs((v**2).sum(0) - 1) < 1e-5) & (v[2] >= 0),
    "sample_unit_hemisphere": lambda v: ((v**2).sum(0) <= 1 + 1e-5) & (v[2] >= 0),
    "sample_unit_square": lambda v: np.abs(v).max(0) <= 0.5,
    "sample_unit_cube": lambda v: np.abs(v).max(0) <= 0.5,
    "sample_triangle": lambda v: (v >= 0).all(0) & (v.sum(0) <= 1 + 1e-6),
}
#: second moments along each axis (for the triangle, and z of hemispheres, about the mean)
MOMENTS = {
    "sample_unit_ring": (1 / 2, 1 / 2), "sample_unit_disk": (1 / 4, 1 / 4), "sample_unit_sphere_surface": (1 / 3,) * 3,
    "sample_unit_sphere": (1 / 5,) * 3, "sample_unit_hemisphere_surface": (1 / 3, 1 / 3, 1 / 12),
    "sample_unit_hemisphere": (1 / 5, 1 / 5, 1 / 5 - 9 / 64), "sample_unit_square": (1 / 12,) * 2,
    "sample_unit_cube": (1 / 12,) * 3, "sample_triangle": (1 / 18, 1 / 18),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_points_fill_their_shape(name: str) -> None:
    v = np.array(list(getattr(tg, name)(tg.rand_init(6, np.arange(1 << 16)))))
    assert POINTS[name](v).all()
    np.testing.assert_allclose(v.var(axis=1), MOMENTS[name], rtol=0.03)


def test_points_in_kernels(device: str) -> None:
    @tg.kernel
    def points(o: tg.array2d[float], state: tg.array1d[tg.uint32]):
        i = tg.tid()
        rng = tg.rand_init(6, i)
        v = tg.sample_unit_sphere(rng)
        w = tg.sample_unit_disk(rng)
        o[i, 0], o[i, 1], o[i, 2], o[i, 3] = v[0], v[1], v[2], w[1]
        state[i] = rng

    o, state = np.zeros((9, 4), np.float32), np.zeros(9, np.uint32)
    tg.launch(points, dim=9, inputs=[o, state], device=device)
    states = tg.rand_init(6, np.arange(9))
    expected = [*tg.sample_unit_sphere(states), list(tg.sample_unit_disk(states))[1]]
    np.testing.assert_allclose(o.T, expected, rtol=1e-6, atol=1e-7)
    assert state.tolist() == states.tolist()


# --- errors ----------------------------------------------------------------------------------------------------------


def message(kernel: Any, *args: Any, tiled: bool = True) -> str:
    with pytest.raises(tg.TilegradError) as caught:
        (tg.launch_tiled if tiled else tg.launch)(tg.kernel(kernel), dim=1, inputs=args, block_dim=4)
    return str(caught.value)


def test_one_state_for_each_lane_makes_no_tile() -> None:
    def kernel(o: tg.array1d[float]):
        block, lane = tg.tid()
        tg.tile_store(o, tg.tile_randf(4, tg.rand_init(1, lane)))

    text = message(kernel, np.zeros(4, np.float32))
    assert "tile_randf: `rng` differs between the lanes" in text and "rand_init(seed, block)" in text


def test_a_seed_is_no_state() -> None:
    def kernel(seed: int, o: tg.array1d[float]):
        o[0] = tg.randf(seed)

    text = message(kernel, 4, np.zeros(4, np.float32))
    assert "the state must be what rand_init returns (a uint32), it is int32" in text

    def literal(o: tg.array1d[float]):
        tg.tile_store(o, tg.tile_randf(4, 42))

    assert "write rng = rand_init(42) before" in message(literal, np.zeros(4, np.float32))


def test_bounds() -> None:
    def reversed_(o: tg.array1d[float]):
        rng = tg.rand_init(1)
        o[0] = tg.randf(rng, 2.0, 1.0)

    assert "max must be larger than min, they are 1.0 and 2.0" in message(reversed_, np.zeros(1, np.float32))

    def one_only(o: tg.array1d[float]):
        rng = tg.rand_init(1)
        o[0] = tg.randf(rng, 2.0)

    assert "give min and max, or neither" in message(one_only, np.zeros(1, np.float32))

    def fraction(o: tg.array1d[int]):
        rng = tg.rand_init(1)
        o[0] = tg.randi(rng, 0.5, 2)

    assert "randi: min and max must be int32, one is 0.5" in message(fraction, np.zeros(1, np.int32))

    def at_run_time(n: int, o: tg.array1d[int]):
        rng = tg.rand_init(1)
        o[0] = tg.randi(rng, 0, n)

    for device in ("interpret", "cpu"):
        with pytest.raises(tg.KernelValueError, match="randi: max must be larger than min"):
            tg.launch_tiled(tg.kernel(at_run_time), dim=1, inputs=[0, np.zeros(1, np.int32)], device=device)


def test_shapes() -> None:
    def run_time(n: int, o: tg.array1d[float]):
        tg.tile_store(o, tg.tile_randf(n, tg.rand_init(1)))

    assert re.search(
        "tile_randf: shape must be a compile-time constant.*`n`", message(run_time, 4, np.zeros(4, np.float32))
    )

    def integers(o: tg.array1d[float]):
        tg.tile_store(o, tg.tile_randf(4, tg.rand_init(1), dtype=int))

    assert "dtype must be a float type" in message(integers, np.zeros(4, np.float32))


def test_a_state_of_another_function_cannot_be_changed() -> None:
    def kernel(x: tg.array1d[float], o: tg.array1d[float]):
        rng = tg.rand_init(1)
        t = tg.tile_load(x, shape=4)
        tg.tile_store(o, tg.tile_map(lambda a: a + tg.randf(rng), t))

    text = message(kernel, np.zeros(4, np.float32), np.zeros(4, np.float32))
    assert "changes `rng`, which is no variable of lambda" in text


draw = tg.randf


def test_a_draw_under_another_name_in_a_condition_of_while() -> None:
    def kernel(o: tg.array1d[float]):
        rng = tg.rand_init(1)
        while draw(rng) < 0.9:
            o[0] += 1.0

    assert "the condition of the loop changes `rng`" in message(kernel, np.zeros(1, np.float32))
