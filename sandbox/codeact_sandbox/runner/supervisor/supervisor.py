"""PID 1 of the sandbox: holds the stream to the host, dispatches the host's requests, and starts everything else."""

import gc
import os
import selectors
import signal
import sys
import time

from ..shared import folders, packages, system, wire
from . import (
    channels,
    event_loop,
    files,
    job,
    output_capture,
    process_block,
    proxy,
    scheduler,
    session,
    session_block,
    worker_processes,
)

PROTOCOL = 1
MAX_INHERITED_FDS = 1024
LEASE_EXPIRED = 75
INTERNAL_ERROR = 70
# Prefix of the image's variables of Python, which this interpreter must not see.
HIDDEN_PREFIX = "CODEACT_"
REQUEST_FIELDS = (
    "command",
    "path",
    "keep_state",
    "scan",
    "hide",
    "delete",
    "tools",
    "tool_sources",
    "cpu_seconds",
    "end",
)


class Supervisor:
    """The stream to the host, and the parts of the runner that answer it."""

    def __init__(self, config):
        self.config = config
        self.loop = event_loop.EventLoop()
        self.parser = wire.Parser()
        self.outbox = wire.Outbox(1)
        self.files = files.Files(config["workspace"])
        self.output_reader = output_capture.OutputReader(self.loop)
        self.workers = worker_processes.WorkerProcesses(self.loop.selector, config, self._on_zygote_ready, self.fatal)
        self.jobs = job.Jobs(self)
        self.scheduler = scheduler.Scheduler(self)
        self.session = session.Session(self) if config["mode"] == "session" else None
        self.proxy = proxy.Proxy(self, config["proxy"]) if config.get("proxy") else None
        self.ports = channels.Ports(self)
        # Channels that wait until nothing else waits for the stream to the host.
        self.stalled = []
        # Relays that wait until the stream to the host has room.
        self.paused_relays = set()
        self._block_count = 0
        self._ready = False
        self._writing = False
        self._last_received = time.monotonic()

    def run(self):
        """Serve until the host closes the stream; never returns."""
        if self.proxy is not None:
            self.proxy.set_environment()
            self.proxy.listen()
        # Nothing may write to what exists by now: that would copy its memory into every process.
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
        # The kernel delivers to PID 1 only signals that it handles, and Python handles this one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self.loop.selector.register(0, selectors.EVENT_READ, self._on_host_data)
        self.loop.selector.register(wakeup, selectors.EVENT_READ, lambda _: self._on_child_exit(wakeup))
        self._last_received = time.monotonic()
        if self.config.get("lease_s"):
            self._check_lease()
        while True:
            self.loop.run_once()
            self.flush()

    # Requests of the host

    def _on_host_data(self, _events):
        try:
            data = os.read(0, wire.READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # the host has closed the stream; the end of PID 1 ends every process here
        self._last_received = time.monotonic()
        try:
            for kind, ident, payload in self.parser.feed(data):
                self._dispatch(kind, ident, payload)
            if self.parser.error is not None:
                raise self.parser.error
        except wire.ProtocolError as error:
            self.fatal(str(error))

    def _dispatch(self, kind, ident, payload):
        if kind == wire.TOOL_ANSWER:
            self._answer_call(ident, payload)
            return
        message, data = wire.unpack(payload)
        if kind == wire.RUN_BLOCK:
            self._run_block(ident, message, data)
        elif kind == wire.KILL_BLOCK:
            self.scheduler.cancel(ident)
        elif kind == wire.JOB:
            self.jobs.handle(ident, message, data)
        elif kind == wire.FILE_REQUEST:
            answer, content = self.files.handle(ident, message, data)
            self.send(wire.ANSWER, ident, answer, content)
        elif kind == wire.TAKE_CHECKPOINT:
            self._session_for(ident).take_checkpoint(ident, message.get("name"), message.get("drop"))
        elif kind == wire.ROLL_BACK:
            self._session_for(ident).roll_back(ident, message.get("name"))
        elif kind == wire.CHANNEL and self._channels_of(ident) is not None:
            self._channels_of(ident).on_message(ident, message, data)
        elif kind != wire.KEEP_ALIVE:
            raise wire.ProtocolError("unknown frame type %r" % kind)

    def _run_block(self, ident, request, code):
        for name in REQUEST_FIELDS:
            request.setdefault(name, None)
        self._block_count += 1
        request.update(number=self._block_count, cwd=self.config["workspace"], environment={}, unset=[])
        request.update(mode=self.config["mode"])
        if self.session is None:
            self.workers.add_tools(request["tool_sources"])
        in_interpreter = self.session is not None and not request["command"]
        kind = session_block.SessionBlock if in_interpreter else process_block.ProcessBlock
        self.scheduler.submit(kind(self, ident, request, code))

    def _answer_call(self, ident, payload):
        block = self.scheduler.running.get(ident)
        if block is not None and block.relay is not None:
            block.relay.answer(payload)

    def _channels_of(self, ident):
        return self.ports if ident >= channels.FIRST_OF_HOST else self.proxy

    def _session_for(self, ident):
        if self.session is None:
            raise wire.ProtocolError("request %d is for a session" % ident)
        return self.session

    def _check_lease(self):
        """Exit when the host has sent nothing for too long: a network can fail without ending the stream."""
        left = self._last_received + self.config["lease_s"] - time.monotonic()
        if left <= 0:
            os._exit(LEASE_EXPIRED)
        self.loop.call_later(left, self._check_lease)

    # Frames to the host

    def send(self, kind, ident, message, data=b""):
        """Send a message to the host, with bytes after it; or only bytes."""
        self.outbox.put(wire.pack(kind, ident, message, data))

    def flush(self):
        """Write what the stream has room for, and then let those go on that wait for room."""
        writing = not self.outbox.flush()
        while self.paused_relays and not writing:
            self.paused_relays.pop().forward()
            writing = not self.outbox.flush()
        if writing != self._writing:
            self._writing = writing
            if writing:
                self.loop.selector.register(1, selectors.EVENT_WRITE, lambda _: None)
            else:
                self.loop.selector.unregister(1)
        if not writing:
            if self.jobs.stalled:
                self.jobs.resume()
            stalled, self.stalled = self.stalled, []
            # poll(2) reports them in this order, so all have the same share.
            for channel in sorted(stalled, key=lambda each: each.last_read):
                channel.resume()

    def fatal(self, text):
        os.set_blocking(1, True)
        self.send(wire.FATAL_ERROR, 0, {"error": text})
        self.outbox.flush()
        os._exit(INTERNAL_ERROR)

    # Processes

    def _on_zygote_ready(self, message):
        if not self._ready:
            self._ready = True
            self.send(wire.HELLO, 0, dict(describe(self.config), **message))
            if self.session is not None:
                self.session.start()
            self.scheduler.fork_next_worker()
        else:
            self.scheduler.fork_next_worker()

    def _on_child_exit(self, wakeup):
        os.read(wakeup, 4096)
        self.workers.collect()


def describe(config):
    return {
        "protocol": PROTOCOL,
        "python": ".".join(map(str, sys.version_info[:3])),
        "uid": os.getuid(),
        "workspace_writable": os.access(config["workspace"], os.W_OK),
        "oom_visible": system.count_oom_kills() is not None,
        "memory": config.get("memory_bytes"),
    }


def main(configuration, path):
    system.prctl(system.PR_SET_DUMPABLE, 0)
    os.closerange(3, MAX_INHERITED_FDS)  # left open by the program that has started the sandbox
    kind, _, payload = configuration
    config, _ = wire.unpack(payload)
    if kind != wire.CONFIGURATION:
        raise wire.ProtocolError("the frame after the modules must be the configuration")
    os.umask(0o022)
    config["path_variables"] = set_environment(config.pop("environment"))
    # The folders of PYTHONPATH, which the isolated interpreter has ignored.
    own = [
        os.path.join(config["workspace"], entry)
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry
    ]
    config["sys_path"] = own + [entry for entry in path if entry]
    system.raise_descriptor_limit()
    if system.count_oom_kills() is None:
        system.set_limits(config.get("rlimit_without_cgroup", {}))
    config["memory_bytes"] = min(filter(None, (config.get("memory_bytes"), system.memory_limit())), default=None)
    if not system.become_subreaper():
        config["concurrency"] = 1  # an orphan could belong to any of several blocks
    packages.prepare_folder(config)
    if config.get("no_index"):
        packages.refuse(config["no_index"])
    folders.make_home()
    os.chdir(config["workspace"])
    Supervisor(config).run()


def set_environment(variables):
    """Set the code's variables for all forked processes; this interpreter and its C library have read theirs already."""
    for name in [name for name in os.environ if name.startswith(HIDDEN_PREFIX + "PYTHON")]:
        os.environ[name[len(HIDDEN_PREFIX) :]] = os.environ.pop(name)
    previous = {name: os.environ.get(name) for name, value in variables.items() if "/" in value}
    os.environ.update(variables)
    return previous
