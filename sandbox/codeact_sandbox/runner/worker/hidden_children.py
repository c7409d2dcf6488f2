"""Hides checkpoints from user code: they are children of the session's process that the code has not started."""

import errno
import os
import time

from ..shared import system

MAX_PAUSE_S = 0.01


class CheckpointProcesses:
    """The children that are checkpoints: reaps them, and lets `os.wait` and similar functions see only other children."""

    def __init__(self):
        self._pids = set()

    def add(self, pid):
        self._pids.add(pid)

    def reap(self):
        """Wait for those that have ended: zombies count against the limit of processes."""
        for pid in list(self._pids):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            except ChildProcessError:
                pass  # a child of the process that this one was forked from
            self._pids.discard(pid)

    def hide(self):
        """Replace the functions that wait for any child: code that waits for all children would otherwise never end."""
        waitpid, wait4 = os.waitpid, os.wait4

        def for_any(call, pid, options):
            if pid == -1 and not options & ~os.WNOHANG:
                # If none has ended, the function is called for a living child, and returns in its own way.
                pid = self._ended_child(options) or min(system.children() - self._pids)
            return call(pid, options)

        os.waitpid = lambda pid, options, /: for_any(waitpid, pid, options)
        os.wait4 = lambda pid, options, /: for_any(wait4, pid, options)
        os.wait = lambda: for_any(waitpid, -1, 0)
        os.wait3 = lambda options, /: for_any(wait4, -1, options)

    def _ended_child(self, options):
        """Wait for a child that is no checkpoint; return None if none has ended and the caller does not want to wait."""
        pause = 0.0005
        while True:
            self.reap()
            if not system.children() - self._pids:
                raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid not in self._pids:
                return ended.si_pid
            if options & os.WNOHANG:
                return None
            time.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_S)
