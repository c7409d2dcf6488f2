"""A team: the loop in which its participants take turns, and what can be done between two runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from autogen_agentchat.base import ChatAgent, TaskResult, TerminationCondition
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, SelectSpeakerEvent
from autogen_core import CancellationToken, Component, ComponentLoader, trace_invoke_agent_span
from opentelemetry import trace

from autogen_codeact.agents.budget import Budget, Meter, Used
from autogen_codeact.executors.tools.configs import OwnProvider
from autogen_codeact.teams.config import TeamConfig
from autogen_codeact.teams.run import Message, Run, SavedRun, Task, message_types, task_messages
from autogen_codeact.teams.saved_state import Memory, read_state, set_states
from autogen_codeact.teams.speakers import Conversation, RoundRobin, Speakers, next_names
from autogen_codeact.teams.undo import TeamLock, Undo, close_all, end_tasks


class Team(OwnProvider, BaseTeam, Component[TeamConfig]):
    """Agents and teams that solve a task together; a run that fails or is cancelled ends at once and leaves the team usable.

    It has the constructor, the messages and the saved state of AutoGen's teams, without their message bus. What is different:

    - What a participant raises is raised by the run, the very same exception.
    - Cancelling the task that awaits the run, cancelling its token, or closing its stream ends the run in under a
      second, even where a participant ignores its token. A participant that swallows `CancelledError` too is left
      running, its output is dropped, and a warning is logged; its next turn waits for the end of that one, up to `BUSY_WAIT_S`,
      and then fails.
    - Afterwards the interrupted turn has not happened: its speaker is given the same messages again, its state is put back to
      before the turn (if it can save and load its state), and the termination condition is reset.

    A nested AutoGen team whose run is interrupted can't run again; its next turn is a `RuntimeError` that says so.

    Args:
        participants: Agents and teams; their names must differ.
        name: What a parent team calls this one. Default: `DEFAULT_NAME`.
        description: Its description for a parent team. Default: `DEFAULT_DESCRIPTION`.
        termination_condition: Ends a run. Default: none.
        max_turns: Turns in a run, at least 1. Default: no limit.
        custom_message_types: Message types of your own that participants produce; they can't be dumped.
        emit_team_events: Also yield who speaks next. Default: no.
        begin_with_first: Whether a new task, given after a run that ended by itself, begins with the first participant.
            Default: no, with whoever would have been next, as in AutoGen.
        speakers: Who speaks next: `RoundRobin()`, `Selector(…)`, `Handoff()` or `Graph(…)`. Default: `RoundRobin()`.
        budget: What a run may use, nested teams included. Default: no limit.

    There is no argument `runtime`, because there is no message bus.

    Attributes:
        on_boundary: Awaited before each turn, when all messages so far have been read from the stream, with what `save_state()`
            returns and, as `run`, what `continue_stream` needs. Not part of the configuration. Default: None.

    Raises:
        TypeError: A participant is neither an agent nor a team, or `speakers` or `budget` has another type.
        ValueError: There is no participant, two have the same name or one a reserved name, or `max_turns` is below 1.
        SpeakerError: The policy can't work with these participants.
    """

    component_type = "team"
    component_config_schema = TeamConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.Team"

    DEFAULT_NAME: ClassVar[str] = "Team"
    DEFAULT_DESCRIPTION: ClassVar[str] = "A team of agents."
    CANCEL_GRACE_S: ClassVar[float] = 0.4
    BUSY_WAIT_S: ClassVar[float] = 10.0

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
        speakers: Speakers[Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}. Leave it out for no limit.")
        self._participants = list(participants)
        if wrong := [each for each in self._participants if not isinstance(each, ChatAgent | BaseTeam)]:
            raise TypeError(f"A participant is an agent or a team, not a {type(wrong[0]).__name__}.")
        if not isinstance(speakers, Speakers | None):
            raise TypeError(f"speakers= takes a policy such as RoundRobin() or Handoff(), not {speakers!r:.80}.")
        if not isinstance(budget, Budget | None):
            raise TypeError(f"budget= takes a Budget, such as Budget(max_tokens=5000), not {budget!r:.80}.")
        if budget is not None:
            budget.with_prices()
        self._by_name = {participant.name: participant for participant in self._participants}
        if not participants or len(self._by_name) < len(participants):
            raise ValueError("A team needs at least one participant, and each participant a name of its own.")
        self._name = name or self.DEFAULT_NAME
        self._description = description or self.DEFAULT_DESCRIPTION
        self._termination_condition = termination_condition
        self._max_turns = max_turns
        self._custom_message_types = list(custom_message_types or ())
        self._emit_team_events = emit_team_events
        self._begin_with_first = begin_with_first
        self._speakers: Speakers[Any] = speakers or RoundRobin()
        self._budget = budget
        if self._speakers.manager_name in self._by_name:
            raise ValueError(
                f"A saved state uses {self._speakers.manager_name} itself: give the participant another name."
            )
        bounded = not (termination_condition is None and max_turns is None and budget is None)
        self._speakers.check(self._participants, bounded=bounded)
        self.on_boundary: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None

        self._known_types, self._new_types = message_types(self._participants, self._custom_message_types)
        # A parent team waits longer for this one than this one for its participants, because it cleans up last.
        graces: list[float] = [part._grace_s for part in self._participants if isinstance(part, Team)]
        self._turn_grace_s = max([self.CANCEL_GRACE_S, *graces])
        self._grace_s: float = self._turn_grace_s + 0.2
        self._undo = Undo(self._participants, termination_condition, self._turn_grace_s, self.BUSY_WAIT_S)
        self._memory = self._new_memory()
        self._ended_by_itself = False
        self._outer: Meter | None = None  # set by a parent team, for the next run
        self._lock = TeamLock()

    @property
    def name(self) -> str:
        """What a parent team calls this one."""
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def participants(self) -> Sequence[ChatAgent | BaseTeam]:
        """The agents and teams, in the order in which they were given."""
        return tuple(self._participants)

    @property
    def speakers(self) -> Speakers[Any]:
        """Who speaks next."""
        return self._speakers

    # The loop

    async def _loop(self, run: Run) -> str | None:
        attributes = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": self.name}
        tracer = trace.get_tracer("autogen_codeact")
        with tracer.start_as_current_span(f"invoke_workflow {self.name}", attributes=attributes) as span:
            reason = await self._take_turns(run)
            if run.error is not None:
                span.set_status(trace.Status(trace.StatusCode.ERROR))
                span.set_attribute("error.type", type(run.error).__qualname__)
            return reason

    async def _take_turns(self, run: Run) -> str | None:
        """Have participants take turns until there is a reason to end the run."""
        reason = None
        for batch in run.batches:
            reason = reason or await self._reason_to_end(run, batch)
        while reason is None and not run.is_over:
            await self._at_boundary(run)
            run.position = self._memory.position.model_copy(deep=True)
            names = await next_names(self._speakers, run.position, self._conversation(run))
            if (spent := run.meter.spent()) is not None:  # by the model of a selector
                run.stop(reason=spent)
                break
            if self._emit_team_events:
                run.emit(SelectSpeakerEvent(content=names, source=self._speakers.manager_name))

            async def turn(participant: ChatAgent | BaseTeam, new_messages: list[BaseChatMessage]) -> None:
                await self._undo.begin(participant.name)
                if isinstance(participant, BaseTeam):
                    if counted := isinstance(participant, Team):
                        participant._outer = run.meter
                    stream = participant.run_stream(
                        task=new_messages or None, cancellation_token=run.token, output_task_messages=False
                    )
                    async for event in stream:
                        run.take(participant, event, counted=counted)
                else:
                    with trace_invoke_agent_span(participant.name, agent_description=participant.description):
                        async for item in participant.on_messages_stream(new_messages, run.token):
                            run.take(participant, item, counted=False)
                run.check_answered(participant)

            for name in names:
                run.turns[name] = asyncio.create_task(turn(self._by_name[name], list(self._memory.unread[name])))
                run.turns[name].add_done_callback(run.stop_if_failed)
            await asyncio.wait(run.turns.values())
            if not run.is_over:
                self._commit(run)
                reason = await self._reason_to_end(run, run.batches[-1])
        return reason

    def _conversation(self, run: Run) -> Conversation:
        return Conversation(self._participants, self._memory.thread, run.meter.add)

    def _commit(self, run: Run) -> None:
        """Make the turns under way part of the conversation."""
        for name, (messages, _) in run.turn_messages.items():
            self._speakers.turn_ended(run.position, name, messages)  # may raise: before anything else has changed
        self._memory.position = run.position
        self._undo.commit()
        turns = run.commit()
        for name in turns:
            self._memory.unread[name].clear()
        for name, (messages, chat_messages) in turns.items():
            self._memory.tell(chat_messages, but=name)
            self._memory.thread.extend(messages)
        self._memory.turn += 1

    async def _reason_to_end(self, run: Run, batch: Sequence[Message]) -> str | None:
        """Return why the run ends after these messages, or None."""
        memory, condition = self._memory, self._termination_condition
        reason = self._speakers.complete(memory.position, list(self._by_name))
        if reason is None and condition is not None and (stop := await condition(batch)) is not None:
            reason = stop.content
        if reason is None and self._max_turns is not None and memory.turn >= self._max_turns:
            reason = f"Maximum number of turns {self._max_turns} reached."
        if reason is None:
            reason = run.meter.spent()
        if reason is not None:
            memory.turn = 0
            if condition is not None:
                await condition.reset()
        return reason

    async def _at_boundary(self, run: Run) -> None:
        if self.on_boundary is not None:
            await run.events.join()  # what was said before the boundary is read before it
            states = {name: await self._undo.state_or_nothing(name) for name in self._by_name}
            state = self._memory.dump(self._speakers, states)
            await self.on_boundary({**state, "run": run.saved(self._memory.thread)})

    # Running

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run the team and return the messages that `run_stream` yields, chunks left out, and the reason why it stopped.

        The arguments and the exceptions are those of `run_stream`.
        """
        async for event in self.run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        ):
            if isinstance(event, TaskResult):
                result = event
        return result

    def run_stream(
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
            SpeakerError: Nobody can speak next.
            BaseException: Whatever a participant or the termination condition raised, itself.
        """
        outer, self._outer = self._outer, None

        async def begin() -> Run:
            messages = task_messages(task, self._known_types)
            run = Run(Meter(self._budget, Used(), outer), self._known_types)
            if self._termination_condition is not None and self._termination_condition.terminated:
                run.finish("The group chat has already terminated.")
                return run
            self._speakers.check_task(self._conversation(run), messages)
            if messages and self._begin_with_first and self._ended_by_itself:
                self._memory.position = self._speakers.start(list(self._by_name))
            for message in messages if output_task_messages else ():
                run.emit(message)
            if messages:
                self._memory.thread.extend(messages)
                self._memory.tell(messages)
                run.batches.append([*messages])
            return run

        return self._stream(begin, cancellation_token)

    def continue_stream(
        self, state: Mapping[str, Any], *, cancellation_token: CancellationToken | None = None
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Go on with a run that was interrupted, perhaps in another process, and yield what comes then.

        The termination condition is reset and given the run's messages again, in the same batches.

        Args:
            state: What `on_boundary` was given between two turns of that run.
            cancellation_token: Ends the run.

        Raises:
            ValueError: The state is invalid, or not of a team with these participants; or the team is running.
            BaseException: Whatever a participant or the termination condition raised, itself.
        """

        async def begin() -> Run:
            saved, messages = await self._load(state)
            batches = self._memory.last_batches(saved.batches)
            if self._termination_condition is not None:
                await self._termination_condition.reset()
            return Run(Meter(self._budget, saved.used, None), self._known_types, messages, batches)

        return self._stream(begin, cancellation_token)

    async def _stream(
        self, begin: Callable[[], Awaitable[Run]], token: CancellationToken | None
    ) -> AsyncGenerator[Message | TaskResult, None]:
        if token is not None and token.is_cancelled():
            raise asyncio.CancelledError("The cancellation token was cancelled before the run. Use a new one.")
        async with self._lock.hold(ValueError("The team is already running. Wait until it has stopped.")):
            await self._undo.undo()
            run = await begin()
            self._ended_by_itself = False
            if token is not None:
                run.stop_with(token)
            timer = run.limit_seconds(
                lambda: bool(run.turns) and all(isinstance(self._by_name[name], Team) for name in run.turns),
                self._turn_grace_s,
            )
            driver = asyncio.create_task(self._loop(run))
            driver.add_done_callback(run.loop_ended)
            try:
                while (event := await run.events.get()) is not None:
                    yield event
                    run.events.task_done()
            finally:
                if timer is not None:
                    timer.cancel()
                run.stop()  # unless it has ended, the reader has left
                if run.is_interrupted:
                    await self._interrupt(run, driver)
            self._ended_by_itself = not run.is_interrupted
        if run.error is not None:
            raise run.error
        yield TaskResult(messages=run.messages, stop_reason=run.reason)

    async def _interrupt(self, run: Run, driver: asyncio.Task[str | None]) -> None:
        """End what is under way, and undo it; what a second cancellation leaves, the next run does."""
        self._memory.turn = 0
        self._undo.add(run.turns)
        tasks: dict[str, asyncio.Task[Any]] = {f"The turn of {name!r}": turn for name, turn in run.turns.items()}
        tasks[f"A run of {self.name!r}"] = driver
        for task in tasks.values():
            task.cancel()
        with self._lock.ending():
            await end_tasks(tasks, self._turn_grace_s)
            await self._undo.undo()

    # Between runs

    async def reset(self) -> None:
        """Forget everything that was said, and reset the participants and the termination condition.

        Raises:
            RuntimeError: The team is running, or a participant is busy with a turn that ignored its cancellation.
        """
        async with self._lock.hold(RuntimeError("The team is running. Wait until it has stopped, then reset it.")):
            await self._undo.undo()
            for participant in self._participants:
                await self._undo.wait(participant.name)
            await self._notify_participants("reset")
            if self._termination_condition is not None:
                await self._termination_condition.reset()
            self._memory = self._new_memory()

    async def close(self) -> None:
        """Have every participant release what it holds: agents loaded from a config stop their executors.

        Raises:
            RuntimeError: The team is running.
            Exception: What the first that failed raised; the others are closed all the same.
        """
        async with self._lock.hold(RuntimeError("The team is running. Wait until it has stopped, then close it.")):
            parts = (*self._participants, self._speakers)
            await close_all([part for part in parts if isinstance(part, ChatAgent | Team | Speakers)])

    async def pause(self) -> None:
        """Tell every participant to pause, whether the team is running or not."""
        await self._notify_participants("pause")

    async def resume(self) -> None:
        """Tell every participant to go on after `pause`."""
        await self._notify_participants("resume")

    async def _notify_participants(self, what: str) -> None:
        for participant in self._participants:
            if isinstance(participant, BaseTeam):
                await getattr(participant, what)()
            else:
                await getattr(participant, f"on_{what}")(CancellationToken())

    # State and configuration

    def _new_memory(self) -> Memory[Any]:
        names = list(self._by_name)
        return Memory(self._speakers.start(names), {name: [] for name in names}, [])

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state of the team and its participants, in the form of AutoGen's team with the same speakers.

        During a run it is the state before the turn that is under way.
        """
        if await self._lock.is_free():
            await self._undo.undo()
        return self._memory.dump(self._speakers, {name: await self._undo.state(name) for name in self._by_name})

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `save_state` of this class or of AutoGen's team with the same speakers returned.

        Raises:
            RuntimeError: The team is running.
            ValueError: The state is invalid, or not of a team with these participants; nothing has changed.
        """
        async with self._lock.hold(
            RuntimeError("The team is running. Wait until it has stopped, then load its state.")
        ):
            await self._undo.undo()
            await self._load(state)

    async def _load(self, state: Mapping[str, Any]) -> tuple[SavedRun, list[Message]]:
        names, known = list(self._by_name), self._known_types
        memory, states, run, messages = await asyncio.to_thread(read_state, state, names, self._speakers, known)
        await set_states(self._undo, self._participants, states)
        self._memory = memory
        return run, messages

    def _to_config(self) -> TeamConfig:
        if self._custom_message_types:
            raise ValueError("A team with custom_message_types can't be dumped: a config can't name Python types.")
        given = {name: getattr(self, f"_{name}") for name in TeamConfig.model_fields}
        condition = self._termination_condition
        given["participants"] = [participant.dump_component() for participant in self._participants]
        given["termination_condition"] = condition.dump_component() if condition is not None else None
        given["speakers"] = self._speakers.dump_component() if type(self._speakers) is not RoundRobin else None
        return TeamConfig(**given)

    @classmethod
    def _from_config(cls, config: TeamConfig) -> Self:
        given = dict(config)
        given["participants"] = [
            ComponentLoader.load_component(model, expected=object) for model in config.participants
        ]
        for name, kind in (("termination_condition", TerminationCondition), ("speakers", Speakers)):
            given[name] = kind.load_component(given[name]) if given[name] is not None else None
        return cls(**given)
