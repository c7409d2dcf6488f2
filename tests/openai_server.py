"""A server on loopback that speaks OpenAI's chat-completions format and answers from a script.

It stands in for the model's words only; HTTP, JSON, server-sent events and the clients are the real ones:

    async with OpenAIServer(["first answer", Reply("second", pause_after=2)]) as server:
        agent = CodeExecutorAgent("coder", executor, model_client=server.client())
        ...
        assert server.requests[0]["messages"] == [...]
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from autogen_ext.models.openai import OpenAIChatCompletionClient

structured = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
"""For tests with answers that fit a schema: AutoGen's client logs the parsed answer, about which pydantic warns."""

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that use no TLS: to load the certificates of all authorities takes 30 ms of processor time for each client."""
_call_numbers = count(1)


@dataclass(frozen=True)
class Reply:
    """One scripted answer.

    Args:
        content: What the model says.
        thought: Its reasoning, sent as `reasoning_content`.
        tool_calls: Names and arguments of tools that it calls.
        finish_reason: Why it stopped.
        prompt_tokens: Reported usage.
        completion_tokens: Reported usage.
        pause_after: In a stream, send nothing more after so many pieces of content, until the client hangs up.
        trickles: Send the answer's bytes one by one, which is never done, until the client hangs up.
        endless: Never stop talking, until the client hangs up.
        silent: Never answer, until the client hangs up.
        status: Other than 200: refuse with this HTTP status, `content` being the error message.
        headers: More headers of a refusal.
    """

    content: str = ""
    thought: str | None = None
    tool_calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    finish_reason: str = "stop"
    prompt_tokens: int = 7
    completion_tokens: int = 3
    pause_after: int | None = None
    trickles: bool = False
    endless: bool = False
    silent: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[list[dict[str, Any]]], str | Reply]
"""Returns what the model says in a conversation."""


class OpenAIServer:
    """Serves `replies` in order, one for each request that it does not refuse."""

    def __init__(
        self, replies: list[Reply | str] | Answer, *, refuses: frozenset[str] | set[str] = frozenset()
    ) -> None:
        script = replies if isinstance(replies, list) else []
        self.script = [reply if isinstance(reply, Reply) else Reply(reply) for reply in script]
        self._answer = None if isinstance(replies, list) else replies
        self.refuses = refuses
        self.requests: list[dict[str, Any]] = []
        self.stopping = threading.Event()
        self._clients: list[OpenAIChatCompletionClient] = []
        self._recorded = threading.Condition()
        self._http = _HTTPServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), name="openai-server")

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def client(
        self,
        *,
        structured_output: bool = True,
        json_output: bool = True,
        vision: bool = False,
        max_retries: int = 0,
        **more: Any,
    ) -> OpenAIChatCompletionClient:
        """Return AutoGen's own client for this server, which closes it."""
        # Environments of other frameworks have no AutoGen.
        import openai  # noqa: PLC0415
        from autogen_core.models import ModelInfo  # noqa: PLC0415
        from autogen_ext.models.openai import OpenAIChatCompletionClient  # noqa: PLC0415

        client = OpenAIChatCompletionClient(
            model="scripted",
            base_url=self.base_url,
            api_key="none-needed",
            max_retries=max_retries,
            model_info=ModelInfo(
                vision=vision,
                function_calling=False,
                json_output=json_output,
                family="unknown",
                structured_output=structured_output,
            ),
            **{"http_client": openai.DefaultAsyncHttpxClient(verify=_NO_CERTIFICATES), **more},
        )
        self._clients.append(client)
        return client

    async def requested(self, count: int) -> None:
        """Wait until `count` requests have been received, at most 20 s."""

        def wait() -> bool:
            with self._recorded:
                return self._recorded.wait_for(lambda: len(self.requests) >= count, timeout=40)

        assert await asyncio.to_thread(wait), f"{len(self.requests)} requests came in, not {count}"

    def start(self) -> OpenAIServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.close_connections()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> OpenAIServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> OpenAIServer:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close_clients()
        self.stop()

    async def close_clients(self) -> None:
        """Close the clients that it has made, in the event loop that has used them."""
        while self._clients:
            await self._clients.pop().close()

    def take(self, request: dict[str, Any]) -> Reply:
        """Record a request and return its answer."""
        with self._recorded:
            self.requests.append(request)
            self._recorded.notify_all()
            wanted = {(request.get("response_format") or {}).get("type"), *(request.get("stream_options") or {})}
            if refused := wanted & self.refuses:
                return Reply(f"not supported: {', '.join(refused)}", status=400)
            if not request.get("messages"):
                return Reply("messages must not be empty", status=400)
            if self._answer is None:
                return self.script.pop(0) if self.script else Reply("the script has no reply left", status=500)
        answer = self._answer(request["messages"])  # which may take its time, while others are answered
        return answer if isinstance(answer, Reply) else Reply(answer)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, owner: OpenAIServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has been killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def close_connections(self) -> None:
        """Close idle connections, whose threads would otherwise wait for a next request."""
        for connection in list(self._open):
            with suppress(OSError):  # the client has closed it already
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are separate writes, which would cost 40 ms each time
    server: _HTTPServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self._refuse(Reply(f"no such path: {self.path}", status=404))
        reply = self.server.owner.take(request)
        try:
            if reply.status != 200:
                self._refuse(reply)
            elif reply.silent:
                self.server.owner.stopping.wait()
            elif reply.trickles:
                self._chunked("text/event-stream", self._trickle(), broken=True)
            elif request.get("stream"):
                self._chunked("text/event-stream", self._events(request, reply), broken=False)
            elif reply.endless:
                self._chunked("application/json", self._endless_body(request, reply), broken=True)
            else:
                self._whole(200, self._completion(request, reply))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client closed the connection, as some tests want

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log nothing."""

    def _refuse(self, reply: Reply) -> None:
        error = {"message": reply.content, "type": "invalid_request_error", "param": None, "code": None}
        self._raw(reply.status, "application/json", json.dumps({"error": error}), reply.headers)

    def _whole(self, status: int, body: dict[str, Any]) -> None:
        self._raw(status, "application/json", json.dumps(body))

    def _raw(self, status: int, content_type: str, body: str, headers: Mapping[str, str] | None = None) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chunked(self, content_type: str, pieces: Iterator[str], *, broken: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if broken:
            self.close_connection = True  # without the last chunk: to the client the connection broke
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _completion(self, request: dict[str, Any], reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.thought is not None:
            message["reasoning_content"] = reply.thought
        if reply.tool_calls:
            message |= {"content": reply.content or None, "tool_calls": _tool_calls(reply)}
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply), "logprobs": None}
        return {**_envelope(request, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def _endless_body(self, request: dict[str, Any], reply: Reply) -> Iterator[str]:
        yield json.dumps(self._completion(request, reply)).partition(json.dumps(reply.content))[0] + '"'
        while not self.server.owner.stopping.wait(0.01):
            yield "and on " * 20

    def _trickle(self) -> Iterator[str]:
        yield "data: {"
        while not self.server.owner.stopping.wait(0.05):
            yield " "

    def _events(self, request: dict[str, Any], reply: Reply) -> Iterator[str]:
        envelope = _envelope(request, "chat.completion.chunk")

        def event(delta: dict[str, Any], finish_reason: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
            return _event({**envelope, "choices": [choice]})

        yield event({"role": "assistant", "content": ""})
        if reply.thought is not None:
            yield event({"reasoning_content": reply.thought})
        for index, each in enumerate(_tool_calls(reply)):
            yield event({"tool_calls": [{"index": index, **each}]})
        for piece in _pieces(reply.content)[: reply.pause_after]:
            yield event({"content": piece})
        if reply.pause_after is not None:
            self.server.owner.stopping.wait()
        number = 0  # in each piece, because an answer that repeats itself is stopped
        while reply.endless and not self.server.owner.stopping.wait(0.01):
            number += 1
            yield event({"content": f"and on {number} "})
        if reply.pause_after is None:
            yield event({}, _finish_reason(reply))
            if (request.get("stream_options") or {}).get("include_usage"):
                yield _event({**envelope, "choices": [], "usage": _usage(reply)})
            yield "data: [DONE]\n\n"


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call-{next(_call_numbers)}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments in reply.tool_calls
    ]


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else reply.finish_reason


def _pieces(text: str, size: int = 12) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _envelope(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": request["model"]}


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
