"""F. Together: many sandboxes on one machine, and none of them hears, sees, inherits or starves another.

Case 83 has a module of its own.
"""

import asyncio
import os
from pathlib import Path

import pytest

from autogen_codeact.executors import Limits
from tests.sandbox.sandboxes import out, run

from .oracles import leftovers
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
    served = socket.create_server(("0.0.0.0", 45454))
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
    with socket.socket() as caller:
        if caller.connect_ex(("127.0.0.1", 45454)) == 0:
            seen.add("port")
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
ALL = {"file", "memory", "message", "port", "process", "queue", "semaphore", "socket", "variable"}


# Cases 44, 79.
@ENGINES
async def test_a_tenant_sees_nothing_of_another_one(kind, untouched, tmp_path, canaries):
    async with (
        kind.make(timeout=20, work_dir=tmp_path / "a") as a,
        kind.make(timeout=20, work_dir=tmp_path / "b") as b,
    ):
        left = await run(a, LEAVE)
        assert left.outcome == "ok", left
        own = set((await run(a, LOOK)).output.split())
        assert own >= {"file", "port", "process", "socket", "variable"}, "not proven: the tenant does not see its own"
        assert (await run(b, LOOK)).output == "\n"
        assert own >= ALL, f"not proven on this kernel: {ALL - own}"
        assert (tmp_path / "a" / "tenant-a").read_text() == "of tenant a"
        assert list((tmp_path / "b").glob("tenant*")) == []
        for path in ("../a/tenant-a", str(tmp_path / "a" / "tenant-a"), str(canaries.file)):
            result = await run(b, f"open({path!r})")
            assert (result.outcome, result.error.type if result.error else None) == ("error", "FileNotFoundError")


WARM_UP, CYCLES = 3, 8
GROWN_KIB = 2048
"""What the allocator may keep of that many cycles; 8 leaked connections alone would have more."""


def figures() -> dict[str, int]:
    """What could grow, by name."""
    return {name: len(found) for name, found in leftovers().items()}


def resident_kib() -> int:
    """This process's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


async def live(kind: Kind, cycles: int) -> None:
    """Have some sandboxes, one after the other."""
    for _ in range(cycles):
        async with kind.make() as executor:
            assert await out(executor, "print(6 * 7)") == "42\n"


# Case 81.
@pytest.mark.usefixtures("untouched")
async def test_start_and_stop_cycles_leave_everything_flat(kind: Kind) -> None:
    # A leak makes each row of cycles larger. The allocator keeps a few MiB once, for what a busy machine has piled up.
    grown = GROWN_KIB
    for _ in range(3):
        await live(kind, WARM_UP)
        before, resident = figures(), resident_kib()
        await live(kind, CYCLES)
        grown = resident_kib() - resident
        assert figures() == before
        assert (before["control groups"], before["containers"]) == (0, 0)
        if grown < GROWN_KIB:
            break
    assert grown < GROWN_KIB
