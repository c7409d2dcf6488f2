"""How host tools are described to a model: as the Python that it may call."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from autogen_codeact.executors import HostTool

MAX_FULL_CHARS = 12_000
MAX_COMPACT_CHARS = 24_000
MAX_SUMMARY_CHARS = 120

TOOLS = "These functions of the host can be called in code, as any others; each call is made at once:"
COMPACT = (
    "These functions of the host can be called in code, as any others; each call is made at once. "
    "`help(name)` in code prints what one does, or what a class holds:"
)
NAMES = (
    "These functions of the host can be called in code, as any others; each call is made at once. There are many: print "
    "`help(name)` in code to read how one is called and what it does, before you call it:"
)


def describe_tools(tools: Sequence[HostTool]) -> str:
    """Show the model what host tools there are: signature, docstring, and the classes that they take and give.

    Where that would be more than 12,000 characters, only the first line of each docstring is shown, and `help(name)` in code
    has the rest; where that is more than 24,000 characters still, names alone.

    Args:
        tools: The tools.

    Returns:
        The words; "" for no tools.
    """
    if not tools:
        return ""
    full = _fenced(TOOLS, "\n\n".join([*_classes(tools), *map(_whole, tools)]))
    if len(full) <= MAX_FULL_CHARS:
        return full
    compact = _fenced(COMPACT, "\n".join(map(_summary, tools)))
    if len(compact) <= MAX_COMPACT_CHARS:
        return compact
    return f"{NAMES}\n{', '.join(tool.name for tool in tools)}"


def _fenced(head: str, code: str) -> str:
    # What a server says of its tools must not end the fence.
    return "{}\n```python\n{}\n```".format(head, code.replace("```", "'''"))


def _classes(tools: Sequence[HostTool]) -> list[str]:
    shown = {each.name: each.shown for tool in tools for each in getattr(tool, "classes", ())}
    return list(shown.values())


def _whole(tool: HostTool) -> str:
    head = f"def {tool.name}{tool.signature}:"
    words = textwrap.indent(tool.description.strip().replace('"""', "'''"), "    ").strip()
    end = "\n    " if "\n" in words else ""
    return f'{head}\n    """{words}{end}"""' if words else f"{head} ..."


def _summary(tool: HostTool) -> str:
    words = " ".join(tool.description.strip().partition("\n")[0].split())
    if len(words) > MAX_SUMMARY_CHARS:
        words = words[: MAX_SUMMARY_CHARS - 1] + "…"
    return f"def {tool.name}{tool.signature}: ...{f'  # {words}' if words else ''}"
