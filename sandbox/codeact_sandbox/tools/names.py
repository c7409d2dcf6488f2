"""Python names for the tools and parameters of JSON schemas."""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
import unicodedata
from collections.abc import Iterable


def identifier(text: str) -> str:
    """Return a Python name for a tool, similar to the text: it hides no builtin, and does not begin with an underscore."""
    name = _with_letters(text).lstrip("_")
    if not name.isidentifier():  # nothing is left, or it begins with a digit
        name = f"tool_{name}"
    return name if is_usable(name) else f"{name}_"


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names of one source's tools, with numbers where two would become the same Python name."""
    found: dict[str, str] = {}
    for name in names:
        forms = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        free = next(form for form in forms if identifier(form) not in found)
        found[identifier(free)] = free
    return list(found.values())


def parameter_name(key: str) -> str:
    """Return a Python name for a parameter, similar to its key."""
    name = _with_letters(key)
    if name.startswith("__"):  # Python treats these names specially
        name = _with_letters(name.lstrip("_"))
    return f"{name}_" if keyword.iskeyword(name) else name


def class_name(text: str) -> str:
    """Return a class name made from another name: `line items` becomes `LineItems`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", text) if part) or "Value"


def is_usable(name: str) -> bool:
    """Return whether it is an identifier that is neither a keyword nor a builtin."""
    return name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name)


def checked_name(name: str) -> str:
    """Return the name of a tool that its author has chosen."""
    if name.startswith("_"):
        raise ValueError(
            f"A tool can't be called `{name}`: names that begin with an underscore are private; rename it."
        )
    if not is_usable(name):
        raise ValueError(
            f"A tool can't be called `{name}`: in the sandbox that is a keyword or builtin of Python, or no identifier; "
            "rename it."
        )
    return name


def _with_letters(text: str) -> str:
    # Python normalizes identifiers to NFKC, and some letters of `re` are not identifier characters in it.
    text = unicodedata.normalize("NFKC", text)
    name = "".join(char if f"a{char}".isidentifier() else "_" for char in text) or "_"
    return name if name.isidentifier() else f"_{name}"
