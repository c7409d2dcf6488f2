"""Base class of the agents that run code."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage

from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.arguments import check_parts
from autogen_codeact.agents.code_runner import CodeRunner, RunOptions
from autogen_codeact.agents.code_search import FoundCode, NotRun, as_metadata, describe_not_run, runnable_languages
from autogen_codeact.agents.config import (
    AgentConfig,
    CodeExecutorAgentState,
    dump_parts,
    load_parts,
    read_state,
)
from autogen_codeact.agents.conversation import ContextBudget, Conversation, Emit, check_budget
from autogen_codeact.agents.environment import describe_environment, metadata_of_hints
from autogen_codeact.agents.journal import Journal
from autogen_codeact.agents.model import cancel_and_wait
from autogen_codeact.agents.observation import MAX_OUTPUT_CHARS, as_message, metadata_of
from autogen_codeact.agents.replay import Replay
from autogen_codeact.agents.step_record import StepRecord
from autogen_codeact.executors.tools.configs import OwnProvider
from codeact_sandbox.types.tool import HostToolProtocol

CLOSE_DEADLINE_S = 120.0
Item = BaseAgentEvent | BaseChatMessage


class BaseCodeAgent(OwnProvider, BaseChatAgent):
    """An agent that has a model write code, and runs it; subclasses implement `_solve`."""

    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]]
    MAX_OUTPUT_CHARS: ClassVar[int] = MAX_OUTPUT_CHARS
    _state_class: ClassVar[type[CodeExecutorAgentState]]
    _state_names: ClassVar[frozenset[str]]

    def __init__(
        self,
        name: str,
        code_executor: CodeExecutor,
        *,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        model_client_stream: bool,
        system_message: str | None,
        supported_languages: list[str] | None,
        context_budget: int | None,
        options: RunOptions,
    ) -> None:
        check_budget(context_budget)
        check_parts(
            code_executor,
            model_client,
            approval_func=options.approval_func,
            tools=options.tools,
            supported_languages=supported_languages,
        )
        super().__init__(name=name, description=description)
        self._code_executor = code_executor
        self._model_context = model_context if model_context is not None else UnboundedChatCompletionContext()
        self._model_client_stream = model_client_stream
        self._system_message = system_message
        self._supported_languages = list(supported_languages) if supported_languages is not None else None
        languages = self._default_languages() if supported_languages is None else supported_languages
        self._languages = runnable_languages(languages)
        self._options = replace(options, tools=tuple(options.tools))
        self._runner = CodeRunner(code_executor, name, self._model_context, self._options)
        self._conversation: Conversation | None = None
        if model_client is not None:
            budget = ContextBudget(context_budget, name, partial(self._runner.keep, "step"))
            self._conversation = Conversation(
                self._model_context, model_client, name, stream=model_client_stream, budget=budget
            )
        self._context_budget = context_budget
        self._described: object = None
        """What the system message describes."""
        self._owns_parts = False
        self._turn: asyncio.Future[BaseChatMessage] | None = None

    @property
    def model_context(self) -> ChatCompletionContext:
        """The conversation with the model."""
        return self._model_context

    @property
    def code_executor(self) -> CodeExecutor:
        """The executor that runs the code."""
        return self._code_executor

    @property
    def model_client(self) -> ChatCompletionClient | None:
        """The model client that writes the code, or None."""
        return self._model_client

    def _default_languages(self) -> Sequence[str]:
        return self.DEFAULT_SUPPORTED_LANGUAGES

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the agent's answers."""
        options = self._options
        typed = [StructuredMessage[options.output_type]] if options.output_type is not None else []  # type: ignore[name-defined]
        return (*typed, TextMessage, *([HandoffMessage] if options.handoffs else []))

    # Turns

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Take a turn, and return its answer, with the events as `inner_messages`."""
        async with aclosing(self.on_messages_stream(messages, cancellation_token)) as items:
            async for item in items:
                if isinstance(item, Response):
                    return item
        raise AssertionError("a turn ends with a Response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item | Response, None]:
        """Take a turn. Yield its events, and finally the `Response`.

        Args:
            messages: The messages since the agent's last turn.
            cancellation_token: Ends the turn: the running code is killed, `CancelledError` is raised. Closing the stream
                early kills it, too.

        Raises:
            ValueError: There is no task: no message, neither now nor from before.
        """
        events: list[Item] = []
        items: asyncio.Queue[BaseAgentEvent | asyncio.Future[BaseChatMessage]] = asyncio.Queue()

        async def emit(event: BaseAgentEvent) -> None:
            items.put_nowait(event)
            await items.join()

        turn = self._turn = asyncio.ensure_future(self._act(messages, cancellation_token, emit))
        turn.add_done_callback(items.put_nowait)
        try:
            while isinstance(item := await items.get(), BaseAgentEvent):
                if not isinstance(item, ModelClientStreamingChunkEvent):
                    events.append(item)
                yield item
                items.task_done()
            answer = await turn
        finally:
            await cancel_and_wait(turn)
        yield Response(chat_message=answer, inner_messages=events)

    async def _act(self, messages: Sequence[BaseChatMessage], token: CancellationToken, emit: Emit) -> BaseChatMessage:
        """Take a turn, and return the answer."""
        conversation = self._conversation
        assert conversation is not None
        async with conversation.restored_on_error(), self._runner.turn() as interruption:
            await conversation.add_messages(messages, interruption)
            if (replayed := await self._runner.rebuild(token)) is not None:
                if not replayed.same:
                    await conversation.notify(replayed.describe())
                await emit(replayed.event(self.name))
            # Not earlier: a session that is to be rebuilt would be started twice.
            if self._system_message is not None and self._described != (
                shown := await self._runner.describe_context(token)
            ):
                tools, facts, skills = shown
                described = describe_environment(facts) if facts is not None else None
                environment = "\n\n".join(filter(None, [described, skills]))
                conversation.system_message = self._whole_system_message(self._system_message, tools, environment)
                self._described = shown
            return await self._solve(conversation, token, emit)

    @abstractmethod
    def _whole_system_message(self, task: str, tools: Sequence[HostToolProtocol], environment: str | None) -> str:
        """Return the system message: what the agent is for, with descriptions of the host tools and of the sandbox."""

    @abstractmethod
    async def _solve(self, conversation: Conversation, token: CancellationToken, emit: Emit) -> BaseChatMessage:
        """Have the model write code, run it, and return the answer."""

    async def _show_result(
        self,
        conversation: Conversation,
        result: CodeResult,
        not_run: Sequence[NotRun],
        attempt: int,
        emit: Emit,
        *,
        whole: str | None = None,
        further: Sequence[str] = (),
        **metadata: str,
    ) -> LLMMessage:
        """Send the result of a step's code to the model, with hints and the code that was not run, and emit its event."""
        hints = self._runner.hints(result)
        remarks = [*(hint.for_model for hint in hints), *further]
        if not_run:
            remarks.append(describe_not_run(not_run, self._languages))
        shown = await as_message(
            result,
            self.name,
            vision=bool(conversation.client.model_info.get("vision")),
            limit=self.MAX_OUTPUT_CHARS,
            whole=whole,
            session=self._runner.in_session,
            further=remarks,
        )
        await self._model_context.add_message(shown)
        metadata = {**metadata_of(result), **metadata_of_hints(hints), **metadata}
        await emit(CodeExecutionEvent(retry_attempt=attempt, result=result, source=self.name, metadata=metadata))
        return shown

    def _generation_event(
        self, attempt: int, generated: CreateResult, code: FoundCode, sent_back: str | None = None, **metadata: str
    ) -> CodeGenerationEvent:
        metadata |= {"cut_off": "true"} if code.cut_off else as_metadata(code.not_run)
        if not code.cut_off and sent_back is not None:
            metadata["sent_back"] = sent_back
        return CodeGenerationEvent(
            retry_attempt=attempt,
            content=str(generated.content),
            code_blocks=code.blocks,
            source=self.name,
            models_usage=generated.usage,
            metadata=metadata,
        )

    async def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[Item | TaskResult, None]:
        """Run the agent and yield its messages, last the `TaskResult`. Closing the stream early kills the code that runs.

        Args:
            task: What to do. Default: continue the conversation.
            cancellation_token: Ends the run.
            output_task_messages: Whether the task is among the messages. Default: yes.
        """
        self._turn = None
        run = super().run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )
        async with aclosing(run):
            try:
                async for item in run:
                    yield item
            finally:
                # AutoGen's method does not close the stream of `on_messages_stream`; the garbage collector would do it later.
                if self._turn is not None:
                    await cancel_and_wait(self._turn)

    @property
    def journal(self) -> Journal | None:
        """The journal of the session, or that of a loaded state from which it will be rebuilt; None without a session."""
        return self._runner.journal()

    def use_steps(self, steps: StepRecord | None) -> None:
        """Record what the agent receives from outside beside its model's answers; None for no record."""
        self._runner.steps = steps

    @property
    def _model_client(self) -> ChatCompletionClient | None:
        # AutoGen's name: what records or limits the calls of agents puts its middleware here.
        return self._conversation.client if self._conversation is not None else None

    @_model_client.setter
    def _model_client(self, client: ChatCompletionClient) -> None:
        assert self._conversation is not None
        self._conversation.client = client

    def use_approval(self, approval_func: ApprovalFuncType | None) -> None:
        """Set the function that approves code, from the next block on; None to run all code."""
        self._options = replace(self._options, approval_func=approval_func)
        self._runner.options = self._options

    # State

    async def rebuild_session(self, cancellation_token: CancellationToken | None = None) -> Replay | None:
        """Rebuild the session of a loaded state now, instead of at the beginning of the next turn.

        Args:
            cancellation_token: Ends it. Default: none.

        Returns:
            Where it differs from what it was; None if there was nothing to rebuild.
        """
        return await self._runner.rebuild(cancellation_token or CancellationToken())

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
        async with asyncio.timeout(CLOSE_DEADLINE_S):
            try:
                await self._code_executor.stop()
            finally:
                if self._model_client is not None:
                    await self._model_client.close()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation with the model and, if there is a session, its journal, ready for JSON."""
        context = await self._model_context.save_state()
        return self._state_class(llm_context=context, **self._runner.save()).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a conversation and a session from `save_state`.

        The session, if there is one, is rebuilt at the beginning of the next turn, or by `rebuild_session`: its blocks are run
        again in a fresh sandbox, and calls to host tools get the recorded results.

        Raises:
            ValueError: The state is of another kind of component, or invalid; nothing has changed.
        """
        loaded = await read_state(self._state_class, state, self._state_names, self._model_context)
        self._runner.load(loaded.journal, loaded.interrupted)

    # Configuration

    def _config_fields(self) -> dict[str, Any]:
        components = (self._code_executor, self._model_client, self._model_context)
        kind = self._state_class.__name__.removesuffix("State")
        return {
            **dump_parts(components, self._options, agent=kind),
            "name": self.name,
            "description": self.description,
            "model_client_stream": self._model_client_stream,
            "stream_output": self._options.stream_output,
            "system_message": self._system_message,
            "supported_languages": self._supported_languages,
            "describe_environment": self._options.describe_environment,
            "context_budget": self._context_budget,
        }

    @classmethod
    def _from_config(cls, config: AgentConfig) -> Self:
        """Make an agent that owns its parts from its configuration."""
        agent = cls(**load_parts(config))
        agent._owns_parts = True
        return agent
