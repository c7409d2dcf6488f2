"""`codeact image`: the sandbox image."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.terminal import format_size
from autogen_codeact.sandbox.backends.docker.default_image import Variant
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.docker.image import (
    build_default_image,
    list_images,
    parse_packages,
    resolve_image,
)


def build_image(*, force: bool, variant: Variant = "default", packages: Sequence[str] = ()) -> int:
    """Build a sandbox image; the steps go to standard error, its name to standard output.

    Args:
        force: Build it even if it exists.
        variant: `default` or `slim`.
        packages: What an image derived from it has in addition, as `packages` of an executor (default nothing).

    Returns:
        The exit status.

    Raises:
        SandboxError: It can't be built.
        CommandError: A package is neither a requirement nor a wheel that exists.
    """
    try:
        parse_packages(packages)
    except ValueError as error:
        raise CommandError(str(error)) from error
    with closing(connect()) as client:
        image = build_default_image(client, progress=say, force=force, variant=variant)
        print(resolve_image(client, image, packages, progress=say))  # noqa: T201 - it is the output
    return 0


def list_all() -> int:
    """Print the images that this package built, one per line.

    Returns:
        The exit status.

    Raises:
        SandboxError: The engine does not answer.
    """
    with closing(connect()) as client:
        images = list_images(client)
    if not images:
        say("no sandbox images found: `codeact image build` makes one")
        return 0
    width = max(len(image.reference) for image in images)
    for image in images:
        created = f"{image.created:%Y-%m-%d %H:%M} UTC"
        print(f"{image.reference:<{width}}  {image.kind:<7}  {format_size(image.size):>7}  {created}")  # noqa: T201 - as above
    return 0
