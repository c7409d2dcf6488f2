"""Resource limits of a sandbox."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from codeact_sandbox.types.keyword_model import KeywordModel

logger = logging.getLogger("codeact_sandbox")

# Bytes of a frame between the host and a sandbox.
MAX_PAYLOAD = 8 * 1024 * 1024
SHORTEST_TIMEOUT_S = 0.001
# With less, the interpreter of the sandbox is killed as it starts.
LEAST_MEMORY = 20 * 1024**2
MOST_DEFAULT_MEMORY = 4 * 1024**3
UNKNOWN_MACHINE_MEMORY = 4 * 1024**3
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


@lru_cache(maxsize=256, typed=True)
def parse_size(size: str | int) -> int:
    match = re.fullmatch(r"(\d+)\s*([bkmg]?)b?", str(size).strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{size!r} is not a size: write bytes, or a number with a unit, such as '512m' or '2g'")
    return int(match[1]) * _UNITS[match[2]]


@cache
def machine_memory() -> int:
    """Return the memory of this machine in bytes; less if this process may not use all of it."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return UNKNOWN_MACHINE_MEMORY
    return min([found, *_own_cgroup_limits()])


def _own_cgroup_limits() -> Iterable[int]:
    """Yield the memory limits of this process' control group and of those above it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root, name = Path("/sys/fs/cgroup"), "memory.max"
            if "memory" in controllers.split(","):
                root, name = root / "memory", "memory.limit_in_bytes"
            elif controllers:
                continue
            own = root / path.lstrip("/")
            for folder in (own, *own.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield int((folder / name).read_text())


def default_memory(machine: int) -> str:
    """Return the memory of a sandbox whose user has not chosen it: a quarter of the machine's, at most 4 GiB."""
    return f"{max(min(machine // 4, MOST_DEFAULT_MEMORY), LEAST_MEMORY) // _UNITS['m']}m"


def parse_seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number of seconds, not {value!r}")  # noqa: TRY004 - wrong arguments are ValueErrors here
    if not value > 0:
        raise ValueError(f"{name} must be above 0 seconds, not {value}")
    return value


def parse_timeout(value: object) -> float:
    if isinstance(value, int | float) and not value >= SHORTEST_TIMEOUT_S:
        # AutoGen's executor has the same sentence for 1 s, and programs may look for it.
        raise ValueError(f"Timeout must be greater than or equal to 1 ms (timeout=0.001), not {value} s")
    return parse_seconds("timeout", value)


def parse_names(name: str, value: Sequence[Path | str]) -> tuple[str, ...]:
    """Check a list of names or paths that a user gave: one string would count as a name for each of its letters."""
    if isinstance(value, str | os.PathLike):
        kind = "string" if isinstance(value, str) else "path"
        raise TypeError(f"{name} is one {kind}: give a list, [{os.fspath(value)!r}]")
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise TypeError(f"{name} must be a list of names, not {value!r}")
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in value)


def _check_size(size: str | int) -> str | int:
    parse_size(size)
    return size


def _check_memory(size: str | int | None) -> str | int | None:
    if size is not None and (parsed := parse_size(size)) < LEAST_MEMORY:
        hint = f"; did you mean '{size}m'?" if str(size).strip().isdigit() else ""
        raise ValueError(f"memory={size!r} is {parsed:,} bytes, and a sandbox needs 20m to start{hint}")
    return size


Size = Annotated[str | int, AfterValidator(_check_size)]
Memory = Annotated[str | int | None, AfterValidator(_check_memory)]


@cache
def _warn_beyond(memory: str | int, machine: int) -> None:
    logger.warning(
        "memory=%s is more than the machine's %d MiB, so nothing limits the memory of code", memory, machine >> 20
    )


def _share(most: int, memory: str | int) -> int:
    # Three such folders may be full, and there is still memory for the code that can empty them.
    return min(most, parse_size(memory) // 4)


class Limits(KeywordModel):
    """Resource limits of a sandbox; the defaults suit one agent on a laptop.

    Args:
        memory: Memory of all its processes, files in /workspace and /tmp included; there is no swap. At least 20m.
            Default None: a quarter of the memory of the machine that runs it, at most 4g.
        cpus: Processors' worth of time. Default 1.0.
        pids: Processes and threads at once. Default 256.
        nofile: Open descriptors per process. Default 1024.
        workspace: Size of /workspace. Default 256m, or a quarter of `memory` if that is less.
        tmp: Size of /tmp. Default as for `workspace`.
        files: Files in each of the two. Default 50,000.
        output: Bytes of a block's output that are kept: half from the head, half from the
            tail. Default 1 MiB.
        cpu_seconds: Processor time that a block may use, all its processes together, in seconds; the executor's `timeout` is
            its limit by the clock. Default None: no such limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: Memory = None
    cpus: float = Field(default=1.0, gt=0)
    pids: int = Field(default=256, ge=16)
    nofile: int = Field(default=1024, ge=64)
    workspace: Size = "256m"
    tmp: Size = "256m"
    files: int = Field(default=50_000, ge=100)
    output: int = Field(default=1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    cpu_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _fit_into_memory(cls, values: Any) -> Any:
        """Make the default sizes of the folders smaller if there is little memory."""
        if not isinstance(values, dict) or values.get("memory") is None:
            return values
        with contextlib.suppress(ValueError, TypeError):  # of which the field's own check tells
            size = _share(256 * _UNITS["m"], values["memory"])
            text = f"{size // _UNITS['m']}m" if size % _UNITS["m"] == 0 else size
            return {"workspace": text, "tmp": text, **values}
        return values

    def resolved(self, machine: int | None = None) -> Self:
        if self.memory is not None:
            if machine is not None and parse_size(self.memory) > machine:
                _warn_beyond(self.memory, machine)
            return self
        given = self.model_dump(exclude_defaults=True)
        return type(self)(**{**given, "memory": default_memory(machine or machine_memory())})

    @property
    def workspace_bytes(self) -> int:
        """Size of /workspace."""
        return parse_size(self.resolved().workspace)

    @property
    def memory_bytes(self) -> int:
        return parse_size(self.memory or default_memory(machine_memory()))

    @property
    def shm_bytes(self) -> int:
        """Size of /dev/shm: 64 MiB, or a quarter of `memory` if that is less."""
        return _share(64 * _UNITS["m"], self.memory_bytes)


class ToolLimits(KeywordModel):
    """How much of the host a block may use through its tools; a call beyond it raises an exception in the block.

    Args:
        calls: Calls of one block. Default 10,000.
        file_bytes: Memory of the files, arrays, tables and images that the running calls of a sandbox exchange. Default 256m.
        seconds: Seconds that one call may take, without the time for its approval. Default 60.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    calls: int = Field(default=10_000, ge=1)
    file_bytes: Size = "256m"
    seconds: float = Field(default=60, gt=0)
