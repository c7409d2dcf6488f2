"""The summary of a batch, as it is in `summary.json`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.results import Results
from autogen_codeact.batch.rows import Outcome, Row
from autogen_codeact.runs.atomic_file import atomic_binary_file

SUMMARY = "summary.json"
MAX_UNSUCCESSFUL = 20
MAX_REASON = 300
MAX_ERRORS = 50


class Unsuccessful(BaseModel):
    """A row that did not pass, or has no answer."""

    id: str
    repeat: int
    outcome: Outcome
    reason: str
    log: str | None


class Summary(BaseModel):
    """The results of a batch in numbers.

    Args:
        unsuccessful: The first 20 rows that did not pass or have no answer.
        damaged: Lines of `results.jsonl` that could not be read.
    """

    tasks: int = 0
    rows: int = 0
    completed: int = 0
    stopped: int = 0
    waiting: int = 0
    failed: int = 0
    invalid: int = 0
    checked: int = 0
    passed: int = 0
    pass_rate: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    errors: dict[str, int] = Field(default_factory=dict)
    unsuccessful: list[Unsuccessful] = Field(default_factory=list)
    damaged: int = 0


def summarize(folder: Path | str) -> Summary:
    """Return the summary of a batch. It blocks while the rows are read.

    Args:
        folder: Folder of the batch.

    Raises:
        BatchFolderError: There are no results.
    """
    results = Results(folder)
    counts: dict[str, Any] = {name: number for name, number in results.counts.items() if name in Summary.model_fields}
    summary = Summary(tasks=len({id_ for id_, _ in results.by_key}), damaged=results.damaged, **counts)
    errors = Counter[str]()
    for row in results:
        if row.cost is not None:
            summary.cost = (summary.cost or 0.0) + row.cost
        if row.error_class is not None:
            errors[row.error_class] += 1
        if (row.outcome != "completed" or row.passed is False) and len(summary.unsuccessful) < MAX_UNSUCCESSFUL:
            found = Unsuccessful(id=row.id, repeat=row.repeat, outcome=row.outcome, reason=_reason(row), log=row.log)
            summary.unsuccessful.append(found)
    if summary.checked:
        summary.pass_rate = summary.passed / summary.checked
    summary.errors = dict(errors.most_common(MAX_ERRORS))
    return summary


def write_summary(folder: Path | str) -> Summary:
    """Write `summary.json` into the folder of a batch. It blocks while the rows are read."""
    summary = summarize(folder)
    path = Path(folder) / SUMMARY
    try:
        with atomic_binary_file(path, private=True, sync=True) as file:
            file.write(summary.model_dump_json(indent=2).encode() + b"\n")
    except OSError as error:
        raise BatchFolderError(f"{path} can't be written: {error.strerror or error}.") from error
    return summary


def _reason(row: Row) -> str:
    texts = [check.detail for check in row.checks if check.passed is False and check.detail]
    if row.error_class is not None:
        texts.insert(0, f"{row.error_class}: {row.error}" if row.error else row.error_class)
    return shorten(" ".join("; ".join(texts).split()), MAX_REASON)
