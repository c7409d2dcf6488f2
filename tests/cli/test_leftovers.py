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

from autogen_codeact.cli import leftovers
from autogen_codeact.executors import SandboxStartError
from codeact_sandbox.backends.bubblewrap.cgroups import leftover_groups, owner_state
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.leftovers import KEEP, KIND, LIFE, OWNER, SANDBOX, owner_labels
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.abuse.engine_proxy import EngineProxy, engine_proxy
from tests.abuse.faults import client as sandbox_of_another
from tests.cli.support import codeact, wait_until
from tests.sandbox.bubblewrapped import alive, pid_one

ELSEWHERE = {KIND: SANDBOX, OWNER: "elsewhere:7", LIFE: "of-another-machine"}
NO_SUCH_PID = 2**22 + 1


def of_the_dead() -> dict[str, str]:
    """Labels of a process of this machine that is dead."""
    life = owner_labels()[LIFE].rpartition("/")[0] + "/1"
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


def rows(out: str) -> list[list[str]]:
    return [[word.strip() for word in line.split("  ") if word] for line in out.splitlines() if "  container " in line]


def test_clean_removes_those_of_dead_owners_and_keeps_the_others(bench: Bench, address: dict[str, str]) -> None:
    dead, running = bench.make(of_the_dead()), bench.make(of_the_dead(), state="running")
    foreign, kept = bench.make(ELSEWHERE), bench.make({**of_the_dead(), KEEP: "1"}, state="exited")
    living = bench.make(owner_labels())
    owner = of_the_dead()[OWNER]

    done = codeact("clean", "--dry-run", env=address)
    assert done.status == 0
    started = f"started by {owner}, which is dead"
    expected = {
        dead: ["would be removed", "container", dead, f"created; {started}"],
        running: ["would be removed", "container", running, f"running; {started}"],
        foreign: [
            *("left alone", "container", foreign),
            "created; started by elsewhere:7, which can not be checked from here",
        ],
        kept: ["left alone", "container", kept, f"exited; kept on purpose (auto_remove=False) by {owner}"],
    }
    assert {row[2]: row for row in rows(done.out)} == expected
    assert done.err.endswith(
        "codeact: `codeact clean --all` removes what was left alone: check first that nobody else uses it\n"
    )
    assert bench.there() == {dead, running, foreign, kept, living}

    done = codeact("clean", env=address)
    assert done.status == 0
    for name in (dead, running):
        expected[name][0] = "removed"
    assert {row[2]: row for row in rows(done.out)} == expected
    assert bench.there() == {foreign, kept, living}

    # The list still has them.
    done = codeact("clean", "--json", env=address)
    (report,) = done.objects
    actions = {row["name"]: row["action"] for row in report["sandboxes"] if row["kind"] == "container"}
    assert report["ok"]
    assert actions == {dead: "gone already", running: "gone already", foreign: "left alone", kept: "left alone"}


def test_clean_all_removes_all_but_those_of_running_owners(
    bench: Bench, address: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.make(of_the_dead())
    bench.make(ELSEWHERE, state="running")
    bench.make({**of_the_dead(), KEEP: "1"}, state="exited")
    living = bench.make(owner_labels())
    monkeypatch.setenv("DOCKER_HOST", address["DOCKER_HOST"])
    # Others' control groups are not ours to remove.
    monkeypatch.setattr(leftovers, "local_leftovers", list)
    assert leftovers.clean(everything=True, dry_run=False, as_json=False) == 0
    shown, said = capsys.readouterr()
    assert [row[0] for row in rows(shown)] == ["removed"] * 3
    assert said == ""
    monkeypatch.delenv("DOCKER_HOST")
    assert bench.there() == {living}


def test_leftovers_that_can_not_be_removed_are_reported_with_status_1(bench: Bench, address: dict[str, str]) -> None:
    first, second = bench.make(of_the_dead()), bench.make(of_the_dead())
    reply = b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 22\r\nConnection: close\r\n\r\n"
    bench._proxy.on("DELETE", "", "answer", reply=reply + b'{"message": "it can."}', times=1)
    done = codeact("clean", env=address)
    assert done.status == 1
    by_action = {row[0]: row for row in rows(done.out)}
    assert set(by_action) == {"failed", "removed"}
    assert by_action["failed"][3].startswith("The Docker engine refused while removing codeact-left-")
    assert {by_action["failed"][2], by_action["removed"][2]} == {first, second}
    assert bench.there() == {by_action["failed"][2]}


def test_doctor_counts_leftovers_with_advice(
    bench: Bench, address: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "local_leftovers", list)
    bench.make(ELSEWHERE)
    bench.make(of_the_dead())
    monkeypatch.setenv("DOCKER_HOST", address["DOCKER_HOST"])
    check = leftovers.check_leftovers()
    monkeypatch.delenv("DOCKER_HOST")
    assert (check.name, check.status) == ("leftovers", "note")
    assert check.detail == "2; `codeact clean --dry-run` lists them"
    assert check.advice == "`codeact clean` removes 1 of 2; --all removes all of them, if nobody else uses them."


def test_no_leftovers_are_reported(
    bench: Bench, address: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    living = bench.make(owner_labels())
    monkeypatch.setattr(leftovers, "local_leftovers", list)
    monkeypatch.setenv("DOCKER_HOST", address["DOCKER_HOST"])
    assert leftovers.clean(everything=True, dry_run=False, as_json=False) == 0
    assert capsys.readouterr() == ("", "codeact: no leftover sandboxes or folders\n")
    assert leftovers.check_leftovers().status == "ok"
    monkeypatch.delenv("DOCKER_HOST")
    assert bench.there() == {living}


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
        done = codeact("clean", "--dry-run", env={"DOCKER_HOST": "unix:///nowhere"})
        assert done.status == 0
        line = next(line for line in done.out.splitlines() if group.name in line)
        assert line.split()[:4] == ["would", "be", "removed", "bubblewrap"]
        assert f"processes; started by process {other.process.pid}, which is dead" in line
        assert done.err.startswith(
            "codeact: only bubblewrap's sandboxes and temporary folders are checked: No Docker engine at"
        )
        assert alive(sandbox)
        done = codeact("clean", env={"DOCKER_HOST": "unix:///nowhere"})
        # "gone" if a sandbox that starts in another test has just removed it.
        assert next(line for line in done.out.splitlines() if group.name in line).split()[0] in ("removed", "gone")
        wait_until(lambda: not alive(sandbox), "the sandbox's end")
        assert find() is None
        assert not group.remove()


def test_temporary_folders_of_killed_processes_are_listed_and_removed(tmp_path: Path) -> None:
    with sandbox_of_another("BubblewrapCommandLineCodeExecutor", temporary=tmp_path) as other:
        (folder,) = tmp_path.iterdir()
        env = {"DOCKER_HOST": "unix:///nowhere", "TMPDIR": str(tmp_path)}
        assert str(folder) not in codeact("clean", "--dry-run", env=env).out  # its owner lives
        other.kill()
        done = codeact("clean", "--dry-run", env=env)
        line = next(line for line in done.out.splitlines() if str(folder) in line)
        assert line.split()[:4] == ["would", "be", "removed", "folder"]
        assert line.endswith(f"files of work_dir; started by process {other.process.pid}, which is dead")
        assert folder.exists()
        done = codeact("clean", env=env)
        assert next(line for line in done.out.splitlines() if str(folder) in line).split()[0] == "removed"
        assert list(tmp_path.iterdir()) == []


def test_owners_in_another_namespace_are_unknown() -> None:
    here = os.stat("/proc/self/ns/pid").st_ino
    assert owner_state(f"1-{os.getpid()}-1") == "unknown"
    assert owner_state("nonsense") == "unknown"
    assert owner_state(f"{here}-{os.getpid()}-1") == "dead"
    assert owner_state(f"{here}-{NO_SUCH_PID}-1") == "dead"


def test_a_group_that_can_not_be_removed_is_an_error(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codeact_sandbox.backends.bubblewrap.cgroups.END_TIMEOUT_S", 0.05)
    folder = tmp_path / "autogen-codeact" / "codeact-x.1-2-3"
    (folder / "busy").mkdir(parents=True)
    (group,) = leftover_groups(tmp_path)
    assert (group.name, group.owner, group.owner_state, group.state) == ("codeact-x", "process 2", "unknown", "empty")
    with pytest.raises(SandboxStartError, match="can't be removed: Directory not empty"):
        group.remove()
    (folder / "busy").rmdir()
    assert group.remove()
    assert leftover_groups(tmp_path) == []
