"""Rebuilds a session from its journal."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.messages import CodeGenerationEvent
from autogen_core import CancellationToken

from autogen_codeact.agents.journal import Journal, JournalEntry, SessionRecord, digest
from autogen_codeact.agents.text import shorten
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.tools.adapters import run_cancellable
from codeact_sandbox import Result, SandboxError, ToolAnswer
from codeact_sandbox.session.replay import ExternalEffectsError, ReplayWorkspace
from codeact_sandbox.tools.broker import NotAllowed
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import ToolCall
from codeact_sandbox.types.text import format_count

MAX_DIFFERENCES = 20
MAX_SHOWN_CHARS = 200
MAX_NAMES = 5

MAX_SECONDS = 600.0
"""For all blocks together; the remaining blocks are not run again."""

REBUILT = (
    "The session was rebuilt: its {blocks} run again in a fresh sandbox, without network and on a copy of the files. Host tools "
    "were not called, and what the code had left running (threads, subprocesses) was ended."
)
SAME = "All went as before."
DIFFERENT = "It differs from what it was:"
NOT_THERE = "The session has no variables or functions from blocks that were not rebuilt."
EMPTY = "The session could not be rebuilt and is empty: {reason}. Variables and functions of its earlier code are lost."
UNRECORDED = "others than its agents used the session {count} times; that is not on record and was not done again"
LEFT_OUT = "{count} later blocks were too many to be recorded and were not run again; what they defined is missing"
FILES_UNKNOWN = "block {number} ran on the files of now: which ones it found is not on record"
FILES_MISSING = "block {number} ran without files that have changed since, or are gone: {names}"
NO_CHECKPOINT = "no checkpoint could be taken ({reason}), so its effects could not be undone"


@dataclass
class Replay:
    """The outcome of rebuilding a session."""

    blocks: int
    differences: tuple[str, ...] = ()
    not_rebuilt: tuple[int, ...] = ()  # numbers of blocks, from 1, also in what follows
    empty: str | None = None  # why the session is empty, as the rest of a sentence

    @property
    def same(self) -> bool:
        """Whether no difference from the original session was detected."""
        return not self.differences and self.empty is None

    def event(self, source: str) -> CodeGenerationEvent:
        """Make an event of a type that AutoGen's teams accept."""
        metadata = {"replayed": str(self.blocks), "differences": str(len(self.differences))}
        if self.not_rebuilt:
            metadata["not_rebuilt"] = ",".join(map(str, self.not_rebuilt))
        return CodeGenerationEvent(
            retry_attempt=0, content=self.describe(), code_blocks=[], source=source, metadata=metadata
        )

    def describe(self) -> str:
        if self.empty is not None:
            return EMPTY.format(reason=self.empty)
        rebuilt = REBUILT.format(blocks=f"{self.blocks} blocks were" if self.blocks != 1 else "1 block was")
        if self.same:
            return f"{rebuilt} {SAME}"
        lines = [rebuilt, DIFFERENT, *(f"- {difference}" for difference in self.differences[:MAX_DIFFERENCES])]
        if len(self.differences) > MAX_DIFFERENCES:
            lines.append(f"- and {len(self.differences) - MAX_DIFFERENCES} more differences")
        if self.not_rebuilt:
            lines.append(NOT_THERE)
        return "\n".join(lines)


async def replay(
    executor: SandboxCodeExecutor, record: SessionRecord, journal: Journal, cancellation_token: CancellationToken
) -> Replay:
    """Run the blocks of a journal again, in a new session; it changes nothing outside the sandbox.

    Each block gets the files that it found the first time, as far as the host has them. Its effects on the session are
    undone if it ended differently from the first time, or used a file that has changed, or the network.
    """
    record.start_rebuilding(executor, journal)
    made = Replay(len(journal.entries))
    if journal.left_out:
        made.differences += (LEFT_OUT.format(count=journal.left_out),)
    if journal.unrecorded:
        made.differences += (UNRECORDED.format(count=journal.unrecorded),)
    replayer = _Replayer(record, journal, made)
    try:
        if journal.entries:
            marks = {mark for entry in journal.entries for mark in (entry.files or {}).values() if mark is not None}
            async with executor.replaying(marks) as scratch:
                await replayer.run_all(scratch, cancellation_token)
            record.check_sandbox(executor)
    except ExternalEffectsError as error:
        made.empty = str(error).format(blocks=format_count(made.blocks, "block"))
    except SandboxError as error:
        made.empty = f"its sandbox broke at block {replayer.number} ({type(error).__name__}: {_cut(str(error))})"
        await executor.list_files()  # raises SandboxNotStarted if the executor was stopped meanwhile
        await executor.restart()
    if made.empty is not None:
        # The journal is kept, so that the session can still be rebuilt elsewhere.
        record.start_rebuilding(executor, journal)
        made.not_rebuilt = tuple(range(1, made.blocks + 1))
        for entry in journal.entries:
            record.add(entry)
    record.journal.left_out += journal.left_out
    return made


class _Replayer:
    """Runs the blocks of a journal again."""

    def __init__(self, record: SessionRecord, journal: Journal, made: Replay) -> None:
        self.number = 0
        self._record = record
        self._journal = journal
        self._made = made
        self._until = time.monotonic() + MAX_SECONDS

    async def run_all(self, scratch: ReplayWorkspace, token: CancellationToken) -> None:
        unguarded = await scratch.checkpoint()
        for entry, files in zip(self._journal.entries, self._journal.manifests(), strict=True):
            self.number += 1
            found: list[str] = []
            if time.monotonic() > self._until:
                reason: str | None = f"rebuilding had taken {MAX_SECONDS:g} s by then"
            elif unguarded is not None:
                reason = NO_CHECKPOINT.format(reason=unguarded)
            else:
                if files is not None:
                    await scratch.arrange(files)
                reason, found = await self._run_entry(scratch, entry, token, files_known=files is not None)
            if reason is not None:
                found.insert(0, f"block {self.number} was not rebuilt: {reason}")
                self._made.not_rebuilt += (self.number,)
            self._made.differences += tuple(found)
            # Also a block that was not rebuilt: on another machine it may be.
            self._record.add(entry)

    async def _run_entry(
        self, scratch: ReplayWorkspace, entry: JournalEntry, token: CancellationToken, *, files_known: bool
    ) -> tuple[str | None, list[str]]:
        """Run a block again; return the reason why it is not rebuilt, if any, and what differed."""
        answers = RecordedCalls(entry.calls)
        result = await run_cancellable(scratch.run(entry.block(), answers), token)
        reason = _reason(entry, result)
        if reason is None and (unguarded := await scratch.checkpoint()) is not None:
            reason = NO_CHECKPOINT.format(reason=unguarded)
        found = [f"block {self.number} {what}" for what in _differences(entry, result, answers, rebuilt=reason is None)]
        if reason is not None:
            await scratch.rollback()
        elif not files_known:
            found.append(FILES_UNKNOWN.format(number=self.number))
        elif scratch.changed:
            found.append(FILES_MISSING.format(number=self.number, names=_names(scratch.changed)))
        return reason, found


def _reason(entry: JournalEntry, result: Result) -> str | None:
    """Return the reason to undo a block's effects, or None."""
    reasons = []
    # Connections that were refused the first time are refused again: the code behaved the same way.
    if result.connections and (entry.connections is None or entry.connections):
        hosts = {f"{each.host}:{each.port}" if each.host is not None else "unknown" for each in result.connections}
        reasons.append(f"it used the network: {_names(sorted(hosts))}")
    if result.outcome != entry.outcome and not reasons:
        error = f" ({result.error.type}: {_cut(result.error.message)})" if result.error is not None else ""
        reasons.append(f"it ended with `{result.outcome}`{error} instead of `{entry.outcome}`")
    return "; ".join(reasons) or None


class RecordedCalls:
    """Answers the calls of a block as they were answered when it first ran."""

    def __init__(self, calls: list[ToolCall]) -> None:
        self.left = [call for call in calls if call.name]  # one without a name was not a call then, and is not now
        self.unknown: list[str] = []

    async def __call__(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Answer a call; of several equal ones, the first not answered yet.

        A call that was cancelled then goes on until it is cancelled again.
        """
        for call in self.left:
            if call.name == name and _same(call.arguments, arguments):
                self.left.remove(call)
                if call.outcome == "cancelled":
                    await asyncio.Event().wait()
                return _answer(call)
        self.unknown.append(_shown(name, arguments))
        raise NotAllowed(
            "NotOnRecord", "the session is being rebuilt, and this call was not made then; it is not made now"
        )


def _answer(call: ToolCall) -> ToolAnswer:
    if call.outcome == "ok":
        return ToolAnswer(call.result)
    kind, message = (call.error.type, call.error.message) if call.error is not None else ("ToolError", "")
    raise NotAllowed(kind, message, *call.error_bases, refused=call.outcome == "refused" and kind == "ToolRefused")


def _same(recorded: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    # NaN is not equal to itself, and 1 and 1.0 are written in different ways.
    return recorded == made or json.dumps(recorded, sort_keys=True) == json.dumps(made, sort_keys=True)


def _differences(entry: JournalEntry, result: Result, answers: RecordedCalls, *, rebuilt: bool) -> list[str]:
    found = []
    if rebuilt and digest(result.output) != entry.output:
        found.append(f"printed something else than before: {_cut(result.output.strip()) or 'nothing'}")
    found += [f"wanted to call {call}, which it had not called before" for call in answers.unknown]
    found += [
        f"waited in vain for {_shown(call.name, call.arguments)}, which it had called off before"
        for call in result.tool_calls
        if call.outcome == "timeout"  # others are answered from the record
    ]
    found += [f"did not call {_shown(call.name, call.arguments)} again" for call in answers.left]
    return found


def _names(names: Sequence[str]) -> str:
    shown = [printable(name) for name in names[:MAX_NAMES]]
    return _cut(", ".join(shown)) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _shown(name: str, arguments: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({_cut(listed)})"


def _cut(text: str) -> str:
    return shorten(" ".join(text.split()), MAX_SHOWN_CHARS)
