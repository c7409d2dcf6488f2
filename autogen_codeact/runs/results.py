"""Results of code as JSON, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from autogen_core.code_executor import CodeResult
from autogen_ext.code_executors._common import CommandLineCodeResult  # exported nowhere else
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.host.protocol import value_of_json, value_to_json
from codeact_sandbox.types.displays import Display, Forms
from codeact_sandbox.types.result import Artifact, CallOutcome, ErrorInfo, NetworkConnection, Outcome, State, ToolCall
from codeact_sandbox.types.tool import ToolImage

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
KeepBytes = Callable[[bytes], "StoredFile"]
"""Stores bytes in the run's folder."""
ReadBytes = Callable[["StoredFile"], bytes]
"""Returns bytes from the run's folder."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    @classmethod
    def copy_of(cls, value: object, /, **converted: Any) -> Self:
        """Make a record with the fields of a value, by name: a subclass of another library may have more."""
        return cls(**{name: getattr(value, name) for name in cls.model_fields if name not in converted}, **converted)


class StoredFile(Record):
    """A file in the folder `files/` of the run.

    Args:
        sha256: Hash of its content, and its name; None if it was left out.
        size: Its size in bytes, or what it would have been.
        format: What the content is: the bytes themselves, UTF-8 text, or JSON.
    """

    sha256: Hash | None
    size: int
    format: Literal["bytes", "text", "json"] = "bytes"
    note: str | None = None


def error_info(error: BaseException) -> ErrorInfo:
    """Return the record of an exception."""
    return ErrorInfo(type(error).__name__, str(error))


class ImageRecord(Record):
    """An image that a host tool returned."""

    media_type: str
    file: StoredFile
    size: tuple[int, int] | None = None


class CallRecord(Record):
    """A call to a host tool, as in `ToolCall`."""

    name: str
    arguments: dict[str, Any]
    outcome: CallOutcome
    result: Any = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    images: list[ImageRecord] = Field(default_factory=list)
    error_bases: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, call: ToolCall, keep: KeepBytes) -> CallRecord:
        """Make the record of a call."""
        images = [ImageRecord.copy_of(each, file=keep(each.data)) for each in call.images]
        return cls.copy_of(call, images=images, error_bases=list(call.error_bases))

    def call(self, read: ReadBytes) -> ToolCall:
        """Return the call; images that were left out are missing."""
        kept = [each for each in self.images if each.file.sha256 is not None]
        images = tuple(ToolImage(each.media_type, read(each.file), each.size) for each in kept)
        return ToolCall(**{**dict(self), "images": images, "error_bases": tuple(self.error_bases)})


class DisplayRecord(Record):
    """Something that code has shown, as in `Display`.

    Args:
        data: Its forms by MIME type that are text or JSON.
        files: Its forms by MIME type that are bytes, and JSON that is large.
        output_line: The line that stands for it in the output.
        offset: Where it is in the output, in characters, or None.
    """

    name: str
    data: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, StoredFile] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    path: Path | None = None
    output_line: str = ""
    offset: int | None = None

    @classmethod
    def of(cls, display: Display, keep: KeepBytes) -> DisplayRecord:
        """Make the record of a display."""
        forms = display.forms
        data = {kind: form for kind, form in forms.items() if not isinstance(form, bytes)}
        files = {kind: keep(form) for kind, form in forms.items() if isinstance(form, bytes)}
        return cls.copy_of(display, data=data, files=files, metadata=dict(display.metadata))

    def display(self, read: ReadBytes) -> Display:
        """Return the display; forms that were left out are missing."""
        files = {kind: read(file) for kind, file in self.files.items() if file.sha256 is not None}
        forms = Forms({**self.data, **files})
        return Display(self.name, forms, self.metadata, self.path, self.output_line, self.offset)


class ArtifactRecord(Record):
    """A file that a block made or changed, as in `Artifact`, with the copy in the run's folder."""

    name: str
    size: int
    media_type: str
    path: Path | None = None
    note: str | None = None
    file: StoredFile | None = None

    def artifact(self) -> Artifact:
        return Artifact(self.name, self.size, self.media_type, self.path, self.note)


class ResultRecord(Record):
    """A result of code, as in `Result`.

    Args:
        kind: Whether it is a result of this library, or AutoGen's `CommandLineCodeResult` or `CodeResult`.
        value: The value as JSON; an object with one name stands for what JSON does not have, such as `{"tuple": [1, 2]}`.
    """

    kind: Literal["sandbox", "command_line", "plain"]
    exit_code: int
    output: str
    code_file: str | None = None
    outcome: Outcome = "ok"
    value: Any = None
    value_repr: str | None = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    truncated: int = 0
    artifacts: list[ArtifactRecord] = Field(default_factory=list)
    tool_calls: list[CallRecord] = Field(default_factory=list)
    state: State = "kept"
    connections: list[NetworkConnection] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    number: int = 0
    restored_before: int = 0
    displays: list[DisplayRecord] = Field(default_factory=list)
    files_before: dict[str, str] | None = None

    @classmethod
    def of(
        cls, result: CodeResult, keep: KeepBytes, keep_file: Callable[[Artifact], StoredFile | None]
    ) -> ResultRecord:
        """Make the record of a result, to be written. It reads and writes files: call it in a thread."""
        if not isinstance(result, ExecutionResult):
            of_autogen = isinstance(result, CommandLineCodeResult)
            kind: Literal["command_line", "plain"] = "command_line" if of_autogen else "plain"
            code_file = result.code_file if isinstance(result, CommandLineCodeResult) else None
            outcome: Outcome = "ok" if result.exit_code == 0 else "error"
            return cls(
                kind=kind, exit_code=result.exit_code, output=result.output, code_file=code_file, outcome=outcome
            )
        return cls.copy_of(
            result,
            kind="sandbox",
            value=value_to_json(result.value),
            artifacts=[ArtifactRecord.copy_of(each, file=keep_file(each)) for each in result.artifacts],
            tool_calls=[CallRecord.of(each, keep) for each in result.tool_calls],
            connections=list(result.connections),
            notes=list(result.notes),
            displays=[DisplayRecord.of(each, keep) for each in result.displays],
        )

    def result(self, read: ReadBytes) -> CodeResult:
        """Return the result."""
        if self.kind == "plain":
            return CodeResult(self.exit_code, self.output)
        if self.kind == "command_line":
            return CommandLineCodeResult(self.exit_code, self.output, self.code_file)
        converted: dict[str, Any] = {
            "value": value_of_json(self.value),
            "artifacts": tuple(each.artifact() for each in self.artifacts),
            "tool_calls": tuple(each.call(read) for each in self.tool_calls),
            "connections": tuple(self.connections),
            "notes": tuple(self.notes),
            "displays": tuple(each.display(read) for each in self.displays),
        }
        same = {name: value for name, value in self if name != "kind"}
        return ExecutionResult(**{**same, **converted})
