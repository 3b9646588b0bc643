"""What the IR knows of an operation's definition: its name, class, effect and rules.

The rules are attached by the decorators of `tilegrad.op`; passes, the interpreter, `ad` and `codegen` read them here.
Does not know what any particular op does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tilegrad.dtypes import DType

#: How the scheduler and the code generator treat an op.
#:   scalar   results are scalars computed once per block or lane; never reads tiles (array_load, block_id, ...)
#:   point    a scalar or tile whose element at an index is computed from operands at (mapped) indices: elementwise
#:            ops, views, loads, fills. Never needs storage of its own; fuses into whoever reads it
#:   fold     reduces tiles over some axes (sum, argmax, ...)
#:   sink     an effect at every element of a tile (tile_store, tile_atomic_add)
#:   block    reads whole materialised tiles and writes whole tiles (matmul, sort, element reads and inserts, ...)
#:   control  holds regions or moves values between blocks (if, for, while, yield, stacks)
OpClass = Literal["scalar", "point", "fold", "sink", "block", "control"]

#: What an op does to the world besides its results. `read` and `write` concern array operands; `raise` may stop the
#: launch with an error; `print` must keep its order; `stack` pushes or pops.
Effect = Literal["none", "read", "write", "atomic", "raise", "print", "stack"]

#: How the operands of an op are declared: the annotation of each positional parameter of its body.
OperandKind = Literal["scalar", "tile", "array", "value"]


@dataclass(eq=False)
class OpDef:
    """An operation: one documented Python function, the body, with its rules beside it."""

    name: str
    body: Callable[..., Any]
    cls: OpClass = "point"
    effect: Effect = "none"
    #: dtypes that operands of an elementwise op may have; None if the op is not elementwise
    elementwise: tuple[DType, ...] | None = None
    #: result dtype of an elementwise op when it is not the operands' own
    result_dtype: DType | None = None
    #: the interval from which samples of an elementwise op are drawn
    domain: tuple[float, float] = (-3.0, 3.0)
    #: why the op has no gradient; empty if it has one
    no_gradient: str = ""
    #: lanes must reach the op together; it may not stand under a condition that differs between lanes
    cooperative: bool = False
    #: a view: users who write through its result write the tile it was taken from
    view: bool = False
    #: takes an instruction or few, so that it is rather repeated than its result stored
    cheap: bool = True
    kinds: tuple[OperandKind, ...] = ()
    variadic: OperandKind | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    infer: Callable[..., Any] | None = None
    adjoint: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    samples: Callable[..., Any] | None = None
    spelled: Callable[..., Any] | None = None
    writeback: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def lowered(self, *args: Any, **attrs: Any) -> Any:
        """Call the lowering, which every op but the control ops has."""
        assert self.lower is not None, f"{self.name} has no lowering"
        return self.lower(*args, **attrs)

    def __call__(self, *operands: Any, **attrs: Any) -> Any:
        """Emit the op into the kernel that is being built, or run the body on plain arrays when none is."""
        return CALL(self, operands, attrs)


def _run_body(definition: OpDef, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    return definition.body(*operands, **attrs)


#: What calling an OpDef does. `tilegrad.op` replaces it with `emit`, which chooses between emitting and running.
CALL: Callable[[OpDef, tuple[Any, ...], dict[str, Any]], Any] = _run_body
