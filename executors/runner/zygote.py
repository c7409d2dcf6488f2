"""A warm interpreter that has run no user code: imports what was asked for, then forks a worker on each request."""

import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import sys

from . import stdio, system, tools, wire, worker

WORKER_NICENESS = 5  # the supervisor must get the processor when the block would take all of it


def run(sock, config, first):
    """Serve until the supervisor goes away; never returns.

    Args:
        sock: Socket to the supervisor.
        config: The sandbox's configuration.
        first: Whether no user code has run yet.
    """
    system.prctl(system.PR_SET_DUMPABLE, 0)
    # Also for what tools import: see `_warm_up`.
    sys.path[:] = [entry for entry in config["path"] if not _is_open_to_code(entry)]
    broken_tools = tools.install(config["tools"]["sources"]) if config.get("tools") else {}
    if config.get("mode") == "session":
        stdio.thread_pool()  # here, where all share the memory that it takes
    problems = _warm_up(config["path"], config.get("preload", ()), first)
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_read, False)
    os.set_blocking(wakeup_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    system.reaped()
    gc.collect()
    gc.freeze()
    sock.sendall(wire.pack(b"H", 0, {"preload": problems, "tools": broken_tools}))
    try:
        _serve(sock, config, (wakeup_read, wakeup_write))
    except (wire.Closed, OSError):
        os._exit(0)


def _warm_up(path, preload, first):
    """Make the interpreter what `python3` would be and import modules; returns what went wrong, by module.

    Another zygote starts when code has killed the one before. So nothing is imported from where that code may have put it,
    and the user's own site-packages are left to the workers.
    """
    site.ENABLE_USER_SITE = False
    site.main()
    site.ENABLE_USER_SITE = site.check_enableusersite()
    importlib.import_module("threading")
    whole = path + [entry for entry in sys.path if entry not in path]
    if first:
        sys.path[:] = whole
    problems = {}
    for name in preload:
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does on import must not end the zygote
            problems[name] = "%s: %s" % (type(error).__name__, error)
    sys.path[:] = whole
    return problems


def _is_open_to_code(entry):
    """Whether the user that code runs as may write to a folder, or put another one in its place."""
    entry = os.path.realpath(entry)
    if entry.startswith((os.path.realpath(sys.base_prefix) + "/", os.path.realpath(sys.base_exec_prefix) + "/")):
        return False
    while not os.access(entry, os.W_OK):
        if entry == "/":
            return False
        entry = os.path.dirname(entry)
    return True


def _serve(sock, config, wakeup):
    reader = wire.BlockingReader(sock)
    while True:
        readable, _, _ = select.select([sock, wakeup[0]], [], [])
        if wakeup[0] in readable:
            os.read(wakeup[0], 4096)
            for pid, status in system.reaped():
                sock.sendall(wire.pack(b"X", 0, {"pid": pid, "status": status}))
        # One read may have brought more than one frame.
        heard = sock in readable
        while heard or reader.frames:
            heard = False
            kind, ident, payload = reader.read()
            if kind == b"T":
                _learn(wire.unpack(payload)[0]["sources"])
            else:
                _fork_worker(sock, ident, reader.take_fds(1)[0], config, wakeup)


def _learn(sources):
    """Define host tools that have come since the start; as at the start, nothing is imported from where code may write."""
    whole = sys.path[:]
    sys.path[:] = [entry for entry in whole if not _is_open_to_code(entry)]
    tools.add(sources)
    sys.path[:] = whole
    gc.collect()
    gc.freeze()


def _fork_worker(sock, ident, fd, config, wakeup):
    # The worker waits until the supervisor has been told of it: its block may kill this process.
    told, telling = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        _close(fd, told, telling)
        sock.sendall(wire.pack(b"S", ident, {"error": str(error)}))
        return
    if pid:
        sock.sendall(wire.pack(b"S", ident, {"pid": pid}))
        _close(fd, told, telling)
        return
    try:
        os.close(telling)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sock.close()
        # A block that held the other end of the pipe could fill it and so stop the zygote.
        _close(*wakeup)
        _silence()
        os.setsid()
        os.nice(WORKER_NICENESS)
        os.read(told, 1)
        os.close(told)
        worker.run(socket.socket(fileno=fd), config)
    except BaseException as error:  # a worker must never fall back into the zygote's loop
        os.write(2, json.dumps({"worker": repr(error)}).encode())
    finally:
        os._exit(70)


def _close(*fds):
    for fd in fds:
        os.close(fd)


def _silence():
    """Close the way to the container's own standard error, which user code could flood."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
