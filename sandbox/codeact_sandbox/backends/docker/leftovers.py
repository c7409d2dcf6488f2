"""Containers that outlived their owner: finding them, removing them, and doing so once in the background of a start."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import connect, engine_errors
from codeact_sandbox.backends.owner import Leftover, identity, owner_state, remove_once, search_again

if TYPE_CHECKING:
    from docker import APIClient

_given_up: set[str] = set()  # labels of containers that this process could not remove

# Labels of containers, above all the owner, so that other processes can see whether it still runs.
PREFIX = "org.autogen-codeact"
KIND = f"{PREFIX}.kind"
SANDBOX = "sandbox"
OWNER = f"{PREFIX}.owner"  # label with the owner's host name and process id, for people
LIFE = f"{PREFIX}.owner-life"  # label with the identity of the owner
CREATION = f"{PREFIX}.creation"
"""Label whose value is unique to a container: its id is not known where the engine's reply is lost."""
KEEP = f"{PREFIX}.keep"  # label of a container that its user wants to inspect once it has ended (`auto_remove=False`)


def owner_labels() -> dict[str, str]:
    """Return the labels of a sandbox that this process owns."""
    return {KIND: SANDBOX, OWNER: f"{socket.gethostname()}:{os.getpid()}", LIFE: identity()}


def leftovers(client: APIClient) -> list[Leftover]:
    """List the sandboxes of an engine whose owner does not run on this machine now, by name; one request."""
    sdk: Any = client
    with engine_errors("listing sandboxes"):
        containers = sdk.containers(all=True, filters={"label": f"{KIND}={SANDBOX}"})
    items = [_leftover(client, container) for container in containers]
    return sorted((item for item in items if item.owner_state != "alive"), key=lambda item: item.name)


def _leftover(client: APIClient, container: dict[str, Any]) -> Leftover:
    labels, state = container.get("Labels") or {}, str(container.get("State", "unknown"))
    name = str((container.get("Names") or [container["Id"][:12]])[0]).lstrip("/")
    return Leftover(
        kind="container",
        name=name,
        state=state,
        owner=labels.get(OWNER, "unknown"),
        owner_state="dead" if labels.get(CREATION) in _given_up else owner_state(labels.get(LIFE, "")),
        remove=lambda: _remove(client, container["Id"], name),
        kept=KEEP in labels and state == "exited",
    )


def _remove(client: APIClient, ident: str, name: str) -> bool:
    import docker.errors

    sdk: Any = client
    with engine_errors(f"removing {name}"):
        try:
            sdk.remove_container(ident, force=True, v=True)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            if error.status_code == 409 and "in progress" in str(error):
                return False
            raise
    return True


def remove_later(engine: str | None, creation: str) -> None:
    """Note a container of this process that could not be removed; the next start on the same engine tries again."""
    _given_up.add(creation)
    search_again(engine)


def remove_orphans_in_background(engine: str | None) -> None:
    """Remove orphans in a thread, once per process and engine, and again after `remove_later`."""
    remove_once(engine, lambda: _leftovers_of(engine))


def _leftovers_of(engine: str | None) -> Iterator[Leftover]:
    with contextlib.closing(connect(engine)) as client:
        yield from leftovers(client)
