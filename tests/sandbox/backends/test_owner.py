"""Whether the owner of a container lives: judged by pid, start time, PID namespace, boot and machine."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.leftovers import KIND, LIFE, OWNER, owner_labels
from codeact_sandbox.backends.owner import identity, owner_state
from tests.cases import case

WAITING = """\
import sys
from codeact_sandbox.backends.owner import identity
print(identity(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that lives, and its identity."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_this_process_is_alive() -> None:
    assert owner_labels()[KIND] == "sandbox"
    assert owner_labels()[OWNER].endswith(f":{os.getpid()}")
    assert owner_labels()[LIFE] == identity()
    assert owner_state(identity()) == "alive"


def test_another_process_is_alive_until_it_is_killed(other: tuple[subprocess.Popen[str], str]) -> None:
    process, its_identity = other
    assert owner_state(its_identity) == "alive"
    process.kill()
    # Nobody has waited for it: its number is still taken.
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    assert owner_state(its_identity) == "dead"
    process.wait()
    assert owner_state(its_identity) == "dead"


def test_another_process_with_the_same_id_means_dead() -> None:
    place_and_id, _, start = identity().rpartition("-")
    assert owner_state(f"{place_and_id}-{int(start) - 1}") == "dead"


def test_an_owner_of_another_boot_or_namespace_is_unknown(other):
    process, its_identity = other
    process.kill()
    process.wait()
    assert owner_state(its_identity) == "dead"
    boot, namespace, pid, start = its_identity.split("-")
    for changed in [
        f"{'0' * len(boot)}-{namespace}-{pid}-{start}",
        f"{boot}-1-{pid}-{start}",
        f"{boot}-{namespace}-{start}",
        f"unknown-{pid}-{start}",
        "unknown",
        "",
    ]:
        with case(changed):
            assert owner_state(changed) == "unknown"
