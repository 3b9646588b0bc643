"""Splits loops before they are differentiated, so that their backward pass saves few turns: checkpoints.

A reversed loop needs the carried values at the start of every turn. A loop in the body of another saves nothing while
the outer one runs forward; it is run again inside each reversed turn of the outer loop (see `replay`). A long loop is
therefore made two: first `turns` turns as they are, then the rest in chunks, each a turn of a new outer loop. What is
alive at once are the starts of the chunks and the turns of one chunk: about 2 sqrt(n) of n turns, at the cost of
running the rest forward once more. A `while`, whose turns are not known before, has chunks of `turns`, 2 `turns`,
3 `turns`, ... turns. A loop of no more than `turns` turns runs as it did.
Does not decide which loops are split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad import dtypes as dt
from tilegrad.ir.core import Block, Kernel, Op, Value
from tilegrad.ir.rewrite import Rewriter
from tilegrad.ir.types import dtype_of
from tilegrad.op import REGISTRY, constant
from tilegrad.ops.control import build_for, build_while

Body = Callable[..., Sequence[Value]]


def split(kernel: Kernel, loops: set[Op], turns: int) -> Kernel:
    """The kernel with each of the loops run in chunks after its first `turns` turns."""
    return _Split(kernel, loops, turns).run()


class _Split(Rewriter):
    def __init__(self, kernel: Kernel, loops: set[Op], turns: int) -> None:
        super().__init__(kernel)
        self.loops = loops
        self.turns = turns

    def op(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        if op not in self.loops:
            return self.copy(op, operands)
        with self.builder.at(op.loc):
            return self._for(op, operands) if op.name == "for" else self._while(op, operands)

    def _inline(self, block: Block, args: Sequence[Value]) -> list[Value]:
        """The ops of a region once more, for these arguments; what it yields."""
        self.values.update(zip(block.args, args, strict=True))
        for op in block.ops[:-1]:
            results = self.op(op, tuple(self.value(v) for v in op.operands))
            self.values.update(zip(op.results, results, strict=True))
        return [self.value(v) for v in block.yields]

    def _for(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        start, stop, step, *init = operands
        kind = dtype_of(start.type)
        add, sub, mul, div, least, most = (
            REGISTRY[n] for n in ("add", "sub", "mul", "floordiv", "minimum", "maximum")
        )  # fmt: skip
        few, zero, one = (constant(n, kind) for n in (self.turns, 0, 1))
        (block,) = op.regions

        def body(*args: Value) -> list[Value]:
            return self._inline(block, args)

        count = most(div(sub(add(sub(stop, start), step), REGISTRY["sign"](step)), step), zero)
        first = least(count, few)
        middle = add(start, mul(first, step))
        carried = build_for(start, middle, step, init, body)
        rest = sub(count, first)
        root = REGISTRY["astype"](REGISTRY["sqrt"](REGISTRY["astype"](rest, dtype=dt.float64)), dtype=kind)
        size = most(few, root)

        def chunk(c: Value, *args: Value) -> Sequence[Value]:
            done = mul(c, size)
            begin = add(middle, mul(done, step))
            return build_for(begin, add(begin, mul(least(size, sub(rest, done)), step)), step, args, body)

        return build_for(zero, div(add(rest, sub(size, one)), size), one, carried, chunk)

    def _while(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        test, block = op.regions

        def run(args: Sequence[Value], limit: Value) -> tuple[Value, ...]:
            """Go on for at most `limit` turns."""

            def more(*now: Value) -> Value:
                (verdict,) = self._inline(test, now[:-1])
                result: Value = REGISTRY["bit_and"](verdict, REGISTRY["lt"](now[-1], limit))
                return result

            def turn(*now: Value) -> list[Value]:
                return [*self._inline(block, now[:-1]), REGISTRY["add"](now[-1], 1)]

            return build_while([*args, constant(0, dt.int32)], more, turn)[:-1]

        few = constant(self.turns, dt.int32)

        def chunk(*args: Value) -> list[Value]:
            return [*run(args[:-1], args[-1]), REGISTRY["add"](args[-1], few)]

        carried = run(operands, few)
        return build_while([*carried, few], lambda *args: self._inline(test, args[:-1])[0], chunk)[:-1]


def is_long(op: Op, turns: int) -> bool:
    """Whether a loop may run for more than `turns` turns."""
    if op.name != "for":
        return True
    known = [v.op.attrs["value"] for v in op.operands[:3] if v.op is not None and v.op.name == "constant"]
    return len(known) < 3 or len(range(*known)) > turns
