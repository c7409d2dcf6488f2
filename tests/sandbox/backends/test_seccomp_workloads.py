"""What goes on working under the list of system calls: each program ends by printing "done"."""

from importlib.util import find_spec

import pytest

from codeact_sandbox import Sandbox
from codeact_sandbox.backends.seccomp import SYSCALLS
from tests.cases import case
from tests.sandbox.backends.filtered import MACHINE, place

__all__ = ["place"]  # a fixture
NUMERIC = ("scipy", "matplotlib", "pandas")  # the image has them, a machine may not
pytestmark = pytest.mark.skipif(MACHINE not in SYSCALLS, reason=f"there is no list for {MACHINE}")

MULTIPROCESSING = """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        assert pool.map(abs, range(-50, 0)) == list(range(50, 0, -1))
    manager = context.Manager()
    manager.dict()["a"] = 1
    manager.shutdown()
    print("done")
"""

WORKLOADS = {
    "threads": """
import concurrent.futures, queue, threading
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    assert sum(pool.map(abs, range(-1000, 0))) == 500500
barrier = threading.Barrier(8, timeout=30)
threads = [threading.Thread(target=barrier.wait) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "multiprocessing by fork": MULTIPROCESSING.format(method="fork"),
    "multiprocessing by spawn": MULTIPROCESSING.format(method="spawn"),
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
    "numpy, scipy, pandas and matplotlib": """
import io
import numpy, pandas, scipy.linalg, scipy.optimize
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plot
matrix = numpy.random.default_rng(0).random((300, 300))
assert numpy.allclose(scipy.linalg.inv(matrix) @ matrix, numpy.eye(300))
assert abs(scipy.optimize.brentq(lambda x: x * x - 2, 0, 2) - 2 ** 0.5) < 1e-9
numpy.save("a.npy", matrix)
assert numpy.load("a.npy", mmap_mode="r")[0, 0] == matrix[0, 0]
frame = pandas.DataFrame({"a": [1, 2, 3]})
frame.to_csv("a.csv")
assert pandas.read_csv("a.csv")["a"].sum() == 6
plot.plot([1, 2, 3])
image = io.BytesIO()
plot.savefig(image)
assert image.getvalue().startswith(b"\\x89PNG")
""",
    "a web server on loopback, names and interfaces": """
import http.server, socket, threading, urllib.request
assert any(name == "lo" for _, name in socket.if_nameindex())
assert socket.getaddrinfo("127.0.0.1", 80)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
assert opener.open("http://127.0.0.1:%d/" % server.server_port, timeout=30).status == 200
server.shutdown()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.sendto(b"x", udp.getsockname())
assert udp.recv(1) == b"x"
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


@pytest.mark.parametrize("place", ["docker", "bubblewrap"], indirect=True)
def test_workloads_go_on_under_the_filter(place):
    everything = place == "docker" or all(map(find_spec, NUMERIC))
    with Sandbox(place, mode="process", timeout=50) as box:
        for name, code in WORKLOADS.items():
            if everything or "numpy" not in name:
                with case(name):
                    assert box.run(f"{code}\nprint('done')\n").check().output.endswith("done\n")
