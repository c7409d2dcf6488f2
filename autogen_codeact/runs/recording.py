"""Running an agent or a team, and writing what happens into a log."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage, ModelClientStreamingChunkEvent, TextMessage
from autogen_core import CancellationToken

from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.runs.agents import describe_agents, dump, process_info, remove_secrets, secrets_of
from autogen_codeact.runs.events import Boundary, ChunkLogged, MessageLogged, RunFinished, RunStarted
from autogen_codeact.runs.messages import Message, dump_message
from autogen_codeact.runs.questions import CallRecorder, Questions
from autogen_codeact.runs.recording_parts import recording_parts
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import error_info
from autogen_codeact.runs.steps import RunHistory
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import executors_of

Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None
STATE_DEADLINE_S = 30.0
Finish = Callable[..., Awaitable[None]]


async def recorded(
    agent_or_team: ChatAgent | BaseTeam,
    *,
    task: Task = None,
    path: Path | str,
    cancellation_token: CancellationToken | None = None,
) -> AsyncGenerator[Message | TaskResult, None]:
    """Run an agent or a team, yield what its `run_stream` yields, and write the log of the run as it happens.

    A disk that is full, read-only or does not answer never ends the run: the log ends, with a warning.

    Args:
        agent_or_team: What runs. Its configuration and state are in the log; functions are not, only their names. Keys of
            the model clients and environment variables with names such as `API_KEY` are removed.
        task: What to do. Default: continue the conversation.
        path: The run's own folder, which must not exist or be empty.
        cancellation_token: Ends the run.

    Yields:
        Messages and events, last the `TaskResult`.

    Raises:
        FileExistsError: The folder is not empty.
        RunWaiting: The run has ended with a question of `Later()`, until it is answered: `resume` goes on.
        BaseException: What the agent or team raised.
    """
    messages = task_messages(task)
    log = await begin_log(path, agent_or_team, messages)
    try:
        questions = Questions(log)
        with recording(agent_or_team, log, RunHistory(questions)):
            # Not earlier: AutoGen's teams take their parts when they first save or run.
            await log.write(await boundary("start", agent_or_team), sync=True)
            stream = agent_or_team.run_stream(
                task=task if messages is None else messages, cancellation_token=cancellation_token
            )
            async with aclosing(logged(stream, log, questions=questions)) as events:
                async for event in events:
                    yield event
    finally:
        await log.close()


def task_messages(task: object) -> list[BaseChatMessage] | None:
    """Return a task as messages, so that it is the same when the run is resumed; None for what `run_stream` has to refuse."""
    if isinstance(task, str) and task.strip():
        return [TextMessage(content=task, source="user")]
    if isinstance(task, BaseChatMessage):
        return [task]
    if isinstance(task, Sequence) and task and all(isinstance(each, BaseChatMessage) for each in task):
        return list(task)
    return None


async def begin_log(
    path: Path | str,
    agent_or_team: ChatAgent | BaseTeam,
    task: list[BaseChatMessage] | None,
    *,
    conversation: bool = False,
) -> LogWriter:
    """Begin the log of a run: with what runs, without its secrets."""
    dumped = dump(agent_or_team)
    log = await LogWriter.create(path, Redaction(secrets_of(agent_or_team, dumped)))
    secrets: list[str] = []
    if isinstance(dumped, dict):
        remove_secrets(dumped, "", secrets)
    started = RunStarted(
        run=uuid4().hex,
        kind="team" if isinstance(agent_or_team, BaseTeam) else "agent",
        name=agent_or_team.name,
        task=[dump_message(each)[0] for each in task] if task is not None else None,
        component=dumped if isinstance(dumped, dict) else None,
        component_error=dumped if isinstance(dumped, str) else None,
        secrets=secrets,
        agents=describe_agents(agent_or_team),
        process=process_info(),
        conversation=conversation,
    )
    log.put(started)
    return log


async def boundary(at: Any, agent_or_team: ChatAgent | BaseTeam) -> Boundary:
    """Return a boundary with the present state of an agent or a team, or with the reason why there is none."""
    try:
        async with asyncio.timeout(STATE_DEADLINE_S):
            return Boundary(at=at, state=dict(await agent_or_team.save_state()))
    except Exception as error:  # noqa: BLE001 - of foreign agents
        return Boundary(at=at, state_error=f"{type(error).__name__}: {error}")


@contextmanager
def recording(agent_or_team: ChatAgent | BaseTeam, log: LogWriter, history: RunHistory) -> Iterator[None]:
    """Attach the log to an agent or a team, to write calls of models, code, host calls and boundaries."""
    recorder = CallRecorder(log, history.questions)
    with ExitStack() as attached:
        attached.enter_context(recording_parts(agent_or_team, log, history))
        for executor in executors_of(agent_or_team):
            observed = capabilities_of(executor).sandbox
            if observed is not None:
                attached.callback(observed.attach(recorder=recorder))
        if hasattr(agent_or_team, "on_boundary"):
            attached.enter_context(_boundaries(agent_or_team, log, known=history.at_turn))
        yield


@contextmanager
def _boundaries(team: Any, log: LogWriter, *, known: bool) -> Iterator[None]:
    before: Callable[[Mapping[str, Any]], Awaitable[None]] | None = team.on_boundary

    async def on_boundary(state: Mapping[str, Any]) -> None:
        nonlocal known
        if not known:  # else it is the one where the run continues, and what came after it is in the log
            await log.write(Boundary(at="turn", state=dict(state)), sync=True)
        known = False
        if before is not None:
            await before(state)

    team.on_boundary = on_boundary
    try:
        yield
    finally:
        team.on_boundary = before


async def logged(
    stream: AsyncIterator[Message | TaskResult],
    log: LogWriter,
    known: Counter[str] | None = None,
    finish: Finish | None = None,
    questions: Questions | None = None,
) -> AsyncGenerator[Message | TaskResult, None]:
    """Write what a stream yields into the log, and finally how it ended; yield what was not in the log already.

    `known` says how many messages of each source the log has: a source says the same things in the same order again.
    """
    began, outcome, more = time.monotonic(), "completed", dict[str, Any]()
    result: TaskResult | None = None
    try:
        async for item in stream:
            if isinstance(item, TaskResult):
                result, more = item, {"stop_reason": item.stop_reason}
            else:
                event = _as_event(item)
                source = str(event.message.get("source"))
                if known and isinstance(event, MessageLogged) and known[source]:
                    known[source] -= 1
                    continue
                log.put(event)
                await log.keep_up()
            yield item
    except (asyncio.CancelledError, GeneratorExit):
        if result is None:  # else the caller has the result, and reads no further
            outcome = "cancelled"
        raise
    except BaseException as error:
        # Teams and tools of AutoGen raise errors of their own instead.
        if questions is not None and questions.has_ended:
            outcome, more = "waiting", {}
            raise questions.waiting from None
        outcome, more = "failed", {"error": error_info(error)}
        raise
    finally:
        try:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()  # first, because it ends code that runs, and that is logged
        finally:
            await (finish or partial(finish_run, log))(outcome, duration_s=time.monotonic() - began, **more)


async def finish_run(log: LogWriter, outcome: Any, **others: Any) -> None:
    """Write the end of a run."""
    await log.write(RunFinished(outcome=outcome, **others), sync=True)


def _as_event(item: Message) -> MessageLogged | ChunkLogged:
    try:
        message, content_type = dump_message(item)
    except Exception as error:  # noqa: BLE001 - of a message type of the caller's own
        message, content_type = {"type": type(item).__name__, "error": f"{type(error).__name__}: {error}"}, None
    if isinstance(item, ModelClientStreamingChunkEvent):
        return ChunkLogged(message=message)
    return MessageLogged(message=message, content_type=content_type)
