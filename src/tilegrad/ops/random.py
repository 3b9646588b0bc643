"""Random numbers: states made by `rand_init`, numbers drawn from them one by one, and tiles of numbers.

A state is a uint32. Numbers drawn from it one by one are the words of a counter: the state moves on by the golden
ratio, and a permutation of the 32-bit words with good avalanche makes a random word of it (the idea of Steele, Lea and
Flood 2014, Fast splittable pseudorandom number generators; the permutation is `triple32` of C. Wellons' hash
prospector, 2018). So a state repeats after 2**32 draws. Element k of a random tile depends on the state and on k only,
so it is the same for every block_dim, device and thread count.

`randf(rng)` and its kin change their first argument: in a kernel the variable `rng` has the next state afterwards, as
in Warp. A function gets a copy of the state, like of any number: return it to go on with it. Outside of a kernel a
state is a uint32 array without dimensions (or with, for many states at once), which is changed in place.
The generator is made for simulation, not for secrets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilegrad import dtypes as dt
from tilegrad.composite import make_vector
from tilegrad.diagnostics import KernelValueError, TypeMismatch
from tilegrad.dtypes import DType
from tilegrad.emit import Emitter, Reg
from tilegrad.ir import builder as ir_builder
from tilegrad.ir.core import Value
from tilegrad.ir.types import ScalarType, is_varying
from tilegrad.op import Operand, constant, describe, lower, op, unwrap
from tilegrad.ops.algebra import to_host
from tilegrad.ops.arithmetic import add, mul, sub
from tilegrad.ops.bits import bit_and, bit_xor, rshift
from tilegrad.ops.cast import astype
from tilegrad.ops.comparison import ge, le, lt, where
from tilegrad.ops.construction import positions
from tilegrad.ops.control import build_while
from tilegrad.ops.debug import check
from tilegrad.ops.exponential import log
from tilegrad.ops.power import cbrt, sqrt
from tilegrad.ops.shapes import require_dtype, require_shape, require_storage
from tilegrad.ops.trigonometry import cos, sin

_WORDS = "random bits have no gradient"
#: by how much a state moves on: 2**32 over the golden ratio, odd
_STEP = np.uint32(0x9E3779B9)
#: what tells apart the words that are made of one seed, one offset, one element
_SEED, _OFFSET, *_SALTS = (np.uint32(x) for x in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822))
#: the permutation: shifts, each followed by a product with an odd number
_ROUNDS = ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB), (14, 1))


@op(elementwise=(dt.uint32,), no_gradient=_WORDS)
def random_word(x: Operand) -> Operand:
    """A permutation of the uint32 numbers in which each bit of `x` changes each bit of the result half of the time."""
    word = np.asarray(x, np.uint32)
    with np.errstate(over="ignore"):
        for shift, factor in _ROUNDS:
            word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
    return word[()]


@lower(random_word)
def _random_word_lower(e: Emitter, x: Reg) -> Reg:
    for shift, factor in _ROUNDS:
        x = e.xor(x, e.shr(x, e.const(shift, dt.uint32)))
        x = x if factor == 1 else e.mul(x, e.const(factor, dt.uint32))
    return x


@op(elementwise=(dt.uint32,), no_gradient=_WORDS)
def mul_high(x: Operand, y: Operand) -> Operand:
    """The upper half of the 64-bit product of two uint32 numbers."""
    product = np.asarray(x, np.uint64) * np.asarray(y, np.uint64)
    return (product >> np.uint64(32)).astype(np.uint32)[()]


@lower(mul_high)
def _mul_high_lower(e: Emitter, x: Reg, y: Reg) -> Reg:
    return e.mulhi(x, y)


# --- states -----------------------------------------------------------------------------------------------------------


def rand_init(seed: Any, offset: Any = None) -> Any:
    """The state of a random number generator.

    Args:
        seed: any integer; the same seed always gives the same numbers.
        offset: any integer, for many generators with one seed, for example the number of the thread. States of
            different offsets are different.

    Returns: a uint32, from which `randi`, `randf`, `randn`, ... draw, and tiles of random numbers are made.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def throw(seed: int, y: tg.array1d[int]):
        ...     i = tg.tid()
        ...     rng = tg.rand_init(seed, i)
        ...     y[i] = tg.randi(rng, 1, 7) + tg.randi(rng, 1, 7)
        >>> y = np.zeros(1000, np.int32)
        >>> tg.launch(throw, dim=1000, inputs=[42, y])
        >>> y.min() == 2, y.max() == 12, abs(y.mean() - 7) < 0.3
        (np.True_, np.True_, np.True_)
    """
    state = random_word(add(_word("rand_init", "seed", seed), _SEED))
    if offset is not None:
        state = random_word(bit_xor(state, random_word(add(_word("rand_init", "offset", offset), _OFFSET))))
    return state if _building() else np.array(state, np.uint32)


def _word(what: str, name: str, x: Any) -> Any:
    """An integer as 32 bits; the upper half of a 64-bit one counts too."""
    x = unwrap(x)
    if type(x) is int:
        low, high = np.uint32(x & 0xFFFFFFFF), np.uint32((x >> 32) & 0xFFFFFFFF)
        return low if -(2**31) <= x < 2**32 else low ^ random_word.body(high)
    dtype = _dtype(x)
    if dtype is None or not dtype.is_int:
        found = describe(x.type) if isinstance(x, Value) else repr(x)
        raise TypeMismatch(f"{what}: the {name} must be an integer, it is {found}", help="convert it with int(...)")
    if isinstance(x, Value) and not isinstance(x.type, ScalarType):
        raise TypeMismatch(f"{what}: the {name} must be an integer, it is {describe(x.type)}")
    low = astype(x, dtype=dt.uint32)
    if dtype.bits < 64:
        return low
    return bit_xor(low, random_word(astype(rshift(astype(x, dtype=dt.uint64), np.uint64(32)), dtype=dt.uint32)))


def _dtype(x: Any) -> DType | None:
    if isinstance(x, Value):
        return getattr(x.type, "dtype", None)
    return dt.as_dtype(x.dtype) if isinstance(x, (np.ndarray, np.generic)) else None


def _building() -> bool:
    return ir_builder.current() is not None


def _state(what: str, state: Any) -> Any:
    """A state, checked."""
    x = unwrap(state)
    if isinstance(x, int):
        raise TypeMismatch(
            f"{what}: the state is the number {x}", help=f"write rng = rand_init({x}) before, and {what}(rng)"
        )
    fits = isinstance(x.type, ScalarType) if isinstance(x, Value) else isinstance(x, np.ndarray)
    if _dtype(x) is not dt.uint32 or not fits:
        found = describe(x.type) if isinstance(x, Value) else repr(x)
        raise TypeMismatch(
            f"{what}: the state must be what rand_init returns (a uint32), it is {found}",
            help="write rng = rand_init(seed) before",
        )
    return x


# --- drawing one by one -----------------------------------------------------------------------------------------------

Draw = Callable[..., tuple[Any, Any]]
#: functions that return a value and what their first argument is to become
ADVANCING: set[Callable[..., Any]] = set()


def _advancing(draw: Draw) -> Callable[..., Any]:
    """A public function of the state: the front end rebinds the caller's variable, outside of kernels it is written."""

    @functools.wraps(draw)
    def call(state: Any, *args: Any, **named: Any) -> Any:
        value, after = draw(_state(draw.__name__, state), *args, **named)
        if _building():
            return value, after
        state[...] = after
        return value

    ADVANCING.add(call)
    return call


def _words(state: Any, count: int) -> tuple[list[Any], Any]:
    """The next random words, and the state after them."""
    words = []
    for _ in range(count):
        state = add(state, _STEP)
        words.append(random_word(state))
    return words, state


@_advancing
def randi(state: Any, min: Any = None, max: Any = None) -> tuple[Any, Any]:
    """A random int32: any, or one with min <= result < max. Changes `state`.

    Args:
        state: a variable that holds what `rand_init` returned.
        min, max: int32, both or none.

    Raises: KernelValueError unless min < max, at the launch if they are known only then; TypeMismatch if they are no
        int32. The chance of each number differs from that of another by less than (max - min) / 2**32 of it.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(3 <= tg.randi(rng, 3, 6) < 6)
        True
    """
    (word,), after = _words(state, 1)
    return _integer("randi", word, min, max, dt.int32), after


@_advancing
def randu(state: Any, min: Any = None, max: Any = None) -> tuple[Any, Any]:
    """A random uint32: any, or one with min <= result < max. Changes `state`. See `randi`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> tg.randu(rng).dtype
        dtype('uint32')
    """
    (word,), after = _words(state, 1)
    return _integer("randu", word, min, max, dt.uint32), after


@_advancing
def randf(state: Any, min: Any = None, max: Any = None) -> tuple[Any, Any]:
    """A random float32, uniform in [0, 1), or with min <= result < max. Changes `state`.

    Args:
        state: a variable that holds what `rand_init` returned.
        min, max: float32, both or none, with min < max and a finite max - min.

    Raises: KernelValueError unless min < max, if both are known at compile time.
    Gradient: with u the number in [0, 1), the result is min + (max - min) u, so 1 - u for `min` and u for `max`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> x, y = tg.randf(rng), tg.randf(rng)
        >>> bool(x != y)
        True
    """
    (word,), after = _words(state, 1)
    return _ranged("randf", _uniform([word], dt.float32), min, max), after


@_advancing
def randn(state: Any) -> tuple[Any, Any]:
    """A random float32 of the normal distribution with mean 0 and variance 1. Changes `state`.

    It is at most 6.8 in magnitude, since it is made of a uniform number of 32 bits.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7, np.arange(10000))
        >>> x = tg.randn(rng)
        >>> bool(abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05)
        True
    """
    words, after = _words(state, _normal_words(dt.float32))
    return _normal(words, dt.float32), after


@_advancing
def poisson(state: Any, lam: Any) -> tuple[Any, Any]:
    """A random uint32 of the Poisson distribution with mean `lam`. Changes `state`.

    Events with exponentially distributed distances are counted up to `lam`, so the time grows with `lam`.

    Args:
        state: a variable that holds what `rand_init` returned.
        lam: float32, from 0 to 1e6.

    Raises: KernelValueError at the launch for another `lam`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7, np.arange(10000))
        >>> bool(abs(tg.poisson(rng, 2.5).mean() - 2.5) < 0.1)
        True
    """
    mean = astype(_float_bound("poisson", lam, dt.float32), dtype=dt.float64)
    fits = bit_and(ge(mean, 0.0), le(mean, 1e6))
    check(fits, kind="value", message="poisson: lam must be from 0 to 1e6")
    mean = where(fits, mean, np.float64(0))  # the launch goes on to its end before it raises

    def distance(state: Any) -> tuple[Any, Any]:
        (word,), state = _words(state, 1)
        return mul(log(mul(add(astype(word, dtype=dt.float64), 0.5), 2.0**-32)), -1.0), state

    first, state = distance(state)
    if not _building():
        return _poisson_outside(mean, first, state, distance)

    def body(count: Any, at: Any, state: Any) -> list[Any]:
        more, state = distance(state)
        return [add(count, np.uint32(1)), add(at, more), state]

    start = [constant(0, dt.uint32), first, state]
    count, _, after = build_while(start, lambda count, at, state: lt(at, mean), body)
    return count, after


def _poisson_outside(mean: Any, at: Any, state: Any, distance: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """The same loop for NumPy numbers, or many at once."""
    count, at = np.zeros(np.shape(at), np.uint32), np.asarray(at)
    while np.any(going := at < mean):
        more, moved = distance(state)
        count, at = count + going.astype(np.uint32), np.where(going, at + more, at)
        state = np.where(going, moved, state)
    return count[()], state


def _require_both(what: str, low: Any, high: Any) -> None:
    if (low is None) != (high is None):
        raise TypeMismatch(f"{what}: give min and max, or neither of them")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not low < high:
        raise KernelValueError(f"{what}: max must be larger than min, they are {high} and {low}")


def _integer(what: str, word: Any, low: Any, high: Any, dtype: DType) -> Any:
    """A random word as an integer of `dtype`, in [low, high) if these are given."""
    _require_both(what, low, high)
    if low is None:
        return astype(word, dtype=dtype)
    bounds = [_bound(what, x, dtype) for x in (low, high)]
    if isinstance(low, int) and isinstance(high, int):
        span: Any = np.uint32(high - low)
    else:
        check(lt(*bounds), kind="value", message=f"{what}: max must be larger than min")
        span = astype(sub(bounds[1], bounds[0]), dtype=dt.uint32)
    return add(astype(mul_high(word, span), dtype=dtype), bounds[0])


def _bound(what: str, x: Any, dtype: DType) -> Any:
    """A bound as a value of `dtype`."""
    x = unwrap(x)
    if type(x) is int and dt.literal_fits(x, dtype):
        return dtype(x)
    if isinstance(x, float) or type(x) is int or _dtype(x) is not dtype:
        found = describe(x.type) if isinstance(x, Value) else repr(x)
        raise TypeMismatch(f"{what}: min and max must be {dtype}, one is {found}", help=f"write {dtype}(...)")
    return x


#: bits of a uniform number, by the dtype that holds it exactly
_BITS = {dt.bfloat16: 8, dt.float16: 11, dt.float32: 24}


def _uniform(words: list[Any], dtype: DType) -> Any:
    """A number in [0, 1), as many equally spaced ones as the dtype holds between 1/2 and 1."""
    if dtype is dt.float64:
        return mul(_bits53(words), 2.0**-53)
    bits = _BITS[dtype]
    return mul(astype(rshift(words[0], np.uint32(32 - bits)), dtype=dtype), 2.0**-bits)


def _bits53(words: list[Any]) -> Any:
    """53 random bits as a float64."""
    high = astype(rshift(words[0], np.uint32(5)), dtype=dt.float64)
    return add(mul(high, 2.0**26), astype(rshift(words[1], np.uint32(6)), dtype=dt.float64))


def _ranged(what: str, u: Any, low: Any, high: Any) -> Any:
    """The number of [0, 1) moved to [low, high)."""
    _require_both(what, low, high)
    if low is None:
        return u
    dtype = _dtype(unwrap(u)) or dt.float32
    low, high = (_float_bound(what, x, dtype) for x in (low, high))
    x = add(mul(u, sub(high, low)), low)
    return where(lt(x, high), x, low)


def _float_bound(what: str, x: Any, dtype: DType) -> Any:
    x = unwrap(x)
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return dtype(float(x))
    if _dtype(x) is not dtype:
        found = describe(x.type) if isinstance(x, Value) else repr(x)
        raise TypeMismatch(f"{what}: min and max must be {dtype}, one is {found}", help=f"write {dtype}(...)")
    return x


def _normal(words: list[Any], dtype: DType) -> Any:
    """A normally distributed number, from 2 words or from 3 for a float64.

    G. E. P. Box and M. E. Muller 1958, A note on the generation of random normal deviates: a radius and an angle.
    """
    wide = dtype is dt.float64
    kind = dt.float64 if wide else dt.float32
    size = mul(add(_bits53(words), 0.5), 2.0**-53) if wide else mul(add(astype(words[0], dtype=kind), 0.5), 2.0**-32)
    angle = mul(astype(words[-1], dtype=kind), 2.0 * math.pi * 2.0**-32)
    x = mul(sqrt(mul(log(size), -2.0)), cos(angle))
    return astype(x, dtype=dtype) if dtype.is_half else x


def _normal_words(dtype: DType) -> int:
    return 3 if dtype is dt.float64 else 2


# --- points of shapes -------------------------------------------------------------------------------------------------


def _turn(u: Any) -> tuple[Any, Any]:
    """The cosine and sine of a uniform number of whole turns."""
    angle = mul(u, 2.0 * math.pi)
    return cos(angle), sin(angle)


def _uniforms(state: Any, count: int) -> tuple[list[Any], Any]:
    words, after = _words(state, count)
    return [_uniform([word], dt.float32) for word in words], after


def _point(parts: list[Any]) -> Any:
    vector = make_vector(parts, dt.float32)
    return vector if _building() or any(np.ndim(x) for x in parts) else to_host(vector)


@_advancing
def sample_unit_ring(state: Any) -> tuple[Any, Any]:
    """A random vec2 of length 1, uniform on the circle. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> v = tg.sample_unit_ring(rng)
        >>> bool(abs(np.linalg.norm(v) - 1) < 1e-6)
        True
    """
    (u,), after = _uniforms(state, 1)
    return _point(list(_turn(u))), after


@_advancing
def sample_unit_disk(state: Any) -> tuple[Any, Any]:
    """A random vec2, uniform in the disk of radius 1. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(np.linalg.norm(tg.sample_unit_disk(rng)) <= 1)
        True
    """
    (u, v), after = _uniforms(state, 2)
    r = sqrt(u)
    return _point([mul(r, x) for x in _turn(v)]), after


@_advancing
def sample_unit_sphere_surface(state: Any) -> tuple[Any, Any]:
    """A random vec3 of length 1, uniform on the sphere. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(abs(np.linalg.norm(tg.sample_unit_sphere_surface(rng)) - 1) < 1e-6)
        True
    """
    (u, v), after = _uniforms(state, 2)
    return _point(_on_sphere(sub(mul(u, 2.0), 1.0), v)), after


@_advancing
def sample_unit_sphere(state: Any) -> tuple[Any, Any]:
    """A random vec3, uniform in the ball of radius 1. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(np.linalg.norm(tg.sample_unit_sphere(rng)) <= 1)
        True
    """
    (u, v, w), after = _uniforms(state, 3)
    return _point([mul(cbrt(w), x) for x in _on_sphere(sub(mul(u, 2.0), 1.0), v)]), after


@_advancing
def sample_unit_hemisphere_surface(state: Any) -> tuple[Any, Any]:
    """A random vec3 of length 1 with z >= 0, uniform on the hemisphere. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(tg.sample_unit_hemisphere_surface(rng)[2] >= 0)
        True
    """
    (u, v), after = _uniforms(state, 2)
    return _point(_on_sphere(u, v)), after


@_advancing
def sample_unit_hemisphere(state: Any) -> tuple[Any, Any]:
    """A random vec3 with z >= 0, uniform in the half ball of radius 1. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(tg.sample_unit_hemisphere(rng)[2] >= 0)
        True
    """
    (u, v, w), after = _uniforms(state, 3)
    return _point([mul(cbrt(w), x) for x in _on_sphere(u, v)]), after


def _on_sphere(z: Any, v: Any) -> list[Any]:
    """The point at height z of the sphere: equal heights have equal areas (Archimedes)."""
    r = sqrt(sub(1.0, mul(z, z)))
    c, s = _turn(v)
    return [mul(r, c), mul(r, s), z]


@_advancing
def sample_unit_square(state: Any) -> tuple[Any, Any]:
    """A random vec2, uniform in the square of side 1 around the origin. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(np.abs(tg.sample_unit_square(rng)).max() <= 0.5)
        True
    """
    numbers, after = _uniforms(state, 2)
    return _point([sub(u, 0.5) for u in numbers]), after


@_advancing
def sample_unit_cube(state: Any) -> tuple[Any, Any]:
    """A random vec3, uniform in the cube of side 1 around the origin. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(np.abs(tg.sample_unit_cube(rng)).max() <= 0.5)
        True
    """
    numbers, after = _uniforms(state, 3)
    return _point([sub(u, 0.5) for u in numbers]), after


@_advancing
def sample_triangle(state: Any) -> tuple[Any, Any]:
    """The first two barycentric coordinates of a random point, uniform in a triangle, as a vec2. Changes `state`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> rng = tg.rand_init(7)
        >>> bool(np.sum(tg.sample_triangle(rng)) <= 1)
        True
    """
    (u, v), after = _uniforms(state, 2)
    r = sqrt(u)
    return _point([sub(1.0, r), mul(v, r)]), after


# --- tiles ------------------------------------------------------------------------------------------------------------


def _tile_words(what: str, shape: Any, rng: Any, count: int, storage: str) -> list[Any]:
    """`count` random words for each element of a tile."""
    require_storage(what, storage)
    extents = require_shape(what, shape)
    state = _state(what, rng)
    if isinstance(state, Value) and is_varying(state.type):
        raise TypeMismatch(
            f"{what}: `rng` differs between the lanes; a tile is made of one state of the whole block",
            help="make it without the lane, for example rng = rand_init(seed, block), or draw one number in each lane: "
            "tile(randf(rng))",
        )
    if not isinstance(state, Value) and state.ndim:
        raise TypeMismatch(f"{what}: one state makes a tile; this is an array of {state.size}")
    place = astype(positions(extents), dtype=dt.uint32)
    return [random_word(bit_xor(random_word(add(place, salt)), state)) for salt in _SALTS[:count]]


def tile_randi(shape: Any, rng: Any, min: Any = None, max: Any = None, storage: str = "register") -> Any:
    """A tile of random int32: any, or with min <= element < max.

    Args:
        shape: extents, 1 to 8 positive compile-time ints (an int for a 1-D tile).
        rng: what `rand_init` returned, the same for the whole block. The call does not change it: a second tile of the
            same state has the same numbers. For other ones use another offset, or draw in between: `randi(rng)`.
        min, max: int32, both or none.
        storage: a hint, "register" or "shared"; it never changes a result.

    Raises: TypeMismatch if `rng` differs between lanes; KernelValueError unless min < max.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[int]):
        ...     rng = tg.rand_init(42, tg.tid())
        ...     tg.tile_store(y, tg.tile_randi(shape=100, rng=rng, min=-2, max=3))
        >>> y = np.zeros(100, np.int32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> sorted(set(y.tolist()))
        [-2, -1, 0, 1, 2]
    """
    (word,) = _tile_words("tile_randi", shape, rng, 1, storage)
    return _integer("tile_randi", word, min, max, dt.int32)


def tile_randf(
    shape: Any, rng: Any, min: Any = None, max: Any = None, storage: str = "register", dtype: Any = float
) -> Any:
    """A tile of random floats, uniform in [0, 1), or with min <= element < max.

    Args:
        dtype: a float type, float32 unless given.
        shape, rng, min, max, storage: see `tile_randi`; `min` and `max` are floats of the dtype.

    Raises: TypeMismatch if `rng` differs between lanes, or for another dtype; KernelValueError unless min < max.
    Gradient: as of `randf`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     rng = tg.rand_init(42, tg.tid())
        ...     tg.tile_store(y, tg.tile_randf(shape=1000, rng=rng, min=2.0, max=4.0))
        >>> y = np.zeros(1000, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> bool(y.min() >= 2 and y.max() < 4 and abs(y.mean() - 3) < 0.1)
        True
    """
    kind = _float_type("tile_randf", dtype)
    words = _tile_words("tile_randf", shape, rng, 2 if kind is dt.float64 else 1, storage)
    return _ranged("tile_randf", _uniform(words, kind), min, max)


def tile_randn(shape: Any, rng: Any, storage: str = "register", dtype: Any = float) -> Any:
    """A tile of random floats of the normal distribution with mean 0 and variance 1. See `tile_randf`.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def example(y: tg.array1d[float]):
        ...     rng = tg.rand_init(42, tg.tid())
        ...     tg.tile_store(y, tg.tile_randn(shape=1000, rng=rng))
        >>> y = np.zeros(1000, np.float32)
        >>> tg.launch_tiled(example, dim=1, inputs=[y])
        >>> bool(abs(y.mean()) < 0.1 and abs(y.std() - 1) < 0.1)
        True
    """
    kind = _float_type("tile_randn", dtype)
    return _normal(_tile_words("tile_randn", shape, rng, _normal_words(kind), storage), kind)


def _float_type(what: str, dtype: Any) -> DType:
    kind = require_dtype(what, dtype)
    if not kind.is_float:
        raise TypeMismatch(f"{what}: dtype must be a float type, it is {kind}", help="for integers write tile_randi")
    return kind


PUBLIC = {
    "rand_init": rand_init,
    "randi": randi,
    "randu": randu,
    "randf": randf,
    "randn": randn,
    "poisson": poisson,
    "sample_unit_ring": sample_unit_ring,
    "sample_unit_disk": sample_unit_disk,
    "sample_unit_sphere_surface": sample_unit_sphere_surface,
    "sample_unit_sphere": sample_unit_sphere,
    "sample_unit_hemisphere_surface": sample_unit_hemisphere_surface,
    "sample_unit_hemisphere": sample_unit_hemisphere,
    "sample_unit_square": sample_unit_square,
    "sample_unit_cube": sample_unit_cube,
    "sample_triangle": sample_triangle,
    "tile_randi": tile_randi,
    "tile_randf": tile_randf,
    "tile_randn": tile_randn,
}
