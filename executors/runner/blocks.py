"""One block from its request to its result: captures, deadline, kill, verdict."""

import os
import signal
import socket
import time

from . import output, system, wire

KILL_GRACE = 2.0
LAST_WORDS_S = 0.01
STATE_LIMIT = 1024 * 1024
NO_MEMORY = "the kernel killed it because the sandbox's memory limit was reached"


class Block:
    """A block that is being run.

    Args:
        supervisor: The `Supervisor`.
        ident: Number of the host's request.
        request: The host's message.
        code: The code, as bytes.
    """

    session = False

    def __init__(self, supervisor, ident, request, code):
        self.supervisor = supervisor
        self.ident = ident
        self.request = request
        self.code = code
        self.report = None
        self.killed = None
        self.finished = False
        self.worker = None
        self.captures = []
        self.keep_pipes = False
        self.overdue = False
        self.timer = None
        self.began = time.monotonic()
        self.state = "kept"
        self.notes = []
        self.oom_kills = system.count_oom_kills()

    def open(self, fds=()):
        """Open the pipes, hand the request to the worker and start the clock."""
        limit = self.supervisor.config["output_limit"]
        kinds = (b"O", b"E") if self.supervisor.config["split_streams"] else (b"O",)
        self.captures = [output.Capture(kind, limit, self._emit) for kind in kinds]
        ends = [self.captures[0].write_fd, self.captures[-1].write_fd, *fds]
        message = dict(self.request, fds=len(ends))
        self.worker.on_frame = self.hear
        self.worker.on_exit = self.worker_exited
        self.began = time.monotonic()
        self.worker.peer.send(wire.pack(b"X", self.ident, message, self.code), ends)
        for capture in self.captures:
            capture.close_write_end()
            self.supervisor.watch(capture)
        self.timer = self.supervisor.after(self.request["timeout"], self._out_of_time)
        if self.worker.status is not None:
            self.worker_exited()

    def _emit(self, kind, data):
        self.supervisor.send(kind, self.ident, data)

    def hear(self, kind, ident, message):
        """Take what the worker says of this block."""
        if kind == b"D" and ident == self.ident and self.report is None:
            self.report = checked(message)

    def _out_of_time(self):
        """Let it write out what it holds back, where it can, and then kill it."""
        if self.request["command"] is None and self.worker.pid:
            self.overdue = True
            system.send(self.worker.pid, system.LAST_WORDS)
        self.timer = self.supervisor.after(LAST_WORDS_S, lambda: self.kill("timeout"))

    def kill(self, why):
        """End it now, with everything that it started."""
        if self.finished or self.killed:
            return
        self.killed = why
        self.worker.doomed = True
        self.kill_processes()
        self.supervisor.workers.collect()
        self.supervisor.after(KILL_GRACE, self.worker_exited)

    def worker_exited(self):
        """The process is gone: nothing more can come of it."""
        raise NotImplementedError

    def kill_processes(self):
        """Kill what belongs to this block."""
        raise NotImplementedError

    def verdict(self):
        """How it ended, as (outcome, exit code, error)."""
        if self.killed:
            return self.killed, 124, None
        status = self.worker.status
        if status is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if self.overdue and number == system.LAST_WORDS:
                return "timeout", 124, None  # it had not come to the point of listening
            if number == signal.SIGKILL and self._out_of_memory():
                return "oom", 128 + number, {"type": "OutOfMemory", "message": NO_MEMORY, "line": None}
            name = signal.Signals(number).name if number in set(signal.Signals) else "signal %d" % number
            return (
                "crashed",
                128 + number,
                {"type": name, "message": "the process was ended by %s" % name, "line": None},
            )
        if self.worker.failure:
            return "crashed", 71, {"type": "NoProcess", "message": self.worker.failure, "line": None}
        return self.exit_verdict(os.WEXITSTATUS(status) if status is not None else None)

    def exit_verdict(self, status):
        """The verdict when the process ended by itself, or has reported and lives on."""
        if self.report is None:
            if self.request.get("command"):
                if status == 128 + signal.SIGKILL and self._out_of_memory():
                    return "oom", status, {"type": "OutOfMemory", "message": NO_MEMORY, "line": None}
                return ("error" if status else "ok"), status, None
            message = "the process ended with exit status %s before the block was complete (os._exit?)" % status
            return "crashed", status or 1, {"type": "EarlyExit", "message": message, "line": None}
        code = self.report["exit_code"]
        return ("error" if code else "ok"), code, self.report["error"]

    def _out_of_memory(self):
        now = system.count_oom_kills()
        return now is not None and self.oom_kills is not None and now > self.oom_kills

    def finish(self):
        """Tell the host the result."""
        if self.finished:
            return
        self.finished = True
        if self.timer is not None:
            self.supervisor.forget(self.timer)
        ends = [capture.finish() for capture in self.captures]
        for capture in self.captures:
            self.supervisor.unwatch(capture, self.keep_pipes)
        outcome, exit_code, error = self.verdict()
        if outcome not in ("oom", "cancel") and self._out_of_memory():
            self.notes.append("A process that the code started was killed: the sandbox's memory limit was reached.")
        message = {
            "outcome": outcome,
            "exit_code": exit_code,
            "error": error,
            "value": (self.report or {}).get("value"),
            "duration_s": time.monotonic() - self.began,
            "dropped": [dropped for dropped, _ in ends],
            "tail": [tail for _, tail in ends],
            "state": self.state,
            "notes": self.notes,
        }
        files = b""
        if self.request.get("delete"):
            self._delete_code()
        if self.request.get("scan"):
            if self.request.get("hide"):
                self.supervisor.files.remember(self.request["hide"])
            message["files"], files, message["too_many_files"] = self.supervisor.files.changed()
        self.supervisor.send_message(b"D", self.ident, message, files)
        self.supervisor.finished(self)

    def _delete_code(self):
        try:
            os.unlink(self.request["path"])
        except OSError:
            pass  # the code may have removed it itself


class ProcessBlock(Block):
    """A block in a process of its own; nothing of it outlives it, except in a session."""

    def start(self, keep_state=False):
        """Run it."""
        self.worker = self.supervisor.take_worker()
        # A file in memory, not a pipe: a shell with a large environment must not wait for a reader.
        self.state_file = os.memfd_create("state") if keep_state else None
        self.open([self.state_file] if keep_state else [])

    def worker_exited(self):
        if self.finished:
            return
        if not self.supervisor.session_mode:
            self._kill_leftovers()
        elif self.state_file is not None:
            self._take_state()
        self.keep_pipes = self.supervisor.session_mode
        self.finish()

    def _kill_leftovers(self):
        workers = self.supervisor.workers
        if workers.anything_else():
            system.kill_trees(workers.strays)

    def kill_processes(self):
        workers, session = self.supervisor.workers, self.supervisor.session_mode
        pid = self.worker.pid
        # In a session strays may be what earlier blocks left running on purpose.
        system.kill_trees(lambda parent_of: [pid] + ([] if session else workers.strays(parent_of)))

    def _take_state(self):
        """Read the directory and the exported variables in which a shell block ended."""
        with os.fdopen(self.state_file, "rb") as file:
            file.seek(0)
            data = file.read(STATE_LIMIT)
        self.state_file = None
        if not self.killed:
            self.supervisor.shell_ended(data)


class CellBlock(Block):
    """A block in the session's live interpreter."""

    session = True

    def start(self):
        """Run it, with a checkpoint of the session's memory first."""
        self.checkpoint = None
        self.worker = self.supervisor.session_worker
        if self.worker is None or self.worker.status is not None:
            self.worker = self.supervisor.new_session()
            self.state = "lost"
            self.notes.append("The session had ended between two blocks; this block ran in a new, empty one.")
        if not self.supervisor.config["checkpoint"]:
            self.open()
            return
        ours, theirs = socket.socketpair()
        self.checkpoint = Checkpoint(ours)
        self.open([theirs.fileno()])
        theirs.close()

    def hear(self, kind, ident, message):
        if ident != self.ident or self.finished:
            return
        if kind == b"C":
            self.checkpoint.taken(message)
        elif kind == b"D" and self.report is None:
            self.report = checked(message)
            if not self.killed:
                self._complete()

    def _complete(self):
        self.supervisor.cell_ended(self.report)
        if self.report.get("late"):
            self.notes.append("Written meanwhile by threads of earlier blocks: " + self.report["late"])
        # Threads and children of the session may go on writing to the block's pipes, and must not be killed by SIGPIPE.
        self.keep_pipes = True
        if self.checkpoint is not None:
            self.checkpoint.drop()
        self.finish()

    def worker_exited(self):
        if self.finished:
            return
        self.report = None
        self.supervisor.kill_session(spare=self.checkpoint)
        self._restore()
        self.finish()

    def _restore(self):
        checkpoint = self.checkpoint
        if checkpoint is not None and checkpoint.alive():
            self.supervisor.wake(checkpoint)
            self.state = "restored"
            self.notes.append(
                "The session's variables are as they were before this block; files, threads and subprocesses are not restored."
            )
            return
        if checkpoint is not None and checkpoint.skipped:
            self.notes.append("No checkpoint was kept: %s." % checkpoint.skipped)
        self.supervisor.new_session()
        self.state = "lost"
        self.notes.append("The session's variables are lost; a new, empty session has been started.")

    def kill_processes(self):
        self.supervisor.kill_session(spare=self.checkpoint)


class Checkpoint:
    """A sleeping fork of the session.

    Args:
        sock: The supervisor's end of its socket.
    """

    def __init__(self, sock):
        self.sock = sock
        self.pid = None
        self.skipped = None

    def taken(self, message):
        """Note what the session said of it."""
        self.pid = message.get("pid")
        self.skipped = message.get("skipped")

    def alive(self):
        """Whether it still sleeps there."""
        if not isinstance(self.pid, int) or self.pid <= 1:
            return False
        return self.pid in system.parents()

    def drop(self):
        """Let it end."""
        self.sock.close()


def checked(report):
    """What a worker says of its block, made fit to pass on: user code can write to the worker's socket."""
    error = report.get("error")
    if isinstance(error, dict):
        line = error.get("line")
        error = {
            "type": str(error.get("type"))[:200],
            "message": str(error.get("message")),
            "line": line if isinstance(line, int) else None,
        }
    else:
        error = None
    code = report.get("exit_code")
    value = report.get("value")
    return {
        "exit_code": code & 0xFF if isinstance(code, int) else 1,
        "error": error,
        "value": value if isinstance(value, str) else None,
        "late": str(report.get("late") or ""),
        **_checked_place(report),
    }


def _checked_place(report):
    environment, unset, cwd = report.get("environment"), report.get("unset"), report.get("cwd")
    if not isinstance(environment, dict) or not isinstance(unset, list):
        return {}
    return {
        "environment": {str(name): str(value) for name, value in environment.items()},
        "unset": [str(name) for name in unset],
        "cwd": cwd if isinstance(cwd, str) else None,
    }
