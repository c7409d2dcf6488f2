"""Replay of the blocks of an old session: in a copy of the workspace that is discarded, and without network."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

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
from codeact_sandbox.files.workspace import HostFile, Workspace, signature_of
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxDied, SandboxFileError, SandboxTimeout
from codeact_sandbox.types.filenames import is_safe
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import Block, CodeAndLanguage, RecordedAnswers, RunContext

MAX_FILES_PER_REQUEST = 256
MAX_ROUNDS = 10
DRAIN_S = 15.0
DRAIN_STEP_S = 0.02
EMPTY_BLOCK = Block("")
# For the content of files that only the sandbox has, from its start.
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
        self._in_sandbox = workspace.in_sandbox
        self._host: dict[str, HostFile] = {}
        self._host_fingerprints: Manifest = {}
        self._by_fingerprint: dict[str, HostFile] = {}
        # Files that only the sandbox has, from its start, such as the module of functions.
        self._own: dict[str, tuple[str, int, list[bytes]]] = {}
        # Marks of the sandbox's files as in manifests, or a note that they were the host's from the beginning.
        self._inside: Manifest = {}

    async def begin(self, fingerprints: set[str]) -> None:
        """Close the network, and find out which of the needed files the host has."""
        if self._client.gateway is not None:
            self._client.gateway.shut()
        sizes = {int(fingerprint.partition(":")[0]) for fingerprint in fingerprints if has_hash(fingerprint)}
        await asyncio.to_thread(self._read_host, sizes)
        await self._read_own()

    async def _read_own(self) -> None:
        left = MAX_OWN_BYTES
        for entry in await self._client.requests.list_files():
            name, size = entry["name"], entry["size"]
            if name not in self._inside and is_safe(name) and size <= left and len(self._own) < MAX_FILES:
                with contextlib.suppress(SandboxFileError):
                    chunks = [chunk async for chunk, now in self._client.requests.read_file(name) if now <= size]
                    left -= size
                    fingerprint = self._inside[name] = fingerprint_of(sum(map(len, chunks)), chunks)
                    self._own[name] = fingerprint, entry["mode"], chunks

    def _read_host(self, sizes: set[int]) -> None:
        for file in self._reader.outgoing():
            self._host[file.name], self._host_fingerprints[file.name] = file, "as on the host:"
            as_sent = self._is_as_sent(file)
            if file.size in sizes and file.size <= MAX_HASHED_BYTES:
                with contextlib.suppress(SandboxFileError):
                    fingerprint = self._host_fingerprints[file.name] = fingerprint_of(
                        file.size, self._reader.read(file)
                    )
                    self._by_fingerprint[fingerprint] = file
            if as_sent:
                self._inside[file.name] = self._host_fingerprints[file.name]

    def _is_as_sent(self, file: HostFile) -> bool:
        try:
            known = self._in_sandbox.get(file.name)
            return known is not None and signature_of(os.lstat(file.path)) == known.signature
        except OSError:
            return False

    async def _request(self, op: str, files: list[dict[str, Any]]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(files), MAX_FILES_PER_REQUEST):
            part = files[start : start + MAX_FILES_PER_REQUEST]
            answer = (await self._client.requests.ask({"op": op, "files": part})).message.get("files")
            if not isinstance(answer, list) or len(answer) != len(part):
                raise SandboxDied(f"the sandbox {self._client.name} sent a malformed answer about files")
            answers += answer
        return answers

    # Files

    async def arrange(self, manifest: Manifest) -> None:
        """Make the workspace contain the files of a manifest, without those whose recorded content is not available."""
        present = await self._listing()
        known = {name: mark for name, mark in manifest.items() if has_hash(mark) and self._inside.get(name) == mark}
        same = known.keys() & present
        await self._remove([name for name in present if name not in same])
        self.changed = [name for name in sorted(manifest.keys() - same) if not await self._fetch(name, manifest[name])]

    async def _listing(self) -> list[str]:
        return [entry["name"] for entry in await self._client.requests.list_files()]

    async def _remove(self, names: list[str]) -> None:
        await self._request("remove", [{"name": name} for name in names])
        for name in names:
            self._inside.pop(name, None)

    async def _fetch(self, name: str, fingerprint: str) -> bool:
        """Send a file that the host has, under any name, or that the sandbox had at its start."""
        if name in self._own and self._own[name][0] == fingerprint:
            _, mode, chunks = self._own[name]
            await self._files.send(name, mode, b"".join(chunks))
            self._inside[name] = fingerprint
            return True
        file = self._by_fingerprint.get(fingerprint)
        if file is None:
            return False
        try:
            chunks = await self._content(file)
            # In a thread: hashing 64 MiB would hold up the event loop.
            if await asyncio.to_thread(fingerprint_of, file.size, chunks) != fingerprint:
                return False
            await self._files.send(name, file.mode, b"".join(chunks))
        except SandboxFileError:
            return False
        self._inside[name] = fingerprint
        return True

    async def _content(self, file: HostFile) -> list[bytes]:
        return await asyncio.to_thread(lambda: list(self._reader.read(file)))

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
        await self._client.requests.ask({"op": "empty"})

    async def _roll_back(self, name: str | None = None) -> None:
        try:
            await self._client.requests.ask({"name": name}, kind=wire.ROLL_BACK)
        except ValueError as error:
            raise SandboxDied(f"the session could not be put back: {error}") from error

    async def end(self) -> None:
        await self._roll_back()
        await self._drain()
        await self.run(EMPTY_BLOCK)  # its reply lists all changed files
        for _ in range(MAX_ROUNDS):
            present = await self._listing()
            if not (foreign := [name for name in present if name not in self._host and name not in self._own]):
                break
            await self._remove(foreign)
        else:
            raise SandboxDied(f"the files of the sandbox {self._client.name} could not be removed")
        for name, (fingerprint, *_) in self._own.items():
            if name not in present or self._inside.get(name) != fingerprint:
                await self._fetch(name, fingerprint)
        for name, file in self._host.items():
            as_is = name in present and self._inside.get(name) == self._host_fingerprints[name]
            if name not in self._own and not as_is:
                chunks = await self._content(file)
                await self._files.send(name, file.mode, b"".join(chunks))

    async def _drain(self) -> None:
        """Wait until connections of dead processes have been refused."""
        gateway = self._client.gateway
        if gateway is None:
            return
        quiet, rounds = 0, int(DRAIN_S / DRAIN_STEP_S)
        while quiet < 2:
            # The supervisor accepts connections at its port between two answers.
            await self._client.requests.ask({"op": "remove", "files": []})
            quiet = quiet + 1 if gateway.idle else 0
            rounds -= 1
            if not rounds:
                raise SandboxTimeout(f"connections of the sandbox {self._client.name} did not end within {DRAIN_S:g} s")
            await asyncio.sleep(DRAIN_STEP_S if not gateway.idle else 0)
