"""The supervisor's view of the zygote and of the workers that it forks."""

import os
import selectors
import signal
import socket

from ..shared import system, wire
from ..zygote import zygote

NO_PROCESS_STATUS = 71 << 8


class WorkerProcess:
    def __init__(self, ident):
        self.ident = ident
        self.connection = None
        self.pid = None
        self.status = None
        self.failure = None
        self.usage = None
        self.on_frame = None
        self.on_exit = None
        self.on_disconnect = None
        self.kill_when_forked = False

    def resume(self):
        """Let it run if code of the same user has stopped it."""
        if self.pid is not None and self.status is None:
            system.send_signal(self.pid, signal.SIGCONT)

    def exited(self, status, failure=None, usage=system.NO_USAGE):
        if self.status is None:
            self.status, self.failure = status, failure
            self.usage = usage
            # Its end can be known before its last frames have been read.
            self.connection.read_rest()
            if self.on_exit is not None:
                self.on_exit()


class WorkerProcesses:
    def __init__(self, selector, config, on_ready, on_failure):
        self._selector = selector
        self._config = config
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._count = 0
        # Workers of which the zygote has not reported a process yet.
        self._requested = {}
        self._by_pid = {}
        # Processes that were killed and still exist.
        self.ending = set()
        self._zygote = None
        self._zygote_pid = None
        self._added_tools = None
        self._had_zygote = False

    # The zygote

    def start_zygote(self):
        ours, theirs = socket.socketpair()
        wire.report_senders(ours)  # it may send before this process runs again
        try:
            pid = os.fork()
        except OSError:
            # Code has killed the zygote and uses all processes that are allowed; nothing can continue without a zygote.
            system.kill_trees(lambda parent_of: [pid for pid, parent in parent_of.items() if parent == 1])
            pid = os.fork()
        if pid == 0:
            try:
                self._become_zygote(theirs)
            finally:
                os._exit(71)
        theirs.close()
        self._zygote_pid = pid
        self._added_tools = None
        self._zygote = ProcessConnection(self._selector, self._on_zygote_frame, self._on_zygote_exit)
        self._zygote.connect(ours, pid)

    def _become_zygote(self, sock):
        _close_all_but(sock.fileno())
        system.set_limits(self._config.get("rlimits", {}))
        zygote.run(sock, self._config)

    def add_tools(self, sources):
        """Define host tools that were added after the start in all workers that are forked from now on."""
        if sources and sources != self._added_tools:
            self._added_tools = sources
            self._zygote.send(wire.pack(wire.ADD_TOOLS, 0, {"sources": sources}, limit=wire.MAX_REQUEST))

    def resume_zygote(self):
        """Let the zygote run if code of the same user has stopped it."""
        system.send_signal(self._zygote_pid, signal.SIGCONT)

    def replace_zygote(self):
        """Kill a zygote that does not answer; another is started when it has ended."""
        system.send_signal(self._zygote_pid, signal.SIGKILL)

    def _on_zygote_frame(self, kind, ident, message):
        if kind == wire.ZYGOTE_READY:
            self._had_zygote = True
            self._on_ready(message)
        elif kind == wire.WORKER_EXITED:
            self._on_exit(message["pid"], message["status"], message["usage"])
        elif kind == wire.WORKER_FORKED:
            worker = self._requested.pop(ident, None)
            if worker is None:
                return
            if "error" in message:
                worker.exited(NO_PROCESS_STATUS, "the sandbox could not start a process: " + message["error"])
            else:
                worker.pid = message["pid"]
                self._by_pid[worker.pid] = worker
                worker.connection.set_owner(worker.pid)
                if worker.kill_when_forked:
                    system.kill_trees(lambda _: [worker.pid])

    def _on_zygote_exit(self):
        """Start another zygote. Code of the same user can kill one; its children are this process's children now."""
        if not self._had_zygote:
            self._on_failure("the interpreter ended while it imported the modules of `preload`")
        requested, self._requested = self._requested, {}
        self.start_zygote()
        for worker in requested.values():
            worker.exited(NO_PROCESS_STATUS, "the code killed the process that starts blocks")
        # How those ended that it had already waited for is lost.
        self.collect()
        present = set(system.list_pids())
        for pid in [pid for pid in self._by_pid if pid not in present]:
            self._on_exit(pid, signal.SIGKILL)

    # Workers

    def start(self):
        """Request a worker; frames can be sent to it at once."""
        self._count += 1
        worker = WorkerProcess(self._count)
        ours, theirs = socket.socketpair()
        self._connect(worker, ours)
        self._requested[worker.ident] = worker
        self._zygote.send(wire.pack(wire.FORK_WORKER, worker.ident), [theirs.detach()])
        self.resume_zygote()
        return worker

    def start_from_checkpoint(self, pid, sock):
        self._count += 1
        worker = WorkerProcess(self._count)
        worker.pid = pid
        self._connect(worker, sock)
        self._by_pid[pid] = worker
        worker.resume()
        return worker

    def _connect(self, worker, sock):
        # The zygote reports how a worker ended, and the block may have stopped the zygote.
        def on_frame(*frame):
            self.resume_zygote()
            if worker.on_frame is not None:
                worker.on_frame(*frame)

        def on_close():
            self.resume_zygote()
            if worker.on_disconnect is not None and worker.status is None:
                worker.on_disconnect()

        # Without a known owner, frames wait: a block may kill the zygote before that has reported the worker's process.
        worker.connection = ProcessConnection(self._selector, on_frame, on_close)
        worker.connection.connect(sock, worker.pid)

    def kill(self, worker):
        """Kill a worker without waiting; its process is in `ending` until it has been reaped."""
        self.ending.add(worker.pid)
        system.send_signal(worker.pid, signal.SIGKILL)
        worker.connection.close()

    def collect(self):
        zygote_pid, zygote_ended = self._zygote_pid, False
        for pid, status, usage in system.reaped():
            if pid == zygote_pid:
                zygote_ended = True
            else:
                self._on_exit(pid, status, usage)
        if zygote_ended and zygote_pid == self._zygote_pid:
            self._zygote.read_rest()
            if zygote_pid == self._zygote_pid:
                self._on_zygote_exit()

    def _on_exit(self, pid, status, usage=system.NO_USAGE):
        self.ending.discard(pid)
        worker = self._by_pid.pop(pid, None)
        if worker is not None:
            worker.exited(status, usage=usage)

    # Processes that workers have left behind

    def orphans(self, parent_of, keep=()):
        """Return the processes that belong to no worker: children of PID 1, or of the zygote as their subreaper."""
        known, parents = {*self._by_pid, self._zygote_pid, *keep}, self._parents_of_orphans()
        return [pid for pid, parent in parent_of.items() if parent in parents and pid not in known]

    def _parents_of_orphans(self):
        # While the zygote has not reported all processes that it has forked, its children may be workers.
        return {1} if self._requested else {1, self._zygote_pid}

    def may_have_orphans(self, pid):
        """Return whether there are processes that a worker may have left behind.

        While blocks run at the same time there are many processes, and a full look at each end would take milliseconds.
        """
        known = {*self._by_pid, 1, self._zygote_pid}
        # A process that has ended since it was listed (parent 0) may have started another before.
        parents = self._parents_of_orphans() | {pid, 0}
        return any(system.parent(other) in parents for other in system.list_pids() if other not in known)


def _close_all_but(sock):
    """Close everything that is the supervisor's (the stream to the host, sockets, pipes), and drop its handlers."""
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    system.kept_open.clear()
    os.closerange(3, sock)
    os.closerange(sock + 1, os.sysconf("SC_OPEN_MAX"))


# A process that the block has left behind may hold the same socket and go on writing.
MAX_LAST_READS = 16


class ProcessConnection:
    """A socket with frames in both directions; data from any process but its owner is dropped."""

    def __init__(self, selector, on_frame, on_close):
        self._selector = selector
        self._sock = None
        self._pid = None
        self._on_frame = on_frame
        self._on_close = on_close
        self._outbox = wire.Outbox(-1)
        self._writing = False
        self.closed = False
        # Whether the other side has ended before it read everything.
        self.undelivered = False

    def connect(self, sock, pid=None):
        self._sock, self._pid = sock, pid
        wire.report_senders(sock)
        sock.setblocking(False)
        self._outbox.fd, self._outbox.sock = sock.fileno(), sock
        # A worker runs user code, so the size of its messages is limited.
        self._parser = wire.Parser(wire.MAX_REPORT)
        self._selector.register(sock, selectors.EVENT_READ, self._on_ready)
        self._writing = False
        self._flush()

    def set_owner(self, pid):
        """Set the process at the other end, and send the frames that have waited for that."""
        self._pid = pid
        if not self.closed:
            self._flush()

    def disconnect(self):
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None

    @property
    def reconnecting(self):
        return self._sock is None and not self.closed

    def send(self, frame, fds=()):
        """Send a frame; descriptors go with its first byte, and are closed."""
        if self.closed:
            self.undelivered = True
            wire.close_all(fds)
            return
        self._outbox.put(frame, fds)
        self._flush()

    def read_rest(self):
        """Read what the process sent before it ended, and close the connection."""
        for _ in range(MAX_LAST_READS):
            if self._sock is None or not self._receive():
                break
        self.close()

    def close(self):
        if not self.closed:
            self.closed = True
            self.undelivered = self.undelivered or bool(self._outbox.chunks)
            self._outbox.close()
            self.disconnect()

    def _fail(self):
        if not self.closed:
            self.close()
            self._on_close()

    def _on_ready(self, events):
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and self._sock is not None:
            self._receive()

    def _flush(self):
        if self._sock is None or self._pid is None:
            return
        try:
            writing = not self._outbox.flush()
        except OSError:
            self.undelivered = True
            self._fail()
            return
        if writing != self._writing:
            self._writing = writing
            events = selectors.EVENT_READ | selectors.EVENT_WRITE if writing else selectors.EVENT_READ
            self._selector.modify(self._sock, events, self._on_ready)

    def _receive(self):
        """Read once, and deliver the frames; return False when there was nothing to read."""
        sock = self._sock
        try:
            data, sender = wire.receive(sock)
            if data and sender not in (self._pid, wire.ENDED):
                return True
            frames = self._parser.feed(data) if data else None
        except BlockingIOError:
            return False
        except ConnectionResetError:
            # The kernel reports this instead of an end when the other side ended before it had read everything.
            self.undelivered = True
            frames = None
        except (OSError, wire.ProtocolError):
            frames = None
        if frames is None:
            self._fail()
            return False
        for kind, ident, payload in frames:
            try:
                wire.check_report(payload)
                message, data = wire.unpack(payload)
            except wire.ProtocolError:
                self._fail()
                return False
            if data:
                message["data"] = data  # JSON has no bytes, so nothing else can look like this
            self._on_frame(kind, ident, message)
            if self._sock is not sock:
                return False
        if self._parser.error is not None:
            self._fail()
        return True
