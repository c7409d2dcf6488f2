"""Running an agent's code: if it is approved, and with its output as it comes."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext

from autogen_codeact.agents.answer import FINAL_ANSWER, FinalAnswerTool, Receiver
from autogen_codeact.agents.approval import ApprovalFuncType, ask_approval, denied
from autogen_codeact.agents.journal import (
    Journal,
    RecordedCall,
    RedactResult,
    SessionRecord,
    interrupted,
    record_of,
)
from autogen_codeact.agents.model import awaited
from autogen_codeact.agents.observation import describe, describe_calls
from autogen_codeact.agents.replay import Replay, replay
from autogen_codeact.executors import ExecutionResult, OutputChunk, SandboxCodeExecutor, ToolCall
from autogen_codeact.executors.executor import WORKSPACE
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.host.block_reply import combine
from autogen_codeact.sandbox.host.waiting import in_thread
from autogen_codeact.sandbox.run_context import RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.tool import HostTool

logger = logging.getLogger("autogen_codeact")

RESTART_DEADLINE_S = 120.0
INTERRUPTED = (
    "You were interrupted at this before, and don't remember it. Your code had made these calls to host tools by then; "
    "what is done is done, so don't repeat it:"
)
OUTPUT_FILE = ".codeact/{agent}-output-{number}.txt"
OUTPUT_FILES = 100
MANY_CALLS = 100
OUTPUT_CHUNK = {"chunk_of": "execution"}
"""Metadata of chunk events that carry what code wrote, and not what a model said."""


class CodeRunner:
    """What runs the code of one agent.

    Args:
        executor: Runs it.
        source: Name of the agent, for events.
        context: The conversation, shown to who approves.
        approval_func: Asked before any code runs; None for nobody.
        stream: Whether output is passed on as it comes, where the executor can do that.
        setup: Python that runs in each new session before anything else; None for nothing.
        tools: Host tools that the agent brings along.
        approve_tool: Asked before each call to a host tool; None for who is asked by the executor, if anybody.
        answers: Whether code can give the answer, where the executor is one of ours.
        redact: Gives what is recorded of a tool's result or error; None for all of it.
    """

    def __init__(
        self,
        executor: CodeExecutor,
        *,
        source: str,
        context: ChatCompletionContext,
        approval_func: ApprovalFuncType | None = None,
        stream: bool = False,
        setup: str | None = None,
        answers: bool = False,
        tools: Sequence[ToolLike] = (),
        approve_tool: ApproveTool | None = None,
        redact: RedactResult | None = None,
    ) -> None:
        self.executor = executor
        self.ran_code = False
        self.result: CodeResult
        self.receiver = Receiver(None)
        self.calls: list[ToolCall] = []
        self._interrupted: list[ToolCall] = []
        self._source = source
        self._context = context
        self._approval_func = approval_func
        self._stream = stream
        self._setup = setup
        self.takes_answers = answers and isinstance(executor, SandboxCodeExecutor)
        self._redact = redact
        self._record = record_of(executor)
        self.in_session = self._record is not None
        self._prepared_for: int | None = None
        self._prepared_by = 0
        self._outputs_kept = 0
        self._output: asyncio.Queue[str | None] | None = None
        self._give(tools, approve_tool)

    def _give(self, tools: Sequence[ToolLike], approve_tool: ApproveTool | None) -> None:
        """Give the executor what is the agent's."""
        if isinstance(self.executor, SandboxCodeExecutor):
            self.executor.add_tools(tools, approve_tool)
            if self.takes_answers:
                self.executor.offer_tool(FINAL_ANSWER)
        elif tools or approve_tool is not None:
            raise ValueError(
                f"A {type(self.executor).__name__} lets no code call tools: use one of our executors, such as "
                "DockerCommandLineCodeExecutor, or leave tools and approve_tool away."
            )

    async def list_tools(self) -> Sequence[HostTool]:
        """List what functions of the host the code can call, `final_answer` left out."""
        return await self.executor.list_tools() if isinstance(self.executor, SandboxCodeExecutor) else ()

    async def run(self, blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        """Run the blocks, if they are approved.

        Args:
            blocks: The code.
            cancellation_token: Ends the approval or the run.

        Returns:
            The executor's own result, untouched, or one with the outcome `denied`.
        """
        if self._approval_func is not None:
            context = await self._context.get_messages()
            answer = await ask_approval(self._approval_func, blocks, context, cancellation_token)
            if not answer.approved:
                return denied(answer.reason)
        self.ran_code = True
        return await awaited(self._execute(blocks, cancellation_token), cancellation_token)

    async def keep_output(self, result: CodeResult) -> str | None:
        """Put the whole output of a result into a file in the sandbox.

        Returns:
            Its name there, or None where it could not be put there.
        """
        if not isinstance(self.executor, SandboxCodeExecutor):
            return None
        name = OUTPUT_FILE.format(agent=self._source, number=self._outputs_kept % OUTPUT_FILES + 1)
        try:
            with tempfile.NamedTemporaryFile(prefix="codeact-") as file:
                file.write(result.output.encode("utf-8", "replace"))
                file.flush()
                await self.executor.upload(file.name, name)
        except OSError as error:
            logger.warning("the whole output could not be put into %s: %s", name, error)
            return None
        self._outputs_kept += 1
        return f"{WORKSPACE}/{name}"  # code may have gone to another folder

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn of the agent: of one that is cut short, it is remembered which calls to host tools had been made."""
        self.calls = []
        try:
            yield
        except BaseException:
            self._interrupted += [call for call in self.calls if call.name != FINAL_ANSWER.name]
            raise
        self._interrupted = []

    @property
    def interruption(self) -> str | None:
        """What the model should know of turns that were cut short, and that it does not remember; None for nothing."""
        if not self._interrupted:
            return None
        return f"{INTERRUPTED}\n{describe_calls(tuple(self._interrupted))}"

    async def rebuild(self, cancellation_token: CancellationToken) -> Replay | None:
        """Rebuild the session, where a state was loaded that is about another one.

        Args:
            cancellation_token: Ends it; it is begun anew the next time.

        Returns:
            How that went, or None where there was nothing to run again.
        """
        if self._record is None or self._record.pending is None:
            return None
        return await awaited(self._rebuild(self._record, self._record.pending, cancellation_token), cancellation_token)

    async def _rebuild(self, record: SessionRecord, journal: Journal, token: CancellationToken) -> Replay | None:
        assert isinstance(self.executor, SandboxCodeExecutor)
        if self.executor.starts:
            await self._restart(token)
        self.ran_code = True
        await self._prepare(token)
        made = await replay(self.executor, record, journal, token)
        # If the sandbox broke, another one has replaced it.
        await self._prepare(token)
        record.pending = None
        return made if made.blocks or not made.same else None

    async def _execute(self, blocks: list[CodeBlock], token: CancellationToken) -> CodeResult:
        if self._record is not None and self._record.pending is not None:
            await self._rebuild(self._record, self._record.pending, token)
        before = await self._prepare(token)
        result = await self._run_all(blocks, token)
        if not isinstance(result, ExecutionResult):
            return result
        if before is not None and before.state == "lost":
            result = replace(result, state="lost", notes=(*before.notes, *result.notes))
        elif result.state == "lost" or 0 < result.restored_before <= self._prepared_by:
            self._prepared_for = None
        return result

    async def _prepare(self, token: CancellationToken) -> ExecutionResult | None:
        """Run the setup, where the session is a new one.

        Returns:
            What came of it, or None where nothing was to be done.

        Raises:
            ValueError: It failed.
        """
        if self._setup is None or self._prepared_for == self._session_number():
            return None
        code = [CodeBlock(code=self._setup, language="python")]
        if isinstance(self.executor, SandboxCodeExecutor):
            result: CodeResult = await self.executor.run_blocks(code, token, RunContext(journalled=True))
        else:
            result = await self.executor.execute_code_blocks(code, cancellation_token=token)
        if result.exit_code != 0:
            raise ValueError(f"The agent's setup failed. {describe(result)}")
        self._prepared_for = self._session_number()
        if not isinstance(result, ExecutionResult):
            return None
        self._prepared_by = result.number
        return result

    def _session_number(self) -> int:
        return self.executor.starts if isinstance(self.executor, SandboxCodeExecutor) else 0

    async def _run_all(self, blocks: list[CodeBlock], token: CancellationToken) -> CodeResult:
        if self._record is None or not isinstance(self.executor, SandboxCodeExecutor):
            return await self._run_in_executor(blocks, token)
        # One by one, because each is an entry of its own in the journal.
        results: list[ExecutionResult] = []
        for block in blocks:
            result = await self._run_in_executor([block], token)
            assert isinstance(result, ExecutionResult)
            note = partial(self._record.note, self.executor, block, result, self._redact, result.files_before)
            # So many take long to write down.
            await in_thread(note) if len(result.tool_calls) > MANY_CALLS else note()
            results.append(result)
            if result.exit_code != 0 or self.receiver.answer is not None:
                break
        return combine(results)

    async def _run_in_executor(self, blocks: list[CodeBlock], token: CancellationToken) -> CodeResult:
        if not isinstance(self.executor, SandboxCodeExecutor):
            return await self.executor.execute_code_blocks(blocks, cancellation_token=token)
        output = self._output
        tools = {FINAL_ANSWER.name: FinalAnswerTool(self.receiver)} if self.takes_answers else {}
        context = RunContext(journalled=True, on_call=self.calls.append, tools=tools)
        if output is None:
            return await self.executor.run_blocks(blocks, token, context)
        async with aclosing(self.executor.execute_stream(blocks, token, context)) as running:
            async for item in running:
                if isinstance(item, OutputChunk):
                    output.put_nowait(item.text)
                else:
                    result = item
        return result

    async def following(
        self, running: Coroutine[Any, Any, CodeResult]
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent, None]:
        """Await a call of `run`, whose result is then in `result`, and yield what the code writes meanwhile.

        AutoGen's teams and `Console` know chunks from models only, and take no events of ours, so output comes in chunk
        events too; their metadata tell them apart.

        Args:
            running: The call.
        """
        if not self._stream:
            self.result = await running
            return
        output = self._output = asyncio.Queue()
        task = asyncio.ensure_future(running)
        task.add_done_callback(lambda _: output.put_nowait(None))
        try:
            while (text := await output.get()) is not None:
                yield ModelClientStreamingChunkEvent(content=text, source=self._source, metadata=OUTPUT_CHUNK)
            self.result = await task
        finally:
            self._output = None
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def reset(self, cancellation_token: CancellationToken) -> None:
        """Restart the executor, if the agent ran code in it.

        Raises:
            TimeoutError: It did not restart within 120 s.
        """
        self._interrupted = []
        if self._record is not None:
            self._record.pending = None
        if not self.ran_code:
            return  # most executors refuse to restart before they were started
        await self._restart(cancellation_token)
        self.ran_code = False

    async def _restart(self, token: CancellationToken) -> None:
        try:
            async with asyncio.timeout(RESTART_DEADLINE_S):
                await awaited(self.executor.restart(), token)
        except TimeoutError as error:
            raise TimeoutError(
                f"The code executor did not restart within {RESTART_DEADLINE_S:g} s; stop it and start it again."
            ) from error
        self._prepared_for = None
        if self._record is not None:
            self._record.forget()

    # What is kept of the session

    def save(self) -> dict[str, Any]:
        """Return what a state keeps beside the conversation: the session's journal, and calls of turns that were cut short."""
        return {"journal": self._journal(), "interrupted": interrupted(self._interrupted, self._redact)}

    def load(self, journal: Journal | None, calls: Sequence[RecordedCall]) -> None:
        """Have the session rebuilt before it is used next, unless it is the one that the journal is about; remember the calls."""
        if self._record is not None and journal is not None:
            assert isinstance(self.executor, SandboxCodeExecutor)
            self._record.see(self.executor)  # it may have been restarted behind the agent's back
            self._record.load(journal)
        # A team loads a state from before a turn that was cut short; what that turn has done stays done.
        known = interrupted(self._interrupted, self._redact)
        for call in calls:
            if call in known:
                known.remove(call)
            else:
                self._interrupted.append(call.call())

    def _journal(self) -> Journal | None:
        if self._record is None:
            return None
        if self._record.pending is None and isinstance(self.executor, SandboxCodeExecutor):
            self._record.see(self.executor)
        return self._record.pending or self._record.journal


class RebuildsSession:
    """An agent whose session can be rebuilt."""

    _runner: CodeRunner

    async def rebuild_session(self, cancellation_token: CancellationToken | None = None) -> Replay | None:
        """Rebuild the session of a state that was loaded now, instead of at the beginning of the next turn.

        Args:
            cancellation_token: Ends it. Default: none.

        Returns:
            Where it differs from what it was; None where there was nothing to rebuild.
        """
        return await self._runner.rebuild(cancellation_token or CancellationToken())
