"""Tools of MCP servers as host tools, and their results as answers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from codeact_sandbox.tools.answers import to_answer
from codeact_sandbox.tools.json_schema import plain_schema
from codeact_sandbox.tools.payloads import offload
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.types.tool import ToolAnswer, ToolImage

_WRAPPED = "result"


class McpResult(NamedTuple):
    content: Sequence[Any]  # its parts, objects of the package `mcp`
    failed: bool  # whether the tool failed
    structured: Any  # what it returned, as JSON values, or None


def mcp_tool(
    name: str,
    description: str,
    schemas: tuple[Mapping[str, Any], Mapping[str, Any] | None],
    call: Callable[[Mapping[str, Any]], Awaitable[McpResult]],
    origin: str,
) -> SchemaHostTool:
    """Make a host tool of a server's tool."""
    parameters, output = schemas
    # A copy, because the caller may change what it has given.
    output = plain_schema(output, f"the results of `{name}` of {origin}") if output else None
    result, wrapped = _result_schema(output)

    async def answer(arguments: Mapping[str, Any]) -> ToolAnswer:
        got = await call(arguments)
        return await offload(True, lambda: _answer_of(got, name, structured=result is not None, wrapped=wrapped))

    return SchemaHostTool(name, description, parameters, answer, origin, result=result)


def _result_schema(schema: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, bool]:
    """Schema of what a tool returns, and whether the server wraps that into an object because it isn't one."""
    if not schema:
        return None, False
    properties = schema.get("properties", {})
    if list(properties) == schema.get("required") == [_WRAPPED] and isinstance(properties[_WRAPPED], Mapping):
        return {**properties[_WRAPPED], **({"$defs": schema["$defs"]} if "$defs" in schema else {})}, True
    return schema, False


def _answer_of(result: McpResult, name: str, *, structured: bool, wrapped: bool) -> ToolAnswer:
    parts = [_part(content) for content in result.content]
    if result.failed:
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        raise RuntimeError(text or "the MCP server reported an error and said nothing of it")
    if structured and result.structured is not None:
        value = result.structured
        images = tuple(part for part in parts if isinstance(part, ToolImage))
        return ToolAnswer(value.get(_WRAPPED) if wrapped else value, images)
    texts = to_answer(parts, name)
    lines = list(map(str, texts.value))
    # Without a schema the answer is text; servers often send the same in both forms.
    if result.structured is not None and not any(_says(line, result.structured) for line in lines):
        lines.append(json.dumps(result.structured, ensure_ascii=False))
    return ToolAnswer("\n".join(lines), texts.images)


def _says(text: str, value: Any) -> bool:
    try:
        return bool(json.loads(text) in (value, value.get(_WRAPPED) if isinstance(value, dict) else value))
    except (ValueError, RecursionError):
        return isinstance(value, dict) and value == {_WRAPPED: text}


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
