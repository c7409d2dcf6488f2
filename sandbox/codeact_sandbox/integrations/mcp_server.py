"""An MCP server that gives its client a sandbox: `codeact mcp`. It works with the package `mcp` 1 and 2."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings

from codeact_sandbox import AsyncSandbox, OutputChunk, Result, SandboxError
from codeact_sandbox.image_check import ImageRefused, check_image
from codeact_sandbox.integrations.answers import MAX_IMAGES, describe, names_of
from codeact_sandbox.integrations.mcp_http import IDLE_S, MAX_SESSIONS, Sessions, listen, parse_address
from codeact_sandbox.integrations.mcp_wrap import RUN_CODE, Wrapped, calls_of, client
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.skills import Skill, describe_skills

try:
    from mcp.server.mcpserver import Context, Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    from mcp.server.fastmcp import Context, Image
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp.exceptions import ToolError

    _IS_SECOND = False
else:
    _IS_SECOND = True

INSTRUCTIONS = (
    "Run code in an isolated sandbox. Python runs in one live interpreter: variables, functions and imports stay from call to "
    "call. Files are relative to the working directory."
)
IMAGE_TYPES = ("image/png", "image/jpeg")
MAX_IMAGE_BYTES = 4 * 1024**2
MAX_TEXT_BYTES = 256 * 1024  # size of the largest text file that `read_file` returns
MAX_SHOWN_CHARS = 48 * 1024  # length of the longest text that a result has in full
OWN_TOOLS = ("run_code", "read_file", "write_file", "list_files", "restart")
WRAPPED_TOOLS = ("search_tools", "run_code")
PROGRESS_INTERVAL_S = 0.1  # time between two notifications with output of a running block


def run_server(
    make: Callable[..., AsyncSandbox],
    wrapped: Wrapped | None = None,
    address: str | None = None,
    max_sessions: int = MAX_SESSIONS,
    idle_s: float = IDLE_S,
) -> int:
    """Serve one MCP client on standard input and output, or many by HTTP at `[HOST:]PORT`; return the exit status."""
    options = wrapped.options() if wrapped is not None else {}
    skills = make(**options).skills if address is not None else ()
    if address is None:
        return asyncio.run(serve(make(**options), wrapped))
    sessions = Sessions(partial(make, **options), max_sessions, idle_s)
    app, place = make_http_app(sessions, wrapped, skills), parse_address(address)
    return asyncio.run(listen(app, sessions, place, os.environ.get("CODEACT_MCP_TOKEN") or None))


async def serve(sandbox: AsyncSandbox, wrapped: Wrapped | None = None) -> int:
    """Serve one client until it disconnects, and stop the sandbox; SIGINT and SIGTERM end the process, with 128 + number."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[int] = loop.create_future()

    def interrupt(number: int) -> None:
        if not interrupted.done():
            interrupted.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, interrupt, number)
    serving = asyncio.ensure_future(make_server(sandbox, wrapped).run_stdio_async())
    waiting: set[asyncio.Future[Any]] = {serving, interrupted}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
        return 0
    await sandbox.stop()
    # A thread of the package `mcp` is blocked in reading standard input, and a normal exit would wait for it.
    os._exit(128 + interrupted.result())


def make_server(sandbox: AsyncSandbox, wrapped: Wrapped | None = None) -> MCPServer:
    """Make a server for one client; the first call starts the sandbox, and it is stopped when the client disconnects."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await sandbox.stop()

    tools = _Tools(sandbox, wrapped)
    return _server_of(lambda name: getattr(tools, name), wrapped, sandbox.skills, lifespan=lifespan)


def make_http_app(sessions: Sessions, wrapped: Wrapped | None = None, skills: Sequence[Skill] = ()) -> Any:
    """Make an ASGI application that serves clients at `/mcp`; who calls this ends the sessions."""
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the `Guard` checks requests
    more = {} if _IS_SECOND else {"transport_security": security}
    server = _server_of(lambda name: _in_sessions(name, sessions, wrapped), wrapped, skills, **more)
    return server.streamable_http_app(**({"transport_security": security} if _IS_SECOND else {}))


def _server_of(
    tool_of: Callable[[str], Callable[..., Any]],
    wrapped: Wrapped | None,
    skills: Sequence[Skill],
    **options: Any,
) -> MCPServer:
    parts = [INSTRUCTIONS if wrapped is None else wrapped.instructions, describe_skills(skills)]
    instructions = "\n\n".join(filter(None, parts))
    server = MCPServer("codeact", instructions=instructions, log_level="WARNING", **options)
    for name in OWN_TOOLS if wrapped is None else WRAPPED_TOOLS:
        tool = tool_of(name)
        description = RUN_CODE if wrapped is not None and name == "run_code" else inspect.getdoc(tool)
        server.tool(description=description, structured_output=False)(tool)
    return server


def _in_sessions(name: str, sessions: Sessions, wrapped: Wrapped | None) -> Callable[..., Awaitable[Any]]:
    """Return a tool of the sandbox that its caller's session has."""
    tool = getattr(_Tools, name)
    signature = inspect.signature(tool, eval_str=True)
    own = {key: each for key, each in signature.parameters.items() if key not in ("self", "ctx")}

    async def call(ctx: Context, session: str = "", **given: Any) -> Any:
        more = {"ctx": ctx} if "ctx" in signature.parameters else {}
        key = ctx.request_context.request.headers.get("mcp-session-id")
        with _tool_errors():
            async with sessions.of_call(key, session) as (sandbox, notes):
                try:
                    answer = await tool(_Tools(sandbox, wrapped), **more, **given)
                except ToolError as error:
                    raise ToolError("\n".join([str(error), *notes])) from error
        return [*(answer if isinstance(answer, list) else [answer]), *notes]

    of_call = inspect.signature(call, eval_str=True).parameters
    parameters = [of_call["ctx"], *own.values(), of_call["session"]]
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=Any)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__name__ = name
    call.__doc__ = f"{inspect.getdoc(tool)}\n\n`session` is the session that an earlier result has named, if one has."
    return call


def _cut(text: str) -> str:
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    half = MAX_SHOWN_CHARS // 2
    left = f"\n[… {len(text) - 2 * half:,} characters are left out: print less, or write a file …]\n"
    return f"{text[:half]}{left}{text[-half:]}"


class _Tools:
    """The tools. The client's model reads the docstrings of the public methods."""

    def __init__(self, sandbox: AsyncSandbox, wrapped: Wrapped | None) -> None:
        self._sandbox, self._wrapped = sandbox, wrapped

    async def search_tools(self, query: str = "", limit: int = 5) -> str:
        """Find functions that code in run_code can call: their signatures and descriptions. Without a query, all names.

        Args:
            query: What is wanted, in words.
            limit: How many at most.
        """
        assert self._wrapped is not None
        with _tool_errors():
            return await self._wrapped.search(self._sandbox, query, limit)

    async def run_code(
        self, ctx: Context, code: str, language: str = "python", timeout: float | None = None
    ) -> list[Any]:
        """Run code. Return what it prints, the value of its last expression, and the images that it shows or saves.

        Python variables stay from call to call, also when a call fails.

        Args:
            code: The code.
            language: "python", "sh" or "bash".
            timeout: Seconds that the code may take. Default: the limit of the server.
        """
        client.set(ctx)
        with _tool_errors():
            async with _progress(ctx) as report:
                async for item in self._sandbox.stream(code, language, timeout):
                    if isinstance(item, OutputChunk):
                        if item.text:
                            report(item.text)
                    else:
                        result = item
            if result.exit_code != 0:
                raise ToolError(_cut(describe(result, result.notes, calls_of(result))))
            images, notes = await self._images(result)
            return [_cut(describe(result, [*result.notes, *notes], calls_of(result))), *images]

    async def read_file(self, name: str) -> str | Image:
        """Return the content of a text file or an image.

        Args:
            name: Path of the file, relative to the working directory.
        """
        with _tool_errors():
            data = await self._sandbox.read(name, MAX_IMAGE_BYTES)
        with contextlib.suppress(ImageRefused):
            return await _image(data)
        if len(data) > MAX_TEXT_BYTES:
            raise ToolError(f"{name} is too large ({len(data):,} bytes). Print the part that you need with run_code.")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError(f"{name} is not a text file ({len(data):,} bytes). Read it with run_code.") from None

    async def write_file(self, name: str, content: str) -> str:
        """Write a text file. An existing file of that name is replaced.

        Args:
            name: Path of the file, relative to the working directory.
            content: The text.
        """
        with _tool_errors():
            missing = await self._sandbox.write(name, content)
        wrote = f"Wrote {len(content.encode()):,} bytes to {name}"
        return f"{wrote}." if missing is None else f"{wrote} in the sandbox only: {missing}"

    async def list_files(self) -> str:
        """List the files of the working directory, one a line."""
        with _tool_errors():
            names = await self._sandbox.list_files()
        return "\n".join(names_of(names)) or "There are no files."

    async def restart(self) -> str:
        """Start a new session: variables, functions and imports are gone, files stay."""
        with _tool_errors():
            await self._sandbox.restart()
        return "The session was restarted. Variables, functions and imports are gone. The files are still there."

    async def _images(self, result: Result) -> tuple[list[Image], list[str]]:
        """Return the images that a block has shown, made or changed, and say which ones can't be shown."""
        images: list[Image] = []
        notes: list[str] = []
        shown = {display.name: display.image[0] for display in result.displays if display.image is not None}
        calls = (image.data for call in result.tool_calls for image in call.images)
        shown |= {f"{number} of the calls": data for number, data in enumerate(itertools.islice(calls, MAX_IMAGES), 1)}
        files = [each for each in result.artifacts if each.media_type in IMAGE_TYPES and each.size <= MAX_IMAGE_BYTES]
        names = dict.fromkeys([*shown, *(each.name for each in files)])
        for name in itertools.islice(names, MAX_IMAGES):
            try:
                data = shown[name] if name in shown else await self._sandbox.read(name, MAX_IMAGE_BYTES)
                images.append(await _image(data))
            except (ImageRefused, SandboxError, ValueError) as error:
                notes.append(f"The image {printable(name)} is not shown: {error}")
        return images, notes


async def _image(data: bytes) -> Image:
    """Check an image, because clients and models fail at broken ones."""
    content, media_type = await asyncio.to_thread(check_image, data)
    return Image(data=content, format=media_type.removeprefix("image/"))


@contextlib.asynccontextmanager
async def _progress(ctx: Context) -> AsyncIterator[Callable[[str], None]]:
    """Send output as progress notifications, several pieces in one."""
    waiting: list[str] = []

    async def send() -> None:
        for number in itertools.count(1):
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            if waiting:
                text = "".join(waiting)
                waiting.clear()
                await ctx.report_progress(number, message=text)

    sending = asyncio.create_task(send())
    try:
        yield waiting.append
    finally:
        sending.cancel()  # what still waits is part of the result
        await asyncio.gather(sending, return_exceptions=True)


@contextlib.contextmanager
def _tool_errors() -> Iterator[None]:
    """Convert errors of a call or of the sandbox into errors that the client's model can read."""
    try:
        yield
    except (SandboxError, ValueError) as error:
        raise ToolError(str(error)) from error
