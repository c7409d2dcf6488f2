"""The supervisor's view of the zygote and of the workers that it forks."""

import os
import signal
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
        self.on_hang_up = None
        self.doomed = False
        self.home = None

    def frame(self, kind, ident, message):
        """Pass on what the process said."""
        if self.on_frame is not None:
            self.on_frame(kind, ident, message)

    def hung_up(self):
        """Pass on that its socket is closed, or was, because it talked nonsense."""
        if self.on_hang_up is not None and self.status is None:
            self.on_hang_up()

    def let_run(self):
        """Let it run if code of the same user has stopped it."""
        if self.pid is not None and self.status is None:
            system.send(self.pid, signal.SIGCONT)

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
        on_ready: Called with a zygote's first message.
        on_failure: Called with a sentence when there can be no zygote; does not return.
        homes: The `Homes` of blocks.
    """

    def __init__(self, selector, config, on_ready, on_failure, homes):
        self._selector = selector
        self._config = config
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._homes = homes
        self._zygote_home = None
        self._pending = {}
        self.by_pid = {}
        self.ending = set()
        self._count = 0
        self.zygote_pid = None
        self._zygote = None
        self._taught = None
        self._warm = False

    def start_zygote(self):
        """Fork the warm interpreter."""
        ours, theirs = socket.socketpair()
        wire.tell_senders(ours)  # it may send before this process runs again
        if self._zygote_home is not None:
            self._homes.remove(self._zygote_home)
        # Its imports read settings there, and it may start after blocks have run.
        self._zygote_home = self._homes.make()
        try:
            pid = os.fork()
        except OSError:
            # Code that holds all the processes that there may be has killed the zygote; without one nothing goes on.
            system.kill_trees(lambda parent_of: [pid for pid, parent in parent_of.items() if parent == 1])
            pid = os.fork()
        if pid == 0:
            try:
                _leave_supervisor(theirs.fileno())
                system.set_limits(self._config.get("rlimits", {}))
                if self._zygote_home is not None:
                    os.environ["HOME"] = self._zygote_home
                    self._config["places"].pop("HOME", None)  # what is imported ahead is to use this one
                zygote.run(theirs, self._config)
            finally:
                os._exit(71)
        theirs.close()
        self.zygote_pid = pid
        self._taught = None
        self._zygote = peer.Peer(self._selector, self._zygote_says, self._zygote_gone)
        self._zygote.connect(ours, pid)

    def teach(self, sources):
        """Have workers that are forked from now on know host tools that have come since the start."""
        if sources and sources != self._taught:
            self._taught = sources
            self._zygote.send(wire.pack(wire.ADD_TOOLS, 0, {"sources": sources}, limit=wire.MAX_REQUEST))

    def start(self, kind=wire.FORK_WORKER):
        """Ask for a worker; requests may be sent to it at once.

        Args:
            kind: `W`, or `I` for a worker that may change the folder of packages.

        Returns:
            The `Worker`.
        """
        self._count += 1
        worker = Worker(self._count)
        ours, theirs = socket.socketpair()
        system.free_processors((1, self.zygote_pid))
        self._connect(worker, ours)
        self._pending[worker.ident] = worker
        worker.home = self._homes.make_ahead()
        self._zygote.send(wire.pack(kind, worker.ident, None, os.fsencode(worker.home or "")), [theirs.fileno()])
        theirs.close()
        self.let_zygote_run()
        return worker

    def _connect(self, worker, sock):
        def frame(*args):
            # A block that has stopped the zygote is about to end, and its end is the zygote's to tell.
            self.let_zygote_run()
            worker.frame(*args)

        def closed():
            self.let_zygote_run()
            worker.hung_up()

        # A block may kill the zygote, so none is handed over before the zygote has told whom it has forked.
        worker.peer = peer.Peer(self._selector, frame, closed)
        worker.peer.connect(sock, worker.pid)

    def let_zygote_run(self):
        """Let it run if code of the same user has stopped it."""
        system.send(self.zygote_pid, signal.SIGCONT)

    def end(self, worker):
        """Kill a worker that nobody waits for; it is among those that are `ending` until it is gone."""
        self.ending.add(worker.pid)
        system.send(worker.pid, signal.SIGKILL)
        worker.peer.close()

    def discard(self, worker):
        """Kill a worker that is not needed, as soon as it is known which process it is."""
        worker.doomed = True
        if worker.pid is not None and worker.status is None:
            self.end(worker)

    def replace_zygote(self):
        """Kill a zygote that does not answer; its death starts another."""
        system.send(self.zygote_pid, signal.SIGKILL)

    def adopt(self, pid, sock):
        """Let a woken checkpoint take the place of a dead worker.

        Args:
            pid: The checkpoint's process.
            sock: The supervisor's end of its socket.

        Returns:
            The `Worker` for it.
        """
        self._count += 1
        worker = Worker(self._count)
        worker.pid = pid
        self._connect(worker, sock)
        self.by_pid[pid] = worker
        worker.let_run()
        return worker

    def collect(self):
        """Take note of the children of PID 1 that have died."""
        zygote_pid, zygote_ended = self.zygote_pid, False
        for pid, status in system.reaped():
            if pid == zygote_pid:
                zygote_ended = True
            else:
                self._ended(pid, status)
        if zygote_ended and zygote_pid == self.zygote_pid:
            self._zygote.finish()
            if zygote_pid == self.zygote_pid:
                self._zygote_gone()

    def strays(self, parent_of, keep=()):
        """Processes that no running block owns: they lost their parent to PID 1, or made themselves the zygote's."""
        known, owners = set(self.by_pid) | {self.zygote_pid} | set(keep), self._owners_of_strays()
        return [pid for pid, parent in parent_of.items() if parent in owners and pid not in known]

    def _owners_of_strays(self):
        # While the zygote has yet to say whom it has forked, its children may be workers.
        return {1} if self._pending else {1, self.zygote_pid}

    def may_have_left_some(self, pid):
        """Whether there are processes that a worker, which has ended or was killed, could have left behind.

        With blocks at the same time there are many processes, and to look at all of them at each end takes milliseconds.
        """
        known = set(self.by_pid) | {1, self.zygote_pid}
        # One that has gone since it was listed (0) may have started another before.
        owners = self._owners_of_strays() | {pid, 0}
        return any(system.parent(other) in owners for other in system.list_pids() if other not in known)

    def _ended(self, pid, status):
        self.ending.discard(pid)
        worker = self.by_pid.pop(pid, None)
        if worker is not None:
            self._over(worker, status)

    def _over(self, worker, status, failure=None):
        worker.exited(status, failure)
        # Not earlier: the result need not wait for this.
        if worker.home is not None:
            self._homes.remove(worker.home)

    def _zygote_says(self, kind, ident, message):
        if kind == wire.ZYGOTE_READY:
            self._warm = True
            self._on_ready(message)
        elif kind == wire.WORKER_EXITED:
            self._ended(message["pid"], message["status"])
        elif kind == wire.WORKER_FORKED:
            worker = self._pending.pop(ident, None)
            if worker is None:
                return
            if "error" in message:
                self._over(worker, 71 << 8, "the sandbox could not start a process: " + message["error"])
            else:
                worker.pid = message["pid"]
                self.by_pid[worker.pid] = worker
                worker.peer.belongs_to(worker.pid)
                if worker.doomed:
                    system.kill_trees(lambda _: [worker.pid])

    def _zygote_gone(self):
        """User code of the same uid can kill the zygote; what it would have told about its children PID 1 now sees itself."""
        if not self._warm:
            self._on_failure("the interpreter ended while it imported the modules of `preload`")
        pending, self._pending = self._pending, {}
        self.start_zygote()
        for worker in pending.values():
            self._over(worker, 71 << 8, "the code killed the process that starts blocks")
        # Of those that it has waited for, nobody can tell any more how they ended; the others are PID 1's now.
        self.collect()
        present = set(system.list_pids())
        for pid in [pid for pid in self.by_pid if pid not in present]:
            self._ended(pid, signal.SIGKILL)


def _leave_supervisor(sock):
    """Keep nothing of the supervisor's: neither the stream to the host nor any socket or pipe, nor its handlers."""
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(3, sock)
    os.closerange(sock + 1, os.sysconf("SC_OPEN_MAX"))
