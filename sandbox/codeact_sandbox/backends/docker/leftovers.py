"""Containers that outlived their owner: finding them, removing them, and doing so once in the background of a start."""

# ruff: noqa: PLC0415 - the Docker SDK takes long to import, and programs that never use Docker should not wait for it

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from codeact_sandbox.backends import owner
from codeact_sandbox.backends.docker.engine import connect, engine_errors
from codeact_sandbox.backends.owner import Leftover, OwnerState
from codeact_sandbox.types.errors import SandboxError

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger("codeact_sandbox")

REMOVE_OWN_TIMEOUT_S = 20.0
REMOVE_OWN_PAUSE_S = 0.2

_checked: set[tuple[int, str | None]] = set()
_to_remove: dict[str | None, set[str]] = {}
_lock = threading.Lock()


# Labels of containers, above all the owner, so that other processes can see whether it still runs.
PREFIX = "org.autogen-codeact"
KIND = f"{PREFIX}.kind"
SANDBOX = "sandbox"
OWNER = f"{PREFIX}.owner"  # label with the owner's host name and process id, for people
LIFE = f"{PREFIX}.owner-life"  # label with the boot id, PID namespace and start time of the owner
CREATION = f"{PREFIX}.creation"
"""Label whose value is unique to a container: its id is not known where the engine's reply is lost."""
KEEP = f"{PREFIX}.keep"  # label of a container that its user wants to inspect once it has ended (`auto_remove=False`)


def owner_labels() -> dict[str, str]:
    """Return the labels of a sandbox that this process owns."""
    pid = os.getpid()
    here, started = _boot_and_namespace(), owner.start_time(pid)
    life = f"{here}/{started}" if here is not None and started is not None else "unknown"
    return {KIND: SANDBOX, OWNER: f"{socket.gethostname()}:{pid}", LIFE: life}


def owner_state(labels: Mapping[str, str]) -> OwnerState:
    """Return whether the owner of a container still runs."""
    host, _, pid = labels.get(OWNER, "").rpartition(":")
    boot_and_namespace, _, started = labels.get(LIFE, "").rpartition("/")
    if host != socket.gethostname() or not pid.isdigit() or boot_and_namespace != _boot_and_namespace():
        return "unknown"
    return owner.owner_state(int(pid), started)


def _boot_and_namespace() -> str | None:
    try:
        return f"{owner.boot_id()}/{owner.pid_namespace()}"
    except OSError:
        return None


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


def remove_later(engine: str | None, creation: str) -> None:
    """Note a container of this process that could not be removed; the next start on the same engine tries again."""
    with _lock:
        _to_remove.setdefault(engine, set()).add(creation)


def remove_orphans_in_background(engine: str | None) -> None:
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


def _in_background(engine: str | None, own: set[str], orphans: bool) -> None:
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
