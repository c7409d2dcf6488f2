"""pydantic-ai: a sandbox as the workspace of an agent's runs."""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from pydantic_ai import BinaryContent, ToolReturn, workspaces
from pydantic_ai.workspaces import CommandResult, FileEntry, WorkspaceRef, WorkspaceUnavailableError

from codeact_sandbox import AsyncSandbox, SandboxDied, SandboxFileError, SandboxNotStarted
from codeact_sandbox.files.operations import FileInfo
from codeact_sandbox.integrations.answers import answer_of
from codeact_sandbox.types.paths import WORKSPACE


class CodeactWorkspace:
    """A workspace: `agent.run(..., workspace=CodeactWorkspace(AsyncSandbox()))`.

    The first operation starts the sandbox; who made it stops it, and operations then raise `WorkspaceUnavailableError`. With
    `tools=[workspace.run_code]` the agent also has Python whose variables stay, and the sandbox's host tools.

    Args:
        sandbox: The sandbox.
        ref: The `ref` of an earlier workspace of this sandbox, to continue in it. Default: none.
    """

    def __init__(self, sandbox: AsyncSandbox, *, ref: WorkspaceRef | None = None) -> None:
        self.sandbox = sandbox
        self._ref = ref

    @property
    def ref(self) -> WorkspaceRef | None:
        """The sandbox's identity: None until the first operation."""
        return self._ref

    async def run_code(self, code: str) -> str | ToolReturn:
        """Run Python code in a live interpreter: variables stay from call to call, and figures are shown.

        Args:
            code: The code. It can call the functions that it was given, and use files and commands of the workspace.
        """
        with _errors():
            result = await (await self._running()).run(code)
        text, images = await asyncio.to_thread(answer_of, result)
        content = [BinaryContent(data, media_type=media_type) for data, media_type in images]
        return ToolReturn(return_value=text, content=content) if content else text

    async def run(
        self,
        command: workspaces.WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command, as `SupportsCommands` says. Without `timeout`, it may take as long as the sandbox's says."""
        if isinstance(command, str) != shell:
            raise TypeError("a string command needs shell=True, and a sequence shell=False")
        with _errors():
            done = await (await self._running()).exec(command, env=env, timeout=timeout)
        output = {"stdout": done.stdout, "stderr": done.stderr}
        if done.timed_out:
            raise workspaces.WorkspaceTimeoutError(f"the command was killed after {done.duration_s:.1f} s", **output)
        if dropped := done.stdout_dropped + done.stderr_dropped:
            limit = len(done.stdout_bytes) + len(done.stderr_bytes)
            raise workspaces.WorkspaceOutputLimitError(f"{dropped:,} bytes of it were dropped", limit=limit, **output)
        return CommandResult(exit_code=done.exit_code, **output)

    async def working_dir(self) -> str:
        await self._running()
        return WORKSPACE

    async def realpath(self, path: str) -> str:
        with _errors():
            done = await (await self._running()).exec(["realpath", "-zm", "--", path])
        if done.exit_code != 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return done.stdout.removesuffix("\0")

    async def read_bytes(self, path: str) -> bytes:
        """Return a file's content, at most 256 MiB."""
        with _errors():
            return await (await self._running()).read(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        with _errors():
            await (await self._running()).write(path, data)

    async def stat(self, path: str) -> FileEntry:
        """Describe a file or folder; a link's target."""
        target = await self.realpath(path)
        with _errors():
            return _entry(path, await (await self._running()).stat(target))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        with _errors():
            found = await (await self._running()).ls(path)
        return [_entry(each.path, each, leads_to=await self._target(each)) for each in found]

    async def _target(self, link: FileInfo) -> str:
        """Return the type of what is there, behind links."""
        if link.type != "link":
            return link.type
        try:
            with _errors():
                return (await (await self._running()).stat(f"{link.path}/.")).type
        except OSError:
            return "file"

    async def make_dir(self, path: str) -> None:
        with _errors():
            await (await self._running()).mkdir(path)

    async def remove(self, path: str) -> None:
        if posixpath.commonpath([path, WORKSPACE]) == path:
            raise ValueError(f"{path} can't be removed: the workspace {WORKSPACE} is in it")
        with _errors():
            await (await self._running()).remove(path, recursive=True)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except OSError:
            return False
        return True

    async def _running(self) -> AsyncSandbox:
        if self._ref is None:
            await self.sandbox.start()
        client = self.sandbox.client
        name = client.name if client is not None and client.alive else ""
        self._ref = self._ref or WorkspaceRef(provider="codeact-sandbox", id=name)
        if self._ref.id != name:
            raise WorkspaceUnavailableError(f"the sandbox {self._ref.id} has ended: make another one and its workspace")
        return self.sandbox


@contextmanager
def _errors() -> Generator[None]:
    try:
        yield
    except (SandboxDied, SandboxNotStarted) as error:
        raise WorkspaceUnavailableError(str(error)) from error
    except SandboxFileError as error:
        raise OSError(error.errno, error.strerror, error.filename) from error  # `FileNotFoundError` and the like


def _entry(path: str, found: FileInfo, leads_to: str = "") -> FileEntry:
    size = found.size if found.type == "file" else None
    is_dir = "folder" in (found.type, leads_to)
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=is_dir, size=size)
