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
from autogen_codeact.cli.ending import CommandError, run_until_interrupted, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.sandbox import SandboxChoice, as_result, started
from autogen_codeact.cli.screen import Screen
from autogen_codeact.cli.show import headline, remarks
from autogen_codeact.executors import ExecutionResult, OutputChunk, ToolExecutor
from autogen_codeact.sandbox.host.languages import find_language

NOT_KEPT = "not kept: --work-dir FOLDER keeps files"


def run_file(file: str, choice: SandboxChoice, *, as_json: bool) -> int:
    """Run the blocks of a file, up to the first that fails.

    Args:
        file: Path of a markdown file, "-" for standard input.
        choice: The sandbox.
        as_json: Print one JSON object for each block instead of text.

    Returns:
        Exit status of the first failing block, else 0.

    Raises:
        CommandError: The file can't be read, or holds nothing to run, or a block that is not closed.
        SandboxError: The sandbox broke.
    """
    name = "standard input" if file == "-" else file
    blocks = runnable(extract_code_blocks(_read(file)), name)
    return run_until_interrupted(_run(blocks, name, choice, as_json=as_json))


def runnable(found: list[ExtractedBlock], name: str) -> list[ExtractedBlock]:
    """Choose the blocks to run, and say which ones are left out.

    Args:
        found: All blocks of the text.
        name: What the text is called in messages.

    Raises:
        CommandError: A block is not closed, or none is left.
    """
    for block in found:
        if not block.complete:
            raise CommandError(
                f"{name}: the block whose code begins at line {block.line} is never closed, so nothing was run. Close it."
            )
    chosen = []
    for block in found:
        reason = _why_not(block)
        if reason:
            say(f"{name}:{block.line}: skipped, {reason}")
        else:
            chosen.append(block)
    if not chosen:
        raise CommandError(f"{name}: no code blocks to run. Blocks need a fence with a language, such as ```python.")
    return chosen


def _why_not(block: ExtractedBlock) -> str:
    if not block.language:
        return "a block without a language"
    if block.language in OUTPUT_LABELS:
        return f"a block of output ({block.language})"
    if find_language(block.language) is None:
        return f"{block.language} is no language that is run here"
    return ""


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
    screen = None if as_json else Screen()
    async with started(choice) as executor:
        for index, block in enumerate(blocks, 1):
            if screen is not None:
                screen.line(f"[{index}/{len(blocks)}] {block.language}, line {block.line}", "cyan", bold=True)
            code = CodeBlock(code=block.code, language=block.language)
            result = await _run_block(executor, code, screen)
            if choice.work_dir is None:
                result = _without_lost_copies(result)
            if screen is None:
                print_json(_as_object(index, block, result))
            else:
                _show(screen, name, block, result)
            if result.exit_code != 0:
                left = len(blocks) - index
                if left:
                    say(f"stopped at the first failing block; {left} after it did not run")
                return result.exit_code & 0xFF or 1
    return 0


async def _run_block(executor: CodeExecutor, code: CodeBlock, screen: Screen | None) -> ExecutionResult:
    """Run a block; what it writes is shown as it comes, where somebody looks at it and the executor can do that."""
    if screen is None or not isinstance(executor, ToolExecutor):
        began = time.monotonic()
        ended = as_result(await executor.execute_code_blocks([code], CancellationToken()), time.monotonic() - began)
        if screen is not None:
            screen.output(ended.output)
    else:
        async with aclosing(executor.execute_stream([code], CancellationToken())) as running:
            async for item in running:
                if isinstance(item, OutputChunk):
                    screen.output(item.text)
                else:
                    ended = item
    if screen is not None:
        screen.end_output()
    return ended


def _without_lost_copies(result: ExecutionResult) -> ExecutionResult:
    """Note on each file in the temporary folder that it is not kept."""
    files = [replace(file, path=None, note=file.note or NOT_KEPT) for file in result.artifacts]
    return replace(result, artifacts=tuple(files))


def _as_object(index: int, block: ExtractedBlock, result: ExecutionResult) -> dict[str, Any]:
    """The result as a JSON object."""
    files = [{**asdict(file), "path": str(file.path) if file.path is not None else None} for file in result.artifacts]
    return {
        "index": index,
        "language": block.language,
        "line": block.line,
        "exit_code": result.exit_code,
        "outcome": result.outcome,
        "output": result.output,
        "value": result.value,
        "error": asdict(result.error) if result.error is not None else None,
        "duration_s": result.duration_s,
        "truncated": result.truncated,
        "state": result.state,
        "artifacts": files,
        "notes": list(result.notes),
    }


def _show(screen: Screen, name: str, block: ExtractedBlock, result: ExecutionResult) -> None:
    for remark in remarks(result):
        screen.line(remark, "yellow")
    where = ""
    if result.error is not None and result.error.line is not None:
        where = f" at {name}:{block.line + result.error.line - 1}"
    screen.line(f"{headline(result)}{where}", "green" if result.exit_code == 0 else "red")
    screen.line()
