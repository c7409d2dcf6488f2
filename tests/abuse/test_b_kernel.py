"""B. Escape through the kernel: rights, other processes, what /proc and /sys show. (33 to 38 are in test_b_files.)

Each refusal stands beside its control: the same file as the host sees it. Where the control is no different, the case says
"not proven on this kernel". System calls are in `tests/sandbox/backends/test_seccomp.py`.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from .subject import Subject


def of_process(pid: int, name: str) -> bytes:
    """What the host's /proc says of a process."""
    return Path(f"/proc/{pid}/{name}").read_bytes()


# Case 23.
@pytest.mark.first_promise
async def test_no_capability_no_new_privileges_a_filter_not_root(subject: Subject) -> None:
    code = """
    import json
    lines = (line.split(":", 1) for line in open("/proc/self/status"))
    print(json.dumps({name: value.split() for name, value in lines}))
    """
    status = json.loads(await subject.out(code))
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name][0], 16) == 0, name
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]
    assert status["Uid"] == ["65534"] * 4
    assert status["Gid"] == ["65534"] * 4
    pid = subject.pid_one()
    assert pid is not None
    outside = dict(line.split(":", 1) for line in of_process(pid, "status").decode().splitlines())
    assert "0" not in outside["Uid"].split(), "user 0 in the sandbox must not be the host's"
    assert int(outside["CapBnd"], 16) == 0 or subject.kind.engine == "bubblewrap"
    assert int(outside["CapEff"], 16) == 0


LOOK = """
    import json, os, time
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    names = "environ mem maps smaps auxv stack syscall io personality fd/0 fd/1 fd/2 cwd/x root/etc/passwd".split()
    def shown(pid):
        found = []
        for name in names:
            try:
                fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                if name == "mem" or os.read(fd, 1): found.append(name)
            except OSError: pass
        for name in ("mem", "oom_score_adj", "clear_refs", "coredump_filter", "autogroup"):
            try: os.close(os.open(f"/proc/{pid}/{name}", os.O_WRONLY)); found.append("write " + name)
            except OSError: pass
        for name in ("fd", "fdinfo", "map_files", "task/%s/fd" % pid):
            try: os.listdir(f"/proc/{pid}/{name}"); found.append(name)
            except OSError: pass
        for name in ("exe", "cwd", "root", "ns/pid"):
            try: os.readlink(f"/proc/{pid}/{name}"); found.append(name)
            except OSError: pass
        return found
    def see_others():
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    until = time.monotonic() + 10
    while len(see_others()) < 3 and time.monotonic() < until:
        time.sleep(0.01)  # the worker that waits is forked a moment later
    others = see_others()
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(json.dumps([{pid: shown(pid) for pid in others}, shown(child)]))
    os.kill(child, 9)
    _ = os.waitpid(child, 0)
"""


# Case 25.
async def test_nothing_of_the_supervisor_and_its_helpers_can_be_read_or_written(subject: Subject) -> None:
    """Supervisor, zygote, and the worker that waits, or the session's checkpoint."""
    others, own_child = json.loads(await subject.out(LOOK))
    assert len(others) >= 3
    assert {pid: found for pid, found in others.items() if found} == {}
    # The control: the same questions about a process of the code's own.
    assert {"environ", "maps", "mem", "write mem", "fd", "exe"} <= set(own_child)


HELPERS = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger",
    "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/usermodehelper/bset", "/sys/kernel/uevent_helper",
    "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/hostname",
]  # fmt: skip


# Case 26.
async def test_programs_that_the_kernel_starts_can_not_be_named(subject: Subject) -> None:
    code = f"""
    import json, os
    paths = {HELPERS!r}
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        paths += [os.path.join(folder, name) for name in names if name in ("release_agent", "notify_on_release", "cgroup.procs",
            "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us")]
    opened = []
    for path in paths:
        try: os.close(os.open(path, os.O_WRONLY)); opened.append(path)
        except OSError: pass
    made = []
    for folder in {{os.path.dirname(path) for path in paths}}:
        try: os.mkdir(folder + "/made"); made.append(folder)
        except OSError: pass
    print(json.dumps([opened, made]))
    """
    assert json.loads(await subject.out(code)) == [[], []]
    if not any(os.access(path, os.W_OK) for path in HELPERS):
        pytest.skip("not proven on this kernel: the host can't write there either")


SECRETS = [
    "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
    "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun",
    "/proc/kpagecount", "/proc/kpageflags", "/proc/vmallocinfo", "/proc/slabinfo", "/sys/kernel/debug/x", "/boot/vmlinuz",
]  # fmt: skip


# Case 27.
async def test_what_the_kernel_knows_of_the_whole_machine_is_empty_or_refused(subject: Subject) -> None:
    code = f"""
    import json, os
    seen = []
    for path in {SECRETS!r}:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            if os.read(fd, 1): seen.append(path)
        except OSError: pass
    listed = []
    for folder in ("/sys/firmware", "/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/kernel/security", "/dev/mapper", "/boot"):
        try: listed += os.listdir(folder)
        except OSError: pass
    with open("/proc/kallsyms") as file:
        addresses = {{line.split()[0].strip("0") for line in file}}
    print(json.dumps([seen, listed, sorted(addresses)]))
    """
    assert json.loads(await subject.out(code)) == [[], [], [""]]
    readable = [path for path in SECRETS[:2] if os.access(path, os.R_OK)]
    if not readable:
        pytest.skip("not proven on this kernel: the host can't read them either")


SOCKETS = (
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
    "/run/crio/crio.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
)  # fmt: skip


# Case 28.
async def test_there_is_no_socket_of_an_engine(subject: Subject) -> None:
    code = f"""
    import json, os, socket, stat
    own = socket.socket(socket.AF_UNIX)
    own.bind("/tmp/own.sock")
    found = []
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/proc", "/sys")): continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode): found.append(path)
            except OSError: pass
    os.unlink("/tmp/own.sock")
    found += [path for path in {SOCKETS} if os.path.exists(path)]
    found += [name for name in os.environ if name.startswith(("DOCKER", "CONTAINER", "KUBE", "DBUS", "SSH"))]
    print(json.dumps(found))
    """
    # The control: the code sees a socket where there is one, and the host has one of those that it looks for.
    assert json.loads(await subject.out(code, timeout=40)) == ["/tmp/own.sock"]
    if not any(map(os.path.exists, SOCKETS)):
        pytest.skip("not proven here: the host has no such socket at the usual places")


SET_USER_ID = """
    import json, os, stat, subprocess
    found = []
    for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/local", "/bin", "/sbin", "/opt"):
        for below, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(below, name)
                try: mode = os.lstat(path)
                except OSError: continue
                if stat.S_ISREG(mode.st_mode) and mode.st_mode & stat.S_ISUID and os.access(path, os.X_OK): found.append(path)
    said = []
    for path in found:
        # Programs that gain rights ignore this variable; others show who they run as.
        done = subprocess.run([path, "--version"], env={"LD_SHOW_AUXV": "1"}, stdin=-3, capture_output=True, text=True)
        fields = dict(line.split(":", 1) for line in done.stdout.splitlines() if line.startswith("AT_"))
        if fields: said.append([fields["AT_EUID"].strip(), fields["AT_SECURE"].strip()])
    print(json.dumps([len(found), said]))
"""


# Case 29.
async def test_a_set_user_id_program_gains_nothing(subject: Subject) -> None:
    count, said = json.loads(await subject.out(SET_USER_ID, timeout=50))
    if not count:
        pytest.skip("not proven here: the sandbox shows no such program")
    assert [each for each in said if each != ["65534", "0"]] == []
    assert said
    control = await asyncio.to_thread(su_as_nobody)
    if control is None:
        pytest.skip("not proven here: the control needs root and a set-user-id program on the host")
    assert b"AT_" not in control, "on the host the same kind of program gains its rights"


def su_as_nobody() -> bytes | None:
    """What a program with rights of its own says on the host, to a user who has none."""
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/su"):
        return None
    return subprocess.run(
        ["/usr/bin/su", "--version"], user=65534, env={"LD_SHOW_AUXV": "1"}, capture_output=True, check=False
    ).stdout


# Case 32.
async def test_neither_the_supervisor_nor_the_system_can_be_overwritten(subject: Subject) -> None:
    code = """
    import json, os, sys
    writable = []
    for folder, folders, names in os.walk("/"):
        own = ("/proc", "/sys", "/workspace", "/tmp", os.environ["HOME"])
        folders[:] = [name for name in folders if os.path.join(folder, name) not in own]
        try: os.close(os.open(folder + "/x", os.O_CREAT)); os.unlink(folder + "/x"); writable.append(folder)
        except OSError: pass
        writable += [path for path in (os.path.join(folder, name) for name in names)
                     if not os.path.islink(path) and os.access(path, os.W_OK) and not path.startswith("/dev/")]
    opened = []
    for path in (sys.executable, "/proc/self/exe", "/proc/1/exe", "/proc/1/mem", os.__file__, "/etc/passwd", "/etc/ld.so.preload",
                 "/proc/self/attr/current", "/usr/lib/os-release"):
        try: os.close(os.open(path, os.O_WRONLY)); opened.append(path)
        except OSError: pass
    for attempt in (lambda: os.rename("/usr", "/tmp/usr"), lambda: os.symlink("/tmp", "/etc/x"), lambda: os.unlink("/etc/passwd"),
                    lambda: os.mkdir("/x"), lambda: os.chmod("/", 0o777), lambda: os.rename("/workspace", "/tmp/w")):
        try: attempt(); opened.append("done")
        except OSError: pass
    print(json.dumps([sorted(writable), [path for path in opened if path != "/proc/self/attr/current"]]))
    """
    writable, opened = json.loads(await subject.out(code, timeout=50))
    # All blocks may install packages.
    packages = {path for path in writable if path.split("/")[1] == "packages"}
    assert set(writable) - packages <= {"/dev/shm", "/dev/mqueue"}
    assert "/dev/shm" in writable  # the look finds what can be written
    assert opened == []


# Case 32.
async def test_nothing_is_inherited_but_the_blocks_own_pipes_and_socket(subject: Subject) -> None:
    code = """
    import os
    listed = os.listdir("/proc/self/fd")
    fds = [fd for fd in listed if os.path.lexists("/proc/self/fd/" + fd)]
    kinds = sorted((int(fd), os.readlink("/proc/self/fd/" + fd).split(":")[0]) for fd in fds)
    print([kind for _, kind in kinds if kind != "/dev/null"], kinds[0])
    """
    assert await subject.out(code) == "['pipe', 'pipe', 'socket'] (0, '/dev/null')\n"


# Case 32.
async def test_no_variable_of_the_host_is_seen(kind, subject, monkeypatch):
    secret = "sk-of-the-host-71c2"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    code = """
    import os, glob
    found = repr(os.environ)
    for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + ["/proc/self/mountinfo", "/proc/self/auxv"]:
        try: found += open(path, "rb").read().decode("latin-1")
        except OSError: pass
    print(found.count("sk-of-the-" + "host"), len(found) > 500)
    """
    assert await subject.out(code) == "0 True\n"
    # Nor by other users of the host, in the words that bubblewrap is started with.
    pid = subject.pid_one()
    assert pid is not None
    parent = int(of_process(pid, "stat").rpartition(b")")[2].split()[1])
    for each in (pid, parent) if kind.engine == "bubblewrap" else (pid,):
        assert secret.encode() not in of_process(each, "environ") + of_process(each, "cmdline")
