"""The summary of a batch, as it is in `summary.json`."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.results import Results
from autogen_codeact.batch.rows import Outcome, Row
from autogen_codeact.batch.statistics import interval, mean, pass_at, percentile
from autogen_codeact.runs.atomic_file import atomic_binary_file

SUMMARY = "summary.json"
MAX_GROUPS = 200
MAX_UNSUCCESSFUL = 20
MAX_REASON = 300
MAX_ERRORS = 50
OTHERS = "(others)"
MAX_NAME = 100


class Percentiles(BaseModel):
    """How a number is distributed over the rows.

    Args:
        p50: Half of the rows have no more.
        p90: 90% of the rows have no more.
        p99: 99% of the rows have no more.
        max: The largest.
    """

    p50: float
    p90: float
    p99: float
    max: float


class Group(BaseModel):
    """The rows with one value in their metadata.

    Args:
        rows: How many there are.
        completed: Those with an answer.
        checked: Those that count as passed or not passed.
        passed: Those that passed.
        pass_rate: `passed` / `checked`.
    """

    rows: int = 0
    completed: int = 0
    checked: int = 0
    passed: int = 0
    pass_rate: float | None = None


class Unsuccessful(BaseModel):
    """A row that did not pass, or has no answer.

    Args:
        id: The task.
        repeat: Which repetition.
        outcome: How it has ended.
        reason: Why it does not count, in a line.
        log: Folder of its run log, relative to the batch's folder.
    """

    id: str
    repeat: int
    outcome: Outcome
    reason: str
    log: str | None


class Summary(BaseModel):
    """The results of a batch in numbers.

    Args:
        tasks: Tasks with a row.
        rows: Rows: one for each task and repetition.
        repeats: The highest number of a repetition.
        completed: Rows with an answer.
        stopped: Rows of agents that ended without one.
        failed: Rows that an error ended.
        invalid: Tasks that could not be used.
        checked: Rows whose `passed` is true or false.
        passed: Rows that passed.
        pass_rate: `passed` / `checked`; None if nothing was checked.
        pass_rate_interval: Its 95% confidence interval; too narrow if there are repetitions.
        pass_at: By k: the unbiased estimate that at least one of k tries passes, as the mean of the tasks with k checked rows.
        all_passed: Part of the tasks whose repetitions all passed, of those with at least two.
        steps: How many times code ran.
        model_calls: How many times a model was asked.
        prompt_tokens: Tokens that the models read.
        completion_tokens: Tokens that the models wrote.
        cost: Of all rows; None without prices.
        seconds: Sum of the rows' seconds.
        wall_seconds: From the start of the first row's attempt to the end of the last one's; pauses between commands count.
        attempts: How often a task was begun.
        resumed: How often one was continued from its run log.
        errors: Rows by class of error, the most frequent first.
        failures: The same of attempts that failed before another one.
        seconds_percentiles: Of the seconds of completed and stopped rows.
        steps_percentiles: Of their steps.
        unsuccessful: The first 20 rows that did not pass or have no answer.
        by: Name of the metadata by which `groups` are made, or None.
        groups: The groups by value, at most 200; further ones together as "(others)".
        damaged: Lines of `results.jsonl` that could not be read.
    """

    tasks: int = 0
    rows: int = 0
    repeats: int = 0
    completed: int = 0
    stopped: int = 0
    failed: int = 0
    invalid: int = 0
    checked: int = 0
    passed: int = 0
    pass_rate: float | None = None
    pass_rate_interval: tuple[float, float] | None = None
    pass_at: dict[int, float] = Field(default_factory=dict)
    all_passed: float | None = None
    steps: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    wall_seconds: float | None = None
    attempts: int = 0
    resumed: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    failures: dict[str, int] = Field(default_factory=dict)
    seconds_percentiles: Percentiles | None = None
    steps_percentiles: Percentiles | None = None
    unsuccessful: list[Unsuccessful] = Field(default_factory=list)
    by: str | None = None
    groups: dict[str, Group] = Field(default_factory=dict)
    damaged: int = 0


def summarize(folder: Path | str, *, by: str | None = None) -> Summary:
    """Return the summary of a batch. It blocks while the rows are read.

    Args:
        folder: Folder of the batch.
        by: Name of a field of the tasks' metadata, for sums by its values. Default: none.

    Raises:
        BatchFolderError: There are no results.
    """
    results = Results(folder)
    summing = _Summing(by)
    for row in results:
        summing.add(row)
    summary = summing.end()
    summary.damaged = results.damaged
    return summary


def write_summary(folder: Path | str) -> Summary:
    """Write `summary.json` into the folder of a batch. It blocks while the rows are read.

    Args:
        folder: Folder of the batch.

    Returns:
        The summary.

    Raises:
        BatchFolderError: There are no results, or it can't be written.
    """
    summary = summarize(folder)
    path = Path(folder) / SUMMARY
    try:
        with atomic_binary_file(path, private=True, sync=True) as file:
            file.write(summary.model_dump_json(indent=2).encode() + b"\n")
    except OSError as error:
        raise BatchFolderError(f"{path} can't be written: {error.strerror or error}.") from error
    return summary


class _Summing:
    def __init__(self, by: str | None) -> None:
        self._summary = Summary(by=by)
        self._by = by
        self._tries: dict[str, tuple[int, int]] = {}
        self._errors: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._seconds, self._steps = array("d"), array("d")
        self._begin: datetime | None = None
        self._end: datetime | None = None

    def add(self, row: Row) -> None:
        summary = self._summary
        summary.rows += 1
        summary.repeats = max(summary.repeats, row.repeat)
        setattr(summary, row.outcome, getattr(summary, row.outcome) + 1)
        for name in ("steps", "model_calls", "prompt_tokens", "completion_tokens", "seconds", "attempts", "resumed"):
            setattr(summary, name, getattr(summary, name) + getattr(row, name))
        if row.cost is not None:
            summary.cost = (summary.cost or 0.0) + row.cost
        tries, passed = self._tries.get(row.id, (0, 0))
        self._tries[row.id] = (tries + (row.passed is not None), passed + bool(row.passed))
        summary.checked += row.passed is not None
        summary.passed += bool(row.passed)
        if row.error_class is not None:
            _count(self._errors, row.error_class)
        for failure in row.failures:
            _count(self._failures, failure.error_class)
        if row.outcome in ("completed", "stopped"):
            self._seconds.append(row.seconds)
            self._steps.append(row.steps)
        if row.started is not None:
            end = row.started + timedelta(seconds=min(row.seconds, 1e9))
            self._begin = min(self._begin or row.started, row.started)
            self._end = max(self._end or end, end)
        if (row.outcome != "completed" or row.passed is False) and len(summary.unsuccessful) < MAX_UNSUCCESSFUL:
            found = Unsuccessful(id=row.id, repeat=row.repeat, outcome=row.outcome, reason=_reason(row), log=row.log)
            summary.unsuccessful.append(found)
        if self._by is not None:
            self._add_to_group(row)

    def _add_to_group(self, row: Row) -> None:
        assert self._by is not None
        groups = self._summary.groups
        name = _group_name(row.metadata.get(self._by))
        if name not in groups and len(groups) >= MAX_GROUPS:
            name = OTHERS
        group = groups.setdefault(name, Group())
        group.rows += 1
        group.completed += row.outcome == "completed"
        group.checked += row.passed is not None
        group.passed += bool(row.passed)
        group.pass_rate = group.passed / group.checked if group.checked else None

    def end(self) -> Summary:
        summary = self._summary
        summary.tasks = len(self._tries)
        if summary.checked:
            summary.pass_rate = summary.passed / summary.checked
            summary.pass_rate_interval = interval(summary.passed, summary.checked)
        self._end_repeats()
        if self._begin is not None and self._end is not None:
            summary.wall_seconds = (self._end - self._begin).total_seconds()
        summary.errors = dict(self._errors.most_common())
        summary.failures = dict(self._failures.most_common())
        summary.seconds_percentiles = _percentiles(self._seconds)
        summary.steps_percentiles = _percentiles(self._steps)
        summary.groups = dict(sorted(summary.groups.items()))
        return summary

    def _end_repeats(self) -> None:
        tries = list(self._tries.values())
        most = max((count for count, _ in tries), default=0)
        ks = sorted({2**power for power in range(most.bit_length())} | {most}) if most else []
        for k in ks:
            value = mean(pass_at(k, count, passed) for count, passed in tries if count >= k)
            if value is not None:
                self._summary.pass_at[k] = value
        self._summary.all_passed = mean(float(count == passed) for count, passed in tries if count > 1)


def _reason(row: Row) -> str:
    texts = [check.detail for check in row.checks if check.passed is False and check.detail]
    if row.error_class is not None:
        texts.insert(0, f"{row.error_class}: {row.error}" if row.error else row.error_class)
    return shorten(" ".join("; ".join(texts).split()), MAX_REASON)


def _count(counter: Counter[str], name: str) -> None:
    name = name[:MAX_NAME]
    counter[name if name in counter or len(counter) < MAX_ERRORS else OTHERS] += 1


def _group_name(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…"


def _percentiles(values: array[float]) -> Percentiles | None:
    if not values:
        return None
    ordered = array("d", sorted(values))
    p50, p90, p99 = (percentile(ordered, part) for part in (0.5, 0.9, 0.99))
    return Percentiles(p50=p50, p90=p90, p99=p99, max=ordered[-1])
