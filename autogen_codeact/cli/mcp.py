"""`codeact mcp`: sandboxes for MCP clients."""

# ruff: noqa: PLC0415, RUF009 - `codeact --help` must not wait for the sandbox; options are defaults

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_codeact.cli.command import option
from autogen_codeact.cli.output import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice, servers_in, with_skills

if TYPE_CHECKING:
    from codeact_sandbox import AsyncSandbox

NO_MCP = "The Python package `mcp` is missing. Install it: pip install 'mcp<3'"


@dataclass(frozen=True)
class Wrap:
    """The options for servers whose tools code calls."""

    file: Path | None = option(
        None,
        "--wrap",
        metavar="FILE.json",
        help="Let code call the tools of these MCP servers: search_tools and run_code.",
    )
    allow: list[str] | None = option(
        None, metavar="PATTERN", help="With --wrap: tools to call without asking the client's user; can be repeated."
    )
    call_log: Path | None = option(None, metavar="FILE", help="With --wrap: add each call to this file, as JSON.")

    def check(self, choice: SandboxChoice) -> None:
        """Raise a `CommandError` if the options do not fit together."""
        if choice.mcp is not None:
            raise CommandError(
                "`codeact mcp` takes servers of other tools with --wrap FILE.json, not with --mcp: then the client's model sees "
                "their tools, too."
            )
        if self.file is None and (self.allow is not None or self.call_log is not None):
            raise CommandError("--allow and --call-log are for the tools of --wrap FILE.json: add that.")


def serve_mcp(
    choice: SandboxChoice, wrap: Wrap, http: str | None, max_sessions: int | None, idle_timeout: float | None
) -> int:
    """Serve until the client closes standard input; with `http`, until the process is interrupted."""
    try:
        from codeact_sandbox.integrations.mcp_http import IDLE_S, MAX_SESSIONS
        from codeact_sandbox.integrations.mcp_server import run_server
        from codeact_sandbox.integrations.mcp_wrap import Wrapped
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise CommandError(NO_MCP) from error
    wrap.check(choice)
    choice = with_skills(choice)
    if http is None and (max_sessions, idle_timeout) != (None, None):
        raise CommandError("--max-sessions and --idle-timeout are for --http, with many clients: add --http PORT.")
    if http is not None and choice.work_dir is not None:
        raise CommandError("--work-dir is for one client: with --http, sessions would overwrite each other's files.")
    wrapped = Wrapped(servers_in(wrap.file), wrap.allow, wrap.call_log) if wrap.file is not None else None
    sandbox_of(choice)  # what is wrong with the options is said now
    try:
        return run_server(
            partial(sandbox_of, choice), wrapped, http, max_sessions or MAX_SESSIONS, idle_timeout or IDLE_S
        )
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def sandbox_of(choice: SandboxChoice, **options: Any) -> AsyncSandbox:
    from codeact_sandbox import AsyncSandbox

    if choice.is_process:
        raise CommandError("codeact mcp has one live interpreter: leave --option mode=process out.")
    try:
        return AsyncSandbox(choice.kind, **choice.options(), **options)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
