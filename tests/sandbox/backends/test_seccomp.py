"""The sandbox's list of system calls: each refusal beside its control, the same call without the filter.

A refusal that looks the same without the filter proves nothing; the test prints its name.
"""

import pytest

from codeact_sandbox import AsyncSandbox, Sandbox
from codeact_sandbox.backends.seccomp import SYSCALLS
from tests.cases import case
from tests.sandbox.backends.filtered import MACHINE, NUMBERS, UNLISTED, outcomes, run
from tests.sandbox.backends.syscall_probe import ALLOWED, FOREIGN, MODES, REFUSED

pytestmark = pytest.mark.skipif(MACHINE not in SYSCALLS, reason=f"there is no list for {MACHINE}")
BY_ARGUMENT = [name for name in REFUSED if name not in UNLISTED and name.split()[0] in NUMBERS]
BESIDE = [name for name in ALLOWED if name.split()[0] in NUMBERS or name.split()[0] not in MODES]
# libseccomp, which makes the filter for Docker, may not know the newest calls; runc answers those with ENOSYS.
NEW = 450


@pytest.mark.usefixtures("docker_engine")
async def test_engine_means_the_engines_own_profile():
    traced = "import ctypes\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
    for options, said in (({"seccomp": "engine"}, "0\n"), ({}, "-1\n")):
        async with AsyncSandbox("docker", mode="process", **options) as box:
            assert (await box.run(traced)).output == said


def check_refused(backend, cases, expected):
    """Check each case; `expected` gives what it may end with. Some are not proven on each kernel, but never all."""
    seen, control = outcomes(backend, filtered=True), outcomes(backend, filtered=False)
    assert {case: seen[case] for case in cases if seen[case] not in expected(case)} == {}
    unproven = [case for case in cases if seen[case] == control[case]]
    print(f"not proven in {backend}, because they end so without the filter, too: {unproven}")
    assert len(unproven) < len(cases)


# Cases 24, 25, 31.
def test_calls_that_are_not_on_the_list_are_refused(backend):
    def expected(case):
        return {"EPERM", "ENOSYS"} if backend == "docker" and NUMBERS[case] > NEW else {"EPERM"}

    check_refused(backend, UNLISTED, expected)


# Cases 24, 30.
def test_calls_are_refused_by_their_arguments(backend):
    check_refused(backend, BY_ARGUMENT, lambda _: {"EPERM"})


# Case 30.
@pytest.mark.skipif(MACHINE != "x86_64", reason="only x86-64 has further ways into the kernel")
def test_other_entries_to_the_kernel_are_closed(backend):
    check_refused(backend, list(FOREIGN), lambda _: {"SIGSYS"})


def test_calls_beside_refused_ones_work(backend):
    seen, control = outcomes(backend, filtered=True), outcomes(backend, filtered=False)
    proven = [case for case in BESIDE if control[case] == "ok"]
    assert {case: seen[case] for case in proven if seen[case] != "ok"} == {}
    assert len(proven) > len(BESIDE) / 2


UNKNOWN = """\
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in ({clone3}, {openat2}, 999, 4000):
    print(libc.syscall(number, 0, 0), errno.errorcode[ctypes.get_errno()])
"""


def test_calls_that_libc_can_replace_return_enosys(backend):
    """Where glibc reads EPERM from clone3, it starts no thread; and who gets ENOSYS from openat2 takes openat."""
    code = UNKNOWN.format(clone3=NUMBERS["clone3"], openat2=NUMBERS["openat2"])
    assert run(backend, code, filtered=True) == "-1 ENOSYS\n" * 4
    assert "ENOSYS" not in "".join(run(backend, code, filtered=False).splitlines()[:2])


WORKLOADS = {
    "shared memory, semaphores and mmap": """
import mmap, multiprocessing, multiprocessing.shared_memory as shared
block = shared.SharedMemory(create=True, size=1 << 20)
block.buf[0] = 7
block.close()
block.unlink()
lock = multiprocessing.Semaphore(1)
assert lock.acquire()
page = mmap.mmap(-1, 8192)
page.madvise(mmap.MADV_DONTNEED)
page.flush()
""",
    "asyncio: subprocess, server, signals, executor": """
import asyncio, os, signal
async def main():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert await process.communicate(b"x" * 100000) == (b"x" * 100000, None)
    async def serve(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"line\\n")
    assert await reader.read() == b"line\\n"
    writer.close()
    server.close()
    seen = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, seen.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(seen.wait(), 30)
    await asyncio.get_running_loop().run_in_executor(None, abs, 1)
asyncio.run(main())
""",
    "files: temporary, copied, locked, linked, sparse, dated": """
import fcntl, os, shutil, stat, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "a")
    with open(path, "wb") as file:
        file.write(os.urandom(100000))
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.fsync(file.fileno())
        os.posix_fallocate(file.fileno(), 0, 200000)
        os.ftruncate(file.fileno(), 100000)
    shutil.copytree(folder, folder + "/copy")
    with open(path, "rb") as source, open(path + "2", "wb") as target:
        assert os.copy_file_range(source.fileno(), target.fileno(), 1000) == 1000
        assert os.sendfile(target.fileno(), source.fileno(), 0, 1000) == 1000
    os.symlink(path, path + "3")
    os.link(path, path + "4")
    os.mkfifo(path + "5")
    os.mknod(path + "6", stat.S_IFREG | 0o600)
    os.chmod(path, 0o600)
    os.utime(path, (1, 2))
    os.replace(path, path + "7")
    assert len(list(os.scandir(folder))) == 7
    shutil.rmtree(folder + "/copy")
with tempfile.TemporaryFile() as file, tempfile.SpooledTemporaryFile(10) as spooled:
    spooled.write(b"x" * 100)
os.sync()
""",
    "memfd, epoll, pidfd and other descriptors": """
import os, select, signal
memory = os.memfd_create("a")
os.write(memory, b"x")
poll = select.epoll()
reading, writing = os.pipe2(os.O_CLOEXEC)
poll.register(reading, select.EPOLLIN)
os.write(writing, b"x")
assert poll.poll(30)
child = os.fork()
if child == 0:
    signal.pause()
handle = os.pidfd_open(child)
signal.pidfd_send_signal(handle, signal.SIGTERM)
assert os.waitid(os.P_PIDFD, handle, os.WEXITED).si_status == signal.SIGTERM
""",
    "pipelines of sh and bash": """
import subprocess
scripts = {
    "seq 1 100 | grep 7 | sort -rn | head -n 3 | tr '\\n' ' '; (sleep 0.01 & wait)": "97 87 79 ",
    "trap 'echo bye' EXIT; umask 022; ulimit -n > /dev/null; kill -0 $$": "bye\\n",
    "find / -maxdepth 1 | xargs -P 2 -n 1 stat > /dev/null && tar c /etc/passwd | tar t": "etc/passwd\\n",
}
for shell in ("sh", "bash"):
    for script, expected in scripts.items():
        said = subprocess.run([shell, "-c", script], stdout=subprocess.PIPE, text=True, timeout=20)
        assert (said.returncode, said.stdout) == (0, expected)
assert subprocess.check_output(["bash", "-c", "cat <(echo a) - <<< b"]) == b"a\\nb\\n"
""",
    "a filter of the code's own": """
import ctypes, struct
allow_all = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(1, allow_all)), 0, 0) == 0
""",
}


def test_workloads_go_on_under_the_filter(backend):
    with Sandbox(backend, mode="process", timeout=50) as box:
        for name, code in WORKLOADS.items():
            with case(name):
                assert box.run(f"{code}\nprint('done')\n").check().output.endswith("done\n")
