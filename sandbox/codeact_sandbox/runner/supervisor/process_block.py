"""A block in a process of its own: every block of process mode, and shell blocks of a session."""

import os

from ..shared import system
from . import block

# More than the kernel accepts as a program's environment.
STATE_LIMIT = 4 * 1024 * 1024
ENVIRONMENT_TOO_LARGE = (
    "The environment is too large to be shared between Python and shell blocks; shell blocks keep the one of before."
)

STATE_NOT_SAVED = (
    "The script replaced its shell, such as with `exec`, or a signal ended it: its directory and its exported variables are not "
    "kept for later blocks."
)

RESTORED = (
    "The block ended the session's interpreter: its variables are restored; files, threads and subprocesses are not."
)
LOST = "The block ended the session's interpreter, so its variables are lost; a new, empty session has been started."


class ProcessBlock(block.Block):
    """A block in a process of its own; in process mode all that it has started ends with it."""

    state_file = None
    had_interpreter = False
    restoring = False

    def start(self):
        session = self.supervisor.session
        self.had_interpreter = session is not None and session.is_usable
        self.worker = self.scheduler.take_worker()
        self.set_environment()
        if self.request["keep_state"] and self.state_file is None:
            # A file in memory, not a pipe: a shell with a large environment must not wait for a reader.
            self.state_file = os.memfd_create("state")
        self.send_request(self.state_file)

    def set_environment(self):
        session = self.supervisor.session
        if session is not None:
            self.request.update(session.environment.for_shell(self.request["cwd"]))

    def on_frame(self, kind, ident, message):
        super().on_frame(kind, ident, message)
        if self.report is None or self.killed or self.overdue or self.finished or self.worker.status is not None:
            return
        # Nothing of the code is left to run, so a process that the kernel can remove at once is killed, instead of waiting
        # until the zygote reports its end. The code may have sent this frame itself: then it is killed while it runs.
        used = system.usage(self.worker.pid)  # of a process that lives, as the next line finds out
        if system.is_quick_to_end(self.worker.pid):
            self.worker.usage = used
            self.supervisor.workers.kill(self.worker)
            self.on_worker_exit()

    def on_worker_exit(self):
        if self.finished:
            # Its zombie children are PID 1's now, and would count against the limit of processes.
            self.supervisor.workers.collect()
            self.scheduler.start_next()  # blocks may wait for the end of this process
            return
        if self.restoring or self.retry():
            return
        self.free_memory()
        session = self.supervisor.session
        if session is None:
            self._kill_leftovers()
        elif self.request["keep_state"]:
            self._read_state()
        self.drain_output = session is not None
        if self.had_interpreter and not session.lives():
            self.restoring = True
            self._cancel_timers()
            session.restore_after_shell(self._on_restored)
        else:
            self.finish()

    def _on_restored(self, awake):
        self.state = "restored" if awake else "lost"
        self.restored_before = self.request["number"] if awake else None
        self.notes.append(RESTORED if awake else LOST)
        self.finish()

    def _kill_leftovers(self):
        workers, pid = self.supervisor.workers, self.worker.pid

        def find_roots(parent_of):
            # A worker that was just killed is still the parent of its children for a moment.
            return workers.orphans(parent_of) + [child for child, parent in parent_of.items() if parent == pid]

        if workers.may_have_orphans(pid):
            system.kill_trees(find_roots)

    def root_pids(self, parent_of):
        return [self.worker.pid]

    def kill_processes(self):
        workers, in_session = self.supervisor.workers, self.supervisor.session is not None
        # In a session, orphans may be what earlier blocks have left running on purpose.
        system.kill_trees(lambda parent_of: [self.worker.pid] + ([] if in_session else workers.orphans(parent_of)))

    def _read_state(self):
        """Read the directory and the exported variables with which a shell block ended."""
        with os.fdopen(self.state_file, "rb") as file:
            file.seek(0)
            data = file.read(STATE_LIMIT)
        self.state_file = None
        if self.killed or self.worker.failure:
            return
        if not data:
            self.notes.append(STATE_NOT_SAVED)
        elif not self.supervisor.session.environment.shell_ended(data):
            self.notes.append(ENVIRONMENT_TOO_LARGE)
