"""Errors of a batch as a whole, and of one attempt."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogen_codeact.batch.results import Row


class BatchError(Exception):
    """The batch can't go on; the message says what to do."""


class BatchBudgetError(BatchError):
    """The budget of the batch is used up; what was not done is done when the batch is run again."""


class TaskTimeoutError(TimeoutError):
    """An attempt took longer than `task_timeout`."""


class UnusableAgentError(TypeError):
    """What `make_agent` has returned can't be used."""


@dataclass(eq=False)
class AttemptError(Exception):
    """An attempt has failed: its row, and whether there may be another one. It can be sent to another process."""

    row: Row
    _: KW_ONLY
    retryable: bool = False
    unusable_log: bool = False

    def __str__(self) -> str:
        return f"{self.row.error_class}: {self.row.error}"
