"""Landlock domains: blocks of one sandbox have the same user, and these keep the processes of one out of those of another."""

import ctypes
import os
import stat
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

    They are described here once, by who has run no user code, since that could change a description.

    Args:
        mode: `process` or `session`.
        closed: Top-level folder in which ordinary blocks may change nothing, or None.
    """

    def __init__(self, mode, closed):
        self._rulesets = {}
        found = self._version = version()
        if not found:
            return
        system.prctl(PR_SET_NO_NEW_PRIVS, 1)
        if mode == "session":
            # Its blocks may stop what earlier ones have started.
            self._rulesets["shell"] = _describe(found, 0, None)
            return
        scopes = NO_ABSTRACT_SOCKETS | NO_SIGNALS
        self._rulesets["block"] = _describe(found, scopes, closed)
        self._rulesets["install"] = _describe(found, scopes, None)

    def enter(self, name):
        """Enter a domain, for good and with all that this process will start; no two have the same one.

        Args:
            name: Of the domain; one that does not exist here is none.

        Raises:
            OSError: The kernel refuses.
        """
        if name in self._rulesets:
            _call(RESTRICT_SELF, self._rulesets[name], NO_LOG if self._version >= LOG_FLAGS_SINCE else 0)
        self.forget()

    def forget(self):
        """Keep no description: user code could change it for the processes to come."""
        wire.close_all(self._rulesets.values())
        self._rulesets = {}


def _describe(found, scopes, closed):
    """Make a ruleset.

    Args:
        found: The kernel's version.
        scopes: What is to reach no process outside.
        closed: Folder in which nothing may be changed, or None.

    Returns:
        Its descriptor.
    """
    rights = REFER
    if closed is not None:
        rights |= WRITE_FILE | CHANGE_FOLDER | (TRUNCATE if found >= TRUNCATE_SINCE else 0)
    attributes = struct.pack("QQQ", rights, 0, scopes)
    fd = _call(CREATE_RULESET, attributes, len(attributes) if found >= SCOPES_SINCE else 8, 0)
    for path in ["/"] if closed is None else _other_folders(closed):
        _allow(fd, path, rights)
    return fd


def _other_folders(closed):
    for entry in os.scandir("/"):
        if entry.path != closed and entry.is_dir(follow_symlinks=False):
            yield entry.path


def _allow(ruleset, path, rights):
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number, *arguments):
    found = _syscall(number, *[ctypes.c_long(each) if isinstance(each, int) else each for each in arguments])
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found
