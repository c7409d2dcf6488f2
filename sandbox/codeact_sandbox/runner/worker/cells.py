"""The cells of a session: Python code as a notebook runs it, with `await`, commands, magics, and the values of earlier cells."""

import __future__

import ast
import builtins
import sys

from . import cell_text, definitions, display, execution, ipython_shell, small_shell, values

_MAX_VALUES = 1000
_CO_COROUTINE = 0x80  # the module inspect takes milliseconds to import
_ANNOTATIONS = __future__.annotations.compiler_flag


class Cell:
    def __init__(self, body, last):
        self.body = body
        self.last = last


class Cells:
    def __init__(self, namespace, loop):
        self.namespace = namespace
        self.inputs = [""]
        self.values = {}
        self.loop = loop
        self.shell = None
        # What `get_ipython()` returns.
        self.public = small_shell.ZMQLikeShellStub(self)
        self._flags = 0
        self.definitions = definitions.Definitions(namespace)
        self._last_values = ["", "", ""]
        namespace.update(self.history(), _="", __="", ___="", _i="", _ii="", _iii="")

    def history(self):
        return {"In": self.inputs, "_ih": self.inputs, "Out": self.values, "_oh": self.values}

    @property
    def number(self):
        return len(self.inputs) - 1

    def run(self, code, filename):
        execution.show_lines(filename, code)
        self._remember_input(code)
        return execution.run_guarded(filename, lambda: self._run_and_show(code, filename))

    def evaluate(self, text, filename):
        """Run code inside a cell, such as the body of a magic."""
        code = text.encode("utf-8", "replace")
        execution.show_lines(filename, code)
        return self._execute(self.compile(code, filename))

    def load_shell(self):
        """Return the shell, which is loaded when something first needs it: IPython, or the small shell where there is none."""
        if self.shell is None:
            try:
                self.shell = ipython_shell.load(self) or small_shell.ZMQLikeSmallShell(self)
            except Exception as error:
                self.shell = small_shell.ZMQLikeSmallShell(self)
                sys.stderr.write(
                    "IPython is installed but could not be loaded (%s: %s); a small set of magics is used instead\n"
                    % (type(error).__name__, error)
                )
            self.public = self.shell.public
        return self.shell

    def show(self, value):
        """Print a value as a notebook does, and keep it; return its text and its `values.encode`, or None if nothing is shown."""
        text = None if self.shell else values.text_like_repr(value)
        if text is None:
            text = self.load_shell().text_of(value)
        self._remember_value(value)
        if text is None or not display.show_value(value, text):
            return None
        return text[: execution.VALUE_LIMIT], values.encode(value)

    def _run_and_show(self, code, filename):
        if b"IPython" in code:
            self.load_shell()  # what the cell imports is to find it
        if self.shell is not None:
            self.shell.begin_cell(self.inputs[-1])
        error = None
        try:
            with self.loop:
                value = self._execute(self.compile(code, filename))
                self.loop.finish_cell()
                return None if value is None else self.show(value)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self.shell is not None:
                self.shell.end_cell(self.inputs[-1], error)

    def _execute(self, cell):
        if cell.body is not None:
            self._evaluate(cell.body)
        return None if cell.last is None else self._evaluate(cell.last)

    def _evaluate(self, code):
        self._flags |= code.co_flags & _ANNOTATIONS  # as in a notebook, it holds for later cells
        result = eval(code, self.namespace)
        return self.loop.run(result) if code.co_flags & _CO_COROUTINE else result

    # From the text to code

    def compile(self, code, filename):
        if not cell_text.is_command(code, self.namespace, vars(builtins)):
            try:
                return self._compiled(_parsed(code, filename), code, filename)
            except SyntaxError:
                text = code.decode("utf-8", "replace")
                if not cell_text.is_special(text):
                    raise
        return self._compile_special(code.decode("utf-8", "replace"), filename)

    def _compile_special(self, text, filename):
        text = text.replace("\r\n", "\n")
        translated = self.load_shell().translate(text)
        blank = len(text) - len(text.lstrip("\n"))
        if not translated.startswith("\n" * blank):
            translated = "\n" * blank + translated.lstrip("\n")
        code = translated.encode("utf-8", "replace")
        tree = _parsed(code, filename)
        cell_text.align(tree, text, translated)
        return self._compiled(tree, code, filename)

    def _compiled(self, tree, code, filename):
        # IPython's setting, by which a cell shows the values of all its expressions.
        shows_all = getattr(self.shell and self.public, "ast_node_interactivity", "") == "all"
        if shows_all:
            sys.displayhook = self._show_one
        self.definitions.note(tree, code.decode("utf-8-sig", "replace"))
        return _compiled(tree, code, filename, self._flags, shows_all)

    def _show_one(self, value):
        if value is not None:
            self.show(value)

    # What cells can read

    def _remember_input(self, code):
        text = code.decode("utf-8", "replace")
        namespace = self.namespace
        namespace["_iii"], namespace["_ii"], namespace["_i"] = (
            namespace.get("_ii"),
            namespace.get("_i"),
            self.inputs[-1],
        )
        self.inputs.append(text)
        namespace["_i%d" % self.number] = text

    def _remember_value(self, value):
        namespace, last = self.namespace, self._last_values
        if value is self.values:
            return
        # As in IPython: a name that the cells use for something else stays theirs.
        if all(namespace.get(name, old) is old for name, old in zip(("_", "__", "___"), last)):
            namespace.update(_=value, __=last[0], ___=last[1])
        self._last_values = [value, last[0], last[1]]
        if len(self.values) >= _MAX_VALUES:
            oldest = next(iter(self.values))
            self.values.pop(oldest)
            namespace.pop("_%s" % oldest, None)
        self.values[self.number] = namespace["_%d" % self.number] = value

    def forget_values(self):
        """Forget the values of cells, of which each may be the last reference to an object."""
        self.values.clear()
        self._last_values = ["", "", ""]


def _parsed(code, filename):
    # As text: an old encoding line (PEP 263) is not true of what came as text.
    return ast.parse(code.decode("utf-8-sig", "replace"), filename)


def _compiled(tree, code, filename, flags, shows_all):
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    silenced = last is not None and cell_text.is_silenced(code, last)
    last = None if silenced else last
    if last is not None:
        tree.body.pop()
    if shows_all and not silenced:
        tree = ast.Interactive(tree.body)
    # Both before anything runs: what can't be compiled has no effect.
    try:
        return Cell(*_code_of(tree, last, filename, flags))
    except SyntaxError:
        if b"await" not in code and b"async" not in code:
            raise
        try:
            return Cell(*_code_of(tree, last, filename, flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        except SyntaxError:
            pass
        raise


def _code_of(tree, last, filename, flags):
    kind = "single" if isinstance(tree, ast.Interactive) else "exec"
    body = compile(tree, filename, kind, flags, dont_inherit=True) if tree.body else None
    if last is None:
        return body, None
    return body, compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True)
