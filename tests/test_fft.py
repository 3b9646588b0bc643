"""Fourier transforms against NumPy's in higher precision, closed forms and central differences."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import ShapeMismatch, TypeMismatch
from tilegrad.op import REGISTRY, Sample
from tilegrad.ops import fft_lines, fft_plan
from tilegrad.testing import run_one

F32, F64 = np.float32, np.float64
V1, V2 = tg.array1d[tg.vec2d], tg.array2d[tg.vec2d]
Host = np.ndarray[Any, Any]


def run(function: Callable[..., None], *args: Any, dim: Any = 1, device: str, block_dim: int = 4) -> None:
    tg.launch_tiled(tg.kernel(function), dim=dim, inputs=list(args), block_dim=block_dim, device=device)


def noise(*shape: int, seed: int = 0) -> Host:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def as_pairs(z: Any, dtype: Any = F64) -> Host:
    return np.stack([np.real(z), np.imag(z)], -1).astype(dtype)


def as_complex(pairs: Any) -> Host:
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])


def roundings(got: Any, exact: Any, dtype: Any) -> float:
    """The error of a result relative to its size, in units of the precision of `dtype`."""
    error = np.sqrt(np.mean(np.abs(got.astype(np.clongdouble) - exact) ** 2) / np.mean(np.abs(exact) ** 2))
    return float(error / np.finfo(dtype).eps)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_the_passes_of_every_length_make_the_length() -> None:
    for n in range(1, 3000):
        assert math.prod(fft_plan.prime_factors(n)) == n
        if not fft_plan.is_direct(n):
            m = fft_plan.detour_length(n)
            assert fft_plan.is_direct(m) and 2 * n - 1 <= m < 2.5 * n + 16
            continue
        stride = 1
        for step in fft_plan.passes(n):
            assert step.stride == stride and step.stride * step.radix * step.groups == n
            stride *= step.radix
        assert stride == n


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 12, 97, 360, 1024])
def test_roots_are_rounded_once(n: int) -> None:
    cos, sin = fft_plan.roots(np.arange(-2, n + 2), n)
    with mpmath.workprec(200):
        angles = [2 * mpmath.pi * k / n for k in range(-2, n + 2)]
        assert cos.tolist() == [float(mpmath.cos(a)) if 4 * k % n or 4 * k // n % 2 == 0 else 0.0
                                for k, a in zip(range(-2, n + 2), angles, strict=True)]  # fmt: skip
        assert sin.tolist() == [-float(mpmath.sin(a)) if 2 * k % n else 0.0
                                for k, a in zip(range(-2, n + 2), angles, strict=True)]  # fmt: skip


def test_roots_near_one_keep_their_distance_from_it() -> None:
    re, im = fft_plan.roots_minus_one(np.arange(6), 1 << 20)
    with mpmath.workprec(200):
        for k in range(6):
            exact = mpmath.expjpi(mpmath.mpf(-2 * k) / (1 << 20)) - 1
            assert re[k] == pytest.approx(float(exact.real), rel=1e-15)
            assert im[k] == pytest.approx(float(exact.imag), rel=1e-15)


# --- the op -----------------------------------------------------------------------------------------------------------


def error_of(shape: tuple[int, ...], axis: int, dtype: Any, inverse: bool = False) -> float:
    """The error of the compiled op in roundings."""
    x = noise(*shape)
    re, im = x.real.astype(dtype), x.imag.astype(dtype)
    (out_re, out_im), _ = run_one(REGISTRY["fft"], Sample((re, im), {"axis": axis, "inverse": inverse}), "cpu")
    z = re.astype(np.longdouble) + 1j * im.astype(np.longdouble)
    exact = np.fft.ifft(z, axis=axis, norm="forward") if inverse else np.fft.fft(z, axis=axis)
    return roundings(out_re.astype(np.longdouble) + 1j * out_im, exact, dtype)


@pytest.mark.parametrize("first", range(1, 65, 8))
def test_every_short_length(first: int) -> None:
    for n in range(first, first + 8):
        dtype, inverse = (F32, False) if n % 2 else (F64, True)
        assert error_of((n,), 0, dtype, inverse) < 1.5
        shape = (5, n) if n % 4 < 2 else (2, n, 3)
        assert error_of(shape, 1, dtype, not inverse) < 1.5


def test_every_prime_length_up_to_300() -> None:
    for n in range(67, 300, 2):
        if len(fft_plan.prime_factors(n)) == 1:
            shape = (n,) if n % 4 == 1 else (n, 2)
            assert error_of(shape, 0, F64 if n % 8 < 4 else F32) < 2


@pytest.mark.parametrize("n", [97, 1000, 1024, 4096])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_longer_lengths(n: int, dtype: Any) -> None:
    assert error_of((2, n), 1, dtype) < 1.5
    assert error_of((n, 17), 0, dtype, True) < 1.5


@pytest.mark.parametrize(("n", "most"), [(1 << 15, 1.5), (20011, 3.0), (3 * 9973, 3.0)])
def test_roots_worked_out_when_the_kernel_runs(n: int, most: float) -> None:
    assert error_of((n,), 0, F64) < most
    assert error_of((n, 2), 0, F32) < most


def test_short_rows_of_a_large_prime_with_a_filter_made_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft_lines, "LONGEST_TABLE", 50)
    for shape, axis in (((37,), 0), ((9, 59), 1), ((60, 3), 0), ((3, 256), 1)):
        assert error_of(shape, axis, F64) < 2


@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 99))
def test_random_shapes_on_both_devices(data: Any, seed: int) -> None:
    rank = data.draw(st.integers(1, 8))
    axis = data.draw(st.integers(0, rank - 1))
    longest = 140 if rank < 4 else 40
    shape = [data.draw(st.integers(1, 3 if rank > 3 else 20)) for _ in range(rank)]
    shape[axis] = data.draw(st.integers(1, longest))
    d = data.draw(st.sampled_from(dt.FLOATS))
    name = data.draw(st.sampled_from(["fft", "rfft", "irfft"]))
    n, bins, flag = shape[axis], shape[axis] // 2 + 1, data.draw(st.booleans())
    x = noise(*(bins if name == "irfft" and k == axis else m for k, m in enumerate(shape)), seed=seed) / 2
    attrs = {"fft": {"inverse": flag}, "rfft": {"paired": flag}, "irfft": {"paired": flag, "n": n}}[name]
    args = (x.real.astype(d.np),) if name == "rfft" else (x.real.astype(d.np), x.imag.astype(d.np))
    sample = Sample(args, {"axis": axis, **attrs})
    expected, got = (run_one(REGISTRY[name], sample, device)[0] for device in ("interpret", "cpu"))
    precision = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 2e-15}[d.name]
    for a, b in zip(expected, got, strict=True):
        assert a.dtype == b.dtype == d.np
        size = np.sqrt(np.mean(np.square(a.astype(F64)))) + 1e-300
        assert np.max(np.abs(a.astype(F64) - b.astype(F64))) <= 4 * precision * size + 1e-300


def test_a_line_with_nan_spoils_no_other(device: str) -> None:
    for shape, axis in (((40, 20), 1), ((3, 37), 1), ((40, 35), 0), ((2, 128), 1), ((7, 31), 1)):
        x = noise(*shape)
        line = (1, slice(None)) if axis else (slice(None), 1)
        x[line] = [complex(math.inf, -math.inf), *[math.nan] * (shape[axis] - 1)]
        sample = Sample((x.real, x.imag), {"axis": axis})
        (re, im), _ = run_one(REGISTRY["fft"], sample, device)
        assert not np.isfinite(re[line]).any() and not np.isfinite(im[line]).any()
        assert np.isfinite(np.delete(re, 1, 1 - axis)).all() and np.isfinite(np.delete(im, 1, 1 - axis)).all()


@pytest.mark.parametrize("name", ["rfft", "irfft"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 30, 37, 64, 94, 105])
def test_real_transforms_against_numpy(name: str, n: int, device: str) -> None:
    for shape, axis in (((n,), 0), ((6, n), 1), ((2, n, 3), 1)):
        x = noise(*(n // 2 + 1 if name == "irfft" and k == axis else m for k, m in enumerate(shape)))
        if name == "rfft":
            (re, im), _ = run_one(REGISTRY["rfft"], Sample((x.real,), {"axis": axis}), device)
            expected = np.fft.rfft(x.real, axis=axis)
            np.testing.assert_allclose(re + 1j * im, expected, atol=2e-14 * n**0.5)
            assert not np.take(im, [0] if n % 2 else [0, n // 2], axis).any()
        else:
            (out,), _ = run_one(REGISTRY["irfft"], Sample((x.real, x.imag), {"axis": axis, "n": n}), device)
            np.testing.assert_allclose(out, np.fft.irfft(x, n, axis, norm="forward"), atol=2e-14 * n**0.5)


# --- as users call it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 6, 7, 97, 4096])
@pytest.mark.parametrize(("kind", "dtype"), [(tg.vec2f, F32), (tg.vec2d, F64)])
def test_f01_transforms_on_the_cpu(n: int, kind: Any, dtype: Any, device: str) -> None:
    """Peer: silently did nothing on CPUs; some sizes had to be powers of two."""

    def transforms(x: tg.array2d[kind], y: tg.array2d[kind]) -> None:
        t = tg.tile_load(x, shape=(2, n))
        tg.tile_fft(t)
        tg.tile_store(y, t)

    x = np.stack([np.arange(1, n + 1), noise(n).real]).astype(dtype)
    y = np.zeros((2, n, 2), dtype)
    run(transforms, as_pairs(x, dtype), y, device=device)
    assert roundings(as_complex(y), np.fft.fft(x.astype(np.longdouble)), dtype) < 1.5
    if n == 4:
        assert as_complex(y)[0].tolist() == [10, -2 + 2j, -2, -2 - 2j]
    if n == 6:
        root = 3 * math.sqrt(3)
        expected = [21, -3 + root * 1j, -3 + root / 3 * 1j, -3, -3 - root / 3 * 1j, -3 - root * 1j]
        np.testing.assert_allclose(as_complex(y)[0], expected, rtol=4 * float(np.finfo(dtype).eps), atol=1e-6)


def round_trip(x: V2, y: V2) -> None:
    t = tg.tile_load(x, shape=(3, 10))
    tg.tile_fft(t)
    tg.tile_ifft(t)
    tg.tile_store(y, t)


def test_without_norm_both_directions_are_unscaled(device: str) -> None:
    x, y = as_pairs(noise(3, 10)), np.zeros((3, 10, 2))
    run(round_trip, x, y, device=device)
    np.testing.assert_allclose(y, 10 * x, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), (2, 1), (0, 1, 2)])
def test_norms_and_axes_as_in_numpy(norm: str, axis: Any, device: str) -> None:
    def transforms(x: tg.array3d[tg.vec2d], y: tg.array4d[tg.vec2d]) -> None:
        t = tg.tile_load(x, shape=(3, 4, 5))
        u = t.copy()
        tg.tile_fft(t, axis=axis, norm=norm)
        tg.tile_ifft(u, axis, norm)
        tg.tile_store(y[0], t)
        tg.tile_store(y[1], u)

    x, y = noise(3, 4, 5), np.zeros((2, 3, 4, 5, 2))
    run(transforms, as_pairs(x), y, device=device)
    axes = axis if isinstance(axis, tuple) else (axis,)
    np.testing.assert_allclose(as_complex(y[0]), np.fft.fftn(x, axes=axes, norm=norm), atol=1e-13)
    np.testing.assert_allclose(as_complex(y[1]), np.fft.ifftn(x, axes=axes, norm=norm), atol=1e-13)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("axis", [-1, 0, (1, 0), (2, 0, 1)])
def test_real_transforms_along_axes(norm: Any, axis: Any, device: str) -> None:
    axes = axis if isinstance(axis, tuple) else (axis,)
    shape = (4, 3, 5)
    half = tuple(n // 2 + 1 if k == axes[-1] % 3 else n for k, n in enumerate(shape))

    def transforms(x: tg.array3d[tg.float64], y: tg.array3d[tg.vec2d], z: tg.array3d[tg.float64]) -> None:
        s = tg.tile_rfft(tg.tile_load(x, shape=shape), axis=axis, norm=norm)
        tg.tile_store(y, s)
        tg.tile_store(z, tg.tile_irfft(s, n=shape[axes[-1]], axis=axis, norm=norm))

    x, y, z = noise(*shape).real, np.zeros((*half, 2)), np.zeros(shape)
    run(transforms, x, y, z, device=device)
    np.testing.assert_allclose(as_complex(y), np.fft.rfftn(x, axes=axes, norm=norm or "backward"), atol=1e-13)
    size = math.prod(shape[k] for k in axes)
    np.testing.assert_allclose(z, x if norm else size * x, atol=1e-12)


@pytest.mark.parametrize("n", [None, 1, 2, 5, 6, 7, 12])
def test_spectra_are_cut_or_filled_with_zeros(n: Any, device: str) -> None:
    size = n or 8

    def transforms(x: V1, y: tg.array1d[tg.float64]) -> None:
        tg.tile_store(y, tg.tile_irfft(tg.tile_load(x, shape=5), n, norm="backward"))

    x, y = noise(5), np.zeros(size)
    run(transforms, as_pairs(x), y, device=device)
    np.testing.assert_allclose(y, np.fft.irfft(x, n), atol=1e-14)


@pytest.mark.parametrize(("kind", "scalar"), [(tg.vec2h, tg.float16), (tg.vec2f, tg.float32)])
def test_smaller_floats_round_once(kind: Any, scalar: Any, device: str) -> None:
    def transforms(x: tg.array2d[kind], y: tg.array2d[kind], z: tg.array2d[kind]) -> None:
        t = tg.tile_load(x, shape=(4, 6))
        tg.tile_fft(t, axis=(0, 1), norm="ortho")
        tg.tile_store(y, t)
        tg.tile_store(z, tg.tile_rfft(tg.tile_ones(shape=(4, 6), dtype=scalar)))

    dtype = scalar.np
    x, y, z = as_pairs(noise(4, 6), dtype), np.zeros((4, 6, 2), dtype), np.zeros((4, 4, 2), dtype)
    run(transforms, x, y, z, device=device)
    exact = np.fft.fft2(as_complex(x.astype(F64)), norm="ortho")
    got = as_complex(y.astype(F64))
    ulp = np.finfo(dtype).eps * np.maximum(np.abs(exact), 0.25)
    assert (np.abs(got - exact) <= (0.75 if dtype == np.float16 else 4) * ulp).all()
    assert z[..., 0].tolist() == [[6, 0, 0, 0]] * 4 and not z[..., 1].any()


def test_through_views_and_names(device: str) -> None:
    def transforms(x: V2, y: V2) -> None:
        t = tg.tile_load(x, shape=(6, 8))
        name = t
        tg.tile_fft(t[1])
        tg.tile_fft(tg.tile_transpose(name)[2:4], norm="forward")
        tg.tile_ifft(t[4:, 4:])
        tg.tile_store(y, t)

    x, y = noise(6, 8), np.zeros((6, 8, 2))
    run(transforms, as_pairs(x), y, device=device)
    x[1] = np.fft.fft(x[1])
    x[:, 2:4] = np.fft.fft(x[:, 2:4], axis=0, norm="forward")
    x[4:, 4:] = np.fft.ifft(x[4:, 4:], norm="forward")
    np.testing.assert_allclose(as_complex(y), x, atol=1e-13)


def convolves(x: V1, h: V1, y: V1) -> None:
    a, b = tg.tile_load(x, shape=12), tg.tile_load(h, shape=12)
    tg.tile_fft(a)
    tg.tile_fft(b)
    c = tg.tile_zeros(shape=12, dtype=tg.vec2d)
    for k in range(12):
        p, q = a[k], b[k]
        c[k] = tg.vec2d(p[0] * q[0] - p[1] * q[1], p[0] * q[1] + p[1] * q[0])
    tg.tile_ifft(c, norm="backward")
    tg.tile_store(y, c)


def test_a_circular_convolution(device: str) -> None:
    x, h, y = noise(12), noise(12, seed=1), np.zeros((12, 2))
    run(convolves, as_pairs(x), as_pairs(h), y, device=device)
    expected = [sum(x[j] * h[(k - j) % 12] for j in range(12)) for k in range(12)]
    np.testing.assert_allclose(as_complex(y), expected, atol=1e-13)


def test_a_known_tone(device: str) -> None:
    def transforms(y: tg.array1d[tg.vec2d]) -> None:
        i = tg.tile_arange(45, dtype=tg.float64)
        tg.tile_store(y, tg.tile_rfft(tg.cos(i * (2.0 * math.pi * 7.0 / 45.0) + 0.5)))

    y = np.zeros((23, 2))
    run(transforms, y, device=device)
    expected = np.zeros(23, complex)
    expected[7] = 22.5 * cmath.exp(0.5j)
    np.testing.assert_allclose(as_complex(y), expected, atol=1e-12)


def blocks(x: V2, y: V2) -> None:
    i = tg.tid()
    t = tg.tile_load(x[i], shape=60)
    tg.tile_fft(t)
    tg.tile_store(y[i], t)


def test_the_same_bits_for_every_block_size_and_number_of_threads() -> None:
    x, results, threads = as_pairs(noise(16, 60)), [], tg.config.num_threads
    try:
        for block_dim, tg.config.num_threads in ((1, 1), (4, 2), (64, 4), (256, 1)):
            y = np.zeros((16, 60, 2))
            run(blocks, x, y, dim=16, device="cpu", block_dim=block_dim)
            results.append(y.tobytes())
    finally:
        tg.config.num_threads = threads
    assert len(set(results)) == 1


# --- gradients --------------------------------------------------------------------------------------------------------


def energy(x: V1, loss: tg.array1d[tg.float64]) -> None:
    t = tg.tile_load(x, shape=4)
    tg.tile_fft(t)
    total = tg.float64(0.0)
    for k in range(4):
        total += tg.dot(t[k], t[k])
    tg.atomic_add(loss, 0, total)


def test_f03_gradient_of_the_energy(device: str) -> None:
    """Peer: no transform on CPUs, so no gradient."""
    x = tg.array(as_pairs([1, 2, 3, 4]), dtype=tg.vec2d, requires_grad=True)
    loss = tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(tg.kernel(energy), dim=1, inputs=[x, loss], block_dim=4, device=device)
    tape.backward(loss)
    np.testing.assert_allclose(as_complex(x.grad.numpy()), [8, 16, 24, 32], atol=1e-13)


def one_bin(x: V1, loss: tg.array1d[tg.float64]) -> None:
    t = tg.tile_load(x, shape=5)
    tg.tile_fft(t)
    tg.atomic_add(loss, 0, t[1][0])


def test_c13_the_adjoint_goes_in_the_opposite_direction(device: str) -> None:
    """The gradient of Re(y[1]) is cos(2 pi j / 5) for the real and sin(2 pi j / 5) for the imaginary part.

    Peer: applied the same direction again, which gives -sin, the gradient with its indices reversed.
    """
    x = tg.array(as_pairs(noise(5)), dtype=tg.vec2d, requires_grad=True)
    loss = tg.zeros(1, dtype=tg.float64, requires_grad=True)
    with tg.Tape() as tape:
        tg.launch_tiled(tg.kernel(one_bin), dim=1, inputs=[x, loss], block_dim=4, device=device)
    tape.backward(loss)
    expected = [cmath.exp(2j * math.pi * j / 5) for j in range(5)]
    np.testing.assert_allclose(as_complex(x.grad.numpy()), expected, atol=1e-14)


def as_argument(x: Any, **grad: bool) -> Any:
    """An array of vec2d made of complex numbers, an array of float64 made of real ones; numbers stay."""
    if not isinstance(x, np.ndarray):
        return x
    pairs = x.dtype.kind == "c"
    return tg.array(as_pairs(x) if pairs else x, dtype=tg.vec2d if pairs else tg.float64, **grad)


def _like(x: Host) -> Host:
    z = noise(*x.shape, seed=4)
    return z if x.dtype.kind == "c" else z.real


def check(function: Callable[..., None], inputs: list[Any], outputs: list[Any], device: str) -> None:
    """Hold the gradients of a kernel against central differences along random directions."""
    kernel = tg.kernel(function)
    seeds = [as_argument(_like(o)) for o in outputs]
    moves = [_like(x) if isinstance(x, np.ndarray) else None for x in inputs]

    def loss(step: float) -> float:
        moved = [as_argument(x + step * m) if m is not None else x for x, m in zip(inputs, moves, strict=True)]
        results = [as_argument(o) for o in outputs]
        tg.launch_tiled(kernel, dim=1, inputs=[*moved, *results], block_dim=4, device=device)
        return float(sum(np.sum(r.numpy() * s.numpy()) for r, s in zip(results, seeds, strict=True)))

    args = [as_argument(x, requires_grad=True) for x in (*inputs, *outputs)]
    with tg.Tape() as tape:
        tg.launch_tiled(kernel, dim=1, inputs=args, block_dim=4, device=device)
    tape.backward(grads=dict(zip(args[len(inputs) :], seeds, strict=True)))
    slopes = [
        np.sum(a.grad.numpy() * as_argument(m).numpy()) for a, m in zip(args, moves, strict=False) if m is not None
    ]
    np.testing.assert_allclose(sum(slopes), (loss(1e-6) - loss(-1e-6)) / 2e-6, rtol=1e-6, atol=1e-6)


def test_c53_a_round_trip_and_a_convolution_have_gradients(device: str) -> None:
    """Peer: the macros took no arguments without its GPU library, so any use was an error of the C++ compiler."""
    check(round_trip, [noise(3, 10)], [np.zeros((3, 10), complex)], device)
    check(convolves, [noise(12), noise(12, seed=1)], [np.zeros(12, complex)], device)


@pytest.mark.parametrize("shape", [(8,), (7,), (6, 5), (5, 6), (3, 37)])
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_gradients_of_real_transforms(shape: tuple[int, ...], norm: Any, device: str) -> None:
    n = shape[-1]
    last = len(shape) - 1
    axis = tuple(range(len(shape)))
    half = (*shape[:-1], n // 2 + 1)
    one, two = (tg.array1d, tg.array2d)[last][tg.float64], (tg.array1d, tg.array2d)[last][tg.vec2d]

    def transforms(x: one, s: two, y: two, z: one) -> None:
        spectrum = tg.tile_rfft(tg.tile_load(x, shape=shape), axis=axis, norm=norm)
        tg.tile_store(y, spectrum)
        filtered = spectrum + tg.tile_load(s, shape=half)
        tg.tile_store(z, tg.tile_irfft(filtered, n=n, axis=axis, norm=norm))

    inputs = [noise(*shape).real, noise(*half, seed=2)]
    check(transforms, inputs, [np.zeros(half, complex), np.zeros(shape)], device)


def loops_and_branches(x: V2, n: int, y: V2) -> None:
    t = tg.tile_load(x, shape=(3, 9))
    for k in range(n):
        if k % 2 == 0:
            tg.tile_fft(t[k % 3], norm="ortho")
        else:
            tg.tile_ifft(t, axis=0, norm="ortho")
        t = tg.cw_mul(t, t)
    tg.tile_store(y, t)


def test_gradients_in_loops_and_branches(device: str) -> None:
    check(loops_and_branches, [noise(3, 9) / 2, 4], [np.zeros((3, 9), complex)], device)


def test_a_part_without_cotangent_counts_as_zero(device: str) -> None:
    def transforms(x: V1, y: tg.array1d[tg.float64]) -> None:
        t = tg.tile_load(x, shape=10)
        tg.tile_fft(t)
        for k in range(10):
            y[k] = t[k][1]

    check(transforms, [noise(10)], [np.zeros(10)], device)


# --- errors -----------------------------------------------------------------------------------------------------------

A1, A2 = tg.array1d[tg.float32], tg.array2d[tg.float32]


def real_tile(x: A2) -> None:
    t = tg.tile_load(x, shape=(4, 2))
    tg.tile_fft(t)


def int_tile(x: A2) -> None:
    tg.tile_ifft(tg.tile_ones(shape=4, dtype=int))


def no_tile(x: A2) -> None:
    tg.tile_fft(1.0)


def three_parts(x: A2) -> None:
    t = tg.tile_zeros(shape=4, dtype=tg.vec3)
    tg.tile_fft(t)


def whole_numbers(x: A2) -> None:
    t = tg.tile_zeros(shape=4, dtype=tg.vec2i)
    tg.tile_fft(t)


def complex_twice(x: A2) -> None:
    t = tg.tile_zeros(shape=4, dtype=tg.vec2)
    tg.tile_rfft(t)


def real_of_ints(x: A2) -> None:
    tg.tile_rfft(tg.tile_ones(shape=4, dtype=int))


def real_inverse(x: A2) -> None:
    tg.tile_irfft(tg.tile_load(x, shape=(4, 2)))


def no_such_axis(x: A2) -> None:
    t = tg.tile_zeros(shape=4, dtype=tg.vec2)
    tg.tile_fft(t, axis=1)


def axis_twice(x: A2) -> None:
    t = tg.tile_zeros(shape=(4, 4), dtype=tg.vec2)
    tg.tile_fft(t, axis=(0, -2))


def no_axis(x: A2) -> None:
    t = tg.tile_zeros(shape=(4, 4), dtype=tg.vec2)
    tg.tile_fft(t, axis=())


def wrong_norm(x: A2) -> None:
    t = tg.tile_zeros(shape=4, dtype=tg.vec2)
    tg.tile_fft(t, norm="unitary")


def no_length(x: A2) -> None:
    tg.tile_irfft(tg.tile_zeros(shape=4, dtype=tg.vec2), n=0)


def one_bin_only(x: A2) -> None:
    tg.tile_irfft(tg.tile_zeros(shape=1, dtype=tg.vec2))


@pytest.mark.parametrize(
    ("kernel", "kind", "words"),
    [
        (real_tile, TypeMismatch, ["vec2", "float32 tile (4, 2)", "tile_rfft"]),
        (int_tile, TypeMismatch, ["vec2", "int32 tile (4,)"]),
        (no_tile, TypeMismatch, ["vec2", "1.0"]),
        (three_parts, TypeMismatch, ["vec2", "vec3"]),
        (whole_numbers, TypeMismatch, ["vec2", "vec2i"]),
        (complex_twice, TypeMismatch, ["complex already", "tile_fft"]),
        (real_of_ints, TypeMismatch, ["int32 tile (4,)", "tile_astype"]),
        (real_inverse, TypeMismatch, ["vec2", "float32 tile (4, 2)"]),
        (no_such_axis, ShapeMismatch, ["axis 1", "1 dimensions"]),
        (axis_twice, ShapeMismatch, ["several different"]),
        (no_axis, ShapeMismatch, ["one axis"]),
        (wrong_norm, TypeMismatch, ["norm", "ortho", "unitary"]),
        (no_length, ShapeMismatch, ["positive", "0"]),
        (one_bin_only, ShapeMismatch, ["n=1", "n=2"]),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_errors(kernel: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as error:
        run(kernel, np.zeros((4, 2), F32), device="cpu")
    for word in words:
        assert word in str(error.value)
