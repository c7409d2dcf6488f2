"""Project pages of the simple API, in HTML (PEP 503): read, and written again with links of our own."""

from __future__ import annotations

import contextlib
import html
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

HTML_TYPE = "application/vnd.pypi.simple.v1+html"
ARCHIVES = (".whl", ".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tbz", ".tar.xz", ".tar")
MAX_FILENAME = 255
MAX_FILES = 20_000  # files that a page may list
MAX_TEXT = 1000  # characters that are kept of a reason or a version specifier
MAX_URL = 4096  # characters of a link; longer ones are left out
MAX_HASHES = 8
PIECE = 32 * 1024  # characters of HTML that are parsed at a time: no other thread runs while a tag is searched
PARSE_TIMEOUT_S = 60.0
_HASH = re.compile(r"([a-z0-9]{2,10})=([0-9a-fA-F]{16,128})")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ProjectFile:
    filename: str  # its name; never a path
    url: str  # where the host finds it
    base: str  # URL of the page that lists it
    hashes: Mapping[str, str] = field(default_factory=dict)  # digests in hexadecimal, by algorithm
    requires_python: str | None = None  # version specifier, or None
    yanked: bool | str = False  # whether it is yanked, or the reason


def canonical_name(name: str) -> str | None:
    return re.sub(r"[-_.]+", "-", name).lower() if _NAME.fullmatch(name) else None


def file_name(url: str) -> str | None:
    """Return the name of the package that a URL leads to, or None if it does not lead to a package."""
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    is_safe = name.isprintable() and not re.search(r"[/\\]", name) and len(name) <= MAX_FILENAME
    return name if is_safe and name.endswith(ARCHIVES) else None


def parse_page(content: bytes, url: str) -> list[ProjectFile]:
    parser = _Links(url)
    text, deadline = content.decode("utf-8", "replace"), time.monotonic() + PARSE_TIMEOUT_S
    for at in range(0, len(text), PIECE):
        parser.feed(text[at : at + PIECE])
        if len(parser.rawdata) > PIECE:
            # An incomplete tag, comment or script, which would be parsed again with the next piece; its end may be cut in two.
            parser.rawdata = parser.rawdata[-16:]
        if time.monotonic() > deadline:
            raise ValueError(f"it is not parsed after {PARSE_TIMEOUT_S:g} s")
    # Not closed: what is incomplete at the end has no link, and parsing it anyway takes quadratic time.
    return parser.files


def _make_file(link: str, page: str, base: str, **fields: Any) -> ProjectFile | None:
    """Return the file of a link, which is relative to `base`; None if the link is malformed, or leads to no package."""
    if len(link) > MAX_URL:
        return None
    try:
        url = urljoin(base, link.strip())
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return None
    filename = file_name(url)
    if filename is None or split.scheme not in ("http", "https"):
        return None
    return ProjectFile(filename, split._replace(fragment="").geturl(), page, **fields)


class _Links(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.files: list[ProjectFile] = []
        self._base = self._url = url

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        link = attributes.get("href")
        if tag == "base" and link and len(link) <= MAX_URL:
            with contextlib.suppress(ValueError):
                self._base = urljoin(self._url, link)
        if tag != "a" or not link:
            return
        requires = attributes.get("data-requires-python")
        file = _make_file(
            link,
            self._url,
            self._base,
            hashes=dict(_HASH.findall(link.partition("#")[2][:MAX_TEXT])[:MAX_HASHES]),
            requires_python=requires if requires and len(requires) <= MAX_TEXT else None,
            yanked=(attributes["data-yanked"] or "")[:MAX_TEXT] or True if "data-yanked" in attributes else False,
        )
        if file is not None:
            self.files.append(file)
        if len(self.files) > MAX_FILES:
            raise ValueError(f"it lists more than {MAX_FILES:,} files")


def write_html(project: str, files: Iterable[ProjectFile]) -> bytes:
    lines = [f"<!DOCTYPE html><html><head><title>{project}</title></head><body>"]
    lines += [_anchor(file, project) for file in files]
    return "\n".join([*lines, "</body></html>\n"]).encode("utf-8", "replace")


def _anchor(file: ProjectFile, project: str) -> str:
    best = sorted(file.hashes.items(), key=lambda each: each[0] != "sha256")
    fragment = f"#{best[0][0]}={best[0][1]}" if best else ""
    attributes = {"href": f"../../files/{project}/{quote(file.filename)}{fragment}"}
    if file.requires_python is not None:
        attributes["data-requires-python"] = file.requires_python
    if file.yanked:
        attributes["data-yanked"] = file.yanked if isinstance(file.yanked, str) else ""
    written = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    return f"<a{written}>{html.escape(file.filename)}</a><br>"
