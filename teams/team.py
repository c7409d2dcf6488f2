"""A team whose participants take turns, and which a failed or cancelled run leaves usable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar, Self

from autogen_agentchat.base import ChatAgent, TaskResult, TerminationCondition
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory, StructuredMessage
from autogen_agentchat.state import TeamState
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, Component

from autogen_codeact.teams.config import TeamConfig, load_condition, load_participants
from autogen_codeact.teams.interrupted_turn import state_before_turn
from autogen_codeact.teams.participants import AgentProxy, Message, Task, TeamProxy
from autogen_codeact.teams.run_control import RunControl, StoppableTermination, cancel_and_wait
from autogen_codeact.teams.saved_state import checked_state, load_whole, set_states

__all__ = ["Team", "TeamConfig"]


class Team(BaseTeam, Component[TeamConfig]):
    """Agents that take turns; a run that fails or is cancelled ends at once and leaves the team usable.

    It is made of AutoGen's `RoundRobinGroupChat`, with its constructor, messages and saved state. What is different:

    - What a participant raises is raised by the run, the very same exception.
    - Cancelling the task that awaits the run, cancelling its token, or closing its stream ends the run in under a
      second, even where a participant ignores its token. A participant that swallows `CancelledError` too is left
      running, its output is dropped, and a warning is logged; its next turn waits for the end of that one, up to `BUSY_WAIT_S`,
      and then fails.
    - Afterwards the interrupted turn has not happened: its speaker is next and is given the same messages again, its
      state is put back to before the turn (if it can save and load its state), and the termination condition is reset.

    A nested AutoGen team that fails stays stuck, as it does without us: nest a `Team` instead.

    Args:
        participants: Agents and teams, in the order of their turns; their names must differ.
        name: What a parent team calls this one. Default: `DEFAULT_NAME`.
        description: What a parent team is told about it. Default: `DEFAULT_DESCRIPTION`.
        termination_condition: Ends a run. Default: none.
        max_turns: Turns in a run, at least 1. Default: no limit.
        custom_message_types: Message types of your own that participants produce; they can't be dumped.
        emit_team_events: Also yield who speaks next. Default: no.
        begin_with_first: Whether a new task, given after a run that ended by itself, begins with the first participant.
            Default: no, with whoever would have been next, as in AutoGen.

    There is no `runtime`: messages that wait in a shared runtime can't be dropped when one team's run is cut short.

    Raises:
        ValueError: There is no participant, two have the same name, or `max_turns` is below 1.
    """

    component_type = "team"
    component_config_schema = TeamConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.Team"

    DEFAULT_NAME: ClassVar[str] = "Team"
    DEFAULT_DESCRIPTION: ClassVar[str] = "A team of agents."
    CANCEL_GRACE_S: ClassVar[float] = 0.4
    BUSY_WAIT_S: ClassVar[float] = 10.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None  # inherited, it would dump a subclass as this class

    def __init__(
        self,
        participants: list[ChatAgent | BaseTeam],
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        custom_message_types: list[type[BaseAgentEvent | BaseChatMessage]] | None = None,
        emit_team_events: bool = False,
        begin_with_first: bool = False,
    ) -> None:
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}. Leave it out for no limit.")
        self._name = name or self.DEFAULT_NAME
        self._description = description or self.DEFAULT_DESCRIPTION
        self._participants = list(participants)
        self._termination_condition = termination_condition
        self._max_turns = max_turns
        self._custom_message_types = list(custom_message_types or ())
        self._emit_team_events = emit_team_events
        self._begin_with_first = begin_with_first
        self._ended_by_itself = False
        self._known_types, self._new_types = _message_types(self._participants, self._custom_message_types)
        self._proxies: list[AgentProxy | TeamProxy] = [self._proxy(participant) for participant in self._participants]
        # A parent team waits longer for this one than this one for its participants, because it cleans up last.
        self._grace_s = 0.2 + max((proxy.grace_s for proxy in self._proxies), default=0.0)
        self._stoppable = StoppableTermination(termination_condition, self.CANCEL_GRACE_S)
        self._inner = self._build()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control: RunControl | None = None
        self._interrupted_run: RunControl | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """What a parent team calls this one."""
        return self._name

    @property
    def description(self) -> str:
        """What a parent team is told about this one."""
        return self._description

    @property
    def participants(self) -> Sequence[ChatAgent | BaseTeam]:
        """The agents and teams, in the order of their turns."""
        return tuple(self._participants)

    # Running

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run the team and return the messages that `run_stream` yields, chunks left out.

        Args:
            task: What to do. Default: go on with what was said before.
            cancellation_token: Ends the run. A token stays cancelled: use a new one for each run.
            output_task_messages: Whether the task is among the messages of the result. Default: yes.

        Returns:
            The messages and the reason why the run stopped.

        Raises:
            ValueError: The task is empty or of a wrong type, or the team is running.
            BaseException: Whatever a participant or the termination condition raised, itself.
        """
        async for event in self.run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        ):
            if isinstance(event, TaskResult):
                result = event
        return result

    async def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Run the team and yield its messages as they come, last the `TaskResult`.

        Args:
            task: What to do. Default: go on with what was said before.
            cancellation_token: Ends the run. A token stays cancelled: use a new one for each run.
            output_task_messages: Whether the task is among the messages. Default: yes.

        Raises:
            ValueError: The task is empty or of a wrong type, or the team is running.
            BaseException: Whatever a participant or the termination condition raised, itself.
        """
        if isinstance(task, str) and not task.strip():
            raise ValueError("The task is empty: say what to do, or leave it out to go on with what was said before.")
        control = await self._begin(cancellation_token, new_task=task is not None)
        events: asyncio.Queue[Message | TaskResult | None] = asyncio.Queue()
        drive = asyncio.create_task(self._drive(task, output_task_messages, events))
        drive.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, TaskResult):
                    result = event  # kept until the team is ready for its next run
                elif event.id != control.marker.id:
                    yield event
        finally:
            # A task of its own: a second cancellation ends this wait, not the clean-up.
            self._ending = asyncio.create_task(self._end(control, drive))
            await asyncio.shield(self._ending)
        if control.error is not None:
            raise control.error
        yield result

    async def _drive(
        self, task: Task, output_task_messages: bool, events: asyncio.Queue[Message | TaskResult | None]
    ) -> None:
        if isinstance(task, Sequence) and not isinstance(task, str):
            task = list(task)
        # No token: AutoGen's team, cancelled from inside, waits for the turn to end and is blocked afterwards.
        async for event in self._inner.run_stream(task=task, output_task_messages=output_task_messages):
            events.put_nowait(event)

    async def _begin(self, token: CancellationToken | None, *, new_task: bool) -> RunControl:
        if token is not None and token.is_cancelled():
            raise asyncio.CancelledError("The cancellation token was cancelled before the run. Use a new one.")
        control = await self._claim(ValueError("The team is already running. Wait until it has stopped."))
        loop = asyncio.get_running_loop()
        first = new_task and self._begin_with_first and self._ended_by_itself
        if first or self._loop not in (None, loop):  # AutoGen's team is bound to the event loop of its first run
            await self._rebuild(None, next_speaker=self._participants[0].name if first else None)
        self._loop = loop
        self._ended_by_itself = False
        self._stoppable.control = control
        for proxy in self._proxies:
            proxy.control = control
        if token is not None:
            control.stop_with(token)
        return control

    async def _end(self, control: RunControl, drive: asyncio.Task[None]) -> None:
        try:
            self._interrupted_run = control
            if not drive.done():
                control.stop()
                await asyncio.wait({drive}, timeout=self._grace_s)
                await cancel_and_wait(drive, 0.1, f"A run of {self.name!r}")
            if drive.done() and not drive.cancelled() and (error := drive.exception()):
                control.stop(error)
            if control.is_stopped:
                await self._repair()
            self._ended_by_itself = not control.is_stopped
            self._interrupted_run = None
        finally:
            self._control = None

    # Between runs

    async def _claim(self, refusal: Exception) -> RunControl:
        """Reserve the team until `_control` is None again, or raise the refusal."""
        await self._wait_until_idle()
        if self._control is not None:
            raise refusal
        self._control = RunControl()
        return self._control

    async def _wait_until_idle(self) -> None:
        """Wait for a run that is ending, and repair what it left."""
        for _ in range(3):
            if self._control is None:
                break
            await asyncio.sleep(
                0
            )  # a stream that its reader left by `break` is closed by the loop, a step or two later
        if self._ending is not None and not self._ending.done():
            await asyncio.wait({self._ending})
        if self._control is None:
            await self._repair()
            for proxy in self._proxies:
                await proxy.roll_back()

    async def _repair(self) -> None:
        """Restore the team from before the interrupted turn."""
        if (interrupted := self._interrupted_run) is None:
            return
        await self._rebuild(interrupted)
        if self._termination_condition is not None:
            reset = asyncio.ensure_future(self._termination_condition.reset())
            await asyncio.wait({reset}, timeout=self.CANCEL_GRACE_S)
            await cancel_and_wait(reset, 0, "Resetting the termination condition")
        for proxy in self._proxies:
            await proxy.roll_back()
        self._interrupted_run = None

    async def _rebuild(self, interrupted: RunControl | None, next_speaker: str | None = None) -> None:
        turn, markers = (interrupted.turn, [interrupted.marker.id]) if interrupted else (None, [])
        names = [participant.name for participant in self._participants]
        state = state_before_turn(await self._inner.save_state(), names, turn, markers, next_speaker)
        inner = self._build()
        await inner.load_state(state.model_dump())
        self._inner = inner

    def _build(self) -> RoundRobinGroupChat:
        return RoundRobinGroupChat(
            [*self._proxies],
            name=self._name,
            description=self._description,
            termination_condition=self._stoppable,
            max_turns=self._max_turns,
            custom_message_types=self._new_types,
            emit_team_events=self._emit_team_events,
        )

    def _proxy(self, participant: ChatAgent | BaseTeam) -> AgentProxy | TeamProxy:
        if isinstance(participant, BaseTeam):
            grace_s = participant._grace_s if isinstance(participant, Team) else self.CANCEL_GRACE_S
            return TeamProxy(participant, self._known_types, grace_s, self.BUSY_WAIT_S)
        return AgentProxy(participant, self._known_types, self.CANCEL_GRACE_S, self.BUSY_WAIT_S)

    async def reset(self) -> None:
        """Forget everything that was said, and reset the participants and the termination condition.

        Raises:
            RuntimeError: The team is running, or a participant is busy with a turn that ignored its cancellation.
        """
        await self._claim(RuntimeError("The team is running. Wait until it has stopped, then reset it."))
        try:
            for proxy in self._proxies:
                await proxy.wait_until_idle()
            for participant in self._participants:
                if isinstance(participant, BaseTeam):
                    await participant.reset()
                else:
                    await participant.on_reset(CancellationToken())
            if self._termination_condition is not None:
                await self._termination_condition.reset()
            self._inner = self._build()
        finally:
            self._control = None

    async def close(self) -> None:
        """Have every participant release what it holds: agents loaded from a config stop their executors.

        Raises:
            RuntimeError: The team is running.
        """
        await self._claim(RuntimeError("The team is running. Wait until it has stopped, then close it."))
        try:
            for participant in self._participants:
                if isinstance(participant, ChatAgent | Team):
                    await participant.close()
        finally:
            self._control = None

    async def pause(self) -> None:
        """Tell every participant to pause, whether the team is running or not."""
        for participant in self._participants:
            if isinstance(participant, BaseTeam):
                await participant.pause()
            else:
                await participant.on_pause(CancellationToken())

    async def resume(self) -> None:
        """Tell every participant to go on after `pause`."""
        for participant in self._participants:
            if isinstance(participant, BaseTeam):
                await participant.resume()
            else:
                await participant.on_resume(CancellationToken())

    # State and configuration

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state of the team and its participants, in the form of AutoGen's `RoundRobinGroupChat`."""
        await self._wait_until_idle()
        states = dict(TeamState.model_validate(await self._inner.save_state()).agent_states)
        for proxy in self._proxies:
            states[proxy.name] = {**states[proxy.name], "agent_state": await proxy.state()}
        return TeamState(agent_states=states).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `save_state` of this class or of AutoGen's `RoundRobinGroupChat` returned.

        Raises:
            RuntimeError: The team is running.
            ValueError: The state is invalid, or not of a team with these participants; nothing has changed.
        """
        await self._claim(RuntimeError("The team is running. Wait until it has stopped, then load its state."))
        try:
            state, states = await asyncio.to_thread(checked_state, state, [proxy.name for proxy in self._proxies])
            inner = self._build()
            await load_whole(inner, state)
            await set_states(self._proxies, states)
            self._inner = inner
        finally:
            self._control = None

    def _to_config(self) -> TeamConfig:
        if self._custom_message_types:
            raise ValueError("A team with custom_message_types can't be dumped: a config can't name Python types.")
        condition = self._termination_condition
        return TeamConfig(
            name=self._name,
            description=self._description,
            participants=[participant.dump_component() for participant in self._participants],
            termination_condition=condition.dump_component() if condition is not None else None,
            max_turns=self._max_turns,
            emit_team_events=self._emit_team_events,
            begin_with_first=self._begin_with_first,
        )

    @classmethod
    def _from_config(cls, config: TeamConfig) -> Self:
        return cls(
            load_participants(config.participants),
            name=config.name,
            description=config.description,
            termination_condition=load_condition(config.termination_condition),
            max_turns=config.max_turns,
            emit_team_events=config.emit_team_events,
            begin_with_first=config.begin_with_first,
        )


def _message_types(
    participants: Sequence[ChatAgent | BaseTeam], custom: Sequence[type[Message]]
) -> tuple[MessageFactory, list[type[Message]]]:
    """Return every message type that a team knows, and those among them that AutoGen has to be told."""
    wanted = list(custom)
    for participant in participants:
        if isinstance(participant, Team):
            wanted += participant._new_types
        elif isinstance(participant, ChatAgent):
            wanted += [t for t in participant.produced_message_types if issubclass(t, StructuredMessage)]
    known, new = MessageFactory(), []
    for message_type in wanted:
        if not known.is_registered(message_type):
            known.register(message_type)
            new.append(message_type)
    return known, new
