"""Files of a run as answers to requests. Nothing of them can act as a part of our page."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.files import FILES
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.viewer.text import download_name
from codeact_sandbox.types.displays import IMAGES

_HASH = re.compile(r"[0-9a-f]{64}")


def file_answer(folder: RunFolder, digest: str, kind: str, name: str) -> Response:
    """Return a file of a run. It reads the file: call it in a thread.

    Args:
        folder: The run's folder.
        digest: Name of the file, which is the SHA-256 hash of its content.
        kind: The type that the page wants; only types of images are taken, all others are a download.
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
    plain = download_name(re.sub(r"[^A-Za-z0-9._-]", "_", name[-100:])) or digest[:16]
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(download_name(name) or plain, safe='')}"
    return Response(data, media_type="application/octet-stream", headers={"Content-Disposition": disposition})
