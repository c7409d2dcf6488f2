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
