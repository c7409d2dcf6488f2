"""Running an agent's code: approval, the session's setup and rebuilding, and a stream of what happens."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext
from pydantic import BaseModel

from autogen_codeact.agents.answer import (
    FINAL_ANSWER,
    Answer,
    BlockEnd,
    FinalAnswerTool,
    HandoffTool,
    Transfer,
    check_clash,
    not_handed_over,
)
from autogen_codeact.agents.approval import ApprovalFuncType, denied, request_approval
from autogen_codeact.agents.conversation import Emit
from autogen_codeact.agents.environment import Hint, hints_for
from autogen_codeact.agents.journal import (
    Journal,
    RecordedCall,
    RedactResult,
    SessionRecord,
    record_calls,
    record_of,
)
from autogen_codeact.agents.model import awaited
from autogen_codeact.agents.observation import broken, describe, describe_calls
from autogen_codeact.agents.replay import Replay, replay
from autogen_codeact.agents.step_record import RunEnded, StepRecord
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.capabilities import SessionExecutor, ToolExecutor, capabilities_of
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox import OutputChunk, SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.facts import SandboxFacts
from codeact_sandbox.host.blocks import combine
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.payloads import is_small
from codeact_sandbox.types.paths import WORKSPACE
from codeact_sandbox.types.result import ToolCall
from codeact_sandbox.types.run_context import RunContext
from codeact_sandbox.types.skills import describe_skills
from codeact_sandbox.types.tool import HostToolProtocol


@dataclass(frozen=True)
class RunOptions:
    """How an agent runs code: arguments of the constructors, and whether code can call `final_answer` (`answers`)."""

    approval_func: ApprovalFuncType | None
    stream_output: bool
    tools: Sequence[ToolLike]
    approve_tool: ApproveTool | None
    redact: RedactResult | None
    setup: str | None = None
    answers: bool = False
    output_type: type[BaseModel] | None = None
    describe_environment: bool = True
    handoffs: tuple[Handoff, ...] = ()


logger = logging.getLogger("autogen_codeact")

RESTART_DEADLINE_S = 120.0
BROKEN = (SandboxDied, SandboxTimeout, SandboxProtocolError)
INTERRUPTED = (
    "An earlier attempt at this was interrupted, and its messages are not in this conversation. Its code had already made these "
    "calls to host tools; don't repeat what was done:"
)
LEFT_BLOCKS = "Not run: {count} after the one that {verb}."
NOT_REACHED = "Blocks after one that fails are not run."
KEPT_FILES = {"output": 100, "step": 10_000}
"""Of each kind of texts that a model does not get whole; further ones replace the oldest."""
MANY_CALLS = 100

OUTPUT_CHUNK = {"chunk_of": "execution"}
"""Metadata of chunk events with output of code, in contrast to those of models."""


class CodeRunner:
    """Runs the code of one agent."""

    def __init__(
        self, executor: CodeExecutor, source: str, context: ChatCompletionContext, options: RunOptions
    ) -> None:
        can = capabilities_of(executor)
        self._executor = executor
        self._with_tools = can.tools
        self._session = can.session
        self._source = source
        self._context = context
        self.options = options
        self.in_session = can.session is not None
        self.takes_answers = options.answers and can.tools is not None
        self._record = record_of(can.session) if can.session is not None else None
        self._ran_code = False
        self._knows_sandbox = can.facts
        self._facts: SandboxFacts | None = None
        self._facts_for: int | None = None
        self._prepared_for: int | None = None
        self._kept = Counter[str]()
        self._calls: list[ToolCall] | None = None
        self._interrupted: list[ToolCall] = []
        self._endings = frozenset({FINAL_ANSWER.name, *(handoff.name for handoff in options.handoffs)})
        self.steps: StepRecord | None = None
        """Keeps what comes from outside, or answers from such a record; None in a run without a log."""
        self._add_tools(options)
        self._skills: str | None = None

    def _add_tools(self, options: RunOptions) -> None:
        if self._with_tools is not None:
            self._with_tools.add_tools(options.tools, options.approve_tool)
            check_clash(options.handoffs, [FINAL_ANSWER.name, *(t.name for t in self._with_tools.known_tools or ())])
            offered: list[HostToolProtocol] = [FINAL_ANSWER] if self.takes_answers else []
            for tool in (*offered, *map(HandoffTool, options.handoffs)):
                self._with_tools.offer_tool(tool)
        elif options.tools or options.approve_tool is not None or options.handoffs:
            raise ValueError(
                f"Code in a {type(self._executor).__name__} can't call host tools: use an executor of autogen_codeact, such as "
                "DockerCommandLineCodeExecutor, or omit tools, approve_tool and handoffs."
            )

    async def surroundings(
        self, token: CancellationToken
    ) -> tuple[tuple[HostToolProtocol, ...], SandboxFacts | None, str]:
        """Return what a model is told of the code's surroundings.

        That is the host tools, without `final_answer` and handoffs; what was in the sandbox when this agent first used the
        session; and a description of the skills, as they were when it was first asked.
        """
        tools = tuple(await self._with_tools.list_tools()) if self._with_tools is not None else ()
        executor = self._knows_sandbox if self.options.describe_environment else None
        if executor is not None and (self._facts is None or self._facts_for != executor.starts):

            async def ask() -> SandboxFacts:
                return await awaited(executor.facts(), token)

            self._facts = await (ask() if self.steps is None else self.steps.value("facts", ask, SandboxFacts))
            self._facts_for = executor.starts
        if self._skills is None:
            skills = await asyncio.to_thread(lambda: list(getattr(self._executor, "skills", ())))
            self._skills = describe_skills(skills)
        return tools, self._facts, self._skills

    def hints(self, result: CodeResult) -> list[Hint]:
        """Return what is to be said about limits of the sandbox that code has met."""
        if self._knows_sandbox is None:
            return []
        return hints_for(result, self._facts or self._knows_sandbox.known_facts)

    # Running

    async def run(
        self,
        blocks: list[CodeBlock],
        cancellation_token: CancellationToken,
        emit: Emit | None = None,
    ) -> RunEnded:
        """Run the blocks, if they are approved. Cancelling it kills the block that runs."""
        approve = self.options.approval_func
        ask = partial(self._ask, approve, blocks, cancellation_token) if approve is not None else None
        live = partial(self._run_live, blocks, cancellation_token, emit)
        if self.steps is None:
            return (await ask() if ask is not None else None) or await live()
        return await self.steps.run(self, blocks, live, ask)

    async def _ask(
        self, approve: ApprovalFuncType, blocks: list[CodeBlock], token: CancellationToken
    ) -> RunEnded | None:
        """Ask whether code may run; return how it ended if it may not."""
        answer = await request_approval(approve, blocks, await self._context.get_messages(), token)
        return None if answer.approved else RunEnded(denied(answer.reason))

    async def _run_live(self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None) -> RunEnded:
        end = BlockEnd()
        try:
            return RunEnded(await awaited(self._run(blocks, token, emit, end), token), answer=end.answer)
        except BROKEN as error:
            return self.broken(error, end.answer)

    def broken(self, error: SandboxError, answer: Answer | Transfer | None = None) -> RunEnded:
        result = broken(error, session=self.in_session)
        notes = not_handed_over(self.options.handoffs, error.tool_calls)
        return RunEnded(_with_notes(result, *notes), error, answer)

    async def _run(
        self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None, end: BlockEnd
    ) -> CodeResult:
        self._ran_code = True
        await self.rebuild(token)
        before = await self._prepare(token) if self.options.setup is not None else None
        if self._with_tools is None:
            return await self._executor.execute_code_blocks(blocks, cancellation_token=token)
        if self._session is not None:
            result = await self._run_in_session(self._session, blocks, token, emit, end)
        else:
            result = await self._execute(blocks, token, emit, end)
            if len(blocks) > 1 and result.exit_code != 0:
                result = _with_notes(result, NOT_REACHED)
        if before is not None and before.state == "lost":
            result = replace(result, state="lost", notes=(*before.notes, *result.notes))
        elif result.state == "lost":
            self._prepared_for = None
        return result

    async def _run_in_session(
        self,
        session: SessionExecutor,
        blocks: list[CodeBlock],
        token: CancellationToken,
        emit: Emit | None,
        end: BlockEnd,
    ) -> ExecutionResult:
        # One at a time, because each block is a separate entry in the journal.
        results: list[ExecutionResult] = []
        for block in blocks:
            end.transfers.clear()
            result = await self._execute([block], token, emit, end)
            assert self._record is not None
            note = partial(self._record.add_block, session, block, result, self.options.redact)
            # Many calls and large results take long to serialize.
            many = len(result.tool_calls) > MANY_CALLS or not all(is_small(call.result) for call in result.tool_calls)
            await in_thread(note) if many else note()
            if end.transfers:
                result = _with_notes(result, *end.take_effect(succeeded=result.exit_code == 0))
            results.append(result)
            if end.answer is not None or result.exit_code != 0:
                break
        whole = combine(results)
        left = len(blocks) - len(results)
        if not left:
            return whole
        count = f"{left} blocks" if left > 1 else "1 block"
        return _with_notes(whole, LEFT_BLOCKS.format(count=count, verb=end.verb))

    async def repeat(self, result: CodeResult, error: SandboxError | None = None) -> RunEnded:
        """Return how a run ended before, from its result; nothing runs."""
        end = BlockEnd()
        tools = self._context_of(end).tools
        for call in result.tool_calls if isinstance(result, ExecutionResult) else ():
            if call.name in tools and call.outcome == "ok":
                await tools[call.name].run(call.arguments)
            if self._calls is not None:
                self._calls.append(call)
        if end.transfers:
            end.take_effect(succeeded=result.exit_code == 0)
        return RunEnded(result, error, end.answer)

    def _context_of(self, end: BlockEnd) -> RunContext:
        """Return the settings of one block, with the host tools by which it can end the turn."""
        tools: list[HostToolProtocol] = [HandoffTool(handoff, end) for handoff in self.options.handoffs]
        if self.takes_answers:
            tools.append(FinalAnswerTool(end, self.options.output_type))
        on_call = self._calls.append if self._calls is not None else None
        return RunContext(journalled=True, on_call=on_call, tools={t.name: t for t in tools})

    async def _execute(
        self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None, end: BlockEnd
    ) -> ExecutionResult:
        assert self._with_tools is not None
        context = self._context_of(end)
        if emit is None or not self.options.stream_output:
            return await self._with_tools.run_blocks(blocks, context)
        async with aclosing(self._with_tools.execute_stream(blocks, token, context)) as running:
            async for item in running:
                if not isinstance(item, OutputChunk):
                    result = item
                elif item.text:
                    # AutoGen's teams and `Console` accept only chunk events of models.
                    await emit(
                        ModelClientStreamingChunkEvent(content=item.text, source=self._source, metadata=OUTPUT_CHUNK)
                    )
        return result

    def has_other_effects(self, result: CodeResult) -> bool:
        """Return whether code wrote something, or called other tools than those that end the turn."""
        calls = result.tool_calls if isinstance(result, ExecutionResult) else ()
        return bool(result.output.strip()) or any(call.name not in self._endings for call in calls)

    async def keep(self, kind: str, text: str) -> str | None:
        """Store an output or a message that the model does not get whole in a file in the sandbox; return its name, or None."""
        if self._with_tools is None:
            return None
        name = f".codeact/{self._source}-{kind}-{self._kept[kind] % KEPT_FILES[kind] + 1}.txt"
        store = partial(self._upload, self._with_tools, text, name)
        file = await (store() if self.steps is None else self.steps.value("file", store, str | None))
        self._kept[kind] += file is not None
        return file

    async def _upload(self, executor: ToolExecutor, text: str, name: str) -> str | None:
        try:
            await executor.write(name, text.encode("utf-8", "replace"))
        except SandboxError as error:
            logger.warning("an output could not be put into %s: %s", name, error)
            return None
        return f"{WORKSPACE}/{name}"  # absolute, because code may have changed the working directory

    # Calls of interrupted turns

    @asynccontextmanager
    async def keep_calls_on_error(self) -> AsyncIterator[str | None]:
        """Keep the calls to host tools that are made inside, if it raises or is cancelled; else forget those kept before.

        It yields what the model should know of interrupted turns, which it does not remember; None for nothing.
        """
        calls = self._calls = []
        kept = tuple(self._interrupted)
        try:
            yield f"{INTERRUPTED}\n{describe_calls(kept)}" if kept else None
        except BaseException:
            self._interrupted += [call for call in calls if call.name not in self._endings]
            raise
        finally:
            self._calls = None
        self._interrupted = []

    # The session

    async def _prepare(self, token: CancellationToken) -> ExecutionResult | None:
        """Run the setup, if the session is a new one."""
        if self.options.setup is None or self._prepared_for == self._session_number():
            return None
        code = [CodeBlock(code=self.options.setup, language="python")]
        if self._with_tools is not None:
            running = self._with_tools.run_blocks(code, RunContext(journalled=True))
            result: CodeResult = await awaited(running, token)
        else:
            result = await self._executor.execute_code_blocks(code, cancellation_token=token)
        if result.exit_code != 0:
            raise ValueError(f"The agent's setup failed. {describe(result)}")
        self._prepared_for = self._session_number()
        return result if isinstance(result, ExecutionResult) else None

    def _session_number(self) -> int:
        return self._session.starts if self._session is not None else 0

    async def rebuild(self, cancellation_token: CancellationToken) -> Replay | None:
        """Rebuild the session, if a state of another one was loaded."""
        if self._session is None or self._record is None or (self.steps is None and self._record.pending is None):
            return None
        rebuild = partial(self._rebuild_pending, self._session, self._record, cancellation_token)
        return await (rebuild() if self.steps is None else self.steps.value("rebuild", rebuild, Replay | None))

    async def _rebuild_pending(
        self, session: SessionExecutor, record: SessionRecord, token: CancellationToken
    ) -> Replay | None:
        async def run_again(journal: Journal) -> Replay:
            if session.starts:
                await self._restart(token)
            self._ran_code = True
            await self._prepare(token)
            made = await replay(session, record, journal, token)
            # If the sandbox broke, another one has replaced it.
            await self._prepare(token)
            return made

        if record.pending is None:
            return None
        made = await awaited(run_again(record.pending), token)
        record.pending = None
        return made if made.blocks or not made.same else None

    async def reset(self, cancellation_token: CancellationToken) -> None:
        """Restart the executor, if the agent ran code in it."""
        self._interrupted = []
        if self._record is not None:
            self._record.pending = None
        if not self._ran_code:
            return  # most executors can't be restarted before they are started
        await self._restart(cancellation_token)
        self._ran_code = False

    async def _restart(self, token: CancellationToken) -> None:
        try:
            async with asyncio.timeout(RESTART_DEADLINE_S):
                await awaited(self._executor.restart(), token)
        except TimeoutError as error:
            raise TimeoutError(
                f"The code executor did not restart within {RESTART_DEADLINE_S:g} s; stop it and start it again."
            ) from error
        self._prepared_for = None
        if self._record is not None:
            self._record.clear()

    # State

    def save(self) -> dict[str, Any]:
        """Return the fields of a state beside the conversation: the session's journal, and calls of interrupted turns."""
        return {"journal": self.journal(), "interrupted": record_calls(self._interrupted, self.options.redact)}

    def journal(self) -> Journal | None:
        """Return the journal of the session, or that of a loaded state from which it will be rebuilt; None without a session."""
        if self._session is None or self._record is None:
            return None
        if self._record.pending is None:
            self._record.check_sandbox(self._session)
        return self._record.pending or self._record.journal

    def load(self, journal: Journal | None, calls: Sequence[RecordedCall]) -> None:
        """Have the session rebuilt before its next use, unless it is the journal's own; keep the calls."""
        if self._session is not None and self._record is not None and journal is not None:
            self._record.check_sandbox(self._session)  # it may have been restarted meanwhile
            self._record.load(journal)
        # A team loads a state from before an interrupted turn; what that turn has done stays done.
        known = record_calls(self._interrupted, self.options.redact)
        for call in calls:
            if call in known:
                known.remove(call)
            else:
                self._interrupted.append(call.call())


def _with_notes(result: ExecutionResult, *notes: str) -> ExecutionResult:
    return replace(result, notes=(*result.notes, *notes)) if notes else result
