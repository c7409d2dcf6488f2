"""Threads and processes with which libraries help themselves, and that a restored checkpoint does not have."""

import contextlib
import ctypes
import gc
import os
import sys
import threading

# Loads nothing: finds a library that is loaded already (Linux's RTLD_NOLOAD).
_NO_LOAD = 4
_PAUSE_HARD = 2
_TRACKERS = (
    ("multiprocessing.resource_tracker", "_resource_tracker"),
    ("multiprocessing.forkserver", "_forkserver"),
    ("loky.backend.resource_tracker", "_resource_tracker"),
    ("joblib.externals.loky.backend.resource_tracker", "_resource_tracker"),
)
_EXECUTORS = (
    ("loky.reusable_executor", "_executor"),
    ("joblib.externals.loky.reusable_executor", "_executor"),
    ("joblib.executor", "_executor_args"),
)


def end_openmp_threads():
    """End the threads of GNU's OpenMP before a fork: in the fork they are gone, and the library would wait for them.

    It starts them again when it needs them.
    """
    if len(os.listdir("/proc/self/task")) < 2:
        return
    with open("/proc/self/maps", "rb") as file:
        paths = {os.fsdecode(line.split(None, 5)[5].strip()) for line in file if b"/libgomp" in line}
    for path in paths:
        with contextlib.suppress(OSError, AttributeError):  # GCC before 9 has no such function
            ctypes.CDLL(path, _NO_LOAD).omp_pause_resource_all(_PAUSE_HARD)


def forget_helpers():
    """In a restored checkpoint, let libraries start their helpers anew."""
    for module, name in _TRACKERS:
        with contextlib.suppress(Exception):  # another version of the module, or the code has changed it
            getattr(sys.modules[module], name).__init__()
    for module, name in _EXECUTORS:
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, None)
    for pool in _instances("concurrent.futures.thread", "ThreadPoolExecutor"):
        pool._threads.clear()
        pool._idle_semaphore = threading.Semaphore(0)
        pool._work_queue = type(pool._work_queue)()
    for pool in _instances("concurrent.futures.process", "ProcessPoolExecutor"):
        kind = sys.modules["concurrent.futures.process"].ProcessPoolExecutor
        kind.__init__(pool, pool._max_workers, pool._mp_context, pool._initializer, pool._initargs)
    for pool in _instances("multiprocessing.pool", "Pool"):
        pool._state = "TERMINATE"  # its next use fails at once


def _instances(module, name):
    kind = getattr(sys.modules.get(module), name, None)
    return [] if kind is None else [each for each in gc.get_objects() if issubclass(type(each), kind)]
