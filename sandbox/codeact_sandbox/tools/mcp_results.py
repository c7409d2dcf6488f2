"""Results of MCP servers' tools as answers of host tools."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

from codeact_sandbox.tools.answers import to_answer
from codeact_sandbox.types.tool import ToolAnswer, ToolImage

_WRAPPED = "result"


def result_schema(schema: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, bool]:
    """Schema of what a tool returns, and whether the server wraps that into an object because it isn't one."""
    if not schema:
        return None, False
    properties = schema.get("properties", {})
    if list(properties) == schema.get("required") == [_WRAPPED] and isinstance(properties[_WRAPPED], Mapping):
        return {**properties[_WRAPPED], "$defs": schema.get("$defs", {})}, True
    return schema, False


def answer_of(result: Any, name: str, *, structured: bool, wrapped: bool) -> ToolAnswer:
    """Convert the result of a call."""
    parts = [_part(content) for content in result.content]
    if result.isError:
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        raise RuntimeError(text or "the MCP server reported an error and said nothing of it")
    if structured and result.structuredContent is not None:
        value = result.structuredContent
        images = tuple(part for part in parts if isinstance(part, ToolImage))
        return ToolAnswer(value.get(_WRAPPED) if wrapped else value, images)
    texts = to_answer(parts, name)
    return ToolAnswer("\n".join(map(str, texts.value)), texts.images)


def _part(content: Any) -> str | ToolImage:
    if content.type == "text":
        return str(content.text)
    if content.type == "image":
        return _image(base64.b64decode(content.data))
    text = getattr(getattr(content, "resource", None), "text", None)
    return text if isinstance(text, str) else str(content.model_dump_json(exclude_none=True))


def _image(data: bytes) -> ToolImage:
    """Make an image of a file in any format that Pillow knows; only its header is read."""
    try:
        from PIL import Image  # noqa: PLC0415 - only images of tools need it
    except ModuleNotFoundError:
        raise RuntimeError(
            "the tool returned an image; for images, the host needs Pillow: pip install pillow"
        ) from None
    with Image.open(io.BytesIO(data)) as opened:
        return ToolImage(Image.MIME.get(str(opened.format), "application/octet-stream"), data, opened.size)
