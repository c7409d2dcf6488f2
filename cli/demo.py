"""`codeact demo`: a recorded model, real code in the real sandbox."""

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
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import CreateResult

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.cli.ending import CommandError, run_until_interrupted, say
from autogen_codeact.cli.probe import PROBE
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.cli.run import quieten
from autogen_codeact.cli.sandbox import SandboxChoice, inspect, started
from autogen_codeact.cli.screen import Screen, amount, seconds
from autogen_codeact.cli.show import Play
from autogen_codeact.executors import DockerCommandLineCodeExecutor, ToolExecutor

_RECORDINGS = ("sales.json", "sales-plain.json")
"""The first one whose libraries the image has is played; the last one needs none."""


@dataclass(frozen=True)
class Recording:
    """A task and what a model said to it.

    Args:
        task: The task.
        needs: Modules that its code imports and Python does not bring along.
        plot: Name of the file that its code makes.
        files: Name to content of the files that its code reads.
        answers: The model's words.
    """

    task: str
    needs: tuple[str, ...]
    plot: str
    files: Mapping[str, str]
    answers: tuple[CreateResult, ...]


def load_recording(name: str) -> Recording:
    """Read one of the recordings that come with this package.

    Args:
        name: Its file name.
    """
    text = (files("autogen_codeact.cli") / "recordings" / name).read_text(encoding="utf-8")
    fields = json.loads(text)
    return Recording(
        task=fields["task"],
        needs=tuple(fields["needs"]),
        plot=fields["plot"],
        files={name: "\n".join(lines) + "\n" for name, lines in fields["files"].items()},
        answers=tuple(parse_answers(text, name)),
    )


def run_demo(out: Path, choice: SandboxChoice) -> int:
    """Play the demo.

    Args:
        out: Folder on the host for the plot.
        choice: Where the code runs.

    Returns:
        0 when the plot is there, else 1; 130 after Ctrl-C.

    Raises:
        CommandError: The plot can't be saved.
        SandboxError: No sandbox can be had.
    """
    quieten()
    if out.exists() and not out.is_dir():
        raise CommandError(f"{out} is not a folder. Choose another place for the plot with --out.")
    with tempfile.TemporaryDirectory(prefix="codeact-demo-") as folder:
        return run_until_interrupted(_demo(Screen(), out, replace(choice, work_dir=Path(folder))))


async def _demo(screen: Screen, out: Path, choice: SandboxChoice) -> int:
    folder = choice.work_dir
    assert folder is not None
    _introduce(screen)
    begun = time.monotonic()
    async with started(choice) as executor:
        await _present(screen, executor, time.monotonic() - begun)
        recording = await _choose(screen, executor)
        for name, content in recording.files.items():
            (folder / name).write_text(content, encoding="utf-8")
        screen.line()
        thinking = await _play(screen, executor, recording)
    return _finish(screen, folder / recording.plot, out, took=time.monotonic() - begun, running=thinking)


def _introduce(screen: Screen) -> None:
    screen.line("codeact demo", "cyan", bold=True)
    screen.line("A model solves a task by writing code, which runs in a sandbox. When it fails, the model repairs it.")
    screen.line()
    screen.fact("Model", "recorded: its words were written down beforehand, so no key and no network are needed")
    screen.fact("Code", "real: every result below comes from running the code now")


async def _present(screen: Screen, executor: CodeExecutor, took: float) -> None:
    """Say which sandbox this is, by what the engine says of the container or, without one, by what code finds in it."""
    if not isinstance(executor, DockerCommandLineCodeExecutor):
        seen = json.loads((await _run(executor, PROBE)).output)
        held = isinstance(executor, ToolExecutor)
        screen.fact("Sandbox", f"{'bubblewrap, on this machine' if held else 'none'}, started in {seconds(took)}")
        screen.fact("", _seen(seen))
        return
    container = await inspect(executor)
    host = container["HostConfig"]
    facts = [
        "no network" if host["NetworkMode"] == "none" else f"network {host['NetworkMode']}",
        f"user {container['Config']['User']}",
        "no capabilities" if "ALL" in (host["CapDrop"] or ()) else "capabilities",
        "read-only root" if host["ReadonlyRootfs"] else "writable root",
        f"{host['Memory'] / 2**30:g} GiB of memory",
    ]
    screen.fact("Sandbox", f"a Docker container of {container['Config']['Image']}, started in {seconds(took)}")
    screen.fact("", ", ".join(facts))


def _seen(seen: dict[str, Any]) -> str:
    memory = seen["memory"] if seen["memory"] is not None else seen["address_space"]
    facts = [
        "a network" if seen["connects"] else "no network",
        f"user {seen['uid']}:{seen['gid']}",
        "capabilities" if seen["capabilities"] or seen["bounding"] else "no capabilities",
        "writable root" if seen["root_writable"] else "read-only root",
        f"{memory / 2**30:g} GiB of memory{'' if seen['memory'] is not None else ' for each process'}"
        if 0 < memory < 2**50
        else "no limit of memory",
        f"Python {seen['python']} ({seen['executable']})",
    ]
    return ", ".join(facts)


async def _run(executor: CodeExecutor, code: str) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())


async def _choose(screen: Screen, executor: CodeExecutor) -> Recording:
    """The first recording whose code can run here."""
    docker = isinstance(executor, DockerCommandLineCodeExecutor)
    where, advice = (
        ("image", "`codeact image build` makes the full image")
        if docker
        else (
            "Python",
            "With Docker, the sandbox brings its own libraries",
        )
    )
    for name in _RECORDINGS:
        recording = load_recording(name)
        missing = await _missing(executor, recording.needs)
        if not missing:
            return recording
        screen.fact(
            "Note",
            f"this {where} has no {' and no '.join(missing)}, so a recording is played whose code does without. {advice}",
        )
    raise AssertionError("the last recording needs nothing")


async def _missing(executor: CodeExecutor, modules: tuple[str, ...]) -> list[str]:
    code = f"from importlib.util import find_spec\nprint(*[name for name in {modules!r} if not find_spec(name)])"
    return (await _run(executor, code)).output.split()


async def _play(screen: Screen, executor: CodeExecutor, recording: Recording) -> float:
    """Let the agent do the task and show it; returns the seconds that its code ran."""
    agent = CodeExecutorAgent("coder", executor, model_client=RecordedModel(recording.answers), max_retries_on_error=2)
    play, running = Play(screen), 0.0
    async with aclosing(agent.run_stream(task=recording.task)) as events:
        async for event in events:
            if not isinstance(event, TaskResult):
                play.show(event)
            if isinstance(event, CodeExecutionEvent):
                running += float(event.metadata.get("duration_s", 0))
    return running


def _finish(screen: Screen, plot: Path, out: Path, *, took: float, running: float) -> int:
    if not plot.is_file():
        say("the code made no plot; run `codeact doctor` to see what is wrong with the sandbox")
        return 1
    try:
        out.mkdir(parents=True, exist_ok=True)
        saved = Path(shutil.copyfile(plot, out / plot.name))
    except OSError as error:
        raise CommandError(
            f"The plot can't be saved in {out} ({error.strerror}). Choose another folder with --out."
        ) from error
    screen.line()
    screen.fact("Plot", f"{saved} ({amount(saved.stat().st_size)})")
    screen.fact("Time", f"{seconds(took)} in all, {seconds(running)} of it running code; the sandbox is gone again")
    screen.fact("Next", 'codeact run "How many primes are below 1000?" --model gpt-4o-mini')
    screen.fact("", "(with OPENAI_API_KEY set; `codeact run --help` has other models)")
    return 0
