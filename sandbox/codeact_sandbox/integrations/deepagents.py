"""deepagents: a sandbox as the backend of an agent's files and commands."""

from __future__ import annotations

import base64
import errno
import os
import uuid
from typing import Any

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from codeact_sandbox import Sandbox, SandboxFileError
from codeact_sandbox.integrations.answers import answer_of

_INVALID = "invalid_path"
_ERRORS = {
    errno.ENOENT: "file_not_found",
    errno.ENOTDIR: _INVALID,
    errno.EISDIR: "is_directory",
    errno.EACCES: "permission_denied",
    errno.EROFS: "permission_denied",
}


class CodeactBackend(BaseSandbox):
    """A backend: `create_deep_agent(model, backend=CodeactBackend(Sandbox()))`.

    The agent's file tools (`ls`, `read_file`, `write_file`, `edit_file`, `grep`, `glob`) run in the sandbox, as commands. With
    `tools=[backend.run_code]` the agent also has Python whose variables stay, and the sandbox's host tools.

    Args:
        sandbox: The sandbox. It starts with the first operation; whoever made it stops it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._id = f"codeact-{uuid.uuid4().hex}"

    @property
    def id(self) -> str:
        return self._id

    def run_code(self, code: str) -> str | list[dict[str, Any]]:
        """Run Python code in a live interpreter: variables stay from call to call, and figures are shown.

        Args:
            code: The code. It can call the functions that it was given, and use the same files as commands.
        """
        text, images = answer_of(self.sandbox.run(code))
        if not images:
            return text
        shown = [
            {"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": kind} for data, kind in images
        ]
        return [{"type": "text", "text": text}, *shown]

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a line of shell.

        Args:
            command: The line.
            timeout: Seconds that it may take. Default, and with 0: the sandbox's `timeout`.

        Returns:
            Standard output and error in the order written, and the exit code, which is 124 after a timeout.
        """
        done = self.sandbox.exec(f"exec 2>&1\n{command}", timeout=timeout or None)
        late = f"\nThe command was killed after {done.duration_s:.0f} s." if done.timed_out else ""
        return ExecuteResponse(f"{done.stdout}{done.stderr}{late}", done.exit_code, truncated=done.stdout_dropped > 0)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, and the folders above them.

        Args:
            files: Absolute paths and contents.

        Returns:
            For each file, in their order, what kept it from being written, if anything did.
        """
        return [FileUploadResponse(path, self._upload(path, data)) for path, data in files]

    def _upload(self, path: str, data: bytes) -> str | None:
        try:
            self.sandbox.write(_absolute(path), data)
        except SandboxFileError as error:
            return _reason(error)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, each of at most 256 MiB.

        Args:
            paths: Absolute paths.

        Returns:
            For each path, in their order, the content, or what kept it from being read.
        """
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path, self.sandbox.read(_absolute(path)))
        except SandboxFileError as error:
            return FileDownloadResponse(path, error=_reason(error))


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise SandboxFileError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return path


def _reason(error: SandboxFileError) -> str:
    return _ERRORS.get(error.errno or 0) or str(error)
