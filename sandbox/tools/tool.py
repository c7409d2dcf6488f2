"""What a host tool is to the rest of the package, wherever it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from autogen_core import CancellationToken, Image

if TYPE_CHECKING:
    from autogen_codeact.sandbox.tools.stub import Stub


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool gave back.

    Args:
        value: The value that the calling code gets; what JSON can hold.
        images: Pictures that came with it, for a model that can see.
    """

    value: Any
    images: tuple[Image, ...] = ()


class ToolArgumentError(TypeError):
    """The arguments of a call do not fit the tool; the message says which, in words for who wrote the call."""


class HostTool(Protocol):
    """A function that runs on the host and is called from the sandbox."""

    @property
    def name(self) -> str:
        """Its name, a Python identifier."""
        ...

    @property
    def signature(self) -> str:
        """Its parameters and result as Python writes them, such as `(city: str, days: int = 3) -> list[Forecast]`."""
        ...

    @property
    def description(self) -> str:
        """Its docstring."""
        ...

    @property
    def source(self) -> str | Stub:
        """Python 3.8 source that defines the function in the sandbox, or a stub from which it is built there.

        The source is run in the sandbox before any block: it must not contain text of third parties. The function's body passes
        the arguments by name to `_call(name, arguments)` and returns its result, both as JSON values.
        """
        ...

    async def run(self, arguments: Mapping[str, Any], cancellation_token: CancellationToken) -> ToolAnswer:
        """Check the arguments and run it.

        Args:
            arguments: By name, as JSON gave them.
            cancellation_token: Cancelled when the calling block has ended.

        Returns:
            Its answer.

        Raises:
            ToolArgumentError: The arguments do not fit.
        """
        ...
