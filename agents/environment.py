"""Describes a sandbox to a model: what is installed, what is allowed, and which files there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.observation import as_execution_result
from autogen_codeact.agents.text import shorten
from codeact_sandbox.backends.facts import SandboxFacts, SandboxFiles
from codeact_sandbox.types.paths import WORKSPACE
from codeact_sandbox.types.result import written_by_code

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


MAX_LOOKED_AT_CHARS = 20_000
"""Of the end of an output, where errors are."""
MAX_HOSTS = 5

PROJECTS = {
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages whose module has another name."""
DO_WITHOUT = "do without it, or say in the answer what is missing."

_MODULE = re.compile(r"No module named '?([A-Za-z_]\w{0,60})")
_NO_PACKAGE = re.compile(r"No matching distribution found for ([\w.-]{1,60})")
_COMMAND = re.compile(r"^[^\n:]{0,200}: (?:line )?(?:\d+: )?([\w.+-]{1,60}): (?:command )?not found", re.MULTILINE)
_NO_NAME = re.compile(
    r"(?<!its address was not found \()(?:Temporary failure in name resolution|Name or service not known|No address associated "
    r"with hostname|Could not resolve host|Network is unreachable|unable to resolve host)"
)
"""Not what the proxy says about a host that is allowed."""
_NOT_ALLOWED = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,253}(?::\d{1,5})?) is not in allow_domains")
_TRIGGER = re.compile(
    "No module|No matching|not found|No such file|resol|not known|No address|unreachable|allow_domains"
)
"""Part of every text that the patterns above look for after a success."""


@dataclass(frozen=True)
class Hint:
    """A limit of the sandbox that code has met, and what code can do instead."""

    problem: str
    way_out: str
    options: tuple[str, ...] = ()
    """What would help, each on the command line and in a program."""

    @property
    def for_model(self) -> str:
        """The line for who writes the code."""
        return f"Hint: {self.problem} {self.way_out}"

    @property
    def for_person(self) -> str:
        """The line for who runs the sandbox."""
        return f"Hint: {self.problem} {' or '.join(self.options)} would help." if self.options else self.for_model


def hints_for(result: CodeResult, facts: SandboxFacts | None) -> list[Hint]:
    """Return a hint for each limit of the sandbox that code has met."""
    result = as_execution_result(result)
    if facts is None or result.outcome == "denied":
        return []
    text = written_by_code(result)[-MAX_LOOKED_AT_CHARS:]
    failed = result.exit_code != 0
    if failed and result.error is not None:
        text += f"\n{result.error.type}: {result.error.message[:MAX_LOOKED_AT_CHARS]}"
    if not failed and _TRIGGER.search(text) is None:
        return []
    # Code that succeeded has dealt with an exception, but commands in it may have failed.
    hints = [hint for find in (_package, _command, _connection) if (hint := find(text, facts)) is not None]
    if result.outcome == "oom":
        more = f"{2 * facts.memory_bytes // 1024**2}m"
        problem = f"the code needs more than the sandbox's {size(facts.memory_bytes)} of memory."
        option = f"--option memory={more} (memory='{more}')"
        hints.append(Hint(problem, "Work on less data at a time.", (option,)))
    return hints


def metadata_of_hints(hints: list[Hint]) -> dict[str, str]:
    """Return the hints for persons as metadata of a message; empty without any."""
    return {"hints": "\n".join(hint.for_person for hint in hints)} if hints else {}


def _package(text: str, facts: SandboxFacts) -> Hint | None:
    match = re.search(r"ModuleNotFoundError: ", text) and _MODULE.search(text)
    name = PROJECTS.get(match[1], match[1]) if match else None
    if name is None and (missing := _NO_PACKAGE.search(text)):
        name = missing[1]
    if name is None:
        return None
    if facts.pip or facts.network:
        return Hint(f"{name} is not installed.", f"`pip install {name}` in a shell block may install it.")
    image = (f"--package {name} (packages=['{name}'])",) if facts.packages_option else ()
    way_out = f"It can't be installed from code: {DO_WITHOUT}"
    return Hint(f"{name} is not installed.", way_out, (*image, "--allow-pip (allow_pip=True)"))


def _command(text: str, facts: SandboxFacts) -> Hint | None:
    match = _COMMAND.search(text)
    if match is None:
        return None
    there = f"Commands that are there: {', '.join(facts.commands)}." if facts.commands else DO_WITHOUT.capitalize()
    image = ("An image that has it (image=)",) if facts.packages_option else ()
    return Hint(f"the command {match[1]} is not in the sandbox.", there, image)


def _connection(text: str, facts: SandboxFacts) -> Hint | None:
    refused = _NOT_ALLOWED.search(text)
    if facts.network or not (refused or _NO_NAME.search(text)):
        return None
    name = refused[1].lower() if refused else "api.example.com"
    allow = (f"--allow-domain {name} (allow_domains=['{name}'])",)
    if facts.domains:
        some = ", ".join(map(shown_name, facts.domains[:MAX_HOSTS]))
        more = f" and {len(facts.domains) - MAX_HOSTS} more" if len(facts.domains) > MAX_HOSTS else ""
        return Hint(f"the sandbox reaches only {some}{more}.", f"Other hosts can't be reached: {DO_WITHOUT}", allow)
    return Hint("the sandbox has no network.", f"No host can be reached: {DO_WITHOUT}", allow)
