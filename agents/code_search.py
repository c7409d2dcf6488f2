"""Finds the code to run in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.extraction import OUTPUT_LABELS, ExtractedBlock, extract_code_blocks, normalise_language
from autogen_codeact.agents.not_run import NotRun, looks_like_code, why_not_run

CUT_OFF = (
    "Your answer ended inside a code block, so none of it was run. Send the code again, whole; "
    "if it is long, in a shorter form."
)


@dataclass(frozen=True)
class FoundCode:
    """The code in some messages.

    Args:
        blocks: The blocks to run.
        cut_off: Whether there is nothing to run because a block was never closed.
        not_run: The blocks of code that are not run, with the reasons.
    """

    blocks: list[CodeBlock]
    cut_off: bool
    not_run: tuple[NotRun, ...] = ()


def runnable_languages(labels: Iterable[str]) -> frozenset[str]:
    """Return the languages of some labels, without those of output."""
    return frozenset(map(normalise_language, labels)) - OUTPUT_LABELS - {""}


def find_code(texts: Sequence[str], languages: Collection[str], *, tags_only: bool = False) -> FoundCode:
    """Find the code to run in messages."""
    found = [block for text in texts for block in extract_code_blocks(text)]
    runnable = [block for block in found if block.language in languages and (block.tagged or not tags_only)]
    # Where one block is cut off none is run: blocks of an answer build on each other.
    whole = all(block.complete for block in runnable)
    blocks = [CodeBlock(code=block.code, language=block.language) for block in runnable] if whole else []
    reasons = [(block, why_not_run(block, languages, tags_only=tags_only)) for block in found]
    not_run = tuple(NotRun(block.language, reason, block.code) for block, reason in reasons if reason is not None)
    return FoundCode(blocks, not blocks and any(map(_is_cut_off, found)), not_run)


def code_in_answer(text: str, languages: Collection[str], ran: Collection[str] = ()) -> tuple[NotRun, ...]:
    """Find the code in a message that is an answer, of which nothing is run."""
    known = {code.strip() for code in ran}
    found = []
    for block in extract_code_blocks(text):
        reason = why_not_run(block, languages)
        if reason is None and block.language in languages:
            reason = "answer"
        if reason is not None and block.code.strip() not in known:
            found.append(NotRun(block.language, reason, block.code))
    return tuple(found)


def is_cut_off(text: str) -> bool:
    """Return whether a message ended inside a block."""
    return any(map(_is_cut_off, extract_code_blocks(text)))


def _is_cut_off(block: ExtractedBlock) -> bool:
    """Return whether a block was never closed. A line of tildes may be an underline instead of a fence."""
    return not block.complete and (bool(block.language) or block.fence != "~" or looks_like_code(block.code))
