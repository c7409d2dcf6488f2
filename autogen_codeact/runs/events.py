"""Events of a run log: one line of JSON each, in `events.jsonl` of the run's folder."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic as read_clock
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from autogen_codeact.runs.results import CallRecord, ResultRecord
from codeact_sandbox.types.result import ErrorInfo

SCHEMA_VERSION = 1
"""Version of the events below; a reader refuses a log with a higher one."""


MAX_REASON = 1_000  # characters of the reason for an answer


class Event(BaseModel):
    """What all events have.

    Args:
        seq: Number of the event in its log, from 1, without gaps.
        monotonic: Seconds on the monotonic clock of the process that wrote it; see `ProcessInfo`.
        mac: Code over this line and all before it, with the key of the user who has written it; none without such a key.
    """

    # NaN can be in what a host tool returned; as null it would come back as another value.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    schema_version: int = SCHEMA_VERSION
    seq: int = 0
    time: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    monotonic: float = Field(default_factory=read_clock)
    mac: str | None = Field(default=None, exclude=True)


class ProcessInfo(BaseModel):
    """The process that writes a log.

    `versions` has those of Python and of the packages that matter.
    """

    model_config = ConfigDict(extra="forbid")

    pid: int
    host: str
    versions: dict[str, str] = Field(default_factory=dict)


class AgentInfo(BaseModel):
    """One agent of a run.

    Args:
        name: Unique in the run: within nested teams it is `team/agent`.
        executor: Class of its code executor, or None.
        tools: Names of its host tools, those of its executor included, which are given again at resume.
        functions: Names of other arguments that are functions, such as `approval_func`, which are given again too.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: str
    description: str = ""
    executor: str | None = None
    model: str | None = None
    tools: list[str] = Field(default_factory=list)
    functions: list[str] = Field(default_factory=list)


class RunStarted(Event):
    """A run has started; the first line of a log.

    Args:
        kind: Whether an agent or a team runs.
        task: The messages of the task, as AutoGen dumps them. None: the conversation was continued.
        component: Configuration of the agent or team without its functions, or None if it has none.
        component_error: Why there is no configuration.
        secrets: JSON pointers of secrets that were removed from the configuration, such as the key of a model.
        agents: The agents, those of nested teams included.
        conversation: Whether a user gives one message after the other; the task is the first of them.
    """

    type: Literal["run_started"] = "run_started"
    run: str
    kind: Literal["agent", "team"]
    name: str
    task: list[dict[str, Any]] | None
    component: dict[str, Any] | None = None
    component_error: str | None = None
    secrets: list[str] = Field(default_factory=list)
    agents: list[AgentInfo] = Field(default_factory=list)
    process: ProcessInfo
    conversation: bool = False


class JournalChange(BaseModel):
    """How a step has changed the journal of a session, from which the session is rebuilt.

    Args:
        executor: Number of the executor among those of the run, from 0.
        keep: Number of entries from before, of the same session, that are still in the journal.
        left_out: Blocks that are not in the journal because there were too many.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    executor: int
    session: str
    keep: int = Field(ge=0, le=1_000_000)
    added: list[dict[str, Any]] = Field(default_factory=list)
    left_out: int = 0
    unrecorded: int = 0


class RunResumed(Event):
    """Another process continues the run.

    It goes on at the `boundary` with this `seq`; `journals` are of sessions that were not rebuilt.
    """

    type: Literal["run_resumed"] = "run_resumed"
    boundary: int
    process: ProcessInfo
    journals: list[JournalChange] = Field(default_factory=list)


class MessageLogged(Event):
    """The run has yielded a message or an event of AutoGen.

    Args:
        message: As its `dump()` gives it; `load_message` makes it again.
        content_type: Fields of the content of a `StructuredMessage`, as a JSON schema.
    """

    type: Literal["message"] = "message"
    message: dict[str, Any]
    content_type: dict[str, Any] | None = None


class ChunkLogged(Event):
    """The run has yielded a piece of a model's answer or of the output of code.

    The message is a `ModelClientStreamingChunkEvent`, as its `dump()` gives it.
    """

    type: Literal["chunk"] = "chunk"
    message: dict[str, Any]


class NumberedEvent(Event):
    """What events of model calls and blocks have.

    The number is that of the call or the block among those of the agent, from 1; what is executed at once has one number.
    """

    agent: str
    number: int


class ModelCallStarted(NumberedEvent):
    """An agent asks its model.

    Args:
        request: SHA-256 of the request's last message, as `request_hash` gives it.
        shared: How many messages at the beginning are the same as in the last call of this agent.
        tools: Names of the functions that the model is offered.
        note: What the request says at its end about the continuation of the run, or None.
    """

    type: Literal["model_call_started"] = "model_call_started"
    request: str
    shared: int = 0
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    stream: bool = False
    note: str | None = None


class ModelCallFinished(NumberedEvent):
    """A model has answered, or failed to.

    Args:
        result: AutoGen's `CreateResult` as JSON, with its usage; None if there is no answer.
    """

    type: Literal["model_call_finished"] = "model_call_finished"
    result: dict[str, Any] | None = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0


class CodeText(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: str
    language: str


class BlockStarted(NumberedEvent):
    """An agent runs code; on disk before the code runs.

    It is one block in a session, maybe several in process mode.
    """

    type: Literal["block_started"] = "block_started"
    blocks: list[CodeText]


class BlockFinished(NumberedEvent):
    """Code has ended.

    Args:
        result: Its result; None if there is none.
        duration_s: Seconds that it took, with the start of the sandbox.
        journal: How it has changed the journal of its session; None without a session.
    """

    type: Literal["block_finished"] = "block_finished"
    result: ResultRecord | None = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    journal: JournalChange | None = None


class SessionRebuilt(Event):
    """The session of an agent was rebuilt.

    `outcome` has the fields of a `Replay`.
    """

    type: Literal["session_rebuilt"] = "session_rebuilt"
    agent: str
    outcome: dict[str, Any]


class HostCallEvent(Event):
    """What events of a call to a host tool have. A call that was refused before it started has no `HostCallStarted`.

    Args:
        block: Number of the block that makes the call; 0 for a call that the model makes itself.
        call: Number of the call in its block, from 1; with block 0 among those of the agent.
    """

    agent: str
    block: int
    call: int


class HostCallStarted(HostCallEvent):
    """A host tool is about to run; on disk before it runs, except for idempotent tools.

    `idempotent`: calling it again does no harm.
    """

    type: Literal["host_call_started"] = "host_call_started"
    name: str
    arguments: dict[str, Any]
    idempotent: bool = False


class HostCallFinished(HostCallEvent):
    """A call to a host tool has ended; on disk before the code sees the result, except for idempotent tools."""

    type: Literal["host_call_finished"] = "host_call_finished"
    record: CallRecord


class QuestionAsked(Event):
    """A run waits for a person to approve code or a call; on disk before the run ends.

    Args:
        question: Its name in the run, such as `q1`.
        block: Number of the block that would run, or that makes the call.
        tool: The tool, or None for code.
        text: All of the code, or the arguments as JSON.
        sha256: SHA-256 of exactly this code, or of the tool and exactly these arguments: an answer is bound to it.
    """

    type: Literal["question_asked"] = "question_asked"
    question: str = Field(pattern=r"^q[0-9]{1,6}$")
    agent: str
    block: int
    tool: str | None = None
    text: str
    sha256: str


class QuestionAnswered(Event):
    """The answer to a question takes effect; on disk before the code runs, or the call is made.

    Until then it is in a file; `sha256` is that of the question.
    """

    type: Literal["question_answered"] = "question_answered"
    question: str
    sha256: str = ""
    approved: bool
    reason: str = Field(default="", max_length=MAX_REASON)


class Boundary(Event):
    """A point at which the run can be continued from a state.

    Args:
        at: `start` of the run, before a `turn` of a team, or before the next `message` of a conversation.
        state: State of the agent or team, as `save_state()` gives it; for a turn, what `Team.continue_stream` takes.
        state_error: Why there is no state.
    """

    type: Literal["boundary"] = "boundary"
    at: Literal["start", "turn", "message"]
    state: dict[str, Any] | None = None
    state_error: str | None = None


class TurnStarted(Event):
    """A message of a user begins a turn of a conversation."""

    type: Literal["turn_started"] = "turn_started"
    task: list[dict[str, Any]]


class EndEvent(Event):
    """How a turn or a run has ended.

    Args:
        outcome: With a result, with an exception, cancelled by the caller or the user, or waiting for an answer to a question.
        stop_reason: That of AutoGen's `TaskResult`.
        duration_s: Seconds that it took, in this process.
    """

    outcome: Literal["completed", "failed", "cancelled", "waiting"]
    stop_reason: str | None = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0


class TurnFinished(EndEvent):
    """A turn of a conversation has ended; a boundary follows."""

    type: Literal["turn_finished"] = "turn_finished"


class ConversationReset(Event):
    """A user has started a conversation again; a boundary with the new state follows."""

    type: Literal["conversation_reset"] = "conversation_reset"


class RunFinished(EndEvent):
    """The run has ended; the last line of a log that is complete."""

    type: Literal["run_finished"] = "run_finished"


class LogStopped(Event):
    """Nothing more could be written, and the run went on without a log: it can't be resumed."""

    type: Literal["log_stopped"] = "log_stopped"
    reason: str


RunEvent = Annotated[
    RunStarted
    | RunResumed
    | MessageLogged
    | ChunkLogged
    | ModelCallStarted
    | ModelCallFinished
    | BlockStarted
    | BlockFinished
    | SessionRebuilt
    | HostCallStarted
    | HostCallFinished
    | QuestionAsked
    | QuestionAnswered
    | Boundary
    | TurnStarted
    | TurnFinished
    | ConversationReset
    | RunFinished
    | LogStopped,
    Field(discriminator="type"),
]
"""Any event of a log."""

EVENTS: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)


def parse_event(data: bytes | dict[str, Any]) -> RunEvent:
    """Make an event of a line of a log, or of what JSON made of it."""
    return EVENTS.validate_json(data) if isinstance(data, bytes) else EVENTS.validate_python(data)
