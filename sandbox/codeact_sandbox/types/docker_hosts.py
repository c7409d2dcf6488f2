"""Addresses of Docker engines with their TLS files; nothing here is slow to import."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

SCHEMES = ("unix", "tcp", "http", "https", "ssh", "npipe")
WITH_TLS = ("tcp", "https")
EXAMPLES = "unix:///var/run/docker.sock or tcp://host:2376"
MAX_HOSTS = 1000


def _absolute(value: Any) -> Any:
    return os.path.abspath(os.path.expanduser(value)) if isinstance(value, str | os.PathLike) else value


FilePath = Annotated[str | None, BeforeValidator(_absolute)]


class DockerTLS(BaseModel):
    """The TLS files of one engine. Only their paths are kept; they are read when a connection is made.

    Args:
        ca: Certificate of the authority that has signed the engine's. By default the authorities that this machine trusts.
        cert: Certificate of this client.
        key: Its private key.
        verify: Whether the engine's certificate and name are checked. Default True.

    Raises:
        ValueError: There is a certificate without a key, or a key without a certificate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    ca: FilePath = None
    cert: FilePath = None
    key: FilePath = None
    verify: bool = True

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("the TLS files of an engine are cert and key together, with or without ca")
        return self


def _in_folder(value: Any) -> Any:
    """Return the files of a folder as the `docker` command has it."""
    if not isinstance(value, str | os.PathLike):
        return value
    return {name: str(Path(value, f"{name}.pem")) for name in ("ca", "cert", "key")}


class DockerHost(BaseModel):
    """A Docker engine.

    No environment variable (`DOCKER_HOST`, `DOCKER_TLS_VERIFY`, …) and no Docker context has any influence on it.

    Args:
        url: Its address, such as `unix:///var/run/docker.sock` or `tcp://host:2376`.
        tls: Its TLS files, or the folder with ca.pem, cert.pem and key.pem. By default none: the connection is not encrypted.
        capacity: Most sandboxes of this process that it has at the same time. By default any number.
        name: Its name in messages, logs and results. By default its address without a user and password.

    Raises:
        ValueError: A value is invalid; the message says which.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            tls: DockerTLS | str | os.PathLike[str] | None = None,
            capacity: int | None = None,
            name: str | None = None,
        ) -> None: ...

    url: Annotated[str, Field(repr=False)]
    tls: Annotated[DockerTLS | None, BeforeValidator(_in_folder)] = None
    capacity: Annotated[int, Field(ge=1)] | None = None
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        parts = _split(self.url)
        if self.tls is not None and parts.scheme not in WITH_TLS:
            raise ValueError(f"the engine {self.label} has TLS files, and only tcp:// addresses have TLS")
        if self.name is not None and not self.name.isprintable():
            raise ValueError("the name of an engine must be printable")
        return self

    @property
    def label(self) -> str:
        """Its name, or its address without a user and password."""
        return self.name or public_address(self.url)

    @property
    def address(self) -> tuple[str, DockerTLS | None]:
        """What identifies the engine: two hosts with the same address are one engine."""
        return self.url, self.tls


EngineAddress = DockerHost | str | None
"""An engine: a host with its TLS files, an address to which `DOCKER_*` variables apply, or None for what `docker` would use."""


def _split(url: str) -> SplitResult:
    """Return the parts of an engine's address, or raise a ValueError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    local = parts.scheme in ("unix", "npipe")
    if not url.isprintable() or parts.scheme not in SCHEMES or not (parts.path if local else parts.hostname):
        raise ValueError(f"the address of a Docker engine must look like {EXAMPLES}")
    if parts.scheme in WITH_TLS and port is None:
        raise ValueError(f"the address of the Docker engine at {parts.hostname} has no port: give tcp://host:2376")
    return parts


def public_address(url: str) -> str:
    """Return an engine's address as it may be shown: without a user and password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def name_of(engine: EngineAddress) -> str | None:
    """Return what an engine is called in results and messages; None for the one that the `docker` command uses."""
    if isinstance(engine, DockerHost):
        return engine.label
    return public_address(engine) if engine else None


def parse_hosts(value: Any) -> tuple[DockerHost, ...]:
    """Return the engines of a set."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping | DockerHost) or not isinstance(value, Iterable):
        raise TypeError(
            'hosts must be a list of addresses or DockerHost(...), such as ["tcp://a:2376", "tcp://b:2376"]'
        )
    hosts = tuple(_parse_host(each) for each in value)
    if len(hosts) > MAX_HOSTS:
        raise ValueError(f"hosts has more than {MAX_HOSTS} engines")
    for what, found in (("name", [host.label for host in hosts]), ("address", [host.url for host in hosts])):
        double = next((each for each in found if found.count(each) > 1), None)
        if double is not None:
            shown = public_address(double) if what == "address" else double
            raise ValueError(f"two engines of hosts have the {what} {shown!r}: each needs its own")
    return hosts


def _parse_host(value: Any) -> DockerHost:
    if isinstance(value, DockerHost):
        return value
    if not isinstance(value, str | Mapping):
        raise TypeError(f"an engine of hosts is an address or DockerHost(...), not {type(value).__name__}")
    try:
        return DockerHost(url=value) if isinstance(value, str) else DockerHost.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors()[0]
        own = first["type"] == "value_error"
        place = ".".join(map(str, first["loc"]))
        raise ValueError(str(first["ctx"]["error"]) if own else f"hosts: {place}: {first['msg']}") from None


SerializedHosts = PlainSerializer(lambda hosts: [host.model_dump(mode="json", exclude_defaults=True) for host in hosts])
"""Engines as a config has them: only what differs from the defaults."""
