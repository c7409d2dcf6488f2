"""What the model of an example can say: the shared scripted server, which speaks, with tool calls added."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..openai_server import OpenAIServer, Reply
from ..openai_server import _Handler as SpeakingHandler


@dataclass(frozen=True)
class ToolCall(Reply):
    """A reply that asks for one tool call instead of saying something."""

    finish_reason: str = "tool_calls"
    name: str = ""
    arguments: str = "{}"


Answer = str | Reply


def tool_call(name: str, **arguments: object) -> ToolCall:
    """A reply that calls a tool with these arguments."""
    return ToolCall(name=name, arguments=json.dumps(arguments))


def scripted_model(replies: Sequence[Answer]) -> OpenAIServer:
    """The shared server, able to call tools; start and stop it yourself."""
    server = OpenAIServer(list(replies))
    server._http.RequestHandlerClass = _CallingHandler
    return server


class _CallingHandler(SpeakingHandler):
    def _completion(self, request: dict[str, Any], reply: Reply) -> dict[str, Any]:
        body = super()._completion(request, reply)
        if isinstance(reply, ToolCall):
            function = {"name": reply.name, "arguments": reply.arguments}
            calls = [{"id": "call_1", "type": "function", "function": function}]
            body["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": calls}
        return body
