"""How an object becomes a MIME bundle: its `_repr_*_` methods, as notebooks call them, or a shell's formatters."""

import sys

from . import displays, mime, time_limit

METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}
BUNDLE = "_repr_mimebundle_"
DISPLAY = "_ipython_display_"
# Their `repr` is all that there is to show.
PLAIN = frozenset((int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, type(None), type))
_mro = type.__dict__["__mro__"].__get__


def is_rich(thing):
    """Return whether an object may have more to show than its `repr`."""
    kind = type(thing)
    if kind in PLAIN:
        return False
    if displays.Formatter.format is not None:
        return True
    names = (*METHODS, BUNDLE, DISPLAY)
    return any(name in vars(base) for base in _mro(kind) for name in names) or _is_figure(thing)


def of(thing, text=None):
    """Return the bundle and the metadata of an object."""
    data, metadata = {}, {}
    if text is not None:
        data[mime.TEXT] = text
    try:
        with time_limit.limited(displays.REPR_SECONDS):
            if not _fill(thing, data, metadata):
                return None
    except time_limit.TimeLimitExceeded:
        known = data.get(mime.TEXT)
        remark = "what else it can be shown as took longer than %g s" % displays.REPR_SECONDS
        return {mime.TEXT: mime.line(known if type(known) is str else object.__repr__(thing), None, [remark])}, {}
    return data, metadata


def _fill(thing, data, metadata):
    """Fill the bundle and the metadata of an object; return False if it has shown itself."""
    text = data.get(mime.TEXT)
    if displays.Formatter.format is not None:
        made, more = displays.Formatter.format(thing)
        if not made:
            return False
        data.update(made)
        metadata.update(more)
    else:
        show_itself = _method(thing, DISPLAY)
        if show_itself is not None:
            show_itself()
            return False
        if text is None:
            data[mime.TEXT] = str.__str__(repr(thing))
        _add_methods(thing, data, metadata)
    if text is not None:
        data[mime.TEXT] = text
    if _is_figure(thing):
        data.update(sys.modules["codeact_runner.figures"].images(thing))
    return True


def _is_figure(thing):
    module = sys.modules.get("matplotlib.figure")
    figure = getattr(module, "Figure", None)
    return isinstance(figure, type) and issubclass(type(thing), figure)


def _method(thing, name):
    """Return a method that the object's class defines: `__getattr__` would find one in many objects that have none."""
    if any(name in vars(base) for base in _mro(type(thing))):
        return getattr(thing, name, None)
    return None


def _add_methods(thing, data, metadata):
    method = _method(thing, BUNDLE)
    if method is not None:
        _add(method, lambda made: _take_bundle(made, data, metadata), include=None, exclude=None)
    for name, kind in METHODS.items():
        method = _method(thing, name) if kind not in data else None
        if method is not None:
            _add(method, lambda made, kind=kind: _take_value(kind, made, data, metadata))


def _add(method, take, **arguments):
    try:
        made = method(**arguments)
        if made is not None:
            take(made)
    except time_limit.TimeLimitExceeded:
        raise
    except Exception as error:  # as in a notebook, the object's other forms are shown all the same
        name = "".join(getattr(method, "__name__", "a method"))
        sys.stderr.write("%s raised %s: %s\n" % (name, type(error).__name__, _text(error)))


def _text(error):
    try:
        return "".join([str(error)])[:1000]
    except Exception:
        return ""


def _take_bundle(made, data, metadata):
    made, more = made if isinstance(made, tuple) else (made, {})
    data.update(made)
    metadata.update(more or {})


def _take_value(kind, made, data, metadata):
    made, more = made if isinstance(made, tuple) else (made, None)
    data[kind] = made
    if more:
        metadata[kind] = more
