"""Credentials of package indexes: from their URLs and netrc files. They are sent to their own index only."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from codeact_sandbox.types.filenames import printable

MAX_SHOWN = 300
PORTS = {"http": 80, "https": 443}
Origin = tuple[str, str, int | None]


def origin(url: str) -> Origin:
    """Return scheme, host and port of a URL."""
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or PORTS.get(split.scheme)


def without_user(url: str) -> str:
    """Return a URL without a user and a password."""
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()


def shown(url: str) -> str:
    """Return what messages may show of a URL: neither its user nor its query, and not more than `MAX_SHOWN` characters."""
    text = printable(urlsplit(without_user(url))._replace(query="", fragment="").geturl())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class Credentials:
    """Finds the credentials for a URL."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._from_urls: dict[Origin, tuple[str, str | None]] = {}
        for url in urls:
            split = urlsplit(url)
            if split.username:
                password = None if split.password is None else unquote(split.password)
                self._from_urls.setdefault(origin(url), (unquote(split.username), password))
        self._known: dict[Origin, str | None] = {}

    def header(self, url: str) -> str | None:
        """Return the value of the header `Authorization` for a URL, or None; it may block."""
        where = origin(url)
        if where not in self._known:
            self._known[where] = self._find(where)
        return self._known[where]

    def _find(self, where: Origin) -> str | None:
        from requests.utils import get_netrc_auth  # noqa: PLC0415 - only builds and `allow_pip` need it

        user, password = self._from_urls.get(where, (None, None))
        if user is not None and password is not None:
            return _basic(user, password)
        found = None
        with contextlib.suppress(UnicodeDecodeError):
            found = get_netrc_auth(f"https://{where[1]}")
        if found is not None and user in (None, found[0]):
            return _basic(found[0], found[1] or "")
        return _basic(user, "") if user is not None else None


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
