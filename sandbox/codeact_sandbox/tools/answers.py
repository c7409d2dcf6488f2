"""Converts what a tool returned to JSON values; images are taken out of it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from codeact_sandbox.types.tool import ToolAnswer, ToolImage

MAX_DEPTH = 20
_PLAIN = frozenset({str, int, float, bool, type(None)})


@singledispatch
def as_tool_image(value: Any) -> Any:
    """Convert an image to a `ToolImage`; return anything else as it is. Libraries can register classes of images."""
    if not isinstance(value, pillow_image()):
        return value
    file = io.BytesIO()
    value.save(file, format="PNG", compress_level=1)
    return ToolImage("image/png", file.getvalue(), value.size)


@as_tool_image.register
def _unchanged(value: ToolImage) -> ToolImage:
    return value


def pillow_image() -> Any:
    """Return the class of Pillow's images, or () where it was not imported, because then nothing is one."""
    return getattr(sys.modules.get("PIL.Image"), "Image", ())


def is_image_class(kind: Any) -> bool:
    """Return whether objects of a class are images."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, pillow_image()) or as_tool_image.dispatch(kind) is not as_tool_image.dispatch(object)


def to_answer(value: Any, origin: str, dump: Callable[[Any], Any] | None = None) -> ToolAnswer:
    """Make a tool's answer."""
    images: list[ToolImage] = []
    value = _without_images(value, images, 0)
    if dump is not None and not images:
        try:
            return ToolAnswer(dump(value))
        except Exception:  # noqa: BLE001, S110 - annotations may be wrong: the value is converted without them
            pass
    try:
        return ToolAnswer(to_jsonable_python(value, by_alias=True, fallback=_fallback), tuple(images))
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise TypeError(
            f"`{origin}` returned something that can't travel into the sandbox: {error}. Return what JSON can hold, a "
            "dataclass or a pydantic model."
        ) from None


def _without_images(value: Any, images: list[ToolImage], depth: int) -> Any:
    if type(value) in _PLAIN:
        return value
    value = as_tool_image(value)
    if isinstance(value, ToolImage):
        images.append(value)
        return f"[image {len(images)}: {_size(value)}]"
    if isinstance(value, Iterator):
        raise TypeError("an iterator in a tool's result might never end: return a list")
    if depth >= MAX_DEPTH or not isinstance(value, list | tuple | dict):
        return value
    items = list(value.values() if isinstance(value, dict) else value)
    if _PLAIN.issuperset(map(type, items)):
        return value
    replaced = [_without_images(item, images, depth + 1) for item in items]
    if all(old is new for old, new in zip(items, replaced, strict=True)):
        return value
    return dict(zip(value, replaced, strict=True)) if isinstance(value, dict) else replaced


def _size(image: ToolImage) -> str:
    if image.size is None:
        return f"{image.media_type}, {len(image.data):,} bytes"
    width, height = image.size
    return f"{width}×{height} pixels"


def _fallback(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")
