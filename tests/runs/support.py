"""What tests of run logs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autogen_codeact.runs.events import RunEvent, parse_event
from autogen_codeact.runs.files import restore_large
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.results import StoredFile


def events_of(folder: Path) -> list[RunEvent]:
    """The events of a log, with the values that are in files."""
    data = (folder / "events.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return [_event(folder, json.loads(line)) for line in data.splitlines()]


def _event(folder: Path, line: dict[str, Any]) -> RunEvent:
    stored = {pointer: StoredFile.model_validate(file) for pointer, file in line["stored"].items()}
    restore_large(line, stored, RunFolder(folder).read_file)
    return parse_event(line)


def types_of(folder: Path) -> list[str]:
    """The types of a log's events, with the agent, the block and the call where they have them."""
    shown = []
    for event in events_of(folder):
        numbers = [str(getattr(event, name)) for name in ("agent", "number", "block", "call") if hasattr(event, name)]
        what = event.message["type"] if event.type in ("message", "chunk") else getattr(event, "at", "")
        shown.append(" ".join(filter(None, [event.type, what, *numbers])))
    return shown
