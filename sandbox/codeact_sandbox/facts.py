"""Facts about a sandbox for code and models: versions, free space, files, and what the options allow."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.messages import checked_entries
from codeact_sandbox.types.errors import SandboxError
from codeact_sandbox.types.limits import parse_size
from codeact_sandbox.types.options import SandboxOptions

PROBE_DEADLINE_S = 5.0
MAX_ANSWER_CHARS = 64 * 1024
MAX_ITEMS = 100
MAX_NAME_CHARS = 200
MAX_SHOWN = 30
MAX_COUNTED = 1000
MAX_NUMBER = 2**63 - 1
"""What a file system reports is not more."""
PACKAGES = (
    *("numpy", "pandas", "scipy", "matplotlib", "sympy", "scikit-learn", "statsmodels", "seaborn", "plotly", "altair"),
    *(
        "pillow",
        "requests",
        "httpx",
        "beautifulsoup4",
        "lxml",
        "openpyxl",
        "pyyaml",
        "networkx",
        "tabulate",
        "tqdm",
        "ipython",
    ),
    *("torch", "transformers", "polars", "pyarrow", "duckdb", "sqlalchemy"),
)
"""Packages that are looked for, beside those that an option names."""
COMMANDS = ("bash", "git", "curl", "wget", "node", "gcc", "make", "Rscript", "pdftotext", "ffmpeg", "sqlite3", "jq")

# As fast as possible: importlib.metadata and shutil would take longer to import than all of this takes to run.
PROBE = """
import json, os, sys

def versions(names):
    found = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            stem, kind = os.path.splitext(entry)
            if kind in (".dist-info", ".egg-info"):
                name, _, version = stem.partition("-")
                name = name.lower().replace("_", "-").replace(".", "-")
                if name in names:
                    found.setdefault(name, version.partition("-")[0].partition("+")[0])
    return {name: found[name] for name in names if name in found}

def which(name):
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)

def entries(top, limit=1000):
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if len(found) == limit:
                return found
            if not name.startswith("."):
                try:
                    found.append([os.path.relpath(path, top)[:200], os.lstat(path).st_size])
                except OSError:
                    pass
    return found

def free(folder):
    try:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    except OSError:
        return None

files = entries("/workspace")
data = entries("/data")
print(json.dumps({
    "python": ".".join(map(str, sys.version_info[:3])),
    "packages": versions(%(packages)s),
    "commands": [name for name in %(commands)s if which(name)],
    "files": files[:30], "file_count": len(files),
    "data": data[:10], "data_count": len(data),
    "free": free("/workspace"),
}))
"""


@dataclass(frozen=True)
class SandboxFiles:
    """Some files of a folder.

    Args:
        shown: Names, relative to the folder, and sizes in bytes; the first in alphabetical order.
        count: Number of all files; at most 1,000 are counted.
    """

    shown: tuple[tuple[str, int], ...] = ()
    count: int = 0


@dataclass(frozen=True)
class SandboxFacts:
    """Facts about a sandbox. Those that were read in the sandbox are not trustworthy.

    Args:
        timeout_s: Seconds that a block may take.
        memory_bytes: Memory of all processes.
        workspace_bytes: Size of /workspace; None if it is a folder of the host.
        network: Whether there is a network of the engine.
        domains: Allowed hosts.
        pip: Whether `pip install` reaches an index.
        packages_option: Whether `packages=` exists for this backend.
        data: Whether `data=` was given.
        python: Version of Python; None if the sandbox could not be asked. So for all that follows.
        packages: Installed packages that are known to be useful, with their versions.
        commands: Useful commands.
        free_bytes: Free space in /workspace.
        files: Files in /workspace.
        data_files: Files in /data.
    """

    timeout_s: float
    memory_bytes: int
    workspace_bytes: int | None
    network: bool
    domains: tuple[str, ...]
    pip: bool
    packages_option: bool
    data: bool
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    free_bytes: int | None = None
    files: SandboxFiles = SandboxFiles()
    data_files: SandboxFiles = SandboxFiles()


def known_facts(options: SandboxOptions) -> SandboxFacts:
    """Return what follows from the options alone."""
    mounted, limits = options.bind_dir is not None, options.limits.resolved()
    return SandboxFacts(
        timeout_s=options.timeout,
        memory_bytes=limits.memory_bytes,
        workspace_bytes=None if mounted else parse_size(limits.workspace),
        network=getattr(options, "network", "none") != "none",
        domains=tuple(options.allow_domains),
        pip=options.allow_pip,
        packages_option=hasattr(options, "packages"),
        data=bool(options.data),
    )


class AskedSandbox(Protocol):
    """What is needed to ask a sandbox for facts; `ManagedSandbox` has it."""

    options: SandboxOptions
    client: RunnerClient | None

    @property
    def facts_of_pool(self) -> dict[Hashable, dict[str, Any]] | None:
        """What its pool knows of sandboxes in which no code has run, or None."""

    async def ready(self) -> object:
        """Start the sandbox if it is not running, and return its client."""

    async def run_in_new_process(self, code: str, timeout: float) -> str:
        """Run Python code in a new process, and return its output."""


async def facts_of(sandbox: AskedSandbox) -> SandboxFacts:
    """Return the facts about a sandbox; the sandbox is started if it is not running.

    A short program asks in a process of its own, for at most 5 s. If that fails, the result contains only what follows from
    the options. Sandboxes of a pool in which no code has run are asked once for all with the same Python, except for files.
    """
    answer: dict[str, Any] = {}
    try:
        await sandbox.ready()
        async with asyncio.timeout(PROBE_DEADLINE_S):
            answer = await _ask(sandbox)
            if sandbox.client is not None and sandbox.client.hello is not None and sandbox.client.hello.memory:
                answer["memory_bytes"] = sandbox.client.hello.memory  # the engine's machine may be another one
    except (SandboxError, TimeoutError, ValueError, RecursionError):
        pass  # code that needs the sandbox will raise
    return replace(known_facts(sandbox.options), **answer)


async def _ask(sandbox: AskedSandbox) -> dict[str, Any]:
    named = getattr(sandbox.options, "all_packages", [])
    names = [*dict.fromkeys(map(_project, [*named, *PACKAGES]))][:MAX_ITEMS]
    client, pooled = sandbox.client, sandbox.facts_of_pool
    key = (client.python, *names) if client is not None and client.python is not None else None
    if client is not None and pooled is not None and key in pooled:
        return {**pooled[key], **await _files_in(client)}
    program = PROBE % {"packages": names, "commands": list(COMMANDS)}
    answer = _checked(await sandbox.run_in_new_process(program, PROBE_DEADLINE_S))
    # Code that has run meanwhile could have changed the answer.
    if key is not None and pooled is not None and sandbox.facts_of_pool is pooled and sandbox.client is client:
        pooled[key] = {name: answer[name] for name in ("python", "packages", "commands")}
    return answer


async def _files_in(client: RunnerClient) -> dict[str, Any]:
    """Return what the program says of files, asked without running it."""
    answer = (await client.requests.file_request({"op": "list"})).message
    files = [(entry["name"], entry["size"]) for entry in checked_entries(answer.get("files"))]
    shown = sorted((file for file in files if not _is_hidden(file[0])), key=lambda file: _place(file[0]))[:MAX_COUNTED]
    return {
        "free_bytes": _number(answer.get("free")),
        "files": SandboxFiles(tuple((name[:MAX_NAME_CHARS], size) for name, size in shown[:MAX_SHOWN]), len(shown)),
    }


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _place(name: str) -> list[tuple[bool, str]]:
    """Return the place of a file in the program's order: files of a folder come before its folders."""
    *folders, last = name.split("/")
    return [*((True, folder) for folder in folders), (False, last)]


def _project(requirement: str) -> str:
    """Return the normalised name of a requirement such as "Pillow>=10", or of a wheel."""
    name = re.split(r"[^\w.-]", requirement.rpartition("/")[2].partition(".whl")[0] or requirement, maxsplit=1)[0]
    if requirement.endswith(".whl"):
        name = name.partition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _checked(answer: str) -> dict[str, Any]:
    """Read the answer of the program, which code in the sandbox may have forged."""
    if len(answer) > MAX_ANSWER_CHARS:
        raise ValueError("the answer is too long")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("the answer is not an object")  # noqa: TRY004 - what a sandbox sends is a value
    packages = found.get("packages")
    python = found.get("python")
    return {
        "python": python[:MAX_NAME_CHARS] if isinstance(python, str) else None,
        "packages": {
            name[:MAX_NAME_CHARS]: version[:MAX_NAME_CHARS]
            for name, version in list(packages.items())[:MAX_ITEMS]
            if isinstance(version, str)
        }
        if isinstance(packages, dict)
        else {},
        "commands": tuple(name for name in COMMANDS if name in _list(found, "commands", str)),
        "free_bytes": _number(found.get("free")),
        "files": _files(found, "files", "file_count"),
        "data_files": _files(found, "data", "data_count"),
    }


def _files(found: Mapping[str, Any], key: str, count: str) -> SandboxFiles:
    shown = []
    for entry in _list(found, key, list):
        match entry:
            case [str() as name, size] if _number(size) is not None:
                shown.append((name[:MAX_NAME_CHARS], size))
    return SandboxFiles(tuple(shown), max(_number(found.get(count)) or 0, len(shown)))


def _list(found: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = found.get(key)
    return [value for value in values[:MAX_ITEMS] if isinstance(value, kind)] if isinstance(values, list) else []


def _number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_NUMBER else None
