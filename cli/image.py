"""`codeact image`: the sandbox image."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from autogen_codeact.cli.exit import CommandError, say
from codeact_sandbox.backends.docker.default_image import Variant, build_default_image
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image import parse_packages, resolve_image
from codeact_sandbox.types.docker_hosts import DockerHost
from codeact_sandbox.types.errors import SandboxError


def build_image(
    engines: Sequence[DockerHost | None] = (None,),
    *,
    force: bool,
    variant: Variant = "default",
    packages: Sequence[str] = (),
) -> int:
    """Build a sandbox image; the steps go to standard error, its name to standard output."""
    try:
        parse_packages(packages)
    except ValueError as error:
        raise CommandError(str(error)) from error
    status, names = 0, []
    for engine in engines:
        try:
            with closing(connect(engine)) as client:
                image = build_default_image(client, progress=say, engine=engine, force=force, variant=variant)
                names.append(resolve_image(client, image, packages, progress=say, engine=engine))
        except SandboxError as error:
            if len(engines) == 1:
                raise
            say(str(error))
            status = 1
    for name in dict.fromkeys(names):
        print(name)  # noqa: T201 - it is the output
    return status
