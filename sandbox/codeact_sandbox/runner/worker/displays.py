"""Displays of a block: MIME bundles that go to the host. The supervisor puts a line into the output that stands for each.

`publish` is the one way for a display to the host. `display.display`, values of cells and figures use it.
"""

import base64
import binascii
import json
import os
import sys
import threading

from ..shared import wire
from . import stdio

TEXT = "text/plain"
TEXT_BYTES = 64 * 1024
ENOUGH = "more than %d displays, or %d bytes of them, in one block are not kept"
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
# Images and plots: the host makes a file of the first one that a bundle has.
IMAGES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/vnd.plotly.v1+json": ".plotly.json",
}
# Others get a file only if the text does not say what is shown: `<IPython.core.display.HTML object>`.
DOCUMENTS = {"text/html": ".html", "text/markdown": ".md", "text/latex": ".tex", "application/json": ".json"}


class Block:
    """The displays of the running block; `send(message, bytes)` returns once the supervisor has one."""

    def __init__(self, send, folder):
        self.send = send
        self.folder = folder
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.sending = False
        self.count = self.size = 0
        # Whether something was shown that can be cleared.
        self.shown = False
        # The number in the block, the type and the number of the file, by the name that code has given.
        self.names = {}

    def has_room(self, size=0):
        return self.count < wire.MAX_DISPLAYS and self.size + size <= wire.MAX_DISPLAY_BYTES


class State:
    """What lasts longer than a block. `format` and `capture` belong to a shell that formats objects itself, once it is loaded.

    `format` makes the bundle of an object. `capture` gets a bundle and its metadata, and returns whether it has taken them.
    """

    block = None
    number = 0
    format = None
    capture = None

    @staticmethod
    def is_late():
        """Return whether the current thread belongs to an earlier block; a session replaces this."""
        return False


def begin(send, folder):
    State.block = Block(send, folder)


def end():
    """End the block: what threads show later is not kept."""
    block, State.block = State.block, None
    if block is not None:
        with block.lock:  # a thread may be sending
            pass


def has_room():
    """Return whether the block can have another display; what is costly to make need not be made otherwise."""
    return State.block is not None and State.block.has_room()


def publish(data, metadata=None, display_id=None, update=False):
    """Send a bundle to the host; `update` replaces an earlier display of the block with this `display_id`."""
    if State.capture is not None and State.capture(data, metadata):
        return
    parts, left_out = _encoded(data)
    block = State.block
    if not parts or list(parts) == [TEXT] or block is None:
        _print(_line(parts, None, left_out), update)
    elif State.is_late():
        _print(_line(parts, None, [*left_out, "shown after its block"]), update)
    elif os.getpid() != block.pid:
        _print(_line(parts, None, [*left_out, "shown after its block, or in another process"]), update)
    else:
        with block.lock:
            _send(block, (parts, left_out), metadata, display_id, update)


def clear():
    """Drop the displays of the block so far; the output stays."""
    block = State.block
    if block is not None and block.shown and not State.is_late():
        block.shown = False
        block.names.clear()
        _transmit(block, {"clear": True}, b"")


def _print(line, update=False):
    if line and not update:
        sys.stdout.write(line + "\n")


def _send(block, encoded, metadata, display_id, update):
    """Send a display and the line for it; the line is written here if the code has replaced its streams."""
    parts, left_out = encoded
    size = sum(map(len, parts.values()))
    if State.block is not block or not block.has_room(size):
        _print(_line(parts, None, [*left_out, ENOUGH % (wire.MAX_DISPLAYS, wire.MAX_DISPLAY_BYTES)]), update)
        return
    block.count += 1
    block.size += size
    block.shown = True
    kind = _file_type(parts)
    replaced, old_kind, number = block.names.get(display_id if update else None, (None, None, 0))
    if kind != old_kind:
        number = _free_number(block.folder, kind) if kind else 0
    if display_id is not None:
        block.names[display_id] = (replaced or block.count, kind, number)
    line = _line(parts, kind and _file_name(kind, number), left_out)
    if update or sys.stdout is not sys.__stdout__:
        _print(line, update)
        line = ""
    line = str.encode(line + "\n", "utf-8", "backslashreplace") if line else b""
    message = {
        "parts": [[name, len(value)] for name, value in parts.items()],
        "metadata": _metadata(metadata),
        "number": number,
        "replaces": replaced,
        "line": len(line),
    }
    _transmit(block, message, b"".join(parts.values()) + line)


def _transmit(block, message, data):
    if block.sending or os.getpid() != block.pid:
        return  # a signal handler shows something while something is being sent
    block.sending = True
    try:
        stdio.flush()  # the supervisor finds in the pipe what was written before
        block.send(message, data)
    except (OSError, ValueError, wire.Closed, wire.ProtocolError):
        pass  # the code has closed the socket: the block's end reports that
    finally:
        block.sending = False


def _free_number(folder, kind):
    """Return the next number whose file does not exist; the code may have made files with such names."""
    State.number += 1
    while os.path.lexists(os.path.join(folder, _file_name(kind, State.number))):
        State.number += 1
    return State.number


# Bundles


def _encoded(data):
    """Return what can be sent of a bundle: the values as bytes, text first, and phrases about what was left out."""
    parts, left_out = {}, []
    for name in sorted(data, key=lambda name: name != TEXT)[: wire.MAX_TYPES]:
        if not isinstance(name, str) or len(name) > wire.MAX_TYPE_CHARS or data[name] is None:
            continue
        try:
            parts[str(name)] = _as_bytes(name, data[name])
        except Exception as error:  # the value is whatever the code has given
            left_out.append("%s left out: %s" % (name, type(error).__name__))
    if len(parts.get(TEXT, b"")) > TEXT_BYTES:
        parts[TEXT] = parts[TEXT][:TEXT_BYTES].decode("utf-8", "ignore").encode() + b"[...]"
    while sum(map(len, parts.values())) > wire.MAX_DISPLAY:
        largest = max((name for name in parts if name != TEXT), key=lambda name: len(parts[name]))
        size = len(parts.pop(largest))
        left_out.append("%s left out: %d bytes, at most %d are kept" % (largest, size, wire.MAX_DISPLAY))
    return parts, left_out


def _as_bytes(name, value):
    is_bytes = isinstance(value, (bytes, bytearray, memoryview))
    if name in BINARY and is_bytes:
        return bytes(value)
    if name == "application/json" or name.endswith("+json"):
        return json.dumps(value, allow_nan=False).encode()
    if is_bytes:
        value = bytes(value).decode()
    elif isinstance(value, (list, tuple)):
        value = "".join(value)
    if name in BINARY:
        try:
            return base64.b64decode(value)
        except binascii.Error:
            raise ValueError("not base64") from None
    if not isinstance(value, str):
        raise TypeError("not text")
    return str.encode(value, "utf-8", "backslashreplace")  # its class may have overridden the method


def _metadata(metadata):
    """Return metadata as JSON text; the supervisor does not look into it."""
    try:
        text = json.dumps(metadata) if metadata else "{}"
    except Exception:  # it is whatever the code has given
        return "{}"
    return text if len(text) <= wire.MAX_METADATA else "{}"


# Files and lines


def _file_type(parts):
    """Return the MIME type of which the host makes a file, or None for no file."""
    text = parts.get(TEXT, b"")
    is_named = text and not (text.startswith(b"<") and text.endswith(b">") and b"\n" not in text and b" object" in text)
    candidates = IMAGES if is_named else {**IMAGES, **DOCUMENTS}
    return next((name for name in candidates if name in parts), None)


def _file_name(kind, number):
    return "figure-%d%s" % (number, IMAGES[kind]) if kind in IMAGES else "display-%d%s" % (number, DOCUMENTS[kind])


def _line(parts, name, left_out):
    return line_of(parts.get(TEXT, b"").decode("utf-8", "replace"), ([name] if name else []) + left_out)


def line_of(text, remarks):
    remarks = "; ".join(remarks)
    if not remarks:
        return text
    if text.startswith("<") and text.endswith(">") and "\n" not in text:
        return "%s: %s>" % (text[:-1], remarks)
    return "%s\n<%s>" % (text, remarks) if text else "<%s>" % remarks
