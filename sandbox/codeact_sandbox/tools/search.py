"""Finds host tools by words: BM25 over their names, parameters and descriptions."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache

from codeact_sandbox.types.tool import HostToolProtocol

NAME_WEIGHT = 3
SATURATION, LENGTH_WEIGHT = 4.0, 0.5
"""The parameters k1 and b of BM25, for short texts and long questions."""
MAX_CHARS = 10_000
"""How much of a tool's description counts, and of a query."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_ENDING = re.compile(r"(?<=...)(?:ing|es|ed|s)$")


class ToolSearch:
    """An index of tools.

    Args:
        tools: The tools.
    """

    def __init__(self, tools: Iterable[HostToolProtocol]) -> None:
        self._tools = list(tools)
        counts = [
            Counter(
                _words(f"{f'{tool.name} ' * NAME_WEIGHT}{tool.signature[:MAX_CHARS]} {tool.description[:MAX_CHARS]}")
            )
            for tool in self._tools
        ]
        mean = sum(map(Counter.total, counts)) / max(1, len(counts))
        self._scores: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, each in enumerate(counts):
            length = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * each.total() / mean)
            for word, count in each.items():
                self._scores[word].append((place, count * (SATURATION + 1) / (count + length)))

    def search(self, query: str, limit: int = 5) -> list[HostToolProtocol]:
        """Return the tools that fit best, the best first.

        Args:
            query: What is wanted, in words.
            limit: How many at most. Default 5.
        """
        found: defaultdict[int, float] = defaultdict(float)
        for word in set(_words(query[:MAX_CHARS])):
            scores = self._scores.get(word, ())
            rarity = math.log(1 + (len(self._tools) - len(scores) + 0.5) / (len(scores) + 0.5))
            for place, score in scores:
                found[place] += rarity * score
        return [self._tools[place] for place in heapq.nlargest(limit, found, key=lambda place: (found[place], -place))]


def _words(text: str) -> list[str]:
    return list(map(_stem, _WORD.findall(text)))


@lru_cache(maxsize=10_000)
def _stem(word: str) -> str:
    return _ENDING.sub("", word.lower())
