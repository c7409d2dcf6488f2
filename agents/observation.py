"""Describes results to a model. The result itself is never changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

from autogen_core import Image
from autogen_core.code_executor import CodeResult
from autogen_core.models import UserMessage

from autogen_codeact.agents.images import images_of
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.host.blocks import REFUSALS
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import STOPPED, ErrorInfo, State, ToolCall, format_duration, written_by_code
from codeact_sandbox.types.text import apply_carriage_returns

MAX_OUTPUT_CHARS = 20_000
MAX_FILES_NAMED = 10
MAX_NAME_CHARS = 120
MAX_IMAGE_NAME_CHARS = 40
MAX_CALLS_SHOWN = 40
MAX_CALL_CHARS = 500

INTERRUPTED = "Interrupted"
"""Type of the error of code whose end is not known."""
UNKNOWN_END = (
    "It is not known how far this code came: the process of the agent ended while it was running. It is not run again by itself. "
    "Look at what is there, files for example, before you go on."
)
_BROKEN = "The sandbox broke while the code ran ({message}). What it did before that is done."
_STOPPED = "The person who uses this program stopped the code before its end."
_NO_END = (
    {STOPPED.type: _STOPPED}
    | {cls.__name__: _BROKEN for cls in (SandboxDied, SandboxTimeout, SandboxProtocolError)}
    | {INTERRUPTED: UNKNOWN_END}
)
MAX_ITEMS = 50
MAX_CUT_DEPTH = 6
CALLS_MADE = "Calls to host tools that this code made before it ended; what is done is done, so don't repeat it:"
SOME_REFUSED = CALLS_MADE[:-1] + "; what was refused was not executed:"
ALL_REFUSED = "Calls to host tools that this code made before it ended; all were refused, and none was executed:"
# AutoGen's agent uses these sentences, and programs may look for them.
_SILENT = (
    "The script ran but produced no output to console. The POSIX exit code was: {code}. "
    "If you were expecting output, consider revising the script to ensure content is printed to stdout."
)
_FAILED = "The script ran, then exited with an error (POSIX exit code: {code})"
_NOT_RUN = "Code execution was not approved."
_REFUSED = "The code could not be run (exit code {code})"
_KEPT = "The session's memory was kept: what this code defined before it ended is there."
_STATES = {
    "restored": (
        "The session's memory was put back to before this code: variables and imports from earlier code are there, "
        "those of this code are not."
    ),
    "lost": "The session's memory is lost: import, load and define again what you need.",
}


def describe(
    result: CodeResult,
    *,
    limit: int = MAX_OUTPUT_CHARS,
    whole: str | None = None,
    session: bool = False,
    vision: bool = True,
) -> str:
    """Describe a result to a model; a success without remarks is its output only, with progress bars in their last state."""
    result = as_execution_result(result)
    output = apply_carriage_returns(written_by_code(result))
    if len(output) > limit:
        output = bounded(output, limit, whole, complete=not result.truncated)
    # Not if the executor echoes it into the output.
    value = None if result.value_repr is None or result.value_repr in result.output else result.value_repr
    text, remarks = output, _remarks(result, value, session=session, vision=vision)
    silent = _SILENT.format(code=result.exit_code) if result.outcome in ("ok", "error") else "It printed nothing."
    if headline := _headline(result):
        text = f"{headline}\nIts output was:\n{output}" if output.strip() else f"{headline}\n{silent}"
    elif not output.strip():
        text = _NOT_RUN if result.outcome == "denied" else "" if value else silent
    return "{}\n\n{}".format(text.rstrip("\n"), remarks) if text and remarks else text or remarks


def as_execution_result(result: CodeResult) -> ExecutionResult:
    """Return a result with all fields; a plain `CodeResult` tells only `ok` and `error` apart."""
    if isinstance(result, ExecutionResult):
        return result
    return ExecutionResult(result.exit_code, result.output, outcome="ok" if result.exit_code == 0 else "error")


def metadata_of(result: CodeResult) -> dict[str, str]:
    """Return what a dumped `CodeExecutionEvent` would lose, since AutoGen types its result as plain `CodeResult`."""
    metadata = {"outcome": as_execution_result(result).outcome, "exit_code": str(result.exit_code)}
    if isinstance(result, ExecutionResult):
        metadata |= {"state": result.state, "duration_s": f"{result.duration_s:.3f}"}
        if result.displays:
            metadata["displays"] = ", ".join(display.name for display in result.displays)
        if result.error is not None:
            metadata["error"] = result.error.type
    return metadata


async def as_message(
    result: CodeResult,
    source: str,
    *,
    vision: bool,
    limit: int = MAX_OUTPUT_CHARS,
    whole: str | None = None,
    session: bool = False,
    further: Sequence[str] = (),
) -> UserMessage:
    """Make the message about a result for a model."""
    text = describe(result, limit=limit, whole=whole, session=session, vision=vision)
    images: list[Image] = []
    left_out: list[tuple[str, str]] = []
    if vision and isinstance(result, ExecutionResult) and (result.displays or result.artifacts or result.tool_calls):
        images, left_out = await asyncio.to_thread(images_of, result)
    if left_out:
        not_shown = _listed([f"{name[:MAX_IMAGE_NAME_CHARS]} ({why})" for name, why in left_out])
        text = f"{text.rstrip()}\nImages that you are not shown: {not_shown}."
    if further:
        text = "\n\n".join([text.rstrip(), *further])
    return UserMessage(content=[text, *images] if images else text, source=source)


def call_lines(calls: Sequence[ToolCall]) -> list[str]:
    """Describe calls to host tools, in at most 41 lines, and which of them took effect."""
    half = MAX_CALLS_SHOWN // 2
    gap = [f"- [… {len(calls) - 2 * half} more …]"] if len(calls) > MAX_CALLS_SHOWN else []
    shown = [*calls[:half], *calls[-half:]] if gap else calls
    lines = [f"- {_shortened(_call(call))}" for call in shown]
    return [*lines[:half], *gap, *lines[half:]]


def _some_arguments(call: ToolCall) -> list[tuple[str, Any]]:
    some = [(name[:MAX_CALL_CHARS], value) for name, value in islice(call.arguments.items(), MAX_ITEMS)]
    left = len(call.arguments) - len(some)
    return [*some, ("…", f"{left} more")] if left else some


def _call(call: ToolCall) -> str:
    made = f"{call.name}({', '.join(f'{name}={_json(value)}' for name, value in _some_arguments(call))})"
    error = f"{call.error.type}: {call.error.message}" if call.error is not None else ""
    match call.outcome:
        case "ok":
            return f"{made} was done and gave {_json(call.result)}"
        case "refused":
            return f"{made} was refused and not executed: {error}"
        case "error":
            return f"{made} failed: {error}"
        case _:
            return f"{made} was under way when it was stopped; it may have been done or not"


def _json(value: Any) -> str:
    return _shortened(json.dumps(_cut(value, MAX_CUT_DEPTH), ensure_ascii=False, default=str))


def _cut(value: Any, depth: int) -> Any:
    """Cut a value to what can be shown: it may have megabytes, which would take long to serialize."""
    if isinstance(value, str):
        return value[: MAX_CALL_CHARS + 1]
    if isinstance(value, list | tuple):
        return (
            [_cut(item, depth - 1) for item in value[:MAX_ITEMS]] + ["…"] * (len(value) > MAX_ITEMS) if depth else "…"
        )
    if isinstance(value, dict):
        some = {_cut(key, 0): _cut(item, depth - 1) for key, item in islice(value.items(), MAX_ITEMS)}
        return {**some, **({"…": len(value) - MAX_ITEMS} if len(value) > MAX_ITEMS else {})} if depth else "…"
    return value


def _shortened(text: str) -> str:
    cut = "".join(char if char.isprintable() else " " for char in text[: MAX_CALL_CHARS + 1])
    return cut if len(text) <= MAX_CALL_CHARS else f"{cut[: MAX_CALL_CHARS - 1]}…"


def broken(error: SandboxError, *, session: bool = True) -> ExecutionResult:
    """Return the result of code whose sandbox broke under it."""
    info = ErrorInfo(type(error).__name__, str(error))
    state: State = "lost" if session else "kept"
    return ExecutionResult(1, "", outcome="crashed", error=info, tool_calls=tuple(error.tool_calls), state=state)


def interrupted(output: str, calls: Sequence[ToolCall], notes: Sequence[str] = ()) -> ExecutionResult:
    """Return the result of code whose end is not known, because the agent's process ended while it was running."""
    message = "the process of the agent ended while this code was running; whether the code finished is unknown"
    error = ErrorInfo(INTERRUPTED, message)
    return ExecutionResult(1, output, outcome="crashed", error=error, tool_calls=tuple(calls), notes=tuple(notes))


def bounded(text: str, limit: int, whole: str | None = None, *, complete: bool = True) -> str:
    """Return `text`, or if it is longer than `limit` characters, its head and tail and a note on what is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    content = "all of it" if complete else "all that was kept of the output"
    where = f"; {content} is in the file {whole}" if whole is not None else ""
    gap = f"[… {len(text) - limit} characters left out here{where} …]"
    return f"{text[:head]}\n{gap}\n{text[len(text) - tail :]}"


def _headline(result: ExecutionResult) -> str:
    if result.exit_code == 0 or result.outcome == "denied":
        return ""
    error, why = result.error, _why(result.error, result.output)
    match result.outcome:
        case "timeout":
            return f"The code took too long and was stopped after {result.duration_s:.1f} s{why}."
        case "oom":
            return f"The code was killed because it used more memory than the sandbox has{why}."
        case "crashed" if error is not None and error.type in _NO_END:
            return _NO_END[error.type].format(message=error.message)
        case "crashed":
            return f"The code crashed its process (exit code {result.exit_code}){why}."
        case _:
            refused = error is not None and error.type in REFUSALS
            return (_REFUSED if refused else _FAILED).format(code=result.exit_code) + why


def _why(error: ErrorInfo | None, output: str) -> str:
    # A refusal's output is its sentence; a traceback ends in both type and message.
    if error is None or error.message == output or (error.message in output and error.type in output):
        return ""
    at = f" (line {error.line})" if error.line is not None else ""
    return f": {error.type}: {error.message.rstrip('.')}{at}"


def _remarks(result: ExecutionResult, value: str | None, *, session: bool, vision: bool) -> str:
    lines = []
    if value:
        lines.append(f"Value of the last expression: {bounded(value, MAX_OUTPUT_CHARS)}")
    if result.truncated:
        lines.append(f"{result.truncated} bytes of output were too much to keep and are gone.")
    if result.state in _STATES:
        lines.append(_STATES[result.state])
    elif session and result.outcome == "error":
        lines.append(_KEPT)
    if result.exit_code != 0 and result.tool_calls and result.outcome != "denied":
        refused = sum(call.outcome == "refused" for call in result.tool_calls)
        head = CALLS_MADE if not refused else SOME_REFUSED if refused < len(result.tool_calls) else ALL_REFUSED
        lines += [head, *call_lines(result.tool_calls)]
    if not vision and (images := sum(len(call.images) for call in result.tool_calls)):
        lines.append(f"Host tools returned {images} image{'s' if images > 1 else ''}, which you can't see.")
    lines += result.notes
    if result.artifacts:
        files = [f"{a.name} ({a.size} bytes{f'; {a.note}' if a.note else ''})" for a in result.artifacts]
        lines.append(f"Files made or changed: {_listed(files)}.")
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    # Names come from the sandbox: one with a line break in it must not look like a remark of ours.
    shown = ["".join(c if c.isprintable() else "?" for c in name)[:MAX_NAME_CHARS] for name in names[:MAX_FILES_NAMED]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


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
