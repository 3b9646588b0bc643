"""A program as text: what it may use, how it is read, and how it runs on a device.

A text defines types, functions, kernels, the specification `ARRAYS` of its arrays, and `program`, which takes the
arrays by name and launches, copies and fills. Does not judge what comes out (see `check`).
"""

from __future__ import annotations

import itertools
import linecache
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tilegrad
from tilegrad import ad
from tilegrad import dtypes as dt
from tilegrad import element_types as et
from tilegrad.ir import core
from tilegrad.kernel import Kernel, launch, launch_grid, launch_tiled
from tilegrad.runtime import arrays
from tilegrad.runtime.arrays import Array
from tilegrad.tape.memory import Host, Mirror, fields, is_float, require_host
from tilegrad.tape.records import launch_recorded

_numbers = itertools.count()


@dataclass(frozen=True)
class Spec:
    """How one array of a program is made."""

    shape: tuple[int, ...]
    kind: Any
    #: numbers of floats lie in [-1, 1), integers in [0, below)
    below: int = 4
    filled: bool = True


def real(*shape: int, kind: Any = dt.float64) -> Spec:
    """An array of random floats, or of vectors, structs, ... of them."""
    return Spec(shape, kind)


def whole(*shape: int, below: int = 4, kind: Any = dt.int32) -> Spec:
    """An array of random integers from 0 to below - 1."""
    return Spec(shape, kind, below)


def zeros(*shape: int, kind: Any = dt.float64) -> Spec:
    """An array of zeros."""
    return Spec(shape, kind, filled=False)


def make(name: str, spec: Spec, seed: int) -> Array:
    """The array of a specification; the same for every program that has it."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    made = arrays.zeros(spec.shape, dtype=spec.kind)
    for part in fields(require_host(made)) if spec.filled else []:
        fill(part, spec, rng)
    return made


def fill(part: Host, spec: Spec, rng: np.random.Generator) -> None:
    """Random contents for an array of scalars."""
    if is_float(part):
        part[...] = rng.uniform(-1, 1, part.shape)
        if isinstance(spec.kind, (et.QuaternionType, et.TransformType)):
            q = part[..., -4:]
            q /= np.linalg.norm(q.astype(np.float64), axis=-1, keepdims=True).astype(q.dtype)
    else:
        part[...] = rng.integers(0, spec.below, part.shape)


class Bench:
    """Runs what a program asks for: plainly on a device, or together with tangents."""

    def __init__(self) -> None:
        self.device = "cpu"
        #: the tangents of the arrays, while forward mode runs
        self.tangents: Mirror | None = None
        #: kernels of Tile IR that were launched
        self.launched: list[core.Kernel] = []
        self.noting = False

    def launch(self, kernel: Kernel, dim: Any, inputs: Sequence[Any], block_dim: int) -> None:
        self._launch(kernel, dim, inputs, block_dim, tiled=False)

    def launch_tiled(self, kernel: Kernel, dim: Any, inputs: Sequence[Any], block_dim: int) -> None:
        self._launch(kernel, dim, inputs, block_dim, tiled=True)

    def _launch(self, kernel: Kernel, dim: Any, inputs: Sequence[Any], block_dim: int, tiled: bool) -> None:
        if self.noting:
            self.launched.append(kernel.ir(*inputs, dim=dim, tiled=tiled, block_dim=block_dim))
        if self.tangents is not None:
            push(kernel, dim, inputs, block_dim, tiled, self.device, self.tangents)
            return
        run = launch_tiled if tiled else launch
        run(kernel, dim, inputs, block_dim=block_dim, device=self.device)

    def copy(self, dest: Array, src: Array) -> None:
        arrays.copy(dest, src)
        if self.tangents is not None:
            for a, b in zip(fields(require_host(dest)), fields(require_host(src)), strict=True):
                if is_float(a):
                    self.tangents.view(a)[...] = self.tangents.view(b)

    def fill(self, dest: Array, value: float) -> None:
        dest.fill_(value)
        if self.tangents is not None:
            self.tangents.view(require_host(dest))[...] = 0


def push(kernel: Kernel, dim: Any, args: Sequence[Any], lanes: int, tiled: bool, device: str, tangents: Mirror) -> None:
    """Launch a kernel with the tangents of its arrays."""
    grid = launch_grid(kernel, dim)
    found, natives, _ = kernel.specialise(args, grid, lanes, tiled)
    forward = tangent_kernel(found.ir_for(natives))
    passed = [natives[i] for i in found.passed]
    pairs = zip(passed, forward.tangent_params, strict=True)
    twins = [tangents.view(a) for a, twin in pairs if twin is not None]
    launch_recorded(forward.kernel, [*passed, *twins], grid, device)


@cache
def tangent_kernel(ir: core.Kernel) -> ad.Tangent:
    return ad.push_forward(ir)


@dataclass
class Program:
    """A text that has been read."""

    text: str
    body: Callable[..., None]
    specs: dict[str, Spec]
    bench: Bench

    def arrays(self, seed: int) -> dict[str, Array]:
        return {name: make(name, spec, seed) for name, spec in self.specs.items()}

    def run(self, made: dict[str, Array], device: str, tangents: Mirror | None = None) -> None:
        """Run on arrays, which it changes."""
        self.bench.device, self.bench.tangents = device, tangents
        try:
            with np.errstate(all="ignore"):
                self.body(**made)
        finally:
            self.bench.tangents = None


def read(text: str) -> Program:
    """Execute a text, which finds the package as `tg`, and what runs and specifies programs."""
    file = f"<random program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    bench = Bench()
    scope: dict[str, Any] = {
        "__name__": "random_program", "tg": tilegrad, "Any": Any, "np": np,
        "real": real, "whole": whole, "zeros": zeros,
        "launch": bench.launch, "launch_tiled": bench.launch_tiled, "copy": bench.copy, "fill": bench.fill,
    }  # fmt: skip
    exec(compile(text, file, "exec"), scope)
    return Program(text, scope["program"], scope["ARRAYS"], bench)


def forget(program: Program) -> None:
    """Let go of what only this program needs, so that many can run in one process."""
    tangent_kernel.cache_clear()
    linecache.cache.pop(program.body.__code__.co_filename, None)
