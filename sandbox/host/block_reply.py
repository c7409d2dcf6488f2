"""Turns the runner's reply into a `Result`."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from autogen_codeact.sandbox.displays import Display
from autogen_codeact.sandbox.egress.connection_log import notes as connection_notes
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.errors import SandboxProtocolError
from autogen_codeact.sandbox.host.connection import Reply
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.result import TIMEOUT_LINE, Artifact, ErrorInfo, Outcome, Result, State

R = TypeVar("R", bound=Result)
_OUTCOMES = {outcome: outcome for outcome in get_args(Outcome)}
_STATES = {state: state for state in get_args(State)}  # from the best to the worst


def to_result(
    reply: Reply,
    *,
    split_streams: bool,
    code_file: str | None,
    artifacts: tuple[Artifact, ...],
    notes: tuple[str, ...],
    displays: tuple[Display, ...] = (),
) -> Result:
    """Make the result of one block.

    Args:
        reply: What came back.
        split_streams: Whether standard output and error were kept apart.
        code_file: File with its code on the host, or None.
        artifacts: Files that it made or changed.
        notes: Notes of the host, before those of the runner.
        displays: What it has shown. Default: nothing.

    Returns:
        The result.

    Raises:
        SandboxProtocolError: The reply is not what the protocol says.
    """
    message = reply.message
    try:
        dropped = [int(count) for count in message["dropped"]]
        texts = [
            _text(reply.streams.get(kind, bytearray()), dropped[index], int(message["tail"][index]))
            for index, kind in enumerate((Frame.STDOUT, Frame.STDERR)[: len(dropped)])
        ]
        error = message["error"]
        outcome = _OUTCOMES[message["outcome"]]
        return Result(
            exit_code=int(message["exit_code"]),
            output="".join(texts) + (TIMEOUT_LINE if outcome == "timeout" else ""),
            code_file=code_file,
            outcome=outcome,
            stdout=texts[0] if split_streams else None,
            stderr=texts[1] if split_streams else None,
            value=None if message["value"] is None else _text_of(message["value"]),
            error=_error_info(error) if error else None,
            duration_s=float(message["duration_s"]),
            truncated=sum(dropped),
            artifacts=artifacts,
            state=_STATES[message["state"]],
            displays=displays,
            number=int(message["number"]),
            restored_before=int(message["before"] or 0),
            notes=(*notes, *map(_text_of, message["notes"])),
        )
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as problem:
        raise SandboxProtocolError(f"the sandbox sent a malformed result: {problem!r}") from problem


def _text_of(value: Any) -> str:
    """Return text that UTF-8 can encode: lone surrogates, which JSON can contain, become escapes."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _error_info(error: Mapping[str, Any]) -> ErrorInfo:
    line = error["line"]
    return ErrorInfo(_text_of(error["type"]), _text_of(error["message"]), None if line is None else int(line))


def _text(data: bytearray, dropped: int, tail: int) -> str:
    if not dropped:
        return data.decode("utf-8", "replace")
    cut = len(data) - tail
    head, rest = data[:cut].decode("utf-8", "replace"), data[cut:].decode("utf-8", "replace")
    return f"{head}\n[... {dropped:,} bytes dropped ...]\n{rest}"


def artifact(entry: dict[str, Any], **more: Any) -> Artifact:
    """Make an `Artifact` from an entry of the runner's list of changed files."""
    name = str(entry["name"])
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Artifact(name, int(entry["size"]), media_type, **more)


def add_connections(result: Result, gateway: Gateway, mark: int) -> None:
    """Add the connections that were made while a block ran to its result.

    Args:
        result: The result.
        gateway: The sandbox's proxy.
        mark: Position in its connection log before the block.
    """
    result.connections = gateway.log.since(mark)
    result.notes = (*result.notes, *connection_notes(result.connections), *gateway.log.remarks_since(mark))


def combine(results: Sequence[R]) -> R:
    """Combine the results of several blocks as AutoGen's executors do.

    Args:
        results: One or more, in the order run.

    Returns:
        The last one's outcome, with the output, files and notes of all.
    """
    if len(results) == 1:
        return results[0]
    last = results[-1]
    split = last.stdout is not None
    files = {item.name: item for result in results for item in result.artifacts}
    return replace(
        last,
        output="".join(result.output for result in results),
        code_file=next((result.code_file for result in results if result.code_file), None),
        stdout="".join(result.stdout or "" for result in results) if split else None,
        stderr="".join(result.stderr or "" for result in results) if split else None,
        duration_s=sum(result.duration_s for result in results),
        truncated=sum(result.truncated for result in results),
        artifacts=tuple(files.values()),
        tool_calls=tuple(call for result in results for call in result.tool_calls),
        connections=tuple(each for result in results for each in result.connections),
        state=max((result.state for result in results), key=list(_STATES).index),
        notes=tuple(note for result in results for note in result.notes),
        displays=tuple(display for result in results for display in result.displays),
        files_before=None,
    )
