"""What the `codeact` command takes. What it does is in the other modules, each imported only when it is needed."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen and the Docker SDK

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from autogen_codeact.cli.ending import clean_exit

MODE_HELP = "process: each block a fresh process. session: one interpreter, whose variables live on."


class Mode(StrEnum):
    """How blocks run."""

    PROCESS = "process"
    SESSION = "session"


class SandboxKind(StrEnum):
    """Where blocks run."""

    AUTO = "auto"
    DOCKER = "docker"
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


SandboxOption = Annotated[
    SandboxKind,
    typer.Option(
        help="Where code runs. auto: Docker where an engine answers, else bubblewrap. none: on this machine, unheld."
    ),
]
ImageOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Docker image, instead of the one that `codeact image build` makes.")
]
TimeoutOption = Annotated[float, typer.Option(metavar="SECONDS", help="How long one block may run.")]
WorkDirOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Its files are there for the code, and what the code writes comes back to it."),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-domain",
        metavar="HOST",
        help="A host that the code may reach, such as api.example.com or '*.example.org:443'; can be repeated.",
    ),
]
OtherOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help='Any other option of the sandbox, such as network=bridge or limits=\'{"memory": "2g"}\'; can be repeated.',
    ),
]
ModeOption = Annotated[Mode, typer.Option(help=MODE_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]

app = typer.Typer(
    name="codeact",
    help="AutoGen agents that solve tasks by writing code and running it in a hardened sandbox.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
image_app = typer.Typer(help="The sandbox image: build it, list what is there.", no_args_is_help=True)
app.add_typer(image_app, name="image")


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode must not end a run
    app()
    raise AssertionError("a typer application exits")


def _print_version(wanted: bool) -> None:
    if wanted:
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
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the plot is saved.")] = Path("codeact-demo"),
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
) -> None:
    """Watch an agent fail, repair its code and answer: a recorded model, real code in the real sandbox."""
    with clean_exit():
        from autogen_codeact.cli.demo import run_demo
        from autogen_codeact.cli.sandbox import SandboxChoice

        raise typer.Exit(run_demo(out, SandboxChoice(sandbox.value, image)))


@app.command("exec")
def _exec(
    file: Annotated[str, typer.Argument(metavar="FILE.md", help="A markdown file, or - for standard input.")],
    *,
    mode: ModeOption = Mode.PROCESS,
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
    timeout: TimeoutOption = 60,
    work_dir: WorkDirOption = None,
    allow_domain: AllowOption = None,
    option: OtherOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Run the code blocks of a markdown file, one after the other, up to the first that fails. No model.

    The exit status is that of the first failing block, else 0; it is 2 where nothing could be run.
    """
    with clean_exit():
        from autogen_codeact.cli.run_blocks import run_file
        from autogen_codeact.cli.sandbox import SandboxChoice

        lists = tuple(allow_domain or ()), tuple(option or ())
        choice = SandboxChoice(sandbox.value, image, mode.value, timeout, work_dir, *lists)
        raise typer.Exit(run_file(file, choice, as_json=as_json))


@app.command("run")
def _run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What is to be done, in words.")],
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="A model's name; replay:FILE, a recording; or FILE.json, an AutoGen component of a model client.",
        ),
    ],
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server, such as http://localhost:11434/v1.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VAR", help="Variable that holds the key.", show_default="OPENAI_API_KEY")
    ] = None,
    untrusted: Annotated[
        bool,
        typer.Option(
            "--untrusted",
            help="Refuse FILE.json if it sets a server, a key, or anything else that needs trust.",
        ),
    ] = False,
    retries: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="How often failed code may be repaired.", show_default="3")
    ] = None,
    team: Annotated[bool, typer.Option("--team", help="A coder and an executor instead of one agent.")] = False,
    act: Annotated[
        bool, typer.Option("--act", help="Act in code, step by step in one session, until the task is done.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --act: how many steps at most.", show_default="20")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the model's words as they come.")] = False,
    mode: Annotated[Mode | None, typer.Option(help=MODE_HELP, show_default="process; with --act, session")] = None,
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
    timeout: TimeoutOption = 60,
    work_dir: WorkDirOption = None,
    allow_domain: AllowOption = None,
    option: OtherOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Let an agent solve one task by writing code and running it in the sandbox.

    The exit status is 0 with a final answer, 1 without one or when the last code failed, 2 when it could not be done.
    """
    with clean_exit():
        from autogen_codeact.cli.models import ModelChoice
        from autogen_codeact.cli.run import Job, run_task
        from autogen_codeact.cli.sandbox import SandboxChoice

        lists = tuple(allow_domain or ()), tuple(option or ())
        kept = mode or (Mode.SESSION if act else Mode.PROCESS)
        job = Job(
            task=task,
            model=ModelChoice(model, base_url=base_url, api_key_env=api_key_env, untrusted=untrusted),
            sandbox=SandboxChoice(sandbox.value, image, kept.value, timeout, work_dir, *lists),
            retries=retries,
            team=team,
            stream=stream,
            act=act,
            steps=steps,
        )
        raise typer.Exit(run_task(job, as_json=as_json))


@app.command("mcp")
def _mcp(
    *,
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
    timeout: TimeoutOption = 60,
    work_dir: WorkDirOption = None,
    allow_domain: AllowOption = None,
    option: OtherOptions = None,
) -> None:
    """Serve a sandbox to an MCP client on standard input and output: run_code, read_file, write_file, list_files, restart.

    One live Python interpreter for each client. The sandbox starts with the first call and ends with the client.
    """
    with clean_exit():
        from autogen_codeact.cli.mcp import serve_mcp
        from autogen_codeact.cli.sandbox import SandboxChoice

        choice = SandboxChoice(
            sandbox.value, image, Mode.SESSION.value, timeout, work_dir, tuple(allow_domain or ()), tuple(option or ())
        )
        raise typer.Exit(serve_mcp(choice))


@app.command("doctor")
def _doctor(
    image: ImageOption = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Model server to look for.", show_default="OPENAI_BASE_URL")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check what is needed, the sandbox's limits included, and say what to do about each lack.

    The exit status is 0 when all that is needed is there, else 1.
    """
    with clean_exit():
        from autogen_codeact.cli.doctor import run_doctor

        raise typer.Exit(run_doctor(image, base_url, as_json=as_json))


@app.command("clean")
def _clean(
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also those of other machines or of before a restart, and those kept with auto_remove=False."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what dead owners have left: containers, bubblewrap's control groups with what runs in them, temporary folders.

    The exit status is 0, or 1 where something could not be removed.
    """
    with clean_exit():
        from autogen_codeact.cli.leftovers import clean

        raise typer.Exit(clean(everything=everything, dry_run=dry_run, as_json=as_json))


@image_app.command("build")
def _image_build(
    force: Annotated[bool, typer.Option("--force", help="Build anew, also when it is there already.")] = False,
) -> None:
    """Build the sandbox image: Python with numpy, pandas, scipy, sympy and matplotlib."""
    with clean_exit():
        from autogen_codeact.cli.image import build_image

        raise typer.Exit(build_image(force=force))


@image_app.command("list")
def _image_list() -> None:
    """List the sandbox images on this engine, the newest first."""
    with clean_exit():
        from autogen_codeact.cli.image import list_all

        raise typer.Exit(list_all())
