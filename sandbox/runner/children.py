"""Keeping checkpoints out of the sight of user code: they are children of the session, but none that it started."""

import errno
import os
import time

from . import system

LONGEST_PAUSE = 0.01


class Checkpoints:
    """Knows which children are checkpoints, reaps them, and lets `os.wait` and its like see the other children only."""

    def __init__(self):
        self._pids = set()

    def add(self, pid):
        """Remember a checkpoint."""
        self._pids.add(pid)

    def reap(self):
        """Collect those that have ended; as zombies they would count against the limit of processes."""
        for pid in list(self._pids):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            except ChildProcessError:
                pass  # a child of the process that this one was forked from
            self._pids.discard(pid)

    def hide(self):
        """Replace the functions that wait for any child; one that waits for all of them would else wait for ever."""
        waitpid, wait4 = os.waitpid, os.wait4

        def for_any(call, pid, options):
            if pid == -1 and not options & ~os.WNOHANG:
                # Where none has ended, a child that has not is asked instead, and answers in the function's own way.
                pid = self._ended_child(options) or min(system.children() - self._pids)
            return call(pid, options)

        os.waitpid = lambda pid, options, /: for_any(waitpid, pid, options)
        os.wait4 = lambda pid, options, /: for_any(wait4, pid, options)
        os.wait = lambda: for_any(waitpid, -1, 0)
        os.wait3 = lambda options, /: for_any(wait4, -1, options)

    def _ended_child(self, options):
        """Wait for a child that is no checkpoint; None where none has ended and the caller does not want to wait."""
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
            pause = min(pause * 2, LONGEST_PAUSE)
