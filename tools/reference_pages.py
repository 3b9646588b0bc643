"""Writes the reference pages of the documentation from docstrings; mkdocs calls `on_files`.

A docstring is a summary, then sections whose heading ends with a colon (`Args:`, `Gradient:`, `Example:`, ...).
Does not write anything into docs/.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import tilegrad as tg
from tilegrad.ops.catalog import FAMILIES

HOST = {
    "Kernels": (tg.kernel, tg.func, tg.launch, tg.launch_tiled, tg.set_module_options, tg.get_module_options),
    "Gradients": (tg.Tape, tg.vjp, tg.grad, tg.jvp, tg.value_and_grad, tg.func_grad, tg.func_replay,
                  tg.testing.gradcheck),
    "Arrays": (tg.Array, tg.array, tg.zeros, tg.ones, tg.full, tg.empty, tg.zeros_like, tg.ones_like, tg.full_like,
               tg.empty_like, tg.clone, tg.copy, tg.from_numpy),
}  # fmt: skip
SECTION = re.compile(r"^(Args|Returns|Raises|Gradient|Example|Yields|Note):\s*(.*)$")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in (("operations.md", operations()), ("host.md", host())):
        files.append(File.generated(config, name, content=text))
    return files


def operations() -> str:
    """Every operation that a kernel can call, by family."""
    parts = ["# Operations", "Inside a kernel, every one of these is called as `tg.<name>`."]
    for family in FAMILIES:
        public = getattr(family, "PUBLIC", {})
        if public:
            parts.append(f"## {title(family.__doc__)}")
            parts += [entry(name, operation) for name, operation in public.items()]
    return "\n\n".join(parts)


def host() -> str:
    """What is called outside of kernels."""
    parts = ["# Host functions"]
    for heading, things in HOST.items():
        parts.append(f"## {heading}")
        for thing in things:
            parts.append(entry(name_of(thing), thing))
            if isinstance(thing, type):
                parts += [entry(f"{thing.__name__}.{n}", m, "####") for n, m in methods(thing)]
    return "\n\n".join(parts)


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(cls).items():
        if not name.startswith("_") and member.__doc__ and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def name_of(thing: Any) -> str:
    return str(getattr(thing, "__name__", None) or getattr(thing, "name", ""))


def title(docstring: str | None) -> str:
    """The first sentence of a module's docstring."""
    return (docstring or "").strip().split(".\n")[0].splitlines()[0].rstrip(".")


def entry(name: str, thing: Any, level: str = "###") -> str:
    """Heading, signature and docstring of one thing."""
    head = f"{level} {name}"
    call = None if isinstance(thing, property) else signature(thing)
    shown = f"```python\n{name}{call}\n```\n\n" if call else ""
    return f"{head}\n\n{shown}{markdown(inspect.cleandoc(thing.__doc__ or ''))}"


def signature(thing: Any) -> str | None:
    """How it is called, without annotations that say nothing to a reader."""
    function: Callable[..., Any] = getattr(thing, "spelled", None) or getattr(thing, "body", None) or thing
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    given = [n for n, p in found.parameters.items() if n == "self" or (n == "block_dim" and p.default is p.empty)]
    parameters = [p.replace(annotation=p.empty) for n, p in found.parameters.items() if n not in given]
    return str(found.replace(parameters=parameters, return_annotation=found.empty)).replace("<class 'float'>", "float")


def markdown(docstring: str) -> str:
    """A docstring as Markdown: sections become bold words, their entries list items, and examples code."""
    lines: list[str] = []
    section, code = "", False
    for line in docstring.splitlines():
        heading = SECTION.match(line)
        if heading:
            section = heading[1]
            lines += ["```" if code else "", f"**{section}**", "", *filter(None, [heading[2]])]
            code = False
        elif line.strip().startswith(">>>") and not code:
            lines += ["", "```python", line.strip()]
            code = True
        elif code:
            lines.append(line.removeprefix("    "))
        elif section == "Args" and re.match(r"^    \S", line):
            name, _, text = line.strip().partition(":")
            lines.append(f"* `{name}`: {text.strip()}")
        else:
            lines.append(line.strip() if section else line)
    return "\n".join([*lines, "```" if code else ""])
