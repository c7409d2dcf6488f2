"""The file of a block's code: in the workspace, or only in memory if there is no space."""

import errno
import io
import linecache
import os

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def save(path, data):
    """Write a block's code to its file; return False if there was no space: then it must run from memory."""
    try:
        _write(path, data)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return False
    return True


def _write(path, data):
    try:
        fd = os.open(path, FLAGS, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, FLAGS, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.unlink(path)  # part of a program is worse than none
        raise
    finally:
        os.close(fd)


def show_lines(name, data):
    """Let tracebacks show lines of code that is in no file."""
    # As `linecache` does: split as Python splits lines, each with its line end; otherwise carets are off by one.
    lines = io.StringIO(data.decode("utf-8", "replace"), None).readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not isinstance(linecache.cache, dict):
        linecache.cache = {}
    linecache.cache[name] = (len(data), None, lines, name)


def hide_lines(name):
    if isinstance(linecache.cache, dict):
        linecache.cache.pop(name, None)


def in_memory(data):
    """Write a script to memory, where an interpreter can open it by a path."""
    fd = os.memfd_create("block", 0)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return "/proc/self/fd/%d" % fd
