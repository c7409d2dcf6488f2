"""What the supervisor reads of its control group, in both versions, each in a folder laid out as the kernel's.

On a machine that has one version only the other can't be seen at work. Here the block itself says what the kernel would.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import needs_namespaces

pytestmark = needs_namespaces

NO_MEMORY = "the kernel killed it because the sandbox's memory limit was reached"
CHILD_DIED = "A process that the code started was killed: the sandbox's memory limit was reached."
DIE = "import os; os.kill(os.getpid(), 9)"


@dataclass(frozen=True)
class Layout:
    """The paths and the format of one version of control groups.

    Args:
        memory: File that counts what was killed for want of memory.
        events: Its text, with numbers for being at the limit, and for killed processes.
        cpu: File that counts processor time.
        seconds: Its text, with a number for seconds.
        used: File that counts bytes of memory.
        cached: Its parts, with a number for what the kernel can take back.
    """

    memory: str
    events: str
    cpu: str
    seconds: str
    used: str
    cached: str

    def said(self, limit: int, kills: int) -> str:
        """The text of the file that counts kills."""
        return self.events.format(limit=limit, kills=kills)


LAYOUTS = {
    "version 2": Layout(
        "memory.events",
        "low 0\nhigh 0\nmax {limit}\noom {limit}\noom_kill {kills}\noom_group_kill 0\n",
        "cpu.stat",
        "usage_usec {seconds}000000\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        "memory.current",
        "anon 0\nfile {cached}\nshmem 0\ninactive_anon 0\nactive_anon 0\ninactive_file {cached}\nactive_file 0\n",
    ),
    "version 1": Layout(
        "memory/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
        "cpuacct/cpuacct.usage",
        "{seconds}000000000\n",
        "memory/memory.usage_in_bytes",
        "inactive_file 0\nactive_file 0\nhierarchical_memory_limit 0\ntotal_inactive_file 0\ntotal_active_file {cached}\n",
    ),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]


@pytest.fixture
def group(layout: Layout, tmp_path: Path) -> Path:
    folder = tmp_path / "group"
    for name, text in ((layout.memory, layout.said(2, 3)), (layout.cpu, layout.seconds.format(seconds=1))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(params=["process", "session"])
def runner(request: pytest.FixtureRequest, group: Path, tmp_path: Path) -> Iterator[LocalRunner]:
    with LocalRunner(sys.executable, tmp_path, cgroup=group, mode=request.param) as started:
        assert started.greet()["oom_visible"] is True
        yield started


# Each layout, and each mode once.
each_layout = pytest.mark.parametrize(
    ("layout", "runner"),
    [("version 2", "process"), ("version 2", "session"), ("version 1", "process")],
    indirect=True,
)


def write(name: str, text: str) -> str:
    return f"open('/sys/fs/cgroup/{name}', 'w').write({text!r})\n"


@each_layout
def test_out_of_memory_kills_and_processor_time_are_detected(runner: LocalRunner, layout: Layout) -> None:
    session = runner.config["mode"] == "session"
    # Four were killed, one more than before the block.
    result, _ = runner.run(write(layout.memory, layout.said(2, 4)) + DIE)
    assert (result["outcome"], result["exit_code"]) == ("oom", 137)
    assert result["error"] == {"type": "OutOfMemory", "message": NO_MEMORY, "line": None}
    assert result["state"] == ("restored" if session else "kept")
    # Being at the limit kills nobody, and what was killed before the block is not the block's.
    result, _ = runner.run(write(layout.memory, layout.said(9, 4)) + DIE)
    assert (result["outcome"], result["exit_code"], result["error"]["type"]) == ("crashed", 137, "SIGKILL")
    assert CHILD_DIED not in result["notes"]
    # Of the block's children one was killed.
    result, _ = runner.run(write(layout.memory, layout.said(9, 5)) + "print('goes on')")
    assert (result["outcome"], result["state"], result["notes"]) == ("ok", "kept", [CHILD_DIED])
    # One that runs out of time meanwhile has run out of time.
    result, _ = runner.run(write(layout.memory, layout.said(9, 6)) + "import time; time.sleep(60)", timeout=1)
    assert (result["outcome"], result["exit_code"]) == ("timeout", 124)
    assert CHILD_DIED in result["notes"]
    # Processor time is read from a file, too.
    sleep = "import time; time.sleep(0.5)"
    result, _ = runner.run(write(layout.cpu, layout.seconds.format(seconds=3)) + sleep, cpu_seconds=2.5)
    assert (result["outcome"], result["error"]) == ("ok", None)
    slow = write(layout.cpu, layout.seconds.format(seconds=6)) + "import time; time.sleep(60)"
    result, _ = runner.run(slow, cpu_seconds=2.5, timeout=50)
    assert (result["outcome"], result["exit_code"], result["error"]["type"]) == ("timeout", 124, "CpuTimeExceeded")


def test_checkpoint_needs_free_memory_in_the_group(group: Path, layout: Layout, tmp_path: Path) -> None:
    def fill(used: int, cached: int) -> None:
        (group / layout.used).write_text(f"{used << 20}\n")
        (group / layout.used).with_name("memory.stat").write_text(layout.cached.format(cached=cached << 20))

    fill(20, 0)
    with LocalRunner(sys.executable, tmp_path, cgroup=group, mode="session", memory_bytes=100 << 20) as runner:
        runner.greet()
        states = []
        # What the kernel keeps of files on disk is no obstacle; the rest is.
        for used, cached in ((20, 0), (99, 70), (99, 0)):
            fill(used, cached)
            runner.run("x = 1")
            states.append(runner.run("import os; os._exit(1)")[0]["state"])
    assert states == ["restored", "restored", "lost"]
