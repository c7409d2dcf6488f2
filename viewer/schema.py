"""The documents that the viewer's page and the HTML export show: a run's header, its steps and their short forms.

All are JSON. Text is text, never HTML: whoever shows it has to escape it. In all text but that of displays, terminal colours are
removed, and control and bidi characters are replaced by visible ones such as `\\x1b` and `\\u202e`. Long text is shortened in its
middle; a field `…_bytes` beside it then says how long it was, and is null if all of it is there. Numbers are finite.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

RunOutcome = Literal["running", "completed", "failed", "cancelled", "waiting", "interrupted"]
StepKind = Literal["task", "message", "model_call", "block", "decision", "handoff", "resumed", "gap", "event", "end"]


class AgentDocument(TypedDict):
    """An agent of the run: its name, class and model (or null)."""

    name: str
    kind: str
    model: str | None


class RunHeader(TypedDict):
    """A run as a whole; of a run that goes on, what it is by now."""

    id: str  # name of the run's folder in the list, as in addresses
    name: str
    kind: Literal["agent", "team"]
    task: str
    agents: list[AgentDocument]
    started: str  # ISO 8601, UTC
    outcome: RunOutcome  # "interrupted": its process has ended before the run, as far as the log was read
    stop_reason: str | None
    error: str | None  # "ValueError: message"
    steps: int  # number of step documents
    blocks: int
    model_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None  # in US dollars, by list prices; null if they are not known, or there are several models
    duration_s: float
    timing: Timing  # sums over all steps
    resumed: int
    gaps: int
    live: bool  # whether its log is still being written
    indexed: bool  # whether the log has been read to its present end; until then the counts grow
    revision: int  # grows with each change of a step; `changes?since=` takes it
    controls: bool  # whether this page can answer questions, and stop the run if it goes on


class QuestionDocument(TypedDict):
    """A question as the page gets it."""

    id: int
    agent: str | None
    kind: Literal["call", "code"]
    tool: str | None
    arguments: str | None
    text: str


class Timing(TypedDict):
    """Seconds that a run took in the model, the sandbox and host tools."""

    model_s: float
    sandbox_s: float
    tools_s: float


class Usage(TypedDict):
    """Tokens of the model's answer that a step begins with."""

    prompt_tokens: int
    completion_tokens: int


class FileReference(TypedDict):
    """A file in the run's folder; `sha256` is null if its content was left out, and `note` says why."""

    sha256: str | None
    size: int
    media_type: str
    note: str | None


class DisplayDocument(TypedDict):
    """Something that code has shown, in one or more forms.

    A form in `data` is text (JSON types as JSON text), or `{"file": FileReference}`. HTML and SVG are what the code wrote: show
    them in sandboxed frames only.
    """

    name: str
    data: dict[str, Any]


class CallDocument(TypedDict):
    """A call to a host tool."""

    name: str
    arguments: dict[str, str]  # by name, as JSON text
    outcome: Literal["running", "ok", "error", "refused", "timeout", "cancelled"]
    result: str | None  # JSON text
    error: str | None  # "KeyError: 'x'"
    duration_s: float
    approval: Literal["refused"] | None  # "refused": approval was asked for, and not given
    images: list[FileReference]


class ConnectionDocument(TypedDict):
    """A connection that code has opened or tried to open."""

    host: str | None
    port: int | None
    allowed: bool
    sent: int
    received: int
    reason: str | None


class FileDocument(TypedDict):
    """A file that a block added or changed. `diff` is a unified diff of text files, or null."""

    name: str
    download: str  # what a copy of it is called
    change: Literal["added", "changed"]
    size: int
    diff: str | None
    file: FileReference | None
    note: str | None


class Step(TypedDict):
    """One step of a run. The fields after `usage` depend on `kind`; a field that is missing is empty or does not apply."""

    number: int  # from 1, without gaps; the permalink is #step-N
    kind: StepKind
    agent: str | None
    time: str  # ISO 8601, UTC: when it began
    duration_s: float
    running: bool
    usage: Usage | None
    thought: NotRequired[str]  # message, model_call, block: what the model thought before it
    # task, message, handoff, event, model_call, decision (the reason), gap (the reason), resumed
    text: NotRequired[str]
    text_bytes: NotRequired[int | None]
    notes: NotRequired[list[str]]  # message, block: remarks, such as why code was not run
    error: NotRequired[str | None]  # message, model_call, block, end: "ValueError: message"
    target: NotRequired[str]  # handoff: to whom
    retry: NotRequired[bool]  # decision
    # block
    code: NotRequired[str]
    code_bytes: NotRequired[int | None]
    language: NotRequired[str]
    spans: NotRequired[list[list[str]] | None]  # [[class, text], …] of the code, see `sandbox.highlight`
    outcome: NotRequired[str]  # block: ok error timeout oom crashed denied interrupted running; end: that of the run
    exit_code: NotRequired[int | None]
    output: NotRequired[str]
    output_bytes: NotRequired[int | None]
    truncated: NotRequired[int]  # bytes of output that the sandbox has dropped
    value: NotRequired[str | None]
    displays: NotRequired[list[DisplayDocument]]
    calls: NotRequired[list[CallDocument]]  # block; also message, for calls that a model makes itself
    connections: NotRequired[list[ConnectionDocument]]
    files: NotRequired[list[FileDocument]]
    state: NotRequired[Literal["kept", "restored", "lost"] | None]
    # end
    stop_reason: NotRequired[str | None]


class Summary(TypedDict):
    """The short form of a step, for long lists."""

    number: int
    kind: StepKind
    agent: str | None
    title: str  # at most 120 characters, one line
    outcome: str | None
    state: Literal["kept", "restored", "lost"] | None
    running: bool


class Changes(TypedDict):
    """What is new in a run that goes on."""

    header: RunHeader  # its revision is that of the last of these summaries
    summaries: list[Summary]
    questions: list[QuestionDocument]  # all that wait for an answer
