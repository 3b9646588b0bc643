"""Dead code elimination: drops what no effect depends on.

Rules, each with a tiny example:
    R1 an op whose results are unused and that has no effect is dropped           %1 = add(%a, %b)   unused
    R2 a carried value of a loop is dropped if neither its result is used nor
       anything live in the loop reads it                                         for(...; %x) { yield(%x') }
    R3 a result of `if` that is unused is dropped, with what only it needed
    R4 a region op in which nothing is live is dropped
Contract: effects stay, in their order, and so does what may raise an error, except views. Does not touch stacks (see
`ad.residuals`).
"""

from __future__ import annotations

from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ops.control import finish, for_, if_, map_, while_
from tilegrad.passes.effects import may_raise


def run(kernel: Kernel) -> Kernel:
    """The kernel without dead code."""
    live = _Liveness(kernel)
    return _Sweep(kernel, live).run()


class _Liveness:
    """Marks live ops and values, starting from effects."""

    def __init__(self, kernel: Kernel) -> None:
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self.owner: dict[Block, Op] = {}
        self.home: dict[Op, Block] = {}
        self.arg_of: dict[Value, Block] = {}
        self.todo: list[Value] = []
        self._index(kernel.body)
        self._roots(kernel.body)
        while self.todo:
            self._trace(self.todo.pop())

    def _index(self, block: Block) -> None:
        for arg in block.args:
            self.arg_of[arg] = block
        for op in block.ops:
            self.home[op] = block
            for region in op.regions:
                self.owner[region] = op
                self._index(region)

    def _roots(self, block: Block) -> None:
        for op in block.ops:
            if op.definition.effect not in ("none", "read") or may_raise(op):
                self._keep(op)
                self._keep_owners(block)
            for region in op.regions:
                self._roots(region)

    def _keep_owners(self, block: Block) -> None:
        owner = self.owner.get(block)
        while owner is not None and owner not in self.ops:
            self._keep(owner)
            owner = self.owner.get(self.home[owner])

    def _keep(self, op: Op) -> None:
        """The op runs: everything that decides whether and how it runs is live."""
        if op in self.ops:
            return
        self.ops.add(op)
        for v in structural_operands(op):
            self._need(v)
        if op.definition is while_:
            self._need(op.regions[0].yields[0])

    def _need(self, v: Value) -> None:
        if v not in self.values:
            self.values.add(v)
            self.todo.append(v)

    def _trace(self, v: Value) -> None:
        if v.op is not None:
            self._keep(v.op)
            for y in _sources(v.op, v.index):
                self._need(y)
        elif (block := self.arg_of[v]) in self.owner:
            self._need_arg(self.owner[block], block, v.index)

    def _need_arg(self, op: Op, block: Block, index: int) -> None:
        self._keep(op)
        if op.definition is for_ and index > 0:
            for y in _sources(op, index - 1):
                self._need(y)
        elif op.definition is while_:
            for y in _sources(op, index):
                self._need(y)
        elif op.definition is map_:
            self._need(op.operands[index])


def structural_operands(op: Op) -> tuple[Value, ...]:
    """The operands that an op reads as soon as it runs, whichever of its results are used."""
    if op.definition is for_:
        return op.operands[:3]
    if op.definition in (while_, map_):
        return op.operands[:1] if op.definition is map_ else ()
    return op.operands


def _sources(op: Op, k: int) -> list[Value]:
    """What result k of a region op is made of: yields, initial values, and the carried arguments themselves."""
    if op.definition is if_ or op.definition is map_:
        return [r.yields[k] for r in op.regions]
    if op.definition is for_:
        return [op.operands[3 + k], op.regions[0].yields[k], op.regions[0].args[1 + k]]
    if op.definition is while_:
        test, body = op.regions
        return [op.operands[k], body.yields[k], test.args[k], body.args[k]]
    return []


class _Sweep(Rewriter):
    """Copies what is live."""

    def __init__(self, kernel: Kernel, live: _Liveness) -> None:
        super().__init__(kernel)
        self.live = live
        #: which positions the yield of the block in hand keeps
        self.kept: list[int] | None = None

    def ops(self, old: Block) -> None:
        for op in old.ops[:-1]:
            if op in self.live.ops:
                self._rebuild(op)
        kept = range(len(old.yields)) if self.kept is None else self.kept
        finish(self.builder, [self.value(old.yields[k]) for k in kept])

    def _rebuild(self, op: Op) -> None:
        operands = tuple(self.value(v) for v in op.operands)
        if not op.regions:
            self.values.update(zip(op.results, self.copy(op, operands), strict=True))
            return
        kept = [k for k, v in enumerate(op.results) if self._is_live(op, k)]
        lead = 3 if op.definition is for_ else 1 if op.definition is if_ else 0
        carried = [operands[lead + k] for k in kept] if op.definition in (for_, while_) else []
        if op.definition is map_:
            inputs = [k for k, a in enumerate(op.regions[0].args) if a in self.live.values] or [0]
            new = (tuple(operands[k] for k in inputs), tuple(self._region(op, r, kept, inputs) for r in op.regions))
        else:
            args = [*range(1 if op.definition is for_ else 0)]
            args += [len(args) + k for k in kept] if op.definition in (for_, while_) else []
            regions = tuple(self._region(op, r, kept, args) for r in op.regions)
            new = ((*operands[:lead], *carried), regions)
        types = tuple(op.results[k].type for k in kept)
        results = self.builder.insert(op.definition, new[0], op.attrs, new[1], types, op.loc).results
        for k, v in zip(kept, results, strict=True):
            self.values[op.results[k]] = v

    def _is_live(self, op: Op, k: int) -> bool:
        if op.results[k] in self.live.values:
            return True
        shift = 1 if op.definition is for_ else 0
        return op.definition in (for_, while_) and any(r.args[shift + k] in self.live.values for r in op.regions)

    def _region(self, op: Op, region: Block, kept: list[int], args: list[int]) -> Block:
        outer = self.kept
        self.kept = None if op.definition is while_ and region is op.regions[0] else kept
        with self.builder.region(*(region.args[k].type for k in args)) as new:
            for k, b in zip(args, new.args, strict=True):
                self.values[region.args[k]] = b
            self.ops(region)
        self.kept = outer
        return new
