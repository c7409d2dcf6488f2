"""From what a tool returned to what JSON can hold, pictures set apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autogen_core import Image
from autogen_core.tools import ImageResultContent, TextResultContent, ToolResult
from PIL.Image import Image as Picture
from pydantic_core import PydanticSerializationError, to_jsonable_python

from autogen_codeact.sandbox.tools.tool import ToolAnswer

MAX_DEPTH = 20


def to_answer(value: Any, origin: str, dump: Callable[[Any], Any] | None = None) -> ToolAnswer:
    """Make a tool's answer.

    Args:
        value: What the tool returned.
        origin: The tool's name, for the error.
        dump: Writes a value of the annotated type as JSON has it; raises where it is of another type.

    Returns:
        The answer; in its value, words stand where pictures were.

    Raises:
        TypeError: JSON can't hold it.
    """
    images: list[Image] = []
    value = _without_images(value, images, 0)
    if dump is not None and not images:
        try:
            return ToolAnswer(dump(value))
        except Exception:  # noqa: BLE001, S110 - annotations are no promises: the value is written as what it is
            pass
    try:
        return ToolAnswer(to_jsonable_python(value, by_alias=True, fallback=_fallback), tuple(images))
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise TypeError(
            f"`{origin}` returned something that can't travel into the sandbox: {error}. Return what JSON can hold, a "
            "dataclass or a pydantic model."
        ) from None


def _without_images(value: Any, images: list[Image], depth: int) -> Any:
    if isinstance(value, Image | Picture):
        picture = value if isinstance(value, Image) else Image.from_pil(value)
        images.append(picture)
        return f"[image {len(images)}: {picture.image.width}×{picture.image.height} pixels]"
    if isinstance(value, ImageResultContent | TextResultContent):
        return _without_images(value.content, images, depth)
    if isinstance(value, ToolResult):
        return "\n".join(str(_without_images(part, images, depth)) for part in value.result)
    if depth >= MAX_DEPTH or not isinstance(value, list | tuple | dict):
        return value
    if not _may_hold_images(value.values() if isinstance(value, dict) else value):
        return value
    known = len(images)
    if isinstance(value, dict):
        replaced: Any = {key: _without_images(item, images, depth + 1) for key, item in value.items()}
    else:
        replaced = [_without_images(item, images, depth + 1) for item in value]
    return replaced if len(images) > known or _all_content(value) else value


def _all_content(value: Any) -> bool:
    return all(isinstance(item, ImageResultContent | TextResultContent) for item in value)


def _may_hold_images(items: Any) -> bool:
    # Most lists are of numbers or words, and may be long.
    kinds = (Image, Picture, ImageResultContent, TextResultContent, list, tuple, dict)
    return any(isinstance(item, kinds) for item in items)


def _fallback(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")
