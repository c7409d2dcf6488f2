"""`codeact image`: the sandbox image."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from autogen_codeact.cli.exit import CommandError, say
from codeact_sandbox.backends.docker.default_image import Variant, build_default_image
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image import parse_packages, resolve_image


def build_image(*, force: bool, variant: Variant = "default", packages: Sequence[str] = ()) -> int:
    """Build a sandbox image; the steps go to standard error, its name to standard output."""
    try:
        parse_packages(packages)
    except ValueError as error:
        raise CommandError(str(error)) from error
    with closing(connect()) as client:
        image = build_default_image(client, progress=say, force=force, variant=variant)
        print(resolve_image(client, image, packages, progress=say))  # noqa: T201 - it is the output
    return 0
