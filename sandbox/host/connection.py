"""The host's end of the stream to a runner: requests out, answers and output back. One thread for each connection reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from autogen_codeact.sandbox.displays import Display
from autogen_codeact.sandbox.errors import SandboxDied, SandboxError, SandboxProtocolError
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.host import protocol
from autogen_codeact.sandbox.host.display_frames import Displays
from autogen_codeact.sandbox.host.messages import DisplayMessage
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.host.stream import ByteStream
from autogen_codeact.sandbox.host.transport import Transport
from autogen_codeact.sandbox.host.waiting import new_future

EXIT_DETAIL_TIMEOUT_S = 2.0
OutputCallback = Callable[[bytes, bytes | Display], None]
"""Called in the connection's thread with the type of a frame and its content, as they come: output, or a display."""
Handler = Callable[[int, bytes], None]
"""Called in the connection's thread with the id and the payload of a frame."""


class State(Enum):
    """The states of a connection, in their order."""

    CONNECTING = "connecting"
    """The runner has not sent its hello."""
    READY = "ready"
    """Requests are answered."""
    CLOSING = "closing"
    """One side has ended the stream, or it broke: nothing is sent or received any more."""
    CLOSED = "closed"
    """The stream is closed, and everybody who waited has been notified."""


_NEXT = {
    State.CONNECTING: (State.READY, State.CLOSING),
    State.READY: (State.CLOSING,),
    State.CLOSING: (State.CLOSED,),
    State.CLOSED: (),
}
# A preloaded module may open a channel before the hello.
_ALLOWED = {
    State.CONNECTING: (Frame.MODULE_SOURCES, Frame.COMPILED_MODULES, Frame.HELLO, Frame.CHANNEL, Frame.FATAL_ERROR),
    State.READY: (
        *(Frame.STDOUT, Frame.STDERR, Frame.DISPLAY, Frame.BLOCK_RESULT, Frame.ANSWER),
        *(Frame.TOOL_CALL, Frame.CANCEL_CALL, Frame.CHANNEL, Frame.FATAL_ERROR),
    ),
}


@dataclass
class Reply:
    """The answer to one request.

    Args:
        message: The message of its frame.
        data: The bytes of its frame.
        streams: The output before it, by type of frame (`Frame.STDOUT`, `Frame.STDERR`).
        displays: What the block has shown before it.
    """

    message: dict[str, Any]
    data: bytes
    streams: dict[bytes, bytearray]
    displays: Displays = field(default_factory=Displays)


@dataclass
class _Pending:
    """A request without an answer yet, and how much more output it may have."""

    reply: Future[Reply]
    output_room: int
    on_output: OutputCallback | None
    streams: dict[bytes, bytearray] = field(default_factory=dict)
    displays: Displays = field(default_factory=Displays)


class Connection:
    """Frames over a stream.

    Args:
        stream: The stream; the connection closes it.
        name: Name of the sandbox, for the thread and for messages.
        keep_alive_s: Seconds between two keep-alive frames, or None for none.
    """

    def __init__(self, stream: ByteStream, name: str, *, keep_alive_s: float | None = None) -> None:
        self.hello: Future[dict[str, Any]] = new_future()
        """The runner's first message."""
        self.ended: Future[SandboxError] = new_future()
        """Completed with the reason when the connection is closed."""
        self.error: SandboxError | None = None
        """Why it is closed, or None."""
        self.handlers: dict[bytes, Handler] = {
            Frame.HELLO: self._on_hello,
            Frame.STDOUT: partial(self._on_output, Frame.STDOUT),
            Frame.STDERR: partial(self._on_output, Frame.STDERR),
            Frame.DISPLAY: self._on_display,
            Frame.BLOCK_RESULT: self._on_reply,
            Frame.ANSWER: self._on_reply,
            Frame.FATAL_ERROR: self._on_fatal,
        }
        """Who processes frames, by type; to be completed before `open`."""
        self.state = State.CONNECTING
        """Only this class changes it."""
        self._stream = stream
        self._name = name
        self._transport = Transport(stream, keep_alive_s=keep_alive_s)
        self._parser = protocol.Parser()
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"codeact-{name}", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, frame: bytes) -> None:
        """Send a frame that has no answer."""
        self._transport.send(frame)

    def send_bulk(self, frame: bytes, on_start: Callable[[], None]) -> None:
        """Send a frame when no other frame is queued: see `Transport.send_bulk`."""
        self._transport.send_bulk(frame, on_start)

    def request(
        self,
        kind: bytes,
        ident: int,
        message: Mapping[str, Any],
        data: bytes = b"",
        *,
        output_room: int = 0,
        on_output: OutputCallback | None = None,
    ) -> Future[Reply]:
        """Send a request.

        Args:
            kind: Type of the frame.
            ident: Its number.
            message: Its message.
            data: Its bytes.
            output_room: Bytes of output that may come before the answer.
            on_output: Called with output as it comes.

        Returns:
            A future of the answer, which can't be cancelled; it fails with a `SandboxError` when the sandbox ends first.

        Raises:
            ValueError: The request does not fit into a frame.
        """
        frame = protocol.pack(kind, ident, message, data)
        reply: Future[Reply] = new_future()
        with self._lock:
            if self.error is not None:
                reply.set_exception(self.error)
                return reply
            self._pending[ident] = _Pending(reply, output_room, on_output)
        self._transport.send(frame)
        return reply

    @property
    def is_quiet(self) -> bool:
        """Whether it works and no request waits for its answer."""
        with self._lock:
            return self.state is State.READY and not self._pending

    def close(self, timeout_s: float) -> bool:
        """Close the stream and wait for the thread.

        Args:
            timeout_s: How long to wait, in seconds.

        Returns:
            Whether the thread has ended.
        """
        self._begin_closing()
        if self._thread.ident is None:
            self._finish(SandboxDied(f"the sandbox {self._name} was stopped"))
        elif self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin_closing(self) -> None:
        self._enter(State.CLOSING)
        self._transport.stop()

    def _enter(self, state: State) -> bool:
        """Change the state, and return True; return False if the connection is already in a later state."""
        with self._lock:
            possible = state in _NEXT[self.state]
            if possible:
                self.state = state
        return possible

    # In the connection's thread

    def _run(self) -> None:
        error: SandboxError
        try:
            self._transport.serve(self._on_data)
            error = SandboxDied(f"the sandbox {self._name} was stopped")
        except SandboxError as broken:
            error = broken
        except EOFError:
            error = SandboxDied(f"the sandbox {self._name} ended: {self._exit_detail()}")
        except OSError as broken:
            error = SandboxDied(f"the stream to the sandbox {self._name} broke ({broken}); {self._exit_detail()}")
        except Exception as broken:  # noqa: BLE001 - who waits must be notified of any error
            error = SandboxProtocolError(f"talking to the sandbox {self._name} failed: {broken!r}")
        self._finish(error)

    def _exit_detail(self) -> str:
        self._begin_closing()  # what follows may take a while
        return self._stream.wait_exit(EXIT_DETAIL_TIMEOUT_S)

    def _on_data(self, data: bytes) -> None:
        for kind, ident, payload in self._parser.feed(data):
            state = self.state
            if state not in _ALLOWED:
                return  # it was sent before the connection was closed
            handler = self.handlers.get(kind)
            if handler is None:
                raise SandboxProtocolError(f"the sandbox {self._name} sent a frame of unknown type {kind!r}")
            if kind not in _ALLOWED[state]:
                raise SandboxProtocolError(f"the sandbox {self._name} sent {Frame(kind).name} while {state.value}")
            handler(ident, payload)

    def _on_hello(self, _ident: int, payload: bytes) -> None:
        message, _ = protocol.unpack(payload)
        if self._enter(State.READY):
            self.hello.set_result(message)

    def _on_output(self, kind: bytes, ident: int, payload: bytes) -> None:
        with self._lock:
            pending = self._pending.get(ident)
        if pending is None:
            return  # nobody waits for it any more
        pending.output_room -= len(payload)
        if pending.output_room < 0:
            raise SandboxProtocolError(f"the sandbox {self._name} sent more output than its limit allows")
        pending.streams.setdefault(kind, bytearray()).extend(payload)
        if pending.on_output is not None:
            pending.on_output(kind, payload)

    def _on_display(self, ident: int, payload: bytes) -> None:
        message, data = protocol.unpack(payload)
        checked = DisplayMessage.parse(message, len(data))
        with self._lock:
            pending = self._pending.get(ident)
        if pending is None:
            return  # nobody waits for it any more
        shown = pending.displays.add(checked, data)
        if shown is not None and pending.on_output is not None:
            pending.on_output(Frame.DISPLAY, shown)

    def _on_reply(self, ident: int, payload: bytes) -> None:
        message, data = protocol.unpack(payload)
        with self._lock:
            pending = self._pending.pop(ident, None)
        if pending is not None:
            pending.reply.set_result(Reply(message, data, pending.streams, pending.displays))

    def _on_fatal(self, _ident: int, payload: bytes) -> None:
        message, _ = protocol.unpack(payload)
        raise SandboxProtocolError(f"the sandbox {self._name} gave up: {printable(str(message.get('error'))[:2000])}")

    def _finish(self, error: SandboxError) -> None:
        """Close the stream and notify everybody who waits."""
        self._begin_closing()
        self._transport.close()
        with self._lock:
            if self.state is State.CLOSED:
                return
            self.state, self.error = State.CLOSED, error
            pending, self._pending = self._pending, {}
        self.ended.set_result(error)
        if not self.hello.done():
            self.hello.set_exception(error)
        for waiting in pending.values():
            waiting.reply.set_exception(error)
