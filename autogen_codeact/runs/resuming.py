"""Continuing a run after its process has ended, at the last completed step, with its sessions rebuilt."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.journal import Journal, JournalEntry, record_of
from autogen_codeact.agents.replay import EMPTY
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.agents import (
    KeyOf,
    agent_keys,
    check_agents,
    load_agents,
    process_info,
    secrets_of,
    set_approval,
)
from autogen_codeact.runs.answers import RunWaiting
from autogen_codeact.runs.events import JournalChange, RunResumed
from autogen_codeact.runs.messages import Message, load_message
from autogen_codeact.runs.plan import Plan, RunIsFinishedError, RunNotResumableError, answered, make_plan
from autogen_codeact.runs.questions import Questions
from autogen_codeact.runs.recording import logged, recording
from autogen_codeact.runs.recording_parts import recording_parts
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.steps import AgentHistory, RunHistory
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import executors_of, wrap_models

NOT_WANTED = "the run was continued without rebuilding it"
MAY_DIFFER = (
    "Variables of the rebuilt session that come from chance, time or process ids may have other values than before, unless their "
    "code used a fixed seed. Look at them before you use them."
)
_CHANCE = re.compile(
    r"\b(?:random|default_rng|secrets|urandom|uuid\d?|time(?:_ns)?|monotonic|perf_counter|datetime|now|today|getpid|id|hash)\b"
)
STATES = frozenset({"CodeActAgentState", "CodeExecutorAgentState"})
OnRebuild = Callable[[int], None]
"""Called before a session is rebuilt, with the number of blocks that will run again."""
WrapModel = Callable[[ChatCompletionClient], ChatCompletionClient]
"""Returns a client that forwards to the one that it is given."""


async def restore_session(
    executor: SandboxCodeExecutor,
    agent: BaseCodeAgent,
    changes: Sequence[JournalChange],
    token: CancellationToken,
    *,
    on_rebuild: OnRebuild | None,
    rebuild: bool,
) -> tuple[str | None, bool]:
    """Have a session as it was after some changes, unless it is still alive.

    Returns:
        What the models have to know about the difference, and whether the session was emptied instead.
    """
    record = record_of(executor)
    record.check_sandbox(executor)
    journal = record.pending or record.journal
    for change in changes:
        journal = _changed(journal, change)
    record.pending = None
    record.load(journal)
    if record.pending is None or not journal.entries:
        return None, False
    if not rebuild:
        record.pending = None
        record.clear()
        return EMPTY.format(reason=NOT_WANTED), True
    if on_rebuild is not None:
        on_rebuild(len(journal.entries))
    made = await agent.rebuild_session(token)
    if made is None:
        return None, False
    lines = [] if made.same else [made.describe()]
    if any(_CHANCE.search(entry.code) for entry in journal.entries):
        lines.append(MAY_DIFFER)
    return "\n".join(lines) or None, False


def _changed(journal: Journal, change: JournalChange) -> Journal:
    entries = journal.entries[: change.keep] if journal.session == change.session else []
    return Journal(
        session=change.session,
        entries=[*entries, *map(JournalEntry.model_validate, change.added)],
        left_out=change.left_out,
        unrecorded=change.unrecorded,
    )


def without_journals(state: Any) -> Any:
    """Return the state of a team without the journals in it, which say less than what was restored."""
    if isinstance(state, dict):
        is_agent = state.get("type") in STATES
        return {key: None if is_agent and key == "journal" else without_journals(each) for key, each in state.items()}
    return [without_journals(each) for each in state] if isinstance(state, list) else state


async def resume(path: str | os.PathLike[str], **options: Any) -> TaskResult:
    """Continue a run, and return its result. The arguments are those of `resumed`.

    Raises:
        RunError: The run can't be continued.
    """
    async with aclosing(resumed(path, **options)) as items:
        async for item in items:
            if isinstance(item, TaskResult):
                return item
    raise AssertionError("a run ends with a TaskResult")


async def resumed(
    path: str | os.PathLike[str] | Plan,
    *,
    agent: ChatAgent | BaseTeam | None = None,
    tools: Sequence[Any] = (),
    api_key: str | KeyOf | None = None,
    wrap_model: WrapModel | None = None,
    approval_func: ApprovalFuncType | None = None,
    trust: bool = False,
    rebuild: bool = True,
    on_rebuild: OnRebuild | None = None,
    decisions: Mapping[str, bool | str] | None = None,
    cancellation_token: CancellationToken | None = None,
) -> AsyncGenerator[Message | TaskResult, None]:
    """Continue a run whose process has ended, and yield what is new; the log is continued, too.

    What was done is not done again: answers of models, results of code and of host tools come from the log up to where it ends.
    Code that was under way is not run again; its model is told which calls to host tools it had made. The session is rebuilt from
    its journal, without side effects. A call of a model that had no answer is made again.

    Args:
        path: The run's folder, or what `make_plan` has read from it.
        agent: The agent or team, made as for the first time. Default: made from the configuration in the log.
        tools: The functions that the agents had as host tools, if the agents are made from the configuration.
        api_key: The key of the models, if the agents are made from the configuration, which has none; or a function that returns
            it, or None, for the configuration of a model client. Default: AutoGen's clients read it from the environment.
        wrap_model: Returns what is asked instead of a model client, and forwards to it, if the agents are made from the
            configuration. Default: the client itself.
        approval_func: Approves the code of the agents, if they are made from the configuration, whatever the log says. Default:
            none; a run that had one can then not be continued in this way.
        trust: Whether the configuration in the log may have anything, such as folders of this machine or classes that run code
            in this process. Default: only what an untrusted configuration may have, unless this user has made the run on this
            machine, and its log is unchanged.
        rebuild: Whether sessions are rebuilt. If not, they are empty, and the models are told. Default: yes.
        on_rebuild: Called before a session is rebuilt, with the number of blocks.
        decisions: Answers to the questions of `Later()` by their names, such as `{"q1": True}`: True to approve, False to deny,
            or the reason for denying. Default: only answers that were given already.
        cancellation_token: Ends the run.

    Yields:
        New messages and events, last the `TaskResult` of the whole run.

    Raises:
        RunIsFinishedError: The run has ended with a result.
        RunNotResumableError: The log is damaged, or something that the run needs is missing; the message names it.
        RunDivergedError: The agents do something else than the log says.
        RunWaiting: None of its questions has an answer yet, or it has ended with another one.
        AlreadyAnsweredError: A question of `decisions` has an answer.
        LogLocked: The run is still going on, or is being continued by another process.
        BaseException: What the agent or team raises.
    """
    plan = path if isinstance(path, Plan) else await asyncio.to_thread(make_plan, path)
    if decisions:
        plan = await asyncio.to_thread(answered, plan, decisions)
    if plan.boundary.at == "message" and plan.turn is None:
        raise RunIsFinishedError(
            f"{plan.run.folder.path} is a conversation that waits for the next message: `codeact chat --resume` goes on with it."
        )
    if plan.is_waiting:
        raise RunWaiting(plan.run.folder.path, plan.open_questions)
    later = ("approval_func",) if approval_func is not None else ()
    target = agent if agent is not None else load_agents(plan, tools, api_key, trust=trust, set_later=later)
    token = cancellation_token or CancellationToken()
    try:
        if agent is None and wrap_model is not None:
            wrap_models([target], wrap_model)
        if agent is None and approval_func is not None:
            set_approval(target, approval_func)
        log, history = await extend_log(plan, target, token, on_rebuild=on_rebuild, rebuild=rebuild)
        try:
            with recording(target, log, history):
                stream = continued_stream(plan, target, token)
                async with aclosing(logged(stream, log, plan.messages, questions=history.questions)) as items:
                    async for item in items:
                        yield item
        finally:
            await log.close()
    finally:
        if agent is None:
            await _close(target)


async def extend_log(
    plan: Plan,
    target: ChatAgent | BaseTeam,
    token: CancellationToken,
    *,
    on_rebuild: OnRebuild | None,
    rebuild: bool,
) -> tuple[LogWriter, RunHistory]:
    """Continue the log of a run with agents that have the state of its boundary, and sessions as at its end."""
    check_agents(plan, target)
    log = await LogWriter.extend(
        plan.run.folder.path,
        Redaction(secrets_of(target)),
        last=plan.last,
        size=plan.size,
        found=plan.found,
        chain=plan.chain,
    )
    try:
        questions = Questions(log, plan.questions, can_wait=not plan.started.conversation)
        history = RunHistory(questions, plan.histories, at_turn=plan.boundary.at == "turn")
        for name, _ in agent_keys(target):
            history.agents.setdefault(name, AgentHistory())
        # AutoGen's teams take their parts when they first load a state: the model of a selector is exchanged then.
        with recording_parts(target, log, history):
            await _load_state(plan, target)
        changes = []
        for number, executor in enumerate(executors_of(target)):
            users = {
                key: agent
                for key, agent in agent_keys(target)
                if isinstance(agent, BaseCodeAgent) and agent.code_executor is executor
            }
            if (session := capabilities_of(executor).session) is None or not users:
                continue
            note, emptied = await restore_session(
                session,
                next(iter(users.values())),
                [change for change in plan.changes if change.executor == number],
                token,
                on_rebuild=on_rebuild,
                rebuild=rebuild,
            )
            if emptied:
                journal = record_of(session).journal
                changes.append(JournalChange(executor=number, session=journal.session, keep=0))
                history.emptied |= users.keys()
            if note is not None:
                history.notes |= dict.fromkeys(users, note)
        await log.write(RunResumed(boundary=plan.boundary.seq, process=process_info(), journals=changes), sync=True)
    except BaseException:
        await log.close()
        raise
    return log, history


async def _load_state(plan: Plan, target: ChatAgent | BaseTeam) -> None:
    try:
        await target.load_state(plan.boundary.state or {})
    except Exception as error:
        raise RunNotResumableError(
            f"{plan.run.folder.path} can't be continued: the {plan.started.kind} can't load the state of event "
            f"{plan.boundary.seq}: {type(error).__name__}: {error}"
        ) from error


def continued_stream(plan: Plan, target: Any, token: CancellationToken) -> AsyncGenerator[Message | TaskResult, None]:
    if plan.boundary.at == "turn":
        # The sessions have been restored; a later state of theirs than that of the boundary.
        state = without_journals(plan.boundary.state)
        # What was interrupted took time, too: the budget of the run goes on from there.
        if (used := (state.get("run") or {}).get("used")) is not None:
            used["seconds"] += plan.seconds_since
        stream: AsyncGenerator[Message | TaskResult, None] = target.continue_stream(state, cancellation_token=token)
        return stream
    task = plan.turn if plan.turn is not None else plan.started.task
    try:
        messages = [load_message(each) for each in task] if task is not None else None
    except Exception as error:
        raise RunNotResumableError(
            f"{plan.run.folder.path} can't be continued: its task is damaged ({type(error).__name__}: {error})."
        ) from error
    if messages and not all(isinstance(each, BaseChatMessage) for each in messages):
        raise RunNotResumableError(
            f"{plan.run.folder.path} can't be continued: some messages of its task are not messages."
        )
    again: AsyncGenerator[Message | TaskResult, None] = target.run_stream(task=messages, cancellation_token=token)
    return again


async def _close(target: ChatAgent | BaseTeam) -> None:
    close = getattr(target, "close", None)
    if close is not None:
        await close()
