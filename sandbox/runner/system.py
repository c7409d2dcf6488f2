"""What the sandbox asks of Linux: process trees, reaping, prctl, the count of out-of-memory kills."""

import ctypes
import os
import resource
import signal
import time

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
LAST_WORDS = signal.SIGRTMAX - 3
GENTLE_ROUNDS = 6
MOST_FDS = 1 << 17
MOST_PIDS = 1 << 22
PROCESSORS = os.sched_getaffinity(0)
THREADS, RESIDENT = 17, 21  # of the fields behind a process's name in its stat
FEW_PAGES = 16384

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int,) + 4 * (ctypes.c_ulong,)


def prctl(option, value):
    """Call prctl(2) with one number."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d) failed" % option)


def set_limits(limits):
    """Set resource limits for this process and all that it will start; they can't be raised again.

    Args:
        limits: Number by the name behind `RLIMIT_`; where less is allowed already, that stays.
    """
    for name, wanted in limits.items():
        number = getattr(resource, "RLIMIT_" + name)
        _, hard = resource.getrlimit(number)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (limit, limit))


def take_spare_descriptors():
    """Let the supervisor have more descriptors than the code it runs.

    The kernel counts those that lie unread in sockets by user, for all sandboxes together, and refuses to send more to whom
    has reached its own limit: without a higher one, any sandbox could keep all supervisors from handing out descriptors.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MOST_FDS if hard == resource.RLIM_INFINITY else min(hard, MOST_FDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def adjust_oom_score(score):
    """Say how readily the kernel should kill this process when memory runs out (0 to 1000)."""
    try:
        # Without Python's files: this happens twice in each checkpoint.
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % score)
        finally:
            os.close(fd)
    except OSError:
        pass  # some kernels and sandboxes refuse it; then the largest process goes first, which is nearly always right


OOM_COUNTERS = [
    path
    for path in (
        "/sys/fs/cgroup/memory.events",  # cgroup v2
        "/sys/fs/cgroup/memory/memory.oom_control",  # cgroup v1
    )
    if os.path.exists(path)
]


def count_oom_kills():
    """How many processes of this sandbox the kernel has killed for want of memory; None where it can't be read."""
    for path in OOM_COUNTERS:
        _, _, rest = (b"\n" + (read_small(path) or b"")).partition(b"\noom_kill ")
        number = rest.partition(b"\n")[0]
        if number.isdigit():
            return int(number)
    return None


def read_small(path):
    """What a file of the kernel holds, None where it can't be read; for what is asked with each block, without Python's files."""
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


MEMORY_USE = (
    # What is used, and of that what the kernel gives back when somebody needs it: cgroup v2, v1.
    ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", ("active_file", "inactive_file")),
    (
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        ("total_active_file", "total_inactive_file"),
    ),
)


def memory_in_use():
    """Bytes that count against the sandbox's memory limit, files in memory among them; None where it can't be read."""
    for path, parts, cached in MEMORY_USE:
        try:
            with open(path) as file:
                used = int(file.read())
            with open(parts) as file:
                return used - sum(int(line.split()[1]) for line in file if line.split(" ")[0] in cached)
        except (OSError, ValueError, IndexError):
            continue
    return None


def resident_bytes(pid="self"):
    """Memory that a process has in use now."""
    with open("/proc/%s/statm" % pid) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def list_pids():
    """All processes of this PID namespace."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parents():
    """Map each process that lives to its parent."""
    return {pid: parent for pid, parent, dead in _processes() if not dead}


def children():
    """The children of this process that it has not waited for, zombies among them."""
    this = os.getpid()
    return {pid for pid, parent, _ in _processes() if parent == this}


def _processes():
    """Yield each process, its parent (0 when that is gone with it), and whether it is dead."""
    for pid in list_pids():
        fields = stat_fields(pid)
        yield pid, int(fields[1]) if fields else 0, _is_dead(fields)


def stat_fields(pid):
    """The fields behind a process's name in its stat; empty where it is gone."""
    # The name may hold spaces and brackets, so count from its last bracket.
    return (read_small("/proc/%d/stat" % pid) or b"").rpartition(b")")[2].split()


def _is_dead(fields):
    # A process whose first thread has ended looks like a zombie, and lives as long as it has others.
    return not fields or (fields[0] in (b"Z", b"X") and int(fields[THREADS]) <= 1)


def parent(pid):
    """The parent of a process; 0 where it is dead."""
    fields = stat_fields(pid)
    return 0 if _is_dead(fields) else int(fields[1])


def is_quick_to_end(pid):
    """Whether a process has a single thread, and little memory that the kernel has to free before others can have it."""
    fields = stat_fields(pid)
    return bool(fields) and int(fields[THREADS]) <= 1 and int(fields[RESIDENT]) <= FEW_PAGES


def free_processors(pids):
    """Let processes of ours run on every processor again: code of the same user can bind them to one."""
    for pid in pids:
        try:
            os.sched_setaffinity(pid, PROCESSORS)
        except OSError:
            pass  # it has ended, or the processors that there are have changed


def send(pid, number):
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_trees(find_roots, spare=(), seconds=2.0):
    """Kill processes and all that descend from them: stop first, so that none can fork away, then kill, until none is left.

    Args:
        find_roots: Given the map of parents, names the processes where the trees begin; asked again on every round, because
            a child that lost its parent has meanwhile become PID 1's.
        spare: Processes to leave alone. They sleep, so what descends from them is nothing that they have started themselves.
        seconds: When to give up on processes that the kernel does not let die.
    """
    until = time.monotonic() + seconds
    pause = 0.0005
    rounds = 0
    dead = set()
    while True:
        rounds += 1
        # The last round is one that catches all, however slow this machine was meanwhile.
        last = time.monotonic() > until
        if (rounds > GENTLE_ROUNDS or last) and os.getpid() == 1:
            left, died = _kill_frozen(find_roots, spare), False
        else:
            known = dead
            parent_of, dead = _look()
            # Who has died since it was listed may have forked before, and its child is not in the list.
            died = not dead <= known
            left = _descendants(parent_of, find_roots, spare)
            for pid in left:
                send(pid, signal.SIGSTOP)
            for pid in _descendants(parents(), find_roots, spare) if left else ():
                send(pid, signal.SIGKILL)
        if last or not (left or died):
            return
        reap()
        if left:
            time.sleep(pause)
            pause = min(pause * 2, 0.02)


def _kill_frozen(find_roots, spare):
    """Stop every process at once, which is the only way to catch one that forks on faster than it can be found."""
    send(-1, signal.SIGSTOP)
    try:
        tree = _descendants(parents(), find_roots, spare)
        for pid in tree:
            send(pid, signal.SIGKILL)
    finally:
        send(-1, signal.SIGCONT)
    return tree


def _look():
    """The map of parents, and who was dead by the time it was looked at."""
    parent_of, gone = {}, set()
    for pid, parent, dead in _processes():
        if dead:
            gone.add(pid)
        else:
            parent_of[pid] = parent
    return parent_of, gone


def _descendants(parent_of, find_roots, spare):
    children = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    todo = [pid for pid in (*find_roots(parent_of), *spare) if pid in parent_of]
    found = set()
    while todo:
        pid = todo.pop()
        if pid not in spare:
            found.add(pid)
        todo.extend(child for child in children.get(pid, ()) if child not in found)
    return found


_reaped = []


def reap():
    """Collect dead children; they are handed out by `reaped`."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _reaped.append((pid, status))


def reaped():
    """The children that have died since the last call, as (pid, wait status)."""
    reap()
    taken = list(_reaped)
    _reaped.clear()
    return taken
