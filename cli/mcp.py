"""`codeact mcp`: sandboxes for MCP clients."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice, servers_in
from codeact_sandbox import AsyncSandbox

if TYPE_CHECKING:
    from codeact_sandbox.integrations.mcp_wrap import Wrapped

NO_MCP = "The Python package `mcp` is missing. Install it: pip install 'mcp<3'"


def wrapped_servers(
    choice: SandboxChoice, file: Path | None, allow: list[str] | None, call_log: Path | None
) -> Wrapped | None:
    """Return the servers of `--wrap`, or None without it; check that there is the package `mcp`."""
    try:
        import codeact_sandbox.integrations.mcp_server  # noqa: F401, PLC0415 - the extra may be missing
        from codeact_sandbox.integrations.mcp_wrap import Wrapped  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise CommandError(NO_MCP) from error
    if choice.mcp is not None:
        raise CommandError(
            "Here the servers are given with --wrap FILE.json, so that the client's model finds their tools."
        )
    if file is not None:
        return Wrapped(servers_in(file), allow, call_log)
    if allow is not None or call_log is not None:
        raise CommandError("--allow and --call-log are for the tools of --wrap FILE.json: add that.")
    return None


def serve_mcp(choice: SandboxChoice, wrapped: Wrapped | None) -> int:
    """Serve until the client closes standard input."""
    from codeact_sandbox.integrations.mcp_server import serve  # noqa: PLC0415 - of an extra

    return asyncio.run(serve(sandbox_of(choice, wrapped), wrapped))


def serve_http(
    choice: SandboxChoice, wrapped: Wrapped | None, address: str, max_sessions: int, idle_timeout: float
) -> int:
    """Serve clients until the process is interrupted."""
    from codeact_sandbox.integrations import mcp_http, mcp_server  # noqa: PLC0415 - of an extra

    sandbox_of(choice, wrapped)  # what is wrong with the options is said now
    if choice.work_dir is not None:
        raise CommandError("--work-dir is for one client: with --http, sessions would overwrite each other's files.")
    sessions = mcp_http.Sessions(partial(sandbox_of, choice, wrapped), max_sessions, idle_timeout)
    app = mcp_server.make_http_app(sessions, wrapped)
    try:
        place = mcp_http.parse_address(address)
        return asyncio.run(mcp_http.listen(app, sessions, place, os.environ.get("CODEACT_MCP_TOKEN") or None))
    except ValueError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{address} can't be listened on: {error.strerror}") from error


def sandbox_of(choice: SandboxChoice, wrapped: Wrapped | None = None) -> AsyncSandbox:
    """Make the sandbox that the options describe."""
    if choice.mode == "process":
        raise CommandError("codeact mcp has one live interpreter: leave --mode process out.")
    try:
        return AsyncSandbox(choice.kind, **choice.options(), **(wrapped.options() if wrapped is not None else {}))
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
