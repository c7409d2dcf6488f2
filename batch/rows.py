"""The results of a batch: one row for each task, in `results.jsonl` of the batch's folder."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import to_json

from autogen_codeact.agents.text import shorten

MAX_ANSWER = 1024 * 1024  # bytes of an answer that are kept; the whole one is in the run log
MAX_ERROR = 4000  # characters of an error that are kept
MAX_NAME = 200
MARK_BYTES = 200
Outcome = Literal["completed", "stopped", "waiting", "failed", "invalid"]

AGAIN = ("failed", "waiting")  # outcomes of tasks that the next command of the batch goes on with


class CheckResult(BaseModel):
    """What a check says."""

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


def shorten_texts(row: Row) -> None:
    """Shorten what an agent, a model or a server has made too long, so that a row can be read again."""
    row.answer = shorten_answer(row.answer)
    row.error = shorten(row.error, MAX_ERROR) if row.error is not None else None
    row.error_class = shorten(row.error_class, MAX_NAME) if row.error_class is not None else None


def expected_text(value: Any) -> str | None:
    """Return the right answer of a task as a row has it."""
    if value is None:
        return None
    return shorten(value if isinstance(value, str) else to_json(value).decode(), MAX_ERROR)


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
