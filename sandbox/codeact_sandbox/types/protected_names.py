"""Protected names, such as `.git`: programs on the host act on such files automatically, so they are not written back."""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import DEFAULT_IGNORABLE

logger = logging.getLogger("codeact_sandbox")

_VERSION_CONTROL = ".git .hg .svn .bzr .jj .sl"  # hooks, and settings that name programs
_HOOKS = """
    .githooks .husky .lefthook .lefthook.yml .lefthook.yaml lefthook.yml lefthook.yaml
    .pre-commit-config.yaml .pre-commit-config.yml
"""
# Read when a user changes into the folder, or logs in if it is a home.
_SHELLS = """
    .envrc .direnv .autoenv .autoenv.zsh .mise.toml mise.toml .mise .ssh .gitconfig
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc
    .xinitrc .xsession .xprofile .mailcap .tmux.conf .screenrc .psqlrc .sqliterc .my.cnf .netrc .curlrc .wgetrc
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login
"""
# Read by interpreters, package managers and tools of development when they start in the folder.
_TOOLS = """
    .rprofile .renviron .irbrc .pryrc .rspec .rubocop.yml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .bunfig.toml bunfig.toml
    .ghci .ocamlinit .octaverc .iex.exs .sbclrc .guile .perltidyrc .latexmkrc latexmkrc .pythonrc .pylintrc .cargo .bundle
    .mocharc.js .mocharc.cjs .eslintrc.js .eslintrc.cjs .prettierrc.js .prettierrc.cjs .babelrc.js .luacheckrc .nanorc .bazelrc
"""
# Read when the folder or a file in it is opened.
_EDITORS_AND_DEBUGGERS = """
    .vscode .idea .zed .fleet .vs .devcontainer .devcontainer.json .dir-locals.el .dir-locals-2.el
    .exrc .nvimrc .nvim.lua .vimrc .lvimrc .gdbinit .lldbinit .pdbrc .venv
"""
# Hooks, and servers that they start.
_CODING_AGENTS = """
    .agents .claude .cursor .mcp.json .codex .gemini .windsurf .continue .roo .kiro .aider.conf.yml
    .opencode opencode.json opencode.jsonc .qwen .crush.json crush.json
"""
PROTECTED = frozenset(
    " ".join((_VERSION_CONTROL, _HOOKS, _SHELLS, _TOOLS, _EDITORS_AND_DEBUGGERS, _CODING_AGENTS)).split()
)
GIT = ".git"
# Windows' file systems give long names such short names.
_SHORT_NAME = re.compile(r"([^~]{1,6})~\d+(\..{0,3})?", re.DOTALL)
# Case-folding file systems also ignore these, besides format characters and marks.
_INVISIBLE = re.compile(f"[{DEFAULT_IGNORABLE}]")
# Entries that make any folder a git repository.
_HEAD, _COMMON_FOLDER, _FOLDERS = "HEAD", "commondir", ("objects", "refs")


def _short_stem(name: str) -> str:
    stem, dot, _ = name.lstrip(".").rpartition(".")
    return (stem if dot else name.lstrip(".")).replace(".", "")[:6]


_SHORT_STEMS = {_short_stem(name): name for name in sorted(PROTECTED)}


@lru_cache(maxsize=8192)
def protected_name(part: str) -> str | None:
    """Find the protected name that some file system treats a name as.

    Some ignore case, invisible characters, and dots and spaces at the end, or have streams and short names.
    """
    plain = _plain(part)
    if plain in PROTECTED:
        return plain
    short = _SHORT_NAME.fullmatch(plain)
    return _SHORT_STEMS.get(short[1]) if short is not None else None


def _plain(part: str) -> str:
    part = part.casefold()
    if not part.isascii():
        # Such a form may have capitals again.
        part = _INVISIBLE.sub("", unicodedata.normalize("NFKD", part).casefold())
        part = "".join(character for character in part if unicodedata.category(character) not in ("Cf", "Mn"))
    return part.partition(":")[0].rstrip(" .")


class ProtectedNames:
    """The names that are not written back: all protected ones except those that the user allows.

    Args:
        allowed: Names such as `.git`, or patterns such as `.*`, of protected names that are written back. Default none.

    Raises:
        TypeError: It is one string, or one of them is something else.
        ValueError: One is not a protected name and matches none.
    """

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        if isinstance(allowed, str):
            raise TypeError(f"write_back is one string: give a list, [{allowed!r}]")
        self.allowed = tuple(allowed)
        self._refused = PROTECTED
        for pattern in self.allowed:
            if not isinstance(pattern, str):
                raise TypeError(f"write_back holds names such as '.git', not {pattern!r}")
            found = {name for name in PROTECTED if fnmatchcase(name, pattern.casefold())}
            if not found:
                raise ValueError(
                    f"write_back contains {pattern!r}, which is not a protected name: remove it, because all other names are "
                    f"written back anyway. Protected names: {', '.join(sorted(PROTECTED))}"
                )
            self._refused -= found

    def refused_part(self, name: str) -> str | None:
        for part in name.split("/"):
            found = protected_name(part)
            if found is not None and found in self._refused:
                return found
        return None

    def makes_repository(self, folder: int, part: str) -> bool:
        """Return whether another entry makes a folder a git repository: git accepts such a folder by any name."""
        if GIT not in self._refused:
            return False
        new = _plain(part)

        def exists(name: str) -> bool:
            if new == name.casefold():
                return True
            with suppress(OSError):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                return True
            return False

        return exists(_HEAD) and (exists(_COMMON_FOLDER) or all(map(exists, _FOLDERS)))

    def existing(self, folder: Path) -> list[str]:
        """List the protected names in a folder, to be mounted read-only; nothing can be mounted over a link, which is logged."""
        found = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if self.refused_part(entry.name) is None:
                    continue
                if entry.is_symlink():
                    logger.warning(
                        "%s can be replaced by code: it is a symbolic link, and can't be read-only", entry.path
                    )
                else:
                    found.append(entry.name)
        return sorted(found)


class ProtectedNameError(SandboxFileError):
    """A file was not stored because of its name; the message says how to allow it."""


def not_written_back(name: str) -> str:
    return (
        f"`{name}` is not written back, because programs on the host act on it automatically. "
        f"The executor's option write_back=[{name!r}] allows it."
    )
