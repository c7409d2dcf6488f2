"""Sandboxes and temporary folders of dead processes: listed by `codeact doctor`, removed by `codeact clean`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing

from autogen_codeact.cli.check import Check
from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.sandbox import SandboxError, SandboxUnavailable
from autogen_codeact.sandbox.backends.docker import leftovers as containers
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.owner import Leftover
from autogen_codeact.sandbox.leftovers import local_leftovers
from autogen_codeact.sandbox.types.docker_hosts import DockerHost
from autogen_codeact.sandbox.types.filenames import printable

MAX_SHOWN = 5


class Leftovers:
    """What dead processes left behind; a context manager, within which it can be removed.

    Args:
        engines: Which Docker engines are asked. None: the one that `docker` would use.
    """

    def __init__(self, engines: Sequence[DockerHost | None]) -> None:
        self._engines = engines
        self._clients = ExitStack()
        self.problems: list[SandboxError] = []
        """Why engines could not be asked."""

    def __enter__(self) -> list[Leftover]:
        """Find it; nothing is changed."""
        items: list[Leftover] = []
        for engine in self._engines:
            try:
                client = self._clients.enter_context(closing(connect(engine)))
                items += containers.leftovers(client, engine.label if engine is not None else None)
            except SandboxError as error:
                self.problems.append(error)
        return items + local_leftovers()

    def __exit__(self, *_: object) -> None:
        self._clients.close()


def check_leftovers(engines: Sequence[DockerHost | None] = (None,)) -> Check:
    """Report leftovers, for `codeact doctor`.

    Args:
        engines: Which Docker engines are asked. None: the one that `docker` would use.
    """
    with Leftovers(engines) as items:  # engines that do not answer are reported by their own check
        return _report(items)


def _report(items: list[Leftover]) -> Check:
    if not items:
        return Check("leftovers", "ok", "no leftover sandboxes")
    shown = [f"{item.kind} {item.name} ({item.state}; {item.reason})" for item in items[:MAX_SHOWN]]
    if len(items) > MAX_SHOWN:
        shown.append(f"and {len(items) - MAX_SHOWN} more")
    orphans = sum(item.orphan for item in items)
    advice = [f"`codeact clean` removes {orphans} of {len(items)}"] if orphans else []
    if orphans < len(items):
        advice.append(f"`codeact clean --all` removes {'the others' if orphans else 'them'}, if nobody else uses them")
    return Check("leftovers", "note", "; ".join(shown), ", ".join(advice) + ".")


def clean(engines: Sequence[DockerHost | None] = (None,), *, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Remove sandboxes and temporary folders whose owner is dead.

    Args:
        engines: Which Docker engines are cleaned. None: the one that `docker` would use.
        everything: Also those whose owner can't be checked from here, and those that were kept on purpose.
        dry_run: Only print what would be removed.
        as_json: Print one JSON object.

    Returns:
        0, or 1 if something could not be removed, or an engine that the user has named does not answer.

    Raises:
        CommandError: There is no engine, and this system has no other sandboxes.
        SandboxError: The engine stopped answering.
    """
    found = Leftovers(engines)
    with found as items:
        for error in found.problems:
            if not isinstance(error, SandboxUnavailable):
                raise error
            if sys.platform != "linux":
                raise CommandError(str(error)) from error
            named = engines != (None,)
            say(str(error) if named else f"only bubblewrap's sandboxes and temporary folders are checked: {error}")
        rows = [_treat(item, everything=everything, dry_run=dry_run) for item in items]
    unasked = bool(found.problems) and engines != (None,)
    actions = [row["action"] for row in rows]
    if as_json:
        print_json({"ok": "failed" not in actions and not unasked, "sandboxes": rows})
    else:
        _print(rows)
        if not rows:
            say("no leftover sandboxes or folders")
        elif "left alone" in actions:
            say("`codeact clean --all` removes what was left alone: check first that nobody else uses it")
    return 1 if "failed" in actions or unasked else 0


def _treat(item: Leftover, *, everything: bool, dry_run: bool) -> dict[str, str]:
    action, error = "left alone", ""
    if item.orphan or everything:
        try:
            action = "would be removed" if dry_run else "removed" if item.remove() else "gone already"
        except (SandboxError, OSError) as failure:
            action, error = "failed", str(failure)
    return {
        "action": action,
        "kind": item.kind,
        "name": item.name,
        "state": item.state,
        "why": item.reason,
        "error": error,
    }


def _print(rows: list[dict[str, str]]) -> None:
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        about = printable(row["error"] or f"{row['state']}; {row['why']}", keep="\n")
        print(f"{row['action']:<16}  {row['kind']:<10}  {row['name']:<{width}}  {about}")  # noqa: T201 - it is the output
