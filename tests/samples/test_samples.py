"""Every sample runs as a user runs it: its own process, a real engine, no key."""

import os
import re
import socket
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.engine import connect
from tests import processes
from tests.openai_server import OpenAIServer
from tests.samples.expected import EXPECTED, RECORDED, SAMPLES, SHARED, assigned, messages

pytestmark = pytest.mark.usefixtures("docker_engine")

IN_MAKE_TEST = ("standalone.py", "codeact_session.py", "approve_later.py")
"""Samples that `make test` runs; each takes a second of processor time to import AutoGen."""
ALL = [pytest.param(name, marks=() if name in IN_MAKE_TEST else pytest.mark.more) for name in EXPECTED]
WITH_SERVER = [name for name, expected in EXPECTED.items() if expected.with_server]
DEADLINE_S = 100

EXPECTED_WARNINGS = {
    "error_recovery.py": "AutoGen's client logs the answer to a retry decision, and pydantic warns about its type",
}
"""Samples that cause warnings with a model server, and the reason."""


@dataclass(frozen=True)
class Run:
    """What a sample did."""

    status: int
    out: str
    err: str
    left: list[str]


def run(
    sample: str,
    folder: Path,
    *arguments: str,
    strict: bool = True,
    stdin: str | None = None,
    **environment: str,
) -> Run:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    process = processes.start(
        [str(SAMPLES / sample), *arguments],
        options=("-W", "error") if strict else (),
        cwd=folder,
        env=inherited | environment,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(stdin, timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode is not None
    messages_on_stderr = [line for line in err.splitlines() if not line.startswith("codeact: ")]
    return Run(process.returncode, out, "\n".join(messages_on_stderr), left_by(process.pid))


def run_with_model(sample: str, folder: Path, answers: list[str], *, strict: bool = True) -> tuple[Run, OpenAIServer]:
    server = OpenAIServer(list(answers)).start()
    key = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "not-a-key"}
    try:
        return run(sample, folder, "--model", "scripted", strict=strict, **key), server
    finally:
        server.stop()


def left_by(pid: int) -> list[str]:
    """Return the names of a process's sandboxes that still exist after 5 s."""
    deadline = time.monotonic() + 5
    while (names := sandboxes_of(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return names


def sandboxes_of(pid: int) -> list[str]:
    labels = ["org.autogen-codeact.kind=sandbox", f"org.autogen-codeact.owner={socket.gethostname()}:{pid}"]
    with closing(connect()) as engine:
        return [name for box in engine.containers(all=True, filters={"label": labels}) for name in box["Names"]]


def assert_in_order(wanted: list[str], lines: list[str]) -> None:
    rest = iter(lines)
    for line in wanted:
        assert line in rest, f"{line!r} is missing, or not after the ones before it, in\n" + "\n".join(lines)


@pytest.mark.parametrize("sample", ALL)
def test_sample_prints_the_expected_lines_and_leaves_no_container(sample: str, tmp_path: Path) -> None:
    expected = EXPECTED[sample]

    done = run(sample, tmp_path, stdin=expected.stdin)

    assert (done.status, done.err, done.left) == (0, "", [])
    shown = messages(done.out)
    assert [message for message, _ in shown] == expected.messages
    assert_in_order(
        expected.computed, [line for message, lines in shown if message == expected.runner for line in lines]
    )
    assert_in_order(expected.said, done.out.splitlines())
    assert (RECORDED in done.out) is bool(expected.recording)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
@pytest.mark.parametrize("sample", WITH_SERVER)
def test_sample_uses_the_named_model(sample: str, tmp_path: Path) -> None:
    expected = EXPECTED[sample]

    strict = sample not in EXPECTED_WARNINGS
    done, server = run_with_model(sample, tmp_path, assigned(sample, *expected.recording), strict=strict)

    assert (done.status, done.left, server.script) == (0, [], [])
    assert done.err == "" or not strict
    assert {request["model"] for request in server.requests} == {"scripted"}
    assert done.out.startswith("Model: scripted\n")
    assert "not-a-key" not in done.out
    assert [message for message, _ in messages(done.out)] == expected.messages
    assert_in_order(expected.said, done.out.splitlines())


def test_missing_key_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    done = run("standalone.py", tmp_path, "--model", "scripted")

    assert done.status == 2
    assert "set OPENAI_API_KEY" in done.err
    assert done.left == []


@pytest.mark.more
def test_the_sample_of_budgets_ends_at_its_limit(tmp_path):
    assert run("budget.py", tmp_path).out.splitlines() == [
        "stopped: max_cost",
        "1! to 2! were computed; 3! is missing.",
    ]


@pytest.mark.more
def test_the_sample_of_a_web_service_serves_twenty_clients(tmp_path):
    done = run("web_service.py", tmp_path)
    totals = ", ".join(str(number * 3) for number in range(20))
    assert (done.status, done.err, done.left) == (0, "", [])
    assert done.out == f"20 clients have their own totals: {totals}\n"


@pytest.mark.more
def test_the_sample_of_secrets_shows_who_gets_the_key(tmp_path):
    assert run("api_key.py", tmp_path).out.splitlines() == [
        "The server gets Authorization: Bearer sk-0123456789",
        "The code sends  Bearer placeholder...",
        "The code gets   you sent Authorization: Bearer *************",
    ]


@pytest.mark.more
def test_gpus_are_used_or_an_error_says_that_there_are_none(tmp_path: Path) -> None:
    done = run("gpu.py", tmp_path)

    assert (done.status, done.err, done.left) == (0, "", [])
    assert '{"device_requests": [{"driver": "", "count": -1, "device_ids": [], "capabilities": [["gpu"]]' in done.out
    with closing(connect()) as engine:
        has_gpus = "nvidia" in engine.info()["Runtimes"]
    if has_gpus:
        assert re.search(r"^GPU 0: ", done.out, re.MULTILINE)
    else:
        assert "SandboxStartError: the Docker engine refused to start the sandbox: " in done.out
        assert "This engine has no GPU" in done.out


def test_every_sample_is_tested_and_in_the_table() -> None:
    samples = {path.name for path in SAMPLES.iterdir() if path.suffix == ".py"} - SHARED
    others = {path.name for path in SAMPLES.iterdir()} - samples - SHARED

    assert samples == {*EXPECTED, "gpu.py", "api_key.py", "budget.py", "web_service.py"}
    # tests/integrations/test_notebook.py runs the notebook.
    # tests/cli/test_batch.py runs the tasks with the recorded answers.
    assert others <= {"README.md", "__pycache__", "notebook.ipynb", "batch_tasks.jsonl", "batch_answers.json", "skills"}
    readme = (SAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", readme, re.MULTILINE)) == samples
