"""The shell of a session where IPython is not installed: the magics and commands that code needs most."""

import sys

from . import cell_text, commands, magics, values

UNKNOWN = "there is no magic %s here, because IPython is not installed; there are %s"


class Lines(list):  # type: ignore[type-arg]
    """The lines that a command has written.

    Attributes as in IPython: `n` and `s` are the text, joined by line breaks and by spaces.
    """

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)


class ZMQLikeShellStub:
    """Looks like the shell, and loads it at the first use of an attribute.

    pandas looks for "zmq" in the name of the class and for the attribute `kernel`, and then shows values as in a notebook.
    """

    kernel = None

    def __init__(self, cells):
        self._cells = cells

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._cells.load_shell().public, name)


class ZMQLikeSmallShell:
    """Translates what is special in a cell, and has the part of IPython's interface that translated cells use."""

    kernel = None

    def __init__(self, cells):
        self._cells = cells
        self.public = self
        self.magics = magics.Magics(cells)

    def translate(self, text):
        first = "".join(text.split(None, 1)[:1])
        is_command = "\n" not in text.strip() and hasattr(self.magics, "line_" + first)
        return cell_text.translate("%" + text.lstrip() if is_command else text)

    def begin_cell(self, text):
        """Do nothing: there are no extensions that wait for cells."""

    def end_cell(self, text, error):
        """Do nothing, as `begin_cell`."""

    def text_of(self, value):
        return values.own_text(value)

    @property
    def user_ns(self):
        return self._cells.namespace

    def run_line_magic(self, name, line):
        function = getattr(self.magics, "line_" + name, None)
        if function is None:
            raise self._unknown("%" + name)
        if name != "time":
            line = commands.expand(line, self._visible())
        return function(line)

    def run_cell_magic(self, name, line, cell):
        if name in magics.SCRIPTS:
            return magics.script_magic(name)(commands.expand(line, self._visible()), cell)
        function = getattr(self.magics, "cell_" + name, None)
        if function is None:
            raise self._unknown("%%" + name)
        return function(line, cell)

    def system(self, command):
        self.user_ns["_exit_code"] = commands.run(commands.expand(command, self._visible()))

    def getoutput(self, command):
        text, self.user_ns["_exit_code"] = commands.output(commands.expand(command, self._visible()))
        return Lines(text.splitlines())

    def _visible(self):
        """Return the variables that the code of the calling cell sees."""
        caller = sys._getframe(2)
        return dict(self.user_ns, **caller.f_locals) if caller.f_locals is not self.user_ns else self.user_ns

    def _unknown(self, name):
        return magics.UsageError(UNKNOWN % (name, " ".join(self.magics.names())))
