"""`--skills`, and the skills of `.agents/skills`: told before use, and given to the model of each command."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from tests.agents.test_skills import SHOWN, SKILLS
from tests.cases import case
from tests.cli.support import COMMAND, codeact
from tests.sandbox.bubblewrapped import open_folder

pytestmark = pytest.mark.usefixtures("bubblewrap")
CODE = "import os\nfinal_answer(sorted(os.listdir('/skills')) if os.path.exists('/skills') else 'none')"
MODEL = ("--act", "--model", "replay:answers.json", "--sandbox", "bubblewrap")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with skills of its own, which the sandbox's user can read."""
    with open_folder() as folder:
        shutil.copytree(SKILLS, folder / ".agents" / "skills")
        (folder / "answers.json").write_text(json.dumps([f"```python\n{CODE}\n```"]))
        (folder / "tasks.jsonl").write_text('{"id": "1", "task": "Look."}\n')
        yield folder


def test_run_and_batch_have_the_skills_of_the_folder_and_say_so(folder: Path) -> None:
    told = f"codeact: skills, from {folder}/.agents/skills: invoice-totals\n"
    done = codeact("run", "Look.", *MODEL, "--save", "run", cwd=folder)
    assert (done.status, "invoice-totals" in done.out) == (0, True)
    assert done.err.startswith(told)
    assert json.dumps(SHOWN)[1:-1] in (folder / "run" / "events.jsonl").read_text()
    done = codeact("batch", "tasks.jsonl", "--out", "batch", *MODEL, cwd=folder)
    assert told in done.err
    (row,) = map(json.loads, (folder / "batch" / "results.jsonl").read_text().splitlines())
    assert "invoice-totals" in row["answer"]
    done = codeact("run", "Look.", *MODEL, "--skills", "none", "--save", "none", cwd=folder)
    assert ("none" in done.out, "skills" in done.err) == (True, False)


def test_skills_that_can_not_be_used_are_one_line(folder: Path) -> None:
    for options, message in {
        ("--skills", "nothing"): "--skills='nothing' can't be read: No such file or directory.",
    }.items():
        with case(options):
            done = codeact("run", "Look.", *MODEL, *options, cwd=folder)
            assert (done.status, done.err.splitlines()[-1]) == (2, f"codeact: {message}")
    (folder / ".agents/skills/invoice-totals/SKILL.md").write_text("# Nothing")
    done = codeact("run", "Look.", *MODEL, cwd=folder)
    assert done.status == 2
    assert done.err.splitlines()[-1].endswith(
        "/invoice-totals can't be used: its SKILL.md must begin with fields between two lines of --- (--skills none leaves the "
        "skills of .agents/skills out)."
    )


async def test_an_mcp_server_has_them_in_its_instructions(folder: Path) -> None:
    command = ["mcp", "--sandbox", "bubblewrap", "--skills", str(SKILLS)]
    parameters = StdioServerParameters(command=str(COMMAND), args=command, cwd=folder)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        assert (await session.initialize()).instructions.endswith(SHOWN)  # type: ignore[union-attr]
        shown = await session.call_tool("run_code", {"code": "import os; print(os.listdir('/skills'))"})
        assert "['invoice-totals']" in shown.content[0].text  # type: ignore[union-attr]
