"""PID 1 of the sandbox: holds the stream to the host and gives it to nobody, runs blocks, enforces their deadlines."""

import collections
import heapq
import itertools
import os
import selectors
import shutil
import signal
import socket
import sys
import time

from . import blocks, files, output, system, wire, workers

PROTOCOL = 1
MAX_KEPT_PIPES = 64
MAX_TIMERS = 1024
GATHER_S = 0.002
STATE_FD = 9


class Supervisor:
    """The event loop of the sandbox.

    Args:
        config: What the host configured.
    """

    def __init__(self, config):
        self.config = config
        self.session_mode = config["mode"] == "session"
        self.selector = selectors.DefaultSelector()
        self.parser = wire.Parser()
        self.outbox = wire.Outbox(1)
        self.files = files.Files(config["workspace"])
        self.workers = workers.Workers(self.selector, config, self._zygote_ready)
        self.running = {}
        self.spare = None
        self.session_worker = None
        self.session_checkpoint = None
        self.queue = collections.deque()
        self.cell = None
        self.cell_count = 0
        self.checkpoint_state = None
        self.shell_state = {"cwd": None, "environment": {}, "unset": []}
        self.cell_state = {"cwd": None, "environment": {}, "unset": []}
        self._timers = []
        self._timer_order = itertools.count()
        self._kept_pipes = collections.deque()
        self._ready = False

    def run(self):
        """Serve until the host goes away; never returns."""
        # The zygote is forked before anything is open that user code must not inherit.
        self.workers.start_zygote()
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakeup_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self.selector.register(0, selectors.EVENT_READ, self._host_ready)
        self.selector.register(wakeup, selectors.EVENT_READ, lambda _: self._child_died(wakeup))
        while True:
            for key, events in self.selector.select(self._patience()):
                # An earlier call of this round may have closed it, and its number may be in use again.
                current = self.selector.get_map().get(key.fd)
                if current is not None and current.data == key.data:
                    key.data(events)
            self._fire_timers()
            self._flush()

    # The stream to the host

    def send(self, kind, ident, data):
        """Send bytes to the host."""
        self.outbox.put(wire.pack(kind, ident, None, data))

    def send_message(self, kind, ident, message, data=b""):
        """Send a message, and perhaps bytes, to the host."""
        self.outbox.put(wire.pack(kind, ident, message, data))

    def _flush(self):
        writing = not self.outbox.flush()
        if writing != (1 in self.selector.get_map()):
            if writing:
                self.selector.register(1, selectors.EVENT_WRITE, lambda _: None)
            else:
                self.selector.unregister(1)

    def _host_ready(self, _events):
        try:
            data = os.read(0, wire.READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # the host is gone; the end of PID 1 is the end of every process here
        try:
            for kind, ident, payload in self.parser.feed(data):
                self._host_says(kind, ident, payload)
        except wire.ProtocolError as error:
            self.fatal(str(error))

    def fatal(self, text):
        """Tell the host why, and end."""
        os.set_blocking(1, True)
        self.send_message(b"!", 0, {"error": text})
        self.outbox.flush()
        os._exit(70)

    def _host_says(self, kind, ident, payload):
        message, data = wire.unpack(payload)
        if kind == b"X":
            self._execute(ident, message, data)
        elif kind == b"K":
            self._cancel(ident)
        elif kind == b"F":
            answer, content = self.files.handle(ident, message, data)
            self.send_message(b"A", ident, answer, content)
        elif kind == b"P":
            self._explicit_checkpoint(ident)
        elif kind == b"R":
            self._rollback(ident)
        else:
            raise wire.ProtocolError("unknown frame type %r" % kind)

    def _zygote_ready(self, message):
        if not self._ready:
            self._ready = True
            self.send_message(b"H", 0, dict(describe(self.config), preload=message["preload"]))
            if self.session_mode:
                self.new_session()
                return
        if not self.session_mode:
            self.spare = self.workers.start()

    # Blocks

    def _execute(self, ident, request, code):
        request.setdefault("command", None)
        request.setdefault("path", None)
        request.update(number=0, cwd=self.config["workspace"], environment={}, unset=[], state_fd=STATE_FD)
        request["mode"] = self.config["mode"]
        if not self.session_mode:
            block = blocks.ProcessBlock(self, ident, request, code)
            self.running[ident] = block
            block.start()
            return
        kind = blocks.ProcessBlock if request["command"] else blocks.CellBlock
        self.queue.append(kind(self, ident, request, code))
        self._next_cell()

    def _next_cell(self):
        if self.cell is not None or not self.queue:
            return
        self.cell = block = self.queue.popleft()
        self.cell_count += 1
        self.running[block.ident] = block
        state = self.cell_state if block.session else self.shell_state
        block.request.update(state, number=self.cell_count)
        if block.session:
            # What shells changed is handed over once; from then on it is the interpreter's own.
            self.cell_state = {"cwd": None, "environment": {}, "unset": []}
            block.start()
        else:
            if block.request["cwd"] is None:
                block.request["cwd"] = self.config["workspace"]
            block.start(keep_state=bool(block.request.get("keep_state")))

    def finished(self, block):
        """Forget a block that has ended."""
        self.running.pop(block.ident, None)
        if block is self.cell:
            self.cell = None
            self._next_cell()

    def _cancel(self, ident):
        block = self.running.get(ident)
        if block is not None:
            block.kill("cancel")
            return
        for waiting in list(self.queue):
            if waiting.ident == ident:
                self.queue.remove(waiting)
                waiting.killed = "cancel"
                waiting.finish()

    def take_worker(self):
        """A worker for one block: the one forked ahead, or a new one."""
        worker, self.spare = self.spare, None
        if worker is None or worker.status is not None:
            worker = self.workers.start()
        if not self.session_mode:
            self.spare = self.workers.start()
        return worker

    # The session

    def new_session(self):
        """Start an empty session.

        Returns:
            Its worker.
        """
        self.session_worker = self.workers.start()
        return self.session_worker

    def kill_session(self, spare=None):
        """Kill the live interpreter and all that the session started, except its checkpoints."""
        keep = {item.pid for item in (spare, self.session_checkpoint) if item is not None and item.pid}
        live = self.session_worker

        def roots(parent_of):
            strays = self.workers.strays(parent_of, keep)
            return strays + ([live.pid] if live is not None and live.pid else [])

        system.kill_trees(roots, spare=keep)
        self.workers.collect()

    def wake(self, checkpoint):
        """Let a checkpoint go on as the session."""
        worker = self.workers.next_worker()
        self.workers.adopt(worker, checkpoint.pid, checkpoint.sock)
        worker.peer.send(wire.pack(b"G", 0, {}))
        self.session_worker = worker
        # The woken interpreter knows only what it was told before it was put to sleep.
        self.cell_state = dict(self.shell_state)

    def cell_ended(self, report):
        """Learn in which directory and environment a cell ended, for the shells to come."""
        if "environment" in report:
            self._merge(self.shell_state, report["cwd"], report["environment"], report["unset"])

    def shell_ended(self, data):
        """Learn in which directory and environment a shell ended, for the cells and shells to come."""
        cwd, separator, rest = data.partition(b"\0")
        if not separator:
            return
        pairs = dict(item.split(b"=", 1) for item in rest.split(b"\0") if b"=" in item)
        new = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs.items()}
        new = {name: value for name, value in new.items() if name not in ("_", "SHLVL", "PWD", "OLDPWD")}
        before = dict(os.environ)
        before.update(self.shell_state["environment"])
        changed = {name: value for name, value in new.items() if before.get(name) != value}
        gone = [name for name in before if name not in new and name not in ("_", "SHLVL", "PWD", "OLDPWD")]
        for state in (self.shell_state, self.cell_state):
            self._merge(state, os.fsdecode(cwd.rstrip(b"\n")), changed, gone)

    @staticmethod
    def _merge(state, cwd, environment, unset):
        state["cwd"] = cwd or state["cwd"]
        state["environment"] = {
            name: value for name, value in dict(state["environment"], **environment).items() if name not in unset
        }
        state["unset"] = [name for name in {*state["unset"], *unset} if name not in environment]

    def _answer_error(self, ident, text):
        self.send_message(b"A", ident, {"error": text, "errno": 0})

    def _explicit_checkpoint(self, ident):
        worker = self.session_worker
        if worker is None or worker.status is not None or self.cell is not None:
            self._answer_error(ident, "there is no session" if self.cell is None else "a block is running")
            return
        ours, theirs = socket.socketpair()
        checkpoint = blocks.Checkpoint(ours)
        worker.on_frame = lambda kind, got, message: self._checkpoint_taken(kind, got, message, ident, checkpoint)
        worker.on_exit = lambda: self._answer_error(ident, "the session ended while its checkpoint was taken")
        worker.peer.send(wire.pack(b"P", ident, {"fds": 1}), [theirs.fileno()])
        theirs.close()

    def _checkpoint_taken(self, kind, got, message, ident, checkpoint):
        if kind != b"C" or got != ident:
            return
        self.session_worker.on_exit = None
        checkpoint.taken(message)
        if checkpoint.skipped:
            checkpoint.drop()
            self._answer_error(ident, "no checkpoint was taken: " + checkpoint.skipped)
            return
        if self.session_checkpoint is not None:
            self.session_checkpoint.drop()
        self.session_checkpoint = checkpoint
        self.checkpoint_state = dict(self.shell_state)
        self.send_message(b"A", ident, {"pid": checkpoint.pid})

    def _rollback(self, ident):
        checkpoint = self.session_checkpoint
        if checkpoint is None or not checkpoint.alive() or self.cell is not None:
            text = "a block is running" if self.cell is not None else "there is no checkpoint: call checkpoint() first"
            self._answer_error(ident, text)
            return
        self.session_worker.on_exit = None
        self.kill_session()
        self.session_checkpoint = None
        self.shell_state = dict(self.checkpoint_state)
        self.wake(checkpoint)
        # The checkpoint is live now; sleep a copy of it so that one can roll back to it again.
        self._explicit_checkpoint(ident)

    # Pipes, timers, children

    def watch(self, capture):
        """Read a block's pipe as it fills."""
        self.selector.register(capture.fd, selectors.EVENT_READ, lambda _: self._pump(capture))

    def _pump(self, capture):
        count = capture.pump()
        if count == 0:
            self.selector.unregister(capture.fd)
            capture.at_end = True
            if capture.done:
                self._kept_pipes.remove(capture)
                os.close(capture.fd)
        elif count is not None and count < output.READ_SIZE:
            # Let lines gather in the pipe, instead of being woken for each.
            self.selector.unregister(capture.fd)
            capture.pause = self.after(GATHER_S, lambda: self._resume(capture))

    def _resume(self, capture):
        capture.pause = None
        self.watch(capture)

    def unwatch(self, capture, keep):
        """Stop reading a block's pipe: for good, or (`keep`) only drain it from now on."""
        if keep and not capture.at_end:
            self._kept_pipes.append(capture)
            if len(self._kept_pipes) > MAX_KEPT_PIPES:
                self._close(self._kept_pipes.popleft())
        else:
            self._close(capture)

    def _close(self, capture):
        if capture.pause is not None:
            self.forget(capture.pause)
        elif not capture.at_end:
            self.selector.unregister(capture.fd)
        os.close(capture.fd)

    def after(self, seconds, call):
        """Call something later.

        Returns:
            What `forget` takes to call it off.
        """
        timer = [time.monotonic() + seconds, next(self._timer_order), call]
        heapq.heappush(self._timers, timer)
        return timer

    def forget(self, timer):
        """Call a timer off; it must not hold on to its block until the time has come."""
        timer[2] = None
        if self._timers and self._timers[0] is timer:
            heapq.heappop(self._timers)
        elif len(self._timers) > MAX_TIMERS:
            self._timers = [item for item in self._timers if item[2] is not None]
            heapq.heapify(self._timers)

    def _patience(self):
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _fire_timers(self):
        while self._timers and self._timers[0][0] <= time.monotonic():
            call = heapq.heappop(self._timers)[2]
            if call is not None:
                call()

    def _child_died(self, wakeup):
        os.read(wakeup, 4096)
        self.workers.collect()


def describe(config):
    """What the host wants to know of this place."""
    return {
        "protocol": PROTOCOL,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "uid": os.getuid(),
        "workspace_writable": os.access(config["workspace"], os.W_OK),
        "oom_visible": system.count_oom_kills() is not None,
    }


def main(read_frame, path):
    """Start from the boot code.

    Args:
        read_frame: Reads one frame from the host, blocking.
        path: `sys.path` as a fresh interpreter has it; the supervisor itself uses a part of it only.
    """
    system.prctl(system.PR_SET_DUMPABLE, 0)
    kind, _, payload = read_frame()
    config, _ = wire.unpack(payload)
    if kind != b"C":
        raise wire.ProtocolError("the first frame must be the configuration")
    output.READ_SIZE = config.get("read_size", output.READ_SIZE)
    os.umask(0o022)
    config["path"] = [entry for entry in path if entry]
    system.set_limits(config.get("rlimits", {}))
    if system.count_oom_kills() is None:
        system.set_limits(config.get("rlimit_without_cgroup", {}))
    prepare_home()
    os.chdir(config["workspace"])
    Supervisor(config).run()


def prepare_home():
    """Give the session a home like a new user's: what the image keeps in /etc/skel."""
    home, skeleton = os.environ.get("HOME"), "/etc/skel"
    if not home or os.path.exists(home) or not os.path.isdir(skeleton):
        if home:
            os.makedirs(home, exist_ok=True)
        return
    shutil.copytree(skeleton, home, symlinks=True)
