"""Runs that are watched and answered while they are written, over the viewer's server."""

import asyncio
import socket
import threading
from contextlib import suppress

import httpx
import pytest

from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    ChunkLogged,
    CodeText,
    RunFinished,
)
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import ResultRecord
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.viewer import ApprovalQuestion, RunControl, app, connections, serve
from autogen_codeact.viewer.server import ViewerServer
from tests.cases import case
from tests.runs.logs import started

from .test_server import WAIT_S, asking

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Live:
    """A log that is written while it is watched."""

    def __init__(self, folder):
        self.folder = folder
        self.log = None

    async def __aenter__(self):
        self.log = await LogWriter.create(self.folder, Redaction())
        await self.write(started())
        return self

    async def write(self, *events):
        for event in events:
            await self.log.write(event, sync=True)

    async def __aexit__(self, *_):
        await self.log.close()


class Page:
    """What a page of a run does: it asks for what is new, again and again."""

    def __init__(self, client, since=0, name="live"):
        self._client = client
        self._address = f"/api/runs/{name}/changes"
        self.since = since
        self.questions = []

    async def changes(self):
        """Return what is new."""
        params = {"since": self.since, "questions": ",".join(map(str, self.questions))}
        answer = (await self._client.get(self._address, params=params)).json()
        self.since = answer["header"]["revision"]
        self.questions = [each["id"] for each in answer["questions"]]
        return answer

    async def summary(self):
        """Return the summary of the last step that is new."""
        async with asyncio.timeout(WAIT_S):
            while not (summaries := (await self.changes())["summaries"]):
                pass
        return summaries[-1]

    async def end(self):
        """Return all summaries until the run has ended, and the last header."""
        summaries = []
        async with asyncio.timeout(WAIT_S):
            while True:
                changes = await self.changes()
                summaries += changes["summaries"]
                if not changes["header"]["live"] and changes["header"]["indexed"] and not changes["summaries"]:
                    return summaries, changes["header"]


def threads():
    """The number of servers' threads."""
    return sum(each.name == "viewer" for each in threading.enumerate())


BLOCK = [CodeText(code="work()", language="python")]


def chunk(text):
    message = {"type": "ModelClientStreamingChunkEvent", "source": "coder", "content": text}
    return ChunkLogged(message={**message, "metadata": {"chunk_of": "execution"}})


async def test_page_of_a_live_run_gets_its_steps_and_output_and_its_end(tmp_path):
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        page = Page(client)
        changes = await page.changes()
        assert (changes["header"]["outcome"], changes["header"]["live"], changes["header"]["steps"]) == (
            "running",
            True,
            1,
        )
        await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
        step = await page.summary()
        assert (step["number"], step["outcome"]) == (2, "running")
        await run.write(chunk("half \u202e\x1b[1m"))
        assert (await page.summary())["number"] == 2
        (step,) = (await client.get("/api/runs/live/steps?from=2&to=2")).json()
        assert (step["running"], step["output"]) == (True, "half \\u202e")
        result = ResultRecord(kind="sandbox", exit_code=0, output="half done\n")
        await run.write(BlockFinished(agent="coder", number=1, result=result))
        assert (await page.summary())["outcome"] == "ok"
        await run.write(RunFinished(outcome="completed"))
        await run.log.close()
        summaries, header = await page.end()
        assert summaries[-1]["kind"] == "end"
        assert (header["outcome"], header["live"]) == ("completed", False)


async def test_server_that_ends_with_its_run_first_tells_how_the_run_has_ended(tmp_path):
    server = ViewerServer([tmp_path / "live"])
    await asyncio.to_thread(server.start)
    try:
        async with httpx.AsyncClient(base_url=server.url.split("/runs/")[0], timeout=WAIT_S) as client:
            async with Live(tmp_path / "live") as run:
                await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
                page = Page(client)
                await page.summary()
                waiting = asyncio.ensure_future(page.end())
                result = ResultRecord(kind="sandbox", exit_code=0, output="")
                await run.write(BlockFinished(agent="coder", number=1, result=result), RunFinished(outcome="completed"))
            stopping = asyncio.create_task(asyncio.to_thread(server.stop, WAIT_S))
            _, header = await waiting
            # The page asks for the last steps when it hears of them.
            last = (await client.get("/api/runs/live/steps", params={"from": 3})).json()
            await stopping
        assert (header["outcome"], [each["kind"] for each in last]) == ("completed", ["end"])
    finally:
        await asyncio.to_thread(server.stop)


async def test_reader_that_never_reads_or_vanishes_leaves_nothing_behind(tmp_path, monkeypatch):
    before = threads()
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    lost, losing = [], connections.BoundedProtocol.connection_lost
    monkeypatch.setattr(
        connections.BoundedProtocol, "connection_lost", lambda *each: (lost.append(each), losing(*each))
    )
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        vanishing = [Raw(client, "/api/runs/live/changes", rounds=1) for _ in range(5)]
        await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK), *[chunk("0123456789\n" * 300)] * 70)
        async with asyncio.timeout(WAIT_S):
            while len((await client.get("/api/runs/live/output/2")).text) < 231_000:
                await Page(client).summary()
        stalled = [Raw(client, "/api/runs/live/output/2", rounds=100) for _ in range(5)]
        for number in range(200):
            run.log.put(chunk(f"{number}" * 2_000))
        await run.write(chunk("last\n"))
        await Page(client).summary()  # others are not slowed down
        async with asyncio.timeout(WAIT_S - 5):  # idle connections end after 30 s, too
            while len(lost) < len(stalled):  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.05)
        for each in vanishing + stalled:
            each.socket.close()
        # A closed server has no tasks and no threads.
    assert threads() == before


class Raw:
    """A connection that sends requests, and reads no answer until it is waited for."""

    def __init__(self, client, path="", rounds=0, more=b""):
        url = client.base_url
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(WAIT_S)
        self.socket.connect((url.host, url.port))
        request = f"GET {url.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode()
        self.socket.sendall(request * rounds + more)

    def wait_for_end(self):
        """Wait until the server has closed the connection, and return what it has sent."""
        received = b""
        with self.socket, suppress(ConnectionError):
            while data := self.socket.recv(65_536):
                received += data
        return received


async def test_connections_without_a_request_make_room_for_pages(tmp_path):
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        page = Page(client)
        await page.changes()
        waiting = asyncio.create_task(page.summary())
        beginnings = (
            b"",
            b"GET /",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
            b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        idle = [Raw(client, more=beginnings[number % 4]) for number in range(4 * connections.MAX_CONNECTIONS)]
        for each in idle[: -2 * connections.MAX_CONNECTIONS]:
            await asyncio.to_thread(each.wait_for_end)
        assert (await client.get("/api/runs/live")).status_code == 200
        await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
        assert (await waiting)["number"] == 2
        for each in idle:
            each.socket.close()


async def test_requests_that_take_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "_MAX_WAITING", 2)
    async with Live(tmp_path / "live"), asking(tmp_path) as client:
        address = "/api/runs/live/changes"
        huge = Raw(client, more=b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert (await asyncio.to_thread(huge.wait_for_end)).startswith(b"HTTP/1.1 400")
        answer = await client.get(f"{address}?questions={'9' * 20_000},\u0663,1")
        assert (answer.status_code, answer.json()["questions"]) == (200, [])
        assert (await client.get(f"{address}?since={'9' * 20_000}")).status_code == 400
        waiting = [asyncio.create_task(client.get(f"{address}?since=99")) for _ in range(3)]
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (answer,) = [each.result() for each in done]
        assert (answer.status_code, answer.json()["error"]) == (503, "Too many pages wait for changes.")
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


# Control


async def test_question_is_answered_on_the_page_once(tmp_path):
    stopped = asyncio.Event()
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", stopped.set)
        async with asking([tmp_path / "live"], control=control) as client:
            assert (await client.get("/api/runs/live")).json()["controls"] is True
            page = Page(client)
            await page.changes()
            question = ApprovalQuestion("call", "delete the file", tool="delete", arguments={"name": "\u202ex"})
            asked = asyncio.ensure_future(control.ask(question))
            expected = {
                "id": 1,
                "agent": None,
                "kind": "call",
                "tool": "delete",
                "arguments": '{\n  "name": "\\u202ex"\n}',
                "text": "delete the file",
            }
            assert (await page.changes())["questions"] == [expected]
            # Whoever comes later sees it as well.
            assert (await Page(client).changes())["questions"] == [expected]
            answers = [
                await client.post("/api/runs/live/answer", json={"question": 1, "approve": each})
                for each in (True, False)
            ]
            assert [each.status_code for each in answers] == [200, 409]
            assert await asked is True
            assert (await page.changes())["questions"] == []


async def test_answer_that_is_none_is_refused(tmp_path):
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", lambda: None)
        async with asking([tmp_path / "live"], control=control) as client:
            for body in [b"[]", b"{", b'{"question": "1", "approve": true}', b'{"question": 1}', b"{" * 20_000]:
                with case(body):
                    headers = {"content-type": "application/json"}
                    answer = await client.post("/api/runs/live/answer", content=body, headers=headers)
                    assert answer.status_code in (400, 413)


async def test_page_of_a_run_that_has_not_begun_waits_for_its_log(tmp_path):
    control = RunControl(tmp_path / "live", lambda: None)
    async with serve([tmp_path / "live"], control=control) as url, httpx.AsyncClient(timeout=WAIT_S) as client:
        assert url.endswith("/runs/live")
        asked = asyncio.ensure_future(client.get(url.replace("/runs/", "/api/runs/")))
        await asyncio.sleep(0)
        async with Live(tmp_path / "live"):
            assert (await asked).json()["outcome"] == "running"
