"""Linux interfaces: process trees, reaping, signals, prctl, resource limits, memory and out-of-memory kills."""

import ctypes
import os
import resource
import signal
import time

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
FLUSH_SIGNAL = signal.SIGRTMAX - 3
ROUNDS_BEFORE_FREEZE = 6
MAX_FDS = 1 << 17
MAX_PID = 1 << 22
THREADS, RESIDENT = 17, 21  # fields of /proc/PID/stat, counted from after the name
QUICK_PAGES = 16384
FREE_ENOUGH = 0.875

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int,) + 4 * (ctypes.c_ulong,)


def prctl(option, value):
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d) failed" % option)


def become_subreaper():
    """Become the parent of orphaned descendants; return whether the kernel can do that: otherwise they become PID 1's."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError:
        return False
    return True


def set_limits(limits):
    """Set resource limits for this process and all that it will start; they can't be raised again."""
    for name, value in limits.items():
        number = getattr(resource, "RLIMIT_" + name)
        _, hard = resource.getrlimit(number)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (limit, limit))


def raise_descriptor_limit():
    """Let the supervisor have more descriptors than the code.

    The kernel counts descriptors that are in transit between processes by user, for all sandboxes together, and refuses to send
    more for a process that has reached its own limit: without a higher limit, any sandbox could block all supervisors.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_FDS if hard == resource.RLIM_INFINITY else min(hard, MAX_FDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def adjust_oom_score(score):
    """Set how likely the kernel kills this process when memory runs out (0 to 1000)."""
    try:
        # Without Python's file objects: this happens twice in each checkpoint.
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % score)
        finally:
            os.close(fd)
    except OSError:
        pass  # some kernels refuse it; then the largest process is killed first, which is nearly always right


OOM_COUNTERS = [
    path
    for path in (
        "/sys/fs/cgroup/memory.events",  # cgroup v2
        "/sys/fs/cgroup/memory/memory.oom_control",  # cgroup v1
    )
    if os.path.exists(path)
]


def count_oom_kills():
    """Return how many processes of this sandbox the kernel has killed because memory ran out; None if it can't be read."""
    for path in OOM_COUNTERS:
        _, _, rest = (b"\n" + (read_again(path) or b"")).partition(b"\noom_kill ")
        number = rest.partition(b"\n")[0]
        if number.isdigit():
            return int(number)
    return None


def read_small(path):
    """Return the content of a kernel file, None if it can't be read; fast, because some are read for each block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)


# Descriptors by path; a process that closes all that it has inherited clears it.
kept_open = {}


def read_again(path):
    """Return the content of a kernel file that is read for each block, None if it can't be read; it is kept open."""
    try:
        if path not in kept_open:
            kept_open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(kept_open[path], 4096, 0)
    except OSError:
        return None


MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # cgroup v2, v1
MEMORY_USE = (
    # Used memory, and the part of it that the kernel can reclaim: cgroup v2, v1.
    ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", ("active_file", "inactive_file")),
    (
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        ("total_active_file", "total_inactive_file"),
    ),
)


def memory_limit():
    for path in MEMORY_LIMITS:
        limit = (read_small(path) or b"").strip()
        if limit.isdigit():
            return int(limit)
    return None


def memory_in_use():
    """Return the bytes that count against the sandbox's memory limit, files in memory included; None if it can't be read."""
    for path, parts, cached in MEMORY_USE:
        try:
            with open(path) as file:
                used = int(file.read())
            with open(parts) as file:
                return used - sum(int(line.split()[1]) for line in file if line.split(" ")[0] in cached)
        except (OSError, ValueError, IndexError):
            continue
    return None


def wait_for_memory(limit, seconds=0.5):
    """After an out-of-memory kill, wait until much less than the limit is in use: the next page could cost another process.

    The memory of a dead process stays in use while someone on the host reads from /proc about it.
    """
    until, pause = time.monotonic() + seconds, 0.001
    while limit and (memory_in_use() or 0) > limit * FREE_ENOUGH and time.monotonic() < until:
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def list_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parents():
    return _read_parents()[0]


def children():
    """Return the children of this process that it has not waited for, zombies included."""
    this = b"%d" % os.getpid()
    return {pid for pid in list_pids() if stat_fields(pid)[1:2] == [this]}


def stat_fields(pid):
    """Return the fields of /proc/PID/stat after the name; empty if the process is gone."""
    # The name may contain spaces and brackets.
    return (read_small("/proc/%d/stat" % pid) or b"").rpartition(b")")[2].split()


def _is_dead(fields):
    # A process whose first thread has ended looks like a zombie, and lives as long as it has others.
    return not fields or (fields[0] in (b"Z", b"X") and int(fields[THREADS]) <= 1)


def parent(pid):
    fields = stat_fields(pid)
    return 0 if _is_dead(fields) else int(fields[1])


def is_quick_to_end(pid):
    """Return whether a living process has a single thread and little memory, so that the kernel can remove it fast."""
    fields = stat_fields(pid)
    # One that is ending has given its memory back before it is a zombie.
    return not _is_dead(fields) and int(fields[THREADS]) <= 1 and 0 < int(fields[RESIDENT]) <= QUICK_PAGES


def signal_name(number):
    return signal.Signals(number).name if number in set(signal.Signals) else "signal %d" % number


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def is_pending(pid, number):
    """Return whether a process has not been given a signal yet that was sent to it."""
    lines = (read_small("/proc/%d/status" % pid) or b"").splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def kill_trees(find_roots, keep=(), seconds=2.0):
    """Kill processes and all their descendants: stop them first, so that none can fork, then kill, until none is left."""
    until = time.monotonic() + seconds
    pause = 0.0005
    rounds = 0
    dead = set()
    while True:
        rounds += 1
        # The last round freezes all processes, however slow the machine was.
        last = time.monotonic() > until
        if (rounds > ROUNDS_BEFORE_FREEZE or last) and os.getpid() == 1:
            left, died = _kill_frozen(find_roots, keep), False
        else:
            known = dead
            parent_of, dead = _read_parents()
            # A process that has died since it was listed may have forked before, and its child is not in the list.
            died = not dead <= known
            left = descendants(parent_of, find_roots, keep)
            for pid in left:
                send_signal(pid, signal.SIGSTOP)
            for pid in descendants(parents(), find_roots, keep) if left else ():
                send_signal(pid, signal.SIGKILL)
        if last or not (left or died):
            return
        reap()
        if left:
            time.sleep(pause)
            pause = min(pause * 2, 0.02)


def _kill_frozen(find_roots, keep):
    """Stop every process at once: the only way to kill one that forks faster than it can be found."""
    send_signal(-1, signal.SIGSTOP)
    try:
        tree = descendants(parents(), find_roots, keep)
        for pid in tree:
            send_signal(pid, signal.SIGKILL)
    finally:
        send_signal(-1, signal.SIGCONT)
    return tree


def _read_parents():
    parent_of, gone = {}, set()
    for pid in list_pids():
        fields = stat_fields(pid)
        if _is_dead(fields):
            gone.add(pid)
        else:
            parent_of[pid] = int(fields[1])
    return parent_of, gone


def descendants(parent_of, find_roots, keep=()):
    """Return processes and all their descendants, without those to keep, of which the descendants are included."""
    children = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    todo = [pid for pid in (*find_roots(parent_of), *keep) if pid in parent_of]
    found = set()
    while todo:
        pid = todo.pop()
        if pid not in keep:
            found.add(pid)
        todo.extend(child for child in children.get(pid, ()) if child not in found)
    return found


_reaped = []


def reap():
    """Wait for dead children; `reaped` returns them."""
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _reaped.append((pid, status, usage_of(used)))


def reaped():
    """Return the children that have died since the last call, as (pid, wait status, usage)."""
    reap()
    taken = list(_reaped)
    _reaped.clear()
    return taken


# What a process has used

NO_USAGE = (0.0, 0)


def usage_of(used):
    """Return the processor seconds of a process with the children that it has waited for, and its largest memory."""
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def usage(pid):
    """Return the same of a process that lives; its memory is that since `forget_peak`."""
    ticks = sum(map(int, stat_fields(pid)[11:15]))
    lines = (read_small("/proc/%d/status" % pid) or b"").splitlines()
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith(b"VmHWM:")]
    return ticks * TICK_S, max(peaks, default=0)


def forget_peak(pid):
    """Measure the largest memory of a process from now on, where the kernel can."""
    try:
        with open("/proc/%d/clear_refs" % pid, "w") as file:
            file.write("5")
    except OSError:
        pass


# Processor time that a block has used

CGROUP_COUNTERS = (
    ("/sys/fs/cgroup/cpu.stat", "usage_usec", 1e-6),  # cgroup v2
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", None, 1e-9),  # cgroup v1
    ("/sys/fs/cgroup/cpu/cpuacct.usage", None, 1e-9),
)
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class CpuTimeMeter:
    """Processor time since its creation.

    The control group's counter is complete, but counts everything in the sandbox. So if other blocks run at the same time, or
    there is no control group, the block's living processes are added up, each with the children that it has waited for.
    """

    def __init__(self, find_roots):
        self._find_roots = find_roots
        self._cgroup_start = cgroup_seconds()
        self._supervisor_start = time.process_time()
        self._trees_start = tree_seconds(find_roots)

    def seconds(self, alone):
        cgroup = cgroup_seconds() if alone else None
        if cgroup is None or self._cgroup_start is None:
            return tree_seconds(self._find_roots) - self._trees_start
        return cgroup - self._cgroup_start - (time.process_time() - self._supervisor_start)


def cgroup_seconds(counters=CGROUP_COUNTERS):
    for path, key, unit in counters:
        try:
            with open(path) as file:
                words = file.read().split()
            return int(words[words.index(key) + 1 if key else 0]) * unit
        except (OSError, ValueError, IndexError):
            continue
    return None


def tree_seconds(find_roots):
    """Return the processor time of processes and all their descendants, zombies included."""
    parent_of, seconds = {}, {}
    for pid in list_pids():
        fields = stat_fields(pid)
        if fields:
            parent_of[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) * TICK_S
    return sum(seconds[pid] for pid in descendants(parent_of, find_roots))
