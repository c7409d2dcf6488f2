"""A matplotlib backend that shows figures as displays. It imports nothing of matplotlib until the code has done so.

`imports` makes it the backend when the code imports matplotlib. It behaves as the backend of notebooks: `show` shows all open
figures and closes them, and so does the end of a block; another backend that the code chooses is left alone.
"""

import importlib
import io
import sys

from . import display, displays

NAME = "module://" + __name__
# An image takes four bytes for each pixel while it is drawn.
MAX_PIXELS = 40_000_000


class Settings:
    """What code can set, as `%config InlineBackend` does in notebooks."""

    formats = ("png",)
    close_figures = True
    # Whether figures are shown at the end of a block even in non-interactive mode, as in a script.
    always = False
    # Whether a figure was made since the last block.
    pending = False
    # Whether an image is made for a display, and not for a file of the code.
    capturing = False


class TooManyPixels(Exception):
    """A figure is too large to be shown."""


def __getattr__(name):
    # matplotlib asks for it when it loads the backend.
    if name != "FigureCanvas":
        raise AttributeError(name)
    agg = importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg

    class FigureCanvas(agg):
        def get_renderer(self, *arguments, **named):
            _check_size(self.figure)
            return super().get_renderer(*arguments, **named)

    FigureCanvas.__module__ = __name__
    globals()[name] = FigureCanvas
    return FigureCanvas


def new_figure_manager(num, *arguments, FigureClass=None, **named):  # noqa: N803 - the name that matplotlib uses
    figure_class = FigureClass or importlib.import_module("matplotlib.figure").Figure
    return new_figure_manager_given_figure(num, figure_class(*arguments, **named))


def new_figure_manager_given_figure(num, figure):
    canvas = getattr(sys.modules[__name__], "FigureCanvas")(figure)  # noqa: B009 - it is made on demand
    manager = importlib.import_module("matplotlib.backend_bases").FigureManagerBase(canvas, num)
    if Settings.always or sys.modules["matplotlib"].is_interactive():
        Settings.pending = True
    return manager


def show(close=None, block=None):
    gcf = sys.modules["matplotlib._pylab_helpers"].Gcf
    try:
        for manager in gcf.get_all_fig_managers():
            display.display(manager.canvas.figure)
    finally:
        if (Settings.close_figures if close is None else close) and gcf.get_all_fig_managers():
            gcf.destroy_all()


def flush():
    if Settings.pending:
        Settings.pending = False
        show(True if Settings.close_figures else None)


def set_formats(formats):
    known = ["retina" if name == "png2x" else name for name in formats]
    Settings.formats = tuple(sorted(name for name in known if name in _KINDS)) or ("png",)


def images(figure):
    """Return the images of a figure and its text, by MIME type."""
    width, height = (round(side) for side in figure.bbox.size)
    text = "<Figure size %dx%d with %d Axes>" % (width, height, len(figure.axes))
    if not figure.axes and not figure.lines:
        return {displays.TEXT: text}
    if not displays.has_room():
        return {displays.TEXT: text, "image/png": None}
    try:
        made = {_KINDS[kind]: _image(figure, kind) for kind in Settings.formats}
    except TooManyPixels as error:
        return {displays.TEXT: "%s: not shown, %s>" % (text[:-1], error)}
    except Exception as error:  # text that can't be parsed, for example; the code goes on, as in a notebook
        return {displays.TEXT: "%s: not shown, %s: %s>" % (text[:-1], type(error).__name__, str(error)[:1000])}
    return dict(made, **{displays.TEXT: "<Figure size %dx%d>" % (width, height)})


_KINDS = {
    "png": "image/png",
    "retina": "image/png",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
}


def _image(figure, kind):
    if figure.canvas is None:
        sys.modules["matplotlib.backend_bases"].FigureCanvasBase(figure)
    target = io.BytesIO()
    Settings.capturing = True
    try:
        _check_size(figure)
        figure.canvas.print_figure(
            target,
            format="png" if kind == "retina" else kind,
            dpi=figure.dpi * (2 if kind == "retina" else 1),
            facecolor=figure.get_facecolor(),
            edgecolor=figure.get_edgecolor(),
            bbox_inches="tight",
        )
    finally:
        Settings.capturing = False
    return target.getvalue()


def _check_size(figure):
    """Check that an image is not too large to be shown; with `bbox_inches` it can be larger than the figure."""
    if Settings.capturing:
        width, height = figure.bbox.size
        if width * height > MAX_PIXELS:
            raise TooManyPixels("it would have %d x %d pixels" % (width, height))
