"""Building the default sandbox image from the files in `docker/`, with or without a registry. Every function here blocks."""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from codeact_sandbox.backends.docker.engine import engine_errors
from codeact_sandbox.backends.docker.image_requests import (
    Progress,
    Reporter,
    build,
    build_context,
    find_image,
    is_about_certificate,
    labels_of,
    pull,
    remove_nameless,
)
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.options import DEFAULT_IMAGE

if TYPE_CHECKING:
    import docker

    from codeact_sandbox.backends.docker.build_index import BuildIndex

SLIM_IMAGE = "autogen-codeact/sandbox:0.2-slim"  # Python and pip, without libraries
Variant = Literal["default", "slim"]
BASE_IMAGE = "python:3.13-slim"  # pulled if a registry answers
OWN_BASE = "autogen-codeact/base"  # made with debootstrap if none does
CONTENT_LABEL = "org.autogen-codeact.content"
SOURCE = Path(__file__).parents[2] / "docker"
_BASE_FILES = ("install.sh", "packages.txt", "packages-slim.txt", "placeholders.txt")
_BUILD_FILES = (*_BASE_FILES, "requirements.txt", "wheels.txt")
_SCRIPT_STALL_S = 180.0


def image_name(variant: Variant) -> str:
    """Return the name of the image that `build_default_image` makes."""
    return DEFAULT_IMAGE if variant == "default" else SLIM_IMAGE


def content_of_recipe() -> str:
    """Return the label of an image that was built from the present recipe."""
    return _digest("Dockerfile", "build-base.sh", *_BUILD_FILES)


def build_default_image(
    client: docker.APIClient,
    *,
    progress: Progress,
    engine: str | None = None,
    force: bool = False,
    variant: Variant = "default",
) -> str:
    """Build the default sandbox image, unless it exists already with the same content.

    Its wheels come from what the host's pip is configured for: the host fetches them and passes them on to the build.
    """
    started = time.monotonic()
    name = image_name(variant)
    content = content_of_recipe()
    there = find_image(client, name)
    if there and not force and labels_of(there).get(CONTENT_LABEL) == content:
        progress(f"{name} exists already, built from the same files")
        return name
    reporter = Reporter(progress)
    base = _base(client, reporter, variant, force=force)
    reporter.say(f"building {name} on {base} …")
    with (
        build_context({file: SOURCE / file for file in ("Dockerfile", *_BUILD_FILES)}) as context,
        _package_index(base, engine, variant) as index,
    ):
        arguments = {"BASE": base, "VARIANT": variant, "CONTENT": content, "PIP_OPTIONS": " ".join(index.pip_options)}
        if mirror := os.environ.get("CODEACT_DEBIAN_MIRROR"):
            arguments["CODEACT_DEBIAN_MIRROR"] = mirror
        arguments |= index.options.get("buildargs", {})
        options = {**index.options, "buildargs": arguments, "use_config_proxy": True}
        build(client, context, name, reporter=reporter, advise=partial(_advice, index), nocache=force, **options)
    if there:
        remove_nameless(client, there["Id"])
    size = int((find_image(client, name) or {}).get("Size", 0)) / 1e6
    reporter.say(f"{name} built in {time.monotonic() - started:.0f} s ({size:.0f} MB)")
    return name


def _package_index(base: str, engine: str | None, variant: Variant) -> AbstractContextManager[BuildIndex]:
    # Imported here: programs that build no image must not wait for the libraries of the index.
    from codeact_sandbox.backends.docker.build_index import BuildIndex, serve_index  # noqa: PLC0415

    # The network of the engine is for apt.
    return nullcontext(BuildIndex({})) if variant == "slim" else serve_index(base, engine, "bridge", Completion())


def why_no_bootstrap(platform: str, uid: int, *, debootstrap: bool) -> str | None:
    """Return why a base can't be made on this machine."""
    if platform != "linux":
        return (
            "Without a registry the image can only be built on Linux: connect to one, or build it there and bring it "
            f"here with `docker save {DEFAULT_IMAGE}` and `docker load`."
        )
    if uid != 0:
        return "Without a registry a base is made with debootstrap, which needs root: run this command with sudo."
    if not debootstrap:
        return "Without a registry a base is made with debootstrap: `apt-get install debootstrap`, then run this again."
    return None


def _base(client: docker.APIClient, reporter: Reporter, variant: Variant, *, force: bool) -> str:
    """Return the image that the default one is built on: an existing one, else pulled, else made on this machine."""
    own = _own_base(variant)
    if not force:
        for image in (BASE_IMAGE, own):
            if find_image(client, image):
                return image
    try:
        pull(client, BASE_IMAGE, progress=reporter.say)
    except SandboxUnavailable as error:
        if find_image(client, BASE_IMAGE):
            reporter.say(f"{BASE_IMAGE} could not be pulled again; using the one that is here")
            return BASE_IMAGE
        reporter.say(f"{error} Making the base with debootstrap instead; this takes a minute or two …")
        obstacle = why_no_bootstrap(sys.platform, os.geteuid(), debootstrap=_has_debootstrap())
        if obstacle:
            raise SandboxUnavailable(f"The sandbox image can't be built: no registry answers. {obstacle}") from error
        _bootstrap(client, own, variant, reporter)
        return own
    return BASE_IMAGE


def _own_base(variant: Variant) -> str:
    """Return the name of the base that is made on this machine; it holds the variant's libraries already."""
    tag = _digest("build-base.sh", *_BASE_FILES)[:16]
    return f"{OWN_BASE}:{tag}" if variant == "default" else f"{OWN_BASE}:{tag}-{variant}"


def _has_debootstrap() -> bool:
    return shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def _bootstrap(client: docker.APIClient, tag: str, variant: Variant, reporter: Reporter) -> None:
    """Run the script and import the tar that it writes."""
    sdk: Any = client
    repository, _, version = tag.partition(":")
    with tempfile.TemporaryFile() as tar:
        _run_script(["/bin/sh", str(SOURCE / "build-base.sh"), variant], tar, reporter)
        tar.seek(0)
        with engine_errors(f"importing {tag}"):
            answer = sdk.import_image_from_stream(iter(lambda: tar.read(1 << 18), b""), repository, version)
    if not find_image(client, tag):
        raise SandboxStartError(f"The Docker engine did not take the base image: {answer.strip()}")


def _run_script(command: list[str], output: IO[bytes], reporter: Reporter) -> None:
    """Run a script whose log is its standard error."""
    script = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, start_new_session=True
    )
    problem = "failed"
    with script:
        assert script.stderr is not None
        try:
            while select.select([script.stderr], [], [], _SCRIPT_STALL_S)[0]:
                if data := os.read(script.stderr.fileno(), 1 << 18):
                    _report(data, reporter)
                elif script.wait(_SCRIPT_STALL_S) == 0:
                    return
                else:
                    break
            else:
                problem = f"was cut off after {_SCRIPT_STALL_S:.0f} s of silence"
        finally:
            _end(script)
    raise SandboxStartError(f"Making the base {problem}.\n{_advice(None, '')}\nThe end of its log:\n{reporter.tail}")


def _report(log: bytes, reporter: Reporter) -> None:
    for line in log.decode(errors="replace").splitlines():
        if line.strip():
            (reporter.say if line.startswith("build-base:") else reporter.detail)(line.strip())


def _end(script: subprocess.Popen[bytes]) -> None:
    """Stop the script with all its processes; on SIGTERM it still removes its files."""
    if script.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(script.pid, number)
        with suppress(subprocess.TimeoutExpired):
            script.wait(30)
            return


def _advice(index: BuildIndex | None, log: str) -> str:
    if "no space left" in log.lower():
        return "The disk is full: free about 2 GB (`docker system df` shows what Docker holds)."
    if "unknown key" in log:
        return (
            "The keys of Debian 13 are missing on this machine: install a newer package debian-archive-keyring, then run "
            "`codeact image build` again."
        )
    if index is not None and "pip could not install" in log:
        return (
            "The wheels come from the package index that this machine's pip is configured for. "
            f"{' '.join(index.problems)} Check the network, or name another index in PIP_INDEX_URL, then run "
            "`codeact image build` again."
        )
    if is_about_certificate(log):
        return (
            "The build does not trust the certificate of the Debian mirror, for example because a proxy inspects TLS: set "
            "a mirror with http:// in CODEACT_DEBIAN_MIRROR (apt checks signatures), then run `codeact image build` again."
        )
    return (
        "The packages come from a Debian mirror: check the network and http_proxy, name another mirror in "
        "CODEACT_DEBIAN_MIRROR, then run `codeact image build` again."
    )


def _digest(*names: str) -> str:
    together = hashlib.sha256()
    for name in sorted(names):
        content = (SOURCE / name).read_bytes()
        together.update(f"{name} {len(content)}\n".encode() + content)
    return together.hexdigest()
