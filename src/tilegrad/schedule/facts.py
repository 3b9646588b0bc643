"""What the scheduler needs to know of a kernel: who uses a value, where ops stand, which memory they touch.

Does not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.types import ArrayType, ScalarType, StackType, TileType, is_varying
from tilegrad.ops.control import constant, for_, if_, map_, while_, yield_
from tilegrad.passes.effects import may_raise

LOOPS = (for_, while_)
#: ops that touch a box of an array: an offset, and a shape
TILE_ACCESS = ("tile_load", "tile_store", "tile_atomic_add")


@dataclass(frozen=True)
class Access:
    """One touch of an array by an op: which memory (see `Kernel.memory`), and exactly which elements."""

    memory: int
    writes: bool
    #: array value, index operands and shape; equal keys touch the same elements in the same order
    key: tuple[object, ...]

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two matters."""
        return (self.writes or other.writes) and self.memory == other.memory


@dataclass(frozen=True)
class Update:
    """An atomic update of array elements: of which memory, of what kind, and whether its turn shows in a result."""

    memory: int
    kind: str
    ordered: bool
    repeated: bool = False

    def conflicts(self, other: Update) -> bool:
        """Whether it matters which of the two comes first."""
        return self.memory == other.memory and (self.kind != other.kind or self.ordered or other.ordered)


#: what undoes updates of array elements: these go from the highest lane to the lowest
FROM_THE_END = ("array_take", "array_add_back", "array_exch_back")
#: updates whose order shows in what they leave
_IN_ORDER = ("array_atomic_exch", "array_atomic_cas", "array_claim", "array_add_back", "array_exch_back")


class Facts:
    """Uses, positions and memory accesses of all ops of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.users: dict[Value, list[Op]] = {}
        self.home: dict[Op, Block] = {}
        self.position: dict[Op, int] = {}
        self.owner: dict[Block, Op] = {}
        self.block_of: dict[Value, Block] = {}
        self._accesses: dict[Op, tuple[Access, ...]] = {}
        self._visit(kernel.body)

    def _visit(self, block: Block) -> None:
        for arg in block.args:
            self.block_of[arg] = block
        for i, op in enumerate(block.ops):
            self.home[op] = block
            self.position[op] = i
            for v in op.operands:
                self.users.setdefault(v, []).append(op)
            for v in op.results:
                self.block_of[v] = block
            for region in op.regions:
                self.owner[region] = op
                self._visit(region)

    def uses(self, value: Value) -> list[Op]:
        """The ops that have `value` as an operand."""
        return self.users.get(value, [])

    def ancestor(self, op: Op, block: Block) -> Op | None:
        """The op of `block` that is, or encloses, `op`; None if `op` lies outside the block."""
        while self.home[op] is not block:
            outer = self.owner.get(self.home[op])
            if outer is None:
                return None
            op = outer
        return op

    def inside_loop(self, op: Op, block: Block) -> bool:
        """Whether a loop (or map) between `block` and `op` may run `op` many times."""
        home = self.home[op]
        while home is not block:
            outer = self.owner[home]
            if outer.definition in (*LOOPS, map_):
                return True
            home = self.home[outer]
        return False

    def updates(self, op: Op, repeated: bool = False) -> list[Update]:
        """The atomic updates of an op, those of its regions included; `repeated`: it stands in a loop."""
        again = repeated or op.definition in LOOPS
        found = [u for region in op.regions for inner in region.ops for u in self.updates(inner, again)]
        if op.definition.effect == "atomic":
            ordered = op.name in _IN_ORDER or any(self.uses(v) for v in op.results)
            kind = "array_atomic_add" if op.name == "array_atomic_sub" else op.name
            arrays = [v for v in op.operands if isinstance(v.type, ArrayType)]
            found += [Update(self.kernel.memory(a), kind, ordered, repeated) for a in arrays]
        return found

    def directions(self, op: Op) -> set[str]:
        """In which order the lanes must run the op: "ahead" from the lowest, "back" from the highest, or either."""
        found = {d for region in op.regions for inner in region.ops for d in self.directions(inner)}
        if op.name in FROM_THE_END:
            found.add("back")
        elif op.definition.effect == "write" or any(u.ordered for u in self.updates(op)):
            found.add("ahead")
        return found

    def takes_turns(self, op: Op) -> bool:
        """Whether the lanes must finish one update inside the op before any of them begins the next."""
        found = self.updates(op)
        return any(u.conflicts(v) for i, u in enumerate(found) for v in (found[i:] if u.repeated else found[i + 1 :]))

    def shares_stack(self, op: Op) -> bool:
        """Whether the op holds a push to, or a pop from, a stack of the whole block that was made outside of it."""
        return any(
            isinstance(v.type, StackType) and not v.type.varying and v.op is not None and not self._holds(op, v.op)
            for inner in _walk(op)
            for v in inner.operands
        )

    def _holds(self, op: Op, inner: Op) -> bool:
        """Whether `inner` stands in a region of `op`."""
        outer = self.owner.get(self.home[inner])
        while outer is not None and outer is not op:
            outer = self.owner.get(self.home[outer])
        return outer is op

    def accesses(self, op: Op) -> tuple[Access, ...]:
        """The memory accesses of an op, those of its regions included."""
        known = self._accesses.get(op)
        if known is None:
            found = [a for region in op.regions for inner in region.ops for a in self.accesses(inner)]
            effect = op.definition.effect
            if effect in ("read", "write", "atomic"):
                arrays = [v for v in op.operands if isinstance(v.type, ArrayType)]
                found += [Access(self.kernel.memory(a), effect != "read", _key(op, a)) for a in arrays]
            known = self._accesses[op] = tuple(found)
        return known


def _walk(op: Op) -> Iterator[Op]:
    """The ops in the regions of an op."""
    for region in op.regions:
        yield from region.walk()


def _key(op: Op, array: Value) -> tuple[object, ...]:
    if op.definition.name not in TILE_ACCESS and any(isinstance(v.type, TileType) for v in (*op.operands, *op.results)):
        return (op,)  # which elements it touches depends on the contents of tiles
    shape = op.attrs.get("shape")
    if shape is None:
        shape = next((v.type.shape for v in op.operands if isinstance(v.type, TileType)), None)
    index = tuple(v for v in op.operands if isinstance(v.type, ScalarType) and v is not array)
    return (array, tuple(constant_or_value(v) for v in index), shape)


def constant_or_value(v: Value) -> object:
    """A key under which equal constants are equal."""
    if v.op is not None and v.op.definition is constant:
        return (v.op.attrs["dtype"], v.op.attrs["value"])
    return v


def is_pure(op: Op) -> bool:
    """Whether the op may be computed where its result is read, or not at all: no effect, no region, no error."""
    plain = op.definition.effect == "none" and not op.regions and op.definition.cls in ("scalar", "point", "control")
    return plain and not may_raise(op)


def is_lane_code(op: Op) -> bool:
    """Whether a varying value enters or leaves the op, or anything inside it."""
    if any(is_varying(v.type) for v in (*op.operands, *op.results)):
        return True
    return any(is_lane_code(inner) for region in op.regions for inner in region.ops)


def needs_block(op: Op) -> bool:
    """Whether the op, or one inside it, works on tiles or must be reached by all lanes together."""
    if op.definition.cooperative or op.definition.cls in ("fold", "sink"):
        return True
    if op.definition.cls == "block" and not _lane_read(op):
        return True
    if op.definition in (if_, for_, while_, yield_) and any(
        isinstance(v.type, TileType) for v in (*op.operands, *op.results)
    ):
        return True
    return any(needs_block(inner) for region in op.regions for inner in region.ops)


def _lane_read(op: Op) -> bool:
    """Reading one element of a tile is the only block op that lane code may hold."""
    return not any(isinstance(v.type, (TileType, StackType)) for v in op.results) and op.definition.effect == "none"


def is_alias(v: Value) -> bool:
    """Whether the value is a stored tile under another shape, with no memory of its own."""
    return v.op is not None and v.op.definition.name == "tile_reshape"


def alias_source(v: Value) -> Value:
    """The value whose slot holds `v`: the source of a chain of reshapes."""
    while v.op is not None and is_alias(v):
        v = v.op.operands[0]
    return v
