"""Sources of host tools that must be started before their tools are known."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from codeact_sandbox.types.errors import SandboxTimeout
from codeact_sandbox.types.tool import HostToolProtocol

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class ToolSource(ABC):
    """Something that must be started before its tools are known, such as the connection to a server.

    It works in the event loop that started it, and in no other.

    Args:
        name: What it is, for errors.
    """

    group = ""
    """The module in which its tools are where another tool has the name of one of them; empty for none."""

    label = ""
    """What rules and questions call it: `crm` in `crm.find`. Empty if its tools are the program's own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._started = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def open(self) -> None:
        """Start it."""

    @abstractmethod
    async def list_tools(self) -> Sequence[HostToolProtocol]:
        """List its tools."""

    @abstractmethod
    async def close(self) -> None:
        """Stop it, within `STOP_TIMEOUT_S` or not much more."""

    async def start(self) -> Sequence[HostToolProtocol]:
        """Start it, unless that was done, and list its tools.

        Raises:
            SandboxTimeout: It did not answer within 60 s.
            ValueError: One of its tools can't be used.
            Exception: What it raised.
        """
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                if not self._started:
                    self._started = True
                    await self.open()
                self._loop = asyncio.get_running_loop()
                return await self.list_tools()
        except TimeoutError as error:
            raise SandboxTimeout(
                f"The {self.name} did not list its tools within {START_TIMEOUT_S:g} s; see whether its server starts by hand."
            ) from error

    def check_loop(self) -> None:
        """Check that this is the event loop in which it was started.

        Raises:
            RuntimeError: It is another one.
        """
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                f"The {self.name} was started in another event loop and works in no other: stop and start the executor in this "
                "one."
            )

    async def stop(self) -> None:
        """Stop it, if it was started here; it ends with its event loop if that is another one.

        Raises:
            TimeoutError: It did not stop in time.
        """
        if self._started:
            self._started = False
            if self._loop is None or self._loop is asyncio.get_running_loop():
                await self.close()
