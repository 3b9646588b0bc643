"""Where a mistake is and how it is told: source locations, the error classes, and their rendering with carets.

A checker raises with what it knows (a message, a label for the caret, a way out); whoever knows the place adds it
with `error.at(loc)`. Does not know about types, IR or kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of source text inside a function, and the call through which it was inlined, if any."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0
    function: str = ""
    text: str = ""
    called_from: Loc | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column + 1}"
        return f"{place} in {self.function}" if self.function else place


UNKNOWN = Loc("<unknown>", 0)


class TilegradError(Exception):
    """Base of every error that tilegrad raises: a message, the place, a label under the caret, and a way out."""

    def __init__(self, message: str, *, loc: Loc | None = None, label: str = "", help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.label = label
        self.help = help

    def at(self, loc: Loc | None) -> Self:
        """This error, placed at `loc` unless it already has a place."""
        self.loc = self.loc or loc
        return self

    def __str__(self) -> str:
        return render(self.message, self.loc, self.label, self.help)


class KernelSyntaxError(TilegradError, SyntaxError):
    """The kernel uses Python syntax that has no meaning on a device."""

    __str__ = TilegradError.__str__


class KernelNameError(TilegradError, NameError):
    """A name in a kernel is unknown, or bound on only some of the paths that lead to its use."""


class TypeMismatch(TilegradError, TypeError):
    """A value has the wrong type or dtype for what is done with it."""


class ShapeMismatch(TilegradError, ValueError):
    """A tile or array has the wrong shape or rank, or a shape is not a compile-time constant."""


class LaunchError(TilegradError, ValueError):
    """The arguments or the dimensions of a launch do not fit the kernel."""


class KernelIndexError(TilegradError, IndexError):
    """An element index lies outside its tile or array."""


class KernelValueError(TilegradError, ValueError):
    """A value found while a kernel ran is not allowed, for example a zero step in `range`."""


class KernelZeroDivisionError(TilegradError, ZeroDivisionError):
    """An integer was divided by zero while a kernel ran."""


class KernelAssertionError(TilegradError, AssertionError):
    """An `assert` in a kernel failed."""


class GradientUndefined(TilegradError):
    """The derivative cannot be given exactly, so it is refused. Names the lines that prevent it."""


class GradientNotFinite(TilegradError, FloatingPointError):
    """A backward pass that was asked to look has met NaN or an infinity; names the line where it first appears."""


class CompilerBug(TilegradError):
    """tilegrad broke one of its own rules. Not the user's fault: please report it with the attached text."""


def render(message: str, loc: Loc | None, label: str = "", help: str = "") -> str:
    """The full text of an error: message, source line with carets, the chain of calls, and the help line."""
    lines = [message]
    if loc is not None and loc.line > 0:
        lines += _excerpt(loc, label)
        outer = loc.called_from
        while outer is not None:
            lines.append(f"  called from {outer}")
            if outer.text:
                lines.append(f"    {outer.line} | {outer.text.rstrip()}")
            outer = outer.called_from
    elif label:
        lines.append(f"  {label}")
    if help:
        lines.append(f"  help: {help}")
    return "\n".join(lines)


def _excerpt(loc: Loc, label: str) -> list[str]:
    lines = [f"  --> {loc}"]
    if loc.text:
        number = f"    {loc.line} | "
        text = loc.text.rstrip()
        width = max(1, min(loc.end_column or len(text), len(text)) - loc.column)
        lines.append(number + text)
        lines.append(" " * (len(number) + loc.column) + "^" * width + (f" {label}" if label else ""))
    elif label:
        lines.append(f"    {label}")
    return lines
