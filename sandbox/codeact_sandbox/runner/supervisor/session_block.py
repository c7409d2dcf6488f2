"""A Python block in the live interpreter of a session, with a checkpoint to go back to."""

from ..shared import wire
from . import block, process_block

# A closed connection and a dead process are reported in any order.
DISCONNECT_GRACE_S = 1.0
CHECKPOINT_GRACE_S = 1.0
CONNECTION_LOST = "the code closed or misused the socket by which its interpreter reports"


class SessionBlock(block.Block):
    checkpoint = None
    used_checkpoint = None
    # The outcome of a kill that waits for the checkpoint.
    postponed_kill = None
    kill_at_once = False
    connection_lost = False
    restoring = False
    completed = False

    def start(self):
        self.session = self.supervisor.session
        self.connection_lost = False
        if self.checkpoint is not None:
            self.checkpoint.drop()  # of a session that ended before it had read this block
        if not self.session.is_usable:
            # An interpreter that has closed its connection still lives.
            self.session.drop_next_checkpoint()
            self.session.kill()
            self.session.start()
            self.state = "lost"
            self.notes.append("The session had ended between two blocks; this block ran in a new, empty one.")
        self.notes += self.session.take_notes()
        self.worker = self.session.worker
        self.worker.resume()
        self.request.update(self.session.environment.changes_for_interpreter())
        self.checkpoint = self.session.checkpoint_for_block() if self.supervisor.config["checkpoint"] else None
        self.send_request()

    def on_frame(self, kind, ident, message):
        if self.finished:
            return
        if kind == wire.CHECKPOINT_TAKEN and self.checkpoint is not None and ident == self.checkpoint.token:
            self.checkpoint.set_taken(message)
            if self.postponed_kill:
                self.kill(self.postponed_kill)
            return
        super().on_frame(kind, ident, message)
        # The signal at the deadline can end what the block waited for, but does not give it more time.
        if self.report is not None and not self.killed and not self.overdue:
            self._complete()

    def _complete(self):
        self.completed = True
        fits = self.session.environment.interpreter_ended(self.report)
        if self.report["late"]:
            self.notes.append("Written meanwhile by threads of earlier blocks: " + self.report["late"])
        if self.report["too_large"] or not fits:
            self.notes.append(process_block.ENVIRONMENT_TOO_LARGE)
        # Threads and children of the session may go on writing to the block's pipes, and must not be killed by SIGPIPE.
        self.drain_output = True
        if self.checkpoint is not None:
            reason = self.checkpoint.skipped
            if reason and not self.session.without_checkpoint:  # only the first of several blocks says so
                self.notes.append(
                    "No checkpoint is kept, so a block that fails now loses the session's variables: %s." % reason
                )
            self.session.without_checkpoint = bool(reason)
            self.used_checkpoint = self.checkpoint
        self.finish()

    def on_result_sent(self):
        if self.completed:
            self.session.await_connection()
        # The end of a large process takes milliseconds, perhaps of this processor.
        if self.used_checkpoint is not None:
            self.used_checkpoint.drop()
            self.used_checkpoint = None

    def kill(self, why):
        """End it, but not before its checkpoint has been taken: without one the session would be lost."""
        if self.checkpoint is None or not self.checkpoint.is_awaited or self.kill_at_once:
            super().kill(why)
        elif self.postponed_kill is None:
            self.postponed_kill = why

            def kill_at_once():
                self.kill_at_once = True
                self.kill(why)

            self.supervisor.loop.call_later(CHECKPOINT_GRACE_S, kill_at_once)

    def on_worker_disconnect(self):
        # If it has died, how it ended is reported in a moment.
        self.supervisor.loop.call_later(DISCONNECT_GRACE_S, self._fail)

    def _fail(self):
        if self.finished or self.killed or self.worker.status is not None:
            return
        self.connection_lost = True
        self.kill_processes()
        self.on_worker_exit()

    def outcome(self):
        if self.connection_lost:
            return "crashed", 1, {"type": "ConnectionLost", "message": CONNECTION_LOST, "line": None}
        return super().outcome()

    def on_worker_exit(self):
        """Replace a session that has died: by its checkpoint, or else by an empty one."""
        if self.finished or self.restoring or self.retry():
            return
        self.report = None
        self.restoring = True
        self.close_relay()
        self.session.kill(keep=self.checkpoint)
        self.free_memory()
        if self.checkpoint is not None and self.checkpoint.is_alive():
            self.session.wake(self.checkpoint, self._on_restored)
        else:
            self._on_restored(False)

    def _on_restored(self, awake):
        if awake:
            self.state = "restored"
            self.restored_before = self.request["number"]
            self.notes.append("Files, threads and subprocesses are not restored.")
            self.notes += self.session.take_notes()
        else:
            if self.checkpoint is not None:
                self.checkpoint.drop()
                if self.checkpoint.skipped:
                    self.notes.append("No checkpoint was kept: %s." % self.checkpoint.skipped)
            self.session.start()
            self.state = "lost"
            self.notes.append("The session's variables are lost; a new, empty session has been started.")
        self.finish()

    def root_pids(self, parent_of):
        return self.session.root_pids(parent_of, keep=self.checkpoint)

    def kill_processes(self):
        self.session.kill(keep=self.checkpoint)
