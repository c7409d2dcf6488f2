"""`display()` and what belongs to it, as code calls them; and how an object becomes a MIME bundle.

As in a notebook, an object is asked with its `_repr_*_` methods. Where a shell is loaded, its formatters are used.
"""

import contextlib
import os
import signal
import sys
import threading

from . import displays, stdio

REPR_SECONDS = 10.0
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
# References of its own: user code may replace the functions of the modules.
_signal, _getsignal, _setitimer, _getitimer = signal.signal, signal.getsignal, signal.setitimer, signal.getitimer
_main_thread, _this_thread = threading.main_thread, threading.current_thread


class DisplayHandle:
    """A display that can be replaced while its block runs.

    Args:
        display_id: Its name. Default: a random one.
    """

    def __init__(self, display_id=None):
        self.display_id = display_id if display_id is not None else os.urandom(16).hex()

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, thing, **options):
        """Show an object under this name."""
        display(thing, display_id=self.display_id, **options)

    def update(self, thing, **options):
        display(thing, display_id=self.display_id, update=True, **options)


def display(
    *things,
    include=None,
    exclude=None,
    metadata=None,
    transient=None,
    display_id=None,
    raw=False,
    clear=False,
    **options,
):
    """Show objects: as images, HTML and whatever else they can be shown as.

    Args:
        things: The objects.
        include: MIME types to show, all others are left out. Default: all.
        exclude: MIME types to leave out. Default: none.
        metadata: What belongs to the displays. Default: nothing.
        transient: Accepted, without effect.
        display_id: Name by which `update_display` can replace it; True for a random one. Default: none.
        raw: Whether the objects are bundles already: values by MIME type. Default: no.
        clear: Whether to drop what the block has shown before. Default: no.
        options: `update=True` replaces the display with this `display_id`.

    Returns:
        With `display_id` a `DisplayHandle`, else None.
    """
    update = options.pop("update", False)
    if clear:
        displays.clear()
    handle = DisplayHandle(None if display_id is True else display_id) if display_id is not None else None
    for thing in things:
        made = (_checked(thing), {}) if raw else _bundle_of(thing)
        if made is None:
            continue
        data = {
            name: value
            for name, value in made[0].items()
            if (not include or name in include) and not (exclude and name in exclude)
        }
        displays.publish(data, dict(made[1], **(metadata or {})), handle and handle.display_id, update)
    return handle


def update_display(thing, *, display_id, **options):
    """Replace the display with a name; arguments as for `display`."""
    display(thing, display_id=display_id, **dict(options, update=True))


def publish_display_data(data, metadata=None, *, transient=None, **_options):
    """Show a bundle.

    Args:
        data: Values by MIME type.
        metadata: What belongs to it. Default: nothing.
        transient: With `display_id`, its name. Default: none.
    """
    displays.publish(data, metadata, (transient or {}).get("display_id"), _options.get("update", False))


def clear_output(wait=False):
    """Drop what the block has shown before; printed text stays.

    Args:
        wait: Accepted, without effect: what is shown next comes at once.
    """
    displays.clear()


def _checked(bundle):
    if not isinstance(bundle, dict):
        raise TypeError("with raw=True, display() takes dicts: values by MIME type")
    return bundle


def show_value(thing, text):
    """Show the value of a cell's last expression; return False if it has shown itself."""
    if not _is_rich(thing):
        sys.stdout.write(text + "\n")
        return True
    made = _bundle_of(thing, text)
    if made is None:
        return False
    displays.publish(*made)
    return True


# How an object becomes a bundle


class TimeLimitExceeded(Exception):
    """What was called has taken too long."""


@contextlib.contextmanager
def _limited(seconds):
    """Raise `TimeLimitExceeded` in the block of code if it takes too long; code that catches it has the block's time.

    There is no limit outside the main thread, or while the code uses the alarm itself.
    """
    is_free = _getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN, None)
    if _this_thread() is not _main_thread() or _getitimer(signal.ITIMER_REAL)[0] or not is_free:
        yield
        return
    before = _signal(signal.SIGALRM, _expire)
    _setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        _setitimer(signal.ITIMER_REAL, 0)
        _signal(signal.SIGALRM, before)


def _expire(_number, _frame):
    raise TimeLimitExceeded("it took too long")


def _is_rich(thing):
    """Return whether an object may have more to show than its `repr`."""
    kind = type(thing)
    if kind in PLAIN:
        return False
    if displays.State.format is not None:
        return True
    names = (*METHODS, BUNDLE, DISPLAY)
    return any(name in vars(base) for base in _mro(kind) for name in names) or _is_figure(thing)


def _bundle_of(thing, text=None):
    """Return values and metadata by MIME type, as the object gives them; None if it has shown itself.

    If that takes too long, there is only the text (`text`, if that is known), which then says so. Raises what `repr` raises.
    """
    data, metadata = {}, {}
    if text is not None:
        data[displays.TEXT] = text
    try:
        with _limited(REPR_SECONDS):
            if not _fill(thing, data, metadata):
                return None
    except TimeLimitExceeded:
        known = data.get(displays.TEXT)
        remark = "what else it can be shown as took longer than %g s" % REPR_SECONDS
        return {displays.TEXT: displays.line_of(known if type(known) is str else object.__repr__(thing), [remark])}, {}
    return data, metadata


def _fill(thing, data, metadata):
    """Fill the bundle and the metadata of an object; return False if it has shown itself."""
    text = data.get(displays.TEXT)
    if displays.State.format is not None:
        made, more = displays.State.format(thing)
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
            data[displays.TEXT] = str.__str__(repr(thing))
        _add_methods(thing, data, metadata)
    if text is not None:
        data[displays.TEXT] = text
    if _is_figure(thing):
        data.update(sys.modules["codeact_runner.worker.figures"].images(thing))
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
    for name, kind in dict({BUNDLE: None}, **METHODS).items():
        method = _method(thing, name) if kind not in data else None
        if method is None:
            continue
        try:
            made = method() if kind else method(include=None, exclude=None)
            made, more = made if isinstance(made, tuple) else (made, None)
            if made is not None:
                data.update({kind: made} if kind else made)
                metadata.update(({kind: more} if kind else more) if more else {})
        except TimeLimitExceeded:
            raise
        except Exception as error:  # as in a notebook, the object's other forms are shown all the same
            called = "".join(getattr(method, "__name__", "a method"))
            sys.stderr.write("%s raised %s: %s\n" % (called, type(error).__name__, stdio.text_of(error)[:1000]))
