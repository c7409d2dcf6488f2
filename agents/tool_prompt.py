"""Describes host tools to a model, as Python functions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from autogen_codeact.agents.text import shorten
from codeact_sandbox.types.tool import HostToolProtocol

MAX_FULL_CHARS = 12_000
MAX_COMPACT_CHARS = 24_000
MAX_SUMMARY_CHARS = 120

TOOLS = "These functions of the host can be called in code, as any others; each call is made at once:"
COMPACT = (
    "These functions of the host can be called in code, as any others; each call is made at once. "
    "`help(name)` in code prints what one does and what it returns:"
)
NAMES = (
    "These functions of the host can be called in code, as any others; each call is made at once. There are many: print "
    "`help(name)` in code to read how one is called and what it does, before you call it:"
)


def describe_tools(tools: Sequence[HostToolProtocol]) -> str:
    """Describe host tools to a model: signatures and docstrings.

    Where that would be more than 12,000 characters, only the first line of each docstring is shown, and `help(name)` in code
    has the rest; if that is still more than 24,000 characters, names alone.
    """
    if not tools:
        return ""
    full = describe_functions(TOOLS, tools)
    if len(full) <= MAX_FULL_CHARS:
        return full
    compact = _fenced(COMPACT, "\n".join(map(_summary, tools)))
    if len(compact) <= MAX_COMPACT_CHARS:
        return compact
    return f"{NAMES}\n{', '.join(tool.name for tool in tools)}"


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


def _summary(tool: HostToolProtocol) -> str:
    text = shorten(" ".join(tool.description.strip().partition("\n")[0].split()), MAX_SUMMARY_CHARS)
    return f"def {tool.name}{tool.signature}: ...{f'  # {text}' if text else ''}"
