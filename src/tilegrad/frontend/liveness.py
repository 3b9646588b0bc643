"""Which names may still be read after each statement of a function, and at the head of each loop.

The classic backward analysis on structured syntax. Control flow merges and carries only live names: a temporary that
is used again with another type in the next loop is not an error.
Does not know what the names mean.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

Names = frozenset[str]
NONE: Names = frozenset()


def loads(*nodes: ast.AST | None) -> Names:
    """Every name that is read anywhere inside the nodes, nested functions included."""
    return frozenset(
        n.id
        for node in nodes
        if node is not None
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def stores(nodes: Iterable[ast.AST]) -> Names:
    """Every name that is assigned inside the nodes, outside of nested functions."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
            continue
        elif isinstance(node, ast.Lambda):
            continue
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def rebinds(nodes: Iterable[ast.AST]) -> Names:
    """The names that are assigned otherwise than by `name op= value`, which writes a tile in place."""
    inside = [n for node in nodes for n in ast.walk(node)]
    in_place = {id(n.target) for n in inside if isinstance(n, ast.AugAssign)}
    return frozenset(
        n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in in_place
    ) | frozenset(n.name for n in inside if isinstance(n, ast.FunctionDef))


class Liveness:
    """Fills `after` (live after a statement) and `head` (live when a loop is about to test for its next turn)."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.after: dict[ast.AST, Names] = {}
        self.head: dict[ast.AST, Names] = {}
        self._block(body, NONE, NONE, NONE)

    def _block(self, body: Sequence[ast.stmt], out: Names, broken: Names, continued: Names) -> Names:
        for statement in reversed(body):
            self.after[statement] = self.after.get(statement, NONE) | out
            out = self._statement(statement, out, broken, continued)
        return out

    def _statement(self, s: ast.stmt, out: Names, broken: Names, continued: Names) -> Names:
        if isinstance(s, ast.If):
            either = self._block(s.body, out, broken, continued) | self._block(s.orelse, out, broken, continued)
            return loads(s.test) | either
        if isinstance(s, (ast.For, ast.While)):
            return self._loop(s, out, broken, continued)
        if isinstance(s, ast.Return):
            return loads(s.value)
        if isinstance(s, ast.Break):
            return broken
        if isinstance(s, ast.Continue):
            return continued
        if isinstance(s, ast.FunctionDef):
            return (out - {s.name}) | loads(s)
        if isinstance(s, ast.AugAssign):
            return out | loads(s) | stores([s.target])
        return (out - self._killed(s)) | loads(s)

    @staticmethod
    def _killed(s: ast.stmt) -> Names:
        targets: list[ast.expr] = []
        if isinstance(s, ast.Assign):
            targets = s.targets
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            targets = [s.target]
        return stores(targets)

    def _loop(self, s: ast.For | ast.While, out: Names, broken: Names, continued: Names) -> Names:
        done = self._block(s.orelse, out, broken, continued)
        forever = isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and bool(s.test.value)
        fixed = NONE if forever else done
        target = stores([s.target]) if isinstance(s, ast.For) else NONE
        if isinstance(s, ast.While):
            fixed |= loads(s.test)
        head = fixed
        while True:
            entered = self._block(s.body, head, out, head) - target
            if entered | fixed | head == head:
                break
            head |= entered | fixed
        self.head[s] = head
        return head | loads(s.iter) if isinstance(s, ast.For) else head
