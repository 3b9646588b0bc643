"""Writes the text of one LLVM function and what it needs around it: constants, declarations, attributes.

Strings only, no objects per instruction: compile time counts. Does not know what the instructions mean.
"""

from __future__ import annotations


class FunctionText:
    """The lines of a function under construction. A block is open from `start` until its terminator."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.head: list[str] = []
        self.globals: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.label = "entry"
        self._count = 0
        self._labels = 0

    def let(self, instruction: str) -> str:
        """Append an instruction with a result, and return the name of the result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + instruction)

    def new_label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}{self._labels}"

    def start(self, label: str) -> None:
        """Open the block `label`."""
        self.lines.append(f"{label}:")
        self.label = label

    def placeholder(self) -> int:
        """A line to be filled in later (a phi whose inputs are not known yet)."""
        self.lines.append("")
        return len(self.lines) - 1

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def alloca(self, bytes_: int) -> str:
        """Memory in the function's frame."""
        self._count += 1
        name = f"%v{self._count}"
        self.head.append(f"  {name} = alloca [{bytes_} x i8], align 64")
        return name

    def declare(self, name: str, result: str, params: str) -> None:
        """Make a function outside the module callable."""
        self.declarations.setdefault(name, f"declare {result} @{name}({params})")

    def table(self, initializer: str) -> str:
        """The name of a constant global with this initializer."""
        name = self.globals.get(initializer)
        if name is None:
            name = self.globals[initializer] = f"@table{len(self.globals)}"
        return name

    def module(self, name: str, params: list[str], attributes: str) -> str:
        """The text of the module: this function, its tables and declarations."""
        parts = [f"{g} = private unnamed_addr constant {init}, align 64" for init, g in self.globals.items()]
        parts.append(f"define void @{name}({', '.join(params)}) #0 {{\nentry:")
        parts += self.head
        parts += self.lines
        parts.append("  ret void\n}")
        parts += self.declarations.values()
        parts.append(f"attributes #0 = {{ {attributes} }}\n")
        return "\n".join(parts)
