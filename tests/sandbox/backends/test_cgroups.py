"""Control groups of bubblewrap sandboxes: the kernel's own, on machines that let this process make them."""

import json
import os
import signal
import subprocess
import sys

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Limits
from codeact_sandbox.backends.bubblewrap.cgroups import Cgroup, leftover_groups
from tests.abuse.oracles import control_groups
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.usefixtures("bubblewrap", "can_make_groups")


@pytest.fixture
def can_make_groups() -> None:
    group = Cgroup.create("codeact-probe", Limits())
    if group is None:
        pytest.skip("this process may make no control groups here")
    group.remove()


async def test_a_sandbox_sees_its_own_limits_and_can_not_change_them():
    async with BubblewrapCommandLineCodeExecutor(limits=Limits(memory="256m", pids=100)) as executor:
        code = """
            import glob, json, os
            def first(*paths):
                return next((open(path).read().strip() for path in paths if os.path.exists(path)), None)
            root = "/sys/fs/cgroup/"
            files = filter(os.path.isfile, glob.glob(root + "**", recursive=True))
            writable = [path for path in files if os.access(path, os.W_OK)]
            print(json.dumps([
                first(root + "memory.max", root + "memory/memory.limit_in_bytes"),
                first(root + "pids.max", root + "pids/pids.max"),
                writable,
            ]))
        """
        assert json.loads(await out(executor, code)) == [str(256 << 20), "100", []]
        result = await run(executor, "mkdir /sys/fs/cgroup/new /sys/fs/cgroup/memory/new", language="sh")
        assert result.exit_code == 1


ABANDON = """
import os, sys
from autogen_codeact.executors import Limits
from codeact_sandbox.backends.bubblewrap.cgroups import Cgroup
group = Cgroup.create("codeact-left", Limits())
for pid in sys.argv[1:]:
    group.add(int(pid))
print(os.getpid(), len(group.folders))
"""


def abandoned(*held: int) -> tuple[int, int]:
    """Make groups that hold these processes and whose owner is dead; gives its pid, and how many they are."""
    command = [sys.executable, "-c", ABANDON, *map(str, held)]
    pid, count = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(pid), int(count)


def test_control_groups_of_dead_owners_are_removed_with_their_processes():
    """Starts of other tests remove them too."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            full, _ = abandoned(process.pid)
            empty, _ = abandoned()
            mine = Cgroup.create("codeact-mine", Limits())
            assert mine is not None
            for item in leftover_groups():
                if item.orphan:
                    item.remove()
            assert process.wait(20) == -signal.SIGKILL
        finally:
            process.kill()
    assert not control_groups(full)
    assert not control_groups(empty)
    assert len(control_groups(os.getpid())) == len(mine.folders)  # the living keep theirs, also while they are empty
    mine.remove()
    assert not control_groups(os.getpid())


def test_where_there_are_none_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("codeact_sandbox.backends.bubblewrap.cgroups.ROOT", tmp_path)
    assert Cgroup.create("codeact-none", Limits()) is None
