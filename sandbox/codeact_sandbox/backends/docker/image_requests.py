"""Requests to the engine about images: inspect, pull, build. Every function here blocks."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import engine_errors
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.filenames import printable

if TYPE_CHECKING:
    import docker

Progress = Callable[[str], None]  # called with one line of text, for a user who waits

PULL_STALL_S = 120.0  # seconds without data after which a pull is aborted
BUILD_STALL_S = 600
"""Seconds without output after which a build is aborted: pip is silent while it fetches a large wheel."""
BAD_REQUEST = 400
_COLOR = re.compile(r"\x1b\[[\d;]*m")
LOG_LINES = 30


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
    return (image.get("Config") or {}).get("Labels") or {}


def pull(client: docker.APIClient, image: str, *, progress: Progress) -> None:
    """Pull an image, for as long as data arrives."""
    import requests

    progress(f"pulling {image} …")
    try:
        with closing(_request_pull(client, image)) as response:
            if not response.ok:
                raise SandboxUnavailable(_not_pulled(image, response.text))
            for line in response.iter_lines():
                event = json.loads(line or "{}")
                if "error" in event:
                    raise SandboxUnavailable(_not_pulled(image, event["error"]))
    except requests.RequestException as error:
        raise SandboxUnavailable(_not_pulled(image, error)) from error
    progress(f"pulled {image}")


def _not_pulled(image: str, reason: object) -> str:
    return (
        f"The image {image} is not here and could not be pulled: {str(reason).strip()}. Check its name, the network of the "
        "Docker engine and `docker login`, bring it with `docker load`, or use the one that `codeact image build` makes."
    )


def build(
    client: docker.APIClient,
    context: IO[bytes],
    tag: str,
    *,
    progress: Progress,
    advise: Callable[[], str],
    **options: Any,
) -> None:
    """Build an image; `advise` returns what to do about a failure."""
    settings: dict[str, Any] = {"rm": True, "forcerm": True, "timeout": BUILD_STALL_S, **options}
    log: deque[str] = deque(maxlen=LOG_LINES)
    with engine_errors(f"building {tag}"):
        for event in client.build(fileobj=context, custom_context=True, tag=tag, decode=True, **settings):
            if "error" in event:
                raise SandboxStartError(
                    f"{tag} could not be built: {str(event['error']).strip()}\n{advise()}\n"
                    "The end of the build log:\n" + "\n".join(log)
                )
            for line in filter(str.strip, _COLOR.sub("", str(event.get("stream", ""))).splitlines()):
                log.append(printable(line.rstrip()))
                if line.startswith("Step "):
                    progress(log[-1])


def build_context(files: Mapping[str, bytes | Path]) -> IO[bytes]:
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
    # Not the SDK's own pull, which has no timeout.
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
        timeout=PULL_STALL_S,
    )
