"""What an executor can do beyond AutoGen's `CodeExecutor`."""

from __future__ import annotations

from dataclasses import dataclass

from autogen_codeact.executors.executor import SandboxCodeExecutor


@dataclass(frozen=True)
class Capabilities:
    """What an executor can do: itself, where it can do that, else None."""

    sandbox: SandboxCodeExecutor | None = None  # host tools, streamed output, observers, facts
    session: SandboxCodeExecutor | None = None  # one interpreter for all blocks


def capabilities_of(executor: object) -> Capabilities:
    """Return what an executor can do. AutoGen's own executors can do nothing of it."""
    if not isinstance(executor, SandboxCodeExecutor):
        return Capabilities()
    return Capabilities(executor, executor if executor.mode == "session" else None)
