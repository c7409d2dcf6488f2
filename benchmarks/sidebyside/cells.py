"""What is done to the arms: each function measures some cells, its arms taking turns in every round."""

import gzip
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .environments import ROOT
from .harness import Failed

DATA = ROOT.parent / "shared/data"
PYTHON, SHELL, START, STOP = "python block", "shell block", "create → first result", "stop"
PRELOADED, AT_ONCE, MANY = "import pandas, matplotlib", "50 blocks at once, one sandbox", "32 sessions, 32 sandboxes"
GOLDEN, TURN = "recorded session", "agent turn"
HELP, IMPORT, CORE = "`codeact --help`", "import autogen_codeact.executors", "import autogen_core"
LOAD = "from autogen_codeact.executors import DockerCommandLineCodeExecutor"
COMMAND_LINE, JUPYTER = "autogen-ext Docker command line", "autogen-ext Docker Jupyter"
SMOLAGENTS, LLM, LOCAL = "smolagents Docker", "llm-sandbox Docker", "autogen-ext local (no sandbox)"
TREE = "smolagents LocalPythonExecutor (no sandbox)"
ECHO, SUBPROCESS, DOCKER_RUN = "raw echo over an attached stream (limit)", "bare subprocess", "docker run --rm"
FLOORS = ["in-process exec (floor)", ECHO, SUBPROCESS, DOCKER_RUN]
PEERS = [COMMAND_LINE, JUPYTER, SMOLAGENTS, LLM, TREE, LOCAL]
# Their stop waits ten seconds for a process that ignores SIGTERM.
SLOW = [COMMAND_LINE, JUPYTER, SMOLAGENTS, LLM]
WAYS = ["process", "session", "session, no checkpoint"]
KINDS = ["docker", "bubblewrap"]
OURS = [f"{kind}, {way}" for kind in KINDS for way in WAYS]
POOLED = [f"{kind}, {way}, from the pool" for kind in KINDS for way in ("process", "session")]
PRELOADED_MEMORY = "docker, idle memory, numpy and pandas"
CODE = {
    PYTHON: {"python": "print(6 * 7)", "echo": "42\n"},
    SHELL: {"sh": "echo $((6 * 7))"},
    PRELOADED: {"python": "import pandas\nimport matplotlib.pyplot\nprint(6 * 7)"},
}


@dataclass(frozen=True)
class Effort:
    """How often things are done.

    Args:
        rounds: Of blocks.
        blocks: A round.
        lives: Starts and stops of each arm.
        slow_lives: The same of those whose stop takes ten seconds.
        few: Repetitions of what takes long.
        sandboxes: How many at once.
        sessions: Recorded sessions.
    """

    rounds: int = 12
    blocks: int = 8
    lives: int = 10
    slow_lives: int = 2
    few: int = 5
    sandboxes: int = 32
    sessions: int = 25


TINY = Effort(rounds=2, blocks=3, lives=2, slow_lives=1, few=2, sandboxes=4, sessions=4)
QUICK = Effort(rounds=6, blocks=8, lives=3, slow_lives=0)


async def blocks(bench, effort, arms, cells=(PYTHON, SHELL)):
    """Blocks on sandboxes that live side by side, the others idle."""
    keys = {arm: await bench.open(arm) for arm in bench.shuffled(arms)}
    for number in range(effort.rounds + 1):
        for cell in cells:
            for arm in bench.shuffled(arms):
                for language, code in CODE[cell].items():
                    if language in bench.languages[arm]:
                        # The first round warms up.
                        times = 1 if arm == DOCKER_RUN else effort.blocks
                        block = {"key": keys[arm][0], "language": language, "code": code, "times": times}
                        await bench.run(cell if number else "warm-up", arm, **block)
    bench.seconds.pop("warm-up", None)
    for arm in arms:
        await bench.close(arm, keys.get(arm))


async def lives(bench, effort, arms):
    """Starts and stops."""
    for number in range(effort.lives + 1):
        for arm in bench.shuffled(arms):
            if arm in SLOW and number > effort.slow_lives:
                continue
            keys = await bench.open(arm, cell=START if number or arm in SLOW else None)
            await bench.close(arm, keys, cell=STOP if number or arm in SLOW else None)


async def preload(bench, effort):
    """A block with large imports, with and without preloading; processes, so that each imports anew.

    Docker only: bubblewrap runs this machine's Python, which need not have these packages.
    """
    arms = [DOCKER_RUN, COMMAND_LINE, "docker, process", "docker, process, preloaded"]
    await blocks(bench, Effort(rounds=effort.few, blocks=1), arms, cells=(PRELOADED,))


async def together(bench, effort):
    """Many blocks at once on one sandbox, and one on each of many sandboxes."""
    one = [COMMAND_LINE, LLM, "docker, process", "bubblewrap, process"]
    many = [COMMAND_LINE, "docker, session", "bubblewrap, session"]
    for cell, arms, count, sandboxes in ((AT_ONCE, one, 50, 1), (MANY, many, 1, effort.sandboxes)):
        for arm in arms:
            # One kind at a time: 96 sandboxes of three kinds beside each other would measure the machine's memory.
            keys = await bench.open(arm, sandboxes)
            for number in range(effort.few + 1):
                request = {"keys": keys, "count": count, "language": "python", "code": CODE[PYTHON]["python"]}
                seconds = await bench.persist(cell, arm, "together", **request) if keys else None
                if seconds is not None and number:
                    bench.seconds[cell][arm].append(seconds / (count * sandboxes))
            await bench.close(arm, keys)


def golden_sessions(count):
    """Recorded sessions with several blocks that print just what they print: (code, output) by block."""
    with gzip.open(DATA / "mint/golden.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line)["steps"] for line in lines]
    fit = [
        [(step["code"], (step["expect"] or "").rstrip("\n")) for step in steps]
        for steps in rows
        if len(steps) > 1
        and all(step["kind"] in ("value", "empty") and not step["value_echo"] for step in steps)
        and all("set(" not in step["code"] for step in steps)
    ]
    return fit[:: max(1, len(fit) // count)][:count]


async def golden(bench, effort):
    """Whole recorded sessions: ours in a live interpreter, AutoGen's by running the earlier blocks again."""
    if not (DATA / "mint/golden.jsonl.gz").exists():
        bench.miss(GOLDEN, "the recorded sessions are not here")
        return
    arms = [COMMAND_LINE, "docker, session", "bubblewrap, session"]
    keys = {arm: await bench.open(arm) for arm in arms}
    for steps in golden_sessions(effort.sessions):
        for arm in bench.shuffled(arms):
            seconds = await bench.attempt(arm, "probe", name="recorded session", key=keys[arm][0], steps=steps)
            if seconds is not None:
                bench.seconds[GOLDEN][arm].append(seconds)
    for arm in arms:
        await bench.close(arm, keys[arm])


async def turns(bench, effort):
    """Turns of agents with a scripted model: AutoGen's with its local executor, ours with ours."""
    arms = [LOCAL, "docker, process", "docker, session", "bubblewrap, process", "bubblewrap, session"]
    keys = {arm: await bench.open(arm) for arm in arms}
    for number in range(effort.rounds + 1):
        for arm in bench.shuffled(arms):
            for _ in range(2):
                seconds = await bench.attempt(arm, "probe", name="agent turn", key=keys[arm][0])
                if seconds is not None and number:
                    bench.seconds[TURN][arm].append(seconds)
    for arm in arms:
        await bench.close(arm, keys[arm])


async def singles(bench, effort):
    """What needs our own executors alone."""
    for kind in KINDS:
        await bench.fact(f"{kind}, idle memory", "idle memory", kind=kind)
        await bench.fact(f"{kind}, idle memory of a session", "idle memory", kind=kind, mode="session")
        await bench.fact(
            f"{kind}, idle memory, numpy and pandas", "idle memory", kind=kind, preload=["numpy", "pandas"]
        )
        await bench.fact(f"{kind}, null tool call", "null tool call", kind=kind)
        await bench.fact(f"{kind}, recovery", "recovery", kind=kind, times=2 * effort.few)
        await bench.fact(f"{kind}, much output", "much output", kind=kind, times=effort.few)
    if DATA.exists():
        await bench.fact("extraction", "extraction", data=str(DATA), times=effort.few)
    else:
        bench.miss("extraction", "the recorded answers are not here")


def imports(bench, effort):
    """How long the command line and the package take to come up."""
    python = Path(sys.executable)
    commands = {
        HELP: [python.with_name("codeact"), "--help"],
        **{statement: [python, "-c", statement] for statement in (IMPORT, LOAD, CORE)},
    }
    for number in range(2 * effort.few + 1):
        for name in sorted(commands, key=lambda _: bench.chance.random()):
            began = time.perf_counter()
            done = subprocess.run(commands[name], capture_output=True, check=False, timeout=60)
            if done.returncode != 0:
                raise Failed(f"{name} ended with {done.returncode}")
            if number:
                bench.seconds["start-up"][name].append(time.perf_counter() - began)
