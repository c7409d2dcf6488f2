"""A reset: ends and removes everything of the blocks so far, so that the sandbox can be used again; the host requests it.

If anything is left, or could not be proven to be gone, the answer is the reason, and the host stops the sandbox.
"""

import time

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
        """Take the next step."""
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
        pause = PAUSE_S
        while not supervisor.workers.kill_all(min(KILL_S, self._until - time.monotonic())):
            if self._is_late():
                return "processes are left"
            yield pause
            pause = min(2 * pause, LONGEST_PAUSE_S)
        supervisor.forget_blocks()
        for _ in supervisor.fresh.restore():
            if self._is_late():
                return "there are too many files to remove"
            yield 0
        pause, until = PAUSE_S, time.monotonic() + WAITING_PART * self._seconds
        difference = supervisor.fresh.difference()
        while difference:
            if time.monotonic() > until or self._is_late():
                return difference
            yield pause
            pause = min(2 * pause, 5 * LONGEST_PAUSE_S)
            difference = supervisor.fresh.difference()
        supervisor.begin()
        pause = PAUSE_S
        while not supervisor.workers.has_forked():
            if self._is_late() or supervisor.workers.was_replaced():
                return "the process that starts blocks does not answer"
            yield pause
            pause = min(2 * pause, LONGEST_PAUSE_S)
        return None

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
