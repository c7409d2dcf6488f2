"""`codeact models`: which servers of models can be used now, and what the others need."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from autogen_codeact.cli.model_probe import Server, probe_servers
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.terminal import Terminal

_SHOWN = 12
_INDENT = 14


def print_models(base_url: str | None, api_key_env: str | None, *, as_json: bool) -> int:
    """Ask all servers for their models, and print what they say."""
    servers = probe_servers(base_url, api_key_env)
    good = any(server.status == "ready" for server in servers)
    if as_json:
        print_json({"ok": good, "servers": [asdict(server) for server in servers]})
        return 0 if good else 1
    terminal = Terminal()
    for server in servers:
        _print(terminal, server)
    terminal.line()
    if good:
        terminal.line("Give one of the names to --model.")
    else:
        terminal.line("No model can be used now. `codeact demo` needs none.")
    return 0 if good else 1


def _print(terminal: Terminal, server: Server) -> None:
    style: Literal["green", "yellow", "red"] = "yellow"
    if server.status in ("ready", "key refused"):
        style = "green" if server.status == "ready" else "red"
    terminal.field(server.name, f"{server.status}: {server.detail}", style, indent=_INDENT)
    key = f", with the key in {server.key_variable}" if server.key_is_set else ""
    terminal.field("", f"{server.base_url}{key}", indent=_INDENT)
    if server.advice:
        terminal.field("", f"-> {server.advice}", indent=_INDENT)
    if server.models:
        more = len(server.models) - _SHOWN
        names = [*server.models[:_SHOWN], *([f"and {more} more (--json lists all)"] if more > 0 else [])]
        terminal.field("", ", ".join(names), indent=_INDENT)
