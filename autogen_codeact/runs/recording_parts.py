"""Replaces the model clients, executors and workbenches of agents by ones that write to the log of a run, or answer from it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import StaticStreamWorkbench, TextResultContent, ToolResult, Workbench

from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware, forwarded
from autogen_codeact.agents.step_record import RunEnded
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.tools.adapters import run_cancellable
from autogen_codeact.runs.agents import agent_keys
from autogen_codeact.runs.events import HostCallFinished, HostCallStarted, ModelCallFinished, ModelCallStarted
from autogen_codeact.runs.questions import LoggedStep
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import CallRecord, error_info
from autogen_codeact.runs.steps import (
    AgentSteps,
    JournalLog,
    ModelAnswer,
    RunHistory,
    ToolAnswer,
    to_exception,
)
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import agents_of, executors_of, teams_of
from codeact_sandbox.types.result import ErrorInfo
from codeact_sandbox.types.run_context import RunContext

UNKNOWN = (
    "It is not known whether this call was made: the process ended while it was under way, and it was not repeated. "
    "Find out what it has done before you call it again."
)
MODEL_CLIENT, MODEL_CONTEXT = "_model_client", "_model_context"
EXECUTOR, WORKBENCHES = "_code_executor", "_workbench"
"""Attributes of AutoGen's agents, which have no public names for these parts."""
SELECTOR = "{team}.selector"
"""Name in the log of the model that chooses the speakers of a team. No agent has it: it is not an identifier."""


class RecordedClient(ModelMiddleware):
    """Records each call to a model, or answers it from the record."""

    def __init__(self, client: ChatCompletionClient, steps: AgentSteps, context: ChatCompletionContext | None) -> None:
        super().__init__(client)
        self._steps = steps
        self._context = context
        self._sent: list[str] = []

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call; an answer from the log is yielded whole only."""
        request = request_hash(call.messages, self._steps.log.redaction)
        if (recorded := self._steps.answer(request)) is not None:
            yield await self._replay(recorded)
            return
        note, self._steps.note = self._steps.note, None
        if note is not None:
            call = replace(call, messages=[*call.messages, await self._add_note(note)])
        with self._steps.questions.busy(object()):
            async with aclosing(self._live(call, request, note)) as items:
                async for item in items:
                    yield item

    async def _live(self, call: ModelCall, request: str, note: str | None) -> Items:
        began, number = await self._start(call, request, note)
        try:
            async with aclosing(call.items()) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        self._finish(number, began, item)
                    yield item
        except Exception as error:
            self._finish(number, began, error=error)
            raise

    async def _replay(self, recorded: ModelAnswer) -> CreateResult:
        """Return the recorded answer, or raise the recorded error."""
        if recorded.note is not None:
            await self._add_note(recorded.note)
        if recorded.result is None:
            raise to_exception(recorded.error or ErrorInfo(type="RuntimeError", message="the log has no answer"))
        return recorded.result

    async def _add_note(self, note: str) -> UserMessage:
        """Add a note to the agent's conversation, where it stays, and return it."""
        message = UserMessage(content=note, source=self._steps.agent)
        if self._context is not None:
            await self._context.add_message(message)
        return message

    async def _start(self, call: ModelCall, request: str, note: str | None) -> tuple[float, int]:
        """Write that a call begins. The steps before it are in the log then, whatever becomes of the process in the meantime."""
        sent = [message.model_dump_json() for message in call.messages]
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._sent, sent, strict=False)))
        self._sent, new_ones = sent, sent[shared:]
        self._steps.history.calls += 1
        number = self._steps.history.calls
        names = [tool["name"] if isinstance(tool, dict) else tool.name for tool in call.options.get("tools", ())]
        await self._steps.log.write(
            lambda _: ModelCallStarted(
                agent=self._steps.agent,
                number=number,
                request=request,
                shared=shared,
                messages=[json.loads(each) for each in new_ones],
                tools=names,
                stream=call.stream,
                note=note,
            )
        )
        return time.monotonic(), number

    def _finish(
        self, number: int, began: float, result: CreateResult | None = None, error: Exception | None = None
    ) -> None:
        seconds = time.monotonic() - began
        self._steps.log.put(
            lambda _: ModelCallFinished(
                agent=self._steps.agent,
                number=number,
                result=result.model_dump(mode="json") if result is not None else None,
                error=error_info(error) if error is not None else None,
                duration_s=seconds,
            )
        )


def request_hash(messages: Sequence[LLMMessage], redaction: Redaction) -> str:
    """Return the hash of the last message of a request, without what is not written into the log.

    The earlier ones are left out: an agent that is continued may shorten them at another time than before.
    """
    last = messages[-1].model_dump(mode="json") if messages else None
    return hashlib.sha256(json.dumps(redaction.value(last), sort_keys=True).encode()).hexdigest()


class RecordedWorkbench(StaticStreamWorkbench):
    """Forwards to another workbench. It is of this class because `AssistantAgent` streams only from it."""

    def __init__(self, workbench: Workbench, steps: AgentSteps) -> None:
        self._workbench = workbench
        self._steps = steps
        tools = getattr(workbench, "_tools", ())
        self._with_agents = frozenset(tool.name for tool in tools if agents_of(tool))
        for name in ("list_tools", "start", "stop", "reset", "save_state", "load_state", "dump_component"):
            setattr(self, name, getattr(workbench, name))

    async def call_tool(self, *given: Any, **named: Any) -> ToolResult:
        """Return the result of a call, after it is in the log."""
        result = None
        async for item in self.call_tool_stream(*given, **named):
            result = item
        assert isinstance(result, ToolResult)
        return result

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Yield what a call yields, last its result, after that is in the log."""
        # What runs other agents is made again when a run is continued: the agents answer from the log themselves.
        call = (name, arguments, cancellation_token, call_id)
        if name in self._with_agents:
            async for item in self._forward(*call):
                yield item
            return
        values = dict(arguments or {})
        if (recorded := self._steps.tool_answer(name, values)) is not None:
            yield _result_of(recorded)
            return
        self._steps.history.tool_calls += 1
        number, began = self._steps.history.tool_calls, time.monotonic()
        agent, log = self._steps.agent, self._steps.log
        await log.write(HostCallStarted(agent=agent, block=0, call=number, name=name, arguments=values), sync=True)
        record = CallRecord(name=name, arguments=values, outcome="cancelled")
        try:
            async for item in self._forward(*call):
                if isinstance(item, ToolResult):
                    record.outcome, record.result = "error" if item.is_error else "ok", item.model_dump(mode="json")
                else:
                    yield item
        except Exception as error:
            record.outcome, record.error = "error", error_info(error)
            raise
        finally:
            record.duration_s = time.monotonic() - began
            await log.write(HostCallFinished(agent=agent, block=0, call=number, record=record), sync=True)
        yield ToolResult.model_validate(record.result)

    async def _forward(self, *call: Any) -> AsyncGenerator[Any | ToolResult, None]:
        if not isinstance(self._workbench, StaticStreamWorkbench):
            yield await self._workbench.call_tool(*call)
            return
        async for item in self._workbench.call_tool_stream(*call):
            yield item


def _result_of(recorded: ToolAnswer) -> ToolResult:
    """Return the result that a call had, or that it is not known."""
    record = recorded.record
    if record is not None and record.result is not None:
        return ToolResult.model_validate(record.result)
    text = UNKNOWN
    if record is not None and record.error is not None:
        text = f"{record.error.type}: {record.error.message}"
    return ToolResult(name=recorded.name, result=[TextResultContent(content=text)], is_error=True)


class RecordedExecutor(CodeExecutor):
    """Forwards to another executor. Our own agents have no need of it: they record what they run themselves."""

    def __init__(self, executor: CodeExecutor, steps: AgentSteps) -> None:
        self._executor = executor
        self._steps = steps

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Return the result of code, after it is in the log."""
        if (known := self._steps.recorded(code_blocks, in_session=False)) is not None:
            result, error = known
            if error is not None:
                raise error
            return result

        async def execute(step: LoggedStep) -> RunEnded:
            if (tools := capabilities_of(self._executor).sandbox) is None:
                return RunEnded(await self._executor.execute_code_blocks(code_blocks, step.token))
            running = tools.run_blocks(code_blocks, RunContext(origin=step))
            return RunEnded(await run_cancellable(running, step.token))

        ended = await self._steps.run(code_blocks, cancellation_token, None, execute, lambda: None)
        return ended.result

    start = forwarded("_executor", "start")
    stop = forwarded("_executor", "stop")
    restart = forwarded("_executor", "restart")
    dump_component = forwarded("_executor", "dump_component")


@contextmanager
def recording_parts(agent_or_team: ChatAgent | BaseTeam, log: LogWriter, history: RunHistory) -> Iterator[None]:
    """Write what the agents receive from models and code into the log, or answer them from what they have received before."""
    journals = {id(executor): JournalLog(number) for number, executor in enumerate(executors_of(agent_or_team))}
    with ExitStack() as replaced:
        for key, agent in agent_keys(agent_or_team):
            journal = journals.get(id(getattr(agent, "code_executor", None))) or JournalLog(-1)
            _exchange(agent, AgentSteps(key, log, journal, history), replaced)
        for key, policy in _selectors(agent_or_team):
            steps = AgentSteps(key, log, JournalLog(-1), history)
            _replace(policy, MODEL_CLIENT, RecordedClient(getattr(policy, MODEL_CLIENT), steps, None), replaced)
        yield


def _exchange(agent: ChatAgent, steps: AgentSteps, replaced: ExitStack) -> None:
    if isinstance(agent, BaseCodeAgent):
        steps.journal.change(agent.journal)  # what the log knows already
        agent.use_steps(steps)
        replaced.callback(agent.use_steps, None)
    client, context = getattr(agent, MODEL_CLIENT, None), getattr(agent, MODEL_CONTEXT, None)
    if isinstance(client, ChatCompletionClient):
        recorded = RecordedClient(client, steps, context if isinstance(context, ChatCompletionContext) else None)
        _replace(agent, MODEL_CLIENT, recorded, replaced)
    if isinstance(agent, BaseCodeAgent):
        return
    if isinstance(executor := getattr(agent, EXECUTOR, None), CodeExecutor):
        _replace(agent, EXECUTOR, RecordedExecutor(executor, steps), replaced)
    if isinstance(workbenches := getattr(agent, WORKBENCHES, None), list):
        _replace(agent, WORKBENCHES, [RecordedWorkbench(each, steps) for each in workbenches], replaced)


def _selectors(agent_or_team: ChatAgent | BaseTeam) -> list[tuple[str, object]]:
    """Return what chooses the speakers of teams with a model, with names for the log."""
    found: list[tuple[str, object]] = []
    for team in teams_of(agent_or_team):
        policy = getattr(team, "speakers", team)
        if isinstance(getattr(policy, MODEL_CLIENT, None), ChatCompletionClient):
            name = SELECTOR.format(team=team.name)
            count = sum(key.partition("#")[0] == name for key, _ in found)
            found.append((f"{name}#{count + 1}" if count else name, policy))
    return found


def _replace(owner: object, name: str, part: object, replaced: ExitStack) -> None:
    replaced.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, part)
