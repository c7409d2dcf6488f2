"""Which files of `work_dir` are sent: not secrets, what tools make, and what `.gitignore` or the user leaves out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate

SECRETS = """
    .env* *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx id_rsa* id_dsa* id_ecdsa* id_ed25519*
    .ssh .gnupg .aws .azure .gcloud .kube .docker .netrc _netrc .git-credentials .pgpass .my.cnf .htpasswd
    .npmrc .yarnrc.yml .pypirc .dockercfg .terraformrc *.tfvars .vault-token .s3cfg .boto .databrickscfg
    credentials.json service-account*.json secrets.toml
"""
MADE_BY_TOOLS = """
    .git .hg .svn .jj node_modules .venv venv __pycache__ .mypy_cache .ruff_cache .pytest_cache .hypothesis .tox .nox
    .gradle .terraform .next .parcel-cache .cache .ipynb_checkpoints .DS_Store
"""
MAX_PATTERNS = 200
MAX_PATTERN_CHARS = 500
MAX_SHOWN = 8
Test = Callable[[str], object]


def _any_of(names: str) -> Test:
    return re.compile("|".join(map(translate, names.split()))).match


_is_secret, _is_made = _any_of(SECRETS), _any_of(MADE_BY_TOOLS)


class Patterns:
    """Patterns as in a `.gitignore`; code in the sandbox may have written it, so that a match takes linear time."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[tuple[bool, bool, list[Test | None]]] = []
        for line in lines:
            pattern = line.rstrip()
            if pattern and not pattern.startswith("#") and len(pattern) <= MAX_PATTERN_CHARS:
                self._rules.append(_parsed(pattern))
        del self._rules[MAX_PATTERNS:]

    def find(self, parts: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path is meant, by the last pattern that matches it; None if none does."""
        for wanted, only_folders, tests in reversed(self._rules):
            if (is_folder or not only_folders) and _matches(tests, parts):
                return wanted
        return None


def _parsed(pattern: str) -> tuple[bool, bool, list[Test | None]]:
    wanted = not pattern.startswith("!")
    text = pattern.removeprefix("!").removeprefix("\\")
    parts = text.strip("/").split("/")
    if parts[-1] == "**":
        parts[-1] = "*"
    if "/" not in text.rstrip("/"):
        parts.insert(0, "**")
    return wanted, text.endswith("/"), [None if part == "**" else re.compile(translate(part)).match for part in parts]


def _matches(tests: Sequence[Test | None], names: Sequence[str]) -> bool:
    """Compare the parts of a path with those of a pattern, in which None is any number of folders."""
    test = at = 0
    again: tuple[int, int] | None = None
    while at < len(names):
        current = tests[test] if test < len(tests) else _never
        if current is None:
            test, again = test + 1, (test, at)
        elif current(names[at]):
            test, at = test + 1, at + 1
        elif again is not None:
            test, at = again[0] + 1, again[1] + 1
            again = again[0], at
        else:
            return False
    return all(each is None for each in tests[test:])


def _never(_: str) -> None:
    return None


class Selection:
    """The files of a folder that are sent to a sandbox.

    Args:
        exclude: More patterns of what is left out, as in a `.gitignore`.
        include: Patterns of what is sent all the same.
    """

    def __init__(self, exclude: Sequence[str] = (), include: Sequence[str] = ()) -> None:
        self._exclude, self._include = Patterns(exclude), Patterns(include)
        self.from_sandbox: set[str] = set()
        """Files that code has made; it may read and replace them, whatever their names."""

    def leaves_out(self, name: str, ignored: Sequence[tuple[int, Patterns]], *, is_folder: bool) -> bool:
        """Return whether a path is left out; `ignored` are the `.gitignore` files above it, with the depths of their folders."""
        if name in self.from_sandbox:
            return False
        parts = name.split("/")
        if (by_user := self._by_user(parts, is_folder=is_folder)) is not None:
            return by_user
        for depth, patterns in reversed(ignored):
            if (found := patterns.find(parts[depth:], is_folder=is_folder)) is not None:
                return found
        return False

    def protects(self, name: str) -> bool:
        """Return whether code must not replace the file of this name on the host, which it could not read."""
        parts = name.split("/")
        ends = range(1, len(parts) + 1)
        return name not in self.from_sandbox and any(
            self._by_user(parts[:end], is_folder=end < len(parts)) for end in ends
        )

    def _by_user(self, parts: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path is left out because of the options or the default lists; None if they do not mention it."""
        if self._include.find(parts, is_folder=is_folder):
            return False
        name = parts[-1].lower()
        if self._exclude.find(parts, is_folder=is_folder) or _is_secret(name) or _is_made(name):
            return True
        return None


def shown(names: Sequence[str]) -> str:
    """Return the sentence on what was left out, or nothing where it is only what Python itself makes."""
    named = [name for name in names if not name.endswith("__pycache__/")]
    if not named:
        return ""
    more = f" and {len(named) - MAX_SHOWN:,} more" if len(named) > MAX_SHOWN else ""
    return f"{', '.join(named[:MAX_SHOWN])}{more}"
