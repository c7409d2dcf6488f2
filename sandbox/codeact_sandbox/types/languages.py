"""Languages of blocks: the command in the sandbox that runs each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Language:
    """How blocks of one language are run."""

    name: str  # its name, in lower case
    command: tuple[str, ...]  # the command in the image; the file name is appended
    extension: str  # extension of a block's file, without a dot
    aliases: tuple[str, ...] = ()  # other labels for it, in lower case
    # the beginnings of a comment, after which `filename:` may follow
    comments: tuple[str, ...] = ("#",)


_SLASHES = ("//", "/*")
_ANY_COMMENT = ("#", "//", "/*", "--", "<!--", ";", "%")

# Node strips types itself from 22.6 on, so TypeScript needs no package and no network.
_NODE_TYPES = ("node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning")

_BUILT_IN = (
    Language("python", ("python3",), "py", ("py", "python3", "py3", "ipython", "ipython3")),
    Language("sh", ("sh",), "sh", ("shell",)),
    Language("bash", ("bash",), "sh"),
    Language("zsh", ("zsh",), "zsh"),
    Language("fish", ("fish",), "fish"),
    Language("powershell", ("pwsh", "-File"), "ps1", ("pwsh", "ps1"), ("#", "<#")),
    Language("javascript", ("node",), "js", ("js", "node", "nodejs"), _SLASHES),
    Language("typescript", _NODE_TYPES, "ts", ("ts",), _SLASHES),
    Language("r", ("Rscript",), "R", ("rscript",)),
    Language("julia", ("julia",), "jl", ("jl",)),
    Language("ruby", ("ruby",), "rb", ("rb",)),
    Language("perl", ("perl",), "pl", ("pl",)),
    Language("php", ("php",), "php", (), (*_SLASHES, "#", "<!--")),
    Language("lua", ("lua",), "lua", (), ("--",)),
    Language("go", ("go", "run"), "go", ("golang",), _SLASHES),
    Language("java", ("java",), "java", (), _SLASHES),
    Language("swift", ("swift",), "swift", (), _SLASHES),
    Language("haskell", ("runghc",), "hs", ("hs",), ("--",)),
    Language("elixir", ("elixir",), "exs", ("exs",)),
    Language("octave", ("octave",), "m", (), ("%", "#")),
)

LANGUAGES: dict[str, Language] = {
    **{label: language for language in _BUILT_IN for label in (language.name, *language.aliases)},
    **{f"python3.{minor}": _BUILT_IN[0] for minor in range(100)},
}
"""The built-in languages by label; whether the image has the command is known when a block runs."""

_LABEL = re.compile(r"[^\s`]+")


def find_language(label: str, table: Mapping[str, Language] = LANGUAGES) -> Language | None:
    """Find the language of a block."""
    return table.get(label.strip().lower())


def labels(table: Mapping[str, Language]) -> set[str]:
    """Return all labels in a table: names and aliases."""
    return {label for language in table.values() for label in (language.name, *language.aliases)}


def merge(custom: Mapping[str, str | Sequence[str]] | None) -> dict[str, Language]:
    """Return a table of the built-in languages with the user's languages and commands, by label."""
    table = dict(LANGUAGES)
    for given, command in (custom or {}).items():
        label = given.strip().lower()
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{given!r} is not a label for a language; give one word such as 'julia'.")
        words = _command(given, command)
        known = table.get(label)
        if known is not None:
            changed = replace(known, command=words)
            table |= {label: changed for label, language in table.items() if language is known}
        else:
            extension = label if label.isalnum() and label.isascii() else "txt"
            table[label] = Language(label, words, extension, comments=_ANY_COMMENT)
    return table


def _command(label: str, command: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ValueError(f"The command for {label!r} can't be split into words: {error}.") from None
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise ValueError(f"The command for {label!r} is empty or has an empty word; give one such as ['julia'].")
    return tuple(words)
