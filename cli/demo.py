"""`codeact demo`: a recorded model, real code in a real sandbox."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import CreateResult

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.cli.exit import CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.model_choice import LOCAL, ModelChoice
from autogen_codeact.cli.models import open_model
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.cli.transcript import Transcript
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.runs import load_run, recorded
from autogen_codeact.viewer.one_file import export_html
from codeact_sandbox.types.result import format_duration

_RECORDING = "sales.json"
_PAGE = "demo.html"
LIVE_TASK, LIVE_VALUE = "Write Python code that prints the sum of the numbers from 1 to 10.", "55"


@dataclass(frozen=True)
class Recording:
    """A task and the answers of a model to it."""

    task: str
    plot: str
    """Name of the file that its code makes."""
    files: Mapping[str, str]
    """Content of the files that its code reads, by name."""
    answers: tuple[CreateResult, ...]


def load_recording() -> Recording:
    """Read the recording in this package."""
    text = (files("autogen_codeact.cli") / "recordings" / _RECORDING).read_text(encoding="utf-8")
    fields = json.loads(text)
    return Recording(
        task=fields["task"],
        plot=fields["plot"],
        files={name: "\n".join(lines) + "\n" for name, lines in fields["files"].items()},
        answers=tuple(parse_answers(json.dumps(fields["answers"]), _RECORDING)),
    )


def run_demo(out: Path, choice: SandboxChoice) -> int:
    """Play the demo."""
    silence_libraries()
    if out.exists() and not out.is_dir():
        raise CommandError(f"{out} is not a folder. Choose another folder for the plot with --out.")
    with tempfile.TemporaryDirectory(prefix="codeact-demo-") as folder:
        return run_until_interrupted(_demo(Terminal(), out, Path(folder), choice))


async def _demo(terminal: Terminal, out: Path, folder: Path, choice: SandboxChoice) -> int:
    terminal.line("codeact demo", "cyan", bold=True)
    terminal.line("A model solves a task by writing code, which runs in a sandbox.")
    terminal.line("When the code fails, the model repairs it.")
    terminal.line()
    terminal.field("Model", "recorded: its answers are read from a file, so no key and no network are needed")
    terminal.field("Code", "real: every result below comes from running the code now")
    begun = time.monotonic()
    work_dir, log = folder / "work", folder / "demo"
    work_dir.mkdir()
    async with started(replace(choice, work_dir=work_dir)) as executor:
        _describe_sandbox(terminal, executor, time.monotonic() - begun)
        recording = load_recording()
        for name, content in recording.files.items():
            (work_dir / name).write_text(content, encoding="utf-8")
        terminal.line()
        code_s = await _play(terminal, executor, recording, log)
    return _save(terminal, work_dir / recording.plot, log, out, total_s=time.monotonic() - begun, code_s=code_s)


def run_live_demo(choice: SandboxChoice) -> int:
    """Have a very small model solve a task that it can do."""
    silence_libraries()
    return run_until_interrupted(_live_demo(Terminal(), choice))


async def _live_demo(terminal: Terminal, choice: SandboxChoice) -> int:
    client = open_model(ModelChoice(LOCAL))
    terminal.line("codeact demo --live", "cyan", bold=True)
    terminal.line("A model on this machine solves a task by writing code, which runs in a sandbox.")
    terminal.line()
    terminal.field("Model", "SmolLM2-135M-Instruct, live: no key, and no network once it is fetched")
    begun = time.monotonic()
    async with started(choice) as executor:
        _describe_sandbox(terminal, executor, time.monotonic() - begun)
        terminal.line()
        agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=2)
        transcript, outputs = Transcript(terminal), ""
        async with aclosing(agent.run_stream(task=LIVE_TASK)) as events:
            async for event in events:
                if not isinstance(event, TaskResult):
                    transcript.show(event)
                if isinstance(event, CodeExecutionEvent):
                    outputs += event.result.output
    terminal.line()
    solved = LIVE_VALUE in outputs.split()
    terminal.field("Result", f"its code printed {LIVE_VALUE}, which is right" if solved else "its code is not right")
    terminal.field(
        "Note", "a model of 135M parameters is a toy: it fails most tasks, and what it says of an output may be wrong"
    )
    terminal.field(
        "Next", "codeact run --model gguf:FILE, ollama/NAME or openai/NAME; `codeact models` lists what can be used"
    )
    return 0 if solved else 1


def _describe_sandbox(terminal: Terminal, executor: CodeExecutor, took: float) -> None:
    kind = (
        "a Docker container" if isinstance(executor, DockerCommandLineCodeExecutor) else "bubblewrap, on this machine"
    )
    terminal.field("Sandbox", f"{kind}, started in {format_duration(took)}; `codeact doctor` says what it can't reach")


async def _play(terminal: Terminal, executor: CodeExecutor, recording: Recording, log: Path) -> float:
    """Let the agent do the task, keep the run in a log and print its messages; return the seconds that its code ran."""
    agent = CodeExecutorAgent("coder", executor, model_client=RecordedModel(recording.answers), max_retries_on_error=2)
    transcript, code_s = Transcript(terminal), 0.0
    async with aclosing(recorded(agent, task=recording.task, path=log)) as events:
        async for event in events:
            if not isinstance(event, TaskResult):
                transcript.show(event)
            if isinstance(event, CodeExecutionEvent):
                code_s += float(event.metadata.get("duration_s", 0))
    return code_s


def _save(terminal: Terminal, plot: Path, log: Path, out: Path, *, total_s: float, code_s: float) -> int:
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
    times = f"{format_duration(total_s)} in total, {format_duration(code_s)} of it running code"
    terminal.field("Time", f"{times}; the sandbox has been removed")
    terminal.field("Next", 'codeact run "How many primes are below 1000?" --model gpt-4o-mini')
    terminal.field("", "(needs OPENAI_API_KEY; `codeact run --help` lists other models)")
    return 0
