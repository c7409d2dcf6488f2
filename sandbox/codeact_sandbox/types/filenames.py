"""Checks of the names of files in the workspace, which must be safe on the host and in the sandbox."""

from __future__ import annotations

import re
import unicodedata

MAX_COMPONENT_BYTES = 255
MAX_NAME_BYTES = 4000  # stays under PATH_MAX (4096) with `/workspace/` in front
MAX_DEPTH = 64  # a scan of the workspace has one descriptor open per level
PART_PREFIX = ".codeact-part-"  # files that are being written on the host have such names until they are complete
# Variation selectors, of Unicode's property Variation_Selector.
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_OTHERS = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
# Characters that programs show as nothing, of Unicode's property Default_Ignorable_Code_Point, as ranges of an expression.
DEFAULT_IGNORABLE = _SELECTORS + _OTHERS
_BLANK = "\u2800\U00016fe4\U0001d159"  # symbols without anything to see; spaces are not printable for Python
_INVISIBLE = re.compile(f"[{DEFAULT_IGNORABLE}{_BLANK}]")
# A selector has no effect after most of ASCII, a space or another one; before the first character of a part can be anything.
_INVISIBLE_IN_TEXT = re.compile(f'[{_OTHERS}{_BLANK}]|(?<=[\x00-"$-)+-/:-\x7f\\s{DEFAULT_IGNORABLE}])[{_SELECTORS}]')
_BRAILLE = re.compile("[\u2801-\u28ff]")
# Joiners are invisible too, but several scripts and most emoji need them.
_KEPT_IN_TEXT = "\n\t\xa0\u3000\u200c\u200d"


def safe_name(name: str) -> str:
    if not name.strip():
        raise ValueError("The file name is empty; give a name such as `script.py`.")
    shown = printable(name if len(name) <= 80 else name[:77] + "...")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"The file name `{shown}` is not valid Unicode; use plain letters and digits.") from None
    if not name.isprintable() and any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in name):
        raise ValueError(f"The file name `{shown}` has a control character in it; leave it out.")
    if name.startswith("/"):
        raise ValueError(f"The file name `{shown}` is absolute; give one relative to the workspace.")
    if name.endswith(("/", "/.")):
        raise ValueError(f"The file name `{shown}` names a folder; add a file name.")
    if size > MAX_NAME_BYTES:
        raise ValueError(f"The file name `{shown}` is {size} bytes long; at most {MAX_NAME_BYTES} are allowed.")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if not parts:
        raise ValueError(f"The file name `{shown}` is the workspace itself; give the name of a file in it.")
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"The file name `{shown}` is {len(parts)} levels deep; at most {MAX_DEPTH} are allowed.")
    for part in parts:
        _check_component(part, shown)
    return "/".join(parts)


def _check_component(part: str, shown: str) -> None:
    if part == "..":
        raise ValueError(f"The file name `{shown}` has `..` in it, which could leave the workspace.")
    if part.startswith("-"):
        raise ValueError(f"The file name `{shown}` has a part that begins with `-`, which commands take for an option.")
    if "\\" in part:
        raise ValueError(f"The file name `{shown}` has a backslash in it; use forward slashes.")
    if part.startswith(PART_PREFIX):
        raise ValueError(f"The file name `{shown}` has a part that begins with `{PART_PREFIX}`, which is reserved.")
    if len(part.encode()) > MAX_COMPONENT_BYTES:
        raise ValueError(f"The file name `{shown}` has a part of more than {MAX_COMPONENT_BYTES} bytes; shorten it.")


def printable(text: str, keep: str = "") -> str:
    """Make untrusted text safe for any terminal, log, model or decision, as one line.

    Controls, line ends, bidirectional characters, unassigned ones, lone surrogates, and all that Unicode says is invisible become
    escapes.
    """
    return _escaped(text, _INVISIBLE, keep)


def printable_text(text: str, keep: str = "") -> str:
    """Make untrusted text of several lines safe, as `printable` does, except for what ordinary text needs.

    Kept are line ends, tabs, spaces of fixed width, joiners, variation selectors where they select, and blanks among braille.
    """
    blank = "\u2800" if not text.isascii() and _BRAILLE.search(text) else ""
    return _escaped(text, _INVISIBLE_IN_TEXT, f"{_KEPT_IN_TEXT}{blank}{keep}")


def _escaped(text: str, invisible: re.Pattern[str], keep: str) -> str:
    if not text.isascii():
        text = invisible.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def is_safe(name: str) -> bool:
    """Whether a file of this name can be on the host."""
    try:
        return safe_name(name) == name
    except ValueError:
        return False
