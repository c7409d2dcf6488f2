"""Containers that outlived their owner: finding them, removing them, and doing so once in the background of a start."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and who never uses Docker should not wait for it

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autogen_codeact.sandbox.backends.docker.engine import connect, engine_errors
from autogen_codeact.sandbox.backends.docker.owner import KIND, OWNER, SANDBOX, TICKET, Fate, fate
from autogen_codeact.sandbox.errors import SandboxError

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger("autogen_codeact")

KEEP = "org.autogen-codeact.keep"
"""Label of a container that its user wants to look at once it has ended (`auto_remove=False`)."""

_swept: set[tuple[int, str | None]] = set()
_failed: dict[str | None, set[str]] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Leftover:
    """A sandbox whose owner is gone, or can't be judged from here.

    Args:
        ident: The container's id.
        name: Its name.
        owner: Machine and process that started it.
        owner_fate: `dead`, or `unknown` for an owner on another machine or of before a restart.
        state: What the engine says of it: `running`, `exited`, `created`, …
        kept: Whether it has ended and stays because its user wanted that (`auto_remove=False`).
    """

    ident: str
    name: str
    owner: str
    owner_fate: Fate
    state: str
    kept: bool

    @property
    def orphan(self) -> bool:
        """Whether nobody can want it any more."""
        return self.owner_fate == "dead" and not self.kept


def leftovers(client: APIClient) -> list[Leftover]:
    """List the sandboxes whose owner does not live on this machine now; one request.

    Args:
        client: The engine.

    Returns:
        Those of dead owners and those of owners that can't be judged, by name.

    Raises:
        SandboxError: The engine can't answer.
    """
    sdk: Any = client
    with engine_errors("listing sandboxes"):
        found = sdk.containers(all=True, filters={"label": f"{KIND}={SANDBOX}"})
    items = [_leftover(container) for container in found]
    return sorted((item for item in items if item.owner_fate != "alive"), key=lambda item: item.name)


def _leftover(container: dict[str, Any]) -> Leftover:
    marks = container.get("Labels") or {}
    state = str(container.get("State", "unknown"))
    return Leftover(
        ident=str(container["Id"]),
        name=str((container.get("Names") or [container["Id"][:12]])[0]).lstrip("/"),
        owner=marks.get(OWNER, "unknown"),
        owner_fate=fate(marks),
        state=state,
        kept=KEEP in marks and state == "exited",
    )


def remove(client: APIClient, item: Leftover) -> bool:
    """Remove one container with its anonymous volumes.

    Args:
        client: The engine.
        item: The container.

    Returns:
        Whether this call removed it; False where it was gone, or going, already.

    Raises:
        SandboxError: The engine could not.
    """
    return _remove(client, item.ident, f"removing {item.name}")


def _remove(client: APIClient, ident: str, doing: str) -> bool:
    import docker.errors

    sdk: Any = client
    with engine_errors(doing):
        try:
            sdk.remove_container(ident, force=True, v=True)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            if error.status_code == 409 and "in progress" in str(error):
                return False
            raise
    return True


def sweep(client: APIClient) -> list[Leftover]:
    """Remove the sandboxes whose owner lived on this machine and is dead.

    Containers of other machines, of living processes, and those that were to be kept are left alone. One that can't be
    removed is logged and does not keep the others.

    Args:
        client: The engine.

    Returns:
        What was removed.

    Raises:
        SandboxError: The engine can't say what there is.
    """
    removed = []
    for item in leftovers(client):
        if not item.orphan:
            continue
        try:
            if remove(client, item):
                removed.append(item)
        except SandboxError as error:
            logger.warning("an orphaned sandbox stays: %s (`codeact clean` tries again)", error)
    return removed


def containers_of(client: APIClient, ticket: str) -> list[str]:
    """Ids of the containers, at most one, that carry a ticket.

    Args:
        client: The engine.
        ticket: Value of the label `TICKET`.
    """
    sdk: Any = client
    return [str(found["Id"]) for found in sdk.containers(all=True, filters={"label": f"{TICKET}={ticket}"})]


def remember(docker_host: str | None, ticket: str) -> None:
    """Note a container of this process that could not be removed; the next start on the same engine tries again.

    Args:
        docker_host: Address of the engine, as the user gave it.
        ticket: Value of the container's label `TICKET`. Its id is unknown if the engine ended while it made the container.
    """
    with _lock:
        _failed.setdefault(docker_host, set()).add(ticket)


def sweep_in_background(docker_host: str | None) -> None:
    """Sweep in a thread: orphans once per process and engine, and what this process could not remove before.

    It is in nobody's way: what fails is logged.

    Args:
        docker_host: Address of the engine, as the user gave it.
    """
    with _lock:
        mine = _failed.pop(docker_host, set())
        first = (os.getpid(), docker_host) not in _swept
        _swept.add((os.getpid(), docker_host))
    if first or mine:
        work = threading.Thread(
            target=_sweep_quietly, args=(docker_host, mine, first), name="codeact-sweep", daemon=True
        )
        work.start()


def _sweep_quietly(docker_host: str | None, mine: set[str], orphans: bool) -> None:
    try:
        with contextlib.closing(connect(docker_host)) as client:
            for ticket in mine:
                _try_again(client, docker_host, ticket)
            removed = sweep(client) if orphans else []
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to disturb the sandbox that was asked for
        logger.warning("looking for orphaned sandboxes failed: %s", error)
        return
    if removed:
        logger.info("removed %d orphaned sandboxes: %s", len(removed), ", ".join(item.name for item in removed))


def _try_again(client: APIClient, docker_host: str | None, ticket: str) -> None:
    try:
        with engine_errors("looking for a sandbox that could not be removed"):
            found = containers_of(client, ticket)
        for container in found:
            _remove(client, container, f"removing the sandbox {container[:12]}")
    except SandboxError as error:
        remember(docker_host, ticket)
        logger.warning("a sandbox that could not be removed is still there: %s", error)
