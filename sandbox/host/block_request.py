"""Turns code into a request to the runner, or into a refusal that the model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_codeact.sandbox.files.filenames import safe_name
from autogen_codeact.sandbox.host.languages import Language, default_filename, filename_comment, find_language
from autogen_codeact.sandbox.host.protocol import MAX_PAYLOAD
from autogen_codeact.sandbox.result import ErrorInfo, Result

MAX_CODE = MAX_PAYLOAD - 64 * 1024
SHELLS = ("sh", "bash")
REFUSALS = ("UnknownLanguage", "CodeTooLarge", "BadFilename")
"""Types of the errors of blocks that never ran."""
# What a shell leaves behind at its end, on descriptor 9: its directory, then its exported variables.
_KEEP_STATE = """trap '{ pwd -P; printf "\\000"; command -p env -0; } >&9 2>/dev/null' EXIT; . "$1" """


@dataclass(frozen=True)
class BlockRequest:
    """A request to the runner.

    Args:
        message: The request.
        code: The code.
        filename: File in the workspace that holds the code, or None.
        named: Whether the code itself chose that name.
    """

    message: dict[str, Any]
    code: bytes
    filename: str | None
    named: bool


def make_request(
    code: str, label: str, *, session: bool, workspace: str, languages: Mapping[str, Language]
) -> BlockRequest | Result:
    """Turn code into a request.

    Args:
        code: The code.
        label: Name of its language, or an alias.
        session: Whether it runs in a session.
        workspace: Path of the workspace in the sandbox.
        languages: The table of languages.

    Returns:
        The request, or a result with the reason why the code can't be run.
    """
    language = find_language(label, languages)
    if language is None:
        known = ", ".join(sorted(languages))
        return _refusal(127, "UnknownLanguage", f"The language {label[:100]!r} can't be run here. Use one of: {known}.")
    encoded = code.encode("utf-8", "replace")
    if len(encoded) > MAX_CODE:
        return _refusal(
            1, "CodeTooLarge", f"The code has {len(encoded):,} bytes; at most {MAX_CODE:,} can be run at once."
        )
    comment = filename_comment(code, language)
    try:
        filename = safe_name(comment) if comment is not None else None
    except ValueError as error:
        outside = comment is not None and (comment.startswith("/") or ".." in comment.split("/"))
        why = "Filename is not in the workspace." if outside else "The `filename:` comment can't be followed."
        return _refusal(1, "BadFilename", f"{why} {error}")
    in_memory = session and (language.name == "python" or language.name in SHELLS)
    named = filename is not None
    if filename is None and not in_memory:
        filename = default_filename(code, language)
    path = f"{workspace}/{filename}" if filename is not None else None
    message = {"path": path, "command": _command(language, session), "keep_state": session and language.name in SHELLS}
    return BlockRequest(message, encoded, filename, named)


def _command(language: Language, session: bool) -> list[str] | None:
    """Return the command, with `{file}` for the code's file, or None for the interpreter that already runs."""
    if language.command == ("python3",) and language.name == "python":
        return None
    if session and language.name in SHELLS:
        return [*language.command, "-c", _KEEP_STATE, language.name, "{file}"]
    return [*language.command, "{file}"]


def _refusal(exit_code: int, kind: str, sentence: str) -> Result:
    return Result(exit_code, sentence, outcome="error", error=ErrorInfo(kind, sentence))
