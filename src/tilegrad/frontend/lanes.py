"""A builder that keeps lane code and cooperative ops apart.

Every op of a traced kernel passes through `LaneBuilder.insert`, which
  * refuses a cooperative op, or one that makes a tile, under a condition that differs between lanes;
  * makes an atomic or a print of uniform operands happen once for each lane, where the kernel counts lanes;
  * lets lanes that have returned early do nothing more (`mask`), when the rest of the kernel is traced flat.
Does not know Python syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilegrad.diagnostics import KernelSyntaxError, Loc
from tilegrad.ir.builder import Builder
from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.opdef import OpDef
from tilegrad.ir.types import ArrayType, ScalarType, TileType, Type, is_varying
from tilegrad.op import REGISTRY, constant
from tilegrad.ops.control import as_type, finish, if_, spread

#: ops without an effect that lanes have a part in
_BY_LANES = (
    "tile_from_lanes", "tile_add_at", "tile_bits_at", "tile_put", "tile_put_masked", "tile_extract", "lanes_present",
)  # fmt: skip
#: ops on one element of a tile
_ELEMENTS = ("tile_extract", "tile_put", "tile_put_masked", "tile_add_at", "tile_bits_at")
_LANE_EFFECTS = ("read", "write", "atomic", "raise", "print")


@dataclass(frozen=True, slots=True)
class Divergence:
    """Why lanes may be apart: the statement, and whether it is the rest of a kernel that some lanes have left."""

    loc: Loc
    what: str
    returned: bool = False


class Divergent(Exception):
    """A cooperative op was met where lanes are apart only because some have returned from the kernel."""


class LaneBuilder(Builder):
    """See the module docstring."""

    def __init__(self, block: Block, per_lane: bool) -> None:
        super().__init__(block)
        self.per_lane = per_lane
        self.divergence: list[Divergence] = []
        #: the blocks around the one that is being built, outermost first
        self.around: list[Block] = []
        #: how many of them are around the code in which lanes are apart
        self.shore = 0
        #: gives the varying bool of the lanes that are still there, or None
        self.mask: Callable[[], Value | None] = lambda: None
        self._masking = True
        #: what the user wrote for the call that is being emitted, for messages
        self.called = ""

    @contextmanager
    def diverged(self, reason: Divergence | None) -> Iterator[None]:
        """Lanes are apart inside the context (unless there is no reason)."""
        if reason is None:
            yield
            return
        outer, self.shore = self.shore, self.shore if self.divergence else len(self.around)
        self.divergence.append(reason)
        try:
            yield
        finally:
            self.divergence.pop()
            self.shore = outer

    @contextmanager
    def region(self, *types: Type) -> Iterator[Block]:
        self.around.append(self.block)
        try:
            with super().region(*types) as block:
                yield block
        finally:
            self.around.pop()

    @contextmanager
    def ashore(self, *values: Value) -> Iterator[None]:
        """Emit ops on these values before the code in which lanes are apart, unless the values are made inside it."""
        inside = [*self.around[self.shore :], self.block]
        known = {v for b in inside for v in b.args} | {v for b in inside for op in b.ops for v in op.results}
        if not self.divergence or not self.shore or not known.isdisjoint(values):
            yield
            return
        block, self.block = self.block, self.around[self.shore - 1]
        divergence, self.divergence = self.divergence, []
        try:
            yield
        finally:
            self.block, self.divergence = block, divergence

    def insert(
        self,
        definition: OpDef,
        operands: tuple[Value, ...] = (),
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
        types: tuple[Type, ...] = (),
        loc: Loc | None = None,
    ) -> Op:
        if definition.cls == "control" and not any(isinstance(t, TileType) for t in types):
            return super().insert(definition, operands, attrs, regions, types, loc)
        if self.divergence and is_cooperative(definition, types):
            self._refuse(definition)
        if self.per_lane or self.divergence:
            operands, types = self._for_each_lane(definition, operands, types)
        mask = self._mask_for(definition) if self._masking else None
        if mask is None:
            return super().insert(definition, operands, attrs, regions, types, loc)
        return self._masked(mask, definition, operands, attrs, regions, types, loc)

    def _mask_for(self, definition: OpDef) -> Value | None:
        if definition.effect not in _LANE_EFFECTS and definition.name not in _BY_LANES:
            return None
        self._masking = False
        try:
            return self.mask()
        finally:
            self._masking = True

    def _refuse(self, definition: OpDef) -> None:
        if all(d.returned for d in self.divergence):
            raise Divergent
        reason = next(d for d in reversed(self.divergence) if not d.returned)
        raise KernelSyntaxError(
            f"{self.called or definition.name} is a cooperative call: all lanes of a block must make it together, "
            f"but {reason.what} differs between lanes (line {reason.loc.line})",
            loc=self.loc, label=f"`{reason.loc.text.strip()}` may send some lanes elsewhere",
            help="move the call out of the branch, or choose between values with tg.where",
        )  # fmt: skip

    def _for_each_lane(
        self, definition: OpDef, operands: tuple[Value, ...], types: tuple[Type, ...]
    ) -> tuple[tuple[Value, ...], tuple[Type, ...]]:
        """An effect whose operands are all uniform is made one of every lane, by spreading one of them."""
        effect = definition.effect in ("atomic", "print") and not is_cooperative(definition, types)
        counted = effect or definition.name in ("tile_add_at", "tile_bits_at", "tile_from_lanes")
        if not counted or any(is_varying(v.type) for v in operands):
            return operands, types
        for i, v in enumerate(operands):
            if isinstance(v.type, ScalarType):
                operands = (*operands[:i], spread(v), *operands[i + 1 :])
                return operands, tuple(_varying(t) for t in types)
        return operands, types

    def _masked(
        self,
        mask: Value,
        definition: OpDef,
        operands: tuple[Value, ...],
        attrs: dict[str, Any] | None,
        regions: tuple[Block, ...],
        types: tuple[Type, ...],
        loc: Loc | None,
    ) -> Op:
        self._masking = False
        try:
            if definition.name in _ELEMENTS or definition.name == "tile_from_lanes":
                definition, operands = self._of_present(mask, definition, operands, attrs)
            elif definition.name == "lanes_present":
                op = super().insert(definition, operands, attrs, regions, types, loc)
                here = REGISTRY["tile_from_lanes"](mask, **_block_dim(attrs))
                both: Value = REGISTRY["bit_and"](op.result, here)
                assert both.op is not None
                return both.op
            elif self._is_lane_effect(definition, operands, types):
                return self._under(mask, definition, operands, attrs, types, loc)
            return super().insert(definition, operands, attrs, regions, types, loc)
        finally:
            self._masking = True

    @staticmethod
    def _of_present(
        mask: Value, definition: OpDef, operands: tuple[Value, ...], attrs: dict[str, Any] | None
    ) -> tuple[OpDef, tuple[Value, ...]]:
        """The op and operands such that absent lanes change nothing, and their indices are not looked at."""
        where = REGISTRY["where"]

        def masked(x: Value, neutral: Value) -> Value:
            result: Value = where(mask, x, neutral)
            return result

        if definition.name == "tile_from_lanes":
            return definition, tuple(masked(x, _zero(x.type)) for x in operands)
        if definition.name == "tile_put":
            return REGISTRY["tile_put_masked"], (*operands[:2], mask, *operands[2:])
        if definition.name == "tile_put_masked":
            both: Value = REGISTRY["bit_and"](operands[2], mask)
            return definition, (*operands[:2], both, *operands[3:])
        first = 1 if definition.name == "tile_extract" else 2
        if not any(is_varying(x.type) for x in operands[first - 1 :]):
            return definition, operands
        index = tuple(masked(i, _zero(i.type)) if is_varying(i.type) else i for i in operands[first:])
        values = tuple(masked(x, _neutral(definition, x, attrs)) for x in operands[1:first])
        return definition, (operands[0], *values, *index)

    @staticmethod
    def _is_lane_effect(definition: OpDef, operands: tuple[Value, ...], types: tuple[Type, ...]) -> bool:
        if definition.effect not in _LANE_EFFECTS or is_cooperative(definition, types):
            return False
        return all(isinstance(t, ScalarType) for t in types) and not any(isinstance(v.type, TileType) for v in operands)

    def _under(
        self,
        mask: Value,
        definition: OpDef,
        operands: tuple[Value, ...],
        attrs: dict[str, Any] | None,
        types: tuple[Type, ...],
        loc: Loc | None,
    ) -> Op:
        """The op inside `if_(mask)`; lanes that are absent get zeros."""
        varying = tuple(_varying(t) for t in types)
        with self.region() as present:
            op = super().insert(definition, operands, attrs, (), types, loc)
            finish(self, [as_type(v, t) for v, t in zip(op.results, varying, strict=True)])
        with self.region() as absent:
            finish(self, [as_type(_zero(t), t) for t in varying])
        return super().insert(if_, (mask,), {}, (present, absent), varying, loc)


def is_cooperative(definition: OpDef, types: tuple[Type, ...]) -> bool:
    """Whether the lanes of a block must run the op together."""
    whole = definition.cooperative or definition.cls in ("sink", "fold")
    return whole or any(isinstance(t, TileType) for t in types)


def _varying(t: Type) -> Type:
    return ScalarType(t.dtype, varying=True) if isinstance(t, ScalarType) else t


def _zero(t: Type) -> Value:
    assert isinstance(t, (ScalarType, TileType)) and not isinstance(t, ArrayType)
    value = False if t.dtype.kind == "b" else 0.0 if t.dtype.is_float else 0
    return constant(value, t.dtype)


def _neutral(definition: OpDef, x: Value, attrs: dict[str, Any] | None) -> Value:
    """What changes nothing when it is added to an element, or combined with its bits."""
    assert isinstance(x.type, ScalarType)
    dtype = x.type.dtype
    if definition.name == "tile_bits_at" and attrs and attrs["bits"] == "and":
        return constant(-1 if dtype.kind == "i" else dtype.max, dtype)
    return constant(-0.0, dtype) if dtype.is_float else _zero(x.type)


def _block_dim(attrs: dict[str, Any] | None) -> dict[str, Any]:
    return {"block_dim": attrs["block_dim"]} if attrs and "block_dim" in attrs else {}
