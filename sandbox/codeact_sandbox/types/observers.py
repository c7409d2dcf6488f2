"""Events of a sandbox: for a recorder, which is awaited, and for observers, which are only notified."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from codeact_sandbox.types.result import Result, ToolCall

logger = logging.getLogger("codeact_sandbox")


@dataclass(frozen=True)
class SandboxStarted:
    """A sandbox has started.

    Args:
        sandbox: Its name.
        backend: What runs it, such as `docker`.
        duration_s: Seconds that the start took.
    """

    sandbox: str
    backend: str
    duration_s: float


@dataclass(frozen=True)
class SandboxStopped:
    """A sandbox has ended.

    Args:
        sandbox: Its name.
        error: Why it broke, or None if it was stopped.
        duration_s: Seconds that the stop took.
    """

    sandbox: str
    error: str | None = None
    duration_s: float = 0.0


@dataclass(frozen=True)
class BlockStarted:
    """A block is sent to its sandbox.

    Args:
        sandbox: The sandbox's name.
        block: Number of the block in its sandbox, from 1.
        language: Its language.
        code: Its code.
    """

    sandbox: str
    block: int
    language: str
    code: str


@dataclass(frozen=True)
class BlockFinished:
    """A block has ended.

    Args:
        started: The block.
        result: Its result, or None if the sandbox broke.
        error: Why the sandbox broke, or None.
    """

    started: BlockStarted
    result: Result | None
    error: str | None = None


@dataclass(frozen=True)
class BlockId:
    """The block that makes calls.

    Args:
        sandbox: The sandbox's name.
        block: Number of the block in its sandbox, from 1.
    """

    sandbox: str = ""
    block: int = 0


@dataclass(frozen=True)
class CallIntent:
    """A call to a host tool.

    Args:
        block: The block that makes it.
        number: Number of the call in its block, from 1.
        name: The tool.
        arguments: Its arguments by name, as JSON values; must not be changed.
        idempotent: Whether calling the tool again does no harm.
        origin: What the caller of the block gave as `RunContext.origin`.
    """

    block: BlockId
    number: int
    name: str
    arguments: Mapping[str, Any]
    idempotent: bool = False
    origin: object = None


@dataclass(frozen=True)
class CallFinished:
    """A call to a host tool that has ended.

    Args:
        intent: The call.
        call: How it ended, as in `result.tool_calls`.
    """

    intent: CallIntent
    call: ToolCall


class Recorder(Protocol):
    """Keeps a durable record of calls to host tools; both methods are awaited, at most 30 seconds each.

    The order for each call: approval, `call_starting`, the tool, `call_finished`, and then the code sees the result.
    """

    async def call_starting(self, intent: CallIntent) -> None:
        """Record that an approved call is about to be made; the tool runs when this has returned.

        If it raises or takes too long, the tool does not run and the code gets a `ToolRefused`. It is cancelled if the call is
        cancelled meanwhile. A call that is not approved or is invalid has no intent.
        """

    async def call_finished(self, finished: CallFinished) -> None:
        """Record how a call ended, also one without an intent; the code sees the result when this has returned.

        If it raises or takes too long, the code gets a `RuntimeError` instead of the result. A call that was cancelled, or whose
        block has ended, is recorded with that outcome; its tool may have done its work.
        """


class Observer(Protocol):
    """Watches a sandbox. The methods are called on the event loop and must return at once; what they raise is logged."""

    def sandbox_started(self, event: SandboxStarted) -> None:
        """Note that a sandbox has started."""

    def sandbox_stopped(self, event: SandboxStopped) -> None:
        """Note that a sandbox has ended."""

    def block_started(self, event: BlockStarted) -> None:
        """Note that a block is sent to its sandbox."""

    def block_finished(self, event: BlockFinished) -> None:
        """Note that a block has ended."""

    def call_started(self, event: CallIntent) -> None:
        """Note that a call has been approved and recorded, and its tool runs now."""

    def call_finished(self, event: CallFinished) -> None:
        """Note that a call has ended, also one that was refused before it started."""


Event = Literal[
    "sandbox_started", "sandbox_stopped", "block_started", "block_finished", "call_started", "call_finished"
]


@dataclass(eq=False)
class Attachment:
    """The recorder and observers that one caller has attached to a sandbox.

    Args:
        recorder: Awaited at each call of a host tool, or None.
        observers: Notified of everything.
        detached: Whether they get nothing any more.
    """

    recorder: Recorder | None
    observers: tuple[Observer, ...]
    detached: bool = False


class Attachments:
    """All recorders and observers of a sandbox. Any thread may attach and detach, at any time."""

    def __init__(self) -> None:
        # What is attached now, in the order in which it was attached.
        self.current: tuple[Attachment, ...] = ()
        self._changing = threading.Lock()

    def attach(self, recorder: Recorder | None, observers: Sequence[Observer]) -> Callable[[], None]:
        """Attach a recorder and observers from the next block, start or stop on; a block that runs is not reported to them."""
        attachment = Attachment(recorder, tuple(observers))
        with self._changing:
            self.current = (*self.current, attachment)

        def detach() -> None:
            attachment.detached = True
            with self._changing:
                self.current = tuple(each for each in self.current if each is not attachment)

        return detach


def notify(attached: Iterable[Attachment], method: Event, event: Any) -> None:
    for attachment in attached:
        for observer in () if attachment.detached else attachment.observers:
            try:
                getattr(observer, method)(event)
            except BaseException:  # SystemExit and its like would end the event loop
                logger.exception("the observer %s failed in %s", type(observer).__name__, method)


def recorders(attached: Iterable[Attachment]) -> list[Recorder]:
    return [each.recorder for each in attached if each.recorder is not None and not each.detached]
