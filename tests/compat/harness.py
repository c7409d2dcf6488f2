"""Run one example as a user would: its own process, a real engine, a model endpoint named by the environment only."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import docker

from tests import processes

from .examples import swap_imports
from .replies import Answer, scripted_model

CONTROL_IMAGE = os.environ.get("CODEACT_COMPAT_CONTROL", "")
"""Name of an image with `python`: the examples then run unchanged, on upstream's own classes in that image.

It shows that the harness asks nothing of an example that upstream's class does not give.
"""

_CONTROL = """
import runpy, sys
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor as Executor
Executor.__init__.__defaults__ = (sys.argv[1], *Executor.__init__.__defaults__[1:])
runpy.run_path(sys.argv[2], run_name="__main__")
"""


@dataclass(frozen=True)
class Run:
    """What a program did."""

    status: int
    out: str
    err: str
    unsaid: int


def run(
    code: str, folder: Path, *, replies: Sequence[Answer] = (), stdin: str = "", keep: frozenset[str] = frozenset()
) -> Run:
    """Run a program written for upstream with its imports moved here."""
    program = folder / "example.py"
    program.write_text(code if CONTROL_IMAGE else swap_imports(code, keep), encoding="utf-8")
    command = ["-c", _CONTROL, CONTROL_IMAGE, str(program)] if CONTROL_IMAGE else [str(program)]
    model = scripted_model(replies).start()
    try:
        done = processes.run(command, cwd=folder, env=_environment(model.base_url), text=stdin)
    finally:
        model.stop()
    if CONTROL_IMAGE:
        _remove_what_upstream_left(done.stdout)
    return Run(done.returncode, done.stdout, done.stderr, len(model.script))


def _remove_what_upstream_left(printed: str) -> None:
    engine = docker.from_env()
    for name in re.findall(r"^container (\S+)$", printed, re.MULTILINE):
        engine.containers.get(name).remove(force=True)


def _environment(url: str) -> dict[str, str]:
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    inherited = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    return inherited | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "not-a-key"}
