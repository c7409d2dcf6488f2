"""Building the default sandbox image from the files in `docker/`, with or without a registry. Every function here blocks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import engine_errors
from codeact_sandbox.backends.docker.image_requests import (
    LOG_LINES,
    Progress,
    build,
    build_context,
    find_image,
    labels_of,
    pull,
)
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.options import DEFAULT_IMAGE

if TYPE_CHECKING:
    import docker

BASE_IMAGE = "python:3.13-slim"  # pulled if a registry answers
OWN_BASE = "autogen-codeact/base"  # made with debootstrap if none does
CONTENT_LABEL = "org.autogen-codeact.content"
SOURCE = Path(__file__).parents[2] / "docker"
_BASE_FILES = ("install.sh", "packages.txt", "placeholders.txt")
_BUILD_FILES = (*_BASE_FILES, "requirements.txt", "wheels.txt")
_ADVICE = (
    "Packages come from a Debian mirror and from the package index that this machine's pip is configured for: check the network, "
    "or name others in CODEACT_DEBIAN_MIRROR and PIP_INDEX_URL."
)


def content_of_recipe() -> str:
    """Return the label of an image that was built from the present recipe."""
    return _digest("Dockerfile", "build-base.sh", *_BUILD_FILES)


def build_default_image(
    client: docker.APIClient, *, progress: Progress, engine: str | None = None, force: bool = False
) -> str:
    """Build the default sandbox image, unless it exists already with the same content.

    Its wheels come from what the host's pip is configured for: the host fetches them and passes them on to the build.
    """
    # Imported here: programs that build no image must not wait for the libraries of the index.
    from codeact_sandbox.backends.docker.build_index import serve_index  # noqa: PLC0415

    started = time.monotonic()
    content = content_of_recipe()
    there = find_image(client, DEFAULT_IMAGE)
    if there and not force and labels_of(there).get(CONTENT_LABEL) == content:
        progress(f"{DEFAULT_IMAGE} exists already, built from the same files")
        return DEFAULT_IMAGE
    base = _base(client, progress)
    progress(f"building {DEFAULT_IMAGE} on {base} …")
    with (
        build_context({file: SOURCE / file for file in ("Dockerfile", *_BUILD_FILES)}) as context,
        serve_index(base, engine, "bridge", Completion()) as index,  # the network of the engine is for apt
    ):
        arguments = {"BASE": base, "CONTENT": content, "PIP_OPTIONS": " ".join(index.pip_options)}
        if mirror := os.environ.get("CODEACT_DEBIAN_MIRROR"):
            arguments["CODEACT_DEBIAN_MIRROR"] = mirror
        arguments |= index.options.get("buildargs", {})
        options = {**index.options, "buildargs": arguments, "use_config_proxy": True, "nocache": force}
        build(client, context, DEFAULT_IMAGE, progress=progress, advise=partial(index.advise, _ADVICE), **options)
    size = int((find_image(client, DEFAULT_IMAGE) or {}).get("Size", 0)) / 1e6
    progress(f"{DEFAULT_IMAGE} built in {time.monotonic() - started:.0f} s ({size:.0f} MB)")
    return DEFAULT_IMAGE


def _base(client: docker.APIClient, progress: Progress) -> str:
    """Return the image that the default one is built on: an existing one, else pulled, else made on this machine."""
    own = f"{OWN_BASE}:{_digest('build-base.sh', *_BASE_FILES)[:16]}"
    for image in (BASE_IMAGE, own):
        if find_image(client, image):
            return image
    try:
        pull(client, BASE_IMAGE, progress=progress)
    except SandboxUnavailable as error:
        progress(f"{error} Making the base with debootstrap instead; this takes a minute or two …")
        _bootstrap(client, own, progress)
        return own
    return BASE_IMAGE


def _bootstrap(client: docker.APIClient, tag: str, progress: Progress) -> None:
    """Run the script, whose log is its standard error, and import the tar that it writes."""
    sdk: Any = client
    repository, _, version = tag.partition(":")
    command = ["/bin/sh", str(SOURCE / "build-base.sh")]
    log: deque[str] = deque(maxlen=LOG_LINES)
    with tempfile.TemporaryFile() as tar:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=tar, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as script:
            assert script.stderr is not None
            for line in filter(str.strip, script.stderr):
                log.append(printable(line.strip()))
                if line.startswith("build-base:"):
                    progress(log[-1])
        if script.returncode:
            raise SandboxStartError(f"Making the base failed. {_ADVICE}\nThe end of its log:\n" + "\n".join(log))
        tar.seek(0)
        with engine_errors(f"importing {tag}"):
            answer = sdk.import_image_from_stream(iter(lambda: tar.read(1 << 18), b""), repository, version)
    if not find_image(client, tag):
        raise SandboxStartError(f"The Docker engine did not take the base image: {answer.strip()}")


def _digest(*names: str) -> str:
    together = hashlib.sha256()
    for name in sorted(names):
        content = (SOURCE / name).read_bytes()
        together.update(f"{name} {len(content)}\n".encode() + content)
    return together.hexdigest()
