"""What a person decides about, as text: the same at a terminal, on a run's page, for an MCP client and when a run is resumed."""

from __future__ import annotations

import json
from typing import Any

from codeact_sandbox.types.filenames import printable

MAX_SHOWN = 100_000
"""Characters that are shown to a person; longer text can't be approved."""


def shown_whole(text: str) -> str:
    """Return code, or arguments as JSON, so that nothing in it is hidden or breaks a line, except line ends and tabs.

    Raises:
        ValueError: It is too long to be shown, so it can't be approved.
    """
    _check_length(text)
    shown = printable(text.replace("\r\n", "\n"), keep="\n\t")
    _check_length(shown)
    return shown


def can_be_shown(text: str) -> bool:
    """Return whether a text is short enough to be approved."""
    try:
        shown_whole(text)
    except ValueError:
        return False
    return True


def _check_length(text: str) -> None:
    if len(text) > MAX_SHOWN:
        raise ValueError(
            f"it has {len(text):,} characters, and more than {MAX_SHOWN:,} can't be shown: use smaller parts"
        )


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as JSON; call it in a thread if they are not small.

    Other threads run meanwhile, because indented JSON is written in Python.
    """
    return json.dumps(arguments, ensure_ascii=False, indent=2, sort_keys=True, default=str)


def shown_call(name: str, arguments: Any) -> str:
    """Return a whole call, for a question; call it in a thread if the arguments are not small.

    Raises:
        ValueError: It is too long to be shown, so it can't be approved.
    """
    return f"{printable(name)} with these arguments:\n{shown_whole(arguments_text(arguments))}"
