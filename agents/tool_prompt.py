"""Describes host tools to a model, as Python functions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from autogen_codeact.agents.text import shorten
from codeact_sandbox.tools.search import MAX_LISTED_CHARS, are_many, summary
from codeact_sandbox.types.tool import HostToolProtocol

MAX_NAMES_CHARS = 1200
MAX_MODULES = 20

TOOLS = "These functions of the host can be called in code, as any others; each call is made at once:"
COMPACT = (
    "These functions of the host can be called in code, as any others; each call is made at once. "
    "`help(name)` in code prints what one does and what it returns:"
)
MANY = (
    "Code can call {count} functions of the host without an import; each call is made at once. Print "
    '`search_tools("what is wanted", limit=5)` in code to find some with their signatures, or `help(name)` to read one. '
    "Some of their names:"
)


def describe_tools(tools: Sequence[HostToolProtocol]) -> str:
    """Describe host tools to a model: signatures and docstrings.

    Where that would be more than 8,000 characters (about 2,000 tokens), only the first line of each docstring is shown, and
    `help(name)` in code has the rest. If that is still more, code has `search_tools`, and some names are shown.
    """
    if not tools:
        return ""
    if are_many(tools):
        return _names_of(tools)
    full = describe_functions(TOOLS, tools)
    return full if len(full) <= MAX_LISTED_CHARS else _fenced(COMPACT, "\n".join(map(summary, tools)))


def _names_of(tools: Sequence[HostToolProtocol]) -> str:
    modules: dict[str, list[str]] = {}
    for tool in tools:
        modules.setdefault(tool.name.rpartition(".")[0], []).append(tool.name)
    shown = list(modules.items())[:MAX_MODULES]
    room = MAX_NAMES_CHARS // len(shown)
    lines = [f"- {f'{module}: ' if module else ''}{shorten(', '.join(names), room)}" for module, names in shown]
    if len(modules) > MAX_MODULES:
        lines.append(f"- and {len(modules) - MAX_MODULES:,} more modules")
    return "\n".join([MANY.format(count=f"{len(tools):,}"), *lines])


def describe_functions(head: str, tools: Sequence[HostToolProtocol]) -> str:
    """Describe functions in full, below a sentence about them."""
    return _fenced(head, "\n\n".join(map(_whole, tools)))


def _fenced(head: str, code: str) -> str:
    # A description that comes from a server must not end the fence.
    return "{}\n```python\n{}\n```".format(head, code.replace("```", "'''"))


def _whole(tool: HostToolProtocol) -> str:
    head = f"def {tool.name}{tool.signature}:"
    text = textwrap.indent(tool.description.strip().replace('"""', "'''"), "    ").strip()
    end = "\n    " if "\n" in text else ""
    return f'{head}\n    """{text}{end}"""' if text else f"{head} ..."
