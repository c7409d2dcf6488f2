"""The supervisor's view of a session: its live interpreter, its checkpoints, its place."""

import signal
import socket

from . import checkpoint, listener, place, system, wire

CHECKPOINT_PATIENCE = 10.0
WAKING_PATIENCE = 2.0


class Session:
    """One interpreter that lives on from block to block.

    Args:
        supervisor: The `Supervisor`.
    """

    def __init__(self, supervisor):
        self.supervisor = supervisor
        self.workers = supervisor.workers
        self.worker = None
        self.place = place.Place()
        self.unguarded = False
        self._ahead = None
        self._kept = None
        self._kept_place = None
        self._listener = listener.Listener(supervisor.selector, self._connected)
        supervisor.config["listener"] = self._listener.name

    @property
    def usable(self):
        """Whether its interpreter lives and can be talked to."""
        return self.worker is not None and self.worker.status is None and not self.worker.peer.closed

    def start(self):
        """Start an empty interpreter, in the directory and the environment of the last block.

        Returns:
            Its worker.
        """
        self.worker = self.workers.start()
        self.place.forget_told()
        return self.worker

    def await_connection(self):
        """Close the connection after a block, because processes of the block share it. The interpreter then reconnects."""
        # A connection opened during the block may belong to processes that the block has started.
        self._listener.refuse_waiting()
        self.worker.peer.disconnect()

    def _connected(self, sock, pid):
        if self.worker is not None and self.worker.pid == pid and self.worker.peer.awaited:
            self.worker.peer.connect(sock, pid)
        else:
            sock.close()

    def kill(self, spare=None):
        """Kill the live interpreter and all that the session started, except its checkpoints."""
        system.kill_trees(lambda parent_of: self.roots(parent_of, spare), spare=self._sleeping(spare))
        self.workers.collect()

    def roots(self, parent_of, spare=None):
        """Where the trees of its processes begin: its interpreter, and what has lost its parent."""
        strays = self.workers.strays(parent_of, self._sleeping(spare))
        return strays + ([self.worker.pid] if self.worker is not None and self.worker.pid else [])

    def _sleeping(self, spare):
        return {item.pid for item in (spare, self._kept) if item is not None and item.pid}

    def prepare(self):
        """Have the checkpoint of the next block taken now, while nobody waits for it."""
        if (
            self.supervisor.config["checkpoint"]
            and self.supervisor.cell is None
            and self._ahead is None
            and self.usable
        ):
            self.worker.on_frame = self.hear
            self._ahead = ask_for_checkpoint(self.worker, ahead=True)

    def hear(self, kind, ident, message):
        """Take what the interpreter says between two blocks."""
        if kind == wire.CHECKPOINT_TAKEN and self._ahead is not None and ident == self._ahead.token:
            self._ahead.taken(message)
            if self._ahead.skipped:
                self.drop_ahead()

    def checkpoint_for_block(self):
        """Return the checkpoint that was requested ahead; request another if there is none, it has died, or memory is short."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.awaited and not (ahead.sleeps() and self._has_room()):
            ahead.drop()
            ahead = None
        return ahead or ask_for_checkpoint(self.worker, ahead=True)

    def _has_room(self):
        """Whether there is still memory for a checkpoint; it may have filled since that was taken."""
        try:
            return not checkpoint.too_large(self.supervisor.config.get("memory_bytes"), self.worker.pid)
        except OSError:  # the interpreter has died, and that is not known here yet
            return False

    def drop_ahead(self):
        """Let the checkpoint that was taken ahead end."""
        if self._ahead is not None:
            self._ahead.drop()
            self._ahead = None

    def wake(self, checkpoint, done):
        """Let a checkpoint go on as the session; then call `done` with whether it does, or was killed in its sleep."""
        self.worker = self.workers.adopt(checkpoint.pid, checkpoint.sock)
        Waking(self, done)
        # The woken interpreter knows only what it was told before it was put to sleep.
        self.place.forget_told()

    def take_checkpoint(self, ident):
        """Take a checkpoint because the host asked for it."""
        if not self.usable or self.supervisor.cell is not None:
            self._answer(ident, "there is no session" if self.supervisor.cell is None else "a block is running")
            return
        Taking(self, ident, lambda error: self._answer(ident, error and "no checkpoint was taken: " + error))

    def kept(self, checkpoint):
        """Keep a checkpoint instead of the one before."""
        if self._kept is not None:
            self._kept.drop()
        self._kept, self._kept_place = checkpoint, self.place.save()

    def rollback(self, ident):
        """Go back to the checkpoint that the host asked for, and sleep a copy of it so that one can come back to it again."""
        checkpoint = self._kept
        if self.supervisor.cell is not None:
            self._answer(ident, "a block is running")
            return
        if checkpoint is None or not checkpoint.alive():
            self._answer(ident, "there is no checkpoint: call checkpoint() first")
            return
        self.drop_ahead()
        self.kill()
        self._kept = None
        self.place.restore(self._kept_place)
        self.supervisor.cell = checkpoint
        self.wake(checkpoint, lambda awake: self._rolled_back(ident, awake))

    def _rolled_back(self, ident, awake):
        self.supervisor.cell = None
        if awake:
            Taking(self, ident, lambda _: self._answer(ident, None))
        else:
            self.start()
            self._answer(ident, "the checkpoint has been killed, and the session is empty now")
            self.supervisor.start_next()

    def _answer(self, ident, error):
        self.supervisor.send_message(wire.ANSWER, ident, {"error": error, "errno": 0} if error else {})


class Waking:
    """A checkpoint that is being woken.

    Args:
        session: The `Session`, of which it is the worker already.
        done: Called with whether it has awoken.
    """

    def __init__(self, session, done):
        self.session = session
        self.worker = session.worker
        self.done = done
        self.timer = session.supervisor.after(WAKING_PATIENCE, lambda: self._end(False))
        self.worker.on_frame = self._hear
        self.worker.on_exit = self.worker.on_hang_up = lambda: self._end(False)
        self.worker.peer.send(wire.pack(wire.RESUME, 0, {}))
        if self.worker.peer.closed:
            self._end(False)

    def _hear(self, kind, _ident, _message):
        if kind == wire.RESUMED:
            self._end(True)

    def _end(self, awake):
        if self.done is None:
            return
        done, self.done = self.done, None
        self.session.supervisor.forget(self.timer)
        self.worker.on_frame = self.worker.on_exit = self.worker.on_hang_up = None
        if not awake:
            self.session.kill()
        done(awake)


class Taking:
    """A checkpoint on its way, between two blocks.

    Args:
        session: The `Session`.
        ident: Number of the host's request.
        done: Called with None, or with a sentence when none was taken.
    """

    def __init__(self, session, ident, done):
        self.session = session
        self.ident = ident
        self.done = done
        self.worker = session.worker
        # Blocks wait until it is there.
        session.supervisor.cell = self
        self.timer = session.supervisor.after(CHECKPOINT_PATIENCE, lambda: self._end("the session does not answer"))
        self.worker.on_frame = self._hear
        self.worker.on_exit = self.worker.on_hang_up = lambda: self._end("the session has ended")
        self.checkpoint = ask_for_checkpoint(self.worker)

    def _hear(self, kind, ident, message):
        self.session.hear(kind, ident, message)
        if kind == wire.CHECKPOINT_TAKEN and ident == self.checkpoint.token:
            self.checkpoint.taken(message)
            self._end(self.checkpoint.skipped)

    def _end(self, error):
        supervisor = self.session.supervisor
        if supervisor.cell is not self:
            return
        supervisor.forget(self.timer)
        self.worker.on_frame = self.session.hear
        self.worker.on_exit = self.worker.on_hang_up = None
        if error:
            self.checkpoint.drop()
        else:
            self.session.kept(self.checkpoint)
        self.done(error)
        supervisor.finished(self)


def ask_for_checkpoint(worker, ahead=False):
    """Ask an interpreter between two blocks for a checkpoint.

    Args:
        worker: The interpreter's `Worker`.
        ahead: Whether it is the next block's: taken with that block's request if something can run before that.

    Returns:
        The `Checkpoint`, whose token the answer has.
    """
    ours, theirs = socket.socketpair()
    asked = Checkpoint(ours)
    worker.peer.send(wire.pack(wire.TAKE_CHECKPOINT, asked.token, {"fds": 1, "ahead": ahead}), [theirs.fileno()])
    theirs.close()
    return asked


class Checkpoint:
    """A sleeping fork of the session.

    Args:
        sock: The supervisor's end of its socket.
    """

    def __init__(self, sock):
        self.sock = sock
        self.token = wire.unguessable()
        self.pid = None
        self.skipped = None

    def taken(self, message):
        """Note what the session said of it; the first word counts, because the block could speak after it."""
        if not self.awaited:
            return
        pid, skipped = message.get("pid"), message.get("skipped")
        if isinstance(pid, int) and 1 < pid <= system.MOST_PIDS:
            self.pid = pid
        else:
            self.skipped = skipped if isinstance(skipped, str) else "the session said nothing of it"

    @property
    def awaited(self):
        """Whether the session has not yet said whether there is one."""
        return self.pid is None and self.skipped is None

    def alive(self):
        """Whether it still sleeps there."""
        return self.pid in system.parents()

    def sleeps(self):
        """Whether it still sleeps there, by its end of the socket: cheaper to know, and wrong where a block has copied that."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def drop(self):
        """Let it end."""
        self.sock.close()
        if self.pid is not None:
            # It would end by the end of its socket, but not if the block has stopped it, and not without running.
            system.send(self.pid, signal.SIGKILL)
