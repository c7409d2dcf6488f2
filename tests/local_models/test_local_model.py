"""The client of local models, with a live one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, SystemMessage, UserMessage
from pydantic import BaseModel

from autogen_codeact.local_models import gguf_model, local_model
from autogen_codeact.local_models.client import LocalModelClient
from autogen_codeact.local_models.server import LocalModelError
from tests.local_models.support import STORY, is_free_within, until_it_generates

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Decision(BaseModel):
    reason: str
    retry: bool


async def test_an_answer_is_whole_or_streamed_and_its_tokens_are_counted() -> None:
    client = local_model(context=2048, max_tokens=20)
    whole = await client.create(STORY)
    *pieces, streamed = [item async for item in client.create_stream(STORY)]
    assert isinstance(streamed, CreateResult)
    assert "".join(map(str, pieces)) == streamed.content == whole.content
    assert (whole.finish_reason, whole.usage.completion_tokens) == ("length", 20)
    assert whole.usage.prompt_tokens == client.count_tokens(STORY)
    assert client.remaining_tokens(STORY) == 2048 - client.count_tokens(STORY)
    assert (client.actual_usage().prompt_tokens, client.total_usage().completion_tokens) == (
        2 * whole.usage.prompt_tokens,
        40,
    )


async def test_structured_answers_always_match_their_schema(live: LocalModelClient) -> None:
    task = [
        SystemMessage(content="You judge code."),
        UserMessage(content="It failed: NameError. Retry?", source="user"),
    ]
    answer = await live.create(task, json_output=Decision)
    assert isinstance(answer.content, str)
    Decision.model_validate_json(answer.content)


@pytest.mark.parametrize("how", ["task", "token", "stream"])
async def test_a_cancelled_answer_frees_the_model_within_a_second(live: LocalModelClient, how: str) -> None:
    client = local_model(context=2048, max_tokens=1500)
    token = CancellationToken()

    async def ask() -> None:
        if how != "stream":
            await client.create(STORY, cancellation_token=token)
            return
        async for _ in client.create_stream(STORY):
            pass

    asking = asyncio.create_task(ask())
    await until_it_generates(client)
    token.cancel() if how == "token" else asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await is_free_within(client, 1)
    assert (await live.create(STORY)).content


async def test_after_a_crash_that_call_fails_and_the_next_one_starts_the_server_again() -> None:
    client = local_model(context=1024, max_tokens=900)
    asking = asyncio.create_task(client.create(STORY))
    first = await until_it_generates(client)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ConnectionError, match=r"^the process of the model SmolLM2-135M-Instruct.Q4_1.gguf has ended$"):
        await asking
    assert (await client.create(STORY, extra_create_args={"max_tokens": 3})).usage.completion_tokens == 3
    assert client._server is not None
    assert client._server.pid not in (None, first)
    client._server.stop()


async def test_clients_of_one_file_and_context_share_a_server(live: LocalModelClient) -> None:
    other = local_model(context=2048)
    await asyncio.gather(*(client.create(STORY, extra_create_args={"max_tokens": 2}) for client in (live, other)))
    assert live._server is other._server


def test_the_server_listens_on_loopback_only_and_wants_its_key() -> None:
    live = local_model(context=2048)
    address = live._address()
    assert httpx.get(f"{address.url}/v1/models").status_code == 401
    assert live._server is not None
    arguments = Path(f"/proc/{live._server.pid}/cmdline").read_text()
    assert address.key not in arguments
    assert address.url.startswith("http://127.0.0.1:")
    port = int(address.url.rpartition(":")[2])
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port:04X} " in line]
    assert listening[0] == f"0100007F:{port:04X}"


@pytest.mark.parametrize("when", ["loading", "serving", "generating"])
def test_the_server_ends_with_its_parent_however_that_ends(tmp_path: Path, when: str) -> None:
    program = f"""
import asyncio
from autogen_core.models import UserMessage
from autogen_codeact.local_models import local_model, server
if {when!r} == "loading":
    server.ModelServer._first_line = lambda self, process, tell: (print(process.pid, flush=True), process.wait())
client = local_model(context=512, max_tokens=400)
client._address()
print(client._server.pid, flush=True)
if {when!r} == "generating":
    asyncio.run(client.create([UserMessage(content="Tell a story.", source="user")]))
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert Path(f"/proc/{server}").exists()
        parent.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{server}/exe").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{server}/exe").exists()


async def test_a_component_has_the_path_and_never_the_weights(live: LocalModelClient, tmp_path: Path) -> None:
    dumped = json.loads(live.dump_component().model_dump_json())
    assert dumped["provider"] == "autogen_codeact.local_models.client.LocalModelClient"
    assert dumped["config"] == {"context": 2048, "max_tokens": 80, "temperature": 0.0}
    loaded = ChatCompletionClient.load_component(dumped)
    assert isinstance(loaded, LocalModelClient)
    assert (await loaded.create(STORY, extra_create_args={"max_tokens": 2})).usage.completion_tokens == 2
    path = tmp_path / "my.gguf"
    assert gguf_model(path, context=4096).dump_component().config["path"] == str(path)


async def test_files_that_are_no_models_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LocalModelError, match=r"there is no file .*missing.gguf"):
        await gguf_model(tmp_path / "missing.gguf").create(STORY)
    with pytest.raises(LocalModelError, match=r" is a folder: name a GGUF file in it$"):
        await gguf_model(tmp_path).create(STORY)
    (tmp_path / "notes.md").write_text("not a model")
    with pytest.raises(LocalModelError, match=r"notes.md is no GGUF file: its first four bytes are not GGUF$"):
        await gguf_model(tmp_path / "notes.md").create(STORY)
    (tmp_path / "text.gguf").write_text("GGUF not a model")
    with pytest.raises(LocalModelError, match=r"^the model text.gguf can't be loaded: "):
        await gguf_model(tmp_path / "text.gguf").create(STORY)
