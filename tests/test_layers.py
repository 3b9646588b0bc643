"""The layer rule: a module imports only from lower layers, inside a package without cycles, never inside a function."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilegrad"

#: The rooms of each layer, from the ground up; CONTRIBUTING.md shows the same list.
LAYERS = (
    ("diagnostics", "dtypes", "element_types", "config", "printing"),
    ("ir",),
    ("emit", "op", "composite"),
    ("ops",),
    ("interpreter", "frontend", "passes", "ad"),
    ("schedule",),
    ("codegen",),
    ("runtime",),
    (
        "compiler",
        "tape",
        "arguments",
        "commands",
        "kernel",
        "functional",
        "types",
        "op_checks",
        "gradcheck",
        "testing",
        "fuzz",
        "interop",
        "lib",
        "cli",
        "__main__",
        "tilegrad",
    ),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
GROUND, TOP = 0, len(LAYERS) - 1


def module_name(path: Path) -> str:
    parts = ("tilegrad", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(p): p for p in sorted(SOURCE.rglob("*.py"))}


@dataclass
class Import:
    target: str
    line: int
    in_function: bool
    #: under `if TYPE_CHECKING:`, so it does not happen when the program runs
    for_types: bool


def imports(name: str) -> Iterator[Import]:
    """All imports of a module, those of other libraries included."""

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, in_function, for_types)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}:{node.lineno}: write the whole name instead of a relative import"
            for alias in node.names:
                child = f"{node.module}.{alias.name}"
                yield Import(child if child in FILES else str(node.module), node.lineno, in_function, for_types)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            in_function = True
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for_types = True
        for child in ast.iter_child_nodes(node):
            yield from visit(child, in_function, for_types)

    return visit(ast.parse(FILES[name].read_text()), False, False)


def room(name: str) -> str:
    """The first part of a module's name below the package: what the layers are made of."""
    return name.split(".")[1] if "." in name else name


def allowed(mine: str, other: str) -> bool:
    if mine == other:
        return True
    if mine == "runtime":
        return LEVEL[other] == GROUND
    return LEVEL[other] < LEVEL[mine] or LEVEL[mine] == LEVEL[other] in (GROUND, TOP)


@pytest.mark.parametrize("name", FILES)
def test_imports_only_from_lower_layers(name: str) -> None:
    assert room(name) in LEVEL, f"{name} has no place in LAYERS"
    for found in imports(name):
        place = f"{name}:{found.line} imports {found.target}"
        assert not found.in_function, f"{place} inside a function"
        if found.target in FILES:
            mine, other = room(name), room(found.target)
            assert allowed(mine, other), f"{place}: layer {LEVEL[mine]} from layer {LEVEL[other]}"


def test_no_import_cycles() -> None:
    edges = {name: [i.target for i in imports(name) if i.target in FILES and not i.for_types] for name in FILES}
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


def test_only_the_facades_know_llvmlite() -> None:
    users = {name for name in FILES for i in imports(name) if i.target.split(".")[0] == "llvmlite"}
    assert users <= {"tilegrad.runtime.engine", "tilegrad.cli.doctor"}
