"""What tests of run logs share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam

from autogen_codeact.runs import recorded
from autogen_codeact.runs.events import RunEvent, parse_event
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.results import StoredFile


def events_of(folder: Path) -> list[RunEvent]:
    """The events of a log, with those that are in files."""
    data = (folder / "events.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return [_event(folder, line) for line in data.splitlines()]


def _event(folder: Path, line: bytes) -> RunEvent:
    stored = json.loads(line).get("stored")
    return parse_event(RunFolder(folder).read_file(StoredFile(**stored)) if stored else line)


def lines_of(folder: Path) -> list[bytes]:
    """The lines of a log."""
    return (folder / "events.jsonl").read_bytes().splitlines(keepends=True)


def cut(whole: Path, folder: Path, number: int, rest: bytes = b"") -> Path:
    """Copy a run, with the first lines of its log only."""
    shutil.copytree(whole, folder)
    (folder / "events.jsonl").write_bytes(b"".join(lines_of(whole)[:number]) + rest)
    return folder


async def run(agent_or_team: ChatAgent | BaseTeam, path: Path, **options: Any) -> list[Any]:
    """Record a run, and return what it yields."""
    return [item async for item in recorded(agent_or_team, task="Go.", path=path, **options)]


def types_of(folder: Path, *beginnings: str) -> list[str]:
    """The types of a log's events that begin so, with the agent, the block and the call where they have them."""
    shown = []
    for event in events_of(folder):
        numbers = [str(getattr(event, name)) for name in ("agent", "number", "block", "call") if hasattr(event, name)]
        what = event.message["type"] if event.type in ("message", "chunk") else getattr(event, "at", "")
        shown.append(" ".join(filter(None, [event.type, what, *numbers])))
    return [each for each in shown if each.startswith(beginnings or "")]


def listed(text: str) -> list[str]:
    """What `types_of` returns, from a text."""
    return text.split(", ")
