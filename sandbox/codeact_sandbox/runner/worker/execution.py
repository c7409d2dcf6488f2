"""Running Python code, and how it ended; `cells` runs that of sessions."""

import atexit
import builtins
import errno
import gc
import io
import linecache
import os
import stat
import sys
import threading
import traceback
import types

from . import figures, stdio

VALUE_LIMIT = 64 * 1024
MESSAGE_LIMIT = 16 * 1024
NAME_LIMIT = 200
CHAIN_LIMIT = 20
PRINTED_LIMIT = 2 * 1024 * 1024  # above the usual limit of an output, so that a result says that it was cut
# Files whose lines are left out of tracebacks: the author of the code can change nothing there.
_own_files = ("<codeact ", "<host_tools.")


class Outcome:
    def __init__(self, exit_code=0, value=None, error=None):
        self.exit_code = exit_code
        self.value, self.plain = value or (None, None)
        self.error = error

    def message(self):
        return {"exit_code": self.exit_code, "value": self.value, "plain": self.plain, "error": self.error}


def new_main():
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module.__dict__


# What finalizers use goes last: modules, functions, classes and constants.
_USED_BY_FINALIZERS = (types.ModuleType, types.FunctionType, type, str, bytes, int, float)
_WRITES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def end_interpreter(namespace, threads_s=None):
    """Do what Python does at its end, before the process exits: wait for threads, call exit handlers, close files.

    The variables go in reverse order, so that finalizers still find what was defined before. With `threads_s`, the
    wait for threads ends after so many seconds.
    """
    try:
        waiting = threading.Thread(target=threading._shutdown, daemon=True)
        if threads_s is None:
            waiting.run()
        else:
            _flush_files()  # exit handlers may take too long
            waiting.start()
            waiting.join(threads_s)
        atexit._run_exitfuncs()
        stdio.flush()
    except BaseException as error:  # atexit prints what exit handlers raise; the exit code stays
        sys.__stderr__.write("%s in an exit handler\n" % type(error).__name__)
    for name in reversed(list(namespace)):
        if not issubclass(type(namespace.get(name)), _USED_BY_FINALIZERS):
            namespace.pop(name, None)
    gc.collect()
    _flush_files()
    stdio.flush()


def _flush_files():
    for file in gc.get_objects():
        if issubclass(type(file), _WRITES):
            _flush_if_on_disk(file)


def _flush_if_on_disk(file):
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a thread may hold the lock of a pipe that nothing reads
            file.flush()
    except Exception:
        pass  # it is closed, detached, or the disk is full


def hide_folders(*folders):
    """Leave functions of files in these folders out of tracebacks, too."""
    global _own_files  # noqa: PLW0603
    _own_files += tuple(folder + "/" for folder in folders)


def run_script(code, filename, namespace):
    text = code.decode("utf-8-sig", "replace")  # an old encoding line (PEP 263) is not true of what came as text
    return run_guarded(filename, lambda: exec(compile(text, filename, "exec", dont_inherit=True), namespace))


def run_guarded(filename, run):
    outcome = _run_to_end(filename, run)
    if figures.Settings.pending:
        # An error in it is printed; the code itself has ended before.
        _run_to_end(filename, figures.flush)
    return outcome


def _run_to_end(filename, run):
    try:
        return Outcome(value=run())
    except SystemExit as exit_request:
        return _exit_outcome(exit_request)
    except BaseException as error:  # whatever user code raises is its result
        return _error_outcome(error, filename)


def _exit_outcome(exit_request):
    code = exit_request.code
    if code is None:
        return Outcome()
    if isinstance(code, int):
        return Outcome(exit_code=code & 0xFF)
    print_error(stdio.text_of(code) + "\n")
    return Outcome(exit_code=1)


def _error_outcome(error, filename):
    kind, name = type(error), stdio.text_of(type(error).__name__)[:NAME_LIMIT]
    # The first entries are this file's own.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    trace = without_own_entries(trace)
    _shorten_chain(error)
    unparsed = _is_unparsed(error, filename)
    if unparsed:
        trace = None  # the block was not run; the remaining entries are the parser's
    line = SyntaxError.lineno.__get__(error) if unparsed else _line_of(trace, filename)
    try:
        if trace is not None and sys.excepthook is not sys.__excepthook__:
            sys.excepthook(kind, error, trace)
        else:
            print_error(formatted(kind, error, trace))
    except BaseException:  # the exception's __str__ or the block's excepthook has raised
        print_error("%s (its message could not be shown)\n" % name)
    exit_code = 130 if isinstance(error, KeyboardInterrupt) else 1
    # `str` of a parser's error ends with the file and the line.
    message = stdio.text_of(SyntaxError.msg.__get__(error) if unparsed else error)
    return Outcome(exit_code, error={"type": name, "message": message[:MESSAGE_LIMIT], "line": line})


def formatted(kind, error, trace):
    """Return the traceback of an exception as text; long messages are cut before they are copied."""
    whole = traceback.TracebackException(kind, error, trace)
    waiting = [whole]
    while waiting:
        each = waiting.pop()
        each._str = _cut(each._str)
        causes = [each.__cause__, each.__context__] + list(getattr(each, "exceptions", None) or ())
        waiting += [cause for cause in causes if cause is not None]
    return "".join(whole.format())


def _cut(text):
    if not isinstance(text, str) or len(text) <= PRINTED_LIMIT:
        return text
    half = PRINTED_LIMIT // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def _shorten_chain(error):
    for _ in range(CHAIN_LIMIT):
        error = error.__cause__ or error.__context__
        if error is None:
            return
        error.__traceback__ = without_own_entries(error.__traceback__)


def without_own_entries(trace):
    """Remove the entries of this package and of the functions of host tools."""
    entries = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_own_files):
            entries.append(trace)
        trace = trace.tb_next
    for entry, following in zip(entries, entries[1:] + [None]):
        entry.tb_next = following
    return entries[0] if entries else None


def _is_unparsed(error, filename):
    """Return whether it is the parser's error about this code. A class of the block may override every attribute."""
    if not issubclass(type(error), SyntaxError):
        return False
    name, line = SyntaxError.filename.__get__(error), SyntaxError.lineno.__get__(error)
    return type(name) is str and name == filename and (line is None or type(line) is int)


def _line_of(trace, filename):
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def print_error(text):
    text = _cut(text)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # the block may have closed or replaced it
        try:
            os.write(2, text.encode("utf-8", "replace"))
        except OSError:
            pass  # it has also closed the descriptor: the error is still in the result


# The file of a block's code: in the workspace, or only in memory if there is no space

_CODE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def save_code(path, data):
    """Write a block's code to its file; return False if there was no space: then it must run from memory."""
    try:
        _write_code(path, data)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        return False
    return True


def _write_code(path, data):
    try:
        fd = os.open(path, _CODE_FLAGS, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, _CODE_FLAGS, 0o644)
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
