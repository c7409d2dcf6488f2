"""One block, from the files that it finds to the files and displays that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codeact_sandbox.files import display_files, sync
from codeact_sandbox.files.manifests import make_manifest
from codeact_sandbox.files.service import FileService
from codeact_sandbox.files.workspace import SandboxList, Workspace
from codeact_sandbox.host.blocks import BlockRequest, to_result
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import OutputCallback, Reply
from codeact_sandbox.host.display_frames import Displays
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.session.replay import ReplayWorkspace
from codeact_sandbox.tools.broker import BlockCalls
from codeact_sandbox.tools.toolset import Toolset
from codeact_sandbox.types.errors import SandboxError
from codeact_sandbox.types.observers import Attachment, BlockFinished, BlockId, BlockStarted, notify
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.result import ErrorInfo, Result
from codeact_sandbox.types.run_context import CodeAndLanguage, RunContext


def notify_refused(attached: Sequence[Attachment], ident: BlockId, block: CodeAndLanguage, result: Result) -> None:
    started = BlockStarted(ident.sandbox, ident.block, block.language, block.code)
    notify(attached, "block_started", started)
    notify(attached, "block_finished", BlockFinished(started, result))


def fail_if_not_stored(result: Result, workspace: Workspace) -> None:
    """Make a block fail that has ended well, if the host does not have all of its files."""
    problem = workspace.take_not_stored()
    if problem and result.outcome == "ok":
        result.exit_code, result.outcome = 1, "error"
        result.error = ErrorInfo("FilesNotStored", problem)
        result.output += f"\n{problem}\n" if result.output and not result.output.endswith("\n") else f"{problem}\n"


@dataclass
class BlockRun:
    """A block that runs in a sandbox, with what is exchanged before and after it."""

    client: RunnerClient
    options: SandboxOptions
    tools: Toolset
    workspace: Workspace | None  # the host's folder, or None if no files are exchanged
    context: RunContext  # what the caller adds to the block
    ident: BlockId
    replay: ReplayWorkspace | None = None  # the workspace of a session that is being rebuilt, or None

    async def observed(
        self,
        attached: Sequence[Attachment],
        block: CodeAndLanguage,
        *send: *tuple[BlockRequest, float, OutputCallback | None],
    ) -> Result:
        """Run the block as `run` does, and notify the observers of its start and end."""
        started = BlockStarted(self.ident.sandbox, self.ident.block, block.language, block.code)
        notify(attached, "block_started", started)
        result: Result | None = None
        failed: str | None = None
        try:
            result = await self.run(block, *send)
        except BaseException as error:
            failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            notify(attached, "block_finished", BlockFinished(started, result, failed))
        return result

    async def run(
        self, block: CodeAndLanguage, request: BlockRequest, timeout: float, listener: OutputCallback | None
    ) -> Result:
        gateway = self.client.gateway
        mark = gateway.begin_block(shut=self.replay is not None) if gateway is not None else 0
        listed = await self._send_files()
        calls = None
        if self.tools.broker.tools and request.message["command"] is None:
            request.message["tool_sources"] = self.tools.broker.added_sources()
            work_dir = self.workspace.root if self.workspace is not None else None
            calls = BlockCalls(
                self.tools.broker, block, self.context, self.ident, sandbox=FileService(self.client), work_dir=work_dir
            )
        code_file: sync.Kept = None
        if request.filename is not None and self.workspace is not None:
            code_file = sync.keep_code(self.workspace, request)
        elif request.filename is not None and self.options.bind_dir is not None:
            code_file = str(Path(self.options.bind_dir, request.filename))
        try:
            reply = await self.client.blocks.run(request.message, request.code, timeout, listener, calls)
        except asyncio.CancelledError as cancelled:
            await self._receive_of_killed(cancelled)
            raise
        # Before anything of the block is stored.
        files_before = await make_manifest(self.client.requests, *listed, reply, request.filename) if listed else None
        if self.replay is not None:
            await self.replay.take(reply, request.filename)
        result = to_result(reply)
        result.files_before = files_before
        await self._receive_files(result, reply, code_file)
        if calls is not None:
            calls.add_to(result)
        if gateway is not None:
            gateway.add_connections(result, mark)
        return result

    async def _send_files(self) -> SandboxList | None:
        """Send what has changed on the host; if the caller keeps a journal, ask for a list of the files."""
        workspace = self.workspace
        if workspace is None:
            return None
        await sync.push_changes(workspace, self.client, self.options.limits)
        return workspace.list_sandbox(self.client.requests) if self.context.journalled else None

    async def _receive_files(self, result: Result, reply: Reply, code_file: sync.Kept) -> None:
        workspace = self.workspace
        if workspace is not None and reply.message.get("files"):
            result.artifacts = await sync.pull(workspace, self.client, reply)
        result.code_file = await code_file if isinstance(code_file, asyncio.Future) else code_file
        if reply.displays.count:
            await self._add_displays(result, reply.displays)
        if workspace is not None:
            fail_if_not_stored(result, workspace)
        if workspace is not None and workspace.notes:
            result.notes = (*workspace.take_notes(), *result.notes)

    async def _receive_of_killed(self, cancelled: asyncio.CancelledError) -> None:
        """Store the files of a block that was killed because its caller was cancelled."""
        reply: Reply | None = getattr(cancelled, "reply", None)
        if self.workspace is not None and reply is not None:
            with contextlib.suppress(SandboxError):
                await sync.pull(self.workspace, self.client, reply)

    async def _add_displays(self, result: Result, displays: Displays) -> None:
        folder = self.workspace
        if self.options.bind_dir is not None and self.replay is None:
            folder = Workspace(Path(self.options.bind_dir), counted=False)
        shown = await in_thread(display_files.store, result.displays, folder)
        result.artifacts = display_files.merged(result.artifacts, shown.artifacts)
        result.displays = tuple(shown.displays)
        result.notes = (*shown.notes, *displays.notes(), *result.notes)
        if self.workspace is not None and shown.artifacts and self.client.alive:
            await sync.push_changes(self.workspace, self.client, self.options.limits)  # the code can read them, too
