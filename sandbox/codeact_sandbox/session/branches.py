"""Branches of a session: blocks that become the session, or leave its variables and its workspace as they were."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import BinaryIO, Self, TypeVar

from codeact_sandbox.backends import selection as select
from codeact_sandbox.commands import HasCommands
from codeact_sandbox.files import archives, display_files, sync
from codeact_sandbox.host.blocks import check_block
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.session.block_run import fail_if_not_stored
from codeact_sandbox.session.ports import Ports
from codeact_sandbox.session.replay import EMPTY_BLOCK, ReplayWorkspace
from codeact_sandbox.types.errors import SandboxDied, SandboxError, SandboxFileError, Unsupported
from codeact_sandbox.types.limits import parse_timeout
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import Block, CodeAndLanguage, RunContext

OPEN = "a branch is open: use its run(), and keep() or leave it before anything else is done in this sandbox"
ENDED = "the sandbox has ended in a branch, and its session is lost; the files of work_dir are as before the branch"
LOST = "the sandbox had ended, and its session is lost: run a block first, whose result says so"
COMMANDS = (
    "commands (start, exec) are running or ports are forwarded, whose effects could not be undone: "
    "end them before branch()"
)
CHECKPOINT = "branch"
_T = TypeVar("_T")
# The branch whose own work this is: no other may use the sandbox meanwhile.
inside: ContextVar[AsyncBranch | None] = ContextVar("codeact_branch", default=None)


class AsyncBranch:
    """Blocks from one instant of a session, for `async with`: kept by `keep()`, else undone at the end."""

    def __init__(self, sandbox: HasCommands) -> None:
        self._sandbox = sandbox
        self._client: RunnerClient | None = None
        self._saved: BinaryIO | None = None  # the workspace at its beginning
        self._results: list[Result] = []

    async def __aenter__(self) -> Self:
        await self._alone(self._begin())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if self._sandbox.open_branch is self:
                await self._alone(self._undo())
        except BaseException as error:
            if self._client is not None:
                # Nobody may use a session of which a part is undone.
                await asyncio.shield(asyncio.ensure_future(self._sandbox._discard(self._client)))
            if not isinstance(error, SandboxError | ValueError):
                raise
            if kind is None:
                raise SandboxDied(f"{ENDED}: {error}") from error
        finally:
            await self._close()

    async def run(self, code: str, language: str = "python", timeout: float | None = None) -> Result:
        """Run code in the branch.

        Args:
            code: The code.
            language: Its language. Default: Python.
            timeout: Wall-clock seconds that it may take. Default: the sandbox's `timeout`.

        Returns:
            What it did; an error in the code is a result, not an exception.

        Raises:
            SandboxError: The branch is over, or something around the code broke.
        """
        return await self._alone(self._run(Block(code, language), timeout))

    async def keep(self) -> None:
        """Make the branch the session, store its files on the host, and end it; the results of its blocks then name them.

        Raises:
            SandboxError: The branch is over, or the sandbox has ended.
        """
        await self._alone(self._keep())

    async def _alone(self, work: Coroutine[object, object, _T]) -> _T:
        """Do something while no block of another branch runs."""
        token = inside.set(self)
        try:
            async with self._sandbox._session:
                return await work
        finally:
            work.close()
            inside.reset(token)

    async def _begin(self) -> None:
        sandbox = self._sandbox
        if sandbox.open_branch is not None:
            raise Unsupported(OPEN)
        if sandbox.options.mode != "session":
            raise Unsupported("there is no session to branch in process mode: use mode='session'")
        if select.external_effects(sandbox.options) is not None:
            raise Unsupported(
                "a branch could not be undone here: its blocks can have effects outside the sandbox (its network, or bind_dir)"
            )
        client = await sandbox.ready()
        workspace = sandbox._folder.workspace
        if sandbox._lost:
            raise Unsupported(LOST)
        if client.processes.busy or (isinstance(client.ports, Ports) and client.ports.forwards):
            raise Unsupported(COMMANDS)
        assert workspace is not None
        # Files of both sides are exchanged first: later, only a branch that is kept adds to the host's.
        before = await sandbox._run_block(
            client, EMPTY_BLOCK, RunContext(journalled=True), sandbox.timeout, observed=False
        )
        self._files_before = before.files_before
        if client.processes.busy:  # started meanwhile
            raise Unsupported(COMMANDS)
        sandbox.open_branch, self._client = self, client
        self._files = ReplayWorkspace(client, workspace, sandbox._run_block)
        if client.gateway is not None:
            client.gateway.shut()  # until the next block outside the branch
        try:
            await self._save()
        except BaseException:
            await self._close()
            raise

    async def _save(self) -> None:
        self._live()
        saved: BinaryIO = await in_thread(tempfile.TemporaryFile)
        self._saved = saved
        try:
            await archives.save(self._live(), saved, self._sandbox.options.limits.workspace_bytes)
            reason: object = await self._files.checkpoint(CHECKPOINT)
        except SandboxFileError as error:
            reason = error
        if reason is not None:
            raise Unsupported(f"the session can't be branched: {reason}")

    def _live(self) -> RunnerClient:
        if self._client is None or self._sandbox.open_branch is not self:
            raise SandboxError("the branch is over: begin another one with branch()")
        if self._sandbox.client is not self._client or not self._client.alive:
            raise SandboxDied("it is not running")
        return self._client

    async def _run(self, block: CodeAndLanguage, timeout: float | None) -> Result:
        client, sandbox = self._live(), self._sandbox
        check_block(block)
        limit = parse_timeout(timeout) if timeout is not None else sandbox.timeout
        result = await sandbox._run_block(client, block, RunContext(branch=True), limit, replay=self._files)
        if not self._results:
            result.files_before = self._files_before
        self._results.append(result)
        return result

    async def _keep(self) -> None:
        client, workspace = self._live(), self._sandbox._folder.workspace
        assert workspace is not None
        await self._drop(client)
        self._sandbox.open_branch = None
        artifacts = await sync.pull_changed(workspace, client)
        for result in self._results:
            shown = await in_thread(display_files.store, result.displays, workspace)
            result.displays, result.artifacts = tuple(shown.displays), tuple(shown.artifacts)
            result.notes += tuple(shown.notes)
        if self._results:
            fail_if_not_stored(self._results[-1], workspace)
            self._results[-1].artifacts = display_files.merged(artifacts, self._results[-1].artifacts)

    async def _undo(self) -> None:
        client = self._live()
        assert self._saved is not None
        await self._files._roll_back(CHECKPOINT)
        await self._files._drain()
        await archives.put_back(client, self._saved)
        await self._drop(client)

    async def _drop(self, client: RunnerClient) -> None:
        await client.requests.ask({"drop": True}, kind=wire.TAKE_CHECKPOINT)

    async def _close(self) -> None:
        if self._sandbox.open_branch is self:
            self._sandbox.open_branch = None
        saved, self._saved = self._saved, None
        if saved is not None:
            await in_thread(saved.close)
