"""The commands of `codeact` and their help. The other modules do the work; each is imported when it is needed."""

# ruff: noqa: B008, PLC0415 - options are defaults; `codeact --help` must not wait for AutoGen and the Docker SDK

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from autogen_codeact.cli.command import Application, Command
from autogen_codeact.cli.jobs import BatchJob, ChatJob, JsonOption, QuietOption, ResumeJob, RunArgument, RunJob
from autogen_codeact.cli.mcp import Wrap
from autogen_codeact.cli.output import EXIT_INTERRUPTED, CommandError, LastJsonLine, say
from autogen_codeact.cli.sandbox_choice import ImageOption, KindOption, SandboxChoice

app = Application(
    name="codeact",
    help="AutoGen agents that solve tasks by writing code and running it in a hardened sandbox.",
    epilog="First steps: `codeact doctor` checks this machine, `codeact demo` shows a run without a model or a key.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
image_app = Application(help="Build the sandbox images.", no_args_is_help=True)
app.add_typer(image_app, name="image")


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode must not end a run
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun: its arguments take a moment to be made
        say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    raise AssertionError("a typer application exits")


def _print_version(requested: bool) -> None:
    if requested:
        from autogen_codeact import __version__
        from codeact_sandbox.types import version

        typer.echo(f"codeact {__version__} (codeact-sandbox {version.__version__}, image {version.DEFAULT_IMAGE})")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the versions."
    ),
) -> None:
    pass


@app.command("demo")
def _demo(
    out: Path = typer.Option(Path("codeact-demo"), metavar="FOLDER", help="Folder for plot and page."),
    sandbox: KindOption = "auto",
) -> int:
    """Watch an agent write code, fail, repair it and answer.

    The model is a recording, so no key is needed. The code really runs, in the sandbox.
    """
    from autogen_codeact.cli.demo import run_demo

    return run_demo(out, sandbox)


@app.command("exec")
def _exec(
    file: str = typer.Argument(
        ..., metavar="FILE", help="FILE.md, FILE.py or FILE.sh, without arguments; or - for markdown on standard input."
    ),
    *,
    sandbox: SandboxChoice,
    keep_going: bool = typer.Option(False, "--keep-going", help="Run the blocks after one that fails, too."),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> int:
    """Run the code of a markdown file or a script in the sandbox. No model is involved.

    Blocks run one after the other, up to the first that fails. The exit status is that of the failing block, else 0;
    2 if nothing could be run. Without --work-dir, files that the code makes are kept in the new folder codeact-files.
    """
    from autogen_codeact.cli.exec_file import run_file

    return run_file(file, sandbox, as_json=as_json, keep_going=keep_going, quiet=quiet)


@app.command("run")
def _run(job: RunJob) -> NoReturn:
    """Let an agent solve a task by writing code and running it in the sandbox.

    The exit status is 0 with a final answer; 1 without one, if the last code failed, or if the answer contains code that could
    have been run and was not; 2 if the run was not possible; 4 if it waits for an answer. The run is kept.
    """
    _work("run_task", job)


def _work(command: str, job: RunJob | ResumeJob) -> NoReturn:
    from autogen_codeact.cli.progress import Progress

    with LastJsonLine(job.as_json) as end, Progress(enabled=not job.as_json) as progress:
        progress.set("starting")
        from autogen_codeact.cli import run

        raise typer.Exit(getattr(run, command)(job, end, progress))


@app.command("chat")
def _chat(job: ChatJob) -> int:
    """Talk with an agent that writes code and runs it in one live session.

    Enter sends a message, Alt-Enter begins a new line, /help lists the commands. Ctrl-C stops the code that runs, a second one
    ends the turn, a third one leaves. The exit status is 0, or 130 after the third Ctrl-C.
    """
    from autogen_codeact.cli.chat import run_chat

    return run_chat(job)


class _BatchCommand(Command):
    """`codeact batch TASKS …`; with `report` as its first argument, another command."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args[:1] == ["report"]:
            reporting = Application()
            reporting.command()(_report)
            command: Any = typer.main.get_command(reporting)
            return command.make_context(f"{info_name} report", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@app.command("batch", cls=_BatchCommand)
def _batch(job: BatchJob) -> None:
    """Let an agent solve many tasks, several at the same time. The same command again continues where it ended.

    The options of `codeact run` for model, agent and sandbox work, too. --option also takes attempts, backoff, task_timeout
    and model_calls_per_minute (docs/batch.md).

    After Ctrl-C running tasks are finished; a second one stops at once. The exit status is 0 if each task has ended, 1 if
    some have failed, 2 if the batch was not possible, 3 if its budget has ended it, 130 after Ctrl-C.
    `codeact batch report DIR` summarizes a batch.
    """

    with LastJsonLine(job.as_json) as end:
        from autogen_codeact.cli.batch import run_tasks

        raise typer.Exit(run_tasks(job, end))


def _report(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a batch."), as_json: JsonOption = False
) -> int:
    """Summarize a batch: outcomes, checks, tokens, errors.

    The exit status is 0, or 2 if the folder can't be read.
    """
    from autogen_codeact.cli.batch_display import print_report

    return print_report(folder, as_json=as_json)


@app.command("runs")
def _runs(
    folder: Path | None = typer.Argument(
        None, metavar="[DIR]", help="Folder that the runs are in. Default: where `codeact run` keeps them."
    ),
    as_json: JsonOption = False,
) -> int:
    """List the runs that `codeact run` has kept in a folder, the latest first.

    The exit status is 0, or 1 if one of them can't be read.
    """
    from autogen_codeact.cli.kept_runs import print_runs

    return print_runs(folder, as_json=as_json)


@app.command("show")
def _show(run: RunArgument = "last") -> int:
    """Print a run again, as it was printed while it ran."""
    from autogen_codeact.cli.kept_runs import show_run
    from autogen_codeact.runs.store import find_run

    return show_run(find_run(run))


@app.command("resume")
def _resume(job: ResumeJob) -> NoReturn:
    """Continue a run that was interrupted, at its last completed step."""
    _work("resume_run", job)


@app.command("export")
def _export(
    run: RunArgument,
    *,
    notebook: Path | None = typer.Option(None, "--ipynb", metavar="FILE", help="A notebook for Jupyter."),
    page: Path | None = typer.Option(None, "--html", metavar="FILE", help="One page, for any browser."),
    json_file: Path | None = typer.Option(None, "--json", metavar="FILE", help="One JSON object with all events."),
    atif: Path | None = typer.Option(None, "--atif", metavar="FILE", help="A trajectory (ATIF 1.7) for training."),
    files: Path | None = typer.Option(None, "--files", metavar="FOLDER", help="The files that the code has made."),
) -> int:
    """Write a run as a page, a notebook, JSON, or the code's files in a new folder. A file that exists is replaced."""
    from autogen_codeact.cli.kept_runs import export_run
    from autogen_codeact.runs.store import find_run

    targets = {"html": page, "ipynb": notebook, "json": json_file, "atif": atif, "files": files}
    return export_run(find_run(run), targets)


@app.command("view")
def _view(
    target: str | None = typer.Argument(
        None,
        metavar="[RUN|DIR]",
        help="A run, a folder with runs in it, or the folder of a batch. Default: where `codeact run` keeps runs.",
    ),
    port: int = typer.Option(0, min=0, max=65535, metavar="N", help="Port to listen on.", show_default="a free one"),
    no_open: bool = typer.Option(False, "--no-open", help="Do not open a browser."),
    host: str = typer.Option("127.0.0.1", metavar="IP", help="Address; only this machine reaches 127.0.0.1."),
) -> int:
    """Show runs or a batch in a browser: the list, the steps of each run, and running ones live. Prints the address of the page.

    Anyone who has the address can see the runs. Ctrl-C ends it.
    """
    from autogen_codeact.cli.pages import view

    return view(target, host=host, port=port, open_browser=not no_open)


@app.command("mcp")
def _mcp(
    *,
    sandbox: SandboxChoice,
    wrap: Wrap,
    http: str | None = typer.Option(
        None,
        metavar="[HOST:]PORT",
        help="Serve many clients by HTTP. If CODEACT_MCP_TOKEN is set, requests need that token; other machines always do.",
    ),
    max_sessions: int | None = typer.Option(
        None, min=1, metavar="N", help="With --http: sandboxes at once. Default: 8."
    ),
    idle_timeout: float | None = typer.Option(
        None, min=1, metavar="SECONDS", help="With --http: end a session without a call for so long. Default: 600."
    ),
) -> int:
    """Serve a sandbox to an MCP client on standard input and output: run_code, read_file, write_file, list_files, restart.

    One live Python interpreter for each client. The sandbox starts with the first call and ends with the client.
    """
    from autogen_codeact.cli.mcp import serve_mcp

    return serve_mcp(sandbox, wrap, http, max_sessions, idle_timeout)


@app.command("doctor")
def _doctor(image: ImageOption = None, as_json: JsonOption = False) -> int:
    """Check this machine: Docker, bubblewrap, the image, the sandbox's limits.

    For each problem it prints what to do. The exit status is 0 if everything needed is available, else 1.
    """
    from autogen_codeact.cli.doctor import run_doctor

    return run_doctor(image, as_json=as_json)


@app.command("clean")
def _clean(
    everything: bool = typer.Option(
        False, "--all", help="Also those kept on purpose, of other machines, or from before a restart."
    ),
) -> int:
    """Remove sandboxes and temporary folders of dead processes.

    These are containers, bubblewrap's control groups with their processes, and copies of files. Without --all, those of a
    running process are never removed. The exit status is 0, or 1 if something could not be removed.
    """
    from codeact_sandbox.integrations.command import clean

    return clean(say, everything=everything)


@image_app.command("build")
def _image_build(
    package: list[str] | None = typer.Option(
        None, metavar="NAME", help="A package for a derived image, such as 'torch>=2' or a .whl file; can be repeated."
    ),
    force: bool = typer.Option(False, "--force", help="Build the image even if it exists."),
) -> int:
    """Build the sandbox image: Python 3.13 with numpy, pandas, scipy, sympy, matplotlib, scikit-learn and more."""
    from contextlib import closing

    from codeact_sandbox.backends.docker.default_image import build_default_image
    from codeact_sandbox.backends.docker.engine import connect
    from codeact_sandbox.backends.docker.image import parse_packages, resolve_image

    try:
        parse_packages(package or ())
    except ValueError as error:
        raise CommandError(str(error)) from error
    with closing(connect()) as client:
        image = build_default_image(client, progress=say, force=force)
        print(resolve_image(client, image, package or (), progress=say))  # noqa: T201 - it is the output
    return 0
