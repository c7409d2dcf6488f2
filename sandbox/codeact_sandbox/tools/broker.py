"""Runs host tools for the blocks of a sandbox: approved, within limits, recorded, and cancelled with the block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from codeact_sandbox.runner.shared import wire
from codeact_sandbox.tools.answers import as_tool_image
from codeact_sandbox.tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
from codeact_sandbox.tools.call_files import CallFiles, CodeFiles, FileBudget
from codeact_sandbox.tools.function import HostTool, contained
from codeact_sandbox.tools.payloads import (
    Request,
    describe_error,
    read_call,
    traceback_of,
    write_answer,
    write_error,
)
from codeact_sandbox.tools.stub import sources
from codeact_sandbox.types.errors import SandboxError, SandboxProtocolError
from codeact_sandbox.types.limits import ToolLimits, parse_size
from codeact_sandbox.types.observers import (
    Attachments,
    BlockId,
    CallFinished,
    CallIntent,
    Recorder,
    notify,
    recorders,
)
from codeact_sandbox.types.result import CallOutcome, ErrorInfo, Result, ToolCall
from codeact_sandbox.types.run_context import CodeAndLanguage, RunContext
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer, ToolArgumentError

logger = logging.getLogger("codeact_sandbox")

IN_FLIGHT = 16  # calls of one block that are worked on at the same time; the others wait
CALL_BYTES = 1024**2  # of one call's name and arguments as JSON
ANSWER_BYTES = 4 * 1024**2  # of one result as JSON
# Of all calls of one block, and of all results that it gets: the call log keeps them.
BYTES_IN = 16 * 1024**2
BYTES_OUT = 64 * 1024**2
CANCEL_GRACE_S = 1.0
RECORD_TIMEOUT_S = 30.0
_NUMBER = struct.Struct("!I")


class NotAllowed(Exception):
    """A call that is not made."""

    def __init__(self, kind: str, reason: str, *bases: str, refused: bool | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.bases = list(bases)
        self.refused = kind == "ToolRefused" if refused is None else refused


class ToolBroker:
    """The host tools of a sandbox, with their limits and approval."""

    def __init__(
        self,
        tools: Sequence[HostToolProtocol],
        limits: ToolLimits,
        approve: ApproveTool | None = None,
    ) -> None:
        self.tools: dict[str, HostToolProtocol] = {}
        self.limits = limits
        self.approve = approve
        self.files = FileBudget(parse_size(limits.file_bytes))
        self.attachments = Attachments()  # recorders and observers of the sandbox
        self.without_approval: set[str] = set()
        self._at_start: frozenset[str] = frozenset()
        self.replace((), tools)

    def replace(self, old: Sequence[HostToolProtocol], new: Sequence[HostToolProtocol]) -> None:
        """Replace some of the tools by others."""
        gone = set(map(id, old))
        staying = {name: tool for name, tool in self.tools.items() if id(tool) not in gone}
        names = [*staying, *(tool.name for tool in new)]
        if double := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(f"two host tools have the same name ({', '.join(double)}): rename one")
        for name in names:
            if not all(part.isidentifier() and not part.startswith("_") for part in name.split(".")):
                raise ValueError(f"{name!r} can't be the name of a host tool: use a Python name without a leading _")
        self.tools = {**staying, **{tool.name: tool for tool in new}}

    def settings(self) -> dict[str, Any]:
        """Return the settings with which the runner starts."""
        return {
            "sources": sources(list(self.tools.values())),
            "in_flight": IN_FLIGHT,
            "call_bytes": CALL_BYTES,
        }

    def started(self, settings: Mapping[str, Any] | None) -> None:
        """Record which tools a sandbox has known since its start."""
        self._at_start = frozenset(name for name, _ in settings["sources"]) if settings is not None else frozenset()

    def added_sources(self) -> list[tuple[str, Any]]:
        """Return the definitions of tools added since the start; each block gets all of them, in case an earlier one failed."""
        added = [tool for name, tool in self.tools.items() if name not in self._at_start]
        return [each for each in sources(added) if each[0] not in self._at_start]


@dataclass(eq=False)
class _Call:
    number: int
    position: int
    began: float
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    ended: ToolCall | None = None
    intent: CallIntent | None = None
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class BlockCalls:
    """The calls of one block, which the running event loop awaits."""

    def __init__(
        self,
        broker: ToolBroker,
        code: CodeAndLanguage,
        context: RunContext,
        block: BlockId,
        *,
        sandbox: CodeFiles | None = None,
        work_dir: Path | None = None,
    ) -> None:
        self._broker = broker
        self._block = block
        self._attached = broker.attachments.current
        self._limits = broker.limits
        self._code = code
        self._loop = asyncio.get_running_loop()
        # Tools run with the context variables of the block's caller, not those of the connection's thread.
        self._context = contextvars.copy_context()
        self._caller = context
        self.send: Callable[[bytes], None] | None = None  # sends a call's number and its answer, from any thread
        self._open: set[int] = set()
        self._cancelled: set[int] = set()
        # What has ended is kept as a `ToolCall` alone: the garbage collector looks at all that is kept, while nothing else runs.
        self._calls: list[_Call | ToolCall] = []
        self._running: dict[int, _Call] = {}
        self._waiting: deque[tuple[_Call, bytes]] = deque()
        self._tasks: dict[asyncio.Task[None], _Call] = {}
        self._records: set[asyncio.Task[None]] = set()
        self._ended = False
        self._over_budget = 0
        self._bytes_in = self._bytes_out = 0
        self._sandbox = sandbox  # exchanges files for tools that take or return them
        self._work_dir = work_dir

    def add_to(self, end: Result | SandboxError) -> None:
        """Add the calls, in the order they began, to how the block has ended, and a note on those beyond its budget."""
        end.tool_calls = tuple(call if isinstance(call, ToolCall) else _so_far(call) for call in self._calls)
        if self._over_budget and isinstance(end, Result):
            note = f"{self._over_budget:,} more calls to host tools were refused, because the block had used up its budget."
            end.notes = (*end.notes, note)

    # In the connection's thread

    def on_frame(self, kind: bytes, payload: bytes) -> None:
        """Process a `TOOL_CALL` or `CANCEL_CALL` frame."""
        if len(payload) < _NUMBER.size or len(payload) > _NUMBER.size + CALL_BYTES:
            raise SandboxProtocolError(f"the sandbox sent a call of {len(payload):,} bytes")
        (number,) = _NUMBER.unpack_from(payload)
        if kind == wire.CANCEL_CALL:
            if number in self._open and number not in self._cancelled:
                self._cancelled.add(number)
                self._schedule(self._on_cancel, number)
            return
        if number in self._open or len(self._open) >= IN_FLIGHT:
            raise SandboxProtocolError("the sandbox sent more calls at once than its limits allow")
        self._open.add(number)
        self._schedule(self._on_call, number, payload[_NUMBER.size :])

    def _schedule(self, work: Callable[..., None], *arguments: Any) -> None:
        # If the loop has been closed, the block's caller has gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work, *arguments, context=self._context)

    # On the event loop

    def _on_call(self, number: int, payload: bytes) -> None:
        if self._ended:
            return
        if len(self._calls) >= self._limits.calls or self._bytes_in + len(payload) > BYTES_IN:
            self._over_budget += 1
            self._answer(number, self._refusal)
            return
        self._bytes_in += len(payload)
        call = _Call(number, len(self._calls) + 1, time.monotonic())
        self._calls.append(call)
        self._running[number] = call
        self._waiting.append((call, payload))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        """Start one call in each round of the event loop: an async tool can compute for long before it awaits something."""
        call, payload = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._start_next)
        if call.ended is None:  # not cancelled meanwhile
            call.task = self._loop.create_task(self._serve(call, payload))
            self._tasks[call.task] = call
            call.task.add_done_callback(self._tasks.pop)

    @cached_property
    def _refusal(self) -> bytes:
        """What each call beyond the budget is answered; written once, because code may make any number of them."""
        limits = self._limits
        reason = (
            f"a block may make {limits.calls:,} calls to host tools, with {BYTES_IN:,} bytes of them; this is one more"
        )
        return write_error("ToolBudgetExceeded", reason, ["RuntimeError"])

    async def _serve(self, call: _Call, payload: bytes) -> None:
        """Make one call; all exceptions of a tool end here."""
        try:
            request = await self._read(call, payload)
            answers = self._caller.answers
            if answers is None:
                answer = await self._make_call(call, request)
            else:
                call.timer = self._loop.call_later(self._limits.seconds, self._out_of_time, call)
                answer = await answers(request.name, request.copies[1])
            images = tuple(map(as_tool_image, answer.images))
            body, result = await self._written(answer.value)
            if call.ended is None:
                self._bytes_out += len(body)
                self._finish(call, "ok", body, result=result, images=images)
        except NotAllowed as error:
            self._fail(call, "refused", error.kind, error.reason, error.bases, refused=error.refused)
        except BaseException as error:  # noqa: BLE001 - SystemExit and similar exceptions would end the host's event loop
            kind, message, bases = describe_error(error)
            if isinstance(error, ToolArgumentError):
                kind = "TypeError"
            elif call.ended is None and not isinstance(error, asyncio.CancelledError):
                # Without its arguments, which may contain secrets. Not a warning, because the code gets and handles the error.
                logger.info("the host tool %s failed:\n%s", call.name, traceback_of(error))
            self._fail(call, "error", kind, message, bases)

    async def _written(self, value: Any) -> tuple[bytes, Any]:
        body, result = await write_answer(value, ANSWER_BYTES)
        if self._bytes_out + len(body) > BYTES_OUT:
            raise ValueError(f"the results for one block may have {BYTES_OUT:,} bytes; with this one they have more")
        return body, result

    async def _read(self, call: _Call, payload: bytes) -> Request:
        try:
            request = await read_call(payload, 3 if self._broker.approve is not None else 2)
        except ValueError as error:
            raise NotAllowed("BadCall", str(error), "ValueError") from None
        call.name, call.arguments = request.name, request.copies[0]
        return request

    async def _make_call(self, call: _Call, request: Request) -> ToolAnswer:
        """Make a call if it is approved and recorded."""
        tool = self._caller.tools.get(request.name) or self._broker.tools.get(request.name)
        if tool is None:
            known = ", ".join(self._broker.tools)
            raise NotAllowed(
                "UnknownTool", f"there is no host tool {request.name[:200]!r}; there are: {known}", "NameError"
            )
        if self._caller.branch and getattr(tool, "branch_safe", False) is not True:
            raise NotAllowed(
                "ToolRefused", "it can't be called in a branch, because a call can't be undone (branch_safe=)"
            )
        if self._sandbox is None or not isinstance(tool, HostTool) or not tool.exchanges_files:
            await self._approved_and_recorded(call, tool, request, {})
            return await tool.run(request.copies[1])
        files = CallFiles(self._sandbox, self._broker.files, self._work_dir)
        try:
            asks = self._asks(tool) is not None
            # Before the question, so that what is approved is what the tool gets.
            contents = await tool.fetch(request.copies[1], files) if asks else {}
            await self._approved_and_recorded(call, tool, request, contents)
            return await tool.run(request.copies[1], files)
        finally:
            await files.close()

    def _asks(self, tool: HostToolProtocol) -> ApproveTool | None:
        return None if tool.name in self._broker.without_approval else self._broker.approve

    async def _approved_and_recorded(
        self, call: _Call, tool: HostToolProtocol, request: Request, contents: Mapping[str, Any]
    ) -> None:
        if (approve := self._asks(tool)) is not None:
            name, arguments = getattr(tool, "rule_name", tool.name), {**request.copies[2], **contents}
            waiting = ToolApprovalRequest(
                name,
                arguments,
                tool.signature,
                tool.description,
                self._code.code,
                self._code.language,
                self._caller.origin,
            )
            await self._approve(approve, waiting)
        await self._record_intent(call, tool)
        call.timer = self._loop.call_later(self._limits.seconds, self._out_of_time, call)

    async def _approve(self, approve: ApproveTool, request: ToolApprovalRequest) -> None:
        try:
            answer = await approve(request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            logger.exception("the approval of a call to the host tool %s failed", request.name)
            kind, message, _ = describe_error(error)
            raise NotAllowed("ToolRefused", f"it could not be approved: {kind}: {message}") from None
        if not isinstance(answer, ToolApproval):
            raise NotAllowed("ToolRefused", f"approve_tool must return a ToolApproval, not a {type(answer).__name__}")
        if answer.approved is not True:
            raise NotAllowed("ToolRefused", answer.reason or "it was not approved")

    async def _record_intent(self, call: _Call, tool: HostToolProtocol) -> None:
        call.intent = self._intent(call, idempotent=getattr(tool, "idempotent", False) is True)
        for recorder in recorders(self._attached):
            try:
                async with asyncio.timeout(RECORD_TIMEOUT_S), call.recording:
                    await contained(recorder.call_starting(call.intent))
            except Exception as error:  # noqa: BLE001 - of the caller's own code
                raise NotAllowed("ToolRefused", f"it was not made, because {_not_recorded(call, error)}") from None
            if call.ended is not None:  # cancelled, but the recorder suppressed the cancellation
                raise asyncio.CancelledError
        notify(self._attached, "call_started", call.intent)

    def _intent(self, call: _Call, *, idempotent: bool = False) -> CallIntent:
        return CallIntent(self._block, call.position, call.name, call.arguments, idempotent, self._caller.origin)

    def _out_of_time(self, call: _Call) -> None:
        text = f"the host tool {call.name} did not answer within {self._limits.seconds:g} s"
        self._call_off(call, "timeout", "TimeoutError", text, ["TimeoutError"])

    def _on_cancel(self, number: int) -> None:
        call = self._running.get(number)
        if call is not None:
            self._call_off(call, "cancelled", "CancelledError", "the code did not wait for it any more", [])

    def _call_off(self, call: _Call, outcome: CallOutcome, kind: str, message: str, bases: list[str]) -> None:
        self._fail(call, outcome, kind, message, bases)
        if call.task is not None:
            call.task.cancel()

    def _fail(
        self, call: _Call, outcome: CallOutcome, kind: str, message: str, bases: list[str], *, refused: bool = False
    ) -> None:
        if call.ended is None:
            body = write_error(kind, message, bases, refused=refused)
            self._finish(call, outcome, body, error=ErrorInfo(kind, message), error_bases=tuple(bases))

    def _finish(self, call: _Call, outcome: CallOutcome, body: bytes, **more: Any) -> None:
        """Set the outcome of a call, and answer it when the outcome is recorded."""
        call.ended = ToolCall(call.name, call.arguments, outcome, duration_s=time.monotonic() - call.began, **more)
        if call.timer is not None:
            call.timer.cancel()
        del self._running[call.number]
        recording = recorders(self._attached) if self._caller.answers is None else []
        if not recording:
            self._deliver(call, body)
            return
        record = self._loop.create_task(self._record(call, body, recording))
        self._records.add(record)
        record.add_done_callback(self._records.discard)

    async def _record(self, call: _Call, body: bytes, recording: Sequence[Recorder]) -> None:
        for recorder in recording:
            try:
                async with asyncio.timeout(RECORD_TIMEOUT_S), call.recording:
                    await contained(recorder.call_finished(self._finished(call)))
            except Exception as error:  # noqa: BLE001 - of the caller's own code
                message = f"the host tool has run, but {_not_recorded(call, error)}"
                if call.ended is not None and call.ended.outcome == "ok":
                    call.ended = replace(
                        call.ended,
                        outcome="error",
                        result=None,
                        error=ErrorInfo("RuntimeError", message),
                        images=(),
                        error_bases=("RuntimeError",),
                    )
                    body = write_error("RuntimeError", message, ["RuntimeError"])
        self._deliver(call, body)

    def _finished(self, call: _Call) -> CallFinished:
        return CallFinished(call.intent or self._intent(call), _so_far(call))

    def _deliver(self, call: _Call, body: bytes) -> None:
        self._calls[call.position - 1] = ended = _so_far(call)
        if self._caller.on_call is not None:
            self._caller.on_call(ended)
        if self._attached and self._caller.answers is None:
            notify(self._attached, "call_finished", self._finished(call))
        if not self._ended:
            self._answer(call.number, body)

    def _answer(self, number: int, body: bytes) -> None:
        assert self.send is not None
        self._cancelled.discard(number)
        self._open.discard(number)
        self.send(_NUMBER.pack(number) + body)

    def end(self) -> None:
        """Cancel the calls that run, and answer nothing any more."""
        self._ended = True
        for call in list(self._running.values()):
            self._call_off(call, "cancelled", "CancelledError", "the block ended first", [])

    async def close(self) -> None:
        """Cancel the calls, give their tools a second to clean up, and wait until all calls are recorded."""
        self.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_GRACE_S)
        if self._records:
            await asyncio.wait(self._records, timeout=RECORD_TIMEOUT_S)
        for task, call in self._tasks.items():
            if not task.done():
                logger.warning("the host tool %s goes on though its block has ended", call.name)


def _not_recorded(call: _Call, error: Exception) -> str:
    logger.exception("recording a call to the host tool %s failed", call.name)
    kind, message, _ = describe_error(error)
    if isinstance(error, TimeoutError) and not message:
        return f"it was not recorded within {RECORD_TIMEOUT_S:g} s"
    return f"it could not be recorded: {kind}: {message}"


def _so_far(call: _Call) -> ToolCall:
    return call.ended or ToolCall(call.name, call.arguments, "cancelled")
