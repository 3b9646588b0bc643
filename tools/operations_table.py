"""Writes docs/table.md: every public operation with its call, element types, ranks and gradient, from the registry.

    python tools/operations_table.py          writes the page
    python tools/operations_table.py --check  fails if the page is not what would be written

Element types and ranks are found by trying: the calls of tools/operation_calls.py are built for all of them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from operation_calls import CALLS, call_of, program

from tilegrad import dtypes as dt
from tilegrad.diagnostics import TilegradError
from tilegrad.ir.opdef import OpDef
from tilegrad.op import REGISTRY
from tilegrad.ops.catalog import FAMILIES, PUBLIC

PAGE = Path(__file__).parent.parent / "docs" / "table.md"
TEXTS = Path(__file__).parent / "table_texts.md"
RANKS = range(1, 9)
GROUPS = (
    ("all", dt.SCALARS), ("all but bool", dt.NUMERIC), ("floats", dt.FLOATS), ("integers", dt.INTEGERS),
    ("bool, integers", (dt.bool_, *dt.INTEGERS)), ("signed numbers", tuple(d for d in dt.NUMERIC if d.kind != "u")),
)  # fmt: skip
HEADER = "| call | element types | ranks | devices | gradient | made of |"
RULE = "|---|---|---|---|---|---|"
#: tests/test_agreement.py runs all of them on both
DEVICES = "interpreter, CPU"
OPERATORS = {
    "-x": "neg", "x + y": "add", "x - y": "sub", "x * y": "mul", "x / y": "div", "x // y": "floordiv", "x % y": "mod",
    "x ** y": "pow", "x @ y": "tile_matmul", "x & y": "bit_and", "x | y": "bit_or", "x ^ y": "bit_xor", "~x": "invert",
    "x << n": "lshift", "x >> n": "rshift", "x == y": "eq", "x != y": "ne", "x < y": "lt", "x <= y": "le",
    "x > y": "gt", "x >= y": "ge", "t[i, j]": "tile_extract", "t[a:b:c, k]": "tile_view",
    "t[idx, :]": "tile_slice_indexed",
    "t[i, j] = v": "tile_scatter_masked", "t[a:b] = u": "tile_assign", "t[i, j] += v": "tile_scatter_add",
    "a[i, j] += v": "atomic_add", "t.T": "tile_transpose",
}  # fmt: skip
#: element types are those of the values that these are called with, not of a tile
SCALARS_ONLY = ("rand", "poisson", "sample_")
SECTION = re.compile(r"(?:^|\. )(Gradient|No gradient):(.*?)(?=^\w+:|^$|\Z)", re.DOTALL | re.MULTILINE)
SAME = re.compile(r"`(\w+)` that leaves .* The gradient is the same\.")
#: ops that any kernel has: they load, store and shape what the call is about
FRAME = {
    "tile_load", "tile_store", "constant", "block_id", "array_load", "array_store", "thread_id", "lane_id", "spread",
    "array_component", "tile_full", "tile_reshape", "yield",
}  # fmt: skip


def page() -> str:
    """The whole page."""
    text = TEXTS.read_text().replace("OPERATORS\n", "\n".join(operators()))
    return text.replace("TABLES\n", "\n".join(tables()))


def tables() -> list[str]:
    """One table for each family of operations."""
    lines: list[str] = []
    for family in FAMILIES:
        public = getattr(family, "PUBLIC", {})
        if public:
            title = (family.__doc__ or "").strip().splitlines()[0].rstrip(".")
            lines += [f"### {title}", "", HEADER, RULE, *(row(name, f"{name}{signature(name)}") for name in public), ""]
    return lines


def operators() -> list[str]:
    """The operators, each with the op that it is."""
    return [HEADER, RULE, *(row(name, spelling) for spelling, name in OPERATORS.items()), ""]


def row(name: str, call: str) -> str:
    """One operation."""
    cells = (f"`{call}`", element_types(name), ranks(name), DEVICES, gradient(name), made_of(name))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def signature(name: str) -> str:
    """How it is called."""
    thing = PUBLIC.get(name) or REGISTRY[name]
    found = inspect.signature((thing.spelled or thing.body) if isinstance(thing, OpDef) else thing)
    kept = [p.replace(annotation=p.empty) for n, p in found.parameters.items() if n not in ("block_dim", "present")]
    return str(found.replace(parameters=kept, return_annotation=found.empty)).replace("<class 'float'>", "float")


def builds(name: str, dtype: dt.DType, rank: int) -> bool:
    """Whether the call compiles for the element type and rank."""
    try:
        made = program(name, dtype, rank, store=False)
        made.kernel.ir(*made.arguments(np.random.default_rng(0)), block_dim=4)
    except TilegradError:
        return False
    return True


def element_types(name: str) -> str:
    """The scalar types that a call compiles for, in words."""
    definition = PUBLIC.get(name) or REGISTRY[name]
    if name.startswith(SCALARS_ONLY):
        return "uint32 state"
    if isinstance(definition, OpDef) and definition.elementwise is not None and name not in CALLS:
        return in_words(definition.elementwise)
    rank = next((r for r in (1, 2) if any(builds(name, d, r) for d in (dt.float32, dt.int32, dt.bool_))), 1)
    if not call_of(name).words & {"a", "b", "d", "s", "c", "u", "m", "f", "q", "x", "w", "h", "arr", "vec", "SPD", "D"}:
        return "results only"
    return in_words([d for d in dt.SCALARS if builds(name, d, rank)]) + parts(name)


def parts(name: str) -> str:
    """Of what the scalars are the parts."""
    words = call_of(name).words
    for letters, text in (
        (("c",), " in vec2"), (("x", "y"), " in transforms"), (("q", "g"), " in quaternions"),
        (("m", "n", "h", "f"), " in matrices"), (("w", "z", "u", "v"), " in vectors"),
    ):  # fmt: skip
        if words & set(letters):
            return text
    return ""


def in_words(found: Sequence[dt.DType]) -> str:
    """A set of scalar types by its shortest name."""
    for text, group in GROUPS:
        if set(group) == set(found):
            return text
    return ", ".join(map(str, found))


def ranks(name: str) -> str:
    """The ranks of tiles for which a call compiles."""
    definition = PUBLIC.get(name) or REGISTRY[name]
    if isinstance(definition, OpDef) and definition.elementwise is not None:
        return "scalar, 1-8"
    if name.startswith((*SCALARS_ONLY, "atomic_", "tile_stack")) or name in ("tile", "untile"):
        return "one per lane" if not name.startswith("atomic_") else "element"
    dtype = next(d for d in (dt.float32, dt.int32, dt.bool_) if any(builds(name, d, r) for r in (1, 2)))
    good = [r for r in RANKS if builds(name, dtype, r)]
    runs = f"{good[0]}-{good[-1]}" if len(good) > 1 else f"{good[0]}"
    assert good == list(range(good[0], good[-1] + 1)), (name, good)
    return f"scalar, {runs}" if call_of(name).words & set("uvmnqgxywzhf") else runs


def gradient(name: str) -> str:
    """The formula, its source, or the reason for none, from the docstring or the registry."""
    thing = PUBLIC.get(name) or REGISTRY[name]
    if isinstance(thing, OpDef) and thing.no_gradient:
        return f"none: {thing.no_gradient}"
    text = inspect.cleandoc(thing.__doc__ or "") + "\n"
    found = SECTION.search(text)
    if found:
        formula = re.sub(r"^none, ", "none: ", " ".join(found[2].split()).rstrip("."))
        return ("none: " if found[1].startswith("No") else "") + formula.replace("*", "\\*")
    same = SAME.search(text)
    return f"that of `{same[1]}`" if same else _reason(name)


def _reason(name: str) -> str:
    """Why a function has no gradient, by the ops that it is made of."""
    made = sorted(parts_of(name), key=lambda part: part != "random_word")
    reasons = [REGISTRY[part].no_gradient for part in made if REGISTRY[part].no_gradient]
    assert reasons, f"the docstring of {name} does not say what its gradient is"
    return f"none: {reasons[0]}"


def made_of(name: str) -> str:
    """The ops that a function is composed of; nothing for an op."""
    return "" if isinstance(PUBLIC.get(name) or REGISTRY[name], OpDef) else ", ".join(parts_of(name))


@cache
def parts_of(name: str) -> tuple[str, ...]:
    """The ops that a call becomes, besides those that any kernel has."""
    for dtype in (dt.float32, dt.int32, dt.bool_):
        for rank in (1, 2):
            if builds(name, dtype, rank):
                made = program(name, dtype, rank, store=False)
                kernel = made.kernel.ir(*made.arguments(np.random.default_rng(0)), block_dim=4)
                return tuple(sorted({op.name for op in kernel.body.walk()} - FRAME))
    raise AssertionError(f"the call of {name} does not compile")


def main(arguments: Sequence[str]) -> int:
    text = page()
    if "--check" in arguments:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
