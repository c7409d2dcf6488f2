"""Sessions that outlive their sandbox: what was run is in the state, and is run again where the state is loaded."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import UserMessage
from pydantic import AllowInfNan

from autogen_codeact.agents import CodeActAgent, journal
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team
from tests.agents.codeact import from_agent, python
from tests.agents.replay.support import DIFFERENT, NOT_THERE, SAME, Make
from tests.agents.support import received_by, scripted

pytestmark = pytest.mark.slow


class World:
    """A tool whose answers can't be had twice."""

    def __init__(self) -> None:
        self.asked = 0

    def ticket(self, name: str) -> dict[str, Any]:
        """Buy a ticket."""
        self.asked += 1
        if name == "nobody":
            raise KeyError(name)
        return {"name": name, "number": 100 + self.asked, "secret": "s3cr3t"}


@pytest_asyncio.fixture
async def make(bubblewrap: None) -> AsyncIterator[Make]:
    """Makes sessions."""
    made: list[SandboxCodeExecutor] = []

    async def start(timeout: float = 20, **options: Any) -> SandboxCodeExecutor:
        executor = BubblewrapCommandLineCodeExecutor(mode="session", timeout=timeout, **options)
        await executor.start()
        made.append(executor)
        return executor

    yield start
    for executor in made:
        await executor.stop()


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def outputs(messages: Any) -> list[str]:
    return [message.result.output for message in messages if isinstance(message, CodeExecutionEvent)]


def replays(messages: Any) -> list[CodeGenerationEvent]:
    return [m for m in messages if isinstance(m, CodeGenerationEvent) and "replayed" in m.metadata]


async def saved(executor: SandboxCodeExecutor, *code: str, tools: Any = (), **options: Any) -> Any:
    """The state after some code."""
    agent = CodeActAgent("actor", executor, model_client=scripted(*map(python, code), "Done."), tools=tools, **options)
    await agent.run(task="Go.")
    return through_json(await agent.save_state())


async def test_session_continues_in_another_sandbox_without_calling_host_tools(make: Make) -> None:
    world = World()
    state = await saved(
        await make(),
        "ann = ticket('Ann')",
        "try:\n    ticket('nobody')\nexcept KeyError as error:\n    print(failed := str(error))\ndef double(x): return 2 * x",
        "half = 1\nprint(object())\nraise RuntimeError('half way')",
        tools=[world.ticket],
    )
    assert world.asked == 2

    client = scripted(python("print(double(ann['number']), failed, half)"), "Done.")
    other = CodeActAgent("actor", await make(), model_client=client, tools=[world.ticket])
    await other.load_state(state)
    result = await other.run(task="Go on.")

    assert world.asked == 2
    assert [(event.content, event.metadata) for event in replays(result.messages)] == [
        (SAME.format("3 blocks were"), {"replayed": "3", "differences": "0"})
    ]
    assert outputs(result.messages) == ["202 nobody 1\n"]
    assert received_by(client)[0][-1] == UserMessage(content="Go on.", source="user")
    again = through_json(await other.save_state())
    assert again["journal"]["entries"][:3] == state["journal"]["entries"]
    assert len(again["journal"]["entries"]) == 4


async def test_replay_reports_differences(make: Make, tmp_path: Path) -> None:
    world = World()
    state = await saved(
        await make(),
        "import uuid\nprint(uuid.uuid4())",
        "n = ticket(uuid.uuid4().hex)",
        "import os\nprint('made' if os.path.exists('given.txt') else 'absent')",
        tools=[world.ticket],
    )
    client = scripted("I see.")
    executor = await make()
    (executor.work_dir / "given.txt").touch()
    other = CodeActAgent("actor", executor, model_client=client, tools=[world.ticket])
    await other.load_state(state)

    result = await other.run(task="Go on.")

    assert world.asked == 1
    words = replays(result.messages)[0].content
    assert received_by(client)[0][-2:] == [UserMessage(content="Go on.", source="user"), from_agent(words)]
    # The third finds the files that it found then.
    told_words = re.sub(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", "UUID", words)
    assert told_words == DIFFERENT.format("3 blocks were") + (
        "- block 1 printed something else than before: UUID\n"
        "- block 2 was not rebuilt: it ended with `error` (ToolError: NotOnRecord: the session is being rebuilt, and this call "
        "was not made then; it is not made now) instead of `ok`\n"
        '- block 2 wanted to call ticket(name="UUID"), which it had not called before\n'
        '- block 2 did not call ticket(name="UUID") again' + NOT_THERE
    )


async def test_killed_code_is_not_run_again(make: Make) -> None:
    state = await saved(
        await make(timeout=4), "x = 1", "import time\ntime.sleep(60)", "import os\nos.abort()", "x += 1"
    )
    assert [entry["code"] for entry in state["journal"]["entries"]] == ["x = 1\n", "x += 1\n"]

    other = CodeActAgent("actor", await make(), model_client=scripted(python("print(x)"), "Done."))
    await other.load_state(state)
    assert outputs((await other.run(task="x?")).messages) == ["2\n"]


async def test_rolled_back_blocks_are_removed_from_the_journal(make: Make) -> None:
    executor = await make()
    touch = "heap[::4096] = bytes(len(heap[::4096]))"
    blocks = [
        "x = [0]\nheap = bytearray(200 << 20)",
        touch,
        "x.append(1)",
        "x.append(2)",
        "import os\nos.abort()",
        "y = 3",
    ]
    state = await saved(executor, *blocks, setup="from math import pi")
    look = "print(x, y, 'heap' in globals() and len(heap), pi)"
    first = CodeActAgent("actor", executor, model_client=scripted(python(look), "Done."))
    seen = outputs((await first.run(task="Go on.")).messages)

    other = CodeActAgent(
        "actor", await make(), model_client=scripted(python(look), "Done."), setup="from math import pi"
    )
    await other.load_state(state)
    assert outputs((await other.run(task="Go on.")).messages) == seen


async def test_loading_the_state_of_the_current_session_rebuilds_nothing(make: Make) -> None:
    executor = await make()
    client = scripted(python("runs = globals().get('runs', 0) + 1"), "Done.", python("print(runs)"), "Done.")
    agent = CodeActAgent("actor", executor, model_client=client)
    before = await agent.save_state()
    await agent.run(task="Go.")
    await agent.load_state(before)  # as a team does after a turn that was cut short
    result = await agent.run(task="Go on.")
    assert replays(result.messages) == []
    assert outputs(result.messages) == ["1\n"]
    assert executor.starts == 1


async def test_blocks_of_others_are_counted_and_reported(make: Make) -> None:
    executor = await make()
    code = [python("x = 1"), "Done.", python("x = 2"), "Done.", python("print(x)"), "Done."]
    agent = CodeActAgent("actor", executor, model_client=scripted(*code), setup="y = 0")
    await agent.run(task="Go.")
    assert (await agent.save_state())["journal"]["unrecorded"] == 0
    await executor.checkpoint()
    await agent.run(task="Go on.")
    await executor.rollback()
    token = CancellationToken()
    await executor.execute_code_blocks([CodeBlock(code="x += 98", language="python")], token)
    assert outputs((await agent.run(task="x?")).messages) == ["99\n"]
    state = through_json(await agent.save_state())
    await agent.load_state(state)
    assert await agent.rebuild_session() is None  # it is the session that is there

    other = CodeActAgent("actor", await make(), model_client=scripted("I see."), setup="y = 0")
    await other.load_state(state)
    (event,) = replays((await other.run(task="x?")).messages)
    assert event.metadata == {"replayed": "3", "differences": "2"}
    assert event.content == DIFFERENT.format("3 blocks were") + (
        "- others than its agents used the session 2 times; that is not on record and was not done again\n"
        "- block 3 printed something else than before: 2"
    )
    assert (await other.save_state())["journal"]["unrecorded"] == 2  # it still is not the whole story

    await executor.restart()
    assert (await agent.save_state())["journal"]["unrecorded"] == 0


async def test_agents_that_share_a_session_rebuild_it_once(make: Make) -> None:
    first = await make()
    one, two = ("one", python("x = 1")), ("two", python("y = x + 1"))
    team = Team(
        [CodeActAgent(name, first, model_client=scripted(code, "Done.")) for name, code in (one, two)],
        termination_condition=MaxMessageTermination(3),
    )
    await team.run(task="Go.")
    state = through_json(await team.save_state())

    second = await make()
    again = Team(
        [
            CodeActAgent("one", second, model_client=scripted(python("print(x, y)"), "Done.")),
            CodeActAgent("two", second, model_client=scripted(python("print(y)"), "Done.")),
        ],
        termination_condition=MaxMessageTermination(3),
    )
    await again.load_state(state)
    result = await again.run(task="Go on.")
    assert outputs(result.messages) == ["1 2\n", "2\n"]
    assert [event.content for event in replays(result.messages)] == [SAME.format("2 blocks were")]


async def test_reset_clears_the_journal_and_a_loaded_one(make: Make) -> None:
    agent = CodeActAgent("actor", await make(), model_client=scripted(python("x = 1"), "Done.", "Hello."))
    await agent.run(task="Go.")
    state = await agent.save_state()
    await agent.on_reset(CancellationToken())
    assert (await agent.save_state())["journal"]["entries"] == []
    await agent.load_state(state)
    await agent.on_reset(CancellationToken())
    assert replays((await agent.run(task="Hello.")).messages) == []


async def test_journal_is_bounded_and_counts_what_is_left_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BLOCKS", 2)
    state = await saved(await make(), "a = 1", "b = 2", "c = 3", "d = 4")
    assert (len(state["journal"]["entries"]), state["journal"]["left_out"]) == (2, 2)

    other = CodeActAgent("actor", await make(), model_client=scripted("Done."))
    await other.load_state(state)
    words = replays((await other.run(task="Go.")).messages)[0].content
    assert words == DIFFERENT.format("2 blocks were") + (
        "- 2 later blocks were too many to be recorded and were not run again; what they defined is missing"
    )
    assert (await other.save_state())["journal"]["left_out"] == 2


class Closed(ValueError):
    """A tool's own exception."""


async def shop(price: Annotated[float, AllowInfNan(True)]) -> float:
    """Ask a shop that is closed, or never answers."""
    if price == 0:
        return json.loads("{")  # type: ignore[no-any-return]
    if price == 1:
        await asyncio.sleep(30)
    raise Closed(f"closed at {price}")


ERRORS = """
import asyncio, math
def caught(kind, price):
    try:
        shop(price)
    except kind as error:
        print(type(error).__name__, error)
caught(ValueError, math.nan)
caught(ValueError, 0)
caught(TypeError, "no number")
caught(ValueError, [[]] * 60_000)
try:
    import host_tools
    host_tools._call("nothing", {})
except NameError as error:
    print(error)
try:
    asyncio.run(asyncio.wait_for(shop.aio(1), 2))
except asyncio.TimeoutError:
    print("too long")
"""


async def test_errors_and_cancelled_calls_of_tools_are_replayed(make: Make) -> None:
    state = await saved(await make(), ERRORS, tools=[shop])
    assert state["journal"]["entries"][0]["outcome"] == "ok"
    calls = state["journal"]["entries"][0]["calls"]
    assert [(call["outcome"], call["error_type"], call["error_bases"]) for call in calls] == [
        ("error", "Closed", ["ValueError"]),
        ("error", "JSONDecodeError", ["ValueError"]),
        ("error", "TypeError", ["TypeError"]),
        ("refused", "BadCall", ["ValueError"]),
        ("refused", "UnknownTool", ["NameError"]),
        ("cancelled", "CancelledError", []),
    ]

    other = CodeActAgent("actor", await make(), model_client=scripted("Done."), tools=[shop])
    await other.load_state(state)
    replayed = await other.rebuild_session()
    assert replayed is not None
    assert replayed.describe() == SAME.format("1 block was")
    await other.load_state(state)  # NaN or not, it is the session that is there
    assert await other.rebuild_session() is None
