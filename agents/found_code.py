"""Finds the code to run in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks, normalise_language

CUT_OFF = (
    "Your answer ended inside a code block, so none of it was run. Send the code again, whole; "
    "if it is long, in a shorter form."
)


@dataclass(frozen=True)
class FoundCode:
    """The code in some messages.

    Args:
        blocks: The blocks to run.
        cut_off: Whether one of them was never closed; then there are none to run.
    """

    blocks: list[CodeBlock]
    cut_off: bool


def runnable_languages(labels: Iterable[str]) -> frozenset[str]:
    """Return the languages of some labels, without those of output."""
    return frozenset(map(normalise_language, labels)) - OUTPUT_LABELS - {""}


def find_code(texts: Sequence[str], languages: Collection[str], *, tags_only: bool = False) -> FoundCode:
    """Find the code to run in messages.

    Args:
        texts: Messages, as written.
        languages: What is run, as `runnable_languages` gives it.
        tags_only: Whether only `<execute>` tags count, fences being shown and not run.
    """
    found = [block for text in texts for block in extract_code_blocks(text)]
    wanted = [block for block in found if block.language in languages and (block.tagged or not tags_only)]
    # Where one block is cut off none is run: blocks of an answer build on each other.
    if not all(block.complete for block in wanted):
        return FoundCode([], cut_off=True)
    return FoundCode([CodeBlock(code=block.code, language=block.language) for block in wanted], cut_off=False)
