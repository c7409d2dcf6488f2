"""The directory and the environment that shells and the interpreter of a session share."""

import os
import re

# In characters. It grows with each block, and has to fit into a request, where one character may take six bytes.
ENVIRONMENT_LIMIT = 4 * 1024 * 1024
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
SHELL_VARIABLES = {"_", "SHLVL", "PWD", "OLDPWD"}


class SessionEnvironment:
    """Directory and variables with which the next block of a session starts.

    A shell gets all of it. The interpreter has its own, and gets only what shells have changed.
    """

    def __init__(self):
        self._shared = _empty()
        self._changes = _empty()

    def for_shell(self, workspace):
        return dict(self._shared, cwd=self._shared["cwd"] or workspace)

    def changes_for_interpreter(self):
        """Return the fields of a Python block's request: what shells have changed since the last call."""
        changes, self._changes = self._changes, _empty()
        return changes

    def resend_all(self):
        """Send everything to the interpreter with its next block, because it is another one."""
        self._changes = dict(self._shared)

    def save(self):
        return dict(self._shared)

    def restore(self, saved):
        self._shared = dict(saved)

    def interpreter_ended(self, report):
        """Apply what a Python block has changed; return False if the environment is too large to be kept."""
        if "environment" not in report:
            return True
        return _merge(self._shared, report["cwd"], report["environment"], report["unset"])

    def shell_ended(self, data):
        cwd, separator, rest = data.partition(b"\0")
        if not separator:
            return True
        pairs = [item.split(b"=", 1) for item in rest.split(b"\0") if b"=" in item[1:]]
        after = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
        after = {name: value for name, value in after.items() if name not in SHELL_VARIABLES}
        before = {name: value for name, value in os.environ.items() if name not in self._shared["unset"]}
        before.update(self._shared["environment"])
        # An empty list means that the shell could not list its variables. What a shell can't name, it can't have unset.
        kept = {*after, *SHELL_VARIABLES}
        unset = [name for name in before if name not in kept and NAME.fullmatch(name)] if after else []
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        cwd = os.fsdecode(cwd.rstrip(b"\n"))
        fits = _merge(self._shared, cwd, changed, unset)
        return _merge(self._changes, cwd, changed, unset) and fits


def check(report):
    """Return the directory and the environment in a worker's report, checked: user code can write to the worker's socket."""
    environment, unset, cwd = report.get("environment"), report.get("unset"), report.get("cwd")
    if not isinstance(environment, dict) or not isinstance(unset, list):
        return {}
    return {
        "environment": {name: value for name, value in environment.items() if _is_name(name) and _is_text(value)},
        "unset": [name for name in unset if _is_name(name)],
        "cwd": cwd if _is_text(cwd) and cwd else None,
    }


def _is_name(text):
    return _is_text(text) and text and "=" not in text


def _is_text(text):
    try:
        return isinstance(text, str) and "\0" not in os.fsencode(text).decode("latin-1")
    except UnicodeError:
        return False


def _empty():
    return {"cwd": None, "environment": {}, "unset": []}


def _merge(state, cwd, environment, unset):
    """Apply changes to a state; return False, and change only the directory, if the result would be too large."""
    state["cwd"] = cwd or state["cwd"]
    removed = set(unset)
    merged = {name: value for name, value in dict(state["environment"], **environment).items() if name not in removed}
    missing = [name for name in {*state["unset"], *unset} if name not in environment]
    if sum(map(len, (*merged, *merged.values(), *missing))) > ENVIRONMENT_LIMIT:
        return False
    state["environment"], state["unset"] = merged, missing
    return True
