"""The result of running code."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from codeact_sandbox.types.displays import MAX_TEXT_CHARS, Display, cut, escaped, output_to_html
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.text import apply_carriage_returns
from codeact_sandbox.types.tool import ToolImage

Outcome = Literal["ok", "error", "timeout", "oom", "crashed", "denied"]
"""How a block ended. `denied` is a refused approval: nothing ran."""

State = Literal["kept", "restored", "lost"]
"""What became of the session's memory: as the block left it, back to before the block, or gone."""


@dataclass(frozen=True)
class ErrorInfo:
    """Why a block did not end well.

    Args:
        type: Name of the exception class, of the signal (`SIGSEGV`), or of the refusal (`UnknownLanguage`).
        message: Its message, in one paragraph.
        line: Line of the block (from 1) where it happened, if it is known.
    """

    type: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Artifact:
    """A file that a block made or changed.

    Args:
        name: Path relative to the workspace, with forward slashes.
        size: Size in bytes.
        media_type: Media type guessed from the name, for example `image/png`.
        path: Copy on the host, or None if the file was left in the sandbox.
        note: Why there is no copy on the host (too large, not a regular file), else None.
    """

    name: str
    size: int
    media_type: str
    path: Path | None = None
    note: str | None = None


@dataclass(frozen=True)
class NetworkConnection:
    """A connection that code requested, with `allow_domains`.

    Args:
        host: The requested host, or None if it is unknown.
        port: The port, or None if it is unknown.
        allowed: Whether it was allowed.
        sent: Bytes from the sandbox, those to its proxy included.
        received: Bytes to the sandbox.
        reason: Why it was refused or how it failed, as a sentence; else None.
    """

    host: str | None
    port: int | None
    allowed: bool
    sent: int
    received: int
    reason: str | None = None


CallOutcome = Literal["ok", "error", "refused", "timeout", "cancelled"]
"""How a call to a host tool ended. After `refused` the tool has not run; after `timeout` and `cancelled` it may have."""


@dataclass(frozen=True)
class ToolCall:
    """A call to a host tool that a block made.

    Args:
        name: The tool.
        arguments: Its arguments by name, as JSON gave them.
        outcome: How it ended: with a result, with an exception, not approved or not allowed, out of its own time, or called
            off because the block ended or did not wait for it any more.
        result: What it returned, as JSON.
        error: Its exception, or why there is no result.
        duration_s: Wall-clock seconds on the host, with the time for the approval.
        images: Images that came with the result.
        error_bases: Builtin exceptions that the code could catch its exception as, the nearest first.
    """

    name: str
    arguments: dict[str, Any]
    outcome: CallOutcome
    result: Any = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    images: tuple[ToolImage, ...] = ()
    error_bases: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class CommandOutput:
    """What a command has written so far.

    Args:
        exit_code: As a shell has it: 127 if the command was not found, 126 if it could not be run, 128 and the signal that ended
            it, 124 after a timeout. None while it runs.
        stdout: Its standard output as text; "[... 123 bytes dropped ...]" stands where bytes are missing.
        stderr: Its standard error in the same way.
        stdout_bytes: The bytes that were kept of its standard output: its head and its tail.
        stderr_bytes: The same of its standard error.
        stdout_dropped: How many bytes were dropped between head and tail.
        stderr_dropped: The same of its standard error.
        duration_s: Seconds from its start to its end, or until now.
    """

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    duration_s: float = 0.0


class CodeFailed(RuntimeError):
    """Code or a command that `check()` was called for did not succeed.

    Args:
        result: The result; the message ends with its output.
    """

    def __init__(self, result: Result | ExecResult) -> None:
        self.result = result
        how = f"exit status {result.exit_code}"
        if isinstance(result, Result):
            how = f"{result.outcome}, {how}" if result.error is None else f"{result.error.type}, {how}"
            output = result.output
        else:
            output = result.stderr or result.stdout
        tail = cut(output.strip(), MAX_TEXT_CHARS)
        super().__init__(f"the code did not succeed ({how})" + (f":\n{tail}" if tail else ""))


class Checked:
    """What a result says of its success."""

    @property
    def ok(self) -> bool:
        """Whether the code succeeded."""
        raise NotImplementedError

    def check(self) -> Self:
        """Return the result if the code succeeded.

        Returns:
            This result.

        Raises:
            CodeFailed: It did not; the exception has the result.
        """
        if not self.ok:
            raise CodeFailed(self)  # type: ignore[arg-type]  # only results have this base
        return self

    def __bool__(self) -> bool:
        """Warn: a result is true also if the code failed."""
        warnings.warn("a result is always true: use result.ok, or result.check()", RuntimeWarning, stacklevel=2)
        return True


@dataclass(frozen=True)
class ExecResult(Checked, CommandOutput):
    """What a command did; the fields of `CommandOutput`, and those below.

    Args:
        timed_out: Whether it was killed because its time was over.
        artifacts: The files that were made or changed until its end, also by others, and copied to `work_dir`.
        notes: What else there is to say, such as files that were not copied; sentences.
    """

    exit_code: int
    timed_out: bool = False
    artifacts: tuple[Artifact, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the command ended in time with exit status 0."""
        return self.exit_code == 0 and not self.timed_out


TIMEOUT_LINE = "\n Timeout"
"""Appended to the output of a block that timed out, as AutoGen's executor does: AutoGen's agents read nothing else."""
_OUT_OF_MEMORY = "\n Out of memory: the sandbox's memory limit was reached."
MEMORY_LINES: dict[State, str] = {
    "kept": _OUT_OF_MEMORY,
    "restored": f"{_OUT_OF_MEMORY} The session's variables are as they were before this block.",
    "lost": f"{_OUT_OF_MEMORY} The session's variables are lost.",
}
"""Appended to the output of a block for which there was too little memory."""


MAX_REPR_CHARS = 40

STOPPED = ErrorInfo("Stopped", "it was stopped before its end")
"""The error of a block that was interrupted."""


def format_duration(duration: float) -> str:
    """Return a duration as text: "8 ms", "0.24 s", "12.3 s"."""
    if duration < 0.1:
        return f"{duration * 1000:.0f} ms"
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.1f} s"


def _shortened(text: str) -> str:
    return _cut(repr(text)) if len(text) <= MAX_REPR_CHARS else f"{repr(text[:MAX_REPR_CHARS])[:MAX_REPR_CHARS]}…"


def _cut(shown: str) -> str:
    return shown if len(shown) <= MAX_REPR_CHARS else f"{shown[:MAX_REPR_CHARS]}…"


class _HasOutput(Protocol):
    output: str


def last_line(outcome: Outcome, state: State) -> str:
    if outcome == "timeout":
        return TIMEOUT_LINE
    return MEMORY_LINES[state] if outcome == "oom" else ""


def written_by_code(result: _HasOutput) -> str:
    """Return the output of a result, AutoGen's included, without the line about a timeout or the end of memory."""
    if not isinstance(result, Result):
        return result.output
    return result.output.removesuffix(last_line(result.outcome, result.state))


def remarks(result: Result, most: int = 20) -> list[str]:
    """Return what notebooks say of a result beside its output: dropped output, notes, files that are not shown."""
    lines = [f"{result.truncated:,} bytes of output were dropped."] if result.truncated else []
    lines += result.notes[:most]
    shown = {display.name for display in result.displays}
    if names := [artifact.name for artifact in result.artifacts if artifact.name not in shown]:
        more = f", and {len(names) - most:,} more" if len(names) > most else ""
        lines.append(f"Files: {', '.join(names[:most])}{more}")
    return lines


@dataclass(repr=False)
class Result(Checked):
    """Result of running one or more code blocks.

    It is not frozen because AutoGen's agent assigns to `output`. This package never changes a result that it has returned.

    Args:
        exit_code: 0 on success; 124 after a timeout; 128 + n after signal n.
        output: Standard output and error in the order written; after a timeout, `TIMEOUT_LINE` follows, and if memory
            ran out, a line that says so.
        code_file: First file of code that was run, on the host, or None. With `delete_tmp_files=True` it is gone by now; in a
            session, too, unless the block has named it.
        outcome: How the (last) block ended.
        value: Value of the last bare expression (session mode) if it is plain: a number, `str`, `bytes`, `bool`, a list, tuple,
            dict or set of such values, of at most 64 KiB and 16 levels. A scalar of numpy is the number. Else None.
        value_repr: Text of the last bare expression's value as it is printed; None if there is none, or it is None.
        error: Why it did not end well, else None.
        duration_s: Wall-clock seconds inside the sandbox.
        cpu_s: Processor seconds of the interpreter or script that ran, and of the processes that it has waited for.
        peak_memory: Most memory of this interpreter or script at once, in bytes; 0 if it is not known.
        truncated: Bytes of output that were dropped, 0 if all is here.
        artifacts: Files that the blocks made or changed.
        tool_calls: Calls to host tools, in the order they began.
        state: What became of the session's memory.
        number: The (last) block's number in its sandbox, counted from 1; 0 where none was run.
        restored_before: With state `restored`, the number of the block before which the session is: the block's own. Else 0.
        connections: Connections that began while the blocks ran, with `allow_domains`; where blocks run at the same time, also
            those of the others.
        notes: Sentences about the run that are not the code's own output (for example what a rollback can't restore).
        displays: Figures, images, tables and other things that the blocks have shown, in order.
        files_before: Marks of the files that the (last) block found, by name, if the caller keeps a journal of the session.
            None if not known.
    """

    exit_code: int
    output: str
    code_file: str | None = None
    outcome: Outcome = "ok"
    value: Any = None
    value_repr: str | None = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    cpu_s: float = field(default=0.0, compare=False)
    peak_memory: int = field(default=0, compare=False)
    truncated: int = 0
    artifacts: tuple[Artifact, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    state: State = "kept"
    connections: tuple[NetworkConnection, ...] = ()
    notes: tuple[str, ...] = field(default=())
    number: int = field(default=0, compare=False)
    restored_before: int = 0
    displays: tuple[Display, ...] = ()
    files_before: dict[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the code succeeded."""
        return self.outcome == "ok" and self.exit_code == 0

    def __repr__(self) -> str:
        """Return at most 300 characters: what differs from a block without output."""
        parts = [repr(self.outcome), f"exit_code={self.exit_code}", f"output={_shortened(self.output)}"]
        if self.value is not None:
            with suppress(ValueError):  # an integer with more than 4,300 digits
                parts.append(f"value={_cut(repr(self.value))}")
        elif self.value_repr is not None:
            parts.append(f"value_repr={_shortened(self.value_repr)}")
        if self.error is not None:
            parts.append(f"error={_shortened(f'{self.error.type}: {self.error.message}')}")
        if self.state != "kept":
            parts.append(f"state={self.state!r}")
        counts = {name: getattr(self, name) for name in ("displays", "artifacts", "tool_calls", "connections", "notes")}
        counted = {"truncated": self.truncated, **{name: len(found) for name, found in counts.items()}}
        parts += [f"{name}={count}" for name, count in counted.items() if count]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: output, value, error, displays and files, as text and as HTML without scripts."""
        failed = "" if self.outcome == "ok" else f"({self.outcome})"
        if self.error is not None:
            failed = f"{self.error.type}: {self.error.message}"
        shown = written_by_code(self).rstrip("\n")
        if failed and self.error is not None and self.error.message in shown:
            failed = ""  # the traceback is part of the output
        files = ", ".join(artifact.name for artifact in self.artifacts)
        parts = {
            "output": shown,
            "value": self.value_repr if self.value_repr and self.value_repr not in shown else "",
            "error": failed,
        }
        texts = {name: text for name, text in parts.items() if text}
        if files:
            texts["files"] = f"Files: {files}"
        color = {"error": "color:#b00", "files": "color:#666"}
        rows = [
            f'<pre class="codeact-{name}" style="{color.get(name, "")}">{escaped(cut(text, MAX_TEXT_CHARS))}</pre>'
            for name, text in texts.items()
            if name != "output"
        ]
        rows = [*output_to_html(f"{shown}\n" if shown else "", self.displays), *rows]
        text = apply_carriage_returns("\n".join(texts.values()))
        # IPython in a terminal prints it as it is.
        text = cut(text, MAX_TEXT_CHARS)
        return {"text/plain": printable(text, keep="\n\t"), "text/html": "\n".join(rows)}
