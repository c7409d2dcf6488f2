"""Sandboxes and temporary folders of dead processes: listed by `codeact doctor`, removed by `codeact clean`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Literal

from autogen_codeact.cli.exit import say
from autogen_codeact.cli.output import print_json
from codeact_sandbox import SandboxError, SandboxUnavailable
from codeact_sandbox.backends.docker import leftovers as containers
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.leftovers import local_leftovers
from codeact_sandbox.types.filenames import printable

Status = Literal["ok", "lack", "note"]


@dataclass(frozen=True)
class Check:
    """The result of one check: `lack` if something necessary is missing or wrong, `note` if it is only good to know."""

    name: str
    status: Status
    detail: str
    advice: str = ""


@contextmanager
def _found() -> Iterator[tuple[list[Leftover], SandboxError | None]]:
    """Find what dead processes left, which can be removed within the context; and why the engine could not be asked."""
    items: list[Leftover] = []
    problem = None
    with ExitStack() as stack:
        try:
            items = containers.leftovers(stack.enter_context(closing(connect())))
        except SandboxError as error:
            problem = error
        yield items + local_leftovers(), problem


def check_leftovers() -> Check:
    """Report leftovers, for `codeact doctor`."""
    with _found() as (items, _):  # an engine that does not answer is reported by its own check
        orphans = sum(item.orphan for item in items)
    if not items:
        return Check("leftovers", "ok", "no leftover sandboxes")
    advice = f"`codeact clean` removes {orphans} of {len(items)}; --all removes all of them, if nobody else uses them."
    return Check("leftovers", "note", f"{len(items)}; `codeact clean --dry-run` lists them", advice)


def clean(*, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Remove sandboxes and temporary folders whose owner is dead."""
    with _found() as (items, problem):
        if problem is not None:
            if not isinstance(problem, SandboxUnavailable) or sys.platform != "linux":
                raise problem
            say(f"only bubblewrap's sandboxes and temporary folders are checked: {problem}")
        rows = [_treat(item, everything=everything, dry_run=dry_run) for item in items]
    actions = [row["action"] for row in rows]
    if as_json:
        print_json({"ok": "failed" not in actions, "sandboxes": rows})
    else:
        width = max((len(row["name"]) for row in rows), default=0)
        for row in rows:
            about = printable(row["error"] or f"{row['state']}; {row['why']}", keep="\n")
            print(f"{row['action']:<16}  {row['kind']:<10}  {row['name']:<{width}}  {about}")  # noqa: T201 - it is the output
        if not rows:
            say("no leftover sandboxes or folders")
        elif "left alone" in actions:
            say("`codeact clean --all` removes what was left alone: check first that nobody else uses it")
    return 1 if "failed" in actions else 0


def _treat(item: Leftover, *, everything: bool, dry_run: bool) -> dict[str, str]:
    action, error = "left alone", ""
    if item.orphan or everything:
        try:
            action = "would be removed" if dry_run else "removed" if item.remove() else "gone already"
        except (SandboxError, OSError) as failure:
            action, error = "failed", str(failure)
    found = {"kind": item.kind, "name": item.name, "state": item.state, "why": item.reason}
    return {"action": action, **found, "error": error}
