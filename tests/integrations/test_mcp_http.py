"""`codeact mcp --http`: a sandbox for each session of MCP clients; with clients and servers of `mcp` 1 and 2."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from tests.cases import case
from tests.cli.support import COMMAND, codeact

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(120)]

MCP_2 = Path(sys.prefix, "mcp2")
NEW = "This is a new session: the one before has ended, with its variables and files."
MODERN = """
import asyncio, json, re, sys
from mcp import Client

async def main():
    async with Client(sys.argv[1]) as client:
        async def run(**arguments):
            answer = await client.call_tool("run_code", arguments)
            return "\\n".join(item.text for item in answer.content)
        first = await run(code="x = 41")
        handle = re.search(r'session="(.*?)"', first)[1]
        told = [await run(code="x + 1", session=handle), await run(code="x"), await run(code="x", session="other")]
        print(json.dumps([client.protocol_version, first.replace(handle, "ID"), *told]))

asyncio.run(main())
"""
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server with the package `mcp` of a version, and returns its address."""
    running: list[subprocess.Popen[str]] = []

    def start(*options: str, server: int = 1, token: str = "") -> str:
        environment = {**os.environ, "PYTHONPATH": str(MCP_2) if server == 2 else "", "CODEACT_MCP_TOKEN": token}
        command = [COMMAND, "mcp", "--sandbox", "bubblewrap", "--http", "0", *options]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        stream = running[-1].stderr
        assert stream is not None
        for line in stream:
            if found := re.search(r"^INFO: +serving MCP at (http://\S+)", line):
                return found[1]
        raise AssertionError("it has ended")

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert process.stderr is not None
        process.stderr.close()


@asynccontextmanager
async def connected(url: str, token: str = "") -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        create_mcp_http_client(headers) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def run(session: ClientSession, code: str, **more: Any) -> str:
    answer = await session.call_tool("run_code", {"code": code, **more})
    return "\n".join(getattr(item, "text", item.type) for item in answer.content)


@pytest.mark.parametrize("server", [1, 2])
async def test_each_session_has_its_own_sandbox(serve: Serve, server: int) -> None:
    url = serve(server=server)
    async with connected(url) as one, connected(url) as other:
        assert [await run(one, "x = 1"), await run(other, "x = 2")] == ["The code printed nothing."] * 2
        assert [await run(one, "x"), await run(other, "x")] == ["1", "2"]
        shown = await one.call_tool("run_code", {"code": "print('a' * 50_000 + 'end')"})
        (text,) = shown.content
        assert text.type == "text"
        assert re.search(r"^a{24576}\n\[… 8\d\d characters are left out: print less.*…\]\na+end", text.text)


def test_clients_without_sessions_get_handles(serve: Serve) -> None:
    url = serve(server=2)
    done = subprocess.run(
        [sys.executable, "-c", MODERN, url],
        env={**os.environ, "PYTHONPATH": str(MCP_2)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    version, first, second, without, unknown = json.loads(done.stdout)
    assert version == "2026-07-28"
    told = 'Session: pass session="ID" to the next calls, to go on with its variables and files.'
    assert first == f"The code printed nothing.\n{told}"
    assert second == "42"
    assert "NameError: name 'x' is not defined" in without
    assert "Session: pass session=" in without
    assert "there is no session 'other': it has ended. Leave `session` out to begin a new one." in unknown


async def test_sessions_end_when_clients_close_them_are_idle_or_too_many(serve: Serve) -> None:
    url = serve("--max-sessions", "1", "--idle-timeout", "2")
    async with connected(url) as one:
        assert await run(one, "x = 1") == "The code printed nothing."
        async with connected(url) as other:
            assert await run(other, "x = 2") == "The code printed nothing."
            slow = asyncio.create_task(run(other, "import time; time.sleep(1.5); x"))
            await asyncio.sleep(0.7)
            assert "all 1 sessions are in use: try again later" in await run(one, "x")
            assert await slow == "2"
        assert (await run(one, "x = 3")).endswith(NEW)
        await asyncio.sleep(4)
        answer = await run(one, "x")
        assert "NameError" in answer
        assert answer.endswith(NEW)


@pytest.mark.parametrize("server", [1, 2])
async def test_requests_need_the_token_and_a_host_and_origin_of_this_machine(serve: Serve, server: int) -> None:
    url = serve(server=server, token="secret")
    right = {"Authorization": "Bearer secret"}
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer sécret"}, 401),
        ({**right, "Host": "attacker.example"}, 421),
        ({**right, "Host": ""}, 421),
        ({**right, "Origin": "http://attacker.example"}, 403),
        ({**right, "Origin": "http://203.0.113.5"}, 403),
        ({**right, "Origin": "null"}, 403),
        ({**right, "Origin": "http://[x"}, 403),
        ({**right, "Origin": "http://localhost:3000"}, 406),
        (right, 406),
    ]
    async with httpx.AsyncClient() as client:
        for headers, status in cases:
            with case(headers):
                given = [(name.encode(), value.encode()) for name, value in headers.items()]
                body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                answer = await client.post(url, headers=[*given, (b"Accept", b"text/html")], json=body)
                assert answer.status_code == status or (status == 406 and answer.status_code == 400)
        assert (await client.get(url.replace("/mcp", "/other"), headers=right)).status_code == 404
        large = {**right, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        assert (await client.post(url, headers=large, content=b"[" * 5_000_000)).status_code == 413
    async with connected(url, "secret") as session:
        assert await run(session, "6 * 7") == "42"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--http x", "'x' is not an address: write PORT or HOST:PORT, such as 127.0.0.1:8000"),
        (
            "--http 0.0.0.0:0",
            "0.0.0.0 is reached by other machines, so a token is needed: set the variable CODEACT_MCP_TOKEN.",
        ),
        (
            "--http 0 --work-dir x",
            "--work-dir is for one client: with --http, sessions would overwrite each other's files.",
        ),
        ("--max-sessions 2", "--max-sessions and --idle-timeout are for --http, with many clients: add --http PORT."),
        ("--allow x", "--allow and --call-log are for the tools of --wrap FILE.json: add that."),
        ("--wrap none.json", "none.json can't be read: No such file or directory"),
    ],
)
def test_options_that_do_not_fit_are_errors(options: str, message: str) -> None:
    done = codeact("mcp", *options.split())
    assert (done.status, done.err.strip()) == (2, f"codeact: {message}")
