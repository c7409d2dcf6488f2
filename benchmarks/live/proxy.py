"""Stands between the agents and the model: the same limits for each of them, and a count and a trace of what they send."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


class Proxy(ThreadingHTTPServer):
    """Forwards requests to the model's server.

    Args:
        url: Address of the model's server.
        key: Its key.
        max_tokens: Tokens of an answer.
    """

    daemon_threads = True

    def __init__(self, url, key, max_tokens):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.forced = {"temperature": 0, "max_tokens": max_tokens, "seed": 1}
        self.client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=600,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self.trace = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        """Address for the agents."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def take(self):
        """Return and forget the requests since the last time, each with its answer and token counts."""
        taken, self.trace = self.trace, []
        return taken


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for name in ("max_completion_tokens", "logprobs", "top_p"):
            body.pop(name, None)
        body |= self.server.forced
        if body.get("stream"):
            body["stream_options"] = {"include_usage": True}
        began, pieces = time.monotonic(), []
        with (
            contextlib.suppress(BrokenPipeError, ConnectionResetError),
            self.server.client.stream("POST", self.path, json=body) as answer,
        ):
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("content-type", "application/json"))
            self.send_header("Connection", "close")
            self.end_headers()
            for piece in answer.iter_bytes():
                pieces.append(piece)
                self.wfile.write(piece)
                self.wfile.flush()
        self.close_connection = True
        text, usage = read_answer(b"".join(pieces), bool(body.get("stream")))
        self.server.trace.append(
            {"messages": body.get("messages"), "answer": text, "usage": usage, "seconds": time.monotonic() - began}
        )


def read_answer(data, streamed):
    """Return the text and the token counts of an answer of OpenAI's format."""
    chunks = []
    for line in data.decode(errors="replace").split("\n") if streamed else [data.decode(errors="replace")]:
        with contextlib.suppress(ValueError):
            chunks.append(json.loads(line.removeprefix("data: ")))
    text, usage = "", {}
    for chunk in filter(lambda each: isinstance(each, dict), chunks):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or []:
            text += (choice.get("delta") or choice.get("message") or {}).get("content") or ""
    return text, {name: usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
