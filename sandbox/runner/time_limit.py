"""A limit for the time of code that the interpreter itself calls, such as a `_repr_html_`."""

import contextlib
import signal
import threading

# References of its own: user code may replace the functions of the modules.
_signal, _getsignal, _setitimer, _getitimer = signal.signal, signal.getsignal, signal.setitimer, signal.getitimer
_main_thread, _this_thread = threading.main_thread, threading.current_thread


class TimeLimitExceeded(Exception):
    """What was called has taken too long."""


@contextlib.contextmanager
def limited(seconds):
    """Raise `TimeLimitExceeded` in the block of code if it takes too long; code that catches it has the block's time.

    There is no limit outside the main thread, or while the code uses the alarm itself.
    """
    if _this_thread() is not _main_thread() or _getitimer(signal.ITIMER_REAL)[0] or not _is_free():
        yield
        return
    before = _signal(signal.SIGALRM, _expire)
    _setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        _setitimer(signal.ITIMER_REAL, 0)
        _signal(signal.SIGALRM, before)


def _is_free():
    return _getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN, None)


def _expire(_number, _frame):
    raise TimeLimitExceeded("it took too long")
