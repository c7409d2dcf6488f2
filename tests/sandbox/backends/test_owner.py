"""Whether the owner of a container lives: judged by pid, start time, PID namespace, boot and machine."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.leftovers import KIND, LIFE, OWNER, owner_labels, owner_state
from tests.cases import case

WAITING = """\
import sys
from codeact_sandbox.backends.docker.leftovers import owner_labels
print(owner_labels(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Another process that lives, and the labels that it gives."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        marks: dict[str, str] = ast.literal_eval(process.stdout.readline())
        yield process, marks
        process.kill()


def test_this_process_is_alive() -> None:
    assert owner_labels()[KIND] == "sandbox"
    assert owner_labels()[OWNER].endswith(f":{os.getpid()}")
    assert owner_state(owner_labels()) == "alive"


def test_another_process_is_alive_until_it_is_killed(other: tuple[subprocess.Popen[str], dict[str, str]]) -> None:
    process, marks = other
    assert owner_state(marks) == "alive"
    process.kill()
    # Nobody has waited for it: its number is still taken.
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    assert owner_state(marks) == "dead"
    process.wait()
    assert owner_state(marks) == "dead"


def test_another_process_with_the_same_id_means_dead() -> None:
    place, _, start = owner_labels()[LIFE].rpartition("/")
    assert owner_state({**owner_labels(), LIFE: f"{place}/{int(start) - 1}"}) == "dead"


def _of_another_boot(marks: dict[str, str]) -> dict[str, str]:
    return {**marks, LIFE: f"00000000-1111-2222-3333-444444444444/{marks[LIFE].partition('/')[2]}"}


def _of_another_namespace(marks: dict[str, str]) -> dict[str, str]:
    boot, _, start = marks[LIFE].split("/")
    return {**marks, LIFE: f"{boot}/1/{start}"}


def test_an_owner_of_another_machine_boot_or_namespace_is_unknown(other):
    for change in [
        _of_another_boot,
        _of_another_namespace,
        lambda marks: {**marks, OWNER: f"elsewhere:{marks[OWNER].rpartition(':')[2]}"},
        lambda marks: {**marks, OWNER: "nonsense"},
        lambda marks: {**marks, LIFE: "unknown"},
        lambda marks: {OWNER: marks[OWNER]},
        lambda _: {},
    ]:
        with case(change):
            process, marks = other
            process.kill()
            process.wait()
            assert owner_state(marks) == "dead"
            assert owner_state(change(marks)) == "unknown"
