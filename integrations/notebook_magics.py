"""`%%sandbox`: cells of a notebook that run in the sandbox."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from autogen_codeact.integrations.notebook_options import DEFAULT_SESSION, CellOptions, make_parser, parse, usage
from autogen_codeact.integrations.notebook_output import CellOutput, cell_error
from autogen_codeact.sandbox import OutputChunk, Result, Sandbox, SandboxError
from autogen_codeact.sandbox.types.filenames import printable

_PARSER = make_parser("sandbox")
_SESSION = argument("-s", "--session", default=DEFAULT_SESSION, help="name of the sandbox (default: default)")


@magics_class
class SandboxMagics(Magics):
    """The magics for the sandbox; they keep one sandbox for each session's name.

    Args:
        shell: The shell of the notebook.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._sandboxes: dict[str, Sandbox] = {}
        self._options: dict[str, CellOptions] = {}
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

    @line_cell_magic
    def sandbox(self, line: str, cell: str | None = None) -> None:
        # The docstring, which `%%sandbox?` shows, is below: it lists the options.
        options = parse(_PARSER, line)
        with _errors():
            sandbox = self._sandbox(options, is_line=cell is None)
            if cell is None:
                sandbox.start()
            else:
                self._run(sandbox, cell, options)

    sandbox.__doc__ = usage(_PARSER)

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
        return self._sandboxes[name] if name in self._sandboxes else self._sandbox(parse(_PARSER, ""), is_line=True)

    def _sandbox(self, options: CellOptions, *, is_line: bool) -> Sandbox:
        """Return a session's sandbox, made with the options if there is none of this name."""
        name = options.session
        timeout: dict[str, Any] = {"timeout": options.timeout} if is_line and options.timeout is not None else {}
        if name in self._sandboxes:
            first = self._options[name]
            same = options.backend in (None, first.backend) and options.options in ({}, first.options)
            if timeout or not same:
                stop = "%sandbox_stop" + (f" --session {name}" if name != DEFAULT_SESSION else "")
                raise UsageError(
                    f"the session {name!r} has been started with other options: run {stop} first, or give --session NAME "
                    "for another sandbox"
                )
            return self._sandboxes[name]
        try:
            self._sandboxes[name] = Sandbox(options.backend or "auto", **options.options, **timeout)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from error
        self._options[name] = options
        return self._sandboxes[name]

    def _run(self, sandbox: Sandbox, cell: str, options: CellOptions) -> None:
        """Run a cell and show its output as it comes."""
        output = CellOutput()
        try:
            with contextlib.closing(sandbox.stream(cell, options.language, options.timeout)) as items:
                for item in items:
                    if isinstance(item, OutputChunk):
                        output.add(item)
                    else:
                        self._keep(options, item)
                        output.finish(item)
        except KeyboardInterrupt as interrupt:
            raise output.interrupted(interrupt) from None
        finally:
            output.close()

    def _keep(self, options: CellOptions, result: Result) -> None:
        if options.result is not None:
            assert self.shell is not None
            self.shell.user_ns[options.result] = result


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Show errors of the sandbox without this process' stack."""
    try:
        yield
    except SandboxError as error:
        raise cell_error(type(error).__name__, str(error)) from error
    except ValueError as error:
        raise UsageError(printable(str(error), keep="\n")) from error
