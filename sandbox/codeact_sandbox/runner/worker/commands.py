"""Commands of cells: `!command`, `x = !command` and scripts such as `%%bash`."""

import os
import re
import string
import sys

from ..shared import system
from . import imports

SHELLS = ("/bin/bash", "/usr/bin/bash")


def run(command):
    status = _run([_shell(), "-c", command])
    _tell(status)
    return status


def output(command):
    subprocess = imports.own_import("subprocess")

    sys.stdout.flush()
    done = subprocess.run([_shell(), "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    _tell(done.returncode)
    return done.stdout.decode("utf-8", "replace"), done.returncode


def run_script(words, text):
    """Run a program that reads a script from its standard input; return its exit status."""
    subprocess = imports.own_import("subprocess")

    pipe = None if _is_direct() else subprocess.PIPE
    sys.stdout.flush()
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=pipe, stderr=pipe)
    for stream, part in zip((sys.stdout, sys.stderr), process.communicate(text.encode())):
        stream.write((part or b"").decode("utf-8", "replace"))
    return process.returncode


def expand(text, namespace):
    """Replace `{expression}`, `$name` and `$$` in a command line, as IPython does."""
    try:
        return _Formatter().vformat(text, (), namespace)
    except Exception:  # as in IPython: the shell gets what is there, for example the braces of awk
        return text


class _Formatter(string.Formatter):
    def vformat(self, format_string, args, kwargs):
        parts = []
        for literal, name, spec, conversion in self.parse(format_string):
            parts.append(_expand_dollars(literal, kwargs))
            if name is not None:
                value = eval(name + (":" + spec if spec else ""), dict(kwargs))
                parts.append(self.format_field(self.convert_field(value, conversion), ""))
        return "".join(parts)


def _expand_dollars(text, namespace):
    def value(match):
        if match.group(1) is None:
            return "$"
        name, _, attributes = match.group(1).partition(".")
        if name not in namespace:
            return match.group(0)
        found = namespace[name]
        for attribute in attributes.split(".") if attributes else ():
            found = getattr(found, attribute)
        return str(found)

    return re.sub(r"\$\$|\$([^\W\d]\w*(?:\.[^\W\d]\w*)*)", value, text)


def _run(words):
    subprocess = imports.own_import("subprocess")

    sys.stdout.flush()
    if _is_direct():
        return subprocess.call(words)
    # The cell has replaced its streams, for example with `%%capture`.
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            sys.stdout.write(line.decode("utf-8", "replace"))
    return process.returncode


def _is_direct():
    """Return whether the streams are the session's own, to which a child process can write itself."""
    return sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__


def _shell():
    return next(filter(os.path.exists, SHELLS), "/bin/sh")


def _tell(status):
    """Name a failure: unlike in a script, it does not end the cell."""
    if status > 0:
        sys.stderr.write("the command ended with exit status %d\n" % status)
    elif status < 0:
        sys.stderr.write("the command was ended by %s\n" % system.signal_name(-status))
