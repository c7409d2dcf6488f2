"""Images for the Docker sandbox: existing, pulled, or derived with more packages. Every function here blocks."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.default_image import SLIM_IMAGE
from codeact_sandbox.backends.docker.image_requests import (
    Progress,
    Reporter,
    build,
    build_context,
    find_image,
    is_about_certificate,
    pull,
)
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.types.errors import SandboxUnavailable
from codeact_sandbox.types.options import DEFAULT_IMAGE

if TYPE_CHECKING:
    import docker

    from codeact_sandbox.backends.docker.build_index import BuildIndex

FALLBACK_IMAGE = "python:3-slim"  # used if the default image is missing: plain Python, from the public registry
DERIVED = "autogen-codeact/derived"
KIND_LABEL = "org.autogen-codeact.kind"
_WHEELS = "/usr/share/autogen-codeact/wheels"
_CHECK_NAMES = "Check the names and versions of the packages; what a local wheel needs must be given too."
_CHECK_PACKAGES = "Check the packages, or build an image of your own from a Dockerfile and give its name."
_PIP = ["python3", "-m", "pip", "install", "--no-cache-dir"]

_locks: dict[str, threading.Lock] = {}
_locks_guard = threading.Lock()


@dataclass(frozen=True)
class Packages:
    """What a derived image has in addition to its base."""

    requirements: tuple[str, ...]  # fetched by pip from an index; PEP 508
    wheels: tuple[Path, ...]  # local files

    def __bool__(self) -> bool:
        return bool(self.requirements or self.wheels)

    @property
    def names(self) -> list[str]:
        """What a user calls them."""
        return [*self.requirements, *(wheel.name for wheel in self.wheels)]

    @property
    def have_url(self) -> bool:
        """Whether a requirement names a URL, which pip fetches itself."""
        return any("://" in requirement for requirement in self.requirements)


def resolve_image(
    client: docker.APIClient,
    image: str,
    packages: Sequence[str] = (),
    *,
    progress: Progress,
    engine: str | None = None,
    cancelled: Future[None] | None = None,
) -> str:
    """Return an image with these packages; pull or build it if it does not exist.

    Packages are requirements as pip takes them ("sympy", "polars>=1"), or paths of local `.whl` files, which are installed
    without an index. The host fetches the others from what its pip is configured for, and passes them on to the build.
    Instead of a missing `DEFAULT_IMAGE`, `FALLBACK_IMAGE` is used. Complete `cancelled` to let the installation fail early.
    """
    requested = parse_packages(packages)
    found = _find(client, image, progress)
    if not requested:
        return found
    return _derive(client, found, requested, progress=progress, engine=engine, cancelled=cancelled or Completion())


def parse_packages(packages: Sequence[str]) -> Packages:
    """Separate local wheels and requirements."""
    # A requirement may end with the URL of a wheel.
    paths = [entry for entry in packages if entry.endswith(".whl") and "://" not in entry]
    wheels = {_wheel(entry) for entry in paths}
    if len({wheel.name for wheel in wheels}) < len(wheels):
        raise ValueError("Two different wheels have the same file name")
    requirements = {_requirement(entry) for entry in packages if entry not in paths}
    return Packages(tuple(sorted(requirements)), tuple(sorted(wheels, key=lambda wheel: wheel.name)))


def build_advice(index: BuildIndex, log: str) -> str:
    """Return what to do about packages that a build with the host's index could not install."""
    if index.problems:
        return f"This machine fetches the packages for a build. {' '.join(index.problems)} Or give paths of local .whl files."
    if index.log is not None and _is_about_network(log):
        return (
            "Pip gets packages through this machine, and the rest of a build has no network: perhaps the installation of a "
            "source distribution downloads something. Give paths of local .whl files, or build an image of your own from a "
            "Dockerfile and give its name."
        )
    return install_advice(log)


def install_advice(log: str) -> str:
    """Return a sentence or two on what to do about packages that could not be installed."""
    for missing, sign in (("pip", "No module named pip"), ("python3", '"python3": executable file not found')):
        if sign in log:
            return f"The image has no {missing}: use one that has it, such as the default image or python:3-slim."
    if is_about_certificate(log):
        return (
            "The build does not trust the certificate of the server that pip asked, for example because a proxy inspects TLS. "
            "Set PIP_INDEX_URL on this machine, which then fetches the packages itself, use an image that trusts the "
            "certificate, or give local .whl files."
        )
    if _is_about_network(log):
        return (
            "Pip can't reach a server from the build: check the network of the Docker engine, set PIP_INDEX_URL on this "
            "machine, which then fetches the packages itself, or give paths of local .whl files."
        )
    if "No matching distribution" in log:
        return _CHECK_NAMES
    return _CHECK_PACKAGES


def _is_about_network(log: str) -> bool:
    return any(sign in log for sign in ("name resolution", "Connection refused", "timed out", "unreachable"))


def _find(client: docker.APIClient, image: str, progress: Progress) -> str:
    if find_image(client, image):
        return image
    if image == SLIM_IMAGE:
        raise SandboxUnavailable(
            f"The sandbox image {image} is not built yet. Run `codeact image build --variant slim`."
        )
    if image.startswith("autogen-codeact/sandbox:") and image != DEFAULT_IMAGE:
        # Never pulled: whoever owned that name in a public registry would give us the image.
        raise SandboxUnavailable(
            f"There is no image {image} here, and this version builds {DEFAULT_IMAGE} and {SLIM_IMAGE}: leave `image` out, "
            "or bring the image with `docker load`."
        )
    if image != DEFAULT_IMAGE:
        pull(client, image, progress=progress)
        return image
    progress(
        f"{image} not found; using {FALLBACK_IMAGE} instead: no numpy, pandas, scipy, sympy, matplotlib. "
        "Run `codeact image build` for the full image"
    )
    if not find_image(client, FALLBACK_IMAGE):
        try:
            pull(client, FALLBACK_IMAGE, progress=progress)
        except SandboxUnavailable as error:
            raise SandboxUnavailable(
                f"The sandbox image {image} is not built yet, and {FALLBACK_IMAGE} can't be had instead. "
                f"Run `codeact image build` (or `make image` in a checkout). {error}"
            ) from error
    return FALLBACK_IMAGE


def _derive(
    client: docker.APIClient,
    base: str,
    packages: Packages,
    *,
    progress: Progress,
    engine: str | None,
    cancelled: Future[None],
) -> str:
    found = find_image(client, base)
    if found is None:
        raise SandboxUnavailable(f"The image {base} was removed by another program. Try again.")
    tag = _derived_tag(found["Id"], packages)
    with _locks_guard:
        lock = _locks.setdefault(tag, threading.Lock())
    with lock:
        if not find_image(client, tag):
            reporter = Reporter(progress)
            reporter.say(f"building {tag} with {', '.join(packages.names)} (once) …")
            with _served(found["Id"], packages, engine, cancelled) as index:
                files: dict[str, bytes | Path] = {f"wheels/{wheel.name}": wheel for wheel in packages.wheels}
                files["Dockerfile"] = _dockerfile(found, packages, index.pip_options).encode()
                with build_context(files) as context:
                    build(client, context, tag, reporter=reporter, advise=partial(build_advice, index), **index.options)
            reporter.say(f"built {tag}")
    return tag


def _served(
    base: str, packages: Packages, engine: str | None, cancelled: Future[None]
) -> AbstractContextManager[BuildIndex]:
    # Imported here: programs that need no packages must not wait for the libraries of the index.
    from codeact_sandbox.backends.docker.build_index import BuildIndex, serve_index  # noqa: PLC0415

    if not packages.requirements:
        return nullcontext(BuildIndex({"network_mode": "none"}))
    return serve_index(base, engine, "bridge" if packages.have_url else "none", cancelled)


def _dockerfile(base: dict[str, Any], packages: Packages, pip_options: Sequence[str]) -> str:
    """Return the Dockerfile of a derived image. Packages are in lists of arguments, which no shell interprets."""
    user = (base.get("Config") or {}).get("User")
    lines = [
        f"FROM {base['Id']}",
        "USER root",
        # ARG, not ENV: for pip in the build, not in the sandbox.
        "ARG PIP_CONFIG_FILE",
        "ARG PIP_BREAK_SYSTEM_PACKAGES=1",
        "ARG PIP_ROOT_USER_ACTION=ignore",
        "ARG PIP_DISABLE_PIP_VERSION_CHECK=1",
    ]
    if packages.requirements:
        lines.append(f"RUN {json.dumps([*_PIP, *pip_options, '--', *packages.requirements])}")
    if packages.wheels:
        paths = [f"{_WHEELS}/{wheel.name}" for wheel in packages.wheels]
        lines.append(f"COPY wheels/ {_WHEELS}/")
        lines.append(f"RUN {json.dumps([*_PIP, '--no-index', '--find-links', _WHEELS, '--', *paths])}")
    if user:
        lines.append(f"USER {user}")
    lines.append(f'LABEL {KIND_LABEL}="derived-image"')
    return "\n".join(lines) + "\n"


def _derived_tag(base_id: str, packages: Packages) -> str:
    wheels = []
    for wheel in packages.wheels:
        with wheel.open("rb") as file:
            wheels.append([wheel.name, hashlib.file_digest(file, "sha256").hexdigest()])
    content = json.dumps([base_id, packages.requirements, wheels])
    return f"{DERIVED}:{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def _wheel(entry: str) -> Path:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - rarely needed

    path = Path(entry).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"There is no wheel {entry}")
    try:
        parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise ValueError(f"{path.name!r} is not the name of a wheel: {error}") from error
    return path


def _requirement(entry: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - rarely needed

    # The grammar allows a line break in a URL, but a Dockerfile consists of lines.
    if not entry.isprintable():
        raise ValueError(f"{entry!r} is not a package: it contains a line break or another control character")
    try:
        return str(Requirement(entry))
    except InvalidRequirement as error:
        raise ValueError(f"{entry!r} is not a package: give a name such as 'sympy' or 'polars>=1'. {error}") from error
