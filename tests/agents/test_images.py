"""Images for models that can see: which are shown, and that none is decoded on the way."""

import base64
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import Image
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import UserMessage
from autogen_ext.models.openai._openai_client import calculate_vision_tokens  # what asks an image for its size
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image as PILImage

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.images import (
    MAX_BYTES,
    ImageRefused,
    images_of,
    read_image,
)
from autogen_codeact.agents.observation import as_message
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.tools.answers import as_tool_image
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.result import Artifact, ToolCall
from tests.agents.support import received_by, scripted

FORMATS = ("PNG", "JPEG")


def encoded(size: tuple[int, int] = (40, 30), kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    buffer = BytesIO()
    PILImage.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def png(header: bytes, *packed: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), *(chunk(b"IDAT", p) for p in packed), chunk(b"IEND", b""))
    )


def header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((depth, colour, 0, 0, 0))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in FORMATS),
        *(("PNG", {"mode": mode}) for mode in ("1", "L", "LA", "P", "RGBA", "I;16")),
        *(("JPEG", {"mode": mode}) for mode in ("L", "CMYK")),
        ("JPEG", {"progressive": True}),
    ],
)
def test_a_complete_image_is_passed_on_unchanged(kind: Any, options: Any) -> None:
    data = encoded(kind=kind, **options)
    image = read_image(data)
    assert (image.data_uri, image.to_base64()) == (
        f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}",
        base64.b64encode(data).decode(),
    )
    assert (image.image.size, image.image.format) == ((40, 30), kind)
    assert image.image.convert("RGB").getpixel((39, 29)) in ((0, 0, 0), (255, 255, 255))
    assert calculate_vision_tokens(image) == calculate_vision_tokens(Image(image.image))


def test_metadata_of_a_png_is_removed() -> None:
    plain = encoded()
    end = chunk(b"IEND", b"")
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**6)))
    assert (
        read_image(plain.removesuffix(end) + bomb + end + b"<script>").to_base64() == base64.b64encode(plain).decode()
    )


def test_metadata_of_a_jpeg_is_removed() -> None:
    described = encoded(kind="JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0", comment=b"note", icc_profile=bytes(70_000))
    assert read_image(described + b"<script>").to_base64() == base64.b64encode(encoded(kind="JPEG")).decode()


TOO_LARGE = [(5_000, 2_001), (8_001, 1), (1, 8_001), (2**31 - 1, 2**31 - 1)]


@pytest.mark.parametrize("size", TOO_LARGE)
def test_an_image_of_too_many_pixels_is_not_shown(size: Any) -> None:
    with pytest.raises(
        ImageRefused, match=f"it has {size[0]:,} x {size[1]:,} pixels; at most 10 million, and 8,000 a side"
    ):
        read_image(png(header(*size), b""))


@pytest.mark.parametrize(
    "data",
    [
        png(header(10, 10), zlib.compress(bytes(10))),  # too few bytes
        png(header(10, 10), zlib.compress(bytes(10**7))),  # far too many
        png(header(10, 10), zlib.compress(bytes(310))[:-1]),
        png(header(10, 10), b"no stream"),
        png(header(10, 10)),
        png(header(0, 10), zlib.compress(bytes(10))),
        png(header(10, 10, colour=5), zlib.compress(bytes(310))),
        png(header(10, 10)[:-1], zlib.compress(bytes(310))),
        png(header(10, 10), zlib.compress(bytes(310)))[:-1],
        png(header(10, 10), zlib.compress(bytes(310))).replace(b"IDAT", b"IDAX"),
        b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", b"") * 20_000 + chunk(b"IEND", b""),
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8" + b"\xff" * 1000,
        b"\xff\xd8\xff\xe0\x00\x00",
    ],
    ids=len,
)
def test_a_broken_image_is_not_shown(data: Any) -> None:
    with pytest.raises(ImageRefused, match="it is broken or cut off"):
        read_image(data)


@pytest.mark.parametrize("kind", FORMATS)
def test_no_image_that_is_cut_off_is_shown(kind: Any) -> None:
    data = encoded((9, 8), kind)
    for length in range(12, len(data) - 1):
        with pytest.raises(ImageRefused):
            read_image(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        encoded(kind="GIF"),
    ],
)
def test_other_image_formats_are_not_shown(data: Any) -> None:
    with pytest.raises(ImageRefused, match="it is neither a PNG nor a JPEG file"):
        read_image(data)


WHOLE = [encoded((9, 8), kind) for kind in FORMATS]


@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), max_size=4))
@example(WHOLE[0], [(16, bytes(8))])
def test_any_bytes_are_a_limited_image_or_refused(data: bytes, changes: list[tuple[int, bytes]]) -> None:
    for at, new in changes:
        data = data[:at] + new + data[at + len(new) :]
    try:
        image = read_image(data)
    except ImageRefused:
        return
    assert len(image.to_base64()) <= len(data) * 4 / 3 + 8


async def test_images_that_are_not_shown_are_named(tmp_path: Path) -> None:
    def file(name: str, data: bytes, media_type: str = "image/png") -> Artifact:
        (tmp_path / name).write_bytes(data)
        return Artifact(name, len(data), media_type, tmp_path / name)

    artifacts = (
        file("half.png", encoded()[:50]),
        file("a.svg", b"<svg><script>1</script></svg>", "image/svg+xml"),
        file("large.png", png(header(8_000, 5_000), b"")),
        file("heavy.png", encoded() + bytes(MAX_BYTES)),
        file("notes.txt", encoded(), "text/plain"),
        Artifact("gone.png", 1, "image/png", tmp_path / "gone.png"),
        Artifact("left.png", 1, "image/png", None, "too large"),
        *(file(f"{number}.png", encoded((number, 1))) for number in range(1, 6)),
    )
    shown = ToolCall("photo", {}, "ok", images=(as_tool_image(PILImage.new("RGB", (3, 3))),))
    message = await as_message(
        ExecutionResult(0, "", None, artifacts=artifacts, tool_calls=(shown,)), "coder", vision=True
    )
    words, *images = message.content
    assert [image.image.size for image in images if isinstance(image, Image)] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert str(words).splitlines()[-1] == (
        "Images that you are not shown: half.png (it is broken or cut off), "
        "a.svg (it is neither a PNG nor a JPEG file), "
        "large.png (it has 8,000 x 5,000 pixels; at most 10 million, and 8,000 a side, are shown), "
        "heavy.png (at most 4 images of 4 MiB together are), gone.png (it can't be read), "
        "5.png (at most 4 images of 4 MiB together are), an image of a host tool (at most 4 are)."
    )


def test_a_large_image_of_a_host_tool_is_scaled_down() -> None:
    given = as_tool_image(PILImage.new("RGB", (3_000, 1_000)))
    images, _ = images_of(ExecutionResult(0, "", None, tool_calls=(ToolCall("photo", {}, "ok", images=(given,)),)))
    assert (images[0].image.size, given.size) == ((1536, 512), (3_000, 1_000))


async def test_images_that_code_has_shown_come_before_those_that_it_has_saved(tmp_path: Path) -> None:
    saved, figure = tmp_path / "saved.png", tmp_path / "figure-1.png"
    saved.write_bytes(encoded((2, 2)))
    figure.write_bytes(encoded((3, 3)))
    result = ExecutionResult(
        exit_code=0,
        output="<Figure size 3x3: figure-1.png>\n",
        code_file=None,
        artifacts=tuple(Artifact(path.name, 9, "image/png", path) for path in (figure, saved)),
        displays=(
            Display("figure-1.png", {"text/plain": "<Figure size 3x3>", "image/png": encoded((3, 3))}, {}, figure),
            Display("display-2", {"text/plain": "a", "text/html": "<p>a</p>"}),
            Display("figure-2.jpg", {"image/jpeg": b"\xff\xd8\xffbroken"}),
        ),
    )
    message = await as_message(result, "executor", vision=True)
    text, *images = message.content
    assert text == (
        "<Figure size 3x3: figure-1.png>\n\n"
        "Files made or changed: figure-1.png (9 bytes), saved.png (9 bytes).\n"
        "Images that you are not shown: figure-2.jpg (it is broken or cut off)."
    )
    assert [image.image.size for image in images if isinstance(image, Image)] == [(3, 3), (2, 2)]


async def test_task_with_an_image_reaches_a_model_without_vision_without_it(executor: CodeExecutor) -> None:
    client = scripted("ok")
    image = Image.from_pil(PILImage.new("RGB", (2, 2)))
    task = MultiModalMessage(content=["What is this?", image], source="user")

    await CodeExecutorAgent("coder", executor, model_client=client).run(task=task)

    assert received_by(client)[0][-1] == UserMessage(content="What is this?\n<image>", source="user")
