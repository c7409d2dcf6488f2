"""The files of the viewer's page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "page"
"""The folder of the page's files."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class StaticFile:
    """A file of the page.

    Args:
        data: Its content.
        media_type: Its type.
    """

    data: bytes
    media_type: str


def static_files() -> dict[str, StaticFile]:
    """Return the files of the page by their paths; only these are served."""
    paths = (path for path in sorted(PAGE.rglob("*")) if path.suffix in _TYPES and path.is_file())
    return {str(path.relative_to(PAGE)): StaticFile(path.read_bytes(), _TYPES[path.suffix]) for path in paths}
