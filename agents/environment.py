"""Describes a sandbox to a model: what is installed, what is allowed, and which files there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autogen_codeact.agents.text import shorten
from codeact_sandbox.facts import SandboxFacts, SandboxFiles
from codeact_sandbox.types.paths import WORKSPACE

MAX_CHARS = 1_500
MAX_NAME_CHARS = 60
MAX_PACKAGES_CHARS = 450
MAX_HOSTS_CHARS = 200
MAX_DATA_CHARS = 200
MAX_FILES = 30

_PLAIN_NAME = re.compile(r"[\w./+@=~…-]+")
HEAD = "The code runs in a sandbox:"


def describe_environment(facts: SandboxFacts) -> str:
    """Describe a sandbox to a model, in at most 1,500 characters.

    Names of files come from the sandbox and can be chosen by code: they are cut, made printable, and quoted.
    """
    lines = [HEAD, *_installed(facts), f"- Network: {_network(facts)}", f"- Limits: {_limits(facts)}"]
    if facts.data:
        shown = facts.data_files
        inside = _files(shown, len(shown.shown), MAX_DATA_CHARS) if shown.shown else "files that can only be read"
        lines.append(f"- Data in /data, read-only: {inside}")
    if facts.python is not None:
        head = f"- Files in {WORKSPACE}, the working directory: "
        room = MAX_CHARS - len("\n".join(lines)) - len(head) - 1
        lines.append(head + (_files(facts.files, MAX_FILES, room) if facts.files.count else "none"))
    return shorten("\n".join(lines), MAX_CHARS)


def size(count: int) -> str:
    """Return a number of bytes in words, such as "1.5 MiB"."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "bytes" or number >= 10 else f"{number:.1f} {unit}"


def shown_name(name: str) -> str:
    """Return a name from the sandbox in a form that can stand in a sentence."""
    return shorten("".join(char if char.isprintable() else "?" for char in name), MAX_NAME_CHARS)


def _installed(facts: SandboxFacts) -> list[str]:
    if facts.python is None:
        return [f"- Packages: {_how_to_install(facts)}"]
    lines = [f"- Python {shown_name(facts.python)}"]
    if facts.packages:
        named = [f"{shown_name(name)} {shown_name(version)}" for name, version in facts.packages.items()]
        lines[0] += f" with {_fitting(named, MAX_PACKAGES_CHARS)}"
    lines.append(f"- Other packages: {_how_to_install(facts)}")
    if facts.commands:
        lines.append(f"- Commands: {', '.join(facts.commands)}")
    return lines


def _how_to_install(facts: SandboxFacts) -> str:
    if facts.pip or facts.network:
        return "`pip install NAME` in a shell block"
    return "can't be installed; use what is there"


def _network(facts: SandboxFacts) -> str:
    if facts.network:
        return "available"
    if facts.domains:
        return f"only {_fitting(map(shown_name, facts.domains), MAX_HOSTS_CHARS)}"
    return "none"


def _limits(facts: SandboxFacts) -> str:
    limits = [f"{facts.timeout_s:g} s for a block", f"{size(facts.memory_bytes)} of memory"]
    if facts.workspace_bytes is not None:
        limits.append(f"{size(facts.workspace_bytes)} in {WORKSPACE}")
    if facts.free_bytes is not None:
        limits.append(f"{size(facts.free_bytes)} free there")
    return ", ".join(limits)


def _files(files: SandboxFiles, most: int, room: int) -> str:
    named = [f"{_quoted(shown_name(name))} ({size(length)})" for name, length in files.shown[:most]]
    return _fitting(named, room, files.count)


def _quoted(name: str) -> str:
    """Put a name that can look like a sentence into quotes; code can give files any name."""
    return name if _PLAIN_NAME.fullmatch(name) else '"{}"'.format(name.replace('"', "?"))


def _fitting(items: Iterable[str], room: int, count: int | None = None) -> str:
    """Join as many items as there is room for, and say how many more there are."""
    listed = list(items)
    count = len(listed) if count is None else max(count, len(listed))
    while True:
        left = count - len(listed)
        text = ", ".join(listed) + (f"{' and ' if listed else ''}{left} more" if left else "")
        if len(text) <= room or not listed:
            return text
        listed.pop()
