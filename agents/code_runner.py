"""Running an agent's code: prepare the session, have the code approved, run it, and note what it did."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext
from pydantic import BaseModel

from autogen_codeact.agents.answer import (
    FINAL_ANSWER,
    FinalAnswerTool,
    HandoffTool,
    Transfer,
    TurnEnd,
    check_clash,
)
from autogen_codeact.agents.approval import ApprovalFuncType, denied, request_approval
from autogen_codeact.agents.conversation import Emit
from autogen_codeact.agents.environment import Hint, hints_for
from autogen_codeact.agents.journal import Journal, record_of
from autogen_codeact.agents.observation import broken, call_lines, describe
from autogen_codeact.agents.replay import Replay, replay
from autogen_codeact.agents.step_record import RunEnded, Step, StepRecord
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.tools.adapters import run_cancellable
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox import OutputChunk, SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.backends.facts import SandboxFacts
from codeact_sandbox.host.blocks import combine
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.tools.approval import ApproveTool
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
NOT_REACHED = "Blocks after one that fails are not run."
HANDED_OVER = "The task was handed over to {target}."
KEPT_FILES = {"output": 100, "step": 10_000}
"""Of each kind of texts that a model does not get whole; further ones replace the oldest."""

MAX_LINES = 1_000
"""About the calls of interrupted turns, in a saved state."""

OUTPUT_CHUNK = {"chunk_of": "execution"}
"""Metadata of chunk events with output of code, in contrast to those of models."""


class CodeRunner:
    def __init__(
        self, executor: CodeExecutor, source: str, context: ChatCompletionContext, options: RunOptions
    ) -> None:
        can = capabilities_of(executor)
        self._executor = executor
        self._with_tools = can.sandbox
        self._session = can.session
        self._knows_sandbox = can.sandbox
        self._source = source
        self._context = context
        self.options = options
        self.in_session = can.session is not None
        self.takes_answers = options.answers and can.sandbox is not None
        self._record = record_of(can.session) if can.session is not None else None
        self._ran_code = False
        self._facts: SandboxFacts | None = None
        self._facts_for: int | None = None
        self._skills: str | None = None
        self._prepared_for: int | None = None
        self._kept = Counter[str]()
        self._calls: list[ToolCall] | None = None
        self._interrupted: list[str] = []
        """Descriptions of the calls to host tools that interrupted turns have made."""
        self._endings = frozenset({FINAL_ANSWER.name, *(handoff.name for handoff in options.handoffs)})
        self.steps: StepRecord | None = None
        """Keeps what comes from outside, or answers from such a record; None in a run without a log."""
        if can.sandbox is not None:
            self._add_tools(can.sandbox)
        elif options.tools or options.approve_tool is not None or options.handoffs:
            raise ValueError(
                f"Code in a {type(executor).__name__} can't call host tools: use an executor of autogen_codeact, such as "
                "DockerCommandLineCodeExecutor, or omit tools, approve_tool and handoffs."
            )

    def _add_tools(self, executor: SandboxCodeExecutor) -> None:
        options = self.options
        executor.add_tools(options.tools, options.approve_tool)
        check_clash(options.handoffs, [FINAL_ANSWER.name, *(tool.name for tool in executor.known_tools or ())])
        offered: list[HostToolProtocol] = [FINAL_ANSWER] if self.takes_answers else []
        for tool in (*offered, *map(HandoffTool, options.handoffs)):
            executor.offer_tool(tool)

    async def describe_context(
        self, token: CancellationToken
    ) -> tuple[tuple[HostToolProtocol, ...], SandboxFacts | None, str]:
        """Return what the system message describes.

        That is the host tools, without `final_answer` and handoffs; what was in the sandbox when this agent first used the
        session; and a description of the skills, as they were at first.
        """
        tools = tuple(await self._with_tools.list_tools()) if self._with_tools is not None else ()
        executor = self._knows_sandbox if self.options.describe_environment else None
        if executor is not None and (self._facts is None or self._facts_for != executor.starts):
            self._facts = await run_cancellable(executor.facts(), token)
            self._facts_for = executor.starts
        if self._skills is None:
            skills = await asyncio.to_thread(lambda: list(getattr(self._executor, "skills", ())))
            self._skills = describe_skills(skills)
        return tools, self._facts, self._skills

    def hints(self, result: CodeResult) -> list[Hint]:
        """Return hints about limits of the sandbox that code has met."""
        if self._knows_sandbox is None:
            return []
        return hints_for(result, self._facts or self._knows_sandbox.known_facts)

    # Running

    async def run(self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None = None) -> RunEnded:
        """Run the blocks, if they are approved. Cancelling it kills the block that runs."""
        steps = self.steps
        if steps is None:
            return await self._approve(blocks, token, None) or await self._run(blocks, token, emit, None)
        if (known := steps.recorded(blocks, in_session=self.in_session)) is not None:
            return await self.restore_from_record(*known)
        return await steps.run(
            blocks,
            token,
            lambda step: self._approve(blocks, step.token, step),
            lambda step: self._run(blocks, step.token, emit, step),
            self.journal,
        )

    async def _approve(self, blocks: list[CodeBlock], token: CancellationToken, step: Step | None) -> RunEnded | None:
        """Ask whether code may run; return how it ended if it may not."""
        if self.options.approval_func is None:
            return None
        messages = await self._context.get_messages()
        answer = await request_approval(self.options.approval_func, blocks, messages, token, step)
        return None if answer.approved else RunEnded(denied(answer.reason))

    async def _run(
        self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None, step: Step | None
    ) -> RunEnded:
        end = TurnEnd()
        try:
            result = await run_cancellable(
                self._run_blocks(blocks, token, emit, end, self._block_context(end, step)), token
            )
        except BROKEN as error:
            return RunEnded(broken(error, session=self.in_session), error, end.answer)
        return RunEnded(result, answer=end.answer)

    async def _run_blocks(
        self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit | None, end: TurnEnd, context: RunContext
    ) -> CodeResult:
        self._ran_code = True
        await self.rebuild(token)
        before = await self._prepare(token, context)
        if self._with_tools is None:
            return await self._executor.execute_code_blocks(blocks, cancellation_token=token)
        # In a session one at a time, because each block is an entry of the journal.
        groups = [[block] for block in blocks] if self._session is not None else [blocks]
        results: list[ExecutionResult] = []
        for group in groups:
            results.append(result := await self._execute(self._with_tools, group, token, emit, context))
            await self._note(group[0], result)
            if end.answer is not None or result.exit_code != 0:
                break
        whole = combine(results)
        if isinstance(end.answer, Transfer):
            whole = _with_notes(whole, HANDED_OVER.format(target=end.answer.target))
        elif whole.exit_code != 0 and (len(groups) > len(results) or len(groups[-1]) > 1):
            whole = _with_notes(whole, NOT_REACHED)
        if before is not None and before.state == "lost":
            whole = replace(whole, state="lost", notes=(*before.notes, *whole.notes))
        elif whole.state == "lost":
            self._prepared_for = None
        return whole

    def _block_context(self, end: TurnEnd, step: Step | None) -> RunContext:
        """Return the settings of one run, with the host tools by which code can end the turn."""
        tools: list[HostToolProtocol] = [HandoffTool(handoff, end) for handoff in self.options.handoffs]
        if self.takes_answers:
            tools.append(FinalAnswerTool(end, self.options.output_type))
        on_call = self._calls.append if self._calls is not None else None
        return RunContext(journalled=True, on_call=on_call, tools={t.name: t for t in tools}, origin=step)

    async def _execute(
        self,
        executor: SandboxCodeExecutor,
        blocks: list[CodeBlock],
        token: CancellationToken,
        emit: Emit | None,
        context: RunContext,
    ) -> ExecutionResult:
        shown = emit if self.options.stream_output else None
        step = cast("Step | None", context.origin)
        if shown is None and step is None:
            return await executor.run_blocks(blocks, context)
        async with aclosing(executor.execute_stream(blocks, token, context)) as running:
            async for item in running:
                if not isinstance(item, OutputChunk):
                    result = item
                elif shown is None:
                    assert step is not None
                    step.output(item.text)
                elif item.text:
                    # AutoGen's teams and `Console` accept only chunk events of models.
                    await shown(
                        ModelClientStreamingChunkEvent(content=item.text, source=self._source, metadata=OUTPUT_CHUNK)
                    )
        return result

    async def _note(self, block: CodeBlock, result: ExecutionResult) -> None:
        """Add a block to the journal of the session."""
        if self._session is None or self._record is None:
            return
        if result.tool_calls:  # many of them, and large results, take long to serialize
            await in_thread(self._record.add_block, self._session, block, result)
        else:
            self._record.add_block(self._session, block, result)

    async def restore_from_record(self, result: CodeResult, error: SandboxError | None = None) -> RunEnded:
        """Return how a run ended before, from its result; nothing runs."""
        end = TurnEnd()
        tools = self._block_context(end, None).tools
        for call in result.tool_calls if isinstance(result, ExecutionResult) else ():
            if call.name in tools and call.outcome == "ok":
                await tools[call.name].run(call.arguments)
            if self._calls is not None:
                self._calls.append(call)
        return RunEnded(result, error, end.answer)

    def has_other_effects(self, result: CodeResult) -> bool:
        """Return whether code wrote something, or called other tools than those that end the turn."""
        calls = result.tool_calls if isinstance(result, ExecutionResult) else ()
        return bool(result.output.strip()) or any(call.name not in self._endings for call in calls)

    async def keep(self, kind: str, text: str) -> str | None:
        """Store an output or a message that the model does not get whole in a file in the sandbox; return its name, or None."""
        executor = self._with_tools
        if executor is None:
            return None
        name = f".codeact/{self._source}-{kind}-{self._kept[kind] % KEPT_FILES[kind] + 1}.txt"
        try:
            await executor.write(name, text.encode("utf-8", "replace"))
        except SandboxError as error:
            logger.warning("an output could not be put into %s: %s", name, error)
            return None
        self._kept[kind] += 1
        return f"{WORKSPACE}/{name}"  # absolute, because code may have changed the working directory

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[str | None]:
        """Yield a note for the model about the host tools that interrupted turns have called; None for nothing.

        If the body raises or is cancelled, its calls are added to them, else they are forgotten.
        """
        calls = self._calls = []
        try:
            yield "\n".join([INTERRUPTED, *self._interrupted]) if self._interrupted else None
        except BaseException:
            self._interrupted += call_lines([call for call in calls if call.name not in self._endings])
            raise
        finally:
            self._calls = None
        self._interrupted = []

    # The session

    async def _prepare(self, token: CancellationToken, context: RunContext | None = None) -> ExecutionResult | None:
        """Run the setup, if the session is a new one."""
        number = self._session.starts if self._session is not None else 0
        if self.options.setup is None or self._prepared_for == number:
            return None
        code = [CodeBlock(code=self.options.setup, language="python")]
        if self._with_tools is not None:
            running = self._with_tools.run_blocks(code, context or RunContext(journalled=True))
            result: CodeResult = await run_cancellable(running, token)
        else:
            result = await self._executor.execute_code_blocks(code, cancellation_token=token)
        if result.exit_code != 0:
            raise ValueError(f"The agent's setup failed. {describe(result)}")
        self._prepared_for = self._session.starts if self._session is not None else 0
        return result if isinstance(result, ExecutionResult) else None

    async def rebuild(self, token: CancellationToken) -> Replay | None:
        """Rebuild the session, if a state of another one was loaded."""
        if self._record is None or (self.steps is None and self._record.pending is None):
            return None

        async def rebuild() -> Replay | None:
            return await run_cancellable(self._rebuild_pending(token), token)

        return await (rebuild() if self.steps is None else self.steps.rebuilt(rebuild))

    async def _rebuild_pending(self, token: CancellationToken) -> Replay | None:
        session, record = self._session, self._record
        if session is None or record is None or record.pending is None:
            return None
        if session.starts:
            await self._restart(token)
        self._ran_code = True
        await self._prepare(token)
        made = await replay(session, record, record.pending, token)
        # If the sandbox broke, another one has replaced it.
        await self._prepare(token)
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
                await run_cancellable(self._executor.restart(), token)
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
        return {"journal": self.journal(), "interrupted": self._interrupted[-MAX_LINES:]}

    def journal(self) -> Journal | None:
        """Return the journal of the session, or that of a loaded state from which it will be rebuilt; None without a session."""
        if self._session is None or self._record is None:
            return None
        if self._record.pending is None:
            self._record.check_sandbox(self._session)
        return self._record.pending or self._record.journal

    def load(self, journal: Journal | None, interrupted: Sequence[str]) -> None:
        """Have the session rebuilt before its next use, unless it is the journal's own; keep the calls."""
        if self._session is not None and self._record is not None and journal is not None:
            self._record.check_sandbox(self._session)  # it may have been restarted meanwhile
            self._record.load(journal)
        # A team loads a state from before an interrupted turn; what that turn has done stays done.
        self._interrupted += (Counter(interrupted) - Counter(self._interrupted)).elements()


def _with_notes(result: ExecutionResult, *notes: str) -> ExecutionResult:
    return replace(result, notes=(*result.notes, *notes))
