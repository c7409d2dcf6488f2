"""The folder on the host whose files a sandbox has: exchanged with its workspace, or mounted there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from codeact_sandbox.files.private_folders import mount
from codeact_sandbox.files.selection import Selection
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.errors import SandboxNotStarted
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.protected_names import ProtectedNames


class WorkFolder:
    """The folder of one `AsyncSandbox`, from start to stop: `work_dir`, `bind_dir` or a temporary one."""

    def __init__(self) -> None:
        self.workspace: Workspace | None = None
        """The files that are exchanged; None if there is no sandbox, or the folder is mounted."""
        self._selection: Selection | None = None
        self._temporary: TemporaryFolder | None = None
        self._unmount: Callable[[], None] | None = None

    def path(self, options: SandboxOptions) -> Path:
        folder = options.work_dir or options.bind_dir
        if folder is not None:
            return Path(folder)
        if self._temporary is None:
            raise SandboxNotStarted("Working directory not properly initialized: pass work_dir=, or call start() first")
        return self._temporary.path

    def new_workspace(self, options: SandboxOptions) -> Workspace:
        if self._selection is None:
            named = [name for name in options.write_back if "*" not in name]
            self._selection = Selection(options.exclude, [*options.include, *named])
        protected = ProtectedNames(options.write_back)
        return Workspace(
            self.path(options),
            protected=protected,
            selection=self._selection,
            is_users=options.work_dir is not None,
        )

    async def open(self, options: SandboxOptions) -> bool:
        """Prepare it for a new sandbox; return whether it was made for this, so that a failed start removes it."""
        fresh = options.work_dir is None and options.bind_dir is None and self._temporary is None
        if fresh:
            self._temporary = TemporaryFolder()
        try:
            if options.bind_dir is None:
                self.workspace = self.new_workspace(options)
                await in_thread(self.workspace.prepare)
            else:
                self._unmount = await in_thread(mount, Path(options.bind_dir))
        except BaseException:
            await self.release(keep=not fresh)
            raise
        return fresh

    async def close(self, *, keep: bool) -> None:
        """Stop storing files, and remove a temporary folder unless it is kept for the next sandbox."""
        workspace, self.workspace = self.workspace, None
        if workspace is not None:
            async with workspace.transfer_lock if keep else nullcontext():
                await in_thread(workspace.close)
        await self.release(keep=keep)

    async def release(self, *, keep: bool) -> None:
        """End the mount, and remove a temporary folder unless it is kept."""
        if not keep and self._temporary is not None:
            temporary, self._temporary = self._temporary, None
            await temporary.remove()
        if self._unmount is not None:
            self._unmount()
            self._unmount = None
