"""Many random programs in several processes, steered by what all of them have used, and a report.

The programs depend on the seed and their number only, not on how many processes run them. A process that dies or
hangs counts as a fault of the program it was at. Does not judge programs (see `check`).
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tilegrad.config import config
from tilegrad.fuzz import grammar
from tilegrad.fuzz.check import TIME_LIMIT, Verdict, judge
from tilegrad.fuzz.coverage import CONSTRUCTS, Coverage
from tilegrad.fuzz.shrink import shrink
from tilegrad.op import REGISTRY
from tilegrad.ops.catalog import PUBLIC

#: programs that one process runs before its findings are used to steer the next
CHUNK = 25
#: chunks that know the same about what has been covered
ROUND = 4


@dataclass
class Failure:
    """A program for which something is wrong."""

    number: int
    seed: int
    text: str
    verdict: Verdict

    @property
    def test(self) -> str:
        """A test that fails as long as the fault is there."""
        name = f"test_program_{zlib.crc32(self.text.encode()):08x}"
        why = "\n".join(f"    # {line}" for line in str(self.verdict).split("\n")[:12])
        return f'def {name}() -> None:\n{why}\n    require("""\n{self.text.strip()}\n""", seed={self.seed})\n'


@dataclass
class Report:
    """What came out of many programs."""

    seed: int = 0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    #: one example for each way of being refused, unjudged or invalid
    examples: dict[tuple[str, ...], Failure] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    #: programs that agreed with plain Python too
    plain: int = 0

    def add(self, other: Report) -> None:
        self.verdicts.update(other.verdicts)
        self.failures += other.failures
        self.examples = other.examples | self.examples
        self.coverage.add(other.coverage)
        self.plain += other.plain

    def count(self, kind: str) -> int:
        return sum(n for (k, _), n in self.verdicts.items() if k == kind)

    @property
    def wrong(self) -> int:
        return self.count("wrong")

    @property
    def programs(self) -> int:
        return self.verdicts.total()

    def share(self, kind: str) -> float:
        return self.count(kind) / max(1, self.programs)

    def __str__(self) -> str:
        lines = [f"{self.programs} programs, seed {self.seed}"]
        for kind in ("agreed", "refused", "unjudged", "invalid", "wrong"):
            lines.append(f"  {kind:9} {self.count(kind):6}  {self.share(kind):7.2%}")
            reasons = sorted((-n, reason) for (k, reason), n in self.verdicts.items() if k == kind and reason)
            lines += [f"      {-n:6}  {reason}" for n, reason in reasons]
        lines.append(f"  {self.plain} agreed with plain Python too")
        missing, constructs = self.coverage.missing()
        lines.append(f"  {len(PUBLIC) - len(missing)} of {len(PUBLIC)} public operations{_but(missing)}")
        lines.append(
            f"  {len(CONSTRUCTS) - len(constructs)} of {len(CONSTRUCTS)} control-flow constructs{_but(constructs)}"
        )
        made = {name for name, _, _ in self.coverage.operations}
        lines.append(
            f"  {len(made)} of {len(REGISTRY)} IR operations, {len(self.coverage.operations)} with dtype and rank"
        )
        return "\n".join(lines)

    @property
    def shown(self) -> str:
        """An example of everything that is neither agreed nor wrong."""
        return "\n\n".join(f"--- program {f.number} is {f.verdict}" for f in self.examples.values())


def _but(missing: list[str]) -> str:
    return f", without {', '.join(missing)}" if missing else ""


def hunt(
    programs: int, seed: int = 0, jobs: int = 2, seconds: float = 120, say: Callable[[str], None] | None = None
) -> Report:
    """Run so many programs.

    Args:
        seed: other seeds, other programs.
        jobs: processes; 0 to use this one.
        seconds: how long to make a failing program smaller.
        say: is told of failures, and how far it is.
    """
    report = Report(seed)
    for start in range(0, programs, CHUNK * ROUND):
        firsts = range(start, min(programs, start + CHUNK * ROUND), CHUNK)
        chunks = [range(first, min(programs, first + CHUNK)) for first in firsts]
        steer = Coverage(templates=Counter(report.coverage.templates))
        run = _here(seed, chunks, steer) if jobs == 0 else _elsewhere(seed, chunks, steer, jobs)
        for found in run:
            report.add(found)
            for failure in found.failures:
                _tell(failure, seconds, report, say)
        if say and jobs:
            say(f"{report.programs} programs, {report.wrong} wrong")
    return report


def _tell(failure: Failure, seconds: float, report: Report, say: Callable[[str], None] | None) -> None:
    """Make a failing program small, the first ones of each kind of failure only."""
    alike = [f for f in report.failures if f.verdict.key == failure.verdict.key]
    if seconds > 0 and len(alike) <= 3 and failure.verdict.reason not in (DIED, HANGS):
        failure.text = shrink(failure.text, lambda t: judge(t, failure.seed)[0].key == failure.verdict.key, seconds)
    if say:
        say(failure.test)


def run_chunk(seed: int, numbers: range, seen: Coverage, before: Callable[[str], object] | None = None) -> Report:
    """The programs of some numbers, one after the other."""
    report = Report(seed)
    for k in numbers:
        text = grammar.program(np.random.default_rng([seed, k]), seen)
        if before:
            before(f"# {k}\n{text}")
        verdict, program = judge(text, k)
        report.verdicts[verdict.key] += 1
        report.plain += verdict.plain
        failure = Failure(k, k, text, verdict)
        if verdict.kind == "wrong":
            report.failures.append(failure)
        elif verdict.kind != "agreed":
            first = re.sub(r"`.*?`|\d+|\(.*?\)", "#", verdict.detail.split("\n")[0])
            report.examples.setdefault((*verdict.key, first), failure)
        seen.note_text(text)
        if program:
            seen.note_kernels(program.bench.launched)
    return report


def _new(seen: Coverage, known: Coverage) -> Coverage:
    """What was seen after something was known."""
    return Coverage(seen.templates - known.templates, seen.names, seen.constructs, seen.operations)


def _chunk(seed: int, numbers: range, steer: Coverage, before: Callable[[str], object] | None = None) -> Report:
    seen = Coverage(templates=Counter(steer.templates))
    report = run_chunk(seed, numbers, seen, before)
    report.coverage = _new(seen, steer)
    return report


def _here(seed: int, chunks: list[range], steer: Coverage) -> Iterator[Report]:
    for numbers in chunks:
        yield _chunk(seed, numbers, steer)


# --- processes -------------------------------------------------------------------------------------------------------

DIED, HANGS = "the process died", "the process hangs"


def _work(seed: int, numbers: range, steer: Coverage, place: str, to: Connection) -> None:
    config.cache = False
    config.num_threads = 2
    to.send(_chunk(seed, numbers, steer, Path(place).write_text))


def _elsewhere(seed: int, chunks: list[range], steer: Coverage, jobs: int) -> Iterator[Report]:
    """Each chunk in a process of its own, so many at a time; in order."""
    for first in range(0, len(chunks), jobs):
        started = [_Process(seed, numbers, steer) for numbers in chunks[first : first + jobs]]
        for process in started:
            yield from process.reports()


class _Process:
    """A process that runs a chunk; if it dies at a program, another one runs the rest."""

    def __init__(self, seed: int, numbers: range, steer: Coverage) -> None:
        self.seed, self.numbers, self.steer = seed, numbers, steer
        handle, self.place = tempfile.mkstemp(prefix="tilegrad-fuzz-", suffix=".py")
        os.close(handle)
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(seed, numbers, steer, self.place, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def reports(self) -> Iterator[Report]:
        hangs = not self.connection.poll(TIME_LIMIT * len(self.numbers))
        try:
            found = None if hangs else self.connection.recv()
        except EOFError:
            found = None
        if hangs:
            self.process.kill()
        self.process.join()
        text = Path(self.place).read_text()
        os.unlink(self.place)
        yield found if found is not None else self._dead(text, HANGS if hangs else DIED)

    def _dead(self, text: str, why: str) -> Report:
        verdict = Verdict("wrong", why)
        number, _, program = text.partition("\n")
        at = int(number.removeprefix("# "))
        return Report(self.seed, Counter({verdict.key: 1}), [Failure(at, at, program, verdict)])
