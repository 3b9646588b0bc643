"""The layer rule: a module imports only from lower layers, inside a package without cycles, never inside a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilegrad"
LAYERS = (
    ("diagnostics", "dtypes", "config"),
    ("ir",),
    ("emit", "op"),
    ("ops",),
    ("interpreter", "frontend", "passes", "ad"),
    ("schedule",),
    ("codegen",),
    ("runtime",),
    ("compiler", "tape", "kernel", "transform", "testing", "interop", "lib", "cli", "__init__"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def module_name(path: Path) -> str:
    parts = ["tilegrad", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


FILES = {module_name(p): p for p in sorted(SOURCE.rglob("*.py"))}


def room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> list[tuple[str, bool]]:
    """The modules of tilegrad that a file imports, and whether it does so inside a function."""
    tree = ast.parse(path.read_text())
    inner = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.Lambda) for n in ast.walk(f)}
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            children = [f"{node.module}.{a.name}" for a in node.names]
            names = [c if c in FILES else node.module for c in children]
        found += [(n, id(node) in inner) for n in dict.fromkeys(names) if n.split(".")[0] == "tilegrad"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_imports_only_from_lower_layers(name):
    for target, inside in imports(FILES[name]):
        assert not inside, f"{name} imports {target} inside a function"
        mine, other = room(name), room(target)
        allowed = mine == other or LEVEL[other] < LEVEL[mine] or LEVEL[mine] == len(LAYERS) - 1
        if mine == "runtime":
            allowed = other == "runtime" or LEVEL[other] == 0
        assert allowed, f"{name} (layer {LEVEL[mine]}) imports {target} (layer {LEVEL[other]})"


def test_no_import_cycles():
    edges = {name: [t for t, _ in imports(path) if t in FILES] for name, path in FILES.items()}
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != 1, "cycle: " + " -> ".join((*trail, name))
        if name not in state:
            state[name] = 1
            for target in edges[name]:
                visit(target, (*trail, name))
            state[name] = 2

    for name in FILES:
        visit(name, ())
