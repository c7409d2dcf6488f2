"""Taking a checkpoint: a fork of the session's process that sleeps until it is woken to continue instead of the session."""

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

from ..shared import system, wire
from . import helpers, stdio

CLOSE_TIMEOUT_MS = 1000
# With that of blocks, the kernel kills a block before the checkpoint that shares its memory, whatever the size of each.
CHECKPOINT_OOM_SCORE = 0
# Of what the checkpoint shares with it, a block seldom writes to more. If it does and memory runs out, the block is killed.
WRITTEN_SHARE = 0.25
SANDBOX_MEMORY_SHARE = 0.95
# A copy of a smaller process always fits: what else is used is not looked up.
ALWAYS_FITS_SHARE = 0.1
# How often to check, each millisecond, whether the memory of an ending checkpoint has become free.
ENDING_CHECKS = 50
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NO_ROOM_FOR_COPY = "what the session and the files in memory use leaves no room for a copy of it"
_EVERY_SIGNAL = signal.valid_signals()
# A signal set of the C library: Python's own call creates objects, and memory that is written to has to be copied.
_ALL_BLOCKED = ctypes.create_string_buffer(b"\xff" * 128, 128)
# References of its own: user code may replace the functions of the modules.
_next_signal, _sleep = signal.sigtimedwait, time.sleep
# PyDLL keeps Python's lock: a forked child of a process with threads might never get it back.
_c = ctypes.PyDLL(None, use_errno=True)
_call_fork, _close, _dup3, _recv = _c.fork, _c.close, _c.dup3, _c.recv
_set_mask = _c.pthread_sigmask
_before_fork, _after_fork_in_parent, _after_fork_in_child = (
    _c.PyOS_BeforeFork,
    _c.PyOS_AfterFork_Parent,
    _c.PyOS_AfterFork_Child,
)
_get_handler = signal.getsignal
# The last two belong to the C library.
ALWAYS_CAUGHT = sum(1 << number - 1 for number in (signal.SIGINT, system.FLUSH_SIGNAL, 32, 33))
_byte = ctypes.create_string_buffer(1)


class CheckpointForker:
    def __init__(self, memory_limit, drop_protection):
        self._memory_limit = memory_limit
        self._drop_protection = drop_protection
        self._mask = ctypes.create_string_buffer(128)
        self.checkpoints = CheckpointProcesses()

    def why_too_large(self):
        """Return why the session is too large for a checkpoint, or None; wait for the memory of one that is ending."""
        for _ in range(ENDING_CHECKS):
            if not why_too_large(self._memory_limit):
                return None
            _sleep(0.001)
            self.checkpoints.reap()
        return NO_ROOM_FOR_COPY

    def fork(self, fd, unneeded):
        """Fork a child that sleeps with the memory of now; return its process, or 0 in the child once it has been woken.

        It keeps what is open here, except pipes and sockets, whose other end would wait until every copy is closed. In the child
        their numbers refer to a socket without another end, so that they are not used for anything else.
        """
        helpers.end_openmp_threads()
        copied = _pipes_and_sockets(fd, *unneeded)
        pid = self._fork_and_wait(fd, unneeded, copied) if copied else self._fork(fd, unneeded)
        if pid:
            self.checkpoints.add(pid)
        return pid

    def _fork_and_wait(self, fd, unneeded, copied):
        """Fork, and wait until the child has closed its copies: the block may close one and expect an effect."""
        wait_end, child_end = os.pipe()
        dead, other = _socket.socketpair()
        other.close()
        dead, pid = dead.detach(), None
        try:
            pid = self._fork(fd, [*unneeded, wait_end, dead, child_end], copied, dead)
        finally:
            if pid != 0:
                wire.close_all((child_end, dead))
                if pid:
                    _wait_for_end(wait_end)
                os.close(wait_end)
        return pid

    def _fork(self, fd, unneeded, copied=(), dead=None):
        """Fork a child that the block can't trace, though it has the same user.

        The child blocks all signals while it sleeps: handlers of the session would run there without a deadline. Before it sleeps
        it does as little as possible, because each page that it writes to is copied.
        """
        # Set before the fork: the child may run later than the block.
        system.adjust_oom_score(CHECKPOINT_OOM_SCORE)
        system.prctl(system.PR_SET_DUMPABLE, 0)
        _set_mask(signal.SIG_BLOCK, _ALL_BLOCKED, self._mask)
        try:
            _before_fork()
            pid = _call_fork()
            if pid == 0:
                for each in copied:
                    _dup3(dead, each, os.O_CLOEXEC)
                for each in unneeded:
                    _close(each)
                os.setsid()
                _sleep_until_frame(fd)
                drawn = _random_state()
                _after_fork_in_child()
                _restore_random_state(drawn)
                # Discard signals that have come meanwhile.
                while _next_signal(_EVERY_SIGNAL, 0) is not None:
                    pass
            else:
                failure = ctypes.get_errno()
                _after_fork_in_parent()
        finally:
            self._drop_protection()
            _unblock(self._mask)
        if pid < 0:
            raise OSError(failure, os.strerror(failure))
        return pid


def why_too_large(memory_limit, pid="self"):
    """Return why a block would have too little memory beside a checkpoint, or None."""
    own = 0
    if memory_limit:
        statm = system.read_small("/proc/%s/statm" % pid)
        if statm is None:
            return "the session has ended"
        own = int(statm.split()[1]) * PAGE_BYTES
    if own <= (memory_limit or 0) * ALWAYS_FITS_SHARE:
        return None
    if (system.memory_in_use() or 0) + own * WRITTEN_SHARE > memory_limit * SANDBOX_MEMORY_SHARE:
        return NO_ROOM_FOR_COPY
    return None


def is_idle():
    """Return whether nothing of the session can run until its next block: no thread, signal handler or trace function."""
    if len(os.listdir("/proc/self/task")) > 1 or sys.gettrace() or sys.getprofile():
        return False
    on_interrupt, on_flush = _get_handler(signal.SIGINT), _get_handler(system.FLUSH_SIGNAL)
    if callable(on_interrupt) and on_interrupt is not signal.default_int_handler:
        return False
    if callable(on_flush) and getattr(on_flush, "__module__", None) != stdio.__name__:
        return False
    return not caught_signals() & ~ALWAYS_CAUGHT


def caught_signals():
    """Return the signals that this process handles, as the bits of a number; also those that a C library handles."""
    found = (system.read_small("/proc/self/status") or b"").partition(b"SigCgt:")[2].split(None, 1)
    # gVisor does not tell.
    return int(found[0], 16) if found else sum(1 << number - 1 for number in _EVERY_SIGNAL if _is_caught(number))


def _is_caught(number):
    action = (ctypes.c_void_p * 32)()  # a sigaction, which begins with the handler's address; 0 and 1 stand for none
    return _c.sigaction(number, None, action) == 0 and action[0] not in (None, 1)


def _sleep_until_frame(fd):
    """Sleep until there is a frame, and do not read it; exit at the end of the stream."""
    while True:
        count = _recv(fd, _byte, 1, socket.MSG_PEEK)
        if count > 0:
            return
        if count == 0 or ctypes.get_errno() != errno.EINTR:
            os._exit(0)


def _random_state():
    """Return the state of the functions of `random`, or None; Python seeds them again in each forked process."""
    try:
        generator = sys.modules["random"]._inst
        return generator, sys.modules["_random"].Random.getstate(generator), generator.gauss_next
    except BaseException:  # it is not imported, or code has replaced a part of it
        return None


def _restore_random_state(drawn):
    if drawn is None:
        return
    generator, state, gauss_next = drawn
    try:
        sys.modules["_random"].Random.setstate(generator, state)
        generator.gauss_next = gauss_next
    except BaseException:  # code has replaced a part of it
        pass


def _unblock(mask):
    try:
        _set_mask(signal.SIG_SETMASK, mask, None)
        for _ in range(2):
            pass  # here Python calls signal handlers
    except BaseException:  # an exception of a handler that belongs to an earlier block
        pass


def _pipes_and_sockets(*excluded):
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue  # the descriptor of the listing
        if fd > 2 and fd not in excluded and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            found.append(fd)
    return found


def _wait_for_end(fd):
    """Wait until the other end of a pipe is closed; not for ever, because code of the same user can prevent it."""
    waiting = poll()
    waiting.register(fd, POLLIN)
    waiting.poll(CLOSE_TIMEOUT_MS)


# Checkpoints are children that the code has not started

MAX_PAUSE_S = 0.01


class CheckpointProcesses:
    """The children that are checkpoints: reaps them, and lets `os.wait` and similar functions see only other children."""

    def __init__(self):
        self._pids = set()

    def add(self, pid):
        self._pids.add(pid)

    def reap(self):
        """Wait for those that have ended: zombies count against the limit of processes."""
        for pid in list(self._pids):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            except ChildProcessError:
                pass  # a child of the process that this one was forked from
            self._pids.discard(pid)

    def hide(self):
        """Replace the functions that wait for any child: code that waits for all children would otherwise never end."""
        waitpid, wait4 = os.waitpid, os.wait4

        def for_any(call, pid, options):
            if pid == -1 and not options & ~os.WNOHANG:
                # If none has ended, the function is called for a living child, and returns in its own way.
                pid = self._ended_child(options) or min(system.children() - self._pids)
            return call(pid, options)

        os.waitpid = lambda pid, options, /: for_any(waitpid, pid, options)
        os.wait4 = lambda pid, options, /: for_any(wait4, pid, options)
        os.wait = lambda: for_any(waitpid, -1, 0)
        os.wait3 = lambda options, /: for_any(wait4, -1, options)

    def _ended_child(self, options):
        """Wait for a child that is not a checkpoint; return None if none has ended and the caller does not want to wait."""
        pause = 0.0005
        while True:
            self.reap()
            if not system.children() - self._pids:
                raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid not in self._pids:
                return ended.si_pid
            if options & os.WNOHANG:
                return None
            time.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_S)
