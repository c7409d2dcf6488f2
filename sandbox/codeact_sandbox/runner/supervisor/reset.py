"""The state of a sandbox before its first block: files, mounts, sockets, descriptors. A reset restores it, and checks it.

Only a sandbox that may be used again (`reusable` in the configuration) keeps this. The check is strict: whatever can't be put
back as it was, such as the kernel's counters of network packets, is a reason to use the sandbox no more.
"""

import array
import contextlib
import fcntl
import os
import stat
import time

from ..shared import folders, packages, system
from . import ipc

MAX_ENTRIES = 2000
MAX_BYTES = 4 * 1024 * 1024
SLICE_S = 0.02
# Mounts of these types have nothing that a user without capabilities can create.
KERNEL_TYPES = {"proc", "sysfs", "cgroup", "cgroup2", "devpts"}
FOLDER_TYPES = {"tmpfs", "mqueue"}
# Counters of the network namespace: whatever sends something in it changes one of them. The kernel keeps flow labels, with an
# address that code chooses, for minutes after their socket was closed.
NETWORK = ("dev", "snmp", "snmp6", "netstat", "ip6_flowlabel")
# In bubblewrap these belong to code's user.
TERMINALS = ("/dev/pts", "/dev/pts/ptmx")
# Settings of namespaces: code's user may own those of bubblewrap.
SETTINGS = ("/proc/sys/kernel", "/proc/sys/fs/mqueue")
NETWORK_SETTING = "/proc/sys/net/core/somaxconn"
LAST_PID = "/proc/sys/kernel/ns_last_pid"  # a counter
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS


class FreshState:
    """The state of a sandbox in which no code has run."""

    def __init__(self, supervisor, problem):
        self._supervisor = supervisor
        # Why a reset of this sandbox could never be proven.
        self.problem = problem
        self._places = []
        if os.geteuid() == 0:
            self.problem = "the code runs as root"
        elif os.access(NETWORK_SETTING, os.W_OK):
            self.problem = "the code can change settings of the network"
        if self.problem:
            return
        self._mounts = _read("/proc/self/mountinfo")
        self._terminals = {path: os.stat(path) for path in TERMINALS if os.path.exists(path) and _is_own(path)}
        self._settings = {path: _read(path) for path in _writable_settings()}
        self._network = _network_counters()
        self._objects = _kernel_objects()
        self._oom_kills = system.count_oom_kills()
        self._descriptors = self._own_descriptors()
        try:
            self._places = [Place(path) for path in _writable_folders(self._mounts, supervisor.config["workspace"])]
        except (OSError, ValueError) as error:
            self.problem = str(error)

    def restore(self):
        """Empty every folder that code can write to, and put back what was there, in steps: yields between them."""
        for place in self._places:
            yield from place.empty()
        ipc.remove_all()
        for place in self._places:
            place.fill()
        for path, info in self._terminals.items():
            os.chmod(path, stat.S_IMODE(info.st_mode))
            _set_times(path, info)

    def lasting_difference(self):
        """Return a sentence on something that a reset does not put back as it was, or None."""
        if _read("/proc/self/mountinfo") != self._mounts:
            return "mounts have changed"
        if any(_read(path) != before for path, before in self._settings.items()):
            return "its code has changed settings of the kernel"
        if system.count_oom_kills() != self._oom_kills:
            return "its memory ran out"
        if _network_counters() != self._network:
            return "its code has used the network of the sandbox"
        return None

    def difference(self):
        """Return a sentence on something that is not as it was, or None."""
        problem = self.lasting_difference()
        if problem:
            return problem
        for name, now in _kernel_objects().items():
            if now != self._objects[name]:
                return "there are %s of earlier blocks" % name
        if self._own_descriptors() != self._descriptors:
            return "the supervisor has descriptors of earlier blocks"
        if any(_version(os.stat(path)) != _version(info) for path, info in self._terminals.items()):
            return "the files of terminals have changed"
        return next(filter(None, (place.difference() for place in self._places)), None)

    def _own_descriptors(self):
        """Return the descriptors of this process, and those that its event loop watches."""
        own = set()
        for name in os.listdir("/proc/self/fd"):
            try:
                own.add((int(name), stat.S_IFMT(os.fstat(int(name)).st_mode)))
            except OSError:
                continue  # of the listing itself
        # Whether the stream to the host is waited for depends on what it has to take.
        return own, {fd for fd in self._supervisor.loop.selector.get_map() if fd != 1}


class Place:
    """A folder that code can write to, with what was there before the first block."""

    def __init__(self, path):
        self.path = path
        self._info = os.stat(path)
        self._own = _is_own(path)
        self._attributes = _attributes(path)
        self._flags = _flags(path)
        self._used = _used(path)
        self._entries = {}
        room = MAX_BYTES
        for name, info in _scan(path).items():
            content, full = None, os.path.join(path, name)
            if info.st_dev != self._info.st_dev:
                pass  # a mount, which stays
            elif stat.S_ISREG(info.st_mode):
                room -= info.st_size
                if room < 0:
                    raise ValueError("there are too large files in %s before the first block" % path)
                content = _read(full)
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(full)
            elif not stat.S_ISDIR(info.st_mode):
                raise ValueError("%s is neither a file nor a folder" % full)
            self._entries[name] = (info, content)

    def empty(self):
        """Remove what is in it; yields between steps."""
        if self._own:
            os.chmod(self.path, stat.S_IMODE(self._info.st_mode) | stat.S_IRWXU)
        until = time.monotonic() + SLICE_S
        for _ in folders.remove_content(self.path):
            if time.monotonic() > until:
                yield
                until = time.monotonic() + SLICE_S

    def fill(self):
        for name, (info, content) in self._entries.items():
            self._put_back(os.path.join(self.path, name), info, content)
        for name in reversed(list(self._entries)):
            info = self._entries[name][0]
            if stat.S_ISDIR(info.st_mode) and info.st_dev == self._info.st_dev:
                _set_times(os.path.join(self.path, name), info)
        # An image can have a /tmp in which code's user creates nothing, so that its times have not changed either.
        if self.path != ipc.POSIX_QUEUES and os.access(self.path, os.W_OK):
            # Where the times can't be set, they are those of a change that the code has not chosen.
            probe = os.path.join(self.path, os.urandom(8).hex())
            os.mkdir(probe)
            os.rmdir(probe)
        if self._own:
            for name in set(_attributes(self.path)) - set(self._attributes):
                os.removexattr(self.path, name, follow_symlinks=False)
            os.chmod(self.path, stat.S_IMODE(self._info.st_mode))
            _set_flags(self.path, self._flags)
            _set_times(self.path, self._info)

    def difference(self):
        """Return a sentence on something that is not as it was, or None."""
        info = os.stat(self.path)
        found = _scan(self.path)
        if found.keys() != self._entries.keys():
            return "files are left in %s" % self.path
        if any(_version(found[name]) != _version(before) for name, (before, _) in self._entries.items()):
            return "files in %s have changed" % self.path
        if (info.st_mode, info.st_uid, info.st_gid) != (self._info.st_mode, self._info.st_uid, self._info.st_gid):
            return "the permissions of %s have changed" % self.path
        if _attributes(self.path) != self._attributes or _flags(self.path) != self._flags:
            return "the attributes of %s have changed" % self.path
        # Also of files that have no name any more, and that something still holds.
        if _used(self.path) != self._used:
            return "something still uses space in %s" % self.path
        return None

    def _put_back(self, path, info, content):
        if info.st_dev != self._info.st_dev:
            return
        if stat.S_ISLNK(info.st_mode):
            os.symlink(content, path)
            _set_times(path, info)
            return
        if stat.S_ISDIR(info.st_mode):
            with contextlib.suppress(FileExistsError):  # a mount in it keeps it
                os.mkdir(path)
        else:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
        os.chmod(path, stat.S_IMODE(info.st_mode))
        _set_times(path, info)


def _writable_folders(mounts, workspace):
    """Return the folders that code can write to and that a reset can empty."""
    known = {workspace, "/tmp", packages.FOLDER, ipc.POSIX_MEMORY, ipc.POSIX_QUEUES}
    visible = {}
    for line in mounts.splitlines():
        mount, _, kind = line.partition(b" - ")
        fields, source = mount.split(b" "), kind.split(b" ")
        path = fields[4].decode("unicode_escape").encode("latin-1")
        writable = b"rw" in fields[5].split(b",") and b"rw" in source[-1].split(b",")
        visible[os.fsdecode(path)] = (source[0].decode(), writable)
    for path in (workspace, ipc.POSIX_QUEUES):
        if path not in visible:
            raise ValueError("%s is not a file system of its own" % path)
    found = []
    for path, (kind, writable) in visible.items():
        if not writable or kind in KERNEL_TYPES:
            continue
        if path in known and kind in FOLDER_TYPES:
            found.append(path)
        elif not _is_closed(path, kind):
            raise ValueError("code can write to %s, which a reset does not empty" % path)
    return found


def _is_closed(path, kind):
    """Return whether code's user can create and change nothing there, and in what is below it in the same file system."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return not _can_change(path)
        # A folder of the host could have any number of files.
        below = _scan(path).items() if kind == "tmpfs" else ()
    except OSError:
        return True  # covered by another mount, or closed
    device = os.stat(path).st_dev
    inside = [
        os.path.join(path, name) for name, info in below if info.st_dev == device and not stat.S_ISLNK(info.st_mode)
    ]
    return kind == "tmpfs" and not any(map(_can_change, [path, *inside]))


def _can_change(path):
    # Devices are used, not changed, by a write.
    return _is_own(path) or (not stat.S_ISCHR(os.stat(path).st_mode) and os.access(path, os.W_OK))


def _is_own(path):
    """Return whether it belongs to code's user: in a namespace, other owners may have the same number."""
    try:
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    except OSError:
        return False
    return True


def _scan(root):
    """Return what is in a folder and below, with its stat, by path relative to it; folders before what is in them."""
    device, found, todo = os.stat(root).st_dev, {}, [""]
    while todo:
        inside = todo.pop()
        with os.scandir(os.path.join(root, inside)) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = os.path.join(inside, entry.name)
                info = found[name] = entry.stat(follow_symlinks=False)
                if len(found) > MAX_ENTRIES:
                    raise ValueError("there are too many files in %s" % root)
                if stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                    todo.append(name)
    return found


def _version(info):
    size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
    return info.st_mode, info.st_uid, info.st_gid, info.st_dev, size, info.st_mtime_ns


def _writable_settings():
    """Return the paths of the kernel's settings that code can change."""
    paths = [os.path.join(folder, name) for folder in SETTINGS if os.path.isdir(folder) for name in os.listdir(folder)]
    return [path for path in paths if path != LAST_PID and os.path.isfile(path) and os.access(path, os.W_OK)]


def _network_counters():
    return [_read("/proc/net/" + name) for name in NETWORK]


def _kernel_objects():
    """Return numbers of what the kernel has in this sandbox's namespaces, by a name for messages."""
    sockets = (_read("/proc/net/sockstat") or b"").partition(b"\n")[0]
    unix = (_read("/proc/net/unix") or b"").count(b"\n")
    objects = [system.read_again("/proc/sysvipc/" + kind) for kind in ("shm", "sem", "msg")]
    return {"sockets": (sockets, unix), "IPC objects": objects}


def _used(path):
    info = os.statvfs(path)
    return info.f_blocks - info.f_bfree, info.f_files - info.f_ffree


def _attributes(path):
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError:
        return {}  # this file system has none


def _flags(path):
    """Return the flags of a folder that `chattr` sets; None if it has none."""
    flags = array.array("l", [0])
    fd = os.open(path, folders.FOLDER)
    try:
        fcntl.ioctl(fd, GET_FLAGS, flags)
    except OSError:
        return None
    finally:
        os.close(fd)
    return flags[0]


def _set_flags(path, flags):
    if flags is None or _flags(path) == flags:
        return
    fd = os.open(path, folders.FOLDER)
    try:
        fcntl.ioctl(fd, SET_FLAGS, array.array("l", [flags]))
    finally:
        os.close(fd)


def _set_times(path, info):
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)


def _read(path):
    """Return the content of a file; None if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.02
# The kernel frees some objects a moment after their process, such as Landlock domains with the folders that they name. Waiting
# for that takes at most this part of the time.
WAITING_PART = 0.25
KILL_S = 1.0
NOT_REUSABLE = "it was not started for several uses"
BUSY = "a block or a transfer is running"
CONNECTIONS = "its code has used the proxy"


class Reset:
    """One reset, in steps between which the supervisor serves others."""

    def __init__(self, supervisor, seconds, on_done):
        self._supervisor = supervisor
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._on_done = on_done
        self._steps = self._run()

    def step(self):
        try:
            pause = next(self._steps)
        except StopIteration as end:
            self._on_done(end.value)
        except (OSError, ValueError) as error:
            self._on_done(str(error))
        else:
            self._supervisor.loop.call_later(pause or 0, self.step)

    def _run(self):
        """Yield a pause in seconds between steps; return None, or why the sandbox can't be used again."""
        supervisor = self._supervisor
        problem = self._why_not()
        if problem:
            return problem
        if supervisor.session is not None:
            supervisor.session.drop_checkpoints()
        supervisor.jobs.abandon()
        workers = supervisor.workers
        if not (
            yield from self._wait(lambda: workers.kill_all(min(KILL_S, self._until - time.monotonic())), self._until)
        ):
            return "processes are left"
        supervisor.forget_blocks()
        for _ in supervisor.fresh.restore():
            if self._is_late():
                return "there are too many files to remove"
            yield 0
        until = min(self._until, time.monotonic() + WAITING_PART * self._seconds)
        if not (yield from self._wait(lambda: not supervisor.fresh.difference(), until, 5 * LONGEST_PAUSE_S)):
            return supervisor.fresh.difference() or "what blocks have left was gone too late"
        supervisor.begin()
        yield from self._wait(lambda: workers.has_forked() or workers.was_replaced(), self._until)
        if not workers.has_forked():
            return "the process that starts blocks does not answer"
        return None

    def _wait(self, is_done, until, longest_pause=LONGEST_PAUSE_S):
        """Yield pauses until something is done; return False if it is not in time."""
        pause = PAUSE_S
        while not is_done():
            if time.monotonic() > until:
                return False
            yield pause
            pause = min(2 * pause, longest_pause)
        return True

    def _why_not(self):
        supervisor = self._supervisor
        if supervisor.fresh is None:
            return NOT_REUSABLE
        if supervisor.fresh.problem:
            return supervisor.fresh.problem
        if supervisor.scheduler.is_busy() or supervisor.files.is_receiving():
            return BUSY
        if supervisor.workers.was_replaced():
            return "the process that starts blocks has been killed, or knows tools that were added"
        if supervisor.proxy is not None and supervisor.proxy.was_used():
            return CONNECTIONS
        return supervisor.fresh.lasting_difference()

    def _is_late(self):
        return time.monotonic() > self._until
