"""The journal of a session: the blocks that ran in it, so that it can be rebuilt in another sandbox."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4
from weakref import WeakKeyDictionary

from autogen_core.code_executor import CodeBlock
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.files.manifests import MAX_FILES, Manifest
from codeact_sandbox.tools.payloads import is_small, json_text, least_size
from codeact_sandbox.types.filenames import is_safe
from codeact_sandbox.types.result import CallOutcome, ErrorInfo, ToolCall

MAX_BLOCKS = 1_000
MAX_BYTES = 4 * 1024 * 1024

MAX_COUNT = 10**9
MAX_NAME = 200
MAX_DEPTH = 200


class RecordedCall(BaseModel):
    """A call to a host tool, and how it was answered, as in a state."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any]
    outcome: CallOutcome
    result: Any = None
    error_type: str | None = None
    error_message: str = ""
    error_bases: list[str] = Field(default_factory=list, max_length=MAX_NAME)

    @classmethod
    def of(cls, call: ToolCall) -> RecordedCall:
        return cls.model_construct(
            name=call.name,
            arguments=call.arguments,
            outcome=call.outcome,
            result=call.result,
            error_type=call.error.type if call.error is not None else None,
            error_message=call.error.message if call.error is not None else "",
            error_bases=list(call.error_bases),
        )

    def call(self) -> ToolCall:
        """Return the call, as far as it was recorded."""
        error = ErrorInfo(self.error_type, self.error_message) if self.error_type is not None else None
        return ToolCall(
            self.name, self.arguments, self.outcome, self.result, error, error_bases=tuple(self.error_bases)
        )


def _as_recorded(_: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    return core_schema.no_info_after_validator_function(
        RecordedCall.call,
        handler.generate_schema(RecordedCall),
        serialization=core_schema.plain_serializer_function_ser_schema(RecordedCall.of),
    )


Call = Annotated[ToolCall, GetPydanticSchema(_as_recorded)]
"""A call that is saved as a `RecordedCall`. It is the result's own object, because the garbage collector looks at each one."""


Mark = Annotated[str, Field(pattern=r"^[0-9]{1,15}:([0-9a-f]{32})?$")]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]


class JournalEntry(BaseModel):
    """A block that was not killed, with a digest of its output, because the output may contain secrets."""

    model_config = ConfigDict(extra="forbid")

    language: str = Field(max_length=MAX_NAME)
    code: str
    outcome: Literal["ok", "error"]
    output: str = Field(max_length=MAX_NAME)
    calls: list[Call] = Field(default_factory=list)
    # How the workspace that it found differs from that of the last entry with known files; None if not known.
    files: dict[str, Mark | None] | None = Field(default=None, max_length=2 * MAX_FILES)
    connections: Count | None = None  # to allowed hosts

    @field_validator("files")
    @classmethod
    def _safe_names(cls, files: dict[str, Mark | None] | None) -> dict[str, Mark | None] | None:
        if unsafe := [name for name in files or () if not is_safe(name)]:
            raise ValueError(f"{unsafe[0][:MAX_NAME]!r} can't be a file in the workspace")
        return files

    def block(self) -> CodeBlock:
        return CodeBlock(code=self.code, language=self.language)


def bounded(entries: Any) -> Any:
    """Refuse entries that exceed a journal's limits, before they are parsed further."""
    if isinstance(entries, list) and len(entries) > MAX_BLOCKS:
        raise ValueError(f"there are {len(entries):,} entries; a journal has {MAX_BLOCKS:,} at most")
    if least_size(entries, MAX_BYTES) > MAX_BYTES:
        raise ValueError(f"they hold more than the {MAX_BYTES:,} bytes that a journal holds at most")
    level, depth = [entries], 0
    while level := [part for item in level if isinstance(item, dict | list | tuple) for part in _parts(item)]:
        if (depth := depth + 1) > MAX_DEPTH:
            raise ValueError(f"they are nested more than {MAX_DEPTH} deep")
    return entries


def _parts(item: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


class Journal(BaseModel):
    """The blocks of one session that left something in it, in the order run.

    At most 1,000 blocks and 4 MiB of JSON are kept; later ones are counted only. So are rollbacks, and blocks that others than
    the agents ran in the session.
    """

    model_config = ConfigDict(extra="forbid")

    session: str = Field(default_factory=lambda: uuid4().hex, max_length=MAX_NAME)
    entries: Annotated[list[JournalEntry], BeforeValidator(bounded)] = Field(default_factory=list)
    left_out: Count = 0
    unrecorded: Count = 0

    @model_validator(mode="after")
    def _bounded_manifests(self) -> Journal:
        for number, files in enumerate(self.manifests()):
            if files is not None and len(files) > MAX_FILES:
                raise ValueError(f"entries.{number}.files: there are more than {MAX_FILES:,} files")
        return self

    def manifests(self) -> Iterator[Manifest | None]:
        """Return the files that each block has found; None if not known."""
        files: Manifest = {}
        for entry in self.entries:
            if entry.files is not None:
                files = merged(files, entry.files)
            yield files if entry.files is not None else None

    def is_prefix_of(self, other: Journal) -> bool:
        """Return whether the other journal is of the same session and has all entries of this one."""
        if self.session != other.session or len(self.entries) > len(other.entries):
            return False
        # As JSON too, because NaN is not equal to itself.
        return all(
            mine == its or mine.model_dump_json() == its.model_dump_json()
            for mine, its in zip(self.entries, other.entries, strict=False)
        )


class SessionRecord:
    """The journal of the session in one executor, for all agents that use it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.pending: Journal | None = None
        self._starts = 0
        self._bytes = 0
        # The files that the last entry with known files has found.
        self._files: Manifest = {}
        self._unrecorded_before = 0

    def add_block(self, executor: SandboxCodeExecutor, block: CodeBlock, result: ExecutionResult) -> None:
        """Add a block to the journal.

        A failed block is added, too, because what it did before its error stays. A killed one has left nothing in the session.
        """
        self.check_sandbox(executor)
        if result.state == "lost":
            self.clear()
        if result.outcome in ("ok", "error"):
            files = result.files_before
            self.add(
                JournalEntry.model_construct(
                    language=block.language,
                    code=block.code,
                    outcome="ok" if result.outcome == "ok" else "error",
                    output=digest(result.output),
                    calls=[replace(call, images=()) if call.images else call for call in result.tool_calls],
                    files=None if files is None else {} if files == self._files else difference(self._files, files),
                    connections=sum(connection.allowed for connection in result.connections),
                )
            )

    def check_sandbox(self, executor: SandboxCodeExecutor) -> None:
        """Begin a new journal if the sandbox was replaced, and count the blocks that others ran in it."""
        if executor.starts != self._starts:
            if self._starts:
                self.clear()
            self._starts = executor.starts
        self.journal.unrecorded = self._unrecorded_before + executor.unrecorded

    def add(self, entry: JournalEntry) -> None:
        """Add an entry, if there is room and none was left out before it."""
        size = size_of(entry, MAX_BYTES)
        if self.journal.left_out or len(self.journal.entries) >= MAX_BLOCKS or self._bytes + size > MAX_BYTES:
            self.journal.left_out += 1
            return
        self._bytes += size
        self.journal.entries.append(entry)
        if entry.files:
            self._files = merged(self._files, entry.files)

    def clear(self) -> None:
        self.journal = Journal()
        self._bytes = self._unrecorded_before = 0
        self._files = {}

    def start_rebuilding(self, executor: SandboxCodeExecutor, journal: Journal) -> None:
        """Begin the journal of a session that is rebuilt."""
        self.clear()
        self.journal.session = journal.session
        self._unrecorded_before = journal.unrecorded
        self._starts = executor.starts
        self.check_sandbox(executor)

    def load(self, journal: Journal) -> None:
        """Have the session rebuilt before it is used next, unless it is the one that the journal is about."""
        if self.pending is not None and journal.is_prefix_of(self.pending):
            return  # another agent on this session knew more
        self.pending = None if journal.is_prefix_of(self.journal) else journal


_RECORDS: WeakKeyDictionary[SandboxCodeExecutor, SessionRecord] = WeakKeyDictionary()


def record_of(session: SandboxCodeExecutor) -> SessionRecord:
    """Return the record of an executor's session, which all agents that use it share."""
    return _RECORDS.setdefault(session, SessionRecord())


def size_of(entry: JournalEntry, enough: int) -> int:
    """Return the bytes that an entry takes as JSON.

    They are counted call by call, because serializing many large results at once would stall every thread.
    """
    size = len(entry.model_copy(update={"calls": []}).model_dump_json())
    for call in entry.calls:
        record = RecordedCall.of(call)
        if not is_small(call.result):
            size, record.result = size + len(json_text(call.result)), None  # piece by piece
        size += len(record.model_dump_json()) + 1
        if size > enough:
            break
    return size


def merged(files: Manifest, changes: dict[str, str | None]) -> Manifest:
    """Apply changes to a manifest and return the new one."""
    return {name: mark for name, mark in {**files, **changes}.items() if mark is not None}


def difference(before: Manifest, after: Manifest) -> dict[str, str | None]:
    """Return the files in which two manifests differ: their marks in the second one, or None if they are not in it."""
    changed: dict[str, str | None] = {name: mark for name, mark in after.items() if before.get(name) != mark}
    return changed | dict.fromkeys(before.keys() - after.keys())


def digest(output: str) -> str:
    """Return a digest of an output, to compare it with another one."""
    # In another session, blocks have other numbers in tracebacks, and objects other addresses.
    same = re.sub(r"\b0x[0-9a-f]{8,}\b", "0x", re.sub(r"<block \d+>", "<block>", output))
    return hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:32]
