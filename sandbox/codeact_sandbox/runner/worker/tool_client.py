"""Calls of host tools by one process, on one socket: from any thread and any event loop, many at once.

There is no reader thread: with one, every fork by the block would be a fork of a process with threads. Each caller that waits can
read for all; one does at a time, and delivers the answers of the others.
"""

import collections
import itertools
import os
import queue
import select
import socket
import threading
import time

from ..shared import wire

# A wait should never take so long; it bounds the harm that an interrupted thread does to the others.
MAX_WAIT_S = 1.0
SENDING_WAIT_S = 0.05
# An event loop that polled without a pause would keep the interpreter's lock from the thread that reads.
YIELD_S = 0.0001
FORKED = (
    "host tools can be called in the process that runs the block, not in one that it has started: call them there, "
    "before or after, and use threads for calls at the same time"
)
ENDED = "this call to a host tool has no answer, because the block that made it has ended"
LOST = "host tools can't be called any more in this block: the code has closed, misused or interrupted their connection"


class ToolClient:
    """The block's end of its socket."""

    def __init__(self, sock, limit):
        sock.setblocking(False)
        self.limit = limit
        self._sock = sock
        self._fd = sock.fileno()
        self._inode = os.fstat(self._fd).st_ino
        self._pid = os.getpid()
        self._parser = wire.Parser()
        self._numbers = itertools.count(1)
        self._waiting = {}
        self._threads = {}
        self._loops = {}
        self._outgoing = collections.deque()
        # A signal handler may call a tool during a call.
        self._reading = threading.RLock()
        self._writing = threading.Lock()
        self._closing = threading.RLock()
        self._read_interrupted = self._write_interrupted = False
        self.ended = None

    def call(self, request):
        waiter = Waiter()
        number = self._begin(request, waiter)
        try:
            while not waiter.done:
                self._wait(waiter)
        finally:
            self._threads.pop(number, None)
            if not waiter.done:
                self._cancel(number, waiter)
        return waiter.take()

    async def call_async(self, request):
        """Make a call from an event loop; cancelling it cancels the tool."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiter = LoopWaiter(loop)
        number = self._begin(request, waiter)
        self._attach(loop)
        try:
            await waiter.future
        finally:
            if not waiter.done:
                self._cancel(number, waiter)
            self._detach(loop)
        return waiter.take()

    def close(self, reason=ENDED):
        with self._closing:
            if self.ended is None:
                self.ended = reason
                self._shut_down()
            if not self._loops:
                self._close_socket()
        while self._waiting:
            try:
                _, waiter = self._waiting.popitem()
            except KeyError:
                break
            waiter.deliver(None, self.ended)

    def _begin(self, request, waiter):
        if os.getpid() != self._pid:
            raise RuntimeError(FORKED)
        number = next(self._numbers)
        waiter.frame = memoryview(wire.pack(wire.TOOL_CALL, number, None, request))
        self._waiting[number] = waiter
        if isinstance(waiter, Waiter):
            self._threads[number] = waiter
        self._outgoing.append(waiter)
        self._write()
        if self.ended is not None:
            self.close()
        return number

    def _cancel(self, number, waiter):
        """Cancel a call: its caller no longer waits for the answer."""
        if self._waiting.pop(number, None) is None or self.ended is not None:
            return
        waiter.abandoned = True
        if waiter.frame is None:
            cancellation = LoopWaiter(None)
            cancellation.frame = memoryview(wire.pack(wire.CANCEL_CALL, number, None))
            self._outgoing.append(cancellation)
            self._write()

    def _wait(self, waiter):
        """Send and read for this call, or wait for the thread that reads."""
        if waiter.frame is not None:
            self._write(SENDING_WAIT_S)
        if self._reading.acquire(False):
            try:
                self._read_for(waiter)
            finally:
                self._reading.release()
                for other in list(self._threads.values()):
                    if not other.done:
                        other.wake()
                        break
        elif waiter.frame is not None:
            self._poll(select.POLLOUT, SENDING_WAIT_S)
        else:
            waiter.sleep()

    def _read_for(self, waiter):
        """Read for all calls until this one has its answer."""
        while not waiter.done:
            self._poll(select.POLLIN | (select.POLLOUT if waiter.frame is not None else 0), MAX_WAIT_S)
            if waiter.frame is not None:
                self._write(SENDING_WAIT_S)
            if not waiter.done:
                self._read(None)

    def _poll(self, events, seconds):
        poller = select.poll()
        poller.register(self._fd, events)
        poller.poll(seconds * 1000)

    def _read(self, loop):
        """Read once, and deliver the answers; the caller has the lock."""
        if self._read_interrupted or self.ended is not None:
            self.close(LOST)
            return
        self._read_interrupted = True
        try:
            data = self._sock.recv(wire.READ_SIZE)
            frames = self._parser.feed(data) if data else None
        except BlockingIOError:
            frames = ()
        except (OSError, wire.ProtocolError):
            frames = None
        if frames is None:
            self.close(LOST)
            return
        for _, number, payload in frames:
            waiter = self._waiting.pop(number, None)
            if waiter is not None:
                waiter.deliver(payload, None, loop)
        # Not reached if a signal handler has raised an exception above: then bytes may be lost.
        self._read_interrupted = False

    def _write(self, patience=0):
        """Send what there is room for, unless another thread is sending for longer than `patience` seconds."""
        if not self._writing.acquire(timeout=patience):
            return
        try:
            if self._write_interrupted:
                self.close(LOST)
            while self._outgoing and self.ended is None:
                waiter = self._outgoing[0]
                if not waiter.abandoned or waiter.begun:
                    self._write_interrupted = True
                    sent = self._sock.send(waiter.frame)
                    waiter.begun = True
                    waiter.frame = waiter.frame[sent:] if sent < len(waiter.frame) else None
                    self._write_interrupted = False
                if waiter.frame is None or (waiter.abandoned and not waiter.begun):
                    self._outgoing.popleft()
        except BlockingIOError:
            self._write_interrupted = False
        except OSError:
            self.close(LOST)
        finally:
            self._writing.release()

    # Event loops

    def _attach(self, loop):
        """Let an event loop read while it has calls that wait; runs in the loop's thread."""
        with self._closing:
            if self.ended is not None:
                return
            count = self._loops.get(loop, 0)
            self._loops[loop] = count + 1
        if not count:
            loop.add_reader(self._fd, self._loop_can_read, loop)
        if self._outgoing:
            loop.add_writer(self._fd, self._loop_can_write, loop)

    def _detach(self, loop):
        with self._closing:
            count = self._loops.get(loop, 0)
            if count > 1:
                self._loops[loop] = count - 1
                return
            if count:
                loop.remove_reader(self._fd)
                loop.remove_writer(self._fd)
                del self._loops[loop]
            if self.ended is not None and not self._loops:
                self._close_socket()

    def _loop_can_read(self, loop):
        # If a thread reads already, it reads for the loop, too.
        if self._reading.acquire(False):
            try:
                self._read(loop)
            finally:
                self._reading.release()
        else:
            time.sleep(YIELD_S)

    def _loop_can_write(self, loop):
        self._write(YIELD_S)
        if not self._outgoing or self.ended is not None:
            loop.remove_writer(self._fd)

    # The descriptor, whose number the block may have closed and used again

    def _owns_descriptor(self):
        try:
            return os.fstat(self._fd).st_ino == self._inode
        except OSError:
            return False

    def _shut_down(self):
        if self._owns_descriptor():
            try:
                # Wakes threads that wait for the socket, which closing it would not.
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side has closed it already

    def _close_socket(self):
        """Close the socket, once no event loop watches its number: the number may be used again at once."""
        if self._sock.fileno() >= 0:
            if self._owns_descriptor():
                self._sock.close()
            else:
                self._sock.detach()


class Waiter:
    begun = abandoned = done = False
    frame = payload = failure = None

    def __init__(self):
        self._woken = queue.SimpleQueue()

    def deliver(self, payload, failure, _loop=None):
        self.payload, self.failure = payload, failure
        self.done = True
        self._woken.put(None)

    def wake(self):
        """Let it check whether it should read."""
        self._woken.put(None)

    def sleep(self):
        try:
            self._woken.get(timeout=MAX_WAIT_S)
        except queue.Empty:
            pass

    def take(self):
        if self.failure is not None:
            raise RuntimeError(self.failure)
        return self.payload


class LoopWaiter:
    begun = abandoned = done = False
    frame = payload = failure = None
    take = Waiter.take

    def __init__(self, loop):
        self.loop = loop
        self.future = loop.create_future() if loop is not None else None

    def deliver(self, payload, failure, loop=None):
        """Set the answer, or why there is none; `loop` is the one that runs in this thread."""
        self.payload, self.failure = payload, failure
        self.done = True
        if loop is self.loop:
            self._wake()
            return
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            pass  # the loop has been closed

    def _wake(self):
        if not self.future.done():
            self.future.set_result(None)
