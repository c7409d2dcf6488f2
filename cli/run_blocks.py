"""`codeact exec`: run the code blocks of a markdown file."""

from __future__ import annotations

import sys
import time
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.agents.extraction import OUTPUT_LABELS, ExtractedBlock, extract_code_blocks
from autogen_codeact.cli.exit import CommandError, run_until_interrupted, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.sandbox import as_result, started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import headline, remarks
from autogen_codeact.executors import ExecutionResult, OutputChunk, ToolExecutor
from autogen_codeact.sandbox.host.languages import find_language

NOT_KEPT = "not kept: --work-dir FOLDER keeps files"


def run_file(file: str, choice: SandboxChoice, *, as_json: bool) -> int:
    """Run the code blocks of a file, up to the first that fails.

    Args:
        file: Path of a markdown file, "-" for standard input.
        choice: The sandbox.
        as_json: Print one JSON object per block instead of text.

    Returns:
        Exit status of the first failing block, else 0.

    Raises:
        CommandError: The file can't be read, has no code to run, or has a block that is not closed.
        SandboxError: The sandbox broke.
    """
    name = "standard input" if file == "-" else file
    blocks = _select_blocks(extract_code_blocks(_read(file)), name)
    return run_until_interrupted(_run(blocks, name, choice, as_json=as_json))


def _select_blocks(found: list[ExtractedBlock], name: str) -> list[ExtractedBlock]:
    """Return the blocks that can be run, and print why each of the others is skipped."""
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
            chosen.append(block)
            continue
        say(f"{name}:{block.line}: skipped, {reason}")
    if not chosen:
        raise CommandError(f"{name}: no code blocks to run. Blocks need a fence with a language, such as ```python.")
    return chosen


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


async def _run(blocks: list[ExtractedBlock], name: str, choice: SandboxChoice, *, as_json: bool) -> int:
    terminal = None if as_json else Terminal()
    async with started(choice) as executor:
        for index, block in enumerate(blocks, 1):
            if terminal is not None:
                terminal.line(f"[{index}/{len(blocks)}] {block.language}, line {block.line}", "cyan", bold=True)
            result = await _run_block(executor, CodeBlock(code=block.code, language=block.language), terminal)
            if choice.work_dir is None:
                # The temporary folder, and with it these copies, is removed at the end.
                files = (replace(file, path=None, note=file.note or NOT_KEPT) for file in result.artifacts)
                result = replace(result, artifacts=tuple(files))
            if terminal is None:
                print_json(_to_object(index, block, result))
            else:
                _show(terminal, name, block, result)
            if result.exit_code != 0:
                if left := len(blocks) - index:
                    say(f"stopped at the first failing block; {left} block{'s' * (left > 1)} after it did not run")
                return result.exit_code & 0xFF or 1
    return 0


async def _run_block(executor: CodeExecutor, code: CodeBlock, terminal: Terminal | None) -> ExecutionResult:
    """Run a block; on a terminal, print its output while it runs if the executor can stream."""
    if terminal is None or not isinstance(executor, ToolExecutor):
        began = time.monotonic()
        result = as_result(await executor.execute_code_blocks([code], CancellationToken()), time.monotonic() - began)
        if terminal is not None:
            terminal.output(result.output)
    else:
        async with aclosing(executor.execute_stream([code], CancellationToken())) as events:
            async for event in events:
                if isinstance(event, OutputChunk):
                    terminal.output(event.text)
                else:
                    result = event
    if terminal is not None:
        terminal.end_output()
    return result


def _to_object(index: int, block: ExtractedBlock, result: ExecutionResult) -> dict[str, Any]:
    """Return the JSON object for a block and its result."""
    files = [{**asdict(file), "path": str(file.path) if file.path is not None else None} for file in result.artifacts]
    fields = ("exit_code", "outcome", "output", "value", "duration_s", "truncated", "state", "notes")
    return {
        "index": index,
        "language": block.language,
        "line": block.line,
        **{name: getattr(result, name) for name in fields},
        "error": asdict(result.error) if result.error is not None else None,
        "artifacts": files,
        "displays": [{"name": display.name, "types": list(display.data)} for display in result.displays],
    }


def _show(terminal: Terminal, name: str, block: ExtractedBlock, result: ExecutionResult) -> None:
    for remark in remarks(result):
        terminal.line(remark, "yellow")
    position = ""
    if result.error is not None and result.error.line is not None:
        position = f" at {name}:{block.line + result.error.line - 1}"
    terminal.line(f"{headline(result)}{position}", "green" if result.exit_code == 0 else "red")
    terminal.line()
