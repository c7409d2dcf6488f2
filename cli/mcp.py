"""`codeact mcp`: a sandbox for the client of an MCP server on standard input and output."""

from __future__ import annotations

import asyncio

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from codeact_sandbox import AsyncSandbox

NO_MCP = "The Python package `mcp` is missing. Install it: pip install 'mcp<3'"


def serve_mcp(choice: SandboxChoice) -> int:
    """Serve until the client closes standard input."""
    try:
        from codeact_sandbox.integrations.mcp_server import serve  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise CommandError(NO_MCP) from error
    return asyncio.run(serve(sandbox_of(choice)))


def sandbox_of(choice: SandboxChoice) -> AsyncSandbox:
    """Make the sandbox that the options describe."""
    if choice.mode == "process":
        raise CommandError("codeact mcp has one live interpreter: leave --mode process out.")
    try:
        return AsyncSandbox(choice.kind, **choice.options())
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
