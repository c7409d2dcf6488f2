"""The supervisor's view of the zygote and of the workers that it forks."""

import os
import socket

from . import peer, system, wire, zygote


class Worker:
    """A process forked from the zygote.

    Args:
        ident: Number given to it by the supervisor.
    """

    def __init__(self, ident):
        self.ident = ident
        self.peer = None
        self.pid = None
        self.status = None
        self.failure = None
        self.on_frame = None
        self.on_exit = None
        self.doomed = False

    def frame(self, kind, ident, message):
        """Pass on what the process said."""
        if self.on_frame is not None:
            self.on_frame(kind, ident, message)

    def exited(self, status, failure=None):
        """Note its end, once."""
        if self.status is None:
            self.status, self.failure = status, failure
            # Its death can be known before its last words have been read.
            self.peer.finish()
            if self.on_exit is not None:
                self.on_exit()


class Workers:
    """Starts workers, knows them by pid, and tells them of their end.

    Args:
        selector: The supervisor's selector.
        config: The sandbox's configuration.
        on_ready: Called with the zygote's first message.
    """

    def __init__(self, selector, config, on_ready):
        self._selector = selector
        self._config = config
        self._on_ready = on_ready
        self._pending = {}
        self.by_pid = {}
        self._count = 0
        self.zygote_pid = None
        self._zygote = None

    def start_zygote(self):
        """Fork the warm interpreter."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                _leave_supervisor(theirs)
                zygote.run(theirs, self._config)
            finally:
                os._exit(71)
        theirs.close()
        self.zygote_pid = pid
        self._zygote = peer.Peer(self._selector, ours, self._zygote_says, self._zygote_gone)

    def start(self):
        """Ask for a worker; requests may be sent to it at once.

        Returns:
            The `Worker`.
        """
        self._count += 1
        worker = Worker(self._count)
        ours, theirs = socket.socketpair()
        worker.peer = peer.Peer(self._selector, ours, worker.frame, lambda: None)
        self._pending[worker.ident] = worker
        self._zygote.send(wire.pack(b"W", worker.ident), [theirs.fileno()])
        theirs.close()
        return worker

    def adopt(self, worker, pid, sock):
        """Let a woken checkpoint take the place of a dead worker.

        Args:
            worker: The new entry for it.
            pid: The checkpoint's process.
            sock: The supervisor's end of its socket.
        """
        worker.pid = pid
        worker.peer = peer.Peer(self._selector, sock, worker.frame, lambda: None)
        self.by_pid[pid] = worker

    def next_worker(self):
        """An entry for a process that is not forked from the zygote."""
        self._count += 1
        return Worker(self._count)

    def collect(self):
        """Take note of the children of PID 1 that have died."""
        for pid, status in system.reaped():
            if pid == self.zygote_pid:
                self._zygote.close()
                self._zygote_gone()
            else:
                self._ended(pid, status)

    def strays(self, parent_of, keep=()):
        """Processes that no running block owns: they lost their parent to PID 1."""
        known = set(self.by_pid) | {self.zygote_pid} | set(keep)
        return [pid for pid, parent in parent_of.items() if parent == 1 and pid not in known]

    def anything_else(self, keep=()):
        """Whether there are more processes than the supervisor, the zygote and the known workers."""
        known = set(self.by_pid) | {1, self.zygote_pid} | set(keep)
        return any(pid not in known for pid in system.list_pids())

    def _ended(self, pid, status):
        worker = self.by_pid.pop(pid, None)
        if worker is not None:
            worker.exited(status)

    def _zygote_says(self, kind, ident, message):
        if kind == b"H":
            self._on_ready(message)
        elif kind == b"X":
            self._ended(message["pid"], message["status"])
        elif kind == b"S":
            worker = self._pending.pop(ident)
            if "error" in message:
                worker.exited(71 << 8, "the sandbox could not start a process: " + message["error"])
            else:
                worker.pid = message["pid"]
                self.by_pid[worker.pid] = worker
                if worker.doomed:
                    system.kill_trees(lambda _: [worker.pid])

    def _zygote_gone(self):
        """User code of the same uid can kill the zygote; what it would have told about its children PID 1 now sees itself."""
        pending, self._pending = self._pending, {}
        self.start_zygote()
        for worker in pending.values():
            worker.exited(71 << 8, "the code killed the process that starts blocks")


def _leave_supervisor(sock):
    """Keep nothing of the supervisor's: neither the stream to the host nor any socket or pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    keep = sock.fileno()
    for name in os.listdir("/proc/self/fd") if os.access("/proc/self/fd", os.R_OK) else map(str, range(3, 1024)):
        fd = int(name)
        if fd > 2 and fd != keep:
            try:
                os.close(fd)
            except OSError:
                pass
