"""A process that runs blocks: one and exits (process mode), or one after the other in a live namespace (session mode)."""

import _socket
import errno
import fcntl
import os
import resource
import signal
import site
import sys
from select import POLLIN, poll

from ..shared import system, wire
from . import (
    checkpoint_fork,
    displays,
    execution,
    file_service,
    helpers,
    imports,
    interpreter,
    shell_state,
    stdio,
    tools,
)

BLOCK_OOM_SCORE = 1000
RESERVED_FDS = 8
MAX_CONNECTS = 5
CONNECTION_LOST = 70
# References of its own: programs replace the class of the module socket, for example to block the network.
Socket = _socket.socket
_get_limit, _set_limit = resource.getrlimit, resource.setrlimit
DISPLAY_ANSWER_MS = 1000


class Worker:
    """The worker of this process; created in the zygote, and used in a process forked from it."""

    def __init__(self, config):
        self.config = config
        self.session = None
        self.script = None if config["mode"] == "session" else interpreter.ScriptInterpreter()
        self.protected = True
        self.deferred_checkpoint = None
        self.forker = checkpoint_fork.CheckpointForker(config.get("memory_bytes"), self._drop_protection)
        self.reserve = DescriptorReserve()
        self.user_site = site.getusersitepackages() if config["packages"] and config["user_site"] else None
        self.user_site_changed = None

    def serve(self, fd):
        """Serve requests until the supervisor closes the connection; never returns."""
        self.pid = os.getpid()
        self._use_socket(Socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd))
        if self.script is not None:
            system.become_subreaper()
            if not self._wait(0):  # else the block would wait for this
                self.script.warm_up()
        while True:
            self._wait()
            try:
                kind, ident, payload = self.reader.read()
            except (wire.Closed, OSError):
                os._exit(0)
            if self.protected:
                self._drop_protection()
            request, data = wire.unpack(payload)
            fds = self.reader.take_fds(request["fds"])
            if kind == wire.TAKE_CHECKPOINT and request["ahead"]:
                self._take_checkpoint_ahead(ident, fds[0])
            elif kind == wire.TAKE_CHECKPOINT:
                self._take_checkpoint(ident, fds[0])
            elif request.get("command"):
                self._run_command(ident, request, data, fds)
            elif request["mode"] == "session":
                self._run_cell(ident, request, data, fds)
            else:
                self._run_script(ident, request, data, fds)

    # Blocks

    def _run_script(self, ident, request, code, fds):
        self._open_streams(request, fds)
        interpreter.enter_environment(request)
        self._add_user_site()
        path = request["path"]
        self._save_code(ident, path, code)
        displays.begin(lambda *display: self._send_display(ident, *display), self.config["workspace"])
        outcome = self.script.run(code, path, request["tool_sources"])
        forked = os.getpid() != self.pid
        execution.end_interpreter(self.script.namespace)
        if not forked:  # only the worker itself reports
            displays.end()
            self._report(ident, outcome)
        os._exit(outcome.exit_code)

    def _run_cell(self, ident, request, code, fds):
        if self.session is None:
            self.session = interpreter.SessionInterpreter()
            self.forker.checkpoints.hide()
        self.session.namespace.update(tools.add(request["tool_sources"] or ()))
        self.forker.checkpoints.reap()
        deferred, self.deferred_checkpoint = self.deferred_checkpoint, None
        if deferred is not None and self._take_checkpoint(*deferred, unneeded=fds) == 0:
            return
        self._open_streams(request, fds)
        self.session.begin(request)
        self._add_user_site()
        self.reserve.hold()
        displays.begin(lambda *display: self._send_display(ident, *display), self.config["workspace"])
        outcome = self.session.run(code, request, lambda: self._send(wire.CODE_NOT_SAVED, ident, {}))
        if request["end"]:
            self.session.end_interpreter()
        tools.close_client()
        self.session.restore_builtins()
        self._exit_if_forked(outcome)
        displays.end()
        self._report(ident, outcome, self.session.end())
        self.session.restore_modules()
        self._reconnect()

    def _run_command(self, ident, request, data, fds):
        """Become the command of a shell block, of another language, or of a job."""
        if self.script is None:
            system.become_subreaper()
        stdio.redirect(*fds[:2])
        command, path = request["command"], request["path"]
        if request.get("is_job"):
            self._enter_job(ident, request, fds[2:])
        else:
            interpreter.enter_environment(request)
            if path is None or not self._save_code(ident, path, data):
                path = execution.in_memory(data)
            if len(fds) > 2:
                self._move_fd(fds[2], shell_state.STATE_FD)
                command = shell_state.command_for(command, data)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if request.get("is_job") and command == [file_service.COMMAND]:
            status, problem = file_service.serve(open(0, "rb"), open(1, "wb"))
            os.write(2, problem)
            os._exit(status)
        try:
            os.execvp(command[0], [path if part == "{file}" else part for part in command])
        except OSError as error:
            self._end_without_command(ident, command[0], error)

    def _enter_job(self, ident, request, stdin):
        """Take the input, the directory and the variables of a job; unlike that of a block, its directory must exist."""
        for fd in stdin:
            os.dup2(fd, 0)
            os.close(fd)
        interpreter.set_variables(request)
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            message = {"type": errno.errorcode.get(error.errno, "EIO"), "message": error.strerror, "line": None}
            self._report(ident, execution.Outcome(1, error=message))
            os._exit(1)

    def _open_streams(self, request, fds):
        stdio.redirect(*fds[:2])
        if request["tools"]:
            tools.open_client(fds[2], self.config)

    def _add_user_site(self):
        """Make importable what this block and earlier ones install with pip."""
        folder = self.user_site
        if folder is None:
            return
        try:
            if not os.path.isdir(folder):
                os.makedirs(folder)  # what is missing now is not found when it is there
            found = os.stat(folder).st_mtime_ns
            if folder in sys.path and found == self.user_site_changed:
                return
            self.user_site_changed = found
            site.addsitedir(folder)
        except Exception:
            pass  # there is no such folder, or an earlier block has changed the modules site or sys

    def _save_code(self, ident, path, code):
        """Write a block's code to its file; report and return False if there is no space for it."""
        try:
            saved = execution.save_code(path, code)
        except OSError as error:
            self._report(ident, interpreter.cannot_save(path, error))
            os._exit(1)
        if not saved:
            execution.show_lines(path, code)
            self._send(wire.CODE_NOT_SAVED, ident, {})
        return saved

    def _move_fd(self, fd, number):
        """Give a descriptor a number that a shell can redirect to; the socket may have it already."""
        fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number + 1)
        if self.sock.fileno() == number:
            self.sock = Socket(fileno=fcntl.fcntl(self.sock.detach(), fcntl.F_DUPFD_CLOEXEC, number + 1))
        os.dup2(fd, number, inheritable=True)

    # The end of a block

    def _end_without_command(self, ident, command, error):
        # Here, because it imports compressors, whose libraries each fork would have to map.
        shutil = imports.own_import("shutil")

        refused = isinstance(error, PermissionError) and os.path.exists(command)  # such as a file that is not a program
        missing = not refused and shutil.which(command) is None
        text = "%s: %s" % (command, "not found" if missing else error.strerror)
        os.write(2, (text + "\n").encode("utf-8", "replace"))
        kind = "InterpreterNotFound" if missing else type(error).__name__
        code = 127 if missing else 126
        self._report(ident, execution.Outcome(code, error={"type": kind, "message": text, "line": None}))
        os._exit(code)

    def _exit_if_forked(self, outcome):
        """Exit in a child that the block has forked and that came back here: only the worker itself reports."""
        if os.getpid() != self.pid:
            stdio.flush()
            os._exit(outcome.exit_code)

    def _report(self, ident, outcome, session_fields=None):
        message = outcome.message()
        try:
            self._send(wire.BLOCK_DONE, ident, dict(message, **(session_fields or {})))
        except wire.ProtocolError:
            # Only the environment can be so large.
            self._send(wire.BLOCK_DONE, ident, dict(message, too_large=True))

    # Checkpoints

    def _take_checkpoint_ahead(self, ident, fd):
        """Take the next block's checkpoint now; or with the block, if something of the session can run before that."""
        self.forker.checkpoints.reap()
        if self.session is None or not checkpoint_fork.is_idle():
            self.deferred_checkpoint = (ident, fd)
            return
        # The block has ended, so its output must end, too.
        stdio.detach()
        if self._take_checkpoint(ident, fd) and not self._wait(0):
            self.session.warm_up()
        # The previous one has had time to end.
        self.forker.checkpoints.reap()

    def _take_checkpoint(self, ident, fd, unneeded=()):
        """Take a checkpoint and report it; return its process, None if there is none, 0 in the woken checkpoint."""
        report = {"skipped": self.forker.why_too_large()}
        if not report["skipped"]:
            try:
                report = {"pid": self.forker.fork(fd, (self.sock.fileno(), *unneeded))}
            except OSError as error:
                report = {"skipped": str(error)}
        if report.get("pid") == 0:
            self._continue_as_session(fd)
            return 0
        os.close(fd)
        self._send(wire.CHECKPOINT_TAKEN, ident, report)
        return report.get("pid")

    def _continue_as_session(self, fd):
        """In a checkpoint that was woken, continue instead of the dead session."""
        self.sock.detach()
        self._use_socket(Socket(fileno=fd))
        self.reader.read()
        self.pid = os.getpid()
        if self.deferred_checkpoint is not None:
            os.close(self.deferred_checkpoint[1])
            self.deferred_checkpoint = None
        # There is no session yet if the checkpoint was taken before the first block.
        cancelled = self.session.cells.loop.discard() if self.session is not None else []
        helpers.forget_helpers()
        self._send(wire.RESUMED, 0, {"cancelled": cancelled})

    def _drop_protection(self):
        """Be an ordinary process from the first request on; until then the previous block could have interfered."""
        self.protected = False
        system.prctl(system.PR_SET_DUMPABLE, 1)
        system.adjust_oom_score(BLOCK_OOM_SCORE)

    # The connection to the supervisor

    def _use_socket(self, sock):
        sock.setblocking(True)  # user code may have set another default
        self.sock = sock
        self.reader = wire.BlockingReader(sock)

    def _reconnect(self):
        """Connect again after the supervisor has closed the connection, because processes of the block share the old one."""
        try:
            # If the block has sent part of a frame, the supervisor must not wait for the rest.
            self.sock.shutdown(_socket.SHUT_WR)
        except OSError:
            pass  # the supervisor has closed it already
        self._wait_for_close()
        self.reserve.release()
        self.sock.close()
        for _ in range(MAX_CONNECTS):
            try:
                sock = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
                sock.setblocking(True)
                sock.connect("\0" + self.config["listener"])
                fd = wire.move_above_stdio(sock.detach())
            except BaseException:
                continue  # also an exception of a signal handler
            self._use_socket(Socket(fileno=fd))
            return
        os._exit(CONNECTION_LOST)

    def _wait_for_close(self):
        # gVisor does not wake a process that waits for POLLHUP alone.
        while self._wait():
            try:
                if not self.sock.recv(wire.READ_SIZE):
                    return
            except OSError:
                return  # reset
            except BaseException:
                continue  # an exception of a signal handler

    def _wait(self, milliseconds=None):
        """Wait for a request, and return whether it has come; drop exceptions of signal handlers."""
        waiting = poll()
        waiting.register(self.sock.fileno(), POLLIN)
        while not self.reader.frames:
            try:
                return bool(waiting.poll(milliseconds))
            except BaseException:
                continue
        return True

    def _send_display(self, ident, message, data):
        """Send a display, and wait until the supervisor has found its position: what is written later comes after it."""
        answered = poll()
        answered.register(self.sock.fileno(), POLLIN)
        while answered.poll(0):
            self.reader.read()  # the answer to a display that the code has interrupted
        self.sock.sendall(wire.pack(wire.DISPLAY, ident, message, data, wire.MAX_REPORT))
        if not message.get("clear") and answered.poll(DISPLAY_ANSWER_MS):
            self.reader.read()
        self.reader.frames.clear()

    def _send(self, kind, ident, message):
        frame = wire.pack(kind, ident, message, limit=wire.MAX_REPORT)
        wire.check_report(frame[wire.HEADER.size :])
        try:
            self.sock.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            if self.session is None or kind != wire.BLOCK_DONE:
                os._exit(CONNECTION_LOST)
            # The block has sent a result itself, so the supervisor has closed the connection and waits for a new one.
        except OSError:
            os._exit(CONNECTION_LOST)  # the block has closed the socket


class DescriptorReserve:
    """Descriptors reserved while a block runs, by a lower limit: the next block can start if this one uses up all others."""

    def __init__(self):
        self._limit = None

    def hold(self):
        """Set the block's limit, or a lower one that an earlier block has set."""
        _, hard = _get_limit(resource.RLIMIT_NOFILE)
        if hard > 2 * RESERVED_FDS:
            _set_limit(resource.RLIMIT_NOFILE, (min(self._limit or hard, hard - RESERVED_FDS), hard))

    def release(self):
        self._limit, hard = _get_limit(resource.RLIMIT_NOFILE)
        _set_limit(resource.RLIMIT_NOFILE, (hard, hard))
