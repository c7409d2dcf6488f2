"""M5, M7 and M8. Approvals cover contents and name the server; values are bounded by what they become, not by what came."""

import asyncio
import base64
import hashlib
import io
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas
import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from PIL import Image, PngImagePlugin

from autogen_codeact.executors import AllowTools
from codeact_sandbox import McpServer
from codeact_sandbox.runner.worker import value_codec
from codeact_sandbox.tools.approval import ToolApproval, ToolApprovalRequest, matches
from codeact_sandbox.tools.call_files import CallFiles, FileBudget
from codeact_sandbox.tools.rich_values import RichType
from codeact_sandbox.types.tool import ToolArgumentError

from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Subject, each_engine, one_kind

SERVER = Path(__file__).parents[1] / "executors" / "mcp_hostile.py"


class Approver:
    """Approves everything after a second, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[ToolApprovalRequest] = []

    async def __call__(self, asked: ToolApprovalRequest) -> ToolApproval:
        self.asked.append(asked)
        await asyncio.sleep(1)
        return ToolApproval(True)


def send(file: Path, copy: Path | None = None) -> str:
    """Send a file."""
    return file.read_text() + (copy.read_text() if copy is not None else "")


SWAP = """
    import os, threading, time
    open("pay.txt", "w").write("good")
    ended = False
    def swap():
        time.sleep(0.3)
        while not ended:
            open("new.txt", "w").write("evil")
            os.replace("new.txt", "pay.txt")
    thread = threading.Thread(target=swap)
    thread.start()
    print(send("pay.txt", "pay.txt"))
    ended = True
    thread.join()
"""


# Case M5.
@each_engine
async def test_a_file_that_is_swapped_after_the_question_is_not_sent(subject: Subject) -> None:
    approve = Approver()
    await subject.start({"tools": [send], "approve_tool": approve, "timeout": 20})
    assert await subject.out(SWAP, timeout=20) == "goodgood\n"
    content = {"path": "/workspace/pay.txt", "sha256": hashlib.sha256(b"good").hexdigest(), "bytes": 4}
    assert [dict(each.arguments) for each in approve.asked] == [{"file": content, "copy": content}]


# Case M5.
@one_kind
async def test_the_same_table_is_the_same_question_and_another_one_is_not(subject: Subject) -> None:
    def rows(table: pandas.DataFrame) -> int:
        return len(table)

    approve = Approver()
    await subject.start({"tools": [rows], "approve_tool": approve, "timeout": 40}, memory="512m")
    code = """
        import os, pandas
        from concurrent.futures import ThreadPoolExecutor
        tables = [pandas.DataFrame({"a": range(start, start + 20_000)}) for start in (0, 0, 1)]
        print(list(ThreadPoolExecutor(3).map(rows, tables)), [name for name in os.listdir("/tmp") if "codeact-value" in name])
    """
    assert await subject.out(code, timeout=40) == "[20000, 20000, 20000] []\n"
    asked = [json.dumps(dict(each.arguments)) for each in approve.asked]
    assert len(set(asked)) == 2
    assert all("/tmp" not in each for each in asked)


def png(width: int, height: int, *texts: bytes) -> bytes:
    """Return a small file with a large image."""
    info = PngImagePlugin.PngInfo()
    for number, text in enumerate(texts):
        info.add_text(f"t{number}", text.decode(), zip=True)
    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, format="PNG", pnginfo=info)
    return file.getvalue()


def inline(data: bytes) -> dict[str, str]:
    return {"codeact": "value", "data": base64.b64encode(data).decode()}


def files_of(budget: FileBudget) -> CallFiles:
    sandbox: Any = None
    return CallFiles(sandbox, budget, None)


# Case M7.
@pytest.mark.parametrize(
    ("kind", "data", "most"),
    [
        pytest.param("image", lambda: png(7000, 7000), 1, id="pixels"),
        pytest.param("image", lambda: png(1, 1, *[b"x" * 1_000_000] * 60), 2, id="texts of an image"),
        pytest.param("table", lambda: csv(b'"a"\n' * 1_000_000), 3, id="cells"),
        pytest.param("table", lambda: csv(b"\n" * 2_000_000), 1, id="empty cells"),
        pytest.param("table", lambda: csv('"\U0001f600'.encode() + b"a" * 20_000_000 + b'"\n'), 3, id="wide letters"),
    ],
)
async def test_calls_at_once_hold_no_more_than_the_budget(kind: str, data: Any, most: int) -> None:
    budget, sent = FileBudget(256 * MIB), inline(data())
    loaded = 0
    calls = [files_of(budget) for _ in range(6)]
    for each in calls:
        with suppress(ToolArgumentError):
            await RichType(kind).load("value", sent, each)
            loaded += 1
    assert 0 < loaded <= most
    assert budget.used <= budget.limit
    for each in calls:
        await each.close()
    assert budget.used == 0


def csv(text: bytes) -> bytes:
    """Return a table with an index of texts alone."""
    header = {"index": [None], "names": [None], "dtypes": ["text"], "sizes": [], "columns": []}
    return json.dumps(header).encode() + b'\n"0"\n' + text


# Case M7.
@pytest.mark.parametrize("cells", [["word"] * 1_500_000, ["x" * 40] * 1_000_000], ids=["short", "long"])
async def test_a_table_as_large_as_the_budget_does_not_stall_the_loop(
    cells: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    data = value_codec.pack("table", pandas.DataFrame({"a": cells}))

    async def read(self: CallFiles, path: str) -> bytes:
        self.take(len(data))
        return data

    monkeypatch.setattr(CallFiles, "read", read)

    async def load() -> None:
        await RichType("table").load("table", {"codeact": "file", "path": "/x"}, files_of(FileBudget(256 * MIB)))

    assert await median_excess(load) < 2 * MOST_EXCESS_S


# Case M8.
@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("evil.find_x", "find_*", False),
        ("evil.find_x", "find_x", False),
        ("evil.find_x", "*_x", False),
        ("evil.find_x", "crm.find_*", False),
        ("evil.find_x", "[!.]*", False),
        ("crm.find_x", "crm.find_*", True),
        ("crm.find_x", "*.find_x", True),
        ("crm.find_x", "*", True),
        ("find_x", "find_*", True),
        ("find_x", "*.find_x", False),
    ],
)
def test_a_pattern_without_a_server_is_about_no_servers_tool(name: str, pattern: str, expected: bool) -> None:
    assert matches(name, pattern) is expected


# Case M8.
@one_kind
@pytest.mark.parametrize("own", [True, False], ids=["McpServer", "McpWorkbench"])
async def test_a_hostile_tool_with_a_trusted_name_is_not_called_unasked(subject: Subject, own: bool) -> None:
    arguments = [str(SERVER), json.dumps({"name": "find_x", "content": [{"type": "text", "text": "ran"}]})]
    workbench = McpWorkbench(StdioServerParams(command=sys.executable, args=arguments, read_timeout_seconds=20))
    tool = McpServer([sys.executable, *arguments], name="odd") if own else workbench
    approve = Approver()
    policy = AllowTools(["find_*", "find_x"], otherwise=AskLast(approve))
    await subject.start({"tools": [tool], "approve_tool": policy, "timeout": 30})
    assert await subject.out("print(find_x())", timeout=30) == "ran\n"
    assert [each.name for each in approve.asked] == ["odd.find_x" if own else "McpWorkbench.find_x"]


class AskLast(AllowTools):
    """A policy that asks another function."""

    def __init__(self, ask: Any) -> None:
        super().__init__([])
        self._ask = ask

    async def __call__(self, request: ToolApprovalRequest) -> ToolApproval:
        answer: ToolApproval = await self._ask(request)
        return answer
