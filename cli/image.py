"""`codeact image`: the sandbox image."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.terminal import format_size
from autogen_codeact.sandbox.backends.docker.default_image import Variant
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.docker.hosts import DockerHost
from autogen_codeact.sandbox.backends.docker.image import (
    ImageInfo,
    build_default_image,
    list_images,
    parse_packages,
    resolve_image,
)
from autogen_codeact.sandbox.backends.docker.image_copies import ImageCopies
from autogen_codeact.sandbox.errors import SandboxError


def build_image(
    engines: Sequence[DockerHost | None] = (None,),
    *,
    force: bool,
    variant: Variant = "default",
    packages: Sequence[str] = (),
) -> int:
    """Build a sandbox image; the steps go to standard error, its name to standard output.

    Args:
        engines: Where; it is built on the first one, and copied to the others. None: the engine that `docker` would use.
        force: Build and copy it even if it exists.
        variant: `default` or `slim`.
        packages: What an image derived from it has in addition, as `packages` of an executor (default nothing).

    Returns:
        The exit status: 0, or 1 if one of the other engines did not get it.

    Raises:
        SandboxError: It can't be built.
        CommandError: A package is neither a requirement nor a wheel that exists.
    """
    try:
        parse_packages(packages)
    except ValueError as error:
        raise CommandError(str(error)) from error
    first, *others = engines
    with closing(connect(first)) as client:
        image = build_default_image(client, progress=say, engine=first, force=force, variant=variant)
        built = resolve_image(client, image, packages, progress=say, engine=first)
    status = 0
    for engine in others:
        try:
            with closing(connect(engine)) as client:
                hosts = [each for each in (first, engine) if each is not None]
                if not ImageCopies(client, engine, hosts, say, Future()).fetch(built, again=force):
                    status = 1
        except SandboxError as error:
            say(str(error))
            status = 1
    print(built)  # noqa: T201 - it is the output
    return status


def list_all(engines: Sequence[DockerHost | None] = (None,)) -> int:
    """Print the images that this package built, one per line.

    Args:
        engines: Which engines are asked. None: the one that `docker` would use.

    Returns:
        The exit status.

    Raises:
        SandboxError: An engine does not answer.
    """
    rows: list[tuple[str, ImageInfo]] = []
    for engine in engines:
        with closing(connect(engine)) as client:
            rows += [(f"  {engine.label}" if engine is not None else "", image) for image in list_images(client)]
    if not rows:
        say("no sandbox images found: `codeact image build` makes one")
        return 0
    width = max(len(image.reference) for _, image in rows)
    for label, image in rows:
        created = f"{image.created:%Y-%m-%d %H:%M} UTC{label}"
        print(f"{image.reference:<{width}}  {image.kind:<7}  {format_size(image.size):>7}  {created}")  # noqa: T201 - as above
    return 0
