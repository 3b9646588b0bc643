"""What a program's run says: devices against each other, reverse mode against forward mode and against differences.

A `Verdict` is "agreed", "refused" (a GradientUndefined), "unjudged" (nothing can be said, and why), "invalid" (the
program does not compile, with an error meant for users), or "wrong". Does not write or shrink programs.
"""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tilegrad.diagnostics import (
    CompilerBug,
    GradientUndefined,
    KernelAssertionError,
    KernelIndexError,
    KernelValueError,
    KernelZeroDivisionError,
    TilegradError,
)
from tilegrad.fuzz import plain
from tilegrad.fuzz.program import Program, forget, read
from tilegrad.runtime.arrays import Array
from tilegrad.tape import Tape
from tilegrad.tape.memory import Host, Mirror, fields, is_float, require_host

DEVICES = ("interpret", "cpu")
#: errors that a launch raises because of what it computes
AT_LAUNCH = (KernelIndexError, KernelValueError, KernelZeroDivisionError, KernelAssertionError)
#: how far devices may be apart, relative to the largest number of an array or 1; roundings grow on their way
FORWARD = {"float64": 1e-9, "float32": 2e-3, "float16": 0.25, "bfloat16": 1.0}
#: how far apart gradients may be, relative to the sum of what contributes
BACKWARD = {"float64": 1e-8, "float32": 2e-2}
#: the same for float64 programs with random numbers, which are float32
BESIDE_FLOAT32 = 1e-4
#: numbers beyond these tell nothing
WILD = {"float64": 1e6, "float32": 1e3, "float16": 50.0, "bfloat16": 50.0}

#: seconds that a program may take
TIME_LIMIT = 60

Contents = dict[str, list[Host]]


@dataclass(frozen=True)
class Verdict:
    kind: str
    #: which check, or why it says nothing
    reason: str = ""
    detail: str = ""
    #: whether the program was also run as plain Python
    plain: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Failures with the same key are taken for the same fault."""
        return self.kind, self.reason

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}\n{self.detail}".rstrip()


class Stop(Exception):
    """Carries a verdict."""

    def __init__(self, kind: str, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.verdict = Verdict(kind, reason, detail)


def judge(text: str, seed: int = 0) -> tuple[Verdict, Program | None]:
    """Run a program in every way and compare."""
    try:
        program = read(text)
    except TilegradError as error:
        return _of_error(error, "reading"), None
    except Exception as error:
        return Verdict("invalid", f"reading: {type(error).__name__}", str(error)), None
    try:
        with in_time(TIME_LIMIT):
            return Judge(program, seed).verdict(), program
    except Stop as stop:
        return stop.verdict, program
    except TimeoutError:
        return Verdict("invalid", "takes too long"), program
    finally:
        forget(program)


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so many seconds of Python, where the system has such alarms."""

    def stop(*_: object) -> None:
        raise TimeoutError

    usable = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, stop) if usable else None
    if usable:
        signal.alarm(seconds)
    try:
        yield
    finally:
        if usable:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


def require(text: str, seed: int = 0) -> None:
    """Fail, as a test does, if anything is wrong with a program."""
    verdict, _ = judge(text, seed)
    assert verdict.kind == "agreed", str(verdict)


def _of_error(error: Exception, when: str) -> Verdict:
    name = type(error).__name__
    if isinstance(error, GradientUndefined):
        return Verdict("refused", when, str(error))
    if isinstance(error, TilegradError) and not isinstance(error, CompilerBug):
        return Verdict("invalid", f"{when}: {name}", str(error))
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename.rsplit('/', 1)[-1]}: {last.name}"
    return Verdict("wrong", f"{when}: {name} in {place}", "".join(traceback.format_exception(error)[-6:]))


def contents(made: dict[str, Array]) -> Contents:
    """Copies of what arrays hold."""
    return {name: [np.array(f) for f in fields(require_host(a))] for name, a in made.items()}


def floats(made: dict[str, Array]) -> dict[str, list[Host]]:
    """The memory of all floats."""
    return {name: [f for f in fields(require_host(a)) if is_float(f)] for name, a in made.items()}


@dataclass
class Judge:
    """One program with one seed."""

    program: Program
    seed: int

    def verdict(self) -> Verdict:
        self.has_float32 = bool(re.search(r"tg\.(rand|sample|tile_rand|poisson)", self.program.text))
        try:
            self.program.arrays(self.seed)
        except Exception as error:
            raise Stop("invalid", "arrays", str(error)) from None
        raised = self.check_forward()
        if raised:
            return Verdict("agreed", "raised", raised)
        return replace(self.check_gradients(), plain=self.check_plain())

    def check_gradients(self) -> Verdict:
        self.precision = self._precision()
        self.tolerance = BACKWARD.get(self.precision, 0.0)
        if self.has_float32:
            self.tolerance = max(self.tolerance, BESIDE_FLOAT32)
        if self.precision not in BACKWARD:
            return Verdict("agreed", "forward only")
        self.seeds = self._random(1)
        self.direction = self._random(2)
        gradients = {device: self.reverse(device) for device in DEVICES}
        self.check_devices(gradients)
        known = self.check_forward_mode(gradients)
        if self.precision == "float64":
            self.check_differences(gradients["cpu"])
        return Verdict("agreed", "" if known else "without forward mode")

    # forward

    def check_forward(self) -> str:
        """Compare devices; returns the name of the error if the program raises one everywhere."""
        ends = {}
        for device in DEVICES:
            made = self.program.arrays(self.seed)
            self.program.bench.noting = device == "interpret"
            ends[device] = self._run(made, device), contents(made)
            self.program.bench.noting = False
        first, second = (ends[d][0] for d in DEVICES)
        if first != second:
            raise Stop("wrong", f"forward: {first or 'nothing'} against {second or 'nothing'} raised")
        self.end = ends["interpret"][1]
        if not first:
            self._compare(ends["interpret"][1], ends["cpu"][1])
        return first

    def check_plain(self) -> bool:
        """Compare with plain Python, if the program means something there."""
        try:
            found = plain.run(self.program.text, self.seed)
        except plain.Unknown:
            return False
        except TimeoutError:
            raise
        except Exception as error:
            raise Stop("invalid", f"plain Python: {type(error).__name__}", str(error)) from None
        self._compare(self.end, {name: [a] for name, a in found.items()}, "plain")
        return True

    def _run(self, made: dict[str, Array], device: str) -> str:
        try:
            self.program.run(made, device)
        except AT_LAUNCH as error:
            return type(error).__name__
        except TimeoutError:
            raise
        except Exception as error:
            found = _of_error(error, f"forward on {device}")
            raise Stop(found.kind, found.reason, found.detail) from None
        return ""

    def _compare(self, expected: Contents, found: Contents, other: str = "cpu") -> None:
        for name, parts in expected.items():
            for a, b in zip(parts, found[name], strict=True):
                self._compare_arrays(name, a, b, other)

    def _compare_arrays(self, name: str, a: Host, b: Host, other: str) -> None:
        what = "forward" if other == "cpu" else "plain Python"
        if not is_float(a):
            if not np.array_equal(a, b):
                kind = name.split("_")[0].rstrip("0123456789")
                detail = f"{name}: interpreter {a.tolist()}\n{name}: {other} {b.tolist()}"
                raise Stop("wrong", f"{what}: integers in {kind}", detail)
            return
        x, y = a.astype(np.float64), b.astype(np.float64)
        allowed = max(FORWARD[a.dtype.name], FORWARD["float32"] if self.has_float32 else 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            largest = float(np.nanmax(np.abs(x), initial=0))
            if largest > WILD[a.dtype.name]:
                raise Stop("unjudged", "large numbers")
            scale = max(1.0, largest)
            same = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= allowed * scale)
        if not same.all():
            detail = f"{name}: interpreter {x.tolist()}\n{name}: {other} {y.tolist()}"
            raise Stop("wrong", f"{what}: floats", detail)

    # gradients

    def _precision(self) -> str:
        made = [f for parts in floats(self.program.arrays(self.seed)).values() for f in parts]
        if not made:
            return "none"
        if not all(np.isfinite(a.astype(np.float64)).all() for parts in self.end.values() for a in parts):
            raise Stop("unjudged", "numbers that are not finite")
        return str(max((a.dtype.name for a in made), key=lambda n: FORWARD[n]))

    def _random(self, key: int) -> Contents:
        """Random numbers for all floats of the program."""
        rng = np.random.default_rng([self.seed, key])
        made = floats(self.program.arrays(self.seed))
        return {
            name: [np.asarray(rng.standard_normal(a.shape), a.dtype) for a in parts] for name, parts in made.items()
        }

    def reverse(self, device: str) -> Contents:
        """The gradients of all floats, as they were before the program."""
        made = self.program.arrays(self.seed)
        whole = floats(made)
        try:
            with Tape() as tape:
                for a in made.values():
                    tape.watch(a)
                self.program.run(made, device)
            before = contents(made)
            kept = {name: [np.array(s) for s in parts] for name, parts in self.seeds.items()}
            pairs = [(a, s) for name in whole for a, s in zip(whole[name], self.seeds[name], strict=True)]
            flat = [a for parts in whole.values() for a in parts]
            found = iter(tape.vjp(pairs, flat))
        except TimeoutError:
            raise
        except Exception as error:
            stop = _of_error(error, f"gradient on {device}")
            raise Stop(stop.kind, stop.reason, stop.detail) from None
        gradients = {name: [next(found) for _ in parts] for name, parts in whole.items()}
        if any(not np.array_equal(a, b) for n in kept for a, b in zip(kept[n], self.seeds[n], strict=True)):
            raise Stop("wrong", f"gradient on {device}: seeds were changed")
        if any(
            not np.array_equal(a, b, equal_nan=True)
            for n in before
            for a, b in zip(before[n], contents(made)[n], strict=True)
        ):
            raise Stop("wrong", f"gradient on {device}: arrays were changed")
        return gradients

    def check_devices(self, gradients: dict[str, Contents]) -> None:
        for name, parts in gradients["interpret"].items():
            for a, b in zip(parts, gradients["cpu"][name], strict=True):
                if not (np.isfinite(a).all() and np.isfinite(b).all()):
                    raise Stop(
                        "wrong", "gradient: not finite", f"{name}: interpreter {a.tolist()}\n{name}: cpu {b.tolist()}"
                    )
                scale = max(1.0, float(np.abs(a).max(initial=0)))
                if scale > WILD[self.precision]:
                    raise Stop("unjudged", "steep")
                if not (np.abs(a - b) <= 10 * self.tolerance * scale).all():
                    raise Stop(
                        "wrong", "gradient: devices", f"{name}: interpreter {a.tolist()}\n{name}: cpu {b.tolist()}"
                    )

    def terms(self, a: Contents, b: Contents) -> Iterator[Host]:
        for name in a:
            for x, y in zip(a[name], b[name], strict=True):
                yield x.astype(np.float64) * y

    def along(self, a: Contents, b: Contents) -> tuple[float, float]:
        """The inner product of two sets of arrays, and the sum of the magnitudes of its terms."""
        terms = list(self.terms(a, b))
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)

    def check_forward_mode(self, gradients: dict[str, Contents]) -> bool:
        """Compare with reverse mode; returns whether there is a forward mode of the program."""
        device = DEVICES[self.seed % 4 == 3]  # mostly where nothing is compiled
        made = self.program.arrays(self.seed)
        whole = floats(made)
        tangents = Mirror([require_host(a) for a in made.values()])
        for name, parts in whole.items():
            for a, d in zip(parts, self.direction[name], strict=True):
                tangents.view(a)[...] = d
        try:
            self.program.run(made, device, tangents)
        except GradientUndefined:
            return False
        except TimeoutError:
            raise
        except Exception as error:
            stop = _of_error(error, f"forward mode on {device}")
            raise Stop(stop.kind, stop.reason, stop.detail) from None
        rates = {name: [np.array(tangents.view(a)) for a in parts] for name, parts in whole.items()}
        forward, size = self.along(rates, self.seeds)
        reverse, other = self.along(gradients[device], self.direction)
        if not abs(forward - reverse) <= self.tolerance * max(1.0, size, other):
            raise Stop("wrong", "gradient: forward mode", f"forward mode {forward!r}, reverse mode {reverse!r}")
        return True

    def check_differences(self, gradients: Contents) -> None:
        """Central differences with two steps; where they or the two sides are apart, nothing is said."""
        found, size = self.along(gradients, self.direction)
        self.base = self._loss(0.0)
        slopes = [self._slopes(h) for h in (1e-5, 2.5e-6)]
        exact = (16 * slopes[1][0] - slopes[0][0]) / 15
        scale = max(1.0, size * 0.1, abs(exact))
        if abs(found - exact) <= 1e-5 * scale:
            return
        detail = f"differences {exact!r}, reverse mode {found!r}"
        apart = max(abs(slopes[0][0] - slopes[1][0]), abs(slopes[1][1] - slopes[1][2]) * 0.1)
        if not np.isfinite(apart) or apart > 1e-5 * scale:
            raise Stop("unjudged", "differences of two steps are apart", detail)
        raise Stop("wrong", "gradient: differences", detail)

    def _slopes(self, h: float) -> tuple[float, float, float]:
        """The central difference, and those to both sides."""
        right, left = self._loss(h), self._loss(-h)
        return (right - left) / (2 * h), (right - self.base) / h, (self.base - left) / h

    def _loss(self, step: float) -> float:
        made = self.program.arrays(self.seed)
        whole = floats(made)
        for name, parts in whole.items():
            for a, d in zip(parts, self.direction[name], strict=True):
                a += step * d
        try:
            self.program.run(made, "cpu")
        except AT_LAUNCH:
            return float("nan")
        return self.along(floats(made), self.seeds)[0]
