"""Prepares a worker's interpreter to run code: for one script (process mode), or for all blocks of a session."""

import builtins
import os
import signal
import sys

from ..shared import packages, wire
from . import cell_loop, cell_text, cells, display, displays, execution, imports, stdio, tools

THREADS_S = 1.0
WARM_UP_NAME = "<warm-up>"
# References of its own: user code may replace the functions of the module.
_get_handler, _set_handler = signal.getsignal, signal.signal
WARM_UP_CODE = b"x = str(1)\nx and None"
# Like the requests that come, so that it touches the same memory.
WARM_UP_REQUEST = dict(
    dict.fromkeys("command keep_state scan cpu_seconds delete tools tool_sources installs".split()),
    **dict.fromkeys(("path", "hide"), "/workspace/tmp_code_%064d.py" % 0),
    environment={WARM_UP_NAME: "/tmp"},
    unset=[WARM_UP_NAME],
    timeout=60.0,
    number=1000,
    cwd="/workspace",
    mode="process",
    fds=2,
)


class ScriptInterpreter:
    def __init__(self):
        stdio.open_streams()
        self.namespace = execution.new_main()

    def warm_up(self):
        """Run what the next block is sure to run, without effect.

        In the zygote, Python specializes its own bytecode by that; in a process that waits for its block, memory that the block
        will write to is copied before the block comes.
        """
        request = _exchange_messages()
        set_variables(request)
        displays.begin(lambda *_: None, "")
        outcome = execution.run_script(b"print(0)", request["path"], dict({"__builtins__": builtins}, **tools.public()))
        stdio.flush()
        displays.end()
        wire.unpack(wire.pack(wire.BLOCK_DONE, 0, outcome.message())[wire.HEADER.size :])

    def run(self, code, path, tool_sources):
        sys.argv = [path]
        # Not earlier: the zygote must not import anything from the workspace.
        sys.path.insert(0, os.path.dirname(path))
        if tool_sources:
            tools.add(tool_sources)
        self.namespace.update(tools.public(), __file__=path)
        outcome = execution.run_script(packages.translated(code), path, self.namespace)
        if (
            outcome.error
            and outcome.error["type"] == "SyntaxError"
            and (
                outcome.error["message"].startswith(("'await' outside", "asynchronous comprehension outside"))
                or cell_text.is_special(code.decode("utf-8", "replace").lstrip(" \t"))
            )
        ):
            execution.print_error(
                "In process mode a block is a script. `!`, `%` and `await` outside of a function need a session.\n"
            )
        return outcome


class SessionInterpreter:
    """The live namespace of a session, its streams, and what a block may have damaged."""

    def __init__(self):
        builtins.display = display.display
        self.namespace = execution.new_main()
        self.namespace.update(tools.public())
        self.cells = cells.Cells(self.namespace, cell_loop.CellLoop())
        imports.Hooks.definitions_file = self.cells.definitions.file
        _replace_interactive(lambda: self.cells.public)
        self.streams = stdio.SessionStreams()
        self.streams.patch_threads()
        displays.State.is_late = self.streams.is_late
        self._builtins = dict(vars(builtins))
        self._modules = dict(sys.modules)
        self._start_state = None
        sys.argv = [""]
        sys.path.insert(0, "")

    def begin(self, request):
        """Prepare a block: its number, directory, environment and standard streams."""
        self.streams.begin(request["number"])
        if request["cwd"] is not None:
            change_directory(request["cwd"])
        set_variables(request)
        self._start_state = (_cwd(), _environment())

    def run(self, code, request, on_not_saved):
        try:
            if request["path"] and not execution.save_code(request["path"], code):
                on_not_saved()
        except OSError as error:
            return cannot_save(request["path"], error)
        return self.cells.run(code, request["path"] or "<block %d>" % request["number"])

    def end_interpreter(self):
        """Do what Python does at its end; only the process stays until the sandbox ends."""
        self.cells.forget_values()
        for name in ("last_exc", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        execution.end_interpreter(self.namespace, THREADS_S)

    def warm_up(self):
        """Write to the memory that any block writes to, so that what a checkpoint shares is copied before the block."""
        _exchange_messages()
        _cwd()
        _environment()
        displays.begin(lambda *_: None, "")
        cells.Cells({"__builtins__": builtins}, cell_loop.NoLoop()).run(WARM_UP_CODE, WARM_UP_NAME)
        execution.hide_lines(WARM_UP_NAME)
        displays.end()
        self.restore_builtins()

    def restore_builtins(self):
        """Restore builtins that a block has replaced; those that it has added stay."""
        vars(builtins).update(self._builtins)

    def restore_modules(self):
        """Restore modules that a block has removed."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is None:
                sys.modules[name] = module

    def end(self):
        stdio.flush()
        _drop_readline_handler()
        fields = {"late": self.streams.end()}
        end_state = (_cwd(), _environment())
        if end_state != self._start_state:
            before, after = _decoded(self._start_state[1]), _decoded(end_state[1])
            fields["cwd"] = end_state[0]
            fields["environment"] = {name: value for name, value in after.items() if before.get(name) != value}
            fields["unset"] = [name for name in before if name not in after]
        return fields


def _exchange_messages():
    """Make and read messages as they come and go around a block; return the request."""
    frame = wire.pack(wire.RUN_BLOCK, 0, WARM_UP_REQUEST, WARM_UP_CODE)
    ((_, _, payload),) = wire.Parser().feed(frame)
    request, _ = wire.unpack(payload)
    wire.check_report(wire.pack(wire.BLOCK_DONE, 0, execution.Outcome().message())[wire.HEADER.size :])
    return request


def enter_environment(request):
    change_directory(request["cwd"])
    set_variables(request)


def change_directory(folder):
    """Change to a directory; write a message if that is not possible."""
    try:
        os.chdir(folder)
    except OSError as error:  # it may have been removed since
        os.write(2, ("%s: %s; this block runs in %s\n" % (folder, error.strerror, _cwd())).encode("utf-8", "replace"))


def set_variables(request):
    for name, value in request["environment"].items():
        os.environ[name] = value
    for name in request["unset"]:
        os.environ.pop(name, None)


def cannot_save(path, error):
    """Write that the code could not be saved; return the outcome of its block."""
    message = "the code could not be saved as %s: %s" % (path, error.strerror)
    os.write(2, (message + "\n").encode("utf-8", "replace"))
    return execution.Outcome(1, error={"type": type(error).__name__, "message": message, "line": None})


def _drop_readline_handler():
    """Stop catching a signal of terminals, as readline does once IPython or a debugger has imported it.

    There is no terminal, and while a signal is caught no checkpoint can be taken ahead.
    """
    if "readline" in sys.modules and _get_handler(signal.SIGWINCH) == signal.SIG_DFL:
        _set_handler(signal.SIGWINCH, signal.SIG_DFL)


def _environment():
    """Return a copy of the environment, as bytes where Python stores bytes: decoding it takes longer than a short block."""
    return dict(getattr(os.environ, "_data", os.environ))


def _decoded(environment):
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}


def _cwd():
    try:
        return os.getcwd()
    except OSError:
        return None


# Functions that would wait for a user

NO_INPUT = (
    "%s can't be answered here, without a terminal: put the value into the code, "
    "read it from a file or a variable of the environment, or ask for it in your answer"
)


def _replace_interactive(get_ipython):
    def ask(prompt="", /):
        """Raise an error that says what to do instead: there is no user at a terminal."""
        raise EOFError(NO_INPUT % "input()")

    ask.__name__ = ask.__qualname__ = "input"

    def public():
        return get_ipython()

    public.__name__ = public.__qualname__ = "get_ipython"
    builtins.input = ask
    builtins.get_ipython = public
    sys.breakpointhook = sys.__breakpointhook__ = _skip
    _fit_pandas()


def _skip(*_args, **_options):
    sys.stderr.write(
        "breakpoint() does nothing here: there is no debugger, because there is no terminal; print the values instead\n"
    )


def _fit_pandas():
    """Let pandas show tables as in a notebook; it finds that out itself if a cell imports it."""
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and pandas.get_option("display.max_columns") == 0:
            pandas.set_option("display.max_columns", 20)
    except Exception:
        pass  # whatever is imported under that name
