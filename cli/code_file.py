"""The code in a file for `codeact exec`: of a markdown file, a Python or shell script, or a notebook."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks
from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.json_file import parse_json
from autogen_codeact.sandbox.host.blocks import default_filename
from autogen_codeact.sandbox.types.languages import find_language
from autogen_codeact.sandbox.types.paths import WORKSPACE

SCRIPTS = {".py": "python", ".sh": "sh", ".bash": "bash"}
NOTEBOOK = ".ipynb"


@dataclass(frozen=True)
class CodeInFile:
    """One block of code.

    Args:
        language: Its language.
        code: The code.
        line: The line of the file, or of the notebook's cell, at which it begins; counted from 1.
        cell: Number of the notebook's cell, counted from 1 with all its cells; None for another file.
        script: Whether it is all of a script.
    """

    language: str
    code: str
    line: int = 1
    cell: int | None = None
    script: bool = False

    @property
    def file_in_sandbox(self) -> str | None:
        """Path of a script in the sandbox, unless the script chooses it; None for a block."""
        language = find_language(self.language) if self.script else None
        return f"{WORKSPACE}/{default_filename(self.code, language)}" if language is not None else None

    @property
    def place(self) -> str:
        """Where it is in the file."""
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}"

    def position(self, file: str, line: int) -> str:
        """Return a line of the code as a position in the file."""
        if self.cell is not None:
            return f"{file}, cell {self.cell}, line {line}"
        return f"{file}:{self.line + line - 1}"


def read_code(file: str) -> list[CodeInFile]:
    """Read the code of a file."""
    name = "standard input" if file == "-" else file
    kind = Path(file).suffix.lower()
    text = _read(file)
    if kind in SCRIPTS:
        found = [CodeInFile(SCRIPTS[kind], text, script=True)] if text.strip() else []
    elif kind == NOTEBOOK:
        found = _cells(text, name)
    else:
        found = _blocks(text, name)
    if not found:
        hint = (
            f" Blocks need a fence with a language, such as ```python. Files that end in {', '.join(SCRIPTS)} are scripts, and "
            f"{NOTEBOOK} a notebook; all others are read as markdown."
        )
        raise CommandError(f"{name}: no code blocks to run.{hint if kind not in (*SCRIPTS, NOTEBOOK) else ''}")
    return found


def _read(file: str) -> str:
    try:
        if file == "-":
            if sys.stdin.isatty():
                say("reading markdown from the terminal; Ctrl-D ends it")
            data = sys.stdin.buffer.read()
        else:
            data = Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    return data.decode("utf-8-sig", "replace")


def _blocks(text: str, name: str) -> list[CodeInFile]:
    """Return the blocks of a markdown file that can be run, and print why each of the others is skipped."""
    found = extract_code_blocks(text)
    for block in found:
        if not block.complete:
            raise CommandError(
                f"{name}: the block whose code begins at line {block.line} is never closed, so nothing was run. Close it."
            )
    chosen = []
    for block in found:
        if not block.language:
            reason = "a block without a language"
        elif block.language in OUTPUT_LABELS:
            reason = f"a block of output ({block.language})"
        elif find_language(block.language) is None:
            reason = f"{block.language} is not a language that the sandbox runs"
        else:
            chosen.append(CodeInFile(block.language, block.code, block.line))
            continue
        say(f"{name}:{block.line}: skipped, {reason}")
    return chosen


def _cells(text: str, name: str) -> list[CodeInFile]:
    """Return the code cells of a notebook that are not empty."""
    try:
        notebook = parse_json(text, name)
        cells = notebook["cells"]
        sources = [(cell["cell_type"], cell["source"]) for cell in cells]
    except (KeyError, TypeError):
        raise CommandError(
            f"{name} is not a notebook of version 4 (nbformat 4): open it in Jupyter and save it"
        ) from None
    metadata = notebook.get("metadata") or {}
    kernel = (metadata.get("kernelspec") or {}).get("language") or (metadata.get("language_info") or {}).get("name")
    language = str(kernel or "python").lower()
    if find_language(language) is None:
        raise CommandError(f"{name}: {language} is not a language that the sandbox runs")
    codes = [
        (number, "".join(map(str, source)) if isinstance(source, list) else str(source))
        for number, (kind, source) in enumerate(sources, 1)
        if kind == "code"
    ]
    return [CodeInFile(language, code, cell=number) for number, code in codes if code.strip()]
