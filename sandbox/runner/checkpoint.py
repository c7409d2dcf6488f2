"""Taking a checkpoint: a fork of the session that sleeps until it is woken to go on in the session's place."""

import _socket
import ctypes
import errno
import os
import signal
import socket
import stat
import sys
import time
from select import POLLIN, poll

from . import children, stdio, system, wire

HANGING_UP_MS = 1000
SLEEPERS_OOM_SCORE = 500
# A block may come to write to every page that the checkpoint shares with it.
SESSION_MEMORY_SHARE = 0.45
SANDBOX_MEMORY_SHARE = 0.95
# The copy of a smaller heap is not worth asking what else is used.
LEAST_MEMORY_SHARE = 0.1
# How often to look, a millisecond apart, whether the memory of a checkpoint that is ending has become free.
ENDING_LOOKS = 50
LARGE_HEAP = "the session uses nearly half of the memory limit"
NO_ROOM_FOR_COPY = "what the session and the files in memory use leaves no room for a copy of it"
_EVERY_SIGNAL = signal.valid_signals()
# The C library's sets of signals: Python's own call makes an object of each, and memory that is written to has to be copied.
_ALL_BLOCKED = ctypes.create_string_buffer(b"\xff" * 128, 128)
# Taken here, because user code may come to replace what the module holds.
_next_signal, _sleep = signal.sigtimedwait, time.sleep
# These keep Python's lock: a fork of a process with threads might never get it back.
_calls = ctypes.PyDLL(None, use_errno=True)
_call_fork, _close, _dup3, _recv = _calls.fork, _calls.close, _calls.dup3, _calls.recv
_set_mask = _calls.pthread_sigmask
_before_fork, _after_fork_in_parent, _after_fork_in_child = (
    _calls.PyOS_BeforeFork,
    _calls.PyOS_AfterFork_Parent,
    _calls.PyOS_AfterFork_Child,
)
_get_handler = signal.getsignal
# The last two are the C library's own.
_CAUGHT_ANYWAY = sum(1 << number - 1 for number in (signal.SIGINT, system.LAST_WORDS, 32, 33))
_byte = ctypes.create_string_buffer(1)


class Taker:
    """Takes the checkpoints of this process, and knows which of its children they are.

    Args:
        memory_limit: Bytes that the sandbox may use, or None.
        open_up: Makes a process an ordinary one, which code of the same user may look into and the kernel may kill.
    """

    def __init__(self, memory_limit, open_up):
        self._memory_limit = memory_limit
        self._open_up = open_up
        self._mask = ctypes.create_string_buffer(128)
        self.taken = children.Checkpoints()

    def too_large(self):
        """Why no checkpoint should be taken, or None; a checkpoint that is ending gives its memory back in a moment."""
        for _ in range(ENDING_LOOKS):
            reason = too_large(self._memory_limit)
            if reason != NO_ROOM_FOR_COPY:
                return reason
            _sleep(0.001)
            self.taken.reap()
        return NO_ROOM_FOR_COPY

    def take(self, fd, unneeded):
        """Fork a child that sleeps with the memory of now.

        It keeps what is open here but for pipes and sockets: who is at their other end waits for the last holder to close
        them. Their numbers are not given to something else: in their place is a socket that has lost its other end.

        Args:
            fd: The child's socket to the supervisor; a frame on it wakes the child, its end ends it.
            unneeded: Descriptors that the child is to close.

        Returns:
            The child's number; 0 in the child, once it has been woken.

        Raises:
            OSError: There can be no more processes.
        """
        held = _pipes_and_sockets(fd, *unneeded)
        pid = self._take_and_wait(fd, unneeded, held) if held else self._fork(fd, unneeded)
        if pid:
            self.taken.add(pid)
        return pid

    def _take_and_wait(self, fd, unneeded, held):
        """Go on only when the child has let go of what this process holds: the block may close it, and expect an effect."""
        hung_up, hanging_up = os.pipe()
        dead, pid = _dead_socket(), None
        try:
            pid = self._fork(fd, [*unneeded, hung_up, dead, hanging_up], held, dead)
        finally:
            if pid != 0:
                wire.close_all((hanging_up, dead))
                if pid:
                    _wait_for_end(hung_up)
                os.close(hung_up)
        return pid

    def _fork(self, fd, unneeded, held=(), dead=None):
        """Fork a child that the block can't reach into, though it has the same user: it may be put back to its memory.

        It hears no signal in its sleep: what has handlers in the session would run there, beyond the block and its deadline.
        Before it sleeps it does as little as can be: each page that it writes to has to be copied first.
        """
        # Set before the fork, because the child comes to run at some time, and the block at once.
        system.adjust_oom_score(SLEEPERS_OOM_SCORE)
        system.prctl(system.PR_SET_DUMPABLE, 0)
        _set_mask(signal.SIG_BLOCK, _ALL_BLOCKED, self._mask)
        try:
            _before_fork()
            pid = _call_fork()
            if pid == 0:
                for each in held:
                    _dup3(dead, each, os.O_CLOEXEC)
                for each in unneeded:
                    _close(each)
                os.setsid()
                _await_call(fd)
                _after_fork_in_child()
                # Signals that have come in its sleep were for nobody.
                while _next_signal(_EVERY_SIGNAL, 0) is not None:
                    pass
            else:
                failure = ctypes.get_errno()
                _after_fork_in_parent()
        finally:
            self._open_up()
            _unblock(self._mask)
        if pid < 0:
            raise OSError(failure, os.strerror(failure))
        return pid


def too_large(memory_limit, pid="self"):
    """Why the kernel might have to kill the block if it wrote to all that a checkpoint shares with its session, or None.

    Args:
        memory_limit: Bytes that the sandbox may use, or None.
        pid: The session's process.
    """
    own = system.resident_bytes(pid) if memory_limit else 0
    if own <= (memory_limit or 0) * LEAST_MEMORY_SHARE:
        return None
    if own > memory_limit * SESSION_MEMORY_SHARE:
        return LARGE_HEAP
    if (system.memory_in_use() or 0) + own > memory_limit * SANDBOX_MEMORY_SHARE:
        return NO_ROOM_FOR_COPY
    return None


def all_is_quiet():
    """Whether nothing of the session's can run until its next block: no thread, no handler of a signal, no trace function."""
    if len(os.listdir("/proc/self/task")) > 1 or sys.gettrace() or sys.getprofile():
        return False
    handler, words = _get_handler(signal.SIGINT), _get_handler(system.LAST_WORDS)
    if callable(handler) and handler is not signal.default_int_handler:
        return False
    if callable(words) and getattr(words, "__module__", None) != stdio.__name__:
        return False
    with open("/proc/self/status", "rb") as file:
        caught = int(file.read().partition(b"SigCgt:")[2].split(None, 1)[0], 16)
    return not caught & ~_CAUGHT_ANYWAY


def _await_call(fd):
    """Sleep until there is a frame, which is left where it is; end at the end of the stream."""
    while True:
        count = _recv(fd, _byte, 1, socket.MSG_PEEK)
        if count > 0:
            return
        if count == 0 or ctypes.get_errno() != errno.EINTR:
            os._exit(0)


def _unblock(mask):
    try:
        _set_mask(signal.SIG_SETMASK, mask, None)
        for _ in range(2):
            pass  # here Python looks for signals
    except BaseException:  # a handler of the last block's has run, and its exception is nobody's
        pass


def _pipes_and_sockets(*but):
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue  # the listing's own
        if fd > 2 and fd not in but and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            found.append(fd)
    return found


def _dead_socket():
    dead, other = _socket.socketpair()
    other.close()
    return dead.detach()


def _wait_for_end(fd):
    """Wait until the other end of a pipe is closed; code of the same user could keep that from ever coming."""
    waiting = poll()
    waiting.register(fd, POLLIN)
    waiting.poll(HANGING_UP_MS)
