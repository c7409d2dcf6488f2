"""Replay of the blocks of an old session: in a copy of the workspace that is discarded, and without network."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from typing import BinaryIO

from codeact_sandbox.files import archives
from codeact_sandbox.files.file_writer import MAX_HASHED_BYTES
from codeact_sandbox.files.manifests import (
    MAX_FILES,
    MAX_HASHED_AT_ONCE,
    Manifest,
    fingerprint_in_sandbox,
    fingerprint_of,
    has_hash,
)
from codeact_sandbox.files.service import FileService
from codeact_sandbox.files.workspace import HostFile, Workspace
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxDied, SandboxFileError, SandboxTimeout
from codeact_sandbox.types.filenames import is_safe
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import Block, CodeAndLanguage, RecordedAnswers, RunContext

CLEAR_S = 10.0
DRAIN_S = 15.0
DRAIN_STEP_S = 0.02
EMPTY_BLOCK = Block("")
# For files that only the sandbox has, from its start.
MAX_OWN_BYTES = 16 * 1024**2


class ExternalEffectsError(Exception):
    """Blocks could have an effect outside the sandbox; the message is the reason, with a field for `blocks`."""


class ReplayWorkspace:
    def __init__(
        self,
        client: RunnerClient,
        workspace: Workspace,
        run_block: Callable[..., Awaitable[Result]],
    ) -> None:
        self.changed: list[str] = []  # files of the last manifest whose recorded content is not available
        self._client = client
        self._files = FileService(client)
        self._run_block = run_block
        self._reader = Workspace(workspace.root, selection=workspace.selection)
        self._by_fingerprint: dict[str, HostFile] = {}
        self._saved: BinaryIO | None = None  # the workspace at its beginning
        # Marks of the sandbox's files as in manifests.
        self._inside: Manifest = {name: file.fingerprint for name, file in workspace.in_sandbox.items()}

    async def begin(self, fingerprints: set[str], size: int) -> None:
        """Save the workspace, which has at most so many bytes; close the network, and find the files that are needed."""
        if self._client.gateway is not None:
            self._client.gateway.shut()
        saved: BinaryIO = await in_thread(tempfile.TemporaryFile)
        self._saved = saved
        await archives.save(self._client, saved, size)
        sizes = {int(fingerprint.partition(":")[0]) for fingerprint in fingerprints if has_hash(fingerprint)}
        await in_thread(self._read_host, sizes)
        await self._read_own()

    def _read_host(self, sizes: set[int]) -> None:
        for file in self._reader.outgoing():
            if file.size in sizes and file.size <= MAX_HASHED_BYTES:
                with contextlib.suppress(SandboxFileError):
                    self._by_fingerprint[fingerprint_of(file.size, self._reader.read(file))] = file

    async def _read_own(self) -> None:
        """Hash files that only the sandbox has, from its start, such as the module of functions."""
        left = MAX_OWN_BYTES
        entries = [entry for entry in await self._client.requests.list_files() if entry["name"] not in self._inside]
        for name, size in [(entry["name"], entry["size"]) for entry in entries[:MAX_FILES]]:
            if is_safe(name) and size <= left:
                left -= size
                self._inside[name] = await fingerprint_in_sandbox(self._client.requests, name, size)

    # Files

    async def arrange(self, manifest: Manifest) -> None:
        """Make the workspace contain the files of a manifest, without those whose recorded content is not available."""
        present = [entry["name"] for entry in await self._client.requests.list_files()]
        known = {name: mark for name, mark in manifest.items() if has_hash(mark) and self._inside.get(name) == mark}
        same = known.keys() & present
        if others := [name for name in present if name not in same]:
            await self._files.ask("unlink", ".", paths=others)
        for name in others:
            self._inside.pop(name, None)
        self.changed = [name for name in sorted(manifest.keys() - same) if not await self._fetch(name, manifest[name])]

    async def _fetch(self, name: str, fingerprint: str) -> bool:
        """Send a file that the host has, under any name."""
        file = self._by_fingerprint.get(fingerprint)
        if file is None:
            return False
        try:
            chunks: list[bytes] = await in_thread(list, self._reader.read(file))
            # In a thread: hashing 64 MiB would hold up the event loop.
            if await in_thread(fingerprint_of, file.size, chunks) != fingerprint:
                return False
            await self._client.requests.write_file(name, file.mode, chunks)
        except SandboxFileError:
            return False
        self._inside[name] = fingerprint
        return True

    async def take(self, reply: Reply, code_file: str | None) -> None:
        # Files with holes may be larger than all that the sandbox can hold.
        offset, left = 0, MAX_HASHED_AT_ONCE
        if code_file is not None:
            self._inside.pop(code_file, None)
        if reply.message.get("files_cut"):
            self._inside.clear()
        for entry in checked_entries(reply.message.get("files", [])):
            name, size, inline = entry["name"], entry["size"], entry.get("inline")
            if inline is not None:
                self._inside[name] = fingerprint_of(inline, [reply.data[offset : offset + inline]])
                offset += inline
                continue
            hashed = is_safe(name) and size <= min(left, MAX_HASHED_BYTES)
            left -= size if hashed else 0
            self._inside[name] = (
                await fingerprint_in_sandbox(self._client.requests, name, size) if hashed else fingerprint_of(size)
            )

    # Blocks

    async def run(self, block: CodeAndLanguage, answers: RecordedAnswers | None = None) -> Result:
        return await self._run_block(block, RunContext(journalled=True, answers=answers), replay=self)

    async def checkpoint(self, name: str | None = None) -> str | None:
        try:
            await self._client.requests.ask({"name": name}, kind=wire.TAKE_CHECKPOINT)
        except ValueError as error:
            return str(error)
        return None

    async def rollback(self) -> None:
        await self._roll_back()
        await self._drain()  # a connection that comes late would count as one of the next block
        # What is left of the block there would be found by later ones.
        await self._files.ask("clear", ".", timeout=CLEAR_S)

    async def _roll_back(self, name: str | None = None) -> None:
        try:
            await self._client.requests.ask({"name": name}, kind=wire.ROLL_BACK)
        except ValueError as error:
            raise SandboxDied(f"the session could not be put back: {error}") from error

    async def end(self) -> None:
        assert self._saved is not None
        await self._roll_back()
        await self._drain()
        await archives.put_back(self._client, self._saved)

    def close(self) -> None:
        """Remove what was saved."""
        if self._saved is not None:
            self._saved.close()

    async def _drain(self) -> None:
        """Wait until connections of dead processes have been refused."""
        gateway = self._client.gateway
        if gateway is None:
            return
        quiet, rounds = 0, int(DRAIN_S / DRAIN_STEP_S)
        while quiet < 2:
            # The supervisor accepts connections at its port between two answers.
            await self._client.requests.ask({"op": "folders", "names": []})
            quiet = quiet + 1 if gateway.idle else 0
            rounds -= 1
            if not rounds:
                raise SandboxTimeout(f"connections of the sandbox {self._client.name} did not end within {DRAIN_S:g} s")
            await asyncio.sleep(DRAIN_STEP_S if not gateway.idle else 0)
