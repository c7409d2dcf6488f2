"""The step whose code runs now."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from autogen_codeact.runs.writer import LogWriter


@dataclass(eq=False)
class Step:
    """A step of an agent that runs code.

    Args:
        log: The log of the run.
        agent: The agent's name in the log.
        number: Number of the step, as in `BlockStarted`.
        calls: Number of calls to host tools that it has made so far.
    """

    log: LogWriter
    agent: str
    number: int
    calls: int = 0


# Calls to host tools are recorded by what is attached to the executor, which several agents and runs may share. Such a call runs
# in the context of the block that makes it.
CURRENT_STEP: ContextVar[Step | None] = ContextVar("CURRENT_STEP", default=None)
