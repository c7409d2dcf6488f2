"""The results of a batch: one row for each task, in `results.jsonl` of the batch's folder."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from autogen_codeact.agents.text import shorten

MAX_ANSWER = 1024 * 1024
"""Bytes of an answer that are kept; the whole one is in the run log."""
MAX_ERROR = 4000
"""Characters of an error that are kept."""
MAX_FAILURES = 100
"""Attempts that are kept, the last ones."""
MAX_NAME = 200
MARK_BYTES = 200
Outcome = Literal["completed", "stopped", "waiting", "failed", "invalid"]

AGAIN = ("failed", "waiting")
"""Outcomes of tasks that the next command of the batch goes on with."""


class CheckResult(BaseModel):
    """What a check says.

    Args:
        kind: The kind of the check.
        passed: Whether the answer is right; None if the check itself failed.
        detail: Why not, or what failed.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str
    passed: bool | None
    detail: str | None = None


class AttemptRecord(BaseModel):
    """An earlier attempt at a task, which failed.

    Args:
        started: When it began, UTC.
        seconds: How long it took.
        error_class: Class of the error.
        error: Its message.
        engine: Where it ran: the address of a Docker engine or the name of a Ray node, if there are several.
    """

    model_config = ConfigDict(extra="forbid")

    started: AwareDatetime
    seconds: float
    error_class: str
    error: str
    engine: str | None = None


class Row(BaseModel):
    """How one task has ended.

    Args:
        id: The task.
        repeat: Which repetition, from 1.
        outcome: "completed": there is an answer. "stopped": the agent ended without one, for example at its last step; `error`
            says why. "waiting": its run waits for an approval, `error` has the question; the next command goes on after the
            answer. "failed": an error ended it, in `error_class` and `error`. "invalid": the task itself can't be used.
        answer: The text of the last message, up to 1 MiB; then it says at its end how much is left out.
        passed: Whether all checks passed; None without a check, without an answer, or if a check failed to run.
        checks: The checks.
        steps: How many times code ran.
        model_calls: How many times a model was asked.
        prompt_tokens: Tokens that the models read.
        completion_tokens: Tokens that the models wrote.
        cost: In the currency of the prices that were given; None without prices.
        seconds: From the start of the last attempt to its end, checks included.
        error_class: Class of the error.
        error: Its message, up to 4,000 characters.
        attempts: How often the task was begun.
        failures: The attempts that failed before this one, at most the last 100.
        resumed: How often it was continued from its run log.
        run: Identifier of its run, or None if it never began.
        log: Folder of the run's log, relative to the batch's folder.
        log_problem: Why the log ends before the run did, such as a full disk; None for a whole log.
        engine: Where it ran, if there are several engines or nodes.
        started: When the last attempt began, UTC.
        metadata: That of the task.
    """

    model_config = ConfigDict(extra="forbid")

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
    failures: list[AttemptRecord] = Field(default_factory=list)
    resumed: int = 0
    run: str | None = None
    log: str | None = None
    log_problem: str | None = None
    engine: str | None = None
    started: AwareDatetime | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


def shorten_texts(row: Row) -> None:
    """Shorten what an agent, a model or a server has made too long, so that a row can be read again."""
    row.answer = shorten_answer(row.answer)
    row.failures = row.failures[-MAX_FAILURES:]
    records: list[Row | AttemptRecord] = [row, *row.failures]
    for each in records:
        each.error = shorten(each.error, MAX_ERROR) if each.error is not None else None
        each.error_class = shorten(each.error_class, MAX_NAME) if each.error_class is not None else None


def shorten_answer(answer: str | None) -> str | None:
    """Return an answer, or as much of it as a row has, with how much was left out."""
    if answer is None or len(answer) <= MAX_ANSWER // 4:
        return answer
    data = answer.encode("utf-8", "replace")
    if len(data) <= MAX_ANSWER:
        return answer
    beginning = data[: MAX_ANSWER - MARK_BYTES]
    left_out = f"… {len(data) - len(beginning):,} of {len(data):,} bytes are left out here; the run log has all of them"
    return f"{beginning.decode('utf-8', 'ignore')}\n\n{left_out}"
