"""The supervisor's view of checkpoints: sleeping forks of a session."""

import signal
import socket

from ..shared import system, wire
from . import block_report

CHECKPOINT_TIMEOUT_S = 10.0
WAKE_TIMEOUT_S = 2.0


class Checkpoint:
    """A sleeping fork of the session, or a request for one."""

    def __init__(self, sock):
        self.sock = sock
        self.token = wire.random_id()
        self.pid = None
        # Why there is none.
        self.skipped = None

    def set_taken(self, message):
        """Set what the session has reported; only the first report counts, because a later one may be the block's."""
        if not self.is_awaited:
            return
        pid, skipped = message.get("pid"), message.get("skipped")
        if isinstance(pid, int) and 1 < pid <= system.MAX_PID:
            self.pid = pid
        else:
            self.skipped = skipped if isinstance(skipped, str) else "the session gave no reason"

    @property
    def is_awaited(self):
        return self.pid is None and self.skipped is None

    def is_alive(self):
        return self.pid in system.parents()

    def is_connected(self):
        """Return whether its end of the socket is open: cheaper than `is_alive`, and wrong if the block has copied that end."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def drop(self):
        self.sock.close()
        if self.pid is not None:
            # The end of its socket would end it, too, but only when it runs, and not if the block has stopped it.
            system.send_signal(self.pid, signal.SIGKILL)


def request_checkpoint(worker, ahead=False):
    own_end, checkpoint_end = socket.socketpair()
    requested = Checkpoint(own_end)
    message = {"fds": 1, "ahead": ahead}
    worker.connection.send(wire.pack(wire.TAKE_CHECKPOINT, requested.token, message), [checkpoint_end.detach()])
    return requested


class CheckpointRequest:
    def __init__(self, session, ident, name, on_done):
        self.session = session
        self.ident = ident
        self.name = name
        self.on_done = on_done
        self.worker = session.worker
        session.scheduler.session_task = self
        self.timer = session.loop.call_later(CHECKPOINT_TIMEOUT_S, lambda: self._end("the session does not answer"))
        self.worker.on_frame = self._on_frame
        self.worker.on_exit = self.worker.on_disconnect = lambda: self._end("the session has ended")
        self.checkpoint = request_checkpoint(self.worker)

    def _on_frame(self, kind, ident, message):
        self.session.on_frame(kind, ident, message)
        if kind == wire.CHECKPOINT_TAKEN and ident == self.checkpoint.token:
            self.checkpoint.set_taken(message)
            self._end(self.checkpoint.skipped)

    def _end(self, error):
        scheduler = self.session.scheduler
        if scheduler.session_task is not self:
            return
        self.session.loop.cancel(self.timer)
        self.worker.on_frame = self.session.on_frame
        self.worker.on_exit = self.worker.on_disconnect = None
        if error:
            self.checkpoint.drop()
        else:
            self.session.keep_checkpoint(self.checkpoint, self.name)
        self.on_done(error)
        scheduler.finished(self)


class WakeRequest:
    def __init__(self, session, on_done):
        self.session = session
        self.worker = session.worker
        self.on_done = on_done
        self.timer = session.loop.call_later(WAKE_TIMEOUT_S, lambda: self._end(False))
        self.worker.on_frame = self._on_frame
        self.worker.on_exit = self.worker.on_disconnect = lambda: self._end(False)
        self.worker.connection.send(wire.pack(wire.RESUME, 0, {}))
        if self.worker.connection.closed:
            self._end(False)

    def _on_frame(self, kind, _ident, message):
        if kind == wire.RESUMED:
            self.session.cancelled_tasks = block_report.task_names(message)
            self._end(True)

    def _end(self, awake):
        if self.on_done is None:
            return
        on_done, self.on_done = self.on_done, None
        self.session.loop.cancel(self.timer)
        self.worker.on_frame = self.worker.on_exit = self.worker.on_disconnect = None
        if not awake:
            self.session.kill()
        on_done(awake)
