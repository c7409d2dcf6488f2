"""The files of data= and skills= in a container: mounted, or sent to an engine on another machine."""

# ruff: noqa: PLC0415 - the Docker SDK takes a tenth of a second to import

from __future__ import annotations

import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codeact_sandbox.files.regular_files import open_regular
from codeact_sandbox.runner.worker import trees
from codeact_sandbox.types.errors import SandboxError, SandboxStartError
from codeact_sandbox.types.filenames import printable

if TYPE_CHECKING:
    from docker import APIClient
    from docker.types import Mount

MAX_BYTES = 4 * 1024**3
MAX_FILES = 100_000
CHUNK = 256 * 1024
_below: Callable[..., Iterator[tuple[str, os.DirEntry[str]]]] = trees.walk
END = b"\0" * 2 * tarfile.BLOCKSIZE
MOUNTED_INSTEAD = (
    "Give a part of it, or put it on the engine's machine and mount it there with "
    "extra_volumes={'/its/folder': {'bind': '/mnt/data', 'mode': 'ro'}}"
)


def roots_of(targets: Iterable[str]) -> list[str]:
    """Return the folders of the sandbox that have what is shown: /data and /skills."""
    return sorted({f"/{target.split('/')[1]}" for target in targets})


def bind_mounts(sources: Mapping[str, Path]) -> list[Mount]:
    """Return read-only mounts of files and folders of this machine.

    Engines before Docker 25 leave file systems that are mounted below a folder writable, so these are mounts of their own.
    """
    from docker.types import Mount

    mounted = _mount_points()
    mounts = []
    for target, source in sources.items():
        below = sorted(path for path in mounted if path != source and path.is_relative_to(source))
        for path in (source, *below):
            place = posixpath.join(target, path.relative_to(source).as_posix()) if path != source else target
            mount = Mount(place, str(path), type="bind", read_only=True)
            mount["BindOptions"] = {"NonRecursive": True}
            mounts.append(mount)
    return mounts


def _mount_points() -> set[Path]:
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except FileNotFoundError:  # not Linux: the engine runs in a virtual machine
        return set()
    # Spaces and similar characters are octal escapes.
    names = (re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4]) for line in lines)
    return {Path(os.fsdecode(name)) for name in names}


def upload(
    client: APIClient, image: str, sources: Mapping[str, Path], labels: Mapping[str, str], stopped: Callable[[], bool]
) -> str:
    """Send files and folders to the engine, without holding them in memory.

    They go into the anonymous volume of a container that is never started. The sandbox mounts the volume. The engine removes it
    with the last container that has it. Returns the container's id; remove it when the sandbox's container exists.
    """
    import requests

    roots = roots_of(sources)
    created = client.create_container(
        image, command=["true"], volumes=roots, labels=dict(labels), network_disabled=True
    )
    ident = str(created["Id"])
    sdk: Any = client
    try:
        for root in roots:
            below = {target: source for target, source in sources.items() if target.startswith(f"{root}/")}
            sdk.put_archive(ident, root, _archive(root, below, stopped))
    except BaseException as error:
        client.remove_container(ident, force=True, v=True)
        if isinstance(error, requests.RequestException):
            raise SandboxStartError(f"the files of data= could not be sent to the Docker engine: {error}") from error
        raise
    return ident


def _archive(root: str, sources: Mapping[str, Path], stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield a tar archive of what is below a folder, with at most `MAX_FILES` entries of `MAX_BYTES`."""
    total = 0
    try:
        for number, (name, path) in enumerate(_walk(sources), 1):
            member = _describe(name.removeprefix(f"{root}/"), path)
            total += member.size if member is not None else 0
            if total > MAX_BYTES or number > MAX_FILES:
                what = (
                    f"has more than {MAX_FILES:,} files"
                    if number > MAX_FILES
                    else f"is larger than {MAX_BYTES:,} bytes"
                )
                raise SandboxStartError(
                    f"data= {what}, and the Docker engine is on another machine, to which at most {MAX_BYTES:,} bytes in "
                    f"{MAX_FILES:,} files are sent. {MOUNTED_INSTEAD}"
                )
            if member is not None:
                yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
                yield from _content(member, path, stopped)
    except OSError as error:
        if isinstance(error, SandboxError):
            raise
        raise SandboxStartError(f"data= can't be read: {printable(str(error.filename))}: {error.strerror}") from error
    yield END


def _walk(sources: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for target, source in sources.items():
        yield target, source
        for name, entry in _below(str(source), on_error=_fail) if source.is_dir() else ():
            yield f"{target}/{name}", Path(entry.path)


def _fail(error: OSError) -> None:
    raise error


def _describe(name: str, path: Path) -> tarfile.TarInfo | None:
    """Return the entry for a file, folder or symbolic link, readable by everybody; None for anything else."""
    member, info = tarfile.TarInfo(name), path.lstat()
    member.mtime = int(info.st_mtime)
    if stat.S_ISLNK(info.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(info.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISREG(info.st_mode):
        member.size, member.mode = info.st_size, 0o644 | info.st_mode & 0o111
    else:
        return None
    return member


def _content(member: tarfile.TarInfo, path: Path, stopped: Callable[[], bool]) -> Iterator[bytes]:
    if not member.size:
        return
    left = member.size
    # Without following a link, or waiting for the other end of a pipe, that may have replaced the file.
    with open_regular(path) as file:
        while left and (piece := file.read(min(CHUNK, left))):
            if stopped():
                raise SandboxStartError("the start was cancelled")
            left -= len(piece)
            yield piece
    if left:
        raise SandboxStartError(f"data= has changed while it was sent: {printable(str(path))} has become shorter")
    yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
