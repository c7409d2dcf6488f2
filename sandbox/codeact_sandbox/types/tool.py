"""The interface of host tools in this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard


@dataclass(frozen=True)
class ToolImage:
    """An image in a tool's result.

    Args:
        media_type: Its type, such as `image/png`.
        data: The file.
        size: Width and height in pixels, where they are known.
    """

    media_type: str
    data: bytes
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool returned.

    Args:
        value: The value that the calling code gets; what JSON can represent.
        images: Images that came with it, for a model with vision.
    """

    value: Any
    images: tuple[ToolImage, ...] = ()


class ToolArgumentError(TypeError):
    """The arguments of a call do not fit the tool; the message says which, for the author of the calling code."""


class HostToolProtocol(Protocol):
    """A host tool: what the sandbox and the model see of it, and how it runs. `HostTool` makes one of a function."""

    @property
    def name(self) -> str:
        """Its name, a Python identifier."""

    @property
    def signature(self) -> str:
        """Its parameters and result as Python writes them, such as `(city: str, days: int = 3) -> list[Forecast]`."""

    @property
    def description(self) -> str:
        """Its docstring."""

    @property
    def source(self) -> str | Mapping[str, Any]:
        """Python 3.8 source that defines the function in the sandbox, or the data of a stub that is built there.

        The source is run in the sandbox before any block: it must not contain text of third parties. The function's body passes
        the arguments by name to `_call(name, arguments)` and returns its result, both as JSON values.
        """

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Check the arguments and run it. The task is cancelled when its caller stops waiting for the result.

        Args:
            arguments: By name, as JSON values.

        Returns:
            Its answer.

        Raises:
            ToolArgumentError: The arguments do not fit.
        """


def is_host_tool(thing: object) -> TypeGuard[HostToolProtocol]:
    return all(hasattr(thing, name) for name in ("name", "signature", "description", "source", "run"))
