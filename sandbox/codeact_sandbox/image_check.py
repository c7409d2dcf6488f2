"""Checks of images that code made, which are never decoded here, because their bytes are untrusted."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice

MAX_PIXELS = 10_000_000  # a figure of 12 x 8 inches at 300 dots per inch has 8.6 million
MAX_SIDE = 8_000

BROKEN_IMAGE = "it is broken or cut off"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Other chunks contain only metadata, and a decoder would decompress some of them.
_PNG_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"gAMA", b"sRGB", b"pHYs")
_MOST_CHUNKS = 10_000
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)
_JPEG_DROPPED = (*range(0xE1, 0xEE), 0xEF, 0xFE)
_STEP = 256 * 1024


class ImageRefused(ValueError):
    """An image can't be shown to a model; the message completes a sentence that begins with its name."""


def check_image(data: bytes) -> tuple[bytes, str]:
    """Check that bytes are a complete image of a limited size; return it without metadata, and its media type."""
    try:
        if data.startswith(_PNG):
            return _png(data), "image/png"
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data), "image/jpeg"
    except (IndexError, struct.error, zlib.error):
        raise ImageRefused(BROKEN_IMAGE) from None
    raise ImageRefused("it is neither a PNG nor a JPEG file")


def _check_size(width: int, height: int) -> None:
    if not (width and height):
        raise ImageRefused(BROKEN_IMAGE)
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        most = f"at most {MAX_PIXELS // 1_000_000} million, and {MAX_SIDE:,} a side, are shown"
        raise ImageRefused(f"it has {width:,} x {height:,} pixels; {most}")


def _png(data: bytes) -> bytes:
    """The file without its metadata."""
    chunks = list(islice(_png_chunks(data), _MOST_CHUNKS))
    if chunks[0][0] != b"IHDR" or chunks[-1][0] != b"IEND":
        raise ImageRefused(BROKEN_IMAGE)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1][8:-4])
    _check_size(width, height)
    if colour not in _PNG_CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise ImageRefused(BROKEN_IMAGE)
    needed = height * (1 + (width * _PNG_CHANNELS[colour] * depth + 7) // 8)
    found = _inflated([chunk[8:-4] for kind, chunk in chunks if kind == b"IDAT"], 2 * needed)
    if found < needed and not interlaced:
        raise ImageRefused(BROKEN_IMAGE)
    return _PNG + b"".join(chunk for kind, chunk in chunks if kind in _PNG_KEPT)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, kind = len(_PNG), b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        kind, chunk = data[at + 4 : at + 8], data[at : at + 12 + length]
        if len(chunk) < 12 + length or zlib.crc32(chunk[4:-4]) != struct.unpack(">I", chunk[-4:])[0]:
            raise ImageRefused(BROKEN_IMAGE)
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
                raise ImageRefused(BROKEN_IMAGE)
    if not stream.eof:
        raise ImageRefused(BROKEN_IMAGE)
    return total


def _jpeg(data: bytes) -> bytes:
    """The file without its metadata."""
    at, sized, parts = 2, False, [data[:2]]
    for _ in range(_MOST_CHUNKS):
        if data[at] != 0xFF:
            raise ImageRefused(BROKEN_IMAGE)
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
            raise ImageRefused(BROKEN_IMAGE)
        if marker not in _JPEG_DROPPED:
            parts.append(data[at : at + 2 + length])
        at += 2 + length
    end = data.rfind(b"\xff\xd9", at)
    if not sized or end < 0:
        raise ImageRefused(BROKEN_IMAGE)
    return b"".join((*parts, data[at : end + 2]))
