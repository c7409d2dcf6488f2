"""Requests to the engine about images: inspect, pull, build. Every function here blocks."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import EngineFailure, classify, engine_errors
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.filenames import printable

if TYPE_CHECKING:
    import docker

Progress = Callable[[str], None]  # called with one line of text, for a user who waits

ANSWER_TIMEOUT_S = 4.0  # seconds for a registry's first reply; after that it counts as unreachable
PULL_STALL_S = 120.0  # seconds without data after which a pull is aborted
BUILD_STALL_S = 600
"""Seconds without output after which a build is aborted: pip is silent while it fetches a large wheel."""
BAD_REQUEST = 400
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_LOG_LINES = 30


def is_about_certificate(log: str) -> bool:
    """Return whether a log reports an untrusted server certificate; pip and apt then also report that the package is missing."""
    return (
        re.search(r"CERTIFICATE_VERIFY_FAILED|certificate verif\w+ failed|confirming the ssl certificate", log, re.I)
        is not None
    )


class Reporter:
    """Passes lines to a `Progress`, details at most once a second, and keeps the last lines of all."""

    def __init__(self, progress: Progress, *, every: float = 1.0) -> None:
        self._progress = progress
        self._every = every
        self._next = 0.0
        self._tail: deque[str] = deque(maxlen=_LOG_LINES)

    def begin(self) -> None:
        """Forget the last lines: those of a step that has ended well say nothing about the one that fails."""
        self._tail.clear()

    def say(self, line: str) -> None:
        """Pass the line on at once."""
        line = printable(line)  # output of package builds
        self._tail.append(line)
        self._next = time.monotonic() + self._every
        self._progress(line)

    def detail(self, line: str) -> None:
        """Pass the line on unless another one was passed on within the last second."""
        if time.monotonic() >= self._next:
            self.say(line)
        else:
            self._tail.append(printable(line))

    @property
    def tail(self) -> str:
        """The last lines, passed on or not."""
        return "\n".join(self._tail)


def find_image(client: docker.APIClient, image: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it does not exist; a ValueError if no image can have that name."""
    import docker.errors

    sdk: Any = client
    try:
        with engine_errors(f"looking for the image {image}"):
            try:
                found: dict[str, Any] = sdk.inspect_image(image)
            except docker.errors.NotFound:
                return None
            except docker.errors.NullResource as error:
                raise ValueError("The name of the image is empty") from error
    except SandboxStartError as error:
        if getattr(error.__cause__, "status_code", None) != BAD_REQUEST:
            raise
        raise ValueError(f"{image!r} is not the name of an image: {error}") from error
    return found


def labels_of(image: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an image."""
    return (image.get("Config") or {}).get("Labels") or {}


def pull(client: docker.APIClient, image: str, *, progress: Progress) -> None:
    """Pull an image, for as long as data arrives and if a registry answers in `ANSWER_TIMEOUT_S` seconds."""
    import requests

    reporter = Reporter(progress)
    reporter.say(f"pulling {image} …")
    answered = False
    try:
        with closing(_request_pull(client, image)) as response:
            if not response.ok:
                raise SandboxUnavailable(pull_advice(image, _message(response.text)))
            for event in _events(response):
                if "error" in event:
                    raise SandboxUnavailable(pull_advice(image, str(event["error"])))
                answered = True
                reporter.detail(f"{image}: {event.get('status', '')} {event.get('progress', '')}".rstrip())
    except requests.RequestException as error:
        if classify(error) is not EngineFailure.NO_ANSWER:
            raise SandboxUnavailable(f"The Docker engine broke off while pulling {image}: {error}") from error
        reason = f"nothing came for {PULL_STALL_S:.0f} s" if answered else f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        raise SandboxUnavailable(pull_advice(image, reason)) from error
    reporter.say(f"pulled {image}")


def pull_advice(image: str, reason: str) -> str:
    """Return the message on why a pull failed and what to do."""
    lowered = reason.lower()
    if any(sign in lowered for sign in ("dial tcp", "no such host", "timeout", "no answer", "proxyconnect", ": eof")):
        return (
            f"The image {image} is not here and no registry answers for it ({reason}). Check the network and proxy of "
            "the Docker engine, bring the image with `docker load`, or use the one that `codeact image build` makes."
        )
    if any(sign in lowered for sign in ("manifest unknown", "not found", "does not exist", "denied", "unauthorized")):
        return f"The registry gives no image {image} ({reason}). Check its name, or `docker login` first."
    return f"The image {image} could not be pulled ({reason}). Try `docker pull {image}`."


def build(
    client: docker.APIClient,
    context: IO[bytes],
    tag: str,
    *,
    reporter: Reporter,
    advise: Callable[[str], str],
    **options: Any,
) -> None:
    """Build an image."""
    import requests

    settings: dict[str, Any] = {"rm": True, "forcerm": True, "timeout": BUILD_STALL_S, **options}
    with engine_errors(f"building {tag}"):
        try:
            for event in client.build(fileobj=context, custom_context=True, tag=tag, decode=True, **settings):
                if "error" in event:
                    reason = str(event["error"]).strip()
                    raise SandboxStartError(
                        f"{tag} could not be built: {reason}\n{advise(reporter.tail + reason)}\n"
                        f"The end of the build log:\n{reporter.tail}"
                    )
                _report(reporter, str(event.get("stream", "")))
        except requests.RequestException as error:
            if classify(error) is not EngineFailure.NO_ANSWER:
                raise
            raise SandboxStartError(
                f"The build of {tag} was cut off: nothing moved for {BUILD_STALL_S} s.\n"
                f"The end of the build log:\n{reporter.tail}"
            ) from error


def _report(reporter: Reporter, text: str) -> None:
    """Report lines of a build's log."""
    for line in filter(None, map(str.rstrip, _COLOR.sub("", text).splitlines())):
        if line.startswith("Step "):
            reporter.begin()
            reporter.say(line)
        elif not re.fullmatch(r" ---> ([0-9a-f]{12,})", line):
            reporter.detail(line)


def remove_nameless(client: docker.APIClient, image_id: str) -> None:
    """Remove an image without a name, unless a container or another image needs it."""
    import docker.errors
    import requests

    sdk: Any = client
    with suppress(docker.errors.DockerException, requests.RequestException):
        if not sdk.inspect_image(image_id)["RepoTags"]:
            sdk.remove_image(image_id)


def build_context(files: Mapping[str, bytes | Path]) -> IO[bytes]:
    """Pack files for a build."""
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644
            entry.size = content.stat().st_size if isinstance(content, Path) else len(content)
            with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as source:
                tar.addfile(entry, source)
    packed.seek(0)
    return packed


def _request_pull(client: docker.APIClient, image: str) -> Any:
    # Not the SDK's own pull, which has no timeout for a registry that never answers.
    import docker.auth
    import docker.utils

    repository, tag = docker.utils.parse_repository_tag(image)
    with engine_errors(f"pulling {image}"):
        registry, _ = docker.auth.resolve_repository_name(repository)
        login = docker.auth.get_config_header(client, registry)
    return client.post(
        f"{client.base_url}/v{client.api_version}/images/create",
        params={"fromImage": repository, "tag": tag or "latest"},
        headers={"X-Registry-Auth": login} if login else {},
        stream=True,
        timeout=(ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S),
    )


def _events(response: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the lines of the response; after the first one, the timeout is `PULL_STALL_S`."""
    first = True
    for line in response.iter_lines():
        if first and response.raw.connection is not None:
            response.raw.connection.sock.settimeout(PULL_STALL_S)
        first = False
        if line.strip():
            yield json.loads(line)


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
