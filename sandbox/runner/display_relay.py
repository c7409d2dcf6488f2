"""Displays of one block on their way to the host, checked: user code can write to the worker's socket."""

from . import displays, mime, wire


class DisplayRelay:
    """Forwards the displays of one block within its limits, and drops what is malformed or too much."""

    def __init__(self, supervisor, ident):
        self._supervisor = supervisor
        self._ident = ident
        self._count = self._size = 0

    def forward(self, message):
        """Send a display to the host."""
        data = message.get("data", b"")
        checked = _checked(message, data) if isinstance(data, bytes) else None
        # One that drops the earlier ones is short, but there could be millions.
        self._count += 1
        self._size += len(data)
        if checked and self._count <= 2 * wire.MAX_DISPLAYS and self._size <= wire.MAX_DISPLAY_BYTES:
            self._supervisor.send_message(wire.DISPLAY, self._ident, checked, data)


def _checked(message, data):
    """Return a message with nothing in it but bounded values of the right types, or None."""
    if message.get("clear") is True:
        return {"clear": True} if not data else None
    parts, metadata, number = message.get("parts"), message.get("metadata"), message.get("number")
    replaces = message.get("replaces")
    if not isinstance(parts, list) or not 0 < len(parts) <= mime.MAX_TYPES or not all(map(_is_part, parts)):
        return None
    if sum(size for _, size in parts) != len(data) or not _is_number(number):
        return None
    if not isinstance(metadata, str) or len(metadata) > displays.METADATA_BYTES:
        return None
    if replaces is not None and not _is_number(replaces):
        return None
    return {"parts": parts, "metadata": metadata, "number": number, "replaces": replaces}


def _is_part(part):
    return (
        isinstance(part, list)
        and len(part) == 2
        and isinstance(part[0], str)
        and len(part[0]) <= mime.MAX_TYPE_CHARS
        and _is_number(part[1])
    )


def _is_number(thing):
    return type(thing) is int and 0 <= thing < 2**31
