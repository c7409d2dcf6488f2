"""Code that can't end where it ends: inside a here-document or a string, which may contain fences."""

import re
from typing import Literal

State = Literal["here-document", "string"]

_SHELL_LANGUAGES = frozenset(("bash", "sh", "zsh"))
_SHELL = re.compile(
    r"""\\.                                                        # an escaped character
    | \$'(?:\\.|[^'\\])*' | '[^']*' | "(?:\\.|[^"\\])*"         # strings
    | (?<![^\s;|&(])\#[^\n]*                                     # a comment
    | <<<
    | <<(?P<tabs>-?)[ \t]*(?:'(?P<single>[^'\n]+)'|"(?P<double>[^"\n]+)"|\\?(?P<plain>[A-Za-z_][\w.-]*))
    | \n""",
    re.VERBOSE | re.DOTALL,
)
_PYTHON = re.compile(
    r"""\#[^\n]*|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|(?P<open>\"{3}|'{3})
    |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""",
    re.VERBOSE | re.DOTALL,
)


def unfinished_code(language: str, code: str) -> State | None:
    """Return in what the code ends, or None if it can end there.

    Args:
        language: Its language, normalised.
        code: The code.
    """
    if language == "python":
        return "string" if any(match["open"] for match in _PYTHON.finditer(code)) else None
    return _unfinished_shell(code) if language in _SHELL_LANGUAGES else None


def _unfinished_shell(code: str) -> State | None:
    at, waiting = 0, []
    while match := _SHELL.search(code, at):
        at = match.end()
        word = match["single"] or match["double"] or match["plain"]
        if word and "((" not in code[code.rfind("\n", 0, at) + 1 : match.start()]:  # else it shifts bits
            waiting.append((word, bool(match["tabs"])))
        elif match[0] == "\n":
            for end, tabs in waiting:
                closing = re.compile(("^\t*" if tabs else "^") + re.escape(end) + "$", re.MULTILINE).search(code, at)
                if closing is None:
                    return "here-document"
                at = closing.end()
            waiting = []
    return "here-document" if waiting else None
