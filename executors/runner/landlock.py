"""Landlock domains: blocks of one sandbox have the same user, and these keep the processes of one out of those of another."""

import ctypes
import os
import struct

from . import system, wire

# The same numbers on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
# With the first version nothing can be moved from one folder to another.
OLDEST = 2
TRUNCATE_SINCE, SCOPES_SINCE, LOG_FLAGS_SINCE = 3, 6, 7
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
# Removing, and making things of each type.
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
NO_ABSTRACT_SOCKETS, NO_SIGNALS = 1, 2
# Else the host's audit log would have a line for each refusal, as many as the code likes.
NO_LOG = 1 | 4
PR_SET_NO_NEW_PRIVS = 38
MESSAGE_QUEUES = "/dev/mqueue"
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def version():
    """The kernel's version of Landlock; 0 where it has none, none that serves, or a filter forbids it."""
    try:
        found = _call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0
    return found if found >= OLDEST else 0


class Domains:
    """The domains that processes of the sandbox enter. Who is in one can't trace, or open the memory of, who is not in it.

    Args:
        mode: `process` or `session`.
        closed: Top-level folder in which ordinary blocks may change nothing but in their own home, or None.
    """

    def __init__(self, mode, closed):
        # In a session blocks may stop what earlier ones have started.
        self._scopes = 0 if mode == "session" else NO_ABSTRACT_SOCKETS | NO_SIGNALS
        self._version = version()
        self._folders = []
        if self._version:
            system.prctl(PR_SET_NO_NEW_PRIVS, 1)
            # Opened here, once, and not by each process.
            self._folders = [os.open(path, FOLDER) for path in ["/", *(_other_folders(closed) if closed else ())]]

    def enter(self, home=None, all_folders=True):
        """Enter a domain, for good and with all that this process will start; each process that does so has another one.

        Args:
            home: The block's home, or None.
            all_folders: Whether it may change the closed folder, too.

        Raises:
            OSError: The kernel refuses.
        """
        if self._version:
            root, *others = self._folders
            if all_folders or not others:
                rights, folders = REFER, [root]
            else:
                rights, folders = WRITE_FILE | CHANGE_FOLDER | REFER, others
                rights |= TRUNCATE if self._version >= TRUNCATE_SINCE else 0
            self._restrict(rights, folders, home)
        self.forget()

    def _restrict(self, rights, folders, home):
        attributes = struct.pack("QQQ", rights, 0, self._scopes)
        ruleset = _call(CREATE_RULESET, attributes, len(attributes) if self._version >= SCOPES_SINCE else 8, 0)
        for folder in folders:
            _allow(ruleset, folder, rights)
        if home is not None and os.path.isdir(home):
            fd = os.open(home, FOLDER)
            _allow(ruleset, fd, rights)
            os.close(fd)
        _call(RESTRICT_SELF, ruleset, NO_LOG if self._version >= LOG_FLAGS_SINCE else 0)
        os.close(ruleset)

    def forget(self):
        """Close what is open for this."""
        wire.close_all(self._folders)
        self._folders = []


def _other_folders(closed):
    """The top-level folders in which anything can be changed; each costs each process a rule."""
    with open("/proc/self/mountinfo", "rb") as file:
        mounts = [line.split(b" ", 6)[4:6] for line in file]
    # Spaces and the like are written as octal numbers.
    names = [
        path.decode("unicode_escape").encode("latin-1") for path, options in mounts if b"rw" in options.split(b",")
    ]
    writable = [os.fsdecode(name) for name in names]
    # mq_open reaches the file system of message queues by a mount of the kernel's own, which lies in no folder.
    queues = [MESSAGE_QUEUES] if os.path.isdir(MESSAGE_QUEUES) else []
    return queues + [
        entry.path
        for entry in os.scandir("/")
        if entry.path != closed
        and entry.is_dir(follow_symlinks=False)
        and ("/" in writable or any((path + "/").startswith(entry.path + "/") for path in writable))
    ]


def _allow(ruleset, folder, rights):
    _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, folder), 0)


def _call(number, *arguments):
    found = _syscall(number, *[ctypes.c_long(each) if isinstance(each, int) else each for each in arguments])
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found
