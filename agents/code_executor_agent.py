"""An agent that runs code: its own, written by a model, or code that others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.agents import CodeExecutorAgent as _Upstream
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from autogen_codeact.agents.approval import ApprovalFuncType, ask_approval, denied
from autogen_codeact.agents.config import CodeExecutorAgentConfig, CodeExecutorAgentState, load_part
from autogen_codeact.agents.decision import Decided, RetryAsker
from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks, normalise_language
from autogen_codeact.agents.model import awaited, converse
from autogen_codeact.agents.observation import MAX_OUTPUT_CHARS, as_message, describe, metadata_of, outcome_of

CUT_OFF = (
    "Your answer ended inside a code block, so none of it was run. Send the code again, whole; "
    "if it is long, in a shorter form."
)
CUT_OFF_NOTE = "[The answer ended inside a code block; nothing of it was run.]"
CUT_OFF_BY_OTHERS = "A code block in the thread is not closed, so nothing was run. Please send the code again, whole."
CARRY_ON = "Do that now: send the whole corrected code in one code block."
RESTART_DEADLINE_S = 120.0


@dataclass(frozen=True)
class _Code:
    blocks: list[CodeBlock]
    cut_off: bool


class CodeExecutorAgent(BaseChatAgent, Component[CodeExecutorAgentConfig]):
    """Writes code, runs it, repairs it and reflects on what came out; AutoGen's agent of that name, made sound.

    With a model, a turn is: the model answers; the code blocks in its answer run; if they fail and attempts are left,
    the model decides whether to try again; at last it reflects. Without a model, the code in the messages is run.
    A turn that raises or is cancelled leaves the context as it was before.

    Args:
        name: A Python identifier.
        code_executor: Runs the code. Any AutoGen executor; start it before the first turn and stop it after the last.
        model_client: Writes the code. Default: none, only code in incoming messages is run.
        model_context: Keeps the conversation. Default: an unbounded one.
        model_client_stream: Also yield the model's answer in chunks. Default: no.
        max_retries_on_error: How often code may be tried again. Default: 0.
        description: What a team is told about the agent. Default: a sentence that fits, with or without a model.
        system_message: Put before the conversation; None for no system message.
        sources: Without a model, names of the agents whose code is run. Default: everybody's.
        supported_languages: Languages that are run, `py` and `python3` counting as `python` and so on.
            Default: `DEFAULT_SUPPORTED_LANGUAGES`.
        approval_func: Asked before any code runs, sync or async. Default: nobody is asked. It can't be dumped.

    Raises:
        ValueError: `max_retries_on_error` is negative, or given without a model.
    """

    DEFAULT_TERMINAL_DESCRIPTION: ClassVar[str] = _Upstream.DEFAULT_TERMINAL_DESCRIPTION
    DEFAULT_AGENT_DESCRIPTION: ClassVar[str] = _Upstream.DEFAULT_AGENT_DESCRIPTION
    DEFAULT_SYSTEM_MESSAGE: ClassVar[str] = _Upstream.DEFAULT_SYSTEM_MESSAGE
    NO_CODE_BLOCKS_FOUND_MESSAGE: ClassVar[str] = _Upstream.NO_CODE_BLOCKS_FOUND_MESSAGE
    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]] = list(_Upstream.DEFAULT_SUPPORTED_LANGUAGES)
    MAX_OUTPUT_CHARS: ClassVar[int] = MAX_OUTPUT_CHARS

    component_config_schema = CodeExecutorAgentConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.agents.CodeExecutorAgent"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None  # inherited, it would dump a subclass as this class

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
    ) -> None:
        if max_retries_on_error < 0:
            raise ValueError(f"max_retries_on_error must be 0 or more, not {max_retries_on_error}.")
        if max_retries_on_error and model_client is None:
            raise ValueError("max_retries_on_error needs a model_client: without a model nothing can be repaired.")
        if description is None:
            description = self.DEFAULT_AGENT_DESCRIPTION if model_client else self.DEFAULT_TERMINAL_DESCRIPTION
        super().__init__(name=name, description=description)
        self._code_executor = code_executor
        self._model_client = model_client
        self._model_context = model_context if model_context is not None else UnboundedChatCompletionContext()
        self._model_client_stream = model_client_stream
        self._max_retries_on_error = max_retries_on_error
        self._system_message = system_message
        self._sources = list(sources) if sources is not None else None
        self._supported_languages = list(supported_languages) if supported_languages is not None else None
        languages = self.DEFAULT_SUPPORTED_LANGUAGES if supported_languages is None else supported_languages
        self._languages = frozenset(map(normalise_language, languages)) - OUTPUT_LABELS - {""}
        self._approval_func = approval_func
        self._asker = RetryAsker(model_client, name) if model_client is not None else None
        self._ran_code = False
        self._owns_parts = False

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The type of the agent's answers."""
        return (TextMessage,)

    @property
    def model_context(self) -> ChatCompletionContext:
        """The conversation with the model."""
        return self._model_context

    @property
    def code_executor(self) -> CodeExecutor:
        """What runs the code."""
        return self._code_executor

    @property
    def model_client(self) -> ChatCompletionClient | None:
        """What writes the code, or None."""
        return self._model_client

    # One turn

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Do one turn and return its answer, the events on the way being its `inner_messages`."""
        async with aclosing(self.on_messages_stream(messages, cancellation_token)) as turn:
            async for item in turn:
                if isinstance(item, Response):
                    return item
        raise AssertionError("a turn ends with a Response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Do one turn and yield what happens, last the `Response`.

        Args:
            messages: What was said since the agent's last turn.
            cancellation_token: Ends the turn: the code that runs is killed, `CancelledError` is raised.

        Raises:
            ValueError: There is no task: nothing was said, now or before.
        """
        if self._model_client is None:
            yield Response(chat_message=await self._run_code_of_others(messages, cancellation_token), inner_messages=[])
            return
        events: list[BaseAgentEvent | BaseChatMessage] = []
        async with self._context_restored_on_error(), aclosing(self._act(messages, cancellation_token)) as turn:
            async for item in turn:
                if not isinstance(item, ModelClientStreamingChunkEvent):
                    events.append(item)
                if not isinstance(item, TextMessage):
                    yield item
        answer = events.pop()
        assert isinstance(answer, TextMessage)
        yield Response(chat_message=answer, inner_messages=events)

    async def _act(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | TextMessage, None]:
        """Generate, extract, approve, execute, decide, again or reflect. The last item is the answer."""
        await self._listen(messages)
        for attempt in range(self._max_retries_on_error + 1):
            is_last = attempt == self._max_retries_on_error
            async for item in self._generate(token):
                if isinstance(item, CreateResult):
                    generated = item
                else:
                    yield item
            code = self._code_in([str(generated.content)])
            if code.cut_off:
                await self._tell(CUT_OFF)
            if not code.blocks and (is_last or not code.cut_off):
                yield self._answer(generated, note=CUT_OFF_NOTE if code.cut_off else None)
                return
            yield self._generation_event(attempt, generated, code)
            if code.cut_off:
                continue

            result = await self.execute_code_block(code.blocks, token)
            await self._observe(result)
            yield self._execution_event(attempt, result)
            if result.exit_code == 0 or is_last or outcome_of(result) == "denied":
                break

            decided = await self._decide(token)
            yield self._decision_event(attempt, decided)
            if not decided.decision.retry:
                break
            await self._plan(decided.decision.reason)

        async for item in self._generate(token):
            yield self._answer(item) if isinstance(item, CreateResult) else item

    async def _run_code_of_others(self, messages: Sequence[BaseChatMessage], token: CancellationToken) -> TextMessage:
        code = self._code_in_messages(messages)
        if code.cut_off:
            return TextMessage(content=CUT_OFF_BY_OTHERS, source=self.name)
        if not code.blocks:
            return TextMessage(content=self.NO_CODE_BLOCKS_FOUND_MESSAGE, source=self.name)
        result = await self.execute_code_block(code.blocks, token)
        words = describe(result, limit=self.MAX_OUTPUT_CHARS)
        return TextMessage(content=words, source=self.name, metadata=metadata_of(result))

    # Steps of a turn

    async def _listen(self, messages: Sequence[BaseChatMessage]) -> None:
        for message in messages:
            if isinstance(message, HandoffMessage):
                for said_before in message.context:
                    await self._model_context.add_message(said_before)
            told = message.to_model_message()
            if _says_something(told):  # as below in _generate: providers refuse empty messages
                await self._model_context.add_message(told)
        if not any(map(_says_something, await self._model_context.get_messages())):
            raise ValueError("There is no task: give the agent a message that says what to do.")

    async def _generate(
        self, token: CancellationToken
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent | ThoughtEvent | CreateResult, None]:
        """Let the model speak; yields chunks, its thought, last the result, which is then in the context."""
        assert self._model_client is not None
        told = await self._conversation()
        async with aclosing(converse(self._model_client, told, token, stream=self._model_client_stream)) as answer:
            async for item in answer:
                if isinstance(item, str):
                    yield ModelClientStreamingChunkEvent(content=item, source=self.name)
                    continue
                if item.thought:
                    yield ThoughtEvent(content=item.thought, source=self.name)
                if str(item.content).strip():  # several providers refuse a conversation with an empty message in it
                    said = AssistantMessage(content=item.content, thought=item.thought, source=self.name)
                    await self._model_context.add_message(said)
                yield item

    async def execute_code_block(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run the blocks, if they are approved.

        Args:
            code_blocks: The code.
            cancellation_token: Ends the approval or the run.

        Returns:
            The executor's own result, untouched, or one with the outcome `denied`.
        """
        if self._approval_func is not None:
            context = await self._model_context.get_messages()
            answer = await ask_approval(self._approval_func, code_blocks, context, cancellation_token)
            if not answer.approved:
                return denied(answer.reason)
        self._ran_code = True
        return await awaited(
            self._code_executor.execute_code_blocks(code_blocks, cancellation_token=cancellation_token),
            cancellation_token,
        )

    async def extract_code_blocks_from_messages(self, messages: Sequence[BaseChatMessage]) -> list[CodeBlock]:
        """Return the code that would be run for these messages; none, where a block is cut off."""
        return self._code_in_messages(messages).blocks

    async def _observe(self, result: CodeResult) -> None:
        assert self._model_client is not None
        vision = bool(self._model_client.model_info.get("vision"))
        await self._model_context.add_message(
            await as_message(result, self.name, vision=vision, limit=self.MAX_OUTPUT_CHARS)
        )

    async def _decide(self, token: CancellationToken) -> Decided:
        assert self._asker is not None
        return await self._asker.ask(await self._conversation(), token)

    async def _plan(self, reason: str) -> None:
        if reason.strip():
            await self._model_context.add_message(AssistantMessage(content=reason, source=self.name))
        await self._tell(CARRY_ON)

    async def _tell(self, words: str) -> None:
        await self._model_context.add_message(UserMessage(content=words, source=self.name))

    async def _conversation(self) -> list[LLMMessage]:
        system = [SystemMessage(content=self._system_message)] if self._system_message is not None else []
        return [*system, *await self._model_context.get_messages()]

    def _code_in_messages(self, messages: Sequence[BaseChatMessage]) -> _Code:
        return self._code_in(
            [
                message.content
                for message in messages
                if isinstance(message, TextMessage) and (self._sources is None or message.source in self._sources)
            ]
        )

    def _code_in(self, texts: Sequence[str]) -> _Code:
        """Find the code to run. Where one block is cut off none is run: blocks of an answer build on each other."""
        found = [block for text in texts for block in extract_code_blocks(text)]
        wanted = [block for block in found if block.language in self._languages]
        if not all(block.complete for block in wanted):
            return _Code([], cut_off=True)
        return _Code([CodeBlock(code=block.code, language=block.language) for block in wanted], cut_off=False)

    # Events

    def _generation_event(self, attempt: int, generated: CreateResult, code: _Code) -> CodeGenerationEvent:
        return CodeGenerationEvent(
            retry_attempt=attempt,
            content=str(generated.content),
            code_blocks=code.blocks,
            source=self.name,
            models_usage=generated.usage,
            metadata={"cut_off": "true"} if code.cut_off else {},
        )

    def _execution_event(self, attempt: int, result: CodeResult) -> CodeExecutionEvent:
        return CodeExecutionEvent(retry_attempt=attempt, result=result, source=self.name, metadata=metadata_of(result))

    def _decision_event(self, attempt: int, decided: Decided) -> CodeGenerationEvent:
        retry, reason = decided.decision.retry, decided.decision.reason
        return CodeGenerationEvent(
            retry_attempt=attempt,
            content=f"Trying again ({attempt + 1} of {self._max_retries_on_error}): {reason}"
            if retry
            else f"Not trying again: {reason}",
            code_blocks=[],
            source=self.name,
            models_usage=decided.usage,
            metadata={"retry": "true" if retry else "false"},
        )

    def _answer(self, generated: CreateResult, note: str | None = None) -> TextMessage:
        content = str(generated.content) if note is None else f"{generated.content}\n\n{note}"
        return TextMessage(content=content, source=self.name, models_usage=generated.usage)

    # State

    @asynccontextmanager
    async def _context_restored_on_error(self) -> AsyncIterator[None]:
        # Teams hand an interrupted agent the same messages again; they must not be in the context twice.
        before = await self._model_context.save_state()
        try:
            yield
        except BaseException:
            await self._model_context.load_state(before)
            raise

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation and, if the agent ran code, restart the executor.

        Raises:
            TimeoutError: The executor did not restart within 120 s.
        """
        await self._model_context.clear()
        if not self._ran_code:
            return  # most executors refuse to restart before they were started
        try:
            async with asyncio.timeout(RESTART_DEADLINE_S):
                await awaited(self._code_executor.restart(), cancellation_token)
        except TimeoutError as error:
            raise TimeoutError(
                f"The code executor did not restart within {RESTART_DEADLINE_S:g} s; stop it and start it again."
            ) from error
        self._ran_code = False

    async def close(self) -> None:
        """Stop the executor and close the model client of an agent that was loaded from a config.

        What was given to the constructor belongs to whoever gave it and is left alone.

        Raises:
            TimeoutError: They did not stop within 120 s.
        """
        if not self._owns_parts:
            return
        async with asyncio.timeout(RESTART_DEADLINE_S):
            try:
                await self._code_executor.stop()
            finally:
                if self._model_client is not None:
                    await self._model_client.close()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation with the model, ready for JSON."""
        return CodeExecutorAgentState(llm_context=await self._model_context.save_state()).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up a conversation from `save_state`; a state of AutoGen's own agent (it keeps none) empties it.

        Raises:
            ValueError: The state is another kind of component's.
        """
        loaded = CodeExecutorAgentState.model_validate(state)
        if loaded.type not in {"CodeExecutorAgentState", "BaseState"}:
            raise ValueError(f"This is a {loaded.type}, not the state of a CodeExecutorAgent.")
        await self._model_context.load_state(loaded.llm_context)

    # Configuration

    def _to_config(self) -> CodeExecutorAgentConfig:
        if self._approval_func is not None:
            raise ValueError(
                "An agent with an approval_func can't be dumped, because a function has no configuration; "
                "dump it without one and pass approval_func again after loading."
            )
        return CodeExecutorAgentConfig(
            name=self.name,
            code_executor=self._code_executor.dump_component(),
            model_client=self._model_client.dump_component() if self._model_client is not None else None,
            model_context=self._model_context.dump_component(),
            model_client_stream=self._model_client_stream,
            max_retries_on_error=self._max_retries_on_error,
            description=self.description,
            system_message=self._system_message,
            sources=self._sources,
            supported_languages=self._supported_languages,
        )

    @classmethod
    def _from_config(cls, config: CodeExecutorAgentConfig) -> Self:
        executor = load_part(CodeExecutor, config.code_executor, "code_executor")
        client = load_part(ChatCompletionClient, config.model_client, "model_client")
        context = load_part(ChatCompletionContext, config.model_context, "model_context")
        agent = cls(
            config.name,
            executor,
            model_client=client,
            model_context=context,
            model_client_stream=config.model_client_stream,
            max_retries_on_error=config.max_retries_on_error,
            description=config.description,
            system_message=config.system_message,
            sources=config.sources,
            supported_languages=config.supported_languages,
        )
        agent._owns_parts = True
        return agent


def _says_something(message: LLMMessage) -> bool:
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)
