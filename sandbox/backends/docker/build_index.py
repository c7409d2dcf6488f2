"""The package index of a build: what the host's pip is configured for, without anything that must stay secret.

What a build step is given can be read in the image's history, so no password is given to one. Proxies are: the engine keeps its
predefined proxy arguments out of the history.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from autogen_codeact.sandbox.packages.credentials import shown, without_user
from autogen_codeact.sandbox.packages.pip_config import PipConfig, read_options

ARGUMENTS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT")
"""Arguments that the steps of a build declare."""
CERTIFICATES = "/usr/share/autogen-codeact/index-ca.pem"
"""Where the certificates of authorities are during a build."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@dataclass(frozen=True)
class BuildIndex:
    """Settings of pip for a build.

    Args:
        arguments: Build arguments, without passwords except in those for proxies.
        certificates: File with certificates of authorities that a build needs, or None.
        kept_back: What a build is not given, as phrases for a message.
    """

    arguments: dict[str, str]
    certificates: Path | None = None
    kept_back: tuple[str, ...] = field(default=())

    @classmethod
    def of_host(cls) -> BuildIndex:
        """Return what the host's pip is configured for; nothing for what pip has built in."""
        options, config = read_options(os.environ), PipConfig.of_host()
        # Only an index that is configured: the image's pip has its own default.
        given = config.indexes if "index-url" in options else ("", *config.indexes[1:])
        index, *extra = given or ("",)
        texts = {
            "PIP_INDEX_URL": _for_build([index]),
            "PIP_EXTRA_INDEX_URL": _for_build(extra),
            "PIP_FIND_LINKS": _for_build(config.find_links),
            "PIP_NO_INDEX": "" if config.indexes else "1",
            "PIP_TRUSTED_HOST": " ".join(config.trusted_hosts),
        }
        certificates = Path(config.cert) if config.cert is not None and Path(config.cert).is_file() else None
        if certificates is not None:
            texts["PIP_CERT"] = CERTIFICATES
        if config.proxy is not None:
            texts |= dict.fromkeys(_PROXIES, config.proxy)
        return cls({name: text for name, text in texts.items() if text}, certificates, tuple(_kept_back(config)))


def _for_build(urls: list[str] | tuple[str, ...]) -> str:
    return " ".join(without_user(url) for url in urls if urlsplit(url).scheme in ("http", "https"))


def _kept_back(config: PipConfig) -> list[str]:
    every = [*config.indexes, *config.find_links]
    found = [f"the password of {shown(url)}" for url in every if "@" in urlsplit(url).netloc]
    found += [f"the folder {shown(url)}" for url in every if urlsplit(url).scheme not in ("http", "https")]
    return [*found, *(["the client certificate"] if config.client_cert is not None else [])]
