"""Magics of our own: those of the small shell, and those that replace IPython's in a sandbox."""

import importlib
import os
import shlex
import sys
import time

from . import commands, figures, imports

SCRIPTS = ("bash", "sh", "script", "perl", "ruby", "python", "python3")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


class UsageError(Exception):
    """A magic was not used as it can be."""


def enable_matplotlib():
    matplotlib = importlib.import_module("matplotlib")
    if matplotlib.rcParams["backend"] != figures.NAME:
        matplotlib.use(figures.NAME)
    matplotlib.interactive(True)
    return "inline", figures.NAME


def run_pip(line):
    commands.run("%s -m pip %s" % (shlex.quote(sys.executable), line))


def script_magic(name):
    """Return the cell magic that runs a program with the cell as its input; for `script` the line begins with its name."""

    def run(line, cell):
        words = shlex.split(line)
        raises = words[:1] != ["--no-raise-error"]
        words = words if raises else words[1:]
        if words[:1] and words[0].startswith("--"):
            raise UsageError(
                "%%%%%s has no option %s here: use `lines = !command` to get the output" % (name, words[0])
            )
        program = words if name == "script" else [sys.executable if name.startswith("python") else name, *words]
        if not program:
            raise UsageError("%%script needs the name of a program")
        try:
            status = commands.run_script(program, cell)
        except FileNotFoundError:
            sys.stderr.write("Couldn't find program: %r\n" % program[0])
            return
        if status and raises:
            raise imports.own_import("subprocess").CalledProcessError(status, program)

    run.__name__ = name
    return run


class Magics:
    """The magics of the small shell: a method `line_NAME(line)` or `cell_NAME(line, cell)` for each."""

    def __init__(self, cells):
        self._cells = cells

    def names(self):
        found = [name.partition("_") for name in dir(self) if name.startswith(("line_", "cell_"))]
        scripts = ["%%" + name for name in SCRIPTS]
        return sorted(("%" if kind == "line" else "%%") + name for kind, _, name in found) + scripts

    def line_pwd(self, _line):
        return os.getcwd()

    def line_cd(self, line):
        folder = os.path.expanduser(line.strip().strip("'\"") or "~")
        if folder == "-":
            folder = os.environ.get("OLDPWD", ".")
        os.environ["OLDPWD"] = os.getcwd()
        os.chdir(folder)
        print(os.getcwd())

    def line_ls(self, line):
        commands.run("ls " + line)

    def line_env(self, line):
        """Return the environment or a variable, or set one: `NAME=value` or `NAME value`."""
        name, separator, value = line.partition("=") if "=" in line else line.partition(" ")
        name = name.strip()
        if not name:
            return dict(os.environ)
        if not separator:
            if name not in os.environ:
                raise UsageError("Environment does not have key: %s" % name)
            return os.environ[name]
        os.environ[name] = value.strip()
        print("env: %s=%s" % (name, value.strip()))
        return None

    def line_pip(self, line):
        run_pip(line)

    def line_matplotlib(self, _line):
        enable_matplotlib()

    def cell_time(self, _line, cell):
        return self.line_time(cell)

    def line_time(self, code):
        began, cpu = time.perf_counter(), os.times()
        try:
            return self._cells.evaluate(code, "<timed code>")
        finally:
            after = os.times()
            user, system = after[0] - cpu[0], after[1] - cpu[1]
            total = _seconds(user), _seconds(system), _seconds(user + system)
            print("CPU times: user %s, sys: %s, total: %s" % total)
            print("Wall time: %s" % _seconds(time.perf_counter() - began))

    def cell_writefile(self, line, cell):
        words = shlex.split(line)
        append = words[:1] in (["-a"], ["--append"])
        if len(words) != 1 + append:
            raise UsageError("%%writefile needs the name of one file")
        path = os.path.expanduser(words[-1])
        print("%s %s" % ("Appending to" if append else "Overwriting" if os.path.exists(path) else "Writing", path))
        with open(path, "a" if append else "w", encoding="utf-8") as file:
            file.write(cell)


def _seconds(value):
    for scale, unit in UNITS:
        if value >= scale:
            return "%.3g %s" % (value / scale, unit)
    return "%.3g ns" % (value * 1e9)
