"""The command `codeact-sandbox`: image, doctor, exec, mcp and clean."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from codeact_sandbox import AsyncSandbox, Sandbox, SandboxError
from codeact_sandbox.backends.leftovers import local_leftovers
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.tools.mcp_client import read_servers
from codeact_sandbox.types.filenames import printable_text

_BACKENDS = ("auto", "docker", "bubblewrap")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.work(options))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (SandboxError, ValueError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="codeact-sandbox", description="Sandboxes for code that a model has written.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    image = commands.add_parser("image", help="build the sandbox image on the Docker engine, if it is missing")
    image.add_argument("--force", action="store_true", help="build it again")
    image.set_defaults(work=_image)

    doctor = commands.add_parser("doctor", help="check the engine, the image and bubblewrap")
    doctor.set_defaults(work=_doctor)

    execute = commands.add_parser("exec", help="run a Python program in a new sandbox")
    source = execute.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", help="the program; - for standard input")
    source.add_argument("--code", help="the program itself")
    execute.add_argument(
        "--timeout", type=float, default=60, metavar="SECONDS", help="limit of the program (default 60)"
    )
    execute.set_defaults(work=_execute)

    mcp = commands.add_parser(
        "mcp", help="serve a session to an MCP client on standard input and output, or many by HTTP"
    )
    mcp.add_argument("--http", metavar="[HOST:]PORT", help="serve many clients, each in a session of its own")
    mcp.add_argument("--wrap", type=Path, metavar="FILE.json", help="let code call the tools of these MCP servers")
    mcp.add_argument("--allow", action="append", metavar="PATTERN", help="tools of --wrap that need no approval")
    mcp.add_argument("--call-log", type=Path, metavar="FILE", help="add each call to a tool of --wrap to this file")
    mcp.set_defaults(work=_mcp)
    for command in (execute, mcp):
        command.add_argument("--backend", choices=_BACKENDS, default="auto", help="where code runs (default auto)")
        command.add_argument(
            "--work-dir", type=Path, metavar="FOLDER", help="folder whose files the code reads and changes"
        )

    removal = commands.add_parser("clean", help="remove what killed processes left on this machine")
    removal.add_argument("--all", action="store_true", help="also what is kept on purpose, or of other machines")
    removal.set_defaults(work=_clean)
    return parser


def _image(options: argparse.Namespace) -> int:
    from codeact_sandbox.backends.docker.default_image import build_default_image  # noqa: PLC0415 - as below
    from codeact_sandbox.backends.docker.engine import connect  # noqa: PLC0415 - the Docker SDK takes a moment

    with closing(connect()) as client:
        name = build_default_image(client, progress=_say, force=options.force)
    print(name)  # noqa: T201 - the output
    return 0


def _doctor(_: argparse.Namespace) -> int:
    """Run a block in each backend; the backend's own error says what is missing and what to do."""
    works = False
    for backend in ("docker", "bubblewrap"):
        try:
            with Sandbox(backend) as box:
                done = box.run("import sys; print(sys.version.split()[0])")
        except SandboxError as error:
            print(f"{backend}: {error}")  # noqa: T201 - the output
        else:
            works |= done.exit_code == 0
            print(f"{backend}: ok, Python {printable_text(done.output.strip())}")  # noqa: T201 - the output
    return 0 if works else 1


def _execute(options: argparse.Namespace) -> int:
    code = options.code
    if code is None:
        code = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    with Sandbox(options.backend, work_dir=options.work_dir, timeout=options.timeout) as box:
        done = box.run(code)
    sys.stdout.write(printable_text(done.output))
    if done.outcome == "timeout":
        print(flush=True)  # noqa: T201 - ends the line of the output
        _say(f"the program was stopped after {options.timeout:g} s: --timeout SECONDS sets another limit")
    return done.exit_code


def _mcp(options: argparse.Namespace) -> int:
    try:
        from codeact_sandbox.integrations.mcp_server import run_server  # noqa: PLC0415 - the extra may be missing
        from codeact_sandbox.integrations.mcp_wrap import Wrapped  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        return _fail("the Python package `mcp` is missing. Install it: pip install 'codeact-sandbox[mcp]'")
    if options.wrap is None and (options.allow or options.call_log):
        return _fail("--allow and --call-log are for the tools of --wrap FILE.json: add that.")
    servers = options.wrap and read_servers(options.wrap.read_text(encoding="utf-8"), str(options.wrap))
    wrapped = Wrapped(servers, options.allow, options.call_log) if servers else None
    return run_server(partial(AsyncSandbox, options.backend, work_dir=options.work_dir), wrapped, options.http)


def _clean(options: argparse.Namespace) -> int:
    return clean(_say, everything=options.all)


@contextmanager
def all_leftovers(say: Callable[[str], None]) -> Iterator[list[Leftover]]:
    """Find what dead processes left, which can be removed within the context."""
    from codeact_sandbox.backends.docker.engine import connect  # noqa: PLC0415 - the Docker SDK takes a moment
    from codeact_sandbox.backends.docker.leftovers import leftovers  # noqa: PLC0415 - as above

    with ExitStack() as clients:
        found = local_leftovers()
        try:
            found += leftovers(clients.enter_context(closing(connect())))
        except SandboxError as error:
            say(f"containers were not looked for: {error}")
        yield found


def clean(say: Callable[[str], None], *, everything: bool) -> int:
    """Remove sandboxes and temporary folders whose owner is dead; with `everything` all but those of running processes."""
    status, left = 0, False
    with all_leftovers(say) as found:
        for item in found:
            done = "left alone"
            if item.orphan or everything:
                try:
                    done = "removed" if item.remove() else "gone already"
                except (SandboxError, OSError) as error:
                    done, status = f"not removed: {error}", 1
            left = left or done == "left alone"
            about = f"{item.kind} {item.name} ({item.state}; {item.reason}): {done}"
            print(printable_text(about))  # noqa: T201 - the output
    if not found:
        say("no leftover sandboxes or folders")
    elif left:
        say("`clean --all` removes what was left alone: check first that no one else uses it")
    return status


def _say(line: str) -> None:
    print(f"codeact-sandbox: {printable_text(line)}", file=sys.stderr)  # noqa: T201 - messages of the command


def _fail(message: str) -> int:
    _say(message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
