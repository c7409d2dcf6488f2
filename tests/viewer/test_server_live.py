"""Runs that are watched and answered while they are written, over the viewer's server."""

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager

import httpx
import pytest

from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    ChunkLogged,
    CodeText,
    ModelCallStarted,
    RunFinished,
)
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import ResultRecord
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.viewer import ApprovalQuestion, RunControl, serve
from autogen_codeact.viewer.server import ViewerServer
from tests.runs.logs import started

from .test_server import WAIT_S, asking

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Live:
    """A log that is written while it is watched."""

    def __init__(self, folder):
        self.folder = folder
        self.log = None

    async def __aenter__(self):
        self.log = await LogWriter.create(self.folder, Redaction(None, []))
        await self.write(started())
        return self

    async def write(self, *events):
        for event in events:
            await self.log.write(event, sync=True)

    async def __aexit__(self, *_):
        await self.log.close()


class Events:
    """Server-sent events of a stream."""

    def __init__(self, answer):
        self._lines = answer.aiter_lines()

    async def next(self, *names):
        """The data of the next event with one of these names."""
        async with asyncio.timeout(WAIT_S):
            name, number = None, None
            async for line in self._lines:
                if line.startswith("event: "):
                    name, number = line[7:], None
                elif line.startswith("id: "):
                    number = line[4:]
                elif line.startswith("data: ") and name in names:
                    self.id = number
                    return name, json.loads(line[6:])
        raise AssertionError(f"the stream has ended without {names}")


@asynccontextmanager
async def watching(client, name="live", **options):
    async with client.stream("GET", f"/api/runs/{name}/live", **options) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer)


def threads():
    """The number of servers' threads."""
    return sum(each.name == "viewer" for each in threading.enumerate())


BLOCK = [CodeText(code="work()", language="python")]


def chunk(text):
    message = {"type": "ModelClientStreamingChunkEvent", "source": "coder", "content": text}
    return ChunkLogged(message={**message, "metadata": {"chunk_of": "execution"}})


async def test_live_run_streams_its_steps_and_output_and_ends(tmp_path):
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        async with watching(client) as events:
            _, header = await events.next("header")
            assert (header["outcome"], header["live"], header["steps"]) == ("running", True, 1)
            await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
            _, step = await events.next("step")
            assert (step["summary"]["number"], step["summary"]["outcome"]) == (2, "running")
            await run.write(chunk("half \u202e\x1b[1m"))
            assert (await events.next("step"))[1]["summary"]["number"] == 2
            (step,) = (await client.get("/api/runs/live/steps?from=2&to=2")).json()
            assert (step["running"], step["output"]) == (True, "half \\u202e")
            result = ResultRecord(kind="sandbox", exit_code=0, output="half done\n")
            await run.write(BlockFinished(agent="coder", number=1, result=result))
            _, step = await events.next("step")
            assert step["summary"]["outcome"] == "ok"
            await run.write(RunFinished(outcome="completed"))
            await run.log.close()
            ended = [await events.next("step", "end")]
            while ended[-1][0] != "end":
                ended.append(await events.next("step", "end"))
            assert ended[0][1]["summary"]["kind"] == "end"
        header = (await client.get("/api/runs/live")).json()
        assert (header["outcome"], header["live"]) == ("completed", False)


async def test_reader_that_comes_back_gets_what_it_has_missed(tmp_path):
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        async with watching(client) as events:
            await events.next("header")
            await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
            await events.next("step")
            await events.next("header")
            known = events.id
        result = ResultRecord(kind="sandbox", exit_code=0, output="")
        await run.write(
            BlockFinished(agent="coder", number=1, result=result),
            ModelCallStarted(agent="coder", number=1, request="0" * 64),
        )
        async with watching(client, headers={"last-event-id": known}) as events:
            found = {}  # a step can come twice: as it was, and as it has become
            while 3 not in found:
                summary = (await events.next("step"))[1]["summary"]
                found[summary["number"]] = (summary["kind"], summary["outcome"])
            assert found == {2: ("block", "ok"), 3: ("model_call", None)}
        async with watching(client, params={"since": "0"}) as events:
            found = [(await events.next("step"))[1]["summary"]["number"] for _ in range(3)]
            assert found == [1, 2, 3]


async def test_run_whose_process_was_killed_ends_the_stream(tmp_path):
    run = Live(tmp_path / "live")
    async with asking(tmp_path) as client:
        await run.__aenter__()
        await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
        async with watching(client) as events:
            await events.next("header")
            await run.log.close()  # the lock is gone, without an end of the run
            await events.next("end")
        header = (await client.get("/api/runs/live")).json()
        assert header["outcome"] == "interrupted"


async def test_server_that_ends_with_its_run_first_tells_how_the_run_has_ended(tmp_path):
    server = ViewerServer([tmp_path / "live"])
    await asyncio.to_thread(server.start)
    try:
        async with httpx.AsyncClient(base_url=server.url.split("/runs/")[0], timeout=WAIT_S) as client:
            async with Live(tmp_path / "live") as run:
                await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
                answer = await client.send(client.build_request("GET", "/api/runs/live/live"), stream=True)
                events = Events(answer)
                await events.next("header")
                result = ResultRecord(kind="sandbox", exit_code=0, output="")
                await run.write(BlockFinished(agent="coder", number=1, result=result), RunFinished(outcome="completed"))
            stopping = asyncio.create_task(asyncio.to_thread(server.stop, WAIT_S))
            outcome = "running"
            while (event := await events.next("header", "end"))[0] == "header":
                outcome = event[1]["outcome"]
            # The page asks for the last steps when it hears of them.
            last = (await client.get("/api/runs/live/steps", params={"from": 3})).json()
            await answer.aclose()
            await stopping
        assert (outcome, [each["kind"] for each in last]) == ("completed", ["end"])
    finally:
        await asyncio.to_thread(server.stop)


async def test_reader_that_never_reads_or_vanishes_leaves_nothing_behind(tmp_path):
    before = threads()
    async with Live(tmp_path / "live") as run, asking(tmp_path) as client:
        host, port = client.base_url.host, client.base_url.port
        path = f"{client.base_url.path}api/runs/live/live"
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        idle = [socket.create_connection((host, port)) for _ in range(5)]
        for each in idle:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(request)
        await run.write(BlockStarted(agent="coder", number=1, blocks=BLOCK))
        for number in range(200):
            run.log.put(chunk(f"{number}" * 2_000))
        await run.write(chunk("last\n"))
        async with watching(client, params={"since": "0"}) as events:  # others are not slowed down
            await events.next("step")
        for each in idle:
            each.close()
        # A closed server has no tasks and no threads.
    assert threads() == before


async def test_server_ends_at_once_with_readers_connected(tmp_path):
    before = threads()
    async with Live(tmp_path / "live"):
        async with serve(tmp_path) as url:
            client = httpx.AsyncClient(base_url=url, timeout=WAIT_S)
            stream = client.stream("GET", "/api/runs/live/live")
            events = Events(await stream.__aenter__())
            await events.next("header")
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < WAIT_S
        assert threads() == before
        await stream.__aexit__(None, None, None)
        await client.aclose()


# Control


async def test_question_is_answered_on_the_page_once(tmp_path):
    stopped = asyncio.Event()
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", stopped.set)
        async with asking([tmp_path / "live"], control=control) as client:
            assert (await client.get("/api/runs/live")).json()["controls"] is True
            async with watching(client) as events:
                question = ApprovalQuestion("call", "delete the file", tool="delete", arguments={"name": "\u202ex"})
                asked = asyncio.ensure_future(control.ask(question))
                _, shown = await events.next("question")
                assert shown == {
                    "id": 1,
                    "agent": None,
                    "kind": "call",
                    "tool": "delete",
                    "arguments": '{\n  "name": "\\u202ex"\n}',
                    "text": "delete the file",
                    "withdrawn": False,
                }
                # Whoever comes later sees it as well.
                async with watching(client) as others:
                    assert (await others.next("question"))[1]["id"] == 1
                answers = [
                    await client.post("/api/runs/live/answer", json={"question": 1, "approve": each})
                    for each in (True, False)
                ]
                assert [each.status_code for each in answers] == [200, 409]
                assert await asked is True
                _, shown = await events.next("question")
                assert (shown["id"], shown["withdrawn"]) == (1, True)


async def test_withdrawn_question_disappears_and_can_not_be_answered(tmp_path):
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", lambda: None)
        async with asking([tmp_path / "live"], control=control) as client:
            asked = asyncio.ensure_future(control.ask(ApprovalQuestion("code", "print(1)")))
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            assert control.questions == []
            answer = await client.post("/api/runs/live/answer", json={"question": 1, "approve": True})
            assert answer.status_code == 409


async def test_question_that_nobody_can_read_is_not_asked(tmp_path):
    control = RunControl(tmp_path / "live", lambda: None)
    with pytest.raises(ValueError, match="which nobody can read"):
        await control.ask(ApprovalQuestion("call", "send", tool="send", arguments={"data": "x" * 1_000_000}))
    assert control.questions == []


async def test_stop_button_stops_the_run(tmp_path):
    stopped = asyncio.Event()
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", stopped.set)
        async with asking([tmp_path / "live"], control=control) as client:
            assert (await client.post("/api/runs/live/stop", json={})).status_code == 200
            async with asyncio.timeout(WAIT_S):
                await stopped.wait()


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"question": "1", "approve": true}', b'{"question": 1}', b"{" * 20_000]
)
async def test_answer_that_is_none_is_refused(tmp_path, body):
    async with Live(tmp_path / "live"):
        control = RunControl(tmp_path / "live", lambda: None)
        async with asking([tmp_path / "live"], control=control) as client:
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
