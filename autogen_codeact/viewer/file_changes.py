"""The differences of the text files that a block has added or changed."""

from __future__ import annotations

import difflib
from typing import Any

from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import Run
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.runs.text import bounded, visible

_MAX_BYTES = 256 * 1024
_MAX_LINES = 400  # the time of a comparison grows with their square
_MAX_DIFF = 32 * 1024


def difference(run: Run, file: dict[str, Any]) -> str | None:
    """Return the unified difference of a file's copies; None if they are no short text files of the run's folder."""
    after = _lines(run, file["file"])
    before = [] if file["is_new"] else _lines(run, file["before"])
    if before is None or after is None:
        return None
    shown = visible(file["name"][:200]).replace("\n", " ")
    return bounded("\n".join(difflib.unified_diff(before, after, shown, shown, lineterm="")), _MAX_DIFF)


def _lines(run: Run, file: dict[str, Any] | None) -> list[str] | None:
    """Return the lines of a text file, or None if it has none, is too long, or is not in the folder."""
    if file is None or file["sha256"] is None or file["size"] > _MAX_BYTES:
        return None
    try:
        text = run.read_file(StoredFile(**file)).decode("utf-8")
    except (RunError, UnicodeDecodeError):
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    return None if "\0" in text or len(lines) > _MAX_LINES else lines
