"""The shell of a session where IPython is installed: its input transformer, magics and formatters."""

import importlib.util
import os
import re
import sys

from . import commands, displays, execution, figures, imports, ipython_display, magics, tools

_COLORS = re.compile("\x1b\\[[\\d;]*m")
NO_EDITOR = "there is no editor here, because there is no terminal: use %%writefile"
NO_BROWSER = (
    "there is no browser here: run JavaScript as a block of the language `javascript` (%%sandbox --language javascript)"
)


def load(cells):
    with imports.own_path():
        found = importlib.util.find_spec("IPython")
        if found is None or isinstance(found.loader, ipython_display.Finder):
            return None
        return IPythonShell(cells)


class IPythonShell:
    def __init__(self, cells):
        namespace = cells.namespace
        saved = {name: namespace[name] for name in ("_", "__", "___") if name in namespace}
        had_open = "open" in namespace
        self.public = _shell_class(cells).instance(
            config=_configuration(), user_module=sys.modules["__main__"], user_ns=namespace
        )
        self._kinds = imports.own_import("IPython.core.interactiveshell")
        namespace.update(saved)
        if not had_open:
            namespace.pop("open", None)
        _register(self.public, cells)
        # In memory: IPython would make files, or warn that a package for that is missing.
        self.public.db = {}
        displays.State.format = self.public.display_formatter.format
        displays.State.capture = self._capture
        execution.hide_folders(os.path.dirname(sys.modules["IPython"].__file__))

    def begin_cell(self, text):
        self.public.events.trigger("pre_execute")
        self.public.events.trigger("pre_run_cell", self._info(text))

    def end_cell(self, text, error):
        result = self._kinds.ExecutionResult(self._info(text))
        result.error_in_exec = error
        self.public.events.trigger("post_execute")
        self.public.events.trigger("post_run_cell", result)

    def _info(self, text):
        return self._kinds.ExecutionInfo(text, True, False, True, None)

    def _capture(self, data, metadata):
        """Give a display to `%%capture`, if that is running; return whether it is."""
        publisher = self.public.display_pub
        if isinstance(publisher, SessionPublisher):
            return False
        publisher.publish(data, metadata)
        return True

    def translate(self, text):
        return self.public.transform_cell(text)

    def text_of(self, value):
        return self.public.display_formatter.formatters["text/plain"](value)


def _configuration():
    config = imports.own_import("traitlets.config").Config()
    # Its thread would prevent checkpoints from being taken ahead.
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.ipython_dir = os.path.join(imports.own_import("tempfile").gettempdir(), ".ipython")
    return config


def _shell_class(cells):
    shell = imports.own_import("IPython.core.interactiveshell").InteractiveShell
    hook = imports.own_import("IPython.core.displayhook").DisplayHook
    hook = type("SessionDisplayHook", (SessionDisplayHook, hook), {"cells": cells})
    publisher = imports.own_import("IPython.core.displaypub").DisplayPublisher
    publisher = type("SessionPublisher", (SessionPublisher, publisher), {})
    attributes = {"cells": cells, "own_magics": _own_magics(), "__module__": __name__}
    attributes.update(displayhook_class=hook, display_pub_class=publisher)
    # pandas looks for "zmq" in the name, and then shows values as in a notebook.
    return type("ZMQLikeShell", (SessionShell, shell), attributes)


class SessionDisplayHook:
    """What replaces methods of IPython's display hook, which shows values of code that magics run."""

    cells = None

    def __call__(self, result=None):
        if result is not None:
            self.cells.show(result)
            self.fill_exec_result(result)


class SessionPublisher:
    """What replaces methods of IPython's publisher of displays."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_options):
        displays.publish(data, metadata, (transient or {}).get("display_id"), update)

    def clear_output(self, wait=False):
        displays.clear()


class SessionShell:
    """What replaces methods of IPython's shell: there is no terminal, no debugger and no file of earlier inputs."""

    cells = None
    own_magics = None
    # With this attribute, pandas shows tables as in a notebook.
    kernel = None

    def init_user_ns(self):
        super().init_user_ns()
        # Python's own end only the cell.
        for name in ("exit", "quit"):
            self.user_ns.pop(name, None)
        hidden = dict(tools.public(), **self.cells.history())
        self.user_ns.update(hidden)
        self.user_ns_hidden.update(hidden)

    def init_virtualenv(self):
        """Change nothing: the sandbox's interpreter is the right one."""

    def system(self, cmd):
        self.user_ns["_exit_code"] = commands.run(self.var_expand(cmd, depth=1))

    system_piped = system_raw = system

    def getoutput(self, cmd, split=True, depth=0):
        text, self.user_ns["_exit_code"] = commands.output(self.var_expand(cmd, depth=depth + 1))
        kinds = imports.own_import("IPython.utils.text")
        return kinds.SList(text.splitlines()) if split else kinds.LSString(text)

    def find_magic(self, magic_name, magic_kind="line"):
        return self.own_magics.get((magic_kind, magic_name)) or super().find_magic(magic_name, magic_kind)

    def _find_with_lazy_load(self, type_, magic_name):
        if magic_name == "config":
            # Not earlier: it imports matplotlib.
            _follow_figure_settings(self)
        return self.own_magics.get((type_, magic_name)) or super()._find_with_lazy_load(type_, magic_name)

    def del_var(self, varname, by_name=False):
        """Delete a variable, and everything that refers to its value."""
        # IPython looks there; the result of each cell would be there if IPython had run it.
        self.last_execution_result = imports.own_import("IPython.core.interactiveshell").ExecutionResult(None)
        super().del_var(varname, by_name)

    def enable_gui(self, gui=None):
        """Change nothing: there is no window."""

    def enable_matplotlib(self, gui=None):
        return magics.enable_matplotlib()

    def debugger(self, force=False):
        _no_debugger()

    def ask_exit(self):
        raise SystemExit

    def _showtraceback(self, etype, evalue, stb):
        execution.print_error(execution.formatted(etype, evalue, execution.without_own_entries(evalue.__traceback__)))


def _register(shell, cells):
    """Replace what would wait for a user, or start a thread."""
    history = shell.history_manager
    history.input_hist_parsed = history.input_hist_raw = cells.inputs
    history.output_hist = cells.values
    shell.set_hook("show_in_pager", _show_page, 0)
    # Figures of `%%capture` belong to what it captures.
    shell.events.register("post_execute", figures.flush)


def _own_magics():
    """Return the magics that replace IPython's, by kind and name: those would wait for a user, or start a thread."""
    own = {("cell", name): magics.script_magic(name) for name in magics.SCRIPTS}
    own.update({(kind, name): _no_debugger for kind in ("line", "cell") for name in ("debug", "pdb")})
    own.update({("line", name): _refusing(NO_EDITOR) for name in ("edit", "ed")})
    own.update({("cell", name): _refusing(NO_BROWSER) for name in ("js", "javascript")})
    # IPython's asks to restart a kernel.
    own["line", "pip"] = magics.run_pip
    return own


def _follow_figure_settings(shell):
    """Let `%config InlineBackend` set how figures are shown, as in a notebook."""
    try:
        settings = imports.own_import("matplotlib_inline.config").InlineBackend.instance(parent=shell)
    except ImportError:
        return
    if settings in shell.configurables:
        return
    shell.configurables.append(settings)
    settings.observe(lambda change: figures.set_formats(change["new"]), "figure_formats")
    settings.observe(lambda change: setattr(figures.Settings, "close_figures", change["new"]), "close_figures")


def _show_page(_shell, data, **_options):
    text = data.get("text/plain", "") if isinstance(data, dict) else data
    sys.stdout.write(_COLORS.sub("", text).rstrip("\n") + "\n")


def _refusing(reason):
    def refuse(_line, _cell=None):
        raise magics.UsageError(reason)

    return refuse


def _no_debugger(*_args):
    sys.stderr.write("there is no debugger here, because there is no terminal: print the values instead\n")
