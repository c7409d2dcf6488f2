"""One block from its request to its result: captures, deadline, kill, verdict."""

import os
import signal
import time

from . import ipc, output, packages, place, python, relay, stdio, system, usage, wire

KILL_GRACE = 2.0
MAX_TRIES = 3
LAST_WORDS_S = 0.01
# A process that has been asked for so long and is not there will not come.
FORK_PATIENCE = 1.0
STOPPED_AT_MOST = 1.0
# How soon its use of the processor is looked at again, at the least.
CPU_LOOK_S = 0.1
# More than the kernel lets a program have as its environment.
STATE_LIMIT = 4 * 1024 * 1024
TOO_LARGE = (
    "The environment is too large to be shared between Python and shell blocks; shell blocks keep the one of before."
)
TOO_MANY_FILES = (
    "There are too many files in the workspace, or folders in folders: not all that were made or changed have been looked at "
    "and copied to the host."
)
NO_ROOM = "There was no room in the workspace to save the code as %s; it was run from memory."
NO_CPU_TIME = "the code used more processor time than the %g s that a block may use"
REMOVED = "To make room, System V queues and semaphores were removed, and shared memory that no process used."
NO_MEMORY = "the kernel killed it because the sandbox's memory limit was reached"


class Block:
    """A block that is being run.

    Args:
        supervisor: The `Supervisor`.
        ident: Number of the host's request.
        request: The host's message.
        code: The code, as bytes.
    """

    def __init__(self, supervisor, ident, request, code):
        self.supervisor = supervisor
        self.ident = ident
        self.token = wire.unguessable()
        self.request = request
        self.code = code
        self.report = None
        self.unsaved = False
        self.killed = None
        self.finished = False
        self.worker = None
        self.captures = []
        self.relay = None
        self.keep_pipes = False
        self.overdue = False
        self.tries = 0
        self.timer = self.awake = self.cpu_timer = None
        self.meter = self.too_long = None
        self.alone = True
        self.began = time.monotonic()
        self.state = "kept"
        self.before = None
        self.notes = []
        self.oom_kills = system.count_oom_kills()

    def open(self, state_file=None):
        """Open the pipes, hand the request to the worker and start the clock."""
        limit = self.supervisor.config["output_limit"]
        kinds = (wire.STDOUT, wire.STDERR) if self.supervisor.config["split_streams"] else (wire.STDOUT,)
        self.captures = [output.Capture(kind, limit, self._emit) for kind in kinds]
        ends = [self.captures[0].write_fd, self.captures[-1].write_fd]
        if self.request["tools"] and self.request["command"] is None:
            self.relay = relay.Relay(self.supervisor, self.ident, self.worker)
            ends.append(self.relay.theirs.fileno())
        if state_file is not None:
            ends.append(state_file)
        message = dict(self.request, fds=len(ends), tools=self.relay is not None)
        self.worker.on_frame = self.hear
        self.worker.on_exit = self.worker_exited
        self.worker.on_hang_up = self.worker_hung_up
        self.began = time.monotonic()
        if self.request["cpu_seconds"]:
            # Before it runs: what it uses until this is read would not count.
            self.meter = usage.Meter(self.roots)
        self.worker.peer.send(wire.pack(wire.RUN_BLOCK, self.token, message, self.code, wire.MAX_REQUEST), ends)
        if self.relay is not None:
            self.relay.theirs.close()
        for capture in self.captures:
            capture.close_write_end()
            self.supervisor.watch(capture)
        self.timer = self.supervisor.after(self.request["timeout"], self._out_of_time)
        self._keep_awake()
        if self.request["cpu_seconds"]:
            self._check_cpu()
        if self.worker.status is not None:
            self.worker_exited()

    def start(self):
        """Run it."""
        raise NotImplementedError

    def start_again(self):
        """Run it after all, when its process was killed before it had read the request; False where it was not so."""
        if self.killed or self.overdue or not self.worker.peer.undelivered or self.tries >= MAX_TRIES:
            return False
        self.tries += 1
        self._forget_timers()
        for capture in self.captures:
            self.supervisor.unwatch(capture, keep=False)
        self._close_relay()
        self.start()
        return True

    def _close_relay(self):
        """From now on no call of this block reaches the host."""
        if self.relay is not None:
            self.relay.close()

    def _emit(self, kind, data):
        self.supervisor.send(kind, self.ident, data)

    def hear(self, kind, ident, message):
        """Take what the worker says of this block."""
        if kind == wire.BLOCK_DONE and ident == self.token and self.report is None:
            self.report = checked(message)
        elif kind == wire.CODE_NOT_SAVED and ident == self.token:
            self.unsaved = True

    def _keep_awake(self):
        """The zygote has the same user as the block, so the block can stop it; then nobody would hear of the block's end."""
        if not self.finished:
            self.supervisor.workers.let_zygote_run()
            self.awake = self.supervisor.after(STOPPED_AT_MOST, self._keep_awake)

    def _forget_timers(self):
        for timer in (self.timer, self.awake, self.cpu_timer):
            if timer is not None:
                self.supervisor.forget(timer)

    def _check_cpu(self):
        """End it when it has used the processor for too long; look again when it could have, with all processors, if not."""
        if self.finished or self.killed or self.overdue:
            return
        limit = self.request["cpu_seconds"]
        left = limit - self.meter.used(self.alone)
        if left > 0:
            self.cpu_timer = self.supervisor.after(max(CPU_LOOK_S, left / (os.cpu_count() or 1)), self._check_cpu)
            return
        self.too_long = {"type": "CpuTimeExceeded", "message": NO_CPU_TIME % limit, "line": None}
        self.supervisor.forget(self.timer)
        self._out_of_time()

    def roots(self, parent_of):
        """Where the trees of its processes begin."""
        raise NotImplementedError

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
        if self.relay is not None:
            self.relay.stop()
        self.worker.doomed = True
        if self.worker.pid is None and time.monotonic() - self.began > FORK_PATIENCE:
            self.supervisor.workers.replace_zygote()
        self.supervisor.workers.let_zygote_run()
        self.kill_processes()
        self.supervisor.workers.collect()
        self.supervisor.after(KILL_GRACE, self.worker_exited)

    def worker_exited(self):
        """The process is gone: nothing more can come of it."""
        raise NotImplementedError

    def worker_hung_up(self):
        """Its socket is closed. A script may go on without it until it ends or its time is over."""

    def kill_processes(self):
        """Kill what belongs to this block."""
        raise NotImplementedError

    def verdict(self):
        """How it ended, as (outcome, exit code, error)."""
        if self.killed or self.overdue:
            outcome = self.killed or "timeout"
            return outcome, 124, self.too_long if outcome == "timeout" else None
        status = self.worker.status
        if status is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
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

    def _make_room(self):
        """Free what the death of the block's processes does not: the next to be killed would be this process."""
        if self._out_of_memory() and ipc.remove_unused() and self.supervisor.session is not None:
            self.notes.append(REMOVED)

    def finish(self):
        """Tell the host the result."""
        if self.finished:
            return
        self.finished = True
        self._close_relay()
        self._forget_timers()
        ends = [capture.finish() for capture in self.captures]
        for capture in self.captures:
            self.supervisor.unwatch(capture, self.keep_pipes)
        outcome, exit_code, error = self.verdict()
        if outcome not in ("oom", "cancel") and self._out_of_memory():
            self.notes.append("A process that the code started was killed: the sandbox's memory limit was reached.")
        if outcome == "error" and packages.may_have_tried(self.request, self.code, self.supervisor.config):
            self.notes.append(packages.HOW_TO)
        if self.unsaved and self.request["path"]:
            self.notes.append(NO_ROOM % os.path.relpath(self.request["path"], self.supervisor.config["workspace"]))
        message = {
            "outcome": outcome,
            "exit_code": exit_code,
            "error": error,
            "value": (self.report or {}).get("value"),
            "duration_s": time.monotonic() - self.began,
            "dropped": [dropped for dropped, _ in ends],
            "tail": [tail for _, tail in ends],
            "state": self.state,
            "number": self.request["number"],
            "before": self.before,
            "notes": self.notes,
        }
        files = b""
        if self.request.get("delete"):
            self._delete_code()
        if self.request.get("scan"):
            if self.request.get("hide"):
                self.supervisor.files.remember(self.request["hide"])
            message["files"], files, incomplete = self.supervisor.files.changed()
            if incomplete:
                message["files_cut"] = True
                self.notes.append(TOO_MANY_FILES)
        self.supervisor.send_message(wire.BLOCK_RESULT, self.ident, message, files)
        self.supervisor.finished(self)

    def _delete_code(self):
        try:
            os.unlink(self.request["path"])
        except OSError:
            pass  # the code may have removed it itself


class ProcessBlock(Block):
    """A block in a process of its own; nothing of it outlives it, except in a session."""

    state_file = None

    def start(self):
        """Run it."""
        self.worker = self.supervisor.take_worker(self.request)
        if self.supervisor.session is not None:
            self.request.update(self.supervisor.session.place.for_shell(self.request["cwd"]))
        else:
            self.request["environment"] = self.supervisor.homes.variables(self.worker)
            if self.request["installs"]:
                self.request["environment"] = packages.variables(self.worker.home)
        if not self.request["keep_state"]:
            self.open()
            return
        # A file in memory, not a pipe: a shell with a large environment must not wait for a reader.
        if self.state_file is None:
            self.state_file = os.memfd_create("state")
        self.open(state_file=self.state_file)

    def worker_exited(self):
        if self.finished:
            # What it left dead is PID 1's now, and would count against what the next block may start.
            self.supervisor.workers.collect()
            self.supervisor.start_next()  # what waits for this process to be gone
            return
        if self.start_again():
            return
        self._make_room()
        if self.supervisor.session is None:
            self._kill_leftovers()
        elif self.request["keep_state"]:
            self._take_state()
        self.keep_pipes = self.supervisor.session is not None
        self.finish()

    def _kill_leftovers(self):
        workers = self.supervisor.workers
        if workers.may_have_left_some(self.worker.pid):
            # A worker that has just been killed is the parent of what it started for a moment more.
            system.kill_trees(lambda parent_of: workers.strays(parent_of) + self._children(parent_of))

    def hear(self, kind, ident, message):
        super().hear(kind, ident, message)
        if self.report is None or self.killed or self.overdue or self.finished or self.worker.status is not None:
            return
        # Its last word: nothing of the code is left to run. Where there is but one thread, it is not worth waiting for the
        # kernel to free its memory and for the zygote to tell of its end; it may also be the code that speaks so, and goes on.
        if system.is_quick_to_end(self.worker.pid):
            self.supervisor.workers.end(self.worker)
            self.worker_exited()

    def _children(self, parent_of):
        return [pid for pid, parent in parent_of.items() if parent == self.worker.pid]

    def roots(self, parent_of):
        return [self.worker.pid]

    def kill_processes(self):
        workers, in_session = self.supervisor.workers, self.supervisor.session is not None
        # In a session strays may be what earlier blocks left running on purpose.
        system.kill_trees(lambda parent_of: self.roots(parent_of) + ([] if in_session else workers.strays(parent_of)))

    def _take_state(self):
        """Read the directory and the exported variables in which a shell block ended."""
        with os.fdopen(self.state_file, "rb") as file:
            file.seek(0)
            data = file.read(STATE_LIMIT)
        self.state_file = None
        if not self.killed and not self.supervisor.session.place.shell_ended(data):
            self.notes.append(TOO_LARGE)


def checked(report):
    """What a worker says of its block, made fit to pass on: user code can write to the worker's socket."""
    error = report.get("error")
    if isinstance(error, dict):
        line = error.get("line")
        error = {
            "type": _text(error.get("type"), python.NAME_LIMIT) or "Exception",
            "message": _text(error.get("message"), python.MESSAGE_LIMIT) or "",
            "line": line if isinstance(line, int) else None,
        }
    else:
        error = None
    code = report.get("exit_code")
    return {
        "exit_code": code & 0xFF if isinstance(code, int) else 1,
        "error": error,
        "value": _text(report.get("value"), python.VALUE_LIMIT),
        "late": _text(report.get("late"), 2 * stdio.LATE_LIMIT) or "",
        "too_large": report.get("too_large") is True,
        **place.checked(report),
    }


def _text(thing, limit):
    return thing[:limit] if isinstance(thing, str) else None
