"""Help, version and usage errors, which import nothing slow."""

import re
import subprocess
import sys

import pytest

from tests.cli.support import codeact


def test_version():
    done = codeact("--version")
    assert (done.status, done.out, done.err) == (
        0,
        "codeact 0.2.0 (codeact-sandbox 0.2.0, image autogen-codeact/sandbox:0.2)\n",
        "",
    )


def test_a_task_without_quotes_is_an_error_that_says_so():
    assert "extra argument(s) (is 2+2). Put text with spaces in quotes." in codeact("run", "what", "is", "2+2").err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["bogus"]])
def test_help_and_usage_errors_import_nothing_slow(arguments):
    script = (
        "import atexit, sys\n"
        "from autogen_codeact.cli.main import main\n"
        f"sys.argv = ['codeact', *{arguments}]\n"
        "slow = {'docker', 'openai', 'asyncio', 'autogen_core', 'autogen_agentchat', 'autogen_ext',\n"
        "         'autogen_codeact.executors', 'autogen_codeact.agents', 'autogen_codeact.teams'}\n"
        "atexit.register(lambda: print('slow:', sorted(slow & set(sys.modules))))\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode in {0, 2}
    assert done.stdout.splitlines()[-1] == "slow: []"


@pytest.mark.parametrize("env", [{"CODEACT_PLAIN": "1"}, {"TERM": "dumb"}])
def test_help_and_errors_are_lines_of_text_for_screen_readers(env):
    for arguments, status in ((["run", "--help"], 0), (["run"], 2), (["chat", "--unknown"], 2)):
        done = codeact(*arguments, env=env)
        assert done.status == status
        assert not re.search("[\u2500-\u257f]", done.out + done.err)
        assert "Usage: codeact " in done.out + done.err


def test_tab_completes_the_commands():
    asked = {"_CODEACT_COMPLETE": "complete_bash", "COMP_WORDS": "codeact ex", "COMP_CWORD": "1"}
    assert codeact(env=asked).out.split() == ["exec", "export"]
