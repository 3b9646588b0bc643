"""A persistent pool of threads that run the blocks of a launch as native code, without the GIL.

The dispatcher and the workers are a little LLVM IR of our own, so no compiler is needed on the user's machine. A job
is described in words that live as long as the thread that launches. The caller starts on the blocks alone and calls
the workers only when the work has lasted for some microseconds, so a small launch costs nothing. Whoever has joined
takes chunks of blocks from a counter until none are left; chunks shrink towards the end. Joining goes through the
`gate` word (how many are in, how many may be, whether it is open); the caller closes it when the blocks are handed
out, so a worker that wakes too late finds it closed and nobody waits for it. Idle workers spin for a while and then
sleep on a condition variable. Blocks are handed out in increasing order, so a block may wait for what an earlier one
does. One job at a time has the pool; a launch that finds it busy runs on its own thread. Which thread runs which
block never changes a result. Does not know what a kernel is.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilegrad.config import config
from tilegrad.diagnostics import LaunchError
from tilegrad.runtime import engine

Words = Any  # a ctypes array of c_int64

#: Words of a job: what to run, where; its place in line; how far it has come (each on cache lines of its own).
ENTRY, BLOCKS, ARGS, GRID, CONTEXT, ORDERED, GATE, SHIFT, EAGER = range(9)
JOB_TICKET, JOB_WORDS = 32, 48
OPEN = 1 << 40
LIMIT_SHIFT = 20

#: Words of the pool's state.
_STOP, _SLEEPERS, _TABLE, _WORKERS, _LAZY, _SPIN, _CHEAP = range(48, 55)
_POOL_WORDS = 112

#: Words of a thread's context and its error record that the dispatcher uses (see `launch`).
CTX_ERROR, CTX_TICKET = 2, 3
ERROR_WORDS = 16

#: Seconds that the caller works alone before it calls the workers; about what waking one costs.
LAZY = 10e-6
#: Seconds that an idle worker spins before it sleeps.
SPIN = 100e-6
#: Seconds below which blocks that take turns are not worth handing to other threads.
CHEAP = 1e-6

_MACHINE = platform.machine().lower()
_X86 = _MACHINE in ("x86_64", "amd64", "i686")
_ARM = _MACHINE in ("aarch64", "arm64")
#: Whether this system has the POSIX threads that the pool is made of; elsewhere launches run on the calling thread.
POOLED = os.name == "posix" and (_X86 or _ARM)

_CLOCK = "llvm.readcyclecounter" if _X86 else "llvm.readsteadycounter"
_HINT = "@llvm.x86.sse2.pause" if _X86 else "@llvm.aarch64.hint"
_PAUSE = f"call void {_HINT}({'' if _X86 else 'i32 1'})"

_TEXT = """
declare i64 @CLOCK()
declare void HINT
declare i32 @sched_yield()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @ticks() {
  %now = call i64 @CLOCK()
  ret i64 %now
}

define void @initialise(ptr %pool) {
  %mutex = getelementptr i64, ptr %pool, i64 64
  %condition = getelementptr i64, ptr %pool, i64 80
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

; Whether the caller has the pool to itself now.
define i64 @hold(ptr %pool) {
  %pbusy = getelementptr i64, ptr %pool, i64 32
  %pair = cmpxchg ptr %pbusy, i64 0, i64 1 acq_rel monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  %result = zext i1 %got to i64
  ret i64 %result
}

define void @release(ptr %pool) {
  %pbusy = getelementptr i64, ptr %pool, i64 32
  store atomic i64 0, ptr %pbusy release, align 8
  ret void
}

; Take chunks of blocks until none are left.
define internal void @work(ptr %job, ptr %context) {
entry:
  %pblocks = getelementptr i64, ptr %job, i64 1
  %pargs = getelementptr i64, ptr %job, i64 2
  %pgrid = getelementptr i64, ptr %job, i64 3
  %pshift = getelementptr i64, ptr %job, i64 7
  %pnext = getelementptr i64, ptr %job, i64 16
  %f = load ptr, ptr %job
  %blocks = load i64, ptr %pblocks
  %args = load ptr, ptr %pargs
  %grid = load ptr, ptr %pgrid
  %shift = load i64, ptr %pshift
  br label %take
take:
  %now = load atomic i64, ptr %pnext monotonic, align 8
  br label %look
look:
  %first = phi i64 [ %now, %take ], [ %other, %claim ]
  %left = sub i64 %blocks, %first
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %claim, label %done
claim:
  %part = ashr i64 %left, %shift
  %small = icmp slt i64 %part, 1
  %size = select i1 %small, i64 1, i64 %part
  %last = add i64 %first, %size
  %pair = cmpxchg ptr %pnext, i64 %first, i64 %last acq_rel monotonic
  %other = extractvalue { i64, i1 } %pair, 0
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  call void %f(i64 %first, i64 %last, ptr %args, ptr %grid, ptr %context)
  br label %take
done:
  ret void
}

; Spin for a while, then sleep, until the generation differs from the one that was seen; the new one.
define internal i64 @next_generation(ptr %pool, i64 %seen) {
entry:
  %psleepers = getelementptr i64, ptr %pool, i64 49
  %pspin = getelementptr i64, ptr %pool, i64 53
  %mutex = getelementptr i64, ptr %pool, i64 64
  %condition = getelementptr i64, ptr %pool, i64 80
  %patience = load i64, ptr %pspin
  %start = call i64 @CLOCK()
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %pause ], [ 0, %give_way ]
  %now = load atomic i64, ptr %pool seq_cst, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %awake, label %wait
wait:
  %k1 = add i64 %k, 1
  %round = icmp sgt i64 %k1, 32
  br i1 %round, label %breath, label %pause
pause:
  PAUSE
  br label %look
breath:
  %time = call i64 @CLOCK()
  %waited = sub i64 %time, %start
  %tired = icmp sgt i64 %waited, %patience
  br i1 %tired, label %sleep, label %give_way
give_way:
  call i32 @sched_yield()
  br label %look
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  atomicrmw add ptr %psleepers, i64 1 seq_cst
  br label %check
check:
  %later = load atomic i64, ptr %pool seq_cst, align 8
  %called = icmp ne i64 %later, %seen
  br i1 %called, label %rise, label %doze
doze:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
rise:
  atomicrmw sub ptr %psleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %awake
awake:
  %result = phi i64 [ %now, %look ], [ %later, %rise ]
  ret i64 %result
}

; Go through the gate if it is open and there is room.
define internal i1 @join(ptr %pool) {
entry:
  %pgate = getelementptr i64, ptr %pool, i64 16
  %before = load atomic i64, ptr %pgate seq_cst, align 8
  br label %look
look:
  %gate = phi i64 [ %before, %entry ], [ %other, %enter ]
  %count = and i64 %gate, 1048575
  %high = lshr i64 %gate, 20
  %limit = and i64 %high, 1048575
  %open = icmp uge i64 %gate, 1099511627776
  %room = icmp ult i64 %count, %limit
  %may = and i1 %open, %room
  br i1 %may, label %enter, label %out
enter:
  %more = add i64 %gate, 1
  %pair = cmpxchg ptr %pgate, i64 %gate, i64 %more seq_cst seq_cst
  %other = extractvalue { i64, i1 } %pair, 0
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %in, label %look
in:
  ret i1 true
out:
  ret i1 false
}

; The life of a worker: wait for a new generation, join its job if there is room, work, leave.
define void @worker(ptr %pool, ptr %context) {
entry:
  %pgate = getelementptr i64, ptr %pool, i64 16
  %pjob = getelementptr i64, ptr %pool, i64 33
  %pstop = getelementptr i64, ptr %pool, i64 48
  %pticket = getelementptr i64, ptr %context, i64 3
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %generation, %called ], [ %generation, %joined ]
  %generation = call i64 @next_generation(ptr %pool, i64 %seen)
  %stop = load atomic i64, ptr %pstop seq_cst, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %leave, label %called
called:
  %in = call i1 @join(ptr %pool)
  br i1 %in, label %joined, label %wait
joined:
  %job = load ptr, ptr %pjob
  %ticket = getelementptr i64, ptr %job, i64 32
  store ptr %ticket, ptr %pticket
  call void @work(ptr %job, ptr %context)
  atomicrmw sub ptr %pgate, i64 1 seq_cst
  br label %wait
leave:
  ret void
}

; Announce a new generation, and wake the workers that sleep.
define void @announce(ptr %pool) {
  %psleepers = getelementptr i64, ptr %pool, i64 49
  %mutex = getelementptr i64, ptr %pool, i64 64
  %condition = getelementptr i64, ptr %pool, i64 80
  atomicrmw add ptr %pool, i64 1 seq_cst
  %sleepers = load atomic i64, ptr %psleepers seq_cst, align 8
  %some = icmp sgt i64 %sleepers, 0
  br i1 %some, label %wake, label %done
wake:
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}

; Close the gate and wait until everybody is out.
define internal void @close(ptr %pool) {
entry:
  %pgate = getelementptr i64, ptr %pool, i64 16
  atomicrmw and ptr %pgate, i64 1099511627775 seq_cst
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %pause ], [ %k1, %yield ]
  %gate = load atomic i64, ptr %pgate seq_cst, align 8
  %count = and i64 %gate, 1048575
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %wait
wait:
  %k1 = add i64 %k, 1
  %soon = icmp slt i64 %k1, 200
  br i1 %soon, label %pause, label %yield
pause:
  PAUSE
  br label %look
yield:
  call i32 @sched_yield()
  br label %look
done:
  ret void
}

; Move the workers' error records, leaving the one of the lowest block in the caller's.
define internal void @collect(ptr %pool, ptr %own) {
entry:
  %ptable = getelementptr i64, ptr %pool, i64 50
  %pworkers = getelementptr i64, ptr %pool, i64 51
  %table = load ptr, ptr %ptable
  %workers = load i64, ptr %pworkers
  %pown = getelementptr i64, ptr %own, i64 2
  %to = load ptr, ptr %pown
  %pmine = getelementptr i64, ptr %to, i64 1
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %one, label %done
one:
  %place = getelementptr ptr, ptr %table, i64 %k
  %context = load ptr, ptr %place
  %perror = getelementptr i64, ptr %context, i64 2
  %from = load ptr, ptr %perror
  %site = load i64, ptr %from
  %failed = icmp ne i64 %site, 0
  br i1 %failed, label %compare, label %next
compare:
  store i64 0, ptr %from
  %ptheirs = getelementptr i64, ptr %from, i64 1
  %theirs = load i64, ptr %ptheirs
  %mine = load i64, ptr %pmine
  %own_site = load i64, ptr %to
  %clean = icmp eq i64 %own_site, 0
  %earlier = icmp slt i64 %theirs, %mine
  %better = or i1 %clean, %earlier
  br i1 %better, label %move, label %next
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 128, i1 false)
  store i64 %site, ptr %to
  br label %next
next:
  %k1 = add i64 %k, 1
  br label %look
done:
  ret void
}

; Run a job: alone at first, then with the workers that come in time.
define void @dispatch(ptr %pool, ptr %job) {
entry:
  %pgate = getelementptr i64, ptr %pool, i64 16
  %pjob = getelementptr i64, ptr %pool, i64 33
  %plazy = getelementptr i64, ptr %pool, i64 52
  %pcheap = getelementptr i64, ptr %pool, i64 54
  %pblocks = getelementptr i64, ptr %job, i64 1
  %pargs = getelementptr i64, ptr %job, i64 2
  %pgrid = getelementptr i64, ptr %job, i64 3
  %pcontext = getelementptr i64, ptr %job, i64 4
  %pordered = getelementptr i64, ptr %job, i64 5
  %pwanted = getelementptr i64, ptr %job, i64 6
  %peager = getelementptr i64, ptr %job, i64 8
  %pnext = getelementptr i64, ptr %job, i64 16
  %pticket = getelementptr i64, ptr %job, i64 32
  %f = load ptr, ptr %job
  %blocks = load i64, ptr %pblocks
  %args = load ptr, ptr %pargs
  %grid = load ptr, ptr %pgrid
  %context = load ptr, ptr %pcontext
  %ordered = load i64, ptr %pordered
  %eager = load i64, ptr %peager
  %lazy = load i64, ptr %plazy
  store i64 0, ptr %pticket
  %start = call i64 @CLOCK()
  %at_once = icmp ne i64 %eager, 0
  br i1 %at_once, label %share, label %alone
alone:
  %first = phi i64 [ 0, %entry ], [ %last, %longer ]
  %size = phi i64 [ 1, %entry ], [ %twice, %longer ]
  %wanted = add i64 %first, %size
  %short = icmp slt i64 %wanted, %blocks
  %last = select i1 %short, i64 %wanted, i64 %blocks
  call void %f(i64 %first, i64 %last, ptr %args, ptr %grid, ptr %context)
  %time = call i64 @CLOCK()
  %spent = sub i64 %time, %start
  %more = icmp slt i64 %last, %blocks
  br i1 %more, label %longer, label %done
longer:
  %twice = shl i64 %size, 1
  %early = icmp slt i64 %spent, %lazy
  br i1 %early, label %alone, label %consider
consider:
  %cheap = load i64, ptr %pcheap
  %bound = mul i64 %cheap, %last
  %small = icmp slt i64 %spent, %bound
  %turns = icmp ne i64 %ordered, 0
  %pointless = and i1 %small, %turns
  br i1 %pointless, label %finish, label %share
share:
  %from = phi i64 [ 0, %entry ], [ %last, %consider ]
  %got = call i64 @hold(ptr %pool)
  %held = icmp ne i64 %got, 0
  br i1 %held, label %publish, label %finish
publish:
  store i64 %from, ptr %pnext
  store ptr %job, ptr %pjob
  %gate = load i64, ptr %pwanted
  store atomic i64 %gate, ptr %pgate seq_cst, align 8
  call void @announce(ptr %pool)
  call void @work(ptr %job, ptr %context)
  call void @close(ptr %pool)
  call void @collect(ptr %pool, ptr %context)
  call void @release(ptr %pool)
  br label %measure
finish:
  %rest = phi i64 [ %last, %consider ], [ %from, %share ]
  call void %f(i64 %rest, i64 %blocks, ptr %args, ptr %grid, ptr %context)
  br label %measure
measure:
  %end = call i64 @CLOCK()
  %all = sub i64 %end, %start
  br label %done
done:
  %took = phi i64 [ %spent, %alone ], [ %all, %measure ]
  %long = icmp sge i64 %took, %lazy
  %flag = zext i1 %long to i64
  store i64 %flag, ptr %peager
  ret void
}
"""


def aligned_words(count: int) -> Words:
    """Zeroed words that start on a cache line of their own (128 bytes: lines are fetched in pairs)."""
    raw = np.zeros(count + 16, np.int64)
    start = -int(raw.__array_interface__["data"][0]) % 128 // 8
    return (ctypes.c_int64 * count).from_buffer(raw.data, 8 * start)


@cache
def _native(name: str, result: Any, *arguments: Any) -> Any:
    text = _TEXT.replace("CLOCK", _CLOCK).replace("PAUSE", _PAUSE).replace("HINT", f"{_HINT}({'' if _X86 else 'i32'})")
    return ctypes.CFUNCTYPE(result, *arguments)(engine.compile_ir(text, name))


@cache
def _ticks_per_second() -> float:
    ticks = _native("ticks", ctypes.c_int64)
    start, first = time.perf_counter(), ticks()
    while (passed := time.perf_counter() - start) < 200e-6:
        pass
    return max(1.0, float(ticks() - first)) / passed


def usable_cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Worker threads, one for each context address, and the words that they share; `kept` lives as long as they do."""

    def __init__(self, contexts: Sequence[int], kept: Any = None) -> None:
        self.workers, self.kept = len(contexts), kept
        self.words = aligned_words(_POOL_WORDS)
        self.address = ctypes.addressof(self.words)
        pointer = ctypes.c_void_p
        _native("initialise", None, pointer)(self.address)
        self._announce = _native("announce", None, pointer)
        self._hold = _native("hold", ctypes.c_int64, pointer)
        self._release = _native("release", None, pointer)
        self.dispatch = _native("dispatch", None, pointer, pointer)  #: run the job at an address
        self._table = (ctypes.c_int64 * max(1, self.workers))(*contexts)
        self.words[_TABLE], self.words[_WORKERS] = ctypes.addressof(self._table), self.workers
        rate = _ticks_per_second()
        crowded = self.workers >= usable_cpus()
        self.words[_LAZY], self.words[_CHEAP] = int(LAZY * rate), int(CHEAP * rate)
        self.words[_SPIN] = 0 if crowded else int(SPIN * rate)
        self.threads = [
            threading.Thread(target=self._work, args=(c,), daemon=True, name="tilegrad worker") for c in contexts
        ]
        for t in self.threads:
            t.start()
        atexit.register(self.stop)

    def _work(self, context: int) -> None:
        _native("worker", None, ctypes.c_void_p, ctypes.c_void_p)(self.address, context)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait until no job has the pool, and keep it so."""
        while not self._hold(self.address):
            time.sleep(0)
        try:
            yield
        finally:
            self._release(self.address)

    def forget(self) -> None:
        """Give up the workers without a word: this is a forked child, where they do not exist."""
        atexit.unregister(self.stop)
        self.threads = []

    def stop(self) -> None:
        """End the workers, once they have finished what they do. The pool then runs jobs on the caller's thread."""
        atexit.unregister(self.stop)
        self.words[_STOP] = 1
        self._announce(self.address)
        for t in self.threads:
            t.join(timeout=1)
        self.threads = []


@contextlib.contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Run the launches of a `with` block on at most `n` threads, whichever Python thread makes them."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise LaunchError(f"the number of threads must be an int of at least 1, it is {n!r}")
    before, config.num_threads = config.num_threads, n
    try:
        yield
    finally:
        config.num_threads = before
