"""The sessions of a resumed run: rebuilt from their journals, or empty."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import CancellationToken

from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.journal import Journal, JournalEntry, record_of
from autogen_codeact.agents.replay import EMPTY
from autogen_codeact.executors.capabilities import SessionExecutor, capabilities_of
from autogen_codeact.runs.agents import agent_keys
from autogen_codeact.runs.events import JournalChange
from autogen_codeact.teams.parts import executors_of

NOT_WANTED = "the run was continued without rebuilding it"
MAY_DIFFER = (
    "Variables of the rebuilt session that come from chance, time or process ids may have other values than before, unless their "
    "code used a fixed seed. Look at them before you use them."
)
_CHANCE = re.compile(
    r"\b(?:random|default_rng|secrets|urandom|uuid\d?|time(?:_ns)?|monotonic|perf_counter|datetime|now|today|getpid|id|hash)\b"
)
STATES = frozenset({"CodeActAgentState", "CodeExecutorAgentState"})


class Session:
    """The session of one executor."""

    def __init__(self, number: int, executor: SessionExecutor, agents: dict[str, BaseCodeAgent]) -> None:
        self.number = number
        self.agents = agents
        self._executor = executor
        self._record = record_of(executor)
        self._codes: list[str] = []
        self.note: str | None = None
        """What differs from what it was, after `rebuild` or `empty`."""

    def load(self, changes: Sequence[JournalChange]) -> int:
        """Have the session rebuilt as it was after some changes, unless it is still alive."""
        record = self._record
        record.check_sandbox(self._executor)
        journal = record.pending or record.journal
        for change in changes:
            if change.executor == self.number:
                journal = _changed(journal, change)
        record.pending = None
        record.load(journal)
        self._codes = [entry.code for entry in journal.entries]
        return len(journal.entries) if record.pending is not None else 0

    async def rebuild(self, token: CancellationToken) -> None:
        """Rebuild it; `note` then says what differs from what it was."""
        made = await next(iter(self.agents.values())).rebuild_session(token)
        if made is not None:
            lines = [] if made.same else [made.describe()]
            if any(map(_CHANCE.search, self._codes)):
                lines.append(MAY_DIFFER)
            self.note = "\n".join(lines) or None

    def forget(self) -> None:
        """Have the journal that is loaded next count as that of another session, so that it is rebuilt."""
        self._record.pending = None
        self._record.clear()

    async def renew(self) -> None:
        """Begin an empty session, in a fresh sandbox if there was one."""
        if self._executor.starts:
            await self._executor.restart()
        self.forget()
        self._record.check_sandbox(self._executor)

    def empty(self) -> JournalChange:
        """Begin a new journal, and return how the journal has changed."""
        self.forget()
        self.note = EMPTY.format(reason=NOT_WANTED)
        return JournalChange(executor=self.number, session=self._record.journal.session, keep=0)


def sessions_of(agent_or_team: ChatAgent | BaseTeam) -> list[Session]:
    """Return the sessions of all agents that can rebuild one."""
    found = []
    for number, executor in enumerate(executors_of(agent_or_team)):
        users = {
            key: agent
            for key, agent in agent_keys(agent_or_team)
            if isinstance(agent, BaseCodeAgent) and agent.code_executor is executor
        }
        session = capabilities_of(executor).session
        if session is not None and users:
            found.append(Session(number, session, users))
    return found


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
