"""An agent that runs code: its own, written by a model, or code that others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.agents import CodeExecutorAgent as _Upstream
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult

from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.arguments import check_parts
from autogen_codeact.agents.code_runner import RESTART_DEADLINE_S, CodeRunner, RebuildsSession
from autogen_codeact.agents.config import (
    CodeExecutorAgentConfig,
    CodeExecutorAgentState,
    dump_parts,
    load_part,
    read_state,
)
from autogen_codeact.agents.conversation import Conversation
from autogen_codeact.agents.decision import Decided, RetryAsker
from autogen_codeact.agents.found_code import CUT_OFF, FoundCode, find_code, runnable_languages
from autogen_codeact.agents.journal import RedactResult
from autogen_codeact.agents.leaving import EndsItsTurn, ends_with_its_reader
from autogen_codeact.agents.observation import MAX_OUTPUT_CHARS, broken, describe, metadata_of, outcome_of
from autogen_codeact.agents.tool_prompt import describe_tools
from autogen_codeact.executors import SandboxDied, SandboxProtocolError, SandboxTimeout
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.executors.tools.policies import loaded
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.tool import HostTool

CUT_OFF_NOTE = "[The answer ended inside a code block; nothing of it was run.]"
CUT_OFF_BY_OTHERS = "A code block in the thread is not closed, so nothing was run. Please send the code again, whole."
CODE_OF_OTHERS = (
    "There is code in the thread, but it was not run, because only code in a message of {sources} is run. "
    "Please send the code to run in such a message."
)
CARRY_ON = "Do that now: send the whole corrected code in one code block."


class CodeExecutorAgent(RebuildsSession, EndsItsTurn, BaseChatAgent, Component[CodeExecutorAgentConfig]):
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
        stream_output: Also yield what running code writes, as it writes it: in `ModelClientStreamingChunkEvent`s whose
            metadata have `chunk_of: execution`, because AutoGen's teams take no events of others. Needs one of our
            executors. Default: no.
        tools: Functions of this process that the code can call, beside those that the executor has: typed functions, AutoGen
            tools, workbenches. The model is told of them all. Needs one of our executors. Default: none.
        approve_tool: Asked before each call to a tool, a function or a policy such as `AskPerson()`. Default: whom the executor
            asks, if anybody.
        redact: Given a host tool's name and a result of it, or the text of its error, gives what the saved state keeps of that,
            without secrets; arguments, code and conversation are kept as they are. Default: all of it. It can't be dumped.

    Raises:
        TypeError: An argument is something else than it says above.
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
        stream_output: bool = False,
        tools: Sequence[ToolLike] = (),
        approve_tool: ApproveTool | None = None,
        redact: RedactResult | None = None,
    ) -> None:
        check_parts(
            code_executor,
            model_client,
            approval_func=approval_func,
            tools=tools,
            sources=sources,
            supported_languages=supported_languages,
        )
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
        self._stream_output = stream_output
        self._sources = list(sources) if sources is not None else None
        self._supported_languages = list(supported_languages) if supported_languages is not None else None
        languages = self.DEFAULT_SUPPORTED_LANGUAGES if supported_languages is None else supported_languages
        self._languages = runnable_languages(languages)
        self._approval_func = approval_func
        self._redact = redact
        self._tools = tuple(tools)
        self._approve_tool = approve_tool
        self._runner = CodeRunner(
            code_executor,
            source=name,
            context=self._model_context,
            approval_func=approval_func,
            stream=stream_output,
            tools=self._tools,
            approve_tool=approve_tool,
            redact=redact,
        )
        self._conversation = self._asker = None
        if model_client is not None:
            self._asker = RetryAsker(model_client, name)
            self._conversation = Conversation(
                self._model_context,
                model_client,
                source=name,
                system_message=system_message,
                stream=model_client_stream,
            )
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

    @ends_with_its_reader
    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Do one turn and yield what happens, last the `Response`.

        Args:
            messages: What was said since the agent's last turn.
            cancellation_token: Ends the turn: the running code is killed, `CancelledError` is raised. Closing the stream
                early kills it, too.

        Raises:
            ValueError: There is no task: nothing was said, now or before.
        """
        events: list[BaseAgentEvent | BaseChatMessage] = []
        turn = self._run_code_of_others if self._conversation is None else self._act
        async with aclosing(turn(messages, cancellation_token)) as items:
            async for item in items:
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
        conversation = self._conversation
        assert conversation is not None
        async with conversation.restored_on_error(), self._runner.turn():
            conversation.system_message = self._whole_system_message(await self._runner.list_tools())
            await conversation.listen(messages, self._runner.interruption)
            if (replayed := await self._runner.rebuild(token)) is not None:
                if not replayed.same:
                    await conversation.tell(replayed.describe())
                yield replayed.event(self.name)
            async with aclosing(self._solve(conversation, token)) as steps:
                async for item in steps:
                    yield item

    def _whole_system_message(self, tools: Sequence[HostTool]) -> str | None:
        if self._system_message is None or not tools:
            return self._system_message
        return f"{self._system_message}\n\n{describe_tools(tools)}"

    async def _solve(
        self, conversation: Conversation, token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | TextMessage, None]:
        """Generate, extract, approve, execute, decide, again or reflect. The last item is the answer."""
        for attempt in range(self._max_retries_on_error + 1):
            is_last = attempt == self._max_retries_on_error
            async with aclosing(conversation.generate(token)) as words:
                async for item in words:
                    if isinstance(item, CreateResult):
                        generated = item
                    else:
                        yield item
            code = find_code([str(generated.content)], self._languages)
            if code.cut_off:
                await conversation.tell(CUT_OFF)
            if not code.blocks and (is_last or not code.cut_off):
                yield self._answer(generated, note=CUT_OFF_NOTE if code.cut_off else None)
                return
            yield self._generation_event(attempt, generated, code)
            if code.cut_off:
                continue

            async with aclosing(self._run(code.blocks, token, is_last=is_last)) as chunks:
                async for chunk in chunks:
                    yield chunk
            result = self._runner.result
            await conversation.observe(result, limit=self.MAX_OUTPUT_CHARS, session=self._runner.in_session)
            yield self._execution_event(attempt, result)
            if result.exit_code == 0 or is_last or outcome_of(result) == "denied":
                break

            decided = await self._decide(conversation, token)
            yield self._decision_event(attempt, decided)
            if not decided.decision.retry:
                break
            await conversation.note_plan(decided.decision.reason)
            await conversation.tell(CARRY_ON)

        async with aclosing(conversation.generate(token)) as words:
            async for item in words:
                yield self._answer(item) if isinstance(item, CreateResult) else item

    async def _run(
        self, blocks: list[CodeBlock], token: CancellationToken, *, is_last: bool
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent, None]:
        try:
            async with aclosing(self._runner.following(self.execute_code_block(blocks, token))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (SandboxDied, SandboxTimeout, SandboxProtocolError) as error:
            if is_last:
                raise
            # It is never sent again by itself: the model decides, and is told what had been done by then.
            self._runner.result = broken(error, session=self._runner.in_session)

    async def _run_code_of_others(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | TextMessage, None]:
        code = self._code_in_messages(messages)
        if code.cut_off:
            yield TextMessage(content=CUT_OFF_BY_OTHERS, source=self.name)
        elif not code.blocks:
            yield TextMessage(content=self._nothing_to_run(messages), source=self.name)
        else:
            if (replayed := await self._runner.rebuild(token)) is not None:
                yield replayed.event(self.name)
            async with aclosing(self._runner.following(self.execute_code_block(code.blocks, token))) as chunks:
                async for chunk in chunks:
                    yield chunk
            result = self._runner.result
            words = describe(result, limit=self.MAX_OUTPUT_CHARS, session=self._runner.in_session, vision=False)
            yield TextMessage(content=words, source=self.name, metadata=metadata_of(result))

    def _nothing_to_run(self, messages: Sequence[BaseChatMessage]) -> str:
        texts = [message.content for message in messages if isinstance(message, TextMessage)]
        if self._sources is None or not find_code(texts, self._languages).blocks:
            return self.NO_CODE_BLOCKS_FOUND_MESSAGE
        return CODE_OF_OTHERS.format(sources=" or ".join(self._sources) or "nobody")

    # Steps of a turn

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
        return await self._runner.run(code_blocks, cancellation_token)

    async def extract_code_blocks_from_messages(self, messages: Sequence[BaseChatMessage]) -> list[CodeBlock]:
        """Return the code that would be run for these messages; none, where a block is cut off."""
        return self._code_in_messages(messages).blocks

    async def _decide(self, conversation: Conversation, token: CancellationToken) -> Decided:
        assert self._asker is not None
        return await self._asker.ask(await conversation.messages(), token)

    def _code_in_messages(self, messages: Sequence[BaseChatMessage]) -> FoundCode:
        texts = [
            message.content
            for message in messages
            if isinstance(message, TextMessage) and (self._sources is None or message.source in self._sources)
        ]
        return find_code(texts, self._languages)

    # Events

    def _generation_event(self, attempt: int, generated: CreateResult, code: FoundCode) -> CodeGenerationEvent:
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
            content=f"Attempt number: {attempt + 1}\nProposed correction: {reason}"
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

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation and, if the agent ran code, restart the executor.

        Raises:
            TimeoutError: The executor did not restart within 120 s.
        """
        await self._model_context.clear()
        await self._runner.reset(cancellation_token)

    async def close(self) -> None:
        """Stop the executor, with what its tools have started, and the model of an agent that was loaded from a config.

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
        """Return the conversation with the model and, where there is one, the session's journal, ready for JSON."""
        context = await self._model_context.save_state()
        return CodeExecutorAgentState(llm_context=context, **self._runner.save()).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up a conversation from `save_state`; a state of AutoGen's own agent (it keeps none) empties it.

        The session, where there is one, is rebuilt at the beginning of the next turn, or by `rebuild_session`: its blocks are
        run again in a fresh sandbox, and calls to host tools get the recorded results.

        Raises:
            ValueError: The state is of another kind of component, or invalid; nothing has changed.
        """
        names = {"CodeExecutorAgentState", "BaseState"}
        loaded = await read_state(CodeExecutorAgentState, state, names, self._model_context)
        self._runner.load(loaded.journal, loaded.interrupted)

    # Configuration

    def _to_config(self) -> CodeExecutorAgentConfig:
        functions = {"approval_func": self._approval_func, "redact": self._redact}
        components = (self._code_executor, self._model_client, self._model_context)
        parts = dump_parts(components, self._tools, self._approve_tool, functions, agent="CodeExecutorAgent")
        return CodeExecutorAgentConfig(
            **parts,
            name=self.name,
            model_client_stream=self._model_client_stream,
            max_retries_on_error=self._max_retries_on_error,
            description=self.description,
            system_message=self._system_message,
            sources=self._sources,
            supported_languages=self._supported_languages,
            stream_output=self._stream_output,
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
            stream_output=config.stream_output,
            **loaded(config.tools, config.approve_tool),
        )
        agent._owns_parts = True
        return agent
