"""Compiles the lowering of one elementwise op to a function over arrays, for tests of accuracy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tilegrad import dtypes as dt
from tilegrad.codegen.registers import RegisterEmitter, apply_elementwise
from tilegrad.dtypes import DType
from tilegrad.emit import Reg
from tilegrad.ir.opdef import OpDef

_CHECKED = "checked"


def _unsupported(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError


class ElementwiseEmitter(RegisterEmitter):
    """Registers only; a failed check is counted in the last argument."""

    def check(self, ok: Reg, kind: str, *values: Reg) -> None:
        bad = self.any(self.not_(self.splat(ok)))
        self.branch(bad, self._count, lambda: [])

    def _count(self) -> list[Reg]:
        self.store_scalar("%failed", self.const(1, dt.int64), None)
        return []


for _name in ElementwiseEmitter.__abstractmethods__:
    setattr(ElementwiseEmitter, _name, _unsupported)
ElementwiseEmitter.__abstractmethods__ = frozenset()


def text(op: OpDef, dtypes: tuple[DType, ...], result: DType, width: int, attrs: dict[str, Any]) -> str:
    """LLVM IR of a loop over arrays whose length is a multiple of `width`."""
    e = ElementwiseEmitter()
    e.width = width

    def turn(i: Reg) -> list[Reg]:
        xs = [_load(e, f"%x{k}", d, i, width) for k, d in enumerate(dtypes)]
        y = apply_elementwise(e, op, xs, attrs)
        at = e.element_offset("%y", result, i, 0)
        (e.store_vector if width > 1 else e.store_scalar)(at, e.splat(y), None)
        return []

    e.loop(0, Reg("%n", dt.int64), width, [], turn)
    params = ["i64 %n", "ptr %failed", "ptr %y", *(f"ptr %x{k}" for k in range(len(dtypes)))]
    return e.f.module("f", params, '"prefer-vector-width"="512" nounwind')


def _load(e: RegisterEmitter, ptr: str, dtype: DType, i: Reg, width: int) -> Reg:
    at = e.element_offset(ptr, dtype, i, 0)
    return e.load_vector(at, dtype, None, None) if width > 1 else e.load_scalar(at, dtype, None, None)


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


def compile_text(source: str) -> tuple[Any, int]:
    """Optimised machine code: the engine that owns it, and the address of `f`."""
    module = llvm.parse_assembly(source)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    llvm.create_pass_builder(_machine(), options).getModulePassManager().run(
        module, llvm.create_pass_builder(_machine(), options)
    )
    engine = llvm.create_mcjit_compiler(module, _machine())
    engine.finalize_object()
    return engine, engine.get_function_address("f")


@cache
def compiled(op: OpDef, dtypes: tuple[DType, ...], width: int = 16, **attrs: Any) -> Callable[..., Any]:
    """The op's lowering as a function of NumPy arrays; raises ZeroDivisionError when a check of the op fails."""
    result = attrs.get("dtype") or op.result_dtype or dtypes[-1]
    engine, address = compile_text(text(op, dtypes, result, width, attrs))
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (2 + len(dtypes)))(address)

    def run(*arrays: Any) -> Any:
        n = len(arrays[0])
        padded = -(-n // width) * width
        xs = [
            np.concatenate([a, np.repeat(a[-1:], padded - n)]).astype(d.np) for a, d in zip(arrays, dtypes, strict=True)
        ]
        out = np.empty(padded, result.np)
        failed = np.zeros(1, np.int64)
        call(padded, failed.ctypes.data, out.ctypes.data, *(x.ctypes.data for x in xs))
        if failed[0]:
            raise ZeroDivisionError
        return out[:n]

    run.engine = engine  # type: ignore[attr-defined]
    return run
