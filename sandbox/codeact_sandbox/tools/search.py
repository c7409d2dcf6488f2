"""Finds host tools by words: BM25 over their names, parameters and descriptions."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable

from codeact_sandbox.types.tool import HostToolProtocol

NAME_WEIGHT = 3
SATURATION, LENGTH_WEIGHT = 4.0, 0.5
"""The parameters k1 and b of BM25, for short texts and long questions."""
MAX_CHARS = 10_000
"""How much of a tool's description counts, and of a query."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_ENDING = re.compile(r"(?<=...)(?:ing|es|ed|s)$")


class _Stems(dict[str, str]):
    def __missing__(self, word: str) -> str:
        stem = self[word] = _ENDING.sub("", word.lower())
        return stem


class ToolSearch:
    """An index of tools.

    Args:
        tools: The tools.
    """

    def __init__(self, tools: Iterable[HostToolProtocol]) -> None:
        self._tools = list(tools)
        stem = _Stems().__getitem__
        self._counts = [Counter(map(stem, _WORD.findall(_text(tool)))) for tool in self._tools]
        self._lengths = [each.total() for each in self._counts]

    def search(self, query: str, limit: int = 5) -> list[HostToolProtocol]:
        """Return the tools that fit best, the best first.

        Args:
            query: What is wanted, in words.
            limit: How many at most. Default 5.
        """
        found: dict[int, float] = {}
        number, mean = len(self._tools), sum(self._lengths) / max(1, len(self._tools))
        for word in set(map(_Stems().__getitem__, _WORD.findall(query[:MAX_CHARS]))):
            having = [(place, each[word]) for place, each in enumerate(self._counts) if word in each]
            rarity = math.log(1 + (number - len(having) + 0.5) / (len(having) + 0.5))
            for place, count in having:
                length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._lengths[place] / mean
                weight = count * (SATURATION + 1) / (count + SATURATION * length)
                found[place] = found.get(place, 0.0) + rarity * weight
        return [self._tools[place] for place in heapq.nlargest(limit, found, key=lambda place: (found[place], -place))]


def _text(tool: HostToolProtocol) -> str:
    return f"{f'{tool.name[:MAX_CHARS]} ' * NAME_WEIGHT}{tool.signature[:MAX_CHARS]} {tool.description[:MAX_CHARS]}"
