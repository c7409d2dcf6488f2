"""The arguments and help texts of the `codeact` command. The other modules do the work; each is imported when it is needed."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen and the Docker SDK

from __future__ import annotations

import sys
from copy import copy
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from autogen_codeact.cli.agent_options import AgentChoice, Mode, agent_option, mode_option, with_agent_options
from autogen_codeact.cli.batch_options import BatchCommand, batch
from autogen_codeact.cli.chat_options import chat
from autogen_codeact.cli.command import Application, JsonCommand
from autogen_codeact.cli.exit import EXIT_INTERRUPTED, clean_exit, end_process, say
from autogen_codeact.cli.model_choice import DEFAULT_TIMEOUT_S, ModelChoice
from autogen_codeact.cli.model_options import ModelTimeoutOption, with_model_options
from autogen_codeact.cli.sandbox_choice import EngineChoice, SandboxChoice
from autogen_codeact.cli.sandbox_options import (
    ImageOption,
    SandboxKind,
    SandboxOption,
    with_engine_options,
    with_sandbox_options,
)


class ImageVariant(StrEnum):
    """What a sandbox image contains."""

    DEFAULT = "default"
    SLIM = "slim"


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder; or its name in `codeact runs`; or last, for the latest.")
]


app = Application(
    name="codeact",
    help="AutoGen agents that solve tasks by writing code and running it in a hardened sandbox.",
    epilog="First steps: `codeact doctor` checks this machine, `codeact demo` shows a run without a model or a key.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
image_app = Application(help="Build or list the sandbox images.", no_args_is_help=True)
app.add_typer(image_app, name="image")


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode must not end a run
    try:
        try:
            _application(sys.argv[1:2])()
        except SystemExit as end:
            if isinstance(end.code, int):
                end_process(end.code)
            raise
    except KeyboardInterrupt:  # before a command has begun: its arguments take a moment to be made
        say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    raise AssertionError("a typer application exits")


def _application(arguments: list[str]) -> typer.Typer:
    """Return the application, with only one command if that is named.

    Typer builds all commands before it looks at the arguments, which takes longer than the work of some.

    Args:
        arguments: The first argument, if there is one.
    """
    commands = [each for each in app.registered_commands if each.name in arguments]
    groups = [each for each in app.registered_groups if each.name in arguments]
    if not commands and not groups:
        return app
    only = copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    return only


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"codeact {version('autogen-codeact')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("demo")
def _demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the plot that the code draws, and for the page.")
    ] = Path("codeact-demo"),
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
) -> None:
    """Watch an agent write code, fail, repair it and answer.

    The model is a recording, so no key is needed. The code really runs, in the sandbox.
    """
    with clean_exit():
        from autogen_codeact.cli.demo import run_demo

        raise typer.Exit(run_demo(out, SandboxChoice(sandbox.value, image)))


@app.command("exec")
@with_sandbox_options()
def _exec(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="FILE.md, FILE.py, FILE.sh or FILE.ipynb; or - for markdown on standard input."
        ),
    ],
    *,
    choice: SandboxChoice,
    mode: Annotated[Mode | None, mode_option("session; for a script, process")] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Run the blocks after one that fails, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the code of a markdown file, a script or a notebook in the sandbox. No model is involved.

    Blocks run one after the other, up to the first that fails. The exit status is that of the failing block, else 0;
    2 if nothing could be run. Without --work-dir, files that the code makes are kept in the new folder codeact-files.
    """
    with clean_exit():
        from autogen_codeact.cli.code_file import SCRIPTS
        from autogen_codeact.cli.run_blocks import run_file

        used = mode or (Mode.PROCESS if Path(file).suffix.lower() in SCRIPTS else None)
        chosen = replace(choice, mode=used and used.value)
        raise typer.Exit(run_file(file, chosen, as_json=as_json, keep_going=keep_going))


@app.command("run", cls=JsonCommand)
@with_sandbox_options()
@with_agent_options()
@with_model_options()
def _run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task, as text.")],
    *,
    model_choice: ModelChoice,
    agent_choice: AgentChoice,
    stream: Annotated[bool, typer.Option("--stream", help="Show the model's answer while it is generated.")] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Keep the run in this new folder, such as runs/42, instead of among those that `codeact runs` lists.",
        ),
    ] = None,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Do not keep the run: `codeact show` and `codeact resume` can't find it.")
    ] = False,
    view: Annotated[
        bool, typer.Option("--view", help="Show the run live in a browser, with a button to stop it.")
    ] = False,
    approve: Annotated[
        bool, agent_option("--approve", help="Ask before code runs, in the terminal and on the page of --view.")
    ] = False,
    mode: Annotated[Mode | None, mode_option("session")] = None,
    choice: SandboxChoice,
    as_json: JsonOption = False,
) -> None:
    """Let an agent solve a task by writing code and running it in the sandbox.

    The exit status is 0 with a final answer; 1 without one, if the last code failed, or if the answer contains code that could
    have been run and was not; 2 if the run was not possible. The run is kept; when all kept runs have more than 2 GB (or what
    CODEACT_RUNS_SIZE says), the oldest are removed.
    """
    from autogen_codeact.cli.json_output import LastJsonLine
    from autogen_codeact.cli.progress import Progress

    with clean_exit(), LastJsonLine(as_json) as end, Progress(enabled=not as_json) as progress:
        progress.set("starting")
        from autogen_codeact.cli.run import Job, run_task

        job = Job(
            task=task,
            model=model_choice,
            sandbox=replace(choice, mode=mode and mode.value),
            agent=agent_choice,
            stream=stream,
            save=save,
            no_save=no_save,
            stream_output=stream or not as_json,
            view=view,
            approve=approve,
        )
        raise typer.Exit(run_task(job, end, progress))


app.command("chat")(chat)
app.command("batch", cls=BatchCommand)(batch)


@app.command("models")
def _models(
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Also ask this server, which speaks OpenAI's format.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR", help="Environment variable with the key of that server.", show_default="OPENAI_API_KEY"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models that can be used now, and what the other servers need: a key, or to be started.

    A server whose key is set gets one request, with the key. The exit status is 0 if at least one server can be used, else 1.
    """
    with clean_exit():
        from autogen_codeact.cli.list_models import print_models

        raise typer.Exit(print_models(base_url, api_key_env, as_json=as_json))


@app.command("runs")
def _runs(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Folder that the runs are in. Default: where `codeact run` keeps them."),
    ] = None,
    adopted: Annotated[
        str | None,
        typer.Argument(
            metavar="| adopt RUN",
            help="Make a run that was copied, or made elsewhere, one of your own: you trust its log.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that `codeact run` has kept in a folder, the latest first; or adopt one.

    The exit status is 0, or 1 if one of them can't be read.
    """
    with clean_exit():
        from autogen_codeact.cli.list_runs import adopt, print_runs

        if adopted is None:
            raise typer.Exit(print_runs(folder, as_json=as_json))
        if folder != Path("adopt"):
            raise typer.BadParameter("one folder is listed at a time; `codeact runs adopt RUN` adopts a run.")
        raise typer.Exit(adopt(adopted))


@app.command("show")
def _show(run: RunArgument, as_json: JsonOption = False) -> None:
    """Print a run again, as it was printed while it ran."""
    with clean_exit():
        from autogen_codeact.cli.saved_run import show_run
        from autogen_codeact.runs.store import find_run

        raise typer.Exit(show_run(find_run(run), as_json=as_json))


@app.command("resume", cls=JsonCommand)
def _resume(
    run: RunArgument,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild/--no-rebuild", help="Rebuild the session, or begin with an empty one.")
    ] = True,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VAR", help="Environment variable with the model's key.")
    ] = None,
    model_timeout: ModelTimeoutOption = DEFAULT_TIMEOUT_S,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Load the configuration in the log even if you did not make the run here. It can run code on this machine.",
        ),
    ] = False,
    approve: Annotated[
        bool,
        typer.Option(
            "--approve", help="Ask before code runs; always if the run is not your own, or was started with --approve."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a run that was interrupted, at its last completed step."""
    from autogen_codeact.cli.json_output import LastJsonLine
    from autogen_codeact.cli.progress import Progress

    with clean_exit(), LastJsonLine(as_json) as end, Progress(enabled=not as_json) as progress:
        progress.set("starting")
        from autogen_codeact.cli.resume_run import ResumeJob, resume_run
        from autogen_codeact.runs.store import find_run

        path = find_run(run)
        job = ResumeJob(path, rebuild, trust, approve, api_key_env, model_timeout)
        end.run = path
        raise typer.Exit(resume_run(job, end, progress))


@app.command("export")
def _export(
    run: RunArgument,
    notebook: Annotated[
        Path | None, typer.Option("--ipynb", metavar="FILE", help="Write a notebook for Jupyter, with all outputs.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one page with everything inside, for any browser."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write one JSON object with all events.")
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="FOLDER", help="Write the files that the code has made into a new folder."),
    ] = None,
) -> None:
    """Write a run as a page, a notebook, JSON or files. A file that exists is replaced."""
    with clean_exit():
        from autogen_codeact.cli.export_run import export_run
        from autogen_codeact.runs.store import find_run

        raise typer.Exit(export_run(find_run(run), notebook=notebook, page=page, json_file=json_file, files=files))


@app.command("view")
def _view(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|DIR]",
            help="A run, or a folder with runs in it. Default: the folder where `codeact run` keeps them.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port to listen on.", show_default="a free one")
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    host: Annotated[
        str,
        typer.Option(metavar="IP", help="Address to listen on. 127.0.0.1: only this machine can reach it."),
    ] = "127.0.0.1",
) -> None:
    """Show runs in a browser: the list, the steps of each run, and running ones live. Prints the address of the page.

    Anyone who has the address can see the runs. Ctrl-C ends it.
    """
    with clean_exit():
        from autogen_codeact.cli.view import view

        raise typer.Exit(view(target, host=host, port=port, open_browser=not no_open))


@app.command("mcp")
@with_sandbox_options(isolated=True)
def _mcp(*, choice: SandboxChoice) -> None:
    """Serve a sandbox to an MCP client on standard input and output: run_code, read_file, write_file, list_files, restart.

    One live Python interpreter for each client. The sandbox starts with the first call and ends with the client.
    """
    with clean_exit():
        from autogen_codeact.cli.mcp import serve_mcp

        raise typer.Exit(serve_mcp(replace(choice, mode=Mode.SESSION.value)))


@app.command("doctor")
@with_engine_options()
def _doctor(
    engines: EngineChoice,
    image: ImageOption = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Model server to check.", show_default="OPENAI_BASE_URL")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine: Docker, bubblewrap, the image, the sandbox's limits, the model.

    For each problem it prints what to do. The exit status is 0 if everything needed is available, else 1.
    """
    with clean_exit():
        from autogen_codeact.cli.doctor import run_doctor

        raise typer.Exit(run_doctor(image, base_url, engines.engines(), as_json=as_json))


@app.command("clean")
@with_engine_options()
def _clean(
    engines: EngineChoice,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also remove those kept with auto_remove=False, and those of other machines or from before a restart.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove sandboxes and temporary folders of dead processes.

    These are containers, bubblewrap's control groups with their processes, and copies of files. Without --all, those of a
    running process are never removed. The exit status is 0, or 1 if something could not be removed.
    """
    with clean_exit():
        from autogen_codeact.cli.leftovers import clean

        raise typer.Exit(clean(engines.engines(), everything=everything, dry_run=dry_run, as_json=as_json))


@image_app.command("build")
@with_engine_options()
def _image_build(
    engines: EngineChoice,
    variant: Annotated[
        ImageVariant,
        typer.Option(metavar="VARIANT", help="default: with the libraries; slim: Python and pip only."),
    ] = ImageVariant.DEFAULT,
    package: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Build a derived image that also has this package, such as polars, 'torch>=2' or a local .whl file; "
            "can be repeated.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build the image even if it exists.")] = False,
) -> None:
    """Build the sandbox image: Python 3.13 with numpy, pandas, scipy, sympy, matplotlib, scikit-learn and more.

    With several engines it is built on each.
    """
    with clean_exit():
        from autogen_codeact.cli.image import build_image

        raise typer.Exit(build_image(engines.engines(), force=force, variant=variant.value, packages=package or ()))
