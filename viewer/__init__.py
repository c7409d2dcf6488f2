"""The run viewer: pages that show a run in a browser, live or from its folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.viewer.one_file import export_html

_HOME = {"export_html": "one_file"}

__all__ = ["export_html"]


def __getattr__(name: str) -> Any:
    # The modules below import AutoGen, or need the extra `viewer`.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
