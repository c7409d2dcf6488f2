"""Landlock domains isolate the processes of blocks in one sandbox, which all have the same user."""

import ctypes
import os
import struct

from ..shared import folders, system, wire

# The system call numbers are the same on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
# With version 1 no file can be moved to another folder.
MIN_VERSION = 2
TRUNCATE_SINCE, SCOPES_SINCE, LOG_FLAGS_SINCE = 3, 6, 7
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
# Removing and creating entries of each type.
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
NO_ABSTRACT_SOCKETS, NO_SIGNALS = 1, 2
# Otherwise code could write any number of lines to the host's audit log.
NO_LOG = 1 | 4
PR_SET_NO_NEW_PRIVS = 38
MESSAGE_QUEUES = "/dev/mqueue"

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def version():
    """Return the kernel's Landlock version; 0 if it has none, only version 1, or a filter forbids the call."""
    try:
        found = _call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0
    return found if found >= MIN_VERSION else 0


class Domains:
    """The domains of processes in the sandbox. A process can't trace, or open the memory of, processes outside its domain."""

    def __init__(self, mode, protected_folder):
        # In a session blocks may signal processes of earlier blocks.
        self._scopes = 0 if mode == "session" else NO_ABSTRACT_SOCKETS | NO_SIGNALS
        self._version = version()
        self._folders = []
        if self._version:
            system.prctl(PR_SET_NO_NEW_PRIVS, 1)
            # Opened once here instead of in each process.
            others = _other_folders(protected_folder) if protected_folder else []
            self._folders = [os.open(path, folders.PATH_ONLY) for path in ["/", *others]]

    def enter(self, home=None, all_folders=True):
        """Enter a new domain permanently; processes started by this one inherit it."""
        if self._version:
            root, *others = self._folders
            if all_folders or not others:
                rights, writable = REFER, [root]
            else:
                rights, writable = WRITE_FILE | CHANGE_FOLDER | REFER, others
                rights |= TRUNCATE if self._version >= TRUNCATE_SINCE else 0
            self._restrict(rights, writable, home)
        self.close()

    def _restrict(self, rights, writable, home):
        attributes = struct.pack("QQQ", rights, 0, self._scopes)
        ruleset = _call(CREATE_RULESET, attributes, len(attributes) if self._version >= SCOPES_SINCE else 8, 0)
        for folder in writable:
            _allow(ruleset, folder, rights)
        if home is not None:
            _allow(ruleset, home, rights)
            os.close(home)
        _call(RESTRICT_SELF, ruleset, NO_LOG if self._version >= LOG_FLAGS_SINCE else 0)
        os.close(ruleset)

    def close(self):
        wire.close_all(self._folders)
        self._folders = []


def _other_folders(protected_folder):
    """Return the writable top-level folders; each process needs a rule for each of them."""
    with open("/proc/self/mountinfo", "rb") as file:
        mounts = [line.split(b" ", 6)[4:6] for line in file]
    # Spaces and similar characters are octal escapes.
    names = [
        path.decode("unicode_escape").encode("latin-1") for path, options in mounts if b"rw" in options.split(b",")
    ]
    writable = [os.fsdecode(name) for name in names]
    # mq_open reaches the file system of message queues through a mount of the kernel, outside every folder.
    queues = [MESSAGE_QUEUES] if os.path.isdir(MESSAGE_QUEUES) else []
    return queues + [
        entry.path
        for entry in os.scandir("/")
        if entry.path != protected_folder
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
