"""Containers that outlived their owner: finding them, removing them, and doing so once in the background of a start."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from codeact_sandbox.backends.docker.engine import connect, engine_errors
from codeact_sandbox.backends.docker.labels import CREATION, KEEP, KIND, OWNER, SANDBOX, owner_state
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.types.docker_hosts import EngineAddress
from codeact_sandbox.types.errors import SandboxError

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger("codeact_sandbox")

REMOVE_OWN_TIMEOUT_S = 20.0
REMOVE_OWN_PAUSE_S = 0.2

_checked: set[tuple[int, EngineAddress]] = set()
_to_remove: dict[EngineAddress, set[str]] = {}
_lock = threading.Lock()


def leftovers(client: APIClient) -> list[Leftover]:
    """List the sandboxes of an engine whose owner does not run on this machine now, by name; one request."""
    items = [_leftover(client, container) for container in _containers(client, f"{KIND}={SANDBOX}")]
    return sorted((item for item in items if item.owner_state != "alive"), key=lambda item: item.name)


def _containers(client: APIClient, label: str) -> list[dict[str, Any]]:
    sdk: Any = client
    with engine_errors("listing sandboxes"):
        return list(sdk.containers(all=True, filters={"label": label}))


def _leftover(client: APIClient, container: dict[str, Any]) -> Leftover:
    labels, state = container.get("Labels") or {}, str(container.get("State", "unknown"))
    name = str((container.get("Names") or [container["Id"][:12]])[0]).lstrip("/")
    return Leftover(
        kind="container",
        name=name,
        state=state,
        owner=labels.get(OWNER, "unknown"),
        owner_state=owner_state(labels),
        remove=lambda: _remove(client, container["Id"], name) == "removed",
        kept=KEEP in labels and state == "exited",
    )


def _remove(client: APIClient, ident: str, name: str) -> Literal["removed", "missing", "in progress"]:
    import docker.errors

    sdk: Any = client
    with engine_errors(f"removing {name}"):
        try:
            sdk.remove_container(ident, force=True, v=True)
        except docker.errors.NotFound:
            return "missing"
        except docker.errors.APIError as error:
            if error.status_code == 409 and "in progress" in str(error):
                return "in progress"
            raise
    return "removed"


def remove_orphans(client: APIClient) -> list[Leftover]:
    """Remove the sandboxes whose owner ran on this machine and is dead.

    Containers of other machines, of running processes, and those that are to be kept are left alone. One that can't be
    removed is logged.
    """
    removed = []
    for item in leftovers(client):
        if not item.orphan:
            continue
        try:
            if item.remove():
                removed.append(item)
        except SandboxError as error:
            logger.warning("an orphaned sandbox stays: %s (`codeact clean` tries again)", str(error))
    return removed


def created_as(client: APIClient, creation: str) -> list[str]:
    """List the ids of the containers, at most one, with a label."""
    return [str(found["Id"]) for found in _containers(client, f"{CREATION}={creation}")]


def remove_later(engine: EngineAddress, creation: str) -> None:
    """Note a container of this process that could not be removed; the next start on the same engine tries again."""
    with _lock:
        _to_remove.setdefault(engine, set()).add(creation)


def remove_orphans_in_background(engine: EngineAddress) -> None:
    """Remove orphans in a thread, once per process and engine, and what this process could not remove before.

    Failures are logged.
    """
    with _lock:
        own = _to_remove.pop(engine, set())
        first = (os.getpid(), engine) not in _checked
        _checked.add((os.getpid(), engine))
    if first or own:
        arguments = (engine, own, first)
        threading.Thread(target=_in_background, args=arguments, name="codeact-orphans", daemon=True).start()


def _in_background(engine: EngineAddress, own: set[str], orphans: bool) -> None:
    try:
        with contextlib.closing(connect(engine)) as client:
            _remove_own(client, own)
            removed = remove_orphans(client) if orphans else []
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not disturb the sandbox that is starting
        logger.warning("looking for orphaned sandboxes failed: %s", str(error))
        return
    finally:
        for creation in own:
            remove_later(engine, creation)
    if removed:
        logger.info("removed %d orphaned sandboxes: %s", len(removed), ", ".join(item.name for item in removed))


def _remove_own(client: APIClient, own: set[str]) -> None:
    """Remove containers until the engine no longer has them; those that remain stay in the set.

    An engine that was killed removes its containers when it starts again. Meanwhile it answers that the removal is in progress,
    and that removal can fail. It can also list a container that it no longer has, until its next start.
    """
    until, problem = time.monotonic() + REMOVE_OWN_TIMEOUT_S, "the engine does not finish removing them"
    try:
        while own and time.monotonic() < until:
            for creation in list(own):
                found = created_as(client, creation)
                if "in progress" not in {_remove(client, ident, f"the sandbox {ident[:12]}") for ident in found}:
                    own.discard(creation)
            if own:
                time.sleep(REMOVE_OWN_PAUSE_S)
    except SandboxError as error:
        problem = str(error)
    if own:
        logger.warning("%d sandboxes that could not be removed still exist: %s", len(own), problem)
