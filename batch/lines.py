"""The lines of a batch's files: rows, and tasks in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic_core import from_json

from autogen_codeact.batch.rows import Outcome
from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.budget import json_cost

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a row; longer lines are left out. A row's metadata can have 16 MiB."""
MAX_COST = 64 * 1024 * 1024
"""Bytes of memory that a row may take."""
TASKS, RESULTS = "tasks.jsonl", "results.jsonl"


def row_key(task_id: str, repeat: int) -> int:
    """Return what stands for a task and a repetition in indexes: 100,000 of them take little memory."""
    text = f"{repeat}:{task_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def parse_json(line: bytes) -> Any:
    """Return the value of a line, if it takes little memory.

    Raises:
        ValueError: It is not JSON, or would take more than `MAX_COST` bytes.
    """
    if json_cost(line, MAX_COST) > MAX_COST:
        raise ValueError("it would take too much memory")
    return from_json(line)


def parse_row(line: bytes) -> dict[str, Any]:
    """Return a row as far as it is needed here: whole rows take long to check.

    Raises:
        ValueError: It is none.
    """
    row = parse_json(line)
    if (
        isinstance(row, dict)
        and isinstance(row.get("id"), str)
        and row.get("outcome") in get_args(Outcome)
        and all(isinstance(row.get(name), int) for name in ("repeat", "prompt_tokens", "completion_tokens"))
    ):
        return row
    raise ValueError("it is not a row")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their offsets; one that is too long comes in parts, of which none is a row."""
    offset = 0
    with open(path, "rb") as file:
        while line := file.readline(MAX_LINE):
            yield offset, line
            offset += len(line)


def compact(path: Path, *, invalid: bool = True) -> int:
    """Keep the last row of each task and repeat only, in the order of the tasks; after a crash all rows are there, or these.

    Args:
        path: The folder of a batch, whose lock is held.
        invalid: Whether rows of tasks that could not be used are kept. Default: they are. Such a task may have been corrected
            since; if not, it gets a row again.

    Returns:
        How many lines were left out because they are no rows.
    """
    order: dict[int, int] = {}
    for _, line in lines(path / TASKS):
        with suppress(ValueError, KeyError, TypeError):
            order.setdefault(row_key(parse_json(line)["id"], 0), len(order))
    places: dict[int, tuple[int, int, int]] = {}
    found = damaged = 0
    for offset, line in lines(path / RESULTS):
        found += 1
        try:
            row = parse_row(line)
        except ValueError:
            damaged += 1
            continue
        if row["outcome"] != "invalid" or invalid:
            place = order.get(row_key(row["id"], 0), len(order))
            places[row_key(row["id"], row["repeat"])] = (place, row["repeat"], offset)
    offsets = [offset for _, _, offset in sorted(places.values())]
    if len(offsets) < found or offsets != sorted(offsets):
        with open(path / RESULTS, "rb") as rows, atomic_binary_file(path / RESULTS, private=True, sync=True) as file:
            for offset in offsets:
                rows.seek(offset)
                file.write(rows.readline())
    return damaged
