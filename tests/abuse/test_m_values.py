"""M5 to M9. Approvals cover contents and name the server; values are bounded by what they become, and messages by parts."""

import asyncio
import base64
import hashlib
import io
import json
import struct
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas
import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from PIL import Image, PngImagePlugin

from autogen_codeact.batch.ray_worker import PART_BYTES, Folders
from autogen_codeact.executors import AllowTools
from codeact_sandbox import McpServer
from codeact_sandbox.host.protocol import unpack
from codeact_sandbox.integrations.notebook_magics import _safe
from codeact_sandbox.network.secrets import MAX_HEAD, Secrets
from codeact_sandbox.runner.worker import value_codec
from codeact_sandbox.tools.approval import ToolApproval, ToolApprovalRequest, matches
from codeact_sandbox.tools.call_files import CallFiles, FileBudget
from codeact_sandbox.tools.payloads import describe_error
from codeact_sandbox.tools.rich_values import RichType
from codeact_sandbox.types.allowed_domains import Refused, parse_entry
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.secrets import SecretValue
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


def message(body: str) -> bytes:
    head = f'{{"files":[{body}]}}'.encode()
    return struct.pack("!I", len(head)) + head


# Case M9.
@pytest.mark.parametrize("part", ["[]", "{}", "0", '""', "1.5", '{"a":0}', '"[[["'])
def test_a_message_of_very_many_parts_is_refused_before_it_is_parsed(part: str) -> None:
    forged = message(",".join([part] * (2 * MIB // (len(part) + 1) - 10)))
    began = time.thread_time()
    with pytest.raises(SandboxProtocolError):
        unpack(forged)
    assert time.thread_time() - began < 2


ENTRY = parse_entry("api.example:443")
VALUE = b"v" * 8000


def head_with(count: int, *, basic: bool = False) -> list[tuple[bytes, bytes]]:
    """Put a secret into a header some times, and return the headers."""
    made = Secrets([SecretValue("KEY", VALUE, [ENTRY])])
    text = b" ".join([made.placeholders["KEY"].encode()] * count)
    value = b"Basic " + base64.b64encode(b"user:" + text) if basic else text
    return made.put_in([(b"Authorization", value)], "api.example", 443)


# Case M7.
@pytest.mark.parametrize("basic", [False, True])
def test_a_head_that_secrets_make_too_long_is_refused(basic: bool) -> None:
    assert len(head_with(1, basic=basic)[0][1]) >= len(VALUE)
    with pytest.raises(Refused, match="longer than"):
        head_with(MAX_HEAD // len(VALUE) + 1, basic=basic)


# Case M7.
def test_many_headers_are_counted_together() -> None:
    made = Secrets([SecretValue("KEY", VALUE, [ENTRY])])
    headers = [(b"X", made.placeholders["KEY"].encode())] * 100
    with pytest.raises(Refused, match="longer than"):
        made.put_in(headers, "api.example", 443)


# Case M9.
@pytest.mark.parametrize("sequence", ["8", "08", "1;8", "8;1", "38;5;5;8", "0;;8", "58;5;8"])
def test_a_cell_can_not_conceal_text(sequence: str) -> None:
    assert _safe(f"\x1b[{sequence}mhidden") == f"\\x1b[{sequence}mhidden"


# Case M9.
@pytest.mark.parametrize("sequence", ["", "0", "1;31", "38;5;8", "48;2;8;8;8", "97", "38;5;208;1"])
def test_a_cell_can_use_colours(sequence: str) -> None:
    assert _safe(f"\x1b[{sequence}mtext") == f"\x1b[{sequence}mtext"


class Odd(Exception):
    """An error with an object in it."""


# Case M9.
@pytest.mark.parametrize("thing", [object(), test_a_cell_can_use_colours, Secrets.put_in.__get__(1), asyncio.Lock()])
def test_an_error_of_a_tool_has_no_address_of_the_host(thing: object) -> None:
    message = describe_error(Odd(f"{thing!r} failed at 0xdead"))[1]
    assert "failed" in message
    assert f"{id(thing):x}" not in message
    assert "0x7" not in message


SYNC = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    for path in ("/", "/tmp", "/workspace"):
        print(libc.syncfs(os.open(path, os.O_RDONLY)), os.strerror(ctypes.get_errno()))
"""


# Case M9.
@each_engine
async def test_code_can_not_make_the_host_write_its_disks(subject: Subject) -> None:
    assert await subject.out(SYNC) == "-1 Operation not permitted\n" * 3


# Case M7.
def test_the_driver_of_a_ray_batch_holds_a_part_of_a_workspace_only(tmp_path: Path) -> None:
    """400 MB of workspace were 1.6 GiB in the driver."""
    for name in ("a/log", "a/files", "b/log", "b/files"):
        (tmp_path / name).mkdir(parents=True)
    with open(tmp_path / "a/files/large", "wb") as file:
        file.truncate(400 * MIB)
    for number in range(3_000):
        (tmp_path / f"a/files/{number}").touch()
    here, there = (Folders(tmp_path / side / "log", tmp_path / side / "files") for side in "ab")
    tracemalloc.start()
    for part in here.changes():
        there.write(part)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5 * PART_BYTES
    assert (tmp_path / "b/files/large").stat().st_size == 400 * MIB
