"""`codeact clean`, and what `codeact doctor` says of leftovers: real containers and control groups of dead owners."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from autogen_codeact.cli.doctor import check_leftovers
from autogen_codeact.cli.output import say
from codeact_sandbox.backends.bubblewrap.cgroups import leftover_groups
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.leftovers import KEEP, KIND, LIFE, OWNER, SANDBOX, owner_labels
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.integrations import command
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.abuse.engine_proxy import EngineProxy, engine_proxy
from tests.abuse.faults import client as sandbox_of_another
from tests.cli.support import codeact, wait_until
from tests.sandbox.bubblewrapped import alive, pid_one

ELSEWHERE = {KIND: SANDBOX, OWNER: "elsewhere:7", LIFE: "of-another-machine"}
NO_SUCH_PID = 2**22 + 1


def of_the_dead() -> dict[str, str]:
    """Labels of a process of this machine that is dead."""
    life = f"{owner_labels()[LIFE].rsplit('-', 2)[0]}-{NO_SUCH_PID}-1"
    return {KIND: SANDBOX, OWNER: owner_labels()[OWNER].rpartition(":")[0] + f":{NO_SUCH_PID}", LIFE: life}


class Bench:
    """Containers that no other process removes: only behind this proxy is their owner a dead process of this machine."""

    def __init__(self, proxy: EngineProxy) -> None:
        self._proxy = proxy
        self._shown: list[dict[str, Any]] = []

    def make(self, marks: dict[str, str], *, state: str = "created") -> str:
        """Make a container and show it with these labels."""
        name = f"codeact-left-{uuid.uuid4().hex[:8]}"
        with closing(connect()) as api:
            made = api.create_container(DEFAULT_IMAGE, ["sleep", "60"], name=name, labels=ELSEWHERE)
            if state == "running":
                api.start(made["Id"])
        self._shown.append({"Id": made["Id"], "Names": [f"/{name}"], "Labels": marks, "State": state})
        body = json.dumps(self._shown).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._proxy.clear()
        self._proxy.on("GET", "/containers/json", "answer", reply=head.encode() + b"Connection: close\r\n\r\n" + body)
        return name

    def there(self) -> set[str]:
        """Those that are still there."""
        with closing(connect()) as api:
            found = set()
            for item in self._shown:
                try:
                    api.inspect_container(item["Id"])
                except docker.errors.NotFound:
                    continue
                found.add(item["Names"][0].lstrip("/"))
            return found

    def clear(self) -> None:
        """Remove what is left of them."""
        with closing(connect()) as api:
            for item in self._shown:
                with suppress(docker.errors.NotFound):
                    api.remove_container(item["Id"], force=True)


@pytest.fixture
def bench(docker_engine: str) -> Iterator[Bench]:
    with engine_proxy() as proxy:
        made = Bench(proxy)
        try:
            yield made
        finally:
            made.clear()


@pytest.fixture
def address(bench: Bench) -> dict[str, str]:
    return {"DOCKER_HOST": bench._proxy.address}


def rows(out: str) -> dict[str, str]:
    """What was done with each container, by its name."""
    found = [
        line.removeprefix("container ").partition(" ") for line in out.splitlines() if line.startswith("container ")
    ]
    return {name: about for name, _, about in found}


def test_clean_removes_those_of_dead_owners_and_keeps_the_others(bench: Bench, address: dict[str, str]) -> None:
    dead, running = bench.make(of_the_dead()), bench.make(of_the_dead(), state="running")
    foreign, kept = bench.make(ELSEWHERE), bench.make({**of_the_dead(), KEEP: "1"}, state="exited")
    living = bench.make(owner_labels())
    owner = of_the_dead()[OWNER]

    done = codeact("clean", env=address)
    assert done.status == 0
    expected = {
        dead: f"(created; started by {owner}, which is dead): removed",
        running: f"(running; started by {owner}, which is dead): removed",
        foreign: "(created; started by elsewhere:7, which can not be checked from here): left alone",
        kept: f"(exited; kept on purpose (auto_remove=False) by {owner}): left alone",
    }
    assert rows(done.out) == expected
    assert done.err.endswith(
        "codeact: `clean --all` removes what was left alone: check first that no one else uses it\n"
    )
    assert bench.there() == {foreign, kept, living}

    # The list still has them.
    done = codeact("clean", env=address)
    assert done.status == 0
    assert rows(done.out) == {name: about.replace(": removed", ": gone already") for name, about in expected.items()}


def test_clean_all_removes_all_but_those_of_running_owners(
    bench: Bench, address: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.make(of_the_dead())
    bench.make(ELSEWHERE, state="running")
    bench.make({**of_the_dead(), KEEP: "1"}, state="exited")
    living = bench.make(owner_labels())
    monkeypatch.setenv("DOCKER_HOST", address["DOCKER_HOST"])
    # Others' control groups are not ours to remove.
    monkeypatch.setattr(command, "local_leftovers", list)
    assert command.clean(say, everything=True) == 0
    shown, said = capsys.readouterr()
    assert [about.rpartition(": ")[2] for about in rows(shown).values()] == ["removed"] * 3
    assert said == ""
    monkeypatch.delenv("DOCKER_HOST")
    assert bench.there() == {living}


def test_leftovers_that_can_not_be_removed_are_reported_with_status_1(bench: Bench, address: dict[str, str]) -> None:
    first, second = bench.make(of_the_dead()), bench.make(of_the_dead())
    reply = b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 22\r\nConnection: close\r\n\r\n"
    bench._proxy.on("DELETE", "", "answer", reply=reply + b'{"message": "it can."}', times=1)
    done = codeact("clean", env=address)
    assert done.status == 1
    (failed,) = bench.there()
    found = rows(done.out)
    assert ": not removed: The Docker engine refused while removing codeact-left-" in found.pop(failed)
    ((other, about),) = found.items()
    assert about.endswith(": removed")
    assert {failed, other} == {first, second}


def test_doctor_lists_leftovers_with_advice(
    bench: Bench, address: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "local_leftovers", list)
    foreign, dead = bench.make(ELSEWHERE), bench.make(of_the_dead())
    monkeypatch.setenv("DOCKER_HOST", address["DOCKER_HOST"])
    check = check_leftovers()
    monkeypatch.delenv("DOCKER_HOST")
    assert (check.name, check.status) == ("leftovers", "note")
    expected = [
        f"container {dead} (started by {of_the_dead()[OWNER]}, which is dead)",
        f"container {foreign} (started by elsewhere:7, which can not be checked from here)",
    ]
    assert check.detail in {", ".join(expected), ", ".join(reversed(expected))}  # the engine decides the order
    assert check.advice == "`codeact clean` removes 1 of 2; --all removes all of them, if no one else uses them."


def group_of(pid: int) -> Callable[[], Leftover | None]:
    return lambda: next((group for group in leftover_groups() if group.owner == f"process {pid}"), None)


@pytest.mark.usefixtures("bubblewrap")
def test_bubblewraps_leftovers_are_ended_and_removed() -> None:
    with sandbox_of_another("BubblewrapCommandLineCodeExecutor") as other:
        sandbox = pid_one(other.process.pid)
        find = group_of(other.process.pid)
        if "autogen-codeact" not in Path(f"/proc/{sandbox}/cgroup").read_text():
            pytest.skip("this process may make no control groups here")
        assert find() is None  # its owner lives
        # So it does not read the end of its stream.
        os.kill(sandbox, signal.SIGSTOP)
        other.kill()
        group = find()
        assert group is not None
        assert (group.owner_state, group.state != "empty") == ("dead", True)
        done = codeact("clean", env={"DOCKER_HOST": "unix:///nowhere"})
        assert done.err.startswith("codeact: containers were not looked for: No Docker engine at")
        line = next(line for line in done.out.splitlines() if group.name in line)
        assert f"processes; started by process {other.process.pid}, which is dead)" in line
        # Gone if a sandbox that starts in another test has just removed it.
        assert line.endswith((": removed", ": gone already"))
        wait_until(lambda: not alive(sandbox), "the sandbox's end")
        assert find() is None
        assert not group.remove()


def test_temporary_folders_of_killed_processes_are_listed_and_removed(tmp_path: Path) -> None:
    with sandbox_of_another("BubblewrapCommandLineCodeExecutor", temporary=tmp_path) as other:
        (folder,) = tmp_path.iterdir()
        env = {"DOCKER_HOST": "unix:///nowhere", "TMPDIR": str(tmp_path)}
        assert str(folder) not in codeact("clean", env=env).out  # its owner lives
        assert folder.exists()
        other.kill()
        line = next(line for line in codeact("clean", env=env).out.splitlines() if str(folder) in line)
        assert line.endswith(f"(files of work_dir; started by process {other.process.pid}, which is dead): removed")
        assert list(tmp_path.iterdir()) == []
