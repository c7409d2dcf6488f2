"""The run viewer: pages that show a run in a browser, live or from its folder. Serving them needs the extra `viewer`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.viewer.control import ApprovalQuestion, RunControl
    from autogen_codeact.viewer.one_file import export_html
    from autogen_codeact.viewer.server import ViewerError, serve
    from autogen_codeact.viewer.steps import RunSteps

_HOME = {
    "ApprovalQuestion": "control",
    "RunControl": "control",
    "RunSteps": "steps",
    "ViewerError": "server",
    "export_html": "one_file",
    "serve": "server",
}

__all__ = ["ApprovalQuestion", "RunControl", "RunSteps", "ViewerError", "export_html", "serve"]


def __getattr__(name: str) -> Any:
    # The modules import AutoGen, or need the extra `viewer`.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
