"""Help, version and usage errors, which import nothing slow."""

import re
import subprocess
import sys

import pytest

from tests.cases import case
from tests.cli.support import codeact

SANDBOX = """
--sandbox --image --timeout --work-dir --data --package --memory --disk --network --allow-domain --allow-pip
--env --secret --option
"""
OPTIONS = {
    "": "--version demo exec run chat models runs show export view image doctor batch clean",
    "demo": "--out --sandbox --image",
    "exec": f"FILE --keep-going --mode --json {SANDBOX}",
    "mcp": SANDBOX,
    "run": f"""
TASK --model replay:FILE --base-url --api-key-env --model-timeout --untrusted --retries --team --act
--steps --stream --json --mode --view --approve --save --max-cost --price {SANDBOX}
    """,
    "chat": f"""
--model --base-url --api-key-env --model-timeout --untrusted --agent --team --steps --stream --approve
--resume --rebuild --trust --save --no-save --max-cost --price {SANDBOX}
    """,
    "batch": """
TASKS --out --accept-changes --json --concurrency --repeat --max-tokens --max-cost
--price --model --act --team --data --package --option attempts backoff max_sandboxes
model_calls_per_minute tasks_per_minute max_seconds task_timeout
    """,
    "batch report": "DIR --json",
    "models": "--base-url --api-key-env --json",
    "runs": "DIR --json",
    "show": "RUN",
    "resume": "RUN --rebuild --api-key-env --model-timeout --trust --json",
    "export": "RUN --ipynb --json --files",
    "view": "[RUN|DIR] --port --no-open --host",
    "image": "build",
    "image build": "--force",
    "doctor": "--json --image",
    "clean": "--all",
}
"""What the help of each command names."""


def test_help_lists_every_option():
    for command, options in OPTIONS.items():
        with case(command):
            done = codeact(*command.split(), "--help", env={"COLUMNS": "200"})
            assert done.status == 0
            assert done.err == ""
            assert [option for option in options.split() if option not in done.out] == []
            assert "bool" not in done.out  # a flag has no value


def test_help_shows_defaults():
    shown = " ".join(codeact("run", "--help", env={"COLUMNS": "200"}).out.split())
    assert "[default: (OPENAI_API_KEY, or that of the prefix)]" in shown
    assert "[default: (3)]" in shown
    assert "[default: 60]" in shown
    assert "[default: (session; for a script, process)]" in shown


def test_help_wraps_paragraphs_as_a_whole():
    lines = [line.strip() for line in codeact("batch", "--help", env={"COLUMNS": "80"}).out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("After Ctrl-C"))
    paragraph = lines[first : lines.index("", first)]
    assert len(paragraph) > 3
    assert [line for line in paragraph[:-1] if len(line) < 60] == []


def test_help_of_batch_fits_on_a_screen():
    lines = codeact("batch", "--help", env={"COLUMNS": "100"}).out.splitlines()
    assert len(lines) <= 50
    refused = codeact("batch", "x", "--out", "y", "--model", "m", "--untrusted", "--retries", "1", "--team")
    assert refused.err.startswith("codeact: --retries is not for --team"), "options that the help leaves out work, too"


def test_version():
    done = codeact("--version")
    assert (done.status, done.out, done.err) == (
        0,
        "codeact 0.2.0 (codeact-sandbox 0.2.0, image autogen-codeact/sandbox:0.2)\n",
        "",
    )


def test_wrong_usage_is_status_2():
    for arguments in [["bogus"], ["exec"], ["run"], ["run", "task", "--model"], ["exec", "-", "--mode", "x"]]:
        with case(arguments):
            done = codeact(*arguments)
            assert done.status == 2
            assert done.out == ""
            assert "─ Error ─" in done.err


def test_a_task_without_quotes_is_an_error_that_says_so():
    assert "extra argument(s) (is 2+2). Put text with spaces in quotes." in codeact("run", "what", "is", "2+2").err


def test_help_and_usage_errors_import_nothing_slow():
    for arguments in [["--help"], ["run", "--help"], ["--version"], ["bogus"]]:
        with case(arguments):
            script = (
                "import atexit, sys\n"
                "from autogen_codeact.cli.main import main\n"
                f"sys.argv = ['codeact', *{arguments}]\n"
                "slow = {'docker', 'openai', 'asyncio', 'autogen_core', 'autogen_agentchat', 'autogen_ext',\n"
                "         'autogen_codeact.executors', 'autogen_codeact.agents', 'autogen_codeact.teams'}\n"
                "atexit.register(lambda: print('slow:', sorted(slow & set(sys.modules))))\n"
                "main()\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False
            )
            assert done.returncode in {0, 2}
            assert done.stdout.splitlines()[-1] == "slow: []"


@pytest.mark.parametrize("env", [{"CODEACT_PLAIN": "1"}, {"TERM": "dumb"}])
def test_help_and_errors_are_lines_of_text_for_screen_readers(env):
    for arguments, status in ((["run", "--help"], 0), (["run"], 2), (["chat", "--unknown"], 2)):
        done = codeact(*arguments, env=env)
        assert done.status == status
        assert not re.search("[\u2500-\u257f]", done.out + done.err)
        assert "Usage: codeact " in done.out + done.err
