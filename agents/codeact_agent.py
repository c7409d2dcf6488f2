"""`CodeActAgent`: solves a task in steps of code, in one session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, cast

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import BaseChatMessage, StructuredMessage, TextMessage
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from pydantic import BaseModel

from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.answer import (
    Answer,
    HandoffTool,
    Transfer,
    as_handoffs,
    closing_answer,
    context_for,
    read_answer,
)
from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.arguments import check_lists, check_output_type
from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.budget import Budget, Limit, Meter
from autogen_codeact.agents.code_runner import RunOptions
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
from autogen_codeact.agents.config import CodeActAgentConfig, CodeActAgentState, dump_type
from autogen_codeact.agents.conversation import DEFAULT_BUDGET, Conversation, Emit
from autogen_codeact.agents.model import model_name
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.types.tool import HostToolProtocol

CLOSING_DEADLINE_S = 120.0
MAX_STEPS = 20


class CodeActAgent(BaseCodeAgent, Component[CodeActAgentConfig]):
    """Writes and runs code, step by step in one live session, until the task is done.

    In each step the model writes a message, its code runs, and the result goes back to the model. A message without code
    is the answer, and so is the value that code passes to `final_answer`, a function that the agent adds to the session. Code
    that can't run here (another language, no label, cut off) is named to the model; if its next message runs no code either,
    that is the answer, with the languages and reasons as `not_run` in its metadata. A message cut off inside code is not. The
    session continues after the answer: variables and functions are still there in the next run. A turn (one call of `run` or
    `on_messages`) that raises or is cancelled leaves the conversation as it was before; what its code did in the session stays
    done.

    Args:
        name: A Python identifier.
        code_executor: Runs the code, in `mode="session"`; start it before the first turn and stop it after the last. An
            executor without host tools, such as AutoGen's own, has no `final_answer`.
        model_client: Writes the code.
        model_context: Keeps the conversation. Default: an unbounded one.
        model_client_stream: Also yield the model's answer in chunks. Default: no.
        stream_output: Also yield what running code writes, as `CodeExecutorAgent` does. Default: no.
        description: Describes the agent to a team.
        system_message: What the agent is for; how to act in code is added to it. None for no system message at all.
        prompt_style: How the model writes code: in `markdown` fences, or in `execute` tags, and then code in fences does not run.
        supported_languages: Languages that are run. Default: Python, sh and bash, as far as the executor runs them.
        output_content_type: A pydantic model that the answer must fit; the last message is then a `StructuredMessage` of it.
            What does not fit is sent back to the model. Default: the answer is text.
        handoffs: Agents to which code can hand the task over: names, or AutoGen's `Handoff` objects. Each is a function of the
            session, such as `transfer_to_reviewer(message)`, that takes effect when its block ends without an error; then the
            answer is a `HandoffMessage`. The first one in a block counts. Needs an executor with host tools. Default: none.
        tools: Functions of this process that code can call, in addition to those of the executor: typed functions, AutoGen
            tools, workbenches. All are described to the model. Needs an executor with host tools. Default: none.
        approve_tool: Called before each call to a tool: a function, or a policy such as `AskPerson()`. Default: that of the
            executor, if any.
        setup: Python that runs in the session before the first block, such as `import numpy as np`, and again in each new
            session. The system message shows it. Default: nothing.
        budget: Limits of a turn. At a limit, one more request gets an answer without code, with the limit's name as `stopped`
            in its metadata. Default: 20 steps.
        context_budget: Characters of a request to the model, of which an image counts 4,000; None for no limit. Beyond it, older
            outputs are shortened, older images replaced by their names, and finally the earliest messages left out. Default
            400,000, about 100,000 tokens.
        approval_func: Decides whether code may run, sync or async. It can't be dumped. Default: all code may.
        describe_environment: Whether the system message describes the sandbox: versions, network, limits, files. It is asked once
            for each session, when the first turn begins, which starts the sandbox. Default: yes.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: The cost is limited and prices are not known, the executor has host tools but no session, or a handoff has no
            usable name of its own.
    """

    DEFAULT_DESCRIPTION: ClassVar[str] = "Solves tasks by writing code and running it, step by step."
    DEFAULT_SYSTEM_MESSAGE: ClassVar[str] = prompt.TASK
    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]] = ["python", "sh", "bash"]

    component_config_schema = CodeActAgentConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.agents.CodeActAgent"
    _state_class = CodeActAgentState
    _state_names = frozenset({"CodeActAgentState"})

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
        output_content_type: type[BaseModel] | None = None,
        handoffs: Sequence[Handoff | str] | None = None,
        tools: Sequence[ToolLike] = (),
        approve_tool: ApproveTool | None = None,
        setup: str | None = None,
        budget: Budget | None = None,
        approval_func: ApprovalFuncType | None = None,
        describe_environment: bool = True,
        context_budget: int | None = DEFAULT_BUDGET,
    ) -> None:
        if model_client is None:
            raise TypeError("A CodeActAgent needs a model_client: the model writes the code.")
        check_output_type(output_content_type)
        check_lists(handoffs=handoffs)
        if not isinstance(budget, Budget | None):
            raise TypeError(f"budget must be a Budget, such as Budget(max_steps=5), not {budget!r:.80}.")
        if prompt_style not in prompt.HOW:
            raise ValueError(f"prompt_style must be 'markdown' or 'execute', not {prompt_style!r}.")
        can = capabilities_of(code_executor)
        if can.sandbox is not None and can.session is None:
            raise ValueError("A CodeActAgent needs a session: create its executor with mode='session'.")
        super().__init__(
            name,
            code_executor,
            description=description,
            model_client=model_client,
            model_context=model_context,
            model_client_stream=model_client_stream,
            system_message=system_message,
            supported_languages=supported_languages or None,
            context_budget=context_budget,
            options=RunOptions(
                approval_func,
                stream_output,
                tools,
                approve_tool,
                setup,
                answers=True,
                output_type=output_content_type,
                describe_environment=describe_environment,
                handoffs=as_handoffs(handoffs),
            ),
        )
        self._prompt_style: prompt.PromptStyle = prompt_style
        self._budget = budget
        limits = (budget or Budget()).with_prices(model_name(model_client))
        self._limits = limits.model_copy(update={"max_steps": limits.max_steps or MAX_STEPS})

    def _default_languages(self) -> Sequence[str]:
        # AutoGen's Jupyter executors run each block as Python, whatever its label says, and list no languages.
        known = getattr(self._code_executor, "SUPPORTED_LANGUAGES", ("python",))
        if capabilities_of(self._code_executor).sandbox is not None:
            return self.DEFAULT_SUPPORTED_LANGUAGES
        return [language for language in self.DEFAULT_SUPPORTED_LANGUAGES if language in known]

    def _whole_system_message(self, task: str, tools: Sequence[HostToolProtocol], environment: str | None) -> str:
        return prompt.system_message(
            task,
            style=self._prompt_style,
            languages=self._languages,
            tools=tools,
            setup=self._options.setup,
            output_type=self._options.output_type,
            by_call=self._runner.takes_answers,
            environment=environment,
            handoffs=[HandoffTool(handoff) for handoff in self._options.handoffs],
        )

    # One turn

    async def _solve(self, conversation: Conversation, token: CancellationToken, emit: Emit) -> BaseChatMessage:
        """Take steps until there is an answer or a limit is reached."""
        meter = Meter(self._limits)
        self._sandbox_broke = False
        self._notes, self._repeated = NotRunNotes(), RepeatedCode()
        self._was_too_long = False
        while (reached := meter.reached()) is None and not self._repeated.stuck:
            try:
                # A turn runs in a task of its own, so that this cancels no consumer.
                async with asyncio.timeout(meter.seconds_left) as deadline:
                    answer = await self._step(conversation, meter, token, emit)
            except TimeoutError:
                if not deadline.expired():
                    raise
                reached = Limit("max_seconds", "")
                break
            if answer is not None:
                return answer
        limit = "repeated_code" if reached is None else reached.name
        most = getattr(self._limits, limit, None)
        await conversation.notify(prompt.CLOSING[limit].format(limit=most) + prompt.CLOSE)
        generated = None
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_DEADLINE_S):
                generated = await conversation.generate(token, emit)
        return self._closing_answer(limit, most, meter.used.steps, generated)

    async def _step(
        self, conversation: Conversation, meter: Meter, token: CancellationToken, emit: Emit
    ) -> BaseChatMessage | None:
        """Have the model write a message, and run its code. Return the answer, or None if there is none yet."""
        meter.add(steps=1)
        attempt, step = meter.used.steps - 1, str(meter.used.steps)
        generated = await conversation.ask(token, emit)
        meter.add(generated.usage, steps=0)
        text, output_type = str(generated.content), self._options.output_type
        code = find_code([text], self._languages, tags_only=self._prompt_style == "execute")
        await conversation.add_answer(generated, code.end)
        if code.blocks and code.blocks == self._repeated.reported:
            self._repeated.stuck = True
            nothing = FoundCode([], cut_off=False)
            await emit(self._generation_event(attempt, generated, nothing, SAME_AGAIN, step=step))
            return None
        if code.blocks:
            await emit(self._generation_event(attempt, generated, code, step=step))
            return await self._run_step(conversation, generated, code, attempt=attempt, token=token, emit=emit)
        problem = self._problem(generated, code)
        answer = read_answer(text, output_type) if problem is None else problem
        if isinstance(answer, Answer):
            metadata = {"steps": step} | as_metadata(code.not_run)
            metadata |= {"cut_off": "true"} if generated.finish_reason == "length" else {}
            return self._message(answer, generated.usage, metadata)
        await conversation.notify(answer)
        await emit(self._generation_event(attempt, generated, code, answer, step=step))
        return None

    def _problem(self, generated: CreateResult, code: FoundCode) -> str | None:
        """Return why a message that runs nothing is not the answer, as a message to the model; None if it is."""
        if code.cut_off:
            return CUT_OFF
        if generated.finish_reason == "length" and not self._was_too_long:
            self._was_too_long = True
            return prompt.CUT_OFF_TEXT
        if to_name := self._notes.unreported(code.not_run, ran=False):
            return f"{describe_not_run(to_name, self._languages)}\n{ANSWER_NOT_RUN}"
        return None

    async def _run_step(
        self,
        conversation: Conversation,
        generated: CreateResult,
        code: FoundCode,
        *,
        attempt: int,
        token: CancellationToken,
        emit: Emit,
    ) -> BaseChatMessage | None:
        """Run code, and send the result to the model. Return the answer, if the code gave one, else None."""
        ended = await self._runner.run(code.blocks, token, emit)
        if ended.error is not None and self._sandbox_broke:  # twice in a row: another attempt would not help
            raise ended.error
        self._sandbox_broke = ended.error is not None
        result, answer, step = ended.result, ended.answer, str(attempt + 1)
        whole = await self._runner.keep("output", result.output) if len(result.output) > self.MAX_OUTPUT_CHARS else None
        # Untagged code beside tagged code is there to be read, as the prompt says.
        not_run = self._notes.unreported([block for block in code.not_run if block.reason != "untagged"], ran=True)
        remarks = self._repeated.remarks(code.blocks, result)
        shown = await self._show_result(
            conversation, result, not_run, attempt, emit, whole=whole, further=remarks, step=step
        )
        if isinstance(answer, Transfer):
            output = shown if self._runner.has_other_effects(result) else None
            return answer.as_message(self.name, context_for(generated, output, self.name), {"steps": step})
        if answer is None:
            return None
        return self._message(answer, None, {"steps": step, "answered_by": "final_answer"})

    def _closing_answer(
        self, limit: str, most: float | None, steps: int, generated: CreateResult | None
    ) -> BaseChatMessage:
        text = str(generated.content) if generated is not None else ""
        why = prompt.WHY[limit].format(limit=most)
        answer, misfit = closing_answer(text, self._options.output_type, why)
        metadata = {"steps": str(steps), "stopped": limit} | ({"misfit": misfit} if misfit is not None else {})
        metadata |= as_metadata(code_in_answer(text, self._languages))
        metadata |= {"cut_off": "true"} if is_cut_off(text) else {}
        return self._message(answer, generated.usage if generated is not None else None, metadata)

    def _message(self, answer: Answer, usage: RequestUsage | None, metadata: dict[str, str]) -> BaseChatMessage:
        """Make a message of the answer: a `StructuredMessage` with a value, else a `TextMessage`."""
        more: dict[str, Any] = {"source": self.name, "models_usage": usage, "metadata": metadata}
        if answer.value is None:
            return TextMessage(content=answer.text, **more)
        kind = cast(type[BaseChatMessage], StructuredMessage[type(answer.value)])  # type: ignore[misc]
        return kind(content=answer.value, **more)

    # Configuration

    def _to_config(self) -> CodeActAgentConfig:
        return CodeActAgentConfig(
            **self._config_fields(),
            prompt_style=self._prompt_style,
            handoffs=list(self._options.handoffs) or None,
            setup=self._options.setup,
            budget=self._budget,
            structured_message_factory=dump_type(self._options),
        )
