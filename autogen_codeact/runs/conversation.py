"""A conversation with an agent or a team: its turns are in one log, and continue in another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, Self

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken

from autogen_codeact.runs.agents import agent_keys
from autogen_codeact.runs.events import ConversationReset, TurnFinished, TurnStarted
from autogen_codeact.runs.messages import Message, dump_message
from autogen_codeact.runs.plan import Plan
from autogen_codeact.runs.questions import Questions
from autogen_codeact.runs.recording import begin_log, boundary, finish_run, logged, recording, task_messages
from autogen_codeact.runs.resuming import OnRebuild, continued_stream, extend_log
from autogen_codeact.runs.steps import AgentHistory, RunHistory
from autogen_codeact.runs.writer import LogWriter


class RecordedConversation:
    """A conversation with an agent or a team; the log begins with the first message.

    Use one turn after the other, and `close` at the end. A turn that fails or is cancelled leaves the conversation as it was
    before; what its code did in the session stays.

    Args:
        agent_or_team: Who answers.
        path: Folder of the run, which must not exist or be empty; None for no log.
    """

    def __init__(self, agent_or_team: ChatAgent | BaseTeam, path: Path | str | None) -> None:
        self.target = agent_or_team
        """Who answers."""
        self.path = Path(path) if path is not None else None
        """Folder of the run, or None."""
        self.is_open = False
        """Whether a turn was interrupted, that `go_on` ends."""
        self._log: LogWriter | None = None
        self._plan: Plan | None = None
        self._attached = ExitStack()
        self._history: RunHistory | None = None
        self.has_begun = False
        """Whether there was a message."""
        self._began = time.monotonic()

    @classmethod
    async def resume(
        cls,
        plan: Plan,
        agent_or_team: ChatAgent | BaseTeam,
        *,
        rebuild: bool = True,
        on_rebuild: OnRebuild | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> Self:
        """Go on with a conversation whose process has ended, in the same log.

        Args:
            plan: What its log says.
            agent_or_team: Who answers, made as for the first time.
            rebuild: Whether sessions are rebuilt. If not, they are empty, and the models are told.
            on_rebuild: Called before a session is rebuilt.
            cancellation_token: Ends the rebuilding.

        Raises:
            RunNotResumableError: It can't be continued.
            LogLocked: It is still going on, or is being continued by another process.
        """
        conversation = cls(agent_or_team, plan.run.folder.path)
        token = cancellation_token or CancellationToken()
        log, history = await extend_log(plan, agent_or_team, token, on_rebuild=on_rebuild, rebuild=rebuild)
        conversation._plan = plan
        conversation.has_begun, conversation.is_open = True, plan.turn is not None
        conversation._attach(log, history)
        return conversation

    # Turns

    @property
    def agents(self) -> list[str]:
        return [name for name, _ in agent_keys(self.target)]

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
        if self._log is not None:
            self._log.put(TurnStarted(task=[dump_message(each)[0] for each in task]))
        stream = self.target.run_stream(task=task, cancellation_token=cancellation_token)
        async with aclosing(self._logged(stream)) as items:
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
        async with aclosing(self._logged(stream)) as items:
            async for item in items:
                yield item

    async def _begin(self, task: list[BaseChatMessage]) -> None:
        if self.has_begun:
            return
        if self.path is not None:
            log = await begin_log(self.path, self.target, task, conversation=True)
            self._began = time.monotonic()
            agents = {name: AgentHistory() for name, _ in agent_keys(self.target)}
            self._attach(log, RunHistory(Questions(log, can_wait=False), agents))
            await self._write_state(log)
        self.has_begun = True

    def _logged(self, stream: AsyncGenerator[Message | TaskResult, None]) -> AsyncGenerator[Message | TaskResult, None]:
        """Have what a turn yields written, if there is a log."""
        known = self._plan.messages if self._plan is not None else None
        self._plan = None
        return logged(stream, self._log, known, self._finish_turn) if self._log is not None else stream

    async def _finish_turn(self, outcome: Any, **others: Any) -> None:
        assert self._log is not None
        assert self._history is not None
        self._log.put(TurnFinished(outcome=outcome, **others))
        for history in self._history.agents.values():
            # What a turn that failed has left of the log.
            history.items.clear()
            history.rebuilt.clear()
        await self._write_state(self._log)

    async def _write_state(self, log: LogWriter) -> None:
        await log.write(await boundary("message", self.target), sync=True)

    async def reset(self, cancellation_token: CancellationToken | None = None) -> None:
        """Forget the conversation, and begin with empty sessions."""
        if not self.has_begun:
            return
        if isinstance(self.target, BaseTeam):
            await self.target.reset()
        else:
            await self.target.on_reset(cancellation_token or CancellationToken())
        if self._log is not None:
            self._log.put(ConversationReset())
            await self._write_state(self._log)

    # The log

    def _attach(self, log: LogWriter, history: RunHistory) -> None:
        self._log, self._history = log, history
        self._attached.enter_context(recording(self.target, log, history))

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
