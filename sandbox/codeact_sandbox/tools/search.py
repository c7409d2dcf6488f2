"""Many host tools: finds them by words (BM25 over names, parameters and descriptions), and describes those that were found."""

from __future__ import annotations

import asyncio
import heapq
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from codeact_sandbox.types.filenames import printable_text
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer, ToolArgumentError

SATURATION, LENGTH_WEIGHT = 10.0, 0.25  # the parameters k1 and b of BM25, for short texts and long questions
MAX_CHARS = 10_000  # how much of a tool's description counts, and of a query
MAX_LISTED_CHARS = 8000
"""How long a list of tools may be, each with its signature and a few words: about 2,000 tokens. More are many."""
MAX_SUMMARY_CHARS = 120
MAX_FOUND = 20
MAX_TOOL_CHARS = 4000
MAX_NAMES_CHARS = 8000
SEARCH = "search_tools"
SOURCE = '''
def search_tools(query="", limit=5):
    """Find host tools by words, the best first, with their signatures; without words, name all. Print what it returns."""
    return _call("search_tools", {"query": query, "limit": limit})
'''
_COMMON = """a about after all also am an and any are as at be been before but by can could did do does each for from had
has have help how i if in into is it its just kindly know let like make me my need now of on once one or our
out please right see should so some such than that the their them then there these they this to us want was we
were what when where which while who will with would you your"""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_SILENT = frozenset(_COMMON.split())
_ENDING = re.compile(r"(?<=...)(?:ing|es|ed|s)$")


@lru_cache(10_000)
def _stem(word: str) -> str:
    """Return the stem of a word; empty for a word that says nothing."""
    lower = word.lower()
    return "" if lower in _SILENT else _ENDING.sub("", lower)


class ToolSearch:
    def __init__(self, tools: Iterable[HostToolProtocol]) -> None:
        self._tools = list(tools)
        self._lengths: list[int] = []
        self._places: dict[str, list[tuple[int, int]]] = {}  # the tools that have a word, and how often
        for place, tool in enumerate(self._tools):
            counts = Counter(filter(None, map(_stem, _WORD.findall(_text(tool)))))
            self._lengths.append(counts.total())
            for word, count in counts.items():
                self._places.setdefault(word, []).append((place, count))

    def search(self, query: str, limit: int = 5) -> list[HostToolProtocol]:
        """Return the tools that fit best, the best first."""
        found: dict[int, float] = {}
        number, mean = len(self._tools), sum(self._lengths) / max(1, len(self._tools))
        for word in set(filter(None, map(_stem, _WORD.findall(query[:MAX_CHARS])))):
            having = self._places.get(word, [])
            rarity = math.log(1 + (number - len(having) + 0.5) / (len(having) + 0.5))
            for place, count in having:
                length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._lengths[place] / mean
                weight = count * (SATURATION + 1) / (count + SATURATION * length)
                found[place] = found.get(place, 0.0) + rarity * weight
        return [self._tools[place] for place in heapq.nlargest(limit, found, key=lambda place: (found[place], -place))]


class SearchTool:
    """The host tool `search_tools`, by which code finds others."""

    name = SEARCH
    signature = '(query: str = "", limit: int = 5) -> str'
    description = "Find host tools by words."
    source = SOURCE

    def __init__(self, tools: Sequence[HostToolProtocol]) -> None:
        self._tools = tools

    @cached_property
    def _index(self) -> ToolSearch:
        return ToolSearch(self._tools)

    def describe(self, query: str, limit: int) -> str:
        """Describe the tools that fit a query; without one, name all."""
        if not query.strip():
            names = ", ".join(tool.name for tool in self._tools)
            return f"{len(self._tools)} tools: {textwrap.shorten(names, MAX_NAMES_CHARS, placeholder=' …')}"
        found = self._index.search(query, min(max(1, limit), MAX_FOUND))
        return "\n\n".join(map(described, found)) or f"None of the {len(self._tools)} tools fits. Try other words."

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Answer a search, or give the stub of a tool that code uses for the first time."""
        for grouped in self._tools:
            if isinstance(grouped, GroupedTool) and grouped.name == arguments.get("stub"):
                return ToolAnswer(grouped.tool.source)
        query, limit = arguments.get("query"), arguments.get("limit")
        if not isinstance(query, str) or not isinstance(limit, int):
            raise ToolArgumentError("search_tools takes a text and a number")
        return ToolAnswer(await asyncio.to_thread(self.describe, query, limit))


class GroupedTool:
    """A host tool that code calls as a function of a module."""

    def __init__(self, group: str, tool: HostToolProtocol, *, when_used: bool = False) -> None:
        self.name = f"{group}.{tool.name}"
        self.tool, self.run = tool, tool.run
        self.rule_name: str = getattr(tool, "rule_name", self.name)
        self._when_used = when_used

    @property
    def signature(self) -> str:
        """Its parameters and result."""
        return self.tool.signature

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def source(self) -> str | Mapping[str, Any]:
        """Its stub, as data; for one that comes later, the tool that gives it."""
        return {"from": SEARCH} if self._when_used else self.tool.source


def are_many(tools: Iterable[HostToolProtocol]) -> bool:
    """Return whether a list of tools would be too long for a system message."""
    size = 0
    for tool in tools:
        size += len(summary(tool)) + 1
        if size > MAX_LISTED_CHARS:
            return True
    return False


def summary(tool: HostToolProtocol) -> str:
    """Describe a tool in one line."""
    text = " ".join(tool.description.strip().partition("\n")[0].split())
    if len(text) > MAX_SUMMARY_CHARS:
        text = f"{text[: MAX_SUMMARY_CHARS - 1]}…"
    return f"def {tool.name}{tool.signature}: ...{f'  # {text}' if text else ''}"


def described(tool: HostToolProtocol) -> str:
    """Describe a tool with its whole docstring."""
    text = f"def {tool.name}{tool.signature}:\n{textwrap.indent(tool.description.strip(), '    ')}"
    return printable_text(text if len(text) <= MAX_TOOL_CHARS else f"{text[:MAX_TOOL_CHARS]} …")


def _text(tool: HostToolProtocol) -> str:
    return f"{tool.name[:MAX_CHARS]} {tool.signature[:MAX_CHARS]} {tool.description[:MAX_CHARS]}"
