"""The gateway of a sandbox: receives its connections over the stream and serves them in its own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codeact_sandbox.network.channels import MAX_CHANNELS, WINDOW, Channel, Channels
from codeact_sandbox.network.connection_log import ConnectionLog, notes
from codeact_sandbox.network.connector import Connector
from codeact_sandbox.network.http_proxy import serve
from codeact_sandbox.network.secrets import Secrets
from codeact_sandbox.types.allowed_domains import Policy
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.result import Result

if TYPE_CHECKING:
    from codeact_sandbox.network.package_index import PackageIndex


class Gateway(Channels):
    def __init__(
        self, connector: Connector | None, index: PackageIndex | None = None, secrets: Secrets | None = None
    ) -> None:
        super().__init__()
        self.log = ConnectionLog()
        self.secrets = secrets
        # The settings of the supervisor's end.
        self.settings: dict[str, Any] = {
            "window": WINDOW, "channels": MAX_CHANNELS, "domains": connector is not None, "index": index is not None,
            "authority": secrets.authority.pem if secrets is not None else None,
        }  # fmt: skip
        self._connector = connector or Connector(Policy(()))
        self._index = index
        self._shut = False

    def shut(self) -> None:
        """End every connection and refuse new ones, until the next block that is not part of a replay."""
        self._shut = True
        # Connections that were opened before are served by the old rule: in the thread's queue this comes after them.
        self._later(lambda: [task.cancel() for task in self._serving.values()])

    def begin_block(self, *, shut: bool) -> int:
        # Not earlier: code that a block has left, such as a fork hook, may run between two blocks.
        if not shut:
            self._shut = False
        return self.log.mark()

    def add_connections(self, result: Result, mark: int) -> None:
        result.connections = self.log.since(mark)
        result.notes = (*result.notes, *notes(result.connections), *self.log.remarks_since(mark))

    @property
    def idle(self) -> bool:
        return not self._channels

    async def release(self) -> None:
        if self._index is not None:
            await self._index.close()

    def opened(self, ident: int) -> None:
        if ident in self._channels or len(self._channels) >= MAX_CHANNELS:
            raise SandboxProtocolError("the sandbox opened a connection twice, or too many")
        self._later(self._open, self._add(ident))

    def _open(self, channel: Channel) -> None:
        connector = None if self._shut else self._connector
        self.serve(channel, serve(channel, connector, self.log, self._index, self.secrets))
