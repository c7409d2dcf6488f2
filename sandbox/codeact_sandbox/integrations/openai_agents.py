"""OpenAI Agents: a client whose sessions are sandboxes, for `SandboxAgent`."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from agents import ToolOutputImage, ToolOutputText, function_tool
from agents.sandbox import Capability, ExecResult, ExposedPortEndpoint, Manifest, errors, resolve_snapshot
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.session.workspace_payloads import coerce_write_payload

from codeact_sandbox import AsyncSandbox, SandboxError, SandboxNotStarted, Unsupported
from codeact_sandbox.files import archives
from codeact_sandbox.integrations.answers import answer_of

ROOT = Path("/workspace")


class CodeactState(SandboxSessionState):
    """What is kept of a session: with its snapshot, another sandbox continues it."""

    type: Literal["codeact"] = "codeact"


class CodeactSession(BaseSandboxSession):
    def __init__(self, state: CodeactState, box: AsyncSandbox) -> None:
        self.state, self.box = state, box
        self._ensure_backend_started, self._after_start_failed, self._shutdown_backend = box.start, box.stop, box.stop
        self._validate_path_access = self._validate_remote_path_access  # no link leads out of the workspace

    async def running(self) -> bool:
        return getattr(self.box.client, "alive", False)

    @contextmanager
    def using(self, kind: Any, user: Any = None, **given: Any) -> Generator[AsyncSandbox]:
        """Give the sandbox, if it has not ended: no other takes its place. Its errors become errors of a kind of the SDK's."""
        if user is not None:
            raise Unsupported("a sandbox has no capabilities to change the user: leave user=None and run_as=None")
        try:
            if not getattr(self.box.client, "alive", False):
                raise SandboxNotStarted("the sandbox of this session has ended: resume it from its snapshot")
            yield self.box
        except SandboxError as error:
            missing = kind is errors.WorkspaceArchiveReadError and getattr(error, "errno", 0) == errno.ENOENT
            raise (errors.WorkspaceReadNotFoundError if missing else kind)(cause=error, **given) from error

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: Any) -> Any:
        with self.using(errors.ExecTransportError, user, command=command):
            return super()._prepare_exec_command(*command, shell=shell, user=None)

    async def _exec_internal(self, *command: str, timeout: float | None = None) -> ExecResult:
        with self.using(errors.ExecTransportError, command=command) as box:
            done = await box.exec(command, env=await self.state.manifest.environment.resolve(), timeout=timeout)
        if done.timed_out:
            raise errors.ExecTimeoutError(command=command, timeout_s=timeout or box.timeout)
        if done.stdout_dropped or done.stderr_dropped:  # the texts say what was dropped
            return ExecResult(stdout=done.stdout.encode(), stderr=done.stderr.encode(), exit_code=done.exit_code)
        return ExecResult(stdout=done.stdout_bytes, stderr=done.stderr_bytes, exit_code=done.exit_code)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        """Read a file of at most 256 MiB."""
        return io.BytesIO(await self._read_bounded(path, user=user))

    async def _read_bounded(self, path: Path, *, max_bytes: int | None = None, user: Any = None) -> bytes:
        with self.using(errors.WorkspaceArchiveReadError, user, path=path) as box:
            return await box.read(str(await self._validate_path_access(path)), size=max_bytes)

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        with self.using(errors.WorkspaceArchiveWriteError, user, path=path) as box:
            target = str(await self._validate_path_access(path, for_write=True))
            await box.write(target, await asyncio.to_thread(coerce_write_payload(path=path, data=data).stream.read))

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        given = {"port": port, "exposed_ports": self.state.exposed_ports, "reason": "backend_unavailable"}
        with self.using(errors.ExposedPortUnavailableError, **given) as box:
            url = urlsplit((await box.forward(port)).url)
        return ExposedPortEndpoint(str(url.hostname), url.port or 0)

    async def persist_workspace(self) -> io.IOBase:
        """Return a snapshot of the workspace, without what the manifest calls ephemeral."""
        exclude = [path.as_posix() for path in self._persist_workspace_skip_relpaths()]
        with tempfile.TemporaryDirectory() as folder, self.using(errors.WorkspaceArchiveReadError, path=ROOT) as box:
            return (await box.snapshot(Path(folder, "snapshot"), exclude=exclude)).open("rb")

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fill the workspace with a snapshot, or with a tar file of another client's session."""
        content = chain([start := data.read(2)], iter(partial(data.read, 1024 * 1024), b""))
        with self.using(errors.WorkspaceArchiveWriteError, path=ROOT) as box:
            await archives.unpack(box, content, compressed=start == b"\x1f\x8b")


class CodeactClient(BaseSandboxClient[None]):
    """A client, `SandboxRunConfig(client=CodeactClient())`; its arguments are those of `AsyncSandbox`, and `exposed_ports`."""

    backend_id, supports_default_options = "codeact", True

    def __init__(self, backend: Any = "auto", *, exposed_ports: tuple[int, ...] = (), **options: Any) -> None:
        self._ports = exposed_ports
        self._new_box = partial(AsyncSandbox, backend, **options)
        self._boxes: WeakValueDictionary[uuid.UUID, AsyncSandbox] = WeakValueDictionary()

    async def create(self, *, snapshot: Any = None, manifest: Any = None, options: None = None) -> SandboxSession:
        manifest, name = self._validate_manifest_for_create(manifest or Manifest()), uuid.uuid4()
        if manifest.root != str(ROOT):
            raise ValueError(f"the root of a manifest is {ROOT} in these sandboxes, and not {manifest.root}")
        kept = resolve_snapshot(snapshot, str(name))
        state = CodeactState(session_id=name, manifest=manifest, snapshot=kept, exposed_ports=self._ports)
        return await self.resume(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continue a session: in its sandbox if that is running, else in another one with its snapshot."""
        state.assert_path_grants_rebound()
        session = CodeactSession(state, self._boxes.setdefault(state.session_id, self._new_box()))
        session._set_start_state_preserved(await session.running())
        return self._wrap_session(session)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        await session._inner.box.stop()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CodeactState)


class RunCode(Capability):
    """Gives an agent the tool `run_code`: Python whose variables stay, and the host tools of the client."""

    type: Literal["codeact"] = "codeact"

    def tools(self) -> list[Any]:
        return [function_tool(self.run_code)]

    async def run_code(self, code: str) -> Any:
        """Run Python code in a live interpreter: variables stay, figures are shown, files are those of commands."""
        session: Any = getattr(self.session, "_inner", self.session)
        with session.using(errors.ExecTransportError, self.run_as, command=("run_code",)) as box:
            text, images = await asyncio.to_thread(answer_of, await box.run(code))
        urls = [f"data:{kind};base64,{base64.b64encode(data).decode()}" for data, kind in images]
        return [ToolOutputText(text=text), *(ToolOutputImage(image_url=url) for url in urls)] if urls else text
