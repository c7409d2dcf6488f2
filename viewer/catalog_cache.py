"""Keeps what the list of runs shows between two starts of the viewer, so that thousands of logs are not read again."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from autogen_codeact.sandbox.files.private_folders import state_folder

_VERSION = 1
_MAX_BYTES = 256 * 1024 * 1024
_FIELDS = {
    "id": str,
    "name": str,
    "task": str,
    "agents": list,
    "models": list,
    "started": str,
    "outcome": str,
    "blocks": int,
    "steps": int,
    "tokens": int,
    "duration_s": int | float,
    "error": str | None,
    "gaps": int,
}


def load_cache(folder: Path) -> dict[str, Any]:
    """Return what was kept of the runs in a folder: by name, a stamp of the log and the row. Empty if there is nothing.

    Args:
        folder: The folder.
    """
    try:
        path = _file(folder)
        if path.stat().st_size > _MAX_BYTES:
            return {}
        data = json.loads(path.read_bytes())
        if data["version"] != _VERSION or data["folder"] != str(folder.resolve()):
            return {}
        return {str(name): (tuple(map(int, stamp)), row) for name, (stamp, row) in data["runs"].items() if _is_row(row)}
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def save_cache(folder: Path, rows: Mapping[str, Any]) -> None:
    """Keep what is known of the runs in a folder; without a place for it nothing is kept.

    Args:
        folder: The folder.
        rows: As `load_cache` returns it.
    """
    with suppress(OSError, RuntimeError, ValueError):
        path = _file(folder)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        data = json.dumps({"version": _VERSION, "folder": str(folder.resolve()), "runs": rows}).encode()
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _file(folder: Path) -> Path:
    name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return state_folder() / "run-lists" / f"{name}.json"


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or row.keys() != _FIELDS.keys():
        return False
    return all(isinstance(row[name], kind) for name, kind in _FIELDS.items())
