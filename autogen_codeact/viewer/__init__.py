"""The run viewer: pages that show a run in a browser, live or from its folder. Serving them needs the extra `viewer`."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.viewer.control import ApprovalQuestion as ApprovalQuestion
    from autogen_codeact.viewer.control import RunControl as RunControl
    from autogen_codeact.viewer.one_file import export_html as export_html
    from autogen_codeact.viewer.server import serve as serve

_NAMES = {
    "autogen_codeact.viewer.control": "ApprovalQuestion RunControl",
    "autogen_codeact.viewer.one_file": "export_html",
    "autogen_codeact.viewer.server": "serve",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
