"""Frames on a byte stream; the same layout to the host and between the processes of the sandbox.

A frame is one header (type, id, length of the payload; network byte order) and its payload. A payload that carries both a
message and bytes begins with the length of the message. See docs/protocol.md.
"""

import array
import collections
import json
import os
import socket
import struct

HEADER = struct.Struct("!cII")
PREFIX = struct.Struct("!I")
MAX_PAYLOAD = 8 * 1024 * 1024
READ_SIZE = 256 * 1024


class ProtocolError(Exception):
    """The other side sent what the protocol does not allow."""


class Closed(Exception):
    """The other side has closed the stream."""


def pack(kind, ident, message=None, data=b""):
    """Make a frame.

    Args:
        kind: One byte that names the type.
        ident: Number of the request, 0 where there is none.
        message: What goes into JSON, or None for a payload of bytes alone.
        data: Bytes after the message.

    Returns:
        The frame.

    Raises:
        ProtocolError: It would be larger than `MAX_PAYLOAD`.
    """
    if message is not None:
        head = json.dumps(message, separators=(",", ":")).encode("ascii")
        data = PREFIX.pack(len(head)) + head + data
    if len(data) > MAX_PAYLOAD:
        raise ProtocolError("a payload of %d bytes exceeds %d" % (len(data), MAX_PAYLOAD))
    return HEADER.pack(kind, ident, len(data)) + data


def unpack(payload):
    """Split a payload into its message and its bytes.

    Args:
        payload: Payload of a frame made with a message.

    Returns:
        The message, a dict, and the bytes.

    Raises:
        ProtocolError: It holds no well-formed message.
    """
    try:
        (size,) = PREFIX.unpack_from(payload)
        end = PREFIX.size + size
        if end > len(payload):
            raise ValueError("the message is longer than its frame")
        message = json.loads(bytes(payload[PREFIX.size : end]).decode("utf-8"))
    except (struct.error, ValueError, RecursionError) as error:
        raise ProtocolError("bad message: %s" % error) from None
    if not isinstance(message, dict):
        raise ProtocolError("bad message: not an object")
    return message, bytes(payload[end:])


class Parser:
    """Cuts a stream of bytes into frames."""

    def __init__(self, max_payload=MAX_PAYLOAD):
        self.buffer = bytearray()
        self.max_payload = max_payload

    def feed(self, data):
        """Take in bytes and return the frames that are now whole, as (type, id, payload)."""
        self.buffer += data
        frames = []
        start = 0
        while len(self.buffer) - start >= HEADER.size:
            kind, ident, length = HEADER.unpack_from(self.buffer, start)
            if length > self.max_payload:
                raise ProtocolError("a frame announces %d bytes; at most %d are allowed" % (length, self.max_payload))
            end = start + HEADER.size + length
            if len(self.buffer) < end:
                break
            frames.append((kind, ident, bytes(self.buffer[start + HEADER.size : end])))
            start = end
        del self.buffer[:start]
        return frames


class Outbox:
    """Bytes that wait until a file descriptor that does not block can take them."""

    def __init__(self, fd):
        self.fd = fd
        self.chunks = collections.deque()
        self.size = 0

    def put(self, frame):
        self.chunks.append(memoryview(frame))
        self.size += len(frame)

    def flush(self):
        """Write what can be written now; True when nothing waits any more."""
        while self.chunks:
            try:
                written = os.write(self.fd, self.chunks[0])
            except BlockingIOError:
                return False
            self.size -= written
            if written == len(self.chunks[0]):
                self.chunks.popleft()
            else:
                self.chunks[0] = self.chunks[0][written:]
        return True


def send_with_fds(sock, frame, fds=()):
    """Send a frame on a blocking socket, with open descriptors for the receiver."""
    view = memoryview(frame)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sent = sock.sendmsg([view], ancillary)
    if sent < len(frame):
        sock.sendall(view[sent:])


class BlockingReader:
    """Reads frames, and the descriptors that came with them, from a blocking socket."""

    def __init__(self, sock):
        self.sock = sock
        self.parser = Parser()
        self.frames = collections.deque()
        self.fds = collections.deque()

    def read(self):
        """Wait for the next frame.

        Returns:
            (type, id, payload).

        Raises:
            Closed: The other side is gone.
        """
        while not self.frames:
            data, ancillary, _, _ = self.sock.recvmsg(READ_SIZE, socket.CMSG_SPACE(16 * array.array("i").itemsize))
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                    self.fds.extend(fds)
            if not data:
                raise Closed()
            self.frames.extend(self.parser.feed(data))
        return self.frames.popleft()

    def take_fds(self, count):
        """Take the next descriptors that came, close-on-exec."""
        taken = [self.fds.popleft() for _ in range(count)]
        for fd in taken:
            os.set_inheritable(fd, False)
        return taken
