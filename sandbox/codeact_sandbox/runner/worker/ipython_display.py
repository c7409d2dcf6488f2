"""`IPython.display`: adapted where IPython is installed but no shell runs, and a small stand-in where it is not installed."""

import base64
import importlib
import importlib.machinery
import os
import sys

from . import display

FUNCTIONS = ("display", "update_display", "clear_output", "publish_display_data", "DisplayHandle")


def adapt(module):
    """Let IPython's functions show things where no shell of IPython runs; there they would only print."""
    for name in FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, _choose(getattr(module, name), getattr(display, name)))


def _choose(theirs, ours):
    if isinstance(theirs, type):
        return theirs

    def function(*arguments, **named):
        shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
        running = shell is not None and shell.initialized()
        return (theirs if running else ours)(*arguments, **named)

    function.__name__ = function.__qualname__ = theirs.__name__
    function.__doc__ = theirs.__doc__
    return function


class Finder:
    """Finds the stand-in for IPython, after all other finders have found nothing."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec of `IPython`, `IPython.display` or `IPython.core.display`, and None for all other modules."""
        if name not in _CONTENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in ("IPython", "IPython.core"))

    def create_module(self, spec):
        """Let the import system make the module."""

    def exec_module(self, module):
        module.__dict__.update(_CONTENT[module.__name__])
        if module.__name__ == "IPython":
            importlib.import_module("IPython.display")


class DisplayObject:
    """Something to show, given as data, or as the name of a file."""

    mime = "text/plain"
    binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        if isinstance(data, (str, os.PathLike)) and filename is None and self.binary and url is None:
            data, filename = None, os.fspath(data)
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
            if not self.binary:
                data = data.decode()
        if data is None and url is not None:
            raise ValueError("%s(url=...) can't be fetched here: pass the data or a file" % type(self).__name__)
        self.data, self.filename, self.url, self.metadata, self.options = data, filename, url, metadata or {}, options

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data}, {self.mime: self.metadata} if self.metadata else {}


class Image(DisplayObject):
    """A PNG, JPEG, GIF or WebP image."""

    binary = True

    @property
    def mime(self):
        for start, name in ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif")):
            if self.data.startswith(start):
                return name
        return "image/webp" if self.data[:4] == b"RIFF" else "image/png"

    def _repr_mimebundle_(self, include=None, exclude=None):
        size = {name: self.options[name] for name in ("width", "height") if self.options.get(name)}
        return {self.mime: base64.b64encode(self.data).decode()}, {self.mime: size} if size else {}


def _kind(name, mime):
    return type(name, (DisplayObject,), {"mime": mime, "__doc__": "Text of the type %s." % mime})


class Pretty(DisplayObject):
    """Plain text."""

    def __repr__(self):
        return self.data


_KINDS = {
    "HTML": "text/html",
    "Markdown": "text/markdown",
    "Latex": "text/latex",
    "Math": "text/latex",
    "SVG": "image/svg+xml",
    "JSON": "application/json",
    "Javascript": "application/javascript",
}
_CLASSES = {
    "DisplayObject": DisplayObject,
    "Image": Image,
    "Pretty": Pretty,
    **{name: _kind(name, kind) for name, kind in _KINDS.items()},
}


def get_ipython():
    """Return None: no shell of IPython runs."""


_DISPLAY = {**_CLASSES, **{name: getattr(display, name) for name in FUNCTIONS}}
_CONTENT = {
    "IPython": {"get_ipython": get_ipython, "version_info": (0, 0, 0), "__version__": "0.0.0"},
    "IPython.core": {},
    "IPython.core.display": _DISPLAY,
    "IPython.display": _DISPLAY,
}
