"""A warm interpreter that has run no user code: imports the requested modules, then forks a worker for each request."""

import gc
import importlib
import os
import re
import select
import signal
import site
import sys
import time
import warnings

from ..shared import packages, system, wire
from ..worker import imports, stdio, tools, worker

_signal = importlib.import_module("_signal")  # faster than the module signal, which converts values to enums
WARM_UP_RUNS = 12  # Python 3.11 specializes a function at its eighth call
WORKER_NICENESS = 5  # the supervisor goes first if the block would use all processor time


def run(sock, config):
    """Serve until the supervisor closes the connection; never returns."""
    system.prctl(system.PR_SET_DUMPABLE, 0)
    # Also for what tools import: see `_prepare_interpreter`.
    sys.path[:] = [entry for entry in config["sys_path"] if not _is_writable_by_code(entry)]
    broken_tools = tools.install(config["tools"]["sources"]) if config.get("tools") else {}
    if config.get("mode") == "session":
        stdio.thread_pool()  # here, so that all workers share its memory
    problems = _prepare_interpreter(config)
    # Made here, because all workers share its memory.
    ready = worker.Worker(config)
    if ready.script is not None:
        for _ in range(WARM_UP_RUNS):
            ready.script.warm_up()
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
    gc.unfreeze()  # the supervisor's objects are this process's, too
    gc.freeze()
    gc.enable()
    report = {"preload": problems, "tools": broken_tools, "commands": packages.commands(config["find_commands"])}
    report["packages"] = packages.versions(config["find_packages"], sys.path)
    sock.sendall(wire.pack(wire.ZYGOTE_READY, 0, report))
    try:
        Zygote(sock, ready, null, (wakeup_read, wakeup_write)).serve()
    except (wire.Closed, OSError):
        os._exit(0)


def _prepare_interpreter(config):
    """Complete the isolated interpreter, and import modules; return the errors, by module.

    Code may have run before: in an earlier sandbox with the same mounted folder, or in this one if it has killed another zygote.
    So nothing is imported from folders that code may have written to, imported modules don't see variables that may contain such
    a folder (`path_variables`), and only the workers use the user's site-packages.
    """
    site.ENABLE_USER_SITE = False
    site.main()
    _apply_python_variables()
    sys.flags = PlainFlags()
    importlib.import_module("threading")
    path = config["sys_path"]
    complete = path + [entry for entry in sys.path if entry not in path]
    variables = {name: os.environ[name] for name in config["path_variables"]}
    _set_variables(config["path_variables"])
    os.chdir("/")
    imports.install(config)
    problems = {}
    for name in config.get("preload", ()):
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does on import must not end the zygote
            problems[name] = "%s: %s" % (type(error).__name__, error)
    os.chdir(config["workspace"])
    _set_variables(variables)
    time.tzset()
    sys.path[:] = complete
    return problems


def _apply_python_variables():
    """Apply the variables of Python that the isolated interpreter has ignored and that can be applied later."""
    site.ENABLE_USER_SITE = not os.environ.get("PYTHONNOUSERSITE")
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if os.environ.get("PYTHONWARNINGS"):
        sys.warnoptions[:] = os.environ["PYTHONWARNINGS"].split(",")
        warnings._processoptions(sys.warnoptions)


class PlainFlags(tuple):  # type: ignore[type-arg]
    """`sys.flags` without the isolation of this interpreter, which multiprocessing would give to the processes it starts."""

    _NAMES = re.findall(r"(\w+)=", repr(sys.flags))

    def __new__(cls):
        plain = {"isolated": 0, "ignore_environment": 0, "no_site": 0, "safe_path": False}
        plain["no_user_site"] = int(not site.ENABLE_USER_SITE)
        plain["dont_write_bytecode"] = int(sys.dont_write_bytecode)
        found = super().__new__(cls, (plain.get(name, getattr(sys.flags, name)) for name in cls._NAMES))
        vars(found).update(zip(cls._NAMES, found))
        return found

    def __repr__(self):
        return "sys.flags(%s)" % ", ".join("%s=%r" % pair for pair in zip(self._NAMES, self))


def _set_variables(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _is_writable_by_code(entry):
    """Return whether code's user may write to a folder, or replace it."""
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


def _add_tools(sources):
    """Define host tools that were added after the start; as at the start, import nothing from where code may write."""
    complete = sys.path[:]
    sys.path[:] = [entry for entry in complete if not _is_writable_by_code(entry)]
    tools.add(sources)
    sys.path[:] = complete
    gc.collect()
    gc.freeze()


class Zygote:
    """The loop of the zygote. Each page that it writes to between two forks is copied, so it does as little as possible."""

    def __init__(self, sock, ready, null, wakeup):
        self.sock = sock
        self.ready = ready
        self.null = null
        self.wakeup = wakeup
        self.reader = wire.BlockingReader(sock)

    def serve(self):
        """Fork workers and report their end; raises an exception when the supervisor closes the connection."""
        waiting = select.poll()
        waiting.register(self.sock.fileno(), select.POLLIN)
        waiting.register(self.wakeup[0], select.POLLIN)
        while True:
            readable = [fd for fd, _ in waiting.poll()]
            if self.wakeup[0] in readable:
                os.read(self.wakeup[0], 4096)
                self._report_exits()
            # One read may have brought more than one frame.
            requested = self.sock.fileno() in readable
            while requested or self.reader.frames:
                requested = False
                kind, ident, payload = self.reader.read()
                if kind == wire.ADD_TOOLS:
                    _add_tools(wire.unpack(payload)[0]["sources"])
                else:
                    self._fork_worker(ident, self.reader.take_fds(1))
                if self.reader.frames:
                    self._report_exits()  # zombies count against the limit of processes

    def _report_exits(self):
        for pid, status, (seconds, peak) in system.reaped():
            text = b'{"pid":%d,"status":%d,"usage":[%.3f,%d]}' % (pid, status, seconds, peak)
            self._report(wire.WORKER_EXITED, 0, text)

    def _report(self, kind, ident, text):
        self.sock.sendall(wire.pack(kind, ident, None, wire.PREFIX.pack(len(text)) + text))

    def _fork_worker(self, ident, fds):
        try:
            pid = os.fork()
        except OSError as error:
            wire.close_all(fds)
            self.sock.sendall(wire.pack(wire.WORKER_FORKED, ident, {"error": str(error)}))
            return
        if pid:
            self._report(wire.WORKER_FORKED, ident, b'{"pid":%d}' % pid)
            wire.close_all(fds)
            return
        try:
            self._become_worker(*fds)
        except BaseException as error:  # a worker must never return to the zygote's loop
            os.write(2, ("the worker ended with %r" % error).encode())
        finally:
            os._exit(70)

    def _become_worker(self, fd):
        _signal.set_wakeup_fd(-1)
        _signal.signal(signal.SIGCHLD, _signal.SIG_DFL)
        # A block that had the other end of the pipe could fill it, and block the zygote.
        wire.close_all((self.sock.detach(), *self.wakeup))
        # User code must not write to the container's standard error.
        os.dup2(self.null, 2)
        os.close(self.null)
        os.setsid()
        os.nice(WORKER_NICENESS)
        self.ready.serve(fd)
