"""`codeact demo`: a recorded model, and real code in a real sandbox."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from autogen_codeact.cli.jobs import AgentChoice, ModelChoice, RunJob
from autogen_codeact.cli.model_servers import REPLAY
from autogen_codeact.cli.output import CommandError, LastJsonLine
from autogen_codeact.cli.progress import Progress
from autogen_codeact.cli.run import run_task
from autogen_codeact.cli.sandbox_choice import Kind, SandboxChoice
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.runs import load_run
from autogen_codeact.viewer.one_file import export_html

TASK = (
    "sales.csv has one row for each product and day of sale. Which product brought in the most money? Give the revenue of each "
    "product, and save a bar chart of them."
)
DATA, PLOT, PAGE = "sales.csv", "revenue.svg", "demo.html"


def run_demo(out: Path, kind: Kind) -> int:
    terminal, recordings = Terminal(), files("autogen_codeact.cli") / "recordings"
    terminal.field("Model", "recorded: its answers are read from a file, so no key and no network are needed")
    terminal.field("Code", "real: every result below comes from running the code now")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / DATA).write_text((recordings / DATA).read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{out} can't be used ({error.strerror}). Choose another folder with --out.") from error
    end = LastJsonLine(enabled=False)
    with as_file(recordings / "answers.json") as answers, Progress() as progress:
        job = RunJob(TASK, ModelChoice(f"{REPLAY}{answers}"), AgentChoice(), SandboxChoice(kind, work_dir=out))
        status = run_task(job, end, progress)
    if status == 0 and end.run is not None:
        export_html(load_run(end.run), out / PAGE)
        terminal.field("Files", f"{out / PLOT}, made by the code, and {out / PAGE}, the whole run in one page")
    terminal.field("Next", 'codeact run "How many primes are below 1000?" --model gpt-4o-mini')
    terminal.field("", "(needs OPENAI_API_KEY; --model ollama/NAME and lmstudio/NAME need no key)")
    return status
