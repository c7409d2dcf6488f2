"""What the host's pip is configured for: its indexes, and how they are reached."""

from __future__ import annotations

import configparser
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger("codeact_sandbox")

SYSTEM_FILE = Path("/etc/pip.conf")


@dataclass(frozen=True)
class PipConfig:
    indexes: tuple[str, ...] = ()  # URLs of indexes in the simple layout
    trusted_hosts: tuple[str, ...] = ()  # hosts, with or without a port, whose certificates are not checked
    cert: str | None = None  # path of a file or folder with certificates of authorities, or None for the usual ones
    client_cert: str | None = None  # path of a client certificate and its key, or None
    proxy: str | None = None  # URL of a proxy, or None for those of the environment

    @classmethod
    def of_host(cls, environment: Mapping[str, str] | None = None) -> PipConfig:
        """Read the configuration as the host's pip does: its files, then its environment variables."""
        environment = os.environ if environment is None else environment
        options = read_options(environment)
        index = options.get("index-url") or _default_index()
        indexes = (*([index] if index else ()), *options.get("extra-index-url", "").split())
        return cls(
            indexes=tuple(each for each in dict.fromkeys(indexes) if "://" in each),
            trusted_hosts=tuple(options.get("trusted-host", "").split()),
            cert=_path(
                options.get("cert") or environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
            ),
            client_cert=_path(options.get("client-cert")),
            proxy=options.get("proxy") or None,
        )


def read_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options that pip would use, by their long names; later sources replace earlier ones."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            logger.warning("the configuration of pip in %s can't be read: %s", path, type(error).__name__)
            continue
        for section in sections.keys() & parser.sections():
            sections[section].update({_long_name(name): value for name, value in parser.items(section) if value})
    options = {**sections["global"], **sections["install"]}
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            options[_long_name(name.removeprefix("PIP_"))] = value
    return options


def _long_name(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Return pip's configuration files, the least important first."""
    only = environment.get("PIP_CONFIG_FILE")
    if only == os.devnull:
        return
    yield Path("/etc/xdg/pip/pip.conf")
    yield SYSTEM_FILE
    if settings := environment.get("XDG_CONFIG_HOME") or environment.get("HOME"):
        yield Path(settings) / ("pip/pip.conf" if "XDG_CONFIG_HOME" in environment else ".config/pip/pip.conf")
    yield Path(sys.prefix) / "pip.conf"
    if only:
        yield Path(only)


def _path(text: str | None) -> str | None:
    return str(Path(text).expanduser()) if text else None


def _default_index() -> str | None:
    """Return the index that pip uses if none is configured; only pip itself knows it."""
    try:
        from pip._internal.models.index import PyPI  # noqa: PLC0415 - the host's environment may have no pip
    except ImportError:
        return None
    found = getattr(PyPI, "simple_url", None)
    return found if isinstance(found, str) else None
