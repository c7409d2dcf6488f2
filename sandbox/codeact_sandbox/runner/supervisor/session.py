"""The supervisor's view of a session: its live interpreter, its checkpoints, its directory and environment.

Processes that a block has started inherit its interpreter's socket. So the next request uses a new connection, which the
interpreter opens after the block to a listening socket in the abstract namespace, which code can't remove. The kernel reports
the owner of a connection.
"""

import os
import selectors
import socket

from ..shared import system, wire
from ..worker import checkpoint_fork
from . import checkpoints, session_environment

BACKLOG = 8
CANCELLED = "These tasks of asyncio were pending and have been cancelled, and there is a new event loop: %s."


class Session:
    """One interpreter that runs block after block."""

    def __init__(self, supervisor):
        self.supervisor = supervisor
        self.loop = supervisor.loop
        self.scheduler = supervisor.scheduler
        self.worker = None
        self.environment = session_environment.SessionEnvironment()
        # Whether the last block had no checkpoint.
        self.without_checkpoint = False
        # Names of the tasks that were pending in the checkpoint that was restored last.
        self.cancelled_tasks = []
        self._next_checkpoint = None
        # The checkpoints that the host has requested, by name, each with the directory and environment at that time.
        self._kept = {}
        name = supervisor.config["listener"] = "codeact-" + os.urandom(8).hex()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + name)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self.loop.selector.register(self._listener, selectors.EVENT_READ, self._accept)

    # The interpreter

    @property
    def is_usable(self):
        """Whether its interpreter lives and is connected, or will be."""
        return self.worker is not None and self.worker.status is None and not self.worker.connection.closed

    def lives(self):
        """Return whether its interpreter lives, also if its end has not been reported yet."""
        return self.is_usable and (self.worker.pid is None or system.parent(self.worker.pid) != 0)

    def start(self):
        self.worker = self.supervisor.workers.start()
        self.environment.resend_all()

    def await_connection(self):
        """Close the connection after a block; the interpreter then reconnects."""
        # A connection opened during the block may belong to processes that the block has started.
        self._close_waiting()
        self.worker.connection.disconnect()

    def _close_waiting(self):
        for _ in range(BACKLOG + 1):
            try:
                self._listener.accept()[0].close()
            except OSError:
                return

    def _accept(self, _events):
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, wire.CREDENTIALS.size)
        pid = wire.CREDENTIALS.unpack(credentials)[0]
        # gVisor reports the process that asks. What another process than the owner sends is dropped there, too.
        if self.worker is not None and pid in (self.worker.pid, 1) and self.worker.connection.reconnecting:
            self.worker.connection.connect(sock, self.worker.pid)
        else:
            sock.close()

    def kill(self, keep=None):
        system.kill_trees(lambda parent_of: self.root_pids(parent_of, keep), keep=self._sleeping_pids(keep))
        self.supervisor.workers.collect()

    def root_pids(self, parent_of, keep=None):
        """Return the processes where the session's process trees begin: its interpreter, and orphans."""
        orphans = self.supervisor.workers.orphans(parent_of, self._sleeping_pids(keep))
        return orphans + ([self.worker.pid] if self.worker is not None and self.worker.pid else [])

    def _sleeping_pids(self, keep):
        kept = (checkpoint for checkpoint, _ in self._kept.values())
        return {item.pid for item in (keep, *kept) if item is not None and item.pid}

    # Checkpoints of blocks

    def request_next_checkpoint(self):
        """Request the checkpoint of the next block now, while no block waits for it."""
        if (
            self.supervisor.config["checkpoint"]
            and self.scheduler.session_task is None
            and self._next_checkpoint is None
            and self.is_usable
        ):
            self.worker.on_frame = self.on_frame
            self._next_checkpoint = checkpoints.request_checkpoint(self.worker, ahead=True)

    def on_frame(self, kind, ident, message):
        checkpoint = self._next_checkpoint
        if kind == wire.CHECKPOINT_TAKEN and checkpoint is not None and ident == checkpoint.token:
            checkpoint.set_taken(message)
            if checkpoint.skipped:
                self.drop_next_checkpoint()

    def checkpoint_for_block(self):
        """Return the checkpoint requested ahead; request another if there is none, it has died, or memory is short."""
        checkpoint, self._next_checkpoint = self._next_checkpoint, None
        if checkpoint is not None:
            # Memory may have filled since it was taken.
            memory = self.supervisor.config.get("memory_bytes")
            if checkpoint.is_awaited or (
                checkpoint.is_connected() and not checkpoint_fork.why_too_large(memory, self.worker.pid)
            ):
                return checkpoint
            checkpoint.drop()
        return checkpoints.request_checkpoint(self.worker, ahead=True)

    def restore_after_shell(self, on_done):
        """Replace an interpreter that a shell block has ended, by the checkpoint taken ahead or else by an empty one."""
        checkpoint, self._next_checkpoint = self._next_checkpoint, None

        def done(awake):
            if not awake:
                self.kill()
                self.start()
            on_done(awake)

        if checkpoint is not None and not checkpoint.is_awaited and checkpoint.is_alive():
            self.wake(checkpoint, done)
            return
        if checkpoint is not None:
            checkpoint.drop()
        done(False)

    def drop_next_checkpoint(self):
        if self._next_checkpoint is not None:
            self._next_checkpoint.drop()
            self._next_checkpoint = None

    def take_notes(self):
        names, self.cancelled_tasks = self.cancelled_tasks, []
        return [CANCELLED % ", ".join(names)] if names else []

    def wake(self, checkpoint, on_done):
        self.worker = self.supervisor.workers.start_from_checkpoint(checkpoint.pid, checkpoint.sock)
        checkpoints.WakeRequest(self, on_done)
        # The interpreter knows only what it was sent before it was forked.
        self.environment.resend_all()

    # Checkpoints that the host requests

    def take_checkpoint(self, ident, name, drop=False):
        """Take a checkpoint, and keep it until the next request for one of this name; or drop those with names."""
        if drop:
            for each in [each for each in self._kept if each is not None]:
                self._drop(each)
            self._answer(ident, None)
        elif self.scheduler.session_task is not None:
            self._answer(ident, "a block is running")
        elif not self.is_usable:
            self._answer(ident, "there is no session")
        else:
            checkpoints.CheckpointRequest(
                self, ident, name, lambda error: self._answer(ident, error and "no checkpoint was taken: " + error)
            )

    def keep_checkpoint(self, checkpoint, name):
        self._drop(name)
        self._kept[name] = checkpoint, self.environment.save()

    def _drop(self, name):
        if name in self._kept:
            self._kept.pop(name)[0].drop()

    def roll_back(self, ident, name):
        """Go back to a checkpoint that the host has requested, and take another there, for the next time."""
        checkpoint, environment = self._kept.get(name, (None, None))
        if self.scheduler.session_task is not None:
            self._answer(ident, "a block is running")
            return
        if checkpoint is None or not checkpoint.is_alive():
            self._answer(ident, "there is no checkpoint: call checkpoint() first")
            return
        self.drop_next_checkpoint()
        self.kill()
        del self._kept[name]
        self.environment.restore(environment)
        self.scheduler.session_task = checkpoint
        self.wake(checkpoint, lambda awake: self._on_rolled_back(ident, name, awake))

    def _on_rolled_back(self, ident, name, awake):
        self.scheduler.session_task = None
        if awake:
            checkpoints.CheckpointRequest(
                self, ident, name, lambda error: self.supervisor.send(wire.ANSWER, ident, {"not_taken": error})
            )
        else:
            self.start()
            self._answer(ident, "the checkpoint has been killed, and the session is empty now")
            self.scheduler.start_next()

    def _answer(self, ident, error):
        self.supervisor.send(wire.ANSWER, ident, {"error": error, "errno": 0} if error else {})
