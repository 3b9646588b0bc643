"""Checks that a kernel keeps the rules of Tile IR; what breaks one is a bug of ours, shown with the whole text.

    V1 a value is defined before it is used, in the same block or one around it
    V2 a block ends in `yield`, and only there
    V3 result types are what the op infers from its operands and attributes; the operands of an elementwise op are
       all scalars, or all tiles of one shape
    V4 yields, carried values, arguments and results of a region op have the types that its form asks for
    V5 lane code holds no cooperative op, makes no tile, and hands on varying values only
    V6 a map's region reads nothing that differs between lanes, as its lanes are the elements

Does not change anything, and is not run for users: tests and the compiler's debug mode run it after every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.diagnostics import CompilerBug, TilegradError
from tilegrad.ir import regions
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.printer import to_text
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, Type, is_varying

#: (definition, operand types, attributes) -> result types; `op.infer_types`
Infer = Callable[[OpDef, tuple[Type, ...], dict[str, Any]], tuple[Type, ...]]

_PLACES = ("lane_id", "thread_id")


def verify(kernel: Kernel, infer: Infer) -> Kernel:
    """The kernel itself, or CompilerBug that names the rule, points at the op and shows the text."""
    _Verifier(kernel, infer).run()
    return kernel


class _Verifier:
    def __init__(self, kernel: Kernel, infer: Infer) -> None:
        self.kernel = kernel
        self.infer = infer
        self.known: set[Value] = set()
        self.op: Op | None = None
        #: "", "lanes" inside lane code, "map" inside a map
        self.where = ""

    def run(self) -> None:
        for i, p in enumerate(self.kernel.params):
            self.require(p.index == i and p.op is None, "V1", f"parameter {i} has number {p.index}")
            good = isinstance(p.type, (ScalarType, ArrayType)) and not is_varying(p.type)
            self.require(good, "V3", f"a parameter cannot be {p.type}")
        self.block(self.kernel.body)
        self.require(not self.kernel.body.yields, "V4", "the kernel's block yields values")

    def require(self, holds: bool, rule: str, message: str) -> None:
        if not holds:
            name = self.op.name if self.op is not None else self.kernel.name
            text = to_text(self.kernel, mark=self.op)
            raise CompilerBug(
                f"Tile IR breaks rule {rule} at `{name}`: {message}\n{text}", loc=self.op.loc if self.op else None,
                help="this is a bug in tilegrad; please report it with the text above",
            )  # fmt: skip

    def block(self, block: Block) -> None:
        """Check a block; what it defines is unknown afterwards."""
        outer = self.known
        self.known = outer.union(block.args)
        self.require(bool(block.ops) and block.ops[-1].name == "yield", "V2", "the block does not end in a yield")
        for op in block.ops:
            self.op = op
            self.require((op.name == "yield") == (op is block.ops[-1]), "V2", "a yield in the middle of a block")
            for k, v in enumerate(op.operands):
                self.require(v in self.known, "V1", f"operand {k} is not defined here")
            self.one(op)
            self.known.update(op.results)
        self.known = outer

    def one(self, op: Op) -> None:
        for i, v in enumerate(op.results):
            self.require(v.op is op and v.index == i, "V1", f"result {i} belongs to another op")
        if self.where:
            self.lane_op(op)
        if op.regions:
            self.region_op(op)
        elif op.name != "yield":
            self.types(op)

    def types(self, op: Op) -> None:
        if op.definition.elementwise is not None:
            shapes = {v.type.shape if isinstance(v.type, TileType) else None for v in op.operands}
            self.require(len(shapes) == 1, "V3", "the operands of an elementwise op are not of one shape")
        try:
            wanted = self.infer(op.definition, tuple(v.type for v in op.operands), op.attrs)
        except (TilegradError, TypeError) as error:
            self.require(False, "V3", getattr(error, "message", str(error)))
            return
        self.same(wanted, (v.type for v in op.results), "V3", "results")

    def same(self, wanted: Iterable[Type], found: Iterable[Type], rule: str, what: str) -> None:
        a, b = tuple(wanted), tuple(found)
        self.require(a == b, rule, f"{what} are ({_listed(b)}), they must be ({_listed(a)})")

    def lane_op(self, op: Op) -> None:
        """V5, V6 for an op inside lane code."""
        self.require(not op.definition.cooperative, "V5", "all lanes must reach this op together")
        for v in op.results:
            self.require(not isinstance(v.type, TileType), "V5", "lane code makes a tile")
        if op.name in ("push", "pop"):
            self.require(is_varying(op.operands[0].type), "V5", "lane code uses a stack of the whole block")
        self.require(self.where != "map" or op.name not in _PLACES, "V6", "an element of a map is no lane")

    # --- ops with regions

    def region_op(self, op: Op) -> None:
        check = {"if": self.if_, "for": self.for_, "while": self.while_, "map": self.map_}.get(op.name)
        self.require(check is not None, "V4", "this op cannot hold regions")
        assert check is not None
        count = 2 if op.name in ("if", "while") else 1
        self.require(len(op.regions) == count, "V4", f"{len(op.regions)} regions instead of {count}")
        outer, known = self.where, self.known
        if op.name != "while" or op.regions[0].ops:
            self.where = outer or ("map" if op.name == "map" else "lanes" if regions.is_lane_code(op) else "")
        if op.name == "map":
            self.known = {v for v in known if not is_varying(v.type)}
        for region in op.regions:
            self.block(region)
        self.where, self.known, self.op = outer, known, op
        check(op)

    def lane_results(self, op: Op) -> None:
        if regions.is_lane_code(op):
            for v in op.results:
                good = isinstance(v.type, (ScalarType, StackType)) and v.type.varying
                self.require(good, "V5", f"a result of lane code is {v.type}")

    def if_(self, op: Op) -> None:
        self.require(len(op.operands) == 1 and _is_bool(op.operands[0].type), "V4", "the condition is not one bool")
        results = [v.type for v in op.results]
        for region in op.regions:
            self.require(not region.args, "V4", "a branch has arguments")
            self.same(results, (v.type for v in region.yields), "V4", "yields")
        self.lane_results(op)

    def for_(self, op: Op) -> None:
        self.require(len(op.operands) >= 3, "V4", "start, stop and step are needed")
        bounds = [v.type for v in op.operands[:3]]
        first = bounds[0]
        good = isinstance(first, ScalarType) and first.dtype.is_int
        self.require(good, "V4", f"the range is over {first}")
        assert isinstance(first, ScalarType)
        plain = {ScalarType(t.dtype) if isinstance(t, ScalarType) else t for t in bounds}
        self.require(len(plain) == 1, "V4", f"the range is over ({_listed(bounds)})")
        index = ScalarType(first.dtype, any(map(is_varying, bounds)))
        self.carried(op, [index], op.regions[0])
        self.lane_results(op)

    def while_(self, op: Op) -> None:
        for region in op.regions:
            self.carried(op, [], region)
        verdict = op.regions[0].yields
        self.require(len(verdict) == 1 and _is_bool(verdict[0].type), "V4", "the condition is not one bool")
        self.lane_results(op)

    def carried(self, op: Op, lead: Sequence[Type], region: Block) -> None:
        """The carried values of a loop have the same types at entry, in every turn, and at the end."""
        types = [v.type for v in regions.initial(op)]
        self.same([*lead, *types], (v.type for v in region.args), "V4", "arguments")
        if region is op.regions[-1]:
            self.same(types, (v.type for v in region.yields), "V4", "yields")
        self.same(types, (v.type for v in op.results), "V4", "results")

    def map_(self, op: Op) -> None:
        tiles = [v.type for v in op.operands]
        self.require(bool(tiles), "V4", "a map needs a tile")
        shapes = {t.shape for t in tiles if isinstance(t, TileType)}
        self.require(len(shapes) == 1 and all(isinstance(t, TileType) for t in tiles), "V4", "no tiles of one shape")
        (region,), (shape,) = op.regions, shapes
        elements = [ScalarType(t.dtype, varying=True) for t in tiles if isinstance(t, TileType)]
        self.same(elements, (v.type for v in region.args), "V4", "arguments")
        scalars = [v.type for v in region.yields if isinstance(v.type, ScalarType)]
        self.require(len(scalars) == len(region.yields), "V4", "a map yields scalars")
        self.same([TileType(t.dtype, shape) for t in scalars], (v.type for v in op.results), "V4", "results")


def _is_bool(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.dtype.kind == "b"


def _listed(types: Iterable[Type]) -> str:
    return ", ".join(map(str, types))
