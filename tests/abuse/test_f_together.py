"""F. Together: many sandboxes on one machine, and none of them hears, sees, inherits or starves another.

Cases 81 and 83 have modules of their own.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Collection, Iterable
from contextlib import closing, suppress

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutorPool, Limits
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from tests.sandbox.sandboxes import run

from .oracles import descendants, eventually_empty, processes_in
from .subject import SUBJECTS, Kind, Subject

TINY = Limits(memory="96m", pids=24, nofile=128, workspace="2m", tmp="2m", files=100, output=16 * 1024)
SESSIONS = [kind for kind in SUBJECTS if kind.mode == "session"]
ENGINES = pytest.mark.parametrize("kind", SESSIONS, ids=str, indirect=True)
MANY = 50


# Case 77.
@pytest.mark.timeout(150)
@ENGINES
async def test_many_sessions_in_parallel_do_not_mix_their_output(kind: Kind, untouched: None) -> None:
    """Fifty; fewer with Docker, where a start costs much and the host's part is the same but for reading the streams."""
    lines, many = 20, MANY if kind.engine == "bubblewrap" else 12

    async def one(number: int) -> list[str]:
        async with kind.make(timeout=60, limits=TINY) as executor:
            await all_there.wait()
            said = [(await run(executor, f"mine = 'session {number}'")).output]
            for turn in range(3):
                code = f"""
                import sys, time
                for line in range({lines}):
                    print(mine, {turn}, line, file=(sys.stdout, sys.stderr)[line % 2], flush=True)
                    time.sleep(0.001)
                open("mine.txt", "a").write(mine)
                """
                result = await run(executor, code)
                assert (result.outcome, result.state) == ("ok", "kept"), result
                said.append(result.output)
            result = await run(executor, "print(open('mine.txt').read())")
            return [*said, result.output]

    all_there = asyncio.Barrier(many)
    found = await asyncio.gather(*(one(number) for number in range(many)))
    for number, said in enumerate(found):
        mine = f"session {number}"
        blocks = ["".join(f"{mine} {turn} {line}\n" for line in range(lines)) for turn in range(3)]
        assert said == ["", *(text + f"{len(mine)}\n" for text in blocks), mine * 3 + "\n"]


LOG = """
    import os, time
    def note(text):
        with open("/tmp/log", "a") as file:
            file.write(text + "\\n")
    note("begin {0}")
    time.sleep(0.01)
    note("end {0}")
"""


# Case 78.
async def test_concurrent_calls_on_one_session_come_one_after_the_other(subject: Subject) -> None:
    executor = await subject.start({"timeout": 30})
    results = await asyncio.gather(*(run(executor, LOG.format(number)) for number in range(20)))
    assert {result.outcome for result in results} == {"ok"}
    noted = (await subject.out("print(open('/tmp/log').read(), end='')")).splitlines()
    in_turn = [line for number in range(20) for line in (f"begin {number}", f"end {number}")]
    if subject.session:
        assert noted == in_turn
    else:
        # The control: where blocks may run at the same time, these do.
        assert sorted(noted) == sorted(in_turn)
        assert noted != in_turn


# What a tenant leaves where others might look, each under a name that can be looked for.
LEAVE = """
    import ctypes, mmap, os, socket, subprocess, sys, time
    libc = ctypes.CDLL(None, use_errno=True)
    for folder in ("/tmp", "/workspace", "/dev/shm", "/var/tmp", os.environ["HOME"]):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(folder + "/tenant-a", "w") as file:
                file.write("of tenant a")
        except OSError:
            pass
    kept = socket.socket(socket.AF_UNIX)
    kept.bind("\\0tenant-a")
    kept.listen()
    queue = libc.mq_open(b"/tenant-a", os.O_CREAT | os.O_RDWR, 0o666, None)
    for make, extra in ((libc.msgget, ()), (libc.shmget, (4096,)), (libc.semget, (1,))):
        make(0x7E4A47, *extra, 0o1666)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "tenant-a"])
    os.environ["TENANT"] = "a"
    open("/tmp/left", "w").close()
"""
LOOK = """
    import ctypes, errno, os, socket
    libc = ctypes.CDLL(None, use_errno=True)
    seen = set()
    for folder in ("/tmp", "/workspace", "/dev/shm", "/var/tmp", os.environ["HOME"]):
        if os.path.exists(folder + "/tenant-a"):
            seen.add("file")
    with socket.socket(socket.AF_UNIX) as caller:
        if caller.connect_ex("\\0tenant-a") == 0:
            seen.add("socket")
    if libc.mq_open(b"/tenant-a", os.O_RDONLY) >= 0:
        seen.add("queue")
    for name, get, extra in (("message", libc.msgget, ()), ("memory", libc.shmget, (0,)), ("semaphore", libc.semget, (0,))):
        if get(0x7E4A47, *extra, 0) >= 0:
            seen.add(name)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if file.read().endswith(b"tenant-a\\0"):
                    seen.add("process")
        except OSError:
            pass
    if "TENANT" in os.environ:
        seen.add("variable")
    print(*sorted(seen))
"""
# What the session of the tenant itself sees: the control.
ALL = {"file", "memory", "message", "process", "queue", "semaphore", "socket", "variable"}


# Case 79.
@ENGINES
async def test_a_tenant_sees_nothing_of_another_one(kind, untouched, tmp_path, canaries):
    async with (
        kind.make(timeout=20, work_dir=tmp_path / "a") as a,
        kind.make(timeout=20, work_dir=tmp_path / "b") as b,
    ):
        left = await run(a, LEAVE)
        assert left.outcome == "ok", left
        own = set((await run(a, LOOK)).output.split())
        assert own >= {"file", "process", "socket", "variable"}, "not proven: the tenant does not see its own"
        assert (await run(b, LOOK)).output == "\n"
        assert own >= ALL, f"not proven on this kernel: {ALL - own}"
        assert (tmp_path / "a" / "tenant-a").read_text() == "of tenant a"
        assert list((tmp_path / "b").glob("tenant*")) == []
        for path in ("../a/tenant-a", str(tmp_path / "a" / "tenant-a"), str(canaries.file)):
            result = await run(b, f"open({path!r})")
            assert (result.outcome, result.error.type if result.error else None) == ("error", "FileNotFoundError")


# Case 80.
@pytest.mark.timeout(150)
@ENGINES
async def test_a_pooled_sandbox_carries_nothing_over(kind: Kind, untouched: None) -> None:
    """However the block of the tenant before has ended; each tenant looks for what that one has left, and leaves the same."""
    engine: dict[str, object] = {"backend": kind.engine, "mode": kind.mode, "limits": TINY}
    others = set(_namespaces(descendants(os.getpid())))  # of sandboxes that cases share, and that go on forking
    async with ExecutorPool(1, max_alive=1, timeout=20, **engine) as pool:  # type: ignore[arg-type]
        for end in ("stop", "timeout", "killed"):
            async with pool.executor() as tenant:
                await _see_nothing_of_others(tenant)
                await _leave_much(tenant, end)
                space = _hold_namespaces(tenant, others)
                assert processes_in(space), end
            left = await eventually_empty(lambda: {"processes": found} if (found := processes_in(space)) else {})  # noqa: B023
            for handle in space.values():
                os.close(handle)
            assert left == {}, end
        async with pool.executor() as last:
            await _see_nothing_of_others(last)


async def _see_nothing_of_others(executor: SandboxCodeExecutor) -> None:
    assert (await run(executor, "sorted(set(globals()) & {'kept', 'child', 'libc'})")).output == "[]\n"
    assert (await run(executor, LOOK)).output == "\n"
    assert (await run(executor, "import os; os.path.exists('/tmp/left')")).output == "False\n"


async def _leave_much(executor: SandboxCodeExecutor, end: str) -> None:
    """Leave what others could find, and a daemon."""
    daemon = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.1)
        os._exit(0)
    """
    assert (await run(executor, LEAVE)).outcome == "ok"
    assert (await run(executor, daemon)).outcome == "ok"
    if end == "timeout":
        executor.sandbox.timeout = 0.5
        assert (await run(executor, "while True: pass")).outcome == "timeout"
    if end == "killed":
        assert (await run(executor, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")).outcome == "crashed"


def _hold_namespaces(executor: SandboxCodeExecutor, others: Collection[int]) -> dict[int, int]:
    """Descriptors of an executor's pid namespaces, by number, which the kernel gives to nobody else meanwhile."""
    if isinstance(executor, DockerCommandLineCodeExecutor):
        with closing(connect()) as client:
            pids = {int(client.inspect_container(executor.container_name)["State"]["Pid"])}
    else:
        pids = descendants(os.getpid())
    held: dict[int, int] = {}
    for number, pid in _namespaces(pids).items():
        if number not in others:
            with suppress(OSError):
                handle = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
                if os.fstat(handle).st_ino == number:
                    held[number] = handle
                else:  # another process has the number now
                    os.close(handle)
    return held


def _namespaces(pids: Iterable[int]) -> dict[int, int]:
    """The pid namespaces of processes, without this one's: a process of each, by number."""
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):
            found[os.stat(f"/proc/{pid}/ns/pid").st_ino] = pid
    found.pop(os.stat("/proc/self/ns/pid").st_ino, None)
    return found


SPIN = """
    import os, time
    until = time.monotonic() + {seconds}
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            while time.monotonic() < until:
                pass
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    spent = os.times()
    print(spent.children_user + spent.children_system)
"""


# Case 82.
@pytest.mark.timeout(150)
async def test_beside_a_noisy_neighbour_blocks_stay_quick(subject: Subject) -> None:
    executor = await subject.start({"timeout": 30})
    subject.may_fail_without_cgroup()

    async def seconds(blocks: int) -> list[float]:
        taken = []
        for _ in range(blocks):
            began = time.perf_counter()
            result = await run(executor, "print(sum(range(1000)))")
            taken.append(time.perf_counter() - began)
            assert (result.outcome, result.output) == ("ok", "499500\n")
        return taken

    noise = Limits(memory="128m", pids=32, cpus=0.2)
    async with (
        subject.kind.make(timeout=40, limits=noise) as first,
        subject.kind.make(timeout=40, limits=noise) as second,
    ):
        alone, beside = [], []
        for _ in range(3):  # in turn, because the machine has more to do than this
            alone += await seconds(12)
            spinning = [asyncio.ensure_future(run(each, SPIN.format(seconds=30))) for each in (first, second)]
            await asyncio.sleep(0.3)
            beside += await seconds(12)
            assert not any(each.done() for each in spinning)
            for each in spinning:
                each.cancel()
            await asyncio.wait(spinning)
    quiet, noisy = (statistics.quantiles(taken, n=12)[-1] for taken in (alone, beside))
    assert noisy < 10 * quiet + 0.5, (quiet, noisy)
