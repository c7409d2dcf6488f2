"""Languages of blocks: the command in the sandbox that runs each, and the name of a block's file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256


@dataclass(frozen=True)
class Language:
    """How blocks of one language are run.

    Args:
        name: Its name, in lower case.
        command: The command in the image; the file name is appended.
        extension: Extension of a block's file, without a dot.
        aliases: Other labels for it, in lower case.
        comments: The beginnings of a comment, after which `filename:` may follow.
    """

    name: str
    command: tuple[str, ...]
    extension: str
    aliases: tuple[str, ...] = ()
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

LANGUAGES: dict[str, Language] = {language.name: language for language in _BUILT_IN}
"""The built-in languages; whether the image has the command is known when a block runs."""

_PYTHON_3 = re.compile(r"python3\.\d+")
_LABEL = re.compile(r"[^\s`]+")
_FILENAME = re.compile(r"\s*filename:(.*)")
_COMMENT_ENDS = ("*/", "-->", "#>")


def find_language(label: str, table: Mapping[str, Language] = LANGUAGES) -> Language | None:
    """Find the language of a block.

    Args:
        label: The label of a markdown fence, in any case.
        table: The languages; see `merge`.

    Returns:
        The language, or None if the table does not have it.
    """
    label = label.strip().lower()
    if label in table:
        return table[label]
    if _PYTHON_3.fullmatch(label):
        label = "python3"
    return next((language for language in table.values() if label in language.aliases), None)


def labels(table: Mapping[str, Language]) -> set[str]:
    """Return all labels in a table: names and aliases."""
    return {label for language in table.values() for label in (language.name, *language.aliases)}


def merge(custom: Mapping[str, str | Sequence[str]] | None) -> dict[str, Language]:
    """Return a table of the built-in languages with the user's languages and commands.

    Args:
        custom: Commands by label, each as a list or as one string that is split as by a shell.

    Raises:
        ValueError: A label or a command can't be used.
    """
    table = dict(LANGUAGES)
    for given, command in (custom or {}).items():
        label = given.strip().lower()
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{given!r} is no label for a language; give one word such as 'julia'.")
        words = _command(given, command)
        known = find_language(label, table)
        if known is not None:
            table[known.name] = replace(known, command=words)
        else:
            extension = label if label.isalnum() and label.isascii() else "txt"
            table[label] = Language(label, words, extension, comments=_ANY_COMMENT)
    return table


def filename_comment(code: str, language: Language) -> str | None:
    """Return the file name that the first line requests, as in `# filename: plot.py`.

    The second line counts if the first is such as `#!/bin/sh` or `<?php`.

    Args:
        code: The block.
        language: Its language, for the style of its comments.

    Returns:
        The unchecked name, possibly empty or unsafe; None if there is no such line.
    """
    first, _, rest = code.partition("\n")
    if first.startswith(("#!", "<?php")):
        first = rest.partition("\n")[0]
    for opening in language.comments:
        if first.startswith(opening):
            match = _FILENAME.fullmatch(first[len(opening) :].rstrip())
            if match is not None:
                name = match[1].strip()
                for end in _COMMENT_ENDS:
                    name = name.removesuffix(end)
                return name.strip()
    return None


def default_filename(code: str, language: Language) -> str:
    """Return the name of a block's file if it requests none: `tmp_code_`, the block's SHA-256 and the extension.

    Args:
        code: The block.
        language: Its language.
    """
    # Lone surrogates in a model's code can't be encoded strictly, and must not prevent the block from running.
    digest = sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
    return f"tmp_code_{digest}.{language.extension}"


def _command(label: str, command: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ValueError(f"The command for {label!r} can't be split into words: {error}.") from None
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise ValueError(f"The command for {label!r} is empty or has an empty word; give one such as ['julia'].")
    return tuple(words)
