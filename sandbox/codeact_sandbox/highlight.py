"""Code as pieces with the classes of their tokens, in time that is linear in the code, whatever it is.

Each line is read once, from left to right, with one regular expression of tokens whose first character decides: each is a
delimiter, a comment up to the line's end, a number or a word. What a delimiter has opened lasts until what closes it, or ends at
the end of the line or of the text; it is never read again as something else.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

Kind = Literal["", "k", "nb", "nf", "m", "s", "c"]
"""Class of a piece: keyword, built-in name, name that is defined, number, string, comment. They are the short names of
Pygments, and the classes in CSS."""

MAX_CHARS = 32 * 1024  # characters of code that are read; all after them is plain text
MAX_LINE = 2_000  # characters of a line that is read; a longer one is plain text


class _Language(NamedTuple):
    quotes: str  # delimiters of strings that end with the line
    comment: str  # what begins a comment that ends with the line, as an expression
    # closing delimiters of strings and comments of several lines, with their classes, by what opens them
    long: dict[str, tuple[str, Kind]]
    keywords: frozenset[str]
    built_in: frozenset[str] = frozenset()  # names that the language defines


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HASH = r"(?<!\S)\#"  # `$#` and `${name#prefix}` are not comments
_NEVER = "(?!)"
_LANGUAGES = {
    "python": _Language(
        "\"'",
        r"\#",
        {'"""': ('"""', "s"), "'''": ("'''", "s")},
        frozenset((*keyword.kwlist, "case", "match")),
        frozenset((*dir(builtins), "self")),
    ),
    "bash": _Language(
        "\"'",
        _HASH,
        {},
        _words("case do done elif else esac fi for function if in select then until while"),
        _words(
            "alias cd echo eval exec exit export local printf pwd read return set shift source test trap umask unset"
        ),
    ),
    # All languages with such comments: what is a keyword in one of them is seldom a name in another.
    "javascript": _Language(
        "\"'",
        "//",
        {"`": ("`", "s"), "/*": ("*/", "c")},
        _words(
            "abstract as async await boolean break case catch char class const continue default delete do double else enum export"
            " extends false final finally float for from func function go if implements import in instanceof int interface"
            " let long namespace new nil null of package private protected public readonly return static struct"
            " super switch this throw true try type typeof undefined using val var void while yield"
        ),
        _words("Array Boolean Date Error JSON Map Math Number Object Promise RegExp Set String Symbol console require"),
    ),
    "json": _Language('"', _NEVER, {}, _words("false null true")),
}
_ALIASES = {
    **dict.fromkeys(("py", "py3", "python3", "ipython", "ipython3", "pycon"), "python"),
    **dict.fromkeys(("sh", "shell", "zsh"), "bash"),
    **dict.fromkeys(("js", "jsx", "node", "ts", "tsx", "typescript", "java", "kotlin", "swift"), "javascript"),
    **dict.fromkeys(("c", "c++", "cpp", "cs", "csharp", "go", "golang"), "javascript"),
    "jsonl": "json",
}
_DEFINING = frozenset(("class", "def", "func", "function", "interface", "struct"))
_NOTHING = re.compile(_NEVER)


class Highlighter:
    """Reads code line by line."""

    def __init__(self, language: str) -> None:
        name = _ALIASES.get(language.lower(), language.lower())
        self._language = _LANGUAGES.get(name)
        self._tokens = _tokens_of(name) if name in _LANGUAGES else _NOTHING
        self._inside: tuple[str, Kind] | None = None  # what ends the string or comment that goes on in the next line
        self._left = MAX_CHARS

    def line(self, line: str) -> list[tuple[Kind, str]]:
        """Return the pieces of the next line, whose texts together are the line."""
        self._left -= len(line) + 1
        if len(line) > MAX_LINE or self._left < 0 or not line:
            return [("", line)] if line else []
        found: list[tuple[Kind, str]] = []
        end = 0
        for kind, start, stop in self._read(line, self._language) if self._language is not None else ():
            if kind:
                found += [("", line[end:start]), (kind, line[start:stop])]
                end = stop
        return [piece for piece in (*found, ("", line[end:])) if piece[1]]

    def _read(self, line: str, language: _Language) -> Iterator[tuple[Kind, int, int]]:
        """Yield the class, begin and end of each token."""
        at, before = 0, ""
        if self._inside is not None:
            kind = self._inside[1]
            at = self._close(line, 0)
            yield kind, 0, at
        while found := self._tokens.search(line, at):
            start, at = found.span()
            token, group = found[0], found.lastgroup
            if group == "open":
                _, kind = self._inside = language.long.get(token, (token, "s"))
                at = self._close(line, at)
                if token not in language.long:
                    self._inside = None
                yield kind, start, at
            elif group == "word":
                yield _kind_of(token, before, language), start, at
            elif group is not None:
                yield ("c" if group == "c" else "m"), start, at
            before = token

    def _close(self, line: str, at: int) -> int:
        """Return where the string or comment ends that `at` is in."""
        assert self._inside is not None
        end = self._inside[0]
        for found in _end_of(end).finditer(line, at):
            if found[0] == end:
                self._inside = None
                return found.end()
        return len(line)


@cache
def _tokens_of(name: str) -> re.Pattern[str]:
    language = _LANGUAGES[name]
    openers = "|".join(map(re.escape, [*language.long, *language.quotes]))
    comment = rf"(?P<c>(?:{language.comment}).*)"
    return re.compile(rf"(?P<open>{openers})|{comment}|(?P<m>\d[\w.]*+)|(?P<word>[^\W\d]\w*+)|\\.")


@cache
def _end_of(end: str) -> re.Pattern[str]:
    return re.compile(re.escape(end) if end == "*/" else rf"\\.|{re.escape(end)}")


def _kind_of(word: str, before: str, language: _Language) -> Kind:
    if word in language.keywords:
        return "k"
    if before in _DEFINING:
        return "nf"
    return "nb" if word in language.built_in else ""


def pieces(code: str, language: str) -> list[tuple[Kind, str]]:
    """Return the pieces of code with their classes, whose texts together are the code."""
    highlighter = Highlighter(language)
    found: list[tuple[Kind, str]] = []
    for line in code.split("\n"):
        found += [*highlighter.line(line), ("", "\n")]
    grouped = groupby(found[:-1], key=itemgetter(0))
    return [(kind, "".join(text for _, text in group)) for kind, group in grouped]
