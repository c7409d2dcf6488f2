"""FastMCP's client with our server, and our client with FastMCP's server."""

import json
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from codeact_sandbox import AsyncSandbox, McpServer

COMMAND = Path(sys.executable).with_name("codeact-sandbox")
PROGRAM = """
from fastmcp import FastMCP
server = FastMCP("shop")

@server.tool
def price(item: str, amount: int = 1) -> float:
    "Look up what items cost."
    return 2.5 * amount

server.run(show_banner=False)
"""
FIGURE = "from matplotlib import pyplot\npyplot.plot([1, 2]); pyplot.show()"


@pytest.fixture
def servers(tmp_path):
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"shop": {"command": sys.executable, "args": ["-c", PROGRAM]}}}))
    return file


def client(engine, *options):
    return Client(StdioTransport(str(COMMAND), ["mcp", "--backend", engine, *options]), timeout=60)


async def text(session, name, **arguments):
    result = await session.call_tool(name, arguments, raise_on_error=False)
    return "\n".join(getattr(item, "text", item.type) for item in result.content)


async def test_client_runs_code_in_a_session(engine):
    printed = []

    async def progress(_progress, _total, message):
        printed.append(message)

    async with client(engine) as session:
        names = [tool.name for tool in await session.list_tools()]
        assert names == ["run_code", "read_file", "write_file", "list_files", "restart"]
        code = "import time\nfor x in range(3):\n    print(x, flush=True)\n    time.sleep(0.3)"
        await session.call_tool("run_code", {"code": code}, progress_handler=progress)
        assert "".join(printed).startswith("0\n")
        assert await text(session, "run_code", code="x + 40") == "42"
        assert "timeout, exit code 124" in await text(session, "run_code", code="while True: pass", timeout=0.5)
        assert await text(session, "run_code", code="x") == "2"
        if engine == "docker":
            assert (await text(session, "run_code", code=FIGURE)).endswith("image")


async def test_client_calls_wrapped_tools_of_a_fastmcp_server(engine, servers):
    async with client(engine, "--wrap", str(servers)) as session:
        assert [tool.name for tool in await session.list_tools()] == ["search_tools", "run_code"]
        found = await text(session, "search_tools", query="cost")
        assert found.startswith("def price(item: str, amount: int = 1) -> float:")
        assert (await text(session, "run_code", code="price('tea', amount=2) + 1")).startswith("6.0\nCalls:\nprice(")


async def test_our_client_calls_a_fastmcp_server(engine):
    async with AsyncSandbox(engine, tools=[McpServer([sys.executable, "-c", PROGRAM], name="shop")]) as box:
        assert (await box.run("price('tea', 4)")).value == 10.0
