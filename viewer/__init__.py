"""The run viewer: pages that show a run in a browser, live or from its folder. Serving them needs the extra `viewer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

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


__getattr__, __dir__ = lazy_names(__name__, _HOME)
