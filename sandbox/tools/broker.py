"""Runs host tools for the blocks of a sandbox: on a list, within limits, approved, cancelled with the block, recorded."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_core import CancellationToken, Image
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors.tools.host_tools import sources
from autogen_codeact.sandbox.errors import SandboxProtocolError
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.limits import parse_size
from autogen_codeact.sandbox.result import CallOutcome, ErrorInfo, ToolCall
from autogen_codeact.sandbox.run_context import RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.payloads import (
    Request,
    describe_error,
    read_call,
    traceback_of,
    write_answer,
    write_error,
)
from autogen_codeact.sandbox.tools.tool import HostTool, ToolAnswer, ToolArgumentError

logger = logging.getLogger("autogen_codeact")

CANCEL_GRACE_S = 1.0
_NUMBER = struct.Struct("!I")


class NotAllowed(Exception):
    """A call that is not made.

    Args:
        kind: Name of the exception that the code gets.
        reason: Why.
        bases: Builtin exceptions that it can be caught as.
        refused: Whether the code gets a `ToolRefused`. Default: if that is its kind.
    """

    def __init__(self, kind: str, reason: str, *bases: str, refused: bool | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.bases = list(bases)
        self.refused = kind == "ToolRefused" if refused is None else refused


class ToolBroker:
    """Knows the tools, and what a block may do with them.

    Args:
        tools: The tools.
        limits: How much a block may use.
        approve: Asked before each call; None to allow all.

    Raises:
        ValueError: Two tools have the same name, or one has a name that is none.
    """

    def __init__(self, tools: Sequence[HostTool], limits: ToolLimits, approve: ApproveTool | None = None) -> None:
        self.tools: dict[str, HostTool] = {}
        self.limits = limits
        self.approve = approve
        self.unasked: set[str] = set()
        self.swap((), tools)

    def swap(self, old: Sequence[HostTool], new: Sequence[HostTool]) -> None:
        """Replace some of the tools by others.

        Args:
            old: Those that go.
            new: Those that come.

        Raises:
            ValueError: Two tools have the same name, or one has a name that is none; nothing has changed.
        """
        staying = {name: tool for name, tool in self.tools.items() if tool not in old}
        names = [*staying, *(tool.name for tool in new)]
        if double := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two host tools have the same name ({', '.join(double)}): rename one")
        for name in names:
            if not name.isidentifier() or name.startswith("_"):
                raise ValueError(f"{name!r} can't be the name of a host tool: use a Python name without a leading _")
        self.tools = {**staying, **{tool.name: tool for tool in new}}

    def asks_for(self, tool: HostTool) -> ApproveTool | None:
        """Who is asked before a call to a tool; None for nobody."""
        return None if tool.name in self.unasked else self.approve

    def settings(self) -> dict[str, Any]:
        """What the runner has to know when it starts."""
        return {
            "sources": sources(list(self.tools.values())),
            "in_flight": self.limits.in_flight,
            "call_bytes": parse_size(self.limits.call_bytes),
        }

    def block(self, block: CodeBlock, context: RunContext) -> BlockCalls:
        """Make what takes the calls of one block, on the running event loop."""
        return BlockCalls(self, block, context)


@dataclass(eq=False)
class _Call:
    number: int
    began: float
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    outcome: CallOutcome | None = None
    result: Any = None
    error: ErrorInfo | None = None
    duration_s: float = 0.0
    images: tuple[Image, ...] = ()
    error_bases: tuple[str, ...] = ()
    token: CancellationToken = field(default_factory=CancellationToken)
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class BlockCalls:
    """The calls of one block.

    Args:
        broker: The broker.
        block: The block.
        context: What its caller adds.
    """

    def __init__(self, broker: ToolBroker, block: CodeBlock, context: RunContext) -> None:
        self._broker = broker
        self._limits = broker.limits
        self._block = block
        self._loop = asyncio.get_running_loop()
        # Tools see the context variables of who runs the block, not those of the connection's thread.
        self._context = contextvars.copy_context()
        self._caller = context
        self._send: Callable[[bytes], None] | None = None
        self._open: set[int] = set()
        self._undone: set[int] = set()
        self._calls: list[_Call] = []
        self._running: dict[int, _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._not_made = 0
        self._bytes_in = self._bytes_out = 0

    @property
    def ledger(self) -> tuple[ToolCall, ...]:
        """The calls so far, in the order they began."""
        return tuple(_record(call) for call in self._calls)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the result has to say of them besides."""
        if not self._not_made:
            return ()
        return (f"{self._not_made:,} more calls to host tools were refused, because the block had used up its budget.",)

    def open(self, send: Callable[[bytes], None]) -> None:
        """Learn how to answer."""
        self._send = send

    # In the connection's thread

    def on_frame(self, kind: bytes, payload: bytes) -> None:
        """Take a call, or the word that nobody waits for one any more.

        Raises:
            SandboxProtocolError: It is more than the limits allow.
        """
        if len(payload) < _NUMBER.size or len(payload) > _NUMBER.size + parse_size(self._limits.call_bytes):
            raise SandboxProtocolError(f"the sandbox sent a call of {len(payload):,} bytes")
        (number,) = _NUMBER.unpack_from(payload)
        if kind == Frame.CANCEL_CALL:
            if number in self._open and number not in self._undone:
                self._undone.add(number)
                self._hand_over(self._undo, number)
            return
        if number in self._open or len(self._open) >= self._limits.in_flight:
            raise SandboxProtocolError("the sandbox sent more calls at once than its limits allow")
        self._open.add(number)
        self._hand_over(self._take, number, payload[_NUMBER.size :])

    def _hand_over(self, work: Callable[..., None], *arguments: Any) -> None:
        # Where the loop has been closed, nobody waits for the block any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work, *arguments, context=self._context)

    # On the event loop

    def _take(self, number: int, payload: bytes) -> None:
        if self._ended:
            return
        call = _Call(number, time.monotonic())
        if len(self._calls) >= self._limits.calls or self._bytes_in + len(payload) > parse_size(self._limits.bytes_in):
            self._refuse_for_budget(call)
            return
        self._bytes_in += len(payload)
        self._calls.append(call)
        self._running[number] = call
        call.task = self._loop.create_task(self._serve(call, payload))
        self._tasks.add(call.task)
        call.task.add_done_callback(self._tasks.discard)

    def _refuse_for_budget(self, call: _Call) -> None:
        self._not_made += 1
        limits = self._limits
        reason = f"a block may make {limits.calls:,} calls to host tools with {limits.bytes_in} of arguments, and has made them"
        self._answer(call.number, write_error("ToolBudgetExceeded", reason, ["RuntimeError"]))

    async def _serve(self, call: _Call, payload: bytes) -> None:
        """Make one call; nothing that a tool raises gets past this."""
        try:
            request = await self._read(call, payload)
            answers = self._caller.answers
            if answers is None:
                answer = await self._make(call, request)
            else:
                call.timer = self._loop.call_later(self._limits.seconds, self._out_of_time, call)
                answer = await answers(request.name, request.copies[1])
            body, result = await self._written(answer.value)
            if call.outcome is None:
                call.images = tuple(answer.images)
                self._bytes_out += len(body)
                self._settle(call, "ok", body, result)
        except NotAllowed as error:
            self._fail(call, "refused", error.kind, error.reason, error.bases, refused=error.refused)
        except BaseException as error:  # noqa: BLE001 - SystemExit and its like would end the host's loop
            kind, message, bases = describe_error(error)
            if isinstance(error, ToolArgumentError):
                kind = "TypeError"
            elif call.outcome is None and not isinstance(error, asyncio.CancelledError):
                # Without its arguments, which may contain secrets. Not a warning, because the code gets and handles the error.
                logger.info("the host tool %s failed:\n%s", call.name, traceback_of(error))
            self._fail(call, "error", kind, message, bases)

    async def _written(self, value: Any) -> tuple[bytes, Any]:
        body, result = await write_answer(value, parse_size(self._limits.answer_bytes))
        if self._bytes_out + len(body) > parse_size(self._limits.bytes_out):
            raise ValueError(f"the results that one block gets may have {self._limits.bytes_out}; this one has no room")
        return body, result

    async def _read(self, call: _Call, payload: bytes) -> Request:
        try:
            request = await read_call(payload, 3 if self._broker.approve is not None else 2)
        except ValueError as error:
            raise NotAllowed("BadCall", str(error), "ValueError") from None
        call.name, call.arguments = request.name, request.copies[0]
        return request

    async def _make(self, call: _Call, request: Request) -> ToolAnswer:
        """See whether the call may be made, and make it."""
        tool = self._caller.tools.get(request.name) or self._broker.tools.get(request.name)
        if tool is None:
            known = ", ".join(self._broker.tools)
            raise NotAllowed(
                "UnknownTool", f"there is no host tool {request.name[:200]!r}; there are: {known}", "NameError"
            )
        approve = self._broker.asks_for(tool)
        if approve is not None:
            block, token = self._block, call.token
            asked = ToolApprovalRequest(
                tool.name, request.copies[2], tool.signature, tool.description, block.code, block.language, token
            )
            await self._ask(approve, asked)
        call.timer = self._loop.call_later(self._limits.seconds, self._out_of_time, call)
        return await tool.run(request.copies[1], call.token)

    async def _ask(self, approve: ApproveTool, request: ToolApprovalRequest) -> None:
        try:
            answer = await approve(request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            logger.exception("asking for the approval of a call to the host tool %s failed", request.name)
            kind, message, _ = describe_error(error)
            raise NotAllowed("ToolRefused", f"it could not be approved: {kind}: {message}") from None
        if not isinstance(answer, ToolApproval):
            raise NotAllowed("ToolRefused", f"approve_tool gave back no ToolApproval but a {type(answer).__name__}")
        if answer.approved is not True:
            raise NotAllowed("ToolRefused", answer.reason or "it was not approved")

    def _out_of_time(self, call: _Call) -> None:
        text = f"the host tool {call.name} did not answer within {self._limits.seconds:g} s"
        self._fail(call, "timeout", "TimeoutError", text, ["TimeoutError"])
        self._call_off(call)

    def _undo(self, number: int) -> None:
        call = self._running.get(number)
        if call is not None:
            self._fail(call, "cancelled", "CancelledError", "the code did not wait for it any more", [])
            self._call_off(call)

    def _fail(
        self, call: _Call, outcome: CallOutcome, kind: str, message: str, bases: list[str], *, refused: bool = False
    ) -> None:
        if call.outcome is None:
            call.error, call.error_bases = ErrorInfo(kind, message), tuple(bases)
            self._settle(call, outcome, write_error(kind, message, bases, refused=refused))

    def _settle(self, call: _Call, outcome: CallOutcome, body: bytes, result: Any = None) -> None:
        """Write down how it ended, once, and answer."""
        call.outcome, call.result = outcome, result
        call.duration_s = time.monotonic() - call.began
        if call.timer is not None:
            call.timer.cancel()
        del self._running[call.number]
        if self._caller.on_call is not None:
            self._caller.on_call(_record(call))
        if not self._ended:
            self._answer(call.number, body)

    def _answer(self, number: int, body: bytes) -> None:
        assert self._send is not None
        self._undone.discard(number)
        self._open.discard(number)
        self._send(_NUMBER.pack(number) + body)

    def _call_off(self, call: _Call) -> None:
        """Cancel what may not even notice."""
        try:
            call.token.cancel()
        except Exception:
            logger.exception("calling off the host tool %s failed", call.name)
        if call.task is not None:
            call.task.cancel()

    def end(self) -> None:
        """Call off what runs; nothing is answered any more."""
        self._ended = True
        for call in list(self._running.values()):
            self._fail(call, "cancelled", "CancelledError", "the block ended first", [])
            self._call_off(call)

    async def close(self) -> None:
        """End, and give tools a moment to clean up; one that goes on all the same is left alone."""
        self.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_GRACE_S)
        for call in self._calls:
            if call.task is not None and not call.task.done():
                logger.warning("the host tool %s goes on though its block has ended", call.name)


def _record(call: _Call) -> ToolCall:
    outcome = call.outcome or "cancelled"
    return ToolCall(
        call.name,
        call.arguments,
        outcome,
        call.result,
        call.error,
        call.duration_s,
        call.images,
        error_bases=call.error_bases,
    )
