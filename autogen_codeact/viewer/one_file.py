"""A run as one page: everything is in the file, and opening it makes no request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from autogen_codeact.runs.atomic_file import atomic_text_file
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import Run
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.viewer.documents import Document
from autogen_codeact.viewer.static import NONCE, SCRIPT_TAG, STYLE_TAG, page_html, page_script, page_style
from autogen_codeact.viewer.steps import RunSteps

MAX_FILE = 16 * 1024**2
"""Bytes of a figure or a file of the workspace; larger ones are left out."""
MAX_FILES = 96 * 1024**2
"""Bytes of all figures and files; what comes later is left out, and the page says so where it would be."""
_PART = 200
_IN_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
"""In JSON, so that no text of a run can end its element; what is not ASCII is escaped anyway."""


def export_html(run: Run, path: str | os.PathLike[str]) -> None:
    """Write a run as one HTML file with all its text and figures, which any browser shows from the disk.

    Args:
        run: The run, which may be incomplete, damaged, or still going on.
        path: The file. It is replaced as a whole, or stays as it is.

    Raises:
        RunError: The log can't be read.
        OSError: The file can't be written.
    """
    with atomic_text_file(Path(path)) as file:
        write_html(run, file)


def write_html(run: Run, file: TextIO) -> None:
    """Write a run as one HTML page into an open text file, step by step.

    Raises:
        RunError: The log can't be read.
    """
    steps = RunSteps(run.folder.path)
    steps.view.read_all()
    _Page(steps, file).write()


class _Page:
    """The page of one run, as far as it is written."""

    def __init__(self, steps: RunSteps, file: TextIO) -> None:
        self._steps = steps
        self._file = file
        self._seen: set[str] = set()
        self._file_bytes = 0

    def write(self) -> None:
        header = self._steps.header()
        header["live"] = header["controls"] = False
        title = f"{header['name']}: {' '.join(header['task'].split())[:100]}" if header["task"] else header["name"]
        head, tail = _page(title)
        self._file.write(head)
        count = len(self._steps)
        for number in range(1, count + 1):
            steps = self._steps.steps(number, number)
            for reference in _references(steps[0]):
                self._write_file(reference)
            self._write_part("steps", number, steps)
        for first in range(1, count + 1, _PART):
            self._write_part("summaries", first, self._steps.summaries(first, first + _PART - 1))
        self._file.write(f'<script type="application/json" id="run-header">{to_json(header)}</script>\n')
        self._file.write(f"<script>{page_script()}</script>\n</body>{tail}")

    def _write_part(self, name: str, first: int, documents: list[Document]) -> None:
        last = first + len(documents) - 1
        self._file.write(f'<script type="application/json" data-part="{name}" data-from="{first}" data-to="{last}">')
        self._file.write(f"{to_json(documents)}</script>\n")

    def _write_file(self, reference: Document) -> None:
        """Write a figure or a file, once; what is missing or too large is not in the page, which then says so."""
        sha256, size = reference["sha256"], reference["size"]
        if sha256 is None or sha256 in self._seen:
            return
        self._seen.add(sha256)
        if size > MAX_FILE or self._file_bytes + size > MAX_FILES:
            return
        try:
            content = self._steps.view.run.read_file(StoredFile(sha256=sha256, size=size))
        except (RunError, ValueError):
            return
        self._file_bytes += size
        self._file.write(f'<script type="text/plain" id="file-{sha256}">')
        self._file.write(base64.b64encode(content).decode("ascii"))
        self._file.write("</script>\n")


def to_json(value: object) -> str:
    """Return JSON that can be in an element of a page."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_IN_HTML)


def _page(title: str) -> tuple[str, str]:
    """Return what comes before and after the data of a run in a page that loads nothing.

    Frames with HTML that code has shown inherit the policy; the page gives their styles the nonce, after removing all that loads.
    """
    digest = base64.b64encode(hashlib.sha256(page_script().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'nonce-{NONCE}'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # The policy comes before everything that it is about.
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    page = page_html().replace('<meta charset="utf-8">\n', meta).replace(SCRIPT_TAG, "")
    page = page.replace(STYLE_TAG, f'<style nonce="{NONCE}">\n{page_style()}</style>\n')
    page = page.replace(NONCE, secrets.token_urlsafe(16))
    head, _, tail = page.replace("<title>codeact</title>", f"<title>{html.escape(title)}</title>").partition("</body>")
    return head, tail


def _references(step: Document) -> Iterator[Document]:
    """Yield the references to stored files in a step."""
    for display in step.get("displays", ()):
        yield from (form["file"] for form in display["data"].values() if isinstance(form, dict))
    yield from (each["file"] for each in step.get("files", ()) if each["file"] is not None)
    for call in step.get("calls", ()):
        yield from call["images"]
