"""What `get_ipython()` returns until something needs more of it: IPython, or the small shell where there is none."""

import sys

from . import ipython_shell, small_shell

NOT_LOADED = "IPython is installed but could not be loaded (%s: %s); a small set of magics is used instead\n"


class ShellLoader:
    """Loads the shell of a session when it is first needed."""

    is_loaded = False

    def __init__(self, cells):
        self._cells = cells
        self.public = ZMQLikeShellStub(self)

    def load(self):
        """Load the shell, and use it from now on."""
        if self._cells.shell is self:
            try:
                self._cells.shell = ipython_shell.load(self._cells) or small_shell.SmallShell(self._cells)
            except Exception as error:
                self._cells.shell = small_shell.SmallShell(self._cells)
                sys.stderr.write(NOT_LOADED % (type(error).__name__, error))
        return self._cells.shell


class ZMQLikeShellStub:
    """Looks like the shell, and loads it at the first use of an attribute.

    pandas looks for "zmq" in the name of the class, and then shows values as in a notebook.
    """

    # With this attribute, pandas shows tables as in a notebook.
    kernel = None

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader.load().public, name)
