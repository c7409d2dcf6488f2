"""A conversation with an agent or a team: its turns are in one log, can be undone, and can continue in another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, aclosing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken

from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.runs.agents import agent_keys, dump, secrets_of
from autogen_codeact.runs.events import ConversationChanged, TurnFinished, TurnStarted
from autogen_codeact.runs.messages import Message, dump_message, load_message
from autogen_codeact.runs.plan import MAX_UNDO_POINTS, Plan, UndoPoint
from autogen_codeact.runs.recording import boundary, finish_run, logged, recording, run_started, task_messages
from autogen_codeact.runs.redaction import Redaction, RedactText
from autogen_codeact.runs.resuming import OnRebuild, continued_stream, extend_log, sessions_of
from autogen_codeact.runs.steps import AgentHistory, RunHistory
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import executors_of


class NothingToUndo(Exception):
    """The conversation has no turn that can be undone."""


@dataclass(frozen=True)
class Undone:
    """What was undone."""

    task: list[BaseChatMessage] | None
    blocks: int = 0
    notes: tuple[str, ...] = ()


class RecordedConversation:
    """A conversation with an agent or a team; the log begins with the first message.

    Use one turn after the other, and `close` at the end. A turn that fails or is cancelled leaves the conversation as it was
    before; what its code did in the session stays, until the turn is undone.

    Args:
        agent_or_team: Who answers.
        path: Folder of the run, which must not exist or be empty; None for no log.
        redact: As for `recorded`.
    """

    def __init__(
        self, agent_or_team: ChatAgent | BaseTeam, path: Path | str | None, *, redact: RedactText | None = None
    ) -> None:
        self.target = agent_or_team
        """Who answers."""
        self.path = Path(path) if path is not None else None
        """Folder of the run, or None."""
        self.is_open = False
        """Whether a turn was interrupted, that `go_on` ends."""
        self._redact = redact
        self._log: LogWriter | None = None
        self._plan: Plan | None = None
        self._attached = ExitStack()
        self._history = RunHistory({name: AgentHistory() for name, _ in agent_keys(agent_or_team)})
        self._undo_points: list[UndoPoint] = []
        self._turn: list[dict[str, Any]] | None = None
        self._began = time.monotonic()

    @classmethod
    async def resume(
        cls,
        plan: Plan,
        agent_or_team: ChatAgent | BaseTeam,
        *,
        rebuild: bool = True,
        on_rebuild: OnRebuild | None = None,
        redact: RedactText | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> Self:
        """Go on with a conversation whose process has ended, in the same log.

        Args:
            plan: What its log says.
            agent_or_team: Who answers, made as for the first time.
            rebuild: Whether sessions are rebuilt. If not, they are empty, and the models are told.
            on_rebuild: Called before a session is rebuilt.
            redact: The function that the run was recorded with, if any.
            cancellation_token: Ends the rebuilding.

        Raises:
            RunNotResumableError: It can't be continued.
            LogLocked: It is still going on, or is being continued by another process.
        """
        conversation = cls(agent_or_team, plan.run.folder.path, redact=redact)
        token = cancellation_token or CancellationToken()
        conversation._log, conversation._history = await extend_log(
            plan, agent_or_team, token, on_rebuild=on_rebuild, rebuild=rebuild, redact=redact
        )
        conversation._plan = plan
        # Their sandboxes are gone: going back always rebuilds the session.
        conversation._undo_points = list(plan.undo_points)
        conversation._turn, conversation.is_open = plan.turn, plan.turn is not None
        conversation._attach()
        return conversation

    # Turns

    @property
    def agents(self) -> list[str]:
        """Names of the agents."""
        return [name for name, _ in agent_keys(self.target)]

    @property
    def has_begun(self) -> bool:
        """Whether there was a message."""
        return bool(self._undo_points)

    @property
    def last_task(self) -> list[BaseChatMessage] | None:
        """The message of the last turn, or None if there is none that can be undone."""
        task = self._undo_points[-1].task if len(self._undo_points) > 1 else None
        return [_chat_message(each) for each in task] if task is not None else None

    async def turn(
        self, message: str | BaseChatMessage, cancellation_token: CancellationToken | None = None
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Run a turn with a message.

        Args:
            message: What the user says.
            cancellation_token: Ends the turn.

        Yields:
            Messages and events, the user's first, last the `TaskResult`.

        Raises:
            ValueError: The message is empty.
            BaseException: What the agent or team raised.
        """
        task = task_messages(message)
        if task is None:
            raise ValueError("The message is empty.")
        await self._begin(task)
        self._turn = [dump_message(each)[0] for each in task]
        if self._log is not None:
            self._log.put(TurnStarted(task=self._turn))
        stream = self.target.run_stream(task=task, cancellation_token=cancellation_token)
        async with aclosing(self._ended(stream)) as items:
            async for item in items:
                yield item

    async def go_on(
        self, cancellation_token: CancellationToken | None = None
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """End the turn that was interrupted, if `is_open`: what was done comes from the log, and only what is new is yielded."""
        if not self.is_open or self._plan is None:
            return
        self.is_open = False
        stream = continued_stream(self._plan, self.target, cancellation_token or CancellationToken())
        async with aclosing(self._ended(stream)) as items:
            async for item in items:
                yield item

    async def _begin(self, task: list[BaseChatMessage]) -> None:
        if self._undo_points:
            return
        if self.path is not None:
            dumped = dump(self.target)
            self._log = await LogWriter.create(self.path, Redaction(self._redact, secrets_of(self.target, dumped)))
            self._began = time.monotonic()
            self._log.put(run_started(self.target, task, dumped, redacted=self._redact is not None, conversation=True))
            self._attach()
        await self._at_boundary()

    async def _ended(
        self, stream: AsyncGenerator[Message | TaskResult, None]
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Yield what a turn yields, write it, and note the state in which the turn has left the conversation."""
        known = self._plan.messages if self._plan is not None else None
        self._plan = None
        if self._log is not None:
            stream = logged(stream, self._log, known, self._finish_turn)
        try:
            async with aclosing(stream) as items:
                async for item in items:
                    yield item
        finally:
            if self._log is None:
                await self._at_boundary()

    async def _finish_turn(self, outcome: Any, **others: Any) -> None:
        assert self._log is not None
        self._log.put(TurnFinished(outcome=outcome, **others))
        for history in self._history.agents.values():
            history.items.clear()  # what a turn that failed has left of the log
        await self._at_boundary()

    async def _at_boundary(self) -> None:
        """Note the present state, after a turn or a change."""
        at = await boundary("message", self.target)
        state = deepcopy(at.state) if at.state is not None else {}
        point, self._turn = UndoPoint(state, self._turn, starts=self._sandboxes()), None
        self._undo_points = [*self._undo_points, point][-MAX_UNDO_POINTS:]
        if self._log is not None:
            await self._log.write(at, sync=True)

    # Changes

    async def undo(
        self, on_rebuild: OnRebuild | None = None, cancellation_token: CancellationToken | None = None
    ) -> Undone:
        """Put the conversation and its sessions back to before the last turn.

        A session in which the turn has run code is rebuilt in a fresh sandbox: the code of the earlier turns runs again, with
        the recorded answers of host tools. Files stay as they are.

        Args:
            on_rebuild: Called before a session is rebuilt.
            cancellation_token: Ends the rebuilding.

        Raises:
            NothingToUndo: There is no turn, or none that can be undone.
        """
        if len(self._undo_points) < 2 or not self._undo_points[-2].state:
            raise NothingToUndo
        before, last = self._undo_points[-2], self._undo_points[-1]
        changed = before.starts != self._sandboxes() or _journals(before.state) != _journals(last.state)
        self._attached.close()
        try:
            blocks, notes = await self._load(
                before.state, on_rebuild, cancellation_token or CancellationToken(), restart=changed
            )
        finally:
            self._attach()
        task = last.task
        del self._undo_points[-2:]
        self._turn = before.task
        if self._log is not None:
            self._log.put(ConversationChanged(change="undone"))
        await self._at_boundary()
        return Undone([_chat_message(each) for each in task] if task is not None else None, blocks, notes)

    async def _load(
        self, state: Mapping[str, Any], on_rebuild: OnRebuild | None, token: CancellationToken, *, restart: bool
    ) -> tuple[int, tuple[str, ...]]:
        for session in sessions_of(self.target) if restart else ():
            session.forget()
        await self.target.load_state(deepcopy(state))
        count, notes = 0, []
        for rebuilt in sessions_of(self.target) if restart else ():
            if not (blocks := rebuilt.load([])):
                await rebuilt.renew()
                continue
            count += blocks
            if on_rebuild is not None:
                on_rebuild(blocks)
            await rebuilt.rebuild(token)
            if rebuilt.note is not None:
                notes.append(rebuilt.note)
                self._history.notes |= dict.fromkeys(rebuilt.agents, rebuilt.note)
        return count, tuple(notes)

    async def reset(self, cancellation_token: CancellationToken | None = None) -> None:
        """Forget the conversation, and begin with empty sessions; `undo` takes it back."""
        if not self._undo_points:
            return
        if isinstance(self.target, BaseTeam):
            await self.target.reset()
        else:
            await self.target.on_reset(cancellation_token or CancellationToken())
        if self._log is not None:
            self._log.put(ConversationChanged(change="reset"))
        await self._at_boundary()

    def _sandboxes(self) -> list[int]:
        sessions = (capabilities_of(executor).session for executor in executors_of(self.target))
        return [session.starts for session in sessions if session is not None]

    # The log

    def detached(self) -> ExitStack:
        """Return a context in which the agents have their own parts instead of recorded ones, so that they can be exchanged."""
        self._attached.close()
        again = ExitStack()
        again.callback(self._attach)
        return again

    def _attach(self) -> None:
        if self._log is not None:
            self._attached.enter_context(recording(self.target, self._log, self._history))
            self._history.notes, self._history.at_turn = {}, False

    async def close(self, *, cancelled: bool = False) -> None:
        """End the log. What the agents hold is left alone.

        Args:
            cancelled: Whether the user has left in the middle. Default: no.
        """
        self._attached.close()
        if self._log is not None:
            outcome = "cancelled" if cancelled else "completed"
            await asyncio.shield(asyncio.ensure_future(self._finish(self._log, outcome)))

    async def _finish(self, log: LogWriter, outcome: str) -> None:
        await finish_run(log, outcome, duration_s=time.monotonic() - self._began)
        await log.close()


def _chat_message(dumped: Mapping[str, Any]) -> BaseChatMessage:
    message = load_message(dict(dumped))
    assert isinstance(message, BaseChatMessage)
    return message


def _journals(state: Any) -> list[Any]:
    """Return the journals in a state."""
    if isinstance(state, dict):
        return [one for name, part in state.items() for one in ([part] if name == "journal" else _journals(part))]
    return [one for part in state for one in _journals(part)] if isinstance(state, list) else []
