"""Hooks on imports: what has to be done when the code imports matplotlib or IPython, and nothing before that.

A finder stands at the end of `sys.meta_path` for IPython where that is not installed, and one at its beginning for modules that
are adapted once they are loaded. It looks at names only.
"""

import contextlib
import importlib
import importlib.machinery
import os
import sys
import types

from . import display, figures, ipython_display


class Hooks:
    """What a session does when asyncio has been imported, and the file of its definitions for new interpreters."""

    on_asyncio = None
    definitions_file = None


def install(config):
    figures.Settings.always = config["mode"] != "session"
    own = os.environ.get("MPLBACKEND")
    adapters = {"IPython.core.display_functions": ipython_display.adapt, "plotly.io._renderers": _set_renderer}
    if config["mode"] == "session":
        adapters["multiprocessing.spawn"] = _give_main_file
        adapters["asyncio"] = lambda module: Hooks.on_asyncio and Hooks.on_asyncio(module)
    if "MPLBACKEND" not in (config.get("environment") or {}):
        adapters["matplotlib"] = lambda module: _set_backend(module, own)
    sys.meta_path.insert(0, AdaptingFinder(adapters))
    sys.meta_path.append(ipython_display.Finder())


def own_import(name):
    with own_path():
        return importlib.import_module(name)


@contextlib.contextmanager
def own_path():
    """Import nothing from the current directory meanwhile: a file of the code may have the name of any module."""
    complete = sys.path[:]
    sys.path[:] = [entry for entry in complete if entry and entry != os.getcwd()]
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in complete and entry]
        sys.path[:] = complete + added


def _give_main_file(spawn):
    """Let new interpreters of multiprocessing find what the cells of a session define."""
    original = spawn.get_preparation_data

    def get_preparation_data(name):
        data = original(name)
        if Hooks.definitions_file is not None and not data.keys() & {"init_main_from_name", "init_main_from_path"}:
            data["init_main_from_path"] = Hooks.definitions_file()
        return data

    spawn.get_preparation_data = get_preparation_data


def _set_backend(matplotlib, own):
    """Make our backend the one that pyplot loads, unless the code has chosen another by a variable."""
    if os.environ.get("MPLBACKEND") == own:
        matplotlib.rcParams["backend"] = matplotlib.rcParamsDefault["backend"] = figures.NAME
        matplotlib.interactive(not figures.Settings.always)


def _set_renderer(plotly):
    """Let plotly show figures as JSON; by itself it would look for a browser, or need the package nbformat."""
    if "PLOTLY_RENDERER" not in os.environ:
        plotly.renderers.default = "plotly_mimetype"
    if not plotly.nbformat:
        plotly.nbformat = types.SimpleNamespace(__version__="5.0.0")
    if not plotly.ipython_display:
        plotly.ipython_display = display


class AdaptingFinder:
    """Finds nothing itself: it lets a function see certain modules right after they are loaded."""

    def __init__(self, adapters):
        self._adapters = adapters

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the other finders give, with a loader that adapts the module; None for all other modules."""
        adapt = self._adapters.pop(name, None)
        if adapt is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _loader(spec.loader, adapt)
                return spec
        self._adapters[name] = adapt
        return None


def _loader(loader, adapt):
    """Return a loader of the same class whose modules are adapted: code reads files beside a module by its loader."""
    if type(loader) is not importlib.machinery.SourceFileLoader:
        return loader

    class AdaptingLoader(importlib.machinery.SourceFileLoader):
        def exec_module(self, module):
            super().exec_module(module)
            try:
                adapt(module)
            except Exception:
                pass  # a version of the module that has changed: it works as if it were not adapted

    return AdaptingLoader(loader.name, loader.path)
