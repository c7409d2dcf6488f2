"""Escapes and leaks that code in a sandbox tries: each function runs there, alone, with facts about the host in `HOST`.

A function returns evidence that it got out, or what it could do; it returns nothing, or raises, if it was stopped. The evidence
of those that read something must contain the host's secret, which the code is not told. Standard library only, Python 3.8 and
later.
None of them damages a host that does not stop it: settings are written as they are, and what grows has an end.
"""

import ctypes
import glob
import os
import signal
import socket
import struct
import subprocess
import sys
import time

HOST = {}
"""Facts about the host, which the program that tries an escape sets."""
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """Call a function of the C library, which must succeed."""
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def answer(address, family=socket.AF_INET):
    """Return what a server says."""
    with socket.socket(family) as client:
        client.settimeout(3)
        client.connect(address)
        return client.recv(100).decode()


def read(path):
    """Return the beginning of a file."""
    with open(path) as file:
        return file.read(10_000)


def each_of(pattern):
    """Yield what can be read of the files with names of a pattern."""
    for path in glob.glob(pattern):
        try:
            if os.path.isfile(path):
                yield read(path)
        except (OSError, ValueError):
            continue


def first(attempts):
    """Return what the first of some functions returns that does not raise."""
    for attempt in attempts:
        try:
            return attempt()
        except OSError:
            continue
    return None


def try_one(name):
    """Print `GOT` with the evidence of an escape, or why it was stopped."""
    try:
        print("GOT", globals()[name]() or "nothing")
    except BaseException as error:  # noqa: BLE001 - also what ends a program
        print("STOPPED", repr(error)[:200])


def network_loopback():
    """reach a server on the host's loopback"""
    return answer(("127.0.0.1", HOST["port"]))


def network_address():
    """reach a server on the host's addresses"""
    return first(lambda address=address: answer((address, HOST["port"])) for address in HOST["addresses"])


def network_gateway():
    """reach the host through the default gateway"""
    with open("/proc/net/route") as routes:
        fields = [line.split() for line in routes]
    gateways = [socket.inet_ntoa(struct.pack("<L", int(each[2], 16))) for each in fields if each[1] == "00000000"]
    return first(lambda gateway=gateway: answer((gateway, HOST["port"])) for gateway in gateways)


def network_abstract_socket():
    """reach a server on an abstract Unix socket of the host"""
    return answer("\0" + HOST["abstract"], socket.AF_UNIX)


def network_raw_packets():
    """open a socket for raw packets"""
    kinds = [(socket.AF_INET, 1), (socket.AF_PACKET, 0x300)]
    return first(lambda kind=kind: socket.socket(kind[0], socket.SOCK_RAW, kind[1]).close() or "done" for kind in kinds)


def files_read():
    """read a file of the host by its path"""
    return read(HOST["secret_file"])


def files_write():
    """write a file of the host by its path"""
    with open(HOST["writable_file"], "w") as file:
        file.write(HOST["mark"])


def files_through_proc():
    """read a file of the host through /proc/PID/root"""
    paths = [folder + "/root" + HOST["secret_file"] for folder in glob.glob("/proc/[0-9]*")]
    return first(lambda path=path: read(path) for path in paths)


def files_engine_socket():
    """talk to the container engine's socket"""

    def connect(path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        return "done"

    paths = ["/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"]
    return first(lambda path=path: connect(path) for path in paths)


def files_device():
    """make a device node and open the host's disk"""

    def make(name):
        path = "/tmp/board-device-" + name
        os.mknod(path, 0o600 | 0o060000, os.makedev(*map(int, name.split(":"))))
        try:
            os.close(os.open(path, os.O_RDONLY))
        finally:
            os.unlink(path)
        return "done"

    return first(lambda name=name: make(name) for name in os.listdir("/sys/dev/block"))


def files_mount():
    """mount a file system"""
    os.makedirs("/tmp/board-mount", exist_ok=True)
    call("mount", b"board", b"/tmp/board-mount", b"tmpfs", 0, None)
    call("umount", b"/tmp/board-mount")
    return "done"


def files_by_handle():
    """open a file by its handle, past the root"""
    handle = ctypes.create_string_buffer(struct.pack("II", 8, 1) + struct.pack("Q", 2))
    folder = os.open("/", os.O_RDONLY)
    os.close(call("open_by_handle_at", folder, handle, os.O_RDONLY))
    return "done"


def processes_see():
    """see a process of the host"""
    return " ".join(text for text in each_of("/proc/[0-9]*/cmdline") if "sleep-" in text)


def processes_signal():
    """signal a process of the host"""
    os.kill(HOST["process"], signal.SIGUSR1)


def processes_memory():
    """read the memory of the sandbox's first process"""
    with open("/proc/1/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open("/proc/1/mem", "rb", 0) as memory:
        memory.seek(start)
        return memory.read(4) and "done"


def processes_trace():
    """trace the sandbox's first process"""
    seize, detach = 0x4206, 17
    call("ptrace", seize, 1, 0, 0)
    call("ptrace", detach, 1, 0, 0)
    return "done"


def processes_namespaces():
    """join the namespaces of the sandbox's first process"""

    def join(kind):
        call("setns", os.open("/proc/1/ns/" + kind, os.O_RDONLY), 0)
        return "done"

    return first(lambda kind=kind: join(kind) for kind in ("mnt", "net", "pid"))


def processes_shared_memory():
    """read shared memory of the host (System V)"""
    libc.shmat.restype = ctypes.c_void_p
    readonly = 0o10000
    address = libc.shmat(call("shmget", HOST["shared_memory"], 0, 0), None, readonly)
    return ctypes.string_at(address, 64).decode(errors="replace")


def kernel_user_namespace():
    """make a user namespace, to be root in it"""
    if os.fork() == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
    return "done" if os.wait()[1] == 0 else None


def kernel_settings():
    """write a kernel setting"""

    def write(path):
        value = read(path)
        with open(path, "w") as file:
            file.write(value)
        return "done"

    paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hostname"]
    return first(lambda path=path: write(path) for path in paths)


def kernel_control_groups():
    """open a control group's files for writing"""
    paths = glob.glob("/sys/fs/cgroup/*/release_agent") + glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)
    return first(lambda path=path: os.close(os.open(path, os.O_WRONLY)) or "done" for path in paths[:50])


def kernel_interfaces():
    """use bpf, io_uring, userfaultfd or keys"""
    bpf, io_uring_setup, userfaultfd, add_key = 321, 425, 323, 248
    array = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(100))
    calls = [
        (bpf, 0, array, 72),
        (io_uring_setup, 4, ctypes.create_string_buffer(200)),
        (userfaultfd, 0),
        (add_key, b"user", b"board", b"value", 5, -3),
    ]
    return first(lambda each=each: call("syscall", *each) and "done" for each in calls)


def kernel_host_name():
    """set the machine's name"""
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))
    return "done"


def limits_memory():
    """use more than 6 GiB of memory"""
    chunks = []
    for _ in range(24):
        chunk = bytearray(1 << 28)
        chunk[::4096] = b"x" * len(chunk[::4096])
        chunks.append(chunk)
    return "done"


def limits_processes():
    """start more than 1,000 processes"""
    children = []
    try:
        for _ in range(1100):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return "done"


def limits_disk():
    """write more than 4 GiB to the disk"""

    def fill(folder):
        path = os.path.join(folder, "board-large-file")
        try:
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 4 << 30)
        finally:
            os.unlink(path)
        return "done"

    return first(lambda folder=folder: fill(folder) for folder in (".", "/tmp", "/var/tmp", os.path.expanduser("~")))


def limits_output():
    """send 200 MB of output to the host"""
    for _ in range(200):
        print("x" * 999_999)


def limits_survive():
    """leave a process that outlives the sandbox"""
    command = [sys.executable, "-c", "import time; time.sleep(600)", HOST["mark"]]
    subprocess.Popen(command, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)


def secrets_environment():
    """read a secret in the environment of the program that uses the sandbox"""
    texts = [*os.environ.values(), *each_of("/proc/[0-9]*/environ")]
    return " ".join(text for text in texts if "secret-" in text)


def secrets_descriptors():
    """read an open file of the host through a descriptor that was inherited"""
    return " ".join(text for text in each_of("/proc/[0-9]*/fd/*") if "secret-" in text)
