"""Replaces interactive functions, which nobody could answer: `input()`, `getpass()` and debuggers; and adds `get_ipython()`."""

import builtins
import sys

NO_INPUT = (
    "nobody can answer %s here: put the value into the code, read it from a file or a variable of the environment, or ask "
    "for it in your answer"
)
NO_DEBUGGER = (
    "breakpoint() does nothing here: there is no debugger, because nobody can type; print the values instead\n"
)


def replace(get_ipython):
    """Replace the functions that would wait for a user."""

    def ask(prompt="", /):
        """Raise an error that says what to do instead: nobody can answer."""
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
    sys.stderr.write(NO_DEBUGGER)


def _fit_pandas():
    """Let pandas show tables as in a notebook; it finds that out itself if a cell imports it."""
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and pandas.get_option("display.max_columns") == 0:
            pandas.set_option("display.max_columns", 20)
    except Exception:
        pass  # whatever is imported under that name
