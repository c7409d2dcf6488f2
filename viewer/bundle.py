"""Joins the modules and the style sheet of the viewer's page into one page that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_STYLE = re.compile(r'<link rel="stylesheet" href="__BASE__/page/style\.css"[^>]*>\n?')
_ENTRY = re.compile(r'<script type="module" src="__BASE__/page/app\.js"[^>]*></script>\n?')
_TITLE = re.compile(r"<title>[^<]*</title>\n?")
_CHARSET = '<meta charset="utf-8">\n'
NONCE = "__NONCE__"
"""Stands in the head for a random text that the writer of a page chooses."""
_REPLACED = {"data.js": "data_inline.js"}
"""Modules that have another one in their place, with the same exports."""
_NAMES = r"\{([^{}]*)\}"
_IMPORT = re.compile(rf'^import (?:{_NAMES} from )?"\./([\w-]+\.js)";[ \t]*$', re.MULTILINE)
_EXPORTED = re.compile(r"^export (?=(?:async function|function\*?|class|const)[ *]+([\w$]+))", re.MULTILINE)
_EXPORT_LIST = re.compile(rf"^export {_NAMES};[ \t]*$", re.MULTILINE)
_LEFT = re.compile(r"^[ \t]*(?:import|export)\b.*|\bimport\s*\(.*|\bimport\.meta\b.*|^await\b.*", re.MULTILINE)
_ENDS_SCRIPT = re.compile(r"</script|<!--", re.IGNORECASE)


class BundleError(ValueError):
    """A module of the page is not of the form that can be joined with others."""


@dataclass(frozen=True)
class Shell:
    """The page without a run.

    Args:
        head: Everything up to where the run's data go, but for the title; `NONCE` is to be replaced.
        tail: Everything after the data.
    """

    head: str
    tail: str


@cache
def one_page() -> Shell:
    """Return the page with its style sheet and its modules inside.

    Raises:
        BundleError: A file of the page is not of the expected form.
    """
    index, style, script = _read("index.html"), _read("style.css"), bundle("app.js")
    if "</style" in style.lower() or "url(" in style or "@import" in style:
        raise BundleError("style.css loads something, or ends its element.")
    # The policy comes before everything that it is about.
    meta = f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
    page = _put(index, re.compile(_CHARSET), f"{_CHARSET}{meta}")
    page = _put(page, _ENTRY, "")
    page = _put(page, _TITLE, "")
    page = _put(page, _STYLE, f'<style nonce="{NONCE}">\n{style}</style>\n')
    if "__BASE__" in page:
        raise BundleError("index.html loads something beside style.css and app.js.")
    head, _, tail = page.partition("</body>")
    return Shell(head, f'<script type="module">{script}</script>\n</body>{tail}')


def _put(page: str, place: re.Pattern[str], text: str) -> str:
    """Put a text in the only place that a pattern finds."""
    page, count = place.subn(lambda found: text, page)
    if count != 1:
        raise BundleError(f"index.html has {count} places like {place.pattern}; it needs one.")
    return page


def _policy(script: str) -> str:
    """Return the content security policy: one script, styles with a nonce, and nothing from anywhere else.

    Frames with HTML that code has shown inherit it; the page gives their styles the nonce, after removing all that loads.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'nonce-{NONCE}'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    try:
        return (files("autogen_codeact.viewer") / "page" / name).read_text(encoding="utf-8")
    except OSError as error:
        raise BundleError(f"The page has no file {name}: {error.strerror}.") from error


def bundle(entry: str, read: Callable[[str], str] = _read) -> str:
    """Return a module and all that it imports as one script.

    Each module becomes a function that returns its exports, so equal names in two of them do not meet.

    Args:
        entry: Its name in the folder of the page.
        read: Returns the text of a module. Default: from that folder.

    Raises:
        BundleError: A module uses a form of import or export other than those that the page's modules keep to, or there is a
            cycle.
    """
    done: dict[str, str] = {}
    _add(entry, done, (), read)
    script = "".join(done.values())
    if _ENDS_SCRIPT.search(script):
        raise BundleError("A module has the text </script or <!--, which would end its element.")
    return f"\n{script}"


def _add(name: str, done: dict[str, str], above: tuple[str, ...], read: Callable[[str], str]) -> None:
    if name in above:
        raise BundleError(f"The modules {', '.join(above[above.index(name) :])} import each other in a cycle.")
    source = read(_REPLACED.get(name, name))
    for found in _IMPORT.finditer(source):
        if found[2] not in done:
            _add(found[2], done, (*above, name), read)
    exports = [name if name == inside else f"{name}: {inside}" for inside, name in _exports(source)]
    source = _IMPORT.sub(lambda found: _taken(found[1], found[2]), source)
    source = _EXPORT_LIST.sub("", _EXPORTED.sub("", source))
    if left := _LEFT.search(source):
        raise BundleError(f"{name} has a line that can't be joined with other modules: {left[0].strip()[:80]}")
    done[name] = f"const {_variable(name)} = (() => {{\n{source}\nreturn {{ {', '.join(exports)} }};\n}})();\n"


def _exports(source: str) -> Iterator[tuple[str, str]]:
    """Return the name of each export in its module, and the one that others import."""
    for found in _EXPORTED.finditer(source):
        yield found[1], found[1]
    for found in _EXPORT_LIST.finditer(source):
        yield from _pairs(found[1])


def _taken(names: str | None, module: str) -> str:
    """Return the statement for an import; a module without names was only to be run."""
    taken = [name if name == own else f"{name}: {own}" for name, own in _pairs(names or "")]
    return f"const {{ {', '.join(taken)} }} = {_variable(module)};" if taken else ""


def _pairs(names: str) -> Iterator[tuple[str, str]]:
    """Return the two names of each part of `a, b as c`."""
    for part in filter(None, (part.strip() for part in names.split(","))):
        name, _, other = part.partition(" as ")
        yield name.strip(), other.strip() or name.strip()


def _variable(module: str) -> str:
    return f"module_{module.removesuffix('.js').replace('-', '_')}"
