"""J. Sandboxes that are used again: whatever a use does, the next one finds what is in a new sandbox."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from autogen_codeact.executors import ExecutorPool, Limits
from codeact_sandbox import pool_manager
from tests.cases import case
from tests.sandbox.sandboxes import run

from .subject import SUBJECTS, Kind

SMALL = Limits(memory="256m", pids=48, nofile=256, workspace="16m", tmp="16m", files=12_000)
# The code inside the sandbox is the same in all combinations.
TWO = [kind for kind in SUBJECTS if (kind.engine, kind.mode) in (("docker", "session"), ("bubblewrap", "process"))]

LISTING = """
import fcntl, json, os, resource, signal, stat, sys

def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return str(error.errno)

def tree(top):
    found = {}
    for folder, names, files in os.walk(top):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if not name.startswith("tmp_code_"):
                content = read(path) if stat.S_ISREG(info.st_mode) else None
                when = None if stat.S_ISDIR(info.st_mode) else info.st_size
                found[path] = [oct(info.st_mode), info.st_uid, info.st_gid, info.st_nlink, when, content]
    info = os.stat(top)
    try:
        attributes = os.listxattr(top)
    except OSError:
        attributes = []
    found[top] = [oct(info.st_mode), info.st_uid, info.st_gid, attributes]
    return found

def descriptor(name):
    try:
        flags, owner = fcntl.fcntl(int(name), fcntl.F_GETFL), fcntl.fcntl(int(name), fcntl.F_GETOWN)
        return [name, os.readlink("/proc/self/fd/" + name).split("[")[0], flags, owner, fcntl.fcntl(int(name), 11)]
    except OSError:
        return None

def process(pid):
    try:
        words = read("/proc/%s/stat" % pid).rpartition(")")[2].split()
        return [read("/proc/%s/comm" % pid), words[16], words[38], sorted(os.sched_getaffinity(int(pid)))]
    except OSError:
        return None

def used(path):
    info = os.statvfs(path)
    # This block has its code in one of them; in the other there may already be a home for the next.
    counted = path not in ("/workspace", "/packages")
    return [info.f_blocks, info.f_files - info.f_ffree if counted else None]

places = ["/workspace", "/tmp", "/packages", "/dev/shm", "/dev/mqueue"]
places = [path for path in places if os.path.isdir(path)]
status = read("/proc/self/status").splitlines()
seen = {
    "files": [tree(path) for path in places],
    "space": [used(path) for path in places],
    "mounts": read("/proc/self/mountinfo"),
    "objects": [read("/proc/sysvipc/" + kind) for kind in ("shm", "sem", "msg")],
    "network": [read("/proc/net/" + name) for name in ("tcp", "tcp6", "udp", "dev", "snmp")],
    "names": sorted(line.split()[-1][:9] for line in read("/proc/net/unix").splitlines() if "@" in line),
    "descriptors": [found for found in map(descriptor, sorted(os.listdir("/proc/self/fd"), key=int)) if found],
    "processes": sorted({json.dumps(found) for found in map(process, filter(str.isdigit, os.listdir("/proc"))) if found}),
    "environment": sorted(os.environ.items()),
    "terminals": [
        [os.stat(path).st_mode, os.stat(path).st_mtime < 1000] for path in ("/dev/pts/ptmx", "/dev/pts") if os.path.exists(path)
    ],
    "flow labels": read("/proc/net/ip6_flowlabel"),
    "settings": [read("/proc/sys/" + name) for name in ("kernel/sem", "kernel/msgmax", "kernel/shmmax", "kernel/pid_max")],
    "queues": [read("/proc/sys/fs/mqueue/" + name) for name in ("msg_max", "msgsize_max", "queues_max")],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "umask": next(line for line in status if line.startswith("Umask")),
    "signals": [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"))],
    "directory": os.getcwd(),
    "modules": sorted(sys.modules),
    "path": sys.path,
    "builtins": sorted(dir(__builtins__)) if not isinstance(__builtins__, dict) else sorted(__builtins__),
    "variables": sorted(name for name in globals() if name not in ("seen", "status", "places")),
    "host": os.uname().nodename,
}
print(json.dumps(seen))
"""


class Uses:
    """A pool with one sandbox at a time."""

    def __init__(self, kind: Kind) -> None:
        engine: dict[str, Any] = {"backend": kind.engine, "mode": kind.mode}
        self.pool = ExecutorPool(1, max_alive=1, max_uses=1000, timeout=30, limits=SMALL, **engine)
        self.session = kind.mode == "session"
        self.fresh: dict[str, Any] = {}

    async def listing(self) -> tuple[str, dict[str, Any]]:
        """Name of the sandbox that the next use gets, and what it finds there."""
        async with self.pool.executor() as executor:
            result = await run(executor, LISTING)
            assert result.outcome == "ok", result
            assert executor.sandbox.name is not None
            # Homes of blocks, and the connection of the session, have names of their own.
            text = re.sub(r"home-[0-9a-f]{16}", "home-x", result.output.splitlines()[0])
            found = json.loads(text)
            found["host"] = found["host"] if found["host"] == "sandbox" else "container"
            found["environment"] = [pair for pair in found["environment"] if pair[0] != "HOSTNAME"]
            found["mounts"] = _without_numbers(found["mounts"])
            return executor.sandbox.name, found

    async def attack(self, *codes: str, language: str = "python", timeout: float = 20) -> tuple[str, list[str]]:
        """Name of the sandbox of a use, and how its blocks ended."""
        async with self.pool.executor(timeout=timeout) as executor:
            ends = [(await run(executor, code, language)).outcome for code in codes]
            assert executor.sandbox.name is not None
            return executor.sandbox.name, ends


def _without_numbers(mounts: str) -> str:
    """The list of mounts without what differs between two sandboxes."""
    lines = [line.split(" ", 3)[3] for line in mounts.splitlines()]
    changing = r"[0-9a-f]{12,}|(?<=codeact-)\w+|(master|shared):\d+|/overlay2/\S+|(lower|work|upper)dir=\S+"
    return "\n".join(sorted(re.sub(changing, "", line) for line in lines))


_made: dict[Kind, Uses] = {}


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """The pools of this module, with all the time that a reset needs on a loaded machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_manager, "RESET_TIMEOUT_S", 30.0)
        yield
        for uses in _made.values():
            asyncio.run(uses.pool.stop())
        _made.clear()


@pytest.fixture
async def uses(kind: Kind) -> Uses:
    """A pool whose first use has been listed."""
    if kind not in _made:
        made = Uses(kind)
        await made.pool.start()
        _made[kind] = made
        _, made.fresh = await made.listing()
    return _made[kind]


async def check(uses: Uses, name: str, *, reused: bool | None = True) -> None:
    """The next use finds what the first one has found, in the same sandbox if that could be reset."""
    again, found = await uses.listing()
    for part, before in uses.fresh.items():
        assert found[part] == before, part
    if reused is not None:
        assert (again == name) == reused


FILES = """
import os
for top in ("/workspace", "/tmp", "/dev/shm", os.path.expanduser("~"), "/packages"):
    try:
        os.makedirs(top + "/closed/in/it")
        open(top + "/closed/in/it/file", "w").write("left")
        os.mkfifo(top + "/fifo")
        os.symlink("/etc/passwd", top + "/link")
        os.setxattr(top + "/closed", "user.left", b"1")
    except OSError as error:
        print(top, error)
    deep = top
    try:
        for _ in range(200):
            deep += "/d"
            os.mkdir(deep)
    except OSError as error:
        print(top, error)
    for folder in (top + "/closed/in/it", top + "/closed/in", top + "/closed", top):
        try:
            os.setxattr(folder, "user.left", b"1")
        except OSError as error:
            print(folder, error)
        try:
            os.chmod(folder, 0)
            os.utime(folder, (1, 1))
        except OSError as error:
            print(folder, error)
"""
# Nothing is sent, and the socket is closed: the labels stay for minutes.
FLOW_LABELS = """
import socket, struct
with socket.socket(socket.AF_INET6) as sock:
    for label in (0x12345, 0x54321):
        wanted = struct.pack("=16sIBBHHHI", bytes(range(16)), socket.htonl(label), 0, 255, 1, 100, 100, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, 32, wanted)
"""
SETTINGS = """
import os
changed = 0
for folder in ("/proc/sys/kernel", "/proc/sys/fs/mqueue"):
    for name in sorted(os.listdir(folder)):
        try:
            with open(os.path.join(folder, name), "r+") as file:
                content = file.read()
                file.seek(0)
                file.write(content.replace("0", "1"))
            changed += 1
        except OSError:
            pass
print(changed)
"""
FORGE_RESET = """
import json, os, stat, struct
def frame(kind, message):
    head = json.dumps(message).encode()
    payload = struct.pack("!I", len(head)) + head
    return struct.pack("!cII", kind, 1, len(payload)) + payload
for fd in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            for kind in (b"Z", b"A", b"H"):
                os.write(fd, frame(kind, {"seconds": 1, "problem": None}))
    except OSError:
        pass
os.write(1, frame(b"A", {"problem": None}))
"""
START_FILES = """
import glob, os, site, sys
home = os.path.expanduser("~")
places = [home, "/workspace", "/tmp", site.getusersitepackages(), *glob.glob("/packages/lib/*/site-packages")]
for place in places:
    try:
        os.makedirs(place, exist_ok=True)
        for name in ("left.pth", "usercustomize.py", "sitecustomize.py", "json.py", "matplotlibrc", "pip.conf"):
            with open(place + "/" + name, "w") as file:
                file.write("import sys; sys.left = 1; print('left')")
    except OSError as error:
        print(place, error)
for name in (".profile", ".bashrc", ".bash_profile", ".pythonrc", ".config/pip/pip.conf", ".ipython/startup.py"):
    path = home + "/" + name
    try:
        if os.path.lexists(path):
            os.unlink(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("export LEFT=1; echo left")
    except OSError as error:
        print(path, error)
"""
PROCESSES = """
import os, signal, socket, subprocess, sys, threading, time
def fork():
    try:
        return os.fork()
    except OSError:
        return 1
if fork() == 0:  # a daemon that holds an abstract socket and goes on writing
    os.setsid()
    if fork() == 0:
        sock = socket.socket(socket.AF_UNIX); sock.bind("\\0left"); sock.listen()
        while True:
            try:
                open("/tmp/again", "a").write("again")
            except OSError:
                pass
            time.sleep(0.001)
    os._exit(0)
if fork() == 0:  # one that is stopped
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
if fork() == 0:  # one that ignores everything, with output without end
    for number in range(1, 32):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        try:
            os.write(1, b"x" * 4096)
        except OSError:
            time.sleep(0.01)
if fork() == 0:  # zombies
    for _ in range(5):
        if fork() == 0:
            os._exit(0)
    time.sleep(300)
if fork() == 0:  # the first thread has ended, another lives
    threading.Thread(target=time.sleep, args=(300,)).start()
    import ctypes
    ctypes.CDLL(None).pthread_exit(None)
subprocess.Popen(["sleep", "300"], start_new_session=True)
"""
FORK_BOMB = """
import os, time
def bomb():
    while True:
        try:
            if os.fork() == 0:
                continue
        except OSError:
            time.sleep(0.001)
if os.fork() == 0:
    os.setsid()
    bomb()
time.sleep(0.3)
"""
OBJECTS = """
import array, ctypes, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
for number in range(5):
    libc.shmget(number, 4096, 0o1666); libc.semget(number, 3, 0o1666); libc.msgget(number, 0o1666)
segment = libc.shmget(77, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(segment, None, 0)
queue = libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None)
open("/dev/shm/left", "w").write("left")
# A removed file, held by a socket that nobody can reach any more.
file = os.open("/tmp/held", os.O_CREAT | os.O_RDWR)
os.write(file, b"x" * 100_000)
os.unlink("/tmp/held")
here, there = socket.socketpair()
for sock in (here, there):
    fds = array.array("i", [file, here.fileno(), there.fileno()])
    sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
here.close(); there.close(); os.close(file)
"""
STATE = """
import builtins, fcntl, gc, json, os, resource, signal, sys
os.environ["LEFT"] = "1"; os.environ["PYTHONPATH"] = "/tmp"
os.umask(0o077); os.chdir("/tmp")
for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_STACK"):
    resource.setrlimit(getattr(resource, name), (100, 100))
os.nice(10)
for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
    try:
        os.sched_setaffinity(int(pid), {min(os.sched_getaffinity(0))})
    except OSError:
        pass
fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(0, 10, signal.SIGUSR1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
builtins.print = None
json.dumps = None
sys.modules["left"] = sys
sys.path.insert(0, "/tmp")
"""


async def test_j1_nothing_of_files_settings_and_objects_is_left(uses: Uses) -> None:
    async with uses.pool.executor() as executor:
        name = executor.sandbox.name
        assert name is not None
        assert (await run(executor, START_FILES)).outcome == "ok"
        # The control: within a use the listing shows what was left.
        shown = await run(executor, LISTING)
        assert json.loads(shown.output.splitlines()[-1])["files"] != uses.fresh["files"]
        assert [(await run(executor, code)).outcome for code in (OBJECTS, FILES, STATE)] == ["ok"] * 3
    await check(uses, name)


async def test_j2_no_process_is_left(uses: Uses) -> None:
    name, _ = await uses.attack(PROCESSES, "x = 1")
    await check(uses, name)


@pytest.mark.parametrize("kind", TWO, indirect=True, ids=str)
class TestReset:
    async def test_j3_a_fork_bomb_at_the_end_of_a_use_ends_with_it(self, uses: Uses) -> None:
        name, _ = await uses.attack(FORK_BOMB)
        await check(uses, name, reused=None)

    async def test_j4_full_folders_are_empty_again(self, uses: Uses) -> None:
        code = """
        for top in ("/tmp", "/workspace", "/dev/shm"):
            try:
                with open(top + "/full", "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(1 << 20))
            except OSError as error:
                print(error.errno)
        """
        name, ends = await uses.attack(code)
        assert ends == ["ok"]
        await check(uses, name)

    async def test_j5_many_files_are_removed_or_the_sandbox_is_replaced(self, uses: Uses) -> None:
        code = """
        import os
        for number in range(100_000):
            try:
                os.close(os.open(f"/tmp/{number}", os.O_CREAT))
            except OSError:
                break
        print(number)
        """
        name, ends = await uses.attack(code)
        assert ends == ["ok"]
        await check(uses, name, reused=None)

    async def test_j6_signals_to_the_zygote_change_nothing_of_the_next_use(self, uses: Uses) -> None:
        for number in ["SIGKILL", "SIGSTOP", "SIGTERM", "SIGINT", "SIGUSR1"]:
            with case(number):
                code = f"""
        import os, signal
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            if pid not in (1, os.getpid()):
                os.kill(pid, signal.{number})
        """
                name, _ = await uses.attack(code, "x = 1")
                # In process mode Landlock may refuse it.
                await check(uses, name, reused=number == "SIGSTOP" if uses.session else None)

    async def test_j7_use_of_the_network_ends_the_sandbox(self, uses: Uses) -> None:
        code = """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        client.close(); server.accept()[0].close(); server.close()
        """
        name, ends = await uses.attack(code)
        assert ends == ["ok"]
        await check(uses, name, reused=False)

    async def test_j8_memory_that_ran_out_ends_the_sandbox(self, uses: Uses) -> None:
        name, ends = await uses.attack("hoard = bytearray(1 << 30)\nhoard[:] = b'x' * len(hoard)")
        await check(uses, name, reused=False if ends == ["oom"] else None)

    async def test_j9_forged_frames_are_not_taken_for_a_reset(self, uses: Uses) -> None:
        code = FORGE_RESET
        name, _ = await uses.attack(code, "x = 1")
        await check(uses, name, reused=None)

    async def test_j10_a_use_that_ends_while_its_code_runs_leaves_nothing(self, uses: Uses) -> None:
        async with uses.pool.executor() as executor:
            name = executor.sandbox.name
            code = "import time\nfor n in range(100_000): open(f'/tmp/{n}', 'w').close(); time.sleep(0.0005)"
            running = asyncio.ensure_future(run(executor, code))
            await asyncio.sleep(0.1)
            running.cancel()
            await asyncio.wait({running})
        assert name is not None
        await check(uses, name, reused=None)

    async def test_j11_shells_end_with_the_use(self, uses: Uses) -> None:
        code = "export LEFT=1; trap '' TERM HUP INT; sleep 300 & (setsid sleep 300 &) ; cd /tmp; umask 077"
        name, ends = await uses.attack(code, language="sh")
        assert ends == ["ok"]
        await check(uses, name)

    async def test_j12_flow_labels_end_the_sandbox(self, uses: Uses) -> None:
        name, ends = await uses.attack(FLOW_LABELS)
        await check(uses, name, reused=False if ends == ["ok"] else None)

    async def test_j13_changed_settings_of_the_kernel_end_the_sandbox(self, uses: Uses) -> None:
        async with uses.pool.executor() as executor:
            name = executor.sandbox.name
            assert name is not None
            changed = int((await run(executor, SETTINGS)).output)
        await check(uses, name, reused=not changed)

    async def test_j14_closed_terminals_are_open_again(self, uses: Uses) -> None:
        code = """
        import os
        for path in ("/dev/pts/ptmx", "/dev/pts"):
            try:
                os.utime(path, (7, 7))
                os.chmod(path, 0)
            except OSError as error:
                print(error)
        """
        name, ends = await uses.attack(code)
        assert ends == ["ok"]
        await check(uses, name)
