"""One-line summaries of results for users: how code ended."""

from __future__ import annotations

from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.observation import INTERRUPTED
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import STOPPED, format_duration

_OUTCOMES = {
    "timeout": "timed out and was stopped",
    "oom": "used more memory than the sandbox has",
    "crashed": "crashed",
    "denied": "not approved, so not run",
}


def outcome_summary(result: CodeResult) -> str:
    """Return how code ended: "ok, 12 ms", "failed, ValueError, exit code 1, 0.24 s"."""
    if not isinstance(result, ExecutionResult):
        return "ok" if result.exit_code == 0 else f"failed, exit code {result.exit_code}"
    if end_is_unknown(result):
        return "interrupted while it ran; whether it finished is unknown"
    if result.outcome == "crashed" and result.error == STOPPED:
        return f"stopped, {format_duration(result.duration_s)}"
    parts = [_OUTCOMES.get(result.outcome, "ok" if result.exit_code == 0 else "failed")]
    if result.error is not None and result.outcome == "error":
        parts.append(printable(result.error.type))
    if result.exit_code != 0:
        parts.append(f"exit code {result.exit_code}")
    return ", ".join([*parts, format_duration(result.duration_s)])


def end_is_unknown(result: ExecutionResult) -> bool:
    """Return whether the program ended while the code was running, so that the outcome is unknown."""
    # Code can raise an exception of this name, but then it has not crashed.
    return result.outcome == "crashed" and result.error is not None and result.error.type == INTERRUPTED
