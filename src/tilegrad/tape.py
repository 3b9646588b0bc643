"""The tape: remembers launches and copies, and runs their adjoints in opposite order.

    with Tape() as tape:
        launch(kernel, dim=n, inputs=[x], outputs=[y])
    tape.backward(grads={y: dy})            # adds to x.grad

While a backward pass runs, every piece of memory on the tape has a mirror, zero at first, that holds the cotangent of
its present version; a view's mirror is a view of the mirror. The adjoint of a write takes the cotangent and clears it,
so overwritten results get none. What a launch reads is not copied when it is recorded: the contents are saved when
something is about to overwrite them (copy on write), once for all launches that read the same version. Writes that go
through tilegrad are seen, whether a tape is active or not. Writes by other means (a NumPy view) are not: arrays of up
to 64 KiB are therefore saved at once, of larger ones a sample is compared, and a change found there is an error.

A leaf (an array that nothing on the tape writes) gets its gradient added to `.grad`; an array that is written has the
cotangent of its last version put there, which for an output is the seed. Seeds are never changed. Backward passes are
themselves recorded by tapes that are active while they run, so that they can be differentiated.
Does not know how a kernel is differentiated (see `ad`) or run (see `compiler`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, Self

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tilegrad import ad, compiler
from tilegrad.ad import activity
from tilegrad.diagnostics import GradientUndefined, LaunchError, TypeMismatch
from tilegrad.ir.core import Kernel, Value
from tilegrad.ir.types import ScalarType
from tilegrad.runtime.arrays import Array, before_write, foreign

SMALL = 64 * 1024
SAMPLE = 1024

Host = np.ndarray[Any, Any]
Span = tuple[int, int]


def host(x: Any) -> Host | None:
    """The NumPy array behind an argument of a launch, or None for a scalar."""
    found = foreign(x)
    return found if isinstance(found, np.ndarray) else None


def require_host(x: Any) -> Host:
    """The NumPy array behind `x`, which must be an array."""
    found = host(x)
    if found is None:
        raise TypeMismatch(f"expected an array, found {type(x).__name__}")
    return found


def span(a: Host) -> Span:
    """The addresses [first, last) that an array's elements lie in."""
    low, high = byte_bounds(a)
    return (low, high) if a.size else (low, low)


def overlap(a: Span, b: Span) -> bool:
    """Whether two ranges of addresses have a byte in common."""
    return a[0] < b[1] and b[0] < a[1]


def is_float(a: Host) -> bool:
    return bool(a.dtype.kind == "f" or a.dtype.name == "bfloat16")


def fingerprint(a: Host) -> bytes:
    """All bytes of a small array, those of a sample of a large one: enough to notice nearly every change."""
    if a.nbytes <= SMALL:
        return a.tobytes()
    picks = np.linspace(0, a.size - 1, SAMPLE).astype(np.int64)
    return bytes(a.flat[picks].tobytes())


class Mirror:
    """Zeroed memory laid out like the memory of given arrays, made piece by piece when it is asked for."""

    def __init__(self, arrays: Iterable[Host]) -> None:
        self.pieces: list[Span] = []
        for low, high in sorted(span(a) for a in arrays):
            if self.pieces and low < self.pieces[-1][1]:
                self.pieces[-1] = self.pieces[-1][0], max(high, self.pieces[-1][1])
            elif high > low:
                self.pieces.append((low, high))
        self.buffers: dict[Span, tuple[Host, np.dtype[Any]]] = {}

    def _piece(self, a: Host) -> Span | None:
        mine = span(a)
        return next((p for p in self.pieces if overlap(p, mine)), None)

    def has(self, a: Host) -> bool:
        """Whether any of the array's piece has been asked for, so that it may differ from zero."""
        piece = self._piece(a)
        return piece is not None and piece in self.buffers

    def view(self, a: Host) -> Host:
        """The array that lies in the mirror where `a` lies in memory."""
        piece = self._piece(a)
        if piece is None:
            return np.zeros(a.shape, a.dtype)
        if piece not in self.buffers:
            self.buffers[piece] = _aligned_zeros(piece[1] - piece[0]), a.dtype
        buffer, dtype = self.buffers[piece]
        if dtype != a.dtype:
            raise GradientUndefined(f"no gradient: the same memory is used as {dtype} and as {a.dtype}")
        offset = a.__array_interface__["data"][0] - piece[0]
        return np.ndarray(a.shape, a.dtype, buffer=buffer, offset=offset, strides=a.strides)


def _aligned_zeros(size: int) -> Host:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size]


class Held:
    """The contents that an array had when a launch read them."""

    def __init__(self, array: Host) -> None:
        self.array = array
        self.saved: Host | None = None
        self.current = True  # nothing that we know of has written to the array since
        self.links: frozenset[int] = frozenset()
        self.sample = fingerprint(array)
        if array.nbytes <= SMALL:
            self.save()

    def unchanged(self) -> bool:
        return self.current and fingerprint(self.array) == self.sample

    def save(self) -> None:
        if self.saved is None:
            self.saved = np.empty(self.array.shape, self.array.dtype)
            self.links = frozenset(id(t) for t in _active.tapes)
            copy_recorded(self.saved, self.array)

    def contents(self) -> Host:
        """An array that holds the contents."""
        if self.unchanged():
            return self.array
        if self.saved is None:
            raise GradientUndefined(
                f"no gradient: an array of shape {self.array.shape} that a recorded launch read was overwritten"
                + ("" if self.current else " after the first backward pass"),
                help="call backward before reusing the array"
                if self.current
                else "for several backward passes call backward(retain=True)",
            )
        if not self.links.issuperset(id(t) for t in _active.tapes):
            raise GradientUndefined("no second gradient: an array was overwritten before the outer tape was entered")
        return self.saved


class Record(Protocol):
    """Something that happened while the tape was active."""

    @property
    def arrays(self) -> Sequence[Host]:
        """All arrays that took part."""

    @property
    def written(self) -> Sequence[Host]: ...

    def pull(self, cts: Mirror) -> None:
        """Move cotangents from what was written to what was read."""


@dataclass
class Launch:
    """A kernel's launch. `held[i]` are the contents that its backward kernel needs of argument i."""

    kernel: Kernel
    backward: ad.Backward | GradientUndefined
    args: tuple[Any, ...]
    grid: tuple[int, ...]
    device: str
    written: list[Host]
    held: dict[int, Held] = field(default_factory=dict)

    @property
    def arrays(self) -> list[Host]:
        return [a for x in self.args if (a := host(x)) is not None]

    def pull(self, cts: Mirror) -> None:
        if not any(cts.has(a) for a in self.written if is_float(a)):
            return
        if isinstance(self.backward, GradientUndefined):
            raise self.backward
        values = [a if (a := host(x)) is not None else x for x in self.args]
        for i, held in self.held.items():
            values[i] = held.contents()
        self._make_shadows(self.backward, values)
        grads = [cts.view(require_host(x)) for x, g in zip(self.args, self.backward.grad_params, strict=True)
                 if g is not None]  # fmt: skip
        launch_recorded(self.backward.kernel, [*values, *grads], self.grid, self.device)

    def _make_shadows(self, backward: ad.Backward, values: list[Any]) -> None:
        """Replace the arrays that the backward kernel writes by private copies, laid out as the originals were."""
        shadows = [i for i, s in enumerate(backward.shadow_params) if s]
        originals = {i: require_host(self.args[i]) for i in shadows}
        private = Mirror(originals.values())
        for i in shadows:
            view = private.view(originals[i])
            copy_recorded(view, values[i])
            values[i] = view


@dataclass
class Copy:
    """`dest[...] = source`, or with `source` None a write of values that depend on nothing."""

    dest: Host
    source: Host | None

    @property
    def arrays(self) -> list[Host]:
        return [self.dest] if self.source is None else [self.dest, self.source]

    @property
    def written(self) -> list[Host]:
        return [self.dest]

    def pull(self, cts: Mirror) -> None:
        if not cts.has(self.dest):
            return
        ct = cts.view(self.dest)
        if self.source is not None and is_float(self.source):
            taken = np.empty(ct.shape, ct.dtype)
            copy_recorded(taken, ct)
            clear_recorded(ct)
            add_recorded(cts.view(self.source), taken)
        else:
            clear_recorded(ct)


@dataclass
class Add:
    """`dest += source`."""

    dest: Host
    source: Host

    @property
    def arrays(self) -> list[Host]:
        return [self.dest, self.source]

    @property
    def written(self) -> list[Host]:
        return [self.dest]

    def pull(self, cts: Mirror) -> None:
        if cts.has(self.dest):
            add_recorded(cts.view(self.source), cts.view(self.dest))


# --- recording --------------------------------------------------------------------------------------------------------


class _Active(threading.local):
    def __init__(self) -> None:
        self.tapes: list[Tape] = []


_active = _Active()
_watching: weakref.WeakSet[Tape] = weakref.WeakSet()  # tapes that hold contents of arrays


class Recorder:
    """Tells all tapes of a launch; `active` gives it to whoever launches.

    One that does not `record` only has contents saved that the launch overwrites.
    """

    def __init__(self, record: bool) -> None:
        self.record = record

    def record_launch(self, kernel: Any, ir: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str) -> None:
        """Note that `ir` is about to run; contents that it overwrites are saved now.

        Args:
            kernel: what the user has launched; `enable_backward` false refuses gradients through it.
            ir: the Tile IR that will run.
            args: the arguments as the user gave them; None for one that the IR has no parameter for.
        """
        given = [x for x in args if x is not None]
        passed = tuple(_argument(x, p) for x, p in zip(given, ir.params, strict=True))
        written = [require_host(passed[i]) for i in _written_params(ir)]
        refused = not getattr(kernel, "enable_backward", True)
        for tape in list(_active.tapes) if self.record else ():
            tape._add_launch(ir, passed, grid, device, written, refused)
        _before_write(written)


_recorders = {True: (Recorder(True),), False: (Recorder(False),)}


def active(record: bool = True) -> Sequence[Recorder]:
    """Whom to tell of a launch: nobody, if no tape records or holds contents of arrays."""
    return _recorders[record] if _active.tapes or _watching else ()


def record_launch(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str = "cpu") -> None:
    """Tell all tapes that `kernel` is about to run."""
    for recorder in active():
        recorder.record_launch(None, kernel, args, grid, device)


def _argument(x: Any, p: Value) -> Any:
    """An argument as its IR parameter wants it: an array, or a NumPy number."""
    if isinstance(p.type, ScalarType):
        return p.type.dtype.np.type(x)
    return x if isinstance(x, Array | np.ndarray) else foreign(x)


def record_copy(dest: Any, source: Any) -> None:
    """Tell all tapes that the elements of `source` are about to be copied to `dest` (arrays of equal shape)."""
    _record(Copy(require_host(dest), require_host(source)), (dest, source))


def record_write(dest: Any) -> None:
    """Tell all tapes that `dest` is about to be filled with values that depend on no array."""
    _record(Copy(require_host(dest), None), (dest,))


def _record(record: Copy | Add, objects: Sequence[Any] = ()) -> None:
    for tape in list(_active.tapes):
        tape._note(objects)
        tape._add(record)
    _before_write(record.written)


def _before_write(arrays: Iterable[Host]) -> None:
    spans = [span(a) for a in arrays]
    for tape in list(_watching):
        tape._before_write(spans)


def launch_recorded(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str) -> None:
    record_launch(kernel, args, grid, device)
    compiler.execute(kernel, args, grid, device)


def copy_recorded(dest: Host, source: Host) -> None:
    _record(Copy(dest, source))
    dest[...] = source


def add_recorded(dest: Host, source: Host) -> None:
    """dest += source; elements of `dest` that are one in memory get the sum."""
    _record(Add(dest, source))
    repeated = tuple(k for k, (n, s) in enumerate(zip(dest.shape, dest.strides, strict=True)) if n > 1 and s == 0)
    if repeated:
        source = source.sum(axis=repeated, keepdims=True)
        dest = dest[tuple(slice(0, 1) if k in repeated else slice(None) for k in range(dest.ndim))]
    np.add(dest, source, out=dest, casting="same_kind")


def _array_written(dest: Array, source: Array | None) -> None:
    if _active.tapes or _watching:
        if source is None:
            record_write(dest)
        else:
            record_copy(dest, source)


before_write.append(_array_written)


def clear_recorded(dest: Host) -> None:
    _record(Copy(dest, None))
    dest[...] = 0


@cache
def _written_params(kernel: Kernel) -> tuple[int, ...]:
    uses = activity.memory_use(kernel)
    groups = {*uses.writes, *uses.atomics}
    return tuple(sorted({p for p in uses.roots.values() if uses.groups[p] in groups}))


@cache
def _differentiate(kernel: Kernel, wrt: tuple[bool, ...]) -> ad.Backward | GradientUndefined:
    try:
        return ad.differentiate(kernel, wrt)
    except GradientUndefined as error:
        return error


def _refuse(kernel: Kernel) -> GradientUndefined:
    return GradientUndefined(
        f"no gradient: the kernel `{kernel.name}` was made with enable_backward=False", loc=kernel.loc,
        help="leave enable_backward out",
    )  # fmt: skip


# --- the tape ---------------------------------------------------------------------------------------------------------


class Tape:
    """Records launches inside a `with` block; see the module docstring.

    Arrays with `requires_grad`, and those given to `watch`, are what gradients are wanted for. Tapes may be nested;
    each records everything that happens while it is active.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.records: list[Record] = []
        self._known: dict[int, Any] = {}  # id -> array object that took part
        self._sources: list[Span] = []  # memory whose contents depend on a watched array
        self._held: dict[tuple[Any, ...], Held] = {}
        self._spent = False
        self._made: dict[int, bytes] = {}
        self._cts: Mirror | None = None
        self._last: dict[int, Host] = {}
        _watching.discard(self)

    def __enter__(self) -> Self:
        _active.tapes.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        del _active.tapes[len(_active.tapes) - 1 - _active.tapes[::-1].index(self)]

    def watch(self, array: Any) -> None:
        """Ask for the gradient of an array that has no `requires_grad`, for example a NumPy array."""
        self._known[id(array)] = array
        self._sources.append(span(require_host(array)))

    # recording

    def _note(self, args: Iterable[Any]) -> None:
        for x in args:
            if isinstance(x, Array) and id(x) not in self._known:
                self._known[id(x)] = x
                if x.requires_grad:
                    self._sources.append(span(require_host(x)))

    def _depends(self, a: Host) -> bool:
        mine = span(a)
        return is_float(a) and any(overlap(mine, s) for s in self._sources)

    def _add_launch(
        self, kernel: Kernel, args: tuple[Any, ...], grid: tuple[int, ...], device: str, written: list[Host],
        refused: bool,
    ) -> None:  # fmt: skip
        self._note(args)
        inputs = [a is not None and self._depends(a) for a in map(host, args)]
        if not any(inputs):
            return
        outputs = set(_written_params(kernel))
        wrt = tuple(d or (i in outputs and (a := host(x)) is not None and is_float(a))
                    for i, (d, x) in enumerate(zip(inputs, args, strict=True)))  # fmt: skip
        backward = _refuse(kernel) if refused else _differentiate(kernel, wrt)
        record = Launch(kernel, backward, args, grid, device, written)
        if isinstance(backward, ad.Backward):
            for i, needed in enumerate(backward.needs_values):
                if needed:
                    record.held[i] = self._hold(require_host(args[i]))
        self.records.append(record)
        self._sources += [span(a) for a in written if is_float(a)]

    def _add(self, record: Copy | Add) -> None:
        if any(self._depends(a) for a in record.arrays):
            self.records.append(record)
            self._sources.append(span(record.dest))

    def _hold(self, a: Host) -> Held:
        key = (a.__array_interface__["data"][0], a.shape, a.strides, a.dtype)
        held = self._held.get(key)
        if held is None or not held.unchanged():
            held = self._held[key] = Held(a)
            _watching.add(self)
        return held

    def _before_write(self, spans: Sequence[Span]) -> None:
        for key, held in list(self._held.items()):
            mine = span(held.array)
            if any(overlap(mine, s) for s in spans):
                if not self._spent:
                    held.save()
                held.current = False
                del self._held[key]
        if not self._held:
            _watching.discard(self)

    # backward

    def backward(self, loss: Any = None, grads: Mapping[Any, Any] | None = None, *, retain: bool = False) -> None:
        """Run the adjoints of everything recorded, and put the gradients into `.grad`.

        Args:
            loss: an array of one element, whose cotangent is 1.
            grads: array -> cotangent (an array of the same shape); never modified. Without `loss` and `grads`, the
                `.grad` of the outputs are the cotangents.
            retain: keep contents of arrays for another backward pass even if they are overwritten in between.

        Raises:
            GradientUndefined: a gradient on the way cannot be given exactly.
        """
        self._cts, self._last = self.pull(self._seeds(loss, grads))
        self._spent = not retain
        with self._paused():
            self._deliver()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Do not record what this tape does itself."""
        inside = [k for k, tape in enumerate(_active.tapes) if tape is self]
        for k in reversed(inside):
            del _active.tapes[k]
        try:
            yield
        finally:
            for k in inside:
                _active.tapes.insert(k, self)

    def _seeds(self, loss: Any, grads: Mapping[Any, Any] | None) -> list[tuple[Host, Host]]:
        seeds: list[tuple[Host, Host]] = []
        if loss is not None:
            a = require_host(loss)
            if a.size != 1:
                raise LaunchError(
                    f"backward: the loss has shape {a.shape}, it must have one element",
                    help="reduce it to one element, or give cotangents: backward(grads={array: cotangent})",
                )
            seeds.append((a, np.ones(a.shape, a.dtype)))
        for x, seed in (grads or {}).items():
            a, s = require_host(x), np.asarray(seed if (h := host(seed)) is None else h)
            if s.shape not in (a.shape, ()):
                raise LaunchError(f"backward: an array of shape {a.shape} has a cotangent of shape {s.shape}")
            seeds.append((a, s))
        return seeds if loss is not None or grads is not None else list(self._own_seeds())

    def _own_seeds(self) -> Iterator[tuple[Host, Host]]:
        """The `.grad` of outputs, and of other written arrays if users have put it there."""
        for x in self._known.values():
            grad = host(x.grad) if isinstance(x, Array) and x.grad is not None else None
            if grad is None or not grad.any():
                continue
            last = self._last_use(require_host(x))
            if last == "written" or (last == "read after" and self._made.get(id(x)) != fingerprint(grad)):
                yield require_host(x), grad

    def _last_use(self, a: Host) -> str:
        """Whether the last record with the array writes it, or reads what an earlier one has written."""
        mine, read = span(a), False
        for record in reversed(self.records):
            if any(overlap(mine, span(w)) for w in record.written):
                return "read after" if read else "written"
            read = read or any(overlap(mine, span(r)) for r in record.arrays)
        return "not written"

    def pull(self, seeds: Iterable[tuple[Host, Host]]) -> tuple[Mirror, dict[int, Host]]:
        """Run all adjoints, without touching any `.grad`.

        Args:
            seeds: arrays, and the cotangents of their last versions.
        Returns: the cotangents of the first versions of all memory, and by `id` those of the last versions of arrays
            that the tape writes.
        """
        seeds = list(seeds)
        cts = Mirror([a for r in self.records for a in r.arrays] + [require_host(x) for x in self._known.values()]
                     + [a for a, _ in seeds])  # fmt: skip
        last: dict[int, Host] = {}
        with self._paused():
            for a, seed in seeds:
                add_recorded(cts.view(a), np.broadcast_to(seed, a.shape))
            for record in reversed(self.records):
                self._keep_last(record, cts, last)
                record.pull(cts)
        return cts, last

    def _keep_last(self, record: Record, cts: Mirror, last: dict[int, Host]) -> None:
        """Going back, `record` is the last to write: its arrays' cotangents are complete now, and taken next."""
        spans = [span(a) for a in record.written]
        for key, x in self._known.items():
            a = require_host(x)
            if key not in last and any(overlap(span(a), s) for s in spans) and is_float(a):
                last[key] = np.zeros(a.shape, a.dtype)
                if cts.has(a):
                    copy_recorded(last[key], cts.view(a))

    def _deliver(self) -> None:
        """Put the gradients found into `.grad`: the same place once, however many views of it took part."""
        assert self._cts is not None
        leaves: list[tuple[Host, Host]] = []
        for x in self._known.values():
            if not isinstance(x, Array) or not (x.requires_grad or x.grad is not None):
                continue
            grad, a = require_host(x.grad), require_host(x)
            if id(x) in self._last:
                copy_recorded(grad, self._last[id(x)])
                self._made[id(x)] = fingerprint(grad)
            elif self._cts.has(a):
                leaves.append((grad, self._cts.view(a)))
        done = Mirror(grad for grad, _ in leaves)
        several = len(done.pieces) < len(leaves)
        for grad, ct in leaves:
            add_recorded(grad, np.where(done.view(grad) == 0, ct, 0) if several else ct)
            if several:
                done.view(grad)[...] = 1

    def gradient(self, array: Any) -> Host:
        """The cotangent that the last backward pass found for an array given to `watch` (or any `Array` on the tape).

        That of the last version if the tape writes the array, as in `.grad`.
        """
        a = require_host(array)
        if self._cts is None:
            raise LaunchError("gradient: backward has not been called")
        found = self._last.get(id(array))
        return found if found is not None else self._cts.view(a).copy()

    @property
    def gradients(self) -> dict[Array, Array]:
        """The arrays of the tape that have a gradient, with their gradients."""
        return {x: x.grad for x in self._known.values() if isinstance(x, Array) and x.grad is not None}

    def zero(self) -> None:
        """Set the gradients of all arrays on the tape to zero."""
        for grad in self.gradients.values():
            clear_recorded(require_host(grad))
        self._made.clear()

    def reset(self) -> None:
        """Forget everything recorded, and set the gradients to zero."""
        self.zero()
        self._clear()
