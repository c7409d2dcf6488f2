"""Images that code made, for models with vision: checked, but never decoded here, because their bytes are untrusted."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from autogen_core import Image
from autogen_core.code_executor import CodeResult
from PIL import Image as PILImage

from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.image_check import BROKEN_IMAGE, ImageRefused, check_image

MAX_IMAGES = 4
MAX_BYTES = 4 * 1024 * 1024
"""For all images of a result together."""

MAX_TOOL_SIDE = 1536
"""A larger image from a host tool is scaled down to this."""

# Parts of our agents' states that contain results of tools.
_NO_MESSAGES = ("journal", "interrupted")
FORMATS = ("PNG", "JPEG")


class EncodedImage(Image):
    """An AutoGen image that keeps the original file: AutoGen's own class decodes it, and encodes it for each request."""

    def __init__(self, data: bytes, media_type: str) -> None:
        self._uri = f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"

    @property
    def image(self) -> PILImage.Image:  # type: ignore[override]
        """The image. Clients read its size, which does not decode it."""
        formats = (self._uri.partition(";")[0].removeprefix("data:image/").upper(),)
        return PILImage.open(BytesIO(base64.b64decode(self.to_base64())), formats=formats)

    def to_base64(self) -> str:
        return self._uri.partition(",")[2]

    @property
    def data_uri(self) -> str:
        return self._uri


def images_of(result: CodeResult) -> tuple[list[Image], list[tuple[str, str]]]:
    """Load the first four images that code showed or saved, or host tools returned. It reads files: call it in a thread."""
    if not isinstance(result, ExecutionResult):
        return [], []
    images: list[Image] = []
    left_out: list[tuple[str, str]] = []
    room = MAX_BYTES
    for name, source in _sources(result):
        try:
            data = source if isinstance(source, bytes) else _read(source, room)
            if len(images) == MAX_IMAGES or len(data) > room:
                left_out.append((name, f"at most {MAX_IMAGES} images of {MAX_BYTES // 2**20} MiB together are"))
                continue
            images.append(read_image(data))
            room -= len(data)
        except ImageRefused as error:
            left_out.append((name, str(error)))
    of_tools = [Image(PILImage.open(BytesIO(image.data))) for call in result.tool_calls for image in call.images]
    rest = MAX_IMAGES - len(images)
    left_out += [("an image of a host tool", f"at most {MAX_IMAGES} are")] * len(of_tools[rest:])
    return [*images, *map(_scaled, of_tools[:rest])], left_out


def _sources(result: ExecutionResult) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the name and the content or the file of each image: first what was shown, then other files."""
    shown = set()
    for display in result.displays:
        if display.image is not None:
            yield display.name, display.image[0]
        shown.add(display.name)
    for artifact in result.artifacts:
        if artifact.media_type.startswith("image/") and artifact.path is not None and artifact.name not in shown:
            yield artifact.name, artifact.path


def _read(path: Path, room: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(room + 1)
    except OSError:
        raise ImageRefused("it can't be read") from None


def _scaled(image: Image) -> Image:
    if max(image.image.size) <= MAX_TOOL_SIDE:
        return image
    scaled = image.image.copy()
    scaled.thumbnail((MAX_TOOL_SIDE, MAX_TOOL_SIDE))
    return Image.from_pil(scaled)


def read_image(data: bytes) -> EncodedImage:
    """Check that bytes are a complete image of a limited size, without decoding it."""
    made = EncodedImage(*check_image(data))
    try:
        made.image.close()
    except Exception:  # noqa: BLE001 - whatever Pillow's readers raise: clients open it, too
        raise ImageRefused(BROKEN_IMAGE) from None
    return made


def with_encoded_images(state: Any) -> Any:
    """Replace the images in saved messages by encoded ones, because AutoGen would decode them all."""
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
    """Return a part of a saved message; AutoGen treats each part with `data` as an image."""
    text = part.get("data") if isinstance(part, dict) else None
    if not isinstance(text, str):
        return with_encoded_images(part)
    try:
        data = base64.b64decode(text)
        with PILImage.open(BytesIO(data), formats=FORMATS) as image:  # reads its beginning only
            kind = "png" if image.format == "PNG" else "jpeg"
    except Exception as error:  # noqa: BLE001 - whatever Pillow's readers raise
        raise ValueError(f"an image in it is not a {' or '.join(FORMATS)} file ({type(error).__name__})") from None
    return EncodedImage(data, f"image/{kind}")
