"""`codeact exec`: run the code of a markdown file, a script or a notebook."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tokenize
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.environment import hints_for
from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks
from autogen_codeact.agents.observation import outcome_summary
from autogen_codeact.cli.models import parse_json
from autogen_codeact.cli.output import CommandError, in_options, print_json, run_until_interrupted, say
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import remarks
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox import OutputChunk
from codeact_sandbox.host.blocks import default_filename
from codeact_sandbox.types.languages import find_language
from codeact_sandbox.types.paths import WORKSPACE
from codeact_sandbox.types.text import format_count

SCRIPTS = {".py": "python", ".sh": "sh", ".bash": "bash"}
NOTEBOOK = ".ipynb"
FOLDER = "codeact-files"


def run_file(file: str, choice: SandboxChoice, *, as_json: bool, keep_going: bool, quiet: bool) -> int:
    """Run the code of a file, up to the first block that fails."""
    name = "standard input" if file == "-" else file
    if Path(file).suffix.lower() in SCRIPTS:
        choice = replace(choice, others=["mode=process", *(choice.others or ())])
    blocks = read_code(file)
    with _keeping_files(choice) as kept:
        return run_until_interrupted(_run(blocks, name, kept, as_json=as_json, keep_going=keep_going, quiet=quiet))


async def _run(
    blocks: list[CodeInFile], name: str, choice: SandboxChoice, *, as_json: bool, keep_going: bool, quiet: bool
) -> int:
    terminal = None if as_json else Terminal()
    status = 0
    async with started(choice) as executor:
        for index, block in enumerate(blocks, 1):
            if terminal is not None and not quiet:
                terminal.line(f"[{index}/{len(blocks)}] {block.language}, {block.place}", "cyan", bold=True)
            try:
                result = await _run_block(executor, block, terminal, name)
            except asyncio.CancelledError as error:
                if terminal is None and (killed := getattr(error, "result", None)) is not None:
                    print_json(_to_object(index, block, killed))
                raise
            if terminal is None:
                print_json(_to_object(index, block, result))
            elif result.exit_code != 0 or not quiet:
                hints = [hint.for_person for hint in hints_for(result, executor.known_facts)]
                if result.outcome == "timeout":
                    hints.append(f"Hint: a block may take {choice.timeout:g} s. --timeout SECONDS sets another limit.")
                _show(terminal, name, block, result, hints)
            if result.exit_code != 0 and not block.may_fail:
                status = status or result.exit_code & 0xFF or 1
                if not keep_going:
                    if left := len(blocks) - index:
                        say(f"stopped at the first failing block; {format_count(left, 'block')} after it did not run")
                    break
    return status


async def _run_block(
    executor: SandboxCodeExecutor, block: CodeInFile, terminal: Terminal | None, name: str
) -> ExecutionResult:
    """Run a block; print its output while it runs, with a script's name in the place of its path."""
    code, path, shown = CodeBlock(code=block.code, language=block.language), block.file_in_sandbox, 0

    def show(text: str) -> None:
        if terminal is not None:
            terminal.output(text.replace(path, name) if path is not None else text)

    try:
        async with aclosing(executor.execute_stream([code], CancellationToken())) as events:
            async for event in events:
                if isinstance(event, OutputChunk):
                    show(event.text)
                    shown += len(event.text)
                else:
                    result = event
    except asyncio.CancelledError as error:
        if (killed := getattr(error, "result", None)) is not None:
            show(killed.output[shown:])
        raise
    finally:
        if terminal is not None:
            terminal.end_output()
    return result


def _to_object(index: int, block: CodeInFile, result: ExecutionResult) -> dict[str, Any]:
    files = [{**asdict(file), "path": str(file.path) if file.path is not None else None} for file in result.artifacts]
    fields = (
        "exit_code",
        "outcome",
        "output",
        "value_repr",
        "duration_s",
        "cpu_s",
        "peak_memory",
        "truncated",
        "state",
        "notes",
    )
    return {
        "index": index,
        "language": block.language,
        "line": block.line,
        **({"cell": block.cell} if block.cell is not None else {}),
        **{name: getattr(result, name) for name in fields},
        "error": asdict(result.error) if result.error is not None else None,
        "artifacts": files,
        "displays": [{"name": display.name, "types": list(display.data)} for display in result.displays],
    }


def _show(terminal: Terminal, name: str, block: CodeInFile, result: ExecutionResult, hints: list[str]) -> None:
    for remark in [*remarks(result), *hints]:
        terminal.line(in_options(remark), "yellow")
    position = ""
    if result.error is not None and result.error.line is not None:
        position = f", at {block.position(name, result.error.line)}"
    terminal.line(f"{outcome_summary(result)}{position}", "green" if result.exit_code == 0 else "red")
    terminal.line()


@dataclass(frozen=True)
class CodeInFile:
    language: str
    code: str
    line: int = 1  # the line of the file, or of the notebook's cell, at which it begins; counted from 1
    script: bool = False  # whether it is all of a script
    cell: int | None = None
    """Number of the notebook's cell, counted from 1 with all its cells; None for another file."""
    may_fail: bool = False  # whether the cell has the tag "raises-exception"

    @property
    def place(self) -> str:
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}"

    def position(self, file: str, line: int) -> str:
        return f"{file}:{self.line + line - 1}" if self.cell is None else f"{file}, cell {self.cell}, line {line}"

    @property
    def file_in_sandbox(self) -> str | None:
        """Path of a script in the sandbox, unless the script chooses it; None for a block."""
        language = find_language(self.language) if self.script else None
        return f"{WORKSPACE}/{default_filename(self.code, language)}" if language is not None else None


def read_code(file: str) -> list[CodeInFile]:
    name = "standard input" if file == "-" else file
    kind = Path(file).suffix.lower()
    text = read_text(file, "markdown")
    if kind in SCRIPTS:
        found = [CodeInFile(SCRIPTS[kind], text, script=True)] if text.strip() else []
    else:
        found = _cells(text, name) if kind == NOTEBOOK else _blocks(text, name)
    if not found:
        hint = (
            f" Blocks need a fence with a language, such as ```python. Files that end in {', '.join(SCRIPTS)} are scripts, and "
            f"{NOTEBOOK} a notebook; all others are read as markdown."
        )
        raise CommandError(f"{name}: no code blocks to run.{hint if kind not in (*SCRIPTS, NOTEBOOK) else ''}")
    return found


def read_text(file: str, what: str) -> str:
    """Return the text of a file; `-` is standard input."""
    try:
        if file == "-":
            if sys.stdin.isatty():
                say(f"reading {what} from the terminal; Ctrl-D ends it")
            data = sys.stdin.buffer.read()
        else:
            data = Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    encoding = "utf-8-sig"
    try:
        if file.lower().endswith(".py"):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)  # PEP 263
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} is not text in {encoding.removesuffix('-sig')}: {error}") from None


def _blocks(text: str, name: str) -> list[CodeInFile]:
    """Return the blocks of a markdown file that can be run, and print why each of the others is skipped."""
    found = extract_code_blocks(text)
    for block in found:
        if block.complete:
            continue
        if block.fence and block.end == len(text):
            say(f"{name}:{block.line}: the block is never closed, so it ends with the file")
            continue
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
    try:
        cells = [
            (cell["cell_type"], "".join(cell["source"]), cell.get("metadata", {}).get("tags", ()))
            for cell in parse_json(text, name)["cells"]
        ]
    except (AttributeError, KeyError, TypeError):
        raise CommandError(
            f"{name} is not a notebook of version 4 (nbformat 4): open it in Jupyter and save it"
        ) from None
    return [
        CodeInFile("python", code, cell=number, may_fail="raises-exception" in tags)
        for number, (kind, code, tags) in enumerate(cells, 1)
        if kind == "code" and code.strip() and "skip-execution" not in tags
    ]


@contextmanager
def _keeping_files(choice: SandboxChoice) -> Iterator[SandboxChoice]:
    """Keep the files of the code in a new folder, unless one is chosen."""
    if choice.work_dir is not None or any(each.startswith(("bind_dir=", "snapshot=")) for each in choice.others or ()):
        yield choice
        return
    folders = (Path.cwd() / (f"{FOLDER}-{number}" if number > 1 else FOLDER) for number in count(1))
    try:
        folder = next(each for each in folders if not os.path.lexists(each))
        folder.mkdir()
    except OSError as error:
        say(f"files of the code are not kept: {error.strerror}; --work-dir FOLDER keeps them")
        yield choice
        return
    try:
        yield replace(choice, work_dir=folder)
    finally:
        try:
            folder.rmdir()
        except OSError:  # it is not empty
            say(f"files are kept in {folder.name}; --work-dir FOLDER chooses another folder")
