"""`%%sandbox`: cells of a notebook that run in the sandbox."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import argparse
import atexit
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from codeact_sandbox import OutputChunk, Sandbox, SandboxError
from codeact_sandbox.integrations.notebook_output import CellOutput, cell_error
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import parse_timeout
from codeact_sandbox.types.option_texts import parse_texts

DEFAULT_SESSION = "default"
_SESSION = argument("-s", "--session", default=DEFAULT_SESSION, help="name of the sandbox (default: default)")

_MAGICS: dict[int, SandboxMagics] = {}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%sandbox` and its companions to a shell: `%load_ext codeact_sandbox`.

    Args:
        shell: The shell of the notebook or terminal.
    """
    if id(shell) not in _MAGICS:
        magics = _MAGICS[id(shell)] = SandboxMagics(shell)
        shell.register_magics(magics)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop the sandboxes of a shell's cells, and take the magics away.

    Args:
        shell: The shell.
    """
    magics = _MAGICS.pop(id(shell), None)
    if magics is None:
        return
    magics.stop()
    for kind in ("line", "cell"):
        for name in magics.magics[kind]:
            shell.magics_manager.magics[kind].pop(name, None)


@magics_class
class SandboxMagics(Magics):
    """The magics for the sandbox; they keep one sandbox for each session's name.

    Args:
        shell: The shell of the notebook.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._sandboxes: dict[str, Sandbox] = {}
        self._options: dict[str, tuple[str | None, dict[str, Any]]] = {}
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop all sandboxes."""
        atexit.unregister(self.stop)
        self._options.clear()
        while self._sandboxes:
            _, sandbox = self._sandboxes.popitem()
            with contextlib.suppress(
                SandboxError, RuntimeError
            ):  # an executor that has shut down raises a RuntimeError
                sandbox.stop()

    @magic_arguments()
    @_SESSION
    @argument("-l", "--language", default="python", help="language of the cell: python, sh, bash (default: python)")
    @argument("-t", "--timeout", type=float, help="seconds that the cell may take (default: 60)")
    @argument("-r", "--result", metavar="NAME", help="variable that gets the Result")
    @argument("-b", "--backend", choices=("auto", "docker", "bubblewrap"), help="where it runs (default: auto)")
    @argument(
        "-o",
        "--option",
        action="append",
        metavar="NAME=VALUE",
        default=[],
        help="an option or limit of a sandbox that is not running yet, such as memory=2g",
    )
    @line_cell_magic
    def sandbox(self, line: str, cell: str | None = None) -> None:
        """Run the cell in the sandbox."""
        arguments = parse_argstring(self.sandbox, line)
        if arguments.result is not None and not arguments.result.isidentifier():
            raise UsageError(f"--result {arguments.result!r} is not the name of a variable")
        with _errors():
            timeout = arguments.timeout if arguments.timeout is None else parse_timeout(arguments.timeout)
            sandbox = self._sandbox(arguments, timeout if cell is None else None)
            if cell is None:
                sandbox.start()
            else:
                self._run(sandbox, cell, arguments, timeout)

    @magic_arguments()
    @_SESSION
    @line_magic
    def sandbox_reset(self, line: str) -> None:
        """Restart the session: its variables are gone, the files of its working directory stay."""
        name = parse_argstring(self.sandbox_reset, line).session
        with _errors():
            self._known(name).restart()

    @magic_arguments()
    @_SESSION
    @line_magic
    def sandbox_stop(self, line: str) -> None:
        """Stop the sandbox. The next cell starts a new one, which can have other options."""
        name = parse_argstring(self.sandbox_stop, line).session
        with _errors():
            self._known(name).stop()
        del self._sandboxes[name], self._options[name]

    @magic_arguments()
    @argument("source", help="the file on this machine")
    @argument("name", nargs="?", help="its path in the workspace (default: its own name)")
    @_SESSION
    @line_magic
    def sandbox_put(self, line: str) -> None:
        """Copy a file from this machine into the sandbox."""
        arguments = parse_argstring(self.sandbox_put, line)
        with _errors():
            self._known(arguments.session).put(Path(arguments.source).expanduser(), arguments.name)

    @magic_arguments()
    @argument("name", help="the file's path in the workspace")
    @argument(
        "target", nargs="?", help="the file on this machine, which is replaced (default: the same name, in this folder)"
    )
    @_SESSION
    @line_magic
    def sandbox_get(self, line: str) -> None:
        """Copy a file from the sandbox to this machine."""
        arguments = parse_argstring(self.sandbox_get, line)
        with _errors():
            self._known(arguments.session).get(
                arguments.name, Path(arguments.target or Path(arguments.name).name).expanduser()
            )

    def _known(self, name: str) -> Sandbox:
        """Return a session's sandbox; the default one is made if there is none."""
        if name not in self._sandboxes and name != DEFAULT_SESSION:
            known = ", ".join(self._sandboxes) or "none"
            raise UsageError(f"there is no session {name!r}; sessions: {known}")
        return self._sandbox(argparse.Namespace(session=name, backend=None, option=[]), None)

    def _sandbox(self, arguments: argparse.Namespace, timeout: float | None) -> Sandbox:
        """Return a session's sandbox, made with the options if there is none of this name."""
        name, backend, options = arguments.session, arguments.backend, parse_texts(arguments.option)
        if name in self._sandboxes:
            first_backend, first_options = self._options[name]
            same = backend in (None, first_backend) and options in ({}, first_options)
            if timeout is not None or not same:
                stop = "%sandbox_stop" + (f" --session {name}" if name != DEFAULT_SESSION else "")
                raise UsageError(
                    f"the session {name!r} has been started with other options: run {stop} first, or give --session NAME "
                    "for another sandbox"
                )
            return self._sandboxes[name]
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        self._sandboxes[name] = Sandbox(backend or "auto", **options, **more)
        self._options[name] = backend, options
        return self._sandboxes[name]

    def _run(self, sandbox: Sandbox, cell: str, arguments: argparse.Namespace, timeout: float | None) -> None:
        """Run a cell and show its output as it comes."""
        assert self.shell is not None
        output = CellOutput()
        try:
            with contextlib.closing(sandbox.stream(cell, arguments.language, timeout)) as items:
                for item in items:
                    if isinstance(item, OutputChunk):
                        output.add(item)
                        continue
                    if arguments.result is not None:
                        self.shell.user_ns[arguments.result] = item
                    output.finish(item)
        except KeyboardInterrupt as interrupt:
            raise output.interrupted(interrupt) from None
        finally:
            output.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Show errors of the sandbox without this process' stack."""
    try:
        yield
    except SandboxError as error:
        raise cell_error(type(error).__name__, str(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageError(printable(str(error), keep="\n")) from error
