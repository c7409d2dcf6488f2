"""The main job over real HTTP and in real Docker: generate, fail, decide, repair, reflect; alone, in teams, from JSON."""

import base64
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import ComponentLoader
from PIL import Image, ImageChops

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.teams import coder_executor_team
from tests.openai_server import OpenAIServer, structured
from tests.wire import (
    ANSWER,
    FAILS_CODE,
    REPAIR_CODE,
    SYSTEM,
    TASK,
    PlainAgent,
    by,
    conversation,
    failed_output,
    failure_message,
    fenced,
    formats,
    model,
    received_messages,
    script,
    story,
    texts_of,
)

pytestmark = [pytest.mark.usefixtures("docker_engine"), structured]


def reloaded(component: Any) -> Any:
    """Return the component after a round trip through JSON text."""
    text = component.dump_component().model_dump_json(exclude_none=True)
    assert "none-needed" not in text  # the client's key
    return ComponentLoader.load_component(json.loads(text), expected=object)


def same(component: Any) -> Any:
    return component


# One agent


@pytest.mark.parametrize(
    ("mode", "load", "stream", "refuses", "asked"),
    [
        ("process", same, False, set(), ["json_schema"]),
        ("session", same, False, {"json_schema"}, ["json_schema", None]),
        ("session", reloaded, True, set(), ["json_schema"]),
    ],
    ids=["plain", "no schema", "streaming, reloaded"],
)
async def test_agent_generates_fails_decides_repairs_and_reflects(
    mode: str, load: Callable[[Any], Any], stream: bool, refuses: set[str], asked: list[str | None]
) -> None:
    async with OpenAIServer(script(mode), refuses=refuses) as server:
        agent = load(
            PlainAgent(
                "coder",
                DockerCommandLineCodeExecutor(mode=mode, timeout=20),
                model_client=server.client(),
                model_client_stream=stream,
                max_retries_on_error=1,
            )
        )
        async with agent._code_executor:
            items = [item async for item in agent.run_stream(task=TASK)]
        await agent._model_client.close()

    result = items.pop()
    chunks = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    rest = [item for item in items if not isinstance(item, ModelClientStreamingChunkEvent)]
    assert texts_of(rest) == story(mode)
    assert result.messages == rest
    assert [each.models_usage.completion_tokens for each in rest if each.models_usage] == [10, 20, 30, 40]
    generate, decide, repair, reflect = conversation(mode)
    assert received_messages(server) == [generate, *[decide] * len(asked), repair, reflect]
    assert formats(server) == [None, *asked, None, None]
    assert [bool(request.get("stream")) for request in server.requests] == [
        *[stream],
        *[False] * len(asked),
        *[stream] * 2,
    ]
    assert "".join(chunks) == (fenced(FAILS_CODE) + fenced(REPAIR_CODE[mode]) + ANSWER if stream else "")


# Teams


@pytest.mark.parametrize(("mode", "load", "stream"), [("process", same, False), ("session", reloaded, True)])
async def test_coder_repairs_what_the_executor_reports(mode: str, load: Callable[[Any], Any], stream: bool) -> None:
    repaired = fenced(REPAIR_CODE[mode])
    async with OpenAIServer([fenced(FAILS_CODE), repaired, ANSWER]) as server:
        executor = DockerCommandLineCodeExecutor(mode=mode, timeout=20)
        team = load(
            coder_executor_team(
                server.client(), executor, coder_system_message="Write code.", model_client_stream=stream
            )
        )
        async with team._participants[1]._code_executor:
            result = await team.run(task=TASK)
        await team._participants[0]._model_client.close()

    report = failure_message(failed_output(mode), mode)
    assert texts_of(result.messages) == [
        ("user", TASK),
        ("coder", fenced(FAILS_CODE)),
        ("executor", report),
        ("coder", repaired),
        ("executor", "5.0\n"),
        ("coder", ANSWER),
    ]
    begin = [{"role": "system", "content": "Write code."}, by("user", TASK)]
    middle = [*begin, model(fenced(FAILS_CODE)), by("executor", report)]
    assert received_messages(server) == [begin, middle, [*middle, model(repaired), by("executor", "5.0\n")]]


# Images

PLOT_CODE = (
    "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\n"
    "plt.plot([1, 4, 9])\nplt.savefig('plot.png')\nprint('saved')\n"
)


@pytest.mark.parametrize(("mode", "vision"), [("process", True), ("session", False)])
async def test_plot_is_sent_only_to_a_model_with_vision(mode: str, vision: bool, tmp_path: Path) -> None:
    async with (
        OpenAIServer([fenced(PLOT_CODE), "A parabola.", "You asked for a plot."]) as server,
        DockerCommandLineCodeExecutor(mode=mode, timeout=50, work_dir=tmp_path) as executor,
    ):
        agent = PlainAgent("coder", executor, model_client=server.client(vision=vision))
        await agent.run(task="Plot 1, 4, 9.")
        blind = PlainAgent("coder", executor, model_client=server.client())
        await blind.load_state(json.loads(json.dumps(await agent.save_state())))
        await blind.run(task="What did I ask for?")

    words = f"saved\n\nFiles made or changed: plot.png ({(tmp_path / 'plot.png').stat().st_size} bytes)."
    told = received_messages(server)[1]
    assert told[:-1] == [SYSTEM, by("user", "Plot 1, 4, 9."), model(fenced(PLOT_CODE))]
    assert [message["content"] for message in received_messages(server)[2][1:]] == [
        "Plot 1, 4, 9.",
        fenced(PLOT_CODE),
        f"{words}\n<image>" if vision else words,
        "A parabola.",
        "What did I ask for?",
    ]
    if not vision:
        assert told[-1] == by("coder", words)
        return
    text, image = told[-1]["content"]
    assert text == {"type": "text", "text": words}
    assert image["type"] == "image_url"
    head, _, data = image["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(BytesIO(base64.b64decode(data))) as sent, Image.open(tmp_path / "plot.png") as made:
        assert (sent.format, sent.size) == ("PNG", made.size)
        assert ImageChops.difference(sent.convert("RGB"), made.convert("RGB")).getbbox() is None
