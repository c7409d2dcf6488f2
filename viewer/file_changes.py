"""The files that a block added or changed, with the differences of text files."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import Run
from autogen_codeact.runs.results import ArtifactRecord, ResultRecord, StoredFile
from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.text import bounded, download_name, visible

MAX_FILES = 200
_MAX_BYTES = 256 * 1024
_MAX_LINES = 400  # the time of a comparison grows with their square
_MAX_DIFF = 32 * 1024


def changed_files(run: Run, result: ResultRecord, known: Mapping[str, Any]) -> list[Document]:
    """Return the files that a block added or changed, at most `MAX_FILES`."""
    before = result.files_before
    return [
        _changed(run, each, known.get(each.name), is_new=before is not None and each.name not in before)
        for each in result.artifacts[:MAX_FILES]
    ]


def reference(file: StoredFile, media_type: str) -> Document:
    """Return how a document refers to a file of the run's folder."""
    note = bounded(file.note) if file.note is not None else None
    return {"sha256": file.sha256, "size": file.size, "media_type": visible(media_type[:200]), "note": note}


def _changed(run: Run, artifact: ArtifactRecord, earlier: Any, *, is_new: bool) -> Document:
    old = _stored(earlier)
    return {
        "name": bounded(artifact.name, 1_000),
        "download": download_name(artifact.name),
        "change": "added" if is_new else "changed",
        "size": artifact.size,
        "diff": _difference(run, None if is_new else old, artifact.file, artifact.name, is_new=is_new),
        "file": reference(artifact.file, artifact.media_type) if artifact.file is not None else None,
        "note": bounded(artifact.note) if artifact.note is not None else None,
    }


def _stored(file: Any) -> StoredFile | None:
    try:
        return StoredFile.model_validate(file) if isinstance(file, dict) else None
    except ValidationError:
        return None


def _difference(run: Run, old: StoredFile | None, new: StoredFile | None, name: str, *, is_new: bool) -> str | None:
    after = _lines(run, new)
    before = [] if is_new else _lines(run, old)
    if before is None or after is None:
        return None
    shown = visible(name[:200]).replace("\n", " ")
    lines = difflib.unified_diff(before, after, shown, shown, lineterm="")
    return bounded("\n".join(lines), _MAX_DIFF)


def _lines(run: Run, file: StoredFile | None) -> list[str] | None:
    """Return the lines of a text file, or None if it has none, is too long, or is not in the folder."""
    if file is None or file.sha256 is None or file.size > _MAX_BYTES:
        return None
    try:
        text = run.read_file(file).decode("utf-8")
    except (RunError, UnicodeDecodeError):
        return None
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return None if "\0" in text or len(lines) > _MAX_LINES else lines
