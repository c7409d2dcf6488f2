"""The directory and the environment that shells and the interpreter of a session share."""

import os

# In characters. Block after block may add to it, and it has to fit into a request, where one character may take six bytes.
ENVIRONMENT_LIMIT = 4 * 1024 * 1024
# A shell has these of its own.
SHELLS_OWN = {"_", "SHLVL", "PWD", "OLDPWD"}


class Place:
    """Where the next block of a session starts: the same for both kinds, told to the interpreter only when it changed."""

    def __init__(self):
        self._shared = _nowhere()
        self._news = _nowhere()

    def for_shell(self, workspace):
        """What a shell starts with."""
        return dict(self._shared, cwd=self._shared["cwd"] or workspace)

    def for_cell(self):
        """What shells have changed; handed over once, since from then on it is the interpreter's own."""
        news, self._news = self._news, _nowhere()
        return news

    def forget_told(self):
        """Tell another interpreter everything again."""
        self._news = dict(self._shared)

    def save(self):
        """What `restore` takes."""
        return dict(self._shared)

    def restore(self, saved):
        """Go back to what was saved."""
        self._shared = dict(saved)

    def cell_ended(self, report):
        """Learn where a cell ended; False where its environment is too large to be kept."""
        if "environment" not in report:
            return True
        return _merge(self._shared, report["cwd"], report["environment"], report["unset"])

    def shell_ended(self, data):
        """Learn where a shell ended.

        Args:
            data: Its directory and a line break, then, each behind a NUL, its exported variables.

        Returns:
            False where its environment is too large to be kept.
        """
        cwd, separator, rest = data.partition(b"\0")
        if not separator:
            return True
        pairs = [item.split(b"=", 1) for item in rest.split(b"\0") if b"=" in item[1:]]
        new = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
        new = {name: value for name, value in new.items() if name not in SHELLS_OWN}
        before = {name: value for name, value in os.environ.items() if name not in self._shared["unset"]}
        before.update(self._shared["environment"])
        # A shell that could not list its variables has lost none.
        gone = [name for name in before if name not in new and name not in SHELLS_OWN] if new else []
        changed = {name: value for name, value in new.items() if before.get(name) != value}
        where = os.fsdecode(cwd.rstrip(b"\n"))
        fits = _merge(self._shared, where, changed, gone)
        return _merge(self._news, where, changed, gone) and fits


def checked(report):
    """The place in what a worker reports, made fit for the blocks to come: user code can write to the worker's socket."""
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
    """Whether the system's calls can take it."""
    try:
        return isinstance(text, str) and "\0" not in os.fsencode(text).decode("latin-1")
    except UnicodeError:
        return False


def _nowhere():
    return {"cwd": None, "environment": {}, "unset": []}


def _merge(state, cwd, environment, unset):
    state["cwd"] = cwd or state["cwd"]
    gone = set(unset)
    merged = {name: value for name, value in dict(state["environment"], **environment).items() if name not in gone}
    missing = [name for name in {*state["unset"], *unset} if name not in environment]
    if sum(map(len, (*merged, *merged.values(), *missing))) > ENVIRONMENT_LIMIT:
        return False
    state["environment"], state["unset"] = merged, missing
    return True
