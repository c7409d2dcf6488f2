"""`codeact mcp`: a sandbox for the client of an MCP server on standard input and output."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice, servers_in
from codeact_sandbox import AsyncSandbox

NO_MCP = "The Python package `mcp` is missing. Install it: pip install 'mcp<3'"


def serve_mcp(
    choice: SandboxChoice, wrap: Path | None = None, allow: list[str] | None = None, call_log: Path | None = None
) -> int:
    """Serve until the client closes standard input; with `wrap`, code calls the tools of the servers in that file."""
    try:
        from codeact_sandbox.integrations.mcp_server import serve  # noqa: PLC0415 - the extra may be missing
        from codeact_sandbox.integrations.mcp_wrap import Wrapped  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise CommandError(NO_MCP) from error
    if wrap is None and (allow is not None or call_log is not None):
        raise CommandError("--allow and --call-log are for the tools of --wrap FILE.json: add that.")
    if choice.mcp is not None:
        raise CommandError(
            "Here the servers are given with --wrap FILE.json, so that the client's model finds their tools."
        )
    wrapped = Wrapped(servers_in(wrap), allow, call_log) if wrap is not None else None
    return asyncio.run(serve(sandbox_of(choice, **(wrapped.options() if wrapped is not None else {})), wrapped))


def sandbox_of(choice: SandboxChoice, **options: Any) -> AsyncSandbox:
    """Make the sandbox that the options describe."""
    if choice.mode == "process":
        raise CommandError("codeact mcp has one live interpreter: leave --mode process out.")
    try:
        return AsyncSandbox(choice.kind, **choice.options(), **options)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
