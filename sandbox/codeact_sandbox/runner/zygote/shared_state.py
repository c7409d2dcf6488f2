"""Finds state that all forks of an interpreter share and that code could change: such a sandbox is not used again."""

import fcntl
import os
import signal

from ..worker import checkpoint_fork

O_PATH = 0x200000
# Handled by the zygote itself, or by its forks: neither does anything in the zygote.
OWN_SIGNALS = checkpoint_fork.ALWAYS_CAUGHT | 1 << signal.SIGCHLD - 1


def find(known):
    """Return a sentence on something that code in a fork of this process could change for all later forks, or None."""
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            fields = line.split(None, 5)
            if fields[1].startswith(b"rw") and fields[1].endswith(b"s"):
                return "a module of `preload` shares memory between processes"
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            # Of a descriptor of this kind there is nothing to change.
            if number not in known and not fcntl.fcntl(number, fcntl.F_GETFL) & O_PATH:
                return "a module of `preload` has left %s open" % os.readlink("/proc/self/fd/%d" % number)
        except OSError:
            continue  # of the listing itself
    caught = checkpoint_fork.caught_signals() & ~OWN_SIGNALS
    return "a module of `preload` handles the signal %d" % caught.bit_length() if caught else None
