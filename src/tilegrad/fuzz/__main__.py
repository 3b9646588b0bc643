"""`python -m tilegrad.fuzz N`: run N random programs and say what came out."""

from __future__ import annotations

import argparse
import sys

from tilegrad.fuzz.hunt import hunt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tilegrad.fuzz", description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--shrink", type=float, default=120, help="seconds to make a failing program small")
    parser.add_argument("--examples", action="store_true", help="show an example of each refusal and error")
    args = parser.parse_args()
    report = hunt(args.programs, args.seed, args.jobs, args.shrink, say=print)
    if args.examples:
        print(report.shown)
    print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
