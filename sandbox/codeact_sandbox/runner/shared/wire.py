"""Frames on a byte stream; the same layout to the host and between the processes of the sandbox.

A frame is one header (type, id, length of the payload; network byte order) and its payload. A payload that carries both a
message and bytes begins with the length of the message. See docs/protocol.md.
"""

import array
import collections
import fcntl
import itertools
import json
import os
import socket
import struct

# Types of frames, one letter each; each direction has letters of its own. docs/protocol.md says what they carry.
# Host to supervisor:
CONFIGURATION = b"C"
RUN_BLOCK = b"X"  # also supervisor to worker
KILL_BLOCK = b"K"
FILE_REQUEST = b"F"
TAKE_CHECKPOINT = b"P"  # also supervisor to worker
ROLL_BACK = b"R"
KEEP_ALIVE = b"L"
TOOL_ANSWER = b"T"  # also supervisor to block
CHANNEL = b"N"  # both ways
JOB = b"J"  # both ways
COMPILED_MODULES = b"M"  # both ways, as long as the sandbox starts
MODULE_SOURCES = b"B"  # both ways: a request has no content
# Supervisor to host:
HELLO = b"H"
STDOUT = b"O"
STDERR = b"E"
DISPLAY = b"V"  # also worker to supervisor, which answers with the same letter
BLOCK_RESULT = b"D"
ANSWER = b"A"
TOOL_CALL = b"T"  # also block to supervisor
CANCEL_CALL = b"U"  # also block to supervisor
FATAL_ERROR = b"!"
# Supervisor to zygote:
FORK_WORKER = b"W"
ADD_TOOLS = b"T"
# Zygote to supervisor:
ZYGOTE_READY = b"H"
WORKER_FORKED = b"S"
WORKER_EXITED = b"X"
# Supervisor to a sleeping checkpoint, and its answer:
RESUME = b"G"
RESUMED = b"G"
# Worker to supervisor:
CHECKPOINT_TAKEN = b"C"
CODE_NOT_SAVED = b"M"
BLOCK_DONE = b"D"

HEADER = struct.Struct("!cII")
PREFIX = struct.Struct("!I")
MAX_PAYLOAD = 8 * 1024 * 1024
# Inside the sandbox a request also carries the session's environment.
MAX_REQUEST = 32 * 1024 * 1024
# A frame of a process that runs user code.
MAX_REPORT = 4 * 1024 * 1024
SMALL_REPORT = 16 * 1024
# More names and values than the environment of any program has.
MAX_QUOTES = 400_000
MAX_DIGITS = 20
MAX_FDS = 16
# Of one display in bytes, so that it fits into a report; of a block in displays and in bytes.
MAX_DISPLAY = 4_000_000
MAX_DISPLAYS = 100
MAX_DISPLAY_BYTES = 16_000_000
# Of one display: its values, the length of the name of each, and bytes of its metadata and of the line that stands for it.
MAX_TYPES = 20
MAX_TYPE_CHARS = 100
MAX_METADATA = 16 * 1024
MAX_LINE = 80 * 1024
MAX_CHUNKS_AT_ONCE = 64
FDS_SPACE = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
CREDENTIALS = struct.Struct("iII")
ENDED = 0  # gVisor's number of a sender that has ended
# No larger: without space for descriptors the kernel drops those that user code sends.
CREDENTIALS_SPACE = socket.CMSG_LEN(CREDENTIALS.size)
READ_SIZE = 64 * 1024  # what a pipe holds; larger buffers would be mapped and unmapped for each frame


class ProtocolError(ValueError):
    """The other side sent what the protocol does not allow."""


class Closed(Exception):
    """The other side has closed the stream."""


def _integer(text):
    """Parse a number; one of a million digits would keep PID 1 busy for seconds."""
    if len(text) > MAX_DIGITS:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)


# References of its own: user code may replace the functions of the module json.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_int=_integer).decode


def random_id():
    """Return a number for a request to a process that runs user code: leftovers of earlier blocks can't forge its answer."""
    return int.from_bytes(os.urandom(4), "big")


def pack(kind, ident, message=None, data=b"", limit=MAX_PAYLOAD):
    if message is not None:
        head = _encode(message).encode("ascii")
        data = PREFIX.pack(len(head)) + head + data
    if len(data) > limit:
        raise ProtocolError("a payload of %d bytes exceeds %d" % (len(data), limit))
    return HEADER.pack(kind, ident, len(data)) + data


def unpack(payload):
    try:
        (size,) = PREFIX.unpack_from(payload)
        end = PREFIX.size + size
        if end > len(payload):
            raise ValueError("the message is longer than its frame")
        message = _decode(bytes(payload[PREFIX.size : end]).decode("utf-8"))
    except (struct.error, ValueError, RecursionError) as error:
        raise ProtocolError("bad message: %s" % error) from None
    if not isinstance(message, dict):
        raise ProtocolError("bad message: not an object")
    return message, bytes(payload[end:])


def check_report(payload):
    """Check that a message from a process that runs user code is cheap to parse: few numbers, lists and objects."""
    if len(payload) <= SMALL_REPORT:
        return
    end = PREFIX.size + int.from_bytes(payload[: PREFIX.size], "big")
    text = payload[PREFIX.size : end].replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > MAX_QUOTES:
        raise ProtocolError("a message with too many strings")
    if len(b"".join(text.split(b'"')[::2]).translate(None, b":,")) > SMALL_REPORT:
        raise ProtocolError("a message with too many parts")


class Parser:
    def __init__(self, max_payload=MAX_PAYLOAD):
        self.buffer = bytearray()
        self.max_payload = max_payload
        self.error = None

    def feed(self, data):
        """Add bytes; return the frames that are complete as (type, id, payload), also those before one that is not allowed."""
        if self.error is not None:
            raise self.error
        self.buffer += data
        frames = []
        start = 0
        while len(self.buffer) - start >= HEADER.size:
            kind, ident, length = HEADER.unpack_from(self.buffer, start)
            if length > self.max_payload:
                text = "a frame announces %d bytes; at most %d are allowed" % (length, self.max_payload)
                self.error = ProtocolError(text)
                if not frames:
                    raise self.error
                return frames
            end = start + HEADER.size + length
            if len(self.buffer) < end:
                break
            frames.append((kind, ident, bytes(self.buffer[start + HEADER.size : end])))
            start = end
        del self.buffer[:start]
        return frames


class Outbox:
    """Bytes that wait to be written to a non-blocking descriptor."""

    def __init__(self, fd, sock=None):
        self.fd = fd
        self.sock = sock
        self.chunks = collections.deque()
        self.size = 0

    def put(self, frame, fds=()):
        """Queue a frame; descriptors go with its first byte, and are closed."""
        self.chunks.append((memoryview(frame), fds))
        self.size += len(frame)

    def flush(self):
        while self.chunks:
            try:
                written = self._write()
            except BlockingIOError:
                return False
            self.size -= written
            while written:
                view, fds = self.chunks[0]
                close_all(fds)
                if written < len(view):
                    self.chunks[0] = (view[written:], ())
                    break
                written -= len(view)
                self.chunks.popleft()
        return True

    def close(self):
        while self.chunks:
            close_all(self.chunks.popleft()[1])

    def _write(self):
        """Write the first chunk, and with it the following ones that carry no descriptors."""
        view, fds = self.chunks[0]
        if fds:
            return self.sock.sendmsg([view], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        if len(self.chunks) == 1:
            return os.write(self.fd, view)
        plain = itertools.takewhile(lambda chunk: not chunk[1], self.chunks)
        return os.writev(self.fd, [view for view, _ in itertools.islice(plain, MAX_CHUNKS_AT_ONCE)])


def report_senders(sock):
    """Make the kernel report the sending process of all data that a socket receives from now on."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def receive(sock):
    """Receive bytes and the id of the process that has sent them, which it can't forge; the kernel never merges those of two."""
    data, ancillary, _, _ = sock.recvmsg(READ_SIZE, CREDENTIALS_SPACE)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(payload) == CREDENTIALS.size:
            return data, CREDENTIALS.unpack(payload)[0]
    return data, 0


def close_all(fds):
    for fd in set(fds):
        os.close(fd)


class BlockingReader:
    """Reads frames, and the descriptors that came with them, from a blocking socket."""

    def __init__(self, sock):
        self.sock = sock
        self.parser = Parser(MAX_REQUEST)
        self.frames = collections.deque()
        self.fds = collections.deque()

    def read(self):
        """Wait for the next frame, and return it as (type, id, payload)."""
        while not self.frames:
            data, ancillary, _, _ = self.sock.recvmsg(READ_SIZE, FDS_SPACE, socket.MSG_CMSG_CLOEXEC)
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
        """Take the next descriptors that came, close-on-exec, and never 0 to 2: a block may have closed these."""
        if len(self.fds) < count:
            raise ProtocolError("%d descriptors are missing" % (count - len(self.fds)))
        return [move_above_stdio(self.fds.popleft()) for _ in range(count)]


def move_above_stdio(fd):
    """Move a descriptor away from 0 to 2, which are the next block's standard streams."""
    if fd > 2:
        return fd
    higher = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return higher
