"""An agent that acts in code until its task is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult
from pydantic import BaseModel

from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.answer import Receiver, closing_answer, from_text, problem_with
from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.arguments import check_output_type, check_parts
from autogen_codeact.agents.budget import Budget, TimeIsUp, limited
from autogen_codeact.agents.code_runner import CodeRunner, RebuildsSession
from autogen_codeact.agents.config import (
    CodeActAgentConfig,
    CodeActAgentState,
    dump_parts,
    dump_type,
    load_part,
    load_type,
    read_state,
)
from autogen_codeact.agents.conversation import Conversation
from autogen_codeact.agents.found_code import CUT_OFF, FoundCode, find_code, runnable_languages
from autogen_codeact.agents.journal import RedactResult
from autogen_codeact.agents.leaving import EndsItsTurn, ends_with_its_reader
from autogen_codeact.agents.observation import MAX_OUTPUT_CHARS, broken, metadata_of
from autogen_codeact.executors import SandboxCodeExecutor, SandboxDied, SandboxProtocolError, SandboxTimeout
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.executors.tools.policies import loaded
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.tool import HostTool

CLOSING_DEADLINE_S = 120.0
CLOSE_DEADLINE_S = 120.0


class CodeActAgent(RebuildsSession, EndsItsTurn, BaseChatAgent, Component[CodeActAgentConfig]):
    """Acts in code, step by step in one live session, until the task is done.

    In a step the model speaks, the code in its message runs, and the model is told what came out. A message without code
    is the answer, and so is the value that code gives to `final_answer`, a function in the session that the agent brings
    along. The session lives on after the answer: what code has defined is there in the next run. A turn that raises or is
    cancelled leaves the conversation as it was before; what its code did in the session stays done.

    Args:
        name: A Python identifier.
        code_executor: Runs the code, in `mode="session"`; start it before the first turn and stop it after the last. With
            an executor that isn't ours there is no `final_answer`.
        model_client: Writes the code.
        model_context: Keeps the conversation. Default: an unbounded one.
        model_client_stream: Also yield the model's words in chunks. Default: no.
        stream_output: Also yield what running code writes, as `CodeExecutorAgent` does. Default: no.
        description: What a team is told about the agent.
        system_message: What the agent is for; how to act in code is added to it. None for no system message at all.
        prompt_style: How the model writes code: `markdown` fences, or `execute` tags, between which alone code is run then.
        supported_languages: Languages that are run. Default: Python.
        output_type: A pydantic model that the answer must fit; the last message is then a `StructuredMessage` of it. What
            does not fit is sent back to the model. Default: none, the answer is text.
        tools: Functions of this process that the code can call, beside those that the executor has: typed functions, AutoGen
            tools, workbenches. The model is told of them all. Needs one of our executors. Default: none.
        approve_tool: Asked before each call to a tool, a function or a policy such as `AskPerson()`. Default: whom the executor
            asks, if anybody.
        setup: Python that runs in the session before the first block, such as `import numpy as np`, and again in each new
            session. The model is told of it.
        max_steps: Messages of the model in a turn, at least 1. Default 20.
        max_tokens: Tokens that the model may read and write in a turn, as its client counts them; looked at before each
            step. Default: no limit.
        max_seconds: Wall-clock seconds of a turn; what runs then is stopped. Default: no limit.
        max_output_chars: Characters of an output that the model sees, head and tail together; a longer one is put into a
            file in the sandbox, whose name the model is told, as far as the executor kept it. Default 20,000.
        approval_func: Asked before any code runs, sync or async. Default: nobody is asked. It can't be dumped.
        redact: Given a host tool's name and a result of it, or the text of its error, gives what the saved state keeps of that,
            without secrets; arguments, code and conversation are kept as they are. Default: all of it. It can't be dumped.

    When a limit is reached, the model is asked once for an answer without code, which then is the agent's, with
    `stopped` and the name of the limit in its metadata. That request comes on top of the limit.

    Raises:
        TypeError: An argument is something else than it says above.
        ValueError: A limit is below 1, or the executor is one of ours without a session.
    """

    DEFAULT_DESCRIPTION: ClassVar[str] = "Solves tasks by writing code and running it, step by step."
    DEFAULT_SYSTEM_MESSAGE: ClassVar[str] = prompt.TASK
    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]] = ["python"]

    component_config_schema = CodeActAgentConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.agents.CodeActAgent"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None  # inherited, it would dump a subclass as this class

    def __init__(
        self,
        name: str,
        code_executor: CodeExecutor,
        *,
        model_client: ChatCompletionClient,
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = False,
        stream_output: bool = False,
        description: str = DEFAULT_DESCRIPTION,
        system_message: str | None = DEFAULT_SYSTEM_MESSAGE,
        prompt_style: prompt.PromptStyle = "markdown",
        supported_languages: list[str] | None = None,
        output_type: type[BaseModel] | None = None,
        tools: Sequence[ToolLike] = (),
        approve_tool: ApproveTool | None = None,
        setup: str | None = None,
        max_steps: int = 20,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        approval_func: ApprovalFuncType | None = None,
        redact: RedactResult | None = None,
    ) -> None:
        if model_client is None:
            raise TypeError("A CodeActAgent needs a model_client: the model writes the code.")
        check_parts(
            code_executor,
            model_client,
            approval_func=approval_func,
            tools=tools,
            supported_languages=supported_languages,
        )
        check_output_type(output_type)
        _check_limits(max_steps=max_steps, max_tokens=max_tokens, max_output_chars=max_output_chars)
        if max_seconds is not None and not max_seconds > 0:
            raise ValueError(f"max_seconds must be above 0, not {max_seconds}.")
        if prompt_style not in prompt.HOW:
            raise ValueError(f"prompt_style must be 'markdown' or 'execute', not {prompt_style!r}.")
        if isinstance(code_executor, SandboxCodeExecutor) and code_executor.mode != "session":
            raise ValueError("A CodeActAgent needs a session that lives on: make its executor with mode='session'.")
        super().__init__(name=name, description=description)
        self._code_executor = code_executor
        self._model_client = model_client
        self._model_context = model_context if model_context is not None else UnboundedChatCompletionContext()
        self._model_client_stream = model_client_stream
        self._stream_output = stream_output
        self._system_message = system_message
        self._prompt_style: prompt.PromptStyle = prompt_style
        self._supported_languages = list(supported_languages) if supported_languages is not None else None
        self._languages = runnable_languages(supported_languages or self.DEFAULT_SUPPORTED_LANGUAGES)
        self._output_type = output_type
        self._setup = setup
        self._tools = tuple(tools)
        self._approve_tool = approve_tool
        self._max_steps = max_steps
        self._max_tokens = max_tokens
        self._max_seconds = max_seconds
        self._max_output_chars = max_output_chars
        self._approval_func = approval_func
        self._redact = redact
        self._broke = False
        self._runner = CodeRunner(
            code_executor,
            source=name,
            context=self._model_context,
            approval_func=approval_func,
            stream=stream_output,
            setup=setup,
            answers=True,
            tools=self._tools,
            approve_tool=approve_tool,
            redact=redact,
        )
        self._conversation = Conversation(
            self._model_context,
            model_client,
            source=name,
            system_message=self._whole_system_message(()),
            stream=model_client_stream,
        )
        self._owns_parts = False

    def _whole_system_message(self, tools: Sequence[HostTool]) -> str | None:
        if self._system_message is None:
            return None
        return prompt.system_message(
            self._system_message,
            style=self._prompt_style,
            tools=tools,
            setup=self._setup,
            output_type=self._output_type,
            by_call=self._runner.takes_answers,
        )

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the agent's answers."""
        if self._output_type is None:
            return (TextMessage,)
        return (StructuredMessage[self._output_type], TextMessage)  # type: ignore[name-defined]

    @property
    def model_context(self) -> ChatCompletionContext:
        """The conversation with the model."""
        return self._model_context

    @property
    def code_executor(self) -> CodeExecutor:
        """What runs the code."""
        return self._code_executor

    @property
    def model_client(self) -> ChatCompletionClient:
        """What writes the code."""
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
        async with (
            self._conversation.restored_on_error(),
            self._runner.turn(),
            aclosing(self._act(messages, cancellation_token)) as turn,
        ):
            async for item in turn:
                if isinstance(item, BaseChatMessage):
                    answer = item
                    continue
                if not isinstance(item, ModelClientStreamingChunkEvent):
                    events.append(item)
                yield item
        yield Response(chat_message=answer, inner_messages=events)

    async def _act(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage, None]:
        """Take step after step, up to an answer or a limit. The last item is the answer."""
        self._conversation.system_message = self._whole_system_message(await self._runner.list_tools())
        await self._conversation.listen(messages, self._runner.interruption)
        if (replayed := await self._runner.rebuild(token)) is not None:
            if not replayed.same:
                await self._conversation.tell(replayed.describe())
            yield replayed.event(self.name)
        self._broke = False
        budget = Budget(self._max_steps, self._max_tokens, self._max_seconds)
        while budget.used_up is None:
            try:
                with budget.timed(token) as inner:
                    async with aclosing(self._step(budget, inner)) as items:
                        async for item in items:
                            yield item
                            if isinstance(item, BaseChatMessage):
                                return
            except TimeIsUp:
                break
        async with aclosing(self._close(budget, token)) as items:
            async for item in items:
                yield item

    async def _step(
        self, budget: Budget, token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage, None]:
        """Let the model speak and its code run. The last item is a message if there is an answer."""
        budget.steps = step = budget.steps + 1
        async with aclosing(self._conversation.generate(token)) as words:
            async for spoken in words:
                if isinstance(spoken, CreateResult):
                    generated = spoken
                else:
                    yield spoken
        budget.count(generated.usage)
        text = str(generated.content)
        code = find_code([text], self._languages, tags_only=self._prompt_style == "execute")
        if not code.blocks:
            problem = CUT_OFF if code.cut_off else problem_with(text, self._output_type)
            if problem is None:
                answer = from_text(text, self._output_type)
                yield answer.message(self.name, usage=generated.usage, metadata={"steps": str(step)})
                return
            await self._conversation.tell(problem)
            yield self._generation_event(step, generated, code, sent_back=problem)
            return
        yield self._generation_event(step, generated, code)
        async with aclosing(self._run(step, code.blocks, token)) as items:
            async for item in items:
                yield item

    async def _run(
        self, step: int, blocks: list[CodeBlock], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage, None]:
        receiver = self._runner.receiver = Receiver(self._output_type)
        try:
            async with aclosing(self._runner.following(self._runner.run(blocks, token))) as chunks:
                async for chunk in chunks:
                    yield chunk
            result = self._runner.result
            self._broke = False
        except (SandboxDied, SandboxTimeout, SandboxProtocolError) as error:
            if self._broke:  # twice running is no accident
                raise
            self._broke, result = True, broken(error)
        await self._observe(result)
        yield CodeExecutionEvent(
            retry_attempt=step - 1,
            result=result,
            source=self.name,
            metadata=metadata_of(result) | {"step": str(step)},
        )
        if receiver.answer is not None:
            yield receiver.answer.message(self.name, metadata={"steps": str(step), "answered_by": "final_answer"})

    async def _observe(self, result: CodeResult) -> None:
        whole = None
        if len(result.output) > self._max_output_chars:
            whole = await self._runner.keep_output(result)
        session = self._runner.in_session
        await self._conversation.observe(result, limit=self._max_output_chars, whole=whole, session=session)

    async def _close(
        self, budget: Budget, token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage, None]:
        """Ask for an answer without code, because a limit has been reached."""
        limit = budget.used_up or "max_seconds"
        await self._conversation.tell(prompt.CLOSING[limit].format(limit=self._max_steps) + prompt.CLOSE)
        generated = None
        try:
            with limited(token, CLOSING_DEADLINE_S) as inner:
                async with aclosing(self._conversation.generate(inner)) as words:
                    async for item in words:
                        if isinstance(item, CreateResult):
                            generated = item
                        else:
                            yield item
        except TimeIsUp:
            pass  # then there is no answer
        yield self._closing_answer(limit, generated, {"steps": str(budget.steps), "stopped": limit})

    def _closing_answer(self, limit: str, generated: CreateResult | None, metadata: dict[str, str]) -> BaseChatMessage:
        text = str(generated.content) if generated is not None else ""
        why = prompt.WHY[limit].format(limit=getattr(self, f"_{limit}"))
        answer, misfit = closing_answer(text, self._output_type, self._languages, why)
        if misfit is not None:
            metadata["misfit"] = misfit
        return answer.message(self.name, usage=generated.usage if generated is not None else None, metadata=metadata)

    def _generation_event(
        self, step: int, generated: CreateResult, code: FoundCode, *, sent_back: str | None = None
    ) -> CodeGenerationEvent:
        metadata = {"step": str(step)}
        if code.cut_off:
            metadata["cut_off"] = "true"
        elif sent_back is not None:
            metadata["sent_back"] = sent_back
        return CodeGenerationEvent(
            retry_attempt=step - 1,
            content=str(generated.content),
            code_blocks=code.blocks,
            source=self.name,
            models_usage=generated.usage,
            metadata=metadata,
        )

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
        async with asyncio.timeout(CLOSE_DEADLINE_S):
            try:
                await self._code_executor.stop()
            finally:
                await self._model_client.close()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation with the model and the session's journal, ready for JSON."""
        context = await self._model_context.save_state()
        return CodeActAgentState(llm_context=context, **self._runner.save()).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up a conversation and a session from `save_state`.

        The session is rebuilt at the beginning of the next turn, or by `rebuild_session`: its blocks are run again in a
        fresh sandbox, and calls to host tools get the recorded results.

        Raises:
            ValueError: The state is of another kind of component, or invalid; nothing has changed.
        """
        loaded = await read_state(CodeActAgentState, state, {"CodeActAgentState"}, self._model_context)
        self._runner.load(loaded.journal, loaded.interrupted)

    # Configuration

    def _to_config(self) -> CodeActAgentConfig:
        functions = {"approval_func": self._approval_func, "redact": self._redact}
        components = (self._code_executor, self._model_client, self._model_context)
        parts = dump_parts(components, self._tools, self._approve_tool, functions, agent="CodeActAgent")
        return CodeActAgentConfig(
            **parts,
            name=self.name,
            model_client_stream=self._model_client_stream,
            stream_output=self._stream_output,
            description=self.description,
            system_message=self._system_message,
            prompt_style=self._prompt_style,
            supported_languages=self._supported_languages,
            output_type=dump_type(self._output_type),
            setup=self._setup,
            max_steps=self._max_steps,
            max_tokens=self._max_tokens,
            max_seconds=self._max_seconds,
            max_output_chars=self._max_output_chars,
        )

    @classmethod
    def _from_config(cls, config: CodeActAgentConfig) -> Self:
        executor = load_part(CodeExecutor, config.code_executor, "code_executor")
        client = load_part(ChatCompletionClient, config.model_client, "model_client")
        context = load_part(ChatCompletionContext, config.model_context, "model_context")
        parts = {"code_executor", "model_client", "model_context", "output_type", "tools", "approve_tool"}
        plain = {name: getattr(config, name) for name in CodeActAgentConfig.model_fields if name not in parts}
        agent = cls(
            code_executor=executor,
            model_client=client,
            model_context=context,
            output_type=load_type(config.output_type),
            **loaded(config.tools, config.approve_tool),
            **plain,
        )
        agent._owns_parts = True
        return agent


def _check_limits(**limits: int | None) -> None:
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise ValueError(f"{name} must be at least 1, not {limit}.")
