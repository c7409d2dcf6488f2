"""One block from its request to its result; `process_block` and `session_block` add what differs between them."""

import contextlib
import functools
import os
import signal
import time

from ..shared import system, wire
from . import block_report, files, output_capture, tool_relay

KILL_CHECK_S = 2.0
MAX_RETRIES = 3
# How long a Python block may write what it has buffered when its time is over, once it has got the signal for it; and how many
# times as long that may take, on a busy machine.
FLUSH_S = 0.01
MAX_FLUSH_WAITS = 10
# If the zygote has not reported the worker's process after this time, it never will.
FORK_TIMEOUT_S = 1.0
RESUME_INTERVAL_S = 1.0
MIN_CPU_CHECK_S = 0.1
NO_CPU_TIME = "the code used more processor time than the %g s that a block may use"


class Block:
    """A block: waiting, running, or ended.

    `start` chooses the worker and calls `send_request`. The worker's frames come to `on_frame`, its end to `on_worker_exit`, and
    the deadline to `stop`; each leads to `finish`, once, which sends the result to the host. Subclasses have `start`,
    `on_worker_exit`, `kill_processes`, and `root_pids`: where the block's process trees begin.
    """

    def __init__(self, supervisor, ident, request, code):
        self.supervisor = supervisor
        self.scheduler = supervisor.scheduler
        self.ident = ident
        # Unlike `ident` it is not known to code, so that code of an earlier block can't send results for this one.
        self.token = wire.random_id()
        self.request = request
        self.code = code
        self.worker = None
        self.relay = None
        self.captures = []
        self.drain_output = False
        self.report = None
        self.code_not_saved = False
        # Whether the worker has read the request for sure.
        self.has_begun = False
        self.killed = None
        # Why it is about to be killed: `timeout` or `cancel`.
        self.overdue = None
        self.finished = False
        self.retries = 0
        self.deadline_timer = self.resume_timer = self.cpu_timer = None
        self.cpu_meter = self.cpu_error = None
        # What the worker's process had used before, with its number.
        self.used_before = (None, 0.0)
        # Whether no other block has run meanwhile.
        self.alone = True
        self.began = time.monotonic()
        self.state = "kept"
        self.restored_before = None
        self.notes = []
        self.displays = block_report.DisplayRelay(supervisor, ident)
        self.oom_kills = system.count_oom_kills()

    # From the request to the worker

    def send_request(self, state_file=None):
        """Send the request to the worker, with the pipes for its output, and start the timers."""
        self.captures = self.open_captures()
        fds = [self.captures[0].write_fd, self.captures[-1].write_fd]
        if self.request["tools"] and self.request["command"] is None:
            self.relay = tool_relay.ToolRelay(self.supervisor, self.ident, self.worker)
            fds.append(self.relay.block_end.detach())
        if state_file is not None:
            fds.append(os.dup(state_file))
        message = dict(self.request, fds=len(fds), tools=self.relay is not None)
        self.worker.on_frame = self.on_frame
        self.worker.on_exit = self.on_worker_exit
        self.worker.on_disconnect = self.on_worker_disconnect
        self.began = time.monotonic()
        if self.request["cpu_seconds"]:
            # Before the block runs: what it uses earlier would not count.
            self.cpu_meter = system.CpuTimeMeter(self.root_pids)
        if self.worker.pid is not None:
            system.forget_peak(self.worker.pid)
            self.used_before = (self.worker.pid, system.usage(self.worker.pid)[0])
        self.worker.connection.send(wire.pack(wire.RUN_BLOCK, self.token, message, self.code, wire.MAX_REQUEST), fds)
        for capture in self.captures:
            self.supervisor.output_reader.start(capture)
        self._start_timers()
        if self.worker.status is not None:
            self.on_worker_exit()

    def open_captures(self):
        send = functools.partial(self.supervisor.send, wire.STDOUT, self.ident, None)
        return [output_capture.OutputCapture(self.supervisor.config["output_limit"], send)]

    def retry(self):
        """Start again if the worker was killed before it had read the request; return False if it may have read it."""
        may_have_begun = self.has_begun or not self.worker.connection.undelivered
        if self.killed or self.overdue or may_have_begun or self.retries >= MAX_RETRIES:
            return False
        self.retries += 1
        self._cancel_timers()
        for capture in self.captures:
            self.supervisor.output_reader.stop(capture, drain=False)
        self.close_relay()
        self.start()
        return True

    def close_relay(self):
        """From now on, forward no call of this block to the host."""
        if self.relay is not None:
            self.relay.close()

    # Timers

    def _start_timers(self):
        if self.request["timeout"] is not None:
            self.deadline_timer = self.supervisor.loop.call_later(self.request["timeout"], lambda: self.stop("timeout"))
        self._resume_zygote()
        if self.request["cpu_seconds"]:
            self._check_cpu_time()

    def _cancel_timers(self):
        for timer in (self.deadline_timer, self.resume_timer, self.cpu_timer):
            if timer is not None:
                self.supervisor.loop.cancel(timer)

    def _resume_zygote(self):
        """Resume the zygote, which the block can stop: it reports the block's end."""
        if not self.finished:
            self.supervisor.workers.resume_zygote()
            self.resume_timer = self.supervisor.loop.call_later(RESUME_INTERVAL_S, self._resume_zygote)

    def _check_cpu_time(self):
        """End the block if it has used too much; else check again when it could have, using all processors."""
        if self.finished or self.killed or self.overdue:
            return
        limit = self.request["cpu_seconds"]
        left = limit - self.cpu_meter.seconds(self.alone)
        if left > 0:
            pause = max(MIN_CPU_CHECK_S, left / (os.cpu_count() or 1))
            self.cpu_timer = self.supervisor.loop.call_later(pause, self._check_cpu_time)
            return
        self.cpu_error = {"type": "CpuTimeExceeded", "message": NO_CPU_TIME % limit, "line": None}
        self.stop("timeout")

    def stop(self, why):
        """Let a Python block write what it has buffered, and then kill it."""
        if self.request["command"] is not None or not self.worker.pid or self.overdue or self.killed:
            self.kill(why)
            return
        self.overdue = why
        self.supervisor.loop.cancel(self.deadline_timer)
        system.send_signal(self.worker.pid, system.FLUSH_SIGNAL)
        self._await_flush(why, MAX_FLUSH_WAITS)

    def _await_flush(self, why, waits_left, was_pending=False):
        def check():
            is_pending = waits_left > 0 and system.is_pending(self.worker.pid, system.FLUSH_SIGNAL)
            if is_pending or was_pending:
                self._await_flush(why, waits_left - 1, is_pending)
            else:
                self.kill(why)

        self.deadline_timer = self.supervisor.loop.call_later(FLUSH_S, check)

    # From the worker

    def on_frame(self, kind, ident, message):
        if kind == wire.BLOCK_DONE and ident == self.token and self.report is None:
            self.report = block_report.check(message)
        elif kind == wire.CODE_NOT_SAVED and ident == self.token:
            self.code_not_saved = True
        elif kind == wire.DISPLAY and ident == self.token:
            self.show(message)

    def show(self, message):
        if self.report is None and not self.finished:
            self.has_begun = True
            if self.displays.forward(message, self.captures[0]):
                self.worker.connection.send(wire.pack(wire.DISPLAY, self.token))

    def on_worker_disconnect(self):
        """Handle a closed connection. A script can go on without it until it ends or its time is over."""

    # The end

    def kill(self, why):
        if self.finished or self.killed:
            return
        self.killed = why
        if self.relay is not None:
            self.relay.stop()
        self.worker.kill_when_forked = True
        if self.worker.pid is None and time.monotonic() - self.began > FORK_TIMEOUT_S:
            self.supervisor.workers.replace_zygote()
        self.supervisor.workers.resume_zygote()
        self.kill_processes()
        self.supervisor.workers.collect()
        self.supervisor.loop.call_later(KILL_CHECK_S, self.on_worker_exit)

    def free_memory(self):
        """After an out-of-memory kill, wait until memory is free again: this process could be next."""
        if self._out_of_memory() and self.alone:
            system.wait_for_memory(self.supervisor.config.get("memory_bytes"))

    def _out_of_memory(self):
        now = system.count_oom_kills()
        return now is not None and self.oom_kills is not None and now > self.oom_kills

    def outcome(self):
        if self.killed or self.overdue:
            outcome = self.killed or self.overdue
            return outcome, 124, self.cpu_error if outcome == "timeout" else None
        status = self.worker.status
        if status is not None and os.WIFSIGNALED(status):
            return self._outcome_of_signal(os.WTERMSIG(status))
        if self.worker.failure:
            return "crashed", 71, {"type": "NoProcess", "message": self.worker.failure, "line": None}
        if self.report is not None:
            code = self.report["exit_code"]
            return ("error" if code else "ok"), code, self.report["error"]
        return self._outcome_of_exit(os.WEXITSTATUS(status) if status is not None else None)

    def _outcome_of_signal(self, number):
        if number == signal.SIGKILL and self._out_of_memory():
            return block_report.out_of_memory()
        name = system.signal_name(number)
        error = {"type": name, "message": "the process was ended by %s" % name, "line": None}
        return "crashed", 128 + number, error

    def _outcome_of_exit(self, status):
        """Return how a block ended whose process has exited without a report: every command does."""
        if self.request.get("command"):
            if status == 128 + signal.SIGKILL and self._out_of_memory():
                return block_report.out_of_memory()
            return ("error" if status else "ok"), status, None
        message = "the process ended with exit status %s before the block was complete (os._exit?)" % status
        return "crashed", status or 1, {"type": "EarlyExit", "message": message, "line": None}

    def finish(self):
        if self.finished:
            return
        self.finished = True
        self.close_relay()
        self._cancel_timers()
        ends = [capture.finish() for capture in self.captures]
        for capture in self.captures:
            self.supervisor.output_reader.stop(capture, self.drain_output)
        outcome, exit_code, error = self.outcome()
        seconds, peak = self._usage()
        self._add_notes(outcome)
        message = {
            "outcome": outcome,
            "exit_code": exit_code,
            "error": error,
            "value": (self.report or {}).get("value"),
            "plain": (self.report or {}).get("plain"),
            "duration_s": time.monotonic() - self.began,
            "cpu_s": seconds,
            "peak_memory": peak,
            "dropped": [dropped for dropped, _ in ends],
            "tail": [tail for _, tail in ends],
            "state": self.state,
            "number": self.request["number"],
            "before": self.restored_before,
            "notes": self.notes,
        }
        if self.request.get("delete"):
            with contextlib.suppress(OSError):  # the code may have removed it itself
                os.unlink(self.request["path"])
        contents = self._add_changed_files(message) if self.request.get("scan") else b""
        self.supervisor.send(wire.BLOCK_RESULT, self.ident, message, contents)
        self.supervisor.flush()
        self.on_result_sent()
        self.leave()

    def _usage(self):
        """Return the processor seconds and the largest memory of the block's process, with the children it has waited for."""
        worker = self.worker
        if worker is None or worker.pid is None:
            return system.NO_USAGE
        seconds, peak = worker.usage or system.usage(worker.pid)
        pid, before = self.used_before
        return max(seconds - before, 0.0) if pid == worker.pid else seconds, peak

    def leave(self):
        self.scheduler.finished(self)
        if self.supervisor.session is not None:
            # Also after a shell: it may have begun before the last Python block's successor was prepared.
            self.scheduler.prepare(self.supervisor.session.request_next_checkpoint)

    def on_result_sent(self):
        """Do what the result does not wait for."""

    def _add_notes(self, outcome):
        if outcome not in ("oom", "cancel") and self._out_of_memory():
            self.notes.append("A process that the code started was killed: the sandbox's memory limit was reached.")
        if self.code_not_saved and self.request["path"]:
            path = os.path.relpath(self.request["path"], self.supervisor.config["workspace"])
            self.notes.append(
                "There was no room in the workspace to save the code as %s; it was run from memory." % path
            )

    def _add_changed_files(self, message):
        """Add the list of changed files to the result; return the content of the small ones."""
        if self.request.get("hide"):
            self.supervisor.files.remember(self.request["hide"])
        message["files"], contents, incomplete = self.supervisor.files.changed()
        if incomplete:
            message["files_cut"] = True
            self.notes.append(files.TOO_MANY_FILES)
        return contents
