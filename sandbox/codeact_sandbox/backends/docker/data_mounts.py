"""The files of data= and skills= in a container: mounted, or sent to an engine on another machine."""

# ruff: noqa: PLC0415 - the Docker SDK takes a tenth of a second to import

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from codeact_sandbox.types.errors import SandboxStartError

if TYPE_CHECKING:
    from docker import APIClient
    from docker.types import Mount

MAX_BYTES = 4 * 1024**3


def roots_of(targets: Iterable[str]) -> list[str]:
    """Return the folders of the sandbox that have what is shown: /data and /skills."""
    return sorted({f"/{target.split('/')[1]}" for target in targets})


def bind_mounts(sources: Mapping[str, Path]) -> list[Mount]:
    """Return read-only mounts of files and folders of this machine.

    Engines before Docker 25 would leave file systems that are mounted below a folder writable, so these stay out.
    """
    from docker.types import Mount

    mounts = [Mount(target, str(source), type="bind", read_only=True) for target, source in sources.items()]
    for mount in mounts:
        mount["BindOptions"] = {"NonRecursive": True}
    return mounts


def upload(client: APIClient, container: str, sources: Mapping[str, Path]) -> None:
    """Send files and folders to the engine, into the volumes of a container that is never started."""
    sdk: Any = client
    try:
        for root in roots_of(sources):
            below = {target: source for target, source in sources.items() if target.startswith(f"{root}/")}
            with tempfile.TemporaryFile() as packed:
                _pack(packed, root, below)
                packed.seek(0)
                sdk.put_archive(container, root, packed)
    except OSError as error:
        raise SandboxStartError(f"the files of data= could not be sent to the Docker engine: {error}") from error


def _pack(packed: IO[bytes], root: str, sources: Mapping[str, Path]) -> None:
    """Write a tar archive of files, folders and symbolic links, readable by all users, of at most `MAX_BYTES`."""
    total = 0

    def take(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        total += member.size
        if total > MAX_BYTES:
            raise SandboxStartError(
                f"data= is larger than {MAX_BYTES:,} bytes, and the Docker engine is on another machine, to which no "
                "more is sent. Give a part of it, or put it on the engine's machine and mount it there with "
                "extra_volumes={'/its/folder': {'bind': '/mnt/data', 'mode': 'ro'}}"
            )
        member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""  # the user's name stays here
        member.mode = 0o755 if member.isdir() else 0o644 | member.mode & 0o111
        return member if member.isreg() or member.isdir() or member.issym() else None

    with tarfile.open(fileobj=packed, mode="w") as archive:
        for target, source in sources.items():
            archive.add(source, target.removeprefix(f"{root}/"), filter=take)
