"""`codeact demo`: a recorded model, and real code in a real sandbox."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from contextlib import aclosing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.cli.exit import CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.cli.transcript import Transcript
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.runs import load_run, recorded
from autogen_codeact.viewer.one_file import export_html
from codeact_sandbox.types.result import format_duration

_PAGE = "demo.html"


def load_recording() -> dict[str, Any]:
    """Return the task, the lines of files for its code, the answers of a model, and the name of the plot that its code makes."""
    text = (files("autogen_codeact.cli") / "recordings" / "sales.json").read_text(encoding="utf-8")
    recording: dict[str, Any] = json.loads(text)
    return recording


def run_demo(out: Path, choice: SandboxChoice) -> int:
    """Play the demo."""
    silence_libraries()
    if out.exists() and not out.is_dir():
        raise CommandError(f"{out} is not a folder. Choose another folder for the plot with --out.")
    with tempfile.TemporaryDirectory(prefix="codeact-demo-") as folder:
        return run_until_interrupted(_play(out, Path(folder), choice))


async def _play(out: Path, folder: Path, choice: SandboxChoice) -> int:
    terminal, begun, recording = Terminal(), time.monotonic(), load_recording()
    terminal.line("codeact demo", "cyan", bold=True)
    terminal.line("A model solves a task by writing code, which runs in a sandbox.")
    terminal.line("When the code fails, the model repairs it.\n")
    terminal.field("Model", "recorded: its answers are read from a file, so no key and no network are needed")
    terminal.field("Code", "real: every result below comes from running the code now")
    work_dir, log = folder / "work", folder / "demo"
    work_dir.mkdir()
    for name, lines in recording["files"].items():
        (work_dir / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    client = RecordedModel(parse_answers(json.dumps(recording["answers"]), "the recording"))
    await _solve(terminal, replace(choice, work_dir=work_dir), client, recording["task"], log)
    status = _save(terminal, work_dir / recording["plot"], log, out)
    if status == 0:
        terminal.field("Time", f"{format_duration(time.monotonic() - begun)} in total; the sandbox has been removed")
        terminal.field("Next", 'codeact run "How many primes are below 1000?" --model gpt-4o-mini')
        terminal.field("", "(needs OPENAI_API_KEY; --model ollama/NAME and lmstudio/NAME need no key)")
    return status


async def _solve(terminal: Terminal, choice: SandboxChoice, client: ChatCompletionClient, task: str, log: Path) -> None:
    """Let an agent do a task, keep the run in a log and print its messages."""
    begun, transcript = time.monotonic(), Transcript(terminal)
    async with started(choice) as executor:
        kind = "Docker container" if isinstance(executor, DockerCommandLineCodeExecutor) else "bubblewrap sandbox"
        took = format_duration(time.monotonic() - begun)
        terminal.field("Sandbox", f"a {kind}, started in {took}; `codeact doctor` checks what holds it in")
        terminal.line()
        agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=2)
        async with aclosing(recorded(agent, task=task, path=log)) as events:
            async for event in events:
                if not isinstance(event, TaskResult):
                    transcript.show(event)


def _save(terminal: Terminal, plot: Path, log: Path, out: Path) -> int:
    if not plot.is_file():
        say("the code made no plot; run `codeact doctor` to see what is wrong with the sandbox")
        return 1
    page = out / _PAGE
    try:
        out.mkdir(parents=True, exist_ok=True)
        saved = Path(shutil.copyfile(plot, out / plot.name))
        export_html(load_run(log), page)
    except OSError as error:
        raise CommandError(
            f"The plot and the page can't be saved in {out} ({error.strerror}). Choose another folder with --out."
        ) from error
    terminal.line()
    terminal.field("Plot", f"{saved} ({format_size(saved.stat().st_size)})")
    terminal.field(
        "Page", f"{page}: the whole run in one file ({format_size(page.stat().st_size)}); open it in a browser"
    )
    return 0
