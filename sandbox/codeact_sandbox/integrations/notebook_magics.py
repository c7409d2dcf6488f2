"""`%%sandbox`: cells of a notebook that run in the sandbox."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import argparse
import atexit
import contextlib
from collections.abc import Iterator
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from codeact_sandbox import OutputChunk, Sandbox, SandboxError
from codeact_sandbox.integrations.notebook_output import CellOutput, cell_error
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import parse_timeout
from codeact_sandbox.types.option_texts import parse_texts

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
    """The magics for the sandbox of a notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._sandbox: Sandbox | None = None
        self._options: tuple[str | None, dict[str, Any]] = (None, {})
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the sandbox for good."""
        atexit.unregister(self.stop)
        with contextlib.suppress(SandboxError, RuntimeError):  # an executor that has shut down raises a RuntimeError
            self._stop()

    @magic_arguments()
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
    @cell_magic
    def sandbox(self, line: str, cell: str) -> None:
        """Run the cell in the sandbox."""
        arguments = parse_argstring(self.sandbox, line)
        if arguments.result is not None and not arguments.result.isidentifier():
            raise UsageError(f"--result {arguments.result!r} is not the name of a variable")
        with _errors():
            timeout = arguments.timeout if arguments.timeout is None else parse_timeout(arguments.timeout)
            self._run(self._started(arguments.backend, parse_texts(arguments.option)), cell, arguments, timeout)

    @line_magic
    def sandbox_stop(self, line: str) -> None:
        """Stop the sandbox. The next cell starts a new one, which can have other options."""
        with _errors():
            self._stop()

    def _stop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.stop()

    def _started(self, backend: Any, options: dict[str, Any]) -> Sandbox:
        """Return the sandbox, made with the options if there is none."""
        if self._sandbox is None:
            self._sandbox = Sandbox(backend or "auto", **options)
            self._options = backend, options
        elif backend not in (None, self._options[0]) or options not in ({}, self._options[1]):
            raise UsageError("the sandbox has been started with other options: run %sandbox_stop first")
        return self._sandbox

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


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Show errors of the sandbox without this process' stack."""
    try:
        yield
    except SandboxError as error:
        raise cell_error(type(error).__name__, str(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageError(printable(str(error), keep="\n")) from error
