"""Inspect: sandboxes for the samples of evaluations, as `sandbox="codeact"`."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from inspect_ai.util import SandboxEnvironmentLimits as Most
from pydantic import BaseModel, ConfigDict

from codeact_sandbox import AsyncSandbox, SandboxError, SandboxFileError
from codeact_sandbox.types.options import BackendName
from codeact_sandbox.types.paths import WORKSPACE

LONGEST_S = 24 * 3600.0  # what a command without a timeout may take


class CodeactConfig(BaseModel):
    """The options of a task's sandboxes: `SandboxEnvironmentSpec("codeact", CodeactConfig(memory="1g"))`.

    Args:
        backend: As for `AsyncSandbox`, whose other options are keywords here, too. Default: "auto".
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    backend: BackendName = "auto"


@sandboxenv("codeact")
class CodeactSandboxEnvironment(SandboxEnvironment):
    """The sandbox of one sample, which ends with the sample.

    Args:
        box: The sandbox, which is running.
    """

    def __init__(self, box: AsyncSandbox) -> None:
        super().__init__()
        self.box = box

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Start and stop a sandbox, so that what keeps them from starting is known before the samples."""
        async with _box_of(config):
            pass

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        box = _box_of(config)
        await box.start()
        return {"default": cls(box)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Stop the sandbox of a sample, also if the evaluation is interrupted meanwhile."""
        with anyio.CancelScope(shield=True):
            await environments["default"].as_type(cls).box.stop()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return CodeactConfig(**config)

    @classmethod
    def default_concurrency(cls) -> int:
        """Return how many samples have a sandbox at the same time, unless `max_sandboxes` says it."""
        return 2 * (os.cpu_count() or 1)

    async def exec(  # noqa: PLR0917
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - Inspect's name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command, as `SandboxEnvironment.exec` says, once: it is not tried again after a timeout."""
        if any("\0" in word for word in cmd):
            raise ValueError("embedded null byte")  # which Inspect tells the model
        limit, kept = Most.MAX_EXEC_OUTPUT_SIZE, {"stdout": bytearray(), "stderr": bytearray()}

        def take(stream: str, data: bytes) -> None:
            kept[stream].extend(data[: limit + 1 - len(kept[stream])])

        with self._errors():
            if user is not None and user not in (await self.box.exec("id -un; id -u")).stdout.split():
                raise SandboxUserUnsupportedError(f"commands run as the sandbox's own user, and not as {user!r}")
            done = await self.box.exec(cmd, stdin=input, cwd=cwd, env=env, timeout=timeout, on_output=take)
        stdout, stderr = (kept[name][:limit].decode(errors="replace") for name in ("stdout", "stderr"))
        if done.timed_out:
            late = TimeoutError(f"The command was killed after {done.duration_s:.1f} s")
            late.truncated_output = stdout + stderr  # type: ignore[attr-defined]
            raise late
        if any(len(each) > limit for each in kept.values()):
            raise OutputLimitExceededError(Most.MAX_EXEC_OUTPUT_SIZE_STR, stdout + stderr)
        if done.exit_code == 126 and stderr == f"{cmd[0]}: {os.strerror(errno.EACCES)}\n":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
        return ExecResult(done.exit_code == 0, done.exit_code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, through a link, too, and make the folders above it."""
        with self._errors():
            await self.box.write(os.path.join(WORKSPACE, file), contents)

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file, as `SandboxEnvironment.read_file` says."""
        with self._errors():
            content = await self.box.read(os.path.join(WORKSPACE, file), size=Most.MAX_READ_FILE_SIZE + 1)
        if len(content) > Most.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(Most.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Raise the errors that Inspect asks for; no other sandbox takes the place of one that has ended."""
        client = self.box.client
        if client is None or not client.alive:
            raise SandboxUnavailableError("the sandbox of this sample has ended, with its files and processes")
        try:
            yield
        except SandboxFileError as error:
            raise OSError(error.errno, error.strerror, error.filename) from error  # `FileNotFoundError` and the like
        except SandboxError as error:
            raise SandboxUnavailableError(str(error)) from error


def _box_of(config: BaseModel | str | None) -> AsyncSandbox:
    given: dict[str, Any] = config.model_dump() if isinstance(config, BaseModel) else {"backend": config or "auto"}
    return AsyncSandbox(given.pop("backend"), **{"timeout": LONGEST_S, **given})
