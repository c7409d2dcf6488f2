"""Connecting to a Docker engine and, where none answers, saying why and what to do. Every function here blocks."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import contextlib
import enum
import errno
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable

if TYPE_CHECKING:
    import docker

REQUEST_TIMEOUT = 60  # seconds for one request of a connected client: creating a container on a busy machine takes long

_START = (
    "Start it with `sudo systemctl start docker`, or start Docker Desktop; if the engine is elsewhere, set DOCKER_HOST or run "
    "`docker context use NAME`. On Linux, bubblewrap can be used instead."
)

_memories: dict[str, int] = {}
"""Memory in bytes of the machines of engines, by the engine's name; 0 where it does not say."""


class EngineFailure(enum.Enum):
    """Why no engine answers: what is wrong, and what to do about it; `{engine}` is the engine's address."""

    NO_SOCKET = "No Docker engine at {engine}: there is no such socket. " + _START
    REFUSED = "No Docker engine at {engine}: nothing listens there. " + _START
    NO_PERMISSION = (
        "No permission to use the Docker engine at {engine}. "
        "Add yourself to its group with `sudo usermod -aG docker $USER` and log in again, or use rootless Docker."
    )
    BAD_ADDRESS = (
        "{engine} is not the address of a Docker engine ({error}). "
        "Correct DOCKER_HOST, docker_host or the Docker context: an address looks like unix:///var/run/docker.sock or "
        "tcp://host:2376."
    )
    UNREACHABLE = (
        "The machine of the Docker engine at {engine} can't be reached ({error}). Check DOCKER_HOST and the network."
    )
    NO_ANSWER = (
        "The Docker engine at {engine} does not answer in time. "
        "It may hang: restart it (`sudo systemctl restart docker`, or restart Docker Desktop)."
    )
    TLS = (
        "No TLS connection to the Docker engine at {engine} ({error}). "
        "Check DOCKER_TLS_VERIFY and that DOCKER_CERT_PATH holds ca.pem, cert.pem and key.pem."
    )
    NOT_DOCKER = (
        "What answers at {engine} does not speak as a Docker engine ({error}). "
        "Is Docker still starting? Else check DOCKER_HOST; a port with TLS needs DOCKER_TLS_VERIFY=1."
    )
    OTHER = "The Docker engine at {engine} can't be used: {error}. Does `docker version` work?"


def connect(engine: str | None = None, *, timeout: float = 5.0) -> docker.APIClient:
    """Connect to a Docker engine, for its own API version; raise `SandboxUnavailable` if it does not answer in `timeout` seconds.

    An address has the TLS files of DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. By default it is what the `docker` command would
    use: DOCKER_HOST with these, else the current context, else the platform's socket.
    """
    import docker
    import docker.constants

    where = _endpoint(engine)
    client = None
    try:
        # With "auto" the constructor itself sends a request, and leaves nothing to close if it fails.
        client = docker.APIClient(**where, version=docker.constants.MINIMUM_DOCKER_API_VERSION, timeout=REQUEST_TIMEOUT)
        vars(client)["_version"] = _ask_version(client, timeout * 0.9)
    except Exception as error:
        if client is not None:
            client.close()
        raise SandboxUnavailable(advice(classify(error), where.get("base_url"), error)) from error
    return client


def _ask_version(client: docker.APIClient, timeout: float) -> str:
    """Return the engine's API version. Unlike `/version`, `/_ping` makes the engine start no programs."""
    import docker.errors
    import docker.utils
    import requests

    with contextlib.closing(client.get(f"{client.base_url}/_ping", timeout=timeout, stream=True)) as answer:
        try:
            answer.raise_for_status()
        except requests.HTTPError as error:
            docker.errors.create_api_error_from_http_exception(error)
        if not answer.content:
            raise ConnectionResetError("it answers nothing")
        version = str(answer.headers["Api-Version"])
        vars(client)["is_podman"] = "Libpod-Api-Version" in answer.headers
    return version


def is_local(client: docker.APIClient) -> bool:
    """Return whether a client reaches its engine through a socket of this machine, so that both have the same files."""
    return client.base_url == "http+docker://localhost"


def is_podman(client: docker.APIClient) -> bool:
    """Return whether a connected client's engine is Podman."""
    return bool(vars(client)["is_podman"])


def memory_of(client: docker.APIClient, engine: str) -> int | None:
    """Return the memory of an engine's machine in bytes; None for this machine. Each engine is asked once."""
    if is_local(client) and sys.platform == "linux":
        return None
    if engine not in _memories:
        with engine_errors("asking the engine for its memory"):
            _memories[engine] = int(client.info().get("MemTotal") or 0)
    return _memories[engine] or None


@contextlib.contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Convert exceptions of the Docker SDK to those of this package."""
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        raise SandboxStartError(f"The Docker engine refused while {doing}: {error.explanation or error}") from error
    except (requests.RequestException, docker.errors.DockerException) as error:
        raise SandboxUnavailable(f"While {doing}: {advice(classify(error), 'the address in use', error)}") from error


def classify(error: BaseException) -> EngineFailure:
    """Return which failure an exception stands for, from the exception and everything that it wraps."""
    inside = list(_unwrap(error))
    numbers = {each.errno for each in inside if isinstance(each, OSError)}
    names = {cls.__name__ for each in inside for cls in type(each).__mro__}
    matching = (failure for failure, its_numbers, its_names in _SIGNS if numbers & its_numbers or names & its_names)
    return next(matching, EngineFailure.OTHER)


def advice(failure: EngineFailure, engine: str | None, error: BaseException) -> str:
    """Return a sentence or two on what is wrong with an engine and what to do about it."""
    return failure.value.format(engine=engine or "the default socket", error=error)


def _endpoint(engine: str | None) -> dict[str, Any]:
    """Return the keyword arguments of `APIClient` for an engine's address, or for what the `docker` command would use."""
    import docker.utils

    address = engine or os.environ.get("DOCKER_HOST")
    try:
        if address:
            where: dict[str, Any] = {**docker.utils.kwargs_from_env(environment={**os.environ, "DOCKER_HOST": address})}
        else:
            where = _context_endpoint()
        # Raises on an address that the SDK can't read.
        docker.utils.parse_host(where.get("base_url"), tls=bool(where.get("tls")))
    except SandboxUnavailable:
        raise
    except Exception as error:  # the SDK raises a bare Exception for a context file that it can't read
        failure = classify(error)
        known = failure if failure is EngineFailure.TLS else EngineFailure.BAD_ADDRESS
        raise SandboxUnavailable(advice(known, address or "The current Docker context", error)) from error
    if str(where.get("base_url")).startswith("ssh://"):
        where["use_ssh_client"] = True
    return where


def _context_endpoint() -> dict[str, Any]:
    from docker.context import ContextAPI

    name = os.environ.get("DOCKER_CONTEXT")
    context: Any = ContextAPI.get_context(name)
    if context is None:
        raise SandboxUnavailable(
            f"The Docker context {name or 'in use'} does not exist. "
            "See `docker context ls`, then `docker context use default` or another one."
        )
    where: dict[str, Any] = {"base_url": context.Host}
    if context.TLSConfig is not None:
        where["tls"] = context.TLSConfig
    return where


def _unwrap(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the exception and all that it wraps: causes, contexts, arguments, and urllib3's `reason`."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            inner = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
            waiting += [each for each in inner if isinstance(each, BaseException)]


# The failure, error numbers of OSError, and names of classes: by name, so that requests, urllib3 and docker need not be imported.
_SIGNS: tuple[tuple[EngineFailure, set[int], set[str]], ...] = (
    (EngineFailure.TLS, set(), {"SSLError", "TLSParameterError"}),
    (EngineFailure.NO_PERMISSION, {errno.EACCES, errno.EPERM}, set()),
    (EngineFailure.NO_SOCKET, {errno.ENOENT, errno.ENOTDIR}, set()),
    (EngineFailure.REFUSED, {errno.ECONNREFUSED, errno.ENOTSOCK}, set()),
    (EngineFailure.UNREACHABLE, {errno.EHOSTUNREACH, errno.ENETUNREACH}, {"gaierror"}),
    # Before the names of timeouts, which are bases of urllib3's errors for any connection that could not be made.
    (EngineFailure.NOT_DOCKER, {errno.ECONNRESET, errno.EPIPE}, set()),
    (EngineFailure.NO_ANSWER, set(), {"TimeoutError", "Timeout"}),
    (EngineFailure.BAD_ADDRESS, set(), {"InvalidURL", "InvalidSchema"}),
    (EngineFailure.NOT_DOCKER, set(), {"HTTPException", "ProtocolError", "JSONDecodeError", "APIError", "KeyError"}),
)
