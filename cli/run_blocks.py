"""`codeact exec`: run the code of a file."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.agents.hints import hints_for
from autogen_codeact.agents.outcome_summary import outcome_summary
from autogen_codeact.cli.code_file import SCRIPTS, CodeInFile, read_code
from autogen_codeact.cli.exit import run_until_interrupted, say
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.sandbox import as_result, started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.saved_files import SavedFiles
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import remarks
from autogen_codeact.executors import ExecutionResult, SandboxCodeExecutor
from autogen_codeact.executors.capabilities import ToolExecutor
from autogen_codeact.sandbox import OutputChunk
from autogen_codeact.sandbox.types.formatting import format_count


def run_file(file: str, choice: SandboxChoice, *, as_json: bool, keep_going: bool = False) -> int:
    """Run the code of a file, up to the first block that fails."""
    name = "standard input" if file == "-" else file
    if choice.mode is None and Path(file).suffix.lower() in SCRIPTS:
        choice = replace(choice, mode="process")
    return run_until_interrupted(_run(read_code(file), name, choice, as_json=as_json, keep_going=keep_going))


async def _run(blocks: list[CodeInFile], name: str, choice: SandboxChoice, *, as_json: bool, keep_going: bool) -> int:
    terminal = None if as_json else Terminal()
    saved = SavedFiles(Path.cwd()) if choice.work_dir is None else None
    status = 0
    async with started(choice) as executor:
        for index, block in enumerate(blocks, 1):
            if terminal is not None:
                terminal.line(f"[{index}/{len(blocks)}] {block.language}, {block.place}", "cyan", bold=True)
            code = CodeBlock(code=block.code, language=block.language)
            try:
                result = await _run_block(executor, code, terminal, block.file_in_sandbox, name)
            except asyncio.CancelledError as error:
                if terminal is None and (killed := getattr(error, "result", None)) is not None:
                    print_json(_to_object(index, block, killed))
                raise
            if saved is not None:
                # The temporary folder is removed at the end.
                result = await asyncio.to_thread(saved.save, result)
            if terminal is None:
                print_json(_to_object(index, block, result))
            else:
                facts = executor.known_facts if isinstance(executor, SandboxCodeExecutor) else None
                hints = [hint.for_person(flags=True) for hint in hints_for(result, facts)]
                _show(terminal, name, block, result, hints)
            if result.exit_code != 0:
                status = status or result.exit_code & 0xFF or 1
                if not keep_going:
                    if left := len(blocks) - index:
                        say(f"stopped at the first failing block; {format_count(left, 'block')} after it did not run")
                    break
    if saved is not None and saved.folder is not None:
        say(f"files are kept in {saved.folder.name}; --work-dir FOLDER chooses another folder")
    return status


async def _run_block(
    executor: CodeExecutor, code: CodeBlock, terminal: Terminal | None, path: str | None, name: str
) -> ExecutionResult:
    """Run a block; print its output while it runs if the executor can stream, with a script's name in the place of its path."""

    def named(text: str) -> str:
        return text.replace(path, name) if path is not None else text

    if terminal is None or not isinstance(executor, ToolExecutor):
        began = time.monotonic()
        result = as_result(await executor.execute_code_blocks([code], CancellationToken()), time.monotonic() - began)
        if terminal is not None:
            terminal.output(named(result.output))
            terminal.end_output()
    else:
        shown = 0
        try:
            async with aclosing(executor.execute_stream([code], CancellationToken())) as events:
                async for event in events:
                    if isinstance(event, OutputChunk):
                        terminal.output(named(event.text))
                        shown += len(event.text)
                    else:
                        result = event
        except asyncio.CancelledError as error:
            if (killed := getattr(error, "result", None)) is not None:
                terminal.output(named(killed.output[shown:]))
            raise
        finally:
            terminal.end_output()
    return result


def _to_object(index: int, block: CodeInFile, result: ExecutionResult) -> dict[str, Any]:
    """Return the JSON object for a block and its result."""
    files = [{**asdict(file), "path": str(file.path) if file.path is not None else None} for file in result.artifacts]
    fields = ("exit_code", "outcome", "output", "value_repr", "duration_s", "truncated", "state", "notes")
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
        terminal.line(remark, "yellow")
    position = ""
    if result.error is not None and result.error.line is not None:
        position = f" at {block.position(name, result.error.line)}"
    terminal.line(f"{outcome_summary(result)}{position}", "green" if result.exit_code == 0 else "red")
    terminal.line()
