"""Runs compiled kernels: packs the arguments, hands out the blocks, and brings errors and prints back to Python.

The thread context that a kernel gets (see `codegen.kernel`) holds, at byte offsets: 0 scratch pointer, 8 scratch
bytes, 16 error record (i64[16]: site or 0, block, values), 24 ticket (i64: blocks whose atomic updates are done),
32 print buffer and 40 stack area (each record {data, used, capacity}). Every Python thread that launches has a context
and the words of a job of its own; the workers of the pool have theirs. A kernel that prints runs on one thread.
Does not know how a kernel was made.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tilegrad import diagnostics as dg
from tilegrad.config import config
from tilegrad.dtypes import SCALARS, DType
from tilegrad.printing import Line, in_order
from tilegrad.runtime import pool as pl

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_ERRORS: dict[str, type[dg.TilegradError]] = {
    "index": dg.KernelIndexError,
    "zero_division": dg.KernelZeroDivisionError,
    "assertion": dg.KernelAssertionError,
    "value": dg.KernelValueError,
}


@dataclass(frozen=True)
class Sum:
    """An array argument that groups of blocks add to, each in memory of its own: `scale` times as large as the array's.

    `combine` adds the groups up (see codegen.combine).
    """

    argument: int
    scale: int
    combine: CompiledKernel


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
    sums: tuple[Sum, ...] = ()
    function: Callable[..., None] = field(init=False)
    #: whether the last launch took long enough that the workers should be called at once
    eager: int = 0

    def __post_init__(self) -> None:
        self.function = _ENTRY(self.address)


_free: Any = ctypes.CDLL(None).free if os.name == "posix" else None
if _free is not None:
    _free.argtypes, _free.restype = [ctypes.c_void_p], None


class Context:
    """The memory that a thread lends to the kernels it runs."""

    def __init__(self, ticket: int = 0) -> None:
        self.words = pl.aligned_words(16)
        self.error = pl.aligned_words(pl.ERROR_WORDS)
        self.printed = (ctypes.c_int64 * 3)()
        self.stacks = (ctypes.c_int64 * 3)()
        self.scratch = np.empty(0, np.uint8)
        self.scratch_bytes = self.stack_count = 0
        self.words[pl.CTX_ERROR] = ctypes.addressof(self.error)
        self.words[pl.CTX_TICKET] = ticket
        self.words[4] = ctypes.addressof(self.printed)
        self.words[5] = ctypes.addressof(self.stacks)
        self.address = ctypes.addressof(self.words)

    def prepare(self, scratch_bytes: int, stack_count: int) -> None:
        """Make room for what a kernel needs."""
        if scratch_bytes > self.scratch_bytes:
            self.scratch = _scratch(scratch_bytes)
            self.words[0] = (self.scratch.ctypes.data + 63) & ~63
            self.words[1] = self.scratch_bytes = scratch_bytes
        if stack_count > self.stack_count:
            self.stacks = (ctypes.c_int64 * (3 * stack_count))(*self.stacks)
            self.words[5] = ctypes.addressof(self.stacks)
            self.stack_count = stack_count

    def __del__(self, free: Any = _free) -> None:
        """Give back what kernels have taken with `realloc`."""
        for record in (self.printed, self.stacks):
            for k in range(0, len(record), 3):
                if record[k] and free is not None:
                    free(record[k])


def _scratch(size: int) -> np.ndarray[Any, Any]:
    try:
        return np.empty(size + 192, np.uint8)
    except MemoryError:
        raise dg.LaunchError(
            f"the tiles of the kernel need {size:,} bytes for each thread, which cannot be had",
            help="use smaller tiles, or fewer threads: with tg.num_threads(1): ...",
        ) from None


class _Own(threading.local):
    """What a Python thread launches with: a context, and the words that describe its job."""

    def __init__(self) -> None:
        self.job = pl.aligned_words(pl.JOB_WORDS)
        self.job_address = ctypes.addressof(self.job)
        self.context = Context(self.job_address + 8 * pl.JOB_TICKET)
        self.grid: pl.Words = (ctypes.c_int64 * 8)()
        self.grid_address = ctypes.addressof(self.grid)
        self.make_room(64)
        #: memory of the groups of a launch and its flags: all zeros between launches
        self.sums = np.zeros(0, np.uint8)

    def make_room(self, count: int) -> None:
        """Room for the argument words of a kernel."""
        self.words: pl.Words = (ctypes.c_int64 * count)()
        self.words_address = ctypes.addressof(self.words)


_own = _Own()


class _Team:
    """The pool and the contexts of its workers, made when a launch first wants it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: pl.Pool | None = None
        self.contexts: list[Context] = []
        self.scratch_bytes = self.stack_count = 0

    def reset(self) -> None:
        """Forget the threads: this is a forked child, which has none."""
        if self.pool is not None:
            self.pool.forget()
        self.lock = threading.Lock()
        self.pool, self.contexts = None, []

    def ready(self, workers: int, kernel: CompiledKernel) -> pl.Pool:
        """The pool, with at least so many workers, and their contexts with room for the kernel."""
        pool = self.pool
        enough = kernel.scratch_bytes <= self.scratch_bytes and kernel.stack_count <= self.stack_count
        if pool is not None and pool.workers >= workers and enough:
            return pool
        with self.lock:
            return self._prepare(workers, kernel)

    def _prepare(self, workers: int, kernel: CompiledKernel) -> pl.Pool:
        scratch = max(self.scratch_bytes, kernel.scratch_bytes)
        stacks = max(self.stack_count, kernel.stack_count)
        pool = self.pool
        if pool is None or pool.workers < workers:
            contexts = [Context() for _ in range(workers)]
            for c in contexts:
                c.prepare(scratch, stacks)
            pool = pl.Pool([c.address for c in contexts], kept=contexts)
            old, self.pool, self.contexts = self.pool, pool, contexts
            if old is not None:
                old.stop()
        else:
            with pool.held():
                for c in self.contexts:
                    c.prepare(scratch, stacks)
        self.scratch_bytes, self.stack_count = scratch, stacks
        return pool


_team = _Team()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_team.reset)


def launch(kernel: CompiledKernel, args: Sequence[Any], grid: tuple[int, ...]) -> None:
    """Run all blocks of a launch. `args` are NumPy arrays, objects with a NumPy array in `data`, and scalars."""
    own = _own
    packed = argument_words(args)
    total = 1
    for extent in grid:
        total *= extent
    if total <= 0:
        return
    if len(packed) > len(own.words):
        own.make_room(2 * len(packed))
    own.words[: len(packed)] = packed
    own.grid[:5] = (*grid, 1, 1, 1, total) if len(grid) == 1 else (*grid, *(1,) * (4 - len(grid)), total)
    context = own.context
    if kernel.scratch_bytes > context.scratch_bytes or kernel.stack_count > context.stack_count:
        context.prepare(kernel.scratch_bytes, kernel.stack_count)
    context.error[0] = 0
    blocks = total if kernel.tiled else -(-total // kernel.block_dim)
    if kernel.sums:
        _run_in_groups(kernel, own, packed, args, blocks)
    else:
        _run(kernel, own, blocks)
    if context.error[0]:
        raise _error(kernel, context.error)


def _run(kernel: CompiledKernel, own: _Own, blocks: int) -> None:
    threads = min(config.num_threads, blocks)
    if threads > 1 and pl.POOLED and not kernel.prints:
        _run_together(kernel, own, blocks, threads)
    else:
        _run_alone(kernel, own, blocks)


#: into how many groups the blocks of a launch with sums are cut, and the most memory that they may have
GROUPS = 16
GROUP_BYTES = 1 << 28
#: bytes of a group's memory that share a flag (see codegen.combine)
_CHUNK = 4096


def _run_in_groups(kernel: CompiledKernel, own: _Own, packed: list[int], args: Sequence[Any], blocks: int) -> None:
    """Run groups of blocks that add to memory of their own, and add the groups up in order.

    How the blocks are cut depends on their number and on the arrays alone, so the bits do not depend on the threads.
    """
    odd = {s.argument: h for s in kernel.sums if _is_odd(h := _host(args[s.argument]))}
    if odd:
        copies = {k: np.ascontiguousarray(h) for k, h in odd.items()}
        dense = [copies.get(k, a) for k, a in enumerate(args)]
        own.words[: len(packed)] = packed = argument_words(dense)
        _run_in_groups(kernel, own, packed, dense, blocks)
        for k, h in odd.items():
            h[...] = copies[k]
        return
    places = []
    for s in kernel.sums:
        host = _host(args[s.argument])
        low, high = byte_bounds(host) if host.size else (0, 0)
        size = -(-(high - low) * s.scale // _CHUNK) * _CHUNK
        places.append((host, low, high, size))
    whole = sum(size + size // _CHUNK for *_, size in places)
    groups = max(2, min(GROUPS, GROUP_BYTES // max(1, whole)))
    each = -(-blocks // groups)
    groups = -(-blocks // each)
    if len(own.sums) < groups * whole + _CHUNK:
        own.sums = np.zeros(groups * whole + _CHUNK, np.uint8)
    at = -(-_data_pointer(own.sums) // _CHUNK) * _CHUNK
    words = [each, blocks]
    found = []
    for (host, low, high, size), s in zip(places, kernel.sums, strict=True):
        shift = (_data_pointer(host) - low) * s.scale if host.size else 0
        found.append((low, (high - low) // host.itemsize, at, size, size // _CHUNK))
        words += [at, shift, size, 0, size // _CHUNK]
        at += groups * size
    for k, (*_, chunks) in enumerate(found):
        words[2 + 5 * k + 3] = at
        at += groups * chunks
    count = len(packed) + len(words)
    if count > len(own.words):
        own.make_room(2 * count)
        own.words[: len(packed)] = packed
    own.words[len(packed) : count] = words
    _run(kernel, own, groups)
    for k, (low, elements, memory, size, chunks) in enumerate(found):
        own.words[:7] = (low, elements, memory, size, words[2 + 5 * k + 3], chunks, groups)
        _run(kernel.sums[k].combine, own, chunks)


def _host(a: Any) -> np.ndarray[Any, Any]:
    host: np.ndarray[Any, Any] = a if isinstance(a, np.ndarray) else a.data
    return host


def _is_odd(a: np.ndarray[Any, Any]) -> bool:
    """Whether elements lie at distances that are no multiple of their size, as fields of packed records do."""
    return any(n > 1 and stride % a.itemsize for n, stride in zip(a.shape, a.strides, strict=True))


def _run_alone(kernel: CompiledKernel, own: _Own, blocks: int) -> None:
    context = own.context
    if kernel.ordered:
        own.job[pl.JOB_TICKET] = 0
    if kernel.prints:
        context.printed[1] = 0
    kernel.function(0, blocks, own.words_address, own.grid_address, context.address)
    if kernel.prints:
        _show(kernel, context)


def _run_together(kernel: CompiledKernel, own: _Own, blocks: int, threads: int) -> None:
    pool = _team.ready(threads - 1, kernel)
    ordered = kernel.ordered
    shift = 62 if ordered else threads.bit_length() + 1
    gate = pl.OPEN | (threads - 1) << pl.LIMIT_SHIFT
    eager = 0 if ordered else kernel.eager
    job = own.job
    job[:9] = (
        kernel.address, blocks, own.words_address, own.grid_address, own.context.address, ordered, gate, shift, eager,
    )  # fmt: skip
    pool.dispatch(pool.address, own.job_address)
    kernel.eager = job[pl.EAGER]


# --- arguments --------------------------------------------------------------------------------------------------------


def _data_pointer(a: np.ndarray[Any, Any]) -> int:
    return int(a.__array_interface__["data"][0])


#: Where an array object keeps the address of its elements: right after the object's head, by NumPy's C interface.
#: Reading it there takes a tenth of the time of `__array_interface__`, which is most of a small launch.
_HEAD = object.__basicsize__
_word_at = ctypes.c_int64.from_address


def _heads_can_be_read() -> bool:
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return False
    probes: list[np.ndarray[Any, Any]] = [np.zeros(3), np.zeros((4, 4), np.int8)[1:, ::2], np.zeros(())]
    return all(_word_at(id(a) + _HEAD).value == _data_pointer(a) for a in probes)


_HEADS = _heads_can_be_read()


def _bits_of(word: Any) -> Callable[[Any], int]:
    return lambda x: int(x.view(word))


#: The bits of a NumPy number as an integer, by type.
_BITS: dict[type, Callable[[Any], int]] = {
    d.np.type: _bits_of({2: np.uint16, 4: np.uint32, 8: np.uint64}[d.size]) if d.is_float else int for d in SCALARS
}


def argument_words(args: Sequence[Any]) -> list[int]:
    """The argument words: pointer, extents and byte strides of an array; the bits of a number."""
    words: list[int] = []
    for a in args:
        if isinstance(a, np.ndarray):
            words.append(_word_at(id(a) + _HEAD).value if _HEADS else _data_pointer(a))
            words += a.shape
            words += a.strides
        elif (bits := _BITS.get(type(a))) is not None:
            words.append(bits(a))
        elif isinstance(data := getattr(a, "data", None), np.ndarray):
            words += argument_words([data])
        else:
            number = np.asarray(a)[()]
            words.append(_BITS[type(number)](number))
    return words


# --- errors and prints ------------------------------------------------------------------------------------------------


def _error(kernel: CompiledKernel, record: Any) -> dg.TilegradError:
    site = kernel.sites[record[0] - 1]
    error = _ERRORS.get(site.kind, dg.KernelValueError)
    values = [_shown(word, dtype) for word, (dtype, _) in zip(record[2:], site.layout, strict=False)]
    if site.kind == "index":
        index, axis, extent = record[2], record[3], record[4]
        message = f"index {index} is out of range for axis {axis} with size {extent}"
        message = site.message.format(*values) if site.message else message
        return error(message, loc=site.loc, help=f"raised in block {record[1]} of kernel `{kernel.name}`")
    if site.kind == "zero_division":
        return error("integer division or modulo by zero", loc=site.loc)
    if site.kind == "negative_power":
        return error("an integer to a negative power", loc=site.loc, help="cast the base to a float first")
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
    for text in in_order(_lines(kernel, data)):
        print(text)


def _lines(kernel: CompiledKernel, data: bytes) -> Iterator[Line]:
    at = 0
    while at < len(data):
        site, block, lane = struct.unpack_from("3q", data, at)
        at += 24
        values = []
        for dtype, shape in kernel.sites[site - 1].layout:
            value, at = _printed(data, at, dtype, shape)
            values.append(value)
        yield block, lane, kernel.sites[site - 1].message.format(*values)


def _printed(data: bytes, at: int, dtype: DType, shape: tuple[int, ...] | None) -> tuple[Any, int]:
    count = 1 if shape is None else int(np.prod(shape))
    value = np.frombuffer(data, dtype.np, count, at)
    size = 8 if shape is None else -(-count * dtype.size // 8) * 8
    return (value[0] if shape is None else value.reshape(shape)), at + size
