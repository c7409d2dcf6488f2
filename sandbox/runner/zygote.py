"""A warm interpreter that has run no user code: imports what was asked for, then forks a worker on each request."""

import gc
import importlib
import os
import select
import signal
import site
import sys
import time
import warnings

from . import stdio, system, tools, wire, worker

_signal = importlib.import_module("_signal")  # not the module signal, which looks up the names of what it is given
REHEARSALS = 12  # Python 3.11 rewrites a function for what it sees at its eighth call
WORKER_NICENESS = 5  # the supervisor must get the processor when the block would take all of it


def run(sock, config):
    """Serve until the supervisor goes away; never returns.

    Args:
        sock: Socket to the supervisor.
        config: The sandbox's configuration.
    """
    system.prctl(system.PR_SET_DUMPABLE, 0)
    # Also for what tools import: see `_warm_up`.
    sys.path[:] = [entry for entry in config["path"] if not _is_open_to_code(entry)]
    broken_tools = tools.install(config["tools"]["sources"]) if config.get("tools") else {}
    if config.get("mode") == "session":
        stdio.thread_pool()  # here, where all share the memory that it takes
    problems = _warm_up(config)
    # What every worker would make for itself is made here, and shared.
    ready = worker.Worker(config)
    if ready.script is not None:
        for _ in range(REHEARSALS):
            ready.script.rehearse()
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_read, False)
    os.set_blocking(wakeup_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    system.reaped()
    gc.collect()
    gc.freeze()
    gc.enable()
    sock.sendall(wire.pack(wire.ZYGOTE_READY, 0, {"preload": problems, "tools": broken_tools}))
    try:
        Zygote(sock, ready, null, (wakeup_read, wakeup_write)).serve()
    except (wire.Closed, OSError):
        os._exit(0)


def _warm_up(config):
    """Make the interpreter what `python3` would be and import modules; returns what went wrong, by module.

    Code may have run before: in an earlier sandbox with the same mounted folder, or in this one if it has killed another zygote.
    So nothing is imported from folders that code may have written to, imported modules don't see variables that may contain such
    a folder (`places`), and only the workers use the user's site-packages.
    """
    site.ENABLE_USER_SITE = False
    site.main()
    _take_python_variables()
    importlib.import_module("threading")
    path = config["path"]
    whole = path + [entry for entry in sys.path if entry not in path]
    given = {name: os.environ[name] for name in config["places"]}
    _set_variables(config["places"])
    os.chdir("/")
    problems = {}
    for name in config.get("preload", ()):
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does on import must not end the zygote
            problems[name] = "%s: %s" % (type(error).__name__, error)
    os.chdir(config["workspace"])
    _set_variables(given)
    time.tzset()
    sys.path[:] = whole
    return problems


def _take_python_variables():
    """Do what the isolated interpreter has left out: the variables of Python that take effect when it runs already."""
    site.ENABLE_USER_SITE = not os.environ.get("PYTHONNOUSERSITE")
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if os.environ.get("PYTHONWARNINGS"):
        sys.warnoptions[:] = os.environ["PYTHONWARNINGS"].split(",")
        warnings._processoptions(sys.warnoptions)


def _set_variables(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _is_open_to_code(entry):
    """Whether the user that code runs as may write to a folder, or put another one in its place."""
    entry = os.path.realpath(entry)
    if entry.startswith((os.path.realpath(sys.base_prefix) + "/", os.path.realpath(sys.base_exec_prefix) + "/")):
        return False
    while not _can_be_changed(entry):
        if entry == "/":
            return False
        entry = os.path.dirname(entry)
    return True


def _can_be_changed(folder):
    try:
        # The owner of a folder can make it writable again.
        own = os.stat(folder).st_uid == os.geteuid()
        return (own or os.access(folder, os.W_OK)) and not os.statvfs(folder).f_flag & os.ST_RDONLY
    except OSError:
        return False  # it does not exist; its parent decides who can create it


def _learn(sources):
    """Define host tools that have come since the start; as at the start, nothing is imported from where code may write."""
    whole = sys.path[:]
    sys.path[:] = [entry for entry in whole if not _is_open_to_code(entry)]
    tools.add(sources)
    sys.path[:] = whole
    gc.collect()
    gc.freeze()


class Zygote:
    """The loop of the zygote. Each page that it writes to between two forks is copied, so it does little in few places.

    Args:
        sock: Socket to the supervisor.
        ready: A `worker.Worker` that has yet to be given its socket.
        null: Where standard error of workers goes before they have a block.
        wakeup: Both ends of the pipe that is written to when a child has died.
    """

    def __init__(self, sock, ready, null, wakeup):
        self.sock = sock
        self.ready = ready
        self.null = null
        self.wakeup = wakeup
        self.reader = wire.BlockingReader(sock)

    def serve(self):
        """Fork and reap as asked; ends with an exception when the supervisor goes away."""
        waiting = select.poll()
        waiting.register(self.sock.fileno(), select.POLLIN)
        waiting.register(self.wakeup[0], select.POLLIN)
        while True:
            readable = [fd for fd, _ in waiting.poll()]
            if self.wakeup[0] in readable:
                os.read(self.wakeup[0], 4096)
                self._tell_of_the_dead()
            # One read may have brought more than one frame.
            heard = self.sock.fileno() in readable
            while heard or self.reader.frames:
                heard = False
                kind, ident, payload = self.reader.read()
                if kind == wire.ADD_TOOLS:
                    _learn(wire.unpack(payload)[0]["sources"])
                else:
                    self._fork_worker(
                        ident, self.reader.take_fds(1)[0], os.fsdecode(payload) or None, kind == wire.FORK_INSTALLER
                    )
                if self.reader.frames:
                    self._tell_of_the_dead()  # who wait count against what there may be

    def _tell_of_the_dead(self):
        for pid, status in system.reaped():
            self._say(wire.WORKER_EXITED, 0, b'{"pid":%d,"status":%d}' % (pid, status))

    def _say(self, kind, ident, text):
        self.sock.sendall(wire.pack(kind, ident, None, wire.PREFIX.pack(len(text)) + text))

    def _fork_worker(self, ident, fd, home, installs):
        try:
            pid = os.fork()
        except OSError as error:
            os.close(fd)
            self.sock.sendall(wire.pack(wire.WORKER_FORKED, ident, {"error": str(error)}))
            return
        if pid:
            self._say(wire.WORKER_FORKED, ident, b'{"pid":%d}' % pid)
            os.close(fd)
            return
        try:
            self._become_worker(fd, home, installs)
        except BaseException as error:  # a worker must never fall back into the zygote's loop
            os.write(2, ("the worker ended with %r" % error).encode())
        finally:
            os._exit(70)

    def _become_worker(self, fd, home, installs):
        _signal.set_wakeup_fd(-1)
        _signal.signal(signal.SIGCHLD, _signal.SIG_DFL)
        # A block that held the other end of the pipe could fill it and so stop the zygote.
        wire.close_all((self.sock.detach(), *self.wakeup))
        # The container's own standard error is nothing that user code may flood.
        os.dup2(self.null, 2)
        os.close(self.null)
        os.setsid()
        os.nice(WORKER_NICENESS)
        self.ready.serve(fd, home, installs)
