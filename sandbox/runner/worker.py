"""A process that runs blocks: one and exits (process mode), or one after the other in a live namespace (session mode)."""

import _socket
import atexit
import builtins
import fcntl
import os
import signal
import site
import sys
import threading
from select import POLLHUP, POLLIN, poll

from . import checkpoint, landlock, python, source, stdio, system, tools, wire

BLOCK_OOM_SCORE = 1000
RESERVED = 8
MOST_CONNECTS = 5
REHEARSED = "<rehearsal>"
REHEARSAL = b"x = str(1)\nx and None"
# Not the class of the module socket: programs change that, for example to have no network.
Socket = _socket.socket
# A process whose block has not come by then has the time to make itself ready.
IDLE_MS = 2


class Worker:
    """One live interpreter; made in the zygote, and put to work in a process forked from it.

    Args:
        config: The sandbox's configuration.
    """

    def __init__(self, config):
        self.config = config
        self.session = None
        self.script = None if config["mode"] == "session" else Script()
        self.fresh = True
        self.deferred = None
        self.taker = checkpoint.Taker(config.get("memory_bytes"), self._open_up)
        self.reserve = Reserve()
        self.domains = landlock.Domains(config["mode"], config["closed"])
        self.user_site = site.getusersitepackages() if config["packages"] and config["user_site"] else None

    def _listen_to(self, sock):
        sock.setblocking(True)  # user code may have set another default
        self.sock = sock
        self.reader = wire.BlockingReader(sock)

    def _connect_anew(self):
        """Reconnect when the supervisor has closed the connection, because processes of the block share the old one."""
        try:
            # If the block has sent part of a frame, the supervisor must not wait for the rest.
            self.sock.shutdown(_socket.SHUT_WR)
        except OSError:
            pass  # the supervisor has closed it already
        self._wait(None, POLLHUP)
        self.reserve.release()
        self.sock.close()
        for _ in range(MOST_CONNECTS):
            try:
                sock = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
                sock.setblocking(True)
                sock.connect("\0" + self.config["listener"])
                fd = wire.keep_clear(sock.detach())
            except BaseException:
                continue  # also of a signal's handler
            self._listen_to(Socket(fileno=fd))
            return
        os._exit(70)

    def serve(self, fd, home, installs):
        """Take requests until there are no more; does not return.

        Args:
            fd: Socket to the supervisor.
            home: Path of the block's home where it can change that one only, or None.
            installs: Whether the block may change the folder of packages.
        """
        self.pid = os.getpid()
        self._listen_to(Socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd))
        if self.script is not None:
            self.domains.enter(home, all_folders=installs)
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            if not self._wait(IDLE_MS):
                self.script.rehearse()
        while True:
            self._wait()
            self.reserve.release()
            try:
                kind, ident, payload = self.reader.read()
            except (wire.Closed, OSError):
                os._exit(0)
            if self.fresh:
                self.fresh = False
                self._open_up()
            request, data = wire.unpack(payload)
            fds = self.reader.take_fds(request["fds"])
            if kind == wire.TAKE_CHECKPOINT and request["ahead"]:
                self._checkpoint_ahead(ident, fds[0])
            elif kind == wire.TAKE_CHECKPOINT:
                self._checkpoint(ident, fds[0])
            elif request.get("command"):
                self._become_command(ident, request, data, fds)
            elif request["mode"] == "session":
                self._run_cell(ident, request, data, fds)
            else:
                self._run_script(ident, request, data, fds)

    def _wait(self, milliseconds=None, event=POLLIN):
        """Wait for a request or another event; signal handlers of the last block may run here, and their exceptions are dropped.

        Returns:
            Whether there is one.
        """
        waiting = poll()
        waiting.register(self.sock.fileno(), event)
        while not self.reader.frames:
            try:
                return bool(waiting.poll(milliseconds))
            except BaseException:
                continue
        return True

    def _open_up(self):
        """Be an ordinary process, from the first request on; until then the block before could reach in here."""
        system.prctl(system.PR_SET_DUMPABLE, 1)
        system.adjust_oom_score(BLOCK_OOM_SCORE)

    def _run_script(self, ident, request, code, fds):
        stdio.point_at(*fds[:2])
        if request["tools"]:
            tools.open_client(fds[2], self.config)
        self._enter(request)
        self._see_packages()
        path = request["path"]
        self._save(ident, path, code)
        outcome = self.script.run(code, path, request["tool_sources"])
        self._leave_if_forked(outcome)
        self._end_process(ident, outcome)

    def _see_packages(self):
        """Find what a block before this one has installed with pip."""
        folder = self.user_site
        try:
            if not folder or folder in sys.path or not os.path.isdir(folder):
                return
            if self.config["trusted"]:
                site.addsitedir(folder)
            else:
                sys.path.append(folder)  # lines of its .pth files would run here and now
        except Exception:
            pass  # a block has changed the modules site or sys: later ones must run all the same

    def _save(self, ident, path, code):
        """Write a block's code to its file; False, and said, where there is no room for it."""
        try:
            saved = source.save(path, code)
        except OSError as error:
            self._report(ident, _no_file(path, error))
            os._exit(1)
        if not saved:
            source.show_lines(path, code)
            self._send(wire.CODE_NOT_SAVED, ident, {})
        return saved

    def _end_process(self, ident, outcome):
        """End as an interpreter does, without tearing down memory that the kernel frees faster."""
        try:
            threading._shutdown()
            atexit._run_exitfuncs()
            stdio.flush()
        except BaseException as error:  # what exit handlers raise is printed by them; the exit code stays
            sys.__stderr__.write("%s in an exit handler\n" % type(error).__name__)
        self._report(ident, outcome)
        os._exit(outcome.exit_code)

    def _run_cell(self, ident, request, code, fds):
        if self.session is None:
            self.domains.forget()
            self.session = Session()
            self.taker.taken.hide()
        self.session.repair_modules()
        self.session.namespace.update(tools.add(request["tool_sources"] or ()))
        self.taker.taken.reap()
        deferred, self.deferred = self.deferred, None
        if deferred is not None and self._checkpoint(*deferred, fds) == 0:
            return
        stdio.point_at(*fds[:2])
        if request["tools"]:
            tools.open_client(fds[2], self.config)
        self.session.begin(request)
        self._see_packages()
        self.reserve.hold()
        outcome = self.session.run(code, request, lambda: self._send(wire.CODE_NOT_SAVED, ident, {}))
        tools.close_client()
        self.session.repair_builtins()
        self._leave_if_forked(outcome)
        self._report(ident, outcome, self.session.end())
        self._connect_anew()

    def _leave_if_forked(self, outcome):
        """End a child that the block forked and that came back here: only the worker itself may speak to the supervisor."""
        if os.getpid() != self.pid:
            stdio.flush()
            os._exit(outcome.exit_code)

    def _become_command(self, ident, request, data, fds):
        if self.script is None:
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            self.domains.enter()
        stdio.point_at(*fds[:2])
        self._enter(request)
        command, path = request["command"], request["path"]
        if path is None or not self._save(ident, path, data):
            path = source.in_memory(data)
        if len(fds) > 2:
            self._place(fds[2], request["state_fd"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], [path if part == "{file}" else part for part in command])
        except OSError as error:
            self._end_without_interpreter(ident, command[0], error)

    def _end_without_interpreter(self, ident, command, error):
        import shutil  # here, because it brings compressors along, whose libraries each fork would have to map

        missing = shutil.which(command) is None
        text = "%s: %s" % (command, "not found" if missing else error.strerror)
        os.write(2, (text + "\n").encode("utf-8", "replace"))
        kind = "InterpreterNotFound" if missing else type(error).__name__
        code = 127 if missing else 126
        self._report(ident, python.Outcome(code, error={"type": kind, "message": text, "line": None}))
        os._exit(code)

    def _place(self, fd, number):
        """Give a descriptor a number that a shell can redirect to, which may be taken by the socket."""
        fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number + 1)
        if self.sock.fileno() == number:
            self.sock = Socket(fileno=fcntl.fcntl(self.sock.detach(), fcntl.F_DUPFD_CLOEXEC, number + 1))
        os.dup2(fd, number, inheritable=True)

    def _enter(self, request):
        _go_to(request["cwd"])
        _set_variables(request)

    def _checkpoint_ahead(self, ident, fd):
        """Take the checkpoint of the next block before it comes; or with it, if something of the session can run before."""
        self.taker.taken.reap()
        if self.session is None or not checkpoint.all_is_quiet():
            self.deferred = (ident, fd)
            return
        # The block has ended, so nobody is to wait for the rest of its output.
        stdio.let_go()
        # Once there is a checkpoint, this would make the kernel copy much.
        self.session.repair_modules()
        if self._checkpoint(ident, fd) and not self._wait(0):
            self.session.rehearse()
        # The one before has had time to end.
        self.taker.taken.reap()

    def _checkpoint(self, ident, fd, others=()):
        """Take a checkpoint and say so.

        Args:
            ident: Number of the request.
            fd: The checkpoint's socket; this process keeps none of it.
            others: Descriptors that came with the request, which the checkpoint does not need.

        Returns:
            Its number, or None where none was taken; 0 in the checkpoint, once it has been woken to go on instead.
        """
        own = self.sock.fileno()
        said = {"skipped": self.taker.too_large()}
        if not said["skipped"]:
            try:
                said = {"pid": self.taker.take(fd, (own, *others))}
            except OSError as error:
                said = {"skipped": str(error)}
        if said.get("pid") == 0:
            self.sock.detach()
            self._listen_to(Socket(fileno=fd))
            self.reader.read()
            self.pid = os.getpid()
            if self.deferred is not None:
                os.close(self.deferred[1])
                self.deferred = None
            self._send(wire.RESUMED, 0, {})
            return 0
        os.close(fd)
        self._send(wire.CHECKPOINT_TAKEN, ident, said)
        return said.get("pid")

    def _report(self, ident, outcome, more=None):
        message = {"exit_code": outcome.exit_code, "value": outcome.value, "error": outcome.error}
        try:
            self._send(wire.BLOCK_DONE, ident, dict(message, **(more or {})))
        except wire.ProtocolError:
            # Only the environment can be so large.
            self._send(wire.BLOCK_DONE, ident, dict(message, too_large=True))

    def _send(self, kind, ident, message):
        frame = wire.pack(kind, ident, message, limit=wire.MAX_REPORT)
        wire.check_report(frame[wire.HEADER.size :])
        try:
            self.sock.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            if self.session is None or kind != wire.BLOCK_DONE:
                os._exit(70)
            # The block has sent a result itself, so the supervisor has closed the connection and waits for a new one.
        except OSError:
            os._exit(70)  # the block has closed the socket: nobody can be told any more


class Reserve:
    """Descriptors set aside while a block runs, so that one that uses up all of them does not keep the next from starting."""

    def __init__(self):
        self._held = {}

    def hold(self):
        """Set them aside."""
        try:
            for _ in range(RESERVED):
                fd = os.open(os.devnull, os.O_RDONLY)
                self._held[fd] = os.fstat(fd).st_rdev
        except OSError:
            pass  # what there is has to do

    def release(self):
        """Give them back, except those that the block has closed and whose numbers it may have used again."""
        for fd, device in self._held.items():
            try:
                if os.fstat(fd).st_rdev == device:
                    os.close(fd)
            except OSError:
                continue
        self._held.clear()


class Script:
    """What a script in a process of its own needs, made before there is one."""

    def __init__(self):
        stdio.open_streams()
        self.namespace = python.new_main()

    def rehearse(self):
        """Run what the next block is sure to run, into the void.

        Where this is done in the zygote, the interpreter learns its own code; where in a process that waits for its block, the
        memory that it will write to is copied before the block has come.
        """
        outcome = python.run_script(b"print(0)", "", {"__builtins__": builtins})
        stdio.flush()
        message = {"exit_code": outcome.exit_code, "value": outcome.value, "error": outcome.error}
        wire.unpack(wire.pack(wire.BLOCK_DONE, 0, message)[wire.HEADER.size :])

    def run(self, code, path, tool_sources):
        """Run it.

        Args:
            code: The text, as bytes.
            path: Its file.
            tool_sources: Those of host tools that have come since the start, or None.

        Returns:
            The `python.Outcome`.
        """
        sys.argv = [path]
        # Not before: from the workspace, the process that this one is forked from must import nothing.
        sys.path.insert(0, os.path.dirname(path))
        if tool_sources:
            tools.add(tool_sources)
        self.namespace.update(tools.public(), __file__=path)
        return python.run_script(code, path, self.namespace)


class Session:
    """The live namespace of a session."""

    def __init__(self):
        self.namespace = python.new_main()
        self.namespace.update(tools.public())
        self.streams = stdio.SessionStreams()
        self.streams.patch_threads()
        self.builtins = dict(vars(builtins))
        self.modules = dict(sys.modules)
        self.told = None
        self.repaired = True
        sys.argv = [""]
        sys.path.insert(0, "")

    def begin(self, request):
        """Set the stage for a block: its number, its directory and environment, fresh standard streams."""
        self.streams.begin(request["number"])
        if request["cwd"] is not None:
            _go_to(request["cwd"])
        _set_variables(request)
        self.told = (_cwd(), _environment())

    def run(self, code, request, on_unsaved):
        """Run the block; `on_unsaved` is called when there was no room for its file."""
        self.repaired = False
        try:
            if request["path"] and not source.save(request["path"], code):
                on_unsaved()
        except OSError as error:
            return _no_file(request["path"], error)
        return python.run_cell(code, request["path"] or "<block %d>" % request["number"], self.namespace)

    def rehearse(self):
        """Write to the memory that any block writes to: what a checkpoint shares is copied then, and not in the block."""
        python.run_cell(REHEARSAL, REHEARSED, {"__builtins__": builtins})
        source.forget_lines(REHEARSED)
        wire.unpack(wire.pack(wire.RUN_BLOCK, 0, {"": [None, 0]})[wire.HEADER.size :])

    def repair_builtins(self):
        """Put back what everything needs, also the report; what the block has added stays."""
        vars(builtins).update(self.builtins)

    def repair_modules(self):
        """Put back modules that a block has removed."""
        if self.repaired:
            return
        self.repaired = True
        for name, module in self.modules.items():
            if sys.modules.get(name) is None:
                sys.modules[name] = module

    def end(self):
        """What the supervisor must know for the blocks to come."""
        stdio.flush()
        more = {"late": self.streams.end()}
        now = (_cwd(), _environment())
        if now != self.told:
            before, after = _decoded(self.told[1]), _decoded(now[1])
            more["cwd"] = now[0]
            more["environment"] = {name: value for name, value in after.items() if before.get(name) != value}
            more["unset"] = [name for name in before if name not in after]
        return more


def _go_to(folder):
    try:
        os.chdir(folder)
    except OSError as error:  # it may have been removed since
        os.write(2, ("%s: %s; this block runs in %s\n" % (folder, error.strerror, _cwd())).encode("utf-8", "replace"))


def _set_variables(request):
    for name, value in request["environment"].items():
        os.environ[name] = value
    for name in request["unset"]:
        os.environ.pop(name, None)


def _environment():
    """A copy of the environment, as bytes where that is how Python holds it: decoding it takes longer than a short block."""
    return dict(getattr(os.environ, "_data", os.environ))


def _decoded(environment):
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}


def _cwd():
    try:
        return os.getcwd()
    except OSError:
        return None


def _no_file(path, error):
    message = "the code could not be saved as %s: %s" % (path, error.strerror)
    os.write(2, (message + "\n").encode("utf-8", "replace"))
    return python.Outcome(1, error={"type": type(error).__name__, "message": message, "line": None})
