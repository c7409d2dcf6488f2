"""The results of a batch: `results.jsonl` with a row for each task and repetition, and `summary.json` of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.errors import BatchError
from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.folder import json_cost, read_lines

RESULTS, SUMMARY = "results.jsonl", "summary.json"
MAX_ANSWER = 500_000  # characters of an answer that are kept; the whole one is in the run log
LEFT_OUT = "… the rest is left out here; the run log has all of it"
MAX_ERROR = 4000  # characters of an error that are kept
MAX_LINE = 32 * 1024 * 1024  # bytes of a row; longer lines are left out. A row's metadata can have 16 MiB
MAX_COST = 64 * 1024 * 1024  # bytes of memory that a row may take
MAX_UNSUCCESSFUL = 20
MAX_REASON = 300
Key = tuple[str, int]
Outcome = Literal["completed", "stopped", "waiting", "failed", "invalid"]
AGAIN = ("failed", "waiting")  # outcomes of tasks that the next command of the batch goes on with


class CheckResult(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: str
    passed: bool | None
    detail: str | None = None


class Row(BaseModel):
    """How one task has ended; docs/batch.md describes the fields."""

    id: str
    repeat: int = 1
    outcome: Outcome
    answer: str | None = None
    passed: bool | None = None
    checks: list[CheckResult] = Field(default_factory=list)
    steps: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    error_class: str | None = None
    error: str | None = None
    attempts: int = 1
    resumed: int = 0
    run: str | None = None
    log: str | None = None
    log_problem: str | None = None
    node: str | None = None
    started: AwareDatetime | None = None
    task: str = ""
    expected: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


@dataclass(eq=False)
class AttemptError(Exception):
    """An attempt has failed: its row, and whether there may be another one. It can be sent to another process."""

    row: Row
    _: KW_ONLY
    retryable: bool = False
    unusable_log: bool = False

    def __str__(self) -> str:
        return f"{self.row.error_class}: {self.row.error}"


def shorten_texts(row: Row) -> None:
    """Shorten what an agent, a model or a server has made too long, so that a row can be read again."""
    if row.answer is not None and len(row.answer) > MAX_ANSWER:
        row.answer = f"{row.answer[:MAX_ANSWER]}\n\n{LEFT_OUT}"
    for name, limit in (("error", MAX_ERROR), ("error_class", 200), ("expected", MAX_ERROR)):
        text = getattr(row, name)
        if text is not None:
            setattr(row, name, shorten(text, limit))


class Known(NamedTuple):
    """What is kept of a row in memory: where it is, how its task ended, its log, and what it adds to the counts."""

    offset: int
    outcome: str
    log: str | None
    counted: dict[str, int]


class Results:
    """The rows of a batch, also while it runs.

    Args:
        folder: Folder of the batch.

    Raises:
        BatchError: There are no results, or they can't be read.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / RESULTS
        self.by_key: dict[Key, Known] = {}
        self.counts = Counter[str]()
        """The rows that count, in numbers: rows, those of each outcome, checked, passed, and tokens."""
        self.damaged = self.replaced = self.end = 0
        """Lines that are no rows; rows that do not count; and the end of the last whole line."""
        if self.path.is_symlink() or not self.path.is_file():
            raise BatchError(f"{folder} is not the folder of a batch: there is no {RESULTS}.")
        try:
            with open(self.path, "rb") as file:
                for line in read_lines(file, MAX_LINE):
                    if not line.cut_off:  # else it is being written, or a killed process has left it
                        self._take(line.data or b"", self.end)
                        self.end = line.end
        except OSError as error:
            raise BatchError(f"{self.path} can't be read: {error.strerror or error}.") from error

    def _take(self, line: bytes, offset: int) -> None:
        row = _parse(line)
        if row is None:
            self.damaged += 1
        else:
            self.put(row, offset)

    def put(self, row: Row, offset: int) -> None:
        """Take a row into account, in place of an earlier one."""
        counted = {
            "rows": 1,
            row.outcome: 1,
            "checked": int(row.passed is not None),
            "passed": int(row.passed is True),
            "prompt_tokens": row.prompt_tokens,
            "completion_tokens": row.completion_tokens,
        }
        if (before := self.by_key.pop((row.id, row.repeat), None)) is not None:
            self.replaced += 1
            self.counts.subtract(before.counted)
        self.by_key[row.id, row.repeat] = Known(offset, row.outcome, row.log, counted)
        self.counts.update(counted)

    def row(self, key: Key) -> Row | None:
        """Return a row as it is in the file, or None if that was written anew meanwhile."""
        with open(self.path, "rb") as file:
            file.seek(self.by_key[key].offset)
            row = _parse(file.readline(MAX_LINE))
        return row if row is not None and (row.id, row.repeat) == key else None

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were written; they are not all in memory."""
        return (row for key in list(self.by_key) if (row := self.row(key)) is not None)


def _parse(line: bytes) -> Row | None:
    if json_cost(line, MAX_COST) > MAX_COST:
        return None
    try:
        return Row.model_validate_json(line)
    except ValueError:
        return None


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
        BatchError: There are no results.
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
    summary.errors = dict(errors.most_common(50))
    return summary


def write_summary(folder: Path | str) -> Summary:
    """Write `summary.json` into the folder of a batch. It blocks while the rows are read."""
    summary = summarize(folder)
    path = Path(folder) / SUMMARY
    try:
        with atomic_binary_file(path, private=True, sync=True) as file:
            file.write(summary.model_dump_json(indent=2).encode() + b"\n")
    except OSError as error:
        raise BatchError(f"{path} can't be written: {error.strerror or error}.") from error
    return summary


def _reason(row: Row) -> str:
    texts = [check.detail for check in row.checks if check.passed is False and check.detail]
    if row.error_class is not None:
        texts.insert(0, f"{row.error_class}: {row.error}" if row.error else row.error_class)
    return shorten(" ".join("; ".join(texts).split()), MAX_REASON)
