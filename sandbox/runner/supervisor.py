"""PID 1 of the sandbox: holds the stream to the host and gives it to nobody, runs blocks, enforces their deadlines."""

import collections
import gc
import heapq
import itertools
import os
import selectors
import signal
import stat
import sys
import time

from . import (
    blocks,
    cells,
    files,
    homes,
    ipc,
    landlock,
    output,
    packages,
    proxy,
    replays,
    session,
    system,
    wire,
    workers,
)

PROTOCOL = 1
MAX_KEPT_PIPES = 64
MAX_TIMERS = 1024
GATHER_S = 0.002
FEW_BYTES = 4096
FORK_LATER_S = 0.02
SOON_S = 0.003
ENDING_LOOK_S = 0.1
MAX_PATIENCE = 3600.0  # poll takes no longer times than some weeks
STATE_FD = 9
MOST_LEFT_OPEN = 1024
LEASE_OVER = 75
PUT_ASIDE = "CODEACT_"  # prefix of the image's variables of Python, which the interpreter must not see


class Supervisor:
    """The event loop of the sandbox.

    Args:
        config: What the host configured.
    """

    def __init__(self, config):
        self.config = config
        # Not epoll: the kernel bounds its entries for each user, and code of the same user could use them up.
        self.selector = selectors.PollSelector()
        self.parser = wire.Parser()
        self.outbox = wire.Outbox(1)
        self.files = files.Files(config["workspace"])
        self._timers = []
        self._timer_order = itertools.count()
        self.homes = homes.Homes(self.after, config["homes"], config["closed"] is not None)
        self.workers = workers.Workers(self.selector, config, self._zygote_ready, self.fatal, self.homes)
        self.session = session.Session(self) if config["mode"] == "session" else None
        self.proxy = proxy.Proxy(self, config["proxy"]) if config.get("proxy") else None
        self.running = {}
        self.held_relays = set()
        self.cell = None
        self._most_running = config["concurrency"] if self.session is None else 1
        self._queue = collections.deque()
        self._starting = False
        self._count = 0
        self._spare = None
        self._kept_pipes = collections.deque()
        self._ready = False
        self._first_shm = set()
        self._writing = False
        self._ended = 0.0
        self._heard = time.monotonic()

    def run(self):
        """Serve until the host goes away; never returns."""
        if self.proxy is not None:
            self.proxy.tell()
            self.proxy.listen()
        # What is there by now stays: a collection that looked at it would copy its memory into every process.
        gc.freeze()
        # The zygote is forked before anything is open that user code must not inherit.
        self.workers.start_zygote()
        gc.enable()
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakeup_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # PID 1 gets no signal from inside that it has no handler for, and Python has one for this.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self.selector.register(0, selectors.EVENT_READ, self._host_ready)
        self.selector.register(wakeup, selectors.EVENT_READ, lambda _: self._child_died(wakeup))
        self._heard = time.monotonic()
        if self.config.get("lease_s"):
            self._check_lease()
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
        while self.held_relays and not writing:
            self.held_relays.pop().resume()
            writing = not self.outbox.flush()
        if writing != self._writing:
            self._writing = writing
            if writing:
                self.selector.register(1, selectors.EVENT_WRITE, lambda _: None)
            else:
                self.selector.unregister(1)
        if self.proxy is not None and not writing:
            self.proxy.resume()

    def _host_ready(self, _events):
        try:
            data = os.read(0, wire.READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # the host is gone; the end of PID 1 is the end of every process here
        self._heard = time.monotonic()
        try:
            for kind, ident, payload in self.parser.feed(data):
                self._host_says(kind, ident, payload)
            if self.parser.error is not None:
                raise self.parser.error
        except wire.ProtocolError as error:
            self.fatal(str(error))

    def _check_lease(self):
        """End with a host that has gone without the stream's end being heard of, as happens on a network."""
        left = self._heard + self.config["lease_s"] - time.monotonic()
        if left <= 0:
            os._exit(LEASE_OVER)
        self.after(left, self._check_lease)

    def fatal(self, text):
        """Tell the host why, and end."""
        os.set_blocking(1, True)
        self.send_message(wire.FATAL_ERROR, 0, {"error": text})
        self.outbox.flush()
        os._exit(70)

    def _host_says(self, kind, ident, payload):
        if kind == wire.TOOL_ANSWER:
            self._answer_call(ident, payload)
            return
        message, data = wire.unpack(payload)
        if kind == wire.RUN_BLOCK:
            self._execute(ident, message, data)
        elif kind == wire.KILL_BLOCK:
            self._cancel(ident)
        elif kind == wire.FILE_REQUEST and message.get("op") in replays.OPS:
            self.send_message(wire.ANSWER, ident, replays.handle(self.files, message))
        elif kind == wire.FILE_REQUEST:
            answer, content = self.files.handle(ident, message, data)
            self.send_message(wire.ANSWER, ident, answer, content)
        elif kind == wire.TAKE_CHECKPOINT:
            self._of_session(ident).take_checkpoint(ident)
        elif kind == wire.ROLL_BACK:
            self._of_session(ident).rollback(ident)
        elif kind == wire.CHANNEL and self.proxy is not None:
            self.proxy.hear(ident, message, data)
        elif kind == wire.KEEP_ALIVE:
            pass  # that it came is all that it says
        else:
            raise wire.ProtocolError("unknown frame type %r" % kind)

    def _answer_call(self, ident, payload):
        """Pass on the answer of a host tool, unread; none goes to a block that has ended."""
        block = self.running.get(ident)
        if block is not None and block.relay is not None:
            block.relay.answer(payload)

    def _of_session(self, ident):
        if self.session is None:
            raise wire.ProtocolError("request %d is for a session" % ident)
        return self.session

    def _zygote_ready(self, message):
        if not self._ready:
            self._ready = True
            if self.config.get("own_shm"):
                self._first_shm = set(os.listdir(ipc.POSIX_MEMORY))  # files of preloaded modules
            self.send_message(wire.HELLO, 0, dict(describe(self.config), **message))
            if self.session is not None:
                self.session.start()
        self._fork_ahead()

    # Blocks

    def _execute(self, ident, request, code):
        known = ("command", "path", "keep_state", "scan", "hide", "delete", "tools", "tool_sources", "cpu_seconds")
        for name in known:
            request.setdefault(name, None)
        self._count += 1
        request.update(number=self._count, cwd=self.config["workspace"], environment={}, unset=[], state_fd=STATE_FD)
        request.update(mode=self.config["mode"], installs=False)
        if self.session is None:
            self.workers.teach(request["tool_sources"])
            packages.prepare(request, code, self.config)
        script = self.session is None or request["command"]
        kind = blocks.ProcessBlock if script else cells.CellBlock
        self._queue.append(kind(self, ident, request, code))
        self.start_next()

    def start_next(self):
        """Start what waits, as far as there is room; a block can end while it is started."""
        if self._starting:
            return
        self._starting = True
        try:
            while self._queue and self.cell is None and self._has_room() and self._may_join(self._queue[0]):
                block = self._queue.popleft()
                self.running[block.ident] = block
                if len(self.running) > 1:
                    for each in self.running.values():
                        each.alone = False
                if self.session is not None:
                    self.cell = block
                block.start()
        finally:
            self._starting = False
        if self._queue and not self.running and self.workers.ending:
            # The zygote tells of their end, unless code has stopped it.
            self.workers.let_zygote_run()
            self.after(ENDING_LOOK_S, self.start_next)

    def _has_room(self):
        # The process of a block that has ended lives for a moment more: no later block is to see it, and those at the same
        # time may, but it counts against what there may be.
        ending = len(self.workers.ending)
        return len(self.running) < self._most_running and ending <= (self._most_running if self.running else 0)

    def _may_join(self, block):
        """Whether a block may run at the same time as the others; without Landlock it could call host tools in their name."""
        return bool(self.config["landlock"] or not self.running) or not any(
            each.request["tools"] for each in (block, *self.running.values())
        )

    def _open_folders(self):
        """A block may have closed these to its own user; the next one could not even be saved there."""
        for folder in (self.config["workspace"], "/tmp", packages.FOLDER, ipc.POSIX_MEMORY, ipc.POSIX_QUEUES):
            try:
                mode = stat.S_IMODE(os.stat(folder).st_mode)
                if mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(folder, mode | stat.S_IRWXU)
            except OSError:
                pass  # it is somebody else's

    def finished(self, item):
        """Forget a block, or a checkpoint on its way, that has ended."""
        self.running.pop(item.ident, None)
        if item is self.cell:
            self.cell = None
        self._ended = time.monotonic()
        self._flush()
        self._open_folders()
        if self.session is None and not self.running:
            # The kernel does not say which block a semaphore is from; so it goes when none runs that could use it.
            ipc.remove_all()
            if self.config.get("own_shm"):
                ipc.remove_files(self._first_shm)
        self.start_next()
        if not self.running:
            self._fork_ahead()

    def _cancel(self, ident):
        block = self.running.get(ident)
        if block is not None:
            block.kill("cancel")
            return
        for waiting in list(self._queue):
            if waiting.ident == ident:
                self._queue.remove(waiting)
                waiting.killed = "cancel"
                waiting.finish()

    def take_worker(self, request):
        """A worker for one block: the one forked ahead, or a new one."""
        if request["installs"]:
            return self.workers.start(wire.FORK_INSTALLER)
        worker, self._spare = self._spare, None
        if worker is not None and self.homes.lacks(worker.home):
            # The block before had used up the room for it, and has ended; the domain of this worker has no rule for another home.
            self.workers.discard(worker)
            worker = None
        if worker is None or worker.status is not None:
            worker = self.workers.start()
        worker.let_run()
        if worker.pid is not None:
            system.free_processors((worker.pid,))
        # At once where one block follows the other. Else this one is not to share the processor with a fork.
        soon = time.monotonic() - self._ended < SOON_S
        self.after(0 if soon else FORK_LATER_S, self._fork_ahead)
        return worker

    def _fork_ahead(self):
        if self.session is None and (self._spare is None or self._spare.status is not None):
            self._spare = self.workers.start()

    # Pipes, timers, children

    def watch(self, capture):
        """Read a block's pipe as it fills, from in a moment on.

        Lines gather in it, instead of waking this process for each; the first too: a short block has ended by then.
        """
        capture.pause = self.after(GATHER_S, lambda: self._resume(capture))

    def _resume(self, capture):
        capture.pause = None
        self.selector.register(capture.fd, selectors.EVENT_READ, lambda _: self._pump(capture))

    def _pump(self, capture):
        count = capture.pump()
        if count == 0:
            self.selector.unregister(capture.fd)
            capture.at_end = True
            if capture.done:
                self._kept_pipes.remove(capture)
                os.close(capture.fd)
        elif count is not None and count < FEW_BYTES:
            # Who writes much at once is not to wait.
            self.selector.unregister(capture.fd)
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
        return min(max(0.0, self._timers[0][0] - time.monotonic()), MAX_PATIENCE)

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
        "landlock": config["landlock"],
    }


def main(read_frame, path):
    """Start from the boot code.

    Args:
        read_frame: Reads one frame from the host, blocking.
        path: `sys.path` as a fresh interpreter has it; the supervisor itself uses a part of it only.
    """
    system.prctl(system.PR_SET_DUMPABLE, 0)
    os.closerange(3, MOST_LEFT_OPEN)  # what starting the sandbox needed
    kind, _, payload = read_frame()
    config, _ = wire.unpack(payload)
    if kind != wire.CONFIGURATION:
        raise wire.ProtocolError("the first frame must be the configuration")
    output.READ_SIZE = config.get("read_size", output.READ_SIZE)
    os.umask(0o022)
    config["places"] = take_environment(config.pop("environment"))
    config["path"] = python_path(config["workspace"]) + [entry for entry in path if entry]
    system.take_spare_descriptors()
    if system.count_oom_kills() is None:
        system.set_limits(config.get("rlimit_without_cgroup", {}))
    config["landlock"] = landlock.version()
    packages.prepare_folder(config)
    config["homes"] = homes.prepare(config["mode"], config["closed"])
    os.chdir(config["workspace"])
    Supervisor(config).run()


def take_environment(given):
    """Set the code's variables for all forked processes; this process and its C library no longer read them.

    Args:
        given: The user's variables.

    Returns:
        The previous values, or None, of the variables that may contain a folder: see `zygote`.
    """
    for name in [name for name in os.environ if name.startswith(PUT_ASIDE + "PYTHON")]:
        os.environ[name[len(PUT_ASIDE) :]] = os.environ.pop(name)
    places = {name: os.environ.get(name) for name, value in given.items() if "/" in value}
    os.environ.update(given)
    return places


def python_path(workspace):
    """The folders of PYTHONPATH, which the isolated interpreter has ignored."""
    return [os.path.join(workspace, entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
