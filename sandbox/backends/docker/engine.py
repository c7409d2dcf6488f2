"""Connecting to a Docker engine and, where none answers, saying why and what to do. Every function here blocks."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import enum
import errno
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autogen_codeact.sandbox.errors import SandboxStartError, SandboxUnavailable

if TYPE_CHECKING:
    import docker

REQUEST_TIMEOUT = 60
"""Seconds for one request of a connected client: creating a container on a busy machine takes long."""


class EngineFailure(enum.Enum):
    """Why no engine answers."""

    NO_SOCKET = "no socket"
    REFUSED = "refused"
    NO_PERMISSION = "no permission"
    BAD_ADDRESS = "bad address"
    UNREACHABLE = "unreachable"
    NO_ANSWER = "no answer"
    TLS = "TLS"
    NOT_DOCKER = "not Docker"
    OTHER = "other"


def connect(docker_host: str | None = None, *, timeout: float = 5.0) -> docker.APIClient:
    """Connect to the Docker engine and check that it answers.

    Args:
        docker_host: Address of the engine, such as `unix:///var/run/docker.sock` or `tcp://host:2376`. By default what
            the `docker` command would use: DOCKER_HOST, else the current Docker context, else the platform's socket.
            DOCKER_TLS_VERIFY and DOCKER_CERT_PATH apply to an address that is given here or in DOCKER_HOST.
        timeout: Seconds within which the engine answers or this function raises (default 5).

    Returns:
        A client for the engine's own API version; each of its requests may take `REQUEST_TIMEOUT` seconds.

    Raises:
        SandboxUnavailable: No engine answers; the message says why and what to do.
    """
    where = _endpoint(docker_host)
    host = where.get("base_url") or "the default socket"
    try:
        version = _in_time(lambda: _api_version(where, timeout * 0.8), timeout * 0.9)
    except Exception as error:
        raise SandboxUnavailable(advice(classify(error), host, error)) from error
    return _client(**where, version=version, timeout=REQUEST_TIMEOUT)


def check_socket(client: docker.APIClient) -> None:
    """Check that a local engine's socket accepts connections. Without it the SDK leaves its own socket open.

    Args:
        client: A client that was connected before.

    Raises:
        OSError: It does not.
    """
    path = getattr(getattr(client, "_custom_adapter", None), "socket_path", None)
    if path is not None and hasattr(socket, "AF_UNIX"):
        _try_socket(str(path), client.timeout)


def _try_socket(path: str, timeout: float) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(timeout)
        attempt.connect(path)


def is_local(client: docker.APIClient) -> bool:
    """Return whether a client reaches its engine through a socket of this machine, so that both have the same files."""
    return client.base_url == "http+docker://localhost"


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Convert exceptions of the Docker SDK to those of this package.

    Args:
        doing: The operation, for the message ("starting the container").

    Raises:
        SandboxUnavailable: The engine stopped answering.
        SandboxStartError: The engine answered and refused.
    """
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        raise SandboxStartError(f"The Docker engine refused while {doing}: {error.explanation or error}") from error
    except (requests.RequestException, docker.errors.DockerException) as error:
        raise SandboxUnavailable(f"While {doing}: {advice(classify(error), 'the address in use', error)}") from error


def classify(error: BaseException) -> EngineFailure:
    """Return which failure an exception stands for, from the exception and everything that it wraps.

    Args:
        error: Exception of a socket, requests or the Docker SDK.

    Returns:
        The failure; `OTHER` if it is unknown.
    """
    inside = list(_unwrap(error))
    numbers = {each.errno for each in inside if isinstance(each, OSError)}
    names = {cls.__name__ for each in inside for cls in type(each).__mro__}
    matching = (failure for failure, its_numbers, its_names in _SIGNS if numbers & its_numbers or names & its_names)
    return next(matching, EngineFailure.OTHER)


def advice(failure: EngineFailure, host: str, error: BaseException, *, platform: str = sys.platform) -> str:
    """Return a sentence or two on what is wrong and what to do about it.

    Args:
        failure: The result of `classify`.
        host: The engine's address, as the user wrote it.
        error: The exception, whose text is quoted where it helps.
        platform: Name of the platform as `sys.platform` has it (default: this one).

    Returns:
        The text for a `SandboxUnavailable`.
    """
    start = {
        "linux": "Start it with `sudo systemctl start docker` (or `make engine`, or start Docker Desktop)",
        "darwin": "Start Docker Desktop (or `colima start`)",
        "win32": "Start Docker Desktop",
    }.get(platform, "Start Docker")
    elsewhere = "if the engine is elsewhere, set DOCKER_HOST or run `docker context use NAME`"
    return {
        EngineFailure.NO_SOCKET: f"No Docker engine at {host}: there is no such socket. {start}; {elsewhere}.",
        EngineFailure.REFUSED: f"No Docker engine at {host}: nothing listens there. {start}; {elsewhere}.",
        EngineFailure.NO_PERMISSION: f"No permission to use the Docker engine at {host}. Add yourself to its group "
        "with `sudo usermod -aG docker $USER` and log in again, or use rootless Docker.",
        EngineFailure.BAD_ADDRESS: f"{host} is not the address of a Docker engine ({error}). Correct DOCKER_HOST, "
        "docker_host or the Docker context: an address looks like unix:///var/run/docker.sock or tcp://host:2376.",
        EngineFailure.UNREACHABLE: f"The Docker engine's machine at {host} can't be reached ({error}). "
        "Check DOCKER_HOST and the network.",
        EngineFailure.NO_ANSWER: f"The Docker engine at {host} accepts but does not answer in time. It may hang: "
        "restart it (`sudo systemctl restart docker`, or restart Docker Desktop).",
        EngineFailure.TLS: f"No TLS connection to the Docker engine at {host} ({error}). Check DOCKER_TLS_VERIFY and "
        "that DOCKER_CERT_PATH holds ca.pem, cert.pem and key.pem.",
        EngineFailure.NOT_DOCKER: f"What answers at {host} does not speak as a Docker engine ({error}). "
        "Is Docker still starting? Else check DOCKER_HOST; a port with TLS needs DOCKER_TLS_VERIFY=1.",
        EngineFailure.OTHER: f"The Docker engine at {host} can't be used: {error}. Does `docker version` work?",
    }[failure]


def _endpoint(docker_host: str | None) -> dict[str, Any]:
    """Return the keyword arguments of `APIClient` for the engine's address."""
    import docker.utils

    named = docker_host or os.environ.get("DOCKER_HOST")
    try:
        if named:
            where: dict[str, Any] = {**docker.utils.kwargs_from_env(environment={**os.environ, "DOCKER_HOST": named})}
        else:
            where = _context_endpoint()
        _sdk_address(where)
    except SandboxUnavailable:
        raise
    except Exception as error:  # the SDK raises a bare Exception for a context file that it can't read
        failure = classify(error)
        known = failure if failure is EngineFailure.TLS else EngineFailure.BAD_ADDRESS
        raise SandboxUnavailable(advice(known, named or "The current Docker context", error)) from error
    if str(where.get("base_url")).startswith("ssh://"):
        where["use_ssh_client"] = True
    return where


def _sdk_address(where: dict[str, Any]) -> str:
    """Return the address as the SDK writes it (`http+unix://…`, `https://…`); raises on one that it can't read."""
    import docker.utils

    return str(docker.utils.parse_host(where.get("base_url"), sys.platform == "win32", tls=bool(where.get("tls"))))


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


def _client(**options: Any) -> docker.APIClient:
    import docker

    class Client(docker.APIClient):
        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            # requests would use the bundle of REQUESTS_CA_BUNDLE instead of the authority in DOCKER_CERT_PATH.
            own = self.verify if verify is None else verify
            return super().merge_environment_settings(url, proxies, stream, own, cert)

    return Client(**options)


def _api_version(where: dict[str, Any], timeout: float) -> str:
    """Return the engine's API version, which at the same time shows that it answers."""
    import docker.constants

    address = _sdk_address(where)
    if address.startswith("http+unix://"):
        # First without the SDK, which leaves a socket open when its connect fails.
        _try_socket("/" + address.removeprefix("http+unix://").lstrip("/"), timeout)
    # A fixed version for now: with "auto", the constructor itself sends a request and leaves nothing to close when it fails.
    options: dict[str, Any] = {**where, "version": docker.constants.MINIMUM_DOCKER_API_VERSION, "timeout": timeout}
    client = _client(**options)
    try:
        answer: dict[str, Any] = client.version(api_version=False)
        return str(answer["ApiVersion"])
    finally:
        client.close()


def _in_time(work: Callable[[], str], seconds: float) -> str:
    """Run `work` in a thread; a name server, or an engine that sends byte after byte, exceeds no timeout of a socket."""
    # Not a Future, which would keep the error, and with it the SDK's sockets, in a reference cycle.
    outcomes: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - passed to the caller, whatever it is
            outcomes.put(("", error))

    threading.Thread(target=run, name="docker-probe", daemon=True).start()
    try:
        version, error = outcomes.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:.1f} s") from None
    if error is not None:
        raise error
    return version


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
    (EngineFailure.NO_ANSWER, set(), {"TimeoutError", "Timeout"}),
    (EngineFailure.BAD_ADDRESS, set(), {"InvalidURL", "InvalidSchema"}),
    (
        EngineFailure.NOT_DOCKER,
        {errno.ECONNRESET, errno.EPIPE},
        {"HTTPException", "ProtocolError", "JSONDecodeError", "APIError", "KeyError"},
    ),
)
