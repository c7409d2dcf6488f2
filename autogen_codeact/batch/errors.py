"""Errors of a batch."""

from __future__ import annotations


class BatchError(Exception):
    """The batch can't go on; the message says what to do."""


class BatchBudgetError(BatchError):
    """The budget of the batch is used up; what was not done is done when the batch is run again."""


class TaskTimeoutError(TimeoutError):
    """An attempt took longer than `task_timeout`."""


class UnusableAgentError(TypeError):
    """What `make_agent` has returned can't be used."""
