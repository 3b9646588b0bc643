"""The runtime under hand-written native kernels: every block once, in order where it must be, on any threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.config import config
from tilegrad.diagnostics import CompilerBug, Loc
from tilegrad.dtypes import SCALARS, DType, float32, int32
from tilegrad.runtime import cache, engine, launch, pool
from tilegrad.runtime.launch import CompiledKernel
from tilegrad.runtime.pool import num_threads

#: A kernel whose body sees block %b, the first array's memory %out, and the context; `spin` makes blocks last.
_KERNEL = """
declare i32 @sched_yield()
declare ptr @realloc(ptr, i64)

define internal void @spin(i64 %n) {{
entry:
  %x = alloca i64
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %turn ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %turn, label %done
turn:
  store volatile i64 %k, ptr %x
  %k1 = add i64 %k, 1
  br label %look
done:
  ret void
}}

define internal void @block(i64 %b, ptr %args, ptr %grid, ptr %ctx) {{
  %out = load ptr, ptr %args
  {body}
  ret void
}}

define void @kernel(i64 %first, i64 %last, ptr %args, ptr %grid, ptr %ctx) {{
entry:
  br label %look
look:
  %b = phi i64 [ %first, %entry ], [ %b1, %turn ]
  %more = icmp slt i64 %b, %last
  br i1 %more, label %turn, label %done
turn:
  call void @block(i64 %b, ptr %args, ptr %grid, ptr %ctx)
  %b1 = add i64 %b, 1
  br label %look
done:
  ret void
}}
"""

_COUNT = """
  call void @spin(i64 {spin})
  %place = getelementptr i64, ptr %out, i64 %b
  atomicrmw add ptr %place, i64 1 monotonic
"""

_APPEND = """
  call void @spin(i64 {spin})
  %pticket = getelementptr i64, ptr %ctx, i64 3
  %ticket = load ptr, ptr %pticket
  br label %wait
wait:
  %now = load atomic i64, ptr %ticket acquire, align 8
  %turn = icmp eq i64 %now, %b
  br i1 %turn, label %mine, label %pause
pause:
  call i32 @sched_yield()
  br label %wait
mine:
  %n = load i64, ptr %out
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %out
  %place = getelementptr i64, ptr %out, i64 %n1
  store i64 %b, ptr %place
  %next = add i64 %b, 1
  store atomic i64 %next, ptr %ticket release, align 8
"""

_FAIL = """
  call void @spin(i64 {spin})
  %rest = srem i64 %b, 1000
  %bad = icmp eq i64 %rest, 600
  br i1 %bad, label %fail, label %done
fail:
  %perror = getelementptr i64, ptr %ctx, i64 2
  %error = load ptr, ptr %perror
  %site = load i64, ptr %error
  %first = icmp eq i64 %site, 0
  br i1 %first, label %note, label %done
note:
  store i64 1, ptr %error
  %e1 = getelementptr i64, ptr %error, i64 1
  store i64 %b, ptr %e1
  %e2 = getelementptr i64, ptr %error, i64 2
  store i64 %b, ptr %e2
  %e3 = getelementptr i64, ptr %error, i64 3
  store i64 1, ptr %e3
  %e4 = getelementptr i64, ptr %error, i64 4
  store i64 9, ptr %e4
  br label %done
done:
"""

_SCRATCH = """
  %scratch = load ptr, ptr %ctx
  %last = getelementptr i8, ptr %scratch, i64 {last}
  store volatile i64 %b, ptr %scratch
  store volatile i64 %b, ptr %last
  call void @spin(i64 {spin})
  %x = load volatile i64, ptr %scratch
  %y = load volatile i64, ptr %last
  %sum = add i64 %x, %y
  %address = ptrtoint ptr %scratch to i64
  %skew = and i64 %address, 63
  %all = add i64 %sum, %skew
  %place = getelementptr i64, ptr %out, i64 %b
  store i64 %all, ptr %place
"""

_STACK = """
  %pstacks = getelementptr i64, ptr %ctx, i64 5
  %stacks = load ptr, ptr %pstacks
  %record = getelementptr i64, ptr %stacks, i64 {first}
  %old = load ptr, ptr %record
  %data = call ptr @realloc(ptr %old, i64 4096)
  store ptr %data, ptr %record
  store volatile i64 %b, ptr %data
  call void @spin(i64 {spin})
  %x = load volatile i64, ptr %data
  %place = getelementptr i64, ptr %out, i64 %b
  store i64 %x, ptr %place
"""

_PRINT = """
  %pprint = getelementptr i64, ptr %ctx, i64 4
  %record = load ptr, ptr %pprint
  %pused = getelementptr i64, ptr %record, i64 1
  %used = load i64, ptr %pused
  %more = add i64 %used, 32
  store i64 %more, ptr %pused
  %old = load ptr, ptr %record
  %data = call ptr @realloc(ptr %old, i64 %more)
  store ptr %data, ptr %record
  %here = getelementptr i8, ptr %data, i64 %used
  store i64 1, ptr %here
  %block = getelementptr i64, ptr %here, i64 1
  store i64 %b, ptr %block
  %lane = getelementptr i64, ptr %here, i64 2
  store i64 -1, ptr %lane
  %value = getelementptr i64, ptr %here, i64 3
  store i64 %b, ptr %value
"""


def make(body: str, spin: int = 0, **options: Any) -> CompiledKernel:
    """A native kernel with the given body."""
    text = _KERNEL.format(body=body.format(spin=spin, **options.pop("numbers", {})))
    facts = {"scratch_bytes": 0, "stack_count": 0, "ordered": False, "prints": False, "sites": (), "tiled": True}
    return CompiledKernel("k", engine.compile_ir(text, "kernel"), **{**facts, "block_dim": 1, **options})


def run(kernel: CompiledKernel, blocks: int, *more: Any) -> np.ndarray[Any, Any]:
    out = np.zeros(blocks + 1, np.int64)
    launch.launch(kernel, (out, *more), (blocks,))
    return out


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with num_threads(request.param):
        yield request.param


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and an engine that has loaded nothing."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    monkeypatch.setattr(config, "cache", True)
    monkeypatch.setattr(engine, "_loaded", {})
    return tmp_path / "cache"


# --- blocks and threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", [0, 300, 30_000])
@pytest.mark.parametrize("blocks", [1, 2, 3, 64, 1000])
def test_every_block_runs_once(threads: int, blocks: int, spin: int) -> None:
    kernel = make(_COUNT, spin)
    for _ in range(3 if spin < 30_000 else 1):
        assert run(kernel, blocks).tolist() == [1] * blocks + [0]
    assert run(kernel, 1)[0] == 1  # a small launch after a long one


def test_many_short_launches() -> None:
    """Workers that wake late find the gate closed, or join the next job: no block is lost or run twice."""
    kernel = make(_COUNT, 100)
    with num_threads(4):
        for k in range(500):
            blocks = 2 + k % 97
            kernel.eager = 1
            assert run(kernel, blocks).sum() == blocks


@pytest.mark.parametrize("spin", [0, 3000])
def test_ordered_blocks_take_turns(threads: int, spin: int) -> None:
    out = run(make(_APPEND, spin, ordered=True), 300)
    assert out[1:].tolist() == list(range(300))


def test_the_grid_and_the_lanes() -> None:
    body = "%slot = getelementptr i64, ptr %out, i64 %b\n %t = load i64, ptr %grid\n store i64 %t, ptr %slot"
    assert run(make(body, tiled=False, block_dim=4), 9)[:4].tolist() == [9, 9, 9, 0]
    out = np.zeros(8, np.int64)
    launch.launch(make("call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %grid, i64 40, i1 false)"), [out], (2, 3, 4))
    assert out.tolist() == [2, 3, 4, 1, 24, 0, 0, 0]


@pytest.mark.parametrize("grid", [(0,), (4, 0), (0, 0, 0)])
def test_an_empty_grid_runs_nothing(grid: tuple[int, ...]) -> None:
    out = np.zeros(1, np.int64)
    launch.launch(make(_COUNT), [out], grid)
    assert out[0] == 0


def test_launches_from_several_python_threads() -> None:
    """P01: each thread has a context of its own; whoever finds the pool busy works alone."""
    kernels = [make(_COUNT, 2000), make(_SCRATCH, 500, numbers={"last": 56}, scratch_bytes=64)]
    failures: list[Any] = []

    def work(which: int) -> None:
        for _ in range(40):
            out = run(kernels[which], 50)[:50]
            good = out == 1 if which == 0 else out == 2 * np.arange(50)
            if not good.all():
                failures.append(out)

    with num_threads(3):
        workers = [threading.Thread(target=work, args=(k % 2,)) for k in range(6)]
        for t in workers:
            t.start()
        for t in workers:
            t.join()
    assert not failures


def test_the_pool_may_be_replaced_while_it_is_used() -> None:
    kernel = make(_COUNT, 20_000)
    failures: list[Any] = []

    def work() -> None:
        for _ in range(20):
            if (out := run(kernel, 60)[:60]).tolist() != [1] * 60:
                failures.append(out)

    with num_threads(2):
        busy = threading.Thread(target=work)
        busy.start()
        for n in range(3, 9):
            with num_threads(n):
                assert run(kernel, 60).sum() == 60
        busy.join()
    assert not failures


@pytest.mark.parametrize("n", [0, -1, True, 2.0, "2"])
def test_the_number_of_threads_is_checked(n: Any) -> None:
    with pytest.raises(tg.LaunchError, match="the number of threads must be an int of at least 1"), num_threads(n):
        pass


def test_the_number_of_threads_is_restored() -> None:
    before = config.num_threads
    with pytest.raises(ValueError, match="x"), num_threads(before + 1):
        assert config.num_threads == before + 1
        raise ValueError("x")
    assert config.num_threads == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_a_pool_of_its_own() -> None:
    kernel = make(_COUNT, 20_000)
    with num_threads(3):
        assert run(kernel, 50).sum() == 50
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of forks of processes with threads
            child = os.fork()
        if child == 0:
            right = run(kernel, 50).sum() == 50
            fresh = launch._team.pool
            alive = fresh is not None and sum(t.is_alive() for t in fresh.threads) == 2
            os._exit(0 if right and alive else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert run(kernel, 50).sum() == 50


def test_a_process_ends_while_workers_sleep() -> None:
    script = (
        "import numpy as np, tilegrad as tg\n"
        "@tg.kernel\n"
        "def k(x: tg.array1d[float]):\n"
        "    i = tg.tid()\n"
        "    for j in range(1000):\n"
        "        x[i] += 1.0\n"
        "x = np.zeros(10000, np.float32)\n"
        "from tilegrad.runtime.pool import num_threads\n"
        "with num_threads(4):\n"
        "    tg.launch(k, dim=10000, inputs=[x])\n"
        "assert (x == 1000).all()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)


# --- what a thread lends to a kernel ----------------------------------------------------------------------------------


def test_scratch_is_private_aligned_and_grows(threads: int) -> None:
    for size in (64, 4096, 1 << 20, 128):
        kernel = make(_SCRATCH, 3000, numbers={"last": size - 8}, scratch_bytes=size)
        assert run(kernel, 100)[:100].tolist() == [2 * b for b in range(100)]


def test_scratch_that_cannot_be_had() -> None:
    with pytest.raises(tg.LaunchError, match="the tiles of the kernel need 4,611,686,018,427,387,904 bytes"):
        run(make(_COUNT, scratch_bytes=1 << 62), 1)


def test_stacks_are_private_and_grow(threads: int) -> None:
    for count in (1, 5, 2):
        kernel = make(_STACK, 3000, numbers={"first": 3 * (count - 1)}, stack_count=count)
        assert run(kernel, 100)[:100].tolist() == list(range(100))


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_numbers_are_passed_as_their_bits(dtype: DType) -> None:
    value = dtype.np.type(1 if dtype.kind == "b" else dtype.max if dtype.is_int else -1.5)
    (word,) = launch.argument_words([value])
    bits = np.array([word & (2**64 - 1)], np.uint64).tobytes()[: dtype.size]
    assert bits == value.tobytes()


def test_python_numbers_and_arrays_are_packed() -> None:
    assert launch.argument_words([7, True]) == [7, 1]
    host = np.zeros((4, 6), np.float32)[1:, ::-2]
    expected = [host.ctypes.data, 3, 3, 24, -8]
    assert launch.argument_words([host]) == expected
    assert launch.argument_words([tg.Array(host)]) == expected
    assert launch.argument_words([np.zeros((0, 2))])[1:3] == [0, 2]
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    assert launch.argument_words([frozen])[0] == frozen.ctypes.data


def test_many_arguments() -> None:
    out = np.zeros(1, np.int64)
    body = "%p = getelementptr i64, ptr %args, i64 202\n %x = load i64, ptr %p\n store i64 %x, ptr %out"
    launch.launch(make(body), [out, *range(200)], (1,))
    assert out[0] == 199


# --- errors and prints ------------------------------------------------------------------------------------------------

_PLACE = Loc("k.py", 3, 4, 8, "k", "    x[i]")


@pytest.mark.parametrize("spin", [0, 1000])
def test_the_error_of_the_lowest_block_is_raised(threads: int, spin: int) -> None:
    kernel = make(_FAIL, spin, sites=(SimpleNamespace(kind="index", loc=_PLACE, message="", layout=()),))
    for _ in range(20):
        kernel.eager = 1  # so that workers may meet the higher ones first
        with pytest.raises(tg.KernelIndexError, match="index 600 is out of range for axis 1 with size 9") as caught:
            run(kernel, 3000)
        assert "block 600 of kernel `k`" in str(caught.value)
        assert "k.py:3:5 in k" in str(caught.value)
        run(kernel, 100)  # which is clean again


def test_prints_come_in_the_order_of_the_blocks(threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    site = SimpleNamespace(kind="print", loc=_PLACE, message="block {}", layout=((int32, None),))
    kernel = make(_PRINT, prints=True, sites=(site,))
    for _ in range(2):
        run(kernel, 50)
        assert capsys.readouterr().out == "".join(f"block {b}\n" for b in range(50))


def test_a_launch_inside_of_a_print(monkeypatch: pytest.MonkeyPatch) -> None:
    site = SimpleNamespace(kind="print", loc=_PLACE, message="{}", layout=((int32, None),))
    kernel, other = make(_PRINT, prints=True, sites=(site,)), make(_COUNT)
    written: list[str] = []

    def write(text: str) -> int:
        if text.strip():
            assert run(other, 9).sum() == 9
            written.append(text)
        return len(text)

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=write, flush=lambda: None))
    run(kernel, 4)
    assert written == ["0", "1", "2", "3"]


def test_printed_tiles() -> None:
    data = np.arange(3, dtype=np.float32).tobytes().ljust(16, b"\0")
    value, end = launch._printed(data, 0, float32, (3,))
    assert (value.tolist(), end) == ([0, 1, 2], 16)


# --- compiling and the cache ------------------------------------------------------------------------------------------

_ANSWER = "define i64 @f() {{\n  ret i64 {}\n}}\n"


def answer(number: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(engine.compile_ir(_ANSWER.format(number), "f"))())


def objects(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.o"))


def test_equal_code_is_loaded_once() -> None:
    text = _ANSWER.format(11)
    assert engine.compile_ir(text, "f") == engine.compile_ir(text, "f")


def test_objects_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(1) == 1
    assert len(objects(folder)) == 1
    engine._loaded.clear()
    monkeypatch.setattr(engine, "_compile", lambda text: pytest.fail("compiled although it is in the cache"))
    assert answer(1) == 1
    assert [p.name for p in folder.glob("*/*")] == [p.name for p in objects(folder)]  # no temporary files


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "other"])
def test_damaged_and_foreign_files_are_ignored(folder: Path, damage: str) -> None:
    """H03."""
    answer(1)
    (path,) = objects(folder)
    good = path.read_bytes()
    if damage == "other":  # a good file, but of another key
        answer(2)
        good = next(p for p in objects(folder) if p != path).read_bytes()
    spoiled = {"cut": good[:-5], "flip": good[:-1] + b"?", "empty": b"", "foreign": b"\x7fELF", "other": good}
    path.write_bytes(spoiled[damage])
    engine._loaded.clear()
    assert answer(1) == 1
    assert path.read_bytes() != spoiled[damage]


def test_the_toolchain_and_the_machine_are_in_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H03."""
    answer(1)
    for name, value in (("host_cpu", "znver1"), ("host_features", {"avx512f": False}), ("PASSES", ("sroa",))):
        monkeypatch.setattr(engine, name, value if name == "PASSES" else lambda value=value: value)
        engine._toolchain.cache_clear()
        engine._loaded.clear()
        assert answer(1) == 1
    engine._toolchain.cache_clear()
    assert len(objects(folder)) == 4


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    """H06: one warning, and everything works."""
    folder.write_text("a file is in the way")
    cache._warned.clear()
    with pytest.warns(RuntimeWarning, match="cannot write its cache folder .*Set TILEGRAD_CACHE_DIR") as caught:
        assert answer(1) == 1
        assert answer(2) == 2
    assert len(caught) == 1


def test_without_a_cache_nothing_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache", False)
    assert answer(1) == 1
    assert not folder.exists()


def test_processes_share_a_folder(folder: Path) -> None:
    """H05: they start together on an empty cache, and one is killed."""
    script = (
        "from tilegrad.runtime import engine\n"
        "import ctypes\n"
        "for k in range(30):\n"
        "    text = 'define i64 @f() {\\n  ret i64 %d\\n}\\n' % k\n"
        "    assert ctypes.CFUNCTYPE(ctypes.c_int64)(engine.compile_ir(text, 'f'))() == k\n"
    )
    environment = {**os.environ, "TILEGRAD_CACHE_DIR": str(folder)}
    running = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(4)]
    running[0].kill()
    assert [p.wait(timeout=120) for p in running][1:] == [0, 0, 0]
    assert len(objects(folder)) == 30
    assert all(answer(k) == k for k in range(30))


def test_compiling_in_several_threads(folder: Path) -> None:
    """P03: fifteen good ones and one that is faulty."""
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        try:
            results[k] = answer(k) if k != 7 else engine.compile_ir("define i64 @f() { ret i32 0 }", "f")
        except CompilerBug as error:
            results[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert isinstance(results.pop(7), CompilerBug)
    assert results == {k: k for k in range(16) if k != 7}


def test_code_that_llvm_refuses_is_a_bug_of_ours() -> None:
    with pytest.raises(CompilerBug, match="LLVM refuses the code of a kernel") as caught:
        engine.compile_ir("define i64 @f() {\n  ret i32 0\n}\n", "f")
    assert "ret i32 0" in caught.value.__notes__[0]


def test_the_clock_runs() -> None:
    if pool.POOLED:
        assert 1e5 < pool._ticks_per_second() < 1e11
