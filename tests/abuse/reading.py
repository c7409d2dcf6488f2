"""A program that reads the folder of a run in every way, with little memory: each way ends, or says in one line why not."""

import resource
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from autogen_codeact.batch.attempt import read_log
from autogen_codeact.cli.kept_runs import export_run, print_runs, show_run
from autogen_codeact.runs import RunError
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.viewer.catalog import summary_row
from autogen_codeact.viewer.steps import RunSteps

ROOM = 256 * 1024**2


def read_in_every_way(folder: Path, out: Path) -> None:
    """Read a run as each command does."""

    def export(**formats: Path) -> int:
        return export_run(folder, formats)

    def view() -> None:
        steps = RunSteps(folder)
        steps.view.read_all()
        steps.header()
        for number in (*range(1, min(len(steps), 20)), len(steps)):
            steps.steps(number, number)
            steps.output(number)
        steps.search("nowhere", range(1, min(len(steps), 20)))

    ways: dict[str, Callable[[], object]] = {
        "show": lambda: show_run(folder),
        "export --html": lambda: export(html=out / "page"),
        "export --ipynb": lambda: export(ipynb=out / "notebook"),
        "export --json": lambda: export(json=out / "json"),
        "export --files": lambda: export(files=out / "files"),
        "resume": lambda: make_plan(folder),
        "runs": lambda: print_runs(folder, as_json=False),
        "view": view,
        "list of the viewer": lambda: summary_row("run", folder),
        "batch": lambda: read_log(folder),
    }
    for name, way in ways.items():
        said = ""
        try:
            with open(out / "shown", "w") as shown, redirect_stdout(shown), redirect_stderr(StringIO()):
                way()
        except RunError as error:
            said = str(error)
        except MemoryError:
            said = "MemoryError"
        sys.stdout.write(f"{name}: {said or 'read'}\n")
        sys.stdout.flush()
        shutil.rmtree(out / "files", ignore_errors=True)


def size_of_process() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    """Read a small run, to import everything; then another one, with little memory."""
    small, folder, out = map(Path, sys.argv[1:])
    read_in_every_way(small, out)
    sys.stdout.write("---\n")
    limit = size_of_process() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    read_in_every_way(folder, out)
