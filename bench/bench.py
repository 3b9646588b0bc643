"""Times tile kernels beside the peers that are installed, in one process, and prints ratios.

    python bench/bench.py [WORKLOAD ...] [--rounds N] [--json FILE]

A ratio is peer seconds / tilegrad seconds: above 1 tilegrad is faster. Every contender runs once in each round, and
the minimum over the rounds counts, since machines are noisy. Every answer is checked before it is timed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import peers
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, Workload

import tilegrad


def check(w: Workload) -> dict[str, str]:
    """Run every contender once; what is wrong with those that are wrong."""
    wrong = {}
    largest = float(np.abs(w.expected).max())
    for name, run in w.contenders.items():
        try:
            got = run()
            error = float(np.abs(np.asarray(got.numpy() if hasattr(got, "numpy") else got) - w.expected).max())
        except Exception as failure:  # a peer that fails is reported, it does not end the race
            wrong[name] = f"{type(failure).__name__}: {failure}".splitlines()[0]
            continue
        if not error <= w.tolerance * largest:
            wrong[name] = f"wrong by {error:.2g}"
    return wrong


def race(w: Workload, rounds: int) -> tuple[dict[str, float], dict[str, str]]:
    """The best seconds of every contender that gives the right answer, and what is wrong with the others."""
    wrong = check(w)
    running = {name: run for name, run in w.contenders.items() if name not in wrong}
    best = dict.fromkeys(running, float("inf"))
    for _ in range(rounds):
        for name, run in running.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=7, help="how often every contender runs (7)")
    parser.add_argument("--json", type=Path, help="write the seconds to a file")
    options = parser.parse_args()
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    console = Console()
    present = peers.found()
    named = ", ".join(f"{name} {version}" for name, version in present.items())
    console.print(f"tilegrad {tilegrad.__version__} on {peers.CORES} cores beside {named}")
    missing = [name for name in peers.NAMES if name not in present]
    if missing:
        console.print(f"not installed, so not compared: {', '.join(missing)}")
    seconds, failures = {}, {}
    for name in options.workloads or WORKLOADS:
        with console.status(name):
            seconds[name], failures[name] = race(w := WORKLOADS[name](), options.rounds)
        report(console, name, w, seconds[name], failures[name])
    summary(console, seconds)
    if options.json:
        options.json.write_text(json.dumps(seconds, indent=1) + "\n")
    return int(any("tilegrad" in f for f in failures.values()))


def report(console: Console, name: str, w: Workload, best: dict[str, float], wrong: dict[str, str]) -> None:
    for contender, t in sorted(best.items(), key=lambda item: item[1]):
        console.print(f"{name:12} {contender:9} {t * 1e3:10.3f} ms {w.work / t / 1e9:12.1f} {w.unit}", highlight=False)
    for contender, problem in wrong.items():
        console.print(f"{name:12} {contender:9} [red]{problem}[/red]", highlight=False)


def summary(console: Console, seconds: dict[str, dict[str, float]]) -> None:
    """The table of ratios, peer / tilegrad."""
    columns = [p for p in peers.NAMES if any(p in best for best in seconds.values())]
    table = Table("peer / tilegrad", *columns, "best peer", caption="above 1: tilegrad is faster")
    for name, best in seconds.items():
        ours = best.get("tilegrad")
        ratios = {p: best[p] / ours for p in columns if p in best} if ours else {}
        cells = [f"{ratios[p]:.2f}" if p in ratios else "" for p in columns]
        table.add_row(name, *cells, f"{min(ratios.values()):.2f}" if ratios else "")
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
