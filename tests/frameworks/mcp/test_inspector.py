"""The Inspector's command line with our server. It is installed with npm into the environment."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "@modelcontextprotocol/inspector@2.12.0"
BIN = Path(sys.executable).parent
FOLDER = BIN.parent / "inspector"
PROGRAM = FOLDER / "node_modules" / ".bin" / "mcp-inspector"


@pytest.fixture(scope="module")
def inspector():
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed")
    if not PROGRAM.exists():
        command = [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", FOLDER, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm could not install {PACKAGE}: {done.stderr.strip()[-200:]}")

    def ask(engine, *arguments):
        server = [BIN / "codeact-sandbox", "mcp", "--backend", engine]
        command = [PROGRAM, "--cli", *server, "--method", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_inspector_lists_and_calls_tools(inspector, engine):
    names = [tool["name"] for tool in inspector(engine, "tools/list")["tools"]]
    assert names == ["run_code", "read_file", "write_file", "list_files", "restart"]
    call = ("tools/call", "--tool-name", "run_code", "--tool-arg")
    answer = inspector(engine, *call, "code=6 * 7")
    assert (answer["content"], answer["isError"]) == ([{"type": "text", "text": "42"}], False)
