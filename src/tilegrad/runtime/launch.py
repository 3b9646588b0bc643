"""Runs compiled kernels: packs the arguments, hands out the blocks, and brings errors and prints back to Python.

The thread context that a kernel gets (see `codegen.kernel`) holds, at byte offsets: 0 scratch pointer, 8 scratch
bytes, 16 error record (i64[16]: site or 0, block, values), 24 ticket (i64: blocks whose atomic updates are done),
32 print buffer and 40 stack area (each record {data, used, capacity}). Does not know how a kernel was made.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilegrad import diagnostics as dg
from tilegrad.config import config
from tilegrad.dtypes import DType
from tilegrad.runtime.pool import POOLED, Pool

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_ERRORS: dict[str, type[dg.TilegradError]] = {
    "index": dg.KernelIndexError,
    "zero_division": dg.KernelZeroDivisionError,
    "assertion": dg.KernelAssertionError,
    "value": dg.KernelValueError,
}


@dataclass(eq=False)
class CompiledKernel:
    """A native kernel and what is needed to run it. `sites[i - 1]` tells what site number i raises or prints."""

    name: str
    address: int
    scratch_bytes: int
    stack_count: int
    ordered: bool
    prints: bool
    sites: Sequence[Any]
    tiled: bool
    block_dim: int
    function: Callable[..., None] = field(init=False)
    #: as last measured; the first launch is expected to be worth sharing
    seconds_per_block: float = 1.0

    def __post_init__(self) -> None:
        self.function = _ENTRY(self.address)


class Context:
    """The memory that a thread lends to the kernels it runs."""

    def __init__(self, ticket: Any = None) -> None:
        self.words = (ctypes.c_int64 * 8)()
        self.error = (ctypes.c_int64 * 16)()
        self.ticket = ticket if ticket is not None else ctypes.c_int64()
        self.printed = (ctypes.c_int64 * 3)()
        self.stacks = (ctypes.c_int64 * 3)()
        self.scratch = np.empty(0, np.uint8)
        self.words[2] = ctypes.addressof(self.error)
        self.words[3] = ctypes.addressof(self.ticket)
        self.words[4] = ctypes.addressof(self.printed)
        self.words[5] = ctypes.addressof(self.stacks)
        self.address = ctypes.addressof(self.words)

    def prepare(self, kernel: CompiledKernel) -> None:
        """Make room for what the kernel needs."""
        if self.words[1] < kernel.scratch_bytes:
            self.scratch = np.empty(kernel.scratch_bytes + 192, np.uint8)
            self.words[0] = (self.scratch.ctypes.data + 63) & ~63
            self.words[1] = kernel.scratch_bytes
        if len(self.stacks) < 3 * kernel.stack_count:
            self.stacks = (ctypes.c_int64 * (3 * kernel.stack_count))(*self.stacks)
            self.words[5] = ctypes.addressof(self.stacks)
        self.error[0] = 0


class _Own(threading.local):
    """The context of a thread that runs a launch alone."""

    def __init__(self) -> None:
        self.context = Context()


_own = _Own()


class _Team:
    """The pool and the contexts of its threads, made when a launch first wants it; one launch at a time has it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the threads: another number of them is wanted, or this is a forked child that has none."""
        self.lock = threading.Lock()
        self.pool: Pool | None = None
        self.contexts: list[Context] = []
        self.size = 0

    def start(self, size: int) -> Pool:
        """The pool with `size` threads, the caller's included. The lock must be held."""
        if self.pool is None or self.size != size:
            if self.pool is not None:
                self.pool.stop()
            ticket = ctypes.c_int64()
            self.contexts = [Context(ticket) for _ in range(size)]
            self.pool = Pool([c.address for c in self.contexts])
            self.size = size
        return self.pool


_team = _Team()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_team.reset)

#: Work (in seconds, as measured) below which waking the other threads costs more than it saves.
WORTH_SHARING = 20e-6
#: Chunks of blocks per thread: enough to even out blocks of different length.
CHUNKS = 8


def launch(kernel: CompiledKernel, args: Sequence[Any], grid: tuple[int, ...]) -> None:
    """Run all blocks of a launch. `args` are NumPy arrays, objects with a NumPy array in `data`, and scalars."""
    words = pack(args)
    total = 1
    for extent in grid:
        total *= extent
    if total <= 0:
        return
    packed_grid = (ctypes.c_int64 * 8)(*grid, *([1] * (4 - len(grid))), total)
    blocks = total if kernel.tiled else -(-total // kernel.block_dim)
    threads = config.num_threads if POOLED else 1
    worth = threads > 1 and blocks > 1 and blocks * kernel.seconds_per_block > WORTH_SHARING and not kernel.prints
    if worth and _team.lock.acquire(blocking=False):
        try:
            _run_together(kernel, words, packed_grid, blocks, threads)
        finally:
            _team.lock.release()
    else:
        _run_alone(kernel, words, packed_grid, blocks)


def _run_alone(kernel: CompiledKernel, words: Any, grid: Any, blocks: int) -> None:
    context = _own.context
    context.prepare(kernel)
    context.ticket.value = 0
    context.printed[1] = 0
    start = time.perf_counter()
    kernel.function(0, blocks, ctypes.addressof(words), ctypes.addressof(grid), context.address)
    kernel.seconds_per_block = (time.perf_counter() - start) / blocks
    if kernel.prints:
        _show(kernel, context)
    if context.error[0]:
        raise _error(kernel, context.error)


def _run_together(kernel: CompiledKernel, words: Any, grid: Any, blocks: int, threads: int) -> None:
    pool = _team.start(threads)
    contexts = _team.contexts
    for c in contexts:
        c.prepare(kernel)
    contexts[0].ticket.value = 0
    chunk = 1 if kernel.ordered else max(1, blocks // (CHUNKS * threads))
    start = time.perf_counter()
    own, arguments, extents = contexts[0].address, ctypes.addressof(words), ctypes.addressof(grid)
    pool.dispatch(pool.address, own, kernel.address, arguments, extents, blocks, chunk)
    kernel.seconds_per_block = (time.perf_counter() - start) / blocks
    failed = [c.error for c in contexts if c.error[0]]
    if failed:
        raise _error(kernel, min(failed, key=lambda record: record[1]))


def pack(args: Sequence[Any]) -> Any:
    """The argument words: pointer, extents and byte strides of an array; the bits of a scalar."""
    words: list[int] = []
    for a in args:
        data = getattr(a, "data", a) if not isinstance(a, (np.ndarray, np.generic)) else a
        if isinstance(data, np.ndarray):
            words += (data.__array_interface__["data"][0], *data.shape, *data.strides)
        else:
            words.append(int.from_bytes(np.asarray(data).tobytes().ljust(8, b"\0"), "little", signed=True))
    return (ctypes.c_int64 * max(1, len(words)))(*words)


def _error(kernel: CompiledKernel, record: Any) -> dg.TilegradError:
    site = kernel.sites[record[0] - 1]
    error = _ERRORS.get(site.kind, dg.KernelValueError)
    if site.kind == "index":
        index, axis, extent = record[2], record[3], record[4]
        message = f"index {index} is out of range for axis {axis} with size {extent}"
        return error(message, loc=site.loc, help=f"raised in block {record[1]} of kernel `{kernel.name}`")
    if site.kind == "zero_division":
        return error("integer division or modulo by zero", loc=site.loc)
    if site.kind == "negative_power":
        return error("an integer to a negative power", loc=site.loc, help="cast the base to a float first")
    values = [_shown(word, dtype) for word, (dtype, _) in zip(record[2:], site.layout, strict=False)]
    return error(site.message.format(*values) if values else site.message or site.kind, loc=site.loc)


def _shown(word: int, dtype: DType) -> Any:
    """A value of an error record: floats are kept as the bits of a double, everything else as an integer."""
    if dtype.is_float:
        return dtype(np.int64(word).view(np.float64))
    return dtype(np.int64(word).view(np.uint64) if dtype.kind == "u" else word)


def _show(kernel: CompiledKernel, context: Context) -> None:
    """Print what the kernel left in its print buffer."""
    used = context.printed[1]
    data = ctypes.string_at(context.printed[0], used) if used else b""
    at = 0
    while at < used:
        site = kernel.sites[int.from_bytes(data[at : at + 8], "little") - 1]
        at += 8
        values = []
        for dtype, shape in site.layout:
            value, at = _printed(data, at, dtype, shape)
            values.append(value)
        print(site.message.format(*values))


def _printed(data: bytes, at: int, dtype: DType, shape: tuple[int, ...] | None) -> tuple[Any, int]:
    count = 1 if shape is None else int(np.prod(shape))
    value = np.frombuffer(data, dtype.np, count, at)
    size = 8 if shape is None else -(-count * dtype.size // 8) * 8
    return (value[0] if shape is None else value.reshape(shape)), at + size
