"""MCP servers as sources of host tools, with the package `mcp` 1 or 2."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import logging
import os
import re
import shlex
import urllib.parse
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TextIO

from codeact_sandbox.tools.names import distinct, identifier
from codeact_sandbox.tools.source import STOP_TIMEOUT_S, ToolSource
from codeact_sandbox.types.errors import SandboxStartError
from codeact_sandbox.types.filenames import printable_text
from codeact_sandbox.types.tool import HostToolProtocol

logger = logging.getLogger("codeact_sandbox")

MAX_TOOLS = 10_000
MAX_PAGES = 1000  # pages of a server's list of tools, which can be empty or repeat themselves
CANCEL_TIMEOUT_S = 1.0
LAST_WORDS_S = 0.05  # how long what a server wrote before its end may take to arrive
SHOWN_BYTES = 1000  # how much of a server's standard error is shown when it fails: the end
NO_MCP = "MCP servers need the Python package `mcp`. Install it: pip install 'mcp<3'"
_PLAIN_REFERENCE = re.compile(r"(?:[A-Za-z]+ )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class McpServer:
    """An MCP server, whose tools code can call: `tools=[McpServer("npx -y @example/crm")]`.

    In all texts `${NAME}` and `${NAME:-default}` are variables of this process, looked up when the server is started.

    Args:
        command: The program that is started, with its arguments; a text is split as by a shell. None for a server with `url`.
        url: Address of a server that is reached by streamable HTTP. None for a program.
        env: Variables for the program, beside PATH, HOME and the like. Default: no others.
        headers: Headers of the requests to `url`, such as `{"Authorization": "Bearer ${TOKEN}"}`. Default: none.
        cwd: Folder in which the program runs. Default: that of this process.
        name: What errors and approvals (`crm.search`) call it, and its module where another tool has the same name. Default: from
            `command` or `url`.

    Raises:
        ValueError: There is not exactly one of `command` and `url`.
        TypeError: A text is something else.
    """

    command: str | Sequence[str] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        command = shlex.split(self.command) if isinstance(self.command, str) else list(self.command or ())
        if bool(command) == bool(self.url):
            raise ValueError(
                "an MCP server needs a command or a url: McpServer('command …') or McpServer(url='https://…')"
            )
        texts = [
            *command,
            *self.env,
            *self.env.values(),
            *self.headers,
            *self.headers.values(),
            self.url or "",
            self.name,
        ]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("command, url, env, headers and name of an MCP server are texts")
        if self.url and urllib.parse.urlsplit(self.url).scheme not in ("http", "https") and "${" not in self.url:
            raise ValueError(f"the url of an MCP server begins with http:// or https://, not {self.url!r}")
        name = self.name or (Path(command[0]).stem if command else urllib.parse.urlsplit(self.url or "").hostname)
        values = {
            "command": command or None,
            "env": dict(self.env),
            "headers": dict(self.headers),
            "name": name or "server",
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def resolved(self) -> McpServer:
        """Replace the references by the values of this process's variables."""

        def value(match: re.Match[str]) -> str:
            found = os.environ.get(match[1]) or match[2]
            if found is None:
                raise SandboxStartError(
                    f"The MCP server `{self.name}` needs the variable {match[1]}, which is not set: set it."
                )
            return found

        def of(thing: Any) -> Any:
            if isinstance(thing, dict):
                return {key: of(each) for key, each in thing.items()}
            if isinstance(thing, list):
                return [of(each) for each in thing]
            return _REFERENCE.sub(value, thing) if isinstance(thing, str) else thing

        return replace(self, **{each.name: of(getattr(self, each.name)) for each in fields(self)})

    def config(self) -> dict[str, Any]:
        """Return the arguments for a config: what `env` and `headers` say literally becomes a reference to a variable."""
        values = {each.name: value for each in fields(self) if (value := getattr(self, each.name))}
        for key in {"env", "headers"} & values.keys():
            values[key] = {
                name: value if _PLAIN_REFERENCE.fullmatch(value) else f"${{{re.sub(r'[^A-Za-z0-9_]', '_', name)}}}"
                for name, value in values[key].items()
            }
        return values


def read_servers(text: str, origin: str) -> list[McpServer]:
    """Read servers from JSON as clients have it: `{"mcpServers": {"crm": {"command": "npx", "args": ["-y", "crm"]}}}`.

    Args:
        text: The JSON.
        origin: Where it is from, for errors.

    Returns:
        The servers, without those that are `disabled`. What is unknown is ignored, because each client adds fields of its own.

    Raises:
        ValueError: It is something else; the message says what.
    """
    try:
        entries = json.loads(text)["mcpServers"].items()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{origin} is not JSON: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f'{origin} has no servers: write {{"mcpServers": {{"NAME": {{"command": "…"}}}}}}') from None
    servers = []
    for name, entry in entries:
        try:
            command = [entry["command"], *entry.get("args", ())] if "command" in entry else None
            options = {key: entry[key] for key in ("url", "env", "headers", "cwd") if entry.get(key)}
            if not entry.get("disabled"):
                servers.append(McpServer(command, **options, name=name))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{origin}: the server {name!r} can't be used: {error}") from None
    return servers


class McpSource(ToolSource):
    """The tools of an MCP session, which lasts from `open` to `close`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.label = identifier(name)
        self._session: asyncio.Future[Any] | None = None
        self._end = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._errors = bytearray()

    async def open(self) -> None:
        """Start it, or connect to it."""
        # The package `mcp` wants a session to end in the task that has begun it.
        self._end, self._session = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._errors.clear()
        self._working = asyncio.create_task(self._work(self._session))
        await asyncio.wait({self._working, self._session}, return_when=asyncio.FIRST_COMPLETED)
        if self._working.done():
            error = self._working.exception()
            if error is None or isinstance(error, SandboxStartError):
                raise error or SandboxStartError(f"The {self.name} ended at once.")
            raise SandboxStartError(f"The {self.name} did not start: {_reason(error)}.{self._last_words()}") from error

    async def close(self) -> None:
        """Stop it, also if it does not answer."""
        working, self._working = self._working, None
        if working is None:
            return
        self._end.set()
        if self._session is not None and not self._session.done():
            working.cancel()
        if not (await asyncio.wait({working}, timeout=STOP_TIMEOUT_S))[0]:
            working.cancel()
            await asyncio.wait({working}, timeout=STOP_TIMEOUT_S)

    async def list_tools(self) -> Sequence[HostToolProtocol]:
        """List its tools, page by page."""
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._asked(lambda session, types: _list_tools(session, types, cursor))  # noqa: B023
            except (ConnectionError, RuntimeError) as error:
                raise SandboxStartError(f"The tools of the {self.name} can't be listed: {error}") from error
            found += page.tools
            cursor = getattr(page, "next_cursor" if _is_second() else "nextCursor")
            if cursor is None or len(found) > MAX_TOOLS:
                break
        if cursor is not None or len(found) > MAX_TOOLS:
            raise SandboxStartError(f"The {self.name} lists more than {MAX_TOOLS:,} tools, or its list has no end.")
        described = list(map(self.described, found))
        names = distinct(name for name, _ in described)
        return await asyncio.to_thread(lambda: list(map(self._tool, found, names, [each for _, each in described])))

    def described(self, raw: Any) -> tuple[str, str]:
        """Return the name and the description of a tool."""
        return raw.name, raw.description or ""

    def _tool(self, raw: Any, name: str, description: str) -> HostToolProtocol:
        from codeact_sandbox.tools.mcp_results import McpResult, mcp_tool  # noqa: PLC0415 - loads `jsonschema`

        async def call(arguments: Mapping[str, Any]) -> McpResult:
            self.check_loop()
            result = await self._asked(lambda session, types: _call_tool(session, types, raw.name, dict(arguments)))
            if _is_second():
                return McpResult(result.content, result.is_error, result.structured_content)
            return McpResult(result.content, result.isError, result.structuredContent)

        schemas = (raw.input_schema, raw.output_schema) if _is_second() else (raw.inputSchema, raw.outputSchema)
        return mcp_tool(name, description, schemas, call, f"the {self.name}")

    async def _asked(self, ask: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        """Send a request, and say clearly what is wrong if it has no answer."""
        if self._working is None or self._session is None:
            raise ConnectionError(f"the {self.name} has been stopped")
        asking = asyncio.ensure_future(ask(self._session.result(), importlib.import_module("mcp.types")))
        try:
            # `mcp` 1 lets a request wait for ever if its server ends before it is sent.
            await asyncio.wait({asking, self._working}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        except Exception as error:
            if str(error) and not str(error).endswith("onnection closed"):
                raise RuntimeError(f"the {self.name} answered with an error: {_reason(error)}") from error
        finally:
            asking.cancel()
        await asyncio.sleep(LAST_WORDS_S)
        # Not in the error, which the code in the sandbox gets.
        logger.warning("the %s has ended.%s", self.name, self._last_words())
        raise ConnectionError(f"the {self.name} has ended; stop and start the sandbox to have it again")

    def _last_words(self) -> str:
        said = printable_text(self._errors.decode(errors="replace")).strip()
        return f" It wrote:\n{said}" if said else ""

    async def _work(self, ready: asyncio.Future[Any]) -> None:
        """Keep a session until the end is wanted."""
        async with self._connected() as session:
            ready.set_result(session)
            await self._end.wait()

    @abstractmethod
    def _connected(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return a session that has been initialized."""


class McpServerSource(McpSource):
    """The tools of an MCP server, which runs from `open` to `close`."""

    def __init__(self, server: McpServer) -> None:
        super().__init__(f"MCP server `{printable_text(server.name)}`")
        self.server = server
        self.group = self.label = identifier(server.name)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        try:
            mcp: Any = importlib.import_module("mcp")
        except ModuleNotFoundError as error:
            raise SandboxStartError(NO_MCP) from error
        server = self.server.resolved()
        async with contextlib.AsyncExitStack() as stack:
            if server.url is not None:
                transport = await _http_transport(server.url, server.headers, stack)
            else:
                program, *arguments = server.command or ()
                parameters = mcp.StdioServerParameters(
                    command=program, args=arguments, env=dict(server.env), cwd=server.cwd
                )
                transport = mcp.stdio_client(parameters, stack.enter_context(self._listening()))
            if _is_second():
                client = await stack.enter_async_context(mcp.Client(transport, cache=None))
                yield client.session
                return
            read, write, *_ = await stack.enter_async_context(transport)
            session = await stack.enter_async_context(mcp.ClientSession(read, write))
            await session.initialize()
            yield session

    @contextlib.contextmanager
    def _listening(self) -> Iterator[TextIO]:
        """Return a file for the server's standard error; its end is kept for errors."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                if not (data := os.read(reading, 65536)):
                    loop.remove_reader(reading)
                self._errors = (self._errors + data)[-SHOWN_BYTES:]

        loop.add_reader(reading, read)
        try:
            with os.fdopen(writing, "w") as file:
                yield file
        finally:
            loop.remove_reader(reading)
            os.close(reading)


@functools.cache
def _is_second() -> bool:
    """Return whether the package `mcp` is version 2, whose names differ."""
    return importlib.util.find_spec("mcp_types") is not None


async def _http_transport(url: str, headers: Mapping[str, str], stack: contextlib.AsyncExitStack) -> Any:
    streamable_http: Any = importlib.import_module("mcp.client.streamable_http")

    connect = getattr(streamable_http, "streamable_http_client", None)
    if connect is None:  # before mcp 1.24
        return streamable_http.streamablehttp_client(url, dict(headers))
    client = streamable_http.create_mcp_http_client(headers=dict(headers))
    return connect(url, http_client=await stack.enter_async_context(client))


async def _list_tools(session: Any, types: Any, cursor: str | None) -> Any:
    if _is_second():
        return await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
    return await session.list_tools(cursor)


async def _call_tool(session: Any, types: Any, name: str, arguments: dict[str, Any]) -> Any:
    # The method `call_tool` would check results with the server's own patterns, which can hold up this program for ever.
    request = types.CallToolRequest(
        method="tools/call", params=types.CallToolRequestParams(name=name, arguments=arguments)
    )
    if _is_second():
        return await session.send_request(request, types.CallToolResult)
    number = session._request_id
    try:
        return await session.send_request(types.ClientRequest(request), types.CallToolResult)
    except asyncio.CancelledError:  # of which mcp 1 does not tell the server
        params = types.CancelledNotificationParams(requestId=number)
        cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
        async with asyncio.timeout(CANCEL_TIMEOUT_S):
            await session.send_notification(types.ClientNotification(cancelled))
        raise


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"{error.strerror}: {error.filename}"
    return printable_text(" ".join(str(error).split()))[:SHOWN_BYTES]
