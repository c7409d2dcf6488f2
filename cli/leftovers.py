"""Sandboxes and temporary folders of dead processes: listed by `codeact doctor`, removed by `codeact clean`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autogen_codeact.cli.check import Check
from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.sandbox import SandboxError, SandboxUnavailable
from autogen_codeact.sandbox.backends.bubblewrap.leftovers import LeftoverGroup, leftover_groups, remove_group
from autogen_codeact.sandbox.backends.docker import leftovers as containers
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.docker.hosts import DockerHost
from autogen_codeact.sandbox.backends.owner import OwnerState
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.files.temporary_folder import abandoned_folders, owner_of, remove_abandoned
from autogen_codeact.sandbox.formatting import format_count

if TYPE_CHECKING:
    import docker

MAX_SHOWN = 5


@dataclass(frozen=True)
class Item:
    """One leftover sandbox or folder."""

    kind: Literal["container", "bubblewrap", "folder"]
    name: str
    state: str
    owner: str
    """Machine and process that started it, as far as they are known."""
    owner_state: OwnerState
    remove: Callable[[], bool]
    """Removes it; False if it was removed meanwhile."""
    kept: bool = False
    """Whether its user wants it to persist after its end."""
    engine: str | None = None
    """Name of the Docker engine that has it, if the user has named engines."""

    @property
    def orphan(self) -> bool:
        """Whether nobody can need it any more."""
        return self.owner_state == "dead" and not self.kept

    @property
    def reason(self) -> str:
        """Why it exists, in a few words."""
        where = f"; on {self.engine}" if self.engine is not None else ""
        if self.kept:
            return f"kept on purpose (auto_remove=False) by {self.owner}{where}"
        known = "is dead" if self.owner_state == "dead" else "can not be checked from here"
        return f"started by {self.owner}, which {known}{where}"


@contextmanager
def _found(engines: Sequence[DockerHost | None]) -> Iterator[tuple[list[Item], list[SandboxError]]]:
    """Find what dead processes left, which can be removed within the context; and why engines could not be asked."""
    items: list[Item] = []
    problems: list[SandboxError] = []
    with ExitStack() as clients:
        for engine in engines:
            try:
                client = clients.enter_context(closing(connect(engine)))
                items += [_container(client, each, engine) for each in containers.leftovers(client)]
            except SandboxError as error:
                problems.append(error)
        if sys.platform == "linux":
            items += [_group(each) for each in leftover_groups()]
        items += [_folder(path) for path in abandoned_folders()]
        yield items, problems


def _container(client: docker.APIClient, found: containers.Leftover, engine: DockerHost | None) -> Item:
    remove = partial(containers.remove, client, found.ident, found.name)
    label = engine.label if engine is not None else None
    return Item("container", found.name, found.state, found.owner, found.owner_state, remove, found.kept, label)


def _group(found: LeftoverGroup) -> Item:
    count = len(found.processes)
    state = "empty" if not count else format_count(count, "process", "processes")
    owner = f"process {found.owner}"
    return Item("bubblewrap", found.name, state, owner, found.owner_state, partial(remove_group, found))


def _folder(path: Path) -> Item:
    owner = f"process {owner_of(path)}"
    return Item("folder", str(path), "files of work_dir", owner, "dead", partial(remove_abandoned, path))


def check_leftovers(engines: Sequence[DockerHost | None] = (None,)) -> Check:
    """Report leftovers, for `codeact doctor`."""
    with _found(engines) as (items, _):  # engines that do not answer are reported by their own check
        shown = [f"{item.kind} {item.name} ({item.state}; {item.reason})" for item in items[:MAX_SHOWN]]
    if not items:
        return Check("leftovers", "ok", "no leftover sandboxes")
    if len(items) > MAX_SHOWN:
        shown.append(f"and {len(items) - MAX_SHOWN} more")
    orphans = sum(item.orphan for item in items)
    advice = [f"`codeact clean` removes {orphans} of {len(items)}"] if orphans else []
    if orphans < len(items):
        advice.append(f"`codeact clean --all` removes {'the others' if orphans else 'them'}, if nobody else uses them")
    return Check("leftovers", "note", "; ".join(shown), ", ".join(advice) + ".")


def clean(engines: Sequence[DockerHost | None] = (None,), *, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Remove sandboxes and temporary folders whose owner is dead."""
    with _found(engines) as (items, problems):
        for error in problems:
            if not isinstance(error, SandboxUnavailable):
                raise error
            if sys.platform != "linux":
                raise CommandError(str(error)) from error
            named = engines != (None,)
            say(str(error) if named else f"only bubblewrap's sandboxes and temporary folders are checked: {error}")
        rows = [_treat(item, everything=everything, dry_run=dry_run) for item in items]
    unasked = bool(problems) and engines != (None,)
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


def _treat(item: Item, *, everything: bool, dry_run: bool) -> dict[str, str]:
    action, error = "left alone", ""
    if item.orphan or everything:
        try:
            action = "would be removed" if dry_run else "removed" if item.remove() else "gone already"
        except (SandboxError, OSError) as failure:
            action, error = "failed", str(failure)
    found = {"kind": item.kind, "name": item.name, "state": item.state, "why": item.reason}
    return {"action": action, **found, "error": error}


def _print(rows: list[dict[str, str]]) -> None:
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        about = printable(row["error"] or f"{row['state']}; {row['why']}", keep="\n")
        print(f"{row['action']:<16}  {row['kind']:<10}  {row['name']:<{width}}  {about}")  # noqa: T201 - it is the output
