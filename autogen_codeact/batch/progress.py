"""What a batch says while it runs: how far it is, and what happens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchCounts:
    """The progress of a batch.

    Args:
        total: Rows that it will have; None as long as the tasks have not been read to their end.
        waiting: Tasks that wait for their next attempt.
        cost: What they cost; None without prices.
        seconds_left: About how long it will take; None if that is not known.
    """

    total: int | None = None
    done: int = 0
    failed: int = 0
    invalid: int = 0
    running: int = 0
    waiting: int = 0
    passed: int = 0
    checked: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds_left: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class AttemptFailed:
    id: str
    repeat: int
    attempt: int
    error_class: str
    error: str
    retry_in: float | None


@dataclass(frozen=True)
class Notice:
    """A sentence that a user should know."""

    text: str


BatchEvent = AttemptFailed | Notice
