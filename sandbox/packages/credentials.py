"""Credentials of package indexes: from their URLs, netrc files and the keyring. They are sent to their own index only."""

from __future__ import annotations

import base64
import contextlib
import netrc
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from autogen_codeact.sandbox.packages.pip_config import home_folder
from autogen_codeact.sandbox.types.filenames import printable

MAX_SHOWN = 300
Origin = tuple[str, str, int | None]


def origin(url: str) -> Origin:
    """Return scheme, host and port of a URL."""
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or {"http": 80, "https": 443}.get(split.scheme)


def without_user(url: str) -> str:
    """Return a URL without a user and a password."""
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()


def shown(url: str) -> str:
    """Return what messages may show of a URL: neither its user nor its query, and not more than `MAX_SHOWN` characters."""
    text = printable(urlsplit(without_user(url))._replace(query="", fragment="").geturl())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class Credentials:
    """Finds the credentials for a URL.

    Args:
        urls: The configured URLs; some have a user and perhaps a password.
        use_keyring: Whether the package `keyring` may be asked, if it is installed.
    """

    def __init__(self, urls: Iterable[str], *, use_keyring: bool) -> None:
        self._from_urls: dict[Origin, tuple[str, str | None]] = {}
        for url in urls:
            split = urlsplit(url)
            if split.username:
                self._from_urls.setdefault(origin(url), _user(split))
        self._use_keyring = use_keyring
        self._known: dict[Origin, str | None] = {}

    def header(self, url: str) -> str | None:
        """Return the value of the header `Authorization` for a URL, or None; it may block.

        Args:
            url: Where the request goes.
        """
        where = origin(url)
        if where not in self._known:
            self._known[where] = self._find(where)
        return self._known[where]

    def _find(self, where: Origin) -> str | None:
        user, password = self._from_urls.get(where, (None, None))
        if user is not None and password is not None:
            return _basic(user, password)
        found = _from_netrc(where[1], user)
        if found is None and self._use_keyring:
            found = _from_keyring(where, user)
        if found is not None:
            return _basic(*found)
        return _basic(user, "") if user is not None else None


def _user(split: SplitResult) -> tuple[str, str | None]:
    return unquote(split.username or ""), None if split.password is None else unquote(split.password)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _from_netrc(host: str, user: str | None) -> tuple[str, str] | None:
    named = os.environ.get("NETRC")
    home = home_folder(os.environ)
    files = [Path(named)] if named else [home / ".netrc", home / "_netrc"] if home is not None else []
    for file in files:
        with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            found = netrc.netrc(file).authenticators(host)
            if found is not None and user in (None, found[0]):
                return found[0], found[2] or ""
    return None


def _from_keyring(where: Origin, user: str | None) -> tuple[str, str] | None:
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - rarely installed
    except ImportError:
        return None
    scheme, host, port = where
    is_usual = port == {"http": 80, "https": 443}.get(scheme)
    for service in (f"{scheme}://{host}" + ("" if is_usual else f":{port}"), host if is_usual else f"{host}:{port}"):
        try:
            found = keyring.get_credential(service, user)
        except Exception:  # noqa: BLE001 - a backend may fail in any way; pip goes on without it, too
            return None
        if found is not None:
            return found.username, found.password
    return None
