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

from codeact_sandbox.backends.docker.image_requests import (
    Progress,
    build,
    build_context,
    find_image,
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
_ADVICE = (
    "Check the names and versions of the packages (what a local wheel needs must be given too) and this machine's package index, "
    "or give paths of local .whl files."
)
_PIP = ["python3", "-m", "pip", "install", "--no-cache-dir"]

_building = threading.Lock()


@dataclass(frozen=True)
class Packages:
    """What a derived image has in addition to its base."""

    requirements: tuple[str, ...]  # fetched by pip from an index; PEP 508
    wheels: tuple[Path, ...]  # local files


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
    if not packages:
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


def _find(client: docker.APIClient, image: str, progress: Progress) -> str:
    if find_image(client, image):
        return image
    if image == DEFAULT_IMAGE:
        progress(
            f"{image} not found; using {FALLBACK_IMAGE} instead: no numpy, pandas, scipy, sympy, matplotlib. "
            "Run `codeact image build` for the full image"
        )
        return _find(client, FALLBACK_IMAGE, progress)
    if image.startswith("autogen-codeact/"):
        # Never pulled: whoever owned that name in a public registry would give us the image.
        raise SandboxUnavailable(f"There is no image {image} here: leave `image` out, or bring it with `docker load`.")
    pull(client, image, progress=progress)
    return image


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
    with _building:
        if not find_image(client, tag):
            names = [*packages.requirements, *(wheel.name for wheel in packages.wheels)]
            progress(f"building {tag} with {', '.join(names)} (once) …")
            with _served(found["Id"], packages, engine, cancelled) as index:
                files: dict[str, bytes | Path] = {f"wheels/{wheel.name}": wheel for wheel in packages.wheels}
                files["Dockerfile"] = _dockerfile(found, packages, index.pip_options).encode()
                with build_context(files) as context:
                    build(
                        client, context, tag, progress=progress, advise=partial(index.advise, _ADVICE), **index.options
                    )
            progress(f"built {tag}")
    return tag


def _served(
    base: str, packages: Packages, engine: str | None, cancelled: Future[None]
) -> AbstractContextManager[BuildIndex]:
    # Imported here: programs that need no packages must not wait for the libraries of the index.
    from codeact_sandbox.backends.docker.build_index import BuildIndex, serve_index  # noqa: PLC0415

    if not packages.requirements:
        return nullcontext(BuildIndex({"network_mode": "none"}))
    has_url = any("://" in requirement for requirement in packages.requirements)  # which pip fetches itself
    return serve_index(base, engine, "bridge" if has_url else "none", cancelled)


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
    path = Path(entry).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"There is no wheel {entry}")
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
