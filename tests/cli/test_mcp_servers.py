"""`--mcp FILE.json`: code of exec, run and batch calls the tools of MCP servers."""

import json
import sys
from pathlib import Path

import pytest

from tests.cases import case
from tests.cli.support import codeact

pytestmark = pytest.mark.usefixtures("bubblewrap")

SERVER = Path(__file__).parents[1] / "executors" / "mcp_server.py"
HERE = ("--sandbox", "bubblewrap", "--mcp", "servers.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    servers = {"shop": {"command": sys.executable, "args": [str(SERVER)], "env": {"KEY": "sk-1"}}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "a.md").write_text("```python\nprint(add(40))\n```\n")
    (tmp_path / "answers.json").write_text(json.dumps(["```python\nfinal_answer(add(40))\n```"]))
    (tmp_path / "tasks.jsonl").write_text('{"id": "1", "task": "Add."}\n{"id": "2", "task": "Add."}\n')
    return tmp_path


def test_code_of_each_command_calls_the_tools(folder: Path) -> None:
    assert "42\n" in codeact("exec", "a.md", *HERE, cwd=folder).out
    model = ("--act", "--model", "replay:answers.json")
    done = codeact("run", "Add.", *model, *HERE, "--save", "run", cwd=folder)
    assert (done.status, done.out.rstrip().endswith("42")) == (0, True)
    log = (folder / "run" / "events.jsonl").read_text()
    assert "def add(a: int, b: int = 2) -> int:" in log
    assert "sk-1" not in log
    assert codeact("batch", "tasks.jsonl", "--out", "batch", *model, *HERE, cwd=folder).status == 0
    rows = map(json.loads, (folder / "batch" / "results.jsonl").read_text().splitlines())
    assert [each["answer"] for each in rows] == ["42", "42"]


def test_file_that_names_no_servers_is_an_error_that_says_why(folder: Path) -> None:
    (folder / "bad.json").write_text('{"mcpServers": {"a": {"command": "nothing-here"}}}')
    for file, message in {
        "none.json": "codeact: none.json can't be read: No such file or directory",
        "a.md": "codeact: a.md is not JSON: Expecting value: line 1 column 1 (char 0).",
        "bad.json": "codeact: The MCP server `a` did not start: No such file or directory: nothing-here.",
    }.items():
        with case(file):
            done = codeact("exec", "a.md", "--sandbox", "bubblewrap", "--mcp", file, cwd=folder)
            assert (done.status, done.err.strip()) == (2, message)
