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

A leaf (memory that nothing on the tape writes) gets its gradient added to `.grad`; memory that is written has the
cotangent of its last version put there, which for an output is the seed. Seeds are never changed. Backward passes are
themselves recorded by tapes that are active while they run, so that they can be differentiated.
Does not know how a kernel is differentiated (see `ad`) or run (see `compiler`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from tilegrad import ad
from tilegrad.config import config
from tilegrad.diagnostics import GradientUndefined, LaunchError
from tilegrad.runtime.arrays import Array
from tilegrad.tape import explain, locate
from tilegrad.tape.explain import Explanation
from tilegrad.tape.memory import Host, Mirror, Span, fields, fingerprint, host, is_float, overlap, require_host, span
from tilegrad.tape.records import (
    ACTIVE,
    WATCHING,
    Add,
    Copy,
    Held,
    Launch,
    Record,
    add_recorded,
    clear_recorded,
    copy_recorded,
    differentiate,
    refuse,
    written_params,
)


class Tape:
    """Records launches inside a `with` block; see the module docstring.

    Arrays with `requires_grad`, and those given to `watch`, are what gradients are wanted for. Tapes may be nested;
    each records everything that happens while it is active.

    Example:
        >>> import numpy as np, tilegrad as tg
        >>> @tg.kernel
        ... def square(x: tg.array1d[float], y: tg.array1d[float]):
        ...     i = tg.tid()
        ...     y[i] = x[i] * x[i]
        >>> x = tg.array(np.array([1, 2, 3], np.float32), requires_grad=True)
        >>> y = tg.zeros(3, requires_grad=True)
        >>> with tg.Tape() as tape:
        ...     tg.launch(square, dim=3, inputs=[x, y])
        >>> tape.backward(grads={y: tg.ones(3)})
        >>> x.grad.numpy().tolist()
        [2.0, 4.0, 6.0]
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.records: list[Record] = []
        self._known: dict[int, Any] = {}  # id -> array object that took part
        self._sources: dict[Span, None] = {}  # memory whose contents depend on a watched array
        self._held: dict[tuple[Any, ...], Held] = {}
        self._spent = False
        self._made: dict[int, bytes] = {}
        self._found: Found | None = None
        WATCHING.discard(self)

    def __enter__(self) -> Self:
        ACTIVE.tapes.append(self)
        self._spent = False
        return self

    def __exit__(self, *_: object) -> None:
        del ACTIVE.tapes[len(ACTIVE.tapes) - 1 - ACTIVE.tapes[::-1].index(self)]

    def watch(self, array: Any) -> None:
        """Ask for the gradient of an array that has no `requires_grad`, for example a NumPy array."""
        self._known[id(array)] = array
        self._sources[span(require_host(array))] = None

    # recording

    def note(self, args: Iterable[Any]) -> None:
        """Remember the arrays that take part; those with `requires_grad` are watched."""
        for x in args:
            if isinstance(x, Array) and x.whole is not None:
                x = x.whole
            if isinstance(x, Array) and id(x) not in self._known:
                self._known[id(x)] = x
                if x.requires_grad:
                    self._sources[span(require_host(x))] = None

    def _depends(self, a: Host) -> bool:
        mine = span(a)
        return is_float(a) and (mine in self._sources or any(overlap(mine, s) for s in self._sources))

    def add_launch(self, launch: Launch, refused: bool) -> None:
        """Record a launch, if it touches anything that depends on a watched array."""
        self.note(launch.args)
        inputs = [(a := host(x)) is not None and self._depends(a) for x in launch.args]
        if not any(inputs):
            return
        kernel, outputs = launch.kernel, written_params(launch.kernel)
        wrt = tuple(d or (i in outputs and is_float(require_host(x)))
                    for i, (d, x) in enumerate(zip(inputs, launch.args, strict=True)))  # fmt: skip
        launch.backward = refuse(kernel) if refused else differentiate(kernel, wrt, config.saved_turns)
        if isinstance(launch.backward, ad.Backward):
            needed = [i for i, n in enumerate(launch.backward.needs_values) if n]
            launch.held = {i: self._hold(require_host(launch.args[i])) for i in needed}
        self.records.append(launch)
        self._sources.update(dict.fromkeys(span(a) for a in launch.written if is_float(a)))

    def add(self, record: Copy | Add) -> None:
        """Record a copy or addition, if it touches anything that depends on a watched array."""
        if any(self._depends(a) for a in record.arrays):
            self.records.append(record)
            self._sources[span(record.dest)] = None

    def _hold(self, a: Host) -> Held:
        key = (a.__array_interface__["data"][0], a.shape, a.strides, a.dtype)
        held = self._held.get(key)
        if held is None or not held.unchanged():
            held = self._held[key] = Held(a, self)
            WATCHING.add(self)
        return held

    def before_write(self, spans: Sequence[Span]) -> None:
        """Save what lies in this memory and is needed."""
        for key, held in list(self._held.items()):
            if any(overlap(held.span, s) for s in spans):
                if not self._spent:
                    held.save(self)
                held.current = False
                del self._held[key]
        if not self._held:
            WATCHING.discard(self)

    # backward

    def backward(
        self,
        loss: Any = None,
        grads: Mapping[Any, Any] | None = None,
        *,
        retain: bool = False,
        check_finite: bool | None = None,
    ) -> None:
        """Run the adjoints of everything recorded, and put the gradients into `.grad`.

        Args:
            loss: an array of one element, whose cotangent is 1.
            grads: array -> cotangent (an array of the same shape); never modified. Without `loss` and `grads`, the
                `.grad` of the outputs are the cotangents.
            retain: keep contents of arrays for another backward pass even if they are overwritten in between.
            check_finite: look at every cotangent on the way; `tilegrad.config.check_finite` unless given. Slow.

        Raises:
            GradientUndefined: a gradient on the way cannot be given exactly.
            GradientNotFinite: with `check_finite`, a cotangent is NaN or infinite: names the launch, the line and the
                element where that happens first. No `.grad` is changed then.
        """
        self._found = self.pull(self._seeds(loss, grads), check_finite)
        self._spent = not retain
        with self.paused():
            self._deliver()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not record what this tape does itself."""
        inside = [k for k, tape in enumerate(ACTIVE.tapes) if tape is self]
        for k in reversed(inside):
            del ACTIVE.tapes[k]
        try:
            yield
        finally:
            for k in inside:
                ACTIVE.tapes.insert(k, self)

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
        seeds += self._checked((grads or {}).items())
        return seeds if loss is not None or grads is not None else list(self._own_seeds())

    def _checked(self, seeds: Iterable[tuple[Any, Any]]) -> list[tuple[Host, Host]]:
        pairs = [(require_host(x), np.asarray(s if (h := host(s)) is None else h)) for x, s in seeds]
        for a, s in pairs:
            if s.shape not in (a.shape, ()):
                raise LaunchError(f"backward: an array of shape {a.shape} has a cotangent of shape {s.shape}")
        return [both for a, s in pairs for both in _fieldwise(a, s)]

    def _own_seeds(self) -> Iterator[tuple[Host, Host]]:
        """The `.grad` of outputs, and of other written arrays if users have put it there."""
        for x in self._known.values():
            grad = host(x.grad) if isinstance(x, Array) and x.grad is not None else None
            if grad is None or not any(g.any() for g in fields(grad)):
                continue
            last = self._last_use(require_host(x))
            if last == "written" or (last == "read after" and self._made.get(id(x)) != fingerprint(grad)):
                yield from _fieldwise(require_host(x), grad)

    def _last_use(self, a: Host) -> str:
        """Whether the last record with the array writes it, or reads what an earlier one has written."""
        mine, read = span(a), False
        for record in reversed(self.records):
            if any(overlap(mine, span(w)) for w in record.written):
                return "read after" if read else "written"
            read = read or any(overlap(mine, span(r)) for r in record.arrays)
        return "not written"

    def pull(self, seeds: Iterable[tuple[Host, Host]], check_finite: bool | None = None) -> Found:
        """Run all adjoints, without touching any `.grad`.

        Args:
            seeds: arrays, and the cotangents of their last versions.
            check_finite: as for `backward`.
        """
        seeds = list(seeds)
        checked = config.check_finite if check_finite is None else check_finite
        if checked:
            locate.require_finite_seeds(seeds)
        cts = Mirror([a for r in self.records for a in r.arrays] + [require_host(x) for x in self._known.values()]
                     + [a for a, _ in seeds])  # fmt: skip
        found = Found(cts, [require_host(x) for x in self._known.values()])
        with self.paused():
            for a, seed in seeds:
                add_recorded(cts.view(a), np.broadcast_to(seed, a.shape))
            for k, record in reversed(list(enumerate(self.records))):
                found.take_last(record)
                if checked:
                    locate.pull(self.records, k, cts)
                else:
                    record.pull(cts)
        return found

    def explain(self) -> Explanation:
        """What a backward pass over this tape costs: what is saved, computed again and copied; `print` it.

        Example:
            >>> import numpy as np, tilegrad as tg
            >>> @tg.kernel
            ... def square(x: tg.array1d[float], y: tg.array1d[float]):
            ...     i = tg.tid()
            ...     y[i] = x[i] * x[i]
            >>> x = tg.array(np.ones(3, np.float32), requires_grad=True)
            >>> with tg.Tape() as tape:
            ...     tg.launch(square, dim=3, inputs=[x, tg.zeros(3)])
            >>> tape.explain().saved_bytes
            12
        """
        return explain.explain(self.records)

    def vjp(self, seeds: Iterable[tuple[Any, Any]], arrays: Iterable[Any]) -> list[Host]:
        """The cotangents of what `arrays` held at first, for pairs (array, cotangent of what it holds at last)."""
        cts = self.pull(self._checked(seeds)).first
        found = []
        with self.paused():
            for a in map(require_host, arrays):
                found.append(np.zeros(a.shape, a.dtype))
                for mine, theirs in _fieldwise(a, found[-1]):
                    if cts.has(mine):
                        copy_recorded(theirs, cts.view(mine))
        return found

    def _deliver(self) -> None:
        """Put the gradients found into `.grad`: the same place once, however many views of it took part."""
        assert self._found is not None
        wanted = [x for x in self._known.values()
                  if isinstance(x, Array) and (x.requires_grad or x.grad is not None)]  # fmt: skip
        pairs = [(x, a, grad) for x in wanted for a, grad in _fieldwise(require_host(x), require_host(x.grad))]
        done = Mirror(grad for *_, grad in pairs)
        several = len(done.pieces) < len(pairs)
        for x, a, grad in pairs:
            if self._found.deliver(a, grad, done.view(grad) == 0 if several else True):
                self._made[id(x)] = fingerprint(require_host(x.grad))
            if several:
                done.view(grad)[...] = 1

    def gradient(self, array: Any) -> Host:
        """The cotangent that the last backward pass found for an array given to `watch` (or any `Array` on the tape).

        That of the last version where the tape writes the array, as in `.grad`.
        """
        if self._found is None:
            raise LaunchError("gradient: backward has not been called")
        a = require_host(array)
        whole = np.zeros(a.shape, a.dtype)
        for mine, grad in _fieldwise(a, whole):
            self._found.deliver(mine, grad, True)
        return whole

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


def _fieldwise(a: Host, other: Host) -> list[tuple[Host, Host]]:
    """An array of scalars with another of its shape; of structs, each member of floats with its counterpart."""
    if not a.dtype.names:
        return [(a, other)]
    return [(x, y) for x, y in zip(fields(a), fields(other), strict=True) if is_float(x)]


class Found:
    """What a backward pass has found: the cotangents of the first and of the last version of memory.

    The last version is kept for `wanted` memory only, cell by cell: `written` is 1 where the tape has written.
    """

    def __init__(self, first: Mirror, wanted: Sequence[Host]) -> None:
        self.first = first
        self.last = first.part(wanted)
        self.written = first.part(wanted)

    def take_last(self, record: Record) -> None:
        """Going back, `record` may be the last to write to some cells: their cotangents are complete now."""
        for a in record.written:
            if not is_float(a) or not self.written.covers(a):
                continue
            mask = self._mask(a)
            if mask is None:
                self.written.view(a)[...] = 1
                if self.first.has(a):
                    copy_recorded(self.last.view(a), self.first.view(a))
            elif not mask.all():
                _require_alone()
                self.last.view(a)[~mask] = self.first.view(a)[~mask]
                self.written.view(a)[...] = 1

    def _mask(self, a: Host) -> np.ndarray[Any, Any] | None:
        """Where the array has been written; None for nowhere."""
        if not self.written.has(a):
            return None
        mask: np.ndarray[Any, Any] = self.written.view(a) != 0
        return mask if mask.any() else None

    def deliver(self, a: Host, grad: Host, new: Any) -> bool:
        """Put the cotangent of an array into `grad`: that of its last version where it was written; else add it.

        Args:
            new: where nothing has been added yet.
        Returns: whether it was written.
        """
        mask = self._mask(a)
        if mask is not None and mask.all():
            copy_recorded(grad, self.last.view(a))
        elif mask is not None:
            _require_alone()
            grad[...] = np.where(mask, self.last.view(a), grad + np.where(new, self.first.view(a), 0))
        elif self.first.has(a):
            if not np.all(new):
                _require_alone()
            ct = self.first.view(a)
            add_recorded(grad, ct if np.all(new) else np.where(new, ct, 0))
        return mask is not None


def _require_alone() -> None:
    if ACTIVE.tapes:
        raise GradientUndefined("no second gradient: views of one array were written or watched separately")
