"""Displays of a block: MIME bundles that go to the host beside the output, in which a line stands for each of them.

`publish` is the one way for a display to the host. `show` (the function `display`), values of cells and figures use it; so can
a shell that formats objects itself (`Formatter.format`).
"""

import json
import os
import sys
import threading

from . import mime, wire

# Bounds of one display and of a block; the supervisor and the host check them again.
DISPLAY_BYTES = wire.MAX_DISPLAY
BLOCK_BYTES = wire.MAX_DISPLAY_BYTES
BLOCK_DISPLAYS = wire.MAX_DISPLAYS
TEXT_BYTES = 64 * 1024
METADATA_BYTES = 16 * 1024
REPR_SECONDS = 10.0
ENOUGH = "more than %d displays, or %d bytes of them, in one block are not kept"


class Block:
    """The displays of the running block."""

    def __init__(self, send, folder):
        self.send = send
        self.folder = folder
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.sending = False
        self.count = self.size = self.left_out = 0
        self.names = {}

    def has_room(self):
        """Return whether another display can be kept."""
        return self.count < BLOCK_DISPLAYS and self.size < BLOCK_BYTES


class State:
    """What lasts longer than a block."""

    block = None
    number = 0

    @staticmethod
    def is_late():
        """Return whether the current thread belongs to an earlier block; a session replaces this."""
        return False


class Formatter:
    """How objects become bundles, and who takes them: replaced once a shell is loaded that does it.

    `capture` is called with the bundle and its metadata, and returns whether it has taken them.
    """

    format = None
    capture = None


def begin(send, folder):
    """Accept the displays of a block; arguments as for `Block`."""
    State.block = Block(send, folder)


def end():
    """End the block: what threads show later is not kept."""
    block, State.block = State.block, None
    if block is None:
        return 0
    with block.lock:  # a thread may be sending
        return block.left_out


def has_room():
    """Return whether the block can have another display; what is costly to make need not be made otherwise."""
    return State.block is not None and State.block.has_room()


def publish(data, metadata=None, display_id=None, update=False, echo=True):
    """Send a display to the host, and write the line that stands for it to standard output."""
    if Formatter.capture is not None and Formatter.capture(data, metadata):
        return ""
    parts, left_out = mime.encoded(mime.with_remark(data), DISPLAY_BYTES, TEXT_BYTES)
    text = parts.get(mime.TEXT, b"").decode("utf-8", "replace")
    name = None
    if parts and not _is_plain(parts):
        name, refused = _send(parts, metadata, display_id, update)
        left_out += refused
    line = mime.line(text, name, left_out)
    if echo and line and not update:
        sys.stdout.write(line + "\n")
    return line


def clear():
    """Drop the displays of the block so far; the output stays."""
    block = State.block
    if block is not None and not State.is_late():
        block.names.clear()
        _transmit(block, {"clear": True}, b"")


def _is_plain(parts):
    return list(parts) == [mime.TEXT]


def _send(parts, metadata, display_id, update):
    """Return the name of the file that the host makes of it, or None; and why it was not sent, as a list."""
    block = State.block
    if block is None or os.getpid() != block.pid:
        return None, ["shown after its block, or in another process"] if block is not None else []
    if State.is_late():
        return None, ["shown after its block"]
    with block.lock:
        if State.block is not block:
            return None, []
        size = sum(map(len, parts.values()))
        if block.count >= BLOCK_DISPLAYS or block.size + size > BLOCK_BYTES:
            block.left_out += 1
            return None, [ENOUGH % (BLOCK_DISPLAYS, BLOCK_BYTES)]
        block.count += 1
        block.size += size
        kind = mime.file_type(parts)
        replaced, old_kind, number = block.names.get(display_id if update else None, (None, None, 0))
        if kind != old_kind:
            number = _free_number(block.folder, kind) if kind else 0
        message = {
            "parts": [[name, len(value)] for name, value in parts.items()],
            "metadata": _metadata(metadata),
            "number": number,
            "replaces": replaced,
        }
        if display_id is not None:
            block.names[display_id] = (replaced or block.count, kind, number)
        _transmit(block, message, b"".join(parts.values()))
        return (mime.file_name(kind, number) if kind else None), []


def _transmit(block, message, data):
    if block.sending or os.getpid() != block.pid:
        return  # a signal handler shows something while something is being sent
    block.sending = True
    try:
        block.send(message, data)
    except OSError:
        pass  # the code has closed the socket: the block's end reports that
    finally:
        block.sending = False


def _free_number(folder, kind):
    """Return the next number whose file does not exist; the code may have made files with such names."""
    State.number += 1
    while os.path.lexists(os.path.join(folder, mime.file_name(kind, State.number))):
        State.number += 1
    return State.number


def _metadata(metadata):
    """Return metadata as JSON text; the supervisor does not look into it."""
    try:
        text = json.dumps(metadata) if metadata else "{}"
    except Exception:  # it is whatever the code has given
        return "{}"
    return text if len(text) <= METADATA_BYTES else "{}"
