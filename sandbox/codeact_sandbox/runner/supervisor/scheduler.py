"""When blocks start: one at a time in a session, several at once in process mode; and what follows each."""

import collections
import contextlib
import os
import stat
import time

# If a block comes so soon after the last one, the next block is prepared at once, else after a pause: neither the block nor
# the host, which processes its result, is to share the processor with a fork.
BACK_TO_BACK_S = 0.003
FORK_DELAY_S = 0.02
RESULT_DELAY_S = 0.003
ENDING_CHECK_S = 0.1


class Scheduler:
    """The queue of blocks, those that run, and the worker that is forked ahead for the next one."""

    def __init__(self, supervisor):
        self.supervisor = supervisor
        self._config = supervisor.config
        self._in_session = self._config["mode"] == "session"
        self._max_running = 1 if self._in_session else self._config["concurrency"]
        self.running = {}
        # The block or the request about checkpoints that uses the session now.
        self.session_task = None
        self._queue = collections.deque()
        self._starting = False
        self._next_worker = None
        # Whether it is likely that there will be another block in a process of its own: in process mode, and after a shell.
        self._forks_ahead = not self._in_session
        self._last_end = 0.0
        self._back_to_back = False

    def note_request(self):
        self._back_to_back = time.monotonic() - self._last_end < BACK_TO_BACK_S

    def submit(self, block):
        self.note_request()
        self._queue.append(block)
        self.start_next()

    def start_next(self):
        """Start waiting blocks while there is room for them; a block can end while it is started."""
        if self._starting:
            return
        self._starting = True
        try:
            while self._queue and self.session_task is None and self._has_room():
                self._start(self._queue.popleft())
        finally:
            self._starting = False
        if self._queue and not self.running and self.supervisor.workers.ending:
            # The zygote reports their end, unless code has stopped it.
            self.supervisor.workers.resume_zygote()
            self.supervisor.loop.call_later(ENDING_CHECK_S, self.start_next)

    def _start(self, block):
        self.running[block.ident] = block
        if len(self.running) > 1 or self.supervisor.jobs.running:
            for each in self.running.values():
                each.alone = False
        if self._in_session:
            self.session_task = block
        block.start()

    def _has_room(self):
        # The process of an ended block exists for a moment longer. Later blocks must not see it; those that run at the same
        # time may, but it counts against the limit.
        ending = len(self.supervisor.workers.ending)
        return len(self.running) < self._max_running and ending <= (self._max_running if self.running else 0)

    def finished(self, task):
        """Remove a block or a checkpoint request that has ended, and start the next block."""
        self.running.pop(task.ident, None)
        if task is self.session_task:
            self.session_task = None
        self._last_end = time.monotonic()
        self.clean_up()
        self.start_next()
        if not self.running:
            self.prepare(self.fork_next_worker)

    def job_ended(self):
        self._last_end = time.monotonic()
        self.clean_up()
        self.prepare(self.fork_next_worker)

    def prepare(self, call):
        """Prepare the next block: in a moment, unless it has begun by then; at once if blocks come without a pause."""
        if self._back_to_back:
            call()
        else:
            self.supervisor.loop.call_later(RESULT_DELAY_S, lambda: self.running or call())

    def clean_up(self):
        """Undo what keeps the next block from being saved."""
        for folder in (self._config["workspace"], "/tmp"):
            with contextlib.suppress(OSError):  # it belongs to another user
                mode = stat.S_IMODE(os.stat(folder).st_mode)
                if mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(folder, mode | stat.S_IRWXU)

    def cancel(self, ident):
        block = self.running.get(ident) or self.supervisor.jobs.running.get(ident)
        if block is not None:
            block.stop("cancel")
            return
        for waiting in list(self._queue):
            if waiting.ident == ident:
                self._queue.remove(waiting)
                waiting.killed = "cancel"
                waiting.finish()

    def take_worker(self):
        """Return a worker for one block: the one that was forked ahead, or a new one."""
        workers = self.supervisor.workers
        worker, self._next_worker = self._next_worker, None
        if worker is None or worker.status is not None:
            worker = workers.start()
        worker.resume()
        if self._forks_ahead:
            self.supervisor.loop.call_later(0 if self._back_to_back else FORK_DELAY_S, self.fork_next_worker)
        self._forks_ahead = True
        return worker

    def fork_next_worker(self):
        """Fork the worker of the next block, unless there is one; in a session, only once it has run a shell."""
        if self._forks_ahead and (self._next_worker is None or self._next_worker.status is not None):
            self._next_worker = self.supervisor.workers.start()
