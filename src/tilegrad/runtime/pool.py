"""A persistent pool of threads that run the blocks of a launch as native code, without the GIL.

The dispatcher and the workers are a little LLVM IR of our own, so no compiler is needed on the user's machine. A job is
described in shared words; whoever holds a place in it takes chunks of blocks from a counter until none are left. The
`gate` word counts who joined and is closed when the caller has run out of work: a worker that wakes too late finds it
closed and goes back to sleep, so nobody waits for it. Workers give up their time slice a few times before they sleep
on a condition variable. Which thread runs which block never changes a result. Does not know what a kernel is.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.runtime import engine

#: Words of the shared state.
GENERATION, STOP, FUNCTION, ARGS, GRID, BLOCKS, NEXT, CHUNK, GATE, FINISHED, SLEEPERS = range(11)
_WORDS = 64  # the mutex starts at word 32 and the condition at word 48, each with room to spare
CLOSED = 1 << 40

#: Whether this system has the POSIX threads that the pool is made of; elsewhere launches run on the calling thread.
POOLED = os.name == "posix"

_TEXT = """
declare i32 @sched_yield()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define void @initialise(ptr %pool) {
  %mutex = getelementptr i64, ptr %pool, i64 32
  %condition = getelementptr i64, ptr %pool, i64 48
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

; Take chunks of blocks until none are left.
define internal void @work(ptr %pool, ptr %context) {
  %pf = getelementptr i64, ptr %pool, i64 2
  %pa = getelementptr i64, ptr %pool, i64 3
  %pg = getelementptr i64, ptr %pool, i64 4
  %pn = getelementptr i64, ptr %pool, i64 5
  %pnext = getelementptr i64, ptr %pool, i64 6
  %pc = getelementptr i64, ptr %pool, i64 7
  %f = load ptr, ptr %pf
  %a = load ptr, ptr %pa
  %g = load ptr, ptr %pg
  %n = load i64, ptr %pn
  %c = load i64, ptr %pc
  br label %take
take:
  %first = atomicrmw add ptr %pnext, i64 %c acq_rel
  %some = icmp slt i64 %first, %n
  br i1 %some, label %run, label %done
run:
  %end = add i64 %first, %c
  %short = icmp slt i64 %end, %n
  %last = select i1 %short, i64 %end, i64 %n
  call void %f(i64 %first, i64 %last, ptr %a, ptr %g, ptr %context)
  br label %take
done:
  ret void
}

; Give way a few times, then sleep, until the generation differs from the one that was seen; the new one.
define internal i64 @next_generation(ptr %pool, i64 %seen) {
entry:
  %psleepers = getelementptr i64, ptr %pool, i64 10
  %mutex = getelementptr i64, ptr %pool, i64 32
  %condition = getelementptr i64, ptr %pool, i64 48
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %yield ]
  %now = load atomic i64, ptr %pool seq_cst, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %awake, label %wait
wait:
  %k1 = add i64 %k, 1
  %tired = icmp sgt i64 %k1, 60
  br i1 %tired, label %sleep, label %yield
yield:
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

; The life of a worker: wait for a new generation, join its job if the gate is open, work, report.
define void @worker(ptr %pool, ptr %context, i64 %born) {
entry:
  %pstop = getelementptr i64, ptr %pool, i64 1
  %pgate = getelementptr i64, ptr %pool, i64 8
  %pfinished = getelementptr i64, ptr %pool, i64 9
  br label %wait
wait:
  %seen = phi i64 [ %born, %entry ], [ %generation, %join ], [ %generation, %joined ]
  %generation = call i64 @next_generation(ptr %pool, i64 %seen)
  %stop = load atomic i64, ptr %pstop seq_cst, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %leave, label %join
join:
  %before = atomicrmw add ptr %pgate, i64 1 seq_cst
  %open = icmp slt i64 %before, 1099511627776
  br i1 %open, label %joined, label %wait
joined:
  call void @work(ptr %pool, ptr %context)
  atomicrmw add ptr %pfinished, i64 1 seq_cst
  br label %wait
leave:
  ret void
}

; Announce a new generation, and wake the workers that sleep.
define void @announce(ptr %pool) {
  %psleepers = getelementptr i64, ptr %pool, i64 10
  %mutex = getelementptr i64, ptr %pool, i64 32
  %condition = getelementptr i64, ptr %pool, i64 48
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

; Run a job on this thread and on the workers that come in time.
define void @dispatch(ptr %pool, ptr %context, ptr %f, ptr %args, ptr %grid, i64 %blocks, i64 %chunk) {
  %pf = getelementptr i64, ptr %pool, i64 2
  %pa = getelementptr i64, ptr %pool, i64 3
  %pg = getelementptr i64, ptr %pool, i64 4
  %pn = getelementptr i64, ptr %pool, i64 5
  %pnext = getelementptr i64, ptr %pool, i64 6
  %pc = getelementptr i64, ptr %pool, i64 7
  %pgate = getelementptr i64, ptr %pool, i64 8
  %pfinished = getelementptr i64, ptr %pool, i64 9
  store ptr %f, ptr %pf
  store ptr %args, ptr %pa
  store ptr %grid, ptr %pg
  store i64 %blocks, ptr %pn
  store i64 0, ptr %pnext
  store i64 %chunk, ptr %pc
  store i64 0, ptr %pfinished
  store atomic i64 0, ptr %pgate seq_cst, align 8
  call void @announce(ptr %pool)
  call void @work(ptr %pool, ptr %context)
  %joined = atomicrmw add ptr %pgate, i64 1099511627776 seq_cst
  br label %wait
wait:
  %finished = load atomic i64, ptr %pfinished seq_cst, align 8
  %all = icmp sge i64 %finished, %joined
  br i1 %all, label %done, label %yield
yield:
  call i32 @sched_yield()
  br label %wait
done:
  ret void
}
"""


class Pool:
    """Worker threads with a context each, and the words that they share."""

    def __init__(self, contexts: Sequence[int]) -> None:
        """Start a worker for each context but the first, which is the caller's."""
        self.words = (ctypes.c_int64 * _WORDS)()
        self.words[GATE] = CLOSED
        self.address = ctypes.addressof(self.words)
        functions = {name: engine.compile_ir(_TEXT, name) for name in ("initialise", "worker", "announce", "dispatch")}
        _signature(1)(functions["initialise"])(self.address)
        self._announce = _signature(1)(functions["announce"])
        self.dispatch: Callable[..., None] = _signature(7)(functions["dispatch"])
        worker = _signature(3)(functions["worker"])
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=worker, args=(self.address, c, 0), daemon=True, name="tilegrad worker")
            for c in contexts[1:]
        ]
        for t in self.threads:
            t.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the workers; the pool cannot be used afterwards."""
        self.words[STOP] = 1
        self._announce(self.address)
        for t in self.threads:
            t.join(timeout=1)
        self.threads = []


def _signature(count: int) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p if k not in (5, 6) else ctypes.c_int64 for k in range(count)])
