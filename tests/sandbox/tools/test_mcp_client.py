"""`McpServer`: the tools of real MCP servers, called by code in a real sandbox; with the package `mcp` 1 and 2."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox import AsyncSandbox, McpServer, Sandbox
from codeact_sandbox.tools.mcp_client import read_servers
from codeact_sandbox.types.errors import SandboxStartError
from tests.cases import case

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(120)]

SERVERS = Path(__file__).parents[2] / "executors"
MCP_2 = Path(sys.prefix, "mcp2")
OF_BOTH = "typed_functions or gets_its_headers or is_cancelled_on"
"""The tests that run with mcp 2, too."""
TEXT = [{"type": "text", "text": "ok"}]
CODE = """
import inspect
print(shop.add(1) * 2, shop.shop_stock_take("apple"), other_shop.shop_stock_take("apple"), search("x"))
receipt = shop.place_order([{"sku": "pear", "amount": 2}], paid_by="cash")
print(receipt["total"], inspect.signature(shop.place_order))
try:
    shop.fail("out of paper")
except RuntimeError as error:
    print(error)
shop.image()
"""
PRINTED = """6 2 left 2 left found x
2.0 (lines: list[Line], paid_by: Literal['card', 'cash'] = 'card', note: str | None = None) -> Receipt
Error executing tool fail: out of paper
"""


def shop(name: str = "shop") -> McpServer:
    return McpServer([sys.executable, str(SERVERS / "mcp_server.py")], name=name)


def hostile(**what: Any) -> McpServer:
    return McpServer([sys.executable, str(SERVERS / "mcp_hostile.py"), json.dumps(what)], name="odd")


def search(text: str) -> str:
    """Search."""
    return f"found {text}"


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_tools_of_servers_are_typed_functions_and_those_with_the_same_names_are_in_modules() -> None:
    with Sandbox("bubblewrap", tools=[shop(), search, shop("other shop")]) as box:
        result = box.run(CODE)
        assert result.output.startswith(PRINTED), result.output
        assert result.value == "see\n[image 1: 1×1 pixels]"
        assert [image.media_type for call in result.tool_calls for image in call.images] == ["image/png"]
        assert [(call.name, call.outcome) for call in result.tool_calls] == [
            ("shop.add", "ok"),
            ("shop.shop_stock_take", "ok"),
            ("other_shop.shop_stock_take", "ok"),
            ("search", "ok"),
            ("shop.place_order", "ok"),
            ("shop.fail", "error"),
            ("shop.image", "ok"),
        ]


def test_tools_of_one_server_that_become_the_same_name_are_numbered() -> None:
    names = ["send-email", "send_email", "send email", "send_email_2", "print"]
    with Sandbox("bubblewrap", tools=[hostile(names=names)]) as box:
        result = box.run("print_(), send_email(), send_email_2(), send_email_3(), send_email_2_2()")
    assert result.value == ("print", "send-email", "send_email", "send email", "send_email_2"), result.output


@pytest.mark.parametrize(
    ("content", "structured", "answer"),
    [
        ([], {"rows": [1, 2]}, '{"rows": [1, 2]}'),
        ([{"type": "text", "text": "see data"}], {"rows": ["ü"]}, 'see data\n{"rows": ["ü"]}'),
        ([{"type": "text", "text": '{"rows":[1,2]}'}], {"rows": [1, 2]}, '{"rows":[1,2]}'),
        ([{"type": "text", "text": "done"}], {"result": "done"}, "done"),
        ([{"type": "text", "text": "3"}], {"result": 3}, "3"),
        ([{"type": "text", "text": "no data"}], None, "no data"),
    ],
)
def test_structured_result_without_a_schema_is_kept(content: Any, structured: Any, answer: str) -> None:
    with Sandbox("bubblewrap", tools=[hostile(content=content, result=structured)]) as box:
        assert box.run("x()").value == answer


def test_server_that_is_reached_by_http_gets_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("SHOP_TOKEN", "abc")
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the server is one of mcp 1
    with subprocess.Popen([sys.executable, SERVERS / "mcp_server.py", str(port)]) as process:
        try:
            until = time.monotonic() + 60
            while not listens(port):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            headers = {"Authorization": "Bearer ${SHOP_TOKEN}"}
            with Sandbox("bubblewrap", tools=[McpServer(url=f"http://127.0.0.1:{port}/mcp", headers=headers)]) as box:
                assert box.run("token(), add(1)").value == ("Bearer abc", 3)
        finally:
            process.send_signal(signal.SIGKILL)


async def test_server_that_can_not_be_used_is_an_error_that_says_why() -> None:
    program = f"{sys.executable} -c"
    refused = {
        "no program": (McpServer("nothing-here"), "The MCP server `nothing-here` did not start: No such file"),
        "ends at once": (McpServer(f"{program} 'exit(\"no key\")'", name="a"), "It wrote:\nno key"),
        "nobody listens": (McpServer(url="http://127.0.0.1:9/mcp"), "`127.0.0.1` did not start: All connection"),
        "no variable": (McpServer("x", env={"A": "${NOT_SET}"}), "needs the variable NOT_SET, which is not set"),
        "endless list": (hostile(pages=1), "lists more than 10,000 tools, or its list has no end"),
        "schema": (hostile(schema={"type": "object", "properties": 5}), "properties"),
    }
    for name, (server, message) in refused.items():
        with case(name):
            with pytest.raises((SandboxStartError, ValueError), match=r".") as raised:
                await AsyncSandbox("bubblewrap", tools=[server]).start()
            assert message in str(raised.value)


# Case K25.
async def test_server_that_ends_is_an_error_of_the_call_and_started_again_with_the_sandbox() -> None:
    async with AsyncSandbox("bubblewrap", tools=[hostile(dies=True)]) as box:
        for _ in range(2):
            result = await box.run("x()")
            assert result.error is not None
            assert "the MCP server `odd` has ended" in result.error.message
            assert "no more" not in result.output
    noise = ["", "{", "null", "[]", "\x00", '{"jsonrpc":"2.0","id":999,"result":{}}', "x" * 50_000]
    box = AsyncSandbox("bubblewrap", tools=[hostile(raw=noise, content=TEXT)])
    for _ in range(2):
        async with box:
            assert (await box.run("x()")).value == "ok"


async def test_cancelled_call_is_cancelled_on_the_server(tmp_path: Path) -> None:
    got = tmp_path / "got"
    async with AsyncSandbox("bubblewrap", tools=[hostile(waits=str(got))]) as box:
        assert (await box.run("x()", timeout=0.5)).outcome == "timeout"
        until = time.monotonic() + 20
        while "notifications/cancelled" not in got.read_text():
            assert time.monotonic() < until
            await asyncio.sleep(0.05)


def test_servers_are_read_from_json_and_secrets_do_not_go_into_configs() -> None:
    entry = {"command": "npx", "args": ["-y", "crm"], "env": {"KEY": "sk-1", "B": "${B}"}, "disabled": False, "x": 1}
    far = {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${T}", "X-Key": "k"}}
    servers = {"crm": entry, "far": far, "off": {"command": "x", "disabled": True}}
    crm, web = read_servers(json.dumps({"mcpServers": servers}), "a.json")
    assert crm.config() == {"command": ["npx", "-y", "crm"], "env": {"KEY": "${KEY}", "B": "${B}"}, "name": "crm"}
    assert web.config() == {
        "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${T}", "X-Key": "${X_Key}"}, "name": "far",
    }  # fmt: skip
    assert "sk-1" not in repr(crm)
    for text, message in {
        "{": "a.json is not JSON",
        "[]": "a.json has no servers",
        '{"mcpServers": {"a": 5}}': "the server 'a' can't be used",
        '{"mcpServers": {"a": {}}}': "needs a command or a url",
        '{"mcpServers": {"a": {"url": "ftp://x"}}}': "begins with http:// or https://",
        '{"mcpServers": {"a": {"command": "x", "args": [5]}}}': "are texts",
    }.items():
        with case(text), pytest.raises(ValueError, match=r".") as raised:
            read_servers(text, "a.json")
        assert message in str(raised.value)


@pytest.mark.skipif("MCP_MAJOR" in os.environ, reason="it is this that runs")
def test_the_same_with_mcp_2() -> None:
    if not MCP_2.is_dir():
        pytest.fail(f"{MCP_2} is missing: `make .venv/mcp2` makes it")
    environment = {**os.environ, "PYTHONPATH": str(MCP_2), "MCP_MAJOR": "2"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        OF_BOTH,
        __file__,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "3 passed" in done.stdout
