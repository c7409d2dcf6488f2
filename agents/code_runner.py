"""Running an agent's code: if it is approved, and with its output as it comes."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext

from autogen_codeact.agents.approval import ApprovalFuncType, ask_approval, denied
from autogen_codeact.agents.model import awaited
from autogen_codeact.agents.observation import describe
from autogen_codeact.executors import ExecutionResult, OutputChunk, SandboxCodeExecutor

logger = logging.getLogger("autogen_codeact")

RESTART_DEADLINE_S = 120.0
OUTPUT_FILE = ".codeact/output-{}.txt"
OUTPUT_FILES = 100
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
    ) -> None:
        self.executor = executor
        self.ran_code = False
        self.result: CodeResult
        self._source = source
        self._context = context
        self._approval_func = approval_func
        self._stream = stream
        self._setup = setup
        self._set_up_for: int | None = None
        self._outputs_kept = 0
        self._output: asyncio.Queue[str | None] | None = None

    @property
    def takes_answers(self) -> bool:
        """Whether code can give the answer."""
        return False

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
        name = OUTPUT_FILE.format(self._outputs_kept % OUTPUT_FILES + 1)
        try:
            with tempfile.NamedTemporaryFile(prefix="codeact-") as file:
                file.write(result.output.encode("utf-8", "replace"))
                file.flush()
                await self.executor.upload(file.name, name)
        except OSError as error:
            logger.warning("the whole output could not be put into %s: %s", name, error)
            return None
        self._outputs_kept += 1
        return name

    async def _execute(self, blocks: list[CodeBlock], token: CancellationToken) -> CodeResult:
        before = await self._set_up(token)
        result = await self._run_in_executor(blocks, token)
        if not isinstance(result, ExecutionResult):
            return result
        if before is not None and before.state == "lost":
            result = replace(result, state="lost", notes=(*before.notes, *result.notes))
        elif result.state == "lost":
            self._set_up_for = None
        return result

    async def _set_up(self, token: CancellationToken) -> ExecutionResult | None:
        """Run the setup in a session that has not had it, and return its result.

        Raises:
            ValueError: It failed.
        """
        if self._setup is None or self._set_up_for == self._session_number():
            return None
        block = CodeBlock(code=self._setup, language="python")
        result = await self.executor.execute_code_blocks([block], cancellation_token=token)
        if result.exit_code != 0:
            raise ValueError(f"The agent's setup failed. {describe(result)}")
        self._set_up_for = self._session_number()
        return result if isinstance(result, ExecutionResult) else None

    def _session_number(self) -> int:
        return self.executor.starts if isinstance(self.executor, SandboxCodeExecutor) else 0

    async def _run_in_executor(self, blocks: list[CodeBlock], token: CancellationToken) -> CodeResult:
        output = self._output
        if output is None or not isinstance(self.executor, SandboxCodeExecutor):
            return await self.executor.execute_code_blocks(blocks, cancellation_token=token)
        async with aclosing(self.executor.execute_stream(blocks, token)) as running:
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
        if not self.ran_code:
            return  # most executors refuse to restart before they were started
        try:
            async with asyncio.timeout(RESTART_DEADLINE_S):
                await awaited(self.executor.restart(), cancellation_token)
        except TimeoutError as error:
            raise TimeoutError(
                f"The code executor did not restart within {RESTART_DEADLINE_S:g} s; stop it and start it again."
            ) from error
        self.ran_code = False
        self._set_up_for = None
