"""From LLVM IR text to the address of a native function. The only user of `llvmlite.binding`.

Object code is kept in the disk cache (`cache`) under a key of everything that could change it. Does not know what the
functions do.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache as memoize

import llvmlite
import llvmlite.binding as llvm

from tilegrad.runtime import cache

#: The passes over LLVM IR; the code generator leaves little else to do, and each costs compile time.
PASSES = ("sroa", "simplify_cfg", "loop_rotate", "instruction_combine", "simplify_cfg")

_lock = threading.Lock()
_engines: list[llvm.ExecutionEngine] = []


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
    return f"{llvmlite.__version__}|{version}|{llvm.get_default_triple()}|{host_cpu()}|{features}|{PASSES}"


def compile_ir(text: str, entry: str) -> int:
    """The address of function `entry` of a module given as LLVM IR text."""
    key = hashlib.sha256((_toolchain() + text).encode()).hexdigest()
    with _lock:
        _initialise()
        code = cache.get(key)
        if code is None:
            code = _compile(text)
            cache.put(key, code)
        return _load(code, entry)


def assembly(text: str) -> str:
    """The machine code of a module as assembly text, for people."""
    with _lock:
        _initialise()
        machine, module = _optimised(text)
        return str(machine.emit_assembly(module))


def _optimised(text: str) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine = _machine()
    module = llvm.parse_assembly(text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return machine, module


def _machine() -> llvm.TargetMachine:
    features = ",".join(("+" if on else "-") + name for name, on in sorted(host_features().items()))
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=host_cpu(), features=features, opt=2, reloc="pic", codemodel="jitdefault")


def _compile(text: str) -> bytes:
    machine, module = _optimised(text)
    return bytes(machine.emit_object(module))


def _load(code: bytes, entry: str) -> int:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(entry))
