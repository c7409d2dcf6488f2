"""Pictures that code made, for models with vision: checked, but never decoded here, because their bytes are untrusted."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from autogen_core import Image
from autogen_core.code_executor import CodeResult
from PIL import Image as PILImage

from autogen_codeact.executors.result import ExecutionResult

MAX_PICTURES = 4
MAX_PIXELS = 10_000_000
"""A figure of 12 x 8 inches at 300 dots per inch has 8.6 million."""
MAX_SIDE = 8_000
MAX_BYTES = 4 * 1024 * 1024
"""For all pictures of a result together."""

MAX_TOOL_SIDE = 1536
"""A larger picture from a host tool is scaled down to this."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Other chunks contain only metadata, and a decoder would decompress some of them.
_PNG_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"gAMA", b"sRGB", b"pHYs")
_MOST_CHUNKS = 10_000
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)
_JPEG_DROPPED = (*range(0xE1, 0xEE), 0xEF, 0xFE)
# Parts of our agents' states; what tools gave code is in there.
_NO_MESSAGES = ("journal", "interrupted")
_KINDS = ("PNG", "JPEG", "GIF", "WEBP")
_STEP = 256 * 1024
_BROKEN = "it is broken or cut off"


class NotShown(ValueError):
    """A picture can't be shown to a model; the message completes a sentence that begins with its name."""


class EncodedImage(Image):
    """An AutoGen image that keeps the original file: AutoGen's own class decodes it, and encodes it for each request.

    Args:
        data: A whole picture, as `read_picture` returns it.
        media_type: Its type.
    """

    def __init__(self, data: bytes, media_type: str) -> None:
        self._uri = f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"

    @property
    def image(self) -> PILImage.Image:  # type: ignore[override]
        """The picture. Clients read its size, which does not decode it."""
        formats = (self._uri.partition(";")[0].removeprefix("data:image/").upper(),)
        return PILImage.open(BytesIO(base64.b64decode(self.to_base64())), formats=formats)

    def to_base64(self) -> str:
        """The file in base64."""
        return self._uri.partition(",")[2]

    @property
    def data_uri(self) -> str:
        """The file as a `data:` URI."""
        return self._uri


def pictures_of(result: CodeResult) -> tuple[list[Image], list[tuple[str, str]]]:
    """Load the first four pictures that code made or host tools returned. It reads files: call it in a thread.

    Args:
        result: The result.

    Returns:
        The pictures, and the name and reason of each one that can't be shown.
    """
    if not isinstance(result, ExecutionResult):
        return [], []
    images: list[Image] = []
    left_out: list[tuple[str, str]] = []
    room = MAX_BYTES
    for artifact in result.artifacts:
        if not artifact.media_type.startswith("image/") or artifact.path is None:
            continue
        if len(images) == MAX_PICTURES:
            left_out.append((artifact.name, f"only the first {MAX_PICTURES} are"))
            continue
        try:
            data = _read(artifact.path, room)
            images.append(read_picture(data))
            room -= len(data)
        except NotShown as error:
            left_out.append((artifact.name, str(error)))
    of_tools = [image for call in result.tool_calls for image in call.images]
    rest = MAX_PICTURES - len(images)
    left_out += [("a picture of a host tool", f"only the first {MAX_PICTURES} are")] * len(of_tools[rest:])
    return [*images, *map(_scaled, of_tools[:rest])], left_out


def _read(path: Path, room: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(room + 1)
    except OSError:
        raise NotShown("it can't be read") from None
    if len(data) > room:
        raise NotShown(f"with it there would be more than {MAX_BYTES // 2**20} MiB of pictures")
    return data


def _scaled(image: Image) -> Image:
    if max(image.image.size) <= MAX_TOOL_SIDE:
        return image
    picture = image.image.copy()
    picture.thumbnail((MAX_TOOL_SIDE, MAX_TOOL_SIDE))
    return Image.from_pil(picture)


def read_picture(data: bytes) -> EncodedImage:
    """Check that bytes are a complete picture of a limited size, without decoding it.

    Args:
        data: The file.

    Returns:
        The picture; for an animated GIF its first frame.

    Raises:
        NotShown: It is too large, broken or of another kind.
    """
    try:
        if data.startswith(_PNG):
            made = EncodedImage(_png(data), "image/png")
        elif data.startswith(b"\xff\xd8\xff"):
            made = EncodedImage(_jpeg(data), "image/jpeg")
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            made = EncodedImage(_gif(data), "image/gif")
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            made = EncodedImage(_webp(data), "image/webp")
        else:
            raise NotShown("it is not a PNG, JPEG, GIF or WebP file")
    except (IndexError, struct.error, zlib.error):
        raise NotShown(_BROKEN) from None
    try:
        made.image.close()
    except Exception:  # noqa: BLE001 - whatever Pillow's readers raise: clients open it, too, and must not meet that
        raise NotShown(_BROKEN) from None
    return made


def with_encoded_images(state: Any) -> Any:
    """Take the pictures in saved messages as they are, before AutoGen decodes them all.

    Args:
        state: What a model context or a team saved.

    Raises:
        ValueError: A picture is of a kind that only a decoder could read.
    """
    if isinstance(state, list):
        return [with_encoded_images(each) for each in state]
    if not isinstance(state, dict):
        return state
    return {
        name: [_saved(part) for part in each]
        if name == "content" and isinstance(each, list)
        else (each if name in _NO_MESSAGES else with_encoded_images(each))
        for name, each in state.items()
    }


def _saved(part: Any) -> Any:
    """A part of a message; AutoGen takes each that has `data` for a picture, whatever else it has."""
    text = part.get("data") if isinstance(part, dict) else None
    if not isinstance(text, str):
        return with_encoded_images(part)
    try:
        data = base64.b64decode(text)
        return read_picture(data)
    except NotShown:
        pass  # a large one of the user's own, perhaps
    except ValueError:
        return part
    try:
        with PILImage.open(BytesIO(data)) as picture:
            kind = str(picture.format)
    except Exception:  # noqa: BLE001 - whatever Pillow's readers raise: AutoGen's attempt ends in the same way
        return part
    if kind not in _KINDS:
        raise ValueError(f"a picture in it is a {kind} file; only {', '.join(_KINDS)} can be loaded")
    return EncodedImage(data, f"image/{kind.lower()}")


def _check_size(width: int, height: int) -> None:
    if not (width and height):
        raise NotShown(_BROKEN)
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        most = f"at most {MAX_PIXELS // 1_000_000} million, and {MAX_SIDE:,} a side, are shown"
        raise NotShown(f"it has {width:,} x {height:,} pixels; {most}")


def _png(data: bytes) -> bytes:
    """The file without its metadata."""
    chunks = list(islice(_png_chunks(data), _MOST_CHUNKS))
    if chunks[0][0] != b"IHDR" or chunks[-1][0] != b"IEND":
        raise NotShown(_BROKEN)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1][8:-4])
    _check_size(width, height)
    if colour not in _PNG_CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise NotShown(_BROKEN)
    needed = height * (1 + (width * _PNG_CHANNELS[colour] * depth + 7) // 8)
    found = _inflated([chunk[8:-4] for kind, chunk in chunks if kind == b"IDAT"], 2 * needed)
    if found < needed and not interlaced:
        raise NotShown(_BROKEN)
    return _PNG + b"".join(chunk for kind, chunk in chunks if kind in _PNG_KEPT)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, kind = len(_PNG), b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        kind, chunk = data[at + 4 : at + 8], data[at : at + 12 + length]
        if len(chunk) < 12 + length or zlib.crc32(chunk[4:-4]) != struct.unpack(">I", chunk[-4:])[0]:
            raise NotShown(_BROKEN)
        yield kind, chunk
        at += len(chunk)


def _inflated(pieces: list[bytes], most: int) -> int:
    """Count the bytes that a stream decompresses to, without keeping them; zlib.error if it is broken."""
    stream, total = zlib.decompressobj(), 0
    for piece in pieces:
        rest, unpacked = piece, _STEP
        while not stream.eof and (rest or unpacked == _STEP):  # a full step may have left some output
            unpacked = len(stream.decompress(rest, _STEP))
            total, rest = total + unpacked, stream.unconsumed_tail
            if total > most:
                raise NotShown(_BROKEN)
    if not stream.eof:
        raise NotShown(_BROKEN)
    return total


def _jpeg(data: bytes) -> bytes:
    """The file without its metadata."""
    at, sized, kept = 2, False, [data[:2]]
    for _ in range(_MOST_CHUNKS):
        if data[at] != 0xFF:
            raise NotShown(_BROKEN)
        if data[at + 1] == 0xFF:
            at += 1  # markers may be padded
            continue
        marker = data[at + 1]
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            _check_size(width, height)
            sized = True
        if marker == 0xDA:
            break
        if length < 2:
            raise NotShown(_BROKEN)
        if marker not in _JPEG_DROPPED:
            kept.append(data[at : at + 2 + length])
        at += 2 + length
    end = data.rfind(b"\xff\xd9", at)
    if not sized or end < 0:
        raise NotShown(_BROKEN)
    return b"".join((*kept, data[at : end + 2]))


def _gif(data: bytes) -> bytes:
    """The file up to its first frame."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    _check_size(width, height)
    at, extensions = 13 + _table(flags), 0
    while data[at] == 0x21 and extensions < _MOST_CHUNKS:
        at, extensions = _after_blocks(data, at + 2), extensions + 1
    if data[at] != 0x2C:
        raise NotShown(_BROKEN)
    left, top, across, down, flags = struct.unpack_from("<HHHHB", data, at + 1)
    if left + across > width or top + down > height:
        raise NotShown(_BROKEN)
    return data[: _after_blocks(data, at + 11 + _table(flags))] + b";"


def _table(flags: int) -> int:
    """Size of a colour table in bytes."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _webp(data: bytes) -> bytes:
    size = 8 + struct.unpack_from("<I", data, 4)[0]
    if size > len(data):
        raise NotShown(_BROKEN)
    data, at = data[:size], 12
    while True:
        kind, length = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        body = data[at + 8 : at + 8 + length]
        if len(body) < length:
            raise NotShown(_BROKEN)
        if kind == b"VP8X":
            if body[0] & 2:
                raise NotShown("it is an animated WebP file")
            _check_size(1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little"))
        elif kind in (b"VP8 ", b"VP8L"):
            _check_size(*_webp_size(kind, body))
            return data
        at += 8 + length + length % 2


def _webp_size(kind: bytes, body: bytes) -> tuple[int, int]:
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", body, 1)[0]
        return (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)) if body[0] == 0x2F else (0, 0)
    width, height = struct.unpack_from("<HH", body, 6)
    return (width & 0x3FFF, height & 0x3FFF) if body[3:6] == b"\x9d\x01\x2a" else (0, 0)
