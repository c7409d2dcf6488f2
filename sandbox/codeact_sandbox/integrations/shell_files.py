"""Files anywhere in a sandbox, for adapters of frameworks: read and written by commands of the sandbox's user."""

from __future__ import annotations

import errno
import os

from codeact_sandbox.async_sandbox import AsyncSandbox
from codeact_sandbox.types.errors import SandboxFileError

MAX_FILE_BYTES = 256 * 1024**2
_READ = f'test ! -p "$1" && exec head -c {MAX_FILE_BYTES + 1} -- "$1"'
_WRITE = 'mkdir -p -- "${1%/*}/" 2> /dev/null; exec tee -- "$1" > /dev/null'


async def run_script(box: AsyncSandbox, script: str, path: str, *, stdin: bytes | None = None) -> str:
    """Run a script of shell that works on a path, which is its first argument."""
    done = await box.exec(["/bin/sh", "-c", script, "sh", path], stdin=stdin, env={"LC_ALL": "C"})
    if done.stdout_dropped and done.exit_code == 0:
        raise SandboxFileError(errno.E2BIG, "there is too much to list", path)
    _check(done.exit_code, done.stderr, path)
    return done.stdout


async def read_file(box: AsyncSandbox, path: str) -> bytes:
    """Return the content of a file, at most 256 MiB; the other arguments and errors are those of `run_script`."""
    content = bytearray()

    def take(stream: str, data: bytes) -> None:
        if stream == "stdout":
            content.extend(data)

    done = await box.exec(["/bin/sh", "-c", _READ, "sh", path], env={"LC_ALL": "C"}, on_output=take)
    _check(done.exit_code, done.stderr, path)
    if len(content) > MAX_FILE_BYTES:
        raise SandboxFileError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return bytes(content)


async def write_file(box: AsyncSandbox, path: str, data: bytes) -> None:
    """Write a file, through a link, too, and make the folders above it; arguments and errors are those of `run_script`."""
    await run_script(box, _WRITE, path, stdin=data)


def _check(exit_code: int, stderr: str, path: str) -> None:
    if exit_code != 0:
        reason = "it took too long" if exit_code == 124 else stderr.strip().rpartition(": ")[2] or "it can't be used"
        number = next((each for each in errno.errorcode if os.strerror(each) == reason), errno.EIO)
        raise SandboxFileError(number, reason, path)
