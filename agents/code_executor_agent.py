"""An agent that runs code: its own, written by a model, or code that others wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from autogen_agentchat.agents import CodeExecutorAgent as _Upstream
from autogen_agentchat.messages import BaseChatMessage, CodeGenerationEvent, TextMessage
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult

from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.arguments import check_lists
from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.code_runner import BROKEN, RunOptions
from autogen_codeact.agents.code_search import (
    ANSWER_NOT_RUN,
    CUT_OFF,
    SAME_AGAIN,
    FoundCode,
    NotRunNotes,
    RepeatedCode,
    as_metadata,
    code_in_answer,
    describe_not_run,
    find_code,
    is_cut_off,
)
from autogen_codeact.agents.config import CodeExecutorAgentConfig, CodeExecutorAgentState
from autogen_codeact.agents.conversation import Conversation, Emit
from autogen_codeact.agents.decision import DecisionResult, RetryDecider
from autogen_codeact.agents.environment import metadata_of_hints
from autogen_codeact.agents.observation import as_execution_result, broken, describe, metadata_of
from autogen_codeact.agents.step_record import RunEnded
from autogen_codeact.agents.tool_prompt import describe_tools
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.types.tool import HostToolProtocol

CUT_OFF_BY_OTHERS = "A code block in the thread is not closed, so nothing was run. Please send the code again, whole."
CODE_IN_THREAD = "Code in the thread was not run:"
CODE_OF_OTHERS = (
    "There is code in the thread, but it was not run, because only code in a message of {sources} is run. "
    "Please send the code to run in such a message."
)
CARRY_ON = "Do that now: send the whole corrected code in one code block."


class CodeExecutorAgent(BaseCodeAgent, Component[CodeExecutorAgentConfig]):
    """Writes code, runs it, repairs it and reflects on the result; compatible with AutoGen's agent of that name.

    With a model, a turn is: the model answers; the code blocks in its answer run; if they fail and attempts are left,
    the model decides whether to try again; finally it reflects. Without a model, the code in the messages is run.
    A turn that raises or is cancelled leaves the context as it was before.

    Args:
        name: A Python identifier.
        code_executor: Runs the code. Any AutoGen executor; start it before the first turn and stop it after the last.
        model_client: Writes the code. Default: none, only code in incoming messages is run.
        model_context: Keeps the conversation. Default: an unbounded one.
        model_client_stream: Also yield the model's answer in chunks. Default: no.
        max_retries_on_error: Attempts after the first one. Default: 0.
        description: Describes the agent to a team. Default: a sentence that fits, with or without a model.
        system_message: Put before the conversation; None for no system message.
        sources: Without a model, names of the agents whose code is run. Default: all.
        supported_languages: Languages that are run, `py` and `python3` counting as `python` and so on.
            Default: `DEFAULT_SUPPORTED_LANGUAGES`.
        approval_func: Decides whether code may run, sync or async. It can't be dumped. Default: all code may.
        stream_output: Also yield what running code writes, as it writes it, in `ModelClientStreamingChunkEvent`s with
            `chunk_of: execution` in their metadata, because AutoGen's teams accept no other events. Needs an executor that
            can stream. Default: no.
        tools, approve_tool, describe_environment, context_budget: As in `CodeActAgent`; but the default of
            `context_budget` sets no limit.

    Raises:
        TypeError: An argument is something else than it says above.
        ValueError: `max_retries_on_error` is negative, or something that needs a model is given without one.
    """

    DEFAULT_TERMINAL_DESCRIPTION: ClassVar[str] = _Upstream.DEFAULT_TERMINAL_DESCRIPTION
    DEFAULT_AGENT_DESCRIPTION: ClassVar[str] = _Upstream.DEFAULT_AGENT_DESCRIPTION
    DEFAULT_SYSTEM_MESSAGE: ClassVar[str] = _Upstream.DEFAULT_SYSTEM_MESSAGE
    NO_CODE_BLOCKS_FOUND_MESSAGE: ClassVar[str] = _Upstream.NO_CODE_BLOCKS_FOUND_MESSAGE
    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]] = list(_Upstream.DEFAULT_SUPPORTED_LANGUAGES)

    component_config_schema = CodeExecutorAgentConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.agents.CodeExecutorAgent"
    _state_class = CodeExecutorAgentState
    _state_names = frozenset({"CodeExecutorAgentState", "BaseState"})  # AutoGen's own agent saves a `BaseState`

    def __init__(
        self,
        name: str,
        code_executor: CodeExecutor,
        *,
        model_client: ChatCompletionClient | None = None,
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = False,
        max_retries_on_error: int = 0,
        description: str | None = None,
        system_message: str | None = DEFAULT_SYSTEM_MESSAGE,
        sources: Sequence[str] | None = None,
        supported_languages: list[str] | None = None,
        approval_func: ApprovalFuncType | None = None,
        stream_output: bool = False,
        tools: Sequence[ToolLike] = (),
        approve_tool: ApproveTool | None = None,
        describe_environment: bool = True,
        context_budget: int | None = None,
    ) -> None:
        check_lists(sources=sources)
        if max_retries_on_error < 0:
            raise ValueError(f"max_retries_on_error must be 0 or more, not {max_retries_on_error}.")
        if max_retries_on_error and model_client is None:
            raise ValueError("max_retries_on_error needs a model_client: without a model nothing can be repaired.")
        if description is None:
            description = self.DEFAULT_AGENT_DESCRIPTION if model_client else self.DEFAULT_TERMINAL_DESCRIPTION
        super().__init__(
            name,
            code_executor,
            description=description,
            model_client=model_client,
            model_context=model_context,
            model_client_stream=model_client_stream,
            system_message=system_message,
            supported_languages=supported_languages,
            context_budget=context_budget,
            options=RunOptions(
                approval_func,
                stream_output,
                tools,
                approve_tool,
                describe_environment=describe_environment,
            ),
        )
        self._max_retries_on_error = max_retries_on_error
        self._sources = list(sources) if sources is not None else None
        self._decider = RetryDecider(name)

    def _whole_system_message(self, task: str, tools: Sequence[HostToolProtocol], environment: str | None) -> str:
        return "\n\n".join(filter(None, (task, environment, describe_tools(tools))))

    # One turn

    async def _act(self, messages: Sequence[BaseChatMessage], token: CancellationToken, emit: Emit) -> BaseChatMessage:
        if self._conversation is None:
            return await self._run_code_of_others(messages, token, emit)
        return await super()._act(messages, token, emit)

    async def _solve(self, conversation: Conversation, token: CancellationToken, emit: Emit) -> BaseChatMessage:
        """Generate, extract, approve, execute, decide, again or reflect."""
        notes, repeated = NotRunNotes(), RepeatedCode()
        ran: list[str] = []
        for attempt in range(self._max_retries_on_error + 1):
            is_last = attempt == self._max_retries_on_error
            generated = await conversation.ask(token, emit)
            code = find_code([str(generated.content)], self._languages)
            await conversation.add_answer(generated, code.end)
            if not code.blocks:
                problem = self._problem(code, notes, is_last=is_last)
                if problem is not None:
                    await conversation.notify(problem)
                if is_last or problem is None:
                    return self._answer(generated, ran)
                await emit(self._generation_event(attempt, generated, code, problem))
                continue
            if code.blocks == repeated.reported:
                await emit(self._generation_event(attempt, generated, FoundCode([], cut_off=False), SAME_AGAIN))
                break
            await emit(self._generation_event(attempt, generated, code))

            ended = await self._run_blocks(code.blocks, token, emit)
            # A block that broke its sandbox is never sent again by itself: the model decides.
            if ended.error is not None and is_last:
                raise ended.error
            result = ended.result
            denied = as_execution_result(result).outcome == "denied"
            if not denied:
                ran += [block.code for block in code.blocks]
            not_run = notes.unreported(code.not_run, ran=True)
            remarks = [] if is_last else repeated.remarks(code.blocks, result)
            await self._show_result(conversation, result, not_run, attempt, emit, further=remarks)
            if result.exit_code == 0 or is_last or denied:
                break

            decided = await self._decider.ask(conversation.client, partial(conversation.messages, token), token)
            await emit(self._decision_event(attempt, decided))
            if not decided.decision.retry:
                break
            await conversation.add_plan(decided.decision.reason)
            await conversation.notify(CARRY_ON)

        return self._answer(await conversation.generate(token, emit), ran)

    def _problem(self, code: FoundCode, notes: NotRunNotes, *, is_last: bool) -> str | None:
        """Return why a message that runs nothing is not the answer, as a message to the model; None if it is."""
        if code.cut_off:
            return CUT_OFF
        # AutoGen's agent answers with such a message: only attempts that are left are used to ask again.
        if not is_last and (to_name := notes.unreported(code.not_run, ran=False)):
            return f"{describe_not_run(to_name, self._languages)}\n{ANSWER_NOT_RUN}"
        return None

    async def _run_blocks(self, blocks: list[CodeBlock], token: CancellationToken, emit: Emit) -> RunEnded:
        if type(self).execute_code_block is CodeExecutorAgent.execute_code_block:
            return await self._runner.run(blocks, token, emit)
        try:
            return RunEnded(await self.execute_code_block(blocks, token))
        except BROKEN as error:
            return RunEnded(broken(error, session=self._runner.in_session), error)

    async def _run_code_of_others(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken, emit: Emit
    ) -> TextMessage:
        code = self._code_in_messages(messages)
        if code.cut_off:
            return TextMessage(content=CUT_OFF_BY_OTHERS, source=self.name)
        if not code.blocks:
            content, metadata = self._nothing_to_run(messages), as_metadata(code.not_run)
            if code.not_run:
                content = f"{content} {describe_not_run(code.not_run, self._languages, CODE_IN_THREAD)}"
            return TextMessage(content=content, source=self.name, metadata=metadata)
        if (replayed := await self._runner.rebuild(token)) is not None:
            await emit(replayed.event(self.name))
        ended = await self._run_blocks(code.blocks, token, emit)
        if ended.error is not None:
            raise ended.error
        result, session = ended.result, self._runner.in_session
        content = describe(result, limit=self.MAX_OUTPUT_CHARS, session=session, vision=False)
        hints = self._runner.hints(result)
        remarks = [hint.for_model for hint in hints]
        if code.not_run:
            remarks.append(describe_not_run(code.not_run, self._languages, CODE_IN_THREAD))
        if remarks:
            content = "\n\n".join([content.rstrip(), *remarks])
        metadata = metadata_of(result) | metadata_of_hints(hints) | as_metadata(code.not_run)
        return TextMessage(content=content, source=self.name, metadata=metadata)

    def _nothing_to_run(self, messages: Sequence[BaseChatMessage]) -> str:
        texts = [message.content for message in messages if isinstance(message, TextMessage)]
        if self._sources is None or not find_code(texts, self._languages).blocks:
            return self.NO_CODE_BLOCKS_FOUND_MESSAGE
        return CODE_OF_OTHERS.format(sources=" or ".join(self._sources) or "no one")

    # Steps of a turn

    async def execute_code_block(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run the blocks, if they are approved. In a subclass that overrides this, no output is streamed.

        Args:
            code_blocks: The code.
            cancellation_token: Ends the approval or the run.

        Returns:
            The executor's own result, untouched, or one with the outcome `denied`.

        Raises:
            SandboxError: The sandbox broke.
        """
        ended = await self._runner.run(code_blocks, cancellation_token)
        if ended.error is not None:
            raise ended.error
        return ended.result

    async def extract_code_blocks_from_messages(self, messages: Sequence[BaseChatMessage]) -> list[CodeBlock]:
        """Return the code that would be run for these messages; none if a block is cut off."""
        return self._code_in_messages(messages).blocks

    def _code_in_messages(self, messages: Sequence[BaseChatMessage]) -> FoundCode:
        texts = [
            message.content
            for message in messages
            if isinstance(message, TextMessage) and (self._sources is None or message.source in self._sources)
        ]
        return find_code(texts, self._languages)

    # Events

    def _decision_event(self, attempt: int, decided: DecisionResult) -> CodeGenerationEvent:
        retry, reason = decided.decision.retry, decided.decision.reason
        return CodeGenerationEvent(
            retry_attempt=attempt,
            content=f"Attempt number: {attempt + 1}\nProposed correction: {reason}"
            if retry
            else f"Not trying again: {reason}",
            code_blocks=[],
            source=self.name,
            models_usage=decided.usage,
            metadata={"retry": "true" if retry else "false"},
        )

    def _answer(self, generated: CreateResult, ran: Sequence[str]) -> TextMessage:
        """Make the answer of the model's message, of which nothing is run; `ran` is the code that this turn has run."""
        content = str(generated.content)
        metadata = as_metadata(code_in_answer(content, self._languages, ran))
        if is_cut_off(content) or generated.finish_reason == "length":
            metadata["cut_off"] = "true"
        return TextMessage(content=content, source=self.name, models_usage=generated.usage, metadata=metadata)

    # Configuration

    def _to_config(self) -> CodeExecutorAgentConfig:
        return CodeExecutorAgentConfig(
            **self._config_fields(), max_retries_on_error=self._max_retries_on_error, sources=self._sources
        )
