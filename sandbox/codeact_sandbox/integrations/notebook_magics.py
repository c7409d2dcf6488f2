"""`%%sandbox`: cells of a notebook that run in the sandbox."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import argparse
import atexit
import base64
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import publish_display_data

from codeact_sandbox import OutputChunk, Result, Sandbox, SandboxError
from codeact_sandbox.types.displays import IMAGES, MAX_SHOWN_BYTES, Display, escaped
from codeact_sandbox.types.filenames import printable, printable_text
from codeact_sandbox.types.limits import parse_timeout
from codeact_sandbox.types.option_parsing import parse_texts
from codeact_sandbox.types.result import MEMORY_LINES, TIMEOUT_LINE, remarks

# Not 8, which hides text, except as the number of a colour.
_PART = r"(?:[34]8;(?:5;\d{1,3}|2(?:;\d{1,3}){3})|0*(?:[0-79]|[1-9]\d{1,2})?)"
_COLOR = re.compile(rf"\x1b\[{_PART}(?:;{_PART})*m")
_FAILURES = {
    "timeout": (
        "Timeout",
        "the code was stopped at its time limit, after {:.1f} s; --timeout SECONDS (timeout=) sets another",
    ),
    "oom": ("OutOfMemory", "the code used more memory than the sandbox has, and was stopped"),
}
_STATES = {
    "kept": "\nThe session's variables are kept.",
    "restored": "\nThe session's variables are as they were before this cell.",
    "lost": "\nThe session's variables are lost.",
}


class SandboxCellError(Exception):
    """The code of a cell has failed in the sandbox. Its subclasses have the names of the code's exceptions."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of this process' stack; that of the code is in the output."""
        return [f"\x1b[31m{type(self).__name__}: {self}\x1b[0m"]


def cell_error(name: str, message: str) -> SandboxCellError:
    """Return an exception of a class with a given name, so that a notebook shows the error as if it was its own."""
    last = name.rpartition(".")[2]
    safe = last if last.isidentifier() and len(last) <= 100 else "SandboxCellError"
    kind: type[SandboxCellError] = type(safe, (SandboxCellError,), {})
    return kind(printable(message[:10_000], keep="\n\t"))


class CellOutput:
    def __init__(self) -> None:
        # Characters of the line of a display, which the display replaces, that have not come yet.
        self._line_left = 0
        self._chars = 0  # characters of the output that have come
        self._shown: dict[str, str] = {}
        self._bytes = 0

    def add(self, chunk: OutputChunk) -> None:
        if chunk.display is not None:
            self._show(chunk.display)
            if chunk.display.output_line and chunk.display.offset is not None:
                self._line_left += len(chunk.display.output_line) + 1
        elif chunk.text not in (TIMEOUT_LINE, *MEMORY_LINES.values()):
            self._chars += len(chunk.text)
            skipped = min(self._line_left, len(chunk.text))
            self._line_left -= skipped
            self._print(chunk.text[skipped:])

    def finish(self, result: Result) -> None:
        failed = result.outcome != "ok" or result.exit_code != 0
        if lines := remarks(result):
            text = "\n".join(lines)
            rows = f'<pre style="color:var(--jp-ui-font-color2, #666)">{escaped(text)}</pre>'
            publish_display_data({"text/plain": printable_text(text, keep="\r"), "text/html": rows})
        if failed:
            name, message = _FAILURES.get(
                result.outcome, ("ExitStatus", f"the code ended with exit code {result.exit_code}")
            )
            if result.error is not None:
                name, message = result.error.type, result.error.message
            elif result.outcome == "timeout":
                message = message.format(result.duration_s)
            if result.state != "kept":
                message += _STATES[result.state]
            raise cell_error(name, message)

    def interrupted(self, interrupt: KeyboardInterrupt) -> SandboxCellError:
        """Show what the code has written that has not come as a piece, and return the error of the cell."""
        result: Result | None = getattr(interrupt, "result", None)
        if result is None:
            return cell_error("KeyboardInterrupt", "the cell was stopped")
        self.add(OutputChunk(0, result.output[self._chars :]))
        return cell_error("KeyboardInterrupt", "the cell was stopped" + _STATES[result.state])

    def _print(self, text: str) -> None:
        if text:
            sys.stdout.write(_safe(text))
            if sys.stdout.isatty():  # a kernel sends what it has several times a second
                sys.stdout.flush()

    def _show(self, display: Display) -> None:
        data = _bundle(display)
        self._bytes += sum(len(value) for value in data.values())
        if self._bytes > MAX_SHOWN_BYTES:
            self._print(f"{display.output_line or display.name}\n")
            return
        update = display.name in self._shown
        ident = self._shown.setdefault(display.name, uuid4().hex)
        publish_display_data(data, transient={"display_id": ident}, update=update)


def _safe(text: str) -> str:
    """Return text in which only colours control a terminal or a notebook."""
    at, pieces = 0, []
    for found in _COLOR.finditer(text):
        pieces += [printable_text(text[at : found.start()], keep="\r"), found[0]]
        at = found.end()
    return "".join([*pieces, printable_text(text[at:], keep="\r")])


def _bundle(display: Display) -> dict[str, str]:
    """Return the forms of a display that can't run or load anything in the page of a notebook.

    Images are images. The rest is HTML of this package: SVG as an image, HTML in a frame without scripts, others as text.
    """
    text = printable_text(display.output_line or display.text or display.name, keep="\r")
    kind = next((kind for kind in IMAGES if kind in display.data), None)
    if kind in ("image/png", "image/jpeg", "image/gif"):
        return {"text/plain": text, kind: base64.b64encode(display.data[kind]).decode("ascii")}
    return {"text/plain": text, "text/html": display.to_html()}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%sandbox` and its companions to a shell: `%load_ext codeact_sandbox`.

    Args:
        shell: The shell of the notebook or terminal.
    """
    if "sandbox" not in shell.magics_manager.magics["cell"]:
        shell.register_magics(SandboxMagics(shell))


@magics_class
class SandboxMagics(Magics):
    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._sandbox: Sandbox | None = None
        self._options: tuple[str | None, dict[str, Any]] = (None, {})
        atexit.register(self._stop_at_exit, os.getpid())

    def _stop_at_exit(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child of the kernel ends nothing
            self.stop()

    def stop(self) -> None:
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
        if self._sandbox is None:
            self._sandbox = Sandbox(backend or "auto", **options)
            self._options = backend, options
        elif backend not in (None, self._options[0]) or options not in ({}, self._options[1]):
            raise UsageError("the sandbox has been started with other options: run %sandbox_stop first")
        return self._sandbox

    def _run(self, sandbox: Sandbox, cell: str, arguments: argparse.Namespace, timeout: float | None) -> None:
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
