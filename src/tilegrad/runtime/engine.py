"""From LLVM IR text to the address of a native function. The only user of `llvmlite.binding`.

Object code is kept in the disk cache (`cache`) under a key of everything that could change it. Does not know what the
functions do.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import cache as memoize

import llvmlite
import llvmlite.binding as llvm

from tilegrad.diagnostics import CompilerBug
from tilegrad.runtime import cache

#: The passes over LLVM IR; the code generator leaves little else to do, and each costs compile time.
PASSES = ("sroa", "simplify_cfg", "loop_rotate", "instruction_combine", "simplify_cfg")

#: How the target machine makes code; part of the key, like everything else that could change it.
MACHINE = {"opt": 2, "reloc": "pic", "codemodel": "jitdefault"}

_lock = threading.Lock()
_loaded: dict[str, llvm.ExecutionEngine] = {}
if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that another thread held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@memoize
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@memoize
def host_cpu() -> str:
    """LLVM's name of the processor."""
    return str(llvm.get_host_cpu_name())


@memoize
def host_features() -> dict[str, bool]:
    """The processor's features by LLVM's names."""
    return dict(llvm.get_host_cpu_features())


@memoize
def _toolchain() -> str:
    features = ",".join(f"{name}={on}" for name, on in sorted(host_features().items()))
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{llvmlite.__version__}|{version}|{llvm.get_default_triple()}|{host_cpu()}|{features}|{PASSES}|{MACHINE}"


def compile_ir(text: str, entry: str) -> int:
    """The address of function `entry` of a module given as LLVM IR text; equal texts share one copy of the code."""
    key = hashlib.sha256((_toolchain() + text).encode()).hexdigest()
    with _lock:
        engine = _loaded.get(key)
        if engine is None:
            _initialise()
            engine = _loaded[key] = _load(_object(key, text))
        return int(engine.get_function_address(entry))


def _object(key: str, text: str) -> bytes:
    code = cache.get(key)
    if code is None:
        code = _compile(text)
        cache.put(key, code)
    return code


def assembly(text: str) -> str:
    """The machine code of a module as assembly text, for people."""
    with _lock:
        _initialise()
        machine, module = _optimised(text)
        return str(machine.emit_assembly(module))


def _optimised(text: str) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine = _machine()
    module = _parsed(text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return machine, module


def _parsed(text: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        bug = CompilerBug(f"LLVM refuses the code of a kernel: {error}", help="please report it with the code below")
        bug.add_note(text)
        raise bug from None
    return module


def _machine() -> llvm.TargetMachine:
    features = ",".join(("+" if on else "-") + name for name, on in sorted(host_features().items()))
    return llvm.Target.from_default_triple().create_target_machine(cpu=host_cpu(), features=features, **MACHINE)


def _compile(text: str) -> bytes:
    machine, module = _optimised(text)
    return bytes(machine.emit_object(module))


def _load(code: bytes) -> llvm.ExecutionEngine:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
