"""From a code block to what the runner is asked, or to a refusal that the model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_core.code_executor import CodeBlock

from autogen_codeact.sandbox.files.filenames import safe_name
from autogen_codeact.sandbox.host.languages import Language, default_filename, filename_comment, find_language
from autogen_codeact.sandbox.host.protocol import MAX_PAYLOAD
from autogen_codeact.sandbox.result import ErrorInfo, ExecutionResult

MAX_CODE = MAX_PAYLOAD - 64 * 1024
SHELLS = ("sh", "bash")
REFUSALS = ("UnknownLanguage", "CodeTooLarge", "BadFilename")
"""Types of the errors of blocks that never ran."""
# What a shell leaves behind at its end, on descriptor 9: its directory, then its exported variables.
_KEEP_STATE = """trap '{ pwd -P; printf "\\000"; command -p env -0; } >&9 2>/dev/null' EXIT; . "$1" """


@dataclass(frozen=True)
class BlockRequest:
    """What the runner is asked.

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
    block: CodeBlock, *, session: bool, workspace: str, languages: Mapping[str, Language]
) -> BlockRequest | ExecutionResult:
    """Turn a block into a request.

    Args:
        block: The block.
        session: Whether it runs in a session.
        workspace: Path of the workspace in the sandbox.
        languages: The table of languages.

    Returns:
        The request, or a result that says why there is none.
    """
    language = find_language(block.language, languages)
    if language is None:
        known = ", ".join(sorted(languages))
        return _refusal(
            127, "UnknownLanguage", f"The language {block.language!r} can't be run here. Use one of: {known}."
        )
    code = block.code.encode("utf-8", "replace")
    if len(code) > MAX_CODE:
        return _refusal(
            1, "CodeTooLarge", f"The code has {len(code):,} bytes; at most {MAX_CODE:,} can be run at once."
        )
    comment = filename_comment(block.code, language)
    try:
        filename = safe_name(comment) if comment is not None else None
    except ValueError as error:
        outside = comment is not None and (comment.startswith("/") or ".." in comment.split("/"))
        why = "Filename is not in the workspace." if outside else "The `filename:` comment can't be followed."
        return _refusal(1, "BadFilename", f"{why} {error}")
    in_memory = session and (language.name == "python" or language.name in SHELLS)
    named = filename is not None
    if filename is None and not in_memory:
        filename = default_filename(block.code, language)
    path = f"{workspace}/{filename}" if filename is not None else None
    message = {"path": path, "command": _command(language, session), "keep_state": session and language.name in SHELLS}
    return BlockRequest(message, code, filename, named)


def _command(language: Language, session: bool) -> list[str] | None:
    """What to start with `{file}` for the code's file; None for the interpreter that is already warm."""
    if language.command == ("python3",) and language.name == "python":
        return None
    if session and language.name in SHELLS:
        return [*language.command, "-c", _KEEP_STATE, language.name, "{file}"]
    return [*language.command, "{file}"]


def _refusal(exit_code: int, kind: str, sentence: str) -> ExecutionResult:
    return ExecutionResult(exit_code, sentence, None, outcome="error", error=ErrorInfo(kind, sentence))
