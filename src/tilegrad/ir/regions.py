"""The shape of the ops that hold regions: which operands, arguments and yields belong to which result.

    if(condition) {then}{otherwise}           results are the yields of either region
    for(start, stop, step, *init) {(i, *c)}   carried values `c` start as `init`, go on as the yields, end as results
    while(*init) {(*c)}{(*c)}                 the first region yields whether to go on, the second the next `c`
    map(*tiles) {(*elements)}                 the yields at every element are the results

A region is *lane code* if its lanes (or the elements of a map) may part: see docs/internals.md.
Does not know what else an op does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilegrad.ir.core import Block, Op, Value
from tilegrad.ir.types import is_varying

#: How many operands stand before the initial values, and how many arguments before the carried ones.
_LEAD = {"if": 1, "for": 3}


def is_loop(op: Op) -> bool:
    """Whether the op hands carried values from turn to turn."""
    return op.name in ("for", "while")


def controls(op: Op) -> tuple[Value, ...]:
    """The operands that decide which region runs and how often."""
    return op.operands[: _LEAD.get(op.name, 0)]


def initial(op: Op) -> tuple[Value, ...]:
    """What the carried values of a loop start from."""
    return op.operands[_LEAD.get(op.name, 0) :]


def carried(op: Op, region: Block) -> tuple[Value, ...]:
    """The arguments of a loop's region that are handed from turn to turn."""
    return region.args[1:] if op.name == "for" else region.args


def is_lane_code(op: Op) -> bool:
    """Whether the regions of this op run for a part of the lanes, or for the elements of a tile."""
    if op.name == "map":
        return True
    if op.name == "while":
        return is_varying(op.regions[0].yields[0].type)
    return any(is_varying(v.type) for v in controls(op))


def sources(op: Op, k: int) -> Iterator[Value]:
    """The values that result `k` of a region op comes from."""
    if is_loop(op):
        yield initial(op)[k]
        yield op.regions[-1].yields[k]
    else:
        for region in op.regions:
            yield region.yields[k]
