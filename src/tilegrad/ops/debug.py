"""Checks that may stop a launch with an error, and printing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import diagnostics as dg
from tilegrad import dtypes as dt
from tilegrad.diagnostics import TypeMismatch
from tilegrad.emit import Emitter, Reg
from tilegrad.ir.types import ScalarType
from tilegrad.op import Operand, Sample, Scalar, describe, infer, lower, op, samples

ERRORS: dict[str, type[dg.TilegradError]] = {
    "assertion": dg.KernelAssertionError,
    "value": dg.KernelValueError,
    "index": dg.KernelIndexError,
    "zero_division": dg.KernelZeroDivisionError,
}


@op(cls="scalar", effect="raise", no_gradient="it has no result")
def check(ok: Scalar, *values: Scalar, kind: str, message: str) -> None:
    """Unless `ok` holds (for every lane), the launch raises an error of this kind with this message."""
    if not np.all(ok):
        lane = int(np.argmin(ok)) if np.ndim(ok) else 0
        shown = [v[lane] if np.ndim(v) else v for v in values]
        raise ERRORS[kind](message.format(*shown) if values else message)


@infer(check)
def _check_infer(ok: ScalarType, *values: Any, kind: str, message: str) -> None:
    if ok.dtype.kind != "b":
        raise TypeMismatch(f"a condition must be bool, it is {describe(ok)}")


@lower(check)
def _check_lower(e: Emitter, ok: Reg, *values: Reg, kind: str, message: str) -> None:
    e.check(ok, kind, *values)


@samples(check)
def _check_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((dt.bool_(True),), {"kind": "value", "message": "never"})


@op(cls="scalar", effect="print", no_gradient="it has no result")
def print_(*values: Operand, template: str) -> None:
    """Print a line: `template.format(*values)`. Values of lanes print one line per lane, tiles as NumPy shows them."""
    sys.stdout.write(template.format(*values) + "\n")


@infer(print_)
def _print_infer(*values: Any, template: str) -> None:
    return None


@lower(print_)
def _print_lower(e: Emitter, *values: Any, template: str) -> None:
    raise NotImplementedError("the code generator writes to the print buffer")


@samples(print_)
def _print_samples(rng: np.random.Generator) -> Iterator[Sample]:
    return iter(())


PUBLIC: dict[str, Any] = {}
