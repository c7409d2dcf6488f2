"""A block: the request to the runner, or a refusal that the model can act on, its run, and the result from the reply."""

from __future__ import annotations

import itertools
import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar, get_args

from codeact_sandbox.host.connection import Reply
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.filenames import safe_name
from codeact_sandbox.types.languages import LANGUAGES, Language, find_language
from codeact_sandbox.types.limits import MAX_PAYLOAD
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.paths import WORKSPACE
from codeact_sandbox.types.result import STOPPED, Artifact, ErrorInfo, Outcome, Result, State, last_line
from codeact_sandbox.types.run_context import CodeAndLanguage

MAX_CODE = MAX_PAYLOAD - 64 * 1024
SHELLS = ("sh", "bash")
SHELL_NAME = len("tmp_code_") + 8  # characters of a script's name in a session: hidden, and short in messages
REFUSALS = ("UnknownLanguage", "CodeTooLarge", "BadFilename")  # types of the errors of blocks that never ran

_FILENAME = re.compile(r"\s*filename:(.*)")
_COMMENT_ENDS = ("*/", "-->", "#>")
_MAX_NAMED = 1000  # characters of a comment in which a remark is looked for
_QUOTED = re.compile(r"([`\"'*]{1,3})(.+?)\1.*")
_EXTENSION = r"\.[A-Za-z]\w{0,9}"
# What follows a name with an extension, unless it is the rest of a name with spaces.
_REMARKED = re.compile(rf"(.+?{_EXTENSION})[\s,;]+(?:[(\[#\u2013\u2014-].*|(?!.*{_EXTENSION}$).*)")

R = TypeVar("R", bound=Result)
_OUTCOMES = {outcome: outcome for outcome in get_args(Outcome)}
_STATES = {state: state for state in get_args(State)}  # from the best to the worst


@dataclass(frozen=True)
class BlockRequest:
    message: dict[str, Any]
    code: bytes
    filename: (
        str | None
    )  # file in the workspace that holds the code; None if there is none, or only while the block runs


def check_block(block: object) -> None:
    for name, example in (("code", "print(1)"), ("language", "python")):
        if not hasattr(block, name):
            raise TypeError(
                f"a block has `code` and `language`, such as CodeBlock(code=…, language=…); got {block!r:.50}"
            )
        if not isinstance(text := getattr(block, name), str):
            raise TypeError(f"{name} must be a string, such as {example!r}, not {text!r:.50} ({type(text).__name__})")


def make_request(
    block: CodeAndLanguage,
    options: SandboxOptions,
    *,
    scan: bool = False,
    of_caller: bool = True,
) -> BlockRequest | Result:
    """Make the request for a block, or a result with the reason why it can't be run.

    With `scan` the reply lists the changed files. A block not `of_caller` has no limit of processor time, and leaves no file.
    """
    code, label, session = block.code, block.language, options.mode == "session"
    language = find_language(label)
    if language is None:
        others = ", ".join(sorted({each.name for each in LANGUAGES.values()} - {"python", "sh"}))
        return _refusal(
            127,
            "UnknownLanguage",
            f"The language {label[:100]!r} can't be run here. Use python or sh, or what the image has a command for: {others}.",
        )
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
    keep_state = session and language.name in SHELLS
    # Python's interpreter already runs.
    command = [*language.command, "{file}"] if language.name != "python" else None
    named = filename is not None
    if filename is None and keep_state:
        filename = "." + default_filename(code, language)[:SHELL_NAME] + ".sh"
    elif filename is None and not (session and language.name == "python"):
        filename = default_filename(code, language)
    path = f"{WORKSPACE}/{filename}" if filename is not None else None
    cpu_seconds = options.limits.cpu_seconds if of_caller else None
    message = {"path": path, "command": command, "keep_state": keep_state, "scan": scan, "cpu_seconds": cpu_seconds}
    if filename is not None:
        message["hide"] = path
        message["delete"] = not named and (session or options.autogen.delete_tmp_files or not of_caller)
    return BlockRequest(message, encoded, None if keep_state and not named else filename)


def filename_comment(code: str, language: Language) -> str | None:
    """Return the file name that the first line requests, as in `# filename: plot.py`.

    The second line counts if the first is such as `#!/bin/sh` or `<?php`.
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
                return _name_in(name.strip())
    return None


def _name_in(text: str) -> str:
    """Return a name without the quotes and the remark that models add to it."""
    if len(text) > _MAX_NAMED:
        return text
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        return quoted[2].strip()
    remarked = _REMARKED.fullmatch(text)
    return remarked[1] if remarked is not None else text


def default_filename(code: str, language: Language) -> str:
    """Return the name of a block's file if it requests none: `tmp_code_`, the block's SHA-256 and the extension."""
    # Lone surrogates in a model's code can't be encoded strictly, and must not prevent the block from running.
    digest = sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
    return f"tmp_code_{digest}.{language.extension}"


def _refusal(exit_code: int, kind: str, sentence: str) -> Result:
    return Result(exit_code, sentence, outcome="error", error=ErrorInfo(kind, sentence))


def to_result(reply: Reply) -> Result:
    """Make the result of one block, without its files."""
    message = reply.message
    try:
        dropped, tail = int(message["dropped"][0]), int(message["tail"][0])
        data = reply.streams.get(wire.STDOUT, bytearray())
        head = len(data) - tail if dropped else len(data)
        text = data[:head].decode("utf-8", "replace")
        if dropped:
            text += f"\n[... {dropped:,} bytes dropped ...]\n{data[head:].decode('utf-8', 'replace')}"
        displays: tuple[Display, ...] = ()
        if reply.displays.kept:
            displays = reply.displays.placed(partial(_text_offset, data, head, dropped))
        if message["outcome"] == "cancel":
            message = {**message, "outcome": "crashed", "exit_code": 130, "error": vars(STOPPED)}
        error = message["error"]
        outcome, state = _OUTCOMES[message["outcome"]], _STATES[message["state"]]
        return Result(
            exit_code=int(message["exit_code"]),
            output=text + last_line(outcome, state),
            outcome=outcome,
            value=reply.value,
            value_repr=None if message["value"] is None else _text_of(message["value"]),
            error=_error_info(error) if error else None,
            duration_s=float(message["duration_s"]),
            cpu_s=float(message["cpu_s"]),
            peak_memory=int(message["peak_memory"]),
            truncated=dropped,
            state=state,
            number=int(message["number"]),
            restored_before=int(message["before"] or 0),
            notes=tuple(map(_text_of, message["notes"])),
            displays=displays,
        )
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as problem:
        raise SandboxProtocolError(f"the sandbox sent a malformed result: {problem!r}") from problem


def _text_offset(data: bytearray, head: int, dropped: int, at: int) -> int | None:
    """Return where in the text of an output something is that has an offset in its bytes, or None if it was cut there."""
    if dropped and at > head:
        return None
    return len(data[:at].decode("utf-8", "replace"))


def _text_of(value: Any) -> str:
    """Return text that UTF-8 can encode: lone surrogates, which JSON can contain, become escapes."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _error_info(error: Mapping[str, Any]) -> ErrorInfo:
    line = error["line"]
    return ErrorInfo(_text_of(error["type"]), _text_of(error["message"]), None if line is None else int(line))


def artifact(entry: dict[str, Any], **more: Any) -> Artifact:
    name = str(entry["name"])
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Artifact(name, int(entry["size"]), media_type, **more)


def combine(results: Sequence[R]) -> R:
    """Combine the results of several blocks as AutoGen's executors do."""
    if len(results) == 1:
        return results[0]
    last = results[-1]
    files = {item.name: item for result in results for item in result.artifacts}
    starts = itertools.accumulate((len(result.output) for result in results), initial=0)
    displays = [
        replace(each, offset=None if each.offset is None else start + each.offset)
        for start, result in zip(starts, results, strict=False)
        for each in result.displays
    ]
    return replace(
        last,
        output="".join(result.output for result in results),
        code_file=next((result.code_file for result in results if result.code_file), None),
        duration_s=sum(result.duration_s for result in results),
        cpu_s=sum(result.cpu_s for result in results),
        peak_memory=max(result.peak_memory for result in results),
        truncated=sum(result.truncated for result in results),
        artifacts=tuple(files.values()),
        tool_calls=tuple(call for result in results for call in result.tool_calls),
        connections=tuple(each for result in results for each in result.connections),
        state=max((result.state for result in results), key=list(_STATES).index),
        notes=tuple(note for result in results for note in result.notes),
        displays=tuple(displays),
        files_before=None,
    )
