"""`codeact mcp --wrap`: the tools of MCP servers as functions that code calls, with approval and a log of the calls."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from codeact_sandbox import AsyncSandbox, McpServer, Result, ToolApproval, ToolApprovalRequest
from codeact_sandbox.tools.approval import matches
from codeact_sandbox.tools.question_text import shown_call
from codeact_sandbox.tools.search import SearchTool
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.observers import CallFinished, CallIntent

MAX_CALL_CHARS = 100
MAX_CALLS_SHOWN = 20
RUN_CODE = """Run Python code that calls the tools found by search_tools as functions. Return what it prints, and its last value.

Call several tools in one block, and let the code select what is needed of their results. Variables stay from call to call.

Args:
    code: The code, such as `[each["id"] for each in crm.find_customers(city="Bonn")]`.
    language: "python", "sh" or "bash". Only Python can call the tools.
    timeout: Seconds that the code may take. Default: the limit of the server.
"""

# The `Context` of the request that runs the code.
client: ContextVar[Any] = ContextVar("client")


class _Consent(BaseModel):
    """What a user is asked to fill in: nothing but yes or no."""


class Wrapped:
    """MCP servers whose tools code calls.

    Args:
        allow: Patterns of tools that need no approval, such as `crm.find_*`, always with the server's name: the client's user is
            asked about each call to another one. None to ask about none.
        log: File to which a line of JSON is added before and after each call. None for no file.
    """

    def __init__(
        self, servers: Sequence[McpServer], allow: Sequence[str] | None = None, log: Path | None = None
    ) -> None:
        self._servers, self._allow, self._log = servers, allow, log
        self._search: SearchTool | None = None

    @property
    def instructions(self) -> str:
        names = ", ".join(printable(server.name) for server in self._servers)
        return (
            f"Tools of these servers can be called in code: {names}. Find them with search_tools, then call them as Python "
            "functions with run_code. Their calls and results stay in the sandbox; you see what the code prints."
        )

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"tools": list(self._servers)}
        if self._allow is not None:
            options["approve_tool"] = self._approve
        if self._log is not None:
            options["recorder"] = CallLog(self._log)
        return options

    async def search(self, sandbox: AsyncSandbox, query: str, limit: int) -> str:
        self._search = self._search or SearchTool(await sandbox.list_tools())
        return await asyncio.to_thread(self._search.describe, query, limit)

    async def _approve(self, request: ToolApprovalRequest) -> ToolApproval:
        if any(matches(request.name, pattern) for pattern in self._allow or ()):
            return ToolApproval(True)
        try:
            call = await asyncio.to_thread(shown_call, request.name, request.arguments)
        except ValueError as error:
            return ToolApproval(False, f"it can't be approved: {error}")
        try:
            answer = await client.get().elicit(f"May the code call {call}", _Consent)
        except Exception:  # noqa: BLE001 - whatever the package or the client makes of a request that it does not know
            return ToolApproval(
                False, "the MCP client can't ask its user; `--allow` of `codeact mcp` names tools that need no answer"
            )
        return ToolApproval(answer.action == "accept", "the user did not allow it")


class CallLog:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def call_starting(self, intent: CallIntent) -> None:
        self._write(event="starting", block=intent.block.block, name=intent.name, arguments=dict(intent.arguments))

    async def call_finished(self, finished: CallFinished) -> None:
        call = finished.call
        error = call.error.message if call.error is not None else None
        block = finished.intent.block.block
        self._write(event=call.outcome, block=block, name=call.name, duration_s=round(call.duration_s, 6), error=error)

    def _write(self, **fields: Any) -> None:
        line = json.dumps({"time": time.time(), "process": os.getpid(), **fields})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def calls_of(result: Result) -> list[str]:
    calls = [
        f"{_shown(call.name, call.arguments)}: {call.outcome}, {call.duration_s:.2f} s"
        for call in result.tool_calls[:MAX_CALLS_SHOWN]
    ]
    if more := len(result.tool_calls) - len(calls):
        calls.append(f"and {more:,} more")
    return ["Calls:", *calls] if calls else []


def _shown(name: str, arguments: Any) -> str:
    text = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    more = f" … and {len(text) - MAX_CALL_CHARS:,} characters more" if len(text) > MAX_CALL_CHARS else ""
    return f"{printable(f'{name}({text[:MAX_CALL_CHARS]}')}{more})"
