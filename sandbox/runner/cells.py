"""A block in the live interpreter of a session, which its checkpoint guards."""

from . import blocks, wire

HANG_UP_GRACE = 1.0
CHECKPOINT_GRACE = 1.0
NOW = "now"
CONNECTION_LOST = "the code closed or misused the socket by which its interpreter reports"
UNGUARDED = "No checkpoint is kept, so a block that fails now loses the session's variables: %s."


class CellBlock(blocks.Block):
    """A block in the session's live interpreter."""

    checkpoint = None
    spent = None
    postponed = None
    restoring = False

    def start(self):
        """Run it, with a checkpoint of the session's memory first."""
        self.session = self.supervisor.session
        self.failed = False
        if self.checkpoint is not None:
            self.checkpoint.drop()  # of a session that ended before it came to this block
        if not self.session.usable:
            # One that has hung up lives on.
            self.session.drop_ahead()
            self.session.kill()
            self.session.start()
            self.state = "lost"
            self.notes.append("The session had ended between two blocks; this block ran in a new, empty one.")
        self.worker = self.session.worker
        self.worker.let_run()
        self.request.update(self.session.place.for_cell())
        self.checkpoint = self.session.checkpoint_for_block() if self.supervisor.config["checkpoint"] else None
        self.open()

    def finish(self):
        super().finish()
        # Not before the result has been sent: the end of a large one takes milliseconds, and perhaps this processor.
        if self.spent is not None:
            self.spent.drop()
            self.spent = None
        self.supervisor.session.prepare()

    def hear(self, kind, ident, message):
        if self.finished:
            return
        if kind == wire.CHECKPOINT_TAKEN and self.checkpoint is not None and ident == self.checkpoint.token:
            self.checkpoint.taken(message)
            if self.postponed:
                self.kill(self.postponed)
        if ident != self.token:
            return
        if kind == wire.CODE_NOT_SAVED:
            self.unsaved = True
        elif kind == wire.BLOCK_DONE and self.report is None:
            self.report = blocks.checked(message)
            # The last words' signal can end what the block waited for, but not give it more time.
            if not self.killed and not self.overdue:
                self.session.await_connection()
                self._complete()

    def kill(self, why):
        """End it, once there is a checkpoint to go back to, which is before it has begun."""
        if self.checkpoint is None or not self.checkpoint.awaited or self.postponed == NOW:
            super().kill(why)
        elif self.postponed is None:
            self.postponed = why
            self.supervisor.after(CHECKPOINT_GRACE, lambda: self._kill_anyway(why))

    def _kill_anyway(self, why):
        self.postponed = NOW
        self.kill(why)

    def _complete(self):
        fits = self.session.place.cell_ended(self.report)
        if self.report["late"]:
            self.notes.append("Written meanwhile by threads of earlier blocks: " + self.report["late"])
        if self.report["too_large"] or not fits:
            self.notes.append(blocks.TOO_LARGE)
        # Threads and children of the session may go on writing to the block's pipes, and must not be killed by SIGPIPE.
        self.keep_pipes = True
        if self.checkpoint is not None:
            self._say_when_unguarded(self.checkpoint.skipped)
            self.spent = self.checkpoint
        self.finish()

    def _say_when_unguarded(self, reason):
        """Say with the first of the blocks without a checkpoint that there is none; not with each."""
        if reason and not self.session.unguarded:
            self.notes.append(UNGUARDED % reason)
        self.session.unguarded = bool(reason)

    def worker_hung_up(self):
        # When it has died, the news of how comes in a moment.
        self.supervisor.after(HANG_UP_GRACE, self._fail)

    def _fail(self):
        if self.finished or self.killed or self.worker.status is not None:
            return
        self.failed = True
        self.kill_processes()
        self.worker_exited()

    def verdict(self):
        if self.failed:
            return "crashed", 1, {"type": "ConnectionLost", "message": CONNECTION_LOST, "line": None}
        return super().verdict()

    def worker_exited(self):
        if self.finished or self.restoring or self.start_again():
            return
        self.report = None
        self.restoring = True
        self._close_relay()
        self.session.kill(spare=self.checkpoint)
        self._make_room()
        if self.checkpoint is not None and self.checkpoint.alive():
            self.session.wake(self.checkpoint, self._restored)
        else:
            self._restored(False)

    def _restored(self, awake):
        if awake:
            self.state = "restored"
            self.before = self.request["number"]
            self.notes.append("Files, threads and subprocesses are not restored.")
        else:
            if self.checkpoint is not None:
                self.checkpoint.drop()
                if self.checkpoint.skipped:
                    self.notes.append("No checkpoint was kept: %s." % self.checkpoint.skipped)
            self.session.start()
            self.state = "lost"
            self.notes.append("The session's variables are lost; a new, empty session has been started.")
        self.finish()

    def roots(self, parent_of):
        return self.session.roots(parent_of, spare=self.checkpoint)

    def kill_processes(self):
        self.session.kill(spare=self.checkpoint)
