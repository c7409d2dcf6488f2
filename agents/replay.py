"""Rebuilding a session from its journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.messages import CodeGenerationEvent
from autogen_core import CancellationToken

from autogen_codeact.agents.journal import Journal, JournalEntry, RecordedCall, SessionRecord, digest
from autogen_codeact.executors import ExecutionResult, SandboxCodeExecutor
from autogen_codeact.executors.tools.broker import NotAllowed, answered_by
from autogen_codeact.executors.tools.tool import ToolAnswer

MAX_DIFFERENCES = 20
MAX_SHOWN_CHARS = 200

REBUILT = "The session was rebuilt: its {blocks} run again in a fresh sandbox, and host tools were not called."
SAME = "All went as before."
DIFFERENT = "It differs from what it was:"
UNRECORDED = (
    "- {times} the session was used by others than its agents, which ran code in it or rolled it back; that is not on record and "
    "was not done again."
)
LEFT_OUT = "- {count} later blocks were too many to be recorded and were not run again; what they defined is missing."


@dataclass(frozen=True)
class Replay:
    """How the rebuilding of a session went.

    Args:
        blocks: Blocks that were run again.
        differences: Sentences about what did not go as it did the first time.
        left_out: Blocks that were not recorded.
        unrecorded: Blocks of others in the session, and rollbacks, of which there is no record.
    """

    blocks: int
    differences: tuple[str, ...] = ()
    left_out: int = 0
    unrecorded: int = 0

    @property
    def same(self) -> bool:
        """Whether the session is what it was, as far as can be seen."""
        return not self.differences and not self.left_out and not self.unrecorded

    def event(self, source: str) -> CodeGenerationEvent:
        """Make it an event that AutoGen's teams know.

        Args:
            source: Name of the agent.
        """
        differences = len(self.differences) + (self.left_out > 0) + (self.unrecorded > 0)
        metadata = {"replayed": str(self.blocks), "differences": str(differences)}
        return CodeGenerationEvent(
            retry_attempt=0, content=self.describe(), code_blocks=[], source=source, metadata=metadata
        )

    def describe(self) -> str:
        """Put it into words."""
        words = [REBUILT.format(blocks=f"{self.blocks} blocks were" if self.blocks != 1 else "1 block was")]
        if self.same:
            return f"{words[0]} {SAME}"
        words.append(DIFFERENT)
        words += [f"- {difference}" for difference in self.differences[:MAX_DIFFERENCES]]
        if len(self.differences) > MAX_DIFFERENCES:
            words.append(f"- and {len(self.differences) - MAX_DIFFERENCES} more differences")
        if self.left_out:
            words.append(LEFT_OUT.format(count=self.left_out))
        if self.unrecorded:
            words.append(UNRECORDED.format(times="once" if self.unrecorded == 1 else f"{self.unrecorded} times"))
        return "\n".join(words)


async def replay(
    executor: SandboxCodeExecutor, record: SessionRecord, journal: Journal, cancellation_token: CancellationToken
) -> Replay:
    """Run the blocks of a journal again, in a session in which nothing has been run.

    Args:
        executor: Runs them.
        record: The record of its session, which is filled.
        journal: What to run.
        cancellation_token: Ends it.

    Returns:
        Where it differed.
    """
    differences: list[str] = []
    record.begin_again(executor, journal)
    for number, entry in enumerate(journal.entries, 1):
        answers = RecordedAnswers(entry.calls)
        with answered_by(answers):
            result = await executor.execute_code_blocks([entry.block()], cancellation_token)
        differences += [f"block {number} {what}" for what in _differences(entry, result, answers)]
        record.see_state(result)
        if result.outcome not in ("ok", "error"):
            continue
        record.see(executor)
        record.add(entry, result.number)
    record.journal.left_out += journal.left_out
    return Replay(len(journal.entries), tuple(differences), journal.left_out, journal.unrecorded)


class RecordedAnswers:
    """Answers the calls of a block as they were answered when it was run first.

    Args:
        calls: The record.
    """

    def __init__(self, calls: list[RecordedCall]) -> None:
        self.left = [call for call in calls if call.name]  # one without was no call, and is none again
        self.unknown: list[str] = []

    async def __call__(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Answer one call; of several alike, in the order they were made.

        One that was called off goes on until it is called off again.

        Raises:
            NotAllowed: It failed the first time, or is not on record.
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


def _answer(call: RecordedCall) -> ToolAnswer:
    if call.outcome == "ok":
        return ToolAnswer(call.result)
    raise NotAllowed(
        call.error_type or "ToolError",
        call.error_message,
        *call.error_bases,
        refused=call.outcome == "refused" and call.error_type == "ToolRefused",
    )


def _same(recorded: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    # NaN is not equal to itself, and 1 and 1.0 are written in different ways.
    return recorded == made or json.dumps(recorded, sort_keys=True) == json.dumps(made, sort_keys=True)


def _differences(entry: JournalEntry, result: ExecutionResult, answers: RecordedAnswers) -> list[str]:
    found = []
    if result.outcome != entry.outcome:
        error = f" ({result.error.type}: {_cut(result.error.message)})" if result.error is not None else ""
        found.append(f"ended with `{result.outcome}`{error} instead of `{entry.outcome}`")
    elif digest(result.output) != entry.output:
        found.append(f"printed something else than before: {_cut(result.output.strip()) or 'nothing'}")
    found += [f"wanted to call {call}, which it had not called before" for call in answers.unknown]
    found += [
        f"waited in vain for {_shown(call.name, call.arguments)}, which it had called off before"
        for call in result.tool_calls
        if call.outcome == "timeout"  # others are answered from the record
    ]
    found += [f"did not call {_shown(call.name, call.arguments)} again" for call in answers.left]
    if result.state == "lost":
        found.append("emptied the session")
    elif 0 < result.restored_before < result.number:
        found.append(f"took back what the {result.number - result.restored_before} blocks before it did")
    return found


def _shown(name: str, arguments: Mapping[str, Any]) -> str:
    words = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({_cut(words)})"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"
