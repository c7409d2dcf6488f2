"""Files of a run as answers to requests. Nothing of them can act as a part of our page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.files import FILES
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.sandbox.displays import IMAGES, isolated
from autogen_codeact.viewer.schema import Step
from autogen_codeact.viewer.security import FRAME_CSP

_HASH = re.compile(r"[0-9a-f]{64}")
_STYLE = (
    "<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'><style>"
    ":root{color-scheme:light dark}body{margin:8px;font:14px/1.45 system-ui,sans-serif;color:CanvasText}"
    "table{border-collapse:collapse}th,td{padding:3px 8px;border:1px solid color-mix(in srgb,CanvasText 25%,transparent);"
    "text-align:right}svg,img{max-width:100%;height:auto}</style>"
)


def file_answer(folder: RunFolder, digest: str, kind: str, name: str) -> Response:
    """Return a file of a run. It reads the file: call it in a thread.

    Args:
        folder: The run's folder.
        digest: Name of the file, which is the SHA-256 hash of its content.
        kind: The type that the page wants; only types of pictures are taken, all others are a download.
        name: What the download is called.

    Raises:
        RunFileError: It is missing or was changed.
    """
    if not _HASH.fullmatch(digest):
        raise HTTPException(404, "A file's name is its SHA-256 hash in hexadecimal digits.")
    try:
        size = (folder.path / FILES / digest).lstat().st_size
    except OSError:
        raise RunFileError("The run has no such file.") from None
    data = folder.read_file(StoredFile(sha256=digest, size=size))
    if kind in IMAGES:
        return Response(data, media_type=kind, headers={"Content-Disposition": "inline"})
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name[-100:]).lstrip(".") or digest[:16]
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(_shown(name) or plain, safe='')}"
    return Response(data, media_type="application/octet-stream", headers={"Content-Disposition": disposition})


def framed_display(steps: Sequence[Step], index: int) -> Response:
    """Return the HTML or SVG of a display as a document for a sandboxed frame.

    Args:
        steps: The step, or nothing.
        index: Which of its displays, from 0.
    """
    displays = steps[0].get("displays", []) if steps else []
    data = displays[index]["data"] if index < len(displays) else {}
    source = next((data[kind] for kind in ("text/html", "image/svg+xml") if isinstance(data.get(kind), str)), None)
    if source is None:
        raise HTTPException(404, "There is no such display.")
    return Response(
        (_STYLE + isolated(source)).encode("utf-8", "replace"),
        media_type="text/html; charset=utf-8",
        headers={"Content-Security-Policy": FRAME_CSP},
    )


def _shown(name: str) -> str:
    """Return the last part of a file's name without characters that hide or reorder it."""
    return "".join(c for c in name[-200:].rpartition("/")[2] if c.isprintable()).lstrip(".")
