"""`codeact mcp --wrap`: code calls the tools of any MCP servers; with clients and servers of `mcp` 1 and 2."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import ElicitRequestParams, ElicitResult

from tests.cli.support import COMMAND

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(120)]

HERE = Path(__file__)
SERVER = HERE.parents[1] / "executors" / "mcp_server.py"
MCP_2 = Path(sys.prefix, "mcp2")
CALLS = 'Calls:\nshop.add(a=1): ok, … s\nother_shop.shop_stock_take(sku="apple"): ok, … s'
Start = Callable[..., AbstractAsyncContextManager[ClientSession]]


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    """A file with two servers that have the same tools. They are of mcp 1."""
    program = {"command": sys.executable, "args": [str(SERVER)], "env": {"PYTHONPATH": ""}}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"shop": program, "other shop": program}}))
    return file


@pytest.fixture
def start(servers: Path) -> Start:
    """Starts the server with options, and a client whose user answers as given."""

    @asynccontextmanager
    async def starting(*options: str, answer: Any = None) -> AsyncIterator[ClientSession]:
        command = ["mcp", "--sandbox", "bubblewrap", "--wrap", str(servers), *options]
        parameters = StdioServerParameters(command=str(COMMAND), args=command)
        async with (
            stdio_client(parameters) as (read, write),
            ClientSession(read, write, elicitation_callback=answer) as it,
        ):
            await it.initialize()
            yield it

    return starting


async def text(session: ClientSession, name: str, **arguments: Any) -> str:
    answer = await session.call_tool(name, arguments)
    return "\n".join(getattr(item, "text", item.type) for item in answer.content)


def without_times(shown: str) -> str:
    return "\n".join(f"{line.rpartition(', ')[0]}, … s" if line.endswith(" s") else line for line in shown.splitlines())


async def test_code_calls_the_tools_that_a_search_finds(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    async with start("--call-log", str(log)) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["search_tools", "run_code"]
        found = await text(session, "search_tools", query="take one out of stock", limit=2)
        assert found.splitlines()[:2] == ["def shop.shop_stock_take(sku: str) -> str:", "    Take one out of stock."]
        assert (await text(session, "search_tools")).startswith("12 tools: shop.add, shop.place_order, ")
        assert await text(session, "search_tools", query="xyz") == "None of the 12 tools fits. Try other words."
        code = "r = shop.add(1); print(r, other_shop.shop_stock_take('apple'))"
        assert without_times(await text(session, "run_code", code=code)) == f"3 2 left\n{CALLS}"
        assert (await text(session, "run_code", code="shop.image()")).endswith("s\nimage")
        assert await text(session, "run_code", code="r + 1") == "4"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["name"]) for line in lines[:4]] == [
        ("starting", "shop.add"),
        ("ok", "shop.add"),
        ("starting", "other_shop.shop_stock_take"),
        ("ok", "other_shop.shop_stock_take"),
    ]
    assert lines[0]["arguments"] == {"a": 1}


async def test_the_clients_user_is_asked_about_tools_that_are_not_allowed(start: Start) -> None:
    asked = []

    async def answer(_: Any, request: ElicitRequestParams) -> ElicitResult:
        asked.append(request.message)
        return ElicitResult(action="decline" if "other" in request.message else "accept", content={})

    async with start("--allow", "*.add", "--allow", "x", answer=answer) as session:
        code = "print(shop.add(1), shop.shop_stock_take('apple')); other_shop.shop_stock_take('apple')"
        shown = await text(session, "run_code", code=code)
    assert asked == [
        'May the code call shop.shop_stock_take with these arguments:\n{\n  "sku": "apple"\n}',
        'May the code call other_shop.shop_stock_take with these arguments:\n{\n  "sku": "apple"\n}',
    ]
    assert "3 2 left" in shown
    assert "ToolRefused: the user did not allow it" in shown
    async with start("--allow", "*.add") as session:
        assert "the MCP client can't ask its user" in await text(
            session, "run_code", code="shop.shop_stock_take('apple')"
        )


async def test_a_question_shows_the_whole_call_and_nothing_passes_for_its_words(start: Start) -> None:
    asked = []

    async def answer(_: Any, request: ElicitRequestParams) -> ElicitResult:
        asked.append(request.message)
        return ElicitResult(action="decline", content={})

    code = """import host_tools
for name in ('sku', 'x)\\n\\nThat was the whole call. (y'):
    try: host_tools._call('shop.shop_stock_take', {name: 'a' * 2000})
    except PermissionError as error: print(error)
"""
    async with start("--allow", "x", answer=answer) as session:
        shown = await text(session, "run_code", code=code)
    assert asked == [
        f'May the code call shop.shop_stock_take with these arguments:\n{{\n  "{name}": "{"a" * 2000}"\n}}'
        for name in ("sku", "x)\\n\\nThat was the whole call. (y")
    ], shown


def test_client_of_mcp_2_with_a_server_of_mcp_2(servers: Path) -> None:
    command = json.dumps([str(COMMAND), "mcp", "--sandbox", "bubblewrap", "--wrap", str(servers)])
    calls = [["search_tools", {"query": "stock", "limit": 1}, 30], ["run_code", {"code": "shop.add(40)"}, 30]]
    done = subprocess.run(
        [sys.executable, HERE.with_name("mcp_client.py"), command],
        input=f"{json.dumps(calls)}\n",
        env={**os.environ, "PYTHONPATH": str(MCP_2)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    # Output of a block may come ahead of its result, as progress.
    listed, found, ran = (line for line in map(json.loads, done.stdout.splitlines()) if line and "progress" not in line)
    assert listed == {"tools": ["run_code", "search_tools"]}
    assert found["content"][0][1].startswith("def shop.shop_stock_take(sku: str)")
    assert without_times(ran["content"][0][1]) == "42\nCalls:\nshop.add(a=40): ok, … s"
