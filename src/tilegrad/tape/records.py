"""What tapes record: launches, copies and writes, each with the way its cotangents go back; and who must be told.

Whatever changes an array through tilegrad comes by here, so that tapes can save contents that they still need. The
functions called `..._recorded` do something and record it; backward passes consist of them, so that an outer tape can
differentiate an inner one. Does not decide what is recorded or saved: each tape does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from tilegrad import ad, compiler
from tilegrad.ad import activity
from tilegrad.config import config
from tilegrad.diagnostics import GradientUndefined
from tilegrad.ir.core import Kernel, Value
from tilegrad.ir.types import ScalarType
from tilegrad.runtime.arrays import Array, before_write, foreign
from tilegrad.tape.memory import SMALL, Host, Mirror, Span, fields, fingerprint, host, is_float, require_host, span


class Listener(Protocol):
    """What a tape wants to be told."""

    def note(self, args: Iterable[Any]) -> None:
        """Objects that take part."""

    def add_launch(self, launch: Launch, refused: bool) -> None:
        """A launch that is about to happen."""

    def add(self, record: Copy | Add) -> None:
        """A copy, fill or addition that is about to happen."""

    def before_write(self, spans: Sequence[Span]) -> None:
        """Memory that is about to be overwritten."""

    def paused(self) -> AbstractContextManager[None]:
        """Within it, the tape records nothing."""


class _Active(threading.local):
    def __init__(self) -> None:
        self.tapes: list[Listener] = []


ACTIVE = _Active()
WATCHING: weakref.WeakSet[Listener] = weakref.WeakSet()  # tapes that hold contents of arrays


class Held:
    """The contents that an array had when a launch on `tape` read them.

    Keeps no reference to the tape: a tape that is no longer used must go at once, as each that holds contents is told
    of every write.
    """

    def __init__(self, array: Host, tape: Listener) -> None:
        self.array = array
        self.span = span(array)
        self.saved: Host | None = None
        self.current = True  # nothing that we know of has written to the array since
        self.links: frozenset[int] = frozenset()
        self.sample = fingerprint(array)
        if array.nbytes <= SMALL:
            self.save(tape)

    def unchanged(self) -> bool:
        """Whether the array still has the contents, as far as can be seen."""
        return self.current and fingerprint(self.array) == self.sample

    def save(self, tape: Listener) -> None:
        """Copy the contents, as they are about to be overwritten."""
        if self.saved is None:
            self.saved = np.empty(self.array.shape, self.array.dtype)
            with tape.paused():
                self.links = frozenset(map(id, ACTIVE.tapes))
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
        if not self.links.issuperset(map(id, ACTIVE.tapes)):
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
    args: tuple[Any, ...]
    grid: tuple[int, ...]
    device: str
    written: list[Host]
    backward: ad.Backward | GradientUndefined | None = None
    held: dict[int, Held] = field(default_factory=dict)

    @property
    def arrays(self) -> list[Host]:
        return [a for x in self.args if (a := host(x)) is not None]

    def pull(self, cts: Mirror) -> None:
        if any(cts.has(a) for a in self.written if is_float(a)):
            kernel, args = self.prepare(cts)
            launch_recorded(kernel, args, self.grid, self.device)

    def prepare(self, cts: Mirror) -> tuple[Kernel, list[Any]]:
        """The backward kernel and its arguments."""
        if isinstance(self.backward, GradientUndefined):
            raise self.backward.with_traceback(None)
        assert self.backward is not None
        values = [a if (a := host(x)) is not None else x for x in self.args]
        for i, held in self.held.items():
            values[i] = held.contents()
        self._make_shadows(self.backward, values)
        finals = self._finals(self.backward, values)
        grads = [cts.view(require_host(x)) for x, g in zip(self.args, self.backward.grad_params, strict=True)
                 if g is not None]  # fmt: skip
        return self.backward.kernel, [*values, *grads, *finals]

    def _make_shadows(self, backward: ad.Backward, values: list[Any]) -> None:
        """Replace the arrays that the backward kernel writes by private copies."""
        self._make_private([i for i, s in enumerate(backward.shadow_params) if s], values)

    def _finals(self, backward: ad.Backward, values: Sequence[Any]) -> list[Host]:
        """What the prelude leaves in some arrays, for `finals` with NaN where it has changed nothing."""
        if backward.prelude is None:
            return []
        args = list(values)
        self._make_private(written_params(backward.prelude), args)
        launch_recorded(backward.prelude, args, self.grid, self.device)
        changed = [final_contents(require_host(values[i]), require_host(args[i])) for i in backward.finals]
        return [*changed, *(require_host(args[i]) for i in backward.afters)]

    def _make_private(self, shadows: Sequence[int], values: list[Any]) -> None:
        """Replace arrays by private copies, laid out as the originals were."""
        originals = {i: require_host(self.args[i]) for i in shadows}
        private = Mirror(originals.values())
        for i in shadows:
            view = private.view(originals[i])
            copy_recorded(view, values[i])
            values[i] = view


def final_contents(before: Host, after: Host) -> Host:
    """The contents of an array after atomic minima or maxima, with NaN where they have changed nothing."""
    result = np.array(after)
    result[np.equal(before, after)] = np.nan
    return result


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


# --- telling the tapes ---


class Recorder:
    """Tells all tapes of a launch; `active` gives it to whoever launches.

    One that does not `record` only has contents saved that the launch overwrites.
    """

    def __init__(self, record: bool) -> None:
        self.record = record

    def record_launch(
        self,
        kernel: Any,
        ir: Kernel,
        args: Sequence[Any],
        grid: tuple[int, ...],
        device: str,
        objects: Sequence[Any] = (),
    ) -> None:
        """Note that `ir` is about to run; contents that it overwrites are saved now.

        Args:
            kernel: what the user has launched; `enable_backward` false refuses gradients through it.
            ir: the Tile IR that will run.
            args: the arguments, one for each parameter of the IR; None for one that it has no parameter for.
            objects: the arguments as the user gave them, if those were composite.
        """
        given = [x for x in args if x is not None]
        passed = tuple(_argument(x, p) for x, p in zip(given, ir.params, strict=True))
        written = [require_host(passed[i]) for i in written_params(ir)]
        refused = not getattr(kernel, "enable_backward", True)
        for tape in list(ACTIVE.tapes) if self.record else ():
            tape.note(objects)
            tape.add_launch(Launch(ir, passed, grid, device, written), refused)
        _before_write(written)


_recorders = {True: (Recorder(True),), False: (Recorder(False),)}


def active(record: bool = True) -> Sequence[Recorder]:
    """Whom to tell of a launch: nobody, if no tape records or holds contents of arrays."""
    return _recorders[record] if ACTIVE.tapes or WATCHING else ()


def note(objects: Sequence[Any]) -> None:
    """Tell all tapes of arrays, as the user has given them, that are about to take part."""
    for tape in ACTIVE.tapes:
        tape.note(objects)


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
    for part, other in zip(fields(require_host(dest)), fields(require_host(source)), strict=True):
        _record(Copy(part, other), (dest, source))


def record_write(dest: Any) -> None:
    """Tell all tapes that `dest` is about to be filled with values that depend on no array."""
    for part in fields(require_host(dest)):
        _record(Copy(part, None), (dest,))


def _record(record: Copy | Add, objects: Sequence[Any] = ()) -> None:
    for tape in list(ACTIVE.tapes):
        tape.note(objects)
        tape.add(record)
    _before_write(record.written)


def _before_write(arrays: Iterable[Host]) -> None:
    spans = [span(a) for a in arrays]
    for tape in list(WATCHING):
        tape.before_write(spans)


@contextmanager
def unseen() -> Iterator[None]:
    """Within it, no tape is told of what happens."""
    outer, ACTIVE.tapes = ACTIVE.tapes, []
    try:
        yield
    finally:
        ACTIVE.tapes = outer


def launch_recorded(kernel: Kernel, args: Sequence[Any], grid: tuple[int, ...], device: str) -> None:
    """Run a kernel, and record it."""
    record_launch(kernel, args, grid, device)
    compiler.execute(kernel, args, grid, device)


def copy_recorded(dest: Host, source: Host) -> None:
    """dest[...] = source"""
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
    if ACTIVE.tapes or WATCHING:
        objects = [x if x.base is None else x.base for x in (dest, source) if x is not None]
        parts = fields(dest.data)
        sources = [None] * len(parts) if source is None else fields(source.data)
        for part, other in zip(parts, sources, strict=True):
            _record(Copy(part, other), objects)


before_write.append(_array_written)


def clear_recorded(dest: Host) -> None:
    """dest[...] = 0"""
    _record(Copy(dest, None))
    dest[...] = 0


@cache
def written_params(kernel: Kernel) -> tuple[int, ...]:
    """The parameters whose memory the kernel changes."""
    uses = activity.memory_use(kernel)
    groups = {*uses.writes, *uses.atomics}
    return tuple(sorted({p for p in uses.roots.values() if uses.groups[p] in groups}))


@cache
def differentiate(kernel: Kernel, wrt: tuple[bool, ...], saved_turns: int) -> ad.Backward | GradientUndefined:
    """The backward kernel, or why there is none."""
    try:
        return ad.differentiate(kernel, wrt, saved_turns)
    except GradientUndefined as error:
        return error


def refuse(kernel: Kernel) -> GradientUndefined:
    """Why a kernel that was made without a backward pass has no gradient."""
    if not config.enable_backward:
        return GradientUndefined(
            f"no gradient: the kernel `{kernel.name}` was launched while config.enable_backward was False",
            loc=kernel.loc, help="set tilegrad.config.enable_backward = True before the launch",
        )  # fmt: skip
    return GradientUndefined(
        f"no gradient: the kernel `{kernel.name}` was made with enable_backward=False", loc=kernel.loc,
        help="leave enable_backward out",
    )  # fmt: skip
