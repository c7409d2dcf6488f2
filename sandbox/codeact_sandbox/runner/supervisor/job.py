"""Jobs: commands beside the blocks, which have no part in their queue and their ends."""

import collections
import functools
import os
import selectors
import shlex
import signal

from ..shared import system, wire
from . import output_capture, process_block

MAX_JOBS = 64
# Bytes that either side may send before the other side has read them.
WINDOW = 256 * 1024
SIGNAL_DELAY_S = 0.01
TOO_MANY = (
    "%d commands run at the same time in this sandbox already, which is the most: wait for one, or kill one" % MAX_JOBS
)
STREAMS = (wire.STDOUT, wire.STDERR)


class Jobs:
    def __init__(self, supervisor):
        self.running = {}
        # Streamed outputs that wait until nothing else waits for the stream to the host: a result must not wait behind them.
        self.stalled = []
        self._supervisor = supervisor

    def handle(self, ident, message, data):
        """Handle a message of the host about a job, which may have ended meanwhile."""
        op, job = message.get("op"), self.running.get(ident)
        if op == "start":
            self._start(ident, message)
        elif op == "output":
            self._send_output(ident, self.running.get(message["job"]))
        elif op not in ("data", "end", "credit", "signal"):
            raise wire.ProtocolError("a job can't do %r" % op)
        elif job is not None and op == "credit":
            job.add_credit(message["bytes"])
        elif job is not None and op == "signal":
            job.signal(message["number"])
        elif job is not None and job.stdin is not None:
            job.stdin.write(data, at_end=op == "end")

    def _start(self, ident, message):
        if len(self.running) >= MAX_JOBS:
            error = {"type": "NotStarted", "message": TOO_MANY, "line": None}
            self._supervisor.send(wire.BLOCK_RESULT, ident, {"outcome": "error", "exit_code": 1, "error": error})
            return
        job = self.running[ident] = Job(self._supervisor, ident, *_request(self._supervisor, message))
        for block in self._supervisor.scheduler.running.values():
            block.alone = False
        self._supervisor.scheduler.note_request()
        job.start()

    def _send_output(self, ident, job):
        """Answer a request for the output so far: send its tail, of which the host has the head already."""
        dropped = []
        for kind, capture in zip(STREAMS, job.captures if job is not None else ()):
            tail, count = capture.so_far()
            dropped.append(count)
            for start in range(0, len(tail), wire.MAX_PAYLOAD):
                self._supervisor.send(kind, ident, None, tail[start : start + wire.MAX_PAYLOAD])
        self._supervisor.send(wire.ANSWER, ident, {"dropped": dropped})

    def resume(self):
        stalled, self.stalled = self.stalled, []
        for output in stalled:
            self._supervisor.output_reader.resume(output)

    def ended(self, job):
        del self.running[job.ident]
        self._supervisor.scheduler.job_ended()


def _request(supervisor, message):
    """Return the request to the worker that becomes a job, and its command line."""
    command, config = message["command"], supervisor.config
    text = command if isinstance(command, str) else " ".join(map(shlex.quote, command))
    request = {"environment": {}, "unset": [], "tool_sources": None}
    request["command"] = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    request.update(
        is_job=True,
        mode=config["mode"],
        number=0,
        folder=os.path.join(config["workspace"], message["cwd"] or ""),
        cwd=config["workspace"],
        variables=message["env"],
        timeout=message["timeout"],
        cpu_seconds=message["cpu_seconds"],
        stdin=message["stdin"],
        stream=message["stream"],
        path=None,
        tools=None,
        keep_state=None,
    )
    return request, text.encode("utf-8", "surrogateescape")


class Job(process_block.ProcessBlock):
    """A command: a process of its own, with two streams of output and perhaps one of input."""

    def __init__(self, supervisor, ident, request, code):
        super().__init__(supervisor, ident, request, code)
        self.stdin = None
        self.started = self.ended = False
        # Bytes of streamed output that may be sent.
        self.credit = WINDOW
        self.alone = False

    def start(self):
        if self.request["stdin"]:
            self.stdin = Stdin(self)
            self.state_file = self.stdin.read_fd
        super().start()
        if self.stdin is not None:
            os.close(self.stdin.read_fd)

    def set_environment(self):
        super().set_environment()
        given = self.request["variables"]
        self.request["cwd"] = self.request["folder"]
        self.request["environment"] = dict(self.request["environment"], **given)
        self.request["unset"] = [name for name in self.request["unset"] if name not in given]

    def open_captures(self):
        make = functools.partial(StreamedOutput, self) if self.request["stream"] else output_capture.OutputCapture
        limit = self.supervisor.config["output_limit"]
        return [make(limit, functools.partial(self.supervisor.send, kind, self.ident, None)) for kind in STREAMS]

    def on_worker_exit(self):
        if self.ended and not self.finished:
            self.finish()
        else:
            super().on_worker_exit()

    def retry(self):
        # Input may have been written.
        return self.stdin is None and super().retry()

    def tell(self, op, **more):
        self.supervisor.send(wire.JOB, self.ident, dict(more, op=op))

    def on_worker_disconnect(self):
        if self.report is None and not self.started:
            self.started = True  # its socket is closed by the execution of the command
            self.tell("started")

    def signal(self, number):
        """Send its process group a signal; `SIGKILL` kills everything that it has started."""
        if number == signal.SIGKILL:
            self.kill("cancel")
        elif self.worker.status is None and not self.started:
            self.supervisor.loop.call_later(SIGNAL_DELAY_S, lambda: self.signal(number))
        elif self.worker.status is None:
            try:
                os.killpg(self.worker.pid, number)
            except ProcessLookupError:
                system.send_signal(self.worker.pid, number)

    def add_credit(self, count):
        self.credit += count
        if self.worker.status is not None:
            self.finish()
        else:
            for capture in self.captures:
                self.supervisor.output_reader.resume(capture)

    def kill(self, why):
        if self.worker.status is None:
            super().kill(why)
        elif not self.finished:
            self.killed = self.killed or why
            self.finish()

    def finish(self):
        """Send the result, when the host has taken streamed output; not when its time is over, or it was killed."""
        if self.finished:
            return
        self.ended = True
        if self.request["stream"]:
            empty = [capture.flush() for capture in self.captures]
            if not all(empty) and not self.killed:
                return
        super().finish()

    def leave(self):
        if self.stdin is not None:
            self.stdin.close()
        self.supervisor.jobs.ended(self)


class StreamedOutput(output_capture.OutputCapture):
    """One pipe of a job whose output goes to the host as a whole, as fast as the host takes it."""

    def __init__(self, job, limit, emit):
        super().__init__(limit, emit)
        self._job = job
        # What is in the pipe when the job ends, and has not been sent.
        self._rest = None

    def read(self):
        if self.done:
            return super().read()
        supervisor = self._job.supervisor
        if self._job.credit <= 0 or supervisor.outbox.chunks:
            if supervisor.outbox.chunks:
                supervisor.jobs.stalled.append(self)
            return output_capture.PAUSED
        return self._send(output_capture.READ_SIZE)

    def _send(self, size):
        try:
            data = os.read(self.fd, min(size, self._job.credit))
        except BlockingIOError:
            return None
        self._job.credit -= len(data)
        if data:
            self._emit(data)
        return len(data)

    def flush(self):
        """Send what the job has left in the pipe and the host has room for; return whether that is all."""
        if self._rest is None:
            self._rest = self.waiting()
        while self._rest and self._job.credit > 0:
            self._rest -= self._send(self._rest) or self._rest
        return not self._rest

    def finish(self):
        self.done = True
        self.dropped = self._rest or 0
        return self.dropped, 0

    def so_far(self):
        return b"", 0


class Stdin:
    def __init__(self, job):
        self._job = job
        self._loop = job.supervisor.loop
        self.read_fd, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._waiting = collections.deque()
        self._held = self._written = 0
        self._events = 0
        self._at_end = self._closed = False

    def write(self, data, at_end):
        """Write bytes of the host, when the job reads; or close it after those before."""
        if self._closed:
            return
        self._held += len(data)
        if self._held > WINDOW:
            raise wire.ProtocolError("job %d was sent more than it has room for" % self._job.ident)
        self._at_end = self._at_end or at_end
        if data:
            self._waiting.append(memoryview(data))
        self._flush()

    def _flush(self, _events=0):
        try:
            while self._waiting:
                self._count(os.write(self._fd, self._waiting[0]))
        except BlockingIOError:
            pass
        except OSError:  # the job has closed it
            self.close()
            self._job.tell("closed")
            return
        if self._at_end and not self._waiting:
            self.close()
        else:
            self._watch(selectors.EVENT_WRITE if self._waiting else 0)

    def _count(self, size):
        piece = self._waiting.popleft()
        if size < len(piece):
            self._waiting.appendleft(piece[size:])
        self._held -= size
        self._written += size
        if self._written >= WINDOW // 4:
            self._job.tell("credit", bytes=self._written)
            self._written = 0

    def _watch(self, events):
        self._loop.set_events(self._fd, self._events, events, self._flush)
        self._events = events

    def close(self):
        """Close it; what has not been written is dropped."""
        if not self._closed:
            self._closed = True
            self._watch(0)
            self._waiting.clear()
            os.close(self._fd)
