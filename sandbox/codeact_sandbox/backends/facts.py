"""Facts about a sandbox for code and models: versions, free space, files, and what the options allow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.types.errors import SandboxError
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.paths import DATA, WORKSPACE
from codeact_sandbox.types.secrets import Secret

DEADLINE_S = 5.0
MAX_ITEMS = 100
MAX_NAME_CHARS = 200
MAX_SHOWN = 30
MAX_COUNTED = 1000
MAX_NUMBER = 2**63 - 1  # what a file system reports is not more
# Packages that are looked for, beside those that an option names.
PACKAGES = (
    *("numpy", "pandas", "scipy", "matplotlib", "sympy", "scikit-learn", "statsmodels", "seaborn", "plotly", "altair"),
    *("pillow", "requests", "httpx", "beautifulsoup4", "lxml", "openpyxl", "pyyaml", "networkx", "tabulate", "tqdm"),
    *("ipython", "torch", "transformers", "polars", "pyarrow", "duckdb", "sqlalchemy"),
)
COMMANDS = ("bash", "git", "curl", "wget", "node", "gcc", "make", "Rscript", "pdftotext", "ffmpeg", "sqlite3", "jq")


@dataclass(frozen=True)
class SandboxFiles:
    # names, relative to the folder, and sizes in bytes; the first in alphabetical order
    shown: tuple[tuple[str, int], ...] = ()
    count: int = 0  # number of all files; at most 1,000 are counted


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
    mounted, limits = options.bind_dir is not None, options.limits.resolved()
    return SandboxFacts(
        timeout_s=options.timeout,
        memory_bytes=limits.memory_bytes,
        workspace_bytes=None if mounted else limits.workspace_bytes,
        network=getattr(options, "network", "none") != "none",
        domains=(*options.allow_domains, *_hosts_of_secrets(options)),
        pip=options.allow_pip,
        packages_option=hasattr(options, "packages"),
        data=bool(options.data),
    )


def _hosts_of_secrets(options: SandboxOptions) -> list[str]:
    secrets = cast(dict[str, Secret], options.secrets)
    return [f"{host} (its key: environment variable {name})" for name, each in secrets.items() for host in each.hosts]


def packages_to_find(options: SandboxOptions) -> tuple[str, ...]:
    names = map(_project, [*getattr(options, "all_packages", []), *PACKAGES])
    return tuple(dict.fromkeys(names))[:MAX_ITEMS]


async def facts_of(client: RunnerClient, options: SandboxOptions) -> SandboxFacts:
    """Return the facts about a started sandbox; only what follows from the options if it does not list its files within 5 s."""
    known, hello = known_facts(options), client.hello
    assert hello is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            files, free = await _files_in(client, WORKSPACE)
            data = (await _files_in(client, DATA))[0] if options.data else SandboxFiles()
    except (SandboxError, TimeoutError):
        return known  # code that needs the sandbox will raise
    return replace(
        known,
        memory_bytes=hello.memory or known.memory_bytes,  # the engine's machine may be another one
        python=hello.python,
        packages=hello.packages,
        commands=tuple(name for name in COMMANDS if name in hello.commands),
        free_bytes=free,
        files=files,
        data_files=data,
    )


async def _files_in(client: RunnerClient, folder: str) -> tuple[SandboxFiles, int | None]:
    """Return the files of a folder, those in fewer folders first, and the free space in the workspace."""
    answer = (await client.requests.ask({"op": "list", "folder": folder})).message
    files = [(entry["name"][:MAX_NAME_CHARS], entry["size"]) for entry in checked_entries(answer.get("files"))]
    visible = [file for file in files if "/." not in f"/{file[0]}" and file[1] <= MAX_NUMBER]
    shown = sorted(visible, key=lambda file: (file[0].count("/"), file[0]))[:MAX_COUNTED]
    free = answer.get("free")
    known_free = free if type(free) is int and 0 <= free <= MAX_NUMBER else None
    return SandboxFiles(tuple(shown[:MAX_SHOWN]), len(shown)), known_free


def _project(requirement: str) -> str:
    """Return the normalised name of a requirement such as "Pillow>=10", or of a wheel."""
    name = re.split(r"[^\w.-]", requirement.rpartition("/")[2].partition(".whl")[0] or requirement, maxsplit=1)[0]
    if requirement.endswith(".whl"):
        name = name.partition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()
