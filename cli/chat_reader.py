"""Chooses the editor of a chat."""

from __future__ import annotations

import os
import sys

from autogen_codeact.cli.chat_lines import LineReader, Reader


def open_reader(history: str | None) -> Reader:
    """Return the editor of this terminal, or a reader of lines if there is none."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not on_terminal or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return LineReader(echo=not sys.stdin.isatty())
    from autogen_codeact.cli.chat_prompt import PromptReader  # noqa: PLC0415 - of the extra `chat`

    return PromptReader(history)
