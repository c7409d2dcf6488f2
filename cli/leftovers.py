"""Sandboxes and temporary folders that outlived their owner: listed by `codeact doctor`, removed by `codeact clean`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_codeact.cli.check import Check
from autogen_codeact.cli.ending import CommandError, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.executors import SandboxError
from autogen_codeact.sandbox.backends.bubblewrap.leftovers import LeftoverGroup, leftover_groups, remove_group
from autogen_codeact.sandbox.backends.docker import leftovers as containers
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.owner import OwnerState
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.files.temporary_folder import abandoned_folders, owner_of, remove_abandoned

if TYPE_CHECKING:
    import docker

SHOWN = 5


@dataclass(frozen=True)
class Item:
    """One sandbox whose owner does not live here now.

    Args:
        kind: `container`, `bubblewrap` or `folder`.
        name: Its name.
        state: What goes on in it, in a word or two.
        owner: Machine and process that started it, as far as they are known.
        fate: `dead`, or `unknown`.
        kept: Whether its user wanted it to stay after its end.
        remove: Removes it; False where it was gone already.
    """

    kind: str
    name: str
    state: str
    owner: str
    fate: OwnerState
    kept: bool
    remove: Callable[[], bool]

    @property
    def orphan(self) -> bool:
        """Whether nobody can want it any more."""
        return self.fate == "dead" and not self.kept

    @property
    def why(self) -> str:
        """Why it is here, in a few words."""
        if self.kept:
            return f"kept on purpose (auto_remove=False) by {self.owner}"
        return f"{self.owner}, which {'is dead' if self.fate == 'dead' else 'can not be seen from here'}, started it"


@dataclass(frozen=True)
class Leftovers:
    """What was found.

    Args:
        items: By kind and name.
        unseen: Why Docker could not be asked, or empty.
    """

    items: list[Item]
    unseen: str


def find(client: docker.APIClient | None, unseen: str = "") -> Leftovers:
    """Look for what is left of sandboxes; nothing is changed.

    Args:
        client: The engine, or None where there is none.
        unseen: Why there is none.

    Raises:
        SandboxError: The engine can't answer.
    """
    items = [_container(client, found) for found in containers.leftovers(client)] if client is not None else []
    if sys.platform == "linux":
        items += [_group(found) for found in leftover_groups()]
    items += [_folder(path) for path in abandoned_folders()]
    return Leftovers(items, unseen)


def _container(client: docker.APIClient, found: containers.Leftover) -> Item:
    def remove() -> bool:
        return containers.remove(client, found.ident, found.name)

    return Item("container", found.name, found.state, found.owner, found.owner_state, found.kept, remove)


def _group(found: LeftoverGroup) -> Item:
    count = len(found.processes)
    state = "empty" if not count else f"{count} process{'es' if count > 1 else ''}"
    owner = f"process {found.owner}"
    return Item("bubblewrap", found.name, state, owner, found.owner_state, False, lambda: remove_group(found))


def _folder(path: Path) -> Item:
    return Item(
        *("folder", str(path), "files of work_dir", f"process {owner_of(path)}", "dead", False),
        lambda: remove_abandoned(path),
    )


def check_leftovers() -> Check:
    """Say what is left, for `codeact doctor`."""
    try:
        with closing(connect()) as client:
            items = find(client).items
    except SandboxError:
        # Which is said elsewhere.
        items = find(None).items
    if not items:
        return Check("leftovers", "ok", "no sandbox has outlived its owner")
    shown = [f"{item.kind} {item.name} ({item.state}; {item.why})" for item in items[:SHOWN]]
    rest = len(items) - len(shown)
    detail = "; ".join(shown) + (f"; and {rest} more" if rest else "")
    orphans = sum(item.orphan for item in items)
    others = f"`codeact clean --all` {'the others' if orphans else 'removes them'}, if nobody else uses them"
    advice = f"`codeact clean` removes {orphans} of {len(items)}" if orphans else ""
    return Check("leftovers", "note", detail, ", ".join(filter(None, (advice, others * (orphans < len(items))))) + ".")


def clean(*, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Remove what is left of sandboxes whose owner is dead.

    Args:
        everything: Also those whose owner can't be judged from here, and those that were kept on purpose.
        dry_run: Only say what would be removed.
        as_json: Print one JSON object.

    Returns:
        0, or 1 where something could not be removed.

    Raises:
        CommandError: There is nothing on this machine that could be looked at.
        SandboxError: The engine stopped answering.
    """
    try:
        client = connect()
    except SandboxError as error:
        if sys.platform != "linux":
            raise CommandError(str(error)) from error
        say(f"only bubblewrap's sandboxes and temporary folders are checked: {error}")
        rows = _treat(find(None).items, everything=everything, dry_run=dry_run)
    else:
        with closing(client):
            rows = _treat(find(client).items, everything=everything, dry_run=dry_run)
    if as_json:
        print_json({"ok": not _count(rows, "failed"), "sandboxes": rows})
    else:
        _show(rows, everything=everything)
    return 1 if _count(rows, "failed") else 0


Row = dict[str, str]


def _treat(items: Iterable[Item], *, everything: bool, dry_run: bool) -> list[Row]:
    rows = []
    for item in items:
        action, error = "left alone", ""
        if item.orphan or everything:
            action, error = ("would be removed", "") if dry_run else _remove(item)
        rows.append(
            {
                "action": action,
                "kind": item.kind,
                "name": item.name,
                "state": item.state,
                "why": item.why,
                "error": error,
            }
        )
    return rows


def _remove(item: Item) -> tuple[str, str]:
    try:
        return ("removed" if item.remove() else "gone already"), ""
    except (SandboxError, OSError) as error:
        return "failed", str(error)


def _show(rows: list[Row], *, everything: bool) -> None:
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        about = printable(row["error"] or f"{row['state']}; {row['why']}", keep="\n")
        print(f"{row['action']:<16}  {row['kind']:<10}  {row['name']:<{width}}  {about}")  # noqa: T201 - it is the output
    if not rows:
        say("nothing is left of any sandbox")
    elif _count(rows, "left alone") and not everything:
        say("`codeact clean --all` removes what was left alone: see that nobody else uses it")


def _count(rows: list[Row], action: str) -> int:
    return sum(row["action"] == action for row in rows)
