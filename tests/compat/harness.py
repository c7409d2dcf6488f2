"""Run one example as a user would: its own process, a real engine, a model endpoint named by the environment only."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import processes

from ..openai_server import OpenAIServer, Reply
from .examples import swap_imports


@dataclass(frozen=True)
class Run:
    """What a program did."""

    status: int
    out: str
    err: str
    unsaid: int


def run(code: str, folder: Path, *, replies: Sequence[Reply | str] = (), stdin: str = "") -> Run:
    """Run a program written for upstream with its imports moved here."""
    program = folder / "example.py"
    program.write_text(swap_imports(code), encoding="utf-8")
    model = OpenAIServer(list(replies)).start()
    try:
        done = processes.run([str(program)], cwd=folder, env=_environment(model.base_url), text=stdin)
    finally:
        model.stop()
    return Run(done.returncode, done.stdout, done.stderr, len(model.script))


def _environment(url: str) -> dict[str, str]:
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    inherited = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    return inherited | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "not-a-key"}
